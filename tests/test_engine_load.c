/* Where weights come from: pinned memory of exact size, the caller's own memory in place, pageable memory and files through the bounce
 * buffers. */
#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/base.h"
#include "support/engine_fixture.h"

enum { BLOCKS = 8, COLUMNS = 512, ROWS = 1024, PAGE = 4096 }; /* matrices of 2 MiB */
#define MATRIX_BYTES ((uint64_t)COLUMNS * ROWS * sizeof(float))

/* Blocks of two matrices and a norm; `data`: where the matrices lie one after the other, `apart` bytes between their starts, or NULL:
 * memory of their own each. */
static void big_model(fixture_model *m, char *data, uint64_t apart, const char *path)
{
    ofl_model_shape shape = {
        .struct_size = sizeof shape,
        .block_count = BLOCKS,
        .hidden_size = COLUMNS,
        .head_count = 4,
        .head_count_kv = 4,
        .head_dim_k = 128,
        .head_dim_v = 128,
        .ffn_size = ROWS,
        .vocab_size = 500,
        .trained_context_tokens = 256,
        .norm_epsilon = 1e-5,
    };
    ofl_model_builder *builder;
    memset(m, 0, sizeof *m);
    for (int32_t b = 0; b < BLOCKS; b++) {
        char name[64];
        (void)snprintf(name, sizeof name, "norm.%d", (int)b);
        fixture_tensor(m, name, OFL_CLASS_DENSE, OFL_ROLE_FFN_NORM, b, 0, COLUMNS, 1);
        (void)snprintf(name, sizeof name, "gate.%d", (int)b);
        fixture_tensor(m, name, OFL_CLASS_DENSE, OFL_ROLE_FFN_GATE, b, 0, COLUMNS, ROWS);
        (void)snprintf(name, sizeof name, "up.%d", (int)b);
        fixture_tensor(m, name, OFL_CLASS_DENSE, OFL_ROLE_FFN_UP, b, 0, COLUMNS, ROWS);
    }
    for (uint32_t i = 0, at = 0; data != NULL && i < m->count; i++) {
        if (m->sources[i].n_dims < 2) continue;
        m->sources[i].data = memcpy(data + at++ * apart, m->data[i], MATRIX_BYTES);
    }
    if (path != NULL) fixture_to_file(m, path);
    assert_ok(ofl_model_builder_create("big", "llama", &shape, &builder));
    for (uint32_t i = 0; i < m->count; i++) assert_ok(ofl_model_builder_add_tensor(builder, &m->sources[i]));
    assert_ok(ofl_model_builder_finish(builder, &m->model));
}

static fixture_case big_case(const ofl_model *model)
{
    fixture_case c = {.link = 20e9,
                      .start = 1e-6,
                      .compute = 1e-11,
                      .cut = OFL_CUT_BYTES,
                      .part_bytes = MATRIX_BYTES,
                      .host_bytes = 1u << 30,
                      .pinnable = 1u << 30};
    c.vram = fixture_least_vram(c, model) + 3 * MATRIX_BYTES;
    return c;
}

static char said[512];
static uint32_t sentences;
static void remember(void *context, const char *sentence)
{
    (void)context;
    sentences++;
    (void)snprintf(said, sizeof said, "%s", sentence);
}

static const ofl_engine_options talking = {.struct_size = sizeof(ofl_engine_options), .message = remember, .poison = 1};

static ofl_engine_stats stats_of(const fixture *f)
{
    ofl_engine_stats stats = {.struct_size = sizeof stats};
    assert_ok(ofl_engine_stats_get(f->engine, &stats));
    return stats;
}

static uint64_t pinned_on(const fixture *f)
{
    ofl_memory_info memory = {.struct_size = sizeof memory};
    assert_ok(ofl_device_memory_get(f->device, &memory));
    return memory.pinned_bytes;
}

/* Two steps on the host, every byte compared. */
static void walk(fixture *f)
{
    uint32_t wrong = 0;
    for (uint32_t i = 0; i < 2 * f->units; i++) {
        ofl_view view = {.struct_size = sizeof view};
        assert_ok(ofl_engine_acquire(f->engine, i % f->units, NULL, &view));
        fixture_check check = {f->model, view.slices, view.slice_count, &wrong};
        fixture_check_run(&check);
        assert_ok(ofl_engine_release(f->engine, i % f->units, NULL));
    }
    assert_int_equal(wrong, 0);
}

static char *matrices_map(uint64_t bytes)
{
    char *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_true(memory != MAP_FAILED);
    return memory;
}

