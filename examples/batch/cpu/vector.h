/* Plain C loops that the compiler turns into vectors: several versions of a function, the best one for the CPU chosen at load time; and the
 * number formats. */
#ifndef OFLOAD_BATCH_CPU_VECTOR_H
#define OFLOAD_BATCH_CPU_VECTOR_H

#include <stdint.h>
#include <string.h>

/* Sanitizers run before the choice can be made, so their builds get one version. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define VECTOR_CLONES
#elif defined(__x86_64__) && defined(__GLIBC__) && defined(__GNUC__) && !defined(__clang__) && __GNUC__ >= 12
#define VECTOR_CLONES __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#elif defined(__x86_64__) && defined(__GLIBC__) && defined(__GNUC__) && !defined(__clang__)
#define VECTOR_CLONES __attribute__((target_clones("avx512f", "avx2", "default")))
#else
#define VECTOR_CLONES
#endif
#ifdef __CUDACC__
#define VECTOR_INLINE static __host__ __device__ __forceinline__
#else
#define VECTOR_INLINE static inline __attribute__((always_inline))
#endif

VECTOR_INLINE uint32_t float_bits(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

VECTOR_INLINE float float_from_bits(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

VECTOR_INLINE float float_from_bf16(uint16_t half) { return float_from_bits((uint32_t)half << 16); }

/* Rounds to nearest, ties to even; a NaN stays one. */
VECTOR_INLINE uint16_t bf16_from_float(float value)
{
    uint32_t bits = float_bits(value), rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
    return (uint16_t)((bits & 0x7fffffffu) > 0x7f800000u ? (bits >> 16) | 0x40u : rounded);
}

/* Without a branch: small numbers are whole multiples of 2^-24, the exponent of the others is moved over, infinities and NaNs all the way
 * up. */
VECTOR_INLINE float float_from_f16(uint16_t half)
{
    uint32_t sign = ((uint32_t)half & 0x8000u) << 16, magnitude = (uint32_t)half & 0x7fffu;
    uint32_t top = 0u - (uint32_t)(magnitude >= 0x7c00u), low = 0u - (uint32_t)(magnitude < 0x400u);
    uint32_t normal = (magnitude << 13) + ((127u - 15u) << 23) + (top & (112u << 23));
    uint32_t small = float_bits((float)(int32_t)magnitude * 0x1p-24f);
    return float_from_bits((low & small) | (~low & normal) | sign);
}

/* Rounds to nearest, ties to even; too big becomes infinite. */
VECTOR_INLINE uint16_t f16_from_float(float value)
{
    uint32_t bits = float_bits(value), sign = (bits >> 16) & 0x8000u, magnitude = bits & 0x7fffffffu;
    uint32_t normal = (magnitude - ((127u - 15u) << 23) + 0xfffu + ((magnitude >> 13) & 1u)) >> 13;
    uint32_t small = float_bits(float_from_bits(magnitude) + 0.5f) - float_bits(0.5f); /* the addition rounds at 2^-24 */
    uint32_t half = magnitude < ((127u - 14u) << 23) ? small : normal;
    half = half > 0x7c00u ? 0x7c00u : half;
    return (uint16_t)((magnitude > 0x7f800000u ? 0x7e00u : half) | sign);
}

/* e^x to about 1e-7 of its value, without a branch; beyond ±87 as at ±87. 2^n × e^r with |r| ≤ ln 2 / 2, e^r by its series. */
VECTOR_INLINE float float_exp(float x)
{
    const float shifter = 0x1.8p23f; /* adding it rounds to a whole number, kept in the low bits */
    x = x > 87.0f ? 87.0f : x;
    x = x < -87.0f ? -87.0f : x;
    float shifted = x * 0x1.715476p0f + shifter, n = shifted - shifter;
    float r = x - n * 0x1.62e4p-1f;
    r = r - n * 0x1.7f7d1cp-20f;
    float series = 1.0f / 720.0f;
    series = series * r + 1.0f / 120.0f;
    series = series * r + 1.0f / 24.0f;
    series = series * r + 1.0f / 6.0f;
    series = series * r + 0.5f;
    series = series * r + 1.0f;
    series = series * r + 1.0f;
    return series * float_from_bits((float_bits(shifted) + 127u) << 23);
}

#ifndef __CUDACC__
/* Sixteen floats: one register of the widest kind, or several of a smaller one. */
typedef float float16v __attribute__((vector_size(64)));
typedef int32_t int16v __attribute__((vector_size(64)));

/* float_exp of sixteen values ≤ 0, in place. */
VECTOR_INLINE void float_exp_sixteen(float16v *values)
{
    const float16v zero = {0}, shifter = zero + 0x1.8p23f, least = zero - 87.0f;
    int16v enough = *values > least;
    float16v x = (float16v)(((int16v)*values & enough) | ((int16v)least & ~enough));
    float16v shifted = x * 0x1.715476p0f + shifter, n = shifted - shifter;
    float16v r = x - n * 0x1.62e4p-1f - n * 0x1.7f7d1cp-20f;
    float16v series = ((((r * (1.0f / 720.0f) + 1.0f / 120.0f) * r + 1.0f / 24.0f) * r + 1.0f / 6.0f) * r + 0.5f) * r + 1.0f;
    series = series * r + 1.0f;
    *values = series * (float16v)(((int16v)shifted + 127) << 23);
}
#endif

#endif
