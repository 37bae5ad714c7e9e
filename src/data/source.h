/*
 * A source: rows in a fixed order, in blocks that can be begun anywhere. dataset.c puts sources together and decides the
 * order of blocks; parquet_read.c (a block is a row group), tsv.c (a file is one block) and make.c are the kinds.
 *
 * Missing fields are NaN and MISSING_TOKEN inside a source; settle_dense and settle_sparse turn them into what the options
 * ask for, in the pass that lays out rows. SPDX-License-Identifier: MIT
 */
#ifndef QUERN_DATA_SOURCE_H
#define QUERN_DATA_SOURCE_H

#include "base/base.h"
#include <quern/data.h>

#define MISSING_TOKEN INT64_MIN
#define MOST_COLUMNS 1024 /* dense and sparse together */

/* Rows in memory, one array for each part, row after row. */
typedef struct row_memory {
    float *labels, *dense;
    int64_t *sparse;
    double *probabilities; /* NULL where the source has none */
} row_memory;

/* A file on disk, or bytes in memory (of the fuzzer); the path is owned by who has the file. */
typedef struct data_file {
    const char *path;
    int descriptor; /* -1: the bytes */
    const uint8_t *bytes;
    int64_t size_bytes;
} data_file;
qn_status file_open(data_file *file, const char *path, qn_error *error);
void file_close(data_file *file);
/* Opens it again if it was closed; false: it is gone or another one now. */
bool file_wake(data_file *file);
/* Exactly `size` bytes, or false: the file became shorter, or cannot be read. */
bool file_take(const data_file *file, int64_t offset, void *to, size_t size);

typedef struct source source;
typedef struct source_kind {
    /* The next rows that are read are those of this block, from its row `skip`. */
    qn_status (*begin)(source *s, int64_t block, int64_t skip, qn_error *error);
    /* At most `most` rows into memory; *got is 0 at the end of the block. */
    qn_status (*read)(source *s, const row_memory *to, int64_t most, int64_t *got, qn_error *error);
    /* Gives back memory and the open file until the next `begin`: of many files only one is awake. */
    void (*rest)(source *s);
    void (*close)(source *s);
} source_kind;
struct source {
    const source_kind *kind;
    char *path; /* owned */
    qn_schema schema;
    int64_t block_count;
    int64_t *block_rows; /* owned; -1: nobody knows until it is read to its end */
    pool *workers;       /* of the data set */
    qn_missing missing;
};
/* Frees the source, too. */
void source_close(source *s);

/* Each opens by its own kind; *out is NULL on failure. The file's descriptor goes to the source in any case. */
qn_status parquet_open(data_file file, const qn_dataset_options *options, pool *workers, source **out, qn_error *error);
qn_status tsv_open(data_file file, bool gzip, const qn_dataset_options *options, pool *workers, source **out,
                   qn_error *error);
qn_status make_open(const qn_make_options *make, const qn_dataset_options *options, pool *workers, source **out,
                    qn_error *error);
/* What the first bytes say: a Parquet file, gzip, or text. */
qn_status source_open_file(data_file file, const qn_dataset_options *options, pool *workers, source **out,
                           qn_error *error);

/* One count or one token as the options ask; *refused says that it was missing where none may be. */
static inline float settle_dense(float value, qn_missing missing, bool *refused)
{
    if (value == value) return value;
    *refused |= missing == QN_MISSING_REFUSE;
    return missing == QN_MISSING_NAN ? value : 0;
}
static inline int64_t settle_sparse(int64_t value, qn_missing missing, bool *refused)
{
    if (value != MISSING_TOKEN) return value;
    *refused |= missing == QN_MISSING_REFUSE;
    return -1;
}

/* Numbers that are a function of their place: a hash with good bits everywhere (the finish of splitmix64, twice). */
static inline uint64_t mix64(uint64_t x)
{
    x ^= x >> 30;
    x *= 0xbf58476d1ce4e5b9u;
    x ^= x >> 27;
    x *= 0x94d049bb133111ebu;
    return x ^ x >> 31;
}
static inline uint64_t mix_two(uint64_t a, uint64_t b)
{
    return mix64(mix64(a + 0x9e3779b97f4a7c15u) ^ (b * 0xd1342543de82ef95u + 0x2545f4914f6cdd1du));
}
/* Below `limit`, evenly enough: the error is limit / 2^64. */
static inline uint64_t mix_below(uint64_t x, uint64_t limit)
{
    __extension__ typedef unsigned __int128 wide;
    return (uint64_t)((wide)x * limit >> 64);
}

#endif
