/* The paged KV cache in device memory that the host can read. A block holds every layer's keys and values of kv_block_tokens positions; of
 * a layer, first the keys, then the values; of these, head after head, in spans of 16 positions: keys    turned over, [element][position],
 * so that 16 scores are one vector (q8_0: per 32 elements 16 scales, then [element][position] bytes) values  [position][element] (q8_0: per
 * 32 elements a scale and 32 bytes) A head's span takes 16 × the bytes of a row of its elements, whatever the type. */
#ifndef OFLOAD_BATCH_KV_H
#define OFLOAD_BATCH_KV_H

#include <ofload/plan.h>

#define KV_SPAN 16u
#define KV_MAX_DIM 256u
#define KV_TYPES_SUPPORTED "f16|bf16|f32|q8_0" /* in the order of ofl_kv_type */

typedef struct kv_cache {
    uint8_t *base;
    ofl_kv_type type;
    uint32_t layers, heads, dim, block_tokens, block_count;
    uint64_t span_bytes; /* one head's keys (or values) of 16 positions */
    uint64_t head_bytes; /* … of a block */
    uint64_t half_bytes; /* all heads: a layer's keys of a block */
    uint64_t block_bytes;
} kv_cache;

/* OFL_ERROR_UNSUPPORTED: a type, or heads of a size, that it cannot hold. */
ofl_status kv_supports(ofl_kv_type type, uint32_t dim);
/* Lays `bytes` at `base` out in blocks. OFL_ERROR_UNSUPPORTED: a type or size that it cannot hold. */
ofl_status kv_init(kv_cache *cache, ofl_kv_type type, const ofl_model_shape *shape, uint32_t block_tokens, void *base, uint64_t bytes);
/* Stores one position's keys and values (heads × dim) of a layer; blocks: the sequence's. */
void kv_store(const kv_cache *cache, uint32_t layer, const uint32_t *blocks, uint32_t position, const float *keys, const float *values);
/* A span as floats: keys [dim][16], values [16][dim], of its first `count` positions (the rest of the values is left alone, of the keys
 * unspecified). */
void kv_load_keys(const kv_cache *cache, uint32_t layer, const uint32_t *blocks, uint32_t head, uint32_t span, float *to);
void kv_load_values(const kv_cache *cache, uint32_t layer, const uint32_t *blocks, uint32_t head, uint32_t span, uint32_t count, float *to);

#endif
