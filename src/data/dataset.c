/*
 * Data sets: opened, described, counted, closed. In: paths or the wish for made rows, and options. Out: a qn_dataset.
 * SPDX-License-Identifier: MIT
 */
#include "data/dataset.h"
#include "data/paths.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#define WINDOW_ROWS 65536
#define WINDOW_LIMIT_ROWS ((int64_t)1 << 24)
#define MOST_THREADS 16

static qn_status take_options(qn_dataset *d, const qn_dataset_options *options, qn_error *error)
{
    if (options) d->options = *options;
    qn_dataset_options *o = &d->options;
    if (!o->window_rows) o->window_rows = WINDOW_ROWS;
    if (o->window_rows < 1 || o->window_rows > WINDOW_LIMIT_ROWS)
        return error_set(error, QN_BAD_CALL, "window_rows is %lld; it is 1 to %lld", (long long)o->window_rows,
                         (long long)WINDOW_LIMIT_ROWS);
    if (!(o->held_out >= 0 && o->held_out <= 1))
        return error_set(error, QN_BAD_CALL, "held_out is %g; it is a share from 0 to 1", o->held_out);
    if (o->first_row < 0 || o->row_count < 0 || o->threads < 0)
        return error_set(error, QN_BAD_CALL, "first_row, row_count and threads are not negative");
    d->threshold = o->held_out >= 1 ? UINT64_MAX : (uint64_t)(o->held_out * 0x1p64);
    int threads = o->threads ? o->threads : MINIMUM(cpu_count(), MOST_THREADS);
    d->workers = pool_new(threads);
    d->awake = -1;
    d->split_rows = -1;
    return QN_OK;
}

static qn_status add_source(qn_dataset *d, source *s, qn_error *error)
{
    if (!d->source_count) d->schema = s->schema;
    if (s->schema.dense_count != d->schema.dense_count || s->schema.sparse_count != d->schema.sparse_count ||
        s->schema.has_labels != d->schema.has_labels) {
        error_set(error, QN_BAD_FILE,
                  "%s has %d counts and %d categories%s, and %s has %d and %d%s: files of one data "
                  "set have the same columns",
                  s->path, s->schema.dense_count, s->schema.sparse_count, s->schema.has_labels ? "" : " and no labels",
                  d->sources[0]->path, d->schema.dense_count, d->schema.sparse_count,
                  d->schema.has_labels ? "" : " and no labels");
        source_close(s);
        return QN_BAD_FILE;
    }
    d->schema.has_probabilities &= s->schema.has_probabilities;
    d->sources[d->source_count++] = s;
    if (d->awake >= 0) d->sources[d->awake]->kind->rest(d->sources[d->awake]);
    d->awake = d->source_count - 1;
    d->segment_count += s->block_count;
    return QN_OK;
}

static qn_status make_segments(qn_dataset *d, qn_error *error)
{
    int64_t count = 0, next = 0;
    d->segments = malloc(sizeof(*d->segments) * (size_t)MAXIMUM(d->segment_count, (int64_t)1));
    if (!d->segments) return error_set(error, QN_NO_MEMORY, "no memory for the list of row groups");
    for (int i = 0; i < d->source_count; i++)
        for (int64_t b = 0; b < d->sources[i]->block_count; b++) {
            int64_t rows = d->sources[i]->block_rows[b];
            d->segments[count++] = (segment){.source = i, .block = b, .first = next, .rows = rows};
            next = rows < 0 || next < 0 ? -1 : next + rows;
        }
    d->segment_count = count;
    bool range = d->options.first_row || d->options.row_count;
    if (range || (d->options.shuffle && count > 1)) QN_TRY(order_count(d, error));
    if (!range) return QN_OK;
    int64_t kept = 0, low = d->options.first_row, high = INT64_MAX;
    if (d->options.row_count && __builtin_add_overflow(low, d->options.row_count, &high)) high = INT64_MAX;
    for (int64_t i = 0; i < count; i++) {
        segment g = d->segments[i];
        int64_t first = MAXIMUM(g.first, low), last = MINIMUM(g.first + g.rows, high);
        if (first >= last) continue;
        g.skip = first - g.first;
        g.first = first;
        g.rows = last - first;
        d->segments[kept++] = g;
    }
    d->segment_count = kept;
    if (!kept && low)
        return error_set(error, QN_BAD_CALL, "first_row is %lld, behind the end of the data set", (long long)low);
    return QN_OK;
}

/* What decides the order of rows, as a number: a position is good for that order alone. */
static void make_check(qn_dataset *d)
{
    const qn_dataset_options *o = &d->options;
    uint64_t held_out, parts[] = {(uint64_t)o->split,
                                  o->split_seed,
                                  o->shuffle,
                                  o->shuffle ? o->seed : 0,
                                  o->shuffle ? (uint64_t)o->window_rows : 0,
                                  (uint64_t)o->first_row,
                                  (uint64_t)o->row_count,
                                  (uint64_t)d->source_count,
                                  (uint64_t)d->schema.dense_count,
                                  (uint64_t)d->schema.sparse_count};
    memcpy(&held_out, &o->held_out, sizeof(held_out));
    d->check = held_out;
    for (int i = 0; i < COUNT(parts); i++) d->check = mix_two(d->check, parts[i]);
    for (int i = 0; i < d->source_count; i++) /* logs are counted only when they are read */
        for (int64_t b = 0; d->sources[i]->block_count > 1 && b < d->sources[i]->block_count; b++)
            d->check = mix_two(d->check, (uint64_t)d->sources[i]->block_rows[b]);
}

