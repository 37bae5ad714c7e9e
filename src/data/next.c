/*
 * Batches. In: a data set and the caller's memory. Out: the next rows in it.
 *
 * Rows of the split are picked from the window in its shuffled order and copied in parallel. A batch never crosses an
 * epoch's end. The place after a batch is a number of rows in the epoch's order, whatever the split.
 * SPDX-License-Identifier: MIT
 */
#include "data/dataset.h"

#include <math.h>
#include <string.h>

#define GRAIN_ROWS 512

static void copy_rows(void *context, int64_t first, int64_t last, int worker)
{
    const qn_dataset *d = context;
    const qn_batch *b = d->batch;
    const row_memory *w = &d->window;
    size_t dense = (size_t)d->schema.dense_count, sparse = (size_t)d->schema.sparse_count;
    (void)worker;
    for (int64_t i = first; i < last; i++) {
        size_t from = d->picked[i], to = (size_t)(d->batch_at + i);
        if (b->labels) b->labels[to] = w->labels[from];
        if (b->dense) memcpy(b->dense + to * dense, w->dense + from * dense, dense * sizeof(float));
        if (b->sparse) memcpy(b->sparse + to * sparse, w->sparse + from * sparse, sparse * sizeof(int64_t));
        if (b->probabilities) b->probabilities[to] = w->probabilities ? w->probabilities[from] : (double)NAN;
        if (b->row_numbers) b->row_numbers[to] = d->row_numbers[from];
    }
}

/* As many rows of the window as fit. */
static void take_from_window(qn_dataset *d, qn_batch *batch)
{
    int64_t count = 0, room = batch->capacity - batch->rows;
    for (; d->window_at < d->window_rows && count < room; d->window_at++) {
        uint32_t place = d->places ? d->places[d->window_at] : (uint32_t)d->window_at;
        if (is_in_split(d, d->row_numbers[place])) d->picked[count++] = place;
    }
    d->batch = batch;
    d->batch_at = batch->rows;
    pool_run(d->workers, count, GRAIN_ROWS, copy_rows, d);
    batch->rows += count;
}

/* The epoch is over: *again says that another one has begun. */
static qn_status end_epoch(qn_dataset *d, const qn_batch *batch, bool *again, qn_error *error)
{
    int64_t epochs = d->options.epochs ? d->options.epochs : 1;
    *again = false;
    if (epochs < 0 && d->epoch_whole && !d->epoch_batches)
        return error_set(
            error, QN_BAD_CALL,
            "an epoch without end has no batch: no row is in this split, or fewer than the %lld of a batch "
            "that drop_last asks for",
            (long long)batch->capacity);
    if (epochs > 0 && d->epoch + 1 >= epochs) {
        d->done = true;
        return QN_OK;
    }
    *again = true;
    return order_begin_epoch(d, d->epoch + 1, error);
}

qn_status qn_dataset_next(qn_dataset *d, qn_batch *batch, qn_error *error)
{
    HEAP_ENTER(error);
    if (!d || !batch) return error_set(error, QN_BAD_CALL, "qn_dataset_next: an argument is NULL");
    if (batch->capacity < 1) return error_set(error, QN_BAD_CALL, "qn_dataset_next: the batch has no capacity");
    batch->rows = 0;
    batch->epoch = d->epoch;
    if (!d->order_made) QN_TRY(order_begin_epoch(d, d->epoch, error));
    while (!d->done && batch->rows < batch->capacity) {
        if (d->window_at < d->window_rows) {
            take_from_window(d, batch);
            continue;
        }
        QN_TRY(order_fill(d, error));
        if (d->window_rows) continue;
        if (batch->rows && !d->options.drop_last) break;
        batch->rows = 0;
        bool again;
        QN_TRY(end_epoch(d, batch, &again, error));
        if (!again) break;
    }
    batch->epoch = d->epoch;
    d->epoch_batches += batch->rows > 0;
    return QN_OK;
}

qn_position qn_dataset_tell(const qn_dataset *d)
{
    if (!d) return (qn_position){0};
    return (qn_position){d->epoch, d->window_start + d->window_at + d->window_skip, d->check};
}

qn_status qn_dataset_seek(qn_dataset *d, qn_position position, qn_error *error)
{
    HEAP_ENTER(error);
    if (!d) return error_set(error, QN_BAD_CALL, "qn_dataset_seek: the data set is NULL");
    int64_t epochs = d->options.epochs ? d->options.epochs : 1;
    if (position.check != d->check)
        return error_set(
            error, QN_BAD_CALL,
            "the position is of another data set, or of other options: files, seed, window, split and range "
            "must be those it was told with");
    if (position.epoch < 0 || position.row < 0 || (epochs > 0 && position.epoch >= epochs))
        return error_set(error, QN_BAD_CALL, "there is no epoch %lld, or no row %lld", (long long)position.epoch,
                         (long long)position.row);
    d->done = false;
    return order_seek(d, position.epoch, position.row, error);
}

qn_status qn_dataset_rewind(qn_dataset *d, qn_error *error)
{
    HEAP_ENTER(error);
    if (!d) return error_set(error, QN_BAD_CALL, "qn_dataset_rewind: the data set is NULL");
    return qn_dataset_seek(d, (qn_position){0, 0, d->check}, error);
}
