/* The planner's answers: known numbers, refusals, tiers, tensor classes. */
#include "plan_models.h"

#include <math.h>

#include <cjson/cJSON.h>
#include <ofload/ofload.h>

#include "plan/plan_state.h"
#include "plan/ring.h"

/* These stand inside other public structs: one more field would move what comes behind them. */
_Static_assert(sizeof(ofl_step_shape) == 24 && sizeof(ofl_step_estimate) == 56, "the layout of a step's shape and estimate is frozen");
_Static_assert(sizeof(ofl_view_slice) == 40 && sizeof(ofl_step_item) == 48 && sizeof(ofl_stack) == 40, "arrays of these cross the API");

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
    assert_int_equal(latency.settings.prefill_chunk_tokens, 512);
    assert_true(latency.settings.part_bytes >= 8 << 20 && latency.settings.part_bytes <= 32 << 20);
    w.objective = OFL_THROUGHPUT;
    planned throughput = plan_once(model, machine, &w);
    assert_true(throughput.forecast.tokens_per_second >= 2.5 * 27.4);
    assert_true(throughput.settings.prefill_chunk_tokens >= throughput.settings.sequences);
    ofl_machine_destroy(machine);
    ofl_model_destroy(model);
}

/* Field case 111: the link's rate counts, not the device's. 32 layers of 436,224,000 bytes, 16 streamed at 25 GB/s. */
static void test_link_rate_counts(void **state)
{
    (void)state;
    ofl_model *model = test_model((test_shape){32, 4096, 32, 8, 128, 14336, 128256, 0, 0, OFL_DTYPE_BF16});
    ofl_machine *machine = test_machine(16e9, 25e9, 0, 900e9, 80e12, 0);
    ofl_workload w = {.struct_size = sizeof w, .context_tokens = 256, .force_layers = 1, .force_resident_layers = 16};
    planned p = plan_once(model, machine, &w);
    assert_int_equal(p.budget.stream_bytes_per_step, UINT64_C(6979584000));
    assert_true(p.forecast.tokens_per_second < 3.59 && p.forecast.tokens_per_second > 3.5);
    w.sequences = 8;
    p = plan_once(model, machine, &w);
    assert_true(p.forecast.tokens_per_second < 28.7 && p.forecast.tokens_per_second > 28);
    ofl_machine_destroy(machine);
    ofl_model_destroy(model);
}

static void test_no_workload_is_the_default_one(void **state)
{
    (void)state;
    ofl_model *model = test_model(qwen7b());
    ofl_machine *machine = test_machine(12.49e9, 3.26e9, 5e-6, 360e9, 51e12, 0.75e9);
    ofl_workload zero = {.struct_size = sizeof zero};
    ofl_plan *given, *not_given;
    assert_ok(ofl_plan_make(model, machine, &zero, &given));
    assert_ok(ofl_plan_make(model, machine, NULL, &not_given));
    assert_string_equal(ofl_plan_identity(given), ofl_plan_identity(not_given));
    ofl_plan_destroy(given);
    ofl_plan_destroy(not_given);
    ofl_machine_destroy(machine);
    ofl_model_destroy(model);
}

static void test_the_step_that_forecasts_stand_on(void **state)
{
    (void)state;
    ofl_model *model = test_model(qwen7b());
    ofl_machine *machine = test_machine(12.49e9, 3.26e9, 5e-6, 360e9, 51e12, 0.75e9);
    ofl_workload w = {.struct_size = sizeof w, .context_tokens = 511, .sequences = 4};
    ofl_plan *plan;
    ofl_forecast forecast = {.struct_size = sizeof forecast};
    ofl_step_shape shape = {.struct_size = sizeof shape};
    ofl_step_estimate step = {.struct_size = sizeof step};
    assert_ok(ofl_plan_make(model, machine, &w, &plan));
    assert_ok(ofl_plan_forecast_get(plan, &forecast));
    assert_ok(ofl_plan_decode_step(plan, 4, &shape));
    assert_true(shape.tokens == 4 && shape.logits_rows == 4 && shape.kv_tokens == 4 * 256);
    assert_ok(ofl_plan_estimate_step(plan, &shape, &step));
    assert_true(step.step_seconds == forecast.step.step_seconds);
    assert_status(ofl_plan_decode_step(NULL, 4, &shape), OFL_ERROR_ARGUMENT);
    assert_status(ofl_plan_decode_step(plan, 4, NULL), OFL_ERROR_ARGUMENT);
    assert_status(ofl_plan_decode_step(plan, 0, &shape), OFL_ERROR_ARGUMENT);
    ofl_plan_destroy(plan);
    ofl_machine_destroy(machine);
    ofl_model_destroy(model);
}

