/* Models out of stacks of matrices in the caller's memory, and tensors found by their address. */
#include "support/support.h"

#include "base/base.h"

enum { BLOCKS = 3, HIDDEN = 8, FFN = 16, VOCAB = 10 };

static float norms[BLOCKS][HIDDEN], wq[BLOCKS][HIDDEN][HIDDEN], up[BLOCKS][FFN][HIDDEN], final[HIDDEN], embedding[VOCAB][HIDDEN],
    head[VOCAB][HIDDEN];
static struct layer { float down[HIDDEN][FFN], other[5]; } layers[BLOCKS]; /* down matrices with something between them */

static ofl_model_shape shape_of(uint32_t blocks)
{
    return (ofl_model_shape){.struct_size = sizeof(ofl_model_shape),
                             .block_count = blocks,
                             .hidden_size = HIDDEN,
                             .head_count = 1,
                             .head_count_kv = 1,
                             .head_dim_k = HIDDEN,
                             .head_dim_v = HIDDEN,
                             .ffn_size = FFN,
                             .vocab_size = VOCAB,
                             .trained_context_tokens = 32};
}

static const ofl_stack all[] = {
    {OFL_ROLE_EMBEDDING, OFL_DTYPE_F32, embedding, VOCAB, HIDDEN, 0},
    {OFL_ROLE_ATTN_NORM, OFL_DTYPE_F32, norms, 1, HIDDEN, 0},
    {OFL_ROLE_ATTN_Q, OFL_DTYPE_F32, wq, HIDDEN, HIDDEN, 0},
    {OFL_ROLE_FFN_OTHER, OFL_DTYPE_F32, up, FFN, HIDDEN, 0},
    {OFL_ROLE_FFN_OTHER, OFL_DTYPE_F32, layers, HIDDEN, FFN, sizeof(struct layer)},
    {OFL_ROLE_OUTPUT_NORM, OFL_DTYPE_F32, final, 1, HIDDEN, 0},
    {OFL_ROLE_OUTPUT, OFL_DTYPE_F32, head, VOCAB, HIDDEN, 0},
};

static ofl_model *make(const ofl_stack *stacks, uint32_t count)
{
    ofl_model_shape shape = shape_of(BLOCKS);
    ofl_model *model = NULL;
    assert_ok(ofl_model_from_stacks("made", &shape, stacks, count, &model));
    return model;
}

static void expect_at(const ofl_model *model, const void *data, int32_t block, ofl_tensor_role role, uint64_t rows, uint64_t columns)
{
    uint32_t index;
    ofl_tensor_info info = {.struct_size = sizeof info};
    assert_ok(ofl_model_tensor_at(model, data, &index));
    assert_ok(ofl_model_tensor_get(model, index, &info));
    assert_ptr_equal(ofl_model_tensor_data(model, index), data);
    assert_int_equal(info.block, block);
    assert_int_equal(info.role, role);
    assert_int_equal(info.row_count, rows);
    assert_int_equal(info.row_bytes, columns * sizeof(float));
    assert_int_equal(info.tensor_class, role == OFL_ROLE_EMBEDDING && !info.also_lookup ? OFL_CLASS_LOOKUP : OFL_CLASS_DENSE);
}

static void test_every_block_has_its_own(void **state)
{
    (void)state;
    ofl_model *model = make(all, OFL_COUNT_OF(all));
    assert_int_equal(ofl_model_tensor_count(model), 3 + BLOCKS * 4);
    for (int b = 0; b < BLOCKS; b++) {
        expect_at(model, norms[b], b, OFL_ROLE_ATTN_NORM, 1, HIDDEN);
        expect_at(model, wq[b], b, OFL_ROLE_ATTN_Q, HIDDEN, HIDDEN);
        expect_at(model, up[b], b, OFL_ROLE_FFN_OTHER, FFN, HIDDEN);
        expect_at(model, layers[b].down, b, OFL_ROLE_FFN_OTHER, HIDDEN, FFN);
    }
    expect_at(model, embedding, OFL_BLOCK_INPUT, OFL_ROLE_EMBEDDING, VOCAB, HIDDEN);
    expect_at(model, final, BLOCKS, OFL_ROLE_OUTPUT_NORM, 1, HIDDEN);
    expect_at(model, head, BLOCKS, OFL_ROLE_OUTPUT, VOCAB, HIDDEN);
    uint32_t index = 77;
    assert_int_equal(ofl_model_tensor_at(model, &wq[0][1][0], &index), OFL_ERROR_NOT_FOUND);
    assert_int_equal(ofl_model_tensor_at(model, NULL, &index), OFL_ERROR_NOT_FOUND);
    assert_int_equal(index, 77);
    assert_status(ofl_model_tensor_at(model, wq, NULL), OFL_ERROR_ARGUMENT);
    ofl_model_destroy(model);
}

/* One address for both: one matrix, read whole as the head, its rows looked up. */
static void test_tied(void **state)
{
    (void)state;
    ofl_stack tied[OFL_COUNT_OF(all)];
    memcpy(tied, all, sizeof all);
    tied[OFL_COUNT_OF(all) - 1].data = embedding;
    ofl_model *model = make(tied, OFL_COUNT_OF(tied));
    ofl_model_shape shape = {.struct_size = sizeof shape};
    uint32_t input, output;
    assert_int_equal(ofl_model_tensor_count(model), 2 + BLOCKS * 4);
    assert_ok(ofl_model_tensor_find(model, OFL_BLOCK_INPUT, OFL_ROLE_EMBEDDING, &input));
    assert_ok(ofl_model_tensor_find(model, BLOCKS, OFL_ROLE_OUTPUT, &output));
    assert_int_equal(input, output);
    expect_at(model, embedding, BLOCKS, OFL_ROLE_EMBEDDING, VOCAB, HIDDEN);
    assert_ok(ofl_model_shape_get(model, &shape));
    assert_int_equal(shape.tied_output, 1);
    ofl_model_destroy(model);
}

