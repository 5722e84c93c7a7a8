/* Times what a step does, before there is a plan: the step's own code on a piece of the model. */
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "batch/cpu/calls.h"
#include "batch/cpu/forward_cpu.h"
#include "batch/cpu/threads.h"
#include "batch/cpu/tile.h"
#include "batch/forward_sizes.h"
#include "batch/held_model.h"
#include "common/app_error.h"

#define LARGE_PAGE (UINT64_C(2) << 20)

/* Twice and more what the cores' shared cache often holds: of less, a part stays there from run to run, as it does not in a step. */
static const held_size size = {.block_bytes = UINT64_C(64) << 20, .head_bytes = UINT64_C(64) << 20, .head_elements = UINT64_C(4) << 20,
                               .head_rows = TILE_MAX_ROWS};

typedef struct bench {
    cpu_forward f;
    held_model held;
    uint8_t *memory; /* for weights, buffers and cache in one, as on a device; NULL at first, while `taken` only adds up */
    uint64_t taken;
    uint64_t kv_bytes, workspace_bytes;
} bench;

static ofl_status no_memory(void) { return app_fail(OFL_ERROR_HOST_MEMORY, "measuring: out of host memory; free some"); }
static uint64_t larger(uint64_t a, uint64_t b) { return a > b ? a : b; }

static void *take(bench *b, uint64_t bytes)
{
    void *at = b->memory != NULL ? b->memory + b->taken : NULL;
    b->taken += (bytes + OFL_ALIGNMENT_BYTES - 1) / OFL_ALIGNMENT_BYTES * OFL_ALIGNMENT_BYTES;
    return at;
}

static void take_all(bench *b)
{
    cpu_forward *f = &b->f;
    const ofl_model_shape *s = &f->shape;
    uint64_t n = larger(b->held.max_tokens, b->held.max_rows), widest = forward_widest(s), type = matmul_type_bytes(f->settings.compute_type);
    uint64_t wide = larger(s->hidden_size, larger(2 * ((uint64_t)f->q + f->kv_row), 2 * (uint64_t)s->ffn_size));
    uint64_t padded = (n + TILE_TOKENS - 1) / TILE_TOKENS * TILE_TOKENS, kv_element = f->settings.kv_type == OFL_KV_F32 ? 4 : 2;
    b->kv_bytes = b->held.kv_block_count * HELD_KV_BLOCK_TOKENS * 2 * (uint64_t)f->kv_row * kv_element * b->held.blocks;
    b->workspace_bytes = f->threads * TILE_MAX_ROWS * widest * type;
    for (uint32_t i = 0; i < b->held.held_count; i++) b->held.held[i].data = take(b, held_bytes(&b->held, i));
    f->room = (forward_room){.residual = take(b, n * s->hidden_size * 4),
                             .tables = take(b, n * s->rope_dim * 4),
                             .wide = take(b, n * wide * 4),
                             .inputs = take(b, padded * widest * type),
                             .logits = take(b, b->held.max_rows * (uint64_t)s->vocab_size * 4),
                             .last = take(b, b->held.max_rows * (uint64_t)s->hidden_size * 4),
                             .workspace = take(b, b->workspace_bytes)};
    f->vector = take(b, larger(widest, f->kv_row) * 4);
    f->kv_memory = take(b, b->kv_bytes);
}

/* Memory that is there, with the same small number everywhere, whatever type it is read as; in large pages, as a device's is. */
static ofl_status allocate(bench *b)
{
    uint64_t bytes = (b->taken + LARGE_PAGE - 1) / LARGE_PAGE * LARGE_PAGE;
    b->memory = bytes < b->taken || bytes > SIZE_MAX / 2 ? NULL : aligned_alloc(LARGE_PAGE, (size_t)bytes);
    if (b->memory == NULL) return no_memory();
    (void)madvise(b->memory, (size_t)bytes, MADV_HUGEPAGE);
    memset(b->memory, 0x2c, (size_t)bytes);
    b->taken = 0;
    return OFL_OK;
}

/* Adds up what is needed, takes it, and fills it. */
static ofl_status set_up(bench *b)
{
    cpu_forward *f = &b->f;
    ofl_model_shape held = f->shape;
    held.block_count = b->held.blocks;
    take_all(b);
    ofl_status status = allocate(b);
    if (status == OFL_OK) take_all(b);
    for (uint32_t i = 0; i < b->held.held_count && status == OFL_OK; i++)
        status = held_read(&b->held, i, b->memory + ((const uint8_t *)b->held.held[i].data - b->memory));
    if (status == OFL_OK) status = weights_open_held(f->model, b->held.held, b->held.held_count, &f->walk);
    if (status == OFL_OK) status = kv_init(&f->cache, f->settings.kv_type, &held, HELD_KV_BLOCK_TOKENS, f->kv_memory, b->kv_bytes);
    if (status != OFL_OK) return status;
    return matmul_open(f->settings.compute_type, f->threads, f->room.workspace, b->workspace_bytes, &f->products);
}

static void enliven(const bench *b)
{
    const cpu_forward *f = &b->f;
    held_enliven(f->room.residual, larger(b->held.max_tokens, b->held.max_rows) * f->shape.hidden_size);
    for (uint32_t t = 0; t < b->held.max_tokens; t++)
        rope_table(&f->turns, t % HELD_CONTEXT, f->room.tables + (uint64_t)t * f->turns.dim);
}

static void release(bench *b)
{
    weights_close(b->f.walk);
    matmul_close(b->f.products);
    held_close(&b->held);
    free(b->memory);
    free(b);
}

static ofl_status compute(void *context, const ofl_compute_run *run)
{
    bench *b = context;
    ofl_step step;
    forward_run s = {.f = &b->f, .given = &step, .tokens = run->tokens};
    held_step(&b->held, run, b->f.walk, &step, &s.block);
    return run->part == OFL_COMPUTE_HEAD ? forward_head(&s) : forward_block(&s);
}

static ofl_status prepare(bench *b, const forward_measure_job *job)
{
    cpu_forward *f = &b->f;
    ofl_status status = held_open(job, &size, &b->held);
    if (status != OFL_OK) return status;
    f->model = job->model;
    f->device = job->device;
    f->shape = b->held.shape;
    f->threads = threads_choose(job->threads);
    f->settings.compute_type = job->compute_type;
    f->settings.kv_type = job->kv_type;
    forward_derive(f);
    status = rope_init(&f->turns, &f->shape, NULL);
    if (status == OFL_OK) status = set_up(b);
    if (status == OFL_OK) enliven(b);
    return status;
}

ofl_status cpu_measure(const forward_measure_job *job, ofl_compute_figures *out)
{
    bench *b = calloc(1, sizeof *b);
    if (b == NULL) return no_memory();
    ofl_status status = prepare(b, job);
    if (status == OFL_OK) status = held_measure(&b->held, job->device, NULL, TILE_TOKENS, compute, b, out);
    release(b);
    return status == OFL_OK ? calls_measure(job->device, &out->host_seconds_per_unit, &out->host_seconds_per_piece) : status;
}
