#include "batch/cpu/matmul.h"

#include <stdlib.h>
#include <string.h>

#include "batch/cpu/expand.h"
#include "batch/cpu/threads.h"
#include "batch/cpu/tile.h"
#include "batch/cpu/vector.h"
#include "common/app_error.h"

#define MAX_SHAPES 16 /* different column counts of one model: three or four */

typedef struct prepared {
    uint64_t columns;
    tile *kernel;
} prepared;

struct matmul {
    ofl_compute_type type, kernel_type; /* bf16 inputs are multiplied as f32 where the CPU has no bf16 products */
    uint32_t threads, shape_count;
    uint8_t *workspace;
    uint64_t workspace_bytes;
    prepared shapes[MAX_SHAPES];
};

typedef struct job { /* a product being run */
    const product *p;
    matmul *m;
    tile *kernel;
    uint32_t tile_rows;
    uint64_t row_bytes, slot_bytes; /* slot: what a thread has of the workspace */
    bool in_place;                  /* stored as the kernel reads it */
} job;

uint64_t matmul_type_bytes(ofl_compute_type type) { return type == OFL_COMPUTE_BF16 ? 2 : 4; }

bool matmul_has_bf16(void)
{
    tile *kernel;
    if (tile_open(OFL_COMPUTE_BF16, TILE_MAX_ROWS, 1024, 1, &kernel) != OFL_OK) return false;
    bool native = strstr(tile_kernel(kernel), "bf16") != NULL;
    tile_close(kernel);
    return native;
}

ofl_status matmul_open(ofl_compute_type type, uint32_t threads, void *workspace, uint64_t workspace_bytes, matmul **out)
{
    matmul *m = calloc(1, sizeof *m);
    if (m == NULL) return app_fail(OFL_ERROR_HOST_MEMORY, "product: out of host memory; free some");
    ofl_compute_type kernel_type = type == OFL_COMPUTE_BF16 && matmul_has_bf16() ? OFL_COMPUTE_BF16 : OFL_COMPUTE_F32;
    *m = (matmul){.type = type, .kernel_type = kernel_type, .threads = threads, .workspace = workspace, .workspace_bytes = workspace_bytes};
    memset(workspace, 0, (size_t)workspace_bytes); /* rows beyond a remainder are multiplied too, and dropped */
    *out = m;
    return OFL_OK;
}

void matmul_close(matmul *m)
{
    if (m == NULL) return;
    for (uint32_t i = 0; i < m->shape_count; i++) tile_close(m->shapes[i].kernel);
    free(m);
}

static tile *find(const matmul *m, uint64_t columns)
{
    for (uint32_t i = 0; i < m->shape_count; i++) {
        if (m->shapes[i].columns == columns) return m->shapes[i].kernel;
    }
    return NULL;
}

static bool widened(const matmul *m) { return m->kernel_type != m->type; }

/* A widened tile takes twice the bytes and its inputs beside it: 16 rows fit where 64 bf16 ones do. */
static uint32_t rows_of_tile(const matmul *m, uint64_t columns) { return widened(m) ? 16 : tile_rows(columns); }

static uint64_t slot_of_tile(const matmul *m, uint64_t columns)
{
    return (rows_of_tile(m, columns) + (widened(m) ? TILE_TOKENS : 0)) * columns * matmul_type_bytes(m->kernel_type);
}

ofl_status matmul_prepare(matmul *m, uint64_t columns)
{
    if (find(m, columns) != NULL) return OFL_OK;
    if (m->shape_count == MAX_SHAPES)
        return app_fail(OFL_ERROR_UNSUPPORTED, "product: more than %d different row lengths in one model", MAX_SHAPES);
    uint64_t bytes = slot_of_tile(m, columns);
    if (bytes > m->workspace_bytes)
        return app_fail(OFL_ERROR_UNSUPPORTED, "product: a tile of %llu bytes does not fit the workspace of %llu",
                        (unsigned long long)bytes, (unsigned long long)m->workspace_bytes);
    ofl_status status = tile_open(m->kernel_type, rows_of_tile(m, columns), columns, m->threads, &m->shapes[m->shape_count].kernel);
    if (status == OFL_OK) m->shapes[m->shape_count++].columns = columns;
    return status;
}

