/* The header of a safetensors file, read as a stream. The data must be covered without hole or overlap. */
#include "model/hf.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_HEADER_BYTES 100000000u

/* What an entry says; each must be said once. */
typedef struct entry {
    ofl_tensor_draft draft;
    char dtype[24];
    uint64_t begin, end;
    bool has_dtype, has_shape, has_offsets;
} entry;

static ofl_status refuse(const ofl_reader *reader, const entry *from, const char *why)
{
    return ofl_fail(OFL_ERROR_FORMAT, "%s: tensor %s: %s", reader->path, from->draft.name, why);
}

static ofl_status read_dtype(ofl_json_pull *pull, entry *out)
{
    const char *text = "";
    ofl_status status = ofl_json_pull_string(pull, "dtype", &text);
    if (status == OFL_OK) (void)snprintf(out->dtype, sizeof out->dtype, "%s", text);
    out->has_dtype = true;
    return status;
}

/* The last dimension in the file is the contiguous one. */
static ofl_status read_shape(ofl_json_pull *pull, entry *out)
{
    uint64_t dims[OFL_MAX_DIMS];
    uint32_t count = 0;
    ofl_status status = ofl_json_pull_u64_array(pull, "shape", dims, OFL_MAX_DIMS, &count);
    for (uint32_t i = 0; i < count; i++) out->draft.dims[i] = dims[count - 1 - i];
    out->draft.n_dims = count;
    out->has_shape = true;
    return status;
}

static ofl_status read_offsets(ofl_json_pull *pull, entry *out)
{
    uint64_t offsets[2] = {0, 0};
    uint32_t count = 0;
    ofl_status status = ofl_json_pull_u64_array(pull, "data_offsets", offsets, 2, &count);
    if (status == OFL_OK && count != 2) return refuse(pull->reader, out, "data_offsets are not two numbers");
    out->begin = offsets[0];
    out->end = offsets[1];
    out->has_offsets = true;
    return status;
}

static ofl_status read_field(ofl_json_pull *pull, entry *out)
{
    const char *key = ofl_json_pull_text(pull);
    bool dtype = strcmp(key, "dtype") == 0, shape = strcmp(key, "shape") == 0, offsets = strcmp(key, "data_offsets") == 0;
    if ((dtype && out->has_dtype) || (shape && out->has_shape) || (offsets && out->has_offsets))
        return refuse(pull->reader, out, "a field is given twice");
    if (dtype) return read_dtype(pull, out);
    if (shape) return read_shape(pull, out);
    if (offsets) return read_offsets(pull, out);
    return ofl_json_pull_skip(pull);
}

static ofl_status check_entry(const ofl_reader *reader, entry *from, uint64_t data_bytes)
{
    uint64_t bytes = 0;
    if (!from->has_dtype || !from->has_shape || !from->has_offsets) return refuse(reader, from, "dtype, shape or data_offsets are missing");
    if (from->begin > from->end || from->end > data_bytes)
        return ofl_fail(OFL_ERROR_FORMAT, "%s: tensor %s: data_offsets %llu to %llu lie outside the %llu bytes of data", reader->path,
                        from->draft.name, (unsigned long long)from->begin, (unsigned long long)from->end, (unsigned long long)data_bytes);
    if (!ofl_dtype_from_name(from->dtype, &from->draft.dtype) || ofl_dtype_block_elements(from->draft.dtype) != 1)
        return ofl_fail(OFL_ERROR_UNSUPPORTED, "%s: tensor %s: dtype \"%s\" is not known", reader->path, from->draft.name, from->dtype);
    ofl_status status = ofl_tensor_bytes(from->draft.name, from->draft.dtype, from->draft.n_dims, from->draft.dims, &bytes);
    if (status != OFL_OK) return ofl_fail(status, "%s: %s", reader->path, ofl_error_message());
    if (bytes != from->end - from->begin)
        return ofl_fail(OFL_ERROR_FORMAT, "%s: tensor %s: its shape takes %llu bytes, its data_offsets span %llu", reader->path,
                        from->draft.name, (unsigned long long)bytes, (unsigned long long)(from->end - from->begin));
    return OFL_OK;
}

static ofl_status read_entry(ofl_model *model, ofl_json_pull *pull, uint32_t file, uint64_t data_start, uint64_t data_bytes)
{
    entry found = {.draft = {.role = OFL_ROLE_OTHER, .block = OFL_BLOCK_INPUT, .file = file}};
    bool more = false;
    found.draft.kept_name = ofl_model_text(model, ofl_json_pull_text(pull), strlen(ofl_json_pull_text(pull)));
    if (found.draft.kept_name == NULL) return ofl_model_out_of_memory(model);
    found.draft.name = found.draft.kept_name;
    ofl_status status = ofl_json_pull_expect(pull, OFL_JSON_OBJECT, found.draft.name);
    if (status == OFL_OK) status = ofl_json_pull_key(pull, &more);
    while (status == OFL_OK && more) {
        status = read_field(pull, &found);
        if (status == OFL_OK) status = ofl_json_pull_key(pull, &more);
    }
    if (status == OFL_OK) status = check_entry(pull->reader, &found, data_bytes);
    if (status != OFL_OK) return status;
    found.draft.offset = data_start + found.begin;
    return ofl_model_add_tensor(model, &found.draft);
}

