#include "support/support.h"

#include <cjson/cJSON.h>
#include <strings.h>

#include "base/base.h"

#define SHAPE                                                                                                                              \
    "\"shape\":{\"block_count\":2,\"hidden_size\":64,\"head_count\":4,\"head_count_kv\":2,\"head_dim_k\":16,\"head_dim_v\":16,\"norm_"     \
    "epsilon\":1e-5,"                                                                                                                      \
    "\"rope_pairing\":\"interleaved\",\"trained_context_tokens\":4096}"
#define TENSOR "{\"name\":\"q\",\"dtype\":\"Q8_0\",\"dims\":[64,64],\"role\":\"attn_q\",\"block\":0}"

static ofl_status open_text(const char *text, ofl_model **out)
{
    test_write(test_path("d.json"), text, strlen(text));
    return ofl_model_open(test_path("d.json"), out);
}

static void test_good(void **state)
{
    (void)state;
    ofl_model *model = NULL;
    assert_ok(open_text(
        " {\"schema\":\"ofload.model/1\",\"name\":\"Tiny\",\"architecture\":\"llama\",\"tensors\":["
        "{\"name\":\"e\",\"dtype\":\"BF16\",\"dims\":[64,100],\"class\":\"lookup\",\"role\":\"embedding\",\"block\":\"input\"}," TENSOR ","
        "{\"name\":\"x\",\"dtype\":\"F4\",\"dims\":[64,8,4],\"class\":\"expert\",\"role\":\"ffn_up\",\"block\":1},"
        "{\"name\":\"h\",\"dtype\":\"F16\",\"dims\":[64,100],\"role\":\"OUTPUT\",\"block\":\"output\"}],"
        "\"kv\":[{\"first\":1,\"count\":1,\"kind\":\"sliding\",\"head_count_kv\":1,\"k_elements\":16,\"v_elements\":16,\"window_tokens\":8}"
        "]," SHAPE "}",
        &model));
    assert_string_equal(ofl_model_name(model), "Tiny");
    assert_int_equal(ofl_model_format_get(model), OFL_FORMAT_DESCRIPTION);
    assert_int_equal(ofl_model_tensor_count(model), 4);
    ofl_model_shape shape = {.struct_size = sizeof shape};
    assert_ok(ofl_model_shape_get(model, &shape));
    assert_int_equal(shape.vocab_size, 100);
    assert_int_equal(shape.tied_output, 0);
    assert_int_equal(shape.rope_pairing, OFL_ROPE_INTERLEAVED);
    assert_true(shape.norm_epsilon == 1e-5);
    assert_int_equal(shape.trained_context_tokens, 4096);
    uint32_t index = 0;
    assert_ok(ofl_model_tensor_find(model, 2, OFL_ROLE_OUTPUT, &index));
    assert_int_equal(index, 3);
    ofl_tensor_info info = {.struct_size = sizeof info};
    assert_ok(ofl_model_tensor_get(model, 1, &info));
    assert_int_equal(info.bytes, 64 * 68);
    uint64_t bytes = 0;
    assert_ok(ofl_model_kv_bytes(model, OFL_KV_F16, 100, &bytes));
    assert_int_equal(bytes, (100 * 64 + 8 * 32) * 2);
    char byte;
    assert_null(ofl_model_tensor_data(model, 0));
    assert_status(ofl_model_tensor_read(model, 0, 0, 1, &byte), OFL_ERROR_IO);
    ofl_model_destroy(model);
}

