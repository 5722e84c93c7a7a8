/* Faults that people met in programs that keep weights in host memory and stream them, on the simulated device; test_engine_cuda and
 * test_engine_streams have the same on the other back end. tests/README.md says which case is tested where. */
#include "support/engine_fixture.h"

#include <sys/resource.h>

#include "base/base.h"

enum { PENDING = 256 };

typedef struct used { fixture_check check; ofl_view_slice slices[8]; } used;

/* Steps in order on one stream, each unit read by work of `seconds`; wrong slices are counted when that work runs. */
static uint32_t run_steps(fixture *f, uint32_t steps, double seconds)
{
    uint32_t wrong = 0;
    ofl_stream *stream;
    used *all = calloc(PENDING, sizeof *all);
    assert_non_null(all);
    assert_ok(ofl_stream_create(f->device, &stream));
    for (uint32_t i = 0; i < steps * f->units; i++) {
        ofl_view view = {.struct_size = sizeof view};
        used *u = &all[i % PENDING];
        if (i % PENDING == 0) assert_ok(ofl_stream_wait(f->device, stream));
        assert_ok(ofl_engine_acquire(f->engine, i % f->units, stream, &view));
        assert_true(view.slice_count <= 8);
        memcpy(u->slices, view.slices, view.slice_count * sizeof *view.slices);
        u->check = (fixture_check){f->model, u->slices, view.slice_count, &wrong};
        assert_ok(ofl_sim_launch(f->device, stream, fixture_check_run, &u->check, seconds));
        assert_ok(ofl_engine_release(f->engine, i % f->units, stream));
    }
    assert_ok(ofl_stream_wait(f->device, stream));
    ofl_stream_destroy(f->device, stream);
    free(all);
    return wrong;
}

static fixture_case two_pieces(const ofl_model *model, double link)
{
    fixture_case c = {.link = link, .start = 1e-6, .compute = 1e-9, .cut = OFL_CUT_BYTES, .part_bytes = 128 * 1024};
    c.vram = fixture_least_vram(c, model) + 200000;
    c.ring_bytes = 256 * 1024;
    return c;
}

static char said[512];
static uint32_t times_said;
static void remember(void *context, const char *sentence)
{
    (void)context;
    times_said++;
    (void)snprintf(said, sizeof said, "%s", sentence);
}

static const ofl_engine_options poisoned = {.struct_size = sizeof poisoned, .message = remember, .poison = 1};

/* 71, 72: less can be page-locked than planned, from the first piece on or half-way. The rest is copied from pageable memory, which is said
 * once, of host memory; page-locking is not tried again; the bytes are right. */
static void test_71_page_locking_is_refused(void **state)
{
    (void)state;
    fixture_model model;
    fixture_model_open(&model, 0);
    for (int half_way = 0; half_way < 2; half_way++) {
        fixture_case c = two_pieces(model.model, 2e9);
        c.pinnable_there = FIXTURE_VOCAB * FIXTURE_HIDDEN * sizeof(float) + (half_way ? 4u << 20 : 8192);
        fixture f;
        times_said = 0;
        fixture_open(&f, &c, &model, &poisoned);
        assert_int_equal(times_said, 1);
        assert_non_null(strstr(said, "host memory"));
        assert_non_null(strstr(said, "slower"));
        assert_null(strstr(said, "device memory"));
        ofl_engine_stats stats = {.struct_size = sizeof stats};
        assert_ok(ofl_engine_stats_get(f.engine, &stats));
        assert_true(stats.pinned_bytes <= c.pinnable_there && stats.pageable_bytes > 0);
        assert_int_equal(run_steps(&f, 3, 1e-5), 0);
        fixture_close(&f);
    }
    fixture_model_close(&model);
}

