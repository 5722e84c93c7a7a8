#include "fakecuda.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "device/sim.h"

#define KEPT_MAX 4096
#define CALLS_MAX 64
#define EXPORT __attribute__((visibility("default")))

static const char *const default_spec = "sim:vram=64MB,h2d=2GB/s,d2h=1GB/s,runtime=1MB";

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static ofl_device *devices[FAKE_DEVICES_MAX];
static _Thread_local int current;
static _Thread_local cudaError_t last = cudaSuccess;
static void *kept[KEPT_MAX]; /* what exists; so a leak checker sees it as the runtime's, not as lost */
static int live, fired;
static struct { const char *call; unsigned long count; } calls[CALLS_MAX]; /* call: a literal of this library; the same name may be there twice */

/* What is to fail: the text it was read from, how many calls are left until it does, and whether it has made the process useless. */
static struct {
    char text[96], call[64];
    long left;
    cudaError_t error;
    bool lost;
} fault;

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

int fake_count(void)
{
    int ignored[FAKE_DEVICES_MAX];
    return visible(ignored);
}

int fake_physical(int device)
{
    int numbers[FAKE_DEVICES_MAX];
    if (getenv("CUDA_VISIBLE_DEVICES") == NULL) return device;
    return device < visible(numbers) ? numbers[device] : device;
}

int fake_driver(void) { return number("OFLOAD_FAKECUDA_DRIVER", CUDART_VERSION); }
bool fake_direct(void) { return number("OFLOAD_FAKECUDA_DIRECT", 0) != 0; }
int fake_current(void) { return current; }
void fake_make_current(int device) { current = device; }

ofl_device *fake_device(int number)
{
    int index = fake_physical(number);
    (void)pthread_mutex_lock(&mutex);
    if (devices[index] == NULL) {
        const char *spec = getenv("OFLOAD_FAKECUDA_SPEC");
        if (ofl_device_open(spec != NULL ? spec : default_spec, &devices[index]) != OFL_OK)
            (void)fprintf(stderr, "fakecuda: %s\n", ofl_error_message());
    }
    ofl_device *device = devices[index];
    (void)pthread_mutex_unlock(&mutex);
    return device;
}

ofl_device *fake_opened(int number)
{
    int index = fake_physical(number);
    (void)pthread_mutex_lock(&mutex);
    ofl_device *device = devices[index];
    (void)pthread_mutex_unlock(&mutex);
    return device;
}

/* The environment's text changed: counts from here. */
static void read_fault(const char *text)
{
    int code = 0;
    memset(&fault, 0, sizeof fault);
    (void)snprintf(fault.text, sizeof fault.text, "%s", text);
    if (sscanf(text, "%63[^:]:%ld:%d", fault.call, &fault.left, &code) != 3) fault.left = 0;
    fault.error = (cudaError_t)code;
}

static bool is_sticky(cudaError_t error)
{
    if (error == 701 || error == 704 || error == 705 || error == 712 || error == 713) return false;
    return error == 214 || error == 999 || (error >= 700 && error <= 719);
}

static cudaError_t fault_locked(const char *call)
{
    const char *text = getenv("OFLOAD_FAKECUDA_FAIL");
    if (strcmp(text != NULL ? text : "", fault.text) != 0) read_fault(text != NULL ? text : "");
    if (fault.lost) return fault.error;
    if (fault.left <= 0 || (strcmp(fault.call, "*") != 0 && strcmp(fault.call, call) != 0) || --fault.left > 0) return cudaSuccess;
    fault.lost = is_sticky(fault.error);
    fired++;
    return fault.error;
}

static void count_locked(const char *call)
{
    for (int i = 0; i < CALLS_MAX; i++) {
        if (calls[i].call == NULL) calls[i].call = call;
        if (calls[i].call != call) continue;
        calls[i].count++;
        break;
    }
}

cudaError_t fake_fault(const char *call)
{
    (void)pthread_mutex_lock(&mutex);
    count_locked(call);
    cudaError_t error = fault_locked(call);
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

EXPORT int fakecuda_fired(void)
{
    (void)pthread_mutex_lock(&mutex);
    int count = fired;
    (void)pthread_mutex_unlock(&mutex);
    return count;
}

EXPORT unsigned long fakecuda_calls(const char *call)
{
    unsigned long count = 0;
    (void)pthread_mutex_lock(&mutex);
    for (int i = 0; i < CALLS_MAX; i++) {
        if (calls[i].call != NULL && (strcmp(call, "*") == 0 || strcmp(calls[i].call, call) == 0)) count += calls[i].count;
    }
    (void)pthread_mutex_unlock(&mutex);
    return count;
}

EXPORT unsigned long fakecuda_hasty(void)
{
    unsigned long count = 0;
    for (int i = 0; i < FAKE_DEVICES_MAX; i++) {
        (void)pthread_mutex_lock(&mutex);
        ofl_device *device = devices[i];
        (void)pthread_mutex_unlock(&mutex);
        if (device != NULL) count += (unsigned long)ofl_sim_hasty(device);
    }
    return count;
}

EXPORT uint64_t fakecuda_now_ns(void) { return ofl_device_now_ns(fake_device(0)); }
