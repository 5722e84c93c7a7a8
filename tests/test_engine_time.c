/* The engine's steady step on the virtual clock against what the planner foretold: one ring code decides for both. */
#include "support/engine_fixture.h"

#include <math.h>

enum { STEPS = 24, WARM = 12, LONG = 120 };

static void nothing(void *context) { (void)context; }

static void one_step(fixture *f, const fixture_case *c, ofl_stream *stream, int backwards)
{
    for (uint32_t i = 0; i < f->units; i++) {
        ofl_unit unit = {.struct_size = sizeof unit};
        ofl_view view = {.struct_size = sizeof view};
        uint32_t index = backwards ? f->units - 1 - i : i;
        assert_ok(ofl_plan_unit_get(f->plan, index, &unit));
        assert_ok(ofl_engine_acquire(f->engine, index, stream, &view));
        if (stream != NULL) assert_ok(ofl_sim_launch(f->device, stream, nothing, NULL, unit.compute_seconds));
        else assert_ok(ofl_sim_elapse(f->device, unit.compute_seconds));
        assert_ok(ofl_engine_release(f->engine, index, stream));
    }
    if (stream != NULL) assert_ok(ofl_stream_wait(f->device, stream));
    assert_ok(ofl_sim_elapse(f->device, c->host));
}

static double steady_step(fixture *f, const fixture_case *c, int with_stream, int backwards, int steps)
{
    ofl_stream *stream = NULL;
    uint64_t start = 0;
    if (with_stream) assert_ok(ofl_stream_create(f->device, &stream));
    for (int i = 0; i < steps; i++) {
        if (i == WARM) start = ofl_device_now_ns(f->device);
        one_step(f, c, stream, backwards);
    }
    double seconds = (double)(ofl_device_now_ns(f->device) - start) * 1e-9 / (steps - WARM);
    if (stream != NULL) ofl_stream_destroy(f->device, stream);
    return seconds;
}

typedef struct deviation { double worst; uint32_t cases, streamed; } deviation;

static void compare_from(int first, int steps, const fixture_case *c, fixture_model *model, deviation *out)
{
    for (int with_stream = first; with_stream < 2; with_stream++) {
        fixture f;
        ofl_forecast forecast = {.struct_size = sizeof forecast};
        fixture_open(&f, c, model, NULL);
        assert_ok(ofl_plan_forecast_get(f.plan, &forecast));
        double measured = steady_step(&f, c, with_stream, 0, steps), error = fabs(measured / forecast.step.step_seconds - 1);
        /* A feeding thread is ahead by what the ring holds, at one end of the window and not at the other. */
        double edge = first ? (double)f.budget.ring_bytes / c->link / (measured * (steps - WARM)) : 0;
        if (error > 0.005 + edge)
            fail_msg("vram %llu, ring %llu, part %llu, compute %g, start %g, host %g, stream %d: step %.6g ms, foretold %.6g ms (link %.6g, compute %.6g)",
                     (unsigned long long)c->vram, (unsigned long long)f.budget.ring_bytes, (unsigned long long)c->part_bytes, c->compute, c->start, c->host,
                     with_stream, measured * 1e3, forecast.step.step_seconds * 1e3, forecast.step.link_seconds * 1e3, forecast.step.compute_seconds * 1e3);
        out->worst = fmax(out->worst, error);
        out->cases++;
        out->streamed += f.budget.stream_bytes_per_step != 0;
        fixture_close(&f);
    }
}

static void compare(const fixture_case *c, fixture_model *model, deviation *out) { compare_from(0, STEPS, c, model, out); }

/* From link-bound through the knee to compute-bound, little and much of it resident, with and without a gap between steps. */
static void test_step_time_is_as_foretold(void **state)
{
    (void)state;
    static const double computes[] = {2e-10, 1e-9, 2.5e-9, 4e-9, 1e-8}; /* the link takes 4e-9 per streamed element */
    static const double shares[] = {0, 0.1, 0.3, 0.5};
    static const uint64_t parts[] = {48 * 1024, 96 * 1024, 160 * 1024};
    fixture_model model;
    deviation all = {0, 0, 0};
    fixture_model_open(&model, 0);
    for (uint32_t i = 0; i < 5 * 4 * 3 * 2; i += 120 / FIXTURE_SEEDS(120)) {
        fixture_case c = {.link = 1e9, .start = i % 7 ? 5e-6 : 0, .compute = computes[i % 5], .cut = OFL_CUT_BYTES, .part_bytes = parts[i / 5 % 3]};
        c.host = i / 60 ? 1e-3 : 0;
        uint64_t least = fixture_least_vram(c, model.model);
        c.vram = least + (uint64_t)(shares[i / 15 % 4] * 5e6);
        compare(&c, &model, &all);
    }
    assert_true(all.streamed >= all.cases / 2);
    print_message("%u cases, %u of them streamed, largest deviation %.4f %%\n", all.cases, all.streamed, all.worst * 100);
    fixture_model_close(&model);
}

static void test_whole_blocks_are_as_foretold(void **state)
{
    (void)state;
    fixture_model model;
    deviation all = {0, 0, 0};
    fixture_model_open(&model, 0);
    for (uint32_t i = 0; i < 12; i++) {
        fixture_case c = {.link = 1e9, .start = 5e-6, .compute = 1e-9 * (1 + i % 4), .cut = i % 2 ? OFL_CUT_OFF : OFL_CUT_AUTO, .host = i > 6 ? 5e-4 : 0};
        c.vram = fixture_least_vram(c, model.model) + 300000u * i;
        compare(&c, &model, &all);
    }
    assert_true(all.streamed > 0);
    fixture_model_close(&model);
}

