/* The runtime's entry points for streams, events, copies, fills, functions of the host's and graphs of these. */
#include "fakecuda.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "device/sim.h"

#define STREAM_MAGIC 0x57AE4u
#define EVENT_MAGIC 0xE7E47u
#define BLOCKING_MAX 32
#define DEVICE_RATE 100e9 /* bytes per second of copies and fills that stay on the device */

/* A copy, a fill (from NULL), or a function of the host's (function not NULL). */
typedef struct graph_node {
    void *to;
    const void *from;
    size_t bytes;
    enum cudaMemcpyKind kind;
    int value;
    cudaHostFn_t function;
    void *context;
} graph_node;

/* A capture under way, what it gave, and that made ready to run: all the same list here, in order of capture. */
struct CUgraph_st {
    graph_node *nodes;
    size_t count, capacity;
    int joined;   /* streams that take part */
    bool invalid;
};
struct CUgraphExec_st { struct CUgraph_st graph; };

struct CUstream_st {
    unsigned magic;
    int device;
    ofl_stream *stream;
    ofl_event *fence; /* blocking and legacy streams: where the others wait */
    struct CUgraph_st *capture;
    bool origin;      /* of its capture */
};

struct CUevent_st {
    unsigned magic;
    int device;
    ofl_event *event;
    struct CUgraph_st *capture; /* recorded in this one last; NULL: on the device */
    bool sleeps;                /* who waits for it does; the others spin */
    bool timed;
    int64_t reached_ns; /* timed: when, on the wall clock */
};

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static cudaStream_t blocking[BLOCKING_MAX];
static cudaStream_t legacy[FAKE_DEVICES_MAX];
static _Thread_local cudaStream_t per_thread[FAKE_DEVICES_MAX];

#define REQUIRE(condition)                                                      \
    do {                                                                        \
        if (!(condition)) return fake_remember(cudaErrorInvalidResourceHandle); \
    } while (0)

static cudaError_t stream_make(cudaStream_t *out, bool ordered)
{
    cudaStream_t stream = calloc(1, sizeof *stream);
    if (stream == NULL) return fake_remember(cudaErrorMemoryAllocation);
    *stream = (struct CUstream_st){.magic = STREAM_MAGIC, .device = fake_current()};
    ofl_device *device = fake_device(stream->device);
    ofl_status status = ofl_stream_create(device, &stream->stream);
    if (status == OFL_OK && ordered) status = ofl_event_create(device, &stream->fence);
    if (status != OFL_OK) {
        ofl_stream_destroy(device, stream->stream);
        free(stream);
        return fake_translate(status, cudaErrorInvalidValue);
    }
    *out = stream;
    return cudaSuccess;
}

static bool blocking_enter(cudaStream_t was, cudaStream_t is)
{
    bool found = false;
    (void)pthread_mutex_lock(&mutex);
    for (int i = 0; i < BLOCKING_MAX && !found; i++) {
        found = blocking[i] == was;
        if (found) blocking[i] = is;
    }
    (void)pthread_mutex_unlock(&mutex);
    return found;
}

/* The stream behind a handle; the default ones are made at first use and stay. NULL: no stream. */
static cudaStream_t stream_of(cudaStream_t handle)
{
    cudaStream_t *place = handle == NULL || handle == cudaStreamLegacy ? &legacy[fake_current()] : &per_thread[fake_current()];
    if (handle != NULL && handle != cudaStreamLegacy && handle != cudaStreamPerThread) return handle->magic == STREAM_MAGIC ? handle : NULL;
    if (*place != NULL || stream_make(place, true) != cudaSuccess) return *place;
    return place == &legacy[fake_current()] || blocking_enter(NULL, *place) ? *place : NULL;
}

static bool is_event(cudaEvent_t event) { return event != NULL && event->magic == EVENT_MAGIC; }
static bool is_legacy(cudaStream_t stream) { return stream == legacy[stream->device]; }

static ofl_status wait_for(cudaStream_t stream, cudaStream_t other)
{
    ofl_device *device = fake_device(stream->device);
    ofl_status status = ofl_event_record(device, other->fence, other->stream);
    return status == OFL_OK ? ofl_stream_wait_event(device, stream->stream, other->fence) : status;
}

