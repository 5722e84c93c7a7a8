/* Expansion, gather, norm, gate, addition. */
#include "support/support.h"

#include "batch/cpu/expand.h"
#include "batch/cpu/rows.h"
#include "common/app_error.h"
#include "kernels/kernel_cases.h"

static const ofl_dtype types[] = {OFL_DTYPE_F32,  OFL_DTYPE_F16,  OFL_DTYPE_BF16, OFL_DTYPE_Q8_0, OFL_DTYPE_Q4_0, OFL_DTYPE_Q4_1,
                                  OFL_DTYPE_Q5_0, OFL_DTYPE_Q5_1, OFL_DTYPE_Q4_K, OFL_DTYPE_Q5_K, OFL_DTYPE_Q6_K};
#define TYPES (sizeof types / sizeof types[0])

static void accept(const kernel_case *c, ofl_status status)
{
    if (status != OFL_OK) fail_msg("%s: %s", c->name, app_error());
}

/* A half of ordinary size, of either sign. */
static uint16_t ordinary_half(kernel_case *c) { return (uint16_t)((case_random(c) & 0x83ffu) | (0x2000u + (case_below(c, 12) << 10))); }

/* Whole blocks: any bytes, but scales of an ordinary size. */
static void fill_blocks(kernel_case *c, ofl_dtype dtype, uint8_t *to, uint64_t elements)
{
    uint32_t block = ofl_dtype_block_elements(dtype), bytes = ofl_dtype_block_bits(dtype) / 8;
    uint32_t scale = dtype == OFL_DTYPE_Q6_K ? 208 : 0;
    for (uint64_t b = 0; b < elements / block; b++, to += bytes) {
        for (uint32_t i = 0; i < bytes; i++) to[i] = (uint8_t)case_random(c);
        uint16_t halves[2] = {ordinary_half(c), ordinary_half(c)};
        uint32_t left = bytes - scale < 4 ? bytes - scale : 4;
        if (block > 1 || dtype != OFL_DTYPE_F32) memcpy(to + scale, halves, block > 1 && dtype != OFL_DTYPE_Q8_0 ? left : 2);
    }
}

typedef struct expanded { const uint8_t *from; ofl_dtype dtype; uint64_t elements; } expanded;

static void check_expand(const kernel_case *c)
{
    const expanded *e = c->answer;
    const case_output *out = &c->outputs[0];
    void *wanted = malloc(out->bytes);
    assert_non_null(wanted);
    if (out->kind == CASE_F32) expand_to_f32(e->dtype, e->from, e->elements, wanted);
    else expand_to_bf16(e->dtype, e->from, e->elements, wanted);
    case_compare(c, out->kind, out->at, wanted, e->elements, e->elements, 0);
    if (memcmp(wanted, out->at, out->bytes) != 0) fail_msg("%s: other bits", c->name);
    free(wanted);
}

/* Any length, any alignment of what is stored. */
void case_make_expand(kernel_case *c)
{
    ofl_dtype dtype = types[case_random(c) % TYPES];
    uint32_t block = ofl_dtype_block_elements(dtype), elements = (1 + case_below(c, 9000 / block)) * block;
    bool narrow = case_below(c, 2) == 0;
    uint64_t bytes = (uint64_t)elements / block * ofl_dtype_block_bits(dtype) / 8;
    uint8_t *from = case_room(c, bytes, case_below(c, 7));
    void *to = case_output_room(c, narrow ? CASE_BF16 : CASE_F32, elements, elements, 0);
    fill_blocks(c, dtype, from, elements);
    (void)snprintf(c->name, 64, "%u elements of %s to %s", elements, ofl_dtype_name(dtype), narrow ? "bf16" : "f32");
    kernel_expand_args args = {CASE_AT(c, from), dtype, elements, CASE_AT(c, to), narrow ? OFL_COMPUTE_BF16 : OFL_COMPUTE_F32};
    accept(c, kernel_prepare_expand(&args, case_launch(c)));
    *(expanded *)case_answer(c, sizeof(expanded)) = (expanded){from, dtype, elements};
    c->check = check_expand;
}

/* How many rows there are this time, of those launched. */
static uint32_t *live_of(kernel_case *c, uint32_t rows)
{
    uint32_t *live = case_room(c, sizeof *live, 0);
    *live = 1 + case_below(c, rows);
    return live;
}

