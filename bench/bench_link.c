/* link: the probe, all of it: how long copies take by size, pinned and pageable, both ways, both at once and beside a computation; the link
 * itself, what can be page-locked, the host's memory, the way to another device. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench.h"

#define SIMULATED "sim:vram=512MiB,h2d=3.26GB/s,h2d_pageable=2.84GB/s,start=5us"
#define WORK_SECONDS 0.002

typedef struct link_options { const char *device, *peer, *save; uint64_t pin_bytes; } link_options;

/* A simulated device computes for real on the wall clock: that takes processor time from its copies, as it does in a run. */
static void burn(void *context)
{
    volatile float *sum = context;
    double end = bench_seconds() + WORK_SECONDS;
    while (bench_seconds() < end) {
        for (int i = 0; i < 1000; i++) *sum = *sum * 0.999f + 1;
    }
}

static ofl_status compute(void *context, ofl_device *device, ofl_stream *stream)
{
    ofl_device_info info = {.struct_size = sizeof info};
    ofl_status status = ofl_device_info_get(device, &info);
    return status == OFL_OK ? ofl_sim_launch(device, stream, info.virtual_clock ? NULL : burn, context, WORK_SECONDS) : status;
}

static void report_points(const ofl_machine *machine, ofl_path path, bench_report *report)
{
    char label[80], size[32];
    ofl_link_line line = {.struct_size = sizeof line};
    (void)ofl_machine_line(machine, path, &line);
    for (uint32_t i = line.point_count; i-- > 0;) {
        (void)snprintf(label, sizeof label, "%s, %s", ofl_path_label(path), cli_show_bytes(size, line.points[i].bytes, 1));
        bench_report_row(report, label);
        bench_report_number(report, "bytes", (double)line.points[i].bytes);
        bench_report_number(report, "seconds", line.points[i].seconds);
        bench_report_number(report, "bytes_per_second", (double)line.points[i].bytes / line.points[i].seconds);
    }
}

static void report_fit(const ofl_machine *machine, ofl_path path, bench_report *report)
{
    char label[80];
    ofl_link_line line = {.struct_size = sizeof line};
    (void)ofl_machine_line(machine, path, &line);
    if (line.point_count < 2) return;
    (void)snprintf(label, sizeof label, "fit, %s", ofl_path_label(path));
    bench_report_row(report, label);
    bench_report_number(report, "bytes_per_second", line.bytes_per_second);
    bench_report_number(report, "start_seconds", line.start_seconds);
}

static void report_figure(const ofl_machine *machine, const char *label, ofl_figure figure, const char *key, bench_report *report)
{
    ofl_source source = OFL_SOURCE_NONE;
    double value = ofl_machine_get(machine, figure, &source);
    if (source == OFL_SOURCE_NONE) return;
    bench_report_row(report, label);
    bench_report_number(report, key, value);
    bench_report_text(report, "source", ofl_source_name(source));
}

static void report_value(const char *label, int64_t value, int64_t unknown, bench_report *report)
{
    if (value == unknown) return;
    bench_report_row(report, label);
    bench_report_number(report, "value", (double)value);
}

/* What is not known has no row. */
static void report_state(const ofl_machine *machine, int has_peer, bench_report *report)
{
    ofl_link_state link = {.struct_size = sizeof link};
    (void)ofl_machine_link_state(machine, &link);
    report_value("PCI Express generation", link.generation, 0, report);
    report_value("PCI Express generation, at most", link.most_generation, 0, report);
    report_value("PCI Express lanes", link.width, 0, report);
    report_value("PCI Express lanes, at most", link.most_width, 0, report);
    report_value("NUMA node of the device", link.device_node, -1, report);
    report_value("NUMA node of pinned memory", link.pinned_node, -1, report);
    if (has_peer) report_value("device to device directly", link.peer_direct, -1, report);
    report_value("page-locked at once in a try", (int64_t)link.pinned_bytes, 0, report);
    report_figure(machine, "pinnable", OFL_FIGURE_PINNABLE, "value", report);
    report_figure(machine, "host memory", OFL_FIGURE_HOST, "value", report);
    report_figure(machine, "device memory", OFL_FIGURE_VRAM, "value", report);
    report_figure(machine, "of it taken by the runtime", OFL_FIGURE_RUNTIME, "value", report);
    report_figure(machine, "host memory read", OFL_FIGURE_HOST_BANDWIDTH, "bytes_per_second", report);
}

static void report_all(const ofl_machine *machine, int has_peer, bench_output output, bench_report *report)
{
    for (int path = 0; path < OFL_PATH_COUNT; path++) report_points(machine, (ofl_path)path, report);
    for (int path = 0; path < OFL_PATH_COUNT; path++) report_fit(machine, (ofl_path)path, report);
    report_state(machine, has_peer, report);
    for (uint32_t i = 0; !output.quiet && i < ofl_machine_note_count(machine); i++)
        (void)fprintf(stderr, "note: %s\n", ofl_machine_note(machine, i));
}

