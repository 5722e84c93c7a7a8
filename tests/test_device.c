/* What every device does, whatever its back end: run on the simulated device (both clocks, several seeds), or on the device that
 * OFLOAD_TEST_DEVICE names. Waits and bytes only: no time is asserted here beyond "at least". */
#include "support/support.h"

#include <pthread.h>
#include <stdbool.h>

#define PIECE ((uint64_t)1 << 20)

static const char *const default_specs[] = {
    "sim:vram=64MB,h2d=2GB/s,d2h=1GB/s,pinnable=64MB",
    "sim:vram=64MB,h2d=2GB/s,order=7,start=20us",
    "sim:vram=64MB,h2d=2GB/s,clock=virtual,start=5us",
    "sim:vram=64MB,h2d=2GB/s,h2d_pageable=0.5GB/s,clock=virtual,order=1",
    "sim:vram=64MB,h2d=2GB/s,clock=virtual,order=2",
    "sim:vram=64MB,h2d=2GB/s,clock=virtual,order=18446744073709551615",
};

typedef struct rig {
    ofl_device *device;
    ofl_stream *streams[3];
    ofl_event *event;
    char *on_device[2];
    char *pinned[2];
} rig;

static rig rig_open(void **state)
{
    rig r = {0};
    assert_ok(ofl_device_open(*state, &r.device));
    for (int i = 0; i < 3; i++) assert_ok(ofl_stream_create(r.device, &r.streams[i]));
    assert_ok(ofl_event_create(r.device, &r.event));
    for (int i = 0; i < 2; i++) {
        void *pointer;
        assert_ok(ofl_device_alloc(r.device, PIECE, &pointer));
        r.on_device[i] = pointer;
        assert_ok(ofl_device_host_alloc(r.device, PIECE, &pointer));
        r.pinned[i] = pointer;
    }
    return r;
}

static void rig_close(rig *r)
{
    for (int i = 0; i < 3; i++) {
        assert_ok(ofl_stream_wait(r->device, r->streams[i]));
        ofl_stream_destroy(r->device, r->streams[i]);
    }
    ofl_event_destroy(r->device, r->event);
    for (int i = 0; i < 2; i++) {
        ofl_device_free(r->device, r->on_device[i]);
        ofl_device_host_free(r->device, r->pinned[i]);
    }
    ofl_memory_info memory = {.struct_size = sizeof memory};
    assert_ok(ofl_device_memory_get(r->device, &memory));
    assert_int_equal(memory.used_bytes, 0);
    assert_int_equal(memory.pinned_bytes, 0);
    ofl_device_close(r->device);
}

static void fill(char *bytes, uint64_t count, uint64_t seed)
{
    for (uint64_t i = 0; i + 8 <= count; i += 8) {
        uint64_t value = test_random(&seed);
        memcpy(bytes + i, &value, 8);
    }
}

static void to_device(const rig *r, int stream, int slot, int host, uint64_t bytes)
{
    assert_ok(ofl_copy(r->device, r->streams[stream], OFL_HOST_TO_DEVICE, r->on_device[slot], r->pinned[host], bytes, OFL_HOST_PINNED));
}

static void to_host(const rig *r, int stream, int host, int slot, uint64_t bytes)
{
    assert_ok(ofl_copy(r->device, r->streams[stream], OFL_DEVICE_TO_HOST, r->pinned[host], r->on_device[slot], bytes, OFL_HOST_PINNED));
}

static ofl_memory_info memory_of(ofl_device *device)
{
    ofl_memory_info memory = {.struct_size = sizeof memory};
    assert_ok(ofl_device_memory_get(device, &memory));
    return memory;
}

static void test_info(void **state)
{
    ofl_device *device;
    assert_ok(ofl_device_open(*state, &device));
    ofl_device_info info = {.struct_size = sizeof info};
    assert_ok(ofl_device_info_get(device, &info));
    assert_string_equal(info.spec, *state);
    assert_true(info.name[0] != '\0');
    assert_int_equal(info.simulated, strncmp(*state, "sim:", 4) == 0);
    assert_true(info.numa_node >= -1);
    ofl_device_close(device);
}

