/* Where each slice lives: its place in the resident arena, or in host memory with the rest of its unit's piece. */
#include "engine/internal.h"

#include <stdio.h>

#define HOST_BLOCK_BYTES (UINT64_C(256) << 20)

static ofl_status no_host_memory(void) { return ofl_fail(OFL_ERROR_HOST_MEMORY, "engine's tables: out of host memory; free some"); }

static ofl_status does_not_add_up(const char *what)
{
    return ofl_fail(OFL_ERROR_MISMATCH, "plan: %s; make the plan anew", what);
}

static ofl_status slice_read(ofl_engine *engine, uint32_t index)
{
    ofl_slice slice = {.struct_size = sizeof slice};
    ofl_tensor_info tensor = {.struct_size = sizeof tensor};
    ofl_status status = ofl_plan_slice_get(engine->plan, index, &slice);
    if (status == OFL_OK) status = ofl_model_tensor_get(engine->model, slice.tensor, &tensor);
    if (status != OFL_OK) return status;
    if (slice.unit == OFL_NOWHERE && (slice.tier == OFL_TIER_PAGEABLE || slice.tier == OFL_TIER_FILE))
        return ofl_fail(OFL_ERROR_UNSUPPORTED,
                        "tensor %s: its rows are read by the device itself, from pinned memory, but the plan keeps it in tier %s; "
                        "allow more pinnable memory",
                        tensor.name, ofl_tier_name(slice.tier));
    uint64_t end;
    if (!ofl_add_u64(slice.row_first, slice.row_count, &end) || !ofl_mul_u64(end, tensor.row_bytes, &end) || end > tensor.bytes)
        return does_not_add_up("a slice lies outside its tensor");
    engine->slices[index] = (ofl_engine_slice){
        .tensor = slice.tensor, .unit = slice.unit, .tier = slice.tier, .row_first = slice.row_first, .row_count = slice.row_count,
        .row_bytes = tensor.row_bytes, .gathered = tensor.also_lookup != 0, .bytes = slice.bytes, .piece_offset = slice.piece_offset,
    };
    engine->views[index] = (ofl_view_slice){
        .bytes = slice.bytes,
        .row_first = slice.row_first,
        .row_count = slice.row_count,
        .tensor = slice.tensor,
        .streamed = slice.tier != OFL_TIER_DEVICE,
    };
    return OFL_OK;
}

/* Resident slices one after the other, in the plan's order. */
static ofl_status arena_place(ofl_engine *engine, uint64_t planned_bytes)
{
    uint64_t at = 0;
    for (uint32_t i = 0; i < engine->slice_count; i++) {
        ofl_engine_slice *slice = &engine->slices[i];
        if (slice->tier != OFL_TIER_DEVICE) continue;
        slice->arena_offset = at;
        if (!ofl_add_u64(at, slice->bytes, &at) || !ofl_align_u64(at, OFL_ALIGNMENT_BYTES, &at))
            return does_not_add_up("resident sizes overflow");
    }
    if (at > planned_bytes) return does_not_add_up("its resident slices need more than its resident bytes");
    engine->arena_bytes = planned_bytes;
    return OFL_OK;
}

static uint64_t chunks(uint64_t bytes, uint64_t most) { return bytes / most + (bytes % most != 0); }

static ofl_status unit_read(ofl_engine *engine, uint32_t index)
{
    ofl_unit unit = {.struct_size = sizeof unit};
    ofl_status status = ofl_plan_unit_get(engine->plan, index, &unit);
    if (status != OFL_OK) return status;
    if (unit.slice_first > engine->slice_count || unit.slice_count > engine->slice_count - unit.slice_first)
        return does_not_add_up("a unit has slices that are not there");
    ofl_engine_unit *own = &engine->units[index];
    *own = (ofl_engine_unit){
        .slice_first = unit.slice_first, .slice_count = unit.slice_count, .piece_bytes = unit.piece_bytes, .position = OFL_NOWHERE};
    for (uint32_t i = 0; i < unit.slice_count; i++) {
        const ofl_engine_slice *slice = &engine->slices[unit.slice_first + i];
        if (slice->tier == OFL_TIER_DEVICE) continue;
        if (slice->bytes == 0 || slice->piece_offset > unit.piece_bytes || slice->bytes > unit.piece_bytes - slice->piece_offset)
            return does_not_add_up("a streamed slice is empty or lies outside its unit's piece");
        if (own->copy_bytes != 0 && own->tier != slice->tier) return does_not_add_up("a unit is in two tiers of host memory");
        own->tier = slice->tier;
        own->copies += chunks(slice->bytes, OFL_FILE_COPY_BYTES);
        own->rows |= slice->gathered;
        own->copy_bytes = ofl_max_u64(own->copy_bytes, slice->piece_offset + slice->bytes);
    }
    if (own->tier != OFL_TIER_FILE) own->copies = chunks(own->copy_bytes, engine->copy_bytes);
    if (unit.piece_bytes > engine->ring_bytes || unit.piece_bytes % OFL_ALIGNMENT_BYTES != 0)
        return does_not_add_up("a piece does not fit its ring");
    return OFL_OK;
}

