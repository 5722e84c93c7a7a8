/* KV cache and state of GGUF models whose layers differ: the keys in, bytes out. */
#include "support/gguf_writer.h"

#include <unistd.h>

#include "base/base.h"

typedef struct given {
    gguf_writer writer;
    const char *architecture;
} given;

static const char *name(const given *at, const char *key)
{
    static char text[128];
    (void)snprintf(text, sizeof text, "%s.%s", at->architecture, key);
    return text;
}

static void start(given *at, const char *architecture, uint32_t blocks, uint32_t hidden, uint32_t heads)
{
    at->architecture = architecture;
    gguf_start(&at->writer);
    gguf_key_string(&at->writer, "general.architecture", architecture);
    gguf_key_u32(&at->writer, name(at, "block_count"), blocks);
    gguf_key_u32(&at->writer, name(at, "embedding_length"), hidden);
    if (heads > 0) gguf_key_u32(&at->writer, name(at, "attention.head_count"), heads);
}

static void set(given *at, const char *key, uint32_t value) { gguf_key_u32(&at->writer, name(at, key), value); }

static ofl_model *finish(given *at)
{
    ofl_model *model = NULL;
    gguf_tensor(&at->writer, "token_embd.weight", 0, 2, (const uint64_t[]){8, 2}, NULL, 64);
    gguf_save(&at->writer, test_path("kv.gguf"));
    gguf_end(&at->writer);
    assert_ok(ofl_model_open(test_path("kv.gguf"), &model));
    return model;
}

/* The tensors' data are a hole of this many bytes. */
static ofl_model *finish_sparse(given *at, uint64_t data_bytes)
{
    ofl_model *model = NULL;
    size_t header = 0;
    free(gguf_bytes(&at->writer, &header));
    gguf_save(&at->writer, test_path("kv.gguf"));
    gguf_end(&at->writer);
    assert_int_equal(truncate(test_path("kv.gguf"), (off_t)(header + data_bytes)), 0);
    assert_ok(ofl_model_open(test_path("kv.gguf"), &model));
    return model;
}

static void check(ofl_model *model, uint64_t context, uint64_t bytes)
{
    uint64_t got = 0;
    assert_ok(ofl_model_kv_bytes(model, OFL_KV_F16, context, &got));
    if (got != bytes)
        fail_msg("KV of %llu tokens: %llu instead of %llu", (unsigned long long)context, (unsigned long long)got,
                 (unsigned long long)bytes);
}

static void check_state(ofl_model *model, uint64_t bytes)
{
    uint64_t got = 0;
    assert_ok(ofl_model_state_bytes(model, &got));
    assert_int_equal(got, bytes);
}

static void test_heads_per_layer(void **state)
{
    (void)state;
    given at;
    uint32_t heads[88] = {0};
    for (int i = 0; i < 8; i++) heads[11 * i] = 2;
    start(&at, "nemotron_h", 88, 4096, 32);
    set(&at, "attention.key_length", 128);
    set(&at, "attention.value_length", 128);
    gguf_key_u32_array(&at.writer, name(&at, "attention.head_count_kv"), heads, 88);
    ofl_model *model = finish(&at);
    check(model, 1, 8192);
    check(model, 32768, 268435456);
    ofl_model_destroy(model);

    static const uint32_t lfm2[16] = {0, 0, 8, 0, 0, 8, 0, 0, 8, 0, 8, 0, 8, 0, 8, 0};
    start(&at, "lfm2", 16, 2048, 32);
    set(&at, "shortconv.l_cache", 3);
    gguf_key_u32_array(&at.writer, name(&at, "attention.head_count_kv"), lfm2, 16);
    model = finish(&at);
    check(model, 1, 12288);
    check(model, 32768, 402653184);
    check_state(model, 81920);
    ofl_model_destroy(model);
}

static void test_gemma4_windows(void **state)
{
    (void)state;
    given at;
    uint32_t heads[48];
    unsigned char slides[48];
    for (int i = 0; i < 48; i++) {
        slides[i] = i % 6 != 5;
        heads[i] = slides[i] ? 8 : 1;
    }
    start(&at, "gemma4", 48, 3840, 16);
    gguf_key_u32_array(&at.writer, name(&at, "attention.head_count_kv"), heads, 48);
    gguf_key_bool_array(&at.writer, name(&at, "attention.sliding_window_pattern"), slides, 48);
    set(&at, "attention.sliding_window", 1024);
    set(&at, "attention.key_length", 512);
    set(&at, "attention.value_length", 512);
    set(&at, "attention.key_length_swa", 256);
    set(&at, "attention.value_length_swa", 256);
    ofl_model *model = finish(&at);
    check(model, 131072, UINT64_C(2483027968));
    ofl_model_destroy(model);
}

