/* Out of device memory in the middle of a run over the stub model: something is given up, the run goes on, no answer is lost, doubled or
 * changed. */
#include "support/job_rig.h"

#include <fcntl.h>
#include <unistd.h>

#include "batch/job.h"

/* The device: a step needs memory for its tokens and for the sequences that have KV, and for what is resident. */
typedef struct device {
    uint32_t free_from_step, free_for;  /* from that step on there is only so much; 0: always enough */
    uint32_t residents;                 /* of the plan that is loaded */
    backend_limits limits;
    bool loaded;
    uint32_t loads_refused, shrinks_refused, shrunk, planned;
    ofl_plan plans[JOB_MOST_DOWNS + 1];
    backend_load load;
} device;
static device the_device;

static uint32_t needed(const device *d) { return d->limits.tokens_per_step + 20 * d->limits.sequences + d->residents; }

static void settle(device *d, const ofl_plan *plan)
{
    const ofl_plan_settings *p = &plan->settings;
    d->limits = (backend_limits){p->tokens_per_step_cap, p->prefill_chunk_tokens, p->sequences, p->kv_capacity_tokens};
}

static void forget_kv(stub *s)
{
    memset(s->length, 0, sizeof s->length);
    memset(s->prompt, 0, sizeof s->prompt);
}

static ofl_status tight_load(void *context)
{
    device *d = &the_device;
    assert_false(d->loaded);
    if (d->loads_refused > 0) {
        d->loads_refused--;
        return app_fail(OFL_ERROR_DEVICE_MEMORY, "loading: no memory");
    }
    d->loaded = true;
    return stub_load(context);
}

static ofl_status tight_step(void *context, const ofl_step *step, const int32_t *tokens, row_choice *rows)
{
    stub *s = context;
    const device *d = &the_device;
    assert_true(d->loaded);
    assert_true(step->shape.tokens <= d->limits.tokens_per_step && step->item_count <= d->limits.sequences);
    for (uint32_t i = 0; i < step->item_count; i++) {
        const ofl_step_item *item = &step->items[i];
        for (uint32_t b = 0; b < item->block_count; b++) assert_true((item->blocks[b] + 1) * UINT64_C(16) <= d->limits.kv_tokens);
    }
    if (d->free_for != 0 && s->steps + 1 >= d->free_from_step && needed(d) > d->free_for)
        return app_fail(OFL_ERROR_DEVICE_MEMORY, "the step's %u tokens: no memory", step->shape.tokens);
    return stub_step(context, step, tokens, rows);
}

static ofl_status tight_shrink(void *context, const backend_limits *limits)
{
    device *d = &the_device;
    d->shrunk++;
    if (d->shrinks_refused > 0) {
        d->shrinks_refused--;
        return app_fail(OFL_ERROR_DEVICE_MEMORY, "shrinking: no memory");
    }
    assert_true(limits->tokens_per_step <= d->limits.tokens_per_step && limits->sequences <= d->limits.sequences);
    assert_true(limits->tokens_per_step >= limits->sequences && limits->kv_tokens <= d->limits.kv_tokens);
    if (limits->kv_tokens != d->limits.kv_tokens) forget_kv(context);
    d->limits = *limits;
    return OFL_OK;
}

static ofl_status tight_plan_less(void *context, const backend_load *load, const ofl_plan **out, uint64_t *bytes_out)
{
    device *d = &the_device;
    assert_int_equal(load->requests, d->load.requests);
    d->loaded = false;
    forget_kv(context);
    if (d->residents == 0) return app_fail(OFL_ERROR_NO_FIT, "nothing fits any more");
    d->residents -= d->residents < 50 ? d->residents : 50;
    ofl_plan *plan = &d->plans[d->planned++];
    *plan = made_plan(4, 36, 32, 16, 4 * 512);
    settle(d, plan);
    *bytes_out = d->residents + 1000u;
    *out = plan;
    return OFL_OK;
}

static ofl_status tight_plan(void *context, const backend_load *load, const ofl_plan **out)
{
    ofl_status status = stub_plan(context, load, out);
    the_device.load = *load;
    settle(&the_device, *out);
    return status;
}

static backend tight_backend(uint32_t from_step, uint32_t free_for)
{
    backend model = stub_backend();
    the_device = (device){.free_from_step = from_step, .free_for = free_for, .residents = 200};
    model.plan = tight_plan;
    model.load = tight_load;
    model.step = tight_step;
    model.shrink = tight_shrink;
    model.plan_less = tight_plan_less;
    return model;
}

