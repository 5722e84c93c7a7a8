/* Whole runs over a stub model: answers, settings, order, resuming, reports. */
#include "support/stub_model.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cjson/cJSON.h>

/* ---- helpers ---- */

static char *line_for(const char *id, const char *prompt, const char *params)
{
    char *line;
    assert_true(asprintf(&line,
                         "{\"custom_id\":\"%s\",\"method\":\"POST\",\"url\":\"/v1/chat/"
                         "completions\",\"body\":{\"model\":\"any\",\"messages\":[{\"role\":\"user\",\"content\":\"%s\"}]%s%s}}\n",
                         id, prompt, params[0] != '\0' ? "," : "", params) > 0);
    return line;
}

static void add_line(FILE *file, const char *id, const char *prompt, const char *params)
{
    char *line = line_for(id, prompt, params);
    assert_true(fputs(line, file) >= 0);
    free(line);
}

typedef struct answers { cJSON *lines; char *text; } answers;

/* Every line must be whole JSON. */
static answers read_answers(const char *path)
{
    answers a = {cJSON_CreateArray(), test_read(path, NULL)};
    for (char *at = a.text; *at != '\0';) {
        char *end = strchr(at, '\n');
        assert_non_null(end);
        cJSON *tree = cJSON_ParseWithLength(at, (size_t)(end - at));
        assert_non_null(tree);
        cJSON_AddItemToArray(a.lines, tree);
        at = end + 1;
    }
    return a;
}

static void free_answers(answers *a)
{
    cJSON_Delete(a->lines);
    free(a->text);
}

static const cJSON *find(const answers *a, const char *id)
{
    const cJSON *line, *found = NULL;
    cJSON_ArrayForEach(line, a->lines)
    {
        const cJSON *got = cJSON_GetObjectItemCaseSensitive(line, "custom_id");
        if (!cJSON_IsString(got) || strcmp(got->valuestring, id) != 0) continue;
        assert_null(found); /* once */
        found = line;
    }
    if (found == NULL) fail_msg("no line for %s", id);
    return found;
}

static const cJSON *body(const cJSON *line) { return cJSON_GetObjectItemCaseSensitive(cJSON_GetObjectItemCaseSensitive(line, "response"), "body"); }
static const cJSON *choice(const cJSON *line, int index) { return cJSON_GetArrayItem(cJSON_GetObjectItemCaseSensitive(body(line), "choices"), index); }

static const char *content(const cJSON *line)
{
    const cJSON *message = cJSON_GetObjectItemCaseSensitive(choice(line, 0), "message");
    const cJSON *text = message != NULL ? cJSON_GetObjectItemCaseSensitive(message, "content") : cJSON_GetObjectItemCaseSensitive(choice(line, 0), "text");
    return cJSON_IsString(text) ? text->valuestring : "(none)";
}

static const char *reason(const cJSON *line) { return cJSON_GetObjectItemCaseSensitive(choice(line, 0), "finish_reason")->valuestring; }
static int made(const cJSON *line)
{
    return cJSON_GetObjectItemCaseSensitive(cJSON_GetObjectItemCaseSensitive(body(line), "usage"), "completion_tokens")->valueint;
}

static int run(const run_settings *settings, const backend *model)
{
    int exit_status = -1;
    ofl_status status = batch_run(settings, model, &exit_status);
    if (status != OFL_OK) fail_msg("batch_run: %s", app_error());
    return exit_status;
}

static ofl_status run_fails(const run_settings *settings, const backend *model, const char *sentence)
{
    int exit_status = -1;
    ofl_status status = batch_run(settings, model, &exit_status);
    assert_int_not_equal(status, OFL_OK);
    if (strstr(app_error(), sentence) == NULL) fail_msg("\"%s\" does not say \"%s\"", app_error(), sentence);
    return status;
}

/* Fresh paths for one test. */
static char in_path[512], out_path[512];
static void fresh(void)
{
    static int number;
    char name[40];
    (void)snprintf(name, sizeof name, "in%d.jsonl", ++number);
    (void)snprintf(in_path, sizeof in_path, "%s", test_path(name));
    (void)snprintf(name, sizeof name, "out%d.jsonl", number);
    (void)snprintf(out_path, sizeof out_path, "%s", test_path(name));
}

