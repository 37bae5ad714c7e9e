/*
 * Data sets of click logs: raw Criteo logs and Parquet files, read as batches; made ones to try everything offline.
 *
 * Example:
 *     qn_error error;
 *     qn_dataset *made, *data;
 *     qn_make_options make = {};
 *     make.rows = 10000;
 *     make.seed = 1;
 *     if (qn_dataset_make(&make, NULL, &made, &error)) return 1;
 *     if (qn_dataset_write(made, "/tmp/quern-example.parquet", NULL, &error)) return 1;
 *     qn_dataset_close(made);
 *     const char *path = "/tmp/quern-example.parquet";
 *     qn_dataset_options options = {};
 *     options.shuffle = true;
 *     options.seed = 7;
 *     options.split = QN_SPLIT_TRAIN;
 *     options.held_out = 0.1;
 *     if (qn_dataset_open(&path, 1, &options, &data, &error)) { fprintf(stderr, "%s\n", error.message); return 1; }
 *     static float labels[128], dense[128][13];
 *     static int64_t sparse[128][26];
 *     qn_batch batch = {};
 *     batch.capacity = 128;
 *     batch.labels = labels;
 *     batch.dense = dense[0];
 *     batch.sparse = sparse[0];
 *     int64_t rows = 0;
 *     do {
 *         if (qn_dataset_next(data, &batch, &error)) return 1;
 *         rows += batch.rows;
 *     } while (batch.rows);
 *     qn_dataset_close(data);
 *     remove(path);
 *     if (rows < 8800 || rows > 9200) return 1;
 *
 * A row is a label, counts ("dense", 13 in Criteo's logs) and categories ("sparse", 26). A data set is read by one thread
 * at a time; different ones by different threads. docs/data.md is the guide.
 * SPDX-License-Identifier: MIT
 */
#ifndef QUERN_DATA_H
#define QUERN_DATA_H

#include <quern/status.h>
#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct qn_dataset qn_dataset;

typedef enum qn_data_split {
    QN_SPLIT_ALL,
    QN_SPLIT_TRAIN,   /* the rows that are not held out */
    QN_SPLIT_HELD_OUT /* the others; which rows these are depends on their numbers, held_out and split_seed alone */
} qn_data_split;

/* What becomes of an empty field, a null or a NaN. */
typedef enum qn_missing {
    QN_MISSING_FILL, /* counts 0, categories -1: as the talk's conversion wrote them */
    QN_MISSING_NAN,  /* counts NaN, categories -1: a model can tell a missing count from none */
    QN_MISSING_REFUSE
} qn_missing;

/* All zero is a good beginning: every row once, in the order of the files. */
typedef struct qn_dataset_options {
    qn_data_split split;
    double held_out;     /* the share of rows that is held out, 0 to 1 */
    uint64_t split_seed; /* training and validation must agree in it */
    bool shuffle;        /* row groups in another order each epoch, and the rows within windows of them */
    uint64_t seed;       /* of shuffling */
    int64_t window_rows; /* rows that are shuffled together; 0: 65536 (about 18 MB) */
    int64_t first_row;   /* rows of the files before this one are not read */
    int64_t row_count;   /* nor those after so many; 0: all that follow */
    int64_t epochs;      /* how often; 0: once, -1: without end */
    bool drop_last;      /* an epoch's last rows are left out when they do not fill a batch */
    qn_missing missing;
    int threads; /* that decode; 0: all this process may use, 16 at most */
    /* Names of Parquet columns; NULL: "labels" (or "label"), and those that begin with "DENSE", "SPARSE", in file order. */
    const char *label_column, *dense_prefix, *sparse_prefix;
} qn_dataset_options;

/* What the rows hold. */
typedef struct qn_schema {
    int dense_count, sparse_count;
    bool has_labels;        /* logs to predict may have none: labels are NaN then */
    bool has_probabilities; /* made data knows the true probability of a click */
} qn_schema;

/* The caller's memory for rows, and how many of them were read. An array that is NULL is not wanted. */
typedef struct qn_batch {
    int64_t capacity;      /* rows that fit into each */
    float *labels;         /* [capacity] */
    float *dense;          /* [capacity][dense_count] */
    int64_t *sparse;       /* [capacity][sparse_count] */
    double *probabilities; /* [capacity]; NaN where the data set does not know them */
    int64_t *row_numbers;  /* [capacity]; counted through all files from 0 */
    int64_t rows;          /* out: less than capacity only in the last batch of an epoch; 0: no epoch is left */
    int64_t epoch;         /* out: that these rows are of, from 0 */
} qn_batch;

/* A place between two batches. It may be stored as its bytes; `check` says to which data set it belongs. */
typedef struct qn_position {
    int64_t epoch, row;
    uint64_t check;
} qn_position;

