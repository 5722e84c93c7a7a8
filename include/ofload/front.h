/* The batching front: requests in, "what goes in the next step" out; forecast and ETA. It decides on tokens and never touches memory:
 * KV blocks are numbers, the caller's loop runs the step.
 *
 *   submit … ; while (next_step == OFL_OK) { run it; commit }
 *
 * Every admitted request can finish: admission counts its KV to the end (prompt + most new tokens, in whole blocks). Nothing is ever
 * evicted or recomputed.
 * Threads: one at a time. */
#ifndef OFLOAD_FRONT_H
#define OFLOAD_FRONT_H

#include <ofload/plan.h>

#ifdef __cplusplus
extern "C" {
#endif

/* A front. */
typedef struct ofl_front ofl_front;

/* Longest first: by the steps that a request takes when alone (prompt chunks + most new tokens); each step of waiting counts as one more,
 * so that none waits for ever behind longer ones that keep coming. */
typedef enum ofl_admission { OFL_FIRST_COME, OFL_LONGEST_FIRST } ofl_admission;

/* How to make one; what is 0 comes from the plan. */
typedef struct ofl_front_options {
    uint32_t struct_size;
    ofl_admission admission;
    uint32_t max_sequences;       /* 0: the plan's */
    uint32_t tokens_per_step_cap; /* 0: the plan's */
    uint32_t prefill_chunk_tokens;/* 0: the plan's */
    uint64_t kv_capacity_tokens;  /* 0: the plan's; less, where the caller's KV region is smaller than planned */
} ofl_front_options;

/* A request. */
typedef struct ofl_request {
    uint32_t struct_size;
    uint32_t prompt_tokens;  /* ≥ 1 */
    uint32_t max_new_tokens; /* ≥ 1 */
    uint64_t tag;            /* the caller's own, handed back */
} ofl_request;

/* One sequence's share of a step. Frozen layout. */
typedef struct ofl_step_item {
    uint64_t tag;
    uint64_t request;        /* as submit gave it */
    uint32_t slot;           /* 0 … max_sequences − 1, fixed while the request runs */
    uint32_t first_position; /* position of the first token of this share */
    uint32_t token_count;    /* 1 when decoding; a chunk of the prompt when prefilling */
    uint32_t prefill;        /* 1: prompt tokens first_position … ; 0: the token made last */
    uint32_t wants_logits;   /* 1: the last token of the share makes the next one */
    uint32_t block_count;    /* KV blocks owned by the sequence, enough for its whole context */
    const uint32_t *blocks;  /* block i holds positions i × kv_block_tokens …; borrowed until the request finishes */
} ofl_step_item;

/* What goes in the next step. */
typedef struct ofl_step {
    uint32_t struct_size;
    uint32_t item_count;
    const ofl_step_item *items; /* borrowed until the next call; decoding ones first */
    ofl_step_shape shape;
    ofl_step_estimate estimate; /* made before it runs; corrected by measured steps (see the forecast) */
} ofl_step;

/* What is still to come. */
typedef struct ofl_front_forecast {
    uint32_t struct_size;
    uint64_t steps;            /* still to come, if every request makes all its tokens */
    double seconds;
    double tokens_per_second;  /* new tokens over that time */
    double correction;         /* measured ÷ estimated, smoothed; 1 before the first commit */
    uint64_t waiting, running, finished;
    uint64_t new_tokens;       /* still to come, if every request makes all of them */
} ofl_front_forecast;

/* Capacity, block size, caps and step estimates come from the plan, which must outlive it. options may be NULL. */
OFL_API ofl_status ofl_front_create(const ofl_plan *plan, const ofl_front_options *options, ofl_front **out);
/* NULL is allowed. */
OFL_API void ofl_front_destroy(ofl_front *front);
/* Queues a request; its number, by which it can be cancelled, is written unless request_out is NULL. Refused at once when it can never run:
 * OFL_ERROR_NO_FIT with tokens needed and there. */
OFL_API ofl_status ofl_front_submit(ofl_front *front, const ofl_request *request, uint64_t *request_out);
/* Drops a waiting request, or frees a running one's blocks after the step in flight is committed. OFL_ERROR_NOT_FOUND: no such request, or
 * it is finished. */
OFL_API ofl_status ofl_front_cancel(ofl_front *front, uint64_t request);
/* Admits what fits and says what to run. OFL_END, no error: no request is left. Calling it again before commit or abandon is
 * OFL_ERROR_STATE. */
OFL_API ofl_status ofl_front_next_step(ofl_front *front, ofl_step *out);
/* The step ran. finished has an entry an item; NULL: none ended. finished[i] ≠ 0: item i made its last token (end token, stop string); the
 * front itself ends those that reached max_new_tokens. OFL_ERROR_STATE: no step is in flight.
 * measured_seconds: how long the step took (≤ 0: unknown). */
OFL_API ofl_status ofl_front_commit(ofl_front *front, const uint8_t *finished, double measured_seconds);
/* The step in flight did not run, or failed: it counts for nothing, and the next one holds the same tokens again. */
OFL_API ofl_status ofl_front_abandon(ofl_front *front);
/* Smaller steps from now on, between two of them; running requests go on. 0: as before. OFL_ERROR_ARGUMENT: above the plan's, or a cap
 * that does not hold one token of each sequence. */
OFL_API ofl_status ofl_front_limit(ofl_front *front, uint32_t tokens_per_step_cap, uint32_t prefill_chunk_tokens);
/* The pace has changed for good (a link at half its width): forecasts go by the steps that are committed from now on alone. */
OFL_API ofl_status ofl_front_relearn(ofl_front *front);
/* Plays the rest of the queue in its head, without running it. */
OFL_API ofl_status ofl_front_forecast_get(ofl_front *front, ofl_front_forecast *out);
/* KV blocks in all and free now; of kv_block_tokens (ofl_plan_settings) tokens each. */
OFL_API ofl_status ofl_front_blocks_get(const ofl_front *front, uint32_t *total_out, uint32_t *free_out);

#ifdef __cplusplus
}
#endif
#endif
