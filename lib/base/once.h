/* A value made when it is first asked for, from whichever thread. */
#ifndef OFLOAD_LIB_ONCE_H
#define OFLOAD_LIB_ONCE_H

#include <stdint.h>

/* *done is 0 at first. The first call runs make(context), others wait for it; all see what it wrote. make() must not ask for another such
 * value. */
void ofl_once(uint32_t *done, void (*make)(void *context), void *context);

#endif
