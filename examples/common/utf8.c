#include "common/utf8.h"

/* The range that the second byte must lie in shuts out overlong forms, surrogates and codes above U+10FFFF. */
static unsigned character_length(unsigned char first, unsigned char *low, unsigned char *high)
{
    *low = 0x80;
    *high = 0xBF;
    if (first < 0x80) return 1;
    if (first >= 0xC2 && first <= 0xDF) return 2;
    if (first >= 0xE0 && first <= 0xEF) {
        if (first == 0xE0) *low = 0xA0;
        if (first == 0xED) *high = 0x9F;
        return 3;
    }
    if (first >= 0xF0 && first <= 0xF4) {
        if (first == 0xF0) *low = 0x90;
        if (first == 0xF4) *high = 0x8F;
        return 4;
    }
    return 0;
}

utf8_char utf8_read(const char *text, size_t bytes)
{
    const unsigned char *in = (const unsigned char *)text;
    unsigned char low, high;
    unsigned length = character_length(in[0], &low, &high);
    if (length == 0) return (utf8_char){UTF8_REPLACEMENT, 1, false};
    uint32_t code = length == 1 ? in[0] : in[0] & (0xFFu >> (length + 1));
    for (unsigned i = 1; i < length; i++) {
        if (i >= bytes || in[i] < low || in[i] > high) return (utf8_char){UTF8_REPLACEMENT, i, false};
        code = code << 6 | (in[i] & 0x3Fu);
        low = 0x80;
        high = 0xBF;
    }
    return (utf8_char){code, length, true};
}

bool utf8_valid(const char *text, size_t bytes)
{
    for (size_t at = 0; at < bytes;) {
        utf8_char c = utf8_read(text + at, bytes - at);
        if (!c.whole) return false;
        at += c.bytes;
    }
    return true;
}

size_t utf8_write(uint32_t code, char *to)
{
    if (code < 0x80) {
        to[0] = (char)code;
        return 1;
    }
    if (code < 0x800) {
        to[0] = (char)(0xC0 | code >> 6);
        to[1] = (char)(0x80 | (code & 0x3F));
        return 2;
    }
    if (code < 0x10000) {
        to[0] = (char)(0xE0 | code >> 12);
        to[1] = (char)(0x80 | (code >> 6 & 0x3F));
        to[2] = (char)(0x80 | (code & 0x3F));
        return 3;
    }
    to[0] = (char)(0xF0 | code >> 18);
    to[1] = (char)(0x80 | (code >> 12 & 0x3F));
    to[2] = (char)(0x80 | (code >> 6 & 0x3F));
    to[3] = (char)(0x80 | (code & 0x3F));
    return 4;
}

bool utf8_is_space(uint32_t code)
{
    if (code <= 0x20) return code == 0x20 || (code >= 0x09 && code <= 0x0D) || (code >= 0x1C && code <= 0x1F);
    if (code >= 0x2000 && code <= 0x200A) return true;
    return code == 0x85 || code == 0xA0 || code == 0x1680 || code == 0x2028 || code == 0x2029 || code == 0x202F || code == 0x205F ||
           code == 0x3000;
}

static size_t last_start(const char *text, size_t bytes)
{
    size_t at = bytes - 1;
    while (at > 0 && ((unsigned char)text[at] & 0xC0) == 0x80) at--;
    return at;
}

void utf8_trim(const char **text, size_t *bytes)
{
    while (*bytes != 0) {
        utf8_char c = utf8_read(*text, *bytes);
        if (!c.whole || !utf8_is_space(c.code)) break;
        *text += c.bytes;
        *bytes -= c.bytes;
    }
    while (*bytes != 0) {
        size_t at = last_start(*text, *bytes);
        utf8_char c = utf8_read(*text + at, *bytes - at);
        if (!c.whole || !utf8_is_space(c.code)) break;
        *bytes = at;
    }
}
