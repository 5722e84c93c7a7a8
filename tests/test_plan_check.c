/* The check of a plan: it takes every plan that the planner makes, of random models, machines and jobs, and finds every contradiction, with
 * the sums around it kept right. */
#include "plan_models.h"

#include <math.h>

#include "plan/check.h"
#include "plan/plan_state.h"

typedef struct verdicts { uint32_t good, wrong, left; char first[300]; } verdicts;

static void count(void *context, const char *part, ofl_status status, const char *sentence)
{
    verdicts *v = context;
    assert_true(part[0] != '\0' && strlen(sentence) > 5);
    v->good += status == OFL_OK;
    v->left += status == OFL_NOT_READY;
    if (status == OFL_ERROR_MISMATCH && v->wrong++ == 0) (void)snprintf(v->first, sizeof v->first, "%s: %s", part, sentence);
}

static uint64_t pick(uint64_t *seed, uint64_t least, uint64_t most) { return least + test_random(seed) % (most - least + 1); }

static ofl_model *random_model(uint64_t *seed)
{
    static const ofl_dtype types[] = {OFL_DTYPE_BF16, OFL_DTYPE_F32, OFL_DTYPE_Q8_0, OFL_DTYPE_Q4_K, OFL_DTYPE_BF16};
    uint32_t heads = (uint32_t)pick(seed, 1, 8), kv = heads % 2 == 0 ? heads / 2 : heads;
    test_shape s = {.layers = (uint32_t)pick(seed, 1, 10), .heads = heads, .kv_heads = kv, .head_dim = 128};
    s.hidden = 256 * (uint32_t)pick(seed, 1, 4);
    s.ffn = 256 * (uint32_t)pick(seed, 1, 8);
    s.vocab = (uint32_t)pick(seed, 300, 20000);
    s.tied = (uint32_t)pick(seed, 0, 1);
    s.biases = (uint32_t)pick(seed, 0, 1);
    s.dtype = types[pick(seed, 0, 4)];
    /* rows of whole blocks */
    if (s.dtype == OFL_DTYPE_Q8_0 || s.dtype == OFL_DTYPE_Q4_K) s.heads = s.kv_heads = 2 * (uint32_t)pick(seed, 1, 3), s.biases = 0;
    return test_model(s);
}

static double stored(const ofl_model *model)
{
    double sum = 0;
    for (uint32_t i = 0; i < ofl_model_tensor_count(model); i++) {
        ofl_tensor_info info = {.struct_size = sizeof info};
        assert_ok(ofl_model_tensor_get(model, i, &info));
        sum += (double)info.bytes;
    }
    return sum;
}

static ofl_machine *random_machine(uint64_t *seed, double bytes)
{
    double link = 1e9 * (double)pick(seed, 1, 50), bandwidth = link * (double)pick(seed, 1, 30);
    double start = 1e-6 * (double)pick(seed, 0, 9), vram = bytes * (0.1 + 0.01 * (double)pick(seed, 0, 140));
    vram += 1e6 * (double)pick(seed, 0, 60);
    ofl_machine *m = test_machine(floor(vram), link, start, bandwidth, bandwidth * (double)pick(seed, 1, 200),
                                  floor(bytes * 0.002 * (double)pick(seed, 0, 9)));
    if (pick(seed, 0, 2) == 0) {
        assert_ok(ofl_machine_set(m, OFL_FIGURE_HOST, floor(bytes * (0.3 + 0.01 * (double)pick(seed, 0, 90))), OFL_SOURCE_GIVEN));
        assert_ok(ofl_machine_set(m, OFL_FIGURE_PINNABLE, floor(bytes * (0.2 + 0.01 * (double)pick(seed, 0, 80))), OFL_SOURCE_MEASURED));
        assert_ok(ofl_machine_set(m, OFL_FIGURE_LINK_PAGEABLE, link * 0.01 * (double)pick(seed, 20, 100), OFL_SOURCE_GIVEN));
        assert_ok(ofl_machine_set(m, OFL_FIGURE_FILE, 1e8 * (double)pick(seed, 1, 80), OFL_SOURCE_ASSUMED));
    }
    if (pick(seed, 0, 2) == 0) { /* measured while the device computes, too */
        assert_ok(ofl_machine_set(m, OFL_FIGURE_LINK, link, OFL_SOURCE_MEASURED));
        assert_ok(ofl_machine_set(m, OFL_FIGURE_LINK_COMPUTING, link * 0.01 * (double)pick(seed, 50, 110), OFL_SOURCE_MEASURED));
    }
    return m;
}

