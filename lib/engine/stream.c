/* The ring in motion: pieces are copied in the order of the last step as soon as there is room, across the step boundary.
 *
 * Who waits for whom: the reader's stream waits for a piece's `landed` event, recorded behind its copies; the copy stream waits for
 * `released`, recorded behind the reader's work, before anything that is queued later. Copies run in one stream, so a piece dropped in
 * flight is overwritten in order too. */
#include "engine/internal.h"

#include <string.h>

static ofl_engine_slot *slot_of(ofl_engine *engine, uint64_t piece) { return &engine->slots[piece % engine->slot_count]; }

static ofl_status order_open(ofl_engine *engine)
{
    engine->order = ofl_alloc(engine->unit_count, sizeof *engine->order);
    engine->observed = ofl_alloc(engine->unit_count, sizeof *engine->observed);
    if (engine->order == NULL || engine->observed == NULL)
        return ofl_fail(OFL_ERROR_HOST_MEMORY, "engine's order: out of host memory; free some");
    for (uint32_t i = 0; i < engine->unit_count; i++) {
        if (engine->units[i].piece_bytes == 0) continue;
        engine->units[i].position = engine->order_count;
        engine->order[engine->order_count++] = i;
    }
    return OFL_OK;
}

/* As many pieces as the ring could hold of the smallest kind, and never more than a step and one: the planner's timeline plays with the
 * same limit. */
static uint32_t most_pieces(const ofl_engine *engine)
{
    uint64_t smallest = engine->ring_bytes;
    for (uint32_t i = 0; i < engine->order_count; i++) smallest = ofl_min_u64(smallest, engine->units[engine->order[i]].piece_bytes);
    return (uint32_t)ofl_min_u64(engine->ring_bytes / smallest, (uint64_t)engine->order_count + 1);
}

ofl_status ofl_engine_ring_open(ofl_engine *engine)
{
    engine->step = 1;
    ofl_status status = order_open(engine);
    if (status != OFL_OK || engine->order_count == 0) return status;
    uint32_t most = most_pieces(engine);
    status = ofl_ring_init(&engine->ring, engine->ring_bytes, most);
    if (status != OFL_OK) return status;
    engine->slots = ofl_alloc(most, sizeof *engine->slots);
    if (engine->slots == NULL) return ofl_fail(OFL_ERROR_HOST_MEMORY, "engine's ring: out of host memory; free some");
    engine->slot_count = most;
    for (uint32_t i = 0; i < most && status == OFL_OK; i++) {
        status = ofl_event_create(engine->device, &engine->slots[i].landed);
        if (status == OFL_OK) status = ofl_event_create(engine->device, &engine->slots[i].released);
    }
    return status;
}

void ofl_engine_ring_close(ofl_engine *engine)
{
    for (uint32_t i = 0; i < engine->slot_count; i++) {
        if (engine->slots[i].landed != NULL) ofl_event_destroy(engine->device, engine->slots[i].landed);
        if (engine->slots[i].released != NULL) ofl_event_destroy(engine->device, engine->slots[i].released);
    }
    ofl_free(engine->slots);
    ofl_ring_clear(&engine->ring);
    ofl_free(engine->observed);
    ofl_free(engine->order);
}

/* Copies that fail half-way leave nothing that could be relied on: the engine stops for good. */
static ofl_status broken(ofl_engine *engine, ofl_status status)
{
    if (status != OFL_OK) engine->broken = status;
    return status;
}

static void count_copy(ofl_engine *engine, ofl_engine_unit *unit)
{
    ofl_engine_stats *stats = &engine->stats;
    stats->bytes_streamed += unit->copy_bytes;
    stats->copies += unit->copies;
    *(unit->tier == OFL_TIER_PINNED     ? &stats->from_pinned_bytes
      : unit->tier == OFL_TIER_PAGEABLE ? &stats->from_pageable_bytes
                                        : &stats->from_file_bytes) += unit->copy_bytes;
    unit->bytes += unit->copy_bytes;
    unit->unit_copies += unit->copies;
}

