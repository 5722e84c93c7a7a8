/* The forward pass's insides, shared by what opens it, runs a step and measures. */
#ifndef OFLOAD_BATCH_FORWARD_STATE_H
#define OFLOAD_BATCH_FORWARD_STATE_H

#include "batch/forward.h"
#include "batch/kv.h"
#include "batch/matmul.h"
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

struct forward {
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
    forward_times times;
};

typedef struct forward_run { /* one step under way */
    forward *f;
    const ofl_step *given;
    uint32_t tokens, block;
    const float *vector; /* the norm that rows go through */
    uint64_t attention_ns;
} forward_run;

/* The block `block` over all tokens of the step; the head over its rows that want logits. The walk stands at their first matrix. */
ofl_status forward_block(forward_run *s);
ofl_status forward_head(forward_run *s);

/* Elements of the widest row that a product reads. */
uint64_t forward_widest(const ofl_model_shape *shape);
/* Attention's scale and the row sizes. */
void forward_derive(forward *f);

#endif
