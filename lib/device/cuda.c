/* The CUDA Runtime's host API behind the table of calls; no kernel. Every call makes its device current for the calling thread first. */
#include "device/cuda.h"

#include <string.h>

static cuda_device *cuda_of(ofl_device *device) { return (cuda_device *)(void *)device; }
static cudaStream_t stream_of(ofl_stream *stream) { return (cudaStream_t)(void *)stream; }
static cudaEvent_t event_of(ofl_event *event) { return (cudaEvent_t)(void *)event; }

/* After these the process's context answers nothing else any more. By number, since toolkits differ in the names they know. */
static bool is_lost(cudaError_t error)
{
    static const int codes[] = {4, 214, 220, 226, 700, 702, 709, 710, 714, 715, 716, 717, 718, 719, 721, 806, 810, 911, 999};
    for (size_t i = 0; i < OFL_COUNT_OF(codes); i++) {
        if ((int)error == codes[i]) return true;
    }
    return false;
}

/* A call that a graph capture does not allow. */
static bool is_capture(cudaError_t error) { return (int)error >= 900 && (int)error <= 908; }

static ofl_status status_of(cudaError_t error)
{
    if (is_lost(error)) return OFL_ERROR_DEVICE_LOST;
    if (is_capture(error)) return OFL_ERROR_STATE;
    switch (error) {
    case cudaErrorInsufficientDriver:
    case cudaErrorSystemDriverMismatch: return OFL_ERROR_NO_DRIVER;
    case cudaErrorNoDevice:
    case cudaErrorInvalidDevice:
    case cudaErrorDevicesUnavailable: return OFL_ERROR_NO_DEVICE;
    case cudaErrorMemoryAllocation: return OFL_ERROR_DEVICE_MEMORY;
    case cudaErrorHostMemoryAlreadyRegistered:
    case cudaErrorHostMemoryNotRegistered: return OFL_ERROR_STATE;
    case cudaErrorNotSupported: return OFL_ERROR_UNSUPPORTED;
    default: return OFL_ERROR_RUNTIME;
    }
}

static void forget_error(void) { (void)cudaGetLastError(); }

ofl_status ofl_cuda_check(cudaError_t error, const char *call)
{
    if (error == cudaSuccess) return OFL_OK;
    forget_error();
    ofl_status status = status_of(error);
    const char *advice = status == OFL_ERROR_DEVICE_LOST ? "; end this process and start again"
                         : is_capture(error)             ? "; a stream is being captured into a graph: end the capture first"
                                                         : "";
    return ofl_fail_code(status, (int64_t)error, "%s: %s (%s)%s", call, cudaGetErrorString(error), cudaGetErrorName(error), advice);
}

/* The same for calls that ask whether something is done. */
static ofl_status check_query(cudaError_t error, const char *call)
{
    if (error != cudaErrorNotReady) return ofl_cuda_check(error, call);
    if (cudaPeekAtLastError() == cudaErrorNotReady) forget_error();
    return OFL_NOT_READY;
}

static ofl_status enter(const cuda_device *device)
{
    int current = -1;
    ofl_status status = ofl_cuda_check(cudaGetDevice(&current), "cudaGetDevice");
    if (status != OFL_OK || current == device->ordinal) return status;
    return ofl_cuda_check(cudaSetDevice(device->ordinal), "cudaSetDevice");
}

/* For calls that return nothing: a failure is forgotten, it shows again in the next call that reports. */
static void quietly(cudaError_t error)
{
    if (error != cudaSuccess) forget_error();
}

static void lock(cuda_device *device) { (void)pthread_mutex_lock(&device->mutex); }
static void unlock(cuda_device *device) { (void)pthread_mutex_unlock(&device->mutex); }

static void info(const ofl_device *base, ofl_device_info *out)
{
    const cuda_device *device = (const cuda_device *)(const void *)base;
    out->name = device->name;
    out->pci_id = device->pci_id;
    out->uuid = device->uuid;
    out->numa_node = device->numa_node;
}

static ofl_status memory(ofl_device *base, ofl_memory_info *out)
{
    cuda_device *device = cuda_of(base);
    size_t available = 0, total = 0;
    ofl_status status = enter(device);
    if (status == OFL_OK) status = ofl_cuda_check(cudaMemGetInfo(&available, &total), "cudaMemGetInfo");
    if (status != OFL_OK) return status;
    out->total_bytes = total;
    out->free_bytes = available;
    lock(device);
    out->used_bytes = device->ledger.used;
    out->peak_bytes = device->ledger.peak;
    out->pinned_bytes = device->ledger.pinned;
    unlock(device);
    return OFL_OK;
}