/* Before something is put into a stream: the legacy one waits for all blocking ones, and those for it. */
static ofl_status order(cudaStream_t stream)
{
    ofl_status status = OFL_OK;
    if (stream->fence == NULL) return OFL_OK; /* non-blocking */
    (void)pthread_mutex_lock(&mutex);
    if (is_legacy(stream)) {
        for (int i = 0; i < BLOCKING_MAX && status == OFL_OK; i++) {
            if (blocking[i] != NULL && blocking[i]->device == stream->device) status = wait_for(stream, blocking[i]);
        }
    } else if (legacy[stream->device] != NULL) {
        status = wait_for(stream, legacy[stream->device]);
    }
    (void)pthread_mutex_unlock(&mutex);
    return status;
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t *out, unsigned flags)
{
    FAULT("cudaStreamCreateWithFlags");
    if (flags != cudaStreamNonBlocking && flags != cudaStreamDefault) return fake_remember(cudaErrorInvalidValue);
    cudaStream_t stream;
    cudaError_t error = stream_make(&stream, flags == cudaStreamDefault);
    if (error != cudaSuccess) return error;
    if (flags == cudaStreamDefault && !blocking_enter(NULL, stream)) return fake_remember(cudaErrorMemoryAllocation);
    fake_keep(stream);
    *out = stream;
    return cudaSuccess;
}

cudaError_t cudaStreamDestroy(cudaStream_t stream)
{
    FAULT("cudaStreamDestroy");
    REQUIRE(stream != NULL && stream != cudaStreamLegacy && stream != cudaStreamPerThread && stream->magic == STREAM_MAGIC);
    ofl_device *device = fake_device(stream->device);
    if (stream->fence != NULL) (void)blocking_enter(stream, NULL);
    ofl_stream_destroy(device, stream->stream);
    ofl_event_destroy(device, stream->fence);
    stream->magic = 0;
    fake_drop(stream);
    free(stream);
    return cudaSuccess;
}

/* What may not be asked of a stream whose work is only written down. */
static cudaError_t unsupported(cudaStream_t stream)
{
    stream->capture->invalid = true;
    return fake_remember(cudaErrorStreamCaptureUnsupported);
}

cudaError_t cudaStreamSynchronize(cudaStream_t handle)
{
    FAULT("cudaStreamSynchronize");
    cudaStream_t stream = stream_of(handle);
    REQUIRE(stream != NULL);
    if (stream->capture != NULL) return unsupported(stream);
    fake_spun(true);
    ofl_status status = order(stream);
    if (status == OFL_OK) status = ofl_stream_wait(fake_device(stream->device), stream->stream);
    return fake_translate(status, cudaErrorInvalidValue);
}

cudaError_t cudaStreamQuery(cudaStream_t handle)
{
    FAULT("cudaStreamQuery");
    cudaStream_t stream = stream_of(handle);
    REQUIRE(stream != NULL);
    if (stream->capture != NULL) return unsupported(stream);
    return fake_translate(ofl_stream_query(fake_device(stream->device), stream->stream), cudaErrorInvalidValue);
}

