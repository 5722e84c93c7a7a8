#include "common/show.h"

#include <math.h>
#include <stdio.h>

void show_bar(double share, int width)
{
    static const char *const parts[] = {"", "▏", "▎", "▍", "▌", "▋", "▊", "▉"};
    int eighths = (int)lround(fmin(fmax(share, 0), 1) * width * 8);
    if (eighths == 0 && share > 0) eighths = 1;
    int full = eighths / 8, rest = eighths % 8;
    for (int i = 0; i < full; i++) (void)fputs("█", stdout);
    (void)fputs(parts[rest], stdout);
    for (int i = full + (rest > 0); i < width; i++) (void)fputs(" ", stdout);
}

const char *show_level(double share)
{
    static const char *const levels[] = {"·", "▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};
    if (share >= 1) return levels[8];
    long level = lround(share * 8);
    return levels[level < 0 ? 0 : level > 7 ? 7 : level];
}

size_t show_strip(const double *shares, size_t count, size_t most)
{
    size_t each = (count + most - 1) / most;
    for (size_t at = 0; at < count; at += each) {
        size_t end = at + each < count ? at + each : count;
        double sum = 0;
        for (size_t i = at; i < end; i++) sum += shares[i];
        (void)fputs(show_level(sum / (double)(end - at)), stdout);
    }
    return each;
}