/* 76: `ulimit -l` does not govern page-locking through the device: as much is pinned as planned, and nobody is told to raise it. */
static void test_76_ulimit_does_not_matter(void **state)
{
    (void)state;
    fixture_model model;
    fixture_model_open(&model, 0);
    fixture_case c = two_pieces(model.model, 2e9);
    struct rlimit before, low;
    assert_int_equal(getrlimit(RLIMIT_MEMLOCK, &before), 0);
    low = (struct rlimit){65536, before.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_MEMLOCK, &low), 0);
    fixture f;
    times_said = 0;
    fixture_open(&f, &c, &model, &poisoned);
    assert_int_equal(times_said, 0);
    ofl_engine_stats stats = {.struct_size = sizeof stats};
    assert_ok(ofl_engine_stats_get(f.engine, &stats));
    assert_int_equal(stats.pageable_bytes, 0);
    assert_int_equal(run_steps(&f, 2, 1e-5), 0);
    fixture_close(&f);
    assert_int_equal(setrlimit(RLIMIT_MEMLOCK, &before), 0);
    fixture_model_close(&model);
}

/* 80: a ring of two pieces; the reader is slow (50 ms a unit), then the copies are. */
static void test_80_slow_reader_then_slow_copies(void **state)
{
    (void)state;
    fixture_model model;
    fixture_model_open(&model, 0);
    for (uint64_t seed = 0; seed < 4; seed++) {
        for (int slow_copies = 0; slow_copies < 2; slow_copies++) {
            fixture_case c = two_pieces(model.model, slow_copies ? 2e6 : 2e10);
            c.order = seed;
            fixture f;
            fixture_open(&f, &c, &model, &poisoned);
            assert_int_equal(run_steps(&f, 3, slow_copies ? 0 : 0.05), 0);
            fixture_close(&f);
        }
    }
    fixture_model_close(&model);
}

static int stop_at_once(void *context, uint64_t done, uint64_t total)
{
    (void)context;
    (void)done;
    (void)total;
    return 1;
}

/* 82: opened and closed with copies in flight, and given up half-way through loading: what they use is freed only behind them
 * (fixture_device_close asks). */
static void test_82_nothing_is_freed_under_a_copy(void **state)
{
    (void)state;
    static const ofl_engine_options stopping = {.struct_size = sizeof stopping, .progress = stop_at_once};
    fixture_model model;
    fixture_model_open(&model, 0);
    for (int i = 0; i < 12; i++) {
        fixture_case c = two_pieces(model.model, 1e7);
        c.vram += 400000; /* something resident, so that loading copies */
        c.clock = i % 2 ? "wall" : "virtual";
        if (c.clock[0] == 'w') c.link = 1e9;
        if (i / 2 % 3 > 0) c.pinnable = 1 << 20;
        if (i / 2 % 3 > 1) c.host_bytes = 2 << 20;
        ofl_plan *plan;
        ofl_device *device;
        ofl_engine *engine;
        assert_ok(fixture_plan_make(&c, model.model, &plan));
        fixture_device_open(&c, &device);
        if (i < 6) {
            assert_ok(ofl_engine_open(plan, model.model, device, NULL, &engine));
            ofl_engine_close(engine);
        } else {
            assert_status(ofl_engine_open(plan, model.model, device, &stopping, &engine), OFL_ERROR_CANCELLED);
        }
        fixture_device_close(device);
        ofl_plan_destroy(plan);
    }
    fixture_model_close(&model);
}

/* 84: every whole layer that is kept fewer is streamed instead, all of them are accounted for, and the bytes on the device drop. */
static void test_84_layers_that_are_not_kept_leave_the_device(void **state)
{
    (void)state;
    fixture_model model;
    fixture_model_open(&model, 0);
    uint64_t before = UINT64_MAX, all = model.bytes - FIXTURE_VOCAB * FIXTURE_HIDDEN * sizeof(float); /* less the embedding */
    for (uint32_t kept = FIXTURE_BLOCKS; kept-- > 0;) {
        fixture_case c = {.link = 2e9, .compute = 1e-9, .vram = 16u << 20, .whole_blocks = 1, .layers_kept = kept};
        fixture f;
        fixture_open(&f, &c, &model, NULL);
        ofl_engine_stats stats = {.struct_size = sizeof stats};
        assert_ok(ofl_engine_stats_get(f.engine, &stats));
        uint64_t resident = stats.device_bytes - f.budget.ring_bytes;
        assert_true(resident < before);
        assert_int_equal(resident + f.budget.stream_bytes_per_step, all);
        before = resident;
        fixture_close(&f);
    }
    fixture_model_close(&model);
}

enum { SMALL_BLOCKS = 4, SMALL = 300, LARGE_ROWS = 1280 };

