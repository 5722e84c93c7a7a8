/* Tensor names of Hugging Face models → role, class, block. What is not recognised can still be planned. */
#include "model/hf.h"
#include "model/place.h"

#include <string.h>

static const ofl_place_rule block_rules[] = {
    {"input_layernorm.weight", OFL_ROLE_ATTN_NORM, OFL_CLASS_DENSE},
    {"self_attn.qkv_proj.weight", OFL_ROLE_ATTN_QKV, OFL_CLASS_DENSE},
    {"self_attn.q_proj.weight", OFL_ROLE_ATTN_Q, OFL_CLASS_DENSE},
    {"self_attn.q_proj.bias", OFL_ROLE_ATTN_Q_BIAS, OFL_CLASS_DENSE},
    {"self_attn.k_proj.weight", OFL_ROLE_ATTN_K, OFL_CLASS_DENSE},
    {"self_attn.k_proj.bias", OFL_ROLE_ATTN_K_BIAS, OFL_CLASS_DENSE},
    {"self_attn.v_proj.weight", OFL_ROLE_ATTN_V, OFL_CLASS_DENSE},
    {"self_attn.v_proj.bias", OFL_ROLE_ATTN_V_BIAS, OFL_CLASS_DENSE},
    {"self_attn.q_norm.weight", OFL_ROLE_ATTN_Q_NORM, OFL_CLASS_DENSE},
    {"self_attn.k_norm.weight", OFL_ROLE_ATTN_K_NORM, OFL_CLASS_DENSE},
    {"self_attn.o_proj.weight", OFL_ROLE_ATTN_OUTPUT, OFL_CLASS_DENSE},
    {"self_attn.o_proj.bias", OFL_ROLE_ATTN_OUTPUT_BIAS, OFL_CLASS_DENSE},
    {"post_attention_layernorm.weight", OFL_ROLE_FFN_NORM, OFL_CLASS_DENSE},
    {"pre_feedforward_layernorm.weight", OFL_ROLE_FFN_NORM, OFL_CLASS_DENSE},
    {"post_feedforward_layernorm.weight", OFL_ROLE_FFN_POST_NORM, OFL_CLASS_DENSE},
    {"mlp.gate_proj.weight", OFL_ROLE_FFN_GATE, OFL_CLASS_DENSE},
    {"mlp.up_proj.weight", OFL_ROLE_FFN_UP, OFL_CLASS_DENSE},
    {"mlp.down_proj.weight", OFL_ROLE_FFN_DOWN, OFL_CLASS_DENSE},
    {"mlp.gate.weight", OFL_ROLE_FFN_ROUTER, OFL_CLASS_DENSE},
    {"mlp.router.weight", OFL_ROLE_FFN_ROUTER, OFL_CLASS_DENSE},
    {"block_sparse_moe.gate.weight", OFL_ROLE_FFN_ROUTER, OFL_CLASS_DENSE},
    {"feed_forward.router.weight", OFL_ROLE_FFN_ROUTER, OFL_CLASS_DENSE},
    {"self_attn.rotary_emb.inv_freq", OFL_ROLE_OTHER, OFL_CLASS_UNUSED}, /* buffers that some writers leave in */
    {"attention.rotary_emb.inv_freq", OFL_ROLE_OTHER, OFL_CLASS_UNUSED},
    {"attn.bias", OFL_ROLE_OTHER, OFL_CLASS_UNUSED}, /* a causal mask; real biases are attn.c_attn.bias */
    {"attn.masked_bias", OFL_ROLE_OTHER, OFL_CLASS_UNUSED},
    {"attention.bias", OFL_ROLE_OTHER, OFL_CLASS_UNUSED},
    {"attention.masked_bias", OFL_ROLE_OTHER, OFL_CLASS_UNUSED},
    {"self_attn*", OFL_ROLE_ATTN_OTHER, OFL_CLASS_DENSE},
    {"self_attention*", OFL_ROLE_ATTN_OTHER, OFL_CLASS_DENSE},
    {"attn*", OFL_ROLE_ATTN_OTHER, OFL_CLASS_DENSE},
    {"attention*", OFL_ROLE_ATTN_OTHER, OFL_CLASS_DENSE},
    {"linear_attn*", OFL_ROLE_ATTN_OTHER, OFL_CLASS_DENSE},
    {"mamba*", OFL_ROLE_ATTN_OTHER, OFL_CLASS_DENSE},
    {"mixer*", OFL_ROLE_ATTN_OTHER, OFL_CLASS_DENSE},
    {"conv*", OFL_ROLE_ATTN_OTHER, OFL_CLASS_DENSE},
    {"mlp*", OFL_ROLE_FFN_OTHER, OFL_CLASS_DENSE},
    {"ffn*", OFL_ROLE_FFN_OTHER, OFL_CLASS_DENSE},
    {"fc*", OFL_ROLE_FFN_OTHER, OFL_CLASS_DENSE},
    {"feed_forward*", OFL_ROLE_FFN_OTHER, OFL_CLASS_DENSE},
    {"block_sparse_moe*", OFL_ROLE_FFN_OTHER, OFL_CLASS_DENSE},
    {"moe*", OFL_ROLE_FFN_OTHER, OFL_CLASS_DENSE},
    {"router*", OFL_ROLE_FFN_OTHER, OFL_CLASS_DENSE},
};

