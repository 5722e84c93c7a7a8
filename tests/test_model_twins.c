/* GGUF twins of published models: the keys that a converter writes for their config.json, and the tensors under GGUF's names, must give the
 * same KV cache, layer by layer, as the folder gives; and the same bytes and parameters where every tensor has a name that we translate. */
#include "support/gguf_writer.h"
#include "support/published.h"

#include <inttypes.h>
#include <stdbool.h>
#include <unistd.h>

#include "base/base.h"

typedef struct twin {
    gguf_writer writer;
    const char *architecture;
    const cJSON *config; /* of the text model */
    uint64_t data_bytes;
    uint32_t blocks;
    bool whole; /* every tensor was translated */
} twin;

static const char *key(const twin *t, const char *name)
{
    static char text[128];
    (void)snprintf(text, sizeof text, "%s.%s", t->architecture, name);
    return text;
}

static void set(twin *t, const char *name, uint64_t value) { gguf_key_u32(&t->writer, key(t, name), (uint32_t)value); }

/* A key that the config has under another name; nothing where it has not. */
static void carry(twin *t, const char *name, const char *from)
{
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(t->config, from);
    if (cJSON_IsNumber(item)) set(t, name, (uint64_t)item->valuedouble);
}

static uint64_t given(const twin *t, const char *name) { return published_number(t->config, name); }

/* ---- what families have beyond the common keys */
static void nothing(twin *t) { (void)t; }
static void window(twin *t) { carry(t, "attention.sliding_window", "sliding_window"); }
static void chunks(twin *t) { carry(t, "attention.chunk_size", "attention_chunk_size"); }

static void latent(twin *t)
{
    set(t, "attention.kv_lora_rank", given(t, "kv_lora_rank"));
    set(t, "attention.key_length", given(t, "kv_lora_rank") + given(t, "qk_rope_head_dim"));
    set(t, "attention.value_length", given(t, "kv_lora_rank"));
    set(t, "attention.key_length_mla", given(t, "qk_nope_head_dim") + given(t, "qk_rope_head_dim"));
    set(t, "attention.value_length_mla", given(t, "v_head_dim"));
    set(t, "rope.dimension_count", given(t, "qk_rope_head_dim"));
}

static void prediction(twin *t)
{
    char name[64];
    set(t, "nextn_predict_layers", 1);
    (void)snprintf(name, sizeof name, "blk.%u.nextn.eh_proj.weight", (unsigned)t->blocks);
    gguf_tensor_at(&t->writer, name, 0, 1, (const uint64_t[]){8}, t->data_bytes);
    t->data_bytes += 32;
}

/* true at each layer whose type in layer_types is this one */
static void layer_flags(const twin *t, const char *type, unsigned char *flags)
{
    const cJSON *item;
    uint32_t i = 0;
    cJSON_ArrayForEach (item, cJSON_GetObjectItemCaseSensitive(t->config, "layer_types")) {
        assert_true(i < t->blocks);
        flags[i++] = strcmp(item->valuestring, type) == 0;
    }
    assert_int_equal(i, t->blocks);
}

static void window_pattern(twin *t)
{
    unsigned char flags[128];
    layer_flags(t, "sliding_attention", flags);
    window(t);
    gguf_key_bool_array(&t->writer, key(t, "attention.sliding_window_pattern"), flags, t->blocks);
}

static void shared_layers(twin *t)
{
    window_pattern(t);
    carry(t, "attention.shared_kv_layers", "num_kv_shared_layers");
}

/* Full layers have heads of their own. */
static void two_kinds_of_heads(twin *t)
{
    unsigned char slides[128];
    uint32_t heads[128];
    layer_flags(t, "sliding_attention", slides);
    for (uint32_t i = 0; i < t->blocks; i++)
        heads[i] = (uint32_t)given(t, slides[i] ? "num_key_value_heads" : "num_global_key_value_heads");
    window_pattern(t);
    gguf_key_u32_array(&t->writer, key(t, "attention.head_count_kv"), heads, t->blocks);
    set(t, "attention.key_length", given(t, "global_head_dim"));
    set(t, "attention.value_length", given(t, "global_head_dim"));
    set(t, "attention.key_length_swa", given(t, "head_dim"));
    set(t, "attention.value_length_swa", given(t, "head_dim"));
}

static void short_convolutions(twin *t)
{
    uint32_t heads[128] = {0};
    const cJSON *index;
    cJSON_ArrayForEach(index, cJSON_GetObjectItemCaseSensitive(t->config, "full_attn_idxs")) heads[(unsigned)index->valuedouble] =
        (uint32_t)given(t, "num_key_value_heads");
    gguf_key_u32_array(&t->writer, key(t, "attention.head_count_kv"), heads, t->blocks);
    carry(t, "shortconv.l_cache", "conv_L_cache");
}

