/* The probe of a CUDA device, on the stand-in runtime: whose memory counts, what is page-locked, several devices, and every call of the
 * runtime failing. Each test opens a device of its own, described just before. */
#include "support/support.h"

#include <dlfcn.h>
#include <stdbool.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include "base/base.h"
#include "base/locality.h"
#include "machine/probe.h"

static int (*fake_live)(void);
static int (*fake_fired)(void);
static int (*last_error)(void);

static void find_fake(void)
{
    void *live = dlsym(RTLD_DEFAULT, "fakecuda_live"), *fired = dlsym(RTLD_DEFAULT, "fakecuda_fired"),
         *last = dlsym(RTLD_DEFAULT, "cudaPeekAtLastError");
    memcpy(&fake_live, &live, sizeof fake_live);
    memcpy(&fake_fired, &fired, sizeof fake_fired);
    memcpy(&last_error, &last, sizeof last_error);
}

static void need_fake(void)
{
    if (fake_live == NULL) skip();
}

static ofl_device *open_as(int index, const char *sim)
{
    ofl_device *device = NULL;
    char spec[16];
    (void)snprintf(spec, sizeof spec, "cuda:%d", index);
    assert_int_equal(setenv("OFLOAD_FAKECUDA_SPEC", sim, 1), 0);
    assert_ok(ofl_device_open(spec, &device));
    return device;
}

static ofl_machine *probe(int index, const char *sim)
{
    ofl_machine *machine = NULL;
    ofl_device *device = open_as(index, sim);
    int live = fake_live();
    assert_ok(ofl_machine_probe(device, &machine));
    assert_int_equal(fake_live(), live);
    assert_int_equal(last_error(), 0);
    ofl_device_close(device);
    return machine;
}

static bool notes_say(const ofl_machine *machine, const char *words)
{
    bool said = false;
    for (uint32_t i = 0; i < ofl_machine_note_count(machine); i++) said = said || strstr(ofl_machine_note(machine, i), words) != NULL;
    return said;
}

#define GIB 1073741824.0
#define MIB 1048576.0

/* Field case 57: of 24 GiB another process holds 5: what is planned with is 19. */
static void memory_of_others_does_not_count(void **state)
{
    (void)state;
    need_fake();
    ofl_machine *machine = probe(0, "sim:vram=24GiB,h2d=12GB/s,runtime=5GiB,clock=virtual");
    double vram = ofl_machine_get(machine, OFL_FIGURE_VRAM, NULL), runtime = ofl_machine_get(machine, OFL_FIGURE_RUNTIME, NULL);
    assert_true(vram - runtime == 19 * GIB);
    assert_true(runtime >= 350 * MIB && runtime <= GIB);
    assert_true(notes_say(machine, "taken by others"));
    ofl_machine_destroy(machine);
}

/* Field case 68: what the context took is measured, after it was made. The memory that this process took through the device is its own. */
static void the_context_is_measured(void **state)
{
    (void)state;
    need_fake();
    ofl_device *device = open_as(1, "sim:vram=12GB,h2d=12GB/s,runtime=300MiB,clock=virtual");
    ofl_machine *machine = NULL;
    void *own = NULL;
    assert_ok(ofl_device_alloc(device, 1 << 20, &own));
    assert_ok(ofl_machine_probe(device, &machine));
    ofl_source source = OFL_SOURCE_NONE;
    assert_true(ofl_machine_get(machine, OFL_FIGURE_RUNTIME, &source) == 300 * MIB);
    assert_int_equal(source, OFL_SOURCE_MEASURED);
    assert_true(ofl_machine_get(machine, OFL_FIGURE_VRAM, NULL) == 12e9);
    assert_false(notes_say(machine, "others"));
    assert_non_null(strstr(ofl_machine_device(machine), "0000:02:00.0")); /* field case 87: name, PCI id and UUID */
    assert_non_null(strstr(ofl_machine_device(machine), "GPU-01112131"));
    assert_non_null(strstr(ofl_machine_device(machine), "Stand-in 1"));
    ofl_machine_destroy(machine);
    ofl_device_free(device, own);
    ofl_device_close(device);
}

