/*
 * Products in registers: which one suits a dot, and how large it is. Shared by spread_survey.c (what it needs) and cuda/dot.c (text).
 * SPDX-License-Identifier: MIT
 */
#ifndef QUERN_SCHEDULE_PRODUCT_H
#define QUERN_SCHEDULE_PRODUCT_H

#include "schedule/spread.h"

enum { ASSUMED_THREADS = 256 }; /* of a product, as long as the team is not chosen */

typedef enum product_kind { PRODUCT_MATRIX, PRODUCT_RING, PRODUCT_FMA, PRODUCT_THIN } product_kind;

typedef struct product {
    product_kind kind; /* on the matrix units; by multiply and add with their ring; without it; matrix units without a ring */
    dtype elem;
    bool tf32;
    bool is_short;           /* a step of the loop is 64 bytes of k, or less */
    int rows, columns, sums; /* of a tile; of a thread */
    int down, across;        /* parts that warps (MATRIX) or threads have */
    int threads, stages, chunks;
    int scaled; /* the side whose operand is a slice with a scale; -1: none is */
    int64_t room_bytes;
} product;

/* The product that suits an op, run by a block of so many threads; false: there is none. Its sizes do not depend on where
 * the operands are. */
bool product_choose(const survey *e, const tile_op *op, int threads, product *out);
/* One room serves all products of a phase: each leaves it behind a barrier. */
void product_room(survey *e, int64_t bytes);
/* Calls visit for each product of the loop whose sums fit into the registers of so many threads: something else than
 * adding to them is not done in the loop. */
typedef void product_visit(void *context, value result, value argument, dtype t);
void product_each_resident(const survey *e, const tile_op *loop, int threads, product_visit *visit, void *context);

typedef struct gather_product {
    int rows, columns, down, across, sums;
    int64_t room_bytes;
} gather_product;

/* Operands that it rounds to tf32 or scales itself, before anything is planned. */
void product_mark(survey *e, const tile_op *op);
/* scale.c */
tile_op *scale_find(const survey *e, value v, int side); /* a load of numbers, one for each k, or NULL */
/* Is one of the operands a slice of an array with digits? */
bool gather_is_wanted(const survey *e, const tile_op *dot);
bool gather_is_on_units(const survey *e, const tile_op *dot); /* f32 that may be rounded goes to the matrix units */
gather_product gather_choose(const survey *e, const tile_op *dot, int threads);

#endif
