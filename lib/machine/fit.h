/* The line t = start + bytes / rate through measured copies. */
#ifndef OFLOAD_LIB_MACHINE_FIT_H
#define OFLOAD_LIB_MACHINE_FIT_H

#include "base/base.h"

typedef struct ofl_copy_point { double bytes, seconds; } ofl_copy_point;

#define OFL_FIT_MOST_POINTS 16u

/* The rate by least squares of the times, so that the large copies, which are hurt least by noise, decide it; the start from what the small
 * ones take beyond it, never below 0. false: fewer than two sizes, a time that is not above 0, or times that do not rise with size. */
bool ofl_fit_copies(const ofl_copy_point *points, size_t count, double *start_seconds_out, double *bytes_per_second_out);

#endif
