/*
 * What a DLRM is fed with. In: options and a configuration. Out: data sets of training and held-out rows (files, or rows
 * made on the spot), facts of their columns, and batches of one size that a thread prepares ahead of time.
 *
 * The place after each batch is kept with its number: the thread is ahead of the training, and a checkpoint needs the
 * place that the training has reached. SPDX-License-Identifier: MIT
 */
#include "data/dataset.h"
#include "model/dlrm.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define MADE_ROWS ((int64_t)1000000)
#define MADE_LIMIT 10000
#define HELD_OUT 0.1
#define SPLIT_SEED 20250711

static bool there(const char *path)
{
    struct stat about;
    return !stat(path, &about);
}

static qn_status check_columns(const qn_dlrm_config *c, qn_dataset *data, qn_error *error)
{
    qn_schema s = qn_dataset_schema(data);
    if (s.dense_count == c->dense_count && s.sparse_count == c->sparse_count) return QN_OK;
    return error_set(error, QN_BAD_FILE,
                     "%s has %d counts and %d categories, the model takes %d and %d (dense_input_feature_size, "
                     "sparse_embedding_sizes)",
                     qn_dataset_file(data, 0), s.dense_count, s.sparse_count, c->dense_count, c->sparse_count);
}

qn_status dlrm_open_data(const qn_dlrm_config *c, const qn_dlrm_options *o, dlrm_purpose purpose, qn_dataset **out,
                         qn_error *error)
{
    const char *const *paths = o->paths, *one;
    bool validation = purpose == DATA_VALID;
    int count = o->path_count;
    double held_out = o->held_out == 0 ? HELD_OUT : o->held_out < 0 ? 0 : o->held_out;
    qn_dataset_options d = {.missing = QN_MISSING_NAN, .split_seed = SPLIT_SEED, .seed = o->seed};
    *out = NULL;
    if (!count && *c->train_path) {
        one = c->train_path;
        paths = &one;
        count = 1;
    }
    bool own = o->validation_path_count ||
               (!o->path_count && *c->validation_path && o->held_out == 0 && strcmp(c->validation_path, c->train_path));
    if (validation && own) {
        one = c->validation_path;
        paths = o->validation_path_count ? o->validation_paths : &one;
        count = o->validation_path_count ? o->validation_path_count : 1;
    } else if (!own && held_out > 0) {
        d.split = validation ? QN_SPLIT_HELD_OUT : QN_SPLIT_TRAIN;
        d.held_out = held_out;
    }
    if (purpose == DATA_TRAIN) {
        d.shuffle = !o->no_shuffle;
        d.drop_last = true; /* a recorded step has one size */
        d.epochs = c->epochs;
    }
    if (!count) {
        qn_make_options make = {.rows = o->made_rows ? o->made_rows : MADE_ROWS,
                                .seed = o->seed,
                                .cardinality_limit = o->made_limit ? o->made_limit : MADE_LIMIT};
        QN_TRY(qn_dataset_make(&make, &d, out, error));
    } else {
        if (!o->path_count && !(validation && own) && !there(paths[0]))
            return error_set(error, QN_BAD_FILE,
                             "the configuration's data %s cannot be read: name files with --data, or `--data made` to "
                             "train on made rows",
                             paths[0]);
        QN_TRY(qn_dataset_open(paths, count, &d, out, error));
    }
    qn_status status = check_columns(c, *out, error);
    if (status) {
        qn_dataset_close(*out);
        *out = NULL;
    }
    return status;
}

#define TELL_NS ((int64_t)500000000)

static void tell_share(dlrm_telling *t, double share)
{
    t->told_ns = clock_now_ns();
    double took = 1e-9 * (double)(t->told_ns - t->begun_ns);
    qn_dlrm_progress p = {.steps = -1,
                          .seconds = took,
                          .samples_per_second = NAN,
                          .loss = NAN,
                          .auc = NAN,
                          .eta_seconds = share > 0 ? took * (1 - share) / share : (double)NAN,
                          .doing = t->doing,
                          .done = share};
    if (t->options->progress) t->options->progress(t->options->user, &p);
}

dlrm_telling dlrm_telling_of(const qn_dlrm_options *options, const char *doing)
{
    dlrm_telling t = {.options = options, .doing = doing, .begun_ns = clock_now_ns()};
    tell_share(&t, NAN);
    return t;
}

bool dlrm_tell_rows(void *user, int64_t rows, int64_t rows_of_all)
{
    dlrm_telling *t = user;
    if (clock_now_ns() - t->told_ns >= TELL_NS)
        tell_share(t, rows_of_all > 0 ? (double)rows / (double)rows_of_all : (double)NAN);
    return !t->options->stop || !*t->options->stop;
}

