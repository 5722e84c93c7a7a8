/* Folders that must be refused: each with a status and a sentence that names the file or field, none with a crash. */
#include "support/safetensors_writer.h"

#include <unistd.h>

#include "base/base.h"

#define CONFIG "{\"model_type\":\"llama\",\"hidden_size\":64,\"num_hidden_layers\":1,\"num_attention_heads\":4}"

static const char *folder;

static const char *in_folder(const char *name)
{
    static char paths[4][768];
    static unsigned next;
    char *path = paths[next++ % 4];
    (void)snprintf(path, sizeof paths[0], "%s/%s", folder, name);
    return path;
}

static void expect(const char *what, ofl_status wanted, const char *word)
{
    ofl_model *model = NULL;
    ofl_status status = ofl_model_open(folder, &model);
    if (status != wanted)
        fail_msg("%s: %s instead of %s: %s", what, ofl_status_name(status), ofl_status_name(wanted),
                 status != OFL_OK ? ofl_error_message() : "");
    if (status != OFL_OK && strstr(ofl_error_message(), word) == NULL)
        fail_msg("%s: \"%s\" is not in: %s", what, word, ofl_error_message());
    ofl_model_destroy(model);
}

static void fresh(const char *name, const char *config)
{
    folder = test_make_folder(name);
    test_write_text(folder, "config.json", config);
}

static void test_headers(void **state)
{
    (void)state;
    static const struct {
        const char *header;
        uint64_t data;
        ofl_status wanted;
        const char *word;
    } cases[] = {
        {"{\"a\":{\"dtype\":\"F99\",\"shape\":[4],\"data_offsets\":[18446744073709551552,18446744073709551615]}}", 16, OFL_ERROR_FORMAT,
         "outside"},
        {"{\"a\":{\"dtype\":\"F99\",\"shape\":[4],\"data_offsets\":[0,16]}}", 16, OFL_ERROR_UNSUPPORTED, "F99"},
        {"{\"a\":{\"dtype\":\"Q8_0\",\"shape\":[32],\"data_offsets\":[0,34]}}", 34, OFL_ERROR_UNSUPPORTED, "Q8_0"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[4],\"data_offsets\":[0,16]},\"b\":{\"dtype\":\"F32\",\"shape\":[4],\"data_offsets\":[0,16]}"
         "}",
         16, OFL_ERROR_FORMAT, "begins"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[4],\"data_offsets\":[64,80]}}", 80, OFL_ERROR_FORMAT, "begins"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[4],\"data_offsets\":[0,16]},\"b\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[20,24]}"
         "}",
         24, OFL_ERROR_FORMAT, "begins"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[4],\"data_offsets\":[0,16]}}", 32, OFL_ERROR_FORMAT, "follow"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[4],\"data_offsets\":[0,16]}}", 15, OFL_ERROR_FORMAT, "outside"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[4],\"data_offsets\":[0,17]}}", 17, OFL_ERROR_FORMAT, "span 17"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[4],\"data_offsets\":[16,0]}}", 16, OFL_ERROR_FORMAT, "outside"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[4],\"data_offsets\":[0,16,16]}}", 16, OFL_ERROR_UNSUPPORTED, "data_offsets"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[4],\"data_offsets\":[0]}}", 16, OFL_ERROR_FORMAT, "two numbers"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[-4],\"data_offsets\":[0,16]}}", 16, OFL_ERROR_FORMAT, "shape"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[4.0],\"data_offsets\":[0,16]}}", 16, OFL_ERROR_FORMAT, "4.0"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[4],\"data_offsets\":[0,1.6e1]}}", 16, OFL_ERROR_FORMAT, "1.6e1"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[4294967296,4294967296],\"data_offsets\":[0,0]}}", 0, OFL_ERROR_OVERFLOW, "overflow"},
        {"{\"a\":{\"dtype\":\"F64\",\"shape\":[4611686018427387904],\"data_offsets\":[0,0]}}", 0, OFL_ERROR_OVERFLOW, "a"},
        {"{\"a\":{\"dtype\":\"F4\",\"shape\":[3,1],\"data_offsets\":[0,1]}}", 1, OFL_ERROR_FORMAT, "within a byte"},
        {"{\"a\":{\"dtype\":\"U8\",\"shape\":[1,1,1,1,1,1,1,1,1],\"data_offsets\":[0,1]}}", 1, OFL_ERROR_UNSUPPORTED, "shape"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[4]}}", 16, OFL_ERROR_FORMAT, "missing"},
        {"{\"a\":{\"dtype\":\"F32\",\"dtype\":\"F32\",\"shape\":[4],\"data_offsets\":[0,16]}}", 16, OFL_ERROR_FORMAT, "twice"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[4],\"data_offsets\":[0,16]},\"a\":{\"dtype\":\"F32\",\"shape\":[4],\"data_offsets\":[16,32]}"
         "}",
         32, OFL_ERROR_FORMAT, "named a"},
        {"{\"a\":[]}", 0, OFL_ERROR_FORMAT, "a is of another kind"},
        {"{\"__metadata__\":{}}", 0, OFL_ERROR_FORMAT, "no tensors"},
        {"{}", 0, OFL_ERROR_FORMAT, "no tensors"},
        {"[]", 0, OFL_ERROR_FORMAT, "begin with {"},
        {" {}", 0, OFL_ERROR_FORMAT, "begin with {"},
        {"{} x", 0, OFL_ERROR_FORMAT, "follows"},
        {"{\"a", 0, OFL_ERROR_FORMAT, "string"},
    };
    fresh("headers", CONFIG);
    for (size_t i = 0; i < OFL_COUNT_OF(cases); i++) {
        safetensors_save_raw(in_folder("model.safetensors"), strlen(cases[i].header), cases[i].header, strlen(cases[i].header),
                             cases[i].data);
        expect(cases[i].header, cases[i].wanted, cases[i].word);
    }
}

