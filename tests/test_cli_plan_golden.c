/* The page of ofload-plan for ten published models, as a new user asks for it, compared with tests/golden/plan/MODEL.txt to the letter.
 * OFLOAD_UPDATE_GOLDEN=1 writes them anew. */
#include "support/published.h"

#include <stdbool.h>
#include <sys/stat.h>

#define ARGUMENTS "--vram 12GB --link 12GB/s"
#define GOLDEN OFLOAD_SOURCE_DIR "/tests/golden/plan"
#define UPDATE "OFLOAD_UPDATE_GOLDEN=1 " OFLOAD_BIN_DIR "/test_cli_plan_golden"

static const char *const models[] = {
    "Qwen/Qwen2.5-7B-Instruct", "meta-llama/Llama-3.1-8B", "meta-llama/Llama-3.1-70B",    "microsoft/Phi-3-mini-4k-instruct",
    "google/gemma-2-27b-it",    "google/gemma-4-26B-A4B",  "mistralai/Mixtral-8x7B-v0.1", "Qwen/Qwen3-30B-A3B",
    "deepseek-ai/DeepSeek-V3",  "openai/gpt-oss-120b"};

static const cJSON *find(const cJSON *all, const char *name)
{
    const cJSON *model;
    cJSON_ArrayForEach (model, all) {
        if (strcmp(cJSON_GetObjectItemCaseSensitive(model, "name")->valuestring, name) == 0) return model;
    }
    fail_msg("%s is no published model of the list", name);
    return NULL;
}

/* "$ ofload-plan … NAME" and what it prints, in NAME.txt of the test's folder, whose path is returned. */
static const char *make_transcript(const cJSON *model, const char *name)
{
    char line[2048], *output = NULL;
    (void)snprintf(line, sizeof line,
                   "cd '%s' && mv '%s' '%s' && { echo '$ ofload-plan " ARGUMENTS " %s'; " OFLOAD_BIN_DIR "/ofload-plan " ARGUMENTS
                   " '%s'; } > '%s.txt'",
                   test_folder(), published_folder(model), name, name, name, name);
    if (test_run(line, &output) != 0) fail_msg("%s: %s", name, output);
    free(output);
    (void)snprintf(line, sizeof line, "%s.txt", name);
    return test_path(line);
}

/* Whether they agree; else how they differ, on standard error. */
static bool same(const char *golden, const char *made)
{
    char line[2048], *output = NULL;
    (void)snprintf(line, sizeof line, "diff -u '%s' '%s'", golden, made);
    int status = test_run(line, &output);
    if (status != 0) (void)fprintf(stderr, "%s", output);
    free(output);
    return status == 0;
}

static void the_pages_of_ten_models(void **state)
{
    (void)state;
    cJSON *all = published_models();
    bool update = getenv("OFLOAD_UPDATE_GOLDEN") != NULL;
    int differ = 0;
    if (update) (void)mkdir(GOLDEN, 0755);
    for (size_t i = 0; i < sizeof models / sizeof models[0]; i++) {
        char golden[512];
        const char *name = strchr(models[i], '/') + 1, *made = make_transcript(find(all, models[i]), name);
        (void)snprintf(golden, sizeof golden, GOLDEN "/%s.txt", name);
        if (update) {
            size_t bytes = 0;
            char *text = test_read(made, &bytes);
            test_write(golden, text, bytes);
            free(text);
        } else if (!same(golden, made)) differ++;
    }
    cJSON_Delete(all);
    if (differ > 0)
        fail_msg("%d of the pages differ, as shown above. If that is wanted, read them as a new user would and write them anew:\n    %s",
                 differ, UPDATE);
}

static const struct CMUnitTest tests[] = {cmocka_unit_test(the_pages_of_ten_models)};

TEST_MAIN(tests)