/* No second copy: what is page-locked is the caller's memory, and of it no more than what is streamed. */
static void test_callers_memory_in_place(void **state)
{
    (void)state;
    static const uint64_t apart[] = {MATRIX_BYTES, MATRIX_BYTES + 64, MATRIX_BYTES + PAGE};
    for (int i = 0; i < 3; i++) {
        fixture_model model;
        fixture f;
        uint64_t bytes = 2 * BLOCKS * apart[i];
        char *memory = matrices_map(bytes);
        big_model(&model, memory, apart[i], NULL);
        fixture_case c = big_case(model.model);
        sentences = 0;
        fixture_open(&f, &c, &model, &talking);
        ofl_engine_stats stats = stats_of(&f);
        assert_int_equal(sentences, 0);
        assert_true(f.budget.pinned_bytes >= 4 * MATRIX_BYTES);
        assert_in_range(stats.pinned_bytes, f.budget.pinned_bytes, f.budget.pinned_bytes + 2 * BLOCKS * PAGE);
        assert_in_range(pinned_on(&f), f.budget.pinned_bytes, f.budget.pinned_bytes + 2 * BLOCKS * PAGE);
        assert_int_equal(stats.pageable_bytes + stats.refused_bytes, 0);
        walk(&f);
        stats = stats_of(&f);
        assert_int_equal(stats.from_pinned_bytes, stats.bytes_streamed);
        fixture_close(&f);
        fixture_model_close(&model);
        assert_int_equal(munmap(memory, bytes), 0);
    }
}

/* Two engines stream from the same weights: the first that is closed does not pull them from under the other. */
static void test_callers_memory_shared(void **state)
{
    (void)state;
    fixture_model model;
    fixture f;
    char *memory = matrices_map(2 * BLOCKS * MATRIX_BYTES);
    big_model(&model, memory, MATRIX_BYTES, NULL);
    fixture_case c = big_case(model.model);
    fixture_open(&f, &c, &model, NULL);
    ofl_engine_close(f.engine);
    fixture_device_close(f.device);
    c.vram *= 2;
    fixture_device_open(&c, &f.device);
    ofl_engine *first;
    assert_ok(ofl_engine_open(f.plan, model.model, f.device, NULL, &first));
    uint64_t pinned = pinned_on(&f);
    assert_ok(ofl_engine_open(f.plan, model.model, f.device, NULL, &f.engine));
    assert_int_equal(pinned_on(&f), pinned);
    ofl_engine_close(first);
    walk(&f);
    ofl_engine_close(f.engine);
    fixture_device_close(f.device);
    ofl_plan_destroy(f.plan);
    fixture_model_close(&model);
    assert_int_equal(munmap(memory, 2 * BLOCKS * MATRIX_BYTES), 0);
}

/* Page-locked by the caller already: taken as it is, and left so. */
static void test_callers_memory_pinned_already(void **state)
{
    (void)state;
    fixture_model model;
    fixture f = {.model = &model, .budget = {.struct_size = sizeof f.budget}};
    fixture_case c = {.vram = 1u << 30, .link = 20e9};
    void *memory;
    fixture_device_open(&c, &f.device);
    assert_ok(ofl_device_host_alloc(f.device, 2 * BLOCKS * MATRIX_BYTES, &memory));
    big_model(&model, memory, MATRIX_BYTES, NULL);
    c = big_case(model.model);
    assert_ok(fixture_plan_make(&c, model.model, &f.plan));
    f.units = ofl_plan_unit_count(f.plan);
    uint64_t before = pinned_on(&f);
    sentences = 0;
    assert_ok(ofl_engine_open(f.plan, model.model, f.device, &talking, &f.engine));
    assert_int_equal(sentences, 0);
    assert_int_equal(pinned_on(&f), before);
    walk(&f);
    assert_int_equal(stats_of(&f).from_pageable_bytes, 0);
    ofl_engine_close(f.engine);
    assert_int_equal(pinned_on(&f), before);
    ofl_device_host_free(f.device, memory);
    fixture_device_close(f.device);
    ofl_plan_destroy(f.plan);
    fixture_model_close(&model);
}

