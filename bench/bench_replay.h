/* replay: published experiments, each beside this project's forecast, its measurement or both. */
#ifndef OFLOAD_BENCH_REPLAY_H
#define OFLOAD_BENCH_REPLAY_H

#include "bench.h"

typedef enum replay_compute { REPLAY_BOTH, REPLAY_REAL, REPLAY_MODELLED } replay_compute;

typedef struct replay_3060 {
    double scale;     /* of bytes and rates, 0 < scale ≤ 1 */
    uint64_t steps;   /* measured, after one that is not */
    uint32_t compute; /* a replay_compute */
} replay_3060;

/* Both open the report. */
ofl_status replay_3060_rows(const replay_3060 *replay, bench_output output, bench_report **out);
ofl_status replay_published_rows(bench_output output, bench_report **out);

#endif
