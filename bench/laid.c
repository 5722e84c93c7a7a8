#include "laid.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "batch/cpu/threads.h"
#include "bench.h"

#define BLOCK_BYTES (UINT64_C(64) << 20) /* more than a processor's caches hold */
#define CHUNK_BYTES (UINT64_C(4) << 20)
#define PAGE_BYTES UINT64_C(4096)

struct laid {
    int block; /* its memory, as a file */
    char *data;
    uint64_t bytes;
};

typedef struct filling { char *to; uint64_t bytes, seed; } filling;

static ofl_status failed(const char *what)
{
    return app_fail(OFL_ERROR_HOST_MEMORY, "weights: %s: %s; free host memory or give a smaller --scale", what, strerror(errno));
}

void laid_fill(void *to, uint64_t bytes, uint64_t seed)
{
    for (uint64_t i = 0; i < bytes; i += 8) {
        uint64_t four = (bench_random(&seed) & UINT64_C(0x80FF80FF80FF80FF)) | UINT64_C(0x3C003C003C003C00);
        memcpy((char *)to + i, &four, 8);
    }
}

static ofl_status fill_chunk(void *context, uint32_t thread, uint64_t index)
{
    const filling *f = context;
    uint64_t from = index * CHUNK_BYTES, left = f->bytes - from;
    (void)thread;
    laid_fill(f->to + from, left < CHUNK_BYTES ? left : CHUNK_BYTES, f->seed + from);
    return OFL_OK;
}

static ofl_status fill(char *to, uint64_t bytes, uint64_t seed)
{
    filling f = {to, bytes, seed};
    long processors = sysconf(_SC_NPROCESSORS_ONLN);
    return threads_each(processors > 0 ? (uint32_t)processors : 1, (bytes + CHUNK_BYTES - 1) / CHUNK_BYTES, fill_chunk, &f);
}

ofl_status laid_share(laid *l)
{
    for (uint64_t at = 0; at < l->bytes; at += BLOCK_BYTES) {
        uint64_t left = l->bytes - at;
        if (mmap(l->data + at, left < BLOCK_BYTES ? left : BLOCK_BYTES, PROT_READ, MAP_SHARED | MAP_FIXED, l->block, 0) == MAP_FAILED)
            return failed("they cannot be mapped");
    }
    return OFL_OK;
}

static ofl_status make_block(const laid *l)
{
    if (l->block < 0 || ftruncate(l->block, BLOCK_BYTES) != 0) return failed("no memory that can be mapped twice");
    void *block = mmap(NULL, BLOCK_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, l->block, 0);
    if (block == MAP_FAILED) return failed("no memory");
    ofl_status status = fill(block, BLOCK_BYTES, 1);
    (void)munmap(block, BLOCK_BYTES);
    return status;
}

ofl_status laid_open(uint64_t bytes, laid **out)
{
    laid *l = calloc(1, sizeof *l);
    if (l == NULL) return app_fail(OFL_ERROR_HOST_MEMORY, "out of host memory");
    l->bytes = (bytes + PAGE_BYTES - 1) / PAGE_BYTES * PAGE_BYTES;
    l->block = memfd_create("ofload-bench", MFD_CLOEXEC);
    ofl_status status = make_block(l);
    if (status == OFL_OK) {
        l->data = mmap(NULL, l->bytes, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (l->data == MAP_FAILED) {
            l->data = NULL;
            status = failed("no address space");
        }
    }
    if (status == OFL_OK) status = laid_share(l);
    if (status == OFL_OK) *out = l;
    else laid_close(l);
    return status;
}

void laid_close(laid *l)
{
    if (l == NULL) return;
    if (l->data != NULL) (void)munmap(l->data, l->bytes);
    if (l->block >= 0) (void)close(l->block);
    free(l);
}

const char *laid_data(const laid *l) { return l->data; }

ofl_status laid_own(laid *l, uint64_t offset, uint64_t bytes)
{
    uint64_t first = offset / PAGE_BYTES * PAGE_BYTES, end = (offset + bytes + PAGE_BYTES - 1) / PAGE_BYTES * PAGE_BYTES;
    char *at = l->data + first;
    if (mmap(at, end - first, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == MAP_FAILED) return failed("no memory");
    (void)madvise(at, end - first, MADV_HUGEPAGE); /* only advice */
    return fill(at, end - first, 2 + first);
}
