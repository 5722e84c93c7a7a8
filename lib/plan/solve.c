/* Chooses the number of sequences by formula and, of the part sizes and placements that the room allows, the one with the shortest step by
 * the timeline. */
#include "plan/plan_state.h"

#include <math.h>

#define RATE_TOLERANCE 0.001 /* fewer sequences within this of the best are taken */
#define SMALLER_COST 0.002   /* a part of half the size must be better by this: more units, more calls for the loop */
#define BOUND_TOLERANCE 0.002
#define UNITS_QUICK 4096u
#define WHOLE_ROUNDS 6

#define ROOMY_SHARE 64u /* a model this many times a part is cut fine enough */

/* Does it fit, and if `roomy`, with a ring for parts that are no smaller than they are made by choice? Below that each unit costs more in calls and
 * waking than its copy takes. */
static bool fits(const ofl_plan_search *s, uint32_t sequences, bool roomy)
{
    ofl_plan_room room;
    if (!ofl_plan_room_of(s, sequences, &room)) return false;
    return !roomy || room.whole || s->wish->force_layers || s->wish->cut != OFL_CUT_AUTO ||
           room.part >= ofl_min_u64(OFL_PART_FINE, s->movable_bytes / ROOMY_SHARE);
}

static uint32_t largest(const ofl_plan_search *s, bool roomy)
{
    uint32_t low = 0, high = OFL_SEQUENCES_MOST;
    if (s->wish->cap != 0 && s->wish->cap < high) high = s->wish->cap;
    while (low < high) {
        uint32_t middle = low + (high - low + 1) / 2;
        if (fits(s, middle, roomy)) low = middle;
        else high = middle - 1;
    }
    return low;
}

static uint32_t largest_fit(const ofl_plan_search *s) { return largest(s, false); }

/* The most that are taken by choice. */
static uint32_t largest_choice(const ofl_plan_search *s)
{
    uint32_t roomy = largest(s, true);
    return roomy != 0 ? roomy : largest_fit(s);
}

static double coarse_rate(const ofl_plan_search *s, uint32_t sequences) { return sequences / ofl_plan_coarse_step(s, sequences); }

/* The best count on a growing grid, then between its neighbours; of what follows, the smallest count that is as good within the tolerance.
 */
static uint32_t best_sequences(const ofl_plan_search *s, uint32_t most)
{
    uint32_t best = 1;
    double rate = coarse_rate(s, 1);
    for (uint32_t n = 2; n < most; n += n / 4 ? n / 4 : 1) {
        double r = coarse_rate(s, n);
        if (r > rate) rate = r, best = n;
    }
    if (coarse_rate(s, most) > rate) rate = coarse_rate(s, most), best = most;
    for (uint32_t step = best / 4; step > 0; step /= 2) {
        uint32_t below = best > step ? best - step : 1, above = most - best > step ? best + step : most;
        double low = coarse_rate(s, below), high = coarse_rate(s, above);
        if (low > rate && low >= high) rate = low, best = below;
        else if (high > rate) rate = high, best = above;
    }
    uint32_t low = 1, high = best;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (coarse_rate(s, middle) >= rate * (1 - RATE_TOLERANCE)) high = middle;
        else low = middle + 1;
    }
    return high;
}

