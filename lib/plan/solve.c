/* Chooses sequences, prefill chunk, part and ring size: coarsely by formula, then the best few by the timeline. */
#include "plan/plan_state.h"

#include <math.h>

#define PARTS_MOST 16u
#define UNITS_MOST 4096u     /* smaller parts are tried only while there are no more units than that, or where nothing else fits */
#define TRIED_MOST 4u        /* part sizes that are played through */
#define SMALLER_COST 0.003   /* a part of half the size must be better by this: more units, more calls for the loop … */
#define TINY_COST 0.01       /* … and by this below 8 MiB */
#define RING_TOLERANCE 0.002 /* a smaller ring within this of the best is taken */
#define RATE_TOLERANCE 0.001 /* fewer sequences within this of the best are taken */
#define PART_TINY (UINT64_C(8) << 20)
#define PROMPT_WEIGHT 4.0    /* tokens of prompt for each answered one, when the prefill chunk is weighed against room for weights */
#define COARSE_RING 30u

/* In tenths of the largest piece: tried for the plan, for a quick answer, and where nothing larger fits. */
typedef struct ring_list { uint32_t count, tenths[8]; } ring_list;
static const ring_list all_rings = {7, {10, 15, 20, 25, 30, 40, 60}}, quick_rings = {2, {20, 30}}, least_ring = {1, {10}};

/* What the formulas need of a cut. */
typedef struct part_size {
    uint64_t part_bytes, largest_unit, small_bytes, movable_bytes, workspace_elements, units;
    ofl_unit_load block, head;
} part_size;

struct ofl_plan_search {
    const ofl_plan_facts *facts;
    const ofl_plan_wish *wish;
    part_size parts[PARTS_MOST];
    uint32_t part_count;
    ofl_plan_settings settings;
    ofl_forced_layers forced;
};
typedef struct ofl_plan_search search;

static void add_load(ofl_unit_load *sum, const ofl_unit_load *load)
{
    sum->bytes += load->bytes;
    sum->elements += load->elements;
    sum->expert_bytes += load->expert_bytes;
    sum->expert_elements += load->expert_elements;
    sum->head = load->head;
}

static ofl_status add_part(search *s, uint64_t part_bytes)
{
    ofl_plan_cut cut = {0};
    ofl_status status = ofl_plan_cut_make(s->facts, part_bytes, s->settings.compute_type, &cut);
    if (status != OFL_OK) return status;
    part_size *part = &s->parts[s->part_count++];
    *part = (part_size){.part_bytes = part_bytes, .largest_unit = cut.largest_unit, .small_bytes = cut.small_bytes, .units = cut.unit_count};
    part->movable_bytes = cut.movable_bytes;
    part->workspace_elements = cut.workspace_elements;
    for (uint64_t i = 0; i < cut.unit_count; i++) add_load(cut.loads[i].head ? &part->head : &part->block, &cut.loads[i]);
    ofl_plan_cut_clear(&cut);
    return OFL_OK;
}

static ofl_status add_parts(search *s)
{
    if (s->wish->cut == OFL_CUT_OFF) return add_part(s, 0);
    if (s->wish->cut == OFL_CUT_BYTES) return add_part(s, s->wish->part_bytes);
    ofl_status status = OFL_OK;
    for (uint64_t part = OFL_PART_LARGEST; part >= OFL_PART_SMALLEST && status == OFL_OK; part /= 2) {
        if (part != OFL_PART_LARGEST && s->facts->dense_bytes / part > UNITS_MOST) break;
        status = add_part(s, part);
        if (status == OFL_OK && s->facts->dense_bytes / part <= UNITS_MOST) status = add_part(s, part / 4 * 3);
    }
    return status;
}

static void set_counts(const search *s, uint32_t sequences, uint32_t chunk, ofl_plan_settings *out)
{
    *out = s->settings;
    out->sequences = sequences;
    out->prefill_chunk_tokens = chunk;
    out->tokens_per_step_cap = s->wish->cap != 0 ? s->wish->cap : sequences + chunk;
}

