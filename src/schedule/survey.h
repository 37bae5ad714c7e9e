/*
 * The survey of a phase: its ops as passes over loops, and what is known of its values. Shared by the planner (plan.c), by
 * layouts on a GPU and by the printers, which read it.
 *
 * A tile value is either *virtual* (computed where it is used, in registers) or *kept* (in a buffer, row-major). What must
 * run is a *sink*: a store, a fold, a value to keep. Sinks with one iteration space form a *pass* (one loop nest); passes
 * that agree on their outer axes form a *group*, whose outer loops they share, so that a row stays where it is from one
 * pass to the next. Extents of 1 are no loops: the loop axes of a tile are its other axes, in order.
 * SPDX-License-Identifier: MIT
 */
#ifndef QUERN_SCHEDULE_SURVEY_H
#define QUERN_SCHEDULE_SURVEY_H

#include "ir/tile.h"
#include "passes/facts.h"

#define NO_AXIS (-1)

/* Where a value is asked for: for each of its axes the loop axis that runs along it, or NO_AXIS for position 0. */
typedef struct place {
    signed char axis[MAX_RANK];
} place;

typedef enum sink_kind {
    SINK_STORE,
    SINK_ATOMIC,
    SINK_REDUCE,
    SINK_ASSERT,
    SINK_SCALAR /* a tile of one element to a scalar */,
    SINK_KEEP /* v to its own buffer */,
    SINK_COPY /* v to the buffer of another value: carried tiles, results of branches */
} sink_kind;

typedef struct sink {
    sink_kind kind;
    tile_op *op;
    value v;       /* what is computed: for folds the operand */
    value result;  /* REDUCE, ATOMIC: the op's result; KEEP, COPY: the value whose buffer is written */
    int fold_axis; /* REDUCE: the first folded loop axis when the folded ones are the innermost, else NO_AXIS */
} sink;

typedef struct pass_nest { /* loops[0 .. loop_count) are extents like tile_type.dims */
    int loop_count;
    int64_t loops[MAX_RANK];
    sink *sinks;
    int sink_count, sink_capacity;
} pass_nest;

typedef struct group {
    int outer; /* loop axes that the passes share; -1 while open and any number would do */
    pass_nest *passes;
    int pass_count, pass_capacity;
} group;

typedef enum item_kind { ITEM_SCALAR, ITEM_GROUP, ITEM_CONTROL, ITEM_DOT, ITEM_SCAN, ITEM_FOLD, ITEM_EFFECT } item_kind;
typedef struct item {
    item_kind kind;
    tile_op *op; /* all but GROUP */
    group *group;
} item;

typedef struct plan { /* of one block, in order of execution */
    item *items;
    int count, capacity;
} plan;

typedef struct buffer {
    dtype elem;
    tile_type shape;
    int64_t extra_bytes;
    int more;                  /* so many further ones of the same size lie behind it: sums of blocks */
    bool run_time;             /* its size is known only inside the program: allocated there */
    int first, last;           /* survey.time of the first and last item that names it; 0: none does */
    int first_pass, last_pass; /* survey.pass_number likewise */
    int slot;                  /* the first buffer at the same place */
    bool shared;               /* that first one: others are there too */
} buffer;

typedef struct survey {
    const tile_kernel *k;
    arena *memory;
    const facts *facts;
    int *uses;           /* operands that name a value */
    bool *force;         /* keep this value */
    int *seen, seen_now; /* of walk_tree */
    place *seen_at;
    signed char *at_launch;        /* by value, of extent_at_launch: 0 is not asked yet, -1 no */
    struct plan_space *plan_space; /* of plan_block, for all blocks */
    int *buffer_of;                /* value to buffer number; 0: none */
    bool *written, *read;          /* by parameter: some op of this phase does */
    buffer *buffers;               /* [0] unused */
    int buffer_count, buffer_capacity;
    bool *rounds; /* by value: operands of products that round to tf32 themselves */
    /* By value: the load of the numbers, one for each k, that an operand of a product is multiplied with; or NULL. */
    tile_op **scales;
    int pass_number; /* of the pass that is looked at or printed */
    int time;        /* counts the items of the plan */
    int dot_room;    /* the buffer that products share, 0: none so far */
    bool has_assert, prints;
    struct spread *spread; /* over the threads of a GPU; NULL: a worker of the CPU runs it */
} survey;

