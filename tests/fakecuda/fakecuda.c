/* The runtime's entry points that lib/device/cuda*.c calls. The version script exports them; the names' attributes come from CUDA's own
 * header. */
#include "fakecuda.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define STREAM_MAGIC 0x57AE4u
#define EVENT_MAGIC 0xE7E47u

/* Leaves with the failure that is to happen in this call. */
#define FAULT(call)                                \
    do {                                           \
        cudaError_t fault_ = fake_fault(call);     \
        if (fault_ != cudaSuccess) return fault_;  \
    } while (0)

/* What a failure of the simulated device is called here. */
static cudaError_t translate(ofl_status status, cudaError_t state)
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

static ofl_device *here(void) { return fake_device(fake_current()); }

/* The device that page-locked `host`, which every device may use; NULL: none did. */
static ofl_device *owner_of_host(const void *host)
{
    const void *address;
    for (int i = 0; i < fake_count(); i++) {
        if (ofl_device_host_address(fake_device(i), host, &address) == OFL_OK) return fake_device(i);
    }
    return NULL;
}

cudaError_t cudaDriverGetVersion(int *version)
{
    FAULT("cudaDriverGetVersion");
    *version = fake_driver();
    return cudaSuccess;
}

cudaError_t cudaGetDeviceCount(int *count)
{
    FAULT("cudaGetDeviceCount");
    if (fake_driver() < CUDART_VERSION / 1000 * 1000) return fake_remember(cudaErrorInsufficientDriver);
    *count = fake_count();
    return *count > 0 ? cudaSuccess : fake_remember(cudaErrorNoDevice);
}

static bool is_device(int device) { return device >= 0 && device < fake_count(); }

cudaError_t cudaGetDevice(int *device)
{
    FAULT("cudaGetDevice");
    *device = fake_current();
    return cudaSuccess;
}

cudaError_t cudaSetDevice(int device)
{
    FAULT("cudaSetDevice");
    if (!is_device(device)) return fake_remember(cudaErrorInvalidDevice);
    fake_make_current(device);
    return fake_device(device) != NULL ? cudaSuccess : fake_remember(cudaErrorDevicesUnavailable);
}

cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp *properties, int device)
{
    FAULT("cudaGetDeviceProperties");
    if (!is_device(device)) return fake_remember(cudaErrorInvalidDevice);
    memset(properties, 0, sizeof *properties);
    (void)snprintf(properties->name, sizeof properties->name, "Stand-in %d", device);
    for (int i = 0; i < 16; i++) properties->uuid.bytes[i] = (char)(16 * i + device);
    return cudaSuccess;
}

cudaError_t cudaDeviceGetPCIBusId(char *text, int bytes, int device)
{
    FAULT("cudaDeviceGetPCIBusId");
    if (!is_device(device) || bytes < 13) return fake_remember(cudaErrorInvalidValue);
    (void)snprintf(text, (size_t)bytes, "0000:%02X:00.0", (unsigned)(device + 1) & 0xFFu);
    return cudaSuccess;
}

cudaError_t cudaDeviceGetByPCIBusId(int *device, const char *text)
{
    FAULT("cudaDeviceGetByPCIBusId");
    unsigned domain, bus, slot, function;
    if (sscanf(text, "%x:%x:%x.%x", &domain, &bus, &slot, &function) != 4) return fake_remember(cudaErrorInvalidValue);
    if (domain != 0 || slot != 0 || function != 0 || !is_device((int)bus - 1)) return fake_remember(cudaErrorInvalidDevice);
    *device = (int)bus - 1;
    return cudaSuccess;
}

/* One that an older driver does not know: the back end has to live with that. */
cudaError_t cudaDeviceGetAttribute(int *value, enum cudaDeviceAttr attribute, int device)
{
    FAULT("cudaDeviceGetAttribute");
    if (!is_device(device)) return fake_remember(cudaErrorInvalidDevice);
    if ((int)attribute != 134) return fake_remember(cudaErrorInvalidValue);
    *value = 0;
    return cudaSuccess;
}

cudaError_t cudaMemGetInfo(size_t *available, size_t *total)
{
    FAULT("cudaMemGetInfo");
    ofl_memory_info memory = {.struct_size = sizeof memory};
    cudaError_t error = translate(ofl_device_memory_get(here(), &memory), cudaErrorInvalidValue);
    *available = (size_t)memory.free_bytes;
    *total = (size_t)memory.total_bytes;
    return error;
}