/* Field case 71: a wall at 512 MiB in all. Its refusals are forgotten by the runtime too. */
static void a_wall_of_page_locked_memory(void **state)
{
    (void)state;
    need_fake();
    ofl_probe_options options = {.struct_size = sizeof options, .pin_bytes = UINT64_C(1) << 30};
    ofl_device *device = open_as(2, "sim:vram=12GB,h2d=12GB/s,pinnable=512MiB,clock=virtual");
    ofl_machine *machine = NULL;
    int live = fake_live();
    assert_ok(ofl_machine_probe_with(device, &options, &machine));
    assert_int_equal(fake_live(), live);
    assert_int_equal(last_error(), 0);
    ofl_link_state link = {.struct_size = sizeof link};
    assert_ok(ofl_machine_link_state(machine, &link));
    ofl_source source = OFL_SOURCE_NONE;
    double pinnable = ofl_machine_get(machine, OFL_FIGURE_PINNABLE, &source);
    if (ofl_machine_get(machine, OFL_FIGURE_HOST, NULL) < 3 * GIB) skip(); /* so much was not tried */
    assert_int_equal(source, OFL_SOURCE_MEASURED);
    assert_true(pinnable == 512 * MIB && (double)link.pinned_bytes == pinnable);
    assert_true(notes_say(machine, "of the host's memory 536.871 MB could be page-locked and more was refused"));
    ofl_machine_destroy(machine);
    ofl_device_close(device);
}

/* Field cases 72 and 76: nothing can be page-locked, whatever `ulimit -l` says: the host is named, not the GPU, and no limit is blamed. */
static void nothing_to_page_lock(void **state)
{
    (void)state;
    need_fake();
    struct rlimit before, low;
    assert_int_equal(getrlimit(RLIMIT_MEMLOCK, &before), 0);
    low = (struct rlimit){before.rlim_cur < 65536 ? before.rlim_cur : 65536, before.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_MEMLOCK, &low), 0);
    ofl_machine *machine = probe(3, "sim:vram=1GB,h2d=12GB/s,pinnable=4kB,clock=virtual");
    assert_int_equal(ofl_machine_note_count(machine), 1);
    assert_true(notes_say(machine, "the host could page-lock no memory at all"));
    assert_false(notes_say(machine, "GPU") || notes_say(machine, "memlock") || notes_say(machine, "ulimit"));
    assert_true(ofl_machine_get(machine, OFL_FIGURE_PINNABLE, NULL) == 1);
    assert_true(ofl_machine_get(machine, OFL_FIGURE_LINK, NULL) == ofl_machine_get(machine, OFL_FIGURE_LINK_PAGEABLE, NULL));
    ofl_machine_destroy(machine);
    machine = probe(4, "sim:vram=1GB,h2d=12GB/s,clock=virtual"); /* with the same limit, what works works */
    ofl_link_state link = {.struct_size = sizeof link};
    assert_ok(ofl_machine_link_state(machine, &link));
    assert_true(link.pinned_bytes > 65536);
    ofl_machine_destroy(machine);
    assert_int_equal(setrlimit(RLIMIT_MEMLOCK, &before), 0);
}

/* Field case 79: the stand-in says node 0; that is where the page-locked memory came from, where the system tells. */
static void near_the_device(void **state)
{
    (void)state;
    need_fake();
    ofl_machine *machine = probe(4, "sim:vram=1GB,h2d=12GB/s,clock=virtual");
    ofl_locality *here = NULL;
    ofl_link_state link = {.struct_size = sizeof link};
    assert_ok(ofl_locality_open("", 0, &here));
    assert_ok(ofl_machine_link_state(machine, &link));
    assert_int_equal(link.device_node, ofl_locality_node(here));
    if (link.pinned_node >= 0 && link.device_node >= 0)
        assert_int_equal(link.pinned_node != link.device_node, notes_say(machine, "NUMA node"));
    assert_true(ofl_machine_get(machine, OFL_FIGURE_HOST_BANDWIDTH, NULL) > 0 || ofl_machine_get(machine, OFL_FIGURE_HOST, NULL) < GIB);
    ofl_locality_close(here);
    ofl_machine_destroy(machine);
}

