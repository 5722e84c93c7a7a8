/* Choosing tokens, and the likeliest. */
#include "support/support.h"

#include <math.h>

#include "batch/logprobs.h"
#include "batch/sampler.h"
#include "common/app_error.h"
#include "kernels/kernel_cases.h"

#define ROWS_MOST 6u

typedef struct sampled {
    uint32_t rows, usable;
    uint64_t stride;
    const float *logits;
    const kernel_draw *draws;
    const kernel_top *tops;
    uint32_t tops_stride;
} sampled;

/* Smooth, with many equal ones, with some that are not numbers, or with infinite ones. */
static void fill_row(kernel_case *c, float *row, uint32_t count)
{
    uint32_t kind = case_below(c, 8);
    float size = 0.1f + 12 * fabsf(case_uniform(c));
    for (uint32_t i = 0; i < count; i++) {
        float x = size * case_uniform(c);
        if (kind == 1) x = floorf(x);
        if (kind == 2 && case_below(c, 20) == 0) x = NAN;
        if (kind == 6 && case_below(c, 400) == 0) x = INFINITY;
        if (kind == 3 && case_below(c, 20) == 0) x = -INFINITY;
        if (kind == 4) x = case_below(c, 50) == 0 ? 0.0f * -x : -fabsf(x);
        if (kind == 5) x = c->seed % 2 == 0 ? NAN : -INFINITY; /* says nothing */
        row[i] = x;
    }
}

static kernel_draw choose_draw(kernel_case *c)
{
    static const double temperatures[] = {0, 0.2, 0.7, 1, 1.7}, shares[] = {1, 1, 0.95, 0.5, 0.01};
    static const uint32_t limits[] = {0, 0, 1, 5, 40, 100000};
    kernel_draw d = {.temperature = temperatures[case_below(c, 5)], .top_p = shares[case_below(c, 5)], .top_k = limits[case_below(c, 6)],
                     .tops = case_below(c, 2) == 0 ? 0 : case_below(c, KERNEL_TOPS_MOST + 1)};
    d.random = case_below(c, 8) == 0 ? 0 : (double)(case_random(c) >> 11) * 0x1p-53;
    return d;
}

static void check_tops(const kernel_case *c, const sampled *s, uint32_t row, const kernel_choice *choice)
{
    const kernel_top *tops = s->tops + (uint64_t)row * s->tops_stride;
    const float *logits = s->logits + row * s->stride;
    logprob wanted[1 + KERNEL_TOPS_MOST];
    logprobs_of(logits, s->usable, choice->token < 0 ? 0 : choice->token, s->draws[row].tops, wanted);
    for (uint32_t i = 0; i < s->draws[row].tops; i++) {
        if (tops[i].id != wanted[1 + i].id)
            fail_msg("%s: row %u, place %u: id %d, not %d", c->name, row, i, (int)tops[i].id, (int)wanted[1 + i].id);
        if (tops[i].id >= 0 && tops[i].logit != logits[tops[i].id]) fail_msg("%s: row %u, place %u: logit", c->name, row, i);
    }
    double value = (double)choice->logit - (double)choice->best - choice->log_sum;
    if (choice->token >= 0 && !(fabs(value - (double)wanted[0].value) < 2e-5) && wanted[0].value > LOGPROBS_NONE)
        fail_msg("%s: row %u: log-probability %g, not %g", c->name, row, value, (double)wanted[0].value);
}

static void check_sample(const kernel_case *c)
{
    const sampled *s = c->answer;
    const kernel_choice *choices = c->outputs[0].at;
    void *scratch = malloc(8 * (uint64_t)s->usable);
    assert_non_null(scratch);
    for (uint32_t r = 0; r < s->rows; r++) {
        const float *logits = s->logits + r * s->stride;
        const kernel_draw *d = &s->draws[r];
        sampling how = {.temperature = d->temperature, .top_p = d->top_p, .top_k = d->top_k, .random = d->random};
        int32_t wanted = sampling_pick(&how, logits, s->usable, scratch);
        uint32_t flags = 0;
        for (uint32_t i = 0; i < s->usable; i++) flags |= isnan(logits[i]) ? KERNEL_NAN : 0;
        if (choices[r].token != wanted || choices[r].flags != flags)
            fail_msg("%s: row %u, temperature %g, top_p %g, top_k %u: token %d (%u), not %d (%u)", c->name, r, d->temperature, d->top_p,
                     d->top_k, (int)choices[r].token, choices[r].flags, (int)wanted, flags);
        check_tops(c, s, r, &choices[r]);
    }
    free(scratch);
}

void case_make_sample(kernel_case *c)
{
    sampled s = {.rows = 1 + case_below(c, ROWS_MOST), .tops_stride = KERNEL_TOPS_MOST};
    s.usable = case_below(c, 4) == 0 ? 1 + case_below(c, 9) : 1 + case_below(c, 5000);
    s.stride = s.usable + case_below(c, 7);
    float *logits = case_room(c, s.rows * s.stride * sizeof *logits, 0);
    kernel_draw *draws = case_room(c, s.rows * sizeof *draws, 0);
    for (uint32_t r = 0; r < s.rows; r++) {
        fill_row(c, logits + r * s.stride, s.usable);
        for (uint64_t i = s.usable; i < s.stride; i++) logits[r * s.stride + i] = 1e9f; /* ids without a meaning */
        draws[r] = choose_draw(c);
    }
    kernel_choice *choices = case_output_room(c, CASE_CHOICES, s.rows, 1, 0);
    kernel_top *tops = case_output_room(c, CASE_WORDS, s.rows * s.tops_stride * 2, 1, 0);
    (void)snprintf(c->name, 64, "%u rows of %u ids", s.rows, s.usable);
    s.logits = logits;
    s.draws = draws;
    s.tops = tops;
    kernel_sample_args args = {CASE_AT(c, logits), s.stride, s.usable, CASE_AT(c, draws), CASE_AT(c, choices), CASE_AT(c, tops),
                               s.tops_stride, s.rows, NULL};
    if (kernel_prepare_sample(&args, case_launch(c)) != OFL_OK) fail_msg("%s: %s", c->name, app_error());
    *(sampled *)case_answer(c, sizeof s) = s;
    c->check = check_sample;
}
