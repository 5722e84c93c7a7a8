/* The simulated device's memory: plain host memory, counted against the limits that were given. */
#include "device/sim.h"

#define DEVICE_ALIGNMENT 256u
#define HOST_ALIGNMENT 4096u

static sim_range *find_at(sim_memory *memory, const void *pointer, sim_memory_kind kind)
{
    for (uint64_t i = 0; i < memory->count; i++) {
        if (memory->ranges[i].pointer == pointer && memory->ranges[i].kind == kind) return &memory->ranges[i];
    }
    return NULL;
}

sim_range *ofl_sim_find(sim_device *device, bool host, const void *pointer, uint64_t bytes)
{
    uintptr_t at = (uintptr_t)pointer;
    for (uint64_t i = 0; i < device->memory.count; i++) {
        sim_range *range = &device->memory.ranges[i];
        uintptr_t first = (uintptr_t)range->pointer;
        if (host == (range->kind == SIM_DEVICE_MEMORY)) continue;
        if (at >= first && at - first < range->bytes && bytes <= range->bytes - (at - first)) return range;
    }
    return NULL;
}

static bool overlaps_host(const sim_memory *memory, const void *pointer, uint64_t bytes)
{
    uintptr_t first = (uintptr_t)pointer;
    for (uint64_t i = 0; i < memory->count; i++) {
        const sim_range *range = &memory->ranges[i];
        uintptr_t other = (uintptr_t)range->pointer;
        if (range->kind != SIM_DEVICE_MEMORY && first < other + range->bytes && other < first + bytes) return true;
    }
    return false;
}

static void count_in(sim_memory *memory, const sim_range *range)
{
    if (range->kind != SIM_DEVICE_MEMORY) {
        memory->pinned += range->counted;
        return;
    }
    memory->used += range->counted;
    memory->peak = ofl_max_u64(memory->peak, memory->used);
}

static void take_out(sim_memory *memory, sim_range *range)
{
    *(range->kind == SIM_DEVICE_MEMORY ? &memory->used : &memory->pinned) -= range->counted;
    ofl_free(range->base);
    *range = memory->ranges[--memory->count];
}

/* Adds `range`, with memory of its own unless its pointer is set. */
static ofl_status put_in(sim_device *device, sim_range range, uint64_t alignment)
{
    sim_memory *memory = &device->memory;
    void *ranges = memory->ranges;
    bool grown = ofl_grow(&ranges, &memory->capacity, memory->count + 1, sizeof *memory->ranges);
    memory->ranges = ranges;
    if (!grown) return ofl_fail(OFL_ERROR_HOST_MEMORY, "simulated device: out of host memory");
    if (range.pointer == NULL) {
        range.base = ofl_alloc(range.counted + alignment, 1);
        if (range.base == NULL)
            return ofl_fail(OFL_ERROR_HOST_MEMORY, "simulated device: this machine has no %llu bytes for its memory; make vram smaller",
                            (unsigned long long)range.counted);
        range.pointer = (char *)range.base + (alignment - (uintptr_t)range.base % alignment) % alignment;
    }
    memory->ranges[memory->count++] = range;
    count_in(memory, &range);
    return OFL_OK;
}

ofl_status ofl_sim_memory(ofl_device *base, ofl_memory_info *out)
{
    sim_device *device = sim_of(base);
    sim_lock(device);
    out->total_bytes = device->spec.vram_bytes;
    out->free_bytes = device->spec.vram_bytes - device->spec.runtime_bytes - device->memory.used;
    out->used_bytes = device->memory.used;
    out->peak_bytes = device->memory.peak;
    out->pinned_bytes = device->memory.pinned;
    sim_unlock(device);
    return OFL_OK;
}

ofl_status ofl_sim_alloc(ofl_device *base, uint64_t bytes, void **out)
{
    sim_device *device = sim_of(base);
    sim_range range = {.bytes = bytes, .kind = SIM_DEVICE_MEMORY};
    sim_lock(device);
    uint64_t available = device->spec.vram_bytes - device->spec.runtime_bytes - device->memory.used;
    ofl_status status;
    if (!ofl_align_u64(bytes, DEVICE_ALIGNMENT, &range.counted) || range.counted > available)
        status = ofl_fail_room(OFL_ERROR_DEVICE_MEMORY, bytes, available, "simulated device: %llu bytes of device memory asked for, %llu free; plan for less",
                               (unsigned long long)bytes, (unsigned long long)available);
    else
        status = put_in(device, range, DEVICE_ALIGNMENT);
    if (status == OFL_OK) *out = device->memory.ranges[device->memory.count - 1].pointer;
    sim_unlock(device);
    return status;
}

