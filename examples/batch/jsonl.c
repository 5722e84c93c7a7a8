#include "batch/jsonl.h"

#include <errno.h>
#include <stdio.h>
#include <unistd.h>

#include "common/utf8.h"

#define READ_BYTES ((size_t)1 << 20)

void jsonl_begin(jsonl_reader *reader, int fd, const char *path)
{
    *reader = (jsonl_reader){.fd = fd, .path = path, .hash = HASH128_START};
}

void jsonl_end(jsonl_reader *reader)
{
    buffer_free(&reader->data);
}

/* Appends the next bytes of the file to reader->data. */
static ofl_status fill(jsonl_reader *reader)
{
    if (reader->start > 0) {
        memmove(reader->data.data, reader->data.data + reader->start, reader->data.bytes - reader->start);
        reader->data.bytes -= reader->start;
        reader->start = 0;
    }
    void *room = reader->data.data;
    if (!grow(&room, &reader->data.capacity, reader->data.bytes + READ_BYTES, 1)) return app_fail(OFL_ERROR_HOST_MEMORY, "%s: out of memory", reader->path);
    reader->data.data = room;
    ssize_t got;
    do got = read(reader->fd, reader->data.data + reader->data.bytes, READ_BYTES);
    while (got < 0 && errno == EINTR);
    if (got < 0) return app_fail(OFL_ERROR_IO, "%s: reading failed: %s", reader->path, strerror(errno));
    reader->at_end = got == 0;
    reader->hash = hash128_add(reader->hash, reader->data.data + reader->data.bytes, (size_t)got);
    reader->data.bytes += (size_t)got;
    return OFL_OK;
}

static void skip(jsonl_reader *reader, size_t bytes)
{
    reader->start += bytes;
    reader->offset += bytes;
}

/* The length up to the next LF, or to the end of the file. A line that is too long is thrown away as it is read. */
static ofl_status find_end(jsonl_reader *reader, size_t *bytes_out, bool *ended_out, bool *too_long_out)
{
    size_t looked = 0;
    *too_long_out = false;
    for (;;) {
        size_t left = reader->data.bytes - reader->start;
        char *base = reader->data.data + reader->start, *found = left > looked ? memchr(base + looked, '\n', left - looked) : NULL;
        size_t length = found != NULL ? (size_t)(found - base) : left;
        *too_long_out = *too_long_out || length > JSONL_MAX_LINE_BYTES;
        if (found != NULL || reader->at_end) {
            *bytes_out = length;
            *ended_out = found != NULL;
            return OFL_OK;
        }
        looked = left;
        if (*too_long_out) {
            skip(reader, left);
            looked = 0;
        }
        ofl_status status = fill(reader);
        if (status != OFL_OK) return status;
    }
}

static bool is_blank(const char *text, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++) {
        if (text[i] != ' ' && text[i] != '\t' && text[i] != '\r') return false;
    }
    return true;
}

ofl_status jsonl_next(jsonl_reader *reader, jsonl_line *out)
{
    size_t bytes;
    bool ended, too_long;
    uint64_t offset = reader->offset;
    ofl_status status = find_end(reader, &bytes, &ended, &too_long);
    if (status != OFL_OK) return status;
    if (!ended && bytes == 0 && !too_long) return OFL_END;
    const char *text = reader->data.data + reader->start;
    size_t whole = bytes + ended;
    if (offset == 0 && !too_long && bytes >= 3 && memcmp(text, "\xEF\xBB\xBF", 3) == 0) {
        text += 3;
        bytes -= 3;
        offset += 3;
    }
    if (!too_long && bytes > 0 && text[bytes - 1] == '\r') bytes--;
    *out = (jsonl_line){offset, ++reader->line_count,  too_long ? 0 : (uint32_t)bytes, !too_long && is_blank(text, bytes), too_long,
                        ended,  too_long ? NULL : text};
    skip(reader, whole);
    return OFL_OK;
}

static int hex4(const char *at)
{
    int value = 0;
    for (int i = 0; i < 4; i++) {
        char c = at[i];
        int digit = c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
        if (digit < 0) return -1;
        value = value * 16 + digit;
    }
    return value;
}

/* An escape at text[at] ('\\'): how many bytes it takes, 0 with why set when it cannot stand. */
static size_t check_escape(char *text, size_t at, size_t bytes, const char **why)
{
    if (at + 1 >= bytes || text[at + 1] != 'u') return 2;
    int code = at + 6 <= bytes ? hex4(text + at + 2) : -1;
    if (code < 0) *why = "a \\u escape without four hex digits";
    if (code == 0) *why = "a NUL character (\\u0000) in a string";
    if (code <= 0) return 0;
    if (code < 0xD800 || code > 0xDFFF) return 6;
    bool pair = code < 0xDC00 && at + 12 <= bytes && text[at + 6] == '\\' && text[at + 7] == 'u';
    int low = pair ? hex4(text + at + 8) : -1;
    if (low >= 0xDC00 && low <= 0xDFFF) return 12;
    memcpy(text + at + 2, "fffd", 4);
    return 6;
}

/* One walk over the bytes: UTF-8, NULs, escapes, nesting. */
static const char *check_text(char *text, size_t bytes)
{
    const char *why = NULL;
    bool in_string = false;
    int depth = 0;
    for (size_t at = 0; at < bytes && why == NULL;) {
        char c = text[at];
        if (c == '\0') return "a NUL byte";
        if ((unsigned char)c >= 0x80) {
            utf8_char character = utf8_read(text + at, bytes - at);
            if (!character.whole) return "bytes that are not UTF-8";
            at += character.bytes;
            continue;
        }
        if (in_string && c == '\\') {
            at += check_escape(text, at, bytes, &why);
            continue;
        }
        if (c == '"') in_string = !in_string;
        else if (!in_string && (c == '{' || c == '[') && ++depth > JSONL_MAX_DEPTH) return "nested too deep";
        else if (!in_string && (c == '}' || c == ']')) depth--;
        at++;
    }
    return why;
}

cJSON *jsonl_parse(char *text, size_t bytes, char *why, size_t why_bytes)
{
    const char *problem = check_text(text, bytes), *end = NULL;
    if (problem != NULL) {
        (void)snprintf(why, why_bytes, "%s", problem);
        return NULL;
    }
    cJSON *tree = cJSON_ParseWithLengthOpts(text, bytes, &end, 0);
    if (tree != NULL && is_blank(end, bytes - (size_t)(end - text))) return tree;
    (void)snprintf(why, why_bytes, "no JSON from byte %zu on", end != NULL ? (size_t)(end - text) + 1 : (size_t)1);
    cJSON_Delete(tree);
    return NULL;
}
