/* A plan as JSON: what it says, that nothing in it is believed, and that no failed allocation leaves anything behind. */
#include "plan_models.h"
#include "support/plan_text.h"

#include <cjson/cJSON.h>

#include "base/base.h"
#include "plan/json_text.h"
#include "plan/plan_state.h"

typedef struct fixture {
    ofl_model *model;
    ofl_machine *machine;
    ofl_plan *plan;
    char *json;
} fixture;

static void open_fixture(fixture *f, const ofl_workload *job)
{
    ofl_workload w = job != NULL ? *job : (ofl_workload){.struct_size = sizeof w, .context_tokens = 256, .sequences = 2};
    f->model = test_model((test_shape){4, 256, 4, 2, 64, 1024, 2000, 0, 1, OFL_DTYPE_BF16});
    f->machine = test_machine(6 << 20, 1e9, 5e-6, 10e9, 100e9, 0);
    f->plan = plan_of(f->model, f->machine, &w);
    assert_ok(ofl_plan_to_json(f->plan, &f->json));
}

static void close_fixture(fixture *f)
{
    ofl_string_free(f->json);
    ofl_plan_destroy(f->plan);
    ofl_machine_destroy(f->machine);
    ofl_model_destroy(f->model);
}

static const cJSON *at(const cJSON *tree, const char *path)
{
    char copy[128], *rest = copy;
    (void)snprintf(copy, sizeof copy, "%s", path);
    for (const char *key; tree != NULL && (key = strtok_r(rest, ".", &rest)) != NULL;)
        tree = key[0] >= '0' && key[0] <= '9' ? cJSON_GetArrayItem(tree, atoi(key)) : cJSON_GetObjectItemCaseSensitive(tree, key);
    return tree;
}

static const char *const contract_keys[] = {
    "identity.model", "identity.machine", "identity.plan", "model.name", "model.architecture", "model.layers", "model.parameters",
    "model.weight_bytes", "model.kv_bytes_per_token", "model.state_bytes_per_sequence", "model.embedding_bytes", "model.tied_output",
    "model.expert_count", "model.expert_used_count", "model.unused", "machine.device", "machine.simulated", "machine.vram_bytes",
    "machine.host_bytes", "machine.pinnable_bytes", "machine.link_bytes_per_second", "machine.link_pageable_bytes_per_second",
    "machine.copy_start_seconds", "machine.file_bytes_per_second", "machine.device_bytes_per_second", "machine.device_flops_per_second",
    "machine.sources.vram_bytes", "workload.context", "workload.sequences", "workload.queue_length", "workload.prefill_chunk",
    "workload.tokens_per_step_cap", "workload.kv_type", "workload.objective", "budget.vram_bytes", "budget.total_bytes",
    "budget.resident_bytes", "budget.ring_bytes", "budget.kv_bytes", "budget.activation_bytes", "budget.runtime_bytes",
    "budget.headroom_bytes", "tiers.device_bytes", "tiers.pinned_bytes", "tiers.pageable_bytes", "tiers.file_bytes", "units.0.name",
    "units.0.streamed_bytes", "units.0.compute_seconds", "units.0.tensors.0.name", "units.0.tensors.0.class", "units.0.tensors.0.bytes",
    "units.0.tensors.0.tier", "stream.bytes_per_step", "stream.copies_per_step", "stream.lower_bound_bytes_per_step",
    "kv.bytes_per_token", "kv.capacity_tokens", "kv.max_sequences_at_context", "forecast.sequences", "forecast.step_seconds",
    "forecast.link_seconds", "forecast.compute_seconds", "forecast.link_idle_seconds", "forecast.stall_seconds",
    "forecast.error_band_percent", "forecast.tokens_per_second", "forecast.bound", "forecast.knee_tokens", "forecast.first_token_seconds", "forecast.load_seconds",
    "forecast.by_sequences.0.sequences", "forecast.by_sequences.0.step_seconds", "forecast.by_sequences.0.tokens_per_second", "advice",
    "lookups.0.name",
};

