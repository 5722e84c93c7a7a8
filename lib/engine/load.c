/* Fills the tiers: each byte of the model is read once, straight to where it stays; resident bytes pass through the bounce buffers. Memory
 * is taken block by block while the blocks before are read, so that the caller sees progress and may stop it at any time. */
#include "engine/internal.h"

#include <stdlib.h>

#include "base/locality.h"

#define PROGRESS_BYTES (UINT64_C(64) << 20)

typedef struct loader {
    ofl_engine *engine;
    ofl_locality *locality; /* NULL: the device's place is not known */
    ofl_host_ticker ticker;
    uint64_t in_place, queued; /* bytes */
    uint64_t total, told;
    uint64_t wanted, refused;  /* bytes to be page-locked */
    bool refuses;              /* it is not tried again */
} loader;

/* ---- progress ---- */

static ofl_status tell(loader *load, uint64_t done)
{
    const ofl_engine_options *options = &load->engine->options;
    load->told = done;
    if (options->progress == NULL || options->progress(options->context, done, load->total) == 0) return OFL_OK;
    return ofl_fail(OFL_ERROR_CANCELLED, "loading: stopped by the caller after %s of %s", ofl_bytes_text(done).text,
                    ofl_bytes_text(load->total).text);
}

static ofl_status tick(void *context)
{
    loader *load = context;
    uint64_t done;
    ofl_status status = ofl_feeder_loaded(load->engine->feeder, 0, &done);
    return status == OFL_OK ? tell(load, load->in_place + done) : status;
}

/* Until no more than `left` bytes are on their way. */
static ofl_status wait_loaded(loader *load, uint64_t left)
{
    uint64_t done;
    ofl_status status = ofl_feeder_loaded(load->engine->feeder, 0, &done);
    while (status == OFL_OK && load->queued - done > left) {
        status = ofl_feeder_loaded(load->engine->feeder, ofl_min_u64(load->queued - left, done + PROGRESS_BYTES), &done);
        if (status == OFL_OK && load->in_place + done - load->told >= PROGRESS_BYTES) status = tell(load, load->in_place + done);
    }
    return status;
}

static ofl_status queue(loader *load, uint32_t index)
{
    ofl_status status = ofl_feeder_load(load->engine->feeder, index);
    load->queued += load->engine->slices[index].bytes;
    return status == OFL_OK ? wait_loaded(load, PROGRESS_BYTES) : status;
}

/* ---- the caller's memory ---- */

static bool locks_in_place(const ofl_engine_slice *slice) { return slice->in_place && slice->tier == OFL_TIER_PINNED; }

typedef struct own_range { const char *start, *end; uint32_t slice; } own_range;

static int by_address(const void *a, const void *b)
{
    const own_range *x = a, *y = b;
    return x->start < y->start ? -1 : x->start > y->start;
}

/* What shares a page can only be locked together. */
static bool share_a_page(const own_range *first, const own_range *second)
{
    return (uintptr_t)second->start / OFL_PAGE_BYTES <= ((uintptr_t)first->end - 1) / OFL_PAGE_BYTES;
}

static bool goes_on_without(ofl_status status)
{
    return status == OFL_ERROR_PINNED_MEMORY || status == OFL_ERROR_STATE || status == OFL_ERROR_UNSUPPORTED || status == OFL_ERROR_RUNTIME;
}

static ofl_status range_lock(loader *load, const own_range *ranges, uint32_t count)
{
    ofl_engine *engine = load->engine;
    const char *end = ranges[0].start;
    uint64_t wanted = 0;
    ofl_pin *pin = NULL;
    for (uint32_t i = 0; i < count; i++) {
        end = ranges[i].end > end ? ranges[i].end : end;
        wanted += (uint64_t)(ranges[i].end - ranges[i].start);
    }
    load->wanted += wanted;
    ofl_status status = ofl_pin_take(engine->device, ranges[0].start, (uint64_t)(end - ranges[0].start), &pin);
    if (status == OFL_OK) {
        engine->pins[engine->pin_count++] = pin;
        engine->stats.pinned_bytes += (uint64_t)(end - ranges[0].start);
    } else if (goes_on_without(status)) {
        load->refused += wanted;
        engine->stats.pageable_bytes += wanted;
        return tick(load);
    }
    for (uint32_t i = 0; i < count && status == OFL_OK; i++) {
        const void *reachable;
        status = ofl_device_host_address(engine->device, ranges[i].start, &reachable);
        if (status == OFL_OK) engine->slices[ranges[i].slice].reachable = reachable;
    }
    return status == OFL_OK ? tick(load) : status;
}

static ofl_status ranges_lock(loader *load, own_range *ranges, uint32_t count)
{
    ofl_status status = OFL_OK;
    qsort(ranges, count, sizeof *ranges, by_address);
    for (uint32_t first = 0, next; first < count && status == OFL_OK; first = next) {
        own_range together = ranges[first];
        for (next = first + 1; next < count && share_a_page(&together, &ranges[next]); next++)
            together.end = ranges[next].end > together.end ? ranges[next].end : together.end;
        status = range_lock(load, ranges + first, next - first);
    }
    return status;
}

