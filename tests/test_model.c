#include "support/support.h"

#include "base/base.h"

static void test_dtype_bytes(void **state)
{
    (void)state;
    static const struct {
        ofl_dtype dtype;
        uint64_t elements, bytes;
    } cases[] = {
        {OFL_DTYPE_F32, 3, 12},
        {OFL_DTYPE_Q8_0, 64, 68},
        {OFL_DTYPE_Q4_K, 256, 144},
        {OFL_DTYPE_Q6_K, 512, 420},
        {OFL_DTYPE_MXFP4, UINT64_C(2880) * 2880 * 32, 141004800},
        {OFL_DTYPE_NVFP4, 64, 36},
        {OFL_DTYPE_IQ1_M, 256, 56},
        {OFL_DTYPE_Q8_1, 32, 36},
        {OFL_DTYPE_F4, 16, 8},
        {OFL_DTYPE_F6_E2M3, 4, 3},
        {OFL_DTYPE_F8_E8M0, 4, 4},
        {OFL_DTYPE_C64, 2, 16},
        {OFL_DTYPE_BOOL, 5, 5},
        {OFL_DTYPE_F32, 0, 0},
        {OFL_DTYPE_F6_E3M2, 12, 9},
    };
    for (size_t i = 0; i < OFL_COUNT_OF(cases); i++) {
        uint64_t bytes = 77;
        assert_ok(ofl_dtype_bytes(cases[i].dtype, cases[i].elements, &bytes));
        assert_int_equal(bytes, cases[i].bytes);
    }
    uint64_t untouched = 77;
    assert_status(ofl_dtype_bytes(OFL_DTYPE_Q8_0, 33, &untouched), OFL_ERROR_ARGUMENT);
    assert_status(ofl_dtype_bytes(OFL_DTYPE_F4, 3, &untouched), OFL_ERROR_ARGUMENT);
    assert_status(ofl_dtype_bytes(OFL_DTYPE_F64, UINT64_MAX / 4, &untouched), OFL_ERROR_OVERFLOW);
    assert_status(ofl_dtype_bytes((ofl_dtype)4, 32, &untouched), OFL_ERROR_ARGUMENT);
    assert_int_equal(untouched, 77);
    assert_string_equal(ofl_dtype_name((ofl_dtype)31), "?");
    assert_string_equal(ofl_dtype_name(OFL_DTYPE_F8_E4M3FNUZ), "F8_E4M3FNUZ");
    assert_int_equal(ofl_dtype_block_elements(OFL_DTYPE_Q2_0), 64);
    assert_int_equal(ofl_dtype_block_bits(OFL_DTYPE_Q1_0), 144);
    assert_true(ofl_dtype_holds_weights(OFL_DTYPE_BF16) && ofl_dtype_holds_weights(OFL_DTYPE_MXFP4));
    assert_true(!ofl_dtype_holds_weights(OFL_DTYPE_I32) && !ofl_dtype_holds_weights(OFL_DTYPE_F8_E8M0));
    assert_int_equal(ofl_dtype_holds_weights((ofl_dtype)31), 0);
}

static const float values[64] = {1, 2, 3};

static ofl_tensor_source source(const char *name, ofl_tensor_role role, int32_t block, uint64_t columns, uint64_t rows)
{
    return (ofl_tensor_source){.struct_size = sizeof(ofl_tensor_source),
                               .name = name,
                               .dtype = OFL_DTYPE_F32,
                               .role = role,
                               .block = block,
                               .n_dims = rows > 0 ? 2 : 1,
                               .dims = {columns, rows},
                               .data = values};
}

static ofl_model_shape small_shape(void)
{
    return (ofl_model_shape){.struct_size = sizeof(ofl_model_shape),
                             .block_count = 2,
                             .hidden_size = 8,
                             .head_count = 2,
                             .head_count_kv = 1,
                             .head_dim_k = 4,
                             .head_dim_v = 4,
                             .vocab_size = 8,
                             .tied_output = 1};
}

