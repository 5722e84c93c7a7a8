/* The engine on the simulated device, virtual clock: whatever the plan, the order, the timing and the stream, the reader sees the model's own bytes. */
#include "support/engine_fixture.h"

#include "base/base.h"

#define LINK 1e9

/* Walks units and checks each at the moment its work runs; the host is ahead of the device, so each check keeps its own memory until drained. */
typedef struct walker {
    fixture *f;
    ofl_stream *streams[2];
    fixture_check *checks;
    ofl_view_slice *slices;
    uint32_t checks_used, slices_used, wrong, ran;
    uint64_t random;
} walker;

enum { CHECKS = 4096, SLICES = 16384 };

static void walker_open(walker *w, fixture *f, uint64_t seed)
{
    *w = (walker){.f = f, .random = seed};
    w->checks = calloc(CHECKS, sizeof *w->checks);
    w->slices = calloc(SLICES, sizeof *w->slices);
    assert_true(w->checks != NULL && w->slices != NULL);
    for (int i = 0; i < 2; i++) assert_ok(ofl_stream_create(f->device, &w->streams[i]));
}

static void walker_drain(walker *w)
{
    for (int i = 0; i < 2; i++) assert_ok(ofl_stream_wait(w->f->device, w->streams[i]));
    assert_int_equal(w->wrong, 0);
    w->checks_used = w->slices_used = 0;
}

static void walker_close(walker *w)
{
    walker_drain(w);
    for (int i = 0; i < 2; i++) ofl_stream_destroy(w->f->device, w->streams[i]);
    free(w->checks);
    free(w->slices);
}

static void compute(walker *w, const ofl_view *view, ofl_stream *stream, double seconds)
{
    fixture_check *check = &w->checks[w->checks_used++];
    assert_true(w->checks_used <= CHECKS && w->slices_used + view->slice_count <= SLICES);
    memcpy(w->slices + w->slices_used, view->slices, view->slice_count * sizeof *view->slices);
    *check = (fixture_check){w->f->model, w->slices + w->slices_used, view->slice_count, &w->wrong};
    w->slices_used += view->slice_count;
    if (stream != NULL) {
        assert_ok(ofl_sim_launch(w->f->device, stream, fixture_check_run, check, seconds));
    } else {
        fixture_check_run(check);
        assert_ok(ofl_sim_elapse(w->f->device, seconds));
    }
}

static void use(walker *w, uint32_t unit, ofl_stream *stream, double seconds)
{
    ofl_view view = {.struct_size = sizeof view};
    assert_ok(ofl_engine_acquire(w->f->engine, unit, stream, &view));
    compute(w, &view, stream, seconds);
    assert_ok(ofl_engine_release(w->f->engine, unit, stream));
}

static double some_seconds(walker *w) { return (double)(test_random(&w->random) % 1000) * 1e-6; }

static ofl_stream *some_stream(walker *w)
{
    uint64_t which = test_random(&w->random) % 3;
    return which < 2 ? w->streams[which] : NULL;
}

static const ofl_engine_options poisoned = {.struct_size = sizeof(ofl_engine_options), .poison = 1};

static fixture_case case_between(const ofl_model *model, double share)
{
    fixture_case c = {.link = LINK, .start = 2e-6, .compute = 1e-9, .cut = OFL_CUT_BYTES, .part_bytes = 128 * 1024};
    uint64_t least = fixture_least_vram(c, model), all = 16u << 20;
    c.vram = least + (uint64_t)(share * (double)(all - least));
    return c;
}

/* All streamed, all resident and between; readers on a stream and on the host; any legal order of the device. */
static void test_steps_in_order(void **state)
{
    (void)state;
    fixture_model model;
    fixture_model_open(&model, 0);
    for (uint64_t seed = 0; seed < FIXTURE_SEEDS(24); seed++) {
        static const double shares[] = {0, 0.2, 0.4, 1};
        fixture_case c = case_between(model.model, shares[seed % 4]);
        c.order = seed / 4;
        fixture f;
        walker w;
        fixture_open(&f, &c, &model, &poisoned);
        walker_open(&w, &f, seed);
        for (int step = 0; step < 6; step++) {
            for (uint32_t unit = 0; unit < f.units; unit++) use(&w, unit, seed % 8 < 4 ? w.streams[0] : NULL, some_seconds(&w));
            if (seed % 2) assert_ok(ofl_engine_step_end(f.engine));
        }
        walker_close(&w);
        ofl_engine_stats stats = {.struct_size = sizeof stats};
        assert_ok(ofl_engine_stats_get(f.engine, &stats));
        assert_int_equal(stats.refetches, 0);
        assert_int_equal(stats.steps, seed % 2 ? 6 : 5);
        assert_true(stats.ring_high_water_bytes <= f.budget.ring_bytes);
        assert_int_equal(stats.device_bytes, f.budget.resident_bytes + f.budget.ring_bytes);
        assert_true(f.budget.stream_bytes_per_step == 0 || stats.bytes_streamed >= 5 * f.budget.stream_bytes_per_step);
        fixture_close(&f);
    }
    fixture_model_close(&model);
}

