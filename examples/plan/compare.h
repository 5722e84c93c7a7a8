/* --compare and --want: the ways out of a model that is too big, side by side, and whether a wished speed is reached. */
#ifndef OFLOAD_PLAN_COMPARE_H
#define OFLOAD_PLAN_COMPARE_H

#include "common/cli.h"
#include "plan/page.h"

#define COMPARE_OPTION_COUNT 6
#define COMPARE_GPUS_MOST 1024u
#define COMPARE_WORDS 160 /* more than all options once, with their values, and a model */
/* For --help. */
#define COMPARE_SYNTAX                                                                                                     \
    "--json with --compare or --want: {\"schema\":\"ofload.compare/1\",\"plan\":…,\"ways\":[…],\"want\":…}; with --want\n" \
    "alone the schema is ofload.want/1 and there are no ways.\n"

typedef struct compare_options {
    int compare;
    const char *want; /* as written; NULL: not given */
    uint64_t gpus;
    double peer_link, host_bandwidth, host_flops;
    struct { int gpus, peer_link, host_bandwidth, host_flops; } given;
    double want_tokens_per_second; /* once checked; 0: not given */
    int missed;                    /* the wish is not met: exit status 3 */
    int argc;                      /* what the program was started with, and its options: for the commands shown */
    char *argv[COMPARE_WORDS];
    const cli_option *options;
    size_t option_count;
} compare_options;

/* Writes COMPARE_OPTION_COUNT rows that fill `options`, which must be zero and outlive the table. */
void compare_options_table(compare_options *options, cli_option rows[COMPARE_OPTION_COUNT]);
/* Before cli_parse, which reorders argv. `table`, all options of the program with those of plan_options first, must outlive it. */
void compare_options_keep(compare_options *options, int argc, char **argv, const cli_option *table, size_t count);
/* Refuses what has no effect, and reads the wish. */
ofl_status compare_options_check(compare_options *options, int quiet);
/* Is there more to show than the plan? */
static inline int compare_asked(const compare_options *o) { return o->compare || o->want != NULL; }

/* What is compared: a plan, and what it was made from. */
typedef struct compare_job {
    const ofl_model *model;
    const ofl_machine *machine;
    const ofl_workload *workload;
    const ofl_plan *plan;
    ofl_device *device; /* that was measured; NULL: none */
} compare_job;

/* Prints what was asked for: below the page, or (json, the plan's own) as one object that holds the plan too; with quiet nothing. Sets
 * options->missed. */
ofl_status compare_show(compare_options *options, const compare_job *job, const char *json, int quiet);

#endif
