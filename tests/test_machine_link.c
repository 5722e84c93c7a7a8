/* What the probe sees beside the plain rates: lines by size, both ways, computing, page-locking in steps, PCI Express, WSL; and that it is
 * kept. */
#include "support/support.h"

#include <math.h>
#include <sys/stat.h>

#include "base/base.h"
#include "machine/hostrate.h"
#include "machine/pcie.h"
#include "machine/pinning.h"

static ofl_machine *probe_with(const char *spec, const ofl_probe_options *options)
{
    ofl_device *device = NULL;
    ofl_machine *machine = NULL;
    ofl_memory_info memory = {.struct_size = sizeof memory};
    assert_ok(ofl_device_open(spec, &device));
    assert_ok(ofl_machine_probe_with(device, options, &machine));
    assert_ok(ofl_device_memory_get(device, &memory));
    assert_int_equal(memory.used_bytes + memory.pinned_bytes, 0);
    ofl_device_close(device);
    return machine;
}

static ofl_link_line line_of(const ofl_machine *machine, ofl_path path)
{
    ofl_link_line line = {.struct_size = sizeof line};
    assert_ok(ofl_machine_line(machine, path, &line));
    return line;
}

static void assert_rate(const ofl_machine *machine, ofl_path path, double wanted)
{
    ofl_link_line line = line_of(machine, path);
    if (line.point_count == 0 || !(fabs(line.bytes_per_second - wanted) < 2e-3 * wanted))
        fail_msg("%s: %u points, %g instead of %g", ofl_path_label(path), (unsigned)line.point_count, line.bytes_per_second, wanted);
}

static void paths_by_size(void **state)
{
    (void)state;
    ofl_machine *machine = probe_with("sim:vram=256MiB,h2d=12GB/s,h2d_pageable=6GB/s,d2h=10GB/s,start=5us,clock=virtual", NULL);
    assert_rate(machine, OFL_PATH_PINNED_TO_DEVICE, 12e9);
    assert_rate(machine, OFL_PATH_PAGEABLE_TO_DEVICE, 6e9);
    assert_rate(machine, OFL_PATH_DEVICE_TO_PINNED, 10e9);
    assert_rate(machine, OFL_PATH_DEVICE_TO_PAGEABLE, 6e9); /* the lower of back and pageable */
    assert_rate(machine, OFL_PATH_TO_DEVICE_BOTH_WAYS, 12e9);
    assert_rate(machine, OFL_PATH_FROM_DEVICE_BOTH_WAYS, 10e9);
    assert_int_equal(line_of(machine, OFL_PATH_TO_DEVICE_COMPUTING).point_count, 0);
    assert_int_equal(line_of(machine, OFL_PATH_DEVICE_TO_DEVICE).point_count, 0);
    ofl_link_line line = line_of(machine, OFL_PATH_PINNED_TO_DEVICE);
    assert_int_equal(line.point_count, OFL_LINE_POINTS_MAX);
    assert_true(fabs(line.start_seconds - 5e-6) < 5e-8);
    for (uint32_t i = 0; i < line.point_count; i++) {
        double wanted = 5e-6 + (double)line.points[i].bytes / 12e9;
        assert_true(fabs(line.points[i].seconds - wanted) < 1e-3 * wanted);
        assert_true(i == 0 || line.points[i].bytes < line.points[i - 1].bytes);
    }
    assert_true(ofl_machine_get(machine, OFL_FIGURE_LINK_BOTH_WAYS, NULL) > 11.9e9);
    assert_status(ofl_machine_line(machine, OFL_PATH_COUNT, &line), OFL_ERROR_ARGUMENT);
    ofl_machine_destroy(machine);
}

/* A device that computes for `seconds` a call. */
typedef struct work { double seconds; int calls, fail_at; } work;

static ofl_status launch(void *context, ofl_device *device, ofl_stream *stream)
{
    work *w = context;
    if (++w->calls == w->fail_at) return ofl_fail(OFL_ERROR_RUNTIME, "this computation failed");
    return ofl_sim_launch(device, stream, NULL, NULL, w->seconds);
}

