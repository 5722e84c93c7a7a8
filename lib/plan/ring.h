/* The staging ring's bookkeeping, shared by the planner's timeline and the engine, so that both decide alike. No device, no thread, no
 * clock.
 *
 * Pieces are placed in order, each contiguous; one that does not fit before the end starts again at 0 and what is left there stays empty
 * until the pieces before it are gone. Space is free again when its piece AND every piece placed before it were given back. */
#ifndef OFLOAD_LIB_RING_H
#define OFLOAD_LIB_RING_H

#include "base/base.h"

typedef struct ofl_ring_piece {
    uint64_t offset, bytes; /* bytes as placed */
    uint64_t start;         /* where the space taken begins on the endless line: skipped end included */
    bool given;
} ofl_ring_piece;

typedef struct ofl_ring {
    uint64_t bytes;
    uint64_t head, tail;      /* on an endless line; head − tail is taken */
    ofl_ring_piece *pieces;   /* circular, piece_capacity */
    uint32_t piece_capacity;
    uint32_t first, count;    /* live pieces, oldest first */
    uint64_t sequence;        /* number of the oldest live piece */
    uint64_t high_water;
} ofl_ring;

/* max_pieces ≥ 1 live at once. OFL_ERROR_HOST_MEMORY. */
ofl_status ofl_ring_init(ofl_ring *ring, uint64_t bytes, uint32_t max_pieces);
void ofl_ring_clear(ofl_ring *ring);
/* Places a piece (bytes > 0, a multiple of OFL_ALIGNMENT_BYTES): false when there is no room now. *piece_out numbers it for
 * ofl_ring_give. */
bool ofl_ring_take(ofl_ring *ring, uint64_t bytes, uint64_t *offset_out, uint64_t *piece_out);
void ofl_ring_give(ofl_ring *ring, uint64_t piece);

/* Bytes that are not in pinned memory pass through a few pinned buffers on their way to the ring: while one is on the link, others are
 * filled, in order, by a few threads. Each holds a chunk and the pages around it that a direct read brings along. Planned, timed and
 * allocated by this. */
#define OFL_BOUNCE_BUFFERS 5u
#define OFL_BOUNCE_FILLERS 3u
#define OFL_BOUNCE_CHUNK_BYTES (UINT64_C(4) << 20)
#define OFL_BOUNCE_MARGIN_BYTES (2 * OFL_PAGE_BYTES)
/* The least ring that keeps the fillers busy: they fill only what has its place in it. */
#define OFL_BOUNCE_RING_BYTES (2 * OFL_BOUNCE_CHUNK_BYTES)
static inline uint64_t ofl_bounce_chunk(uint64_t largest_piece)
{
    uint64_t pages;
    return largest_piece < OFL_BOUNCE_CHUNK_BYTES && ofl_align_u64(largest_piece, OFL_PAGE_BYTES, &pages) ? pages : OFL_BOUNCE_CHUNK_BYTES;
}
static inline uint64_t ofl_bounce_bytes(uint64_t largest_piece)
{
    return OFL_BOUNCE_BUFFERS * (ofl_bounce_chunk(largest_piece) + OFL_BOUNCE_MARGIN_BYTES);
}

#endif
