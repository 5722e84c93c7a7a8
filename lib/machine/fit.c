#include "machine/fit.h"

#include <math.h>

static bool usable(const ofl_copy_point *points, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        if (!(points[i].seconds > 0) || !(points[i].bytes > 0)) return false;
    }
    return count >= 2;
}

/* Seconds per byte by least squares of the times, which the large copies decide. NAN when all are of one size. */
static double slope(const ofl_copy_point *points, size_t count)
{
    double n = (double)count, x = 0, t = 0, xx = 0, xt = 0;
    for (size_t i = 0; i < count; i++) {
        x += points[i].bytes;
        t += points[i].seconds;
        xx += points[i].bytes * points[i].bytes;
        xt += points[i].bytes * points[i].seconds;
    }
    double spread = xx - x * x / n;
    return spread > 1e-12 * xx ? (xt - x * t / n) / spread : NAN;
}

/* What the smaller half of the copies take beyond their bytes. */
static double start_of(const ofl_copy_point *points, size_t count, double per_byte)
{
    double beyond[OFL_FIT_MOST_POINTS], limit = 0;
    size_t small = 0;
    for (size_t i = 0; i < count; i++) limit = fmax(limit, points[i].bytes);
    for (size_t i = 0; i < count; i++) {
        if (points[i].bytes <= limit / 4) beyond[small++] = points[i].seconds - points[i].bytes * per_byte;
    }
    return small > 0 ? fmax(ofl_median(beyond, small), 0) : 0;
}

static double slope_after(const ofl_copy_point *points, size_t count, double start)
{
    double xx = 0, xt = 0;
    for (size_t i = 0; i < count; i++) {
        xx += points[i].bytes * points[i].bytes;
        xt += points[i].bytes * (points[i].seconds - start);
    }
    return xt / xx;
}

bool ofl_fit_copies(const ofl_copy_point *points, size_t count, double *start_seconds_out, double *bytes_per_second_out)
{
    if (count > OFL_FIT_MOST_POINTS || !usable(points, count)) return false;
    double per_byte = slope(points, count);
    if (!(per_byte > 0)) return false;
    double start = start_of(points, count, per_byte);
    per_byte = slope_after(points, count, start);
    if (!(per_byte > 0) || !isfinite(1 / per_byte)) return false;
    *start_seconds_out = start;
    *bytes_per_second_out = 1 / per_byte;
    return true;
}
