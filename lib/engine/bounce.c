/* A few small buffers between a file and the device: one is filled while others are on the link. Pinned where that can be had. */
#include "engine/internal.h"

ofl_status ofl_bounce_open(ofl_device *device, uint32_t count, uint64_t bytes, ofl_bounce *out)
{
    ofl_bounce bounce = {.device = device, .bytes = bytes};
    ofl_status status = OFL_OK;
    for (uint32_t i = 0; i < count && status == OFL_OK; i++) {
        void *buffer = NULL;
        status = bounce.unpinned ? OFL_ERROR_PINNED_MEMORY : ofl_device_host_alloc(device, bytes, &buffer);
        if (status == OFL_ERROR_PINNED_MEMORY && (i == 0 || bounce.unpinned)) {
            bounce.unpinned = true;
            buffer = ofl_alloc(bytes, 1);
            status = buffer != NULL ? OFL_OK : ofl_fail(OFL_ERROR_HOST_MEMORY, "engine's read buffers: out of host memory; free some");
        }
        if (status == OFL_ERROR_PINNED_MEMORY) break; /* one will do */
        if (status != OFL_OK) continue;
        bounce.buffers[bounce.count++] = buffer;
        status = ofl_event_create(device, &bounce.drained[i]);
    }
    if (status == OFL_ERROR_PINNED_MEMORY) status = OFL_OK;
    if (status == OFL_OK) *out = bounce;
    else ofl_bounce_close(&bounce);
    return status;
}

void ofl_bounce_close(ofl_bounce *bounce)
{
    for (uint32_t i = 0; i < bounce->count; i++) {
        if (bounce->drained[i] != NULL) ofl_event_destroy(bounce->device, bounce->drained[i]);
        if (bounce->unpinned) ofl_free(bounce->buffers[i]);
        else ofl_device_host_free(bounce->device, bounce->buffers[i]);
    }
    *bounce = (ofl_bounce){0};
}

ofl_status ofl_bounce_read(ofl_bounce *bounce, const ofl_model *model, const ofl_engine_slice *slice, uint64_t done, uint64_t bytes, ofl_stream *stream, char *to)
{
    uint32_t i = bounce->next;
    uint64_t from = slice->row_first * slice->row_bytes + done; /* checked when the slice was read */
    ofl_status status = ofl_event_wait(bounce->device, bounce->drained[i]);
    if (status == OFL_OK) status = ofl_model_tensor_read(model, slice->tensor, from, bytes, bounce->buffers[i]);
    if (status == OFL_OK)
        status = ofl_copy(bounce->device, stream, OFL_HOST_TO_DEVICE, to, bounce->buffers[i], bytes, bounce->unpinned ? OFL_HOST_PAGEABLE : OFL_HOST_PINNED);
    if (status == OFL_OK) status = ofl_event_record(bounce->device, bounce->drained[i], stream);
    bounce->next = (i + 1) % bounce->count;
    return status;
}
