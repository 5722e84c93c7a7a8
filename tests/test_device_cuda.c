/* The CUDA back end. Plain: what it says on a machine where it cannot run. With the stand-in runtime of tests/fakecuda loaded (a CTest of
 * its own): which device is meant, and every call of the runtime failed in turn. */
#include "support/support.h"

#include <dlfcn.h>
#include <stdbool.h>

#include "base/base.h"

static int (*fake_live)(void);
static int (*fake_fired)(void);
static int (*last_error)(void);
static unsigned long (*fake_spun)(void);

static void find_fake(void)
{
    void *live = dlsym(RTLD_DEFAULT, "fakecuda_live"), *fired = dlsym(RTLD_DEFAULT, "fakecuda_fired"),
         *last = dlsym(RTLD_DEFAULT, "cudaPeekAtLastError"), *spun = dlsym(RTLD_DEFAULT, "fakecuda_spun");
    memcpy(&fake_spun, &spun, sizeof fake_spun);
    memcpy(&fake_live, &live, sizeof fake_live);
    memcpy(&fake_fired, &fired, sizeof fake_fired);
    memcpy(&last_error, &last, sizeof last_error);
}

static void need_fake(void)
{
    if (fake_live == NULL) skip();
}

static void inject(const char *call, int nth, int code)
{
    char text[96];
    (void)snprintf(text, sizeof text, "%s:%d:%d", call, nth, code);
    assert_int_equal(setenv("OFLOAD_FAKECUDA_FAIL", text, 1), 0);
}

static ofl_status open_and_close(const char *spec)
{
    ofl_device *device = NULL;
    ofl_status status = ofl_device_open(spec, &device);
    if (status != OFL_OK) assert_null(device);
    ofl_device_close(device);
    return status;
}

static void test_a_machine_without_it_says_so(void **state)
{
    (void)state;
    if (fake_live != NULL) skip();
    ofl_status status = open_and_close("cuda:0");
    if (status == OFL_OK) skip(); /* a GPU is here */
    assert_true(status == OFL_ERROR_UNSUPPORTED || status == OFL_ERROR_NO_DRIVER || status == OFL_ERROR_NO_DEVICE);
    assert_non_null(strstr(ofl_error_message(), "device cuda:0: "));
    if (status == OFL_ERROR_UNSUPPORTED) assert_non_null(strstr(ofl_error_message(), "built without CUDA"));
    if (status == OFL_ERROR_NO_DRIVER) assert_non_null(strstr(ofl_error_message(), "driver"));
}

static void test_why_there_is_no_device(void **state)
{
    (void)state;
    need_fake();
    (void)setenv("OFLOAD_FAKECUDA_DRIVER", "0", 1);
    assert_status(open_and_close("cuda:0"), OFL_ERROR_NO_DRIVER);
    assert_non_null(strstr(ofl_error_message(), "this machine has no NVIDIA driver"));
    assert_int_equal(ofl_diagnostic_get()->runtime_code, 35);
    (void)setenv("OFLOAD_FAKECUDA_DRIVER", "11040", 1);
    assert_status(open_and_close("cuda:0"), OFL_ERROR_NO_DRIVER);
    assert_non_null(strstr(ofl_error_message(), "CUDA 11.4"));
    (void)unsetenv("OFLOAD_FAKECUDA_DRIVER");
    (void)setenv("OFLOAD_FAKECUDA_DEVICES", "0", 1);
    assert_status(open_and_close("cuda:0"), OFL_ERROR_NO_DEVICE);
    (void)setenv("OFLOAD_FAKECUDA_DEVICES", "1", 1);
    assert_status(open_and_close("cuda:1"), OFL_ERROR_NO_DEVICE);
    assert_non_null(strstr(ofl_error_message(), "1 CUDA device,"));
    (void)unsetenv("OFLOAD_FAKECUDA_DEVICES");
}

