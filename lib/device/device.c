/* The public calls: arguments checked here once, then the back end's table. */
#include "device/backend.h"

#include <math.h>
#include <string.h>

#include "base/base.h"

/* Longest time that a caller may ask for: thirty years, so that sums of nanoseconds stay in 64 bits. */
#define SECONDS_MAX 1e9

static ofl_status missing(const char *call, const char *what) { return ofl_fail(OFL_ERROR_ARGUMENT, "%s: no %s given", call, what); }

#define REQUIRE(pointer, call, what)                          \
    do {                                                      \
        if ((pointer) == NULL) return missing((call), (what)); \
    } while (0)

static ofl_status open_backend(const char *spec, ofl_device **out)
{
    if (strncmp(spec, "sim:", 4) == 0) return ofl_sim_open(spec + 4, spec, out);
    if (strncmp(spec, "cuda:", 5) == 0) {
#ifdef OFLOAD_HAVE_CUDA
        return ofl_cuda_open(spec + 5, spec, out);
#else
        return ofl_fail(OFL_ERROR_UNSUPPORTED,
                        "device %s: this library was built without CUDA; build it where a CUDA toolkit is installed, or use a sim: device",
                        spec);
#endif
    }
    return ofl_fail(OFL_ERROR_ARGUMENT, "device \"%.80s\": unknown kind; give cuda:N or sim:vram=SIZE,h2d=RATE", spec);
}

ofl_status ofl_device_open(const char *spec, ofl_device **out)
{
    REQUIRE(out, "ofl_device_open", "place for the device");
    *out = NULL;
    REQUIRE(spec, "ofl_device_open", "spec");
    char *copy = ofl_copy_string(spec, strlen(spec));
    if (copy == NULL) return ofl_fail(OFL_ERROR_HOST_MEMORY, "device %.80s: out of host memory", spec);
    ofl_device *device = NULL;
    ofl_status status = open_backend(spec, &device);
    if (status != OFL_OK) {
        ofl_free(copy);
        return status;
    }
    device->spec = copy;
    *out = device;
    return OFL_OK;
}

ofl_status ofl_device_count(const char *kind, uint32_t *count_out)
{
    REQUIRE(count_out, "ofl_device_count", "place for the count");
    *count_out = 0;
    REQUIRE(kind, "ofl_device_count", "kind of device");
    if (strcmp(kind, "cuda") != 0)
        return ofl_fail(OFL_ERROR_ARGUMENT, "ofl_device_count: devices of kind \"%.40s\" are not counted; give cuda", kind);
#ifdef OFLOAD_HAVE_CUDA
    return ofl_cuda_count(count_out);
#else
    return ofl_fail(OFL_ERROR_UNSUPPORTED, "device cuda: this library was built without CUDA; build it where a CUDA toolkit is installed");
#endif
}

void ofl_device_close(ofl_device *device)
{
    if (device == NULL) return;
    char *spec = device->spec;
    device->backend->close(device);
    ofl_free(spec);
}

ofl_status ofl_device_info_get(const ofl_device *device, ofl_device_info *out)
{
    REQUIRE(device, "ofl_device_info_get", "device");
    ofl_device_info info = {.struct_size = sizeof info, .name = "", .spec = device->spec, .pci_id = "", .uuid = "", .numa_node = -1};
    device->backend->info(device, &info);
    return ofl_struct_out(out, &info, sizeof info, "ofl_device_info");
}

ofl_status ofl_device_memory_get(ofl_device *device, ofl_memory_info *out)
{
    REQUIRE(device, "ofl_device_memory_get", "device");
    ofl_memory_info info = {.struct_size = sizeof info};
    ofl_status status = device->backend->memory(device, &info);
    if (status != OFL_OK) return status;
    return ofl_struct_out(out, &info, sizeof info, "ofl_memory_info");
}

/* device, out and bytes of the two allocating calls. */
static ofl_status check_alloc(const char *call, const ofl_device *device, uint64_t bytes, void **out)
{
    REQUIRE(out, call, "place for the pointer");
    *out = NULL;
    REQUIRE(device, call, "device");
    if (bytes == 0) return ofl_fail(OFL_ERROR_ARGUMENT, "%s: 0 bytes asked for", call);
    return OFL_OK;
}