static qn_status finish(qn_dataset *d, qn_status status, qn_dataset **out, qn_error *error)
{
    if (!status) status = make_segments(d, error);
    if (status) {
        qn_dataset_close(d);
        return status;
    }
    make_check(d);
    *out = d;
    return QN_OK;
}

qn_status qn_dataset_open(const char *const *paths, int count, const qn_dataset_options *options, qn_dataset **dataset,
                          qn_error *error)
{
    HEAP_ENTER(error);
    if (!paths || count < 1 || !dataset) return error_set(error, QN_BAD_CALL, "qn_dataset_open: no paths were given");
    *dataset = NULL;
    path_list list;
    QN_TRY(paths_expand(paths, count, &list, error));
    qn_dataset *d = calloc(1, sizeof(*d));
    qn_status status = d ? take_options(d, options, error) : error_set(error, QN_NO_MEMORY, "no memory for a data set");
    if (!status && !(d->sources = calloc((size_t)list.count, sizeof(*d->sources))))
        status = error_set(error, QN_NO_MEMORY, "no memory for a data set");
    for (int i = 0; i < list.count && !status; i++) {
        data_file file;
        source *s;
        status = file_open(&file, list.items[i], error);
        if (!status) status = source_open_file(file, &d->options, d->workers, &s, error);
        if (!status) status = add_source(d, s, error);
    }
    paths_free(&list);
    if (!d) return status;
    return finish(d, status, dataset, error);
}

qn_status qn_dataset_make(const qn_make_options *make, const qn_dataset_options *options, qn_dataset **dataset,
                          qn_error *error)
{
    HEAP_ENTER(error);
    if (!make || !dataset) return error_set(error, QN_BAD_CALL, "qn_dataset_make: an argument is NULL");
    *dataset = NULL;
    qn_dataset *d = calloc(1, sizeof(*d));
    if (!d) return error_set(error, QN_NO_MEMORY, "no memory for a data set");
    source *s;
    qn_status status = take_options(d, options, error);
    if (!status && !(d->sources = calloc(1, sizeof(*d->sources))))
        status = error_set(error, QN_NO_MEMORY, "no memory for a data set");
    if (!status) status = make_open(make, &d->options, d->workers, &s, error);
    if (!status) status = add_source(d, s, error);
    status = finish(d, status, dataset, error);
    if (!status) { /* another seed is another data set */
        uint64_t parts[] = {make->seed, (uint64_t)make->rows, (uint64_t)make->cardinality_limit, make->no_missing};
        for (int i = 0; i < COUNT(parts); i++) d->check = mix_two(d->check, parts[i]);
    }
    return status;
}

void qn_dataset_close(qn_dataset *d)
{
    if (!d || heap_is_stopped()) return;
    for (int i = 0; i < d->source_count; i++) source_close(d->sources[i]);
    if (d->workers) pool_free(d->workers);
    free(d->sources);
    free(d->segments);
    free(d->order);
    free(d->window.labels);
    free(d->window.dense);
    free(d->window.sparse);
    free(d->window.probabilities);
    free(d->row_numbers);
    free(d->places);
    free(d->picked);
    free(d);
}

qn_schema qn_dataset_schema(const qn_dataset *d)
{
    return d ? d->schema : (qn_schema){0};
}

int qn_dataset_files(const qn_dataset *d)
{
    return d ? d->source_count : 0;
}

const char *qn_dataset_file(const qn_dataset *d, int index)
{
    return d && index >= 0 && index < d->source_count ? d->sources[index]->path : NULL;
}

typedef struct counting {
    const qn_dataset *d;
    int64_t first;
    _Atomic int64_t rows;
} counting;

static void count_split(void *context, int64_t first, int64_t last, int worker)
{
    counting *c = context;
    int64_t rows = 0;
    (void)worker;
    for (int64_t i = first; i < last; i++) rows += is_in_split(c->d, c->first + i);
    c->rows += rows;
}

bool dataset_counted(const qn_dataset *d)
{
    for (int64_t i = 0; i < d->segment_count; i++)
        if (d->segments[i].rows < 0) return false;
    return true;
}

qn_status qn_dataset_rows(qn_dataset *d, int64_t *rows, qn_error *error)
{
    HEAP_ENTER(error);
    if (!d || !rows) return error_set(error, QN_BAD_CALL, "qn_dataset_rows: an argument is NULL");
    if (d->split_rows < 0) {
        qn_position here = qn_dataset_tell(d);
        bool unknown = !dataset_counted(d), done = d->done;
        QN_TRY(order_count(d, error));
        if (unknown && !done) QN_TRY(qn_dataset_seek(d, here, error)); /* counting moved the file */
        int64_t sum = 0;
        for (int64_t i = 0; i < d->segment_count; i++) {
            counting c = {.d = d, .first = d->segments[i].first};
            if (d->options.split == QN_SPLIT_ALL)
                c.rows = d->segments[i].rows;
            else
                pool_run(d->workers, d->segments[i].rows, 4096, count_split, &c);
            sum += c.rows;
        }
        d->split_rows = sum;
    }
    *rows = d->split_rows;
    return QN_OK;
}
