/* Times what a step does, before there is a plan: the step's own code on the model's own first blocks and a piece of its head, held in
 * memory without an engine. */
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "batch/cpu/forward_cpu.h"
#include "batch/cpu/threads.h"
#include "batch/cpu/tile.h"
#include "batch/supports.h"
#include "common/app_error.h"

#define BLOCK_BYTES (UINT64_C(24) << 20)       /* of blocks, walked through: more than a core's own caches hold */
#define HEAD_BYTES (UINT64_C(24) << 20)        /* likewise of the head, … */
#define HEAD_ELEMENTS (UINT64_C(4) << 20)      /* … so much of it at a time */
#define KV_BLOCK_TOKENS 16u
#define CONTEXT 512u                           /* attention is measured up to there */
#define ROWS_MOST 64u                          /* likewise the head */
#define VECTORS_MOST 8u                        /* of a block: norms and biases */
#define MATRICES 7u
#define LARGE_PAGE (UINT64_C(2) << 20)

typedef struct bench {
    cpu_forward f;
    ofl_kv_type kv_type;
    uint32_t max_tokens, max_rows;
    uint32_t blocks, parts, block_at, part_at; /* held of the model, of the head, and which is next */
    double block_elements, head_elements;      /* of a block, on average; of a part */
    weights_held *held;                        /* matrices of the blocks, parts of the head, vectors */
    uint32_t held_count;
    uint8_t *memory; /* for weights, buffers and cache in one, as on a device; NULL at first, while `taken` only adds up */
    uint64_t taken;
    ofl_step_item *items;
    uint32_t *kv_blocks, kv_block_count;
    uint64_t kv_bytes, workspace_bytes;
} bench;

static ofl_status no_memory(void) { return app_fail(OFL_ERROR_HOST_MEMORY, "measuring: out of host memory; free some"); }
static uint64_t larger(uint64_t a, uint64_t b) { return a > b ? a : b; }
static uint64_t smaller(uint64_t a, uint64_t b) { return a < b ? a : b; }

static void *take(bench *b, uint64_t bytes)
{
    void *at = b->memory != NULL ? b->memory + b->taken : NULL;
    b->taken += (bytes + OFL_ALIGNMENT_BYTES - 1) / OFL_ALIGNMENT_BYTES * OFL_ALIGNMENT_BYTES;
    return at;
}

/* ---- weights ---- */

static ofl_status tensor_info(const bench *b, uint32_t tensor, ofl_tensor_info *out)
{
    *out = (ofl_tensor_info){.struct_size = sizeof *out};
    ofl_status status = ofl_model_tensor_get(b->f.model, tensor, out);
    return status == OFL_OK ? OFL_OK : app_forward(status);
}

static ofl_status hold(bench *b, uint32_t tensor, uint64_t row_first, uint64_t row_count)
{
    ofl_tensor_info info;
    ofl_status status = tensor_info(b, tensor, &info);
    if (status != OFL_OK) return status;
    uint64_t bytes = row_count * info.row_bytes;
    void *data = take(b, bytes);
    if (data == NULL) return OFL_OK;
    b->held[b->held_count++] = (weights_held){.tensor = tensor, .row_first = row_first, .row_count = row_count, .data = data};
    status = ofl_model_tensor_read(b->f.model, tensor, row_first * info.row_bytes, bytes, data);
    return status == OFL_OK ? OFL_OK : app_forward(status);
}

static ofl_status hold_matrices(bench *b)
{
    ofl_status status = OFL_OK;
    for (uint32_t i = 0; i < b->blocks && status == OFL_OK; i++) {
        for (uint32_t k = 0; k < MATRICES && status == OFL_OK; k++) {
            uint64_t rows, columns;
            matrix_size(&b->f.shape, block_matrices[k], &rows, &columns);
            status = hold(b, tensor_of(b->f.model, i, block_matrices[k]), 0, rows);
        }
    }
    return status;
}

static ofl_status hold_head(bench *b)
{
    ofl_tensor_info info;
    uint32_t tensor = tensor_of(b->f.model, b->f.shape.block_count, OFL_ROLE_OUTPUT);
    ofl_status status = tensor_info(b, tensor, &info);
    if (status != OFL_OK) return status;
    uint64_t rows = smaller(larger(HEAD_ELEMENTS / info.dims[0] / TILE_MAX_ROWS, 1) * TILE_MAX_ROWS, info.row_count);
    b->parts = (uint32_t)smaller(larger(HEAD_BYTES / (rows * info.row_bytes), 1), info.row_count / rows);
    b->head_elements = (double)rows * (double)info.dims[0];
    for (uint32_t i = 0; i < b->parts && status == OFL_OK; i++) status = hold(b, tensor, i * rows, rows);
    return status;
}

