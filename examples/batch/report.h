/* What was forecast and what came of it, side by side: for people and as JSON. */
#ifndef OFLOAD_BATCH_REPORT_H
#define OFLOAD_BATCH_REPORT_H

#include "batch/job.h"

typedef struct report {
    const char *status;       /* "completed", "cancelled", "dry_run" */
    const char *model, *output;
    job_totals totals;
    health health;
    ofl_front_forecast forecast; /* made before the first step; every request is taken to make all its tokens */
    double error_band_percent;
    double load_forecast_seconds, load_seconds; /* of the weights, before the first step; measured on the device's clock */
    backend_figures figures;
} report;

/* Measured against the plan's estimates of the very steps that ran; negative: it was faster than forecast. 0 when none ran. */
double report_error_percent(const report *r);
/* Schema ofload.report/1, a line feed at its end. free() it; NULL: out of memory. */
char *report_json(const report *r);
void report_print(const report *r);
/* Of a dry run. */
void report_print_forecast(const report *r);

#endif