static const ofl_place_rule input_rules[] = {
    {"embed_tokens.weight", OFL_ROLE_EMBEDDING, OFL_CLASS_LOOKUP},
    {"wte.weight", OFL_ROLE_EMBEDDING, OFL_CLASS_LOOKUP},
    {"word_embeddings.weight", OFL_ROLE_EMBEDDING, OFL_CLASS_LOOKUP},
    {"embeddings.weight", OFL_ROLE_EMBEDDING, OFL_CLASS_LOOKUP},
    {"embed_in.weight", OFL_ROLE_EMBEDDING, OFL_CLASS_LOOKUP},
    {"embedding.word_embeddings.weight", OFL_ROLE_EMBEDDING, OFL_CLASS_LOOKUP},
    {"wpe.weight", OFL_ROLE_OTHER, OFL_CLASS_LOOKUP},
    {"embed_positions.weight", OFL_ROLE_OTHER, OFL_CLASS_LOOKUP},
    {"embed_tokens_per_layer.weight", OFL_ROLE_OTHER, OFL_CLASS_LOOKUP},
};

static const ofl_place_rule output_rules[] = {
    {"norm.weight", OFL_ROLE_OUTPUT_NORM, OFL_CLASS_DENSE},
    {"ln_f.weight", OFL_ROLE_OUTPUT_NORM, OFL_CLASS_DENSE},
    {"norm_f.weight", OFL_ROLE_OUTPUT_NORM, OFL_CLASS_DENSE},
    {"final_layernorm.weight", OFL_ROLE_OUTPUT_NORM, OFL_CLASS_DENSE},
    {"final_layer_norm.weight", OFL_ROLE_OUTPUT_NORM, OFL_CLASS_DENSE},
    {"embedding_norm.weight", OFL_ROLE_OUTPUT_NORM, OFL_CLASS_DENSE},
    {"lm_head.weight", OFL_ROLE_OUTPUT, OFL_CLASS_DENSE},
    {"embed_out.weight", OFL_ROLE_OUTPUT, OFL_CLASS_DENSE},
    {"output_layer.weight", OFL_ROLE_OUTPUT, OFL_CLASS_DENSE},
    {"lm_head.bias", OFL_ROLE_OUTPUT_BIAS, OFL_CLASS_DENSE},
    {"norm.*", OFL_ROLE_OTHER, OFL_CLASS_DENSE},
    {"ln_f.*", OFL_ROLE_OTHER, OFL_CLASS_DENSE},
    {"norm_f.*", OFL_ROLE_OTHER, OFL_CLASS_DENSE},
    {"final_layernorm.*", OFL_ROLE_OTHER, OFL_CLASS_DENSE},
    {"final_layer_norm.*", OFL_ROLE_OTHER, OFL_CLASS_DENSE},
    {"lm_head.*", OFL_ROLE_OTHER, OFL_CLASS_DENSE},
};