static void drop(sim_device *device, void *pointer, sim_memory_kind kind)
{
    sim_lock(device);
    ofl_sim_drain(device);
    sim_range *range = find_at(&device->memory, pointer, kind);
    if (range != NULL) take_out(&device->memory, range);
    sim_unlock(device);
}

void ofl_sim_free(ofl_device *base, void *pointer) { drop(sim_of(base), pointer, SIM_DEVICE_MEMORY); }
void ofl_sim_host_free(ofl_device *base, void *pointer) { drop(sim_of(base), pointer, SIM_HOST_ALLOCATED); }

/* range->counted from `span`, checked against what may still be page-locked. */
static ofl_status count_pinned(sim_device *device, uint64_t span, sim_range *range)
{
    uint64_t available = device->spec.pinnable_bytes - device->memory.pinned;
    if (ofl_align_u64(span, HOST_ALIGNMENT, &range->counted) && range->counted <= available) return OFL_OK;
    return ofl_fail_room(OFL_ERROR_PINNED_MEMORY, range->bytes, available,
                         "simulated device: %llu bytes of page-locked memory asked for, %llu left of pinnable; leave more in pageable memory",
                         (unsigned long long)range->bytes, (unsigned long long)available);
}

ofl_status ofl_sim_host_alloc(ofl_device *base, uint64_t bytes, void **out)
{
    sim_device *device = sim_of(base);
    sim_range range = {.bytes = bytes, .kind = SIM_HOST_ALLOCATED};
    sim_lock(device);
    ofl_status status = count_pinned(device, bytes, &range);
    if (status == OFL_OK) status = put_in(device, range, HOST_ALIGNMENT);
    if (status == OFL_OK) *out = device->memory.ranges[device->memory.count - 1].pointer;
    sim_unlock(device);
    return status;
}

ofl_status ofl_sim_host_register(ofl_device *base, const void *pointer, uint64_t bytes)
{
    sim_device *device = sim_of(base);
    sim_range range = {.pointer = (char *)(uintptr_t)pointer, .bytes = bytes, .kind = SIM_HOST_REGISTERED};
    uint64_t span;
    if (!ofl_add_u64((uintptr_t)pointer % HOST_ALIGNMENT, bytes, &span)) return ofl_fail(OFL_ERROR_OVERFLOW, "ofl_device_host_register: too many bytes");
    sim_lock(device);
    ofl_status status = OFL_OK;
    if (overlaps_host(&device->memory, pointer, bytes))
        status = ofl_fail(OFL_ERROR_STATE, "ofl_device_host_register: part of the range is page-locked already; unregister it first");
    if (status == OFL_OK) status = count_pinned(device, span, &range);
    if (status == OFL_OK) status = put_in(device, range, HOST_ALIGNMENT);
    sim_unlock(device);
    return status;
}

ofl_status ofl_sim_host_unregister(ofl_device *base, const void *pointer)
{
    sim_device *device = sim_of(base);
    sim_lock(device);
    ofl_sim_drain(device);
    sim_range *range = find_at(&device->memory, pointer, SIM_HOST_REGISTERED);
    if (range != NULL) take_out(&device->memory, range);
    sim_unlock(device);
    return range != NULL ? OFL_OK : ofl_fail(OFL_ERROR_STATE, "ofl_device_host_unregister: nothing is registered at this address; give the one that was registered");
}

ofl_status ofl_sim_host_address(ofl_device *base, const void *host, const void **device_out)
{
    sim_device *device = sim_of(base);
    sim_lock(device);
    const sim_range *range = ofl_sim_find(device, true, host, 1);
    sim_unlock(device);
    if (range == NULL) return ofl_fail(OFL_ERROR_ARGUMENT, "ofl_device_host_address: the address is not in page-locked memory of this device");
    *device_out = host;
    return OFL_OK;
}

void ofl_sim_memory_drop(sim_device *device)
{
    while (device->memory.count > 0) take_out(&device->memory, &device->memory.ranges[0]);
    ofl_free(device->memory.ranges);
}
