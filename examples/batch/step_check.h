/* Is a step one that the forward pass can run? Asked before anything of it is computed or queued. */
#ifndef OFLOAD_BATCH_STEP_CHECK_H
#define OFLOAD_BATCH_STEP_CHECK_H

#include <ofload/front.h>

typedef struct step_limits {
    uint32_t tokens, kv_blocks, kv_block_tokens, vocabulary;
    uint64_t logits_rows;
} step_limits;

/* OFL_ERROR_ARGUMENT names what is wrong. ids: of all shares, item after item. */
ofl_status step_check(const step_limits *limits, const ofl_step *step, const int32_t *ids);

#endif
