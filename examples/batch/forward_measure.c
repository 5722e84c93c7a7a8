/* Times what a step does, on a few rows of each kind of matrix and on one block's work between the products: the same code as forward_step,
 * no engine. */
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "batch/attention.h"
#include "batch/forward_state.h"
#include "batch/rows.h"
#include "batch/supports.h"
#include "batch/threads.h"
#include "batch/tile.h"
#include "common/app_error.h"

#define STORED_BYTES (UINT64_C(64) << 20) /* more than the caches hold: weights come from memory, as in a step */
#define SAMPLE_ELEMENTS (UINT64_C(1) << 20)
#define MOST_KINDS 16
#define ROUNDS 13
#define CONTEXT 128u /* of attention's sample */
#define ATTENTION_TOKENS 16u
#define BLOCK_TOKENS 16u

typedef struct kind { /* matrices that are multiplied alike */
    ofl_dtype dtype;
    uint64_t columns, elements, sample_rows, sample_bytes;
} kind;

typedef struct bench {
    forward f;
    uint32_t most_tokens, kind_count;
    uint64_t elements, at; /* at: where the next sample starts in the stored bytes */
    kind kinds[MOST_KINDS];
    uint8_t *stored;
    void *room[6]; /* owned: the buffers of f.room, in its order, and the cache's memory */
    float *ones;
    ofl_step_item *items;
    uint32_t *blocks;
} bench;

