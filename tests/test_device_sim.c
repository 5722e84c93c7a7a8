/* The simulated device alone: its spec, exact times on the virtual clock, seeded orders, limits, and every allocation failed in turn. */
#include "support/support.h"

#include "base/base.h"
#include "device/sim.h"

#define VIRTUAL "sim:vram=64MB,h2d=1GB/s,h2d_pageable=0.25GB/s,d2h=0.5GB/s,start=5us,clock=virtual"
#define MB 1000000u
#define US 1000u

typedef struct rig {
    ofl_device *device;
    ofl_stream *streams[3];
    ofl_event *event;
    char *on_device, *pinned;
} rig;

static rig rig_open(const char *spec)
{
    rig r = {0};
    void *pointer;
    assert_ok(ofl_device_open(spec, &r.device));
    for (int i = 0; i < 3; i++) assert_ok(ofl_stream_create(r.device, &r.streams[i]));
    assert_ok(ofl_event_create(r.device, &r.event));
    assert_ok(ofl_device_alloc(r.device, 8 * MB, &pointer));
    r.on_device = pointer;
    assert_ok(ofl_device_host_alloc(r.device, 8 * MB, &pointer));
    r.pinned = pointer;
    return r;
}

static void rig_close(rig *r)
{
    for (int i = 0; i < 3; i++) ofl_stream_destroy(r->device, r->streams[i]);
    ofl_event_destroy(r->device, r->event);
    ofl_device_free(r->device, r->on_device);
    ofl_device_host_free(r->device, r->pinned);
    ofl_device_close(r->device);
}

static void down(const rig *r, int stream, uint64_t bytes)
{
    assert_ok(ofl_copy(r->device, r->streams[stream], OFL_HOST_TO_DEVICE, r->on_device, r->pinned, bytes, OFL_HOST_PINNED));
}

static void up(const rig *r, int stream, uint64_t bytes)
{
    assert_ok(
        ofl_copy(r->device, r->streams[stream], OFL_DEVICE_TO_HOST, r->pinned + 4 * MB, r->on_device + 4 * MB, bytes, OFL_HOST_PINNED));
}

static void wait_all(const rig *r)
{
    for (int i = 0; i < 3; i++) assert_ok(ofl_stream_wait(r->device, r->streams[i]));
}

#define assert_now(r, ns) assert_int_equal(ofl_device_now_ns((r).device), (ns))

