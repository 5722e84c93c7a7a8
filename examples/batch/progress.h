/* How far a run is, on standard error: one line redrawn on a terminal, else a plain line every 30 seconds. And what has to be
 * said in between. */
#ifndef OFLOAD_BATCH_PROGRESS_H
#define OFLOAD_BATCH_PROGRESS_H

#include <stdbool.h>
#include <stdint.h>

#include <ofload/front.h>

struct job_totals;

typedef struct progress {
    bool on, quiet, terminal, drawn;
    double began, next;      /* when this front began to run; when to show again */
    uint64_t tokens, steps;  /* since the last showing, with the next two */
    double seconds, link_seconds; /* taken; what the copies take at the planned rate */
} progress;

/* Times are seconds on the device's clock. on: show how far it is; quiet: say nothing at all. */
void progress_begin(progress *p, bool on, bool quiet, double now);
/* A step of `seconds` ended at `now`; link_seconds: what its copies take by the plan. */
void progress_step(progress *p, const struct job_totals *totals, double seconds, double link_seconds, uint32_t new_tokens, double now,
                   ofl_front *front);
/* A line of its own, at once; said even where no progress is shown. */
void progress_say(progress *p, const char *sentence);
/* The front is a new one: the pace is counted anew. */
void progress_restart(progress *p, double now);
/* Leaves the redrawn line. */
void progress_end(progress *p);

#endif
