/*
 * Shrinking to Snappy's format. In: bytes. Out: their length, then literals and copies of what was earlier in the same
 * 64 KiB. Written here because the usual library throws when it has no memory, which ends a program in C; this needs none
 * but its stack. A table remembers where four bytes with a certain hash were last seen; where nothing matches for long,
 * steps get longer. Invariant: what is written is never longer than codec_bound_bytes.
 * SPDX-License-Identifier: MIT
 */
#include "data/codec.h"

#include <string.h>

enum { BLOCK = 65536, HASH_BITS = 13, SHORTEST = 4, MOST_COPIED = 64 };

static uint32_t four_at(const uint8_t *at)
{
    uint32_t bytes;
    memcpy(&bytes, at, sizeof(bytes));
    return bytes;
}

static uint8_t *put_literal(uint8_t *out, const uint8_t *from, size_t length)
{
    if (!length) return out;
    size_t count = length - 1;
    if (count < 60) {
        *out++ = (uint8_t)(count << 2);
    } else if (count < 256) {
        *out++ = 60 << 2;
        *out++ = (uint8_t)count;
    } else {
        *out++ = 61 << 2;
        *out++ = (uint8_t)count;
        *out++ = (uint8_t)(count >> 8);
    }
    memcpy(out, from, length);
    return out + length;
}

static uint8_t *put_copy(uint8_t *out, size_t distance, size_t length)
{
    while (length) {
        /* What remains of a long one is never shorter than a copy pays for. */
        size_t piece = length <= MOST_COPIED             ? length
                       : length < MOST_COPIED + SHORTEST ? length - SHORTEST
                                                         : MOST_COPIED;
        if (piece >= SHORTEST && piece < 12 && distance < 2048) {
            *out++ = (uint8_t)(distance >> 8 << 5 | (piece - SHORTEST) << 2 | 1);
            *out++ = (uint8_t)distance;
        } else {
            *out++ = (uint8_t)((piece - 1) << 2 | 2);
            *out++ = (uint8_t)distance;
            *out++ = (uint8_t)(distance >> 8);
        }
        length -= piece;
    }
    return out;
}

static uint8_t *shrink_block(const uint8_t *data, size_t size, uint8_t *out)
{
    uint16_t seen[1 << HASH_BITS] = {0};
    size_t done = 0, at = 1, misses = 0;
    while (at + SHORTEST <= size) {
        uint32_t bytes = four_at(data + at), hash = bytes * 0x9e3779b1u >> (32 - HASH_BITS);
        size_t before = seen[hash];
        seen[hash] = (uint16_t)at;
        if (before >= at || four_at(data + before) != bytes) {
            at += 1 + misses++ / 32;
            continue;
        }
        size_t length = SHORTEST;
        while (at + length < size && data[before + length] == data[at + length]) length++;
        out = put_literal(out, data + done, at - done);
        out = put_copy(out, at - before, length);
        done = at += length;
        misses = 0;
    }
    return put_literal(out, data + done, size - done);
}

size_t snappy_shrink(const void *data, size_t size, void *out)
{
    uint8_t *at = out;
    size_t left = size;
    for (; left >= 128; left >>= 7) *at++ = (uint8_t)(left | 128);
    *at++ = (uint8_t)left;
    for (size_t first = 0; first < size; first += BLOCK)
        at = shrink_block((const uint8_t *)data + first, MINIMUM(size - first, (size_t)BLOCK), at);
    return (size_t)(at - (uint8_t *)out);
}