static void test_small_types(void **state)
{
    (void)state;
    static const char header[] = "{\"a\":{\"dtype\":\"F8_E8M0\",\"shape\":[4],\"data_offsets\":[0,4]},\"b\":{\"dtype\":\"F4\",\"shape\":[2,"
                                 "8],\"data_offsets\":[4,12]},"
                                 "\"c\":{\"dtype\":\"F6_E2M3\",\"shape\":[4],\"data_offsets\":[12,15]},\"d\":{\"dtype\":\"C64\",\"shape\":["
                                 "2],\"data_offsets\":[15,31]}}   ";
    fresh("small", CONFIG);
    safetensors_save_raw(in_folder("model.safetensors"), sizeof header - 1, header, sizeof header - 1, 31);
    expect("small types", OFL_OK, "");
}

static void test_lengths(void **state)
{
    (void)state;
    static const struct {
        uint64_t field;
        size_t header;
    } cases[] = {{0, 2}, {1, 2}, {UINT64_MAX - 4, 2}, {3, 2}, {100000001, 2}, {UINT64_C(1) << 32, 2}, {2, 0}};
    fresh("lengths", CONFIG);
    for (size_t i = 0; i < OFL_COUNT_OF(cases); i++) {
        safetensors_save_raw(in_folder("model.safetensors"), cases[i].field, "{}", cases[i].header, 0);
        expect("header length", OFL_ERROR_FORMAT, "model.safetensors");
    }
    test_write(in_folder("model.safetensors"), "\2\0\0", 3);
    expect("3 bytes", OFL_ERROR_FORMAT, "too short");
    test_write(in_folder("model.safetensors"), "", 0);
    expect("empty", OFL_ERROR_FORMAT, "too short");
    static char deep[20000];
    memset(deep, '[', sizeof deep);
    memcpy(deep, "{\"a\":", 5);
    safetensors_save_raw(in_folder("model.safetensors"), sizeof deep, deep, sizeof deep, 0);
    expect("deep", OFL_ERROR_FORMAT, "another kind");
    memcpy(deep, "{\"a\":{\"x\":", 10);
    safetensors_save_raw(in_folder("model.safetensors"), sizeof deep, deep, sizeof deep, 0);
    expect("deep in an unknown field", OFL_ERROR_FORMAT, "deeply");
}

