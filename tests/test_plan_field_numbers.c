/* Faults that people met in forecasts, by the number of the case; and the numbers of the published experiment (an RTX 3060, Qwen2.5-7B) and
 * of the sizing rules in common use, computed by this library. */
#include "plan_models.h"

#include <math.h>

static void assert_near(double got, double wanted, double share)
{
    if (fabs(got - wanted) > share * fabs(wanted)) fail_msg("%.9g, not %.9g", got, wanted);
}

static double all_bytes(const ofl_model *model)
{
    double sum = 0;
    for (uint32_t i = 0; i < ofl_model_tensor_count(model); i++) {
        ofl_tensor_info info = {.struct_size = sizeof info};
        assert_ok(ofl_model_tensor_get(model, i, &info));
        sum += (double)info.bytes;
    }
    return sum;
}

static uint64_t kv_of(const ofl_model *model, ofl_kv_type type, uint64_t tokens)
{
    uint64_t bytes;
    assert_ok(ofl_model_kv_bytes(model, type, tokens, &bytes));
    return bytes;
}

static test_shape llama8b(ofl_dtype dtype) { return (test_shape){32, 4096, 32, 8, 128, 14336, 128256, 0, 0, dtype}; }
static ofl_machine *card_3060(void) { return test_machine(12.49e9, 3.26e9, 5e-6, 360e9, 51e12, 0.75e9); }

/* ---- forecasts ---- */

/* A model of experts alone: `count` of them in each of two blocks. */
static ofl_model *experts(uint32_t count, uint32_t used)
{
    ofl_model_shape shape = {.struct_size = sizeof shape, .block_count = 2, .hidden_size = 1024, .head_count = 1, .head_count_kv = 1};
    shape.head_dim_k = shape.head_dim_v = 2;
    shape.vocab_size = 64;
    shape.trained_context_tokens = 4096;
    shape.expert_count = count;
    shape.expert_used_count = used;
    test_shape s = {.layers = 2, .dtype = OFL_DTYPE_BF16};
    ofl_model_builder *b = NULL;
    ofl_model *model = NULL;
    assert_ok(ofl_model_builder_create("experts", "mixture", &shape, &b));
    for (int32_t i = 0; i < 2; i++)
        add_tensor(b, "ffn_up_exps", &s, s.dtype, OFL_CLASS_EXPERT, OFL_ROLE_FFN_UP, i, 1024, 512 * (uint64_t)count);
    assert_ok(ofl_model_builder_finish(b, &model));
    return model;
}

/* 110: a batch reads more different experts: E × (1 − (1 − k/E)^B); 2.00, 5.47 and 8.00 of 8 at 1, 4 and 32 tokens. In bytes and in time.
 */
static void test_110_distinct_experts(void **state)
{
    (void)state;
    static const struct {
        uint32_t count, used, tokens;
        double read;
    } rows[] = {{8, 2, 1, 2.00},      {8, 2, 4, 5.47},      {8, 2, 32, 8.00}, {128, 8, 1, 8},
                {128, 8, 64, 125.94}, {256, 8, 16, 101.96}, {4, 4, 1, 4},     {60, 4, 2, 7.733}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        ofl_model *model = experts(rows[i].count, rows[i].used);
        double one = 2 * 1024 * 512 * 2, read = 0; /* bytes of an expert in both blocks */
        assert_ok(ofl_model_expert_bytes_per_step(model, rows[i].tokens, &read));
        assert_near(read / one, rows[i].read, 0.001);
        ofl_machine *machine = test_machine(4e9, 1e9, 0, 1e9, 1e18, 0); /* the device reads 1 GB/s */
        ofl_workload w = {.struct_size = sizeof w, .context_tokens = 16, .sequences = rows[i].tokens};
        planned p = plan_once(model, machine, &w);
        double attention = 2.0 * (double)p.settings.kv_bytes_per_token / 2 * 8 * rows[i].tokens / 1e9;
        assert_near(p.forecast.step.compute_seconds - attention, read / 1e9, 0.002);
        ofl_machine_destroy(machine);
        ofl_model_destroy(model);
    }
}