/* A request that memory could not satisfy; any other error as it is. */
static ofl_status out_of_device_memory(cudaError_t error, uint64_t bytes)
{
    if (error != cudaErrorMemoryAllocation) return ofl_cuda_check(error, "cudaMalloc");
    forget_error();
    size_t available = 0, total = 0;
    quietly(cudaMemGetInfo(&available, &total));
    return ofl_fail_room(OFL_ERROR_DEVICE_MEMORY, bytes, available, "cudaMalloc: %s of device memory asked for, %s free; plan for less",
                         ofl_bytes_text(bytes).text, ofl_bytes_text(available).text);
}

static ofl_status out_of_pinned_memory(cudaError_t error, uint64_t bytes, const char *call)
{
    if (error != cudaErrorMemoryAllocation) return ofl_cuda_check(error, call);
    forget_error();
    return ofl_fail_room(OFL_ERROR_PINNED_MEMORY, bytes, 0,
                         "%s: this machine cannot page-lock %s more; leave more in pageable memory", call, ofl_bytes_text(bytes).text);
}

static void give_back(const ofl_ledger_entry *entry)
{
    switch (entry->kind) {
    case OFL_LEDGER_DEVICE: quietly(cudaFree(entry->pointer)); break;
    case OFL_LEDGER_HOST: quietly(cudaFreeHost(entry->pointer)); break;
    case OFL_LEDGER_REGISTERED: quietly(cudaHostUnregister(entry->pointer)); break;
    }
}

/* Enters what the runtime gave; gives it back when there is no room to remember it. Page-locking takes seconds, so the lock is for the
 * ledger alone. */
static ofl_status keep(cuda_device *device, ofl_ledger_entry entry)
{
    lock(device);
    bool room = ofl_ledger_reserve(&device->ledger);
    if (room) ofl_ledger_add(&device->ledger, entry);
    unlock(device);
    if (room) return OFL_OK;
    give_back(&entry);
    return ofl_fail(OFL_ERROR_HOST_MEMORY, "device %s: out of host memory", device->base.spec);
}

static ofl_status alloc(ofl_device *base, uint64_t bytes, void **out)
{
    cuda_device *device = cuda_of(base);
    void *pointer = NULL;
    ofl_status status = enter(device);
    if (status != OFL_OK) return status;
    cudaError_t error = cudaMalloc(&pointer, (size_t)bytes);
    if (error != cudaSuccess) return out_of_device_memory(error, bytes);
    status = keep(device, (ofl_ledger_entry){pointer, bytes, bytes, NULL, OFL_LEDGER_DEVICE});
    if (status == OFL_OK) *out = pointer;
    return status;
}

static bool forget(cuda_device *device, const void *pointer, ofl_ledger_kind kind)
{
    ofl_ledger_entry entry;
    lock(device);
    bool known = ofl_ledger_take(&device->ledger, pointer, kind, &entry);
    unlock(device);
    return known && enter(device) == OFL_OK;
}

static void free_memory(ofl_device *base, void *pointer)
{
    if (forget(cuda_of(base), pointer, OFL_LEDGER_DEVICE)) quietly(cudaFree(pointer));
}

static uint64_t pinned_count(const void *pointer, uint64_t bytes)
{
    uint64_t counted;
    return ofl_align_u64((uintptr_t)pointer % OFL_PAGE_BYTES + bytes, OFL_PAGE_BYTES, &counted) ? counted : bytes;
}

static ofl_status host_alloc(ofl_device *base, uint64_t bytes, void **out)
{
    cuda_device *device = cuda_of(base);
    void *pointer = NULL;
    ofl_status status = enter(device);
    if (status != OFL_OK) return status;
    cudaError_t error = cudaHostAlloc(&pointer, (size_t)bytes, cudaHostAllocPortable | cudaHostAllocMapped);
    if (error != cudaSuccess) return out_of_pinned_memory(error, bytes, "cudaHostAlloc");
    status = keep(device, (ofl_ledger_entry){pointer, bytes, pinned_count(pointer, bytes), NULL, OFL_LEDGER_HOST});
    if (status == OFL_OK) *out = pointer;
    return status;
}