cudaError_t cudaMalloc(void **pointer, size_t bytes)
{
    FAULT("cudaMalloc");
    cudaError_t error = translate(ofl_device_alloc(here(), bytes, pointer), cudaErrorInvalidValue);
    if (error == cudaSuccess) fake_keep(*pointer);
    return error;
}

cudaError_t cudaFree(void *pointer)
{
    FAULT("cudaFree");
    for (int i = 0; i < fake_count(); i++) {
        ofl_memory_info before = {.struct_size = sizeof before}, after = before;
        (void)ofl_device_memory_get(fake_device(i), &before);
        ofl_device_free(fake_device(i), pointer);
        (void)ofl_device_memory_get(fake_device(i), &after);
        if (before.used_bytes == after.used_bytes) continue;
        fake_drop(pointer);
        return cudaSuccess;
    }
    return fake_remember(cudaErrorInvalidValue);
}

cudaError_t cudaHostAlloc(void **pointer, size_t bytes, unsigned flags)
{
    FAULT("cudaHostAlloc");
    if ((flags & (cudaHostAllocPortable | cudaHostAllocMapped)) == 0) return fake_remember(cudaErrorInvalidValue);
    cudaError_t error = translate(ofl_device_host_alloc(here(), bytes, pointer), cudaErrorInvalidValue);
    if (error == cudaSuccess) fake_keep(*pointer);
    return error;
}

cudaError_t cudaFreeHost(void *pointer)
{
    FAULT("cudaFreeHost");
    ofl_device *owner = owner_of_host(pointer);
    if (owner == NULL) return fake_remember(cudaErrorInvalidValue);
    ofl_device_host_free(owner, pointer);
    fake_drop(pointer);
    return cudaSuccess;
}

cudaError_t cudaHostRegister(void *pointer, size_t bytes, unsigned flags)
{
    FAULT("cudaHostRegister");
    if ((flags & cudaHostRegisterMapped) == 0) return fake_remember(cudaErrorInvalidValue);
    cudaError_t error = translate(ofl_device_host_register(here(), pointer, bytes), cudaErrorHostMemoryAlreadyRegistered);
    if (error == cudaSuccess) fake_keep(pointer);
    return error;
}

cudaError_t cudaHostUnregister(void *pointer)
{
    FAULT("cudaHostUnregister");
    ofl_device *owner = owner_of_host(pointer);
    if (owner == NULL) return fake_remember(cudaErrorHostMemoryNotRegistered);
    cudaError_t error = translate(ofl_device_host_unregister(owner, pointer), cudaErrorHostMemoryNotRegistered);
    if (error == cudaSuccess) fake_drop(pointer);
    return error;
}

cudaError_t cudaHostGetDevicePointer(void **pointer, void *host, unsigned flags)
{
    FAULT("cudaHostGetDevicePointer");
    if (flags != 0 || owner_of_host(host) == NULL) return fake_remember(cudaErrorInvalidValue);
    *pointer = host;
    return cudaSuccess;
}

cudaError_t cudaPointerGetAttributes(struct cudaPointerAttributes *attributes, const void *pointer)
{
    FAULT("cudaPointerGetAttributes");
    memset(attributes, 0, sizeof *attributes);
    attributes->type = owner_of_host(pointer) != NULL ? cudaMemoryTypeHost : cudaMemoryTypeUnregistered;
    return cudaSuccess;
}

static bool is_stream(cudaStream_t stream) { return stream != NULL && stream->magic == STREAM_MAGIC; }
static bool is_event(cudaEvent_t event) { return event != NULL && event->magic == EVENT_MAGIC; }

#define REQUIRE(condition)                                                        \
    do {                                                                          \
        if (!(condition)) return fake_remember(cudaErrorInvalidResourceHandle);   \
    } while (0)

cudaError_t cudaStreamCreateWithFlags(cudaStream_t *out, unsigned flags)
{
    FAULT("cudaStreamCreateWithFlags");
    if (flags != cudaStreamNonBlocking) return fake_remember(cudaErrorInvalidValue);
    cudaStream_t stream = calloc(1, sizeof *stream);
    if (stream == NULL) return fake_remember(cudaErrorMemoryAllocation);
    *stream = (struct CUstream_st){STREAM_MAGIC, fake_current(), NULL};
    cudaError_t error = translate(ofl_stream_create(here(), &stream->stream), cudaErrorInvalidValue);
    if (error != cudaSuccess) {
        free(stream);
        return error;
    }
    fake_keep(stream);
    *out = stream;
    return cudaSuccess;
}

