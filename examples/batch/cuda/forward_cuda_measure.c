/* Times what a step does on the GPU, before there is a plan: the step's own kernels and products on a piece of the model. */
#include <stdlib.h>
#include <string.h>

#include "batch/cuda/forward_cuda.h"
#include "batch/held_model.h"
#include "common/app_error.h"

#define MOST_BYTES (UINT64_C(256) << 20)   /* of blocks, and of the head: more than a GPU's caches hold; no more than an eighth of what there is */
#define HEAD_ELEMENTS (UINT64_C(32) << 20)
#define CHUNK_BYTES (UINT64_C(1) << 20)    /* filled at a time */

typedef struct bench {
    cuda_forward f;
    held_model held;
    void *weights; /* device */
    double drawn_share;
    ofl_compute_run last; /* what the step's tables say */
    ofl_step step;
    cuda_run run;
} bench;

static uint64_t larger(uint64_t a, uint64_t b) { return a > b ? a : b; }
static uint64_t smaller(uint64_t a, uint64_t b) { return a < b ? a : b; }
static uint64_t round_up(uint64_t bytes) { return (bytes + OFL_ALIGNMENT_BYTES - 1) / OFL_ALIGNMENT_BYTES * OFL_ALIGNMENT_BYTES; }

static ofl_status copy(const cuda_forward *f, void *to, const void *from, uint64_t bytes)
{
    ofl_status status = ofl_copy(f->device, f->stream, OFL_HOST_TO_DEVICE, to, from, bytes, OFL_HOST_PAGEABLE);
    return status == OFL_OK ? OFL_OK : app_forward(status);
}

static ofl_status load_one(bench *b, uint32_t index, uint8_t *to)
{
    uint64_t bytes = held_bytes(&b->held, index);
    void *host = malloc(bytes);
    if (host == NULL) return app_fail(OFL_ERROR_HOST_MEMORY, "measuring: out of host memory; free some");
    ofl_status status = held_read(&b->held, index, host);
    if (status == OFL_OK) status = copy(&b->f, to, host, bytes);
    if (status == OFL_OK && ofl_stream_wait(b->f.device, b->f.stream) != OFL_OK) status = app_forward(ofl_diagnostic_get()->status);
    free(host);
    b->held.held[index].data = to;
    return status;
}

static ofl_status load(bench *b)
{
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < b->held.held_count; i++) bytes += round_up(held_bytes(&b->held, i));
    ofl_status status = ofl_device_alloc(b->f.device, bytes, &b->weights);
    if (status != OFL_OK) return app_forward(status);
    uint8_t *at = b->weights;
    for (uint32_t i = 0; i < b->held.held_count && status == OFL_OK; i++) {
        status = load_one(b, i, at);
        at += round_up(held_bytes(&b->held, i));
    }
    return status == OFL_OK ? weights_open_held(b->f.model, b->held.held, b->held.held_count, &b->f.walk) : status;
}

/* Lively numbers, whatever type they are read as: small ones in a cache, numbers about 1 in the residual stream. */
static ofl_status enliven(bench *b)
{
    cuda_forward *f = &b->f;
    uint64_t residual = (uint64_t)f->settings.tokens_per_step_cap * f->shape.hidden_size * sizeof(float);
    float *host = malloc(CHUNK_BYTES);
    ofl_status status = OFL_OK;
    if (host == NULL) return app_fail(OFL_ERROR_HOST_MEMORY, "measuring: out of host memory; free some");
    memset(host, 0x2c, CHUNK_BYTES);
    for (uint64_t at = 0; at < f->budget.kv_bytes && status == OFL_OK; at += CHUNK_BYTES)
        status = copy(f, (uint8_t *)f->kv_memory + at, host, f->budget.kv_bytes - at < CHUNK_BYTES ? f->budget.kv_bytes - at : CHUNK_BYTES);
    held_enliven(host, CHUNK_BYTES / sizeof *host);
    for (uint64_t at = 0; at < residual && status == OFL_OK; at += CHUNK_BYTES)
        status = copy(f, (uint8_t *)f->room.residual + at, host, residual - at < CHUNK_BYTES ? residual - at : CHUNK_BYTES);
    if (status == OFL_OK && ofl_stream_wait(f->device, f->stream) != OFL_OK) status = app_forward(ofl_diagnostic_get()->status);
    free(host);
    return status;
}

/* As a plan for such steps would say. */
static ofl_status settle(bench *b, const forward_measure_job *job)
{
    cuda_forward *f = &b->f;
    ofl_workload w = {.struct_size = sizeof w, .compute_type = job->compute_type};
    uint64_t hidden = 0, kv_element = job->kv_type == OFL_KV_F32 ? 4 : 2;
    uint32_t tokens = (uint32_t)larger(b->held.max_tokens, b->held.max_rows);
    ofl_budget *to = &f->budget;
    ofl_status status = cuda_workload(job->model, &w);
    if (status != OFL_OK) return status;
    f->settings = (ofl_plan_settings){.sequences = tokens,
                                      .tokens_per_step_cap = tokens,
                                      .kv_block_tokens = HELD_KV_BLOCK_TOKENS,
                                      .kv_type = job->kv_type,
                                      .compute_type = job->compute_type,
                                      .kv_capacity_tokens = (uint64_t)b->held.kv_block_count * HELD_KV_BLOCK_TOKENS,
                                      .workspace_bytes = w.workspace_bytes};
    status = ofl_activation_bytes(&f->shape, job->compute_type, tokens, b->held.max_rows, 0, &hidden, &to->logits_bytes, &to->workspace_bytes);
    if (status != OFL_OK) return app_forward(status);
    to->workspace_bytes += w.workspace_bytes;
    to->activation_bytes = hidden + to->logits_bytes + to->workspace_bytes;
    to->kv_bytes = f->settings.kv_capacity_tokens * 2 * f->kv_row * kv_element * b->held.blocks;
    return OFL_OK;
}

