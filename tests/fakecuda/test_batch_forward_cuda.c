/* The forward pass on a GPU beside the one on the CPU: reference logits, every KV type, placements, tokens chosen, failures. Over the stand-in
 * runtime with the kernels' bodies on the CPU, or, as another program, on a GPU. */
#include "support/support.h"

#include <dlfcn.h>

#include "support/forward_models.h"

static int (*fake_live)(void), (*fake_fired)(void); /* of the stand-in; NULL: a real runtime */
static unsigned long (*fake_calls)(const char *call);

static void find(void *function, const char *name)
{
    void *symbol = dlsym(RTLD_DEFAULT, name);
    memcpy(function, &symbol, sizeof symbol);
}

static bool open_device(void)
{
    ofl_device *device = NULL;
    forward_use(&forward_cuda);
    find(&fake_live, "fakecuda_live");
    find(&fake_fired, "fakecuda_fired");
    find(&fake_calls, "fakecuda_calls");
    if (ofl_device_open("cuda:0", &device) != OFL_OK) return false;
    ofl_device_close(device);
    return true;
}

static rig_options on_gpu(rig_options o)
{
    o.device = "cuda:0";
    o.kind = &forward_cuda;
    return o;
}

static const rig_options plain = {
    .compute_type = OFL_COMPUTE_F32, .kv_type = OFL_KV_F32, .sequences = 40, .context = 64, .prefill_chunk = 64, .threads = 1};

/* ---- the same numbers ---- */

static void check_reference(size_t which, ofl_compute_type compute, ofl_kv_type kv, double most)
{
    static const uint32_t chunks[] = {1, 7, 16};
    golden g = read_golden(tiny[which].logits);
    rig_options o = on_gpu(plain);
    uint64_t values = (uint64_t)g.count * g.vocab;
    float *logits = malloc(values * sizeof *logits);
    rig r;
    o.compute_type = compute;
    o.kv_type = kv;
    assert_non_null(logits);
    rig_open(&r, tiny[which].model, &o);
    for (size_t c = 0; c < 3; c++) {
        rig_all_logits(&r, 3 * (uint32_t)c, g.ids, g.count, chunks[c], logits);
        double error = rig_distance(logits, g.logits, values);
        if (!(error < most)) fail_msg("%s, steps of %u tokens: relative error %g", tiny[which].model, chunks[c], error);
        const float *last = rig_last_logits(&r, 20, g.ids, g.count, chunks[c]);
        error = rig_distance(last, g.logits + (uint64_t)(g.count - 1) * g.vocab, g.vocab);
        if (!(error < 2 * most)) fail_msg("%s, a prompt in shares of %u: relative error %g", tiny[which].model, chunks[c], error);
    }
    rig_close(&r);
    free(logits);
    free(g.file);
}

static void test_reference_logits(void **state)
{
    (void)state;
    for (size_t i = 0; i < TINY; i++) {
        check_reference(i, OFL_COMPUTE_F32, OFL_KV_F32, 1e-5);
        check_reference(i, OFL_COMPUTE_BF16, OFL_KV_BF16, 0.03);
    }
}

#define BATCH_VALUES (4 * (uint64_t)BIG_VOCAB)

static void batch_logits(const rig_options *options, float *out)
{
    int32_t ids[40];
    uint64_t seed = 77;
    big_model big;
    rig r;
    for (int i = 0; i < 40; i++) ids[i] = (int32_t)(test_random(&seed) % BIG_VOCAB);
    rig_open_model(&r, build_big(&big), options);
    assert_true(options->streamed == 0 || rig_streamed_share(&r) >= options->streamed);
    run_batch(&r, ids, out);
    run_batch(&r, ids, out); /* across the step boundary */
    rig_close(&r);
    free_big(&big);
}

/* Resident; streamed in the planner's parts and in small ones, with the ring that each takes; whole blocks; layers forced. */
static void choose_placements(const rig_options *resident, rig_options o[5])
{
    for (int i = 0; i < 5; i++) o[i] = *resident;
    o[1].streamed = 0.7;
    o[2].streamed = 0.5;
    o[2].cut = OFL_CUT_BYTES;
    o[2].part_bytes = 70000;
    o[3].cut = OFL_CUT_OFF;
    o[3].streamed = 0.3;
    o[4].force_layers = 1;
    o[4].resident_layers = 1;
}

