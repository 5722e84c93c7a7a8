/* The engine on the CUDA back end: on a GPU, or with the stand-in runtime of tests/fakecuda loaded (then every call of the
 * runtime is failed in turn, too). */
#include "support/engine_reader.h"

#include <dlfcn.h>
#include <malloc.h>
#include <pthread.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/base.h"

static int (*fake_live)(void);
static int (*fake_fired)(void);
static unsigned long (*fake_calls)(const char *);
static unsigned long (*fake_hasty)(void);
static unsigned long (*fake_spun)(void);

static void find(void *function, const char *name)
{
    void *symbol = dlsym(RTLD_DEFAULT, name);
    memcpy(function, &symbol, sizeof symbol);
}

static void find_fake(void)
{
    find(&fake_live, "fakecuda_live");
    find(&fake_fired, "fakecuda_fired");
    find(&fake_calls, "fakecuda_calls");
    find(&fake_hasty, "fakecuda_hasty");
    find(&fake_spun, "fakecuda_spun");
}

/* Many runs: on the wall clock they would take minutes. */
static int is_virtual_fake(void)
{
    const char *spec = getenv("OFLOAD_FAKECUDA_SPEC");
    return fake_live != NULL && spec != NULL && strstr(spec, "clock=virtual") != NULL;
}

static fixture_model in_memory, in_file, in_place;

/* Matrices of 1 MiB: those are page-locked where the caller has them. */
static void in_place_open(fixture_model *m)
{
    enum { BLOCKS = 4, SIDE = 512, VOCAB = 100 };
    ofl_model_shape shape = {.struct_size = sizeof shape, .block_count = BLOCKS, .hidden_size = SIDE, .head_count = 4, .head_count_kv = 4,
                             .head_dim_k = SIDE / 4, .head_dim_v = SIDE / 4, .ffn_size = SIDE, .vocab_size = VOCAB,
                             .trained_context_tokens = 256};
    static const ofl_tensor_role roles[] = {OFL_ROLE_FFN_GATE, OFL_ROLE_FFN_UP};
    ofl_model_builder *builder;
    fixture_tensor(m, "embedding", OFL_CLASS_LOOKUP, OFL_ROLE_EMBEDDING, OFL_BLOCK_INPUT, 0, SIDE, VOCAB);
    for (int i = 0; i < 2 * BLOCKS; i++) {
        char name[64];
        (void)snprintf(name, sizeof name, "blk.%d.%d", i / 2, i % 2);
        fixture_tensor(m, name, OFL_CLASS_DENSE, roles[i % 2], i / 2, 0, SIDE, SIDE);
    }
    fixture_tensor(m, "output", OFL_CLASS_DENSE, OFL_ROLE_OUTPUT, BLOCKS, 0, SIDE, VOCAB);
    assert_ok(ofl_model_builder_create("in place", "llama", &shape, &builder));
    for (uint32_t i = 0; i < m->count; i++) assert_ok(ofl_model_builder_add_tensor(builder, &m->sources[i]));
    assert_ok(ofl_model_builder_finish(builder, &m->model));
}

/* Where the streamed weights are kept: all pinned; the caller's own memory page-locked; pinned and pageable; and file. */
typedef enum tiers { TIERS_PINNED, TIERS_IN_PLACE, TIERS_PAGEABLE, TIERS_FILE, TIERS_COUNT } tiers;

static const fixture_model *model_of(tiers kept)
{
    return kept == TIERS_FILE ? &in_file : kept == TIERS_IN_PLACE ? &in_place : &in_memory;
}

static int has_lower(tiers kept) { return kept == TIERS_PAGEABLE || kept == TIERS_FILE; }

