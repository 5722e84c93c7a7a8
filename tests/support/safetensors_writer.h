/* Writes safetensors files and Hugging Face folders for tests. Asserts on failure; any header text can be written, so hostile files too. */
#ifndef OFLOAD_TEST_SAFETENSORS_WRITER_H
#define OFLOAD_TEST_SAFETENSORS_WRITER_H

#include "support/support.h"

typedef struct safetensors_writer {
    char *header; /* JSON so far, without the closing brace */
    size_t header_bytes;
    unsigned char *data;
    size_t data_bytes;   /* kept in memory */
    uint64_t hole_bytes; /* after them: a hole in the file, read as zeros */
} safetensors_writer;

void safetensors_start(safetensors_writer *writer);
/* shape as in the file: the last dimension is contiguous. data NULL: zeros, as a hole; all tensors after a hole must be holes too. */
void safetensors_tensor(safetensors_writer *writer, const char *name, const char *dtype, uint32_t n_dims, const uint64_t *shape,
                        const void *data, uint64_t bytes);
/* An entry of any kind: text is JSON `"name":{…}`. */
void safetensors_entry(safetensors_writer *writer, const char *text);
void safetensors_save(const safetensors_writer *writer, const char *path);
void safetensors_end(safetensors_writer *writer);
/* Length field, header text and data_bytes of zeros, as given. */
void safetensors_save_raw(const char *path, uint64_t length_field, const char *header, size_t header_bytes, uint64_t data_bytes);

/* Makes test_folder()/name and returns its path (static buffer as test_path). */
const char *test_make_folder(const char *name);
void test_write_text(const char *folder, const char *name, const char *text);

#endif
