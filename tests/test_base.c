#include "support/support.h"

#include "base/base.h"
#include "base/json.h"

static void test_checked_sizes(void **state)
{
    (void)state;
    uint64_t out = 7;
    assert_false(ofl_add_u64(UINT64_MAX, 1, &out));
    assert_false(ofl_mul_u64(UINT64_C(1) << 32, UINT64_C(1) << 32, &out));
    assert_false(ofl_align_u64(UINT64_MAX - 15, 32, &out));
    assert_int_equal(out, 7);
    assert_true(ofl_align_u64(257, 256, &out));
    assert_int_equal(out, 512);
}

static void test_failures_carry_a_sentence(void **state)
{
    (void)state;
    assert_int_equal(ofl_fail_room(OFL_ERROR_NO_FIT, 10, 5, "model %s: too big", "m"), OFL_ERROR_NO_FIT);
    assert_string_equal(ofl_error_message(), "model m: too big");
    assert_int_equal(ofl_diagnostic_get()->bytes_needed, 10);
    assert_string_equal(ofl_status_name(OFL_ERROR_NO_FIT), "OFL_ERROR_NO_FIT");
    assert_int_equal(ofl_fail(OFL_ERROR_IO, "again: %s", ofl_error_message()), OFL_ERROR_IO);
    assert_string_equal(ofl_error_message(), "again: model m: too big");
}

static void test_sizes_in_sentences(void **state)
{
    (void)state;
    assert_string_equal(ofl_bytes_text(0).text, "0 B");
    assert_string_equal(ofl_bytes_text(999).text, "999 B");
    assert_string_equal(ofl_bytes_text(1500).text, "1.500 kB");
    assert_string_equal(ofl_bytes_text(UINT64_C(67108864)).text, "67.109 MB");
    assert_string_equal(ofl_bytes_text(UINT64_C(999999999)).text, "1.000 GB");
    assert_string_equal(ofl_bytes_text(UINT64_MAX).text, "18.447 EB");
}

typedef struct grown { uint32_t struct_size, a, b; } grown;

static void test_structs_may_grow(void **state)
{
    (void)state;
    grown newer = {sizeof(grown), 1, 2}, full = {0, 9, 9};
    assert_int_equal(ofl_struct_in(&full, 2 * sizeof(uint32_t), &newer, "grown"), OFL_ERROR_ARGUMENT);
    newer.b = 0;
    assert_ok(ofl_struct_in(&full, 2 * sizeof(uint32_t), &newer, "grown"));
    assert_int_equal(full.a, 1);
    grown older = {2 * sizeof(uint32_t), 0, 77}, known = {0, 5, 6};
    assert_ok(ofl_struct_out(&older, &known, sizeof known, "grown"));
    assert_int_equal(older.a, 5);
    assert_int_equal(older.b, 77);
    older.struct_size = 0;
    assert_int_equal(ofl_struct_out(&older, &known, sizeof known, "grown"), OFL_ERROR_ARGUMENT);
}

static void test_allocation_faults(void **state)
{
    (void)state;
    (void)ofl_fault_allocation(2);
    void *first = ofl_alloc(1, 8), *second = ofl_alloc(1, 8), *third = ofl_alloc(1, 8);
    assert_non_null(first);
    assert_null(second);
    assert_non_null(third);
    ofl_free(first);
    ofl_free(third);
    assert_null(ofl_alloc(UINT64_MAX, 2));
}

static void test_json_numbers_are_exact(void **state)
{
    (void)state;
    cJSON *tree = cJSON_CreateObject();
    assert_true(ofl_json_add_u64(tree, "big", UINT64_MAX));
    assert_true(ofl_json_add_double(tree, "rate", 3.26e9));
    assert_true(ofl_json_add_double(tree, "third", 1.0 / 3.0));
    char *text = ofl_json_finish(tree);
    assert_non_null(strstr(text, "18446744073709551615"));
    cJSON *back = cJSON_Parse(text);
    double third = 0;
    uint64_t big;
    assert_ok(ofl_json_get_double(back, "test", "third", &third));
    assert_true(third == 1.0 / 3.0);
    assert_status(ofl_json_get_u64(back, "test", "big", &big), OFL_ERROR_FORMAT);
    cJSON_Delete(back);
    ofl_free(text);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_checked_sizes),     cmocka_unit_test(test_failures_carry_a_sentence),
        cmocka_unit_test(test_sizes_in_sentences), cmocka_unit_test(test_structs_may_grow),
    cmocka_unit_test(test_allocation_faults), cmocka_unit_test(test_json_numbers_are_exact),
};
TEST_MAIN(tests)