cudaError_t cudaStreamWaitEvent(cudaStream_t handle, cudaEvent_t event, unsigned flags)
{
    FAULT("cudaStreamWaitEvent");
    cudaStream_t stream = stream_of(handle);
    REQUIRE(stream != NULL && is_event(event) && flags == 0);
    if (event->capture != NULL && stream->capture == NULL) { /* drawn into the capture, and what follows with it */
        stream->capture = event->capture;
        stream->capture->joined++;
    }
    if (stream->capture != NULL && event->capture != stream->capture) {
        stream->capture->invalid = true;
        return fake_remember(cudaErrorStreamCaptureIsolation);
    }
    if (stream->capture != NULL) return cudaSuccess;
    REQUIRE(stream->device == event->device); /* the runtime allows more, the simulated device does not */
    ofl_status status = order(stream);
    if (status == OFL_OK) status = ofl_stream_wait_event(fake_device(stream->device), stream->stream, event->event);
    return fake_translate(status, cudaErrorInvalidValue);
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t *out, unsigned flags)
{
    FAULT("cudaEventCreateWithFlags");
    if ((flags & ~(unsigned)(cudaEventBlockingSync | cudaEventDisableTiming)) != 0) return fake_remember(cudaErrorInvalidValue);
    cudaEvent_t event = calloc(1, sizeof *event);
    if (event == NULL) return fake_remember(cudaErrorMemoryAllocation);
    *event = (struct CUevent_st){.magic = EVENT_MAGIC, .device = fake_current(), .sleeps = (flags & cudaEventBlockingSync) != 0};
    event->timed = (flags & cudaEventDisableTiming) == 0;
    cudaError_t error = fake_translate(ofl_event_create(fake_device(event->device), &event->event), cudaErrorInvalidValue);
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

static void note_time(void *context)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    ((cudaEvent_t)context)->reached_ns = now.tv_sec * INT64_C(1000000000) + now.tv_nsec;
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t handle)
{
    FAULT("cudaEventRecord");
    cudaStream_t stream = stream_of(handle);
    REQUIRE(is_event(event) && stream != NULL && event->device == stream->device);
    event->capture = stream->capture;
    if (stream->capture != NULL) return cudaSuccess;
    ofl_status status = order(stream);
    if (status == OFL_OK && event->timed) status = ofl_sim_launch(fake_device(event->device), stream->stream, note_time, event, 0);
    if (status == OFL_OK) status = ofl_event_record(fake_device(event->device), event->event, stream->stream);
    return fake_translate(status, cudaErrorInvalidValue);
}

cudaError_t cudaEventQuery(cudaEvent_t event)
{
    FAULT("cudaEventQuery");
    REQUIRE(is_event(event));
    if (event->capture != NULL) return fake_remember(cudaErrorCapturedEvent);
    return fake_translate(ofl_event_query(fake_device(event->device), event->event), cudaErrorInvalidValue);
}

cudaError_t cudaEventSynchronize(cudaEvent_t event)
{
    FAULT("cudaEventSynchronize");
    REQUIRE(is_event(event));
    if (event->capture != NULL) return fake_remember(cudaErrorCapturedEvent);
    fake_spun(!event->sleeps);
    return fake_translate(ofl_event_wait(fake_device(event->device), event->event), cudaErrorInvalidValue);
}

cudaError_t cudaEventElapsedTime(float *milliseconds, cudaEvent_t from, cudaEvent_t to)
{
    FAULT("cudaEventElapsedTime");
    REQUIRE(is_event(from) && is_event(to) && from->timed && to->timed && from->reached_ns != 0 && to->reached_ns != 0);
    *milliseconds = (float)(1e-6 * (double)(to->reached_ns - from->reached_ns));
    return cudaSuccess;
}

static void run_node(void *context)
{
    const graph_node *node = context;
    if (node->function != NULL) node->function(node->context);
    else if (node->from == NULL) memset(node->to, node->value, node->bytes);
    else memmove(node->to, node->from, node->bytes);
}

static void run_and_free(void *context)
{
    run_node(context);
    free(context);
}

/* As a kernel of the device's: the bytes are read and written when its turn comes. */
static ofl_status run_late(ofl_device *device, cudaStream_t stream, const graph_node *what, double seconds)
{
    graph_node *node = malloc(sizeof *node);
    if (node == NULL) return OFL_ERROR_HOST_MEMORY;
    *node = *what;
    ofl_status status = ofl_sim_launch(device, stream->stream, run_and_free, node, seconds);
    if (status != OFL_OK) free(node);
    return status;
}

/* What the runtime finds out for cudaMemcpyDefault. */
static enum cudaMemcpyKind kind_of(ofl_device *device, const graph_node *what)
{
    if (what->kind != cudaMemcpyDefault) return what->kind;
    bool to = fake_is_device(device, what->to), from = fake_is_device(device, what->from);
    return to ? (from ? cudaMemcpyDeviceToDevice : cudaMemcpyHostToDevice) : (from ? cudaMemcpyDeviceToHost : cudaMemcpyHostToHost);
}