static void test_whole_model_fits(void **state)
{
    (void)state;
    ofl_model *model = test_model(smol135m());
    ofl_machine *machine = test_machine(2e9, 12e9, 5e-6, 300e9, 20e12, 3e8);
    ofl_workload w = {.struct_size = sizeof w};
    planned p = plan_once(model, machine, &w);
    assert_int_equal(p.settings.context_tokens, 4096);
    assert_int_equal(p.budget.ring_bytes, 0);
    assert_int_equal(p.budget.stream_bytes_per_step, 0);
    assert_int_equal(p.budget.headroom_bytes, 100000000);
    assert_int_equal(p.budget.runtime_bytes, 300000000);
    assert_int_equal(p.forecast.knee_tokens, 0);
    assert_int_equal(p.forecast.link_bound, 0);
    w.ring_bytes = 1 << 20;
    ofl_plan *plan = NULL;
    assert_status(ofl_plan_make(model, machine, &w, &plan), OFL_ERROR_ARGUMENT); /* it would have no effect */
    assert_null(plan);
    ofl_machine_destroy(machine);
    ofl_model_destroy(model);
}

/* Paged KV: a context is counted in whole blocks (field case 65), and sequences × context never exceeds the region. */
static void test_kv_in_whole_blocks(void **state)
{
    (void)state;
    ofl_model *model = test_model(smol135m());
    ofl_machine *machine = test_machine(1e9, 12e9, 0, 300e9, 20e12, 0);
    ofl_workload w = {.struct_size = sizeof w, .context_tokens = 1000, .sequences = 3};
    planned p = plan_once(model, machine, &w);
    uint64_t one;
    assert_ok(ofl_model_kv_bytes(model, OFL_KV_F16, 1008, &one));
    assert_int_equal(p.settings.kv_bytes_per_sequence, one);
    assert_int_equal(p.budget.kv_bytes, 3 * one);
    assert_int_equal(p.settings.kv_capacity_tokens, 3 * 1008);
    assert_int_equal(p.settings.max_sequences, 3);
    ofl_machine_destroy(machine);
    ofl_model_destroy(model);
}

static void test_too_much_is_refused_with_the_largest_that_fits(void **state)
{
    (void)state;
    ofl_model *model = test_model(smol135m());
    ofl_machine *machine = test_machine(64 << 20, 1e9, 0, 10e9, 100e9, 0);
    ofl_workload w = {.struct_size = sizeof w, .context_tokens = 512, .sequences = 1000};
    ofl_plan *plan = NULL;
    assert_status(ofl_plan_make(model, machine, &w, &plan), OFL_ERROR_NO_FIT);
    assert_true(ofl_diagnostic_get()->bytes_needed > ofl_diagnostic_get()->bytes_available);
    const char *at = strstr(ofl_error_message(), "at most ");
    assert_non_null(at);
    uint32_t most = (uint32_t)strtoul(at + 8, NULL, 10);
    assert_true(most >= 1 && most < 1000);
    w.sequences = most + 1;
    assert_status(ofl_plan_make(model, machine, &w, &plan), OFL_ERROR_NO_FIT);
    w.sequences = most;
    assert_int_equal(plan_once(model, machine, &w).forecast.sequences, most);
    w.sequences = 0;
    w.context_tokens = 100000;
    assert_status(ofl_plan_make(model, machine, &w, &plan), OFL_ERROR_NO_FIT);
    assert_non_null(strstr(ofl_error_message(), "not even one sequence"));
    ofl_machine_destroy(machine);
    machine = test_machine(1000, 1e9, 0, 10e9, 100e9, 1e9); /* overhead above all: no negative remainder */
    assert_status(ofl_plan_make(model, machine, &w, &plan), OFL_ERROR_NO_FIT);
    ofl_machine_destroy(machine);
    ofl_model_destroy(model);
}