static ofl_workload random_job(uint64_t *seed, uint32_t layers)
{
    ofl_workload w = {.struct_size = sizeof w};
    w.objective = (ofl_objective)pick(seed, 0, 1);
    w.context_tokens = pick(seed, 1, 800);
    w.sequences = (uint32_t)(pick(seed, 0, 1) * pick(seed, 1, 12));
    w.kv_type = (ofl_kv_type)pick(seed, 0, 4);
    w.cut = (ofl_cut)pick(seed, 0, 2);
    if (w.cut == OFL_CUT_BYTES) w.part_bytes = pick(seed, 20000, 2000000);
    if (w.cut == OFL_CUT_OFF && pick(seed, 0, 1)) w.force_layers = 1, w.force_resident_layers = (uint32_t)pick(seed, 0, layers);
    if (pick(seed, 0, 3) == 0) w.prefill_chunk_tokens = (uint32_t)pick(seed, 1, 700);
    if (w.objective == OFL_THROUGHPUT && pick(seed, 0, 1)) w.queue_length = pick(seed, 1, 100);
    if (pick(seed, 0, 2) == 0) w.host_seconds_per_step = 1e-4 * (double)pick(seed, 1, 50);
    if (pick(seed, 0, 2) == 0) w.host_seconds_per_unit = 1e-6 * (double)pick(seed, 0, 9);
    if (pick(seed, 0, 2) == 0) w.host_seconds_per_piece = 1e-5 * (double)pick(seed, 0, 9);
    w.force_headroom = (uint32_t)pick(seed, 0, 1);
    w.compute_type = (ofl_compute_type)pick(seed, 0, 1);
    return w;
}

typedef struct tally { uint32_t plans, refused, streamed, tiers, throughput; double worst; } tally;

/* Sums, the budget, the same bytes again, its own check, and the link's bound: no step moves its bytes faster than the link does. */
static void hold(const ofl_model *model, const ofl_machine *machine, const ofl_workload *w, tally *t)
{
    ofl_plan *plan = NULL, *twin = NULL;
    ofl_status status = ofl_plan_make(model, machine, w, &plan);
    if (status != OFL_OK) {
        if (status != OFL_ERROR_NO_FIT && status != OFL_ERROR_ARGUMENT) fail_msg("%s", ofl_error_message());
        assert_null(strstr(ofl_error_message(), "18446744"));
        t->refused++;
        return;
    }
    verdicts v = {0};
    char *json = NULL, *again = NULL;
    planned p = read_plan(plan);
    assert_ok(ofl_plan_check(plan, model));
    if (ofl_plan_verify(plan, model, count, &v) != OFL_OK) fail_msg("plan %u: %s", t->plans, v.first);
    assert_true(v.good == 13 && v.left == 0);
    assert_true(p.budget.total_bytes <= p.budget.vram_bytes);
    double rate = ofl_machine_get(machine, OFL_FIGURE_LINK, NULL), replayed = 0;
    assert_true(p.forecast.step.step_seconds * rate >= (double)p.budget.stream_bytes_per_step * (1 - 1e-9));
    assert_true(p.forecast.tokens_per_second * p.forecast.step.step_seconds < p.settings.sequences * (1 + 1e-9));
    assert_ok(ofl_check_replay(plan, &replayed));
    t->worst = fmax(t->worst, fabs(replayed / p.forecast.step.step_seconds - 1));
    assert_ok(ofl_plan_make(model, machine, w, &twin));
    assert_ok(ofl_plan_to_json(plan, &json));
    assert_ok(ofl_plan_to_json(twin, &again));
    assert_string_equal(json, again);
    t->plans++;
    t->streamed += p.budget.stream_bytes_per_step != 0;
    t->tiers += p.budget.pageable_bytes + p.budget.file_bytes != 0;
    t->throughput += p.settings.objective == OFL_THROUGHPUT && p.settings.sequences > 1;
    ofl_string_free(json);
    ofl_string_free(again);
    ofl_plan_destroy(twin);
    ofl_plan_destroy(plan);
}

