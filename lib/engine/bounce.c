#include "engine/bounce.h"

static ofl_status memory_take(ofl_bounce *bounce, uint64_t bytes)
{
    ofl_status status = ofl_device_host_alloc(bounce->device, bytes, &bounce->base);
    if (status != OFL_ERROR_PINNED_MEMORY) return status;
    bounce->unpinned = true;
    bounce->base = ofl_alloc(bytes + OFL_PAGE_BYTES, 1);
    return bounce->base != NULL ? OFL_OK : ofl_fail(OFL_ERROR_HOST_MEMORY, "engine's read buffers: out of host memory; free some");
}

ofl_status ofl_bounce_open(ofl_device *device, uint64_t largest, ofl_bounce *out)
{
    *out = (ofl_bounce){.device = device, .chunk = ofl_bounce_chunk(largest)};
    ofl_status status = memory_take(out, ofl_bounce_bytes(largest));
    char *at = out->base;
    if (status == OFL_OK) at += (OFL_PAGE_BYTES - (uintptr_t)at % OFL_PAGE_BYTES) % OFL_PAGE_BYTES;
    for (uint32_t i = 0; i < OFL_BOUNCE_BUFFERS && status == OFL_OK; i++) {
        out->buffers[i].memory = at + i * (out->chunk + OFL_BOUNCE_MARGIN_BYTES);
        status = ofl_event_create(device, &out->buffers[i].drained);
    }
    out->there = status == OFL_OK;
    if (status != OFL_OK) ofl_bounce_close(out);
    return status;
}

void ofl_bounce_close(ofl_bounce *bounce)
{
    for (uint32_t i = 0; i < OFL_BOUNCE_BUFFERS; i++) {
        if (bounce->buffers[i].drained != NULL) ofl_event_destroy(bounce->device, bounce->buffers[i].drained);
    }
    if (bounce->unpinned) ofl_free(bounce->base);
    else if (bounce->base != NULL) ofl_device_host_free(bounce->device, bounce->base);
    *bounce = (ofl_bounce){0};
}
