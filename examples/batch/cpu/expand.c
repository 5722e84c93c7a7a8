#include "batch/cpu/expand.h"

#include "batch/cpu/vector.h"

#define STRIP 256u /* elements expanded at once: the longest block, and a multiple of the others */

typedef void (*expander)(const uint8_t *from, uint64_t blocks, float *to);

VECTOR_INLINE uint16_t load_u16(const uint8_t *from)
{
    uint16_t value;
    memcpy(&value, from, sizeof value);
    return value;
}

VECTOR_INLINE uint32_t load_u32(const uint8_t *from)
{
    uint32_t value;
    memcpy(&value, from, sizeof value);
    return value;
}

VECTOR_INLINE float load_f16(const uint8_t *from) { return float_from_f16(load_u16(from)); }

VECTOR_CLONES static void expand_f32(const uint8_t *restrict from, uint64_t blocks, float *restrict to)
{
    memcpy(to, from, (size_t)blocks * sizeof *to);
}

VECTOR_CLONES static void expand_f16(const uint8_t *restrict from, uint64_t blocks, float *restrict to)
{
    for (uint64_t i = 0; i < blocks; i++) to[i] = load_f16(from + 2 * i);
}

VECTOR_CLONES static void expand_bf16(const uint8_t *restrict from, uint64_t blocks, float *restrict to)
{
    for (uint64_t i = 0; i < blocks; i++) to[i] = float_from_bf16(load_u16(from + 2 * i));
}

#define SCALES 8 /* blocks whose scales are converted together: alone they cost more than the elements */

/* The halves at the start of each block, `each` of them (1: scale; 2: scale and least), as floats. */
VECTOR_INLINE void load_scales(const uint8_t *restrict from, uint64_t blocks, uint64_t block_bytes, int each, float *restrict scales)
{
    uint16_t halves[2 * SCALES] = {0};
    for (uint64_t b = 0; b < blocks; b++) memcpy(halves + b * (uint64_t)each, from + b * block_bytes, (size_t)each * sizeof halves[0]);
    for (int i = 0; i < SCALES * each; i++) scales[i] = float_from_f16(halves[i]);
}

/* Below, of the 32-element types: elements 0–15 are the low nibbles, 16–31 the high ones; sixteen a loop make one vector. Of Q5: bit i of a
 * word is the fifth bit of element i. */
VECTOR_CLONES static void expand_q8_0(const uint8_t *restrict from, uint64_t blocks, float *restrict to)
{
    float scales[SCALES];
    for (uint64_t b = 0; b < blocks; b++, from += 34, to += 32) {
        if (b % SCALES == 0) load_scales(from, blocks - b < SCALES ? blocks - b : SCALES, 34, 1, scales);
        float scale = scales[b % SCALES];
        for (int i = 0; i < 32; i++) to[i] = scale * (float)(int8_t)from[2 + i];
    }
}

VECTOR_CLONES static void expand_q4_0(const uint8_t *restrict from, uint64_t blocks, float *restrict to)
{
    float scales[SCALES];
    for (uint64_t b = 0; b < blocks; b++, from += 18, to += 32) {
        if (b % SCALES == 0) load_scales(from, blocks - b < SCALES ? blocks - b : SCALES, 18, 1, scales);
        float scale = scales[b % SCALES];
        for (int i = 0; i < 16; i++) to[i] = scale * (float)((from[2 + i] & 15) - 8);
        for (int i = 0; i < 16; i++) to[i + 16] = scale * (float)((from[2 + i] >> 4) - 8);
    }
}

VECTOR_CLONES static void expand_q4_1(const uint8_t *restrict from, uint64_t blocks, float *restrict to)
{
    float scales[2 * SCALES];
    for (uint64_t b = 0; b < blocks; b++, from += 20, to += 32) {
        if (b % SCALES == 0) load_scales(from, blocks - b < SCALES ? blocks - b : SCALES, 20, 2, scales);
        float scale = scales[2 * (b % SCALES)], least = scales[2 * (b % SCALES) + 1];
        for (int i = 0; i < 16; i++) to[i] = scale * (float)(from[4 + i] & 15) + least;
        for (int i = 0; i < 16; i++) to[i + 16] = scale * (float)(from[4 + i] >> 4) + least;
    }
}

