/* The inside of the KV cache's spans on a GPU (kernels.h says how they lie): where a pair of elements is, loading and storing it. */
#ifndef OFLOAD_BATCH_CACHE_BODIES_H
#define OFLOAD_BATCH_CACHE_BODIES_H

#include "batch/cuda/bodies.h"

#define CACHE_GROUP 32u /* q8_0: elements of one scale */

BODY uint8_t *cache_span(const kv_cache *c, uint32_t layer, const uint32_t *blocks, uint32_t head, uint32_t span, bool values)
{
    uint32_t spans = c->block_tokens / KV_SPAN;
    return c->base + blocks[span / spans] * c->block_bytes + (2u * layer + (values ? 1u : 0u)) * c->half_bytes + head * c->head_bytes +
           span % spans * c->span_bytes;
}

/* Of a pair of elements and a position of the span: which pair, and which scale, counted from the span's first. */
BODY uint32_t key_pair_at(uint32_t pair, uint32_t position) { return pair * KV_SPAN + position; }
BODY uint32_t value_pair_at(uint32_t pair, uint32_t position, uint32_t dim) { return position * (dim / 2) + pair; }
BODY uint32_t key_scale_at(uint32_t group, uint32_t position) { return group * KV_SPAN + position; }
BODY uint32_t value_scale_at(uint32_t group, uint32_t position, uint32_t dim) { return position * (dim / CACHE_GROUP) + group; }

/* Where a span's pairs begin. */
BODY uint32_t pairs_offset(ofl_kv_type type, uint32_t dim) { return type == OFL_KV_Q8_0 ? KV_SPAN * (dim / CACHE_GROUP) * 2u : 0; }

BODY float load_scale(const uint8_t *span, uint32_t at) { return float_of_f16(((const uint16_t *)(const void *)span)[at]); }

typedef struct cache_pair { float x, y; } cache_pair;

/* A pair as floats; of q8_0, without its scale. */
BODY cache_pair load_pair(ofl_kv_type type, const uint8_t *pairs, uint32_t at)
{
    cache_pair pair;
    if (type == OFL_KV_F32) {
        const float *from = (const float *)(const void *)pairs + 2 * (uint64_t)at;
        pair.x = from[0];
        pair.y = from[1];
    } else if (type == OFL_KV_Q8_0) {
        uint16_t both = ((const uint16_t *)(const void *)pairs)[at];
        pair.x = (float)(int8_t)(both & 255);
        pair.y = (float)(int8_t)(both >> 8);
    } else {
        uint32_t both = ((const uint32_t *)(const void *)pairs)[at];
        pair.x = type == OFL_KV_F16 ? float_of_f16((uint16_t)both) : float_from_bits(both << 16);
        pair.y = type == OFL_KV_F16 ? float_of_f16((uint16_t)(both >> 16)) : float_from_bits(both & 0xffff0000u);
    }
    return pair;
}

/* Of a group's elements as steps of a scale; what is not a number makes the whole group none, and so stays visible. */
BODY float group_scale(const float *from)
{
    float most = 0;
    for (uint32_t i = 0; i < CACHE_GROUP; i++) {
        float size = from[i] < 0 ? -from[i] : from[i];
        if (!(size <= most)) most = size;
        if (most != most) break;
    }
    return most / 127.0f;
}

BODY uint32_t quantise_one(float value, float scale)
{
    float steps = value * (scale > 0 ? 1.0f / scale : 0);
    steps = steps > 127.0f ? 127.0f : steps < -127.0f ? -127.0f : steps;
    if (steps != steps) return 0;
    return (uint8_t)(int8_t)(steps + (steps < 0 ? -0.5f : 0.5f));
}

BODY void store_pair(ofl_kv_type type, uint8_t *pairs, uint32_t at, const float *from, float scale)
{
    if (type == OFL_KV_F32) {
        float *to = (float *)(void *)pairs + 2 * (uint64_t)at;
        to[0] = from[0];
        to[1] = from[1];
    } else if (type == OFL_KV_Q8_0) {
        ((uint16_t *)(void *)pairs)[at] = (uint16_t)(quantise_one(from[0], scale) | quantise_one(from[1], scale) << 8);
    } else {
        uint32_t x = type == OFL_KV_F16 ? f16_from_float(from[0]) : bf16_from_float(from[0]);
        uint32_t y = type == OFL_KV_F16 ? f16_from_float(from[1]) : bf16_from_float(from[1]);
        ((uint32_t *)(void *)pairs)[at] = x | y << 16;
    }
}

/* Stores a head's row, which all threads see, at a position of a span. scales: room for one a group. */
BODY void cache_store(const kv_cache *c, body_group g, uint32_t threads, const float *row, float *scales, uint32_t position, bool values,
                      uint8_t *span)
{
    uint32_t dim = c->dim;
    uint8_t *pairs = span + pairs_offset(c->type, dim);
    EACH_THREAD(g, t, threads) {
        for (uint32_t i = t; c->type == OFL_KV_Q8_0 && i < dim / CACHE_GROUP; i += threads) {
            uint16_t half = f16_from_float(group_scale(row + i * CACHE_GROUP));
            ((uint16_t *)(void *)span)[values ? value_scale_at(i, position, dim) : key_scale_at(i, position)] = half;
            scales[i] = float_of_f16(half);
        }
    }
    BARRIER(g);
    EACH_THREAD(g, t, threads) {
        for (uint32_t i = t; i < dim / 2; i += threads) {
            uint32_t at = values ? value_pair_at(i, position, dim) : key_pair_at(i, position);
            store_pair(c->type, pairs, at, row + 2 * i, c->type == OFL_KV_Q8_0 ? scales[2 * i / CACHE_GROUP] : 0);
        }
    }
}

#endif
