/* What each layer weighs, for the ways that place whole layers. */
#include <stdio.h>
#include <stdlib.h>

#include "common/app_error.h"
#include "plan/ways.h"

void layers_free(layers *l) { free(l->rows); }

static ofl_status add_tensor(const ofl_model *model, uint32_t index, layers *l)
{
    ofl_tensor_info t = {.struct_size = sizeof t};
    ofl_status status = ofl_model_tensor_get(model, index, &t);
    if (status != OFL_OK) return app_forward(status);
    if (t.tensor_class == OFL_CLASS_LOOKUP) l->lookup_bytes += t.bytes;
    if (t.tensor_class != OFL_CLASS_DENSE && t.tensor_class != OFL_CLASS_EXPERT) return OFL_OK;
    uint32_t at = t.block < 0 ? 0 : (uint32_t)t.block < l->count ? (uint32_t)t.block : l->count - 1;
    uint64_t bytes = (t.bytes + OFL_ALIGNMENT_BYTES - 1) / OFL_ALIGNMENT_BYTES * OFL_ALIGNMENT_BYTES;
    bool matrix = t.n_dims > 1 && t.row_count > 1, expert = t.tensor_class == OFL_CLASS_EXPERT;
    layer *row = &l->rows[at];
    row->bytes += bytes;
    l->bytes += bytes;
    if (expert) row->expert_bytes += bytes;
    if (matrix) *(expert ? &row->expert_elements : &row->elements) += (double)t.elements;
    return OFL_OK;
}

static ofl_status read_kv(const ways_job *job, uint32_t index, layer *row)
{
    const ofl_plan_settings *s = &job->base.settings;
    uint64_t block = s->kv_block_tokens, tokens = (s->context_tokens + block - 1) / block * block;
    ofl_kv_layer kv = {.struct_size = sizeof kv};
    ofl_step_shape one = {.struct_size = sizeof one};
    ofl_status status = ofl_model_kv_layer_get(job->given.model, index, &kv);
    if (status == OFL_OK) status = ofl_plan_decode_step(job->whole, 1, &one);
    if (status == OFL_OK) status = ofl_model_kv_layer_bytes(job->given.model, index, s->kv_type, tokens, &row->kv_bytes);
    if (status == OFL_OK) status = ofl_model_kv_layer_bytes(job->given.model, index, s->kv_type, one.kv_tokens, &row->kv_read);
    if (status != OFL_OK) return app_forward(status);
    row->kv_bytes += kv.state_bytes;
    row->kv_read += kv.state_bytes;
    row->kv_by_head = kv.kind == OFL_KV_FULL || kv.kind == OFL_KV_SLIDING || kv.kind == OFL_KV_CHUNKED;
    row->kv_heads = kv.head_count_kv;
    return OFL_OK;
}

ofl_status layers_read(const ways_job *job, layers *out)
{
    layers l = {.count = job->shape.block_count + 1};
    l.rows = calloc(l.count, sizeof *l.rows);
    ofl_status status = l.rows != NULL ? OFL_OK : app_fail(OFL_ERROR_HOST_MEMORY, "out of host memory");
    for (uint32_t i = 0; status == OFL_OK && i < ofl_model_tensor_count(job->given.model); i++)
        status = add_tensor(job->given.model, i, &l);
    for (uint32_t i = 0; status == OFL_OK && i + 1 < l.count; i++) status = read_kv(job, i, &l.rows[i]);
    if (status == OFL_OK) *out = l;
    else layers_free(&l);
    return status;
}
