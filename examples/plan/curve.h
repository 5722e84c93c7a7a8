/* Tokens/s against another figure, drawn for a terminal: seven lines of at most a hundred cells or so. */
#ifndef OFLOAD_PLAN_CURVE_H
#define OFLOAD_PLAN_CURVE_H

#include <stdbool.h>
#include <stddef.h>

typedef enum curve_mark { CURVE_POINT, CURVE_COMPUTE, CURVE_NO_FIT } curve_mark;

typedef struct curve_point {
    double x, y; /* y: tokens/s; not read where it does not fit */
    curve_mark mark;
} curve_point;

typedef struct curve {
    const curve_point *points; /* ascending x, > 0 */
    size_t count;
    const char *x_name;
    bool log2_x;
    double knee; /* marked where it is between the first and the last point; 0: none */
    char *(*show_x)(char *buffer, double x); /* buffer of 32 */
} curve;

/* Whether there are two points that fit: less is no curve. */
bool curve_drawn(const curve *c);
/* 0 … 1 from the first to the last point. */
double curve_place(const curve *c, double x);
/* The largest of those that fit. */
double curve_top(const curve *c);
bool curve_shows_knee(const curve *c);

/* Prints it: four lines of plot, the axis, x and tokens/s at the points as far as there is room. */
void curve_print(const curve *c);

#endif
