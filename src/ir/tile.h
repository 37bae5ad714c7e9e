/*
 * The tile IR: block-level SSA with structured control flow.
 *
 * A kernel has parameters (arrays, scalars, extents), a head region that the host runs once at a launch (defaults,
 * extents of arrays, launch counts, assumptions), and one body region per phase, run once for every program.
 * A value is an index into kernel->values; 0 is none. A type is an element type and a shape; an extent is a constant,
 * or the value (an i64 scalar that dominates) that holds it: dims[k] = -value. Rank 0 is a scalar. Extent 1 broadcasts.
 * Validity is gone: it became masks. Memory access is safe by definition: an element outside its array is not touched.
 * Memory: everything of a kernel lives in kernel->memory.
 * SPDX-License-Identifier: MIT
 */
#ifndef QUERN_IR_TILE_H
#define QUERN_IR_TILE_H

#include "base/base.h"
#include "ir/limits.h"

/* Extents and launch counts: what the host refuses above, so that index arithmetic over them does not wrap. */
#define LARGEST_EXTENT ((int64_t)1 << 47)
#define LARGEST_LAUNCH ((int64_t)1 << 40) /* programs of a phase, all axes together */

typedef enum dtype {
#define DTYPE(name, text, bytes, kind, digits, c, npy) DT_##name,
#include "ir/dtype.def"
#undef DTYPE
    DT_COUNT
} dtype;

typedef enum dtype_kind { KIND_FLOAT, KIND_INT, KIND_UINT, KIND_BOOL } dtype_kind;

typedef struct dtype_info {
    const char *text;
    int size_bytes;
    dtype_kind kind;
    int digits; /* of a float: bits of its significand */
    const char *c_name, *npy_code;
} dtype_info;
extern const dtype_info dtypes[DT_COUNT];

typedef enum op_code {
    OP_NONE,
#define OP(name, text, class, count, types, result, flags) OP_##name,
#include "ir/ops.def"
#undef OP
    OP_COUNT
} op_code;

typedef enum op_class {
    CLASS_LEAF,
    CLASS_UNARY,
    CLASS_BINARY,
    CLASS_COMPARE,
    CLASS_TERNARY,
    CLASS_SHAPE,
    CLASS_FOLD,
    CLASS_MEMORY,
    CLASS_CONTROL,
    CLASS_EFFECT,
    CLASS_HEAD
} op_class;

typedef enum op_result { RESULT_SAME, RESULT_BOOL, RESULT_I64, RESULT_GIVEN, RESULT_NONE } op_result;

typedef struct op_info {
    const char *text;
    op_class class;
    int count;
    const char *types;
    op_result result;
    bool pure, commutative, associative, costly, near, domain;
} op_info;
extern const op_info ops[OP_COUNT];
/* Does every device give the correctly rounded result, where it is asked to be precise? elem: of the result. */
bool op_rounds_correctly(op_code code, dtype elem);

typedef enum fold_kind {
    FOLD_SUM,
    FOLD_PROD,
    FOLD_MAX,
    FOLD_MIN,
    FOLD_ANY,
    FOLD_ALL,
    FOLD_ARGMAX,
    FOLD_ARGMIN,
    FOLD_COUNT
} fold_kind;
extern const char *const fold_names[FOLD_COUNT]; /* "sum" ... */

typedef enum atomic_kind {
    ATOMIC_ADD,
    ATOMIC_MIN,
    ATOMIC_MAX,
    ATOMIC_AND,
    ATOMIC_OR,
    ATOMIC_XOR,
    ATOMIC_EXCHANGE,
    ATOMIC_CAS,
    ATOMIC_COUNT
} atomic_kind;
extern const char *const atomic_names[ATOMIC_COUNT];

typedef uint32_t value;

typedef struct tile_type {
    dtype elem;
    int rank;
    int64_t dims[MAX_RANK]; /* >= 0: constant; < 0: -value */
} tile_type;

/* A constant scalar. Integers and bools in `i` (u64 by bit pattern), floats in `f`. */
typedef struct number {
    int64_t i;
    double f;
} number;

/* How one array axis is indexed. The operands of the access are consumed in axis order: SCALAR 1, SLICE 2 (start,
 * step), TILE 1 (an integer tile with the rank of the access, or a scalar). The length of a slice is the access's
 * extent on `result_axis`. Axes of the access that no slice and no index tile covers have extent 1. */
typedef enum index_kind { INDEX_SCALAR, INDEX_SLICE, INDEX_TILE } index_kind;

typedef struct access {
    int array; /* parameter number */
    int rank;  /* of the array */
    index_kind kind[MAX_RANK];
    int result_axis[MAX_RANK]; /* for slices */
    bool safe[MAX_RANK];       /* proved inside: no test needed on this axis */
    int first_index;           /* operand number where the indices start (after the value of a store) */
    int mask_count; /* the last mask_count operands are bool masks (scalars or the access's rank); all must hold */
} access;

