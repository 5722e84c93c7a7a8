/* Between the launch functions and what runs the bodies: a kernel with its args, checked, and its grid. */
#ifndef OFLOAD_BATCH_KERNEL_LAUNCH_H
#define OFLOAD_BATCH_KERNEL_LAUNCH_H

#include "batch/cuda/attention_bodies.h"
#include "batch/cuda/expand_bodies.h"
#include "batch/cuda/rows_bodies.h"
#include "batch/cuda/sample_bodies.h"

/* X(name, threads, kind): body_name(const kind_job *, body_group, kind_shared *) */
#define KERNEL_LIST(X)                                \
    X(embed, EMBED_THREADS, embed)                    \
    X(expand, EXPAND_THREADS, expand)                 \
    X(norm, NORM_THREADS, norm)                       \
    X(gate, GATE_THREADS, gate)                       \
    X(add, ADD_THREADS, add)                          \
    X(rope, ROPE_THREADS, rope)                       \
    X(turn, TURN_THREADS, turn)                       \
    X(attention_f32, ATTENTION_THREADS, attention)    \
    X(attention_f16, ATTENTION_THREADS, attention)    \
    X(attention_bf16, ATTENTION_THREADS, attention)   \
    X(attention_q8_0, ATTENTION_THREADS, attention)   \
    X(merge, MERGE_THREADS, merge)                    \
    X(sample, SAMPLE_THREADS, sample)

#define KERNEL_ID(name, threads, kind) KERNEL_ID_##name,
typedef enum kernel_id { KERNEL_LIST(KERNEL_ID) KERNEL_IDS } kernel_id;
#undef KERNEL_ID

typedef union kernel_job {
    embed_job embed;
    expand_job expand;
    norm_job norm;
    gate_job gate;
    add_job add;
    rope_job rope;
    turn_job turn;
    attention_job attention;
    merge_job merge;
    sample_job sample;
} kernel_job;

typedef struct kernel_launch {
    kernel_id id;
    uint32_t blocks;       /* workgroups; 0: nothing to do */
    uint32_t shared_bytes; /* of a workgroup */
    kernel_job job;
} kernel_launch;

#ifdef __cplusplus
extern "C" {
#endif

ofl_status kernel_prepare_embed(const kernel_embed_args *args, kernel_launch *out);
ofl_status kernel_prepare_expand(const kernel_expand_args *args, kernel_launch *out);
ofl_status kernel_prepare_norm(const kernel_norm_args *args, kernel_launch *out);
ofl_status kernel_prepare_gate(const kernel_gate_args *args, kernel_launch *out);
ofl_status kernel_prepare_add(const kernel_add_args *args, kernel_launch *out);
ofl_status kernel_prepare_rope(const kernel_rope_args *args, kernel_launch *out);
ofl_status kernel_prepare_turn(const kernel_turn_args *args, kernel_launch *out);
ofl_status kernel_prepare_attention(const kernel_attention_args *args, kernel_launch *out);
ofl_status kernel_prepare_merge_parts(const kernel_merge_args *args, kernel_launch *out);
ofl_status kernel_prepare_sample(const kernel_sample_args *args, kernel_launch *out);

/* kernels.cu or kernels_host.c: puts it into the stream. */
ofl_status kernel_queue(ofl_stream *stream, const kernel_launch *launch);
/* Runs it on the CPU now. backwards: threads and workgroups from the last to the first, which must make no difference. false: a
 * barrier is missing between two phases of a body. */
bool kernel_run(const kernel_launch *launch, bool backwards);

#ifdef __cplusplus
}
#endif
#endif
