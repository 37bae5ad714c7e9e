/*
 * Shared by fold.c (the walk, control flow, constants) and algebra.c (the rules for one op).
 * SPDX-License-Identifier: MIT
 */
#ifndef QUERN_PASSES_FOLD_H
#define QUERN_PASSES_FOLD_H

#include "passes/rewrite.h"

/* algebra.c: what the op's one result equals, of any shape that broadcasts to it; 0 if no rule fits. May change op. */
value algebra_elementwise(rewriter *r, tile_op *op);
value algebra_shape(rewriter *r, tile_op *op);

/* choose.c: a fold of which only one element counts; 0: it is another. */
value algebra_chosen(rewriter *r, const tile_op *op);

#endif
