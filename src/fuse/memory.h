/*
 * What the memory plan does to kernels: two arrays become one where a value takes the place of an input, and copies.
 * SPDX-License-Identifier: MIT
 */
#ifndef QUERN_FUSE_MEMORY_H
#define QUERN_FUSE_MEMORY_H

#include "fuse/fuse.h"

/* memory.c */
/* before[a * kernel_count + b]: kernel a runs before kernel b, for a value that it makes, or because it reads the old value
 * of a leaf that b computes the new one of. */
bool *fuse_before(const fuse_plan *plan, const fuse_assign *assigns, int assign_count, arena *scratch);

/* What lives at once at most if no value takes the place of another, with the results. */
int64_t fuse_live_bytes(const fuse_plan *plan, const node *wanted, int wanted_count);
bool fuse_peak_matters(const fuse_plan *plan, int64_t live_bytes); /* it is more than eager kernels would need */

/* side_by_side.c */
/* Pairs of small products that do not need each other become one kernel, unless that costs more memory than eager kernels
 * would. */
void fuse_side_by_side(fuse_plan *plan, const node *wanted, int wanted_count, const fuse_assign *assigns,
                       int assign_count);
/* One launch for two kernels of one phase each: the first programs run a, the others b. */
tile_kernel *fuse_join_kernels(arena *memory, const tile_kernel *a, const tile_kernel *b);

/* in_place.c */
/* The kind of the array parameter that argument `argument` is for. */
param_kind fuse_argument_kind(const tile_kernel *k, int argument);
/* No atomics, and no folds; `folds`: but reductions of what a program reads at once, and products, whose epilogue reads and
 * writes a tile of its own. */
bool fuse_is_pointwise(const tile_kernel *k, bool folds);
/* Makes the arrays of arguments `read` and `write` one inout parameter, if both have the same view and the kernel reads
 * exactly the elements that it writes, before it writes them. The argument that stays is of `write`'s node. */
bool fuse_in_place(arena *memory, fuse_kernel *kernel, int read, int write);
/* y = x for arrays of this rank; rank 1: in blocks, else one program a row. */
tile_kernel *fuse_copy_text(arena *memory, dtype elem, int rank, int block);

#endif
