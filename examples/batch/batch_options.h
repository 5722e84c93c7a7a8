/* The command line of ofload-batch. */
#ifndef OFLOAD_BATCH_OPTIONS_H
#define OFLOAD_BATCH_OPTIONS_H

#include "batch/run.h"
#include "common/plan_options.h"

typedef struct batch_options {
    plan_options plan;
    const char *model, *input, *output, *plan_file, *chat_template, *report, *shard_text;
    uint64_t threads, max_tokens_default;
    uint32_t compute; /* ofl_compute_type */
    int overwrite, retry_errors, ordered, dry_run, quiet, json, no_progress;
    struct { int threads, max_tokens_default, compute; } given;
    shard shard;
} batch_options;

/* OFL_OK: run it. OFL_END: all is said (*exit_out). Otherwise a mistake in the wording, for which *exit_out is EXIT_USAGE. `program` is for cli_complain. */
ofl_status batch_options_read(int argc, char **argv, batch_options *out, const cli_program **program_out, int *exit_out);

#endif
