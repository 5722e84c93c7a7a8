/* What the kernels' bodies are written in: C that a CUDA compiler and a C compiler read alike. A body is what one workgroup does, as phases
 * that every thread of it runs, with barriers between them:
 *
 *     EACH_THREAD(g, t, threads) { s->part[t] = …; }     on the GPU thread t runs it, on the CPU a loop runs it for every t
 *     BARRIER(g);                                        what was shared before is seen after
 *
 * Within a phase no thread may read what another one writes. Outside of phases all threads do the same with the same values; what a
 * thread keeps from phase to phase is PER_THREAD. `continue` leaves a phase for its thread. On the CPU the threads of a phase and the
 * workgroups of a launch run forwards or backwards: a body that has no race gives the same bits; and a phase that follows another one
 * without a barrier is taken note of. */
#ifndef OFLOAD_BATCH_BODIES_H
#define OFLOAD_BATCH_BODIES_H

#include <math.h>
#include <stdbool.h>

#include "batch/cuda/kernels.h"
#include "batch/cpu/vector.h"

typedef struct body_group { /* one workgroup */
    uint32_t block;
#ifndef __CUDACC__
    bool backwards;
    struct body_watch *watch;
#endif
} body_group;

#ifndef __CUDACC__
typedef struct body_watch { /* of a workgroup */
    bool open, missed; /* a phase has run since the last barrier; another one did after it */
} body_watch;
#endif

#ifdef __CUDACC__
#include <cuda_fp16.h>
#define BODY static __device__ __forceinline__
#define EACH_THREAD(g, t, threads) for (uint32_t t = threadIdx.x, t##_left = 1; t##_left != 0; t##_left = 0)
#define BARRIER(g) __syncthreads()
#define PER_THREAD(type, name, threads, count) type name[1][count]
#define OF_THREAD(name, t) name[0 * (t)]
#define UNROLL _Pragma("unroll")
/* Never fused, so that the bits are the CPU's. */
#define TIMES(a, b) __fmul_rn(a, b)
#define PLUS(a, b) __fadd_rn(a, b)
typedef float4 body_four;
typedef uint4 body_words;
BODY uint32_t load_word(const uint8_t *aligned) { return *(const uint32_t *)aligned; }
BODY float float_of_f16(uint16_t half) { return __half2float(__ushort_as_half(half)); }
#else
#define BODY static inline
/* The thread that is first. */
BODY uint32_t begin_phase(body_group g, uint32_t threads)
{
    g.watch->missed = g.watch->missed || g.watch->open;
    g.watch->open = true;
    return g.backwards ? threads - 1 : 0;
}
#define EACH_THREAD(g, t, threads)                                                                                           \
    for (uint32_t t##_done = 0, t = begin_phase(g, threads); t##_done < (threads); t##_done++, t = (g).backwards ? t - 1 : t + 1)
#define BARRIER(g) ((g).watch->open = false)
#define PER_THREAD(type, name, threads, count) type name[threads][count]
#define OF_THREAD(name, t) name[t]
#define UNROLL
#define TIMES(a, b) ((a) * (b))
#define PLUS(a, b) ((a) + (b))
typedef struct body_four { float x, y, z, w; } __attribute__((aligned(16))) body_four;
typedef struct body_words { uint32_t x, y, z, w; } __attribute__((aligned(16))) body_words;
BODY uint32_t load_word(const uint8_t *aligned)
{
    uint32_t word;
    memcpy(&word, aligned, sizeof word);
    return word;
}
BODY float float_of_f16(uint16_t half) { return float_from_f16(half); }
#endif

/* Is there a row of this number in this step? */
BODY bool is_live(uint32_t row, const uint32_t *live) { return live == NULL || row < *live; }

BODY void store_number(void *to, uint64_t at, ofl_compute_type type, float value)
{
    if (type == OFL_COMPUTE_BF16)
        ((uint16_t *)to)[at] = bf16_from_float(value);
    else
        ((float *)to)[at] = value;
}

#define BODY_LANES 32u

/* The sum of what each thread has put into part, the same for all of them. part: threads (a multiple of BODY_LANES), lanes: BODY_LANES. */
BODY float sum_parts(body_group g, uint32_t threads, const float *part, float *lanes)
{
    float sum = 0;
    BARRIER(g);
    EACH_THREAD(g, t, threads) {
        if (t >= BODY_LANES) continue;
        float lane = 0;
        for (uint32_t i = t; i < threads; i += BODY_LANES) lane += part[i];
        lanes[t] = lane;
    }
    BARRIER(g);
    for (uint32_t i = 0; i < BODY_LANES; i++) sum += lanes[i];
    return sum;
}

#endif