static void state_space(twin *t, uint64_t inner, uint64_t state, uint64_t groups, uint64_t kernel)
{
    set(t, "ssm.inner_size", inner);
    set(t, "ssm.state_size", state);
    set(t, "ssm.group_count", groups);
    set(t, "ssm.conv_kernel", kernel);
}

static void falcon_h1(twin *t)
{
    state_space(t, given(t, "mamba_d_ssm"), given(t, "mamba_d_state"), given(t, "mamba_n_groups"), given(t, "mamba_d_conv"));
}

static void nemotron_h(twin *t)
{
    const char *pattern = cJSON_GetObjectItemCaseSensitive(t->config, "hybrid_override_pattern")->valuestring;
    uint32_t heads[128] = {0}, widths[128] = {0};
    for (uint32_t i = 0; i < t->blocks; i++) {
        if (pattern[i] == '*') heads[i] = (uint32_t)given(t, "num_key_value_heads");
        if (pattern[i] == '-') widths[i] = (uint32_t)given(t, "intermediate_size");
    }
    gguf_key_u32_array(&t->writer, key(t, "attention.head_count_kv"), heads, t->blocks);
    gguf_key_u32_array(&t->writer, key(t, "feed_forward_length"), widths, t->blocks);
    state_space(t, given(t, "mamba_num_heads") * given(t, "mamba_head_dim"), given(t, "ssm_state_size"), given(t, "n_groups"),
                given(t, "conv_kernel"));
}

static void jamba(twin *t)
{
    uint32_t heads[128] = {0};
    for (uint32_t i = 0; i < t->blocks; i++) {
        if (i % given(t, "attn_layer_period") == given(t, "attn_layer_offset")) heads[i] = (uint32_t)given(t, "num_key_value_heads");
    }
    gguf_key_u32_array(&t->writer, key(t, "attention.head_count_kv"), heads, t->blocks);
    state_space(t, given(t, "mamba_expand") * given(t, "hidden_size"), given(t, "mamba_d_state"), 0, given(t, "mamba_d_conv"));
}

static const struct {
    const char *name, *architecture;
    void (*more)(twin *t);
    bool own_heads, own_dims; /* `more` writes head_count_kv, key_length */
    bool whole;
} twins[] = {
    {"meta-llama/Llama-3.1-8B", "llama", nothing, false, false, true},
    {"meta-llama/Llama-3.2-1B", "llama", nothing, false, false, true},
    {"Qwen/Qwen2.5-7B-Instruct", "qwen2", nothing, false, false, true},
    {"Qwen/Qwen3-8B", "qwen3", nothing, false, false, true},
    {"google/gemma-2-9b", "gemma2", window, false, false, true},
    {"google/gemma-3-1b-it", "gemma3", window, false, false, true},
    {"mistralai/Mixtral-8x7B-v0.1", "llama", nothing, false, false, false},
    {"Qwen/Qwen3-30B-A3B", "qwen3moe", nothing, false, false, false},
    {"openai/gpt-oss-120b", "gpt-oss", window, false, false, false},
    {"microsoft/Phi-3-mini-4k-instruct", "phi3", window, false, false, false},
    {"deepseek-ai/DeepSeek-V2-Lite", "deepseek2", latent, false, true, false},
    {"deepseek-ai/DeepSeek-V3", "deepseek2", latent, false, true, false},
    {"zai-org/GLM-4.5-Air", "glm4moe", prediction, false, false, false},
    {"google/gemma-3n-E4B-it", "gemma3n", shared_layers, false, false, false},
    {"google/gemma-4-26B-A4B", "gemma4", two_kinds_of_heads, true, true, false},
    {"meta-llama/Llama-4-Maverick-17B-128E-Instruct", "llama4", chunks, false, false, false},
    {"LiquidAI/LFM2-1.2B", "lfm2", short_convolutions, true, false, false},
    {"tiiuae/Falcon-H1-7B-Instruct", "falcon-h1", falcon_h1, false, false, false},
    {"nvidia/Nemotron-H-8B-Base-8K", "nemotron_h", nemotron_h, true, false, false},
    {"ai21labs/Jamba-v0.1", "jamba", jamba, true, false, false},
};

