#include <stdlib.h>
#include <string.h>

#include "batch/cuda/device_current.h"
#include "batch/cuda/forward_cuda.h"
#include "batch/forward_sizes.h"
#include "batch/supports.h"
#include "common/app_error.h"
#include "common/cli.h"

#define SPLIT_POSITIONS 1024u                       /* a longer context of a token that decodes is attended to in parts */
#define EXPANDED_MOST (UINT64_C(16) << 20)          /* elements expanded at a time: products of some thousand rows keep a GPU busy */

static uint64_t max_u64(uint64_t a, uint64_t b) { return a > b ? a : b; }
static uint64_t min_u64(uint64_t a, uint64_t b) { return a < b ? a : b; }
static uint64_t round_up(uint64_t bytes) { return (bytes + OFL_ALIGNMENT_BYTES - 1) / OFL_ALIGNMENT_BYTES * OFL_ALIGNMENT_BYTES; }
static uint64_t type_bytes(ofl_compute_type type) { return type == OFL_COMPUTE_BF16 ? 2 : 4; }

/* ---- what the plan has to count ---- */

/* Of the library of products: sums of 64 tokens in four parts, up to what it is commonly given. */
static uint64_t gemm_bytes(const ofl_model_shape *s) { return min_u64(round_up(1024 * forward_widest(s)), GEMM_WORKSPACE_BYTES); }

/* Elements of the largest matrix that is stored in another type than the products read; 0: none. */
static ofl_status largest_expanded(const ofl_model *model, ofl_compute_type type, uint64_t *out)
{
    *out = 0;
    for (uint32_t i = 0; i < ofl_model_tensor_count(model); i++) {
        ofl_tensor_info t = {.struct_size = sizeof t};
        if (ofl_model_tensor_get(model, i, &t) != OFL_OK) return app_forward(ofl_diagnostic_get()->status);
        bool other = t.dtype != (type == OFL_COMPUTE_BF16 ? OFL_DTYPE_BF16 : OFL_DTYPE_F32);
        if (other && t.tensor_class == OFL_CLASS_DENSE && t.row_count > 1) *out = max_u64(*out, t.elements);
    }
    return OFL_OK;
}

ofl_status cuda_workload(const ofl_model *model, ofl_workload *w)
{
    ofl_model_shape shape = {.struct_size = sizeof shape};
    uint64_t elements;
    if (ofl_model_shape_get(model, &shape) != OFL_OK) return app_forward(ofl_diagnostic_get()->status);
    ofl_status status = largest_expanded(model, w->compute_type, &elements);
    w->workspace_bytes = gemm_bytes(&shape) + round_up(min_u64(elements, EXPANDED_MOST) * type_bytes(w->compute_type));
    return status;
}

ofl_status cuda_supports(ofl_compute_type compute_type, ofl_kv_type kv_type, uint32_t head_dim)
{
    (void)compute_type;
    return kernel_supports(kv_type, head_dim);
}

/* ---- room ---- */

void cuda_derive(cuda_forward *f)
{
    const ofl_model_shape *s = &f->shape;
    f->q = s->head_count * s->head_dim_k;
    f->kv_row = s->head_count_kv * s->head_dim_k;
    f->epsilon = (float)s->norm_epsilon;
    f->attention_scale = forward_attention_scale(s);
}

typedef struct arena {
    uint8_t *at, *end;
    bool full; /* something did not fit */
} arena;

static void *take(arena *a, uint64_t bytes)
{
    uint64_t rounded = round_up(bytes);
    if (rounded < bytes || rounded > (uint64_t)(a->end - a->at)) {
        a->full = true;
        return NULL;
    }
    void *taken = a->at;
    a->at += rounded;
    return taken;
}

static void take_vectors(cuda_forward *f, arena *a)
{
    const uint64_t elements[VECTOR_COUNT] = {f->shape.hidden_size, f->q, f->kv_row, f->kv_row, f->shape.head_dim_k, f->shape.head_dim_k};
    for (uint32_t i = 0; i < VECTOR_COUNT; i++) f->room.vectors[i] = take(a, elements[i] * sizeof(float));
}