static void test_contract_keys(void **state)
{
    (void)state;
    fixture f;
    open_fixture(&f, NULL);
    cJSON *tree = cJSON_Parse(f.json);
    assert_string_equal(at(tree, "schema")->valuestring, "ofload.plan/1");
    for (size_t i = 0; i < sizeof contract_keys / sizeof *contract_keys; i++) {
        if (at(tree, contract_keys[i]) == NULL) fail_msg("%s is missing", contract_keys[i]);
    }
    assert_string_equal(at(tree, "identity.plan")->valuestring, ofl_plan_identity(f.plan));
    cJSON_Delete(tree);
    close_fixture(&f);
}

/* A source is one of three words; a figure that is not known is null and has none. */
static void test_sources(void **state)
{
    (void)state;
    fixture f;
    open_fixture(&f, NULL);
    cJSON *tree = cJSON_Parse(f.json);
    const cJSON *machine = at(tree, "machine"), *sources = at(machine, "sources");
    int known = 0;
    for (int i = 0; i < OFL_FIGURE_COUNT; i++) {
        const char *key = ofl_figure_key((ofl_figure)i), *word = cJSON_GetStringValue(at(sources, key));
        assert_true(cJSON_IsNull(at(machine, key)) == (word == NULL));
        if (word == NULL) continue;
        known++;
        if (strcmp(word, "measured") != 0 && strcmp(word, "given") != 0 && strcmp(word, "assumed") != 0) fail_msg("%s: %s", key, word);
    }
    assert_true(known > 0 && known < OFL_FIGURE_COUNT);
    assert_int_equal(cJSON_GetArraySize(sources), known);
    cJSON_Delete(tree);
    close_fixture(&f);
}

static void test_same_inputs_same_bytes(void **state)
{
    (void)state;
    fixture a, b;
    open_fixture(&a, NULL);
    open_fixture(&b, NULL);
    assert_string_equal(a.json, b.json);
    close_fixture(&a);
    close_fixture(&b);
}

/* Names come from files: quotes, control characters and bytes that are no UTF-8 make no broken JSON. */
static void test_strings_are_escaped(void **state)
{
    (void)state;
    ofl_json_text text = {0};
    ofl_json_open(&text, NULL, '{');
    ofl_json_put_string(&text, "s", "a\"b\\c\n\x01 \xC3\xA9 \xF0\x9F\x91\x8D|\xC3|\xED\xA0\x80|\xC0\x80|\xFF");
    ofl_json_close(&text, '{');
    assert_non_null(strstr(text.bytes,
                           "\"a\\\"b\\\\c\\u000a\\u0001 \xC3\xA9 \xF0\x9F\x91\x8D|\xEF\xBF\xBD|\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD|"
                           "\xEF\xBF\xBD\xEF\xBF\xBD|\xEF\xBF\xBD\""));
    ofl_free(text.bytes);
}

/* A plan read back foretells the same. */
static void test_read_back_foretells_the_same(void **state)
{
    (void)state;
    ofl_compute_point points[] = {{1, 1e-10}, {16, 2e-10}, {100, 7e-10}};
    ofl_workload w = {.struct_size = sizeof w, .context_tokens = 256, .sequences = 2, .compute_point_count = 3, .compute_points = points,
                      .attention_seconds_per_kv_token = 3e-8, .host_seconds_per_step = 1.0 / 3000, .head_point_count = 2, .head_points = points,
                      .prefill_attention_seconds_per_kv_token = 1e-8, .host_seconds_per_row = 1.0 / 7000,
                      .host_seconds_per_unit = 1.0 / 900000, .host_seconds_per_piece = 1.0 / 110000, .workspace_bytes = 1 << 20};
    fixture f;
    open_fixture(&f, &w);
    ofl_plan *back = NULL;
    assert_ok(ofl_plan_from_json(f.json, strlen(f.json), &back));
    for (uint32_t tokens = 1; tokens < 300; tokens = tokens * 3 + 1) {
        ofl_step_shape shape = {.struct_size = sizeof shape, .tokens = tokens, .logits_rows = 1, .kv_tokens = tokens * 100};
        ofl_step_estimate a = {.struct_size = sizeof a}, b = a;
        assert_ok(ofl_plan_estimate_step(f.plan, &shape, &a));
        assert_ok(ofl_plan_estimate_step(back, &shape, &b));
        assert_true(a.step_seconds == b.step_seconds && a.compute_seconds == b.compute_seconds && a.link_seconds == b.link_seconds);
    }
    ofl_plan_destroy(back);
    close_fixture(&f);
}

