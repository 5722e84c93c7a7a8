#include "common/hash.h"

#include <inttypes.h>
#include <stdio.h>

__extension__ typedef unsigned __int128 wide;

hash128 hash128_add(hash128 hash, const void *data, size_t bytes)
{
    const wide prime = ((wide)1 << 88) + 0x13B;
    const unsigned char *at = data;
    wide value = (wide)hash.high << 64 | hash.low;
    for (size_t i = 0; i < bytes; i++) value = (value ^ at[i]) * prime;
    return (hash128){(uint64_t)(value >> 64), (uint64_t)value};
}

int hash128_compare(hash128 a, hash128 b)
{
    if (a.high != b.high) return a.high < b.high ? -1 : 1;
    return a.low == b.low ? 0 : a.low < b.low ? -1 : 1;
}

char *hash128_hex(char *buffer, hash128 hash)
{
    (void)snprintf(buffer, HASH128_HEX_BYTES, "%016" PRIx64 "%016" PRIx64, hash.high, hash.low);
    return buffer;
}
