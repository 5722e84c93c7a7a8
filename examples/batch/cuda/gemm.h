/* Products on a GPU: of stored rows, expanded where they must be, with a step's tokens. Inputs and weights of the compute type, sums in
 * float32. Queues work in one stream, in memory given to it; allocates none on the device and waits for nothing. */
#ifndef OFLOAD_BATCH_CUDA_GEMM_H
#define OFLOAD_BATCH_CUDA_GEMM_H

#include <stdbool.h>

#include <ofload/ofload.h>

/* What a library of products is given on the GPUs of today: with less it has fewer ways to compute. */
#define GEMM_WORKSPACE_BYTES (UINT64_C(32) << 20)

typedef struct gemm gemm;

typedef struct gemm_product {
    const void *weights; /* (rows, columns) of the compute type */
    uint64_t rows, columns;
    const void *inputs;  /* (tokens, columns) of the compute type */
    uint32_t tokens;
    float *outputs;      /* of token t and row r: outputs[t × stride + r] */
    uint64_t stride;
    bool add;            /* adds to outputs instead of setting them */
} gemm_product;

/* workspace: device memory, 256-byte aligned, borrowed; the stream's device is current. OFL_ERROR_UNSUPPORTED, _HOST_MEMORY,
 * _DEVICE_MEMORY, _DEVICE_LOST, _RUNTIME. */
ofl_status gemm_open(ofl_stream *stream, ofl_compute_type type, void *workspace, uint64_t workspace_bytes, gemm **out);
/* Another workspace from now on; nothing is queued in the stream. Takes no memory of the library's own. */
ofl_status gemm_use(gemm *g, void *workspace, uint64_t workspace_bytes);
void gemm_close(gemm *g);
ofl_status gemm_run(gemm *g, const gemm_product *p);

#endif