static ofl_status piece_copy(ofl_engine *engine, ofl_engine_slot *slot)
{
    ofl_engine_unit *unit = &engine->units[slot->unit];
    count_copy(engine, unit);
    if (engine->feeder != NULL) return ofl_feeder_copy(engine->feeder, slot);
    ofl_status status = ofl_engine_host_copy(engine, unit, engine->ring_memory + slot->offset);
    return status == OFL_OK ? ofl_event_record(engine->device, slot->landed, engine->copies) : status;
}

/* Takes room in the ring and queues the copy: OFL_NOT_READY when there is no room. */
static ofl_status fetch(ofl_engine *engine, uint32_t index, uint32_t position, uint64_t *piece_out)
{
    uint64_t offset;
    if (!ofl_ring_take(&engine->ring, engine->units[index].piece_bytes, &offset, piece_out)) return OFL_NOT_READY;
    ofl_engine_slot *slot = slot_of(engine, *piece_out);
    slot->state = OFL_SLOT_QUEUED;
    slot->unit = index;
    slot->position = position;
    slot->offset = offset;
    return broken(engine, piece_copy(engine, slot));
}

ofl_status ofl_engine_pump(ofl_engine *engine)
{
    while (engine->order_count > 0) {
        uint64_t piece;
        ofl_status status = fetch(engine, engine->order[engine->cursor], engine->cursor, &piece);
        if (status != OFL_OK) return status == OFL_NOT_READY ? OFL_OK : status;
        engine->cursor = (engine->cursor + 1) % engine->order_count;
    }
    return OFL_OK;
}

static void give(ofl_engine *engine, uint64_t piece)
{
    slot_of(engine, piece)->state = OFL_SLOT_GIVEN;
    ofl_ring_give(&engine->ring, piece);
}

/* Drops prefetched pieces from `first` on, youngest first, so that the numbers of those still to come stay. The cursor goes back to the
 * oldest. */
static void drop_queued(ofl_engine *engine, uint64_t first)
{
    for (uint64_t piece = engine->ring.sequence + engine->ring.count; piece-- > first;) {
        const ofl_engine_slot *slot = slot_of(engine, piece);
        if (slot->state != OFL_SLOT_QUEUED) continue;
        if (slot->position != OFL_NOWHERE) engine->cursor = slot->position;
        engine->stats.refetches++;
        if (engine->feeder != NULL) ofl_feeder_drop(engine->feeder, slot);
        give(engine, piece);
    }
}

static bool find_queued(ofl_engine *engine, uint32_t unit, uint64_t *piece_out)
{
    for (uint32_t i = 0; i < engine->ring.count; i++) {
        const ofl_engine_slot *slot = slot_of(engine, engine->ring.sequence + i);
        if (slot->state != OFL_SLOT_QUEUED || slot->unit != unit) continue;
        *piece_out = engine->ring.sequence + i;
        return true;
    }
    return false;
}

/* The unit's piece, fetched now when it is not on its way already; what was prefetched gives way when there is no room. */
static ofl_status find_or_fetch(ofl_engine *engine, uint32_t index, uint64_t *piece_out)
{
    uint32_t position = engine->units[index].position;
    if (find_queued(engine, index, piece_out)) return OFL_OK;
    ofl_status status = fetch(engine, index, position, piece_out);
    if (status == OFL_NOT_READY) {
        drop_queued(engine, engine->ring.sequence);
        status = fetch(engine, index, position, piece_out);
    }
    if (status == OFL_NOT_READY)
        return ofl_fail(OFL_ERROR_STATE,
                        "acquire of unit %u: the ring is full of held units and what lies behind them; release the one held longest",
                        (unsigned)index);
    if (status == OFL_OK && position != OFL_NOWHERE) engine->cursor = (position + 1) % engine->order_count;
    return status;
}