static ofl_status own_memory_lock(loader *load)
{
    ofl_engine *engine = load->engine;
    uint32_t count = 0;
    for (uint32_t i = 0; i < engine->slice_count; i++) {
        if (engine->slices[i].in_place) load->in_place += engine->slices[i].bytes;
        if (engine->slices[i].in_place && engine->slices[i].tier == OFL_TIER_PAGEABLE)
            engine->stats.pageable_bytes += engine->slices[i].bytes;
        count += locks_in_place(&engine->slices[i]);
    }
    if (count == 0) return OFL_OK;
    engine->pins = ofl_alloc(count, sizeof(ofl_pin *));
    own_range *ranges = ofl_alloc(count, sizeof *ranges);
    ofl_status status =
        engine->pins != NULL && ranges != NULL ? OFL_OK : ofl_fail(OFL_ERROR_HOST_MEMORY, "engine's tables: out of host memory; free some");
    if (status == OFL_OK) {
        uint32_t at = 0;
        for (uint32_t i = 0; i < engine->slice_count; i++) {
            const ofl_engine_slice *slice = &engine->slices[i];
            if (locks_in_place(slice)) ranges[at++] = (own_range){slice->host, slice->host + slice->bytes, i};
        }
        status = ranges_lock(load, ranges, count);
    }
    ofl_free(ranges);
    return status;
}

/* ---- the engine's own memory ---- */

/* Rows are read by the device where they lie: each such slice that is not within a locked range gets pinned memory for itself. */
static ofl_status rows_take(loader *load, uint32_t index)
{
    ofl_engine *engine = load->engine;
    ofl_engine_slice *slice = &engine->slices[index];
    if (!ofl_grow((void **)&engine->blocks, &engine->block_capacity, engine->block_count + 1, sizeof *engine->blocks))
        return ofl_fail(OFL_ERROR_HOST_MEMORY, "engine's tables: out of host memory; free some");
    ofl_host_block *block = &engine->blocks[engine->block_count++];
    *block = (ofl_host_block){.bytes = slice->bytes, .tier = OFL_TIER_PINNED, .rows = true};
    ofl_status status = ofl_host_take(engine, block, &load->ticker);
    if (status != OFL_OK) return status;
    if (slice->in_place) {
        load->refused -= slice->bytes;
        load->in_place -= slice->bytes;
        engine->stats.pageable_bytes -= slice->bytes;
    }
    slice->in_place = false;
    slice->host = block->base;
    slice->reachable = block->mapped;
    return queue(load, index);
}

static ofl_status lookups_take(loader *load)
{
    ofl_engine *engine = load->engine;
    for (uint32_t i = 0; i < engine->slice_count; i++) {
        const ofl_engine_slice *slice = &engine->slices[i];
        bool in_piece = slice->unit != OFL_NOWHERE && !(slice->gathered && slice->in_place);
        if (slice->tier == OFL_TIER_DEVICE || in_piece || slice->bytes == 0 || slice->reachable != NULL) continue;
        ofl_status status = rows_take(load, i);
        if (status != OFL_OK) return status;
    }
    return OFL_OK;
}

static ofl_status block_take(loader *load, ofl_host_block *block)
{
    bool pinned = block->tier == OFL_TIER_PINNED;
    if (pinned) load->wanted += block->bytes;
    if (pinned && load->refuses && !block->rows) block->tier = OFL_TIER_PAGEABLE;
    ofl_status status = ofl_host_take(load->engine, block, &load->ticker);
    if (status == OFL_ERROR_PINNED_MEMORY && !block->rows) {
        load->refuses = true;
        status = OFL_OK;
    }
    if (pinned && block->tier != OFL_TIER_PINNED) load->refused += block->bytes;
    return status;
}

static ofl_status block_fill(loader *load, uint64_t block)
{
    const ofl_engine *engine = load->engine;
    for (uint32_t u = 0; u < engine->unit_count; u++) {
        const ofl_engine_unit *unit = &engine->units[u];
        if (unit->block != block) continue;
        for (uint32_t i = unit->slice_first; i < unit->slice_first + unit->slice_count; i++) {
            const char *at = engine->slices[i].host, *base = engine->blocks[block].base;
            if (at < base || at >= base + engine->blocks[block].bytes) continue;
            ofl_status status = queue(load, i);
            if (status != OFL_OK) return status;
        }
    }
    return OFL_OK;
}

static ofl_status blocks_take(loader *load, uint64_t count)
{
    ofl_engine *engine = load->engine;
    for (uint64_t b = 0; b < count; b++) {
        ofl_status status = block_take(load, &engine->blocks[b]);
        if (status == OFL_OK) ofl_engine_point(engine, (uint32_t)b);
        if (status == OFL_OK) status = block_fill(load, b);
        if (status != OFL_OK) return status;
    }
    return OFL_OK;
}

/* ---- what then is where ---- */

