/* --want: is a wished speed reached, and if not, what would reach it. */
#ifndef OFLOAD_PLAN_WANT_H
#define OFLOAD_PLAN_WANT_H

#include "plan/ways.h"

/* "5tok/s", "5 tokens/s", "0.5/s"; above 0. */
ofl_status want_parse(const char *text, double *tokens_per_second_out);

typedef enum want_limit { WANT_LINK, WANT_MEMORY, WANT_COMPUTE } want_limit;

#define WANT_CHANGES 5u
/* One change alone that reaches the wish. */
typedef struct want_change {
    const char *name;    /* "sequences", or a figure's key, or "weights" */
    double value;        /* count, bytes, rate; bits per weight */
    double now;
    const char *type;    /* of weights; else NULL */
    double tokens_per_second;
} want_change;

typedef struct want_answer {
    double wish;
    bool reached;
    planned plan;
    double bound_seconds; /* max((W − V) / B, C) */
    planned most;         /* not reached: the same machine planned for throughput */
    want_limit limit;
    want_change changes[WANT_CHANGES];
    uint32_t change_count;
} want_answer;

ofl_status want_find(const compare_job *job, double wish, want_answer *out);
void want_print(const compare_job *job, const want_answer *a);
cJSON *want_to_json(const want_answer *a);

#endif
