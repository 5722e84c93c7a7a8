/* How the next token of a row of logits is to be chosen, and what was chosen. */
#ifndef OFLOAD_BATCH_CHOOSE_H
#define OFLOAD_BATCH_CHOOSE_H

#include "batch/logprobs.h"
#include "batch/sampler.h"

typedef struct row_choice {
    sampling how;
    uint32_t logprobs; /* wanted: 0, or 1 and so many of the likeliest, at most LOGPROBS_MAX_TOP */
    int32_t token;     /* chosen; −1: the largest logit of the row is no finite number */
    logprob entries[1 + LOGPROBS_MAX_TOP]; /* `logprobs` of them: the chosen one, then the likeliest */
} row_choice;

/* On the host. logits: `stride` from row to row, of which the first `usable` count. scratch: usable × 8 bytes. */
void choose_rows(row_choice *rows, uint32_t count, const float *logits, uint64_t stride, uint32_t usable, void *scratch);

#endif
