/* Pinned buffers, used round: filled by one thread, copied from by another. Number n is in buffer n modulo their count. */
#ifndef OFLOAD_LIB_ENGINE_BOUNCE_H
#define OFLOAD_LIB_ENGINE_BOUNCE_H

#include "engine/internal.h"

typedef struct ofl_bounce_buffer {
    char *memory;        /* page aligned */
    ofl_event *drained;  /* the copy out of it is done */
    const void *data;    /* where in it the bytes begin */
    uint64_t filled;     /* one more than the number last filled */
} ofl_bounce_buffer;

typedef struct ofl_bounce {
    ofl_device *device;
    ofl_bounce_buffer buffers[OFL_BOUNCE_BUFFERS];
    void *base;
    uint64_t chunk;      /* most bytes in one */
    bool there, unpinned;
} ofl_bounce;

ofl_status ofl_bounce_open(ofl_device *device, uint64_t largest, ofl_bounce *out);
void ofl_bounce_close(ofl_bounce *bounce); /* after its copies */

#endif
