/* Verifies a plan by adding it up anew, apart from the solver: first against itself, then against the model. */
#include "plan/plan_state.h"

#include <string.h>

typedef struct checking {
    const ofl_plan *plan;
    ofl_status status; /* what a contradiction is */
} checking;

static ofl_status wrong(const checking *c, const char *what) { return ofl_fail(c->status, "plan: %s; make the plan anew", what); }

/* Unit by unit: slices in order, one tier for what is streamed, pieces without overlap. */
static ofl_status check_unit(const checking *c, uint32_t index)
{
    const ofl_plan_cut *cut = &c->plan->draft.cut;
    const ofl_unit *unit = &cut->units[index];
    uint64_t piece = 0, streamed = 0;
    ofl_tier tier = OFL_TIER_DEVICE;
    for (uint32_t i = 0; i < unit->slice_count; i++) {
        const ofl_slice *slice = &cut->slices[unit->slice_first + i];
        if (slice->unit != index) return wrong(c, "a slice belongs to another unit");
        if (slice->tier == OFL_TIER_DEVICE) continue;
        if (tier != OFL_TIER_DEVICE && slice->tier != tier) return wrong(c, "a unit is streamed from two tiers");
        if (slice->piece_offset != piece) return wrong(c, "slices of a piece overlap or leave gaps");
        tier = slice->tier;
        piece += ofl_plan_align(slice->bytes);
        streamed += slice->bytes;
    }
    if (unit->piece_bytes < piece || (piece == 0) != (unit->piece_bytes == 0) || unit->streamed_bytes != streamed)
        return wrong(c, "a unit's streamed bytes are not the sum of its slices");
    if (unit->piece_bytes > c->plan->draft.budget.ring_bytes || unit->piece_bytes % OFL_ALIGNMENT_BYTES != 0)
        return wrong(c, "a piece is larger than the ring, or not aligned");
    return OFL_OK;
}

static ofl_status check_weights(const checking *c)
{
    const ofl_plan_cut *cut = &c->plan->draft.cut;
    const ofl_budget *b = &c->plan->draft.budget;
    uint64_t tiers[4] = {0}, resident = 0, streamed = 0;
    for (uint64_t i = 0; i < cut->slice_count; i++) {
        const ofl_slice *slice = &cut->slices[i];
        tiers[slice->tier] += slice->bytes;
        if (slice->tier == OFL_TIER_DEVICE) resident += ofl_plan_align(slice->bytes);
        else if (i < cut->unit_slice_count) streamed += slice->bytes;
    }
    if (tiers[0] != b->device_bytes || tiers[1] != b->pinned_bytes || tiers[2] != b->pageable_bytes || tiers[3] != b->file_bytes)
        return wrong(c, "the bytes of the tiers are not the sums of their slices");
    if (resident != b->resident_bytes) return wrong(c, "the resident bytes are not the sum of the resident slices");
    if (streamed != b->stream_bytes_per_step) return wrong(c, "the streamed bytes are not the sum of the streamed slices");
    if ((streamed == 0) != (b->ring_bytes == 0) || b->ring_bytes % OFL_ALIGNMENT_BYTES != 0)
        return wrong(c, "the ring does not belong to what is streamed");
    return OFL_OK;
}

static ofl_status check_total(const checking *c)
{
    const ofl_budget *b = &c->plan->draft.budget;
    const uint64_t parts[] = {b->resident_bytes, b->ring_bytes, b->kv_bytes, b->activation_bytes, b->runtime_bytes, b->headroom_bytes};
    uint64_t total = 0;
    for (size_t i = 0; i < OFL_COUNT_OF(parts); i++) {
        if (!ofl_add_u64(total, parts[i], &total)) return wrong(c, "the budget overflows");
    }
    if (total != b->total_bytes) return wrong(c, "the budget's total is not the sum of its parts");
    if (total > b->vram_bytes) return wrong(c, "the budget is above the device memory");
    if (b->vram_bytes != (uint64_t)c->plan->facts.figures[OFL_FIGURE_VRAM])
        return wrong(c, "the budget's device memory is not the machine's");
    return OFL_OK;
}

