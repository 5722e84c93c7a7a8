/* What device memory is asked for, each sum in this file only. */
#include "plan/plan_state.h"

#define TABLE_BYTES 65536u /* ids, positions, tables */
#define TOKEN_BYTES 8u
#define PRODUCT_TOKENS 16u /* see the formula in the header */
#define EXPANDED_ROWS 256u
#define OUTPUT_ROWS 64u

static uint32_t type_bytes(ofl_compute_type type) { return type == OFL_COMPUTE_F32 ? 4 : 2; }

/* count × each, rounded up. */
static bool product(uint64_t count, uint64_t each, uint64_t *out)
{
    uint64_t bytes;
    return ofl_mul_u64(count, each, &bytes) && ofl_align_u64(bytes, OFL_ALIGNMENT_BYTES, out);
}

/* The widest row that a product reads. */
static uint64_t widest(const ofl_model_shape *shape)
{
    return ofl_max_u64(shape->hidden_size, ofl_max_u64((uint64_t)shape->head_count * shape->head_dim_k, shape->ffn_size));
}

static bool hidden_bytes(const ofl_model_shape *shape, uint64_t c, uint64_t tokens, uint64_t *out)
{
    uint64_t h = shape->hidden_size, f = shape->ffn_size, values, inputs, padded, ids;
    uint64_t q = (uint64_t)shape->head_count * shape->head_dim_k, kv = (uint64_t)shape->head_count_kv * shape->head_dim_k;
    if (q > UINT64_MAX / 64 || kv > UINT64_MAX / 64) return false;
    return ofl_mul_u64(tokens, 4 * (h + ofl_max_u64(h, shape->head_dim_k) + ofl_max_u64(2 * q + 2 * kv, 2 * f)), &values) &&
           ofl_align_u64(tokens, PRODUCT_TOKENS, &padded) && ofl_mul_u64(padded, c * widest(shape), &inputs) &&
           ofl_add_u64(values, inputs, &values) && ofl_align_u64(values, OFL_ALIGNMENT_BYTES, &values) &&
           product(tokens, TOKEN_BYTES, &ids) && ofl_add_u64(values, ids, &values) && ofl_add_u64(values, TABLE_BYTES, out);
}

/* Stored rows are expanded a few at a time. */
static bool workspace_bytes(const ofl_model_shape *shape, uint64_t c, uint64_t elements, uint64_t *out)
{
    uint64_t m = widest(shape);
    if (m > UINT64_MAX / 1024) return false;
    return product(ofl_min_u64(elements, EXPANDED_ROWS * m) + OUTPUT_ROWS * m, c, out);
}

ofl_status ofl_activation_bytes(const ofl_model_shape *shape, ofl_compute_type compute_type, uint64_t tokens, uint64_t logits_rows,
                                uint64_t workspace_elements, uint64_t *hidden_out, uint64_t *logits_out, uint64_t *workspace_out)
{
    ofl_model_shape full;
    ofl_status status = ofl_struct_in(&full, sizeof full, shape, "ofl_model_shape");
    if (status != OFL_OK) return status;
    if (hidden_out == NULL || logits_out == NULL || workspace_out == NULL)
        return ofl_fail(OFL_ERROR_ARGUMENT, "activation bytes: no place for the result");
    uint64_t c = type_bytes(compute_type), hidden, logits, workspace;
    uint64_t row = 4 * (uint64_t)full.vocab_size + (4 + c) * (uint64_t)full.hidden_size;
    if (!hidden_bytes(&full, c, tokens, &hidden) || !product(logits_rows, row, &logits) ||
        !workspace_bytes(&full, c, workspace_elements, &workspace))
        return ofl_fail(OFL_ERROR_OVERFLOW, "activation bytes of %llu tokens: more than 64 bits hold; lower the tokens per step",
                        (unsigned long long)tokens);
    *hidden_out = hidden;
    *logits_out = logits;
    *workspace_out = workspace;
    return OFL_OK;
}

static bool sum(uint64_t *total, const uint64_t *parts, size_t count)
{
    *total = 0;
    for (size_t i = 0; i < count; i++) {
        if (!ofl_add_u64(*total, parts[i], total)) return false;
    }
    return true;
}

