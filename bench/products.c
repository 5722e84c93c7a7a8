#include "products.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "batch/cpu/matmul.h"
#include "batch/cpu/threads.h"
#include "batch/cpu/tile.h"
#include "bench.h"
#include "laid.h"

#define LARGE_PAGE (UINT64_C(2) << 20)
#define CACHED_BYTES (UINT64_C(96) << 20) /* more than a processor's caches hold */
#define COPY_SECONDS 0.004
#define COPIES 64

struct products {
    matmul *products;
    uint32_t tokens;
    uint64_t most_rows;
    void *workspace, *inputs;
    float *outputs;
};

static ofl_status no_memory(void) { return app_fail(OFL_ERROR_HOST_MEMORY, "products: out of host memory; free some"); }

/* As a device's memory is: in large pages. */
static void *take(uint64_t bytes)
{
    bytes = (bytes + LARGE_PAGE - 1) / LARGE_PAGE * LARGE_PAGE;
    void *at = aligned_alloc(LARGE_PAGE, bytes);
    if (at != NULL) (void)madvise(at, bytes, MADV_HUGEPAGE);
    return at;
}

ofl_status products_open(uint32_t tokens, uint64_t most_rows, uint64_t most_columns, products **out)
{
    products *p = calloc(1, sizeof *p);
    if (p == NULL) return no_memory();
    uint32_t threads = threads_choose(0);
    uint64_t padded = (tokens + TILE_TOKENS - 1) / TILE_TOKENS * TILE_TOKENS, room = TILE_MAX_ROWS * most_columns * 4 * threads;
    *p = (products){.tokens = tokens, .most_rows = most_rows, .workspace = take(room), .inputs = take(padded * most_columns * 2),
                    .outputs = take(padded * most_rows * 4)};
    ofl_status status = p->workspace != NULL && p->inputs != NULL && p->outputs != NULL ? OFL_OK : no_memory();
    if (status == OFL_OK) laid_fill(p->inputs, padded * most_columns * 2, 1);
    if (status == OFL_OK) memset(p->outputs, 0, padded * most_rows * 4);
    if (status == OFL_OK) status = matmul_open(OFL_COMPUTE_BF16, threads, p->workspace, room, &p->products);
    if (status == OFL_OK) *out = p;
    else products_close(p);
    return status;
}

void products_close(products *p)
{
    if (p == NULL) return;
    matmul_close(p->products);
    free(p->workspace);
    free(p->inputs);
    free(p->outputs);
    free(p);
}

ofl_status products_run(products *p, const void *weights, matrix_size size)
{
    const product what = {.weights = weights, .dtype = OFL_DTYPE_BF16, .rows = size.rows, .columns = size.columns, .inputs = p->inputs,
                          .tokens = p->tokens, .outputs = p->outputs, .stride = p->most_rows};
    return matmul_run(p->products, &what);
}

ofl_status products_view(products *p, const ofl_model *model, const ofl_view *view)
{
    ofl_status status = OFL_OK;
    for (uint32_t i = 0; i < view->slice_count && status == OFL_OK; i++) {
        ofl_tensor_info info = {.struct_size = sizeof info};
        const ofl_view_slice *slice = &view->slices[i];
        status = ofl_model_tensor_get(model, slice->tensor, &info);
        if (status == OFL_OK && info.n_dims == 2) status = products_run(p, slice->data, (matrix_size){slice->row_count, info.dims[0]});
    }
    return status;
}

/* ---- measuring ---- */

typedef struct measuring {
    products *p;
    ofl_device *device;
    ofl_stream *stream;
    void *host, *on_device; /* CACHED_BYTES and a copy more, on a smaller device all it has: caches hold neither what is copied nor where it goes */
    const matrix_size *layer;
    size_t count;
    char *weights;
    uint64_t layer_bytes, layers, copy_bytes, room_bytes; /* room: of `on_device`, where copies begin */
} measuring;