static void test_forced_layers_that_do_not_fit(void **state)
{
    (void)state;
    ofl_model *model = test_model(qwen7b());
    ofl_machine *machine = test_machine(12.49e9, 3.26e9, 5e-6, 360e9, 51e12, 0.75e9);
    ofl_workload w = {.struct_size = sizeof w, .context_tokens = 512, .force_layers = 1, .force_resident_layers = 27};
    ofl_plan *plan = NULL;
    assert_status(ofl_plan_make(model, machine, &w, &plan), OFL_ERROR_NO_FIT);
    w.force_resident_layers = 29;
    assert_status(ofl_plan_make(model, machine, &w, &plan), OFL_ERROR_ARGUMENT);
    w.force_resident_layers = 0;
    planned p = plan_once(model, machine, &w);
    assert_int_equal(p.budget.stream_bytes_per_step, 28 * UINT64_C(466115584));
    ofl_machine_destroy(machine);
    ofl_model_destroy(model);
}

static void test_options_without_effect_are_errors(void **state)
{
    (void)state;
    ofl_model *model = test_model(smol135m());
    ofl_machine *machine = test_machine(100e6, 1e9, 0, 10e9, 100e9, 0);
    ofl_compute_point down[2] = {{8, 1e-10}, {4, 1e-10}};
    const ofl_workload wrong[] = {
        {.part_bytes = 4096},
        {.cut = OFL_CUT_BYTES},
        {.cut = OFL_CUT_BYTES, .part_bytes = 1, .force_layers = 1},
        {.force_resident_layers = 3},
        {.force_layers = 1, .ring_bytes = 1 << 20},
        {.queue_length = 5},
        {.headroom_bytes = 5, .headroom_percent = 5},
        {.headroom_percent = 100},
        {.headroom_percent = -1},
        {.tokens_per_step_cap = 4, .sequences = 5},
        {.tokens_per_step_cap = 4, .prefill_chunk_tokens = 5},
        {.compute_point_count = 2, .compute_points = down},
        {.compute_point_count = 1},
        {.objective = (ofl_objective)7},
        {.kv_type = (ofl_kv_type)77},
        {.host_seconds_per_step = -1},
        {.host_seconds_per_row = -1},
        {.workspace_bytes = 100},
        {.workspace_bytes = UINT64_C(1) << 60},
        {.host_seconds_per_unit = -1},
        {.host_seconds_per_piece = NAN},
        {.head_point_count = 1, .head_points = &(ofl_compute_point){1, 1e-10}}, /* of no effect without the blocks' */
        {.prefill_attention_seconds_per_kv_token = 1e-9},                       /* likewise without the decoding tokens' */
    };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        ofl_workload w = wrong[i];
        ofl_plan *plan = NULL;
        w.struct_size = sizeof w;
        w.context_tokens = 64;
        assert_status(ofl_plan_make(model, machine, &w, &plan), OFL_ERROR_ARGUMENT);
        assert_null(plan);
    }
    ofl_machine_destroy(machine);
    ofl_model_destroy(model);
}

/* Each time is refused by its own name, too large as well as none. */
static void test_times_are_named(void **state)
{
    (void)state;
    ofl_model *model = test_model(smol135m());
    ofl_machine *machine = test_machine(100e6, 1e9, 0, 10e9, 100e9, 0);
    ofl_compute_point good = {1, 1e-10};
    for (uint32_t i = 0; i < 14; i++) {
        double value = i % 2 ? NAN : 1e300;
        ofl_compute_point point = i / 2 == 4 ? (ofl_compute_point){value, 1e-10} : (ofl_compute_point){1, i / 2 == 5 ? value : 1e-10};
        ofl_workload w = {.struct_size = sizeof w, .context_tokens = 64, .compute_point_count = 1, .compute_points = &point,
                          .head_point_count = 1, .head_points = &good};
        const struct { const char *key; double *at; } times[] = {
            {"host_seconds_per_step", &w.host_seconds_per_step}, {"host_seconds_per_row", &w.host_seconds_per_row},
            {"host_seconds_per_unit", &w.host_seconds_per_unit}, {"host_seconds_per_piece", &w.host_seconds_per_piece},
            {"compute_points: tokens", NULL}, {"compute_points: seconds_per_element", NULL},
            {"plan: attention_seconds_per_kv_token", &w.attention_seconds_per_kv_token},
        };
        ofl_plan *plan = NULL;
        if (times[i / 2].at != NULL) *times[i / 2].at = value;
        assert_status(ofl_plan_make(model, machine, &w, &plan), OFL_ERROR_ARGUMENT);
        if (strstr(ofl_error_message(), times[i / 2].key) == NULL) fail_msg("%s: %s", times[i / 2].key, ofl_error_message());
    }
    ofl_machine_destroy(machine);
    ofl_model_destroy(model);
}

