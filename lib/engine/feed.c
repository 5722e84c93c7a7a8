/* The feeder: where some pieces come from pageable memory or a file, a thread queues the copies of all pieces, in order, and a few others
 * fill bounce buffers ahead of it, also across pieces, so that file and link are both busy. Where all pieces are pinned there is none once
 * the weights are loaded, and the caller's thread queues the copies itself.
 *
 * Operations are numbered from 1. What passes through the buffers is cut into chunks, numbered over all operations; fillers claim them in
 * order, and the queueing thread waits for each in the same order. */
#include <pthread.h>
#include <stdio.h>

#include "engine/bounce.h"

enum { LEAST_OPERATIONS = 16 };

typedef enum feed_kind { FEED_COPY, FEED_LOAD, FEED_WAIT, FEED_NOTHING } feed_kind;

typedef struct feed_op {
    feed_kind kind;
    bool filled;      /* by the fillers: cut into chunks */
    uint32_t index;   /* COPY: unit; LOAD: slice */
    char *to;         /* on the device; NULL: to the slice's own place on the host */
    ofl_event *event; /* COPY: recorded behind it; WAIT: waited for */
} feed_op;

/* Place within the chunks of an operation. */
typedef struct feed_at {
    uint32_t extent;
    uint64_t done;
} feed_at;

typedef struct feed_chunk {
    const ofl_engine_slice *slice;
    const char *host; /* NULL: read from the slice, from its byte `from` on */
    uint64_t from, bytes;
    char *to;
    bool on_host, again; /* again: read in every step */
} feed_chunk;

struct ofl_feeder {
    ofl_engine *engine;
    ofl_model_reader *reader; /* NULL until a file is read in every step */
    pthread_t threads[OFL_BOUNCE_FILLERS + 1];
    uint32_t thread_count;
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    feed_op *ops; /* circular */
    uint64_t capacity;
    uint64_t pushed, begun, done; /* operations, by number */
    uint64_t claim_op;            /* the next to be cut, and where in it */
    feed_at claim;
    uint64_t claimed, passed;     /* chunks: by the fillers, and by the queueing thread */
    uint64_t loaded;              /* bytes */
    bool stopping;
    ofl_status failed;
    char sentence[512];
    ofl_bounce bounce;
};

static void lock(ofl_feeder *feeder) { (void)pthread_mutex_lock(&feeder->mutex); }
static void unlock(ofl_feeder *feeder) { (void)pthread_mutex_unlock(&feeder->mutex); }
static void wait(ofl_feeder *feeder) { (void)pthread_cond_wait(&feeder->changed, &feeder->mutex); }
static void wake(ofl_feeder *feeder) { (void)pthread_cond_broadcast(&feeder->changed); }
static bool ends(const ofl_feeder *feeder) { return feeder->stopping || feeder->failed != OFL_OK; }
static feed_op *op_of(ofl_feeder *feeder, uint64_t number) { return &feeder->ops[number % feeder->capacity]; }

/* Locked. The first failure is kept, with its sentence. */
static void fail(ofl_feeder *feeder, ofl_status status)
{
    if (status == OFL_OK || feeder->failed != OFL_OK) return;
    feeder->failed = status;
    (void)snprintf(feeder->sentence, sizeof feeder->sentence, "%s", ofl_error_message());
    wake(feeder);
}

ofl_status ofl_engine_host_copy(const ofl_engine *engine, const ofl_engine_unit *unit, char *to)
{
    ofl_host_memory memory = unit->tier == OFL_TIER_PINNED ? OFL_HOST_PINNED : OFL_HOST_PAGEABLE;
    for (uint32_t i = unit->extent_first; i < unit->extent_first + unit->extent_count; i++) {
        const ofl_engine_extent *extent = &engine->extents[i];
        for (uint64_t done = 0; done < extent->run.bytes;) {
            uint64_t bytes = ofl_min_u64(engine->copy_bytes, extent->run.bytes - done);
            ofl_status status = ofl_copy(engine->device, engine->copies, OFL_HOST_TO_DEVICE, to + extent->run.offset + done,
                                         extent->host + done, bytes, memory);
            if (status != OFL_OK) return status;
            done += bytes;
        }
    }
    return OFL_OK;
}

/* ---- chunks ---- */

static uint64_t chunk_bytes(const ofl_feeder *feeder, uint64_t left)
{
    return ofl_min_u64(feeder->bounce.there ? feeder->bounce.chunk : ofl_bounce_chunk(UINT64_MAX), left);
}

