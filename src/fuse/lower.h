/*
 * From a trace to tile IR: what the builders of all kinds of kernels share.
 *
 * A builder (1) traces what its kernel computes and names its outputs, (2) calls lower_begin, which collapses the axes
 * of the space that every access can take as one into *kernel axes*, (3) makes phases and frames and asks for the
 * values of terms in them, (4) calls lower_finish.
 * A frame says how each kernel axis is seen in a block of the IR: as one coordinate (a scalar), or as a run of
 * coordinates along an axis of the frame's tiles. A term's value is a scalar, or a tile of the frame's rank with extent
 * 1 where the term does not depend on the axis.
 * Arrays become parameters by the axes they depend on; strides are the caller's. Numbers that come with shapes are
 * scalar parameters, so that the text of a kernel is the same for all sizes.
 * SPDX-License-Identifier: MIT
 */
#ifndef QUERN_FUSE_LOWER_H
#define QUERN_FUSE_LOWER_H

#include "fuse/trace.h"

#define LOWER_ARRAYS 32
#define LOWER_PARAMS 60

typedef struct lower_axis {
    bool set, tile;
    int tile_axis;
    value start;  /* tile: of the first element; else the coordinate */
    bool outside; /* tile: some of the coordinates may not exist */
    value
        digit; /* tile: several axes run along one tile axis; the coordinates of this one. 0: it has that for itself */
} lower_axis;

typedef struct frame {
    struct frame *outer;
    tile_block *block;
    int rank;
    int64_t dims[MAX_RANK];      /* as in tile_type */
    lower_axis axes[SPACE_AXES]; /* by kernel axis */
    value *values;               /* by term; 0: not computed here */
    value mask;                  /* which elements exist; 0: not asked for yet */
    bool inside;                 /* lower_whole held: no coordinate of the tile leaves what it goes through */
    bool turns;                  /* what lies along its first axis is loaded in its own order, and turned */
    bool lines;                  /* rows that lie one behind the other are loaded and stored as one line */
    bool rows_inside;            /* it held for coordinates that are the same for the whole tile */
} frame;

/* What is written: a node of the graph, at a dense map. */
typedef struct lower_output {
    node n;
    index_map map;
    int term;
    int within; /* of a strip: the term that says whether this place is one; 0: the extents of the array say it (strip.c) */
} lower_output;

typedef struct lowering {
    arena *memory;
    const trace *t;
    const fuse_options *options;
    const fuse_leaf *leaves; /* by node */
    tile_kernel *k;
    tile_block *phase;           /* the entry of the phase being built */
    bool whole;                  /* all axes of a class are one kernel axis */
    int axis_count;              /* kernel axes */
    int order[SPACE_AXES];       /* axes of the space, outermost first: how kernel axes count through theirs */
    int axis_of[SPACE_AXES];     /* by axis of the space */
    int innermost[SPACE_AXES];   /* by kernel axis: its last axis of the space */
    int64_t extents[SPACE_AXES]; /* by kernel axis */
    int extent_param[SPACE_AXES];
    value phase_extents[SPACE_AXES], head_extents[SPACE_AXES];
    fuse_argument arguments[LOWER_PARAMS]; /* by parameter */
    bool is_argument[LOWER_PARAMS];
    number numbers[LOWER_PARAMS]; /* by parameter: scalars */
    node *nodes;                  /* of the line comments, by line - 1 */
    int node_count, node_capacity;
    const char *why; /* something does not fit; NULL: nothing */
} lowering;

/* classes: by axis of the space; only axes of one class become one kernel axis: those that every access goes through as
 * one, or (whole: an order of the axes, outermost first) all of them, and an access that does not becomes one by digits
 * (see param_digits). */
lowering *lower_begin(const trace *t, const fuse_leaf *leaves, const fuse_options *options, const int *classes,
                      const lower_output *outputs, int output_count, const int *whole);
void lower_phase(lowering *l);
frame *lower_frame(lowering *l, frame *outer, tile_block *block); /* NULL, NULL: of the phase itself */
void frame_scalar(frame *f, int axis, value coordinate);
/* The axis runs along tile axis `tile_axis` from `start` (0: from the beginning) over dims[tile_axis] elements. */
void frame_tile(frame *f, int axis, int tile_axis, value start, bool outside);
/* All these axes, the last the fastest, run along tile axis 0, whose extent is the product of theirs. */
void lower_digits(lowering *l, frame *f, const int *axes, int count);

value lower_term(lowering *l, frame *f, int term);
value lower_stored(lowering *l, frame *f, int term); /* of an ACCESS: as it lies in memory, f16 and bf16 too */
/* The ACCESS `term`, 0 where one of the INSIDE terms in `guards` does not hold, as it lies in memory. */
value lower_guarded(lowering *l, frame *f, int term, const int *guards, int guard_count);
void lower_bind(frame *f, int term, value v);
/* The term's values folded over those tile axes of the frame that its folded axes run along. */
value lower_fold(lowering *l, frame *f, int term);
/* v, with what comes before each element of tile axis 0; x: the FOLD term it is for. */
value lower_scan(lowering *l, frame *f, value v, const term *x);
/* A scalar: all elements of the tile exist, and no coordinate lies in padding; `rows`: of those coordinates alone that
 * are the same for the whole tile. */
