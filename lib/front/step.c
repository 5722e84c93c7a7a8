/* Admission and the filling of a step. The forecast (forecast.c) follows the same rules; a test holds the two together. */
#include "front/front_internal.h"

#include <string.h>

/* A measured step counts this much less with each step after it. */
#define FADE 0.95

static ofl_status admit(ofl_front *front, uint64_t id, uint32_t blocks)
{
    front_request *request = &front->requests[id];
    uint32_t slot = front->free_slots[front->max_sequences - front->running_count - 1];
    front_sequence *sequence = &front->sequences[slot];
    if (!ofl_grow((void **)&sequence->blocks, &sequence->block_capacity, blocks, sizeof *sequence->blocks))
        return ofl_fail(OFL_ERROR_HOST_MEMORY, "front: no host memory for a table of %u KV blocks", blocks);
    sequence->request = id;
    sequence->tag = request->tag;
    sequence->prompt_tokens = request->prompt_tokens;
    sequence->max_new_tokens = request->max_new_tokens;
    sequence->prefilled = sequence->made = 0;
    sequence->cancelled = false;
    sequence->block_count = blocks;
    for (uint32_t i = 0; i < blocks; i++) sequence->blocks[i] = front->free_blocks[--front->blocks_free];
    request->state = REQUEST_RUNNING;
    request->slot = slot;
    front->order[front->running_count++] = slot;
    front->waiting_count--;
    ofl_front_queue_pop(front, &front->waiting);
    return OFL_OK;
}

/* The next in order, as long as slots and blocks to its very end are there. None is passed over, so none starves. */
static ofl_status admit_waiting(ofl_front *front)
{
    while (front->running_count < front->max_sequences) {
        uint64_t id = ofl_front_queue_peek(front, &front->waiting);
        if (id == UINT64_MAX) break;
        uint64_t blocks = ofl_front_blocks_needed(front, front->requests[id].prompt_tokens, front->requests[id].max_new_tokens);
        if (blocks > front->blocks_free) break;
        ofl_status status = admit(front, id, (uint32_t)blocks);
        if (status != OFL_OK) return status;
    }
    return OFL_OK;
}

static void add_item(ofl_front *front, ofl_step_shape *shape, uint32_t slot, uint32_t first, uint32_t count, bool prefill, bool logits)
{
    const front_sequence *sequence = &front->sequences[slot];
    front->items[front->item_count++] = (ofl_step_item){
        .tag = sequence->tag,
        .request = sequence->request,
        .slot = slot,
        .first_position = first,
        .token_count = count,
        .prefill = prefill,
        .wants_logits = logits,
        .block_count = sequence->block_count,
        .blocks = sequence->blocks,
    };
    shape->tokens += count;
    shape->logits_rows += logits;
    shape->kv_tokens += ofl_front_context_sum(first, count);
}

static void fill_step(ofl_front *front, ofl_step_shape *shape)
{
    front->item_count = 0;
    for (uint32_t i = 0; i < front->running_count; i++) {
        const front_sequence *sequence = &front->sequences[front->order[i]];
        if (sequence->made > 0) add_item(front, shape, front->order[i], sequence->prompt_tokens + sequence->made - 1, 1, false, true);
    }
    uint64_t left = ofl_min_u64(front->prefill_chunk, front->step_cap - shape->tokens);
    for (uint32_t i = 0; i < front->running_count && left > 0; i++) {
        const front_sequence *sequence = &front->sequences[front->order[i]];
        if (sequence->made > 0) continue;
        uint32_t rest = sequence->prompt_tokens - sequence->prefilled, count = (uint32_t)ofl_min_u64(rest, left);
        add_item(front, shape, front->order[i], sequence->prefilled, count, true, count == rest);
        left -= count;
    }
}

double ofl_front_correction(const ofl_front *front)
{
    return front->estimated_sum > 0 ? front->measured_sum / front->estimated_sum : 1;
}

/* The times of an estimate that grow with the step. */
static void correct(ofl_step_estimate *estimate, double correction)
{
    estimate->step_seconds *= correction;
    estimate->link_seconds *= correction;
    estimate->compute_seconds *= correction;
    estimate->link_idle_seconds *= correction;
    estimate->stall_seconds *= correction;
    estimate->bound_seconds *= correction;
}

ofl_status ofl_front_next_step(ofl_front *front, ofl_step *out)
{
    if (front == NULL || out == NULL) return ofl_fail(OFL_ERROR_ARGUMENT, "front: no handle, or no place for the step");
    if (front->in_flight) return ofl_fail(OFL_ERROR_STATE, "front: a step is in flight; commit it first");
    ofl_status status = admit_waiting(front);
    if (status != OFL_OK) return status;
    if (front->running_count == 0) return OFL_END;
    ofl_step step = {.shape = {.struct_size = sizeof(ofl_step_shape)}, .estimate = {.struct_size = sizeof(ofl_step_estimate)}};
    fill_step(front, &step.shape);
    status = ofl_plan_estimate_step(front->plan, &step.shape, &step.estimate);
    if (status != OFL_OK) return status;
    front->step_estimate = step.estimate.step_seconds;
    correct(&step.estimate, ofl_front_correction(front));
    step.item_count = front->item_count;
    step.items = front->items;
    status = ofl_struct_out(out, &step, sizeof step, "ofl_step");
    front->in_flight = status == OFL_OK;
    return status;
}

static void commit_item(ofl_front *front, const ofl_step_item *item, bool finished)
{
    front_sequence *sequence = &front->sequences[item->slot];
    if (item->prefill) sequence->prefilled += item->token_count;
    if (item->wants_logits) sequence->made++;
    if (finished && item->wants_logits) sequence->max_new_tokens = sequence->made;
}

static void learn(ofl_front *front, double measured_seconds)
{
    if (!(measured_seconds > 0) || !(front->step_estimate > 0)) return;
    front->measured_sum = FADE * front->measured_sum + measured_seconds;
    front->estimated_sum = FADE * front->estimated_sum + front->step_estimate;
}

static void end_step(ofl_front *front)
{
    front->in_flight = false;
    front->item_count = 0;
    for (uint32_t i = front->running_count; i > 0; i--) {
        const front_sequence *sequence = &front->sequences[front->order[i - 1]];
        bool done = sequence->made >= sequence->max_new_tokens;
        if (done && !sequence->cancelled) front->finished_count++;
        if (done || sequence->cancelled) ofl_front_retire(front, i - 1);
    }
}

ofl_status ofl_front_commit(ofl_front *front, const uint8_t *finished, double measured_seconds)
{
    if (front == NULL) return ofl_fail(OFL_ERROR_ARGUMENT, "front: no handle");
    if (!front->in_flight) return ofl_fail(OFL_ERROR_STATE, "front: no step is in flight");
    for (uint32_t i = 0; i < front->item_count; i++) commit_item(front, &front->items[i], finished != NULL && finished[i] != 0);
    end_step(front);
    front->steps++;
    learn(front, measured_seconds);
    return OFL_OK;
}

ofl_status ofl_front_abandon(ofl_front *front)
{
    if (front == NULL) return ofl_fail(OFL_ERROR_ARGUMENT, "front: no handle");
    if (!front->in_flight) return ofl_fail(OFL_ERROR_STATE, "front: no step is in flight");
    end_step(front);
    return OFL_OK;
}
