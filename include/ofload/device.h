/* A device: memory, streams, events, copies. Two back ends: "cuda:N" (the CUDA Runtime) and "sim:…" (this machine's own memory behind a
 * modelled link).
 *
 * A spec of the simulated device: sim:KEY=VALUE,…
 *   vram=SIZE (needed)  h2d=RATE (needed)  h2d_pageable=RATE (default h2d)  d2h=RATE (default h2d)
 *   start=SECONDS per copy, e.g. 5us (default 0)  clock=wall|virtual (default wall)
 *   order=SEED (any legal order, seeded; default 0 = submission order)
 *   runtime=SIZE already taken by a pretended context (default 0)  pinnable=SIZE (default: no limit)
 *
 * "cuda:N" counts as the CUDA Runtime does; "cuda:GPU-UUID" and "cuda:DOMAIN:BUS:DEVICE.FUNCTION" name a device by identity. Each call
 * makes the device current for the calling thread.
 *
 * CUDA_VISIBLE_DEVICES is the runtime's own and holds: what it hides cannot be opened by any name.
 *
 * Streams: an ofl_stream * is the back end's own handle. On "cuda" it is a cudaStream_t cast, and any cudaStream_t may be passed (the
 * legacy default stream as cudaStreamLegacy, since NULL means "the calling thread"). Work in one stream runs in order; streams are
 * ordered among each other by events alone. Streams made here do not wait for the default stream, nor it for them (cudaStreamNonBlocking).
 * A stream that is being captured into a CUDA graph takes copies, but events neither in nor out (OFL_ERROR_STATE).
 *
 * h2d_pageable is the host's copying from pageable memory, be it in a copy from there or in ofl_host_copy: the link itself is no slower.
 *
 * The virtual clock is the host's: it moves by ofl_sim_elapse, by waits (to the end of what is waited for), by pageable copies, by
 * ofl_host_copy, and by a poll that is repeated while nothing else was queued and no time passed (to the next event, so that polling loops
 * end). All threads share it. Pageable copies to the host run at the lower of d2h and h2d_pageable. With order=SEED operations may also be
 * held back at random: times are then longer than the rates alone say.
 *
 * Threads: every function may be called from any thread; one stream or event must not be used by two threads at once. */
#ifndef OFLOAD_DEVICE_H
#define OFLOAD_DEVICE_H

#include <stddef.h>
#include <ofload/status.h>

