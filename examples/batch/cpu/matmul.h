/* Products of stored weights with a step's tokens, tile by tile: a tile's rows are expanded to the compute type while they are in the
 * cache, then multiplied with all tokens. */
#ifndef OFLOAD_BATCH_CPU_MATMUL_H
#define OFLOAD_BATCH_CPU_MATMUL_H

#include <stdbool.h>

#include <ofload/plan.h>

typedef struct matmul matmul;

typedef struct product {
    const void *weights; /* a matrix's rows, as stored, contiguous */
    ofl_dtype dtype;
    uint64_t rows, columns;
    const void *inputs; /* tokens × columns of the compute type, with room (any finite content) up to a multiple of 16 tokens */
    uint32_t tokens;
    float *outputs; /* of token t and row r: outputs[t × stride + r] */
    uint64_t stride;
    const float *bias; /* of these rows, or NULL */
    bool add;          /* adds to outputs instead of setting them */
} product;

/* Does this CPU have instructions for bf16 products? Where not, bf16 values are multiplied as float32: the same meaning, slower than
 * compute type f32. */
bool matmul_has_bf16(void);
/* workspace: of it each thread takes a tile; at least 64 rows of the longest kind. threads ≥ 1. */
ofl_status matmul_open(ofl_compute_type type, uint32_t threads, void *workspace, uint64_t workspace_bytes, matmul **out);
void matmul_close(matmul *m);
/* Makes what products with so many columns need, ahead of the first. */
ofl_status matmul_prepare(matmul *m, uint64_t columns);
ofl_status matmul_run(matmul *m, const product *p);
uint64_t matmul_type_bytes(ofl_compute_type type);

#endif
