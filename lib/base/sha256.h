/* SHA-256 (FIPS 180-4), for identities. */
#ifndef OFLOAD_LIB_SHA256_H
#define OFLOAD_LIB_SHA256_H

#include <stddef.h>
#include <stdint.h>

#define OFL_SHA256_HEX 65u /* 64 digits and a NUL */

typedef struct ofl_sha256 {
    uint32_t state[8];
    uint64_t bytes;    /* added so far */
    uint8_t block[64]; /* the last bytes % 64 of them */
} ofl_sha256;

void ofl_sha256_init(ofl_sha256 *hash);
void ofl_sha256_add(ofl_sha256 *hash, const void *data, size_t bytes);
/* For hashing fields one after another without doubt where one ends: fixed width (little-endian), or length first. */
void ofl_sha256_add_u64(ofl_sha256 *hash, uint64_t value);
void ofl_sha256_add_text(ofl_sha256 *hash, const char *text);
/* 64 lower-case hex digits and a NUL. Start anew before the next use. */
void ofl_sha256_finish_hex(ofl_sha256 *hash, char hex_out[OFL_SHA256_HEX]);

/* All at once. */
void ofl_sha256_hex(const void *data, size_t bytes, char hex_out[OFL_SHA256_HEX]);

#endif