static void check_types(ofl_compute_type compute, ofl_kv_type kv, double most)
{
    rig_options cpu = {.compute_type = compute, .kv_type = kv, .sequences = 8, .context = 48, .prefill_chunk = 48, .threads = 1};
    rig_options gpu = on_gpu(cpu), o[5];
    static float wanted[BATCH_VALUES], first[BATCH_VALUES], other[BATCH_VALUES];
    batch_logits(&cpu, wanted);
    choose_placements(&gpu, o);
    for (int i = 0; i < 5; i++) {
        batch_logits(&o[i], other);
        double error = rig_distance(other, wanted, BATCH_VALUES);
        if (!(error < most)) fail_msg("compute %d, KV %s, placement %d: relative error %g", (int)compute, ofl_kv_type_name(kv), i, error);
        if (i == 0) memcpy(first, other, sizeof first);
        /* A product's bits may depend on how many rows it has on a GPU; on the stand-in they do not. */
        if (fake_live != NULL && memcmp(first, other, sizeof first) != 0) fail_msg("other bits under placement %d", i);
    }
}

static void test_every_type_wherever_weights_are(void **state)
{
    (void)state;
    check_types(OFL_COMPUTE_F32, OFL_KV_F32, 1e-5);
    check_types(OFL_COMPUTE_F32, OFL_KV_F16, 1e-3);
    check_types(OFL_COMPUTE_F32, OFL_KV_Q8_0, 1e-2);
    check_types(OFL_COMPUTE_BF16, OFL_KV_BF16, 2e-2);
    check_types(OFL_COMPUTE_BF16, OFL_KV_Q8_0, 2e-2);
}

/* A context that is attended to in parts, put together. */
static void test_long_context(void **state)
{
    (void)state;
    enum { COUNT = 1060 };
    static int32_t ids[COUNT];
    static float wanted[BIG_VOCAB];
    rig_options cpu = {
        .compute_type = OFL_COMPUTE_F32, .kv_type = OFL_KV_F32, .sequences = 2, .context = COUNT + 8, .prefill_chunk = 353, .threads = 2};
    rig_options gpu = on_gpu(cpu);
    uint64_t seed = 5;
    big_model big;
    rig r;
    for (int i = 0; i < COUNT; i++) ids[i] = (int32_t)(test_random(&seed) % BIG_VOCAB);
    for (int on = 0; on < 2; on++) {
        rig_open_model(&r, build_big(&big), on ? &gpu : &cpu);
        (void)rig_last_logits(&r, 1, ids, COUNT - 1, 353);
        static rig_step s;
        rig_begin(&s, &r);
        rig_add(&s, 1, COUNT - 1, ids + COUNT - 1, 1, true); /* decodes */
        const float *logits = rig_run(&s);
        if (on) assert_true(rig_distance(logits, wanted, BIG_VOCAB) < 1e-5);
        else memcpy(wanted, logits, sizeof wanted);
        rig_close(&r);
        free_big(&big);
    }
}

/* ---- tokens ---- */

#define ROWS 12u

static void wish(row_choice *rows)
{
    static const double temperatures[] = {0, 1, 0.3}, shares[] = {1, 0.9, 0.5, 1};
    static const uint32_t limits[] = {0, 5, 40}, lists[] = {0, 1, 4, 21};
    uint64_t seed = 9;
    for (uint32_t i = 0; i < ROWS; i++) {
        rows[i] = (row_choice){.logprobs = lists[i % 4]};
        rows[i].how = (sampling){temperatures[i % 3], shares[i % 4], limits[i / 4], (double)(test_random(&seed) % 1000) / 1000};
    }
}

static void compare(const row_choice *got, const row_choice *wanted)
{
    assert_int_equal(got->token, wanted->token);
    for (uint32_t k = 0; k < got->logprobs && got->token >= 0; k++) {
        assert_int_equal(got->entries[k].id, wanted->entries[k].id);
        assert_true(fabsf(got->entries[k].value - wanted->entries[k].value) <= 1e-4f);
    }
}

/* A step of ROWS sequences, its tokens chosen on the device and from its logits on the host. */
static void choose(rig *r, uint32_t usable, row_choice *got, row_choice *wanted)
{
    static rig_step s;
    static uint64_t scratch[BIG_VOCAB];
    const float *logits;
    uint64_t seed = 31;
    rig_begin(&s, r);
    for (uint32_t i = 0; i < ROWS; i++) {
        int32_t ids[3];
        for (int t = 0; t < 3; t++) ids[t] = (int32_t)(test_random(&seed) % BIG_VOCAB);
        rig_add(&s, i, 0, ids, 1 + i % 3, true);
    }
    wish(got);
    wish(wanted);
    assert_app(forward_step(r->f, &s.step, s.tokens, usable, got));
    assert_app(forward_logits(r->f, &logits));
    choose_rows(wanted, ROWS, logits, BIG_VOCAB, usable, scratch);
}

