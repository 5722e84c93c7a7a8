#include "batch/cpu/forward_cpu.h"

#include <string.h>

#include "batch/cpu/attention.h"
#include "batch/cpu/expand.h"
#include "batch/cpu/rows.h"
#include "batch/cpu/threads.h"
#include "batch/step_check.h"
#include "batch/supports.h"
#include "common/app_error.h"

static ofl_status check(const cpu_forward *f, const ofl_step *given, const int32_t *ids)
{
    const step_limits limits = {.tokens = f->settings.tokens_per_step_cap,
                                .kv_blocks = f->cache.block_count,
                                .kv_block_tokens = f->settings.kv_block_tokens,
                                .vocabulary = f->shape.vocab_size,
                                .logits_rows = f->logits_rows};
    return step_check(&limits, given, ids);
}

ofl_status cpu_vector(weights *w, uint32_t tensor, float *to)
{
    weight_vector v;
    ofl_status status = weights_vector(w, tensor, &v);
    if (status == OFL_OK) expand_to_f32(v.dtype, v.data, v.elements, to);
    return status;
}

static ofl_status embed(forward_run *s, const int32_t *ids)
{
    cpu_forward *f = s->f;
    uint32_t hidden = f->shape.hidden_size;
    ofl_tensor_info info = {.struct_size = sizeof info};
    ofl_status status = ofl_model_tensor_get(f->model, f->tokens_tensor, &info);
    if (status == OFL_OK) status = ofl_engine_rows(f->engine, f->tokens_tensor, (const uint32_t *)ids, s->tokens, f->token_rows);
    if (status != OFL_OK) return app_forward(status);
    for (uint32_t t = 0; t < s->tokens; t++) expand_to_f32(info.dtype, f->token_rows[t], hidden, f->room.residual + (uint64_t)t * hidden);
    return OFL_OK;
}

static void make_tables(forward_run *s)
{
    float *table = s->f->room.tables;
    for (uint32_t i = 0; i < s->given->item_count; i++) {
        const ofl_step_item *item = &s->given->items[i];
        for (uint32_t t = 0; t < item->token_count; t++, table += s->f->turns.dim)
            rope_table(&s->f->turns, item->first_position + t, table);
    }
}

static void *input_row(const cpu_forward *f, uint64_t token, uint64_t columns)
{
    return (uint8_t *)f->room.inputs + token * columns * matmul_type_bytes(f->settings.compute_type);
}

/* The residual stream's row through the norm, as the next product reads it. The wide buffer is free then. */
static ofl_status normalise_row(void *context, uint32_t thread, uint64_t token)
{
    forward_run *s = context;
    cpu_forward *f = s->f;
    uint32_t hidden = f->shape.hidden_size;
    float *normed = f->room.wide + token * hidden;
    (void)thread;
    rows_norm(f->room.residual + token * hidden, s->vector, hidden, f->epsilon, normed);
    rows_pack(normed, hidden, f->settings.compute_type, input_row(f, token, hidden));
    return OFL_OK;
}

static ofl_status normalise(forward_run *s, ofl_tensor_role role)
{
    ofl_status status = cpu_vector(s->f->walk, tensor_of(s->f->model, s->block, role), s->f->vector);
    s->vector = s->f->vector;
    return status == OFL_OK ? threads_each(s->f->threads, s->tokens, normalise_row, s) : status;
}

/* The walk's next matrix, part by part, times the inputs. */
static ofl_status multiply(forward_run *s, uint32_t tokens, ofl_tensor_role bias, float *outputs, uint64_t stride, bool add)
{
    cpu_forward *f = s->f;
    uint32_t bias_tensor = bias == OFL_ROLE_OTHER ? NO_TENSOR : tensor_of(f->model, s->block, bias);
    ofl_status status = bias_tensor == NO_TENSOR ? OFL_OK : cpu_vector(f->walk, bias_tensor, f->vector);
    weight_part part = {0};
    while (status == OFL_OK && !part.last) {
        status = weights_next(f->walk, &part);
        if (status != OFL_OK) break;
        product p = {.weights = part.data,
                     .dtype = part.dtype,
                     .rows = part.row_count,
                     .columns = part.columns,
                     .inputs = f->room.inputs,
                     .tokens = tokens,
                     .outputs = outputs + part.row_first,
                     .stride = stride,
                     .bias = bias_tensor == NO_TENSOR ? NULL : f->vector + part.row_first,
                     .add = add};
        status = matmul_run(f->products, &p);
        if (status == OFL_OK) status = weights_done(f->walk);
    }
    return status;
}

