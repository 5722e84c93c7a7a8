/* Writes GGUF files for tests: keys, then tensors, then gguf_save. Asserts on failure. Nothing is checked: hostile files are made with it
 * too. */
#ifndef OFLOAD_TEST_GGUF_WRITER_H
#define OFLOAD_TEST_GGUF_WRITER_H

#include "support/support.h"

typedef struct gguf_writer {
    uint32_t version;                     /* 3 after gguf_start */
    uint64_t alignment;                   /* 32; write general.alignment yourself when it is another */
    unsigned char *keys, *tensors, *data; /* as they will stand in the file */
    size_t keys_bytes, tensors_bytes, data_bytes;
    uint64_t key_count, tensor_count;
} gguf_writer;

enum {
    GGUF_U8,
    GGUF_I8,
    GGUF_U16,
    GGUF_I16,
    GGUF_U32,
    GGUF_I32,
    GGUF_F32,
    GGUF_BOOL,
    GGUF_STRING,
    GGUF_ARRAY,
    GGUF_U64,
    GGUF_I64,
    GGUF_F64
};

void gguf_start(gguf_writer *writer);
/* Key and type; the value follows through gguf_raw (or one of the calls below does all). */
void gguf_key(gguf_writer *writer, const char *key, uint32_t type);
void gguf_raw(gguf_writer *writer, const void *bytes, size_t count);
void gguf_raw_u64(gguf_writer *writer, uint64_t value, unsigned bytes);
void gguf_key_u32(gguf_writer *writer, const char *key, uint32_t value);
void gguf_key_f32(gguf_writer *writer, const char *key, float value);
void gguf_key_bool(gguf_writer *writer, const char *key, int value);
void gguf_key_string(gguf_writer *writer, const char *key, const char *value);
void gguf_key_u32_array(gguf_writer *writer, const char *key, const uint32_t *values, uint64_t count);
void gguf_key_bool_array(gguf_writer *writer, const char *key, const unsigned char *values, uint64_t count);
void gguf_key_string_array(gguf_writer *writer, const char *key, const char *const *values, uint64_t count);
/* dims[0] is contiguous. data NULL: `bytes` zeros. The offset is the next aligned one. */
void gguf_tensor(gguf_writer *writer, const char *name, uint32_t type, uint32_t n_dims, const uint64_t *dims, const void *data,
                 size_t bytes);
/* The same with any offset and no data. */
void gguf_tensor_at(gguf_writer *writer, const char *name, uint32_t type, uint32_t n_dims, const uint64_t *dims, uint64_t offset);
/* The whole file in memory (free() it), or written to a path. Both may be called again. */
unsigned char *gguf_bytes(const gguf_writer *writer, size_t *bytes_out);
void gguf_save(const gguf_writer *writer, const char *path);
void gguf_end(gguf_writer *writer);

#endif
