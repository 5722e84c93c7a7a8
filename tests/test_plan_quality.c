/* How good plans are, over many models and machines: against max((W − V)/B, C), against a published experiment, and what planning costs. */
#include "plan_models.h"

#include "plan/plan_state.h"

#include <math.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

static double dense_bytes(const ofl_model *model)
{
    double sum = 0;
    for (uint32_t i = 0; i < ofl_model_tensor_count(model); i++) {
        ofl_tensor_info info = {.struct_size = sizeof info};
        assert_ok(ofl_model_tensor_get(model, i, &info));
        if (info.tensor_class == OFL_CLASS_DENSE) sum += (double)info.bytes;
    }
    return sum;
}

static const double shares[] = {0.25, 0.5, 0.8}, links[] = {3.3e9, 12e9, 25e9, 55e9};

/* Step ÷ the bound without any ring; compute: C as a share of (W − V)/B. */
static double above_bound(const ofl_model *model, double share, double link, double start, double compute, ofl_cut cut)
{
    double dense = dense_bytes(model);
    ofl_machine *machine = test_machine((double)(uint64_t)(dense * share), link, start, link / (1 - share) / compute, 1e18, 0);
    ofl_workload w = {.struct_size = sizeof w, .context_tokens = 512, .force_headroom = 1, .prefill_chunk_tokens = 16, .cut = cut};
    ofl_plan *plan = NULL;
    assert_ok(ofl_plan_make(model, machine, &w, &plan));
    ofl_forecast f = read_plan(plan).forecast;
    if (f.step.step_seconds > 1.01 * f.lower_bound_seconds) assert_true(strlen(ofl_plan_above_bound_why(plan)) > 0);
    ofl_plan_destroy(plan);
    ofl_machine_destroy(machine);
    return f.step.step_seconds / f.lower_bound_seconds;
}

static double worst_of(const ofl_model *model, double share, double link, double start, ofl_cut cut)
{
    double worst = 0;
    for (int c = 1; c <= 10; c++) worst = fmax(worst, above_bound(model, share, link, start, c / 10.0, cut));
    return worst;
}

/* Parts: 2 % above the bound at most, 3 % at 55 GB/s, with a start cost of 2.7 µs. With the 5 µs that are assumed where none was measured a
 * model of 14 GB of which little is streamed comes to 2.7 and 3.6 %. Whole blocks, in the same table, cost far more. */
static void test_table_of_the_bound(void **state)
{
    (void)state;
    for (int m = 0; m < 2; m++) {
        ofl_model *model = test_model(m == 0 ? qwen7b() : llama70b());
        for (int i = 0; i < 12; i++) {
            double share = shares[i / 4], link = links[i % 4], most = link > 30e9 ? 1.03 : 1.02;
            double parts = worst_of(model, share, link, 2.7e-6, OFL_CUT_AUTO), assumed = worst_of(model, share, link, 5e-6, OFL_CUT_AUTO);
            double whole = worst_of(model, share, link, 2.7e-6, OFL_CUT_OFF);
            print_message("%s, V %2.0f %%, %4.1f GB/s: parts %.4f (5 us: %.4f), whole blocks %.4f\n", m == 0 ? "7B" : "70B", share * 100,
                          link / 1e9, parts, assumed, whole);
            assert_true(parts <= most);
            assert_true(assumed <= most + 0.01);
            assert_true(whole > parts + 0.03);
        }
        ofl_model_destroy(model);
    }
}

/* The 3060 of the published experiment: 0.46 tokens/s for one sequence, 27.4 for 60 questions at once. */
static void test_published_experiment_is_beaten(void **state)
{
    (void)state;
    ofl_model *model = test_model(qwen7b());
    ofl_machine *machine = test_machine(12.49e9, 3.26e9, 5e-6, 360e9, 51e12, 0.75e9);
    ofl_workload w = {.struct_size = sizeof w, .context_tokens = 512, .sequences = 1, .headroom_percent = 5};
    planned one = plan_once(model, machine, &w);
    w.sequences = 0;
    w.objective = OFL_THROUGHPUT;
    planned queue = plan_once(model, machine, &w);
    for (int i = 0; i < 2; i++) {
        const ofl_budget *b = i == 0 ? &one.budget : &queue.budget;
        assert_true((double)b->headroom_bytes >= 0.05 * 12.49e9 - 1 && b->runtime_bytes >= 750000000 && b->total_bytes <= b->vram_bytes);
    }
    print_message("one: %.2f x 0.46; queue: %u sequences, %.2f x 27.4\n", one.forecast.tokens_per_second / 0.46,
                  queue.settings.sequences, queue.forecast.tokens_per_second / 27.4);
    assert_true(one.forecast.tokens_per_second >= 1.9 * 0.46);
    assert_true(queue.forecast.tokens_per_second >= 2.5 * 27.4);
    ofl_machine_destroy(machine);
    ofl_model_destroy(model);
}

