/* What the keys say about shape and KV cache. */
#include "model/gguf.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

typedef struct keys {
    ofl_model *model;
    const ofl_gguf_metadata *metadata;
    char text[256];
} keys;

/* "architecture.name", for the next call only. */
static const char *key(keys *at, const char *name)
{
    (void)snprintf(at->text, sizeof at->text, "%s.%s", at->model->architecture, name);
    return at->text;
}

static ofl_status get_u32(keys *at, const char *name, uint32_t *out) { return ofl_gguf_get_u32(at->metadata, key(at, name), out); }
static ofl_status get_double(keys *at, const char *name, double *out) { return ofl_gguf_get_double(at->metadata, key(at, name), out); }

static ofl_status refuse(keys *at, const char *name, const char *why)
{
    return ofl_fail(OFL_ERROR_FORMAT, "%s: key %s: %s", at->metadata->file.path, key(at, name), why);
}

typedef struct u32_field {
    const char *name;
    uint32_t *out;
} u32_field;

typedef struct double_field {
    const char *name;
    double *out;
} double_field;

static ofl_status get_fields(keys *at, const u32_field *whole, size_t whole_count, const double_field *real, size_t real_count)
{
    ofl_status status = OFL_OK;
    for (size_t i = 0; i < whole_count && status == OFL_OK; i++) status = get_u32(at, whole[i].name, whole[i].out);
    for (size_t i = 0; i < real_count && status == OFL_OK; i++) status = get_double(at, real[i].name, real[i].out);
    return status;
}

static bool has_prediction_tensors(const ofl_model *model, uint32_t block)
{
    char prefix[32];
    int length = snprintf(prefix, sizeof prefix, "blk.%u.nextn.", (unsigned)block);
    for (uint64_t i = 0; i < model->tensor_count; i++) {
        if (strncmp(model->tensors[i].name, prefix, (size_t)length) == 0) return true;
    }
    return false;
}

/* block_count may include the prediction blocks: then the last one holds their tensors. */
static ofl_status read_blocks(keys *at)
{
    ofl_model *model = at->model;
    uint32_t stored = 0, predicting = 0;
    ofl_status status = get_u32(at, "block_count", &stored);
    if (status == OFL_OK) status = get_u32(at, "nextn_predict_layers", &predicting);
    if (status != OFL_OK) return status;
    if (stored == 0) return refuse(at, "block_count", "missing or 0");
    if (stored > OFL_MODEL_MAX_BLOCKS) return refuse(at, "block_count", "more blocks than any model has");
    if (predicting > 0 && has_prediction_tensors(model, stored - 1)) {
        if (predicting >= stored) return refuse(at, "nextn_predict_layers", "not below block_count");
        model->prediction_blocks = predicting;
    }
    model->shape.block_count = stored - model->prediction_blocks;
    return OFL_OK;
}

static ofl_status read_rope_type(keys *at)
{
    static const struct {
        const char *name;
        ofl_rope_scaling scaling;
    } known[] = {{"none", OFL_ROPE_NONE}, {"linear", OFL_ROPE_LINEAR}, {"yarn", OFL_ROPE_YARN}, {"longrope", OFL_ROPE_LONGROPE}};
    const char *type = NULL;
    ofl_status status = ofl_gguf_get_text(at->metadata, key(at, "rope.scaling.type"), &type);
    if (status != OFL_OK || type == NULL) return status;
    for (size_t i = 0; i < OFL_COUNT_OF(known); i++) {
        if (strcmp(type, known[i].name) != 0) continue;
        at->model->shape.rope_scaling = known[i].scaling;
        return OFL_OK;
    }
    return ofl_model_add_note(at->model, "rope scaling \"%s\" is not known; it does not change any size", type);
}

static bool rope_is_interleaved(const char *architecture)
{
    static const char *const names[] = {"llama",    "llama4",    "deepseek", "deepseek2",  "command-r", "cohere2",
                                        "olmo",     "chatglm",   "granite",  "granitemoe", "minicpm",   "mistral3",
                                        "baichuan", "internlm2", "xverse",   "orion",      "arctic",    "ernie4_5"};
    for (size_t i = 0; i < OFL_COUNT_OF(names); i++) {
        if (strcmp(architecture, names[i]) == 0) return true;
    }
    return false;
}

