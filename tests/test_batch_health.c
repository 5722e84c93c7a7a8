/* Long jobs over the stub model on its own clock: a slow link is noticed, progress is shown, the forecast comes true. */
#include "support/job_rig.h"

#include <fcntl.h>
#include <math.h>
#include <sys/ioctl.h>
#include <sys/wait.h>
#include <termios.h>
#include <unistd.h>

#include "batch/health.h"

/* Requests that make all their tokens. */
static void write_long_jobs(uint32_t count, uint32_t most)
{
    uint64_t seed = 11;
    FILE *file = fopen(in_path, "w");
    for (uint32_t i = 0; i < count; i++) {
        char id[20], prompt[200], params[80];
        uint32_t length = 1 + (uint32_t)(test_random(&seed) % 150);
        (void)snprintf(id, sizeof id, "r%u", i);
        memset(prompt, 'p', length);
        prompt[length] = '\0';
        (void)snprintf(params, sizeof params, "\"max_tokens\":%u", 1 + (uint32_t)(test_random(&seed) % most));
        add_line(file, id, prompt, params);
    }
    assert_int_equal(fclose(file), 0);
}

/* A run with what it says on standard error. */
static char *run_said(const run_settings *settings, const backend *model, int exit_wanted)
{
    const char *path = test_path("said");
    int kept = dup(STDERR_FILENO), file = open(path, O_RDWR | O_CREAT | O_TRUNC, 0600);
    assert_true(kept >= 0 && file >= 0 && dup2(file, STDERR_FILENO) >= 0);
    int exit_status = -1;
    ofl_status status = batch_run(settings, model, &exit_status);
    assert_true(dup2(kept, STDERR_FILENO) >= 0 && close(kept) == 0 && close(file) == 0);
    if (status != OFL_OK) fail_msg("batch_run: %s", app_error());
    assert_int_equal(exit_status, exit_wanted);
    return test_read(path, NULL);
}

static cJSON *read_report(const char *path)
{
    char *text = test_read(path, NULL);
    cJSON *report = cJSON_Parse(text);
    assert_non_null(report);
    free(text);
    return report;
}

static double figure(const cJSON *report, const char *group, const char *name)
{
    const cJSON *item = cJSON_GetObjectItem(group != NULL ? cJSON_GetObjectItem(report, group) : report, name);
    if (item == NULL) fail_msg("the report has no %s.%s", group != NULL ? group : "", name);
    return item->valuedouble;
}

static int count_of(const char *text, const char *what)
{
    int count = 0;
    for (const char *at = text; (at = strstr(at, what)) != NULL; at++) count++;
    return count;
}

/* The number after `before` in a line that begins at or after `from`. */
static double number_after(const char *from, const char *before)
{
    const char *at = strstr(from, before);
    if (at == NULL) fail_msg("no \"%s\" in: %s", before, from);
    return strtod(at + strlen(before), NULL);
}

/* ---- the link ---- */

static void half_link_from_step_200(stub *s) { s->link_pace = s->steps >= 200 ? 2 : 1; }

static void test_a_slow_link_is_told_once(void **state)
{
    (void)state;
    fresh();
    write_long_jobs(200, 60);
    backend model = stub_backend();
    run_settings settings = stub_settings(in_path, out_path);
    settings.quiet = false;
    settings.progress = true;
    settings.report = test_path("slow.json");
    the_stub.before_step = half_link_from_step_200;
    char *said = run_said(&settings, &model, EXIT_DONE);
    assert_int_equal(count_of(said, "the link"), 1);
    const char *warning = strstr(said, "ofload-batch: the link (simulated) brings 500");
    if (warning == NULL) fail_msg("%s", said);
    assert_non_null(strstr(warning, "since step 200 ("));
    assert_non_null(strstr(warning, "1.00 GB/s of the plan"));
    cJSON *report = read_report(settings.report);
    double steps = figure(report, "measured", "steps"), since = figure(report, "link_health", "since_seconds");
    assert_true(cJSON_IsTrue(cJSON_GetObjectItem(cJSON_GetObjectItem(report, "link_health"), "slow")));
    assert_true(figure(report, "link_health", "since_step") == 200);
    assert_true(fabs(figure(report, "link_health", "found_bytes_per_second") / 5e8 - 1) < 0.01);
    assert_true(fabs(figure(report, "link_health", "planned_bytes_per_second") / 1e9 - 1) < 0.01);
    assert_true(figure(report, "link_health", "slow_steps") == steps - 199);
    assert_true(since > 9 && since < 199 * 0.06);
    /* What is said of the time left after the warning is what it takes. */
    const char *next = strchr(warning, '\n') + 1;
    double left = number_after(next, "at most "), whole = figure(report, "measured", "seconds");
    double then = 30 * ceil((since + HEALTH_SECONDS) / 30); /* lines come every 30 seconds */
    if (fabs(left - (whole - then)) > 0.03 * whole) fail_msg("%.1f s left were told %.1f s before the end", left, whole - then);
    cJSON_Delete(report);
    free(said);
}