static ofl_status copy_over_link(ofl_device *device, cudaStream_t stream, const graph_node *what, bool down)
{
    bool pinned = fake_owner_of_host(down ? what->from : what->to) == device;
    if (!pinned && fake_late()) return run_late(device, stream, what, (double)what->bytes / 1e9);
    return ofl_copy(device, stream->stream, down ? OFL_HOST_TO_DEVICE : OFL_DEVICE_TO_HOST, what->to, what->from, what->bytes,
                    pinned ? OFL_HOST_PINNED : OFL_HOST_PAGEABLE);
}

static cudaError_t run_now(cudaStream_t stream, const graph_node *what)
{
    ofl_device *device = fake_device(stream->device);
    ofl_status status = order(stream);
    if (status != OFL_OK) return fake_translate(status, cudaErrorInvalidValue);
    enum cudaMemcpyKind kind = what->function != NULL || what->from == NULL ? cudaMemcpyDeviceToDevice : kind_of(device, what);
    if (kind == cudaMemcpyHostToDevice || kind == cudaMemcpyDeviceToHost)
        status = copy_over_link(device, stream, what, kind == cudaMemcpyHostToDevice);
    else
        status = run_late(device, stream, what, what->function != NULL ? 0 : (double)what->bytes / DEVICE_RATE);
    return fake_translate(status, cudaErrorInvalidValue);
}

static cudaError_t capture(struct CUgraph_st *graph, const graph_node *what)
{
    if (graph->count == graph->capacity) {
        size_t capacity = 2 * graph->capacity + 64;
        graph_node *more = realloc(graph->nodes, capacity * sizeof *more);
        if (more == NULL) return fake_remember(cudaErrorMemoryAllocation);
        graph->nodes = more;
        graph->capacity = capacity;
    }
    graph->nodes[graph->count++] = *what;
    return cudaSuccess;
}

static cudaError_t put(cudaStream_t handle, const graph_node *what)
{
    cudaStream_t stream = stream_of(handle);
    REQUIRE(stream != NULL);
    return stream->capture != NULL ? capture(stream->capture, what) : run_now(stream, what);
}

cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind, cudaStream_t stream)
{
    FAULT("cudaMemcpyAsync");
    if ((unsigned)kind > cudaMemcpyDefault) return fake_remember(cudaErrorInvalidMemcpyDirection);
    if (bytes == 0) return cudaSuccess;
    if (to == NULL || from == NULL) return fake_remember(cudaErrorInvalidValue);
    return put(stream, &(graph_node){.to = to, .from = from, .bytes = bytes, .kind = kind});
}

cudaError_t cudaMemsetAsync(void *to, int value, size_t bytes, cudaStream_t stream)
{
    FAULT("cudaMemsetAsync");
    if (bytes == 0) return cudaSuccess;
    if (to == NULL) return fake_remember(cudaErrorInvalidValue);
    return put(stream, &(graph_node){.to = to, .value = value, .bytes = bytes});
}

/* The function may call nothing of the runtime's. It takes no time of the device. */
cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t function, void *context)
{
    FAULT("cudaLaunchHostFunc");
    if (function == NULL) return fake_remember(cudaErrorInvalidValue);
    return put(stream, &(graph_node){.function = function, .context = context});
}

/* Like a kernel of the source that takes the time of the copy: the two simulated devices know nothing of each other. */
cudaError_t cudaMemcpyPeerAsync(void *to, int to_device, const void *from, int from_device, size_t bytes, cudaStream_t handle)
{
    FAULT("cudaMemcpyPeerAsync");
    cudaStream_t stream = stream_of(handle);
    REQUIRE(stream != NULL);
    if (to_device < 0 || to_device >= fake_count() || from_device < 0 || from_device >= fake_count())
        return fake_remember(cudaErrorInvalidDevice);
    const graph_node copy = {.to = to, .from = from, .bytes = bytes, .kind = cudaMemcpyDeviceToDevice};
    ofl_status status = order(stream);
    if (status == OFL_OK) status = run_late(fake_device(stream->device), stream, &copy, (double)bytes / FAKE_PEER_RATE);
    return fake_translate(status, cudaErrorInvalidValue);
}

