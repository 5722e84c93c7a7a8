/* Kernels and products are queued on the device that is current for the calling thread: which one it is, and to make one so. */
#ifndef OFLOAD_BATCH_DEVICE_CURRENT_H
#define OFLOAD_BATCH_DEVICE_CURRENT_H

#include <ofload/status.h>

ofl_status device_current(int *ordinal_out);
ofl_status device_enter(int ordinal);

#endif
