/*
 * Compression. In: bytes and a codec's number. Out: the bytes expanded or shrunk, or a plain "no".
 *
 * The work is done by zlib, Zstandard, LZ4 and Snappy, the last only where it expands (snappy.c shrinks). Their
 * functions are declared here (the ABIs are frozen) and referred to weakly: a build links the archives where they exist (cmake/codecs.cmake); where one was not linked, its
 * shared library is opened at first use; where that is missing too, `codec_missing` says what to install. Sizes come
 * from files, so what a header claims is first compared with what the codec can reach. SPDX-License-Identifier: MIT
 */
#define _GNU_SOURCE
#include "data/codec.h"

#include <dlfcn.h>
#include <limits.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#define WEAK __attribute__((weak))
typedef struct z_stream {
    const uint8_t *next_in;
    unsigned avail_in;
    unsigned long total_in;
    uint8_t *next_out;
    unsigned avail_out;
    unsigned long total_out;
    const char *msg;
    void *state;
    void *(*zalloc)(void *, unsigned, unsigned);
    void (*zfree)(void *, void *);
    void *opaque;
    int data_type;
    unsigned long adler, reserved;
} z_stream;
enum { Z_OK = 0, Z_STREAM_END = 1, Z_BUF_ERROR = -5, Z_FINISH = 4, Z_DEFLATED = 8, Z_GZIP_WINDOW = 15 + 16 };

WEAK int inflateInit2_(z_stream *, int, const char *, int);
WEAK int inflate(z_stream *, int);
WEAK int inflateReset(z_stream *);
WEAK int inflateEnd(z_stream *);
WEAK int deflateInit2_(z_stream *, int, int, int, int, int, const char *, int);
WEAK int deflate(z_stream *, int);
WEAK int deflateEnd(z_stream *);
WEAK size_t ZSTD_decompress(void *, size_t, const void *, size_t);
WEAK size_t ZSTD_compress(void *, size_t, const void *, size_t, int);
WEAK size_t ZSTD_compressBound(size_t);
WEAK unsigned ZSTD_isError(size_t);
WEAK unsigned long long ZSTD_getFrameContentSize(const void *, size_t);
WEAK int LZ4_decompress_safe(const char *, char *, int, int);
WEAK int LZ4_compress_default(const char *, char *, int, int);
WEAK int LZ4_compressBound(int);
WEAK int snappy_uncompress(const char *, size_t, char *, size_t *);
WEAK int snappy_uncompressed_length(const char *, size_t, size_t *);

/* Every function once: the linked one, or that of the shared library. */
#define ZLIB(F) F(inflateInit2_) F(inflate) F(inflateReset) F(inflateEnd) F(deflateInit2_) F(deflate) F(deflateEnd)
#define ZSTD(F) F(ZSTD_decompress) F(ZSTD_compress) F(ZSTD_compressBound) F(ZSTD_isError) F(ZSTD_getFrameContentSize)
#define LZ4(F) F(LZ4_decompress_safe) F(LZ4_compress_default) F(LZ4_compressBound)
#define SNAPPY(F) F(snappy_uncompress) F(snappy_uncompressed_length)
#define FIELD(name) __typeof__(&name) name;
static struct {
    ZLIB(FIELD) ZSTD(FIELD) LZ4(FIELD) SNAPPY(FIELD)
} use;
static bool has_zlib, has_zstd, has_lz4, has_snappy;
static pthread_once_t once = PTHREAD_ONCE_INIT;

#define TAKE_LINKED(name) use.name = name;
#define TAKE_LOADED(name) *(void **)&use.name = dlsym(library, #name);
#define IS_THERE(name) &&use.name
#define FIND(list, soname, there)                                               \
    do {                                                                        \
        void *library;                                                          \
        list(TAKE_LINKED) there = true list(IS_THERE);                          \
        if (there || !(library = dlopen(soname, RTLD_NOW | RTLD_LOCAL))) break; \
        list(TAKE_LOADED) there = true list(IS_THERE);                          \
    } while (0)

static void find_all(void)
{
    const char *asked = environment_get("QUERN_CODECS");
    if (asked && !strcmp(asked, "none")) return; /* as on a machine that has none of them */
    FIND(ZLIB, "libz.so.1", has_zlib);
    FIND(ZSTD, "libzstd.so.1", has_zstd);
    FIND(LZ4, "liblz4.so.1", has_lz4);
    FIND(SNAPPY, "libsnappy.so.1", has_snappy);
}

