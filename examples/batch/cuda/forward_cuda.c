#include "batch/cuda/forward_cuda.h"

#include <string.h>

#include "batch/cuda/device_current.h"
#include "batch/step_check.h"
#include "batch/supports.h"
#include "common/app_error.h"

_Static_assert(KERNEL_TOPS_MOST == LOGPROBS_MAX_TOP, "the kernels list as many candidates as a request may ask for");

static const void *table_of(const cuda_forward *f, uint64_t offset) { return f->room.step + offset; }

/* ---- weights ---- */

/* A norm or a bias as float32 in device memory, in the stream's order; *out NULL: the model has none. What stays where it is, is read there. */
static ofl_status vector(cuda_run *s, cuda_vector which, ofl_tensor_role role)
{
    cuda_forward *f = s->f;
    uint32_t tensor = tensor_of(f->model, s->block, role);
    weight_vector v;
    s->vectors[which] = NULL;
    if (tensor == NO_TENSOR) return OFL_OK;
    ofl_status status = weights_vector(f->walk, tensor, &v);
    if (status != OFL_OK) return status;
    s->vectors[which] = v.stays && v.dtype == OFL_DTYPE_F32 ? v.data : f->room.vectors[which];
    if (s->vectors[which] == v.data) return OFL_OK;
    kernel_expand_args args = {
        .from = v.data, .dtype = v.dtype, .elements = v.elements, .to = f->room.vectors[which], .to_type = OFL_COMPUTE_F32};
    return kernel_expand(f->stream, &args);
}

static bool as_products_read(const cuda_forward *f, ofl_dtype dtype)
{
    return dtype == (f->settings.compute_type == OFL_COMPUTE_BF16 ? OFL_DTYPE_BF16 : OFL_DTYPE_F32);
}

/* Rows of a part, as many at a time as there is room to expand. */
static ofl_status multiply_part(cuda_forward *f, const weight_part *part, gemm_product p)
{
    if (as_products_read(f, part->dtype)) {
        p.weights = part->data;
        p.rows = part->row_count;
        return gemm_run(f->products, &p);
    }
    uint64_t row_bytes = 0, most = f->room.expanded_elements / part->columns;
    ofl_status status = ofl_dtype_bytes(part->dtype, part->columns, &row_bytes);
    if (status != OFL_OK) return app_forward(status);
    for (uint64_t row = 0; row < part->row_count && status == OFL_OK; row += p.rows) {
        p.rows = part->row_count - row < most ? part->row_count - row : most;
        kernel_expand_args args = {.from = (const uint8_t *)part->data + row * row_bytes,
                                   .dtype = part->dtype,
                                   .elements = p.rows * part->columns,
                                   .to = f->room.expanded,
                                   .to_type = f->settings.compute_type};
        status = kernel_expand(f->stream, &args);
        p.weights = f->room.expanded;
        if (status == OFL_OK) status = gemm_run(f->products, &p);
        p.outputs += p.rows;
    }
    return status;
}

/* The walk's next matrix, part by part, times the inputs. */
static ofl_status multiply(cuda_run *s, uint32_t tokens, float *outputs, uint64_t stride, bool add)
{
    cuda_forward *f = s->f;
    weight_part part = {0};
    ofl_status status = OFL_OK;
    while (status == OFL_OK && !part.last) {
        status = weights_next(f->walk, &part);
        gemm_product p = {.columns = part.columns, .inputs = f->room.inputs, .tokens = tokens, .stride = stride, .add = add};
        p.outputs = outputs + part.row_first;
        if (status == OFL_OK && tokens > 0) status = multiply_part(f, &part, p);
        if (status == OFL_OK) status = weights_done(f->walk);
    }
    return status;
}

/* ---- blocks ---- */

static ofl_status normalise(cuda_run *s, ofl_tensor_role role, const uint32_t *index, uint32_t rows)
{
    cuda_forward *f = s->f;
    uint32_t hidden = f->shape.hidden_size;
    ofl_status status = vector(s, VECTOR_NORM, role);
    if (status != OFL_OK) return status;
    kernel_norm_args args = {.from = f->room.residual,
                             .from_stride = hidden,
                             .index = index,
                             .weight = s->vectors[VECTOR_NORM],
                             .epsilon = f->epsilon,
                             .columns = hidden,
                             .to = f->room.inputs,
                             .to_stride = hidden,
                             .to_type = f->settings.compute_type,
                             .rows = rows};
    return kernel_norm(f->stream, &args);
}

ofl_status cuda_rope(cuda_run *s)
{
    cuda_forward *f = s->f;
    kernel_rope_args args = {.frequencies = table_of(f, f->exchange.frequencies),
                             .magnitude = f->turns.magnitude,
                             .dim = f->turns.dim,
                             .places = table_of(f, f->layout.places),
                             .tables = f->room.tables,
                             .tokens = s->tokens};
    return kernel_rope(f->stream, &args);
}