static double seconds_now(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

static void count_matrix(bench *b, const ofl_tensor_info *t)
{
    uint32_t i = 0;
    if (t->tensor_class != OFL_CLASS_DENSE || t->row_count < 2) return;
    b->elements += t->elements;
    while (i < b->kind_count && (b->kinds[i].dtype != t->dtype || b->kinds[i].columns != t->dims[0])) i++;
    if (i == MOST_KINDS) i = MOST_KINDS - 1; /* counted with the last: a kind of its own would hardly matter */
    if (i == b->kind_count) b->kinds[b->kind_count++] = (kind){.dtype = t->dtype, .columns = t->dims[0]};
    kind *k = &b->kinds[i];
    uint64_t rows = SAMPLE_ELEMENTS / t->dims[0] / TILE_MAX_ROWS * TILE_MAX_ROWS, row_bytes = t->row_bytes;
    if (rows < TILE_MAX_ROWS) rows = TILE_MAX_ROWS;
    if (rows > t->row_count) rows = t->row_count;
    if (rows < k->sample_rows) rows = k->sample_rows;
    k->elements += t->elements;
    k->sample_rows = rows;
    k->sample_bytes = rows * row_bytes;
}

static ofl_status count_matrices(bench *b, const ofl_model *model)
{
    for (uint32_t i = 0; i < ofl_model_tensor_count(model); i++) {
        ofl_tensor_info t = {.struct_size = sizeof t};
        ofl_status status = ofl_model_tensor_get(model, i, &t);
        if (status != OFL_OK) return app_forward(status);
        count_matrix(b, &t);
    }
    return b->elements != 0 ? OFL_OK : app_fail(OFL_ERROR_UNSUPPORTED, "measuring: the model has no matrices");
}

/* Memory that exists and holds harmless numbers, whatever type it is read as. */
static void *filled(uint64_t bytes)
{
    void *memory = bytes == 0 || bytes > SIZE_MAX - 64 ? NULL : aligned_alloc(64, (size_t)((bytes + 63) / 64 * 64));
    if (memory != NULL) memset(memory, 0x2c, (size_t)bytes);
    return memory;
}

static ofl_status allocate(bench *b, ofl_compute_type type)
{
    forward *f = &b->f;
    const ofl_model_shape *s = &f->shape;
    uint64_t n = b->most_tokens, padded = (n + TILE_TOKENS - 1) / TILE_TOKENS * TILE_TOKENS, widest = forward_widest(s),
             blocks = (CONTEXT + BLOCK_TOKENS) / BLOCK_TOKENS;
    uint64_t rows = 2 * ((uint64_t)f->q + f->kv_row) > 2 * (uint64_t)s->ffn_size ? 2 * ((uint64_t)f->q + f->kv_row)
                                                                                 : 2 * (uint64_t)s->ffn_size;
    uint64_t kv_bytes = blocks * n * BLOCK_TOKENS * 2 * f->kv_row * sizeof(uint16_t), sample = 0;
    uint64_t outputs = n * (rows > widest ? rows : widest); /* and room for one row of the largest sample: see time_kind */
    for (uint32_t i = 0; i < b->kind_count; i++) {
        sample = b->kinds[i].sample_bytes > sample ? b->kinds[i].sample_bytes : sample;
        outputs = b->kinds[i].sample_rows > outputs ? b->kinds[i].sample_rows : outputs;
    }
    const uint64_t sizes[6] = {n * s->hidden_size * 4,
                               n * s->rope_dim * 4,
                               outputs * 4,
                               padded * widest * matmul_type_bytes(type),
                               (uint64_t)f->threads * TILE_MAX_ROWS * widest * matmul_type_bytes(type),
                               kv_bytes};
    bool good = true;
    for (int i = 0; i < 6; i++) good = (b->room[i] = filled(sizes[i])) != NULL && good;
    b->stored = filled(STORED_BYTES + sample);
    b->ones = filled(widest * sizeof *b->ones);
    b->items = calloc(n, sizeof *b->items);
    b->blocks = calloc(n * blocks, sizeof *b->blocks);
    if (!good || b->stored == NULL || b->ones == NULL || b->items == NULL || b->blocks == NULL)
        return app_fail(OFL_ERROR_HOST_MEMORY, "measuring: out of host memory; free some");
    f->room = (forward_room){
        .residual = b->room[0], .tables = b->room[1], .wide = b->room[2], .inputs = b->room[3], .workspace = b->room[4]};
    for (uint32_t i = 0; i < n; i++) {
        for (uint32_t k = 0; k < blocks; k++) b->blocks[i * blocks + k] = k * (uint32_t)n + i;
        b->items[i] = (ofl_step_item){
            .first_position = CONTEXT - 1, .token_count = 1, .block_count = (uint32_t)blocks, .blocks = b->blocks + i * blocks};
    }
    ofl_status status = kv_init(&f->cache, OFL_KV_F16, s, BLOCK_TOKENS, b->room[5], kv_bytes);
    return status == OFL_OK ? matmul_open(type, f->threads, f->room.workspace, sizes[4], &f->products) : status;
}

static void release(bench *b)
{
    matmul_close(b->f.products);
    for (int i = 0; i < 6; i++) free(b->room[i]);
    free(b->stored);
    free(b->ones);
    free(b->items);
    free(b->blocks);
    free(b);
}

/* Seconds for all matrices of a kind, from its sample. */
static ofl_status time_kind(bench *b, const kind *k, uint32_t tokens, double *seconds)
{
    if (b->at > STORED_BYTES) b->at = 0;
    product p = {.weights = b->stored + b->at,
                 .dtype = k->dtype,
                 .rows = k->sample_rows,
                 .columns = k->columns,
                 .inputs = b->f.room.inputs,
                 .tokens = tokens,
                 .outputs = b->f.room.wide,
                 .stride = k->sample_rows};
    if (p.rows * tokens > (uint64_t)b->most_tokens * forward_widest(&b->f.shape)) p.stride = 0; /* one row's room is enough to time it */
    b->at += (k->sample_bytes + 63) / 64 * 64;
    double began = seconds_now();
    ofl_status status = matmul_run(b->f.products, &p);
    *seconds += (seconds_now() - began) * (double)k->elements / ((double)k->sample_rows * (double)k->columns);
    return status;
}

/* Seconds of one block's work between the products. */
static ofl_status time_between(bench *b, uint32_t tokens, double *seconds)
{
    forward *f = &b->f;
    ofl_step given = {.items = b->items, .item_count = tokens};
    forward_run run = {.f = f, .given = &given, .tokens = tokens, .vector = b->ones};
    forward_turn turns = {.run = &run};
    double began = seconds_now();
    ofl_status status = threads_each(f->threads, tokens, forward_normalise_row, &run);
    if (status == OFL_OK) status = threads_each(f->threads, tokens, forward_turn_share, &turns);
    rows_pack(f->room.wide, (uint64_t)tokens * f->q, f->settings.compute_type, f->room.inputs);
    if (status == OFL_OK) status = threads_each(f->threads, tokens, forward_normalise_row, &run);
    if (status == OFL_OK) status = threads_each(f->threads, tokens, forward_gate_row, &run);
    *seconds += seconds_now() - began;
    return status;
}

static ofl_status time_attention(bench *b, double *seconds)
{
    forward *f = &b->f;
    uint32_t tokens = b->most_tokens < ATTENTION_TOKENS ? b->most_tokens : ATTENTION_TOKENS;
    uint64_t row = (uint64_t)f->q + 2 * f->kv_row;
    attention a = {.cache = &f->cache,
                   .heads = f->shape.head_count,
                   .scale = f->attention_scale,
                   .items = b->items,
                   .item_count = tokens,
                   .queries = f->room.wide,
                   .query_stride = row,
                   .outputs = f->room.wide + tokens * row};
    double began = seconds_now();
    ofl_status status = attention_run(&a, f->threads);
    *seconds = (seconds_now() - began) / ((double)tokens * CONTEXT);
    return status;
}

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(double *values, int count)
{
    qsort(values, (size_t)count, sizeof *values, by_size);
    return values[count / 2];
}

/* Products take 16 tokens at a time, so time steps up after each 16: both sides of the first steps, then doublings. */
static uint32_t choose_counts(uint32_t most, uint32_t room, uint32_t *out)
{
    uint32_t count = 0;
    for (uint32_t n = 1; n <= most && count < room; n = n == 1 ? 16 : n < 64 ? (n % 16 == 0 ? n + 1 : n + 15) : n * 2) out[count++] = n;
    if (count < room && count > 0 && out[count - 1] < most) out[count++] = most;
    return count;
}

/* One round after the other over all counts, so that a disturbance does not hit one count alone. */
static ofl_status time_all(bench *b, uint32_t blocks, const uint32_t *counts, uint32_t count, ofl_compute_point *points,
                           double *attention_out)
{
    double(*seconds)[ROUNDS] = calloc(count, sizeof *seconds), attention_seconds[ROUNDS];
    ofl_status status = seconds != NULL ? OFL_OK : app_fail(OFL_ERROR_HOST_MEMORY, "measuring: out of host memory; free some");
    for (int round = -1; round < ROUNDS && status == OFL_OK; round++) { /* round −1 makes the kernels and warms up */
        status = time_attention(b, &attention_seconds[round < 0 ? 0 : round]);
        for (uint32_t i = 0; i < count && status == OFL_OK; i++) {
            double products = 0, between = 0;
            for (uint32_t k = 0; k < b->kind_count && status == OFL_OK; k++) status = time_kind(b, &b->kinds[k], counts[i], &products);
            if (status == OFL_OK) status = time_between(b, counts[i], &between);
            seconds[i][round < 0 ? 0 : round] = products + between * blocks;
        }
    }
    for (uint32_t i = 0; i < count && status == OFL_OK; i++)
        points[i] = (ofl_compute_point){.tokens = counts[i], .seconds_per_element = median(seconds[i], ROUNDS) / (double)b->elements};
    if (status == OFL_OK) *attention_out = median(attention_seconds, ROUNDS) * blocks;
    free(seconds);
    return status;
}

static ofl_status prepare(bench *b, const ofl_model *model, ofl_compute_type type, uint32_t threads, uint32_t max_tokens,
                          uint32_t *blocks_out)
{
    forward *f = &b->f;
    f->shape.struct_size = sizeof f->shape;
    f->threads = threads_choose(threads);
    f->settings.compute_type = type;
    b->most_tokens = max_tokens;
    ofl_status status = ofl_model_shape_get(model, &f->shape);
    if (status != OFL_OK) return app_forward(status);
    status = rope_init(&f->turns, &f->shape, NULL);
    if (status == OFL_OK) status = count_matrices(b, model);
    if (status != OFL_OK) return status;
    *blocks_out = f->shape.block_count;
    f->shape.block_count = 1; /* one layer's cache */
    forward_derive(f);
    return allocate(b, type);
}

ofl_status forward_measure(const ofl_model *model, ofl_compute_type compute_type, uint32_t threads, uint32_t max_tokens,
                           ofl_compute_point *points, uint32_t *count_io, double *attention_seconds_per_kv_token_out)
{
    enum { MOST_COUNTS = 32 };
    uint32_t counts[MOST_COUNTS], blocks = 0;
    if (max_tokens == 0 || *count_io == 0) return app_fail(OFL_ERROR_ARGUMENT, "measuring: no tokens or no room for a point");
    uint32_t count = choose_counts(max_tokens, *count_io < MOST_COUNTS ? *count_io : MOST_COUNTS, counts);
    ofl_status status = forward_supports(model);
    if (status != OFL_OK) return status;
    bench *b = calloc(1, sizeof *b);
    if (b == NULL) return app_fail(OFL_ERROR_HOST_MEMORY, "measuring: out of host memory; free some");
    status = prepare(b, model, compute_type, threads, counts[count - 1], &blocks);
    if (status == OFL_OK) status = time_all(b, blocks, counts, count, points, attention_seconds_per_kv_token_out);
    if (status == OFL_OK) *count_io = count;
    release(b);
    return status;
}
