/* Matrix by matrix: whatever the plan, the rows that a tensor's walk gives are the model's own, all of them, once; units are acquired as by
 * a loop over units. */
#include "support/engine_fixture.h"

#include "base/base.h"
#include "engine/internal.h"

enum { STEPS = 5, CHECKS = 8192 };

typedef struct walk {
    fixture f;
    ofl_stream *stream; /* NULL: the calling thread */
    fixture_check checks[CHECKS];
    ofl_view_slice rows[CHECKS];
    uint32_t used, wrong;
} walk;

static walk w;

static void walk_open(fixture_model *model, double share, uint64_t part_bytes, bool streamed)
{
    static const ofl_engine_options poisoned = {.struct_size = sizeof poisoned, .poison = 1};
    fixture_case c = {.link = 1e9, .start = 2e-6, .compute = 1e-9, .cut = OFL_CUT_BYTES, .part_bytes = part_bytes};
    uint64_t least = fixture_least_vram(c, model->model);
    c.vram = least + (uint64_t)(share * (double)((16u << 20) - least));
    memset(&w, 0, sizeof w);
    fixture_open(&w.f, &c, model, &poisoned);
    if (streamed) assert_ok(ofl_stream_create(w.f.device, &w.stream));
}

static void walk_close(void)
{
    if (w.stream != NULL) {
        assert_ok(ofl_stream_wait(w.f.device, w.stream));
        ofl_stream_destroy(w.f.device, w.stream);
    }
    assert_int_equal(w.wrong, 0);
    fixture_close(&w.f);
}

static void compute(const ofl_view_slice *rows)
{
    assert_true(w.used < CHECKS);
    w.rows[w.used] = *rows;
    w.checks[w.used] = (fixture_check){w.f.model, &w.rows[w.used], 1, &w.wrong};
    if (w.stream != NULL) {
        assert_ok(ofl_sim_launch(w.f.device, w.stream, fixture_check_run, &w.checks[w.used], 1e-5));
    } else {
        fixture_check_run(&w.checks[w.used]);
        assert_ok(ofl_sim_elapse(w.f.device, 1e-5));
    }
    w.used++;
}

static void use(uint32_t tensor)
{
    ofl_view_slice rows = {0};
    ofl_tensor_info info = {.struct_size = sizeof info};
    uint64_t next = 0;
    ofl_status status;
    assert_ok(ofl_model_tensor_get(w.f.model->model, tensor, &info));
    while ((status = ofl_engine_tensor_next(w.f.engine, tensor, w.stream, &rows)) == OFL_OK) {
        assert_int_equal(rows.tensor, tensor);
        assert_int_equal(rows.row_first, next);
        next += rows.row_count;
        compute(&rows);
    }
    assert_int_equal(status, OFL_END);
    assert_int_equal(next, info.row_count);
    assert_true(rows.row_count == 0 && rows.data == NULL); /* ready for another tensor */
}

/* Tensor 0 is the embedding, whose rows are looked up. */
static void step(void)
{
    for (uint32_t tensor = 1; tensor < ofl_model_tensor_count(w.f.model->model); tensor++) use(tensor);
}

static ofl_engine_stats stats_now(void)
{
    ofl_engine_stats stats = {.struct_size = sizeof stats};
    assert_ok(ofl_engine_stats_get(w.f.engine, &stats));
    return stats;
}

/* Parts of matrices, and units of several matrices; nothing, some and all resident. */
static void test_every_row_once(void **state)
{
    (void)state;
    fixture_model model;
    fixture_model_open(&model, 0);
    for (int i = 0; i < 12; i++) {
        static const double shares[] = {0, 0.2, 1};
        walk_open(&model, shares[i % 3], i / 3 % 2 ? 128 * 1024 : 512 * 1024, i >= 6);
        for (int s = 0; s < STEPS; s++) {
            step();
            if (i % 2) assert_ok(ofl_engine_step_end(w.f.engine));
        }
        ofl_engine_stats stats = stats_now();
        assert_int_equal(stats.refetches, 0);
        assert_int_equal(stats.acquires, (uint64_t)STEPS * w.f.units);
        assert_int_equal(stats.steps, i % 2 ? STEPS : STEPS - 1);
        walk_close();
    }
    fixture_model_close(&model);
}

/* A norm that is asked for between matrices moves nothing; the unit in hand serves all its tensors in any order. */
static void test_what_moves_nothing(void **state)
{
    (void)state;
    fixture_model model;
    fixture_model_open(&model, 0);
    walk_open(&model, 0, 1024 * 1024, false);
    uint32_t q, v, norm;
    assert_ok(ofl_model_tensor_find(model.model, 1, OFL_ROLE_ATTN_Q, &q));
    assert_ok(ofl_model_tensor_find(model.model, 1, OFL_ROLE_ATTN_V, &v));
    assert_ok(ofl_model_tensor_find(model.model, 4, OFL_ROLE_ATTN_NORM, &norm));
    for (int i = 0; i < 3; i++) {
        use(v);
        use(norm);
        use(q);
    }
    assert_int_equal(stats_now().acquires, 1);
    walk_close();
    fixture_model_close(&model);
}

