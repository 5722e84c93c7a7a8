#include "batch/cpu/tile.h"

#include <oneapi/dnnl/dnnl.h>
#include <oneapi/dnnl/dnnl_version.h>
#include <stdio.h>
#include <stdlib.h>

#include "common/app_error.h"

typedef struct lane { /* what one thread needs */
    dnnl_stream_t stream;
    dnnl_memory_t weights, inputs, outputs, scratch;
    void *scratch_bytes; /* owned; a primitive's own scratch belongs to the thread that made it, so each lane brings one */
} lane;

struct tile {
    dnnl_engine_t engine;
    dnnl_primitive_t primitive;
    uint64_t columns;
    uint64_t scratch_size;
    uint32_t lane_count;
    char kernel[64];
    lane lanes[];
};

#if DNNL_VERSION_MAJOR >= 3
typedef dnnl_memory_desc_t shape;

static dnnl_status_t shape_make(shape *s, int64_t rows, int64_t columns, dnnl_data_type_t type, dnnl_format_tag_t tag)
{
    const dnnl_dims_t dims = {rows, columns};
    return dnnl_memory_desc_create_with_tag(s, 2, dims, type, tag);
}

static void shape_free(shape *s)
{
    if (*s != NULL) dnnl_memory_desc_destroy(*s);
}

static dnnl_status_t memory_make(dnnl_memory_t *memory, const shape *s, dnnl_engine_t engine)
{
    return dnnl_memory_create(memory, *s, engine, DNNL_MEMORY_NONE);
}

static dnnl_status_t matmul_make(dnnl_primitive_desc_t *out, dnnl_engine_t engine, const shape *a, const shape *b, const shape *c,
                                 dnnl_primitive_attr_t with)
{
    return dnnl_matmul_primitive_desc_create(out, engine, *a, *b, NULL, *c, with);
}

static shape scratch_shape(dnnl_primitive_desc_t description)
{
    shape copy = NULL;
    const_dnnl_memory_desc_t found = dnnl_primitive_desc_query_md(description, dnnl_query_scratchpad_md, 0);
    return found != NULL && dnnl_memory_desc_clone(&copy, found) == dnnl_success ? copy : NULL;
}

static uint64_t shape_bytes(const shape *s) { return *s == NULL ? 0 : dnnl_memory_desc_get_size(*s); }
#else
typedef struct shape {
    dnnl_memory_desc_t desc;
} shape;

static dnnl_status_t shape_make(shape *s, int64_t rows, int64_t columns, dnnl_data_type_t type, dnnl_format_tag_t tag)
{
    const dnnl_dims_t dims = {rows, columns};
    return dnnl_memory_desc_init_by_tag(&s->desc, 2, dims, type, tag);
}

static void shape_free(shape *s) { (void)s; }

static dnnl_status_t memory_make(dnnl_memory_t *memory, const shape *s, dnnl_engine_t engine)
{
    return dnnl_memory_create(memory, &s->desc, engine, DNNL_MEMORY_NONE);
}

static dnnl_status_t matmul_make(dnnl_primitive_desc_t *out, dnnl_engine_t engine, const shape *a, const shape *b, const shape *c,
                                 dnnl_primitive_attr_t with)
{
    dnnl_matmul_desc_t operation;
    dnnl_status_t status = dnnl_matmul_desc_init(&operation, &a->desc, &b->desc, NULL, &c->desc);
    return status != dnnl_success ? status : dnnl_primitive_desc_create(out, &operation, with, engine, NULL);
}

static shape scratch_shape(dnnl_primitive_desc_t description)
{
    shape copy = {0};
    const dnnl_memory_desc_t *found = dnnl_primitive_desc_query_md(description, dnnl_query_scratchpad_md, 0);
    if (found != NULL) copy.desc = *found;
    return copy;
}

static uint64_t shape_bytes(const shape *s) { return s->desc.ndims == 0 ? 0 : dnnl_memory_desc_get_size(&s->desc); }
#endif

uint32_t tile_rows(uint64_t columns)
{
    uint32_t rows = TILE_MAX_ROWS;
    while (rows > 16 && rows * columns > 65536) rows /= 2;
    return rows;
}

static ofl_status check(dnnl_status_t status, const char *what)
{
    if (status == dnnl_success) return OFL_OK;
    if (status == dnnl_out_of_memory) return app_fail(OFL_ERROR_HOST_MEMORY, "product: out of host memory: %s; free some", what);
    return app_fail(OFL_ERROR_UNSUPPORTED, "product: oneDNN refused %s (status %d); another version of it may do", what, (int)status);
}

typedef struct shapes {
    shape weights, inputs, outputs, scratch;
} shapes;

static ofl_status make_primitive(tile *t, shapes *s)
{
    dnnl_primitive_attr_t with = NULL;
    dnnl_primitive_desc_t description = NULL;
    const char *kernel = NULL;
    ofl_status status = check(dnnl_primitive_attr_create(&with), "an attribute");
    if (status == OFL_OK) status = check(dnnl_primitive_attr_set_scratchpad_mode(with, dnnl_scratchpad_mode_user), "an attribute");
    if (status == OFL_OK)
        status = check(matmul_make(&description, t->engine, &s->weights, &s->inputs, &s->outputs, with), "the matrix product");
    if (status == OFL_OK && dnnl_primitive_desc_query(description, dnnl_query_impl_info_str, 0, (void *)&kernel) == dnnl_success)
        (void)snprintf(t->kernel, sizeof t->kernel, "%s", kernel);
    if (status == OFL_OK) s->scratch = scratch_shape(description);
    if (status == OFL_OK) status = check(dnnl_primitive_create(&t->primitive, description), "the matrix product");
    if (description != NULL) dnnl_primitive_desc_destroy(description);
    if (with != NULL) dnnl_primitive_attr_destroy(with);
    return status;
}