/* Room for movable weights and ring; false when even the small tensors do not fit. */
static bool coarse_room(const search *s, const part_size *part, const ofl_plan_settings *settings, uint64_t *room_out)
{
    ofl_budget budget;
    if (ofl_plan_account(s->facts, settings, part->workspace_elements, &budget) != OFL_OK) return false;
    if (budget.total_bytes > budget.vram_bytes || part->small_bytes > budget.vram_bytes - budget.total_bytes) return false;
    *room_out = budget.vram_bytes - budget.total_bytes - part->small_bytes;
    return true;
}

/* The least ring: one piece of the largest unit. Whole blocks that are resident in part pass in smaller pieces, but not below their largest matrix. */
static bool can_fit(const search *s, const part_size *part, uint32_t sequences, uint32_t chunk)
{
    ofl_plan_settings settings;
    uint64_t room;
    set_counts(s, sequences, chunk, &settings);
    if (!coarse_room(s, part, &settings, &room)) return false;
    if (s->wish->force_layers) return s->forced.needed <= room + part->small_bytes;
    return part->movable_bytes <= room || ofl_max_u64(part->largest_unit, s->wish->ring_bytes) <= room;
}

static double coarse_compute(const search *s, const part_size *part, uint32_t sequences)
{
    ofl_step_rates rates;
    ofl_step_shape shape = ofl_plan_decode_shape(&s->settings, sequences);
    ofl_plan_rates(s->facts, &shape, &rates);
    return ofl_plan_unit_seconds(&rates, &part->block) + ofl_plan_unit_seconds(&rates, &part->head) + rates.attention * s->facts->shape.block_count +
           s->facts->host_seconds;
}

static double coarse_link(const search *s, const part_size *part, uint64_t room)
{
    if (s->wish->force_layers) return (double)s->forced.streamed / s->facts->figures[OFL_FIGURE_LINK];
    if (part->movable_bytes <= room) return 0;
    uint64_t wanted = s->wish->ring_bytes != 0 ? s->wish->ring_bytes : part->largest_unit / 10 * COARSE_RING;
    uint64_t ring = ofl_min_u64(room, wanted);
    double streamed = (double)(part->movable_bytes - (room - ring)), pieces = streamed / ((double)part->movable_bytes / (double)part->units);
    return streamed / s->facts->figures[OFL_FIGURE_LINK] + pieces * s->facts->figures[OFL_FIGURE_COPY_START];
}

/* Seconds of a step that decodes all sequences, or infinity. */
static double coarse_step(const search *s, const part_size *part, uint32_t sequences, uint32_t chunk)
{
    ofl_plan_settings settings;
    uint64_t room;
    if (!can_fit(s, part, sequences, chunk)) return INFINITY;
    set_counts(s, sequences, chunk, &settings);
    if (!coarse_room(s, part, &settings, &room)) return INFINITY;
    return fmax(coarse_link(s, part, room), coarse_compute(s, part, sequences));
}

static double part_cost(const part_size *part)
{
    if (part->part_bytes == 0) return 1;
    double tiny = log2(fmax(1, (double)PART_TINY / (double)part->part_bytes)), all = log2(fmax(1, (double)OFL_PART_LARGEST / (double)part->part_bytes));
    return 1 + SMALLER_COST * (all - tiny) + TINY_COST * tiny;
}

static double best_part(const search *s, uint32_t sequences, uint32_t chunk)
{
    double best = INFINITY;
    for (uint32_t i = 0; i < s->part_count; i++) best = fmin(best, coarse_step(s, &s->parts[i], sequences, chunk));
    return best;
}

/* Fewer prefill tokens a step leave more room for weights but make more steps of a prompt. */
static double best_chunk(const search *s, uint32_t sequences, uint32_t *chunk_out)
{
    uint32_t cap = s->wish->cap != 0 ? s->wish->cap : UINT32_MAX, given = s->wish->prefill_chunk;
    double best = INFINITY, step = INFINITY;
    for (uint32_t chunk = given ? given : OFL_CHUNK_LARGEST; chunk >= (given ? given : OFL_CHUNK_SMALLEST); chunk /= 2) {
        uint32_t tokens = chunk < cap ? chunk : cap;
        double seconds = best_part(s, sequences, tokens), cost = seconds * (1 + PROMPT_WEIGHT * sequences / tokens);
        if (cost >= best && best < INFINITY) continue;
        if (cost == INFINITY && best == INFINITY && step == INFINITY) *chunk_out = tokens;
        if (cost >= best) continue;
        best = cost;
        step = seconds;
        *chunk_out = tokens;
    }
    return step;
}

