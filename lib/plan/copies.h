/* How the streamed slices of a piece are copied: planned, checked and carried out by this.
 *
 * Run by run, each in chunks. Neighbours that the engine keeps together on the host make one run, with the gaps between them; what is
 * copied from where the caller or a file has it is a run of its own. */
#ifndef OFLOAD_LIB_COPIES_H
#define OFLOAD_LIB_COPIES_H

#include <ofload/plan.h>

#include "base/base.h"

/* Of the caller's own memory: from this size on a slice is copied from where it lies; smaller ones are packed, since each copy costs a
 * start. */
#define OFL_IN_PLACE_BYTES (UINT64_C(1) << 20)

/* Is a slice copied from the caller's memory as it lies? The caller's memory is no file: what the plan leaves there is read likewise. */
static inline bool ofl_is_in_place(ofl_tier tier, bool callers, uint64_t bytes)
{
    return callers && (tier == OFL_TIER_PAGEABLE || tier == OFL_TIER_FILE || (tier == OFL_TIER_PINNED && bytes >= OFL_IN_PLACE_BYTES));
}

/* Does the engine keep a streamed slice with its neighbours? */
static inline bool ofl_is_packed(ofl_tier tier, bool callers, uint64_t bytes)
{
    return tier != OFL_TIER_FILE && !ofl_is_in_place(tier, callers, bytes);
}

/* A run within a piece, while slices are gone through in the piece's order. */
typedef struct ofl_copy_run {
    uint64_t offset, bytes;
    bool packed;
} ofl_copy_run;

/* Does the slice lengthen the run? If so the run does. NULL: there is none yet. */
static inline bool ofl_copy_run_takes(ofl_copy_run *last, const ofl_copy_run *slice)
{
    if (last == NULL || !last->packed || !slice->packed || slice->offset <= last->offset) return false;
    last->bytes = slice->offset - last->offset + slice->bytes;
    return true;
}

/* Copies of at most so many bytes. */
static inline uint64_t ofl_copy_count(uint64_t bytes, uint64_t most) { return bytes / most + (bytes % most != 0); }

#endif