/* Backwards, and on two streams in turn: slower, never wrong. */
static void test_any_order(void **state)
{
    (void)state;
    fixture_model model;
    fixture_model_open(&model, 0);
    walk_open(&model, 0, 128 * 1024, true);
    for (int s = 0; s < STEPS; s++) {
        ofl_stream *other = w.stream;
        for (uint32_t tensor = ofl_model_tensor_count(model.model); tensor-- > 1;) {
            if (tensor % 3 == 0) w.stream = NULL;
            use(tensor);
            w.stream = other;
        }
    }
    walk_close();
    fixture_model_close(&model);
}

static void test_held_until_the_step_ends(void **state)
{
    (void)state;
    fixture_model model;
    fixture_model_open(&model, 0);
    walk_open(&model, 0, 128 * 1024, false);
    ofl_view view = {.struct_size = sizeof view};
    ofl_view_slice rows = {0};
    uint32_t first;
    assert_ok(ofl_model_tensor_find(model.model, 0, OFL_ROLE_ATTN_Q, &first));
    assert_ok(ofl_engine_tensor_next(w.f.engine, first, NULL, &rows));
    assert_status(ofl_engine_acquire(w.f.engine, 0, NULL, &view), OFL_ERROR_STATE);
    assert_ok(ofl_engine_step_end(w.f.engine));
    assert_ok(ofl_engine_acquire(w.f.engine, 0, NULL, &view));
    assert_ok(ofl_engine_release(w.f.engine, 0, NULL));
    rows = (ofl_view_slice){0};
    assert_ok(ofl_engine_tensor_next(w.f.engine, first, NULL, &rows));
    assert_ok(ofl_engine_release(w.f.engine, 0, NULL)); /* by hand: the walk has nothing left to release */
    assert_ok(ofl_engine_step_end(w.f.engine));
    walk_close();
    fixture_model_close(&model);
}

/* Released by hand in the middle of a tensor: its room may be another's by now, so it is acquired anew. */
static void test_released_in_the_middle(void **state)
{
    (void)state;
    fixture_model model;
    fixture_model_open(&model, 0);
    walk_open(&model, 0, 1024 * 1024, false);
    uint32_t q, k;
    ofl_view_slice rows = {0};
    assert_ok(ofl_model_tensor_find(model.model, 1, OFL_ROLE_ATTN_Q, &q));
    assert_ok(ofl_model_tensor_find(model.model, 1, OFL_ROLE_ATTN_K, &k));
    assert_ok(ofl_engine_tensor_next(w.f.engine, q, NULL, &rows));
    assert_int_equal(stats_now().acquires, 1);
    assert_ok(ofl_engine_release(w.f.engine, w.f.engine->walked, NULL));
    use(k); /* of the same unit */
    assert_int_equal(stats_now().acquires, 2);
    assert_ok(ofl_engine_step_end(w.f.engine));
    walk_close();
    fixture_model_close(&model);
}

/* An engine whose copies failed gives nothing, not even what stays on the device. */
static void test_broken(void **state)
{
    (void)state;
    fixture_model model;
    fixture_model_open(&model, 0);
    walk_open(&model, 0, 128 * 1024, false);
    ofl_view_slice rows = {0};
    uint32_t norm;
    assert_ok(ofl_model_tensor_find(model.model, 4, OFL_ROLE_ATTN_NORM, &norm));
    w.f.engine->broken = OFL_ERROR_RUNTIME;
    assert_status(ofl_engine_tensor_next(w.f.engine, norm, NULL, &rows), OFL_ERROR_RUNTIME);
    assert_null(rows.data);
    walk_close();
    fixture_model_close(&model);
}

static void test_wrong_calls(void **state)
{
    (void)state;
    fixture_model model;
    fixture_model_open(&model, 0);
    walk_open(&model, 0, 128 * 1024, false);
    ofl_view_slice rows = {0};
    assert_status(ofl_engine_tensor_next(w.f.engine, 0, NULL, &rows), OFL_ERROR_ARGUMENT); /* looked up */
    assert_status(ofl_engine_tensor_next(w.f.engine, model.count, NULL, &rows), OFL_ERROR_ARGUMENT);
    assert_status(ofl_engine_tensor_next(w.f.engine, 2, NULL, NULL), OFL_ERROR_ARGUMENT);
    assert_status(ofl_engine_tensor_next(NULL, 2, NULL, &rows), OFL_ERROR_ARGUMENT);
    assert_ok(ofl_engine_tensor_next(w.f.engine, 2, NULL, &rows));
    assert_status(ofl_engine_tensor_next(w.f.engine, 3, NULL, &rows), OFL_ERROR_ARGUMENT); /* rows of another one */
    rows = (ofl_view_slice){.tensor = 2, .row_first = UINT64_MAX, .row_count = UINT64_MAX};
    assert_status(ofl_engine_tensor_next(w.f.engine, 2, NULL, &rows), OFL_ERROR_ARGUMENT); /* rows that it does not have */
    walk_close();
    fixture_model_close(&model);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_every_row_once),       cmocka_unit_test(test_what_moves_nothing), cmocka_unit_test(test_any_order),
    cmocka_unit_test(test_held_until_the_step_ends), cmocka_unit_test(test_wrong_calls),
    cmocka_unit_test(test_released_in_the_middle),  cmocka_unit_test(test_broken),
};
TEST_MAIN(tests)
