/*
 * The types that operands take when they meet (section 3 of the language, and section 15 for tensors): one
 * implementation for both front ends, and the diagnostics that belong to it.
 *
 * In: for each operand its type, and the number if it is one. Out: the type it is converted to, or a diagnostic.
 * SPDX-License-Identifier: MIT
 */
#ifndef QUERN_LANG_TYPING_H
#define QUERN_LANG_TYPING_H

#include "lang/ast.h"

typedef struct typed {
    dtype type;
    const binding *constant; /* what the compiler knows of its value, or NULL */
    bool has_axes;
} typed;

/* KERNEL: kernels and scalar functions: small types promote. TENSOR: types stay; scalars follow tensors of their kind.
 */
typedef enum typing_rules { TYPING_KERNEL, TYPING_TENSOR } typing_rules;

bool typing_untyped(const typed *x);
dtype typing_alone(const binding *number); /* of an untyped number that nothing tells its type: `int` or `float` */
/* The type in which all meet: E206, E103. All untyped: `int` or `float`. */
bool typing_join(diagnostics *d, arena *memory, typing_rules rules, const typed *x, int count, place at, dtype *out);
/* What the operands of a binary operator are converted to: E206, E103, E210, E211. */
bool typing_binary(diagnostics *d, arena *memory, typing_rules rules, const char *word, const typed x[2], place at,
                   dtype to[2]);
/* The arms of `where` and `?:`. */
bool typing_select(diagnostics *d, arena *memory, typing_rules rules, const typed x[2], place at, dtype *out);
bool typing_convert(diagnostics *d, arena *memory, const typed *x, dtype to, place at); /* implicit: E205, E207, E103 */
bool typing_argument(diagnostics *d, arena *memory, const typed *x, dtype to, const char *name,
                     place at);                                             /* and E213 */
bool typing_condition(diagnostics *d, const typed *x, place at);            /* E210 */
bool typing_index(diagnostics *d, arena *memory, const typed *x, place at); /* E209 */
/* bitcast(to, x): the type x has, E213 if the widths differ. */
bool typing_bitcast(diagnostics *d, const typed *x, dtype to, place at, dtype *from);
/* What a reduction or scan converts its operand to. */
dtype typing_fold(typing_rules rules, const char *name, dtype type);
op_code operator_code(const char *word);
fold_kind fold_code(const char *name);

#endif
