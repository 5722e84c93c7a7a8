/* A plan against its model: every tensor that a step reads once, in order, with the model's own sizes. */
#include "plan/check.h"

#include <string.h>

ofl_status ofl_check_identity(const ofl_checking *c)
{
    const ofl_plan_facts *facts = &c->plan->facts;
    if (strcmp(facts->model_identity, ofl_model_identity(c->model)) == 0 && facts->tensor_count == ofl_model_tensor_count(c->model))
        return OFL_OK;
    return ofl_fail(OFL_ERROR_MISMATCH, "plan: it was made for model %s (%.12s…), this is %s (%.12s…); make a plan for this model",
                    facts->model_name, facts->model_identity, ofl_model_name(c->model), ofl_model_identity(c->model));
}

/* What activations, times and the lower bound are computed from. */
ofl_status ofl_check_shape(const ofl_checking *c)
{
    const ofl_plan_facts *facts = &c->plan->facts;
    const ofl_model_shape *mine = &facts->shape;
    ofl_model_shape shape = {.struct_size = sizeof shape};
    uint64_t stored = 0, dense = 0, lookup = 0, embedding = 0;
    ofl_status status = ofl_model_shape_get(c->model, &shape);
    for (uint32_t i = 0; i < ofl_model_tensor_count(c->model) && status == OFL_OK; i++) {
        ofl_tensor_info info = {.struct_size = sizeof info};
        status = ofl_model_tensor_get(c->model, i, &info);
        stored += info.bytes;
        dense += info.tensor_class == OFL_CLASS_DENSE || info.tensor_class == OFL_CLASS_EXPERT ? info.bytes : 0;
        lookup += info.tensor_class == OFL_CLASS_LOOKUP ? info.bytes : 0;
        embedding += info.tensor_class == OFL_CLASS_LOOKUP || info.also_lookup ? info.bytes : 0;
    }
    if (status != OFL_OK) return status;
    const uint64_t pairs[][2] = {
        {mine->block_count, shape.block_count},   {mine->hidden_size, shape.hidden_size},     {mine->head_count, shape.head_count},
        {mine->head_count_kv, shape.head_count_kv}, {mine->head_dim_k, shape.head_dim_k},     {mine->head_dim_v, shape.head_dim_v},
        {mine->ffn_size, shape.ffn_size},         {mine->vocab_size, shape.vocab_size},       {mine->expert_count, shape.expert_count},
        {mine->expert_used_count, shape.expert_used_count}, {mine->parameter_count, shape.parameter_count},
        {mine->trained_context_tokens, shape.trained_context_tokens}, {mine->tied_output != 0, shape.tied_output != 0},
        {facts->stored_bytes, stored},            {facts->dense_bytes, dense},                {facts->lookup_bytes, lookup},
        {facts->embedding_bytes, embedding},
    };
    for (size_t i = 0; i < OFL_COUNT_OF(pairs); i++) {
        if (pairs[i][0] != pairs[i][1]) return ofl_check_wrong(c, "its sizes and counts are not those of the model");
    }
    return OFL_OK;
}

/* Norms and biases have a permanent address, except where whole blocks are streamed. */
static bool stays(const ofl_checking *c, const ofl_tensor_info *info)
{
    bool small = info->n_dims < 2 || info->row_count < 2 || info->bytes <= OFL_SMALL_TENSOR_BYTES;
    return small && info->tensor_class != OFL_CLASS_LOOKUP && c->plan->draft.settings.part_bytes != 0;
}

static ofl_status check_rows(const ofl_checking *c, const ofl_plan_tensor *mine, const ofl_tensor_info *info)
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
        if (slice->unit != OFL_NO_UNIT && cut->units[slice->unit].block != info->block)
            return ofl_fail(OFL_ERROR_MISMATCH, "plan: tensor %s is in a unit of another block; make the plan anew", info->name);
        if (stays(c, info) && slice->tier != OFL_TIER_DEVICE)
            return ofl_fail(OFL_ERROR_MISMATCH, "plan: tensor %s is small, but streamed; make the plan anew", info->name);
        next += slice->row_count;
    }
    if (next != info->row_count) return ofl_fail(OFL_ERROR_MISMATCH, "plan: rows of tensor %s are missing; make the plan anew", info->name);
    return OFL_OK;
}