static ofl_tier tier_of(const ofl_plan *plan, uint32_t slice)
{
    ofl_slice s = {.struct_size = sizeof s};
    assert_ok(ofl_plan_slice_get(plan, slice, &s));
    return s.tier;
}

/* The embedding is looked up by row: host, no unit, nothing on the device. Norms and biases stay. Slices of a tensor cover its rows in
 * order. */
static void test_classes_and_slices(void **state)
{
    (void)state;
    ofl_model *model = test_model(qwen7b());
    ofl_machine *machine = test_machine(12.49e9, 3.26e9, 5e-6, 360e9, 51e12, 0.75e9);
    ofl_workload w = {.struct_size = sizeof w, .context_tokens = 512};
    ofl_plan *plan = plan_of(model, machine, &w);
    for (uint32_t i = 0; i < ofl_model_tensor_count(model); i++) {
        ofl_tensor_info info = {.struct_size = sizeof info};
        uint32_t first, count;
        uint64_t rows = 0;
        assert_ok(ofl_model_tensor_get(model, i, &info));
        assert_ok(ofl_plan_tensor_slices(plan, i, &first, &count));
        for (uint32_t j = first; j < first + count; j++) {
            ofl_slice s = {.struct_size = sizeof s};
            assert_ok(ofl_plan_slice_get(plan, j, &s));
            assert_int_equal(s.row_first, rows);
            assert_int_equal(s.bytes, s.row_count * info.row_bytes);
            rows += s.row_count;
            if (info.tensor_class == OFL_CLASS_LOOKUP) assert_int_equal(s.unit, UINT32_MAX);
        }
        assert_int_equal(rows, info.row_count);
        if (info.tensor_class == OFL_CLASS_LOOKUP) assert_int_equal(tier_of(plan, first), OFL_TIER_PINNED);
        if (info.bytes <= OFL_SMALL_TENSOR_BYTES || info.n_dims < 2) assert_int_equal(tier_of(plan, first), OFL_TIER_DEVICE);
    }
    planned p = read_plan(plan);
    assert_int_equal(p.budget.pinned_bytes, p.budget.stream_bytes_per_step + UINT64_C(1089994752));
    assert_int_equal(p.budget.device_bytes + p.budget.pinned_bytes, UINT64_C(15231233024));
    ofl_plan_destroy(plan);
    ofl_machine_destroy(machine);
    ofl_model_destroy(model);
}