static ofl_status elapse(void *context, ofl_device *device, ofl_stream *stream)
{
    (void)stream;
    return ofl_sim_elapse(device, ((work *)context)->seconds);
}

static ofl_status nothing(void *context, ofl_device *device, ofl_stream *stream)
{
    (void)context;
    (void)device;
    (void)stream;
    return OFL_OK;
}

#define VIRTUAL "sim:vram=64MiB,h2d=2GB/s,start=5us,clock=virtual"

static void beside_a_computation(void **state)
{
    (void)state;
    static const double seconds[] = {1e-3, 0.1, 3};
    for (size_t i = 0; i < OFL_COUNT_OF(seconds); i++) {
        work w = {.seconds = seconds[i]};
        ofl_probe_options options = {.struct_size = sizeof options, .compute = launch, .context = &w};
        ofl_machine *machine = probe_with(VIRTUAL, &options);
        ofl_source source = OFL_SOURCE_NONE;
        double rate = ofl_machine_get(machine, OFL_FIGURE_LINK_COMPUTING, &source);
        assert_int_equal(source, OFL_SOURCE_MEASURED);
        assert_true(fabs(rate - 2e9) < 2e6);
        assert_int_equal(line_of(machine, OFL_PATH_TO_DEVICE_COMPUTING).point_count, 1);
        assert_true(w.calls > 3);
        ofl_machine_destroy(machine);
    }
}

/* Pieces too short to outlast the copies, however many: no figure, and a note. */
static void a_computation_that_ends_too_early(void **state)
{
    (void)state;
    work w = {.seconds = 1e-9};
    ofl_source source = OFL_SOURCE_MEASURED;
    ofl_probe_options options = {.struct_size = sizeof options, .compute = launch, .context = &w};
    ofl_machine *machine = probe_with(VIRTUAL, &options);
    (void)ofl_machine_get(machine, OFL_FIGURE_LINK_COMPUTING, &source);
    assert_int_equal(source, OFL_SOURCE_NONE);
    assert_int_equal(ofl_machine_note_count(machine), 1);
    assert_non_null(strstr(ofl_machine_note(machine, 0), "ended before the copies"));
    ofl_machine_destroy(machine);
}

static void computations_that_do_not_go_on_the_stream(void **state)
{
    (void)state;
    ofl_device *device = NULL;
    ofl_machine *machine = NULL;
    work w = {.seconds = 1e-3, .fail_at = 3};
    ofl_probe_options options = {.struct_size = sizeof options, .compute = nothing, .context = &w};
    assert_ok(ofl_device_open(VIRTUAL, &device));
    assert_status(ofl_machine_probe_with(device, &options, &machine), OFL_ERROR_ARGUMENT);
    assert_non_null(strstr(ofl_error_message(), "without waiting"));
    options.compute = elapse;
    assert_status(ofl_machine_probe_with(device, &options, &machine), OFL_ERROR_ARGUMENT);
    options.compute = launch;
    assert_status(ofl_machine_probe_with(device, &options, &machine), OFL_ERROR_RUNTIME);
    assert_string_equal(ofl_error_message(), "this computation failed");
    assert_null(machine);
    options.struct_size = 2;
    assert_status(ofl_machine_probe_with(device, &options, &machine), OFL_ERROR_ARGUMENT);
    ofl_device_close(device);
}

static ofl_link_state state_of(const ofl_machine *machine)
{
    ofl_link_state link = {.struct_size = sizeof link};
    assert_ok(ofl_machine_link_state(machine, &link));
    return link;
}