/* Nothing of it, or only some, can be page-locked: read from where it lies through the bounce buffers, and said. */
static void test_callers_memory_refused(void **state)
{
    (void)state;
    for (int i = 0; i < 3; i++) {
        fixture_model model;
        fixture f;
        uint64_t apart = MATRIX_BYTES + PAGE;
        char *memory = matrices_map(2 * BLOCKS * apart);
        big_model(&model, memory, apart, NULL);
        fixture_case c = big_case(model.model);
        c.pinnable_there = i == 0 ? PAGE : (uint64_t)i * 11 << 20;
        sentences = 0;
        fixture_open(&f, &c, &model, &talking);
        assert_true(sentences > 0 && strstr(said, "host memory") != NULL);
        ofl_engine_stats stats = stats_of(&f);
        assert_int_equal(stats.pinned_bytes + stats.pageable_bytes, f.budget.pinned_bytes);
        assert_int_equal(stats.refused_bytes, stats.pageable_bytes);
        assert_true(i == 0 ? stats.pinned_bytes == 0 : stats.pinned_bytes > 0);
        walk(&f);
        assert_true(stats_of(&f).from_pageable_bytes > 0);
        fixture_close(&f);
        fixture_model_close(&model);
        assert_int_equal(munmap(memory, 2 * BLOCKS * apart), 0);
    }
}

/* Residents are read without asking: they have landed when the engine is open. */
static void check_residents(const fixture *f)
{
    uint32_t found = 0;
    for (uint32_t i = 0; i < f->model->count; i++) {
        const void *data;
        ofl_tensor_info info = {.struct_size = sizeof info};
        if (ofl_engine_resident(f->engine, i, &data) != OFL_OK) continue;
        assert_ok(ofl_model_tensor_get(f->model->model, i, &info));
        assert_memory_equal(data, f->model->data[i], info.bytes);
        found++;
    }
    assert_true(found > BLOCKS);
}

/* Three times as large as the host memory that it may use: the right bytes, from the file, within that memory. */
static void test_larger_than_host_memory(void **state)
{
    (void)state;
    for (int wall = 0; wall < 2; wall++) {
        fixture_model model;
        fixture f;
        const char *path = test_path(wall ? "wall" : "virtual");
        big_model(&model, NULL, 0, path);
        fixture_case c = big_case(model.model);
        c.host_bytes = c.pinnable = model.bytes / 3;
        c.clock = wall ? "wall" : "virtual";
        if (wall) c.link = 2e8;
        sentences = 0;
        fixture_open(&f, &c, &model, &talking);
        check_residents(&f);
        ofl_engine_stats stats = stats_of(&f);
        assert_true(stats.file_bytes > model.bytes / 3);
        assert_true(stats.pinned_bytes + stats.pageable_bytes <= c.host_bytes && pinned_on(&f) <= c.host_bytes);
        walk(&f);
        stats = stats_of(&f);
        assert_true(stats.from_file_bytes >= stats.file_bytes);
        fixture_close(&f);
        fixture_model_close(&model);
    }
}

static void test_unit_stats_add_up(void **state)
{
    (void)state;
    fixture_model model;
    fixture f;
    big_model(&model, NULL, 0, NULL);
    fixture_case c = big_case(model.model);
    fixture_open(&f, &c, &model, NULL);
    ofl_engine_stats_reset(f.engine);
    walk(&f);
    ofl_engine_stats all = stats_of(&f);
    ofl_engine_unit_stats sum = {0}, one = {.struct_size = sizeof one};
    for (uint32_t i = 0; i < f.units; i++) {
        ofl_unit unit = {.struct_size = sizeof unit};
        assert_ok(ofl_plan_unit_get(f.plan, i, &unit));
        assert_ok(ofl_engine_unit_stats_get(f.engine, i, &one));
        assert_int_equal(one.acquires, 2);
        assert_int_equal(one.tier, unit.piece_bytes ? OFL_TIER_PINNED : OFL_TIER_DEVICE);
        assert_true(one.bytes % (unit.streamed_bytes ? unit.streamed_bytes : 1) == 0 && (one.bytes == 0) == (unit.streamed_bytes == 0));
        sum.bytes += one.bytes;
        sum.copies += one.copies;
        sum.stalls += one.stalls;
        sum.stall_seconds += one.stall_seconds;
    }
    assert_int_equal(sum.bytes, all.bytes_streamed);
    assert_int_equal(sum.copies, all.copies);
    assert_int_equal(sum.stalls, all.stalls);
    assert_true(all.stalls > 0 && sum.stall_seconds > 0 && all.stall_seconds - sum.stall_seconds < 1e-9);
    assert_status(ofl_engine_unit_stats_get(f.engine, f.units, &one), OFL_ERROR_ARGUMENT);
    ofl_engine_stats_reset(f.engine);
    assert_ok(ofl_engine_unit_stats_get(f.engine, 0, &one));
    assert_int_equal(one.acquires + one.bytes + one.stalls, 0);
    fixture_close(&f);
    fixture_model_close(&model);
}

