/* What the readers and the builder put a model together with. */
#include "model/model.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

ofl_status ofl_model_new(ofl_model_format format, const char *path, ofl_model **out)
{
    ofl_model *model = ofl_alloc(1, sizeof *model);
    if (model == NULL) return ofl_model_out_of_memory(NULL);
    model->format = format;
    model->tied_tensor = UINT32_MAX;
    model->path = ofl_model_text(model, path, strlen(path));
    model->name = model->architecture = "";
    if (model->path == NULL) {
        ofl_model_destroy(model);
        return ofl_model_out_of_memory(NULL);
    }
    *out = model;
    return OFL_OK;
}

void ofl_model_destroy(ofl_model *model)
{
    if (model == NULL) return;
    ofl_gguf_metadata_destroy(model->metadata);
    ofl_free(model->tensors);
    ofl_free(model->kv);
    ofl_free(model->files);
    ofl_free(model->notes);
    ofl_model_drop_texts(model);
    ofl_free(model);
}

/* Programs print both. */
static const char *printable(ofl_model *model, const char *text)
{
    size_t bytes = strlen(text) + 1;
    char *copy = ofl_model_take(model, bytes);
    if (copy == NULL) return NULL;
    memcpy(copy, text, bytes);
    ofl_make_printable(copy);
    return copy;
}

ofl_status ofl_model_set_texts(ofl_model *model, const char *name, const char *architecture)
{
    model->name = printable(model, name);
    model->architecture = printable(model, architecture);
    return model->name != NULL && model->architecture != NULL ? OFL_OK : ofl_model_out_of_memory(model);
}

ofl_status ofl_model_add_note(ofl_model *model, const char *format, ...)
{
    char text[512];
    va_list arguments;
    va_start(arguments, format);
    (void)vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    if (!ofl_grow((void **)&model->notes, &model->note_capacity, model->note_count + 1, sizeof *model->notes))
        return ofl_model_out_of_memory(model);
    const char *copy = ofl_model_text(model, text, strlen(text));
    if (copy == NULL) return ofl_model_out_of_memory(model);
    model->notes[model->note_count++] = copy;
    return OFL_OK;
}

ofl_status ofl_model_add_file(ofl_model *model, const char *path, uint32_t *index_out)
{
    struct stat about;
    if (stat(path, &about) != 0) {
        ofl_status status = errno == ENOENT || errno == ENOTDIR ? OFL_ERROR_NOT_FOUND : OFL_ERROR_IO;
        return ofl_fail_code(status, errno, "%s: %s; give the path of an existing model file", path, strerror(errno));
    }
    if (!S_ISREG(about.st_mode)) return ofl_fail(OFL_ERROR_FORMAT, "%s: not a regular file", path);
    if (model->file_count >= OFL_MODEL_MAX_TENSORS)
        return ofl_fail(OFL_ERROR_UNSUPPORTED, "model %s: more than %u files", model->path, OFL_MODEL_MAX_TENSORS);
    if (!ofl_grow((void **)&model->files, &model->file_capacity, model->file_count + 1, sizeof *model->files))
        return ofl_model_out_of_memory(model);
    const char *copy = ofl_model_text(model, path, strlen(path));
    if (copy == NULL) return ofl_model_out_of_memory(model);
    model->files[model->file_count] = (ofl_model_file){
        copy, (uint64_t)about.st_size, (uint64_t)about.st_dev, (uint64_t)about.st_ino, about.st_mtim.tv_sec, about.st_mtim.tv_nsec};
    *index_out = (uint32_t)model->file_count++;
    return OFL_OK;
}

