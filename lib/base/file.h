/* A file read from front to back through a small buffer, every length checked against what is left before it is believed. */
#ifndef OFLOAD_LIB_FILE_H
#define OFLOAD_LIB_FILE_H

#include "base/base.h"

typedef struct ofl_reader {
    const char *path; /* borrowed */
    int descriptor;
    uint64_t end;      /* nothing is read beyond; the file's size to begin with */
    uint64_t position; /* of the next byte taken */
    uint64_t start, held; /* the buffer holds [start, start + held) */
    unsigned char *buffer;
} ofl_reader;

/* OFL_ERROR_NOT_FOUND, OFL_ERROR_IO (also: not a regular file), OFL_ERROR_HOST_MEMORY. Close it only after success. */
ofl_status ofl_reader_open(ofl_reader *reader, const char *path);
void ofl_reader_close(ofl_reader *reader);
static inline uint64_t ofl_reader_left(const ofl_reader *reader) { return reader->end - reader->position; }
/* OFL_ERROR_FORMAT, saying how long the file is and what `what` needs, when it ends before that. */
ofl_status ofl_reader_take(ofl_reader *reader, void *to, uint64_t bytes, const char *what);
ofl_status ofl_reader_skip(ofl_reader *reader, uint64_t bytes, const char *what);
ofl_status ofl_reader_u32(ofl_reader *reader, uint32_t *out, const char *what); /* little-endian */
ofl_status ofl_reader_u64(ofl_reader *reader, uint64_t *out, const char *what);
/* Goes anywhere up to the end. */
void ofl_reader_seek(ofl_reader *reader, uint64_t position);
/* The buffered bytes from here on, not taken; 0 of them at the end. */
ofl_status ofl_reader_peek(ofl_reader *reader, const unsigned char **at, uint64_t *bytes_out);

#endif