/* 111: streamed layers come over the link, however fast the device's own memory is. */
static void test_111_the_link_is_what_counts(void **state)
{
    (void)state;
    ofl_model *model = test_model(llama8b(OFL_DTYPE_BF16));
    for (double bandwidth = 500e9; bandwidth < 1e13; bandwidth *= 4) {
        ofl_machine *machine = test_machine(16e9, 25e9, 0, bandwidth, 500e12, 0);
        ofl_workload w = {.struct_size = sizeof w, .context_tokens = 256, .force_layers = 1, .force_resident_layers = 16};
        planned p = plan_once(model, machine, &w);
        assert_int_equal(p.budget.stream_bytes_per_step, UINT64_C(6979584000));
        assert_near(p.forecast.step.link_seconds, 0.279, 0.001);
        assert_true(p.forecast.tokens_per_second <= 3.582 && p.forecast.tokens_per_second > 3.5);
        w.sequences = 8;
        p = plan_once(model, machine, &w);
        assert_true(p.forecast.tokens_per_second <= 28.66 && p.forecast.tokens_per_second > 28);
        ofl_machine_destroy(machine);
    }
    ofl_model_destroy(model);
    test_shape large = {62, 5376, 32, 16, 128, 7168, 32000, 0, 0, OFL_DTYPE_BF16}; /* all blocks streamed: about 27.1 GiB a token */
    model = test_model(large);
    ofl_machine *machine = test_machine(8e9, 10.53 * 1073741824, 0, 1e12, 500e12, 0);
    ofl_workload w = {.struct_size = sizeof w, .context_tokens = 256, .force_layers = 1};
    planned p = plan_once(model, machine, &w);
    double gib = (double)p.budget.stream_bytes_per_step / 1073741824;
    assert_near(p.forecast.tokens_per_second * gib / 27.1, 0.389, 0.002);
    ofl_machine_destroy(machine);
    ofl_model_destroy(model);
}

static double step_at(const ofl_plan *plan, uint32_t sequences, uint64_t live)
{
    ofl_step_shape shape = {.struct_size = sizeof shape, .tokens = sequences, .logits_rows = sequences, .kv_tokens = sequences * live};
    ofl_step_estimate e = {.struct_size = sizeof e};
    assert_ok(ofl_plan_estimate_step(plan, &shape, &e));
    return e.step_seconds;
}

/* 113: a step's time is that of the context that is there, not of the one that was planned for; the region is told in bytes and in tokens.
 */
static void test_113_the_live_context_counts(void **state)
{
    (void)state;
    ofl_model *model = test_model(llama8b(OFL_DTYPE_BF16));
    ofl_machine *machine = test_machine(40e9, 12e9, 5e-6, 300e9, 50e12, 0);
    double first = 0;
    static const uint64_t contexts[] = {1024, 4096, 40960};
    for (size_t i = 0; i < 3; i++) {
        ofl_workload w = {.struct_size = sizeof w, .context_tokens = contexts[i], .sequences = 2};
        ofl_plan *plan = plan_of(model, machine, &w);
        planned p = read_plan(plan);
        double now = step_at(plan, 2, 280);
        if (i == 0) first = now;
        assert_int_equal(p.budget.stream_bytes_per_step, 0);
        assert_true(now == first && step_at(plan, 2, contexts[i]) > now);
        assert_int_equal(p.budget.kv_bytes, p.settings.kv_capacity_tokens * p.settings.kv_bytes_per_token); /* no windows here */
        assert_int_equal(p.settings.kv_capacity_tokens, 2 * contexts[i]);
        ofl_plan_destroy(plan);
    }
    ofl_machine_destroy(machine);
    ofl_model_destroy(model);
}

/* 115: tokens per second are those of decoding, prompts are told as the time to the first token; and what is not measured is said to be
 * assumed. */
