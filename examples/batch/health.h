/* Is the link as fast as planned? Noticed from measured steps: those that wait for bytes longer than the plan says, many in a row, with none
 * among them that shows the link as planned. A step that is slow because its compute is slow waits less, not more, and counts for nothing
 * here. */
#ifndef OFLOAD_BATCH_HEALTH_H
#define OFLOAD_BATCH_HEALTH_H

#include <stdbool.h>

#include "batch/backend.h"

#define HEALTH_STEPS 10u    /* in a row … */
#define HEALTH_SECONDS 5.0  /* … and as long */

typedef struct health {
    double band;             /* by how many percent a step may be longer than estimated */
    bool simulated;
    uint32_t in_row;         /* slow steps up to now */
    uint64_t row_first;      /* the first of them, counted from 1 */
    double row_bytes, row_seconds, row_planned, row_began; /* streamed, taken, estimated for the link; when the first began */
    bool found;              /* the link is slow since: */
    uint64_t since_step;
    double since_seconds;    /* of steps before it */
    uint64_t slow_steps;     /* since then; with the next two */
    double slow_bytes, slow_seconds;
    double planned_rate, found_rate; /* bytes per second; as found first */
} health;

/* A step that ran: the plan's own estimate, what the device says of it, how long it took; its number from 1, and the seconds of all
 * steps before it. true: the link has just been found slow; it says so once. */
bool health_step(health *h, const ofl_step_estimate *estimate, const backend_step *ran, double seconds, uint64_t number, double before);
/* What was found, as a sentence. */
void health_sentence(const health *h, char *to, size_t bytes);

#endif
