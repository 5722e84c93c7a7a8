/* The engine on streams that the caller made through CUDA itself, on graphs, and on two devices: on a GPU, or over the stand-in runtime. */
#include "support/engine_reader.h"

#include <dlfcn.h>

#include <cuda_runtime_api.h>

#include "base/base.h"

#define assert_cuda(call) assert_int_equal((call), cudaSuccess)

static fixture_model model;
static ofl_plan *plan;
static uint32_t units;
static unsigned long (*fake_hasty)(void);
static uint64_t (*fake_now)(void);

static ofl_stream *as_ours(cudaStream_t stream) { return (ofl_stream *)(void *)stream; }

static void steps(ofl_device *device, ofl_engine *engine, ofl_stream *stream, uint32_t count)
{
    reader r;
    assert_ok(reader_open(&r, &model, device));
    for (uint32_t i = 0; i < count * units; i++) assert_ok(reader_unit(&r, engine, i % units, stream, 0));
    assert_ok(reader_check(&r, stream));
    assert_int_equal(r.wrong, 0);
    reader_close(&r);
}

/* One that waits for the default stream, one that does not, and the default ones themselves. */
static void test_streams_of_the_caller(void **state)
{
    (void)state;
    cudaStream_t blocking, other;
    ofl_device *device;
    ofl_engine *engine;
    assert_ok(ofl_device_open("cuda:0", &device));
    assert_cuda(cudaStreamCreateWithFlags(&blocking, cudaStreamDefault));
    assert_cuda(cudaStreamCreateWithFlags(&other, cudaStreamNonBlocking));
    const cudaStream_t streams[] = {blocking, other, cudaStreamLegacy, cudaStreamPerThread};
    assert_ok(ofl_engine_open(plan, model.model, device, NULL, &engine));
    for (size_t i = 0; i < OFL_COUNT_OF(streams); i++) steps(device, engine, as_ours(streams[i]), 3);
    for (uint32_t i = 0; i < 8 * units; i++) { /* all four in turn, nothing waited for between */
        ofl_view view = {.struct_size = sizeof view};
        assert_ok(ofl_engine_acquire(engine, i % units, as_ours(streams[i % 4]), &view));
        assert_ok(ofl_engine_release(engine, i % units, as_ours(streams[i % 4])));
    }
    for (size_t i = 0; i < OFL_COUNT_OF(streams); i++) assert_cuda(cudaStreamSynchronize(streams[i]));
    ofl_engine_close(engine);
    assert_cuda(cudaStreamDestroy(blocking));
    assert_cuda(cudaStreamDestroy(other));
    ofl_device_close(device);
}

/* Copies and the reader's work go on at the same time, also where the reader uses the default stream, since the engine's own does not wait
 * for that one. On the stand-in's clock: the reader's work is copies the other way. */
static void overlap(cudaStream_t given)
{
    const char *spec = getenv("OFLOAD_FAKECUDA_SPEC");
    if (fake_now == NULL || spec == NULL || strstr(spec, "h2d=2GB/s,clock=virtual") == NULL) skip();
    enum { STEPS = 8 };
    ofl_budget budget = {.struct_size = sizeof budget};
    ofl_device *device;
    ofl_engine *engine;
    ofl_stream *stream;
    assert_ok(ofl_plan_budget_get(plan, &budget));
    assert_ok(ofl_device_open("cuda:0", &device));
    if (given != NULL) stream = as_ours(given);
    else assert_ok(ofl_stream_create(device, &stream));
    assert_ok(ofl_engine_open(plan, model.model, device, NULL, &engine));
    steps(device, engine, stream, 2);
    uint64_t start = fake_now();
    steps(device, engine, stream, STEPS);
    double seconds = (double)(fake_now() - start) * 1e-9;
    double down = STEPS * (double)budget.stream_bytes_per_step / 2e9, up = STEPS * (double)model.bytes / 2e9;
    assert_true(seconds < 0.9 * (down + up)); /* order=SEED holds copies back now and then */
    ofl_engine_close(engine);
    if (given == NULL) ofl_stream_destroy(device, stream);
    ofl_device_close(device);
}

