/* OUT.jsonl.state.json: what the output beside it was made from, so that a later run goes on only with the same. */
#ifndef OFLOAD_BATCH_STATE_H
#define OFLOAD_BATCH_STATE_H

#include <stdint.h>

#include "common/app_error.h"

#define STATE_VALUE_BYTES 160

typedef enum state_key { /* what must be the same; the names are in state.c */
    STATE_INPUT, STATE_MODEL, STATE_WEIGHTS, STATE_COMPUTE, STATE_KV_TYPE, STATE_MAX_TOKENS, STATE_TEMPLATE, STATE_CONTEXT, STATE_SHARD,
    STATE_KEY_COUNT
} state_key;

typedef struct batch_state {
    char values[STATE_KEY_COUNT][STATE_VALUE_BYTES];
    uint64_t total, completed, failed;
    const char *status; /* OpenAI's words: "in_progress", "completed", "cancelled" (stopped, resumable) */
} batch_state;

/* Atomically. */
ofl_status state_write(const char *path, const batch_state *state);
/* OFL_END: there is none. Only `values` are read. */
ofl_status state_read(const char *path, batch_state *out);
/* OFL_ERROR_MISMATCH names the first thing that differs. */
ofl_status state_compare(const batch_state *before, const batch_state *now);

#endif
