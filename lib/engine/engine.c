/* Open, close, what is resident, single rows, counters. */
#include "engine/internal.h"

static ofl_status options_read(ofl_engine *engine, const ofl_engine_options *options)
{
    if (options == NULL) return OFL_OK;
    ofl_status status = ofl_struct_in(&engine->options, sizeof engine->options, options, "ofl_engine_options");
    if (status != OFL_OK || !engine->options.poison) return status;
    ofl_device_info info = {.struct_size = sizeof info};
    status = ofl_device_info_get(engine->device, &info);
    if (status == OFL_OK && !info.simulated) status = ofl_fail(OFL_ERROR_ARGUMENT, "engine: poison works on the simulated device only; leave it 0");
    return status;
}

/* Memory may have shrunk since the plan was made: nothing is allocated before this. KV and activations are the caller's, and what is
 * allocated through this device already counts as them; the rest of them is still to come, and must not be missing in mid-batch. */
static ofl_status room_check(const ofl_engine *engine)
{
    ofl_memory_info memory = {.struct_size = sizeof memory};
    ofl_budget budget = {.struct_size = sizeof budget};
    uint64_t weights, callers, needed;
    ofl_status status = ofl_device_memory_get(engine->device, &memory);
    if (status == OFL_OK) status = ofl_plan_budget_get(engine->plan, &budget);
    if (status != OFL_OK) return status;
    if (!ofl_add_u64(engine->arena_bytes, engine->ring_bytes, &weights) || !ofl_add_u64(budget.kv_bytes, budget.activation_bytes, &callers))
        return ofl_fail(OFL_ERROR_OVERFLOW, "plan: the bytes of its regions overflow");
    callers -= ofl_min_u64(callers, memory.used_bytes);
    if (!ofl_add_u64(weights, callers, &needed)) return ofl_fail(OFL_ERROR_OVERFLOW, "plan: the bytes of its regions overflow");
    if (needed <= memory.free_bytes) return OFL_OK;
    return ofl_fail_room(OFL_ERROR_DEVICE_MEMORY, needed, memory.free_bytes,
                         "engine: resident weights and ring need %s of device memory, KV and activations %s more, %s are free; "
                         "plan with less memory, or free some",
                         ofl_bytes_text(weights).text, ofl_bytes_text(callers).text, ofl_bytes_text(memory.free_bytes).text);
}

static ofl_status memory_open(ofl_engine *engine)
{
    void *memory;
    ofl_status status = OFL_OK;
    if (engine->arena_bytes != 0) {
        status = ofl_device_alloc(engine->device, engine->arena_bytes, &memory);
        if (status != OFL_OK) return status;
        engine->arena = memory;
    }
    if (engine->ring_bytes != 0) {
        status = ofl_device_alloc(engine->device, engine->ring_bytes, &memory);
        if (status != OFL_OK) return status;
        engine->ring_memory = memory;
    }
    engine->stats.device_bytes = engine->arena_bytes + engine->ring_bytes;
    return OFL_OK;
}

static ofl_status fill(ofl_engine *engine, const ofl_engine_options *options)
{
    ofl_status status = options_read(engine, options);
    if (status == OFL_OK) status = ofl_plan_check(engine->plan, engine->model);
    if (status == OFL_OK) status = ofl_engine_layout(engine);
    if (status == OFL_OK) status = room_check(engine);
    if (status == OFL_OK) status = memory_open(engine);
    if (status == OFL_OK) status = ofl_stream_create(engine->device, &engine->copies);
    if (status == OFL_OK) status = ofl_engine_host_alloc(engine);
    if (status == OFL_OK) status = ofl_engine_load(engine);
    if (status == OFL_OK) status = ofl_engine_ring_open(engine);
    if (status == OFL_OK) status = ofl_engine_pump(engine);
    return status;
}

ofl_status ofl_engine_open(const ofl_plan *plan, const ofl_model *model, ofl_device *device, const ofl_engine_options *options, ofl_engine **out)
{
    if (out == NULL) return ofl_fail(OFL_ERROR_ARGUMENT, "engine: no place for it");
    *out = NULL;
    if (plan == NULL || model == NULL || device == NULL) return ofl_fail(OFL_ERROR_ARGUMENT, "engine: plan, model or device missing");
    ofl_engine *engine = ofl_alloc(1, sizeof *engine);
    if (engine == NULL) return ofl_fail(OFL_ERROR_HOST_MEMORY, "engine: out of host memory; free some");
    engine->plan = plan;
    engine->model = model;
    engine->device = device;
    ofl_status status = fill(engine, options);
    if (status == OFL_OK) *out = engine;
    else ofl_engine_close(engine);
    return status;
}

void ofl_engine_close(ofl_engine *engine)
{
    if (engine == NULL) return;
    ofl_feeder_close(engine->feeder); /* from here on the copy stream has one user */
    if (engine->copies != NULL) {
        (void)ofl_stream_wait(engine->device, engine->copies);
        ofl_engine_ring_close(engine);
        ofl_stream_destroy(engine->device, engine->copies);
    }
    for (uint64_t i = 0; i < engine->block_count; i++) {
        if (engine->blocks[i].tier == OFL_TIER_PAGEABLE) ofl_free(engine->blocks[i].base);
        else if (engine->blocks[i].base != NULL) ofl_device_host_free(engine->device, engine->blocks[i].base);
    }
    if (engine->ring_memory != NULL) ofl_device_free(engine->device, engine->ring_memory);
    if (engine->arena != NULL) ofl_device_free(engine->device, engine->arena);
    ofl_free(engine->blocks);
    ofl_free(engine->units);
    ofl_free(engine->views);
    ofl_free(engine->slices);
    ofl_free(engine);
}

ofl_status ofl_engine_stats_get(const ofl_engine *engine, ofl_engine_stats *out)
{
    if (engine == NULL) return ofl_fail(OFL_ERROR_ARGUMENT, "engine: none given");
    ofl_engine_stats stats = engine->stats;
    stats.ring_high_water_bytes = engine->ring.high_water;
    return ofl_struct_out(out, &stats, sizeof stats, "ofl_engine_stats");
}

void ofl_engine_stats_reset(ofl_engine *engine)
{
    if (engine == NULL) return;
    const ofl_engine_stats held = engine->stats;
    engine->stats = (ofl_engine_stats){
        .device_bytes = held.device_bytes, .pinned_bytes = held.pinned_bytes, .pageable_bytes = held.pageable_bytes, .file_bytes = held.file_bytes,
    };
    engine->ring.high_water = engine->ring.head - engine->ring.tail;
}
