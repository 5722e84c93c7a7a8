/* link: how long copies take, by size, pinned and pageable, both ways; and the probe's own line through them. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench.h"

#define RUNS 5
#define LEAST_BYTES (UINT64_C(4) << 10)
#define MOST_BYTES (UINT64_C(64) << 20)
#define RUN_BYTES (UINT64_C(4) << 20) /* small copies are queued back to back up to about this, 64 at most */
#define SIMULATED "sim:vram=512MiB,h2d=3.26GB/s,h2d_pageable=2.84GB/s,start=5us"

typedef struct buffers {
    ofl_device *device;
    ofl_stream *stream;
    char *on_device, *pinned, *pageable;
    uint64_t bytes;
} buffers;

typedef struct path { const char *name; ofl_direction direction; ofl_host_memory memory; } path;
static const path paths[] = {
    {"pinned to device", OFL_HOST_TO_DEVICE, OFL_HOST_PINNED},
    {"pageable to device", OFL_HOST_TO_DEVICE, OFL_HOST_PAGEABLE},
    {"device to pinned", OFL_DEVICE_TO_HOST, OFL_HOST_PINNED},
    {"device to pageable", OFL_DEVICE_TO_HOST, OFL_HOST_PAGEABLE},
};

static ofl_status copy(const buffers *b, const path *p, uint64_t bytes)
{
    char *host = p->memory == OFL_HOST_PINNED ? b->pinned : b->pageable;
    return p->direction == OFL_HOST_TO_DEVICE ? ofl_copy(b->device, b->stream, p->direction, b->on_device, host, bytes, p->memory)
                                              : ofl_copy(b->device, b->stream, p->direction, host, b->on_device, bytes, p->memory);
}

/* Seconds of one of `copies` queued together. */
static ofl_status time_run(const buffers *b, const path *p, uint64_t bytes, uint64_t copies, double *seconds_out)
{
    ofl_status status = OFL_OK;
    uint64_t before = ofl_device_now_ns(b->device);
    for (uint64_t i = 0; status == OFL_OK && i < copies; i++) status = copy(b, p, bytes);
    ofl_status waited = ofl_stream_wait(b->device, b->stream);
    *seconds_out = (double)(ofl_device_now_ns(b->device) - before) * 1e-9 / (double)copies;
    return status != OFL_OK ? status : waited;
}

static ofl_status measure_size(const buffers *b, const path *p, uint64_t bytes, bench_report *report)
{
    double runs[RUNS];
    char size[32];
    uint64_t copies = RUN_BYTES / bytes;
    copies = copies < 1 ? 1 : copies > 64 ? 64 : copies;
    ofl_status status = time_run(b, p, bytes, copies, &runs[0]); /* warms up */
    for (int i = 0; status == OFL_OK && i < RUNS; i++) status = time_run(b, p, bytes, copies, &runs[i]);
    if (status != OFL_OK) return app_forward(status);
    double median = bench_median(runs, RUNS);
    char label[64];
    (void)snprintf(label, sizeof label, "%s, %s", p->name, cli_show_bytes(size, bytes, 1));
    bench_report_row(report, label);
    bench_report_number(report, "bytes", (double)bytes);
    bench_report_number(report, "seconds", median);
    bench_report_number(report, "bytes_per_second", (double)bytes / median);
    return OFL_OK;
}

/* A rate counts only if the bytes arrive: there and back along both kinds of memory. */
static ofl_status verify(const buffers *b)
{
    ofl_status status = OFL_OK;
    for (uint64_t i = 0; i < b->bytes; i++) b->pinned[i] = (char)(i * 2654435761u >> 13);
    memset(b->pageable, 0, b->bytes);
    status = copy(b, &paths[0], b->bytes);
    if (status == OFL_OK) status = copy(b, &paths[3], b->bytes);
    ofl_status waited = ofl_stream_wait(b->device, b->stream);
    if (status != OFL_OK || waited != OFL_OK) return app_forward(status != OFL_OK ? status : waited);
    return memcmp(b->pinned, b->pageable, b->bytes) == 0 ? OFL_OK : app_fail(OFL_ERROR_RUNTIME, "bytes copied there and back came back changed; no rate is given");
}

