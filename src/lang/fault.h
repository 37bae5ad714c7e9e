/*
 * Mistakes that kernels and tensor functions share: each has one code, one sentence and one advice, whichever of the
 * two front ends meets it (lower_*.c, tensor/function_*.c).
 * SPDX-License-Identifier: MIT
 */
#ifndef QUERN_LANG_FAULT_H
#define QUERN_LANG_FAULT_H

#include "lang/ast.h"

enum { CALL_DEPTH_LIMIT = 200, EXPRESSION_DEPTH_LIMIT = 2000 };

/* limits: E105 */
void fault_call_depth(diagnostics *d, place at, const char *name);
void fault_expression_depth(diagnostics *d, place at);

/* types */
void fault_constant(diagnostics *d, const char *code, place at); /* of arithmetic on constants: constant_fault_text */
void fault_join(diagnostics *d, place at, dtype a, dtype b);     /* E206 */
void fault_integers(diagnostics *d, place at, const char *word); /* E211 */
void fault_generic(diagnostics *d, place at, const char *name, dtype a, dtype b);    /* E215 */
void fault_narrow(diagnostics *d, place at, const char *name, dtype from, dtype to); /* E213 */
void fault_bitcast_type(diagnostics *d, place at);                                   /* E213 */
void fault_bitcast_width(diagnostics *d, place at, dtype from, dtype to);            /* E213 */
void fault_lane(diagnostics *d, place at);                                           /* E217 */

/* shapes */
void fault_ranks(diagnostics *d, place at, int a, int b);                       /* E301 */
void fault_extents(diagnostics *d, place at, int axis, const char *words);      /* E302; words: both extents */
void fault_scalar_brackets(diagnostics *d, place at);                           /* E307 */
void fault_axis(diagnostics *d, place at, int64_t axis, int rank);              /* E309 */
void fault_transpose(diagnostics *d, place at, int rank);                       /* E309 */
void fault_permute(diagnostics *d, place at, int rank);                         /* E309 */
void fault_reduce_scalar(diagnostics *d, place at, const char *name);           /* E313 */
void fault_one_axis(diagnostics *d, place at, const char *name);                /* E313 */
void fault_reshape(diagnostics *d, place at, const char *from, const char *to); /* E312 */
void fault_step(diagnostics *d, place at, bool slice);                          /* E402 */

/* calls and names */
void fault_not_callable(diagnostics *d, place at);                                                   /* E212 */
void fault_argument_count(diagnostics *d, place at, const char *name, int least, int most, int got); /* E213 */
void fault_named_argument(diagnostics *d, place at, const char *name, const char *argument);         /* E213 */
void fault_needs_function(diagnostics *d, place at, const char *name);                               /* E212 */
void fault_stands_for(diagnostics *d, place at, const char *function, const char *name);             /* E212 */
void fault_not_constant(diagnostics *d, place at, const char *name);                                 /* E217 */
void fault_assume(diagnostics *d, place at, const char *words);                                      /* E503 */

#endif
