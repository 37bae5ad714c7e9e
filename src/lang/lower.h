/*
 * Shared by the files that turn a checked tree into tile IR.
 *
 * A `term` is what an expression gives: a constant (typed or not), a value with a shape and a list of bounds, or an
 * array. A bound is a mask factor that becomes an op only where something needs it. A wrong expression gives an error
 * term, which spreads silently, so one mistake is one message.
 * Control flow is structured: variables hold their current value, a branch merges what it changed, a loop carries what
 * its body assigns. break, continue and return clear a `live` flag; what follows is guarded by it.
 * SPDX-License-Identifier: MIT
 */
#ifndef QUERN_LANG_LOWER_H
#define QUERN_LANG_LOWER_H

#include "lang/ast.h"
#include "lang/fault.h"
#include "lang/typing.h"

typedef struct axis {
    int64_t extent;    /* as in tile_type: a constant, or -value */
    bool unit;         /* broadcasts */
    const ast *source; /* what it was written as, for messages; may be NULL */
} axis;

typedef enum bound_kind { BOUND_RANGE, BOUND_INDEX, BOUND_MASK } bound_kind;

/* RANGE: 0 <= start + k*step < extent along the one axis in `axes` (none: a scalar test).
 * INDEX: 0 <= start < extent for the index tile `start`, which has the term's rank.
 * MASK: the bool `start`, a scalar or of the term's rank with extent one on the axes that are not in `axes`. */
typedef struct bound {
    bound_kind kind;
    unsigned axes;
    value start, step, extent;
} bound;

typedef struct bound_list {
    bound *items;
    int count, capacity;
} bound_list;

typedef enum term_kind { TERM_ERROR, TERM_CONSTANT, TERM_VALUE, TERM_ARRAY, TERM_VOID } term_kind;

/* An array, or a view of one made of whole axes and scalar indices (an argument of a tile function). */
typedef struct array_ref {
    int param;
    int rank;              /* of the view */
    int axis_of[MAX_RANK]; /* view axis to array axis */
    value fixed[MAX_RANK]; /* array axis: its scalar index, or 0 */
} array_ref;

typedef struct term {
    term_kind kind;
    binding constant; /* CONSTANT: the number; with a rank it fills a tile */
    dtype elem;       /* of an untyped constant: i64 or f64 */
    value value;      /* VALUE; 0: only shape and bounds were asked for */
    int rank;
    axis axes[MAX_RANK];
    bound_list bounds;
    array_ref *array; /* ARRAY */
} term;

typedef struct variable {
    const char *name;
    dtype elem;
    bool follows; /* shape follows the value: inside a scalar function that is applied to tiles */
    bool is_set;  /* false: a function's result before its first return */
    term now;
    const term *kept; /* a copy of `now` as some snapshot saw it, or NULL */
    int loop_depth;   /* where it was declared */
} variable;

typedef enum symbol_kind {
    SYMBOL_VARIABLE,
    SYMBOL_TERM,
    SYMBOL_ARRAY,
    SYMBOL_SCALAR,
    SYMBOL_TYPE,
    SYMBOL_FUNCTION
} symbol_kind;

typedef struct symbol {
    const char *name;
    symbol_kind kind;
    variable *variable;
    term term;
    array_ref *array;
    int param; /* SCALAR: a scalar parameter or an extent */
    dtype type;
    const char *function;
    const ast *item; /* SYMBOL_FUNCTION: the parameter with its types */
} symbol;

/* Where break, continue and return go. The innermost is first. */
typedef struct target {
    struct target *outer;
    bool is_loop;
    variable *live;      /* false: the rest of this body is skipped */
    variable *on;        /* loops: false: no further trip */
    variable *result;    /* functions with a value */
    const ast *function; /* NULL for a kernel */
} target;

typedef struct cons_entry {
    uint64_t hash;
    value value;
    int next;
} cons_entry;

enum { CONS_BUCKETS = 1 << 14, MAX_VALUES = 250000 };

/* A loop variable and where it runs: first <= variable < limit when it counts up. */
typedef struct loop_fact {
    value variable, first, limit;
    bool up;
} loop_fact;

typedef struct walk {
    const ast_file *file;
    const ast *kernel;
    const bindings *constants;
    arena *memory;
    diagnostics *d;
    tile_kernel *k;
    tile_block *block;
    place at;
    bool in_head, in_index;
    bool refused; /* something in the head was */
    /* names */
    symbol *symbols;
    int symbol_count, symbol_capacity;
    int scope_first, scope_end; /* visible: [first, end), or to the top where end is -1 */
    int kernel_symbols;         /* how many are the kernel's own */
    variable **variables;
    int variable_count, variable_capacity;
    /* head */
    value *head_values; /* by parameter */
    bool *head_busy;
    const ast **param_items;
    term launch[3]; /* counts of the current phase, as terms of the head */
    int launch_count;
    /* entry of the current phase: parameters and extents, found by every later op */
    tile_block *phase_block;
    int entry_count;
    bool at_entry;
    tile_block *entry_block; /* collects what goes to the entry */
    value *entry_values;
    int entry_value_count, entry_value_capacity;
    axis **extents; /* by parameter: axes of arrays, filled at need */
    value *arguments;
    /* equal ops are one op */
    cons_entry *cons;
    int cons_count, cons_capacity;
    int cons_heads[CONS_BUCKETS];
    int cons_barrier;
    bool in_map;
    /* control */
    target *target;
    int loop_depth;
    loop_fact *loops;
    int loop_count, loop_capacity;
    int *value_depth; /* loop depth of region arguments and memory reads */
    int value_depth_capacity;
    bool elementwise; /* inside a scalar function applied to tiles */
    value path;       /* there: the elements that are on this path; 0: all */
    int call_depth, guard_depth, expression_depth;
    bool at_top; /* directly in a phase's block: an `assume` may go to the host */
} walk;

