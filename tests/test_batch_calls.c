/* What the engine's calls cost a loop on the calling thread. How long they take is the machine's affair. */
#include "support/support.h"

#include <math.h>

#include "batch/cpu/calls.h"
#include "common/app_error.h"

static void measure_on(const char *spec, double *unit, double *piece)
{
    ofl_device *device = NULL;
    ofl_memory_info memory = {.struct_size = sizeof memory};
    *unit = *piece = -1;
    assert_ok(ofl_device_open(spec, &device));
    if (calls_measure(device, unit, piece) != OFL_OK) fail_msg("%s: %s", spec, app_error());
    assert_ok(ofl_device_memory_get(device, &memory));
    assert_int_equal(memory.used_bytes, 0);
    ofl_device_close(device);
}

static void test_measured_on_the_wall_clock(void **state)
{
    (void)state;
    double unit, piece;
    measure_on("sim:vram=16MiB,h2d=1GB/s", &unit, &piece);
    assert_true(isfinite(unit) && unit > 0 && isfinite(piece) && piece >= 0);
}

static void test_on_fewer_units_where_memory_is_short(void **state)
{
    (void)state;
    double unit, piece;
    measure_on("sim:vram=1MB,h2d=1GB/s", &unit, &piece);
    assert_true(isfinite(unit) && unit > 0 && isfinite(piece) && piece >= 0);
}

static void test_nothing_where_it_cannot_be(void **state)
{
    (void)state;
    double unit, piece;
    measure_on("sim:vram=16MiB,h2d=1GB/s,clock=virtual", &unit, &piece);
    assert_true(unit == 0 && piece == 0);
    measure_on("sim:vram=200kB,h2d=1GB/s", &unit, &piece);
    assert_true(unit == 0 && piece == 0);
}

/* As measured, the planner takes them: a step with many small units becomes longer by them. */
static void test_the_planner_is_told(void **state)
{
    (void)state;
    ofl_compute_figures figures = {.struct_size = sizeof figures, .host_seconds_per_unit = 1e-6, .host_seconds_per_piece = 9e-6};
    ofl_workload work = {.struct_size = sizeof work};
    assert_ok(ofl_compute_use(&figures, &work));
    assert_true(work.host_seconds_per_unit == 1e-6 && work.host_seconds_per_piece == 9e-6);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_measured_on_the_wall_clock),
    cmocka_unit_test(test_on_fewer_units_where_memory_is_short),
    cmocka_unit_test(test_nothing_where_it_cannot_be),
    cmocka_unit_test(test_the_planner_is_told),
};
TEST_MAIN(tests)
