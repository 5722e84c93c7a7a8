/* Where streamed and looked-up bytes live on the host: pinned while there is room, then pageable, then in the model's file. One tier a
 * unit. */
#include "plan/plan_state.h"
#include "plan/ring.h"

#include <math.h>

static uint64_t limit_of(const ofl_plan_facts *facts, ofl_figure figure)
{
    return facts->sources[figure] == OFL_SOURCE_NONE ? UINT64_MAX : (uint64_t)facts->figures[figure];
}

static void set_tier(ofl_plan_cut *cut, const ofl_unit *unit, ofl_tier tier)
{
    for (uint32_t i = 0; i < unit->slice_count; i++) {
        ofl_slice *slice = &cut->slices[unit->slice_first + i];
        if (slice->tier != OFL_TIER_DEVICE) slice->tier = tier;
    }
}

ofl_tier ofl_plan_unit_tier(const ofl_plan_cut *cut, const ofl_unit *unit)
{
    for (uint32_t i = 0; i < unit->slice_count; i++) {
        ofl_tier tier = cut->slices[unit->slice_first + i].tier;
        if (tier != OFL_TIER_DEVICE) return tier;
    }
    return OFL_TIER_DEVICE;
}

static uint64_t tier_bytes(const ofl_plan_cut *cut, ofl_tier tier)
{
    uint64_t bytes = 0;
    for (uint64_t i = 0; i < cut->unit_count; i++) {
        if (cut->units[i].piece_bytes != 0 && ofl_plan_unit_tier(cut, &cut->units[i]) == tier) bytes += cut->units[i].piece_bytes;
    }
    return bytes;
}

/* Rows of such a unit are read by the device itself, so it has to be pinned. */
static bool is_gathered(const ofl_plan_facts *facts, const ofl_plan_cut *cut, const ofl_unit *unit)
{
    for (uint32_t i = 0; i < unit->slice_count; i++) {
        const ofl_slice *slice = &cut->slices[unit->slice_first + i];
        if (slice->tier != OFL_TIER_DEVICE && facts->tensors[slice->tensor].also_lookup) return true;
    }
    return false;
}

static bool may_leave(const ofl_plan_facts *facts, const ofl_plan_cut *cut, const ofl_unit *unit, ofl_tier from)
{
    return unit->piece_bytes != 0 && ofl_plan_unit_tier(cut, unit) == from && !is_gathered(facts, cut, unit);
}

/* Moves units of one tier to the next lower one until no more than `room` is left there, evenly over the execution order; what then still
 * is too much goes in that order. */
static void demote(const ofl_plan_facts *facts, ofl_plan_cut *cut, ofl_tier from, uint64_t room)
{
    uint64_t there = tier_bytes(cut, from), movable = 0;
    for (uint64_t i = 0; i < cut->unit_count; i++) movable += may_leave(facts, cut, &cut->units[i], from) ? cut->units[i].piece_bytes : 0;
    if (there <= room || movable == 0) return;
    double credit = 0, rate = (double)(there - room) / (double)movable, threshold = 0.5;
    for (int walk = 0; walk < 2 && there > room; walk++, threshold = -INFINITY) {
        for (uint64_t i = 0; i < cut->unit_count && there > room; i++) {
            const ofl_unit *unit = &cut->units[i];
            if (!may_leave(facts, cut, unit, from)) continue;
            credit += rate * (double)unit->piece_bytes;
            if (credit < threshold * (double)unit->piece_bytes) continue;
            credit -= (double)unit->piece_bytes;
            set_tier(cut, unit, (ofl_tier)(from + 1));
            there -= unit->piece_bytes;
        }
    }
}

static uint64_t less(uint64_t a, uint64_t b) { return a > b ? a - b : 0; }

static void count_tiers(const ofl_plan_cut *cut, ofl_budget *budget)
{
    uint64_t bytes[4] = {0};
    for (uint64_t i = 0; i < cut->slice_count; i++) bytes[cut->slices[i].tier] += cut->slices[i].bytes;
    budget->device_bytes = bytes[OFL_TIER_DEVICE];
    budget->pinned_bytes = bytes[OFL_TIER_PINNED];
    budget->pageable_bytes = bytes[OFL_TIER_PAGEABLE];
    budget->file_bytes = bytes[OFL_TIER_FILE];
}

/* What the engine's bounce buffers take of so much room, once not all of it can be pinned; none where that would be most of it. */
static uint64_t bounce_of(const ofl_plan_cut *cut, uint64_t room)
{
    uint64_t largest = 0;
    if (tier_bytes(cut, OFL_TIER_PINNED) <= room) return 0;
    for (uint64_t i = 0; i < cut->unit_count; i++) largest = ofl_max_u64(largest, cut->units[i].piece_bytes);
    return ofl_bounce_bytes(largest) <= room / 2 ? ofl_bounce_bytes(largest) : 0;
}

