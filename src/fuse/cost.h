/*
 * What kernels will take, estimated before they exist (fuse_cost: fuse.h).
 * SPDX-License-Identifier: MIT
 */
#ifndef QUERN_FUSE_COST_H
#define QUERN_FUSE_COST_H

#include "fuse/loop.h"

fuse_cost cost_of_loop(const loop *p);
/* A product of so many operations, with what it moves and what is computed on its results. */
fuse_cost cost_of_product(const graph *g, const fuse_options *options, const node *nodes, int count, double bytes);
/* Bytes that are copied, or computed by simple ops, in so many launches. */
fuse_cost cost_of_bytes(const fuse_options *options, double bytes, double ops, int launches);

#endif