static void test_host_tiers_fill_in_order(void **state)
{
    (void)state;
    ofl_model *model = test_model(smol135m());
    ofl_workload w = {.struct_size = sizeof w, .context_tokens = 256};
    ofl_machine *machine = test_machine(64 << 20, 4e9, 0, 10e9, 1e12, 0);
    planned pinned = plan_once(model, machine, &w);
    assert_ok(ofl_machine_set(machine, OFL_FIGURE_HOST, 150e6, OFL_SOURCE_GIVEN));
    assert_ok(ofl_machine_set(machine, OFL_FIGURE_PINNABLE, 100e6, OFL_SOURCE_GIVEN));
    assert_ok(ofl_machine_set(machine, OFL_FIGURE_LINK_PAGEABLE, 2e9, OFL_SOURCE_GIVEN));
    ofl_plan *plan = NULL;
    assert_status(ofl_plan_make(model, machine, &w, &plan), OFL_ERROR_NO_FIT); /* the rest would come from a file of unknown rate */
    assert_non_null(strstr(ofl_error_message(), "host memory"));
    assert_ok(ofl_machine_set(machine, OFL_FIGURE_FILE, 1e9, OFL_SOURCE_GIVEN));
    planned p = plan_once(model, machine, &w);
    uint64_t bounce = ofl_bounce_bytes(UINT64_MAX); /* pinned too, and no larger than this */
    assert_true(p.budget.pinned_bytes <= 100000000 && p.budget.pinned_bytes + bounce > 95000000);
    assert_true(p.budget.pinned_bytes + p.budget.pageable_bytes <= 150000000 && p.budget.pageable_bytes > 40000000);
    assert_int_equal(p.budget.pinned_bytes + p.budget.pageable_bytes + p.budget.file_bytes, p.budget.stream_bytes_per_step);
    double fill = (double)p.budget.pageable_bytes / 2e9 + (double)p.budget.file_bytes / 1e9; /* longer than all over the link */
    assert_true(fill > (double)p.budget.stream_bytes_per_step / 4e9);
    assert_true(p.forecast.step.link_seconds > 0.999 * fill && p.forecast.step.link_seconds < 1.001 * fill);
    assert_true(p.forecast.step.step_seconds > pinned.forecast.step.step_seconds);
    print_message("ring: all pinned %llu, else %llu\n", (unsigned long long)pinned.budget.ring_bytes, (unsigned long long)p.budget.ring_bytes);
    assert_true(p.budget.ring_bytes > pinned.budget.ring_bytes && p.budget.ring_bytes >= OFL_BOUNCE_RING_BYTES); /* the reader is kept busy */
    assert_true(p.forecast.error_band_percent > pinned.forecast.error_band_percent);
    ofl_machine_destroy(machine);
    ofl_model_destroy(model);
}

/* The device reads rows from pinned memory alone: lookups and a tied head never leave it, and where they cannot be there, that is said. */
static void test_gathered_rows_stay_pinned(void **state)
{
    (void)state;
    for (uint32_t tied = 0; tied < 2; tied++) {
        test_shape shape = smol135m();
        shape.tied = tied;
        ofl_model *model = test_model(shape);
        ofl_machine *machine = test_machine(64 << 20, 4e9, 0, 10e9, 1e12, 0);
        ofl_workload w = {.struct_size = sizeof w, .context_tokens = 256};
        assert_ok(ofl_machine_set(machine, OFL_FIGURE_FILE, 1e9, OFL_SOURCE_GIVEN));
        assert_ok(ofl_machine_set(machine, OFL_FIGURE_PINNABLE, 80e6, OFL_SOURCE_GIVEN));
        ofl_plan *plan = plan_of(model, machine, &w);
        ofl_plan_destroy(plan);
        assert_ok(ofl_machine_set(machine, OFL_FIGURE_PINNABLE, 58e6, OFL_SOURCE_GIVEN)); /* hardly more than the rows take */
        plan = plan_of(model, machine, &w);
        assert_true(read_plan(plan).budget.pageable_bytes > 0 && read_plan(plan).budget.pinned_bytes <= 58000000);
        for (uint32_t i = 0; i < ofl_plan_slice_count(plan); i++) {
            ofl_slice s = {.struct_size = sizeof s};
            ofl_tensor_info info = {.struct_size = sizeof info};
            assert_ok(ofl_plan_slice_get(plan, i, &s));
            assert_ok(ofl_model_tensor_get(model, s.tensor, &info));
            if (info.tensor_class == OFL_CLASS_LOOKUP || info.also_lookup)
                assert_true(s.tier == OFL_TIER_PINNED || s.tier == OFL_TIER_DEVICE);
        }
        ofl_plan_destroy(plan);
        assert_ok(ofl_machine_set(machine, OFL_FIGURE_PINNABLE, 1, OFL_SOURCE_MEASURED));
        assert_status(ofl_plan_make(model, machine, &w, &plan), OFL_ERROR_NO_FIT);
        assert_non_null(strstr(ofl_error_message(), "page-locked"));
        assert_null(plan);
        ofl_machine_destroy(machine);
        ofl_model_destroy(model);
    }
}

