/* One point of the accuracy table: a plan for a made-up model, its forecast of a step, and the same step run again and again. */
#ifndef OFLOAD_BENCH_ACCURACY_RUN_H
#define OFLOAD_BENCH_ACCURACY_RUN_H

#include "made.h"

/* 109, 226 and 249 MB: many small layers, fewer large ones, a head as large as half of all blocks. */
typedef struct accuracy_shape { const char *name; made_shape shape; } accuracy_shape;
enum { ACCURACY_SHAPES = 3 };
extern const accuracy_shape accuracy_shapes[ACCURACY_SHAPES];

typedef struct accuracy_point {
    made_shape shape;
    double resident; /* share of the weights that the device has room for, the ring taken from it; 1: all */
    double link;
    uint32_t decoding, prompts, share; /* a step: so many sequences decode, so many more bring a share of a prompt */
} accuracy_point;

enum { ACCURACY_CONTEXT = 100 }; /* tokens that each decoding sequence holds */

typedef struct accuracy_settings {
    const void *weights;  /* behind every tensor */
    double seconds;       /* about how long the steps are measured */
    uint32_t products;    /* 1: real ones, on the cores of this machine; 0: kernels of the simulated device, that take modelled times */
    uint32_t threads;     /* of the products; 0: the driver's choice */
    uint32_t clock;       /* of the device: 0 wall, 1 virtual (kernels only) */
} accuracy_settings;

/* Seconds are a step's, the measured ones means of the middle half of the steps by their length. */
typedef struct accuracy_result {
    ofl_step_estimate forecast;
    double step, compute, wait, attention; /* as run; compute: of products the step without its waits for bytes, of kernels what the law says. Attention: of products */
    double gap;           /* between the end of a step and the beginning of the next */
    double streamed_bytes, probed_rate;    /* of a step; of the link */
    double memory_bytes;                   /* weights on the device, and the ring */
    double units, streamed_units;
    double busy, measuring_busy; /* of products: share of its own time that the computing thread had a core: in the steps, while compute was measured */
    double steps;
} accuracy_result;

ofl_status accuracy_run(const accuracy_point *point, const accuracy_settings *settings, accuracy_result *out);
/* What stands behind every tensor of these shapes: bf16 numbers about as large as weights are, of both signs, no zeros, no
 * denormals. Free it. */
ofl_status accuracy_weights_make(void **out);

#endif
