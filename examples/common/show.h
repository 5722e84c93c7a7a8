/* Bars, strips and sentences for a terminal; bars and strips in eighths of a character cell. */
#ifndef OFLOAD_SHOW_H
#define OFLOAD_SHOW_H

#include <stddef.h>

/* A bar of `share` (0…1) of `width` cells, padded with spaces to the width. A share above 0 shows at least an eighth. */
void show_bar(double share, int width);
/* One cell, filled from below by `share` (0…1): a dot for less than half an eighth, full for 1 alone. Borrowed. */
const char *show_level(double share);
/* Cells for `count` shares, at most `most` of them: where there are more, each cell is the mean of as many as needed. Returns how many one
 * cell stands for. */
size_t show_strip(const double *shares, size_t count, size_t most);
/* A word at the left, or at the right, of `width` cells. */
void show_left(const char *text, size_t width);
void show_right(const char *text, size_t width);
/* A sentence after `label`, broken between words at SHOW_WIDTH cells; lines after the first are indented by the label's width. */
#define SHOW_WIDTH 100
void show_wrapped(const char *label, const char *sentence);

#endif