static void write_shard(const char *name, const char *first, const char *second)
{
    safetensors_writer writer;
    safetensors_start(&writer);
    safetensors_tensor(&writer, first, "U8", 1, (const uint64_t[]){4}, NULL, 4);
    if (second != NULL) safetensors_tensor(&writer, second, "U8", 1, (const uint64_t[]){8}, NULL, 8);
    safetensors_save(&writer, in_folder(name));
    safetensors_end(&writer);
}

static void test_index(void **state)
{
    (void)state;
    static const char index[] =
        "{\"metadata\":{\"total_size\":9007199254740993},\"weight_map\":{\"model.norm.weight\":\"a.safetensors\",\"x\":\"b.safetensors\"}}";
    fresh("index", CONFIG);
    test_write_text(folder, "model.safetensors.index.json", index);
    write_shard("a.safetensors", "model.norm.weight", NULL);
    expect("second file missing", OFL_ERROR_NOT_FOUND, "b.safetensors");
    test_write(in_folder("b.safetensors"), "", 0);
    expect("second file empty", OFL_ERROR_FORMAT, "b.safetensors");
    write_shard("b.safetensors", "y", NULL);
    expect("tensor not there", OFL_ERROR_FORMAT, "tensor x");
    write_shard("b.safetensors", "x", "model.norm.weight");
    expect("tensor in two files", OFL_ERROR_FORMAT, "model.norm.weight");
    test_write_text(folder, "model.safetensors.index.json",
                    "{\"weight_map\":{\"model.norm.weight\":\"a.safetensors\",\"x\":\"a.safetensors\",\"y\":\"b.safetensors\"}}");
    write_shard("b.safetensors", "x", "y");
    expect("tensor in another file", OFL_ERROR_FORMAT, "a.safetensors: does not hold tensor x");
    test_write_text(folder, "model.safetensors.index.json", index);
    write_shard("b.safetensors", "x", "stray");
    write_shard("model.safetensors", "model.norm.weight", "x"); /* a whole copy beside the parts */
    ofl_model *model = NULL;
    assert_ok(ofl_model_open(folder, &model));
    assert_int_equal(ofl_model_tensor_count(model), 2);
    bool stray = false, ignored = false;
    for (uint32_t i = 0; i < ofl_model_note_count(model); i++) {
        stray = stray || strstr(ofl_model_note(model, i), "stray") != NULL;
        ignored = ignored || strstr(ofl_model_note(model, i), "1 safetensors files are ignored") != NULL;
    }
    assert_true(stray && ignored);
    ofl_model_destroy(model);
    assert_int_equal(unlink(in_folder("model.safetensors.index.json")), 0);
    expect("several files and no index", OFL_ERROR_FORMAT, "a.safetensors, b.safetensors");
    static const char *const bad[] = {"{}",
                                      "[]",
                                      "{\"weight_map\":{\"x\":\"../b.safetensors\"}}",
                                      "{\"weight_map\":{\"x\":\"/etc/passwd\"}}",
                                      "{\"weight_map\":{\"x\":\"\"}}",
                                      "{\"weight_map\":{\"x\":1}}",
                                      "{\"weight_map\":[]}",
                                      "{\"weight_map\":{\"x\":\"b.safetensors\"}",
                                      "",
                                      "{\"weight_map\":{\"x\":\"b.safetensors\"},\"weight_map\":{}}"};
    for (size_t i = 0; i < OFL_COUNT_OF(bad); i++) {
        test_write_text(folder, "model.safetensors.index.json", bad[i]);
        expect(bad[i], OFL_ERROR_FORMAT, "index.json");
    }
}

