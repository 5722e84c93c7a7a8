#include "batch/cpu/threads.h"

#include <sched.h>
#include <stdatomic.h>

#ifdef _OPENMP
#include <omp.h>
#else
#include <dlfcn.h>
#endif

#include "common/app_error.h"

#define MOST_THREADS 256u

uint32_t threads_choose(uint32_t wanted)
{
#ifdef _OPENMP
    cpu_set_t usable;
    int cores = sched_getaffinity(0, sizeof usable, &usable) == 0 ? CPU_COUNT(&usable) : 1;
    uint32_t chosen = wanted != 0 ? wanted : cores > 2 ? (uint32_t)cores - 1 : 1;
    return chosen < MOST_THREADS ? chosen : MOST_THREADS;
#else
    (void)wanted;
    return 1;
#endif
}

void threads_alone(void)
{
#ifdef _OPENMP
    omp_set_num_threads(1);
#else
    union {
        void *symbol;
        void (*set)(int count);
    } runtime = {.symbol = dlsym(RTLD_DEFAULT, "omp_set_num_threads")}; /* oneDNN may bring one along */
    if (runtime.symbol != NULL) runtime.set(1);
#endif
}

static ofl_status each_in_turn(uint64_t count, ofl_status (*item)(void *context, uint32_t thread, uint64_t index), void *context)
{
    ofl_status status = OFL_OK;
    for (uint64_t i = 0; i < count && status == OFL_OK; i++) status = item(context, 0, i);
    return status;
}

ofl_status threads_each(uint32_t threads, uint64_t count, ofl_status (*item)(void *context, uint32_t thread, uint64_t index), void *context)
{
    if (threads > count) threads = (uint32_t)count;
#ifdef _OPENMP
    if (threads > 1) {
        _Atomic ofl_status worst = OFL_OK;
#pragma omp parallel for num_threads(threads) schedule(dynamic, 1)
        for (uint64_t i = 0; i < count; i++) {
            ofl_status status = worst == OFL_OK ? item(context, (uint32_t)omp_get_thread_num(), i) : OFL_OK;
            if (status != OFL_OK) worst = status;
        }
        ofl_status status = worst;
        return status == OFL_OK ? OFL_OK : app_fail(status, "a compute thread failed: %s", ofl_status_text(status));
    }
#endif
    return each_in_turn(count, item, context);
}
