/* A plan against itself: its sums are added up anew, apart from what made them. */
#include "plan/check.h"

#include <string.h>

ofl_status ofl_check_wrong(const ofl_checking *c, const char *what) { return ofl_fail(c->status, "plan: %s; make the plan anew", what); }

/* Unit by unit: slices in order, one tier for what is streamed, pieces without overlap. */
static ofl_status check_unit(const ofl_checking *c, uint32_t index)
{
    const ofl_plan_cut *cut = &c->plan->draft.cut;
    const ofl_unit *unit = &cut->units[index];
    uint64_t piece = 0, streamed = 0;
    ofl_tier tier = OFL_TIER_DEVICE;
    for (uint32_t i = 0; i < unit->slice_count; i++) {
        const ofl_slice *slice = &cut->slices[unit->slice_first + i];
        if (slice->unit != index) return ofl_check_wrong(c, "a slice belongs to another unit");
        if (slice->tier == OFL_TIER_DEVICE) continue;
        if (tier != OFL_TIER_DEVICE && slice->tier != tier) return ofl_check_wrong(c, "a unit is streamed from two tiers");
        if (slice->piece_offset != piece) return ofl_check_wrong(c, "slices of a piece overlap or leave gaps");
        tier = slice->tier;
        piece += ofl_plan_align(slice->bytes);
        streamed += slice->bytes;
    }
    if (unit->piece_bytes < piece || (piece == 0) != (unit->piece_bytes == 0) || unit->streamed_bytes != streamed)
        return ofl_check_wrong(c, "a unit's streamed bytes are not the sum of its slices");
    if (unit->piece_bytes > c->plan->draft.budget.ring_bytes || unit->piece_bytes % OFL_ALIGNMENT_BYTES != 0)
        return ofl_check_wrong(c, "a piece is larger than the ring, or not aligned");
    return OFL_OK;
}

ofl_status ofl_check_pieces(const ofl_checking *c)
{
    ofl_status status = OFL_OK;
    for (uint32_t i = 0; i < c->plan->draft.cut.unit_count && status == OFL_OK; i++) status = check_unit(c, i);
    return status;
}

/* What is not pinned is copied in chunks of at most 4 MiB. */
uint64_t ofl_check_chunk(const ofl_plan_draft *draft, ofl_tier tier)
{
    uint64_t largest = 0;
    if (tier != OFL_TIER_PAGEABLE && tier != OFL_TIER_FILE) return draft->settings.copy_bytes;
    for (uint64_t i = 0; i < draft->cut.unit_slice_count; i++) {
        const ofl_slice *slice = &draft->cut.slices[i];
        bool bounced = slice->tier == OFL_TIER_PAGEABLE || slice->tier == OFL_TIER_FILE;
        if (bounced && slice->unit < draft->cut.unit_count) largest = ofl_max_u64(largest, draft->cut.units[slice->unit].piece_bytes);
    }
    return largest < UINT64_C(4) << 20 ? (ofl_max_u64(largest, 1) + 4095) / 4096 * 4096 : UINT64_C(4) << 20;
}

/* What is kept together is copied together, in chunks, from the start of the first slice to the end of the last; any other slice by
 * itself. */
uint64_t ofl_check_copies(const ofl_plan *plan, const ofl_unit *unit, uint64_t pinned_chunk, uint64_t bounced_chunk)
{
    uint64_t copies = 0, start = 0, end = 0, chunk = pinned_chunk;
    for (uint32_t i = 0; i < unit->slice_count; i++) {
        const ofl_slice *slice = &plan->draft.cut.slices[unit->slice_first + i];
        if (slice->tier == OFL_TIER_DEVICE) continue;
        bool together = ofl_is_packed(slice->tier, plan->facts.tensors[slice->tensor].callers, slice->bytes);
        if (slice->tier != OFL_TIER_PINNED) chunk = bounced_chunk;
        if (!together || end == 0) {
            copies += (end - start + chunk - 1) / chunk;
            start = slice->piece_offset;
        }
        end = slice->piece_offset + slice->bytes;
        if (together) continue;
        copies += (end - start + chunk - 1) / chunk;
        start = end = 0;
    }
    return copies + (end - start + chunk - 1) / chunk;
}