/* Copies for a quarter of a second, once there are none. */
static ofl_status keep_copying(const measuring *m)
{
    ofl_status status = ofl_stream_query(m->device, m->stream);
    if (status != OFL_OK) return status == OFL_NOT_READY ? OFL_OK : status;
    for (uint64_t i = 0; i < COPIES && status == OFL_OK; i++) {
        uint64_t at = i * m->copy_bytes % CACHED_BYTES;
        status = ofl_copy(m->device, m->stream, OFL_HOST_TO_DEVICE, (char *)m->on_device + at % m->room_bytes, (const char *)m->host + at,
                          m->copy_bytes, OFL_HOST_PINNED);
    }
    return status;
}

static ofl_status run_layer(const measuring *m, uint64_t layer)
{
    const char *at = m->weights + layer * m->layer_bytes;
    ofl_status status = OFL_OK;
    for (size_t i = 0; i < m->count && status == OFL_OK; i++) {
        if (m->stream != NULL) status = keep_copying(m);
        if (status == OFL_OK) status = products_run(m->p, at, m->layer[i]);
        at += m->layer[i].rows * m->layer[i].columns * 2;
    }
    return status;
}

/* The mean, as steps are made of: a core's speed comes and goes. */
static ofl_status run_layers(const measuring *m, double *out)
{
    enum { LAYERS = 28 };
    ofl_status status = run_layer(m, 0);
    double start = bench_seconds();
    for (uint64_t i = 0; i < LAYERS && status == OFL_OK; i++) status = run_layer(m, (i + 1) % m->layers);
    if (status == OFL_OK) *out = (bench_seconds() - start) / LAYERS / ((double)m->layer_bytes / 2);
    return status;
}

static ofl_status open_link(measuring *m)
{
    uint64_t bytes = CACHED_BYTES + m->copy_bytes;
    ofl_memory_info memory = {.struct_size = sizeof memory};
    ofl_status status = ofl_device_memory_get(m->device, &memory);
    uint64_t there = memory.free_bytes / 256 * 256; /* allocations are aligned */
    m->room_bytes = there < bytes && there > m->copy_bytes ? there - m->copy_bytes : CACHED_BYTES;
    if (status == OFL_OK) status = ofl_device_host_alloc(m->device, bytes, &m->host);
    if (status == OFL_OK) memset(m->host, 1, bytes);
    if (status == OFL_OK) status = ofl_device_alloc(m->device, m->room_bytes + m->copy_bytes, &m->on_device);
    return status == OFL_OK ? ofl_stream_create(m->device, &m->stream) : status;
}

static void close_link(measuring *m)
{
    if (m->stream != NULL) {
        (void)ofl_stream_wait(m->device, m->stream);
        ofl_stream_destroy(m->device, m->stream);
    }
    if (m->on_device != NULL) ofl_device_free(m->device, m->on_device);
    if (m->host != NULL) ofl_device_host_free(m->device, m->host);
}

ofl_status products_measure(products *p, ofl_device *device, double link, const matrix_size *layer, size_t count, double *seconds_per_element)
{
    measuring m = {.p = p, .device = device, .layer = layer, .count = count};
    for (size_t i = 0; i < count; i++) m.layer_bytes += layer[i].rows * layer[i].columns * 2;
    m.copy_bytes = (uint64_t)(link * COPY_SECONDS) + 1;
    m.layers = CACHED_BYTES / m.layer_bytes + 1;
    m.weights = take(m.layers * m.layer_bytes);
    if (m.weights == NULL) return no_memory();
    laid_fill(m.weights, m.layers * m.layer_bytes / 8 * 8, 3);
    ofl_status status = open_link(&m);
    if (status == OFL_OK) status = run_layers(&m, seconds_per_element);
    close_link(&m);
    free(m.weights);
    return status == OFL_OK ? OFL_OK : app_forward(status);
}
