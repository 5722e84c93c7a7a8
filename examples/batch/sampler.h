/* Picks the next token of one request; each request has its own generator, so neighbours never matter. */
#ifndef OFLOAD_BATCH_SAMPLER_H
#define OFLOAD_BATCH_SAMPLER_H

#include <stdint.h>

typedef struct sampling { /* of one token */
    double temperature; /* 0: greedy */
    double top_p;       /* 1: off */
    uint32_t top_k;     /* 0: off */
    double random;      /* in [0, 1): decides where not greedy */
} sampling;

typedef struct sampler {
    double temperature, top_p;
    uint32_t top_k;
    uint64_t state; /* the generator */
} sampler;

void sampler_init(sampler *s, double temperature, double top_p, uint32_t top_k, uint64_t seed);
/* How the next token is to be chosen; the same again until sampler_advance, so that a step may be run a second time. */
sampling sampler_next(const sampler *s);
void sampler_advance(sampler *s);
/* logits (vocabulary); only ids below `usable` count. scratch: `usable` × 8 bytes, the caller's. Greedy: the lowest id among equals.
 * −1: the largest is no finite number, so that the row says nothing. */
int32_t sampling_pick(const sampling *how, const float *logits, uint32_t usable, void *scratch);

#endif
