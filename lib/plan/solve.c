/* Chooses the number of sequences, first by formula, then by the timeline, and, of the part sizes and placements that the room allows, the
 * one with the shortest step by the timeline. */
#include "plan/plan_state.h"

#include <math.h>

#define RATE_TOLERANCE 0.001 /* fewer sequences within this of the best are taken */
#define SMALLER_COST 0.002   /* a part of half the size must be better by this: more units, more calls for the loop */
#define UNUSED_COST 0.005    /* and one that keeps less than was asked for, too: less memory might then keep more */
#define BOUND_TOLERANCE 0.002
#define UNITS_QUICK 4096u
#define WHOLE_ROUNDS 6
#define WHOLE_ROUNDS_QUICK 2u /* of models with many slices, for what is only compared */
#define MANY_SLICES 16384u

#define RING_TOLERANCE 0.01  /* further above max(link, compute): a larger ring is tried, … */
#define RING_GAIN 0.005      /* … which must be better by this than what it takes from the residents */
#define RING_TRIES 10u
#define RING_TRIES_LARGE 2u   /* of models with many units */
#define RING_MISSES 3u       /* larger ones in a row that gain nothing */
#define COUNT_TRIES 24u      /* counts of sequences that are planned and played through, … */
#define COUNT_TRIES_LARGE 3u

#define ROOMY_SHARE 64u /* a model this many times a part is cut fine enough */

/* Does it fit, and if `roomy`, with a ring for parts that are no smaller than they are made by choice? Below that each unit costs more in
 * calls and waking than its copy takes. */
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

/* The best count on a growing grid, then between its neighbours; of what follows, the smallest count that is as good within
 * the tolerance. */
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
                             "plan: %u sequences of %llu tokens: the rest of %s cannot be divided between weights and a ring that holds "
                             "their pieces; give more memory or let matrices be cut",
                             sequences, context, ofl_bytes_text(b.vram_bytes).text);
    if (fits > 0)
        return ofl_fail_room(OFL_ERROR_NO_FIT, needed, b.vram_bytes,
                             "plan: %u sequences of %llu tokens need %s of device memory with the least of weights, %s may be used; "
                             "at most %u sequences fit",
                             sequences, context, ofl_bytes_text(needed).text, ofl_bytes_text(b.vram_bytes).text, fits);
    return ofl_fail_room(OFL_ERROR_NO_FIT, needed, b.vram_bytes,
                         "plan: not even one sequence of %llu tokens fits: KV %s, activations %s, runtime %s, headroom %s and %s of %s "
                         "are more than the %s that may be used; give more memory, a shorter context%s",
                         context, ofl_bytes_text(b.kv_bytes).text, ofl_bytes_text(b.activation_bytes).text,
                         ofl_bytes_text(b.runtime_bytes).text, ofl_bytes_text(b.headroom_bytes).text,
                         s->wish->force_layers ? "the resident layers with two slots" : "small tensors with the least ring",
                         ofl_bytes_text(weights).text, ofl_bytes_text(b.vram_bytes).text,
                         s->wish->force_layers          ? " or fewer resident layers"
                         : s->wish->cut == OFL_CUT_AUTO ? ""
                                                        : " or smaller parts");
}

/* What a draft is made of; the draft itself is made again when it is wanted. */
typedef struct choice {
    uint64_t part, ring, resident;
    ofl_plan_keep keep;
    double cost, step_seconds, bound_seconds; /* INFINITY: none yet */
    bool compute_bound, at_bound;
} choice;

