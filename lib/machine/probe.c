/* Measures an open device. Copies of one size are queued back to back and timed together, so that the cost of waiting for them is shared;
 * the median of several such runs is taken at each of a few sizes, after the link was kept busy for a moment (a link that slept starts slow). */
#include "machine/machine_state.h"

#include <stdio.h>
#include <string.h>

#include "machine/fit.h"
#include "machine/hostmem.h"

#define SIZES 5u        /* each a quarter of the one before */
#define RUNS 5u
#define MOST_COPIES 64u /* queued in one run */
#define LEAST_BYTES (UINT64_C(64) << 10)
#define MOST_BYTES (UINT64_C(64) << 20)
#define RUN_SECONDS 0.02
#define WAKE_SECONDS 0.05
#define CONTEXT_BYTES (UINT64_C(768) << 20) /* a context takes at most about this; what is taken beyond it is another process's */

typedef struct probe {
    ofl_device *device;
    ofl_stream *stream;
    void *on_device, *pinned, *pageable; /* pinned: NULL where nothing can be */
    uint64_t bytes; /* of each */
} probe;

/* Seconds of one copy among `copies` queued together. */
static ofl_status time_copies(const probe *p, ofl_direction direction, ofl_host_memory memory, uint64_t bytes, uint32_t copies, double *seconds_out)
{
    void *host = memory == OFL_HOST_PINNED ? p->pinned : p->pageable;
    void *to = direction == OFL_HOST_TO_DEVICE ? p->on_device : host;
    const void *from = direction == OFL_HOST_TO_DEVICE ? host : p->on_device;
    ofl_status status = OFL_OK;
    uint64_t before = ofl_device_now_ns(p->device);
    for (uint32_t i = 0; status == OFL_OK && i < copies; i++) status = ofl_copy(p->device, p->stream, direction, to, from, bytes, memory);
    ofl_status waited = ofl_stream_wait(p->device, p->stream);
    *seconds_out = (double)(ofl_device_now_ns(p->device) - before) * 1e-9 / copies;
    return status != OFL_OK ? status : waited;
}

/* Keeps the path busy for a moment; the rate it ends at tells how much to copy in a run. */
static ofl_status wake(const probe *p, ofl_direction direction, ofl_host_memory memory, uint64_t *largest_out)
{
    double seconds = 0, spent = 0;
    uint64_t bytes = LEAST_BYTES;
    for (int i = 0; i < 100 && spent < WAKE_SECONDS; i++) {
        ofl_status status = time_copies(p, direction, memory, bytes, 1, &seconds);
        if (status != OFL_OK) return status;
        spent += seconds;
        if (seconds < RUN_SECONDS / 2 && bytes * 2 <= p->bytes) bytes *= 2;
    }
    *largest_out = bytes;
    return OFL_OK;
}

static ofl_status median_copy(const probe *p, ofl_direction direction, ofl_host_memory memory, uint64_t bytes, uint32_t copies, double *seconds_out)
{
    double runs[RUNS];
    for (uint32_t i = 0; i < RUNS; i++) {
        ofl_status status = time_copies(p, direction, memory, bytes, copies, &runs[i]);
        if (status != OFL_OK) return status;
    }
    *seconds_out = ofl_median(runs, RUNS);
    return OFL_OK;
}

static ofl_status measure_path(const probe *p, ofl_direction direction, ofl_host_memory memory, double *start_out, double *rate_out)
{
    ofl_copy_point points[SIZES];
    uint64_t largest = 0;
    ofl_status status = wake(p, direction, memory, &largest);
    for (uint32_t i = 0; status == OFL_OK && i < SIZES; i++) {
        uint64_t bytes = largest >> (2 * i), copies = ofl_min_u64(largest / bytes, MOST_COPIES);
        points[i].bytes = (double)bytes;
        status = median_copy(p, direction, memory, bytes, (uint32_t)copies, &points[i].seconds);
    }
    if (status == OFL_OK && !ofl_fit_copies(points, SIZES, start_out, rate_out))
        return ofl_fail(OFL_ERROR_RUNTIME, "probe: copies of %s to %s gave no rate: their times do not rise with their size; try again on a quiet machine",
                        ofl_bytes_text(largest >> (2 * (SIZES - 1))).text, ofl_bytes_text(largest).text);
    return status;
}

static ofl_status measured(ofl_machine *machine, ofl_figure figure, double value) { return ofl_machine_set(machine, figure, value, OFL_SOURCE_MEASURED); }

/* Nothing can be page-locked: the link is what pageable memory makes of it. */
static ofl_status measure_pageable_link(const probe *p, ofl_machine *machine)
{
    double start = 0, rate = 0;
    ofl_status status = measure_path(p, OFL_HOST_TO_DEVICE, OFL_HOST_PAGEABLE, &start, &rate);
    if (status == OFL_OK) status = measured(machine, OFL_FIGURE_LINK, rate);
    if (status == OFL_OK) status = measured(machine, OFL_FIGURE_LINK_PAGEABLE, rate);
    if (status == OFL_OK) status = measured(machine, OFL_FIGURE_COPY_START, start);
    return status == OFL_OK ? measured(machine, OFL_FIGURE_PINNABLE, 1) : status; /* as good as none; a figure is above 0 */
}