/* Keys in, bytes out. */
static const struct {
    const char *architecture;
    uint32_t blocks, hidden, heads;
    struct { const char *key; uint32_t value; } keys[9];
    uint64_t contexts[2], bytes[2]; /* KV of so many tokens; 0: no second */
    uint64_t state;
    uint32_t notes;
    ofl_kv_kind first; /* of layer 0 */
} by_keys[] = {
    {"gemma3", 62, 5376, 32,
     {{"attention.head_count_kv", 16}, {"attention.key_length", 128}, {"attention.value_length", 128}, {"attention.sliding_window", 1024}},
     {131072}, {UINT64_C(11173625856)}, 0, 0, OFL_KV_SLIDING},
    {"gpt-oss", 24, 2880, 64,
     {{"attention.head_count_kv", 8}, {"attention.key_length", 64}, {"attention.value_length", 64}, {"attention.sliding_window", 128}},
     {8192}, {UINT64_C(6543114240) / 32}, 0, 0, OFL_KV_SLIDING},
    {"phi3", 32, 3072, 32, /* no pattern: every layer slides, and a note says so */
     {{"attention.sliding_window", 2047}, {"attention.head_count_kv", 32}},
     {4096}, {804913152}, 0, 1, OFL_KV_SLIDING},
    {"gemma2", 4, 64, 4, /* a period of 1 in the file: no layer slides; a note on the KV heads */
     {{"attention.sliding_window", 16}, {"attention.sliding_window_pattern", 1}},
     {100}, {4 * 100 * 2 * 64 * 2}, 0, 1, OFL_KV_FULL},
    {"llama4", 48, 5120, 40,
     {{"attention.head_count_kv", 8}, {"attention.key_length", 128}, {"attention.value_length", 128}},
     {1048576}, {UINT64_C(52747567104)}, 0, 0, OFL_KV_CHUNKED},
    {"deepseek2", 61, 7168, 128,
     {{"attention.head_count_kv", 1}, {"attention.key_length", 576}, {"attention.value_length", 512}, {"attention.key_length_mla", 192},
      {"attention.kv_lora_rank", 512}, {"rope.dimension_count", 64}},
     {1, 65536}, {70272, UINT64_C(4605345792)}, 0, 1, OFL_KV_LATENT},
    {"deepseek2", 61, 7168, 128, /* as older files have it */
     {{"attention.key_length", 192}, {"attention.value_length", 128}, {"attention.kv_lora_rank", 512}, {"rope.dimension_count", 64}},
     {1}, {70272}, 0, 2, OFL_KV_LATENT},
    {"qwen3next", 48, 2048, 16,
     {{"attention.head_count_kv", 2}, {"attention.key_length", 256}, {"attention.value_length", 256}, {"full_attention_interval", 4},
      {"ssm.conv_kernel", 4}, {"ssm.inner_size", 4096}, {"ssm.state_size", 128}, {"ssm.group_count", 16}},
     {1}, {12 * 2 * 2 * 256 * 2}, 36 * ((UINT64_C(2) << 20) + 3 * (2 * 16 * 128 + 4096) * 2), 0, OFL_KV_NONE},
};

static void test_by_keys(void **state)
{
    (void)state;
    for (size_t i = 0; i < OFL_COUNT_OF(by_keys); i++) {
        given at;
        ofl_kv_layer layer = {.struct_size = sizeof layer};
        start(&at, by_keys[i].architecture, by_keys[i].blocks, by_keys[i].hidden, by_keys[i].heads);
        for (size_t k = 0; by_keys[i].keys[k].key != NULL; k++) set(&at, by_keys[i].keys[k].key, by_keys[i].keys[k].value);
        ofl_model *model = finish(&at);
        for (size_t c = 0; c < 2 && by_keys[i].contexts[c] != 0; c++) check(model, by_keys[i].contexts[c], by_keys[i].bytes[c]);
        check_state(model, by_keys[i].state);
        assert_ok(ofl_model_kv_layer_get(model, 0, &layer));
        if (layer.kind != by_keys[i].first || ofl_model_note_count(model) != by_keys[i].notes)
            fail_msg("%s: kind %d, %u notes: %s", by_keys[i].architecture, (int)layer.kind, (unsigned)ofl_model_note_count(model),
                     ofl_model_note(model, 0));
        ofl_model_destroy(model);
    }
}

