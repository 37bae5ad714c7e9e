/*
 * What the memory plan does to kernels: two arrays become one where a value takes the place of an input, and copies.
 * SPDX-License-Identifier: MIT
 */
#ifndef QUERN_FUSE_MEMORY_H
#define QUERN_FUSE_MEMORY_H

#include "fuse/fuse.h"

/* in_place.c */
/* The kind of the array parameter that argument `argument` is for. */
param_kind fuse_argument_kind(const tile_kernel *k, int argument);
/* No folds, no products, no atomics: every program computes elements one by one. */
bool fuse_is_pointwise(const tile_kernel *k);
/* Makes the arrays of arguments `read` and `write` one inout parameter, if both have the same view and the kernel reads
 * exactly the elements that it writes, before it writes them. The argument that stays is of `write`'s node. */
bool fuse_in_place(arena *memory, fuse_kernel *kernel, int read, int write);
/* y = x for arrays of this rank; rank 1: in blocks, else one program a row. */
tile_kernel *fuse_copy_text(arena *memory, dtype elem, int rank, int block);

#endif
