/* The forward pass on tiny checkpoints: against a float32 reference, and against itself however weights are placed and tokens are batched.
 */
#include "support/support.h"

#include "support/forward_models.h"

static const rig_options plain = {
    .compute_type = OFL_COMPUTE_F32, .kv_type = OFL_KV_F32, .sequences = 40, .context = 64, .prefill_chunk = 64, .threads = 1};

static void check_reference(size_t which)
{
    golden g = read_golden(tiny[which].logits);
    rig r;
    rig_open(&r, tiny[which].model, &plain);
    assert_int_equal(r.shape.vocab_size, g.vocab);
    uint64_t values = (uint64_t)g.count * g.vocab;
    float *whole = malloc(values * sizeof *whole), *single = malloc(values * sizeof *single);
    assert_true(whole != NULL && single != NULL);
    rig_all_logits(&r, 0, g.ids, g.count, g.count, whole);
    double error = rig_distance(whole, g.logits, values);
    if (!(error < 1e-5)) fail_msg("%s: relative error %g", tiny[which].model, error);
    static const uint32_t chunks[] = {1, 7, 16};
    for (size_t c = 0; c < 3; c++) {
        rig_all_logits(&r, 3, g.ids, g.count, chunks[c], single);
        if (memcmp(whole, single, values * sizeof *whole) != 0)
            fail_msg("%s: other bits in steps of %u tokens", tiny[which].model, chunks[c]);
        const float *last = rig_last_logits(&r, 5, g.ids, g.count, chunks[c] == 1 ? g.count : chunks[c]);
        assert_memory_equal(last, whole + (uint64_t)(g.count - 1) * g.vocab, g.vocab * sizeof *last);
    }
    free(whole);
    free(single);
    rig_close(&r);
    free(g.file);
}

static void test_reference_logits(void **state)
{
    (void)state;
    for (size_t i = 0; i < TINY; i++) check_reference(i);
}

/* Each of them alone. */
static void run_alone(rig *r, const int32_t *ids, float *out)
{
    uint64_t row = BIG_VOCAB * sizeof *out;
    memcpy(out, rig_last_logits(r, 7, ids, 9, 9), row);
    memcpy(out + BIG_VOCAB, rig_last_logits(r, 7, ids + 3, 21, 4), row);
    memcpy(out + 2 * BIG_VOCAB, rig_last_logits(r, 7, ids, 10, 10), row);
    memcpy(out + 3 * BIG_VOCAB, rig_last_logits(r, 7, ids + 5, 30, 30), row);
}

/* Placements: ≥ 70 % streamed in the planner's own parts and in small ones; resident in parts, in whole blocks, with layers forced; several
 * threads. */
static void choose_placements(const rig_options *resident, rig_options o[5])
{
    for (int i = 0; i < 5; i++) o[i] = *resident;
    o[0].streamed = 0.7;
    o[1].streamed = 0.7;
    o[1].cut = OFL_CUT_BYTES;
    o[1].part_bytes = 70000;
    o[1].threads = 3;
    o[2].cut = OFL_CUT_BYTES;
    o[2].part_bytes = 9000;
    o[3].cut = OFL_CUT_OFF;
    o[3].streamed = 0.3;
    o[4].force_layers = 1;
    o[4].resident_layers = 1;
}

static void check_bits(ofl_compute_type compute, ofl_kv_type kv)
{
    rig_options resident = {.compute_type = compute, .kv_type = kv, .sequences = 8, .context = 48, .prefill_chunk = 48, .threads = 1}, o[5];
    int32_t ids[40];
    uint64_t bytes = 4 * BIG_VOCAB * sizeof(float), seed = 77;
    float *first = malloc(bytes), *other = malloc(bytes);
    big_model big;
    rig r;
    assert_true(first != NULL && other != NULL);
    for (int i = 0; i < 40; i++) ids[i] = (int32_t)(test_random(&seed) % BIG_VOCAB);
    rig_open_model(&r, build_big(&big), &resident);
    assert_int_equal(r.budget.stream_bytes_per_step, 0);
    run_batch(&r, ids, first);
    run_alone(&r, ids, other);
    for (uint64_t i = 0; i < bytes / sizeof *first; i++) assert_true(isfinite(first[i]));
    if (memcmp(first, other, bytes) != 0) fail_msg("a neighbour changes the bits");
    rig_close(&r);
    free_big(&big);
    choose_placements(&resident, o);
    for (int i = 0; i < 5; i++) {
        rig_open_model(&r, build_big(&big), &o[i]);
        assert_true(o[i].streamed == 0 || rig_streamed_share(&r) >= o[i].streamed);
        memset(other, 0, bytes);
        run_batch(&r, ids, other);
        run_batch(&r, ids, other); /* across the step boundary */
        if (memcmp(first, other, bytes) != 0) fail_msg("other bits under placement %d", i);
        rig_close(&r);
        free_big(&big);
    }
    free(first);
    free(other);
}

