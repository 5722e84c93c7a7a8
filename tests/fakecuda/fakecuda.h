/* A stand-in for the CUDA Runtime's shared library, for tests of lib/device/cuda*.c on machines without a GPU: the simulated device behind
 * the runtime's names.
 *
 * Environment: OFLOAD_FAKECUDA_SPEC     a sim: spec, for each device (default: see fake_state.c)
 *              OFLOAD_FAKECUDA_DEVICES  how many (default 2; 0: a driver with no device)
 *              OFLOAD_FAKECUDA_DRIVER   what cudaDriverGetVersion says (default: the runtime's version; 0: no driver)
 *              OFLOAD_FAKECUDA_FAIL     CALL:N:CODE: the N-th CALL from now ("*": of all that may fail) returns CODE instead of doing
 * anything; 700 and the like are sticky: every call after it returns the same. Counting starts anew when the text changes. */
#ifndef OFLOAD_FAKECUDA_H
#define OFLOAD_FAKECUDA_H

#include <stdbool.h>

#include <cuda_runtime_api.h>

#include <ofload/device.h>

#define FAKE_DEVICES_MAX 8

struct CUstream_st {
    unsigned magic;
    int device;
    ofl_stream *stream;
};

struct CUevent_st {
    unsigned magic;
    int device;
    ofl_event *event;
};

/* fake_state.c */
int fake_count(void);
int fake_driver(void);
int fake_current(void);
void fake_make_current(int device);
ofl_device *fake_device(int index); /* opened at first use; NULL: the spec is wrong */
/* cudaSuccess, or the failure that is to happen in this call. Every entry point that may fail asks first. */
cudaError_t fake_fault(const char *call);
/* Remembers `error` as the thread's last one; returns it. */
cudaError_t fake_remember(cudaError_t error);
cudaError_t fake_last(bool clear);
/* A stream, an event or memory that exists now, or no longer. */
void fake_keep(void *made);
void fake_drop(const void *made);

/* For tests, exported beside the runtime's names. */
int fakecuda_live(void);  /* how many there are */
int fakecuda_fired(void); /* how many failures were injected */

#endif
