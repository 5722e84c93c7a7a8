#include "gguf_write.h"

#include <string.h>

#include "bench.h"

enum { KIND_U32 = 4, KIND_I32 = 5, KIND_F32 = 6, KIND_BOOL = 7, KIND_TEXT = 8, KIND_ARRAY = 9 };

static void put(FILE *file, uint64_t value, size_t bytes)
{
    unsigned char raw[8];
    for (size_t i = 0; i < bytes; i++) raw[i] = (unsigned char)(value >> (8 * i));
    (void)fwrite(raw, 1, bytes, file);
}

static void put_text(FILE *file, const char *text)
{
    put(file, strlen(text), 8);
    (void)fputs(text, file);
}

static void put_key(FILE *file, const char *key, uint32_t kind)
{
    put_text(file, key);
    put(file, kind, 4);
}

static uint32_t bits_of(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

void gguf_start(FILE *file, uint64_t tensor_count, uint64_t key_count)
{
    (void)fputs("GGUF", file);
    put(file, 3, 4);
    put(file, tensor_count, 8);
    put(file, key_count, 8);
}

void gguf_text(FILE *file, const char *key, const char *value)
{
    put_key(file, key, KIND_TEXT);
    put_text(file, value);
}

void gguf_u32(FILE *file, const char *key, uint32_t value)
{
    put_key(file, key, KIND_U32);
    put(file, value, 4);
}

void gguf_f32(FILE *file, const char *key, float value)
{
    put_key(file, key, KIND_F32);
    put(file, bits_of(value), 4);
}

void gguf_bool(FILE *file, const char *key, int value)
{
    put_key(file, key, KIND_BOOL);
    put(file, value != 0, 1);
}

static void put_array(FILE *file, const char *key, uint32_t kind, uint64_t count)
{
    put_key(file, key, KIND_ARRAY);
    put(file, kind, 4);
    put(file, count, 8);
}

void gguf_text_array(FILE *file, const char *key, uint64_t count) { put_array(file, key, KIND_TEXT, count); }
void gguf_text_item(FILE *file, const char *value) { put_text(file, value); }
void gguf_i32_array(FILE *file, const char *key, uint64_t count) { put_array(file, key, KIND_I32, count); }
void gguf_i32_item(FILE *file, int32_t value) { put(file, (uint32_t)value, 4); }

static uint64_t padded(uint64_t bytes) { return (bytes + GGUF_ALIGNMENT - 1) / GGUF_ALIGNMENT * GGUF_ALIGNMENT; }

static void pad(FILE *file, uint64_t bytes)
{
    for (uint64_t i = bytes; i < padded(bytes); i++) (void)fputc(0, file);
}

uint64_t gguf_tensors(FILE *file, gguf_tensor *tensors, size_t count)
{
    uint64_t offset = 0;
    for (size_t i = 0; i < count; i++) {
        gguf_tensor *t = &tensors[i];
        t->offset = offset;
        offset += padded(t->bytes);
        put_text(file, t->name);
        put(file, t->n_dims, 4);
        for (uint32_t d = 0; d < t->n_dims; d++) put(file, t->dims[d], 8);
        put(file, (uint32_t)t->dtype, 4);
        put(file, t->offset, 8);
    }
    pad(file, (uint64_t)ftello(file));
    return offset;
}

/* To the nearest, halves up; values below the smallest normal number become 0, those made here are never above the largest. */
static uint16_t to_half(float value)
{
    uint32_t bits = bits_of(value), sign = bits >> 16 & 0x8000, magnitude = bits & 0x7FFFFFFF;
    if (magnitude < 0x38800000) return (uint16_t)sign;
    return (uint16_t)(sign | ((magnitude - 0x38000000 + 0x1000) >> 13));
}

static uint16_t to_bfloat(float value) { return (uint16_t)((bits_of(value) + 0x8000) >> 16); }

/* `count` values; four come from one number. */
static size_t fill_values(unsigned char *to, const gguf_tensor *t, uint64_t count, uint64_t *state)
{
    size_t width = t->dtype == OFL_DTYPE_F32 ? 4 : 2;
    uint64_t bits = 0;
    for (uint64_t i = 0; i < count; i++, bits >>= 16) {
        if (i % 4 == 0) bits = bench_random(state);
        float value = (float)(t->low + (t->high - t->low) * (double)(bits & 0xFFFF) / 65535.0);
        uint32_t raw = width == 4 ? bits_of(value) : t->dtype == OFL_DTYPE_F16 ? to_half(value) : to_bfloat(value);
        memcpy(to + i * width, &raw, width); /* little-endian machines only, as the library itself */
    }
    return (size_t)count * width;
}

/* Blocks of a half scale and 32 signed bytes. */
static size_t fill_q8(unsigned char *to, const gguf_tensor *t, uint64_t count, uint64_t *state)
{
    uint16_t scale = to_half((float)(t->high / 127));
    unsigned char *at = to;
    for (uint64_t block = 0; block < count / 32; block++, at += 34) {
        memcpy(at, &scale, 2);
        for (int i = 0; i < 4; i++) {
            uint64_t bits = bench_random(state);
            memcpy(at + 2 + 8 * i, &bits, 8);
        }
    }
    return (size_t)(at - to);
}

void gguf_random(FILE *file, const gguf_tensor *tensor, uint64_t *state)
{
    unsigned char chunk[4096 * 4];
    uint64_t left = tensor->dims[0] * (tensor->n_dims > 1 ? tensor->dims[1] : 1);
    while (left > 0 && !ferror(file)) {
        uint64_t count = left < 4096 ? left : 4096;
        size_t bytes = tensor->dtype == OFL_DTYPE_Q8_0 ? fill_q8(chunk, tensor, count, state) : fill_values(chunk, tensor, count, state);
        (void)fwrite(chunk, 1, bytes, file);
        left -= count;
    }
    pad(file, tensor->bytes);
}