static const struct {
    const char *config;
    ofl_status wanted;
    const char *word;
} bad_configs[] = {
    {"", OFL_ERROR_FORMAT, "config.json"},
    {"{", OFL_ERROR_FORMAT, "config.json"},
    {"[]", OFL_ERROR_FORMAT, "not an object"},
    {"{} x", OFL_ERROR_FORMAT, "JSON"},
    {"7", OFL_ERROR_FORMAT, "object"},
    {"{}", OFL_ERROR_FORMAT, "no text model"},
    {"{\"vision_config\":{\"num_hidden_layers\":3},\"audio_config\":{\"num_hidden_layers\":4}}", OFL_ERROR_FORMAT, "no text model"},
    {"{\"model_type\":\"lla\\u0000ma\",\"hidden_size\":64,\"num_hidden_layers\":1,\"num_attention_heads\":4}", OFL_ERROR_FORMAT, "NUL"},
    {"{\"hidden_size\":64,\"num_hidden_layers\":1}", OFL_ERROR_FORMAT, "num_attention_heads"},
    {"{\"hidden_size\":64,\"num_hidden_layers\":1,\"num_attention_heads\":0}", OFL_ERROR_FORMAT, "num_attention_heads"},
    {"{\"hidden_size\":64,\"num_hidden_layers\":1.5,\"num_attention_heads\":4}", OFL_ERROR_FORMAT, "num_hidden_layers"},
    {"{\"hidden_size\":64,\"num_hidden_layers\":-1,\"num_attention_heads\":4}", OFL_ERROR_FORMAT, "num_hidden_layers"},
    {"{\"hidden_size\":64,\"num_hidden_layers\":4294967295,\"num_attention_heads\":4}", OFL_ERROR_FORMAT, "num_hidden_layers"},
    {"{\"hidden_size\":64,\"num_hidden_layers\":1e300,\"num_attention_heads\":4}", OFL_ERROR_FORMAT, "num_hidden_layers"},
    {"{\"hidden_size\":Infinity,\"num_hidden_layers\":1,\"num_attention_heads\":4}", OFL_ERROR_FORMAT, "hidden_size"},
    {"{\"hidden_size\":NaN,\"num_hidden_layers\":1,\"num_attention_heads\":4}", OFL_ERROR_FORMAT, "hidden_size"},
    {"{\"hidden_size\":\"64\",\"num_hidden_layers\":1,\"num_attention_heads\":4}", OFL_ERROR_FORMAT, "hidden_size"},
    {"{\"hidden_size\":64,\"num_hidden_layers\":1,\"num_attention_heads\":4,\"num_key_value_heads\":0}", OFL_ERROR_FORMAT,
     "num_key_value_heads"},
    {"{\"hidden_size\":64,\"num_hidden_layers\":1,\"num_attention_heads\":4,\"num_key_value_heads\":3}", OFL_ERROR_FORMAT,
     "num_key_value_heads"},
    {"{\"hidden_size\":64,\"num_hidden_layers\":1,\"num_attention_heads\":4,\"num_key_value_heads\":8}", OFL_ERROR_FORMAT,
     "num_key_value_heads"},
    {"{\"hidden_size\":64,\"num_hidden_layers\":1,\"num_attention_heads\":128}", OFL_ERROR_FORMAT, "head_dim"},
    {"{\"hidden_size\":64,\"num_hidden_layers\":1,\"num_attention_heads\":4,\"layer_types\":[]}", OFL_ERROR_FORMAT, "layer_types"},
    {"{\"hidden_size\":64,\"num_hidden_layers\":1,\"num_attention_heads\":4,\"layer_types\":[\"odd\"]}", OFL_ERROR_UNSUPPORTED, "odd"},
    {"{\"hidden_size\":64,\"num_hidden_layers\":1,\"num_attention_heads\":4,\"layer_types\":[7]}", OFL_ERROR_UNSUPPORTED, "type"},
    {"{\"hidden_size\":64,\"num_hidden_layers\":2,\"num_attention_heads\":4,\"hybrid_override_pattern\":\"M*M\"}", OFL_ERROR_FORMAT,
     "hybrid_override_pattern"},
    {"{\"hidden_size\":64,\"num_hidden_layers\":2,\"num_attention_heads\":4,\"full_attn_idxs\":[2]}", OFL_ERROR_FORMAT,
     "full_attn_idxs"},
    {"{\"hidden_size\":64,\"num_hidden_layers\":2,\"num_attention_heads\":4,\"num_kv_shared_layers\":2}", OFL_ERROR_FORMAT,
     "num_kv_shared_layers"},
    {"{\"hidden_size\":64,\"num_hidden_layers\":2,\"num_attention_heads\":4,\"attn_type_list\":[0,1]}", OFL_ERROR_UNSUPPORTED,
     "attn_type_list"},
    {"{\"hidden_size\":64,\"num_hidden_layers\":1,\"num_attention_heads\":4,\"tie_word_embeddings\":1}", OFL_ERROR_FORMAT,
     "tie_word_embeddings"},
};

