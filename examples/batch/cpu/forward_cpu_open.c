#include <stdlib.h>
#include <string.h>

#include "batch/cpu/forward_cpu.h"
#include "batch/cpu/threads.h"
#include "batch/cpu/tile.h"
#include "batch/forward_sizes.h"
#include "batch/supports.h"
#include "common/app_error.h"
#include "common/cli.h"

static uint64_t max_u64(uint64_t a, uint64_t b) { return a > b ? a : b; }

void forward_derive(cpu_forward *f)
{
    const ofl_model_shape *s = &f->shape;
    f->q = s->head_count * s->head_dim_k;
    f->kv_row = s->head_count_kv * s->head_dim_k;
    f->epsilon = (float)s->norm_epsilon;
    f->attention_scale = forward_attention_scale(s);
}

/* A buffer from the arena, 256-byte aligned; NULL when what is left is too small. */
static void *take(uint8_t **at, const uint8_t *end, uint64_t bytes)
{
    uint64_t rounded = (bytes + OFL_ALIGNMENT_BYTES - 1) / OFL_ALIGNMENT_BYTES * OFL_ALIGNMENT_BYTES;
    if (rounded < bytes || rounded > (uint64_t)(end - *at)) return NULL;
    void *taken = *at;
    *at += rounded;
    return taken;
}

static ofl_status lay_out(cpu_forward *f)
{
    const ofl_budget *budget = &f->budget;
    const ofl_model_shape *s = &f->shape;
    uint64_t tokens = f->settings.tokens_per_step_cap, padded = (tokens + TILE_TOKENS - 1) / TILE_TOKENS * TILE_TOKENS;
    uint64_t wide = max_u64(s->hidden_size, max_u64(2 * ((uint64_t)f->q + f->kv_row), 2 * (uint64_t)s->ffn_size));
    uint64_t logits_row = (uint64_t)s->vocab_size * 4 + (uint64_t)s->hidden_size * 4;
    uint8_t *at = f->activations, *end = at + budget->activation_bytes;
    forward_room r = {0};
    f->logits_rows = budget->logits_bytes / logits_row;
    r.logits = take(&at, end, f->logits_rows * s->vocab_size * 4);
    r.last = take(&at, end, f->logits_rows * s->hidden_size * 4);
    r.workspace = take(&at, end, budget->workspace_bytes);
    r.residual = take(&at, end, tokens * s->hidden_size * 4);
    r.tables = take(&at, end, tokens * s->rope_dim * 4);
    r.wide = take(&at, end, tokens * wide * 4);
    r.inputs = take(&at, end, padded * forward_widest(s) * matmul_type_bytes(f->settings.compute_type));
    if (f->logits_rows == 0 || r.logits == NULL || r.last == NULL || r.workspace == NULL || r.residual == NULL || r.tables == NULL ||
        r.wide == NULL || r.inputs == NULL)
        return app_fail(OFL_ERROR_MISMATCH,
                        "forward pass: the plan's %s of activations are too little for %llu tokens a step; make the plan anew",
                        cli_show_bytes((char[32]){0}, budget->activation_bytes, 0), (unsigned long long)tokens);
    /* rows beyond the tokens are multiplied too */
    memset(r.inputs, 0, (size_t)(padded * forward_widest(s) * matmul_type_bytes(f->settings.compute_type)));
    f->room = r;
    return OFL_OK;
}

static ofl_status allocate(cpu_forward *f)
{
    const ofl_budget *budget = &f->budget;
    uint64_t vector = max_u64(forward_widest(&f->shape), (uint64_t)f->kv_row);
    ofl_status status = ofl_device_alloc(f->device, budget->kv_bytes, &f->kv_memory);
    if (status == OFL_OK) status = ofl_device_alloc(f->device, budget->activation_bytes, &f->activations);
    if (status != OFL_OK) return app_forward(status);
    f->vector = calloc(vector, sizeof *f->vector);
    f->token_rows = calloc(f->settings.tokens_per_step_cap, sizeof *f->token_rows);
    f->scratch = calloc(f->shape.vocab_size, 8);
    if (f->vector == NULL || f->token_rows == NULL || f->scratch == NULL) return app_fail(OFL_ERROR_HOST_MEMORY, "forward pass: out of host memory; free some");
    status = lay_out(f);
    if (status == OFL_OK)
        status = kv_init(&f->cache, f->settings.kv_type, &f->shape, f->settings.kv_block_tokens, f->kv_memory, budget->kv_bytes);
    return status;
}