#ifdef __cplusplus
extern "C" {
#endif

/* An open device. */
typedef struct ofl_device ofl_device;
/* Work in order; the back end's own handle. */
typedef struct ofl_stream ofl_stream;
/* A point in a stream. */
typedef struct ofl_event ofl_event;

/* What a device is. */
typedef struct ofl_device_info {
    uint32_t struct_size;
    uint32_t simulated;         /* 1: "sim:…" */
    uint32_t virtual_clock;     /* sim with clock=virtual: time passes only as modelled */
    uint32_t host_readable;     /* 1: the host may read device pointers (sim: device memory is host memory) */
    const char *name;           /* "NVIDIA GeForce RTX 3060" or "simulated"; borrowed */
    const char *spec;           /* as opened */
    const char *pci_id;         /* "" if none */
    const char *uuid;           /* "" if none */
    int32_t numa_node;          /* -1 unknown */
} ofl_device_info;

/* Its memory. */
typedef struct ofl_memory_info {
    uint32_t struct_size;
    uint64_t total_bytes;       /* of the device; on sim: vram */
    uint64_t free_bytes;        /* now; others may take it */
    uint64_t used_bytes;        /* by this ofl_device's allocations */
    uint64_t peak_bytes;        /* highest used_bytes since it was opened */
    uint64_t pinned_bytes;      /* host memory page-locked through this device now */
} ofl_memory_info;

/* Which way a copy goes. */
typedef enum ofl_direction { OFL_HOST_TO_DEVICE, OFL_DEVICE_TO_HOST } ofl_direction;
/* What the host side of a copy is: page-locked or not. */
typedef enum ofl_host_memory { OFL_HOST_PAGEABLE, OFL_HOST_PINNED } ofl_host_memory;

/* Opens a device; on cuda it makes, or shares, the device's primary context. OFL_ERROR_ARGUMENT (spec), _UNSUPPORTED (built without CUDA),
 * _NO_DRIVER, _NO_DEVICE, _RUNTIME. */
OFL_API ofl_status ofl_device_open(const char *spec, ofl_device **out);
/* How many devices of a kind this process may open: kind "cuda", as the runtime counts them (CUDA_VISIBLE_DEVICES), cuda:0 and up. Where
 * there is none, 0 and the status that opening cuda:0 would give. Any other kind: OFL_ERROR_ARGUMENT. */
OFL_API ofl_status ofl_device_count(const char *kind, uint32_t *count_out);
/* Waits for all its work. Memory, streams and events made on it must be gone. NULL is allowed. */
OFL_API void ofl_device_close(ofl_device *device);
/* What it is. Touches no hardware. */
OFL_API ofl_status ofl_device_info_get(const ofl_device *device, ofl_device_info *out);
/* Its memory now: asks the driver. */
OFL_API ofl_status ofl_device_memory_get(ofl_device *device, ofl_memory_info *out);

/* Device memory, 256-byte aligned, uninitialised. bytes > 0. The caller frees it. May block. OFL_ERROR_DEVICE_MEMORY, with bytes needed and
 * there in the diagnostic. */
OFL_API ofl_status ofl_device_alloc(ofl_device *device, uint64_t bytes, void **out);
/* Frees it; NULL is allowed. No work may still use it: wait for its streams first (cuda waits for the whole device). */
OFL_API void ofl_device_free(ofl_device *device, void *pointer);
/* Page-locked host memory, page aligned, mapped so that the device can read it. bytes > 0. The caller frees it. OFL_ERROR_PINNED_MEMORY. */
OFL_API ofl_status ofl_device_host_alloc(ofl_device *device, uint64_t bytes, void **out);
/* Frees it; NULL is allowed. No copy may still use it. */
OFL_API void ofl_device_host_free(ofl_device *device, void *pointer);
/* Page-locks the caller's own memory in place, until it is unregistered; the memory must stay as long. A range that shares a page with one
 * page-locked already: OFL_ERROR_STATE. OFL_ERROR_PINNED_MEMORY. */
OFL_API ofl_status ofl_device_host_register(ofl_device *device, const void *pointer, uint64_t bytes);
/* The other way; `pointer` as registered. No copy may still use it. OFL_ERROR_STATE: it was not
 * registered. */
OFL_API ofl_status ofl_device_host_unregister(ofl_device *device, const void *pointer);
/* The address under which the device reads pinned host memory, any address within it; valid as long as the memory is page-locked.
 * OFL_ERROR_ARGUMENT: it is not page-locked. */
OFL_API ofl_status ofl_device_host_address(ofl_device *device, const void *host, const void **device_out);

/* A stream of its own; cuda: cudaStreamNonBlocking. The caller destroys it. */
OFL_API ofl_status ofl_stream_create(ofl_device *device, ofl_stream **out);
/* After ofl_stream_wait. NULL is allowed. */
OFL_API void ofl_stream_destroy(ofl_device *device, ofl_stream *stream);
/* Blocks the host until its work is done; reports its failures: OFL_ERROR_RUNTIME, _DEVICE_LOST. */
OFL_API ofl_status ofl_stream_wait(ofl_device *device, ofl_stream *stream);
/* OFL_OK: all done; OFL_NOT_READY: not yet, no error. Does not block. Failures as ofl_stream_wait. */
OFL_API ofl_status ofl_stream_query(ofl_device *device, ofl_stream *stream);
/* Later work in `stream` waits until `event`'s last record is reached. A never-recorded event counts as reached. Does not block. */
OFL_API ofl_status ofl_stream_wait_event(ofl_device *device, ofl_stream *stream, ofl_event *event);

/* An event without a time. The caller destroys it. */
OFL_API ofl_status ofl_event_create(ofl_device *device, ofl_event **out);
/* NULL is allowed. Work that waits for it already is not changed by that. */
OFL_API void ofl_event_destroy(ofl_device *device, ofl_event *event);
/* The event is reached when the stream's work so far is done; a second record takes the place of the first. Does not block. */
OFL_API ofl_status ofl_event_record(ofl_device *device, ofl_event *event, ofl_stream *stream);
/* OFL_OK: reached; OFL_NOT_READY: not yet, no error. Does not block. */
OFL_API ofl_status ofl_event_query(ofl_device *device, ofl_event *event);
/* Blocks the host until it is reached. */
OFL_API ofl_status ofl_event_wait(ofl_device *device, ofl_event *event);

/* Queues a copy in `stream`. `memory` says what the host side is; with OFL_HOST_PINNED the call does not wait, and both sides must stay
 * valid until it is done.
 * OFL_ERROR_ARGUMENT: said to be pinned, but not page-locked (by ofl_device_host_alloc or _register, on cuda also by the caller's own
 * means); or (sim) the device side is not in one allocation.
 * OFL_HOST_PAGEABLE: the host side may be used again when the call returns; on sim the copy is done then. 0 bytes: nothing. */
OFL_API ofl_status ofl_copy(ofl_device *device, ofl_stream *stream, ofl_direction direction, void *to, const void *from, uint64_t bytes,
                            ofl_host_memory memory);
/* Copies within host memory, on the calling thread: what the host does to bring pageable bytes into page-locked buffers. On a simulated
 * device no faster than h2d_pageable, all threads together, where that is below h2d. */
OFL_API ofl_status ofl_host_copy(ofl_device *device, void *to, const void *from, uint64_t bytes);

/* Several devices, from one to another: both open, of one kind. direct_out: 1 where copies need not pass through host memory (which is then
 * switched on for `from`), 0 where they do. Simulated devices: OFL_ERROR_UNSUPPORTED. */
OFL_API ofl_status ofl_device_peer(ofl_device *from, ofl_device *to, uint32_t *direct_out);
/* Queues a copy in a stream of `from_device`. Both sides must stay valid until it is done. 0 bytes: nothing. */
OFL_API ofl_status ofl_copy_peer(ofl_device *from_device, ofl_stream *stream, ofl_device *to_device, void *to, const void *from,
                                 uint64_t bytes);

/* Simulated devices only (else OFL_ERROR_UNSUPPORTED). Runs function(context) in the stream as a kernel would run (NULL: only time passes);
 * it takes `seconds` of device time: exactly so on the virtual clock, at least so on the wall clock. The function must not call the
 * device. */
OFL_API ofl_status ofl_sim_launch(ofl_device *device, ofl_stream *stream, void (*function)(void *), void *context, double seconds);
/* The calling thread computed for `seconds`: moves its virtual time on. On the wall clock: nothing (time has passed by itself). */
OFL_API ofl_status ofl_sim_elapse(ofl_device *device, double seconds);
/* Nanoseconds on the device's clock (wall: monotonic). */
OFL_API uint64_t ofl_device_now_ns(ofl_device *device);

#ifdef __cplusplus
}
#endif
#endif
