/* Cases of the field that the tests of one format do not show by themselves; tests/README.md says where each case is tested. */
#include "support/gguf_writer.h"
#include "support/published.h"

#include <malloc.h>
#include <stdbool.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/base.h"

#define SMALL "\"model_type\":\"llama\",\"hidden_size\":64,\"num_hidden_layers\":1,\"num_attention_heads\":4"

static const char *in(const char *folder, const char *name)
{
    static char paths[8][768];
    static unsigned next;
    char *path = paths[next++ % 8];
    (void)snprintf(path, sizeof paths[0], "%s/%s", folder, name);
    return path;
}

static ofl_model *opened(const char *path)
{
    ofl_model *model = NULL;
    assert_ok(ofl_model_open(path, &model));
    return model;
}

static ofl_model_shape shape_of(const ofl_model *model)
{
    ofl_model_shape shape = {.struct_size = sizeof shape};
    assert_ok(ofl_model_shape_get(model, &shape));
    return shape;
}

static uint64_t bytes_of(const ofl_model *model)
{
    uint64_t sum = 0;
    for (uint32_t i = 0; i < ofl_model_tensor_count(model); i++) {
        ofl_tensor_info info = {.struct_size = sizeof info};
        assert_ok(ofl_model_tensor_get(model, i, &info));
        sum += info.bytes;
    }
    return sum;
}

/* One tensor in a folder of its own file; shape rows × columns. */
typedef struct part {
    const char *name, *dtype;
    uint64_t rows, columns, bytes;
} part;

static void write_file(const char *path, const part *parts, size_t count)
{
    safetensors_writer writer;
    safetensors_start(&writer);
    for (size_t i = 0; i < count; i++)
        safetensors_tensor(&writer, parts[i].name, parts[i].dtype, 2, (const uint64_t[]){parts[i].rows, parts[i].columns}, NULL,
                           parts[i].bytes);
    safetensors_save(&writer, path);
    safetensors_end(&writer);
}

static const char *folder_of(const char *name, const char *config, const part *parts, size_t count)
{
    const char *folder = test_make_folder(name);
    write_file(in(folder, "model.safetensors"), parts, count);
    test_write_text(folder, "config.json", config);
    return folder;
}

static void check_kv(const char *config, uint64_t context, uint64_t bytes)
{
    static const part one[] = {{"model.embed_tokens.weight", "BF16", 2, 8, 32}};
    ofl_model *model = opened(folder_of("kv", config, one, 1));
    uint64_t got = 0;
    assert_ok(ofl_model_kv_bytes(model, OFL_KV_F16, context, &got));
    assert_int_equal(got, bytes);
    ofl_model_destroy(model);
}

/* 24 (iii), 28: a head_dim of its own; a window that is switched off. */
static void test_kv(void **state)
{
    (void)state;
    check_kv("{\"model_type\":\"qwen3\",\"hidden_size\":2560,\"num_hidden_layers\":36,\"num_attention_heads\":32,\"num_key_value_heads\":8,"
             "\"head_dim\":128}",
             1, 147456);
    check_kv("{" SMALL ",\"use_sliding_window\":false,\"sliding_window\":16,\"max_window_layers\":0}", 100, 100 * 2 * 64 * 2);
}

/* 20: an array that is shorter than block_count. */
static void test_short_array(void **state)
{
    (void)state;
    gguf_writer writer;
    ofl_model *model = NULL;
    gguf_start(&writer);
    gguf_key_string(&writer, "general.architecture", "lfm2");
    gguf_key_u32(&writer, "lfm2.block_count", 3);
    gguf_key_u32(&writer, "lfm2.embedding_length", 64);
    gguf_key_u32(&writer, "lfm2.attention.head_count", 4);
    gguf_key_u32_array(&writer, "lfm2.attention.head_count_kv", (const uint32_t[]){0, 2}, 2);
    gguf_tensor(&writer, "token_embd.weight", 0, 1, (const uint64_t[]){8}, NULL, 32);
    gguf_save(&writer, test_path("short.gguf"));
    gguf_end(&writer);
    assert_status(ofl_model_open(test_path("short.gguf"), &model), OFL_ERROR_FORMAT);
    assert_non_null(strstr(ofl_error_message(), "2 elements for 3 layers"));
}