/* evaluate.c: arithmetic on constants; NULL or the code of the fault */
binding constant_int(int64_t i);
binding constant_float(double f);
binding constant_bool(bool b);
bool constant_truth(const binding *b);
binding constant_cast(const binding *from, dtype type);
bool constant_fits(const binding *from, dtype type);
error_code constant_convert(const binding *from, dtype type, binding *out); /* implicit */
error_code constant_binary(const char *word, const binding *a, const binding *b, binding *out);
error_code constant_unary(const char *word, const binding *a, binding *out);
bool constant_call(const char *name, const binding *arguments, int count, binding *out,
                   error_code *fault);              /* false: not a function over constants */
bool constant_word(const char *name, binding *out); /* inf, nan, pi */
binding constant_of_number(const ast *node);
const char *constant_text(arena *memory, const binding *b); /* an integer as the user would write it */
const char *constant_fault_text(error_code code);
const char *constant_fault_advice(error_code code);

/* instance.c: what a parameter is */
const ast *param_find(const ast *kernel, const char *name);
bool param_is_constant(const ast *param);
bool param_is_array(const ast *param);
bool name_is_extent(const ast *kernel, const char *name);

/* lower_type.c */
dtype type_promote(dtype t);
bool type_join(dtype a, dtype b, dtype *out);
const char *type_text(dtype t);
typed term_typed(const term *t);
term term_error(void);
bool is_error(const term *t);
term term_of_value(walk *w, value v); /* its shape without units, no bounds */
term term_of_constant(binding b);
value term_value(walk *w, const term *t); /* materialises a constant; typed by its elem */
term term_cast(walk *w, const term *t, dtype to, unsigned flags);
term term_convert(walk *w, const term *t, dtype to, place at); /* implicit: E205, E207, E103 */
bool term_join(walk *w, term *a, term *b, place at);           /* to their common type: E206 */
term term_promote(walk *w, const term *t);
term term_as_float(walk *w, const term *t);
term term_condition(walk *w, const term *t, place at); /* to bool: E210 for floats */
term term_index(walk *w, const term *t, place at);     /* an integer: E209 */

/* lower_build.c: ops */
tile_op *op_make(walk *w, op_code code, const value *operands, int count);
value op_finish(walk *w, tile_op *op, tile_type type);
void op_append(walk *w, tile_op *op);
value build(walk *w, op_code code, const value *operands, int count); /* type inferred */
value build2(walk *w, op_code code, value a, value b);
value build_select(walk *w, value condition, value a, value b, unsigned flags);
value build_convert(walk *w, value v, dtype to, unsigned flags);
value build_shape(walk *w, op_code code, value v,
                  tile_type type); /* broadcast, reshape: none if the type is the same */
value build_number(walk *w, number n, dtype type);
value build_integer(walk *w, int64_t i);
value build_bool(walk *w, bool b);
value build_argument(walk *w, int param);
value build_leaf(walk *w, op_code code, int index, tile_type type);
bool value_same(const walk *w, value a, value b); /* the same, or equal constants */
bool value_constant(const walk *w, value v, int64_t *out);
bool value_nonnegative(const walk *w, value v);
bool value_below(const walk *w, value v, value extent); /* provably less */
int value_loop_depth(const walk *w, value v);
void value_set_depth(walk *w, value v, int depth);
void value_name(walk *w, value v, const char *name);
tile_block *block_enter(walk *w, tile_block *inner, int *mark); /* returns the outer one */
void block_leave(walk *w, tile_block *outer, int mark);
typedef struct entry_state {
    tile_block *block, *entry_block;
    int scope_first, scope_end;
    bool at_entry, elementwise, in_index;
    value path;
} entry_state;
void entry_begin(
    walk *w, entry_state *saved); /* what is built until entry_end stands at the phase's entry, in the kernel's scope */
void entry_end(walk *w, const entry_state *saved);

/* lower_shape.c */
tile_type term_type(const term *t, dtype elem);
void term_set_shape(term *t, const term *from);
const char *shape_text(walk *w, const term *t);
bool axis_same(const axis *a, const axis *b);
bool shape_join(walk *w, const term *a, const term *b, term *out, place at); /* E301, E302, E310 */
bool shape_check(walk *w, const term *t, place at);                          /* E310, E314 */
term shape_broadcast(walk *w, const term *t, const term *shape); /* the value with the shape's axes; bounds stay */
bool shape_fit(walk *w, const term *t, const term *shape, term *out,
               place at);                                     /* assignment: unit axes may drop; E303 */
