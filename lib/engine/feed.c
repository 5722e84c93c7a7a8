/* The feeder: a thread that queues the copies of all pieces, in order, where some of them come from pageable memory or a file and would make the host wait.
 * Where all pieces are pinned there is none, and the caller's thread queues them itself. */
#include "engine/internal.h"

#include <pthread.h>
#include <stdio.h>

typedef enum feed_kind { FEED_COPY, FEED_WAIT, FEED_NOTHING } feed_kind;

typedef struct feed_op {
    feed_kind kind;
    uint64_t piece;
    uint32_t unit;
    uint64_t offset;
    ofl_event *event; /* COPY: recorded behind it; WAIT: waited for */
} feed_op;

struct ofl_feeder {
    ofl_engine *engine;
    pthread_t thread;
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    feed_op *ops; /* circular */
    uint32_t capacity, first, count;
    uint64_t queued, done; /* operations, ever */
    bool started, stopping;
    ofl_status failed;
    char sentence[512];
    ofl_bounce bounce;
};

ofl_status ofl_engine_host_copy(const ofl_engine *engine, const ofl_engine_unit *unit, char *to)
{
    ofl_host_memory memory = unit->tier == OFL_TIER_PINNED ? OFL_HOST_PINNED : OFL_HOST_PAGEABLE;
    for (uint64_t done = 0; done < unit->copy_bytes;) {
        uint64_t bytes = ofl_min_u64(engine->copy_bytes, unit->copy_bytes - done);
        ofl_status status = ofl_copy(engine->device, engine->copies, OFL_HOST_TO_DEVICE, to + done, unit->host + done, bytes, memory);
        if (status != OFL_OK) return status;
        done += bytes;
    }
    return OFL_OK;
}

static ofl_status copy_from_file(ofl_feeder *feeder, const ofl_engine_unit *unit, char *to)
{
    const ofl_engine *engine = feeder->engine;
    for (uint32_t i = unit->slice_first; i < unit->slice_first + unit->slice_count; i++) {
        const ofl_engine_slice *slice = &engine->slices[i];
        if (slice->tier == OFL_TIER_DEVICE) continue;
        for (uint64_t done = 0; done < slice->bytes;) {
            uint64_t bytes = ofl_min_u64(OFL_FILE_COPY_BYTES, slice->bytes - done);
            ofl_status status = ofl_bounce_read(&feeder->bounce, engine->model, slice, done, bytes, engine->copies, to + slice->piece_offset + done);
            if (status != OFL_OK) return status;
            done += bytes;
        }
    }
    return OFL_OK;
}

static ofl_status carry_out(ofl_feeder *feeder, const feed_op *op)
{
    const ofl_engine *engine = feeder->engine;
    const ofl_engine_unit *unit = &engine->units[op->unit];
    char *to = engine->ring_memory + op->offset;
    ofl_status status = OFL_OK;
    if (op->kind == FEED_NOTHING) return OFL_OK;
    if (op->kind == FEED_WAIT) return ofl_stream_wait_event(engine->device, engine->copies, op->event);
    if (unit->tier == OFL_TIER_FILE) status = copy_from_file(feeder, unit, to);
    else status = ofl_engine_host_copy(engine, unit, to);
    return status == OFL_OK ? ofl_event_record(engine->device, op->event, engine->copies) : status;
}

static void *feed(void *argument)
{
    ofl_feeder *feeder = argument;
    (void)pthread_mutex_lock(&feeder->mutex);
    while (!feeder->stopping) {
        if (feeder->count == 0 || feeder->failed != OFL_OK) {
            (void)pthread_cond_wait(&feeder->changed, &feeder->mutex);
            continue;
        }
        feed_op op = feeder->ops[feeder->first];
        feeder->first = (feeder->first + 1) % feeder->capacity;
        feeder->count--;
        (void)pthread_mutex_unlock(&feeder->mutex);
        ofl_status status = carry_out(feeder, &op);
        (void)pthread_mutex_lock(&feeder->mutex);
        feeder->done++;
        if (status != OFL_OK) {
            feeder->failed = status;
            (void)snprintf(feeder->sentence, sizeof feeder->sentence, "%s", ofl_error_message());
        }
        (void)pthread_cond_broadcast(&feeder->changed);
    }
    (void)pthread_mutex_unlock(&feeder->mutex);
    return NULL;
}

static bool needs_feeder(const ofl_engine *engine, bool *file_out)
{
    bool needed = false;
    *file_out = false;
    for (uint32_t i = 0; i < engine->unit_count; i++) {
        if (engine->units[i].piece_bytes == 0) continue;
        needed |= engine->units[i].tier != OFL_TIER_PINNED;
        *file_out |= engine->units[i].tier == OFL_TIER_FILE;
    }
    return needed;
}