static void test_115_decoding_and_prefill_apart(void **state)
{
    (void)state;
    ofl_model *model = test_model(qwen7b());
    ofl_machine *machine = card_3060();
    for (uint64_t context = 64; context < 9000; context = context * 3 + 1) {
        ofl_workload w = {.struct_size = sizeof w, .context_tokens = context, .force_layers = 1, .force_resident_layers = 10};
        planned p = plan_once(model, machine, &w);
        uint64_t chunks = (context - 2) / p.settings.prefill_chunk_tokens + 1;
        assert_near(p.forecast.tokens_per_second, 1 / p.forecast.step.step_seconds, 1e-9);
        assert_true(p.forecast.first_token_seconds >= 0.99 * (double)chunks * p.forecast.step.link_seconds);
    }
    ofl_machine_destroy(machine);
    assert_ok(ofl_machine_create("no device", &machine));
    assert_ok(ofl_machine_set(machine, OFL_FIGURE_VRAM, 12e9, OFL_SOURCE_GIVEN));
    assert_ok(ofl_machine_assume(machine));
    ofl_workload w = {.struct_size = sizeof w, .context_tokens = 512};
    ofl_plan *plan = plan_of(model, machine, &w);
    char *json = NULL;
    assert_ok(ofl_plan_to_json(plan, &json));
    assert_non_null(strstr(json, "\"device_flops_per_second\": \"assumed\""));
    assert_non_null(strstr(json, "\"link_bytes_per_second\": \"assumed\""));
    assert_true(read_plan(plan).forecast.error_band_percent >= 30);
    ofl_string_free(json);
    ofl_plan_destroy(plan);
    ofl_machine_destroy(machine);
    ofl_model_destroy(model);
}

/* ---- the published experiment ---- */

static void test_experiment(void **state)
{
    (void)state;
    ofl_model *model = test_model(qwen7b());
    ofl_machine *machine = card_3060();
    ofl_workload w = {.struct_size = sizeof w, .context_tokens = 512, .force_layers = 1, .force_resident_layers = 13};
    planned p = plan_once(model, machine, &w);
    double layer = 466115584, outside = 2 * 152064.0 * 3584 * 2 + 3584 * 2, gib = 1073741824;
    assert_near(all_bytes(model), 15.23e9, 0.0005);
    assert_near(layer, 0.466e9, 0.0005);
    assert_near(outside, 2.18e9, 0.0005);
    assert_int_equal(p.settings.kv_bytes_per_token, 57344);
    assert_near((double)p.budget.stream_bytes_per_step, 6.99e9, 0.0005);
    assert_near(p.forecast.tokens_per_second, 0.47, 0.01); /* as they forecast; */
    assert_near(p.forecast.tokens_per_second, 0.46, 0.02); /* measured: 0.46 and 2,191 ms, 2 % slower than a link that never rests */
    assert_near(p.forecast.step.step_seconds, 2.191, 0.025);
    assert_near(p.forecast.first_token_seconds, 2.19, 0.025);
    assert_near((13 * layer + outside) / gib, 7.69, 0.005); /* resident there; here the embedding needs no device memory: */
    assert_near((double)p.budget.resident_bytes, 13 * layer + outside - 1.09e9, 0.001);
    w.sequences = 60; /* 60 questions at once: each step as long as before */
    planned batch = plan_once(model, machine, &w);
    assert_near(batch.forecast.step.step_seconds, p.forecast.step.step_seconds, 0.005);
    assert_near(batch.forecast.tokens_per_second, 60 / 2.19, 0.025);
    ofl_machine_destroy(machine);
    ofl_model_destroy(model);
}

