/*
 * A Parquet file as a source. In: a file. Out: rows, a block for each row group.
 *
 * Columns are decoded in parallel, a few thousand rows of each at a time, into memory that stays in the cache, and are
 * then laid out as rows, again in parallel; missing fields become what the options ask for on the way. The first fault
 * by the order of columns is the one that is told, whatever thread met it first. SPDX-License-Identifier: MIT
 */
#include "data/parquet.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#define PIECE_ROWS 8192
#define GRAIN_ROWS 512

typedef struct parquet_source {
    source base;
    data_file file;
    parquet_footer footer;
    column_reader *readers; /* one for each column */
    char *columns;          /* PIECE_ROWS of 8 bytes for each */
    int64_t group, left;    /* the row group that is read, and its rows to come */
    /* The work in progress. */
    int64_t rows, skip;
    const row_memory *to;
    _Atomic bool refused;
} parquet_source;

static void *column_memory(const parquet_source *p, int column)
{
    return p->columns + (size_t)column * PIECE_ROWS * 8;
}

static qn_status tell_fault(const parquet_source *p, qn_error *error)
{
    for (int i = 0; i < p->footer.column_count; i++) {
        const column_reader *c = &p->readers[i];
        if (c->status)
            return error_set(error, c->status, "%s: row group %lld, column %s, %s", p->file.path, (long long)p->group,
                             c->column->name, c->fault);
    }
    return QN_OK;
}

static void decode_columns(void *context, int64_t first, int64_t last, int worker)
{
    parquet_source *p = context;
    (void)worker;
    for (int64_t i = first; i < last; i++) column_read(&p->readers[i], p->rows, column_memory(p, (int)i));
}

static void skip_columns(void *context, int64_t first, int64_t last, int worker)
{
    parquet_source *p = context;
    (void)worker;
    for (int64_t i = first; i < last; i++) column_skip(&p->readers[i], p->skip, column_memory(p, (int)i), PIECE_ROWS);
}

/* Columns to rows, in tiles that stay in the first cache. */
static void lay_out_rows(void *context, int64_t first, int64_t last, int worker)
{
    parquet_source *p = context;
    (void)worker;
    const parquet_footer *f = &p->footer;
    const row_memory *to = p->to;
    qn_missing missing = p->base.missing;
    int dense_count = f->schema.dense_count, sparse_count = f->schema.sparse_count, column = 0;
    bool refused = false;
    if (f->schema.has_labels)
        memcpy(to->labels + first, (float *)column_memory(p, column++) + first, (size_t)(last - first) * sizeof(float));
    else
        for (int64_t r = first; r < last; r++) to->labels[r] = __builtin_nanf("");
    for (int64_t tile = first; tile < last; tile += 64) {
        int64_t end = MINIMUM(tile + 64, last);
        for (int i = 0; i < dense_count; i++) {
            const float *from = column_memory(p, column + i);
            float *out = to->dense + i;
            for (int64_t r = tile; r < end; r++) out[r * dense_count] = settle_dense(from[r], missing, &refused);
        }
        for (int i = 0; i < sparse_count; i++) {
            const int64_t *from = column_memory(p, column + dense_count + i);
            int64_t *out = to->sparse + i;
            for (int64_t r = tile; r < end; r++) out[r * sparse_count] = settle_sparse(from[r], missing, &refused);
        }
    }
    if (to->probabilities && f->schema.has_probabilities)
        memcpy(to->probabilities + first, (double *)column_memory(p, column + dense_count + sparse_count) + first,
               (size_t)(last - first) * sizeof(double));
    if (refused) p->refused = true;
}

static qn_status refuse_missing(const parquet_source *p, qn_error *error)
{
    const parquet_footer *f = &p->footer;
    for (int64_t r = 0; r < p->rows; r++)
        for (int i = 0; i < f->column_count; i++) {
            const void *from = column_memory(p, i);
            bool missing = f->columns[i].role == ROLE_SPARSE  ? ((const int64_t *)from)[r] == MISSING_TOKEN
                           : f->columns[i].role == ROLE_DENSE ? ((const float *)from)[r] != ((const float *)from)[r]
                                                              : false;
            if (missing)
                return error_set(
                    error, QN_BAD_FILE,
                    "%s: row group %lld, column %s: row %lld of the group has no value, and missing values "
                    "are refused; let them be filled (QN_MISSING_FILL)",
                    p->file.path, (long long)p->group, f->columns[i].name,
                    (long long)(f->groups[p->group].rows - p->left + r));
        }
    return QN_OK;
}

