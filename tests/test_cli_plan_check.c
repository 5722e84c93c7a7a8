/* ofload-plan --check: good plans, changed ones with their hash made right again, another model, files that are no plan. */
#include "support/plan_text.h"
#include "support/support.h"

#include <stdbool.h>
#include <unistd.h>

#include <cjson/cJSON.h>

#define PLAN OFLOAD_BIN_DIR "/ofload-plan"
#define BENCH OFLOAD_BIN_DIR "/ofload-bench"

static int run(const char *arguments, char **output_out)
{
    char line[1024];
    (void)snprintf(line, sizeof line, "cd '%s' && " PLAN " %s", test_folder(), arguments);
    return test_run(line, output_out);
}

static int make_models(void)
{
    char line[1024], *output = NULL;
    (void)snprintf(line, sizeof line, "cd '%s' && "
                   BENCH " mkmodel --output one.gguf --sparse --layers 12 --hidden 1024 --heads 16 --ffn 2816 --vocab 4096 && "
                   BENCH " mkmodel --output other.gguf --sparse --layers 12 --hidden 1024 --heads 16 --ffn 2816 --vocab 4112 && "
                   PLAN " --quiet --vram 80MB --overhead 1MB --link 4GB/s --context 200 --sequences 2 --output plan.json one.gguf",
                   test_folder());
    int status = test_run(line, &output);
    if (status != 0) (void)fprintf(stderr, "%s", output);
    free(output);
    return status;
}

static uint32_t lines_with(const char *text, const char *start)
{
    uint32_t count = 0;
    for (const char *at = text; at != NULL && *at != '\0'; at = strchr(at, '\n'), at += at != NULL)
        count += strncmp(at, start, strlen(start)) == 0;
    return count;
}

static void good_plans_are_ok(void **state)
{
    (void)state;
    static const char *const jobs[] = {
        "--vram 80MB --overhead 1MB --link 4GB/s --context 200",
        "--vram 12GB --link 12GB/s",
        "--vram 100MB --overhead 1MB --link 3.26GB/s --context 512 --objective throughput --kv-type q8_0",
        "--vram 160MB --overhead 1MB --link 25GB/s --context 64 --resident-layers 3",
        "--vram 120MB --overhead 1MB --link 25GB/s --context 64 --cut off --kv-type f32",
        "--vram 90MB --overhead 1MB --link 4GB/s --context 64 --cut 700kB --sequences 7 --prefill-chunk 33",
        "--vram 60MB --overhead 0 --link 4GB/s --context 64 --host-ram 200MB --link-pageable 2GB/s --headroom 0",
        "--device sim:vram=90MB,h2d=2GB/s,start=5us,clock=virtual,runtime=3MB --context 80 --objective throughput --queue 5",
    };
    for (size_t i = 0; i < sizeof jobs / sizeof jobs[0]; i++) {
        char line[512], *output = NULL;
        (void)snprintf(line, sizeof line, "--quiet %s --output made.json one.gguf", jobs[i]);
        int status = run(line, &output);
        if (status != 0) fail_msg("%s: %d: %s", line, status, output);
        free(output);
        status = run("--check made.json one.gguf", &output);
        if (status != 0 || lines_with(output, "ok ") != 14 || strstr(output, "wrong") != NULL)
            fail_msg("%s: %d: %s", jobs[i], status, output);
        free(output);
    }
}

/* The first figure under a key is another. */
static char *set_figure(const char *json, const char *key, const char *figure)
{
    const char *from = strstr(json, key);
    if (from == NULL) return NULL;
    from += strlen(key);
    return plan_join(json, (size_t)(from - json), figure, from + strcspn(from, ",\n}"));
}