static void slow_compute(stub *s)
{
    uint64_t seed = s->steps;
    s->compute_pace = 1 + 40 * (double)(test_random(&seed) % 100) / 100; /* beyond the link at times, long runs of it too */
    if (s->steps > 300 && s->steps < 400) s->compute_pace = 30;
    s->link_pace = s->steps % 50 < HEALTH_STEPS - 1 ? 1.4 : 1; /* a moment's hiccup */
}

static void test_noise_is_no_slow_link(void **state)
{
    (void)state;
    fresh();
    write_long_jobs(200, 60);
    backend model = stub_backend();
    run_settings settings = stub_settings(in_path, out_path);
    settings.quiet = false;
    settings.report = test_path("noise.json");
    the_stub.before_step = slow_compute;
    char *said = run_said(&settings, &model, EXIT_DONE);
    assert_null(strstr(said, "the link"));
    cJSON *report = read_report(settings.report);
    assert_true(figure(report, "measured", "steps") > 500 && figure(report, NULL, "error_percent") > 20);
    assert_true(cJSON_IsFalse(cJSON_GetObjectItem(cJSON_GetObjectItem(report, "link_health"), "slow")));
    cJSON_Delete(report);
    free(said);
}

/* Compute bound as planned, and then the link falls so far that it binds. */
static void quarter_link_from_step_100(stub *s) { s->link_pace = s->steps >= 100 ? 4 : 1; }

static void test_a_link_that_did_not_bind(void **state)
{
    (void)state;
    fresh();
    write_long_jobs(200, 60);
    backend model = stub_backend();
    run_settings settings = stub_settings(in_path, out_path);
    settings.report = test_path("bound.json");
    the_stub.plan.link_seconds = 0.004; /* four tokens take more */
    the_stub.before_step = quarter_link_from_step_100;
    (void)run(&settings, &model);
    cJSON *report = read_report(settings.report);
    assert_true(cJSON_IsTrue(cJSON_GetObjectItem(cJSON_GetObjectItem(report, "link_health"), "slow")));
    assert_true(figure(report, "link_health", "since_step") >= 100);
    assert_true(fabs(figure(report, "link_health", "found_bytes_per_second") / 2.5e8 - 1) < 0.2);
    cJSON_Delete(report);
}

/* ---- progress ---- */

static void test_plain_lines_and_the_pace_of_a_resumed_run(void **state)
{
    (void)state;
    fresh();
    write_long_jobs(300, 60);
    run_settings settings = stub_settings(in_path, out_path);
    settings.quiet = false;
    settings.progress = true;
    backend model = stub_backend();
    the_stub.stop_at_step = 1300;
    the_stub.stop_status = EXIT_STOPPED;
    char *said = run_said(&settings, &model, EXIT_STOPPED);
    assert_int_equal(count_of(said, " tokens/s, forecast "), (int)(the_stub.clock / 30));
    free(said);
    model = stub_backend();
    the_stub.pace = 4; /* this run is slower, and tells its own time */
    said = run_said(&settings, &model, EXIT_DONE);
    const char *line = strstr(said, " of 300 requests");
    assert_non_null(line);
    while (line > said && line[-1] != '\n') line--;
    double done = strtod(line, NULL), left = number_after(line, "at most "), rate = number_after(line, "requests  ");
    assert_true(done > 100 && done < 300);
    if (fabs(left / (the_stub.clock - 30) - 1) > 0.05) fail_msg("%.1f s left were told %.1f s before the end", left, the_stub.clock - 30);
    assert_true(fabs(number_after(line, "step ") / (4 * 50) - 1) < 0.05); /* ms */
    assert_true(number_after(line, "link ") == 25);
    assert_true(rate > 10 && fabs(number_after(line, "forecast ") / rate - 1) < 0.3);
    free(said);
}

/* Requests that end earlier than they may: the pace says so. */
static void test_about(void **state)
{
    (void)state;
    fresh();
    FILE *file = fopen(in_path, "w");
    for (int i = 0; i < 600; i++) {
        char id[20];
        (void)snprintf(id, sizeof id, "r%d", i);
        add_line(file, id, "#some answer", "\"max_tokens\":120");
    }
    assert_int_equal(fclose(file), 0);
    run_settings settings = stub_settings(in_path, out_path);
    settings.quiet = false;
    settings.progress = true;
    backend model = stub_backend();
    char *said = run_said(&settings, &model, EXIT_DONE);
    double about = number_after(said, "about "), most = number_after(said, "at most ");
    if (fabs(about / (the_stub.clock - 30) - 1) > 0.05) fail_msg("%.1f s, and it took %.1f", about, the_stub.clock - 30);
    assert_true(most > 4 * about);
    free(said);
}