static void test_memory_is_counted_and_aligned(void **state)
{
    ofl_device *device;
    assert_ok(ofl_device_open(*state, &device));
    ofl_memory_info before = memory_of(device);
    assert_int_equal(before.used_bytes, 0);
    void *first, *second;
    assert_ok(ofl_device_alloc(device, 1, &first));
    assert_ok(ofl_device_alloc(device, PIECE + 1, &second));
    assert_int_equal((uintptr_t)first % 256, 0);
    assert_int_equal((uintptr_t)second % 256, 0);
    ofl_memory_info both = memory_of(device);
    assert_true(both.used_bytes >= PIECE + 2);
    assert_true(both.free_bytes <= before.free_bytes);
    ofl_device_free(device, second);
    ofl_memory_info after = memory_of(device);
    assert_true(after.used_bytes < PIECE);
    assert_int_equal(after.peak_bytes, both.used_bytes);
    ofl_device_free(device, first);
    assert_ok(ofl_device_alloc(device, 1, &first));
    assert_int_equal(memory_of(device).peak_bytes, both.used_bytes);
    ofl_device_free(device, first);
    ofl_device_free(device, NULL);
    ofl_device_close(device);
}

static void test_too_much_memory_is_refused(void **state)
{
    ofl_device *device;
    assert_ok(ofl_device_open(*state, &device));
    ofl_memory_info memory = memory_of(device);
    void *pointer = &pointer;
    assert_status(ofl_device_alloc(device, memory.total_bytes + 1, &pointer), OFL_ERROR_DEVICE_MEMORY);
    assert_null(pointer);
    assert_int_equal(ofl_diagnostic_get()->bytes_needed, memory.total_bytes + 1);
    assert_true(ofl_diagnostic_get()->bytes_available <= memory.free_bytes);
    assert_status(ofl_device_alloc(device, UINT64_MAX, &pointer), OFL_ERROR_DEVICE_MEMORY);
    assert_ok(ofl_device_alloc(device, PIECE, &pointer)); /* a refusal leaves the device usable */
    ofl_device_free(device, pointer);
    assert_int_equal(memory_of(device).peak_bytes, memory_of(device).used_bytes + PIECE);
    ofl_device_close(device);
}

static void test_copies_carry_the_bytes(void **state)
{
    rig r = rig_open(state);
    fill(r.pinned[0], PIECE, 1);
    to_device(&r, 0, 0, 0, PIECE);
    to_host(&r, 0, 1, 0, PIECE);
    assert_ok(ofl_stream_wait(r.device, r.streams[0]));
    assert_memory_equal(r.pinned[0], r.pinned[1], PIECE);
    assert_ok(ofl_copy(r.device, r.streams[0], OFL_HOST_TO_DEVICE, r.on_device[0] + 3, r.pinned[0] + 5, 7,
                       OFL_HOST_PINNED)); /* any address, any size */
    to_host(&r, 0, 1, 0, PIECE);
    assert_ok(ofl_stream_wait(r.device, r.streams[0]));
    assert_memory_equal(r.pinned[1], r.pinned[0], 3);
    assert_memory_equal(r.pinned[1] + 3, r.pinned[0] + 5, 7);
    assert_memory_equal(r.pinned[1] + 10, r.pinned[0] + 10, PIECE - 10);
    assert_ok(ofl_copy(r.device, r.streams[0], OFL_HOST_TO_DEVICE, r.on_device[0], r.pinned[0], 0, OFL_HOST_PINNED));
    rig_close(&r);
}

