/* The forward pass on the CPU, inside: shared by what opens it, runs a step and measures. */
#ifndef OFLOAD_BATCH_FORWARD_CPU_H
#define OFLOAD_BATCH_FORWARD_CPU_H

#include "batch/cpu/matmul.h"
#include "batch/forward.h"
#include "batch/kv.h"
#include "batch/rope.h"
#include "batch/weights.h"

typedef struct forward_room { /* buffers in the device's activation memory; sizes in the order of ofl_activation_bytes */
    float *residual;          /* tokens × hidden */
    float *tables;            /* tokens × rope_dim: cosines and sines */
    float *wide;              /* tokens × (q, k, v and the attention's output; or gate and up; or a normed row) */
    void *inputs;             /* tokens, rounded up, × the widest row, of the compute type: what the next product reads */
    float *logits;            /* logits rows × vocabulary */
    float *last;              /* logits rows × hidden */
    void *workspace;
} forward_room;

typedef struct cpu_forward {
    forward base;
    const ofl_model *model;
    ofl_engine *engine;
    ofl_device *device;
    ofl_model_shape shape;
    ofl_plan_settings settings; /* and the next: the plan's, or less since forward_shrink */
    ofl_budget budget;
    uint32_t threads;
    uint32_t q, kv_row, tokens_tensor; /* elements of a token's queries and of its keys; the matrix whose rows are the tokens */
    uint64_t logits_rows;              /* that fit */
    float epsilon, attention_scale;
    void *kv_memory, *activations; /* on the device */
    forward_room room;
    float *vector;           /* host: the norm or bias being used */
    const void **token_rows; /* host: where the step's embedding rows are */
    kv_cache cache;
    rope turns;
    matmul *products;
    weights *walk;
    void *scratch;           /* host: of the choice of a token */
    forward_times times;
} cpu_forward;

typedef struct forward_run { /* one step under way */
    cpu_forward *f;
    const ofl_step *given;
    uint32_t tokens, block, rows; /* rows: of logits */
    const float *vector; /* the norm that rows go through */
    uint64_t attention_ns;
} forward_run;

/* The block `block` over all tokens of the step; the head over its rows that want logits. The walk stands at their first matrix. */
ofl_status forward_block(forward_run *s);
ofl_status forward_head(forward_run *s);

/* Attention's scale and the row sizes. */
void forward_derive(cpu_forward *f);

/* forward_kind's, in the files that do them. */
ofl_status cpu_open(const ofl_model *model, const ofl_plan *plan, ofl_engine *engine, ofl_device *device, uint32_t threads, forward **out);
void cpu_close(forward *base);
ofl_status cpu_shrink(forward *base, uint32_t tokens_per_step, uint32_t logits_rows, uint64_t kv_tokens);
ofl_status cpu_measure(const forward_measure_job *job, ofl_compute_figures *out);
/* A vector's elements (a norm, a bias) as floats. */
ofl_status cpu_vector(weights *w, uint32_t tensor, float *to);

#endif
