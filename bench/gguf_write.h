/* A GGUF file (version 3), written front to back. */
#ifndef OFLOAD_BENCH_GGUF_WRITE_H
#define OFLOAD_BENCH_GGUF_WRITE_H

#include <stdint.h>
#include <stdio.h>

#include <ofload/model.h>

#define GGUF_ALIGNMENT 32u

typedef struct gguf_tensor {
    char name[64];
    ofl_dtype dtype;
    uint32_t n_dims;
    uint64_t dims[2];
    uint64_t bytes, offset; /* offset: set by gguf_tensors */
    double low, high;       /* what its values are between */
} gguf_tensor;

/* A failed write stays in ferror(file). Numbers are little-endian. */
void gguf_start(FILE *file, uint64_t tensor_count, uint64_t key_count);
void gguf_text(FILE *file, const char *key, const char *value);
void gguf_u32(FILE *file, const char *key, uint32_t value);
void gguf_f32(FILE *file, const char *key, float value);
void gguf_bool(FILE *file, const char *key, int value);
/* Items follow, `count` of them. */
void gguf_text_array(FILE *file, const char *key, uint64_t count);
void gguf_text_item(FILE *file, const char *value);
void gguf_i32_array(FILE *file, const char *key, uint64_t count);
void gguf_i32_item(FILE *file, int32_t value);
/* The tensor table and the padding behind it. Places the tensors one after another; returns the bytes of all data. */
uint64_t gguf_tensors(FILE *file, gguf_tensor *tensors, size_t count);

/* Random data of one tensor with its padding, the same for the same *state. F32, F16, BF16 and Q8_0. */
void gguf_random(FILE *file, const gguf_tensor *tensor, uint64_t *state);

#endif