static void test_copies_overlap_the_reader(void **state)
{
    (void)state;
    overlap(NULL);
    overlap(cudaStreamLegacy);
}

/* What a unit's reader does becomes a graph between acquire and release; the copies that it was handed over by stay outside. */
static void capture_unit(reader *r, ofl_engine *engine, uint32_t unit, cudaStream_t stream)
{
    ofl_view view = {.struct_size = sizeof view};
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    assert_ok(ofl_engine_acquire(engine, unit, as_ours(stream), &view));
    if (!reader_has_room(r, &view)) assert_ok(reader_check(r, as_ours(stream)));
    assert_cuda(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    for (uint32_t i = 0; i < view.slice_count; i++) {
        char *place = reader_place(r, &view.slices[i]);
        assert_cuda(cudaMemcpyAsync(place, view.slices[i].data, view.slices[i].bytes, cudaMemcpyDeviceToHost, stream));
    }
    assert_cuda(cudaStreamEndCapture(stream, &graph));
    assert_cuda(cudaGraphInstantiate(&exec, graph, 0));
    assert_cuda(cudaGraphLaunch(exec, stream));
    assert_ok(ofl_engine_release(engine, unit, as_ours(stream)));
    assert_cuda(cudaStreamSynchronize(stream)); /* before the graph goes */
    assert_cuda(cudaGraphExecDestroy(exec));
    assert_cuda(cudaGraphDestroy(graph));
}

static void test_graphs_between_acquire_and_release(void **state)
{
    (void)state;
    cudaStream_t stream;
    ofl_device *device;
    ofl_engine *engine;
    reader r;
    assert_ok(ofl_device_open("cuda:0", &device));
    assert_cuda(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    assert_ok(ofl_engine_open(plan, model.model, device, NULL, &engine));
    assert_ok(reader_open(&r, &model, device));
    for (uint32_t i = 0; i < 4 * units; i++) capture_unit(&r, engine, i % units, stream);
    assert_ok(reader_check(&r, as_ours(stream)));
    assert_int_equal(r.wrong, 0);
    reader_close(&r);
    ofl_engine_close(engine);
    assert_cuda(cudaStreamDestroy(stream));
    ofl_device_close(device);
}

static uint32_t streamed_unit(void)
{
    for (uint32_t i = 0; i < units; i++) {
        ofl_unit unit = {.struct_size = sizeof unit};
        assert_ok(ofl_plan_unit_get(plan, i, &unit));
        if (unit.piece_bytes != 0) return i;
    }
    fail();
    return 0;
}

/* Inside a capture both are refused with a sentence, and the caller's capture is not spoiled. */
static void test_no_acquire_or_release_inside_a_capture(void **state)
{
    (void)state;
    uint32_t unit = streamed_unit();
    for (int release = 0; release < 2; release++) {
        ofl_view view = {.struct_size = sizeof view};
        cudaStream_t stream;
        cudaGraph_t graph;
        ofl_device *device;
        ofl_engine *engine;
        assert_ok(ofl_device_open("cuda:0", &device));
        assert_cuda(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
        assert_ok(ofl_engine_open(plan, model.model, device, NULL, &engine));
        if (release) assert_ok(ofl_engine_acquire(engine, unit, as_ours(stream), &view));
        assert_cuda(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
        ofl_status status = release ? ofl_engine_release(engine, unit, as_ours(stream))
                                    : ofl_engine_acquire(engine, unit, as_ours(stream), &view);
        assert_status(status, OFL_ERROR_STATE);
        assert_non_null(strstr(ofl_error_message(), "captured"));
        assert_cuda(cudaStreamEndCapture(stream, &graph));
        assert_cuda(cudaGraphDestroy(graph));
        ofl_engine_close(engine);
        assert_cuda(cudaStreamDestroy(stream));
        ofl_device_close(device);
    }
}

static size_t free_on(int device)
{
    size_t available = 0, total = 0;
    assert_cuda(cudaSetDevice(device));
    assert_cuda(cudaMemGetInfo(&available, &total));
    return available;
}

/* One thread, an engine on each of two devices, in turn: every call goes to its own, whatever device is current. */
static void test_two_devices(void **state)
{
    (void)state;
    int count = 0;
    assert_cuda(cudaGetDeviceCount(&count));
    if (count < 2) skip();
    ofl_device *devices[2];
    ofl_stream *streams[2];
    ofl_engine *engines[2];
    reader readers[2];
    for (int i = 0; i < 2; i++) assert_ok(ofl_device_open(i ? "cuda:1" : "cuda:0", &devices[i]));
    size_t before[2] = {free_on(0), free_on(1)};
    for (int i = 0; i < 2; i++) {
        assert_ok(ofl_stream_create(devices[i], &streams[i]));
        assert_ok(reader_open(&readers[i], &model, devices[i]));
        assert_ok(ofl_engine_open(plan, model.model, devices[i], NULL, &engines[i]));
    }
    for (int i = 0; i < 2; i++) assert_true(free_on(i) < before[i]);
    for (uint32_t i = 0; i < 4 * units; i++) {
        for (int d = 0; d < 2; d++) assert_ok(reader_unit(&readers[d], engines[d], i % units, streams[d], i % 7 == 0));
    }
    for (int i = 0; i < 2; i++) {
        assert_ok(reader_check(&readers[i], streams[i]));
        assert_int_equal(readers[i].wrong, 0);
        ofl_engine_close(engines[i]);
        reader_close(&readers[i]);
        ofl_stream_destroy(devices[i], streams[i]);
        ofl_device_close(devices[i]);
    }
}

/* Closing a device waits for its work before it gives back what was left on it. */
static void test_close_waits_for_copies(void **state)
{
    (void)state;
    ofl_device *device;
    cudaStream_t stream;
    void *there, *host;
    unsigned long hasty = fake_hasty != NULL ? fake_hasty() : 0;
    assert_ok(ofl_device_open("cuda:0", &device));
    assert_cuda(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    assert_ok(ofl_device_alloc(device, 8u << 20, &there));
    assert_ok(ofl_device_host_alloc(device, 8u << 20, &host));
    assert_ok(ofl_copy(device, as_ours(stream), OFL_HOST_TO_DEVICE, there, host, 8u << 20, OFL_HOST_PINNED));
    ofl_device_close(device);
    assert_cuda(cudaStreamDestroy(stream));
    if (fake_hasty != NULL) assert_int_equal(fake_hasty(), hasty);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_streams_of_the_caller),
    cmocka_unit_test(test_copies_overlap_the_reader),
    cmocka_unit_test(test_graphs_between_acquire_and_release),
    cmocka_unit_test(test_no_acquire_or_release_inside_a_capture),
    cmocka_unit_test(test_two_devices),
    cmocka_unit_test(test_close_waits_for_copies),
};

int main(void)
{
    ofl_device *device = NULL;
    void *hasty = dlsym(RTLD_DEFAULT, "fakecuda_hasty"), *now = dlsym(RTLD_DEFAULT, "fakecuda_now_ns");
    memcpy(&fake_hasty, &hasty, sizeof hasty);
    memcpy(&fake_now, &now, sizeof now);
    if (fake_hasty == NULL && getenv("OFLOAD_TEST_DEVICE_NEEDED") != NULL) return 1;
    if (getenv("OFLOAD_TEST_DEVICE") == NULL || ofl_device_open("cuda:0", &device) != OFL_OK) {
        (void)printf("no CUDA device asked for, or none there: skipped\n");
        return 77;
    }
    ofl_device_close(device);
    fixture_model_open(&model, 0);
    fixture_case c = {.link = 2e9, .start = 1e-6, .compute = 1e-9, .cut = OFL_CUT_BYTES, .part_bytes = 128 * 1024};
    c.vram = fixture_least_vram(c, model.model) + 300000;
    assert_ok(fixture_plan_make(&c, model.model, &plan));
    units = ofl_plan_unit_count(plan);
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    ofl_plan_destroy(plan);
    fixture_model_close(&model);
    return failed ? 1 : 0;
}