/* A tied head that cannot be pinned stays on the device, where it needs no host memory. */
static void test_tied_head_stays_where_it_cannot_be_pinned(void **state)
{
    (void)state;
    ofl_model *model = test_model(smol135m());
    ofl_machine *machine = test_machine(200e6, 4e9, 0, 10e9, 1e12, 0);
    ofl_workload w = {.struct_size = sizeof w, .context_tokens = 256};
    assert_ok(ofl_machine_set(machine, OFL_FIGURE_PINNABLE, 1e6, OFL_SOURCE_GIVEN));
    assert_ok(ofl_machine_set(machine, OFL_FIGURE_HOST, 1e9, OFL_SOURCE_GIVEN));
    ofl_plan *plan = plan_of(model, machine, &w);
    uint32_t first, count;
    assert_ok(ofl_plan_tensor_slices(plan, ofl_model_tensor_count(model) - 1, &first, &count));
    for (uint32_t i = first; i < first + count; i++) {
        ofl_slice s = {.struct_size = sizeof s};
        assert_ok(ofl_plan_slice_get(plan, i, &s));
        assert_int_equal(s.tier, OFL_TIER_DEVICE);
    }
    assert_true(read_plan(plan).budget.pageable_bytes > 0);
    ofl_plan_destroy(plan);
    ofl_machine_destroy(machine);
    ofl_model_destroy(model);
}

/* Where the device is tiny, so are the parts: down to 16 KiB before anything is refused; with more memory never less stays. */
static void test_tiny_devices_take_tiny_parts(void **state)
{
    (void)state;
    test_shape shape = {2, 256, 4, 2, 64, 1600, 2000, 0, 0, OFL_DTYPE_BF16};
    ofl_model *model = test_model(shape);
    ofl_workload w = {.struct_size = sizeof w, .context_tokens = 64, .force_headroom = 1, .prefill_chunk_tokens = 16};
    uint64_t last = 0, plans = 0;
    for (uint32_t vram = 900000; vram < 2600000; vram += 20000) {
        ofl_machine *machine = test_machine(vram, 4e9, 1e-6, 10e9, 1e12, 0);
        ofl_plan *plan = NULL;
        ofl_status status = ofl_plan_make(model, machine, &w, &plan);
        if (status == OFL_OK) {
            ofl_budget b = read_plan(plan).budget;
            assert_ok(ofl_plan_check(plan, model));
            if (plans++ == 0) assert_true(b.ring_bytes < 128 << 10 && read_plan(plan).settings.part_bytes < 64 << 10);
            assert_true(b.resident_bytes + 8192 >= last);
            last = b.resident_bytes;
        } else {
            assert_int_equal(status, OFL_ERROR_NO_FIT);
            assert_int_equal(plans, 0);
        }
        ofl_plan_destroy(plan);
        ofl_machine_destroy(machine);
    }
    assert_true(plans > 20 && plans < 85);
    ofl_model_destroy(model);
}

/* Sequences are not taken by choice at the price of tiny parts: each would cost more in calls than its copy takes. */
static void test_chosen_sequences_leave_room_for_the_ring(void **state)
{
    (void)state;
    ofl_model *model = test_model(smol135m());
    ofl_workload w = {.struct_size = sizeof w, .objective = OFL_THROUGHPUT, .context_tokens = 80};
    for (double vram = 50e6; vram < 100e6; vram += 1.7e6) {
        ofl_machine *machine = test_machine(vram, 1e9, 0, 10e9, 1e12, 0);
        planned chosen = plan_once(model, machine, &w);
        assert_true(chosen.settings.sequences > 1);
        assert_true(chosen.settings.part_bytes >= 192 << 10);
        assert_true(chosen.budget.ring_bytes >= 3 * chosen.settings.part_bytes / 2);
        ofl_machine_destroy(machine);
    }
    ofl_model_destroy(model);
}

