/* The lower tiers, and everything that can fail: each allocation in turn, pinning, reading, closing in the middle, several threads. */
#include "support/engine_fixture.h"

#include <pthread.h>
#include <unistd.h>

#include "base/base.h"

typedef struct usage { uint32_t wrong; ofl_status status; } usage;

static void check_now(const fixture *f, const ofl_view *view, usage *u)
{
    fixture_check check = {f->model, view->slices, view->slice_count, &u->wrong};
    fixture_check_run(&check);
}

/* Steps on the host, stopping at the first failure. */
static void steps_on_host(fixture *f, uint32_t steps, double seconds, usage *u)
{
    for (uint32_t i = 0; i < steps * f->units && u->status == OFL_OK; i++) {
        ofl_view view = {.struct_size = sizeof view};
        u->status = ofl_engine_acquire(f->engine, i % f->units, NULL, &view);
        if (u->status != OFL_OK) return;
        check_now(f, &view, u);
        u->status = ofl_sim_elapse(f->device, seconds);
        if (u->status == OFL_OK) u->status = ofl_engine_release(f->engine, i % f->units, NULL);
    }
}

/* The same on a stream, each unit checked when its work runs. */
static void steps_on_stream(fixture *f, uint32_t steps, usage *u)
{
    enum { MOST = 64 };
    ofl_stream *stream;
    fixture_check checks[MOST];
    ofl_view_slice slices[MOST][8];
    u->status = ofl_stream_create(f->device, &stream);
    for (uint32_t i = 0; i < steps * f->units && u->status == OFL_OK; i++) {
        ofl_view view = {.struct_size = sizeof view};
        u->status = ofl_engine_acquire(f->engine, i % f->units, stream, &view);
        if (u->status != OFL_OK) break;
        assert_true(view.slice_count <= 8);
        memcpy(slices[i % MOST], view.slices, view.slice_count * sizeof *view.slices);
        checks[i % MOST] = (fixture_check){f->model, slices[i % MOST], view.slice_count, &u->wrong};
        u->status = ofl_sim_launch(f->device, stream, fixture_check_run, &checks[i % MOST], 1e-5);
        if (u->status == OFL_OK) u->status = ofl_engine_release(f->engine, i % f->units, stream);
        if (u->status == OFL_OK && i % MOST == MOST - 1) u->status = ofl_stream_wait(f->device, stream);
    }
    if (u->status == OFL_OK || stream != NULL) (void)ofl_stream_wait(f->device, stream);
    ofl_stream_destroy(f->device, stream);
}

static fixture_case small_case(const ofl_model *model, const char *clock)
{
    fixture_case c = {.link = 2e9, .start = 1e-6, .compute = 1e-9, .cut = OFL_CUT_BYTES, .part_bytes = 128 * 1024};
    c.vram = fixture_least_vram(c, model) + 600000;
    c.clock = clock;
    return c;
}

static const ofl_engine_options poisoned = {.struct_size = sizeof(ofl_engine_options), .poison = 1};

/* Some of the pieces pinned, some pageable, some in the file (in the caller's memory there is none: they are read from where they lie). */
static void test_lower_tiers(void **state)
{
    (void)state;
    for (int round = 0; round < 8; round++) {
        fixture_model model;
        fixture_model_make(&model, 0, round % 2 ? test_path("weights") : NULL);
        fixture_case c = small_case(model.model, round / 4 ? "wall" : "virtual");
        c.pinnable = 2 << 20;
        c.host_bytes = round / 2 % 2 ? 3 << 20 : 0;
        fixture f;
        fixture_open(&f, &c, &model, &poisoned);
        assert_true(f.budget.pageable_bytes > 0);
        assert_true(c.host_bytes == 0 || f.budget.file_bytes > 0);
        usage on_host = {0, OFL_OK}, on_stream = {0, OFL_OK};
        steps_on_host(&f, 4, 1e-5, &on_host);
        steps_on_stream(&f, 4, &on_stream);
        assert_ok(on_host.status);
        assert_ok(on_stream.status);
        assert_int_equal(on_host.wrong + on_stream.wrong, 0);
        ofl_engine_stats stats = {.struct_size = sizeof stats};
        assert_ok(ofl_engine_stats_get(f.engine, &stats));
        assert_true(stats.pinned_bytes <= c.pinnable);
        assert_int_equal(stats.file_bytes, round % 2 ? f.budget.file_bytes : 0);
        assert_int_equal(stats.from_pinned_bytes + stats.from_pageable_bytes + stats.from_file_bytes, stats.bytes_streamed);
        assert_true(stats.from_pinned_bytes > 0 && stats.from_pageable_bytes > 0 && (stats.from_file_bytes > 0) == (stats.file_bytes > 0));
        fixture_close(&f);
        fixture_model_close(&model);
    }
}

