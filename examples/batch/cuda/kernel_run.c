/* The bodies on the CPU. */
#include "batch/cuda/kernel_launch.h"

typedef union kernel_shared { /* a workgroup's */
    embed_shared embed;
    expand_shared expand;
    norm_shared norm;
    gate_shared gate;
    add_shared add;
    rope_shared rope;
    turn_shared turn;
    attention_shared attention;
    merge_shared merge;
    sample_shared sample;
} __attribute__((aligned(16))) kernel_shared;

#define RUN(name, threads, kind)                                                                                  \
    static void run_##name(const kernel_job *job, body_group g, kernel_shared *s) { body_##name(&job->kind, g, &s->kind); }
KERNEL_LIST(RUN)

bool kernel_run(const kernel_launch *launch, bool backwards)
{
#define RUN_OF(name, threads, kind) run_##name,
    static void (*const bodies[KERNEL_IDS])(const kernel_job *, body_group, kernel_shared *) = {KERNEL_LIST(RUN_OF)};
    kernel_shared shared;
    bool missed = false;
    for (uint32_t i = 0; i < launch->blocks; i++) {
        body_watch watch = {false, false};
        body_group g = {backwards ? launch->blocks - 1 - i : i, backwards, &watch};
        memset(&shared, 0xff, launch->shared_bytes); /* nothing is there before a workgroup writes it */
        bodies[launch->id](&launch->job, g, &shared);
        missed = missed || watch.missed;
    }
    return !missed;
}
