/* The wall clock: a worker thread a stream. Times are modelled on top of it: an operation starts when what it waits for was due, not when a
 * thread woke up, so the overshoot of sleeps does not add up. */
#include "device/sim.h"

#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <time.h>

#define SLICE_SECONDS 0.0005
#define SLICE_BYTES_MIN (UINT64_C(256) << 10)
/* A copy that the CPU could not keep up with is caught up from this far behind; beyond it the time is lost, or the link would burst far
 * above its rate. */
#define CATCH_UP_NS UINT64_C(20000000)
#define DELAY_NS_MAX 300000u /* of order=SEED */

void ofl_sim_wall_until(uint64_t ns)
{
    if (ofl_monotonic_ns() >= ns) return; /* without asking the kernel */
    struct timespec due = {.tv_sec = (time_t)(ns / 1000000000u), .tv_nsec = (long)(ns % 1000000000u)};
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &due, NULL) == EINTR) {}
}

/* Slice by slice, each at its own due time: no burst of the CPU, and the last byte lands when the link would have brought it. */
static void paced_copy(const sim_op *op, uint64_t start_ns, uint64_t end_ns)
{
    uint64_t slice = ofl_max_u64((uint64_t)(op->rate * SLICE_SECONDS), SLICE_BYTES_MIN);
    uint64_t first_ns = end_ns - (uint64_t)((double)op->bytes / op->rate * 1e9);
    for (uint64_t offset = 0; offset < op->bytes; offset += slice) {
        uint64_t due = first_ns + (uint64_t)((double)offset / op->rate * 1e9);
        ofl_sim_wall_until(ofl_max_u64(due, start_ns));
        memcpy((char *)op->to + offset, (const char *)op->from + offset, (size_t)ofl_min_u64(slice, op->bytes - offset));
    }
    ofl_sim_wall_until(end_ns);
}

static uint64_t run_copy(sim_stream *stream, const sim_op *op, uint64_t ready_ns)
{
    sim_device *device = stream->device;
    sim_engine *engine = &device->engines[op->direction];
    stream->ready_ns = ready_ns;
    stream->state = SIM_READY;
    while (engine->busy || ofl_sim_pick_copy(device, op->direction) != stream) (void)pthread_cond_wait(&device->changed, &device->mutex);
    stream->state = SIM_RUNNING;
    engine->busy = true;
    uint64_t start_ns = ofl_max_u64(ready_ns, engine->free_ns), end_ns = ofl_sim_later(start_ns, op->duration_ns);
    sim_unlock(device);
    paced_copy(op, start_ns, end_ns);
    uint64_t now_ns = ofl_monotonic_ns();
    sim_lock(device);
    if (now_ns > CATCH_UP_NS) end_ns = ofl_max_u64(end_ns, now_ns - CATCH_UP_NS);
    engine->free_ns = end_ns;
    engine->busy = false;
    return end_ns;
}

static uint64_t run_launch(sim_stream *stream, const sim_op *op, uint64_t ready_ns)
{
    sim_device *device = stream->device;
    uint64_t end_ns = ofl_sim_later(ready_ns, op->duration_ns);
    sim_unlock(device);
    if (op->function != NULL) op->function(op->context);
    ofl_sim_wall_until(end_ns);
    if (op->function != NULL) end_ns = ofl_max_u64(end_ns, ofl_monotonic_ns());
    sim_lock(device);
    return end_ns;
}

static void random_delay(sim_device *device)
{
    uint64_t ns = ofl_sim_random(device) % DELAY_NS_MAX;
    sim_unlock(device);
    ofl_sim_wall_until(ofl_monotonic_ns() + ns);
    sim_lock(device);
}

/* Carries the head out; the modelled time at which it was done. */
static uint64_t run_head(sim_stream *stream)
{
    sim_device *device = stream->device;
    const sim_op *op = stream->first;
    if (device->spec.order != 0) random_delay(device);
    uint64_t ready_ns = ofl_max_u64(op->submitted_ns, stream->done_ns);
    switch (op->kind) {
    case SIM_COPY: return run_copy(stream, op, ready_ns);
    case SIM_LAUNCH: return run_launch(stream, op, ready_ns);
    case SIM_RECORD: return ready_ns;
    case SIM_WAIT:
        while (!op->mark->reached) (void)pthread_cond_wait(&device->changed, &device->mutex);
        return ofl_max_u64(ready_ns, op->mark->reached_ns);
    }
    return ready_ns;
}

static void *work(void *argument)
{
    sim_stream *stream = argument;
    sim_device *device = stream->device;
    (void)prctl(PR_SET_TIMERSLACK, 1ul, 0ul, 0ul, 0ul); /* sleeps end nearer to their due time */
    sim_lock(device);
    for (;;) {
        while (stream->first == NULL && !stream->stopping) (void)pthread_cond_wait(&stream->submitted, &device->mutex);
        if (stream->first == NULL) break;
        ofl_sim_finish(stream, run_head(stream));
        /* A record behind it takes no time and is what is waited for: those who wait are woken once, and not into the mutex. */
        if (stream->first != NULL && stream->first->kind == SIM_RECORD) continue;
        sim_unlock(device);
        (void)pthread_cond_broadcast(&device->changed);
        sim_lock(device);
    }
    sim_unlock(device);
    return NULL;
}

/* The program's signals are for its own threads. */
static int start_without_signals(sim_stream *stream)
{
    sigset_t all, before;
    (void)sigfillset(&all);
    (void)pthread_sigmask(SIG_SETMASK, &all, &before);
    int error = pthread_create(&stream->thread, NULL, work, stream);
    (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
    return error;
}

ofl_status ofl_sim_wall_start(sim_stream *stream)
{
    int error = pthread_cond_init(&stream->submitted, NULL);
    if (error == 0) {
        error = start_without_signals(stream);
        if (error == 0) return OFL_OK;
        (void)pthread_cond_destroy(&stream->submitted);
    }
    return ofl_fail_code(OFL_ERROR_HOST_MEMORY, error, "simulated device: no thread for a stream: %s", strerror(error));
}

void ofl_sim_wall_stop(sim_stream *stream)
{
    sim_lock(stream->device);
    stream->stopping = true;
    (void)pthread_cond_signal(&stream->submitted);
    sim_unlock(stream->device);
    (void)pthread_join(stream->thread, NULL);
    (void)pthread_cond_destroy(&stream->submitted);
}