VECTOR_CLONES static void expand_q5_0(const uint8_t *restrict from, uint64_t blocks, float *restrict to)
{
    float scales[SCALES];
    for (uint64_t b = 0; b < blocks; b++, from += 22, to += 32) {
        if (b % SCALES == 0) load_scales(from, blocks - b < SCALES ? blocks - b : SCALES, 22, 1, scales);
        float scale = scales[b % SCALES];
        uint32_t fifth = load_u32(from + 2);
        for (int i = 0; i < 16; i++) to[i] = scale * (float)(((from[6 + i] & 15) | (int)((fifth >> i & 1u) << 4)) - 16);
        for (int i = 0; i < 16; i++) to[i + 16] = scale * (float)(((from[6 + i] >> 4) | (int)((fifth >> (i + 16) & 1u) << 4)) - 16);
    }
}

VECTOR_CLONES static void expand_q5_1(const uint8_t *restrict from, uint64_t blocks, float *restrict to)
{
    float scales[2 * SCALES];
    for (uint64_t b = 0; b < blocks; b++, from += 24, to += 32) {
        if (b % SCALES == 0) load_scales(from, blocks - b < SCALES ? blocks - b : SCALES, 24, 2, scales);
        float scale = scales[2 * (b % SCALES)], least = scales[2 * (b % SCALES) + 1];
        uint32_t fifth = load_u32(from + 4);
        for (int i = 0; i < 16; i++) to[i] = scale * (float)((from[8 + i] & 15) | (int)((fifth >> i & 1u) << 4)) + least;
        for (int i = 0; i < 16; i++) to[i + 16] = scale * (float)((from[8 + i] >> 4) | (int)((fifth >> (i + 16) & 1u) << 4)) + least;
    }
}

/* The K types' eight scales and minimums of 6 bits in 12 bytes. */
VECTOR_INLINE void unpack_scales(const uint8_t *packed, int j, float *scale, float *least)
{
    int s, m;
    if (j < 4) {
        s = packed[j] & 63;
        m = packed[j + 4] & 63;
    } else {
        s = (packed[j + 4] & 15) | (packed[j - 4] >> 6) << 4;
        m = (packed[j + 4] >> 4) | (packed[j] >> 6) << 4;
    }
    *scale *= (float)s;
    *least *= (float)m;
}

/* Strips of 64: the low nibbles of 32 bytes, then their high ones. */
VECTOR_CLONES static void expand_q4_k(const uint8_t *restrict from, uint64_t blocks, float *restrict to)
{
    for (uint64_t b = 0; b < blocks; b++, from += 144) {
        for (int j = 0; j < 8; j += 2, to += 64) {
            const uint8_t *nibbles = from + 16 + 16 * j;
            float scale0 = load_f16(from), least0 = load_f16(from + 2), scale1 = scale0, least1 = least0;
            unpack_scales(from + 4, j, &scale0, &least0);
            unpack_scales(from + 4, j + 1, &scale1, &least1);
            for (int i = 0; i < 32; i++) {
                to[i] = scale0 * (float)(nibbles[i] & 15) - least0;
                to[i + 32] = scale1 * (float)(nibbles[i] >> 4) - least1;
            }
        }
    }
}

VECTOR_CLONES static void expand_q5_k(const uint8_t *restrict from, uint64_t blocks, float *restrict to)
{
    for (uint64_t b = 0; b < blocks; b++, from += 176) {
        for (int j = 0; j < 8; j += 2, to += 64) {
            const uint8_t *fifth = from + 16, *nibbles = from + 48 + 16 * j;
            float scale0 = load_f16(from), least0 = load_f16(from + 2), scale1 = scale0, least1 = least0;
            unpack_scales(from + 4, j, &scale0, &least0);
            unpack_scales(from + 4, j + 1, &scale1, &least1);
            for (int i = 0; i < 32; i++) {
                int low = (nibbles[i] & 15) | (fifth[i] >> j & 1) << 4, high = (nibbles[i] >> 4) | (fifth[i] >> (j + 1) & 1) << 4;
                to[i] = scale0 * (float)low - least0;
                to[i + 32] = scale1 * (float)high - least1;
            }
        }
    }
}