static ofl_plan *plan_of(const fixture_model *model, tiers kept)
{
    fixture_case c = {.link = 2e9, .start = 1e-6, .compute = 1e-9, .cut = OFL_CUT_BYTES, .part_bytes = 128 * 1024};
    if (kept == TIERS_IN_PLACE) c.part_bytes = 1 << 20;
    c.vram = fixture_least_vram(c, model->model) + (kept == TIERS_IN_PLACE ? 3u << 20 : 1500000);
    if (has_lower(kept)) c.pinnable = 1 << 20;
    if (kept == TIERS_FILE) c.host_bytes = 2 << 20;
    ofl_plan *plan;
    ofl_budget budget = {.struct_size = sizeof budget};
    assert_ok(fixture_plan_make(&c, model->model, &plan));
    assert_ok(ofl_plan_budget_get(plan, &budget));
    assert_true(budget.resident_bytes > 0 && budget.ring_bytes > 0);
    assert_int_equal(budget.pageable_bytes > 0, has_lower(kept));
    assert_int_equal(budget.file_bytes > 0, kept == TIERS_FILE);
    return plan;
}

typedef struct job {
    const fixture_model *model;
    ofl_plan *plan;
    uint32_t steps;
    uint64_t seed; /* 0: in order */
    const ofl_engine_options *options;
    const char *device;
    uint32_t wrong; /* out */
} job;

static ofl_status job_steps(const job *j, ofl_engine *engine, ofl_stream *stream, reader *r)
{
    uint64_t random = j->seed;
    uint32_t units = ofl_plan_unit_count(j->plan);
    for (uint32_t step = 0; step < j->steps; step++) {
        ofl_status status = OFL_OK;
        for (uint32_t i = 0; i < units && status == OFL_OK; i++) {
            uint32_t unit = j->seed != 0 && test_random(&random) % 4 == 0 ? (uint32_t)(test_random(&random) % units) : i;
            status = reader_unit(r, engine, unit, stream, j->seed != 0 ? test_random(&random) % 2 == 0 : step % 2 == 1);
        }
        if (status == OFL_OK) status = reader_check(r, stream);
        if (status != OFL_OK) return status;
    }
    return OFL_OK;
}

/* Everything from device to device: what was made is taken back whatever fails. */
static ofl_status run(job *j)
{
    ofl_device *device = NULL;
    ofl_engine *engine = NULL;
    ofl_stream *stream = NULL;
    reader r = {0};
    ofl_status status = ofl_device_open(j->device != NULL ? j->device : "cuda:0", &device);
    if (status == OFL_OK) status = ofl_stream_create(device, &stream);
    if (status == OFL_OK) status = reader_open(&r, j->model, device);
    if (status == OFL_OK) status = ofl_engine_open(j->plan, j->model->model, device, j->options, &engine);
    if (status == OFL_OK) status = job_steps(j, engine, stream, &r);
    j->wrong = r.wrong;
    if (stream != NULL) (void)ofl_stream_wait(device, stream);
    ofl_engine_close(engine);
    if (device != NULL) reader_close(&r);
    ofl_stream_destroy(device, stream);
    ofl_device_close(device);
    return status;
}

static char said[512];
static void remember(void *context, const char *sentence)
{
    (void)context;
    (void)snprintf(said, sizeof said, "%s", sentence);
}

/* Whether the stand-in's devices allow less page-locked memory than the plans count on. */
static int is_capped(void)
{
    const char *spec = getenv("OFLOAD_FAKECUDA_SPEC");
    return fake_live != NULL && spec != NULL && strstr(spec, "pinnable=") != NULL;
}

static void test_any_order(void **state)
{
    (void)state;
    static const ofl_engine_options options = {.struct_size = sizeof options, .message = remember};
    for (int kept = 0; kept < TIERS_COUNT; kept++) {
        const fixture_model *model = model_of((tiers)kept);
        ofl_plan *plan = plan_of(model, (tiers)kept);
        unsigned long hasty = fake_hasty != NULL ? fake_hasty() : 0;
        for (uint64_t seed = 0; seed < (is_virtual_fake() ? 12 : 4); seed++) {
            job j = {.model = model, .plan = plan, .steps = 6, .seed = seed, .options = &options};
            said[0] = '\0';
            assert_ok(run(&j));
            assert_int_equal(j.wrong, 0);
            assert_int_equal(strstr(said, "host memory") != NULL, is_capped() && !has_lower((tiers)kept));
            if (fake_live != NULL) assert_int_equal(fake_live(), 0);
        }
        if (fake_hasty != NULL) assert_int_equal(fake_hasty(), hasty);
        if (fake_calls != NULL && has_lower((tiers)kept)) assert_true(fake_calls("cudaEventSynchronize") > 0);
        if (fake_spun != NULL) assert_int_equal(fake_spun(), 0); /* threads that wait for a buffer sleep */
        ofl_plan_destroy(plan);
    }
}