/* Of the workspace the products' library gets what was planned for it, the rest is for expanded rows. A plan that was made without it: a half. */
static void take_workspace(cuda_forward *f, arena *a)
{
    uint64_t bytes = f->budget.workspace_bytes / OFL_ALIGNMENT_BYTES * OFL_ALIGNMENT_BYTES;
    cuda_room *r = &f->room;
    r->gemm_bytes = f->settings.workspace_bytes != 0 ? gemm_bytes(&f->shape) : round_up(bytes / 2);
    r->gemm_bytes = min_u64(r->gemm_bytes, bytes);
    r->gemm_workspace = take(a, r->gemm_bytes);
    r->expanded_elements = (bytes - r->gemm_bytes) / type_bytes(f->settings.compute_type);
    r->expanded = take(a, bytes - r->gemm_bytes);
}

static ofl_status take_fixed(cuda_forward *f, arena *a)
{
    const ofl_model_shape *s = &f->shape;
    uint64_t tokens = f->settings.tokens_per_step_cap, c = type_bytes(f->settings.compute_type);
    uint64_t wide = max_u64((uint64_t)f->q + 2 * f->kv_row, 2 * (uint64_t)s->ffn_size);
    cuda_room *r = &f->room;
    *r = (cuda_room){0};
    f->logits_rows = f->budget.logits_bytes / ((uint64_t)s->vocab_size * 4 + s->hidden_size * (4 + c));
    r->logits = take(a, f->logits_rows * s->vocab_size * 4);
    take_workspace(f, a);
    r->residual = take(a, tokens * s->hidden_size * 4);
    r->wide = take(a, tokens * wide * 4);
    r->inputs = take(a, max_u64(tokens, f->logits_rows) * forward_widest(s) * c);
    r->tables = take(a, tokens * s->rope_dim * 4);
    take_vectors(f, a);
    if (!a->full && f->logits_rows != 0 && r->expanded_elements >= forward_widest(s)) return OFL_OK;
    return app_fail(OFL_ERROR_MISMATCH, "forward pass: the plan's %s of activations are too little for %llu tokens a step; make the plan anew",
                    cli_show_bytes((char[32]){0}, f->budget.activation_bytes, 0), (unsigned long long)tokens);
}

/* Where things are in what host and device share. */
static ofl_status lay_out_exchange(cuda_forward *f, uint64_t partial_rows)
{
    cuda_exchange *x = &f->exchange;
    uint64_t rows = f->logits_rows;
    f->limits.partial_rows = partial_rows;
    ofl_status status = kernel_step_layout_make(&f->limits, &f->layout);
    if (status != OFL_OK) return status;
    x->row_pointers = round_up(f->layout.bytes);
    x->draws = x->row_pointers + round_up(f->limits.tokens * sizeof(void *));
    x->frequencies = x->draws + round_up(rows * sizeof(kernel_draw));
    x->in_bytes = x->frequencies + round_up(f->shape.rope_dim / 2 * sizeof(double));
    x->choices = x->in_bytes;
    x->tops = x->choices + round_up(rows * sizeof(kernel_choice));
    x->bytes = x->tops + round_up(rows * KERNEL_TOPS_MOST * sizeof(kernel_top));
    return OFL_OK;
}

/* Tables and partial results share what is left of the activations. */
static ofl_status take_rest(cuda_forward *f, arena *a)
{
    uint64_t row = kernel_partial_bytes(f->shape.head_dim_k), left = (uint64_t)(a->end - a->at);
    uint64_t parts = f->settings.kv_capacity_tokens / SPLIT_POSITIONS + f->settings.sequences;
    uint64_t rows = min_u64(min_u64(left / 2 / row, parts * f->shape.head_count), UINT32_MAX);
    ofl_status status = lay_out_exchange(f, rows);
    if (status == OFL_OK && f->exchange.in_bytes + rows * row + 2 * (uint64_t)OFL_ALIGNMENT_BYTES > left) status = lay_out_exchange(f, 0);
    if (status != OFL_OK) return status;
    if (f->exchange.in_bytes <= (uint64_t)(a->end - a->at)) f->room.step = take(a, f->exchange.in_bytes);
    if (f->limits.partial_rows > 0) f->room.partials = take(a, f->limits.partial_rows * row);
    return OFL_OK;
}

