/*
 * Parquet inside Quern: the footer's structures and the reader of one column. parquet_footer.c reads the first,
 * parquet_page.c finds and expands pages, parquet_values.c decodes what is in them, parquet_read.c makes rows of columns,
 * parquet_write.c writes files. SPDX-License-Identifier: MIT
 */
#ifndef QUERN_DATA_PARQUET_H
#define QUERN_DATA_PARQUET_H

#include "data/codec.h"
#include "data/source.h"

#define PAGE_LIMIT_BYTES ((int64_t)256 << 20) /* of one page, expanded */
#define FOOTER_LIMIT_BYTES ((int64_t)256 << 20)
#define PAGE_PADDING 16 /* readable bytes after a page: decoders load whole words */

/* Parquet's numbers. */
typedef enum parquet_type {
    PARQUET_BOOLEAN,
    PARQUET_INT32,
    PARQUET_INT64,
    PARQUET_INT96,
    PARQUET_FLOAT,
    PARQUET_DOUBLE,
    PARQUET_BYTE_ARRAY,
    PARQUET_FIXED,
    PARQUET_TYPE_COUNT
} parquet_type;
enum {
    ENCODING_PLAIN = 0,
    ENCODING_PLAIN_DICTIONARY = 2,
    ENCODING_RLE = 3,
    ENCODING_DELTA = 5,
    ENCODING_DICTIONARY = 8,
    ENCODING_BYTE_STREAM_SPLIT = 9
};
enum { PAGE_DATA = 0, PAGE_INDEX = 1, PAGE_DICTIONARY = 2, PAGE_DATA_V2 = 3 };
enum { CONVERTED_UINT_8 = 11, CONVERTED_UINT_32 = 13 };

/* What a column becomes: labels, dense and probabilities are float or double, sparse is int64. */
typedef enum column_role { ROLE_LABEL, ROLE_DENSE, ROLE_SPARSE, ROLE_PROBABILITY } column_role;

typedef struct parquet_column {
    char *name; /* of the footer's arena */
    column_role role;
    parquet_type type;
    bool optional, is_unsigned;
    int leaf; /* its place among the leaves of the schema */
} parquet_column;

typedef struct parquet_chunk {
    int64_t offset, size_bytes; /* of its pages, the dictionary first */
    int64_t values;
    codec codec;
} parquet_chunk;

typedef struct parquet_group {
    int64_t rows;
    parquet_chunk *chunks; /* one for each selected column */
} parquet_group;

typedef struct parquet_footer {
    arena *memory;
    int64_t rows;
    int column_count, group_count;
    parquet_column *columns; /* label, dense..., sparse..., probability: those that there are */
    parquet_group *groups;
    qn_schema schema;
} parquet_footer;
/* On failure nothing is kept. */
qn_status parquet_read_footer(const data_file *file, const qn_dataset_options *options, parquet_footer *footer,
                              qn_error *error);
void parquet_free_footer(parquet_footer *footer);

/* Runs and bit-packed groups, mixed. */
typedef struct run_reader {
    const uint8_t *at, *end;
    int width;
    uint64_t left; /* values of the current run */
    bool packed;
    uint32_t value;  /* of a run */
    uint64_t bit_at; /* of a packed group, from `packed_at` */
    const uint8_t *packed_at;
} run_reader;

typedef struct delta_reader {
    const uint8_t *at, *end;
    uint64_t left; /* values, the first included */
    uint64_t last;
    uint64_t least; /* added to each difference of the block */
    uint64_t mini_values;
    uint32_t mini_count, mini; /* blocks are cut into mini-blocks, each with its width */
    const uint8_t *widths;
    uint64_t mini_left, bit_at;
    const uint8_t *packed_at;
    bool first;
} delta_reader;

/* One column of one row group, read from its beginning to its end. */
typedef struct column_reader {
    const data_file *file;
    const parquet_column *column;
    const parquet_chunk *chunk;
    int64_t rows; /* of the row group */
    /* Bytes of the file. */
    uint8_t *window;
    size_t window_capacity;
    int64_t window_offset, window_bytes;
    int64_t at, end; /* file offsets: the next page header, the end of the chunk */
    /* The page. */
    uint8_t *page;
    size_t page_capacity;
    int64_t page_number; /* of the column's pages from 0, the dictionary included */
    int64_t values_left; /* of the page, nulls included */
    int64_t rows_left;   /* of the chunk */
    int encoding;
    bool all_present;
    run_reader levels, indices;
    delta_reader delta;
    const uint8_t *values, *values_end;
    int64_t value_at, value_count; /* of byte-stream-split, and bits of booleans */
    /* The dictionary, in the column's target type. */
    void *dictionary;
    int64_t dictionary_count;
    size_t dictionary_capacity;
    bool has_dictionary;
    uint8_t *present;
    qn_status status;
    char fault[512];
} column_reader;
void column_begin(column_reader *c, const data_file *file, const parquet_column *column, const parquet_chunk *chunk,
                  int64_t rows);
/* The next `count` rows into `out` (float, double of probabilities, or int64), `count` at most rows_left. */
bool column_read(column_reader *c, int64_t count, void *out);
bool column_skip(column_reader *c, int64_t count, void *scratch, int64_t scratch_rows);
void column_free(column_reader *c);
/* Leaves the words in `fault` and answers false. */
bool column_fault(column_reader *c, qn_status status, const char *format, ...) __attribute__((format(printf, 3, 4)));
size_t column_size_bytes(const parquet_column *column); /* of one value in `out` */

/* parquet_values.c */
bool values_begin(column_reader *c, int encoding, const uint8_t *data, const uint8_t *end, int64_t count);
bool values_read(column_reader *c, int64_t count, void *out);
bool values_load_dictionary(column_reader *c, const uint8_t *data, const uint8_t *end, int64_t count);
void runs_begin(run_reader *r, const uint8_t *data, const uint8_t *end, int width);
/* Levels of width 1 as bytes; false: damaged. */
bool runs_read_levels(run_reader *r, uint8_t *out, int64_t count, int64_t *ones);

/* crc.c */
uint32_t crc32_of(const void *data, size_t size);

#endif
