#include "support/safetensors_writer.h"

#include <unistd.h>

#include "base/base.h"

#define LLAMA "\"model_type\":\"llama\",\"hidden_size\":64,\"num_hidden_layers\":2,\"num_attention_heads\":4,\"vocab_size\":10"

static void tensor(safetensors_writer *writer, const char *name, uint64_t rows, uint64_t columns)
{
    uint64_t shape[2] = {rows, columns};
    safetensors_tensor(writer, name, "BF16", columns > 0 ? 2 : 1, shape, NULL, rows * (columns > 0 ? columns : 1) * 2);
}

/* A folder of one file: the config's text, and tensors by name (rows 10, columns 64). */
static const char *folder_of(const char *name, const char *config, const char *const *tensors, size_t count)
{
    const char *folder = test_make_folder(name);
    char path[768];
    safetensors_writer writer;
    safetensors_start(&writer);
    safetensors_entry(&writer, "\"__metadata__\":{\"format\":\"pt\"}");
    for (size_t i = 0; i < count; i++) tensor(&writer, tensors[i], 10, 64);
    (void)snprintf(path, sizeof path, "%s/model.safetensors", folder);
    safetensors_save(&writer, path);
    safetensors_end(&writer);
    test_write_text(folder, "config.json", config);
    return folder;
}

static ofl_model *opened(const char *folder)
{
    ofl_model *model = NULL;
    assert_ok(ofl_model_open(folder, &model));
    return model;
}

static ofl_model *of_config(const char *config)
{
    static const char *const names[] = {"model.embed_tokens.weight"};
    return opened(folder_of("config", config, names, 1));
}

static ofl_model_shape shape_of(const ofl_model *model)
{
    ofl_model_shape shape = {.struct_size = sizeof shape};
    assert_ok(ofl_model_shape_get(model, &shape));
    return shape;
}

static uint64_t kv(const ofl_model *model, uint64_t context)
{
    uint64_t bytes = 0;
    assert_ok(ofl_model_kv_bytes(model, OFL_KV_F16, context, &bytes));
    return bytes;
}

static bool has_note(const ofl_model *model, const char *word)
{
    for (uint32_t i = 0; i < ofl_model_note_count(model); i++) {
        if (strstr(ofl_model_note(model, i), word) != NULL) return true;
    }
    return false;
}

