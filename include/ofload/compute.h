/* Times the caller's own computation before a plan is made, so that the plan's forecast rests on it: ofl_workload's compute_points,
 * head_points and attention figures. Works with whatever computes (kernels in a stream, or the calling thread), on the device's clock.
 *
 *     ofl_compute_figures figures = {.struct_size = sizeof figures};
 *     ofl_compute_measure(device, &probe, &figures);
 *     ofl_compute_use(&figures, &workload);
 *     ofl_plan_make(model, machine, &workload, &plan);
 *
 * Nothing of the plan is needed for it: the callback computes on memory of its own. What it computes with should be as in a step: real
 * types and shapes, real or lifelike numbers (zeros and denormals are not), and the next block's weights at each call, so that caches hold
 * no more of them than in a step.
 *
 * Threads: one call at a time for a device and a probe. */
#ifndef OFLOAD_COMPUTE_H
#define OFLOAD_COMPUTE_H

#include <ofload/device.h>
#include <ofload/plan.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Most points of each kind. */
#define OFL_COMPUTE_POINTS_MOST 24u

/* What a run computes. */
typedef enum ofl_compute_part { OFL_COMPUTE_BLOCK, OFL_COMPUTE_HEAD } ofl_compute_part;

/* What is to be computed once. */
typedef struct ofl_compute_run {
    uint32_t struct_size;
    ofl_compute_part part;   /* one transformer block with its attention, or the final norm and the output head */
    uint32_t tokens;         /* at most max_tokens; head: rows of logits, at most max_rows, and the other counts are 0 */
    uint32_t decoding;       /* so many of them come first, each of a sequence of its own */
    uint32_t share_tokens;   /* the rest are shares of prompts, of a sequence each and so many tokens, the last one of what is left */
    uint32_t context_tokens; /* that each sequence holds before its tokens; with these at most the probe's context_tokens */
} ofl_compute_run;

/* What is to be timed, and how. */
typedef struct ofl_compute_probe {
    uint32_t struct_size;
    uint32_t block_count;    /* of the model: attention is counted for so many */
    /* Computes what `run` says. With a stream: queues it there. A failure ends the measurement and is forwarded. */
    ofl_status (*run)(void *context, const ofl_compute_run *run);
    void *context;
    ofl_stream *stream;      /* NULL: the call returns when all is computed */
    double block_elements;   /* weight elements (rows × columns of matrices) that a run of a block reads; where blocks differ: the mean */
    double head_elements;    /* likewise; 0: the head is not measured */
    uint32_t max_tokens;     /* most tokens in a step, of prompts and of answers */
    uint32_t max_rows;       /* most rows of logits */
    uint32_t context_tokens; /* most of a sequence, 64 or more: attention is measured up to there and grows evenly beyond; 500 are enough */
    uint32_t token_step;     /* products take so many tokens at a time, so time steps up after each multiple; 0 or 1: it does not */
    double seconds;          /* about how long it may take; 0: 1.5. Each run is timed 3 to 9 times, the median counts */
} ofl_compute_probe;

/* What came of it. */
typedef struct ofl_compute_figures {
    uint32_t struct_size;
    uint32_t point_count, head_point_count;
    ofl_compute_point points[OFL_COMPUTE_POINTS_MOST], head_points[OFL_COMPUTE_POINTS_MOST];
    double attention_seconds_per_kv_token; /* as in ofl_workload, like the next one */
    double prefill_attention_seconds_per_kv_token;
    double host_seconds_per_unit, host_seconds_per_piece; /* likewise; 0 from ofl_compute_measure, since calls are the loop's own */
} ofl_compute_figures;

/* Runs the callback some hundred times, once or a few times per number of tokens in a round. Model of a block with n tokens:
 *   seconds = block_elements × points(n) + (Σ over decoding tokens of context × per_kv_token + the same of prompts) ÷ block_count
 * where a token's context counts itself. Points are measured with up to 64 tokens decoding, the rest in shares of prompts. Attention is
 * found from two contexts of the same tokens, so that products cancel; below what the clock shows it becomes 1e-15.
 * OFL_ERROR_ARGUMENT; OFL_ERROR_STATE: a run took no time on the device's clock; else what the callback or the device returned. */
OFL_API ofl_status ofl_compute_measure(ofl_device *device, const ofl_compute_probe *probe, ofl_compute_figures *out);
/* The workload's measured compute becomes that of the figures, which it borrows: they must outlive its use. OFL_ERROR_ARGUMENT: none of
 * either, or a wrong struct_size; the workload stays as it is. */
OFL_API ofl_status ofl_compute_use(const ofl_compute_figures *figures, ofl_workload *workload);

#ifdef __cplusplus
}
#endif
#endif