/* The source may be overwritten, and the destination read, as soon as the call returns (to the device: in stream order). */
static void test_pageable_copies_do_not_keep_the_host(void **state)
{
    rig r = rig_open(state);
    char *source = malloc(PIECE), *back = malloc(PIECE);
    fill(source, PIECE, 2);
    fill(r.pinned[0], PIECE, 2);
    assert_ok(ofl_copy(r.device, r.streams[0], OFL_HOST_TO_DEVICE, r.on_device[0], source, PIECE, OFL_HOST_PAGEABLE));
    memset(source, 0, PIECE);
    assert_ok(ofl_copy(r.device, r.streams[0], OFL_DEVICE_TO_HOST, back, r.on_device[0], PIECE, OFL_HOST_PAGEABLE));
    assert_ok(ofl_stream_wait(r.device, r.streams[0]));
    assert_memory_equal(back, r.pinned[0], PIECE);
    free(source);
    free(back);
    rig_close(&r);
}

static void test_registered_memory(void **state)
{
    rig r = rig_open(state);
    char *mine = aligned_alloc(4096, PIECE);
    fill(mine, PIECE, 3);
    uint64_t before = memory_of(r.device).pinned_bytes;
    const void *address = NULL;
    assert_status(ofl_copy(r.device, r.streams[0], OFL_HOST_TO_DEVICE, r.on_device[0], mine, PIECE, OFL_HOST_PINNED), OFL_ERROR_ARGUMENT);
    assert_status(ofl_device_host_address(r.device, mine, &address), OFL_ERROR_ARGUMENT);
    assert_ok(ofl_device_host_register(r.device, mine, PIECE));
    assert_int_equal(memory_of(r.device).pinned_bytes, before + PIECE);
    assert_status(ofl_device_host_register(r.device, mine, PIECE), OFL_ERROR_STATE);
    const void *start = NULL;
    assert_ok(ofl_device_host_address(r.device, mine, &start));
    assert_ok(ofl_device_host_address(r.device, mine + 100, &address));
    assert_ptr_equal(address, (const char *)start + 100);
    assert_ok(ofl_copy(r.device, r.streams[0], OFL_HOST_TO_DEVICE, r.on_device[0], mine, PIECE, OFL_HOST_PINNED));
    to_host(&r, 0, 0, 0, PIECE);
    assert_ok(ofl_stream_wait(r.device, r.streams[0]));
    assert_memory_equal(r.pinned[0], mine, PIECE);
    assert_ok(ofl_device_host_unregister(r.device, mine));
    assert_status(ofl_device_host_unregister(r.device, mine), OFL_ERROR_STATE);
    assert_int_equal(memory_of(r.device).pinned_bytes, before);
    free(mine);
    rig_close(&r);
}

static void test_a_stream_runs_in_order(void **state)
{
    rig r = rig_open(state);
    fill(r.pinned[0], PIECE, 4);
    fill(r.pinned[1], PIECE, 5);
    for (int i = 0; i < 8; i++) to_device(&r, 0, 0, i % 2, PIECE / (uint64_t)(i + 1));
    to_host(&r, 0, 0, 0, PIECE / 8);
    assert_ok(ofl_stream_wait(r.device, r.streams[0]));
    assert_memory_equal(r.pinned[0], r.pinned[1], PIECE / 8);
    assert_status(ofl_stream_query(r.device, r.streams[0]), OFL_OK);
    rig_close(&r);
}