static ofl_status read_metadata(ofl_json_pull *pull)
{
    bool more = false;
    ofl_status status = ofl_json_pull_expect(pull, OFL_JSON_OBJECT, "__metadata__");
    if (status == OFL_OK) status = ofl_json_pull_key(pull, &more);
    while (status == OFL_OK && more) {
        status = ofl_json_pull_skip(pull);
        if (status == OFL_OK) status = ofl_json_pull_key(pull, &more);
    }
    return status;
}

static ofl_status read_entries(ofl_model *model, ofl_json_pull *pull, uint32_t file, uint64_t data_start, uint64_t data_bytes)
{
    bool more = false;
    ofl_status status = ofl_json_pull_expect(pull, OFL_JSON_OBJECT, "the header");
    if (status == OFL_OK) status = ofl_json_pull_key(pull, &more);
    while (status == OFL_OK && more) {
        bool metadata = strcmp(ofl_json_pull_text(pull), "__metadata__") == 0;
        status = metadata ? read_metadata(pull) : read_entry(model, pull, file, data_start, data_bytes);
        if (status == OFL_OK) status = ofl_json_pull_key(pull, &more);
    }
    return status == OFL_OK ? ofl_json_pull_expect(pull, OFL_JSON_END, "the header's end") : status;
}

/* Empty tensors come before what begins where they stand. */
static int compare_extents(const void *a, const void *b, void *context)
{
    const ofl_tensor *tensors = context, *left = &tensors[*(const uint32_t *)a], *right = &tensors[*(const uint32_t *)b];
    if (left->at.offset != right->at.offset) return left->at.offset < right->at.offset ? -1 : 1;
    return left->bytes < right->bytes ? -1 : left->bytes > right->bytes;
}

static ofl_status check_cover(const ofl_model *model, const ofl_reader *reader, uint64_t first, uint64_t data_start, uint64_t file_bytes)
{
    uint64_t count = model->tensor_count - first, next = data_start;
    uint32_t *order = ofl_alloc(count, sizeof *order);
    if (order == NULL) return ofl_model_out_of_memory(model);
    for (uint64_t i = 0; i < count; i++) order[i] = (uint32_t)(first + i);
    if (count > 0) qsort_r(order, (size_t)count, sizeof *order, compare_extents, model->tensors);
    ofl_status status = OFL_OK;
    for (uint64_t i = 0; i < count && status == OFL_OK; i++) {
        const ofl_tensor *tensor = &model->tensors[order[i]];
        if (tensor->at.offset != next)
            status = ofl_fail(OFL_ERROR_FORMAT, "%s: tensor %s: begins at byte %llu of the data, but %llu is where the one before it ends",
                              reader->path, tensor->name, (unsigned long long)(tensor->at.offset - data_start),
                              (unsigned long long)(next - data_start));
        next = tensor->at.offset + tensor->bytes; /* both within the file */
    }
    if (status == OFL_OK && next != file_bytes)
        status = ofl_fail(OFL_ERROR_FORMAT, "%s: %llu bytes follow the last tensor's data", reader->path,
                          (unsigned long long)(file_bytes - next));
    ofl_free(order);
    return status;
}

static ofl_status read_header(ofl_model *model, ofl_reader *reader, uint32_t file)
{
    uint64_t header_bytes = 0, first = model->tensor_count, file_bytes = reader->end;
    if (file_bytes < 8)
        return ofl_fail(OFL_ERROR_FORMAT, "%s: %llu bytes are too short for a safetensors file", reader->path,
                        (unsigned long long)file_bytes);
    ofl_status status = ofl_reader_u64(reader, &header_bytes, "the header's length");
    if (status != OFL_OK) return status;
    if (header_bytes > MAX_HEADER_BYTES || header_bytes > ofl_reader_left(reader) || header_bytes < 2)
        return ofl_fail(OFL_ERROR_FORMAT, "%s: a header of %llu bytes in a file of %llu (at most %u are allowed)", reader->path,
                        (unsigned long long)header_bytes, (unsigned long long)file_bytes, MAX_HEADER_BYTES);
    unsigned char start = 0;
    status = ofl_reader_take(reader, &start, 1, "the header");
    if (status == OFL_OK && start != '{') return ofl_fail(OFL_ERROR_FORMAT, "%s: the header does not begin with {", reader->path);
    ofl_reader_seek(reader, 8);
    reader->end = 8 + header_bytes;
    ofl_json_pull pull;
    ofl_json_pull_start(&pull, reader);
    if (status == OFL_OK) status = read_entries(model, &pull, file, 8 + header_bytes, file_bytes - 8 - header_bytes);
    ofl_json_pull_end(&pull);
    return status == OFL_OK ? check_cover(model, reader, first, 8 + header_bytes, file_bytes) : status;
}

ofl_status ofl_safetensors_read(ofl_model *model, const char *path)
{
    uint32_t file = 0;
    ofl_reader reader;
    ofl_status status = ofl_model_add_file(model, path, &file);
    if (status == OFL_OK) status = ofl_reader_open(&reader, model->files[file].path);
    if (status != OFL_OK) return status;
    status = ofl_model_file_check(&model->files[file], reader.descriptor);
    if (status == OFL_OK) status = read_header(model, &reader, file);
    ofl_reader_close(&reader);
    return status;
}
