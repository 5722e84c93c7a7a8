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
/* Runs a step. tokens: the ids of all shares, item after item (step.shape.tokens in all). *logits_out: (rows that wanted logits,
 * vocabulary) floats, in item order, borrowed until the next step. */
ofl_status forward_step(forward *f, const ofl_step *step, const int32_t *tokens, const float **logits_out);
void forward_times_get(const forward *f, forward_times *out);
uint32_t forward_threads(const forward *f);

/* Measures this machine's compute on this model's shapes and types (random weights, a few blocks' worth, no link) at a few token counts up
 * to max_tokens: the workload's compute_points, ascending; *count_io is the room and then the number. Takes about a second. */
ofl_status forward_measure(const ofl_model *model, ofl_compute_type compute_type, uint32_t threads, uint32_t max_tokens,
                           ofl_compute_point *points, uint32_t *count_io, double *attention_seconds_per_kv_token_out);

#endif
