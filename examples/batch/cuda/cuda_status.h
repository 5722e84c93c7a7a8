/* What a failure of the CUDA Runtime means to the driver, for its own calls: as the library names those of its device. */
#ifndef OFLOAD_BATCH_CUDA_STATUS_H
#define OFLOAD_BATCH_CUDA_STATUS_H

#include <stdbool.h>
#include <stddef.h>

#include <cuda_runtime_api.h>

#include <ofload/status.h>

/* After these the process's context answers nothing else any more; by number, since toolkits differ in the names they know. The list is that
 * of lib/device/cuda.c, whose headers programs do not see. */
static inline bool cuda_is_lost(cudaError_t error)
{
    static const int codes[] = {4, 214, 220, 226, 700, 702, 709, 710, 714, 715, 716, 717, 718, 719, 721, 806, 810, 911, 999};
    for (size_t i = 0; i < sizeof codes / sizeof codes[0]; i++) {
        if ((int)error == codes[i]) return true;
    }
    return false;
}

static inline ofl_status cuda_status(cudaError_t error)
{
    if (error == cudaSuccess) return OFL_OK;
    if (cuda_is_lost(error)) return OFL_ERROR_DEVICE_LOST;
    return error == cudaErrorMemoryAllocation ? OFL_ERROR_DEVICE_MEMORY : OFL_ERROR_RUNTIME;
}

#endif