/* *next: the slice that must come next, so that the execution order is the model's. */
static ofl_status check_tensor(const ofl_checking *c, uint32_t index, uint32_t *next)
{
    const ofl_plan_tensor *mine = &c->plan->facts.tensors[index];
    ofl_tensor_info info = {.struct_size = sizeof info};
    ofl_status status = ofl_model_tensor_get(c->model, index, &info);
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

ofl_status ofl_check_tensors(const ofl_checking *c)
{
    uint32_t next = 0;
    ofl_status status = OFL_OK;
    for (uint32_t i = 0; i < c->plan->facts.tensor_count && status == OFL_OK; i++) status = check_tensor(c, i, &next);
    if (status == OFL_OK && next != c->plan->draft.cut.unit_slice_count)
        status = ofl_check_wrong(c, "units hold slices that no tensor has");
    return status;
}

ofl_status ofl_check_kv(const ofl_checking *c)
{
    const ofl_plan_settings *s = &c->plan->draft.settings;
    uint64_t tokens = (s->context_tokens + OFL_KV_BLOCK_TOKENS - 1) / OFL_KV_BLOCK_TOKENS * OFL_KV_BLOCK_TOKENS, kv, state, each;
    ofl_status status = ofl_model_kv_bytes(c->model, s->kv_type, tokens, &kv);
    if (status == OFL_OK) status = ofl_model_state_bytes(c->model, &state);
    if (status == OFL_OK) status = ofl_model_kv_bytes_per_token(c->model, s->kv_type, &each);
    if (status != OFL_OK) return status;
    if (!ofl_add_u64(kv, state, &kv) || kv != s->kv_bytes_per_sequence)
        return ofl_fail(OFL_ERROR_MISMATCH, "plan: KV of a sequence is %s in the plan, not what the model needs; make the plan anew",
                        ofl_bytes_text(s->kv_bytes_per_sequence).text);
    if (each != s->kv_bytes_per_token || each != c->plan->facts.kv_bytes_per_token || state != c->plan->facts.state_bytes)
        return ofl_check_wrong(c, "KV bytes of a token or the state of a sequence are not the model's");
    return ofl_check_kv_region(c);
}

/* Elements of the largest matrix slice that is stored in another type than the products read. */
ofl_status ofl_check_workspace(const ofl_checking *c)
{
    const ofl_plan *plan = c->plan;
    const ofl_plan_settings *s = &plan->draft.settings;
    uint64_t elements = 0, hidden, logits, workspace;
    for (uint32_t i = 0; i < plan->draft.cut.unit_slice_count; i++) {
        const ofl_slice *slice = &plan->draft.cut.slices[i];
        ofl_tensor_info info = {.struct_size = sizeof info};
        ofl_status status = ofl_model_tensor_get(c->model, slice->tensor, &info);
        if (status != OFL_OK) return status;
        bool other = info.dtype != (s->compute_type == OFL_COMPUTE_F32 ? OFL_DTYPE_F32 : OFL_DTYPE_BF16);
        if (other && info.n_dims > 1 && info.row_count > 1)
            elements = ofl_max_u64(elements, info.elements / info.row_count * slice->row_count);
    }
    ofl_status status = ofl_activation_bytes(&plan->facts.shape, s->compute_type, s->tokens_per_step_cap, s->sequences, elements, &hidden,
                                             &logits, &workspace);
    if (status == OFL_OK && !ofl_add_u64(workspace, s->workspace_bytes, &workspace)) workspace = UINT64_MAX;
    if (status == OFL_OK && workspace != plan->draft.budget.workspace_bytes)
        return ofl_fail(OFL_ERROR_MISMATCH, "plan: the workspace is %s, the largest slice needs %s; make the plan anew",
                        ofl_bytes_text(plan->draft.budget.workspace_bytes).text, ofl_bytes_text(workspace).text);
    return status == OFL_OK ? ofl_check_activations(c) : status;
}