static void test_bad_specs_are_refused(void **state)
{
    (void)state;
    static const struct { const char *spec, *says; } bad[] = {
        {"", "unknown kind"},
        {"simulated", "unknown kind"},
        {"cpu:0", "cuda:N"},
        {"sim:", "vram=SIZE"},
        {"sim:h2d=1GB/s", "vram=SIZE"},
        {"sim:vram=1GB", "h2d=RATE"},
        {"sim:vram=0,h2d=1GB/s", "vram=SIZE"},
        {"sim:vram=1GB,h2d=0", "h2d=0; give a rate"},
        {"sim:vram=1GB,h2d=1GB", "give a rate"},
        {"sim:vram=1GB/s,h2d=1GB/s", "give a size"},
        {"sim:vram=1G,h2d=1GB/s", "vram=1G;"},
        {"sim:vram=-1GB,h2d=1GB/s", "give a size"},
        {"sim:vram=1e30GB,h2d=1GB/s", "give a size"},
        {"sim:vram=99999999999999999999999GB,h2d=1GB/s", "give a size"},
        {"sim:vram=1.2.3GB,h2d=1GB/s", "give a size"},
        {"sim:vram=.,h2d=1GB/s", "give a size"},
        {"sim:vram=GB,h2d=1GB/s", "give a size"},
        {"sim:vram=nan,h2d=1GB/s", "give a size"},
        {"sim:vram=1GB,h2d=1GB/s,", "comma"},
        {"sim:vram=1GB,,h2d=1GB/s", "KEY=VALUE"},
        {"sim:vram=1GB;h2d=1GB/s", "vram=1GB;h2d=1GB/s"},
        {"sim:vram=1GB,h2d", "KEY=VALUE"},
        {"sim:vram=1GB,h2d=1GB/s,speed=3", "unknown key speed"},
        {"sim:vram=1GB,h2d=1GB/s,h2d=2GB/s", "h2d is given twice"},
        {"sim:vram=1GB,h2d=1GB/s,clock=fast", "wall or virtual"},
        {"sim:vram=1GB,h2d=1GB/s,clock=", "wall or virtual"},
        {"sim:vram=1GB,h2d=1GB/s,order=-1", "whole number"},
        {"sim:vram=1GB,h2d=1GB/s,order=18446744073709551616", "whole number"},
        {"sim:vram=1GB,h2d=1GB/s,order=", "whole number"},
        {"sim:vram=1GB,h2d=1GB/s,start=2", "a time"},
        {"sim:vram=1GB,h2d=1GB/s,start=5 us", "a time"},
        {"sim:vram=1GB,h2d=1GB/s,runtime=2GB", "runtime is larger"},
    };
    for (size_t i = 0; i < OFL_COUNT_OF(bad); i++) {
        ofl_device *device = (ofl_device *)(void *)&device;
        assert_status(ofl_device_open(bad[i].spec, &device), OFL_ERROR_ARGUMENT);
        assert_null(device);
        if (strstr(ofl_error_message(), bad[i].says) == NULL) fail_msg("\"%s\" says: %s", bad[i].spec, ofl_error_message());
    }
    ofl_device *device;
    assert_status(ofl_device_open(NULL, &device), OFL_ERROR_ARGUMENT);
    assert_status(ofl_device_open("sim:vram=1GB,h2d=1GB/s", NULL), OFL_ERROR_ARGUMENT);
}

static void test_units_of_a_spec(void **state)
{
    (void)state;
    static const struct { const char *spec; uint64_t total, available; } good[] = {
        {"sim:vram=12.49GB,h2d=3.26GB/s", UINT64_C(12490000000), UINT64_C(12490000000)},
        {"sim:h2d=3.26GB/s,vram=1.5GiB,runtime=0.5GiB", UINT64_C(1610612736), UINT64_C(1073741824)},
        {"sim:vram=4096,h2d=1000000,start=0.00001,order=3", 4096, 4096},
        {"sim:vram=4096B,h2d=1MiB/s,start=10ns,d2h=7kB/s,h2d_pageable=1KiB/s,pinnable=0,clock=wall", 4096, 4096},
    };
    for (size_t i = 0; i < OFL_COUNT_OF(good); i++) {
        ofl_device *device;
        assert_ok(ofl_device_open(good[i].spec, &device));
        ofl_memory_info memory = {.struct_size = sizeof memory};
        assert_ok(ofl_device_memory_get(device, &memory));
        assert_int_equal(memory.total_bytes, good[i].total);
        assert_int_equal(memory.free_bytes, good[i].available);
        ofl_device_close(device);
    }
}

static void test_memory_limits_are_exact(void **state)
{
    (void)state;
    ofl_device *device;
    void *first, *second;
    assert_ok(ofl_device_open("sim:vram=8192,h2d=1GB/s,runtime=4096,pinnable=8192,clock=virtual", &device));
    assert_ok(ofl_device_alloc(device, 3841, &first)); /* takes 4096 */
    assert_status(ofl_device_alloc(device, 1, &second), OFL_ERROR_DEVICE_MEMORY);
    assert_int_equal(ofl_diagnostic_get()->bytes_available, 0);
    ofl_device_free(device, first);
    assert_ok(ofl_device_alloc(device, 4096, &first));
    assert_ok(ofl_device_host_alloc(device, 1, &second));
    assert_status(ofl_device_host_register(device, first, 4097), OFL_ERROR_PINNED_MEMORY);
    assert_int_equal(ofl_diagnostic_get()->bytes_needed, 4097);
    assert_int_equal(ofl_diagnostic_get()->bytes_available, 4096);
    assert_status(ofl_device_host_alloc(device, UINT64_MAX - 1, &first), OFL_ERROR_PINNED_MEMORY);
    assert_null(first);
    ofl_device_host_free(device, second);
    assert_ok(ofl_device_host_alloc(device, 8192, &second));
    assert_int_equal((uintptr_t)second % 4096, 0);
    ofl_device_close(device); /* takes back what was left */
}