ofl_status ofl_check_weights(const ofl_checking *c)
{
    const ofl_plan_draft *draft = &c->plan->draft;
    const ofl_plan_cut *cut = &draft->cut;
    const ofl_budget *b = &draft->budget;
    uint64_t tiers[4] = {0}, resident = 0, streamed = 0, copies = 0;
    for (uint64_t i = 0; i < cut->slice_count; i++) {
        const ofl_slice *slice = &cut->slices[i];
        tiers[slice->tier] += slice->bytes;
        if (slice->tier == OFL_TIER_DEVICE) resident += ofl_plan_align(slice->bytes);
        else if (i < cut->unit_slice_count) streamed += slice->bytes;
    }
    if (tiers[0] != b->device_bytes || tiers[1] != b->pinned_bytes || tiers[2] != b->pageable_bytes || tiers[3] != b->file_bytes)
        return ofl_check_wrong(c, "the bytes of the tiers are not the sums of their slices");
    if (resident != b->resident_bytes) return ofl_check_wrong(c, "the resident bytes are not the sum of the resident slices");
    if (streamed != b->stream_bytes_per_step) return ofl_check_wrong(c, "the streamed bytes are not the sum of the streamed slices");
    if ((streamed == 0) != (b->ring_bytes == 0) || b->ring_bytes % OFL_ALIGNMENT_BYTES != 0)
        return ofl_check_wrong(c, "the ring does not belong to what is streamed");
    if (draft->settings.copy_bytes == 0) return ofl_check_wrong(c, "its copies have no size");
    const uint64_t pinned = ofl_check_chunk(draft, OFL_TIER_PINNED), bounced = ofl_check_chunk(draft, OFL_TIER_FILE);
    for (uint64_t i = 0; i < cut->unit_count; i++) copies += ofl_check_copies(c->plan, &cut->units[i], pinned, bounced);
    if (copies != b->stream_copies_per_step) return ofl_check_wrong(c, "the copies of a step are not those of its pieces");
    return OFL_OK;
}

ofl_status ofl_check_budget(const ofl_checking *c)
{
    const ofl_plan_facts *facts = &c->plan->facts;
    const ofl_budget *b = &c->plan->draft.budget;
    const uint64_t parts[] = {b->resident_bytes, b->ring_bytes, b->kv_bytes, b->activation_bytes, b->runtime_bytes, b->headroom_bytes};
    uint64_t total = 0;
    for (size_t i = 0; i < OFL_COUNT_OF(parts); i++) {
        if (!ofl_add_u64(total, parts[i], &total)) return ofl_check_wrong(c, "the budget overflows");
    }
    if (total != b->total_bytes) return ofl_check_wrong(c, "the budget's total is not the sum of its parts");
    if (total > b->vram_bytes) return ofl_check_wrong(c, "the budget is above the device memory");
    if (b->vram_bytes != (uint64_t)facts->figures[OFL_FIGURE_VRAM])
        return ofl_check_wrong(c, "the budget's device memory is not the machine's");
    if (b->runtime_bytes != (uint64_t)facts->figures[OFL_FIGURE_RUNTIME])
        return ofl_check_wrong(c, "what driver and libraries take is not the machine's figure");
    uint64_t others = b->kv_bytes + b->activation_bytes + b->runtime_bytes + b->headroom_bytes, room = b->vram_bytes - others;
    if (b->lower_bound_bytes_per_step != (facts->dense_bytes > room ? facts->dense_bytes - room : 0))
        return ofl_check_wrong(c, "the lower bound is not what the device has no room for");
    return OFL_OK;
}

