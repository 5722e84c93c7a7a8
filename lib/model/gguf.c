/* Opening a GGUF model: one file, or a set of them found from any part's name. */
#include "model/gguf.h"

#include <stdio.h>
#include <string.h>

#define MAX_PARTS 99999u

/* "…-00002-of-00003.gguf" */
#define PART_TAIL_BYTES 20u

typedef struct split {
    uint32_t number, count, tensors; /* split.no counts from 0 */
    bool given;
} split;

static ofl_status read_split(const ofl_gguf_metadata *metadata, split *out)
{
    *out = (split){0, 1, 0, ofl_gguf_find(metadata, "split.count") != NULL};
    ofl_status status = ofl_gguf_get_u32(metadata, "split.no", &out->number);
    if (status == OFL_OK) status = ofl_gguf_get_u32(metadata, "split.count", &out->count);
    if (status == OFL_OK) status = ofl_gguf_get_u32(metadata, "split.tensors.count", &out->tensors);
    if (status == OFL_OK && out->given && (out->count == 0 || out->count > MAX_PARTS || out->number >= out->count))
        return ofl_fail(OFL_ERROR_FORMAT, "%s: split.no %u of split.count %u makes no sense", metadata->file.path, (unsigned)out->number,
                        (unsigned)out->count);
    return status;
}

static bool is_digits(const char *text, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        if (text[i] < '0' || text[i] > '9') return false;
    }
    return true;
}

/* Whether the path ends as a part's does; its count is what the name says. */
static bool is_part_name(const char *path, uint32_t *count_out)
{
    size_t length = strlen(path);
    if (length < PART_TAIL_BYTES) return false;
    const char *tail = path + length - PART_TAIL_BYTES; /* -NNNNN-of-NNNNN.gguf */
    if (tail[0] != '-' || !is_digits(tail + 1, 5) || strncmp(tail + 6, "-of-", 4) != 0 || !is_digits(tail + 10, 5) ||
        strcmp(tail + 15, ".gguf") != 0)
        return false;
    *count_out = 0;
    for (size_t i = 0; i < 5; i++) *count_out = *count_out * 10 + (uint32_t)(tail[10 + i] - '0');
    return true;
}

static ofl_status read_part(ofl_model *model, const char *path, uint32_t number, uint32_t count, ofl_gguf_metadata **metadata_out)
{
    ofl_gguf_metadata *metadata = NULL;
    split found = {0};
    ofl_status status = ofl_gguf_read_file(model, path, &metadata);
    if (status == OFL_ERROR_NOT_FOUND)
        return ofl_fail(OFL_ERROR_NOT_FOUND, "%s: part %u of %u of the set is missing", path, (unsigned)number + 1, (unsigned)count);
    if (status != OFL_OK) return status;
    status = read_split(metadata, &found);
    if (status == OFL_OK && (!found.given || found.count != count || found.number != number))
        status = ofl_fail(OFL_ERROR_FORMAT, "%s: says part %u of %u, but its name says %u of %u", path, (unsigned)found.number + 1,
                          (unsigned)found.count, (unsigned)number + 1, (unsigned)count);
    if (status == OFL_OK) *metadata_out = metadata;
    else ofl_gguf_metadata_destroy(metadata);
    return status;
}

/* All parts in order; the first one's keys are the model's. */
static ofl_status read_parts(ofl_model *model, const char *path, uint32_t count)
{
    split first = {0};
    ofl_status status = OFL_OK;
    for (uint32_t i = 0; i < count && status == OFL_OK; i++) {
        ofl_gguf_metadata *metadata = NULL;
        char *part = ofl_format("%.*s-%05u-of-%05u.gguf", (int)(strlen(path) - PART_TAIL_BYTES), path, (unsigned)i + 1, (unsigned)count);
        if (part == NULL) return ofl_model_out_of_memory(model);
        status = read_part(model, part, i, count, &metadata);
        ofl_free(part);
        if (i == 0) model->metadata = metadata;
        else ofl_gguf_metadata_destroy(metadata);
    }
    if (status == OFL_OK) status = read_split(model->metadata, &first);
    if (status != OFL_OK) return status;
    if (ofl_gguf_find(model->metadata, "split.tensors.count") != NULL && first.tensors != model->tensor_count)
        return ofl_fail(OFL_ERROR_FORMAT, "%s: split.tensors.count is %u, but the %u parts hold %llu tensors", model->metadata->file.path,
                        (unsigned)first.tensors, (unsigned)count, (unsigned long long)model->tensor_count);
    return OFL_OK;
}

static ofl_status read_files(ofl_model *model, const char *path)
{
    split alone = {0};
    uint32_t count = 0;
    if (is_part_name(path, &count) && count > 1) return read_parts(model, path, count);
    ofl_status status = ofl_gguf_read_file(model, path, &model->metadata);
    if (status == OFL_OK) status = read_split(model->metadata, &alone);
    if (status == OFL_OK && alone.count > 1)
        return ofl_fail(OFL_ERROR_FORMAT, "%s: is part %u of %u of a set; name the files …-00001-of-%05u.gguf and so on", path,
                        (unsigned)alone.number + 1, (unsigned)alone.count, (unsigned)alone.count);
    return status;
}

/* The file's name without folder and ending, where the metadata has none. */
static ofl_status name_model(ofl_model *model)
{
    const char *architecture = NULL, *name = NULL;
    ofl_status status = ofl_gguf_get_text(model->metadata, "general.architecture", &architecture);
    if (status == OFL_OK) status = ofl_gguf_get_text(model->metadata, "general.name", &name);
    if (status != OFL_OK) return status;
    if (architecture == NULL || strlen(architecture) > 64)
        return ofl_fail(OFL_ERROR_FORMAT, "%s: key general.architecture is missing or too long", model->metadata->file.path);
    if (name == NULL || name[0] == '\0') {
        const char *slash = strrchr(model->path, '/'), *base = slash != NULL ? slash + 1 : model->path, *dot = strrchr(base, '.');
        name = ofl_model_text(model, base, dot != NULL ? (uint64_t)(dot - base) : strlen(base));
        if (name == NULL) return ofl_model_out_of_memory(model);
    }
    return ofl_model_set_texts(model, name, architecture);
}

ofl_status ofl_gguf_open(const char *path, ofl_model **out)
{
    ofl_model *model;
    ofl_status status = ofl_model_new(OFL_FORMAT_GGUF, path, &model);
    if (status != OFL_OK) return status;
    status = read_files(model, path);
    if (status == OFL_OK) status = name_model(model);
    if (status == OFL_OK) status = ofl_gguf_read_shape(model, model->metadata);
    if (status == OFL_OK) status = ofl_gguf_place_tensors(model);
    if (status == OFL_OK) status = ofl_model_resolve_tie(model);
    if (status == OFL_OK) status = ofl_model_complete(model);
    if (status == OFL_OK) *out = model;
    else ofl_model_destroy(model);
    return status;
}