static void test_bad(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        ofl_status wanted;
        const char *word;
    } cases[] = {
        {"{}  ", OFL_ERROR_FORMAT, "schema"},
        {"{\"schema\":\"ofload.model/2\"}", OFL_ERROR_UNSUPPORTED, "ofload.model/2"},
        {"{\"schema\":\"ofload.model/1\",\"tensors\":[" TENSOR "]}", OFL_ERROR_FORMAT, "shape"},
        {"{\"schema\":\"ofload.model/1\"," SHAPE "}", OFL_ERROR_FORMAT, "no tensors"},
        {"{\"schema\":\"ofload.model/1\",\"extra\":1," SHAPE "}", OFL_ERROR_FORMAT, "extra"},
        {"{\"schema\":\"ofload.model/1\"," SHAPE ",\"tensors\":[" TENSOR "," TENSOR "]}", OFL_ERROR_FORMAT, "named q"},
        {"{\"schema\":\"ofload.model/1\"," SHAPE ",\"tensors\":[{\"name\":\"a\",\"dtype\":\"Q9\",\"dims\":[1],\"block\":0}]}",
         OFL_ERROR_UNSUPPORTED, "Q9"},
        {"{\"schema\":\"ofload.model/1\"," SHAPE ",\"tensors\":[{\"name\":\"a\",\"dtype\":\"Q8_0\",\"dims\":[33],\"block\":0}]}",
         OFL_ERROR_FORMAT, "33"},
        {"{\"schema\":\"ofload.model/1\"," SHAPE ",\"tensors\":[{\"name\":\"a\",\"dtype\":\"F32\",\"dims\":[1]}]}", OFL_ERROR_FORMAT,
         "missing"},
        {"{\"schema\":\"ofload.model/1\"," SHAPE ",\"tensors\":[{\"name\":\"a\",\"dtype\":\"F32\",\"dims\":[1],\"block\":-1}]}",
         OFL_ERROR_FORMAT, "block"},
        {"{\"schema\":\"ofload.model/1\"," SHAPE ",\"tensors\":[{\"name\":\"a\",\"dtype\":\"F32\",\"dims\":[1],\"block\":3}]}",
         OFL_ERROR_FORMAT, "block 3"},
        {"{\"schema\":\"ofload.model/1\"," SHAPE
         ",\"tensors\":[{\"name\":\"a\",\"dtype\":\"F32\",\"dims\":[1],\"block\":0,\"class\":\"x\"}]}",
         OFL_ERROR_FORMAT, "class"},
        {"{\"schema\":\"ofload.model/1\"," SHAPE
         ",\"tensors\":[{\"name\":\"a\",\"dtype\":\"F32\",\"dims\":[1],\"block\":0,\"role\":\"x\"}]}",
         OFL_ERROR_FORMAT, "role"},
        {"{\"schema\":\"ofload.model/1\"," SHAPE
         ",\"tensors\":[{\"name\":\"a\",\"dtype\":\"F32\",\"dims\":[18446744073709551615,2],\"block\":0}]}",
         OFL_ERROR_OVERFLOW, "a"},
        {"{\"schema\":\"ofload.model/1\"," SHAPE ",\"tensors\":[7]}", OFL_ERROR_FORMAT, "tensors"},
        {"{\"schema\":\"ofload.model/1\"," SHAPE ",\"tensors\":[" TENSOR "],\"kv\":[{\"first\":2,\"count\":1,\"kind\":\"full\"}]}",
         OFL_ERROR_FORMAT, "kv"},
        {"{\"schema\":\"ofload.model/1\"," SHAPE ",\"tensors\":[" TENSOR "],\"kv\":[{\"kind\":\"sliding\"}]}", OFL_ERROR_FORMAT, "window"},
        {"{\"schema\":\"ofload.model/1\"," SHAPE ",\"tensors\":[" TENSOR "],\"name\":\"a\",\"name\":\"b\"}", OFL_ERROR_FORMAT, "twice"},
        {"{\"schema\":\"ofload.model/1\",\"shape\":{\"block_count\":4294967296}}", OFL_ERROR_FORMAT, "block_count"},
        {"{\"schema\":\"ofload.model/1\",\"shape\":{\"block_count\":70000},\"tensors\":[" TENSOR "]}", OFL_ERROR_UNSUPPORTED, "70000"},
        {"{\"schema\":\"ofload.model/1\",\"shape\":{\"head_count\":1},\"tensors\":[" TENSOR "]}", OFL_ERROR_FORMAT, "block_count"},
        {"{\"schema\":\"ofload.model/1\"," SHAPE ",\"tensors\":[" TENSOR "],\"kv\":[{\"count\":65536},{}]}", OFL_ERROR_FORMAT,
         "more layers"},
        {"{\"schema\":\"ofload.model/1\",\"shape\":{\"blocks\":1}}", OFL_ERROR_FORMAT, "blocks"},
        {"{\"schema\":\"ofload.model/1\",\"shape\":{\"rope_pairing\":\"odd\"}}", OFL_ERROR_FORMAT, "odd"},
        {"{\"schema\":\"ofload.model/1\"", OFL_ERROR_FORMAT, "d.json"},
        {"not JSON", OFL_ERROR_FORMAT, "not a model"},
    };
    for (size_t i = 0; i < OFL_COUNT_OF(cases); i++) {
        ofl_model *model = NULL;
        ofl_status status = open_text(cases[i].text, &model);
        if (status != cases[i].wanted) fail_msg("%s: %s: %s", cases[i].text, ofl_status_name(status), ofl_error_message());
        if (strstr(ofl_error_message(), cases[i].word) == NULL)
            fail_msg("%s: \"%s\" is not in: %s", cases[i].text, cases[i].word, ofl_error_message());
        assert_null(model);
    }
}

static const cJSON *schema_part(const cJSON *schema, const char *const *path)
{
    for (; *path != NULL; path++) {
        schema = cJSON_GetObjectItemCaseSensitive(schema, *path);
        if (schema == NULL) fail_msg("the schema has no %s", *path);
    }
    return schema;
}

static void check_words(const cJSON *list, const char *const *words, size_t count)
{
    assert_int_equal(cJSON_GetArraySize(list), count);
    for (size_t i = 0; i < count; i++) {
        if (strcasecmp(cJSON_GetArrayItem(list, (int)i)->valuestring, words[i]) != 0) fail_msg("the schema lacks %s", words[i]);
    }
}

