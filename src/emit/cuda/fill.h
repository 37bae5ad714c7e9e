/*
 * Printing the nodes of loop programs by which warps gather or take an operand; cuda/loops.c calls these.
 * SPDX-License-Identifier: MIT
 */
#ifndef QUERN_EMIT_CUDA_FILL_H
#define QUERN_EMIT_CUDA_FILL_H

#include "emit/cuda/nest.h"
#include "loops/loops.h"

/* What operands are computed from, element by element. */
typedef struct fill_source {
    const tile_op *load;
    const bool *needed; /* by value */
    const char *raw;    /* text: the register that element v of a pair was loaded into */
} fill_source;

/* The values of a pair: `name_pair`; of what is rounded to 16 bits also `name_both`, the two in one register. */
void fill_put_values(emitter *e, const schedule *s, const fill_source *from);
/* What the gathered load begins with along an axis; the type of a place. */
const char *fill_start_of(emitter *e, const schedule *s, int wanted);
const char *fill_place_type(emitter *e, const schedule *s);
void print_gather_begin(emitter *e, const schedule *s, const loop_node *n);
void print_gather_next(emitter *e, const schedule *s, const loop_node *n);
void print_gather(emitter *e, const schedule *s);
void print_filled(emitter *e, const schedule *s);
void print_filled_last(emitter *e, const schedule *s);
/* cuda/fill_rounded.c: the same of elements that are rounded to tf32; the functions of places are there. */
void print_rounded_begin(emitter *e, const schedule *s);
void print_rounded(emitter *e, const schedule *s);
/* cuda/take.c */
void print_take_begin(emitter *e, const schedule *s, const loop_node *n);
void print_take(emitter *e, const schedule *s, const loop_node *n);
/* cuda/take_rounded.c: the same of elements that are rounded to tf32. */
void print_rounded_take_begin(emitter *e, const schedule *s, const loop_node *n);
void print_rounded_take(emitter *e, const schedule *s);

#endif