/* Parts of a name that mean another modality or a prediction block. */
static const struct {
    const char *part;
    ofl_unused why;
} unused_parts[] = {{"visual", OFL_UNUSED_VISION},
                    {"vision_model", OFL_UNUSED_VISION},
                    {"vision_tower", OFL_UNUSED_VISION},
                    {"vision_encoder", OFL_UNUSED_VISION},
                    {"vision_adapter", OFL_UNUSED_VISION},
                    {"vision_language_adapter", OFL_UNUSED_VISION},
                    {"vit", OFL_UNUSED_VISION},
                    {"multi_modal_projector", OFL_UNUSED_IMAGES},
                    {"mm_projector", OFL_UNUSED_IMAGES},
                    {"embed_vision", OFL_UNUSED_VISION},
                    {"embed_audio", OFL_UNUSED_AUDIO},
                    {"audio_tower", OFL_UNUSED_AUDIO},
                    {"audio_model", OFL_UNUSED_AUDIO},
                    {"talker", OFL_UNUSED_AUDIO},
                    {"token2wav", OFL_UNUSED_AUDIO},
                    {"code2wav", OFL_UNUSED_AUDIO},
                    {"image_newline", OFL_UNUSED_VISION},
                    {"patch_merger", OFL_UNUSED_VISION},
                    {"mtp", OFL_UNUSED_PREDICTION}};

static bool has_part(const char *name, const char *part)
{
    size_t length = strlen(part);
    for (const char *at = name; at != NULL; at = strchr(at, '.')) {
        if (*at == '.') at++;
        if (*at == *part && strncmp(at, part, length) == 0 && (at[length] == '.' || at[length] == '\0')) return true;
    }
    return false;
}

/* One walk over the name, since every tensor of a hundred thousand comes through here. */
static bool is_unused(const char *name, uint8_t *why_out)
{
    for (;;) {
        size_t length = strcspn(name, ".");
        for (size_t i = 0; i < OFL_COUNT_OF(unused_parts); i++) {
            const char *part = unused_parts[i].part;
            if (part[0] != name[0] || strncmp(part, name, length) != 0 || part[length] != '\0') continue;
            *why_out = (uint8_t)unused_parts[i].why;
            return true;
        }
        if (name[length] == '\0') return false;
        name += length + 1;
    }
}

/* The first of these that the text begins with, passed. */
static const char *pass_any(const char *text, const char *const *words, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        size_t length = strlen(words[i]);
        if (strncmp(text, words[i], length) == 0) return text + length;
    }
    return NULL;
}

static const char *pass_prefixes(const char *name)
{
    static const char *const prefixes[] = {"model.",    "language_model.", "transformer.", "backbone.", "decoder.",
                                           "gpt_neox.", "thinker.",        "text_model.",  "llm."};
    for (const char *rest = name; rest != NULL; rest = pass_any(rest, prefixes, OFL_COUNT_OF(prefixes))) name = rest;
    return name;
}

/* What follows "layers.N." */
static const char *pass_block(const char *name, uint32_t *block_out)
{
    static const char *const words[] = {"layers.", "h.", "blocks."};
    const char *number = pass_any(name, words, OFL_COUNT_OF(words));
    return number != NULL ? ofl_place_number(number, block_out) : NULL;
}

