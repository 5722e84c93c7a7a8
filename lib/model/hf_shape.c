/* Shape, rope and scales from config.json, under the old names and the new. */
#include "model/hf.h"

#include <math.h>
#include <string.h>

static ofl_status refuse(const ofl_hf_config *config, const char *key, const char *why)
{
    return ofl_fail(OFL_ERROR_FORMAT, "%s: \"%s\": %s", config->path, key, why);
}

typedef struct u32_field {
    const char *keys;
    uint32_t *out;
} u32_field;

typedef struct double_field {
    const char *keys;
    double *out;
} double_field;

static ofl_status get_fields(const ofl_hf_config *config, const u32_field *whole, size_t whole_count, const double_field *real,
                             size_t real_count)
{
    ofl_status status = OFL_OK;
    for (size_t i = 0; i < whole_count && status == OFL_OK; i++) status = ofl_hf_get_u32(config, whole[i].keys, whole[i].out);
    for (size_t i = 0; i < real_count && status == OFL_OK; i++) status = ofl_hf_get_double(config, real[i].keys, real[i].out);
    return status;
}

/* One number, or one per layer: the largest. */
static ofl_status read_ffn(ofl_model *model, const ofl_hf_config *config)
{
    const cJSON *item = ofl_hf_find(config, "intermediate_size|n_inner|ffn_dim|ffn_hidden_size|block_ff_dim"), *one;
    uint32_t width = 0, most = 0;
    if (cJSON_IsArray(item)) {
        cJSON_ArrayForEach (one, item) {
            if (!ofl_hf_number(one, &width)) return refuse(config, item->string, "whole numbers are needed");
            most = width > most ? width : most;
        }
    } else if (item != NULL && !ofl_hf_number(item, &most)) {
        return refuse(config, item->string, "a whole number is needed");
    }
    ofl_status status = ofl_hf_get_u32(config, "intermediate_size_mlp", &width);
    if (status == OFL_OK && width > most) most = width;
    if (status == OFL_OK && most == 0) status = ofl_hf_get_u32(config, "moe_intermediate_size", &most);
    model->shape.ffn_size = most;
    return status;
}

static ofl_status read_widths(ofl_model *model, const ofl_hf_config *config)
{
    ofl_model_shape *shape = &model->shape;
    uint32_t context = ofl_hf_is(config, "falcon") ? 2048 : 0; /* falcon's own default, often not written */
    const u32_field whole[] = {{"num_hidden_layers|n_layer|n_layers|num_layers", &shape->block_count},
                               {"hidden_size|n_embd|d_model", &shape->hidden_size},
                               {"vocab_size", &shape->vocab_size},
                               {"max_position_embeddings|n_positions|n_ctx|max_seq_len|max_sequence_length|seq_length", &context},
                               {"num_local_experts|num_experts|n_routed_experts|moe_num_experts", &shape->expert_count},
                               {"num_experts_per_tok|experts_per_token|top_k_experts|moe_topk|moe_k", &shape->expert_used_count}};
    ofl_status status = get_fields(config, whole, OFL_COUNT_OF(whole), NULL, 0);
    if (status != OFL_OK) return status;
    if (shape->block_count == 0) shape->block_count = (uint32_t)strlen(ofl_hf_get_text(config, "hybrid_override_pattern"));
    shape->trained_context_tokens = context;
    if (shape->block_count == 0 || shape->block_count > OFL_MODEL_MAX_BLOCKS)
        return refuse(config, "num_hidden_layers", "a number from 1 to 65536 is needed");
    if (shape->hidden_size == 0) return refuse(config, "hidden_size", "missing or 0");
    return read_ffn(model, config);
}

/* Multi-query models of before num_key_value_heads. */
static ofl_status read_old_kv_heads(const ofl_hf_config *config, uint32_t *kv_heads)
{
    bool multi = false, grouped = false;
    ofl_status status = ofl_hf_get_bool(config, "multi_query|multi_query_attention", &multi);
    if (status == OFL_OK) status = ofl_hf_get_bool(config, "new_decoder_architecture", &grouped);
    if (status != OFL_OK) return status;
    const char *keys = ofl_hf_is(config, "falcon") && !grouped
                           ? "num_key_value_heads"
                           : "num_key_value_heads|num_kv_heads|n_head_kv|multi_query_group_num|kv_n_heads";
    if (multi && !grouped) *kv_heads = 1;
    return ofl_hf_get_u32(config, keys, kv_heads);
}

