/*
 * A data set inside: sources, the order in which their rows come, the window they are shuffled in. dataset.c opens and
 * describes, order.c decides the order, next.c gives batches. SPDX-License-Identifier: MIT
 */
#ifndef QUERN_DATA_DATASET_H
#define QUERN_DATA_DATASET_H

#include "data/source.h"

/* Rows of one block that are read together. */
typedef struct segment {
    int source;
    int64_t block, skip; /* rows of the block that are left out */
    int64_t first;       /* the number of its first row; -1: not known yet */
    int64_t rows;        /* -1: all of a block that nobody has counted */
} segment;

struct qn_dataset {
    qn_dataset_options options;
    pool *workers;
    source **sources;
    int source_count;
    qn_schema schema;
    segment *segments; /* in the order of the files */
    int64_t segment_count;
    int64_t split_rows; /* -1: not counted yet */
    uint64_t threshold; /* a row is held out if its hash is below */
    uint64_t check;
    /* Where the reading stands. */
    int64_t epoch;
    int64_t *order;       /* of the segments in this epoch */
    int64_t order_at;     /* the next one to begin */
    segment *open;        /* being read, or NULL */
    int64_t open_at;      /* its rows read so far */
    int awake;            /* the source that was begun last; -1: none */
    int64_t window_start; /* rows of the epoch before the window */
    int64_t window_rows;  /* in it; 0: it is to be filled */
    int64_t window_at;    /* the next one, in shuffled order */
    int64_t window_skip;  /* rows of the window to come that were given before */
    bool order_made, done;
    bool epoch_whole; /* read from its first row, so that it can be said to have no batch */
    int64_t epoch_batches;
    /* The window: window_capacity rows. */
    int64_t window_capacity;
    row_memory window;
    int64_t *row_numbers;
    uint32_t *places; /* NULL: in order */
    /* Rows of the batch being filled. */
    uint32_t *picked;
    const qn_batch *batch;
    int64_t batch_at;
};

/* order.c */
qn_status order_begin_epoch(qn_dataset *d, int64_t epoch, qn_error *error);
/* Makes `row` of the epoch the next one. */
qn_status order_seek(qn_dataset *d, int64_t epoch, int64_t row, qn_error *error);
/* The next window; window_rows is 0 at the end of the epoch. */
qn_status order_fill(qn_dataset *d, qn_error *error);
/* Reads through what nobody has counted. */
qn_status order_count(qn_dataset *d, qn_error *error);
bool dataset_counted(const qn_dataset *d); /* qn_dataset_rows need not read a log to its end */

/* metadata_json.c */
qn_status metadata_parse(const char *name, const char *bytes, size_t size, qn_metadata **metadata, qn_error *error);

static inline bool is_in_split(const qn_dataset *d, int64_t row)
{
    if (d->options.split == QN_SPLIT_ALL) return true;
    return (mix_two(d->options.split_seed ^ 0x6a09e667f3bcc908u, (uint64_t)row) < d->threshold) ==
           (d->options.split == QN_SPLIT_HELD_OUT);
}

#endif
