/* The container: one file's header and tensor list, every count and offset checked before it is used. */
#include "model/gguf.h"

#include <stdio.h>
#include <string.h>

#define LEAST_KEY_BYTES 13u    /* key length, type, one byte of value */
#define LEAST_TENSOR_BYTES 24u /* name length, dimensions, type, offset */
#define MAX_KEYS 65536u
#define MAX_NAME_BYTES 63u
#define MAX_GGUF_DIMS 4u
#define LAST_TYPE 42u
#define DEFAULT_ALIGNMENT 32u
#define MAX_ALIGNMENT (1u << 20)

typedef struct gguf_header {
    uint64_t tensor_count, key_count;
} gguf_header;

static ofl_status check_count(const ofl_reader *reader, const char *what, uint64_t count, uint64_t least, uint64_t most)
{
    if (count > ofl_reader_left(reader) / least)
        return ofl_fail(OFL_ERROR_FORMAT, "%s: the header says %llu %s, more than a file of %llu bytes can hold", reader->path,
                        (unsigned long long)count, what, (unsigned long long)reader->end);
    if (count > most)
        return ofl_fail(OFL_ERROR_UNSUPPORTED, "%s: the header says %llu %s; at most %llu can be read", reader->path,
                        (unsigned long long)count, what, (unsigned long long)most);
    return OFL_OK;
}

static ofl_status check_version(const ofl_reader *reader, uint32_t version)
{
    if (version == 2 || version == 3) return OFL_OK;
    if (version == 1) return ofl_fail(OFL_ERROR_UNSUPPORTED, "%s: GGUF version 1 is not read; convert the file to version 3", reader->path);
    if ((version & 0xffff) == 0 && version != 0)
        return ofl_fail(OFL_ERROR_UNSUPPORTED, "%s: a big-endian GGUF file is not read; convert it", reader->path);
    return ofl_fail(OFL_ERROR_UNSUPPORTED, "%s: GGUF version %u is not known; 2 and 3 are", reader->path, (unsigned)version);
}

static ofl_status read_header(ofl_reader *reader, gguf_header *out)
{
    char magic[4] = "";
    uint32_t version = 0;
    ofl_status status = ofl_reader_take(reader, magic, sizeof magic, "the GGUF header");
    if (status == OFL_OK && memcmp(magic, "GGUF", 4) != 0) return ofl_fail(OFL_ERROR_FORMAT, "%s: not a GGUF file", reader->path);
    if (status == OFL_OK) status = ofl_reader_u32(reader, &version, "the GGUF header");
    if (status == OFL_OK) status = check_version(reader, version);
    if (status == OFL_OK) status = ofl_reader_u64(reader, &out->tensor_count, "the GGUF header");
    if (status == OFL_OK) status = ofl_reader_u64(reader, &out->key_count, "the GGUF header");
    if (status == OFL_OK) status = check_count(reader, "metadata keys", out->key_count, LEAST_KEY_BYTES, MAX_KEYS);
    if (status == OFL_OK) status = check_count(reader, "tensors", out->tensor_count, LEAST_TENSOR_BYTES, OFL_MODEL_MAX_TENSORS);
    return status;
}

static ofl_status read_alignment(const ofl_reader *reader, const ofl_gguf_metadata *metadata, uint32_t *out)
{
    const ofl_gguf_entry *entry = ofl_gguf_find(metadata, "general.alignment");
    if (entry == NULL) return OFL_OK;
    if (entry->type != OFL_GGUF_U32) return ofl_fail(OFL_ERROR_FORMAT, "%s: general.alignment is not of type u32", reader->path);
    uint64_t value = entry->value.u;
    if (value < 8 || value > MAX_ALIGNMENT || (value & (value - 1)) != 0)
        return ofl_fail(OFL_ERROR_FORMAT, "%s: general.alignment is %llu; a power of two from 8 to %u is needed", reader->path,
                        (unsigned long long)value, MAX_ALIGNMENT);
    *out = (uint32_t)value;
    return OFL_OK;
}

static ofl_status read_name(ofl_reader *reader, uint64_t index, char name[MAX_NAME_BYTES + 1], ofl_tensor_draft *draft)
{
    char what[48];
    uint64_t bytes = 0;
    (void)snprintf(what, sizeof what, "tensor %llu", (unsigned long long)index);
    ofl_status status = ofl_reader_u64(reader, &bytes, what);
    if (status != OFL_OK) return status;
    if (bytes == 0 || bytes > MAX_NAME_BYTES)
        return ofl_fail(OFL_ERROR_FORMAT, "%s: the name of %s is %llu bytes long; 1 to %u are allowed", reader->path, what,
                        (unsigned long long)bytes, MAX_NAME_BYTES);
    memset(name, 0, MAX_NAME_BYTES + 1);
    status = ofl_reader_take(reader, name, bytes, what);
    if (status == OFL_OK && strlen(name) != bytes)
        return ofl_fail(OFL_ERROR_FORMAT, "%s: the name of %s has a NUL in it", reader->path, what);
    draft->name = name;
    draft->name_bytes = bytes;
    return status;
}

static ofl_status read_dims(ofl_reader *reader, ofl_tensor_draft *draft)
{
    ofl_status status = ofl_reader_u32(reader, &draft->n_dims, draft->name);
    if (status != OFL_OK) return status;
    if (draft->n_dims > MAX_GGUF_DIMS)
        return ofl_fail(OFL_ERROR_FORMAT, "%s: tensor %s has %u dimensions; at most %u are allowed", reader->path, draft->name,
                        (unsigned)draft->n_dims, MAX_GGUF_DIMS);
    for (uint32_t i = 0; i < draft->n_dims && status == OFL_OK; i++) {
        status = ofl_reader_u64(reader, &draft->dims[i], draft->name);
        if (status == OFL_OK && draft->dims[i] > INT64_MAX)
            status = ofl_fail(OFL_ERROR_FORMAT, "%s: tensor %s has a negative dimension", reader->path, draft->name);
    }
    return status;
}

