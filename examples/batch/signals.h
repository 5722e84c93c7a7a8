/* Being asked to stop. SIGINT once: stop soon, 130; twice: at once. SIGTERM and SIGUSR1: stop soon, 75. A closed pipe or a full disk is an error
 * return, not a signal. */
#ifndef OFLOAD_BATCH_SIGNALS_H
#define OFLOAD_BATCH_SIGNALS_H

void signals_install(void);
/* 0: go on; else the exit status to stop with. */
int signals_stop(void);

#endif
