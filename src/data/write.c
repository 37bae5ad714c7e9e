/*
 * A data set into a Parquet file. In: a data set. Out: its rows, from its beginning, in the order it gives them.
 *
 * Rows are collected for one row group, whose columns are then encoded in parallel and written one after another: memory
 * is one row group, however long the data. SPDX-License-Identifier: MIT
 */
#include "data/dataset.h"
#include "data/parquet_write.h"

#include <stdlib.h>
#include <string.h>

#define GROUP_ROWS 131072
#define GROUP_LIMIT_ROWS ((int64_t)1 << 24)

typedef struct writing {
    qn_dataset *d;
    qn_write_options options;
    codec codec;
    write_column *columns;
    encoded_column *encoded;
    int column_count;
    qn_batch rows; /* of the row group */
    parquet_writer *writer;
} writing;

static qn_status choose_codec(const char *name, codec *out, qn_error *error)
{
    static const codec known[] = {CODEC_NONE, CODEC_SNAPPY, CODEC_ZSTD, CODEC_GZIP, CODEC_LZ4};
    if (!name) {
        *out = codec_missing(CODEC_SNAPPY) ? CODEC_NONE : CODEC_SNAPPY;
        return QN_OK;
    }
    for (int i = 0; i < COUNT(known); i++)
        if (!strcmp(name, codec_name(known[i]))) {
            const char *missing = codec_missing(known[i]);
            *out = known[i];
            return missing ? error_set(error, QN_BAD_CALL, "files cannot be compressed with %s", missing) : QN_OK;
        }
    return error_set(error, QN_BAD_CALL, "there is no codec `%s`: it is none, snappy, zstd, gzip or lz4", name);
}

static void add_column(writing *w, column_role role, const char *prefix, int index)
{
    write_column *c = &w->columns[w->column_count++];
    c->role = role;
    snprintf(c->name, sizeof(c->name), index < 0 ? "%s" : "%s_%d", prefix, index);
}

static void encode_columns(void *context, int64_t first, int64_t last, int worker)
{
    writing *w = context;
    const qn_schema *schema = &w->d->schema;
    (void)worker;
    for (int64_t i = first; i < last; i++) {
        column_values v = {.count = w->rows.rows, .stride = 1, .role = w->columns[i].role};
        int64_t index = i - schema->has_labels;
        if (v.role == ROLE_LABEL) {
            v.values = w->rows.labels;
        } else if (v.role == ROLE_DENSE) {
            v.values = w->rows.dense + index;
            v.stride = schema->dense_count;
        } else if (v.role == ROLE_SPARSE) {
            v.values = w->rows.sparse + index - schema->dense_count;
            v.stride = schema->sparse_count;
        } else {
            v.values = w->rows.probabilities;
        }
        v.nulls = w->options.nulls && (v.role == ROLE_DENSE || v.role == ROLE_SPARSE);
        encode_column(&v, w->codec, &w->encoded[i]);
    }
}

static qn_status write_rows(writing *w, qn_error *error)
{
    int64_t total = -1, done = 0;
    bool counted = true;
    for (int64_t i = 0; i < w->d->segment_count; i++) counted &= w->d->segments[i].rows >= 0;
    if (counted) QN_TRY(qn_dataset_rows(w->d, &total, error));
    for (;;) {
        QN_TRY(qn_dataset_next(w->d, &w->rows, error));
        if (!w->rows.rows) break;
        pool_run(w->d->workers, w->column_count, 1, encode_columns, w);
        QN_TRY(writer_add_group(w->writer, w->encoded, w->rows.rows, error));
        done += w->rows.rows;
        if (w->options.progress && !w->options.progress(w->options.user, done, total))
            return error_set(error, QN_FAILED, "stopped after %lld rows; nothing was written", (long long)done);
    }
    if (!done) return error_set(error, QN_BAD_CALL, "there are no rows to write");
    return writer_finish(w->writer, error);
}