typedef struct embedded { const uint8_t *rows[64]; ofl_dtype dtype; uint32_t columns, live; uint64_t stride; } embedded;

static void check_embed(const kernel_case *c)
{
    const embedded *e = c->answer;
    float *wanted = malloc(e->columns * sizeof *wanted);
    assert_non_null(wanted);
    for (uint32_t t = 0; t < e->live; t++) {
        expand_to_f32(e->dtype, e->rows[t], e->columns, wanted);
        case_compare(c, CASE_WORDS, (const float *)c->outputs[0].at + t * e->stride, wanted, e->columns, e->columns, 0);
    }
    free(wanted);
}

void case_make_embed(kernel_case *c)
{
    ofl_dtype dtype = types[case_random(c) % TYPES];
    uint32_t block = ofl_dtype_block_elements(dtype), columns = (1 + case_below(c, 3000 / block)) * block, tokens = 1 + case_below(c, 20);
    uint64_t stride = columns + case_below(c, 9), bytes = (uint64_t)columns / block * ofl_dtype_block_bits(dtype) / 8;
    embedded *e = case_answer(c, sizeof *e);
    uint32_t *live = live_of(c, tokens);
    *e = (embedded){.dtype = dtype, .columns = columns, .live = *live, .stride = stride};
    uint64_t *rows = case_room(c, tokens * sizeof *rows, 0);
    for (uint32_t t = 0; t < tokens; t++) {
        uint8_t *row = case_room(c, bytes, 2 * case_below(c, 4));
        fill_blocks(c, dtype, row, columns);
        e->rows[t] = row;
        rows[t] = (uintptr_t)CASE_AT(c, row);
    }
    float *to = case_output_room(c, CASE_F32, stride * tokens, stride, 0);
    (void)snprintf(c->name, 64, "%u of %u rows of %u %s", *live, tokens, columns, ofl_dtype_name(dtype));
    kernel_embed_args args = {CASE_AT(c, rows), dtype, columns, CASE_AT(c, to), stride, tokens, CASE_AT(c, live)};
    accept(c, kernel_prepare_embed(&args, case_launch(c)));
    c->check = check_embed;
}

typedef struct row_shape { uint32_t rows, columns, live; uint64_t stride, to_stride; ofl_compute_type type; } row_shape;

static row_shape shape_of(kernel_case *c, uint32_t **live_out)
{
    row_shape s = {.rows = 1 + case_below(c, 20), .columns = 1 + case_below(c, 2500)};
    *live_out = live_of(c, s.rows);
    s.live = **live_out;
    s.stride = s.columns + case_below(c, 5);
    s.to_stride = s.columns + case_below(c, 5);
    s.type = case_below(c, 2) == 0 ? OFL_COMPUTE_BF16 : OFL_COMPUTE_F32;
    (void)snprintf(c->name, 64, "%u of %u rows of %u", s.live, s.rows, s.columns);
    return s;
}

static void *row_output(kernel_case *c, const row_shape *s)
{
    return case_output_room(c, s->type == OFL_COMPUTE_BF16 ? CASE_BF16 : CASE_F32, s->to_stride * s->rows, s->to_stride, 2e-6);
}

/* Row `row` of the first output against numbers that are rounded first. */
static void check_row(const kernel_case *c, const row_shape *s, uint32_t row, const float *wanted)
{
    const case_output *out = &c->outputs[0];
    uint32_t each = s->type == OFL_COMPUTE_BF16 ? 2 : 4;
    void *packed = malloc((uint64_t)s->columns * each);
    assert_non_null(packed);
    rows_pack(wanted, s->columns, s->type, packed);
    case_compare(c, out->kind, (const uint8_t *)out->at + row * s->to_stride * each, packed, s->columns, s->columns, 2e-6);
    free(packed);
}

typedef struct normed { row_shape shape; const float *from, *weight; const uint32_t *index; float epsilon; } normed;

