/* The engine on the CUDA back end: on a GPU, or with the stand-in runtime of tests/fakecuda loaded (then every call of the runtime is failed in turn, too).
 * The reader copies what it was handed back to the host, so that no kernel is needed. */
#include "support/engine_fixture.h"

#include <dlfcn.h>

#include "base/base.h"

static int (*fake_live)(void);
static int (*fake_fired)(void);

static void find_fake(void)
{
    void *live = dlsym(RTLD_DEFAULT, "fakecuda_live"), *fired = dlsym(RTLD_DEFAULT, "fakecuda_fired");
    memcpy(&fake_live, &live, sizeof fake_live);
    memcpy(&fake_fired, &fired, sizeof fake_fired);
}

static fixture_model model;
static fixture_case planned;

static fixture_case small_case(void)
{
    fixture_case c = {.link = 2e9, .start = 1e-6, .compute = 1e-9, .cut = OFL_CUT_BYTES, .part_bytes = 128 * 1024};
    c.vram = fixture_least_vram(c, model.model) + 300000;
    return c;
}

/* What a reader brought back, to be checked when its stream is drained. */
typedef struct sink {
    char *memory;
    uint64_t bytes, used;
    fixture_check *checks;
    ofl_view_slice *slices;
    uint32_t check_count, slice_count, wrong;
} sink;

static ofl_status read_back(ofl_device *device, ofl_stream *stream, const ofl_view *view, sink *to)
{
    fixture_check *check = &to->checks[to->check_count++];
    *check = (fixture_check){&model, to->slices + to->slice_count, view->slice_count, &to->wrong};
    for (uint32_t i = 0; i < view->slice_count; i++) {
        ofl_view_slice slice = view->slices[i];
        assert_true(to->used + slice.bytes <= to->bytes);
        ofl_status status = ofl_copy(device, stream, OFL_DEVICE_TO_HOST, to->memory + to->used, slice.data, slice.bytes, OFL_HOST_PINNED);
        if (status != OFL_OK) return status;
        slice.data = to->memory + to->used;
        to->used += (slice.bytes + 255) / 256 * 256;
        to->slices[to->slice_count++] = slice;
    }
    return OFL_OK;
}

static void sink_check(sink *to)
{
    for (uint32_t i = 0; i < to->check_count; i++) fixture_check_run(&to->checks[i]);
    to->check_count = to->slice_count = 0;
    to->used = 0;
}

static ofl_status one_unit(ofl_engine *engine, ofl_device *device, uint32_t unit, ofl_stream *reader, int on_host, sink *to)
{
    ofl_view view = {.struct_size = sizeof view};
    ofl_status status = ofl_engine_acquire(engine, unit, on_host ? NULL : reader, &view);
    if (status == OFL_OK) status = read_back(device, reader, &view, to);
    if (status == OFL_OK && on_host) status = ofl_stream_wait(device, reader);
    return status == OFL_OK ? ofl_engine_release(engine, unit, on_host ? NULL : reader) : status;
}

typedef struct job {
    const ofl_plan *plan;
    uint32_t units, steps;
    uint64_t seed; /* 0: in order */
    uint32_t wrong;
} job;

static ofl_status job_steps(job *j, ofl_device *device, ofl_engine *engine, ofl_stream *reader, sink *to)
{
    uint64_t random = j->seed;
    for (uint32_t step = 0; step < j->steps; step++) {
        ofl_status status = OFL_OK;
        for (uint32_t i = 0; i < j->units && status == OFL_OK; i++) {
            uint32_t unit = j->seed != 0 && test_random(&random) % 4 == 0 ? (uint32_t)(test_random(&random) % j->units) : i;
            status = one_unit(engine, device, unit, reader, j->seed != 0 ? test_random(&random) % 2 == 0 : step % 2 == 0, to);
        }
        if (status == OFL_OK) status = ofl_stream_wait(device, reader);
        if (status != OFL_OK) return status;
        sink_check(to);
    }
    return OFL_OK;
}

/* Everything from device to device: what was made is taken back whatever fails. */
static ofl_status run(job *j)
{
    ofl_device *device = NULL;
    ofl_engine *engine = NULL;
    ofl_stream *reader = NULL;
    void *memory = NULL;
    sink to = {.bytes = 16u << 20};
    to.checks = calloc(j->units, sizeof *to.checks);
    to.slices = calloc(ofl_plan_slice_count(j->plan) * 4 + 64, sizeof *to.slices);
    assert_true(to.checks != NULL && to.slices != NULL);
    ofl_status status = ofl_device_open("cuda:0", &device);
    if (status == OFL_OK) status = ofl_stream_create(device, &reader);
    if (status == OFL_OK) status = ofl_device_host_alloc(device, to.bytes, &memory);
    to.memory = memory;
    if (status == OFL_OK) status = ofl_engine_open(j->plan, model.model, device, NULL, &engine);
    if (status == OFL_OK) status = job_steps(j, device, engine, reader, &to);
    j->wrong = to.wrong;
    if (reader != NULL) (void)ofl_stream_wait(device, reader);
    ofl_engine_close(engine);
    ofl_device_host_free(device, memory);
    ofl_stream_destroy(device, reader);
    ofl_device_close(device);
    free(to.checks);
    free(to.slices);
    return status;
}

