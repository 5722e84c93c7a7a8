#include "support/gguf_writer.h"

/* What a buffer of so many bytes was given: powers of two, so that long files take linear time. */
static size_t room_of(size_t bytes)
{
    size_t room = 64;
    while (room < bytes) room *= 2;
    return room;
}

static void append(unsigned char **to, size_t *used, const void *bytes, size_t count)
{
    if (*to == NULL || room_of(*used + count) != room_of(*used)) *to = realloc(*to, room_of(*used + count));
    assert_non_null(*to);
    if (bytes != NULL && count > 0) memcpy(*to + *used, bytes, count);
    else memset(*to + *used, 0, count);
    *used += count;
}

static void append_number(unsigned char **to, size_t *used, uint64_t value, unsigned bytes)
{
    unsigned char little[8];
    for (unsigned i = 0; i < bytes; i++) little[i] = (unsigned char)(value >> (8 * i));
    append(to, used, little, bytes);
}

static void append_text(unsigned char **to, size_t *used, const char *text)
{
    append_number(to, used, strlen(text), 8);
    append(to, used, text, strlen(text));
}

static void pad(unsigned char **to, size_t *used, uint64_t alignment)
{
    if (*used % alignment != 0) append(to, used, NULL, (size_t)(alignment - *used % alignment));
}

void gguf_start(gguf_writer *writer) { *writer = (gguf_writer){.version = 3, .alignment = 32}; }

void gguf_raw(gguf_writer *writer, const void *bytes, size_t count) { append(&writer->keys, &writer->keys_bytes, bytes, count); }
void gguf_raw_u64(gguf_writer *writer, uint64_t value, unsigned bytes) { append_number(&writer->keys, &writer->keys_bytes, value, bytes); }

void gguf_key(gguf_writer *writer, const char *key, uint32_t type)
{
    append_text(&writer->keys, &writer->keys_bytes, key);
    gguf_raw_u64(writer, type, 4);
    writer->key_count++;
}

void gguf_key_u32(gguf_writer *writer, const char *key, uint32_t value)
{
    gguf_key(writer, key, GGUF_U32);
    gguf_raw_u64(writer, value, 4);
}

void gguf_key_f32(gguf_writer *writer, const char *key, float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    gguf_key(writer, key, GGUF_F32);
    gguf_raw_u64(writer, bits, 4);
}

void gguf_key_bool(gguf_writer *writer, const char *key, int value)
{
    gguf_key(writer, key, GGUF_BOOL);
    gguf_raw_u64(writer, value != 0, 1);
}

void gguf_key_string(gguf_writer *writer, const char *key, const char *value)
{
    gguf_key(writer, key, GGUF_STRING);
    append_text(&writer->keys, &writer->keys_bytes, value);
}

static void start_array(gguf_writer *writer, const char *key, uint32_t type, uint64_t count)
{
    gguf_key(writer, key, GGUF_ARRAY);
    gguf_raw_u64(writer, type, 4);
    gguf_raw_u64(writer, count, 8);
}

void gguf_key_u32_array(gguf_writer *writer, const char *key, const uint32_t *values, uint64_t count)
{
    start_array(writer, key, GGUF_U32, count);
    for (uint64_t i = 0; i < count; i++) gguf_raw_u64(writer, values[i], 4);
}

void gguf_key_bool_array(gguf_writer *writer, const char *key, const unsigned char *values, uint64_t count)
{
    start_array(writer, key, GGUF_BOOL, count);
    gguf_raw(writer, values, count);
}

void gguf_key_string_array(gguf_writer *writer, const char *key, const char *const *values, uint64_t count)
{
    start_array(writer, key, GGUF_STRING, count);
    for (uint64_t i = 0; i < count; i++) append_text(&writer->keys, &writer->keys_bytes, values[i]);
}

void gguf_tensor_at(gguf_writer *writer, const char *name, uint32_t type, uint32_t n_dims, const uint64_t *dims, uint64_t offset)
{
    append_text(&writer->tensors, &writer->tensors_bytes, name);
    append_number(&writer->tensors, &writer->tensors_bytes, n_dims, 4);
    for (uint32_t i = 0; i < n_dims; i++) append_number(&writer->tensors, &writer->tensors_bytes, dims[i], 8);
    append_number(&writer->tensors, &writer->tensors_bytes, type, 4);
    append_number(&writer->tensors, &writer->tensors_bytes, offset, 8);
    writer->tensor_count++;
}

void gguf_tensor(gguf_writer *writer, const char *name, uint32_t type, uint32_t n_dims, const uint64_t *dims, const void *data,
                 size_t bytes)
{
    pad(&writer->data, &writer->data_bytes, writer->alignment);
    gguf_tensor_at(writer, name, type, n_dims, dims, writer->data_bytes);
    append(&writer->data, &writer->data_bytes, data, bytes);
}

unsigned char *gguf_bytes(const gguf_writer *writer, size_t *bytes_out)
{
    unsigned char *file = NULL;
    size_t used = 0;
    append(&file, &used, "GGUF", 4);
    append_number(&file, &used, writer->version, 4);
    append_number(&file, &used, writer->tensor_count, 8);
    append_number(&file, &used, writer->key_count, 8);
    append(&file, &used, writer->keys, writer->keys_bytes);
    append(&file, &used, writer->tensors, writer->tensors_bytes);
    pad(&file, &used, writer->alignment);
    append(&file, &used, writer->data, writer->data_bytes);
    if (bytes_out != NULL) *bytes_out = used;
    return file;
}

void gguf_save(const gguf_writer *writer, const char *path)
{
    size_t bytes;
    unsigned char *file = gguf_bytes(writer, &bytes);
    test_write(path, file, bytes);
    free(file);
}

void gguf_end(gguf_writer *writer)
{
    free(writer->keys);
    free(writer->tensors);
    free(writer->data);
    *writer = (gguf_writer){0};
}
