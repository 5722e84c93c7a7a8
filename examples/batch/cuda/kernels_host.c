/* The kernels on the CPU, in the order of a CUDA stream: for tests over a stand-in runtime. */
#include <pthread.h>
#include <stdlib.h>

#include <cuda_runtime_api.h>

#include "batch/cuda/cuda_status.h"
#include "batch/cuda/kernel_launch.h"
#include "common/app_error.h"

typedef struct queued {
    kernel_launch launch;
    struct queued *next; /* of a graph: it may run any number of times, so it stays */
} queued;

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static queued *captured;

static void run_again(void *context) { (void)kernel_run(&((const queued *)context)->launch, false); }

static void run_once(void *context)
{
    run_again(context);
    free(context);
}

static ofl_status refused(cudaError_t error)
{
    (void)cudaGetLastError();
    return app_fail(cuda_status(error), "kernel on the host: %s (%s)", cudaGetErrorString(error), cudaGetErrorName(error));
}

static void keep(queued *what)
{
    (void)pthread_mutex_lock(&mutex);
    what->next = captured;
    captured = what;
    (void)pthread_mutex_unlock(&mutex);
}

ofl_status kernel_queue(ofl_stream *stream, const kernel_launch *launch)
{
    cudaStream_t there = (cudaStream_t)(void *)stream;
    enum cudaStreamCaptureStatus capture = cudaStreamCaptureStatusNone;
    cudaError_t error = cudaStreamIsCapturing(there, &capture);
    if (error != cudaSuccess) return refused(error);
    queued *what = malloc(sizeof *what);
    if (what == NULL) return app_fail(OFL_ERROR_HOST_MEMORY, "kernel on the host: out of host memory");
    what->launch = *launch;
    bool again = capture != cudaStreamCaptureStatusNone;
    if (again) keep(what);
    error = cudaLaunchHostFunc(there, again ? run_again : run_once, what);
    if (error == cudaSuccess) return OFL_OK;
    if (!again) free(what);
    return refused(error);
}
