/* Addresses that stay: resident tensors whole, and single rows wherever the device can reach them. */
#include "engine/internal.h"

static ofl_status tensor_slices(const ofl_engine *engine, uint32_t tensor, uint32_t *first_out, uint32_t *count_out)
{
    if (engine == NULL) return ofl_fail(OFL_ERROR_ARGUMENT, "engine: none given");
    return ofl_plan_tensor_slices(engine->plan, tensor, first_out, count_out);
}

ofl_status ofl_engine_resident(ofl_engine *engine, uint32_t tensor, const void **out)
{
    uint32_t first, count;
    ofl_status status = tensor_slices(engine, tensor, &first, &count);
    if (status != OFL_OK) return status;
    for (uint32_t i = 0; i < count; i++) {
        const ofl_engine_slice *slice = &engine->slices[first + i];
        if (slice->tier != OFL_TIER_DEVICE) return OFL_ERROR_NOT_FOUND;
        if (i > 0 && slice->arena_offset != slice[-1].arena_offset + slice[-1].bytes)
            return OFL_ERROR_NOT_FOUND; /* its rows are not in one run */
    }
    if (count == 0) return OFL_ERROR_NOT_FOUND;
    *out = engine->arena + engine->slices[first].arena_offset;
    return OFL_OK;
}

static const ofl_engine_slice *slice_of_row(const ofl_engine_slice *slices, uint32_t count, uint64_t row)
{
    uint32_t low = 0;
    while (count - low > 1) {
        uint32_t middle = low + (count - low) / 2;
        if (slices[middle].row_first <= row) low = middle;
        else count = middle;
    }
    return &slices[low];
}

ofl_status ofl_engine_rows(ofl_engine *engine, uint32_t tensor, const uint32_t *rows, uint32_t count, const void **out)
{
    ofl_tensor_info info = {.struct_size = sizeof info};
    uint32_t first, slices;
    ofl_status status = tensor_slices(engine, tensor, &first, &slices);
    if (status == OFL_OK) status = ofl_model_tensor_get(engine->model, tensor, &info);
    if (status != OFL_OK) return status;
    if (slices == 0 || (info.tensor_class != OFL_CLASS_LOOKUP && !info.also_lookup))
        return ofl_fail(OFL_ERROR_ARGUMENT, "rows of %s: it is no lookup tensor", info.name);
    for (uint32_t i = 0; i < count; i++) {
        if (rows[i] >= info.row_count)
            return ofl_fail(OFL_ERROR_ARGUMENT, "row %u of %s: it has %llu", (unsigned)rows[i], info.name,
                            (unsigned long long)info.row_count);
        const ofl_engine_slice *slice = slice_of_row(engine->slices + first, slices, rows[i]);
        if (slice->reachable == NULL)
            return ofl_fail(OFL_ERROR_UNSUPPORTED,
                            "row %u of %s: it is kept where the device cannot read it (%s); allow more pinnable memory", (unsigned)rows[i],
                            info.name, ofl_tier_name(slice->tier));
    }
    for (uint32_t i = 0; i < count; i++) {
        const ofl_engine_slice *slice = slice_of_row(engine->slices + first, slices, rows[i]);
        out[i] = slice->reachable + (rows[i] - slice->row_first) * slice->row_bytes;
    }
    return OFL_OK;
}
