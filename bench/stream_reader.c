#include "stream_reader.h"

#include <math.h>
#include <time.h>

double stream_seconds(ofl_device *device) { return (double)ofl_device_now_ns(device) * 1e-9; }

/* The host waits until `due`; behind it already, it goes on at once. */
static void host_until(ofl_device *device, double due)
{
    double left = due - stream_seconds(device);
    if (left <= 0) return;
    struct timespec t = {(time_t)left, (long)((left - floor(left)) * 1e9)};
    (void)nanosleep(&t, NULL);
}

ofl_status stream_reader_open(ofl_device *device, int simulated, products *real, stream_reader *out)
{
    *out = (stream_reader){.device = device, .products = real};
    return simulated && real == NULL ? ofl_stream_create(device, &out->stream) : OFL_OK;
}

void stream_reader_close(stream_reader *r)
{
    if (r->stream == NULL) return;
    (void)ofl_stream_wait(r->device, r->stream);
    ofl_stream_destroy(r->device, r->stream);
}

ofl_status stream_reader_compute(const stream_reader *r, double seconds)
{
    if (r->stream != NULL) return ofl_sim_launch(r->device, r->stream, NULL, NULL, seconds);
    host_until(r->device, stream_seconds(r->device) + seconds);
    return OFL_OK;
}

ofl_status stream_reader_wait(const stream_reader *r) { return r->stream != NULL ? ofl_stream_wait(r->device, r->stream) : OFL_OK; }