/* Vectors have one row. */
static ofl_status hold_vectors(bench *b)
{
    static const ofl_tensor_role roles[VECTORS_MOST] = {
        OFL_ROLE_ATTN_NORM,   OFL_ROLE_FFN_NORM,    OFL_ROLE_ATTN_Q_NORM, OFL_ROLE_ATTN_K_NORM,
        OFL_ROLE_ATTN_Q_BIAS, OFL_ROLE_ATTN_K_BIAS, OFL_ROLE_ATTN_V_BIAS, OFL_ROLE_OUTPUT_NORM,
    };
    ofl_status status = OFL_OK;
    for (uint32_t i = 0; i <= b->blocks && status == OFL_OK; i++) {
        uint32_t block = i < b->blocks ? i : b->f.shape.block_count;
        for (uint32_t k = 0; k < VECTORS_MOST && status == OFL_OK; k++) {
            uint32_t tensor = tensor_of(b->f.model, block, roles[k]);
            if (tensor != NO_TENSOR) status = hold(b, tensor, 0, 1);
        }
    }
    return status;
}

/* How many blocks are held, and what one of the model's reads. */
static ofl_status count_blocks(bench *b)
{
    const ofl_model_shape *s = &b->f.shape;
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < s->block_count; i++) {
        for (uint32_t k = 0; k < MATRICES; k++) {
            ofl_tensor_info info;
            ofl_status status = tensor_info(b, tensor_of(b->f.model, i, block_matrices[k]), &info);
            if (status != OFL_OK) return status;
            b->block_elements += (double)info.elements / s->block_count;
            bytes += info.bytes;
        }
        if (b->blocks == i && (i == 0 || bytes <= BLOCK_BYTES)) b->blocks++;
    }
    return b->blocks != 0 ? OFL_OK : app_fail(OFL_ERROR_UNSUPPORTED, "measuring: the model has no blocks");
}

static ofl_status hold_all(bench *b)
{
    ofl_status status = hold_matrices(b);
    if (status == OFL_OK) status = hold_head(b);
    return status == OFL_OK ? hold_vectors(b) : status;
}

/* ---- room ---- */

/* Of the cache: a block for each of up to 64 sequences and three for each 32 tokens beyond, or the long contexts of 16. */
static uint64_t kv_blocks_needed(const bench *b)
{
    return larger(64 + ((uint64_t)b->max_tokens / 32 + 1) * 3, 16 * (CONTEXT / KV_BLOCK_TOKENS));
}

static void take_room(bench *b)
{
    cpu_forward *f = &b->f;
    const ofl_model_shape *s = &f->shape;
    uint64_t n = larger(b->max_tokens, b->max_rows), widest = forward_widest(s), type = matmul_type_bytes(f->settings.compute_type);
    uint64_t wide = larger(s->hidden_size, larger(2 * ((uint64_t)f->q + f->kv_row), 2 * (uint64_t)s->ffn_size));
    uint64_t padded = (n + TILE_TOKENS - 1) / TILE_TOKENS * TILE_TOKENS;
    b->kv_block_count = (uint32_t)kv_blocks_needed(b);
    b->kv_bytes = b->kv_block_count * KV_BLOCK_TOKENS * 2 * (uint64_t)f->kv_row * (b->kv_type == OFL_KV_F32 ? 4 : 2) * b->blocks;
    b->workspace_bytes = f->threads * TILE_MAX_ROWS * widest * type;
    f->room = (forward_room){.residual = take(b, n * s->hidden_size * 4),
                             .tables = take(b, n * s->rope_dim * 4),
                             .wide = take(b, n * wide * 4),
                             .inputs = take(b, padded * widest * type),
                             .logits = take(b, b->max_rows * (uint64_t)s->vocab_size * 4),
                             .last = take(b, b->max_rows * (uint64_t)s->hidden_size * 4),
                             .workspace = take(b, b->workspace_bytes)};
    f->vector = take(b, larger(widest, f->kv_row) * 4);
    f->kv_memory = take(b, b->kv_bytes);
}

/* Memory that is there, with the same small number everywhere, whatever type it is read as; in large pages, as a device's is. */
static ofl_status allocate(bench *b)
{
    uint64_t parts = b->f.shape.vocab_size / TILE_MAX_ROWS + 1, bytes = (b->taken + LARGE_PAGE - 1) / LARGE_PAGE * LARGE_PAGE;
    b->memory = bytes < b->taken || bytes > SIZE_MAX / 2 ? NULL : aligned_alloc(LARGE_PAGE, (size_t)bytes);
    b->held = calloc((uint64_t)b->blocks * (MATRICES + VECTORS_MOST) + VECTORS_MOST + parts, sizeof *b->held);
    b->items = calloc(larger(b->max_tokens, b->max_rows), sizeof *b->items);
    b->kv_blocks = calloc(b->kv_block_count, sizeof *b->kv_blocks);
    if (b->memory == NULL || b->held == NULL || b->items == NULL || b->kv_blocks == NULL) return no_memory();
    (void)madvise(b->memory, (size_t)bytes, MADV_HUGEPAGE);
    memset(b->memory, 0x2c, (size_t)bytes);
    b->taken = 0;
    for (uint32_t i = 0; i < b->kv_block_count; i++) b->kv_blocks[i] = i;
    return OFL_OK;
}

