/* GGUF tensor names → role, class, block. What is not recognised can still be planned. */
#include "model/gguf.h"
#include "model/place.h"

#include <string.h>

static const ofl_place_rule block_rules[] = {
    {"attn_norm.weight", OFL_ROLE_ATTN_NORM, OFL_CLASS_DENSE},
    {"attn_qkv.weight", OFL_ROLE_ATTN_QKV, OFL_CLASS_DENSE},
    {"attn_q.weight", OFL_ROLE_ATTN_Q, OFL_CLASS_DENSE},
    {"attn_q.bias", OFL_ROLE_ATTN_Q_BIAS, OFL_CLASS_DENSE},
    {"attn_k.weight", OFL_ROLE_ATTN_K, OFL_CLASS_DENSE},
    {"attn_k.bias", OFL_ROLE_ATTN_K_BIAS, OFL_CLASS_DENSE},
    {"attn_v.weight", OFL_ROLE_ATTN_V, OFL_CLASS_DENSE},
    {"attn_v.bias", OFL_ROLE_ATTN_V_BIAS, OFL_CLASS_DENSE},
    {"attn_q_norm.weight", OFL_ROLE_ATTN_Q_NORM, OFL_CLASS_DENSE},
    {"attn_k_norm.weight", OFL_ROLE_ATTN_K_NORM, OFL_CLASS_DENSE},
    {"attn_output.weight", OFL_ROLE_ATTN_OUTPUT, OFL_CLASS_DENSE},
    {"attn_output.bias", OFL_ROLE_ATTN_OUTPUT_BIAS, OFL_CLASS_DENSE},
    {"post_attention_norm.weight", OFL_ROLE_ATTN_POST_NORM, OFL_CLASS_DENSE},
    {"ffn_norm.weight", OFL_ROLE_FFN_NORM, OFL_CLASS_DENSE},
    {"ffn_gate_inp.weight", OFL_ROLE_FFN_ROUTER, OFL_CLASS_DENSE},
    {"ffn_gate.weight", OFL_ROLE_FFN_GATE, OFL_CLASS_DENSE},
    {"ffn_up.weight", OFL_ROLE_FFN_UP, OFL_CLASS_DENSE},
    {"ffn_down.weight", OFL_ROLE_FFN_DOWN, OFL_CLASS_DENSE},
    {"ffn_gate_exps.weight", OFL_ROLE_FFN_GATE, OFL_CLASS_EXPERT},
    {"ffn_up_exps.weight", OFL_ROLE_FFN_UP, OFL_CLASS_EXPERT},
    {"ffn_down_exps.weight", OFL_ROLE_FFN_DOWN, OFL_CLASS_EXPERT},
    {"ffn_gate_exps.*", OFL_ROLE_FFN_OTHER, OFL_CLASS_EXPERT},
    {"ffn_up_exps.*", OFL_ROLE_FFN_OTHER, OFL_CLASS_EXPERT},
    {"ffn_down_exps.*", OFL_ROLE_FFN_OTHER, OFL_CLASS_EXPERT},
    {"ffn_gate_up_exps.*", OFL_ROLE_FFN_OTHER, OFL_CLASS_EXPERT},
    {"ffn_gate_chexps.*", OFL_ROLE_FFN_OTHER, OFL_CLASS_EXPERT},
    {"ffn_up_chexps.*", OFL_ROLE_FFN_OTHER, OFL_CLASS_EXPERT},
    {"ffn_down_chexps.*", OFL_ROLE_FFN_OTHER, OFL_CLASS_EXPERT},
    {"post_ffw_norm.weight", OFL_ROLE_FFN_POST_NORM, OFL_CLASS_DENSE},
    {"nextn.*", OFL_ROLE_OTHER, OFL_CLASS_UNUSED},
    {"attn_*", OFL_ROLE_ATTN_OTHER, OFL_CLASS_DENSE},
    {"ssm_*", OFL_ROLE_ATTN_OTHER, OFL_CLASS_DENSE},
    {"shortconv.*", OFL_ROLE_ATTN_OTHER, OFL_CLASS_DENSE},
    {"ffn_*", OFL_ROLE_FFN_OTHER, OFL_CLASS_DENSE},
    {"exp_probs_b*", OFL_ROLE_FFN_OTHER, OFL_CLASS_DENSE},
};

