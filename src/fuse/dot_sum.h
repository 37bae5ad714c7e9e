/*
 * Products that are added up become one (dot_sum.c).
 * SPDX-License-Identifier: MIT
 */
#ifndef QUERN_FUSE_DOT_SUM_H
#define QUERN_FUSE_DOT_SUM_H

#include "fuse/fuse.h"

typedef struct sum_search {
    graph *g;
    const fuse_options *options;
    const int *uses;  /* by node, of those that are reached */
    const bool *kept; /* by node: it is a result or given */
    const node *now;  /* by node: what it was prepared into */
} sum_search;

/* n, an addition of the graph as it was, with the two products below it as one; 0: they are not. */
node fuse_sum_prepare(const sum_search *s, node n);

#endif