/* What this step acquired is what is prefetched from now on; of the pieces on their way those stay that come first in it. */
static void step_end(ofl_engine *engine)
{
    uint32_t *last = engine->order, kept = 0;
    uint64_t piece = engine->ring.sequence;
    for (uint32_t i = 0; i < engine->order_count; i++) engine->units[last[i]].position = OFL_NOWHERE;
    engine->order = engine->observed;
    engine->order_count = engine->observed_count;
    engine->observed = last;
    engine->observed_count = 0;
    for (uint32_t i = 0; i < engine->order_count; i++) engine->units[engine->order[i]].position = i;
    for (; piece < engine->ring.sequence + engine->ring.count; piece++) {
        ofl_engine_slot *slot = slot_of(engine, piece);
        if (slot->state != OFL_SLOT_QUEUED) continue;
        if (engine->order_count == 0 || slot->unit != engine->order[kept]) break;
        slot->position = kept;
        kept = (kept + 1) % engine->order_count;
    }
    drop_queued(engine, piece);
    engine->cursor = kept;
    engine->step++;
    engine->stats.steps++;
    engine->stepped = false;
}

ofl_status ofl_engine_usable(const ofl_engine *engine, uint32_t unit)
{
    if (engine == NULL) return ofl_fail(OFL_ERROR_ARGUMENT, "engine: none given");
    if (engine->broken != OFL_OK)
        return ofl_fail(engine->broken, "engine: an earlier copy could not be queued; close the engine and open it again");
    if (unit >= engine->unit_count)
        return ofl_fail(OFL_ERROR_ARGUMENT, "unit %u: the plan has %u", (unsigned)unit, (unsigned)engine->unit_count);
    return OFL_OK;
}

static void count_stall(ofl_engine *engine, ofl_engine_unit *unit, uint64_t start_ns)
{
    double seconds = (double)(ofl_device_now_ns(engine->device) - start_ns) * 1e-9;
    engine->stats.stalls++;
    engine->stats.stall_seconds += seconds;
    unit->stalls++;
    unit->stall_seconds += seconds;
}

/* Without a stream the caller itself waits; with one, only for a feeder that has not queued the copies yet. */
static ofl_status wait_landed(ofl_engine *engine, ofl_engine_unit *unit, const ofl_engine_slot *slot, ofl_stream *stream)
{
    bool waited = false;
    bool may_wait = stream == NULL || engine->feeder != NULL;
    uint64_t start = may_wait ? ofl_device_now_ns(engine->device) : 0;
    ofl_status status = engine->feeder != NULL ? ofl_feeder_wait_queued(engine->feeder, slot, &waited) : OFL_OK;
    if (status == OFL_OK && stream != NULL) {
        status = ofl_stream_wait_event(engine->device, stream, slot->landed);
    } else if (status == OFL_OK) {
        status = ofl_event_query(engine->device, slot->landed);
        if (status == OFL_NOT_READY) {
            waited = true;
            status = ofl_event_wait(engine->device, slot->landed);
        }
    }
    if (waited) count_stall(engine, unit, start);
    return status;
}

static ofl_status acquire_piece(ofl_engine *engine, uint32_t index, ofl_stream *stream)
{
    ofl_engine_unit *unit = &engine->units[index];
    ofl_status status = find_or_fetch(engine, index, &unit->piece);
    if (status != OFL_OK) return status;
    ofl_engine_slot *slot = slot_of(engine, unit->piece);
    status = broken(engine, wait_landed(engine, unit, slot, stream));
    if (status != OFL_OK) return status;
    slot->state = OFL_SLOT_HELD;
    for (uint32_t i = unit->slice_first; i < unit->slice_first + unit->slice_count; i++) {
        if (engine->views[i].streamed) engine->views[i].data = engine->ring_memory + slot->offset + engine->slices[i].piece_offset;
    }
    engine->observed[engine->observed_count++] = index;
    return OFL_OK;
}

