/* The forward pass's kernels on a GPU. A launch function each; all it does is to queue the kernel: no allocation, no wait, no copy, so a
 * stream that is being captured into a graph takes it too.
 *
 * Two sets of launch functions, one to be linked: kernels.cu (the GPU) and kernels_host.c, which runs the same bodies (bodies.h and what it
 * includes) on the CPU in the stream's order, so that the driver runs over a stand-in runtime. Tests only.
 *
 * Pointers are the device's: its memory, or pinned host memory by the address under which the device reads it (ofl_device_host_address).
 * The args themselves are copied by the call. What changes from step to step is read from device memory when the kernel runs: launch with
 * the largest sizes, and let `live` say how many there are this time.
 *     rows, tokens, parts   how many at most: the grid
 *     live                  where their number is, in device memory; NULL: all of them. For graphs, as the tests capture and replay them: the
 *                           driver queues each step anew and leaves it NULL
 * Strides are in elements of the array they belong to, from one row to the next. Matrices are rows of contiguous elements.
 *
 * Threads: as the stream's. The stream's device must be current for the calling thread (cudaSetDevice).
 * OFL_ERROR_ARGUMENT: sizes that no grid holds; OFL_ERROR_UNSUPPORTED: a type that the kernel does not know; OFL_ERROR_DEVICE_MEMORY,
 * _DEVICE_LOST, _RUNTIME: the launch failed. What goes wrong in a kernel shows when the stream is waited for. 0 rows at most: nothing is queued. */
#ifndef OFLOAD_BATCH_CUDA_KERNELS_H
#define OFLOAD_BATCH_CUDA_KERNELS_H

#include <ofload/device.h>
#include <ofload/front.h>

#include "batch/kv.h"

