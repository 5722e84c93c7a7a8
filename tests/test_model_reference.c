/* Models that the reference writers made (tests/golden/make_reference.py) are read back with the same names, types, shapes, offsets and
 * bytes: test_model_reference [FOLDER], without it the few in tests/golden/reference. */
#include "support/support.h"

#include <cjson/cJSON.h>
#include <stdbool.h>

#include "base/sha256.h"
#include "model/model.h"

static const char *folder = OFLOAD_SOURCE_DIR "/tests/golden/reference";

static const cJSON *get(const cJSON *object, const char *key)
{
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(object, key);
    if (item == NULL) fail_msg("the manifest has no %s", key);
    return item;
}

static const char *text_of(const cJSON *object, const char *key) { return get(object, key)->valuestring; }
static uint64_t number_of(const cJSON *object, const char *key) { return (uint64_t)get(object, key)->valuedouble; }

static uint32_t find(const ofl_model *model, const char *name)
{
    for (uint32_t i = 0; i < ofl_model_tensor_count(model); i++) {
        if (strcmp(model->tensors[i].name, name) == 0) return i;
    }
    fail_msg("%s: tensor %s is not there", ofl_model_path(model), name);
    return 0;
}

static void check_tensor(const ofl_model *model, const cJSON *expected)
{
    ofl_tensor_info info = {.struct_size = sizeof info};
    const char *name = text_of(expected, "name");
    uint32_t index = find(model, name), d = 0;
    const cJSON *dim;
    assert_ok(ofl_model_tensor_get(model, index, &info));
    assert_string_equal(ofl_dtype_name(info.dtype), text_of(expected, "type"));
    cJSON_ArrayForEach (dim, get(expected, "dims")) {
        assert_true(d < info.n_dims);
        assert_int_equal(info.dims[d++], (uint64_t)dim->valuedouble);
    }
    assert_int_equal(info.n_dims, d);
    if (info.bytes != number_of(expected, "bytes") || model->tensors[index].at.offset != number_of(expected, "offset"))
        fail_msg("%s: %s: %llu bytes at %llu", ofl_model_path(model), name, (unsigned long long)info.bytes,
                 (unsigned long long)model->tensors[index].at.offset);
    char hash[OFL_SHA256_HEX], *data = malloc(info.bytes + 1);
    assert_non_null(data);
    assert_ok(ofl_model_tensor_read(model, index, 0, info.bytes, data));
    ofl_sha256_hex(data, info.bytes, hash);
    assert_string_equal(hash, text_of(expected, "sha256"));
    free(data);
}

static void print_value(const ofl_metadata *value, char *to, size_t room)
{
    switch (value->kind) {
    case OFL_METADATA_INT: (void)snprintf(to, room, "%lld", (long long)value->signed_value); break;
    case OFL_METADATA_STRING: (void)snprintf(to, room, "%s", value->string); break;
    default: (void)snprintf(to, room, "%llu", (unsigned long long)value->unsigned_value); break;
    }
}

static void check_key(const ofl_model *model, const cJSON *expected)
{
    ofl_metadata value = {.struct_size = sizeof value};
    char got[256];
    const char *text = text_of(expected, "text");
    assert_ok(ofl_model_metadata_get(model, text_of(expected, "key"), &value));
    if (value.kind == OFL_METADATA_FLOAT) {
        assert_true(value.float_value == strtod(text, NULL));
        return;
    }
    print_value(&value, got, sizeof got);
    assert_string_equal(got, text);
}

static int check_token(void *context, uint64_t index, const ofl_metadata *value)
{
    const cJSON *expected = cJSON_GetArrayItem(context, (int)index);
    assert_non_null(expected);
    assert_string_equal(value->string, expected->valuestring);
    return 0;
}

static void check_model(const cJSON *expected)
{
    char path[4096];
    ofl_model *model = NULL;
    const cJSON *item;
    (void)snprintf(path, sizeof path, "%s/%s", folder, text_of(expected, "path"));
    assert_ok(ofl_model_open(path, &model));
    assert_int_equal(ofl_model_tensor_count(model), cJSON_GetArraySize(get(expected, "tensors")));
    cJSON_ArrayForEach (item, get(expected, "tensors")) check_tensor(model, item);
    cJSON_ArrayForEach (item, get(expected, "keys")) check_key(model, item);
    cJSON *tokens = cJSON_GetObjectItemCaseSensitive(expected, "tokens");
    if (cJSON_GetArraySize(tokens) > 0) {
        ofl_metadata value = {.struct_size = sizeof value};
        assert_ok(ofl_model_metadata_get(model, "tokenizer.ggml.tokens", &value));
        assert_int_equal(value.count, cJSON_GetArraySize(tokens));
        assert_ok(ofl_model_metadata_each(model, "tokenizer.ggml.tokens", check_token, tokens));
    }
    ofl_model_destroy(model);
}

static void test_reference_files(void **state)
{
    (void)state;
    char path[4096];
    (void)snprintf(path, sizeof path, "%s/manifest.json", folder);
    char *text = test_read(path, NULL);
    cJSON *manifest = cJSON_Parse(text);
    const cJSON *model;
    assert_true(cJSON_GetArraySize(manifest) > 0);
    cJSON_ArrayForEach (model, manifest) check_model(model);
    cJSON_Delete(manifest);
    free(text);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_reference_files)};
    if (argc > 1) folder = argv[1];
    return cmocka_run_group_tests(tests, NULL, NULL) == 0 ? 0 : 1;
}