static void test_tokens_are_those_of_the_host(void **state)
{
    (void)state;
    rig_options o = on_gpu((rig_options){
        .compute_type = OFL_COMPUTE_F32, .kv_type = OFL_KV_F16, .sequences = ROWS, .context = 48, .prefill_chunk = 48, .streamed = 0.4});
    static row_choice got[ROWS], wanted[ROWS];
    static const uint32_t usable[] = {BIG_VOCAB, BIG_VOCAB - 13, 30, 1};
    big_model big;
    rig r;
    rig_open_model(&r, build_big(&big), &o);
    for (size_t u = 0; u < 4; u++) {
        choose(&r, usable[u], got, wanted);
        for (uint32_t i = 0; i < ROWS; i++) compare(&got[i], &wanted[i]);
    }
    rig_close(&r);
    free_big(&big);
}

/* Weights that are no numbers: no token, on either back end. */
static void test_no_token_without_a_number(void **state)
{
    (void)state;
    rig_options cpu = {.compute_type = OFL_COMPUTE_F32, .kv_type = OFL_KV_F32, .sequences = ROWS, .context = 48, .prefill_chunk = 48, .threads = 1};
    rig_options gpu = on_gpu(cpu);
    static row_choice got[ROWS], wanted[ROWS];
    for (int on = 0; on < 2; on++) {
        big_model big;
        rig r;
        ofl_model *model = build_big(&big);
        uint16_t *norm = big.data[big.count - 2]; /* the last one: stored as f16 */
        for (uint32_t i = 0; i < BIG_HIDDEN; i++) norm[i] = 0x7e00;
        rig_open_model(&r, model, on ? &gpu : &cpu);
        choose(&r, BIG_VOCAB, got, wanted);
        for (uint32_t i = 0; i < ROWS; i++) assert_true(got[i].token == -1 && wanted[i].token == -1);
        rig_close(&r);
        free_big(&big);
    }
}

/* ---- refusals, less memory, failures ---- */

static void refuse(rig *r, rig_step *s, const char *part)
{
    assert_int_equal(forward_step(r->f, &s->step, s->tokens, 0, NULL), OFL_ERROR_ARGUMENT);
    if (strstr(app_error(), part) == NULL) fail_msg("\"%s\" does not say \"%s\"", app_error(), part);
}

static void test_bad_steps(void **state)
{
    (void)state;
    static rig_step s;
    const int32_t ids[2] = {5, 6}, far[1] = {100000};
    rig r;
    rig_options o = on_gpu(plain);
    o.sequences = 2;
    rig_open(&r, tiny[1].model, &o);
    rig_begin(&s, &r);
    rig_add(&s, 0, 0, far, 1, true);
    refuse(&r, &s, "token id 100000");
    rig_begin(&s, &r);
    rig_add(&s, 0, 0, ids, 2, true);
    s.blocks[0][0] = 4000000;
    refuse(&r, &s, "KV block 4000000");
    rig_begin(&s, &r);
    for (uint32_t i = 0; i < 3; i++) rig_add(&s, 0, i, ids, 1, true);
    refuse(&r, &s, "logits of 3 rows");
    rig_begin(&s, &r);
    rig_add(&s, 0, 0, ids, 2, true);
    (void)rig_run(&s); /* and goes on */
    rig_close(&r);
}

static void test_shrinking_keeps_what_kv_holds(void **state)
{
    (void)state;
    ofl_memory_info before = {.struct_size = sizeof before}, after = before;
    golden g = read_golden(tiny[1].logits);
    rig_options o = on_gpu(plain);
    const float *wanted = g.logits + (uint64_t)(g.count - 1) * g.vocab;
    static rig_step s;
    rig r;
    rig_open(&r, tiny[1].model, &o);
    (void)rig_last_logits(&r, 2, g.ids, g.count - 1, 16);
    assert_ok(ofl_device_memory_get(r.device, &before));
    assert_app(forward_shrink(r.f, 20, 4, r.settings.kv_capacity_tokens));
    assert_ok(ofl_device_memory_get(r.device, &after));
    assert_true(after.used_bytes < before.used_bytes);
    rig_begin(&s, &r);
    rig_add(&s, 2, g.count - 1, g.ids + g.count - 1, 1, true);
    assert_true(rig_distance(rig_run(&s), wanted, g.vocab) < 1e-5);
    unsigned long handles = fake_calls != NULL ? fake_calls("cublasCreate") : 0;
    assert_app(forward_shrink(r.f, 10, 4, r.settings.kv_capacity_tokens / 8 * 7));
    if (fake_calls != NULL) assert_int_equal(fake_calls("cublasCreate"), handles); /* none is made when memory is short */
    assert_true(rig_distance(rig_last_logits(&r, 1, g.ids, g.count, 10), wanted, g.vocab) < 1e-5);
    rig_close(&r);
    free(g.file);
}