/* Less than half of the memory holds all of it at 4 bits (with scales: 4 + 20/128), embedding and head at 16: nothing is streamed. */
static void test_experiment_ways_out(void **state)
{
    (void)state;
    ofl_model *model = test_model(qwen7b());
    test_shape quantised = qwen7b();
    double outside = 2 * 152064.0 * 3584 * 2, parameters = all_bytes(model) / 2;
    assert_near((parameters - outside / 2) * (4 + 20.0 / 128) / 8 + outside, 5.57e9, 0.003);
    quantised.dtype = OFL_DTYPE_Q4_K;
    ofl_model *small = test_model(quantised);
    ofl_machine *machine = card_3060();
    ofl_workload w = {.struct_size = sizeof w, .context_tokens = 512};
    assert_int_equal(plan_once(small, machine, &w).budget.stream_bytes_per_step, 0);
    /* Split over two: half each, and two sums of a hidden vector a layer: 392 KiB a token, 0.14 ms over the 2.79 GB/s between them. */
    ofl_model_shape shape = {.struct_size = sizeof shape};
    assert_ok(ofl_model_shape_get(model, &shape));
    double vector = shape.hidden_size * 2.0, between = 2 * vector * shape.block_count;
    assert_near(all_bytes(model) / 2, 7.6e9, 0.005);
    assert_true(vector == 7 * 1024 && between == 392 * 1024);
    assert_near(between / 2.79e9, 0.14e-3, 0.03);
    ofl_machine_destroy(machine);
    ofl_model_destroy(small);
    ofl_model_destroy(model);
}

/* Steps of a queue, each held against the plan's caps and the memory that its temporaries would need. */
static void run_queue(const ofl_model *model, const ofl_plan *plan, uint32_t requests, uint32_t prompt, uint32_t answer,
                      uint32_t most_at_once)
{
    planned p = read_plan(plan);
    ofl_front *front;
    ofl_model_shape shape = {.struct_size = sizeof shape};
    uint64_t prefilled = 0, made = 0, at_once = 0;
    uint8_t none[1024] = {0};
    assert_ok(ofl_model_shape_get(model, &shape));
    assert_ok(ofl_front_create(plan, NULL, &front));
    for (uint32_t i = 0; i < requests; i++) {
        ofl_request request = {.struct_size = sizeof request, .prompt_tokens = prompt, .max_new_tokens = answer};
        assert_ok(ofl_front_submit(front, &request, NULL));
    }
    ofl_step step = {.struct_size = sizeof step};
    for (ofl_status status; (status = ofl_front_next_step(front, &step)) != OFL_END;) {
        uint64_t hidden, logits, workspace;
        assert_ok(status);
        assert_true(step.item_count <= sizeof none && step.shape.tokens <= p.settings.tokens_per_step_cap);
        assert_ok(ofl_activation_bytes(&shape, p.settings.compute_type, step.shape.tokens, step.shape.logits_rows, 0, &hidden, &logits,
                                       &workspace));
        assert_true(hidden + logits + p.budget.workspace_bytes <= p.budget.activation_bytes && logits <= p.budget.logits_bytes);
        at_once = step.item_count > at_once ? step.item_count : at_once;
        for (uint32_t i = 0; i < step.item_count; i++) {
            prefilled += step.items[i].prefill ? step.items[i].token_count : 0;
            made += step.items[i].wants_logits;
        }
        assert_ok(ofl_front_commit(front, none, 0.01));
    }
    assert_true(at_once <= most_at_once);
    assert_true(prefilled == (uint64_t)requests * prompt && made == (uint64_t)requests * answer); /* none was evicted and run again */
    ofl_front_destroy(front);
}

/* The cliff: room for 56,192 tokens is room for 27 requests of 2,048 or 13 of 4,096; more than that never run at once, so none is evicted.
 */
