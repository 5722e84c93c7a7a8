#include "fakecuda.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "device/sim.h"

#define KEPT_MAX 4096
#define EXPORT __attribute__((visibility("default")))

static const char *const default_spec = "sim:vram=64MB,h2d=2GB/s,d2h=1GB/s,runtime=1MB";

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static _Atomic(ofl_device *) devices[FAKE_DEVICES_MAX];
static _Thread_local int current;
static _Thread_local cudaError_t last = cudaSuccess;
static void *kept[KEPT_MAX]; /* what exists; so a leak checker sees it as the runtime's, not as lost */
static int live, fired;
static _Atomic(fake_call *) calls; /* all that were made, newest first */

/* What is to fail: the text it was read from, how many calls are left until it does, and whether it has made the process useless. */
static struct {
    char text[96], call[64];
    long left;
    cudaError_t error;
    bool lost;
} fault;

/* What the environment says is read anew only when it has changed: every call asks. */
static atomic_bool armed;   /* some call is to fail, or all do */
static atomic_int physical[FAKE_DEVICES_MAX], seen; /* behind the visible numbers; how many there are */
static atomic_bool late;

extern char **environ;
/* An entry that is set, changed or taken away shows in one of these: the array, its last entry, its end. Entries of our own: each. */
enum { WATCHED = 4 };
static const char *const watched[WATCHED] = {"OFLOAD_FAKECUDA_FAIL", "CUDA_VISIBLE_DEVICES", "OFLOAD_FAKECUDA_DEVICES", "OFLOAD_FAKECUDA_PAGEABLE"};
static struct {
    _Atomic(char **) all;
    _Atomic size_t count, places[WATCHED];
    _Atomic(char *) last, entries[WATCHED];
} environment;

static int number(const char *name, int otherwise)
{
    const char *text = getenv(name);
    return text != NULL ? atoi(text) : otherwise;
}

static int physical_count(void)
{
    int count = number("OFLOAD_FAKECUDA_DEVICES", 2);
    return count < 0 ? 0 : count > FAKE_DEVICES_MAX ? FAKE_DEVICES_MAX : count;
}

/* One word of CUDA_VISIBLE_DEVICES: a number, or the beginning of a UUID (whose first byte is the number here); -1: neither. */
static int visible_word(const char *word, size_t bytes)
{
    char digits[16] = "", *end;
    bool by_uuid = bytes > 6 && strncmp(word, "GPU-", 4) == 0;
    if (by_uuid) memcpy(digits, word + 4, 2);
    else memcpy(digits, word, bytes < sizeof digits ? bytes : sizeof digits - 1);
    long value = strtol(digits, &end, by_uuid ? 16 : 10);
    return end != digits && *end == '\0' && value >= 0 && value < physical_count() ? (int)value : -1;
}

/* As the driver reads it: what follows the first word that names no device is not seen. */
static int visible(int *devices_out)
{
    int count = 0;
    const char *text = getenv("CUDA_VISIBLE_DEVICES");
    for (int i = 0; text == NULL && i < physical_count(); i++) devices_out[count++] = i;
    while (text != NULL && *text != '\0' && count < FAKE_DEVICES_MAX) {
        size_t bytes = strcspn(text, ",");
        int device = visible_word(text, bytes);
        if (device < 0) break;
        devices_out[count++] = device;
        text += bytes + (text[bytes] == ',');
    }
    return count;
}

/* The environment's text changed: counts from here. */
static void read_fault(const char *text)
{
    int code = 0;
    if (strcmp(text, fault.text) == 0) return;
    memset(&fault, 0, sizeof fault);
    (void)snprintf(fault.text, sizeof fault.text, "%s", text);
    if (sscanf(text, "%63[^:]:%ld:%d", fault.call, &fault.left, &code) != 3) fault.left = 0;
    fault.error = (cudaError_t)code;
    armed = fault.left > 0;
}

