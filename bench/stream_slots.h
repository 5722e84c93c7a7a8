/* Simpler ways of streaming, for `designs`: whole layers that are copied into slots. */
#ifndef OFLOAD_BENCH_STREAM_SLOTS_H
#define OFLOAD_BENCH_STREAM_SLOTS_H

#include "stream_job.h"

enum { STREAM_LAYERS = 16, STREAM_WARM_UP = 2 };

typedef struct stream_design {
    const char *label;
    int slots, spread, overlapped; /* spread: resident layers over all, not the first ones; overlapped: copies beside the compute */
} stream_design;

extern const stream_design stream_designs[];
extern const size_t stream_design_count;
/* With so much device memory for layers and slots. Of a step: seconds, and bytes copied. */
ofl_status stream_slots_run(const streaming *job, const stream_design *design, double memory_bytes, const stream_work *work,
                            double *step_seconds_out, double *streamed_bytes_out);

#endif
