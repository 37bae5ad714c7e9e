/*
 * Products in registers: which one suits a dot, and how large it is. Shared by survey.c (what it needs) and dot.c (text).
 * SPDX-License-Identifier: MIT
 */
#ifndef QUERN_EMIT_CUDA_PRODUCT_H
#define QUERN_EMIT_CUDA_PRODUCT_H

#include "emit/cuda/nest.h"

typedef enum product_kind { PRODUCT_MATRIX, PRODUCT_RING, PRODUCT_FMA } product_kind;

typedef struct product {
    product_kind kind; /* on the matrix units; by multiply and add with their ring; without it */
    dtype elem;
    bool tf32;
    int rows, columns, sums; /* of a tile; of a thread */
    int down, across;        /* parts that warps (MATRIX) or threads have */
    int threads, stages, chunks;
    int64_t room_bytes;
} product;

/* The product that suits an op, run by a block of so many threads; false: there is none. Its sizes do not depend on where
 * the operands are. */
bool product_choose(const emitter *e, const tile_op *op, int threads, product *out);
/* One room serves all products of a phase: each leaves it behind a barrier. */
void product_room(emitter *e, int64_t bytes);
/* Calls visit for each product of the loop whose sums fit into the registers of so many threads: something else than
 * adding to them is not done in the loop. */
typedef void product_visit(emitter *e, value result, value argument, dtype t);
void product_each_resident(emitter *e, const tile_op *loop, int threads, product_visit *visit);

#endif
