#include "stream_file.h"

#include <pthread.h>
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

/* As the engine's fillers read: a few threads take chunk after chunk, in the file's order. */
typedef struct reading {
    const ofl_model *model;
    ofl_model_reader *reader;
    pthread_mutex_t mutex; /* of the next three */
    uint32_t tensor;
    uint64_t done; /* of that tensor */
    ofl_status status;
} reading;

typedef struct chunk { uint32_t tensor; uint64_t from, bytes; } chunk;

/* Locked. OFL_END: there is no more. */
static ofl_status take(reading *r, chunk *out)
{
    ofl_tensor_info info = {.struct_size = sizeof info};
    if (r->status != OFL_OK || r->tensor >= ofl_model_tensor_count(r->model)) return OFL_END;
    ofl_status status = ofl_model_tensor_get(r->model, r->tensor, &info);
    if (status != OFL_OK) return status;
    uint64_t left = info.bytes - r->done;
    *out = (chunk){r->tensor, r->done, left < CHUNK_BYTES ? left : CHUNK_BYTES};
    r->done += out->bytes;
    if (r->done == info.bytes) r->tensor++, r->done = 0;
    return OFL_OK;
}

static ofl_status read_next(reading *r, void *buffer)
{
    const void *data;
    chunk c;
    (void)pthread_mutex_lock(&r->mutex);
    ofl_status status = take(r, &c);
    (void)pthread_mutex_unlock(&r->mutex);
    return status == OFL_OK ? ofl_model_reader_read(r->reader, c.tensor, c.from, c.bytes, buffer, &data) : status;
}

static void *read_some(void *context)
{
    reading *r = context;
    void *buffer = aligned_alloc(OFL_MODEL_READ_ALIGNMENT, CHUNK_BYTES + 2 * OFL_MODEL_READ_ALIGNMENT);
    ofl_status status = buffer != NULL ? OFL_OK : app_fail(OFL_ERROR_HOST_MEMORY, "out of host memory");
    while (status == OFL_OK) status = read_next(r, buffer);
    (void)pthread_mutex_lock(&r->mutex);
    if (status != OFL_END && r->status == OFL_OK) r->status = status;
    (void)pthread_mutex_unlock(&r->mutex);
    free(buffer);
    return NULL;
}

static ofl_status read_all(reading *r)
{
    pthread_t threads[READERS];
    int started = 0;
    r->tensor = 0;
    while (started < READERS && pthread_create(&threads[started], NULL, read_some, r) == 0) started++;
    if (started == 0) (void)read_some(r);
    for (int i = 0; i < started; i++) (void)pthread_join(threads[i], NULL);
    return r->status;
}

ofl_status stream_file_rate(const ofl_model *model, uint64_t bytes, double *rate_out)
{
    reading r = {.model = model, .mutex = PTHREAD_MUTEX_INITIALIZER};
    ofl_status status = ofl_model_reader_open(model, &r.reader);
    if (status == OFL_OK) status = read_all(&r); /* the engine, too, reads again what it has read before */
    double start = bench_seconds();
    if (status == OFL_OK) status = read_all(&r);
    *rate_out = (double)bytes / (bench_seconds() - start);
    ofl_model_reader_close(r.reader);
    return status;
}
