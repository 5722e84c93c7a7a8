/* Lines of the output: OpenAI's batch format, errors inline. */
#ifndef OFLOAD_BATCH_RECORD_H
#define OFLOAD_BATCH_RECORD_H

#include "batch/logprobs.h"
#include "batch/request.h"

typedef struct record_maker { /* what all records of a run share */
    hash128 input_hash;       /* makes the ids of the records: the same line of the same file gets the same ids */
    const char *model_name;
    const char *fingerprint;  /* model, compute and KV type */
    int64_t created;          /* seconds since 1970 */
    token_text text;          /* of the ids in a choice's logprobs */
} record_maker;

typedef struct record_choice {
    const char *text;         /* valid UTF-8 */
    size_t bytes;
    const char *finish_reason; /* "stop", "length" */
    uint32_t tokens;
    const logprob_list *logprobs; /* NULL: not asked for */
} record_choice;

/* Each fills `out` anew with a whole line, its LF included. OFL_ERROR_HOST_MEMORY. */
ofl_status record_answer(const record_maker *maker, const char *custom_id, uint64_t line, bool chat, uint32_t prompt_tokens, const record_choice *choices,
                         uint32_t choice_count, buffer *out);
/* custom_id NULL: null. */
ofl_status record_error(const record_maker *maker, const char *custom_id, uint64_t line, const line_error *error, buffer *out);

/* A line of an output read back. false: it is no record of this kind. */
typedef struct record_head {
    char *custom_id; /* owned, free(); NULL: null */
    uint64_t line;   /* of an error record; 0: an answer */
    bool failed;
} record_head;
bool record_read(char *text, size_t bytes, record_head *out);

#endif
