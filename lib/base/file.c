#include "base/file.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define BUFFER_BYTES 65536u

ofl_status ofl_reader_open(ofl_reader *reader, const char *path)
{
    struct stat about;
    int descriptor = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* a pipe must not make us wait */
    if (descriptor < 0) {
        ofl_status status = errno == ENOENT || errno == ENOTDIR ? OFL_ERROR_NOT_FOUND : OFL_ERROR_IO;
        return ofl_fail_code(status, errno, "%s: cannot be opened: %s", path, strerror(errno));
    }
    ofl_status status = OFL_OK;
    unsigned char *buffer = NULL;
    if (fstat(descriptor, &about) != 0) status = ofl_fail_code(OFL_ERROR_IO, errno, "%s: %s", path, strerror(errno));
    else if (!S_ISREG(about.st_mode)) status = ofl_fail(OFL_ERROR_IO, "%s: not a regular file", path);
    else if ((buffer = ofl_alloc(1, BUFFER_BYTES)) == NULL)
        status = ofl_fail(OFL_ERROR_HOST_MEMORY, "%s: out of host memory for reading it", path);
    if (status == OFL_OK) *reader = (ofl_reader){path, descriptor, (uint64_t)about.st_size, 0, 0, 0, buffer};
    else (void)close(descriptor);
    return status;
}

void ofl_reader_close(ofl_reader *reader)
{
    (void)close(reader->descriptor);
    ofl_free(reader->buffer);
}

void ofl_reader_seek(ofl_reader *reader, uint64_t position) { reader->position = ofl_min_u64(position, reader->end); }

static ofl_status fill(ofl_reader *reader)
{
    ssize_t got;
    size_t wanted = (size_t)ofl_min_u64(BUFFER_BYTES, ofl_reader_left(reader));
    do got = pread(reader->descriptor, reader->buffer, wanted, (off_t)reader->position);
    while (got < 0 && errno == EINTR);
    if (got < 0) return ofl_fail_code(OFL_ERROR_IO, errno, "%s: cannot be read: %s", reader->path, strerror(errno));
    if (got == 0 && wanted > 0) return ofl_fail(OFL_ERROR_IO, "%s: became shorter while it was read", reader->path);
    reader->start = reader->position;
    reader->held = (uint64_t)got;
    return OFL_OK;
}

ofl_status ofl_reader_peek(ofl_reader *reader, const unsigned char **at, uint64_t *bytes_out)
{
    if (reader->position < reader->start || reader->position - reader->start >= reader->held) {
        ofl_status status = fill(reader);
        if (status != OFL_OK) return status;
    }
    *at = reader->buffer + (reader->position - reader->start);
    *bytes_out = ofl_min_u64(reader->held - (reader->position - reader->start), ofl_reader_left(reader));
    return OFL_OK;
}

static ofl_status check_left(const ofl_reader *reader, uint64_t bytes, const char *what)
{
    if (bytes <= ofl_reader_left(reader)) return OFL_OK;
    return ofl_fail(OFL_ERROR_FORMAT, "%s: the file is cut or damaged: it is %llu bytes, %s needs %llu at %llu", reader->path,
                    (unsigned long long)reader->end, what, (unsigned long long)bytes, (unsigned long long)reader->position);
}

ofl_status ofl_reader_take(ofl_reader *reader, void *to, uint64_t bytes, const char *what)
{
    ofl_status status = check_left(reader, bytes, what);
    char *place = to;
    while (status == OFL_OK && bytes > 0) {
        const unsigned char *at;
        uint64_t held = 0;
        status = ofl_reader_peek(reader, &at, &held);
        if (status != OFL_OK) break;
        uint64_t take = ofl_min_u64(held, bytes);
        memcpy(place, at, (size_t)take);
        place += take;
        bytes -= take;
        reader->position += take;
    }
    return status;
}

ofl_status ofl_reader_skip(ofl_reader *reader, uint64_t bytes, const char *what)
{
    ofl_status status = check_left(reader, bytes, what);
    if (status == OFL_OK) reader->position += bytes;
    return status;
}

ofl_status ofl_reader_u32(ofl_reader *reader, uint32_t *out, const char *what)
{
    unsigned char b[4];
    ofl_status status = ofl_reader_take(reader, b, sizeof b, what);
    if (status == OFL_OK) *out = (uint32_t)b[0] | (uint32_t)b[1] << 8 | (uint32_t)b[2] << 16 | (uint32_t)b[3] << 24;
    return status;
}

ofl_status ofl_reader_u64(ofl_reader *reader, uint64_t *out, const char *what)
{
    unsigned char b[8];
    ofl_status status = ofl_reader_take(reader, b, sizeof b, what);
    if (status != OFL_OK) return status;
    uint64_t value = 0;
    for (unsigned i = 8; i > 0; i--) value = value << 8 | b[i - 1];
    *out = value;
    return OFL_OK;
}
