#include "support/safetensors_writer.h"

#include <inttypes.h>
#include <sys/stat.h>
#include <unistd.h>

static void append(char **to, size_t *used, const void *bytes, size_t count)
{
    size_t power = 64; /* grows at powers of two, so that long headers take linear time */
    while (power < *used + 1) power *= 2;
    if (*to == NULL || *used + count + 1 > power) {
        while (power < *used + count + 1) power *= 2;
        *to = realloc(*to, power);
        assert_non_null(*to);
    }
    memcpy(*to + *used, bytes, count);
    *used += count;
    (*to)[*used] = '\0';
}

void safetensors_start(safetensors_writer *writer) { *writer = (safetensors_writer){0}; }

void safetensors_entry(safetensors_writer *writer, const char *text)
{
    append(&writer->header, &writer->header_bytes, writer->header_bytes == 0 ? "{" : ",", 1);
    append(&writer->header, &writer->header_bytes, text, strlen(text));
}

void safetensors_tensor(safetensors_writer *writer, const char *name, const char *dtype, uint32_t n_dims, const uint64_t *shape,
                        const void *data, uint64_t bytes)
{
    char text[1024];
    uint64_t start = writer->data_bytes + writer->hole_bytes;
    int used = snprintf(text, sizeof text, "\"%s\":{\"dtype\":\"%s\",\"shape\":[", name, dtype);
    for (uint32_t i = 0; i < n_dims; i++)
        used += snprintf(text + used, sizeof text - (size_t)used, "%s%" PRIu64, i > 0 ? "," : "", shape[i]);
    (void)snprintf(text + used, sizeof text - (size_t)used, "],\"data_offsets\":[%" PRIu64 ",%" PRIu64 "]}", start, start + bytes);
    safetensors_entry(writer, text);
    if (data == NULL) {
        writer->hole_bytes += bytes;
        return;
    }
    assert_int_equal(writer->hole_bytes, 0);
    char *grown = realloc(writer->data, writer->data_bytes + bytes + 1);
    assert_non_null(grown);
    memcpy(grown + writer->data_bytes, data, bytes);
    writer->data = (unsigned char *)grown;
    writer->data_bytes += bytes;
}

static void save(const char *path, uint64_t length_field, const void *header, size_t header_bytes, const void *data, size_t data_bytes,
                 uint64_t hole_bytes)
{
    unsigned char length[8];
    for (unsigned i = 0; i < 8; i++) length[i] = (unsigned char)(length_field >> (8 * i));
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(length, 1, 8, file), 8);
    assert_int_equal(fwrite(header, 1, header_bytes, file), header_bytes);
    if (data_bytes > 0) assert_int_equal(fwrite(data, 1, data_bytes, file), data_bytes);
    assert_int_equal(fflush(file), 0);
    assert_int_equal(ftruncate(fileno(file), (off_t)(8 + header_bytes + data_bytes + hole_bytes)), 0);
    assert_int_equal(fclose(file), 0);
}

void safetensors_save(const safetensors_writer *writer, const char *path)
{
    char *header = NULL;
    size_t bytes = 0;
    append(&header, &bytes, writer->header_bytes > 0 ? writer->header : "{", writer->header_bytes > 0 ? writer->header_bytes : 1);
    append(&header, &bytes, "}", 1);
    while (bytes % 8 != 0) append(&header, &bytes, " ", 1);
    save(path, bytes, header, bytes, writer->data, writer->data_bytes, writer->hole_bytes);
    free(header);
}

void safetensors_save_raw(const char *path, uint64_t length_field, const char *header, size_t header_bytes, uint64_t data_bytes)
{
    save(path, length_field, header, header_bytes, NULL, 0, data_bytes);
}

void safetensors_end(safetensors_writer *writer)
{
    free(writer->header);
    free(writer->data);
    *writer = (safetensors_writer){0};
}

const char *test_make_folder(const char *name)
{
    const char *path = test_path(name);
    (void)mkdir(path, 0755);
    return path;
}

void test_write_text(const char *folder, const char *name, const char *text)
{
    char path[768];
    (void)snprintf(path, sizeof path, "%s/%s", folder, name);
    test_write(path, text, strlen(text));
}
