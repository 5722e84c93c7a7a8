/* A machine: sizes and rates, each with where it comes from. Knows no model.
 *
 * Threads: one at a time while figures are set; any number once it is only read. */
#ifndef OFLOAD_MACHINE_H
#define OFLOAD_MACHINE_H

#include <ofload/device.h>

#ifdef __cplusplus
extern "C" {
#endif

/* X(name, JSON key, unit). Sizes are whole bytes, rates bytes or operations per second (higher is better), times seconds. */
#define OFL_FIGURE_LIST(X)                                                              \
    X(VRAM, "vram_bytes", "bytes")                 /* device memory that may be used in all */ \
    X(HOST, "host_bytes", "bytes")                 /* host memory that may be used */           \
    X(PINNABLE, "pinnable_bytes", "bytes")         /* of it, what can be page-locked */         \
    X(LINK, "link_bytes_per_second", "bytes/s")    /* host to device from pinned memory */      \
    X(LINK_PAGEABLE, "link_pageable_bytes_per_second", "bytes/s") /* as far as the host's copying out of pageable memory lets it */ \
    X(LINK_BACK, "link_back_bytes_per_second", "bytes/s") /* device to host, pinned */  \
    X(COPY_START, "copy_start_seconds", "s")       /* cost of starting one copy: t = start + bytes / rate */ \
    X(FILE, "file_bytes_per_second", "bytes/s")                                         \
    X(DEVICE_BANDWIDTH, "device_bytes_per_second", "bytes/s") /* device memory read by the compute */ \
    X(DEVICE_FLOPS, "device_flops_per_second", "op/s")                                  \
    X(RUNTIME, "runtime_bytes", "bytes")           /* device memory taken by context and libraries */ \
    X(LINK_BOTH_WAYS, "link_both_ways_bytes_per_second", "bytes/s")   /* LINK while the device sends back at full rate */ \
    X(LINK_COMPUTING, "link_computing_bytes_per_second", "bytes/s")   /* LINK while the device computes */ \
    X(PEER, "peer_bytes_per_second", "bytes/s")    /* from one device to another */         \
    X(HOST_BANDWIDTH, "host_memory_bytes_per_second", "bytes/s") /* host memory read by the processor */ \
    X(HOST_FLOPS, "host_flops_per_second", "op/s") /* products on the processor */       \
    X(PINNING, "pinning_bytes_per_second", "bytes/s") /* host memory taken and page-locked, while weights are loaded */

/* One of OFL_FIGURE_LIST. */
typedef enum ofl_figure {
#define OFL_FIGURE_ENUM(name, key, unit) OFL_FIGURE_##name,
    OFL_FIGURE_LIST(OFL_FIGURE_ENUM)
#undef OFL_FIGURE_ENUM
    OFL_FIGURE_COUNT
} ofl_figure;

/* Where a figure comes from; a later one is worth more. */
typedef enum ofl_source { OFL_SOURCE_NONE, OFL_SOURCE_ASSUMED, OFL_SOURCE_GIVEN, OFL_SOURCE_MEASURED } ofl_source;

/* A machine. */
typedef struct ofl_machine ofl_machine;

/* An empty one; the name is copied. No figure is set: each stays OFL_SOURCE_NONE until set, assumed or probed. */
OFL_API ofl_status ofl_machine_create(const char *device_name, ofl_machine **out);
/* Plans do not need it any more once they are made. NULL is allowed. */
OFL_API void ofl_machine_destroy(ofl_machine *machine);
/* The least rate that is taken, bytes or operations per second. Beyond these three no time of a plan would be a number worth showing. */
#define OFL_RATE_LEAST 0.1
/* The greatest. */
#define OFL_RATE_MOST 1e24
/* The longest time. */
#define OFL_SECONDS_MOST 1e6
/* Sets a figure, over what it was. A value within those bounds, a size whole, above 0 (COPY_START and RUNTIME: at least 0) and below 2^53;
 * else OFL_ERROR_ARGUMENT. A PINNABLE of 1 says that nothing can be page-locked, as a probe does; one that is not set is not known. */
OFL_API ofl_status ofl_machine_set(ofl_machine *machine, ofl_figure figure, double value, ofl_source source);
/* A figure in its unit; 0 and OFL_SOURCE_NONE while not set. source_out may be NULL. */
OFL_API double ofl_machine_get(const ofl_machine *machine, ofl_figure figure, ofl_source *source_out);
/* Fills every unset figure with a stated default, marked assumed; for a simulated device those after the stroke, where there are two:
 *   host memory 1 TiB, 0.9 of it pinnable; link 12 GB/s, the same back, half of it from pageable memory; file 1 GB/s
 *   page-locking 4 GB/s; start of a copy 5 µs / 0; runtime 768 MiB / 0; device memory read at 300 GB/s / 10 GB/s
 *   compute 25 TFLOP/s / 100 GFLOP/s
 * Device memory has none: OFL_ERROR_ARGUMENT while it is not set. Link both ways and while computing, device to device and the host's own
 * rates are never assumed: without a source nothing is said about them. */
OFL_API ofl_status ofl_machine_assume(ofl_machine *machine);
/* Measures an open device: memory, link both ways by size with the fit start + bytes/rate, one way and both ways at once, link generation
 * and width, how much can be page-locked, the host's memory and its rate, host limits (host and cgroups). Takes about two seconds;
 * touches hardware. Bytes that come back changed, or times that do not rise with size: OFL_ERROR_RUNTIME. Nothing it took is left.
 * The thread runs on the processors of the device's NUMA node meanwhile, where that is known and allowed. */
OFL_API ofl_status ofl_machine_probe(ofl_device *device, ofl_machine **out);

/* How to probe. */
typedef struct ofl_probe_options {
    uint32_t struct_size;  /* sizeof(ofl_probe_options); all else may be zero */
    uint32_t host_memory;  /* 1: measure HOST_BANDWIDTH with a simulated device too; a real one has it measured always */
    /* Puts at least a millisecond of computation on the stream without waiting for it (on a simulated device: ofl_sim_launch). With it
     * LINK_COMPUTING is measured. Called many times, on the calling thread; may use memory and streams of its own. */
    ofl_status (*compute)(void *context, ofl_device *device, ofl_stream *stream);
    void *context;
    /* Host memory to page-lock at once, in steps, to see whether it can be; never more than half of what the host has left. 0: up to 1 GiB
     * (64 MiB on a simulated device on the wall clock), a quarter of what the host has left, and half a second. What is refused makes
     * PINNABLE measured; more than was tried stays unknown. */
    uint64_t pin_bytes;
    ofl_device *peer;      /* another open device, or NULL: with it PEER, from `device` to it, is measured; OFL_ERROR_UNSUPPORTED on sim */
} ofl_probe_options;
/* ofl_machine_probe with options, which may be NULL. Errors as there, and what `compute` returned. */
OFL_API ofl_status ofl_machine_probe_with(ofl_device *device, const ofl_probe_options *options, ofl_machine **out);

/* X(name, label): what was timed. The last three at the largest size alone. */
#define OFL_PATH_LIST(X)                                        \
    X(PINNED_TO_DEVICE, "pinned to device")                     \
    X(PAGEABLE_TO_DEVICE, "pageable to device")                 \
    X(DEVICE_TO_PINNED, "device to pinned")                     \
    X(DEVICE_TO_PAGEABLE, "device to pageable")                 \
    X(TO_DEVICE_BOTH_WAYS, "pinned to device, both ways")       \
    X(FROM_DEVICE_BOTH_WAYS, "device to pinned, both ways")     \
    X(TO_DEVICE_COMPUTING, "pinned to device, computing")       \
    X(DEVICE_TO_DEVICE, "device to device")

/* One of OFL_PATH_LIST. */
typedef enum ofl_path {
#define OFL_PATH_ENUM(name, label) OFL_PATH_##name,
    OFL_PATH_LIST(OFL_PATH_ENUM)
#undef OFL_PATH_ENUM
    OFL_PATH_COUNT
} ofl_path;

/* Most sizes that a path is timed at. */
#define OFL_LINE_POINTS_MAX 8u
/* Of one copy, median of several runs. Frozen layout. */
typedef struct ofl_copy_time { uint64_t bytes; double seconds; } ofl_copy_time;
/* A path as it was measured, and the line through it. */
typedef struct ofl_link_line {
    uint32_t struct_size;
    uint32_t point_count;     /* 0: not measured */
    double start_seconds;     /* the fit: seconds = start + bytes / rate */
    double bytes_per_second;
    ofl_copy_time points[OFL_LINE_POINTS_MAX]; /* the largest first */
} ofl_link_line;
/* How a path was measured; point_count 0: it was not. OFL_ERROR_ARGUMENT: no such path. */
OFL_API ofl_status ofl_machine_line(const ofl_machine *machine, ofl_path path, ofl_link_line *out);
/* "pinned to device", …; "?" for an unknown path. Static. */
OFL_API const char *ofl_path_label(ofl_path path);

/* What the probe saw beside the figures. Zero, or -1 for a node: unknown. */
typedef struct ofl_link_state {
    uint32_t struct_size;
    uint32_t generation, width;           /* of PCI Express, read while a copy ran: an idle link saves power and shows generation 1 */
    uint32_t most_generation, most_width; /* what the device can do */
    int32_t device_node, pinned_node;     /* NUMA node of the device, and of the page-locked memory that was copied from */
    uint32_t peer_direct;                 /* 1: copies to the other device need not pass through host memory */
    uint64_t pinned_bytes;                /* page-locked at once in a try */
} ofl_link_state;
/* All zero, nodes -1, for a machine that was not probed. */
OFL_API ofl_status ofl_machine_link_state(const ofl_machine *machine, ofl_link_state *out);
/* When it was probed, "2026-09-30T12:00:00Z"; "" if never. Not part of the identity, as little as lines, link state and notes. */
OFL_API const char *ofl_machine_probed(const ofl_machine *machine);
/* How many things the probe found worth telling. */
OFL_API uint32_t ofl_machine_note_count(const ofl_machine *machine);
/* One of them, a sentence; "" beyond the last. */
OFL_API const char *ofl_machine_note(const ofl_machine *machine, uint32_t index);
/* The device's name, never NULL. */
OFL_API const char *ofl_machine_device(const ofl_machine *machine);
/* 1: its figures are those of a simulated device. */
OFL_API int ofl_machine_simulated(const ofl_machine *machine);
/* SHA-256 of the figures and their sources, 64 hex digits; valid until the next set. */
OFL_API const char *ofl_machine_identity(const ofl_machine *machine);
/* All of the above as JSON, schema ofload.machine/1. Free with ofl_string_free. */
OFL_API ofl_status ofl_machine_to_json(const ofl_machine *machine, char **json_out);
/* Reads that; the text need not end with NUL. OFL_ERROR_FORMAT: with the field; figures beyond the bounds are none. */
OFL_API ofl_status ofl_machine_from_json(const char *json, size_t bytes, ofl_machine **out);
/* ofl_machine_to_json into a file, which is whole or as it was before. OFL_ERROR_IO. */
OFL_API ofl_status ofl_machine_save(const ofl_machine *machine, const char *path);
/* Reads that. OFL_ERROR_NOT_FOUND, _IO, _FORMAT. */
OFL_API ofl_status ofl_machine_load(const char *path, ofl_machine **out);
/* A figure's JSON key, "vram_bytes", …; "?" for an unknown one. Static. */
OFL_API const char *ofl_figure_key(ofl_figure figure);
/* "measured", "given", "assumed", "none"; static. */
OFL_API const char *ofl_source_name(ofl_source source);
/* Percent by which a rate from this source may be off, as forecasts count it: measured 2 (what runs on one machine differ by, start
 * cost and contention left out), given 4 (by hand, from a measurement elsewhere or a data sheet), assumed or none 30. */
OFL_API double ofl_source_error_percent(ofl_source source);

#ifdef __cplusplus
}
#endif
#endif
