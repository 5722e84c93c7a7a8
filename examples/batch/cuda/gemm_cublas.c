/* Products by cuBLAS. Its shared library is half a gigabyte and takes a quarter of a second to load, so it is loaded when a GPU is used and not
 * before: the program starts without it, and where there is none. */
#include <dlfcn.h>
#include <limits.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include <cublas_v2.h>

#include "batch/cuda/cuda_status.h"
#include "batch/cuda/gemm.h"
#include "common/app_error.h"

typedef struct library {
    cublasStatus_t (*create)(cublasHandle_t *handle);
    cublasStatus_t (*destroy)(cublasHandle_t handle);
    cublasStatus_t (*set_stream)(cublasHandle_t handle, cudaStream_t stream);
    cublasStatus_t (*set_workspace)(cublasHandle_t handle, void *workspace, size_t bytes);
    cublasStatus_t (*product)(cublasHandle_t handle, cublasOperation_t transa, cublasOperation_t transb, int m, int n, int k, const void *alpha,
                              const void *a, cudaDataType a_type, int lda, const void *b, cudaDataType b_type, int ldb, const void *beta, void *c,
                              cudaDataType c_type, int ldc, cublasComputeType_t compute_type, cublasGemmAlgo_t algorithm);
} library;

#ifdef OFLOAD_CUBLAS_STATIC
static ofl_status load(library *out)
{
    *out = (library){cublasCreate, cublasDestroy, cublasSetStream, cublasSetWorkspace, cublasGemmEx};
    return OFL_OK;
}
#else
#define TEXT(of) #of
#define NAME(major) "libcublas.so." TEXT(major)
#define LIBRARY NAME(CUBLAS_VER_MAJOR)

/* A pointer to a function as dlsym gives it. false: the library does not have it. */
static bool find(void *handle, const char *name, void *to)
{
    void *found = dlsym(handle, name);
    memcpy(to, &found, sizeof found);
    return found != NULL;
}

/* Once loaded it stays. */
static ofl_status load(library *out)
{
    void *handle = dlopen(LIBRARY, RTLD_NOW | RTLD_LOCAL);
    if (handle == NULL)
        return app_fail(OFL_ERROR_UNSUPPORTED, "products on the GPU: %s; install cuBLAS, or name its folder in LD_LIBRARY_PATH", dlerror());
    if (find(handle, "cublasCreate_v2", &out->create) && find(handle, "cublasDestroy_v2", &out->destroy) &&
        find(handle, "cublasSetStream_v2", &out->set_stream) && find(handle, "cublasSetWorkspace_v2", &out->set_workspace) &&
        find(handle, "cublasGemmEx", &out->product))
        return OFL_OK;
    return app_fail(OFL_ERROR_UNSUPPORTED, "products on the GPU: %s lacks a function; install cuBLAS anew", LIBRARY);
}
#endif

static ofl_status get_library(const library **out)
{
    static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
    static library loaded;
    ofl_status status = OFL_OK;
    (void)pthread_mutex_lock(&mutex);
    if (loaded.product == NULL) status = load(&loaded);
    if (status != OFL_OK) loaded.product = NULL;
    (void)pthread_mutex_unlock(&mutex);
    *out = &loaded;
    return status;
}

struct gemm {
    const library *library;
    cublasHandle_t handle;
    cudaDataType_t type;
};

static ofl_status check(cublasStatus_t status, const char *call)
{
    if (status == CUBLAS_STATUS_SUCCESS) return OFL_OK;
    if (status == CUBLAS_STATUS_ALLOC_FAILED)
        return app_fail(OFL_ERROR_DEVICE_MEMORY, "products on the GPU: %s: no memory for the library itself; leave more headroom", call);
    cudaError_t error = status == CUBLAS_STATUS_EXECUTION_FAILED ? cudaPeekAtLastError() : cudaSuccess;
    if (error == cudaSuccess) return app_fail(OFL_ERROR_RUNTIME, "products on the GPU: %s failed with status %d", call, (int)status);
    (void)cudaGetLastError();
    return app_fail(cuda_status(error), "products on the GPU: %s: %s (%s)", call, cudaGetErrorString(error), cudaGetErrorName(error));
}

ofl_status gemm_open(ofl_stream *stream, ofl_compute_type type, void *workspace, uint64_t workspace_bytes, gemm **out)
{
    gemm *g = calloc(1, sizeof *g);
    if (g == NULL) return app_fail(OFL_ERROR_HOST_MEMORY, "products on the GPU: out of host memory; free some");
    g->type = type == OFL_COMPUTE_BF16 ? CUDA_R_16BF : CUDA_R_32F;
    ofl_status status = get_library(&g->library);
    if (status == OFL_OK) status = check(g->library->create(&g->handle), "cublasCreate");
    if (status == OFL_OK) status = check(g->library->set_stream(g->handle, (cudaStream_t)(void *)stream), "cublasSetStream");
    if (status == OFL_OK) status = gemm_use(g, workspace, workspace_bytes); /* after the stream: choosing one puts the library's own back */
    if (status == OFL_OK) *out = g;
    else gemm_close(g);
    return status;
}

ofl_status gemm_use(gemm *g, void *workspace, uint64_t workspace_bytes)
{
    return check(g->library->set_workspace(g->handle, workspace, (size_t)workspace_bytes), "cublasSetWorkspace");
}

void gemm_close(gemm *g)
{
    if (g == NULL) return;
    if (g->handle != NULL) (void)g->library->destroy(g->handle);
    free(g);
}

/* In the library's words, where columns are contiguous: (rows × columns)ᵀ · (columns × tokens). */
ofl_status gemm_run(gemm *g, const gemm_product *p)
{
    const float one = 1, before = p->add ? 1 : 0;
    if (p->rows > INT_MAX || p->columns > INT_MAX || p->tokens > INT_MAX || p->stride > INT_MAX)
        return app_fail(OFL_ERROR_ARGUMENT, "products on the GPU: a matrix of %llu rows of %llu is too large", (unsigned long long)p->rows,
                        (unsigned long long)p->columns);
    if (p->tokens == 0 || p->rows == 0) return OFL_OK;
    int rows = (int)p->rows, columns = (int)p->columns, tokens = (int)p->tokens;
    return check(g->library->product(g->handle, CUBLAS_OP_T, CUBLAS_OP_N, rows, tokens, columns, &one, p->weights, g->type, columns, p->inputs,
                                     g->type, columns, &before, p->outputs, CUDA_R_32F, (int)p->stride, CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT),
                 "cublasGemmEx");
}