static void norm_heads(float *row, uint32_t heads, uint32_t dim, const float *weight, float epsilon)
{
    for (uint32_t h = 0; h < heads; h++) rows_norm(row + h * dim, weight, dim, epsilon, row + h * dim);
}

typedef struct turning { /* q/k norm, rotation and storing of a block's new keys and values */
    forward_run *run;
    const float *q_norm, *k_norm; /* NULL: none */
} turning;

static void turn_token(const turning *t, const ofl_step_item *item, uint64_t token, uint32_t position)
{
    cpu_forward *f = t->run->f;
    float *queries = f->room.wide + token * ((uint64_t)f->q + 2 * f->kv_row), *keys = queries + f->q;
    const float *table = f->room.tables + token * f->turns.dim;
    uint32_t dim = f->shape.head_dim_k;
    if (t->q_norm != NULL) norm_heads(queries, f->shape.head_count, dim, t->q_norm, f->epsilon);
    if (t->k_norm != NULL) norm_heads(keys, f->shape.head_count_kv, dim, t->k_norm, f->epsilon);
    rope_turn(&f->turns, table, queries, f->shape.head_count, dim);
    rope_turn(&f->turns, table, keys, f->shape.head_count_kv, dim);
    kv_store(&f->cache, t->run->block, item->blocks, position, keys, keys + f->kv_row);
}

static ofl_status turn_share(void *context, uint32_t thread, uint64_t index)
{
    const turning *t = context;
    const ofl_step_item *items = t->run->given->items;
    uint64_t token = 0;
    (void)thread;
    for (uint64_t i = 0; i < index; i++) token += items[i].token_count;
    for (uint32_t i = 0; i < items[index].token_count; i++) turn_token(t, &items[index], token + i, items[index].first_position + i);
    return OFL_OK;
}

static ofl_status head_norm(forward_run *s, ofl_tensor_role role, float *room, const float **out)
{
    uint32_t tensor = tensor_of(s->f->model, s->block, role);
    *out = tensor == NO_TENSOR ? NULL : room;
    return tensor == NO_TENSOR ? OFL_OK : cpu_vector(s->f->walk, tensor, room);
}

static ofl_status turn(forward_run *s)
{
    float q_norm[KV_MAX_DIM], k_norm[KV_MAX_DIM];
    turning t = {.run = s};
    ofl_status status = head_norm(s, OFL_ROLE_ATTN_Q_NORM, q_norm, &t.q_norm);
    if (status == OFL_OK) status = head_norm(s, OFL_ROLE_ATTN_K_NORM, k_norm, &t.k_norm);
    return status == OFL_OK ? threads_each(s->f->threads, s->given->item_count, turn_share, &t) : status;
}

static ofl_status attend(forward_run *s)
{
    cpu_forward *f = s->f;
    uint64_t before = ofl_device_now_ns(f->device), row = (uint64_t)f->q + 2 * f->kv_row;
    float *outputs = f->room.wide + s->tokens * row;
    ofl_status status = turn(s);
    if (status != OFL_OK) return status;
    attention a = {.cache = &f->cache,
                   .heads = f->shape.head_count,
                   .scale = f->attention_scale,
                   .items = s->given->items,
                   .item_count = s->given->item_count,
                   .layer = s->block,
                   .queries = f->room.wide,
                   .query_stride = row,
                   .outputs = outputs};
    status = attention_run(&a, f->threads);
    rows_pack(outputs, (uint64_t)s->tokens * f->q, f->settings.compute_type, f->room.inputs);
    s->attention_ns += ofl_device_now_ns(f->device) - before;
    return status;
}

static ofl_status attention_block(forward_run *s)
{
    cpu_forward *f = s->f;
    uint64_t row = (uint64_t)f->q + 2 * f->kv_row;
    ofl_status status = normalise(s, OFL_ROLE_ATTN_NORM);
    if (status == OFL_OK) status = multiply(s, s->tokens, OFL_ROLE_ATTN_Q_BIAS, f->room.wide, row, false);
    if (status == OFL_OK) status = multiply(s, s->tokens, OFL_ROLE_ATTN_K_BIAS, f->room.wide + f->q, row, false);
    if (status == OFL_OK) status = multiply(s, s->tokens, OFL_ROLE_ATTN_V_BIAS, f->room.wide + f->q + f->kv_row, row, false);
    if (status == OFL_OK) status = attend(s);
    if (status == OFL_OK) status = multiply(s, s->tokens, OFL_ROLE_OTHER, f->room.residual, f->shape.hidden_size, true);
    return status;
}

