/* Where each slice lives: its place in the resident arena, or in host memory with the rest of its unit's piece. */
#include "engine/internal.h"

#define HOST_BLOCK_BYTES (UINT64_C(256) << 20)

static ofl_status no_host_memory(void) { return ofl_fail(OFL_ERROR_HOST_MEMORY, "engine's tables: out of host memory; free some"); }

static ofl_status does_not_add_up(const char *what)
{
    return ofl_fail(OFL_ERROR_MISMATCH, "plan: %s; make the plan anew", what);
}

static void in_place_mark(const ofl_engine *engine, ofl_engine_slice *slice)
{
    const char *data = ofl_model_tensor_data(engine->model, slice->tensor);
    slice->in_place = ofl_is_in_place(slice->tier, data != NULL, slice->bytes);
    if (slice->in_place && slice->tier == OFL_TIER_FILE) slice->tier = OFL_TIER_PAGEABLE;
    if (slice->in_place) slice->host = data + slice->row_first * slice->row_bytes;
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
    in_place_mark(engine, &engine->slices[index]);
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

/* Neighbours that are packed lie in one run, with the gaps between them, as they do in the piece. */
static void extent_add(ofl_engine *engine, ofl_engine_unit *unit, uint32_t index)
{
    const ofl_engine_slice *slice = &engine->slices[index];
    ofl_engine_extent *last = unit->extent_count != 0 ? &engine->extents[engine->extent_count - 1] : NULL;
    const ofl_copy_run run = {slice->piece_offset, slice->bytes, ofl_is_packed(slice->tier, slice->in_place, slice->bytes)};
    uint64_t before = last != NULL ? last->run.bytes : 0;
    if (ofl_copy_run_takes(last != NULL ? &last->run : NULL, &run)) {
        unit->copy_bytes += last->run.bytes - before;
        return;
    }
    unit->copy_bytes += slice->bytes;
    engine->extents[engine->extent_count++] = (ofl_engine_extent){.run = run, .host = slice->host, .slice = index};
    unit->extent_count++;
}

static ofl_status unit_slices(ofl_engine *engine, ofl_engine_unit *own)
{
    uint64_t end = 0;
    for (uint32_t i = own->slice_first; i < own->slice_first + own->slice_count; i++) {
        const ofl_engine_slice *slice = &engine->slices[i];
        if (slice->tier == OFL_TIER_DEVICE) continue;
        if (slice->bytes == 0 || slice->piece_offset < end || slice->piece_offset > own->piece_bytes ||
            slice->bytes > own->piece_bytes - slice->piece_offset)
            return does_not_add_up("a streamed slice is empty, or lies outside its unit's piece or on another one");
        if (own->extent_count != 0 && own->tier != slice->tier) return does_not_add_up("a unit is in two tiers of host memory");
        own->tier = slice->tier;
        own->rows |= slice->gathered;
        end = slice->piece_offset + slice->bytes;
        extent_add(engine, own, i);
    }
    return OFL_OK;
}

static ofl_status unit_read(ofl_engine *engine, uint32_t index)
{
    ofl_unit unit = {.struct_size = sizeof unit};
    ofl_status status = ofl_plan_unit_get(engine->plan, index, &unit);
    if (status != OFL_OK) return status;
    if (unit.slice_first > engine->slice_count || unit.slice_count > engine->slice_count - unit.slice_first)
        return does_not_add_up("a unit has slices that are not there");
    ofl_engine_unit *own = &engine->units[index];
    *own = (ofl_engine_unit){.slice_first = unit.slice_first,
                             .slice_count = unit.slice_count,
                             .piece_bytes = unit.piece_bytes,
                             .extent_first = engine->extent_count,
                             .block = OFL_NOWHERE,
                             .position = OFL_NOWHERE};
    if (unit.piece_bytes > engine->ring_bytes || unit.piece_bytes % OFL_ALIGNMENT_BYTES != 0)
        return does_not_add_up("a piece does not fit its ring");
    return unit_slices(engine, own);
}

/* A block takes what is packed of pieces until it is full; that of one piece never lies in two. */
static ofl_status host_place(ofl_engine *engine, ofl_engine_unit *unit)
{
    uint64_t bytes = 0;
    for (uint32_t i = unit->extent_first; i < unit->extent_first + unit->extent_count; i++) {
        ofl_engine_extent *extent = &engine->extents[i];
        if (!extent->run.packed) continue;
        extent->block_offset = bytes;
        if (!ofl_align_u64(bytes + extent->run.bytes, OFL_ALIGNMENT_BYTES, &bytes)) return does_not_add_up("the sizes of a piece overflow");
    }
    if (bytes == 0) return OFL_OK;
    ofl_host_block *last = engine->block_count ? &engine->blocks[engine->block_count - 1] : NULL;
    bool same = last != NULL && last->tier == unit->tier && last->rows == unit->rows;
    if (!same || last->bytes > HOST_BLOCK_BYTES || bytes > HOST_BLOCK_BYTES - last->bytes) {
        if (!ofl_grow((void **)&engine->blocks, &engine->block_capacity, engine->block_count + 1, sizeof *engine->blocks))
            return no_host_memory();
        last = &engine->blocks[engine->block_count++];
        *last = (ofl_host_block){.tier = unit->tier, .rows = unit->rows};
    }
    unit->block = (uint32_t)(engine->block_count - 1);
    for (uint32_t i = unit->extent_first; i < unit->extent_first + unit->extent_count; i++) engine->extents[i].block_offset += last->bytes;
    last->bytes += bytes;
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
            ofl_status status = host_place(engine, unit);
            if (status != OFL_OK) return status;
        }
    }
    return OFL_OK;
}

