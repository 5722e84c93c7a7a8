/* Rotary tables, new queries, keys and values, paged attention, cut contexts: two steps of a few sequences. */
#include "support/support.h"

#include <math.h>

#include "batch/cpu/attention.h"
#include "batch/rope.h"
#include "batch/cpu/rows.h"
#include "common/app_error.h"
#include "kernels/kernel_cases.h"

#define SEQUENCES 4u
#define STEPS 2u
#define BLOCKS_MOST 256u

typedef struct attended { /* one case */
    ofl_model_shape shape;
    kv_cache cache; /* base: here */
    rope turns;
    uint32_t block_tokens, heads, kv_heads, dim, tokens[STEPS], splits;
    uint32_t contexts[SEQUENCES], sequences;
    uint32_t blocks[SEQUENCES][BLOCKS_MOST];
    ofl_step_item items[STEPS][SEQUENCES];
    ofl_compute_type type;
    float *rows[STEPS]; /* queries, keys and values of a token; as they were, a copy behind this */
    float *before[STEPS];
    uint64_t stride, to_stride;
    const float *q_bias, *k_bias, *v_bias, *q_norm, *k_norm;
    void *to[STEPS];
} attended;

#define EPSILON 1e-6f

static void choose_shape(kernel_case *c, attended *a)
{
    static const uint32_t dims[] = {64, 80, 96, 128, 256, 64, 128, 2, 18, 36, 112, 254};
    static const uint32_t groups[] = {1, 2, 3, 4, 7, 8, 12, 16, 17, 33};
    static const ofl_kv_type kinds[] = {OFL_KV_F32, OFL_KV_F16, OFL_KV_BF16, OFL_KV_Q8_0};
    ofl_kv_type kind = kinds[case_random(c) % 4];
    a->dim = dims[case_random(c) % (sizeof dims / sizeof dims[0])];
    if (kind == OFL_KV_Q8_0) a->dim = a->dim / 32 == 0 ? 32 : a->dim / 32 * 32;
    a->kv_heads = 1 + case_below(c, 3);
    a->heads = a->kv_heads * groups[case_random(c) % (sizeof groups / sizeof groups[0])];
    a->block_tokens = 16u << case_below(c, 3);
    a->type = case_below(c, 2) == 0 ? OFL_COMPUTE_BF16 : OFL_COMPUTE_F32;
    a->shape = (ofl_model_shape){.struct_size = sizeof a->shape, .block_count = 2, .head_count = a->heads, .head_count_kv = a->kv_heads,
                                 .head_dim_k = a->dim, .head_dim_v = a->dim, .rope_freq_base = 10000,
                                 .rope_pairing = case_below(c, 2) == 0 ? OFL_ROPE_HALF : OFL_ROPE_INTERLEAVED};
    a->shape.rope_dim = case_below(c, 3) == 0 && a->dim > 2 ? a->dim / 4 * 2 : a->dim;
    a->cache.type = kind;
    a->sequences = 1 + case_below(c, SEQUENCES);
    a->splits = case_below(c, 3) == 0 ? 0 : 16 * (1 + case_below(c, 12));
}

/* Each sequence's first step, and what follows in the second one: mostly one token. */
static void choose_items(kernel_case *c, attended *a)
{
    uint32_t most = 60000 / (a->heads * a->dim) + 2, next = 0, numbers[SEQUENCES * BLOCKS_MOST], count = 0;
    for (uint32_t s = 0; s < a->sequences; s++) {
        uint32_t first = 1 + case_below(c, most < 330 ? most : 330), then = case_below(c, 3) == 0 ? 1 + case_below(c, 20) : 1;
        a->contexts[s] = first + then;
        a->items[0][s] = (ofl_step_item){.token_count = first, .prefill = 1};
        a->items[1][s] = (ofl_step_item){.first_position = first, .token_count = then, .wants_logits = case_below(c, 2)};
        a->tokens[0] += first;
        a->tokens[1] += then;
        count += (a->contexts[s] + a->block_tokens - 1) / a->block_tokens;
    }
    for (uint32_t i = 0; i < count; i++) numbers[i] = i;
    for (uint32_t i = count; i > 1; i--) { /* in no order */
        uint32_t other = case_below(c, i), number = numbers[i - 1];
        numbers[i - 1] = numbers[other];
        numbers[other] = number;
    }
    for (uint32_t s = 0; s < a->sequences; s++) {
        uint32_t blocks = (a->contexts[s] + a->block_tokens - 1) / a->block_tokens;
        for (uint32_t b = 0; b < blocks; b++) a->blocks[s][b] = numbers[next++];
        for (uint32_t step = 0; step < STEPS; step++) a->items[step][s].block_count = blocks, a->items[step][s].blocks = a->blocks[s];
    }
    a->cache.block_count = count;
}

