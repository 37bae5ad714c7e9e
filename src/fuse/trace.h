/*
 * A trace: what a kernel computes, as terms over its iteration space. "Node n at map m" is followed through arithmetic
 * and movement down to what lies in memory, to constants, and to values that the kernel has otherwise (folds, the sums
 * of a product). Terms are hash-consed and stand after their inputs. Nothing is emitted here; lower.h does that, and
 * whether two groups may become one kernel is a trace that succeeds.
 *
 * Element types: a term of an f16 or bf16 node is f32. In strict and eager mode each op rounds to the node's type
 * and back, in fused mode only an explicit cast does.
 * SPDX-License-Identifier: MIT
 */
#ifndef QUERN_FUSE_TRACE_H
#define QUERN_FUSE_TRACE_H

#include "fuse/fuse.h"
#include "fuse/index.h"
#include "fuse/sizes.h"

#define TRACE_MOST_TERMS 8192 /* joins of joins that read each other at many places grow beyond all measure */

typedef enum term_kind {
    TERM_CONSTANT, /* number */
    TERM_ACCESS,   /* node n in memory at the map */
    TERM_INDEX,    /* the value of `index`, i64 */
    TERM_INSIDE,   /* low <= index < high */
    TERM_QUOTIENT, /* (index / low) % high, i64; high 0: no remainder */
    TERM_OP,       /* op over the inputs */
    TERM_FOLD,     /* a REDUCE that the kernel computes: input 0 folded over the axes in `folded` */
    TERM_BOUND     /* a value that the kernel's builder gives (lower_bind) */
} term_kind;

typedef struct term {
    term_kind kind;
    node n;      /* what it is for: names, lines; 0: index arithmetic */
    dtype elem;  /* of the value in the kernel */
    int rounded; /* 16-bit types (bits 1 << dtype) whose numbers alone it has: rounding to one of them changes nothing */
    op_code op;  /* OP */
    int attr_index; /* OP: the lane of PHILOX */
    int inputs[3], input_count;
    number number;        /* CONSTANT */
    const index_map *map; /* ACCESS, FOLD, BOUND */
    bool guarded; /* ACCESS: coordinates may lie outside (under a pad or a concat); input 0, if any: where not */
    affine index;
    int64_t low, high;
    unsigned axes;   /* of the space that it depends on */
    unsigned folded; /* FOLD: axes of the space that go; of a scan: that it runs along */
    fold_kind fold;
    bool scan; /* FOLD: each element has those before it, and all stay */
} term;

/* A node that the kernel computes in a way of its own, at this map only. */
typedef struct trace_known {
    node n;
    index_map map;
    bool fold;       /* a REDUCE: its input is traced at `input` */
    index_map input; /* of the node's input 0 */
} trace_known;

/* Which of the small folds a kernel takes as chains of terms (small_fold.c); the others are folds of its space. */
typedef enum unroll_kind { UNROLL_NONE, UNROLL_WINDOWS, UNROLL_ALL } unroll_kind;

typedef struct trace {
    arena *memory;
    const graph *g;
    const bool *in_memory;   /* by node: leaves, and what earlier kernels wrote */
    const fuse_leaf *leaves; /* by node: those of them that are not given lie row-major; NULL: nothing is known */
    fuse_mode mode;
    bool check_indices; /* an index out of range is asserted against by the lowerer: see checks */
    space space;
    term *terms; /* [0] is unused */
    int term_count, term_capacity;
    hash_index term_index;  /* of terms */
    const index_map **maps; /* each map once */
    int map_count, map_capacity;
    hash_index map_index;
    struct trace_visit *visits; /* what a node at a map became */
    int visit_count, visit_capacity;
    hash_index visit_index;
    int atoms[SPACE_ATOMS]; /* terms whose values are the atoms */
    unsigned atom_axes[SPACE_ATOMS];
    int atom_count;
    trace_known *known;
    int known_count, known_capacity;
    int *checks; /* bool terms: indices that lie inside */
    int check_count, check_capacity;
    int guard;           /* under a pad or a concat: the bool term of coordinates that exist; 0: all do */
    const char *why;     /* the first thing that cannot be; NULL: nothing */
    unroll_kind unroll;  /* which small folds are chains of terms */
    int unrolled;        /* elements of the chains that are being followed, one inside the other; 0: none */
    unsigned strip_axes; /* of the space, with coordinates that may lie beyond the last result (strip.c) */
    bool uncut;          /* axes stay whole: a reshape is done by quotients instead */
    int cut_axis;        /* >= 0: the trace wants this axis cut; space_cut, and begin again */
    int64_t cut_inner;
} trace;