static ofl_status read_heads(ofl_model *model, const ofl_hf_config *config)
{
    ofl_model_shape *shape = &model->shape;
    uint32_t kv_heads = UINT32_MAX;
    ofl_status status = ofl_hf_get_u32(config, "num_attention_heads|n_head|n_heads|num_heads", &shape->head_count);
    if (status == OFL_OK) status = read_old_kv_heads(config, &kv_heads);
    if (status != OFL_OK) return status;
    if (ofl_hf_is(config, "mamba") || ofl_hf_is(config, "falcon_mamba")) {
        shape->head_count = 0;
        return OFL_OK;
    }
    if (shape->head_count == 0) return refuse(config, "num_attention_heads", "missing or 0");
    if (kv_heads == UINT32_MAX) {
        kv_heads = shape->head_count;
        status =
            ofl_model_add_note(model, "num_key_value_heads is not given: as many KV heads as heads (%u) are assumed", (unsigned)kv_heads);
    }
    if (kv_heads == 0 || kv_heads > shape->head_count || shape->head_count % kv_heads != 0)
        return refuse(config, "num_key_value_heads", "not a divisor of num_attention_heads");
    shape->head_count_kv = kv_heads;
    return status;
}

static ofl_status read_head_dims(ofl_model *model, const ofl_hf_config *config)
{
    ofl_model_shape *shape = &model->shape;
    uint32_t latent = 0, nope = 0, rope = 0, value = 0;
    if (shape->head_count == 0) return OFL_OK;
    shape->head_dim_k = shape->hidden_size / shape->head_count;
    const u32_field whole[] = {{"head_dim|attention_head_dim|kv_channels", &shape->head_dim_k},
                               {"kv_lora_rank", &latent},
                               {"qk_nope_head_dim", &nope},
                               {"qk_rope_head_dim", &rope},
                               {"v_head_dim", &value}};
    ofl_status status = get_fields(config, whole, OFL_COUNT_OF(whole), NULL, 0);
    shape->head_dim_v = shape->head_dim_k;
    if (latent > 0) {
        shape->head_dim_v = shape->hidden_size / shape->head_count;
        shape->head_dim_k = nope <= UINT32_MAX - rope ? nope + rope : 0;
    }
    if (value > 0) shape->head_dim_v = value;
    if (status == OFL_OK && (shape->head_dim_k == 0 || shape->head_dim_v == 0)) return refuse(config, "head_dim", "heads of 0 elements");
    return status;
}

static double number_in(const cJSON *object, const char *key, double otherwise)
{
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(object, key);
    return cJSON_IsNumber(item) && isfinite(item->valuedouble) ? item->valuedouble : otherwise;
}

/* rope_scaling, or rope_parameters flat or per kind of layer: the full layers' one then. */
static const cJSON *rope_object(const ofl_hf_config *config)
{
    const cJSON *found = ofl_hf_find(config, "rope_parameters");
    if (!cJSON_IsObject(found)) found = ofl_hf_find(config, "rope_scaling");
    const cJSON *full = cJSON_IsObject(found) ? cJSON_GetObjectItemCaseSensitive(found, "full_attention") : NULL;
    if (cJSON_IsObject(full)) return full;
    return cJSON_IsObject(found) ? found : NULL;
}

static ofl_status read_rope_type(ofl_model *model, const cJSON *rope)
{
    static const struct {
        const char *name;
        ofl_rope_scaling scaling;
    } known[] = {{"default", OFL_ROPE_NONE}, {"mrope", OFL_ROPE_NONE},        {"linear", OFL_ROPE_LINEAR}, {"llama3", OFL_ROPE_LLAMA3},
                 {"yarn", OFL_ROPE_YARN},    {"longrope", OFL_ROPE_LONGROPE}, {"su", OFL_ROPE_LONGROPE},   {"dynamic", OFL_ROPE_DYNAMIC}};
    const cJSON *type = cJSON_GetObjectItemCaseSensitive(rope, "rope_type");
    if (!cJSON_IsString(type)) type = cJSON_GetObjectItemCaseSensitive(rope, "type");
    if (!cJSON_IsString(type)) return OFL_OK;
    for (size_t i = 0; i < OFL_COUNT_OF(known); i++) {
        if (strcmp(type->valuestring, known[i].name) != 0) continue;
        model->shape.rope_scaling = known[i].scaling;
        return OFL_OK;
    }
    return ofl_model_add_note(model, "rope scaling \"%s\" is not known; it does not change any size", type->valuestring);
}

