/* Waiting requests as a heap, in the order of admission. */
#include "front/front_internal.h"

/* Steps that a request takes when alone: what "longest first" goes by. */
static uint64_t steps_alone(const ofl_front *front, const front_request *request)
{
    return request->max_new_tokens + ((uint64_t)request->prompt_tokens + front->prefill_chunk - 1) / front->prefill_chunk;
}

/* Longest first, but a step of waiting counts as a step of length: what comes later by more than the longest request takes is never
 * preferred, so none starves. */
bool ofl_front_before(const ofl_front *front, uint64_t a, uint64_t b)
{
    if (front->admission == OFL_LONGEST_FIRST) {
        const front_request *first = &front->requests[a], *second = &front->requests[b];
        uint64_t lead_a = steps_alone(front, first) + second->submitted_step, lead_b = steps_alone(front, second) + first->submitted_step;
        if (lead_a != lead_b) return lead_a > lead_b;
    }
    return a < b;
}

static void rise(const ofl_front *front, front_queue *queue, uint64_t at, uint64_t id)
{
    while (at > 0 && ofl_front_before(front, id, queue->ids[(at - 1) / 2])) {
        queue->ids[at] = queue->ids[(at - 1) / 2];
        at = (at - 1) / 2;
    }
    queue->ids[at] = id;
}

ofl_status ofl_front_queue_push(const ofl_front *front, front_queue *queue, uint64_t id)
{
    if (!ofl_grow((void **)&queue->ids, &queue->capacity, queue->count + 1, sizeof *queue->ids))
        return ofl_fail(OFL_ERROR_HOST_MEMORY, "front: no host memory for %llu waiting requests", (unsigned long long)queue->count + 1);
    rise(front, queue, queue->count++, id);
    return OFL_OK;
}

void ofl_front_queue_reorder(const ofl_front *front, front_queue *queue)
{
    for (uint64_t i = 1; i < queue->count; i++) rise(front, queue, i, queue->ids[i]);
}

void ofl_front_queue_pop(const ofl_front *front, front_queue *queue)
{
    uint64_t id = queue->ids[--queue->count], at = 0;
    for (uint64_t child = 1; child < queue->count; child = 2 * at + 1) {
        if (child + 1 < queue->count && ofl_front_before(front, queue->ids[child + 1], queue->ids[child])) child++;
        if (!ofl_front_before(front, queue->ids[child], id)) break;
        queue->ids[at] = queue->ids[child];
        at = child;
    }
    queue->ids[at] = id;
}

uint64_t ofl_front_queue_peek(const ofl_front *front, front_queue *queue)
{
    while (queue->count > 0 && front->requests[queue->ids[0]].state != REQUEST_WAITING) ofl_front_queue_pop(front, queue);
    return queue->count > 0 ? queue->ids[0] : UINT64_MAX;
}