/* Each number of the forecast is one whose sums are numbers, and what is refused is named. */
static void test_numbers_beyond_all_bounds(void **state)
{
    (void)state;
    static const struct { const char *key, *value; } wrong[] = {
        {"attention_seconds_per_kv_token", "1e300"}, {"prefill_attention_seconds_per_kv_token", "1e300"},
        {"host_seconds_per_step", "1e300"},          {"host_seconds_per_row", "1e300"},
        {"host_seconds_per_unit", "1e300"},          {"host_seconds_per_piece", "1e300"},
        {"host_seconds_per_unit", "1e7"},            {"host_seconds_per_step", "1e-320"},
        {"tokens", "1e300"},                         {"tokens", "1e-300"},
        {"seconds_per_element", "1e300"},            {"seconds_per_element", "1e-300"},
        {"seconds_per_element", "0"},                {"compute_seconds", "1e300"},
        {"step_seconds", "1e300"},                   {"link_seconds", "1e300"},
        {"link_idle_seconds", "1e300"},              {"stall_seconds", "1e300"},
        {"error_band_percent", "1e300"},             {"tokens_per_second", "1e300"},
        {"first_token_seconds", "1e300"},            {"load_seconds", "1e300"},
        {"lower_bound_seconds", "1e300"},            {"copy_start_seconds", "1e300"},
    };
    ofl_compute_point points[] = {{1, 1e-10}, {100, 7e-10}};
    ofl_workload w = {.struct_size = sizeof w, .context_tokens = 256, .sequences = 2, .compute_point_count = 2, .compute_points = points,
                      .attention_seconds_per_kv_token = 3e-8, .host_seconds_per_step = 1e-4,
                      .prefill_attention_seconds_per_kv_token = 1e-8, .host_seconds_per_row = 1e-5, .host_seconds_per_unit = 1e-6,
                      .host_seconds_per_piece = 1e-6};
    fixture f;
    open_fixture(&f, &w);
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        char key[64];
        (void)snprintf(key, sizeof key, "\"%s\": ", wrong[i].key);
        const char *from = strstr(f.json, key);
        if (from == NULL) fail_msg("no %s in the plan", wrong[i].key);
        from += strlen(key);
        char *changed = plan_join(f.json, (size_t)(from - f.json), wrong[i].value, from + strcspn(from, ",}\n")), *made = plan_sign(changed);
        ofl_plan *back = NULL;
        if (ofl_plan_from_json(made, strlen(made), &back) != OFL_ERROR_FORMAT) fail_msg("accepted: %s %s", wrong[i].key, wrong[i].value);
        if (strstr(ofl_error_message(), wrong[i].key) == NULL) fail_msg("%s is not named: %s", wrong[i].key, ofl_error_message());
        if (strstr(ofl_error_message(), "identity") != NULL) fail_msg("%s: refused by its identity alone", wrong[i].key);
        free(changed);
        free(made);
    }
    close_fixture(&f);
}

static void no_verdict(void *context, const char *part, ofl_status status, const char *sentence)
{
    (void)context;
    if (status != OFL_OK) print_message("%s: %s\n", part, sentence);
}

/* A plan that was written before these figures were: 0 for each. */
static void test_figures_that_came_later(void **state)
{
    (void)state;
    fixture f;
    ofl_plan *back = NULL;
    ofl_forecast forecast = {.struct_size = sizeof forecast};
    open_fixture(&f, NULL);
    assert_null(strstr(f.json, "\"host_seconds_per_unit\""));
    assert_null(strstr(f.json, "\"host_seconds_per_piece\""));
    const char *from = strstr(f.json, "    \"load_seconds\": ");
    assert_non_null(from);
    char *without = plan_join(f.json, (size_t)(from - f.json), "", strchr(from, '\n') + 1), *made = plan_sign(without);
    assert_ok(ofl_plan_from_json(made, strlen(made), &back));
    assert_ok(ofl_plan_verify(back, f.model, no_verdict, NULL));
    assert_ok(ofl_plan_forecast_get(back, &forecast));
    assert_true(forecast.load_seconds == 0);
    ofl_plan_destroy(back);
    free(without);
    free(made);
    close_fixture(&f);
}