value lower_whole(lowering *l, frame *f, bool rows);
value lower_mask(lowering *l, frame *f); /* of elements that exist; 0: all do */
/* Where it is false, x becomes the identity of the fold. x gets the frame's full shape. */
value lower_fill(lowering *l, frame *f, value x, fold_kind fold);
/* A combination step: a fold b. */
value lower_combine(lowering *l, frame *f, fold_kind fold, value a, value b, node n);
/* v folded over tile axes, which stay with extent 1; to_scalar: all of it becomes one number. n: the node it is for. */
value lower_reduce(lowering *l, frame *f, value v, fold_kind fold, node n, unsigned tile_axes, bool to_scalar);
/* Of things counted from `first` along axis 0 of the frame: where there is one (below count) now, else old. */
value lower_keep_beyond(lowering *l, frame *f, value first, value count, value now, value old);
void lower_store(lowering *l, frame *f, const lower_output *out, value v);
void lower_checks(lowering *l, frame *f); /* asserts for indices, where options say so */

/* Scratch arrays: rank extents that the head computed (values of the head). Returns the parameter. */
int lower_scratch(lowering *l, const char *name, dtype elem, const value *extents, int rank);
/* Access to a scratch array (or any array): coordinate k is `scalar[k]`, or tile axis `axis[k]` >= 0 from scalar[k]. */
value lower_load_array(lowering *l, frame *f, int param, const value *scalar, const int *axis, const bool *safe);
void lower_store_array(lowering *l, frame *f, int param, const value *scalar, const int *axis, const bool *safe,
                       value v);

/* Building blocks; `b` is where the op goes. */
value lower_op(lowering *l, tile_block *b, op_code code, dtype elem, const value *operands, int count, node n);
int lower_line(lowering *l, node n);                                  /* of a node in the kernel's comments; 0: none */
void lower_note(lowering *l, tile_op *op, node n);                    /* the op is for this node: comments, names */
value lower_integer(lowering *l, tile_block *b, int64_t n);           /* a literal */
value lower_number(lowering *l, tile_block *b, dtype elem, number n); /* a literal */
value lower_broadcast(lowering *l, frame *f, value x, unsigned tile_axes); /* to the frame's extents on these */
value lower_convert(lowering *l, tile_block *b, value x, dtype elem);
value lower_program(lowering *l, int axis);
value lower_extent(lowering *l, int axis);                    /* of a kernel axis, in the phase */
value lower_head_extent(lowering *l, int axis);               /* in the head */
value lower_head_parts(lowering *l, int axis, int64_t block); /* cdiv(extent, block), in the head */
/* A further scalar parameter, of i64: its number may differ from call to call of one text. */
int lower_scalar(lowering *l, const char *name, int64_t n);
value lower_scalar_value(lowering *l, tile_block *b, int param);
/* for (index = first; index < limit; index += step) with carried values. Fill `body`, then end it with the next values
 * (brought to the carried types); the results are what the last turn left. */
typedef struct lower_for {
    tile_op *op;
    tile_block *body;
    value index, carried[LOWER_ARRAYS];
    int count;
} lower_for;
lower_for lower_for_begin(lowering *l, value first, value limit, value step, const value *carried, int count);
void lower_for_end(lowering *l, tile_block *b, lower_for *loop, const value *next, value *results);
/* The same where the carried values are folds (`folds`, carried from their identities): sums of floats are added up in
 * blocks of `block` turns, and with two levels those in blocks of so many blocks, so that an error grows with the length
 * of a block and not with the number of turns. What a turn does goes into `in`. No level: one loop. */
enum { SUM_LEVELS = 2 };
typedef struct lower_sums {
    lower_for in, around[SUM_LEVELS];
    int levels; /* loops around `in` */
    bool is_sum[LOWER_ARRAYS];
} lower_sums;
lower_sums lower_sums_begin(lowering *l, tile_block *b, value first, value limit, value step, int levels, int64_t block,
                            const value *carried, const fold_kind *folds, int count);
void lower_sums_end(lowering *l, tile_block *b, lower_sums *loop, const value *next, value *results);
void lower_phase_launch(lowering *l, int phase, const value *counts, int count);
tile_type frame_type(const frame *f, dtype elem, unsigned tile_axes);        /* scalar for no axes */
unsigned frame_axes(const lowering *l, const frame *f, unsigned space_axes); /* tile axes that these run along */

/* Verified; name by the ops. Fails where something of the machine's limits is exceeded, with why. */
qn_status lower_finish(lowering *l, fuse_kernel *out, qn_error *error);

#endif
