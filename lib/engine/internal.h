/* The engine's inside. layout.c decides where each slice lives, host.c takes the memory for it, pins.c page-locks the caller's own, load.c
 * fills the tiers, stream.c keeps the ring, feed.c brings what is not in pinned memory through the bounce buffers, view.c hands out
 * addresses that stay, walk.c goes matrix by matrix. */
#ifndef OFLOAD_LIB_ENGINE_INTERNAL_H
#define OFLOAD_LIB_ENGINE_INTERNAL_H

#include <ofload/engine.h>

#include "base/base.h"
#include "plan/copies.h"
#include "plan/ring.h"

#define OFL_NOWHERE UINT32_MAX

/* Host memory of the engine's own: whole pages, taken at once, holds the packed parts of pieces, or one lookup tensor. */
typedef struct ofl_host_block {
    char *base;
    const char *mapped;  /* the same under the device's address; NULL when it is pageable */
    uint64_t bytes;
    ofl_tier tier;       /* pinned or pageable */
    bool rows;           /* the device reads rows in it: it has to be pinned */
    bool from_runtime;   /* by ofl_device_host_alloc */
} ofl_host_block;

typedef struct ofl_engine_slice {
    uint32_t tensor, unit;
    ofl_tier tier;
    uint64_t row_first, row_count, row_bytes, bytes;
    uint64_t piece_offset;
    bool gathered;         /* its rows are looked up, too */
    bool in_place;         /* `host` is the caller's own memory */
    uint64_t arena_offset; /* resident */
    const char *host;      /* pinned or pageable; NULL: in a file */
    const char *reachable; /* the address under which the device reads it at any time; NULL when it has none */
} ofl_engine_slice;

/* A run of a piece that lies in one run of host memory, or in one of a file. */
typedef struct ofl_engine_extent {
    ofl_copy_run run;
    uint64_t block_offset; /* packed: in its unit's block */
    const char *host;      /* NULL: in a file */
    uint32_t slice;        /* the first in it; the only one unless packed */
} ofl_engine_extent;

typedef struct ofl_engine_unit {
    uint32_t slice_first, slice_count;
    uint32_t extent_first, extent_count; /* of its streamed slices */
    uint64_t piece_bytes;  /* 0: all resident */
    uint64_t copy_bytes;   /* of all extents */
    uint64_t copies;       /* that it takes */
    ofl_tier tier;         /* of its streamed slices */
    bool rows;             /* rows of it are gathered, too */
    uint32_t block;        /* where its packed extents are kept on the host; OFL_NOWHERE: it has none */
    uint32_t position;     /* in the order that is prefetched; OFL_NOWHERE: not in it */
    uint64_t seen;         /* the last step that acquired it; 0: none */
    uint64_t piece;        /* while held */
    bool held;
    uint64_t acquires, stalls, bytes, unit_copies; /* counted, with the next */
    double stall_seconds;
} ofl_engine_unit;

typedef enum ofl_slot_state { OFL_SLOT_QUEUED, OFL_SLOT_HELD, OFL_SLOT_GIVEN } ofl_slot_state;

/* A live piece of the ring; its number modulo the ring's piece capacity finds it. */
typedef struct ofl_engine_slot {
    ofl_slot_state state;
    uint32_t unit;
    uint32_t position; /* in the order, OFL_NOWHERE when it was fetched out of it */
    uint64_t offset;   /* in the ring */
    uint64_t fed;      /* the feeder's number of its copy */
    ofl_event *landed, *released;
} ofl_engine_slot;

typedef struct ofl_feeder ofl_feeder;
typedef struct ofl_pin ofl_pin;

struct ofl_engine {
    const ofl_plan *plan;
    const ofl_model *model;
    ofl_device *device;
    ofl_engine_options options;
    uint64_t copy_bytes; /* most bytes of one copy */

    ofl_engine_slice *slices;
    ofl_view_slice *views; /* one a slice; borrowed by the caller while its unit is held */
    uint32_t slice_count;
    ofl_engine_unit *units;
    uint32_t unit_count;
    ofl_engine_extent *extents; /* at most one a slice */
    uint32_t extent_count;
    ofl_host_block *blocks;
    uint64_t block_count, block_capacity;
    ofl_pin **pins; /* of the caller's memory; NULL: page-locked by the caller */
    uint32_t pin_count;

    char *arena, *ring_memory;
    uint64_t arena_bytes, ring_bytes;
    ofl_ring ring;
    ofl_engine_slot *slots;
    uint32_t slot_count;
    ofl_stream *copies;
    ofl_feeder *feeder; /* NULL, once loaded: all pieces are pinned */