static ofl_status open_walk(cpu_forward *f, const ofl_plan *plan)
{
    uint32_t *tensors = NULL, count = 0;
    f->tokens_tensor = tensor_of_tokens(f->model, &f->shape);
    ofl_status status = tensors_in_order(f->model, &f->shape, &tensors, &count);
    if (status == OFL_OK) status = weights_open(f->model, plan, f->engine, f->device, NULL, tensors, count, &f->walk);
    free(tensors);
    return status;
}

static ofl_status prepare_products(cpu_forward *f)
{
    ofl_status status = matmul_open(f->settings.compute_type, f->threads, f->room.workspace, f->budget.workspace_bytes, &f->products);
    if (status == OFL_OK) status = matmul_prepare(f->products, f->shape.hidden_size);
    if (status == OFL_OK) status = matmul_prepare(f->products, f->q);
    if (status == OFL_OK) status = matmul_prepare(f->products, f->shape.ffn_size);
    return status;
}

static ofl_status open_parts(cpu_forward *f, const ofl_plan *plan)
{
    ofl_status status = ofl_model_shape_get(f->model, &f->shape);
    if (status == OFL_OK) status = ofl_plan_settings_get(plan, &f->settings);
    if (status == OFL_OK) status = ofl_plan_budget_get(plan, &f->budget);
    if (status != OFL_OK) return app_forward(status);
    status = forward_supports(f->model);
    if (status != OFL_OK) return status;
    forward_derive(f);
    status = allocate(f);
    if (status == OFL_OK) status = prepare_products(f);
    if (status == OFL_OK) status = open_walk(f, plan);
    if (status == OFL_OK) status = rope_open(&f->turns, f->model, &f->shape);
    return status;
}

ofl_status cpu_open(const ofl_model *model, const ofl_plan *plan, ofl_engine *engine, ofl_device *device, uint32_t threads, forward **out)
{
    cpu_forward *f = calloc(1, sizeof *f);
    if (f == NULL) return app_fail(OFL_ERROR_HOST_MEMORY, "forward pass: out of host memory; free some");
    f->base.kind = &forward_cpu;
    f->model = model;
    f->engine = engine;
    f->device = device;
    f->threads = threads_choose(threads);
    f->shape.struct_size = sizeof f->shape;
    f->settings.struct_size = sizeof f->settings;
    f->budget.struct_size = sizeof f->budget;
    ofl_status status = open_parts(f, plan);
    if (status == OFL_OK)
        *out = &f->base;
    else
        cpu_close(&f->base);
    return status;
}

static void give_back(cpu_forward *f, void **memory)
{
    if (*memory != NULL) ofl_device_free(f->device, *memory);
    *memory = NULL;
}

static ofl_status shrink_kv(cpu_forward *f, uint64_t bytes)
{
    give_back(f, &f->kv_memory);
    ofl_status status = ofl_device_alloc(f->device, bytes, &f->kv_memory);
    if (status != OFL_OK) return app_forward(status);
    f->budget.kv_bytes = bytes;
    return kv_init(&f->cache, f->settings.kv_type, &f->shape, f->settings.kv_block_tokens, f->kv_memory, bytes);
}

ofl_status cpu_shrink(forward *base, uint32_t tokens_per_step, uint32_t logits_rows, uint64_t kv_tokens)
{
    cpu_forward *f = (cpu_forward *)(void *)base;
    uint64_t kv_bytes = kv_tokens / f->settings.kv_block_tokens * f->cache.block_bytes;
    ofl_budget *b = &f->budget;
    ofl_status status = forward_budget_less(&f->shape, f->settings.compute_type, tokens_per_step, logits_rows, b);
    if (status != OFL_OK) return status;
    f->settings.tokens_per_step_cap = tokens_per_step;
    matmul_close(f->products);
    f->products = NULL;
    give_back(f, &f->activations);
    if (kv_bytes < (uint64_t)f->cache.block_count * f->cache.block_bytes) status = shrink_kv(f, kv_bytes);
    if (status == OFL_OK && ofl_device_alloc(f->device, b->activation_bytes, &f->activations) != OFL_OK)
        status = app_forward(ofl_diagnostic_get()->status);
    if (status == OFL_OK) status = lay_out(f);
    return status == OFL_OK ? prepare_products(f) : status;
}

void cpu_close(forward *base)
{
    cpu_forward *f = (cpu_forward *)(void *)base;
    weights_close(f->walk);
    matmul_close(f->products);
    give_back(f, &f->activations);
    give_back(f, &f->kv_memory);
    free(f->vector);
    free(f->token_rows);
    free(f->scratch);
    free(f);
}
