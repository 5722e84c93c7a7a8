/* Loops over independent items on several threads (OpenMP where the build has it, else one after the other). Results never depend on their
 * number. */
#ifndef OFLOAD_BATCH_CPU_THREADS_H
#define OFLOAD_BATCH_CPU_THREADS_H

#include <stdint.h>

#include <ofload/status.h>

/* wanted 0: the cores less one for the link, at least 1. */
uint32_t threads_choose(uint32_t wanted);
/* From now on libraries called from this thread's loops start no threads of their own. */
void threads_alone(void);
/* item(context, thread, index) for each index < count; thread < threads. A failure ends the loop early and is returned. */
ofl_status threads_each(uint32_t threads, uint64_t count, ofl_status (*item)(void *context, uint32_t thread, uint64_t index),
                        void *context);

#endif
