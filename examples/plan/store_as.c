/* The model as it would be in fewer bits: the same tensors with other types, to be planned like any model. */
#include "plan/ways.h"

#include "common/app_error.h"

#define TYPE(name) OFL_DTYPE_##name,
const ofl_dtype store_types[] = {OFL_FEWER_BITS_LIST(TYPE) OFL_DTYPE_F32};
#undef TYPE

double store_bits(ofl_dtype dtype) { return (double)ofl_dtype_block_bits(dtype) / ofl_dtype_block_elements(dtype); }

/* The same rule as the planner's advice, so that both name the same bytes. */
static bool becomes(const ofl_tensor_info *t, ofl_dtype dtype)
{
    uint64_t row = 0;
    if (t->n_dims < 2 || t->row_count < 2 || !ofl_dtype_holds_weights(t->dtype) || t->tensor_class == OFL_CLASS_UNUSED) return false;
    if (t->dims[0] % ofl_dtype_block_elements(dtype) != 0) return false;
    return ofl_dtype_bytes(dtype, t->dims[0], &row) == OFL_OK && row < t->row_bytes;
}

static ofl_status add_tensors(const ofl_model *model, ofl_dtype dtype, ofl_model_builder *builder, uint32_t *changed, uint32_t *kept)
{
    ofl_status status = OFL_OK;
    *changed = *kept = 0;
    for (uint32_t i = 0; status == OFL_OK && i < ofl_model_tensor_count(model); i++) {
        ofl_tensor_info t = {.struct_size = sizeof t};
        status = ofl_model_tensor_get(model, i, &t);
        if (status != OFL_OK) return status;
        bool other = becomes(&t, dtype);
        ofl_tensor_source source = {.struct_size = sizeof source,
                                    .name = t.name,
                                    .dtype = other ? dtype : t.dtype,
                                    .tensor_class = t.tensor_class,
                                    .role = t.role,
                                    .block = t.block,
                                    .also_lookup = t.also_lookup,
                                    .n_dims = t.n_dims};
        for (uint32_t d = 0; d < t.n_dims; d++) source.dims[d] = t.dims[d];
        *changed += other;
        *kept += !other && t.n_dims > 1 && t.row_count > 1 && t.bytes > OFL_SMALL_TENSOR_BYTES && t.tensor_class != OFL_CLASS_UNUSED;
        status = ofl_model_builder_add_tensor(builder, &source);
    }
    return status;
}

static ofl_status set_kv(const ofl_model *model, uint32_t blocks, ofl_model_builder *builder)
{
    ofl_status status = OFL_OK;
    for (uint32_t i = 0; status == OFL_OK && i < blocks; i++) {
        ofl_kv_layer kv = {.struct_size = sizeof kv};
        status = ofl_model_kv_layer_get(model, i, &kv);
        if (status == OFL_OK) status = ofl_model_builder_set_kv_layer(builder, i, &kv);
    }
    return status;
}

ofl_status store_as(const ofl_model *model, ofl_dtype dtype, ofl_model **out, uint32_t *changed_out, uint32_t *kept_out)
{
    ofl_model_shape shape = {.struct_size = sizeof shape};
    ofl_model_builder *builder = NULL;
    *out = NULL;
    ofl_status status = ofl_model_shape_get(model, &shape);
    if (status == OFL_OK) status = ofl_model_builder_create(ofl_model_name(model), ofl_model_architecture(model), &shape, &builder);
    if (status == OFL_OK) status = set_kv(model, shape.block_count, builder);
    if (status == OFL_OK) status = add_tensors(model, dtype, builder, changed_out, kept_out);
    if (status == OFL_OK) status = ofl_model_builder_finish(builder, out);
    else ofl_model_builder_destroy(builder);
    return status == OFL_OK ? OFL_OK : app_forward(status);
}