ofl_status ofl_tensor_bytes(const char *name, ofl_dtype dtype, uint32_t n_dims, const uint64_t *dims, uint64_t *bytes_out)
{
    uint64_t elements = 1;
    if (n_dims > OFL_MAX_DIMS)
        return ofl_fail(OFL_ERROR_FORMAT, "tensor %s: %u dimensions; at most %u are possible", name, (unsigned)n_dims, OFL_MAX_DIMS);
    for (uint32_t i = 0; i < n_dims; i++) {
        if (!ofl_mul_u64(elements, dims[i], &elements))
            return ofl_fail(OFL_ERROR_OVERFLOW, "tensor %s: its elements overflow 64 bits", name);
    }
    uint32_t block = ofl_dtype_block_elements(dtype);
    if (block == 0) return ofl_fail(OFL_ERROR_UNSUPPORTED, "tensor %s: type %d is not known", name, (int)dtype);
    if (n_dims > 0 && dims[0] % block != 0)
        return ofl_fail(OFL_ERROR_FORMAT, "tensor %s: %llu columns are no multiple of the %u that %s stores together", name,
                        (unsigned long long)dims[0], (unsigned)block, ofl_dtype_name(dtype));
    ofl_status status = ofl_dtype_bytes(dtype, elements, bytes_out);
    if (status == OFL_ERROR_ARGUMENT) return ofl_fail(OFL_ERROR_FORMAT, "tensor %s: %s", name, ofl_error_message());
    return status == OFL_OK ? OFL_OK : ofl_fail(status, "tensor %s: %s", name, ofl_error_message());
}

uint64_t ofl_tensor_elements(const ofl_tensor *tensor)
{
    uint64_t elements = 1;
    for (unsigned d = 0; d < tensor->n_dims; d++) elements *= tensor->dims[d]; /* checked when it was added */
    return elements;
}

bool ofl_tensor_is_buffer(const ofl_model *model, const ofl_tensor *tensor)
{
    bool unused = tensor->tensor_class == OFL_CLASS_UNUSED;
    return tensor->role == OFL_ROLE_ROPE_FREQS || (unused && tensor->block >= 0 && tensor->block < (int64_t)model->shape.block_count);
}

ofl_status ofl_model_add_tensor(ofl_model *model, const ofl_tensor_draft *draft)
{
    uint64_t bytes;
    const char *name = draft->kept_name != NULL ? draft->kept_name : ofl_model_text(model, draft->name, draft->name_bytes);
    if (name == NULL) return ofl_model_out_of_memory(model);
    ofl_status status = ofl_tensor_bytes(name, draft->dtype, draft->n_dims, draft->dims, &bytes);
    if (status != OFL_OK) return status;
    if (model->tensor_count >= OFL_MODEL_MAX_TENSORS)
        return ofl_fail(OFL_ERROR_UNSUPPORTED, "model %s: more than %u tensors", model->path, OFL_MODEL_MAX_TENSORS);
    uint64_t *dims = ofl_model_take(model, draft->n_dims * sizeof *dims);
    if (dims == NULL || !ofl_grow((void **)&model->tensors, &model->tensor_capacity, model->tensor_count + 1, sizeof *model->tensors))
        return ofl_model_out_of_memory(model);
    memcpy(dims, draft->dims, draft->n_dims * sizeof *dims);
    ofl_tensor *tensor = &model->tensors[model->tensor_count];
    *tensor = (ofl_tensor){name,
                           dims,
                           bytes,
                           {0},
                           draft->file,
                           (uint32_t)model->tensor_count,
                           draft->block,
                           (uint8_t)draft->dtype,
                           (uint8_t)draft->tensor_class,
                           (uint8_t)draft->role,
                           (uint8_t)draft->n_dims,
                           OFL_UNUSED_STATED,
                           draft->also_lookup,
                           false};
    if (draft->file == OFL_NO_FILE) tensor->at.data = draft->data;
    else tensor->at.offset = draft->offset;
    model->tensor_count++;
    model->names_checked = false;
    return OFL_OK;
}

ofl_status ofl_model_make_kv(ofl_model *model)
{
    const ofl_model_shape *shape = &model->shape;
    if (shape->block_count > OFL_MODEL_MAX_BLOCKS)
        return ofl_fail(OFL_ERROR_UNSUPPORTED, "model %s: %u blocks; at most %u are possible", model->path, (unsigned)shape->block_count,
                        OFL_MODEL_MAX_BLOCKS);
    model->kv = ofl_alloc(shape->block_count, sizeof *model->kv);
    if (model->kv == NULL) return ofl_model_out_of_memory(model);
    ofl_kv_layer full = {sizeof full,
                         OFL_KV_FULL,
                         shape->head_count_kv,
                         (uint64_t)shape->head_count_kv * shape->head_dim_k,
                         (uint64_t)shape->head_count_kv * shape->head_dim_v,
                         0,
                         0};
    for (uint32_t i = 0; i < shape->block_count; i++) model->kv[i] = full;
    return OFL_OK;
}
