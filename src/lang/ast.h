/*
 * The syntax tree of a .qn file. One node type; what its fields mean stands beside each kind.
 * Nodes live in the file's arena. Comments are kept in a side list for `fmt`.
 * SPDX-License-Identifier: MIT
 */
#ifndef QUERN_LANG_AST_H
#define QUERN_LANG_AST_H

#include "ir/tile.h"

typedef struct place {
    int line, column; /* from 1; column counts bytes */
    int end_column;   /* one past the end on the same line, for the underline; 0: one character */
} place;

typedef enum ast_kind {
    /* items: `name` is the item's name */
    AST_FUNCTION, /* type: result (NULL: void); is_tile: `tile` result; list: params; body: block */
    /* list: params; clauses: clause nodes; phases: list of AST_PHASE (the first has the `launch` clause's exprs) */
    AST_KERNEL,
    AST_TENSOR, /* list: params; body: block */
    /* word: "c" or "cuda"; list: params; clauses: AST_CLAUSE launch/block/shared; words: source text, or from: a path
     * (is_path) */
    AST_RAW,
    /* settings: clauses[0] (word "settings"); clauses: on, input, tolerance, bytes, flops; list: AST_VARIANT */
    AST_BENCH,
    AST_CONSTANT, /* item or statement: type, name, left: expr */
    AST_IMPORT, /* words: the path; name: the name space; is_set: it was given with `as`. In `imports`, not in `items` */
    /* parts of items */
    /* word: "" in out inout scratch const; is_tile; type; name; list: extents (empty: scalar, or rank-0 array when
     * in/out/inout/scratch); left: default or initial, or NULL; function constants: word const, is_function, list:
     * parameter types (AST_TYPE) */
    AST_PARAM,
    /* word: launch tune types precise gradient on input tolerance bytes flops settings block shared; list: exprs or
     * AST_SETTING; left: tune's `if`; name: gradient's, or the device of `on` */
    AST_CLAUSE,
    AST_PHASE,   /* list: launch exprs; body: block */
    AST_SETTING, /* name; left: expr, or list: the set (is_set) */
    AST_VARIANT, /* word: "" eager fused strict; name; list: AST_SETTING */
    AST_TYPE,    /* word: as written ("float", "f32", "T"); is_generic */
    /* statements */
    AST_BLOCK,          /* list */
    AST_DECLARE,        /* is_tile; type; list: AST_DECLARATOR */
    AST_DECLARATOR,     /* name; list: extents; left: initialiser */
    AST_ASSIGN,         /* left: AST_NAME or AST_INDEX; word: "=" "+=" ... ; right (NULL for ++ --: word "++" "--") */
    AST_CALL_STATEMENT, /* left: AST_CALL */
    AST_IF,             /* left: condition; body: then; other: else or NULL */
    /* name: variable; left: first; right: bound; third: step; word: comparison; other word in `words`: "+=" "-=" "++"
     * "--" (third NULL for ++ --); body */
    AST_FOR,
    AST_WHILE, /* left; body */
    AST_BREAK,
    AST_CONTINUE,
    AST_RETURN, /* list: values */
    AST_LET,    /* list: AST_NAME; left: expr */
    AST_EMPTY,
    /* expressions */
    /* is_float, is_typed (0.5f); number; word: as written. Decimals fit i64, 0x and 0b are patterns of 64 bits */
    AST_NUMBER,
    AST_STRING, /* words, length */
    AST_BOOL,   /* number.i */
    AST_NAME,   /* name */
    /* a type in an expression: word; is_generic: a `T` that types a parameter (or the result) of this item */
    AST_TYPE_NAME,
    AST_UNARY,       /* word; left */
    AST_BINARY,      /* word; left, right */
    AST_CONDITIONAL, /* left ? right : third */
    /* left: callee (AST_NAME, AST_TYPE_NAME, or AST_CALL for grad(f)(..)); list: arguments, AST_NAMED for
     * name = value */
    AST_CALL,
    AST_NAMED, /* name; left: expr, or list: set (is_set) */
    AST_INDEX, /* left: base; list: AST_SUBSCRIPT, all brackets that follow each other */
    /* none: []; is_slice: left: start (NULL for [:]), right: length, third: step or NULL; else left: index */
    AST_SUBSCRIPT,
    AST_KIND_COUNT
} ast_kind;

typedef struct ast ast;

typedef struct ast_list {
    ast **items;
    int count, capacity;
} ast_list;

