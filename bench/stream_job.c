#include "stream_job.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench.h"
#include "laid.h"
#include "stream_file.h"
#include "stream_reader.h"
#include "stream_slots.h"

/* ---- set-up ---- */

static const struct { ofl_tensor_role role; uint8_t columns, rows; } parts[STREAM_MATRICES] = { /* in hidden sizes */
    {OFL_ROLE_ATTN_Q, 1, 1},   {OFL_ROLE_ATTN_K, 1, 1}, {OFL_ROLE_ATTN_V, 1, 1}, {OFL_ROLE_ATTN_OUTPUT, 1, 1},
    {OFL_ROLE_FFN_GATE, 1, 3}, {OFL_ROLE_FFN_UP, 1, 3}, {OFL_ROLE_FFN_DOWN, 3, 1},
};

static ofl_status add_matrix(ofl_model_builder *builder, streaming *s, int32_t block, ofl_tensor_role role, matrix_size size)
{
    char name[48];
    (void)snprintf(name, sizeof name, "blk.%d.%d", (int)block, (int)role);
    ofl_tensor_source source = {
        .struct_size = sizeof source, .name = name, .dtype = OFL_DTYPE_BF16, .tensor_class = OFL_CLASS_DENSE, .role = role, .block = block,
        .n_dims = 2, .dims = {size.columns, size.rows},
    };
    if (s->data != NULL) source.data = s->data + s->placed;
    else source.file = s->path, source.file_offset = s->placed;
    s->placed += size.columns * size.rows * 2;
    return ofl_model_builder_add_tensor(builder, &source);
}

static ofl_status add_block(ofl_model_builder *builder, streaming *s, int32_t block)
{
    ofl_status status = OFL_OK;
    for (size_t i = 0; i < STREAM_MATRICES && status == OFL_OK; i++) status = add_matrix(builder, s, block, parts[i].role, s->matrices[i]);
    return status;
}

/* The bytes that are streamed: memory that is there, or a file that is on the disk. */
static ofl_status source_open(streaming *s)
{
    uint64_t bytes = STREAM_LAYERS * s->layer_bytes;
    if (s->source == FROM_FILE) return stream_file_make(s->folder, bytes, &s->path);
    s->data = malloc(bytes);
    if (s->data == NULL) return app_fail(OFL_ERROR_HOST_MEMORY, "out of host memory for the weights; give fewer --weights");
    laid_fill(s->data, bytes, 1);
    return OFL_OK;
}

/* 16 blocks of 13 h² elements of 2 bytes. */
static ofl_status model_build(streaming *s)
{
    uint64_t h = (uint64_t)sqrt((double)s->weights / (STREAM_LAYERS * 13 * 2)) / 64 * 64;
    for (size_t i = 0; i < STREAM_MATRICES; i++) s->matrices[i] = (matrix_size){parts[i].rows * h, parts[i].columns * h};
    s->layer_bytes = 13 * h * h * 2;
    s->elements = STREAM_LAYERS * 13 * h * h;
    ofl_status status = source_open(s);
    if (status != OFL_OK) return status;
    ofl_model_shape shape = {
        .struct_size = sizeof shape,
        .block_count = STREAM_LAYERS,
        .hidden_size = (uint32_t)h,
        .head_count = (uint32_t)(h / 64),
        .head_count_kv = 1,
        .head_dim_k = 64,
        .head_dim_v = 64,
        .ffn_size = (uint32_t)(3 * h),
        .vocab_size = 256,
        .trained_context_tokens = 64,
    };
    ofl_model_builder *builder;
    status = ofl_model_builder_create("bench", "llama", &shape, &builder);
    for (int32_t b = 0; b < STREAM_LAYERS && status == OFL_OK; b++) status = add_block(builder, s, b);
    if (status == OFL_OK) status = ofl_model_builder_finish(builder, &s->model);
    else ofl_model_builder_destroy(builder);
    return status == OFL_OK ? OFL_OK : app_forward(status);
}

/* What may be pinned, and what host memory may be used at all, for the weights to come from where they are to. The file's rate is measured.
 */