cudaError_t cudaStreamDestroy(cudaStream_t stream)
{
    FAULT("cudaStreamDestroy");
    REQUIRE(is_stream(stream));
    ofl_stream_destroy(fake_device(stream->device), stream->stream);
    stream->magic = 0;
    fake_drop(stream);
    free(stream);
    return cudaSuccess;
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream)
{
    FAULT("cudaStreamSynchronize");
    REQUIRE(is_stream(stream));
    return translate(ofl_stream_wait(fake_device(stream->device), stream->stream), cudaErrorInvalidValue);
}

cudaError_t cudaStreamQuery(cudaStream_t stream)
{
    FAULT("cudaStreamQuery");
    REQUIRE(is_stream(stream));
    return translate(ofl_stream_query(fake_device(stream->device), stream->stream), cudaErrorInvalidValue);
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned flags)
{
    FAULT("cudaStreamWaitEvent");
    REQUIRE(is_stream(stream) && is_event(event) && flags == 0 && stream->device == event->device);
    return translate(ofl_stream_wait_event(fake_device(stream->device), stream->stream, event->event), cudaErrorInvalidValue);
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t *out, unsigned flags)
{
    FAULT("cudaEventCreateWithFlags");
    if (flags != cudaEventDisableTiming) return fake_remember(cudaErrorInvalidValue);
    cudaEvent_t event = calloc(1, sizeof *event);
    if (event == NULL) return fake_remember(cudaErrorMemoryAllocation);
    *event = (struct CUevent_st){EVENT_MAGIC, fake_current(), NULL};
    cudaError_t error = translate(ofl_event_create(here(), &event->event), cudaErrorInvalidValue);
    if (error != cudaSuccess) {
        free(event);
        return error;
    }
    fake_keep(event);
    *out = event;
    return cudaSuccess;
}

cudaError_t cudaEventDestroy(cudaEvent_t event)
{
    FAULT("cudaEventDestroy");
    REQUIRE(is_event(event));
    ofl_event_destroy(fake_device(event->device), event->event);
    event->magic = 0;
    fake_drop(event);
    free(event);
    return cudaSuccess;
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream)
{
    FAULT("cudaEventRecord");
    REQUIRE(is_event(event) && is_stream(stream) && event->device == stream->device);
    return translate(ofl_event_record(fake_device(event->device), event->event, stream->stream), cudaErrorInvalidValue);
}

cudaError_t cudaEventQuery(cudaEvent_t event)
{
    FAULT("cudaEventQuery");
    REQUIRE(is_event(event));
    return translate(ofl_event_query(fake_device(event->device), event->event), cudaErrorInvalidValue);
}

cudaError_t cudaEventSynchronize(cudaEvent_t event)
{
    FAULT("cudaEventSynchronize");
    REQUIRE(is_event(event));
    return translate(ofl_event_wait(fake_device(event->device), event->event), cudaErrorInvalidValue);
}

cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind, cudaStream_t stream)
{
    FAULT("cudaMemcpyAsync");
    REQUIRE(is_stream(stream));
    bool down = kind == cudaMemcpyHostToDevice;
    if (!down && kind != cudaMemcpyDeviceToHost) return fake_remember(cudaErrorInvalidMemcpyDirection);
    ofl_device *device = fake_device(stream->device);
    ofl_host_memory memory = owner_of_host(down ? from : to) == device ? OFL_HOST_PINNED : OFL_HOST_PAGEABLE;
    return translate(ofl_copy(device, stream->stream, down ? OFL_HOST_TO_DEVICE : OFL_DEVICE_TO_HOST, to, from, bytes, memory),
                     cudaErrorInvalidValue);
}

/* Every stream of a test is waited for by the test itself. */
cudaError_t cudaDeviceSynchronize(void)
{
    FAULT("cudaDeviceSynchronize");
    return cudaSuccess;
}

cudaError_t cudaGetLastError(void) { return fake_last(true); }
cudaError_t cudaPeekAtLastError(void) { return fake_last(false); }

const char *cudaGetErrorName(cudaError_t error)
{
    static _Thread_local char name[32];
    (void)snprintf(name, sizeof name, "cudaError%d", (int)error);
    return name;
}

const char *cudaGetErrorString(cudaError_t error)
{
    (void)error;
    return "a stand-in's failure";
}
