/* The simulated device's memory: plain host memory, counted against the limits that were given. */
#include "device/sim.h"

#include <sys/mman.h>

#define DEVICE_ALIGNMENT 256u
#define HUGE_BYTES (UINT64_C(2) << 20)

/* As a real runtime sees it: by whole pages. */
static bool shares_a_page(const ofl_ledger *ledger, const void *pointer, uint64_t bytes)
{
    uintptr_t first = (uintptr_t)pointer / OFL_PAGE_BYTES, last = ((uintptr_t)pointer + (bytes - 1)) / OFL_PAGE_BYTES;
    for (uint64_t i = 0; i < ledger->count; i++) {
        const ofl_ledger_entry *entry = &ledger->entries[i];
        uintptr_t other_first = (uintptr_t)entry->pointer / OFL_PAGE_BYTES;
        uintptr_t other_last = ((uintptr_t)entry->pointer + (entry->bytes - 1)) / OFL_PAGE_BYTES;
        if (entry->kind != OFL_LEDGER_DEVICE && first <= other_last && other_first <= last) return true;
    }
    return false;
}

/* A real device's memory costs no page faults: huge pages make them few, and on the wall clock they come now, not in the first copies.
 * Only advice: where the kernel does not take it, the first copies are slower. */
static void make_present(const sim_device *device, const ofl_ledger_entry *entry)
{
    uint64_t skip = HUGE_BYTES - (uintptr_t)entry->base % HUGE_BYTES;
    if (entry->counted < 2 * HUGE_BYTES) return;
    char *first = (char *)entry->base + skip;
    size_t bytes = (size_t)((entry->counted - skip) / HUGE_BYTES * HUGE_BYTES);
    (void)madvise(first, bytes, MADV_HUGEPAGE);
#ifdef MADV_POPULATE_WRITE
    if (!device->spec.is_virtual) (void)madvise(first, bytes, MADV_POPULATE_WRITE);
#else
    (void)device;
#endif
}

/* Enters `entry`, with memory of its own unless its pointer is set. */
static ofl_status enter(sim_device *device, ofl_ledger_entry *entry, uint64_t alignment)
{
    if (!ofl_ledger_reserve(&device->ledger)) return ofl_fail(OFL_ERROR_HOST_MEMORY, "simulated device: out of host memory");
    if (entry->pointer == NULL) {
        entry->base = ofl_alloc(entry->counted + alignment, 1);
        if (entry->base == NULL)
            return ofl_fail(OFL_ERROR_HOST_MEMORY, "simulated device: this machine has no %s for its memory; make vram smaller",
                            ofl_bytes_text(entry->counted).text);
        entry->pointer = (char *)entry->base + (alignment - (uintptr_t)entry->base % alignment) % alignment;
    }
    ofl_ledger_add(&device->ledger, *entry);
    return OFL_OK;
}

static bool leave(sim_device *device, const void *pointer, ofl_ledger_kind kind)
{
    ofl_ledger_entry entry;
    sim_lock(device);
    const ofl_ledger_entry *there = ofl_ledger_find(&device->ledger, kind != OFL_LEDGER_DEVICE, pointer, 1);
    if (there != NULL && ofl_sim_is_copied(device, there->pointer, there->bytes)) device->hasty++;
    ofl_sim_drain(device);
    bool found = ofl_ledger_take(&device->ledger, pointer, kind, &entry);
    if (found) ofl_free(entry.base);
    sim_unlock(device);
    return found;
}

static uint64_t device_bytes_free(const sim_device *device)
{
    return device->spec.vram_bytes - device->spec.runtime_bytes - device->ledger.used;
}

ofl_status ofl_sim_memory(ofl_device *base, ofl_memory_info *out)
{
    sim_device *device = sim_of(base);
    sim_lock(device);
    out->total_bytes = device->spec.vram_bytes;
    out->free_bytes = device_bytes_free(device);
    out->used_bytes = device->ledger.used;
    out->peak_bytes = device->ledger.peak;
    out->pinned_bytes = device->ledger.pinned;
    sim_unlock(device);
    return OFL_OK;
}