ofl_status ofl_device_alloc(ofl_device *device, uint64_t bytes, void **out)
{
    ofl_status status = check_alloc("ofl_device_alloc", device, bytes, out);
    return status != OFL_OK ? status : device->backend->alloc(device, bytes, out);
}

void ofl_device_free(ofl_device *device, void *pointer)
{
    if (device != NULL && pointer != NULL) device->backend->free(device, pointer);
}

ofl_status ofl_device_host_alloc(ofl_device *device, uint64_t bytes, void **out)
{
    ofl_status status = check_alloc("ofl_device_host_alloc", device, bytes, out);
    return status != OFL_OK ? status : device->backend->host_alloc(device, bytes, out);
}

void ofl_device_host_free(ofl_device *device, void *pointer)
{
    if (device != NULL && pointer != NULL) device->backend->host_free(device, pointer);
}

ofl_status ofl_device_host_register(ofl_device *device, const void *pointer, uint64_t bytes)
{
    REQUIRE(device, "ofl_device_host_register", "device");
    REQUIRE(pointer, "ofl_device_host_register", "memory");
    if (bytes == 0) return ofl_fail(OFL_ERROR_ARGUMENT, "ofl_device_host_register: 0 bytes given");
    if (bytes > UINTPTR_MAX - (uintptr_t)pointer)
        return ofl_fail(OFL_ERROR_OVERFLOW, "ofl_device_host_register: the range ends beyond the address space");
    return device->backend->host_register(device, pointer, bytes);
}

ofl_status ofl_device_host_unregister(ofl_device *device, const void *pointer)
{
    REQUIRE(device, "ofl_device_host_unregister", "device");
    REQUIRE(pointer, "ofl_device_host_unregister", "memory");
    return device->backend->host_unregister(device, pointer);
}

ofl_status ofl_device_host_address(ofl_device *device, const void *host, const void **device_out)
{
    REQUIRE(device_out, "ofl_device_host_address", "place for the address");
    *device_out = NULL;
    REQUIRE(device, "ofl_device_host_address", "device");
    REQUIRE(host, "ofl_device_host_address", "memory");
    return device->backend->host_address(device, host, device_out);
}

ofl_status ofl_stream_create(ofl_device *device, ofl_stream **out)
{
    REQUIRE(out, "ofl_stream_create", "place for the stream");
    *out = NULL;
    REQUIRE(device, "ofl_stream_create", "device");
    return device->backend->stream_create(device, out);
}

void ofl_stream_destroy(ofl_device *device, ofl_stream *stream)
{
    if (device != NULL && stream != NULL) device->backend->stream_destroy(device, stream);
}

ofl_status ofl_stream_wait(ofl_device *device, ofl_stream *stream)
{
    REQUIRE(device, "ofl_stream_wait", "device");
    REQUIRE(stream, "ofl_stream_wait", "stream");
    return device->backend->stream_wait(device, stream);
}

ofl_status ofl_stream_query(ofl_device *device, ofl_stream *stream)
{
    REQUIRE(device, "ofl_stream_query", "device");
    REQUIRE(stream, "ofl_stream_query", "stream");
    return device->backend->stream_query(device, stream);
}

ofl_status ofl_stream_wait_event(ofl_device *device, ofl_stream *stream, ofl_event *event)
{
    REQUIRE(device, "ofl_stream_wait_event", "device");
    REQUIRE(stream, "ofl_stream_wait_event", "stream");
    REQUIRE(event, "ofl_stream_wait_event", "event");
    return device->backend->stream_wait_event(device, stream, event);
}

ofl_status ofl_event_create(ofl_device *device, ofl_event **out)
{
    REQUIRE(out, "ofl_event_create", "place for the event");
    *out = NULL;
    REQUIRE(device, "ofl_event_create", "device");
    return device->backend->event_create(device, out);
}

void ofl_event_destroy(ofl_device *device, ofl_event *event)
{
    if (device != NULL && event != NULL) device->backend->event_destroy(device, event);
}

ofl_status ofl_event_record(ofl_device *device, ofl_event *event, ofl_stream *stream)
{
    REQUIRE(device, "ofl_event_record", "device");
    REQUIRE(event, "ofl_event_record", "event");
    REQUIRE(stream, "ofl_event_record", "stream");
    return device->backend->event_record(device, event, stream);
}

ofl_status ofl_event_query(ofl_device *device, ofl_event *event)
{
    REQUIRE(device, "ofl_event_query", "device");
    REQUIRE(event, "ofl_event_query", "event");
    return device->backend->event_query(device, event);
}

