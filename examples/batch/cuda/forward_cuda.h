/* The forward pass on a GPU, inside: shared by what opens it, runs a step and measures.
 *
 * A step is queued in one stream from end to end and waited for once, at its end: for each part of a matrix acquire → expand where it is
 * stored in another type, straight from the ring → product → release. Host and device meet in pinned memory that the device reads and
 * writes itself: a copy to the device would queue behind those of the weights. A kernel takes the step's tables over into device memory
 * at its beginning, where there is room for them; at its end the chosen tokens, and the candidates of rows that want log-probabilities,
 * are written to the host's side, and nothing else comes back.
 *
 * No CUDA graphs: some 30 launches a block of 5 µs each are 4 ms for 28 blocks, and they are queued while the device works on what was
 * queued before: for a model that is streamed a block takes 10 ms and more. Streamed parts lie elsewhere in each step, so their products
 * could be no part of a graph anyway. A small model that is resident as a whole may well wait for its launches, and a graph could help it:
 * not measured, and it is not what this driver is for.
 *
 * Bits: on a GPU they may differ between plans in the last places. cuBLAS chooses how a product is computed, and with it the order of its
 * sums, by the number of rows and by the workspace; a plan cuts matrices where it streams them, expands as many rows at a time as there is
 * room for, and may carry another workspace. Products of a fixed number of rows would not settle it: the last rows of a part are fewer.
 * The same plan gives the same bits each time. All else, kernels and the order in which they run, is the same whatever the placement; over
 * the stand-in, whose products do not look at the number of rows, tests hold it to the bit. */
#ifndef OFLOAD_BATCH_FORWARD_CUDA_H
#define OFLOAD_BATCH_FORWARD_CUDA_H

#include "batch/cuda/gemm.h"
#include "batch/cuda/kernels.h"
#include "batch/cuda/marks.h"
#include "batch/forward.h"
#include "batch/rope.h"
#include "batch/weights.h"

typedef enum cuda_vector { VECTOR_NORM, VECTOR_Q_BIAS, VECTOR_K_BIAS, VECTOR_V_BIAS, VECTOR_Q_NORM, VECTOR_K_NORM, VECTOR_COUNT } cuda_vector;

typedef struct cuda_room { /* device memory */
    float *logits;               // (logits rows, vocabulary)
    void *gemm_workspace;
    uint64_t gemm_bytes;
    void *expanded;              /* rows of a matrix as the products read them */
    uint64_t expanded_elements;
    float *residual;             // (tokens, hidden)
    float *wide;                 // (tokens, q + k + v) or (tokens, gate + up)
    void *inputs;                // (tokens, the widest row) of the compute type: what the next product reads
    float *tables;               // (tokens, rope_dim)
    float *vectors[VECTOR_COUNT]; /* of the block being computed, as float32 */
    float *partials;             // (partial_rows, head_dim + 2)
    uint8_t *step;               /* the step's tables; or the host's, by the device's address */
} cuda_room;

typedef struct cuda_exchange { /* pinned host memory, and the device's address of it: what a step needs, then what it brings */
    uint8_t *host, *device;
    uint64_t row_pointers, draws, frequencies, in_bytes, choices, tops, bytes; /* offsets, behind the step's tables */
} cuda_exchange;

typedef struct cuda_forward {
    forward base;
    const ofl_model *model;
    ofl_engine *engine;
    ofl_device *device;
    ofl_stream *stream;
    ofl_model_shape shape;
    ofl_plan_settings settings; /* and the next: the plan's, or less since forward_shrink */
    ofl_budget budget;
    uint32_t q, kv_row, tokens_tensor; /* elements of a token's queries and of its keys; the matrix whose rows are the tokens */
    ofl_dtype tokens_dtype;
    uint64_t logits_rows;              /* that fit */
    float epsilon, attention_scale;
    void *kv_memory, *activations;     /* on the device */
    cuda_room room;
    kernel_step_limits limits;
    kernel_step_layout layout;
    cuda_exchange exchange;
    kv_cache cache;
    rope turns;
    gemm *products;
    weights *walk;
    marks *marks;
    int ordinal;                       /* the runtime's number of the device */
    const void **token_rows;           /* host: where the step's embedding rows are */
    float *host_logits;                /* made when asked for */
    uint32_t rows;                     /* of logits, in the last step */
    forward_times times;
} cuda_forward;

typedef struct cuda_run { /* one step under way */
    cuda_forward *f;
    uint32_t tokens, rows, parts, merges, block;
    const float *vectors[VECTOR_COUNT]; /* of the block; NULL: it has none */
} cuda_run;

/* Queued. The block `block` over all tokens of the step; the head over its rows that want logits. The walk stands at their first matrix. */
ofl_status cuda_block(cuda_run *s);
ofl_status cuda_head(cuda_run *s);
/* Queued: the step's tables from the exchange into device memory, by a kernel that reads them there. */
ofl_status cuda_upload(const cuda_forward *f);
/* Queued: rope tables of the step's tokens. */
ofl_status cuda_rope(cuda_run *s);
/* Queued: tokens for the rows of logits, whose draws are in the exchange. */
ofl_status cuda_sample(cuda_run *s, uint32_t usable, bool tops);

/* Attention's scale and the row sizes. */
void cuda_derive(cuda_forward *f);
/* Lays activations and exchange out; what is left over is for partial results of long contexts. */
ofl_status cuda_lay_out(cuda_forward *f);
void cuda_free(cuda_forward *f, void **memory);

ofl_status cuda_supports(ofl_compute_type compute_type, ofl_kv_type kv_type, uint32_t head_dim);
ofl_status cuda_workload(const ofl_model *model, ofl_workload *w);
ofl_status cuda_open(const ofl_model *model, const ofl_plan *plan, ofl_engine *engine, ofl_device *device, uint32_t threads, forward **out);
void cuda_close(forward *base);
ofl_status cuda_shrink(forward *base, uint32_t tokens_per_step, uint32_t logits_rows, uint64_t kv_tokens);
ofl_status cuda_measure(const forward_measure_job *job, ofl_compute_figures *out);

#endif
