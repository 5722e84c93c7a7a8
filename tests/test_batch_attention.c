#include "support/support.h"

#include <math.h>

#include "batch/cpu/attention.h"
#include "batch/rope.h"
#include "batch/cpu/rows.h"
#include "batch/cpu/vector.h"
#include "common/app_error.h"

#define BLOCK_TOKENS 32u
#define BLOCKS 8u

static float uniform(uint64_t *seed) { return (float)((double)(test_random(seed) >> 11) * 0x1p-53 - 0.5); }

typedef struct sequence {
    uint32_t tokens, heads, kv_heads, dim;
    float *queries, *keys, *values; /* tokens × heads × dim */
    uint32_t blocks[BLOCKS];
} sequence;

static float *random_rows(uint64_t count, uint64_t *seed)
{
    float *to = malloc(count * sizeof *to);
    assert_non_null(to);
    for (uint64_t i = 0; i < count; i++) to[i] = 4 * uniform(seed);
    return to;
}

static sequence make_sequence(uint32_t tokens, uint32_t heads, uint32_t kv_heads, uint32_t dim, uint64_t seed)
{
    sequence s = {.tokens = tokens, .heads = heads, .kv_heads = kv_heads, .dim = dim, .blocks = {5, 2, 7, 0, 3, 1, 6, 4}};
    s.queries = random_rows((uint64_t)tokens * heads * dim, &seed);
    s.keys = random_rows((uint64_t)tokens * kv_heads * dim, &seed);
    s.values = random_rows((uint64_t)tokens * kv_heads * dim, &seed);
    return s;
}

static void free_sequence(sequence *s)
{
    free(s->queries);
    free(s->keys);
    free(s->values);
}

static kv_cache make_cache(const sequence *s, ofl_kv_type type)
{
    ofl_model_shape shape = {.struct_size = sizeof shape, .block_count = 2, .head_count_kv = s->kv_heads, .head_dim_k = s->dim};
    uint64_t bytes = (uint64_t)BLOCKS * BLOCK_TOKENS * 2 * 2 * s->kv_heads * s->dim * 4;
    void *memory = malloc(bytes);
    assert_non_null(memory);
    memset(memory, 0xff, bytes); /* what was never written is not a number */
    kv_cache cache;
    if (kv_init(&cache, type, &shape, BLOCK_TOKENS, memory, bytes) != OFL_OK) fail_msg("%s", app_error());
    return cache;
}

/* The whole sequence in shares of `chunk` tokens. */
static void run_chunks(const sequence *s, const kv_cache *cache, uint32_t chunk, uint32_t threads, float *outputs)
{
    for (uint32_t first = 0; first < s->tokens; first += chunk) {
        uint32_t count = s->tokens - first < chunk ? s->tokens - first : chunk;
        for (uint32_t t = first; t < first + count; t++)
            kv_store(cache, 1, s->blocks, t, s->keys + (uint64_t)t * s->kv_heads * s->dim, s->values + (uint64_t)t * s->kv_heads * s->dim);
        ofl_step_item item = {.first_position = first, .token_count = count, .block_count = BLOCKS, .blocks = s->blocks};
        attention a = {.cache = cache,
                       .heads = s->heads,
                       .scale = 1.0f / sqrtf((float)s->dim),
                       .items = &item,
                       .item_count = 1,
                       .layer = 1,
                       .queries = s->queries + (uint64_t)first * s->heads * s->dim,
                       .query_stride = (uint64_t)s->heads * s->dim,
                       .outputs = outputs + (uint64_t)first * s->heads * s->dim};
        assert_int_equal(attention_run(&a, threads), OFL_OK);
    }
}

static void reference_row(const sequence *s, uint32_t token, uint32_t head, double *to)
{
    const float *query = s->queries + ((uint64_t)token * s->heads + head) * s->dim;
    double sum = 0;
    for (uint32_t e = 0; e < s->dim; e++) to[e] = 0;
    for (uint32_t t = 0; t <= token; t++) {
        uint64_t at = ((uint64_t)t * s->kv_heads + head / (s->heads / s->kv_heads)) * s->dim;
        double score = 0;
        for (uint32_t e = 0; e < s->dim; e++) score += (double)query[e] * (double)s->keys[at + e];
        double weight = exp(score / sqrt(s->dim));
        sum += weight;
        for (uint32_t e = 0; e < s->dim; e++) to[e] += weight * (double)s->values[at + e];
    }
    for (uint32_t e = 0; e < s->dim; e++) to[e] /= sum;
}

static double distance(const sequence *s, const float *outputs)
{
    double above = 0, below = 0, row[KV_MAX_DIM];
    for (uint32_t t = 0; t < s->tokens; t++) {
        for (uint32_t h = 0; h < s->heads; h++) {
            reference_row(s, t, h, row);
            for (uint32_t e = 0; e < s->dim; e++) {
                double off = row[e] - (double)outputs[((uint64_t)t * s->heads + h) * s->dim + e];
                above += off * off;
                below += row[e] * row[e];
            }
        }
    }
    return sqrt(above / below);
}