ofl_status ofl_event_wait(ofl_device *device, ofl_event *event)
{
    REQUIRE(device, "ofl_event_wait", "device");
    REQUIRE(event, "ofl_event_wait", "event");
    return device->backend->event_wait(device, event);
}

ofl_status ofl_copy(ofl_device *device, ofl_stream *stream, ofl_direction direction, void *to, const void *from, uint64_t bytes,
                    ofl_host_memory memory)
{
    REQUIRE(device, "ofl_copy", "device");
    REQUIRE(stream, "ofl_copy", "stream");
    if (direction != OFL_HOST_TO_DEVICE && direction != OFL_DEVICE_TO_HOST)
        return ofl_fail(OFL_ERROR_ARGUMENT, "ofl_copy: unknown direction %d", (int)direction);
    if (memory != OFL_HOST_PAGEABLE && memory != OFL_HOST_PINNED)
        return ofl_fail(OFL_ERROR_ARGUMENT, "ofl_copy: unknown kind of host memory %d", (int)memory);
    if (bytes == 0) return OFL_OK;
    REQUIRE(to, "ofl_copy", "destination");
    REQUIRE(from, "ofl_copy", "source");
    return device->backend->copy(device, stream, direction, to, from, bytes, memory);
}

ofl_status ofl_host_copy(ofl_device *device, void *to, const void *from, uint64_t bytes)
{
    REQUIRE(device, "ofl_host_copy", "device");
    if (bytes == 0) return OFL_OK;
    REQUIRE(to, "ofl_host_copy", "destination");
    REQUIRE(from, "ofl_host_copy", "source");
    return device->backend->host_copy(device, to, from, bytes);
}

static ofl_status check_peers(const char *call, const ofl_device *from, const ofl_device *to)
{
    REQUIRE(from, call, "device to copy from");
    REQUIRE(to, call, "device to copy to");
    if (from->backend == to->backend) return OFL_OK;
    return ofl_fail(OFL_ERROR_ARGUMENT, "%s: %.80s and %.80s are of different kinds; copy through host memory", call, from->spec, to->spec);
}

ofl_status ofl_device_peer(ofl_device *from, ofl_device *to, uint32_t *direct_out)
{
    REQUIRE(direct_out, "ofl_device_peer", "place for the answer");
    *direct_out = 0;
    ofl_status status = check_peers("ofl_device_peer", from, to);
    return status != OFL_OK ? status : from->backend->peer(from, to, direct_out);
}

ofl_status ofl_copy_peer(ofl_device *from_device, ofl_stream *stream, ofl_device *to_device, void *to, const void *from, uint64_t bytes)
{
    ofl_status status = check_peers("ofl_copy_peer", from_device, to_device);
    if (status != OFL_OK) return status;
    REQUIRE(stream, "ofl_copy_peer", "stream");
    if (bytes == 0) return OFL_OK;
    REQUIRE(to, "ofl_copy_peer", "destination");
    REQUIRE(from, "ofl_copy_peer", "source");
    return from_device->backend->copy_peer(from_device, stream, to_device, to, from, bytes);
}

static ofl_status check_seconds(const char *call, double seconds)
{
    if (isfinite(seconds) && seconds >= 0 && seconds <= SECONDS_MAX) return OFL_OK;
    return ofl_fail(OFL_ERROR_ARGUMENT, "%s: %g seconds; give 0 to %g", call, seconds, SECONDS_MAX);
}

ofl_status ofl_sim_launch(ofl_device *device, ofl_stream *stream, void (*function)(void *), void *context, double seconds)
{
    REQUIRE(device, "ofl_sim_launch", "device");
    REQUIRE(stream, "ofl_sim_launch", "stream");
    ofl_status status = check_seconds("ofl_sim_launch", seconds);
    return status != OFL_OK ? status : device->backend->launch(device, stream, function, context, seconds);
}

ofl_status ofl_sim_elapse(ofl_device *device, double seconds)
{
    REQUIRE(device, "ofl_sim_elapse", "device");
    ofl_status status = check_seconds("ofl_sim_elapse", seconds);
    return status != OFL_OK ? status : device->backend->elapse(device, seconds);
}

uint64_t ofl_device_now_ns(ofl_device *device) { return device == NULL ? 0 : device->backend->now_ns(device); }
