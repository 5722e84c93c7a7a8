#include "batch/progress.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "batch/job.h"
#include "common/cli.h"

#define TERMINAL_SECONDS 0.5
#define PLAIN_SECONDS 30.0

static void begin_period(progress *p, double now)
{
    p->next = now + (p->terminal ? TERMINAL_SECONDS : PLAIN_SECONDS);
    p->tokens = p->steps = 0;
    p->seconds = p->link_seconds = 0;
}

void progress_restart(progress *p, double now)
{
    p->began = now;
    begin_period(p, now);
}

void progress_begin(progress *p, bool on, bool quiet, double now)
{
    *p = (progress){.on = on && !quiet, .quiet = quiet, .terminal = isatty(STDERR_FILENO) == 1};
    progress_restart(p, now);
}

typedef struct line { char text[400]; size_t bytes; } line;

static void add(line *l, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void add(line *l, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    int wrote = vsnprintf(l->text + l->bytes, sizeof l->text - l->bytes, format, arguments);
    va_end(arguments);
    if (wrote > 0) l->bytes += (size_t)wrote;
    if (l->bytes >= sizeof l->text) l->bytes = sizeof l->text - 1;
}

/* A line that is broken by the terminal cannot be drawn over. */
static void cut_to_terminal(line *l)
{
    struct winsize size;
    if (ioctl(STDERR_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_col < 2) return;
    size_t columns = 0, at = 0;
    while (at < l->bytes) {
        if (((unsigned char)l->text[at] & 0xC0) != 0x80 && ++columns == size.ws_col) break; /* the last column stays free */
        at++;
    }
    l->text[at] = '\0';
    l->bytes = at;
}

/* By the pace of this run up to now, in requests; at most what it takes when each makes all its tokens. */
static void add_left(const progress *p, const ofl_front_forecast *forecast, double now, line *l)
{
    char text[32];
    double left = (double)(forecast->waiting + forecast->running), most = forecast->seconds;
    double about = forecast->finished > 0 ? left * (now - p->began) / (double)forecast->finished : most;
    if (about < most) add(l, "  about %s left,", cli_show_seconds(text, about));
    add(l, "%s at most %s%s", about < most ? "" : " ", cli_show_seconds(text, most), about < most ? "" : " left");
}

static void show(const progress *p, const job_totals *totals, double now, ofl_front *front)
{
    char step[32];
    line l = {.bytes = 0};
    ofl_front_forecast forecast = {.struct_size = sizeof forecast};
    if (ofl_front_forecast_get(front, &forecast) != OFL_OK) return;
    add(&l, "%" PRIu64 " of %" PRIu64 " requests", totals->skipped + totals->answered + totals->failed, totals->requests);
    if (totals->failed > 0) add(&l, " (%" PRIu64 " failed)", totals->failed);
    add(&l, "  %.1f tokens/s, forecast %.1f", p->seconds > 0 ? (double)p->tokens / p->seconds : 0.0, forecast.tokens_per_second);
    add(&l, "  step %s", cli_show_seconds(step, p->steps > 0 ? p->seconds / (double)p->steps : 0));
    if (p->link_seconds > 0 && p->seconds > 0) add(&l, "  link %.0f %%", 100 * p->link_seconds / p->seconds);
    add_left(p, &forecast, now, &l);
    if (p->terminal) cut_to_terminal(&l);
    (void)fprintf(stderr, p->terminal ? "\r\033[K%s" : "%s\n", l.text);
    (void)fflush(stderr);
}

void progress_step(progress *p, const job_totals *totals, double seconds, double link_seconds, uint32_t new_tokens, double now,
                   ofl_front *front)
{
    if (!p->on) return;
    p->tokens += new_tokens;
    p->seconds += seconds;
    p->link_seconds += link_seconds;
    p->steps++;
    if (now < p->next) return;
    show(p, totals, now, front);
    p->drawn = p->terminal;
    begin_period(p, now);
}

void progress_say(progress *p, const char *sentence)
{
    progress_end(p);
    if (!p->quiet) (void)fprintf(stderr, "ofload-batch: %s\n", sentence);
}

void progress_end(progress *p)
{
    if (p->drawn) (void)fprintf(stderr, "\n");
    p->drawn = false;
}