/* Prompts of many lengths; drawn and greedy, several choices, log-probabilities. */
static void write_mixed_jobs(void)
{
    static const char *const params[] = {"\"temperature\":0", "\"temperature\":4,\"n\":3", "\"temperature\":3,\"logprobs\":true",
                                         "\"stop\":\"e\""};
    FILE *file = fopen(in_path, "w");
    for (int i = 0; i < 40; i++) {
        char id[20], prompt[120];
        (void)snprintf(id, sizeof id, "r%d", i);
        (void)snprintf(prompt, sizeof prompt, "%*s%s %d", i * 17 % 90, "", i % 5 ? "goes on" : "#answer", i);
        if (i == 11) (void)fputs("no request\n", file);
        add_line(file, id, prompt, params[i % 4]);
    }
    assert_int_equal(fclose(file), 0);
}

static void remove_output(void)
{
    char state[600];
    (void)snprintf(state, sizeof state, "%s.state.json", out_path);
    (void)unlink(out_path);
    (void)unlink(state);
}

typedef struct expected { run_settings settings; char *text; double completion; } expected;

static cJSON *read_report(const char *path)
{
    char *text = test_read(path, NULL);
    cJSON *report = cJSON_Parse(text);
    assert_non_null(report);
    free(text);
    return report;
}

static double completion_of(const cJSON *report)
{
    return cJSON_GetObjectItem(cJSON_GetObjectItem(report, "tokens"), "completion")->valuedouble;
}

/* What a run with memory enough writes. */
static expected undisturbed(void)
{
    fresh();
    write_mixed_jobs();
    assert_int_equal(setenv("SOURCE_DATE_EPOCH", "1700000000", 1), 0);
    expected e = {.settings = stub_settings(in_path, out_path)};
    e.settings.ordered = true;
    static char report_path[512];
    (void)snprintf(report_path, sizeof report_path, "%s", test_path("down.json"));
    e.settings.report = report_path;
    backend model = tight_backend(0, 0);
    assert_int_equal(run(&e.settings, &model), EXIT_ERROR_LINES);
    e.text = test_read(out_path, NULL);
    cJSON *report = read_report(e.settings.report);
    e.completion = completion_of(report);
    assert_int_equal(cJSON_GetArraySize(cJSON_GetObjectItem(report, "steps_down")), 0);
    cJSON_Delete(report);
    return e;
}

/* The same run with less memory: the same bytes, and the report. */
static cJSON *run_the_same(const expected *e, const backend *model)
{
    remove_output();
    assert_int_equal(run(&e->settings, model), EXIT_ERROR_LINES);
    char *text = test_read(out_path, NULL);
    assert_string_equal(text, e->text);
    free(text);
    cJSON *report = read_report(e->settings.report);
    assert_true(completion_of(report) == e->completion);
    return report;
}

static double figure(const cJSON *entry, const char *name)
{
    const cJSON *item = cJSON_GetObjectItem(entry, name);
    if (item == NULL) fail_msg("no %s", name);
    return item->valuedouble;
}

static void test_what_is_given_up(void **state)
{
    (void)state;
    /* All of it needs 316; 292 with fewer tokens a step, 271 with fewer sequences too, 266, 216, 166 and 116 with plans for less. */
    static const struct { uint32_t free_for; int count; const char *fewer[6]; } cases[] = {
        {316, 0, {NULL}},
        {292, 1, {"tokens per step"}},
        {291, 2, {"tokens per step", "sequences"}},
        {270, 3, {"tokens per step", "sequences", "residents"}},
        {216, 4, {"tokens per step", "sequences", "residents", "residents"}},
        {116, 6, {"tokens per step", "sequences", "residents", "residents", "residents", "residents"}},
    };
    expected e = undisturbed();
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        backend model = tight_backend(40, cases[i].free_for);
        cJSON *report = run_the_same(&e, &model);
        const cJSON *list = cJSON_GetObjectItem(report, "steps_down"), *entry;
        assert_int_equal(cJSON_GetArraySize(list), cases[i].count);
        int index = 0;
        bool ran_something = true;
        cJSON_ArrayForEach(entry, list)
        {
            assert_string_equal(cJSON_GetObjectItem(entry, "fewer")->valuestring, cases[i].fewer[index]);
            assert_true(figure(entry, "after_steps") == 39);
            assert_true(figure(entry, "sequences") == (index == 1 ? 3 : 4));
            if (index == 0) assert_true(figure(entry, "restarted") == 0 && figure(entry, "prefill_chunk") == 8);
            if (index == 1) assert_true(figure(entry, "restarted") > 0 && figure(entry, "tokens_made_again") > 0);
            if (index > 1) assert_true(figure(entry, "plan_bytes") == 1200 - 50 * (index - 1));
            ran_something = ran_something && figure(entry, "after_seconds") > 0;
            index++;
        }
        assert_true(ran_something);
        cJSON_Delete(report);
    }
    free(e.text);
}

