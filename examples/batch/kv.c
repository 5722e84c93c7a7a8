#include "batch/kv.h"

#include "batch/cpu/vector.h"
#include "common/app_error.h"

#define GROUP 32u /* q8_0: elements of one scale */
#define GROUP_BYTES 34u

static uint64_t row_bytes(ofl_kv_type type, uint32_t dim)
{
    switch (type) {
    case OFL_KV_F32: return dim * 4u;
    case OFL_KV_F16:
    case OFL_KV_BF16: return dim * 2u;
    case OFL_KV_Q8_0: return dim / GROUP * GROUP_BYTES;
    default: return 0;
    }
}

ofl_status kv_supports(ofl_kv_type type, uint32_t dim)
{
    if (row_bytes(type, KV_MAX_DIM) == 0)
        return app_fail(OFL_ERROR_UNSUPPORTED, "KV cache: %s is not supported; %s are", ofl_kv_type_name(type), KV_TYPES_SUPPORTED);
    if (dim == 0 || dim > KV_MAX_DIM)
        return app_fail(OFL_ERROR_UNSUPPORTED, "KV cache: heads of %u elements are not supported; up to %u are", dim, KV_MAX_DIM);
    if (type == OFL_KV_Q8_0 && dim % GROUP != 0)
        return app_fail(OFL_ERROR_UNSUPPORTED, "KV cache: q8_0 needs heads of a multiple of 32 elements, these have %u; use f16", dim);
    return OFL_OK;
}

ofl_status kv_init(kv_cache *cache, ofl_kv_type type, const ofl_model_shape *shape, uint32_t block_tokens, void *base, uint64_t bytes)
{
    kv_cache c = {.base = base,
                  .type = type,
                  .layers = shape->block_count,
                  .heads = shape->head_count_kv,
                  .dim = shape->head_dim_k,
                  .block_tokens = block_tokens};
    ofl_status status = kv_supports(type, c.dim);
    if (status != OFL_OK) return status;
    if (block_tokens == 0 || block_tokens % KV_SPAN != 0)
        return app_fail(OFL_ERROR_UNSUPPORTED, "KV cache: blocks of %u tokens are not supported; multiples of %u are", block_tokens,
                        KV_SPAN);
    c.span_bytes = KV_SPAN * row_bytes(type, c.dim);
    c.head_bytes = block_tokens / KV_SPAN * c.span_bytes;
    c.half_bytes = c.heads * c.head_bytes;
    c.block_bytes = 2 * c.layers * c.half_bytes;
    uint64_t blocks = c.block_bytes == 0 ? 0 : bytes / c.block_bytes;
    if (blocks == 0)
        return app_fail(OFL_ERROR_UNSUPPORTED, "KV cache: no block of %llu bytes fits in %llu", (unsigned long long)c.block_bytes,
                        (unsigned long long)bytes);
    c.block_count = blocks < UINT32_MAX ? (uint32_t)blocks : UINT32_MAX;
    *cache = c;
    return OFL_OK;
}

static uint8_t *span_of(const kv_cache *c, uint32_t layer, const uint32_t *blocks, uint32_t head, uint32_t span, int values)
{
    uint32_t spans = c->block_tokens / KV_SPAN;
    return c->base + blocks[span / spans] * c->block_bytes + (2u * layer + (values ? 1u : 0u)) * c->half_bytes + head * c->head_bytes +
           span % spans * c->span_bytes;
}

static float quantise(const float *from, int8_t *to)
{
    float most = 0;
    for (uint32_t i = 0; i < GROUP; i++) {
        float size = from[i] < 0 ? -from[i] : from[i];
        most = size > most ? size : most;
    }
    float scale = float_from_f16(f16_from_float(most / 127.0f)), inverse = scale > 0 ? 1.0f / scale : 0;
    for (uint32_t i = 0; i < GROUP; i++) {
        float steps = from[i] * inverse;
        steps = steps > 127.0f ? 127.0f : steps < -127.0f ? -127.0f : steps;
        to[i] = (int8_t)(steps + (steps < 0 ? -0.5f : 0.5f));
    }
    return scale;
}

static void store_key(const kv_cache *c, const float *key, uint32_t at, uint8_t *span)
{
    for (uint32_t i = 0; i < c->dim && c->type != OFL_KV_Q8_0; i++) {
        if (c->type == OFL_KV_F32)
            ((float *)(void *)span)[i * KV_SPAN + at] = key[i];
        else
            ((uint16_t *)(void *)span)[i * KV_SPAN + at] = c->type == OFL_KV_F16 ? f16_from_float(key[i]) : bf16_from_float(key[i]);
    }
    for (uint32_t g = 0; g < c->dim && c->type == OFL_KV_Q8_0; g += GROUP, span += KV_SPAN * GROUP_BYTES) {
        int8_t steps[GROUP];
        ((uint16_t *)(void *)span)[at] = f16_from_float(quantise(key + g, steps));
        for (uint32_t i = 0; i < GROUP; i++) ((int8_t *)span)[2 * KV_SPAN + i * KV_SPAN + at] = steps[i];
    }
}

