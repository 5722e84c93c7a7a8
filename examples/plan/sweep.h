/* One plan for each of several values of a figure: a table and a curve for people, rows for programs. */
#ifndef OFLOAD_PLAN_SWEEP_H
#define OFLOAD_PLAN_SWEEP_H

#include "common/plan_options.h"

typedef struct sweep_request {
    const char *text;      /* "vram=8GiB..24GiB,2GiB": as --sweep has it */
    plan_options *options; /* all else; the figure that varies must not be among them */
    const char *model, *svg; /* svg: where to draw it; NULL: nowhere */
    int json, quiet;
} sweep_request;

/* For --help. */
#define SWEEP_SYNTAX                                                                                                  \
    "--sweep: vram=8GiB..24GiB, link=3GB/s..25GB/s (nine values), context=1024..32768, sequences=1..64 (doubled);\n" \
    "vram=8GiB..24GiB,2GiB goes in steps, vram=8GiB..24GiB/5 takes five values. At most 64 values.\n"

/* OFL_ERROR_NO_FIT where no value fits; the rows are shown all the same. */
ofl_status sweep_run(const sweep_request *request);

#endif
