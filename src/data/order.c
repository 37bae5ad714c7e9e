/*
 * The order of rows. In: segments, a seed, an epoch. Out: windows of rows, filled one after another.
 *
 * In an epoch the segments come in an order drawn from (seed, epoch); their rows, one after another, are cut into windows
 * of a fixed number of rows, and each window is shuffled with numbers drawn from (seed, epoch, window). So the row at any
 * place of any epoch is a function of the options alone, and going there costs one window. Without shuffling a window is
 * only a buffer, and begins where one wants. SPDX-License-Identifier: MIT
 */
#include "data/dataset.h"

#include <stdlib.h>
#include <string.h>

#define BUFFER_ROWS 8192

static const char *source_path(const qn_dataset *d, const segment *g)
{
    return d->sources[g->source]->path;
}

static qn_status begin_segment(qn_dataset *d, segment *g, int64_t at, qn_error *error)
{
    source *s = d->sources[g->source];
    if (d->awake >= 0 && d->awake != g->source) d->sources[d->awake]->kind->rest(d->sources[d->awake]);
    d->awake = g->source;
    d->open = g;
    d->open_at = at;
    return s->kind->begin(s, g->block, g->skip + at, error);
}

/* A block was read to its end: what follows it now has a number. */
static void learn_rows(qn_dataset *d, segment *g)
{
    if (g->rows < 0) g->rows = d->sources[g->source]->block_rows[g->block];
    int64_t next = g->first < 0 || g->rows < 0 ? -1 : g->first + g->rows;
    for (segment *f = g + 1; next >= 0 && f < d->segments + d->segment_count && f->first < 0; f++) {
        f->first = next;
        next = f->rows < 0 ? -1 : next + f->rows;
    }
}

qn_status order_count(qn_dataset *d, qn_error *error)
{
    for (int64_t i = 0; i < d->segment_count; i++) {
        segment *g = &d->segments[i];
        if (g->rows >= 0) continue;
        source *s = d->sources[g->source];
        if (s->block_rows[g->block] < 0) {
            if (d->awake >= 0 && d->awake != g->source) d->sources[d->awake]->kind->rest(d->sources[d->awake]);
            d->awake = g->source;
            QN_TRY(s->kind->begin(s, g->block, INT64_MAX, error));
        }
        learn_rows(d, g);
        if (g->rows < 0) return error_set(error, QN_FAILED, "%s: its rows cannot be counted", s->path);
    }
    return QN_OK;
}

static uint64_t draw(uint64_t *state)
{
    *state += 0x9e3779b97f4a7c15u;
    return mix64(*state);
}

qn_status order_begin_epoch(qn_dataset *d, int64_t epoch, qn_error *error)
{
    if (!d->order && !(d->order = malloc(sizeof(*d->order) * (size_t)MAXIMUM(d->segment_count, (int64_t)1))))
        return error_set(error, QN_NO_MEMORY, "no memory for the order of row groups");
    for (int64_t i = 0; i < d->segment_count; i++) d->order[i] = i;
    if (d->options.shuffle) {
        uint64_t state = mix_two(d->options.seed ^ 0xbb67ae8584caa73bu, (uint64_t)epoch);
        for (int64_t i = d->segment_count - 1; i > 0; i--) {
            int64_t other = (int64_t)mix_below(draw(&state), (uint64_t)i + 1), keep = d->order[i];
            d->order[i] = d->order[other];
            d->order[other] = keep;
        }
    }
    d->epoch = epoch;
    d->order_made = true;
    d->order_at = d->window_start = d->window_rows = d->window_at = d->window_skip = 0;
    d->open = NULL;
    d->epoch_whole = true;
    d->epoch_batches = 0;
    return QN_OK;
}