static bool any_fits(const search *s, uint32_t sequences)
{
    uint32_t chunk = s->wish->prefill_chunk != 0 ? s->wish->prefill_chunk : OFL_CHUNK_SMALLEST;
    if (s->wish->cap != 0 && chunk > s->wish->cap) chunk = s->wish->cap;
    for (uint32_t i = 0; i < s->part_count; i++) {
        if (can_fit(s, &s->parts[i], sequences, chunk)) return true;
    }
    return false;
}

static uint32_t largest_fit(const search *s)
{
    uint32_t low = 0, high = OFL_SEQUENCES_MOST;
    if (s->wish->cap != 0 && s->wish->cap < high) high = s->wish->cap;
    while (low < high) {
        uint32_t middle = low + (high - low + 1) / 2;
        if (any_fits(s, middle)) low = middle;
        else high = middle - 1;
    }
    return low;
}

static double coarse_rate(const search *s, uint32_t sequences)
{
    uint32_t chunk = 0;
    return sequences / best_chunk(s, sequences, &chunk);
}

/* The best count on a growing grid, then between its neighbours; of what follows, the smallest count that is as good within the tolerance. */
static uint32_t best_sequences(const search *s, uint32_t most)
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

static ofl_status too_big(const search *s, uint32_t sequences)
{
    const part_size *part = &s->parts[s->part_count - 1];
    ofl_plan_settings settings;
    ofl_budget budget = {.vram_bytes = (uint64_t)s->facts->figures[OFL_FIGURE_VRAM]};
    uint32_t chunk = s->wish->prefill_chunk != 0 ? s->wish->prefill_chunk : OFL_CHUNK_SMALLEST, fits = largest_fit(s);
    set_counts(s, sequences, chunk, &settings);
    ofl_status status = ofl_plan_account(s->facts, &settings, part->workspace_elements, &budget);
    if (status != OFL_OK) return status;
    uint64_t piece = ofl_max_u64(part->largest_unit, s->wish->ring_bytes);
    uint64_t weights = s->wish->force_layers ? s->forced.needed : part->small_bytes + piece;
    uint64_t needed = budget.total_bytes + weights;
    if (fits > 0)
        return ofl_fail_room(OFL_ERROR_NO_FIT, needed, budget.vram_bytes,
                             "plan: %u sequences of %llu tokens need %llu bytes of device memory with the least of weights, %llu may be used; at most %u sequences fit",
                             sequences, (unsigned long long)settings.context_tokens, (unsigned long long)needed, (unsigned long long)budget.vram_bytes, fits);
    return ofl_fail_room(OFL_ERROR_NO_FIT, needed, budget.vram_bytes,
                         "plan: not even one sequence of %llu tokens fits: KV %llu, activations %llu, runtime %llu, headroom %llu and %s of %llu bytes are more "
                         "than the %llu bytes that may be used; give more memory, a shorter context%s",
                         (unsigned long long)settings.context_tokens, (unsigned long long)budget.kv_bytes, (unsigned long long)budget.activation_bytes,
                         (unsigned long long)budget.runtime_bytes, (unsigned long long)budget.headroom_bytes,
                         s->wish->force_layers ? "the resident layers with two slots" : "small tensors with the largest piece", (unsigned long long)weights,
                         (unsigned long long)budget.vram_bytes, s->wish->force_layers ? " or fewer resident layers" : " or smaller parts");
}