static void random_step(walker *w, uint32_t *order)
{
    uint32_t units = w->f->units, count = 0;
    for (uint32_t i = 0; i < units; i++) {
        uint64_t what = test_random(&w->random) % 16;
        if (what == 0) continue; /* skipped */
        order[count++] = what == 1 ? (uint32_t)(test_random(&w->random) % units) : i; /* out of order, perhaps a second time */
    }
    for (uint32_t i = 0; i < count; i++) use(w, order[i], some_stream(w), some_seconds(w));
    if (test_random(&w->random) % 2) assert_ok(ofl_engine_step_end(w->f->engine));
}

static void test_any_order(void **state)
{
    (void)state;
    fixture_model model;
    fixture_model_open(&model, 0);
    fixture_case base = case_between(model.model, 0.1);
    for (uint64_t seed = 1; seed <= FIXTURE_SEEDS(60); seed++) {
        fixture_case c = base;
        c.order = seed;
        fixture f;
        walker w;
        fixture_open(&f, &c, &model, &poisoned);
        walker_open(&w, &f, seed);
        uint32_t *order = calloc(f.units, sizeof *order);
        assert_non_null(order);
        for (int step = 0; step < 12; step++) {
            random_step(&w, order);
            walker_drain(&w);
        }
        free(order);
        walker_close(&w);
        fixture_close(&f);
    }
    fixture_model_close(&model);
}

/* A later order is learnt: the first step in it fetches anew, the next ones do not. */
static void test_order_is_learnt(void **state)
{
    (void)state;
    fixture_model model;
    fixture_model_open(&model, 0);
    fixture_case c = case_between(model.model, 0);
    fixture f;
    walker w;
    fixture_open(&f, &c, &model, &poisoned);
    walker_open(&w, &f, 1);
    ofl_engine_stats before = {.struct_size = sizeof before}, after = before;
    for (int step = 0; step < 5; step++) {
        if (step == 2) assert_ok(ofl_engine_stats_get(f.engine, &before));
        for (uint32_t unit = f.units; unit-- > 0;) use(&w, unit, w.streams[0], 1e-4);
        assert_ok(ofl_engine_step_end(f.engine));
    }
    assert_ok(ofl_engine_stats_get(f.engine, &after));
    assert_true(before.refetches > 0);
    assert_int_equal(after.refetches, before.refetches);
    walker_close(&w);
    fixture_close(&f);
    fixture_model_close(&model);
}

typedef struct held_unit { uint32_t unit; ofl_stream *stream; } held_unit;

/* Several units held at once: either handed out right, or refused because the ring is full. */
static void test_held_units(void **state)
{
    (void)state;
    fixture_model model;
    fixture_model_open(&model, 0);
    fixture_case base = case_between(model.model, 0.05);
    base.ring_bytes = 6 * base.part_bytes;
    base.vram += base.ring_bytes;
    uint32_t refused = 0, together = 0;
    for (uint64_t seed = 1; seed <= FIXTURE_SEEDS(30); seed++) {
        fixture_case c = base;
        c.order = seed;
        fixture f;
        walker w;
        held_unit held[4];
        uint32_t holding = 0;
        fixture_open(&f, &c, &model, &poisoned);
        walker_open(&w, &f, seed);
        for (uint32_t i = 0; i < 10 * f.units; i++) {
            held_unit next = {i % f.units, some_stream(&w)};
            ofl_view view = {.struct_size = sizeof view};
            int already = 0;
            for (uint32_t k = 0; k < holding; k++) already |= held[k].unit == next.unit;
            ofl_status status = ofl_engine_acquire(f.engine, next.unit, next.stream, &view);
            while (status == OFL_ERROR_STATE && holding > 0) {
                refused += !already;
                assert_ok(ofl_engine_release(f.engine, held[0].unit, held[0].stream));
                memmove(held, held + 1, --holding * sizeof *held);
                status = ofl_engine_acquire(f.engine, next.unit, next.stream, &view);
            }
            assert_ok(status);
            compute(&w, &view, next.stream, some_seconds(&w));
            held[holding++] = next;
            together += holding > 1;
            while (holding > test_random(&w.random) % 4) {
                uint32_t out = (uint32_t)(test_random(&w.random) % holding);
                assert_ok(ofl_engine_release(f.engine, held[out].unit, held[out].stream));
                memmove(held + out, held + out + 1, (--holding - out) * sizeof *held);
            }
            if (i % f.units == 0) walker_drain(&w);
        }
        while (holding-- > 0) assert_ok(ofl_engine_release(f.engine, held[holding].unit, held[holding].stream));
        walker_close(&w);
        fixture_close(&f);
    }
    assert_true(refused > 0 && together > 0);
    fixture_model_close(&model);
}

