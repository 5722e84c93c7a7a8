/* Lines of a JSONL file, one at a time in bounded memory, and the checks that each must pass before it is parsed. */
#ifndef OFLOAD_BATCH_JSONL_H
#define OFLOAD_BATCH_JSONL_H

#include <stdbool.h>

#include <cjson/cJSON.h>

#include "batch/grow.h"
#include "common/app_error.h"
#include "common/hash.h"

#define JSONL_MAX_LINE_BYTES (32u << 20)
#define JSONL_MAX_DEPTH 64

typedef struct jsonl_line {
    uint64_t offset;  /* in the file, of its first byte (after a BOM) */
    uint64_t number;  /* from 1; blank lines count */
    uint32_t bytes;   /* without line end */
    bool blank;       /* spaces and tabs only */
    bool too_long;    /* above JSONL_MAX_LINE_BYTES: no text */
    bool ended;       /* by LF; false: the file's last line lacks it */
    const char *text; /* borrowed until the next call */
} jsonl_line;

typedef struct jsonl_reader {
    int fd;
    const char *path;    /* for sentences; borrowed */
    buffer data;
    size_t start;        /* of what is not yet handed out, in data */
    uint64_t offset;     /* of data.data[start] in the file */
    uint64_t line_count;
    bool at_end;
    hash128 hash;        /* of all bytes read so far */
} jsonl_reader;

/* Reads from fd's current position, which must be the file's start. fd stays the caller's. */
void jsonl_begin(jsonl_reader *reader, int fd, const char *path);
/* Only LF ends a line; a CR before it and a BOM at the file's start are no part of it. OFL_END after the last; OFL_ERROR_IO. */
ofl_status jsonl_next(jsonl_reader *reader, jsonl_line *out);
void jsonl_end(jsonl_reader *reader);

/* Parses one line, changing it in place: \u escapes that are half a surrogate pair become U+FFFD. NULL with a reason in why: bad UTF-8, a NUL,
 * nesting too deep, no JSON. Strings of the tree hold no NUL and are valid UTF-8. Free with cJSON_Delete. */
cJSON *jsonl_parse(char *text, size_t bytes, char *why, size_t why_bytes);

#endif
