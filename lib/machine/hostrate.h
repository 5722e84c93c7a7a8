/* The rate at which this computer's processors read its memory. */
#ifndef OFLOAD_LIB_MACHINE_HOSTRATE_H
#define OFLOAD_LIB_MACHINE_HOSTRATE_H

#include "base/base.h"

/* A thread for each processor that the calling thread may use, all reading their parts of a large array at once: the sum of their rates, in
 * bytes per second. room_bytes: host memory that may be used; 0 is returned where an array larger than caches has no room.
 * OFL_ERROR_HOST_MEMORY. */
ofl_status ofl_host_rate_measure(uint64_t room_bytes, double *bytes_per_second_out);

#endif
