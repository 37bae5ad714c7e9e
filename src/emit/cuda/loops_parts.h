/*
 * What the files that print loop programs share: cuda/loops.c (roles, loops and the function), cuda/ring.c (copies
 * and products), cuda/epilogue.c (what is made of the sums).
 * SPDX-License-Identifier: MIT
 */
#ifndef QUERN_EMIT_CUDA_LOOPS_PARTS_H
#define QUERN_EMIT_CUDA_LOOPS_PARTS_H

#include "emit/cuda/loops.h"

enum {
    LINE = SCHED_LINE_BYTES,
    EIGHT_LINES = 8 * SCHED_LINE_BYTES,
    GROUP_BYTES = 64 * SCHED_LINE_BYTES,
    CHUNK = 64, /* columns */
    NOWHERE =
        1 << 30 /* outside of every array: what is fetched there is zero, so an empty k needs no case of its own */
};

typedef struct loop_printer {
    emitter *e;
    const schedule *s;
} loop_printer;

/* cuda/loops.c */
void print_nodes(loop_printer *p, const loop_node *n);
/* Steps of a loop, of LOOP_STEPS or what comes before it: one at least. */
const char *steps_text(emitter *e, const loop_node *n);
void open_brace(emitter *e);
void close_brace(emitter *e);
int rows_of_group(const schedule *s); /* of a tile, that one group of warps multiplies */

/* cuda/ring.c */
void print_bulk_in(loop_printer *p, const loop_node *n);
void print_matrix(loop_printer *p, const loop_node *n);
void print_release(loop_printer *p, const loop_node *n);
void print_sums_begin(loop_printer *p, const loop_node *n);
void print_add_sums(loop_printer *p);
void print_in_ask(loop_printer *p); /* tiles that the epilogue loads */
/* Coordinates of a box, innermost first; added: by axis, to its start, or NULL. */
const char *box_coordinates(loop_printer *p, const tile_op *op, const char *const *added);

/* cuda/epilogue.c */
void print_chunks(loop_printer *p, const loop_node *n);
void print_pairs(loop_printer *p, const loop_node *n);
void print_elements(loop_printer *p, const loop_node *n, const loop_node *loads);
void print_load(loop_printer *p, const loop_node *n);
void print_let(loop_printer *p, const loop_node *n);
void print_store(loop_printer *p, const loop_node *n);
void print_out(loop_printer *p, const loop_node *n);
void print_out_rows(loop_printer *p, const loop_node *n);
void print_out_send(loop_printer *p, const loop_node *n);

#endif
