/* What a template's text says, without running it. */
#include "batch/chat_parts.h"

bool template_has(const char *text, const char *part) { return text != NULL && strstr(text, part) != NULL; }

bool template_has_any(const char *text, const char *const *parts, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        if (template_has(text, parts[i])) return true;
    }
    return false;
}

static bool starts(const char *text, const char *with) { return strncmp(text, with, strlen(with)) == 0; }

enum { OUTSIDE = 0, CODE = 1 }; /* else the quote that opened the string */

/* Where `at` stands: outside of code, in code, or in one of its strings. */
static int place_of(const char *text, const char *at)
{
    int place = OUTSIDE;
    for (; text < at; text++) {
        if (place == OUTSIDE) {
            if (starts(text, "{{") || starts(text, "{%")) place = CODE;
        } else if (place == CODE) {
            if (*text == '\'' || *text == '"') place = *text;
            else if (starts(text, "}}") || starts(text, "%}")) place = OUTSIDE;
        } else if (*text == '\\' && text + 1 < at) {
            text++;
        } else if (*text == place) {
            place = CODE;
        }
    }
    return place;
}

static char unescape(char escaped) { return escaped == 'n' ? '\n' : escaped == 't' ? '\t' : escaped == 'r' ? '\r' : escaped; }

/* Copies the constant at `from` until `end`; false where the string or the plain stretch ends before it. */
static bool copy_constant(const char *from, int place, const char *end, buffer *out, bool *memory_out)
{
    for (; *from != 0; from++) {
        char c = *from;
        if (place == OUTSIDE && (starts(from, "{{") || starts(from, "{%"))) return false;
        if (place != OUTSIDE && c == place) return *end == 0;
        if (*end != 0 && starts(from, end)) return true;
        if (place != OUTSIDE && c == '\\' && from[1] != 0) c = unescape(*++from);
        *memory_out = buffer_add(out, &c, 1);
        if (!*memory_out) return false;
    }
    return false;
}

bool template_constant(const char *text, const char *marker, const char *end, buffer *out, bool *memory_out)
{
    size_t before = out->bytes;
    *memory_out = true;
    for (const char *at = text; at != NULL && (at = strstr(at, marker)) != NULL && *memory_out;) {
        at += strlen(marker);
        int place = place_of(text, at);
        if (place == CODE) continue;
        if (copy_constant(at, place, end, out, memory_out) && out->bytes > before) return true;
        out->bytes = before;
    }
    return false;
}