static void test_placement_changes_no_bit(void **state)
{
    (void)state;
    check_bits(OFL_COMPUTE_F32, OFL_KV_F32);
    check_bits(OFL_COMPUTE_BF16, OFL_KV_Q8_0);
}

static void test_bf16_is_near(void **state)
{
    (void)state;
    for (size_t i = 0; i < TINY; i++) {
        golden g = read_golden(tiny[i].logits);
        rig_options o = plain;
        o.compute_type = OFL_COMPUTE_BF16;
        o.kv_type = OFL_KV_BF16;
        rig r;
        rig_open(&r, tiny[i].model, &o);
        float *logits = malloc((uint64_t)g.count * g.vocab * sizeof *logits);
        assert_non_null(logits);
        rig_all_logits(&r, 0, g.ids, g.count, g.count, logits);
        double error = rig_distance(logits, g.logits, (uint64_t)g.count * g.vocab);
        if (!(error < 0.03)) fail_msg("%s in bf16: relative error %g", tiny[i].model, error);
        free(logits);
        rig_close(&r);
        free(g.file);
    }
}

static void refuse(rig *r, rig_step *s, const char *part)
{
    assert_int_equal(forward_step(r->f, &s->step, s->tokens, 0, NULL), OFL_ERROR_ARGUMENT);
    if (strstr(app_error(), part) == NULL) fail_msg("\"%s\" does not say \"%s\"", app_error(), part);
}

static void test_bad_steps(void **state)
{
    (void)state;
    static rig_step s;
    const int32_t ids[2] = {5, 6}, far[1] = {100000}, below[1] = {-1};
    rig r;
    rig_options o = plain;
    o.sequences = 2;
    rig_open(&r, tiny[1].model, &o);
    rig_begin(&s, &r);
    rig_add(&s, 0, 0, far, 1, true);
    refuse(&r, &s, "token id 100000");
    rig_begin(&s, &r);
    rig_add(&s, 0, 0, below, 1, true);
    refuse(&r, &s, "token id -1");
    rig_begin(&s, &r);
    rig_add(&s, 0, 63, ids, 2, true);
    refuse(&r, &s, "KV blocks");
    rig_begin(&s, &r);
    rig_add(&s, 0, 0, ids, 2, true);
    s.blocks[0][0] = 4000000;
    refuse(&r, &s, "KV block 4000000");
    rig_begin(&s, &r);
    for (uint32_t i = 0; i < 3; i++) rig_add(&s, 0, i, ids, 1, true);
    refuse(&r, &s, "logits of 3 rows");
    rig_begin(&s, &r);
    refuse(&r, &s, "0 tokens");
    rig_begin(&s, &r);
    rig_add(&s, 0, 0, ids, 2, true);
    (void)rig_run(&s); /* and goes on */
    rig_close(&r);
}

static void test_measure(void **state)
{
    (void)state;
    ofl_model *model = NULL;
    ofl_device *device = NULL;
    assert_ok(ofl_model_open(tiny[1].model, &model));
    assert_ok(ofl_device_open("sim:vram=1MB,h2d=1GB/s", &device));
    for (uint32_t most = 1; most <= 100; most += 99) {
        ofl_compute_figures f = {.struct_size = sizeof f};
        forward_measure_job job = {.model = model, .device = device, .compute_type = OFL_COMPUTE_F32, .kv_type = most == 1 ? OFL_KV_BF16 : OFL_KV_F16,
                                   .threads = 1, .max_tokens = most, .max_rows = most};
        assert_app(forward_measure(&job, &f));
        assert_true(f.attention_seconds_per_kv_token > 0 && f.prefill_attention_seconds_per_kv_token > 0);
        assert_true(f.points[f.point_count - 1].tokens == most && f.head_points[f.head_point_count - 1].tokens == (most < 64 ? most : 64));
        for (uint32_t i = 0; i < f.point_count; i++) assert_true(f.points[i].seconds_per_element > 0 && f.points[i].seconds_per_element < 1);
        job.max_tokens = 0;
        assert_int_equal(forward_measure(&job, &f), OFL_ERROR_ARGUMENT);
    }
    ofl_device_close(device);
    ofl_model_destroy(model);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_measure),      cmocka_unit_test(test_reference_logits), cmocka_unit_test(test_placement_changes_no_bit),
    cmocka_unit_test(test_bf16_is_near), cmocka_unit_test(test_bad_steps),
};
TEST_MAIN(tests)