static bool refused(const fixture *f, const char *json)
{
    ofl_plan *plan = NULL;
    ofl_status status = ofl_plan_from_json(json, strlen(json), &plan);
    if (status == OFL_OK) status = ofl_plan_check(plan, f->model);
    if (status != OFL_OK) assert_true(strlen(ofl_error_message()) > 10);
    ofl_plan_destroy(plan);
    return status == OFL_ERROR_FORMAT || status == OFL_ERROR_MISMATCH;
}

static void test_every_mutation_is_refused(void **state)
{
    (void)state;
    static const char *const mutations[][2] = {
        {"\"tier\": \"pinned\"", "\"tier\": \"device\""},
        {"\"tier\": \"device\"", "\"tier\": \"pinned\""},
        {"\"tier\": \"pinned\"", "\"tier\": \"moon\""},
        {"\"rows\": [0, ", "\"rows\": [1, "},
        {"\"rows\": [0, ", "\"rows\": [0, 1"},
        {"\"row_bytes\": 512", "\"row_bytes\": 0"},
        {"\"row_bytes\": 512", "\"row_bytes\": 1024"},
        {"\"index\": 1", "\"index\": 2"},
        {"\"index\": 1", "\"index\": 99999"},
        {"\"class\": \"dense\"", "\"class\": \"lookup\""},
        {"\"class\": \"dense\"", "\"class\": \"expert\""},
        {"\"class\": \"lookup\"", "\"class\": \"dense\""},
        {"\"kv_bytes\": ", "\"kv_bytes\": 1"},
        {"\"ring_bytes\": ", "\"ring_bytes\": 1"},
        {"\"total_bytes\": ", "\"total_bytes\": 1"},
        {"\"vram_bytes\": 6291456,\n    \"total", "\"vram_bytes\": 62914560,\n    \"total"},
        {"\"resident_bytes\": ", "\"resident_bytes\": 2"},
        {"\"activation_bytes\": ", "\"activation_bytes\": 3"},
        {"\"workspace_bytes\": ", "\"workspace_bytes\": 2"},
        {"\"pinned_bytes\": ", "\"pinned_bytes\": 1"},
        {"\"bytes_per_step\": ", "\"bytes_per_step\": 1"},
        {"\"copies_per_step\": ", "\"copies_per_step\": 1"},
        {"\"capacity_tokens\": ", "\"capacity_tokens\": 1"},
        {"\"bytes_per_sequence\": ", "\"bytes_per_sequence\": 1"},
        {"\"context\": 256", "\"context\": 2560"},
        {"\"sequences\": 2", "\"sequences\": 3"},
        {"\"tensor_count\": ", "\"tensor_count\": 1"},
        {"\"tensor_count\": ", "\"tensor_count\": 99999999999"},
        {"\"copy_bytes\": 33554432", "\"copy_bytes\": 0"},
        {"\"kv_type\": \"f16\"", "\"kv_type\": \"f32\""},
        {"\"block\": 0", "\"block\": -7"},
        {"\"block\": 3", "\"block\": 1"},
        {"\"layers\": 4", "\"layers\": \"4\""},
        {"\"model\": \"", "\"model\": \"0"},
        {"ofload.plan/1", "ofload.plan/2"},
        {"\"compute_seconds\": ", "\"compute_seconds\": -"},
        {"\"units\": [", "\"units\": [{}, "},
        {"\"advice\": [", "\"advice\": [1, "},
    };
    fixture f;
    open_fixture(&f, NULL);
    for (size_t i = 0; i < sizeof mutations / sizeof *mutations; i++) {
        char *changed = plan_replace(f.json, mutations[i][0], mutations[i][1]);
        if (changed == NULL) fail_msg("mutation %zu is not possible: %s", i, mutations[i][0]);
        char *signed_anew = plan_sign(changed);
        if (!refused(&f, changed)) fail_msg("accepted unsigned: %s → %s", mutations[i][0], mutations[i][1]);
        if (!refused(&f, signed_anew)) fail_msg("accepted: %s → %s", mutations[i][0], mutations[i][1]);
        free(changed);
        free(signed_anew);
    }
    char *same = plan_sign(f.json); /* signing as such is right */
    assert_string_equal(same, f.json);
    free(same);
    close_fixture(&f);
}