/* A ring of two slots between two streams, as the engine does it: `landed` and `read` events, and every byte checked. */
static void test_events_order_streams(void **state)
{
    enum { ROUNDS = 24 };
    const uint64_t bytes = 4096;
    rig r = rig_open(state);
    ofl_event *landed[2], *read[2];
    for (int i = 0; i < 2; i++) {
        assert_ok(ofl_event_create(r.device, &landed[i]));
        assert_ok(ofl_event_create(r.device, &read[i]));
    }
    fill(r.pinned[0], PIECE, 6);
    for (uint64_t i = 0; i < ROUNDS; i++) {
        uint64_t slot = i % 2;
        assert_ok(ofl_stream_wait_event(r.device, r.streams[0], read[slot])); /* never recorded at first: reached */
        assert_ok(ofl_copy(r.device, r.streams[0], OFL_HOST_TO_DEVICE, r.on_device[slot], r.pinned[0] + i * bytes, bytes, OFL_HOST_PINNED));
        assert_ok(ofl_event_record(r.device, landed[slot], r.streams[0]));
        assert_ok(ofl_stream_wait_event(r.device, r.streams[1], landed[slot]));
        assert_ok(ofl_copy(r.device, r.streams[1], OFL_DEVICE_TO_HOST, r.pinned[1] + i * bytes, r.on_device[slot], bytes, OFL_HOST_PINNED));
        assert_ok(ofl_event_record(r.device, read[slot], r.streams[1]));
    }
    assert_ok(ofl_event_wait(r.device, read[(ROUNDS - 1) % 2]));
    assert_memory_equal(r.pinned[0], r.pinned[1], ROUNDS * bytes);
    for (int i = 0; i < 2; i++) {
        ofl_event_destroy(r.device, landed[i]);
        ofl_event_destroy(r.device, read[i]);
    }
    rig_close(&r);
}

static void test_a_never_recorded_event_is_reached(void **state)
{
    rig r = rig_open(state);
    assert_status(ofl_event_query(r.device, r.event), OFL_OK);
    assert_ok(ofl_event_wait(r.device, r.event));
    assert_ok(ofl_stream_wait_event(r.device, r.streams[0], r.event));
    assert_ok(ofl_stream_wait(r.device, r.streams[0]));
    rig_close(&r);
}

/* A wait takes the record that is the latest when it is called. */
static void test_a_later_record_does_not_move_a_wait(void **state)
{
    rig r = rig_open(state);
    fill(r.pinned[0], PIECE, 7);
    to_device(&r, 0, 0, 0, PIECE);
    assert_ok(ofl_event_record(r.device, r.event, r.streams[0]));
    assert_ok(ofl_stream_wait_event(r.device, r.streams[1], r.event));
    assert_ok(ofl_event_record(r.device, r.event, r.streams[1])); /* would wait for itself, were the first record forgotten */
    assert_ok(ofl_stream_wait_event(r.device, r.streams[2], r.event));
    to_host(&r, 2, 1, 0, PIECE); /* by way of streams[1] */
    assert_ok(ofl_stream_wait(r.device, r.streams[2]));
    assert_memory_equal(r.pinned[0], r.pinned[1], PIECE);
    rig_close(&r);
}

static void test_polling_ends(void **state)
{
    rig r = rig_open(state);
    to_device(&r, 0, 0, 0, PIECE);
    assert_ok(ofl_event_record(r.device, r.event, r.streams[0]));
    to_device(&r, 0, 1, 1, PIECE);
    ofl_status status;
    while ((status = ofl_event_query(r.device, r.event)) == OFL_NOT_READY) {}
    assert_int_equal(status, OFL_OK);
    while ((status = ofl_stream_query(r.device, r.streams[0])) == OFL_NOT_READY) {}
    assert_int_equal(status, OFL_OK);
    rig_close(&r);
}

static void test_work_survives_its_stream_and_event(void **state)
{
    rig r = rig_open(state);
    ofl_stream *stream;
    ofl_event *event;
    assert_ok(ofl_stream_create(r.device, &stream));
    assert_ok(ofl_event_create(r.device, &event));
    fill(r.pinned[0], PIECE, 8);
    assert_ok(ofl_copy(r.device, stream, OFL_HOST_TO_DEVICE, r.on_device[0], r.pinned[0], PIECE, OFL_HOST_PINNED));
    assert_ok(ofl_event_record(r.device, event, stream));
    assert_ok(ofl_stream_wait_event(r.device, r.streams[1], event));
    ofl_event_destroy(r.device, event);
    ofl_stream_destroy(r.device, stream);
    to_host(&r, 1, 1, 0, PIECE);
    assert_ok(ofl_stream_wait(r.device, r.streams[1]));
    assert_memory_equal(r.pinned[0], r.pinned[1], PIECE);
    rig_close(&r);
}