static void test_copies_must_lie_in_their_memory(void **state)
{
    (void)state;
    rig r = rig_open(VIRTUAL);
    char outside[16];
    assert_status(ofl_copy(r.device, r.streams[0], OFL_HOST_TO_DEVICE, outside, r.pinned, 16, OFL_HOST_PINNED), OFL_ERROR_ARGUMENT);
    assert_status(ofl_copy(r.device, r.streams[0], OFL_HOST_TO_DEVICE, r.on_device, outside, 16, OFL_HOST_PINNED), OFL_ERROR_ARGUMENT);
    assert_status(ofl_copy(r.device, r.streams[0], OFL_HOST_TO_DEVICE, r.on_device + 1, r.pinned, 8 * MB, OFL_HOST_PINNED),
                  OFL_ERROR_ARGUMENT);
    assert_status(ofl_copy(r.device, r.streams[0], OFL_DEVICE_TO_HOST, r.pinned + 1, r.on_device, 8 * MB, OFL_HOST_PINNED),
                  OFL_ERROR_ARGUMENT);
    assert_status(ofl_stream_query(r.device, r.streams[0]), OFL_OK);
    rig_close(&r);
}

static void test_copies_of_one_direction_follow_each_other(void **state)
{
    (void)state;
    rig r = rig_open(VIRTUAL);
    down(&r, 0, MB);
    down(&r, 1, 2 * MB);
    down(&r, 0, MB);
    up(&r, 2, 3 * MB); /* the other direction: at the same time */
    assert_now(r, 0);
    assert_ok(ofl_stream_wait(r.device, r.streams[1]));
    assert_now(r, 3010 * US);
    assert_ok(ofl_stream_wait(r.device, r.streams[0]));
    assert_now(r, 4015 * US);
    assert_ok(ofl_stream_wait(r.device, r.streams[2]));
    assert_now(r, 6005 * US);
    rig_close(&r);
}

static void test_pageable_copies_keep_the_host(void **state)
{
    (void)state;
    rig r = rig_open(VIRTUAL);
    assert_ok(ofl_copy(r.device, r.streams[0], OFL_HOST_TO_DEVICE, r.on_device, r.pinned, MB, OFL_HOST_PAGEABLE));
    assert_now(r, 4005 * US);
    assert_ok(ofl_copy(r.device, r.streams[0], OFL_DEVICE_TO_HOST, r.pinned, r.on_device, MB, OFL_HOST_PAGEABLE));
    assert_now(r, 8010 * US);
    rig_close(&r);
}

static void test_copies_start_in_order_of_readiness(void **state)
{
    (void)state;
    rig r = rig_open(VIRTUAL);
    assert_ok(ofl_sim_launch(r.device, r.streams[0], NULL, NULL, 1e-3));
    assert_ok(ofl_event_record(r.device, r.event, r.streams[0]));
    assert_ok(ofl_stream_wait_event(r.device, r.streams[1], r.event));
    down(&r, 1, MB);      /* queued first, ready at 1000 us */
    down(&r, 2, MB / 2);  /* ready at once: 505 us */
    down(&r, 2, MB);      /* ready at 505 us, starts then: 1510 us */
    assert_ok(ofl_stream_wait(r.device, r.streams[2]));
    assert_now(r, 1510 * US);
    assert_ok(ofl_stream_wait(r.device, r.streams[1]));
    assert_now(r, 2515 * US);
    rig_close(&r);
}