static void check_norm(const kernel_case *c)
{
    const normed *n = c->answer;
    float *wanted = malloc(n->shape.columns * sizeof *wanted);
    assert_non_null(wanted);
    for (uint32_t r = 0; r < n->shape.live; r++) {
        rows_norm(n->from + (n->index == NULL ? r : n->index[r]) * n->shape.stride, n->weight, n->shape.columns, n->epsilon, wanted);
        check_row(c, &n->shape, r, wanted);
    }
    free(wanted);
}

void case_make_norm(kernel_case *c)
{
    uint32_t *live, *index = NULL;
    row_shape s = shape_of(c, &live);
    const float *from = case_floats(c, s.stride * s.rows, 3), *weight = case_floats(c, s.columns, 1);
    if (case_below(c, 2) == 0) {
        index = case_room(c, s.rows * sizeof *index, 0);
        for (uint32_t r = 0; r < s.rows; r++) index[r] = case_below(c, s.rows);
    }
    void *to = row_output(c, &s);
    kernel_norm_args args = {CASE_AT(c, from), s.stride, CASE_AT(c, index), CASE_AT(c, weight), 1e-5f, s.columns,
                             CASE_AT(c, to), s.to_stride, s.type, s.rows, CASE_AT(c, live)};
    accept(c, kernel_prepare_norm(&args, case_launch(c)));
    *(normed *)case_answer(c, sizeof(normed)) = (normed){s, from, weight, index, 1e-5f};
    c->check = check_norm;
}

typedef struct gated { row_shape shape; const float *gate, *up; } gated;

static void check_gate(const kernel_case *c)
{
    const gated *g = c->answer;
    float *wanted = malloc(g->shape.columns * sizeof *wanted);
    assert_non_null(wanted);
    for (uint32_t r = 0; r < g->shape.live; r++) {
        memcpy(wanted, g->gate + r * g->shape.stride, g->shape.columns * sizeof *wanted);
        rows_gate(wanted, g->up + r * g->shape.stride, g->shape.columns);
        check_row(c, &g->shape, r, wanted);
    }
    free(wanted);
}

void case_make_gate(kernel_case *c)
{
    uint32_t *live;
    row_shape s = shape_of(c, &live);
    const float *gate = case_floats(c, s.stride * s.rows, 20), *up = case_floats(c, s.stride * s.rows, 2);
    void *to = row_output(c, &s);
    kernel_gate_args args = {CASE_AT(c, gate), CASE_AT(c, up), s.stride, s.columns, CASE_AT(c, to), s.to_stride, s.type,
                             s.rows, CASE_AT(c, live)};
    accept(c, kernel_prepare_gate(&args, case_launch(c)));
    *(gated *)case_answer(c, sizeof(gated)) = (gated){s, gate, up};
    c->check = check_gate;
}

typedef struct added { row_shape shape; const float *from; uint64_t from_stride; } added; /* and behind it what was there before */

static void check_add(const kernel_case *c)
{
    const added *a = c->answer;
    const float *before = (const float *)(const void *)(a + 1), *to = c->outputs[0].at;
    for (uint32_t r = 0; r < a->shape.rows; r++) {
        for (uint32_t i = 0; i < a->shape.columns; i++) {
            float more = r < a->shape.live ? a->from[r * a->from_stride + i] : 0, sum = before[r * a->shape.to_stride + i] + more;
            if (to[r * a->shape.to_stride + i] != sum) fail_msg("%s: row %u, element %u", c->name, r, i);
        }
    }
}

void case_make_add(kernel_case *c)
{
    uint32_t *live;
    row_shape s = shape_of(c, &live);
    uint64_t from_stride = case_below(c, 2) == 0 ? 0 : s.stride, count = s.to_stride * s.rows;
    const float *from = case_floats(c, s.stride * s.rows, 3);
    float *to = case_output_room(c, CASE_F32, count, s.to_stride, 0);
    for (uint64_t i = 0; i < count; i++) to[i] = case_uniform(c);
    kernel_add_args args = {CASE_AT(c, to), s.to_stride, CASE_AT(c, from), from_stride, s.columns, s.rows, CASE_AT(c, live)};
    accept(c, kernel_prepare_add(&args, case_launch(c)));
    added *a = case_answer(c, sizeof *a + count * sizeof(float));
    *a = (added){.shape = s, .from = from, .from_stride = from_stride};
    memcpy(a + 1, to, count * sizeof(float));
    c->check = check_add;
}
