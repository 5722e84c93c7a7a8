/* Models and plans made up in memory, for benches that need shapes and no bytes. */
#ifndef OFLOAD_BENCH_MADE_H
#define OFLOAD_BENCH_MADE_H

#include <ofload/ofload.h>

typedef struct made_shape { uint32_t layers, hidden, heads, kv_heads, ffn, vocabulary, experts; } made_shape; /* experts 0: dense */

/* What else there is to choose. */
typedef struct made_kind {
    ofl_dtype dtype;         /* of the matrices */
    uint32_t plain_ffn;      /* 1: up and down alone, no gate */
    uint32_t tied;           /* 1: no head of its own */
    uint32_t experts_used;   /* 0: 2 */
    uint64_t kv_elements;    /* of K, and likewise of V, of a token in a layer; 0: as the heads say */
    const void *data;        /* behind the tensors: */
    uint32_t laid;           /* 0: behind each; 1: they lie there one after the other, each from a whole page on */
} made_kind;

ofl_status made_model_kind(const made_shape *shape, const made_kind *kind, ofl_model **out);
/* Of all tensors as they are laid. */
uint64_t made_bytes(const made_shape *shape, const made_kind *kind);

/* bf16, llama's tensors; with experts, three matrices of each in every layer. Its bytes must never be read. */
ofl_status made_model(const made_shape *shape, ofl_model **out);
/* The same, with these bytes behind every tensor: as long as the largest, and there as long as the model. */
ofl_status made_model_of(const made_shape *shape, const void *data, ofl_model **out);
/* So much device memory, a 12 GB/s link, the defaults for the rest. */
ofl_status made_machine(uint64_t vram_bytes, ofl_machine **out);

#endif
