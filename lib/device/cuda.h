/* The CUDA back end, inside: what its calls (cuda.c) and its opening (cuda_open.c) share. Only cuda_runtime_api.h is used; no kernel. */
#ifndef OFLOAD_LIB_DEVICE_CUDA_H
#define OFLOAD_LIB_DEVICE_CUDA_H

#include <pthread.h>

#include <cuda_runtime_api.h>

#include "base/base.h"
#include "device/backend.h"
#include "device/ledger.h"

typedef struct cuda_device {
    ofl_device base;
    int ordinal;
    int numa_node;
    bool read_only_register; /* memory that may only be read can be page-locked */
    char name[256], pci_id[32], uuid[48];
    pthread_mutex_t mutex; /* over the ledger */
    ofl_ledger ledger;
} cuda_device;

extern const ofl_backend ofl_cuda_backend;

/* OFL_OK, or the failure of `call` in a sentence. The runtime's memory of it is cleared: a caller who asks for its own last error must not
 * find ours. */
ofl_status ofl_cuda_check(cudaError_t error, const char *call);

#endif
