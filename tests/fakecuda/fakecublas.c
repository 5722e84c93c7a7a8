/* A stand-in for the shared library of cuBLAS, beside that of the runtime: the functions that the example driver calls, computed on the CPU in
 * the stream's order, bf16 or float32 in, sums in float32. It holds the driver to the library's rules: the workspace is set after the stream,
 * shapes and strides are ones that the library takes, and the workspace is written to. Failures are injected as fakecuda.h says. */
#include <stdlib.h>
#include <string.h>

#include <cublas_v2.h>

#include "batch/cpu/vector.h"
#include "fakecuda.h"

#define LANES 16
#define TOUCHED 4096u /* bytes of the workspace, at both ends */

struct cublasContext {
    cudaStream_t stream;
    void *workspace;
    size_t workspace_bytes;
};

typedef struct product { /* c (m × n, column by column) = aᵀ (k × m) · b (k × n) + beta × c */
    int m, n, k, lda, ldb, ldc;
    cudaDataType type;
    const void *a, *b;
    float beta, *c;
    uint8_t *workspace;
    size_t workspace_bytes;
} product;

#define FAULT_HERE(call)                              \
    do {                                              \
        static fake_call here_ = {.name = (call)};    \
        int fault_ = fakecuda_fault(&here_);          \
        if (fault_ != 0) return (cublasStatus_t)fault_; \
    } while (0)

cublasStatus_t cublasCreate_v2(cublasHandle_t *out)
{
    FAULT_HERE("cublasCreate");
    *out = calloc(1, sizeof **out);
    return *out != NULL ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_ALLOC_FAILED;
}

cublasStatus_t cublasDestroy_v2(cublasHandle_t handle)
{
    free(handle);
    return CUBLAS_STATUS_SUCCESS;
}

/* The library's own workspace comes back. */
cublasStatus_t cublasSetStream_v2(cublasHandle_t handle, cudaStream_t stream)
{
    FAULT_HERE("cublasSetStream");
    handle->stream = stream;
    handle->workspace = NULL;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasSetWorkspace_v2(cublasHandle_t handle, void *workspace, size_t bytes)
{
    FAULT_HERE("cublasSetWorkspace");
    if ((uintptr_t)workspace % 256 != 0) return CUBLAS_STATUS_INVALID_VALUE;
    handle->workspace = workspace;
    handle->workspace_bytes = bytes;
    return CUBLAS_STATUS_SUCCESS;
}

static void widen(const product *p, const void *from, uint64_t at, float *to)
{
    for (int i = 0; i < p->k && p->type == CUDA_R_16BF; i++) to[i] = float_from_bf16(((const uint16_t *)from)[at + (uint64_t)i]);
    if (p->type == CUDA_R_32F) memcpy(to, (const float *)from + at, (size_t)p->k * sizeof *to);
}

VECTOR_CLONES static float dot(const float *restrict a, const float *restrict b, int count)
{
    float lanes[LANES] = {0}, sum = 0;
    int whole = count / LANES * LANES;
    for (int i = 0; i < whole; i += LANES) {
        for (int j = 0; j < LANES; j++) lanes[j] += a[i + j] * b[i + j];
    }
    for (int j = 0; j < LANES; j++) sum += lanes[j];
    for (int i = whole; i < count; i++) sum += a[i] * b[i];
    return sum;
}

static void multiply(const product *p, float *row, float *inputs)
{
    for (int t = 0; t < p->n; t++) widen(p, p->b, (uint64_t)t * (uint64_t)p->ldb, inputs + (uint64_t)t * (uint64_t)p->k);
    for (int r = 0; r < p->m; r++) {
        widen(p, p->a, (uint64_t)r * (uint64_t)p->lda, row);
        for (int t = 0; t < p->n; t++) {
            float *c = p->c + (uint64_t)t * (uint64_t)p->ldc + r;
            *c = dot(row, inputs + (uint64_t)t * (uint64_t)p->k, p->k) + (p->beta == 0 ? 0 : p->beta * *c);
        }
    }
}

static void run(void *context)
{
    product *p = context;
    float *room = malloc(((size_t)p->n + 1) * (size_t)p->k * sizeof *room);
    size_t touched = p->workspace_bytes < TOUCHED ? p->workspace_bytes : TOUCHED;
    memset(p->workspace, 0xA5, touched);
    memset(p->workspace + p->workspace_bytes - touched, 0xA5, touched);
    if (room != NULL) multiply(p, room, room + p->k);
    free(room);
    free(p);
}

cublasStatus_t cublasGemmEx(cublasHandle_t handle, cublasOperation_t transa, cublasOperation_t transb, int m, int n, int k, const void *alpha,
                            const void *A, cudaDataType Atype, int lda, const void *B, cudaDataType Btype, int ldb, const void *beta, void *C,
                            cudaDataType Ctype, int ldc, cublasComputeType_t computeType, cublasGemmAlgo_t algo)
{
    FAULT_HERE("cublasGemmEx");
    if (handle->workspace == NULL) return CUBLAS_STATUS_NOT_INITIALIZED;
    if (transa != CUBLAS_OP_T || transb != CUBLAS_OP_N || Atype != Btype || (Atype != CUDA_R_16BF && Atype != CUDA_R_32F) || Ctype != CUDA_R_32F ||
        computeType != CUBLAS_COMPUTE_32F || algo != CUBLAS_GEMM_DEFAULT || *(const float *)alpha != 1)
        return CUBLAS_STATUS_NOT_SUPPORTED;
    if (m <= 0 || n <= 0 || k <= 0 || lda < k || ldb < k || ldc < m) return CUBLAS_STATUS_INVALID_VALUE;
    product *p = malloc(sizeof *p);
    if (p == NULL) return CUBLAS_STATUS_ALLOC_FAILED;
    *p = (product){m, n, k, lda, ldb, ldc, Atype, A, B, *(const float *)beta, C, handle->workspace, handle->workspace_bytes};
    if (cudaLaunchHostFunc(handle->stream, run, p) == cudaSuccess) return CUBLAS_STATUS_SUCCESS;
    free(p);
    return CUBLAS_STATUS_EXECUTION_FAILED;
}