static double between(uint64_t *seed, double low, double high) { return low + (high - low) * (double)(test_random(seed) % 1000) / 999; }

/* Any cut, forced layers, much and little memory, compute from a tenth to one and a half times of the link's time, with and without a gap.
 */
static fixture_case random_case(uint64_t *seed, const ofl_model *model)
{
    fixture_case c = {.link = 1e9 * between(seed, 0.3, 30)};
    uint32_t kind = (uint32_t)(test_random(seed) % 4);
    double element = 4 / c.link;
    c.start = test_random(seed) % 3 ? 1e-6 * between(seed, 0, 8) : 0;
    c.cut = kind == 0 ? OFL_CUT_AUTO : kind == 1 ? OFL_CUT_BYTES : OFL_CUT_OFF;
    if (kind == 1) c.part_bytes = (uint64_t)between(seed, 30000, 400000);
    if (kind == 3) c.whole_blocks = 1, c.layers_kept = (uint32_t)(test_random(seed) % 4);
    c.compute = 1e-12;
    uint64_t least = fixture_least_vram(c, model);
    c.vram = least + (uint64_t)between(seed, 0, 5e6);
    c.compute = element * between(seed, 0.1, 1.5) * fmax(0.1, 1 - (double)(c.vram - least) / 8e6); /* of what is streamed, about */
    if (test_random(seed) % 3 == 0) c.host = between(seed, 1e-5, 3e-3) * 1e9 / c.link;
    return c;
}

static void test_random_plans_are_as_foretold(void **state)
{
    (void)state;
    uint64_t seed = 4;
    fixture_model model;
    deviation all = {0, 0, 0};
    fixture_model_open(&model, 0);
    for (uint32_t i = 0; i < FIXTURE_SEEDS(120); i++) {
        fixture_case c = random_case(&seed, model.model);
        compare(&c, &model, &all);
    }
    print_message("%u random cases, %u of them streamed, largest deviation %.4f %%\n", all.cases, all.streamed, all.worst * 100);
    assert_true(all.streamed * 2 > all.cases);
    fixture_model_close(&model);
}

/* From pageable memory and from the file, one tier a unit. On the virtual clock such a copy holds the host's time, so that next to no
 * compute runs beside it. */
static void test_slower_tiers_are_as_foretold(void **state)
{
    (void)state;
    uint64_t seed = 9;
    fixture_model model;
    deviation all = {0, 0, 0};
    const char *path = test_path("weights");
    fixture_model_make(&model, 0, path);
    for (uint32_t i = 0; i < FIXTURE_SEEDS(30); i++) {
        fixture_case c = random_case(&seed, model.model);
        c.link = 1e9;
        c.start = 0; /* copies from the file are counted by slice */
        c.host = 0;
        c.compute = 1e-13;
        c.pinnable = 500000 + (uint64_t)between(&seed, 0, 3e6);
        if (i % 2) c.host_bytes = c.pinnable + (uint64_t)between(&seed, 0, 1e6);
        compare_from(1, LONG, &c, &model, &all);
    }
    print_message("%u random cases of slower tiers, %u of them streamed, largest deviation %.4f %%\n", all.cases, all.streamed,
                  all.worst * 100);
    assert_true(all.streamed * 2 > all.cases);
    fixture_model_close(&model);
}

/* Once learnt, another order is prefetched as well as the plan's own: here, where the link binds, it takes the same time. */
static void test_another_order_costs_nothing_once_learnt(void **state)
{
    (void)state;
    fixture_model model;
    fixture_model_open(&model, 0);
    fixture_case c = {.link = 1e9, .start = 5e-6, .compute = 2e-10, .cut = OFL_CUT_BYTES, .part_bytes = 96 * 1024};
    c.vram = fixture_least_vram(c, model.model);
    fixture f;
    fixture_open(&f, &c, &model, NULL);
    double forward = steady_step(&f, &c, 1, 0, STEPS), backward = steady_step(&f, &c, 1, 1, STEPS);
    assert_true(fabs(backward / forward - 1) < 0.02);
    fixture_close(&f);
    fixture_model_close(&model);
}

/* The link is busy all the time where it binds: no gap at the step's end either. */
static void test_link_never_idles(void **state)
{
    (void)state;
    fixture_model model;
    fixture_model_open(&model, 0);
    fixture_case c = {.link = 1e9, .start = 0, .compute = 1e-9, .cut = OFL_CUT_BYTES, .part_bytes = 96 * 1024};
    c.vram = fixture_least_vram(c, model.model) + 200000;
    fixture f;
    fixture_open(&f, &c, &model, NULL);
    double seconds = steady_step(&f, &c, 1, 0, STEPS), link = (double)f.budget.stream_bytes_per_step / c.link;
    assert_true(seconds <= link * 1.001);
    fixture_close(&f);
    fixture_model_close(&model);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_step_time_is_as_foretold),
    cmocka_unit_test(test_whole_blocks_are_as_foretold),
    cmocka_unit_test(test_random_plans_are_as_foretold),
    cmocka_unit_test(test_slower_tiers_are_as_foretold),
    cmocka_unit_test(test_another_order_costs_nothing_once_learnt),
    cmocka_unit_test(test_link_never_idles),
};
TEST_MAIN(tests)
