#include "model/model.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

ofl_model_format ofl_model_format_get(const ofl_model *model) { return model->format; }
const char *ofl_model_path(const ofl_model *model) { return model->path; }
const char *ofl_model_name(const ofl_model *model) { return model->name; }
const char *ofl_model_architecture(const ofl_model *model) { return model->architecture; }
const char *ofl_model_identity(const ofl_model *model) { return model->identity; }
uint32_t ofl_model_note_count(const ofl_model *model) { return (uint32_t)model->note_count; }
const char *ofl_model_note(const ofl_model *model, uint32_t index) { return index < model->note_count ? model->notes[index] : ""; }
uint32_t ofl_model_tensor_count(const ofl_model *model) { return (uint32_t)model->tensor_count; }

ofl_status ofl_model_shape_get(const ofl_model *model, ofl_model_shape *out)
{
    if (model == NULL) return ofl_fail(OFL_ERROR_ARGUMENT, "model shape: no model given");
    return ofl_struct_out(out, &model->shape, sizeof model->shape, "ofl_model_shape");
}

static ofl_status get(const ofl_model *model, uint32_t index, const ofl_tensor **out)
{
    if (model == NULL) return ofl_fail(OFL_ERROR_ARGUMENT, "tensor %u: no model given", (unsigned)index);
    if (index >= model->tensor_count)
        return ofl_fail(OFL_ERROR_ARGUMENT, "tensor %u: the model has %llu", (unsigned)index, (unsigned long long)model->tensor_count);
    *out = &model->tensors[index];
    return OFL_OK;
}

static void fill_rows(const ofl_tensor *tensor, ofl_tensor_info *info)
{
    info->elements = info->row_count = 1;
    for (unsigned d = 0; d < tensor->n_dims; d++) {
        info->dims[d] = tensor->dims[d];
        info->elements *= tensor->dims[d];
        if (d > 0) info->row_count *= tensor->dims[d];
    }
    /* rows of a type below a byte may end within one: such a tensor has no rows of its own */
    uint64_t columns = tensor->n_dims > 0 ? tensor->dims[0] : 1;
    uint32_t per_block = ofl_dtype_block_elements((ofl_dtype)tensor->dtype), bits = ofl_dtype_block_bits((ofl_dtype)tensor->dtype);
    if (info->row_count == 0 || columns / per_block % 8 * bits % 8 != 0) info->row_count = 1;
    info->row_bytes = tensor->bytes / info->row_count;
}

static const char *unused_why(const ofl_tensor *tensor)
{
    static const char *const texts[] = {
#define TEXT(name, text) text,
        OFL_UNUSED_LIST(TEXT)
#undef TEXT
    };
    return tensor->tensor_class == OFL_CLASS_UNUSED ? texts[tensor->unused] : NULL;
}

ofl_status ofl_model_tensor_get(const ofl_model *model, uint32_t index, ofl_tensor_info *out)
{
    const ofl_tensor *tensor = NULL;
    ofl_status status = get(model, index, &tensor);
    if (status != OFL_OK) return status;
    ofl_tensor_info info = {.struct_size = sizeof info,
                            .dtype = (ofl_dtype)tensor->dtype,
                            .tensor_class = (ofl_tensor_class)tensor->tensor_class,
                            .role = (ofl_tensor_role)tensor->role,
                            .also_lookup = tensor->also_lookup,
                            .block = tensor->block,
                            .name = tensor->name,
                            .n_dims = tensor->n_dims,
                            .bytes = tensor->bytes,
                            .unused_why = unused_why(tensor)};
    fill_rows(tensor, &info);
    return ofl_struct_out(out, &info, sizeof info, "ofl_tensor_info");
}

static uint64_t first_of_block(const ofl_model *model, int32_t block)
{
    uint64_t low = 0, high = model->tensor_count;
    while (low < high) {
        uint64_t middle = low + (high - low) / 2;
        const ofl_tensor *tensor = &model->tensors[middle];
        if (tensor->tensor_class != OFL_CLASS_UNUSED && tensor->block < block) low = middle + 1;
        else high = middle;
    }
    return low;
}