static void accept(const kernel_case *c, ofl_status status)
{
    if (status != OFL_OK) fail_msg("%s: %s", c->name, app_error());
}

static void make_cache(kernel_case *c, attended *a)
{
    uint32_t blocks = a->cache.block_count;
    uint64_t bytes = (uint64_t)blocks * a->block_tokens * 4 * a->kv_heads * a->dim * 4;
    uint8_t *memory;
    kv_cache sizes;
    accept(c, kv_init(&sizes, a->cache.type, &a->shape, a->block_tokens, NULL, bytes));
    memory = case_output_room(c, CASE_CACHE, sizes.block_bytes * blocks, 1, 0);
    memset(memory, 0xff, sizes.block_bytes * blocks); /* what was never written is not a number */
    accept(c, kv_init(&a->cache, a->cache.type, &a->shape, a->block_tokens, memory, sizes.block_bytes * blocks));
    assert_int_equal(a->cache.block_count, blocks);
}

typedef struct device_step { /* what the kernels of a step are given */
    kernel_step_limits limits;
    kernel_step_layout layout;
    uint8_t *tables;
    double *frequencies;
    float *turning, *partials;
} device_step;

static void make_tables(kernel_case *c, const attended *a, uint32_t step, device_step *d)
{
    uint32_t room = a->tokens[step] + 3;
    d->limits = (kernel_step_limits){.tokens = room, .sequences = SEQUENCES + 1, .rows = SEQUENCES, .blocks = a->cache.block_count,
                                     .block_tokens = a->block_tokens, .heads = a->heads, .kv_heads = a->kv_heads,
                                     .split_positions = a->splits, .partial_rows = (uint64_t)a->heads * case_below(c, 30)};
    ofl_step given = {.struct_size = sizeof given, .item_count = a->sequences, .items = a->items[step]};
    accept(c, kernel_step_layout_make(&d->limits, &d->layout));
    d->tables = case_room(c, d->layout.bytes, 0);
    memset(d->tables, 0xee, d->layout.bytes);
    accept(c, kernel_step_fill(&d->limits, &d->layout, &given, d->tables));
    d->frequencies = case_room(c, a->turns.dim / 2 * sizeof(double), 0);
    memcpy(d->frequencies, a->turns.frequencies, a->turns.dim / 2 * sizeof(double));
    d->turning = case_output_room(c, CASE_F32, (uint64_t)room * a->turns.dim, a->turns.dim, 1e-6);
    d->partials = case_output_room(c, CASE_CACHE, d->limits.partial_rows * kernel_partial_bytes(a->dim), 1, 0);
}

