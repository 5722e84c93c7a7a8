/* The llama-family forward pass over an engine's units and paged KV on the device, with the choice of each row's next token. One table of
 * functions a back end; the device decides which: the CPU computes where the host can read the device's memory (simulated), kernels on a
 * GPU. Public headers only.
 * Threads: one at a time; products may use several inside. */
#ifndef OFLOAD_BATCH_FORWARD_H
#define OFLOAD_BATCH_FORWARD_H

#include <ofload/ofload.h>

#include "batch/choose.h"

typedef struct forward forward;

typedef struct forward_times { /* of the last step, seconds on the device's clock */
    double step, compute, wait, attention;
} forward_times;

/* What is measured: steps of up to max_tokens tokens and max_rows rows of logits. */
typedef struct forward_measure_job {
    const ofl_model *model;
    ofl_device *device; /* its clock */
    ofl_compute_type compute_type;
    ofl_kv_type kv_type;
    uint32_t threads, max_tokens, max_rows;
    uint64_t memory_bytes; /* of the device, beside what the runtime takes; 0: what is free. A GPU's pieces go by it */
    double drawn_share;    /* of the rows of logits, those that are not greedy: on a GPU choosing is part of a step's compute */
} forward_measure_job;

/* A back end. Each function is that of its name below. */
typedef struct forward_kind {
    const char *name;       /* "CPU", "CUDA" */
    bool chooses_on_device; /* tokens are chosen within a step's compute: no host time for each row */
    /* What the plan has to count for it: fills workspace_bytes in. NULL: nothing. */
    ofl_status (*workload)(const ofl_model *model, ofl_workload *w);
    /* OFL_ERROR_UNSUPPORTED: what it cannot do of what kv_supports allows. NULL: it can do all. */
    ofl_status (*supports)(ofl_compute_type compute_type, ofl_kv_type kv_type, uint32_t head_dim);
    ofl_status (*open)(const ofl_model *model, const ofl_plan *plan, ofl_engine *engine, ofl_device *device, uint32_t threads, forward **out);
    void (*close)(forward *f);
    ofl_status (*shrink)(forward *f, uint32_t tokens_per_step, uint32_t logits_rows, uint64_t kv_tokens);
    ofl_status (*step)(forward *f, const ofl_step *step, const int32_t *tokens, uint32_t usable, row_choice *rows);
    ofl_status (*logits)(forward *f, const float **out);
    void (*times)(const forward *f, forward_times *out);
    ofl_status (*measure)(const forward_measure_job *job, ofl_compute_figures *out);
} forward_kind;

struct forward { /* what each back end's own begins with */
    const forward_kind *kind;
};

extern const forward_kind forward_cpu, forward_cuda; /* the second: in programs that link ofload_batch_cuda */
/* What computes on a device whose memory the host cannot read: said once, by a program that has it. */
void forward_use(const forward_kind *kind);
/* OFL_ERROR_UNSUPPORTED: nothing in this program computes on it. */
ofl_status forward_choose(const ofl_device *device, const forward_kind **out);

/* Can this program run the model? OFL_ERROR_UNSUPPORTED names the architecture, tensor or type it does not know. Reads no weights. */
ofl_status forward_supports(const ofl_model *model);
/* Allocates KV and temporaries on the device: exactly the plan's kv_bytes and activation_bytes. threads, on the CPU: 0: the cores less one for
 * the link, at least 1. */
ofl_status forward_open(const ofl_model *model, const ofl_plan *plan, ofl_engine *engine, ofl_device *device, uint32_t threads,
                        forward **out);
void forward_close(forward *f);
/* Gives device memory back, between steps: temporaries for that many tokens and rows of logits, KV for that many tokens (in whole blocks),
 * none of them more than before. What KV holds stays if it keeps its size. After OFL_ERROR_DEVICE_MEMORY only forward_close is left. */
ofl_status forward_shrink(forward *f, uint32_t tokens_per_step, uint32_t logits_rows, uint64_t kv_tokens);
/* Runs a step and chooses. tokens: the ids of all shares, item after item (step.shape.tokens in all). rows: of the rows that wanted logits, in
 * item order, how each one's token is to be chosen among the ids below `usable`; then what was. NULL: nothing is chosen. */
ofl_status forward_step(forward *f, const ofl_step *step, const int32_t *tokens, uint32_t usable, row_choice *rows);
/* (rows that wanted logits, vocabulary) floats of the last step, in item order, borrowed until the next. On a GPU they are copied over. */
ofl_status forward_logits(forward *f, const float **out);
void forward_times_get(const forward *f, forward_times *out);
/* Measures this machine's compute for the workload of a plan, on the model's own first blocks and a part of its head. Takes one to two
 * seconds. */
ofl_status forward_measure(const forward_measure_job *job, ofl_compute_figures *out);

#endif