static void test_loading_and_shrinking_may_fail_too(void **state)
{
    (void)state;
    expected e = undisturbed();
    backend model = tight_backend(0, 0);
    the_device.loads_refused = 3;
    cJSON *report = run_the_same(&e, &model);
    assert_int_equal(cJSON_GetArraySize(cJSON_GetObjectItem(report, "steps_down")), 3);
    assert_true(figure(cJSON_GetArrayItem(cJSON_GetObjectItem(report, "steps_down"), 2), "after_steps") == 0);
    cJSON_Delete(report);
    model = tight_backend(30, 296);
    the_device.shrinks_refused = 1; /* so what runs cannot go on, but fewer sequences can */
    report = run_the_same(&e, &model);
    assert_int_equal(cJSON_GetArraySize(cJSON_GetObjectItem(report, "steps_down")), 1);
    cJSON_Delete(report);
    model = tight_backend(30, 280);
    the_device.shrinks_refused = 2;
    report = run_the_same(&e, &model);
    const cJSON *only = cJSON_GetArrayItem(cJSON_GetObjectItem(report, "steps_down"), 0);
    assert_string_equal(cJSON_GetObjectItem(only, "fewer")->valuestring, "residents");
    cJSON_Delete(report);
    model = tight_backend(30, 280);
    model.shrink = NULL;
    report = run_the_same(&e, &model);
    assert_int_equal(the_device.planned, 1);
    cJSON_Delete(report);
    free(e.text);
}

static void test_any_moment(void **state)
{
    (void)state;
    expected e = undisturbed();
    uint64_t seed = 3;
    for (int round = 0; round < 150; round++) {
        backend model = tight_backend(1 + (uint32_t)(test_random(&seed) % 160), 120 + (uint32_t)(test_random(&seed) % 200));
        the_device.shrinks_refused = test_random(&seed) % 4 == 0;
        the_device.loads_refused = test_random(&seed) % 4 == 0;
        cJSON_Delete(run_the_same(&e, &model));
    }
    free(e.text);
}

static char *said_by(const run_settings *settings, const backend *model, int *exit_out, ofl_status *status_out)
{
    const char *path = test_path("said");
    int kept = dup(STDERR_FILENO), file = open(path, O_RDWR | O_CREAT | O_TRUNC, 0600);
    assert_true(kept >= 0 && file >= 0 && dup2(file, STDERR_FILENO) >= 0);
    *status_out = batch_run(settings, model, exit_out);
    assert_true(dup2(kept, STDERR_FILENO) >= 0 && close(kept) == 0 && close(file) == 0);
    return test_read(path, NULL);
}

static void test_each_is_said_once(void **state)
{
    (void)state;
    expected e = undisturbed();
    backend model = tight_backend(40, 270);
    int exit_status;
    ofl_status status;
    remove_output();
    e.settings.quiet = false;
    char *said = said_by(&e.settings, &model, &exit_status, &status), *at = said;
    assert_ok(status);
    static const char *const lines[] = {"tokens: no memory): going on with 8 prompt tokens a step; what runs goes on\n",
                                        "going on with 3 sequences at once; ", "going on with a plan for 1.1 kB"};
    for (int i = 0; i < 3; i++) {
        at = strstr(at, "ofload-batch: out of device memory after step 39 (the step's ");
        assert_non_null(at);
        char *end = strchr(at, '\n'), *found = strstr(at, lines[i]);
        assert_true(found != NULL && found < end);
        at = end;
    }
    assert_null(strstr(at, "out of device memory"));
    free(said);
    free(e.text);
}

/* Nothing helps: what is written stays, and when there is memory again a second run does the rest. */
static void test_nothing_is_left_to_give_up(void **state)
{
    (void)state;
    expected e = undisturbed();
    backend model = tight_backend(100, 10);
    remove_output();
    assert_int_equal(run_fails(&e.settings, &model, "out of device memory after step 99 (the step's"), OFL_ERROR_NO_FIT);
    assert_non_null(strstr(app_error(), "nothing fits any more; free device memory and run again to go on"));
    answers a = read_answers(out_path);
    assert_true(cJSON_GetArraySize(a.lines) > 3 && cJSON_GetArraySize(a.lines) < 41);
    free_answers(&a);
    model = tight_backend(0, 0);
    assert_int_equal(run(&e.settings, &model), EXIT_ERROR_LINES);
    char *text = test_read(out_path, NULL);
    assert_string_equal(text, e.text);
    free(text);
    model = tight_backend(100, 10); /* no way to give anything up */
    model.shrink = NULL;
    model.plan_less = NULL;
    remove_output();
    assert_int_equal(run_fails(&e.settings, &model, "no memory"), OFL_ERROR_DEVICE_MEMORY);
    free(e.text);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_what_is_given_up), cmocka_unit_test(test_loading_and_shrinking_may_fail_too),
    cmocka_unit_test(test_any_moment),       cmocka_unit_test(test_each_is_said_once),
    cmocka_unit_test(test_nothing_is_left_to_give_up),
};
TEST_MAIN(tests)