/* What a terminal of `columns` gets from a run. */
static char *run_on_terminal(const run_settings *settings, const backend *model, unsigned short columns)
{
    int master = posix_openpt(O_RDWR | O_NOCTTY);
    struct winsize size = {.ws_row = 24, .ws_col = columns};
    assert_true(master >= 0 && grantpt(master) == 0 && unlockpt(master) == 0);
    int terminal = open(ptsname(master), O_RDWR | O_NOCTTY);
    assert_true(terminal >= 0 && ioctl(terminal, TIOCSWINSZ, &size) == 0);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        int exit_status = 99;
        (void)close(master);
        (void)dup2(terminal, STDERR_FILENO);
        (void)batch_run(settings, model, &exit_status);
        _exit(exit_status);
    }
    (void)close(terminal);
    char *text = calloc(1, 1 << 20);
    for (size_t bytes = 0; bytes < (1 << 20) - 1;) {
        ssize_t got = read(master, text + bytes, (1 << 20) - 1 - bytes);
        if (got <= 0) break; /* EIO: the other side is gone */
        bytes += (size_t)got;
    }
    int status;
    (void)close(master);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == EXIT_DONE);
    return text;
}

static void half_link_from_step_100(stub *s) { s->link_pace = s->steps >= 100 ? 2 : 1; }

static void test_one_line_redrawn_on_a_terminal(void **state)
{
    (void)state;
    for (unsigned short columns = 60; columns <= 200; columns += 140) {
        fresh();
        write_long_jobs(100, 40);
        run_settings settings = stub_settings(in_path, out_path);
        settings.quiet = false;
        settings.progress = true;
        backend model = stub_backend();
        the_stub.before_step = half_link_from_step_100;
        char *said = run_on_terminal(&settings, &model, columns);
        int drawn = 0;
        for (const char *at = said; (at = strstr(at, "\r\033[K")) != NULL; drawn++) {
            at += 4;
            assert_true(strcspn(at, "\r") < columns);
            assert_non_null(strstr(at, " of 100 requests"));
        }
        assert_true(drawn > 40);
        const char *warning = strstr(said, "ofload-batch: the link");
        assert_true(warning != NULL && warning[-1] == '\n');
        if (columns == 200) {
            assert_true(count_of(said, "  link 100 %") > 5 && count_of(said, "  link 50 %") > 5 && count_of(said, " left") > drawn - 2);
            assert_non_null(strstr(said, " tokens/s, forecast "));
            assert_non_null(strstr(said, "  step 50.0 ms"));
        }
        assert_string_equal(said + strlen(said) - 2, "\r\n");
        free(said);
    }
}

/* ---- the forecast ---- */

static void noisy(stub *s)
{
    uint64_t seed = s->steps * 977;
    s->pace = 1.04 * (0.9 + 0.2 * (double)(test_random(&seed) % 1000) / 1000);
}

static void test_the_forecast_of_500_requests(void **state)
{
    (void)state;
    fresh();
    write_long_jobs(500, 60);
    run_settings settings = stub_settings(in_path, out_path);
    settings.report = test_path("forecast.json");
    backend model = stub_backend();
    the_stub.plan.link_seconds = 0.02; /* steps with prompts are bound by the compute, others by the link */
    the_stub.before_step = noisy;
    (void)run(&settings, &model);
    cJSON *report = read_report(settings.report);
    double measured = figure(report, "measured", "seconds"), first = figure(report, "forecast", "seconds");
    double after = figure(report, "forecast_after_20_steps", "seconds"), error = figure(report, "forecast_after_20_steps", "error_percent");
    print_message("500 requests, %.0f steps, %.1f s: forecast %+.2f %%, after 20 steps %+.2f %%, for the steps that ran %+.2f %%\n",
                  figure(report, "measured", "steps"), measured, 100 * (measured / first - 1), error,
                  figure(report, "forecast_after_20_steps", "steps_that_ran_error_percent"));
    assert_true(fabs(measured / first - 1) < 0.05);
    assert_true(fabs(error) < 2 && fabs(error - 100 * (measured / after - 1)) < 1e-6);
    assert_true(fabs(figure(report, "forecast_after_20_steps", "steps_that_ran_error_percent")) < 2);
    assert_true(fabs(figure(report, "forecast_after_20_steps", "correction") - 1.04) < 0.03);
    cJSON_Delete(report);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_a_slow_link_is_told_once),
    cmocka_unit_test(test_noise_is_no_slow_link),
    cmocka_unit_test(test_a_link_that_did_not_bind),
    cmocka_unit_test(test_plain_lines_and_the_pace_of_a_resumed_run),
    cmocka_unit_test(test_about),
    cmocka_unit_test(test_one_line_redrawn_on_a_terminal),
    cmocka_unit_test(test_the_forecast_of_500_requests),
};
TEST_MAIN(tests)
