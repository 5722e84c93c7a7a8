/* One product of a fixed shape by oneDNN: (rows × columns) · (16 tokens × columns)ᵀ. The shape depends on the columns alone, so the order
 * in which a sum is made never depends on how a matrix is cut or on how many tokens a step has: equal inputs give equal bits. Both the 2.x
 * and the 3.x API. */
#ifndef OFLOAD_BATCH_CPU_TILE_H
#define OFLOAD_BATCH_CPU_TILE_H

#include <ofload/plan.h>

#define TILE_TOKENS 16u
#define TILE_MAX_ROWS 64u

typedef struct tile tile;

/* The rows that suit a tile: 64, fewer where it would leave the inner caches. */
uint32_t tile_rows(uint64_t columns);
/* contexts: how many threads may run it at once. OFL_ERROR_UNSUPPORTED, _HOST_MEMORY. */
ofl_status tile_open(ofl_compute_type type, uint32_t rows, uint64_t columns, uint32_t contexts, tile **out);
void tile_close(tile *t);
/* outputs[row × 16 + token]. weights and inputs are of the compute type, rows and tokens contiguous. context < contexts, one thread each.
 */
ofl_status tile_run(tile *t, uint32_t context, const void *weights, const void *inputs, float *outputs);
/* What oneDNN chose, e.g. "brg:avx512_core_bf16". */
const char *tile_kernel(const tile *t);

#endif