static void test_a_wait_ends_with_the_record_it_took(void **state)
{
    (void)state;
    rig r = rig_open(VIRTUAL);
    assert_ok(ofl_sim_launch(r.device, r.streams[0], NULL, NULL, 1e-3));
    assert_ok(ofl_event_record(r.device, r.event, r.streams[0]));
    assert_ok(ofl_stream_wait_event(r.device, r.streams[1], r.event));
    assert_ok(ofl_sim_launch(r.device, r.streams[0], NULL, NULL, 5e-3));
    assert_ok(ofl_event_record(r.device, r.event, r.streams[0]));
    assert_ok(ofl_sim_launch(r.device, r.streams[1], NULL, NULL, 1e-3));
    assert_ok(ofl_stream_wait(r.device, r.streams[1]));
    assert_now(r, 2000 * US);
    assert_ok(ofl_event_wait(r.device, r.event));
    assert_now(r, 6000 * US);
    rig_close(&r);
}

static void test_host_time_and_device_time(void **state)
{
    (void)state;
    rig r = rig_open(VIRTUAL);
    down(&r, 0, MB);
    assert_ok(ofl_sim_elapse(r.device, 400e-6));
    assert_now(r, 400 * US);
    assert_status(ofl_stream_query(r.device, r.streams[0]), OFL_NOT_READY);
    assert_now(r, 400 * US); /* one look costs nothing */
    assert_ok(ofl_sim_elapse(r.device, 605e-6));
    assert_status(ofl_stream_query(r.device, r.streams[0]), OFL_OK);
    assert_ok(ofl_sim_elapse(r.device, 2e-3)); /* the device idles meanwhile */
    down(&r, 0, MB);
    assert_status(ofl_stream_query(r.device, r.streams[0]), OFL_NOT_READY);
    assert_status(ofl_stream_query(r.device, r.streams[0]), OFL_OK); /* a repeated look moves on */
    assert_now(r, 4010 * US);
    assert_status(ofl_sim_elapse(r.device, -1), OFL_ERROR_ARGUMENT);
    assert_status(ofl_sim_launch(r.device, r.streams[0], NULL, NULL, 1e300), OFL_ERROR_ARGUMENT);
    rig_close(&r);
}

typedef struct log_entry {
    char *text;
    char letter;
} log_entry;

static void append(void *context)
{
    const log_entry *entry = context;
    size_t length = strlen(entry->text);
    entry->text[length] = entry->letter;
    entry->text[length + 1] = '\0';
}

static void launches_in_order(const char *spec)
{
    rig r = rig_open(spec);
    char text[8] = "";
    log_entry entries[3] = {{text, 'a'}, {text, 'b'}, {text, 'c'}};
    uint64_t start = ofl_device_now_ns(r.device);
    for (int i = 0; i < 3; i++) assert_ok(ofl_sim_launch(r.device, r.streams[0], append, &entries[i], 1e-3));
    assert_ok(ofl_stream_wait(r.device, r.streams[0]));
    assert_string_equal(text, "abc");
    assert_true(ofl_device_now_ns(r.device) - start >= 3000 * US);
    rig_close(&r);
}

static void test_what_ends_together_ends_in_order_of_submission(void **state)
{
    (void)state;
    rig r = rig_open(VIRTUAL);
    char text[8] = "";
    log_entry entries[3] = {{text, 'a'}, {text, 'b'}, {text, 'c'}};
    for (int i = 0; i < 3; i++) assert_ok(ofl_sim_launch(r.device, r.streams[2 - i], append, &entries[i], 1e-3));
    assert_ok(ofl_stream_wait(r.device, r.streams[0]));
    assert_string_equal(text, "abc");
    rig_close(&r);
}

