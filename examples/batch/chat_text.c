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

/* How far the template has been read, and what stands there. */
typedef struct reading {
    const char *at;
    int place;
} reading;

static void read_to(reading *r, const char *to)
{
    for (; r->at < to; r->at++) {
        if (r->place == OUTSIDE) {
            if (starts(r->at, "{{") || starts(r->at, "{%")) r->place = CODE;
        } else if (r->place == CODE) {
            if (*r->at == '\'' || *r->at == '"') r->place = *r->at;
            else if (starts(r->at, "}}") || starts(r->at, "%}")) r->place = OUTSIDE;
        } else if (*r->at == '\\' && r->at + 1 < to) {
            r->at++;
        } else if (*r->at == r->place) {
            r->place = CODE;
        }
    }
}

static char unescape(char escaped) { return escaped == 'n' ? '\n' : escaped == 't' ? '\t' : escaped == 'r' ? '\r' : escaped; }

/* Nothing is looked for beyond these, so that a hostile template cannot take long. */
#define MAX_CONSTANT 16384
#define MAX_PLACES 64

/* Copies the constant at `from` until `end`; false where the string or the plain stretch ends before it. */
static bool copy_constant(const char *from, int place, const char *end, buffer *out, bool *memory_out)
{
    for (const char *limit = from + MAX_CONSTANT; *from != 0 && from < limit; from++) {
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
    reading r = {text, OUTSIDE};
    const char *at = text;
    for (int places = 0; places < MAX_PLACES && at != NULL && (at = strstr(at, marker)) != NULL && *memory_out; places++) {
        at += strlen(marker);
        read_to(&r, at);
        if (r.place == CODE) continue;
        if (copy_constant(at, r.place, end, out, memory_out) && out->bytes > before) return true;
        out->bytes = before;
    }
    return false;
}

static void copy_quoted(const char *at, char *out, size_t out_bytes)
{
    char quote = *at == '\'' || *at == '"' ? *at++ : 0;
    size_t used = 0;
    for (; quote != 0 && *at != 0 && *at != quote && used + 1 < out_bytes; at++) {
        if (*at == '\\' && at[1] != 0) at++;
        out[used++] = *at;
    }
    out[used] = '\0';
}

bool template_raises(const char *text, const char *part, const char *other, char *why, size_t why_bytes)
{
    static const char call[] = "raise_exception(";
    const char *at = text;
    for (int places = 0; places < MAX_PLACES && at != NULL && (at = strstr(at, call)) != NULL; places++) {
        at += sizeof call - 1;
        copy_quoted(at + strspn(at, " \n"), why, why_bytes);
        if (strstr(why, part) != NULL && strstr(why, other) != NULL) return true;
    }
    return false;
}
