/* How far a run is, on standard error: one line redrawn on a terminal, else a plain line every 30 seconds. */
#ifndef OFLOAD_BATCH_PROGRESS_H
#define OFLOAD_BATCH_PROGRESS_H

#include <stdbool.h>
#include <stdint.h>

#include <ofload/front.h>

struct job_totals;

typedef struct progress {
    bool on, terminal, drawn;
    double next;             /* when to show again, seconds, monotonic */
    uint64_t tokens;         /* since the last showing */
    double seconds;
    uint64_t steps;
} progress;

void progress_begin(progress *p, bool on);
void progress_step(progress *p, const struct job_totals *totals, double seconds, uint32_t new_tokens, ofl_front *front);
/* Leaves the redrawn line. */
void progress_end(progress *p);

#endif