static void test_measure(void **state)
{
    (void)state;
    ofl_model *model = NULL;
    ofl_device *device = NULL;
    ofl_memory_info memory = {.struct_size = sizeof memory};
    assert_ok(ofl_model_open(tiny[1].model, &model));
    assert_ok(ofl_device_open("cuda:0", &device));
    ofl_compute_figures f = {.struct_size = sizeof f};
    forward_measure_job job = {
        .model = model, .device = device, .compute_type = OFL_COMPUTE_BF16, .kv_type = OFL_KV_F16, .max_tokens = 70, .max_rows = 70};
    assert_app(forward_measure(&job, &f));
    assert_true(f.point_count > 0 && f.points[f.point_count - 1].tokens == 70 && f.head_points[f.head_point_count - 1].tokens == 64);
    for (uint32_t i = 0; i < f.point_count; i++) assert_true(f.points[i].seconds_per_element > 0);
    assert_ok(ofl_device_memory_get(device, &memory));
    assert_int_equal(memory.used_bytes, 0);
    assert_int_equal(memory.pinned_bytes, 0);
    ofl_device_close(device);
    ofl_model_destroy(model);
}

static uint64_t measuring_takes(const ofl_model *model, uint64_t memory_bytes)
{
    ofl_device *device = NULL;
    ofl_memory_info memory = {.struct_size = sizeof memory};
    ofl_compute_figures f = {.struct_size = sizeof f};
    assert_ok(ofl_device_open("cuda:0", &device));
    const forward_measure_job job = {.model = model, .device = device, .compute_type = OFL_COMPUTE_BF16, .kv_type = OFL_KV_F16,
                                     .max_tokens = 8, .max_rows = 8, .memory_bytes = memory_bytes, .drawn_share = 0.5};
    assert_app(forward_measure(&job, &f));
    assert_ok(ofl_device_memory_get(device, &memory));
    ofl_device_close(device);
    return memory.peak_bytes;
}

static void test_measuring_keeps_to_what_it_may_take(void **state)
{
    (void)state;
    big_model big;
    ofl_model *model = build_big(&big);
    uint64_t all = measuring_takes(model, 0), capped = measuring_takes(model, 1 << 20);
    assert_true(capped < all);
    ofl_model_destroy(model);
    free_big(&big);
}

/* Opens engine and forward pass, runs two steps and closes both. */
static ofl_status open_and_run(rig *r)
{
    static rig_step s;
    const int32_t ids[4] = {5, 6, 7, 8};
    forward *f = NULL;
    ofl_engine *engine = NULL;
    ofl_status status = ofl_engine_open(r->plan, r->model, r->device, NULL, &engine);
    if (status != OFL_OK) return app_forward(status);
    status = forward_open(r->model, r->plan, engine, r->device, 1, &f);
    for (uint32_t i = 0; i < 2 && status == OFL_OK; i++) {
        row_choice row = {.how = {.temperature = 0}};
        rig_begin(&s, r);
        rig_add(&s, 0, 3 * i, ids, i == 0 ? 3 : 1, true);
        status = forward_step(f, &s.step, s.tokens, BIG_VOCAB, &row);
    }
    forward_close(f);
    ofl_engine_close(engine);
    return status;
}