static void host_free(ofl_device *base, void *pointer)
{
    if (forget(cuda_of(base), pointer, OFL_LEDGER_HOST)) quietly(cudaFreeHost(pointer));
}

/* Memory that the process may only read (a mapped file) needs a flag of its own, where the device knows it. */
static cudaError_t page_lock(const cuda_device *device, void *pointer, uint64_t bytes)
{
    const unsigned flags = cudaHostRegisterPortable | cudaHostRegisterMapped;
    cudaError_t error = cudaHostRegister(pointer, (size_t)bytes, flags);
    if (error != cudaErrorInvalidValue && error != cudaErrorNotPermitted && error != cudaErrorOperatingSystem) return error;
    if (!device->read_only_register) return error;
    forget_error();
    return cudaHostRegister(pointer, (size_t)bytes, flags | 0x08 /* cudaHostRegisterReadOnly */);
}

static ofl_status host_register(ofl_device *base, const void *pointer, uint64_t bytes)
{
    cuda_device *device = cuda_of(base);
    char *writable = (char *)(uintptr_t)pointer;
    ofl_status status = enter(device);
    if (status != OFL_OK) return status;
    cudaError_t error = page_lock(device, writable, bytes);
    if (error != cudaSuccess) return out_of_pinned_memory(error, bytes, "cudaHostRegister");
    return keep(device, (ofl_ledger_entry){writable, bytes, pinned_count(pointer, bytes), NULL, OFL_LEDGER_REGISTERED});
}

static ofl_status host_unregister(ofl_device *base, const void *pointer)
{
    cuda_device *device = cuda_of(base);
    ofl_ledger_entry entry;
    ofl_status status = enter(device);
    if (status != OFL_OK) return status;
    lock(device);
    bool known = ofl_ledger_take(&device->ledger, pointer, OFL_LEDGER_REGISTERED, &entry);
    unlock(device);
    if (!known)
        return ofl_fail(OFL_ERROR_STATE,
                        "ofl_device_host_unregister: nothing is registered at this address; give the one that was registered");
    return ofl_cuda_check(cudaHostUnregister(entry.pointer), "cudaHostUnregister");
}

/* Who waits for an event of these sleeps: threads that spin would take the processors from the readers of files and from the caller. */
#define EVENT_FLAGS (cudaEventDisableTiming | cudaEventBlockingSync)

/* Waits for all that is queued, asleep; where there is no event to be had, as the runtime does it: what is queued may read memory that is freed
 * next, so a wait must not fail for want of one. */
static ofl_status drain(cudaStream_t stream)
{
    cudaEvent_t event = NULL;
    bool marked = cudaEventCreateWithFlags(&event, EVENT_FLAGS) == cudaSuccess && cudaEventRecord(event, stream) == cudaSuccess;
    if (!marked) forget_error();
    ofl_status status = marked ? ofl_cuda_check(cudaEventSynchronize(event), "cudaEventSynchronize")
                               : ofl_cuda_check(cudaStreamSynchronize(stream), "cudaStreamSynchronize");
    if (event != NULL) quietly(cudaEventDestroy(event));
    return status;
}

/* The start of the known range around `host`, or `host` itself. */
static char *known_start(cuda_device *device, const void *host)
{
    lock(device);
    const ofl_ledger_entry *entry = ofl_ledger_find(&device->ledger, true, host, 1);
    char *start = entry != NULL ? entry->pointer : (char *)(uintptr_t)host;
    unlock(device);
    return start;
}

static ofl_status host_address(ofl_device *base, const void *host, const void **device_out)
{
    cuda_device *device = cuda_of(base);
    ofl_status status = enter(device);
    if (status != OFL_OK) return status;
    char *start = known_start(device, host);
    void *address = NULL;
    cudaError_t error = cudaHostGetDevicePointer(&address, start, 0);
    if (error == cudaErrorInvalidValue) {
        forget_error();
        return ofl_fail_code(OFL_ERROR_ARGUMENT, (int64_t)error,
                             "ofl_device_host_address: the address is not in page-locked memory; register it first");
    }
    status = ofl_cuda_check(error, "cudaHostGetDevicePointer");
    if (status == OFL_OK) *device_out = (char *)address + ((const char *)host - start);
    return status;
}

static ofl_status stream_create(ofl_device *base, ofl_stream **out)
{
    cudaStream_t stream = NULL;
    ofl_status status = enter(cuda_of(base));
    if (status == OFL_OK) status = ofl_cuda_check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "cudaStreamCreateWithFlags");
    if (status == OFL_OK) *out = (ofl_stream *)(void *)stream;
    return status;
}

