/* Models with the same headers are told apart by their weights, whatever the fine-tune changed; where they lie does not count. */
#include "support/support.h"

#include <stdbool.h>
#include <unistd.h>

#include "batch/contents.h"
#include "support/safetensors_writer.h"

#define GOLDEN OFLOAD_SOURCE_DIR "/tests/golden/tiny_llama/"

static void hash_of(const char *path, char hex[HASH128_HEX_BYTES])
{
    ofl_model *model = NULL;
    assert_ok(ofl_model_open(path, &model));
    assert_ok(contents_hash(model, hex));
    assert_int_equal(strlen(hex), HASH128_HEX_BYTES - 1);
    ofl_model_destroy(model);
}

static void copy_file(const char *from, const char *to)
{
    size_t bytes;
    char *data = test_read(from, &bytes);
    test_write(to, data, bytes);
    free(data);
}

/* Of `path`, the file of the weights of the model at `model_path`: in the middle of the first block's q. */
static void change_q(const char *model_path, const char *path)
{
    ofl_model *model = NULL;
    uint32_t q;
    unsigned char middle[32];
    size_t bytes;
    ofl_tensor_info info = {.struct_size = sizeof info};
    assert_ok(ofl_model_open(model_path, &model));
    assert_ok(ofl_model_tensor_find(model, 0, OFL_ROLE_ATTN_Q, &q));
    assert_ok(ofl_model_tensor_get(model, q, &info));
    assert_ok(ofl_model_tensor_read(model, q, info.bytes / 2, sizeof middle, middle));
    ofl_model_destroy(model);
    char *data = test_read(path, &bytes), *at = memmem(data, bytes, middle, sizeof middle);
    assert_non_null(at);
    at[0] ^= 1;
    test_write(path, data, bytes);
    free(data);
}

static void test_files(void **state)
{
    (void)state;
    char gguf[HASH128_HEX_BYTES], folder[HASH128_HEX_BYTES], now[HASH128_HEX_BYTES], copied[512], in_folder[600];
    hash_of(GOLDEN "model.gguf", gguf);
    hash_of(GOLDEN, folder);
    assert_string_not_equal(gguf, folder);
    (void)snprintf(copied, sizeof copied, "%s", test_path("elsewhere.gguf"));
    copy_file(GOLDEN "model.gguf", copied);
    hash_of(copied, now);
    assert_string_equal(now, gguf);
    change_q(copied, copied);
    hash_of(copied, now);
    assert_string_not_equal(now, gguf);
    (void)snprintf(copied, sizeof copied, "%s", test_make_folder("moved"));
    (void)snprintf(in_folder, sizeof in_folder, "%s/config.json", copied);
    copy_file(GOLDEN "config.json", in_folder);
    (void)snprintf(in_folder, sizeof in_folder, "%s/model.safetensors", copied);
    copy_file(GOLDEN "model.safetensors", in_folder);
    hash_of(copied, now);
    assert_string_equal(now, folder);
    change_q(copied, in_folder);
    hash_of(copied, now);
    assert_string_not_equal(now, folder);
}

/* What cannot be read is said. */
static void test_reads_that_fail(void **state)
{
    (void)state;
    ofl_model *model = NULL;
    char hex[HASH128_HEX_BYTES], path[512];
    (void)snprintf(path, sizeof path, "%s", test_path("shrinks.gguf"));
    copy_file(GOLDEN "model.gguf", path);
    assert_ok(ofl_model_open(path, &model));
    assert_int_equal(truncate(path, 2000), 0);
    assert_status(contents_hash(model, hex), OFL_ERROR_IO);
    assert_non_null(strstr(app_error(), "shrinks.gguf"));
    ofl_model_destroy(model);
}

#define BLOCKS 40u
#define COLUMNS 64u
#define ROWS 128u
static const ofl_tensor_role roles[] = {OFL_ROLE_ATTN_NORM, OFL_ROLE_ATTN_Q, OFL_ROLE_ATTN_V, OFL_ROLE_FFN_DOWN};
#define ROLES (sizeof roles / sizeof *roles)
static float weights[BLOCKS][ROLES][ROWS * COLUMNS];

static void hash_built(char hex[HASH128_HEX_BYTES])
{
    ofl_model_shape shape = {.struct_size = sizeof shape, .block_count = BLOCKS, .hidden_size = COLUMNS, .head_count = 1, .head_count_kv = 1,
                             .head_dim_k = COLUMNS, .head_dim_v = COLUMNS, .ffn_size = ROWS, .vocab_size = 8, .trained_context_tokens = 64};
    ofl_model_builder *builder = NULL;
    ofl_model *model = NULL;
    assert_ok(ofl_model_builder_create("m", "llama", &shape, &builder));
    for (uint32_t i = 0; i < BLOCKS * ROLES; i++) {
        char name[32];
        bool vector = roles[i % ROLES] == OFL_ROLE_ATTN_NORM;
        (void)snprintf(name, sizeof name, "%u.%u", i / (uint32_t)ROLES, i % (uint32_t)ROLES);
        ofl_tensor_source source = {.struct_size = sizeof source, .name = name, .dtype = OFL_DTYPE_F32, .role = roles[i % ROLES],
                                    .block = (int32_t)(i / ROLES), .n_dims = vector ? 1 : 2, .dims = {COLUMNS, vector ? 0 : ROWS},
                                    .data = weights[i / ROLES][i % ROLES], .tensor_class = OFL_CLASS_DENSE};
        assert_ok(ofl_model_builder_add_tensor(builder, &source));
    }
    assert_ok(ofl_model_builder_finish(builder, &model));
    assert_ok(contents_hash(model, hex));
    ofl_model_destroy(model);
}

/* Of each role in every block, in the first one alone, and in the last one alone. */
static void test_changes_of_one_role(void **state)
{
    (void)state;
    char before[HASH128_HEX_BYTES], after[HASH128_HEX_BYTES];
    hash_built(before);
    for (uint32_t role = 0; role < ROLES; role++) {
        for (uint32_t where = 0; where < 3; where++) {
            uint32_t first = where == 2 ? BLOCKS - 1 : 0, end = where == 1 ? 1 : BLOCKS;
            uint64_t middle = roles[role] == OFL_ROLE_ATTN_NORM ? COLUMNS / 2 : ROWS * COLUMNS / 2;
            for (uint32_t block = first; block < end; block++) weights[block][role][middle] = 1;
            hash_built(after);
            assert_string_not_equal(before, after);
            for (uint32_t block = first; block < end; block++) weights[block][role][middle] = 0;
        }
    }
    hash_built(after);
    assert_string_equal(before, after);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_files),
    cmocka_unit_test(test_reads_that_fail),
    cmocka_unit_test(test_changes_of_one_role),
};
TEST_MAIN(tests)