/* A block takes pieces until it is full; a piece never lies in two. */
static ofl_status host_take(ofl_engine *engine, ofl_engine_unit *unit)
{
    ofl_host_block *last = engine->block_count ? &engine->blocks[engine->block_count - 1] : NULL;
    bool same = last != NULL && last->tier == unit->tier && last->rows == unit->rows;
    if (!same || last->bytes > HOST_BLOCK_BYTES || unit->piece_bytes > HOST_BLOCK_BYTES - last->bytes) {
        if (!ofl_grow((void **)&engine->blocks, &engine->block_capacity, engine->block_count + 1, sizeof *engine->blocks))
            return no_host_memory();
        last = &engine->blocks[engine->block_count++];
        *last = (ofl_host_block){.tier = unit->tier, .rows = unit->rows};
    }
    unit->block = (uint32_t)(engine->block_count - 1);
    unit->block_offset = last->bytes;
    last->bytes += unit->piece_bytes;
    return OFL_OK;
}

/* First what has to be pinned, then what is to be, then the rest, each in execution order: should pinning fail, it fails for what can do
 * without. */
static ofl_status pieces_place(ofl_engine *engine)
{
    for (int round = 0; round < 3; round++) {
        for (uint32_t i = 0; i < engine->unit_count; i++) {
            ofl_engine_unit *unit = &engine->units[i];
            if (unit->piece_bytes == 0 || unit->tier == OFL_TIER_FILE) continue;
            if (round != (unit->tier == OFL_TIER_PAGEABLE ? 2 : !unit->rows)) continue;
            ofl_status status = host_take(engine, unit);
            if (status != OFL_OK) return status;
        }
    }
    return OFL_OK;
}

ofl_status ofl_engine_layout(ofl_engine *engine)
{
    ofl_budget budget = {.struct_size = sizeof budget};
    ofl_plan_settings settings = {.struct_size = sizeof settings};
    ofl_status status = ofl_plan_budget_get(engine->plan, &budget);
    if (status == OFL_OK) status = ofl_plan_settings_get(engine->plan, &settings);
    if (status != OFL_OK) return status;
    engine->ring_bytes = budget.ring_bytes;
    engine->copy_bytes = settings.copy_bytes;
    if (engine->copy_bytes == 0) return does_not_add_up("its copies have no size");
    engine->slice_count = ofl_plan_slice_count(engine->plan);
    engine->unit_count = ofl_plan_unit_count(engine->plan);
    engine->slices = ofl_alloc(engine->slice_count, sizeof *engine->slices);
    engine->views = ofl_alloc(engine->slice_count, sizeof *engine->views);
    engine->units = ofl_alloc(engine->unit_count, sizeof *engine->units);
    if (engine->slices == NULL || engine->views == NULL || engine->units == NULL) return no_host_memory();
    for (uint32_t i = 0; i < engine->slice_count && status == OFL_OK; i++) status = slice_read(engine, i);
    for (uint32_t i = 0; i < engine->unit_count && status == OFL_OK; i++) status = unit_read(engine, i);
    if (status == OFL_OK) status = arena_place(engine, budget.resident_bytes);
    if (status == OFL_OK) status = pieces_place(engine);
    return status;
}

static ofl_status block_pin(ofl_engine *engine, ofl_host_block *block)
{
    void *base;
    const void *mapped;
    ofl_status status = ofl_device_host_alloc(engine->device, block->bytes, &base);
    if (status != OFL_OK) return status;
    block->base = base;
    block->tier = OFL_TIER_PINNED;
    status = ofl_device_host_address(engine->device, base, &mapped);
    if (status != OFL_OK) return status;
    block->mapped = mapped;
    engine->stats.pinned_bytes += block->bytes;
    return OFL_OK;
}