static void test_every_call_may_fail(void **state)
{
    (void)state;
    rig_options o = on_gpu((rig_options){
        .compute_type = OFL_COMPUTE_BF16, .kv_type = OFL_KV_F16, .sequences = 2, .context = 32, .prefill_chunk = 16, .streamed = 0.5});
    big_model big;
    rig r;
    const char *spec = getenv("OFLOAD_FAKECUDA_SPEC");
    if (fake_live == NULL || spec == NULL || strstr(spec, "virtual") != NULL) skip(); /* once is enough */
    rig_open_model(&r, build_big(&big), &o);
    forward_close(r.f);
    ofl_engine_close(r.engine);
    r.f = NULL;
    r.engine = NULL;
    assert_app(open_and_run(&r));
    int live = fake_live(), failed = 0;
    bool all = getenv("OFLOAD_TEST_LONG") != NULL; /* else every call of the opening's beginning, then fewer and fewer of the many alike */
    for (int nth = 1;; nth += all ? 1 : 1 + nth / 12) {
        char text[32];
        int fired = fake_fired();
        (void)snprintf(text, sizeof text, "*:%d:2", nth);
        assert_int_equal(setenv("OFLOAD_FAKECUDA_FAIL", text, 1), 0);
        ofl_status status = open_and_run(&r);
        assert_int_equal(unsetenv("OFLOAD_FAKECUDA_FAIL"), 0);
        if (fake_fired() == fired) break;
        failed += status != OFL_OK;
        if (status != OFL_OK) assert_true(app_error()[0] != '\0');
        int left = fake_live() - live; /* what could not be given back, since that call failed, is the runtime's */
        if (left != 0 && !(left == 1 && status == OFL_OK)) fail_msg("call %d: %d objects are left", nth, left);
        live += left;
    }
    assert_true(failed > 30);
    assert_app(open_and_run(&r)); /* as if nothing had happened */
    rig_close(&r);
    free_big(&big);
}

/* What the caller can do about a failure: CALL:N:CODE of a step, and what the step says. */
static void test_what_a_failure_means(void **state)
{
    (void)state;
    static const struct { const char *failure; ofl_status status; } cases[] = {
        {"cublasGemmEx:3:14", OFL_ERROR_RUNTIME},
        {"cublasGemmEx:3:13", OFL_ERROR_RUNTIME},            /* its execution failed, and the runtime knows of nothing */
        {"cublasGemmEx:3:700", OFL_ERROR_DEVICE_LOST},       /* the wait knows better than the queueing */
        {"cudaLaunchHostFunc:5:2", OFL_ERROR_DEVICE_MEMORY}, /* a kernel or a product */
        {"cudaLaunchHostFunc:6:2", OFL_ERROR_DEVICE_MEMORY},
        {"cudaLaunchHostFunc:7:719", OFL_ERROR_DEVICE_LOST},
        {"cudaEventElapsedTime:1:719", OFL_ERROR_DEVICE_LOST},
        {"cudaEventSynchronize:1:700", OFL_ERROR_DEVICE_LOST}};
    rig_options o = on_gpu((rig_options){
        .compute_type = OFL_COMPUTE_F32, .kv_type = OFL_KV_F16, .sequences = 2, .context = 32, .prefill_chunk = 16, .streamed = 0.5});
    if (fake_live == NULL) skip();
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        static rig_step s;
        const int32_t id = 5;
        big_model big;
        rig r;
        rig_open_model(&r, build_big(&big), &o);
        rig_begin(&s, &r);
        rig_add(&s, 0, 0, &id, 1, true);
        assert_int_equal(setenv("OFLOAD_FAKECUDA_FAIL", cases[i].failure, 1), 0);
        ofl_status status = forward_step(r.f, &s.step, s.tokens, 0, NULL);
        assert_int_equal(unsetenv("OFLOAD_FAKECUDA_FAIL"), 0);
        if (status != cases[i].status) fail_msg("%s: %s: %s", cases[i].failure, ofl_status_name(status), app_error());
        rig_close(&r);
        free_big(&big);
    }
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_reference_logits),
    cmocka_unit_test(test_every_type_wherever_weights_are),
    cmocka_unit_test(test_long_context),
    cmocka_unit_test(test_tokens_are_those_of_the_host),
    cmocka_unit_test(test_no_token_without_a_number),
    cmocka_unit_test(test_bad_steps),
    cmocka_unit_test(test_shrinking_keeps_what_kv_holds),
    cmocka_unit_test(test_measure),
    cmocka_unit_test(test_measuring_keeps_to_what_it_may_take),
    cmocka_unit_test(test_every_call_may_fail),
    cmocka_unit_test(test_what_a_failure_means),
};

int main(void)
{
    if (!open_device()) {
        (void)printf("skipped: %s\n", ofl_error_message());
        return getenv("OFLOAD_TEST_DEVICE_NEEDED") != NULL ? 1 : 77;
    }
    return cmocka_run_group_tests(tests, NULL, NULL) == 0 ? 0 : 1;
}
