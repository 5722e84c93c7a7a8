#include "batch/supports.h"

#include <stdlib.h>
#include <string.h>

#include "batch/cpu/expand.h"
#include "batch/forward.h"
#include "batch/kv.h"
#include "batch/rope.h"
#include "common/app_error.h"

const ofl_tensor_role block_matrices[7] = {OFL_ROLE_ATTN_Q,   OFL_ROLE_ATTN_K, OFL_ROLE_ATTN_V,  OFL_ROLE_ATTN_OUTPUT,
                                           OFL_ROLE_FFN_GATE, OFL_ROLE_FFN_UP, OFL_ROLE_FFN_DOWN};

uint32_t tensor_of(const ofl_model *model, uint32_t block, ofl_tensor_role role)
{
    uint32_t index;
    return ofl_model_tensor_find(model, (int32_t)block, role, &index) == OFL_OK ? index : NO_TENSOR;
}

uint32_t tensor_of_tokens(const ofl_model *model, const ofl_model_shape *shape)
{
    uint32_t index;
    if (ofl_model_tensor_find(model, OFL_BLOCK_INPUT, OFL_ROLE_EMBEDDING, &index) == OFL_OK) return index;
    return tensor_of(model, shape->block_count, OFL_ROLE_OUTPUT);
}

ofl_status tensors_in_order(const ofl_model *model, const ofl_model_shape *shape, uint32_t **out, uint32_t *count_out)
{
    uint32_t *tensors = calloc((size_t)shape->block_count * 7 + 1, sizeof *tensors), count = 0;
    if (tensors == NULL) return app_fail(OFL_ERROR_HOST_MEMORY, "forward pass: out of host memory; free some");
    for (uint32_t b = 0; b < shape->block_count; b++) {
        for (uint32_t i = 0; i < 7; i++) tensors[count++] = tensor_of(model, b, block_matrices[i]);
    }
    tensors[count++] = tensor_of(model, shape->block_count, OFL_ROLE_OUTPUT);
    *out = tensors;
    *count_out = count;
    return OFL_OK;
}

void matrix_size(const ofl_model_shape *s, ofl_tensor_role role, uint64_t *rows_out, uint64_t *columns_out)
{
    uint64_t q = (uint64_t)s->head_count * s->head_dim_k, kv = (uint64_t)s->head_count_kv * s->head_dim_k, rows = 0,
             columns = s->hidden_size;
    switch (role) {
    case OFL_ROLE_ATTN_Q: rows = q; break;
    case OFL_ROLE_ATTN_K:
    case OFL_ROLE_ATTN_V: rows = kv; break;
    case OFL_ROLE_ATTN_OUTPUT:
        rows = s->hidden_size;
        columns = q;
        break;
    case OFL_ROLE_FFN_GATE:
    case OFL_ROLE_FFN_UP: rows = s->ffn_size; break;
    case OFL_ROLE_FFN_DOWN:
        rows = s->hidden_size;
        columns = s->ffn_size;
        break;
    case OFL_ROLE_OUTPUT:
    case OFL_ROLE_EMBEDDING: rows = s->vocab_size; break;
    default: break;
    }
    *rows_out = rows;
    *columns_out = columns;
}

/* Elements that a vector with this role has; 0: no vector that is known. */
static uint64_t vector_size(const ofl_model_shape *s, ofl_tensor_role role)
{
    switch (role) {
    case OFL_ROLE_ATTN_NORM:
    case OFL_ROLE_FFN_NORM:
    case OFL_ROLE_OUTPUT_NORM: return s->hidden_size;
    case OFL_ROLE_ATTN_Q_BIAS: return (uint64_t)s->head_count * s->head_dim_k;
    case OFL_ROLE_ATTN_K_BIAS:
    case OFL_ROLE_ATTN_V_BIAS: return (uint64_t)s->head_count_kv * s->head_dim_k;
    case OFL_ROLE_ATTN_Q_NORM:
    case OFL_ROLE_ATTN_K_NORM: return s->head_dim_k;
    case OFL_ROLE_ROPE_FREQS: return s->rope_dim / 2;
    default: return 0;
    }
}

static ofl_status check_tensor(const ofl_model_shape *s, const ofl_tensor_info *t)
{
    uint64_t rows, columns, elements = vector_size(s, t->role);
    matrix_size(s, t->role, &rows, &columns);
    if (t->tensor_class == OFL_CLASS_EXPERT || (rows == 0 && elements == 0))
        return app_fail(OFL_ERROR_UNSUPPORTED, "tensor %s: the example driver does not know its use; it can be planned, not run", t->name);
    if (elements != 0 && t->elements != elements)
        return app_fail(OFL_ERROR_UNSUPPORTED, "tensor %s: %llu elements instead of %llu", t->name, (unsigned long long)t->elements,
                        (unsigned long long)elements);
    if (elements != 0 && t->dtype != OFL_DTYPE_F32 && t->dtype != OFL_DTYPE_F16 && t->dtype != OFL_DTYPE_BF16)
        return app_fail(OFL_ERROR_UNSUPPORTED, "tensor %s: vectors of type %s are not supported by the example driver", t->name,
                        ofl_dtype_name(t->dtype));
    if (elements == 0 && (t->row_count != rows || t->dims[0] != columns))
        return app_fail(OFL_ERROR_UNSUPPORTED, "tensor %s: %llu rows of %llu instead of %llu of %llu", t->name,
                        (unsigned long long)t->row_count, (unsigned long long)t->dims[0], (unsigned long long)rows,
                        (unsigned long long)columns);
    if (!expand_knows(t->dtype))
        return app_fail(OFL_ERROR_UNSUPPORTED, "tensor %s: type %s is not supported by the example driver; it can be planned, not run",
                        t->name, ofl_dtype_name(t->dtype));
    return OFL_OK;
}