/* The figures of a refusal are those of the count that it speaks of. */
static void test_refusals_name_what_they_speak_of(void **state)
{
    (void)state;
    ofl_model *model = test_model(smol135m());
    ofl_machine *machine = test_machine(20e6, 4e9, 0, 10e9, 1e12, 0);
    ofl_workload w = {.struct_size = sizeof w, .context_tokens = 4096, .sequences = 200};
    ofl_plan *plan = NULL;
    assert_status(ofl_plan_make(model, machine, &w, &plan), OFL_ERROR_NO_FIT);
    assert_non_null(strstr(ofl_error_message(), "not even one sequence"));
    assert_non_null(strstr(ofl_error_message(), "KV 94.372 MB"));
    assert_ok(ofl_machine_set(machine, OFL_FIGURE_VRAM, 180e6, OFL_SOURCE_GIVEN));
    assert_status(ofl_plan_make(model, machine, &w, &plan), OFL_ERROR_NO_FIT);
    assert_non_null(strstr(ofl_error_message(), "at most 1 sequence"));
    ofl_machine_destroy(machine);
    ofl_model_destroy(model);
}

static ofl_model *expert_model(void)
{
    ofl_model_shape shape = {.struct_size = sizeof shape,
                             .block_count = 2,
                             .hidden_size = 256,
                             .head_count = 4,
                             .head_count_kv = 2,
                             .head_dim_k = 64,
                             .head_dim_v = 64,
                             .ffn_size = 512,
                             .vocab_size = 4000,
                             .expert_count = 8,
                             .expert_used_count = 2,
                             .trained_context_tokens = 1024};
    test_shape s = {2, 256, 4, 2, 64, 512, 4000, 0, 0, OFL_DTYPE_BF16};
    ofl_model_builder *b = NULL;
    ofl_model *model = NULL;
    assert_ok(ofl_model_builder_create("experts", "mixture", &shape, &b));
    add_tensor(b, "token_embd", &s, s.dtype, OFL_CLASS_LOOKUP, OFL_ROLE_EMBEDDING, OFL_BLOCK_INPUT, 256, 4000);
    for (int32_t i = 0; i < 2; i++) {
        add_tensor(b, "attn_q", &s, s.dtype, OFL_CLASS_DENSE, OFL_ROLE_ATTN_Q, i, 256, 256);
        add_tensor(b, "ffn_gate_exps", &s, s.dtype, OFL_CLASS_EXPERT, OFL_ROLE_FFN_GATE, i, 256, 512 * 8);
    }
    add_tensor(b, "output", &s, s.dtype, OFL_CLASS_DENSE, OFL_ROLE_OUTPUT, 2, 256, 4000);
    add_tensor(b, "nextn", &s, s.dtype, OFL_CLASS_UNUSED, OFL_ROLE_OTHER, 2, 256, 1000);
    assert_ok(ofl_model_builder_finish(b, &model));
    return model;
}

/* The bytes that a step reads are those of the distinct experts that its tokens are sent to. */
static void assert_experts_shown_apart(const char *json, const ofl_model *model)
{
    uint64_t stored;
    double read;
    cJSON *tree = cJSON_Parse(json), *experts = cJSON_GetObjectItem(tree, "experts");
    assert_ok(ofl_model_expert_bytes(model, &stored));
    assert_ok(ofl_model_expert_bytes_per_step(model, (uint64_t)cJSON_GetObjectItem(experts, "tokens_per_step")->valuedouble, &read));
    assert_true(cJSON_GetObjectItem(experts, "stored_bytes")->valuedouble == (double)stored);
    assert_true(fabs(cJSON_GetObjectItem(experts, "read_bytes_per_step")->valuedouble - read) <= 1);
    cJSON_Delete(tree);
}

/* Experts are placed whole and named so; what no step reads is listed with its bytes and placed nowhere (field case 42). */
static void test_experts_and_unused(void **state)
{
    (void)state;
    ofl_model *model = expert_model();
    ofl_machine *machine = test_machine(4e6, 1e9, 0, 10e9, 1e12, 0);
    ofl_workload w = {.struct_size = sizeof w, .context_tokens = 64};
    ofl_plan *plan = plan_of(model, machine, &w);
    ofl_budget b = read_plan(plan).budget;
    uint32_t first, count;
    char *json = NULL;
    assert_ok(ofl_plan_tensor_slices(plan, ofl_model_tensor_count(model) - 1, &first, &count));
    assert_int_equal(count, 0);
    assert_int_equal(b.device_bytes + b.pinned_bytes, 2 * (2 * (256 * 256 + 256 * 4096) + 2 * 256 * 4000));
    assert_ok(ofl_plan_to_json(plan, &json));
    assert_non_null(strstr(json, "\"unused\": [{\"name\": \"nextn\", \"bytes\": 512000, \"why\": \"described as unused\""));
    assert_non_null(strstr(json, "\"class\": \"expert\""));
    assert_experts_shown_apart(json, model);
    ofl_string_free(json);
    ofl_plan_destroy(plan);
    ofl_machine_destroy(machine);
    ofl_model_destroy(model);
}