static ofl_status choose_sequences(const search *s, uint32_t *out)
{
    uint32_t asked = s->wish->sequences, least = asked != 0 ? asked : 1;
    if (!any_fits(s, least)) return too_big(s, least);
    if (asked != 0 || s->settings.objective == OFL_LATENCY) {
        *out = least;
        return OFL_OK;
    }
    uint64_t most = largest_fit(s);
    if (s->settings.queue_length != 0) most = ofl_min_u64(most, s->settings.queue_length);
    *out = best_sequences(s, (uint32_t)most);
    return OFL_OK;
}

/* What a draft is made of; the draft itself is made again when it is wanted. */
typedef struct choice {
    const part_size *part;
    ofl_plan_keep keep;
    uint32_t ring_tenths;
    double cost, step_seconds; /* INFINITY: none yet */
    bool compute_bound;
} choice;

/* Rings in ascending size; a larger one must be better by the tolerance. `cut` is used for each in turn. */
static ofl_status try_rings(const search *s, const part_size *part, const ofl_plan_settings *settings, ofl_plan_keep keep, const ring_list *rings,
                            ofl_plan_draft *draft, choice *best)
{
    double smallest = INFINITY;
    ofl_status status = OFL_OK;
    for (uint32_t i = 0; i < rings->count && status >= 0; i++) {
        draft->settings = *settings;
        draft->ring_tenths = rings->tenths[i];
        draft->keep = keep;
        status = ofl_plan_draft_make(s->facts, s->wish, draft);
        if (status != OFL_OK) continue;
        double step = draft->step.step_seconds, cost = step * part_cost(part);
        if (step >= smallest * (1 - RING_TOLERANCE)) continue;
        smallest = step;
        if (cost < best->cost) *best = (choice){part, keep, rings->tenths[i], cost, step, draft->step.compute_seconds >= draft->step.link_seconds};
        if (s->wish->force_layers || s->wish->ring_bytes != 0 || step <= draft->step.bound_seconds * (1 + RING_TOLERANCE)) break; /* larger: only more streamed */
    }
    return status < 0 ? status : OFL_OK;
}

static ofl_status try_part(const search *s, const part_size *part, const ofl_plan_settings *settings, bool quick, choice *best)
{
    ofl_plan_draft draft = {0};
    ofl_status status = ofl_plan_cut_make(s->facts, part->part_bytes, settings->compute_type, &draft.cut);
    quick |= part->units > UNITS_MOST;
    const ring_list *rings = quick ? &quick_rings : &all_rings;
    if (status == OFL_OK && s->wish->cut == OFL_CUT_OFF && !s->wish->force_layers) status = try_rings(s, part, settings, OFL_KEEP_HEAD, rings, &draft, best);
    if (status == OFL_OK && s->wish->cut != OFL_CUT_OFF && !quick) status = try_rings(s, part, settings, OFL_KEEP_ODD, rings, &draft, best);
    if (status == OFL_OK) status = try_rings(s, part, settings, OFL_KEEP_NONE, rings, &draft, best);
    if (status == OFL_OK && best->part == NULL) status = try_rings(s, part, settings, OFL_KEEP_NONE, &least_ring, &draft, best);
    ofl_plan_draft_clear(&draft);
    return status;
}

/* Part sizes by their coarse cost, best first. */
static uint32_t rank_parts(const search *s, const ofl_plan_settings *settings, const part_size **ranked)
{
    double costs[PARTS_MOST];
    uint32_t count = 0;
    for (uint32_t i = 0; i < s->part_count; i++) {
        double cost = coarse_step(s, &s->parts[i], settings->sequences, settings->prefill_chunk_tokens) * part_cost(&s->parts[i]);
        if (cost == INFINITY) continue;
        uint32_t at = count++;
        for (; at > 0 && costs[at - 1] > cost; at--) costs[at] = costs[at - 1], ranked[at] = ranked[at - 1];
        costs[at] = cost;
        ranked[at] = &s->parts[i];
    }
    return count;
}

