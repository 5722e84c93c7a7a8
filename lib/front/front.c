/* The queue from outside: create, submit, cancel; and what a sequence gives back. */
#include "front/front_internal.h"

#include <string.h>

/* Each limit is the plan's, or less: memory is sized by the plan's. */
static ofl_status limit(const char *what, uint32_t wanted, uint32_t planned, uint32_t *out)
{
    if (wanted > planned)
        return ofl_fail(OFL_ERROR_ARGUMENT, "front: %s %u is above the plan's %u; make a plan for it", what, wanted, planned);
    *out = wanted != 0 ? wanted : planned;
    return OFL_OK;
}

static ofl_status read_capacity(ofl_front *front, uint64_t wanted, const ofl_plan_settings *plan)
{
    if (wanted > plan->kv_capacity_tokens)
        return ofl_fail(OFL_ERROR_ARGUMENT, "front: a KV capacity of %llu tokens is above the plan's %llu; make a plan for it",
                        (unsigned long long)wanted, (unsigned long long)plan->kv_capacity_tokens);
    uint64_t tokens = wanted != 0 ? wanted : plan->kv_capacity_tokens;
    front->block_tokens = plan->kv_block_tokens;
    front->block_total = (uint32_t)ofl_min_u64(tokens / plan->kv_block_tokens, UINT32_MAX);
    return OFL_OK;
}

static ofl_status read_limits(ofl_front *front, const ofl_front_options *options)
{
    ofl_plan_settings plan = {.struct_size = sizeof plan};
    ofl_status status = ofl_plan_settings_get(front->plan, &plan);
    if (status == OFL_OK) status = limit("max_sequences", options->max_sequences, plan.sequences, &front->max_sequences);
    if (status == OFL_OK) status = limit("tokens_per_step_cap", options->tokens_per_step_cap, plan.tokens_per_step_cap, &front->step_cap);
    if (status == OFL_OK)
        status = limit("prefill_chunk_tokens", options->prefill_chunk_tokens, plan.prefill_chunk_tokens, &front->prefill_chunk);
    if (status != OFL_OK) return status;
    if (options->admission != OFL_FIRST_COME && options->admission != OFL_LONGEST_FIRST)
        return ofl_fail(OFL_ERROR_ARGUMENT, "front: unknown admission %d", (int)options->admission);
    if (plan.kv_block_tokens == 0 || front->max_sequences == 0 || front->step_cap == 0 || front->prefill_chunk == 0)
        return ofl_fail(OFL_ERROR_ARGUMENT, "front: the plan has no sequences, tokens or KV blocks");
    /* All sequences may be decoding, one token each; the cap has to hold them. */
    if (front->max_sequences > front->step_cap) front->max_sequences = front->step_cap;
    front->admission = options->admission;
    return read_capacity(front, options->kv_capacity_tokens, &plan);
}

ofl_status ofl_front_limit(ofl_front *front, uint32_t tokens_per_step_cap, uint32_t prefill_chunk_tokens)
{
    ofl_plan_settings plan = {.struct_size = sizeof plan};
    uint32_t cap = 0, chunk = 0;
    if (front == NULL) return ofl_fail(OFL_ERROR_ARGUMENT, "front: no handle");
    if (front->in_flight) return ofl_fail(OFL_ERROR_STATE, "front: a step is in flight; commit or abandon it first");
    ofl_status status = ofl_plan_settings_get(front->plan, &plan);
    if (status == OFL_OK) status = limit("tokens_per_step_cap", tokens_per_step_cap, plan.tokens_per_step_cap, &cap);
    if (status == OFL_OK) status = limit("prefill_chunk_tokens", prefill_chunk_tokens, plan.prefill_chunk_tokens, &chunk);
    if (status != OFL_OK) return status;
    if (tokens_per_step_cap == 0) cap = front->step_cap;
    if (cap < front->max_sequences)
        return ofl_fail(OFL_ERROR_ARGUMENT, "front: %u tokens a step do not hold one token of each of %u sequences", cap,
                        front->max_sequences);
    front->step_cap = cap;
    if (prefill_chunk_tokens != 0) front->prefill_chunk = chunk;
    ofl_front_queue_reorder(front, &front->waiting); /* which one is the longest goes by the chunk */
    return OFL_OK;
}

ofl_status ofl_front_relearn(ofl_front *front)
{
    if (front == NULL) return ofl_fail(OFL_ERROR_ARGUMENT, "front: no handle");
    front->measured_sum = front->estimated_sum = 0;
    return OFL_OK;
}

static bool allocate(ofl_front *front)
{
    front->free_blocks = ofl_alloc(front->block_total, sizeof *front->free_blocks);
    front->sequences = ofl_alloc(front->max_sequences, sizeof *front->sequences);
    front->order = ofl_alloc(front->max_sequences, sizeof *front->order);
    front->free_slots = ofl_alloc(front->max_sequences, sizeof *front->free_slots);
    front->items = ofl_alloc(front->max_sequences, sizeof *front->items);
    front->cache = ofl_alloc(FRONT_CACHE_ENTRIES, sizeof *front->cache);
    return front->free_blocks && front->sequences && front->order && front->free_slots && front->items && front->cache;
}