/* One change each; the hash is that of the changed text, so that it is found for what it is. */
static void what_was_changed_is_found(void **state)
{
    (void)state;
    static const char *const changes[][3] = {
        {"\"runtime_bytes\": 1000000", "\"runtime_bytes\": 999999", "file"},
        {"\"tier\": \"device\"", "\"tier\": \"pinned\"", "file"},
        {"\"capacity_tokens\": ", "\"capacity_tokens\": 1", "file"},
        {"\"lower_bound_bytes_per_step\": ", "\"lower_bound_bytes_per_step\": 1", "file"},
        {"\"hidden\": 1024", "\"hidden\": 1023", "file"},
        {"\"parameters\": ", "\"parameters\": 1", "sizes"},
        {"\"dense_bytes\": ", "\"dense_bytes\": 1", "file"},
        {"\"bytes_per_token\": ", "\"bytes_per_token\": 1", "file"},
        {"\"state_bytes_per_sequence\": 0", "\"state_bytes_per_sequence\": 64", "KV"},
        {"\"expert_count\": 0", "\"expert_count\": 8", "sizes"},
        {"\"trained_context\": ", "\"trained_context\": 1", "sizes"},
        {"\"elements\": ", NULL, "compute"},
        {"\"link_bytes_per_second\": 4000000000", "\"link_bytes_per_second\": 8000000000", "link"},
        {"\"step_seconds\": ", NULL, "file"},
        {"\"link_seconds\": ", NULL, "link"},
        {"\"compute_seconds\": ", NULL, "compute"},
        {"\"stall_seconds\": ", NULL, "forecast"},
        {"\"tokens_per_second\": ", NULL, "forecast"},
        {"\"bound\": \"link\"", "\"bound\": \"compute\"", "forecast"},
        {"\"first_token_seconds\": ", NULL, "forecast"},
        {"\"load_seconds\": ", NULL, "forecast"},
        {"\"lower_bound_seconds\": ", NULL, "file"},
        {"\"above_bound_percent\": ", NULL, "file"},
        {"\"streamed_bytes\": ", NULL, "file"},
        {"\"error_band_percent\": ", "0", "forecast"},
        {"\"file_bytes_per_second\": ", "0", "file"},
        {"\"copy_start_seconds\": ", "1e+300", "file"},
        {"\"knee_tokens\": ", NULL, "forecast"},
        {"\"model\": \"", "\"model\": \"0", "file"},
        {"\"schema\": \"ofload.plan/1\"", "\"schema\": \"ofload.plan/9\"", "file"},
    };
    char *json = test_read(test_path("plan.json"), NULL);
    json[strlen(json) - 1] = '\0'; /* the line's end is not in the hash */
    for (size_t i = 0; i < sizeof changes / sizeof changes[0]; i++) {
        const char *from = changes[i][0], *to = changes[i][1];
        bool figure = to == NULL || to[0] != '"';
        char *changed = figure ? set_figure(json, from, to != NULL ? to : "7") : plan_replace(json, from, to), wanted[64], *output = NULL;
        if (changed == NULL) fail_msg("there is no %s", changes[i][0]);
        char *signed_anew = plan_sign(changed);
        test_write(test_path("changed.json"), signed_anew, strlen(signed_anew));
        int status = run("--check changed.json one.gguf", &output);
        (void)snprintf(wanted, sizeof wanted, "\nwrong  %s ", changes[i][2]);
        if (status != 1 || strstr(output, wanted) == NULL || strstr(output, "ofload-plan: changed.json: ") == NULL)
            fail_msg("%s: %d: %s", changes[i][0], status, output);
        free(output);
        test_write(test_path("changed.json"), changed, strlen(changed)); /* and its own hash finds it too */
        status = run("--quiet --check changed.json one.gguf", &output);
        if (status != 1 || lines_with(output, "ofload-plan: ") != 1 || lines_with(output, "") != 1)
            fail_msg("unsigned: %d: %s", status, output);
        free(output);
        free(changed);
        free(signed_anew);
    }
    free(json);
}