static bool is_as_read(void)
{
    char **all = atomic_load_explicit(&environment.all, memory_order_relaxed);
    size_t count = atomic_load_explicit(&environment.count, memory_order_relaxed);
    if (all == NULL || all != environ || all[count] != NULL) return false;
    if (count > 0 && all[count - 1] != atomic_load_explicit(&environment.last, memory_order_relaxed)) return false;
    for (int i = 0; i < WATCHED; i++) {
        size_t place = atomic_load_explicit(&environment.places[i], memory_order_relaxed);
        if (all[place] != atomic_load_explicit(&environment.entries[i], memory_order_relaxed)) return false;
    }
    return true;
}

static void watch_environment(void)
{
    size_t count = 0;
    while (environ[count] != NULL) count++;
    environment.count = count;
    environment.last = count > 0 ? environ[count - 1] : NULL;
    for (int i = 0; i < WATCHED; i++) {
        size_t place = 0, bytes = strlen(watched[i]);
        while (place < count && (strncmp(environ[place], watched[i], bytes) != 0 || environ[place][bytes] != '=')) place++;
        environment.places[i] = place; /* the end where it is not set */
        environment.entries[i] = environ[place];
    }
    environment.all = environ;
}

static void read_environment(void)
{
    int numbers[FAKE_DEVICES_MAX];
    const char *text = getenv("OFLOAD_FAKECUDA_FAIL"), *pageable = getenv("OFLOAD_FAKECUDA_PAGEABLE");
    (void)pthread_mutex_lock(&mutex);
    read_fault(text != NULL ? text : "");
    late = pageable != NULL && strcmp(pageable, "late") == 0;
    seen = visible(numbers);
    for (int i = 0; i < FAKE_DEVICES_MAX; i++) physical[i] = i < seen ? numbers[i] : i;
    watch_environment();
    (void)pthread_mutex_unlock(&mutex);
}

static void look_at_environment(void)
{
    if (!is_as_read()) read_environment();
}

int fake_count(void)
{
    look_at_environment();
    return atomic_load_explicit(&seen, memory_order_relaxed);
}

int fake_physical(int device)
{
    look_at_environment();
    return atomic_load_explicit(&physical[device], memory_order_relaxed);
}

bool fake_late(void) { return atomic_load_explicit(&late, memory_order_relaxed); }

int fake_driver(void) { return number("OFLOAD_FAKECUDA_DRIVER", CUDART_VERSION); }
bool fake_direct(void) { return number("OFLOAD_FAKECUDA_DIRECT", 0) != 0; }
int fake_current(void) { return current; }
void fake_make_current(int device) { current = device; }

static ofl_device *open_device(int index)
{
    ofl_device *device = NULL;
    (void)pthread_mutex_lock(&mutex);
    if (devices[index] == NULL) {
        const char *spec = getenv("OFLOAD_FAKECUDA_SPEC");
        if (ofl_device_open(spec != NULL ? spec : default_spec, &device) == OFL_OK) devices[index] = device;
        else (void)fprintf(stderr, "fakecuda: %s\n", ofl_error_message());
    }
    device = devices[index];
    (void)pthread_mutex_unlock(&mutex);
    return device;
}

ofl_device *fake_opened(int number) { return atomic_load_explicit(&devices[fake_physical(number)], memory_order_acquire); }

ofl_device *fake_device(int number)
{
    ofl_device *device = fake_opened(number);
    return device != NULL ? device : open_device(fake_physical(number));
}

static bool is_sticky(cudaError_t error)
{
    if (error == 701 || error == 704 || error == 705 || error == 712 || error == 713) return false;
    return error == 214 || error == 999 || (error >= 700 && error <= 719);
}

static cudaError_t fault_locked(const char *call)
{
    if (fault.lost) return fault.error;
    if (fault.left <= 0 || (strcmp(fault.call, "*") != 0 && strcmp(fault.call, call) != 0) || --fault.left > 0) return cudaSuccess;
    fault.lost = is_sticky(fault.error);
    armed = fault.lost;
    fired++;
    return fault.error;
}

/* At its first use. */
static void enter_call(fake_call *call)
{
    (void)pthread_mutex_lock(&mutex);
    if (!call->entered) {
        call->next = calls;
        calls = call;
        call->entered = true;
    }
    (void)pthread_mutex_unlock(&mutex);
}