/* 33, 36: bits of packed weights wherever the config says them; bytes are the header's. */
static void test_packed(void **state)
{
    (void)state;
    static const part gptq[] = {{"model.layers.0.mlp.up_proj.qweight", "I32", 512, 4096, 8388608}};
    static const part packed[] = {{"model.layers.0.mlp.up_proj.weight_packed", "I32", 4096, 512, 8388608},
                                  {"model.layers.0.mlp.up_proj.weight_scale", "BF16", 4096, 32, 262144}};
    ofl_model *model = opened(
        folder_of("nested-bits", "{\"text_config\":{" SMALL ",\"quantization_config\":{\"quant_method\":\"gptq\",\"bits\":8}}}", gptq, 1));
    assert_int_equal(shape_of(model).parameter_count, 8388608);
    assert_int_equal(bytes_of(model), 8388608);
    ofl_model_destroy(model);
    model = opened(folder_of(
        "num-bits", "{" SMALL ",\"quantization_config\":{\"config_groups\":{\"group_0\":{\"weights\":{\"num_bits\":4}}}}}", packed, 2));
    assert_int_equal(shape_of(model).parameter_count, 16777216);
    assert_int_equal(bytes_of(model), 8388608 + 262144);
    ofl_model_destroy(model);
}

static void add_as_f32(void *context, const published_tensor *tensor)
{
    safetensors_tensor(context, tensor->name, "F32", tensor->n_dims, tensor->shape, NULL, tensor->bytes * 2);
}

/* 34: whatever the config says of dtypes, weights are what the headers say. */
static void test_stored_type(void **state)
{
    (void)state;
    static const char *const says[] = {"\"dtype\":\"float32\"", "\"torch_dtype\":\"torch.bfloat16\"",
                                       "\"dtype\":\"bfloat16\",\"torch_dtype\":\"float16\"", "\"x\":0"};
    cJSON *golden = published_models();
    const cJSON *model_golden = golden->child->next;
    assert_string_equal(cJSON_GetObjectItemCaseSensitive(model_golden, "name")->valuestring, "meta-llama/Llama-3.1-8B");
    const char *folder = test_make_folder("f32");
    safetensors_writer writer;
    safetensors_start(&writer);
    published_each(model_golden, add_as_f32, &writer);
    safetensors_save(&writer, in(folder, "model.safetensors"));
    safetensors_end(&writer);
    for (size_t i = 0; i < OFL_COUNT_OF(says); i++) {
        char config[512];
        (void)snprintf(config, sizeof config,
                       "{\"model_type\":\"llama\",\"hidden_size\":4096,\"num_hidden_layers\":32,\"num_attention_heads\":32,%s}", says[i]);
        test_write_text(folder, "config.json", config);
        ofl_model *model = opened(folder);
        assert_int_equal(bytes_of(model), UINT64_C(32121044992));
        assert_int_equal(shape_of(model).parameter_count, UINT64_C(8030261248));
        ofl_model_destroy(model);
    }
    cJSON_Delete(golden);
}

/* 38: what is stored is counted, whatever the flag says. */
static void test_tie_bytes(void **state)
{
    (void)state;
    static const part both[] = {{"model.embed_tokens.weight", "BF16", 1000, 64, 128000}, {"lm_head.weight", "BF16", 1000, 64, 128000}};
    static const struct {
        const char *flag;
        size_t stored;
        uint64_t bytes;
    } cases[] = {{",\"tie_word_embeddings\":true", 2, 256000},
                 {"", 2, 256000},
                 {",\"tie_word_embeddings\":true", 1, 128000},
                 {",\"tie_word_embeddings\":false", 1, 128000}};
    for (size_t i = 0; i < OFL_COUNT_OF(cases); i++) {
        char config[256];
        (void)snprintf(config, sizeof config, "{" SMALL "%s}", cases[i].flag);
        ofl_model *model = opened(folder_of("tie", config, both, cases[i].stored));
        assert_int_equal(bytes_of(model), cases[i].bytes);
        uint32_t head = 0;
        assert_ok(ofl_model_tensor_find(model, 1, OFL_ROLE_OUTPUT, &head));
        ofl_model_destroy(model);
    }
}

