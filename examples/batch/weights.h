/* Walks the weights of a step in execution order through the engine: one unit is held at a time, released after the last part of it that
 * the walk needs. */
#ifndef OFLOAD_BATCH_WEIGHTS_H
#define OFLOAD_BATCH_WEIGHTS_H

#include <stdbool.h>

#include <ofload/engine.h>

typedef struct weights weights;

typedef struct weight_part { /* rows of a matrix, readable until weights_done */
    const void *data;
    uint32_t tensor;
    ofl_dtype dtype;
    uint64_t row_first, row_count, columns;
    bool last; /* of its tensor */
} weight_part;

typedef struct weight_vector { /* a norm, a bias, as stored; of a unit that is streamed whole: readable while that unit is held */
    const void *data;
    ofl_dtype dtype;
    uint64_t elements;
    bool stays; /* where it is, for good */
} weight_vector;

/* tensors: the matrices in the order in which every step reads them. stream: whose work reads them; NULL: the calling thread. */
ofl_status weights_open(const ofl_model *model, const ofl_plan *plan, ofl_engine *engine, ofl_device *device, ofl_stream *stream,
                        const uint32_t *tensors, uint32_t count, weights **out);
/* Rows of a matrix, or a whole vector, in the caller's memory. */
typedef struct weights_held {
    uint32_t tensor;
    uint64_t row_first, row_count;
    const void *data;
} weights_held;

/* A walk without an engine over what is held, borrowed; each entry is the last part of its matrix. weights_seek: the next entry. */
ofl_status weights_open_held(const ofl_model *model, const weights_held *held, uint32_t count, weights **out);
void weights_seek(weights *w, uint32_t at);
void weights_close(weights *w);
/* Start of a step: the walk begins anew. */
void weights_rewind(weights *w);
ofl_status weights_next(weights *w, weight_part *out);
ofl_status weights_done(weights *w);
/* Of a unit that is streamed whole, that unit is held then. */
ofl_status weights_vector(weights *w, uint32_t tensor, weight_vector *out);
/* Calls mark(context, false) before and mark(context, true) after each acquire of a unit of which something is streamed. */
void weights_watch(weights *w, void (*mark)(void *context, bool after), void *context);
/* After a failure: lets go of what is held. */
void weights_abandon(weights *w);
/* Nanoseconds spent in acquire since the last rewind. */
uint64_t weights_waited_ns(const weights *w);

#endif