static void test_the_cliff(void **state)
{
    (void)state;
    test_shape shape = qwen7b();
    shape.dtype = OFL_DTYPE_Q4_K;
    ofl_model *model = test_model(shape);
    ofl_machine *machine = test_machine(12e9, 3.26e9, 5e-6, 360e9, 51e12, 0.75e9);
    static const struct {
        uint32_t context, at_once;
        double exactly;
    } rows[] = {{2048, 27, 27.4}, {4096, 13, 13.7}};
    for (size_t i = 0; i < 2; i++) {
        ofl_workload w = {.struct_size = sizeof w, .context_tokens = rows[i].context, .sequences = rows[i].at_once};
        ofl_plan *plan = plan_of(model, machine, &w);
        uint64_t kv = read_plan(plan).budget.kv_bytes, room = UINT64_C(56192) * 57344;
        assert_near(56192.0 / rows[i].context, rows[i].exactly, 0.003);
        assert_true(kv <= room && kv + kv / rows[i].at_once > room);
        run_queue(model, plan, 60, rows[i].context - 8, 8, rows[i].at_once);
        ofl_plan_destroy(plan);
    }
    ofl_machine_destroy(machine);
    ofl_model_destroy(model);
}

/* The crash: temporaries of a prefill of 8 × 1,920 tokens, logits of 193 sequences: both in the budget before anything is placed, and no
 * step is larger than what was paid for. */
static void test_the_crash(void **state)
{
    (void)state;
    ofl_model *model = test_model(qwen7b());
    ofl_machine *machine = card_3060();
    ofl_workload w = {.struct_size = sizeof w, .context_tokens = 1928, .sequences = 8, .prefill_chunk_tokens = 8 * 1920};
    ofl_plan *plan = plan_of(model, machine, &w);
    assert_true(read_plan(plan).budget.activation_bytes > UINT64_C(8) * 1920 * 4 * 2 * 18944);
    run_queue(model, plan, 16, 1920, 8, 8);
    ofl_plan_destroy(plan);
    w = (ofl_workload){.struct_size = sizeof w, .context_tokens = 128, .sequences = 193};
    plan = plan_of(model, machine, &w);
    assert_true(read_plan(plan).budget.logits_bytes >= UINT64_C(193) * 4 * 152064);
    run_queue(model, plan, 400, 100, 28, 193);
    ofl_plan_destroy(plan);
    ofl_machine_destroy(machine);
    ofl_model_destroy(model);
}

/* ---- sizing rules in common use ---- */

static void test_bytes_per_parameter(void **state)
{
    (void)state;
    static const struct {
        ofl_dtype dtype;
        double bytes, share;
    } types[] = {{OFL_DTYPE_BF16, 2, 1e-9}, {OFL_DTYPE_F8_E4M3, 1, 1e-9}, {OFL_DTYPE_F4, 0.5, 1e-9},
                 {OFL_DTYPE_Q8_0, 1, 0.07}, {OFL_DTYPE_Q4_0, 0.5, 0.13},  {OFL_DTYPE_Q4_K, 0.5, 0.13}};
    static const struct {
        test_shape shape;
        double sixteen, four;
    } models[] = {{{32, 4096, 32, 32, 128, 11008, 32000, 0, 0, OFL_DTYPE_BF16}, 14e9, 4e9},
                  {{40, 5120, 40, 40, 128, 13824, 32000, 0, 0, OFL_DTYPE_BF16}, 26e9, 7e9},
                  {{80, 8192, 64, 8, 128, 28672, 32000, 0, 0, OFL_DTYPE_BF16}, 140e9, 38e9}};
    for (size_t m = 0; m < 3; m++) {
        double sixteen = 0;
        for (size_t t = 0; t < sizeof types / sizeof *types; t++) {
            test_shape shape = models[m].shape;
            shape.dtype = types[t].dtype;
            ofl_model *model = test_model(shape);
            double bytes = all_bytes(model);
            if (t == 0) sixteen = bytes;
            assert_near(bytes / (sixteen / 2), types[t].bytes, types[t].share);
            if (types[t].dtype == OFL_DTYPE_BF16) assert_near(bytes, models[m].sixteen, 0.04);
            if (types[t].dtype == OFL_DTYPE_Q4_K) assert_near(bytes, models[m].four, 0.06);
            ofl_model_destroy(model);
        }
    }
}