/* Why it does not fit: the step with the least that must be on the device beside it. */
static ofl_status too_big(const ofl_plan_search *s, uint32_t sequences)
{
    ofl_plan_settings settings = s->settings;
    ofl_budget b = {.vram_bytes = (uint64_t)s->facts->figures[OFL_FIGURE_VRAM]};
    uint32_t fits = largest_fit(s);
    if (fits == 0) sequences = 1;
    settings.sequences = sequences;
    settings.tokens_per_step_cap = s->wish->cap != 0 ? s->wish->cap : sequences + ofl_plan_least_chunk(s, sequences);
    ofl_status status = ofl_plan_account(s->facts, &settings, s->workspace_elements, &b);
    if (status != OFL_OK) return status;
    uint64_t weights = s->wish->force_layers ? s->forced.needed : s->small_bytes + ofl_max_u64(s->least_ring, s->wish->ring_bytes), needed;
    unsigned long long context = settings.context_tokens;
    if (!ofl_add_u64(b.total_bytes, weights, &needed)) needed = UINT64_MAX;
    if (fits >= sequences)
        return ofl_fail_room(OFL_ERROR_NO_FIT, needed, b.vram_bytes,
                             "plan: %u sequences of %llu tokens: the rest of %s cannot be divided between weights and a ring that holds their pieces; "
                             "give more memory or let matrices be cut",
                             sequences, context, ofl_bytes_text(b.vram_bytes).text);
    if (fits > 0)
        return ofl_fail_room(OFL_ERROR_NO_FIT, needed, b.vram_bytes,
                             "plan: %u sequences of %llu tokens need %s of device memory with the least of weights, %s may be used; at most %u sequences fit",
                             sequences, context, ofl_bytes_text(needed).text, ofl_bytes_text(b.vram_bytes).text, fits);
    return ofl_fail_room(OFL_ERROR_NO_FIT, needed, b.vram_bytes,
                         "plan: not even one sequence of %llu tokens fits: KV %s, activations %s, runtime %s, headroom %s and %s of %s are more than the %s "
                         "that may be used; give more memory, a shorter context%s",
                         context, ofl_bytes_text(b.kv_bytes).text, ofl_bytes_text(b.activation_bytes).text, ofl_bytes_text(b.runtime_bytes).text,
                         ofl_bytes_text(b.headroom_bytes).text,
                         s->wish->force_layers ? "the resident layers with two slots" : "small tensors with the least ring", ofl_bytes_text(weights).text,
                         ofl_bytes_text(b.vram_bytes).text,
                         s->wish->force_layers          ? " or fewer resident layers"
                         : s->wish->cut == OFL_CUT_AUTO ? ""
                                                        : " or smaller parts");
}

static ofl_status choose_sequences(const ofl_plan_search *s, uint32_t *out)
{
    ofl_plan_room room;
    uint32_t asked = s->wish->sequences, least = asked != 0 ? asked : 1;
    if (!ofl_plan_room_of(s, least, &room)) return too_big(s, least);
    *out = least;
    if (asked != 0 || s->settings.objective == OFL_LATENCY) return OFL_OK;
    uint64_t most = largest_choice(s);
    if (s->settings.queue_length != 0) most = ofl_min_u64(most, s->settings.queue_length);
    *out = best_sequences(s, (uint32_t)most);
    return OFL_OK;
}

/* What a draft is made of; the draft itself is made again when it is wanted. */
typedef struct choice {
    uint64_t part, ring, resident;
    ofl_plan_keep keep;
    double cost, step_seconds; /* INFINITY: none yet */
    bool compute_bound, at_bound;
} choice;

static ofl_status try_one(const ofl_plan_search *s, ofl_plan_draft *draft, choice *best)
{
    ofl_status status = ofl_plan_draft_make(s->facts, s->wish, draft);
    if (status != OFL_OK) return status < 0 ? status : OFL_OK;
    const ofl_step_estimate *step = &draft->step;
    double halvings = draft->cut.part_bytes != 0 ? log2((double)OFL_PART_LARGEST / (double)draft->cut.part_bytes) : 0;
    double cost = step->step_seconds * (1 + SMALLER_COST * fmax(0, halvings));
    if (cost >= best->cost) return OFL_OK;
    *best = (choice){draft->cut.part_bytes, draft->ring_bytes, draft->resident_bytes, draft->keep, cost, step->step_seconds, false, false};
    best->compute_bound = step->compute_seconds >= step->link_seconds;
    best->at_bound = step->step_seconds <= step->bound_seconds * (1 + BOUND_TOLERANCE);
    return OFL_OK;
}

static ofl_status prepare(const ofl_plan_search *s, const ofl_plan_settings *settings, uint64_t part)
{
    ofl_plan_draft *draft = s->scratch;
    draft->settings = *settings;
    if (draft->cut.units != NULL && draft->cut.part_bytes == part) return OFL_OK;
    ofl_plan_cut_clear(&draft->cut);
    return ofl_plan_cut_make(s->facts, part, settings->compute_type, &draft->cut);
}