static ofl_status check_regions(const checking *c)
{
    const ofl_plan_settings *s = &c->plan->draft.settings;
    const ofl_budget *b = &c->plan->draft.budget;
    uint64_t kv, hidden, logits, workspace, blocks = (s->context_tokens + OFL_KV_BLOCK_TOKENS - 1) / OFL_KV_BLOCK_TOKENS;
    if (!ofl_mul_u64(s->sequences, s->kv_bytes_per_sequence, &kv) || !ofl_align_u64(kv, OFL_ALIGNMENT_BYTES, &kv) || kv != b->kv_bytes)
        return wrong(c, "the KV region is not what its sequences need");
    if (s->max_sequences != s->sequences || s->kv_capacity_tokens != blocks * OFL_KV_BLOCK_TOKENS * s->sequences)
        return wrong(c, "the KV capacity is not what the region holds");
    ofl_status status = ofl_activation_bytes(&c->plan->facts.shape, s->compute_type, s->tokens_per_step_cap, s->sequences, 0, &hidden,
                                             &logits, &workspace);
    if (status != OFL_OK) return status;
    if (logits != b->logits_bytes || b->workspace_bytes < workspace || b->activation_bytes < b->workspace_bytes ||
        b->activation_bytes - b->workspace_bytes != hidden + logits)
        return wrong(c, "the activation bytes are not those of the largest step");
    return OFL_OK;
}

ofl_status ofl_plan_check_sums(const ofl_plan *plan, ofl_status status)
{
    checking c = {.plan = plan, .status = status};
    status = OFL_OK;
    for (uint32_t i = 0; i < plan->draft.cut.unit_count && status == OFL_OK; i++) status = check_unit(&c, i);
    if (status == OFL_OK) status = check_weights(&c);
    if (status == OFL_OK) status = check_total(&c);
    return status == OFL_OK ? check_regions(&c) : status;
}

static ofl_status check_rows(const checking *c, const ofl_plan_tensor *mine, const ofl_tensor_info *info)
{
    const ofl_plan_cut *cut = &c->plan->draft.cut;
    uint64_t next = 0;
    for (uint32_t i = 0; i < mine->slice_count; i++) {
        const ofl_slice *slice = &cut->slices[mine->slice_first + i];
        if (slice->row_first != next || slice->row_count == 0 || slice->row_count > info->row_count - next)
            return ofl_fail(OFL_ERROR_MISMATCH, "plan: the rows of tensor %s have gaps, overlap or are too many; make the plan anew",
                            info->name);
        if (slice->bytes != slice->row_count * info->row_bytes)
            return ofl_fail(OFL_ERROR_MISMATCH, "plan: a part of tensor %s has other bytes than its rows; make the plan anew", info->name);
        next += slice->row_count;
    }
    if (next != info->row_count) return ofl_fail(OFL_ERROR_MISMATCH, "plan: rows of tensor %s are missing; make the plan anew", info->name);
    return OFL_OK;
}

/* *next: the slice that must come next, so that the execution order is the model's. */
static ofl_status check_tensor(const checking *c, const ofl_model *model, uint32_t index, uint32_t *next)
{
    const ofl_plan_tensor *mine = &c->plan->facts.tensors[index];
    ofl_tensor_info info = {.struct_size = sizeof info};
    ofl_status status = ofl_model_tensor_get(model, index, &info);
    if (status != OFL_OK) return status;
    bool placed = info.tensor_class != OFL_CLASS_UNUSED && info.bytes != 0, in_unit = placed && info.tensor_class != OFL_CLASS_LOOKUP;
    if (!placed)
        return mine->slice_count == 0 ? OFL_OK : ofl_fail(OFL_ERROR_MISMATCH, "plan: tensor %s is never read, but placed", info.name);
    if (mine->slice_count == 0 || strcmp(mine->name, info.name) != 0 || mine->tensor_class != (uint8_t)info.tensor_class ||
        (mine->also_lookup != 0) != (info.also_lookup != 0))
        return ofl_fail(OFL_ERROR_MISMATCH, "plan: tensor %s is not placed, or as something else; make the plan anew", info.name);
    if (in_unit != (c->plan->draft.cut.slices[mine->slice_first].unit != OFL_NO_UNIT) || (in_unit && mine->slice_first != *next))
        return ofl_fail(OFL_ERROR_MISMATCH, "plan: tensor %s is out of its place in the execution order; make the plan anew", info.name);
    if (in_unit) *next += mine->slice_count;
    return check_rows(c, mine, &info);
}

