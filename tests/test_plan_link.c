/* Which of the machine's rates the plan counts with. */
#include "plan_models.h"

static double link_seconds(double computing, ofl_source link_source)
{
    ofl_model *model = test_model(qwen7b());
    ofl_machine *machine = test_machine(12.49e9, 12e9, 5e-6, 300e9, 50e12, 0.75e9);
    ofl_workload w = {.struct_size = sizeof w, .context_tokens = 512};
    char *json = NULL;
    assert_ok(ofl_machine_set(machine, OFL_FIGURE_LINK, 12e9, link_source));
    if (computing > 0) assert_ok(ofl_machine_set(machine, OFL_FIGURE_LINK_COMPUTING, computing, OFL_SOURCE_MEASURED));
    ofl_plan *plan = plan_of(model, machine, &w), *again = NULL;
    double seconds = read_plan(plan).forecast.step.link_seconds;
    assert_ok(ofl_plan_to_json(plan, &json));
    assert_ok(ofl_plan_from_json(json, strlen(json), &again));
    assert_true(read_plan(again).forecast.step.link_seconds == seconds);
    assert_ok(ofl_plan_check(plan, model));
    ofl_string_free(json);
    ofl_plan_destroy(again);
    ofl_plan_destroy(plan);
    ofl_machine_destroy(machine);
    ofl_model_destroy(model);
    return seconds;
}

/* The device computes while it streams, so the lower of both measured rates counts; what the user says counts as it is. */
static void test_the_rate_while_computing(void **state)
{
    (void)state;
    double alone = link_seconds(0, OFL_SOURCE_MEASURED);
    assert_true(link_seconds(9e9, OFL_SOURCE_MEASURED) > 1.25 * alone);
    assert_true(link_seconds(13e9, OFL_SOURCE_MEASURED) == alone);
    assert_true(link_seconds(9e9, OFL_SOURCE_GIVEN) == alone);
    assert_true(link_seconds(9e9, OFL_SOURCE_ASSUMED) > 1.25 * alone);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_the_rate_while_computing),
};

TEST_MAIN(tests)