static ofl_status try_part(const ofl_plan_search *s, const ofl_plan_room *room, uint64_t part, bool quick, choice *best)
{
    ofl_plan_draft *draft = s->scratch;
    ofl_status status = prepare(s, &room->settings, part);
    draft->ring_bytes = room->ring;
    draft->resident_bytes = room->resident;
    draft->keep = OFL_KEEP_NONE;
    if (status == OFL_OK) status = try_one(s, draft, best);
    if (status == OFL_ERROR_NO_FIT && s->tied) { /* streamed, its rows must be pinned; resident, they need no host memory */
        draft->keep = OFL_KEEP_HEAD;
        ofl_status kept = try_one(s, draft, best);
        return kept == OFL_OK && best->cost == INFINITY ? status : kept;
    }
    if (status == OFL_OK && !room->whole && !quick && !best->at_bound) {
        draft->keep = OFL_KEEP_ODD;
        status = try_one(s, draft, best);
    }
    return status;
}

/* Whole blocks: the ring follows the largest piece, which follows what the ring leaves for residents; from the safe side, as long as it
 * shrinks. */
static ofl_status shrink_ring(const ofl_plan_search *s, const ofl_plan_room *room, ofl_plan_draft *draft, choice *best)
{
    uint64_t most = draft->keep == OFL_KEEP_HEAD ? draft->cut.largest_block_unit : draft->cut.largest_unit;
    draft->ring_bytes = s->wish->ring_bytes != 0 ? room->ring
                                                 : ofl_min_u64(2 * most, room->weights / OFL_ALIGNMENT_BYTES * OFL_ALIGNMENT_BYTES);
    for (int round = 0; round < WHOLE_ROUNDS; round++) {
        draft->resident_bytes = room->weights - draft->ring_bytes;
        ofl_status status = try_one(s, draft, best);
        uint64_t wanted = 2 * ofl_plan_largest_piece(&draft->cut);
        if (status != OFL_OK || s->wish->ring_bytes != 0 || wanted >= draft->ring_bytes) return status;
        draft->ring_bytes = wanted;
    }
    return OFL_OK;
}

static ofl_status try_whole_blocks(const ofl_plan_search *s, const ofl_plan_room *room, choice *best)
{
    ofl_plan_draft *draft = s->scratch;
    ofl_status status = prepare(s, &room->settings, 0);
    draft->keep = OFL_KEEP_HEAD;
    if (status == OFL_OK) status = shrink_ring(s, room, draft, best);
    draft->keep = OFL_KEEP_NONE;
    return status == OFL_OK ? shrink_ring(s, room, draft, best) : status;
}

/* … 8, 12, 16, 24, 32 … MiB */
static uint64_t next_larger(uint64_t part) { return part % 3 == 0 ? part / 3 * 4 : part / 2 * 3; }
static uint64_t next_smaller(uint64_t part) { return part % 3 == 0 ? part / 3 * 2 : part / 4 * 3; }

/* Where the link waits, smaller parts pass through the same ring more evenly; where it never does, larger ones need fewer copies, if the
 * ring then still does. */
static ofl_status try_other_parts(const ofl_plan_search *s, const ofl_plan_room *room, choice *best)
{
    ofl_status status = OFL_OK;
    uint64_t least = ofl_max_u64(ofl_max_u64(s->smallest_part, room->part / 2), ofl_min_u64(room->part, OFL_PART_FINE));
    if (best->at_bound && best->compute_bound) return OFL_OK;
    if (best->at_bound) {
        for (uint64_t part = next_larger(room->part); status == OFL_OK && part <= room->ring / 2 && part <= s->largest_part;
             part = next_larger(part))
            status = try_part(s, room, part, false, best);
        return status;
    }
    for (uint64_t part = next_smaller(room->part); status == OFL_OK && part >= least;
         part = next_smaller(part))
        status = try_part(s, room, part, false, best);
    return status;
}

/* OFL_NOT_READY: nothing fits. */
static ofl_status choose(const ofl_plan_search *s, const ofl_plan_room *room, bool quick, choice *out)
{
    choice best = {.cost = INFINITY};
    ofl_status status;
    if (s->wish->cut == OFL_CUT_OFF && !s->wish->force_layers && !room->whole) {
        status = try_whole_blocks(s, room, &best);
    } else {
        bool fixed = quick || room->whole || s->wish->cut != OFL_CUT_AUTO ||
                     s->facts->dense_bytes / ofl_max_u64(1, room->part) > UNITS_QUICK;
        status = try_part(s, room, room->part, quick, &best);
        if (status == OFL_OK && !fixed) status = try_other_parts(s, room, &best);
    }
    *out = best;
    return status == OFL_OK && best.cost == INFINITY ? OFL_NOT_READY : status;
}