/* in_memory is borrowed. */
trace *trace_new(arena *memory, const graph *g, const bool *in_memory, const fuse_options *options, const space *s);
void trace_know(trace *t, node n, const index_map *map);
void trace_know_fold(trace *t, node n, const index_map *map, const index_map *input);
/* The term of a node at a map; 0: t->why or t->cut_axis says why not. */
int trace_node(trace *t, node n, const index_map *m);

/* trace_move.c. The map of input `i` of a movement or elementwise op; false: t->cut_axis or t->why says why, or it is of another kind. */
bool trace_pull(trace *t, node n, int i, const index_map *m, index_map *out);
/* The same for a movement, padding with zeros too: where the input has no element is added to t->guard for good. */
bool trace_pull_guarded(trace *t, node n, const index_map *m, index_map *out);
/* The map of the result of op n from the map of its input i; false: it has none that is clear. */
bool trace_push(trace *t, node n, int i, const index_map *m, index_map *out);

/* Terms of movements that are no views; 0: t->why or t->cut_axis says why not. */
int trace_pad(trace *t, node n, const index_map *m);
int trace_concat(trace *t, node n, const index_map *m);
int trace_take(trace *t, node n, const index_map *m); /* TAKE and GATHER */
/* Sums that a guard keeps inside 0 .. extent-1, added to `known`. */
void trace_guard_sums(const trace *t, int guard, index_known *known, int *count);

unsigned trace_folded_axes(const graph_node *x); /* of a REDUCE's or a SCAN's input */

/* small_fold.c */
#define SMALL_FOLD_AXIS 64   /* extents up to here are structure ... */
#define SMALL_FOLD_MOST 128  /* ... and folds of so many elements are chains, with those inside them */
#define SMALL_FOLD_TERMS 500 /* ... of so many terms; windows share theirs with their neighbours */
#define SMALL_FOLD_RESULTS FUSE_SIZE((int64_t)1 << 15) /* of a fold whose extents are small, but no window's */
bool fold_is_small(const graph *g, node n);
bool fold_is_worth_a_text(const graph *g, const bool *in_memory, node n);
bool fold_is_window(const graph *g, const bool *in_memory, node n); /* a small one over windows alone */
int trace_small_fold(trace *t, node n, const index_map *m);         /* 0: t->why or t->cut_axis says why not */

/* Terms for index arithmetic. */
int trace_op(trace *t, op_code op, dtype elem, node n, const int *inputs, int count);
int trace_constant(trace *t, dtype elem, number value);
int trace_index(trace *t, const affine *a);
int trace_inside(trace *t, const affine *a, int64_t low, int64_t high);
int trace_quotient(trace *t, const affine *a, int64_t divisor, int64_t modulus);
int trace_atom(trace *t, int x);                        /* whose value is the term; -1: there is no room */
int trace_fail(trace *t, const char *why);              /* 0; the first thing that cannot be is kept */
dtype trace_elem(dtype elem);                           /* what a node of this type is computed in */
int trace_convert(trace *t, int x, dtype elem, node n); /* x itself if it has that type */
int trace_round(trace *t, int x, dtype elem, node n);   /* to a node's type and back where the mode says so */
#endif