static const ofl_place_rule input_rules[] = {
    {"token_embd.weight", OFL_ROLE_EMBEDDING, OFL_CLASS_LOOKUP},
    {"rope_freqs.weight", OFL_ROLE_ROPE_FREQS, OFL_CLASS_DENSE},
    {"position_embd.weight", OFL_ROLE_OTHER, OFL_CLASS_LOOKUP},
    {"token_types.weight", OFL_ROLE_OTHER, OFL_CLASS_LOOKUP},
    {"per_layer_token_embd.weight", OFL_ROLE_OTHER, OFL_CLASS_LOOKUP},
    {"v.*", OFL_ROLE_OTHER, OFL_CLASS_UNUSED},
    {"mm.*", OFL_ROLE_OTHER, OFL_CLASS_UNUSED},
};

static const ofl_place_rule output_rules[] = {
    {"output_norm.weight", OFL_ROLE_OUTPUT_NORM, OFL_CLASS_DENSE},
    {"output.weight", OFL_ROLE_OUTPUT, OFL_CLASS_DENSE},
    {"output.bias", OFL_ROLE_OUTPUT_BIAS, OFL_CLASS_DENSE},
    {"output*", OFL_ROLE_OTHER, OFL_CLASS_DENSE},
};

/* "ffn_gate.3.weight": one expert of an old file. */
static bool place_single_expert(const char *stem, ofl_tensor *tensor)
{
    static const ofl_place_rule parts[] = {{"ffn_gate.*", OFL_ROLE_FFN_GATE, OFL_CLASS_EXPERT},
                                           {"ffn_up.*", OFL_ROLE_FFN_UP, OFL_CLASS_EXPERT},
                                           {"ffn_down.*", OFL_ROLE_FFN_DOWN, OFL_CLASS_EXPERT}};
    const ofl_place_rule *rule = ofl_place_find(parts, OFL_COUNT_OF(parts), stem);
    uint32_t expert;
    if (rule == NULL || ofl_place_number(strchr(stem, '.') + 1, &expert) == NULL) return false;
    tensor->role = (uint8_t)rule->role;
    tensor->tensor_class = OFL_CLASS_EXPERT;
    return true;
}

static void apply(ofl_tensor *tensor, const ofl_place_rule *rule, int32_t block)
{
    tensor->block = block;
    if (rule == NULL) return;
    tensor->role = (uint8_t)rule->role;
    tensor->tensor_class = (uint8_t)rule->tensor_class;
}

static ofl_status place_in_block(const ofl_model *model, ofl_tensor *tensor, uint32_t block, const char *stem)
{
    if (block >= model->shape.block_count + model->prediction_blocks)
        return ofl_fail(OFL_ERROR_FORMAT, "model %s: tensor %s lies beyond the %u blocks that the metadata announces", model->path,
                        tensor->name, (unsigned)(model->shape.block_count + model->prediction_blocks));
    const ofl_place_rule *rule = place_single_expert(stem, tensor) ? NULL : ofl_place_find(block_rules, OFL_COUNT_OF(block_rules), stem);
    apply(tensor, rule, (int32_t)block);
    if (tensor->role == OFL_ROLE_ATTN_POST_NORM && strcmp(model->architecture, "gpt-oss") == 0) tensor->role = OFL_ROLE_FFN_NORM;
    if (block >= model->shape.block_count) tensor->tensor_class = OFL_CLASS_UNUSED;
    tensor->unused = OFL_UNUSED_PREDICTION;
    return OFL_OK;
}

static ofl_status place(const ofl_model *model, ofl_tensor *tensor)
{
    uint32_t block;
    const char *stem = strncmp(tensor->name, "blk.", 4) == 0 ? ofl_place_number(tensor->name + 4, &block) : NULL;
    if (stem != NULL) return place_in_block(model, tensor, block, stem);
    const ofl_place_rule *output = ofl_place_find(output_rules, OFL_COUNT_OF(output_rules), tensor->name);
    if (output != NULL) apply(tensor, output, (int32_t)model->shape.block_count);
    else apply(tensor, ofl_place_find(input_rules, OFL_COUNT_OF(input_rules), tensor->name), OFL_BLOCK_INPUT);
    tensor->unused = strncmp(tensor->name, "v.", 2) == 0 ? OFL_UNUSED_VISION : OFL_UNUSED_IMAGES;
    return OFL_OK;
}

ofl_status ofl_gguf_place_tensors(ofl_model *model)
{
    ofl_status status = OFL_OK;
    for (uint64_t i = 0; i < model->tensor_count && status == OFL_OK; i++) status = place(model, &model->tensors[i]);
    return status;
}