/* ---- tensors */
static bool translate(const twin *t, const char *name, char *to, size_t room)
{
    static const char *const outside[][2] = {{"model.embed_tokens.weight", "token_embd.weight"},
                                             {"model.norm.weight", "output_norm.weight"},
                                             {"lm_head.weight", "output.weight"}};
    static const char *const inside[][2] = {{"input_layernorm.weight", "attn_norm.weight"},
                                            {"pre_feedforward_layernorm.weight", "ffn_norm.weight"},
                                            {"post_feedforward_layernorm.weight", "post_ffw_norm.weight"},
                                            {"self_attn.q_proj.weight", "attn_q.weight"},
                                            {"self_attn.k_proj.weight", "attn_k.weight"},
                                            {"self_attn.v_proj.weight", "attn_v.weight"},
                                            {"self_attn.q_proj.bias", "attn_q.bias"},
                                            {"self_attn.k_proj.bias", "attn_k.bias"},
                                            {"self_attn.v_proj.bias", "attn_v.bias"},
                                            {"self_attn.o_proj.weight", "attn_output.weight"},
                                            {"self_attn.q_norm.weight", "attn_q_norm.weight"},
                                            {"self_attn.k_norm.weight", "attn_k_norm.weight"},
                                            {"mlp.gate_proj.weight", "ffn_gate.weight"},
                                            {"mlp.up_proj.weight", "ffn_up.weight"},
                                            {"mlp.down_proj.weight", "ffn_down.weight"}};
    unsigned block;
    int used = 0;
    for (size_t i = 0; i < OFL_COUNT_OF(outside); i++) {
        if (strcmp(name, outside[i][0]) == 0) return snprintf(to, room, "%s", outside[i][1]) > 0;
    }
    if (sscanf(name, "model.layers.%u.%n", &block, &used) != 1 || used == 0 || block >= t->blocks) return false;
    const char *stem = name + used;
    if (strcmp(stem, "post_attention_layernorm.weight") == 0)
        return snprintf(to, room, "blk.%u.%s", block,
                        strncmp(t->architecture, "gemma", 5) == 0 ? "post_attention_norm.weight" : "ffn_norm.weight") > 0;
    for (size_t i = 0; i < OFL_COUNT_OF(inside); i++) {
        if (strcmp(stem, inside[i][0]) == 0) return snprintf(to, room, "blk.%u.%s", block, inside[i][1]) > 0;
    }
    return false;
}

static void add_tensors(twin *t, const ofl_model *folder)
{
    t->whole = true;
    for (uint32_t i = 0; i < ofl_model_tensor_count(folder); i++) {
        ofl_tensor_info info = {.struct_size = sizeof info};
        char name[64];
        assert_ok(ofl_model_tensor_get(folder, i, &info));
        if (!translate(t, info.name, name, sizeof name) || (info.dtype != OFL_DTYPE_BF16 && info.dtype != OFL_DTYPE_F32)) {
            t->whole = false;
            continue;
        }
        gguf_tensor_at(&t->writer, name, (uint32_t)info.dtype, info.n_dims, info.dims, t->data_bytes);
        t->data_bytes += (info.bytes + 31) / 32 * 32;
    }
    if (t->data_bytes > 0) return;
    gguf_tensor_at(&t->writer, "token_embd.weight", 0, 1, (const uint64_t[]){8}, 0);
    t->data_bytes = 32;
}

static void start(twin *t, size_t index, const cJSON *golden, const ofl_model *folder)
{
    const cJSON *config = cJSON_GetObjectItemCaseSensitive(golden, "config"),
                *text = cJSON_GetObjectItemCaseSensitive(config, "text_config");
    ofl_model_shape shape = {.struct_size = sizeof shape};
    assert_ok(ofl_model_shape_get(folder, &shape));
    *t = (twin){.architecture = twins[index].architecture, .config = text != NULL ? text : config, .blocks = shape.block_count};
    gguf_start(&t->writer);
    gguf_key_string(&t->writer, "general.architecture", t->architecture);
    set(t, "block_count", t->blocks + (twins[index].more == prediction));
    carry(t, "embedding_length", "hidden_size");
    carry(t, "context_length", "max_position_embeddings");
    carry(t, "attention.head_count", "num_attention_heads");
    if (!twins[index].own_heads) carry(t, "attention.head_count_kv", twins[index].more == latent ? "no such" : "num_key_value_heads");
    if (twins[index].more == latent) set(t, "attention.head_count_kv", 1);
    const char *dim = given(t, "head_dim") > 0 ? "head_dim" : "attention_head_dim";
    if (!twins[index].own_dims) {
        carry(t, "attention.key_length", dim);
        carry(t, "attention.value_length", dim);
    }
}