static void launch_step(kernel_case *c, const attended *a, uint32_t step, const device_step *d)
{
    const kernel_counts *live = (const void *)(d->tables + d->layout.counts);
    const void *places = CASE_AT(c, d->tables + d->layout.places), *blocks = CASE_AT(c, d->tables + d->layout.blocks);
    float *queries = CASE_AT(c, a->rows[step]), *keys = queries + a->heads * a->dim;
    kv_cache cache = a->cache;
    cache.base = CASE_AT(c, cache.base);
    kernel_rope_args angles = {CASE_AT(c, d->frequencies), a->turns.magnitude, a->turns.dim, places, CASE_AT(c, d->turning),
                               d->limits.tokens, CASE_AT(c, &live->tokens)};
    kernel_turn_args turn = {.queries = queries, .keys = keys, .values = keys + a->kv_heads * a->dim, .stride = a->stride,
                             .q_bias = CASE_AT(c, a->q_bias), .k_bias = CASE_AT(c, a->k_bias), .v_bias = CASE_AT(c, a->v_bias),
                             .q_norm = CASE_AT(c, a->q_norm), .k_norm = CASE_AT(c, a->k_norm), .epsilon = EPSILON,
                             .tables = CASE_AT(c, d->turning), .rope_dim = a->turns.dim, .pairing = a->turns.pairing, .heads = a->heads,
                             .cache = cache, .layer = 1, .places = places, .blocks = blocks, .tokens = d->limits.tokens,
                             .live = CASE_AT(c, &live->tokens)};
    kernel_attention_args attend = {.queries = queries, .query_stride = a->stride, .scale = 1 / sqrtf((float)a->dim), .heads = a->heads,
                                    .cache = cache, .layer = 1, .blocks = blocks, .parts = CASE_AT(c, d->tables + d->layout.parts),
                                    .to = CASE_AT(c, a->to[step]), .to_stride = a->to_stride, .to_type = a->type,
                                    .partials = CASE_AT(c, d->partials), .max_parts = d->layout.max_parts,
                                    .live = CASE_AT(c, &live->parts)};
    kernel_merge_args merge = {attend.partials, CASE_AT(c, d->tables + d->layout.merges), a->heads, a->dim, attend.to, a->to_stride,
                               a->type, d->layout.max_merges, CASE_AT(c, &live->merges)};
    accept(c, kernel_prepare_rope(&angles, case_launch(c)));
    accept(c, kernel_prepare_turn(&turn, case_launch(c)));
    accept(c, kernel_prepare_attention(&attend, case_launch(c)));
    accept(c, kernel_prepare_merge_parts(&merge, case_launch(c)));
}

/* One sequence's tokens of a step by the CPU's back end, queries and all. Its own cache, of floats laid out its own way. */
static void turn_here(const attended *a, const kv_cache *cache, float *row, uint32_t position, const uint32_t *blocks)
{
    float table[ROPE_MAX_DIM], *keys = row + a->heads * a->dim, *values = keys + a->kv_heads * a->dim;
    for (uint32_t i = 0; a->q_bias != NULL && i < a->heads * a->dim; i++) row[i] += a->q_bias[i];
    for (uint32_t i = 0; a->k_bias != NULL && i < a->kv_heads * a->dim; i++) keys[i] += a->k_bias[i];
    for (uint32_t i = 0; a->v_bias != NULL && i < a->kv_heads * a->dim; i++) values[i] += a->v_bias[i];
    for (uint32_t h = 0; a->q_norm != NULL && h < a->heads; h++) rows_norm(row + h * a->dim, a->q_norm, a->dim, EPSILON, row + h * a->dim);
    for (uint32_t h = 0; a->k_norm != NULL && h < a->kv_heads; h++)
        rows_norm(keys + h * a->dim, a->k_norm, a->dim, EPSILON, keys + h * a->dim);
    rope_table(&a->turns, position, table);
    rope_turn(&a->turns, table, row, a->heads, a->dim);
    rope_turn(&a->turns, table, keys, a->kv_heads, a->dim);
    kv_store(cache, 1, blocks, position, keys, values);
}

static double accuracy(ofl_kv_type type)
{
    return type == OFL_KV_F32 ? 1e-5 : type == OFL_KV_Q8_0 ? 1e-2 : type == OFL_KV_F16 ? 1e-3 : 8e-3;
}

