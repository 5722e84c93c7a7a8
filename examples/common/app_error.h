/* What went wrong, for programs: a sentence per thread, like the library's own. Functions of the programs return ofl_status and set it. */
#ifndef OFLOAD_APP_ERROR_H
#define OFLOAD_APP_ERROR_H

#include <ofload/status.h>

/* Sets the sentence and returns status. An argument may be app_error(). */
ofl_status app_fail(ofl_status status, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* After a call of the library: takes the sentence of a failure over. Returns status. */
ofl_status app_forward(ofl_status status);
const char *app_error(void);

#endif
