/* Stored weights to numbers: the formulas of expand.c, eight elements at a time. */
#ifndef OFLOAD_BATCH_EXPAND_BODIES_H
#define OFLOAD_BATCH_EXPAND_BODIES_H

#include "batch/cuda/bodies.h"

#define EXPAND_THREADS 128u
#define EXPAND_ELEMENTS (8u * EXPAND_THREADS) /* of a workgroup: whole blocks of every type */

typedef struct expand_shared { uint32_t words[EXPAND_ELEMENTS + 1]; } expand_shared; /* the bytes as stored, at their own alignment */

typedef struct embed_job {
    kernel_embed_args a;
    uint32_t block_elements, block_bytes; /* of the type */
    uint32_t strips;                      /* workgroups of a row */
} embed_job;

typedef struct expand_job {
    kernel_expand_args a;
    uint32_t block_elements, block_bytes;
} expand_job;

typedef expand_shared embed_shared;
#define EMBED_THREADS EXPAND_THREADS

BODY uint16_t two_bytes(const uint8_t *from) { return (uint16_t)(from[0] | from[1] << 8); }
BODY uint32_t four_bytes(const uint8_t *from) { return two_bytes(from) | (uint32_t)two_bytes(from + 2) << 16; }

/* Copies bytes of any alignment by whole words where they are; returns where they are now. */
BODY const uint8_t *stage(body_group g, expand_shared *s, const uint8_t *from, uint32_t bytes)
{
    uint32_t skew = (uint32_t)((uintptr_t)from & 3u), head = (4u - skew) & 3u;
    uint8_t *to = (uint8_t *)s->words + skew;
    if (head > bytes) head = bytes;
    uint32_t words = (bytes - head) / 4, tail = head + 4 * words;
    EACH_THREAD(g, t, EXPAND_THREADS) {
        for (uint32_t i = t; i < words; i += EXPAND_THREADS) s->words[(skew + head) / 4 + i] = load_word(from + head + 4 * i);
        if (t < head) to[t] = from[t];
        if (tail + t < bytes) to[tail + t] = from[tail + t];
    }
    BARRIER(g);
    return to;
}

/* Of the 32-element types: elements 0–15 are the low nibbles, 16–31 the high ones; bit i of a word is the fifth bit of element i. */
BODY int nibble_of(const uint8_t *nibbles, uint32_t i) { return i < 16 ? nibbles[i] & 15 : nibbles[i - 16] >> 4; }

BODY void eight_of_q8_0(const uint8_t *block, uint32_t first, float *to)
{
    float scale = float_of_f16(two_bytes(block));
    UNROLL for (uint32_t i = 0; i < 8; i++) to[i] = TIMES(scale, (float)(int8_t)block[2 + first + i]);
}

BODY void eight_of_q4(const uint8_t *block, uint32_t first, bool has_least, float *to)
{
    float scale = float_of_f16(two_bytes(block)), least = has_least ? float_of_f16(two_bytes(block + 2)) : 0;
    const uint8_t *nibbles = block + (has_least ? 4 : 2);
    UNROLL for (uint32_t i = 0; i < 8; i++) {
        int steps = nibble_of(nibbles, first + i);
        to[i] = has_least ? PLUS(TIMES(scale, (float)steps), least) : TIMES(scale, (float)(steps - 8));
    }
}

BODY void eight_of_q5(const uint8_t *block, uint32_t first, bool has_least, float *to)
{
    float scale = float_of_f16(two_bytes(block)), least = has_least ? float_of_f16(two_bytes(block + 2)) : 0;
    const uint8_t *rest = block + (has_least ? 4 : 2);
    uint32_t fifth = four_bytes(rest) >> first;
    UNROLL for (uint32_t i = 0; i < 8; i++) {
        int steps = nibble_of(rest + 4, first + i) | (int)((fifth >> i & 1u) << 4);
        to[i] = has_least ? PLUS(TIMES(scale, (float)steps), least) : TIMES(scale, (float)(steps - 16));
    }
}

/* The K types' eight scales and minimums of 6 bits in 12 bytes. */
BODY void unpack_sixes(const uint8_t *packed, uint32_t j, float *scale, float *least)
{
    int s = j < 4 ? packed[j] & 63 : (packed[j + 4] & 15) | (packed[j - 4] >> 6) << 4;
    int m = j < 4 ? packed[j + 4] & 63 : (packed[j + 4] >> 4) | (packed[j] >> 6) << 4;
    *scale = TIMES(*scale, (float)s);
    *least = TIMES(*least, (float)m);
}

/* Strips of 64: the low nibbles of 32 bytes, then their high ones. fifth: q5_k's bytes of fifth bits, or NULL. */
BODY void eight_of_k(const uint8_t *block, const uint8_t *fifth, const uint8_t *nibbles, uint32_t first, float *to)
{
    float scale = float_of_f16(two_bytes(block)), least = float_of_f16(two_bytes(block + 2));
    uint32_t j = first / 32, at = first % 32, shift = 4 * (j % 2);
    unpack_sixes(block + 4, j, &scale, &least);
    UNROLL for (uint32_t i = 0; i < 8; i++) {
        int steps = nibbles[32 * (j / 2) + at + i] >> shift & 15;
        if (fifth != NULL) steps |= (fifth[at + i] >> j & 1) << 4;
        to[i] = PLUS(TIMES(scale, (float)steps), -least);
    }
}

