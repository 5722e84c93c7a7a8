/* The simulated device: its table of calls. */
#include "device/sim.h"

#include <string.h>
#include <math.h>

static sim_stream *stream_of(ofl_stream *stream) { return (sim_stream *)(void *)stream; }
static sim_event *event_of(ofl_event *event) { return (sim_event *)(void *)event; }
static uint64_t to_ns(double seconds) { return seconds < 1e9 ? (uint64_t)llround(seconds * 1e9) : UINT64_C(1000000000000000000); }
static ofl_status no_memory(void) { return ofl_fail(OFL_ERROR_HOST_MEMORY, "simulated device: out of host memory"); }

static void info(const ofl_device *base, ofl_device_info *out)
{
    const sim_device *device = (const sim_device *)(const void *)base;
    out->simulated = 1;
    out->virtual_clock = device->spec.is_virtual ? 1 : 0;
    out->host_readable = 1;
    out->name = "simulated";
}

static bool stream_done(const sim_device *device, const void *what)
{
    (void)device;
    return ((const sim_stream *)what)->first == NULL;
}

static bool mark_reached(const sim_device *device, const void *what)
{
    (void)device;
    return ((const sim_mark *)what)->reached;
}

/* A poll repeated while nothing was queued and no time passed would never end on the virtual clock: it moves the clock to the next
 * event. */
static ofl_status poll(sim_device *device, sim_done done, const void *what, uint64_t *polled)
{
    if (!done(device, what) && device->spec.is_virtual) {
        if (*polled == device->progress) (void)ofl_sim_virtual_advance(device);
        *polled = device->progress;
    }
    return done(device, what) ? OFL_OK : OFL_NOT_READY;
}

static ofl_status stream_create(ofl_device *base, ofl_stream **out)
{
    sim_device *device = sim_of(base);
    sim_stream *stream = ofl_alloc(1, sizeof *stream);
    if (stream == NULL) return no_memory();
    stream->device = device;
    if (!device->spec.is_virtual) {
        ofl_status status = ofl_sim_wall_start(stream);
        if (status != OFL_OK) {
            ofl_free(stream);
            return status;
        }
    }
    sim_lock(device);
    sim_stream **end = &device->streams; /* in order of creation, so that what happens does not depend on addresses */
    while (*end != NULL) end = &(*end)->next;
    *end = stream;
    sim_unlock(device);
    *out = (ofl_stream *)(void *)stream;
    return OFL_OK;
}

static void stream_destroy(ofl_device *base, ofl_stream *handle)
{
    sim_device *device = sim_of(base);
    sim_stream *stream = stream_of(handle);
    sim_lock(device);
    if (!stream_done(device, stream)) device->hasty++;
    (void)ofl_sim_wait(device, stream_done, stream);
    for (sim_stream **at = &device->streams; *at != NULL; at = &(*at)->next) {
        if (*at != stream) continue;
        *at = stream->next;
        break;
    }
    sim_unlock(device);
    if (!device->spec.is_virtual) ofl_sim_wall_stop(stream);
    ofl_free(stream);
}

static ofl_status stream_wait(ofl_device *base, ofl_stream *stream)
{
    sim_device *device = sim_of(base);
    sim_lock(device);
    ofl_status status = ofl_sim_wait(device, stream_done, stream);
    sim_unlock(device);
    return status;
}

static ofl_status stream_query(ofl_device *base, ofl_stream *handle)
{
    sim_device *device = sim_of(base);
    sim_stream *stream = stream_of(handle);
    sim_lock(device);
    ofl_status status = poll(device, stream_done, stream, &stream->polled);
    sim_unlock(device);
    return status;
}

/* Queues a wait or a record on `mark`, whose reference it takes. Device locked. */
static ofl_status submit_mark(sim_stream *stream, sim_kind kind, sim_mark *mark)
{
    sim_op *op = ofl_sim_op_take(stream->device, kind);
    if (op == NULL) {
        ofl_sim_mark_drop(stream->device, mark);
        return no_memory();
    }
    op->mark = mark;
    ofl_sim_submit(stream, op);
    return OFL_OK;
}

static ofl_status stream_wait_event(ofl_device *base, ofl_stream *stream, ofl_event *handle)
{
    sim_device *device = sim_of(base);
    sim_event *event = event_of(handle);
    ofl_status status = OFL_OK;
    sim_lock(device);
    if (event->mark != NULL) {
        event->mark->references++;
        status = submit_mark(stream_of(stream), SIM_WAIT, event->mark);
    }
    sim_unlock(device);
    return status;
}

static ofl_status event_create(ofl_device *base, ofl_event **out)
{
    (void)base;
    sim_event *event = ofl_alloc(1, sizeof *event);
    if (event == NULL) return no_memory();
    *out = (ofl_event *)(void *)event;
    return OFL_OK;
}

