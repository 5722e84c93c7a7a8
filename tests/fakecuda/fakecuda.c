/* The runtime's entry points for devices, memory and errors; fake_stream.c has those of streams. The version script exports them; the
 * names' attributes come from CUDA's own header. */
#include "fakecuda.h"

#include <stdio.h>
#include <string.h>

static ofl_device *here(void) { return fake_device(fake_current()); }

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
    (void)snprintf(properties->name, sizeof properties->name, "Stand-in %d", fake_physical(device));
    for (int i = 0; i < 16; i++) properties->uuid.bytes[i] = (char)(16 * i + fake_physical(device));
    return cudaSuccess;
}

cudaError_t cudaDeviceGetPCIBusId(char *text, int bytes, int device)
{
    FAULT("cudaDeviceGetPCIBusId");
    if (!is_device(device) || bytes < 13) return fake_remember(cudaErrorInvalidValue);
    (void)snprintf(text, (size_t)bytes, "0000:%02X:00.0", (unsigned)(fake_physical(device) + 1) & 0xFFu);
    return cudaSuccess;
}

cudaError_t cudaDeviceGetByPCIBusId(int *device, const char *text)
{
    FAULT("cudaDeviceGetByPCIBusId");
    unsigned domain, bus, slot, function;
    if (sscanf(text, "%x:%x:%x.%x", &domain, &bus, &slot, &function) != 4) return fake_remember(cudaErrorInvalidValue);
    if (domain != 0 || slot != 0 || function != 0) return fake_remember(cudaErrorInvalidDevice);
    for (int i = 0; i < fake_count(); i++) {
        if (fake_physical(i) != (int)bus - 1) continue;
        *device = i;
        return cudaSuccess;
    }
    return fake_remember(cudaErrorInvalidDevice);
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
    cudaError_t error = fake_translate(ofl_device_memory_get(here(), &memory), cudaErrorInvalidValue);
    *available = (size_t)memory.free_bytes;
    *total = (size_t)memory.total_bytes;
    return error;
}

cudaError_t cudaMalloc(void **pointer, size_t bytes)
{
    FAULT("cudaMalloc");
    cudaError_t error = fake_translate(ofl_device_alloc(here(), bytes, pointer), cudaErrorInvalidValue);
    if (error == cudaSuccess) fake_keep(*pointer);
    return error;
}

cudaError_t cudaFree(void *pointer)
{
    FAULT("cudaFree");
    for (int i = 0; i < fake_count(); i++) {
        if (fake_opened(i) == NULL) continue;
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
    cudaError_t error = fake_translate(ofl_device_host_alloc(here(), bytes, pointer), cudaErrorInvalidValue);
    if (error == cudaSuccess) fake_keep(*pointer);
    return error;
}

cudaError_t cudaFreeHost(void *pointer)
{
    FAULT("cudaFreeHost");
    ofl_device *owner = fake_owner_of_host(pointer);
    if (owner == NULL) return fake_remember(cudaErrorInvalidValue);
    ofl_device_host_free(owner, pointer);
    fake_drop(pointer);
    return cudaSuccess;
}

cudaError_t cudaHostRegister(void *pointer, size_t bytes, unsigned flags)
{
    FAULT("cudaHostRegister");
    if ((flags & cudaHostRegisterMapped) == 0) return fake_remember(cudaErrorInvalidValue);
    cudaError_t error = fake_translate(ofl_device_host_register(here(), pointer, bytes), cudaErrorHostMemoryAlreadyRegistered);
    if (error == cudaSuccess) fake_keep(pointer);
    return error;
}

cudaError_t cudaHostUnregister(void *pointer)
{
    FAULT("cudaHostUnregister");
    ofl_device *owner = fake_owner_of_host(pointer);
    if (owner == NULL) return fake_remember(cudaErrorHostMemoryNotRegistered);
    cudaError_t error = fake_translate(ofl_device_host_unregister(owner, pointer), cudaErrorHostMemoryNotRegistered);
    if (error == cudaSuccess) fake_drop(pointer);
    return error;
}

cudaError_t cudaHostGetDevicePointer(void **pointer, void *host, unsigned flags)
{
    FAULT("cudaHostGetDevicePointer");
    if (flags != 0 || fake_owner_of_host(host) == NULL) return fake_remember(cudaErrorInvalidValue);
    *pointer = host;
    return cudaSuccess;
}

cudaError_t cudaPointerGetAttributes(struct cudaPointerAttributes *attributes, const void *pointer)
{
    FAULT("cudaPointerGetAttributes");
    memset(attributes, 0, sizeof *attributes);
    attributes->type = fake_owner_of_host(pointer) != NULL ? cudaMemoryTypeHost : cudaMemoryTypeUnregistered;
    return cudaSuccess;
}

cudaError_t cudaDeviceCanAccessPeer(int *can, int device, int other)
{
    FAULT("cudaDeviceCanAccessPeer");
    if (!is_device(device) || !is_device(other)) return fake_remember(cudaErrorInvalidDevice);
    *can = device != other && fake_direct();
    return cudaSuccess;
}

cudaError_t cudaDeviceEnablePeerAccess(int other, unsigned flags)
{
    static _Atomic bool enabled[FAKE_DEVICES_MAX][FAKE_DEVICES_MAX];
    FAULT("cudaDeviceEnablePeerAccess");
    if (!is_device(other) || flags != 0) return fake_remember(cudaErrorInvalidDevice);
    if (!fake_direct()) return fake_remember(cudaErrorPeerAccessUnsupported);
    if (enabled[fake_current()][other]) return fake_remember(cudaErrorPeerAccessAlreadyEnabled);
    enabled[fake_current()][other] = true;
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
