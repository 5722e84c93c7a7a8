/* The run loop: requests through the front, one step after the other, each finished request written at once. */
#ifndef OFLOAD_BATCH_JOB_H
#define OFLOAD_BATCH_JOB_H

#include "batch/backend.h"
#include "batch/health.h"
#include "batch/input.h"
#include "batch/output.h"
#include "batch/progress.h"
#include "batch/record.h"

/* Steps that only read prompts, that only make tokens, and that do both. */
typedef enum job_phase { JOB_PREFILL, JOB_DECODE, JOB_MIXED, JOB_PHASES } job_phase;
typedef struct job_phase_totals { uint64_t steps, prompt_tokens, new_tokens; double seconds; } job_phase_totals;

#define JOB_FORECAST_STEPS 20u
/* After that many steps, with what they taught the front. */
typedef struct job_forecast {
    uint64_t steps;           /* 0: not that many ran */
    double passed, left;      /* seconds in steps up to then; of those to come, if every request makes all its tokens */
    double correction, estimated; /* measured ÷ estimated; the plan's estimates of the steps up to then */
} job_forecast;

/* Times that device memory ran out, and what was given up then. */
#define JOB_MOST_DOWNS 16u
typedef enum job_given_up { GAVE_TOKENS, GAVE_SEQUENCES, GAVE_PLAN } job_given_up;
typedef struct job_down {
    job_given_up what;
    uint64_t steps;           /* that had run; then the seconds in them */
    double seconds;
    uint32_t prefill_chunk_tokens, sequences; /* from then on */
    uint64_t plan_bytes;      /* of the new plan; 0: the same plan */
    uint32_t restarted;       /* sequences that were running and began anew */
    uint64_t lost_tokens;     /* that those had made; they are made again */
} job_down;

typedef struct job_totals {
    uint64_t requests, answered, failed, skipped; /* of this shard; skipped: done by an earlier run */
    uint64_t prompt_tokens, completion_tokens;    /* of this run */
    uint64_t steps;
    double seconds;           /* in steps */
    double sync_seconds;      /* between steps, while the disk took the answers in */
    job_phase_totals phases[JOB_PHASES]; /* of those steps and seconds */
    uint64_t peak_logprob_bytes; /* of host memory, for log-probabilities not yet written */
    double estimated_seconds; /* the plan's estimates of the steps that ran, made without what was measured */
    job_forecast after;
    job_down downs[JOB_MOST_DOWNS];
    uint32_t down_count;
} job_totals;

typedef struct job {
    const backend *model;
    const ofl_plan *plan;
    input *in;
    output *out;
    const record_maker *maker;
    progress *progress;
    int (*stop)(void);        /* non-zero: stop soon */
    job_totals totals;
    ofl_front *front;
    struct job_active *active; /* (sequences), by slot */
    struct job_group *groups;  /* requests begun and not yet written */
    int32_t *tokens;           /* of a step */
    size_t token_capacity;
    uint8_t *finished;
    row_choice *rows;          /* of a step: its rows of logits */
    buffer record;
    uint64_t logprob_bytes;    /* held now */
    health health;
    backend_load load;         /* the plan is for */
    backend_limits limits;     /* within the plan's */
    bool gave_tokens, gave_sequences;
} job;

/* Makes the front and submits every waiting entry. model … stop are set by the caller. */
ofl_status job_begin(job *j);
/* Until all is done or stop() says so. OFL_END: stopped early. */
ofl_status job_run(job *j);
void job_end(job *j);
/* Loads the weights. Where the device has not the memory for it (any more), plans for less first (job_down.c). OFL_END: stopped. */
ofl_status job_load(job *j);
/* After a step that did not run for want of device memory: gives some up, so that the next may run. OFL_END: stopped. */
ofl_status job_step_down(job *j);
/* Ends all that runs; it waits again. How many sequences that were, and the tokens that they had made. */
void job_drop_running(job *j, uint32_t *sequences_out, uint64_t *tokens_out);

/* Measures every waiting entry: prompt tokens, most new tokens. A line that cannot be answered keeps prompt_tokens = 0. *longest_out: tokens of the longest
 * request, prompt and answer. */
ofl_status job_measure(const backend *model, input *in, uint32_t max_tokens_default, int (*stop)(void), uint64_t *longest_out);
/* Writes the error lines of the waiting entries that measured as errors. */
ofl_status job_write_errors(job *j, uint32_t max_tokens_default);

#endif