/* Flags of ops. */
enum {
    F_ASSIGN = 1,   /* SELECT of an assignment: where the mask is false the variable keeps its value */
    F_IMPLICIT = 2, /* CONVERT the user did not write */
    F_INDEX = 4,    /* integer arithmetic inside brackets: overflow is a finding */
    F_PRECISE = 8,  /* exact division and square root, 2 ulp functions, no contraction */
    F_DOWN = 16,    /* FOR counts down while i > limit (step negative) */
    F_ORDERED =
        32 /* ATOMIC of one element: without a result it tells what its program did before, with one it hears it */
};

typedef struct tile_op tile_op;
typedef struct tile_block tile_block;

struct tile_block {
    value *args;
    int arg_count;
    tile_op **ops;
    int op_count, op_capacity;
};

struct tile_op {
    op_code code;
    unsigned flags;
    int line, column; /* of the source; 0 if none */
    value *operands;
    int operand_count;
    value *results;
    int result_count;
    tile_block *regions[2];
    int region_count;
    struct {
        number number;      /* CONST */
        int index;          /* ARG, PROGRAM, IOTA axis, SCAN axis, PHILOX lane, DEFAULT, EXTENT array, LAUNCH phase */
        int axes[MAX_RANK]; /* PERMUTE; EXTENT: axes[0] */
        unsigned axis_set;  /* REDUCE: bit k = axis k */
        int count;          /* PRINT: how many values are shown */
        fold_kind fold;
        atomic_kind atomic;
        const char *words;
        struct access access;
    } attr;
};

typedef struct tile_value {
    tile_type type;
    tile_op *op;      /* NULL for a region's argument */
    const char *name; /* the source's variable, or NULL; only for reading */
} tile_value;

typedef enum param_kind { PARAM_IN, PARAM_OUT, PARAM_INOUT, PARAM_SCRATCH, PARAM_SCALAR, PARAM_EXTENT } param_kind;

/* Facts of one variant: what the launch promised. All false or -1: nothing is known. */
typedef struct tile_facts {
    bool last_unit;  /* array: last stride is 1 (or last extent <= 1) */
    bool contiguous; /* array: row-major with no gaps; implies last_unit */
    bool backwards; /* array: last stride is -1; what follows its first element, and other strides: 16 bytes (a flip) */
    bool aligned;   /* array: base 64-byte aligned, all other strides multiples of 64 bytes */
    bool bulk;    /* array of a kernel with a product: last stride 1, base and other strides multiples of 16 bytes; with
                        digits: its base is one */
    bool small;   /* array: below 2^31 elements (offsets fit 32 bits) */
    bool streams; /* array: the launch touches more bytes than the caches hold: non-temporal stores pay */
    bool one;     /* scalar or extent: equals 1 */
    bool by16, by8, by4; /* scalar or extent: divisible by so much; at most one is set, by8 and by4 on a GPU only */
    int size_class;      /* extent: 0: <= 64, 1: <= 1024, 2: <= 4096, 3: <= 65536, 4: <= 2^20, 5: larger; -1 unknown. A
                        GPU's: 6: <= 256, 7: <= 1024, 8: <= 16384, 9: <= 65536, 10: <= 262144, 11: <= 2^22, 12: more */
} tile_facts;

static inline int facts_divisor(const tile_facts *f)
{
    return f->by16 ? 16 : f->by8 ? 8 : f->by4 ? 4 : 1;
}

/* An array whose axes count through several strides each: position p on an axis is a number with `count` digits, the last
 * one of extent[count - 1] values the fastest (the first takes what is left), and the element lies at the sum of digit
 * times stride over all axes. A guard is a sum over all digits that has to lie in 0 .. guard_extent-1: elsewhere the
 * array reads as 0 and has no memory. So products read windows, padding and shifts in place. The numbers are part of
 * the text; the array's own strides mean nothing. */
#define DIGITS_MOST 8
#define GUARDS_MOST 4
typedef struct axis_digits {
    int count;
    int64_t extent[DIGITS_MOST], stride[DIGITS_MOST];
    int64_t guard[GUARDS_MOST][DIGITS_MOST];
} axis_digits;
typedef struct param_digits {
    axis_digits axes[MAX_RANK];
    int64_t origin; /* where position 0 of all axes lies, before the memory if a guard keeps that away */
    int guard_count;
    int64_t guard_first[GUARDS_MOST], guard_extent[GUARDS_MOST];
} param_digits;