static void write_jobs(uint32_t count)
{
    FILE *file = fopen(in_path, "w");
    for (uint32_t i = 0; i < count; i++) {
        char id[20], prompt[60];
        (void)snprintf(id, sizeof id, "r%u", i);
        (void)snprintf(prompt, sizeof prompt, "%*s#answer %u", (int)(i * 37 % 50), "", i);
        add_line(file, id, prompt, "");
    }
    assert_int_equal(fclose(file), 0);
}

static void check_jobs(uint32_t count)
{
    answers a = read_answers(out_path);
    assert_int_equal(cJSON_GetArraySize(a.lines), count);
    for (uint32_t i = 0; i < count; i++) {
        char id[20], wanted[40];
        (void)snprintf(id, sizeof id, "r%u", i);
        (void)snprintf(wanted, sizeof wanted, "answer %u", i);
        assert_string_equal(content(find(&a, id)), wanted);
    }
    free_answers(&a);
}

/* ---- tests ---- */

static void test_each_request_has_its_own_settings(void **state)
{
    (void)state;
    fresh();
    backend model = stub_backend();
    run_settings settings = stub_settings(in_path, out_path);
    FILE *file = fopen(in_path, "w");
    add_line(file, "one", "goes on", "\"temperature\":0,\"max_tokens\":1");
    add_line(file, "fifty", "goes on and on", "\"temperature\":1,\"max_completion_tokens\":50,\"max_tokens\":3");
    add_line(file, "stop", "say#xENDy", "\"max_tokens\":5,\"stop\":[\"zz\",\"END\"]");
    add_line(file, "twenty", "for ever", "\"temperature\":0");
    add_line(file, "short", "#hi", "");
    add_line(file, "no end", "#hi", "\"ignore_eos\":true,\"max_tokens\":4,\"temperature\":0");
    (void)fputs(
        "{\"custom_id\":\"plain\",\"method\":\"POST\",\"url\":\"/v1/completions\",\"body\":{\"prompt\":\"p#\\\"q\\\\\\n\",\"max_tokens\":9}}\n",
        file);
    assert_int_equal(fclose(file), 0);
    assert_int_equal(run(&settings, &model), EXIT_DONE);
    answers a = read_answers(out_path);
    assert_int_equal(cJSON_GetArraySize(a.lines), 7);
    assert_int_equal(made(find(&a, "one")), 1);
    assert_string_equal(reason(find(&a, "one")), "length");
    assert_int_equal(made(find(&a, "fifty")), 50);
    assert_string_equal(content(find(&a, "stop")), "x");
    assert_string_equal(reason(find(&a, "stop")), "stop");
    assert_int_equal(made(find(&a, "stop")), 4);
    assert_int_equal(made(find(&a, "twenty")), 20); /* never ends: the default cap */
    assert_string_equal(content(find(&a, "short")), "hi");
    assert_string_equal(reason(find(&a, "short")), "stop");
    assert_int_equal(made(find(&a, "no end")), 4);
    assert_string_equal(content(find(&a, "plain")), "\"q\\\n");
    assert_string_equal(cJSON_GetObjectItemCaseSensitive(body(find(&a, "plain")), "object")->valuestring, "text_completion");
    assert_string_equal(cJSON_GetObjectItemCaseSensitive(body(find(&a, "short")), "model")->valuestring, "stub");
    free_answers(&a);
}

static void test_answers_do_not_depend_on_neighbours(void **state)
{
    (void)state;
    char *alone[6];
    for (int i = 0; i <= 6; i++) {
        fresh();
        backend model = stub_backend();
        run_settings settings = stub_settings(in_path, out_path);
        FILE *file = fopen(in_path, "w");
        for (int j = 0; j < 6; j++) {
            char id[16], prompt[20], params[60];
            (void)snprintf(id, sizeof id, "q%d", j);
            (void)snprintf(prompt, sizeof prompt, "prompt %d", j);
            (void)snprintf(params, sizeof params, "\"temperature\":3%s", j % 2 ? ",\"seed\":5" : "");
            if (i == 6 || i == j) add_line(file, id, prompt, params);
        }
        assert_int_equal(fclose(file), 0);
        assert_int_equal(run(&settings, &model), EXIT_DONE);
        answers a = read_answers(out_path);
        for (int j = 0; j < 6; j++) {
            char id[16];
            (void)snprintf(id, sizeof id, "q%d", j);
            if (i == 6) assert_string_equal(content(find(&a, id)), alone[j]), free(alone[j]);
            else if (i == j) alone[j] = strdup(content(find(&a, id)));
        }
        free_answers(&a);
    }
}