    uint32_t *order, *observed; /* streamed units: as the last step had them, and as this one does */
    uint32_t order_count, observed_count, cursor;
    uint64_t step; /* from 1 */
    bool stepped;  /* something was acquired in this step */
    ofl_status broken;
    bool walking; /* ofl_engine_tensor_next holds `walked`, acquired for `walk_stream` */
    uint32_t walked;
    ofl_stream *walk_stream;

    ofl_engine_stats stats;
    uint64_t counted_from_ns; /* on the device's clock */
    double copy_seconds;      /* of a step, over the link, as planned */
    uint64_t step_bytes;      /* as planned */
};

/* Tells options.message, if there is one. */
void ofl_engine_say(const ofl_engine *engine, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* layout.c */
ofl_status ofl_engine_layout(ofl_engine *engine);
/* What lies where, once a block's memory is there; block OFL_NOWHERE: once all is. */
void ofl_engine_point(ofl_engine *engine, uint32_t block);

/* Called between chunks of taking memory: a status other than OFL_OK ends it. */
typedef struct ofl_host_ticker {
    ofl_status (*tick)(void *context);
    void *context;
    const struct ofl_locality *locality;
} ofl_host_ticker;
/* host.c. take: whole pages near the device, present, page-locked if the block's tier says so. OFL_ERROR_PINNED_MEMORY: they are there,
 * pageable. */
ofl_status ofl_host_take(ofl_engine *engine, ofl_host_block *block, const ofl_host_ticker *ticker);
void ofl_host_give(ofl_engine *engine, ofl_host_block *block);

/* pins.c. Page-locks a range of the caller's memory in place, once for all engines of the process; *out is NULL when the caller had done so
 * already. */
ofl_status ofl_pin_take(ofl_device *device, const char *start, uint64_t bytes, ofl_pin **out);
void ofl_pin_give(ofl_pin *pin); /* NULL is allowed */

/* load.c */
ofl_status ofl_engine_load(ofl_engine *engine);
/* stream.c */
ofl_status ofl_engine_ring_open(ofl_engine *engine);
void ofl_engine_ring_close(ofl_engine *engine);
/* Is the unit there, and does the engine still work? */
ofl_status ofl_engine_usable(const ofl_engine *engine, uint32_t unit);
/* Queues copies while the ring has room. */
ofl_status ofl_engine_pump(ofl_engine *engine);

/* walk.c. Releases the unit that ofl_engine_tensor_next holds, if any. */
ofl_status ofl_engine_walk_end(ofl_engine *engine);

/* feed.c */
/* Queues the copies of a piece that is kept in host memory. */
ofl_status ofl_engine_host_copy(const ofl_engine *engine, const ofl_engine_unit *unit, char *to);
ofl_status ofl_feeder_open(ofl_engine *engine);
void ofl_feeder_close(ofl_feeder *feeder); /* NULL is allowed */
/* Bounce buffers for pieces of at most `largest` bytes, pinned if they can be; before the first copy through them. */
ofl_status ofl_feeder_bounce(ofl_feeder *feeder, uint64_t largest);
bool ofl_feeder_has_bounce(const ofl_feeder *feeder);
bool ofl_feeder_is_unpinned(const ofl_feeder *feeder); /* they could not be pinned */
uint64_t ofl_feeder_chunk(const ofl_feeder *feeder); /* most bytes of one copy out of a bounce buffer */
ofl_status ofl_feeder_load(ofl_feeder *feeder, uint32_t slice); /* to where it stays; a resident one through the bounce buffers */
/* Bytes loaded so far, once they are at least so many. */
ofl_status ofl_feeder_loaded(ofl_feeder *feeder, uint64_t least, uint64_t *bytes_out);
ofl_status ofl_feeder_reads_files(ofl_feeder *feeder); /* before the first piece from a file */
ofl_status ofl_feeder_copy(ofl_feeder *feeder, ofl_engine_slot *slot);
ofl_status ofl_feeder_wait_event(ofl_feeder *feeder, ofl_event *event);
void ofl_feeder_drop(ofl_feeder *feeder, const ofl_engine_slot *slot); /* not copied if it has not begun */
/* Until the slot's copies are queued on the device, so that its `landed` means them. *waited_out: it had to wait. */
ofl_status ofl_feeder_wait_queued(ofl_feeder *feeder, const ofl_engine_slot *slot, bool *waited_out);

#endif