/* A block of many small tensors and a few big ones, streamed whole: one contiguous piece, one copy. */
static void test_one_copy_a_block(void **state)
{
    (void)state;
    fixture_model model;
    fixture_model_open(&model, 0);
    fixture_case c = {.link = LINK, .compute = 1e-9, .vram = 16u << 20, .whole_blocks = 1, .layers_kept = 2};
    fixture f;
    walker w;
    fixture_open(&f, &c, &model, &poisoned);
    walker_open(&w, &f, 1);
    ofl_engine_stats stats = {.struct_size = sizeof stats};
    for (int step = 0; step < 4; step++) {
        for (uint32_t unit = 0; unit < f.units; unit++) use(&w, unit, w.streams[0], 1e-4);
        if (step < 2) ofl_engine_stats_reset(f.engine);
    }
    assert_ok(ofl_engine_stats_get(f.engine, &stats));
    assert_int_equal(f.budget.stream_copies_per_step, FIXTURE_BLOCKS - 2);
    assert_int_equal(stats.copies, 2 * f.budget.stream_copies_per_step);
    assert_int_equal(stats.bytes_streamed, 2 * f.budget.stream_bytes_per_step);
    walker_close(&w);
    fixture_close(&f);
    fixture_model_close(&model);
}

/* Once the device's own queues have grown, a step allocates nothing, and it does not wait: no time passes on the host. */
static void test_steady_steps_neither_allocate_nor_wait(void **state)
{
    (void)state;
    fixture_model model;
    fixture_model_open(&model, 0);
    fixture_case c = case_between(model.model, 0.1);
    fixture f;
    ofl_stream *stream;
    fixture_open(&f, &c, &model, NULL);
    assert_ok(ofl_stream_create(f.device, &stream));
    for (int step = 0; step < 4; step++) {
        if (step == 2) (void)ofl_fault_allocation(1u << 30);
        uint64_t start = ofl_device_now_ns(f.device);
        for (uint32_t unit = 0; unit < f.units; unit++) {
            ofl_view view = {.struct_size = sizeof view};
            assert_ok(ofl_engine_acquire(f.engine, unit, stream, &view));
            assert_ok(ofl_sim_launch(f.device, stream, NULL, NULL, 1e-4));
            assert_ok(ofl_engine_release(f.engine, unit, stream));
        }
        assert_int_equal(ofl_device_now_ns(f.device), start);
        assert_ok(ofl_stream_wait(f.device, stream));
    }
    assert_int_equal(ofl_fault_allocation(0), 1u << 30);
    ofl_stream_destroy(f.device, stream);
    fixture_close(&f);
    fixture_model_close(&model);
}

static void test_wrong_calls(void **state)
{
    (void)state;
    fixture_model model;
    fixture_model_open(&model, 0);
    fixture_case c = case_between(model.model, 0.1);
    fixture f;
    fixture_open(&f, &c, &model, NULL);
    ofl_view view = {.struct_size = sizeof view}, none = {0};
    assert_status(ofl_engine_acquire(f.engine, f.units, NULL, &view), OFL_ERROR_ARGUMENT);
    assert_status(ofl_engine_acquire(f.engine, 0, NULL, &none), OFL_ERROR_ARGUMENT);
    assert_status(ofl_engine_acquire(f.engine, 0, NULL, NULL), OFL_ERROR_ARGUMENT);
    assert_status(ofl_engine_release(f.engine, 0, NULL), OFL_ERROR_STATE);
    assert_ok(ofl_engine_acquire(f.engine, 0, NULL, &view));
    assert_status(ofl_engine_acquire(f.engine, 0, NULL, &view), OFL_ERROR_STATE);
    assert_ok(ofl_engine_release(f.engine, 0, NULL));
    assert_status(ofl_engine_release(f.engine, 0, NULL), OFL_ERROR_STATE);
    fixture_close(&f); /* with copies in flight */
    ofl_engine_close(NULL);
    fixture_model_close(&model);
}