ofl_status ofl_check_kv_region(const ofl_checking *c)
{
    const ofl_plan_settings *s = &c->plan->draft.settings;
    uint64_t kv, blocks = (s->context_tokens + OFL_KV_BLOCK_TOKENS - 1) / OFL_KV_BLOCK_TOKENS;
    if (!ofl_mul_u64(s->sequences, s->kv_bytes_per_sequence, &kv) || !ofl_align_u64(kv, OFL_ALIGNMENT_BYTES, &kv) ||
        kv != c->plan->draft.budget.kv_bytes)
        return ofl_check_wrong(c, "the KV region is not what its sequences need");
    if (s->max_sequences != s->sequences || s->kv_capacity_tokens != blocks * OFL_KV_BLOCK_TOKENS * s->sequences)
        return ofl_check_wrong(c, "the KV capacity is not what the region holds");
    return OFL_OK;
}

ofl_status ofl_check_activations(const ofl_checking *c)
{
    const ofl_plan_settings *s = &c->plan->draft.settings;
    const ofl_budget *b = &c->plan->draft.budget;
    uint64_t hidden, logits, workspace;
    ofl_status status = ofl_activation_bytes(&c->plan->facts.shape, s->compute_type, s->tokens_per_step_cap, s->sequences, 0, &hidden,
                                             &logits, &workspace);
    if (status != OFL_OK) return status;
    if (!ofl_add_u64(workspace, s->workspace_bytes, &workspace)) workspace = UINT64_MAX;
    if (logits != b->logits_bytes || b->workspace_bytes < workspace || b->activation_bytes < b->workspace_bytes ||
        b->activation_bytes - b->workspace_bytes != hidden + logits)
        return ofl_check_wrong(c, "the activation bytes are not those of the largest step");
    return OFL_OK;
}

/* Rows that the device reads itself are read from pinned memory, or are resident. */
static ofl_status check_gathered(const ofl_checking *c)
{
    const ofl_plan_cut *cut = &c->plan->draft.cut;
    for (uint64_t i = 0; i < cut->slice_count; i++) {
        const ofl_slice *slice = &cut->slices[i];
        bool gathered = i >= cut->unit_slice_count || c->plan->facts.tensors[slice->tensor].also_lookup;
        if (gathered && slice->tier != OFL_TIER_DEVICE && slice->tier != OFL_TIER_PINNED)
            return ofl_check_wrong(c, "rows that the device reads itself are not in pinned memory");
    }
    return OFL_OK;
}

/* With alignment: pieces, and lookups as they are. */
ofl_status ofl_check_host(const ofl_checking *c)
{
    const ofl_plan_facts *facts = &c->plan->facts;
    const ofl_plan_cut *cut = &c->plan->draft.cut;
    const ofl_source *known = facts->sources;
    double held[4] = {0};
    for (uint64_t i = 0; i < cut->unit_count; i++) held[ofl_plan_unit_tier(cut, &cut->units[i])] += (double)cut->units[i].piece_bytes;
    for (uint64_t i = cut->unit_slice_count; i < cut->slice_count; i++) held[cut->slices[i].tier] += (double)cut->slices[i].bytes;
    double pinned = held[OFL_TIER_PINNED], host = pinned + held[OFL_TIER_PAGEABLE];
    if (known[OFL_FIGURE_PINNABLE] != OFL_SOURCE_NONE && pinned > facts->figures[OFL_FIGURE_PINNABLE])
        return ofl_check_wrong(c, "more host memory is page-locked than the machine allows");
    if (known[OFL_FIGURE_HOST] != OFL_SOURCE_NONE && host > facts->figures[OFL_FIGURE_HOST])
        return ofl_check_wrong(c, "more host memory is used than the machine has");
    if (held[OFL_TIER_FILE] > 0 && known[OFL_FIGURE_FILE] == OFL_SOURCE_NONE)
        return ofl_check_wrong(c, "weights stay in their file, and no rate for reading it is known");
    return check_gathered(c);
}

ofl_status ofl_plan_check_sums(const ofl_plan *plan, ofl_status status)
{
    ofl_status (*const parts[])(const ofl_checking *) = {ofl_check_pieces,    ofl_check_weights,     ofl_check_budget,
                                                         ofl_check_kv_region, ofl_check_activations, ofl_check_host};
    const ofl_checking c = {.plan = plan, .status = status};
    status = OFL_OK;
    for (size_t i = 0; i < OFL_COUNT_OF(parts) && status == OFL_OK; i++) status = parts[i](&c);
    return status;
}