/* Turns a tile over on the way to its place; a buffer of a size that the compiler knows makes vectors of it. */
VECTOR_CLONES static void store(const float *restrict from, uint32_t rows, uint32_t tokens, const float *restrict bias, bool add,
                                float *restrict to, uint64_t stride)
{
    float turned[TILE_TOKENS][TILE_MAX_ROWS] __attribute__((aligned(64)));
    for (uint32_t r = 0; r < rows; r++) {
        for (uint32_t t = 0; t < TILE_TOKENS; t++) turned[t][r] = from[r * TILE_TOKENS + t];
    }
    for (uint32_t t = 0; t < tokens; t++) {
        float *row = to + t * stride;
        for (uint32_t r = 0; bias != NULL && r < rows; r++) turned[t][r] += bias[r];
        for (uint32_t r = 0; add && r < rows; r++) row[r] += turned[t][r];
        if (!add) memcpy(row, turned[t], rows * sizeof *row);
    }
}

/* The tile's weights as the kernel reads them: where they are, or expanded into this thread's part of the workspace. */
static const void *tile_weights(const job *j, void *slot, uint64_t row_first, uint64_t rows)
{
    const uint8_t *stored = (const uint8_t *)j->p->weights + row_first * j->row_bytes;
    uint64_t elements = rows * j->p->columns;
    if (j->in_place && rows == j->tile_rows) return stored;
    if (widened(j->m))
        expand_to_rounded(j->p->dtype, stored, elements, slot);
    else if (j->m->type == OFL_COMPUTE_BF16)
        expand_to_bf16(j->p->dtype, stored, elements, slot);
    else
        expand_to_f32(j->p->dtype, stored, elements, slot);
    return slot;
}

static const void *tile_inputs(const job *j, void *slot, uint32_t token)
{
    const uint8_t *inputs = (const uint8_t *)j->p->inputs + token * j->p->columns * matmul_type_bytes(j->m->type);
    float *wide = (float *)slot + j->tile_rows * j->p->columns;
    if (!widened(j->m)) return inputs;
    expand_to_f32(OFL_DTYPE_BF16, inputs, TILE_TOKENS * j->p->columns, wide);
    return wide;
}

static ofl_status run_tile(void *context, uint32_t thread, uint64_t index)
{
    const job *j = context;
    const product *p = j->p;
    uint64_t row_first = index * j->tile_rows, rows = p->rows - row_first < j->tile_rows ? p->rows - row_first : j->tile_rows;
    void *slot = j->m->workspace + (j->in_place ? 0 : thread * j->slot_bytes); /* in place: for the one tile of rows left over */
    const void *weights = tile_weights(j, slot, row_first, rows);
    float outputs[TILE_MAX_ROWS * TILE_TOKENS] __attribute__((aligned(64)));
    for (uint32_t t = 0; t < p->tokens; t += TILE_TOKENS) {
        ofl_status status = tile_run(j->kernel, thread, weights, tile_inputs(j, slot, t), outputs);
        if (status != OFL_OK) return status;
        store(outputs, (uint32_t)rows, p->tokens - t < TILE_TOKENS ? p->tokens - t : TILE_TOKENS,
              p->bias == NULL ? NULL : p->bias + row_first, p->add, p->outputs + t * p->stride + row_first, p->stride);
    }
    return OFL_OK;
}

ofl_status matmul_run(matmul *m, const product *p)
{
    ofl_status status = matmul_prepare(m, p->columns);
    if (status != OFL_OK || p->tokens == 0) return status;
    job j = {.p = p, .m = m, .kernel = find(m, p->columns), .tile_rows = rows_of_tile(m, p->columns)};
    j.row_bytes = p->columns / ofl_dtype_block_elements(p->dtype) * ofl_dtype_block_bits(p->dtype) / 8;
    j.slot_bytes = slot_of_tile(m, p->columns);
    j.in_place = !widened(m) && p->dtype == (m->type == OFL_COMPUTE_BF16 ? OFL_DTYPE_BF16 : OFL_DTYPE_F32);
    threads_alone(); /* kept per calling thread, so said each time */
    uint64_t tiles = (p->rows + j.tile_rows - 1) / j.tile_rows, room = m->workspace_bytes / j.slot_bytes;
    uint32_t threads = !j.in_place && room < m->threads ? (uint32_t)room : m->threads;
    return threads_each(threads, tiles, run_tile, &j);
}
