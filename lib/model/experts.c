/* What a step reads of the experts. */
#include "model/model.h"

#include <math.h>

/* Without losing the small ones: a model may have thousands of experts. */
double ofl_expert_share(uint32_t count, uint32_t used, double tokens)
{
    if (!(tokens > 0)) return 0;
    if (count == 0 || used == 0 || used >= count) return 1;
    return -expm1(tokens * log1p(-(double)used / count));
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
    if (status != OFL_OK) return status;
    *bytes_out = (double)stored * ofl_expert_share(model->shape.expert_count, model->shape.expert_used_count, (double)tokens);
    return OFL_OK;
}