/* Once running with pinned sources: no allocation, no free, and the host waits for nothing. */
static void test_steady_steps_call_nothing_else(void **state)
{
    (void)state;
    static const char *const none[] = {
        "cudaMalloc",
        "cudaFree",
        "cudaHostAlloc",
        "cudaFreeHost",
        "cudaHostRegister",
        "cudaStreamSynchronize",
        "cudaEventSynchronize",
        "cudaDeviceSynchronize",
        "cudaEventCreateWithFlags",
        "cudaStreamCreateWithFlags",
    };
    if (fake_calls == NULL || is_capped()) skip();
    ofl_plan *plan = plan_of(&in_memory, TIERS_PINNED);
    ofl_device *device;
    ofl_engine *engine;
    ofl_stream *stream;
    unsigned long before[OFL_COUNT_OF(none)], all = 0, streamed = 0;
    ofl_engine_stats stats = {.struct_size = sizeof stats};
    assert_ok(ofl_device_open("cuda:0", &device));
    assert_ok(ofl_stream_create(device, &stream));
    assert_ok(ofl_engine_open(plan, in_memory.model, device, NULL, &engine));
    for (int step = 0; step < 4; step++) {
        for (size_t i = 0; step == 1 && i < OFL_COUNT_OF(none); i++) before[i] = fake_calls(none[i]);
        if (step == 1) (void)ofl_fault_allocation(1u << 30);
        if (step == 1) all = fake_calls("*");
        if (step == 1) ofl_engine_stats_reset(engine);
        for (uint32_t unit = 0; unit < ofl_plan_unit_count(plan); unit++) {
            ofl_view view = {.struct_size = sizeof view};
            ofl_unit about = {.struct_size = sizeof about};
            assert_ok(ofl_plan_unit_get(plan, unit, &about));
            streamed += step > 0 && about.piece_bytes != 0;
            assert_ok(ofl_engine_acquire(engine, unit, stream, &view));
            assert_ok(ofl_engine_release(engine, unit, stream));
        }
    }
    assert_int_equal(ofl_fault_allocation(0), 1u << 30);
    /* A piece: one copy, two events recorded and two waited for, each with the device made current and no capture disturbed. */
    assert_ok(ofl_engine_stats_get(engine, &stats));
    assert_int_equal(stats.copies, streamed);
    assert_true(fake_calls("*") - all <= 14 * streamed);
    for (size_t i = 0; i < OFL_COUNT_OF(none); i++) {
        if (fake_calls(none[i]) != before[i]) fail_msg("%s was called in a steady step", none[i]);
    }
    assert_ok(ofl_stream_wait(device, stream));
    ofl_engine_close(engine);
    ofl_stream_destroy(device, stream);
    ofl_device_close(device);
    ofl_plan_destroy(plan);
}

/* Whole blocks streamed: as many copies as the plan says, one a block. */
static void test_one_copy_a_block(void **state)
{
    (void)state;
    if (fake_calls == NULL || is_capped()) skip();
    fixture_case c = {.link = 2e9, .compute = 1e-9, .vram = 16u << 20, .whole_blocks = 1, .layers_kept = 2};
    ofl_plan *plan;
    ofl_device *device;
    ofl_engine *engine;
    ofl_stream *stream;
    unsigned long before = 0;
    assert_ok(fixture_plan_make(&c, in_memory.model, &plan));
    assert_ok(ofl_device_open("cuda:0", &device));
    assert_ok(ofl_stream_create(device, &stream));
    assert_ok(ofl_engine_open(plan, in_memory.model, device, NULL, &engine));
    for (int step = 0; step < 4; step++) {
        if (step == 1) before = fake_calls("cudaMemcpyAsync");
        for (uint32_t unit = 0; unit < ofl_plan_unit_count(plan); unit++) {
            ofl_view view = {.struct_size = sizeof view};
            assert_ok(ofl_engine_acquire(engine, unit, stream, &view));
            assert_ok(ofl_engine_release(engine, unit, stream));
        }
    }
    assert_int_equal(fake_calls("cudaMemcpyAsync") - before, 3 * (FIXTURE_BLOCKS - 2));
    assert_ok(ofl_stream_wait(device, stream));
    ofl_engine_close(engine);
    ofl_stream_destroy(device, stream);
    ofl_device_close(device);
    ofl_plan_destroy(plan);
}

