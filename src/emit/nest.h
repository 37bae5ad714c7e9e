/*
 * Loop nests: how the tile ops of a block become C loops. Shared by nest*.c and the files of c/.
 *
 * A tile value is either *virtual* (computed where it is used, in registers) or *kept* (in a buffer of the worker's
 * scratch, row-major). What must run is a *sink*: a store, a fold, a value to keep. Sinks with one iteration space form
 * a *pass* (one loop nest, 16 lanes along the innermost axis); passes that agree on their outer axes form a *group*,
 * whose outer loops they share, so that a row stays in cache from one pass to the next.
 * Extents of 1 are no loops: the loop axes of a tile are its other axes, in order.
 * SPDX-License-Identifier: MIT
 */
#ifndef QUERN_EMIT_NEST_H
#define QUERN_EMIT_NEST_H

#include "emit/emit.h"
#include "ir/tile.h"

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
    int first, last;           /* emitter.time of the first and last item that names it; 0: none does */
    int first_pass, last_pass; /* emitter.pass_number likewise */
    int slot;                  /* the first buffer at the same place */
    bool shared;               /* that first one: others are there too */
} buffer;

/* What is known of the phase while it is turned into text. */
typedef struct emitter {
    const tile_kernel *k;
    const emit_options *options;
    arena *memory;
    const facts *facts;
    text *out;           /* statements go here */
    int depth;           /* of indentation */
    int line;            /* source line last named in a comment */
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
    const char **names; /* prelude functions needed */
    int name_count, name_capacity;
    map *name_set;
    bool *array_used;
    bool *rounds;        /* by value: operands of products that round to tf32 themselves; NULL: no product does */
    bool prefetches;     /* the launch touches more than the caches hold */
    int (*loaded_in)[2]; /* by value: the first two passes that load it */
    int *ahead_in;       /* by value: the pass that asks for it as the next turn of its loop will load it */
    int pass_number;
    const tile_op *loop; /* the innermost `for` around what is emitted, or NULL */
    int serial;          /* of names */
    int time;            /* counts the items of the plan as they are emitted */
    bool needs_lanes;    /* the function lanes_between */
    int dot_room;        /* the buffer for packing, 0: none */
    int phase;
    bool streams, has_assert, prints;
    bool pipelined;                /* the passes now emitted run in step: c/pipeline.c */
    bool overlaps;                 /* bodies of this phase are to be mixed by the compiler */
    const char *const *value_text; /* [value]: for an operand of a `map` region; NULL: its own name */
    struct cuda_state *cuda;       /* of the CUDA emitter; NULL: C for the CPU */
    struct access_notes *notes;    /* of its accesses; NULL: nobody asks */
} emitter;

/* nest_walk.c: the tree of virtual values below one. */
typedef void walk_visit(emitter *e, value v, const place *at, void *context);
/* Calls visit for v and all that it is computed from: virtual values, then what ends the tree (scalars, kept values,
 * results of folds). Scalars that index an access count too. */
void walk_tree(emitter *e, value v, place at, walk_visit *visit, void *context);
/* The operands of a sink: calls walk_tree for each (value, indices, masks). */
void walk_sink(emitter *e, const sink *s, walk_visit *visit, void *context);
bool value_is_virtual(const emitter *e, value v);
place place_of_operand(const emitter *e, const tile_op *op, int operand, const place *at);
place place_own(const tile_type *type); /* the loop axes of the value itself */
int loops_of(const tile_type *type, int64_t loops[MAX_RANK]);
bool place_same(const place *a, const place *b, int rank);
int place_level(const place *at, int rank); /* 1 + the innermost loop axis it depends on; 0 for none */
bool access_same(const emitter *e, const tile_op *a, const tile_op *b);    /* equal indices, whatever they do */
bool accesses_apart(const emitter *e, const tile_op *a, const tile_op *b); /* they never touch the same element */
/* 1 + tanh(x), the core of a GELU, is 2 * sigmoid(2 * x): shorter, and without the cancellation near -1. tanh: which
 * operand of the sum it is. */
bool is_one_plus_tanh(const emitter *e, const tile_op *op, int *tanh);
int value_weight(const emitter *e, value v);      /* what computing it again costs, about an addition each */
int sink_weight(const emitter *e, const sink *s); /* the same for all that a sink computes */

/* nest_plan.c */
/* targets: the values whose buffers the block's final `yield` fills, or NULL. */
plan plan_block(emitter *e, tile_block *b, const value *targets);
bool tile_is_buffered(const emitter *e, value v); /* by its nature: arguments of regions, results of dot, scan, loops */

/* nest_buffer.c */
int buffer_for(emitter *e, value v); /* the value's buffer, made if there is none */
int buffer_for_dot(emitter *e, int64_t m, int64_t n);
bool extent_at_launch(const emitter *e, value v); /* can be computed from scalar arguments alone */
const char *buffer_name(emitter *e, value v);     /* for text: also notes that it is in use now */
const char *buffer_touch(emitter *e, int number);
void buffer_loop_ends(emitter *e, int begin);   /* what lived before a loop and is named in it lives to its end */
void buffer_prepare(emitter *e, int number);    /* before it is written: room on the heap, if that is where it lives */
void buffer_declare_all(emitter *e, text *out); /* pointers into scratch */
void buffer_scratch(emitter *e, text *out);     /* statements that count `bytes` */
const char *buffer_bytes(emitter *e, const buffer *b); /* a C expression */

