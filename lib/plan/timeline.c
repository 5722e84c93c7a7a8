/* A step played through: pieces are copied in execution order as soon as the ring has room, across the step boundary; a unit computes when
 * its piece has landed and the unit before it is done; its room is free again then. What is not pinned is read, chunk by chunk, into bounce
 * buffers before: by a reader that goes ahead of the copies as far as there are buffers and pieces that have their place in the ring.
 * Played until it comes again. */
#include "plan/plan_state.h"
#include "plan/ring.h"

#include <math.h>

#define WORK 60000u /* pieces played in all, about; bounds the time of one estimate */
#define CHUNKS_MOST 256u /* of a piece, played one by one; larger ones otherwise */
#define LEAST_STEPS 4u
#define MOST_STEPS 24u

typedef struct flight { double landed; uint64_t number; } flight; /* a piece in the ring, and the ring's number for it */

typedef struct player {
    const ofl_timeline_input *in;
    ofl_ring ring;
    flight *flights; /* circular */
    uint64_t first, count, capacity;
    uint64_t next; /* piece to be copied */
    double link_free, reader_free;
    double drained[OFL_BOUNCE_BUFFERS]; /* when each was last copied from; circular */
    uint32_t buffer;                    /* the next to be filled */
} player;

/* A chunk is read into the buffer that was copied from longest ago, then copied. */
static void copy_chunks(player *p, const ofl_plan_piece *piece, double now)
{
    uint64_t chunks = ofl_min_u64(piece->chunks, CHUNKS_MOST);
    double fill = piece->fill_seconds / (double)chunks, copy = piece->copy_seconds / (double)chunks;
    for (uint64_t i = 0; i < chunks; i++) {
        double *drained = &p->drained[p->buffer];
        p->reader_free = ofl_larger(ofl_larger(p->reader_free, now), *drained) + fill;
        p->link_free = *drained = ofl_larger(p->link_free, p->reader_free) + copy;
        if (++p->buffer == OFL_BOUNCE_BUFFERS) p->buffer = 0;
    }
}

/* Copies whatever there is room for, from `now` on. */
static void fill_ring(player *p, double now)
{
    uint64_t offset, number;
    while (p->count < p->capacity && ofl_ring_take(&p->ring, p->in->pieces[p->next].bytes, &offset, &number)) {
        uint64_t slot = p->first + p->count++;
        const ofl_plan_piece *piece = &p->in->pieces[p->next];
        if (piece->fill_seconds > 0) copy_chunks(p, piece, now);
        else p->link_free = ofl_larger(p->link_free, now) + piece->copy_seconds;
        p->flights[slot < p->capacity ? slot : slot - p->capacity] = (flight){p->link_free, number};
        if (++p->next == p->in->piece_count) p->next = 0;
    }
}

static double play_step(player *p, double now)
{
    for (uint64_t i = 0; i < p->in->piece_count; i++) {
        const flight *arrived = &p->flights[p->first];
        now = ofl_larger(now + p->in->lead[i], arrived->landed) + p->in->own[i];
        ofl_ring_give(&p->ring, arrived->number);
        if (++p->first == p->capacity) p->first = 0;
        p->count--;
        fill_ring(p, now);
    }
    return now + p->in->tail + p->in->host;
}

/* All that the steps to come depend on: pieces still on their way land one behind the other up to link_free; buffers are drained before
 * that. */
typedef struct mark { double end, link_busy, reader_busy; uint64_t next, count, head, taken; } mark;

static mark mark_of(const player *p, double now)
{
    return (mark){.end = now,
                  .link_busy = ofl_larger(p->link_free - now, 0),
                  .reader_busy = ofl_larger(p->reader_free - now, 0),
                  .next = p->next,
                  .count = p->count,
                  .head = p->ring.head % p->ring.bytes,
                  .taken = p->ring.head - p->ring.tail};
}

static bool same(const mark *a, const mark *b, double step)
{
    return a->next == b->next && a->count == b->count && a->head == b->head && a->taken == b->taken &&
           fabs(a->link_busy - b->link_busy) <= 1e-9 * step && fabs(a->reader_busy - b->reader_busy) <= 1e-9 * step;
}

/* A step may be at the bound, or below it, by what the ring held before it; and steps of different length may take turns. Once a step ends
 * like an earlier one, what lies between comes again and again: its mean. */
static double steady_step(player *p)
{
    uint64_t most = ofl_min_u64(ofl_max_u64(WORK / p->in->piece_count, LEAST_STEPS), MOST_STEPS);
    mark marks[MOST_STEPS + 1];
    fill_ring(p, 0);
    marks[0] = mark_of(p, 0);
    for (uint64_t step = 1; step <= most; step++) {
        marks[step] = mark_of(p, play_step(p, marks[step - 1].end));
        for (uint64_t i = step; i-- > 0;) {
            double taken = marks[step].end - marks[i].end, steps = (double)(step - i);
            if (same(&marks[step], &marks[i], taken / steps)) return taken / steps;
        }
    }
    return (marks[most].end - marks[most / 2].end) / (double)(most - most / 2);
}

static uint64_t most_in_flight(const ofl_timeline_input *in)
{
    uint64_t least = UINT64_MAX;
    for (uint64_t i = 0; i < in->piece_count; i++) least = ofl_min_u64(least, in->pieces[i].bytes);
    return ofl_min_u64(in->ring_bytes / least, in->piece_count) + 1;
}

/* Returns what the copies take. */
static double sums(const ofl_timeline_input *in, ofl_step_estimate *out)
{
    double copies = 0, fill = 0;
    out->compute_seconds = in->tail + in->host;
    for (uint64_t i = 0; i < in->piece_count; i++) {
        copies += in->pieces[i].copy_seconds;
        fill += in->pieces[i].fill_seconds;
        out->compute_seconds += in->lead[i] + in->own[i];
    }
    out->link_seconds = ofl_larger(copies, fill);
    out->bound_seconds = ofl_larger(out->link_seconds, out->compute_seconds);
    return copies;
}

ofl_status ofl_plan_timeline(const ofl_timeline_input *in, ofl_step_estimate *out)
{
    ofl_step_estimate estimate = {.struct_size = sizeof estimate};
    double copies = sums(in, &estimate);
    estimate.step_seconds = estimate.bound_seconds;
    if (in->piece_count != 0) {
        player p = {.in = in, .capacity = most_in_flight(in)};
        ofl_status status = ofl_ring_init(&p.ring, in->ring_bytes, (uint32_t)p.capacity);
        if (status != OFL_OK) return status;
        p.flights = ofl_alloc(p.capacity, sizeof *p.flights);
        bool good = p.flights != NULL;
        if (good) estimate.step_seconds = ofl_larger(steady_step(&p), estimate.bound_seconds);
        ofl_free(p.flights);
        ofl_ring_clear(&p.ring);
        if (!good) return ofl_fail(OFL_ERROR_HOST_MEMORY, "step estimate: out of host memory");
    }
    if (estimate.step_seconds <= estimate.bound_seconds * (1 + 1e-12))
        estimate.step_seconds = estimate.bound_seconds; /* no residue of rounding */
    estimate.link_idle_seconds = estimate.step_seconds - copies;
    estimate.stall_seconds = estimate.step_seconds - estimate.compute_seconds;
    *out = estimate;
    return OFL_OK;
}