/* Opened and closed at once, in every tier, with the first copies in flight: what they use is freed only behind them. */
static void test_closed_with_copies_in_flight(void **state)
{
    (void)state;
    unsigned long hasty = fake_hasty != NULL ? fake_hasty() : 0;
    for (int kept = 0; kept < TIERS_COUNT; kept++) {
        job j = {.model = model_of((tiers)kept), .steps = 0};
        j.plan = plan_of(j.model, (tiers)kept);
        for (int i = 0; i < 4; i++) assert_ok(run(&j));
        if (fake_live != NULL) assert_int_equal(fake_live(), 0);
        if (fake_hasty != NULL) assert_int_equal(fake_hasty(), hasty);
        ofl_plan_destroy(j.plan);
    }
}

/* Each whole layer that is kept fewer is streamed instead, and the device's own count of its memory drops. */
static void test_layers_that_are_not_kept_leave_the_device(void **state)
{
    (void)state;
    uint64_t before = UINT64_MAX;
    if (is_capped()) skip();
    for (uint32_t kept = FIXTURE_BLOCKS; kept-- > 0;) {
        fixture_case c = {.link = 2e9, .compute = 1e-9, .vram = 16u << 20, .whole_blocks = 1, .layers_kept = kept};
        ofl_memory_info memory = {.struct_size = sizeof memory};
        ofl_budget budget = {.struct_size = sizeof budget};
        ofl_plan *plan;
        ofl_device *device;
        ofl_engine *engine;
        assert_ok(fixture_plan_make(&c, in_memory.model, &plan));
        assert_ok(ofl_plan_budget_get(plan, &budget));
        assert_ok(ofl_device_open("cuda:0", &device));
        assert_ok(ofl_engine_open(plan, in_memory.model, device, NULL, &engine));
        assert_ok(ofl_device_memory_get(device, &memory));
        assert_int_equal(memory.used_bytes, budget.resident_bytes + budget.ring_bytes);
        assert_true(memory.used_bytes < before);
        before = memory.used_bytes;
        ofl_engine_close(engine);
        ofl_device_close(device);
        ofl_plan_destroy(plan);
    }
}

static int cancel(void *context, uint64_t done, uint64_t total)
{
    (void)done;
    (void)total;
    ++*(int *)context;
    return 1;
}

/* Cancelled while loading, with copies of resident weights on the link. */
static void test_loading_can_be_cancelled(void **state)
{
    (void)state;
    ofl_plan *plan = plan_of(&in_memory, TIERS_PINNED);
    int calls = 0;
    ofl_engine_options options = {.struct_size = sizeof options, .progress = cancel, .context = &calls};
    unsigned long hasty = fake_hasty != NULL ? fake_hasty() : 0;
    job j = {.model = &in_memory, .plan = plan, .steps = 1, .options = &options};
    assert_status(run(&j), OFL_ERROR_CANCELLED);
    assert_int_equal(calls, 1);
    if (fake_live != NULL) assert_int_equal(fake_live(), 0);
    if (fake_hasty != NULL) assert_int_equal(fake_hasty(), hasty);
    ofl_plan_destroy(plan);
}

