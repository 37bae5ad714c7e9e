/*
 * What the passes that change ops share: a table of replaced values, a block under construction, copies of regions.
 *
 * A pass walks each block in order, takes the operands of an op through rewrite_operands, and either keeps the op
 * (rewrite_keep), emits others, or replaces its results. rewrite_finish renames what is left, extents included.
 * SPDX-License-Identifier: MIT
 */
#ifndef QUERN_PASSES_REWRITE_H
#define QUERN_PASSES_REWRITE_H

#include "ir/tile.h"

typedef struct op_list {
    tile_op **items;
    int count, capacity;
} op_list;

typedef struct rewriter {
    tile_kernel *k;
    arena *scratch;
    value *to; /* by value: what stands for it now, or 0 */
    int to_count;
    op_list out;       /* of the block being built */
    op_list constants; /* new ones, which go before everything in the head or phase, so that all can use them */
    int depth;         /* of blocks */
    const tile_op *at; /* the op being looked at: new ops take its place in the source */
    bool changed;
} rewriter;

rewriter rewrite_start(tile_kernel *k);
bool rewrite_finish(rewriter *r); /* whether anything changed */
value rewrite_find(const rewriter *r, value v);
void rewrite_replace(rewriter *r, value from, value to);
void rewrite_operands(rewriter *r, tile_op *op); /* and the extents of its results */
void rewrite_keep(rewriter *r, tile_op *op);
value rewrite_emit(rewriter *r, op_code code, const value *operands, int count, tile_type type); /* one result */
value rewrite_constant(rewriter *r, dtype elem, number n);
value rewrite_integer(rewriter *r, int64_t n);                /* i64 */
value rewrite_bool(rewriter *r, bool truth, tile_type shape); /* broadcast if the shape asks for it */
value rewrite_fit(rewriter *r, value v, tile_type type);      /* v, or v broadcast to the type's shape */
/* The block's ops go, one by one, through `each`, which keeps, emits or drops. Blocks nest: `each` may call this. */
typedef void rewrite_each(rewriter *r, tile_op *op, void *context);
void rewrite_block(rewriter *r, tile_block *b, rewrite_each *each, void *context);
void rewrite_into(rewriter *r, const tile_block *b, rewrite_each *each,
                  void *context);                                    /* into the block around; not its last op */
void rewrite_kernel(rewriter *r, rewrite_each *each, void *context); /* head and phases */

/* A copy with new values; map (by value, r->k->value_count long before the call) renames what comes from outside. */
tile_block *rewrite_copy(tile_kernel *k, const tile_block *b, value *map);
tile_op *block_last(const tile_block *b);
bool number_same(number a, number b); /* bit by bit: -0 is not 0, a NaN is itself */
/* A constant, or a constant that was broadcast. */
bool constant_of(const tile_kernel *k, value v, number *n);
/* Does the region write array p, or any array when p is -1? */
bool block_writes(const tile_block *b, int array);

#endif
