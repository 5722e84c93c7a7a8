/* Host memory while weights are loaded: never much more than what stays, since each byte is read to where it stays, and what is resident
 * passes through a few buffers. Measured as the process's own high water, in a child. */
#include "support/engine_fixture.h"

#include <sys/wait.h>
#include <unistd.h>

#define MIB (UINT64_C(1) << 20)
enum { BLOCKS = 20, SIDE = 2048, MATRIX_BYTES = SIDE * SIDE * 2 };

/* A file of holes is enough: 40 matrices of 8 MiB. */
static ofl_model *model_in_file(const char *path)
{
    static const ofl_tensor_role roles[] = {OFL_ROLE_FFN_GATE, OFL_ROLE_FFN_UP};
    ofl_model_shape shape = {.struct_size = sizeof shape, .block_count = BLOCKS, .hidden_size = SIDE, .head_count = 16, .head_count_kv = 1,
                             .head_dim_k = SIDE / 16, .head_dim_v = SIDE / 16, .ffn_size = SIDE, .vocab_size = 256,
                             .trained_context_tokens = 64};
    ofl_model_builder *builder;
    ofl_model *model;
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(ftruncate(fileno(file), (off_t)(2 * BLOCKS) * MATRIX_BYTES), 0);
    assert_int_equal(fclose(file), 0);
    assert_ok(ofl_model_builder_create("memory", "llama", &shape, &builder));
    for (int i = 0; i < 2 * BLOCKS; i++) {
        char name[64];
        (void)snprintf(name, sizeof name, "blk.%d.%d", i / 2, i % 2);
        ofl_tensor_source source = {.struct_size = sizeof source, .name = name, .dtype = OFL_DTYPE_BF16, .tensor_class = OFL_CLASS_DENSE,
                                    .role = roles[i % 2], .block = i / 2, .n_dims = 2, .dims = {SIDE, SIDE}, .file = path,
                                    .file_offset = (uint64_t)i * MATRIX_BYTES};
        assert_ok(ofl_model_builder_add_tensor(builder, &source));
    }
    assert_ok(ofl_model_builder_finish(builder, &model));
    return model;
}

/* "VmHWM" or "VmRSS", in bytes. */
static uint64_t of_process(const char *what)
{
    char line[128];
    unsigned long long kib = 0;
    FILE *file = fopen("/proc/self/status", "r");
    while (file != NULL && kib == 0 && fgets(line, sizeof line, file) != NULL) {
        if (strncmp(line, what, strlen(what)) == 0) (void)sscanf(line + strlen(what), ": %llu", &kib);
    }
    if (file != NULL) (void)fclose(file);
    return kib * 1024;
}

typedef struct usage { uint64_t stays, peak; int failed; } usage;

/* What an open engine adds to the process, at most and in the end; on a simulated device that is its device memory too. */
static usage load(const fixture_case *c, const ofl_model *model)
{
    usage u = {.failed = 1};
    ofl_plan *plan;
    ofl_device *device;
    ofl_engine *engine;
    if (fixture_plan_make(c, model, &plan) != OFL_OK) return u;
    fixture_device_open(c, &device);
    uint64_t before = of_process("VmRSS");
    if (ofl_engine_open(plan, model, device, NULL, &engine) != OFL_OK) return u;
    u = (usage){of_process("VmRSS") - before, of_process("VmHWM") - before, 0};
    ofl_engine_close(engine);
    ofl_device_close(device);
    ofl_plan_destroy(plan);
    return u;
}

static usage load_in_child(const fixture_case *c, const ofl_model *model)
{
    usage u = {.failed = 1};
    int ends[2], status;
    assert_int_equal(pipe(ends), 0);
    (void)fflush(NULL);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        u = load(c, model);
        _exit(write(ends[1], &u, sizeof u) == (ssize_t)sizeof u ? 0 : 1);
    }
    (void)close(ends[1]);
    assert_int_equal(read(ends[0], &u, sizeof u), sizeof u);
    (void)close(ends[0]);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    return u;
}

/* All pinned; half of it pageable; a part left in the file. */
static void test_loading_takes_little_more_than_what_stays(void **state)
{
    (void)state;
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    skip(); /* their shadows are memory too */
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
    skip();
#endif
#endif
    static const struct { const char *name; uint64_t vram, pinnable, host; } cases[] = {
        {"little resident, all else pinned", 40 * MIB, 0, 0},
        {"half resident", 180 * MIB, 0, 0},
        {"half pinned, half pageable", 40 * MIB, 160 * MIB, 0},
        {"a part in the file", 40 * MIB, 200 * MIB, 260 * MIB},
    };
    ofl_model *model = model_in_file(test_path("weights"));
    for (size_t i = 0; i < OFL_COUNT_OF(cases); i++) {
        fixture_case c = {.link = 1e11, .compute = 1e-12, .vram = cases[i].vram, .pinnable = cases[i].pinnable, .host_bytes = cases[i].host,
                          .clock = "wall"};
        usage u = load_in_child(&c, model);
        assert_int_equal(u.failed, 0);
        print_message("%s: %.1f MiB stay, %.1f at most\n", cases[i].name, (double)u.stays / MIB, (double)u.peak / MIB);
        assert_true(u.stays > 200 * MIB);
        assert_true((double)u.peak <= 1.1 * (double)u.stays);
    }
    ofl_model_destroy(model);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_loading_takes_little_more_than_what_stays),
};
TEST_MAIN(tests)