static ofl_status read_rope(ofl_model *model, const ofl_hf_config *config)
{
    ofl_model_shape *shape = &model->shape;
    double part = 1, original = 0;
    shape->rope_pairing = OFL_ROPE_HALF;
    shape->rope_freq_base = 10000;
    const double_field real[] = {{"rope_theta|rotary_emb_base", &shape->rope_freq_base},
                                 {"partial_rotary_factor|rotary_pct|rope_pct", &part},
                                 {"original_max_position_embeddings", &original}};
    ofl_status status = get_fields(config, NULL, 0, real, OFL_COUNT_OF(real));
    if (status != OFL_OK) return status;
    const cJSON *rope = rope_object(config);
    shape->rope_freq_base = number_in(rope, "rope_theta", shape->rope_freq_base);
    part = number_in(rope, "partial_rotary_factor", part);
    original = number_in(rope, "original_max_position_embeddings", original);
    if (!(part > 0) || part > 1) return refuse(config, "partial_rotary_factor", "a number above 0 and up to 1 is needed");
    if (!(original >= 0) || original > UINT32_MAX)
        return refuse(config, "original_max_position_embeddings", "a whole number below 2^32 is needed");
    shape->rope_dim = (uint32_t)(shape->head_dim_k * part);
    status = ofl_hf_get_u32(config, "qk_rope_head_dim", &shape->rope_dim);
    shape->rope_original_context = (uint32_t)original;
    shape->rope_factor = number_in(rope, "factor", 0);
    shape->rope_low_freq_factor = number_in(rope, "low_freq_factor", 0);
    shape->rope_high_freq_factor = number_in(rope, "high_freq_factor", 0);
    shape->rope_attention_factor = number_in(rope, "attention_factor", 0);
    shape->rope_beta_fast = number_in(rope, "beta_fast", 0);
    shape->rope_beta_slow = number_in(rope, "beta_slow", 0);
    return status == OFL_OK && rope != NULL ? read_rope_type(model, rope) : status;
}

static ofl_status read_scales(ofl_model *model, const ofl_hf_config *config)
{
    ofl_model_shape *shape = &model->shape;
    double query_scalar = 0, divisor = 0;
    const double_field real[] = {
        {"rms_norm_eps|layer_norm_epsilon|layer_norm_eps|norm_epsilon|layernorm_epsilon|norm_eps", &shape->norm_epsilon},
        {"query_pre_attn_scalar", &query_scalar},
        {"attention_multiplier", &shape->attention_scale},
        {"attn_logit_softcapping", &shape->attention_softcap},
        {"final_logit_softcapping", &shape->final_softcap},
        {"embedding_multiplier|scale_emb|embedding_multiplier_scale", &shape->embedding_scale},
        {"residual_multiplier", &shape->residual_scale},
        {"logits_scaling", &divisor},
        {"logit_scale|output_multiplier_scale|lm_head_multiplier", &shape->logit_scale}};
    ofl_status status = get_fields(config, NULL, 0, real, OFL_COUNT_OF(real));
    if (query_scalar > 0) shape->attention_scale = 1 / sqrt(query_scalar);
    if (divisor > 0) shape->logit_scale = 1 / divisor;
    if (ofl_hf_is(config, "gemma") && shape->embedding_scale == 0) shape->embedding_scale = sqrt(shape->hidden_size);
    return status;
}

ofl_status ofl_hf_read_shape(ofl_model *model, const ofl_hf_config *config)
{
    ofl_status status = read_widths(model, config);
    if (status == OFL_OK) status = read_heads(model, config);
    if (status == OFL_OK) status = read_head_dims(model, config);
    if (status == OFL_OK) status = read_rope(model, config);
    if (status == OFL_OK) status = read_scales(model, config);
    return status;
}
