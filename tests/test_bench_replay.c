/* ofload-bench replay, and designs at numbers of tokens: on the virtual clock, so that a busy machine does not matter. Of the wall clock only
 * what does not depend on time. */
#include "bench_runs.h"

#include <math.h>

static int row_count(const char *arguments)
{
    char *output = NULL;
    int status = bench(arguments, &output);
    if (status != 0) fail_msg("%s: %d: %s", arguments, status, output);
    cJSON *tree = cJSON_Parse(output);
    int rows = cJSON_GetArraySize(cJSON_GetObjectItem(tree, "rows"));
    cJSON_Delete(tree);
    free(output);
    return rows;
}

static void rows_follow_their_schema(const cJSON *tree, const char *compute, const char *clock)
{
    static const char *const numbers[] = {"link_share",        "step_seconds", "bound_seconds", "forecast_seconds", "error_percent",
                                          "tokens_per_second", "published",    "sequences",     "streamed_bytes"};
    for (int i = 0; i < cJSON_GetArraySize(cJSON_GetObjectItem(tree, "rows")); i++) {
        for (size_t k = 0; k < sizeof numbers / sizeof numbers[0]; k++) (void)in_row(tree, i, numbers[k]);
        assert_string_equal(text_in_row(tree, i, "compute"), compute);
        assert_string_equal(text_in_row(tree, i, "clock"), clock);
        const char *bound = text_in_row(tree, i, "bound");
        assert_true(strcmp(bound, "link") == 0 || strcmp(bound, "compute") == 0);
        assert_true(fabs(in_row(tree, i, "tokens_per_second") * in_row(tree, i, "step_seconds") - in_row(tree, i, "sequences")) < 1e-6);
    }
}

enum { THEIRS, THEIRS_60, LATENCY, LATENCY_60, THROUGHPUT, MODELLED_ROWS };

/* The published layout takes what its forecast and the closed form say, and what was published; the two plans are ahead. */
static void the_3060_replayed_with_a_modelled_gpu(void **state)
{
    (void)state;
    cJSON *tree = run_report("replay 3060 --scale 0.015625 --compute modelled --steps 3 --json", MODELLED_ROWS);
    assert_true(cJSON_IsTrue(cJSON_GetObjectItem(tree, "simulated")));
    rows_follow_their_schema(tree, "modelled", "virtual");
    for (int i = 0; i < MODELLED_ROWS; i++) {
        if (!(fabs(in_row(tree, i, "error_percent")) < 0.5)) fail_msg("%d: %g %%", i, in_row(tree, i, "error_percent"));
        assert_true(in_row(tree, i, "step_seconds") > 0.999 * in_row(tree, i, "bound_seconds"));
        assert_true(in_row(tree, i, "least_seconds") == in_row(tree, i, "most_seconds"));
    }
    for (int i = THEIRS; i <= THEIRS_60; i++) {
        assert_true(fabs(in_row(tree, i, "over_closed_form_percent")) < 0.5);
        assert_true(fabs(in_row(tree, i, "step_seconds") - 2.145) < 0.01);
        assert_true(in_row(tree, i, "over_published") > 1 && in_row(tree, i, "over_published") < 1.03);
    }
    assert_true(fabs(in_row(tree, THEIRS_60, "questions_seconds") - 57.9) < 0.025 * 57.9);
    assert_true(in_row(tree, LATENCY, "over_published") > 1.9);
    assert_true(in_row(tree, LATENCY_60, "over_published") > 1.2);
    assert_true(in_row(tree, THROUGHPUT, "over_published") > 2.5);
    assert_true(in_row(tree, THROUGHPUT, "sequences") > 200);
    cJSON_Delete(tree);
}

/* Real products on real bytes, in as little memory as there can be. */
static void the_3060_replayed_with_real_products(void **state)
{
    (void)state;
    cJSON *tree = run_report("replay 3060 --scale 0.004 --compute real --steps 1 --json", 3);
    rows_follow_their_schema(tree, "real", "wall");
    for (int i = 0; i < 3; i++) assert_true(in_row(tree, i, "compute_seconds") > 0);
    cJSON_Delete(tree);
}

enum { ZERO_2022, ZERO_2022_HERE, ZERO, ZERO_HERE, ACCELERATE, ACCELERATE_HERE, FLEXGEN, FLEXGEN_4BIT, FLEXGEN_175, FLEXGEN_175_4BIT, LLAMA, LLAMA_HERE,
       PUBLISHED_ROWS };

