/*
 * Compression of pages and logs by well-kept libraries: see codec.c.
 * SPDX-License-Identifier: MIT
 */
#ifndef QUERN_DATA_CODEC_H
#define QUERN_DATA_CODEC_H

#include "base/base.h"

/* The numbers are Parquet's. */
typedef enum codec {
    CODEC_NONE = 0,
    CODEC_SNAPPY = 1,
    CODEC_GZIP = 2,
    CODEC_LZO = 3,
    CODEC_BROTLI = 4,
    CODEC_LZ4_OLD = 5, /* Hadoop's framing around LZ4, or none */
    CODEC_ZSTD = 6,
    CODEC_LZ4 = 7,
    CODEC_COUNT
} codec;

const char *codec_name(codec c);
/* The words after "it is compressed with ..." when this process cannot: which package to install; NULL when it can. */
const char *codec_missing(codec c);
/* All of `size` bytes into exactly `out_size`; false: the bytes are damaged, or the codec is missing. `out` is allocated
 * by the caller, after codec_plausible. */
bool codec_expand(codec c, const void *data, size_t size, void *out, size_t out_size);
/* Whether `size` bytes of this codec can become `out_size`: what a damaged header claims is not allocated. */
bool codec_plausible(codec c, const void *data, size_t size, size_t out_size);
size_t codec_bound_bytes(codec c, size_t size);
/* Returns the compressed size, 0 on failure. `out` has room for codec_bound_bytes. */
size_t codec_shrink(codec c, const void *data, size_t size, void *out);
size_t snappy_shrink(const void *data, size_t size, void *out); /* snappy.c */

/* A gzip file as a stream. */
typedef struct gunzip gunzip;
gunzip *gunzip_new(void); /* NULL: zlib is missing, see codec_missing(CODEC_GZIP) */
void gunzip_free(gunzip *g);
/* Takes some of `data`, gives some of `out`; both counts are updated to what was used. False: damaged. */
bool gunzip_some(gunzip *g, const void *data, size_t *size, void *out, size_t *out_size);
bool gunzip_at_end(const gunzip *g); /* of a member: the file may end here */

#endif