static void check_rows(const fixture *f, uint32_t tensor)
{
    ofl_tensor_info info = {.struct_size = sizeof info};
    uint32_t rows[64];
    const void *addresses[64];
    assert_ok(ofl_model_tensor_get(f->model->model, tensor, &info));
    for (uint32_t i = 0; i < 64; i++) rows[i] = i == 0 ? 0 : (uint32_t)(info.row_count - 1) * i / 63;
    assert_ok(ofl_engine_rows(f->engine, tensor, rows, 64, addresses));
    for (uint32_t i = 0; i < 64; i++) assert_memory_equal(addresses[i], f->model->data[tensor] + rows[i] * info.row_bytes, info.row_bytes);
    rows[63] = (uint32_t)info.row_count;
    assert_status(ofl_engine_rows(f->engine, tensor, rows, 64, addresses), OFL_ERROR_ARGUMENT);
}

/* A lookup tensor, and a head tied to it at every placement: resident, part by part, streamed. */
static void test_rows(void **state)
{
    (void)state;
    for (int tied = 0; tied < 2; tied++) {
        fixture_model model;
        fixture_model_open(&model, tied);
        uint32_t tensor = tied ? model.count - 1 : 0, row = 0;
        const void *address;
        for (int share = 0; share <= 4; share++) {
            fixture_case c = case_between(model.model, share / 4.0);
            fixture f;
            fixture_open(&f, &c, &model, NULL);
            check_rows(&f, tensor);
            assert_status(ofl_engine_rows(f.engine, tied ? 0 : 1, &row, 1, &address), OFL_ERROR_ARGUMENT);
            ofl_engine_stats stats = {.struct_size = sizeof stats};
            assert_ok(ofl_engine_stats_get(f.engine, &stats));
            uint64_t kept = f.budget.pinned_bytes;
            assert_true(stats.pinned_bytes >= kept && stats.pinned_bytes <= kept + kept / 10 + 4096);
            fixture_close(&f);
        }
        fixture_model_close(&model);
    }
}

static void test_resident_addresses(void **state)
{
    (void)state;
    fixture_model model;
    fixture_model_open(&model, 0);
    fixture_case c = case_between(model.model, 0);
    fixture f;
    fixture_open(&f, &c, &model, NULL);
    const void *address;
    uint32_t norm, gate;
    assert_ok(ofl_model_tensor_find(model.model, 2, OFL_ROLE_ATTN_NORM, &norm));
    assert_ok(ofl_engine_resident(f.engine, norm, &address));
    assert_memory_equal(address, model.data[norm], FIXTURE_HIDDEN * sizeof(float));
    assert_ok(ofl_model_tensor_find(model.model, 2, OFL_ROLE_FFN_GATE, &gate));
    assert_status(ofl_engine_resident(f.engine, gate, &address), OFL_ERROR_NOT_FOUND);
    fixture_close(&f);
    fixture_model_close(&model);
}

static void test_no_room_is_refused_before_anything(void **state)
{
    (void)state;
    fixture_model model;
    fixture_model_open(&model, 0);
    fixture_case c = case_between(model.model, 0.5), smaller = c;
    ofl_plan *plan;
    ofl_device *device;
    ofl_engine *engine = (ofl_engine *)(void *)&device; /* whatever stood there before is gone */
    ofl_budget budget = {.struct_size = sizeof budget};
    assert_ok(fixture_plan_make(&c, model.model, &plan));
    assert_ok(ofl_plan_budget_get(plan, &budget));
    uint64_t needed = budget.resident_bytes + budget.ring_bytes + budget.kv_bytes + budget.activation_bytes;
    smaller.vram = needed - 1;
    fixture_device_open(&smaller, &device);
    assert_status(ofl_engine_open(plan, model.model, device, NULL, &engine), OFL_ERROR_DEVICE_MEMORY);
    assert_null(engine);
    assert_int_equal(ofl_diagnostic_get()->bytes_needed, needed);
    assert_int_equal(ofl_diagnostic_get()->bytes_available, smaller.vram);
    ofl_memory_info memory = {.struct_size = sizeof memory};
    assert_ok(ofl_device_memory_get(device, &memory));
    assert_int_equal(memory.peak_bytes, 0);
    fixture_device_close(device);
    ofl_plan_destroy(plan);
    fixture_model_close(&model);
}