/* Both are seen while copies run (field case 86) or in the kernel's release (field case 70). */
static void write_root(const char *root, const char *release)
{
    const struct { const char *name, *text; } files[] = {
        {"proc/meminfo", "MemTotal: 262144 kB\nMemAvailable: 65536 kB\n"},
        {"sys/bus/pci/devices/0000:05:00.0/current_link_speed", "16.0 GT/s PCIe\n"},
        {"sys/bus/pci/devices/0000:05:00.0/current_link_width", "4\n"},
        {"sys/bus/pci/devices/0000:05:00.0/max_link_speed", "16.0 GT/s PCIe\n"},
        {"sys/bus/pci/devices/0000:05:00.0/max_link_width", "16\n"},
        {"proc/sys/kernel/osrelease", release},
    };
    for (size_t i = 0; i < OFL_COUNT_OF(files); i++) {
        char full[512];
        (void)snprintf(full, sizeof full, "%s/%s", root, files[i].name);
        for (char *at = full + 1; (at = strchr(at, '/')) != NULL; at++) {
            *at = '\0';
            (void)mkdir(full, 0700);
            *at = '/';
        }
        test_write(full, files[i].text, strlen(files[i].text));
    }
}

static void narrow_links_and_windows_are_told(void **state)
{
    (void)state;
    need_fake();
    const char *root = test_path("system");
    ofl_machine *machine = NULL;
    write_root(root, "5.15.153.1-microsoft-standard-WSL2\n");
    ofl_device *device = open_as(4, "sim:vram=1GB,h2d=12GB/s,clock=virtual");
    assert_ok(ofl_machine_probe_under(root, device, NULL, &machine));
    ofl_link_state link = {.struct_size = sizeof link};
    assert_ok(ofl_machine_link_state(machine, &link));
    assert_int_equal(link.generation, 4);
    assert_int_equal(link.width, 4);
    assert_int_equal(link.most_width, 16);
    assert_true(notes_say(machine, "4 lanes wide of the 16"));
    assert_true(notes_say(machine, "WSL"));
    ofl_source source = OFL_SOURCE_NONE;
    assert_true(ofl_machine_get(machine, OFL_FIGURE_HOST, NULL) == 64 * MIB);
    assert_ok(ofl_machine_assume(machine));
    assert_true(ofl_machine_get(machine, OFL_FIGURE_PINNABLE, &source) <= 1e9);
    assert_int_equal(source, OFL_SOURCE_ASSUMED);
    ofl_machine_destroy(machine);
    ofl_device_close(device);
}

