/* Simulated compute: kernels in a stream of the simulated device that compute nothing and take a time, by a made-up law that the planner has to
 * find by measuring, and no core of this machine. */
#ifndef OFLOAD_BENCH_ACCURACY_DEVICE_H
#define OFLOAD_BENCH_ACCURACY_DEVICE_H

#include <ofload/ofload.h>

typedef struct accuracy_device {
    ofl_device *device;
    ofl_stream *stream;
    uint32_t layers;
    double block_elements, head_elements; /* of matrices: of a block; of the head */
    double *seconds;                      /* of each of the plan's units in the step */
    double step_seconds;                  /* their sum */
} accuracy_device;

/* Close it after a failure as well. */
ofl_status accuracy_device_open(ofl_device *device, const ofl_model *model, accuracy_device *out);
void accuracy_device_close(accuracy_device *d);
/* By ofl_compute_measure, on the device's clock. */
ofl_status accuracy_device_measure(accuracy_device *d, const ofl_workload *work, ofl_compute_figures *out);
/* What each unit takes in such a step by the law. Added up from the slices, so that nothing of the planner's is believed. */
ofl_status accuracy_device_prepare(accuracy_device *d, const ofl_model *model, const ofl_plan *plan, const ofl_step_shape *shape);
/* Returns when all is computed. */
ofl_status accuracy_device_step(const accuracy_device *d, ofl_engine *engine, uint32_t units);

#endif