/* Paths are files, folders (their *.parquet, *.tsv, *.txt, *.gz and day_* files, by name) or patterns as a shell's ("day_*.gz");
 * what a file is, is seen from its first bytes. options may be NULL. */
QN_API QN_MUST_CHECK qn_status qn_dataset_open(const char *const *paths, int count, const qn_dataset_options *options,
                                               qn_dataset **dataset, qn_error *error);
QN_API void qn_dataset_close(qn_dataset *dataset); /* NULL is fine */
QN_API qn_schema qn_dataset_schema(const qn_dataset *dataset);
/* Rows of an epoch: of the split, within the range. Logs are read through once to count them. */
QN_API QN_MUST_CHECK qn_status qn_dataset_rows(qn_dataset *dataset, int64_t *rows, qn_error *error);
QN_API QN_MUST_CHECK qn_status qn_dataset_next(qn_dataset *dataset, qn_batch *batch, qn_error *error);
/* The place after the last batch; going there later, in another process too, gives the same batches after it. */
QN_API qn_position qn_dataset_tell(const qn_dataset *dataset);
QN_API QN_MUST_CHECK qn_status qn_dataset_seek(qn_dataset *dataset, qn_position position, qn_error *error);
QN_API QN_MUST_CHECK qn_status qn_dataset_rewind(qn_dataset *dataset,
                                                 qn_error *error); /* to the first epoch's first row */
QN_API int qn_dataset_files(const qn_dataset *dataset);
QN_API const char *qn_dataset_file(const qn_dataset *dataset, int index); /* its path, or "made" */

/* Rows made from a seed: skewed categories, counts with long tails, missing fields, and clicks whose probability is known.
 * The same on every machine. All zero but `rows` is a good beginning. */
typedef struct qn_make_options {
    int64_t rows;
    uint64_t seed;
    double click_rate;         /* 0: 0.25 */
    int64_t cardinality_limit; /* of each category; 0: those of the talk's sample, up to 1,307,783 */
    bool no_missing;
} qn_make_options;
QN_API QN_MUST_CHECK qn_status qn_dataset_make(const qn_make_options *make, const qn_dataset_options *options,
                                               qn_dataset **dataset, qn_error *error);

/* Called now and then; rows_of_all is -1 while it is not known. False: stop; the call then fails with QN_FAILED. */
typedef bool qn_data_progress(void *user, int64_t rows, int64_t rows_of_all);

typedef struct qn_write_options {
    const char *codec;      /* none, snappy, zstd, gzip, lz4; NULL: snappy where it is installed, else none */
    int64_t row_group_rows; /* 0: 131072 */
    bool nulls;             /* missing fields as nulls, else as 0 and -1 */
    bool probabilities;     /* of made data: also a column PROBABILITY */
    qn_data_progress *progress;
    void *user;
} qn_write_options;
/* Reads the data set from its beginning and writes it as Parquet: labels double, DENSE_i float, SPARSE_i int64. The file
 * appears under its name when it is whole. */
QN_API QN_MUST_CHECK qn_status qn_dataset_write(qn_dataset *dataset, const char *path, const qn_write_options *options,
                                                qn_error *error);

/* What a model needs to know of the columns of its training data. */
typedef struct qn_dense_facts {
    double mean, deviation;         /* of the counts */
    double log_mean, log_deviation; /* of log(1 + max(count, 0)) */
    int64_t missing;
} qn_dense_facts;
typedef struct qn_sparse_facts {
    int64_t cardinality; /* of the tokens, -1 (missing) included where it occurs */
    int64_t *tokens;     /* ascending; NULL where the file had only the cardinality */
    int64_t missing;
} qn_sparse_facts;
typedef struct qn_metadata {
    int64_t rows; /* 0: the file did not say */
    double click_rate;
    int dense_count, sparse_count;
    qn_dense_facts *dense;
    qn_sparse_facts *sparse;
} qn_metadata;
/* Reads the data set once; missing fields count as 0 and -1, as the talk's files have them. */
QN_API QN_MUST_CHECK qn_status qn_metadata_gather(qn_dataset *dataset, qn_data_progress *progress, void *user,
                                                  qn_metadata **metadata, qn_error *error);
/* JSON: SPARSE_i -> {"cardinality", "tokenizer_values"}, DENSE_i -> {"mean", "std", "log_mean", "log_std", "missing"},
 * labels -> {"mean", "std", "rows"}. Files with fewer keys, as the talk's, are read too. */
QN_API QN_MUST_CHECK qn_status qn_metadata_write(const qn_metadata *metadata, const char *path, qn_error *error);
QN_API QN_MUST_CHECK qn_status qn_metadata_read(const char *path, qn_metadata **metadata, qn_error *error);
QN_API void qn_metadata_free(qn_metadata *metadata);

#ifdef __cplusplus
}
#endif
#endif
