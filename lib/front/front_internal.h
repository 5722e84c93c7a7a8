/* The front's insides, shared by its files only. */
#ifndef OFLOAD_LIB_FRONT_INTERNAL_H
#define OFLOAD_LIB_FRONT_INTERNAL_H

#include "base/base.h"

#include <ofload/front.h>

typedef enum request_state { REQUEST_WAITING, REQUEST_RUNNING, REQUEST_GONE } request_state;

typedef struct front_request {
    uint64_t tag;
    uint32_t prompt_tokens, max_new_tokens;
    uint32_t slot; /* while running */
    request_state state;
    uint64_t submitted_step;
} front_request;

typedef struct front_sequence {
    uint64_t request, tag;
    uint32_t prompt_tokens, max_new_tokens;
    uint32_t prefilled; /* prompt tokens already run */
    uint32_t made;      /* new tokens so far */
    bool cancelled;
    uint32_t block_count;
    uint32_t *blocks;   /* (block_capacity), kept from request to request */
    uint64_t block_capacity;
} front_sequence;

/* Waiting requests, the next to admit on top. A cancelled one stays until it comes up. */
typedef struct front_queue {
    uint64_t *ids; /* (capacity), a binary heap */
    uint64_t count, capacity;
} front_queue;

#define FRONT_CACHE_ENTRIES 4096u

typedef struct front_cached { uint32_t tokens, logits_rows; uint64_t kv_tokens; double seconds; } front_cached;

struct ofl_front {
    const ofl_plan *plan;
    ofl_admission admission;
    uint32_t max_sequences, step_cap, prefill_chunk, block_tokens;
    uint32_t block_total, blocks_free;
    uint32_t *free_blocks; /* (block_total), a stack of blocks_free */
    front_request *requests;
    uint64_t request_count, request_capacity;
    front_queue waiting;
    uint64_t waiting_count, finished_count;
    uint64_t steps; /* committed */
    front_sequence *sequences; /* (max_sequences), by slot */
    uint32_t *order;           /* (max_sequences): slots in order of admission, running_count of them */
    uint32_t running_count;
    uint32_t *free_slots;      /* (max_sequences), a stack of max_sequences − running_count */
    ofl_step_item *items;      /* (max_sequences) */
    uint32_t item_count;
    bool in_flight;
    double step_estimate;      /* of the step in flight, as the plan says */
    double measured_sum, estimated_sum; /* fading */
    front_cached *cache;       /* (FRONT_CACHE_ENTRIES): estimates of rounded shapes, for the forecast */
};

/* Whole blocks for a request to its end. */
uint64_t ofl_front_blocks_needed(const ofl_front *front, uint32_t prompt_tokens, uint32_t max_new_tokens);
double ofl_front_correction(const ofl_front *front);

/* Does request a come before b? */
bool ofl_front_before(const ofl_front *front, uint64_t a, uint64_t b);
ofl_status ofl_front_queue_push(const ofl_front *front, front_queue *queue, uint64_t id);
/* The next waiting request, or UINT64_MAX; cancelled ones on the way are dropped. */
uint64_t ofl_front_queue_peek(const ofl_front *front, front_queue *queue);
/* After a change of what the order goes by. */
void ofl_front_queue_reorder(const ofl_front *front, front_queue *queue);
void ofl_front_queue_pop(const ofl_front *front, front_queue *queue);

/* Gives a running sequence's blocks and slot back. position: its place in front->order. */
void ofl_front_retire(ofl_front *front, uint32_t position);

/* Σ over `count` tokens from position `first` of the context each attends to. */
static inline uint64_t ofl_front_context_sum(uint64_t first, uint64_t count) { return count * first + count * (count + 1) / 2; }

#endif
