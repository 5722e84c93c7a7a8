/* A plan as ofload-plan --output wrote it. */
#ifndef OFLOAD_PLAN_FILE_H
#define OFLOAD_PLAN_FILE_H

#include <ofload/ofload.h>

#include "common/app_error.h"

/* Reads it whole and checks it against itself; every sentence begins with the path. text_out: what it says, with a NUL behind; free() it;
 * NULL: not wanted. */
ofl_status plan_file_read(const char *path, char **text_out, ofl_plan **out);

#endif