static void stream_destroy(ofl_device *base, ofl_stream *stream)
{
    if (enter(cuda_of(base)) == OFL_OK) quietly(cudaStreamDestroy(stream_of(stream)));
}

static ofl_status stream_query(ofl_device *base, ofl_stream *stream)
{
    ofl_status status = enter(cuda_of(base));
    return status != OFL_OK ? status : check_query(cudaStreamQuery(stream_of(stream)), "cudaStreamQuery");
}

/* Events order a captured stream only inside its graph: a wait would spoil the caller's capture, and a record would draw those who wait for
 * it into the graph, so that what they are given is not run now. */
static ofl_status not_captured(cudaStream_t stream, const char *call)
{
    enum cudaStreamCaptureStatus captured = cudaStreamCaptureStatusNone;
    ofl_status status = ofl_cuda_check(cudaStreamIsCapturing(stream, &captured), "cudaStreamIsCapturing");
    if (status != OFL_OK || captured == cudaStreamCaptureStatusNone) return status;
    return ofl_fail(OFL_ERROR_STATE,
                    "%s: the stream is being captured into a graph; acquire before the capture begins, release after it has ended", call);
}

static ofl_status stream_wait(ofl_device *base, ofl_stream *stream)
{
    ofl_status status = enter(cuda_of(base));
    if (status == OFL_OK) status = not_captured(stream_of(stream), "wait for a stream");
    return status == OFL_OK ? drain(stream_of(stream)) : status;
}

static ofl_status stream_wait_event(ofl_device *base, ofl_stream *stream, ofl_event *event)
{
    ofl_status status = enter(cuda_of(base));
    if (status == OFL_OK) status = not_captured(stream_of(stream), "wait for an event");
    return status != OFL_OK ? status : ofl_cuda_check(cudaStreamWaitEvent(stream_of(stream), event_of(event), 0), "cudaStreamWaitEvent");
}

static ofl_status event_create(ofl_device *base, ofl_event **out)
{
    cudaEvent_t event = NULL;
    ofl_status status = enter(cuda_of(base));
    if (status == OFL_OK) status = ofl_cuda_check(cudaEventCreateWithFlags(&event, EVENT_FLAGS), "cudaEventCreateWithFlags");
    if (status == OFL_OK) *out = (ofl_event *)(void *)event;
    return status;
}

static void event_destroy(ofl_device *base, ofl_event *event)
{
    if (enter(cuda_of(base)) == OFL_OK) quietly(cudaEventDestroy(event_of(event)));
}

static ofl_status event_record(ofl_device *base, ofl_event *event, ofl_stream *stream)
{
    ofl_status status = enter(cuda_of(base));
    if (status == OFL_OK) status = not_captured(stream_of(stream), "record of an event");
    return status != OFL_OK ? status : ofl_cuda_check(cudaEventRecord(event_of(event), stream_of(stream)), "cudaEventRecord");
}

static ofl_status event_query(ofl_device *base, ofl_event *event)
{
    ofl_status status = enter(cuda_of(base));
    return status != OFL_OK ? status : check_query(cudaEventQuery(event_of(event)), "cudaEventQuery");
}

static ofl_status event_wait(ofl_device *base, ofl_event *event)
{
    ofl_status status = enter(cuda_of(base));
    return status != OFL_OK ? status : ofl_cuda_check(cudaEventSynchronize(event_of(event)), "cudaEventSynchronize");
}

/* A copy from memory that is not page-locked would quietly hold the host up and break the order that the caller counts on. */
static ofl_status check_pinned(cuda_device *device, const void *host, uint64_t bytes)
{
    lock(device);
    bool known = ofl_ledger_find(&device->ledger, true, host, bytes) != NULL;
    unlock(device);
    if (known) return OFL_OK;
    struct cudaPointerAttributes attributes = {0};
    ofl_status status = ofl_cuda_check(cudaPointerGetAttributes(&attributes, host), "cudaPointerGetAttributes");
    if (status != OFL_OK || attributes.type != cudaMemoryTypeUnregistered) return status;
    return ofl_fail(OFL_ERROR_ARGUMENT, "ofl_copy: the host side is not page-locked; register it first or say OFL_HOST_PAGEABLE");
}