/* Page-locking is refused the n-th time (its error must not be found by the next call): host memory is named, the bytes are right. */
static void test_pinning_refused(void **state)
{
    (void)state;
    if (!is_virtual_fake()) skip();
    ofl_plan *plan = plan_of(&in_memory, TIERS_PINNED);
    ofl_engine_options options = {.struct_size = sizeof options, .message = remember};
    uint32_t went_on = 0;
    for (int nth = 1; nth < 8; nth++) {
        char text[64];
        job j = {.model = &in_memory, .plan = plan, .steps = 3, .options = &options};
        said[0] = '\0';
        (void)snprintf(text, sizeof text, "cudaHostRegister:%d:2", nth);
        (void)setenv("OFLOAD_FAKECUDA_FAIL", text, 1);
        int fired = fake_fired();
        ofl_status status = run(&j);
        (void)unsetenv("OFLOAD_FAKECUDA_FAIL");
        assert_int_equal(j.wrong, 0);
        if (fake_fired() == fired) break;
        if (status != OFL_OK) { /* rows that the device reads itself */
            assert_int_equal(status, OFL_ERROR_PINNED_MEMORY);
            assert_non_null(strstr(ofl_error_message(), "page-lock"));
        } else if (said[0] != '\0') {
            assert_non_null(strstr(said, "host memory"));
            assert_null(strstr(said, "device memory"));
            went_on++;
        }
    }
    assert_true(went_on > 0);
    ofl_plan_destroy(plan);
}

/* `ulimit -l` does not govern page-locking through the runtime. */
static void test_ulimit_does_not_matter(void **state)
{
    (void)state;
    static const ofl_engine_options options = {.struct_size = sizeof options, .message = remember};
    if (is_capped()) skip();
    ofl_plan *plan = plan_of(&in_memory, TIERS_PINNED);
    job j = {.model = &in_memory, .plan = plan, .steps = 2, .options = &options};
    struct rlimit before, low;
    assert_int_equal(getrlimit(RLIMIT_MEMLOCK, &before), 0);
    low = (struct rlimit){65536, before.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_MEMLOCK, &low), 0);
    said[0] = '\0';
    assert_ok(run(&j));
    assert_int_equal(j.wrong, 0);
    assert_string_equal(said, "");
    assert_int_equal(setrlimit(RLIMIT_MEMLOCK, &before), 0);
    ofl_plan_destroy(plan);
}

/* Between plan and open another process has taken memory: refused before anything is allocated. */
static void test_no_room_is_refused_before_anything(void **state)
{
    (void)state;
    if (fake_live == NULL) skip();
    ofl_plan *plan = plan_of(&in_memory, TIERS_PINNED);
    ofl_memory_info memory = {.struct_size = sizeof memory};
    ofl_budget budget = {.struct_size = sizeof budget};
    ofl_device *device;
    ofl_engine *engine = NULL;
    void *taken;
    assert_ok(ofl_plan_budget_get(plan, &budget));
    assert_ok(ofl_device_open("cuda:0", &device));
    assert_ok(ofl_device_memory_get(device, &memory));
    uint64_t rest = (budget.resident_bytes + budget.ring_bytes) / 256 * 256 - 256;
    assert_ok(ofl_device_alloc(device, (memory.free_bytes - rest) / 256 * 256, &taken));
    unsigned long allocations = fake_calls("cudaMalloc") + fake_calls("cudaHostAlloc") + fake_calls("cudaHostRegister");
    assert_status(ofl_engine_open(plan, in_memory.model, device, NULL, &engine), OFL_ERROR_DEVICE_MEMORY);
    assert_null(engine);
    assert_int_equal(fake_calls("cudaMalloc") + fake_calls("cudaHostAlloc") + fake_calls("cudaHostRegister"), allocations);
    assert_int_equal(ofl_diagnostic_get()->bytes_needed, budget.resident_bytes + budget.ring_bytes);
    ofl_device_free(device, taken);
    ofl_device_close(device);
    ofl_plan_destroy(plan);
}

static void *run_thread(void *argument)
{
    job *j = argument;
    return run(j) == OFL_OK && j->wrong == 0 ? NULL : argument;
}

/* Two threads, each with an engine of its own, on one device. */
static void test_two_threads(void **state)
{
    (void)state;
    if (is_virtual_fake() || is_capped()) skip(); /* one clock, moved by whoever waits; rows that have to be pinned are not there for both */
    for (int kept = 0; kept < TIERS_COUNT; kept++) {
        ofl_plan *plan = plan_of(model_of((tiers)kept), (tiers)kept);
        job jobs[2] = {{.model = model_of((tiers)kept), .plan = plan, .steps = 4, .seed = 1}, {0}};
        jobs[1] = jobs[0];
        jobs[1].seed = 2;
        pthread_t threads[2];
        for (int i = 0; i < 2; i++) assert_int_equal(pthread_create(&threads[i], NULL, run_thread, &jobs[i]), 0);
        for (int i = 0; i < 2; i++) {
            void *failed;
            assert_int_equal(pthread_join(threads[i], &failed), 0);
            assert_null(failed);
        }
        ofl_plan_destroy(plan);
    }
}

