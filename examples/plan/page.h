/* A plan as a page for people. */
#ifndef OFLOAD_PLAN_PAGE_H
#define OFLOAD_PLAN_PAGE_H

#include <ofload/ofload.h>

#include "common/app_error.h"

typedef struct page {
    const ofl_model *model;
    const ofl_machine *machine;
    const ofl_plan *plan;
    int context_given, layers_forced;
} page;

/* Prints it to standard output. */
ofl_status page_print(const page *p);

#endif
