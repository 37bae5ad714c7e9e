/*
 * What the printers of the recipe `chained` share: cuda/chained.c (the function, copies, results),
 * cuda/chained_steps.c (the loop and its products), cuda/chained_scores.c (arithmetic on registers).
 * SPDX-License-Identifier: MIT
 */
#ifndef QUERN_EMIT_CUDA_CHAINED_PARTS_H
#define QUERN_EMIT_CUDA_CHAINED_PARTS_H

#include "emit/cuda/chained.h"

enum { CHAINED_LINE = SCHED_LINE_BYTES };

typedef struct chained_printer {
    emitter *e;
    const chained *c;
    bool masked;  /* this step's masks may leave something out */
    const char *end; /* of a group's steps ... */
    bool early;      /* ... which may be before the program's: behind it only stages are given back */
    bool *known;  /* by value: printed in the pass at hand */
    bool *rows;   /* by value: an array of two that stands already */
    bool after;   /* behind the loop */
    bool late;    /* of the first product's scores only the cut is left */
    bool *folded; /* by value: a fold that has been printed */
} chained_printer;

/* cuda/chained_scores.c */
const char *chained_element(chained_printer *p, value v); /* the expression of the element at x, in a pass */
void chained_begin_pass(chained_printer *p);
void chained_print_row(chained_printer *p, const tile_op *op); /* one number a fixed row, as an array of two */
void chained_print_fixed(chained_printer *p);                  /* what stands before the loop: one number a fixed row */
/* Everything between the products of a loop with folds: rows and passes in order, then what the next step carries. */
void chained_print_softmax(chained_printer *p);
/* A pass without folds: the cut and the weights of early sums (late false), or the weights of late ones. */
void chained_print_weights(chained_printer *p, bool late);
void chained_print_exchange(chained_printer *p, value v, fold_kind fold); /* a row's four lanes fold what each has */
const char *chained_pack_name(emitter *e, dtype elem);
const char *chained_row_pointer(chained_printer *p, const tile_op *op, const char *row, const char **test);

/* cuda/chained_steps.c */
void chained_print_loop(chained_printer *p);

#endif
