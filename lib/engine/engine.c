/* Open, close, what is resident, single rows, counters. */
#include "engine/internal.h"

#include <stdarg.h>
#include <stdio.h>

void ofl_engine_say(const ofl_engine *engine, const char *format, ...)
{
    char sentence[256];
    va_list values;
    if (engine->options.message == NULL) return;
    va_start(values, format);
    (void)vsnprintf(sentence, sizeof sentence, format, values);
    va_end(values);
    engine->options.message(engine->options.context, sentence);
}

static ofl_status options_read(ofl_engine *engine, const ofl_engine_options *options)
{
    if (options == NULL) return OFL_OK;
    ofl_status status = ofl_struct_in(&engine->options, sizeof engine->options, options, "ofl_engine_options");
    if (status != OFL_OK || !engine->options.poison) return status;
    ofl_device_info info = {.struct_size = sizeof info};
    status = ofl_device_info_get(engine->device, &info);
    if (status == OFL_OK && !info.simulated)
        status = ofl_fail(OFL_ERROR_ARGUMENT, "engine: poison works on the simulated device only; leave it 0");
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
    if (status == OFL_OK) status = ofl_engine_ring_open(engine);
    if (status == OFL_OK) status = ofl_engine_load(engine);
    engine->counted_from_ns = ofl_device_now_ns(engine->device);
    if (status == OFL_OK) status = ofl_engine_pump(engine);
    return status;
}

ofl_status ofl_engine_open(const ofl_plan *plan, const ofl_model *model, ofl_device *device, const ofl_engine_options *options,
                           ofl_engine **out)
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
    for (uint64_t i = 0; i < engine->block_count; i++) ofl_host_give(engine, &engine->blocks[i]);
    for (uint32_t i = 0; i < engine->pin_count; i++) ofl_pin_give(engine->pins[i]);
    if (engine->ring_memory != NULL) ofl_device_free(engine->device, engine->ring_memory);
    if (engine->arena != NULL) ofl_device_free(engine->device, engine->arena);
    ofl_free(engine->pins);
    ofl_free(engine->blocks);
    ofl_free(engine->extents);
    ofl_free(engine->units);
    ofl_free(engine->views);
    ofl_free(engine->slices);
    ofl_free(engine);
}

/* No event on the hot path carries a time: what the copies took is taken from the plan. */
static double link_idle(const ofl_engine *engine)
{
    double elapsed = (double)(ofl_device_now_ns(engine->device) - engine->counted_from_ns) * 1e-9;
    double steps = engine->step_bytes != 0 ? (double)engine->stats.bytes_streamed / (double)engine->step_bytes : 0;
    double idle = elapsed - steps * engine->copy_seconds;
    return idle > 0 ? idle : 0;
}

ofl_status ofl_engine_stats_get(const ofl_engine *engine, ofl_engine_stats *out)
{
    if (engine == NULL) return ofl_fail(OFL_ERROR_ARGUMENT, "engine: none given");
    ofl_engine_stats stats = engine->stats;
    stats.ring_high_water_bytes = engine->ring.high_water;
    stats.link_idle_seconds = link_idle(engine);
    return ofl_struct_out(out, &stats, sizeof stats, "ofl_engine_stats");
}

ofl_status ofl_engine_unit_stats_get(const ofl_engine *engine, uint32_t index, ofl_engine_unit_stats *out)
{
    if (engine == NULL) return ofl_fail(OFL_ERROR_ARGUMENT, "engine: none given");
    if (index >= engine->unit_count)
        return ofl_fail(OFL_ERROR_ARGUMENT, "unit %u: the plan has %u", (unsigned)index, (unsigned)engine->unit_count);
    const ofl_engine_unit *unit = &engine->units[index];
    ofl_engine_unit_stats stats = {
        .struct_size = sizeof stats,
        .tier = unit->piece_bytes != 0 ? unit->tier : OFL_TIER_DEVICE,
        .acquires = unit->acquires,
        .bytes = unit->bytes,
        .copies = unit->unit_copies,
        .stalls = unit->stalls,
        .stall_seconds = unit->stall_seconds,
    };
    return ofl_struct_out(out, &stats, sizeof stats, "ofl_engine_unit_stats");
}

void ofl_engine_stats_reset(ofl_engine *engine)
{
    if (engine == NULL) return;
    const ofl_engine_stats held = engine->stats;
    engine->stats = (ofl_engine_stats){
        .device_bytes = held.device_bytes,
        .pinned_bytes = held.pinned_bytes,
        .pageable_bytes = held.pageable_bytes,
        .file_bytes = held.file_bytes,
        .refused_bytes = held.refused_bytes,
    };
    engine->ring.high_water = engine->ring.head - engine->ring.tail;
    engine->counted_from_ns = ofl_device_now_ns(engine->device);
    for (uint32_t i = 0; i < engine->unit_count; i++) {
        ofl_engine_unit *unit = &engine->units[i];
        unit->acquires = unit->bytes = unit->unit_copies = unit->stalls = 0;
        unit->stall_seconds = 0;
    }
}
