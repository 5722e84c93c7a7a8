/* The plan counts the copies that the engine makes: for each tier and cut, of the caller's memory and of a file. */
#include "support/engine_fixture.h"

#include "base/base.h"
#include "engine/internal.h"

enum { BLOCKS = 3, HIDDEN = 512, FFN = 1300, STEPS = 10 };

/* Some of its matrices are copied from where they lie, and some are too small for that. */
static float norms[BLOCKS][HIDDEN], q[BLOCKS][HIDDEN][HIDDEN], k[BLOCKS][64][HIDDEN], v[BLOCKS][64][HIDDEN], up[BLOCKS][FFN][HIDDEN],
    down[BLOCKS][HIDDEN][FFN];

static ofl_model *large_model(void)
{
    static const ofl_stack stacks[] = {
        {OFL_ROLE_ATTN_NORM, OFL_DTYPE_F32, norms, 1, HIDDEN, 0},  {OFL_ROLE_ATTN_Q, OFL_DTYPE_F32, q, HIDDEN, HIDDEN, 0},
        {OFL_ROLE_ATTN_K, OFL_DTYPE_F32, k, 64, HIDDEN, 0},        {OFL_ROLE_ATTN_V, OFL_DTYPE_F32, v, 64, HIDDEN, 0},
        {OFL_ROLE_FFN_UP, OFL_DTYPE_F32, up, FFN, HIDDEN, 0},      {OFL_ROLE_FFN_DOWN, OFL_DTYPE_F32, down, HIDDEN, FFN, 0},
    };
    ofl_model_shape shape = {.struct_size = sizeof shape, .block_count = BLOCKS, .hidden_size = HIDDEN, .head_count = 8, .head_count_kv = 1,
                             .head_dim_k = 64, .head_dim_v = 64, .ffn_size = FFN, .vocab_size = 16, .trained_context_tokens = 64};
    ofl_model *model;
    assert_ok(ofl_model_from_stacks("large", &shape, stacks, OFL_COUNT_OF(stacks), &model));
    return model;
}

static void run_step(const fixture *f)
{
    for (uint32_t i = 0; i < f->units; i++) {
        ofl_view view = {.struct_size = sizeof view};
        assert_ok(ofl_engine_acquire(f->engine, i, NULL, &view));
        assert_ok(ofl_engine_release(f->engine, i, NULL));
    }
}

static uint64_t copies_of_a_step(const fixture *f)
{
    uint64_t copies = 0;
    for (uint32_t i = 0; i < f->units; i++) copies += f->engine->units[i].copies;
    return copies;
}

/* A plan from JSON counts as the one that was written. */
static void read_back(const ofl_plan *plan)
{
    char *json;
    ofl_plan *back;
    ofl_budget budget = {.struct_size = sizeof budget}, again = budget;
    assert_ok(ofl_plan_to_json(plan, &json));
    assert_ok(ofl_plan_from_json(json, strlen(json), &back));
    assert_ok(ofl_plan_budget_get(plan, &budget));
    assert_ok(ofl_plan_budget_get(back, &again));
    assert_int_equal(budget.stream_copies_per_step, again.stream_copies_per_step);
    ofl_plan_destroy(back);
    ofl_string_free(json);
}

static void hold(const fixture_case *c, ofl_model *made, const char *what)
{
    fixture f;
    fixture_model model = {.model = made};
    ofl_engine_stats stats = {.struct_size = sizeof stats};
    fixture_open(&f, c, &model, NULL);
    uint64_t planned = f.budget.stream_copies_per_step;
    print_message("%s: %llu pinned, %llu pageable, %llu file: %llu copies planned, %llu counted\n", what,
                  (unsigned long long)f.budget.pinned_bytes, (unsigned long long)f.budget.pageable_bytes,
                  (unsigned long long)f.budget.file_bytes, (unsigned long long)planned, (unsigned long long)copies_of_a_step(&f));
    assert_true(planned > 0);
    assert_int_equal(copies_of_a_step(&f), planned);
    run_step(&f);
    ofl_engine_stats_reset(f.engine);
    for (int i = 0; i < STEPS; i++) run_step(&f);
    assert_ok(ofl_engine_stats_get(f.engine, &stats));
    assert_true(stats.copies + planned >= STEPS * planned && stats.copies <= (STEPS + 1) * planned); /* the ring may hold a step ahead */
    read_back(f.plan);
    fixture_close(&f);
}

/* All pinned, half of it, nothing that the device does not read itself; the rest pageable or left in the file. */
static void hold_tiers(fixture_case c, ofl_model *model, const char *what, uint64_t rows)
{
    static const char *const tiers[] = {"pinned", "half pageable", "pageable", "half file", "file"};
    uint64_t least = c.vram != 0 ? c.vram : fixture_least_vram(c, model);
    for (int tier = 0; tier < 5; tier++) {
        char name[96];
        c.vram = least + (tier == 4 ? 0 : 256 * 1024);
        c.pinnable = tier == 0 ? 0 : rows + (tier % 2 ? UINT64_C(5) << 20 : 4096);
        c.host_bytes = tier < 3 ? 0 : c.pinnable;
        (void)snprintf(name, sizeof name, "%s, %s", what, tiers[tier]);
        hold(&c, model, name);
    }
}

static void hold_cuts(ofl_model *model, const char *what, uint64_t rows)
{
    static const struct { const char *name; ofl_cut cut; uint64_t part; uint32_t whole; } cuts[] = {
        {"automatic", OFL_CUT_AUTO, 0, 0}, {"parts", OFL_CUT_BYTES, 96 * 1024, 0}, {"large parts", OFL_CUT_BYTES, 2 << 20, 0},
        {"whole blocks", OFL_CUT_OFF, 0, 0}, {"layers", OFL_CUT_OFF, 0, 1},
    };
    for (size_t i = 0; i < OFL_COUNT_OF(cuts); i++) {
        char name[64];
        fixture_case c = {.link = 1e9, .start = 5e-6, .compute = 1e-12, .cut = cuts[i].cut, .part_bytes = cuts[i].part};
        c.whole_blocks = cuts[i].whole;
        if (cuts[i].whole) c.layers_kept = 1, c.vram = 48u << 20;
        (void)snprintf(name, sizeof name, "%s, %s", what, cuts[i].name);
        hold_tiers(c, model, name, rows);
    }
}

static void test_memory_of_the_caller(void **state)
{
    (void)state;
    fixture_model model;
    fixture_model_open(&model, 0);
    hold_cuts(model.model, "small tensors", FIXTURE_HIDDEN * FIXTURE_VOCAB * sizeof(float));
    fixture_model_close(&model);
    ofl_model *large = large_model();
    hold_cuts(large, "large tensors", 0);
    ofl_model_destroy(large);
}

static void test_file(void **state)
{
    (void)state;
    fixture_model model;
    fixture_model_make(&model, 0, test_path("weights"));
    hold_cuts(model.model, "file", FIXTURE_HIDDEN * FIXTURE_VOCAB * sizeof(float));
    fixture_model_close(&model);
}

static const struct CMUnitTest tests[] = {cmocka_unit_test(test_memory_of_the_caller), cmocka_unit_test(test_file)};
TEST_MAIN(tests)