static void several_devices(void **state)
{
    (void)state;
    need_fake();
    uint32_t count = 0, direct = 1;
    assert_ok(ofl_device_count("cuda", &count));
    assert_int_equal(count, 8);
    assert_status(ofl_device_count("sim", &count), OFL_ERROR_ARGUMENT);
    assert_int_equal(count, 0);
    (void)setenv("OFLOAD_FAKECUDA_DEVICES", "0", 1);
    assert_status(ofl_device_count("cuda", &count), OFL_ERROR_NO_DEVICE);
    (void)setenv("OFLOAD_FAKECUDA_DEVICES", "8", 1);
    const char *sim = "sim:vram=64MB,h2d=20GB/s"; /* on the wall clock, as the probe of such a device is */
    ofl_device *device = open_as(5, sim), *other = open_as(6, sim), *third = NULL, *fourth = NULL;
    ofl_probe_options options = {.struct_size = sizeof options, .peer = other};
    ofl_machine *machine = NULL;
    assert_ok(ofl_device_peer(device, other, &direct));
    assert_int_equal(direct, 0);
    (void)setenv("OFLOAD_FAKECUDA_DIRECT", "1", 1);
    for (int twice = 0; twice < 2; twice++) assert_ok(ofl_device_peer(device, other, &direct)); /* the second time it is enabled already */
    assert_int_equal(direct, 1);
    assert_int_equal(last_error(), 0);
    assert_ok(ofl_machine_probe_with(device, &options, &machine));
    ofl_source source = OFL_SOURCE_NONE;
    double rate = ofl_machine_get(machine, OFL_FIGURE_PEER, &source);
    assert_int_equal(source, OFL_SOURCE_MEASURED);
    assert_true(rate > 0 && rate < 1.01 * 2.79e9); /* what the stand-in paces */
    ofl_link_state link = {.struct_size = sizeof link};
    assert_ok(ofl_machine_link_state(machine, &link));
    assert_int_equal(link.peer_direct, 1);
    (void)unsetenv("OFLOAD_FAKECUDA_DIRECT");
    ofl_machine_destroy(machine);
    assert_ok(ofl_device_open("sim:vram=64MB,h2d=1GB/s,clock=virtual", &third));
    options.peer = device;
    assert_status(ofl_machine_probe_with(device, &options, &machine), OFL_ERROR_ARGUMENT);
    assert_non_null(strstr(ofl_error_message(), "same device"));
    options.peer = third;
    assert_status(ofl_machine_probe_with(device, &options, &machine), OFL_ERROR_ARGUMENT);
    assert_ok(ofl_device_open("sim:vram=64MB,h2d=1GB/s,clock=virtual", &fourth));
    assert_status(ofl_machine_probe_with(fourth, &options, &machine), OFL_ERROR_UNSUPPORTED);
    assert_non_null(strstr(ofl_error_message(), "no path to another device"));
    ofl_device_close(fourth);
    ofl_device_close(third);
    ofl_device_close(other);
    ofl_device_close(device);
}

static void bytes_go_from_one_device_to_another(void **state)
{
    (void)state;
    need_fake();
    const char *sim = "sim:vram=64MB,h2d=20GB/s";
    ofl_device *one = open_as(5, sim), *two = open_as(6, sim);
    ofl_stream *stream = NULL;
    void *from = NULL, *to = NULL;
    char there[4096];
    assert_ok(ofl_stream_create(one, &stream));
    assert_ok(ofl_device_alloc(one, sizeof there, &from));
    assert_ok(ofl_device_alloc(two, sizeof there, &to));
    memset(from, 0x3C, sizeof there);
    memset(to, 0, sizeof there);
    assert_ok(ofl_copy_peer(one, stream, two, to, from, sizeof there));
    assert_ok(ofl_copy_peer(one, stream, two, to, from, 0));
    assert_status(ofl_copy_peer(one, NULL, two, to, from, 1), OFL_ERROR_ARGUMENT);
    assert_status(ofl_copy_peer(one, stream, NULL, to, from, 1), OFL_ERROR_ARGUMENT);
    assert_ok(ofl_stream_wait(one, stream));
    memset(there, 0x3C, sizeof there);
    assert_memory_equal(to, there, sizeof there);
    ofl_device_free(two, to);
    ofl_device_free(one, from);
    ofl_stream_destroy(one, stream);
    ofl_device_close(two);
    ofl_device_close(one);
}