const char *codec_name(codec c)
{
    static const char *const names[] = {"none", "snappy", "gzip", "lzo", "brotli", "lz4-old", "zstd", "lz4"};
    return (unsigned)c < CODEC_COUNT ? names[c] : "an unknown codec";
}

const char *codec_missing(codec c)
{
    pthread_once(&once, find_all);
    switch (c) {
    case CODEC_NONE: return NULL;
    case CODEC_SNAPPY:
        return has_snappy ? NULL
                          : "Snappy, which is not here: install the Debian package libsnappy1v5, or rebuild "
                            "Quern where libsnappy-dev is installed";
    case CODEC_GZIP:
        return has_zlib ? NULL
                        : "gzip, and zlib is not here: install the Debian package zlib1g, or rebuild Quern "
                          "where zlib1g-dev is installed";
    case CODEC_LZ4_OLD:
    case CODEC_LZ4:
        return has_lz4 ? NULL
                       : "LZ4, which is not here: install the Debian package liblz4-1, or rebuild Quern where "
                         "liblz4-dev is installed";
    case CODEC_ZSTD:
        return has_zstd ? NULL
                        : "Zstandard, which is not here: install the Debian package libzstd1, or rebuild Quern "
                          "where libzstd-dev is installed";
    case CODEC_BROTLI: return "Brotli, which Quern does not read: write it with zstd or snappy";
    case CODEC_LZO: return "LZO, which Quern does not read: write it with zstd or snappy";
    default: return "a codec that Quern does not know: write it with zstd or snappy";
    }
}

static uint32_t big_endian(const uint8_t *at)
{
    return (uint32_t)at[0] << 24 | (uint32_t)at[1] << 16 | (uint32_t)at[2] << 8 | at[3];
}

static bool lz4_block(const uint8_t *data, size_t size, uint8_t *out, size_t out_size)
{
    if (size > INT_MAX || out_size > INT_MAX) return false;
    return use.LZ4_decompress_safe((const char *)data, (char *)out, (int)size, (int)out_size) == (int)out_size;
}

/* Frames of Hadoop: the expanded size, then the compressed one, both big-endian, then a block. */
static bool lz4_frames(const uint8_t *data, size_t size, uint8_t *out, size_t out_size)
{
    while (size >= 8) {
        size_t expanded = big_endian(data), shrunk = big_endian(data + 4);
        if (shrunk > size - 8 || expanded > out_size || !lz4_block(data + 8, shrunk, out, expanded)) return false;
        data += 8 + shrunk, size -= 8 + shrunk;
        out += expanded, out_size -= expanded;
    }
    return !size && !out_size;
}

static bool gzip_expand(const uint8_t *data, size_t size, uint8_t *out, size_t out_size)
{
    gunzip *g = gunzip_new();
    bool sound = g != NULL;
    while (sound && size) {
        size_t in = size, room = out_size;
        sound = gunzip_some(g, data, &in, out, &room) && (in || room);
        data += in, size -= in;
        out += room, out_size -= room;
    }
    sound = sound && !out_size && gunzip_at_end(g);
    gunzip_free(g);
    return sound;
}

bool codec_expand(codec c, const void *data, size_t size, void *out, size_t out_size)
{
    if (codec_missing(c)) return false;
    size_t length = out_size;
    switch (c) {
    case CODEC_NONE: return size == out_size && (!size || memcpy(out, data, size));
    case CODEC_SNAPPY: return !use.snappy_uncompress(data, size, out, &length) && length == out_size;
    case CODEC_GZIP: return gzip_expand(data, size, out, out_size);
    case CODEC_ZSTD: return use.ZSTD_decompress(out, out_size, data, size) == out_size;
    case CODEC_LZ4: return lz4_block(data, size, out, out_size);
    case CODEC_LZ4_OLD: return lz4_frames(data, size, out, out_size) || lz4_block(data, size, out, out_size);
    default: return false;
    }
}