/* The chunk at `at`, which moves on; false: the operation has no more. */
static bool next_chunk(const ofl_feeder *feeder, const feed_op *op, feed_at *at, feed_chunk *out)
{
    const ofl_engine *engine = feeder->engine;
    *out = (feed_chunk){0};
    if (op->kind == FEED_LOAD) {
        const ofl_engine_slice *slice = &engine->slices[op->index];
        if (at->done == slice->bytes) return false;
        out->slice = slice;
        out->from = at->done;
        out->bytes = chunk_bytes(feeder, slice->bytes - at->done);
        out->on_host = op->to == NULL;
        out->to = (op->to != NULL ? op->to : (char *)(uintptr_t)slice->host) + at->done;
        at->done += out->bytes;
        return true;
    }
    const ofl_engine_unit *unit = &engine->units[op->index];
    if (at->extent == unit->extent_count) return false;
    const ofl_engine_extent *extent = &engine->extents[unit->extent_first + at->extent];
    out->slice = &engine->slices[extent->slice];
    out->host = extent->host != NULL ? extent->host + at->done : NULL;
    out->from = at->done;
    out->bytes = chunk_bytes(feeder, extent->run.bytes - at->done);
    out->to = op->to + extent->run.offset + at->done;
    out->again = true;
    at->done += out->bytes;
    if (at->done == extent->run.bytes) *at = (feed_at){at->extent + 1, 0};
    return true;
}

/* Locked. */
static bool claim(ofl_feeder *feeder, feed_chunk *chunk_out, uint64_t *number_out)
{
    if (feeder->claim_op <= feeder->done) { /* not looked at in time: their places may hold others by now */
        feeder->claim_op = feeder->done + 1;
        feeder->claim = (feed_at){0, 0};
    }
    while (feeder->claim_op <= feeder->pushed) {
        const feed_op *op = op_of(feeder, feeder->claim_op);
        if (op->filled && feeder->claimed == feeder->passed + OFL_BOUNCE_BUFFERS) return false;
        if (op->filled && next_chunk(feeder, op, &feeder->claim, chunk_out)) {
            *number_out = feeder->claimed++;
            return true;
        }
        feeder->claim_op++;
        feeder->claim = (feed_at){0, 0};
    }
    return false;
}

static ofl_status fill_from_model(ofl_feeder *feeder, const feed_chunk *chunk, ofl_bounce_buffer *buffer)
{
    uint64_t from = chunk->slice->row_first * chunk->slice->row_bytes + chunk->from; /* checked when the slice was read */
    if (chunk->again)
        return ofl_model_reader_read(feeder->reader, chunk->slice->tensor, from, chunk->bytes, buffer->memory, &buffer->data);
    buffer->data = buffer->memory;
    return ofl_model_tensor_read(feeder->engine->model, chunk->slice->tensor, from, chunk->bytes,
                                 chunk->on_host ? chunk->to : buffer->memory);
}

static ofl_status fill(ofl_feeder *feeder, const feed_chunk *chunk, ofl_bounce_buffer *buffer)
{
    ofl_status status = chunk->on_host ? OFL_OK : ofl_event_wait(feeder->engine->device, buffer->drained);
    if (status != OFL_OK || chunk->host == NULL) return status == OFL_OK ? fill_from_model(feeder, chunk, buffer) : status;
    buffer->data = buffer->memory;
    return ofl_host_copy(feeder->engine->device, buffer->memory, chunk->host, chunk->bytes);
}

static void *fill_all(void *argument)
{
    ofl_feeder *feeder = argument;
    lock(feeder);
    while (!ends(feeder)) {
        feed_chunk chunk;
        uint64_t number;
        if (!claim(feeder, &chunk, &number)) {
            wait(feeder);
            continue;
        }
        ofl_bounce_buffer *buffer = &feeder->bounce.buffers[number % OFL_BOUNCE_BUFFERS];
        unlock(feeder);
        ofl_status status = fill(feeder, &chunk, buffer);
        lock(feeder);
        buffer->filled = number + 1;
        fail(feeder, status);
        wake(feeder);
    }
    unlock(feeder);
    return NULL;
}

/* ---- the queueing thread ---- */

static ofl_status pass(ofl_feeder *feeder, const feed_chunk *chunk, ofl_bounce_buffer *buffer)
{
    const ofl_engine *engine = feeder->engine;
    if (chunk->on_host) return OFL_OK;
    ofl_status status = ofl_copy(engine->device, engine->copies, OFL_HOST_TO_DEVICE, chunk->to, buffer->data, chunk->bytes,
                                 feeder->bounce.unpinned ? OFL_HOST_PAGEABLE : OFL_HOST_PINNED);
    return status == OFL_OK ? ofl_event_record(engine->device, buffer->drained, engine->copies) : status;
}

