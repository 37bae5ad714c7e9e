/*
 * A pass as it is looked at: its layout, what each of its axes is, which values were met at which level. Filled by
 * spread_survey.c before anything is chosen, and again by the printers, which put words to what they meet; both ask the
 * same rules here what an access allows.
 * SPDX-License-Identifier: MIT
 */
#ifndef QUERN_SCHEDULE_VIEW_H
#define QUERN_SCHEDULE_VIEW_H

#include "schedule/spread.h"

/* A value is computed once a group, once a row, once a chunk of `vector` elements, or once an element. */
enum { LEVEL_GROUP, LEVEL_ROW, LEVEL_CHUNK, LEVEL_ELEMENT, LEVEL_COUNT };
typedef enum axis_role { ROLE_ROW, ROLE_INNER, ROLE_VECTOR } axis_role;

typedef struct met_value {
    value v;
    place at;
    int level;
    const void *of; /* what a printer has of it; NULL: it was only looked at */
} met_value;

typedef struct nest_view {
    survey *survey;
    spread *spread;
    const group *group;
    const pass_nest *pass;
    pass_layout *layout;
    axis_role role[MAX_RANK];
    bool has_rows, has_inner; /* loops of rows; loops inside them */
    met_value *met;
    int met_count, met_capacity;
    struct windows *windows; /* of the pass: window.c; NULL: none */
} nest_view;

void view_take_layout(nest_view *n, pass_layout *l); /* of the pass that begins */
void view_remember(nest_view *n, value v, place at, int level, const void *of);
const met_value *view_met(const nest_view *n, value v, const place *at); /* NULL: it was not, at this place */
void view_forget(nest_view *n, int level);                               /* what is of deeper levels */
int axis_level(const nest_view *n, int axis);
place place_nowhere(void);
/* The axes that the passes of a group have as rows. column_fold: a fold keeps axes that are not the outer ones. */
unsigned group_rows(const survey *e, const group *g, bool *column_fold);
bool pass_is_fast(const pass_nest *pass, unsigned rows, bool column_fold); /* neighbouring threads, neighbouring rows */
/* What a store writes: rounding to a narrow float just before is the store's own business. */
value sink_stored_value(const survey *e, const sink *s);
place fold_result_place(const survey *e, const sink *s); /* in the loops: the axes of the operand that are left */
bool scan_is_row(const survey *e, const tile_op *op, int64_t loops[MAX_RANK]); /* it is one row, with these loops */
/* argmax and argmin over other axes than the innermost: a group of their own. */
typedef struct fold_group {
    sink sink;
    pass_nest pass;
    group group;
} fold_group;
const group *fold_group_of(const survey *e, tile_op *op, fold_group *f);
bool home_is_alias(const survey *e, value v);                    /* a view of another tile, in its own order */
bool home_is_here(const nest_view *n, value v, const place *at); /* at its own place of this pass */
/* exponent * factor, exponent / factor: the exponent's own scale goes into the factor. NULL: something else. */
const online *online_is_scaled(const nest_view *n, value v, const tile_op *op);
bool has_vectors(const tile_param *p); /* a vector at a multiple of its elements lies at a multiple of 16 bytes */
int64_t power_of_two(int64_t divisor);
int64_t limit_divisor(const survey *e, const limit *l); /* of the extent: a power of two */

/* What an access at its place in a pass allows, whatever the vector. */
typedef struct access_view {
    int level;         /* the deepest it depends on */
    bool late;         /* an index or a mask is computed in the chunk or the element */
    bool apart;        /* the elements of a vector go their own ways */
    bool side_by_side; /* along the vectors, by steps of one element; rows do not move it against each other */
    bool back;         /* the same backwards */
    bool tested;       /* an element may be outside */
    int width;         /* elements side by side and aligned, 16 bytes at most */
    int digits;        /* vectors of at most so many elements are not taken apart by digits; 0: it has none */
    int along_rows, along_inner; /* axes of memory that neighbouring rows, or positions of a row, go along */
} access_view;
access_view access_look(const nest_view *n, const tile_op *op, place at); /* after its indices and masks were met */
/* After its indices were met: does it lie side by side along the row, and only positions say where? */
bool access_is_row(const nest_view *n, const tile_op *op, place at);
int tile_level(const nest_view *n, const tile_type *type, const place *at); /* of a kept tile in memory */

/* A quotient or a remainder of a position: how the axes that one tile axis runs along are told apart. */
typedef struct digit {
    int axis;          /* loop axis of the position */
    bool side_by_side; /* the elements of a vector are neighbours; else they have the same */
    int64_t divisor;   /* vectors up to this many elements have such elements only */
} digit;
bool digit_look(const nest_view *n, value v, const place *at, digit *out);
value digit_by(const survey *e, const tile_op *op); /* the scalar that a DIV or MOD divides by */
bool access_is_digit(const nest_view *n, const tile_op *op, int axis, int operand, place at, digit *out);

/* A position compared with a scalar. */
typedef struct place_test {
    int side, axis; /* which operand is the position; its loop axis */
    value other;    /* the scalar */
} place_test;
bool place_test_look(const nest_view *n, const tile_op *op, place at, place_test *out);

/* window.c: loads of a pass that lie beside each other along its vectors. */
typedef struct window {
    const tile_op *load; /* the first one */
    place at;
    int members;
    int axis, loop;   /* of the array; of the pass */
    value base, fill; /* base: 0 for a constant start; fill: what a position outside counts as; 0: zero */
    int64_t step, low, high;
    value parts[4]; /* tests that do not run along the vector axis */
    int part_count;
    const tile_op *bound; /* the one that does; NULL: none */
    const char *name;     /* of a printer: its registers, once they are loaded */
} window;
void windows_find(nest_view *n); /* of the pass that begins */
int window_vector(const nest_view *n, const tile_op *load,
                  const place *at); /* elements of its vectors; 0: no window's */
/* The window that a load is of, and its place there; NULL: it is of none that shares anything. */
window *window_of(const nest_view *n, const tile_op *load, const place *at, int64_t *offset);
int window_width(const nest_view *n, const window *w); /* elements of a vector that are all inside or all outside */
limit window_limit(const survey *e, const window *w);
/* The load whose elements outside its mask this select replaces by a constant; NULL: it is another select. */
const tile_op *window_padded_load(const survey *e, const tile_op *select);
bool store_may_spread(const nest_view *n, const tile_op *op); /* its elements may be exchanged */

#endif
