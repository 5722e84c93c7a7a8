#include "support/support.h"

#include <math.h>
#include <sys/stat.h>

#include "base/base.h"
#include "machine/fit.h"
#include "machine/hostmem.h"

static ofl_machine *probe(const char *spec)
{
    ofl_device *device = NULL;
    ofl_machine *machine = NULL;
    assert_ok(ofl_device_open(spec, &device));
    assert_ok(ofl_machine_probe(device, &machine));
    ofl_memory_info memory = {.struct_size = sizeof memory};
    assert_ok(ofl_device_memory_get(device, &memory));
    assert_int_equal(memory.used_bytes, 0);
    assert_int_equal(memory.pinned_bytes, 0);
    ofl_device_close(device);
    return machine;
}

static void assert_near(const ofl_machine *machine, ofl_figure figure, double wanted, double part)
{
    ofl_source source = OFL_SOURCE_NONE;
    double value = ofl_machine_get(machine, figure, &source);
    assert_int_equal(source, OFL_SOURCE_MEASURED);
    if (!(fabs(value - wanted) <= part * wanted)) fail_msg("%s: %g instead of %g", ofl_figure_key(figure), value, wanted);
}

static void the_virtual_clock_gives_the_link_back_exactly(void **state)
{
    (void)state;
    ofl_machine *machine = probe("sim:vram=64MiB,h2d=3.26GB/s,h2d_pageable=2.84GB/s,d2h=3GB/s,start=5us,clock=virtual,runtime=4MiB");
    assert_near(machine, OFL_FIGURE_LINK, 3.26e9, 1e-3);
    assert_near(machine, OFL_FIGURE_LINK_PAGEABLE, 2.84e9, 1e-3);
    assert_near(machine, OFL_FIGURE_LINK_BACK, 3e9, 1e-3);
    assert_near(machine, OFL_FIGURE_COPY_START, 5e-6, 1e-3);
    assert_near(machine, OFL_FIGURE_VRAM, 64.0 * 1048576, 0);
    assert_near(machine, OFL_FIGURE_RUNTIME, 4.0 * 1048576, 0);
    assert_true(ofl_machine_get(machine, OFL_FIGURE_HOST, NULL) > 0);
    assert_true(ofl_machine_simulated(machine));
    assert_non_null(strstr(ofl_machine_device(machine), "sim:vram=64MiB"));
    assert_ok(ofl_machine_assume(machine));
    ofl_machine_destroy(machine);
}

static void fast_slow_and_tiny_devices(void **state)
{
    (void)state;
    static const struct { const char *spec; double rate; } cases[] = {
        {"sim:vram=80GB,h2d=55.4GB/s,start=2.3us,clock=virtual", 55.4e9},
        {"sim:vram=300kB,h2d=10MB/s,clock=virtual", 10e6},
        {"sim:vram=64MiB,h2d=1GB/s,clock=virtual", 1e9},
    };
    for (size_t i = 0; i < OFL_COUNT_OF(cases); i++) {
        ofl_machine *machine = probe(cases[i].spec);
        assert_near(machine, OFL_FIGURE_LINK, cases[i].rate, 1e-3);
        ofl_machine_destroy(machine);
    }
}

/* No wall time is asserted, only that real pacing works and gives figures of the right kind. */
static void the_wall_clock_works_too(void **state)
{
    (void)state;
    ofl_machine *machine = probe("sim:vram=64MiB,h2d=500MB/s,start=20us");
    assert_true(ofl_machine_get(machine, OFL_FIGURE_LINK, NULL) < 510e6);
    assert_true(ofl_machine_get(machine, OFL_FIGURE_LINK, NULL) > 50e6);
    ofl_machine_destroy(machine);
}

static void a_device_without_room_is_refused_and_left_clean(void **state)
{
    (void)state;
    ofl_device *device = NULL;
    ofl_machine *machine = (ofl_machine *)(void *)&device; /* whatever stood there before is gone */
    assert_ok(ofl_device_open("sim:vram=32kB,h2d=1GB/s,clock=virtual", &device));
    assert_status(ofl_machine_probe(device, &machine), OFL_ERROR_DEVICE_MEMORY);
    ofl_device_close(device);
    assert_null(machine);
}