/* ---- everything fails in turn ---- */

typedef struct outcome { ofl_status status; int fired, left; uint32_t wrong; } outcome;

static outcome run_with_fault(const job *what, const char *call, int nth, int code)
{
    char text[64];
    job j = *what;
    int live = fake_live(), fired = fake_fired();
    (void)snprintf(text, sizeof text, "%s:%d:%d", call, nth, code);
    (void)setenv("OFLOAD_FAKECUDA_FAIL", text, 1);
    ofl_status status = run(&j);
    (void)unsetenv("OFLOAD_FAKECUDA_FAIL");
    return (outcome){status, fake_fired() - fired, fake_live() - live, j.wrong};
}

static int has_sentence(ofl_status status)
{
    return status < 0 && strlen(ofl_error_message()) > 10 && ofl_diagnostic_get()->status == status;
}

/* Where the next fault goes: each call of opening and of the first units, then fewer of the many alike, unless minutes do not matter. */
static int next_nth(int nth) { return nth < 50 || getenv("OFLOAD_TEST_EVERY_CALL") != NULL ? nth + 1 : nth + nth / 10; }

/* An error that passes: either it did not matter, or a status and a sentence say so; never a wrong byte, nothing left behind but the one
 * thing whose release failed, and the next engine opens and runs. */
static uint32_t sweep(const job *j, const char *call, int code)
{
    uint32_t failures = 0;
    outcome o = {.fired = 1};
    for (int nth = 1; o.fired > 0; nth = next_nth(nth)) {
        o = run_with_fault(j, call, nth, code);
        assert_int_equal(o.wrong, 0);
        if (o.status != OFL_OK && !has_sentence(o.status)) fail_msg("%s %d: %s without a sentence", call, nth, ofl_status_name(o.status));
        if (o.left < 0 || o.left > 1 || (o.left == 1 && o.status != OFL_OK)) fail_msg("%s %d: %d things left behind", call, nth, o.left);
        failures += o.status != OFL_OK;
        if (o.status == OFL_OK || o.fired == 0) continue;
        job again = *j;
        again.steps = 1;
        assert_ok(run(&again));
        assert_int_equal(again.wrong, 0);
    }
    return failures;
}

static void test_every_call_may_fail(void **state)
{
    (void)state;
    if (!is_virtual_fake()) skip();
    for (int kept = 0; kept < TIERS_COUNT; kept++) {
        job j = {.model = model_of((tiers)kept), .steps = 2};
        j.plan = plan_of(j.model, (tiers)kept);
        assert_true(sweep(&j, "*", 3) > 30);
        assert_true(sweep(&j, "cudaMalloc", 2) >= 2); /* resident and ring */
        (void)sweep(&j, "cudaHostAlloc", 2);
        (void)sweep(&j, "cudaHostRegister", 2);
        ofl_plan_destroy(j.plan);
    }
}

extern int __lsan_do_recoverable_leak_check(void) __attribute__((weak)); /* there under the address sanitizer */

/* In a process of its own, as it has to end afterwards: 0 as it should be, 1 not, 2 the fault lay beyond the last call. */
static int lost_child(const job *what, const char *call, int nth, int code)
{
    outcome o = run_with_fault(what, call, nth, code);
    if (o.fired == 0) return 2;
    if (o.wrong != 0) return 1;
    if (o.status == OFL_OK) return 0; /* lost while it was closed */
    char text[64];
    job again = *what;
    if (o.status != OFL_ERROR_DEVICE_LOST || !has_sentence(o.status) || strstr(ofl_error_message(), "end this process") == NULL) return 1;
    (void)snprintf(text, sizeof text, "*:1:%d", code); /* it stays lost: the next engine says the same */
    (void)setenv("OFLOAD_FAKECUDA_FAIL", text, 1);
    return run(&again) == OFL_ERROR_DEVICE_LOST ? 0 : 1;
}