static void test_every_plan_is_accepted(void **state)
{
    (void)state;
    uint64_t seed = 2026;
    tally t = {0};
    for (int m = 0; m < 120; m++) {
        ofl_model *model = random_model(&seed);
        ofl_model_shape shape = {.struct_size = sizeof shape};
        assert_ok(ofl_model_shape_get(model, &shape));
        for (int i = 0; i < 10; i++) {
            ofl_machine *machine = random_machine(&seed, stored(model));
            ofl_workload w = random_job(&seed, shape.block_count);
            hold(model, machine, &w, &t);
            ofl_machine_destroy(machine);
        }
        ofl_model_destroy(model);
    }
    print_message("%u plans (%u refused), %u streamed, %u from slower tiers, %u of several sequences by choice; replayed: within %.4f %%\n",
                  t.plans, t.refused, t.streamed, t.tiers, t.throughput, 100 * t.worst);
    assert_true(t.plans > 700 && t.streamed > 300 && t.tiers > 60 && t.throughput > 200);
}

static const test_shape small = {4, 256, 4, 2, 64, 1024, 2000, 0, 1, OFL_DTYPE_BF16};

static ofl_machine *small_machine(void)
{
    ofl_machine *m = test_machine(6 << 20, 1e9, 5e-6, 10e9, 100e9, 100000);
    assert_ok(ofl_machine_set(m, OFL_FIGURE_HOST, 9e6, OFL_SOURCE_GIVEN));
    assert_ok(ofl_machine_set(m, OFL_FIGURE_PINNABLE, 4.5e6, OFL_SOURCE_GIVEN));
    assert_ok(ofl_machine_set(m, OFL_FIGURE_LINK_PAGEABLE, 5e8, OFL_SOURCE_GIVEN));
    return m;
}

static ofl_unit *unit_in(ofl_plan *plan, ofl_tier tier)
{
    ofl_plan_cut *cut = &plan->draft.cut;
    for (uint64_t i = 0; i < cut->unit_count; i++) {
        if (ofl_plan_unit_tier(cut, &cut->units[i]) == tier) return &cut->units[i];
    }
    fail_msg("no unit in tier %d", tier);
    return NULL;
}

static uint64_t last_of(const ofl_plan *plan, bool streamed)
{
    uint64_t i = plan->draft.cut.unit_count;
    while (i-- > 0 && (plan->draft.cut.units[i].piece_bytes != 0) != streamed) {}
    return i;
}

static void stretch(ofl_plan *plan, double share) /* of the step; all that follows from it too */
{
    ofl_forecast *f = &plan->forecast;
    f->step.link_idle_seconds += (share - 1) * f->step.step_seconds;
    f->step.step_seconds *= share;
    f->step.stall_seconds = f->step.step_seconds - f->step.compute_seconds;
    f->tokens_per_second = f->sequences / f->step.step_seconds;
    f->first_token_seconds *= share;
    for (uint32_t i = 0; i < plan->row_count; i++) {
        if (plan->rows[i].sequences != f->sequences) continue;
        plan->rows[i].step_seconds = f->step.step_seconds;
        plan->rows[i].tokens_per_second = f->tokens_per_second;
    }
}

/* A tensor that must stay is streamed with its unit, and every sum follows. */
static void stream_a_norm(ofl_plan *plan)
{
    ofl_budget *b = &plan->draft.budget;
    ofl_plan_cut *cut = &plan->draft.cut;
    for (uint32_t i = 0; i < cut->unit_slice_count; i++) {
        ofl_slice *slice = &cut->slices[i];
        ofl_unit *unit = &cut->units[slice->unit];
        ofl_tier tier = ofl_plan_unit_tier(cut, unit);
        if (!plan->facts.tensors[slice->tensor].vector || (tier != OFL_TIER_PINNED && tier != OFL_TIER_PAGEABLE)) continue;
        slice->tier = tier;
        ofl_plan_cut_layout(cut);
        b->resident_bytes -= ofl_plan_align(slice->bytes);
        b->total_bytes -= ofl_plan_align(slice->bytes);
        b->device_bytes -= slice->bytes;
        *(tier == OFL_TIER_PINNED ? &b->pinned_bytes : &b->pageable_bytes) += slice->bytes;
        b->stream_bytes_per_step += slice->bytes;
        return;
    }
    fail_msg("no norm beside a streamed matrix");
}