/* Wall: a link cannot be faster than its rate. All clocks: two copies of one direction take at least the sum, on whatever streams. */
static void test_copies_take_their_time(void **state)
{
    if (strncmp(*state, "sim:", 4) != 0) skip();
    rig r = rig_open(state);
    uint64_t start = ofl_device_now_ns(r.device);
    for (int i = 0; i < 16; i++) to_device(&r, i % 3, i % 2, i % 2, PIECE);
    for (int i = 0; i < 3; i++) assert_ok(ofl_stream_wait(r.device, r.streams[i]));
    assert_true((double)(ofl_device_now_ns(r.device) - start) * 1e-9 >= 16.0 * (double)PIECE / 2e9 - 1e-6);
    rig_close(&r);
}

typedef struct lane {
    ofl_device *device;
    ofl_status status;
    int wrong;
    uint64_t seed;
} lane;

/* Streams and events of its own; records what went wrong for the main thread to assert. */
static void *drive_lane(void *argument)
{
    lane *l = argument;
    ofl_stream *stream = NULL;
    ofl_event *event = NULL;
    void *on_device = NULL, *host = NULL;
    const uint64_t half = PIECE / 2;
    if ((l->status = ofl_stream_create(l->device, &stream)) != OFL_OK) return NULL;
    if ((l->status = ofl_event_create(l->device, &event)) != OFL_OK) return NULL;
    if ((l->status = ofl_device_alloc(l->device, half, &on_device)) != OFL_OK) return NULL;
    if ((l->status = ofl_device_host_alloc(l->device, PIECE, &host)) != OFL_OK) return NULL;
    for (uint64_t i = 0; i < 20 && l->status == OFL_OK; i++) {
        fill(host, half, l->seed + i);
        l->status = ofl_copy(l->device, stream, OFL_HOST_TO_DEVICE, on_device, host, half, OFL_HOST_PINNED);
        if (l->status == OFL_OK)
            l->status = ofl_copy(l->device, stream, OFL_DEVICE_TO_HOST, (char *)host + half, on_device, half, OFL_HOST_PINNED);
        if (l->status == OFL_OK) l->status = ofl_event_record(l->device, event, stream);
        if (l->status == OFL_OK) l->status = ofl_event_wait(l->device, event);
        if (memcmp(host, (char *)host + half, half) != 0) l->wrong++;
    }
    ofl_event_destroy(l->device, event);
    ofl_stream_destroy(l->device, stream);
    ofl_device_free(l->device, on_device);
    ofl_device_host_free(l->device, host);
    return NULL;
}

static void test_two_threads(void **state)
{
    ofl_device *device;
    assert_ok(ofl_device_open(*state, &device));
    lane lanes[2] = {{device, OFL_OK, 0, 10}, {device, OFL_OK, 0, 900}};
    pthread_t threads[2];
    for (int i = 0; i < 2; i++) assert_int_equal(pthread_create(&threads[i], NULL, drive_lane, &lanes[i]), 0);
    for (int i = 0; i < 2; i++) assert_int_equal(pthread_join(threads[i], NULL), 0);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(lanes[i].status, OFL_OK);
        assert_int_equal(lanes[i].wrong, 0);
    }
    assert_int_equal(memory_of(device).used_bytes, 0);
    ofl_device_close(device);
}