static ofl_status read_type(ofl_reader *reader, ofl_tensor_draft *draft)
{
    uint32_t type = 0;
    ofl_status status = ofl_reader_u32(reader, &type, draft->name);
    if (status != OFL_OK) return status;
    if (type > LAST_TYPE || !ofl_dtype_known(type))
        return ofl_fail(OFL_ERROR_UNSUPPORTED, "%s: tensor %s is of unknown type %u", reader->path, draft->name, (unsigned)type);
    draft->dtype = (ofl_dtype)type;
    return ofl_reader_u64(reader, &draft->offset, draft->name);
}

/* Tensors follow each other, each padded to the alignment: *next is where this one has to be. */
static ofl_status check_place(const ofl_reader *reader, const ofl_tensor_draft *draft, uint64_t bytes, uint32_t alignment, uint64_t *next)
{
    uint64_t padded;
    if (draft->offset != *next)
        return ofl_fail(OFL_ERROR_FORMAT, "%s: tensor %s is at offset %llu of the data instead of %llu", reader->path, draft->name,
                        (unsigned long long)draft->offset, (unsigned long long)*next);
    if (!ofl_align_u64(bytes, alignment, &padded) || !ofl_add_u64(*next, padded, next))
        return ofl_fail(OFL_ERROR_OVERFLOW, "%s: the tensors up to %s take more bytes than 64 bits can count", reader->path, draft->name);
    return OFL_OK;
}

static ofl_status read_tensor(ofl_model *model, ofl_reader *reader, uint64_t index, uint32_t file, uint32_t alignment, uint64_t *next)
{
    char name[MAX_NAME_BYTES + 1];
    ofl_tensor_draft draft = {.role = OFL_ROLE_OTHER, .block = OFL_BLOCK_INPUT, .file = file};
    ofl_status status = read_name(reader, index, name, &draft);
    if (status == OFL_OK) status = read_dims(reader, &draft);
    if (status == OFL_OK) status = read_type(reader, &draft);
    if (status == OFL_OK) status = ofl_model_add_tensor(model, &draft);
    if (status == OFL_OK) status = check_place(reader, &draft, model->tensors[model->tensor_count - 1].bytes, alignment, next);
    return status;
}

static ofl_status read_tensors(ofl_model *model, ofl_reader *reader, uint64_t count, uint32_t file, uint32_t alignment)
{
    uint64_t first = model->tensor_count, next = 0, data_start, needed;
    for (uint64_t i = 0; i < count; i++) {
        ofl_status status = read_tensor(model, reader, i, file, alignment, &next);
        if (status != OFL_OK) return status;
    }
    if (!ofl_align_u64(reader->position, alignment, &data_start))
        return ofl_fail(OFL_ERROR_OVERFLOW, "%s: the header is too long", reader->path);
    for (uint64_t i = first; i < model->tensor_count; i++) {
        ofl_tensor *tensor = &model->tensors[i];
        if (!ofl_add_u64(data_start, tensor->at.offset, &tensor->at.offset) || !ofl_add_u64(tensor->at.offset, tensor->bytes, &needed))
            return ofl_fail(OFL_ERROR_OVERFLOW, "%s: tensor %s ends beyond what 64 bits can count", reader->path, tensor->name);
        if (needed > reader->end)
            return ofl_fail(OFL_ERROR_FORMAT, "%s: the file is cut: it is %llu bytes, tensor %s needs %llu; fetch it again", reader->path,
                            (unsigned long long)reader->end, tensor->name, (unsigned long long)needed);
    }
    return OFL_OK;
}

static ofl_status read_file(ofl_model *model, ofl_reader *reader, uint32_t file, ofl_gguf_metadata *metadata)
{
    gguf_header header = {0, 0};
    uint32_t alignment = DEFAULT_ALIGNMENT;
    ofl_status status = read_header(reader, &header);
    if (status == OFL_OK) status = ofl_gguf_metadata_read(model, reader, header.key_count, metadata);
    if (status == OFL_OK) status = read_alignment(reader, metadata, &alignment);
    if (status == OFL_OK) status = check_count(reader, "tensors", header.tensor_count, LEAST_TENSOR_BYTES, OFL_MODEL_MAX_TENSORS);
    if (status == OFL_OK) status = read_tensors(model, reader, header.tensor_count, file, alignment);
    return status;
}

ofl_status ofl_gguf_read_file(ofl_model *model, const char *path, ofl_gguf_metadata **metadata_out)
{
    uint32_t file = 0;
    ofl_reader reader;
    ofl_status status = ofl_model_add_file(model, path, &file);
    if (status == OFL_OK) status = ofl_reader_open(&reader, model->files[file].path);
    if (status != OFL_OK) return status;
    ofl_gguf_metadata *metadata = ofl_alloc(1, sizeof *metadata);
    if (metadata == NULL) {
        status = ofl_model_out_of_memory(model);
        goto close_reader;
    }
    metadata->file = model->files[file];
    status = ofl_model_file_check(&metadata->file, reader.descriptor);
    if (status == OFL_OK) status = read_file(model, &reader, file, metadata);
    if (status == OFL_OK) *metadata_out = metadata;
    else ofl_gguf_metadata_destroy(metadata);
close_reader:
    ofl_reader_close(&reader);
    return status;
}