static void check(uint32_t tokens, uint32_t heads, uint32_t kv_heads, uint32_t dim, ofl_kv_type type, double within)
{
    sequence s = make_sequence(tokens, heads, kv_heads, dim, 11 + dim);
    kv_cache cache = make_cache(&s, type);
    uint64_t bytes = (uint64_t)tokens * heads * dim * sizeof(float);
    float *whole = malloc(bytes), *chunked = malloc(bytes);
    assert_non_null(whole);
    assert_non_null(chunked);
    run_chunks(&s, &cache, tokens, 1, whole);
    double error = distance(&s, whole);
    if (!(error < within)) fail_msg("%u heads of %u over %u, KV type %d: relative error %g", heads, dim, kv_heads, (int)type, error);
    static const uint32_t chunks[] = {1, 7, 16, 33};
    for (size_t c = 0; c < sizeof chunks / sizeof chunks[0]; c++) {
        memset(cache.base, 0xff, cache.block_count * cache.block_bytes);
        memset(chunked, 0, bytes);
        run_chunks(&s, &cache, chunks[c], 1 + (uint32_t)c % 3, chunked);
        if (memcmp(whole, chunked, bytes) != 0)
            fail_msg("%u heads of %u over %u, KV type %d: other bits in chunks of %u", heads, dim, kv_heads, (int)type, chunks[c]);
    }
    free(whole);
    free(chunked);
    free(cache.base);
    free_sequence(&s);
}

static void test_every_kv_type(void **state)
{
    (void)state;
    check(75, 6, 2, 64, OFL_KV_F32, 1e-6);
    check(75, 6, 2, 64, OFL_KV_F16, 1e-3);
    check(75, 6, 2, 64, OFL_KV_BF16, 8e-3);
    check(75, 6, 2, 64, OFL_KV_Q8_0, 1e-2);
}

static void test_every_grouping(void **state)
{
    (void)state;
    check(40, 1, 1, 16, OFL_KV_F32, 1e-6);
    check(40, 4, 4, 80, OFL_KV_F32, 1e-6);
    check(70, 14, 2, 24, OFL_KV_F32, 1e-6);
    check(35, 37, 1, 8, OFL_KV_F32, 1e-6);
    check(20, 8, 1, 256, OFL_KV_F16, 1e-3);
}

static void test_refusals(void **state)
{
    (void)state;
    char memory[4096];
    kv_cache cache;
    ofl_model_shape shape = {.struct_size = sizeof shape, .block_count = 1, .head_count_kv = 1, .head_dim_k = 24};
    assert_int_equal(kv_init(&cache, OFL_KV_F8, &shape, 16, memory, sizeof memory), OFL_ERROR_UNSUPPORTED);
    assert_int_equal(kv_init(&cache, OFL_KV_Q8_0, &shape, 16, memory, sizeof memory), OFL_ERROR_UNSUPPORTED);
    assert_int_equal(kv_init(&cache, OFL_KV_F16, &shape, 20, memory, sizeof memory), OFL_ERROR_UNSUPPORTED);
    assert_int_equal(kv_init(&cache, OFL_KV_F32, &shape, 32, memory, 100), OFL_ERROR_UNSUPPORTED);
    assert_int_equal(kv_init(&cache, OFL_KV_F16, &shape, 16, memory, sizeof memory), OFL_OK);
    assert_int_equal(cache.block_bytes, 2 * 16 * 24 * 2);
}

/* Turning keeps lengths, and the product of two turned rows depends on their distance alone. */
static void check_turns(ofl_rope_pairing pairing)
{
    ofl_model_shape shape = {
        .struct_size = sizeof shape, .head_dim_k = 32, .rope_dim = 24, .rope_pairing = pairing, .rope_freq_base = 10000};
    rope r;
    uint64_t seed = 3;
    float table[ROPE_MAX_DIM], a[64], b[64];
    double products[2] = {0, 0};
    assert_int_equal(rope_init(&r, &shape, NULL), OFL_OK);
    float *from = random_rows(128, &seed);
    for (uint32_t k = 0; k < 2; k++) {
        memcpy(a, from, sizeof a);
        memcpy(b, from + 64, sizeof b);
        rope_table(&r, 9 + 100 * k, table);
        rope_turn(&r, table, a, 2, 32);
        rope_table(&r, 4 + 100 * k, table);
        rope_turn(&r, table, b, 2, 32);
        for (int i = 0; i < 64; i++) products[k] += (double)a[i] * (double)b[i];
        assert_true(a[31] == from[31] && a[63] == from[63]); /* beyond rope_dim: left alone */
        assert_true(a[0] != from[0]);
    }
    assert_true(fabs(products[0] - products[1]) < 1e-4);
    free(from);
}