static void test_functions_run_in_the_stream(void **state)
{
    (void)state;
    launches_in_order(VIRTUAL);
    launches_in_order("sim:vram=64MB,h2d=1GB/s");
    launches_in_order(VIRTUAL ",order=5");
}

/* On the wall clock a short copy of the other direction is done while a long one is still under way. */
static void test_directions_do_not_wait_for_each_other(void **state)
{
    (void)state;
    rig r = rig_open("sim:vram=64MB,h2d=1GB/s,d2h=8MB/s");
    up(&r, 0, 4 * MB); /* half a second */
    down(&r, 1, MB / 100);
    assert_ok(ofl_stream_wait(r.device, r.streams[1]));
    assert_status(ofl_stream_query(r.device, r.streams[0]), OFL_NOT_READY);
    rig_close(&r); /* waits for what is queued */
}

static void test_destroy_with_work_queued(void **state)
{
    (void)state;
    static const char *const specs[] = {VIRTUAL, VIRTUAL ",order=9", "sim:vram=64MB,h2d=1GB/s"};
    for (size_t i = 0; i < OFL_COUNT_OF(specs); i++) {
        rig r = rig_open(specs[i]);
        char text[8] = "";
        log_entry entry = {text, 'x'};
        down(&r, 0, 4 * MB);
        assert_ok(ofl_event_record(r.device, r.event, r.streams[0]));
        assert_ok(ofl_stream_wait_event(r.device, r.streams[1], r.event));
        assert_ok(ofl_sim_launch(r.device, r.streams[1], append, &entry, 1e-3));
        ofl_stream_destroy(r.device, r.streams[1]);
        assert_string_equal(text, "x");
        assert_ok(ofl_stream_create(r.device, &r.streams[1]));
        down(&r, 1, 4 * MB);
        rig_close(&r);
    }
}

typedef struct sum {
    const char *bytes;
    uint64_t count;
    int value;
} sum;

static void add_up(void *context)
{
    sum *s = context;
    s->value = 0;
    for (uint64_t i = 0; i < s->count; i++) s->value += (unsigned char)s->bytes[i];
}

/* One slot, filled with ones and twos by turns and read by a kernel. Wrong sums: how often an unordered pair of operations showed. */
static int wrong_sums(uint64_t seed, bool wait_for_landing, bool wait_for_reader, uint64_t *end_ns)
{
    enum { ROUNDS = 12, BYTES = 1000 };
    char spec[160];
    (void)snprintf(spec, sizeof spec, "sim:vram=64MB,h2d=1GB/s,clock=virtual,order=%llu", (unsigned long long)seed);
    rig r = rig_open(spec);
    ofl_event *reader;
    assert_ok(ofl_event_create(r.device, &reader));
    memset(r.pinned, 1, BYTES);
    memset(r.pinned + BYTES, 2, BYTES);
    sum sums[ROUNDS];
    int wrong = 0;
    for (int i = 0; i < ROUNDS; i++) {
        sums[i] = (sum){r.on_device, BYTES, 0};
        if (wait_for_reader) assert_ok(ofl_stream_wait_event(r.device, r.streams[0], reader));
        assert_ok(ofl_copy(r.device, r.streams[0], OFL_HOST_TO_DEVICE, r.on_device, r.pinned + BYTES * (i % 2), BYTES, OFL_HOST_PINNED));
        assert_ok(ofl_event_record(r.device, r.event, r.streams[0]));
        if (wait_for_landing) assert_ok(ofl_stream_wait_event(r.device, r.streams[1], r.event));
        assert_ok(ofl_sim_launch(r.device, r.streams[1], add_up, &sums[i], 1e-6));
        assert_ok(ofl_event_record(r.device, reader, r.streams[1]));
    }
    wait_all(&r);
    for (int i = 0; i < ROUNDS; i++) wrong += sums[i].value != BYTES * (1 + i % 2);
    *end_ns = ofl_device_now_ns(r.device);
    ofl_event_destroy(r.device, reader);
    rig_close(&r);
    return wrong;
}