static ofl_status enter_device_memory(sim_device *device, ofl_ledger_entry *entry)
{
    uint64_t available = device_bytes_free(device);
    if (ofl_align_u64(entry->bytes, DEVICE_ALIGNMENT, &entry->counted) && entry->counted <= available)
        return enter(device, entry, DEVICE_ALIGNMENT);
    return ofl_fail_room(OFL_ERROR_DEVICE_MEMORY, entry->bytes, available,
                         "simulated device: %s of device memory asked for, %s free; plan for less",
                         ofl_bytes_text(entry->bytes).text, ofl_bytes_text(available).text);
}

ofl_status ofl_sim_alloc(ofl_device *base, uint64_t bytes, void **out)
{
    sim_device *device = sim_of(base);
    ofl_ledger_entry entry = {.bytes = bytes, .kind = OFL_LEDGER_DEVICE};
    sim_lock(device);
    ofl_status status = enter_device_memory(device, &entry);
    sim_unlock(device);
    if (status != OFL_OK) return status;
    make_present(device, &entry);
    *out = entry.pointer;
    return OFL_OK;
}

void ofl_sim_free(ofl_device *base, void *pointer) { (void)leave(sim_of(base), pointer, OFL_LEDGER_DEVICE); }
void ofl_sim_host_free(ofl_device *base, void *pointer) { (void)leave(sim_of(base), pointer, OFL_LEDGER_HOST); }

/* entry->counted, from whole pages; checked against what may still be page-locked. */
static ofl_status count_pinned(sim_device *device, ofl_ledger_entry *entry)
{
    uint64_t available = device->spec.pinnable_bytes - device->ledger.pinned, span;
    if (ofl_add_u64((uintptr_t)entry->pointer % OFL_PAGE_BYTES, entry->bytes, &span) &&
        ofl_align_u64(span, OFL_PAGE_BYTES, &entry->counted) && entry->counted <= available)
        return OFL_OK;
    return ofl_fail_room(
        OFL_ERROR_PINNED_MEMORY, entry->bytes, available,
        "simulated device: %s of page-locked memory asked for, %s left of pinnable; leave more in pageable memory",
        ofl_bytes_text(entry->bytes).text, ofl_bytes_text(available).text);
}

ofl_status ofl_sim_host_alloc(ofl_device *base, uint64_t bytes, void **out)
{
    sim_device *device = sim_of(base);
    ofl_ledger_entry entry = {.bytes = bytes, .kind = OFL_LEDGER_HOST};
    sim_lock(device);
    ofl_status status = count_pinned(device, &entry);
    if (status == OFL_OK) status = enter(device, &entry, OFL_PAGE_BYTES);
    sim_unlock(device);
    if (status != OFL_OK) return status;
    make_present(device, &entry);
    *out = entry.pointer;
    return OFL_OK;
}

ofl_status ofl_sim_host_register(ofl_device *base, const void *pointer, uint64_t bytes)
{
    sim_device *device = sim_of(base);
    ofl_ledger_entry entry = {.pointer = (char *)(uintptr_t)pointer, .bytes = bytes, .kind = OFL_LEDGER_REGISTERED};
    ofl_status status = OFL_OK;
    sim_lock(device);
    if (shares_a_page(&device->ledger, pointer, bytes))
        status =
            ofl_fail(OFL_ERROR_STATE, "ofl_device_host_register: a page of the range is page-locked already; register whole pages once");
    if (status == OFL_OK) status = count_pinned(device, &entry);
    if (status == OFL_OK) status = enter(device, &entry, OFL_PAGE_BYTES);
    sim_unlock(device);
    return status;
}

ofl_status ofl_sim_host_unregister(ofl_device *base, const void *pointer)
{
    if (leave(sim_of(base), pointer, OFL_LEDGER_REGISTERED)) return OFL_OK;
    return ofl_fail(OFL_ERROR_STATE, "ofl_device_host_unregister: nothing is registered at this address; give the one that was registered");
}

ofl_status ofl_sim_host_address(ofl_device *base, const void *host, const void **device_out)
{
    sim_device *device = sim_of(base);
    sim_lock(device);
    bool known = ofl_ledger_find(&device->ledger, true, host, 1) != NULL;
    sim_unlock(device);
    if (!known) return ofl_fail(OFL_ERROR_ARGUMENT, "ofl_device_host_address: the address is not in page-locked memory of this device");
    *device_out = host;
    return OFL_OK;
}

void ofl_sim_memory_drop(sim_device *device)
{
    for (uint64_t i = 0; i < device->ledger.count; i++) ofl_free(device->ledger.entries[i].base);
    ofl_free(device->ledger.entries);
}