static ofl_status read_rope(keys *at)
{
    ofl_model_shape *shape = &at->model->shape;
    shape->rope_pairing = rope_is_interleaved(at->model->architecture) ? OFL_ROPE_INTERLEAVED : OFL_ROPE_HALF;
    shape->rope_freq_base = 10000;
    shape->rope_dim = shape->head_dim_k;
    const u32_field whole[] = {{"rope.dimension_count", &shape->rope_dim},
                               {"rope.scaling.original_context_length", &shape->rope_original_context}};
    const double_field real[] = {{"rope.freq_base", &shape->rope_freq_base},
                                 {"rope.scaling.factor", &shape->rope_factor},
                                 {"rope.scaling.attn_factor", &shape->rope_attention_factor},
                                 {"rope.scaling.yarn_attn_factor", &shape->rope_attention_factor},
                                 {"rope.scaling.yarn_beta_fast", &shape->rope_beta_fast},
                                 {"rope.scaling.yarn_beta_slow", &shape->rope_beta_slow}};
    ofl_status status = get_fields(at, whole, OFL_COUNT_OF(whole), real, OFL_COUNT_OF(real));
    return status == OFL_OK ? read_rope_type(at) : status;
}

static ofl_status read_scales(keys *at)
{
    ofl_model_shape *shape = &at->model->shape;
    const double_field real[] = {{"attention.layer_norm_epsilon", &shape->norm_epsilon},
                                 {"attention.layer_norm_rms_epsilon", &shape->norm_epsilon},
                                 {"attention.scale", &shape->attention_scale},
                                 {"attn_logit_softcapping", &shape->attention_softcap},
                                 {"final_logit_softcapping", &shape->final_softcap},
                                 {"embedding_scale", &shape->embedding_scale},
                                 {"residual_scale", &shape->residual_scale},
                                 {"logit_scale", &shape->logit_scale}};
    ofl_status status = get_fields(at, NULL, 0, real, OFL_COUNT_OF(real));
    if (status != OFL_OK) return status;
    if (strncmp(at->model->architecture, "gemma", 5) == 0 && shape->embedding_scale == 0) shape->embedding_scale = sqrt(shape->hidden_size);
    if (strncmp(at->model->architecture, "granite", 7) == 0 && shape->logit_scale != 0)
        shape->logit_scale = 1 / shape->logit_scale; /* stored as a divisor */
    return OFL_OK;
}

static uint32_t largest(const uint32_t *values, uint32_t count)
{
    uint32_t most = 0;
    for (uint32_t i = 0; i < count; i++) most = values[i] > most ? values[i] : most;
    return most;
}

/* One number per stored block; the caller frees. */
static ofl_status get_layers(keys *at, const char *name, uint32_t **out, int *given_out)
{
    uint32_t stored = at->model->shape.block_count + at->model->prediction_blocks;
    uint32_t *values = ofl_alloc(stored, sizeof *values);
    if (values == NULL) return ofl_model_out_of_memory(at->model);
    ofl_status status = ofl_gguf_get_layers(at->metadata, key(at, name), stored, values, given_out);
    if (status == OFL_OK) *out = values;
    else ofl_free(values);
    return status;
}

static ofl_status read_widths(keys *at)
{
    ofl_model_shape *shape = &at->model->shape;
    uint32_t *ffn = NULL, expert_ffn = 0, context = 0;
    int given;
    ofl_status status = get_layers(at, "feed_forward_length", &ffn, &given);
    if (status != OFL_OK) return status;
    shape->ffn_size = largest(ffn, shape->block_count);
    ofl_free(ffn);
    const u32_field whole[] = {{"embedding_length", &shape->hidden_size},
                               {"context_length", &context},
                               {"vocab_size", &shape->vocab_size},
                               {"expert_count", &shape->expert_count},
                               {"expert_used_count", &shape->expert_used_count},
                               {"expert_feed_forward_length", &expert_ffn}};
    status = get_fields(at, whole, OFL_COUNT_OF(whole), NULL, 0);
    shape->trained_context_tokens = context;
    if (shape->ffn_size == 0) shape->ffn_size = expert_ffn;
    if (status == OFL_OK && shape->hidden_size == 0) return refuse(at, "embedding_length", "missing or 0");
    return status;
}