static void test_recurrent(void **state)
{
    (void)state;
    given at;
    static const uint32_t heads[4] = {0, 2, 0, 0}, widths[4] = {0, 0, 0, 99}; /* M*M- */
    start(&at, "nemotron_h", 4, 64, 4);
    set(&at, "attention.key_length", 16);
    set(&at, "attention.value_length", 16);
    gguf_key_u32_array(&at.writer, name(&at, "attention.head_count_kv"), heads, 4);
    gguf_key_u32_array(&at.writer, name(&at, "feed_forward_length"), widths, 4);
    set(&at, "ssm.conv_kernel", 4);
    set(&at, "ssm.inner_size", 32);
    set(&at, "ssm.state_size", 16);
    set(&at, "ssm.group_count", 1);
    ofl_model *model = finish(&at);
    check(model, 1, 128);
    check_state(model, 4864);
    ofl_model_destroy(model);

    start(&at, "falcon-h1", 44, 3072, 12); /* attention and state in every layer */
    set(&at, "attention.head_count_kv", 2);
    set(&at, "attention.key_length", 128);
    set(&at, "attention.value_length", 128);
    set(&at, "ssm.conv_kernel", 4);
    set(&at, "ssm.inner_size", 3072);
    set(&at, "ssm.state_size", 256);
    set(&at, "ssm.group_count", 1);
    model = finish(&at);
    check(model, 1, 45056);
    check_state(model, 139358208);
    ofl_model_destroy(model);

    start(&at, "mamba", 2, 64, 0);
    set(&at, "ssm.conv_kernel", 4);
    set(&at, "ssm.inner_size", 128);
    set(&at, "ssm.state_size", 16);
    model = finish(&at);
    check(model, 1000, 0);
    check_state(model, 2 * (128 * 16 * 4 + 3 * 128 * 2));
    ofl_model_destroy(model);
}

static void test_shared(void **state)
{
    (void)state;
    given at;
    start(&at, "gemma3n", 35, 2048, 8);
    set(&at, "attention.head_count_kv", 2);
    set(&at, "attention.key_length", 256);
    set(&at, "attention.value_length", 256);
    set(&at, "attention.sliding_window", 512);
    set(&at, "attention.shared_kv_layers", 15);
    ofl_model *model = finish(&at);
    check(model, 4096, 50331648);
    check(model, 32768, 285212672);
    ofl_model_destroy(model);
}

static void test_prediction_blocks(void **state)
{
    (void)state;
    given at;
    start(&at, "glm4moe", 41, 64, 4);
    set(&at, "nextn_predict_layers", 1);
    gguf_tensor(&at.writer, "blk.40.nextn.eh_proj.weight", 0, 2, (const uint64_t[]){8, 8}, NULL, 256);
    gguf_tensor(&at.writer, "blk.40.attn_q.weight", 0, 2, (const uint64_t[]){8, 8}, NULL, 256);
    gguf_tensor(&at.writer, "blk.39.attn_q.weight", 0, 2, (const uint64_t[]){8, 8}, NULL, 256);
    ofl_model *model = finish(&at);
    ofl_model_shape shape = {.struct_size = sizeof shape};
    assert_ok(ofl_model_shape_get(model, &shape));
    assert_int_equal(shape.block_count, 40);
    assert_int_equal(shape.parameter_count, 3 * 64 + 16);
    ofl_tensor_info info = {.struct_size = sizeof info};
    for (uint32_t i = 2; i < 4; i++) {
        assert_ok(ofl_model_tensor_get(model, i, &info));
        assert_int_equal(info.tensor_class, OFL_CLASS_UNUSED);
        assert_string_equal(info.unused_why, "prediction block");
    }
    uint32_t index;
    assert_int_equal(ofl_model_tensor_find(model, 40, OFL_ROLE_ATTN_Q, &index), OFL_ERROR_NOT_FOUND);
    check(model, 1, 40 * 2 * 64 * 2);
    ofl_model_destroy(model);

    start(&at, "glm4moe", 40, 64, 4); /* announced, but not there */
    set(&at, "nextn_predict_layers", 1);
    model = finish(&at);
    assert_ok(ofl_model_shape_get(model, &shape));
    assert_int_equal(shape.block_count, 40);
    ofl_model_destroy(model);
}