static void test_configs(void **state)
{
    (void)state;
    fresh("configs", CONFIG);
    write_shard("model.safetensors", "model.norm.weight", NULL);
    expect("good", OFL_OK, "");
    for (size_t i = 0; i < OFL_COUNT_OF(bad_configs); i++) {
        test_write_text(folder, "config.json", bad_configs[i].config);
        expect(bad_configs[i].config, bad_configs[i].wanted, bad_configs[i].word);
    }
    char deep[100001];
    memset(deep, '[', 100000);
    deep[100000] = '\0';
    test_write_text(folder, "config.json", deep);
    expect("100,000 brackets", OFL_ERROR_FORMAT, "deep");
    char page[4097]; /* ends in a digit at the end of a page */
    memset(page, ' ', 4096);
    page[4095] = '7';
    page[4096] = '\0';
    test_write_text(folder, "config.json", page);
    expect("a page", OFL_ERROR_FORMAT, "object");
    test_write(in_folder("config.json"), "{}\0{}", 5);
    expect("NUL", OFL_ERROR_FORMAT, "NUL");
    assert_int_equal(unlink(in_folder("config.json")), 0);
    expect("no config", OFL_ERROR_NOT_FOUND, "config.json");
    fresh("no-files", CONFIG);
    expect("no files", OFL_ERROR_NOT_FOUND, "safetensors");
}

static void test_tensor_beyond_the_layers(void **state)
{
    (void)state;
    fresh("beyond", CONFIG);
    write_shard("model.safetensors", "model.layers.1.mlp.up_proj.weight",
                "model.norm.weight"); /* one prediction layer may be there unannounced */
    expect("one more", OFL_OK, "");
    write_shard("model.safetensors", "model.layers.2.mlp.up_proj.weight", "model.norm.weight");
    expect("two more", OFL_ERROR_FORMAT, "model.layers.2.");
}

/* Random damage of header, index and config: any status, no crash (the sanitizers watch). */
static void test_damage(void **state)
{
    (void)state;
    static const char *const names[] = {"model.safetensors", "model.safetensors.index.json", "config.json"};
    fresh("damage",
          "{\"model_type\":\"gemma3_text\",\"hidden_size\":64,\"num_hidden_layers\":1,\"num_attention_heads\":4,\"sliding_window\":7,"
          "\"rope_scaling\":{\"type\":\"linear\",\"factor\":2},\"layer_types\":[\"full_attention\"]}");
    test_write_text(folder, "model.safetensors.index.json", "{\"weight_map\":{\"model.norm.weight\":\"model.safetensors\"}}");
    write_shard("model.safetensors", "model.norm.weight", NULL);
    uint64_t seed = 11;
    for (size_t f = 0; f < OFL_COUNT_OF(names); f++) {
        size_t bytes;
        char *text = test_read(in_folder(names[f]), &bytes);
        for (int round = 0; round < 1500; round++) {
            size_t at = (size_t)(test_random(&seed) % bytes);
            char before = text[at];
            text[at] = (char)test_random(&seed);
            test_write(in_folder(names[f]), text, bytes);
            ofl_model *model = NULL;
            (void)ofl_model_open(folder, &model);
            ofl_model_destroy(model);
            text[at] = before;
        }
        test_write(in_folder(names[f]), text, bytes);
        free(text);
    }
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_headers), cmocka_unit_test(test_small_types), cmocka_unit_test(test_lengths),
    cmocka_unit_test(test_index),   cmocka_unit_test(test_configs),     cmocka_unit_test(test_tensor_beyond_the_layers),
    cmocka_unit_test(test_damage),
};
TEST_MAIN(tests)