static ofl_status check_model_kv(const ofl_plan *plan, const ofl_model *model)
{
    const ofl_plan_settings *s = &plan->draft.settings;
    uint64_t tokens = (s->context_tokens + OFL_KV_BLOCK_TOKENS - 1) / OFL_KV_BLOCK_TOKENS * OFL_KV_BLOCK_TOKENS, kv, state;
    ofl_status status = ofl_model_kv_bytes(model, s->kv_type, tokens, &kv);
    if (status == OFL_OK) status = ofl_model_state_bytes(model, &state);
    if (status != OFL_OK) return status;
    if (!ofl_add_u64(kv, state, &kv) || kv != s->kv_bytes_per_sequence)
        return ofl_fail(OFL_ERROR_MISMATCH,
                        "plan: KV of a sequence is %s in the plan, not what the model needs; make the plan anew",
                        ofl_bytes_text(s->kv_bytes_per_sequence).text);
    return OFL_OK;
}

/* Elements of the largest matrix slice that is stored in another type than the products read. */
static ofl_status check_workspace(const ofl_plan *plan, const ofl_model *model)
{
    const ofl_plan_settings *s = &plan->draft.settings;
    uint64_t elements = 0, hidden, logits, workspace;
    for (uint32_t i = 0; i < plan->draft.cut.unit_slice_count; i++) {
        const ofl_slice *slice = &plan->draft.cut.slices[i];
        ofl_tensor_info info = {.struct_size = sizeof info};
        ofl_status status = ofl_model_tensor_get(model, slice->tensor, &info);
        if (status != OFL_OK) return status;
        bool other = info.dtype != (s->compute_type == OFL_COMPUTE_F32 ? OFL_DTYPE_F32 : OFL_DTYPE_BF16);
        if (other && info.n_dims > 1 && info.row_count > 1)
            elements = ofl_max_u64(elements, info.elements / info.row_count * slice->row_count);
    }
    ofl_status status = ofl_activation_bytes(&plan->facts.shape, s->compute_type, s->tokens_per_step_cap, s->sequences, elements, &hidden,
                                             &logits, &workspace);
    if (status == OFL_OK && workspace != plan->draft.budget.workspace_bytes)
        return ofl_fail(OFL_ERROR_MISMATCH, "plan: the workspace is %s, the largest slice needs %s; make the plan anew",
                        ofl_bytes_text(plan->draft.budget.workspace_bytes).text, ofl_bytes_text(workspace).text);
    return status;
}

ofl_status ofl_plan_check(const ofl_plan *plan, const ofl_model *model)
{
    if (plan == NULL || model == NULL) return ofl_fail(OFL_ERROR_ARGUMENT, "plan: no plan or no model to check it against");
    checking c = {.plan = plan, .status = OFL_ERROR_MISMATCH};
    uint32_t next = 0;
    if (strcmp(plan->facts.model_identity, ofl_model_identity(model)) != 0 || plan->facts.tensor_count != ofl_model_tensor_count(model))
        return ofl_fail(OFL_ERROR_MISMATCH, "plan: it was made for model %s (%.12s…), this is %s (%.12s…); make a plan for this model",
                        plan->facts.model_name, plan->facts.model_identity, ofl_model_name(model), ofl_model_identity(model));
    ofl_status status = OFL_OK;
    for (uint32_t i = 0; i < plan->facts.tensor_count && status == OFL_OK; i++) status = check_tensor(&c, model, i, &next);
    if (status == OFL_OK && next != plan->draft.cut.unit_slice_count) status = wrong(&c, "units hold slices that no tensor has");
    if (status == OFL_OK) status = ofl_plan_check_sums(plan, OFL_ERROR_MISMATCH);
    if (status == OFL_OK) status = check_workspace(plan, model);
    return status == OFL_OK ? check_model_kv(plan, model) : status;
}