/* A description with this field in the place where the schema has it: the reader must know it. */
static void check_known(const char *format, const cJSON *fields)
{
    static const char *const values[] = {"1", "true", "\"x\"", "[1]"};
    const cJSON *field;
    cJSON_ArrayForEach (field, fields) {
        for (size_t i = 0; i < OFL_COUNT_OF(values); i++) {
            char entry[128], text[1024];
            ofl_model *model = NULL;
            (void)snprintf(entry, sizeof entry, "\"%s\":%s", field->string, values[i]);
            (void)snprintf(text, sizeof text, format, entry);
            ofl_status status = open_text(text, &model);
            if (status != OFL_OK && strstr(ofl_error_message(), "has no field") != NULL)
                fail_msg("%s: %s", field->string, ofl_error_message());
            ofl_model_destroy(model);
        }
    }
}

/* docs/model-description.schema.json and the reader know the same words and fields. */
static void test_schema(void **state)
{
    (void)state;
    static const char *const dtypes[] = {
#define WORD(name, value, text, elements, bits) text,
        OFL_DTYPE_LIST(WORD)
#undef WORD
    };
    static const char *const roles[] = {
#define WORD(name, text) #name,
        OFL_ROLE_LIST(WORD)
#undef WORD
    };
    char *text = test_read(OFLOAD_SOURCE_DIR "/docs/model-description.schema.json", NULL);
    cJSON *schema = cJSON_Parse(text);
    const cJSON *tensor = schema_part(schema, (const char *const[]){"properties", "tensors", "items", "properties", NULL});
    check_words(schema_part(tensor, (const char *const[]){"dtype", "enum", NULL}), dtypes, OFL_COUNT_OF(dtypes));
    check_words(schema_part(tensor, (const char *const[]){"role", "enum", NULL}), roles, OFL_COUNT_OF(roles));
    const cJSON *shape = schema_part(schema, (const char *const[]){"properties", "shape", "properties", NULL});
    assert_int_equal(cJSON_GetArraySize(shape), 30); /* all of ofl_model_shape but struct_size and tied_output */
    check_known("{\"shape\":{%s}}", shape);
    check_known("{\"tensors\":[{%s}]}", tensor);
    check_known("{\"kv\":[{%s}]}", schema_part(schema, (const char *const[]){"properties", "kv", "items", "properties", NULL}));
    check_known("{%s}", schema_part(schema, (const char *const[]){"properties", NULL}));
    cJSON_Delete(schema);
    free(text);
}

static void test_a_thousand_layers(void **state)
{
    (void)state;
    size_t room = 2000000, used = 0;
    char *text = malloc(room);
    used +=
        (size_t)snprintf(text, room,
                         "{\"schema\":\"ofload.model/"
                         "1\",\"shape\":{\"block_count\":1000,\"head_count_kv\":8,\"head_dim_k\":128,\"head_dim_v\":128},\"tensors\":[");
    for (int i = 0; i < 9000; i++)
        used += (size_t)snprintf(text + used, room - used,
                                 "%s{\"name\":\"b%d.%d\",\"dtype\":\"BF16\",\"dims\":[4096,4096],\"role\":\"ffn_up\",\"block\":%d}",
                                 i > 0 ? "," : "", i / 9, i % 9, i / 9);
    (void)snprintf(text + used, room - used, "]}");
    ofl_model *model = NULL;
    assert_ok(open_text(text, &model));
    free(text);
    assert_int_equal(ofl_model_tensor_count(model), 9000);
    uint32_t index = 0;
    assert_ok(ofl_model_tensor_find(model, 999, OFL_ROLE_FFN_UP, &index));
    assert_int_equal(index, 8991);
    ofl_model_destroy(model);
}

static void test_every_allocation_may_fail(void **state)
{
    (void)state;
    ofl_status status = OFL_ERROR_HOST_MEMORY;
    uint64_t nth = 0;
    test_write(test_path("d.json"), "", 0);
    ofl_model *model = NULL;
    assert_ok(open_text("{\"schema\":\"ofload.model/1\",\"name\":\"n\",\"architecture\":\"a\"," SHAPE ",\"tensors\":[" TENSOR
                        "],\"kv\":[{\"kind\":\"none\"}]}",
                        &model));
    ofl_model_destroy(model);
    while (status == OFL_ERROR_HOST_MEMORY) {
        model = NULL;
        (void)ofl_fault_allocation(++nth);
        status = ofl_model_open(test_path("d.json"), &model);
        (void)ofl_fault_allocation(0);
        assert_true((status == OFL_OK) == (model != NULL));
        ofl_model_destroy(model);
    }
    assert_ok(status);
    assert_true(nth > 10);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_good),
    cmocka_unit_test(test_bad),
    cmocka_unit_test(test_schema),
    cmocka_unit_test(test_a_thousand_layers),
    cmocka_unit_test(test_every_allocation_may_fail),
};
TEST_MAIN(tests)
