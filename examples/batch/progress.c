#include "batch/progress.h"

#include <inttypes.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

#include "batch/job.h"
#include "common/cli.h"

#define TERMINAL_SECONDS 0.5
#define PLAIN_SECONDS 30.0

static double seconds_now(void)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

void progress_begin(progress *p, bool on)
{
    *p = (progress){.on = on, .terminal = isatty(STDERR_FILENO) == 1};
    p->next = seconds_now() + (p->terminal ? TERMINAL_SECONDS : PLAIN_SECONDS);
}

static void show(progress *p, const job_totals *totals, ofl_front *front)
{
    char step[32], left[32];
    ofl_front_forecast forecast = {.struct_size = sizeof forecast};
    if (ofl_front_forecast_get(front, &forecast) != OFL_OK) return;
    uint64_t done = totals->skipped + totals->answered + totals->failed;
    if (p->terminal) (void)fprintf(stderr, "\r\033[K");
    (void)fprintf(stderr, "%" PRIu64 " of %" PRIu64 " requests", done, totals->requests);
    if (totals->failed > 0) (void)fprintf(stderr, " (%" PRIu64 " failed)", totals->failed);
    (void)fprintf(stderr, "  %.1f tokens/s, forecast %.1f  step %s  at most %s left", p->seconds > 0 ? (double)p->tokens / p->seconds : 0.0,
                  forecast.tokens_per_second, cli_show_seconds(step, p->steps > 0 ? p->seconds / (double)p->steps : 0),
                  cli_show_seconds(left, forecast.seconds));
    (void)fprintf(stderr, p->terminal ? "" : "\n");
    (void)fflush(stderr);
    p->drawn = p->terminal;
    p->tokens = p->steps = 0;
    p->seconds = 0;
}

void progress_step(progress *p, const job_totals *totals, double seconds, uint32_t new_tokens, ofl_front *front)
{
    if (!p->on) return;
    p->tokens += new_tokens;
    p->seconds += seconds;
    p->steps++;
    double now = seconds_now();
    if (now < p->next) return;
    show(p, totals, front);
    p->next = now + (p->terminal ? TERMINAL_SECONDS : PLAIN_SECONDS);
}

void progress_end(progress *p)
{
    if (p->drawn) (void)fprintf(stderr, "\n");
    p->drawn = false;
}
