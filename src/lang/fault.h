/*
 * Mistakes that kernels and tensor functions share: each has one code, one sentence and one advice, whichever of the
 * two front ends meets it (lower_*.c, tensor/function_*.c), and whichever pass of one does (check_*.c first, lower_*.c again).
 * tests/scripts/style.sh holds that no sentence of a diagnostic stands at two places.
 * SPDX-License-Identifier: MIT
 */
#ifndef QUERN_LANG_FAULT_H
#define QUERN_LANG_FAULT_H

#include "lang/ast.h"

enum { CALL_DEPTH_LIMIT = 200, EXPRESSION_DEPTH_LIMIT = 2000 };

/* limits: E105 */
void fault_call_depth(diagnostics *d, place at, const char *name);
void fault_expression_depth(diagnostics *d, place at);
void fault_tile_axes(diagnostics *d, place at, int most);
void fault_tensor_axes(diagnostics *d, place at, int most);

/* types */
void fault_constant(diagnostics *d, error_code code, place at);  /* of arithmetic on constants: constant_fault_text */
void fault_join(diagnostics *d, place at, dtype a, dtype b);     /* E206 */
void fault_integers(diagnostics *d, place at, const char *word); /* E211 */
void fault_generic(diagnostics *d, place at, const char *name, dtype a, dtype b);    /* E215 */
void fault_narrow(diagnostics *d, place at, const char *name, dtype from, dtype to); /* E213 */
void fault_bitcast_type(diagnostics *d, place at);                                   /* E213 */
void fault_bitcast_width(diagnostics *d, place at, dtype from, dtype to);            /* E213 */
void fault_lane(diagnostics *d, place at);                                           /* E217 */
void fault_dot_types(diagnostics *d, place at, dtype a, dtype b);                    /* E311 */
void fault_tf32(diagnostics *d, place at, dtype of);                                 /* E311 */

/* shapes */
void fault_ranks(diagnostics *d, place at, int a, int b);                  /* E301 */
void fault_extents(diagnostics *d, place at, int axis, const char *words); /* E302; words: both extents */
void fault_scalar_from(diagnostics *d, place at, int rank);                /* E305; of a tensor of that rank */
void fault_brackets(diagnostics *d, place at, const char *array, int rank, int given); /* E306; NULL: a tensor */
void fault_scalar_brackets(diagnostics *d, place at);                                  /* E307 */
void fault_axis(diagnostics *d, place at, int64_t axis, int rank);                     /* E309 */
void fault_transpose(diagnostics *d, place at, int rank);                              /* E309 */
void fault_permute(diagnostics *d, place at, int rank);                                /* E309 */
void fault_reduce_scalar(diagnostics *d, place at, const char *name);                  /* E313 */
void fault_one_axis(diagnostics *d, place at, const char *name);                       /* E313 */
void fault_reshape(diagnostics *d, place at, const char *from, const char *to);        /* E312 */
void fault_extent(diagnostics *d, place at, int64_t extent, const char *advice);       /* E314 */
void fault_step(diagnostics *d, place at, bool slice);                                 /* E402 */

/* statements */
void fault_no_effect(diagnostics *d, place at);                        /* E108 */
void fault_assigned(diagnostics *d, place at, const char *name);       /* E203 */
void fault_written(diagnostics *d, place at, const char *array);       /* E204 */
void fault_part_of_tile(diagnostics *d, place at, const char *name);   /* E208 */
void fault_part_of_tensor(diagnostics *d, place at, const char *name); /* E208 */
void fault_tile_condition(diagnostics *d, place at, bool of_loop);     /* E210 */
void fault_outside_loop(diagnostics *d, place at, const char *word);   /* E404 */
void fault_while(diagnostics *d, place at, bool by_element);           /* E405 */
void fault_assume(diagnostics *d, place at, const char *words);        /* E503 */

/* calls and names; advice NULL: the usual one */
void fault_unknown(diagnostics *d, place at, bool call, const char *name, const char *advice); /* E201 */
void fault_not_callable(diagnostics *d, place at, const char *name); /* E212; name: of what gave it, or NULL */
void fault_called_here(diagnostics *d, place at, const char *name, const char *advice);              /* E212 */
void fault_gives_nothing(diagnostics *d, place at, const char *name);                                /* E212 */
void fault_no_place(diagnostics *d, place at, const char *name, bool validity);                      /* E212 */
void fault_not_value(diagnostics *d, place at, const char *name);                                    /* E212 */
void fault_gradient(diagnostics *d, place at);                                                       /* E212 */
void fault_needs_function(diagnostics *d, place at, const char *name);                               /* E212 */
void fault_stands_for(diagnostics *d, place at, const char *function, const char *name);             /* E212 */
void fault_argument_count(diagnostics *d, place at, const char *name, int least, int most, int got); /* E213 */
void fault_named_argument(diagnostics *d, place at, const char *name, const char *argument,
                          const char *advice);                                              /* E213 */
void fault_no_set(diagnostics *d, place at, const char *argument, const char *function);    /* E213 */
void fault_not_given(diagnostics *d, place at, const char *argument, const char *function); /* E213 */

/* what has to be known now */
void fault_not_constant(diagnostics *d, place at, const char *name, const char *advice); /* E217 */
void fault_depends(diagnostics *d, place at, const char *name, const char *advice);      /* E217 */
void fault_circle(diagnostics *d, place at, const char *constant);                       /* E217 */
void fault_flag(diagnostics *d, place at, const char *name, const char *function);       /* E217 */
void fault_traced(diagnostics *d, place at, const char *advice);                         /* E217; of a tensor's value */
void fault_extent_missing(diagnostics *d, place at, const char *name);                   /* E505 */
void fault_no_default(diagnostics *d, place at, const char *kind, const char *name);     /* E505 */

#endif