static void check_step(const kernel_case *c, const attended *a, const kv_cache *cache, uint32_t step)
{
    uint32_t width = a->heads * a->dim, each = a->type == OFL_COMPUTE_BF16 ? 2 : 4, token = 0;
    float *rows = malloc(a->tokens[step] * a->stride * sizeof *rows);
    float *outputs = malloc((uint64_t)a->tokens[step] * width * sizeof *outputs);
    void *packed = malloc((uint64_t)width * each);
    assert_true(rows != NULL && outputs != NULL && packed != NULL);
    memcpy(rows, a->before[step], a->tokens[step] * a->stride * sizeof *rows);
    for (uint32_t s = 0; s < a->sequences; s++) {
        const ofl_step_item *item = &a->items[step][s];
        for (uint32_t t = 0; t < item->token_count; t++, token++)
            turn_here(a, cache, rows + token * a->stride, item->first_position + t, item->blocks);
    }
    attention whole = {.cache = cache, .heads = a->heads, .scale = 1 / sqrtf((float)a->dim), .items = a->items[step],
                       .item_count = a->sequences, .layer = 1, .queries = rows, .query_stride = a->stride, .outputs = outputs};
    accept(c, attention_run(&whole, 1));
    for (uint32_t t = 0; t < a->tokens[step]; t++) {
        const float *row = a->rows[step] + t * a->stride;
        case_compare(c, CASE_F32, row, rows + t * a->stride, width, a->dim, 2e-5);
        case_compare(c, CASE_WORDS, row + width, a->before[step] + t * a->stride + width, 2 * a->kv_heads * a->dim, 1, 0);
        rows_pack(outputs + (uint64_t)t * width, width, a->type, packed);
        case_compare(c, a->type == OFL_COMPUTE_BF16 ? CASE_BF16 : CASE_F32, (const uint8_t *)a->to[step] + t * a->to_stride * each, packed,
                     width, width, accuracy(a->cache.type));
    }
    free(rows);
    free(outputs);
    free(packed);
}

static void check_attention(const kernel_case *c)
{
    const attended *a = c->answer;
    kv_cache cache = a->cache;
    cache.base = calloc(cache.block_count, cache.block_bytes);
    assert_non_null(cache.base);
    for (uint32_t step = 0; step < STEPS; step++) check_step(c, a, &cache, step);
    free(cache.base);
}

static void choose_vectors(kernel_case *c, attended *a)
{
    if (case_below(c, 2) == 0) {
        a->q_bias = case_floats(c, a->heads * a->dim, 1);
        a->k_bias = case_floats(c, a->kv_heads * a->dim, 1);
        a->v_bias = case_floats(c, a->kv_heads * a->dim, 1);
    }
    if (case_below(c, 2) == 0) return;
    a->q_norm = case_floats(c, a->dim, 2);
    a->k_norm = case_floats(c, a->dim, 2);
}

void case_make_attention(kernel_case *c)
{
    attended chosen = {0}, *a = &chosen;
    choose_shape(c, a);
    choose_items(c, a);
    (void)snprintf(c->name, 100, "%u heads of %u over %u, KV %s, %u and %u tokens of %u sequences, parts of %u", a->heads, a->dim,
                   a->kv_heads, ofl_kv_type_name(a->cache.type), a->tokens[0], a->tokens[1], a->sequences, a->splits);
    accept(c, rope_init(&a->turns, &a->shape, NULL));
    make_cache(c, a);
    choose_vectors(c, a);
    a->stride = (a->heads + 2 * a->kv_heads) * (uint64_t)a->dim + case_below(c, 3);
    a->to_stride = (uint64_t)a->heads * a->dim + case_below(c, 3);
    uint64_t count[STEPS] = {a->tokens[0] * a->stride, a->tokens[1] * a->stride};
    attended *kept = case_answer(c, sizeof *a + (count[0] + count[1]) * sizeof(float));
    for (uint32_t step = 0; step < STEPS; step++) {
        device_step d;
        a->rows[step] = case_output_room(c, CASE_F32, count[step], count[step], 1e-5);
        for (uint64_t i = 0; i < count[step]; i++) a->rows[step][i] = 2 * case_uniform(c);
        a->before[step] = (float *)(void *)(kept + 1) + (step == 0 ? 0 : count[0]);
        memcpy(a->before[step], a->rows[step], count[step] * sizeof(float));
        a->to[step] = case_output_room(c, a->type == OFL_COMPUTE_BF16 ? CASE_BF16 : CASE_F32, a->tokens[step] * a->to_stride, a->to_stride,
                                       1e-2);
        make_tables(c, a, step, &d);
        launch_step(c, a, step, &d);
    }
    *kept = *a;
    for (uint32_t step = 0; step < STEPS; step++) { /* the blocks have moved with it */
        for (uint32_t s = 0; s < a->sequences; s++) kept->items[step][s].blocks = kept->blocks[s];
    }
    c->check = check_attention;
}