static double share_of(uint64_t *seed) { return (double)(test_random(seed) % 1000) / 1000; }

static ofl_model *random_model(uint64_t *seed)
{
    static const ofl_dtype types[] = {OFL_DTYPE_BF16, OFL_DTYPE_Q4_K, OFL_DTYPE_Q8_0};
    uint32_t heads = (uint32_t)(8 * (1 + test_random(seed) % 8)), hidden = heads * 128;
    uint32_t layers = (uint32_t)(16 + test_random(seed) % 85), ffn = (uint32_t)(256 * ((2 + test_random(seed) % 3) * hidden / 256));
    test_shape s = {layers, hidden, heads, heads / 4, 128, ffn,
                    (uint32_t)(32000 + test_random(seed) % 120000), (uint32_t)(test_random(seed) % 2), 0, types[test_random(seed) % 3]};
    return test_model_with(s, test_random(seed) % 4 == 0 ? OFL_DTYPE_Q8_0 : s.dtype);
}

static ofl_machine *random_machine(uint64_t *seed, double dense)
{
    double share = 0.1 + 0.8 * share_of(seed), link = pow(10, 9.3 + 1.5 * share_of(seed)), compute = 0.05 + 1.3 * share_of(seed);
    double bandwidth = link / (1 - share) / compute;
    ofl_machine *machine = test_machine((double)(uint64_t)(dense * share * 1.05 + 3e8), link, test_random(seed) % 2 ? 2.7e-6 : 5e-6,
                                        bandwidth, test_random(seed) % 2 ? 1e18 : 2 * bandwidth, 0);
    if (test_random(seed) % 4 != 0) return machine;
    assert_ok(ofl_machine_set(machine, OFL_FIGURE_PINNABLE, (double)(uint64_t)(dense * 0.5), OFL_SOURCE_GIVEN));
    assert_ok(ofl_machine_set(machine, OFL_FIGURE_LINK_PAGEABLE, link / 2, OFL_SOURCE_GIVEN));
    return machine;
}

typedef struct tally { uint32_t plans, near, told; double worst; } tally;

static void hold_to_the_bound(uint64_t *seed, tally *t)
{
    ofl_model *model = random_model(seed);
    ofl_machine *machine = random_machine(seed, dense_bytes(model));
    ofl_workload w = {
        .struct_size = sizeof w, .context_tokens = 128u << test_random(seed) % 6, .sequences = (uint32_t)(1 + test_random(seed) % 16)};
    w.cut = test_random(seed) % 5 == 0 ? OFL_CUT_OFF : OFL_CUT_AUTO;
    ofl_plan *plan = NULL;
    if (ofl_plan_make(model, machine, &w, &plan) == OFL_OK && plan->draft.piece_count != 0) {
        ofl_forecast f = read_plan(plan).forecast;
        double ratio = f.step.step_seconds / f.lower_bound_seconds;
        const char *why = ofl_plan_above_bound_why(plan);
        assert_true(ratio > 1 - 1e-9); /* it is a bound */
        assert_int_equal(ratio > 1.01, strlen(why) > 0);
        if (ratio > 1.01) assert_true(strchr(why, ':') != NULL); /* at least one cause, with its figure */
        t->plans++;
        t->near += ratio <= 1.01;
        t->told += ratio > 1.01;
        t->worst = fmax(t->worst, w.cut == OFL_CUT_AUTO ? ratio : 0);
    }
    ofl_plan_destroy(plan);
    ofl_machine_destroy(machine);
    ofl_model_destroy(model);
}

static void test_large_models_reach_the_bound_or_say_why(void **state)
{
    (void)state;
    uint64_t seed = 11;
    tally t = {0};
    while (t.plans < 1000) hold_to_the_bound(&seed, &t);
    print_message("%u large models: %u within 1 %% of the bound, %u say why; in parts %.1f %% above it at most\n", t.plans, t.near, t.told,
                  100 * (t.worst - 1));
    assert_true(t.near > t.plans / 2);
}

#define EXPERTS 166u

