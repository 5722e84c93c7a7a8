/* Published models: their real config.json and tensor lists as folders without data, against sizes computed elsewhere. */
#include "support/published.h"

#include <inttypes.h>
#include <stdbool.h>

#include "base/base.h"

/* Where the published files hold a second copy of a tied head, we count both: what is stored is placed (the config has no flag to say
 * otherwise). */
static bool stores_a_copied_head(const char *name)
{
    return strcmp(name, "tiiuae/falcon-40b") == 0 || strcmp(name, "bigcode/starcoder") == 0;
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
    check(name, "KV of 4,096 tokens", bytes, published_number(expect, "kv_bytes_4096"));
    assert_ok(ofl_model_kv_bytes(model, OFL_KV_F16, longest, &bytes));
    check(name, "KV of the longest context", bytes, published_number(expect, "kv_bytes_max_context"));
    assert_ok(ofl_model_state_bytes(model, &bytes));
    check(name, "state", bytes, published_number(expect, "state_bytes_per_sequence"));
}

static void check_model(const cJSON *golden)
{
    const char *name = cJSON_GetObjectItemCaseSensitive(golden, "name")->valuestring;
    const cJSON *expect = cJSON_GetObjectItemCaseSensitive(golden, "expect");
    ofl_model *model = NULL;
    ofl_status status = ofl_model_open(published_folder(golden), &model);
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
    check(name, "weight bytes", all, published_number(expect, "weight_bytes"));
    check(name, "longest context", shape.trained_context_tokens, published_number(expect, "max_context"));
    if (stores_a_copied_head(name)) {
        check(name, "used bytes", used, all);
    } else {
        check(name, "used bytes", used, published_number(expect, "weight_bytes_text"));
        check(name, "parameters", shape.parameter_count, published_number(expect, "parameters"));
        check(name, "tied output", shape.tied_output, published_number(expect, "tied_output"));
    }
    check_kv(model, name, expect, shape.trained_context_tokens);
    ofl_model_destroy(model);
}

static void test_published_models(void **state)
{
    (void)state;
    cJSON *golden = published_models();
    const cJSON *model;
    int checked = 0;
    cJSON_ArrayForEach (model, golden) {
        check_model(model);
        checked++;
    }
    assert_int_equal(checked, 48);
    cJSON_Delete(golden);
}

static const struct CMUnitTest tests[] = {cmocka_unit_test(test_published_models)};
TEST_MAIN(tests)