static ofl_status pass_all(ofl_feeder *feeder, const feed_op *op)
{
    feed_at at = {0, 0};
    feed_chunk chunk;
    while (next_chunk(feeder, op, &at, &chunk)) {
        lock(feeder);
        uint64_t number = feeder->passed;
        ofl_bounce_buffer *buffer = &feeder->bounce.buffers[number % OFL_BOUNCE_BUFFERS];
        while (buffer->filled != number + 1 && !ends(feeder)) wait(feeder);
        bool ended = ends(feeder);
        unlock(feeder);
        if (ended) return OFL_ERROR_CANCELLED; /* `failed` has the reason, or there is none */
        ofl_status status = pass(feeder, &chunk, buffer);
        if (status != OFL_OK) return status;
        lock(feeder);
        feeder->passed++;
        feeder->loaded += op->kind == FEED_LOAD ? chunk.bytes : 0;
        wake(feeder);
        unlock(feeder);
    }
    return OFL_OK;
}

static ofl_status carry_out(ofl_feeder *feeder, const feed_op *op)
{
    const ofl_engine *engine = feeder->engine;
    ofl_status status = OFL_OK;
    if (op->kind == FEED_NOTHING) return OFL_OK;
    if (op->kind == FEED_WAIT) return ofl_stream_wait_event(engine->device, engine->copies, op->event);
    if (op->filled) status = pass_all(feeder, op);
    else status = ofl_engine_host_copy(engine, &engine->units[op->index], op->to);
    return status == OFL_OK && op->event != NULL ? ofl_event_record(engine->device, op->event, engine->copies) : status;
}

static void *queue_all(void *argument)
{
    ofl_feeder *feeder = argument;
    lock(feeder);
    while (!ends(feeder)) {
        if (feeder->begun == feeder->pushed) {
            wait(feeder);
            continue;
        }
        feed_op op = *op_of(feeder, ++feeder->begun);
        unlock(feeder);
        ofl_status status = carry_out(feeder, &op);
        lock(feeder);
        fail(feeder, status);
        if (!ends(feeder)) feeder->done++;
        wake(feeder);
    }
    unlock(feeder);
    return NULL;
}

/* ---- open and close ---- */

static ofl_status threads_start(ofl_feeder *feeder)
{
    for (uint32_t i = 0; i < OFL_BOUNCE_FILLERS + 1; i++) {
        int code = pthread_create(&feeder->threads[i], NULL, i == 0 ? queue_all : fill_all, feeder);
        if (code != 0)
            return ofl_fail_code(OFL_ERROR_HOST_MEMORY, code, "engine's feeder: a thread could not be started; allow more threads");
        feeder->thread_count++;
    }
    return OFL_OK;
}

ofl_status ofl_feeder_open(ofl_engine *engine)
{
    ofl_feeder *feeder = ofl_alloc(1, sizeof *feeder);
    if (feeder == NULL) return ofl_fail(OFL_ERROR_HOST_MEMORY, "engine's feeder: out of host memory; free some");
    engine->feeder = feeder;
    feeder->engine = engine;
    feeder->claim_op = 1;
    feeder->capacity = ofl_max_u64(2 * (uint64_t)engine->slot_count + 2, LEAST_OPERATIONS); /* a full ring of copies and its releases */
    (void)pthread_mutex_init(&feeder->mutex, NULL);
    (void)pthread_cond_init(&feeder->changed, NULL);
    feeder->ops = ofl_alloc(feeder->capacity, sizeof *feeder->ops);
    if (feeder->ops == NULL) return ofl_fail(OFL_ERROR_HOST_MEMORY, "engine's feeder: out of host memory; free some");
    return threads_start(feeder);
}

ofl_status ofl_feeder_bounce(ofl_feeder *feeder, uint64_t largest)
{
    ofl_bounce bounce;
    ofl_status status = ofl_bounce_open(feeder->engine->device, largest, &bounce);
    if (status != OFL_OK) return status;
    lock(feeder);
    while (feeder->done < feeder->pushed && feeder->failed == OFL_OK) wait(feeder); /* chunks under way are cut as they were */
    feeder->bounce = bounce;
    unlock(feeder);
    return OFL_OK;
}

