/* Matrix by matrix, for loops that know nothing of units: each unit is acquired when its first rows are asked for, and released when
 * rows of another one are. */
#include "engine/internal.h"

#include <string.h>

ofl_status ofl_engine_walk_end(ofl_engine *engine)
{
    bool holds = engine->walking && engine->units[engine->walked].held;
    engine->walking = false;
    if (!holds) return OFL_OK;
    return ofl_engine_release(engine, engine->walked, engine->walk_stream);
}

static ofl_status walk_to(ofl_engine *engine, uint32_t unit, ofl_stream *stream)
{
    ofl_view view = {.struct_size = sizeof view};
    bool there = engine->walking && engine->walked == unit && engine->walk_stream == stream;
    if (there && engine->units[unit].held) return OFL_OK; /* the caller may have released it */
    ofl_status status = ofl_engine_walk_end(engine);
    if (status == OFL_OK) status = ofl_engine_acquire(engine, unit, stream, &view);
    if (status != OFL_OK) return status;
    engine->walking = true;
    engine->walked = unit;
    engine->walk_stream = stream;
    return OFL_OK;
}

/* The slice behind the rows that were given last; NULL: those were the last ones. */
static ofl_status slice_after(const ofl_engine *engine, uint32_t tensor, const ofl_view_slice *last, const ofl_engine_slice **out)
{
    uint32_t first, count, i = 0;
    ofl_status status = ofl_plan_tensor_slices(engine->plan, tensor, &first, &count);
    if (status != OFL_OK) return status;
    const ofl_engine_slice *slices = engine->slices + first;
    if (count == 0 || slices->unit == OFL_NOWHERE)
        return ofl_fail(OFL_ERROR_ARGUMENT, "tensor %u: its rows are looked up, or it is unused; ofl_engine_rows gives single rows",
                        (unsigned)tensor);
    while (last->row_count != 0 && i < count && slices[i].row_first != last->row_first) i++;
    if (last->row_count != 0 && (last->tensor != tensor || i == count))
        return ofl_fail(OFL_ERROR_ARGUMENT, "tensor %u: the rows given are not from the last call for it; begin with zero",
                        (unsigned)tensor);
    if (last->row_count != 0) i++;
    *out = i < count ? &slices[i] : NULL;
    return OFL_OK;
}

ofl_status ofl_engine_tensor_next(ofl_engine *engine, uint32_t tensor, ofl_stream *stream, ofl_view_slice *rows)
{
    const ofl_engine_slice *slice = NULL;
    if (engine == NULL || rows == NULL) return ofl_fail(OFL_ERROR_ARGUMENT, "rows of a tensor: no engine, or no place for them, given");
    ofl_status status = slice_after(engine, tensor, rows, &slice);
    if (status != OFL_OK) return status;
    if (slice == NULL) {
        memset(rows, 0, sizeof *rows);
        return OFL_END;
    }
    bool stays = slice->tier == OFL_TIER_DEVICE && slice->bytes <= OFL_SMALL_TENSOR_BYTES; /* a norm between matrices moves nothing */
    status = ofl_engine_usable(engine, slice->unit);
    if (status == OFL_OK && !stays) status = walk_to(engine, slice->unit, stream);
    if (status == OFL_OK) *rows = engine->views[slice - engine->slices];
    return status;
}
