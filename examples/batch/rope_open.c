#include "batch/rope.h"

#include "batch/cpu/expand.h"
#include "common/app_error.h"

ofl_status rope_open(rope *r, const ofl_model *model, const ofl_model_shape *shape)
{
    uint32_t tensor;
    float stored[ROPE_MAX_DIM / 2], factors[ROPE_MAX_DIM / 2];
    ofl_tensor_info info = {.struct_size = sizeof info};
    if (ofl_model_tensor_find(model, OFL_BLOCK_INPUT, OFL_ROLE_ROPE_FREQS, &tensor) != OFL_OK) return rope_init(r, shape, NULL);
    ofl_status status = ofl_model_tensor_get(model, tensor, &info);
    if (status == OFL_OK && (info.bytes > sizeof stored || info.elements != shape->rope_dim / 2))
        return app_fail(OFL_ERROR_UNSUPPORTED, "tensor %s: not one factor for each pair of rotated elements", info.name);
    if (status == OFL_OK) status = ofl_model_tensor_read(model, tensor, 0, info.bytes, stored);
    if (status != OFL_OK) return app_forward(status);
    expand_to_f32(info.dtype, stored, info.elements, factors);
    return rope_init(r, shape, factors);
}
