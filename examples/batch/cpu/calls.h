/* What the engine's calls cost a loop that computes on the calling thread: measured before there is a plan, on an engine of its own. */
#ifndef OFLOAD_BATCH_CALLS_H
#define OFLOAD_BATCH_CALLS_H

#include <ofload/ofload.h>

/* Seconds of acquire and release of a unit where nothing is waited for, and how much more where it is streamed: ofl_workload's figures of
 * that name. Needs about 3 MB of device memory for a moment; with less it measures on fewer units, down to some 0.5 MB. 0 where that is not
 * there either, and on a virtual clock, which does not count calls. */
ofl_status calls_measure(ofl_device *device, double *per_unit_out, double *per_piece_out);

#endif