static ofl_status block_alloc(ofl_engine *engine, ofl_host_block *block)
{
    block->tier = OFL_TIER_PAGEABLE;
    block->base = ofl_alloc(block->bytes, 1);
    if (block->base == NULL)
        return ofl_fail_room(OFL_ERROR_HOST_MEMORY, block->bytes, 0,
                             "weights in host memory: %s could not be had; free some, or plan with less",
                             ofl_bytes_text(block->bytes).text);
    engine->stats.pageable_bytes += block->bytes;
    return OFL_OK;
}

/* The rows of lookup tensors are read where they lie. */
static ofl_status lookup_pin(ofl_engine *engine, ofl_engine_slice *slice)
{
    if (!ofl_grow((void **)&engine->blocks, &engine->block_capacity, engine->block_count + 1, sizeof *engine->blocks))
        return no_host_memory();
    ofl_host_block *block = &engine->blocks[engine->block_count++];
    *block = (ofl_host_block){.bytes = slice->bytes, .tier = OFL_TIER_PINNED, .rows = true};
    ofl_status status = block_pin(engine, block);
    if (status != OFL_OK) return status;
    slice->host = block->base;
    slice->reachable = block->mapped;
    return OFL_OK;
}

static ofl_status lookups_pin(ofl_engine *engine)
{
    for (uint32_t i = 0; i < engine->slice_count; i++) {
        ofl_engine_slice *slice = &engine->slices[i];
        ofl_status status = OFL_OK;
        if (slice->unit != OFL_NOWHERE || slice->bytes == 0) continue;
        if (slice->tier == OFL_TIER_DEVICE) slice->reachable = engine->arena + slice->arena_offset;
        else status = lookup_pin(engine, slice);
        if (status != OFL_OK) return status;
    }
    return OFL_OK;
}

static void say_fallback(const ofl_engine *engine, uint64_t wanted, uint64_t pinned)
{
    char sentence[256];
    if (engine->options.message == NULL) return;
    (void)snprintf(sentence, sizeof sentence,
                   "host memory: %s of %s of streamed weights could be page-locked; "
                   "the rest is copied from pageable memory, slower than planned",
                   ofl_bytes_text(pinned).text, ofl_bytes_text(wanted).text);
    engine->options.message(engine->options.context, sentence);
}

/* Once pinning has been refused it is not tried again. */
static ofl_status blocks_alloc(ofl_engine *engine, uint64_t count)
{
    bool refused = false;
    uint64_t wanted = 0, planned = 0;
    for (uint64_t i = 0; i < count; i++) {
        ofl_host_block *block = &engine->blocks[i];
        bool pin = block->tier == OFL_TIER_PINNED;
        wanted += pin ? block->bytes : 0;
        planned += pin ? 0 : block->bytes;
        ofl_status status = pin && !refused ? block_pin(engine, block) : OFL_OK;
        if (status == OFL_ERROR_PINNED_MEMORY && !block->rows) {
            refused = true;
            status = OFL_OK;
        }
        if (status == OFL_OK && block->base == NULL) status = block_alloc(engine, block);
        if (status != OFL_OK) return status;
    }
    if (refused) say_fallback(engine, wanted, wanted + planned - engine->stats.pageable_bytes);
    return OFL_OK;
}

static void unit_point(ofl_engine *engine, ofl_engine_unit *unit)
{
    const ofl_host_block *block = unit->piece_bytes != 0 && unit->tier != OFL_TIER_FILE ? &engine->blocks[unit->block] : NULL;
    if (block != NULL) {
        unit->host = block->base + unit->block_offset;
        unit->tier = block->tier;
    }
    for (uint32_t i = unit->slice_first; i < unit->slice_first + unit->slice_count; i++) {
        ofl_engine_slice *slice = &engine->slices[i];
        if (slice->tier == OFL_TIER_DEVICE) {
            engine->views[i].data = slice->reachable = engine->arena + slice->arena_offset;
        } else if (block != NULL) {
            slice->host = block->base + unit->block_offset + slice->piece_offset;
            if (block->mapped != NULL) slice->reachable = block->mapped + unit->block_offset + slice->piece_offset;
        }
    }
}

ofl_status ofl_engine_host_alloc(ofl_engine *engine)
{
    uint64_t piece_blocks = engine->block_count;
    ofl_status status = lookups_pin(engine);
    if (status == OFL_OK) status = blocks_alloc(engine, piece_blocks);
    for (uint32_t i = 0; i < engine->unit_count && status == OFL_OK; i++) unit_point(engine, &engine->units[i]);
    for (uint32_t i = 0; i < engine->slice_count; i++) {
        if (engine->slices[i].tier == OFL_TIER_FILE) engine->stats.file_bytes += engine->slices[i].bytes;
    }
    return status;
}