static void page_locking_is_tried_in_steps(void **state)
{
    (void)state;
    ofl_source source = OFL_SOURCE_MEASURED;
    ofl_machine *machine = probe_with("sim:vram=256MiB,h2d=12GB/s,pinnable=300MB,clock=virtual", NULL);
    double pinnable = ofl_machine_get(machine, OFL_FIGURE_PINNABLE, &source);
    assert_int_equal(source, OFL_SOURCE_MEASURED);
    assert_true(pinnable <= 300e6 && pinnable > 300e6 - 2 * 65536);
    assert_true((double)state_of(machine).pinned_bytes == pinnable);
    assert_non_null(strstr(ofl_machine_note(machine, 0), "more was refused"));
    ofl_machine_destroy(machine);
    /* what was not tried stays unknown, and is assumed */
    ofl_probe_options options = {.struct_size = sizeof options, .pin_bytes = UINT64_C(200) << 20};
    machine = probe_with("sim:vram=256MiB,h2d=12GB/s,pinnable=300MB,clock=virtual", &options);
    (void)ofl_machine_get(machine, OFL_FIGURE_PINNABLE, &source);
    assert_int_equal(source, OFL_SOURCE_NONE);
    assert_int_equal(ofl_machine_note_count(machine), 0);
    assert_int_equal(state_of(machine).pinned_bytes, UINT64_C(200) << 20);
    assert_ok(ofl_machine_assume(machine));
    (void)ofl_machine_get(machine, OFL_FIGURE_PINNABLE, &source);
    assert_int_equal(source, OFL_SOURCE_ASSUMED);
    ofl_machine_destroy(machine);
}

static void what_was_seen_is_kept(void **state)
{
    (void)state;
    work w = {.seconds = 1e-3};
    ofl_probe_options options = {.struct_size = sizeof options, .compute = launch, .context = &w, .host_memory = 1};
    ofl_machine *machine = probe_with("sim:vram=64MiB,h2d=2GB/s,pinnable=100MB,clock=virtual", &options), *again = NULL;
    char *first = NULL, *second = NULL;
    int year = 0, second_of_day = 0;
    assert_int_equal(sscanf(ofl_machine_probed(machine), "%d-%*d-%*dT%*d:%*d:%dZ", &year, &second_of_day), 2);
    assert_true(year >= 2024);
    assert_true(ofl_machine_get(machine, OFL_FIGURE_HOST_BANDWIDTH, NULL) > 1e8);
    assert_ok(ofl_machine_set(machine, OFL_FIGURE_LINK, 3e9, OFL_SOURCE_GIVEN));
    assert_ok(ofl_machine_to_json(machine, &first));
    assert_ok(ofl_machine_from_json(first, strlen(first), &again));
    assert_ok(ofl_machine_to_json(again, &second));
    assert_string_equal(first, second);
    assert_string_equal(ofl_machine_identity(again), ofl_machine_identity(machine));
    assert_string_equal(ofl_machine_probed(again), ofl_machine_probed(machine));
    ofl_source source = OFL_SOURCE_NONE;
    (void)ofl_machine_get(again, OFL_FIGURE_LINK, &source);
    assert_int_equal(source, OFL_SOURCE_GIVEN);
    for (int i = 0; i < OFL_PATH_COUNT; i++) {
        ofl_link_line a = line_of(machine, (ofl_path)i), b = line_of(again, (ofl_path)i);
        assert_memory_equal(&a, &b, sizeof a);
    }
    ofl_link_state a = state_of(machine), b = state_of(again);
    assert_memory_equal(&a, &b, sizeof a);
    assert_int_equal(ofl_machine_note_count(again), 1);
    assert_string_equal(ofl_machine_note(again, 0), ofl_machine_note(machine, 0));
    assert_string_equal(ofl_machine_note(again, 1), "");
    ofl_string_free(first);
    ofl_string_free(second);
    ofl_machine_destroy(again);
    ofl_machine_destroy(machine);
}

#define PROBED "{\"schema\":\"ofload.machine/1\",\"probed\":\"2026-09-30T12:00:00Z\","
#define PATH PROBED "\"paths\":{\"pinned to device\":"

