/* Where what is streamed is not all pinned: the step takes the longer of filling the buffers and of the link, as foretold, not their sum. On
 * the wall clock, which threads do not move for each other; ratios are asserted, with room for a busy machine. */
#include "support/engine_fixture.h"

#include <math.h>
#include <pthread.h>
#include <time.h>
#include <unistd.h>

enum { WARM = 6, STEPS = 10 };

/* A disk of a given rate, however many threads read from it: bytes a second, 0: as it is. */
static _Atomic double disk_rate; /* readers look at it while a test sets it */
static double disk_free;
static pthread_mutex_t disk = PTHREAD_MUTEX_INITIALIZER;

static double seconds(void)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

static void take_time(double bytes)
{
    (void)pthread_mutex_lock(&disk);
    double now = seconds(), until = disk_free = fmax(disk_free, now) + bytes / disk_rate;
    (void)pthread_mutex_unlock(&disk);
    struct timespec due = {(time_t)until, (long)((until - floor(until)) * 1e9)};
    (void)clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &due, NULL);
}

ssize_t __real_pread(int descriptor, void *to, size_t bytes, off_t offset);
ssize_t __wrap_pread(int descriptor, void *to, size_t bytes, off_t offset);
ssize_t __wrap_pread(int descriptor, void *to, size_t bytes, off_t offset)
{
    if (disk_rate > 0) take_time((double)bytes);
    return __real_pread(descriptor, to, bytes, offset);
}

/* Seconds of a step: the mean, and the least, which other work on the machine does not lengthen. */
static double steady_step(fixture *f, double *least_out)
{
    ofl_stream *stream;
    double start = 0, begun = 0;
    *least_out = INFINITY;
    assert_ok(ofl_stream_create(f->device, &stream));
    for (int i = 0; i < WARM + STEPS; i++) {
        if (i == WARM) start = seconds();
        begun = seconds();
        for (uint32_t u = 0; u < f->units; u++) {
            ofl_view view = {.struct_size = sizeof view};
            assert_ok(ofl_engine_acquire(f->engine, u, stream, &view));
            assert_ok(ofl_engine_release(f->engine, u, stream));
        }
        if (i >= WARM) *least_out = fmin(*least_out, seconds() - begun);
    }
    double taken = (seconds() - start) / STEPS;
    assert_ok(ofl_stream_wait(f->device, stream));
    ofl_stream_destroy(f->device, stream);
    return taken;
}

/* rate: into the buffers. */
static void hold_to_forecast(const fixture_case *c, fixture_model *model, const char *what, double rate)
{
    fixture f;
    ofl_forecast forecast = {.struct_size = sizeof forecast};
    fixture_open(&f, c, model, NULL);
    assert_ok(ofl_plan_forecast_get(f.plan, &forecast));
    double fill = (double)(f.budget.pageable_bytes + f.budget.file_bytes) / rate, link = (double)f.budget.stream_bytes_per_step / c->link;
    double longer = fmax(fill, link), sum = fill + (double)f.budget.pinned_bytes / c->link;
    disk_rate = c->file;
    double least, measured = steady_step(&f, &least), foretold = forecast.step.step_seconds;
    disk_rate = 0;
    print_message("%s: step %.1f ms, the least %.1f, foretold %.1f; filling %.1f, link %.1f, one after the other %.1f\n", what, measured * 1e3,
                  least * 1e3, foretold * 1e3, fill * 1e3, link * 1e3, sum * 1e3);
    assert_true(sum > 1.3 * longer);
    assert_true(fabs(forecast.step.link_seconds / longer - 1) < 0.02 && foretold < 1.03 * longer);
    assert_true(measured > 0.95 * longer && least < 1.2 * longer);
    fixture_close(&f);
}

/* Half of what is streamed is pinned. */
static fixture_case half_pinned(const ofl_model *model)
{
    fixture_case c = {.link = 1e8, .compute = 1e-13, .cut = OFL_CUT_BYTES, .part_bytes = 96 * 1024, .pinnable = 4900000, .clock = "wall"};
    c.vram = fixture_least_vram(c, model) + (1 << 20);
    c.ring_bytes = 1 << 20;
    return c;
}

static void test_pageable_memory(void **state)
{
    (void)state;
    fixture_model model;
    fixture_model_open(&model, 0);
    fixture_case c = half_pinned(model.model);
    c.pageable = 0.5 * c.link;
    hold_to_forecast(&c, &model, "pageable", c.pageable);
    fixture_model_close(&model);
}

static void test_file(void **state)
{
    (void)state;
    fixture_model model;
    fixture_model_make(&model, 0, test_path("weights"));
    fixture_case c = half_pinned(model.model);
    c.host_bytes = c.pinnable;
    c.file = 0.5 * c.link;
    hold_to_forecast(&c, &model, "file", c.file);
    fixture_model_close(&model);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_pageable_memory),
    cmocka_unit_test(test_file),
};
TEST_MAIN(tests)
