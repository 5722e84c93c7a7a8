/* What --sweep asks for: which figure, and its values. */
#ifndef OFLOAD_PLAN_SWEEP_VALUES_H
#define OFLOAD_PLAN_SWEEP_VALUES_H

#include <stdbool.h>

#include <ofload/ofload.h>

#include "common/app_error.h"

#define SWEEP_MOST 64

typedef enum sweep_what { SWEEP_VRAM, SWEEP_CONTEXT, SWEEP_SEQUENCES, SWEEP_LINK, SWEEP_KINDS } sweep_what;

typedef struct sweep_values {
    sweep_what what;
    bool doubling; /* else in even steps */
    bool binary;   /* sizes were given in powers of two and are shown so */
    size_t count;
    double values[SWEEP_MOST]; /* ascending, > 0; whole for sizes and counts */
} sweep_values;

/* "vram=8GiB..24GiB", with ",STEP" or "/COUNT" after it. */
ofl_status sweep_values_read(const char *text, sweep_values *out);
const char *sweep_option(sweep_what what); /* "--vram": the option that gives the same figure once */
const char *sweep_name(sweep_what what);   /* "vram", as read */
ofl_figure sweep_figure(sweep_what what);  /* OFL_FIGURE_COUNT: one of the workload, not of the machine */

#endif
