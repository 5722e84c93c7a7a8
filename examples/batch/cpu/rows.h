/* What is done to one token's row: norms, the feed-forward's gate, and rounding to the compute type. */
#ifndef OFLOAD_BATCH_CPU_ROWS_H
#define OFLOAD_BATCH_CPU_ROWS_H

#include <ofload/plan.h>

/* to = from / rms(from) × weight. from and to may be the same. */
void rows_norm(const float *from, const float *weight, uint32_t count, float epsilon, float *to);
/* gate = silu(gate) × up */
void rows_gate(float *gate, const float *up, uint32_t count);
/* As products read it: float32, or bf16 to nearest. */
void rows_pack(const float *from, uint64_t count, ofl_compute_type type, void *to);

#endif