/* Adds up what is needed, takes it, and fills it. */
static ofl_status set_up(bench *b)
{
    cpu_forward *f = &b->f;
    ofl_model_shape held = f->shape;
    ofl_status status = count_blocks(b);
    if (status == OFL_OK) status = hold_all(b);
    take_room(b);
    if (status == OFL_OK) status = allocate(b);
    if (status == OFL_OK) status = hold_all(b);
    if (status != OFL_OK) return status;
    take_room(b);
    held.block_count = b->blocks;
    status = weights_open_held(f->model, b->held, b->held_count, &f->walk);
    if (status == OFL_OK) status = kv_init(&f->cache, b->kv_type, &held, KV_BLOCK_TOKENS, f->kv_memory, b->kv_bytes);
    if (status != OFL_OK) return status;
    return matmul_open(f->settings.compute_type, f->threads, f->room.workspace, b->workspace_bytes, &f->products);
}

/* Numbers as lively as those of a step: some products and exponents take longer for numbers near 0. */
static void enliven(const bench *b)
{
    const cpu_forward *f = &b->f;
    uint32_t random = 1;
    for (uint64_t i = 0; i < (uint64_t)larger(b->max_tokens, b->max_rows) * f->shape.hidden_size; i++) {
        random = random * 1664525u + 1013904223u;
        f->room.residual[i] = (float)(random >> 8) / (float)(1 << 23) - 1;
    }
    for (uint32_t t = 0; t < b->max_tokens; t++) rope_table(&f->turns, t % CONTEXT, f->room.tables + (uint64_t)t * f->turns.dim);
}

static void release(bench *b)
{
    weights_close(b->f.walk);
    matmul_close(b->f.products);
    free(b->memory);
    free(b->held);
    free(b->items);
    free(b->kv_blocks);
    free(b);
}

/* ---- runs ---- */

/* Each sequence's own blocks of the cache, and as many of the tokens as it has. */
static uint32_t share_out(const bench *b, const ofl_compute_run *run)
{
    uint32_t count = 0, kv_at = 0;
    for (uint32_t left = run->tokens; left > 0; count++) {
        uint32_t tokens = count < run->decoding ? 1 : (uint32_t)smaller(run->share_tokens, left);
        uint32_t room = (run->context_tokens + tokens + KV_BLOCK_TOKENS - 1) / KV_BLOCK_TOKENS;
        b->items[count] = (ofl_step_item){
            .first_position = run->context_tokens, .token_count = tokens, .block_count = room, .blocks = b->kv_blocks + kv_at};
        kv_at += room;
        left -= tokens;
    }
    return count;
}

static ofl_status compute_block(bench *b, const ofl_compute_run *run)
{
    ofl_step step = {.items = b->items, .item_count = share_out(b, run)};
    forward_run s = {.f = &b->f, .given = &step, .tokens = run->tokens, .block = b->block_at};
    weights_seek(b->f.walk, b->block_at * MATRICES);
    b->block_at = (b->block_at + 1) % b->blocks;
    return forward_block(&s);
}

static ofl_status compute_head(bench *b, const ofl_compute_run *run)
{
    ofl_step step = {.items = b->items, .item_count = run->tokens};
    forward_run s = {.f = &b->f, .given = &step, .tokens = run->tokens};
    for (uint32_t i = 0; i < run->tokens; i++) b->items[i] = (ofl_step_item){.token_count = 1, .wants_logits = 1};
    weights_seek(b->f.walk, b->blocks * MATRICES + b->part_at);
    b->part_at = (b->part_at + 1) % b->parts;
    return forward_head(&s);
}

static ofl_status compute(void *context, const ofl_compute_run *run)
{
    return run->part == OFL_COMPUTE_HEAD ? compute_head(context, run) : compute_block(context, run);
}

static ofl_status prepare(bench *b, const forward_measure_job *job)
{
    cpu_forward *f = &b->f;
    f->model = job->model;
    f->device = job->device;
    f->shape.struct_size = sizeof f->shape;
    f->threads = threads_choose(job->threads);
    f->settings.compute_type = job->compute_type;
    b->kv_type = job->kv_type;
    b->max_tokens = job->max_tokens;
    b->max_rows = (uint32_t)smaller(job->max_rows, ROWS_MOST);
    ofl_status status = ofl_model_shape_get(job->model, &f->shape);
    if (status != OFL_OK) return app_forward(status);
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
    if (status == OFL_OK) {
        ofl_compute_probe probe = {.struct_size = sizeof probe, .block_count = b->f.shape.block_count, .run = compute, .context = b,
                                   .block_elements = b->block_elements, .head_elements = b->head_elements, .max_tokens = b->max_tokens,
                                   .max_rows = b->max_rows, .context_tokens = CONTEXT, .token_step = TILE_TOKENS};
        status = ofl_compute_measure(job->device, &probe, out);
        if (status != OFL_OK) status = app_forward(status);
    }
    release(b);
    return status;
}