static void test_several_choices(void **state)
{
    (void)state;
    fresh();
    backend model = stub_backend();
    run_settings settings = stub_settings(in_path, out_path);
    FILE *file = fopen(in_path, "w");
    add_line(file, "four", "many ways", "\"n\":4,\"temperature\":9,\"max_tokens\":12");
    add_line(file, "three", "x#same", "\"n\":3,\"temperature\":0");
    for (int i = 0; i < 5; i++) add_line(file, (const char *[]){"a", "b", "c", "d", "e"}[i], "#between", "");
    assert_int_equal(fclose(file), 0);
    assert_int_equal(run(&settings, &model), EXIT_DONE);
    answers a = read_answers(out_path);
    assert_int_equal(cJSON_GetArraySize(cJSON_GetObjectItemCaseSensitive(body(find(&a, "four")), "choices")), 4);
    assert_int_equal(made(find(&a, "four")), 48);
    assert_int_equal(cJSON_GetObjectItemCaseSensitive(choice(find(&a, "four"), 3), "index")->valueint, 3);
    const char *first = cJSON_GetObjectItemCaseSensitive(cJSON_GetObjectItemCaseSensitive(choice(find(&a, "four"), 0), "message"), "content")->valuestring;
    const char *second = cJSON_GetObjectItemCaseSensitive(cJSON_GetObjectItemCaseSensitive(choice(find(&a, "four"), 1), "message"), "content")->valuestring;
    assert_string_not_equal(first, second);
    assert_string_equal(content(find(&a, "three")), "same");
    free_answers(&a);
}

static void test_partial_characters(void **state)
{
    (void)state;
    fresh();
    backend model = stub_backend();
    run_settings settings = stub_settings(in_path, out_path);
    FILE *file = fopen(in_path, "w");
    add_line(file, "thumb", "#\\ud83d\\udc4d", "\"max_tokens\":1");
    add_line(file, "whole", "#\\ud83d\\udc4d", "");
    add_line(file, "lone", "#a\\ud83dz", "");
    add_line(file, "swapped", "#\\ude00\\ud83d", "");
    add_line(file, "nul", "#a\\u0000b", "");
    assert_int_equal(fclose(file), 0);
    assert_int_equal(run(&settings, &model), EXIT_ERROR_LINES);
    answers a = read_answers(out_path);
    assert_string_equal(content(find(&a, "thumb")), "\xEF\xBF\xBD");
    assert_string_equal(content(find(&a, "whole")), "\xF0\x9F\x91\x8D");
    assert_string_equal(content(find(&a, "lone")), "a\xEF\xBF\xBDz");
    assert_string_equal(content(find(&a, "swapped")), "\xEF\xBF\xBD\xEF\xBF\xBD");
    free_answers(&a);
}