VECTOR_INLINE void expand_six(const uint8_t *restrict low, int low_shift, const uint8_t *restrict high, int high_shift, float scale,
                              float *restrict to)
{
    for (int i = 0; i < 16; i++) to[i] = scale * (float)(((low[i] >> low_shift & 15) | (high[i] >> high_shift & 3) << 4) - 32);
}

/* Halves of 128: low four bits in 64 bytes, high two in 32, a scale for each 16. */
VECTOR_CLONES static void expand_q6_k(const uint8_t *restrict from, uint64_t blocks, float *restrict to)
{
    for (uint64_t b = 0; b < blocks; b++, from += 210) {
        float scale = load_f16(from + 208);
        for (int half = 0; half < 2; half++, to += 128) {
            const uint8_t *low = from + 64 * half, *high = from + 128 + 32 * half, *scales = from + 192 + 8 * half;
            for (int j = 0; j < 8; j++)
                expand_six(low + 16 * (j % 4), 4 * (j / 4), high + 16 * (j % 2), 2 * (j / 2), scale * (float)(int8_t)scales[j],
                           to + 16 * j);
        }
    }
}

static expander expander_of(ofl_dtype dtype)
{
    switch ((int)dtype) {
    case OFL_DTYPE_F32: return expand_f32;
    case OFL_DTYPE_F16: return expand_f16;
    case OFL_DTYPE_BF16: return expand_bf16;
    case OFL_DTYPE_Q8_0: return expand_q8_0;
    case OFL_DTYPE_Q4_0: return expand_q4_0;
    case OFL_DTYPE_Q4_1: return expand_q4_1;
    case OFL_DTYPE_Q5_0: return expand_q5_0;
    case OFL_DTYPE_Q5_1: return expand_q5_1;
    case OFL_DTYPE_Q4_K: return expand_q4_k;
    case OFL_DTYPE_Q5_K: return expand_q5_k;
    case OFL_DTYPE_Q6_K: return expand_q6_k;
    default: return NULL;
    }
}

bool expand_knows(ofl_dtype dtype) { return expander_of(dtype) != NULL; }

void expand_to_f32(ofl_dtype dtype, const void *from, uint64_t elements, float *to)
{
    expander_of(dtype)(from, elements / ofl_dtype_block_elements(dtype), to);
}

VECTOR_CLONES static void round_strip(const float *restrict from, uint64_t count, uint16_t *restrict to)
{
    for (uint64_t i = 0; i < count; i++) to[i] = bf16_from_float(from[i]);
}

void expand_to_bf16(ofl_dtype dtype, const void *from, uint64_t elements, uint16_t *to)
{
    const uint8_t *source = from;
    expander expand = expander_of(dtype);
    uint32_t block_elements = ofl_dtype_block_elements(dtype);
    uint64_t strip_bytes = (uint64_t)ofl_dtype_block_bits(dtype) / 8 * (STRIP / block_elements);
    float strip[STRIP];
    if (dtype == OFL_DTYPE_BF16) {
        memcpy(to, from, (size_t)elements * sizeof *to);
        return;
    }
    for (uint64_t done = 0; done < elements; done += STRIP, source += strip_bytes) {
        uint64_t count = elements - done < STRIP ? elements - done : STRIP;
        expand(source, count / block_elements, strip);
        round_strip(strip, count, to + done);
    }
}

VECTOR_CLONES static void round_in_place(float *values, uint64_t count)
{
    for (uint64_t i = 0; i < count; i++) values[i] = float_from_bf16(bf16_from_float(values[i]));
}

void expand_to_rounded(ofl_dtype dtype, const void *from, uint64_t elements, float *to)
{
    expand_to_f32(dtype, from, elements, to);
    if (dtype != OFL_DTYPE_BF16) round_in_place(to, elements);
}
