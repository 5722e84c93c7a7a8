#include "plan/json_text.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LINE_DEPTH 2u /* items of deeper objects stay on their line */

static void put(ofl_json_text *text, const char *bytes, size_t count)
{
    if (text->capacity - text->count <= count && !text->failed)
        text->failed = !ofl_grow((void **)&text->bytes, &text->capacity, text->count + count + 1, 1);
    if (text->failed) return;
    memcpy(text->bytes + text->count, bytes, count);
    text->count += count;
    text->bytes[text->count] = '\0';
}

static void put_quoted(ofl_json_text *text, const char *value)
{
    char escape[8];
    put(text, "\"", 1);
    for (const char *from = value; *from != '\0';) {
        size_t plain = 0;
        while ((unsigned char)from[plain] >= 0x20 && from[plain] != '"' && from[plain] != '\\') plain++;
        put(text, from, plain);
        from += plain;
        if (*from == '\0') break;
        int length = *from == '"' || *from == '\\' ? snprintf(escape, sizeof escape, "\\%c", *from) : snprintf(escape, sizeof escape, "\\u%04x", (unsigned char)*from);
        put(text, escape, (size_t)length);
        from++;
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

void ofl_json_put_double(ofl_json_text *text, const char *key, double value)
{
    char digits[40];
    int length = 0;
    if (!isfinite(value)) {
        ofl_json_put_null(text, key);
        return;
    }
    for (int precision = 15; precision <= 17; precision++) {
        length = snprintf(digits, sizeof digits, "%.*g", precision, value);
        if (strtod(digits, NULL) == value) break;
    }
    start(text, key);
    put(text, digits, (size_t)length);
}

void ofl_json_put_string(ofl_json_text *text, const char *key, const char *value)
{
    start(text, key);
    put_quoted(text, value);
}
