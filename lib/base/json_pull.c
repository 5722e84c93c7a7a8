#include "base/json_pull.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { VALUE, VALUE_OR_END, KEY, KEY_OR_END, COMMA_OR_END, DONE };

#define MAX_NUMBER_BYTES 64u

void ofl_json_pull_start(ofl_json_pull *pull, ofl_reader *reader) { *pull = (ofl_json_pull){.reader = reader, .expects = VALUE}; }

void ofl_json_pull_end(ofl_json_pull *pull)
{
    ofl_free(pull->text);
    pull->text = NULL;
}

const char *ofl_json_pull_text(const ofl_json_pull *pull) { return pull->text != NULL ? pull->text : ""; }

static uint64_t position(const ofl_json_pull *pull) { return pull->reader->position + pull->window_used; }

static ofl_status broken(const ofl_json_pull *pull, const char *why)
{
    return ofl_fail(OFL_ERROR_FORMAT, "%s: byte %llu: %s", pull->reader->path, (unsigned long long)position(pull), why);
}

/* The next character without taking it; -1 at the end. */
static ofl_status peek(ofl_json_pull *pull, int *out)
{
    if (pull->window_used == pull->window_bytes) {
        pull->reader->position += pull->window_used;
        pull->window_used = pull->window_bytes = 0;
        ofl_status status = ofl_reader_peek(pull->reader, &pull->window, &pull->window_bytes);
        if (status != OFL_OK) return status;
    }
    *out = pull->window_used < pull->window_bytes ? pull->window[pull->window_used] : -1;
    return OFL_OK;
}

static ofl_status take(ofl_json_pull *pull, int *out)
{
    ofl_status status = peek(pull, out);
    if (status == OFL_OK && *out >= 0) pull->window_used++;
    return status;
}

static ofl_status peek_after_space(ofl_json_pull *pull, int *out)
{
    ofl_status status = peek(pull, out);
    while (status == OFL_OK && (*out == ' ' || *out == '\n' || *out == '\r' || *out == '\t')) {
        pull->window_used++;
        status = peek(pull, out);
    }
    return status;
}

static ofl_status put(ofl_json_pull *pull, int byte)
{
    if (pull->discard) return OFL_OK;
    if (pull->text_bytes >= OFL_JSON_MAX_TEXT)
        return ofl_fail(OFL_ERROR_UNSUPPORTED, "%s: byte %llu: a string of more than %u bytes", pull->reader->path,
                        (unsigned long long)position(pull), OFL_JSON_MAX_TEXT);
    if (!ofl_grow(&pull->text, &pull->text_capacity, pull->text_bytes + 2, 1))
        return ofl_fail(OFL_ERROR_HOST_MEMORY, "%s: out of host memory while it was read", pull->reader->path);
    char *text = pull->text;
    text[pull->text_bytes++] = (char)byte;
    text[pull->text_bytes] = '\0';
    return OFL_OK;
}

static ofl_status clear_text(ofl_json_pull *pull)
{
    pull->text_bytes = 0;
    if (!ofl_grow(&pull->text, &pull->text_capacity, 1, 1))
        return ofl_fail(OFL_ERROR_HOST_MEMORY, "%s: out of host memory while it was read", pull->reader->path);
    *(char *)pull->text = '\0';
    return OFL_OK;
}

static ofl_status put_code_point(ofl_json_pull *pull, uint32_t code)
{
    unsigned more = code < 0x80 ? 0 : code < 0x800 ? 1 : code < 0x10000 ? 2 : 3;
    static const unsigned lead[4] = {0, 0xc0, 0xe0, 0xf0};
    ofl_status status = put(pull, (int)(lead[more] | code >> (6 * more)));
    while (more > 0 && status == OFL_OK) {
        more--;
        status = put(pull, (int)(0x80 | (code >> (6 * more) & 0x3f)));
    }
    return status;
}

static ofl_status take_hex(ofl_json_pull *pull, uint32_t *out)
{
    uint32_t value = 0;
    for (int i = 0; i < 4; i++) {
        int c = -1;
        ofl_status status = take(pull, &c);
        if (status != OFL_OK) return status;
        if (c >= '0' && c <= '9') value = value * 16 + (uint32_t)(c - '0');
        else if (c >= 'a' && c <= 'f') value = value * 16 + (uint32_t)(c - 'a' + 10);
        else if (c >= 'A' && c <= 'F') value = value * 16 + (uint32_t)(c - 'A' + 10);
        else return broken(pull, "four hexadecimal digits are needed after \\u");
    }
    *out = value;
    return OFL_OK;
}