qn_status dlrm_open_metadata(const qn_dlrm_config *c, const qn_dlrm_options *o, qn_metadata **out, bool *gathered,
                             qn_error *error)
{
    const char *path = o->metadata;
    if (!path && *c->metadata_path && there(c->metadata_path)) path = c->metadata_path;
    *gathered = !path;
    if (path) return qn_metadata_read(path, out, error);
    qn_dataset *data;
    QN_TRY(dlrm_open_data(c, o, DATA_SURVEY, &data, error));
    dlrm_telling telling = dlrm_telling_of(o, "gathering facts of the columns");
    qn_status status = qn_metadata_gather(data, dlrm_tell_rows, &telling, out, error);
    qn_dataset_close(data);
    return status;
}

/* ---- batches ---- */

/* Rows of the dense array get their zeros; a batch that is not full keeps its last rows from before: nobody looks. */
static qn_status fill(qn_loaded *batch, void *user, qn_error *error)
{
    dlrm_feed *f = user;
    float *counts = batch->fields[FEED_COUNTS];
    bool narrow = f->dense_columns != f->dense_count;
    qn_batch rows = {.capacity = f->batch,
                     .labels = batch->fields[FEED_LABELS],
                     .dense = narrow ? f->narrow : counts,
                     .sparse = batch->fields[FEED_TOKENS],
                     .probabilities = f->probabilities ? batch->fields[FEED_TRUE] : NULL};
    if (f->over) return QN_OK; /* a batch of no rows: the end */
    QN_TRY(qn_dataset_next(f->data, &rows, error));
    for (int64_t r = 0; r < rows.rows && narrow; r++)
        memcpy(counts + r * f->dense_columns, f->narrow + r * f->dense_count, sizeof(float) * (size_t)f->dense_count);
    qn_position after = qn_dataset_tell(f->data);
    if (rows.epoch != f->epoch) f->in_epoch = 0;
    f->epoch = rows.epoch;
    if (rows.rows && ++f->in_epoch == f->epoch_batches) { /* the rest of the epoch is left out */
        after = (qn_position){rows.epoch + 1, 0, after.check};
        f->over = after.epoch >= f->epoch_count;
        if (!f->over) QN_TRY(qn_dataset_seek(f->data, after, error));
    }
    f->places[batch->number % FEED_RING] = (dlrm_place){after, rows.epoch, f->in_epoch};
    batch->rows = rows.rows;
    return QN_OK;
}

qn_status dlrm_feed_open(qn_context *context, const qn_dlrm *d, qn_dataset *data, int64_t batch, int64_t first,
                         int64_t epoch_batches, int64_t epoch_count, const dlrm_place *at, dlrm_feed **out,
                         qn_error *error)
{
    dlrm_feed *f = heap_new(sizeof(*f));
    *out = f;
    f->epoch_batches = epoch_batches;
    f->epoch_count = epoch_count;
    if (at) {
        f->over = at->after.epoch >= epoch_count;
        f->epoch = at->epoch;
        f->in_epoch = at->in_epoch;
    }
    f->data = data;
    f->batch = batch;
    f->dense_count = d->config.dense_count;
    f->sparse_count = d->config.sparse_count;
    f->dense_columns = d->dense_columns;
    f->probabilities = qn_dataset_schema(data).has_probabilities;
    f->rows = -1;
    qn_status status = dataset_counted(data) ? qn_dataset_rows(data, &f->rows, error) : QN_OK;
    f->narrow = malloc(sizeof(float) * (size_t)(batch * f->dense_count) + 1);
    qn_loader_options o = {
        .field_count = FEED_FIELDS, .fill = fill, .user = f, .slots = 4, .first = first, .device = d->tape->device};
    o.fields[FEED_LABELS] = (qn_field){QN_F32, QN_SHAPE(batch)};
    o.fields[FEED_COUNTS] = (qn_field){QN_F32, QN_SHAPE(batch, f->dense_columns)};
    o.fields[FEED_TOKENS] = (qn_field){QN_I64, QN_SHAPE(batch, f->sparse_count)};
    o.fields[FEED_TRUE] = (qn_field){QN_F64, QN_SHAPE(batch)};
    if (!status)
        status = f->narrow ? qn_loader_new(context, &o, &f->loader, error)
                           : error_set(error, QN_NO_MEMORY, "no memory for a batch");
    if (!status) return QN_OK;
    dlrm_feed_close(f);
    *out = NULL;
    return status;
}

void dlrm_feed_close(dlrm_feed *f)
{
    if (!f) return;
    qn_loader_free(f->loader);
    qn_dataset_close(f->data);
    free(f->narrow);
    heap_free(f);
}