/* Stored types that products do not read as they are need a workspace; it is in the budget, and the check adds it up anew. */
static void test_quantised_model(void **state)
{
    (void)state;
    test_shape s = qwen7b();
    s.dtype = OFL_DTYPE_Q8_0;
    ofl_model *model = test_model(s);
    ofl_machine *machine = test_machine(6e9, 12e9, 5e-6, 360e9, 51e12, 0.75e9);
    ofl_workload w = {.struct_size = sizeof w, .context_tokens = 512};
    planned p = plan_once(model, machine, &w);
    assert_int_equal(p.budget.workspace_bytes, 2 * (256 + 64) * 18944);
    assert_true(p.budget.stream_bytes_per_step > 0);
    ofl_machine_destroy(machine);
    ofl_model_destroy(model);
}

static void test_activation_bytes_by_the_formula(void **state)
{
    (void)state;
    ofl_model_shape s = {.struct_size = sizeof s,
                         .hidden_size = 3584,
                         .head_count = 28,
                         .head_count_kv = 4,
                         .head_dim_k = 128,
                         .ffn_size = 18944,
                         .vocab_size = 152064};
    uint64_t hidden, logits, workspace;
    assert_ok(ofl_activation_bytes(&s, OFL_COMPUTE_BF16, 10, 3, 1000, &hidden, &logits, &workspace));
    assert_int_equal(hidden, (4 * 10 * (2 * 3584 + 2 * 18944) + 2 * 16 * 18944 + 255) / 256 * 256 + 256 + 65536);
    assert_int_equal(logits, (3 * (4 * 152064 + 6 * 3584) + 255) / 256 * 256);
    assert_int_equal(workspace, (2 * (1000 + 64 * 18944) + 255) / 256 * 256);
    s.hidden_size = 64; /* a head wider than the model: its rotary tables are as wide */
    assert_ok(ofl_activation_bytes(&s, OFL_COMPUTE_BF16, 10, 3, 0, &hidden, &logits, &workspace));
    assert_int_equal(hidden, (4 * 10 * (64 + 128 + 2 * 18944) + 2 * 16 * 18944 + 255) / 256 * 256 + 256 + 65536);
    assert_status(ofl_activation_bytes(&s, OFL_COMPUTE_F32, UINT64_MAX / 8, 3, 0, &hidden, &logits, &workspace), OFL_ERROR_OVERFLOW);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_published_experiment),
    cmocka_unit_test(test_link_rate_counts),
    cmocka_unit_test(test_no_workload_is_the_default_one),
    cmocka_unit_test(test_the_step_that_forecasts_stand_on),
    cmocka_unit_test(test_whole_model_fits),
    cmocka_unit_test(test_kv_in_whole_blocks),
    cmocka_unit_test(test_too_much_is_refused_with_the_largest_that_fits),
    cmocka_unit_test(test_forced_layers_that_do_not_fit),
    cmocka_unit_test(test_options_without_effect_are_errors),
    cmocka_unit_test(test_times_are_named),
    cmocka_unit_test(test_classes_and_slices),
    cmocka_unit_test(test_host_tiers_fill_in_order),
    cmocka_unit_test(test_gathered_rows_stay_pinned),
    cmocka_unit_test(test_tied_head_stays_where_it_cannot_be_pinned),
    cmocka_unit_test(test_tiny_devices_take_tiny_parts),
    cmocka_unit_test(test_chosen_sequences_leave_room_for_the_ring),
    cmocka_unit_test(test_refusals_name_what_they_speak_of),
    cmocka_unit_test(test_experts_and_unused),
    cmocka_unit_test(test_quantised_model),
    cmocka_unit_test(test_activation_bytes_by_the_formula),
};
TEST_MAIN(tests)