static void event_destroy(ofl_device *base, ofl_event *handle)
{
    sim_device *device = sim_of(base);
    sim_lock(device);
    ofl_sim_mark_drop(device, event_of(handle)->mark);
    sim_unlock(device);
    ofl_free(handle);
}

static ofl_status event_record(ofl_device *base, ofl_event *handle, ofl_stream *stream)
{
    sim_device *device = sim_of(base);
    sim_event *event = event_of(handle);
    sim_lock(device);
    sim_mark *mark = ofl_sim_mark_take(device);
    ofl_status status = mark == NULL ? no_memory() : OFL_OK;
    if (status == OFL_OK) {
        mark->references++; /* one for the event, one for the queue */
        status = submit_mark(stream_of(stream), SIM_RECORD, mark);
        if (status == OFL_OK) {
            ofl_sim_mark_drop(device, event->mark);
            event->mark = mark;
        } else {
            ofl_sim_mark_drop(device, mark);
        }
    }
    sim_unlock(device);
    return status;
}

static ofl_status event_query(ofl_device *base, ofl_event *handle)
{
    sim_device *device = sim_of(base);
    sim_event *event = event_of(handle);
    sim_lock(device);
    ofl_status status = event->mark == NULL ? OFL_OK : poll(device, mark_reached, event->mark, &event->polled);
    sim_unlock(device);
    return status;
}

static ofl_status event_wait(ofl_device *base, ofl_event *handle)
{
    sim_device *device = sim_of(base);
    sim_lock(device);
    sim_mark *mark = event_of(handle)->mark;
    ofl_status status = OFL_OK;
    if (mark != NULL) {
        mark->references++;
        status = ofl_sim_wait(device, mark_reached, mark);
        ofl_sim_mark_drop(device, mark);
    }
    sim_unlock(device);
    return status;
}

static double rate_of(const sim_spec *spec, ofl_direction direction, ofl_host_memory memory)
{
    double pinned = direction == OFL_HOST_TO_DEVICE ? spec->h2d : spec->d2h;
    if (memory == OFL_HOST_PINNED) return pinned;
    return direction == OFL_HOST_TO_DEVICE || spec->h2d_pageable < pinned ? spec->h2d_pageable : pinned;
}

/* A real device would fault, or copy at another speed than the caller counts on. */
static ofl_status check_copy(sim_device *device, const void *on_device, const void *on_host, uint64_t bytes, ofl_host_memory memory)
{
    if (ofl_ledger_find(&device->ledger, false, on_device, bytes) == NULL)
        return ofl_fail(OFL_ERROR_ARGUMENT, "ofl_copy: the device side is not %llu bytes of one allocation of this device",
                        (unsigned long long)bytes);
    if (memory == OFL_HOST_PINNED && ofl_ledger_find(&device->ledger, true, on_host, bytes) == NULL)
        return ofl_fail(OFL_ERROR_ARGUMENT, "ofl_copy: the host side is not page-locked; register it first or say OFL_HOST_PAGEABLE");
    return OFL_OK;
}

static ofl_status copy(ofl_device *base, ofl_stream *handle, ofl_direction direction, void *to, const void *from, uint64_t bytes,
                       ofl_host_memory memory)
{
    sim_device *device = sim_of(base);
    sim_stream *stream = stream_of(handle);
    bool down = direction == OFL_HOST_TO_DEVICE;
    sim_op *op = NULL;
    sim_lock(device);
    ofl_status status = check_copy(device, down ? to : from, down ? from : to, bytes, memory);
    if (status == OFL_OK && (op = ofl_sim_op_take(device, SIM_COPY)) == NULL) status = no_memory();
    if (status == OFL_OK) {
        op->direction = direction;
        op->to = to;
        op->from = from;
        op->bytes = bytes;
        op->rate = rate_of(&device->spec, direction, memory);
        op->duration_ns = to_ns(device->spec.start_seconds + (double)bytes / op->rate);
        ofl_sim_submit(stream, op);
        if (memory == OFL_HOST_PAGEABLE) status = ofl_sim_wait(device, stream_done, stream);
    }
    sim_unlock(device);
    return status;
}

/* The host's copying from pageable memory is what makes its copies slower: a rate that all threads share. */
static ofl_status host_copy(ofl_device *base, void *to, const void *from, uint64_t bytes)
{
    sim_device *device = sim_of(base);
    memcpy(to, from, (size_t)bytes);
    if (device->spec.h2d_pageable >= device->spec.h2d) return OFL_OK;
    sim_lock(device);
    uint64_t now = ofl_sim_now(device), start = ofl_max_u64(now, device->host_free_ns);
    uint64_t end = device->host_free_ns = ofl_sim_later(start, to_ns((double)bytes / device->spec.h2d_pageable));
    if (device->spec.is_virtual) ofl_sim_virtual_elapse(device, end - now);
    sim_unlock(device);
    if (!device->spec.is_virtual) ofl_sim_wall_until(end);
    return OFL_OK;
}

