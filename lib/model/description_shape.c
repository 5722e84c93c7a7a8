#include "model/description.h"

#include <string.h>

#define WHOLE(field) \
    { \
#field, offsetof(ofl_model_shape, field), 'u' \
    }
#define LONG(field) \
    { \
#field, offsetof(ofl_model_shape, field), 'l' \
    }
#define REAL(field) \
    { \
#field, offsetof(ofl_model_shape, field), 'd' \
    }

static const struct {
    const char *name;
    size_t offset;
    char type;
} fields[] = {
    WHOLE(block_count),
    WHOLE(hidden_size),
    WHOLE(head_count),
    WHOLE(head_count_kv),
    WHOLE(head_dim_k),
    WHOLE(head_dim_v),
    WHOLE(ffn_size),
    WHOLE(vocab_size),
    WHOLE(expert_count),
    WHOLE(expert_used_count),
    WHOLE(rope_dim),
    WHOLE(rope_original_context),
    LONG(trained_context_tokens),
    LONG(parameter_count),
    REAL(norm_epsilon),
    REAL(rope_freq_base),
    REAL(rope_factor),
    REAL(rope_low_freq_factor),
    REAL(rope_high_freq_factor),
    REAL(rope_attention_factor),
    REAL(rope_beta_fast),
    REAL(rope_beta_slow),
    REAL(attention_scale),
    REAL(attention_softcap),
    REAL(final_softcap),
    REAL(embedding_scale),
    REAL(residual_scale),
    REAL(logit_scale),
};

static ofl_status read_number(ofl_json_pull *pull, size_t index, ofl_model_shape *shape)
{
    char *place = (char *)shape + fields[index].offset;
    const char *name = fields[index].name;
    uint64_t whole = 0;
    if (fields[index].type == 'd') return ofl_json_pull_double(pull, name, (double *)(void *)place);
    ofl_status status = ofl_json_pull_u64(pull, name, &whole);
    if (status != OFL_OK) return status;
    if (fields[index].type == 'l') memcpy(place, &whole, sizeof whole);
    else if (whole > UINT32_MAX) return ofl_fail(OFL_ERROR_FORMAT, "%s: %s: a number below 2^32 is needed", pull->reader->path, name);
    else memcpy(place, &(uint32_t){(uint32_t)whole}, sizeof(uint32_t));
    return OFL_OK;
}

/* The place of a word in a list. */
static ofl_status read_word(ofl_json_pull *pull, const char *what, const char *const *words, unsigned count, unsigned *out)
{
    const char *text = "";
    ofl_status status = ofl_json_pull_string(pull, what, &text);
    if (status != OFL_OK) return status;
    for (unsigned i = 0; i < count; i++) {
        if (strcmp(text, words[i]) != 0) continue;
        *out = i;
        return OFL_OK;
    }
    return ofl_fail(OFL_ERROR_FORMAT, "%s: %s \"%s\" is not known", pull->reader->path, what, text);
}

static ofl_status read_field(ofl_json_pull *pull, ofl_model_shape *shape)
{
    static const char *const pairings[] = {"half", "interleaved"}, *const scalings[] = {"none", "linear",   "llama3",
                                                                                        "yarn", "longrope", "dynamic"};
    const char *key = ofl_json_pull_text(pull);
    unsigned choice = 0;
    ofl_status status;
    for (size_t i = 0; i < OFL_COUNT_OF(fields); i++) {
        if (strcmp(key, fields[i].name) == 0) return read_number(pull, i, shape);
    }
    if (strcmp(key, "rope_pairing") == 0) {
        status = read_word(pull, "rope_pairing", pairings, OFL_COUNT_OF(pairings), &choice);
        if (status == OFL_OK) shape->rope_pairing = (ofl_rope_pairing)choice;
        return status;
    }
    if (strcmp(key, "rope_scaling") == 0) {
        status = read_word(pull, "rope_scaling", scalings, OFL_COUNT_OF(scalings), &choice);
        if (status == OFL_OK) shape->rope_scaling = (ofl_rope_scaling)choice;
        return status;
    }
    return ofl_fail(OFL_ERROR_FORMAT, "%s: shape has no field \"%s\"", pull->reader->path, key);
}

ofl_status ofl_description_read_shape(ofl_json_pull *pull, ofl_model_shape *shape)
{
    bool more = false;
    ofl_status status = ofl_json_pull_expect(pull, OFL_JSON_OBJECT, "shape");
    if (status == OFL_OK) status = ofl_json_pull_key(pull, &more);
    while (status == OFL_OK && more) {
        status = read_field(pull, shape);
        if (status == OFL_OK) status = ofl_json_pull_key(pull, &more);
    }
    return status;
}
