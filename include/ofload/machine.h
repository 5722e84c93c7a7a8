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
    X(LINK_PAGEABLE, "link_pageable_bytes_per_second", "bytes/s")                       \
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
    X(HOST_FLOPS, "host_flops_per_second", "op/s") /* products on the processor */

typedef enum ofl_figure {
#define OFL_FIGURE_ENUM(name, key, unit) OFL_FIGURE_##name,
    OFL_FIGURE_LIST(OFL_FIGURE_ENUM)
#undef OFL_FIGURE_ENUM
    OFL_FIGURE_COUNT
} ofl_figure;

typedef enum ofl_source { OFL_SOURCE_NONE, OFL_SOURCE_ASSUMED, OFL_SOURCE_GIVEN, OFL_SOURCE_MEASURED } ofl_source;

typedef struct ofl_machine ofl_machine;

/* No figure set: each stays OFL_SOURCE_NONE until set, assumed or probed. */
OFL_API ofl_status ofl_machine_create(const char *device_name, ofl_machine **out);
OFL_API void ofl_machine_destroy(ofl_machine *machine);
/* value finite and > 0 (>= 0 for COPY_START and RUNTIME), else OFL_ERROR_ARGUMENT. */
OFL_API ofl_status ofl_machine_set(ofl_machine *machine, ofl_figure figure, double value, ofl_source source);
/* 0 and OFL_SOURCE_NONE while not set. source_out may be NULL. */
OFL_API double ofl_machine_get(const ofl_machine *machine, ofl_figure figure, ofl_source *source_out);
/* Fills every unset figure with a stated default, marked assumed; for a simulated device those after the stroke, where there are two:
 *   host memory 1 TiB, 0.9 of it pinnable; link 12 GB/s, the same back, half of it from pageable memory; file 1 GB/s
 *   start of a copy 5 µs / 0; runtime 768 MiB / 0; device memory read at 300 GB/s / 10 GB/s; compute 25 TFLOP/s / 100 GFLOP/s
 * Device memory has none: OFL_ERROR_ARGUMENT while it is not set. Link both ways and while computing, device to device and the host's own
 * rates are never assumed: without a source nothing is said about them. */
OFL_API ofl_status ofl_machine_assume(ofl_machine *machine);
/* Measures an open device: memory, link both ways by size with the fit start + bytes/rate, host limits (host and cgroups). Takes about a
 * second of link time; touches hardware. */
OFL_API ofl_status ofl_machine_probe(ofl_device *device, ofl_machine **out);
OFL_API const char *ofl_machine_device(const ofl_machine *machine); /* its name, never NULL */
OFL_API int ofl_machine_simulated(const ofl_machine *machine);
OFL_API const char *ofl_machine_identity(const ofl_machine *machine); /* SHA-256 of the figures, 64 hex digits; valid until the next set */
/* Schema ofload.machine/1. */
OFL_API ofl_status ofl_machine_to_json(const ofl_machine *machine, char **json_out);
OFL_API ofl_status ofl_machine_from_json(const char *json, size_t bytes, ofl_machine **out);
OFL_API ofl_status ofl_machine_save(const ofl_machine *machine, const char *path);
OFL_API ofl_status ofl_machine_load(const char *path, ofl_machine **out);
OFL_API const char *ofl_figure_key(ofl_figure figure);
OFL_API const char *ofl_source_name(ofl_source source);

#ifdef __cplusplus
}
#endif
#endif