/* One contradiction, all else kept right. */
static const char *contradict(ofl_plan *plan, int kind)
{
    ofl_plan_draft *d = &plan->draft;
    ofl_budget *b = &d->budget;
    ofl_plan_facts *f = &plan->facts;
    ofl_unit_load *load = &d->cut.loads[last_of(plan, true)];
    switch (kind) {
    case 0: b->runtime_bytes -= 256, b->headroom_bytes += 256; return "less for driver and libraries";
    case 1: b->lower_bound_bytes_per_step /= 2; return "a lower bound that is too low";
    case 2: b->stream_copies_per_step++; return "one copy more";
    case 3: d->settings.copy_bytes /= 4096; return "smaller copies, not counted";
    case 4: f->figures[OFL_FIGURE_PINNABLE] = 2e6; return "less can be pinned";
    case 5: f->figures[OFL_FIGURE_HOST] = 4e6; return "less host memory";
    case 6: d->cut.slices[d->cut.slice_count - 1].tier = OFL_TIER_PAGEABLE;
            b->pinned_bytes -= d->cut.slices[d->cut.slice_count - 1].bytes;
            b->pageable_bytes += d->cut.slices[d->cut.slice_count - 1].bytes;
            return "looked up in pageable memory";
    case 7: f->shape.hidden_size = 128, f->shape.ffn_size = 100; return "a smaller shape";
    case 8: f->shape.vocab_size++; return "another vocabulary";
    case 9: f->dense_bytes -= 512; return "fewer dense bytes";
    case 10: f->shape.parameter_count++; return "another parameter count";
    case 11: f->kv_bytes_per_token = d->settings.kv_bytes_per_token = 16; return "KV bytes of a token";
    case 12: f->state_bytes = 16; return "a state that the model has not";
    case 13: d->cut.units[last_of(plan, true)].block--; return "a unit in another block";
    case 14: stream_a_norm(plan); return "a norm that is streamed";
    case 15: f->embedding_bytes += 2; return "another embedding";
    case 16: b->logits_bytes += 256, b->workspace_bytes -= 256; return "logits for workspace";
    case 17: b->kv_bytes += 256, b->total_bytes += 256; return "more KV than its sequences need";
    /* from here on: only the forecast */
    case 18: stretch(plan, 0.99); return "a step that is faster than its bytes";
    case 19: stretch(plan, 1.01); return "a step that is slower than it is";
    case 20: plan->forecast.step.link_seconds *= 0.9; return "a faster link";
    case 21: plan->forecast.step.compute_seconds *= 0.9; return "less compute";
    case 22: d->cut.units[last_of(plan, false)].compute_seconds *= 2; return "a unit that takes longer";
    case 23: load->elements /= 2; return "half the elements";
    case 24: load->bytes -= 2; return "fewer bytes to read";
    case 25: load->head = !load->head; return "the head elsewhere";
    case 26: d->cut.loads[last_of(plan, true)].attention = !load->attention; return "attention elsewhere";
    case 27: plan->forecast.tokens_per_second *= 2; return "twice the tokens";
    case 28: plan->forecast.link_bound = !plan->forecast.link_bound; return "the other side binds";
    case 29: plan->forecast.knee_tokens *= 2; return "a later knee";
    case 30: plan->forecast.first_token_seconds /= 2; return "an early first token";
    case 31: plan->forecast.error_band_percent = 0; return "no error band";
    case 32: plan->rows[0].tokens_per_second *= 1.5; return "a row that is too fast";
    case 33: plan->rows[1].sequences = plan->rows[0].sequences; return "a row twice";
    case 34: plan->forecast.sequences++; return "a forecast for another count";
    case 35: f->figures[OFL_FIGURE_LINK] *= 2; return "a link that was not planned with";
    case 36: plan->forecast.step.stall_seconds *= 0.5; return "stalls left out";
    case 37: plan->forecast.lower_bound_seconds /= 2; return "a bound that is too low";
    case 38: plan->forecast.load_seconds /= 4; return "loaded before it is read";
    default: return NULL;
    }
}
enum { KINDS = 39, KINDS_OF_PLACEMENT = 18 };

