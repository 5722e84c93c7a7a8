#include "support/support.h"

#include <math.h>

#include "batch/cpu/vector.h"
#include "kernels/kernel_cases.h"

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#define HIDE(at, bytes) ASAN_POISON_MEMORY_REGION(at, bytes)
#define SHOW(at, bytes) ASAN_UNPOISON_MEMORY_REGION(at, bytes)
#else
#define HIDE(at, bytes) ((void)(at), (void)(bytes))
#define SHOW(at, bytes) ((void)(at), (void)(bytes))
#endif

#define CASE_BYTES (24u << 20)
#define GAP 64u

const case_family case_families[] = {
    {"expand", case_make_expand, 66}, {"embed", case_make_embed, 33}, {"norm", case_make_norm, 24},     {"gate", case_make_gate, 16},
    {"add", case_make_add, 12},       {"attention", case_make_attention, 80}, {"sample", case_make_sample, 60},
};
const uint32_t case_family_count = sizeof case_families / sizeof case_families[0];

void case_open(kernel_case *c)
{
    *c = (kernel_case){.base = aligned_alloc(256, CASE_BYTES), .size = CASE_BYTES};
    assert_non_null(c->base);
    memset(c->base, 0xa5, CASE_BYTES);
}

void case_make(kernel_case *c, const case_family *family, uint64_t seed, ptrdiff_t shift)
{
    memset(c->base, 0xa5, c->used);
    free(c->answer);
    *c = (kernel_case){.base = c->base, .size = c->size, .shift = shift, .seed = seed * 1000003 + (uint64_t)family->name[0]};
    family->make(c);
    size_t length = strlen(c->name);
    (void)snprintf(c->name + length, sizeof c->name - length, " (%s, seed %llu)", family->name, (unsigned long long)seed);
}

void case_close(kernel_case *c)
{
    free(c->base);
    free(c->answer);
}

void *case_room(kernel_case *c, uint64_t bytes, uint32_t skew)
{
    uint64_t at = (c->used + GAP + 15) / 16 * 16 + skew;
    assert_true(at + bytes + GAP <= c->size);
    assert_true(c->gap_count < CASE_GAPS);
    c->gaps[c->gap_count].at = c->used;
    c->gaps[c->gap_count++].bytes = at - c->used;
    c->used = at + bytes;
    return c->base + at;
}

void case_run(const kernel_case *c, bool backwards)
{
    for (uint32_t i = 0; i < c->gap_count; i++) HIDE(c->base + c->gaps[i].at, c->gaps[i].bytes);
    HIDE(c->base + c->used, c->size - c->used);
    for (uint32_t i = 0; i < c->launch_count; i++) {
        if (!kernel_run(&c->launches[i], backwards)) fail_msg("%s: launch %u: a barrier is missing", c->name, i);
    }
    SHOW(c->base, c->size);
}

void *case_output_room(kernel_case *c, case_kind kind, uint64_t count, uint64_t columns, double within)
{
    static const uint32_t bytes[] = {4, 2, 4, sizeof(kernel_choice), 1};
    void *at = case_room(c, count * bytes[kind], 0);
    assert_true(c->output_count < CASE_OUTPUTS);
    c->outputs[c->output_count++] = (case_output){kind, at, count, count * bytes[kind], within, columns};
    return at;
}

void *case_answer(kernel_case *c, uint64_t bytes)
{
    c->answer = calloc(1, bytes);
    assert_non_null(c->answer);
    return c->answer;
}

uint64_t case_random(kernel_case *c) { return test_random(&c->seed); }
uint32_t case_below(kernel_case *c, uint32_t bound) { return (uint32_t)(case_random(c) % bound); }
float case_uniform(kernel_case *c) { return (float)((double)(case_random(c) >> 11) * 0x1p-52 - 1); }

float *case_floats(kernel_case *c, uint64_t count, float size)
{
    float *to = case_room(c, count * sizeof *to, 0);
    for (uint64_t i = 0; i < count; i++) to[i] = size * case_uniform(c);
    return to;
}

kernel_launch *case_launch(kernel_case *c)
{
    assert_true(c->launch_count < CASE_LAUNCHES);
    return &c->launches[c->launch_count++];
}

static double value_at(case_kind kind, const void *from, uint64_t at)
{
    return kind == CASE_BF16 ? (double)float_from_bf16(((const uint16_t *)from)[at]) : (double)((const float *)from)[at];
}

static void compare_row(const kernel_case *c, case_kind kind, const void *got, const void *wanted, uint64_t first, uint64_t columns,
                        double within)
{
    double most = 1e-30, rounding = kind == CASE_BF16 ? 0x1.01p-7 : 0; /* a step of bf16 */
    for (uint64_t i = first; i < first + columns; i++) most = fmax(most, fabs(value_at(kind, wanted, i)));
    for (uint64_t i = first; i < first + columns; i++) {
        double a = value_at(kind, got, i), b = value_at(kind, wanted, i);
        if (!(fabs(a - b) <= within * most + rounding * fabs(b)) && !(isnan(a) && isnan(b)) && !(isinf(a) && a == b))
            fail_msg("%s: element %llu is %.9g, not %.9g", c->name, (unsigned long long)i, a, b);
    }
}

static void compare_choices(const kernel_case *c, const kernel_choice *got, const kernel_choice *wanted, uint64_t count)
{
    for (uint64_t i = 0; i < count; i++) {
        if (got[i].token != wanted[i].token || got[i].flags != wanted[i].flags)
            fail_msg("%s: row %llu chose %d (%u), not %d (%u)", c->name, (unsigned long long)i, (int)got[i].token, (unsigned)got[i].flags,
                     (int)wanted[i].token, (unsigned)wanted[i].flags);
        if (float_bits(got[i].logit) != float_bits(wanted[i].logit) || float_bits(got[i].best) != float_bits(wanted[i].best))
            fail_msg("%s: row %llu: logits", c->name, (unsigned long long)i);
        if (!(fabs(got[i].log_sum - wanted[i].log_sum) < 1e-5) && !(isnan(got[i].log_sum) && isnan(wanted[i].log_sum)))
            fail_msg("%s: row %llu: log sum %g, not %g", c->name, (unsigned long long)i, got[i].log_sum, wanted[i].log_sum);
    }
}

void case_compare(const kernel_case *c, case_kind kind, const void *got, const void *wanted, uint64_t count, uint64_t columns,
                  double within)
{
    if (kind == CASE_CHOICES) compare_choices(c, got, wanted, count);
    else if (kind == CASE_WORDS && memcmp(got, wanted, count * 4) != 0) fail_msg("%s: other bits", c->name);
    for (uint64_t i = 0; kind <= CASE_BF16 && i < count; i += columns) compare_row(c, kind, got, wanted, i, columns, within);
}