static ofl_status build(const ofl_model_shape *shape, ofl_model **out)
{
    ofl_model_builder *builder = NULL;
    ofl_status status = ofl_model_builder_create("tiny", "llama", shape, &builder);
    if (status != OFL_OK) return status;
    ofl_tensor_source embedding = source("embedding", OFL_ROLE_EMBEDDING, 2, 8, 8);
    embedding.also_lookup = 1;
    ofl_tensor_source sources[] = {source("norm", OFL_ROLE_OUTPUT_NORM, 2, 8, 0), embedding, source("b1", OFL_ROLE_FFN_UP, 1, 8, 4),
                                   source("b0.up", OFL_ROLE_FFN_UP, 0, 8, 4), source("b0.q", OFL_ROLE_ATTN_Q, 0, 8, 8)};
    sources[2].tensor_class = OFL_CLASS_DENSE;
    for (size_t i = 0; i < OFL_COUNT_OF(sources); i++) {
        status = ofl_model_builder_add_tensor(builder, &sources[i]);
        if (status != OFL_OK) {
            ofl_model_builder_destroy(builder);
            return status;
        }
    }
    return ofl_model_builder_finish(builder, out);
}

static void test_builder_orders_and_finds(void **state)
{
    (void)state;
    ofl_model *model = NULL;
    ofl_model_shape shape = small_shape();
    assert_ok(build(&shape, &model));
    static const char *const order[] = {"b0.up", "b0.q", "b1", "norm", "embedding"};
    assert_int_equal(ofl_model_tensor_count(model), OFL_COUNT_OF(order));
    for (uint32_t i = 0; i < OFL_COUNT_OF(order); i++) {
        ofl_tensor_info info = {.struct_size = sizeof info};
        assert_ok(ofl_model_tensor_get(model, i, &info));
        assert_string_equal(info.name, order[i]);
        assert_ptr_equal(ofl_model_tensor_data(model, i), values);
    }
    uint32_t index = 99;
    assert_ok(ofl_model_tensor_find(model, OFL_BLOCK_INPUT, OFL_ROLE_EMBEDDING, &index));
    assert_int_equal(index, 4);
    assert_ok(ofl_model_tensor_find(model, 2, OFL_ROLE_OUTPUT, &index));
    assert_int_equal(index, 4);
    assert_ok(ofl_model_tensor_find(model, 0, OFL_ROLE_ATTN_Q, &index));
    assert_int_equal(index, 1);
    assert_int_equal(ofl_model_tensor_find(model, 1, OFL_ROLE_ATTN_Q, &index), OFL_ERROR_NOT_FOUND);
    ofl_model_shape back = {.struct_size = sizeof back};
    assert_ok(ofl_model_shape_get(model, &back));
    assert_int_equal(back.parameter_count, 8 + 64 + 32 + 32 + 64);
    float read[2];
    assert_ok(ofl_model_tensor_read(model, 4, 4, 8, read));
    assert_true(read[0] == 2 && read[1] == 3);
    assert_status(ofl_model_tensor_read(model, 4, 252, 8, read), OFL_ERROR_ARGUMENT);
    assert_status(ofl_model_tensor_read(model, 4, UINT64_MAX, 2, read), OFL_ERROR_ARGUMENT);
    ofl_model_destroy(model);
}

