#include "base/sha256.h"

#include <string.h>

static const uint32_t round_constants[64] = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5, 0xd807aa98, 0x12835b01, 0x243185be,
    0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174, 0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa,
    0x5cb0a9dc, 0x76f988da, 0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967, 0x27b70a85,
    0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85, 0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3,
    0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070, 0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f,
    0x682e6ff3, 0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};

static uint32_t turn(uint32_t x, unsigned by) { return (x >> by) | (x << (32 - by)); }

static void schedule(uint32_t w[64], const uint8_t block[64])
{
    for (int i = 0; i < 16; i++) {
        const uint8_t *b = block + 4 * i;
        w[i] = (uint32_t)b[0] << 24 | (uint32_t)b[1] << 16 | (uint32_t)b[2] << 8 | b[3];
    }
    for (int i = 16; i < 64; i++) {
        uint32_t low = turn(w[i - 15], 7) ^ turn(w[i - 15], 18) ^ (w[i - 15] >> 3);
        uint32_t high = turn(w[i - 2], 17) ^ turn(w[i - 2], 19) ^ (w[i - 2] >> 10);
        w[i] = w[i - 16] + low + w[i - 7] + high;
    }
}

/* The eight words turn by one place a round: instead of moving them, round i finds word k at (k − i) mod 8. */
static inline void round_of(uint32_t s[8], unsigned i, uint32_t input)
{
    uint32_t a = s[(0 - i) & 7], b = s[(1 - i) & 7], c = s[(2 - i) & 7], e = s[(4 - i) & 7], f = s[(5 - i) & 7], g = s[(6 - i) & 7];
    uint32_t first = s[(7 - i) & 7] + (turn(e, 6) ^ turn(e, 11) ^ turn(e, 25)) + ((e & f) ^ (~e & g)) + input;
    uint32_t second = (turn(a, 2) ^ turn(a, 13) ^ turn(a, 22)) + ((a & b) ^ (a & c) ^ (b & c));
    s[(3 - i) & 7] += first;
    s[(7 - i) & 7] = first + second;
}

static void mix(uint32_t state[8], const uint8_t block[64])
{
    uint32_t w[64], s[8];
    schedule(w, block);
    memcpy(s, state, sizeof s);
    for (unsigned i = 0; i < 64; i += 8) {
        for (unsigned j = 0; j < 8; j++) round_of(s, j, round_constants[i + j] + w[i + j]);
    }
    for (int i = 0; i < 8; i++) state[i] += s[i];
}

void ofl_sha256_init(ofl_sha256 *hash)
{
    static const uint32_t first[8] = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a, 0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
    memset(hash, 0, sizeof *hash);
    memcpy(hash->state, first, sizeof first);
}

void ofl_sha256_add(ofl_sha256 *hash, const void *data, size_t bytes)
{
    const uint8_t *from = data;
    while (bytes > 0) {
        size_t used = hash->bytes % 64, take = 64 - used < bytes ? 64 - used : bytes;
        memcpy(hash->block + used, from, take);
        hash->bytes += take;
        if (used + take == 64) mix(hash->state, hash->block);
        from += take;
        bytes -= take;
    }
}

void ofl_sha256_add_u64(ofl_sha256 *hash, uint64_t value)
{
    uint8_t bytes[8];
    for (int i = 0; i < 8; i++) bytes[i] = (uint8_t)(value >> (8 * i));
    ofl_sha256_add(hash, bytes, sizeof bytes);
}

void ofl_sha256_add_text(ofl_sha256 *hash, const char *text)
{
    size_t bytes = strlen(text);
    ofl_sha256_add_u64(hash, bytes);
    ofl_sha256_add(hash, text, bytes);
}

void ofl_sha256_finish_hex(ofl_sha256 *hash, char hex_out[OFL_SHA256_HEX])
{
    static const char digits[] = "0123456789abcdef";
    uint64_t bits = hash->bytes * 8;
    uint8_t end[72] = {0x80}, length[8];
    for (int i = 0; i < 8; i++) length[i] = (uint8_t)(bits >> (56 - 8 * i));
    size_t used = hash->bytes % 64;
    ofl_sha256_add(hash, end, used < 56 ? 56 - used : 120 - used);
    ofl_sha256_add(hash, length, sizeof length);
    for (int i = 0; i < 64; i++) hex_out[i] = digits[hash->state[i / 8] >> (28 - 4 * (i % 8)) & 15];
    hex_out[64] = '\0';
}

void ofl_sha256_hex(const void *data, size_t bytes, char hex_out[OFL_SHA256_HEX])
{
    ofl_sha256 hash;
    ofl_sha256_init(&hash);
    ofl_sha256_add(&hash, data, bytes);
    ofl_sha256_finish_hex(&hash, hex_out);
}