ofl_status ofl_engine_layout(ofl_engine *engine)
{
    ofl_budget budget = {.struct_size = sizeof budget};
    ofl_plan_settings settings = {.struct_size = sizeof settings};
    ofl_forecast forecast = {.struct_size = sizeof forecast};
    ofl_status status = ofl_plan_budget_get(engine->plan, &budget);
    if (status == OFL_OK) status = ofl_plan_settings_get(engine->plan, &settings);
    if (status == OFL_OK) status = ofl_plan_forecast_get(engine->plan, &forecast);
    if (status != OFL_OK) return status;
    engine->ring_bytes = budget.ring_bytes;
    engine->copy_bytes = settings.copy_bytes;
    engine->step_bytes = budget.stream_bytes_per_step;
    engine->copy_seconds = forecast.step.step_seconds - forecast.step.link_idle_seconds;
    if (engine->copy_bytes == 0) return does_not_add_up("its copies have no size");
    engine->slice_count = ofl_plan_slice_count(engine->plan);
    engine->unit_count = ofl_plan_unit_count(engine->plan);
    engine->slices = ofl_alloc(engine->slice_count, sizeof *engine->slices);
    engine->views = ofl_alloc(engine->slice_count, sizeof *engine->views);
    engine->units = ofl_alloc(engine->unit_count, sizeof *engine->units);
    engine->extents = ofl_alloc(engine->slice_count, sizeof *engine->extents);
    if (engine->slices == NULL || engine->views == NULL || engine->units == NULL || engine->extents == NULL) return no_host_memory();
    for (uint32_t i = 0; i < engine->slice_count && status == OFL_OK; i++) status = slice_read(engine, i);
    for (uint32_t i = 0; i < engine->unit_count && status == OFL_OK; i++) status = unit_read(engine, i);
    if (status == OFL_OK) status = arena_place(engine, budget.resident_bytes);
    if (status == OFL_OK) status = pieces_place(engine);
    return status;
}

static void extent_point(ofl_engine *engine, const ofl_engine_unit *unit, ofl_engine_extent *extent)
{
    if (!extent->run.packed) {
        extent->host = engine->slices[extent->slice].host;
        return;
    }
    const ofl_host_block *block = &engine->blocks[unit->block];
    extent->host = block->base + extent->block_offset;
    for (uint32_t i = extent->slice; i < unit->slice_first + unit->slice_count; i++) {
        ofl_engine_slice *slice = &engine->slices[i];
        uint64_t within = slice->piece_offset - extent->run.offset;
        if (slice->tier == OFL_TIER_DEVICE || slice->in_place || within >= extent->run.bytes) continue;
        slice->host = extent->host + within;
        if (block->mapped != NULL) slice->reachable = block->mapped + extent->block_offset + within;
    }
}

void ofl_engine_point(ofl_engine *engine, uint32_t block)
{
    for (uint32_t u = 0; u < engine->unit_count; u++) {
        ofl_engine_unit *unit = &engine->units[u];
        bool bounced = unit->tier != OFL_TIER_PINNED && engine->feeder != NULL && ofl_feeder_has_bounce(engine->feeder);
        if (block != OFL_NOWHERE && unit->block != block) continue;
        unit->copies = 0;
        for (uint32_t i = unit->extent_first; i < unit->extent_first + unit->extent_count; i++) {
            ofl_engine_extent *extent = &engine->extents[i];
            extent_point(engine, unit, extent);
            unit->copies += ofl_copy_count(extent->run.bytes, bounced ? ofl_feeder_chunk(engine->feeder) : engine->copy_bytes);
        }
    }
    for (uint32_t i = 0; i < engine->slice_count && block == OFL_NOWHERE; i++) {
        ofl_engine_slice *slice = &engine->slices[i];
        if (slice->tier == OFL_TIER_DEVICE) engine->views[i].data = slice->reachable = engine->arena + slice->arena_offset;
    }
}
