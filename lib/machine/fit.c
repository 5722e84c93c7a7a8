#include "machine/fit.h"

#include <math.h>
#include <stdlib.h>

/* Minimises Σ (1 − (a + b·x)/t)²: a line through (1/t, x/t) with the value 1. */
bool ofl_fit_copies(const ofl_copy_point *points, size_t count, double *start_seconds_out, double *bytes_per_second_out)
{
    double uu = 0, uv = 0, vv = 0, u = 0, v = 0;
    for (size_t i = 0; i < count; i++) {
        if (!(points[i].seconds > 0) || !(points[i].bytes > 0)) return false;
        double one = 1 / points[i].seconds, by = points[i].bytes / points[i].seconds;
        uu += one * one;
        uv += one * by;
        vv += by * by;
        u += one;
        v += by;
    }
    double determinant = uu * vv - uv * uv;
    if (count < 2 || !(determinant > 1e-12 * uu * vv)) return false;
    double start = (u * vv - v * uv) / determinant, per_byte = (v * uu - u * uv) / determinant;
    if (start < 0) {
        start = 0;
        per_byte = v / vv;
    }
    if (!(per_byte > 0) || !isfinite(1 / per_byte)) return false;
    *start_seconds_out = start;
    *bytes_per_second_out = 1 / per_byte;
    return true;
}

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

double ofl_median(double *values, size_t count)
{
    qsort(values, count, sizeof *values, ascending);
    return count % 2 == 1 ? values[count / 2] : (values[count / 2 - 1] + values[count / 2]) / 2;
}