ofl_status ofl_feeder_open(ofl_engine *engine)
{
    bool file;
    if (!needs_feeder(engine, &file)) return OFL_OK;
    ofl_feeder *feeder = ofl_alloc(1, sizeof *feeder);
    if (feeder == NULL) return ofl_fail(OFL_ERROR_HOST_MEMORY, "engine's feeder: out of host memory; free some");
    engine->feeder = feeder;
    feeder->engine = engine;
    feeder->capacity = 2 * engine->slot_count + 2; /* a full ring of copies and its releases */
    (void)pthread_mutex_init(&feeder->mutex, NULL);
    (void)pthread_cond_init(&feeder->changed, NULL);
    feeder->ops = ofl_alloc(feeder->capacity, sizeof *feeder->ops);
    if (feeder->ops == NULL) return ofl_fail(OFL_ERROR_HOST_MEMORY, "engine's feeder: out of host memory; free some");
    ofl_status status = file ? ofl_bounce_open(engine->device, OFL_BOUNCE_MOST, OFL_FILE_COPY_BYTES, &feeder->bounce) : OFL_OK;
    if (status != OFL_OK) return status;
    int code = pthread_create(&feeder->thread, NULL, feed, feeder);
    if (code != 0) return ofl_fail_code(OFL_ERROR_HOST_MEMORY, code, "engine's feeder: a thread could not be started; allow more threads");
    feeder->started = true;
    return OFL_OK;
}

void ofl_feeder_close(ofl_feeder *feeder)
{
    if (feeder == NULL) return;
    if (feeder->started) {
        (void)pthread_mutex_lock(&feeder->mutex);
        feeder->stopping = true;
        (void)pthread_cond_broadcast(&feeder->changed);
        (void)pthread_mutex_unlock(&feeder->mutex);
        (void)pthread_join(feeder->thread, NULL);
    }
    (void)ofl_stream_wait(feeder->engine->device, feeder->engine->copies);
    ofl_bounce_close(&feeder->bounce);
    (void)pthread_cond_destroy(&feeder->changed);
    (void)pthread_mutex_destroy(&feeder->mutex);
    ofl_free(feeder->ops);
    ofl_free(feeder);
}

static ofl_status failure(const ofl_feeder *feeder) { return ofl_fail(feeder->failed, "%s", feeder->sentence); }

/* Returns the number of the operation. */
static ofl_status push(ofl_feeder *feeder, feed_op op, uint64_t *number_out)
{
    (void)pthread_mutex_lock(&feeder->mutex);
    while (feeder->count == feeder->capacity && feeder->failed == OFL_OK) (void)pthread_cond_wait(&feeder->changed, &feeder->mutex);
    ofl_status status = feeder->failed != OFL_OK ? failure(feeder) : OFL_OK;
    if (status == OFL_OK) {
        feeder->ops[(feeder->first + feeder->count++) % feeder->capacity] = op;
        *number_out = ++feeder->queued;
        (void)pthread_cond_broadcast(&feeder->changed);
    }
    (void)pthread_mutex_unlock(&feeder->mutex);
    return status;
}

ofl_status ofl_feeder_copy(ofl_feeder *feeder, uint64_t piece, ofl_engine_slot *slot)
{
    return push(feeder, (feed_op){FEED_COPY, piece, slot->unit, slot->offset, slot->landed}, &slot->fed);
}

ofl_status ofl_feeder_wait_event(ofl_feeder *feeder, ofl_event *event)
{
    uint64_t number;
    return push(feeder, (feed_op){.kind = FEED_WAIT, .event = event}, &number);
}

void ofl_feeder_drop(ofl_feeder *feeder, uint64_t piece)
{
    (void)pthread_mutex_lock(&feeder->mutex);
    for (uint32_t i = 0; i < feeder->count; i++) {
        feed_op *op = &feeder->ops[(feeder->first + i) % feeder->capacity];
        if (op->kind == FEED_COPY && op->piece == piece) op->kind = FEED_NOTHING;
    }
    (void)pthread_mutex_unlock(&feeder->mutex);
}

ofl_status ofl_feeder_wait_queued(ofl_feeder *feeder, const ofl_engine_slot *slot)
{
    (void)pthread_mutex_lock(&feeder->mutex);
    while (feeder->done < slot->fed && feeder->failed == OFL_OK) (void)pthread_cond_wait(&feeder->changed, &feeder->mutex);
    ofl_status status = feeder->done < slot->fed || feeder->failed != OFL_OK ? failure(feeder) : OFL_OK;
    (void)pthread_mutex_unlock(&feeder->mutex);
    return status;
}