static ofl_status check_tensors(const ofl_model *model, const ofl_model_shape *shape)
{
    for (uint32_t i = 0; i < ofl_model_tensor_count(model); i++) {
        ofl_tensor_info t = {.struct_size = sizeof t};
        ofl_status status = ofl_model_tensor_get(model, i, &t);
        if (status != OFL_OK) return app_forward(status);
        if (t.tensor_class == OFL_CLASS_UNUSED) continue;
        status = check_tensor(shape, &t);
        if (status != OFL_OK) return status;
    }
    return OFL_OK;
}

static ofl_status need(const ofl_model *model, uint32_t block, ofl_tensor_role role, const char *what)
{
    if (tensor_of(model, block, role) != NO_TENSOR) return OFL_OK;
    return app_fail(OFL_ERROR_UNSUPPORTED, "block %u: no tensor for the %s; the example driver cannot run this model", block, what);
}

static ofl_status check_block(const ofl_model *model, const ofl_model_shape *shape, uint32_t block)
{
    static const struct {
        ofl_tensor_role role;
        const char *what;
    } needed[] = {{OFL_ROLE_ATTN_NORM, "attention norm"},
                  {OFL_ROLE_ATTN_Q, "queries"},
                  {OFL_ROLE_ATTN_K, "keys"},
                  {OFL_ROLE_ATTN_V, "values"},
                  {OFL_ROLE_ATTN_OUTPUT, "attention output"},
                  {OFL_ROLE_FFN_NORM, "feed-forward norm"},
                  {OFL_ROLE_FFN_GATE, "gate"},
                  {OFL_ROLE_FFN_UP, "up"},
                  {OFL_ROLE_FFN_DOWN, "down"}};
    ofl_kv_layer kv_layer = {.struct_size = sizeof kv_layer};
    ofl_status status = OFL_OK;
    for (size_t i = 0; i < sizeof needed / sizeof needed[0] && status == OFL_OK; i++)
        status = need(model, block, needed[i].role, needed[i].what);
    if (status != OFL_OK) return status;
    status = ofl_model_kv_layer_get(model, block, &kv_layer);
    if (status != OFL_OK) return app_forward(status);
    uint64_t elements = (uint64_t)shape->head_count_kv * shape->head_dim_k;
    if (kv_layer.kind != OFL_KV_FULL || kv_layer.k_elements != elements || kv_layer.v_elements != elements)
        return app_fail(OFL_ERROR_UNSUPPORTED, "block %u: its attention is not plain full attention; the example driver cannot run it",
                        block);
    return OFL_OK;
}

static ofl_status check_shape(const ofl_model_shape *s)
{
    const struct {
        double value;
        const char *name;
    } scales[] = {{s->attention_softcap, "attention soft-cap"},
                  {s->final_softcap, "logit soft-cap"},
                  {s->embedding_scale, "embedding scale"},
                  {s->residual_scale, "residual scale"},
                  {s->logit_scale, "logit scale"}};
    for (size_t i = 0; i < sizeof scales / sizeof scales[0]; i++) {
        if (scales[i].value != 0 && scales[i].value != 1)
            return app_fail(OFL_ERROR_UNSUPPORTED, "model: its %s of %g is not supported by the example driver", scales[i].name,
                            scales[i].value);
    }
    if (s->expert_count != 0)
        return app_fail(OFL_ERROR_UNSUPPORTED, "model: experts are not supported by the example driver; it can be planned, not run");
    if (s->block_count == 0 || s->hidden_size == 0 || s->ffn_size == 0 || s->vocab_size == 0 || s->head_count == 0 || s->head_count_kv == 0)
        return app_fail(OFL_ERROR_UNSUPPORTED, "model: a size that the forward pass needs is missing");
    if (s->head_dim_k != s->head_dim_v || s->head_count % s->head_count_kv != 0)
        return app_fail(OFL_ERROR_UNSUPPORTED, "model: %u query heads of %u over %u of %u are not supported by the example driver",
                        s->head_count, s->head_dim_k, s->head_count_kv, s->head_dim_v);
    if (s->head_dim_k > KV_MAX_DIM)
        return app_fail(OFL_ERROR_UNSUPPORTED, "model: heads of %u elements are not supported; up to %u are", s->head_dim_k, KV_MAX_DIM);
    return OFL_OK;
}

ofl_status forward_supports(const ofl_model *model)
{
    static const char *const known[] = {"llama", "qwen2", "qwen3"};
    const char *architecture = ofl_model_architecture(model);
    ofl_model_shape shape = {.struct_size = sizeof shape};
    bool found = false;
    rope turns;
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) found = found || strcmp(architecture, known[i]) == 0;
    if (!found)
        return app_fail(OFL_ERROR_UNSUPPORTED,
                        "architecture %s: the example driver runs llama, qwen2 and qwen3; others can be planned, not run", architecture);
    ofl_status status = ofl_model_shape_get(model, &shape);
    if (status != OFL_OK) return app_forward(status);
    status = check_shape(&shape);
    if (status == OFL_OK) status = rope_init(&turns, &shape, NULL);
    if (status == OFL_OK) status = check_tensors(model, &shape);
    for (uint32_t b = 0; b < shape.block_count && status == OFL_OK; b++) status = check_block(model, &shape, b);
    if (status == OFL_OK) status = need(model, shape.block_count, OFL_ROLE_OUTPUT_NORM, "final norm");
    if (status == OFL_OK) status = need(model, shape.block_count, OFL_ROLE_OUTPUT, "output head");
    return status;
}
