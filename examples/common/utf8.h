/* UTF-8, one character at a time. */
#ifndef OFLOAD_UTF8_H
#define OFLOAD_UTF8_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define UTF8_REPLACEMENT 0xFFFDu

typedef struct utf8_char {
    uint32_t code;  /* UTF8_REPLACEMENT when not whole */
    uint32_t bytes; /* 1…4; when not whole, the longest start of a character that stands here, at least 1 */
    bool whole;     /* a valid character, all of it */
} utf8_char;

/* bytes: how many are left, at least 1. */
utf8_char utf8_read(const char *text, size_t bytes);
bool utf8_valid(const char *text, size_t bytes);
/* Writes up to 4 bytes and says how many. */
size_t utf8_write(uint32_t code, char *to);
bool utf8_is_space(uint32_t code);
/* Takes white space off both ends. */
void utf8_trim(const char **text, size_t *bytes);

#endif