static ofl_status make_scratch(tile *t, lane *l, const shape *s)
{
    t->scratch_size = shape_bytes(s);
    if (t->scratch_size == 0) return OFL_OK;
    l->scratch_bytes = aligned_alloc(64, (t->scratch_size + 63) / 64 * 64);
    ofl_status status = check(l->scratch_bytes == NULL ? dnnl_out_of_memory : memory_make(&l->scratch, s, t->engine), "scratch memory");
    return status != OFL_OK ? status : check(dnnl_memory_set_data_handle(l->scratch, l->scratch_bytes), "scratch memory");
}

static ofl_status make_lanes(tile *t, const shapes *s)
{
    ofl_status status = OFL_OK;
    for (uint32_t i = 0; i < t->lane_count && status == OFL_OK; i++) {
        lane *l = &t->lanes[i];
        status = check(dnnl_stream_create(&l->stream, t->engine, dnnl_stream_default_flags), "a stream");
        if (status == OFL_OK) status = check(memory_make(&l->weights, &s->weights, t->engine), "a memory object");
        if (status == OFL_OK) status = check(memory_make(&l->inputs, &s->inputs, t->engine), "a memory object");
        if (status == OFL_OK) status = check(memory_make(&l->outputs, &s->outputs, t->engine), "a memory object");
        if (status == OFL_OK) status = make_scratch(t, l, &s->scratch);
    }
    return status;
}

static ofl_status fill(tile *t, ofl_compute_type type, int64_t rows)
{
    dnnl_data_type_t stored = type == OFL_COMPUTE_BF16 ? dnnl_bf16 : dnnl_f32;
    int64_t columns = (int64_t)t->columns;
    shapes s = {0};
    ofl_status status = check(dnnl_engine_create(&t->engine, dnnl_cpu, 0), "a CPU engine");
    if (status == OFL_OK) status = check(shape_make(&s.weights, rows, columns, stored, dnnl_ab), "a shape");
    if (status == OFL_OK) status = check(shape_make(&s.inputs, columns, TILE_TOKENS, stored, dnnl_ba), "a shape");
    if (status == OFL_OK) status = check(shape_make(&s.outputs, rows, TILE_TOKENS, dnnl_f32, dnnl_ab), "a shape");
    if (status == OFL_OK) status = make_primitive(t, &s);
    if (status == OFL_OK) status = make_lanes(t, &s);
    shape_free(&s.weights);
    shape_free(&s.inputs);
    shape_free(&s.outputs);
    shape_free(&s.scratch);
    return status;
}

ofl_status tile_open(ofl_compute_type type, uint32_t rows, uint64_t columns, uint32_t contexts, tile **out)
{
    if (columns == 0 || columns > INT32_MAX)
        return app_fail(OFL_ERROR_UNSUPPORTED, "product: %llu columns are not supported", (unsigned long long)columns);
    tile *t = calloc(1, sizeof *t + contexts * sizeof t->lanes[0]);
    if (t == NULL) return app_fail(OFL_ERROR_HOST_MEMORY, "product: out of host memory; free some");
    t->columns = columns;
    t->lane_count = contexts;
    ofl_status status = fill(t, type, rows);
    if (status == OFL_OK)
        *out = t;
    else
        tile_close(t);
    return status;
}

void tile_close(tile *t)
{
    if (t == NULL) return;
    for (uint32_t i = 0; i < t->lane_count; i++) {
        lane *l = &t->lanes[i];
        if (l->weights != NULL) dnnl_memory_destroy(l->weights);
        if (l->inputs != NULL) dnnl_memory_destroy(l->inputs);
        if (l->outputs != NULL) dnnl_memory_destroy(l->outputs);
        if (l->scratch != NULL) dnnl_memory_destroy(l->scratch);
        free(l->scratch_bytes);
        if (l->stream != NULL) dnnl_stream_destroy(l->stream);
    }
    if (t->primitive != NULL) dnnl_primitive_destroy(t->primitive);
    if (t->engine != NULL) dnnl_engine_destroy(t->engine);
    free(t);
}

/* oneDNN's handles are not const; weights and inputs are only read. */
static void *unconst(const void *pointer)
{
    union {
        const void *from;
        void *to;
    } both = {.from = pointer};
    return both.to;
}

ofl_status tile_run(tile *t, uint32_t context, const void *weights, const void *inputs, float *outputs)
{
    lane *l = &t->lanes[context];
    const dnnl_exec_arg_t arguments[4] = {
        {DNNL_ARG_SRC, l->weights}, {DNNL_ARG_WEIGHTS, l->inputs}, {DNNL_ARG_DST, l->outputs}, {DNNL_ARG_SCRATCHPAD, l->scratch}};
    dnnl_status_t status = dnnl_memory_set_data_handle(l->weights, unconst(weights));
    if (status == dnnl_success) status = dnnl_memory_set_data_handle(l->inputs, unconst(inputs));
    if (status == dnnl_success) status = dnnl_memory_set_data_handle(l->outputs, outputs);
    if (status == dnnl_success) status = dnnl_primitive_execute(t->primitive, l->stream, l->scratch == NULL ? 3 : 4, arguments);
    return check(status, "to run the matrix product");
}

const char *tile_kernel(const tile *t) { return t->kernel; }
