#include "batch/cuda/marks.h"

#include <stdlib.h>

#include <cuda_runtime_api.h>

#include "batch/cuda/cuda_status.h"
#include "common/app_error.h"

struct marks {
    cudaStream_t stream;
    uint32_t most, count; /* events */
    cudaError_t failed;   /* of a record */
    cudaEvent_t events[];
};

static ofl_status check(cudaError_t error, const char *call)
{
    if (error == cudaSuccess) return OFL_OK;
    return app_fail(cuda_status(error), "times of a step: %s: %s", call, cudaGetErrorString(error));
}

ofl_status marks_open(ofl_stream *stream, uint32_t most, marks **out)
{
    marks *m = calloc(1, sizeof *m + 2 * (size_t)most * sizeof(cudaEvent_t));
    if (m == NULL) return app_fail(OFL_ERROR_HOST_MEMORY, "times of a step: out of host memory; free some");
    ofl_status status = OFL_OK;
    m->stream = (cudaStream_t)(void *)stream;
    for (; m->most < 2 * most && status == OFL_OK; m->most += status == OFL_OK)
        status = check(cudaEventCreateWithFlags(&m->events[m->most], cudaEventDefault), "cudaEventCreateWithFlags");
    if (status == OFL_OK) *out = m;
    else marks_close(m);
    return status;
}

void marks_close(marks *m)
{
    if (m == NULL) return;
    for (uint32_t i = 0; i < m->most; i++) (void)cudaEventDestroy(m->events[i]);
    free(m);
}

void marks_begin(marks *m)
{
    m->count = 0;
    m->failed = cudaSuccess;
}

void marks_wait(void *context, bool after)
{
    marks *m = context;
    if (m->count == m->most || after != (m->count % 2 == 1) || m->failed != cudaSuccess) return;
    m->failed = cudaEventRecord(m->events[m->count++], m->stream);
}

ofl_status marks_read(const marks *m, double *out)
{
    ofl_status status = check(m->failed, "cudaEventRecord");
    double sum = 0;
    for (uint32_t i = 0; i + 1 < m->count && status == OFL_OK; i += 2) {
        float milliseconds = 0;
        status = check(cudaEventElapsedTime(&milliseconds, m->events[i], m->events[i + 1]), "cudaEventElapsedTime");
        sum += 1e-3 * (double)milliseconds;
    }
    if (status == OFL_OK) *out = sum;
    return status;
}
