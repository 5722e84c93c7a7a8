#include "batch/forward_sizes.h"

#include <math.h>

#include "common/app_error.h"

uint64_t forward_widest(const ofl_model_shape *s)
{
    uint64_t queries = (uint64_t)s->head_count * s->head_dim_k, widest = s->hidden_size;
    if (queries > widest) widest = queries;
    return s->ffn_size > widest ? s->ffn_size : widest;
}

float forward_attention_scale(const ofl_model_shape *s)
{
    return s->attention_scale != 0 ? (float)s->attention_scale : 1.0f / sqrtf((float)s->head_dim_k);
}

ofl_status forward_budget_less(const ofl_model_shape *shape, ofl_compute_type type, uint32_t tokens, uint32_t rows, ofl_budget *budget)
{
    uint64_t hidden = 0, unused;
    ofl_status status = ofl_activation_bytes(shape, type, tokens, rows, 0, &hidden, &budget->logits_bytes, &unused);
    if (status != OFL_OK) return app_forward(status);
    budget->activation_bytes = hidden + budget->logits_bytes + budget->workspace_bytes;
    return OFL_OK;
}