/* Llama-3-8B: 131,072 bytes a token; 8,192 tokens 1.07 GB; 16 such requests 17.2 GB, more than the weights. 8-bit KV is half of it. */
static void test_kv_rules(void **state)
{
    (void)state;
    ofl_model *model = test_model(llama8b(OFL_DTYPE_BF16));
    assert_int_equal(kv_of(model, OFL_KV_F16, 1), 131072);
    assert_near((double)kv_of(model, OFL_KV_F16, 8192), 1.07e9, 0.005);
    assert_near(16 * (double)kv_of(model, OFL_KV_F16, 8192), 17.2e9, 0.002);
    assert_true(16 * (double)kv_of(model, OFL_KV_F16, 8192) > all_bytes(model));
    assert_int_equal(2 * kv_of(model, OFL_KV_F8, 8192), kv_of(model, OFL_KV_F16, 8192));
    assert_near((double)kv_of(model, OFL_KV_Q8_0, 8192), 17.0 / 32 * (double)kv_of(model, OFL_KV_F16, 8192), 1e-6);
    assert_int_equal(2 * kv_of(model, OFL_KV_F16, 4096), kv_of(model, OFL_KV_F16, 8192));
    ofl_model_destroy(model);
}

/* 8 B parameters at half a byte, 8,192 tokens, 8 at once, 2.0 GB of overhead: 14.6 GB; 24 at once: 31.8. The plan for just so much is made.
 */
static void test_estimate_by_hand(void **state)
{
    (void)state;
    ofl_model *model = test_model(llama8b(OFL_DTYPE_F4));
    static const struct {
        uint32_t sequences;
        double total;
    } rows[] = {{8, 14.6e9}, {24, 31.8e9}};
    for (size_t i = 0; i < 2; i++) {
        ofl_machine *machine = test_machine(rows[i].total * 1.03, 12e9, 5e-6, 300e9, 25e12, 2e9);
        ofl_workload w = {.struct_size = sizeof w, .context_tokens = 8192, .sequences = rows[i].sequences, .force_headroom = 1};
        planned p = plan_once(model, machine, &w);
        assert_near((double)p.budget.kv_bytes, rows[i].sequences * 1.0737e9, 0.001);
        assert_near(all_bytes(model) + (double)(p.budget.kv_bytes + p.budget.runtime_bytes), rows[i].total, 0.005);
        assert_int_equal(p.budget.stream_bytes_per_step, 0); /* and with 3 % for activations it fits whole */
        ofl_machine_destroy(machine);
    }
    ofl_model_destroy(model);
}

/* "Reserve 1 to 2 GB in all" on a card of 12 GB: what is assumed for driver and libraries, with the headroom. */
static void test_reserve(void **state)
{
    (void)state;
    ofl_model *model = test_model(qwen7b());
    ofl_machine *machine = NULL;
    assert_ok(ofl_machine_create("no device", &machine));
    assert_ok(ofl_machine_set(machine, OFL_FIGURE_VRAM, 12e9, OFL_SOURCE_GIVEN));
    assert_ok(ofl_machine_assume(machine));
    ofl_workload w = {.struct_size = sizeof w, .context_tokens = 512};
    ofl_budget b = plan_once(model, machine, &w).budget;
    assert_true(b.runtime_bytes + b.headroom_bytes >= 1000000000 && b.runtime_bytes + b.headroom_bytes <= 2000000000);
    ofl_machine_destroy(machine);
    ofl_model_destroy(model);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_110_distinct_experts),
    cmocka_unit_test(test_111_the_link_is_what_counts),
    cmocka_unit_test(test_113_the_live_context_counts),
    cmocka_unit_test(test_115_decoding_and_prefill_apart),
    cmocka_unit_test(test_experiment),
    cmocka_unit_test(test_experiment_ways_out),
    cmocka_unit_test(test_the_cliff),
    cmocka_unit_test(test_the_crash),
    cmocka_unit_test(test_bytes_per_parameter),
    cmocka_unit_test(test_kv_rules),
    cmocka_unit_test(test_estimate_by_hand),
    cmocka_unit_test(test_reserve),
};
TEST_MAIN(tests)
