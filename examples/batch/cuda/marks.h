/* Times within a stream, by events that are read after the step: how long its work stood still for bytes that had not arrived. */
#ifndef OFLOAD_BATCH_CUDA_MARKS_H
#define OFLOAD_BATCH_CUDA_MARKS_H

#include <stdbool.h>

#include <ofload/device.h>

typedef struct marks marks;

/* most: waits in a step. The stream's device is current. */
ofl_status marks_open(ofl_stream *stream, uint32_t most, marks **out);
void marks_close(marks *m);
void marks_begin(marks *m);
/* context: the marks. Before and after what may make the stream wait. Beyond `most` nothing is marked. */
void marks_wait(void *context, bool after);
/* Seconds of waiting since marks_begin; the stream's work is done. */
ofl_status marks_read(const marks *m, double *out);

#endif
