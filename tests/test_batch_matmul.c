#include "support/support.h"

#include <math.h>

#include "batch/cpu/expand.h"
#include "batch/cpu/matmul.h"
#include "batch/cpu/tile.h"
#include "batch/cpu/vector.h"
#include "common/app_error.h"

#define WORKSPACE (4u << 20)

#define assert_app(call)                                                                                                                   \
    do {                                                                                                                                   \
        if ((call) != OFL_OK) fail_msg("%s: %s", #call, app_error());                                                                      \
    } while (0)

typedef struct trial {
    ofl_compute_type type;
    ofl_dtype dtype;
    uint32_t rows, columns, tokens;
    uint64_t row_bytes;
    uint8_t *weights;
    void *inputs;
    float *bias;
    double *wanted; /* tokens × rows */
} trial;

static float uniform(uint64_t *seed) { return (float)((double)(test_random(seed) >> 11) * 0x1p-53 - 0.5); }

static void *fresh(uint64_t bytes)
{
    void *memory = aligned_alloc(64, (bytes + 127) / 64 * 64);
    assert_non_null(memory);
    memset(memory, 0, bytes);
    return memory;
}

/* Random stored bytes; the scales of block types are kept small and finite. */
static void fill_weights(trial *t, uint64_t *seed)
{
    uint64_t bytes = t->rows * t->row_bytes, block = ofl_dtype_block_bits(t->dtype) / 8;
    for (uint64_t i = 0; i < bytes; i++) t->weights[i] = (uint8_t)test_random(seed);
    for (uint64_t i = 0; i < bytes; i += block) {
        float value = uniform(seed);
        uint16_t half = t->dtype == OFL_DTYPE_BF16 ? bf16_from_float(value) : f16_from_float(value * 0.05f);
        if (t->dtype == OFL_DTYPE_F32)
            memcpy(t->weights + i, &value, sizeof value);
        else
            memcpy(t->weights + i, &half, sizeof half);
        if (t->dtype == OFL_DTYPE_Q4_1) memcpy(t->weights + i + 2, &half, sizeof half);
    }
}

static void fill_inputs(trial *t, float *exact, uint64_t *seed)
{
    for (uint64_t i = 0; i < (uint64_t)t->tokens * t->columns; i++) {
        exact[i] = uniform(seed);
        if (t->type == OFL_COMPUTE_F32)
            ((float *)t->inputs)[i] = exact[i];
        else
            exact[i] = float_from_bf16(((uint16_t *)t->inputs)[i] = bf16_from_float(exact[i]));
    }
}

static void compute_wanted(trial *t, const float *exact)
{
    float *row = fresh(t->columns * sizeof *row);
    for (uint64_t r = 0; r < t->rows; r++) {
        expand_to_f32(t->dtype, t->weights + r * t->row_bytes, t->columns, row);
        for (uint32_t i = 0; i < t->columns && t->type == OFL_COMPUTE_BF16; i++) row[i] = float_from_bf16(bf16_from_float(row[i]));
        for (uint64_t n = 0; n < t->tokens; n++) {
            double sum = (double)t->bias[r];
            for (uint32_t i = 0; i < t->columns; i++) sum += (double)row[i] * (double)exact[n * t->columns + i];
            t->wanted[n * t->rows + r] = sum;
        }
    }
    free(row);
}

static trial make_trial(ofl_compute_type type, ofl_dtype dtype, uint32_t rows, uint32_t columns, uint32_t tokens)
{
    uint64_t seed = 7 + rows + columns, padded = (tokens + TILE_TOKENS - 1) / TILE_TOKENS * TILE_TOKENS;
    trial t = {.type = type, .dtype = dtype, .rows = rows, .columns = columns, .tokens = tokens};
    assert_ok(ofl_dtype_bytes(dtype, columns, &t.row_bytes));
    t.weights = fresh(rows * t.row_bytes);
    t.inputs = fresh(padded * columns * matmul_type_bytes(type));
    t.bias = fresh(rows * sizeof *t.bias);
    t.wanted = fresh((uint64_t)rows * tokens * sizeof *t.wanted);
    float *exact = fresh((uint64_t)tokens * columns * sizeof *exact);
    for (uint32_t r = 0; r < rows; r++) t.bias[r] = uniform(&seed);
    fill_weights(&t, &seed);
    fill_inputs(&t, exact, &seed);
    compute_wanted(&t, exact);
    free(exact);
    return t;
}

static void free_trial(trial *t)
{
    free(t->weights);
    free(t->inputs);
    free(t->bias);
    free(t->wanted);
}

/* Rows [first, first + rows) of tokens [token, token + tokens), into the place they have in the whole result. */
static void run_part(matmul *m, const trial *t, uint32_t first, uint32_t rows, uint32_t token, uint32_t tokens, float *outputs)
{
    uint64_t padded = (tokens + TILE_TOKENS - 1) / TILE_TOKENS * TILE_TOKENS, token_bytes = t->columns * matmul_type_bytes(t->type);
    void *inputs = fresh(padded * token_bytes);
    memcpy(inputs, (const uint8_t *)t->inputs + token * token_bytes, tokens * token_bytes);
    product p = {.weights = t->weights + first * t->row_bytes,
                 .dtype = t->dtype,
                 .rows = rows,
                 .columns = t->columns,
                 .inputs = inputs,
                 .tokens = tokens,
                 .outputs = outputs + (uint64_t)token * t->rows + first,
                 .stride = t->rows,
                 .bias = t->bias + first};
    assert_app(matmul_run(m, &p));
    free(inputs);
}

static double distance(const trial *t, const float *outputs)
{
    double above = 0, below = 0;
    for (uint64_t i = 0; i < (uint64_t)t->rows * t->tokens; i++) {
        above += ((double)outputs[i] - t->wanted[i]) * ((double)outputs[i] - t->wanted[i]);
        below += t->wanted[i] * t->wanted[i];
    }
    return sqrt(above / below);
}

/* Cuts of the rows and of the tokens: the same bits as the whole, on any number of threads. */
static void check_cuts(const trial *t, const float *whole, void *workspace)
{
    uint64_t bytes = (uint64_t)t->rows * t->tokens * sizeof(float);
    float *pieces = fresh(bytes);
    static const uint32_t cuts[][2] = {{1, 1}, {7, 3}, {64, 16}, {100, 17}, {1000, 1}};
    for (size_t c = 0; c < sizeof cuts / sizeof cuts[0]; c++) {
        matmul *m;
        assert_app(matmul_open(t->type, c % 2 == 0 ? 1 : 3, workspace, WORKSPACE, &m));
        memset(pieces, 0, bytes);
        for (uint32_t first = 0; first < t->rows; first += cuts[c][0]) {
            for (uint32_t token = 0; token < t->tokens; token += cuts[c][1])
                run_part(m, t, first, t->rows - first < cuts[c][0] ? t->rows - first : cuts[c][0], token,
                         t->tokens - token < cuts[c][1] ? t->tokens - token : cuts[c][1], pieces);
        }
        matmul_close(m);
        if (memcmp(pieces, whole, bytes) != 0)
            fail_msg("%s, %u columns, cut by %u rows and %u tokens: other bits", ofl_dtype_name(t->dtype), t->columns, cuts[c][0],
                     cuts[c][1]);
    }
    free(pieces);
}

static void check(ofl_compute_type type, ofl_dtype dtype, uint32_t rows, uint32_t columns, uint32_t tokens)
{
    trial t = make_trial(type, dtype, rows, columns, tokens);
    void *workspace = fresh(WORKSPACE);
    float *whole = fresh((uint64_t)rows * tokens * sizeof *whole);
    matmul *m;
    assert_app(matmul_open(type, 2, workspace, WORKSPACE, &m));
    run_part(m, &t, 0, rows, 0, tokens, whole);
    matmul_close(m);
    double error = distance(&t, whole);
    if (error > 1e-5) fail_msg("%s, %u × %u, %u tokens: relative error %g", ofl_dtype_name(dtype), rows, columns, tokens, error);
    check_cuts(&t, whole, workspace);
    free(whole);
    free(workspace);
    free_trial(&t);
}

static void test_f32_products(void **state)
{
    (void)state;
    check(OFL_COMPUTE_F32, OFL_DTYPE_F32, 150, 50, 19);
    check(OFL_COMPUTE_F32, OFL_DTYPE_F32, 70, 2050, 33);
    check(OFL_COMPUTE_F32, OFL_DTYPE_Q8_0, 130, 576, 5);
    check(OFL_COMPUTE_F32, OFL_DTYPE_BF16, 129, 64, 20);
}

static void test_bf16_products(void **state)
{
    (void)state;
    check(OFL_COMPUTE_BF16, OFL_DTYPE_BF16, 150, 50, 19);
    check(OFL_COMPUTE_BF16, OFL_DTYPE_BF16, 200, 1536, 40);
    check(OFL_COMPUTE_BF16, OFL_DTYPE_Q4_1, 192, 576, 17);
    check(OFL_COMPUTE_BF16, OFL_DTYPE_Q4_1, 100, 4096, 3);
    check(OFL_COMPUTE_BF16, OFL_DTYPE_F32, 65, 96, 16);
}

static void test_add_and_refusals(void **state)
{
    (void)state;
    trial t = make_trial(OFL_COMPUTE_F32, OFL_DTYPE_F32, 40, 32, 2);
    void *workspace = fresh(WORKSPACE);
    float *outputs = fresh(80 * sizeof *outputs);
    matmul *m;
    assert_app(matmul_open(OFL_COMPUTE_F32, 1, workspace, WORKSPACE, &m));
    for (int i = 0; i < 80; i++) outputs[i] = 3.0f;
    product p = {.weights = t.weights,
                 .dtype = t.dtype,
                 .rows = 40,
                 .columns = 32,
                 .inputs = t.inputs,
                 .tokens = 2,
                 .outputs = outputs,
                 .stride = 40,
                 .add = true};
    assert_app(matmul_run(m, &p));
    for (uint32_t i = 0; i < 80; i++) assert_true(fabs((double)outputs[i] - 3.0 - (t.wanted[i] - (double)t.bias[i % 40])) < 1e-5);
    matmul_close(m);
    assert_app(matmul_open(OFL_COMPUTE_F32, 1, workspace, 4096, &m));
    assert_int_equal(matmul_run(m, &p), OFL_ERROR_UNSUPPORTED);
    matmul_close(m);
    assert_int_equal(tile_rows(576), 64);
    assert_int_equal(tile_rows(8192), 16);
    free(outputs);
    free(workspace);
    free_trial(&t);
}

/* The same tests on a CPU that has no bf16 products: oneDNN is told so before it looks. */
static void test_without_bf16(void **state)
{
    (void)state;
    if (getenv("ONEDNN_MAX_CPU_ISA") != NULL) {
        assert_false(matmul_has_bf16());
        return;
    }
    char *said = NULL;
    int status = test_run("ONEDNN_MAX_CPU_ISA=AVX2 DNNL_MAX_CPU_ISA=AVX2 " OFLOAD_BIN_DIR "/test_batch_matmul", &said);
    if (status != 0) fail_msg("%s", said);
    free(said);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_without_bf16),
    cmocka_unit_test(test_f32_products),
    cmocka_unit_test(test_bf16_products),
    cmocka_unit_test(test_add_and_refusals),
};
TEST_MAIN(tests)