/* Any byte: nothing that says something else is taken for good. */
static void any_changed_byte_is_found(void **state)
{
    (void)state;
    size_t bytes;
    char *json = test_read(test_path("plan.json"), &bytes);
    uint64_t seed = 11;
    for (int i = 0; i < 60; i++) {
        size_t place = test_random(&seed) % (bytes - 1);
        char old = json[place], *output = NULL;
        if (old == ' ' || old == '\n') continue; /* what stands between figures says nothing */
        json[place] = (char)(old == '7' ? '3' : '7');
        test_write(test_path("changed.json"), json, bytes);
        int status = run("--quiet --check changed.json one.gguf", &output);
        if (status != 1 || lines_with(output, "ofload-plan: changed.json: ") != 1)
            fail_msg("byte %zu (%.60s): %d: %s", place, json + place - 30, status, output);
        json[place] = old;
        free(output);
    }
    free(json);
}

static void another_model_and_no_plan(void **state)
{
    (void)state;
    char *output = NULL, *deep = malloc(200000);
    assert_int_equal(run("--check plan.json other.gguf", &output), 1);
    assert_non_null(strstr(output, "make a plan for this model"));
    assert_int_equal(lines_with(output, "left "), 5);
    assert_int_equal(lines_with(output, "wrong "), 1);
    free(output);
    memset(deep, '[', 200000);
    test_write(test_path("deep.json"), deep, 200000);
    test_write(test_path("empty.json"), "", 0);
    test_write(test_path("number.json"), "42", 2);
    test_write(test_path("object.json"), "{}", 2);
    static const char huge[] = "{\"schema\":\"ofload.plan/1\",\"model\":{\"tensor_count\":99999999999999}}";
    test_write(test_path("huge.json"), huge, sizeof huge - 1);
    free(deep);
    size_t bytes;
    char *json = test_read(test_path("plan.json"), &bytes);
    static const double cuts[] = {0.001, 0.3, 0.999};
    for (int i = 0; i < 3; i++) {
        char name[16];
        (void)snprintf(name, sizeof name, "cut%d.json", i);
        test_write(test_path(name), json, (size_t)((double)bytes * cuts[i]));
    }
    free(json);
    static const char *const files[] = {"deep.json", "empty.json", "number.json", "object.json", "huge.json", "cut0.json",
                                        "cut1.json", "cut2.json",  "missing.json", "one.gguf",   "."};
    for (size_t i = 0; i < sizeof files / sizeof files[0]; i++) {
        char line[128], wanted[64];
        (void)snprintf(line, sizeof line, "--quiet --check %s one.gguf", files[i]);
        (void)snprintf(wanted, sizeof wanted, "ofload-plan: %s: ", files[i]);
        int status = run(line, &output);
        if (status != 1 || lines_with(output, wanted) != 1 || lines_with(output, "") != 1)
            fail_msg("%s: %d: %s", files[i], status, output);
        free(output);
    }
    assert_int_equal(run("--check plan.json missing.gguf", &output), 1);
    free(output);
}

static void as_json(void **state)
{
    (void)state;
    for (int wrong = 0; wrong < 2; wrong++) {
        char *output = NULL;
        int status = run(wrong ? "--json --check plan.json other.gguf 2>/dev/null" : "--json --check plan.json one.gguf", &output);
        cJSON *tree = cJSON_Parse(output), *row, *parts = cJSON_GetObjectItem(tree, "parts");
        assert_int_equal(status, wrong);
        assert_string_equal(cJSON_GetStringValue(cJSON_GetObjectItem(tree, "schema")), "ofload.check/1");
        assert_int_equal(cJSON_IsTrue(cJSON_GetObjectItem(tree, "good")), !wrong);
        assert_int_equal(cJSON_GetArraySize(parts), 14);
        cJSON_ArrayForEach(row, parts)
        {
            const char *result = cJSON_GetStringValue(cJSON_GetObjectItem(row, "result"));
            assert_non_null(cJSON_GetStringValue(cJSON_GetObjectItem(row, "part")));
            assert_true(strlen(cJSON_GetStringValue(cJSON_GetObjectItem(row, "sentence"))) > 5);
            assert_true(strcmp(result, "ok") == 0 || (wrong && (strcmp(result, "wrong") == 0 || strcmp(result, "left") == 0)));
        }
        cJSON_Delete(tree);
        free(output);
    }
}