ofl_status ofl_front_create(const ofl_plan *plan, const ofl_front_options *options, ofl_front **out)
{
    ofl_front_options full = {.struct_size = sizeof full};
    if (out == NULL) return ofl_fail(OFL_ERROR_ARGUMENT, "front: no place for the handle");
    *out = NULL;
    if (plan == NULL) return ofl_fail(OFL_ERROR_ARGUMENT, "front: no plan given");
    ofl_status status = options != NULL ? ofl_struct_in(&full, sizeof full, options, "ofl_front_options") : OFL_OK;
    if (status != OFL_OK) return status;
    ofl_front *front = ofl_alloc(1, sizeof *front);
    if (front == NULL) return ofl_fail(OFL_ERROR_HOST_MEMORY, "front: no host memory");
    front->plan = plan;
    status = read_limits(front, &full);
    if (status == OFL_OK && !allocate(front))
        status = ofl_fail(OFL_ERROR_HOST_MEMORY, "front: no host memory for %u KV blocks", front->block_total);
    if (status != OFL_OK) {
        ofl_front_destroy(front);
        return status;
    }
    /* Lowest numbers on top. */
    while (front->blocks_free < front->block_total) {
        front->free_blocks[front->blocks_free] = front->block_total - 1 - front->blocks_free;
        front->blocks_free++;
    }
    for (uint32_t i = 0; i < front->max_sequences; i++) front->free_slots[i] = front->max_sequences - 1 - i;
    *out = front;
    return OFL_OK;
}

void ofl_front_destroy(ofl_front *front)
{
    if (front == NULL) return;
    for (uint32_t i = 0; front->sequences != NULL && i < front->max_sequences; i++) ofl_free(front->sequences[i].blocks);
    ofl_free(front->free_blocks);
    ofl_free(front->sequences);
    ofl_free(front->order);
    ofl_free(front->free_slots);
    ofl_free(front->items);
    ofl_free(front->cache);
    ofl_free(front->requests);
    ofl_free(front->waiting.ids);
    ofl_free(front);
}

uint64_t ofl_front_blocks_needed(const ofl_front *front, uint32_t prompt_tokens, uint32_t max_new_tokens)
{
    return ((uint64_t)prompt_tokens + max_new_tokens + front->block_tokens - 1) / front->block_tokens;
}

static ofl_status check_request(const ofl_front *front, const ofl_request *request)
{
    if (request->prompt_tokens == 0 || request->max_new_tokens == 0)
        return ofl_fail(OFL_ERROR_ARGUMENT, "front: a request needs at least one prompt token and one new token");
    uint64_t tokens = (uint64_t)request->prompt_tokens + request->max_new_tokens, room = (uint64_t)front->block_total * front->block_tokens;
    if (tokens <= room && tokens <= UINT32_MAX) return OFL_OK;
    return ofl_fail_room(OFL_ERROR_NO_FIT, tokens, room,
                         "request of %u prompt + %u new = %llu tokens can never run: KV holds %llu tokens (%u blocks of %u); shorten it or "
                         "plan for more context",
                         request->prompt_tokens, request->max_new_tokens, (unsigned long long)tokens, (unsigned long long)room,
                         front->block_total, front->block_tokens);
}

ofl_status ofl_front_submit(ofl_front *front, const ofl_request *request, uint64_t *request_out)
{
    ofl_request full;
    if (front == NULL) return ofl_fail(OFL_ERROR_ARGUMENT, "front: no handle");
    ofl_status status = ofl_struct_in(&full, sizeof full, request, "ofl_request");
    if (status == OFL_OK) status = check_request(front, &full);
    if (status != OFL_OK) return status;
    if (!ofl_grow((void **)&front->requests, &front->request_capacity, front->request_count + 1, sizeof *front->requests))
        return ofl_fail(OFL_ERROR_HOST_MEMORY, "front: no host memory for request %llu", (unsigned long long)front->request_count);
    uint64_t id = front->request_count;
    front->requests[id] = (front_request){full.tag, full.prompt_tokens, full.max_new_tokens, 0, REQUEST_WAITING, front->steps};
    status = ofl_front_queue_push(front, &front->waiting, id);
    if (status != OFL_OK) return status;
    front->request_count++;
    front->waiting_count++;
    if (request_out != NULL) *request_out = id;
    return OFL_OK;
}

void ofl_front_retire(ofl_front *front, uint32_t position)
{
    uint32_t slot = front->order[position];
    front_sequence *sequence = &front->sequences[slot];
    for (uint32_t i = sequence->block_count; i > 0; i--) front->free_blocks[front->blocks_free++] = sequence->blocks[i - 1];
    sequence->block_count = 0;
    front->requests[sequence->request].state = REQUEST_GONE;
    memmove(&front->order[position], &front->order[position + 1], (front->running_count - position - 1) * sizeof *front->order);
    front->running_count--;
    front->free_slots[front->max_sequences - front->running_count - 1] = slot;
}

ofl_status ofl_front_cancel(ofl_front *front, uint64_t request)
{
    if (front == NULL) return ofl_fail(OFL_ERROR_ARGUMENT, "front: no handle");
    if (request >= front->request_count || front->requests[request].state == REQUEST_GONE)
        return ofl_fail(OFL_ERROR_NOT_FOUND, "front: request %llu is neither waiting nor running", (unsigned long long)request);
    front_request *entry = &front->requests[request];
    if (entry->state == REQUEST_WAITING) {
        entry->state = REQUEST_GONE;
        front->waiting_count--;
        return OFL_OK;
    }
    front->sequences[entry->slot].cancelled = true;
    if (front->in_flight) return OFL_OK;
    for (uint32_t i = 0; i < front->running_count; i++) {
        if (front->order[i] == entry->slot) {
            ofl_front_retire(front, i);
            break;
        }
    }
    return OFL_OK;
}

ofl_status ofl_front_blocks_get(const ofl_front *front, uint32_t *total_out, uint32_t *free_out)
{
    if (front == NULL) return ofl_fail(OFL_ERROR_ARGUMENT, "front: no handle");
    if (total_out != NULL) *total_out = front->block_total;
    if (free_out != NULL) *free_out = front->blocks_free;
    return OFL_OK;
}
