/* What a program writes must be none of the files that it uses. */
#ifndef OFLOAD_COMMON_TARGET_H
#define OFLOAD_COMMON_TARGET_H

#include <stdbool.h>

#include "common/app_error.h"

/* Whether two names mean one file, there or not yet. */
bool target_same(const char *a, const char *b);
/* Refuses to write to `path` where it is the model, a description in the model's folder, or a file of
 * weights that is there already: one of several of a model. */
ofl_status target_refuse_weights(const char *option, const char *path, const char *model);
/* Refuses to write to `path` (named by `option`), or beside it, where `used` (said to be `what`) would be lost. NULL names are nothing. */
ofl_status target_refuse(const char *option, const char *path, const char *used, const char *what);

#endif
