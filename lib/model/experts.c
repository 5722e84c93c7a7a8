/* What a step reads of the experts. */
#include "model/model.h"

#include <math.h>

/* 1 − (1 − k/E)^n, without losing the small ones: a model may have thousands of experts. */
static double share_read(const ofl_model_shape *shape, uint64_t tokens)
{
    if (tokens == 0) return 0;
    if (shape->expert_count == 0 || shape->expert_used_count == 0 || shape->expert_used_count >= shape->expert_count) return 1;
    double used = (double)shape->expert_used_count / (double)shape->expert_count;
    return -expm1((double)tokens * log1p(-used));
}

ofl_status ofl_model_expert_bytes(const ofl_model *model, uint64_t *bytes_out)
{
    uint64_t bytes = 0;
    if (model == NULL || bytes_out == NULL) return ofl_fail(OFL_ERROR_ARGUMENT, "expert bytes: no model or no place for the result given");
    for (uint64_t i = 0; i < model->tensor_count; i++) {
        if (model->tensors[i].tensor_class == OFL_CLASS_EXPERT) bytes += model->tensors[i].bytes; /* the sum of all was checked */
    }
    *bytes_out = bytes;
    return OFL_OK;
}

ofl_status ofl_model_expert_bytes_per_step(const ofl_model *model, uint64_t tokens, double *bytes_out)
{
    uint64_t stored = 0;
    if (bytes_out == NULL) return ofl_fail(OFL_ERROR_ARGUMENT, "expert bytes: no place for the result given");
    ofl_status status = ofl_model_expert_bytes(model, &stored);
    if (status == OFL_OK) *bytes_out = (double)stored * share_read(&model->shape, tokens);
    return status;
}