static void test_roles(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        int32_t block;
        ofl_tensor_role role;
        ofl_tensor_class tensor_class;
        const char *why;
    } expected[] = {
        {"model.embed_tokens.weight", OFL_BLOCK_INPUT, OFL_ROLE_EMBEDDING, OFL_CLASS_LOOKUP, NULL},
        {"model.layers.0.input_layernorm.weight", 0, OFL_ROLE_ATTN_NORM, OFL_CLASS_DENSE, NULL},
        {"model.layers.0.self_attn.q_proj.weight", 0, OFL_ROLE_ATTN_Q, OFL_CLASS_DENSE, NULL},
        {"model.layers.0.self_attn.q_proj.bias", 0, OFL_ROLE_ATTN_Q_BIAS, OFL_CLASS_DENSE, NULL},
        {"model.layers.0.self_attn.k_norm.weight", 0, OFL_ROLE_ATTN_K_NORM, OFL_CLASS_DENSE, NULL},
        {"model.layers.0.self_attn.o_proj.weight", 0, OFL_ROLE_ATTN_OUTPUT, OFL_CLASS_DENSE, NULL},
        {"model.layers.0.post_attention_layernorm.weight", 0, OFL_ROLE_FFN_NORM, OFL_CLASS_DENSE, NULL},
        {"model.layers.0.mlp.gate.weight", 0, OFL_ROLE_FFN_ROUTER, OFL_CLASS_DENSE, NULL},
        {"model.layers.0.mlp.experts.7.gate_proj.weight", 0, OFL_ROLE_FFN_GATE, OFL_CLASS_EXPERT, NULL},
        {"model.layers.0.block_sparse_moe.experts.3.w3.weight", 0, OFL_ROLE_FFN_UP, OFL_CLASS_EXPERT, NULL},
        {"model.layers.0.mlp.experts.down_proj", 0, OFL_ROLE_FFN_DOWN, OFL_CLASS_EXPERT, NULL},
        {"model.layers.0.mlp.experts.gate_up_proj_blocks", 0, OFL_ROLE_FFN_OTHER, OFL_CLASS_EXPERT, NULL},
        {"model.layers.0.mlp.shared_experts.up_proj.weight", 0, OFL_ROLE_FFN_OTHER, OFL_CLASS_DENSE, NULL},
        {"model.layers.1.mlp.down_proj.weight", 1, OFL_ROLE_FFN_DOWN, OFL_CLASS_DENSE, NULL},
        {"model.norm.weight", 2, OFL_ROLE_OUTPUT_NORM, OFL_CLASS_DENSE, NULL},
        {"lm_head.weight", 2, OFL_ROLE_OUTPUT, OFL_CLASS_DENSE, NULL},
        {"model.layers.0.self_attn.rotary_emb.inv_freq", 0, OFL_ROLE_OTHER, OFL_CLASS_UNUSED, "buffer that is computed anew"},
        {"model.layers.2.eh_proj.weight", 2, OFL_ROLE_OTHER, OFL_CLASS_UNUSED, "prediction block"},
        {"visual.blocks.0.attn.qkv.weight", OFL_BLOCK_INPUT, OFL_ROLE_OTHER, OFL_CLASS_UNUSED, "vision part"},
    };
    const char *names[OFL_COUNT_OF(expected)];
    for (size_t i = 0; i < OFL_COUNT_OF(expected); i++) names[i] = expected[OFL_COUNT_OF(expected) - 1 - i].name;
    ofl_model *model = opened(folder_of("roles", "{" LLAMA ",\"num_nextn_predict_layers\":1}", names, OFL_COUNT_OF(names)));
    assert_int_equal(ofl_model_tensor_count(model), OFL_COUNT_OF(expected));
    for (size_t i = 0; i < OFL_COUNT_OF(expected); i++) {
        ofl_tensor_info info = {.struct_size = sizeof info};
        for (uint32_t t = 0; t < ofl_model_tensor_count(model); t++) {
            assert_ok(ofl_model_tensor_get(model, t, &info));
            if (strcmp(info.name, expected[i].name) == 0) break;
        }
        assert_string_equal(info.name, expected[i].name);
        if (info.block != expected[i].block || info.role != expected[i].role || info.tensor_class != expected[i].tensor_class)
            fail_msg("%s: block %d role %d class %d", info.name, (int)info.block, (int)info.role, (int)info.tensor_class);
        if (expected[i].why != NULL) assert_string_equal(info.unused_why, expected[i].why);
        else assert_null(info.unused_why);
    }
    assert_true(has_note(model, "(3 in all"));
    assert_int_equal(shape_of(model).rope_pairing, OFL_ROPE_HALF);
    assert_string_equal(ofl_model_architecture(model), "llama");
    assert_string_equal(ofl_model_name(model), "roles");
    ofl_model_destroy(model);
}

static void test_tie_is_what_is_stored(void **state)
{
    (void)state;
    static const char *const both[] = {"model.embed_tokens.weight", "lm_head.weight"};
    static const struct {
        const char *flag;
        size_t tensors;
        uint32_t tied;
        bool note;
    } cases[] = {{",\"tie_word_embeddings\":true", 2, 0, true},
                 {"", 2, 0, false},
                 {",\"tie_word_embeddings\":true", 1, 1, false},
                 {",\"tie_word_embeddings\":false", 1, 1, true},
                 {",\"tie_word_embeddings\":null", 1, 1, false}};
    for (size_t i = 0; i < OFL_COUNT_OF(cases); i++) {
        char config[512];
        (void)snprintf(config, sizeof config, "{" LLAMA "%s}", cases[i].flag);
        ofl_model *model = opened(folder_of("tie", config, both, cases[i].tensors));
        assert_int_equal(shape_of(model).tied_output, cases[i].tied);
        assert_int_equal(has_note(model, "tie_word_embeddings"), cases[i].note);
        ofl_tensor_info info = {.struct_size = sizeof info};
        assert_ok(ofl_model_tensor_get(model, 0, &info));
        assert_int_equal(info.tensor_class, cases[i].tied ? OFL_CLASS_DENSE : OFL_CLASS_LOOKUP);
        assert_int_equal(info.also_lookup, cases[i].tied);
        ofl_model_destroy(model);
    }
}

