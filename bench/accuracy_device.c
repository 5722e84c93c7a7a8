#include "accuracy_device.h"

#include <stdbool.h>
#include <stdlib.h>

#include "bench.h"

/* The law is made up: straight lines, of no GPU, with the compute of one token well below the copies of most points, of 24 about as long, of
 * hundreds far above. */
#define PAIR_SECONDS 1e-7 /* a token attending to another, in a block */
enum { CONTEXT = 256 };   /* attention is measured up to there */

/* Of a weight element: read once, and multiplied by so many tokens. */
static double element_seconds(double tokens) { return 1e-10 + (tokens - 1) * 2e-11; }

static bool is_head(int32_t block, uint32_t layers) { return block == (int32_t)layers; }

static ofl_status count_elements(accuracy_device *d, const ofl_model *model)
{
    ofl_status status = OFL_OK;
    for (uint32_t i = 0; i < ofl_model_tensor_count(model) && status == OFL_OK; i++) {
        ofl_tensor_info info = {.struct_size = sizeof info};
        status = ofl_model_tensor_get(model, i, &info);
        if (status != OFL_OK || info.n_dims < 2) continue;
        if (info.block >= 0 && !is_head(info.block, d->layers)) d->block_elements += (double)info.elements / d->layers;
        else if (info.role == OFL_ROLE_OUTPUT) d->head_elements += (double)info.elements;
    }
    return status;
}

ofl_status accuracy_device_open(ofl_device *device, const ofl_model *model, accuracy_device *out)
{
    ofl_model_shape shape = {.struct_size = sizeof shape};
    *out = (accuracy_device){.device = device};
    ofl_status status = ofl_model_shape_get(model, &shape);
    out->layers = shape.block_count;
    if (status == OFL_OK) status = count_elements(out, model);
    if (status == OFL_OK) status = ofl_stream_create(device, &out->stream);
    return status == OFL_OK ? OFL_OK : app_forward(status);
}

void accuracy_device_close(accuracy_device *d)
{
    if (d->stream != NULL) {
        (void)ofl_stream_wait(d->device, d->stream);
        ofl_stream_destroy(d->device, d->stream);
    }
    free(d->seconds);
    *d = (accuracy_device){0};
}

/* ---- measured before there is a plan ---- */

/* Counted here again, not as the library does it: it is what its figures are held against. */
static double pairs(const ofl_compute_run *run)
{
    double sum = (double)run->decoding * (run->context_tokens + 1.0);
    for (uint32_t left = run->tokens - run->decoding, share; left > 0; left -= share) {
        share = left < run->share_tokens ? left : run->share_tokens;
        sum += (double)share * run->context_tokens + share * (share + 1.0) / 2;
    }
    return sum;
}

static ofl_status compute(void *context, const ofl_compute_run *run)
{
    const accuracy_device *d = context;
    bool head = run->part == OFL_COMPUTE_HEAD;
    double seconds = (head ? d->head_elements : d->block_elements) * element_seconds(run->tokens) + (head ? 0 : pairs(run) * PAIR_SECONDS);
    return ofl_sim_launch(d->device, d->stream, NULL, NULL, seconds);
}

ofl_status accuracy_device_measure(accuracy_device *d, const ofl_workload *work, ofl_compute_figures *out)
{
    const ofl_compute_probe probe = {
        .struct_size = sizeof probe, .block_count = d->layers, .run = compute, .context = d, .stream = d->stream,
        .block_elements = d->block_elements, .head_elements = d->head_elements, .max_tokens = work->sequences + work->prefill_chunk_tokens,
        .max_rows = work->sequences, .context_tokens = CONTEXT,
    };
    ofl_status status = ofl_compute_measure(d->device, &probe, out);
    return status == OFL_OK ? OFL_OK : app_forward(status);
}

/* ---- steps ---- */

static ofl_status slice_seconds(const ofl_model *model, const ofl_plan *plan, uint32_t index, const ofl_step_shape *shape, double *sum)
{
    ofl_slice slice = {.struct_size = sizeof slice};
    ofl_tensor_info info = {.struct_size = sizeof info};
    ofl_status status = ofl_plan_slice_get(plan, index, &slice);
    if (status == OFL_OK) status = ofl_model_tensor_get(model, slice.tensor, &info);
    if (status != OFL_OK || info.n_dims < 2) return status;
    double tokens = info.role == OFL_ROLE_OUTPUT ? shape->logits_rows : shape->tokens;
    *sum += (double)slice.row_count * (double)info.dims[0] * element_seconds(tokens);
    if (info.role == OFL_ROLE_ATTN_OUTPUT && slice.row_first == 0) *sum += (double)shape->kv_tokens * PAIR_SECONDS;
    return OFL_OK;
}

ofl_status accuracy_device_prepare(accuracy_device *d, const ofl_model *model, const ofl_plan *plan, const ofl_step_shape *shape)
{
    uint32_t units = ofl_plan_unit_count(plan);
    ofl_status status = OFL_OK;
    d->seconds = calloc(units, sizeof *d->seconds);
    if (d->seconds == NULL) return app_fail(OFL_ERROR_HOST_MEMORY, "out of host memory");
    for (uint32_t i = 0; i < units && status == OFL_OK; i++) {
        ofl_unit unit = {.struct_size = sizeof unit};
        status = ofl_plan_unit_get(plan, i, &unit);
        for (uint32_t k = 0; k < unit.slice_count && status == OFL_OK; k++)
            status = slice_seconds(model, plan, unit.slice_first + k, shape, &d->seconds[i]);
        d->step_seconds += d->seconds[i];
    }
    return status == OFL_OK ? OFL_OK : app_forward(status);
}

static ofl_status run_unit(const accuracy_device *d, ofl_engine *engine, uint32_t unit)
{
    ofl_view view = {.struct_size = sizeof view};
    ofl_status status = ofl_engine_acquire(engine, unit, d->stream, &view);
    if (status == OFL_OK) status = ofl_sim_launch(d->device, d->stream, NULL, NULL, d->seconds[unit]);
    return status == OFL_OK ? ofl_engine_release(engine, unit, d->stream) : status;
}

ofl_status accuracy_device_step(const accuracy_device *d, ofl_engine *engine, uint32_t units)
{
    ofl_status status = OFL_OK;
    for (uint32_t i = 0; i < units && status == OFL_OK; i++) status = run_unit(d, engine, i);
    if (status == OFL_OK) status = ofl_engine_step_end(engine);
    if (status == OFL_OK) status = ofl_stream_wait(d->device, d->stream);
    return status == OFL_OK ? OFL_OK : app_forward(status);
}