static void test_which_device(void **state)
{
    (void)state;
    need_fake();
    static const struct { const char *spec; ofl_status status; const char *pci_id; } cases[] = {
        {"cuda:0", OFL_OK, "0000:01:00.0"},
        {"cuda:1", OFL_OK, "0000:02:00.0"},
        {"cuda:0000:02:00.0", OFL_OK, "0000:02:00.0"},
        {"cuda:GPU-00102030-4050-6070-8090-a0b0c0d0e0f0", OFL_OK, "0000:01:00.0"},
        {"cuda:gpu-01112131-4151-6171-8191-A1B1C1D1E1F1", OFL_OK, "0000:02:00.0"},
        {"cuda:GPU-01112131-4151-6171-8191-a1b1c1d1e1f2", OFL_ERROR_NO_DEVICE, ""},
        {"cuda:0000:07:00.0", OFL_ERROR_NO_DEVICE, ""},
        {"cuda:2", OFL_ERROR_NO_DEVICE, ""},
        {"cuda:", OFL_ERROR_ARGUMENT, ""},
        {"cuda:x", OFL_ERROR_ARGUMENT, ""},
        {"cuda:-1", OFL_ERROR_ARGUMENT, ""},
        {"cuda:99999999999999999999", OFL_ERROR_ARGUMENT, ""},
    };
    for (size_t i = 0; i < OFL_COUNT_OF(cases); i++) {
        ofl_device *device = NULL;
        assert_status(ofl_device_open(cases[i].spec, &device), cases[i].status);
        if (device == NULL) continue;
        ofl_device_info info = {.struct_size = sizeof info};
        assert_ok(ofl_device_info_get(device, &info));
        assert_string_equal(info.pci_id, cases[i].pci_id);
        assert_int_equal(info.numa_node, 0);
        assert_memory_equal(info.uuid, "GPU-0", 5);
        assert_memory_equal(info.name, "Stand-in", 8);
        ofl_device_close(device);
    }
}

/* What the driver hides is not there, by any name; what is left is found by its identity whatever its number has become. */
static void test_visible_devices(void **state)
{
    (void)state;
    need_fake();
    static const struct { const char *visible, *spec; ofl_status status; const char *pci_id; } cases[] = {
        {"1,0", "cuda:0", OFL_OK, "0000:02:00.0"},
        {"1,0", "cuda:GPU-00102030-4050-6070-8090-a0b0c0d0e0f0", OFL_OK, "0000:01:00.0"},
        {"1,0", "cuda:0000:01:00.0", OFL_OK, "0000:01:00.0"},
        {"1", "cuda:0", OFL_OK, "0000:02:00.0"},
        {"1", "cuda:1", OFL_ERROR_NO_DEVICE, ""},
        {"1", "cuda:GPU-00102030-4050-6070-8090-a0b0c0d0e0f0", OFL_ERROR_NO_DEVICE, ""},
        {"1", "cuda:0000:01:00.0", OFL_ERROR_NO_DEVICE, ""},
        {"GPU-01112131-4151-6171-8191-a1b1c1d1e1f1", "cuda:0", OFL_OK, "0000:02:00.0"},
        {"0,7,1", "cuda:1", OFL_ERROR_NO_DEVICE, ""},
        {"", "cuda:0", OFL_ERROR_NO_DEVICE, ""},
    };
    const char *before = getenv("CUDA_VISIBLE_DEVICES");
    char kept[64];
    (void)snprintf(kept, sizeof kept, "%s", before != NULL ? before : "0,1");
    for (size_t i = 0; i < OFL_COUNT_OF(cases); i++) {
        ofl_device *device = NULL;
        ofl_device_info info = {.struct_size = sizeof info};
        (void)setenv("CUDA_VISIBLE_DEVICES", cases[i].visible, 1);
        assert_status(ofl_device_open(cases[i].spec, &device), cases[i].status);
        if (device == NULL) continue;
        assert_ok(ofl_device_info_get(device, &info));
        assert_string_equal(info.pci_id, cases[i].pci_id);
        ofl_device_close(device);
    }
    (void)setenv("CUDA_VISIBLE_DEVICES", kept, 1);
}

static void test_simulated_time_is_refused(void **state)
{
    (void)state;
    need_fake();
    ofl_device *device;
    ofl_stream *stream;
    assert_ok(ofl_device_open("cuda:0", &device));
    assert_ok(ofl_stream_create(device, &stream));
    assert_status(ofl_sim_launch(device, stream, NULL, NULL, 1), OFL_ERROR_UNSUPPORTED);
    assert_status(ofl_sim_elapse(device, 1), OFL_ERROR_UNSUPPORTED);
    ofl_stream_destroy(device, stream);
    ofl_device_close(device);
}

/* One of everything, all that was made taken back whatever fails. Registers other memory each time, since a lost device does not give it
 * back. */
