/* Fills the tiers: each byte of the model is read once, straight to where it stays; resident bytes pass through two small buffers. */
#include "engine/internal.h"

#define READ_BYTES (UINT64_C(4) << 20)
#define PROGRESS_BYTES (UINT64_C(64) << 20)

typedef struct loader {
    ofl_engine *engine;
    ofl_bounce bounce;
    uint64_t done, total, told;
} loader;

static ofl_status progress(loader *load, uint64_t bytes)
{
    const ofl_engine_options *options = &load->engine->options;
    load->done += bytes;
    if (options->progress == NULL || (load->done - load->told < PROGRESS_BYTES && load->done != load->total)) return OFL_OK;
    load->told = load->done;
    if (options->progress(options->context, load->done, load->total) == 0) return OFL_OK;
    return ofl_fail(OFL_ERROR_CANCELLED, "loading: stopped by the caller after %s of %s", ofl_bytes_text(load->done).text, ofl_bytes_text(load->total).text);
}

static ofl_status load_slice(loader *load, const ofl_engine_slice *slice)
{
    const ofl_engine *engine = load->engine;
    if (slice->tier == OFL_TIER_FILE) return OFL_OK;
    for (uint64_t done = 0; done < slice->bytes;) {
        uint64_t bytes = ofl_min_u64(READ_BYTES, slice->bytes - done);
        ofl_status status;
        if (slice->tier == OFL_TIER_DEVICE)
            status = ofl_bounce_read(&load->bounce, engine->model, slice, done, bytes, engine->copies, engine->arena + slice->arena_offset + done);
        else
            status = ofl_model_tensor_read(engine->model, slice->tensor, slice->row_first * slice->row_bytes + done, bytes, slice->host + done);
        if (status == OFL_OK) status = progress(load, bytes);
        if (status != OFL_OK) return status;
        done += bytes;
    }
    return OFL_OK;
}

ofl_status ofl_engine_load(ofl_engine *engine)
{
    loader load = {.engine = engine};
    for (uint32_t i = 0; i < engine->slice_count; i++) {
        if (engine->slices[i].tier != OFL_TIER_FILE) load.total += engine->slices[i].bytes;
    }
    ofl_status status = engine->arena_bytes ? ofl_bounce_open(engine->device, 2, READ_BYTES, &load.bounce) : OFL_OK;
    for (uint32_t i = 0; i < engine->slice_count && status == OFL_OK; i++) status = load_slice(&load, &engine->slices[i]);
    ofl_status drained = ofl_stream_wait(engine->device, engine->copies); /* also after a failure: the buffers are about to go */
    ofl_bounce_close(&load.bounce);
    return status == OFL_OK ? drained : status;
}