static void bad_records_are_refused(void **state)
{
    (void)state;
    static const struct { const char *json, *says; } cases[] = {
        {"{\"schema\":\"ofload.machine/1\",\"notes\":[]}", "probed"},
        {"{\"schema\":\"ofload.machine/1\",\"probed\":\"yesterday\"}", "probed"},
        {"{\"schema\":\"ofload.machine/1\",\"probed\":4}", "probed"},
        {PROBED "\"link\":4}", "link"},
        {PROBED "\"link\":{\"generation\":-1}}", "generation"},
        {PROBED "\"link\":{\"width\":1e9}}", "width"},
        {PROBED "\"link\":{\"device_node\":-2}}", "device_node"},
        {PROBED "\"link\":{\"pinned_bytes\":0.5}}", "pinned_bytes"},
        {PROBED "\"paths\":[]}", "paths"},
        {PROBED "\"paths\":{\"by pigeon\":{}}}", "by pigeon"},
        {PATH "4}}", "start_seconds"},
        {PATH "{\"start_seconds\":0,\"bytes_per_second\":0,\"points\":[]}}}", "no rate"},
        {PATH "{\"start_seconds\":0,\"bytes_per_second\":1,\"points\":[]}}}", "points"},
        {PATH "{\"start_seconds\":0,\"bytes_per_second\":1,\"points\":[1,2,3,4,5,6,7,8,9]}}}", "points"},
        {PATH "{\"start_seconds\":0,\"bytes_per_second\":1,\"points\":[{\"bytes\":0,\"seconds\":1}]}}}", "no bytes"},
        {PATH "{\"start_seconds\":0,\"bytes_per_second\":1,\"points\":[{\"bytes\":1,\"seconds\":1}]},"
              "\"pinned to device\":{\"start_seconds\":0,\"bytes_per_second\":1,\"points\":[]}}}", "twice"},
        {PROBED "\"notes\":{}}", "notes"},
        {PROBED "\"notes\":[4]}", "note"},
        {PROBED "\"notes\":[\"a\\u001b[2Jb\"]}", "note"},
        {PROBED "\"notes\":[\"\",\"\",\"\",\"\",\"\",\"\",\"\",\"\",\"\"]}", "notes"},
    };
    for (size_t i = 0; i < OFL_COUNT_OF(cases); i++) {
        ofl_machine *machine = NULL;
        assert_status(ofl_machine_from_json(cases[i].json, strlen(cases[i].json), &machine), OFL_ERROR_FORMAT);
        if (strstr(ofl_error_message(), cases[i].says) == NULL) fail_msg("%s: %s", cases[i].json, ofl_error_message());
    }
}

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

static void put_link(const char *root, const char *speed, const char *width, const char *most_speed, const char *most_width)
{
    put(root, "sys/bus/pci/devices/0000:ca:00.0/current_link_speed", speed);
    put(root, "sys/bus/pci/devices/0000:ca:00.0/current_link_width", width);
    put(root, "sys/bus/pci/devices/0000:ca:00.0/max_link_speed", most_speed);
    put(root, "sys/bus/pci/devices/0000:ca:00.0/max_link_width", most_width);
}

/* Field case 86: what an idle link shows is never judged; a narrow link under load is. */
static void generation_and_width(void **state)
{
    (void)state;
    static const struct { const char *speed, *width, *most_speed, *most_width; uint32_t seen[4], notes; const char *says; } cases[] = {
        {"16.0 GT/s PCIe\n", "4\n", "16.0 GT/s PCIe\n", "16\n", {4, 4, 4, 16}, 1, "4 lanes wide of the 16"},
        {"8.0 GT/s PCIe\n", "16\n", "16.0 GT/s PCIe\n", "16\n", {3, 16, 4, 16}, 1, "generation 3 of the 4"},
        {"32.0 GT/s PCIe\n", "16\n", "32.0 GT/s PCIe\n", "16\n", {5, 16, 5, 16}, 0, ""},
        {"2.5 GT/s\n", "1\n", "5 GT/s\n", "1\n", {1, 1, 2, 1}, 1, "generation 1 of the 2"},
        {"Unknown\n", "255\n", "Unknown speed\n", "\n", {0, 0, 0, 0}, 0, ""},
        {"", "0", "64.0 GT/s PCIe", "16", {0, 0, 6, 16}, 0, ""},
    };
    const char *root = test_path("pci");
    for (size_t i = 0; i < OFL_COUNT_OF(cases); i++) {
        ofl_machine *machine = NULL;
        assert_ok(ofl_machine_create("a card", &machine));
        put_link(root, cases[i].speed, cases[i].width, cases[i].most_speed, cases[i].most_width);
        ofl_link_state link = {0};
        ofl_pcie_read(root, "0000:CA:00.0", &link);
        machine->link = link;
        assert_int_equal(link.generation, cases[i].seen[0]);
        assert_int_equal(link.width, cases[i].seen[1]);
        assert_int_equal(link.most_generation, cases[i].seen[2]);
        assert_int_equal(link.most_width, cases[i].seen[3]);
        ofl_pcie_judge(machine);
        assert_int_equal(ofl_machine_note_count(machine), cases[i].notes);
        assert_non_null(strstr(ofl_machine_note(machine, 0), cases[i].says));
        ofl_machine_destroy(machine);
    }
    static const char *const ids[] = {"", "0000:00:00.0", "../../../etc", "0000:ca:00.0/..", "a..b"};
    for (size_t i = 0; i < OFL_COUNT_OF(ids); i++) {
        ofl_link_state link = {0};
        ofl_pcie_read(root, ids[i], &link);
        assert_int_equal(link.generation + link.width + link.most_generation + link.most_width, 0);
    }
}