static ofl_status copy(ofl_device *base, ofl_stream *stream, ofl_direction direction, void *to, const void *from, uint64_t bytes,
                       ofl_host_memory kind)
{
    cuda_device *device = cuda_of(base);
    bool down = direction == OFL_HOST_TO_DEVICE;
    ofl_status status = enter(device);
    if (status == OFL_OK && kind == OFL_HOST_PINNED) status = check_pinned(device, down ? from : to, bytes);
    if (status != OFL_OK) return status;
    status =
        ofl_cuda_check(cudaMemcpyAsync(to, from, (size_t)bytes, down ? cudaMemcpyHostToDevice : cudaMemcpyDeviceToHost, stream_of(stream)),
                       "cudaMemcpyAsync");
    /* Whether the runtime is done with pageable memory when it returns depends on the machine. */
    return status == OFL_OK && kind == OFL_HOST_PAGEABLE ? drain(stream_of(stream)) : status;
}

static ofl_status host_copy(ofl_device *base, void *to, const void *from, uint64_t bytes)
{
    (void)base;
    memcpy(to, from, (size_t)bytes);
    return OFL_OK;
}

static ofl_status peer(ofl_device *from, ofl_device *to, uint32_t *direct_out)
{
    int can = 0;
    ofl_status status = enter(cuda_of(from));
    if (status == OFL_OK)
        status = ofl_cuda_check(cudaDeviceCanAccessPeer(&can, cuda_of(from)->ordinal, cuda_of(to)->ordinal), "cudaDeviceCanAccessPeer");
    if (status != OFL_OK || can == 0) return status;
    cudaError_t error = cudaDeviceEnablePeerAccess(cuda_of(to)->ordinal, 0);
    if (error == cudaErrorPeerAccessAlreadyEnabled) forget_error();
    else status = ofl_cuda_check(error, "cudaDeviceEnablePeerAccess");
    if (status == OFL_OK) *direct_out = 1;
    return status;
}

static ofl_status copy_peer(ofl_device *from_device, ofl_stream *stream, ofl_device *to_device, void *to, const void *from, uint64_t bytes)
{
    const cuda_device *source = cuda_of(from_device), *target = cuda_of(to_device);
    ofl_status status = enter(source);
    if (status != OFL_OK) return status;
    return ofl_cuda_check(cudaMemcpyPeerAsync(to, target->ordinal, from, source->ordinal, (size_t)bytes, stream_of(stream)),
                          "cudaMemcpyPeerAsync");
}

static ofl_status only_simulated(const ofl_device *device, const char *call)
{
    return ofl_fail(OFL_ERROR_UNSUPPORTED, "%s: device %s is not simulated; launch kernels through CUDA, and real time passes by itself",
                    call, device->spec);
}

static ofl_status launch(ofl_device *base, ofl_stream *stream, void (*function)(void *), void *context, double seconds)
{
    (void)stream;
    (void)function;
    (void)context;
    (void)seconds;
    return only_simulated(base, "ofl_sim_launch");
}

static ofl_status elapse(ofl_device *base, double seconds)
{
    (void)seconds;
    return only_simulated(base, "ofl_sim_elapse");
}

static uint64_t now_ns(ofl_device *base)
{
    (void)base;
    return ofl_monotonic_ns();
}

static void close_device(ofl_device *base)
{
    cuda_device *device = cuda_of(base);
    if (enter(device) == OFL_OK) {
        quietly(cudaDeviceSynchronize());
        for (uint64_t i = 0; i < device->ledger.count; i++) give_back(&device->ledger.entries[i]);
    }
    ofl_free(device->ledger.entries);
    (void)pthread_mutex_destroy(&device->mutex);
    ofl_free(device);
}

const ofl_backend ofl_cuda_backend = {
    .close = close_device,
    .info = info,
    .memory = memory,
    .alloc = alloc,
    .free = free_memory,
    .host_alloc = host_alloc,
    .host_free = host_free,
    .host_register = host_register,
    .host_unregister = host_unregister,
    .host_address = host_address,
    .stream_create = stream_create,
    .stream_destroy = stream_destroy,
    .stream_wait = stream_wait,
    .stream_query = stream_query,
    .stream_wait_event = stream_wait_event,
    .event_create = event_create,
    .event_destroy = event_destroy,
    .event_record = event_record,
    .event_query = event_query,
    .event_wait = event_wait,
    .copy = copy,
    .host_copy = host_copy,
    .peer = peer,
    .copy_peer = copy_peer,
    .launch = launch,
    .elapse = elapse,
    .now_ns = now_ns,
};