static ofl_model *model_of_100000_tensors(void)
{
    ofl_model_shape shape = {.struct_size = sizeof shape, .block_count = 200, .hidden_size = 2048, .head_count = 16, .head_count_kv = 4};
    shape.head_dim_k = shape.head_dim_v = 128;
    shape.ffn_size = 512;
    shape.vocab_size = 32000;
    shape.expert_count = EXPERTS;
    shape.expert_used_count = 2;
    test_shape s = {200, 2048, 16, 4, 128, 512, 32000, 0, 0, OFL_DTYPE_BF16};
    static const ofl_tensor_role roles[] = {OFL_ROLE_FFN_GATE, OFL_ROLE_FFN_UP, OFL_ROLE_FFN_DOWN};
    ofl_model_builder *b = NULL;
    ofl_model *model = NULL;
    assert_ok(ofl_model_builder_create("experts", "llama", &shape, &b));
    add_tensor(b, "token_embd", &s, s.dtype, OFL_CLASS_LOOKUP, OFL_ROLE_EMBEDDING, OFL_BLOCK_INPUT, 2048, 32000);
    for (int32_t block = 0; block < 200; block++) {
        add_tensor(b, "attn_q", &s, s.dtype, OFL_CLASS_DENSE, OFL_ROLE_ATTN_Q, block, 2048, 2048);
        add_tensor(b, "attn_output", &s, s.dtype, OFL_CLASS_DENSE, OFL_ROLE_ATTN_OUTPUT, block, 2048, 2048);
        for (uint32_t i = 0; i < 3 * EXPERTS; i++) {
            char name[32];
            (void)snprintf(name, sizeof name, "expert.%u.%u", i / 3, i % 3);
            add_tensor(b, name, &s, s.dtype, OFL_CLASS_EXPERT, roles[i % 3], block, i % 3 == 2 ? 512 : 2048, i % 3 == 2 ? 2048 : 512);
        }
    }
    add_tensor(b, "output", &s, s.dtype, OFL_CLASS_DENSE, OFL_ROLE_OUTPUT, 200, 2048, 32000);
    assert_ok(ofl_model_builder_finish(b, &model));
    return model;
}

/* In a process that may take so much more address space than it has: 0 when the plan is made. */
static int plan_within(const ofl_model *model, const ofl_machine *machine, const ofl_workload *w, uint64_t bytes)
{
    pid_t child = fork();
    int status = -1;
    if (child == 0) {
        ofl_plan *plan = NULL;
        unsigned long long pages = 0;
        FILE *f = fopen("/proc/self/statm", "r");
        bool read = f != NULL && fscanf(f, "%llu", &pages) == 1;
        rlim_t most = (rlim_t)(pages * (uint64_t)sysconf(_SC_PAGESIZE) + bytes);
        if (!read || setrlimit(RLIMIT_AS, &(struct rlimit){most, most}) != 0) _exit(2);
        _exit(ofl_plan_make(model, machine, w, &plan) == OFL_OK ? 0 : 1);
    }
    assert_true(child > 0 && waitpid(child, &status, 0) == child && WIFEXITED(status));
    return WEXITSTATUS(status);
}

/* Every way of planning 100,000 tensors stays below 64 MiB. What it takes in time is for the benchmark to show. */
static void test_memory_of_planning_100000_tensors(void **state)
{
    (void)state;
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    skip(); /* they take address space of their own */
#endif
    ofl_model *model = model_of_100000_tensors();
    ofl_machine *machine = test_machine(80e9, 25e9, 5e-6, 2e12, 300e12, 0.75e9);
    assert_true(ofl_model_tensor_count(model) > 100000);
    for (int i = 0; i < 4; i++) {
        ofl_workload w = {.struct_size = sizeof w, .context_tokens = 2048, .cut = i % 2 ? OFL_CUT_OFF : OFL_CUT_AUTO,
                          .objective = i / 2 ? OFL_THROUGHPUT : OFL_LATENCY};
        assert_int_equal(plan_within(model, machine, &w, UINT64_C(64) << 20), 0);
    }
    ofl_workload w = {.struct_size = sizeof w, .context_tokens = 2048};
    assert_int_equal(plan_within(model, machine, &w, UINT64_C(4) << 20), 1); /* the limit does limit */
    ofl_machine_destroy(machine);
    ofl_model_destroy(model);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_table_of_the_bound),
    cmocka_unit_test(test_published_experiment_is_beaten),
    cmocka_unit_test(test_large_models_reach_the_bound_or_say_why),
    cmocka_unit_test(test_memory_of_planning_100000_tensors),
};
TEST_MAIN(tests)