cudaError_t cudaDeviceSynchronize(void)
{
    FAULT("cudaDeviceSynchronize");
    ofl_device *device = fake_device(fake_current());
    sim_lock(sim_of(device));
    ofl_sim_drain(sim_of(device));
    sim_unlock(sim_of(device));
    return cudaSuccess;
}

cudaError_t cudaStreamIsCapturing(cudaStream_t handle, enum cudaStreamCaptureStatus *out)
{
    FAULT("cudaStreamIsCapturing");
    cudaStream_t stream = stream_of(handle);
    REQUIRE(stream != NULL);
    *out = stream->capture == NULL     ? cudaStreamCaptureStatusNone
           : stream->capture->invalid ? cudaStreamCaptureStatusInvalidated
                                      : cudaStreamCaptureStatusActive;
    return cudaSuccess;
}

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, enum cudaStreamCaptureMode mode)
{
    FAULT("cudaStreamBeginCapture");
    if (stream == NULL || stream == cudaStreamLegacy) return fake_remember(cudaErrorStreamCaptureUnsupported);
    stream = stream_of(stream);
    REQUIRE(stream != NULL);
    if (stream->capture != NULL || mode < cudaStreamCaptureModeGlobal) return fake_remember(cudaErrorIllegalState);
    stream->capture = calloc(1, sizeof *stream->capture);
    if (stream->capture == NULL) return fake_remember(cudaErrorMemoryAllocation);
    stream->origin = true;
    return cudaSuccess;
}

static void graph_free(struct CUgraph_st *graph)
{
    free(graph->nodes);
    free(graph);
}

/* Streams that were drawn in and did not come back make the whole void; they stay lost here. */
cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t *out)
{
    FAULT("cudaStreamEndCapture");
    *out = NULL;
    stream = stream_of(stream);
    REQUIRE(stream != NULL);
    if (stream->capture == NULL || !stream->origin) return fake_remember(cudaErrorIllegalState);
    cudaGraph_t graph = stream->capture;
    stream->capture = NULL;
    stream->origin = false;
    if (!graph->invalid && graph->joined == 0) {
        fake_keep(graph);
        *out = graph;
        return cudaSuccess;
    }
    cudaError_t error = graph->invalid ? cudaErrorStreamCaptureInvalidated : cudaErrorStreamCaptureUnjoined;
    if (graph->joined == 0) graph_free(graph);
    return fake_remember(error);
}

cudaError_t cudaGraphInstantiate(cudaGraphExec_t *out, cudaGraph_t graph, unsigned long long flags)
{
    FAULT("cudaGraphInstantiate");
    if (flags != 0) return fake_remember(cudaErrorInvalidValue);
    cudaGraphExec_t exec = malloc(sizeof *exec);
    if (exec == NULL) return fake_remember(cudaErrorMemoryAllocation);
    exec->graph = (struct CUgraph_st){.count = graph->count, .nodes = calloc(graph->count + 1, sizeof *graph->nodes)};
    if (exec->graph.nodes == NULL) {
        free(exec);
        return fake_remember(cudaErrorMemoryAllocation);
    }
    if (graph->count > 0) memcpy(exec->graph.nodes, graph->nodes, graph->count * sizeof *graph->nodes);
    fake_keep(exec);
    *out = exec;
    return cudaSuccess;
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t handle)
{
    FAULT("cudaGraphLaunch");
    cudaStream_t stream = stream_of(handle);
    REQUIRE(stream != NULL && stream->capture == NULL);
    for (size_t i = 0; i < exec->graph.count; i++) {
        cudaError_t error = run_now(stream, &exec->graph.nodes[i]);
        if (error != cudaSuccess) return error;
    }
    return cudaSuccess;
}

cudaError_t cudaGraphDestroy(cudaGraph_t graph)
{
    FAULT("cudaGraphDestroy");
    fake_drop(graph);
    graph_free(graph);
    return cudaSuccess;
}

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec)
{
    FAULT("cudaGraphExecDestroy");
    fake_drop(exec);
    free(exec->graph.nodes);
    free(exec);
    return cudaSuccess;
}
