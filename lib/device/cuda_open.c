/* Finds the device that a cuda: spec names, says why there is none, and describes it. */
#include "device/cuda.h"

#include <ctype.h>
#include <string.h>
#include <strings.h>

/* cudaDevAttrHostRegisterReadOnlySupported and cudaDevAttrHostNumaId by number: older toolkits have no name for the second. */
#define ATTRIBUTE_READ_ONLY ((enum cudaDeviceAttr)113)
#define ATTRIBUTE_HOST_NUMA ((enum cudaDeviceAttr)134)

/* Which devices there are, or why there are none. */
static ofl_status count_devices(const char *whole, int *count)
{
    int driver = 0;
    ofl_status status = ofl_cuda_check(cudaDriverGetVersion(&driver), "cudaDriverGetVersion");
    if (status != OFL_OK) return status;
    cudaError_t error = cudaGetDeviceCount(count);
    if (error == cudaSuccess && *count > 0) return OFL_OK;
    (void)cudaGetLastError();
    if (driver == 0)
        return ofl_fail_code(
            OFL_ERROR_NO_DRIVER, (int64_t)error,
            "device %.80s: this machine has no NVIDIA driver, or it does not answer; install it, or use a simulated device (sim:…)", whole);
    if (error == cudaErrorInsufficientDriver)
        return ofl_fail_code(OFL_ERROR_NO_DRIVER, (int64_t)error,
                             "device %.80s: the NVIDIA driver is for CUDA %d.%d, this build needs %d.%d; update the driver", whole,
                             driver / 1000, driver % 1000 / 10, CUDART_VERSION / 1000, CUDART_VERSION % 1000 / 10);
    if (error == cudaSuccess || error == cudaErrorNoDevice)
        return ofl_fail_code(OFL_ERROR_NO_DEVICE, (int64_t)error,
                             "device %.80s: the NVIDIA driver shows no device; see nvidia-smi and CUDA_VISIBLE_DEVICES", whole);
    return ofl_cuda_check(error, "cudaGetDeviceCount");
}

ofl_status ofl_cuda_count(uint32_t *count_out)
{
    int count = 0;
    ofl_status status = count_devices("cuda", &count);
    if (status == OFL_OK) *count_out = (uint32_t)count;
    return status;
}

static void format_uuid(const cudaUUID_t *uuid, char *out, size_t size)
{
    static const char digits[] = "0123456789abcdef";
    static const unsigned char dash_before[] = {4, 6, 8, 10};
    char *end = out + size - 3;
    memcpy(out, "GPU-", 4);
    out += 4;
    for (unsigned i = 0; i < sizeof uuid->bytes && out < end; i++) {
        unsigned byte = (unsigned char)uuid->bytes[i];
        if (memchr(dash_before, (int)i, sizeof dash_before) != NULL) *out++ = '-';
        *out++ = digits[byte >> 4];
        *out++ = digits[byte & 15];
    }
    *out = '\0';
}

static ofl_status find_by_uuid(const char *text, const char *whole, int count, int *ordinal)
{
    for (int i = 0; i < count; i++) {
        struct cudaDeviceProp properties;
        char uuid[48];
        ofl_status status = ofl_cuda_check(cudaGetDeviceProperties(&properties, i), "cudaGetDeviceProperties");
        if (status != OFL_OK) return status;
        format_uuid(&properties.uuid, uuid, sizeof uuid);
        if (strcasecmp(uuid, text) != 0) continue;
        *ordinal = i;
        return OFL_OK;
    }
    return ofl_fail(OFL_ERROR_NO_DEVICE, "device %.80s: none of this machine's %d devices has this UUID; see nvidia-smi -L", whole, count);
}

static ofl_status find_by_number(const char *text, const char *whole, int count, int *ordinal)
{
    int value = 0;
    for (const char *at = text; *at != '\0'; at++) {
        if (!isdigit((unsigned char)*at) || at - text > 5)
            return ofl_fail(OFL_ERROR_ARGUMENT, "device \"%.80s\": give cuda:N, cuda:GPU-UUID or cuda:DOMAIN:BUS:DEVICE.FUNCTION", whole);
        value = value * 10 + (*at - '0');
    }
    if (value >= count)
        return ofl_fail(OFL_ERROR_NO_DEVICE, "device %.80s: this machine has %d CUDA device%s, counted from 0", whole, count,
                        count == 1 ? "" : "s");
    *ordinal = value;
    return OFL_OK;
}

static ofl_status find_device(const char *text, const char *whole, int *ordinal)
{
    int count = 0;
    if (*text == '\0') return ofl_fail(OFL_ERROR_ARGUMENT, "device \"%.80s\": which one? give cuda:0", whole);
    ofl_status status = count_devices(whole, &count);
    if (status != OFL_OK) return status;
    if (strncasecmp(text, "GPU-", 4) == 0) return find_by_uuid(text, whole, count, ordinal);
    if (strchr(text, ':') == NULL) return find_by_number(text, whole, count, ordinal);
    cudaError_t error = cudaDeviceGetByPCIBusId(ordinal, text);
    if (error == cudaSuccess) return OFL_OK;
    (void)cudaGetLastError();
    return ofl_fail_code(OFL_ERROR_NO_DEVICE, (int64_t)error, "device %.80s: no CUDA device has this PCI id; see nvidia-smi", whole);
}

/* An attribute that older drivers do not know counts as `fallback`. */
static int attribute(int ordinal, enum cudaDeviceAttr which, int fallback)
{
    int value = fallback;
    if (cudaDeviceGetAttribute(&value, which, ordinal) == cudaSuccess) return value;
    (void)cudaGetLastError();
    return fallback;
}

static ofl_status describe(cuda_device *device)
{
    struct cudaDeviceProp properties;
    ofl_status status = ofl_cuda_check(cudaGetDeviceProperties(&properties, device->ordinal), "cudaGetDeviceProperties");
    if (status != OFL_OK) return status;
    status = ofl_cuda_check(cudaDeviceGetPCIBusId(device->pci_id, (int)sizeof device->pci_id, device->ordinal), "cudaDeviceGetPCIBusId");
    if (status != OFL_OK) return status;
    memcpy(device->name, properties.name, sizeof device->name - 1);
    format_uuid(&properties.uuid, device->uuid, sizeof device->uuid);
    device->numa_node = attribute(device->ordinal, ATTRIBUTE_HOST_NUMA, -1);
    device->read_only_register = attribute(device->ordinal, ATTRIBUTE_READ_ONLY, 0) != 0;
    return OFL_OK;
}

ofl_status ofl_cuda_open(const char *spec, const char *whole, ofl_device **out)
{
    int ordinal = 0;
    ofl_status status = find_device(spec, whole, &ordinal);
    if (status != OFL_OK) return status;
    cuda_device *device = ofl_alloc(1, sizeof *device);
    if (device == NULL) return ofl_fail(OFL_ERROR_HOST_MEMORY, "device %.80s: out of host memory", whole);
    device->base.backend = &ofl_cuda_backend;
    device->ordinal = ordinal;
    status = describe(device);
    if (status == OFL_OK) status = ofl_cuda_check(cudaSetDevice(ordinal), "cudaSetDevice"); /* makes the context now: an error shows here */
    if (status != OFL_OK) goto free_device;
    if (pthread_mutex_init(&device->mutex, NULL) != 0) {
        status = ofl_fail(OFL_ERROR_HOST_MEMORY, "device %.80s: out of host memory", whole);
        goto free_device;
    }
    *out = &device->base;
    return OFL_OK;

free_device:
    ofl_free(device);
    return status;
}
