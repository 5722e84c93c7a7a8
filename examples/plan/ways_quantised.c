/* Fewer bits a weight: the model is built anew in each type and planned. */
#include <stdio.h>

#include "common/app_error.h"
#include "plan/ways.h"

static uint64_t stored_bytes(const ofl_model *model)
{
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < ofl_model_tensor_count(model); i++) {
        ofl_tensor_info t = {.struct_size = sizeof t};
        if (ofl_model_tensor_get(model, i, &t) == OFL_OK) bytes += t.bytes;
    }
    return bytes;
}

static ofl_workload unforced(const ways_job *job)
{
    ofl_workload w = *job->given.workload;
    w.force_layers = w.force_resident_layers = 0;
    return w;
}

static ofl_status add_type(ways *list, const ways_job *job, const ofl_model *model, ofl_dtype dtype, uint32_t kept)
{
    char title[48], bytes[32], some[112] = "";
    ofl_workload w = unforced(job);
    uint64_t stored = stored_bytes(model);
    (void)snprintf(title, sizeof title, "weights at %.3g bits (%s)", store_bits(dtype), ofl_dtype_name(dtype));
    way *row = ways_add(list, "quantised", title);
    ofl_status status = ways_fill(row, job, model, &w);
    row->kept = false;
    if (kept > 0) (void)snprintf(some, sizeof some, "; %u matrices stay as they are (smaller already, or rows of no whole blocks)", kept);
    (void)snprintf(row->needs, sizeof row->needs, "the model stored as %s, %s%s", ofl_dtype_name(dtype), cli_show_bytes(bytes, stored, 0),
                   some);
    (void)snprintf(row->costs, sizeof row->costs,
                   "answers differ from the model as it is stored: measure it; expanding %s while computing is not counted",
                   ofl_dtype_name(dtype));
    row->details = cJSON_CreateObject();
    (void)cJSON_AddStringToObject(row->details, "dtype", ofl_dtype_name(dtype));
    (void)cJSON_AddNumberToObject(row->details, "bits_per_weight", store_bits(dtype));
    (void)cJSON_AddNumberToObject(row->details, "stored_bytes", (double)stored);
    (void)cJSON_AddNumberToObject(row->details, "matrices_unchanged", kept);
    return status;
}

/* Nothing streamed at this width? */
static ofl_status is_whole(const ways_job *job, const ofl_model *model, bool *out)
{
    planned p;
    ofl_workload w = unforced(job);
    w.sequences = job->base.settings.sequences;
    ofl_status status = ways_plan(model, job->given.machine, &w, &p);
    *out = p.fits && p.budget.stream_bytes_per_step == 0;
    return status;
}

/* The most bits at which nothing is streamed; beside it 8 bits; where no width does, 8 bits and 4. */
ofl_status ways_add_quantised(ways *list, const ways_job *job)
{
    ofl_status status = OFL_OK;
    bool found = false;
    for (size_t i = 0; status == OFL_OK && !found && store_types[i] != OFL_DTYPE_F32; i++) {
        ofl_model *model = NULL;
        uint32_t changed = 0, kept = 0;
        status = store_as(job->given.model, store_types[i], &model, &changed, &kept);
        if (status == OFL_OK && changed > 0) status = is_whole(job, model, &found);
        bool shown = found || store_types[i] == OFL_DTYPE_Q8_0 || store_types[i] == OFL_DTYPE_Q4_K;
        if (status == OFL_OK && changed > 0 && shown) status = add_type(list, job, model, store_types[i], kept);
        ofl_model_destroy(model);
    }
    return status;
}
