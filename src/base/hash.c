/*
 * A 128-bit hash of bytes for content-addressed names and maps. Two multiply-and-fold lanes over 16-byte steps, then
 * a finaliser. Not cryptographic: the cache stores the whole key beside the hash and compares it.
 * SPDX-License-Identifier: MIT
 */
#include "base/base.h"

#include <string.h>

__extension__ typedef unsigned __int128 wide;

static uint64_t fold(uint64_t a, uint64_t b)
{
    wide product = (wide)a * b;
    return (uint64_t)product ^ (uint64_t)(product >> 64);
}

hash128 hash_bytes(const void *bytes, size_t size_bytes)
{
    const unsigned char *p = bytes;
    uint64_t low = 0x9e3779b97f4a7c15u ^ size_bytes, high = 0xd6e8feb86659fd93u + size_bytes;
    for (size_t left = size_bytes; left;) {
        uint64_t words[2] = {0, 0};
        size_t step = left < 16 ? left : 16;
        memcpy(words, p, step);
        low = fold(low ^ words[0] ^ 0xa0761d6478bd642fu, words[1] ^ 0xe7037ed1a0b428dbu) + high;
        high = fold(high ^ words[1] ^ 0x8ebc6af09c88c6e3u, words[0] ^ 0x589965cc75374cc3u) ^ low;
        p += step;
        left -= step;
    }
    hash128 hash = {fold(low ^ 0x1d8e4e27c47d124fu, high ^ 0xeb44accab455d165u), 0};
    hash.high = fold(high ^ 0x9fb21c651e98df25u, low ^ hash.low ^ 0xc13fa9a902a6328fu);
    return hash;
}

void hash_to_hex(hash128 hash, char hex[33])
{
    snprintf(hex, 33, "%016llx%016llx", (unsigned long long)hash.high, (unsigned long long)hash.low);
}
