/* The caller's own weights as a model. */
#include "model/model.h"

#include <string.h>

struct ofl_model_builder {
    ofl_model *model;
};

static ofl_status check_shape(const ofl_model_shape *shape)
{
    if (shape->block_count > OFL_MODEL_MAX_BLOCKS)
        return ofl_fail(OFL_ERROR_ARGUMENT, "model shape: %u blocks; at most %u are possible", (unsigned)shape->block_count,
                        OFL_MODEL_MAX_BLOCKS);
    return OFL_OK;
}

ofl_status ofl_model_builder_create(const char *name, const char *architecture, const ofl_model_shape *shape, ofl_model_builder **out)
{
    ofl_model_shape full;
    if (out == NULL) return ofl_fail(OFL_ERROR_ARGUMENT, "model builder: no place for the result given");
    *out = NULL;
    ofl_status status = ofl_struct_in(&full, sizeof full, shape, "ofl_model_shape");
    if (status == OFL_OK) status = check_shape(&full);
    if (status != OFL_OK) return status;
    ofl_model_builder *builder = ofl_alloc(1, sizeof *builder);
    if (builder == NULL) return ofl_model_out_of_memory(NULL);
    status = ofl_model_new(OFL_FORMAT_BUILDER, "", &builder->model);
    if (status == OFL_OK) {
        builder->model->shape = full;
        status = ofl_model_set_texts(builder->model, name != NULL ? name : "", architecture != NULL ? architecture : "");
    }
    if (status == OFL_OK) status = ofl_model_make_kv(builder->model);
    if (status == OFL_OK) *out = builder;
    else ofl_model_builder_destroy(builder);
    return status;
}

static ofl_status check_source(const ofl_tensor_source *tensor)
{
    const char *name = tensor->name;
    if (name == NULL || name[0] == '\0') return ofl_fail(OFL_ERROR_ARGUMENT, "add a tensor: it has no name");
    if (tensor->n_dims > OFL_MAX_DIMS)
        return ofl_fail(OFL_ERROR_ARGUMENT, "tensor %s: %u dimensions; at most %u are possible", name, (unsigned)tensor->n_dims,
                        OFL_MAX_DIMS);
    if (!ofl_dtype_known((uint64_t)tensor->dtype))
        return ofl_fail(OFL_ERROR_ARGUMENT, "tensor %s: type %d is not known", name, (int)tensor->dtype);
    if ((unsigned)tensor->tensor_class > OFL_CLASS_UNUSED || (unsigned)tensor->role >= OFL_ROLE_COUNT)
        return ofl_fail(OFL_ERROR_ARGUMENT, "tensor %s: class %d or role %d is not known", name, (int)tensor->tensor_class,
                        (int)tensor->role);
    if (tensor->data != NULL && tensor->file != NULL)
        return ofl_fail(OFL_ERROR_ARGUMENT, "tensor %s: data and file are both given; give one", name);
    return OFL_OK;
}

/* Tensors of one file follow each other: the last file is looked at first. */
static ofl_status find_file(ofl_model *model, const char *path, uint32_t *index_out)
{
    for (uint64_t i = model->file_count; i > 0; i--) {
        if (strcmp(model->files[i - 1].path, path) != 0) continue;
        *index_out = (uint32_t)(i - 1);
        return OFL_OK;
    }
    return ofl_model_add_file(model, path, index_out);
}

static ofl_status check_extent(const ofl_model *model, const ofl_tensor *tensor)
{
    const ofl_model_file *file = &model->files[tensor->file];
    if (tensor->at.offset <= file->bytes && tensor->bytes <= file->bytes - tensor->at.offset) return OFL_OK;
    return ofl_fail(OFL_ERROR_ARGUMENT, "tensor %s: bytes %llu + %llu are beyond the end of %s (%llu)", tensor->name,
                    (unsigned long long)tensor->at.offset, (unsigned long long)tensor->bytes, file->path, (unsigned long long)file->bytes);
}

ofl_status ofl_model_builder_add_tensor(ofl_model_builder *builder, const ofl_tensor_source *tensor)
{
    ofl_tensor_source full;
    if (builder == NULL) return ofl_fail(OFL_ERROR_ARGUMENT, "add a tensor: no builder given");
    ofl_status status = ofl_struct_in(&full, sizeof full, tensor, "ofl_tensor_source");
    if (status == OFL_OK) status = check_source(&full);
    if (status != OFL_OK) return status;
    ofl_model *model = builder->model;
    ofl_tensor_draft draft = {.name = full.name,
                              .name_bytes = strlen(full.name),
                              .dtype = full.dtype,
                              .tensor_class = full.tensor_class,
                              .role = full.role,
                              .block = full.block,
                              .also_lookup = full.also_lookup != 0,
                              .n_dims = full.n_dims,
                              .file = OFL_NO_FILE,
                              .offset = full.file_offset,
                              .data = full.data};
    memcpy(draft.dims, full.dims, sizeof draft.dims);
    if (full.file != NULL) status = find_file(model, full.file, &draft.file);
    if (status == OFL_OK) status = ofl_model_add_tensor(model, &draft);
    if (status == OFL_ERROR_FORMAT) status = ofl_fail(OFL_ERROR_ARGUMENT, "%s", ofl_error_message());
    if (status != OFL_OK || draft.file == OFL_NO_FILE) return status;
    status = check_extent(model, &model->tensors[model->tensor_count - 1]);
    if (status != OFL_OK) model->tensor_count--;
    return status;
}

ofl_status ofl_model_builder_set_kv_layer(ofl_model_builder *builder, uint32_t layer, const ofl_kv_layer *kv)
{
    ofl_kv_layer full;
    if (builder == NULL) return ofl_fail(OFL_ERROR_ARGUMENT, "KV layer: no builder given");
    ofl_status status = ofl_struct_in(&full, sizeof full, kv, "ofl_kv_layer");
    if (status != OFL_OK) return status;
    if (layer >= builder->model->shape.block_count)
        return ofl_fail(OFL_ERROR_ARGUMENT, "KV layer %u: the shape has %u blocks", (unsigned)layer,
                        (unsigned)builder->model->shape.block_count);
    status = ofl_kv_layer_check(&full, layer);
    if (status == OFL_OK) builder->model->kv[layer] = full;
    return status;
}

ofl_status ofl_model_builder_finish(ofl_model_builder *builder, ofl_model **out)
{
    if (out != NULL) *out = NULL;
    if (builder == NULL) return ofl_fail(OFL_ERROR_ARGUMENT, "finish a model: no builder given");
    ofl_status status = out != NULL ? ofl_model_complete(builder->model)
                                    : ofl_fail(OFL_ERROR_ARGUMENT, "finish a model: no place for the result given");
    if (status == OFL_OK) {
        *out = builder->model;
        builder->model = NULL;
    }
    ofl_model_builder_destroy(builder);
    return status == OFL_ERROR_FORMAT ? ofl_fail(OFL_ERROR_ARGUMENT, "%s", ofl_error_message()) : status;
}

void ofl_model_builder_destroy(ofl_model_builder *builder)
{
    if (builder == NULL) return;
    ofl_model_destroy(builder->model);
    ofl_free(builder);
}