static void test_builder_refuses(void **state)
{
    (void)state;
    ofl_model_shape shape = small_shape();
    ofl_model_builder *builder = NULL;
    assert_ok(ofl_model_builder_create("m", "llama", &shape, &builder));
    ofl_tensor_source bad = source("x", OFL_ROLE_OTHER, 0, 33, 2);
    bad.dtype = OFL_DTYPE_Q8_0;
    assert_status(ofl_model_builder_add_tensor(builder, &bad), OFL_ERROR_ARGUMENT);
    bad = source("x", OFL_ROLE_OTHER, 0, UINT64_MAX, 2);
    assert_status(ofl_model_builder_add_tensor(builder, &bad), OFL_ERROR_OVERFLOW);
    bad = source("x", OFL_ROLE_OTHER, 0, 8, 2);
    bad.data = NULL;
    bad.file = test_path("missing");
    assert_status(ofl_model_builder_add_tensor(builder, &bad), OFL_ERROR_NOT_FOUND);
    bad.file = test_path("short");
    test_write(bad.file, values, 63);
    assert_status(ofl_model_builder_add_tensor(builder, &bad), OFL_ERROR_ARGUMENT);
    ofl_tensor_source twice = source("twice", OFL_ROLE_OTHER, 0, 8, 2);
    assert_ok(ofl_model_builder_add_tensor(builder, &twice));
    assert_ok(ofl_model_builder_add_tensor(builder, &twice));
    ofl_model *model = (ofl_model *)(void *)&shape; /* whatever stood there before is gone */
    assert_status(ofl_model_builder_finish(builder, &model), OFL_ERROR_ARGUMENT);
    assert_null(model);
    shape.block_count = UINT32_MAX;
    assert_status(ofl_model_builder_create("m", "llama", &shape, &builder), OFL_ERROR_ARGUMENT);
    assert_null(builder);
}

static void test_builder_reads_files(void **state)
{
    (void)state;
    const char *path = test_path("weights.bin");
    test_write(path, values, sizeof values);
    ofl_model_shape shape = small_shape();
    ofl_model_builder *builder = NULL;
    ofl_model *model = NULL;
    assert_ok(ofl_model_builder_create("m", "llama", &shape, &builder));
    ofl_tensor_source tensor = source("x", OFL_ROLE_OTHER, 0, 8, 2);
    tensor.data = NULL;
    tensor.file = path;
    tensor.file_offset = 4;
    assert_ok(ofl_model_builder_add_tensor(builder, &tensor));
    assert_ok(ofl_model_builder_finish(builder, &model));
    float read[2];
    assert_ok(ofl_model_tensor_read(model, 0, 0, 8, read));
    assert_true(read[0] == 2 && read[1] == 3);
    assert_null(ofl_model_tensor_data(model, 0));
    test_write(path, values, sizeof values - 4);
    assert_status(ofl_model_tensor_read(model, 0, 0, 8, read), OFL_ERROR_IO);
    ofl_model_destroy(model);
}

/* block_count layers of one kind */
static ofl_model *model_of(uint32_t layers, const ofl_kv_layer *kinds, uint32_t period)
{
    ofl_model_shape shape = small_shape();
    shape.block_count = layers;
    ofl_model_builder *builder = NULL;
    ofl_model *model = NULL;
    assert_ok(ofl_model_builder_create("m", "x", &shape, &builder));
    ofl_tensor_source tensor = source("t", OFL_ROLE_OTHER, 0, 8, 0);
    assert_ok(ofl_model_builder_add_tensor(builder, &tensor));
    for (uint32_t i = 0; i < layers; i++) assert_ok(ofl_model_builder_set_kv_layer(builder, i, &kinds[i % period]));
    assert_ok(ofl_model_builder_finish(builder, &model));
    return model;
}

static uint64_t kv_of(const ofl_model *model, ofl_kv_type type, uint64_t context)
{
    uint64_t bytes = 0, sum = 0, layer_bytes = 0;
    ofl_model_shape shape = {.struct_size = sizeof shape};
    assert_ok(ofl_model_kv_bytes(model, type, context, &bytes));
    assert_ok(ofl_model_shape_get(model, &shape));
    for (uint32_t i = 0; i < shape.block_count; i++) {
        assert_ok(ofl_model_kv_layer_bytes(model, i, type, context, &layer_bytes));
        sum += layer_bytes;
    }
    assert_int_equal(sum, bytes);
    return bytes;
}

