/* The engine's inside. layout.c decides where each slice lives, load.c fills the tiers, stream.c keeps the ring, feed.c queues copies that
 * would make the host wait, view.c hands out addresses that stay. */
#ifndef OFLOAD_LIB_ENGINE_INTERNAL_H
#define OFLOAD_LIB_ENGINE_INTERNAL_H

#include <ofload/engine.h>

#include "base/base.h"
#include "plan/ring.h"

#define OFL_NOWHERE UINT32_MAX

/* One allocation of host memory; holds whole pieces and lookup tensors. */
typedef struct ofl_host_block {
    char *base;
    const char *mapped; /* the same under the device's address; NULL when it is pageable */
    uint64_t bytes;
    ofl_tier tier;      /* pinned or pageable */
    bool rows;          /* the device reads rows in it: it has to be pinned */
} ofl_host_block;

typedef struct ofl_engine_slice {
    uint32_t tensor, unit;
    ofl_tier tier;
    uint64_t row_first, row_count, row_bytes, bytes;
    uint64_t piece_offset;
    bool gathered;         /* its rows are looked up, too */
    uint64_t arena_offset; /* resident */
    char *host;            /* pinned or pageable */
    const char *reachable; /* the address under which the device reads it at any time; NULL when it has none */
} ofl_engine_slice;

typedef struct ofl_engine_unit {
    uint32_t slice_first, slice_count;
    uint64_t piece_bytes; /* 0: all resident */
    uint64_t copy_bytes;  /* of it, up to the end of the last slice */
    uint64_t copies;      /* that it takes */
    ofl_tier tier;        /* of its streamed slices */
    bool rows;            /* rows of it are gathered, too */
    uint32_t block;       /* where its piece is kept on the host */
    uint64_t block_offset;
    const char *host;
    uint32_t position;    /* in the order that is prefetched; OFL_NOWHERE: not in it */
    uint64_t seen;        /* the last step that acquired it; 0: none */
    uint64_t piece;       /* while held */
    bool held;
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

#define OFL_FILE_COPY_BYTES (UINT64_C(4) << 20) /* a piece in a file is read and copied in chunks of at most this */
enum { OFL_BOUNCE_MOST = 3 };
typedef struct ofl_bounce {
    ofl_device *device;
    void *buffers[OFL_BOUNCE_MOST];
    ofl_event *drained[OFL_BOUNCE_MOST]; /* the copy out of the buffer is done */
    uint64_t bytes;
    uint32_t count, next;
    bool unpinned;
} ofl_bounce;

typedef struct ofl_feeder ofl_feeder;

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
    ofl_host_block *blocks;
    uint64_t block_count, block_capacity;

    char *arena, *ring_memory;
    uint64_t arena_bytes, ring_bytes;
    ofl_ring ring;
    ofl_engine_slot *slots;
    uint32_t slot_count;
    ofl_stream *copies;
    ofl_feeder *feeder; /* NULL: all pieces are pinned */

    uint32_t *order, *observed; /* streamed units: as the last step had them, and as this one does */
    uint32_t order_count, observed_count, cursor;
    uint64_t step; /* from 1 */
    bool stepped;  /* something was acquired in this step */
    ofl_status broken;

    ofl_engine_stats stats;
};

/* layout.c */
ofl_status ofl_engine_layout(ofl_engine *engine);
ofl_status ofl_engine_host_alloc(ofl_engine *engine);
/* bounce.c. read: bytes [done, done + bytes) of a slice to the device, `bytes` at most a buffer's; waits only for the buffer. */
ofl_status ofl_bounce_open(ofl_device *device, uint32_t count, uint64_t bytes, ofl_bounce *out);
void ofl_bounce_close(ofl_bounce *bounce); /* after its copies */
ofl_status ofl_bounce_read(ofl_bounce *bounce, const ofl_model *model, const ofl_engine_slice *slice, uint64_t done, uint64_t bytes, ofl_stream *stream, char *to);
/* load.c */
ofl_status ofl_engine_load(ofl_engine *engine);
/* stream.c */
ofl_status ofl_engine_ring_open(ofl_engine *engine);
void ofl_engine_ring_close(ofl_engine *engine);
/* Queues copies while the ring has room. */
ofl_status ofl_engine_pump(ofl_engine *engine);
/* feed.c */
/* Queues the copies of a piece that is kept in host memory. */
ofl_status ofl_engine_host_copy(const ofl_engine *engine, const ofl_engine_unit *unit, char *to);
ofl_status ofl_feeder_open(ofl_engine *engine);
void ofl_feeder_close(ofl_feeder *feeder); /* NULL is allowed */
ofl_status ofl_feeder_copy(ofl_feeder *feeder, uint64_t piece, ofl_engine_slot *slot);
ofl_status ofl_feeder_wait_event(ofl_feeder *feeder, ofl_event *event);
void ofl_feeder_drop(ofl_feeder *feeder, uint64_t piece); /* not copied if it has not begun */
/* Until the slot's copies are queued on the device, so that its `landed` means them. */
ofl_status ofl_feeder_wait_queued(ofl_feeder *feeder, const ofl_engine_slot *slot);

#endif
