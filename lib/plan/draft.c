/* One candidate: places the slices for a ring size, lays out pieces and tiers, adds the memory up, and plays a step. */
#include "plan/plan_state.h"

#include <string.h>

static ofl_status no_memory(void) { return ofl_fail(OFL_ERROR_HOST_MEMORY, "plan: out of host memory"); }

void ofl_plan_draft_clear(ofl_plan_draft *draft)
{
    ofl_plan_cut_clear(&draft->cut);
    ofl_free(draft->pieces);
    memset(draft, 0, sizeof *draft);
}

/* All sequences decode; each is half-way through its context on average. */
ofl_step_shape ofl_plan_decode_shape(const ofl_plan_settings *settings, uint32_t sequences)
{
    ofl_step_shape shape = {.struct_size = sizeof shape, .tokens = sequences, .logits_rows = sequences};
    uint64_t mean = (settings->context_tokens + 1) / 2;
    if (!ofl_mul_u64(mean, sequences, &shape.kv_tokens)) shape.kv_tokens = UINT64_MAX;
    return shape;
}

uint64_t ofl_plan_largest_piece(const ofl_plan_cut *cut)
{
    uint64_t largest = 0;
    for (uint64_t i = 0; i < cut->unit_count; i++) largest = ofl_max_u64(largest, cut->units[i].piece_bytes);
    return largest;
}

static void time_units(const ofl_plan_facts *facts, ofl_plan_draft *draft)
{
    ofl_step_rates rates;
    draft->shape = ofl_plan_decode_shape(&draft->settings, draft->settings.sequences);
    ofl_plan_rates(facts, &draft->shape, &rates);
    for (uint64_t i = 0; i < draft->cut.unit_count; i++)
        draft->cut.units[i].compute_seconds = ofl_plan_unit_seconds(&rates, &draft->cut.loads[i]);
}

ofl_status ofl_plan_draft_pieces(const ofl_plan_facts *facts, ofl_plan_draft *draft)
{
    const ofl_plan_cut *cut = &draft->cut;
    if (!ofl_grow((void **)&draft->pieces, &draft->piece_capacity, cut->unit_count, sizeof *draft->pieces)) return no_memory();
    draft->piece_count = draft->budget.stream_bytes_per_step = draft->budget.stream_copies_per_step = 0;
    const uint64_t most_pinned = ofl_plan_copy_bytes(draft, OFL_TIER_PINNED), most_bounced = ofl_plan_copy_bytes(draft, OFL_TIER_PAGEABLE);
    for (uint32_t i = 0; i < cut->unit_count; i++) {
        if (cut->units[i].piece_bytes == 0) continue;
        ofl_tier tier = ofl_plan_unit_tier(cut, &cut->units[i]);
        uint64_t bytes = ofl_plan_piece_data(cut, &cut->units[i]), most = tier == OFL_TIER_PINNED ? most_pinned : most_bounced;
        ofl_plan_piece piece = {.bytes = cut->units[i].piece_bytes, .unit = i};
        piece.chunks = ofl_plan_piece_copies(facts, cut, &cut->units[i], most);
        piece.copy_seconds = (double)piece.chunks * facts->figures[OFL_FIGURE_COPY_START] + (double)bytes / ofl_plan_link_rate(facts);
        if (tier != OFL_TIER_PINNED) piece.fill_seconds = (double)bytes / ofl_plan_fill_rate(facts, tier);
        draft->pieces[draft->piece_count++] = piece;
        draft->budget.stream_bytes_per_step += cut->units[i].streamed_bytes;
        draft->budget.stream_copies_per_step += piece.chunks;
    }
    return OFL_OK;
}

/* Seconds of resident units before each piece, of its own unit, and behind the last. */
static double split_compute(const ofl_plan_facts *facts, const ofl_plan_draft *draft, const ofl_step_rates *rates, double *lead,
                            double *own)
{
    double seconds = 0;
    uint64_t piece = 0;
    for (uint32_t i = 0; i < draft->cut.unit_count; i++) {
        double unit = ofl_plan_unit_seconds(rates, &draft->cut.loads[i]) + ofl_plan_call_seconds(facts, &draft->cut.units[i]);
        if (piece == draft->piece_count || draft->pieces[piece].unit != i) {
            seconds += unit;
            continue;
        }
        lead[piece] = seconds;
        own[piece++] = unit;
        seconds = 0;
    }
    return seconds;
}

ofl_status ofl_plan_draft_estimate(const ofl_plan_facts *facts, const ofl_plan_draft *draft, const ofl_step_shape *shape,
                                   ofl_step_estimate *out)
{
    ofl_step_rates rates;
    double *seconds = ofl_alloc(draft->piece_count * 2, sizeof *seconds);
    if (seconds == NULL) return no_memory();
    ofl_plan_rates(facts, shape, &rates);
    ofl_timeline_input input = {
        .pieces = draft->pieces, .piece_count = draft->piece_count, .lead = seconds, .own = seconds + draft->piece_count};
    input.tail = split_compute(facts, draft, &rates, seconds, seconds + draft->piece_count);
    input.host = ofl_plan_host_seconds(facts, shape->logits_rows);
    input.ring_bytes = draft->budget.ring_bytes;
    ofl_status status = ofl_plan_timeline(&input, out);
    ofl_free(seconds);
    return status;
}

ofl_status ofl_plan_draft_measure(const ofl_plan_facts *facts, ofl_plan_draft *draft)
{
    ofl_budget *budget = &draft->budget;
    uint64_t piece = ofl_plan_largest_piece(&draft->cut), ring = piece != 0 ? draft->ring_bytes : 0;
    if (piece > draft->ring_bytes) return OFL_NOT_READY;
    ofl_status status = ofl_plan_account_weights(budget, ofl_plan_resident_bytes(&draft->cut), ring);
    if (status != OFL_OK) return status;
    if (budget->total_bytes > budget->vram_bytes) return OFL_NOT_READY;
    uint64_t room = budget->vram_bytes - (budget->total_bytes - budget->resident_bytes - ring);
    budget->lower_bound_bytes_per_step = facts->dense_bytes > room ? facts->dense_bytes - room : 0;
    status = ofl_plan_place_host(facts, &draft->cut, budget);
    if (status == OFL_OK) status = ofl_plan_draft_pieces(facts, draft);
    if (status == OFL_OK) status = ofl_plan_draft_estimate(facts, draft, &draft->shape, &draft->step);
    return status;
}

ofl_status ofl_plan_draft_make(const ofl_plan_facts *facts, const ofl_plan_wish *wish, ofl_plan_draft *draft)
{
    draft->settings.part_bytes = draft->cut.part_bytes;
    ofl_plan_account_capacity(&draft->settings);
    ofl_status status = ofl_plan_account(facts, &draft->settings, draft->cut.workspace_elements, &draft->budget);
    if (status != OFL_OK) return status;
    time_units(facts, draft);
    if (wish->force_layers) ofl_plan_place_layers(facts, &draft->cut, wish->resident_layers);
    else status = ofl_plan_place(facts, &draft->cut, draft->resident_bytes, draft->keep);
    if (status >= 0 && !wish->force_layers && ofl_plan_is_small(facts, &draft->cut)) return ofl_plan_place_exactly(facts, draft);
    return status == OFL_OK ? ofl_plan_draft_measure(facts, draft) : status;
}
