#include "stream_slots.h"

#include <stdbool.h>

#include "laid.h"
#include "stream_reader.h"

const stream_design stream_designs[] = {
    {"copy, then compute", 1, 1, 0},
    {"two layer slots, contiguous", 2, 0, 1},
    {"two layer slots, spread", 2, 1, 1},
};
const size_t stream_design_count = sizeof stream_designs / sizeof stream_designs[0];

typedef struct slots {
    const streaming *job;
    const stream_work *work;
    const stream_design *design;
    int resident[STREAM_LAYERS], streamed;
    char *memory;             /* of the slots */
    char *kept;               /* of the resident layers, where they are computed with */
    void *host;               /* one layer; all have the same bytes */
    ofl_stream *copies;
    ofl_event *landed[2], *read[2];
    uint64_t next;            /* layers streamed so far */
} slots;

static void choose_resident(slots *t, double memory_bytes)
{
    double layer = (double)t->job->layer_bytes, room = memory_bytes - t->design->slots * layer;
    int kept = room <= 0 ? 0 : (int)(room / layer);
    if (kept > STREAM_LAYERS) kept = STREAM_LAYERS;
    for (int i = 0; i < STREAM_LAYERS; i++) {
        bool spread_here = (i + 1) * kept / STREAM_LAYERS > i * kept / STREAM_LAYERS;
        t->resident[i] = t->design->spread ? spread_here : i < kept;
    }
    t->streamed = STREAM_LAYERS - kept;
}

static ofl_status slot_copy(slots *t, ofl_stream *stream)
{
    ofl_device *device = t->job->device;
    uint64_t slot = t->next++ % (uint64_t)t->design->slots, bytes = t->job->layer_bytes;
    ofl_status status = ofl_copy(device, stream, OFL_HOST_TO_DEVICE, t->memory + slot * bytes, t->host, bytes, OFL_HOST_PINNED);
    return status == OFL_OK ? ofl_event_record(device, t->landed[slot], stream) : status;
}

/* A layer's products, or a layer's share of the time. */
static ofl_status compute(const slots *t, const stream_reader *r, const char *layer)
{
    ofl_status status = OFL_OK;
    if (r->products == NULL) return stream_reader_compute(r, t->work->seconds / STREAM_LAYERS);
    for (size_t i = 0; i < STREAM_MATRICES && status == OFL_OK; i++) {
        status = products_run(r->products, layer, t->job->matrices[i]);
        layer += t->job->matrices[i].rows * t->job->matrices[i].columns * 2;
    }
    return status;
}

static const char *slot_memory(const slots *t, uint64_t slot) { return t->memory + slot * t->job->layer_bytes; }

/* Copies, waits, computes: nothing overlaps. */
static ofl_status layer_plain(slots *t, const stream_reader *r)
{
    const char *layer = slot_memory(t, t->next % (uint64_t)t->design->slots);
    ofl_status status = slot_copy(t, t->copies);
    if (status == OFL_OK) status = ofl_stream_wait(t->job->device, t->copies);
    if (status == OFL_OK) status = compute(t, r, layer);
    return status == OFL_OK ? stream_reader_wait(r) : status;
}

/* The slot's next layer is copied as soon as this one has been read. */
static ofl_status layer_overlapped(slots *t, const stream_reader *r)
{
    ofl_device *device = t->job->device;
    uint64_t slot = t->next % (uint64_t)t->design->slots;
    ofl_status status =
        r->stream != NULL ? ofl_stream_wait_event(device, r->stream, t->landed[slot]) : ofl_event_wait(device, t->landed[slot]);
    if (status == OFL_OK) status = compute(t, r, slot_memory(t, slot));
    if (status == OFL_OK && r->stream != NULL) status = ofl_event_record(device, t->read[slot], r->stream);
    if (status == OFL_OK && r->stream != NULL) status = ofl_stream_wait_event(device, t->copies, t->read[slot]);
    return status == OFL_OK ? slot_copy(t, t->copies) : status;
}

