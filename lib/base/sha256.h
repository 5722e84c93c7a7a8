/* SHA-256 (FIPS 180-4), for identities. */
#ifndef OFLOAD_LIB_SHA256_H
#define OFLOAD_LIB_SHA256_H

#include <stddef.h>
#include <stdint.h>

typedef struct ofl_sha256 {
    uint32_t state[8];
    uint64_t bytes;    /* added so far */
    uint8_t block[64]; /* the last bytes % 64 of them */
} ofl_sha256;

void ofl_sha256_start(ofl_sha256 *hash);
void ofl_sha256_add(ofl_sha256 *hash, const void *data, size_t bytes);
/* 64 lower-case hex digits and a NUL. Start anew before the next use. */
void ofl_sha256_finish_hex(ofl_sha256 *hash, char hex_out[65]);

/* All at once. */
void ofl_sha256_hex(const void *data, size_t bytes, char hex_out[65]);

#endif
