/* Whole runs over a stub model: answers, settings, order, shards, reports. */
#include "support/job_rig.h"

#include <unistd.h>

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
    (void)fputs("{\"custom_id\":\"plain\",\"method\":\"POST\",\"url\":\"/v1/"
                "completions\",\"body\":{\"prompt\":\"p#\\\"q\\\\\\n\",\"max_tokens\":9}}\n",
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
    const char *first =
        cJSON_GetObjectItemCaseSensitive(cJSON_GetObjectItemCaseSensitive(choice(find(&a, "four"), 0), "message"), "content")
            ->valuestring;
    const char *second =
        cJSON_GetObjectItemCaseSensitive(cJSON_GetObjectItemCaseSensitive(choice(find(&a, "four"), 1), "message"), "content")
            ->valuestring;
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

/* No token is made up for a row without a number: the request is an error line, its neighbours are not. */
static void test_logits_without_a_number(void **state)
{
    (void)state;
    fresh();
    backend model = stub_backend();
    run_settings settings = stub_settings(in_path, out_path);
    FILE *file = fopen(in_path, "w");
    add_line(file, "greedy", "~abc", "\"temperature\":0");
    add_line(file, "drawn", "~abcd", "\"temperature\":1,\"top_p\":0.5,\"n\":2,\"logprobs\":true,\"top_logprobs\":3");
    add_line(file, "whole", "#whole", "");
    assert_int_equal(fclose(file), 0);
    assert_int_equal(run(&settings, &model), EXIT_ERROR_LINES);
    answers a = read_answers(out_path);
    assert_string_equal(error_code(find(&a, "greedy")), "no_finite_logit");
    assert_string_equal(error_code(find(&a, "drawn")), "no_finite_logit");
    assert_string_equal(content(find(&a, "whole")), "whole");
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
    assert_string_equal(reason(find(&a, "default is cut")), "length"); /* at the context's end, never beyond */
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
    assert_true(cJSON_GetObjectItem(report, "error_percent")->valuedouble > 24.9 &&
                cJSON_GetObjectItem(report, "error_percent")->valuedouble < 25.1);
    assert_int_equal(cJSON_GetObjectItem(report, "preempted")->valueint, 0);
    assert_true(cJSON_IsTrue(cJSON_GetObjectItem(report, "simulated")));
    cJSON *forecast = cJSON_GetObjectItem(report, "forecast"), *measured = cJSON_GetObjectItem(report, "measured");
    assert_true(cJSON_GetObjectItem(forecast, "steps")->valueint >= cJSON_GetObjectItem(measured, "steps")->valueint);
    assert_int_equal(cJSON_GetObjectItem(measured, "steps")->valueint, the_stub.steps);
    cJSON_Delete(report);
    free(text);
}

static double phase(const cJSON *report, const char *name, const char *key)
{
    const cJSON *item = cJSON_GetObjectItem(cJSON_GetObjectItem(cJSON_GetObjectItem(report, "phases"), name), key);
    if (item == NULL) fail_msg("no %s of %s", key, name);
    return item->valuedouble;
}

/* Prompts and answers are timed apart: the first token comes with the prompt's last step, the others are the intervals after it. */
static void test_report_tells_prefill_from_decode(void **state)
{
    (void)state;
    for (uint32_t jobs = 1; jobs < 40; jobs += 24) {
        fresh();
        write_jobs(jobs);
        run_settings settings = stub_settings(in_path, out_path);
        settings.report = test_path("phases.json");
        backend model = stub_backend();
        assert_int_equal(run(&settings, &model), EXIT_DONE);
        char *text = test_read(settings.report, NULL);
        cJSON *report = cJSON_Parse(text), *tokens = cJSON_GetObjectItem(report, "tokens");
        double prompt = 0, made_tokens = 0, seconds = 0;
        static const char *const names[] = {"prefill", "decode", "mixed"};
        for (int i = 0; i < 3; i++) {
            prompt += phase(report, names[i], "prompt_tokens");
            made_tokens += phase(report, names[i], "new_tokens");
            seconds += phase(report, names[i], "seconds");
        }
        assert_true(prompt == cJSON_GetObjectItem(tokens, "prompt")->valuedouble);
        if (jobs == 1) assert_true(phase(report, "mixed", "steps") == 0 && phase(report, "decode", "new_tokens") == made_tokens - 1);
        double measured = cJSON_GetObjectItem(cJSON_GetObjectItem(report, "measured"), "seconds")->valuedouble;
        assert_true(seconds > measured * (1 - 1e-9) && seconds < measured * (1 + 1e-9));
        double rate = phase(report, "decode", "new_tokens") / phase(report, "decode", "seconds");
        assert_true(phase(report, "decode", "new_tokens_per_second") > rate * (1 - 1e-9) &&
                    phase(report, "decode", "new_tokens_per_second") < rate * (1 + 1e-9));
        assert_true(phase(report, "prefill", "prompt_tokens_per_second") > rate); /* a prompt's tokens share a step */
        cJSON_Delete(report);
        free(text);
    }
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
    cmocka_unit_test(test_logits_without_a_number),
    cmocka_unit_test(test_context_is_the_longest_request),
    cmocka_unit_test(test_the_plan_is_told_what_is_typical),
    cmocka_unit_test(test_duplicate_ids),
    cmocka_unit_test(test_ordered),
    cmocka_unit_test(test_report_and_dry_run),
    cmocka_unit_test(test_report_tells_prefill_from_decode),
    cmocka_unit_test(test_shards),
    cmocka_unit_test(test_shard_words),
};
TEST_MAIN(tests)