typedef struct tile_param {
    const char *name;
    param_kind kind;
    dtype elem;
    int rank;                   /* arrays; scalars and extents 0 */
    value extents[MAX_RANK];    /* arrays, head region: the operand of EXTENT ops; 0 if bound by the name below */
    int extent_param[MAX_RANK]; /* arrays: the PARAM_EXTENT/PARAM_SCALAR that is the bare extent name, or -1 */
    bool has_initial;           /* out arrays: filled before the first program */
    number initial;
    bool has_default; /* scalars: a DEFAULT op in the head gives it */
    int line, column;
    const param_digits *digits; /* arrays: how positions lie in memory; NULL: by the strides of the argument */
    tile_facts facts;
} tile_param;

/* A further name of a value: a variable that shares it with another one, or with a constant. For the debugger. */
typedef struct tile_alias {
    const char *name;
    value v;
} tile_alias;

/* What the head of a raw cuda kernel launches, by number: blocks, threads of a block, bytes of dynamic shared memory. */
typedef enum raw_launch { RAW_GRID, RAW_BLOCK, RAW_SHARED, RAW_LAUNCHES } raw_launch;

/* Lines of other files stand behind those of `file` in source_lines: from this one on (from 1), those of `path`. */
typedef struct tile_import {
    int first_line;
    const char *path;
} tile_import;

/* Wishes to the back end, that change no result. WARPS: of a program's team, where its size is free. GROUP: programs of
 * axis 0 in runs of so many, each run over all of axis 1 before the next. STAGES: steps of k that a product holds or has on
 * their way. CLUSTER: blocks that share a long row; 1: never several. TURNS: groups of warps that multiply take turns, each
 * with a tile of its own. BLOCKS: of a product on one multiprocessor. LIBRARY: a launch that is a product of whole arrays
 * (whole.h) is computed by the library of the device's maker, where it is there and knows the product. */
typedef enum tile_knob {
    KNOB_WARPS,
    KNOB_GROUP,
    KNOB_STAGES,
    KNOB_CLUSTER,
    KNOB_TURNS,
    KNOB_BLOCKS,
    KNOB_LIBRARY, /* of tensor functions, too: the way of so many that the maker's library suggests, from 1 on */
    KNOB_TILE, /* of tensor functions alone: which of the tiles that fusion knows for products (fuse_options.tile) */
    KNOB_COUNT
} tile_knob;
extern const char *const tile_knobs[KNOB_COUNT]; /* names, as `tune` has them */
tile_knob tile_knob_find(const char *name);      /* KNOB_COUNT: it is none */

typedef struct tile_kernel {
    arena *memory;
    const char *name, *file; /* file: for diagnostics */
    tile_import *imports;    /* in order; ops of phases count lines on through them */
    int import_count;
    tile_param *params;
    int param_count;
    tile_value *values; /* [0] is unused */
    int value_count, value_capacity;
    tile_block *head;
    tile_block **phases;
    int phase_count;
    bool precise;
    int knobs[KNOB_COUNT]; /* wishes of `tune`, of fusion and of an edited schedule, 0: none; not in the text form */
    signed char fills; /* fusion's wish, not in the text form: 1: other warps read f32 for those that multiply, rounded and turned;
                          -1: none do; 0: none was said, the author's kernel */
    bool
        few; /* fusion's wish: there are few programs, so each gets as many threads as have something to do; not in the text form */
    bool split_loops; /* the back end's wish: loops over blocks as full blocks and a rest (see passes/split.c) */
    /* Raw kernels have parameters and a head, and text instead of phases (phase_count is 0 and the head launches phase
     * 0, or nothing when raw_once: one call; of a cuda kernel see raw_launch). raw_constants: "#define NAME value"
     * lines for its const parameters. */
    const char *raw_language; /* "c", "cuda", or NULL for a tile kernel */
    const char *raw_source, *raw_constants;
    const char *raw_path; /* where the text stands, for the compiler's messages; not in the text form, may be NULL */
    int raw_line;
    bool raw_once;
    const char *raw_instance; /* cuda: a template with its arguments, "gemm<float, 16>", or NULL */
    const char *raw_options;  /* cuda: options of the compiler, one a line, or NULL */
    int raw_hidden;           /* the last so many parameters are not passed to the function */
    tile_alias *aliases;      /* not in the text form */
    int alias_count, alias_capacity;
    const char **source_lines; /* for comments in emitted text and findings; may be NULL */
    int source_line_count;
} tile_kernel;

/* ops.c */
number fold_identity(fold_kind fold, dtype t); /* what changes no fold of elements of this type */

