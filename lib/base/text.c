/* Text that came from files. */
#include "base/base.h"

#include <string.h>

size_t ofl_character_bytes(const char *text)
{
    const unsigned char *t = (const unsigned char *)text;
    size_t bytes = t[0] < 0x80 ? 1 : t[0] >= 0xC2 && t[0] < 0xE0 ? 2 : (t[0] & 0xF0) == 0xE0 ? 3 : t[0] >= 0xF0 && t[0] < 0xF5 ? 4 : 0;
    for (size_t i = 1; i < bytes; i++) {
        if ((t[i] & 0xC0) != 0x80) return 0;
    }
    bool odd = (t[0] == 0xE0 && t[1] < 0xA0) || (t[0] == 0xED && t[1] > 0x9F) || (t[0] == 0xF0 && t[1] < 0x90) ||
               (t[0] == 0xF4 && t[1] > 0x8F);
    return odd ? 0 : bytes;
}

/* As ofl_character_bytes, but 0 for the control characters below U+00A0 too: terminals obey both kinds. */
static size_t printable_bytes(const char *text)
{
    const unsigned char *t = (const unsigned char *)text;
    bool control = t[0] < 0x20 || t[0] == 0x7F || (t[0] == 0xC2 && t[1] < 0xA0);
    return control ? 0 : ofl_character_bytes(text);
}

bool ofl_is_printable(const char *text)
{
    for (size_t bytes; *text != '\0'; text += bytes) {
        bytes = printable_bytes(text);
        if (bytes == 0) return false;
    }
    return true;
}

void ofl_make_printable(char *text)
{
    while (*text != '\0') {
        size_t bytes = printable_bytes(text);
        if (bytes == 0) *text = '?';
        text += bytes != 0 ? bytes : 1;
    }
}
