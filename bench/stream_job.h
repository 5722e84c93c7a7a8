/* The made-up model that `stream` and `designs` move, the device it is moved to, and a run of it through the engine. */
#ifndef OFLOAD_BENCH_STREAM_JOB_H
#define OFLOAD_BENCH_STREAM_JOB_H

#include <ofload/ofload.h>

#include "products.h"

typedef enum stream_source { FROM_PINNED, FROM_PAGEABLE, FROM_FILE } stream_source;
enum { STREAM_MATRICES = 7 };

typedef struct streaming {
    const char *device_spec;
    double link, resident_percent;
    uint64_t weights, part, ring, steps;
    uint32_t clock;          /* 1: virtual */
    int part_given;
    uint32_t source;         /* a stream_source */
    const char *folder;      /* for the file */
    /* from here on: stream_job_open's */
    char spec[256];
    ofl_device *device;
    int simulated;
    ofl_machine *machine;
    ofl_model *model;
    matrix_size matrices[STREAM_MATRICES]; /* of a layer, one after the other */
    char *data;              /* of all tensors, one after the other; NULL: in the file */
    char *path;
    uint64_t placed;         /* bytes of it that have a tensor */
    double file_rate;        /* measured; 0: nothing comes from a file */
    uint64_t layer_bytes, elements;
    double rate;             /* as probed */
} streaming;

/* What is computed in a step. */
typedef struct stream_work {
    double seconds;     /* as measured or modelled, of all weights */
    products *products; /* NULL: that time passes; else these */
} stream_work;

typedef struct measured {
    double step_seconds, streamed_bytes; /* a step */
    ofl_step_estimate forecast;
    double memory_bytes;                 /* weights and ring */
    double file_bytes;                   /* of the streamed */
    ofl_engine_stats stats;
    double call_seconds;                 /* acquire and release of a unit, on the host; 0: not measured */
    double lower_bound_bytes;
} measured;

ofl_status stream_job_open(streaming *s);
void stream_job_close(streaming *s);
ofl_status stream_job_run(const streaming *s, const stream_work *work, measured *out);
/* Seconds that the link alone takes with this memory. */
ofl_status stream_job_link_seconds(const streaming *s, double *out);

#endif