term shape_brackets(walk *w, const term *t, const ast *node); /* [:] [] [0] on a tile */
term shape_permute(walk *w, const term *t, const int *axes);
term lower_shape_call(walk *w, const ast *call, const char *name);
bool axis_of_array(walk *w, const ast *expression, axis *out); /* the launch has checked that it is not negative */
bool axis_from(walk *w, const ast *expression, axis *out);     /* a declared extent: E217, E314 */

/* lower_mask.c */
bool bound_same(const walk *w, const bound *a, const bound *b);
bool bounds_have(const walk *w, const bound_list *list, const bound *b);
void bounds_add(walk *w, bound_list *list, bound b);
void bounds_add_all(walk *w, bound_list *list, const bound_list *from);
value bound_mask(walk *w, const term *t, const bound *b);
value mask_of(walk *w, const term *t);   /* all of them: 0 if there are none */
value mask_full(walk *w, const term *t); /* with the term's shape; true where there are no bounds */
value term_filled(walk *w, const term *t, value v, number with); /* v where valid, else the number (of v's type) */
value value_moved(walk *w, value v, const int *to, int from_rank, int rank); /* a mask or index tile whose axes move */
bound_list bounds_moved(walk *w, const term *t, const int *to, int rank);    /* axis k becomes to[k]; -1: it goes */
bound_list bounds_without(walk *w, const term *t, unsigned axes);            /* those that involve none of the axes */
term lower_validity_call(walk *w, const ast *call, const char *name);

/* lower_access.c */
typedef struct place_access {
    access access;
    term shape; /* elem, axes, bounds of a read */
    value indices[2 * MAX_RANK];
    int index_count;
    bound_list own;          /* what the access tests itself, over its axes */
    bound_list index_bounds; /* bounds of its index tiles: explicit masks */
} place_access;
axis *array_axes(walk *w, int param);
bool access_resolve(walk *w, const ast *node, place_access *out);
term access_load(walk *w, const place_access *a);
void access_store(walk *w, const place_access *a, const term *t, place at);
term lower_access(walk *w, const ast *node, bool shape_only);
term lower_atomic_call(walk *w, const ast *call, const char *name);

/* lower_expression.c, lower_call.c, lower_fold.c, lower_function.c */
term lower_expression(walk *w, const ast *node);
term lower_binary(walk *w, const char *word, const term *a, const term *b, place at);
term lower_where(walk *w, const term *condition, const term *a, const term *b, place at);
term lower_call(walk *w, const ast *call);
term lower_fold_call(walk *w, const ast *call, const char *name);
term lower_dot(walk *w, const ast *call, const term *accumulator);
bool is_dot_call(walk *w, const ast *node);
term lower_builtin(walk *w, const builtin *b, const char *name, term *arguments, int count, place at);
term lower_random_call(walk *w, const char *name, term *arguments, int count, place at);
term call_function(walk *w, const ast *function, const ast *call);
term call_function_constant(walk *w, const symbol *s, const ast *call);
bool constant_argument(walk *w, const ast *node, int64_t *out); /* an integer known now: E217 */
bool named_argument(const ast *call, const char *name, const ast **out);
bool bool_known(const walk *w, value v, bool *out);

/* lower_name.c */
symbol *symbol_find(walk *w, const char *name);
void symbol_push(walk *w, symbol s);
term lower_name(walk *w, const ast *node);
bool resolve_type(walk *w, const ast *type, dtype *out);
value head_value(walk *w, int param, place at);
bool is_host_expression(walk *w, const ast *node); /* over extents, scalars and constants alone */

/* lower_kernel.c: the counts of `launch (...)`, and the op of the head that launches them */
typedef struct launch {
    term counts[3];
    int count;
    place at;
} launch;
bool lower_counts(walk *w, const ast_list *list, place at, launch *out);
void lower_launch(walk *w, const launch *l, int phase);

/* lower_raw.c */
void lower_raw(walk *w);

/* lower_statement.c, lower_loop.c */
variable *variable_new(walk *w, const char *name, dtype elem);
value *variables_note(walk *w);                                        /* their current values */
void variables_hold(walk *w, const value *noted, int count, place at); /* E213 if one was changed since; puts it back */
void lower_statement(walk *w, const ast *node);
void lower_list(walk *w, const ast_list *list, int first);
void lower_block(walk *w, const ast *body); /* a scope of its own */
void lower_for(walk *w, const ast *node);
void lower_while(walk *w, const ast *node);
void lower_branch(walk *w, value condition, const ast *then_body, const ast *else_body, const ast_list *rest,
                  int first);
void lower_jump(walk *w, const ast *node);
bool tree_has(const ast *node, ast_kind kind); /* in loops inside as well, not in functions called */

#endif
