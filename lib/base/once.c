#include "base/once.h"

#include <pthread.h>

static pthread_mutex_t making = PTHREAD_MUTEX_INITIALIZER;

void ofl_once(uint32_t *done, void (*make)(void *context), void *context)
{
    if (__atomic_load_n(done, __ATOMIC_ACQUIRE) != 0) return;
    (void)pthread_mutex_lock(&making);
    if (__atomic_load_n(done, __ATOMIC_RELAXED) == 0) {
        make(context);
        __atomic_store_n(done, 1, __ATOMIC_RELEASE);
    }
    (void)pthread_mutex_unlock(&making);
}
