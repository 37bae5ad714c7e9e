/*
 * Text of phases: what the printers of C and of CUDA share.
 * SPDX-License-Identifier: MIT
 */
#ifndef QUERN_EMIT_NEST_H
#define QUERN_EMIT_NEST_H

#include "emit/emit.h"
#include "loops/worker.h"

enum { NAMED_EXTENT, NAMED_STRIDE, NAMED_COUNT };
typedef bool array_names[MAX_RANK][NAMED_COUNT]; /* by axis */

/* What is known of the phase while it is turned into text. */
typedef struct emitter {
    const tile_kernel *k;
    const emit_options *options;
    arena *memory;
    const facts *facts;
    text *out;           /* statements go here */
    int depth;           /* of indentation */
    int line;            /* source line last named in a comment */
    survey *survey;      /* of the phase: its tables, plans and buffers */
    loop_worker *worker; /* ... its blocks, planned; of C */
    const char **names;  /* prelude functions needed */
    int name_count, name_capacity;
    map *name_set;
    const counted *counted; /* by parameter, of the phase; NULL on a GPU */
    bool *array_used;
    array_names *array_named; /* by parameter: extents and strides that the text names */
    bool *value_named;        /* [value]: its value_text was taken; NULL: nobody asks */
    bool prefetches;          /* the launch touches more than the caches hold */
    int (*loaded_in)[2];      /* by value: the first two passes that load it */
    int *ahead_in;            /* by value: the pass that asks for it as the next turn of its loop will load it */
    const tile_op *loop;      /* the innermost `for` around what is emitted, or NULL */
    int serial;               /* of names */
    bool needs_lanes;         /* the function lanes_between */
    int phase;
    bool streams;
    bool prints;                   /* some phase so far does */
    bool pipelined;                /* the passes now emitted run in step: c/pipeline.c */
    bool overlaps;                 /* bodies of this phase are to be mixed by the compiler */
    const char *const *value_text; /* [value]: for an operand of a `map` region; NULL: its own name */
    struct cuda_state *cuda;       /* of the CUDA emitter; NULL: C for the CPU */
    struct access_notes *notes;    /* of its accesses; NULL: nobody asks */
} emitter;

/* arrays.c */
extern const char words_zero[], words_one[]; /* known by their address: what is asked of them is never asked of text */
void arrays_forget(emitter *e);              /* no array is used, nothing of it named: a text begins */
/* Of an axis of an array: its stride, words_one where that is always 1; its extent. Both are noted in array_named. */
const char *stride_text(emitter *e, int array, int axis);
const char *array_extent(emitter *e, int array, int axis);

/* names.c: what is declared once at a level, by the words that it is. */
typedef struct level_names {
    map *of[MAX_RANK + 2];
} level_names;
const char *names_find(const level_names *n, int level, const char *words); /* NULL: it is not declared there */
void names_add(emitter *e, level_names *n, int level, const char *words, const char *name);
void names_forget(level_names *n, int level); /* of deeper levels: they are out of scope */

/* nest_buffer.c */
int buffer_for_dot(emitter *e, int64_t m, int64_t n);
const char *buffer_name(emitter *e, value v); /* for text: also notes that it is in use now */
const char *buffer_touch(emitter *e, int number);
void buffer_prepare(emitter *e, int number); /* before it is written: room on the heap, if that is where it lives */
void buffer_declare_all(emitter *e, const char *first,
                        text *out); /* pointers into scratch, behind so many bytes (or NULL) */
void buffer_scratch(emitter *e, const char *first, text *out); /* statements that count `bytes`, those too */
const char *buffer_bytes(emitter *e, const buffer *b);         /* a C expression */

/* c/expression.c */
const char *need(emitter *e, const char *format, ...) __attribute__((format(printf, 2, 3))); /* a prelude name */
const char *register_name(dtype t);                                                          /* f32, ..., bool */
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
void emit_block(emitter *e, const tile_block *b);
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
bool emit_plain_scalar(emitter *e, const tile_op *op, const char *const *operands);

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
    bool unit[MAX_RANK];                     /* ... the stride is always 1 */
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
matrix dot_operand_matrix(emitter *e, value v);
matrix dot_scale_matrix(emitter *e, value v); /* of an operand that has a scale */
/* NAME_first and NAME_last shrink to what the operand has along one of its axes. */
void dot_put_limit(emitter *e, const char *name, const matrix *m, int axis);
/* m_first to k_last: the extents of a product, cut to what its operands have. */
void dot_put_limits(emitter *e, const matrix *left, const matrix *right, int rank, const int64_t extents[2],
                    const char *depth);
void emit_dot(emitter *e, tile_op *op);
void dot_put_depth(emitter *e, const tile_op *loop); /* declares its variable and the product's `depth` */
void emit_loop_of_products(emitter *e, const tile_op *loop, tile_op *dot);
void emit_stored_loop(emitter *e, const item *items); /* ... when its sums start at zero and are stored: three items */
void emit_scan(emitter *e, tile_op *op);
void emit_fold_buffer(emitter *e, tile_op *op); /* argmax, argmin over axes that are not the innermost */

/* c/effect.c */
extern const char print_text[]; /* functions that the generated C needs once it prints */
void emit_print(emitter *e, tile_op *op);
int launch_axes(const tile_kernel *k, int phase); /* 1 to 3 */

#endif