ofl_status ofl_plan_place_host(const ofl_plan_facts *facts, ofl_plan_cut *cut, ofl_budget *budget)
{
    uint64_t host = limit_of(facts, OFL_FIGURE_HOST), pinnable = ofl_min_u64(limit_of(facts, OFL_FIGURE_PINNABLE), host);
    uint64_t lookups = facts->lookup_bytes; /* they come first: the device reads their rows itself, from pinned memory */
    for (uint64_t i = cut->unit_slice_count; i < cut->slice_count; i++) cut->slices[i].tier = OFL_TIER_PINNED;
    uint64_t bounce = bounce_of(cut, less(pinnable, lookups));
    demote(facts, cut, OFL_TIER_PINNED, less(pinnable, lookups + bounce));
    uint64_t pinned = lookups + tier_bytes(cut, OFL_TIER_PINNED);
    if (pinned > pinnable)
        return ofl_fail_room(OFL_ERROR_NO_FIT, pinned, pinnable,
                             "plan: the embedding's rows are read from page-locked host memory: %s are needed, %s may be page-locked; "
                             "allow more",
                             ofl_bytes_text(pinned).text, ofl_bytes_text(pinnable).text);
    demote(facts, cut, OFL_TIER_PAGEABLE, less(host, pinned + bounce));
    count_tiers(cut, budget);
    if (budget->file_bytes != 0 && facts->sources[OFL_FIGURE_FILE] == OFL_SOURCE_NONE)
        return ofl_fail_room(OFL_ERROR_NO_FIT, budget->pinned_bytes + budget->pageable_bytes + budget->file_bytes, host,
                             "plan: %s of weights must live in host memory, %s may be used, and no rate for reading the rest from its file "
                             "is known; give more host memory or the file's rate",
                             ofl_bytes_text(budget->pinned_bytes + budget->pageable_bytes + budget->file_bytes).text,
                             ofl_bytes_text(host).text);
    return OFL_OK;
}

static double rate_or(const ofl_plan_facts *facts, ofl_figure figure, double other)
{
    return facts->sources[figure] == OFL_SOURCE_NONE ? other : facts->figures[figure];
}

/* The device computes while it streams: a rate that was measured so counts where it is lower, unless the user said what the link does. */
double ofl_plan_link_rate(const ofl_plan_facts *facts)
{
    double link = facts->figures[OFL_FIGURE_LINK];
    return facts->sources[OFL_FIGURE_LINK] == OFL_SOURCE_GIVEN ? link : fmin(link, rate_or(facts, OFL_FIGURE_LINK_COMPUTING, link));
}

double ofl_plan_fill_rate(const ofl_plan_facts *facts, ofl_tier tier)
{
    double pageable = rate_or(facts, OFL_FIGURE_LINK_PAGEABLE, facts->figures[OFL_FIGURE_LINK]);
    return tier == OFL_TIER_FILE ? rate_or(facts, OFL_FIGURE_FILE, pageable) : pageable;
}

double ofl_plan_pinnable(const ofl_plan_facts *facts)
{
    double most = fmin((double)limit_of(facts, OFL_FIGURE_PINNABLE), (double)limit_of(facts, OFL_FIGURE_HOST));
    return fmax(0, most - (double)facts->lookup_bytes);
}

double ofl_plan_link_seconds(const ofl_plan_facts *facts, double streamed, double starts)
{
    double pinned = fmin(streamed, ofl_plan_pinnable(facts));
    double pageable = fmin(streamed - pinned, fmax(0, (double)limit_of(facts, OFL_FIGURE_HOST) - (double)facts->lookup_bytes - pinned));
    double fill = pageable / ofl_plan_fill_rate(facts, OFL_TIER_PAGEABLE) +
                  (streamed - pinned - pageable) / ofl_plan_fill_rate(facts, OFL_TIER_FILE);
    return fmax(starts + streamed / ofl_plan_link_rate(facts), fill);
}

uint64_t ofl_plan_copy_bytes(const ofl_plan_draft *draft, ofl_tier tier)
{
    const ofl_plan_cut *cut = &draft->cut;
    uint64_t largest = 0;
    if (tier == OFL_TIER_PINNED) return draft->settings.copy_bytes;
    for (uint64_t i = 0; i < cut->unit_count; i++) {
        if (ofl_plan_unit_tier(cut, &cut->units[i]) > OFL_TIER_PINNED) largest = ofl_max_u64(largest, cut->units[i].piece_bytes);
    }
    return ofl_bounce_chunk(ofl_max_u64(largest, 1));
}
