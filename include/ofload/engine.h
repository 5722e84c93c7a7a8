/* The engine carries a plan out: loads the weights to their tiers, keeps the link busy, and hands each unit's device pointers to the loop.
 *
 *   for each step: for each unit in order: acquire(unit) → put work on the stream → release(unit)
 *   or, matrix by matrix:                  tensor_next(tensor) → put work on the stream, until there are no more rows
 *
 * With a stream, acquire and release never block the host when the sources are pinned: order is made by events. With stream = NULL the
 * calling thread is the consumer: acquire returns when the bytes are there, release counts at once.
 * Units may be acquired out of order, skipped or repeated: slower, never wrong. The order of the last step is what is prefetched, across
 * the step boundary.
 *
 * CUDA graphs: capture a unit's work between its acquire and its release; both stand outside the capture (inside they are refused with
 * OFL_ERROR_STATE), since the copies that the engine queues are not part of any graph. Streamed slices lie elsewhere from step to step: set
 * the graph's pointers anew, or capture again. Resident slices stay where they are. Where a tier below pinned is streamed, capture with
 * cudaStreamCaptureModeThreadLocal: the engine's own thread makes calls that the global mode forbids.
 *
 * Threads: one engine is used by one thread at a time; several engines may share a device. No allocation and no host wait once running
 * (pinned sources). */
#ifndef OFLOAD_ENGINE_H
#define OFLOAD_ENGINE_H

#include <ofload/plan.h>