static void test_kv_by_config(void **state)
{
    (void)state;
    static const struct {
        const char *config;
        uint64_t context, bytes;
    } cases[] = {
        {"{" LLAMA "}", 1, 2 * 2 * 64 * 2},
        {"{" LLAMA ",\"num_key_value_heads\":null,\"head_dim\":null}", 1, 2 * 2 * 64 * 2},
        {"{" LLAMA ",\"num_key_value_heads\":2,\"head_dim\":32}", 1, 2 * 2 * 64 * 2},
        {"{\"model_type\":\"qwen3\",\"hidden_size\":1024,\"num_hidden_layers\":28,\"num_attention_heads\":16,\"num_key_value_heads\":8,"
         "\"head_dim\":128}",
         1, 114688},
        {"{\"model_type\":\"mistral\",\"hidden_size\":5120,\"num_hidden_layers\":40,\"num_attention_heads\":32,\"num_key_value_heads\":8,"
         "\"head_dim\":128}",
         1, 163840},
        {"{\"model_type\":\"mistral\",\"hidden_size\":64,\"num_hidden_layers\":2,\"num_attention_heads\":4,\"sliding_window\":16}", 100,
         2 * 16 * 2 * 64 * 2},
        {"{\"model_type\":\"qwen2\",\"hidden_size\":64,\"num_hidden_layers\":2,\"num_attention_heads\":4,\"sliding_window\":16}", 100,
         2 * 100 * 2 * 64 * 2},
        {"{\"model_type\":\"qwen2\",\"hidden_size\":64,\"num_hidden_layers\":2,\"num_attention_heads\":4,\"sliding_window\":16,\"use_"
         "sliding_window\":true,"
         "\"max_window_layers\":1}",
         100, (100 + 16) * 2 * 64 * 2},
        {"{\"model_type\":\"gemma3_text\",\"hidden_size\":5376,\"num_hidden_layers\":62,\"num_attention_heads\":32,\"num_key_value_heads\":"
         "16,\"head_dim\":128,"
         "\"sliding_window\":1024}",
         131072, UINT64_C(11173625856)},
        {"{\"model_type\":\"x\",\"hidden_size\":64,\"num_hidden_layers\":2,\"num_attention_heads\":4,\"layer_types\":[\"sliding_"
         "attention\",\"full_attention\"]}",
         100, 2 * 100 * 2 * 64 * 2},
        {"{\"model_type\":\"nemotron_h\",\"hidden_size\":64,\"num_hidden_layers\":4,\"num_attention_heads\":4,\"num_key_value_heads\":2,"
         "\"head_dim\":16,"
         "\"hybrid_override_pattern\":\"M*M-\",\"mamba_num_heads\":4,\"mamba_head_dim\":8,\"ssm_state_size\":16,\"n_groups\":1,\"conv_"
         "kernel\":4}",
         1, 128},
        {"{\"model_type\":\"deepseek_v3\",\"hidden_size\":7168,\"num_hidden_layers\":61,\"num_attention_heads\":128,\"num_key_value_"
         "heads\":128,\"kv_lora_rank\":512,"
         "\"qk_rope_head_dim\":64,\"qk_nope_head_dim\":128,\"v_head_dim\":128}",
         65536, UINT64_C(4605345792)},
        {"{\"model_type\":\"falcon\",\"hidden_size\":4544,\"num_hidden_layers\":32,\"num_attention_heads\":71,\"multi_query\":true,\"num_"
         "kv_heads\":71}",
         1, 8192},
    };
    for (size_t i = 0; i < OFL_COUNT_OF(cases); i++) {
        ofl_model *model = of_config(cases[i].config);
        uint64_t got = kv(model, cases[i].context);
        if (got != cases[i].bytes) fail_msg("%s: %llu", cases[i].config, (unsigned long long)got);
        ofl_model_destroy(model);
    }
}

static void test_recurrent_state(void **state)
{
    (void)state;
    ofl_model *model =
        of_config("{\"model_type\":\"nemotron_h\",\"hidden_size\":64,\"num_attention_heads\":4,\"num_key_value_heads\":2,\"head_dim\":16,"
                  "\"hybrid_override_pattern\":\"M*M-\",\"mamba_num_heads\":4,\"mamba_head_dim\":8,\"ssm_state_size\":16,\"n_groups\":1,"
                  "\"conv_kernel\":4}");
    uint64_t bytes = 0;
    assert_ok(ofl_model_state_bytes(model, &bytes));
    assert_int_equal(bytes, 4864);
    ofl_model_destroy(model);
    model = of_config("{\"model_type\":\"qwen3_next\",\"hidden_size\":2048,\"num_hidden_layers\":48,\"num_attention_heads\":16,\"num_key_"
                      "value_heads\":2,\"head_dim\":256,"
                      "\"linear_num_value_heads\":32,\"linear_num_key_heads\":16,\"linear_key_head_dim\":128,\"linear_value_head_dim\":128,"
                      "\"linear_conv_kernel_dim\":4,"
                      "\"partial_rotary_factor\":0.25}");
    assert_int_equal(kv(model, 1), 12 * 2 * 2 * 256 * 2);
    assert_ok(ofl_model_state_bytes(model, &bytes));
    assert_int_equal(bytes, 36 * ((UINT64_C(2) << 20) + 3 * (2 * 16 * 128 + 4096) * 2));
    assert_int_equal(shape_of(model).rope_dim, 64);
    ofl_model_destroy(model);
}