/* Nothing beside it has an effect, whatever it is. */
static void other_options_are_refused(void **state)
{
    (void)state;
    static const char *const options[] = {
        "--device none",           "--machine m.json",        "--vram 1GB",          "--host-ram 1GB",      "--link 1GB/s",
        "--link-pageable 1GB/s",   "--device-flops 1TFLOP/s", "--context 5",         "--sequences 3",       "--prefill-chunk 5",
        "--device-bandwidth 1GB/s", "--kv-type f16",          "--objective latency", "--resident-layers 0", "--queue 5",
        "--overhead 0",            "--headroom 5%",           "--cut auto",          "--output x.json",
    };
    for (size_t i = 0; i < sizeof options / sizeof options[0]; i++) {
        char line[256], *output = NULL, name[64];
        (void)snprintf(line, sizeof line, "--check plan.json %s one.gguf", options[i]);
        (void)snprintf(name, sizeof name, "ofload-plan: %.*s has no effect beside --check", (int)strcspn(options[i], " "), options[i]);
        int status = run(line, &output);
        if (status != 2 || strncmp(output, name, strlen(name)) != 0) fail_msg("%s: %d: %s", line, status, output);
        free(output);
    }
    static const char *const wrong[] = {"--check plan.json", "--check plan.json --json --quiet one.gguf",
                                        "--check plan.json one.gguf other.gguf"};
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) assert_int_equal(run(wrong[i], NULL), 2);
    char *output = NULL;
    assert_int_equal(run("--check plan.json one.gguf > /dev/full", &output), 1);
    free(output);
}

/* Names from files and arguments: whole UTF-8 in JSON, no control characters on a terminal. */
static void odd_names_do_no_harm(void **state)
{
    (void)state;
    static const char *const lines[] = {
        "--check 'plan\xff.json' --json 'one\xff.gguf'",
        "--json --compare --vram 80MB --overhead 1MB --link 4GB/s --context 200 'one\xff.gguf'",
        "--json --sweep sequences=1..2 --vram 80MB --overhead 1MB --link 4GB/s --context 200 odd.json",
        "--vram 80MB --link 4GB/s --overhead 1MB --context 200 odd.json",
    };
    static const char odd[] =
        "{\"schema\":\"ofload.model/1\",\"name\":\"x\\u001b[2J\\u009b\",\"architecture\":\"llama\","
        "\"shape\":{\"block_count\":1,\"hidden_size\":64,\"head_count\":1,\"head_count_kv\":1,\"head_dim_k\":64,\"head_dim_v\":64,"
        "\"ffn_size\":64,\"vocab_size\":100},\"tensors\":[{\"name\":\"o\",\"dtype\":\"BF16\",\"dims\":[64,100],\"role\":\"output\","
        "\"block\":\"output\"}]}";
    char *output = NULL, line[512];
    test_write(test_path("odd.json"), odd, strlen(odd));
    (void)snprintf(line, sizeof line, "cd '%s' && ln one.gguf 'one\xff.gguf' && cp plan.json 'plan\xff.json'", test_folder());
    assert_int_equal(test_run(line, &output), 0);
    free(output);
    for (size_t i = 0; i < sizeof lines / sizeof lines[0]; i++) {
        if (run(lines[i], &output) != 0) fail_msg("%s: %s", lines[i], output);
        if (strchr(output, '\x1b') != NULL || strstr(output, "\xc2\x9b") != NULL || strchr(output, '\xff') != NULL)
            fail_msg("%s: %s", lines[i], output);
        free(output);
    }
    assert_int_equal(run("--help > /dev/full", &output), 1);
    free(output);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(good_plans_are_ok),         cmocka_unit_test(what_was_changed_is_found), cmocka_unit_test(any_changed_byte_is_found),
    cmocka_unit_test(another_model_and_no_plan), cmocka_unit_test(as_json),                   cmocka_unit_test(other_options_are_refused),
    cmocka_unit_test(odd_names_do_no_harm),
};

int main(void)
{
    if (make_models() != 0) return 1;
    return cmocka_run_group_tests(tests, NULL, NULL) == 0 ? 0 : 1;
}
