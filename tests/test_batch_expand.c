#include "support/support.h"

#include <math.h>

#include "batch/cpu/expand.h"
#include "batch/cpu/vector.h"

static uint32_t read_u32(const char **at)
{
    uint32_t value;
    memcpy(&value, *at, sizeof value);
    *at += sizeof value;
    return value;
}

static void check_bf16(ofl_dtype dtype, const char *stored, const float *wanted, uint32_t elements)
{
    uint16_t *halves = malloc(elements * sizeof *halves);
    assert_non_null(halves);
    expand_to_bf16(dtype, stored, elements, halves);
    for (uint32_t i = 0; i < elements; i++) {
        float kept = float_from_bf16(halves[i]);
        if (fabsf(kept - wanted[i]) > fabsf(wanted[i]) * 0x1p-8f + 1e-38f)
            fail_msg("%s, element %u: %g became %g", ofl_dtype_name(dtype), i, (double)wanted[i], (double)kept);
    }
    free(halves);
}

/* Bit for bit what the gguf package reads, from an odd address and in two pieces. */
static void check_type(ofl_dtype dtype, const char *stored, uint32_t bytes, const float *wanted, uint32_t elements)
{
    uint32_t block = ofl_dtype_block_elements(dtype), first = elements / 3 / block * block;
    char *odd = malloc(bytes + 1u);
    float *values = malloc(elements * sizeof *values);
    assert_non_null(odd);
    assert_non_null(values);
    memcpy(odd + 1, stored, bytes);
    expand_to_f32(dtype, odd + 1, first, values);
    expand_to_f32(dtype, odd + 1 + (uint64_t)first / block * ofl_dtype_block_bits(dtype) / 8, elements - first, values + first);
    for (uint32_t i = 0; i < elements; i++) {
        if (float_bits(values[i]) != float_bits(wanted[i]))
            fail_msg("%s, element %u: %.9g instead of %.9g", ofl_dtype_name(dtype), i, (double)values[i], (double)wanted[i]);
    }
    check_bf16(dtype, odd + 1, wanted, elements);
    free(odd);
    free(values);
}

static void test_blocks_equal_the_reference(void **state)
{
    (void)state;
    size_t size;
    char *file = test_read(OFLOAD_SOURCE_DIR "/tests/golden/expand.bin", &size);
    int types = 0;
    for (const char *at = file; at < file + size; types++) {
        uint32_t dtype = read_u32(&at), elements = read_u32(&at), bytes = read_u32(&at);
        float *wanted = malloc(elements * sizeof *wanted);
        assert_non_null(wanted);
        memcpy(wanted, at + bytes, elements * sizeof *wanted);
        assert_true(expand_knows((ofl_dtype)dtype));
        check_type((ofl_dtype)dtype, at, bytes, wanted, elements);
        at += bytes + elements * sizeof *wanted;
        free(wanted);
    }
    assert_int_equal(types, 11);
    assert_false(expand_knows(OFL_DTYPE_Q2_K));
    assert_false(expand_knows((ofl_dtype)9999));
    free(file);
}

static void test_halves_go_there_and_back(void **state)
{
    (void)state;
    for (uint32_t h = 0; h < 0x10000u; h++) {
        float value = float_from_f16((uint16_t)h);
        if (isnan(value)) {
            assert_true((h & 0x7fffu) > 0x7c00u);
            assert_true(isnan(float_from_f16(f16_from_float(value))));
        } else {
            assert_int_equal(f16_from_float(value), h);
        }
    }
    assert_true(float_from_f16(0x7c00) == INFINITY);
    assert_true(float_from_f16(0x0001) == 0x1p-24f);
    assert_true(float_from_f16(0x3c01) == 1.0f + 0x1p-10f);
}

static void test_rounding_is_to_nearest_even(void **state)
{
    (void)state;
    assert_int_equal(f16_from_float(1.0f + 0x1p-11f), 0x3c00);            /* a tie, down to even */
    assert_int_equal(f16_from_float(1.0f + 0x1p-10f + 0x1p-11f), 0x3c02); /* a tie, up to even */
    assert_int_equal(f16_from_float(65519.0f), 0x7bff);
    assert_int_equal(f16_from_float(65520.0f), 0x7c00);
    assert_int_equal(f16_from_float(-1e9f), 0xfc00);
    assert_int_equal(f16_from_float(0x1p-25f), 0x0000);
    assert_int_equal(f16_from_float(0x1.8p-25f), 0x0001);
    assert_int_equal(bf16_from_float(1.0f + 0x1p-8f), 0x3f80);
    assert_int_equal(bf16_from_float(1.0f + 0x1p-7f + 0x1p-8f), 0x3f82);
    assert_int_equal(bf16_from_float(-INFINITY), 0xff80);
    assert_true(isnan(float_from_bf16(bf16_from_float(float_from_bits(0x7f800001u)))));
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_blocks_equal_the_reference),
    cmocka_unit_test(test_halves_go_there_and_back),
    cmocka_unit_test(test_rounding_is_to_nearest_even),
};
TEST_MAIN(tests)