static void test_kv_geometry(void **state)
{
    (void)state;
    const uint32_t size = sizeof(ofl_kv_layer);
    const ofl_kv_layer qwen = {size, OFL_KV_FULL, 4, 512, 512, 0, 0};
    ofl_model *model = model_of(28, &qwen, 1);
    assert_int_equal(kv_of(model, OFL_KV_F16, 1), 57344);
    assert_int_equal(kv_of(model, OFL_KV_BF16, 100), 5734400);
    assert_int_equal(kv_of(model, OFL_KV_F32, 1), 114688);
    assert_int_equal(kv_of(model, OFL_KV_F8, 1), 28672);
    assert_int_equal(kv_of(model, OFL_KV_Q8_0, 1), 28 * 2 * (512 / 32) * 34);
    uint64_t bytes = 5;
    assert_status(ofl_model_kv_bytes(model, OFL_KV_F16, UINT64_MAX / 4, &bytes), OFL_ERROR_OVERFLOW);
    assert_status(ofl_model_kv_layer_bytes(model, 28, OFL_KV_F16, 1, &bytes), OFL_ERROR_ARGUMENT);
    assert_int_equal(bytes, 5);
    ofl_model_destroy(model);

    const ofl_kv_layer gemma[] = {{size, OFL_KV_SLIDING, 16, 2048, 2048, 1024, 0}, {size, OFL_KV_FULL, 16, 2048, 2048, 0, 0}};
    const ofl_kv_layer five_to_one[] = {gemma[0], gemma[0], gemma[0], gemma[0], gemma[0], gemma[1]};
    model = model_of(62, five_to_one, 6);
    assert_int_equal(kv_of(model, OFL_KV_F16, 131072), UINT64_C(11173625856));
    assert_true(kv_of(model, OFL_KV_F16, 99532) <= UINT64_C(8) << 30);
    assert_true(kv_of(model, OFL_KV_F16, 99533) > UINT64_C(8) << 30);
    ofl_model_destroy(model);

    const ofl_kv_layer latent = {size, OFL_KV_LATENT, 1, 576, 0, 0, 0};
    model = model_of(61, &latent, 1);
    assert_int_equal(kv_of(model, OFL_KV_F16, 65536), UINT64_C(4605345792));
    ofl_model_destroy(model);

    const ofl_kv_layer others[] = {
        {size, OFL_KV_CHUNKED, 1, 40, 33, 8192, 0}, {size, OFL_KV_SHARED, 1, 40, 40, 0, 0}, {size, OFL_KV_NONE, 0, 64, 64, 0, 2432}};
    model = model_of(3, others, 3);
    assert_int_equal(kv_of(model, OFL_KV_F16, 100000), 8192 * 2 * 73);
    assert_int_equal(kv_of(model, OFL_KV_Q8_0, 1), 2 * 2 * 34);
    assert_ok(ofl_model_state_bytes(model, &bytes));
    assert_int_equal(bytes, 2432);
    ofl_model_destroy(model);
}

static void test_identity(void **state)
{
    (void)state;
    ofl_model_shape shape = small_shape();
    ofl_model *first = NULL, *second = NULL, *third = NULL;
    assert_ok(build(&shape, &first));
    assert_ok(build(&shape, &second));
    assert_int_equal(strlen(ofl_model_identity(first)), 64);
    assert_string_equal(ofl_model_identity(first), ofl_model_identity(second));
    shape.head_dim_v = 8;
    assert_ok(build(&shape, &third));
    assert_string_not_equal(ofl_model_identity(first), ofl_model_identity(third));
    ofl_model_destroy(first);
    ofl_model_destroy(second);
    ofl_model_destroy(third);
}

static void test_every_allocation_may_fail(void **state)
{
    (void)state;
    ofl_model_shape shape = small_shape();
    ofl_status status = OFL_ERROR_HOST_MEMORY;
    uint64_t nth = 0;
    while (status == OFL_ERROR_HOST_MEMORY) {
        ofl_model *model = NULL;
        (void)ofl_fault_allocation(++nth);
        status = build(&shape, &model);
        (void)ofl_fault_allocation(0);
        assert_true((status == OFL_OK) == (model != NULL));
        ofl_model_destroy(model);
    }
    assert_ok(status);
    assert_true(nth > 5);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_dtype_bytes),
    cmocka_unit_test(test_builder_orders_and_finds),
    cmocka_unit_test(test_builder_refuses),
    cmocka_unit_test(test_builder_reads_files),
    cmocka_unit_test(test_kv_geometry),
    cmocka_unit_test(test_identity),
    cmocka_unit_test(test_every_allocation_may_fail),
};
TEST_MAIN(tests)
