#include "plan/ring.h"

#include <string.h>

ofl_status ofl_ring_init(ofl_ring *ring, uint64_t bytes, uint32_t max_pieces)
{
    ofl_ring_piece *pieces = ofl_alloc(max_pieces, sizeof *pieces);
    if (pieces == NULL) return ofl_fail(OFL_ERROR_HOST_MEMORY, "ring of %u pieces: out of host memory; free some", (unsigned)max_pieces);
    *ring = (ofl_ring){.bytes = bytes, .pieces = pieces, .piece_capacity = max_pieces};
    return OFL_OK;
}

void ofl_ring_clear(ofl_ring *ring)
{
    ofl_free(ring->pieces);
    memset(ring, 0, sizeof *ring);
}

static ofl_ring_piece *piece_at(ofl_ring *ring, uint32_t index) 
{
    uint32_t place = ring->first + index; /* both below the capacity: no division, a timeline does this often */
    return &ring->pieces[place < ring->piece_capacity ? place : place - ring->piece_capacity];
}

/* A piece given back while others are live frees the space up to the next live one; the last frees all, so that an empty ring starts anew
 * at 0. */
static void drop_given(ofl_ring *ring)
{
    while (ring->count > 0 && piece_at(ring, 0)->given) {
        if (++ring->first == ring->piece_capacity) ring->first = 0;
        ring->count--;
        ring->sequence++;
    }
    if (ring->count == 0) ring->head = ring->tail = 0;
    else ring->tail = piece_at(ring, 0)->start;
}

bool ofl_ring_take(ofl_ring *ring, uint64_t bytes, uint64_t *offset_out, uint64_t *piece_out)
{
    if (bytes > ring->bytes || ring->count == ring->piece_capacity) return false;
    uint64_t at = ring->head % ring->bytes, skipped = bytes > ring->bytes - at ? ring->bytes - at : 0;
    uint64_t room = ring->bytes - (ring->head - ring->tail);
    if (skipped > room || bytes > room - skipped) return false;
    *piece_at(ring, ring->count) = (ofl_ring_piece){.offset = skipped ? 0 : at, .bytes = bytes, .start = ring->head};
    *offset_out = skipped ? 0 : at;
    *piece_out = ring->sequence + ring->count;
    ring->count++;
    ring->head += skipped + bytes;
    ring->high_water = ofl_max_u64(ring->high_water, ring->head - ring->tail);
    return true;
}

void ofl_ring_give(ofl_ring *ring, uint64_t piece)
{
    if (piece - ring->sequence >= ring->count) return;
    piece_at(ring, (uint32_t)(piece - ring->sequence))->given = true;
    drop_given(ring);
}