ofl_status ofl_model_tensor_find(const ofl_model *model, int32_t block, ofl_tensor_role role, uint32_t *index_out)
{
    if (model == NULL || index_out == NULL) return ofl_fail(OFL_ERROR_ARGUMENT, "find a tensor: no model or no place for the result given");
    for (uint64_t i = first_of_block(model, block); i < model->tensor_count; i++) {
        const ofl_tensor *tensor = &model->tensors[i];
        if (tensor->block != block || tensor->tensor_class == OFL_CLASS_UNUSED) break;
        if (tensor->role != role) continue;
        *index_out = (uint32_t)i;
        return OFL_OK;
    }
    bool as_input = block == OFL_BLOCK_INPUT && role == OFL_ROLE_EMBEDDING;
    bool as_head = block == (int64_t)model->shape.block_count && role == OFL_ROLE_OUTPUT;
    if (model->tied_tensor == UINT32_MAX || (!as_input && !as_head)) return OFL_ERROR_NOT_FOUND;
    *index_out = model->tied_tensor;
    return OFL_OK;
}

const void *ofl_model_tensor_data(const ofl_model *model, uint32_t index)
{
    if (index >= model->tensor_count || model->tensors[index].file != OFL_NO_FILE) return NULL;
    return model->tensors[index].at.data;
}

ofl_status ofl_model_tensor_at(const ofl_model *model, const void *data, uint32_t *index_out)
{
    if (model == NULL || index_out == NULL)
        return ofl_fail(OFL_ERROR_ARGUMENT, "tensor by address: no model or no place for the result given");
    for (uint64_t i = 0; data != NULL && i < model->tensor_count; i++) {
        if (model->tensors[i].file != OFL_NO_FILE || model->tensors[i].at.data != data) continue;
        *index_out = (uint32_t)i;
        return OFL_OK;
    }
    return OFL_ERROR_NOT_FOUND;
}

ofl_status ofl_model_file_check(const ofl_model_file *file, int descriptor)
{
    struct stat about;
    if (fstat(descriptor, &about) != 0) return ofl_fail_code(OFL_ERROR_IO, errno, "%s: %s", file->path, strerror(errno));
    if ((uint64_t)about.st_size != file->bytes || (uint64_t)about.st_dev != file->device || (uint64_t)about.st_ino != file->inode ||
        about.st_mtim.tv_sec != file->changed_seconds || about.st_mtim.tv_nsec != file->changed_nanoseconds)
        return ofl_fail(OFL_ERROR_IO, "%s: the file has changed since the model was opened; open it again", file->path);
    return OFL_OK;
}

static ofl_status read_all(const ofl_model_file *file, int descriptor, uint64_t offset, uint64_t bytes, char *to)
{
    while (bytes > 0) {
        ssize_t got = pread(descriptor, to, (size_t)ofl_min_u64(bytes, UINT64_C(1) << 30), (off_t)offset);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0)
            return ofl_fail_code(OFL_ERROR_IO, errno, "%s: cannot read at %llu: %s", file->path, (unsigned long long)offset,
                                 strerror(errno));
        if (got == 0) return ofl_fail(OFL_ERROR_IO, "%s: ends at %llu, data were expected there", file->path, (unsigned long long)offset);
        to += got;
        offset += (uint64_t)got;
        bytes -= (uint64_t)got;
    }
    return OFL_OK;
}

static ofl_status read_file(const ofl_model_file *file, uint64_t offset, uint64_t bytes, void *to)
{
    int descriptor = open(file->path, O_RDONLY | O_CLOEXEC);
    if (descriptor < 0) return ofl_fail_code(OFL_ERROR_IO, errno, "%s: %s", file->path, strerror(errno));
    ofl_status status = ofl_model_file_check(file, descriptor);
    if (status == OFL_OK) status = read_all(file, descriptor, offset, bytes, to);
    (void)close(descriptor);
    return status;
}

ofl_status ofl_model_tensor_read(const ofl_model *model, uint32_t index, uint64_t offset, uint64_t bytes, void *to)
{
    const ofl_tensor *tensor = NULL;
    ofl_status status = get(model, index, &tensor);
    if (status != OFL_OK) return status;
    if (offset > tensor->bytes || bytes > tensor->bytes - offset)
        return ofl_fail(OFL_ERROR_ARGUMENT, "tensor %s: bytes %llu + %llu are beyond its %llu", tensor->name, (unsigned long long)offset,
                        (unsigned long long)bytes, (unsigned long long)tensor->bytes);
    if (to == NULL && bytes > 0) return ofl_fail(OFL_ERROR_ARGUMENT, "tensor %s: no place to read to given", tensor->name);
    if (bytes == 0) return OFL_OK;
    if (tensor->file != OFL_NO_FILE) return read_file(&model->files[tensor->file], tensor->at.offset + offset, bytes, to);
    if (tensor->at.data == NULL)
        return ofl_fail(OFL_ERROR_IO, "tensor %s: model %s is a description without data; it can be planned, not run", tensor->name,
                        model->name);
    memcpy(to, (const char *)tensor->at.data + offset, (size_t)bytes);
    return OFL_OK;
}