/* Bytes turned over at random, cut short, followed by something: an error or an equal plan, never a crash. */
static void test_damaged_json(void **state)
{
    (void)state;
    fixture f;
    open_fixture(&f, NULL);
    uint64_t seed = 5;
    size_t length = strlen(f.json);
    for (int i = 0; i < 600; i++) {
        char *copy = strdup(f.json);
        size_t bytes = i % 3 == 0 ? test_random(&seed) % length : length;
        if (i % 3 != 0) copy[test_random(&seed) % length] = (char)test_random(&seed);
        if (i % 3 == 2) copy[test_random(&seed) % length] = "0123456789[]{}\",:-"[test_random(&seed) % 18];
        ofl_plan *plan = NULL;
        ofl_status status = ofl_plan_from_json(copy, bytes, &plan);
        if (status == OFL_OK) assert_string_equal(ofl_plan_identity(plan), ofl_plan_identity(f.plan));
        else assert_null(plan);
        ofl_plan_destroy(plan);
        free(copy);
    }
    static const char *const texts[] = {"", "{", "[]", "null", "{}", "{\"schema\":\"ofload.plan/1\"}", "42", "\"\""};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        ofl_plan *plan = NULL;
        assert_status(ofl_plan_from_json(texts[i], strlen(texts[i]), &plan), OFL_ERROR_FORMAT);
    }
    char *twice = plan_replace(f.json, "{", "{}{");
    ofl_plan *plan = NULL;
    assert_status(ofl_plan_from_json(twice, strlen(twice), &plan), OFL_ERROR_FORMAT);
    free(twice);
    close_fixture(&f);
}

static void shift(uint64_t *from, uint64_t *to, uint64_t bytes)
{
    *from -= bytes;
    *to += bytes;
}

/* One contradiction at a time, all sums around it kept right, in the plan itself. */
static void contradict(ofl_plan *plan, int kind)
{
    ofl_plan_draft *d = &plan->draft;
    ofl_budget *b = &d->budget;
    uint64_t unit = 0;
    while (d->cut.units[unit].piece_bytes == 0) unit++;
    ofl_slice *slice = &d->cut.slices[d->cut.units[unit].slice_first];
    while (slice->tier == OFL_TIER_DEVICE) slice++;
    switch (kind) {
    case 0: shift(&b->resident_bytes, &b->ring_bytes, 256); break;
    case 1: b->vram_bytes = b->total_bytes - 1, plan->facts.figures[OFL_FIGURE_VRAM] = (double)b->vram_bytes; break;
    case 2: b->vram_bytes++; break;
    case 3: b->logits_bytes += 256; break;
    case 4: b->workspace_bytes += 256, b->activation_bytes += 256, b->headroom_bytes -= 256; break;
    case 5: shift(&b->headroom_bytes, &b->kv_bytes, 256); break;
    case 6: shift(&b->pinned_bytes, &b->pageable_bytes, 1); break;
    case 7: b->stream_bytes_per_step++; break;
    case 8: d->cut.units[unit].streamed_bytes++; break;
    case 9: d->cut.units[unit].piece_bytes = b->ring_bytes + 256; break;
    case 10: d->cut.units[unit].piece_bytes -= 256; break;
    case 11: slice->piece_offset += 256; break;
    case 12: slice->unit++; break;
    case 13: slice->row_first++; break;
    case 14: slice->row_count--; break;
    case 15: slice->bytes -= 512; break;
    case 16: d->settings.kv_bytes_per_sequence -= 16; break;
    case 17: d->settings.max_sequences++; break;
    case 18: d->settings.kv_capacity_tokens += 16; break;
    case 19: d->settings.sequences--; break;
    case 20: d->settings.tokens_per_step_cap++; break;
    case 21: plan->facts.tensors[slice->tensor].tensor_class = OFL_CLASS_LOOKUP; break;
    case 22: plan->facts.tensors[slice->tensor].slice_first++; break;
    case 23: plan->facts.tensors[slice->tensor].slice_count--; break;
    case 24: plan->facts.tensors[slice->tensor].name = "another"; break;
    case 25: plan->facts.model_identity[7] ^= 1; break;
    case 26: shift(&b->headroom_bytes, &b->ring_bytes, 1); break;
    case 27: b->total_bytes++; break;
    case 28: d->settings.kv_type = OFL_KV_F32; break;
    default: slice->tier = OFL_TIER_DEVICE; break;
    }
}