ofl_status ofl_feeder_reads_files(ofl_feeder *feeder) { return ofl_model_reader_open(feeder->engine->model, &feeder->reader); }
bool ofl_feeder_has_bounce(const ofl_feeder *feeder) { return feeder->bounce.there; }
bool ofl_feeder_is_unpinned(const ofl_feeder *feeder) { return feeder->bounce.unpinned; }
uint64_t ofl_feeder_chunk(const ofl_feeder *feeder) { return feeder->bounce.chunk; }

void ofl_feeder_close(ofl_feeder *feeder)
{
    if (feeder == NULL) return;
    lock(feeder);
    feeder->stopping = true;
    wake(feeder);
    unlock(feeder);
    for (uint32_t i = 0; i < feeder->thread_count; i++) (void)pthread_join(feeder->threads[i], NULL);
    (void)ofl_stream_wait(feeder->engine->device, feeder->engine->copies);
    ofl_bounce_close(&feeder->bounce);
    ofl_model_reader_close(feeder->reader);
    (void)pthread_cond_destroy(&feeder->changed);
    (void)pthread_mutex_destroy(&feeder->mutex);
    ofl_free(feeder->ops);
    ofl_free(feeder);
}

/* ---- the caller's side ---- */

static ofl_status failure(const ofl_feeder *feeder) { return ofl_fail(feeder->failed, "%s", feeder->sentence); }

/* Returns the number of the operation. */
static ofl_status push(ofl_feeder *feeder, feed_op op, uint64_t *number_out)
{
    lock(feeder);
    while (feeder->pushed - feeder->done == feeder->capacity && feeder->failed == OFL_OK) wait(feeder);
    ofl_status status = feeder->failed != OFL_OK ? failure(feeder) : OFL_OK;
    if (status == OFL_OK) {
        *number_out = ++feeder->pushed;
        *op_of(feeder, feeder->pushed) = op;
        wake(feeder);
    }
    unlock(feeder);
    return status;
}

ofl_status ofl_feeder_load(ofl_feeder *feeder, uint32_t index)
{
    uint64_t number;
    const ofl_engine_slice *slice = &feeder->engine->slices[index];
    char *to = slice->tier == OFL_TIER_DEVICE ? feeder->engine->arena + slice->arena_offset : NULL;
    return push(feeder, (feed_op){.kind = FEED_LOAD, .filled = true, .index = index, .to = to}, &number);
}

ofl_status ofl_feeder_loaded(ofl_feeder *feeder, uint64_t least, uint64_t *bytes_out)
{
    lock(feeder);
    while (feeder->loaded < least && feeder->failed == OFL_OK) wait(feeder);
    *bytes_out = feeder->loaded;
    ofl_status status = feeder->failed != OFL_OK ? failure(feeder) : OFL_OK;
    unlock(feeder);
    return status;
}

ofl_status ofl_feeder_copy(ofl_feeder *feeder, ofl_engine_slot *slot)
{
    ofl_tier tier = feeder->engine->units[slot->unit].tier;
    bool filled = tier == OFL_TIER_FILE || (tier == OFL_TIER_PAGEABLE && !feeder->bounce.unpinned);
    return push(feeder, (feed_op){FEED_COPY, filled, slot->unit, feeder->engine->ring_memory + slot->offset, slot->landed}, &slot->fed);
}

ofl_status ofl_feeder_wait_event(ofl_feeder *feeder, ofl_event *event)
{
    uint64_t number;
    return push(feeder, (feed_op){.kind = FEED_WAIT, .event = event}, &number);
}

void ofl_feeder_drop(ofl_feeder *feeder, const ofl_engine_slot *slot)
{
    lock(feeder);
    feed_op *op = op_of(feeder, slot->fed);
    bool cut = op->filled &&
               (slot->fed < feeder->claim_op || (slot->fed == feeder->claim_op && (feeder->claim.extent != 0 || feeder->claim.done != 0)));
    if (slot->fed > feeder->begun && !cut) *op = (feed_op){.kind = FEED_NOTHING};
    unlock(feeder);
}

ofl_status ofl_feeder_wait_queued(ofl_feeder *feeder, const ofl_engine_slot *slot, bool *waited_out)
{
    lock(feeder);
    *waited_out = feeder->done < slot->fed;
    while (feeder->done < slot->fed && feeder->failed == OFL_OK) wait(feeder);
    ofl_status status = feeder->failed != OFL_OK ? failure(feeder) : OFL_OK;
    unlock(feeder);
    return status;
}