/* "…experts.12.gate_proj.weight", "…experts.gate_up_proj", "…experts.3.w1.weight" */
static void place_expert(ofl_tensor *tensor, const char *stem)
{
    static const struct {
        const char *part;
        ofl_tensor_role role;
    } known[] = {{"gate_proj", OFL_ROLE_FFN_GATE}, {"w1", OFL_ROLE_FFN_GATE}, {"linear", OFL_ROLE_FFN_GATE},
                 {"up_proj", OFL_ROLE_FFN_UP},     {"w3", OFL_ROLE_FFN_UP},   {"linear_v", OFL_ROLE_FFN_UP},
                 {"down_proj", OFL_ROLE_FFN_DOWN}, {"w2", OFL_ROLE_FFN_DOWN}, {"linear_1", OFL_ROLE_FFN_DOWN}};
    const char *ending = strrchr(stem, '.');
    tensor->tensor_class = OFL_CLASS_EXPERT;
    tensor->role = OFL_ROLE_FFN_OTHER;
    bool weight = strcmp(ending, ".weight") == 0;
    for (size_t i = 0; i < OFL_COUNT_OF(known); i++) {
        bool named = weight ? has_part(stem, known[i].part) : strcmp(ending + 1, known[i].part) == 0;
        if (named) tensor->role = (uint8_t)known[i].role;
    }
}

static void apply(ofl_tensor *tensor, const ofl_place_rule *rule, int32_t block)
{
    tensor->block = block;
    if (rule == NULL) return;
    tensor->role = (uint8_t)rule->role;
    tensor->tensor_class = (uint8_t)rule->tensor_class;
}

/* Families that put a norm after attention under the name that others use for the one before the feed-forward. */
static bool has_post_norms(const ofl_hf_config *config)
{
    return ofl_hf_is(config, "gemma") || ofl_hf_is(config, "olmo2") || ofl_hf_is(config, "olmo3");
}

static ofl_status place_in_block(ofl_model *model, const ofl_hf_config *config, ofl_tensor *tensor, uint32_t block, const char *stem)
{
    if (block >= model->shape.block_count + ofl_max_u64(model->prediction_blocks, 1)) /* one may be there unannounced */
        return ofl_fail(OFL_ERROR_FORMAT, "model %s: tensor %s lies beyond the %u layers that %s announces", model->path, tensor->name,
                        (unsigned)model->shape.block_count, config->path);
    apply(tensor, ofl_place_find(block_rules, OFL_COUNT_OF(block_rules), stem), (int32_t)block);
    if (has_part(stem, "experts")) place_expert(tensor, stem);
    if (tensor->role == OFL_ROLE_FFN_NORM && strncmp(stem, "post", 4) == 0 && has_post_norms(config))
        tensor->role = OFL_ROLE_ATTN_POST_NORM;
    if (block >= model->shape.block_count) tensor->tensor_class = OFL_CLASS_UNUSED;
    tensor->unused = block >= model->shape.block_count ? OFL_UNUSED_PREDICTION : OFL_UNUSED_BUFFER;
    return OFL_OK;
}

static ofl_status place(ofl_model *model, const ofl_hf_config *config, ofl_tensor *tensor)
{
    uint32_t block;
    if (is_unused(tensor->name, &tensor->unused)) {
        tensor->tensor_class = OFL_CLASS_UNUSED;
        return OFL_OK;
    }
    const char *name = pass_prefixes(tensor->name), *stem = pass_block(name, &block);
    if (stem != NULL) return place_in_block(model, config, tensor, block, stem);
    const ofl_place_rule *output = ofl_place_find(output_rules, OFL_COUNT_OF(output_rules), name);
    if (output != NULL) apply(tensor, output, (int32_t)model->shape.block_count);
    else apply(tensor, ofl_place_find(input_rules, OFL_COUNT_OF(input_rules), name), OFL_BLOCK_INPUT);
    return OFL_OK;
}

ofl_status ofl_hf_place_tensors(ofl_model *model, const ofl_hf_config *config)
{
    ofl_status status = ofl_hf_get_u32(config, "num_nextn_predict_layers|mtp_num_hidden_layers", &model->prediction_blocks);
    if (model->prediction_blocks > OFL_MODEL_MAX_BLOCKS)
        return ofl_fail(OFL_ERROR_FORMAT, "%s: num_nextn_predict_layers is too large", config->path);
    for (uint64_t i = 0; i < model->tensor_count && status == OFL_OK; i++) status = place(model, config, &model->tensors[i]);
    return status;
}