static void test_check_finds_each_contradiction(void **state)
{
    (void)state;
    for (int kind = 0; kind < 30; kind++) {
        fixture f;
        open_fixture(&f, NULL);
        contradict(f.plan, kind);
        if (ofl_plan_check(f.plan, f.model) != OFL_ERROR_MISMATCH) fail_msg("contradiction %d is not found", kind);
        close_fixture(&f);
    }
}

/* A unit has one rate: its streamed slices are in one tier. */
static void test_check_finds_two_tiers_in_a_unit(void **state)
{
    (void)state;
    fixture f;
    ofl_workload w = {.struct_size = sizeof w, .context_tokens = 256, .sequences = 2, .cut = OFL_CUT_OFF};
    open_fixture(&f, &w);
    ofl_plan_draft *d = &f.plan->draft;
    bool found = false;
    for (uint32_t i = 1; i < d->cut.unit_slice_count && !found; i++) {
        ofl_slice *slice = &d->cut.slices[i];
        if (slice->tier == OFL_TIER_DEVICE || slice->piece_offset == 0) continue;
        slice->tier = OFL_TIER_PAGEABLE;
        shift(&d->budget.pinned_bytes, &d->budget.pageable_bytes, slice->bytes);
        found = true;
    }
    assert_true(found);
    assert_status(ofl_plan_check(f.plan, f.model), OFL_ERROR_MISMATCH);
    close_fixture(&f);
}

static void test_another_model_is_refused(void **state)
{
    (void)state;
    fixture f;
    open_fixture(&f, NULL);
    ofl_model *other = test_model((test_shape){4, 256, 4, 2, 64, 1024, 2016, 0, 1, OFL_DTYPE_BF16});
    assert_status(ofl_plan_check(f.plan, other), OFL_ERROR_MISMATCH);
    ofl_model_destroy(other);
    close_fixture(&f);
}

/* The n-th allocation fails, for every n: a status, a sentence, nothing left behind (the address sanitizer looks). */
static void test_every_allocation_may_fail(void **state)
{
    (void)state;
    fixture f;
    open_fixture(&f, NULL);
    uint64_t failures = 0;
    for (uint64_t n = 1;; n++) {
        ofl_workload w = {.struct_size = sizeof w, .context_tokens = 256, .sequences = 2};
        ofl_plan *plan = NULL, *back = NULL;
        char *json = NULL;
        (void)ofl_fault_allocation(n);
        ofl_status status = ofl_plan_make(f.model, f.machine, &w, &plan);
        if (status == OFL_OK) status = ofl_plan_to_json(plan, &json);
        if (status == OFL_OK) status = ofl_plan_from_json(json, strlen(json), &back);
        uint64_t left = ofl_fault_allocation(0);
        if (status != OFL_OK) assert_status(status, OFL_ERROR_HOST_MEMORY);
        if (status != OFL_OK) failures++;
        ofl_string_free(json);
        ofl_plan_destroy(plan);
        ofl_plan_destroy(back);
        if (left != 0) break;
    }
    assert_true(failures > 50);
    close_fixture(&f);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_contract_keys),
    cmocka_unit_test(test_sources),
    cmocka_unit_test(test_same_inputs_same_bytes),
    cmocka_unit_test(test_read_back_foretells_the_same),
    cmocka_unit_test(test_numbers_beyond_all_bounds),
    cmocka_unit_test(test_figures_that_came_later),
    cmocka_unit_test(test_every_mutation_is_refused),
    cmocka_unit_test(test_damaged_json),
    cmocka_unit_test(test_another_model_is_refused),
    cmocka_unit_test(test_every_allocation_may_fail),
    cmocka_unit_test(test_check_finds_each_contradiction),
    cmocka_unit_test(test_check_finds_two_tiers_in_a_unit),
    cmocka_unit_test(test_strings_are_escaped),
};
TEST_MAIN(tests)