static void test_every_contradiction_is_found(void **state)
{
    (void)state;
    ofl_model *model = test_model(small);
    ofl_machine *machine = small_machine();
    ofl_workload w = {.struct_size = sizeof w, .context_tokens = 256, .sequences = 2};
    for (int kind = 0; kind < KINDS; kind++) {
        verdicts v = {0};
        ofl_plan *plan = plan_of(model, machine, &w);
        (void)unit_in(plan, OFL_TIER_PAGEABLE);
        const char *what = contradict(plan, kind);
        ofl_status checked = ofl_plan_check(plan, model);
        if ((checked == OFL_ERROR_MISMATCH) != (kind < KINDS_OF_PLACEMENT)) fail_msg("%s: check says %s", what, ofl_status_name(checked));
        if (ofl_plan_verify(plan, model, count, &v) != OFL_ERROR_MISMATCH) fail_msg("not found: %s", what);
        assert_true(v.wrong >= 1 && v.left == 0 && v.good + v.wrong == 13);
        assert_non_null(strstr(ofl_error_message(), "of the parts looked at"));
        ofl_plan_destroy(plan);
    }
    ofl_machine_destroy(machine);
    ofl_model_destroy(model);
}

/* Another model: what does not need it is still looked at. */
static void test_another_model(void **state)
{
    (void)state;
    test_shape other_shape = small;
    other_shape.vocab = 2016;
    ofl_model *model = test_model(small), *other = test_model(other_shape);
    ofl_machine *machine = small_machine();
    ofl_workload w = {.struct_size = sizeof w, .context_tokens = 256, .sequences = 2};
    ofl_plan *plan = plan_of(model, machine, &w);
    verdicts v = {0};
    assert_status(ofl_plan_verify(plan, other, count, &v), OFL_ERROR_MISMATCH);
    assert_non_null(strstr(v.first, "make a plan for this model"));
    assert_true(v.wrong == 1 && v.left == 5 && v.good == 7);
    assert_status(ofl_plan_verify(NULL, other, count, &v), OFL_ERROR_ARGUMENT);
    assert_status(ofl_plan_verify(plan, NULL, count, &v), OFL_ERROR_ARGUMENT);
    assert_status(ofl_plan_verify(plan, other, NULL, &v), OFL_ERROR_ARGUMENT);
    ofl_plan_destroy(plan);
    ofl_machine_destroy(machine);
    ofl_model_destroy(other);
    ofl_model_destroy(model);
}

/* Every allocation of the check fails in turn: a status, nothing left behind. */
static void test_allocations_of_the_check(void **state)
{
    (void)state;
    ofl_model *model = test_model(small);
    ofl_machine *machine = small_machine();
    ofl_workload w = {.struct_size = sizeof w, .context_tokens = 256, .sequences = 2};
    ofl_plan *plan = plan_of(model, machine, &w);
    uint64_t failures = 0;
    for (uint64_t n = 1, left = 0; left == 0; n++) {
        verdicts v = {0};
        (void)ofl_fault_allocation(n);
        ofl_status status = ofl_plan_verify(plan, model, count, &v);
        left = ofl_fault_allocation(0);
        if (left == 0) assert_true(status == OFL_ERROR_HOST_MEMORY || status == OFL_OK);
        failures += status != OFL_OK;
    }
    assert_true(failures >= 3);
    ofl_plan_destroy(plan);
    ofl_machine_destroy(machine);
    ofl_model_destroy(model);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_every_plan_is_accepted),
    cmocka_unit_test(test_every_contradiction_is_found),
    cmocka_unit_test(test_another_model),
    cmocka_unit_test(test_allocations_of_the_check),
};
TEST_MAIN(tests)
