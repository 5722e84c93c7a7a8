/* Four rows of braille cells, two by four dots each, joined from point to point; below them the axis and the figures at the points. */
#include "plan/curve.h"

#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/cli.h"

#define COLUMNS 80
#define ROWS 4
#define NAME_CELLS 10 /* before the axis */

typedef struct canvas {
    uint8_t dots[ROWS][COLUMNS];
    const char *mark[ROWS][COLUMNS]; /* over the dots; NULL: none */
} canvas;

bool curve_drawn(const curve *c)
{
    size_t fit = 0;
    for (size_t i = 0; i < c->count; i++) fit += c->points[i].mark != CURVE_NO_FIT;
    return fit >= 2;
}

double curve_place(const curve *c, double x)
{
    double first = c->points[0].x, last = c->points[c->count - 1].x;
    if (last <= first) return 0;
    return c->log2_x ? log2(x / first) / log2(last / first) : (x - first) / (last - first);
}

double curve_top(const curve *c)
{
    double top = 0;
    for (size_t i = 0; i < c->count; i++) top = c->points[i].mark == CURVE_NO_FIT ? top : fmax(top, c->points[i].y);
    return top;
}

bool curve_shows_knee(const curve *c)
{
    return c->knee > 0 && c->knee >= c->points[0].x && c->knee <= c->points[c->count - 1].x;
}

static int column_of(const curve *c, double x) { return (int)lround(curve_place(c, x) * (COLUMNS - 1)); }

/* Dots count from the left and from below. */
static int dot_x(const curve *c, const curve_point *p) { return (int)lround(curve_place(c, p->x) * (2 * COLUMNS - 1)); }

static int dot_y(const curve_point *p, double top) { return top > 0 ? (int)lround(p->y / top * (4 * ROWS - 1)) : 0; }

static void put_dot(canvas *to, int x, int y)
{
    static const uint8_t bits[2][4] = {{0x40, 0x04, 0x02, 0x01}, {0x80, 0x20, 0x10, 0x08}}; /* Unicode's order of dots; from below */
    to->dots[ROWS - 1 - y / 4][x / 2] |= bits[x % 2][y % 4];
}

static void put_line(canvas *to, int x0, int y0, int x1, int y1)
{
    int steps = x1 - x0 > abs(y1 - y0) ? x1 - x0 : abs(y1 - y0);
    for (int i = 0; i <= steps; i++) {
        double part = steps > 0 ? (double)i / steps : 0;
        put_dot(to, x0 + (int)lround(part * (x1 - x0)), y0 + (int)lround(part * (y1 - y0)));
    }
}

static void draw(const curve *c, canvas *to)
{
    const curve_point *before = NULL;
    double top = curve_top(c);
    for (int row = 0; curve_shows_knee(c) && row < ROWS; row++) to->mark[row][column_of(c, c->knee)] = "┊";
    for (size_t i = 0; i < c->count; i++) {
        const curve_point *p = &c->points[i];
        bool fits = p->mark != CURVE_NO_FIT;
        int x = dot_x(c, p), y = fits ? dot_y(p, top) : 0;
        if (fits && before != NULL) put_line(to, dot_x(c, before), dot_y(before, top), x, y);
        if (fits) to->mark[ROWS - 1 - y / 4][x / 2] = p->mark == CURVE_COMPUTE ? "○" : "●";
        before = fits ? p : NULL;
    }
}

static void print_cell(const canvas *from, int row, int column)
{
    unsigned dots = from->dots[row][column];
    if (from->mark[row][column] != NULL) (void)fputs(from->mark[row][column], stdout);
    else if (dots == 0) (void)putchar(' ');
    else printf("\xe2%c%c", (int)(0xa0 | dots >> 6), (int)(0x80 | (dots & 0x3f))); /* U+2800 + dots */
}

static void print_plot(const curve *c, const canvas *from)
{
    char top[32];
    for (int row = 0; row < ROWS; row++) {
        printf("%*s %s", NAME_CELLS - 1, row == 0 ? cli_show_tokens(top, curve_top(c)) : row == ROWS - 1 ? "0" : "",
               row == 0 || row == ROWS - 1 ? "┤" : "│");
        int end = COLUMNS;
        while (end > 0 && from->mark[row][end - 1] == NULL && from->dots[row][end - 1] == 0) end--;
        for (int column = 0; column < end; column++) print_cell(from, row, column);
        printf("\n");
    }
}

static void print_axis(const curve *c)
{
    const char *cells[COLUMNS];
    for (int i = 0; i < COLUMNS; i++) cells[i] = "─";
    for (size_t i = 0; i < c->count; i++) cells[column_of(c, c->points[i].x)] = c->points[i].mark == CURVE_NO_FIT ? "×" : "┴";
    if (curve_shows_knee(c)) cells[column_of(c, c->knee)] = "▲";
    printf("%*s└", NAME_CELLS, "");
    for (int i = 0; i < COLUMNS; i++) (void)fputs(cells[i], stdout);
    printf("\n");
}

/* The figures of a point stand below it, centred. */
typedef struct label { char x[32], y[32]; int start, width; } label;

static label label_of(const curve *c, const curve_point *p)
{
    label out = {.y = "–"};
    (void)c->show_x(out.x, p->x);
    if (p->mark != CURVE_NO_FIT) (void)cli_show_tokens(out.y, p->y);
    int x = (int)strlen(out.x), y = p->mark == CURVE_NO_FIT ? 1 : (int)strlen(out.y);
    out.width = x > y ? x : y;
    out.start = column_of(c, p->x) - out.width / 2;
    if (out.start < 0) out.start = 0;
    return out;
}

static void pad_to(int *at, int column)
{
    for (; *at < column; (*at)++) (void)putchar(' ');
}

/* The last point has its figures; the others, from the left, where there is room for both of theirs. */
static void print_labels(const curve *c, bool rates)
{
    label last = label_of(c, &c->points[c->count - 1]);
    int at = 0, free_from = 0;
    printf("%-*s ", NAME_CELLS, rates ? "tokens/s" : c->x_name);
    for (size_t i = 0; i < c->count; i++) {
        label own = label_of(c, &c->points[i]);
        if (i + 1 < c->count && (own.start < free_from || own.start + own.width + 2 > last.start)) continue;
        const char *text = rates ? own.y : own.x;
        int width = rates && c->points[i].mark == CURVE_NO_FIT ? 1 : (int)strlen(text);
        pad_to(&at, own.start + (own.width - width) / 2);
        (void)fputs(text, stdout);
        at += width;
        free_from = own.start + own.width + 2;
    }
    printf("\n");
}

void curve_print(const curve *c)
{
    canvas own = {0};
    draw(c, &own);
    print_plot(c, &own);
    print_axis(c);
    print_labels(c, false);
    print_labels(c, true);
}