static qn_status prepare(writing *w, const char *path, qn_error *error)
{
    const qn_schema *schema = &w->d->schema;
    QN_TRY(choose_codec(w->options.codec, &w->codec, error));
    if (!w->options.row_group_rows) w->options.row_group_rows = GROUP_ROWS;
    if (w->options.row_group_rows < 1 || w->options.row_group_rows > GROUP_LIMIT_ROWS)
        return error_set(error, QN_BAD_CALL, "row_group_rows is %lld; it is 1 to %lld",
                         (long long)w->options.row_group_rows, (long long)GROUP_LIMIT_ROWS);
    if (w->options.probabilities && !schema->has_probabilities)
        return error_set(error, QN_BAD_CALL, "only made data has probabilities to write");
    if (w->d->options.epochs < 0) return error_set(error, QN_BAD_CALL, "a data set without end cannot be written");
    size_t rows = (size_t)w->options.row_group_rows,
           most = (size_t)schema->dense_count + (size_t)schema->sparse_count + 2;
    w->columns = calloc(most, sizeof(*w->columns));
    w->encoded = calloc(most, sizeof(*w->encoded));
    w->rows = (qn_batch){.capacity = w->options.row_group_rows,
                         .labels = malloc(rows * sizeof(float)),
                         .dense = malloc(MAXIMUM(rows * (size_t)schema->dense_count, (size_t)1) * sizeof(float)),
                         .sparse = malloc(MAXIMUM(rows * (size_t)schema->sparse_count, (size_t)1) * sizeof(int64_t)),
                         .probabilities = w->options.probabilities ? malloc(rows * sizeof(double)) : NULL};
    if (!w->columns || !w->encoded || !w->rows.labels || !w->rows.dense || !w->rows.sparse ||
        (w->options.probabilities && !w->rows.probabilities))
        return error_set(error, QN_NO_MEMORY, "no memory for a row group of %zu rows: set row_group_rows to fewer",
                         rows);
    if (schema->has_labels) add_column(w, ROLE_LABEL, "labels", -1);
    for (int i = 0; i < schema->dense_count; i++) add_column(w, ROLE_DENSE, "DENSE", i);
    for (int i = 0; i < schema->sparse_count; i++) add_column(w, ROLE_SPARSE, "SPARSE", i);
    if (w->options.probabilities) add_column(w, ROLE_PROBABILITY, "PROBABILITY", -1);
    return writer_open(path, w->columns, w->column_count, w->codec, w->options.nulls, &w->writer, error);
}

static void set_missing(qn_dataset *d, qn_missing missing)
{
    for (int i = 0; i < d->source_count; i++) d->sources[i]->missing = missing;
}

qn_status qn_dataset_write(qn_dataset *d, const char *path, const qn_write_options *options, qn_error *error)
{
    HEAP_ENTER(error);
    if (!d || !path) return error_set(error, QN_BAD_CALL, "qn_dataset_write: an argument is NULL");
    for (int i = 0; i < d->source_count; i++)
        if (!strcmp(path, d->sources[i]->path))
            return error_set(error, QN_BAD_CALL, "%s would be written over while it is read: write to another file",
                             path);
    writing w = {.d = d, .options = options ? *options : (qn_write_options){0}};
    if (d->options.missing != QN_MISSING_REFUSE) set_missing(d, w.options.nulls ? QN_MISSING_NAN : QN_MISSING_FILL);
    qn_status status = qn_dataset_rewind(d, error);
    if (!status) status = prepare(&w, path, error);
    if (!status) status = write_rows(&w, error);
    writer_free(w.writer);
    for (int i = 0; i < w.column_count; i++) text_free(&w.encoded[i].bytes);
    free(w.columns);
    free(w.encoded);
    free(w.rows.labels);
    free(w.rows.dense);
    free(w.rows.sparse);
    free(w.rows.probabilities);
    set_missing(d, d->options.missing);
    qn_status back = qn_dataset_rewind(d, status ? NULL : error);
    return status ? status : back;
}