static ofl_status take_unicode(ofl_json_pull *pull)
{
    uint32_t code = 0, low = 0;
    int c = -1;
    ofl_status status = take_hex(pull, &code);
    if (status != OFL_OK) return status;
    if (code == 0) return broken(pull, "a NUL in a string");
    if (code >= 0xdc00 && code <= 0xdfff) return broken(pull, "half of a surrogate pair");
    if (code < 0xd800 || code > 0xdbff) return put_code_point(pull, code);
    status = take(pull, &c);
    if (status == OFL_OK && c == '\\') status = take(pull, &c);
    if (status == OFL_OK && c != 'u') return broken(pull, "half of a surrogate pair");
    if (status == OFL_OK) status = take_hex(pull, &low);
    if (status != OFL_OK) return status;
    if (low < 0xdc00 || low > 0xdfff) return broken(pull, "half of a surrogate pair");
    return put_code_point(pull, 0x10000 + ((code - 0xd800) << 10) + (low - 0xdc00));
}

static ofl_status take_escape(ofl_json_pull *pull)
{
    static const char names[] = "\"\\/bfnrt", values[] = "\"\\/\b\f\n\r\t";
    int c = -1;
    ofl_status status = take(pull, &c);
    if (status != OFL_OK) return status;
    if (c == 'u') return take_unicode(pull);
    const char *found = c > 0 ? strchr(names, c) : NULL;
    return found != NULL ? put(pull, values[found - names]) : broken(pull, "an unknown escape in a string");
}

/* The rest of a character of several bytes, its first one taken. */
static ofl_status take_utf8(ofl_json_pull *pull, int first)
{
    unsigned more = first >= 0xc2 && first <= 0xdf ? 1 : first >= 0xe0 && first <= 0xef ? 2 : first >= 0xf0 && first <= 0xf4 ? 3 : 0;
    if (more == 0) return broken(pull, "a string is not UTF-8");
    ofl_status status = put(pull, first);
    for (unsigned i = 0; i < more && status == OFL_OK; i++) {
        int c = -1, least = 0x80, most = 0xbf;
        if (i == 0 && first == 0xe0) least = 0xa0;
        if (i == 0 && first == 0xed) most = 0x9f;
        if (i == 0 && first == 0xf0) least = 0x90;
        if (i == 0 && first == 0xf4) most = 0x8f;
        status = take(pull, &c);
        if (status == OFL_OK && (c < least || c > most)) return broken(pull, "a string is not UTF-8");
        if (status == OFL_OK) status = put(pull, c);
    }
    return status;
}

/* Plain characters as many as the window holds at once: most of what files consist of. */
static ofl_status take_plain(ofl_json_pull *pull)
{
    const unsigned char *from = pull->window + pull->window_used;
    uint64_t left = pull->window_bytes - pull->window_used, count = 0;
    while (count < left && from[count] >= 0x20 && from[count] < 0x80 && from[count] != '"' && from[count] != '\\') count++;
    pull->window_used += count;
    if (pull->discard || count == 0) return OFL_OK;
    if (count > OFL_JSON_MAX_TEXT - pull->text_bytes)
        return ofl_fail(OFL_ERROR_UNSUPPORTED, "%s: byte %llu: a string of more than %u bytes", pull->reader->path,
                        (unsigned long long)position(pull), OFL_JSON_MAX_TEXT);
    if (!ofl_grow(&pull->text, &pull->text_capacity, pull->text_bytes + count + 1, 1))
        return ofl_fail(OFL_ERROR_HOST_MEMORY, "%s: out of host memory while it was read", pull->reader->path);
    memcpy((char *)pull->text + pull->text_bytes, from, (size_t)count);
    pull->text_bytes += count;
    ((char *)pull->text)[pull->text_bytes] = '\0';
    return OFL_OK;
}

static ofl_status take_string(ofl_json_pull *pull)
{
    int c = -1;
    ofl_status status = take(pull, &c); /* the quote */
    if (status == OFL_OK) status = clear_text(pull);
    while (status == OFL_OK) {
        status = take_plain(pull);
        if (status == OFL_OK) status = take(pull, &c);
        if (status != OFL_OK || c == '"') break;
        if (c < 0) return broken(pull, "the file ends within a string");
        if (c < 0x20) return broken(pull, "a control character in a string");
        if (c == '\\') status = take_escape(pull);
        else status = c < 0x80 ? put(pull, c) : take_utf8(pull, c);
    }
    return status;
}

/* Takes digits into the text: at least one. */
static ofl_status take_digits(ofl_json_pull *pull)
{
    int c = -1;
    ofl_status status = peek(pull, &c);
    if (status == OFL_OK && (c < '0' || c > '9')) return broken(pull, "a digit is needed");
    while (status == OFL_OK && c >= '0' && c <= '9') {
        if (pull->text_bytes >= MAX_NUMBER_BYTES) return broken(pull, "a number of too many digits");
        pull->window_used++;
        status = put(pull, c);
        if (status == OFL_OK) status = peek(pull, &c);
    }
    return status;
}