ofl_status ofl_engine_acquire(ofl_engine *engine, uint32_t index, ofl_stream *stream, ofl_view *out)
{
    ofl_status status = ofl_engine_usable(engine, index);
    if (status != OFL_OK) return status;
    ofl_engine_unit *unit = &engine->units[index];
    if (unit->held) return ofl_fail(OFL_ERROR_STATE, "acquire of unit %u: it is held already; release it first", (unsigned)index);
    ofl_view view = {sizeof view, unit->slice_count, engine->views + unit->slice_first};
    status = ofl_struct_room(out, "ofl_view"); /* before anything moves */
    if (status != OFL_OK) return status;
    if (unit->seen == engine->step) step_end(engine);
    if (unit->piece_bytes != 0) status = acquire_piece(engine, index, stream);
    if (status == OFL_OK) status = ofl_engine_pump(engine);
    if (status != OFL_OK) return status;
    unit->held = true;
    unit->seen = engine->step;
    engine->stepped = true;
    engine->stats.acquires++;
    unit->acquires++;
    return ofl_struct_out(out, &view, sizeof view, "ofl_view");
}

typedef struct poisoning { char *at; uint64_t bytes; } poisoning;

static void poison(void *context)
{
    poisoning *what = context;
    memset(what->at, 0xA5, what->bytes);
    ofl_free(what);
}

/* Spoils the space behind the reader's work, so that whoever reads it too late or too early is seen. */
static ofl_status poison_piece(ofl_engine *engine, const ofl_engine_unit *unit, ofl_stream *stream)
{
    poisoning *what = ofl_alloc(1, sizeof *what);
    if (what == NULL) return ofl_fail(OFL_ERROR_HOST_MEMORY, "poison: out of host memory; free some");
    *what = (poisoning){engine->ring_memory + slot_of(engine, unit->piece)->offset, unit->piece_bytes};
    if (stream == NULL) {
        poison(what);
        return OFL_OK;
    }
    ofl_status status = ofl_sim_launch(engine->device, stream, poison, what, 0);
    if (status != OFL_OK) ofl_free(what);
    return status;
}

/* The copy stream goes no further than the reader's work so far; then the space is free for what is queued from here on. */
static ofl_status release_piece(ofl_engine *engine, const ofl_engine_unit *unit, ofl_stream *stream)
{
    ofl_status status = engine->options.poison ? poison_piece(engine, unit, stream) : OFL_OK;
    if (status == OFL_OK && stream != NULL) {
        ofl_event *released = slot_of(engine, unit->piece)->released;
        status = ofl_event_record(engine->device, released, stream);
        if (status == OFL_OK && engine->feeder != NULL) status = ofl_feeder_wait_event(engine->feeder, released);
        else if (status == OFL_OK) status = ofl_stream_wait_event(engine->device, engine->copies, released);
    }
    if (status != OFL_OK) return broken(engine, status);
    give(engine, unit->piece);
    return ofl_engine_pump(engine);
}

ofl_status ofl_engine_release(ofl_engine *engine, uint32_t index, ofl_stream *stream)
{
    ofl_status status = ofl_engine_usable(engine, index);
    if (status != OFL_OK) return status;
    ofl_engine_unit *unit = &engine->units[index];
    if (!unit->held) return ofl_fail(OFL_ERROR_STATE, "release of unit %u: it is not held; acquire it first", (unsigned)index);
    unit->held = false;
    return unit->piece_bytes == 0 ? OFL_OK : release_piece(engine, unit, stream);
}

ofl_status ofl_engine_step_end(ofl_engine *engine)
{
    ofl_status status = ofl_engine_usable(engine, 0);
    if (status == OFL_OK) status = ofl_engine_walk_end(engine);
    if (status != OFL_OK) return status;
    if (engine->stepped) step_end(engine);
    return ofl_engine_pump(engine);
}
