/* The kernels on a GPU: each is its body. */
#include <cuda_runtime.h>

#include "batch/cuda/cuda_status.h"
#include "batch/cuda/kernel_launch.h"

extern "C" {
#include "common/app_error.h"
}

extern __shared__ float4 room[];

#define KERNEL(name, threads, kind)                                                                       \
    __global__ void __launch_bounds__(threads) kernel_of_##name(const __grid_constant__ kind##_job job)   \
    {                                                                                                     \
        body_group g = {blockIdx.x};                                                               \
        body_##name(&job, g, reinterpret_cast<kind##_shared *>(room));                                    \
    }
KERNEL_LIST(KERNEL)

typedef struct device_kernel {
    const void *function;
    uint32_t threads;
    const char *name;
} device_kernel;

#define KERNEL_ENTRY(name, threads, kind) {(const void *)kernel_of_##name, threads, #name},
static const device_kernel kernels[KERNEL_IDS] = {KERNEL_LIST(KERNEL_ENTRY)};

extern "C" ofl_status kernel_queue(ofl_stream *stream, const kernel_launch *launch)
{
    const device_kernel *kernel = &kernels[launch->id];
    void *arguments[] = {const_cast<kernel_job *>(&launch->job)};
    cudaError_t error = cudaLaunchKernel(kernel->function, dim3(launch->blocks), dim3(kernel->threads), arguments, launch->shared_bytes,
                                         reinterpret_cast<cudaStream_t>(stream));
    if (error == cudaSuccess) return OFL_OK;
    (void)cudaGetLastError();
    return app_fail(cuda_status(error), "kernel %s: %u workgroups of %u threads: %s (%s)", kernel->name, launch->blocks, kernel->threads,
                    cudaGetErrorString(error), cudaGetErrorName(error));
}
