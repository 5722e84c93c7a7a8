/* KV geometry: one function of (layer, context, type). Everything that sizes a cache comes through here. */
#include "model/model.h"

static ofl_status overflow(void)
{
    return ofl_fail(OFL_ERROR_OVERFLOW, "the KV cache takes more bytes than 64 bits can count; use a shorter context");
}

/* One token's K or V row; block types are padded to whole blocks. */
static bool row_bytes(ofl_kv_type type, uint64_t elements, uint64_t *out)
{
    switch (type) {
    case OFL_KV_F32: return ofl_mul_u64(elements, 4, out);
    case OFL_KV_F16:
    case OFL_KV_BF16: return ofl_mul_u64(elements, 2, out);
    case OFL_KV_F8: return ofl_mul_u64(elements, 1, out);
    case OFL_KV_Q8_0: return ofl_mul_u64(elements / 32 + (elements % 32 != 0), 34, out);
    }
    return false;
}

static uint64_t kept_tokens(const ofl_kv_layer *layer, uint64_t context)
{
    switch (layer->kind) {
    case OFL_KV_FULL:
    case OFL_KV_LATENT: return context;
    case OFL_KV_SLIDING:
    case OFL_KV_CHUNKED: return ofl_min_u64(context, layer->window_tokens);
    case OFL_KV_SHARED:
    case OFL_KV_NONE: return 0;
    }
    return 0;
}

static bool layer_bytes(const ofl_kv_layer *layer, ofl_kv_type type, uint64_t context, uint64_t *out)
{
    uint64_t k, v, token;
    return row_bytes(type, layer->k_elements, &k) && row_bytes(type, layer->v_elements, &v) && ofl_add_u64(k, v, &token) &&
           ofl_mul_u64(token, kept_tokens(layer, context), out);
}

ofl_status ofl_kv_layer_check(const ofl_kv_layer *layer, uint32_t index)
{
    if ((unsigned)layer->kind > OFL_KV_NONE)
        return ofl_fail(OFL_ERROR_ARGUMENT, "KV layer %u: kind %d is not known", (unsigned)index, (int)layer->kind);
    if ((layer->kind == OFL_KV_SLIDING || layer->kind == OFL_KV_CHUNKED) && layer->window_tokens == 0)
        return ofl_fail(OFL_ERROR_ARGUMENT, "KV layer %u: a window of 0 tokens", (unsigned)index);
    return OFL_OK;
}

static ofl_status check(const ofl_model *model, ofl_kv_type type, const void *out)
{
    if (model == NULL || out == NULL) return ofl_fail(OFL_ERROR_ARGUMENT, "KV size: no model or no place for the result given");
    if ((unsigned)type > OFL_KV_F8) return ofl_fail(OFL_ERROR_ARGUMENT, "KV size: type %d is not known", (int)type);
    return OFL_OK;
}

const char *ofl_kv_type_name(ofl_kv_type type)
{
    static const char *const names[] = {"f16", "bf16", "f32", "q8_0", "f8"};
    return (unsigned)type < OFL_COUNT_OF(names) ? names[type] : "?";
}

ofl_status ofl_model_kv_bytes(const ofl_model *model, ofl_kv_type type, uint64_t context_tokens, uint64_t *bytes_out)
{
    ofl_status status = check(model, type, bytes_out);
    if (status != OFL_OK) return status;
    uint64_t sum = 0, bytes;
    for (uint32_t i = 0; i < model->shape.block_count; i++) {
        if (!layer_bytes(&model->kv[i], type, context_tokens, &bytes) || !ofl_add_u64(sum, bytes, &sum)) return overflow();
    }
    *bytes_out = sum;
    return OFL_OK;
}

static ofl_status check_layer(const ofl_model *model, uint32_t layer)
{
    if (model == NULL) return ofl_fail(OFL_ERROR_ARGUMENT, "KV layer: no model given");
    if (layer >= model->shape.block_count)
        return ofl_fail(OFL_ERROR_ARGUMENT, "KV layer %u: the model has %u layers", (unsigned)layer, (unsigned)model->shape.block_count);
    return OFL_OK;
}

ofl_status ofl_model_kv_layer_bytes(const ofl_model *model, uint32_t layer, ofl_kv_type type, uint64_t context_tokens, uint64_t *bytes_out)
{
    ofl_status status = check(model, type, bytes_out);
    if (status == OFL_OK) status = check_layer(model, layer);
    if (status != OFL_OK) return status;
    uint64_t bytes;
    if (!layer_bytes(&model->kv[layer], type, context_tokens, &bytes)) return overflow();
    *bytes_out = bytes;
    return OFL_OK;
}

ofl_status ofl_model_kv_layer_get(const ofl_model *model, uint32_t layer, ofl_kv_layer *out)
{
    ofl_status status = check_layer(model, layer);
    return status == OFL_OK ? ofl_struct_out(out, &model->kv[layer], sizeof *out, "ofl_kv_layer") : status;
}

ofl_status ofl_model_kv_bytes_per_token(const ofl_model *model, ofl_kv_type type, uint64_t *bytes_out)
{
    return ofl_model_kv_bytes(model, type, 1, bytes_out);
}

ofl_status ofl_model_state_bytes(const ofl_model *model, uint64_t *bytes_out)
{
    ofl_status status = check(model, OFL_KV_F16, bytes_out);
    if (status != OFL_OK) return status;
    uint64_t sum = 0;
    for (uint32_t i = 0; i < model->shape.block_count; i++) {
        if (!ofl_add_u64(sum, model->kv[i].state_bytes, &sum)) return overflow();
    }
    *bytes_out = sum;
    return OFL_OK;
}