#ifdef __cplusplus
extern "C" {
#endif

/* An engine. */
typedef struct ofl_engine ofl_engine;

/* How to open one. */
typedef struct ofl_engine_options {
    uint32_t struct_size;
    /* Called about every 64 MiB while loading, from the caller's thread, and at least as often while memory is page-locked (bytes_done then
     * may stand still); a non-zero return cancels (OFL_ERROR_CANCELLED). May be NULL. */
    int (*progress)(void *context, uint64_t bytes_done, uint64_t bytes_total);
    /* A sentence about something that is worth saying aloud (a tier that had to fall to the next). May be NULL. */
    void (*message)(void *context, const char *sentence);
    void *context;
    uint32_t poison; /* 1: ring space is filled with 0xA5… when its unit is released (tests; sim only) */
} ofl_engine_options;

/* One slice of an acquired unit. Frozen layout: arrays of it cross the API. */
typedef struct ofl_view_slice {
    const void *data;   /* on the device; rows row_first … row_first + row_count − 1, row_bytes apart, 256-byte aligned */
    uint64_t bytes;
    uint64_t row_first, row_count;
    uint32_t tensor;
    uint32_t streamed;  /* 0: resident, and the pointer stays valid after release */
} ofl_view_slice;

/* An acquired unit. */
typedef struct ofl_view {
    uint32_t struct_size;
    uint32_t slice_count;
    const ofl_view_slice *slices; /* all slices of the unit, in the plan's order; borrowed until release */
} ofl_view;

/* Counters: since open or the last reset, but for what is held. */
typedef struct ofl_engine_stats {
    uint32_t struct_size;
    uint64_t steps;              /* ended */
    uint64_t bytes_streamed;     /* landed or queued; of a step: divided by `steps` */
    uint64_t copies;
    uint64_t acquires;
    uint64_t stalls;             /* acquires that held the host up: the bytes not yet there (NULL stream), or their copy not yet queued
                                    (any stream, bytes from pageable memory or a file) */
    double stall_seconds;
    uint64_t ring_high_water_bytes;
    uint64_t device_bytes;       /* held: resident + ring, as allocated */
    uint64_t pinned_bytes, pageable_bytes, file_bytes; /* held: weights in each tier, the caller's own memory included where it is used in
                                    place; without the bounce buffers */
    uint64_t refetches;          /* prefetched pieces dropped because the order changed */
    uint64_t from_pinned_bytes, from_pageable_bytes, from_file_bytes; /* bytes_streamed by the tier they came from */
    uint64_t refused_bytes;      /* held: planned as pinned, but not page-locked: they are in the pageable tier */
    double link_idle_seconds;    /* time on the device's clock less what these copies take at the plan's rates: modelled, not observed,
                                    since no event on the hot path carries a time */
} ofl_engine_stats;

/* The same of one unit. */
typedef struct ofl_engine_unit_stats {
    uint32_t struct_size;
    ofl_tier tier;               /* of its streamed bytes as they are held; OFL_TIER_DEVICE: all resident */
    uint64_t acquires, bytes, copies, stalls;
    double stall_seconds;
} ofl_engine_unit_stats;

/* Checks plan against model and device, then allocates and loads: each byte of the model's files is read once. options may be NULL.
 * Free memory is read anew first: weights, ring and what KV and activations need beyond what is allocated through this device already.
 *
 * Host memory: pinned weights are packed per unit in blocks of at most 256 MiB of exact size, near the device where its NUMA node is known.
 * A builder's weights in the caller's memory stay where they are: slices of at least 1 MiB are page-locked in place, smaller ones packed
 * into memory of the engine's own; what the plan has as pageable, or as in a file, is read from where it lies. The caller may have
 * page-locked them already; then they stay so as long as the engine is open. They count against the machine's host memory once, as other
 * weights do: give it a figure that has them in it. Weights in pageable memory or in a file pass through a few pinned
 * buffers (at most 5 × (4 MiB + 8 KiB)), filled by threads of the engine's own; files are read past the page cache where that can be.
 * What cannot be page-locked falls to the pageable tier: said by options.message, seen in refused_bytes. Rows of lookup tensors cannot.
 * OFL_ERROR_MISMATCH, _DEVICE_MEMORY (refused before anything is allocated), _PINNED_MEMORY, _IO, _CANCELLED. */
OFL_API ofl_status ofl_engine_open(const ofl_plan *plan, const ofl_model *model, ofl_device *device, const ofl_engine_options *options,
                                   ofl_engine **out);
/* Waits for copies in flight, then frees. plan, model and device must outlive it. NULL is allowed. */
OFL_API void ofl_engine_close(ofl_engine *engine);

/* Device pointers of a unit, valid for work put on `stream` until release; NULL: for the calling thread, which waits until the bytes are
 * there. At most as many units may be held as fit in the ring; one always does.
 * OFL_ERROR_STATE: already held, or the ring is full of held units; nothing has changed then. OFL_ERROR_RUNTIME, _DEVICE_LOST, _IO: a copy
 * could not be queued; the engine is done for, every later call says the same. */
OFL_API ofl_status ofl_engine_acquire(ofl_engine *engine, uint32_t unit, ofl_stream *stream, ofl_view *out);
/* The work put on `stream` so far is the last that reads the unit: its room in the ring is free behind it. `stream`: that of the work, as a
 * rule the one that acquired. OFL_ERROR_STATE: not held; else as ofl_engine_acquire. */
OFL_API ofl_status ofl_engine_release(ofl_engine *engine, uint32_t unit, ofl_stream *stream);
/* Ends a step. Optional: acquiring a unit a second time ends one too. Releases the unit that ofl_engine_tensor_next holds. */
OFL_API ofl_status ofl_engine_step_end(ofl_engine *engine);

/* For loops that are written matrix by matrix and know nothing of units: the next rows of a tensor, which acquires and releases by itself.
 *
 *   ofl_view_slice rows = {0};
 *   while ((status = ofl_engine_tensor_next(engine, tensor, stream, &rows)) == OFL_OK) multiply(rows.data, rows.row_first, rows.row_count);
 *
 * `rows`: all zero for the first ones, then as the last call left it; zero again at OFL_END, behind the last. The address is valid for
 * work put on `stream` before the next call of this function or of ofl_engine_step_end (a resident slice's for the engine's life). Tensors
 * are best asked for in the model's order: another one is slower, never wrong. One unit stays held from call to call, so
 * ofl_engine_acquire of that unit is refused until ofl_engine_step_end.
 * OFL_ERROR_ARGUMENT: a lookup tensor, or rows of another tensor; else as ofl_engine_acquire. */
OFL_API ofl_status ofl_engine_tensor_next(ofl_engine *engine, uint32_t tensor, ofl_stream *stream, ofl_view_slice *rows);

/* The permanent device address of a resident slice's rows; OFL_ERROR_NOT_FOUND when the tensor is not resident whole (no new sentence). */
OFL_API ofl_status ofl_engine_resident(ofl_engine *engine, uint32_t tensor, const void **out);
/* Addresses, readable by the device, of single rows of a lookup (or also_lookup) tensor: rows[i] → out[i]. Rows are resident or in pinned
 * (mapped) host memory. Valid for the engine's life. OFL_ERROR_ARGUMENT: row out of range, or no lookup tensor. */
OFL_API ofl_status ofl_engine_rows(ofl_engine *engine, uint32_t tensor, const uint32_t *rows, uint32_t count, const void **out);

/* Counters of the whole engine. No waiting, no driver. */
OFL_API ofl_status ofl_engine_stats_get(const ofl_engine *engine, ofl_engine_stats *out);
/* Those of one unit. OFL_ERROR_ARGUMENT: no such unit. */
OFL_API ofl_status ofl_engine_unit_stats_get(const ofl_engine *engine, uint32_t unit, ofl_engine_unit_stats *out);
/* Counters begin anew, but for what is held. */
OFL_API void ofl_engine_stats_reset(ofl_engine *engine);

#ifdef __cplusplus
}
#endif
#endif