static ofl_status gate_row(void *context, uint32_t thread, uint64_t token)
{
    cpu_forward *f = ((forward_run *)context)->f;
    uint32_t size = f->shape.ffn_size;
    float *gate = f->room.wide + token * 2 * size;
    (void)thread;
    rows_gate(gate, gate + size, size);
    rows_pack(gate, size, f->settings.compute_type, input_row(f, token, size));
    return OFL_OK;
}

static ofl_status feed_forward_block(forward_run *s)
{
    cpu_forward *f = s->f;
    uint64_t row = 2 * (uint64_t)f->shape.ffn_size;
    ofl_status status = normalise(s, OFL_ROLE_FFN_NORM);
    if (status == OFL_OK) status = multiply(s, s->tokens, OFL_ROLE_OTHER, f->room.wide, row, false);
    if (status == OFL_OK) status = multiply(s, s->tokens, OFL_ROLE_OTHER, f->room.wide + f->shape.ffn_size, row, false);
    if (status == OFL_OK) status = threads_each(f->threads, s->tokens, gate_row, s);
    if (status == OFL_OK) status = multiply(s, s->tokens, OFL_ROLE_OTHER, f->room.residual, f->shape.hidden_size, true);
    return status;
}

ofl_status forward_block(forward_run *s)
{
    ofl_status status = attention_block(s);
    return status == OFL_OK ? feed_forward_block(s) : status;
}

/* Only the rows whose next token is wanted go through the head. The walk goes over its parts in any case: every step reads the same
 * weights. */
ofl_status forward_head(forward_run *s)
{
    cpu_forward *f = s->f;
    uint32_t hidden = f->shape.hidden_size;
    uint64_t token = 0;
    s->rows = 0;
    s->block = f->shape.block_count;
    ofl_status status = cpu_vector(f->walk, tensor_of(f->model, s->block, OFL_ROLE_OUTPUT_NORM), f->vector);
    if (status != OFL_OK) return status;
    for (uint32_t i = 0; i < s->given->item_count; i++) {
        token += s->given->items[i].token_count;
        if (!s->given->items[i].wants_logits) continue;
        float *row = f->room.last + (uint64_t)s->rows * hidden;
        rows_norm(f->room.residual + (token - 1) * hidden, f->vector, hidden, f->epsilon, row);
        rows_pack(row, hidden, f->settings.compute_type, input_row(f, s->rows++, hidden));
    }
    return multiply(s, s->rows, OFL_ROLE_OTHER, f->room.logits, f->shape.vocab_size, false);
}

static ofl_status run(forward_run *s, const int32_t *ids)
{
    ofl_status status = embed(s, ids);
    if (status != OFL_OK) return status;
    make_tables(s);
    for (s->block = 0; s->block < s->f->shape.block_count && status == OFL_OK; s->block++) status = forward_block(s);
    if (status == OFL_OK) status = forward_head(s);
    if (status != OFL_OK) return status;
    status = ofl_engine_step_end(s->f->engine);
    return status == OFL_OK ? OFL_OK : app_forward(status);
}

static ofl_status cpu_step(forward *base, const ofl_step *given, const int32_t *tokens, uint32_t usable, row_choice *rows)
{
    cpu_forward *f = (cpu_forward *)(void *)base;
    ofl_status status = check(f, given, tokens);
    if (status != OFL_OK) return status;
    forward_run s = {.f = f, .given = given, .tokens = given->shape.tokens};
    uint64_t before = ofl_device_now_ns(f->device);
    weights_rewind(f->walk);
    status = run(&s, tokens);
    if (status != OFL_OK) {
        weights_abandon(f->walk);
        return status;
    }
    f->times.step = (double)(ofl_device_now_ns(f->device) - before) * 1e-9;
    f->times.wait = (double)weights_waited_ns(f->walk) * 1e-9;
    f->times.attention = (double)s.attention_ns * 1e-9;
    f->times.compute = f->times.step - f->times.wait;
    if (rows != NULL) choose_rows(rows, s.rows, f->room.logits, f->shape.vocab_size, usable, f->scratch);
    return OFL_OK;
}

static ofl_status cpu_logits(forward *base, const float **out)
{
    *out = ((cpu_forward *)(void *)base)->room.logits;
    return OFL_OK;
}

static void cpu_times(const forward *base, forward_times *out) { *out = ((const cpu_forward *)(const void *)base)->times; }

const forward_kind forward_cpu = {.name = "CPU",
                                  .open = cpu_open,
                                  .close = cpu_close,
                                  .shrink = cpu_shrink,
                                  .step = cpu_step,
                                  .logits = cpu_logits,
                                  .times = cpu_times,
                                  .measure = cpu_measure};
