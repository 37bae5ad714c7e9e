/*
 * Loop groups: pointwise ops and reductions over one iteration space.
 *
 * Axes of the space are *outer* or *inner*. Folds go over all inner axes (a row fold, known to its program at once), or
 * over all outer ones, or over both (late folds: partial results of many programs, joined in a later phase). Every op
 * that is written or folded has one place in the space, its map.
 * SPDX-License-Identifier: MIT
 */
#ifndef QUERN_FUSE_LOOP_H
#define QUERN_FUSE_LOOP_H

#include "fuse/group.h"
#include "fuse/sizes.h"

#define LOOP_CUT_CHIP FUSE_SIZE((int64_t)1 << 22) /* elements of a row that the registers of a whole GPU hold */
#define LOOP_CUT_LINE \
    FUSE_SIZE(1024) /* elements of a line from which on lower_cut.c gives it a program of its own on a GPU */

typedef enum loop_shape {
    LOOP_MAP,    /* no folds */
    LOOP_ROW,    /* row folds only: a program a row */
    LOOP_COLUMN, /* late folds only: inner axes stay, outer ones are folded chunk by chunk (no inner axes: all goes) */
    LOOP_BOTH,   /* row folds and late ones: a program takes rows one after another */
    LOOP_SCAN    /* one scan along the inner axis, no folds: a program a row */
} loop_shape;

typedef struct loop {
    builder *b;
    const group *grp;
    trace *t;
    space space;
    loop_shape shape;
    unsigned outer, inner; /* axes of the space */
    unroll_kind unroll;    /* small folds that are chains of terms, no folds of the space */
    bool turned;           /* inner axes, though the last axis is an outer one */
    bool short_columns;    /* ... of at most LOOP_SHORT_COLUMNS rows, and few of them */
    int64_t line;          /* elements of the lines that a long last axis is cut into (lower_cut.c); 0: it is not */
    int strip;             /* results that a place takes along t->strip_axes (strip.c); 0: one */
    locals around;
    index_map **maps; /* by local; NULL: it has no one place */
    lower_output *outputs;
    int output_count;
    bool *late; /* by term: it needs a late fold */
} loop;

/* loop.c: NULL: b->why says why not. */
loop *loop_analyse(builder *b, const group *grp);

/* loop_space.c */
node loop_main_fold(const loop *p); /* whose input spans the space; 0: there is none */
node loop_widest_write(const loop *p);
bool loop_spread_maps(loop *p);                              /* false: an axis has to be cut first */
int loop_local(const loop *p, node n);                       /* among those around; -1: it is none of them */
bool loop_is_scan(const loop *p, node n);                    /* computed here */
bool loop_is_position(const graph_node *x);                  /* argmax and argmin */
bool loop_is_fold(const loop *p, node n);                    /* ... a fold of the space, or a scan */
unsigned loop_folded_axes(const loop *p, node n);            /* of the space, of a fold */
unsigned loop_map_axes(const loop *p, const index_map *map); /* of the space that it depends on */

/* Many short rows, one behind the other, that begin between vectors of memory: threads of a GPU load and store them
 * together, and each has one. Their length is in the text. */
bool loop_is_line(const loop *p);
bool loop_writes_rows(const loop *p); /* on a GPU: rows of memory, folded, and results that go along them */

/* Do inner lines of some array begin between vectors of memory? */
bool loop_begins_between(const loop *p);

/* pair.c: a fold that waits for another one of the same rows, `first`, and need not: sum((x - m)^2), m a multiple of sum(x), and
 * sum(exp(x - m)), m = max(x). A program carries what it would be of the rows so far, and beside it their mean or maximum. */
typedef enum pair_kind { PAIR_NONE, PAIR_SQUARES, PAIR_EXPONENTS } pair_kind;
typedef struct loop_pair {
    pair_kind kind;
    int source, about, first, less; /* terms: x, m, the fold that m comes from, x - m */
} loop_pair;
typedef struct pair_state {
    value fold, beside;
} pair_state;
enum { PAIR_ROWS = 8 }; /* of a turn, at most */
bool loop_find_pair(const loop *p, int fold, loop_pair *out);
bool loop_carries_pairs(const loop *p);
/* These rows (values of x) join what is carried; count: of rows carried so far, f32. */
void pair_turn(lowering *l, frame *f, pair_kind kind, const value *rows, int row_count, value count, pair_state *s);
/* What is carried along tile axis 0 becomes one; count: rows of each, all: their sum. */
void pair_leave(lowering *l, frame *f, pair_kind kind, value count, value all, bool to_scalar, pair_state *s);
/* What a part of `count` rows adds to the fold about m. */
value pair_join(lowering *l, frame *f, pair_kind kind, value about, value count, const pair_state *part);

/* strip.c: the loop with several results at each place; NULL: that saves nothing. */
loop *loop_strip(const loop *p);

/* lower_map.c, lower_row.c, lower_column.c */
qn_status map_kernel(const loop *p, fuse_kernel *out, qn_error *error);
qn_status row_kernel(const loop *p, fuse_kernel *out, qn_error *error);
qn_status scan_kernel(const loop *p, fuse_kernel *out, qn_error *error); /* lower_scan.c */
qn_status column_kernel(const loop *p, fuse_kernel *out, qn_error *error);
qn_status both_kernel(const loop *p, fuse_kernel *out, qn_error *error);

/* lower_cut.c: rows of several inner axes, line by line. */
bool cut_is_better(const loop *p, const lowering *l, const int *inner, int count, const int *outer, int outer_count);
qn_status cut_rows(const loop *p, lowering *l, const int *inner, int count, const int *outer, int outer_count,
                   fuse_kernel *out, qn_error *error);

int64_t loop_width(int64_t extent, int64_t most); /* a power of two from 8 to `most`, no wider than it need be */

/* Kernel axes of a set of axes of the space, in order; returns how many. */
int loop_axes(const loop *p, const lowering *l, unsigned axes, int *out);
lowering *loop_begin(const loop *p);
bool loop_is_row_fold(const loop *p, const term *x);
int *loop_fold_depths(const loop *p); /* by term: how many row folds are below it at most, one inside the other */
bool *loop_needed(const loop *p);     /* by term: an output is computed from it */
/* All row folds that the outputs need, those first that wait for fewest others: what waits for nothing between them
 * shares a pass over the row. */
void loop_lower_folds(const loop *p, lowering *l, frame *f);
/* A program for each coordinate of these kernel axes: counts in the head, coordinates in the frame. Axis i of `axes`
 * takes steps of blocks[i] (1: a scalar). first_count: a launch axis before them, 0: none. */
void loop_programs(lowering *l, frame *f, const int *axes, const int64_t *blocks, int count, int phase,
                   value first_count, value *starts);
/* Rows that are so few leave a GPU idle: the wish that each goes to all threads of a block. */
bool loop_is_few(const loop *p, int64_t programs);
#define LOOP_SHORT_COLUMNS 256 /* rows of short columns */
void loop_wish_of_few(const loop *p, lowering *l, int64_t programs);

#endif