/* 40: one matrix that is head and embedding: once among the dense weights, read in every step, and looked up too. */
static void test_tied_gguf(void **state)
{
    (void)state;
    const uint64_t dims[2] = {2304, 256000}, bytes = UINT64_C(1179648000);
    gguf_writer writer;
    size_t header = 0;
    gguf_start(&writer);
    gguf_key_string(&writer, "general.architecture", "gemma2");
    gguf_key_u32(&writer, "gemma2.block_count", 26);
    gguf_key_u32(&writer, "gemma2.embedding_length", 2304);
    gguf_key_u32(&writer, "gemma2.attention.head_count", 8);
    gguf_tensor_at(&writer, "token_embd.weight", 1, 2, dims, 0);
    free(gguf_bytes(&writer, &header));
    gguf_save(&writer, test_path("tied.gguf"));
    gguf_end(&writer);
    assert_int_equal(truncate(test_path("tied.gguf"), (off_t)(header + bytes)), 0);
    ofl_model *model = opened(test_path("tied.gguf"));
    ofl_tensor_info info = {.struct_size = sizeof info};
    assert_ok(ofl_model_tensor_get(model, 0, &info));
    assert_int_equal(info.bytes, bytes);
    assert_int_equal(info.tensor_class, OFL_CLASS_DENSE);
    assert_int_equal(info.also_lookup, 1);
    assert_int_equal(ofl_model_tensor_count(model), 1);
    ofl_model_destroy(model);
}

/* 41: all experts are stored; what one token reads is for the speed alone. */
static void test_active_experts(void **state)
{
    (void)state;
    cJSON *golden = published_models();
    const cJSON *item, *mixtral = NULL;
    cJSON_ArrayForEach (item, golden) {
        if (strcmp(cJSON_GetObjectItemCaseSensitive(item, "name")->valuestring, "mistralai/Mixtral-8x7B-v0.1") == 0) mixtral = item;
    }
    ofl_model *model = opened(published_folder(mixtral));
    uint64_t all = bytes_of(model), experts = 0;
    double read = 0;
    assert_int_equal(all, UINT64_C(93405585408));
    assert_int_equal(shape_of(model).expert_used_count, 2);
    assert_ok(ofl_model_expert_bytes(model, &experts));
    assert_ok(ofl_model_expert_bytes_per_step(model, 1, &read));
    assert_int_equal((all - experts + (uint64_t)(read + 0.5)) / 2, UINT64_C(12879925248));
    ofl_model_destroy(model);
    cJSON_Delete(golden);
}

/* 45: copies of all kinds beside the files of the index. */
static void test_copies(void **state)
{
    (void)state;
    static const part first[] = {{"model.embed_tokens.weight", "U8", 2, 8, 16}}, second[] = {{"model.norm.weight", "U8", 1, 8, 8}};
    const part whole[] = {first[0], second[0]};
    const char *folder = folder_of("copies", "{" SMALL "}", whole, 2);
    write_file(in(folder, "model-00001-of-00002.safetensors"), first, 1);
    write_file(in(folder, "model-00002-of-00002.safetensors"), second, 1);
    write_file(in(folder, "consolidated.safetensors"), whole, 2);
    assert_int_equal(mkdir(in(folder, "original"), 0755), 0);
    write_file(in(folder, "original/model.safetensors"), whole, 2);
    test_write_text(folder, "model.safetensors.index.json",
                    "{\"weight_map\":{\"model.embed_tokens.weight\":\"model-00001-of-00002.safetensors\",\"model.norm.weight\":\"model-"
                    "00002-of-00002.safetensors\"}}");
    ofl_model *model = opened(folder);
    assert_int_equal(bytes_of(model), 24);
    assert_int_equal(ofl_model_tensor_count(model), 2);
    bool said = false;
    for (uint32_t i = 0; i < ofl_model_note_count(model); i++)
        said = said || strstr(ofl_model_note(model, i), "2 safetensors files are ignored") != NULL;
    assert_true(said);
    ofl_model_destroy(model);
}

