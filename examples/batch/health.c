#include "batch/health.h"

#include <stdio.h>

#include "common/cli.h"

typedef enum verdict { LINK_FINE, LINK_SLOW, LINK_UNKNOWN } verdict;

/* A step that its compute filled says nothing of the link. */
static verdict judge(const health *h, const ofl_step_estimate *estimate, const backend_step *ran, double seconds)
{
    double more = 0.01 * h->band, beyond = seconds - estimate->step_seconds;
    if (!(ran->streamed_bytes > 0) || !(estimate->link_seconds > 0)) return LINK_UNKNOWN;
    if (seconds <= (1 + more) * estimate->link_seconds) return LINK_FINE;
    return beyond > more * estimate->step_seconds && ran->wait_seconds - estimate->stall_seconds >= beyond / 2 ? LINK_SLOW : LINK_UNKNOWN;
}

bool health_step(health *h, const ofl_step_estimate *estimate, const backend_step *ran, double seconds, uint64_t number, double before)
{
    verdict link = judge(h, estimate, ran, seconds);
    if (link == LINK_FINE) {
        h->in_row = 0;
        h->row_bytes = h->row_seconds = h->row_planned = 0;
    }
    if (link != LINK_SLOW) return false;
    if (h->in_row++ == 0) h->row_first = number, h->row_began = before;
    h->row_bytes += ran->streamed_bytes;
    h->row_seconds += seconds;
    h->row_planned += estimate->link_seconds;
    if (h->found) {
        h->slow_steps++;
        h->slow_bytes += ran->streamed_bytes;
        h->slow_seconds += seconds;
        return false;
    }
    if (h->in_row < HEALTH_STEPS || h->row_seconds < HEALTH_SECONDS) return false;
    h->found = true;
    h->since_step = h->row_first;
    h->since_seconds = h->row_began;
    h->slow_steps = h->in_row;
    h->slow_bytes = h->row_bytes;
    h->slow_seconds = h->row_seconds;
    h->planned_rate = h->row_bytes / h->row_planned;
    h->found_rate = h->row_bytes / h->row_seconds;
    return true;
}

void health_sentence(const health *h, char *to, size_t bytes)
{
    char found[32], planned[32], since[32];
    (void)snprintf(to, bytes,
                   "the link%s brings %s since step %llu (%s into this run), not the %s of the plan; forecast and time left go by that "
                   "now; look for heat, for fewer lanes or a lower generation than usual, for others who copy",
                   h->simulated ? " (simulated)" : "",
                   cli_show_rate(found, h->found_rate), (unsigned long long)h->since_step, cli_show_seconds(since, h->since_seconds),
                   cli_show_rate(planned, h->planned_rate));
}