static ofl_status measure(ofl_device *device, ofl_device *peer, const link_options *o, bench_output output, bench_report *report)
{
    float sum = 0;
    ofl_device_info info = {.struct_size = sizeof info};
    ofl_machine *machine = NULL;
    ofl_status status = ofl_device_info_get(device, &info);
    ofl_probe_options options = {.struct_size = sizeof options, .host_memory = 1, .context = &sum, .pin_bytes = o->pin_bytes, .peer = peer};
    options.compute = info.simulated ? compute : NULL; /* a GPU needs a kernel for that, and there is none here */
    if (status == OFL_OK) status = ofl_machine_probe_with(device, &options, &machine);
    if (status == OFL_OK && o->save != NULL) status = ofl_machine_save(machine, o->save);
    if (status == OFL_OK && ofl_machine_assume(machine) == OFL_OK) report_all(machine, peer != NULL, output, report);
    ofl_machine_destroy(machine);
    return status == OFL_OK ? OFL_OK : app_forward(status);
}

/* The first GPU, or where there is none a simulated link: the report says which. */
static ofl_status open_device(const char *spec, ofl_device **out)
{
    ofl_status status = ofl_device_open(spec != NULL ? spec : "cuda:0", out);
    if (status != OFL_OK && spec == NULL) status = ofl_device_open(SIMULATED, out);
    return status == OFL_OK ? OFL_OK : app_forward(status);
}

/* The one that is named, or another GPU where there are several, or none. */
static ofl_status open_peer(const ofl_device *device, const char *peer, ofl_device **out)
{
    char spec[32];
    unsigned number = 0;
    uint32_t count = 0;
    ofl_device_info info = {.struct_size = sizeof info};
    if (peer != NULL && strcmp(peer, "none") == 0) return OFL_OK;
    if (peer != NULL) return ofl_device_open(peer, out) == OFL_OK ? OFL_OK : app_forward(ofl_diagnostic_get()->status);
    if (ofl_device_info_get(device, &info) != OFL_OK || sscanf(info.spec, "cuda:%u%31s", &number, spec) != 1) return OFL_OK;
    if (ofl_device_count("cuda", &count) != OFL_OK || count < 2) return OFL_OK;
    (void)snprintf(spec, sizeof spec, "cuda:%u", (number + 1) % (unsigned)count);
    return ofl_device_open(spec, out) == OFL_OK ? OFL_OK : app_forward(ofl_diagnostic_get()->status);
}

int bench_link(int argc, char **argv)
{
    link_options o = {0};
    bench_output out = {0};
    int pin_given = 0, exit_status = EXIT_DONE;
    const cli_option options[] = {
        {"--device", CLI_TEXT, &o.device, NULL, "cuda:N|sim:…", NULL, "(default: cuda:0, or else " SIMULATED ")"},
        {"--peer", CLI_TEXT, &o.peer, NULL, "cuda:N|none", NULL, "the device to copy to from this one (default: the next GPU, if any)"},
        {"--pin", CLI_SIZE, &o.pin_bytes, &pin_given, "SIZE", NULL,
         "host memory to page-lock in a try, in steps (default: 1 GiB, or 64 MiB with a paced simulation)"},
        {"--save", CLI_TEXT, &o.save, NULL, "MACHINE.json", NULL, "keep the probe there, for ofload-plan --machine"},
        BENCH_OUTPUT_OPTIONS(out),
    };
    const cli_program program = {"ofload-bench link", "[options]",
                                 "Times copies of one device by size, both ways, from pinned and from pageable memory, both ways at once "
                                 "and (simulated) beside a computation; says what the link, the host and page-locking allow.", NULL,
                                 options, sizeof options / sizeof options[0]};
    ofl_device *device = NULL, *peer = NULL;
    bench_report *report = NULL;
    ofl_status status = bench_parse(&program, argc, argv, &exit_status);
    if (status == OFL_END) return exit_status;
    if (status == OFL_OK) status = bench_check_least("--pin", pin_given, o.pin_bytes, 1);
    if (status == OFL_OK) status = open_device(o.device, &device);
    if (status == OFL_OK) status = open_peer(device, o.peer, &peer);
    if (status == OFL_OK) status = bench_report_open("link", device, out, &report);
    if (status == OFL_OK) status = measure(device, peer, &o, out, report);
    exit_status = bench_report_close(report, &program, status);
    ofl_device_close(peer);
    ofl_device_close(device);
    return exit_status;
}