static void report_fit(const ofl_machine *machine, bench_report *report)
{
    static const struct { const char *label; ofl_figure figure; } fits[] = {
        {"fit, pinned to device", OFL_FIGURE_LINK}, {"fit, pageable to device", OFL_FIGURE_LINK_PAGEABLE}, {"fit, device to pinned", OFL_FIGURE_LINK_BACK}};
    for (size_t i = 0; i < sizeof fits / sizeof fits[0]; i++) {
        bench_report_row(report, fits[i].label);
        bench_report_number(report, "bytes_per_second", ofl_machine_get(machine, fits[i].figure, NULL));
        if (i == 0) bench_report_number(report, "start_seconds", ofl_machine_get(machine, OFL_FIGURE_COPY_START, NULL));
    }
}

static ofl_status open_buffers(buffers *b)
{
    ofl_memory_info memory = {.struct_size = sizeof memory};
    ofl_status status = ofl_device_memory_get(b->device, &memory);
    if (status != OFL_OK) return app_forward(status);
    for (b->bytes = MOST_BYTES; b->bytes > LEAST_BYTES && b->bytes > memory.free_bytes / 4;) b->bytes /= 4;
    status = ofl_stream_create(b->device, &b->stream);
    void *pointer = NULL;
    if (status == OFL_OK) status = ofl_device_alloc(b->device, b->bytes, &pointer);
    b->on_device = pointer;
    pointer = NULL;
    if (status == OFL_OK) status = ofl_device_host_alloc(b->device, b->bytes, &pointer);
    b->pinned = pointer;
    b->pageable = malloc(b->bytes);
    if (status != OFL_OK) return app_forward(status);
    return b->pageable != NULL ? OFL_OK : app_fail(OFL_ERROR_HOST_MEMORY, "out of host memory");
}

static void close_buffers(buffers *b)
{
    free(b->pageable);
    if (b->pinned != NULL) ofl_device_host_free(b->device, b->pinned);
    if (b->on_device != NULL) ofl_device_free(b->device, b->on_device);
    if (b->stream != NULL) ofl_stream_destroy(b->device, b->stream);
}

static ofl_status measure(ofl_device *device, const char *save, bench_report *report)
{
    buffers b = {.device = device};
    ofl_machine *machine = NULL;
    ofl_status status = open_buffers(&b);
    if (status == OFL_OK) status = verify(&b);
    for (size_t p = 0; p < sizeof paths / sizeof paths[0]; p++) {
        for (uint64_t bytes = LEAST_BYTES; status == OFL_OK && bytes <= b.bytes; bytes *= 4) status = measure_size(&b, &paths[p], bytes, report);
    }
    close_buffers(&b);
    if (status != OFL_OK) return status;
    status = ofl_machine_probe(device, &machine);
    if (status == OFL_OK && save != NULL) status = ofl_machine_save(machine, save);
    if (status == OFL_OK) report_fit(machine, report);
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

int bench_link(int argc, char **argv)
{
    const char *spec = NULL, *save = NULL;
    bench_output out = {0};
    int exit_status = EXIT_DONE;
    const cli_option options[] = {
        {"--device", CLI_TEXT, &spec, NULL, "cuda:N|sim:…", NULL, "(default: cuda:0, or else " SIMULATED ")"},
        {"--save", CLI_TEXT, &save, NULL, "MACHINE.json", NULL, "keep the probe there, for ofload-plan --machine"},
        BENCH_OUTPUT_OPTIONS(out),
    };
    const cli_program program = {"ofload-bench link", "[options]", "Times copies of one device by size, both ways, from pinned and from pageable memory: medians of five.", NULL,
                                 options, sizeof options / sizeof options[0]};
    ofl_device *device = NULL;
    bench_report *report = NULL;
    ofl_status status = bench_parse(&program, argc, argv, &exit_status);
    if (status == OFL_END) return exit_status;
    if (status == OFL_OK) status = open_device(spec, &device);
    if (status == OFL_OK) status = bench_report_open("link", device, out, &report);
    if (status == OFL_OK) status = measure(device, save, report);
    exit_status = bench_report_close(report, &program, status);
    ofl_device_close(device);
    return exit_status;
}