/* buffers.c: tables for a phase, uses counted. */
void survey_open(survey *e, int phase);
int buffer_for(survey *e, value v);              /* the value's buffer, made if there is none */
bool extent_at_launch(const survey *e, value v); /* can be computed from scalar arguments alone */
void buffer_use(survey *e, int number);          /* it is in use now */
void buffer_loop_ends(survey *e, int begin);     /* what lived before a loop and is named in it lives to its end */

/* counted.c: by parameter; elements of a program at least, 0: the phase does something else with it, too. */
typedef struct counted {
    atomic_kind kind;
    int64_t elements;
} counted;
counted *counted_arrays(survey *e, int phase);

/* walk.c: the tree of virtual values below one. */
typedef void walk_visit(survey *e, value v, const place *at, void *context);
/* Calls visit for v and all that it is computed from: virtual values, then what ends the tree (scalars, kept values,
 * results of folds). Scalars that index an access count too. */
void walk_tree(survey *e, value v, place at, walk_visit *visit, void *context);
/* The operands of a sink: calls walk_tree for each (value, indices, masks). */
void walk_sink(survey *e, const sink *s, walk_visit *visit, void *context);
bool value_is_virtual(const survey *e, value v);
place place_of_operand(const survey *e, const tile_op *op, int operand, const place *at);
place place_own(const tile_type *type); /* the loop axes of the value itself */
int loops_of(const tile_type *type, int64_t loops[MAX_RANK]);
bool place_same(const place *a, const place *b, int rank);
int place_level(const place *at, int rank); /* 1 + the innermost loop axis it depends on; 0 for none */
bool access_same(const survey *e, const tile_op *a, const tile_op *b);    /* equal indices, whatever they do */
bool accesses_apart(const survey *e, const tile_op *a, const tile_op *b); /* they never touch the same element */
/* 1 + tanh(x), the core of a GELU, is 2 * sigmoid(2 * x): shorter, and without the cancellation near -1. tanh: which
 * operand of the sum it is. */
bool is_one_plus_tanh(const survey *e, const tile_op *op, int *tanh);
int value_weight(const survey *e, value v);      /* what computing it again costs, about an addition each */
int sink_weight(const survey *e, const sink *s); /* the same for all that a sink computes */

/* plan.c */
/* targets: the values whose buffers the block's final `yield` fills, or NULL. */
plan plan_block(survey *e, tile_block *b, const value *targets);
bool tile_is_buffered(const survey *e, value v); /* by its nature: arguments of regions, results of dot, scan, loops */

/* direct.c: operands of products that are slices of arrays, loops that are one product. */
bool is_one(const survey *e, value v); /* the constant 1 */
/* 0 <= start + position < extent along one axis. */
typedef struct limit {
    value start;
    enum { EXTENT_NUMBER, EXTENT_PARAM, EXTENT_ARRAY, EXTENT_VALUE } kind;
    int64_t number; /* the constant, parameter, 8 * array + axis, or value */
} limit;
limit limit_of_axis(const survey *e, value start, int array, int axis);
limit limit_of_bound(const survey *e, const tile_op *bound);
bool dot_operand_is_direct(const survey *e, value v, tile_op **load, bool *swapped);
/* A loop that does nothing but add products of neighbouring slices to a tile is one deeper product: its dot, or NULL. */
tile_op *loop_is_product(const survey *e, const tile_op *loop);
/* Two items: sums set to zero, and a loop of products that adds to them. */
bool loop_starts_at_zero(const survey *e, const item *items);
const sink *item_only_sink(const item *it); /* the only sink of a group, or NULL */

#endif