static void lost_sweep(const job *j, const char *call, int code)
{
    int result = 0;
    for (int nth = 1; result != 2; nth = next_nth(nth)) {
        int status;
        (void)fflush(NULL);
        pid_t child = fork();
        assert_true(child >= 0);
        if (child == 0) { /* not exit: the test's files are the parent's */
            int failed = lost_child(j, call, nth, code);
            if (__lsan_do_recoverable_leak_check != NULL && __lsan_do_recoverable_leak_check() != 0) failed = 3;
            _exit(failed);
        }
        assert_int_equal(waitpid(child, &status, 0), child);
        result = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
        if (result != 0 && result != 2) fail_msg("%s %d with %d: exit status %d", call, nth, code, status);
    }
}

static void test_device_lost_at_any_call(void **state)
{
    (void)state;
    if (!is_virtual_fake()) skip();
    for (int kept = 0; kept < TIERS_COUNT; kept++) {
        job j = {.model = model_of((tiers)kept), .steps = 2};
        j.plan = plan_of(j.model, (tiers)kept);
        lost_sweep(&j, "*", 700);
        if (kept == TIERS_PINNED) lost_sweep(&j, "cudaMemcpyAsync", 719);
        ofl_plan_destroy(j.plan);
    }
}

static void test_every_allocation_may_fail(void **state)
{
    (void)state;
    if (!is_virtual_fake()) skip();
    for (int kept = 0; kept < TIERS_COUNT; kept++) {
        job what = {.model = model_of((tiers)kept), .steps = 1};
        what.plan = plan_of(what.model, (tiers)kept);
        uint64_t left = 0;
        for (uint64_t nth = 1; left == 0; nth++) {
            job j = what;
            int live = fake_live();
            (void)ofl_fault_allocation(nth);
            ofl_status status = run(&j);
            left = ofl_fault_allocation(0);
            assert_int_equal(status, left == 0 ? OFL_ERROR_HOST_MEMORY : OFL_OK);
            if (left == 0) assert_true(has_sentence(status));
            assert_int_equal(fake_live(), live);
            assert_int_equal(j.wrong, 0);
        }
        ofl_plan_destroy(what.plan);
    }
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_any_order),
    cmocka_unit_test(test_steady_steps_call_nothing_else),
    cmocka_unit_test(test_one_copy_a_block),
    cmocka_unit_test(test_closed_with_copies_in_flight),
    cmocka_unit_test(test_layers_that_are_not_kept_leave_the_device),
    cmocka_unit_test(test_loading_can_be_cancelled),
    cmocka_unit_test(test_pinning_refused),
    cmocka_unit_test(test_ulimit_does_not_matter),
    cmocka_unit_test(test_no_room_is_refused_before_anything),
    cmocka_unit_test(test_two_threads),
    cmocka_unit_test(test_every_call_may_fail),
    cmocka_unit_test(test_device_lost_at_any_call),
    cmocka_unit_test(test_every_allocation_may_fail),
};

int main(void)
{
    ofl_device *device = NULL;
    (void)mallopt(M_MMAP_THRESHOLD, 1 << 30); /* thousands of runs: pages that are there already are used again */
    (void)mallopt(M_TRIM_THRESHOLD, 1 << 30);
    find_fake();
    if (fake_live == NULL && getenv("OFLOAD_TEST_DEVICE_NEEDED") != NULL) {
        (void)printf("the stand-in runtime was not loaded\n");
        return 1;
    }
    if (getenv("OFLOAD_TEST_DEVICE") == NULL || ofl_device_open("cuda:0", &device) != OFL_OK) {
        (void)printf("no CUDA device asked for, or none there: skipped\n");
        return 77;
    }
    ofl_device_close(device);
    fixture_model_open(&in_memory, 0);
    fixture_model_make(&in_file, 0, test_path("weights"));
    in_place_open(&in_place);
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    fixture_model_close(&in_place);
    fixture_model_close(&in_memory);
    fixture_model_close(&in_file);
    return failed ? 1 : 0;
}