/* 47: a file of nine bytes. */
static void test_nine_bytes(void **state)
{
    (void)state;
    ofl_model *model = NULL;
    const char *folder = folder_of("nine", "{" SMALL "}", NULL, 0);
    safetensors_save_raw(in(folder, "model.safetensors"), 2, "{", 1, 0);
    assert_status(ofl_model_open(folder, &model), OFL_ERROR_FORMAT);
    safetensors_save_raw(in(folder, "model.safetensors"), 1, "{", 1, 0);
    assert_status(ofl_model_open(folder, &model), OFL_ERROR_FORMAT);
}

/* A sanitizer takes memory of its own. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
static const bool sanitized = true;
#elif defined(__has_feature)
static const bool sanitized = __has_feature(address_sanitizer) || __has_feature(thread_sanitizer);
#else
static const bool sanitized = false;
#endif

/* What one more process needs for opening it, in KiB. */
static long peak_of(const char *path)
{
    int answer[2];
    struct rusage before, after;
    long grown = -1;
    assert_int_equal(pipe(answer), 0);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        ofl_model *model = NULL;
        (void)getrusage(RUSAGE_SELF, &before);
        ofl_status status = ofl_model_open(path, &model);
        (void)getrusage(RUSAGE_SELF, &after);
        grown = status == OFL_OK || status == OFL_ERROR_UNSUPPORTED ? after.ru_maxrss - before.ru_maxrss : -1;
        _exit(write(answer[1], &grown, sizeof grown) == sizeof grown ? 0 : 1);
    }
    assert_int_equal(read(answer[0], &grown, sizeof grown), sizeof grown);
    (void)close(answer[0]);
    (void)close(answer[1]);
    assert_int_equal(waitpid(child, NULL, 0), child);
    assert_true(grown >= 0);
    return grown;
}

static void write_many(const char *folder, uint32_t tensors, const char *filler)
{
    char path[768], header_path[768];
    (void)snprintf(path, sizeof path, "%s/model.safetensors", folder);
    (void)snprintf(header_path, sizeof header_path, "%s/header", folder);
    FILE *file = fopen(header_path, "wb");
    assert_non_null(file);
    for (uint32_t i = 0; i < tensors; i++)
        (void)fprintf(file,
                      "%s\"model.layers.0.mlp.experts.%u.%s.up_proj.weight\":{\"dtype\":\"U8\",\"shape\":[1,1],\"data_offsets\":[%u,%u]}",
                      i > 0 ? "," : "{", (unsigned)i, filler, (unsigned)i, (unsigned)(i + 1));
    (void)fprintf(file, "}");
    assert_int_equal(fclose(file), 0);
    size_t bytes = 0;
    char *header = test_read(header_path, &bytes);
    safetensors_save_raw(path, bytes, header, bytes, tensors);
    free(header);
}

/* 15 and the limit of planning: a quarter of a million tensors, and names that fill the header, stay below 64 MiB. */
static void test_memory(void **state)
{
    (void)state;
    char long_name[300];
    const char *folder = test_make_folder("many");
    memset(long_name, 'n', sizeof long_name);
    long_name[sizeof long_name - 1] = '\0';
    test_write_text(folder, "config.json", "{" SMALL "}");
    write_many(folder, 200000, "x");
    ofl_model *model = opened(folder);
    assert_int_equal(ofl_model_tensor_count(model), 200000);
    ofl_model_destroy(model);
    malloc_trim(0);
    long peak = peak_of(folder);
    print_message("200,000 tensors: %ld KiB\n", peak);
    assert_true(peak > 1024 && (sanitized || peak < 64 * 1024));
    write_many(folder, 100000, long_name);
    assert_status(ofl_model_open(folder, &model), OFL_ERROR_UNSUPPORTED);
    assert_non_null(strstr(ofl_error_message(), "names and texts"));
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_kv),
    cmocka_unit_test(test_short_array),
    cmocka_unit_test(test_packed),
    cmocka_unit_test(test_stored_type),
    cmocka_unit_test(test_tie_bytes),
    cmocka_unit_test(test_tied_gguf),
    cmocka_unit_test(test_active_experts),
    cmocka_unit_test(test_copies),
    cmocka_unit_test(test_nine_bytes),
    cmocka_unit_test(test_memory),
};
TEST_MAIN(tests)
