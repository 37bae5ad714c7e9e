/*
 * What the files of the interpreter share: tiles held in memory, the state of a launch, the parts' entry points.
 *
 * A tile is immutable once made and counted by its uses, so that yields and carried values move by pointer. Beside its
 * elements it may have, in a checking run, per element: poison (masked off: no value), birth (where a NaN or infinity
 * came from) and plain (written by a plain assignment, for R708). NULL means none of them.
 * SPDX-License-Identifier: MIT
 */
#ifndef QUERN_IR_INTERP_STATE_H
#define QUERN_IR_INTERP_STATE_H

#include "ir/interp.h"

#include <setjmp.h>

/* Floats in f; integers and bools in i, wrapped to their type (u64 by bit pattern). */
typedef union cell {
    int64_t i;
    double f;
} cell;

typedef struct tile tile;
struct tile {
    tile_type type; /* dims are constants */
    int64_t count;
    cell *cells;
    uint8_t *poison;
    int32_t *birth; /* > 0: the value whose op made it; < 0: -(parameter + 1), it came with the input; 0: finite */
    uint8_t *plain;
    int uses;
    cell one;   /* the cells of a tile of one element */
    tile *next; /* in the free list */
    tile *next_of_all;
};

typedef enum stop_kind { STOP_NONE, STOP_PROGRAM, STOP_LAUNCH } stop_kind;

/* The accesses of one phase to one element; numbers are program serials, 0 is none. Two of a kind are enough: if the
 * first is the program that asks, the second is another one. */
typedef struct touch {
    uint32_t program, line;
} touch;

/* What is known of an array's elements, by place: index space for ordinary views, memory for views that overlap
 * themselves. Each table is made at its first use. */
typedef struct shadow {
    bool tracked;                           /* false: an `in` array, nothing to know */
    bool overlaps;                          /* two indices may meet in memory */
    bool needs_write;                       /* starts unwritten: out without initial value, scratch */
    bool by_memory;                         /* a place is an offset in memory */
    int64_t count, base, strides[MAX_RANK]; /* base: the place of index (0, 0, ...) */
    bool same_as_memory;                    /* the strides equal the array's: one offset serves both */
    uint8_t *written;
    touch *writer, (*readers)[2], (*atomics)[2];
    uint32_t *stamp; /* the last store that wrote it, for R705 */
    int32_t *birth;
} shadow;

#define BUFFER_CLASSES 44
#define MAX_TILE_ELEMENTS ((int64_t)1 << 31) /* 16 GiB of cells */

enum { ASSIGN_UNKNOWN, ASSIGN_READS, ASSIGN_PLAIN, ASSIGN_COPY }; /* v = f(v); v = e; the first v = e of a copy */

struct interp {
    const tile_kernel *kernel;
    const array_view *arrays;
    const launch_plan *plan; /* NULL while the head runs */
    const interp_options *options;
    findings *found;
    qn_error *error;
    bool exact, check;
    bool quiet; /* looking only: nothing is reported */

    tile **slots;    /* by value */
    int64_t *set_at; /* by value: the tick of its last setting; only when there is a hook */
    int64_t ticks;
    tile *free_tiles;
    void *free_buffers[BUFFER_CLASSES];
    struct buffer_head *all_buffers; /* lent and free */
    struct tile *all_tiles;
    jmp_buf *no_memory; /* where the launch ends when a tile or a table cannot be had; NULL: its scalars are small */
    shadow *shadows;    /* by parameter */
    int8_t *assigned;   /* by value: how an assignment with a mask was written (below) */

    int phase;
    int64_t program[3];
    uint32_t serial, first_serial; /* of the running program, and of the phase's first; both from 1 */
    const int64_t *order;          /* linear program ids of this phase in the order they run, or NULL */
    int64_t *shuffled;             /* such an order of our own */
    uint8_t *ordered;              /* by program of the phase: it has had an ordered atomic; NULL: no program can */
    uint32_t stamp;                /* counts stores */
    int64_t steps, step_limit;
    const tile_op *op; /* the one that runs */
    stop_kind stop;
    qn_status status;
    bool asserted;
    char outside[200]; /* the first index that was outside its axis; "": none was */
    bool hook_stopped;
    void *shown[2]; /* what interp_value lent */

    /* The head only. */
    const bool *given;
    const number *numbers;
    launch_plan *head;
    bool *bound;   /* by parameter: which scalars have a value */
    int *bound_by; /* the array that bound an extent, or -1 */
};

/* interp.c */
tile_type interp_resolve(interp *s, value v); /* the type with run-time extents looked up; stops if it is too large */
int64_t interp_type_count(const tile_type *type);
tile *interp_get(const interp *s, value v);
int64_t interp_integer(interp *s, value v);        /* of a scalar; poison is an internal error */
void interp_set(interp *s, value v, tile *t);      /* takes the use over */
void interp_block(interp *s, const tile_block *b); /* looks at s->stop */
void interp_release_all(interp *s);
void interp_stop(interp *s, const char *format, ...)
    __attribute__((format(printf, 2, 3)));          /* ends the launch with QN_FAILED */
void interp_poisoned(interp *s, const char *place); /* our own mistake, reported as such */

_Noreturn void interp_no_memory(interp *s, size_t size_bytes); /* ends the launch with QN_NO_MEMORY, at once */