static void test_rope(void **state)
{
    (void)state;
    check_turns(OFL_ROPE_HALF);
    check_turns(OFL_ROPE_INTERLEAVED);
}

/* Both pairings are the same turn of differently ordered elements. */
static void test_rope_pairings_agree(void **state)
{
    (void)state;
    ofl_model_shape shape = {.struct_size = sizeof shape, .head_dim_k = 16, .rope_dim = 16, .rope_freq_base = 500};
    rope half, between;
    float table[16], a[16], b[16];
    uint64_t seed = 5;
    shape.rope_pairing = OFL_ROPE_HALF;
    assert_int_equal(rope_init(&half, &shape, NULL), OFL_OK);
    shape.rope_pairing = OFL_ROPE_INTERLEAVED;
    assert_int_equal(rope_init(&between, &shape, NULL), OFL_OK);
    for (int i = 0; i < 8; i++) {
        a[i] = b[2 * i] = uniform(&seed);
        a[i + 8] = b[2 * i + 1] = uniform(&seed);
    }
    rope_table(&half, 77, table);
    rope_turn(&half, table, a, 1, 16);
    rope_turn(&between, table, b, 1, 16);
    for (int i = 0; i < 8; i++) assert_true(a[i] == b[2 * i] && a[i + 8] == b[2 * i + 1]);
}

static void test_rope_scalings(void **state)
{
    (void)state;
    ofl_model_shape shape = {.struct_size = sizeof shape,
                             .head_dim_k = 64,
                             .rope_dim = 64,
                             .rope_freq_base = 10000,
                             .rope_factor = 4,
                             .rope_original_context = 2048,
                             .rope_low_freq_factor = 1,
                             .rope_high_freq_factor = 4};
    rope plain, r;
    assert_int_equal(rope_init(&plain, &shape, NULL), OFL_OK);
    shape.rope_scaling = OFL_ROPE_LINEAR;
    assert_int_equal(rope_init(&r, &shape, NULL), OFL_OK);
    assert_true(r.frequencies[5] == plain.frequencies[5] / 4);
    shape.rope_scaling = OFL_ROPE_LLAMA3;
    assert_int_equal(rope_init(&r, &shape, NULL), OFL_OK);
    assert_true(r.frequencies[0] == plain.frequencies[0] && r.frequencies[31] == plain.frequencies[31] / 4);
    shape.rope_scaling = OFL_ROPE_YARN;
    assert_int_equal(rope_init(&r, &shape, NULL), OFL_OK);
    assert_true(r.frequencies[0] == plain.frequencies[0] && r.frequencies[31] == plain.frequencies[31] / 4);
    assert_true(fabs(r.magnitude - (0.1 * log(4) + 1)) < 1e-12);
    shape.rope_scaling = OFL_ROPE_DYNAMIC;
    assert_int_equal(rope_init(&r, &shape, NULL), OFL_ERROR_UNSUPPORTED);
    shape.rope_scaling = OFL_ROPE_NONE;
    shape.rope_dim = 65;
    assert_int_equal(rope_init(&r, &shape, NULL), OFL_ERROR_UNSUPPORTED);
}

static void test_rows(void **state)
{
    (void)state;
    float from[35], weight[35], to[35], gate[35], up[35];
    uint64_t seed = 9;
    double squares = 0;
    for (int i = 0; i < 35; i++) {
        from[i] = uniform(&seed);
        weight[i] = uniform(&seed);
        gate[i] = 20 * uniform(&seed);
        up[i] = uniform(&seed);
        squares += (double)from[i] * (double)from[i];
    }
    gate[0] = -200;
    gate[1] = 200;
    rows_norm(from, weight, 35, 1e-5f, to);
    for (int i = 0; i < 35; i++) assert_true(fabs((double)to[i] - (double)from[i] * (double)weight[i] / sqrt(squares / 35 + 1e-5)) < 1e-6);
    memcpy(to, gate, sizeof to);
    rows_gate(to, up, 35);
    for (int i = 0; i < 35; i++) {
        double wanted = (double)gate[i] / (1 + exp(-(double)gate[i])) * (double)up[i];
        assert_true(fabs((double)to[i] - wanted) <= 1e-6 * fabs(wanted) + 1e-30);
    }
    for (float x = -86; x < 86; x += 0.37f) assert_true(fabs((double)float_exp(x) / exp((double)x) - 1) < 3e-7);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_every_kv_type), cmocka_unit_test(test_every_grouping),      cmocka_unit_test(test_refusals),
    cmocka_unit_test(test_rope),          cmocka_unit_test(test_rope_pairings_agree), cmocka_unit_test(test_rope_scalings),
    cmocka_unit_test(test_rows),
};
TEST_MAIN(tests)