#ifdef __cplusplus
extern "C" {
#endif

#define KERNEL_ATTENTION_ROWS 16u /* query rows (tokens × query heads of a KV head) that share what is read of the cache */
#define KERNEL_TOPS_MOST 20u

/* ---- What a step is, in device memory: made by kernel_step_fill on the host, uploaded as one piece. ---- */

typedef struct kernel_counts { /* of this step: what `live` points to */
    uint32_t tokens, rows /* of logits */, parts, merges;
} kernel_counts;

typedef struct kernel_place { /* of a token of the step */
    uint32_t position;
    uint32_t blocks; /* index, in the step's block numbers, of its sequence's first one */
} kernel_place;

/* What one workgroup attends to, for one KV head: up to KERNEL_ATTENTION_ROWS ÷ group (at least one) consecutive tokens of a share over
 * positions from … to − 1. Decode shares with long contexts are cut into several parts, as long as there is room for their partial results;
 * all others have one. Where a context is cut depends on `split_positions` alone. */
typedef struct kernel_part {
    uint32_t token, tokens; /* of the step */
    uint32_t position;      /* of the first of them */
    uint32_t blocks;        /* as in kernel_place */
    uint32_t from, to;      /* multiples of KV_SPAN, but for the end of the sequence */
    uint32_t partial;       /* KERNEL_WHOLE: the result is written; else where in the partial results its first row goes */
    uint32_t unused;
} kernel_part;
#define KERNEL_WHOLE UINT32_MAX

typedef struct kernel_merge { /* a token whose context was cut */
    uint32_t token;
    uint32_t partial, parts; /* rows partial + (part × heads + head) */
} kernel_merge;

typedef struct kernel_step_limits {
    uint32_t tokens, sequences, rows; /* of a step at most: tokens, shares, rows of logits */
    uint32_t blocks;                  /* KV blocks of all running sequences: those of the cache */
    uint32_t block_tokens;
    uint32_t heads, kv_heads;
    uint32_t split_positions;         /* of a part of a cut context; a multiple of KV_SPAN; 0: contexts stay whole */
    uint64_t partial_rows;            /* room for partial results, each of kernel_partial_bytes; 0: contexts stay whole */
} kernel_step_limits;

typedef struct kernel_step_layout { /* offsets in bytes, all multiples of 16 */
    uint64_t counts;     /* kernel_counts */
    uint64_t places;     /* kernel_place (tokens) */
    uint64_t blocks;     /* uint32_t: block numbers */
    uint64_t row_tokens; /* uint32_t (rows): the token whose logits row r holds */
    uint64_t parts;      /* kernel_part (max_parts) */
    uint64_t merges;     /* kernel_merge (max_merges) */
    uint64_t bytes;
    uint32_t max_parts, max_merges; /* for the launches */
} kernel_step_layout;

/* Of one row of partial results: dim floats, the largest score, the sum. */
uint64_t kernel_partial_bytes(uint32_t dim);
ofl_status kernel_step_layout_make(const kernel_step_limits *limits, kernel_step_layout *out);
/* to: layout->bytes of host memory, 16-byte aligned. A step that has been checked; OFL_ERROR_ARGUMENT: it goes beyond the limits. */
ofl_status kernel_step_fill(const kernel_step_limits *limits, const kernel_step_layout *layout, const ofl_step *step, void *to);
/* OFL_ERROR_UNSUPPORTED: a KV type, or heads of a size, that attention on the GPU cannot do: an even number up to KV_MAX_DIM. */
ofl_status kernel_supports(ofl_kv_type type, uint32_t dim);

/* ---- Weights and rows ---- */

/* to[t] = the row that rows[t] points to, as float32: the embedding, gathered from where it lies. */
typedef struct kernel_embed_args {
    const void *const *rows; /* (tokens): each readable by the device */
    ofl_dtype dtype;         /* any that expand_knows */
    uint32_t columns;
    float *to;               /* (tokens, columns) */
    uint64_t to_stride;
    uint32_t tokens;
    const uint32_t *live;
} kernel_embed_args;
ofl_status kernel_embed(ofl_stream *stream, const kernel_embed_args *args);

/* Stored elements to bf16 (the nearest of the float32 value) or float32: the bits that expand_to_bf16 and expand_to_f32 make. Any
 * alignment of `from`; of `to`, 16 bytes are fastest. */
typedef struct kernel_expand_args {
    const void *from;
    ofl_dtype dtype;
    uint64_t elements; /* whole blocks: rows × columns */
    void *to;          /* uint16_t or float (elements) */
    ofl_compute_type to_type;
} kernel_expand_args;
ofl_status kernel_expand(ofl_stream *stream, const kernel_expand_args *args);

/* to[r] = from[index[r]] ÷ rms × weight, as the next product reads it. */
typedef struct kernel_norm_args {
    const float *from;
    uint64_t from_stride;
    const uint32_t *index; /* (rows): which row of `from`; NULL: row r */
    const float *weight;   /* (columns) */
    float epsilon;
    uint32_t columns;
    void *to;              /* (rows, columns) of to_type */
    uint64_t to_stride;
    ofl_compute_type to_type;
    uint32_t rows;
    const uint32_t *live;
} kernel_norm_args;
ofl_status kernel_norm(ofl_stream *stream, const kernel_norm_args *args);

/* to = silu(gate) × up */
typedef struct kernel_gate_args {
    const float *gate, *up; /* (rows, columns) */
    uint64_t stride;        /* of both */
    uint32_t columns;
    void *to;               /* (rows, columns) of to_type; not overlapping gate and up */
    uint64_t to_stride;
    ofl_compute_type to_type;
    uint32_t rows;
    const uint32_t *live;
} kernel_gate_args;
ofl_status kernel_gate(ofl_stream *stream, const kernel_gate_args *args);

/* to += from */
typedef struct kernel_add_args {
    float *to;            /* (rows, columns) */
    uint64_t to_stride;
    const float *from;
    uint64_t from_stride; /* 0: the same row for each, a bias */
    uint32_t columns;
    uint32_t rows;
    const uint32_t *live;
} kernel_add_args;
ofl_status kernel_add(ofl_stream *stream, const kernel_add_args *args);

/* ---- Attention ---- */

/* Each token's dim ÷ 2 cosines, then as many sines: rope_table's. */
typedef struct kernel_rope_args {
    const double *frequencies; /* (dim ÷ 2): those of struct rope */
    double magnitude;
    uint32_t dim;
    const kernel_place *places; /* (tokens) */
    float *tables;              /* (tokens, dim) */
    uint32_t tokens;
    const uint32_t *live;
} kernel_rope_args;
ofl_status kernel_rope(ofl_stream *stream, const kernel_rope_args *args);

/* New queries, keys and values: bias added, heads normed, rotated; the queries stay where they are, keys and values go to the cache.
 * cache: as kv_init made it, base on the device. A GPU's own order inside a span of 16 positions, of the same bytes:
 *     keys    turned over by pairs of elements, [pair][position][2]   (q8_0: before them the scales, [group of 32][position])
 *     values  [position][element]                                     (q8_0: before them the scales, [position][group of 32]) */
typedef struct kernel_turn_args {
    float *queries, *keys, *values; /* (tokens, heads × dim) and twice (tokens, kv_heads × dim); keys and values are left as they were */
    uint64_t stride;                /* of all three */
    const float *q_bias, *k_bias, *v_bias; /* a row each; NULL: none */
    const float *q_norm, *k_norm;          /* (dim); NULL: none */
    float epsilon;
    const float *tables;            /* of kernel_rope */
    uint32_t rope_dim;              /* ≤ the head's dim */
    ofl_rope_pairing pairing;
    uint32_t heads;                 /* of the queries */
    kv_cache cache;
    uint32_t layer;
    const kernel_place *places;     /* (tokens) */
    const uint32_t *blocks;         /* block numbers */
    uint32_t tokens;
    const uint32_t *live;
} kernel_turn_args;
ofl_status kernel_turn(ofl_stream *stream, const kernel_turn_args *args);

/* Causal grouped-query attention over the cache, in which the step's own keys and values are already. */
typedef struct kernel_attention_args {
    const float *queries; /* (tokens, heads × dim) */
    uint64_t query_stride;
    float scale;
    uint32_t heads;
    kv_cache cache;
    uint32_t layer;
    const uint32_t *blocks;
    const kernel_part *parts;
    void *to;             /* (tokens, heads × dim) of to_type */
    uint64_t to_stride;
    ofl_compute_type to_type;
    float *partials;      /* (partial_rows, dim + 2); NULL where no context is cut */
    uint32_t max_parts;
    const uint32_t *live; /* kernel_counts.parts */
} kernel_attention_args;
ofl_status kernel_attention(ofl_stream *stream, const kernel_attention_args *args);

/* Puts the parts of cut contexts together; after kernel_attention. Nothing is queued where max_merges is 0. */
typedef struct kernel_merge_args {
    const float *partials;
    const kernel_merge *merges;
    uint32_t heads, dim;
    void *to; /* as in kernel_attention */
    uint64_t to_stride;
    ofl_compute_type to_type;
    uint32_t max_merges;
    const uint32_t *live; /* kernel_counts.merges */
} kernel_merge_args;
ofl_status kernel_merge_parts(ofl_stream *stream, const kernel_merge_args *args);

/* ---- Sampling ---- */

typedef struct kernel_draw { /* how a row's token is chosen: `sampling`, and what is listed */
    double temperature;      /* 0: greedy */
    double top_p;            /* 1: off */
    double random;           /* [0, 1): decides where not greedy */
    uint32_t top_k;          /* 0: off */
    uint32_t tops;           /* likeliest ids wanted, up to KERNEL_TOPS_MOST */
} kernel_draw;

#define KERNEL_NAN 1u /* flag: the logit of an id that has a meaning is not a number */

typedef struct kernel_choice {
    int32_t token;  /* −1: the largest logit is no finite number, so that the row says nothing */
    uint32_t flags;
    float logit;    /* the token's; where there is none, the largest */
    float best;     /* the largest; NaN: no logit is a number */
    double log_sum; /* ln Σ e^(logit − best): the log-probability of an id is its logit − best − log_sum */
} kernel_choice;

typedef struct kernel_top { int32_t id; float logit; } kernel_top; /* id −1: there are no more */

/* A token for each row of logits: the one that sampling_pick takes, given the same number. Greedy is the same to the bit, and so is which
 * ids top_k leaves. A weight is e^((logit − best) ÷ temperature) by float32, in whole 2⁻⁴⁰, so that sums are exact in any order; a draw
 * within about 10⁻⁶ of a border between two tokens may fall to the other side than on the CPU. The likeliest ids come best first, the
 * lower id among equals, as logprobs_of lists them; NaN is never among them. */
typedef struct kernel_sample_args {
    const float *logits; /* (rows, vocabulary) */
    uint64_t stride;
    uint32_t usable;     /* ids from here on do not count */
    const kernel_draw *draws;   /* (rows) */
    kernel_choice *choices;     /* (rows) */
    kernel_top *tops;           /* (rows, tops_stride); NULL: nobody wants any */
    uint32_t tops_stride;
    uint32_t rows;
    const uint32_t *live;
} kernel_sample_args;
ofl_status kernel_sample(ofl_stream *stream, const kernel_sample_args *args);

#ifdef __cplusplus
}
#endif
#endif