static ofl_status probe_once(ofl_device *device, ofl_device *peer, const char *root, const char *fault)
{
    ofl_probe_options options = {.struct_size = sizeof options, .peer = peer};
    ofl_memory_info memory = {.struct_size = sizeof memory};
    ofl_machine *machine = NULL;
    assert_ok(ofl_device_memory_get(device, &memory)); /* without a fault: its count starts anew */
    assert_int_equal(setenv("OFLOAD_FAKECUDA_FAIL", fault, 1), 0);
    ofl_status status = ofl_machine_probe_under(root, device, &options, &machine);
    assert_int_equal(unsetenv("OFLOAD_FAKECUDA_FAIL"), 0);
    if (status != OFL_OK) assert_null(machine);
    ofl_machine_destroy(machine);
    return status;
}

/* One probe with the n-th CALL failing: did it? Copies as small as here may also tell nothing on a busy machine: then again. */
static bool probe_failing(ofl_device *device, ofl_device *peer, const char *root, const char *call, int nth)
{
    char text[96];
    int live = fake_live(), fired = fake_fired(), tries = 0;
    ofl_status status;
    (void)snprintf(text, sizeof text, "%s:%d:3", call, nth);
    do status = probe_once(device, peer, root, text);
    while (status != OFL_OK && strstr(ofl_error_message(), "gave no rate") != NULL && fake_fired() == fired && ++tries < 20);
    if (status != OFL_OK) {
        assert_int_equal(status, OFL_ERROR_RUNTIME);
        assert_non_null(strstr(ofl_error_message(), "cudaError3"));
    }
    assert_int_equal(last_error(), 0);
    /* what could not be released stays; nothing else does */
    bool releases = strstr(call, "Free") != NULL || strstr(call, "Destroy") != NULL || strcmp(call, "cudaGetDevice") == 0;
    assert_in_range(fake_live() - live, 0, releases ? 1 : 0);
    return fake_fired() > fired;
}

/* Each at its first call, and at calls ever further on, until the probe needs no more of them. */
static void every_call_may_fail(void **state)
{
    (void)state;
    need_fake();
    static const char *const calls[] = {
        "cudaGetDevice", "cudaMemGetInfo", "cudaStreamCreateWithFlags", "cudaStreamDestroy", "cudaMalloc", "cudaFree", "cudaHostAlloc",
        "cudaFreeHost", "cudaMemcpyAsync", "cudaEventSynchronize", "cudaStreamQuery", "cudaDeviceCanAccessPeer", "cudaMemcpyPeerAsync"};
    const char *root = test_path("small"), *sim = "sim:vram=400kB,h2d=20GB/s,clock=virtual";
    ofl_device *device = open_as(7, sim), *peer = open_as(6, "sim:vram=64MB,h2d=20GB/s,clock=virtual");
    write_root(root, "6.8.0\n");
    for (size_t i = 0; i < OFL_COUNT_OF(calls); i++) {
        int fired = 0;
        for (int nth = 1; nth < 1 << 20 && probe_failing(device, peer, root, calls[i], nth); nth += 1 + nth / 2) fired++;
        if (fired == 0) fail_msg("%s was never called", calls[i]);
    }
    assert_false(probe_failing(device, peer, root, "none", 1));
    ofl_device_close(peer);
    ofl_device_close(device);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(memory_of_others_does_not_count),
    cmocka_unit_test(the_context_is_measured),
    cmocka_unit_test(a_wall_of_page_locked_memory),
    cmocka_unit_test(nothing_to_page_lock),
    cmocka_unit_test(near_the_device),
    cmocka_unit_test(narrow_links_and_windows_are_told),
    cmocka_unit_test(several_devices),
    cmocka_unit_test(bytes_go_from_one_device_to_another),
    cmocka_unit_test(every_call_may_fail),
};

int main(void)
{
    find_fake();
    if (fake_live == NULL && getenv("OFLOAD_TEST_DEVICE_NEEDED") != NULL) {
        (void)printf("the stand-in runtime was not loaded\n");
        return 1;
    }
    if (fake_live == NULL) {
        (void)printf("skipped: the stand-in runtime is not loaded\n");
        return 77;
    }
    return cmocka_run_group_tests(tests, NULL, NULL) ? 1 : 0;
}
