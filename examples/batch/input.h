/* The input file: where each request stands, found in one pass; the text is read again when it is needed, so that memory does not grow with the prompts. */
#ifndef OFLOAD_BATCH_INPUT_H
#define OFLOAD_BATCH_INPUT_H

#include <sys/types.h>

#include "batch/request.h"

typedef enum entry_state {
    ENTRY_WAITING,
    ENTRY_ANSWERED, /* its line is in the output */
    ENTRY_FAILED,   /* its error line is in the output */
    ENTRY_ELSEWHERE /* another shard's */
} entry_state;

typedef struct input_entry {
    uint64_t offset, line;    /* in the input */
    uint64_t written_offset;  /* its record in the output */
    uint32_t bytes, written_bytes;
    uint32_t written_part;    /* which file it is in, where there are several (merge) */
    hash128 id;               /* of custom_id */
    uint32_t prompt_tokens, max_tokens; /* once measured; prompt_tokens 0: a line that becomes an error */
    uint8_t choices;
    uint8_t state;            /* entry_state */
    bool has_id, too_long, greedy;
} input_entry;

typedef struct input {
    const char *path;         /* borrowed */
    int fd;
    hash128 hash;             /* of the whole file */
    input_entry *entries;     /* (count), by line */
    size_t count, capacity;
    uint32_t *by_id;          /* (id_count): entries that have an id, by hash */
    size_t id_count;
    buffer text;              /* of the line read last */
} input;

/* Reads the file once. A custom_id that is there twice: OFL_ERROR_ARGUMENT with both lines. */
ofl_status input_open(const char *path, input *out);
void input_close(input *in);
/* The entry's line, to be changed at will; borrowed until the next read. The file must not have been cut since. */
ofl_status input_read(input *in, const input_entry *entry, char **text_out);
/* Reads and parses it: *parsed_out false with *error set for a line that is an error. request_free in either case. */
ofl_status input_parse(input *in, const input_entry *entry, request *out, line_error *error, bool *parsed_out);
/* NULL: no such entry. */
input_entry *input_find_id(input *in, const char *custom_id);
input_entry *input_find_line(input *in, uint64_t line);

#endif
