/* The launch functions over a CUDA stream: over the stand-in runtime with the bodies on the CPU (kernels_host.c), on a GPU with kernels.cu.
 * What they compute is what the bodies compute here, in the order of the stream, and again where a graph of them is replayed. */
#include "support/support.h"

#include <cuda_runtime_api.h>

#include "common/app_error.h"
#include "kernels/kernel_cases.h"

static kernel_case there, here; /* moved to the device and back; run here */
static uint8_t *device_memory;
static cudaStream_t stream;

#define assert_cuda(call)                                                                \
    do {                                                                                 \
        cudaError_t assert_cuda_error = (call);                                          \
        if (assert_cuda_error != cudaSuccess)                                            \
            fail_msg("%s: %s", #call, cudaGetErrorString(assert_cuda_error));            \
    } while (0)

static void queue(const kernel_case *c)
{
    for (uint32_t i = 0; i < c->launch_count; i++) {
        if (c->launches[i].blocks == 0) continue;
        if (kernel_queue((ofl_stream *)(void *)stream, &c->launches[i]) != OFL_OK) fail_msg("%s: %s", c->name, app_error());
    }
}

/* Both begin with the same bytes, pointers aside. */
static void compare(void)
{
    for (uint32_t i = 0; i < here.output_count; i++) {
        const case_output *o = &here.outputs[i];
        uint8_t *got = there.base + ((uint8_t *)o->at - here.base);
        case_compare(&here, o->kind, got, o->at, o->count, o->columns, o->within);
        memcpy(got, o->at, o->bytes);
    }
}

static void check_seed(const case_family *family, uint64_t seed)
{
    case_make(&there, family, seed, device_memory - there.base);
    assert_cuda(cudaMemcpyAsync(device_memory, there.base, there.used, cudaMemcpyHostToDevice, stream));
    queue(&there);
    uint8_t *before = malloc(there.used);
    assert_non_null(before);
    memcpy(before, there.base, there.used);
    assert_cuda(cudaMemcpyAsync(there.base, device_memory, there.used, cudaMemcpyDeviceToHost, stream));
    assert_cuda(cudaStreamSynchronize(stream));
    case_make(&here, family, seed, 0);
    case_run(&here, false);
    compare();
    for (uint32_t i = 0; i < here.output_count; i++) { /* all else is as it was */
        uint64_t at = (uint64_t)((uint8_t *)here.outputs[i].at - here.base);
        memcpy(before + at, there.base + at, here.outputs[i].bytes);
    }
    if (memcmp(before, there.base, there.used) != 0) fail_msg("%s: something else was written", there.name);
    free(before);
}

static void test_every_family(void **state)
{
    (void)state;
    const char *few = getenv("OFLOAD_TEST_SEEDS"); /* for checkers that take their time */
    uint64_t most = few != NULL ? strtoull(few, NULL, 10) : UINT64_MAX;
    for (uint32_t f = 0; f < case_family_count; f++) {
        for (uint64_t seed = 1; seed <= case_families[f].count && seed <= most; seed++) check_seed(&case_families[f], seed);
    }
}

/* Uploads the case anew, runs the graph, compares. */
static void replay(cudaGraphExec_t exec)
{
    uint8_t *kept = malloc(there.used);
    assert_non_null(kept);
    memcpy(kept, there.base, there.used);
    assert_cuda(cudaMemsetAsync(device_memory, 0x5a, there.used, stream));
    assert_cuda(cudaMemcpyAsync(device_memory, there.base, there.used, cudaMemcpyDefault, stream));
    assert_cuda(cudaGraphLaunch(exec, stream));
    assert_cuda(cudaMemcpyAsync(there.base, device_memory, there.used, cudaMemcpyDefault, stream));
    assert_cuda(cudaStreamSynchronize(stream));
    compare();
    memcpy(there.base, kept, there.used);
    free(kept);
}

static void test_graphs_run_again(void **state)
{
    (void)state;
    const case_family *family = case_families;
    while (strcmp(family->name, "attention") != 0) family++;
    for (uint64_t seed = 1; seed <= 6; seed++) {
        cudaGraph_t graph;
        cudaGraphExec_t exec;
        case_make(&there, family, seed, device_memory - there.base);
        assert_cuda(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
        queue(&there);
        assert_cuda(cudaStreamEndCapture(stream, &graph));
        assert_cuda(cudaGraphInstantiate(&exec, graph, 0));
        case_make(&here, family, seed, 0);
        case_run(&here, false);
        for (int again = 0; again < 3; again++) replay(exec);
        assert_cuda(cudaGraphExecDestroy(exec));
        assert_cuda(cudaGraphDestroy(graph));
    }
}

/* Says what the caller can do about it. After the last one the runtime answers nothing else as long as it is set. */
static void test_what_a_refusal_means(void **state)
{
    (void)state;
    static const struct { int code; ofl_status status; } cases[] = {
        {1, OFL_ERROR_RUNTIME}, {2, OFL_ERROR_DEVICE_MEMORY}, {719, OFL_ERROR_DEVICE_LOST}, {700, OFL_ERROR_DEVICE_LOST}};
    if (getenv("OFLOAD_FAKECUDA_SPEC") == NULL) skip();
    case_make(&there, &case_families[0], 1, device_memory - there.base);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char text[32];
        (void)snprintf(text, sizeof text, "cudaLaunchHostFunc:1:%d", cases[i].code);
        (void)setenv("OFLOAD_FAKECUDA_FAIL", text, 1);
        assert_int_equal(kernel_queue((ofl_stream *)(void *)stream, &there.launches[0]), cases[i].status);
    }
    (void)unsetenv("OFLOAD_FAKECUDA_FAIL");
    assert_cuda(cudaStreamSynchronize(stream));
}

/* A launch that is refused says so in a sentence, and leaves no error behind for others. */
static void test_a_refused_launch(void **state)
{
    (void)state;
    case_make(&there, &case_families[0], 1, device_memory - there.base);
    kernel_launch bad = there.launches[0];
    bad.shared_bytes = UINT32_MAX;
    if (getenv("OFLOAD_FAKECUDA_SPEC") != NULL) (void)setenv("OFLOAD_FAKECUDA_FAIL", "cudaLaunchHostFunc:1:1", 1);
    assert_int_equal(kernel_queue((ofl_stream *)(void *)stream, &bad), OFL_ERROR_RUNTIME);
    (void)unsetenv("OFLOAD_FAKECUDA_FAIL");
    assert_non_null(strstr(app_error(), "kernel"));
    assert_cuda(cudaPeekAtLastError());
    assert_cuda(cudaStreamSynchronize(stream));
}

static int close_all(void **state)
{
    (void)state;
    assert_cuda(cudaFree(device_memory));
    assert_cuda(cudaStreamDestroy(stream));
    case_close(&there);
    case_close(&here);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_family),
        cmocka_unit_test(test_graphs_run_again),
        cmocka_unit_test(test_a_refused_launch),
        cmocka_unit_test(test_what_a_refusal_means),
    };
    int count = 0;
    if (getenv("OFLOAD_TEST_DEVICE") == NULL || cudaGetDeviceCount(&count) != cudaSuccess || count == 0) {
        (void)printf("no CUDA device asked for, or none there: skipped\n");
        return 77;
    }
    case_open(&there);
    case_open(&here);
    if (cudaSetDevice(0) != cudaSuccess || cudaMalloc((void **)&device_memory, there.size) != cudaSuccess ||
        cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking) != cudaSuccess)
        return 1;
    return cmocka_run_group_tests(tests, NULL, close_all) == 0 ? 0 : 1;
}
