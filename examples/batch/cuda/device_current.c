#include "batch/cuda/device_current.h"

#include "batch/cuda/cuda_status.h"
#include "common/app_error.h"

static ofl_status check(cudaError_t error, const char *call)
{
    if (error == cudaSuccess) return OFL_OK;
    (void)cudaGetLastError();
    return app_fail(cuda_status(error), "the GPU: %s: %s (%s)", call, cudaGetErrorString(error), cudaGetErrorName(error));
}

ofl_status device_current(int *ordinal_out) { return check(cudaGetDevice(ordinal_out), "cudaGetDevice"); }
ofl_status device_enter(int ordinal) { return check(cudaSetDevice(ordinal), "cudaSetDevice"); }
