#include "common/app_error.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static _Thread_local char sentence[1024];

ofl_status app_fail(ofl_status status, const char *format, ...)
{
    char text[sizeof sentence];
    va_list arguments;
    va_start(arguments, format);
    (void)vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    memcpy(sentence, text, sizeof sentence);
    return status;
}

ofl_status app_forward(ofl_status status) { return status == OFL_OK ? OFL_OK : app_fail(status, "%s", ofl_error_message()); }
const char *app_error(void) { return sentence; }