/* interp_tile.c: memory of tiles; moving elements. All of it belongs to the launch: it goes with it, wherever it ends. */
void *buffer_take(interp *s, size_t size_bytes);   /* not zeroed */
void buffer_give(interp *s, void *buffer);         /* NULL is fine */
tile *tile_make(interp *s, const tile_type *type); /* cells unset */
tile *tile_scalar(interp *s, dtype elem, cell c);
tile *tile_keep(tile *t); /* one more use */
void tile_drop(interp *s, tile *t);
void tile_free_buffers(interp *s);
/* A tile of n elements whose element j is element from[j] of t, with everything that it carries. */
tile *tile_gather(interp *s, const tile *t, const tile_type *type, const int64_t *from, int64_t n);
tile *tile_expand(interp *s, const tile *t,
                  const tile_type *shape);        /* broadcast to the shape; the element type stays */
tile *interp_shape(interp *s, const tile_op *op); /* BROADCAST RESHAPE PERMUTE IOTA BOUND */

/* interp_math.c: n elements; an operand's step is 0 or 1. */
void math_unary(op_code code, dtype elem, int64_t n, const cell *a, int sa, cell *r);
void math_binary(op_code code, dtype elem, int64_t n, const cell *a, int sa, const cell *b, int sb, cell *r);
void math_compare(op_code code, dtype elem, int64_t n, const cell *a, int sa, const cell *b, int sb, cell *r);
void math_convert(dtype from, dtype to, bool exact, int64_t n, const cell *a, int sa, cell *r);
void math_bitcast(dtype from, dtype to, int64_t n, const cell *a, int sa, cell *r);
void math_round(dtype elem, int64_t n, cell *r); /* to the element type: nearest even, or wrapped */
bool math_less(dtype elem, cell a, cell b);

/* interp_elementwise.c */
bool interp_scalar(interp *s, const tile_op *op); /* the quick way for ordinary scalars; false: take the other one */
tile *interp_elementwise(interp *s, const tile_op *op);

/* interp_fold.c */
cell math_identity(fold_kind fold, dtype elem);
cell math_fold(fold_kind fold, dtype elem, cell r, cell x);     /* one more element folded in; not of argmax */
bool math_beats(fold_kind fold, dtype elem, cell x, cell best); /* argmax, argmin: does the later x win? */
tile *interp_reduce(interp *s, const tile_op *op);
tile *interp_scan(interp *s, const tile_op *op);
tile *interp_dot(interp *s, const tile_op *op);

/* interp_memory.c, interp_shadow.c */
cell cell_read(dtype elem, const void *from);
void cell_write(dtype elem, void *to, cell c);
cell cell_atomic(atomic_kind kind, dtype elem, cell old, cell x, cell expected); /* what an atomic leaves */
tile *interp_load(interp *s, const tile_op *op);
void interp_store(interp *s, const tile_op *op);
tile *interp_atomic(interp *s, const tile_op *op);
void shadows_make(interp *s);
void shadows_free(interp *s);
void shadow_read(interp *s, const tile_op *op, int array, int64_t count, const int64_t *places, const uint8_t *skip);
void shadow_write(interp *s, const tile_op *op, int array, int64_t count, const int64_t *places, const uint8_t *skip,
                  bool may_meet);
void shadow_atomic(interp *s, const tile_op *op, int array, int64_t count, const int64_t *places, const uint8_t *skip);
bool shadow_next(const array_view *a, int64_t index[MAX_RANK]); /* row-major; false after the last */
void shadow_unwritten(interp *s);                               /* R703, at the end */
/* Where births of elements in memory are kept: NULL if none was ever stored there. */
const int32_t *shadow_births(const interp *s, int array);
void shadow_set_births(interp *s, int array, int64_t count, const int64_t *places, const uint8_t *skip,
                       const tile *from);
void shadow_index(const interp *s, int array, int64_t place, text *out); /* "[3][0]" */

/* interp_check.c */
void check_births(interp *s, const tile_op *op, tile *r, tile *const *operands); /* elementwise results */
int32_t birth_of(const tile *t, int64_t at);
int32_t birth_pick(double result, int32_t here, int count, const tile *const *tiles, const int64_t *at);
int32_t *birth_table(interp *s, tile *t); /* makes it, zeroed */
bool has_nonfinite(const tile *t);
void check_integers(interp *s, const tile_op *op, const tile *r, tile *const *operands);
void check_assignment(interp *s, const tile_op *op, tile *r, tile *const *operands);
void check_stored(interp *s, const tile_op *op, int array, const tile *t, const uint8_t *skip, const int64_t *places);

/* interp_head.c */
void interp_head_op(interp *s, const tile_op *op); /* DEFAULT EXTENT LAUNCH */

/* interp_print.c */
void interp_print_op(interp *s, const tile_op *op);
void interp_assert(interp *s, const tile_op *op); /* ASSERT and ASSUME of a body */
void interp_show_cell(dtype elem, cell c, text *out);
void interp_show_causes(const interp *s, value v, text *out); /* "t = 12, V = 10": the named values behind v */
const char *interp_program_text(const interp *s, const int64_t program[3], char words[80]); /* "3, 0" */

/* findings.c */
/* True: a finding of this kind and line is there, and is counted. Else make the message and report it. */
bool interp_again(interp *s, int code, const tile_op *op);
finding *interp_report(interp *s, int code, const tile_op *op, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
void interp_program_of(const interp *s, uint32_t serial, int64_t program[3]);

#endif