static ofl_status use_device(const char *spec)
{
    enum { PAGES = 2 * 4096, RUNS = 256 };
    static char pool[RUNS][PAGES] __attribute__((aligned(4096)));
    static unsigned run;
    char *mine = pool[run++ % RUNS];
    ofl_device *device = NULL;
    ofl_stream *stream = NULL, *other = NULL;
    ofl_event *event = NULL;
    void *on_device = NULL, *host = NULL;
    const void *address = NULL;
    bool registered = false;
    ofl_memory_info memory = {.struct_size = sizeof memory};
    ofl_status status = ofl_device_open(spec, &device);
    if (status == OFL_OK) status = ofl_stream_create(device, &stream);
    if (status == OFL_OK) status = ofl_stream_create(device, &other);
    if (status == OFL_OK) status = ofl_event_create(device, &event);
    if (status == OFL_OK) status = ofl_device_alloc(device, 4096, &on_device);
    if (status == OFL_OK) status = ofl_device_host_alloc(device, 4096, &host);
    if (status == OFL_OK) status = ofl_device_host_register(device, mine, PAGES);
    registered = status == OFL_OK;
    if (status == OFL_OK) status = ofl_device_host_address(device, mine + 1, &address);
    if (status == OFL_OK) status = ofl_copy(device, stream, OFL_HOST_TO_DEVICE, on_device, host, 4096, OFL_HOST_PINNED);
    if (status == OFL_OK) status = ofl_event_record(device, event, stream);
    if (status == OFL_OK) status = ofl_stream_wait_event(device, other, event);
    if (status == OFL_OK) status = ofl_copy(device, other, OFL_DEVICE_TO_HOST, mine, on_device, 4096, OFL_HOST_PAGEABLE);
    if (status == OFL_OK) status = ofl_event_wait(device, event);
    if (status == OFL_OK) status = ofl_event_query(device, event);
    if (status == OFL_OK) status = ofl_stream_query(device, other);
    if (status == OFL_OK) status = ofl_stream_wait(device, other);
    if (status == OFL_OK) status = ofl_device_memory_get(device, &memory);
    if (registered) (void)ofl_device_host_unregister(device, mine);
    ofl_event_destroy(device, event);
    ofl_stream_destroy(device, stream);
    ofl_stream_destroy(device, other);
    ofl_device_free(device, on_device);
    ofl_device_host_free(device, host);
    ofl_device_close(device);
    return status;
}

/* Every call of the runtime fails once, with an error that passes: a status and a sentence, and at most the one thing whose release failed
 * stays behind. */
static void test_every_call_may_fail(void **state)
{
    (void)state;
    need_fake();
    int failures = 0, nth = 0, fired;
    do {
        inject("*", ++nth, 3);
        fired = fake_fired();
        int live = fake_live();
        ofl_status status = use_device("cuda:1");
        fired = fake_fired() - fired;
        if (status != OFL_OK) {
            failures++;
            assert_int_equal(fired, 1);
            assert_int_equal(status, OFL_ERROR_RUNTIME);
            assert_int_equal(ofl_diagnostic_get()->runtime_code, 3);
            assert_non_null(strstr(ofl_error_message(), "cudaError3"));
        }
        assert_int_equal(last_error(), 0); /* the caller's own error handling must not find ours */
        assert_in_range(fake_live() - live, 0, status == OFL_OK ? 1 : 0);
    } while (fired > 0);
    assert_true(nth > 50);
    assert_true(failures > 20);
    (void)unsetenv("OFLOAD_FAKECUDA_FAIL");
    assert_ok(use_device("cuda:1"));
}