/* Any order, with pieces that the feeder may not have begun, or be in the middle of, when they are dropped. */
static void test_lower_tiers_in_any_order(void **state)
{
    (void)state;
    fixture_model model;
    fixture_model_open(&model, 0);
    for (uint64_t seed = 1; seed <= FIXTURE_SEEDS(12); seed++) {
        uint64_t random = seed;
        fixture_case c = small_case(model.model, seed % 2 ? "virtual" : "wall");
        c.pinnable = 2 << 20;
        c.host_bytes = 4 << 20;
        c.order = c.clock[0] == 'v' ? seed : 0;
        fixture f;
        usage u = {0, OFL_OK};
        fixture_open(&f, &c, &model, &poisoned);
        for (int i = 0; i < 300; i++) {
            ofl_view view = {.struct_size = sizeof view};
            uint32_t unit = test_random(&random) % 4 ? (uint32_t)i % f.units : (uint32_t)(test_random(&random) % f.units);
            assert_ok(ofl_engine_acquire(f.engine, unit, NULL, &view));
            check_now(&f, &view, &u);
            assert_ok(ofl_engine_release(f.engine, unit, NULL));
        }
        assert_int_equal(u.wrong, 0);
        fixture_close(&f);
    }
    fixture_model_close(&model);
}

static char said[512];
static void remember(void *context, const char *sentence)
{
    (void)context;
    (void)snprintf(said, sizeof said, "%s", sentence);
}

/* Less can be pinned than was planned with: the rest is pageable, and that is said. */
static void test_pinning_refused(void **state)
{
    (void)state;
    fixture_model model;
    fixture_model_open(&model, 0);
    for (int i = 0; i < 2; i++) {
        fixture_case c = small_case(model.model, "virtual");
        ofl_engine_options options = {.struct_size = sizeof options, .message = remember, .poison = 1};
        c.pinnable_there = FIXTURE_VOCAB * FIXTURE_HIDDEN * sizeof(float) + (i ? 5u << 20 : 8192);
        fixture f;
        usage u = {0, OFL_OK};
        said[0] = '\0';
        fixture_open(&f, &c, &model, &options);
        assert_non_null(strstr(said, "host memory"));
        assert_null(strstr(said, "device memory"));
        steps_on_host(&f, 3, 1e-5, &u);
        assert_ok(u.status);
        assert_int_equal(u.wrong, 0);
        fixture_close(&f);
    }
    fixture_model_close(&model);
}

/* Rows are read by the device: a lookup tensor has no lower tier to fall to. */
static void test_rows_have_to_be_pinned(void **state)
{
    (void)state;
    fixture_model model;
    fixture_model_open(&model, 0);
    fixture_case c = small_case(model.model, "virtual");
    c.pinnable_there = 65536;
    ofl_plan *plan;
    ofl_device *device;
    ofl_engine *engine = NULL;
    assert_ok(fixture_plan_make(&c, model.model, &plan));
    fixture_device_open(&c, &device);
    assert_status(ofl_engine_open(plan, model.model, device, NULL, &engine), OFL_ERROR_PINNED_MEMORY);
    assert_null(engine);
    fixture_device_close(device);
    ofl_plan_destroy(plan);
    fixture_model_close(&model);
}

