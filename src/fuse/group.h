/*
 * Groups: which ops become one kernel. Views are followed wherever they are; a group names the ops that it computes.
 *
 * A builder turns a group into a kernel. With out NULL it only answers whether it could: grouping joins what a builder
 * accepts. in_memory says, by node, what the kernel reads from memory: leaves, and every op outside the group.
 * SPDX-License-Identifier: MIT
 */
#ifndef QUERN_FUSE_GROUP_H
#define QUERN_FUSE_GROUP_H

#include "fuse/lower.h"

typedef enum group_kind {
    GROUP_LOOP,    /* pointwise and reductions: loop.c */
    GROUP_DOT,     /* a product with what hangs on it: dot.c */
    GROUP_SCAN,    /* alone: order.c */
    GROUP_ARGSORT, /* alone */
    GROUP_SCATTER, /* alone */
    GROUP_CALL     /* a module's kernel */
} group_kind;

typedef struct group {
    group_kind kind;
    node anchor; /* DOT, SCAN, ...; 0 of a loop */
    node *nodes; /* computed here, oldest first */
    int node_count;
    node *writes; /* those that are left in memory, oldest first */
    int write_count;
} group;

typedef struct builder {
    arena *memory; /* of the kernel; when only asked: scratch */
    graph *g;
    const bool *in_memory;
    const fuse_leaf *leaves;
    const fuse_options *options;
    bool early;      /* rows find each other first: folds over all rows join them later, where nothing minds */
    const char *why; /* out: what the answer no is for */
    fuse_cost cost;  /* out: of a loop, what the answer yes will take */
} builder;

/* locals.c: the ops of a group, the views between them, and what they read. */
#define KERNEL_MOST_NODES 512 /* of one kernel, with what is followed: bounds the depth of a trace, and the text */

typedef struct locals {
    node *nodes; /* oldest first */
    int count;
} locals;
/* False: there are more than KERNEL_MOST_NODES. */
bool locals_gather(const builder *b, const group *grp, locals *out);
int locals_find(const locals *l, node n); /* its place; -1: it is none of them */

/* False: b->why says why not (or *error, if our own rules are broken). */
typedef bool group_build(builder *b, const group *grp, fuse_kernel *out, qn_error *error);
group_build loop_build, dot_build;

/* An operand of a product is computed where it is multiplied if what it is made of is smaller by so much. */
enum { SPREAD_SMALLER = 16 };

#endif
