#include "common/show.h"

#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

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

/* Characters of the first `bytes` of UTF-8 text; each is taken as one cell wide. */
static size_t cells(const char *text, size_t bytes)
{
    size_t count = 0;
    for (size_t i = 0; i < bytes; i++) count += ((unsigned char)text[i] & 0xc0) != 0x80;
    return count;
}

void show_left(const char *text, size_t width)
{
    (void)fputs(text, stdout);
    for (size_t used = cells(text, strlen(text)); used < width; used++) (void)putchar(' ');
}

void show_right(const char *text, size_t width)
{
    for (size_t used = cells(text, strlen(text)); used < width; used++) (void)putchar(' ');
    (void)fputs(text, stdout);
}

void show_wrapped(const char *label, const char *sentence)
{
    size_t indent = cells(label, strlen(label)), at = indent;
    (void)fputs(label, stdout);
    for (bool first = true; *sentence != '\0'; first = false) {
        size_t bytes = strcspn(sentence, " "), width = cells(sentence, bytes);
        if (!first && at + 1 + width > SHOW_WIDTH) {
            printf("\n%*s", (int)indent, "");
            at = indent;
        } else if (!first) {
            (void)putchar(' ');
            at++;
        }
        (void)fwrite(sentence, 1, bytes, stdout);
        at += width;
        sentence += bytes + strspn(sentence + bytes, " ");
    }
    (void)putchar('\n');
}
