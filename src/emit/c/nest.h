/*
 * One group of loop nests while it becomes text: shared by c/nest.c (loops), c/value.c (values) and
 * c/access.c (memory).
 *
 * Statements are gathered by level: level n is inside n loops. A value is computed at the level of the innermost loop
 * it depends on, once, as a scalar; at the last level of a vector pass it is a vector of 16 positions j .. j+15. The
 * last level is written twice: for whole vectors inside all bounds, and for `lanes` positions with every test.
 * SPDX-License-Identifier: MIT
 */
#ifndef QUERN_EMIT_C_NEST_H
#define QUERN_EMIT_C_NEST_H

#include "emit/nest.h"

typedef struct reg {
    const char *words; /* a name or a literal */
    int level;
    bool truth; /* a bool that is known to hold */
} reg;

/* 0 <= start + position < extent along one loop axis. */
typedef struct constraint {
    value start;
    int kind; /* of a limit, and its number */
    int64_t number;
    int array, axis; /* whose extent it is; array -1: that of a `bound` */
    value extent;
} constraint;

typedef struct constraints {
    constraint *items;
    int count, capacity;
} constraints;

typedef struct memo {
    value v;
    place at;
    reg result;
} memo;

typedef struct nest {
    emitter *e;
    const group *group;
    const pass_nest *pass;
    int outer, loops; /* loops: of the pass */
    bool vector;      /* the pass has a loop of vectors: its last */
    bool partial;     /* the last level is written for `lanes` positions */
    bool single;      /* ... which may be all 16: the body serves for whole vectors too */
    bool in_blocks;   /* float sums of this pass are emptied now and then: put_sum_blocks */
    bool from_zero;   /* the loop of vectors begins at position 0 */
    text level[MAX_RANK + 2];
    memo *memos;
    int memo_count, memo_capacity;
    constraints known[MAX_RANK];  /* by loop axis: hold for all positions the loop runs over */
    constraints inside;           /* of the vector loop: assumed by the whole vectors */
    const char *position;         /* of lane 0: "j", or "(j + 16)" in an unrolled body */
    int part;                     /* number of the body, when it is unrolled */
    level_names names;            /* pointers and tests of the levels around */
    const char **firsts, **lasts; /* limits of the loops of a vector pass while it is emitted, by axis; else NULL */
    const char *stream_base;      /* pointer of position 0 of the first streaming store, or NULL */
} nest;

/* Where an access goes. Exactly one of stride and index is set when it differs from lane to lane. */
typedef struct address {
    dtype elem;
    const char *pointer; /* of lane 0, or of the origin when there is an index */
    const char *base;    /* the same at position 0 of the vector loop */
    const char *stride;  /* between lanes; words_one: side by side; NULL: one place for all */
    const char *index;   /* i64x16 */
    const char *ok;      /* a scalar condition, or NULL: always */
    const char *mask;    /* lanes that may be touched, or NULL: all that run */
    int level;
    bool aligned; /* position 0 lies at a multiple of 64 bytes */
} address;

void put_at(nest *n, int level, const char *format, ...) __attribute__((format(printf, 3, 4)));
void add_indented(text *to, const char *lines, int depth);
const char *fresh_name(emitter *e, value v); /* for a register of a nest */
bool level_is_vector(const nest *n, int level);

/* c/value.c */
reg nest_value(nest *n, value v, place at);
reg nest_compute(nest *n, value v, place at); /* even if it is kept elsewhere; remembered as its value */
void nest_remember(nest *n, value v, place at, reg r);
const char *as_vector(nest *n, dtype t, reg r);
/* Like nest_define, for what depends on no memory: equal texts of one level share a name. */
const char *nest_share(nest *n, int level, const char *type, const char *words);
reg nest_define(nest *n, value named, dtype t, int level, const char *words);

