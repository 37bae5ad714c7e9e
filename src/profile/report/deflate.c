/*
 * gzip out, as a stream. In: bytes in pieces of any length. Out: a .gz member of one block with the fixed Huffman codes.
 *
 * Matches are looked for in the last 32 KiB through a table of the positions of four equal bytes, with a few tries a
 * place. That is far from the best compression and close to it for traces, whose lines repeat each other; it costs about
 * 10 ns a byte and needs no library.
 * SPDX-License-Identifier: MIT
 */
#include "profile/sink.h"

#include <stdlib.h>
#include <string.h>

enum { WINDOW = 32768, CHUNK = 65536, LEAST_MATCH = 4, MOST_MATCH = 258, HASH_BITS = 15, TRIES = 8, LONG_MATCH = 48 };

struct deflate {
    uint8_t bytes[WINDOW + CHUNK]; /* what went before, then what is to be coded */
    int32_t before, filled;        /* bytes of the window; of both */
    int64_t offset;                /* of bytes[0] in the stream */
    int64_t head[1 << HASH_BITS];  /* positions in the stream, plus 1; 0: none */
    int64_t link[WINDOW];          /* the one before it with the same hash */
    uint64_t bits;
    int bit_count;
    uint32_t crc, crc_table[256];
    uint32_t length; /* of the input, modulo 2^32 */
    text out;
};

static void put_bits(deflate *d, uint32_t bits, int count)
{
    d->bits |= (uint64_t)bits << d->bit_count;
    d->bit_count += count;
    while (d->bit_count >= 8) {
        char byte = (char)d->bits;
        text_add_bytes(&d->out, &byte, 1);
        d->bits >>= 8;
        d->bit_count -= 8;
    }
}

/* Huffman codes go in with their first bit first. */
static void put_code(deflate *d, uint32_t code, int count)
{
    uint32_t turned = 0;
    for (int i = 0; i < count; i++) turned |= (code >> i & 1) << (count - 1 - i);
    put_bits(d, turned, count);
}

/* A literal, the end (256) or a length. */
static void put_symbol(deflate *d, int symbol)
{
    if (symbol < 144)
        put_code(d, 0x30 + (uint32_t)symbol, 8);
    else if (symbol < 256)
        put_code(d, 0x190 + (uint32_t)symbol - 144, 9);
    else if (symbol < 280)
        put_code(d, (uint32_t)symbol - 256, 7);
    else
        put_code(d, 0xc0 + (uint32_t)symbol - 280, 8);
}

/* Lengths and distances: groups of codes, each twice as wide as the one two or four before it. */
static void put_match(deflate *d, int length, int distance)
{
    if (length == MOST_MATCH) {
        put_symbol(d, 285);
    } else {
        int extra = 0, left = length - 3;
        while (left >> extra >= 8) extra++;
        int symbol = left < 8 ? 257 + left : 257 + 4 * extra + (left >> extra);
        put_symbol(d, symbol);
        put_bits(d, (uint32_t)(left & ((1 << extra) - 1)), extra);
    }
    int extra = 0, left = distance - 1;
    while (left >> extra >= 4) extra++;
    int symbol = left < 4 ? left : 2 * extra + (left >> extra);
    put_code(d, (uint32_t)symbol, 5);
    put_bits(d, (uint32_t)(left & ((1 << extra) - 1)), extra);
}

deflate *deflate_open(void)
{
    static const char head[10] = {0x1f, (char)0x8b, 8, 0, 0, 0, 0, 0, 0, 3};
    deflate *d = calloc(1, sizeof(*d));
    if (!d) return NULL;
    for (uint32_t i = 0; i < 256; i++) {
        uint32_t c = i;
        for (int k = 0; k < 8; k++) c = c & 1 ? 0xedb88320u ^ c >> 1 : c >> 1;
        d->crc_table[i] = c;
    }
    d->crc = 0xffffffffu;
    text_add_bytes(&d->out, head, sizeof(head));
    put_bits(d, 3, 3); /* the last block, of fixed codes */
    return d;
}

void deflate_close(deflate *d)
{
    if (!d) return;
    text_free(&d->out);
    heap_free(d);
}

static uint32_t hash_at(const uint8_t *p)
{
    uint32_t word;
    memcpy(&word, p, sizeof(word));
    return word * 2654435761u >> (32 - HASH_BITS);
}

static void remember(deflate *d, int32_t at)
{
    int64_t position = d->offset + at;
    uint32_t hash = hash_at(d->bytes + at);
    d->link[position % WINDOW] = d->head[hash];
    d->head[hash] = position + 1;
}

static int longest_match(const deflate *d, int32_t at, int most, int *distance)
{
    int best = 0;
    int64_t position = d->offset + at, candidate = d->head[hash_at(d->bytes + at)];
    for (int turn = 0; turn < TRIES && candidate && position - (candidate - 1) <= WINDOW; turn++) {
        const uint8_t *a = d->bytes + (candidate - 1 - d->offset), *b = d->bytes + at;
        int length = 0;
        if (a[best] == b[best]) /* else it is no longer than the best */
            while (length < most && a[length] == b[length]) length++;
        if (length > best) {
            best = length;
            *distance = (int)(position - (candidate - 1));
        }
        if (best >= MINIMUM(LONG_MATCH, most)) break;
        int64_t next = d->link[(candidate - 1) % WINDOW];
        if (next >= candidate) break; /* overwritten by a later place */
        candidate = next;
    }
    return best;
}

/* Codes all that is filled. */
static void code(deflate *d)
{
    for (int32_t at = d->before; at < d->filled;) {
        int left = d->filled - at, distance = 0;
        int length = left >= LEAST_MATCH ? longest_match(d, at, MINIMUM(left, MOST_MATCH), &distance) : 0;
        if (length < LEAST_MATCH) {
            length = 1;
            put_symbol(d, d->bytes[at]);
        } else {
            put_match(d, length, distance);
        }
        for (int i = 0; i < length; i++, at++)
            if (d->filled - at >= LEAST_MATCH) remember(d, at);
    }
    int32_t kept = MINIMUM(d->filled, WINDOW);
    memmove(d->bytes, d->bytes + d->filled - kept, (size_t)kept);
    d->offset += d->filled - kept;
    d->before = d->filled = kept;
}

void deflate_add(deflate *d, const char *bytes, size_t count)
{
    uint32_t crc = d->crc;
    for (size_t i = 0; i < count; i++) crc = d->crc_table[(crc ^ (uint8_t)bytes[i]) & 255] ^ crc >> 8;
    d->crc = crc;
    d->length += (uint32_t)count;
    while (count) {
        size_t room = sizeof(d->bytes) - (size_t)d->filled, part = MINIMUM(room, count);
        memcpy(d->bytes + d->filled, bytes, part);
        d->filled += (int32_t)part;
        bytes += part;
        count -= part;
        if ((size_t)d->filled == sizeof(d->bytes)) code(d);
    }
}

void deflate_end(deflate *d)
{
    code(d);
    put_symbol(d, 256);
    put_bits(d, 0, (8 - d->bit_count) & 7);
    for (int i = 0; i < 2; i++) {
        put_bits(d, (i ? d->length : ~d->crc) & 0xffff, 16);
        put_bits(d, (i ? d->length : ~d->crc) >> 16, 16);
    }
}

text *deflate_output(deflate *d)
{
    return &d->out;
}