static void test_experts(void **state)
{
    (void)state;
    given at;
    start(&at, "llama", 1, 64, 4);
    set(&at, "expert_count", 8);
    set(&at, "expert_used_count", 2);
    gguf_tensor(&at.writer, "blk.0.ffn_gate_exps.weight", 0, 3, (const uint64_t[]){8, 8, 8}, NULL, 2048);
    gguf_tensor(&at.writer, "blk.0.ffn_up.7.weight", 0, 2, (const uint64_t[]){8, 8}, NULL, 256);
    gguf_tensor(&at.writer, "blk.0.ffn_gate_inp.weight", 0, 2, (const uint64_t[]){8, 8}, NULL, 256);
    gguf_tensor(&at.writer, "blk.0.ffn_down_shexp.weight", 0, 2, (const uint64_t[]){8, 8}, NULL, 256);
    ofl_model *model = finish(&at);
    static const struct {
        ofl_tensor_role role;
        ofl_tensor_class tensor_class;
    } expected[] = {{OFL_ROLE_FFN_ROUTER, OFL_CLASS_DENSE},
                    {OFL_ROLE_FFN_GATE, OFL_CLASS_EXPERT},
                    {OFL_ROLE_FFN_UP, OFL_CLASS_EXPERT},
                    {OFL_ROLE_FFN_OTHER, OFL_CLASS_DENSE}};
    for (uint32_t i = 0; i < OFL_COUNT_OF(expected); i++) {
        ofl_tensor_info info = {.struct_size = sizeof info};
        assert_ok(ofl_model_tensor_get(model, i, &info));
        assert_int_equal(info.role, expected[i].role);
        assert_int_equal(info.tensor_class, expected[i].tensor_class);
    }
    ofl_model_destroy(model);
}

/* Field cases 41 and 110: Mixtral's sizes are stored whole; a step reads the experts that its tokens are expected to meet. */
static void test_expert_bytes(void **state)
{
    (void)state;
    enum { layers = 32, hidden = 4096, width = 14336, experts = 8 };
    const uint64_t one = UINT64_C(3) * hidden * width * 2, all = layers * experts * one;
    static const struct {
        uint64_t tokens;
        double distinct;
    } cases[] = {{0, 0}, {1, 2}, {4, 5.46875}, {32, 7.99919637}, {UINT64_MAX, 8}};
    given at;
    uint64_t offset = 0, bytes = 0;
    start(&at, "llama", layers, hidden, 32);
    set(&at, "attention.head_count_kv", 8);
    set(&at, "expert_count", experts);
    set(&at, "expert_used_count", 2);
    for (uint32_t i = 0; i < layers; i++) {
        static const char *const parts[] = {"gate", "up", "down"};
        for (size_t p = 0; p < OFL_COUNT_OF(parts); p++) {
            char tensor_name[64];
            const uint64_t dims[3] = {p == 2 ? width : hidden, p == 2 ? hidden : width, experts};
            (void)snprintf(tensor_name, sizeof tensor_name, "blk.%u.ffn_%s_exps.weight", (unsigned)i, parts[p]);
            gguf_tensor_at(&at.writer, tensor_name, 30, 3, dims, offset);
            offset += one / 3 * experts;
        }
    }
    ofl_model *model = finish_sparse(&at, offset);
    assert_ok(ofl_model_expert_bytes(model, &bytes));
    assert_int_equal(bytes, all);
    for (size_t i = 0; i < OFL_COUNT_OF(cases); i++) {
        double step = -1, expected = cases[i].distinct * (double)one * layers;
        assert_ok(ofl_model_expert_bytes_per_step(model, cases[i].tokens, &step));
        if (step < expected * (1 - 1e-7) || step > expected * (1 + 1e-7)) fail_msg("%d tokens: %f", (int)cases[i].tokens, step);
    }
    double step = -1;
    assert_status(ofl_model_expert_bytes_per_step(NULL, 1, &step), OFL_ERROR_ARGUMENT);
    assert_status(ofl_model_expert_bytes_per_step(model, 1, NULL), OFL_ERROR_ARGUMENT);
    assert_status(ofl_model_expert_bytes(model, NULL), OFL_ERROR_ARGUMENT);
    ofl_model_destroy(model);

    start(&at, "llama", 1, 64, 4); /* no experts */
    model = finish(&at);
    assert_ok(ofl_model_expert_bytes_per_step(model, 1, &step));
    assert_true(step == 0);
    ofl_model_destroy(model);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_heads_per_layer),
    cmocka_unit_test(test_gemma4_windows),
    cmocka_unit_test(test_by_keys),
    cmocka_unit_test(test_recurrent),
    cmocka_unit_test(test_shared),
    cmocka_unit_test(test_prediction_blocks),
    cmocka_unit_test(test_experts),
    cmocka_unit_test(test_expert_bytes),
};
TEST_MAIN(tests)