static ofl_status measure_link(const probe *p, ofl_machine *machine)
{
    double start = 0, rate = 0, unused = 0;
    if (p->pinned == NULL) return measure_pageable_link(p, machine);
    ofl_status status = measure_path(p, OFL_HOST_TO_DEVICE, OFL_HOST_PINNED, &start, &rate);
    if (status == OFL_OK) status = measured(machine, OFL_FIGURE_LINK, rate);
    if (status == OFL_OK) status = measured(machine, OFL_FIGURE_COPY_START, start);
    if (status == OFL_OK) status = measure_path(p, OFL_HOST_TO_DEVICE, OFL_HOST_PAGEABLE, &unused, &rate);
    if (status == OFL_OK) status = measured(machine, OFL_FIGURE_LINK_PAGEABLE, rate);
    if (status == OFL_OK) status = measure_path(p, OFL_DEVICE_TO_HOST, OFL_HOST_PINNED, &unused, &rate);
    return status == OFL_OK ? measured(machine, OFL_FIGURE_LINK_BACK, rate) : status;
}

/* The largest power of two from LEAST to MOST that is at most a quarter of what is free. */
static uint64_t buffer_bytes(uint64_t free_bytes)
{
    uint64_t bytes = MOST_BYTES;
    while (bytes > free_bytes / 4 && bytes > LEAST_BYTES) bytes /= 2;
    return bytes;
}

/* Smaller where so much cannot be page-locked; leaves p->pinned NULL where not even the least can. */
static ofl_status pin_buffer(probe *p)
{
    for (uint64_t bytes = p->bytes; bytes >= LEAST_BYTES; bytes /= 2) {
        ofl_status status = ofl_device_host_alloc(p->device, bytes, &p->pinned);
        if (status == OFL_OK) p->bytes = bytes;
        if (status != OFL_ERROR_PINNED_MEMORY) return status;
    }
    return OFL_OK;
}

static ofl_status measure_with_buffers(probe *p, ofl_machine *machine)
{
    ofl_status status = ofl_stream_create(p->device, &p->stream);
    if (status != OFL_OK) return status;
    status = ofl_device_alloc(p->device, p->bytes, &p->on_device);
    if (status != OFL_OK) goto destroy_stream;
    status = pin_buffer(p);
    if (status != OFL_OK) goto free_device;
    p->pageable = ofl_alloc(p->bytes, 1);
    if (p->pageable == NULL) {
        status = ofl_fail(OFL_ERROR_HOST_MEMORY, "probe: no host memory for %s to copy; free some", ofl_bytes_text(p->bytes).text);
        goto free_pinned;
    }
    if (p->pinned != NULL) memset(p->pinned, 0x5A, (size_t)p->bytes); /* pages that exist: an untouched one reads as the one zero page, from the cache */
    memset(p->pageable, 0x5A, (size_t)p->bytes);
    status = measure_link(p, machine);
    ofl_free(p->pageable);
free_pinned:
    if (p->pinned != NULL) ofl_device_host_free(p->device, p->pinned);
free_device:
    ofl_device_free(p->device, p->on_device);
destroy_stream:
    ofl_stream_destroy(p->device, p->stream);
    return status;
}

/* What is taken already is the context's up to a usual context's size, and another process's beyond. The simulated device has no other processes. */
static ofl_status measure_memory(ofl_device *device, const ofl_device_info *info, ofl_machine *machine, uint64_t *free_out)
{
    ofl_memory_info memory = {.struct_size = sizeof memory};
    ofl_status status = ofl_device_memory_get(device, &memory);
    if (status != OFL_OK) return status;
    uint64_t there = memory.free_bytes + memory.used_bytes, taken = memory.total_bytes > there ? memory.total_bytes - there : 0;
    uint64_t runtime = info->simulated ? taken : ofl_min_u64(taken, CONTEXT_BYTES);
    *free_out = memory.free_bytes;
    status = measured(machine, OFL_FIGURE_VRAM, (double)(there + runtime));
    return status == OFL_OK ? measured(machine, OFL_FIGURE_RUNTIME, (double)runtime) : status;
}

/* A host that does not say leaves the figure to the defaults. */
static ofl_status measure_host(ofl_machine *machine)
{
    ofl_host_room room;
    ofl_status status = ofl_host_room_read("", &room);
    if (status == OFL_ERROR_UNSUPPORTED || (status == OFL_OK && room.usable_bytes == 0)) return OFL_OK;
    return status == OFL_OK ? measured(machine, OFL_FIGURE_HOST, (double)room.usable_bytes) : status;
}

/* Name, and what tells it from another of the same name. */
static char *name_device(const ofl_device_info *info)
{
    if (info->simulated) return ofl_format("%s", info->spec);
    return ofl_format("%s%s%s%s%s", info->name, *info->pci_id ? ", " : "", info->pci_id, *info->uuid ? ", " : "", info->uuid);
}

ofl_status ofl_machine_probe(ofl_device *device, ofl_machine **out)
{
    ofl_device_info info = {.struct_size = sizeof info};
    probe p = {.device = device};
    ofl_machine *machine = NULL;
    uint64_t free_bytes = 0;
    if (out == NULL) return ofl_fail(OFL_ERROR_ARGUMENT, "probe: no place for the machine");
    *out = NULL;
    if (device == NULL) return ofl_fail(OFL_ERROR_ARGUMENT, "probe: no device given");
    ofl_status status = ofl_device_info_get(device, &info);
    if (status != OFL_OK) return status;
    char *name = name_device(&info);
    if (name == NULL) return ofl_fail(OFL_ERROR_HOST_MEMORY, "probe: out of host memory");
    status = ofl_machine_create(name, &machine);
    ofl_free(name);
    if (status != OFL_OK) return status;
    machine->simulated = info.simulated != 0;
    status = measure_host(machine);
    if (status == OFL_OK) status = measure_memory(device, &info, machine, &free_bytes);
    p.bytes = buffer_bytes(free_bytes);
    if (status == OFL_OK) status = measure_with_buffers(&p, machine);
    if (status == OFL_OK) *out = machine;
    else ofl_machine_destroy(machine);
    return status;
}
