/*
 * Products whose operands are gathered: shared by cuda/gather.c and cuda/dot.c.
 * SPDX-License-Identifier: MIT
 */
#ifndef QUERN_EMIT_CUDA_GATHER_H
#define QUERN_EMIT_CUDA_GATHER_H

#include "emit/cuda/nest.h"

typedef struct gather_product {
    const char *type; /* its class, with its numbers; gather_put sets it */
    int rows, columns, down, across, sums;
    int64_t room_bytes;
} gather_product;

/* Is one of the operands a slice of an array with digits? */
bool gather_is_wanted(const emitter *e, const tile_op *dot);
gather_product gather_choose(emitter *e, const tile_op *dot, int threads);
/* The views gather_a and gather_b, from line `top` of the left and line `left` of the right operand on. */
void gather_put(emitter *e, const tile_op *dot, gather_product *p);

#endif
