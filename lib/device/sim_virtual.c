/* The virtual clock: operations as discrete events with modelled durations, carried out by the calling thread. Bytes move when a copy ends.
 * With order=SEED, ready operations may be held back, copies overtake each other, destinations hold rubbish while their copy is under way,
 * and functions run when their time starts or when it ends: whatever a real device may do to work that no event orders. */
#include "device/sim.h"

#include <string.h>

#define RUBBISH 0xA5

static void take_effect(const sim_op *op)
{
    if (op->kind == SIM_COPY) memcpy(op->to, op->from, (size_t)op->bytes);
    else if (op->function != NULL) op->function(op->context);
}

static void start_head(sim_stream *stream)
{
    sim_device *device = stream->device;
    sim_op *op = stream->first;
    stream->state = SIM_RUNNING;
    stream->due_ns = ofl_sim_later(device->now_ns, op->duration_ns);
    if (device->spec.order == 0) return;
    device->typical_ns += (op->duration_ns >> 2) - (device->typical_ns >> 2);
    if (op->kind == SIM_COPY) memset(op->to, RUBBISH, (size_t)op->bytes);
    else op->early = ofl_sim_random(device) % 2 == 0;
    if (op->early) take_effect(op);
}

/* How long a head that could start is held back. */
static uint64_t hold_ns(sim_device *device)
{
    if (device->spec.order == 0 || ofl_sim_random(device) % 4 != 0) return 0;
    return ofl_sim_random(device) % (2 * (device->typical_ns + 1));
}

/* A head's copy or launch, as far as it gets now. */
static void prepare_head(sim_stream *stream)
{
    sim_device *device = stream->device;
    if (stream->state == SIM_QUEUED) {
        stream->state = SIM_HELD;
        stream->due_ns = ofl_sim_later(device->now_ns, hold_ns(device));
    }
    if (stream->state == SIM_HELD && stream->due_ns <= device->now_ns) {
        stream->state = SIM_READY;
        stream->ready_ns = device->now_ns;
    }
    if (stream->state == SIM_READY && stream->first->kind == SIM_LAUNCH) start_head(stream);
}

/* Waits and records at the head take no time. True: something ended. */
static bool settle_stream(sim_stream *stream)
{
    bool ended = false;
    while (stream->first != NULL) {
        const sim_op *op = stream->first;
        if (op->kind == SIM_COPY || op->kind == SIM_LAUNCH) {
            prepare_head(stream);
            break;
        }
        if (op->kind == SIM_WAIT && !op->mark->reached) break;
        ofl_sim_finish(stream, stream->device->now_ns);
        ended = true;
    }
    return ended;
}

static sim_stream *pick_any_copy(sim_device *device, ofl_direction direction)
{
    sim_stream *chosen = NULL;
    uint64_t count = 0;
    for (sim_stream *stream = device->streams; stream != NULL; stream = stream->next) {
        if (stream->state != SIM_READY || stream->first->kind != SIM_COPY || stream->first->direction != direction) continue;
        if (ofl_sim_random(device) % ++count == 0) chosen = stream;
    }
    return chosen;
}

void ofl_sim_virtual_settle(sim_device *device)
{
    bool changed;
    do {
        changed = false;
        for (sim_stream *stream = device->streams; stream != NULL; stream = stream->next) changed |= settle_stream(stream);
    } while (changed);
    for (int i = 0; i < 2; i++) {
        ofl_direction direction = (ofl_direction)i;
        if (device->engines[i].busy) continue;
        sim_stream *stream = device->spec.order == 0 ? ofl_sim_pick_copy(device, direction) : pick_any_copy(device, direction);
        if (stream == NULL) continue;
        device->engines[i].busy = true;
        start_head(stream);
    }
}

/* UINT64_MAX: nothing is under way. */
static uint64_t next_ns(const sim_device *device)
{
    uint64_t next = UINT64_MAX;
    for (const sim_stream *stream = device->streams; stream != NULL; stream = stream->next) {
        if (stream->state == SIM_HELD || stream->state == SIM_RUNNING) next = ofl_min_u64(next, stream->due_ns);
    }
    return next;
}

/* Among those that end now: the one queued first, or any. */
static sim_stream *pick_ending(sim_device *device)
{
    sim_stream *chosen = NULL;
    uint64_t count = 0;
    for (sim_stream *stream = device->streams; stream != NULL; stream = stream->next) {
        if (stream->state != SIM_RUNNING || stream->due_ns > device->now_ns) continue;
        bool better = device->spec.order == 0 ? chosen == NULL || stream->first->sequence < chosen->first->sequence
                                              : ofl_sim_random(device) % ++count == 0;
        if (better) chosen = stream;
    }
    return chosen;
}

bool ofl_sim_virtual_advance(sim_device *device)
{
    uint64_t ns = next_ns(device);
    if (ns == UINT64_MAX) return false;
    device->now_ns = ofl_max_u64(ns, device->now_ns);
    device->progress++;
    for (sim_stream *stream; (stream = pick_ending(device)) != NULL;) {
        const sim_op *op = stream->first;
        if (!op->early) take_effect(op);
        if (op->kind == SIM_COPY) device->engines[op->direction].busy = false;
        ofl_sim_finish(stream, device->now_ns);
    }
    ofl_sim_virtual_settle(device);
    return true;
}

void ofl_sim_virtual_elapse(sim_device *device, uint64_t duration_ns)
{
    uint64_t target = ofl_sim_later(device->now_ns, duration_ns);
    while (next_ns(device) <= target && ofl_sim_virtual_advance(device)) {}
    device->now_ns = target;
    if (duration_ns > 0) device->progress++;
}