static void test_rope(void **state)
{
    (void)state;
    ofl_model *model =
        of_config("{" LLAMA ",\"rope_theta\":500000.0,\"rope_scaling\":{\"rope_type\":\"llama3\",\"factor\":8.0,\"low_freq_factor\":1.0,"
                  "\"high_freq_factor\":4.0,\"original_max_position_embeddings\":8192}}");
    ofl_model_shape shape = shape_of(model);
    assert_int_equal(shape.rope_scaling, OFL_ROPE_LLAMA3);
    assert_true(shape.rope_freq_base == 500000 && shape.rope_factor == 8 && shape.rope_low_freq_factor == 1 &&
                shape.rope_high_freq_factor == 4);
    assert_int_equal(shape.rope_original_context, 8192);
    ofl_model_destroy(model);
    model = of_config("{" LLAMA ",\"rope_parameters\":{\"full_attention\":{\"rope_type\":\"yarn\",\"rope_theta\":1000000,\"factor\":4,"
                                "\"beta_fast\":32,\"beta_slow\":1},"
                      "\"sliding_attention\":{\"rope_type\":\"default\",\"rope_theta\":10000}}}");
    shape = shape_of(model);
    assert_int_equal(shape.rope_scaling, OFL_ROPE_YARN);
    assert_true(shape.rope_freq_base == 1000000 && shape.rope_beta_fast == 32);
    ofl_model_destroy(model);
    model = of_config("{" LLAMA ",\"rope_scaling\":null,\"rope_parameters\":{\"rope_type\":\"linear\",\"factor\":2.5}}");
    shape = shape_of(model);
    assert_int_equal(shape.rope_scaling, OFL_ROPE_LINEAR);
    assert_true(shape.rope_factor == 2.5 && shape.rope_freq_base == 10000);
    ofl_model_destroy(model);
}

static void test_nested_configs(void **state)
{
    (void)state;
    ofl_model *model = of_config("{\"model_type\":\"omni\",\"thinker_config\":{\"text_config\":{" LLAMA
                                 "}},\"time_step_limit\":[0.0,Infinity,-Infinity,NaN]}");
    assert_int_equal(shape_of(model).block_count, 2);
    ofl_model_destroy(model);
    model = of_config("{\"num_hidden_layers\":27,\"hidden_size\":1152,\"num_attention_heads\":16,\"text_config\":{\"num_hidden_layers\":36,"
                      "\"hidden_size\":64,"
                      "\"num_attention_heads\":4,\"vocab_size\":10,\"quantization_config\":{\"bits\":8}}}");
    assert_int_equal(shape_of(model).block_count, 36);
    assert_int_equal(shape_of(model).hidden_size, 64);
    ofl_model_destroy(model);
}

static void test_packed_parameters(void **state)
{
    (void)state;
    const char *folder = test_make_folder("packed");
    char path[768];
    safetensors_writer writer;
    safetensors_start(&writer);
    safetensors_tensor(&writer, "model.layers.0.mlp.up_proj.qweight", "I32", 2, (const uint64_t[]){512, 4096}, NULL, 8388608);
    safetensors_tensor(&writer, "model.layers.0.mlp.up_proj.scales", "F16", 2, (const uint64_t[]){32, 4096}, NULL, 262144);
    safetensors_tensor(&writer, "model.layers.0.mlp.up_proj.qzeros", "I32", 2, (const uint64_t[]){32, 512}, NULL, 65536);
    (void)snprintf(path, sizeof path, "%s/model.safetensors", folder);
    safetensors_save(&writer, path);
    safetensors_end(&writer);
    test_write_text(folder, "config.json", "{" LLAMA ",\"quantization_config\":{\"bits\":4,\"quant_method\":\"awq\"}}");
    ofl_model *model = opened(folder);
    ofl_tensor_info info = {.struct_size = sizeof info};
    assert_ok(ofl_model_tensor_get(model, 0, &info));
    assert_int_equal(info.bytes, 8388608);
    assert_int_equal(shape_of(model).parameter_count, 16777216);
    assert_true(has_note(model, "packed"));
    ofl_model_destroy(model);
}

