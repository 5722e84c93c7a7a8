/* A 128-bit content hash (FNV-1a) that tells files and ids apart. Not proof against somebody who wants two to be equal: where that matters,
 * compare the contents. */
#ifndef OFLOAD_HASH_H
#define OFLOAD_HASH_H

#include <stddef.h>
#include <stdint.h>

typedef struct hash128 { uint64_t high, low; } hash128;

#define HASH128_START ((hash128){UINT64_C(0x6C62272E07BB0142), UINT64_C(0x62B821756295C58D)})
#define HASH128_HEX_BYTES 33

/* Goes on from `hash` over more bytes. */
hash128 hash128_add(hash128 hash, const void *data, size_t bytes);
int hash128_compare(hash128 a, hash128 b);
/* 32 hex digits; buffer of HASH128_HEX_BYTES; returned. */
char *hash128_hex(char *buffer, hash128 hash);

#endif
