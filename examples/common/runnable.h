/* Which models ofload-batch can run, by architecture. The one list. */
#ifndef OFLOAD_RUNNABLE_H
#define OFLOAD_RUNNABLE_H

#include <stdbool.h>

bool runnable_architecture(const char *architecture);
/* "llama, qwen2 and qwen3", for sentences. */
const char *runnable_names(void);

#endif