/* OFL_NOT_READY: nothing fits. */
static ofl_status choose(const search *s, const ofl_plan_settings *settings, uint32_t most, choice *out)
{
    const part_size *ranked[PARTS_MOST];
    uint32_t count = rank_parts(s, settings, ranked), tried = 0;
    choice best = {.cost = INFINITY};
    for (uint32_t i = 0; i < count && (tried < most || best.part == NULL); i++, tried++) {
        ofl_status status = try_part(s, ranked[i], settings, most == 1, &best);
        if (status != OFL_OK) return status;
    }
    *out = best;
    return best.part != NULL ? OFL_OK : OFL_NOT_READY;
}

static void settle(const search *s, uint32_t sequences, ofl_plan_settings *out)
{
    uint32_t chunk = OFL_CHUNK_SMALLEST;
    (void)best_chunk(s, sequences, &chunk);
    set_counts(s, sequences, chunk, out);
}

static ofl_status make_chosen(const search *s, const ofl_plan_settings *settings, const choice *chosen, ofl_plan_draft *out)
{
    ofl_plan_draft draft = {.settings = *settings, .ring_tenths = chosen->ring_tenths, .keep = chosen->keep};
    ofl_status status = ofl_plan_cut_make(s->facts, chosen->part->part_bytes, settings->compute_type, &draft.cut);
    if (status == OFL_OK) status = ofl_plan_draft_make(s->facts, s->wish, &draft);
    if (status == OFL_OK) *out = draft;
    else ofl_plan_draft_clear(&draft);
    return status;
}

static ofl_status solve(const search *s, uint32_t sequences, ofl_plan_draft *out)
{
    ofl_plan_settings settings;
    choice chosen;
    settle(s, sequences, &settings);
    ofl_status status = choose(s, &settings, TRIED_MOST, &chosen);
    return status == OFL_OK ? make_chosen(s, &settings, &chosen, out) : status;
}

/* The step alone, from the best part size by formula. */
static ofl_status solve_step(const search *s, uint32_t sequences, choice *out)
{
    ofl_plan_settings settings;
    settle(s, sequences, &settings);
    return choose(s, &settings, 1, out);
}

ofl_status ofl_plan_search_open(const ofl_plan_facts *facts, const ofl_plan_wish *wish, const ofl_plan_settings *settings, ofl_plan_search **out)
{
    search *s = ofl_alloc(1, sizeof *s);
    if (s == NULL) return ofl_fail(OFL_ERROR_HOST_MEMORY, "plan: out of host memory");
    *s = (search){.facts = facts, .wish = wish, .settings = *settings};
    if (wish->force_layers) s->forced = ofl_plan_forced_layers(facts, wish->resident_layers);
    ofl_status status = add_parts(s);
    if (status == OFL_OK) *out = s;
    else ofl_free(s);
    return status;
}

void ofl_plan_search_close(ofl_plan_search *s) { ofl_free(s); }

ofl_status ofl_plan_solve(const ofl_plan_search *s, ofl_plan_draft *out)
{
    uint32_t sequences = 1;
    ofl_status status = choose_sequences(s, &sequences);
    if (status == OFL_OK) status = solve(s, sequences, out);
    if (status == OFL_NOT_READY) return too_big(s, sequences);
    if (status == OFL_OK && s->wish->ring_bytes != 0 && out->piece_count == 0) {
        ofl_plan_draft_clear(out);
        return ofl_fail(OFL_ERROR_ARGUMENT, "plan: ring size: it has no effect, since the whole model fits; leave it out");
    }
    return status;
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
        if (status != OFL_OK) return status == OFL_NOT_READY ? OFL_OK : status;
        plan->rows[plan->row_count++] = (ofl_plan_row){(uint32_t)n, row.step_seconds, (double)n / row.step_seconds};
        if (n >= planned && row.compute_bound) break;
    }
    return OFL_OK;
}

/* What the throughput objective would reach with the same job. */
ofl_status ofl_plan_solve_throughput(const ofl_plan_search *s, uint32_t *sequences_out, double *rate_out)
{
    choice chosen = {.step_seconds = INFINITY};
    *sequences_out = best_sequences(s, largest_fit(s));
    ofl_status status = solve_step(s, *sequences_out, &chosen);
    *rate_out = *sequences_out / chosen.step_seconds;
    return status < 0 ? status : OFL_OK;
}
