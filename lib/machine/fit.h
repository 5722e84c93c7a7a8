/* The line t = start + bytes / rate through measured copies. */
#ifndef OFLOAD_LIB_MACHINE_FIT_H
#define OFLOAD_LIB_MACHINE_FIT_H

#include "base/base.h"

typedef struct ofl_copy_point { double bytes, seconds; } ofl_copy_point;

/* Least squares of the relative error, so that small copies count as much as large ones; a start below 0 becomes 0 and the rate is fitted again.
 * false: fewer than two sizes, a time that is not above 0, or times that do not rise with size. */
bool ofl_fit_copies(const ofl_copy_point *points, size_t count, double *start_seconds_out, double *bytes_per_second_out);

/* Sorts. count ≥ 1. */
double ofl_median(double *values, size_t count);

#endif