/* The file is cut while it is in use: loading says so; in the middle of a step acquire does, and goes on saying so. */
static void test_the_file_fails(void **state)
{
    (void)state;
    fixture_model model;
    char path[512];
    (void)snprintf(path, sizeof path, "%s", test_path("cut"));
    for (int later = 0; later < 2; later++) {
        fixture_model_make(&model, 0, path);
        fixture_case c = small_case(model.model, "virtual");
        c.pinnable = 2 << 20;
        c.host_bytes = 3 << 20;
        ofl_plan *plan;
        ofl_device *device;
        ofl_engine *engine = NULL;
        assert_ok(fixture_plan_make(&c, model.model, &plan));
        fixture_device_open(&c, &device);
        if (!later) assert_int_equal(truncate(path, 100), 0);
        ofl_status status = ofl_engine_open(plan, model.model, device, NULL, &engine);
        if (later) {
            fixture f = {.model = &model, .device = device, .engine = engine, .units = ofl_plan_unit_count(plan)};
            usage u = {0, OFL_OK};
            assert_ok(status);
            assert_int_equal(truncate(path, 100), 0);
            steps_on_host(&f, 2, 0, &u);
            assert_int_equal(u.wrong, 0);
            status = u.status;
            ofl_view view = {.struct_size = sizeof view};
            assert_status(ofl_engine_acquire(engine, 0, NULL, &view), OFL_ERROR_IO);
        }
        assert_status(status, OFL_ERROR_IO);
        ofl_engine_close(engine);
        fixture_device_close(device);
        ofl_plan_destroy(plan);
        fixture_model_close(&model);
    }
}

/* Opens with the n-th allocation failing: false when all went well, as it does beyond the last. */
static int open_fails(const fixture *f, uint64_t nth)
{
    ofl_engine *engine = NULL;
    (void)ofl_fault_allocation(nth);
    ofl_status status = ofl_engine_open(f->plan, f->model->model, f->device, &poisoned, &engine);
    (void)ofl_fault_allocation(0);
    if (status != OFL_OK) {
        assert_status(status, OFL_ERROR_HOST_MEMORY);
        assert_null(engine);
        assert_true(strlen(ofl_error_message()) > 10);
        ofl_memory_info memory = {.struct_size = sizeof memory};
        assert_ok(ofl_device_memory_get(f->device, &memory));
        assert_int_equal(memory.used_bytes + memory.pinned_bytes, 0);
    }
    ofl_engine_close(engine);
    return status != OFL_OK;
}

static void steps_with_fault(fixture *f, uint64_t nth, uint64_t *failures)
{
    usage u = {0, OFL_OK};
    assert_ok(ofl_engine_open(f->plan, f->model->model, f->device, &poisoned, &f->engine));
    (void)ofl_fault_allocation(nth);
    if (nth % 2) steps_on_host(f, 1, 1e-5, &u);
    else steps_on_stream(f, 1, &u);
    (void)ofl_fault_allocation(0);
    assert_int_equal(u.wrong, 0);
    if (u.status != OFL_OK) {
        assert_status(u.status, OFL_ERROR_HOST_MEMORY);
        ++*failures;
    }
    ofl_engine_close(f->engine);
}

/* Every allocation of the library's, in open and in a step (there the device's own), fails once; nothing is left and the next open works. */
static void test_every_allocation_fails(void **state)
{
    (void)state;
    for (int lower = 0; lower < 2; lower++) {
        fixture_model model;
        fixture f = {.model = &model};
        uint64_t opens = 0, failures = 0;
        fixture_model_open(&model, 0);
        fixture_case c = small_case(model.model, "virtual");
        if (lower) c.pinnable = 2 << 20, c.host_bytes = 3 << 20;
        assert_ok(fixture_plan_make(&c, model.model, &f.plan));
        fixture_device_open(&c, &f.device);
        f.units = ofl_plan_unit_count(f.plan);
        for (uint64_t nth = 1; open_fails(&f, nth); nth++) opens++;
        assert_true(opens > 10);
        for (uint64_t nth = 1; nth <= FIXTURE_SEEDS(60); nth++) steps_with_fault(&f, nth, &failures);
        assert_true(failures > 0);
        fixture_device_close(f.device);
        ofl_plan_destroy(f.plan);
        fixture_model_close(&model);
    }
}