static ofl_status host_limit(streaming *s)
{
    double bytes = (double)(STREAM_LAYERS * s->layer_bytes);
    ofl_status status = OFL_OK;
    if (s->source == FROM_PAGEABLE) status = ofl_machine_set(s->machine, OFL_FIGURE_PINNABLE, 1, OFL_SOURCE_GIVEN);
    if (s->source == FROM_FILE) {
        status = stream_file_rate(s->model, STREAM_LAYERS * s->layer_bytes, &s->file_rate);
        if (status == OFL_OK) status = ofl_machine_set(s->machine, OFL_FIGURE_FILE, s->file_rate, OFL_SOURCE_MEASURED);
        if (status == OFL_OK) status = ofl_machine_set(s->machine, OFL_FIGURE_HOST, floor(bytes / 3), OFL_SOURCE_GIVEN);
        if (status == OFL_OK) status = ofl_machine_set(s->machine, OFL_FIGURE_PINNABLE, floor(bytes / 3), OFL_SOURCE_GIVEN);
    } else if (status == OFL_OK) {
        status = ofl_machine_set(s->machine, OFL_FIGURE_HOST, 2 * bytes, OFL_SOURCE_GIVEN);
    }
    return status == OFL_OK ? OFL_OK : app_forward(status);
}

ofl_status stream_job_open(streaming *s)
{
    const char *spec = s->device_spec;
    if (spec == NULL) {
        (void)snprintf(s->spec, sizeof s->spec, "sim:vram=%llu,h2d=%.0f,start=5us,clock=%s",
                       (unsigned long long)(2 * s->weights + (64u << 20)), s->link, s->clock ? "virtual" : "wall");
        spec = s->spec;
    }
    ofl_device_info info = {.struct_size = sizeof info};
    ofl_status status = ofl_device_open(spec, &s->device);
    if (status == OFL_OK) status = ofl_device_info_get(s->device, &info);
    if (status == OFL_OK) status = ofl_machine_probe(s->device, &s->machine);
    if (status == OFL_OK) status = ofl_machine_assume(s->machine);
    if (status != OFL_OK) return app_forward(status);
    s->simulated = (int)info.simulated;
    s->rate = ofl_machine_get(s->machine, OFL_FIGURE_LINK, NULL);
    status = model_build(s);
    return status == OFL_OK ? host_limit(s) : status;
}

void stream_job_close(streaming *s)
{
    ofl_model_destroy(s->model);
    ofl_machine_destroy(s->machine);
    ofl_device_close(s->device);
    free(s->data);
    stream_file_drop(s->path);
}

/* ---- this engine ---- */

static ofl_status plan_make(const streaming *s, double compute_seconds, ofl_plan **out)
{
    ofl_compute_point point = {1, compute_seconds / (double)s->elements};
    ofl_workload work = {
        .struct_size = sizeof work,
        .objective = OFL_LATENCY,
        .context_tokens = 16,
        .sequences = 1,
        .prefill_chunk_tokens = 1,
        .force_headroom = 1,
        .cut = s->part_given ? OFL_CUT_BYTES : OFL_CUT_AUTO,
        .part_bytes = s->part,
        .ring_bytes = s->ring,
        .compute_point_count = 1,
        .compute_points = &point,
        .attention_seconds_per_kv_token = 1e-15,
    };
    double vram = (double)(STREAM_LAYERS * s->layer_bytes) * s->resident_percent / 100;
    vram += ofl_machine_get(s->machine, OFL_FIGURE_RUNTIME, NULL);
    ofl_status status = ofl_machine_set(s->machine, OFL_FIGURE_VRAM, floor(vram), OFL_SOURCE_GIVEN);
    return status == OFL_OK ? ofl_plan_make(s->model, s->machine, &work, out) : status;
}

static ofl_status engine_step(const streaming *s, ofl_engine *engine, const ofl_plan *plan, const stream_reader *r)
{
    ofl_status status = OFL_OK;
    uint32_t units = ofl_plan_unit_count(plan);
    for (uint32_t i = 0; i < units && status == OFL_OK; i++) {
        ofl_unit unit = {.struct_size = sizeof unit};
        ofl_view view = {.struct_size = sizeof view};
        status = ofl_plan_unit_get(plan, i, &unit);
        if (status == OFL_OK) status = ofl_engine_acquire(engine, i, r->stream, &view);
        if (status == OFL_OK) status = r->products != NULL ? products_view(r->products, s->model, &view) : stream_reader_compute(r, unit.compute_seconds);
        if (status == OFL_OK) status = ofl_engine_release(engine, i, r->stream);
    }
    return status == OFL_OK ? stream_reader_wait(r) : status;
}