/* c/expression.c */
const char *need(emitter *e, const char *format, ...) __attribute__((format(printf, 2, 3))); /* a prelude name */
const char *stride_text(emitter *e, int array, int axis);
const char *register_name(dtype t); /* f32, ..., bool */
const char *memory_name(dtype t);   /* f32, f16, bf16, bool ... as in load_<m>x16 */
const char *memory_type(dtype t);   /* C type of an element in memory */
const char *scalar_c_type(dtype t); /* of a scalar in a register */
const char *vector_c_type(dtype t);
const char *number_text(emitter *e, dtype t, number n);
const char *emit_name(emitter *e, value v);
const char *extent_text(emitter *e, int64_t dim);
const char *splat(emitter *e, dtype t, const char *scalar);
/* The C expression of an elementwise op; operands are texts of registers, all vectors or all scalars. */
const char *expression(emitter *e, const tile_op *op, const char *const *operands, bool vector);
const char *fold_step(emitter *e, fold_kind fold, dtype t, const char *a, const char *b, bool vector);
const char *fold_lanes(emitter *e, fold_kind fold, dtype t, const char *v); /* horizontally */

/* c/emit.c */
void put(emitter *e, const char *format, ...) __attribute__((format(printf, 2, 3))); /* one indented line */
void put_line_comment(emitter *e, const tile_op *op);
void emit_directive(const emitter *e, int line, text *out); /* a #line, where they are asked for */
/* The comment at the top: the kernel's name, and for one that is in no file the ops it was made of, with their lines. */
void emit_title(const tile_kernel *k, text *out);
void emit_block(emitter *e, tile_block *b, const value *targets);
void emit_scalar_op(emitter *e, tile_op *op);
void emit_failure(emitter *e, int kind, int line); /* CPU_FAILED_ASSERT or CPU_FAILED_MEMORY */

/* emit_variables.c: scalars that regions carry, in C and in CUDA */
bool emit_is_tile(const emitter *e, value v);
const tile_op *emit_last_op(const tile_block *b);
void emit_declare(emitter *e, value v, const char *words);
/* All new values first, then the assignments: a yield may exchange variables. */
void emit_assign(emitter *e, const tile_op *yield, const value *targets);
void emit_declare_variables(emitter *e, const value *variables, const value *starts, int count);
void emit_declare_results(emitter *e, const tile_op *op, const value *variables);
void emit_declare_arms(emitter *e, const tile_op *op);                      /* results of an `if`, before it */
void emit_assign_arm(emitter *e, const tile_op *op, const tile_block *arm); /* at the end of an arm */
void emit_for_head(emitter *e, const tile_op *op);                          /* "for (...) {" */
/* An op of scalars that is the same in both languages; false: it is not one. */
bool emit_plain_scalar(emitter *e, tile_op *op, const char *const *operands);

/* c/nest.c */
void emit_group(emitter *e, const group *g);

/* c/pipeline.c */
/* The body of a loop over steps, if the phase can run as a pipeline: how many stages; 0: it cannot, nothing was put. */
int emit_pipeline(emitter *e, const plan *plan, text *declarations);

/* c/access.c: see there */

/* digits.c: what a position on an axis with digits adds to a sum with these factors; NULL: nothing. */
const char *digits_sum(emitter *e, const axis_digits *d, const int64_t *factors, const char *position);
void digits_numbers(text *to, const int64_t *numbers, int count, const char *end); /* {1, 2}, `end` behind each */

/* c/dot.c */
typedef struct matrix {                      /* an operand of dot as pointer and strides */
    const char *pointer, *strides[MAX_RANK]; /* by axis of the operand */
    const char *limits[MAX_RANK][2];         /* first and last position that is inside; NULL: all */
    const char *ok;                          /* NULL: always */
    const param_digits *digits;              /* of the array; NULL: places are by strides */
    int digit_axis[MAX_RANK];                /* by axis of the operand: that of the array, with digits; -1: none */
    const char *starts[MAX_RANK];            /* ... and where it begins there */
    const char *first[GUARDS_MOST];          /* what guards start from */
} matrix;
/* c/gather.c: the last part of a call that multiplies operands of which one is gathered: views of both, from
 * m_first, n_first and k_first on, then the call up to the operands. The caller goes on with the other arguments and ends
 * the block. */
void gather_put_operands(emitter *e, const char *function, const matrix *left, const matrix *right);
/* The distances of `count` positions from `start` on of an axis with digits, as text: a pointer to a table of them. */
const char *gather_places(emitter *e, const axis_digits *d, const char *start, const char *count);
bool dot_operand_is_direct(const emitter *e, value v, tile_op **load, bool *swapped);
matrix dot_operand_matrix(emitter *e, value v);
/* NAME_first and NAME_last shrink to what the operand has along one of its axes. */
void dot_put_limit(emitter *e, const char *name, const matrix *m, int axis);
void emit_dot(emitter *e, tile_op *op);
/* A loop that does nothing but add products of neighbouring slices to a tile is one deeper product: its dot, or NULL. */
tile_op *loop_is_product(const emitter *e, const tile_op *loop);
void dot_put_depth(emitter *e, const tile_op *loop); /* declares its variable and the product's `depth` */
void emit_loop_of_products(emitter *e, const tile_op *loop, tile_op *dot);
/* ... and when its sums start at zero and are stored: three items of a plan. */
/* Two items: sums set to zero, and a loop of products that adds to them. */
bool loop_starts_at_zero(const emitter *e, const item *items);
bool loop_is_stored(const emitter *e, const item *items);
void emit_stored_loop(emitter *e, const item *items);
void emit_scan(emitter *e, tile_op *op);
void emit_fold_buffer(emitter *e, tile_op *op); /* argmax, argmin over axes that are not the innermost */

/* c/effect.c */
extern const char print_text[]; /* functions that the generated C needs once it prints */
void emit_print(emitter *e, tile_op *op);
int launch_axes(const tile_kernel *k, int phase); /* 1 to 3 */

#endif
