/* Timing the caller's computation: on the virtual clock known seconds go in, the same figures come out, and a plan made from them
 * foretells the run. */
#include "support/engine_fixture.h"

#include <math.h>

#define BLOCK_ELEMENTS ((double)(4 * FIXTURE_HIDDEN * FIXTURE_HIDDEN + 3 * FIXTURE_HIDDEN * FIXTURE_FFN))
#define HEAD_ELEMENTS ((double)(FIXTURE_HIDDEN * FIXTURE_VOCAB))
#define DECODING 6e-7 /* seconds per pair, all blocks */
#define PROMPTS 2e-7

typedef struct truth {
    ofl_device *device;
    ofl_stream *stream;
    uint32_t runs, most_tokens, most_rows, most_context, fail_at;
    double speed; /* 0: no time passes */
} truth;

static double block_element(double tokens) { return 1e-9 * (1 + tokens / 8); }
static double head_element(double rows) { return 3e-9 * (1 + rows / 20); }

static double run_seconds(const ofl_compute_run *run)
{
    if (run->part == OFL_COMPUTE_HEAD) return HEAD_ELEMENTS * head_element(run->tokens);
    double decoding = run->decoding * (run->context_tokens + 1.0), prompts = 0;
    for (uint32_t left = run->tokens - run->decoding, share; left > 0; left -= share) {
        share = left < run->share_tokens ? left : run->share_tokens;
        for (uint32_t i = 1; i <= share; i++) prompts += run->context_tokens + i;
    }
    return BLOCK_ELEMENTS * block_element(run->tokens) + (decoding * DECODING + prompts * PROMPTS) / FIXTURE_BLOCKS;
}

static void nothing(void *context) { (void)context; }

static ofl_status pass_time(void *context, const ofl_compute_run *run)
{
    truth *t = context;
    double seconds = run_seconds(run) * t->speed;
    assert_int_equal(run->struct_size, sizeof *run);
    assert_true(run->tokens > 0 && run->decoding <= run->tokens);
    uint32_t longest = run->context_tokens + (run->tokens > run->decoding ? run->share_tokens : 1);
    if (run->part == OFL_COMPUTE_HEAD) t->most_rows = run->tokens > t->most_rows ? run->tokens : t->most_rows;
    else {
        t->most_tokens = run->tokens > t->most_tokens ? run->tokens : t->most_tokens;
        t->most_context = longest > t->most_context ? longest : t->most_context;
    }
    if (++t->runs == t->fail_at) return OFL_ERROR_DEVICE_MEMORY;
    if (seconds <= 0) return OFL_OK;
    return t->stream != NULL ? ofl_sim_launch(t->device, t->stream, nothing, NULL, seconds) : ofl_sim_elapse(t->device, seconds);
}

static ofl_compute_probe probe_of(truth *t)
{
    return (ofl_compute_probe){.struct_size = sizeof(ofl_compute_probe), .block_count = FIXTURE_BLOCKS, .run = pass_time, .context = t,
                               .stream = t->stream, .block_elements = BLOCK_ELEMENTS, .head_elements = HEAD_ELEMENTS,
                               .max_tokens = 300, .max_rows = 40, .context_tokens = 256};
}

static int near(double a, double b, double share) { return fabs(a - b) <= share * fabs(b); }

static void test_known_seconds_come_back(void **state)
{
    (void)state;
    for (int i = 0; i < 6; i++) {
        truth t = {.speed = 1};
        ofl_compute_figures f = {.struct_size = sizeof f};
        assert_ok(ofl_device_open("sim:vram=1MB,h2d=1GB/s,clock=virtual", &t.device));
        if (i % 2) assert_ok(ofl_stream_create(t.device, &t.stream));
        ofl_compute_probe probe = probe_of(&t);
        probe.token_step = i / 2 == 1 ? 16 : 0;
        if (i / 2 == 2) probe.max_tokens = probe.max_rows = 1;
        assert_ok(ofl_compute_measure(t.device, &probe, &f));
        assert_true(t.most_tokens == probe.max_tokens && t.most_rows == probe.max_rows && t.most_context == probe.context_tokens);
        assert_true(f.points[f.point_count - 1].tokens == probe.max_tokens && f.head_points[f.head_point_count - 1].tokens == probe.max_rows);
        for (uint32_t k = 0; k < f.point_count; k++) {
            assert_true(k == 0 || f.points[k].tokens > f.points[k - 1].tokens);
            assert_true(near(f.points[k].seconds_per_element, block_element(f.points[k].tokens), 1e-3));
        }
        for (uint32_t k = 0; k < f.head_point_count; k++)
            assert_true(near(f.head_points[k].seconds_per_element, head_element(f.head_points[k].tokens), 1e-4));
        assert_true(near(f.attention_seconds_per_kv_token, DECODING, 1e-3));
        assert_true(near(f.prefill_attention_seconds_per_kv_token, PROMPTS, 1e-2));
        if (probe.token_step == 16) assert_true(f.points[1].tokens == 16 && f.points[2].tokens == 17 && f.points[3].tokens == 32);
        if (t.stream != NULL) ofl_stream_destroy(t.device, t.stream);
        ofl_device_close(t.device);
    }
}