/* c/access.c */
address access_address(nest *n, const tile_op *op, place at);
address buffer_address(nest *n, value v, place at);
reg address_load(nest *n, value named, address a);
void address_store(nest *n, address a, reg r, bool stream);
void address_atomic(nest *n, address a, const tile_op *op, reg r, reg expected, bool kept, const char *old);
constraint constraint_of_axis(emitter *e, value start, int array, int axis);
constraint constraint_of_bound(emitter *e, const tile_op *bound);
const char *constraint_extent(emitter *e, const constraint *c);
bool constraint_known(const nest *n, int axis, const constraint *c);
/* Does it hold at this axis of a loop? A register of the test; truth when no test is needed. */
reg constraint_test(nest *n, int axis, const constraint *c, value step);

/* c/turn.c */
bool turned_load(nest *n, const tile_op *op, place at, address *result); /* false: not a load across lines */

/* c/ahead.c */
void access_prefetch(nest *n, const tile_op *op, const address *a);
void ahead_plan(emitter *e, const plan *p); /* of the body of the loop that is emitted next */

/* c/counts.c: declares an array that is counted in, and its copy; *own: bytes of the copies before it, counted on. Behind the
 * programs; the bytes of all copies, NULL: there are none. */
void counts_begin(emitter *e, int array, const char **own);
void counts_end(emitter *e);
const char *counts_bytes(emitter *e);

/* c/limits.c */
bool is_position(const sink *s);                                                       /* argmax, argmin */
constraints common_constraints(nest *n, const pass_nest *passes, int count, int axis); /* that all sinks share */
bool limits_are_even(const emitter *e, const constraints *list, int64_t extent); /* both ends are multiples of 16 */
void put_limits(nest *n, int level, const constraints *list, const char *extent, const char **first, const char **last);

/* c/fold.c */
enum { SUM_CHAIN = 64, SUM_BLOCKS = 64, UNROLL = 4, LIGHT_BODY = 6, CHAIN = 10, LONG_BODY = 14, CHAIN_TOO_LONG = 40 };

typedef struct accumulator {
    const sink *sink;
    dtype elem;
    const char *name, *position; /* position: argmax, argmin */
    const char *more[UNROLL];    /* of the unrolled bodies; [0] is name */
    int count;                   /* of accumulators */
    const char *block, *blocks;  /* sums of floats: of whole blocks, and of SUM_BLOCKS of them; else NULL */
} accumulator;

/* c/nest.c: one body of a pass in two halves. */
reg *pass_values(nest *n); /* of each sink: nothing is written yet */
void pass_effects(nest *n, const reg *values, const accumulator *accumulators, bool folds, bool others);
void forget_below(nest *n, int level); /* registers of deeper levels are out of scope */

bool is_fold_in_buffer(const sink *s);
accumulator declare_accumulator(nest *n, const sink *s, int count);
void fold_in_loop(nest *n, const accumulator *a, reg r);
void fold_into_buffer(nest *n, const sink *s, reg r);
/* Statements that empty the accumulators of float sums into those of blocks: an error grows with the longest chain of
 * additions, not with the row. Nothing if there is no such sum. filled: a variable that counts additions. */
void put_sum_blocks(nest *n, const accumulator *all, int count, const char *filled, text *out);
/* The same for sums in a buffer, whose loops do not end with the folded axes: two more buffers behind it hold sums of
 * blocks. The loop axis whose turns make blocks, or NO_AXIS; statements at the end of a turn; those behind the loops. */
int block_axis(const emitter *e, const pass_nest *pass, const sink *s, int outer);
void put_buffer_blocks(nest *n, const sink *s, int axis, const char *first, text *out);
void put_buffer_sum(nest *n, const sink *s);
void finish_fold(nest *n, const accumulator *a);
void keep_fold(nest *n, const sink *s); /* in its buffer, if another group needs it */
void put_fill(nest *n, const sink *s);
place place_of_result(const nest *n, const sink *s);

#endif