static ofl_status turn(cuda_run *s)
{
    cuda_forward *f = s->f;
    kernel_turn_args args = {.queries = f->room.wide,
                             .keys = f->room.wide + f->q,
                             .values = f->room.wide + f->q + f->kv_row,
                             .stride = (uint64_t)f->q + 2 * f->kv_row,
                             .q_bias = s->vectors[VECTOR_Q_BIAS],
                             .k_bias = s->vectors[VECTOR_K_BIAS],
                             .v_bias = s->vectors[VECTOR_V_BIAS],
                             .q_norm = s->vectors[VECTOR_Q_NORM],
                             .k_norm = s->vectors[VECTOR_K_NORM],
                             .epsilon = f->epsilon,
                             .tables = f->room.tables,
                             .rope_dim = f->turns.dim,
                             .pairing = f->turns.pairing,
                             .heads = f->shape.head_count,
                             .cache = f->cache,
                             .layer = s->block,
                             .places = table_of(f, f->layout.places),
                             .blocks = table_of(f, f->layout.blocks),
                             .tokens = s->tokens};
    return kernel_turn(f->stream, &args);
}

static ofl_status attend(cuda_run *s)
{
    cuda_forward *f = s->f;
    kernel_attention_args args = {.queries = f->room.wide,
                                  .query_stride = (uint64_t)f->q + 2 * f->kv_row,
                                  .scale = f->attention_scale,
                                  .heads = f->shape.head_count,
                                  .cache = f->cache,
                                  .layer = s->block,
                                  .blocks = table_of(f, f->layout.blocks),
                                  .parts = table_of(f, f->layout.parts),
                                  .to = f->room.inputs,
                                  .to_stride = f->q,
                                  .to_type = f->settings.compute_type,
                                  .partials = f->room.partials,
                                  .max_parts = s->parts};
    kernel_merge_args merge = {.partials = f->room.partials,
                               .merges = table_of(f, f->layout.merges),
                               .heads = f->shape.head_count,
                               .dim = f->shape.head_dim_k,
                               .to = f->room.inputs,
                               .to_stride = f->q,
                               .to_type = f->settings.compute_type,
                               .max_merges = s->merges};
    ofl_status status = kernel_attention(f->stream, &args);
    return status == OFL_OK ? kernel_merge_parts(f->stream, &merge) : status;
}

static ofl_status attention_block(cuda_run *s)
{
    cuda_forward *f = s->f;
    uint64_t row = (uint64_t)f->q + 2 * f->kv_row;
    float *queries = f->room.wide, *keys = queries + f->q, *values = keys + f->kv_row;
    ofl_status status = normalise(s, OFL_ROLE_ATTN_NORM, NULL, s->tokens);
    if (status == OFL_OK) status = vector(s, VECTOR_Q_BIAS, OFL_ROLE_ATTN_Q_BIAS);
    if (status == OFL_OK) status = multiply(s, s->tokens, queries, row, false);
    if (status == OFL_OK) status = vector(s, VECTOR_K_BIAS, OFL_ROLE_ATTN_K_BIAS);
    if (status == OFL_OK) status = multiply(s, s->tokens, keys, row, false);
    if (status == OFL_OK) status = vector(s, VECTOR_V_BIAS, OFL_ROLE_ATTN_V_BIAS);
    if (status == OFL_OK) status = multiply(s, s->tokens, values, row, false);
    if (status == OFL_OK) status = vector(s, VECTOR_Q_NORM, OFL_ROLE_ATTN_Q_NORM);
    if (status == OFL_OK) status = vector(s, VECTOR_K_NORM, OFL_ROLE_ATTN_K_NORM);
    if (status == OFL_OK) status = turn(s);
    if (status == OFL_OK) status = attend(s);
    return status == OFL_OK ? multiply(s, s->tokens, f->room.residual, f->shape.hidden_size, true) : status;
}

static ofl_status gate(cuda_run *s)
{
    cuda_forward *f = s->f;
    uint32_t size = f->shape.ffn_size;
    kernel_gate_args args = {.gate = f->room.wide,
                             .up = f->room.wide + size,
                             .stride = 2 * (uint64_t)size,
                             .columns = size,
                             .to = f->room.inputs,
                             .to_stride = size,
                             .to_type = f->settings.compute_type,
                             .rows = s->tokens};
    return kernel_gate(f->stream, &args);
}

