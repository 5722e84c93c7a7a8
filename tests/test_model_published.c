/* Published models: their real config.json and tensor lists as folders without data, against sizes computed elsewhere.
 * tests/golden/models/published.json: a list of {name, config, expect, tensors[pattern shape dtype axes]}; each '#' of a pattern runs over
 * one axis, a list of ranges. "Infinity!" in a config stands for the bare word that the published file has. */
#include "support/safetensors_writer.h"

#include <cjson/cJSON.h>
#include <inttypes.h>
#include <unistd.h>

#include "base/base.h"

#define MAX_AXES 3
#define FILES 3

/* Where the published files hold a second copy of a tied head, we count both: what is stored is placed (the config has no flag to say
 * otherwise). */
static bool stores_a_copied_head(const char *name)
{
    return strcmp(name, "tiiuae/falcon-40b") == 0 || strcmp(name, "bigcode/starcoder") == 0;
}

static uint64_t number(const cJSON *object, const char *key)
{
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(object, key);
    return cJSON_IsTrue(item) ? 1 : item != NULL ? (uint64_t)item->valuedouble : 0; /* all below 2^53 */
}

static uint64_t axis_value(const cJSON *axis, uint64_t index, bool *in_range)
{
    const cJSON *range;
    cJSON_ArrayForEach (range, axis) {
        uint64_t first = (uint64_t)range->child->valuedouble, count = (uint64_t)range->child->next->valuedouble - first + 1;
        if (index < count) return first + index;
        index -= count;
    }
    *in_range = false;
    return 0;
}

static void put_name(char *to, size_t room, const char *pattern, const uint64_t *values)
{
    size_t used = 0, axis = 0;
    for (; *pattern != '\0' && used + 24 < room; pattern++) {
        if (*pattern == '#') used += (size_t)snprintf(to + used, room - used, "%" PRIu64, values[axis++]);
        else to[used++] = *pattern;
    }
    to[used] = '\0';
}

typedef struct folder {
    const char *path;
    safetensors_writer files[FILES];
    FILE *index;
    uint64_t tensors;
} folder;

static void add(folder *to, const char *name, const cJSON *row)
{
    uint64_t shape[8], elements = 1, bytes = 0;
    uint32_t dims = 0;
    const cJSON *dim;
    const char *dtype = cJSON_GetArrayItem(row, 2)->valuestring;
    cJSON_ArrayForEach (dim, cJSON_GetArrayItem(row, 1)) {
        shape[dims] = (uint64_t)dim->valuedouble;
        elements *= shape[dims++];
    }
    bytes = elements * (strcmp(dtype, "F32") == 0 || strcmp(dtype, "I32") == 0 ? 4 : strstr(dtype, "8") != NULL ? 1 : 2);
    unsigned file = (unsigned)(to->tensors % FILES);
    safetensors_tensor(&to->files[file], name, dtype, dims, shape, NULL, bytes);
    (void)fprintf(to->index, "%s\"%s\":\"model-%u.safetensors\"", to->tensors > 0 ? "," : "", name, file);
    to->tensors++;
}

/* The last axis runs fastest. */
static void add_row(folder *to, const cJSON *row)
{
    const cJSON *axes = cJSON_GetArrayItem(row, 3);
    int count = cJSON_GetArraySize(axes);
    uint64_t at[MAX_AXES] = {0}, values[MAX_AXES];
    assert_true(count <= MAX_AXES);
    for (;;) {
        int overflowed = -1;
        for (int i = 0; i < count; i++) {
            bool in_range = true;
            values[i] = axis_value(cJSON_GetArrayItem(axes, i), at[i], &in_range);
            if (!in_range) overflowed = i;
        }
        if (overflowed == 0) return;
        if (overflowed > 0) {
            at[overflowed] = 0;
            at[overflowed - 1]++;
            continue;
        }
        char name[256];
        put_name(name, sizeof name, cJSON_GetArrayItem(row, 0)->valuestring, values);
        add(to, name, row);
        if (count == 0) return;
        at[count - 1]++;
    }
}

static void write_config(const char *path, const cJSON *config)
{
    char *text = cJSON_PrintUnformatted(config), *word = strstr(text, "\"Infinity!\"");
    if (word != NULL) memcpy(word, " Infinity  ", 11);
    test_write_text(path, "config.json", text);
    cJSON_free(text);
}