static ofl_status add_tensor(ofl_model_builder *builder, int32_t block, int index, const char *data)
{
    static const ofl_tensor_role roles[] = {OFL_ROLE_FFN_GATE, OFL_ROLE_FFN_UP, OFL_ROLE_FFN_DOWN};
    char name[64];
    int small = index < SMALL;
    (void)snprintf(name, sizeof name, "blk.%d.%d", (int)block, index);
    ofl_tensor_source source = {
        .struct_size = sizeof source,
        .name = name,
        .dtype = OFL_DTYPE_F32,
        .tensor_class = OFL_CLASS_DENSE,
        .role = small ? OFL_ROLE_OTHER : roles[index - SMALL],
        .block = block,
        .n_dims = small ? 1 : 2,
        .dims = {1024, small ? 0 : LARGE_ROWS},
        .data = data,
    };
    return ofl_model_builder_add_tensor(builder, &source);
}

static void step_without_work(fixture *f, ofl_stream *stream)
{
    for (uint32_t unit = 0; unit < f->units; unit++) {
        ofl_view view = {.struct_size = sizeof view};
        assert_ok(ofl_engine_acquire(f->engine, unit, stream, &view));
        assert_ok(ofl_engine_release(f->engine, unit, stream));
    }
    assert_ok(ofl_stream_wait(f->device, stream));
}

/* 85: blocks of 300 tensors of 4 KiB and three large ones (here of 5 MiB), streamed whole: a copy a block or few, and the link near its rate. */
static void test_85_small_tensors_share_their_copies(void **state)
{
    (void)state;
    ofl_model_shape shape = {.struct_size = sizeof shape, .block_count = SMALL_BLOCKS, .hidden_size = 1024, .head_count = 4, .head_count_kv = 4,
                             .head_dim_k = 256, .head_dim_v = 256, .ffn_size = 1280, .vocab_size = 256, .trained_context_tokens = 64};
    char *data = calloc(LARGE_ROWS, 4096);
    ofl_model_builder *builder;
    fixture_model model = {0};
    assert_non_null(data);
    assert_ok(ofl_model_builder_create("small tensors", "llama", &shape, &builder));
    for (int i = 0; i < SMALL_BLOCKS * (SMALL + 3); i++) assert_ok(add_tensor(builder, i / (SMALL + 3), i % (SMALL + 3), data));
    assert_ok(ofl_model_builder_finish(builder, &model.model));
    fixture_case c = {.link = 24.66e9, .start = 5e-6, .compute = 1e-13, .vram = 64u << 20, .whole_blocks = 1};
    fixture f;
    ofl_stream *stream;
    ofl_engine_stats stats = {.struct_size = sizeof stats};
    fixture_open(&f, &c, &model, NULL);
    assert_ok(ofl_stream_create(f.device, &stream));
    uint64_t start = 0;
    for (int step = 0; step < 12; step++) {
        if (step == 4) {
            ofl_engine_stats_reset(f.engine);
            start = ofl_device_now_ns(f.device);
        }
        step_without_work(&f, stream);
    }
    assert_ok(ofl_engine_stats_get(f.engine, &stats));
    double rate = (double)stats.bytes_streamed / ((double)(ofl_device_now_ns(f.device) - start) * 1e-9);
    assert_true(f.budget.stream_bytes_per_step >= SMALL_BLOCKS * (uint64_t)(SMALL * 4096 + 3 * LARGE_ROWS * 4096));
    assert_true(stats.copies <= 8 * SMALL_BLOCKS * 4); /* the caller's large ones from where they lie, the small ones together */
    assert_true(rate >= 0.8 * c.link);
    ofl_stream_destroy(f.device, stream);
    fixture_close(&f);
    ofl_model_destroy(model.model);
    free(data);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_71_page_locking_is_refused),
    cmocka_unit_test(test_76_ulimit_does_not_matter),
    cmocka_unit_test(test_80_slow_reader_then_slow_copies),
    cmocka_unit_test(test_82_nothing_is_freed_under_a_copy),
    cmocka_unit_test(test_84_layers_that_are_not_kept_leave_the_device),
    cmocka_unit_test(test_85_small_tensors_share_their_copies),
};
TEST_MAIN(tests)