/* Takes the next character if it is one of these. */
static ofl_status take_one_of(ofl_json_pull *pull, const char *set, bool *taken)
{
    int c = -1;
    ofl_status status = peek(pull, &c);
    *taken = status == OFL_OK && c > 0 && strchr(set, c) != NULL;
    if (!*taken) return status;
    pull->window_used++;
    return put(pull, c);
}

static ofl_status take_number(ofl_json_pull *pull)
{
    bool taken, discard = pull->discard;
    pull->discard = false; /* its length is bounded, and checked by what was kept */
    ofl_status status = clear_text(pull);
    if (status == OFL_OK) status = take_one_of(pull, "-", &taken);
    uint64_t start = pull->text_bytes;
    if (status == OFL_OK) status = take_digits(pull);
    if (status == OFL_OK && ((const char *)pull->text)[start] == '0' && pull->text_bytes > start + 1)
        status = broken(pull, "a number begins with 0");
    if (status == OFL_OK) status = take_one_of(pull, ".", &taken);
    if (status == OFL_OK && taken) status = take_digits(pull);
    if (status == OFL_OK) status = take_one_of(pull, "eE", &taken);
    if (status == OFL_OK && taken) {
        status = take_one_of(pull, "+-", &taken);
        if (status == OFL_OK) status = take_digits(pull);
    }
    pull->discard = discard;
    return status;
}

static ofl_status take_word(ofl_json_pull *pull, const char *word)
{
    for (; *word != '\0'; word++) {
        int c = -1;
        ofl_status status = take(pull, &c);
        if (status != OFL_OK) return status;
        if (c != *word) return broken(pull, "neither true, false nor null");
    }
    return OFL_OK;
}

static void after_value(ofl_json_pull *pull) { pull->expects = pull->depth > 0 ? COMMA_OR_END : DONE; }

static ofl_status open_level(ofl_json_pull *pull, bool object, ofl_json_event *event_out)
{
    if (pull->depth == OFL_JSON_MAX_DEPTH) return broken(pull, "nested too deeply");
    pull->window_used++;
    pull->objects = object ? pull->objects | UINT64_C(1) << pull->depth : pull->objects & ~(UINT64_C(1) << pull->depth);
    pull->depth++;
    pull->expects = object ? KEY_OR_END : VALUE_OR_END;
    *event_out = object ? OFL_JSON_OBJECT : OFL_JSON_ARRAY;
    return OFL_OK;
}

static bool in_object(const ofl_json_pull *pull) { return pull->depth > 0 && (pull->objects >> (pull->depth - 1) & 1) != 0; }

static ofl_status close_level(ofl_json_pull *pull, ofl_json_event *event_out)
{
    *event_out = in_object(pull) ? OFL_JSON_OBJECT_END : OFL_JSON_ARRAY_END;
    pull->window_used++;
    pull->depth--;
    after_value(pull);
    return OFL_OK;
}

static ofl_status next_key(ofl_json_pull *pull, ofl_json_event *event_out)
{
    int c = -1;
    ofl_status status = peek_after_space(pull, &c);
    if (status == OFL_OK && c != '"') return broken(pull, "a key in quotes is needed");
    if (status == OFL_OK) status = take_string(pull);
    if (status == OFL_OK) status = peek_after_space(pull, &c);
    if (status == OFL_OK && c != ':') return broken(pull, "a colon is needed after a key");
    if (status != OFL_OK) return status;
    pull->window_used++;
    pull->expects = VALUE;
    *event_out = OFL_JSON_KEY;
    return OFL_OK;
}

static ofl_status next_value(ofl_json_pull *pull, int c, ofl_json_event *event_out)
{
    ofl_status status;
    if (c == '{' || c == '[') return open_level(pull, c == '{', event_out);
    if (c == '"') {
        *event_out = OFL_JSON_STRING;
        status = take_string(pull);
    } else if (c == '-' || (c >= '0' && c <= '9')) {
        *event_out = OFL_JSON_NUMBER;
        status = take_number(pull);
    } else if (c == 't' || c == 'f' || c == 'n') {
        *event_out = c == 't' ? OFL_JSON_TRUE : c == 'f' ? OFL_JSON_FALSE : OFL_JSON_NULL;
        status = take_word(pull, c == 't' ? "true" : c == 'f' ? "false" : "null");
    } else {
        return broken(pull, c < 0 ? "the file ends where a value is needed" : "a value is needed");
    }
    if (status == OFL_OK) after_value(pull);
    return status;
}