static ofl_status make_chosen(const ofl_plan_search *s, const ofl_plan_settings *settings, const choice *chosen, ofl_plan_draft *out)
{
    ofl_status status = prepare(s, settings, chosen->part);
    s->scratch->ring_bytes = chosen->ring;
    s->scratch->resident_bytes = chosen->resident;
    s->scratch->keep = chosen->keep;
    if (status == OFL_OK) status = ofl_plan_draft_make(s->facts, s->wish, s->scratch);
    if (status != OFL_OK) return status;
    *out = *s->scratch;
    *s->scratch = (ofl_plan_draft){0};
    return OFL_OK;
}

ofl_status ofl_plan_solve(const ofl_plan_search *s, ofl_plan_draft *out)
{
    uint32_t sequences = 1;
    ofl_plan_room room = {0};
    choice chosen;
    ofl_status status = choose_sequences(s, &sequences);
    if (status == OFL_OK && !ofl_plan_room_of(s, sequences, &room)) status = OFL_NOT_READY;
    if (status == OFL_OK) status = choose(s, &room, false, &chosen);
    if (status == OFL_OK && s->wish->ring_bytes != 0 && room.whole)
        return ofl_fail(OFL_ERROR_ARGUMENT, "plan: ring size: it has no effect, since the whole model fits; leave it out");
    if (status == OFL_OK) status = make_chosen(s, &room.settings, &chosen, out);
    return status == OFL_NOT_READY ? too_big(s, sequences) : status;
}

/* The step alone, without trying all there is. */
static ofl_status solve_step(const ofl_plan_search *s, uint32_t sequences, choice *out)
{
    ofl_plan_room room;
    return ofl_plan_room_of(s, sequences, &room) ? choose(s, &room, true, out) : OFL_NOT_READY;
}

/* 1, 2, 4, … up to what fits or just past the knee, each planned anew; the planned count is among them with the forecast's own figures. */
ofl_status ofl_plan_solve_rows(const ofl_plan_search *s, ofl_plan *plan)
{
    ofl_status status = OFL_OK;
    uint64_t planned = plan->forecast.sequences, most = ofl_max_u64(largest_fit(s), planned);
    if (plan->draft.settings.queue_length != 0) most = ofl_max_u64(planned, ofl_min_u64(most, plan->draft.settings.queue_length));
    for (uint64_t n = 1, last = 0; last < most && plan->row_count < OFL_PLAN_ROWS; last = n, n = ofl_min_u64(n * 2, most)) {
        if (last < planned && planned < n) n = planned;
        choice row = {.step_seconds = plan->draft.step.step_seconds, .compute_bound = !plan->forecast.link_bound};
        if (n != planned) status = solve_step(s, (uint32_t)n, &row);
        if (status == OFL_NOT_READY || status == OFL_ERROR_NO_FIT) return OFL_OK; /* nor do more */
        if (status != OFL_OK) return status;
        plan->rows[plan->row_count++] = (ofl_forecast_row){sizeof(ofl_forecast_row), (uint32_t)n, row.step_seconds, (double)n / row.step_seconds};
        if (n >= planned && row.compute_bound) break;
    }
    return OFL_OK;
}

/* What the throughput objective plans for the same job; a rate of 0: nothing. */
ofl_status ofl_plan_solve_throughput(const ofl_plan_search *s, uint32_t *sequences_out, double *rate_out)
{
    ofl_plan_room room;
    choice chosen = {.step_seconds = INFINITY};
    uint32_t sequences = best_sequences(s, largest_choice(s));
    ofl_status status = ofl_plan_room_of(s, sequences, &room) ? choose(s, &room, false, &chosen) : OFL_NOT_READY;
    if (status != OFL_OK && status != OFL_NOT_READY && status != OFL_ERROR_NO_FIT) return status;
    *sequences_out = sequences;
    *rate_out = status == OFL_OK ? sequences / chosen.step_seconds : 0;
    return OFL_OK;
}