/* dtype.c */
bool dtype_from_text(const char *text, dtype *out); /* also float, double, int */
static inline bool dtype_is_float(dtype t)
{
    return dtypes[t].kind == KIND_FLOAT;
}
static inline bool dtype_is_integer(dtype t)
{
    return dtypes[t].kind == KIND_INT || dtypes[t].kind == KIND_UINT;
}
static inline bool dtype_is_signed(dtype t)
{
    return dtypes[t].kind == KIND_INT || dtypes[t].kind == KIND_FLOAT;
}
/* Floats that are computed in f32 and rounded: they live in memory alone. */
static inline bool dtype_is_narrow(dtype t)
{
    return dtype_is_float(t) && dtypes[t].size_bytes < 4;
}
double dtype_tolerance(dtype t);          /* what two ways to compute one number may differ by; integers 0 */
double round_to_dtype(dtype t, double x); /* f32, f16, bf16, e4m3: nearest even; f64: as it is */
uint16_t f16_from_double(double x);
double f16_to_double(uint16_t bits);
uint16_t bf16_from_double(double x); /* one rounding, from the double */
double bf16_to_double(uint16_t bits);
#define F8E4M3_LARGEST 448.0
uint8_t f8e4m3_from_double(double x); /* there is no infinity: what rounds beyond the largest is NaN, as in PyTorch */
double f8e4m3_to_double(uint8_t bits);
int64_t integer_wrap(dtype t, int64_t x); /* two's complement at the width of t */
/* One element of memory to a number and back (floats in f, the rest in i). */
number element_read(dtype t, const void *from);
void element_write(dtype t, void *to, number n);

/* build.c: making and changing IR. Nothing here checks; verify does. */
tile_kernel *tile_kernel_new(arena *memory, const char *name, const char *file); /* head is there, no phase yet */
tile_block *tile_block_new(tile_kernel *k);
int tile_param_add(tile_kernel *k, tile_param param); /* the number; extent_param must be set by the caller (-1) */
value tile_value_new(tile_kernel *k, tile_type type); /* a region argument, or a result to be attached */
value tile_block_arg(tile_kernel *k, tile_block *b, tile_type type);
tile_op *tile_op_new(tile_kernel *k, op_code code, const value *operands, int operand_count);
value tile_result(tile_kernel *k, tile_op *op, tile_type type); /* adds one result */
void tile_alias_add(tile_kernel *k, value v, const char *name); /* once for each pair */
void tile_append(tile_kernel *k, tile_block *b, tile_op *op);
void tile_insert(tile_kernel *k, tile_block *b, int at, tile_op *op);
static inline tile_type tile_type_of(const tile_kernel *k, value v)
{
    return k->values[v].type;
}
static inline tile_op *tile_def(const tile_kernel *k, value v)
{
    return k->values[v].op;
}
tile_type scalar_type(dtype elem);
bool tile_type_same(const tile_type *a, const tile_type *b);
bool tile_shape_same(const tile_type *a, const tile_type *b);
/* The element-wise result shape of two operands; false if they do not broadcast. elem is a's. */
bool tile_broadcast(const tile_type *a, const tile_type *b, tile_type *out);
bool tile_is_constant(const tile_kernel *k, value v, number *out); /* defined by CONST */
/* A question about what a value is computed from gives up after as many steps: n operations that each read the one
 * before twice have 2^n ways through them, and what such questions look for (an index, a mask) is short. */
enum { TILE_MOST_WAYS = 1024 };
bool tile_reshape_only_units(const tile_type *from, const tile_type *to); /* the extents other than 1 agree in order */
/* Replaces every use of a value v (operands, types' extents, params' extents) by to[v], in the whole kernel: 0 keeps v;
 * follows chains; one walk. */
void tile_replace_many(tile_kernel *k, const value *to);
/* Calls visit for each op, outer before inner, in order. */
typedef void tile_visit(tile_kernel *k, tile_block *b, tile_op *op, void *context);
bool tile_op_is_of_head(const tile_op *op); /* may the host run it while it prepares a launch? */
void tile_walk(tile_kernel *k, tile_block *b, tile_visit *visit, void *context);
/* The file that a line of an op is of (the kernel's name where there is none), and the line in it. */
const char *tile_place(const tile_kernel *k, int *line);
tile_kernel *tile_clone(const tile_kernel *k, arena *memory);

/* print.c, read.c: docs/tile-ir.md is the form. read(print(k)) prints the same. */
void tile_print(const tile_kernel *k, text *out);
void tile_print_op(const tile_kernel *k, const tile_op *op, text *out); /* one line, no regions */
qn_status tile_read(arena *memory, const char *file, const char *words, size_t length, tile_kernel **out,
                    qn_error *error);

/* verify.c: the grammar of the IR. Fails with QN_FAILED and the first broken rule, with the op printed. */
qn_status tile_verify(const tile_kernel *k, qn_error *error);

/* infer.c */
/* Of elementwise ops whose result is not GIVEN. */
tile_type tile_infer(const tile_kernel *k, op_code code, const value *operands, int count);

#endif
