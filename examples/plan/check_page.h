/* ofload-plan --check: a plan held against its model, part by part. */
#ifndef OFLOAD_PLAN_CHECK_PAGE_H
#define OFLOAD_PLAN_CHECK_PAGE_H

#include <stdbool.h>

#include "common/app_error.h"

typedef enum check_format { CHECK_LINES, CHECK_JSON, CHECK_NOTHING } check_format;

/* Prints a line or an object for each thing checked. OFL_OK: all is well; else the sentence says how much is wrong, or what could not be
 * read. */
ofl_status check_page_print(const char *plan_path, const char *model_path, check_format format);

#endif
