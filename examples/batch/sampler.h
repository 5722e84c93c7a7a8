/* Picks the next token of one request; each request has its own generator, so neighbours never matter. */
#ifndef OFLOAD_BATCH_SAMPLER_H
#define OFLOAD_BATCH_SAMPLER_H

#include <stdint.h>

typedef struct sampler {
    double temperature; /* 0: greedy */
    double top_p;       /* 1: off */
    uint32_t top_k;     /* 0: off */
    uint64_t state;     /* the generator */
} sampler;

void sampler_init(sampler *s, double temperature, double top_p, uint32_t top_k, uint64_t seed);
/* logits (vocabulary); only ids below `usable` count. scratch: `usable` × 8 bytes, the caller's. Greedy: the lowest id among equals. */
int32_t sampler_pick(sampler *s, const float *logits, uint32_t usable, void *scratch);

#endif