static ofl_status no_peer(const ofl_device *from)
{
    return ofl_fail(OFL_ERROR_UNSUPPORTED, "device %.80s: a simulated device has no path to another device", from->spec);
}

static ofl_status peer(ofl_device *from, ofl_device *to, uint32_t *direct_out)
{
    (void)to;
    (void)direct_out;
    return no_peer(from);
}

static ofl_status copy_peer(ofl_device *from_device, ofl_stream *stream, ofl_device *to_device, void *to, const void *from, uint64_t bytes)
{
    (void)stream;
    (void)to_device;
    (void)to;
    (void)from;
    (void)bytes;
    return no_peer(from_device);
}

static ofl_status launch(ofl_device *base, ofl_stream *stream, void (*function)(void *), void *context, double seconds)
{
    sim_device *device = sim_of(base);
    sim_lock(device);
    sim_op *op = ofl_sim_op_take(device, SIM_LAUNCH);
    if (op != NULL) {
        op->function = function;
        op->context = context;
        op->duration_ns = to_ns(seconds);
        ofl_sim_submit(stream_of(stream), op);
    }
    sim_unlock(device);
    return op != NULL ? OFL_OK : no_memory();
}

static ofl_status elapse(ofl_device *base, double seconds)
{
    sim_device *device = sim_of(base);
    if (!device->spec.is_virtual) return OFL_OK;
    sim_lock(device);
    ofl_sim_virtual_elapse(device, to_ns(seconds));
    sim_unlock(device);
    return OFL_OK;
}

static uint64_t now_ns(ofl_device *base)
{
    sim_device *device = sim_of(base);
    sim_lock(device);
    uint64_t now = ofl_sim_now(device);
    sim_unlock(device);
    return now;
}

static void close_device(ofl_device *base)
{
    sim_device *device = sim_of(base);
    while (device->streams != NULL) stream_destroy(base, (ofl_stream *)(void *)device->streams);
    ofl_sim_memory_drop(device);
    ofl_sim_queue_drop(device);
    (void)pthread_cond_destroy(&device->changed);
    (void)pthread_mutex_destroy(&device->mutex);
    ofl_free(device);
}

static const ofl_backend sim_backend = {
    .close = close_device,
    .info = info,
    .memory = ofl_sim_memory,
    .alloc = ofl_sim_alloc,
    .free = ofl_sim_free,
    .host_alloc = ofl_sim_host_alloc,
    .host_free = ofl_sim_host_free,
    .host_register = ofl_sim_host_register,
    .host_unregister = ofl_sim_host_unregister,
    .host_address = ofl_sim_host_address,
    .stream_create = stream_create,
    .stream_destroy = stream_destroy,
    .stream_wait = stream_wait,
    .stream_query = stream_query,
    .stream_wait_event = stream_wait_event,
    .event_create = event_create,
    .event_destroy = event_destroy,
    .event_record = event_record,
    .event_query = event_query,
    .event_wait = event_wait,
    .copy = copy,
    .host_copy = host_copy,
    .peer = peer,
    .copy_peer = copy_peer,
    .launch = launch,
    .elapse = elapse,
    .now_ns = now_ns,
};

uint64_t ofl_sim_hasty(ofl_device *base)
{
    sim_device *device = sim_of(base);
    sim_lock(device);
    uint64_t count = device->hasty;
    sim_unlock(device);
    return count;
}

static ofl_status init_locks(sim_device *device)
{
    if (pthread_mutex_init(&device->mutex, NULL) != 0) return no_memory();
    if (pthread_cond_init(&device->changed, NULL) == 0) return OFL_OK;
    (void)pthread_mutex_destroy(&device->mutex);
    return no_memory();
}

ofl_status ofl_sim_open(const char *spec, const char *whole, ofl_device **out)
{
    sim_spec parsed;
    ofl_status status = ofl_sim_spec_parse(spec, whole, &parsed);
    if (status != OFL_OK) return status;
    sim_device *device = ofl_alloc(1, sizeof *device);
    if (device == NULL) return no_memory();
    device->base.backend = &sim_backend;
    device->spec = parsed;
    device->random = parsed.order;
    device->progress = 1; /* a `polled` of 0 is none */
    status = init_locks(device);
    if (status != OFL_OK) {
        ofl_free(device);
        return status;
    }
    *out = &device->base;
    return OFL_OK;
}