static void store_value(const kv_cache *c, const float *value, uint32_t at, uint8_t *span)
{
    uint8_t *row = span + at * row_bytes(c->type, c->dim);
    for (uint32_t i = 0; i < c->dim && c->type != OFL_KV_Q8_0; i++) {
        if (c->type == OFL_KV_F32)
            ((float *)(void *)row)[i] = value[i];
        else
            ((uint16_t *)(void *)row)[i] = c->type == OFL_KV_F16 ? f16_from_float(value[i]) : bf16_from_float(value[i]);
    }
    for (uint32_t g = 0; g < c->dim && c->type == OFL_KV_Q8_0; g += GROUP, row += GROUP_BYTES) {
        uint16_t scale = f16_from_float(quantise(value + g, (int8_t *)row + 2));
        memcpy(row, &scale, sizeof scale);
    }
}

void kv_store(const kv_cache *c, uint32_t layer, const uint32_t *blocks, uint32_t position, const float *keys, const float *values)
{
    for (uint32_t h = 0; h < c->heads; h++) {
        store_key(c, keys + h * c->dim, position % KV_SPAN, span_of(c, layer, blocks, h, position / KV_SPAN, 0));
        store_value(c, values + h * c->dim, position % KV_SPAN, span_of(c, layer, blocks, h, position / KV_SPAN, 1));
    }
}

VECTOR_CLONES static void load_halves(const uint16_t *restrict from, uint32_t count, float *restrict to)
{
    for (uint32_t i = 0; i < count; i++) to[i] = float_from_f16(from[i]);
}

VECTOR_CLONES static void load_bf16(const uint16_t *restrict from, uint32_t count, float *restrict to)
{
    for (uint32_t i = 0; i < count; i++) to[i] = float_from_bf16(from[i]);
}

static void load_plain(ofl_kv_type type, const uint8_t *from, uint32_t count, float *to)
{
    if (type == OFL_KV_F32)
        memcpy(to, from, count * sizeof *to);
    else if (type == OFL_KV_F16)
        load_halves((const uint16_t *)(const void *)from, count, to);
    else
        load_bf16((const uint16_t *)(const void *)from, count, to);
}

VECTOR_CLONES static void load_group_keys(const uint8_t *restrict from, float *restrict to)
{
    float scales[KV_SPAN];
    for (uint32_t t = 0; t < KV_SPAN; t++) scales[t] = float_from_f16(((const uint16_t *)(const void *)from)[t]);
    for (uint32_t i = 0; i < GROUP; i++) {
        for (uint32_t t = 0; t < KV_SPAN; t++)
            to[i * KV_SPAN + t] = scales[t] * (float)((const int8_t *)from)[2 * KV_SPAN + i * KV_SPAN + t];
    }
}

VECTOR_CLONES static void load_group_values(const uint8_t *restrict from, float *restrict to)
{
    uint16_t half;
    memcpy(&half, from, sizeof half);
    float scale = float_from_f16(half);
    for (uint32_t i = 0; i < GROUP; i++) to[i] = scale * (float)((const int8_t *)from)[2 + i];
}

void kv_load_keys(const kv_cache *c, uint32_t layer, const uint32_t *blocks, uint32_t head, uint32_t span, float *to)
{
    const uint8_t *from = span_of(c, layer, blocks, head, span, 0);
    if (c->type != OFL_KV_Q8_0) {
        load_plain(c->type, from, c->dim * KV_SPAN, to);
        return;
    }
    for (uint32_t g = 0; g < c->dim; g += GROUP, from += KV_SPAN * GROUP_BYTES) load_group_keys(from, to + g * KV_SPAN);
}

void kv_load_values(const kv_cache *c, uint32_t layer, const uint32_t *blocks, uint32_t head, uint32_t span, uint32_t count, float *to)
{
    const uint8_t *from = span_of(c, layer, blocks, head, span, 1);
    if (c->type != OFL_KV_Q8_0) {
        load_plain(c->type, from, c->dim * count, to);
        return;
    }
    for (uint32_t g = 0; g < count * c->dim; g += GROUP, from += GROUP_BYTES) load_group_values(from, to + g);
}