static void little_or_nothing_to_pin(void **state)
{
    (void)state;
    ofl_machine *machine = probe("sim:vram=1GB,h2d=1GB/s,h2d_pageable=600MB/s,pinnable=1MB,clock=virtual");
    assert_near(machine, OFL_FIGURE_LINK, 1e9, 1e-3);
    assert_near(machine, OFL_FIGURE_LINK_PAGEABLE, 600e6, 1e-3);
    ofl_machine_destroy(machine);
    machine = probe("sim:vram=1GB,h2d=1GB/s,h2d_pageable=600MB/s,pinnable=4kB,clock=virtual");
    assert_near(machine, OFL_FIGURE_LINK, 600e6, 1e-3);
    assert_near(machine, OFL_FIGURE_PINNABLE, 1, 0);
    ofl_machine_destroy(machine);
}

static void every_allocation_may_fail(void **state)
{
    (void)state;
    ofl_device *device = NULL;
    assert_ok(ofl_device_open("sim:vram=1MB,h2d=1GB/s,clock=virtual", &device));
    for (uint64_t nth = 1; nth < 5000; nth++) {
        ofl_machine *machine = NULL;
        (void)ofl_fault_allocation(nth);
        ofl_status status = ofl_machine_probe(device, &machine);
        uint64_t left = ofl_fault_allocation(0);
        ofl_memory_info memory = {.struct_size = sizeof memory};
        assert_ok(ofl_device_memory_get(device, &memory));
        assert_int_equal(memory.used_bytes + memory.pinned_bytes, 0);
        ofl_machine_destroy(machine);
        if (left != 0) {
            assert_int_equal(status, OFL_OK);
            assert_true(nth > 3);
            ofl_device_close(device);
            return;
        }
        assert_true(status < 0);
        assert_null(machine);
    }
    fail_msg("the sweep never came to its end");
}

static void lines_are_fitted(void **state)
{
    (void)state;
    ofl_copy_point points[5];
    double start = 0, rate = 0;
    for (int i = 0; i < 5; i++) {
        points[i].bytes = 1e5 * (1 << (2 * i));
        points[i].seconds = 6e-6 + points[i].bytes / 12e9;
    }
    assert_true(ofl_fit_copies(points, 5, &start, &rate));
    assert_true(fabs(start - 6e-6) < 1e-9 && fabs(rate - 12e9) < 1e6);
    for (int i = 0; i < 5; i++) points[i].seconds = points[i].bytes / 12e9 - 1e-6 * (i < 3);
    assert_true(ofl_fit_copies(points, 5, &start, &rate));
    assert_true(start == 0);
    assert_true(fabs(rate - 12e9) < 1e9 * 0.01);
    for (int i = 0; i < 5; i++)
        points[i].seconds = points[i].bytes / 1e9 + 40e-6 * (i < 3); /* small copies that were disturbed leave the rate alone */
    assert_true(ofl_fit_copies(points, 5, &start, &rate));
    assert_true(fabs(rate - 1e9) < 1e9 * 0.003);
    for (int i = 0; i < 5; i++) points[i].bytes = 1e6;
    assert_false(ofl_fit_copies(points, 5, &start, &rate));
    points[1].seconds = 0;
    assert_false(ofl_fit_copies(points, 5, &start, &rate));
    double odd[] = {3, 1, 2}, even[] = {4, 1, 3, 2};
    assert_true(ofl_median(odd, 3) == 2);
    assert_true(ofl_median(even, 4) == 2.5);
}

#define GIB UINT64_C(1073741824)

/* Writes root/path with its folders. */
static void put(const char *root, const char *path, const char *text)
{
    char full[512];
    (void)snprintf(full, sizeof full, "%s/%s", root, path);
    for (char *at = full + 1; (at = strchr(at, '/')) != NULL; at++) {
        *at = '\0';
        (void)mkdir(full, 0700);
        *at = '/';
    }
    test_write(full, text, strlen(text));
}

static const char *fresh_root(const char *name, const char *groups)
{
    const char *root = test_path(name);
    put(root, "proc/meminfo", "MemTotal:       67108864 kB\nMemFree:        1 kB\nMemAvailable:   50331648 kB\n");
    if (groups != NULL) put(root, "proc/self/cgroup", groups);
    return root;
}

static uint64_t usable(const char *root)
{
    ofl_host_room room;
    assert_ok(ofl_host_room_read(root, &room));
    assert_true(room.usable_bytes <= room.total_bytes);
    return room.usable_bytes;
}