static void test_context_is_the_longest_request(void **state)
{
    (void)state;
    fresh();
    backend model = stub_backend();
    run_settings settings = stub_settings(in_path, out_path);
    char long_prompt[600];
    memset(long_prompt, 'x', sizeof long_prompt);
    long_prompt[100] = '\0';
    FILE *file = fopen(in_path, "w");
    add_line(file, "a", long_prompt, "\"max_tokens\":7");
    add_line(file, "b", "short", "\"max_tokens\":30");
    long_prompt[100] = 'x';
    long_prompt[500] = '\0';
    add_line(file, "default is cut", long_prompt, "");
    add_line(file, "wish is not", long_prompt, "\"max_tokens\":13");
    long_prompt[500] = 'x';
    long_prompt[599] = '\0';
    add_line(file, "too long", long_prompt, "");
    add_line(file, "refused by template", "no template for this", "");
    add_line(file, "empty", "", "");
    assert_int_equal(fclose(file), 0);
    assert_int_equal(run(&settings, &model), EXIT_ERROR_LINES);
    assert_int_equal(the_stub.load.context_tokens, 512);
    answers a = read_answers(out_path);
    assert_int_equal(cJSON_GetArraySize(a.lines), 7);
    assert_int_equal(made(find(&a, "default is cut")), 12);
    static const char *const errors[][3] = {{"wish is not", "context_length_exceeded", "500 prompt tokens and up to 13"},
                                            {"too long", "context_length_exceeded", "599"},
                                            {"refused by template", "invalid_request", "takes no such text"},
                                            {"empty", "invalid_request", "no tokens"}};
    for (size_t i = 0; i < 4; i++) {
        const cJSON *error = cJSON_GetObjectItemCaseSensitive(find(&a, errors[i][0]), "error");
        assert_string_equal(cJSON_GetObjectItemCaseSensitive(error, "code")->valuestring, errors[i][1]);
        assert_non_null(strstr(cJSON_GetObjectItemCaseSensitive(error, "message")->valuestring, errors[i][2]));
        assert_int_equal(cJSON_GetObjectItemCaseSensitive(error, "line")->valueint, 4 + (int)i);
    }
    free_answers(&a);
}

static void test_the_plan_is_told_what_is_typical(void **state)
{
    (void)state;
    fresh();
    backend model = stub_backend();
    run_settings settings = stub_settings(in_path, out_path);
    FILE *file = fopen(in_path, "w");
    add_line(file, "short", "0123456789", "\"max_tokens\":10,\"temperature\":0");
    add_line(file, "long", "0123456789", "\"max_tokens\":90");
    add_line(file, "error", "", "");
    assert_int_equal(fclose(file), 0);
    assert_int_equal(run(&settings, &model), EXIT_ERROR_LINES);
    assert_int_equal(the_stub.load.requests, 2);
    assert_int_equal(the_stub.load.context_tokens, 100);
    assert_int_equal(the_stub.load.typical_tokens, 93); /* (10 × 20 + 90 × 100) ÷ 100, and one */
    assert_true(the_stub.load.greedy_share == 0.5);
}

static void test_a_finished_run_does_nothing_again(void **state)
{
    (void)state;
    fresh();
    write_jobs(30);
    backend model = stub_backend();
    run_settings settings = stub_settings(in_path, out_path);
    assert_int_equal(run(&settings, &model), EXIT_DONE);
    check_jobs(30);
    char *before = test_read(out_path, NULL);
    model = stub_backend();
    assert_int_equal(run(&settings, &model), EXIT_DONE);
    assert_int_equal(the_stub.loads, 0);
    char *after = test_read(out_path, NULL);
    assert_string_equal(before, after);
    free(before);
    free(after);
}

static void test_stopped_and_gone_on(void **state)
{
    (void)state;
    fresh();
    write_jobs(40);
    run_settings settings = stub_settings(in_path, out_path);
    for (int stop = 5;; stop += 5) {
        backend model = stub_backend();
        the_stub.stop_at_step = stop;
        the_stub.stop_status = stop % 2 ? EXIT_INTERRUPTED : EXIT_STOPPED;
        int status = run(&settings, &model);
        if (status == EXIT_DONE) break;
        assert_int_equal(status, the_stub.stop_status);
    }
    check_jobs(40);
}

static void test_a_lost_device_loses_no_answer(void **state)
{
    (void)state;
    fresh();
    write_jobs(20);
    backend model = stub_backend();
    run_settings settings = stub_settings(in_path, out_path);
    the_stub.fail_at_step = 15;
    (void)run_fails(&settings, &model, "the device is gone");
    answers a = read_answers(out_path);
    assert_true(cJSON_GetArraySize(a.lines) > 0);
    free_answers(&a);
    model = stub_backend();
    assert_int_equal(run(&settings, &model), EXIT_DONE);
    check_jobs(20);
}

