/*
 * What the printers of chained products share: cuda/chained.c (the function and its roles), cuda/chained_steps.c (steps,
 * copies, products, results), cuda/chained_scores.c (arithmetic on registers).
 * SPDX-License-Identifier: MIT
 */
#ifndef QUERN_EMIT_CUDA_CHAINED_PARTS_H
#define QUERN_EMIT_CUDA_CHAINED_PARTS_H

#include "emit/cuda/loops.h"

enum { CHAINED_LINE = SCHED_LINE_BYTES };

typedef struct chained_printer {
    emitter *e;
    const chained *c;
    bool multiplies; /* the role at hand */
    bool late;       /* of the first product's scores only the cut is left */
    const char *end; /* of this group's steps */
    bool *rows;      /* by value: an array of two that was declared */
    bool *truths;    /* by value: registers of a bit for each score that were declared */
    bool draws;      /* such a register is computed: `word` is its number */
} chained_printer;

/* cuda/chained.c */
void chained_print_nodes(chained_printer *p, const loop_node *n);

/* cuda/chained_scores.c */
const char *chained_element(chained_printer *p, value v); /* the expression of the element at x, in a pass */
void chained_print_let(chained_printer *p, const loop_node *n);
void chained_print_load(chained_printer *p, const loop_node *n);
void chained_print_edges(chained_printer *p);
void chained_print_truths(chained_printer *p, const loop_node *n);
void chained_print_pass(chained_printer *p, const loop_node *n);
void chained_print_pairs(chained_printer *p, const loop_node *n);
void chained_print_fold_begin(chained_printer *p, const loop_node *n);
void chained_print_fold(chained_printer *p, const loop_node *n);
void chained_print_fold_join(chained_printer *p, const loop_node *n); /* of the chains of a thread */
void chained_print_fold_end(chained_printer *p, const loop_node *n);  /* a row's four lanes fold what each has */
void chained_print_keep(chained_printer *p, const loop_node *n);
const char *chained_positive(chained_printer *p, value v); /* the test that it is, and finite */
const char *chained_pack_name(emitter *e, dtype elem);
const char *chained_row_pointer(chained_printer *p, const tile_op *op, const char *row, const char **test);

/* cuda/chained_steps.c */
int chained_operand_bytes(const chained *c, int operand); /* of a stage, or of a fixed room */
void chained_print_bulk_in(chained_printer *p, const loop_node *n);
void chained_print_vectors(chained_printer *p, bool ask);
void chained_print_held(chained_printer *p, const loop_node *n);
void chained_print_matrix(chained_printer *p, const loop_node *n);
void chained_print_matrix_wait(chained_printer *p, const loop_node *n);
void chained_print_wait(chained_printer *p, const loop_node *n);
void chained_print_wait_ahead(chained_printer *p, const loop_node *n);
void chained_print_release(chained_printer *p, const loop_node *n);
void chained_print_ring_begin(chained_printer *p, const loop_node *n);
void chained_print_ring_next(chained_printer *p, const loop_node *n);
void chained_print_steps(chained_printer *p, const loop_node *n);
void chained_print_range(chained_printer *p);
void chained_print_range_end(chained_printer *p, const loop_node *n);
void chained_print_row_store(chained_printer *p, const loop_node *n);
void chained_print_out(chained_printer *p, const loop_node *n);
void chained_print_out_send(chained_printer *p, const loop_node *n);

#endif
