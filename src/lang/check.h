/*
 * Names and their scopes, shared by check.c (items) and check_body.c (statements and expressions).
 *
 * A name maps to its innermost symbol; the symbol knows which one it hides, so that leaving a scope is undoing the
 * declarations on top of a stack.
 * SPDX-License-Identifier: MIT
 */
#ifndef QUERN_LANG_CHECK_H
#define QUERN_LANG_CHECK_H

#include "lang/ast.h"

#include <string.h>

typedef enum symbol_kind {
    SYMBOL_IN, /* arrays first */
    SYMBOL_OUT,
    SYMBOL_INOUT,
    SYMBOL_SCRATCH,
    SYMBOL_TENSOR, /* an array parameter, or a `let`, of a tensor function */
    SYMBOL_SCALAR, /* a parameter or a variable */
    SYMBOL_TILE,
    SYMBOL_EXTENT,
    SYMBOL_CONSTANT,
    SYMBOL_FUNCTION, /* a function constant */
    SYMBOL_LOOP
} symbol_kind;

typedef struct symbol {
    const char *name;
    symbol_kind kind;
    place at;
    const ast *node;       /* AST_PARAM, AST_DECLARATOR, ..., or NULL */
    struct symbol *hidden; /* what the name meant before */
    int scope;
    bool is_param, is_extent; /* is_extent: a scalar parameter that is the extent of an array */
    bool used, read, written; /* arrays: read and written; used: by anything but assignments */
    place first_read;
    int64_t assigned; /* the checker's clock at the last assignment */
} symbol;

/* A function, tensor function, kernel: what it calls, for recursion and for how far it expands. */
typedef struct call_edge {
    int to; /* index of the item */
    place at;
} call_edge;

typedef struct call_node {
    const ast *item;
    call_edge *edges;
    int edge_count, edge_capacity;
    int state;   /* 0 new, 1 on the path, 2 done */
    int height;  /* longest chain of calls below */
    double size; /* calls when everything is expanded */
} call_node;

typedef struct checker {
    const ast_file *file;
    diagnostics *d;
    arena *memory;
    map *names; /* name -> symbol* */
    map *items; /* name -> call_node*: items other than benches */
    call_node *nodes;
    int node_count;
    symbol **stack;
    int stack_count, stack_capacity;
    int scope;
    call_node *node;                    /* of the item being checked */
    bool in_tensor, in_scalar_function; /* what the item is */
    int loops;
    int errors_before; /* this item */
    int64_t clock;
    map *reported; /* unknown names of this item */
} checker;

/* check.c */
bool checker_tired(const checker *c); /* enough errors: the rest is not worth looking at */
symbol *checker_find(const checker *c, const char *name);
symbol *checker_declare(checker *c, const char *name, symbol_kind kind, place at, const ast *node);
void checker_open(checker *c);
void checker_close(checker *c);                                          /* warns of what was never used */
void checker_unknown(checker *c, const char *name, place at, bool call); /* E201 with a suggestion */
bool function_is_scalar(const ast *function);
static inline bool symbol_is_array(const symbol *s)
{
    return s->kind <= SYMBOL_TENSOR;
}

/* check_body.c */
void check_expression(checker *c, const ast *node);
void check_expressions(checker *c, const ast_list *list);
void check_body(checker *c, const ast *block); /* of a phase or function, in a scope of its own */

/* check_call.c */
void check_call(checker *c, const ast *node, bool is_statement);
void check_write(checker *c, symbol *s, place at); /* an array is written here: E204 */
void check_read(checker *c, symbol *s, place at);

/* check_bench.c */
void check_bench(checker *c, const ast *bench);
void check_settings_of(checker *c, const ast *kernel, const ast *clause); /* tune and types */

#endif
