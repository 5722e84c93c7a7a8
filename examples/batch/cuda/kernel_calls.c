/* The launch functions: prepare, queue. */
#include "batch/cuda/kernel_launch.h"

#define LAUNCH(name, args_type)                                       \
    ofl_status kernel_##name(ofl_stream *stream, const args_type *args) \
    {                                                                 \
        kernel_launch launch;                                         \
        ofl_status status = kernel_prepare_##name(args, &launch);     \
        if (status != OFL_OK || launch.blocks == 0) return status;    \
        return kernel_queue(stream, &launch);                         \
    }
LAUNCH(embed, kernel_embed_args)
LAUNCH(expand, kernel_expand_args)
LAUNCH(norm, kernel_norm_args)
LAUNCH(gate, kernel_gate_args)
LAUNCH(add, kernel_add_args)
LAUNCH(rope, kernel_rope_args)
LAUNCH(turn, kernel_turn_args)
LAUNCH(attention, kernel_attention_args)
LAUNCH(merge_parts, kernel_merge_args)
LAUNCH(sample, kernel_sample_args)
