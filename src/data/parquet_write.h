/*
 * Writing Parquet: see parquet_write.c (the file) and parquet_encode.c (one column of a row group).
 * SPDX-License-Identifier: MIT
 */
#ifndef QUERN_DATA_PARQUET_WRITE_H
#define QUERN_DATA_PARQUET_WRITE_H

#include "data/parquet.h"

/* A column of one row group, encoded. */
typedef struct encoded_column {
    text bytes; /* pages: a dictionary, if there is one, then data */
    int64_t dictionary_bytes, expanded_bytes, values, nulls;
    bool has_dictionary, has_bounds, failed;
    uint8_t least[8], most[8]; /* as PLAIN stores them */
} encoded_column;

/* Where the values stand: one every `stride` items; the type is float for dense, int64 for sparse, float for the label
 * (stored as double), double for probabilities. Missing ones (NaN, -1) become nulls where `nulls` says so. */
typedef struct column_values {
    const void *values;
    int64_t count, stride;
    column_role role;
    bool nulls;
} column_values;
void encode_column(const column_values *v, codec c, encoded_column *out);

typedef struct parquet_writer parquet_writer;
typedef struct write_column {
    char name[32];
    column_role role;
} write_column;
/* The file is written aside and appears under its name when it is finished. */
qn_status writer_open(const char *path, const write_column *columns, int count, codec c, bool nulls,
                      parquet_writer **out, qn_error *error);
qn_status writer_add_group(parquet_writer *w, const encoded_column *columns, int64_t rows, qn_error *error);
qn_status writer_finish(parquet_writer *w, qn_error *error);
void writer_free(parquet_writer *w); /* what was not finished is removed */
parquet_type write_type(column_role role);

#endif