static void test_missing_arguments_are_refused(void **state)
{
    rig r = rig_open(state);
    void *pointer;
    char byte = 0;
    assert_status(ofl_device_alloc(r.device, 0, &pointer), OFL_ERROR_ARGUMENT);
    assert_status(ofl_device_alloc(NULL, 1, &pointer), OFL_ERROR_ARGUMENT);
    assert_status(ofl_device_host_alloc(r.device, 0, &pointer), OFL_ERROR_ARGUMENT);
    assert_status(ofl_device_host_register(r.device, &byte, 0), OFL_ERROR_ARGUMENT);
    assert_status(ofl_device_host_register(r.device, &byte, UINT64_MAX), OFL_ERROR_OVERFLOW);
    assert_status(ofl_copy(r.device, NULL, OFL_HOST_TO_DEVICE, r.on_device[0], r.pinned[0], 1, OFL_HOST_PINNED), OFL_ERROR_ARGUMENT);
    assert_status(ofl_copy(r.device, r.streams[0], OFL_HOST_TO_DEVICE, NULL, r.pinned[0], 1, OFL_HOST_PINNED), OFL_ERROR_ARGUMENT);
    assert_status(ofl_copy(r.device, r.streams[0], (ofl_direction)9, r.on_device[0], r.pinned[0], 1, OFL_HOST_PINNED), OFL_ERROR_ARGUMENT);
    assert_status(ofl_event_record(r.device, NULL, r.streams[0]), OFL_ERROR_ARGUMENT);
    assert_status(ofl_stream_wait(r.device, NULL), OFL_ERROR_ARGUMENT);
    ofl_device_info info = {.struct_size = 0};
    assert_status(ofl_device_info_get(r.device, &info), OFL_ERROR_ARGUMENT);
    rig_close(&r);
}

static const struct CMUnitTest conformance[] = {
    cmocka_unit_test(test_info),
    cmocka_unit_test(test_memory_is_counted_and_aligned),
    cmocka_unit_test(test_too_much_memory_is_refused),
    cmocka_unit_test(test_copies_carry_the_bytes),
    cmocka_unit_test(test_pageable_copies_do_not_keep_the_host),
    cmocka_unit_test(test_registered_memory),
    cmocka_unit_test(test_a_stream_runs_in_order),
    cmocka_unit_test(test_events_order_streams),
    cmocka_unit_test(test_a_never_recorded_event_is_reached),
    cmocka_unit_test(test_a_later_record_does_not_move_a_wait),
    cmocka_unit_test(test_polling_ends),
    cmocka_unit_test(test_work_survives_its_stream_and_event),
    cmocka_unit_test(test_copies_take_their_time),
    cmocka_unit_test(test_two_threads),
    cmocka_unit_test(test_missing_arguments_are_refused),
};
enum { TEST_COUNT = sizeof conformance / sizeof conformance[0] };

static int run_on(const char *spec)
{
    struct CMUnitTest tests[TEST_COUNT];
    memcpy(tests, conformance, sizeof tests);
    for (size_t i = 0; i < TEST_COUNT; i++) tests[i].initial_state = (void *)(uintptr_t)spec;
    return cmocka_run_group_tests_name(spec, tests, NULL, NULL);
}

/* 77 when the device that was asked for is not in this machine. */
static int run_given(const char *given)
{
    ofl_device *device = NULL;
    ofl_status status = ofl_device_open(given, &device);
    ofl_device_close(device);
    bool absent = status == OFL_ERROR_NO_DRIVER || status == OFL_ERROR_NO_DEVICE || status == OFL_ERROR_UNSUPPORTED;
    if (!absent || getenv("OFLOAD_TEST_DEVICE_NEEDED") != NULL) return run_on(given) ? 1 : 0;
    (void)printf("skipped: %s\n", ofl_error_message());
    return 77;
}

int main(void)
{
    const char *given = getenv("OFLOAD_TEST_DEVICE");
    if (given != NULL) return run_given(given);
    int failed = 0;
    for (size_t i = 0; i < sizeof default_specs / sizeof default_specs[0]; i++) failed |= run_on(default_specs[i]);
    return failed ? 1 : 0;
}