cudaError_t fake_fault(fake_call *call)
{
    cudaError_t error = cudaSuccess;
    if (!atomic_load_explicit(&call->entered, memory_order_acquire)) enter_call(call);
    atomic_fetch_add_explicit(&call->count, 1, memory_order_relaxed);
    look_at_environment();
    if (!atomic_load_explicit(&armed, memory_order_relaxed)) return cudaSuccess;
    (void)pthread_mutex_lock(&mutex);
    error = fault_locked(call->name);
    (void)pthread_mutex_unlock(&mutex);
    return error == cudaSuccess ? cudaSuccess : fake_remember(error);
}

cudaError_t fake_remember(cudaError_t error)
{
    if (error != cudaSuccess) last = error;
    return error;
}

cudaError_t fake_last(bool clear)
{
    cudaError_t error = last;
    if (clear && !is_sticky(error)) last = cudaSuccess;
    return error;
}

void fake_keep(void *made)
{
    (void)pthread_mutex_lock(&mutex);
    for (int i = 0; i < KEPT_MAX; i++) {
        if (kept[i] != NULL) continue;
        kept[i] = made;
        live++;
        break;
    }
    (void)pthread_mutex_unlock(&mutex);
}

void fake_drop(const void *made)
{
    (void)pthread_mutex_lock(&mutex);
    for (int i = 0; i < KEPT_MAX; i++) {
        if (kept[i] != made) continue;
        kept[i] = NULL;
        live--;
        break;
    }
    (void)pthread_mutex_unlock(&mutex);
}

cudaError_t fake_translate(ofl_status status, cudaError_t state)
{
    switch (status) {
    case OFL_OK: return cudaSuccess;
    case OFL_NOT_READY: return fake_remember(cudaErrorNotReady);
    case OFL_ERROR_DEVICE_MEMORY:
    case OFL_ERROR_PINNED_MEMORY:
    case OFL_ERROR_HOST_MEMORY: return fake_remember(cudaErrorMemoryAllocation);
    case OFL_ERROR_STATE: return fake_remember(state);
    default: return fake_remember(cudaErrorInvalidValue);
    }
}

ofl_device *fake_owner_of_host(const void *host)
{
    const void *address;
    for (int i = 0; i < fake_count(); i++) {
        ofl_device *device = fake_opened(i);
        if (device != NULL && ofl_device_host_address(device, host, &address) == OFL_OK) return device;
    }
    return NULL;
}

bool fake_is_device(ofl_device *device, const void *pointer)
{
    sim_lock(sim_of(device));
    bool found = ofl_ledger_find(&sim_of(device)->ledger, false, pointer, 1) != NULL;
    sim_unlock(sim_of(device));
    return found;
}

EXPORT int fakecuda_live(void)
{
    (void)pthread_mutex_lock(&mutex);
    int count = live;
    (void)pthread_mutex_unlock(&mutex);
    return count;
}

EXPORT int fakecuda_fault(fake_call *call) { return (int)fake_fault(call); }
EXPORT int fakecuda_fired(void)
{
    (void)pthread_mutex_lock(&mutex);
    int count = fired;
    (void)pthread_mutex_unlock(&mutex);
    return count;
}

EXPORT unsigned long fakecuda_calls(const char *name)
{
    unsigned long count = 0;
    for (fake_call *call = calls; call != NULL; call = call->next) {
        if (strcmp(name, "*") == 0 || strcmp(call->name, name) == 0) count += call->count;
    }
    return count;
}

EXPORT unsigned long fakecuda_hasty(void)
{
    unsigned long count = 0;
    for (int i = 0; i < FAKE_DEVICES_MAX; i++) {
        ofl_device *device = devices[i];
        if (device != NULL) count += (unsigned long)ofl_sim_hasty(device);
    }
    return count;
}

static atomic_ulong spins;
void fake_spun(bool spun) { spins += spun; }
EXPORT unsigned long fakecuda_spun(void) { return spins; }
EXPORT uint64_t fakecuda_now_ns(void) { return ofl_device_now_ns(fake_device(0)); }