/* heads and kv_heads of every stored block */
typedef struct heads {
    uint32_t *query, *kv;
    bool kv_per_layer;
} heads;

static bool is_recurrent(const char *architecture)
{
    static const char *const names[] = {"mamba", "mamba2", "rwkv6", "rwkv6qwen2", "rwkv7", "arwkv7"};
    for (size_t i = 0; i < OFL_COUNT_OF(names); i++) {
        if (strcmp(architecture, names[i]) == 0) return true;
    }
    return false;
}

static ofl_status check_heads(keys *at, const heads *from)
{
    for (uint32_t i = 0; i < at->model->shape.block_count; i++) {
        if (from->kv[i] == 0 && from->kv_per_layer) continue; /* a layer without attention */
        if (from->query[i] == 0) return refuse(at, "attention.head_count", "0 heads");
        if (from->kv[i] == 0 || from->kv[i] > from->query[i] || from->query[i] % from->kv[i] != 0)
            return refuse(at, "attention.head_count_kv", "not a divisor of attention.head_count");
    }
    return OFL_OK;
}

static ofl_status read_heads(keys *at, heads *out)
{
    ofl_model_shape *shape = &at->model->shape;
    int given = 0, kv_given = 0;
    ofl_status status = get_layers(at, "attention.head_count", &out->query, &given);
    if (status == OFL_OK) status = get_layers(at, "attention.head_count_kv", &out->kv, &kv_given);
    if (status != OFL_OK) return status;
    out->kv_per_layer = kv_given == 2;
    if (is_recurrent(at->model->architecture)) { /* no attention at all */
        out->kv_per_layer = true;
        memset(out->kv, 0, (size_t)shape->block_count * sizeof *out->kv);
        return OFL_OK;
    }
    if (given == 0) return refuse(at, "attention.head_count", "missing");
    shape->head_count = largest(out->query, shape->block_count);
    if (kv_given == 0) {
        memcpy(out->kv, out->query, (size_t)shape->block_count * sizeof *out->kv);
        status = ofl_model_add_note(at->model, "attention.head_count_kv is not given: as many KV heads as heads (%u) are assumed",
                                    (unsigned)shape->head_count);
    }
    shape->head_count_kv = largest(out->kv, shape->block_count);
    return status == OFL_OK ? check_heads(at, out) : status;
}

static ofl_status read_head_dims(keys *at)
{
    ofl_model_shape *shape = &at->model->shape;
    shape->head_dim_k = shape->head_dim_v = shape->head_count > 0 ? shape->hidden_size / shape->head_count : 0;
    const u32_field whole[] = {{"attention.key_length", &shape->head_dim_k}, {"attention.value_length", &shape->head_dim_v}};
    ofl_status status = get_fields(at, whole, OFL_COUNT_OF(whole), NULL, 0);
    if (status == OFL_OK && shape->head_count > 0 && (shape->head_dim_k == 0 || shape->head_dim_v == 0))
        return refuse(at, "attention.key_length", "heads of 0 elements");
    return status;
}

ofl_status ofl_gguf_read_shape(ofl_model *model, const ofl_gguf_metadata *metadata)
{
    keys at = {.model = model, .metadata = metadata};
    heads from = {NULL, NULL, false};
    ofl_status status = read_blocks(&at);
    if (status == OFL_OK) status = read_widths(&at);
    if (status == OFL_OK) status = read_heads(&at, &from);
    if (status == OFL_OK) status = read_head_dims(&at);
    if (status == OFL_OK) status = read_rope(&at);
    if (status == OFL_OK) status = read_scales(&at);
    if (status == OFL_OK) status = ofl_gguf_read_kv(model, metadata, from.kv);
    ofl_free(from.query);
    ofl_free(from.kv);
    return status;
}