static ofl_status allocate_exchange(cuda_forward *f)
{
    cuda_exchange *x = &f->exchange;
    const void *address = NULL;
    void *host = NULL;
    if (x->host != NULL) ofl_device_host_free(f->device, x->host);
    x->host = NULL;
    ofl_status status = ofl_device_host_alloc(f->device, x->bytes, &host);
    if (status != OFL_OK) return app_forward(status);
    x->host = host;
    memset(host, 0, (size_t)x->bytes);
    memcpy(x->host + x->frequencies, f->turns.frequencies, f->turns.dim / 2 * sizeof(double));
    status = ofl_device_host_address(f->device, host, &address);
    if (status != OFL_OK) return app_forward(status);
    x->device = (uint8_t *)(uintptr_t)address;
    if (f->room.step == NULL) f->room.step = x->device; /* no room for tables on the device: read from here */
    return OFL_OK;
}

ofl_status cuda_lay_out(cuda_forward *f)
{
    arena a = {.at = f->activations, .end = (uint8_t *)f->activations + f->budget.activation_bytes};
    ofl_status status = take_fixed(f, &a);
    f->limits = (kernel_step_limits){.tokens = f->settings.tokens_per_step_cap,
                                     .sequences = (uint32_t)min_u64(f->settings.sequences, f->settings.tokens_per_step_cap),
                                     .rows = (uint32_t)min_u64(f->logits_rows, UINT32_MAX),
                                     .blocks = f->cache.block_count,
                                     .block_tokens = f->settings.kv_block_tokens,
                                     .heads = f->shape.head_count,
                                     .kv_heads = f->shape.head_count_kv,
                                     .split_positions = SPLIT_POSITIONS};
    if (status == OFL_OK) status = take_rest(f, &a);
    if (status == OFL_OK) status = allocate_exchange(f);
    return status;
}

/* ---- opening ---- */

static ofl_status allocate(cuda_forward *f)
{
    const ofl_budget *budget = &f->budget;
    ofl_status status = ofl_device_alloc(f->device, budget->kv_bytes, &f->kv_memory);
    if (status == OFL_OK) status = ofl_device_alloc(f->device, budget->activation_bytes, &f->activations);
    if (status != OFL_OK) return app_forward(status);
    f->token_rows = calloc(f->settings.tokens_per_step_cap, sizeof *f->token_rows);
    if (f->token_rows == NULL) return app_fail(OFL_ERROR_HOST_MEMORY, "forward pass: out of host memory; free some");
    return kv_init(&f->cache, f->settings.kv_type, &f->shape, f->settings.kv_block_tokens, f->kv_memory, budget->kv_bytes);
}

static ofl_status open_walk(cuda_forward *f, const ofl_plan *plan)
{
    ofl_tensor_info info = {.struct_size = sizeof info};
    uint32_t *tensors = NULL, count = 0;
    f->tokens_tensor = tensor_of_tokens(f->model, &f->shape);
    ofl_status status = ofl_model_tensor_get(f->model, f->tokens_tensor, &info);
    if (status != OFL_OK) return app_forward(status);
    f->tokens_dtype = info.dtype;
    status = tensors_in_order(f->model, &f->shape, &tensors, &count);
    if (status == OFL_OK) status = weights_open(f->model, plan, f->engine, f->device, f->stream, tensors, count, &f->walk);
    free(tensors);
    return status;
}

/* A step waits for each streamed unit, once as a rule. */
static ofl_status open_marks(cuda_forward *f, const ofl_plan *plan)
{
    uint32_t streamed = 0;
    for (uint32_t i = 0; i < ofl_plan_unit_count(plan); i++) {
        ofl_unit unit = {.struct_size = sizeof unit};
        if (ofl_plan_unit_get(plan, i, &unit) != OFL_OK) return app_forward(ofl_diagnostic_get()->status);
        streamed += unit.piece_bytes != 0;
    }
    ofl_status status = marks_open(f->stream, streamed, &f->marks);
    if (status == OFL_OK) weights_watch(f->walk, marks_wait, f->marks);
    return status;
}

static ofl_status open_products(cuda_forward *f)
{
    return gemm_open(f->stream, f->settings.compute_type, f->room.gemm_workspace, f->room.gemm_bytes, &f->products);
}