struct ast {
    ast_kind kind;
    place at;                 /* of the operator for binary, of the name for items and params */
    place from;               /* where the whole node begins */
    int end_line, end_column; /* one past the last byte of the node, for comments in fmt */
    int height;               /* of the tree below; at most 1000, so that walking it cannot overflow the stack */
    int text_line;            /* AST_RAW: the line where the raw text begins; left: AST_CLAUSE of template arguments */
    const char *name, *word, *words;
    size_t length; /* of words */
    ast *type, *left, *right, *third, *body, *other;
    ast_list list, clauses, phases;
    number number;
    bool is_tile, is_float, is_typed, is_set, is_slice, is_generic, is_function, is_path, parenthesised, blank_before;
    bool is_tensor;    /* AST_PARAM: it has brackets, maybe empty ones */
    bool is_signature; /* AST_KERNEL: parameters and results of a tensor function, not of the source */
    bool is_spread;    /* AST_SUBSCRIPT: `[...]` */
    /* AST_PARAM: `[...]` stands before this extent for spread_count axes, of which the list has none before spread.c */
    int spread_at, spread_count;
    bool has_spread;
};

typedef struct ast_comment {
    place at;
    int end_line;
    const char *text;  /* with its // or slash-star */
    bool own_line;     /* nothing but blanks before it */
    bool blank_before; /* an empty line stood before it */
} ast_comment;

typedef struct ast_file {
    arena *memory;
    const char *path;
    const char *text; /* NUL-terminated copy */
    size_t length;
    const char **lines; /* NUL-terminated copies, [0] is line 1 */
    int line_count;
    ast_list imports, items;
    map *by_name;              /* the first item of a name that is not a bench */
    map *benches;              /* the first bench that names a kernel */
    struct ast_file *importer; /* of an imported file */
    struct ast_file **sources; /* of the first file: all that were imported, in order */
    int source_count, source_capacity;
    const char **spaces; /* name spaces of this file */
    int space_count, space_capacity;
    ast_comment *comments;
    int comment_count, comment_capacity;
} ast_file;

/* import.c */
#define FOREIGN_LINES 10000000 /* line 3 of the second imported file is 2 * FOREIGN_LINES + 3 */
const char *source_of_line(const ast_file *file, int *line, const ast_file **source); /* its path; the line is in it */

/* Diagnostics: collected, sorted by place at the end, at most 20 shown. */
typedef struct diagnostic {
    place at;
    error_code code;     /* E301, W602 */
    const char *message; /* one sentence: what is wrong */
    const char *advice;  /* one sentence: what to do, or NULL */
} diagnostic;

typedef struct diagnostics {
    arena *memory;
    diagnostic *items;
    int count, capacity;
    int errors; /* not counting warnings */
} diagnostics;

/* Of another file, under a name space. */
static inline bool ast_is_imported(const ast *item)
{
    return item && item->from.line >= FOREIGN_LINES;
}

/* The literal 1 makes a unit axis, the literal 0 drops one. */
static inline bool ast_is_literal(const ast *node, int64_t i)
{
    return node && node->kind == AST_NUMBER && !node->is_float && node->number.i == i;
}

/* habits.c: what Quern has instead of a word, or of a named argument, of another language; NULL if nothing is known */
const char *habit_advice(const char *word);
/* W603: `max(x, 1)` where 1 may be meant as an axis of x, which has `rank` of them. */
void habit_extreme(diagnostics *d, arena *memory, const ast *call, int rank);
const char *habit_form(const char *name); /* how the function is called; or NULL */
const char *habit_argument(const char *name);

/* diagnose.c */
void diagnose(diagnostics *d, error_code code, place at, const char *advice, const char *format, ...)
    __attribute__((format(printf, 5, 6)));
/* file:line:column: error E301: message / source line / caret / advice. Colours if asked. */
void diagnostics_print(const diagnostics *d, const ast_file *file, bool colour, text *out);

/* All of them as the message of an error; its code and place are those of the first that is no warning. */
qn_status diagnostics_error(const diagnostics *d, const ast_file *file, qn_status status, qn_error *error);

/* lex.c, parse.c */
/* never NULL; what parsed is there even with errors */
ast_file *lang_parse(arena *memory, const char *path, const char *words, size_t length, diagnostics *d);
/* format.c: the tree in canonical form, comments kept; format(parse(format(parse(x)))) == format(parse(x)). Needs a
 * file without errors. */
