/* The two parts of ofload-bench front. */
#ifndef OFLOAD_BENCH_FRONT_H
#define OFLOAD_BENCH_FRONT_H

#include "bench.h"

/* `count` more requests: prompts of 16 to 271 tokens, answers of 16 to 143, these times `longer`. */
ofl_status front_submit(ofl_front *front, uint64_t count, uint32_t longer, uint64_t *random);
static inline uint64_t front_most_tokens(uint32_t longer) { return 271 + 143 * (uint64_t)longer; }

/* bench_front_queue.c: so many requests to their end, on the simulated device's virtual clock; opens the report. */
ofl_status front_queue_rows(uint64_t requests, bench_output output, bench_report **out);

#endif