/* Closed at any moment: just opened, in the middle of a step, units held, the reader's work still to come. */
static void test_closed_in_the_middle(void **state)
{
    (void)state;
    fixture_model model;
    fixture_model_open(&model, 0);
    for (uint32_t i = 0; i < 16; i++) {
        fixture_case c = small_case(model.model, i % 2 ? "wall" : "virtual");
        if (i / 2 % 2) c.pinnable = 2 << 20;
        if (i / 4 % 2 && c.pinnable) c.host_bytes = 3 << 20;
        fixture f;
        usage u = {0, OFL_OK};
        ofl_view view = {.struct_size = sizeof view};
        ofl_stream *stream;
        fixture_open(&f, &c, &model, &poisoned);
        assert_ok(ofl_stream_create(f.device, &stream));
        for (uint32_t unit = 0; unit < i; unit++) {
            assert_ok(ofl_engine_acquire(f.engine, unit % f.units, stream, &view));
            assert_ok(ofl_sim_launch(f.device, stream, NULL, NULL, 1e-3));
            assert_ok(ofl_engine_release(f.engine, unit % f.units, stream));
        }
        if (i > 8) assert_ok(ofl_engine_acquire(f.engine, i % f.units, NULL, &view));
        ofl_engine_close(f.engine);
        f.engine = NULL;
        assert_ok(ofl_stream_wait(f.device, stream));
        ofl_stream_destroy(f.device, stream);
        assert_int_equal(u.wrong, 0);
        fixture_close(&f);
    }
    fixture_model_close(&model);
}

static void *run_thread(void *argument)
{
    fixture *f = argument;
    usage u = {0, OFL_OK};
    ofl_status status = ofl_engine_open(f->plan, f->model->model, f->device, &poisoned, &f->engine);
    if (status == OFL_OK) steps_on_host(f, 6, 0, &u);
    if (status == OFL_OK && u.status == OFL_OK) steps_on_stream(f, 6, &u);
    ofl_engine_close(f->engine);
    return status == OFL_OK && u.status == OFL_OK && u.wrong == 0 ? NULL : argument;
}

/* Two engines, each with a thread of its own, on one device and one wall clock. */
static void test_two_threads(void **state)
{
    (void)state;
    fixture_model model;
    fixture_model_open(&model, 0);
    for (int lower = 0; lower < 2; lower++) {
        fixture_case c = small_case(model.model, "wall");
        if (lower) c.pinnable = 2 << 20;
        fixture f[2] = {{.model = &model}, {.model = &model}};
        pthread_t threads[2];
        assert_ok(fixture_plan_make(&c, model.model, &f[0].plan));
        c.vram *= 2;
        c.pinnable *= 2;
        fixture_device_open(&c, &f[0].device);
        f[0].units = ofl_plan_unit_count(f[0].plan);
        f[1] = f[0];
        for (int i = 0; i < 2; i++) assert_int_equal(pthread_create(&threads[i], NULL, run_thread, &f[i]), 0);
        for (int i = 0; i < 2; i++) {
            void *failed;
            assert_int_equal(pthread_join(threads[i], &failed), 0);
            assert_null(failed);
        }
        fixture_device_close(f[0].device);
        ofl_plan_destroy(f[0].plan);
    }
    fixture_model_close(&model);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_lower_tiers),
    cmocka_unit_test(test_lower_tiers_in_any_order),
    cmocka_unit_test(test_pinning_refused),
    cmocka_unit_test(test_rows_have_to_be_pinned),
    cmocka_unit_test(test_the_file_fails),
    cmocka_unit_test(test_every_allocation_fails),
    cmocka_unit_test(test_closed_in_the_middle),
    cmocka_unit_test(test_two_threads),
};
TEST_MAIN(tests)