static void test_another_model_is_refused(void **state)
{
    (void)state;
    fixture_model model, other;
    fixture_model_open(&model, 0);
    fixture_model_open(&other, 1);
    fixture_case c = case_between(model.model, 0.5);
    ofl_plan *plan;
    ofl_device *device;
    ofl_engine *engine = NULL;
    assert_ok(fixture_plan_make(&c, model.model, &plan));
    fixture_device_open(&c, &device);
    assert_status(ofl_engine_open(plan, other.model, device, NULL, &engine), OFL_ERROR_MISMATCH);
    fixture_device_close(device);
    ofl_plan_destroy(plan);
    fixture_model_close(&other);
    fixture_model_close(&model);
}

typedef struct progress_seen { uint64_t done, total, calls; } progress_seen;

static int cancel(void *context, uint64_t done, uint64_t total)
{
    *(progress_seen *)context = (progress_seen){done, total, ((progress_seen *)context)->calls + 1};
    return 1;
}

static void test_loading_can_be_cancelled(void **state)
{
    (void)state;
    fixture_model model;
    fixture_model_open(&model, 0);
    fixture_case c = case_between(model.model, 0.5);
    progress_seen seen = {0, 0, 0};
    ofl_engine_options options = {.struct_size = sizeof options, .progress = cancel, .context = &seen};
    ofl_plan *plan;
    ofl_device *device;
    ofl_engine *engine = NULL;
    assert_ok(fixture_plan_make(&c, model.model, &plan));
    fixture_device_open(&c, &device);
    assert_status(ofl_engine_open(plan, model.model, device, &options, &engine), OFL_ERROR_CANCELLED);
    assert_int_equal(seen.calls, 1);
    assert_int_equal(seen.total, model.bytes);
    fixture_device_close(device);
    ofl_plan_destroy(plan);
    fixture_model_close(&model);
}

static void test_two_engines_on_one_device(void **state)
{
    (void)state;
    fixture_model model;
    fixture_model_open(&model, 0);
    fixture_case c = case_between(model.model, 0.1), roomy = c;
    fixture a, b;
    walker wa, wb;
    roomy.vram = 2 * c.vram;
    fixture_open(&a, &c, &model, NULL);
    ofl_engine_close(a.engine); /* a device for both */
    fixture_device_close(a.device);
    fixture_device_open(&roomy, &a.device);
    assert_ok(ofl_engine_open(a.plan, model.model, a.device, &poisoned, &a.engine));
    b = a;
    assert_ok(ofl_engine_open(b.plan, model.model, b.device, &poisoned, &b.engine));
    walker_open(&wa, &a, 1);
    walker_open(&wb, &b, 2);
    for (uint32_t i = 0; i < 4 * a.units; i++) {
        use(&wa, i % a.units, wa.streams[0], some_seconds(&wa));
        use(&wb, (i * 7 + 3) % a.units, wb.streams[1], some_seconds(&wb));
    }
    walker_close(&wa);
    walker_close(&wb);
    ofl_engine_close(a.engine);
    ofl_engine_close(b.engine);
    fixture_device_close(a.device);
    ofl_plan_destroy(a.plan);
    fixture_model_close(&model);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_steps_in_order),
    cmocka_unit_test(test_any_order),
    cmocka_unit_test(test_order_is_learnt),
    cmocka_unit_test(test_held_units),
    cmocka_unit_test(test_one_copy_a_block),
    cmocka_unit_test(test_steady_steps_neither_allocate_nor_wait),
    cmocka_unit_test(test_wrong_calls),
    cmocka_unit_test(test_rows),
    cmocka_unit_test(test_resident_addresses),
    cmocka_unit_test(test_no_room_is_refused_before_anything),
    cmocka_unit_test(test_another_model_is_refused),
    cmocka_unit_test(test_loading_can_be_cancelled),
    cmocka_unit_test(test_two_engines_on_one_device),
};
TEST_MAIN(tests)
