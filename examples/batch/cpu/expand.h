/* Stored weights to numbers: what a product reads. Reads blocks as GGUF lays them out; rows are whole blocks. */
#ifndef OFLOAD_BATCH_CPU_EXPAND_H
#define OFLOAD_BATCH_CPU_EXPAND_H

#include <stdbool.h>

#include <ofload/model.h>

/* F32, F16, BF16, Q8_0, Q4_0, Q4_1, Q5_0, Q5_1, Q4_K, Q5_K, Q6_K. */
bool expand_knows(ofl_dtype dtype);
/* `elements` (whole blocks) of a known type from `from`, any alignment. bf16 is the nearest of the float32 value. */
void expand_to_f32(ofl_dtype dtype, const void *from, uint64_t elements, float *to);
void expand_to_bf16(ofl_dtype dtype, const void *from, uint64_t elements, uint16_t *to);
/* The bf16 values as float32, for a CPU that multiplies no bf16. */
void expand_to_rounded(ofl_dtype dtype, const void *from, uint64_t elements, float *to);

#endif
