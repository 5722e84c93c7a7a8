/* A whole run, from the input file to the report, over any backend. */
#ifndef OFLOAD_BATCH_RUN_H
#define OFLOAD_BATCH_RUN_H

#include "batch/backend.h"
#include "batch/shard.h"

typedef struct run_settings {
    const char *input, *output, *report; /* output as given: a shard's own name is made from it; report may be NULL */
    const char *model, *plan, *machine; /* files in use that must not be written over; NULL: none */
    uint32_t max_tokens_default;
    shard shard;
    bool overwrite, retry_errors, ordered, dry_run, quiet, json, progress;
    int (*stop)(void);  /* non-zero: stop soon, with this exit status */
    /* true: until false comes, a signal may end the program at once; `made` (NULL: none) is an empty file to be removed then. May be NULL. */
    void (*may_leave)(bool may, const char *made);
} run_settings;

/* *exit_out: the exit status when OFL_OK is returned. Otherwise app_error() says why. */
ofl_status batch_run(const run_settings *settings, const backend *model, int *exit_out);

#endif
