#include "batch/cpu/rows.h"

#include <math.h>

#include "batch/cpu/vector.h"

#define LANES 16 /* sums are made in so many parts, so that their order does not depend on the compiler */

VECTOR_CLONES static float sum_of_squares(const float *restrict from, uint32_t count)
{
    float lanes[LANES] = {0}, sum = 0;
    uint32_t whole = count / LANES * LANES;
    for (uint32_t i = 0; i < whole; i += LANES) {
        for (uint32_t j = 0; j < LANES; j++) lanes[j] += from[i + j] * from[i + j];
    }
    for (uint32_t i = whole; i < count; i++) lanes[i - whole] += from[i] * from[i];
    for (uint32_t j = 0; j < LANES; j++) sum += lanes[j];
    return sum;
}

VECTOR_CLONES static void scale(const float *from, const float *weight, uint32_t count, float factor, float *to)
{
    for (uint32_t i = 0; i < count; i++) to[i] = from[i] * factor * weight[i];
}

void rows_norm(const float *from, const float *weight, uint32_t count, float epsilon, float *to)
{
    scale(from, weight, count, 1.0f / sqrtf(sum_of_squares(from, count) / (float)count + epsilon), to);
}

VECTOR_CLONES void rows_gate(float *restrict gate, const float *restrict up, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) gate[i] = gate[i] / (1.0f + float_exp(-gate[i])) * up[i];
}

VECTOR_CLONES static void pack_bf16(const float *restrict from, uint64_t count, uint16_t *restrict to)
{
    for (uint64_t i = 0; i < count; i++) to[i] = bf16_from_float(from[i]);
}

void rows_pack(const float *from, uint64_t count, ofl_compute_type type, void *to)
{
    if (type == OFL_COMPUTE_BF16)
        pack_bf16(from, count, to);
    else
        memcpy(to, from, (size_t)count * sizeof *from);
}