static ofl_status engine_steps(const streaming *s, const stream_work *work, const ofl_plan *plan, ofl_engine *engine, measured *out)
{
    stream_reader r;
    double start = 0;
    ofl_engine_stats stats = {.struct_size = sizeof stats};
    ofl_status status = stream_reader_open(s->device, s->simulated, work->products, &r);
    for (uint64_t i = 0; i < STREAM_WARM_UP + s->steps && status == OFL_OK; i++) {
        if (i == STREAM_WARM_UP) {
            start = stream_seconds(s->device);
            ofl_engine_stats_reset(engine);
        }
        status = engine_step(s, engine, plan, &r);
    }
    out->step_seconds = (stream_seconds(s->device) - start) / (double)s->steps;
    if (status == OFL_OK) status = ofl_engine_stats_get(engine, &stats);
    out->stats = stats;
    out->streamed_bytes = (double)stats.bytes_streamed / (double)s->steps;
    out->file_bytes = (double)stats.from_file_bytes / (double)s->steps;
    stream_reader_close(&r);
    return status;
}

/* What acquire and release of a streamed unit cost the host, on a stream on which nothing is computed: the median of a few steps. */
static ofl_status engine_calls(const streaming *s, const ofl_plan *plan, ofl_engine *engine, double *out)
{
    enum { STEPS = 8 };
    uint32_t units = ofl_plan_unit_count(plan), count = 0;
    ofl_stream *stream = NULL;
    double *seconds = calloc((size_t)units * STEPS, sizeof *seconds);
    ofl_status status = seconds != NULL ? ofl_stream_create(s->device, &stream) : app_fail(OFL_ERROR_HOST_MEMORY, "out of host memory");
    for (uint32_t i = 0; i < units * STEPS && status == OFL_OK; i++) {
        ofl_unit unit = {.struct_size = sizeof unit};
        ofl_view view = {.struct_size = sizeof view};
        status = ofl_plan_unit_get(plan, i % units, &unit);
        double start = bench_seconds();
        if (status == OFL_OK) status = ofl_engine_acquire(engine, i % units, stream, &view);
        if (status == OFL_OK) status = ofl_engine_release(engine, i % units, stream);
        if (unit.piece_bytes != 0) seconds[count++] = bench_seconds() - start;
        if (i % units == units - 1 && status == OFL_OK) status = ofl_stream_wait(s->device, stream);
    }
    *out = count > 0 ? bench_median(seconds, count) : 0;
    if (stream != NULL) (void)ofl_stream_wait(s->device, stream);
    ofl_stream_destroy(s->device, stream);
    free(seconds);
    return status;
}

ofl_status stream_job_run(const streaming *s, const stream_work *work, measured *out)
{
    ofl_plan *plan;
    ofl_engine *engine = NULL;
    ofl_budget budget = {.struct_size = sizeof budget};
    ofl_forecast forecast = {.struct_size = sizeof forecast};
    ofl_status status = plan_make(s, work->seconds, &plan);
    if (status != OFL_OK) return status;
    status = ofl_plan_budget_get(plan, &budget);
    if (status == OFL_OK) status = ofl_plan_forecast_get(plan, &forecast);
    if (status == OFL_OK) status = ofl_engine_open(plan, s->model, s->device, NULL, &engine);
    if (status == OFL_OK) status = engine_steps(s, work, plan, engine, out);
    if (status == OFL_OK) status = engine_calls(s, plan, engine, &out->call_seconds);
    out->forecast = forecast.step;
    out->memory_bytes = (double)(budget.resident_bytes + budget.ring_bytes);
    out->lower_bound_bytes = (double)budget.lower_bound_bytes_per_step;
    ofl_engine_close(engine);
    ofl_plan_destroy(plan);
    return status;
}

ofl_status stream_job_link_seconds(const streaming *s, double *out)
{
    ofl_plan *plan;
    ofl_forecast forecast = {.struct_size = sizeof forecast};
    ofl_status status = plan_make(s, 1e-9, &plan);
    if (status != OFL_OK) return status;
    status = ofl_plan_forecast_get(plan, &forecast);
    *out = forecast.step.link_seconds;
    ofl_plan_destroy(plan);
    return status;
}