static ofl_status feed_forward_block(cuda_run *s)
{
    cuda_forward *f = s->f;
    uint64_t row = 2 * (uint64_t)f->shape.ffn_size;
    ofl_status status = normalise(s, OFL_ROLE_FFN_NORM, NULL, s->tokens);
    if (status == OFL_OK) status = multiply(s, s->tokens, f->room.wide, row, false);
    if (status == OFL_OK) status = multiply(s, s->tokens, f->room.wide + f->shape.ffn_size, row, false);
    if (status == OFL_OK) status = gate(s);
    return status == OFL_OK ? multiply(s, s->tokens, f->room.residual, f->shape.hidden_size, true) : status;
}

ofl_status cuda_block(cuda_run *s)
{
    ofl_status status = attention_block(s);
    return status == OFL_OK ? feed_forward_block(s) : status;
}

/* The walk goes over the head's parts in any case: every step reads the same weights. */
ofl_status cuda_head(cuda_run *s)
{
    cuda_forward *f = s->f;
    s->block = f->shape.block_count;
    ofl_status status = normalise(s, OFL_ROLE_OUTPUT_NORM, table_of(f, f->layout.row_tokens), s->rows);
    return status == OFL_OK ? multiply(s, s->rows, f->room.logits, f->shape.vocab_size, false) : status;
}

/* ---- steps ---- */

ofl_status cuda_sample(cuda_run *s, uint32_t usable, bool tops)
{
    cuda_forward *f = s->f;
    const cuda_exchange *x = &f->exchange;
    kernel_sample_args args = {.logits = f->room.logits,
                               .stride = f->shape.vocab_size,
                               .usable = usable,
                               .draws = table_of(f, x->draws),
                               .choices = (void *)(x->device + x->choices),
                               .tops = tops ? (void *)(x->device + x->tops) : NULL,
                               .tops_stride = KERNEL_TOPS_MOST,
                               .rows = s->rows};
    return kernel_sample(f->stream, &args);
}

/* How the rows' tokens are to be chosen, into the exchange; *tops_out: somebody wants the likeliest ids. */
static void fill_draws(const cuda_forward *f, uint32_t rows, const row_choice *choices, bool *tops_out)
{
    kernel_draw *to = (void *)(f->exchange.host + f->exchange.draws);
    *tops_out = false;
    for (uint32_t i = 0; i < rows && choices != NULL; i++) {
        const row_choice *c = &choices[i];
        to[i] = (kernel_draw){.temperature = c->how.temperature,
                              .top_p = c->how.top_p,
                              .random = c->how.random,
                              .top_k = c->how.top_k,
                              .tops = c->logprobs > 0 ? c->logprobs - 1 : 0};
        *tops_out = *tops_out || to[i].tops > 0;
    }
}

/* All that the step needs from the host, into the exchange. */
static ofl_status fill(cuda_run *s, const ofl_step *step, const int32_t *ids, const row_choice *choices, bool *tops_out)
{
    cuda_forward *f = s->f;
    const cuda_exchange *x = &f->exchange;
    ofl_status status = kernel_step_fill(&f->limits, &f->layout, step, x->host);
    if (status != OFL_OK) return status;
    status = ofl_engine_rows(f->engine, f->tokens_tensor, (const uint32_t *)ids, s->tokens, f->token_rows);
    if (status != OFL_OK) return app_forward(status);
    memcpy(x->host + x->row_pointers, f->token_rows, s->tokens * sizeof *f->token_rows);
    const kernel_counts *counts = (const void *)(x->host + f->layout.counts);
    s->rows = counts->rows;
    s->parts = counts->parts;
    s->merges = counts->merges;
    fill_draws(f, s->rows, choices, tops_out);
    return OFL_OK;
}

ofl_status cuda_upload(const cuda_forward *f)
{
    if (f->room.step == f->exchange.device) return OFL_OK;
    kernel_expand_args args = {.from = f->exchange.device,
                               .dtype = OFL_DTYPE_F32,
                               .elements = f->exchange.in_bytes / sizeof(float),
                               .to = f->room.step,
                               .to_type = OFL_COMPUTE_F32};
    return kernel_expand(f->stream, &args);
}

static ofl_status embed(cuda_run *s)
{
    cuda_forward *f = s->f;
    kernel_embed_args args = {.rows = table_of(f, f->exchange.row_pointers),
                              .dtype = f->tokens_dtype,
                              .columns = f->shape.hidden_size,
                              .to = f->room.residual,
                              .to_stride = f->shape.hidden_size,
                              .tokens = s->tokens};
    return kernel_embed(f->stream, &args);
}