static void test_data_are_read(void **state)
{
    (void)state;
    const char *folder = test_make_folder("data");
    char path[768];
    static const float values[6] = {1, 2, 3, 4, 5, 6};
    safetensors_writer writer;
    safetensors_start(&writer);
    safetensors_tensor(&writer, "model.norm.weight", "F32", 1, (const uint64_t[]){2}, values, 8);
    safetensors_tensor(&writer, "scalar", "F32", 0, NULL, values + 2, 4);
    safetensors_tensor(&writer, "empty", "F32", 2, (const uint64_t[]){0, 5}, values, 0);
    safetensors_tensor(&writer, "model.embed_tokens.weight", "F32", 2, (const uint64_t[]){1, 3}, values + 3, 12);
    safetensors_tensor(&writer, "far", "U8", 1, (const uint64_t[]){UINT64_C(3000000000)}, NULL, UINT64_C(3000000000));
    safetensors_tensor(&writer, "behind", "U8", 1, (const uint64_t[]){64}, NULL, 64);
    (void)snprintf(path, sizeof path, "%s/model.safetensors", folder);
    safetensors_save(&writer, path);
    safetensors_end(&writer);
    test_write_text(folder, "config.json", "{" LLAMA "}");
    ofl_model *model = opened(folder);
    uint32_t index;
    float read[3];
    assert_ok(ofl_model_tensor_find(model, OFL_BLOCK_INPUT, OFL_ROLE_EMBEDDING, &index));
    assert_ok(ofl_model_tensor_read(model, index, 0, 12, read));
    assert_true(read[0] == 4 && read[2] == 6);
    char byte = 1;
    for (uint32_t i = 0; i < ofl_model_tensor_count(model); i++) {
        ofl_tensor_info info = {.struct_size = sizeof info};
        assert_ok(ofl_model_tensor_get(model, i, &info));
        if (strcmp(info.name, "scalar") == 0) {
            assert_int_equal(info.n_dims, 0);
            assert_ok(ofl_model_tensor_read(model, i, 0, 4, read));
            assert_true(read[0] == 3);
        }
        if (strcmp(info.name, "behind") == 0) assert_ok(ofl_model_tensor_read(model, i, 63, 1, &byte));
        if (strcmp(info.name, "empty") == 0) assert_int_equal(info.bytes, 0);
    }
    assert_int_equal(byte, 0);
    ofl_model_destroy(model);
}

static void test_every_allocation_may_fail(void **state)
{
    (void)state;
    static const char *const names[] = {"model.embed_tokens.weight", "model.layers.0.mlp.up_proj.weight"};
    const char *folder = folder_of("faults", "{" LLAMA ",\"tie_word_embeddings\":false}", names, 2);
    ofl_status status = OFL_ERROR_HOST_MEMORY;
    uint64_t nth = 0;
    for (int indexed = 0; indexed < 2; indexed++) {
        if (indexed)
            test_write_text(folder, "model.safetensors.index.json",
                            "{\"weight_map\":{\"model.embed_tokens.weight\":\"model.safetensors\"}}");
        status = OFL_ERROR_HOST_MEMORY;
        for (nth = 0; status == OFL_ERROR_HOST_MEMORY;) {
            ofl_model *model = NULL;
            (void)ofl_fault_allocation(++nth);
            status = ofl_model_open(folder, &model);
            (void)ofl_fault_allocation(0);
            assert_true((status == OFL_OK) == (model != NULL));
            ofl_model_destroy(model);
        }
        assert_ok(status);
        assert_true(nth > 15);
    }
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_roles),
    cmocka_unit_test(test_tie_is_what_is_stored),
    cmocka_unit_test(test_kv_by_config),
    cmocka_unit_test(test_recurrent_state),
    cmocka_unit_test(test_rope),
    cmocka_unit_test(test_nested_configs),
    cmocka_unit_test(test_packed_parameters),
    cmocka_unit_test(test_data_are_read),
    cmocka_unit_test(test_every_allocation_may_fail),
};
TEST_MAIN(tests)