static const char *write_folder(const cJSON *model)
{
    folder to = {.path = test_make_folder("published")};
    char path[768];
    const cJSON *row;
    write_config(to.path, cJSON_GetObjectItemCaseSensitive(model, "config"));
    (void)snprintf(path, sizeof path, "%s/model.safetensors.index.json", to.path);
    to.index = fopen(path, "wb");
    assert_non_null(to.index);
    (void)fprintf(to.index, "{\"metadata\":{\"total_size\":0},\"weight_map\":{");
    for (unsigned i = 0; i < FILES; i++) safetensors_start(&to.files[i]);
    cJSON_ArrayForEach (row, cJSON_GetObjectItemCaseSensitive(model, "tensors")) add_row(&to, row);
    for (unsigned i = 0; i < FILES; i++) {
        (void)snprintf(path, sizeof path, "%s/model-%u.safetensors", to.path, i);
        safetensors_save(&to.files[i], path);
        safetensors_end(&to.files[i]);
    }
    (void)fprintf(to.index, "}}");
    assert_int_equal(fclose(to.index), 0);
    return to.path;
}

static void check(const char *model, const char *what, uint64_t got, uint64_t expected)
{
    if (got != expected) fail_msg("%s: %s is %" PRIu64 ", expected %" PRIu64, model, what, got, expected);
}

static void check_kv(const ofl_model *model, const char *name, const cJSON *expect, uint64_t longest)
{
    uint64_t bytes = 0;
    const cJSON *per_token =
        cJSON_GetObjectItemCaseSensitive(expect, "kv_bytes_per_token"); /* null where windows make it depend on the context */
    assert_ok(ofl_model_kv_bytes_per_token(model, OFL_KV_F16, &bytes));
    if (cJSON_IsNumber(per_token)) check(name, "KV of a token", bytes, (uint64_t)per_token->valuedouble);
    assert_ok(ofl_model_kv_bytes(model, OFL_KV_BF16, longest < 4096 ? longest : 4096, &bytes));
    check(name, "KV of 4,096 tokens", bytes, number(expect, "kv_bytes_4096"));
    assert_ok(ofl_model_kv_bytes(model, OFL_KV_F16, longest, &bytes));
    check(name, "KV of the longest context", bytes, number(expect, "kv_bytes_max_context"));
    assert_ok(ofl_model_state_bytes(model, &bytes));
    check(name, "state", bytes, number(expect, "state_bytes_per_sequence"));
}

static void check_model(const cJSON *golden)
{
    const char *name = cJSON_GetObjectItemCaseSensitive(golden, "name")->valuestring;
    const cJSON *expect = cJSON_GetObjectItemCaseSensitive(golden, "expect");
    ofl_model *model = NULL;
    ofl_status status = ofl_model_open(write_folder(golden), &model);
    if (status != OFL_OK) fail_msg("%s: %s", name, ofl_error_message());
    uint64_t all = 0, used = 0;
    for (uint32_t i = 0; i < ofl_model_tensor_count(model); i++) {
        ofl_tensor_info info = {.struct_size = sizeof info};
        assert_ok(ofl_model_tensor_get(model, i, &info));
        assert_int_equal(info.row_count * info.row_bytes, info.bytes);
        all += info.bytes;
        if (info.tensor_class != OFL_CLASS_UNUSED) used += info.bytes;
    }
    ofl_model_shape shape = {.struct_size = sizeof shape};
    assert_ok(ofl_model_shape_get(model, &shape));
    check(name, "weight bytes", all, number(expect, "weight_bytes"));
    check(name, "longest context", shape.trained_context_tokens, number(expect, "max_context"));
    if (stores_a_copied_head(name)) {
        check(name, "used bytes", used, all);
    } else {
        check(name, "used bytes", used, number(expect, "weight_bytes_text"));
        check(name, "parameters", shape.parameter_count, number(expect, "parameters"));
        check(name, "tied output", shape.tied_output, number(expect, "tied_output"));
    }
    check_kv(model, name, expect, shape.trained_context_tokens);
    ofl_model_destroy(model);
}

static void test_published_models(void **state)
{
    (void)state;
    char *text = test_read(OFLOAD_SOURCE_DIR "/tests/golden/models/published.json", NULL);
    cJSON *golden = cJSON_Parse(text);
    assert_true(cJSON_IsArray(golden));
    const cJSON *model;
    int checked = 0;
    cJSON_ArrayForEach (model, golden) {
        check_model(model);
        checked++;
    }
    assert_int_equal(checked, 48);
    cJSON_Delete(golden);
    free(text);
}

static const struct CMUnitTest tests[] = {cmocka_unit_test(test_published_models)};
TEST_MAIN(tests)