static qn_status parquet_begin(source *s, int64_t block, int64_t skip, qn_error *error)
{
    parquet_source *p = (parquet_source *)s;
    const parquet_group *g = &p->footer.groups[block];
    p->group = block;
    if (!file_wake(&p->file))
        return error_set(error, QN_BAD_FILE, "%s: the file is gone, or is another one than when it was opened",
                         p->file.path);
    size_t room = (size_t)p->footer.column_count * PIECE_ROWS * 8;
    if (!p->columns && !(p->columns = malloc(room)))
        return error_set(error, QN_NO_MEMORY, "no memory for %zu bytes of %s", room, p->file.path);
    p->skip = MINIMUM(skip, g->rows);
    p->left = g->rows - p->skip;
    for (int i = 0; i < p->footer.column_count; i++)
        column_begin(&p->readers[i], &p->file, &p->footer.columns[i], &g->chunks[i], g->rows);
    if (p->skip) pool_run(s->workers, p->footer.column_count, 1, skip_columns, p);
    return tell_fault(p, error);
}

static qn_status parquet_read(source *s, const row_memory *to, int64_t most, int64_t *got, qn_error *error)
{
    parquet_source *p = (parquet_source *)s;
    *got = p->rows = MINIMUM(MINIMUM(most, p->left), (int64_t)PIECE_ROWS);
    if (!p->rows) return QN_OK;
    p->to = to;
    pool_run(s->workers, p->footer.column_count, 1, decode_columns, p);
    QN_TRY(tell_fault(p, error));
    for (int64_t r = 0; p->footer.schema.has_labels && r < p->rows; r++) {
        float label = ((const float *)column_memory(p, 0))[r];
        if (label != label)
            return error_set(error, QN_BAD_FILE, "%s: row group %lld, column %s: row %lld of the group has no label",
                             p->file.path, (long long)p->group, p->footer.columns[0].name,
                             (long long)(p->footer.groups[p->group].rows - p->left + r));
    }
    p->refused = false;
    pool_run(s->workers, p->rows, GRAIN_ROWS, lay_out_rows, p);
    if (p->refused) QN_TRY(refuse_missing(p, error));
    p->left -= p->rows;
    return QN_OK;
}

static void parquet_rest(source *s)
{
    parquet_source *p = (parquet_source *)s;
    for (int i = 0; i < p->footer.column_count && p->readers; i++) column_free(&p->readers[i]);
    free(p->columns);
    p->columns = NULL;
    file_close(&p->file);
}

static void parquet_close(source *s)
{
    parquet_source *p = (parquet_source *)s;
    parquet_rest(s);
    free(p->readers);
    parquet_free_footer(&p->footer);
    free(p);
}

qn_status parquet_open(data_file file, const qn_dataset_options *options, pool *workers, source **out, qn_error *error)
{
    static const source_kind kind = {parquet_begin, parquet_read, parquet_rest, parquet_close};
    parquet_source *p = calloc(1, sizeof(*p));
    *out = NULL;
    if (!p) {
        file_close(&file);
        return error_set(error, QN_NO_MEMORY, "no memory to open %s", file.path);
    }
    p->base = (source){.kind = &kind, .path = strdup(file.path), .workers = workers, .missing = options->missing};
    p->file = file;
    p->file.path = p->base.path;
    qn_status status = parquet_read_footer(&p->file, options, &p->footer, error);
    if (!status) {
        p->base.schema = p->footer.schema;
        p->base.block_count = p->footer.group_count;
        p->readers = calloc((size_t)p->footer.column_count, sizeof(*p->readers));
        p->base.block_rows = malloc(sizeof(int64_t) * (size_t)MAXIMUM(p->footer.group_count, 1));
        if (!p->readers || !p->base.block_rows)
            status = error_set(error, QN_NO_MEMORY, "no memory to open %s", file.path);
    }
    if (status) return source_close(&p->base), status;
    for (int i = 0; i < p->footer.group_count; i++) p->base.block_rows[i] = p->footer.groups[i].rows;
    *out = &p->base;
    return QN_OK;
}
