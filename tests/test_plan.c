#include "plan_models.h"


typedef struct planned {
    ofl_budget budget;
    ofl_forecast forecast;
    ofl_plan_settings settings;
} planned;

static planned read_plan(const ofl_plan *plan)
{
    planned p = {.budget.struct_size = sizeof p.budget, .forecast.struct_size = sizeof p.forecast, .settings.struct_size = sizeof p.settings};
    assert_ok(ofl_plan_budget_get(plan, &p.budget));
    assert_ok(ofl_plan_forecast_get(plan, &p.forecast));
    assert_ok(ofl_plan_settings_get(plan, &p.settings));
    return p;
}

static planned plan_once(const ofl_model *model, const ofl_machine *machine, const ofl_workload *w)
{
    ofl_plan *plan = NULL;
    assert_ok(ofl_plan_make(model, machine, w, &plan));
    planned p = read_plan(plan);
    assert_ok(ofl_plan_check(plan, model));
    char *json = NULL, *again = NULL;
    ofl_plan *back = NULL;
    assert_ok(ofl_plan_to_json(plan, &json));
    assert_ok(ofl_plan_from_json(json, strlen(json), &back));
    assert_ok(ofl_plan_to_json(back, &again));
    assert_string_equal(json, again);
    assert_ok(ofl_plan_check(back, model));
    if (getenv("SHOW")) puts(json);
    ofl_string_free(json);
    ofl_string_free(again);
    ofl_plan_destroy(back);
    ofl_plan_destroy(plan);
    assert_true(p.budget.total_bytes <= p.budget.vram_bytes);
    assert_int_equal(p.budget.total_bytes, p.budget.resident_bytes + p.budget.ring_bytes + p.budget.kv_bytes + p.budget.activation_bytes + p.budget.runtime_bytes +
                                               p.budget.headroom_bytes);
    return p;
}

/* The published experiment: 13 of 28 layers resident, 0.46 tokens/s, 27.4 for 60 at once. */
static void test_published_experiment(void **state)
{
    (void)state;
    ofl_model *model = test_model(qwen7b());
    ofl_machine *machine = test_machine(12.49e9, 3.26e9, 5e-6, 360e9, 51e12, 0.75e9);
    ofl_workload w = {.struct_size = sizeof w, .context_tokens = 512, .force_layers = 1, .force_resident_layers = 13};
    planned theirs = plan_once(model, machine, &w);
    assert_int_equal(theirs.budget.stream_bytes_per_step, 15 * UINT64_C(466115584));
    assert_int_equal(theirs.budget.ring_bytes, 2 * UINT64_C(466115584));
    assert_int_equal(theirs.settings.kv_bytes_per_token, 57344);
    assert_true(theirs.forecast.tokens_per_second > 0.465 && theirs.forecast.tokens_per_second < 0.467);
    w = (ofl_workload){.struct_size = sizeof w, .context_tokens = 512};
    planned latency = plan_once(model, machine, &w);
    assert_true(latency.forecast.tokens_per_second >= 1.9 * 0.46);
    w.objective = OFL_THROUGHPUT;
    planned throughput = plan_once(model, machine, &w);
    assert_true(throughput.forecast.tokens_per_second >= 2.5 * 27.4);
    ofl_machine_destroy(machine);
    ofl_model_destroy(model);
}

static const struct CMUnitTest tests[] = {cmocka_unit_test(test_published_experiment)};
TEST_MAIN(tests)