/* What the shape says of the tie has to be so, and one address is one matrix. */
static void test_ties_that_are_none(void **state)
{
    (void)state;
    enum { HEAD = OFL_COUNT_OF(all) - 1 };
    ofl_stack stacks[OFL_COUNT_OF(all)];
    ofl_model_shape shape = shape_of(BLOCKS);
    ofl_model *model = NULL;
    shape.tied_output = 1;
    assert_status(ofl_model_from_stacks("bad", &shape, all, OFL_COUNT_OF(all), &model), OFL_ERROR_ARGUMENT); /* a head of its own */
    assert_non_null(strstr(ofl_error_message(), "tied_output"));
    assert_status(ofl_model_from_stacks("bad", &shape, all, HEAD, &model), OFL_ERROR_ARGUMENT); /* none */
    memcpy(stacks, all, sizeof all);
    stacks[HEAD].data = embedding;
    assert_ok(ofl_model_from_stacks("good", &shape, stacks, OFL_COUNT_OF(all), &model));
    ofl_model_destroy(model);
    for (int i = 0; i < 6; i++) {
        shape.tied_output = (uint32_t)i / 3;
        stacks[HEAD] = (ofl_stack){OFL_ROLE_OUTPUT, OFL_DTYPE_F32, embedding, VOCAB, HIDDEN, 0};
        if (i % 3 == 0) stacks[HEAD].rows--;
        if (i % 3 == 1) stacks[HEAD].columns /= 2;
        if (i % 3 == 2) stacks[HEAD].dtype = OFL_DTYPE_BF16;
        assert_status(ofl_model_from_stacks("bad", &shape, stacks, OFL_COUNT_OF(all), &model), OFL_ERROR_ARGUMENT);
        assert_non_null(strstr(ofl_error_message(), "one address"));
    }
}

static void refused(ofl_stack stack, uint32_t blocks, ofl_status status)
{
    ofl_model_shape shape = shape_of(blocks);
    ofl_model *model = (ofl_model *)(void *)&shape;
    assert_status(ofl_model_from_stacks("bad", &shape, &stack, 1, &model), status);
    assert_null(model);
}

static void test_what_is_refused(void **state)
{
    (void)state;
    const ofl_stack good = {OFL_ROLE_ATTN_Q, OFL_DTYPE_F32, wq, HIDDEN, HIDDEN, 0};
    ofl_stack bad = good;
    bad.data = NULL;
    refused(bad, 1, OFL_ERROR_ARGUMENT);
    bad = good;
    bad.rows = 0;
    refused(bad, 1, OFL_ERROR_ARGUMENT);
    bad = good;
    bad.role = OFL_ROLE_COUNT;
    refused(bad, 1, OFL_ERROR_ARGUMENT);
    bad = good;
    bad.dtype = (ofl_dtype)31;
    refused(bad, 1, OFL_ERROR_ARGUMENT);
    bad = good;
    bad.rows = bad.columns = UINT64_MAX / 2;
    refused(bad, 1, OFL_ERROR_OVERFLOW);
    bad = good;
    bad.stride_bytes = UINT64_MAX / 2;
    refused(bad, 3, OFL_ERROR_OVERFLOW);
    bad.stride_bytes = UINT64_MAX;
    refused(bad, 3, OFL_ERROR_OVERFLOW);
    bad.stride_bytes = HIDDEN * HIDDEN; /* elements, not bytes */
    refused(bad, 3, OFL_ERROR_ARGUMENT);
    bad = good;
    bad.data = (const void *)(UINTPTR_MAX - 16);
    refused(bad, 1, OFL_ERROR_OVERFLOW);
    refused(good, UINT32_MAX, OFL_ERROR_ARGUMENT);
    ofl_model_shape shape = shape_of(1);
    ofl_model *model = NULL;
    assert_status(ofl_model_from_stacks("bad", &shape, NULL, 1, &model), OFL_ERROR_ARGUMENT);
    assert_status(ofl_model_from_stacks("bad", &shape, &good, 0, &model), OFL_ERROR_ARGUMENT);
    assert_status(ofl_model_from_stacks("bad", NULL, &good, 1, &model), OFL_ERROR_ARGUMENT);
    assert_status(ofl_model_from_stacks("bad", &shape, &good, 1, NULL), OFL_ERROR_ARGUMENT);
}

static void test_every_allocation_may_fail(void **state)
{
    (void)state;
    ofl_model_shape shape = shape_of(BLOCKS);
    ofl_status status = OFL_ERROR_HOST_MEMORY;
    uint64_t nth = 0;
    while (status == OFL_ERROR_HOST_MEMORY) {
        ofl_model *model = NULL;
        (void)ofl_fault_allocation(++nth);
        status = ofl_model_from_stacks("made", &shape, all, OFL_COUNT_OF(all), &model);
        (void)ofl_fault_allocation(0);
        assert_true((status == OFL_OK) == (model != NULL));
        ofl_model_destroy(model);
    }
    assert_ok(status);
    assert_true(nth > 5);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_every_block_has_its_own),
    cmocka_unit_test(test_tied),
    cmocka_unit_test(test_ties_that_are_none),
    cmocka_unit_test(test_what_is_refused),
    cmocka_unit_test(test_every_allocation_may_fail),
};
TEST_MAIN(tests)
