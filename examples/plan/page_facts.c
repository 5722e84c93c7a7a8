/* Goes over model and plan once, through the public calls. */
#include "plan/page_facts.h"

#include <stdlib.h>
#include <string.h>

#include "common/app_error.h"
#include "common/cli.h"

void facts_free(facts *f)
{
    free(f->layer_share);
    free(f->by_sequences);
}

static void collect_types(const ofl_model *model, facts *f)
{
    const struct { ofl_dtype type; const char *name; } types[] = {
#define TYPE(name, value, text, elements, bits) {OFL_DTYPE_##name, text},
        OFL_DTYPE_LIST(TYPE)
#undef TYPE
    };
    uint64_t bytes[sizeof types / sizeof types[0]] = {0}, most = 0;
    uint32_t kinds = 0;
    for (uint32_t i = 0; i < ofl_model_tensor_count(model); i++) {
        ofl_tensor_info tensor = {.struct_size = sizeof tensor};
        if (ofl_model_tensor_get(model, i, &tensor) != OFL_OK) continue;
        f->weight_bytes += tensor.bytes;
        for (size_t t = 0; tensor.n_dims > 1 && t < sizeof types / sizeof types[0]; t++) {
            if (types[t].type == tensor.dtype) bytes[t] += tensor.bytes;
        }
    }
    f->main_type = "no matrices";
    for (size_t t = 0; t < sizeof types / sizeof types[0]; t++) {
        kinds += bytes[t] > 0;
        if (bytes[t] <= most) continue;
        most = bytes[t];
        f->main_type = types[t].name;
    }
    f->one_type = kinds <= 1;
}

/* Adds a slice to the sums of its block: placed and, of it, resident. */
static ofl_status add_slice(const ofl_model *model, const ofl_slice *slice, facts *f, uint64_t *placed, uint64_t *resident)
{
    ofl_tensor_info tensor = {.struct_size = sizeof tensor};
    ofl_status status = ofl_model_tensor_get(model, slice->tensor, &tensor);
    if (status != OFL_OK) return app_forward(status);
    if (slice->unit == UINT32_MAX) {
        if (slice->tier != OFL_TIER_DEVICE) f->lookup_host_bytes += slice->bytes;
        return OFL_OK;
    }
    f->streamed[slice->tier] += slice->tier == OFL_TIER_DEVICE ? 0 : slice->bytes;
    bool is_head = tensor.role == OFL_ROLE_OUTPUT || tensor.also_lookup;
    if (!is_head && (tensor.block < 0 || (uint32_t)tensor.block >= f->blocks)) return OFL_OK;
    uint32_t at = is_head ? f->blocks : (uint32_t)tensor.block;
    placed[at] += slice->bytes;
    if (slice->tier == OFL_TIER_DEVICE) resident[at] += slice->bytes;
    return OFL_OK;
}

static ofl_status collect_slices(const ofl_model *model, const ofl_plan *plan, facts *f)
{
    size_t room = (size_t)f->blocks + 1;
    uint64_t *placed = calloc(room, sizeof *placed), *resident = calloc(room, sizeof *resident);
    f->layer_share = calloc(room, sizeof *f->layer_share);
    ofl_status status =
        placed != NULL && resident != NULL && f->layer_share != NULL ? OFL_OK : app_fail(OFL_ERROR_HOST_MEMORY, "out of host memory");
    for (uint32_t i = 0; status == OFL_OK && i < ofl_plan_slice_count(plan); i++) {
        ofl_slice slice = {.struct_size = sizeof slice};
        status = ofl_plan_slice_get(plan, i, &slice);
        status = status == OFL_OK ? add_slice(model, &slice, f, placed, resident) : app_forward(status);
    }
    for (uint32_t i = 0; status == OFL_OK && i < f->blocks; i++)
        f->layer_share[i] = placed[i] > 0 ? (double)resident[i] / (double)placed[i] : 1;
    if (status == OFL_OK) f->head_share = placed[f->blocks] > 0 ? (double)resident[f->blocks] / (double)placed[f->blocks] : -1;
    free(placed);
    free(resident);
    return status;
}

static ofl_status collect_rows(const ofl_plan *plan, facts *f)
{
    uint32_t count = ofl_plan_forecast_row_count(plan);
    f->by_sequences = calloc((size_t)count + 1, sizeof *f->by_sequences);
    if (f->by_sequences == NULL) return app_fail(OFL_ERROR_HOST_MEMORY, "out of host memory");
    for (uint32_t i = 0; i < count; i++) {
        ofl_forecast_row row = {.struct_size = sizeof row};
        ofl_status status = ofl_plan_forecast_row_get(plan, i, &row);
        if (status != OFL_OK) return app_forward(status);
        f->by_sequences[i] = (curve_point){row.sequences, row.tokens_per_second, CURVE_POINT};
    }
    f->by_sequences_count = count;
    return OFL_OK;
}

static char *show_sequences(char *buffer, double sequences) { return cli_show_count(buffer, (uint64_t)sequences); }

curve facts_curve(const facts *f)
{
    return (curve){.points = f->by_sequences,
                   .count = f->by_sequences_count,
                   .x_name = "sequences",
                   .log2_x = true,
                   .knee = (double)f->forecast.knee_tokens,
                   .show_x = show_sequences};
}

ofl_status facts_collect_model(const ofl_model *model, facts *out)
{
    facts f = {.budget.struct_size = sizeof f.budget, .settings.struct_size = sizeof f.settings, .forecast.struct_size = sizeof f.forecast};
    ofl_model_shape shape = {.struct_size = sizeof shape};
    ofl_status status = ofl_model_shape_get(model, &shape);
    if (status != OFL_OK) return app_forward(status);
    f.blocks = shape.block_count;
    f.experts = shape.expert_count;
    f.experts_used = shape.expert_used_count;
    f.trained_context = shape.trained_context_tokens;
    f.parameters = (double)shape.parameter_count;
    collect_types(model, &f);
    *out = f;
    return OFL_OK;
}

ofl_status facts_collect(const ofl_model *model, const ofl_plan *plan, facts *out)
{
    facts f;
    double read = 0;
    ofl_status status = facts_collect_model(model, &f);
    if (status != OFL_OK) return status;
    status = ofl_plan_budget_get(plan, &f.budget);
    if (status == OFL_OK) status = ofl_plan_settings_get(plan, &f.settings);
    if (status == OFL_OK) status = ofl_plan_forecast_get(plan, &f.forecast);
    if (status == OFL_OK) status = ofl_model_expert_bytes(model, &f.expert_bytes);
    if (status == OFL_OK) status = ofl_model_expert_bytes_per_step(model, f.forecast.sequences, &read);
    if (status != OFL_OK) return app_forward(status);
    f.expert_bytes_read = (uint64_t)read;
    status = collect_slices(model, plan, &f);
    if (status == OFL_OK) status = collect_rows(plan, &f);
    if (status == OFL_OK) *out = f;
    else facts_free(&f);
    return status;
}
