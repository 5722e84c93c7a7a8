/* What computes on the streamed weights: real products on the calling thread; or time that passes, on the simulated device as launches of
 * that length, on others as the host waiting. */
#ifndef OFLOAD_BENCH_STREAM_READER_H
#define OFLOAD_BENCH_STREAM_READER_H

#include <ofload/ofload.h>

#include "products.h"

typedef struct stream_reader {
    ofl_device *device;
    ofl_stream *stream; /* NULL: the host computes */
    products *products; /* NULL: time passes */
} stream_reader;

/* The device's own clock, in seconds. */
double stream_seconds(ofl_device *device);
ofl_status stream_reader_open(ofl_device *device, int simulated, products *real, stream_reader *out);
void stream_reader_close(stream_reader *r);
ofl_status stream_reader_compute(const stream_reader *r, double seconds);
/* Until all of it is done. */
ofl_status stream_reader_wait(const stream_reader *r);

#endif
