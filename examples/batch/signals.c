#include "batch/signals.h"

#include <signal.h>
#include <string.h>
#include <unistd.h>

#include "common/cli.h"

static volatile sig_atomic_t stop_status;
static volatile sig_atomic_t interrupts;
static volatile sig_atomic_t may_leave;
static const char *volatile made_file;

static void leave(int status)
{
    if (made_file != NULL) (void)unlink(made_file);
    _exit(status);
}

/* Records are single writes, so that leaving at any moment leaves whole lines. */
static void on_signal(int number)
{
    if (number == SIGINT && interrupts++ > 0) _exit(EXIT_INTERRUPTED);
    stop_status = number == SIGINT ? EXIT_INTERRUPTED : stop_status != 0 ? stop_status : EXIT_STOPPED;
    if (may_leave) leave(stop_status);
}

void signals_install(void)
{
    struct sigaction action;
    memset(&action, 0, sizeof action);
    action.sa_handler = on_signal;
    action.sa_flags = SA_RESTART;
    (void)sigaction(SIGINT, &action, NULL);
    (void)sigaction(SIGTERM, &action, NULL);
    (void)sigaction(SIGUSR1, &action, NULL);
    action.sa_handler = SIG_IGN;
    (void)sigaction(SIGPIPE, &action, NULL);
    (void)sigaction(SIGXFSZ, &action, NULL);
}

void signals_may_leave(bool may, const char *made)
{
    may_leave = 0; /* no signal between the next two lines acts on half of it */
    made_file = may ? made : NULL;
    may_leave = may;
    if (may && stop_status != 0) leave(stop_status);
}

int signals_stop(void) { return stop_status; }