static void test_torn_ends(void **state)
{
    (void)state;
    fresh();
    FILE *file = fopen(in_path, "w");
    for (int i = 0; i < 3; i++) add_line(file, (const char *[]){"a", "b", "c"}[i], "#\xE2\x82\xAC", "");
    assert_int_equal(fclose(file), 0);
    run_settings settings = stub_settings(in_path, out_path);
    backend model = stub_backend();
    assert_int_equal(run(&settings, &model), EXIT_DONE);
    size_t bytes;
    char *whole = test_read(out_path, &bytes);
    for (size_t keep = 0; keep < bytes; keep++) {
        /* Around line ends, inside characters, and here and there between. */
        if (keep % 23 != 0 && whole[keep] != '\n' && whole[keep - 1] != '\n' && ((unsigned char)whole[keep] & 0xC0) != 0x80) continue;
        test_write(out_path, whole, keep);
        model = stub_backend();
        assert_int_equal(run(&settings, &model), EXIT_DONE);
        answers a = read_answers(out_path);
        assert_int_equal(cJSON_GetArraySize(a.lines), 3);
        for (int i = 0; i < 3; i++) assert_string_equal(content(find(&a, (const char *[]){"a", "b", "c"}[i])), "\xE2\x82\xAC");
        free_answers(&a);
    }
    /* A complete record without its line feed is kept. */
    char *end = strchr(whole, '\n');
    test_write(out_path, whole, (size_t)(end - whole));
    model = stub_backend();
    assert_int_equal(run(&settings, &model), EXIT_DONE);
    char *again = test_read(out_path, NULL);
    assert_memory_equal(again, whole, (size_t)(end - whole) + 1);
    free(again);
    free(whole);
}

static void test_retry_errors(void **state)
{
    (void)state;
    fresh();
    FILE *file = fopen(in_path, "w");
    add_line(file, "good", "#fine", "");
    add_line(file, "bad", "no template for this", "");
    (void)fputs("garbage\n", file);
    assert_int_equal(fclose(file), 0);
    run_settings settings = stub_settings(in_path, out_path);
    backend model = stub_backend();
    assert_int_equal(run(&settings, &model), EXIT_ERROR_LINES);
    assert_int_equal(run(&settings, &model), EXIT_ERROR_LINES);
    settings.retry_errors = true;
    assert_int_equal(run(&settings, &model), EXIT_ERROR_LINES);
    answers a = read_answers(out_path);
    assert_int_equal(cJSON_GetArraySize(a.lines), 3);
    (void)find(&a, "good");
    (void)find(&a, "bad");
    free_answers(&a);
}

static void test_what_is_refused_before_the_first_token(void **state)
{
    (void)state;
    fresh();
    write_jobs(3);
    run_settings settings = stub_settings(in_path, out_path);
    backend model = stub_backend();
    assert_int_equal(run(&settings, &model), EXIT_DONE);
    char *before = test_read(out_path, NULL);
    settings.max_tokens_default = 21;
    assert_int_equal(run_fails(&settings, &model, "--max-tokens-default was \"20\" and is \"21\""), OFL_ERROR_MISMATCH);
    settings.max_tokens_default = 20;
    model.model_identity = "another";
    assert_int_equal(run_fails(&settings, &model, "the model was"), OFL_ERROR_MISMATCH);
    model = stub_backend();
    write_jobs(4);
    assert_int_equal(run_fails(&settings, &model, "the input file was"), OFL_ERROR_MISMATCH);
    char *after = test_read(out_path, NULL);
    assert_string_equal(before, after); /* untouched */
    settings.overwrite = true;
    assert_int_equal(run(&settings, &model), EXIT_DONE);
    check_jobs(4);
    settings.overwrite = false;
    /* The input itself, under three names. */
    char *input = test_read(in_path, NULL);
    settings.output = in_path;
    (void)run_fails(&settings, &model, "is the input file itself");
    settings.output = test_path("link.jsonl");
    assert_int_equal(symlink(in_path, settings.output), 0);
    (void)run_fails(&settings, &model, "is the input file itself");
    settings.output = test_path("hard.jsonl");
    assert_int_equal(link(in_path, settings.output), 0);
    settings.overwrite = true;
    (void)run_fails(&settings, &model, "is the input file itself");
    settings.output = out_path;
    settings.report = in_path;
    (void)run_fails(&settings, &model, "is the input file itself");
    char *untouched = test_read(in_path, NULL);
    assert_string_equal(input, untouched);
    settings = stub_settings(in_path, "/dev/full");
    (void)run_fails(&settings, &model, "no regular file");
    settings.output = test_path("no/such/folder.jsonl");
    (void)run_fails(&settings, &model, "cannot be opened");
    /* An output that is not ours. */
    settings.output = test_path("foreign.jsonl");
    test_write(settings.output, "{\"some\":1}\n", 11);
    (void)run_fails(&settings, &model, "without a state file");
    free(input), free(untouched), free(before), free(after);
}

