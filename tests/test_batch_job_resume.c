/* Runs over a stub model that go on where another ended, or refuse to. */
#include "support/job_rig.h"

#include <unistd.h>

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
    model.weights_hash = "another";
    assert_int_equal(run_fails(&settings, &model, "the content of the weights was \"fedcba9876543210\" and is \"another\""), OFL_ERROR_MISMATCH);
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

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_a_finished_run_does_nothing_again),
    cmocka_unit_test(test_stopped_and_gone_on),
    cmocka_unit_test(test_a_lost_device_loses_no_answer),
    cmocka_unit_test(test_torn_ends),
    cmocka_unit_test(test_retry_errors),
    cmocka_unit_test(test_what_is_refused_before_the_first_token),
    cmocka_unit_test(test_second_run_at_once_is_refused),
};
TEST_MAIN(tests)
