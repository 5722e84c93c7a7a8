/* A reader for devices that run no function of the host's: it copies what it was handed back to pinned memory, in the reader's stream, and
 * compares there. */
#ifndef OFLOAD_TEST_ENGINE_READER_H
#define OFLOAD_TEST_ENGINE_READER_H

#include "support/engine_fixture.h"

enum { READER_BYTES = 2 << 20, READER_SLICES = 512 };

typedef struct reader {
    const fixture_model *model;
    ofl_device *device;
    char *memory;
    uint64_t used;
    ofl_view_slice slices[READER_SLICES];
    uint32_t count, wrong;
} reader;

static inline ofl_status reader_open(reader *r, const fixture_model *model, ofl_device *device)
{
    void *memory = NULL;
    *r = (reader){.model = model, .device = device};
    ofl_status status = ofl_device_host_alloc(device, READER_BYTES, &memory);
    r->memory = memory;
    return status;
}

static inline void reader_close(reader *r) { ofl_device_host_free(r->device, r->memory); }

/* Waits, and compares what has come back. */
static inline ofl_status reader_check(reader *r, ofl_stream *stream)
{
    ofl_status status = ofl_stream_wait(r->device, stream);
    fixture_check check = {r->model, r->slices, r->count, &r->wrong};
    if (status == OFL_OK) fixture_check_run(&check);
    r->count = 0;
    r->used = 0;
    return status;
}

/* Room for all slices of a view, so that nothing has to be waited for between its copies. */
static inline int reader_has_room(const reader *r, const ofl_view *view)
{
    uint64_t bytes = r->used;
    for (uint32_t i = 0; i < view->slice_count; i++) bytes += (view->slices[i].bytes + 255) / 256 * 256;
    return bytes <= READER_BYTES && r->count + view->slice_count <= READER_SLICES;
}

/* The next slice's place; a copy from slice->data to it is the reader's work. */
static inline char *reader_place(reader *r, const ofl_view_slice *slice)
{
    char *place = r->memory + r->used;
    assert_true(r->used + slice->bytes <= READER_BYTES && r->count < READER_SLICES);
    r->slices[r->count] = *slice;
    r->slices[r->count++].data = place;
    r->used += (slice->bytes + 255) / 256 * 256;
    return place;
}

static inline ofl_status reader_read(reader *r, const ofl_view *view, ofl_stream *stream)
{
    ofl_status status = reader_has_room(r, view) ? OFL_OK : reader_check(r, stream);
    for (uint32_t i = 0; i < view->slice_count && status == OFL_OK; i++) {
        char *place = reader_place(r, &view->slices[i]);
        status = ofl_copy(r->device, stream, OFL_DEVICE_TO_HOST, place, view->slices[i].data, view->slices[i].bytes, OFL_HOST_PINNED);
    }
    return status;
}

/* Acquire, read, release; on the host the reader waits before it lets go. */
static inline ofl_status reader_unit(reader *r, ofl_engine *engine, uint32_t unit, ofl_stream *stream, int on_host)
{
    ofl_view view = {.struct_size = sizeof view};
    ofl_status status = ofl_engine_acquire(engine, unit, on_host ? NULL : stream, &view);
    if (status == OFL_OK) status = reader_read(r, &view, stream);
    if (status == OFL_OK && on_host) status = ofl_stream_wait(r->device, stream);
    return status == OFL_OK ? ofl_engine_release(engine, unit, on_host ? NULL : stream) : status;
}

#endif
