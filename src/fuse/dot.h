/*
 * What the builder of products asks: how large its tiles are.
 * SPDX-License-Identifier: MIT
 */
#ifndef QUERN_FUSE_DOT_H
#define QUERN_FUSE_DOT_H

#include "fuse/group.h"

typedef struct dot_tiles {
    int rows, columns, depth; /* of the sums; of one step of the loop */
    int warps;                /* of a program on a GPU; 0: no wish */
    int fold_depth;           /* of one step of a fold beside the product */
} dot_tiles;

/* The axes that run along tiles, and how many such products there are side by side. */
typedef struct dot_sizes {
    int64_t rows, columns, depth, products;
    bool as_terms; /* f32 operands are sums of bf16 ones */
} dot_sizes;

/* dot_tiles.c: is a product of f32 faster, and no less accurate, as products of the terms that its operands are split
 * into? */
bool dot_wants_terms(const fuse_options *options, dtype elem, product_way way, const dot_sizes *size);

/* dot_tiles.c. Few sizes, so that few texts arise; a batch (the number of rows) changes them only when it becomes
 * large. */
dot_tiles dot_choose_tiles(const fuse_options *options, dtype elem, const dot_sizes *size);

/* dot_tiles.c: parts of K that are summed by programs of their own; 1: it is not split. */
int64_t dot_choose_parts(const fuse_options *options, dtype elem, const dot_sizes *size);

#endif