static void test_duplicate_ids(void **state)
{
    (void)state;
    fresh();
    FILE *file = fopen(in_path, "w");
    for (int i = 0; i < 9; i++) add_line(file, (const char *[]){"a", "b", "c", "d", "e", "f", "\\u0063", "h", "i"}[i], "#x", "");
    assert_int_equal(fclose(file), 0);
    run_settings settings = stub_settings(in_path, out_path);
    backend model = stub_backend();
    (void)run_fails(&settings, &model, "custom_id \"c\" is on line 3 and again on line 7");
    assert_int_not_equal(access(out_path, F_OK), 0);
}

static void test_ordered(void **state)
{
    (void)state;
    fresh();
    FILE *file = fopen(in_path, "w");
    for (int i = 0; i < 12; i++) {
        char id[16], prompt[40];
        (void)snprintf(id, sizeof id, "r%d", i);
        (void)snprintf(prompt, sizeof prompt, "#%.*s", 14 - i, "abcdefghijklmnop");
        if (i == 5) (void)fputs("broken\n", file);
        add_line(file, id, prompt, "");
    }
    assert_int_equal(fclose(file), 0);
    run_settings settings = stub_settings(in_path, out_path);
    settings.ordered = true;
    backend model = stub_backend();
    the_stub.stop_at_step = 9;
    the_stub.stop_status = EXIT_STOPPED;
    assert_int_equal(run(&settings, &model), EXIT_STOPPED);
    model = stub_backend();
    assert_int_equal(run(&settings, &model), EXIT_ERROR_LINES);
    answers a = read_answers(out_path);
    const cJSON *line;
    int i = 0;
    cJSON_ArrayForEach(line, a.lines)
    {
        char id[16];
        (void)snprintf(id, sizeof id, "r%d", i);
        const cJSON *got = cJSON_GetObjectItemCaseSensitive(line, "custom_id");
        if (cJSON_IsNull(got)) assert_int_equal(i, 5);
        else assert_string_equal(got->valuestring, id), i++;
    }
    assert_int_equal(i, 12);
    free_answers(&a);
}

static void test_report_and_dry_run(void **state)
{
    (void)state;
    fresh();
    write_jobs(25);
    run_settings settings = stub_settings(in_path, out_path);
    settings.report = test_path("report.json");
    settings.dry_run = true;
    backend model = stub_backend();
    assert_int_equal(run(&settings, &model), EXIT_DONE);
    assert_int_not_equal(access(out_path, F_OK), 0);
    assert_int_equal(the_stub.loads, 0);
    settings.dry_run = false;
    model = stub_backend();
    the_stub.pace = 1.25;
    assert_int_equal(run(&settings, &model), EXIT_DONE);
    char *text = test_read(settings.report, NULL);
    cJSON *report = cJSON_Parse(text);
    assert_string_equal(cJSON_GetObjectItem(report, "schema")->valuestring, "ofload.report/1");
    assert_int_equal(cJSON_GetObjectItem(cJSON_GetObjectItem(report, "requests"), "done")->valueint, 25);
    assert_true(cJSON_GetObjectItem(report, "error_percent")->valuedouble > 24.9 && cJSON_GetObjectItem(report, "error_percent")->valuedouble < 25.1);
    assert_int_equal(cJSON_GetObjectItem(report, "preempted")->valueint, 0);
    assert_true(cJSON_IsTrue(cJSON_GetObjectItem(report, "simulated")));
    cJSON *forecast = cJSON_GetObjectItem(report, "forecast"), *measured = cJSON_GetObjectItem(report, "measured");
    assert_true(cJSON_GetObjectItem(forecast, "steps")->valueint >= cJSON_GetObjectItem(measured, "steps")->valueint);
    assert_int_equal(cJSON_GetObjectItem(measured, "steps")->valueint, the_stub.steps);
    cJSON_Delete(report);
    free(text);
}

