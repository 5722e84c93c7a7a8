/* Log-probabilities of an answer's tokens: of each token the chosen one's, and those of the likeliest in its place.
 * They are the model's own: ln softmax of its logits over all ids that have a meaning, before temperature, top_p and top_k change anything.
 * Added up in the order of the ids, so that the same logits give the same figures whatever else is in the step.
 * One token takes (1 + top) × 8 bytes until the answer is written. */
#ifndef OFLOAD_BATCH_LOGPROBS_H
#define OFLOAD_BATCH_LOGPROBS_H

#include "batch/json_put.h"

#define LOGPROBS_MAX_TOP 20u      /* chat */
#define LOGPROBS_MAX_TOP_PLAIN 5u /* plain completions */
#define LOGPROBS_NONE (-9999.0f)  /* where the model gives an id no chance at all */
/* A token's text is short; what a candidate takes in the output is taken as this when a request is admitted. */
#define LOGPROBS_RECORD_BYTES 128u

typedef struct logprob { int32_t id; float value; } logprob;

typedef struct logprob_list {
    logprob *entries;  /* owned; (tokens × (1 + top)): the chosen one, then the likeliest, best first; id −1: fewer ids than that */
    size_t capacity;   /* entries */
    uint32_t tokens, top;
} logprob_list;

typedef struct token_text { /* where the bytes of an id are */
    const char *(*bytes)(void *context, int32_t id, size_t *bytes_out);
    void *context;
} token_text;

/* Of an id: its logit, the largest logit, and ln Σ e^(logit − largest) over all ids. id −1: none. */
logprob logprob_of(int32_t id, float logit, double best, double log_sum);
/* 1 + top entries of a token chosen from these logits, of which only the first `usable` count. */
void logprobs_of(const float *logits, uint32_t usable, int32_t chosen, uint32_t top, logprob *out);
/* A token's 1 + list->top entries. false: out of memory. */
bool logprobs_add(logprob_list *list, const logprob *entries);
/* A stop string cut the text to `text_bytes`: tokens that lie behind it are dropped. */
void logprobs_cut(logprob_list *list, const token_text *text, size_t text_bytes);
void logprobs_free(logprob_list *list);
/* Bytes held. */
static inline uint64_t logprobs_bytes(const logprob_list *list) { return (uint64_t)list->capacity * sizeof *list->entries; }

/* The value of "logprobs" in a choice. Chat: content[]{token logprob bytes top_logprobs[]}. Plain completions: tokens, token_logprobs,
 * top_logprobs (the chosen one among them) and text_offset, in characters from the answer's start. A token that is no whole UTF-8 by itself
 * (or a NUL) is named bytes:\xe2\x82. */
void logprobs_put(json_put *w, const logprob_list *list, const token_text *text, bool chat);

#endif
