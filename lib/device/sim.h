/* The simulated device, inside. One mutex guards everything; the two clocks differ in who carries operations out:
 * wall: a worker thread per stream (sim_wall.c); virtual: the calling thread, as discrete events (sim_virtual.c). */
#ifndef OFLOAD_LIB_DEVICE_SIM_H
#define OFLOAD_LIB_DEVICE_SIM_H

#include <pthread.h>

#include "base/base.h"
#include "device/backend.h"
#include "device/ledger.h"

typedef struct sim_spec {
    uint64_t vram_bytes, runtime_bytes, pinnable_bytes; /* pinnable: UINT64_MAX = no limit */
    double h2d, h2d_pageable, d2h;                      /* bytes per second */
    double start_seconds;
    uint64_t order;
    bool is_virtual;
} sim_spec;

ofl_status ofl_sim_spec_parse(const char *text, const char *whole, sim_spec *out);

/* One record of an event. Held by the event, by the record still queued and by each wait that took it. */
typedef struct sim_mark {
    struct sim_mark *next;
    uint64_t reached_ns;
    uint32_t references;
    bool reached;
} sim_mark;

typedef enum sim_kind { SIM_COPY, SIM_LAUNCH, SIM_WAIT, SIM_RECORD } sim_kind;
typedef struct sim_op {
    struct sim_op *next;
    sim_kind kind;
    uint64_t sequence; /* over all streams, in order of submission */
    uint64_t submitted_ns, duration_ns;
    /* SIM_COPY */
    ofl_direction direction;
    void *to;
    const void *from;
    uint64_t bytes;
    double rate;
    /* SIM_LAUNCH */
    void (*function)(void *);
    void *context;
    bool early; /* virtual: takes effect when it starts instead of when it ends */
    /* SIM_WAIT, SIM_RECORD */
    sim_mark *mark;
} sim_op;

/* Of the operation at a stream's head. */
typedef enum sim_state { SIM_QUEUED, SIM_HELD, SIM_READY, SIM_RUNNING } sim_state;

typedef struct sim_device sim_device;
typedef struct sim_stream {
    struct sim_stream *next;
    sim_device *device;
    sim_op *first, *last;
    sim_state state;
    uint64_t ready_ns; /* SIM_READY: since when */
    uint64_t due_ns;   /* SIM_HELD, SIM_RUNNING: until when (virtual) */
    uint64_t done_ns;  /* modelled end of the last operation carried out */
    uint64_t polled;   /* virtual: the device's `progress` when a query last found it unfinished */
    /* wall */
    pthread_t thread;
    pthread_cond_t submitted;
    bool stopping;
} sim_stream;

typedef struct sim_event {
    sim_mark *mark; /* last record; NULL: never recorded */
    uint64_t polled;
} sim_event;

/* One copy engine a direction. */
typedef struct sim_engine {
    bool busy;
    uint64_t free_ns; /* modelled end of its last copy */
} sim_engine;

struct sim_device {
    ofl_device base;
    sim_spec spec;
    pthread_mutex_t mutex;
    pthread_cond_t changed; /* an operation ended, a mark was reached, an engine fell free */
    ofl_ledger ledger;
    sim_stream *streams;
    sim_engine engines[2]; /* by direction */
    sim_op *spare_ops;
    sim_mark *spare_marks;
    uint64_t sequence;
    uint64_t random;     /* state */
    uint64_t now_ns;     /* virtual */
    uint64_t host_free_ns; /* modelled end of the host's last copy within its own memory */
    uint64_t progress;   /* grows when something is queued and when virtual time passes */
    uint64_t typical_ns; /* virtual, seeded: how long operations take */
    uint64_t hasty;      /* see ofl_sim_hasty */
};

static inline sim_device *sim_of(ofl_device *device) { return (sim_device *)(void *)device; }
static inline void sim_lock(sim_device *device) { (void)pthread_mutex_lock(&device->mutex); }
static inline void sim_unlock(sim_device *device) { (void)pthread_mutex_unlock(&device->mutex); }

/* How often memory was freed that a queued copy still used, or a stream destroyed that still had work. It is waited for here, as real
 * runtimes often do and need not: tests ask for none. */
uint64_t ofl_sim_hasty(ofl_device *device);

/* sim_memory.c */
ofl_status ofl_sim_memory(ofl_device *device, ofl_memory_info *out);
ofl_status ofl_sim_alloc(ofl_device *device, uint64_t bytes, void **out);
void ofl_sim_free(ofl_device *device, void *pointer);
ofl_status ofl_sim_host_alloc(ofl_device *device, uint64_t bytes, void **out);
void ofl_sim_host_free(ofl_device *device, void *pointer);
ofl_status ofl_sim_host_register(ofl_device *device, const void *pointer, uint64_t bytes);
ofl_status ofl_sim_host_unregister(ofl_device *device, const void *pointer);
ofl_status ofl_sim_host_address(ofl_device *device, const void *host, const void **device_out);
void ofl_sim_memory_drop(sim_device *device); /* frees what is left */

/* sim_queue.c: what both clocks share; device locked. */
uint64_t ofl_sim_random(sim_device *device);
uint64_t ofl_sim_later(uint64_t ns, uint64_t duration_ns); /* saturates */
uint64_t ofl_sim_now(sim_device *device);
sim_op *ofl_sim_op_take(sim_device *device, sim_kind kind); /* NULL: out of memory */
void ofl_sim_submit(sim_stream *stream, sim_op *op);
void ofl_sim_finish(sim_stream *stream, uint64_t done_ns); /* takes the head off; a record's mark is reached */
sim_stream *ofl_sim_pick_copy(sim_device *device, ofl_direction direction); /* ready longest; NULL: none */
bool ofl_sim_is_copied(const sim_device *device, const void *memory, uint64_t bytes); /* by a copy that is not done */
uint64_t ofl_sim_oldest(const sim_device *device); /* sequence of the oldest operation not done; UINT64_MAX: none */
sim_mark *ofl_sim_mark_take(sim_device *device);
void ofl_sim_mark_drop(sim_device *device, sim_mark *mark); /* NULL is allowed */
void ofl_sim_queue_drop(sim_device *device);

/* What the host waits for, device locked: all operations up to `sequence`, one stream, or one mark. */
typedef bool (*sim_done)(const sim_device *device, const void *what);
ofl_status ofl_sim_wait(sim_device *device, sim_done done, const void *what);
void ofl_sim_drain(sim_device *device); /* all that is queued now */

/* sim_wall.c */
ofl_status ofl_sim_wall_start(sim_stream *stream);
void ofl_sim_wall_until(uint64_t ns); /* sleeps */
void ofl_sim_wall_stop(sim_stream *stream); /* after its last operation; called unlocked */

/* sim_virtual.c; device locked. */
void ofl_sim_virtual_settle(sim_device *device);  /* starts what can start now */
bool ofl_sim_virtual_advance(sim_device *device); /* to the next event; false: there is none */
void ofl_sim_virtual_elapse(sim_device *device, uint64_t duration_ns);

#endif
