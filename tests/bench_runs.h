/* ofload-bench run by a test, and its rows. */
#ifndef OFLOAD_TESTS_BENCH_RUNS_H
#define OFLOAD_TESTS_BENCH_RUNS_H

#include "support/support.h"

#include <cjson/cJSON.h>

#define BENCH OFLOAD_BIN_DIR "/ofload-bench"

/* Runs ofload-bench; the exit status. */
static inline int bench(const char *arguments, char **output_out)
{
    char line[2048];
    (void)snprintf(line, sizeof line, BENCH " %s", arguments);
    return test_run(line, output_out);
}

/* Runs a benchmark and hands its rows over; the tree is freed by the caller. */
static inline cJSON *run_report(const char *arguments, int rows)
{
    char *output = NULL;
    int status = bench(arguments, &output);
    if (status != 0) fail_msg("%s: %d: %s", arguments, status, output);
    cJSON *tree = cJSON_Parse(output);
    assert_non_null(tree);
    assert_int_equal(cJSON_GetArraySize(cJSON_GetObjectItem(tree, "rows")), rows);
    free(output);
    return tree;
}

static inline double in_row(const cJSON *tree, int row, const char *key)
{
    const cJSON *item = cJSON_GetObjectItem(cJSON_GetArrayItem(cJSON_GetObjectItem(tree, "rows"), row), key);
    assert_true(cJSON_IsNumber(item));
    return item->valuedouble;
}

static inline const char *text_in_row(const cJSON *tree, int row, const char *key)
{
    const char *text = cJSON_GetStringValue(cJSON_GetObjectItem(cJSON_GetArrayItem(cJSON_GetObjectItem(tree, "rows"), row), key));
    assert_non_null(text);
    return text;
}

#endif
