#include "stream_file.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "bench.h"

#define CHUNK_BYTES (UINT64_C(4) << 20)
enum { READERS = 3 };

static ofl_status write_all(int descriptor, uint64_t bytes)
{
    uint64_t random = 1, *chunk = malloc(CHUNK_BYTES);
    if (chunk == NULL) return app_fail(OFL_ERROR_HOST_MEMORY, "out of host memory");
    for (uint64_t i = 0; i < CHUNK_BYTES / 8; i++) chunk[i] = bench_random(&random);
    ssize_t got = 1;
    for (uint64_t done = 0; done < bytes && got > 0; done += (uint64_t)(got > 0 ? got : 0))
        got = write(descriptor, chunk, (size_t)(bytes - done < CHUNK_BYTES ? bytes - done : CHUNK_BYTES));
    free(chunk);
    return got > 0 && fsync(descriptor) == 0 ? OFL_OK : OFL_ERROR_IO;
}

ofl_status stream_file_make(const char *folder, uint64_t bytes, char **path_out)
{
    size_t room = strlen(folder) + 32;
    char *path = malloc(room);
    if (path == NULL) return app_fail(OFL_ERROR_HOST_MEMORY, "out of host memory");
    (void)snprintf(path, room, "%s/ofload-bench-XXXXXX", folder);
    int descriptor = mkstemp(path);
    if (descriptor < 0) {
        free(path);
        return app_fail(OFL_ERROR_IO, "--folder %s: no file can be made there", folder);
    }
    *path_out = path;
    ofl_status status = write_all(descriptor, bytes);
    if (close(descriptor) != 0 || status == OFL_ERROR_IO) return app_fail(OFL_ERROR_IO, "%s: cannot be written; is the disk full?", path);
    return status;
}

void stream_file_drop(char *path)
{
    if (path == NULL) return;
    (void)unlink(path);
    free(path);
}

typedef struct reading {
    const ofl_model *model;
    ofl_model_reader *reader;
    atomic_uint next; /* tensor */
    atomic_int status;
    atomic_ullong bytes;
} reading;

static ofl_status read_tensor(reading *r, uint32_t index, void *buffer)
{
    ofl_tensor_info info = {.struct_size = sizeof info};
    ofl_status status = ofl_model_tensor_get(r->model, index, &info);
    for (uint64_t done = 0; done < info.bytes && status == OFL_OK; done += CHUNK_BYTES) {
        const void *data;
        uint64_t left = info.bytes - done, bytes = left < CHUNK_BYTES ? left : CHUNK_BYTES;
        status = ofl_model_reader_read(r->reader, index, done, bytes, buffer, &data);
        atomic_fetch_add(&r->bytes, bytes);
    }
    return status;
}

static void *read_some(void *context)
{
    reading *r = context;
    void *buffer = aligned_alloc(OFL_MODEL_READ_ALIGNMENT, CHUNK_BYTES + 2 * OFL_MODEL_READ_ALIGNMENT);
    ofl_status status = buffer != NULL ? OFL_OK : OFL_ERROR_HOST_MEMORY;
    while (status == OFL_OK) {
        uint32_t index = atomic_fetch_add(&r->next, 1);
        if (index >= ofl_model_tensor_count(r->model)) break;
        status = read_tensor(r, index, buffer);
    }
    if (status != OFL_OK) atomic_store(&r->status, status);
    free(buffer);
    return NULL;
}

ofl_status stream_file_rate(const ofl_model *model, double *rate_out)
{
    pthread_t threads[READERS];
    int started = 0;
    reading r = {.model = model};
    ofl_status status = ofl_model_reader_open(model, &r.reader);
    if (status != OFL_OK) return status;
    double start = bench_seconds();
    while (started < READERS && pthread_create(&threads[started], NULL, read_some, &r) == 0) started++;
    if (started == 0) (void)read_some(&r);
    for (int i = 0; i < started; i++) (void)pthread_join(threads[i], NULL);
    *rate_out = (double)atomic_load(&r.bytes) / (bench_seconds() - start);
    ofl_model_reader_close(r.reader);
    return (ofl_status)atomic_load(&r.status);
}
