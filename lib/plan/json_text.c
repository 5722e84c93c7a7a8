#include "plan/json_text.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LINE_DEPTH 2u /* items of deeper objects stay on their line */

void ofl_json_hash_rest(ofl_json_text *text)
{
    ofl_sha256_add(text->hash, text->bytes, (size_t)text->count);
    text->count = 0;
}

/* true: it is done with, or there is no memory for it. */
static bool make_room(ofl_json_text *text, const char *bytes, size_t count)
{
    if (text->hash == NULL) {
        text->failed = text->failed || !ofl_grow((void **)&text->bytes, &text->capacity, text->count + count + 1, 1);
        return text->failed;
    }
    ofl_json_hash_rest(text);
    if (count < text->capacity) return false;
    ofl_sha256_add(text->hash, bytes, count);
    return true;
}

static void put(ofl_json_text *text, const char *bytes, size_t count)
{
    if (text->failed || (text->capacity - text->count <= count && make_room(text, bytes, count))) return;
    memcpy(text->bytes + text->count, bytes, count);
    text->count += count;
    text->bytes[text->count] = '\0';
}

static bool is_plain(unsigned char byte) { return byte >= 0x20 && byte < 0x80 && byte != '"' && byte != '\\'; }

static void put_escaped(ofl_json_text *text, unsigned char byte)
{
    char escape[8];
    int length = byte == '"' || byte == '\\' ? snprintf(escape, sizeof escape, "\\%c", byte)
                                             : snprintf(escape, sizeof escape, "\\u%04x", byte);
    put(text, escape, (size_t)length);
}

static void put_quoted(ofl_json_text *text, const char *value)
{
    put(text, "\"", 1);
    for (const char *from = value; *from != '\0';) {
        size_t plain = 0, wide;
        while (is_plain((unsigned char)from[plain])) plain++;
        put(text, from, plain);
        from += plain;
        if (*from == '\0') break;
        wide = (unsigned char)*from < 0x80 ? 1 : ofl_character_bytes(from);
        if (wide == 0) put(text, "\xEF\xBF\xBD", 3); /* the sign for a character that is none */
        else if (wide == 1) put_escaped(text, (unsigned char)*from);
        else put(text, from, wide);
        from += wide != 0 ? wide : 1;
    }
    put(text, "\"", 1);
}

static void new_line(ofl_json_text *text)
{
    put(text, "\n", 1);
    for (uint32_t i = 0; i < text->depth; i++) put(text, "  ", 2);
}

static void start(ofl_json_text *text, const char *key)
{
    if (text->comma) put(text, ",", 1);
    if (text->depth > 0 && text->depth <= LINE_DEPTH) new_line(text);
    else if (text->comma) put(text, " ", 1);
    text->comma = true;
    if (key == NULL) return;
    put(text, "\"", 1); /* keys are our own: nothing to escape */
    put(text, key, strlen(key));
    put(text, "\": ", 3);
}

void ofl_json_open(ofl_json_text *text, const char *key, char kind)
{
    start(text, key);
    put(text, &kind, 1);
    text->depth++;
    text->comma = false;
}

void ofl_json_close(ofl_json_text *text, char kind)
{
    text->depth--;
    if (text->comma && text->depth < LINE_DEPTH) new_line(text);
    put(text, kind == '{' ? "}" : "]", 1);
    text->comma = true;
}

void ofl_json_put_u64(ofl_json_text *text, const char *key, uint64_t value)
{
    char digits[20];
    size_t at = sizeof digits;
    do digits[--at] = (char)('0' + value % 10);
    while ((value /= 10) != 0);
    start(text, key);
    put(text, digits + at, sizeof digits - at);
}

void ofl_json_put_i64(ofl_json_text *text, const char *key, int64_t value)
{
    char digits[24];
    int length = snprintf(digits, sizeof digits, "%" PRId64, value);
    start(text, key);
    put(text, digits, (size_t)length);
}

void ofl_json_put_bool(ofl_json_text *text, const char *key, bool value)
{
    start(text, key);
    put(text, value ? "true" : "false", value ? 4 : 5);
}

void ofl_json_put_null(ofl_json_text *text, const char *key)
{
    start(text, key);
    put(text, "null", 4);
}

static void find_digits(ofl_json_text *text, double value)
{
    if (text->last_length != 0 && memcmp(&text->last, &value, sizeof value) == 0) return; /* 0 and −0 differ */
    for (int precision = 15; precision <= 17; precision++) {
        text->last_length = (uint32_t)snprintf(text->last_digits, sizeof text->last_digits, "%.*g", precision, value);
        if (strtod(text->last_digits, NULL) == value) break;
    }
    text->last = value;
}

void ofl_json_put_double(ofl_json_text *text, const char *key, double value)
{
    if (!isfinite(value)) {
        ofl_json_put_null(text, key);
        return;
    }
    find_digits(text, value);
    start(text, key);
    put(text, text->last_digits, text->last_length);
}

void ofl_json_put_string(ofl_json_text *text, const char *key, const char *value)
{
    start(text, key);
    put_quoted(text, value);
}