/* ---- a plan made from them ---- */

enum { SEQUENCES = 5, CONTEXT = 100, STEPS = 12, WARM = 6 };

static ofl_plan *plan_from(const ofl_compute_figures *figures, const ofl_model *model, uint64_t vram, double link)
{
    ofl_machine *machine;
    ofl_plan *plan;
    ofl_workload w = {.struct_size = sizeof w, .context_tokens = CONTEXT, .sequences = SEQUENCES, .prefill_chunk_tokens = 16,
                      .cut = OFL_CUT_BYTES, .part_bytes = 96 * 1024, .force_headroom = 1, .compute_type = OFL_COMPUTE_F32, .host_seconds_per_row = 4e-5};
    assert_ok(ofl_compute_use(figures, &w));
    assert_ok(ofl_machine_create("simulated", &machine));
    assert_ok(ofl_machine_set(machine, OFL_FIGURE_VRAM, (double)vram, OFL_SOURCE_GIVEN));
    assert_ok(ofl_machine_set(machine, OFL_FIGURE_LINK, link, OFL_SOURCE_GIVEN));
    assert_ok(ofl_machine_set(machine, OFL_FIGURE_COPY_START, 0, OFL_SOURCE_GIVEN));
    assert_ok(ofl_machine_set(machine, OFL_FIGURE_RUNTIME, 0, OFL_SOURCE_GIVEN));
    assert_ok(ofl_machine_assume(machine));
    assert_ok(ofl_plan_make(model, machine, &w, &plan));
    ofl_machine_destroy(machine);
    return plan;
}

#define PER_UNIT 2e-5 /* seconds of the loop's calls, much of so small units */
#define PER_PIECE 5e-5

/* What the unit truly takes; attention in the unit that has the output matrix. */
static double unit_seconds(const ofl_plan *plan, const ofl_model *model, uint32_t index, uint64_t kv_tokens)
{
    ofl_unit unit = {.struct_size = sizeof unit};
    double seconds = 0;
    assert_ok(ofl_plan_unit_get(plan, index, &unit));
    for (uint32_t i = 0; i < unit.slice_count; i++) {
        ofl_slice slice = {.struct_size = sizeof slice};
        ofl_tensor_info info = {.struct_size = sizeof info};
        assert_ok(ofl_plan_slice_get(plan, unit.slice_first + i, &slice));
        assert_ok(ofl_model_tensor_get(model, slice.tensor, &info));
        if (info.row_count > 1) seconds += (double)(slice.row_count * info.dims[0]) *
                                           (info.block == FIXTURE_BLOCKS ? head_element(SEQUENCES) : block_element(SEQUENCES));
        if (info.role == OFL_ROLE_ATTN_OUTPUT && slice.row_first == 0) seconds += (double)kv_tokens * DECODING / FIXTURE_BLOCKS;
    }
    return seconds + PER_UNIT + (unit.piece_bytes != 0 ? PER_PIECE : 0);
}

static double measured_step(const ofl_plan *plan, const ofl_model *model, ofl_device *device, uint64_t kv_tokens)
{
    ofl_engine *engine;
    uint64_t start = 0;
    assert_ok(ofl_engine_open(plan, model, device, NULL, &engine));
    for (int step = 0; step < STEPS; step++) {
        if (step == WARM) start = ofl_device_now_ns(device);
        for (uint32_t i = 0; i < ofl_plan_unit_count(plan); i++) {
            ofl_view view = {.struct_size = sizeof view};
            assert_ok(ofl_engine_acquire(engine, i, NULL, &view));
            assert_ok(ofl_sim_elapse(device, unit_seconds(plan, model, i, kv_tokens)));
            assert_ok(ofl_engine_release(engine, i, NULL));
        }
        assert_ok(ofl_sim_elapse(device, SEQUENCES * 4e-5));
    }
    double seconds = (double)(ofl_device_now_ns(device) - start) * 1e-9 / (STEPS - WARM);
    ofl_engine_close(engine);
    return seconds;
}

