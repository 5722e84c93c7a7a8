/* The caller's memory, page-locked where it lies. Several engines may stream from the same weights, and a range can be locked once only:
 * the process keeps count of who uses which. */
#include "engine/internal.h"

#include <pthread.h>

struct ofl_pin {
    ofl_pin *next;
    ofl_device *device;
    const char *start;
    uint64_t bytes;
    uint32_t users;
};

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static ofl_pin *pins;

/* Page-locked, but not by an engine: then by the caller, who keeps it so as long as the weights are in use. */
static bool is_callers(ofl_device *device, const char *start, uint64_t bytes)
{
    const void *address;
    uintptr_t first = (uintptr_t)start / OFL_PAGE_BYTES, last = ((uintptr_t)start + bytes - 1) / OFL_PAGE_BYTES;
    for (const ofl_pin *pin = pins; pin != NULL; pin = pin->next) {
        uintptr_t other_first = (uintptr_t)pin->start / OFL_PAGE_BYTES,
                  other_last = ((uintptr_t)pin->start + pin->bytes - 1) / OFL_PAGE_BYTES;
        if (first <= other_last && other_first <= last) return false;
    }
    return ofl_device_host_address(device, start, &address) == OFL_OK &&
           ofl_device_host_address(device, start + bytes - 1, &address) == OFL_OK;
}

static ofl_pin *find(const ofl_device *device, const char *start, uint64_t bytes)
{
    for (ofl_pin *pin = pins; pin != NULL; pin = pin->next) {
        if (pin->device == device && start >= pin->start && bytes <= pin->bytes && (uint64_t)(start - pin->start) <= pin->bytes - bytes)
            return pin;
    }
    return NULL;
}

static ofl_status add(ofl_device *device, const char *start, uint64_t bytes, ofl_pin **out)
{
    ofl_pin *pin = ofl_alloc(1, sizeof *pin);
    if (pin == NULL) return ofl_fail(OFL_ERROR_HOST_MEMORY, "engine's tables: out of host memory; free some");
    ofl_status status = ofl_device_host_register(device, start, bytes);
    if (status != OFL_OK) {
        ofl_free(pin);
        return status == OFL_ERROR_STATE && is_callers(device, start, bytes) ? OFL_OK : status;
    }
    *pin = (ofl_pin){pins, device, start, bytes, 1};
    *out = pins = pin;
    return OFL_OK;
}

ofl_status ofl_pin_take(ofl_device *device, const char *start, uint64_t bytes, ofl_pin **out)
{
    *out = NULL;
    (void)pthread_mutex_lock(&mutex);
    ofl_pin *pin = find(device, start, bytes);
    ofl_status status = OFL_OK;
    if (pin != NULL) {
        pin->users++;
        *out = pin;
    } else {
        status = add(device, start, bytes, out);
    }
    (void)pthread_mutex_unlock(&mutex);
    return status;
}

void ofl_pin_give(ofl_pin *pin)
{
    if (pin == NULL) return;
    (void)pthread_mutex_lock(&mutex);
    if (--pin->users == 0) {
        for (ofl_pin **at = &pins; *at != NULL; at = &(*at)->next) {
            if (*at != pin) continue;
            *at = pin->next;
            break;
        }
        (void)ofl_device_host_unregister(pin->device, pin->start);
        ofl_free(pin);
    }
    (void)pthread_mutex_unlock(&mutex);
}
