/* Few slices: every placement is looked at, and the one with the shortest step by the timeline is taken; among equals the one with the most
 * residents. Some more: what the even spread gave is improved by exchanges. */
#include "plan/plan_state.h"

#include <math.h>

#define EXACT_SLICES 12u
#define SOME_SLICES 32u
#define LAYOUTS_MOST 2048u /* then what is found has to do */
#define ALIKE 1e-9 /* of a step: rounding */

typedef struct exact {
    const ofl_plan_facts *facts;
    ofl_plan_draft *draft;
    uint32_t slices[SOME_SLICES], count; /* movable */
    double rate;                          /* of the link */
    double compute, step;                 /* the best so far; INFINITY: none */
    uint64_t resident;
    uint32_t layouts;                     /* made so far */
    uint32_t mask;                        /* bit i: slices[i] stays */
    ofl_status refused;                   /* why none is there */
} exact;

bool ofl_plan_is_small(const ofl_plan_facts *facts, const ofl_plan_cut *cut)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < cut->unit_slice_count && count <= SOME_SLICES; i++) count += !facts->tensors[cut->slices[i].tensor].small;
    return count <= SOME_SLICES;
}

static void open_exact(exact *e)
{
    const ofl_plan_cut *cut = &e->draft->cut;
    for (uint32_t i = 0; i < cut->unit_slice_count; i++) {
        if (!e->facts->tensors[cut->slices[i].tensor].small) e->slices[e->count++] = i;
    }
    e->rate = ofl_plan_link_rate(e->facts);
    for (uint64_t i = 0; i < cut->unit_count; i++) e->compute += cut->units[i].compute_seconds + e->facts->unit_seconds;
    e->compute += ofl_plan_host_seconds(e->facts, e->draft->shape.logits_rows);
}

static uint32_t mask_now(const exact *e)
{
    uint32_t mask = 0;
    for (uint32_t i = 0; i < e->count; i++) mask |= (uint32_t)(e->draft->cut.slices[e->slices[i]].tier == OFL_TIER_DEVICE) << i;
    return mask;
}

/* By what must be copied at least, before anything is laid out. */
static bool may_be_better(const exact *e, uint32_t mask)
{
    uint64_t streamed = 0, resident = 0;
    for (uint32_t i = 0; i < e->count; i++) {
        uint64_t bytes = e->draft->cut.slices[e->slices[i]].bytes;
        if (mask >> i & 1) resident += ofl_plan_align(bytes);
        else streamed += bytes;
    }
    double least = ofl_larger((double)streamed / e->rate, e->compute);
    return least < e->step * (1 - ALIKE) || (least <= e->step * (1 + ALIKE) && resident > e->resident);
}

static ofl_status make_mask(const exact *e, uint32_t mask)
{
    ofl_plan_draft *draft = e->draft;
    for (uint32_t i = 0; i < draft->cut.unit_slice_count; i++) draft->cut.slices[i].tier = OFL_TIER_DEVICE;
    for (uint32_t i = 0; i < e->count; i++) draft->cut.slices[e->slices[i]].tier = mask >> i & 1 ? OFL_TIER_DEVICE : OFL_TIER_PINNED;
    ofl_plan_cut_layout(&draft->cut);
    return ofl_plan_draft_measure(e->facts, draft);
}

/* That it does not fit is no failure here. */
static ofl_status try_mask(exact *e, uint32_t mask)
{
    bool worth = may_be_better(e, mask);
    ofl_status status = worth ? make_mask(e, mask) : OFL_NOT_READY;
    e->layouts += worth;
    if (status == OFL_ERROR_NO_FIT) e->refused = status;
    if (status == OFL_ERROR_NO_FIT || status == OFL_NOT_READY) return OFL_OK;
    if (status != OFL_OK) return status;
    uint64_t resident = e->draft->budget.resident_bytes;
    double step = e->draft->step.step_seconds;
    if (step > e->step * (1 + ALIKE) || (step >= e->step * (1 - ALIKE) && resident <= e->resident)) return OFL_OK;
    e->step = step;
    e->resident = resident;
    e->mask = mask;
    return OFL_OK;
}

static ofl_status try_all(exact *e)
{
    ofl_status status = OFL_OK;
    for (uint32_t mask = 0; mask < 1u << e->count && status == OFL_OK; mask++) status = try_mask(e, mask);
    return status;
}

static bool are_exchangeable(const exact *e, uint32_t i, uint32_t j)
{
    const ofl_slice *slices = e->draft->cut.slices;
    return ((e->mask >> i ^ e->mask >> j) & 1) != 0 &&
           ofl_plan_align(slices[e->slices[i]].bytes) == ofl_plan_align(slices[e->slices[j]].bytes);
}

/* Slices of one size change places as long as that helps; what stays remains as much. */
static ofl_status try_exchanges(exact *e)
{
    ofl_status status = OFL_OK;
    for (uint32_t i = 0, quiet = 0; quiet < e->count && e->layouts < LAYOUTS_MOST && status == OFL_OK; i = (i + 1) % e->count, quiet++) {
        uint32_t before = e->mask;
        for (uint32_t j = i + 1; j < e->count && status == OFL_OK; j++) {
            if (are_exchangeable(e, i, j)) status = try_mask(e, e->mask ^ (1u << i | 1u << j));
        }
        if (e->mask != before) quiet = 0;
    }
    return status;
}

ofl_status ofl_plan_place_exactly(const ofl_plan_facts *facts, ofl_plan_draft *draft)
{
    exact e = {.facts = facts, .draft = draft, .step = INFINITY, .refused = OFL_NOT_READY};
    open_exact(&e);
    ofl_status status = try_mask(&e, mask_now(&e)); /* a good one first: most of the others then need no layout */
    if (status == OFL_OK) status = e.count <= EXACT_SLICES ? try_all(&e) : try_exchanges(&e);
    if (status != OFL_OK) return status;
    return e.step < INFINITY ? make_mask(&e, e.mask) : e.refused;
}
