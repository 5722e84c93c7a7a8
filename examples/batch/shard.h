/* Which part of the input is this run's. */
#ifndef OFLOAD_BATCH_SHARD_H
#define OFLOAD_BATCH_SHARD_H

#include <stdint.h>

#include "common/app_error.h"

typedef struct shard { uint32_t index, count; } shard; /* count 1: all of it */

/* "I/N", I from 0; "auto": from a Slurm array, else from an indexed Kubernetes job with OFLOAD_SHARD_COUNT. NULL: all. */
ofl_status shard_parse(const char *text, shard *out);
/* OUT.jsonl becomes OUT.shard-00003-of-00016.jsonl, so that no two shards share a file; with one shard it stays. free() it; NULL: out of memory. */
char *shard_path(const char *path, shard s);

#endif