/* Field cases 113 and 115: compute that binds, streamed or not; at the planned context and at a quarter of it. */
static void test_forecast_is_the_run(void **state)
{
    (void)state;
    static const struct { uint64_t vram; double link; } cases[] = {{64u << 20, 1e9}, {7u << 20, 4e9}, {7u << 20, 1e9}, {5u << 20, 2e9}};
    fixture_model model;
    fixture_model_open(&model, 0);
    for (uint32_t i = 0; i < 8; i++) {
        truth t = {.speed = 1};
        char spec[128];
        ofl_compute_figures f = {.struct_size = sizeof f};
        ofl_step_shape shape = {.struct_size = sizeof shape, .tokens = SEQUENCES, .logits_rows = SEQUENCES};
        ofl_step_estimate estimate = {.struct_size = sizeof estimate};
        (void)snprintf(spec, sizeof spec, "sim:vram=%llu,h2d=%.0f,clock=virtual", (unsigned long long)cases[i / 2].vram, cases[i / 2].link);
        assert_ok(ofl_device_open(spec, &t.device));
        ofl_compute_probe probe = probe_of(&t);
        assert_ok(ofl_compute_measure(t.device, &probe, &f));
        f.host_seconds_per_unit = PER_UNIT;
        f.host_seconds_per_piece = PER_PIECE;
        ofl_plan *plan = plan_from(&f, model.model, cases[i / 2].vram, cases[i / 2].link);
        shape.kv_tokens = (uint64_t)SEQUENCES * CONTEXT / (i % 2 ? 8 : 2);
        assert_ok(ofl_plan_estimate_step(plan, &shape, &estimate));
        double measured = measured_step(plan, model.model, t.device, shape.kv_tokens);
        if (!near(estimate.step_seconds, measured, 0.005))
            fail_msg("case %u: foretold %g ms (compute %g, link %g), measured %g ms", i, estimate.step_seconds * 1e3,
                     estimate.compute_seconds * 1e3, estimate.link_seconds * 1e3, measured * 1e3);
        ofl_plan_destroy(plan);
        ofl_device_close(t.device);
    }
    fixture_model_close(&model);
}

static void test_bad_probes(void **state)
{
    (void)state;
    truth t = {.speed = 1};
    ofl_compute_figures f = {.struct_size = sizeof f};
    assert_ok(ofl_device_open("sim:vram=1MB,h2d=1GB/s,clock=virtual", &t.device));
    for (int i = 0; i < 11; i++) {
        ofl_compute_probe p = probe_of(&t);
        switch (i) {
        case 0: p.run = NULL; break;
        case 1: p.block_count = 0; break;
        case 2: p.max_tokens = 0; break;
        case 3: p.max_rows = 0; break;
        case 4: p.block_elements = 0; break;
        case 5: p.block_elements = INFINITY; break;
        case 6: p.head_elements = NAN; break;
        case 7: p.head_elements = 0; break;
        case 8: p.context_tokens = 63; break;
        case 9: p.seconds = -1; break;
        default: p.struct_size = 0; break;
        }
        assert_status(ofl_compute_measure(t.device, &p, &f), OFL_ERROR_ARGUMENT);
    }
    ofl_compute_probe probe = probe_of(&t);
    assert_status(ofl_compute_measure(NULL, &probe, &f), OFL_ERROR_ARGUMENT);
    assert_status(ofl_compute_measure(t.device, NULL, &f), OFL_ERROR_ARGUMENT);
    assert_status(ofl_compute_measure(t.device, &probe, NULL), OFL_ERROR_ARGUMENT);
    assert_int_equal(t.runs, 0);
    for (t.fail_at = 1; t.fail_at < 90; t.fail_at += 11) { /* what the callback says is forwarded, and nothing is kept */
        t.runs = 0;
        assert_int_equal(ofl_compute_measure(t.device, &probe, &f), OFL_ERROR_DEVICE_MEMORY);
        assert_int_equal(t.runs, t.fail_at);
        assert_int_equal(f.point_count, 0);
    }
    t.fail_at = 0;
    t.speed = 0;
    assert_status(ofl_compute_measure(t.device, &probe, &f), OFL_ERROR_STATE);
    ofl_device_close(t.device);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_known_seconds_come_back),
    cmocka_unit_test(test_forecast_is_the_run),
    cmocka_unit_test(test_bad_probes),
};
TEST_MAIN(tests)