static void test_second_run_at_once_is_refused(void **state)
{
    (void)state;
    fresh();
    write_jobs(3);
    output held;
    assert_int_equal(output_open(out_path, &held), OFL_OK);
    run_settings settings = stub_settings(in_path, out_path);
    backend model = stub_backend();
    (void)run_fails(&settings, &model, "another run is writing");
    output_drop(&held);
}

static void test_shards(void **state)
{
    (void)state;
    fresh();
    write_jobs(23);
    uint32_t total = 0;
    for (uint32_t i = 0; i < 3; i++) {
        backend model = stub_backend();
        run_settings settings = stub_settings(in_path, out_path);
        settings.shard = (shard){i, 3};
        assert_int_equal(run(&settings, &model), EXIT_DONE);
        char *path = shard_path(out_path, settings.shard);
        answers a = read_answers(path);
        total += (uint32_t)cJSON_GetArraySize(a.lines);
        free_answers(&a);
        free(path);
    }
    assert_int_equal(total, 23);
}

static void test_shard_words(void **state)
{
    (void)state;
    shard s;
    assert_int_equal(shard_parse("3/16", &s), OFL_OK);
    assert_int_equal(s.index, 3);
    char *path = shard_path("x/OUT.jsonl", s);
    assert_string_equal(path, "x/OUT.shard-00003-of-00016.jsonl");
    free(path);
    static const char *const bad[] = {"16/16", "1", "/2", "1/", "-1/2", "1/0", "1/2x", "", "1 /2", "auto"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) assert_int_equal(shard_parse(bad[i], &s), OFL_ERROR_ARGUMENT);
    setenv("JOB_COMPLETION_INDEX", "5", 1);
    assert_int_equal(shard_parse("auto", &s), OFL_ERROR_ARGUMENT); /* Kubernetes tells no count */
    setenv("OFLOAD_SHARD_COUNT", "9", 1);
    assert_int_equal(shard_parse("auto", &s), OFL_OK);
    assert_true(s.index == 5 && s.count == 9);
    setenv("SLURM_ARRAY_TASK_ID", "14", 1), setenv("SLURM_ARRAY_TASK_COUNT", "4", 1), setenv("SLURM_ARRAY_TASK_MIN", "10", 1),
        setenv("SLURM_ARRAY_TASK_STEP", "2", 1);
    assert_int_equal(shard_parse("auto", &s), OFL_OK);
    assert_true(s.index == 2 && s.count == 4);
    setenv("SLURM_ARRAY_TASK_ID", "13", 1);
    assert_int_equal(shard_parse("auto", &s), OFL_ERROR_ARGUMENT);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_each_request_has_its_own_settings),
    cmocka_unit_test(test_answers_do_not_depend_on_neighbours),
    cmocka_unit_test(test_several_choices),
    cmocka_unit_test(test_partial_characters),
    cmocka_unit_test(test_context_is_the_longest_request),
    cmocka_unit_test(test_the_plan_is_told_what_is_typical),
    cmocka_unit_test(test_a_finished_run_does_nothing_again),
    cmocka_unit_test(test_stopped_and_gone_on),
    cmocka_unit_test(test_a_lost_device_loses_no_answer),
    cmocka_unit_test(test_torn_ends),
    cmocka_unit_test(test_retry_errors),
    cmocka_unit_test(test_what_is_refused_before_the_first_token),
    cmocka_unit_test(test_duplicate_ids),
    cmocka_unit_test(test_ordered),
    cmocka_unit_test(test_report_and_dry_run),
    cmocka_unit_test(test_second_run_at_once_is_refused),
    cmocka_unit_test(test_shards),
    cmocka_unit_test(test_shard_words),
};
TEST_MAIN(tests)