static ofl_status try_one(const ofl_plan_search *s, ofl_plan_draft *draft, choice *best)
{
    ofl_status status = ofl_plan_draft_make(s->facts, s->wish, draft);
    if (status != OFL_OK) return status < 0 ? status : OFL_OK;
    const ofl_step_estimate *step = &draft->step;
    double halvings = draft->cut.part_bytes != 0 ? log2((double)OFL_PART_LARGEST / (double)draft->cut.part_bytes) : 0;
    double cost = step->step_seconds * (1 + SMALLER_COST * fmax(0, halvings));
    uint64_t kept = draft->budget.resident_bytes + s->quantum, asked = draft->resident_bytes + s->small_bytes;
    if (kept < asked) cost *= 1 + UNUSED_COST;
    if (cost >= best->cost) return OFL_OK;
    *best = (choice){draft->cut.part_bytes, draft->ring_bytes, draft->resident_bytes, draft->keep, cost,
                     step->step_seconds, step->bound_seconds, false, false};
    best->compute_bound = step->compute_seconds >= step->link_seconds;
    best->at_bound = kept >= asked && step->step_seconds <= step->bound_seconds * (1 + BOUND_TOLERANCE);
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
static ofl_status shrink_ring(const ofl_plan_search *s, const ofl_plan_room *room, ofl_plan_draft *draft, uint32_t rounds,
                              choice *best)
{
    uint64_t most = draft->keep == OFL_KEEP_HEAD ? draft->cut.largest_block_unit : draft->cut.largest_unit;
    draft->ring_bytes = s->wish->ring_bytes != 0 ? room->ring
                                                 : ofl_min_u64(2 * most, room->weights / OFL_ALIGNMENT_BYTES * OFL_ALIGNMENT_BYTES);
    for (uint32_t round = 0; round < rounds; round++) {
        draft->resident_bytes = room->weights - draft->ring_bytes;
        ofl_status status = try_one(s, draft, best);
        uint64_t wanted = 2 * ofl_plan_largest_piece(&draft->cut);
        if (status != OFL_OK || s->wish->ring_bytes != 0 || wanted >= draft->ring_bytes) return status;
        draft->ring_bytes = wanted;
    }
    return OFL_OK;
}

static ofl_status try_whole_blocks(const ofl_plan_search *s, const ofl_plan_room *room, bool quick, choice *best)
{
    ofl_plan_draft *draft = s->scratch;
    ofl_status status = prepare(s, &room->settings, 0);
    bool few = quick && draft->cut.unit_slice_count > MANY_SLICES;
    uint32_t rounds = few ? WHOLE_ROUNDS_QUICK : WHOLE_ROUNDS;
    draft->keep = OFL_KEEP_HEAD;
    if (status == OFL_OK) status = shrink_ring(s, room, draft, rounds, best);
    if (status != OFL_OK || (few && best->cost < INFINITY)) return status;
    draft->keep = OFL_KEEP_NONE;
    return shrink_ring(s, room, draft, rounds, best);
}

/* Where the link waits, smaller parts pass through the same ring more evenly; where it never does, larger ones need fewer copies, if the
 * ring then still does. */
static ofl_status try_other_parts(const ofl_plan_search *s, const ofl_plan_room *room, choice *best)
{
    ofl_status status = OFL_OK;
    uint64_t least = ofl_max_u64(ofl_max_u64(s->smallest_part, room->part / 2), ofl_min_u64(room->part, OFL_PART_FINE));
    if (best->at_bound && best->compute_bound) return OFL_OK;
    if (best->at_bound) {
        for (uint64_t part = ofl_plan_larger_part(s, room->part); status == OFL_OK && part != 0 && part <= room->ring / 2;
             part = ofl_plan_larger_part(s, part))
            status = try_part(s, room, part, false, best);
        return status;
    }
    for (uint64_t part = ofl_plan_smaller_part(s, room->part); status == OFL_OK && part != 0 && part >= least;
         part = ofl_plan_smaller_part(s, part))
        status = try_part(s, room, part, false, best);
    return status;
}

/* Where the step is still far above the bound, copies and compute differ over a long stretch (an output stored in another type than the
 * blocks, attention over a long context): a ring that holds more of them is worth more than as many residents. */
static ofl_status try_larger_rings(const ofl_plan_search *s, const ofl_plan_room *room, uint32_t tries, choice *best)
{
    ofl_status status = OFL_OK;
    ofl_plan_room larger = *room;
    choice found = *best;
    if (best->cost == INFINITY || best->step_seconds <= best->bound_seconds * (1 + RING_TOLERANCE)) return OFL_OK;
    found.cost *= 1 - RING_GAIN;
    for (uint32_t i = 0, misses = 0; i < tries && misses < RING_MISSES && status == OFL_OK && !found.at_bound; i++) {
        double before = found.cost;
        larger.ring = larger.ring / 2 * 3 / OFL_ALIGNMENT_BYTES * OFL_ALIGNMENT_BYTES;
        if (larger.ring >= room->weights || larger.ring < room->ring) break;
        larger.resident = room->weights - larger.ring;
        status = try_part(s, &larger, best->part, true, &found);
        if (status == OFL_ERROR_NO_FIT || status == OFL_NOT_READY) return OFL_OK;
        misses = found.cost < before ? 0 : misses + 1;
    }
    if (found.ring != best->ring) *best = found;
    return status;
}

static bool has_many_units(const ofl_plan_search *s, const ofl_plan_room *room)
{
    return s->facts->dense_bytes / ofl_max_u64(1, room->part) > UNITS_QUICK;
}

/* quick: without trying other parts. rings: the ring may be chosen by the timeline, where the count is too; for a count that is given it
 * is by formula, so that more memory never keeps less. */
typedef struct effort { bool quick, rings; } effort;

/* OFL_NOT_READY: nothing fits. */
static ofl_status choose(const ofl_plan_search *s, const ofl_plan_room *room, effort how, choice *out)
{
    choice best = {.cost = INFINITY};
    ofl_status status;
    if (s->wish->cut == OFL_CUT_OFF && !s->wish->force_layers && !room->whole) {
        status = try_whole_blocks(s, room, how.quick, &best);
    } else {
        bool fixed = how.quick || room->whole || s->wish->cut != OFL_CUT_AUTO || has_many_units(s, room);
        status = try_part(s, room, room->part, how.quick, &best);
        if (status == OFL_OK && !fixed) status = try_other_parts(s, room, &best);
        bool free_ring = how.rings && !room->whole && !s->wish->force_layers && s->wish->ring_bytes == 0;
        uint32_t tries = has_many_units(s, room) ? RING_TRIES_LARGE : RING_TRIES;
        if (status == OFL_OK && free_ring) status = try_larger_rings(s, room, tries, &best);
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

/* A count of sequences with its plan. */
typedef struct count_choice {
    uint32_t sequences;
    ofl_plan_room room;
    choice chosen;
    double rate; /* 0: does not fit */
} count_choice;

static ofl_status try_count(const ofl_plan_search *s, uint32_t sequences, effort how, count_choice *out)
{
    *out = (count_choice){.sequences = sequences};
    ofl_status status = ofl_plan_room_of(s, sequences, &out->room) ? choose(s, &out->room, how, &out->chosen) : OFL_NOT_READY;
    if (status == OFL_OK) out->rate = sequences / out->chosen.step_seconds;
    return status == OFL_NOT_READY ? OFL_OK : status;
}

/* More by the timeline; of those as good, fewer. */
static bool is_better(const count_choice *a, const count_choice *b)
{
    double least = b->rate * (a->sequences < b->sequences ? 1 - RATE_TOLERANCE / 2 : 1 + RATE_TOLERANCE / 2);
    return a->rate > 0 && a->rate >= least;
}

/* The farthest count in this direction whose coarse rate, which no timeline surpasses, is still above the best. */
static uint32_t farthest(const ofl_plan_search *s, uint32_t from, uint32_t end, double rate)
{
    while (from != end) {
        uint32_t middle = from < end ? from + (end - from + 1) / 2 : from - (from - end + 1) / 2;
        if (coarse_rate(s, middle) > rate * (1 + RATE_TOLERANCE)) from = middle;
        else end = from < end ? middle - 1 : middle + 1;
    }
    return from;
}

typedef struct counting {
    const ofl_plan_search *search;
    count_choice best;
    uint32_t tries;
    bool large; /* many units: quick tries only */
} counting;

static ofl_status try_another(counting *c, uint32_t sequences)
{
    count_choice other;
    if (sequences == c->best.sequences || c->tries == 0) return OFL_OK;
    c->tries--;
    ofl_status status = try_count(c->search, sequences, (effort){.quick = c->large, .rings = true}, &other);
    if (status == OFL_ERROR_NO_FIT) return OFL_OK;
    if (status == OFL_OK && is_better(&other, &c->best)) c->best = other;
    return status;
}

/* Near the knee the formula says nothing of what the ring cannot even out: counts around its choice are planned and played through, evenly
 * over the range where they may be better, then between the neighbours of the best. */
static ofl_status improve_count(counting *c, uint32_t most)
{
    uint32_t first = c->best.sequences, low = farthest(c->search, first, 1, c->best.rate);
    uint32_t high = farthest(c->search, first, most, c->best.rate);
    uint32_t range = high - low, grid = range < c->tries / 2 ? range : c->tries / 2 + 1;
    ofl_status status = OFL_OK;
    for (uint64_t i = 0; grid > 0 && i <= grid && status == OFL_OK; i++) status = try_another(c, low + (uint32_t)(i * range / grid));
    for (uint32_t step = grid > 0 ? range / grid / 2 : 0; step > 0 && c->tries > 0 && status == OFL_OK; step /= 2) {
        uint32_t middle = c->best.sequences;
        if (middle - low >= step) status = try_another(c, middle - step);
        if (status == OFL_OK && high - middle >= step) status = try_another(c, middle + step);
    }
    return status;
}

/* Placing costs what its slices cost, playing through what its units cost. */
static bool is_large(const ofl_plan_search *s, const ofl_plan_room *room)
{
    return has_many_units(s, room) || s->scratch->cut.unit_slice_count > MANY_SLICES;
}

static ofl_status choose_throughput(const ofl_plan_search *s, uint64_t queue_length, count_choice *out)
{
    uint64_t most = largest_choice(s);
    if (queue_length != 0) most = ofl_min_u64(most, queue_length);
    ofl_status status = try_count(s, best_sequences(s, (uint32_t)most), (effort){.rings = true}, out);
    if (status != OFL_OK || out->rate <= 0 || coarse_rate(s, out->sequences) <= out->rate * (1 + RATE_TOLERANCE)) return status;
    counting c = {.search = s, .best = *out, .large = is_large(s, &out->room)};
    c.tries = c.large ? COUNT_TRIES_LARGE : COUNT_TRIES;
    status = improve_count(&c, (uint32_t)most);
    *out = c.best;
    return status;
}

ofl_status ofl_plan_solve(const ofl_plan_search *s, ofl_plan_draft *out)
{
    uint32_t asked = s->wish->sequences, least = asked != 0 ? asked : 1;
    ofl_plan_room room;
    count_choice best;
    if (!ofl_plan_room_of(s, least, &room)) return too_big(s, least);
    bool fixed = asked != 0 || s->settings.objective == OFL_LATENCY;
    ofl_status status = fixed ? try_count(s, least, (effort){0}, &best) : choose_throughput(s, s->settings.queue_length, &best);
    if (status != OFL_OK) return status;
    if (best.rate <= 0) return too_big(s, best.sequences);
    if (s->wish->ring_bytes != 0 && best.room.whole)
        return ofl_fail(OFL_ERROR_ARGUMENT, "plan: ring size: it has no effect, since the whole model fits; leave it out");
    status = make_chosen(s, &best.room.settings, &best.chosen, out);
    return status == OFL_NOT_READY ? too_big(s, best.sequences) : status;
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
        if (n != planned) {
            count_choice other;
            status = try_count(s, (uint32_t)n, (effort){.quick = true}, &other);
            if (status == OFL_ERROR_NO_FIT || (status == OFL_OK && other.rate <= 0)) return OFL_OK; /* nor do more */
            if (status != OFL_OK) return status;
            row = other.chosen;
        }
        plan->rows[plan->row_count++] =
            (ofl_forecast_row){sizeof(ofl_forecast_row), (uint32_t)n, row.step_seconds, (double)n / row.step_seconds};
        if (n >= planned && row.compute_bound) break;
    }
    return OFL_OK;
}

/* What the throughput objective plans for the same job; a rate of 0: nothing. */
ofl_status ofl_plan_solve_throughput(const ofl_plan_search *s, uint32_t *sequences_out, double *rate_out)
{
    count_choice best = {0};
    ofl_status status = choose_throughput(s, 0, &best);
    if (status != OFL_OK && status != OFL_ERROR_NO_FIT) return status;
    *sequences_out = best.sequences;
    *rate_out = status == OFL_OK ? best.rate : 0;
    return OFL_OK;
}
