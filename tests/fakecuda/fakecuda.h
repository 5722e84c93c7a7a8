/* A stand-in for the CUDA Runtime's shared library, for tests of lib/device/cuda*.c on machines without a GPU: the simulated device behind
 * the runtime's names.
 *
 * Streams: those of cudaStreamNonBlocking, blocking ones, the legacy default stream (cudaStreamLegacy or NULL), which blocking streams and
 * it wait for each other, and the per-thread one. Capture: copies, fills and functions of the host's, and the errors of what a capture
 * does not allow; graphs of these run. There is no code for a device: kernels are registered, and none can be launched.
 *
 * Environment: OFLOAD_FAKECUDA_SPEC     a sim: spec, for each device (default: see fake_state.c)
 *              OFLOAD_FAKECUDA_DEVICES  how many (default 2; 0: a driver with no device)
 *              OFLOAD_FAKECUDA_DRIVER   what cudaDriverGetVersion says (default: the runtime's version; 0: no driver)
 *              CUDA_VISIBLE_DEVICES     numbers and UUIDs, as the driver reads it
 *              OFLOAD_FAKECUDA_PAGEABLE late: pageable memory is read or written when the copy runs, as on machines whose device reads it
 *              OFLOAD_FAKECUDA_DIRECT   1: the devices reach each other without the host (default 0)
 *              OFLOAD_FAKECUDA_FAIL     CALL:N:CODE: the N-th CALL from now ("*": of all that may fail) returns CODE instead of doing
 * anything; 700 and the like are sticky: every call after it returns the same. Counting starts anew when the text changes. */
#ifndef OFLOAD_FAKECUDA_H
#define OFLOAD_FAKECUDA_H

#include <stdatomic.h>
#include <stdbool.h>

#include <cuda_runtime_api.h>

#include <ofload/device.h>

#define FAKE_DEVICES_MAX 8
#define FAKE_PEER_RATE 2.79e9 /* bytes per second from one device to another */

/* A place in this library that stands for a call; the same name may have several. */
typedef struct fake_call {
    const char *name;
    struct fake_call *next;
    atomic_bool entered; /* in the list of those that were used */
    atomic_ulong count;
} fake_call;

/* fake_state.c */
bool fake_late(void); /* OFLOAD_FAKECUDA_PAGEABLE */
int fake_count(void);
int fake_driver(void);
bool fake_direct(void);
int fake_physical(int device); /* behind a visible device's number */
int fake_current(void);
void fake_make_current(int device);
ofl_device *fake_device(int index); /* opened at first use; NULL: the spec is wrong */
ofl_device *fake_opened(int index); /* NULL: not used yet */
/* cudaSuccess, or the failure that is to happen in this call. Every entry point that may fail asks first. */
cudaError_t fake_fault(fake_call *call);
/* Remembers `error` as the thread's last one; returns it. */
cudaError_t fake_remember(cudaError_t error);
cudaError_t fake_last(bool clear);
/* A stream, an event or memory that exists now, or no longer. */
void fake_keep(void *made);
void fake_drop(const void *made);

void fake_spun(bool spun); /* a wait for an event or a stream: by a thread that spins? */

/* What a failure of the simulated device is called here. */
cudaError_t fake_translate(ofl_status status, cudaError_t state);
/* The device that page-locked `host`, which every device may use; NULL: none did. */
ofl_device *fake_owner_of_host(const void *host);
/* Is it memory of that device? */
bool fake_is_device(ofl_device *device, const void *pointer);

/* Leaves with the failure that is to happen in this call. */
#define FAULT(call)                               \
    do {                                          \
        static fake_call here_ = {.name = (call)}; \
        cudaError_t fault_ = fake_fault(&here_);  \
        if (fault_ != cudaSuccess) return fault_; \
    } while (0)

/* For tests, exported beside the runtime's names. */
int fakecuda_live(void);  /* how many there are */
int fakecuda_fired(void); /* how many failures were injected */
unsigned long fakecuda_calls(const char *call); /* how often it was called; "*": all that may fail */
unsigned long fakecuda_spun(void); /* waits for events and streams that keep a processor busy */
int fakecuda_fault(fake_call *call); /* for other stand-ins: the code of the failure that is to happen in this call of theirs, or 0 */
uint64_t fakecuda_now_ns(void); /* device 0's clock */
unsigned long fakecuda_hasty(void); /* frees of memory that a copy still used, streams destroyed with work in them (ofl_sim_hasty) */

#endif
