/* Being asked to stop. SIGINT once: stop soon, 130; twice: at once. SIGTERM and SIGUSR1: stop soon, 75. A closed pipe or a full disk is an error
 * return, not a signal. */
#ifndef OFLOAD_BATCH_SIGNALS_H
#define OFLOAD_BATCH_SIGNALS_H

#include <stdbool.h>

void signals_install(void);
/* 0: go on; else the exit status to stop with. */
int signals_stop(void);
/* true: from now on a signal ends the program at once, for nothing is under way that would be lost; `made` is a file to remove then
 * (NULL: none), borrowed until false is told. */
void signals_may_leave(bool may, const char *made);

#endif