static void put_v2(const char *root, const char *group, const char *limit)
{
    char path[128];
    (void)snprintf(path, sizeof path, "sys/fs/cgroup%s/memory.max", group);
    put(root, path, limit);
    (void)snprintf(path, sizeof path, "sys/fs/cgroup%s/memory.current", group);
    put(root, path, "7516192768\n");
    (void)snprintf(path, sizeof path, "sys/fs/cgroup%s/memory.stat", group);
    put(root, path, "anon 2147483648\nfile 5368709120\nactive_file 0\ninactive_file 5368709120\n");
}

static void no_group_no_limit(void **state)
{
    (void)state;
    assert_int_equal(usable(fresh_root("plain", NULL)), 48 * GIB);
    assert_int_equal(usable(fresh_root("outside", "0::/\n")), 48 * GIB);
    assert_status(ofl_host_room_read(test_path("nowhere"), &(ofl_host_room){0}), OFL_ERROR_UNSUPPORTED);
}

static void page_cache_counts_as_free_and_parents_count_too(void **state)
{
    (void)state;
    const char *root = fresh_root("v2", "0::/pod/job\n");
    put_v2(root, "/pod/job", "8589934592\n");
    assert_int_equal(usable(root), 6 * GIB);
    put_v2(root, "/pod", "max\n");
    assert_int_equal(usable(root), 6 * GIB);
    put_v2(root, "/pod", "4294967296\n");
    assert_int_equal(usable(root), 2 * GIB);
    put_v2(root, "/pod", "1073741824\n");
    assert_int_equal(usable(root), 0);
}

/* A group that says how much it uses but has no limit of its own, or whose files are not there at all. */
static void absent_limits_are_none(void **state)
{
    (void)state;
    const char *root = fresh_root("absent", "0::/pod/job\n");
    put(root, "sys/fs/cgroup/pod/job/memory.current", "7516192768\n");
    assert_int_equal(usable(root), 48 * GIB);
    put_v2(root, "/pod", "8589934592\n");
    assert_int_equal(usable(root), 6 * GIB);
    assert_int_equal(usable(fresh_root("gone", "0::/../../elsewhere\n")), 48 * GIB);
}

static void a_container_that_shows_only_its_own_group(void **state)
{
    (void)state;
    const char *root = fresh_root("container", "0::/kubepods/burstable/somewhere\n");
    put_v2(root, "", "8589934592\n");
    assert_int_equal(usable(root), 6 * GIB);
    const char *high = fresh_root("high", "0::/a\n");
    put_v2(high, "/a", "max\n");
    put(high, "sys/fs/cgroup/a/memory.high", "4294967296\n");
    assert_int_equal(usable(high), 2 * GIB);
}

static void version_1_and_its_huge_none(void **state)
{
    (void)state;
    const char *root = fresh_root("v1", "9:name=systemd:/\n4:cpu,memory:/job\n0::/\n");
    put(root, "sys/fs/cgroup/memory/job/memory.limit_in_bytes", "9223372036854771712\n");
    assert_int_equal(usable(root), 48 * GIB);
    put(root, "sys/fs/cgroup/memory/job/memory.limit_in_bytes", "8589934592\n");
    put(root, "sys/fs/cgroup/memory/job/memory.usage_in_bytes", "7516192768\n");
    put(root, "sys/fs/cgroup/memory/job/memory.stat", "inactive_file 1\ntotal_inactive_file 5368709120\n");
    assert_int_equal(usable(root), 6 * GIB);
    put(root, "sys/fs/cgroup/memory/memory.limit_in_bytes", "3221225472\n");
    put(root, "sys/fs/cgroup/memory/memory.usage_in_bytes", "1073741824\n");
    assert_int_equal(usable(root), 2 * GIB);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(the_virtual_clock_gives_the_link_back_exactly),
    cmocka_unit_test(fast_slow_and_tiny_devices),
    cmocka_unit_test(the_wall_clock_works_too),
    cmocka_unit_test(a_device_without_room_is_refused_and_left_clean),
    cmocka_unit_test(little_or_nothing_to_pin),
    cmocka_unit_test(every_allocation_may_fail),
    cmocka_unit_test(lines_are_fitted),
    cmocka_unit_test(no_group_no_limit),
    cmocka_unit_test(page_cache_counts_as_free_and_parents_count_too),
    cmocka_unit_test(absent_limits_are_none),
    cmocka_unit_test(a_container_that_shows_only_its_own_group),
    cmocka_unit_test(version_1_and_its_huge_none),
};

TEST_MAIN(tests)
