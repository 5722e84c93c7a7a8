/* A small writer of SVG: shapes have a class each, whose colours are set once for light and once for dark; text stays text. Lengths are
 * in pixels, y grows downwards. */
#ifndef OFLOAD_PLAN_SVG_H
#define OFLOAD_PLAN_SVG_H

#include <stddef.h>
#include <stdio.h>

#include "common/app_error.h"

#define SVG_WIDTH 960

typedef struct svg {
    FILE *out; /* the shapes so far, in memory */
    char *shapes;
    size_t bytes;
} svg;

ofl_status svg_begin(svg *s);
/* Classes: resident ring streamed kv runtime headroom grid card. */
void svg_box(svg *s, const char *class_name, double x, double y, double width, double height);
/* Classes: curve axis grid knee. */
void svg_line(svg *s, const char *class_name, double x1, double y1, double x2, double y2);
/* Classes: dot (copying decides), ring-dot (computing decides). */
void svg_dot(svg *s, const char *class_name, double x, double y, double radius);
/* Classes: name words quiet; `anchor`: start, middle or end. Any bytes may come: what XML cannot hold is shown as "?". */
void svg_text(svg *s, const char *class_name, const char *anchor, double x, double y, const char *text);
/* The whole document, owned; ends the writer. `title` is what a reader aloud says. NULL out of memory. */
char *svg_end(svg *s, double height, const char *title);

#endif