static ofl_status slots_step(slots *t, const stream_reader *r)
{
    ofl_status status = OFL_OK;
    const char *kept = t->kept;
    for (int i = 0; i < STREAM_LAYERS && status == OFL_OK; i++) {
        if (!t->resident[i]) {
            status = t->design->overlapped ? layer_overlapped(t, r) : layer_plain(t, r);
            continue;
        }
        status = compute(t, r, kept);
        if (kept != NULL) kept += t->job->layer_bytes;
    }
    return status == OFL_OK ? stream_reader_wait(r) : status;
}

static ofl_status slots_steps(slots *t, double *step_seconds_out)
{
    stream_reader r;
    double start = 0;
    ofl_status status = stream_reader_open(t->job->device, t->job->simulated, t->work->products, &r);
    for (int i = 0; i < t->design->slots && t->design->overlapped && t->streamed > 0 && status == OFL_OK; i++)
        status = slot_copy(t, t->copies);
    for (uint64_t i = 0; i < STREAM_WARM_UP + t->job->steps && status == OFL_OK; i++) {
        if (i == STREAM_WARM_UP) start = stream_seconds(t->job->device);
        status = slots_step(t, &r);
    }
    *step_seconds_out = (stream_seconds(t->job->device) - start) / (double)t->job->steps;
    stream_reader_close(&r);
    return status;
}

/* Only what is computed with has to be there. */
static ofl_status keep_resident(slots *t)
{
    ofl_device *device = t->job->device;
    uint64_t count = (uint64_t)(STREAM_LAYERS - t->streamed), bytes = t->job->layer_bytes;
    void *memory = NULL;
    if (count == 0 || t->work->products == NULL) return OFL_OK;
    ofl_status status = ofl_device_alloc(device, count * bytes, &memory);
    t->kept = memory;
    for (uint64_t i = 0; i < count && status == OFL_OK; i++)
        status = ofl_copy(device, t->copies, OFL_HOST_TO_DEVICE, t->kept + i * bytes, t->host, bytes, OFL_HOST_PINNED);
    return status == OFL_OK ? ofl_stream_wait(device, t->copies) : status;
}

static ofl_status slots_open(slots *t)
{
    ofl_device *device = t->job->device;
    void *memory;
    ofl_status status = ofl_device_alloc(device, (uint64_t)t->design->slots * t->job->layer_bytes, &memory);
    if (status != OFL_OK) return status;
    t->memory = memory;
    status = ofl_device_host_alloc(device, t->job->layer_bytes, &t->host);
    if (status == OFL_OK) laid_fill(t->host, t->job->layer_bytes, 2);
    if (status == OFL_OK) status = ofl_stream_create(device, &t->copies);
    for (int i = 0; i < 2 && status == OFL_OK; i++) {
        status = ofl_event_create(device, &t->landed[i]);
        if (status == OFL_OK) status = ofl_event_create(device, &t->read[i]);
    }
    return status == OFL_OK ? keep_resident(t) : status;
}

static void slots_close(slots *t)
{
    ofl_device *device = t->job->device;
    if (t->copies != NULL) (void)ofl_stream_wait(device, t->copies);
    for (int i = 0; i < 2; i++) {
        if (t->landed[i] != NULL) ofl_event_destroy(device, t->landed[i]);
        if (t->read[i] != NULL) ofl_event_destroy(device, t->read[i]);
    }
    if (t->copies != NULL) ofl_stream_destroy(device, t->copies);
    if (t->host != NULL) ofl_device_host_free(device, t->host);
    if (t->memory != NULL) ofl_device_free(device, t->memory);
    if (t->kept != NULL) ofl_device_free(device, t->kept);
}

ofl_status stream_slots_run(const streaming *job, const stream_design *design, double memory_bytes, const stream_work *work,
                            double *step_seconds_out, double *streamed_bytes_out)
{
    slots t = {.job = job, .work = work, .design = design};
    choose_resident(&t, memory_bytes);
    ofl_status status = slots_open(&t);
    if (status == OFL_OK) status = slots_steps(&t, step_seconds_out);
    *streamed_bytes_out = (double)t.streamed * (double)job->layer_bytes;
    slots_close(&t);
    return status;
}
