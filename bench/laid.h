/* Weights laid out in host memory, larger than need be distinct: at first all of it is one generated block of random bf16 numbers, mapped
 * again and again; what a step reads is made memory of its own. So the whole model can be loaded from it, while the host holds what it
 * streams and nothing else. */
#ifndef OFLOAD_BENCH_LAID_H
#define OFLOAD_BENCH_LAID_H

#include <ofload/ofload.h>

typedef struct laid laid;

ofl_status laid_open(uint64_t bytes, laid **out);
void laid_close(laid *l);
const char *laid_data(const laid *l);
/* The pages of [offset, offset + bytes) become memory of their own with random numbers of their own, written by all processors. */
ofl_status laid_own(laid *l, uint64_t offset, uint64_t bytes);
/* All of it is the block again. */
ofl_status laid_share(laid *l);
/* ±0.008 to ±0.03, so that no product of it is denormal or overflows. bytes: a multiple of 8. */
void laid_fill(void *to, uint64_t bytes, uint64_t seed);

#endif