/* A unit is as low as the lowest of its parts. */
static void tiers_settle(ofl_engine *engine)
{
    for (uint32_t u = 0; u < engine->unit_count; u++) {
        ofl_engine_unit *unit = &engine->units[u];
        if (unit->tier != OFL_TIER_PINNED) continue;
        if (unit->block != OFL_NOWHERE) unit->tier = engine->blocks[unit->block].tier;
        for (uint32_t i = unit->slice_first; i < unit->slice_first + unit->slice_count; i++) {
            const ofl_engine_slice *slice = &engine->slices[i];
            if (slice->in_place && slice->reachable == NULL) unit->tier = OFL_TIER_PAGEABLE;
        }
    }
    for (uint32_t i = 0; i < engine->slice_count; i++) {
        if (engine->slices[i].tier == OFL_TIER_FILE) engine->stats.file_bytes += engine->slices[i].bytes;
    }
}

/* The largest piece that is not in pinned memory; 0: all are. */
static uint64_t largest_unpinned(const ofl_engine *engine)
{
    uint64_t largest = 0;
    for (uint32_t i = 0; i < engine->unit_count; i++) {
        if (engine->units[i].tier != OFL_TIER_PINNED) largest = ofl_max_u64(largest, engine->units[i].piece_bytes);
    }
    return largest;
}

static uint64_t largest_resident(const ofl_engine *engine)
{
    uint64_t largest = 0;
    for (uint32_t i = 0; i < engine->slice_count; i++) {
        if (engine->slices[i].tier == OFL_TIER_DEVICE) largest = ofl_max_u64(largest, engine->slices[i].bytes);
    }
    return largest;
}

static ofl_status residents_load(loader *load)
{
    const ofl_engine *engine = load->engine;
    ofl_status status = OFL_OK;
    for (uint32_t i = 0; i < engine->slice_count && status == OFL_OK; i++) {
        if (engine->slices[i].tier == OFL_TIER_DEVICE && engine->slices[i].bytes != 0) status = queue(load, i);
    }
    return status;
}

/* Once, whatever it was. */
static void say_slower(const loader *load)
{
    const ofl_engine *engine = load->engine;
    if (load->refused != 0)
        ofl_engine_say(engine,
                       "host memory: %s of %s of streamed weights could be page-locked; "
                       "the rest is copied from pageable memory, slower than planned",
                       ofl_bytes_text(load->wanted - load->refused).text, ofl_bytes_text(load->wanted).text);
    else if (largest_unpinned(engine) != 0 && ofl_feeder_is_unpinned(engine->feeder))
        ofl_engine_say(engine, "host memory: no buffers for reading could be page-locked; "
                               "what is in pageable memory or in a file is copied slower than planned");
}

/* Pinned memory in the order of need: rows, which have no other place; the bounce buffers, where the plan counts on them; pieces. */
static ofl_status tiers_fill(loader *load)
{
    ofl_engine *engine = load->engine;
    uint64_t piece_blocks = engine->block_count, unpinned = largest_unpinned(engine);
    ofl_status status = own_memory_lock(load);
    if (status == OFL_OK) status = lookups_take(load);
    if (status == OFL_OK && unpinned != 0) status = ofl_feeder_bounce(engine->feeder, unpinned);
    if (status == OFL_OK) status = blocks_take(load, piece_blocks);
    if (status != OFL_OK) return status;
    tiers_settle(engine);
    engine->stats.refused_bytes = load->refused;
    uint64_t largest = ofl_max_u64(largest_unpinned(engine), largest_resident(engine));
    if (engine->stats.file_bytes != 0) status = ofl_feeder_reads_files(engine->feeder);
    if (status == OFL_OK && largest != 0 && unpinned == 0) status = ofl_feeder_bounce(engine->feeder, largest);
    if (status == OFL_OK) say_slower(load);
    if (status == OFL_OK) status = residents_load(load);
    if (status == OFL_OK) status = wait_loaded(load, 0);
    return status == OFL_OK && load->told != load->total ? tell(load, load->total) : status;
}

static ofl_status locality_open(loader *load)
{
    ofl_device_info info = {.struct_size = sizeof info};
    ofl_status status = ofl_device_info_get(load->engine->device, &info);
    if (status != OFL_OK || (info.numa_node < 0 && info.pci_id[0] == '\0')) return status;
    return ofl_locality_open(info.pci_id, info.numa_node, &load->locality);
}

ofl_status ofl_engine_load(ofl_engine *engine)
{
    loader load = {.engine = engine};
    for (uint32_t i = 0; i < engine->slice_count; i++) {
        if (engine->slices[i].tier != OFL_TIER_FILE) load.total += engine->slices[i].bytes;
    }
    ofl_status status = locality_open(&load);
    load.ticker = (ofl_host_ticker){tick, &load, load.locality};
    if (status == OFL_OK) status = ofl_feeder_open(engine);
    if (status == OFL_OK) status = tiers_fill(&load);
    ofl_locality_close(load.locality);
    if (status == OFL_OK) status = ofl_stream_wait(engine->device, engine->copies); /* residents are read without asking */
    if (status != OFL_OK) return status;
    if (largest_unpinned(engine) == 0) {
        ofl_feeder_close(engine->feeder);
        engine->feeder = NULL;
    }
    ofl_engine_point(engine, OFL_NOWHERE);
    return OFL_OK;
}