/* Field case 70: 3,876 MiB of card, a host that would allow 8 GiB: no more than the card. */
static void windows_charges_the_card(void **state)
{
    (void)state;
    ofl_source source = OFL_SOURCE_NONE;
    const double card = 3876.0 * 1048576;
    put(test_path("wsl"), "proc/sys/kernel/osrelease", "5.15.153.1-microsoft-standard-WSL2\n");
    put(test_path("linux"), "proc/sys/kernel/osrelease", "6.8.0-31-generic\n");
    assert_true(ofl_is_wsl(test_path("wsl")));
    assert_false(ofl_is_wsl(test_path("linux")));
    assert_false(ofl_is_wsl(test_path("nowhere")));
    static const struct { double host, pinnable; bool capped; } cases[] = {
        {16e9, 0, true}, {2e9, 0, false}, {16e9, 8e9, true}, {16e9, 1e9, false}};
    for (size_t i = 0; i < OFL_COUNT_OF(cases); i++) {
        ofl_machine *machine = NULL;
        assert_ok(ofl_machine_create("a card", &machine));
        assert_ok(ofl_machine_set(machine, OFL_FIGURE_VRAM, card, OFL_SOURCE_MEASURED));
        assert_ok(ofl_machine_set(machine, OFL_FIGURE_HOST, cases[i].host, OFL_SOURCE_MEASURED));
        if (cases[i].pinnable > 0) assert_ok(ofl_machine_set(machine, OFL_FIGURE_PINNABLE, cases[i].pinnable, OFL_SOURCE_MEASURED));
        assert_ok(ofl_limit_pinning_on_wsl(machine));
        double pinnable = ofl_machine_get(machine, OFL_FIGURE_PINNABLE, &source);
        assert_true(pinnable == (cases[i].capped ? card : cases[i].pinnable));
        assert_true(pinnable == 0 || (source == OFL_SOURCE_ASSUMED) == cases[i].capped);
        assert_non_null(strstr(ofl_machine_note(machine, 0), "WSL"));
        ofl_machine_destroy(machine);
    }
}

static void the_host_is_measured_where_it_has_room(void **state)
{
    (void)state;
    double rate = 1;
    assert_ok(ofl_host_rate_measure(1 << 20, &rate));
    assert_true(rate == 0);
    assert_ok(ofl_host_rate_measure(UINT64_C(2) << 30, &rate));
    assert_true(rate > 1e8 && rate < 1e14);
    (void)ofl_fault_allocation(1);
    assert_status(ofl_host_rate_measure(UINT64_C(2) << 30, &rate), OFL_ERROR_HOST_MEMORY);
    (void)ofl_fault_allocation(0);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(paths_by_size),
    cmocka_unit_test(beside_a_computation),
    cmocka_unit_test(a_computation_that_ends_too_early),
    cmocka_unit_test(computations_that_do_not_go_on_the_stream),
    cmocka_unit_test(page_locking_is_tried_in_steps),
    cmocka_unit_test(what_was_seen_is_kept),
    cmocka_unit_test(bad_records_are_refused),
    cmocka_unit_test(generation_and_width),
    cmocka_unit_test(windows_charges_the_card),
    cmocka_unit_test(the_host_is_measured_where_it_has_room),
};

TEST_MAIN(tests)