static ofl_status set_up(bench *b)
{
    cuda_forward *f = &b->f;
    ofl_model_shape held = f->shape;
    held.block_count = b->held.blocks;
    ofl_status status = ofl_device_alloc(f->device, f->budget.kv_bytes, &f->kv_memory);
    if (status == OFL_OK) status = ofl_device_alloc(f->device, f->budget.activation_bytes, &f->activations);
    if (status != OFL_OK) return app_forward(status);
    status = kv_init(&f->cache, f->settings.kv_type, &held, HELD_KV_BLOCK_TOKENS, f->kv_memory, f->budget.kv_bytes);
    if (status == OFL_OK) status = cuda_lay_out(f);
    if (status == OFL_OK) status = gemm_open(f->stream, f->settings.compute_type, f->room.gemm_workspace, f->room.gemm_bytes, &f->products);
    if (status == OFL_OK) status = load(b);
    return status == OFL_OK ? enliven(b) : status;
}

/* From here on the device is current for this thread, as kernels need it: ofl_stream_create makes it so. */
static ofl_status prepare(bench *b, const forward_measure_job *job)
{
    cuda_forward *f = &b->f;
    ofl_memory_info memory = {.struct_size = sizeof memory};
    f->model = job->model;
    f->device = job->device;
    if (ofl_device_memory_get(job->device, &memory) != OFL_OK || ofl_stream_create(job->device, &f->stream) != OFL_OK)
        return app_forward(ofl_diagnostic_get()->status);
    uint64_t room = job->memory_bytes != 0 ? smaller(memory.free_bytes, job->memory_bytes) : memory.free_bytes;
    uint64_t most = smaller(room / 8, MOST_BYTES);
    b->drawn_share = job->drawn_share;
    const held_size size = {.block_bytes = most, .head_bytes = most, .head_elements = HEAD_ELEMENTS, .head_rows = 1};
    ofl_status status = held_open(job, &size, &b->held);
    if (status != OFL_OK) return status;
    f->shape = b->held.shape;
    cuda_derive(f);
    status = rope_init(&f->turns, &f->shape, NULL);
    if (status == OFL_OK) status = settle(b, job);
    return status == OFL_OK ? set_up(b) : status;
}

/* So many of the rows' tokens are drawn, the others greedy. */
static void fill_draws(const bench *b, uint32_t rows)
{
    kernel_draw *to = (void *)(b->f.exchange.host + b->f.exchange.draws);
    for (uint32_t i = 0; i < rows; i++)
        to[i] = (kernel_draw){.temperature = i < b->drawn_share * rows ? 1 : 0, .top_p = 1, .random = 0.5};
}

/* The tables of another run than the last: nothing that is queued reads them now, since each run is waited for before the next other one. */
static ofl_status fill(bench *b, const ofl_compute_run *run)
{
    cuda_forward *f = &b->f;
    ofl_status status = kernel_step_fill(&f->limits, &f->layout, &b->step, f->exchange.host);
    const kernel_counts *counts = (const void *)(f->exchange.host + f->layout.counts);
    b->run = (cuda_run){.f = f, .tokens = run->tokens, .rows = counts->rows, .parts = counts->parts, .merges = counts->merges};
    if (status == OFL_OK) fill_draws(b, counts->rows);
    if (status == OFL_OK) status = cuda_upload(f);
    if (status == OFL_OK) status = cuda_rope(&b->run);
    b->last = *run;
    return status;
}

static ofl_status compute(void *context, const ofl_compute_run *run)
{
    bench *b = context;
    uint32_t block;
    held_step(&b->held, run, b->f.walk, &b->step, &block);
    ofl_status status = memcmp(run, &b->last, sizeof *run) != 0 ? fill(b, run) : OFL_OK;
    b->run.block = block;
    if (status != OFL_OK) return status;
    if (run->part != OFL_COMPUTE_HEAD) return cuda_block(&b->run);
    status = cuda_head(&b->run);
    return status == OFL_OK ? cuda_sample(&b->run, b->f.shape.vocab_size, false) : status;
}

static void release(bench *b)
{
    cuda_forward *f = &b->f;
    weights_close(f->walk);
    if (f->stream != NULL) (void)ofl_stream_wait(f->device, f->stream);
    gemm_close(f->products);
    cuda_free(f, &b->weights);
    cuda_free(f, &f->activations);
    cuda_free(f, &f->kv_memory);
    if (f->exchange.host != NULL) ofl_device_host_free(f->device, f->exchange.host);
    if (f->stream != NULL) ofl_stream_destroy(f->device, f->stream);
    held_close(&b->held);
    free(b);
}

ofl_status cuda_measure(const forward_measure_job *job, ofl_compute_figures *out)
{
    bench *b = calloc(1, sizeof *b);
    if (b == NULL) return app_fail(OFL_ERROR_HOST_MEMORY, "measuring: out of host memory; free some");
    ofl_status status = prepare(b, job);
    if (status == OFL_OK) status = held_measure(&b->held, job->device, b->f.stream, 1, compute, b, out);
    release(b);
    return status;
}