ofl_status ofl_json_pull_next(ofl_json_pull *pull, ofl_json_event *event_out)
{
    int c = -1;
    ofl_status status = peek_after_space(pull, &c);
    if (status != OFL_OK) return status;
    if (pull->expects == DONE) {
        *event_out = OFL_JSON_END;
        return c < 0 ? OFL_OK : broken(pull, "something follows the end");
    }
    char closing = in_object(pull) ? '}' : ']';
    if ((pull->expects == KEY_OR_END || pull->expects == VALUE_OR_END || pull->expects == COMMA_OR_END) && c == closing)
        return close_level(pull, event_out);
    if (pull->expects == COMMA_OR_END) {
        if (c != ',') return broken(pull, c < 0 ? "the file ends too early" : "a comma or an end is needed");
        pull->window_used++;
        pull->expects = in_object(pull) ? KEY : VALUE;
        status = peek_after_space(pull, &c);
        if (status != OFL_OK) return status;
    }
    if (pull->expects == KEY || pull->expects == KEY_OR_END) return next_key(pull, event_out);
    return next_value(pull, c, event_out);
}

ofl_status ofl_json_pull_expect(ofl_json_pull *pull, ofl_json_event event, const char *what)
{
    ofl_json_event got = OFL_JSON_END;
    ofl_status status = ofl_json_pull_next(pull, &got);
    if (status != OFL_OK || got == event) return status;
    return ofl_fail(OFL_ERROR_FORMAT, "%s: byte %llu: %s is of another kind than needed", pull->reader->path,
                    (unsigned long long)position(pull), what);
}

ofl_status ofl_json_pull_key(ofl_json_pull *pull, bool *more_out)
{
    ofl_json_event event = OFL_JSON_END;
    ofl_status status = ofl_json_pull_next(pull, &event);
    *more_out = event == OFL_JSON_KEY;
    return status;
}

ofl_status ofl_json_pull_skip(ofl_json_pull *pull)
{
    uint32_t depth = pull->depth;
    ofl_json_event event;
    pull->discard = true;
    ofl_status status = ofl_json_pull_next(pull, &event);
    while (status == OFL_OK && pull->depth > depth) status = ofl_json_pull_next(pull, &event);
    pull->discard = false;
    return status;
}

ofl_status ofl_json_pull_u64(ofl_json_pull *pull, const char *what, uint64_t *out)
{
    ofl_status status = ofl_json_pull_expect(pull, OFL_JSON_NUMBER, what);
    if (status != OFL_OK) return status;
    uint64_t value = 0;
    for (const char *digit = ofl_json_pull_text(pull); *digit != '\0'; digit++) {
        if (*digit < '0' || *digit > '9' || !ofl_mul_u64(value, 10, &value) || !ofl_add_u64(value, (uint64_t)(*digit - '0'), &value))
            return ofl_fail(OFL_ERROR_FORMAT, "%s: byte %llu: %s is %s; a whole number below 2^64 is needed", pull->reader->path,
                            (unsigned long long)position(pull), what, ofl_json_pull_text(pull));
    }
    *out = value;
    return OFL_OK;
}

ofl_status ofl_json_pull_double(ofl_json_pull *pull, const char *what, double *out)
{
    ofl_status status = ofl_json_pull_expect(pull, OFL_JSON_NUMBER, what);
    if (status != OFL_OK) return status;
    double value = strtod(ofl_json_pull_text(pull), NULL);
    if (!isfinite(value)) return ofl_fail(OFL_ERROR_FORMAT, "%s: %s is %s, too large", pull->reader->path, what, ofl_json_pull_text(pull));
    *out = value;
    return OFL_OK;
}

ofl_status ofl_json_pull_string(ofl_json_pull *pull, const char *what, const char **out)
{
    ofl_status status = ofl_json_pull_expect(pull, OFL_JSON_STRING, what);
    if (status == OFL_OK) *out = ofl_json_pull_text(pull);
    return status;
}

ofl_status ofl_json_pull_u64_array(ofl_json_pull *pull, const char *what, uint64_t *values, uint32_t room, uint32_t *count_out)
{
    uint32_t count = 0;
    ofl_status status = ofl_json_pull_expect(pull, OFL_JSON_ARRAY, what);
    while (status == OFL_OK) {
        int c = -1;
        ofl_json_event event;
        status = peek_after_space(pull, &c);
        if (status != OFL_OK) break;
        if (c == ']') {
            status = ofl_json_pull_next(pull, &event);
            *count_out = count;
            break;
        }
        if (count == room)
            return ofl_fail(OFL_ERROR_UNSUPPORTED, "%s: %s has more than %u numbers", pull->reader->path, what, (unsigned)room);
        status = ofl_json_pull_u64(pull, what, &values[count++]);
    }
    return status;
}
