/* Memory of a model's many small strings: taken from large chunks, given back with the model. */
#include "model/model.h"

#include <string.h>

#define CHUNK_BYTES 65536u

struct ofl_text_chunk {
    ofl_text_chunk *next;
    uint64_t used, capacity;
};

ofl_status ofl_model_out_of_memory(const ofl_model *model)
{
    if (model != NULL && model->text_full)
        return ofl_fail(OFL_ERROR_UNSUPPORTED, "model %s: its names and texts take more than %llu MiB", model->path,
                        (unsigned long long)(OFL_MODEL_MAX_TEXT_BYTES >> 20));
    return ofl_fail(OFL_ERROR_HOST_MEMORY, "model %s: out of host memory while its description was read",
                    model != NULL && model->path != NULL ? model->path : "");
}

void *ofl_model_take(ofl_model *model, uint64_t bytes)
{
    uint64_t rounded, whole;
    if (!ofl_align_u64(bytes, 8, &rounded)) return NULL;
    model->text_full = model->text_full || rounded > OFL_MODEL_MAX_TEXT_BYTES - model->text_bytes;
    if (model->text_full) return NULL;
    ofl_text_chunk *chunk = model->texts;
    if (chunk == NULL || chunk->capacity - chunk->used < rounded) {
        uint64_t capacity = ofl_max_u64(CHUNK_BYTES - sizeof *chunk, rounded);
        chunk = ofl_add_u64(capacity, sizeof *chunk, &whole) ? ofl_alloc(1, whole) : NULL;
        if (chunk == NULL) return NULL;
        chunk->capacity = capacity;
        chunk->next = model->texts;
        model->texts = chunk;
    }
    void *place = (char *)(chunk + 1) + chunk->used;
    chunk->used += rounded;
    model->text_bytes += rounded;
    return place;
}

const char *ofl_model_text(ofl_model *model, const char *text, uint64_t bytes)
{
    char *copy = bytes < UINT64_MAX ? ofl_model_take(model, bytes + 1) : NULL;
    if (copy == NULL) return NULL;
    if (bytes > 0) memcpy(copy, text, (size_t)bytes);
    copy[bytes] = '\0';
    return copy;
}

void ofl_model_drop_texts(ofl_model *model)
{
    while (model->texts != NULL) {
        ofl_text_chunk *next = model->texts->next;
        ofl_free(model->texts);
        model->texts = next;
    }
}