static void test_what_a_failure_means(void **state)
{
    (void)state;
    need_fake();
    static const struct { const char *call; int code; ofl_status status; } cases[] = {
        {"cudaMalloc", 2, OFL_ERROR_DEVICE_MEMORY},
        {"cudaHostAlloc", 2, OFL_ERROR_PINNED_MEMORY},
        {"cudaHostRegister", 2, OFL_ERROR_PINNED_MEMORY},
        {"cudaHostRegister", 712, OFL_ERROR_STATE},
        {"cudaHostRegister", 801, OFL_ERROR_UNSUPPORTED},
        {"cudaHostGetDevicePointer", 1, OFL_ERROR_ARGUMENT},
        {"cudaMemcpyAsync", 700, OFL_ERROR_DEVICE_LOST},
        {"cudaEventSynchronize", 719, OFL_ERROR_DEVICE_LOST},
        {"cudaEventRecord", 999, OFL_ERROR_DEVICE_LOST},
        {"cudaMemcpyAsync", 1, OFL_ERROR_RUNTIME},
        {"cudaGetDeviceCount", 35, OFL_ERROR_NO_DRIVER},
        {"cudaGetDeviceCount", 100, OFL_ERROR_NO_DEVICE},
        {"cudaSetDevice", 46, OFL_ERROR_NO_DEVICE},
        {"cudaEventQuery", 600, OFL_NOT_READY},
    };
    for (size_t i = 0; i < OFL_COUNT_OF(cases); i++) {
        inject(cases[i].call, 1, cases[i].code);
        assert_status(use_device("cuda:0"), cases[i].status);
        if (cases[i].status == OFL_ERROR_DEVICE_LOST) assert_non_null(strstr(ofl_error_message(), "end this process"));
        if (cases[i].code == 2) assert_true(ofl_diagnostic_get()->bytes_needed > 0);
        if (cases[i].status == OFL_ERROR_DEVICE_MEMORY) assert_int_equal(ofl_diagnostic_get()->bytes_available, 63000000);
        (void)unsetenv("OFLOAD_FAKECUDA_FAIL");
        if (cases[i].status != OFL_ERROR_DEVICE_LOST) assert_ok(use_device("cuda:0"));
    }
}

/* Whoever waits for a stream, or for a copy from pageable memory, sleeps; where there is no event to wait for, the wait is done all the same. */
static void test_waits_sleep(void **state)
{
    (void)state;
    ofl_device *device = NULL;
    ofl_stream *stream = NULL;
    void *memory = NULL;
    static char bytes[4096];
    need_fake();
    assert_ok(ofl_device_open("cuda:0", &device));
    assert_ok(ofl_stream_create(device, &stream));
    assert_ok(ofl_device_alloc(device, sizeof bytes, &memory));
    unsigned long spun = fake_spun();
    assert_ok(ofl_copy(device, stream, OFL_HOST_TO_DEVICE, memory, bytes, sizeof bytes, OFL_HOST_PAGEABLE));
    assert_ok(ofl_stream_wait(device, stream));
    assert_int_equal(fake_spun(), spun);
    inject("cudaEventCreateWithFlags", 1, 2);
    assert_ok(ofl_stream_wait(device, stream));
    assert_int_equal(fake_spun(), spun + 1);
    inject("cudaEventRecord", 1, 1);
    assert_ok(ofl_stream_wait(device, stream));
    assert_int_equal(fake_spun(), spun + 2);
    (void)unsetenv("OFLOAD_FAKECUDA_FAIL");
    assert_int_equal(last_error(), 0);
    ofl_stream_destroy(device, stream);
    ofl_device_free(device, memory);
    ofl_device_close(device);
}

static void test_every_allocation_may_fail(void **state)
{
    (void)state;
    need_fake();
    uint64_t nth = 1, left;
    do {
        int live = fake_live();
        (void)ofl_fault_allocation(nth++);
        ofl_status status = use_device("cuda:0");
        left = ofl_fault_allocation(0);
        assert_int_equal(status, left == 0 ? OFL_ERROR_HOST_MEMORY : OFL_OK);
        assert_int_equal(fake_live(), live);
    } while (left == 0);
    assert_true(nth > 3);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_a_machine_without_it_says_so),
    cmocka_unit_test(test_why_there_is_no_device),
    cmocka_unit_test(test_which_device),
    cmocka_unit_test(test_visible_devices),
    cmocka_unit_test(test_simulated_time_is_refused),
    cmocka_unit_test(test_every_call_may_fail),
    cmocka_unit_test(test_every_allocation_may_fail),
    cmocka_unit_test(test_waits_sleep),
    cmocka_unit_test(test_what_a_failure_means),
};

int main(void)
{
    find_fake();
    if (fake_live == NULL && getenv("OFLOAD_TEST_DEVICE_NEEDED") != NULL) {
        (void)printf("the stand-in runtime was not loaded\n");
        return 1;
    }
    return cmocka_run_group_tests(tests, NULL, NULL) ? 1 : 0;
}