static void test_seeds_find_missing_events(void **state)
{
    (void)state;
    int without_landing = 0, without_reader = 0, differing = 0;
    uint64_t first_ns = 0, again_ns, ns;
    for (uint64_t seed = 0; seed < 32; seed++) {
        assert_int_equal(wrong_sums(seed, true, true, &ns), 0);
        assert_int_equal(wrong_sums(seed, true, true, &again_ns), 0);
        assert_int_equal(ns, again_ns); /* the same seed is the same run */
        if (seed == 0) first_ns = ns;
        differing += ns != first_ns;
        without_landing += wrong_sums(seed, false, true, &ns) > 0;
        without_reader += wrong_sums(seed, true, false, &ns) > 0;
    }
    assert_true(differing > 16);
    assert_true(without_landing >= 30);
    assert_true(without_reader >= 30);
}

/* Even where the bytes that arrive are those that were there: a copy under way is not readable. */
static void test_seeds_spoil_what_is_being_written(void **state)
{
    (void)state;
    int wrong = 0;
    for (uint64_t seed = 0; seed < 16; seed++) {
        char spec[160];
        (void)snprintf(spec, sizeof spec, "sim:vram=64MB,h2d=1GB/s,clock=virtual,order=%llu", (unsigned long long)seed);
        rig r = rig_open(spec);
        sum s = {r.on_device, 1000, 0};
        memset(r.pinned, 1, 1000);
        down(&r, 0, 1000);
        assert_ok(ofl_stream_wait(r.device, r.streams[0]));
        down(&r, 0, 1000);
        assert_ok(ofl_sim_launch(r.device, r.streams[1], add_up, &s, 0));
        wait_all(&r);
        if (seed == 0) assert_int_equal(s.value, 1000);
        wrong += s.value != 1000;
        rig_close(&r);
    }
    assert_true(wrong > 0);
}

static void test_seeds_change_the_order_of_copies(void **state)
{
    (void)state;
    int overtaken = 0;
    for (uint64_t seed = 0; seed < 16; seed++) {
        char spec[160];
        (void)snprintf(spec, sizeof spec, "sim:vram=64MB,h2d=1GB/s,clock=virtual,order=%llu", (unsigned long long)seed);
        rig r = rig_open(spec);
        for (int i = 0; i < 3; i++) down(&r, i, MB);
        assert_ok(ofl_stream_wait(r.device, r.streams[2]));
        bool first = ofl_stream_query(r.device, r.streams[1]) == OFL_NOT_READY;
        if (seed == 0) assert_false(first);
        overtaken += first;
        rig_close(&r);
    }
    assert_true(overtaken > 0);
}

/* One of everything; the first failure is handed up with nothing left behind. */
static ofl_status use_device(const char *spec)
{
    ofl_device *device = NULL;
    ofl_stream *stream = NULL, *other = NULL;
    ofl_event *event = NULL;
    void *on_device = NULL, *host = NULL;
    static char mine[4096];
    ofl_status status = ofl_device_open(spec, &device);
    if (status == OFL_OK) status = ofl_stream_create(device, &stream);
    if (status == OFL_OK) status = ofl_stream_create(device, &other);
    if (status == OFL_OK) status = ofl_event_create(device, &event);
    if (status == OFL_OK) status = ofl_device_alloc(device, 4096, &on_device);
    if (status == OFL_OK) status = ofl_device_host_alloc(device, 4096, &host);
    if (status == OFL_OK) status = ofl_device_host_register(device, mine, sizeof mine);
    if (status == OFL_OK) status = ofl_copy(device, stream, OFL_HOST_TO_DEVICE, on_device, host, 4096, OFL_HOST_PINNED);
    if (status == OFL_OK) status = ofl_event_record(device, event, stream);
    if (status == OFL_OK) status = ofl_stream_wait_event(device, other, event);
    if (status == OFL_OK) status = ofl_sim_launch(device, other, NULL, NULL, 1e-6);
    if (status == OFL_OK) status = ofl_event_record(device, event, other);
    if (status == OFL_OK) status = ofl_event_wait(device, event);
    ofl_stream_destroy(device, stream);
    ofl_stream_destroy(device, other);
    ofl_event_destroy(device, event);
    ofl_device_free(device, on_device);
    ofl_device_host_free(device, host);
    ofl_device_close(device);
    return status;
}