static ofl_status open_parts(cuda_forward *f, const ofl_plan *plan)
{
    ofl_status status = ofl_model_shape_get(f->model, &f->shape);
    if (status == OFL_OK) status = ofl_plan_settings_get(plan, &f->settings);
    if (status == OFL_OK) status = ofl_plan_budget_get(plan, &f->budget);
    if (status == OFL_OK) status = ofl_stream_create(f->device, &f->stream);
    if (status != OFL_OK) return app_forward(status);
    status = device_current(&f->ordinal); /* just made so by ofl_stream_create */
    if (status == OFL_OK) status = forward_supports(f->model);
    if (status != OFL_OK) return status;
    cuda_derive(f);
    status = rope_open(&f->turns, f->model, &f->shape);
    if (status == OFL_OK) status = allocate(f);
    if (status == OFL_OK) status = cuda_lay_out(f);
    if (status == OFL_OK) status = open_products(f);
    if (status == OFL_OK) status = open_walk(f, plan);
    return status == OFL_OK ? open_marks(f, plan) : status;
}

ofl_status cuda_open(const ofl_model *model, const ofl_plan *plan, ofl_engine *engine, ofl_device *device, uint32_t threads, forward **out)
{
    cuda_forward *f = calloc(1, sizeof *f);
    (void)threads;
    if (f == NULL) return app_fail(OFL_ERROR_HOST_MEMORY, "forward pass: out of host memory; free some");
    f->base.kind = &forward_cuda;
    f->model = model;
    f->engine = engine;
    f->device = device;
    f->shape.struct_size = sizeof f->shape;
    f->settings.struct_size = sizeof f->settings;
    f->budget.struct_size = sizeof f->budget;
    ofl_status status = open_parts(f, plan);
    if (status == OFL_OK) *out = &f->base;
    else cuda_close(&f->base);
    return status;
}

void cuda_free(cuda_forward *f, void **memory)
{
    if (*memory != NULL) ofl_device_free(f->device, *memory);
    *memory = NULL;
}

void cuda_close(forward *base)
{
    cuda_forward *f = (cuda_forward *)(void *)base;
    weights_close(f->walk);
    if (f->stream != NULL) (void)ofl_stream_wait(f->device, f->stream);
    marks_close(f->marks);
    gemm_close(f->products);
    cuda_free(f, &f->activations);
    cuda_free(f, &f->kv_memory);
    if (f->exchange.host != NULL) ofl_device_host_free(f->device, f->exchange.host);
    if (f->stream != NULL) ofl_stream_destroy(f->device, f->stream);
    free(f->token_rows);
    free(f->host_logits);
    free(f);
}

static ofl_status shrink_kv(cuda_forward *f, uint64_t bytes)
{
    cuda_free(f, &f->kv_memory);
    ofl_status status = ofl_device_alloc(f->device, bytes, &f->kv_memory);
    if (status != OFL_OK) return app_forward(status);
    f->budget.kv_bytes = bytes;
    return kv_init(&f->cache, f->settings.kv_type, &f->shape, f->settings.kv_block_tokens, f->kv_memory, bytes);
}

ofl_status cuda_shrink(forward *base, uint32_t tokens_per_step, uint32_t logits_rows, uint64_t kv_tokens)
{
    cuda_forward *f = (cuda_forward *)(void *)base;
    uint64_t kv_bytes = kv_tokens / f->settings.kv_block_tokens * f->cache.block_bytes;
    ofl_budget *b = &f->budget;
    ofl_status status = forward_budget_less(&f->shape, f->settings.compute_type, tokens_per_step, logits_rows, b);
    if (status != OFL_OK) return status;
    f->settings.tokens_per_step_cap = tokens_per_step;
    cuda_free(f, &f->activations);
    if (kv_bytes < (uint64_t)f->cache.block_count * f->cache.block_bytes) status = shrink_kv(f, kv_bytes);
    if (status == OFL_OK && ofl_device_alloc(f->device, b->activation_bytes, &f->activations) != OFL_OK)
        status = app_forward(ofl_diagnostic_get()->status);
    if (status == OFL_OK) status = cuda_lay_out(f);
    return status == OFL_OK ? gemm_use(f->products, f->room.gemm_workspace, f->room.gemm_bytes) : status;
}
