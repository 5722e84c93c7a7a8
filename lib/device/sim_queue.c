/* Streams as queues of operations, marks for events, and the host's waits: what both clocks share. */
#include "device/sim.h"

uint64_t ofl_sim_random(sim_device *device)
{
    uint64_t z = (device->random += 0x9E3779B97F4A7C15u);
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return z ^ (z >> 31);
}

uint64_t ofl_sim_later(uint64_t ns, uint64_t duration_ns)
{
    uint64_t sum;
    return ofl_add_u64(ns, duration_ns, &sum) ? sum : UINT64_MAX;
}

uint64_t ofl_sim_now(sim_device *device) { return device->spec.is_virtual ? device->now_ns : ofl_monotonic_ns(); }

sim_mark *ofl_sim_mark_take(sim_device *device)
{
    sim_mark *mark = device->spare_marks;
    if (mark != NULL) device->spare_marks = mark->next;
    else mark = ofl_alloc(1, sizeof *mark);
    if (mark != NULL) *mark = (sim_mark){.references = 1};
    return mark;
}

void ofl_sim_mark_drop(sim_device *device, sim_mark *mark)
{
    if (mark == NULL || --mark->references > 0) return;
    mark->next = device->spare_marks;
    device->spare_marks = mark;
}

sim_op *ofl_sim_op_take(sim_device *device, sim_kind kind)
{
    sim_op *op = device->spare_ops;
    if (op != NULL) device->spare_ops = op->next;
    else op = ofl_alloc(1, sizeof *op);
    if (op != NULL) *op = (sim_op){.kind = kind};
    return op;
}

void ofl_sim_submit(sim_stream *stream, sim_op *op)
{
    sim_device *device = stream->device;
    op->sequence = ++device->sequence;
    device->progress++;
    op->submitted_ns = ofl_sim_now(device);
    op->next = NULL;
    if (stream->first == NULL) stream->first = op;
    else stream->last->next = op;
    stream->last = op;
    if (device->spec.is_virtual) ofl_sim_virtual_settle(device);
    else (void)pthread_cond_signal(&stream->submitted);
}

void ofl_sim_finish(sim_stream *stream, uint64_t done_ns)
{
    sim_device *device = stream->device;
    sim_op *op = stream->first;
    if (op->kind == SIM_RECORD) {
        op->mark->reached = true;
        op->mark->reached_ns = done_ns;
    }
    ofl_sim_mark_drop(device, op->mark);
    stream->first = op->next;
    if (stream->first == NULL) stream->last = NULL;
    stream->state = SIM_QUEUED;
    stream->done_ns = done_ns;
    op->next = device->spare_ops;
    device->spare_ops = op;
}

sim_stream *ofl_sim_pick_copy(sim_device *device, ofl_direction direction)
{
    sim_stream *best = NULL;
    for (sim_stream *stream = device->streams; stream != NULL; stream = stream->next) {
        if (stream->state != SIM_READY || stream->first->kind != SIM_COPY || stream->first->direction != direction) continue;
        if (best == NULL || stream->ready_ns < best->ready_ns ||
            (stream->ready_ns == best->ready_ns && stream->first->sequence < best->first->sequence))
            best = stream;
    }
    return best;
}

static bool overlap(const void *a, uint64_t a_bytes, const void *b, uint64_t b_bytes)
{
    return (uintptr_t)a < (uintptr_t)b + b_bytes && (uintptr_t)b < (uintptr_t)a + a_bytes;
}

bool ofl_sim_is_copied(const sim_device *device, const void *memory, uint64_t bytes)
{
    for (const sim_stream *stream = device->streams; stream != NULL; stream = stream->next) {
        for (const sim_op *op = stream->first; op != NULL; op = op->next) {
            if (op->kind != SIM_COPY) continue;
            if (overlap(op->to, op->bytes, memory, bytes) || overlap(op->from, op->bytes, memory, bytes)) return true;
        }
    }
    return false;
}

uint64_t ofl_sim_oldest(const sim_device *device)
{
    uint64_t oldest = UINT64_MAX;
    for (const sim_stream *stream = device->streams; stream != NULL; stream = stream->next) {
        if (stream->first != NULL) oldest = ofl_min_u64(oldest, stream->first->sequence);
    }
    return oldest;
}

ofl_status ofl_sim_wait(sim_device *device, sim_done done, const void *what)
{
    while (!done(device, what)) {
        if (!device->spec.is_virtual) (void)pthread_cond_wait(&device->changed, &device->mutex);
        else if (!ofl_sim_virtual_advance(device))
            return ofl_fail(OFL_ERROR_INTERNAL, "simulated device: a wait for something that was never queued");
    }
    return OFL_OK;
}

static bool all_done_up_to(const sim_device *device, const void *what)
{
    const uint64_t *sequence = what;
    return ofl_sim_oldest(device) > *sequence;
}

void ofl_sim_drain(sim_device *device)
{
    uint64_t sequence = device->sequence;
    (void)ofl_sim_wait(device, all_done_up_to, &sequence);
}

void ofl_sim_queue_drop(sim_device *device)
{
    for (sim_op *op = device->spare_ops, *next; op != NULL; op = next) {
        next = op->next;
        ofl_free(op);
    }
    for (sim_mark *mark = device->spare_marks, *next; mark != NULL; mark = next) {
        next = mark->next;
        ofl_free(mark);
    }
}