static ofl_model *write_twin(size_t index, const cJSON *golden, const ofl_model *folder, bool *whole_out)
{
    twin t;
    size_t header = 0;
    ofl_model *model = NULL;
    start(&t, index, golden, folder);
    add_tensors(&t, folder);
    twins[index].more(&t);
    free(gguf_bytes(&t.writer, &header));
    gguf_save(&t.writer, test_path("twin.gguf"));
    gguf_end(&t.writer);
    assert_int_equal(truncate(test_path("twin.gguf"), (off_t)(header + t.data_bytes)), 0);
    if (ofl_model_open(test_path("twin.gguf"), &model) != OFL_OK) fail_msg("%s: %s", twins[index].name, ofl_error_message());
    *whole_out = t.whole;
    return model;
}

static void check(const char *model, const char *what, uint64_t got, uint64_t expected)
{
    if (got != expected) fail_msg("%s: %s is %" PRIu64 ", the folder has %" PRIu64, model, what, got, expected);
}

static void compare_layers(const char *name, const ofl_model *twin_model, const ofl_model *folder, const ofl_model_shape *shape)
{
    for (uint32_t i = 0; i < shape->block_count; i++) {
        ofl_kv_layer a = {.struct_size = sizeof a}, b = {.struct_size = sizeof b};
        assert_ok(ofl_model_kv_layer_get(twin_model, i, &a));
        assert_ok(ofl_model_kv_layer_get(folder, i, &b));
        check(name, "a layer's kind", a.kind, b.kind);
        check(name, "a layer's window", a.window_tokens, b.window_tokens);
        check(name, "a layer's state", a.state_bytes, b.state_bytes);
        if (a.kind == OFL_KV_SHARED) continue; /* what it would have kept is nobody's */
        check(name, "a layer's K", a.k_elements, b.k_elements);
        check(name, "a layer's V", a.v_elements, b.v_elements);
    }
}

static uint64_t stored(const ofl_model *model)
{
    uint64_t sum = 0;
    for (uint32_t i = 0; i < ofl_model_tensor_count(model); i++) {
        ofl_tensor_info info = {.struct_size = sizeof info};
        assert_ok(ofl_model_tensor_get(model, i, &info));
        sum += info.bytes;
    }
    return sum;
}

static void compare(size_t index, const cJSON *golden)
{
    const char *name = twins[index].name;
    ofl_model *folder = NULL;
    bool whole = false;
    assert_ok(ofl_model_open(published_folder(golden), &folder));
    ofl_model *model = write_twin(index, golden, folder, &whole);
    ofl_model_shape a = {.struct_size = sizeof a}, b = {.struct_size = sizeof b};
    assert_ok(ofl_model_shape_get(model, &a));
    assert_ok(ofl_model_shape_get(folder, &b));
    check(name, "the number of layers", a.block_count, b.block_count);
    check(name, "the context", a.trained_context_tokens, b.trained_context_tokens);
    compare_layers(name, model, folder, &b);
    const uint64_t contexts[] = {1, 4096, b.trained_context_tokens};
    for (size_t i = 0; i < OFL_COUNT_OF(contexts); i++) {
        uint64_t got = 0, expected = 1;
        assert_ok(ofl_model_kv_bytes(model, OFL_KV_Q8_0, contexts[i], &got));
        assert_ok(ofl_model_kv_bytes(folder, OFL_KV_Q8_0, contexts[i], &expected));
        check(name, "KV", got, expected);
    }
    check(name, "translated in full", whole, twins[index].whole);
    if (whole) {
        check(name, "stored bytes", stored(model), stored(folder));
        check(name, "the number of parameters", a.parameter_count, b.parameter_count);
        check(name, "the tie", a.tied_output, b.tied_output);
        check(name, "the vocabulary", a.vocab_size, b.vocab_size);
    }
    ofl_model_destroy(model);
    ofl_model_destroy(folder);
}

static void test_twins(void **state)
{
    (void)state;
    cJSON *golden = published_models();
    size_t compared = 0;
    for (size_t i = 0; i < OFL_COUNT_OF(twins); i++) {
        const cJSON *model;
        cJSON_ArrayForEach (model, golden) {
            if (strcmp(cJSON_GetObjectItemCaseSensitive(model, "name")->valuestring, twins[i].name) != 0) continue;
            compare(i, model);
            compared++;
        }
    }
    assert_int_equal(compared, OFL_COUNT_OF(twins));
    cJSON_Delete(golden);
}

static const struct CMUnitTest tests[] = {cmocka_unit_test(test_twins)};
TEST_MAIN(tests)
