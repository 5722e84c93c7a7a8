/* The llama-family forward pass over an engine's units and paged KV on the device. Public headers only.
 * Threads: one at a time; products may use several inside. */
#ifndef OFLOAD_BATCH_FORWARD_H
#define OFLOAD_BATCH_FORWARD_H

#include <ofload/ofload.h>

typedef struct forward forward;

typedef struct forward_times { /* of the last step, seconds on the device's clock */
    double step, compute, wait, attention;
} forward_times;

/* Can this program run the model? OFL_ERROR_UNSUPPORTED names the architecture, tensor or type it does not know. Reads no weights. */
ofl_status forward_supports(const ofl_model *model);
/* Allocates KV and temporaries on the device: exactly the plan's kv_bytes and activation_bytes. threads 0: the cores less one for the link,
 * at least 1. */
ofl_status forward_open(const ofl_model *model, const ofl_plan *plan, ofl_engine *engine, ofl_device *device, uint32_t threads,
                        forward **out);
void forward_close(forward *f);
/* Gives device memory back, between steps: temporaries for that many tokens and rows of logits, KV for that many tokens (in whole blocks),
 * none of them more than before. What KV holds stays if it keeps its size. After OFL_ERROR_DEVICE_MEMORY only forward_close is left. */
ofl_status forward_shrink(forward *f, uint32_t tokens_per_step, uint32_t logits_rows, uint64_t kv_tokens);
/* Runs a step. tokens: the ids of all shares, item after item (step.shape.tokens in all). *logits_out: (rows that wanted logits,
 * vocabulary) floats, in item order, borrowed until the next step. */
ofl_status forward_step(forward *f, const ofl_step *step, const int32_t *tokens, const float **logits_out);
void forward_times_get(const forward *f, forward_times *out);

/* What is measured: steps of up to max_tokens tokens and max_rows rows of logits. */
typedef struct forward_measure_job {
    const ofl_model *model;
    ofl_device *device; /* its clock */
    ofl_compute_type compute_type;
    ofl_kv_type kv_type;
    uint32_t threads, max_tokens, max_rows;
} forward_measure_job;

/* Measures this machine's compute for the workload of a plan, on the model's own first blocks and a part of its head. Takes one to two
 * seconds. */
ofl_status forward_measure(const forward_measure_job *job, ofl_compute_figures *out);

#endif