typedef struct countdown { uint32_t left, calls; uint64_t last; } countdown;

static int count_down(void *context, uint64_t done, uint64_t total)
{
    countdown *c = context;
    c->calls++;
    assert_true(done >= c->last && done <= total);
    c->last = done;
    return --c->left == 0;
}

/* Stopped at every call in turn, while memory is being page-locked too: nothing is left. */
static void test_cancelled_at_every_call(void **state)
{
    (void)state;
    for (int in_place = 0; in_place < 2; in_place++) {
        fixture_model model;
        fixture f;
        char *memory = in_place ? matrices_map(2 * BLOCKS * (MATRIX_BYTES + PAGE)) : NULL;
        big_model(&model, memory, MATRIX_BYTES + PAGE, in_place ? NULL : test_path("cancel"));
        fixture_case c = big_case(model.model);
        assert_ok(fixture_plan_make(&c, model.model, &f.plan));
        fixture_device_open(&c, &f.device);
        ofl_status status = OFL_ERROR_CANCELLED;
        for (uint32_t n = 1; status == OFL_ERROR_CANCELLED; n++) {
            countdown down = {.left = n};
            ofl_engine_options options = {.struct_size = sizeof options, .progress = count_down, .context = &down};
            status = ofl_engine_open(f.plan, model.model, f.device, &options, &f.engine);
            assert_int_equal(pinned_on(&f) != 0, status == OFL_OK);
            assert_true(status == OFL_ERROR_CANCELLED || (status == OFL_OK && down.last == model.bytes && n >= 3));
        }
        assert_ok(status);
        ofl_engine_close(f.engine);
        fixture_device_close(f.device);
        ofl_plan_destroy(f.plan);
        fixture_model_close(&model);
        if (memory != NULL) assert_int_equal(munmap(memory, 2 * BLOCKS * (MATRIX_BYTES + PAGE)), 0);
    }
}

/* Any range, wherever it lies within the pages of the file. */
static void test_reader(void **state)
{
    (void)state;
    fixture_model model;
    char path[512];
    uint64_t random = 7;
    (void)snprintf(path, sizeof path, "%s", test_path("reader"));
    big_model(&model, NULL, 0, path);
    ofl_model_reader *reader;
    assert_ok(ofl_model_reader_open(model.model, &reader));
    char *buffer = matrices_map(MATRIX_BYTES + 2 * PAGE);
    for (int i = 0; i < 200; i++) {
        uint32_t tensor = i == 0 ? model.count - 1 : (uint32_t)(test_random(&random) % model.count);
        ofl_tensor_info info = {.struct_size = sizeof info};
        const void *data;
        assert_ok(ofl_model_tensor_get(model.model, tensor, &info));
        uint64_t from = i < 2 ? 0 : test_random(&random) % info.bytes,
                 bytes = i < 2 ? info.bytes : test_random(&random) % (info.bytes - from);
        assert_ok(ofl_model_reader_read(reader, tensor, from, bytes, buffer, &data));
        assert_memory_equal(data, model.data[tensor] + from, bytes);
        assert_status(ofl_model_reader_read(reader, tensor, info.bytes, 1, buffer, &data), OFL_ERROR_ARGUMENT);
        assert_status(ofl_model_reader_read(reader, tensor, 0, 1, buffer + 1, &data), OFL_ERROR_ARGUMENT);
    }
    const void *data;
    assert_int_equal(truncate(path, 100), 0);
    assert_status(ofl_model_reader_read(reader, 0, 0, 64, buffer, &data), OFL_ERROR_IO);
    ofl_model_reader_close(reader);
    ofl_model_reader_close(NULL);
    assert_int_equal(unlink(path), 0);
    assert_status(ofl_model_reader_open(model.model, &reader), OFL_ERROR_IO);
    assert_null(reader);
    assert_int_equal(munmap(buffer, MATRIX_BYTES + 2 * PAGE), 0);
    fixture_model_close(&model);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_callers_memory_in_place),
    cmocka_unit_test(test_callers_memory_shared),
    cmocka_unit_test(test_callers_memory_pinned_already),
    cmocka_unit_test(test_callers_memory_refused),
    cmocka_unit_test(test_larger_than_host_memory),
    cmocka_unit_test(test_unit_stats_add_up),
    cmocka_unit_test(test_cancelled_at_every_call),
    cmocka_unit_test(test_reader),
};
TEST_MAIN(tests)
