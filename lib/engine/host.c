/* Host memory for weights: exact sizes in whole pages, near the device, touched first by several threads, then page-locked. Faulting the
 * pages in is what takes the time, so it is done in steps between which the caller is asked whether to go on. */
#include "engine/internal.h"

#include <pthread.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/locality.h"

#define STEP_BYTES (UINT64_C(64) << 20)
#define SMALL_BYTES (UINT64_C(4) << 20) /* not worth threads */
enum { TOUCH_MOST = 4 };

typedef struct range { char *at; uint64_t bytes; } range;

static void *touch(void *argument)
{
    const range *r = argument;
#ifdef MADV_POPULATE_WRITE
    if (madvise(r->at, (size_t)r->bytes, MADV_POPULATE_WRITE) == 0) return NULL;
#endif
    for (uint64_t i = 0; i < r->bytes; i += OFL_PAGE_BYTES) *(volatile char *)(r->at + i) = 0;
    return NULL;
}

static uint32_t touch_threads(uint64_t bytes)
{
    long processors = sysconf(_SC_NPROCESSORS_ONLN);
    if (bytes <= SMALL_BYTES || processors < 2) return 1;
    return processors < TOUCH_MOST ? (uint32_t)processors : TOUCH_MOST;
}

static void touch_together(char *at, uint64_t bytes)
{
    range parts[TOUCH_MOST];
    pthread_t threads[TOUCH_MOST];
    bool started[TOUCH_MOST] = {false};
    uint32_t count = touch_threads(bytes);
    uint64_t each = bytes / count / OFL_PAGE_BYTES * OFL_PAGE_BYTES;
    for (uint32_t i = 0; i < count; i++) {
        parts[i] = (range){at + i * each, i + 1 < count ? each : bytes - i * each};
        started[i] = i + 1 < count && pthread_create(&threads[i], NULL, touch, &parts[i]) == 0;
        if (!started[i]) (void)touch(&parts[i]);
    }
    for (uint32_t i = 0; i < count; i++) {
        if (started[i]) (void)pthread_join(threads[i], NULL);
    }
}

static uint64_t whole_pages(uint64_t bytes) { return (bytes + OFL_PAGE_BYTES - 1) / OFL_PAGE_BYTES * OFL_PAGE_BYTES; }

static ofl_status map(ofl_host_block *block, const ofl_host_ticker *ticker)
{
    uint64_t bytes = whole_pages(block->bytes);
    void *base = mmap(NULL, (size_t)bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (base == MAP_FAILED)
        return ofl_fail_room(OFL_ERROR_HOST_MEMORY, block->bytes, 0,
                             "weights in host memory: %s could not be had; free some, or plan with less",
                             ofl_bytes_text(block->bytes).text);
    block->base = base;
    (void)madvise(base, (size_t)bytes, MADV_HUGEPAGE); /* fewer faults, cheaper to lock */
    (void)ofl_locality_bind_area(ticker->locality, base, bytes);
    for (uint64_t done = 0; done < bytes; done += STEP_BYTES) {
        touch_together(block->base + done, ofl_min_u64(STEP_BYTES, bytes - done));
        ofl_status status = ticker->tick(ticker->context);
        if (status != OFL_OK) return status;
    }
    return OFL_OK;
}

/* A runtime that cannot lock what is there may still give memory that is locked. */
static ofl_status from_runtime(ofl_engine *engine, ofl_host_block *block)
{
    void *base;
    ofl_status status = ofl_device_host_alloc(engine->device, block->bytes, &base);
    if (status != OFL_OK) return status;
    (void)munmap(block->base, (size_t)whole_pages(block->bytes));
    block->base = base;
    block->from_runtime = true;
    return OFL_OK;
}

static ofl_status lock(ofl_engine *engine, ofl_host_block *block)
{
    const void *mapped;
    ofl_status status = ofl_device_host_register(engine->device, block->base, block->bytes);
    if (status == OFL_ERROR_UNSUPPORTED) status = from_runtime(engine, block);
    if (status != OFL_OK) return status;
    block->tier = OFL_TIER_PINNED;
    status = ofl_device_host_address(engine->device, block->base, &mapped);
    if (status == OFL_OK) block->mapped = mapped;
    return status;
}

ofl_status ofl_host_take(ofl_engine *engine, ofl_host_block *block, const ofl_host_ticker *ticker)
{
    bool wanted = block->tier == OFL_TIER_PINNED;
    block->tier = OFL_TIER_PAGEABLE;
    ofl_status status = map(block, ticker);
    if (status == OFL_OK && wanted) status = lock(engine, block);
    if (status == OFL_OK || status == OFL_ERROR_PINNED_MEMORY)
        *(block->tier == OFL_TIER_PINNED ? &engine->stats.pinned_bytes : &engine->stats.pageable_bytes) += block->bytes;
    return status;
}

void ofl_host_give(ofl_engine *engine, ofl_host_block *block)
{
    if (block->base == NULL) return;
    if (block->from_runtime) {
        ofl_device_host_free(engine->device, block->base);
        return;
    }
    /* Memory that the device could not let go of (it is lost) stays, so that nothing else comes to lie under its hands. */
    if (block->tier == OFL_TIER_PINNED && ofl_device_host_unregister(engine->device, block->base) != OFL_OK) return;
    (void)munmap(block->base, (size_t)whole_pages(block->bytes));
}