static void test_any_order(void **state)
{
    (void)state;
    ofl_plan *plan;
    assert_ok(fixture_plan_make(&planned, model.model, &plan));
    for (uint64_t seed = 0; seed < 6; seed++) {
        job j = {.plan = plan, .units = ofl_plan_unit_count(plan), .steps = 6, .seed = seed};
        assert_ok(run(&j));
        assert_int_equal(j.wrong, 0);
        if (fake_live != NULL) assert_int_equal(fake_live(), 0);
    }
    ofl_plan_destroy(plan);
}

/* Many runs: on the wall clock they would take minutes. */
static void need_virtual_fake(void)
{
    const char *spec = getenv("OFLOAD_FAKECUDA_SPEC");
    if (fake_live == NULL || spec == NULL || strstr(spec, "clock=virtual") == NULL) skip();
}

/* One call fails with an error that passes: either it did not matter, or a status and a sentence say so; never a wrong byte, and nothing left behind but the one
 * thing whose release failed. */
static void sweep(const ofl_plan *plan, const char *call, int code, uint32_t *failures)
{
    int fired, nth = 0;
    do {
        char text[64];
        job j = {.plan = plan, .units = ofl_plan_unit_count(plan), .steps = 2};
        int live = fake_live();
        (void)snprintf(text, sizeof text, "%s:%d:%d", call, ++nth, code);
        (void)setenv("OFLOAD_FAKECUDA_FAIL", text, 1);
        fired = fake_fired();
        ofl_status status = run(&j);
        fired = fake_fired() - fired;
        (void)unsetenv("OFLOAD_FAKECUDA_FAIL");
        assert_int_equal(j.wrong, 0);
        *failures += status != OFL_OK;
        if (status != OFL_OK) {
            assert_true(status < 0 && strlen(ofl_error_message()) > 10);
            assert_int_equal(ofl_diagnostic_get()->status, status);
        }
        if (code < 700) assert_in_range(fake_live() - live, 0, status == OFL_OK ? 1 : 0);
        if (code >= 700 && fired > 0 && status != OFL_OK) assert_int_equal(status, OFL_ERROR_DEVICE_LOST);
        if (nth > 40) nth += nth / 16; /* steady state has many alike */
    } while (fired > 0);
    assert_true(nth > 1);
}

static void test_every_call_may_fail(void **state)
{
    (void)state;
    need_virtual_fake();
    ofl_plan *plan;
    uint32_t failures = 0;
    assert_ok(fixture_plan_make(&planned, model.model, &plan));
    sweep(plan, "*", 3, &failures);
    assert_true(failures > 20);
    sweep(plan, "cudaMalloc", 2, &failures);
    sweep(plan, "cudaHostAlloc", 2, &failures);
    job j = {.plan = plan, .units = ofl_plan_unit_count(plan), .steps = 2};
    assert_ok(run(&j));
    ofl_plan_destroy(plan);
}

/* Lost for good: last, since what a lost device held is gone with it. */
static void test_device_lost_at_any_call(void **state)
{
    (void)state;
    need_virtual_fake();
    ofl_plan *plan;
    uint32_t failures = 0;
    assert_ok(fixture_plan_make(&planned, model.model, &plan));
    sweep(plan, "cudaMemcpyAsync", 700, &failures);
    sweep(plan, "cudaStreamWaitEvent", 719, &failures);
    assert_true(failures > 20);
    ofl_plan_destroy(plan);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_any_order),
    cmocka_unit_test(test_every_call_may_fail),
    cmocka_unit_test(test_device_lost_at_any_call),
};

int main(void)
{
    ofl_device *device = NULL;
    find_fake();
    if (fake_live == NULL && getenv("OFLOAD_TEST_DEVICE_NEEDED") != NULL) {
        (void)printf("the stand-in runtime was not loaded\n");
        return 1;
    }
    if (getenv("OFLOAD_TEST_DEVICE") == NULL || ofl_device_open("cuda:0", &device) != OFL_OK) {
        (void)printf("no CUDA device asked for, or none there: skipped\n");
        return 77;
    }
    ofl_device_close(device);
    fixture_model_open(&model, 0);
    planned = small_case();
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    fixture_model_close(&model);
    return failed ? 1 : 0;
}
