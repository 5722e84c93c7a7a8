#include "batch/forward.h"

#include "common/app_error.h"

static const forward_kind *on_gpu; /* NULL: none */

void forward_use(const forward_kind *kind) { on_gpu = kind; }

ofl_status forward_choose(const ofl_device *device, const forward_kind **out)
{
    ofl_device_info info = {.struct_size = sizeof info};
    if (ofl_device_info_get(device, &info) != OFL_OK) return app_forward(ofl_diagnostic_get()->status);
    if (info.host_readable) {
        *out = &forward_cpu;
        return OFL_OK;
    }
    if (on_gpu == NULL)
        return app_fail(OFL_ERROR_UNSUPPORTED,
                        "%s: this program was built without a CUDA compiler and computes on the CPU alone, which cannot read that device's memory; "
                        "build it where nvcc is, or use a simulated device (sim:…)",
                        info.spec);
    *out = on_gpu;
    return OFL_OK;
}

ofl_status forward_open(const ofl_model *model, const ofl_plan *plan, ofl_engine *engine, ofl_device *device, uint32_t threads,
                        forward **out)
{
    const forward_kind *kind = NULL;
    ofl_status status = forward_choose(device, &kind);
    return status == OFL_OK ? kind->open(model, plan, engine, device, threads, out) : status;
}

void forward_close(forward *f)
{
    if (f != NULL) f->kind->close(f);
}

ofl_status forward_shrink(forward *f, uint32_t tokens_per_step, uint32_t logits_rows, uint64_t kv_tokens)
{
    return f->kind->shrink(f, tokens_per_step, logits_rows, kv_tokens);
}

ofl_status forward_step(forward *f, const ofl_step *step, const int32_t *tokens, uint32_t usable, row_choice *rows)
{
    return f->kind->step(f, step, tokens, usable, rows);
}

ofl_status forward_logits(forward *f, const float **out) { return f->kind->logits(f, out); }
void forward_times_get(const forward *f, forward_times *out) { f->kind->times(f, out); }

ofl_status forward_measure(const forward_measure_job *job, ofl_compute_figures *out)
{
    const forward_kind *kind = NULL;
    if (job->max_tokens == 0 || job->max_rows == 0) return app_fail(OFL_ERROR_ARGUMENT, "measuring: no tokens or no rows");
    ofl_status status = forward_choose(job->device, &kind);
    if (status == OFL_OK) status = forward_supports(job->model);
    return status == OFL_OK ? kind->measure(job, out) : status;
}