/* Halves of 128: low four bits in 64 bytes, high two in 32, a scale for each 16. */
BODY void eight_of_q6_k(const uint8_t *block, uint32_t first, float *to)
{
    uint32_t half = first / 128, j = first % 128 / 16, at = first % 16;
    const uint8_t *low = block + 64 * half + 16 * (j % 4) + at, *high = block + 128 + 32 * half + 16 * (j % 2) + at;
    float scale = TIMES(float_of_f16(two_bytes(block + 208)), (float)(int8_t)block[192 + 8 * half + j]);
    UNROLL for (uint32_t i = 0; i < 8; i++)
        to[i] = TIMES(scale, (float)(((low[i] >> 4 * (j / 4) & 15) | (high[i] >> 2 * (j / 2) & 3) << 4) - 32));
}

BODY void eight_plain(ofl_dtype dtype, const uint8_t *from, uint32_t count, float *to)
{
    UNROLL for (uint32_t i = 0; i < 8; i++) {
        if (i >= count) break;
        to[i] = dtype == OFL_DTYPE_F32   ? float_from_bits(four_bytes(from + 4 * i))
                : dtype == OFL_DTYPE_F16 ? float_of_f16(two_bytes(from + 2 * i))
                                         : float_from_bf16(two_bytes(from + 2 * i));
    }
}

/* Elements first … first + 7 (count of them, where it is the end of plain numbers). */
BODY void eight_of(ofl_dtype dtype, const uint8_t *block, uint32_t first, uint32_t count, float *to)
{
    switch ((int)dtype) {
    case OFL_DTYPE_Q8_0: eight_of_q8_0(block, first, to); break;
    case OFL_DTYPE_Q4_0: eight_of_q4(block, first, false, to); break;
    case OFL_DTYPE_Q4_1: eight_of_q4(block, first, true, to); break;
    case OFL_DTYPE_Q5_0: eight_of_q5(block, first, false, to); break;
    case OFL_DTYPE_Q5_1: eight_of_q5(block, first, true, to); break;
    case OFL_DTYPE_Q4_K: eight_of_k(block, NULL, block + 16, first, to); break;
    case OFL_DTYPE_Q5_K: eight_of_k(block, block + 16, block + 48, first, to); break;
    case OFL_DTYPE_Q6_K: eight_of_q6_k(block, first, to); break;
    default: eight_plain(dtype, block, count, to);
    }
}

/* Neighbours side by side in a word, the first one low. */
BODY uint32_t bf16_pair(const float *from) { return bf16_from_float(from[0]) | (uint32_t)bf16_from_float(from[1]) << 16; }

/* As 16-byte words where they may be. */
BODY void store_eight(void *to, uint64_t at, ofl_compute_type type, const float *values, uint32_t count)
{
    uint8_t *place = (uint8_t *)to + at * (type == OFL_COMPUTE_BF16 ? 2u : 4u);
    if (count < 8 || ((uintptr_t)place & 15u) != 0) {
        UNROLL for (uint32_t i = 0; i < 8; i++) {
            if (i < count) store_number(to, at + i, type, values[i]);
        }
    } else if (type == OFL_COMPUTE_BF16) {
        body_words words = {bf16_pair(values), bf16_pair(values + 2), bf16_pair(values + 4), bf16_pair(values + 6)};
        *(body_words *)(void *)place = words;
    } else {
        body_four low = {values[0], values[1], values[2], values[3]}, high = {values[4], values[5], values[6], values[7]};
        ((body_four *)(void *)place)[0] = low;
        ((body_four *)(void *)place)[1] = high;
    }
}

/* A strip of up to EXPAND_ELEMENTS elements to `to` from its element `at` on. */
BODY void expand_strip(body_group g, expand_shared *s, const expand_job *what, const uint8_t *from, uint32_t count, uint64_t at)
{
    uint32_t each = what->block_elements;
    const uint8_t *staged = stage(g, s, from, count / each * what->block_bytes);
    EACH_THREAD(g, t, EXPAND_THREADS) {
        float values[8];
        uint32_t first = 8 * t, left = count - first < 8 ? count - first : 8;
        if (first >= count) continue;
        eight_of(what->a.dtype, staged + first / each * what->block_bytes, first % each, left, values);
        store_eight(what->a.to, at + first, what->a.to_type, values, left);
    }
}

BODY void body_expand(const expand_job *job, body_group g, expand_shared *s)
{
    uint64_t first = (uint64_t)g.block * EXPAND_ELEMENTS, left = job->a.elements - first;
    const uint8_t *from = (const uint8_t *)job->a.from + first / job->block_elements * job->block_bytes;
    expand_strip(g, s, job, from, left < EXPAND_ELEMENTS ? (uint32_t)left : EXPAND_ELEMENTS, first);
}

BODY void body_embed(const embed_job *job, body_group g, embed_shared *s)
{
    uint32_t token = g.block / job->strips, first = g.block % job->strips * EXPAND_ELEMENTS, left = job->a.columns - first;
    if (!is_live(token, job->a.live)) return;
    const uint8_t *from = (const uint8_t *)job->a.rows[token] + (uint64_t)(first / job->block_elements) * job->block_bytes;
    float *to = job->a.to + token * job->a.to_stride;
    expand_job what = {{NULL, job->a.dtype, 0, to, OFL_COMPUTE_F32}, job->block_elements, job->block_bytes};
    expand_strip(g, s, &what, from, left < EXPAND_ELEMENTS ? left : EXPAND_ELEMENTS, first);
}

#endif
