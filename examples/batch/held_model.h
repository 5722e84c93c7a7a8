/* The piece of a model on which compute is measured before there is a plan: its first blocks and parts of its head, held without an engine, and
 * the shares of the steps that are timed on it. Where it is held is the back end's affair. */
#ifndef OFLOAD_BATCH_HELD_MODEL_H
#define OFLOAD_BATCH_HELD_MODEL_H

#include <ofload/ofload.h>

#include "batch/forward.h"
#include "batch/weights.h"

#define HELD_KV_BLOCK_TOKENS 16u
#define HELD_CONTEXT 512u /* attention is measured up to there */
#define HELD_ROWS 64u     /* likewise the head */

typedef struct held_size { /* more than the caches nearest to what computes, so that they hold no more than in a step */
    uint64_t block_bytes;   /* of blocks, walked through; one at least */
    uint64_t head_bytes;    /* likewise of the head, … */
    uint64_t head_elements; /* … so much of it at a time … */
    uint32_t head_rows;     /* … in multiples of so many rows */
} held_size;

typedef struct held_model {
    const ofl_model *model;
    ofl_model_shape shape;
    uint32_t max_tokens, max_rows;
    uint32_t blocks, parts, block_at, part_at; /* held of the model, of the head, and which is next */
    double block_elements, head_elements;      /* of a block, on average; of a part */
    weights_held *held;                        /* (held_count): matrices of the blocks, parts of the head, vectors; `data` is the back end's */
    uint32_t held_count;
    ofl_step_item *items;
    uint32_t *kv_blocks, kv_block_count;
} held_model;

/* Chooses the pieces. held_close also after a failure. */
ofl_status held_open(const forward_measure_job *job, const held_size *size, held_model *out);
void held_close(held_model *h);
uint64_t held_bytes(const held_model *h, uint32_t index);
ofl_status held_read(const held_model *h, uint32_t index, void *to);
/* The step that a run stands for, in h's items, and the walk at its first matrix: a block's, or a part of the head, the next one each time.
 * *block_out: which block. */
void held_step(held_model *h, const ofl_compute_run *run, weights *walk, ofl_step *out, uint32_t *block_out);
/* Lively numbers: some products and exponents take longer for numbers near 0. */
void held_enliven(float *to, uint64_t count);
/* Times `run` on it. stream: the back end's, or NULL. */
ofl_status held_measure(const held_model *h, ofl_device *device, ofl_stream *stream, uint32_t token_step,
                        ofl_status (*run)(void *context, const ofl_compute_run *run), void *context, ofl_compute_figures *out);

#endif