void lang_format(const ast_file *file, text *out);
/* One expression as canonical text, for messages and EXTENT/ASSUME words. */
void lang_format_expression(const ast *expression, text *out);
/* check.c: names and structure, once a file: E2xx that need no types, E109, E214, E216, E404, W602. */
void lang_check(const ast_file *file, diagnostics *d);
/* builtins.c: the names of the language that are functions, for check, lower and suggestions. */
typedef enum builtin_class {
    BUILTIN_ELEMENTWISE,
    BUILTIN_REDUCE,
    BUILTIN_SCAN,
    BUILTIN_SHAPE,
    BUILTIN_DOT,
    BUILTIN_VALIDITY,
    BUILTIN_ATOMIC,
    BUILTIN_RANDOM,
    BUILTIN_PROGRAM,
    BUILTIN_STATEMENT,
    BUILTIN_HOST,
    BUILTIN_TENSOR
} builtin_class;
typedef struct builtin {
    const char *name;
    builtin_class class;
    int least, most; /* positional arguments; most -1: any */
    op_code op;      /* elementwise: the op; else OP_NONE */
} builtin;
const builtin *builtin_find(const char *name); /* NULL if none */
extern const builtin builtins[];
extern const int builtin_count;
const ast *ast_find(const ast_file *file, const char *name); /* an item that is not a bench, or NULL */

/* evaluate.c: constant expressions over bound names, on the tree. */
typedef enum binding_kind { BIND_TYPE, BIND_INT, BIND_FLOAT, BIND_BOOL, BIND_FUNCTION } binding_kind;
typedef struct binding {
    const char *name;
    binding_kind kind;
    dtype type;
    number number;
    const char *function;
    bool untyped; /* an expression of numbers alone */
    bool pattern; /* untyped, written as 64 bits of which the first is set: a `u64`, or negative in signed types */
} binding;
typedef struct bindings {
    binding *items;
    int count, capacity;
} bindings;
const binding *bindings_find(const bindings *b, const char *name);
void bindings_set(arena *memory, bindings *b, binding item); /* replaces one of the same name */
/* A setting as people write it: `2^20` and `2**20` are powers there, where exclusive-or of numbers is of no use. */
const char *lang_setting(arena *memory, const char *words);
/* False with no diagnostic if the value depends on a name that is not bound: *unbound names it. Other faults are
 * diagnosed (E217, E103, ...). */
bool lang_evaluate(const ast_file *file, const ast *expression, const bindings *known, int units, diagnostics *d,
                   binding *out, const char **unbound);

/* spread.c: tensor functions of any rank. */
bool item_is_spread(const ast *item);     /* has a parameter a `[...]`? */
int spread_axis_number(const char *name); /* k of `axis_k`; -1: another name */
int spread_fixed(const ast *param);       /* axes beside `[...]` */
/* The item with `count` axes for each `[...]`, none where `bare` (by parameter, may be NULL); the item itself where it
 * has no `[...]`. */
const ast *lang_spread(arena *memory, const ast *item, int count, const bool *bare);

/* instance.c: from what the caller gave to the constants and types of one instance. */
typedef struct given_array {
    const char *name;
    dtype elem;
    int rank;
    int64_t extents[MAX_RANK];
    unsigned units;   /* axes that broadcast: behind `[...]` they go with every extent */
    bool has_extents; /* false: only the element type is known */
} given_array;
typedef struct lang_given {
    bindings settings; /* constants, types, extents and scalars by name, from the caller */
    given_array *arrays;
    int array_count;
    int units;
} lang_given;
/* Binds generic types and const parameters of a kernel: the caller's value, else by an extent, else the first fitting
 * candidate rule of `tune`, else the default. E215, E505, E501. Extents known from arrays are in *extents as well. */
bool lang_instantiate(const ast_file *file, const ast *kernel, const lang_given *given, diagnostics *d, arena *memory,
                      bindings *constants, bindings *extents);

/* lower_raw.c: `-O2` and the like, which no compiler of kernels takes. */
bool raw_option_is_of_host(const char *option, size_t length);
/* raw_include.c: raw text with the files that it includes by name in quotes, found beside path (may be NULL).
 * cuda: headers that the prelude stands in for, and those of host code, are dropped; knows_types: also those of the
 * 16-bit types. Lives in the arena, or is `words`. */
const char *raw_expand(arena *memory, const char *words, const char *path, int line, bool cuda, bool knows_types);

/* lower_*.c: types, shapes and constants, once an instance; the IR comes out verified. False: diagnostics were
 * added. */
bool lang_lower(const ast_file *file, const ast *kernel, const bindings *constants, arena *memory, diagnostics *d,
                tile_kernel **out);

#endif
