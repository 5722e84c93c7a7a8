/* What a back end fills in. device.c checks the arguments that all share and calls through this table; every slot is there. */
#ifndef OFLOAD_LIB_DEVICE_BACKEND_H
#define OFLOAD_LIB_DEVICE_BACKEND_H

#include <ofload/device.h>

typedef struct ofl_backend {
    void (*close)(ofl_device *device);
    void (*info)(const ofl_device *device, ofl_device_info *out);
    ofl_status (*memory)(ofl_device *device, ofl_memory_info *out);

    ofl_status (*alloc)(ofl_device *device, uint64_t bytes, void **out);
    void (*free)(ofl_device *device, void *pointer);
    ofl_status (*host_alloc)(ofl_device *device, uint64_t bytes, void **out);
    void (*host_free)(ofl_device *device, void *pointer);
    ofl_status (*host_register)(ofl_device *device, const void *pointer, uint64_t bytes);
    ofl_status (*host_unregister)(ofl_device *device, const void *pointer);
    ofl_status (*host_address)(ofl_device *device, const void *host, const void **device_out);

    ofl_status (*stream_create)(ofl_device *device, ofl_stream **out);
    void (*stream_destroy)(ofl_device *device, ofl_stream *stream);
    ofl_status (*stream_wait)(ofl_device *device, ofl_stream *stream);
    ofl_status (*stream_query)(ofl_device *device, ofl_stream *stream);
    ofl_status (*stream_wait_event)(ofl_device *device, ofl_stream *stream, ofl_event *event);

    ofl_status (*event_create)(ofl_device *device, ofl_event **out);
    void (*event_destroy)(ofl_device *device, ofl_event *event);
    ofl_status (*event_record)(ofl_device *device, ofl_event *event, ofl_stream *stream);
    ofl_status (*event_query)(ofl_device *device, ofl_event *event);
    ofl_status (*event_wait)(ofl_device *device, ofl_event *event);

    ofl_status (*copy)(ofl_device *device, ofl_stream *stream, ofl_direction direction, void *to, const void *from, uint64_t bytes,
                       ofl_host_memory memory);
    /* Within host memory, on the calling thread. */
    ofl_status (*host_copy)(ofl_device *device, void *to, const void *from, uint64_t bytes);
    ofl_status (*peer)(ofl_device *from, ofl_device *to, uint32_t *direct_out); /* both of this back end */
    ofl_status (*copy_peer)(ofl_device *from_device, ofl_stream *stream, ofl_device *to_device, void *to, const void *from, uint64_t bytes);
    ofl_status (*launch)(ofl_device *device, ofl_stream *stream, void (*function)(void *), void *context, double seconds);
    ofl_status (*elapse)(ofl_device *device, double seconds);
    uint64_t (*now_ns)(ofl_device *device);
} ofl_backend;

/* The first member of each back end's own device. */
struct ofl_device {
    const ofl_backend *backend;
    char *spec; /* as opened; owned by device.c */
};

uint64_t ofl_monotonic_ns(void); /* clock.c */

/* `spec` with its "sim:" or "cuda:" taken off; `whole` is for sentences. */
ofl_status ofl_sim_open(const char *spec, const char *whole, ofl_device **out);
#ifdef OFLOAD_HAVE_CUDA
ofl_status ofl_cuda_open(const char *spec, const char *whole, ofl_device **out);
ofl_status ofl_cuda_count(uint32_t *count_out);
#endif

#endif