/* Forecasts of others' layouts are rooflines: what was published is below them, and not far. */
static void published_points_beside_forecasts(void **state)
{
    (void)state;
    static const int theirs[] = {ZERO_2022, ZERO, ACCELERATE, LLAMA};
    cJSON *tree = run_report("replay published --json", PUBLISHED_ROWS);
    for (size_t i = 0; i < sizeof theirs / sizeof theirs[0]; i++) {
        double error = in_row(tree, theirs[i], "error_percent");
        if (!(error > 0 && error < 40)) fail_msg("%s: %g %%", text_in_row(tree, theirs[i], "label"), error);
    }
    for (int i = 0; i < PUBLISHED_ROWS; i++) {
        assert_string_equal(text_in_row(tree, i, "compute"), "modelled");
        assert_non_null(strstr(text_in_row(tree, i, "assumed"), "link"));
    }
    assert_true(fabs(in_row(tree, ZERO_2022, "forecast_seconds") - 59.2e9 / 12.2e9) < 0.03);
    assert_true(in_row(tree, ZERO_2022_HERE, "over_published") > 1.2);
    assert_true(in_row(tree, ZERO_HERE, "over_published") > 4);
    assert_true(in_row(tree, ACCELERATE_HERE, "over_published") > 4);
    assert_true(in_row(tree, FLEXGEN, "over_published") < 1); /* its KV cache is in host memory */
    assert_true(in_row(tree, FLEXGEN_4BIT, "over_published") > 2);
    assert_true(in_row(tree, LLAMA_HERE, "over_published") < 1); /* its CPU computes */
    cJSON_Delete(tree);
}

/* This engine ahead of each other design at 60 tokens and at the knee, behind none at one. */
static void designs_at_numbers_of_tokens(void **state)
{
    (void)state;
    cJSON *tree = run_report("designs --json --clock virtual --weights 128MB --steps 3 --tokens 1,60,knee", 12);
    for (int i = 0; i < 12; i++) {
        assert_string_equal(text_in_row(tree, i, "compute"), "modelled");
        double own = in_row(tree, i / 4 * 4 + 3, "step_seconds");
        if (i % 4 != 3 && !(in_row(tree, i, "step_seconds") > 1.1 * own)) fail_msg("%d: %g, own %g", i, in_row(tree, i, "step_seconds"), own);
        if (i % 4 == 3) assert_true(in_row(tree, i, "over_bound") < 1.05);
    }
    assert_true(in_row(tree, 0, "tokens") == 1 && in_row(tree, 4, "tokens") == 60);
    assert_true(in_row(tree, 8, "compute_share") > 0.95 && in_row(tree, 8, "compute_share") <= 1);
    cJSON_Delete(tree);
    tree = run_report("designs --json --weights 8MB --steps 1 --tokens 1,knee", 8);
    for (int i = 0; i < 8; i++) assert_string_equal(text_in_row(tree, i, "compute"), "real");
    assert_true((int)in_row(tree, 4, "tokens") % 16 == 0); /* products take 16 at a time */
    cJSON_Delete(tree);
}

static void which_rows_are_chosen(void **state)
{
    (void)state;
    assert_int_equal(row_count("replay 3060 --scale 0.004 --steps 1 --compute modelled --json --quiet"), MODELLED_ROWS);
    assert_int_equal(row_count("designs --clock virtual --weights 8MB --steps 1 --tokens 5 --json"), 4);
}

static void mistakes_exit_2(void **state)
{
    (void)state;
    static const struct { const char *arguments, *says; } cases[] = {
        {"replay", "3060, published"},
        {"replay 3090", "3060, published"},
        {"replay 3060 published", "3060, published"},
        {"replay published --scale 0.5", "--scale"},
        {"replay published --steps 5", "--steps"},
        {"replay published --compute both", "--compute"},
        {"replay 3060 --scale 2", "0.001 to 1"},
        {"replay 3060 --steps 0", "--steps"},
        {"designs --tokens 1 --compute 0.5", "--compute"},
        {"designs --tokens 0", "--tokens"},
        {"designs --tokens knie", "--tokens"},
        {"designs --tokens 1 --device sim:vram=1GB,h2d=1GB/s", "--device"},
        {"stream --tokens 1", "--tokens"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char *output = NULL;
        int status = bench(cases[i].arguments, &output);
        if (status != 2 || strstr(output, cases[i].says) == NULL) fail_msg("%s: %d: %s", cases[i].arguments, status, output);
        free(output);
    }
}

/* For people: sizes, rates and times with their units. JSON stays raw. */
static void tables_have_units(void **state)
{
    (void)state;
    char *output = NULL;
    assert_int_equal(bench("link --quiet --device sim:vram=1MB,h2d=2GB/s,clock=virtual", &output), 0);
    assert_non_null(strstr(output, "2.00 GB/s"));
    free(output);
    assert_int_equal(bench("replay 3060 --scale 0.015625 --steps 1 --compute modelled --quiet", &output), 0);
    assert_non_null(strstr(output, "2.14 s"));
    assert_non_null(strstr(output, " MB"));
    assert_non_null(strstr(output, " %"));
    free(output);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(the_3060_replayed_with_a_modelled_gpu),
    cmocka_unit_test(the_3060_replayed_with_real_products),
    cmocka_unit_test(published_points_beside_forecasts),
    cmocka_unit_test(designs_at_numbers_of_tokens),
    cmocka_unit_test(which_rows_are_chosen),
    cmocka_unit_test(mistakes_exit_2),
    cmocka_unit_test(tables_have_units),
};
TEST_MAIN(tests)
