/*
 * Building the program of chained products: shared by loops/chained.c (roles, steps, results) and loops/chained_scores.c
 * (arithmetic on a step's scores).
 * SPDX-License-Identifier: MIT
 */
#ifndef QUERN_LOOPS_CHAINED_BUILD_H
#define QUERN_LOOPS_CHAINED_BUILD_H

#include "loops/loops.h"

typedef struct chained_builder {
    const chained *c;
    arena *memory;
    loop_node **tail; /* where the next node goes */
    bool masked;      /* this step's masks may leave something out */
    bool late;        /* of the first product's scores only the cut is left */
    bool after;       /* behind the loop */
    bool *known;      /* by value: computed in the pass at hand */
    bool *rows;       /* by value: one number a fixed row, which stands already */
    bool *folded;     /* by value: a fold that has been done */
    bool *truths;     /* by value: truths of the step's scores, one bit each, that stand already */
} chained_builder;

/* chained.c */
loop_node *chained_add(chained_builder *b, loop_code code, const tile_op *op, int first, int second);
/* What follows goes into the node's body, until chained_close with what this gives. */
loop_node **chained_open(chained_builder *b, loop_node *n);
void chained_close(chained_builder *b, loop_node **behind);

/* chained_scores.c */
void chained_begin_pass(chained_builder *b);
void chained_need(chained_builder *b, value v);          /* all that its element is computed from, each once a pass */
void chained_row(chained_builder *b, const tile_op *op); /* one number a fixed row */
void chained_truths(chained_builder *b);                 /* drawn ones, which need no product */
void chained_softmax(chained_builder *b);                /* between the products of a step with folds */
void chained_weights(chained_builder *b, bool late);     /* a pass without folds */

#endif