ofl_status ofl_plan_account(const ofl_plan_facts *facts, const ofl_plan_settings *settings, uint64_t workspace_elements, ofl_budget *out)
{
    ofl_budget b = {
        .struct_size = sizeof b, .vram_bytes = (uint64_t)facts->figures[OFL_FIGURE_VRAM], .headroom_bytes = facts->headroom_bytes};
    b.runtime_bytes = (uint64_t)facts->figures[OFL_FIGURE_RUNTIME]; /* others allocate these two: no alignment of ours */
    uint64_t hidden;
    ofl_status status = ofl_activation_bytes(&facts->shape, settings->compute_type, settings->tokens_per_step_cap, settings->sequences,
                                             workspace_elements, &hidden, &b.logits_bytes, &b.workspace_bytes);
    if (status != OFL_OK) return status;
    bool good = sum(&b.workspace_bytes, (uint64_t[]){b.workspace_bytes, settings->workspace_bytes}, 2) &&
                product(settings->sequences, settings->kv_bytes_per_sequence, &b.kv_bytes) &&
                sum(&b.activation_bytes, (uint64_t[]){hidden, b.logits_bytes, b.workspace_bytes}, 3) &&
                sum(&b.total_bytes, (uint64_t[]){b.kv_bytes, b.activation_bytes, b.runtime_bytes, b.headroom_bytes}, 4);
    if (!good)
        return ofl_fail(OFL_ERROR_OVERFLOW, "device memory of %u sequences: more than 64 bits hold; lower sequences or context",
                        settings->sequences);
    *out = b;
    return OFL_OK;
}

ofl_status ofl_plan_account_weights(ofl_budget *budget, uint64_t resident_bytes, uint64_t ring_bytes)
{
    uint64_t parts[] = {resident_bytes,        ring_bytes, budget->kv_bytes, budget->activation_bytes, budget->runtime_bytes,
                        budget->headroom_bytes};
    if (!sum(&budget->total_bytes, parts, OFL_COUNT_OF(parts)))
        return ofl_fail(OFL_ERROR_OVERFLOW, "device memory: the sum overflows 64 bits");
    budget->resident_bytes = resident_bytes;
    budget->ring_bytes = ring_bytes;
    return OFL_OK;
}

/* Paged KV: a sequence's context is counted in whole blocks. */
static ofl_status whole_blocks(uint64_t tokens, uint64_t *out)
{
    if (!ofl_align_u64(tokens, OFL_KV_BLOCK_TOKENS, out))
        return ofl_fail(OFL_ERROR_OVERFLOW, "context: more tokens than 64 bits hold; lower it");
    return OFL_OK;
}

ofl_status ofl_plan_account_kv(const ofl_model *model, ofl_plan_facts *facts, ofl_plan_settings *settings)
{
    uint64_t tokens = 0;
    ofl_status status = whole_blocks(settings->context_tokens, &tokens);
    if (status == OFL_OK) status = ofl_model_kv_bytes(model, settings->kv_type, tokens, &settings->kv_bytes_per_sequence);
    if (status == OFL_OK) status = ofl_model_kv_bytes_per_token(model, settings->kv_type, &facts->kv_bytes_per_token);
    if (status == OFL_OK) status = ofl_model_state_bytes(model, &facts->state_bytes);
    if (status != OFL_OK) return status;
    settings->kv_bytes_per_token = facts->kv_bytes_per_token;
    settings->kv_block_tokens = OFL_KV_BLOCK_TOKENS;
    if (!ofl_add_u64(settings->kv_bytes_per_sequence, facts->state_bytes, &settings->kv_bytes_per_sequence))
        return ofl_fail(OFL_ERROR_OVERFLOW, "KV of one sequence: more than 64 bits hold; lower the context");
    return OFL_OK;
}

/* The region holds its sequences to the end of their context, no more. */
void ofl_plan_account_capacity(ofl_plan_settings *settings)
{
    uint64_t blocks = settings->context_tokens / OFL_KV_BLOCK_TOKENS + (settings->context_tokens % OFL_KV_BLOCK_TOKENS != 0);
    settings->max_sequences = settings->sequences;
    settings->kv_capacity_tokens = blocks * OFL_KV_BLOCK_TOKENS * settings->sequences;
}
