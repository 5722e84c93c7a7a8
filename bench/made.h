/* Models and plans made up in memory, for benches that need shapes and no bytes. */
#ifndef OFLOAD_BENCH_MADE_H
#define OFLOAD_BENCH_MADE_H

#include <ofload/ofload.h>

typedef struct made_shape { uint32_t layers, hidden, heads, kv_heads, ffn, vocabulary, experts; } made_shape; /* experts 0: dense */

/* bf16, llama's tensors; with experts, three matrices of each in every layer. Its bytes must never be read. */
ofl_status made_model(const made_shape *shape, ofl_model **out);
/* The same, with these bytes behind every tensor: as long as the largest, and there as long as the model. */
ofl_status made_model_of(const made_shape *shape, const void *data, ofl_model **out);
/* So much device memory, a 12 GB/s link, the defaults for the rest. */
ofl_status made_machine(uint64_t vram_bytes, ofl_machine **out);

#endif