static qn_status make_window(qn_dataset *d, qn_error *error)
{
    if (d->window.labels) return QN_OK;
    size_t rows = (size_t)(d->options.shuffle ? d->options.window_rows : BUFFER_ROWS);
    size_t dense = (size_t)d->schema.dense_count, sparse = (size_t)d->schema.sparse_count;
    bool shuffle = d->options.shuffle, known = d->schema.has_probabilities;
    d->window.dense = malloc(MAXIMUM(rows * dense, (size_t)1) * sizeof(float));
    d->window.sparse = malloc(MAXIMUM(rows * sparse, (size_t)1) * sizeof(int64_t));
    d->window.probabilities = known ? malloc(rows * sizeof(double)) : NULL;
    d->row_numbers = malloc(rows * sizeof(int64_t));
    d->places = shuffle ? malloc(rows * sizeof(uint32_t)) : NULL;
    d->picked = malloc(rows * sizeof(uint32_t));
    d->window.labels = malloc(rows * sizeof(float));
    d->window_capacity = (int64_t)rows;
    if (d->window.dense && d->window.sparse && d->row_numbers && d->picked && d->window.labels &&
        (!known || d->window.probabilities) && (!shuffle || d->places))
        return QN_OK;
    free(d->window.labels);
    d->window.labels = NULL;
    return error_set(error, QN_NO_MEMORY, "no memory for a window of %zu rows: set window_rows to fewer", rows);
}

static void shuffle_window(qn_dataset *d)
{
    uint64_t state = mix_two(mix_two(d->options.seed ^ 0x3c6ef372fe94f82bu, (uint64_t)d->epoch),
                             (uint64_t)(d->window_start / d->window_capacity));
    for (int64_t i = 0; i < d->window_rows; i++) {
        int64_t other = (int64_t)mix_below(draw(&state), (uint64_t)i + 1);
        d->places[i] = d->places[other];
        d->places[other] = (uint32_t)i;
    }
}

qn_status order_fill(qn_dataset *d, qn_error *error)
{
    QN_TRY(make_window(d, error));
    d->window_start += d->window_rows;
    d->window_rows = d->window_at = 0;
    while (d->window_rows < d->window_capacity) {
        if (!d->open) {
            if (d->order_at == d->segment_count) break;
            QN_TRY(begin_segment(d, &d->segments[d->order[d->order_at++]], 0, error));
        }
        segment *g = d->open;
        source *s = d->sources[g->source];
        int64_t at = d->window_rows, room = d->window_capacity - at, got = 0;
        if (g->rows >= 0) room = MINIMUM(room, g->rows - d->open_at);
        row_memory to = {d->window.labels + at, d->window.dense + at * d->schema.dense_count,
                         d->window.sparse + at * d->schema.sparse_count,
                         d->window.probabilities ? d->window.probabilities + at : NULL};
        if (room) QN_TRY(s->kind->read(s, &to, room, &got, error));
        if (!got) {
            if (room && g->rows >= 0)
                return error_set(error, QN_BAD_FILE, "%s has fewer rows than when it was opened", source_path(d, g));
            learn_rows(d, g);
            d->open = NULL;
            continue;
        }
        if (to.probabilities && !s->schema.has_probabilities)
            for (int64_t i = 0; i < got; i++) to.probabilities[i] = (double)__builtin_nanf("");
        for (int64_t i = 0; i < got; i++) d->row_numbers[at + i] = g->first + d->open_at + i;
        d->open_at += got;
        d->window_rows += got;
    }
    if (d->places) shuffle_window(d);
    d->window_at = MINIMUM(d->window_skip, d->window_rows);
    d->window_skip = 0;
    return QN_OK;
}

qn_status order_seek(qn_dataset *d, int64_t epoch, int64_t row, qn_error *error)
{
    QN_TRY(order_begin_epoch(d, epoch, error));
    int64_t start = d->options.shuffle ? row / d->options.window_rows * d->options.window_rows : row, left = start;
    while (left > 0 && d->order_at < d->segment_count) {
        segment *g = &d->segments[d->order[d->order_at]];
        if (g->rows < 0) {
            QN_TRY(begin_segment(d, g, left, error));
            learn_rows(d, g);
            if (g->rows < 0) { /* it has so many, and more: reading goes on there */
                d->order_at++;
                left = 0;
                break;
            }
        }
        d->open = NULL;
        if (left < g->rows) {
            d->order_at++;
            QN_TRY(begin_segment(d, g, left, error));
            left = 0;
            break;
        }
        left -= g->rows;
        d->order_at++;
    }
    if (left) return error_set(error, QN_BAD_CALL, "row %lld is behind the end of the data set", (long long)row);
    d->window_start = start;
    d->window_skip = row - start;
    d->epoch_whole = row == 0;
    return QN_OK;
}