static ofl_status queue(cuda_run *s, uint32_t usable, bool choose, bool tops)
{
    cuda_forward *f = s->f;
    ofl_status status = cuda_upload(f);
    if (status == OFL_OK) status = embed(s);
    if (status == OFL_OK) status = cuda_rope(s);
    for (s->block = 0; s->block < f->shape.block_count && status == OFL_OK; s->block++) status = cuda_block(s);
    if (status == OFL_OK) status = cuda_head(s);
    if (status == OFL_OK && choose) status = cuda_sample(s, usable, tops);
    if (status != OFL_OK) return status;
    status = ofl_engine_step_end(f->engine);
    return status == OFL_OK ? OFL_OK : app_forward(status);
}

static void take_choice(const cuda_forward *f, uint32_t row, row_choice *to)
{
    const kernel_choice *chosen = (const kernel_choice *)(const void *)(f->exchange.host + f->exchange.choices) + row;
    const kernel_top *tops = (const kernel_top *)(const void *)(f->exchange.host + f->exchange.tops) + (uint64_t)row * KERNEL_TOPS_MOST;
    to->token = chosen->token;
    if (to->token < 0 || to->logprobs == 0) return;
    to->entries[0] = logprob_of(chosen->token, chosen->logit, (double)chosen->best, chosen->log_sum);
    for (uint32_t i = 1; i < to->logprobs; i++) to->entries[i] = logprob_of(tops[i - 1].id, tops[i - 1].logit, (double)chosen->best, chosen->log_sum);
}

static ofl_status check(const cuda_forward *f, const ofl_step *given, const int32_t *ids)
{
    const step_limits limits = {.tokens = f->settings.tokens_per_step_cap,
                                .kv_blocks = f->cache.block_count,
                                .kv_block_tokens = f->settings.kv_block_tokens,
                                .vocabulary = f->shape.vocab_size,
                                .logits_rows = f->logits_rows};
    return step_check(&limits, given, ids);
}

static ofl_status cuda_step(forward *base, const ofl_step *given, const int32_t *ids, uint32_t usable, row_choice *rows)
{
    cuda_forward *f = (cuda_forward *)(void *)base;
    cuda_run s = {.f = f, .tokens = given->shape.tokens};
    bool tops = false;
    ofl_status status = check(f, given, ids);
    if (status == OFL_OK) status = device_enter(f->ordinal);
    if (status == OFL_OK) status = fill(&s, given, ids, rows, &tops);
    if (status != OFL_OK) return status;
    uint64_t before = ofl_device_now_ns(f->device);
    weights_rewind(f->walk);
    marks_begin(f->marks);
    status = queue(&s, usable, rows != NULL && s.rows > 0, tops);
    if (status != OFL_OK) weights_abandon(f->walk);
    ofl_status waited = ofl_stream_wait(f->device, f->stream); /* after a failure too: what is queued reads the exchange */
    if (waited == OFL_ERROR_DEVICE_LOST || (status == OFL_OK && waited != OFL_OK)) status = app_forward(waited);
    if (status == OFL_OK) status = marks_read(f->marks, &f->times.wait);
    if (status != OFL_OK) return status;
    f->times.step = (double)(ofl_device_now_ns(f->device) - before) * 1e-9;
    f->times.compute = f->times.step - f->times.wait;
    f->rows = s.rows;
    for (uint32_t i = 0; i < s.rows && rows != NULL; i++) take_choice(f, i, &rows[i]);
    return OFL_OK;
}

/* For tests: a run takes tokens alone. */
static ofl_status cuda_logits(forward *base, const float **out)
{
    cuda_forward *f = (cuda_forward *)(void *)base;
    uint64_t row = (uint64_t)f->shape.vocab_size * sizeof(float);
    if (f->host_logits == NULL) f->host_logits = calloc(f->logits_rows, row);
    if (f->host_logits == NULL) return app_fail(OFL_ERROR_HOST_MEMORY, "logits: out of host memory; free some");
    ofl_status status =
        ofl_copy(f->device, f->stream, OFL_DEVICE_TO_HOST, f->host_logits, f->room.logits, f->rows * row, OFL_HOST_PAGEABLE);
    if (status == OFL_OK) status = ofl_stream_wait(f->device, f->stream);
    if (status == OFL_OK) *out = f->host_logits;
    return status == OFL_OK ? OFL_OK : app_forward(status);
}

static void cuda_times(const forward *base, forward_times *out) { *out = ((const cuda_forward *)(const void *)base)->times; }

const forward_kind forward_cuda = {.name = "CUDA",
                                   .chooses_on_device = true,
                                   .supports = cuda_supports,
                                   .workload = cuda_workload,
                                   .open = cuda_open,
                                   .close = cuda_close,
                                   .shrink = cuda_shrink,
                                   .step = cuda_step,
                                   .logits = cuda_logits,
                                   .times = cuda_times,
                                   .measure = cuda_measure};