bool codec_plausible(codec c, const void *data, size_t size, size_t out_size)
{
    if (codec_missing(c)) return true; /* it is refused by its name */
    size_t length;
    switch (c) {
    case CODEC_NONE: return size == out_size;
    case CODEC_SNAPPY:
        return !use.snappy_uncompressed_length(data, size, &length) && length == out_size && out_size / 64 <= size;
    case CODEC_GZIP: return out_size / 1100 <= size;
    case CODEC_LZ4:
    case CODEC_LZ4_OLD: return out_size / 256 <= size;
    case CODEC_ZSTD: {
        /* A block of 128 KiB takes 4 bytes at least; a frame whose size is not written says ~0 (unknown). */
        unsigned long long claimed = use.ZSTD_getFrameContentSize(data, size);
        return out_size / 32768 <= size && (claimed >= ULLONG_MAX - 1 || claimed <= out_size);
    }
    default: return false;
    }
}

size_t codec_bound_bytes(codec c, size_t size)
{
    if (codec_missing(c)) return size;
    switch (c) {
    case CODEC_SNAPPY: return 32 + size + size / 6;
    case CODEC_GZIP: return size + size / 1000 + 128;
    case CODEC_ZSTD: return use.ZSTD_compressBound(size);
    case CODEC_LZ4: return size > INT_MAX ? 0 : (size_t)use.LZ4_compressBound((int)size);
    default: return size;
    }
}

static size_t gzip_shrink(const void *data, size_t size, void *out)
{
    z_stream z = {.next_in = data, .avail_in = (unsigned)size, .next_out = out};
    z.avail_out = (unsigned)codec_bound_bytes(CODEC_GZIP, size);
    if (use.deflateInit2_(&z, 6, Z_DEFLATED, Z_GZIP_WINDOW, 8, 0, "1.2.11", (int)sizeof(z))) return 0;
    size_t length = use.deflate(&z, Z_FINISH) == Z_STREAM_END ? z.total_out : 0;
    use.deflateEnd(&z);
    return length;
}

size_t codec_shrink(codec c, const void *data, size_t size, void *out)
{
    if (codec_missing(c) || size > INT_MAX) return 0;
    size_t bound = codec_bound_bytes(c, size);
    switch (c) {
    case CODEC_NONE: return size ? (memcpy(out, data, size), size) : 0;
    case CODEC_SNAPPY: return snappy_shrink(data, size, out);
    case CODEC_GZIP: return gzip_shrink(data, size, out);
    case CODEC_ZSTD: {
        size_t length = use.ZSTD_compress(out, bound, data, size, 3);
        return use.ZSTD_isError(length) ? 0 : length;
    }
    case CODEC_LZ4: {
        int length = use.LZ4_compress_default(data, out, (int)size, (int)bound);
        return length < 0 ? 0 : (size_t)length;
    }
    default: return 0;
    }
}

struct gunzip {
    z_stream z;
    bool between; /* members: nothing begun, or the last one ended */
};

gunzip *gunzip_new(void)
{
    if (codec_missing(CODEC_GZIP)) return NULL;
    gunzip *g = calloc(1, sizeof(*g));
    if (!g) return NULL;
    if (use.inflateInit2_(&g->z, 15 + 32, "1.2.11", (int)sizeof(g->z))) { /* gzip or zlib */
        free(g);
        return NULL;
    }
    g->between = true;
    return g;
}

void gunzip_free(gunzip *g)
{
    if (!g) return;
    use.inflateEnd(&g->z);
    free(g);
}

bool gunzip_some(gunzip *g, const void *data, size_t *size, void *out, size_t *out_size)
{
    size_t in = MINIMUM(*size, (size_t)1 << 30), room = MINIMUM(*out_size, (size_t)1 << 30);
    g->z.next_in = data, g->z.avail_in = (unsigned)in;
    g->z.next_out = out, g->z.avail_out = (unsigned)room;
    int status = Z_OK;
    while (!g->between || g->z.avail_in) { /* what is inside zlib comes out without more input */
        if (g->between && use.inflateReset(&g->z)) return false;
        g->between = false;
        status = use.inflate(&g->z, 0);
        g->between = status == Z_STREAM_END; /* another member may follow */
        if (status == Z_STREAM_END) status = Z_OK;
        if (status != Z_OK || (!g->between && (!g->z.avail_out || !g->z.avail_in))) break;
    }
    *size = in - g->z.avail_in;
    *out_size = room - g->z.avail_out;
    return status == Z_OK || status == Z_BUF_ERROR;
}

bool gunzip_at_end(const gunzip *g)
{
    return g->between;
}