static void test_every_allocation_may_fail(void **state)
{
    (void)state;
    static const char *const specs[] = {VIRTUAL, "sim:vram=64MB,h2d=1GB/s"};
    for (size_t i = 0; i < OFL_COUNT_OF(specs); i++) {
        uint64_t nth = 1, left;
        do {
            (void)ofl_fault_allocation(nth++);
            ofl_status status = use_device(specs[i]);
            left = ofl_fault_allocation(0);
            assert_int_equal(status, left == 0 ? OFL_ERROR_HOST_MEMORY : OFL_OK);
        } while (left == 0);
        assert_true(nth > 8);
    }
}

/* Freeing under a copy and destroying under work are waited for, and counted; with a wait before them they are not. */
static void test_hasty_frees_are_counted(void **state)
{
    (void)state;
    static const char *const specs[] = {VIRTUAL, "sim:vram=64MB,h2d=20MB/s"};
    for (size_t i = 0; i < OFL_COUNT_OF(specs); i++) {
        ofl_device *device;
        ofl_stream *stream;
        void *host, *there;
        assert_ok(ofl_device_open(specs[i], &device));
        for (uint64_t hasty = 0; hasty < 4; hasty++) { /* 0: none; 1: the stream; 2: what is copied from; 3: to */
            uint64_t before = ofl_sim_hasty(device);
            assert_ok(ofl_stream_create(device, &stream));
            assert_ok(ofl_device_alloc(device, MB, &there));
            assert_ok(ofl_device_host_alloc(device, MB, &host));
            assert_ok(ofl_copy(device, stream, OFL_HOST_TO_DEVICE, there, host, MB, OFL_HOST_PINNED));
            if (hasty == 0) assert_ok(ofl_stream_wait(device, stream));
            if (hasty == 2) ofl_device_host_free(device, host);
            if (hasty == 3) ofl_device_free(device, there);
            ofl_stream_destroy(device, stream);
            if (hasty != 2) ofl_device_host_free(device, host);
            if (hasty != 3) ofl_device_free(device, there);
            assert_int_equal(ofl_sim_hasty(device) - before, hasty > 0);
        }
        ofl_device_close(device);
    }
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_bad_specs_are_refused),
    cmocka_unit_test(test_units_of_a_spec),
    cmocka_unit_test(test_memory_limits_are_exact),
    cmocka_unit_test(test_copies_must_lie_in_their_memory),
    cmocka_unit_test(test_copies_of_one_direction_follow_each_other),
    cmocka_unit_test(test_pageable_copies_keep_the_host),
    cmocka_unit_test(test_copies_start_in_order_of_readiness),
    cmocka_unit_test(test_a_wait_ends_with_the_record_it_took),
    cmocka_unit_test(test_host_time_and_device_time),
    cmocka_unit_test(test_what_ends_together_ends_in_order_of_submission),
    cmocka_unit_test(test_functions_run_in_the_stream),
    cmocka_unit_test(test_directions_do_not_wait_for_each_other),
    cmocka_unit_test(test_destroy_with_work_queued),
    cmocka_unit_test(test_hasty_frees_are_counted),
    cmocka_unit_test(test_seeds_find_missing_events),
    cmocka_unit_test(test_seeds_spoil_what_is_being_written),
    cmocka_unit_test(test_seeds_change_the_order_of_copies),
    cmocka_unit_test(test_every_allocation_may_fail),
};
TEST_MAIN(tests)
