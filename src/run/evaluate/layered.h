/*
 * Layered drawings: what stands in which rank is given; in which order, and where, is found. SPDX-License-Identifier: MIT
 */
#ifndef QUERN_RUN_EVALUATE_LAYERED_H
#define QUERN_RUN_EVALUATE_LAYERED_H

#include "base/base.h"

typedef struct layered_node {
    int rank, order; /* its place in its rank */
    double width, x; /* of its left edge */
    bool passes;     /* a line goes through here, nothing stands here */
    int links;       /* 1 + the last link downwards; 0: none */
} layered_node;

/* From a node to one of the next rank; *_at: from the node's left edge. */
typedef struct layered_link {
    int value; /* lines of one value may lie on each other */
    int from, to;
    double from_at, to_at;
    int before; /* 1 + the link of the same node before it */
} layered_link;

typedef struct layered {
    arena *memory;
    layered_node *nodes;
    layered_link *links;
    int node_count, node_room, link_count, link_room, rank_count;
    /* made by layered_order: links of each node, upwards and downwards, and the nodes of each rank in order */
    int *above, *above_start, *below, *below_start, **ranks, *in_rank;
} layered;

int layered_add(layered *l, int rank, double width);
/* A value goes down from one node to another, through every rank between them; readers of one value share the way. */
void layered_join(layered *l, int value, int from, double from_at, int to, double to_at);
/* Puts every rank into an order with few crossings. The nodes' `order` is where the search begins; a first or last
   rank that is kept stays as it is. */
void layered_order(layered *l, bool keep_first, bool keep_last);
/* Only takes the nodes of some ranks to where they cross least, after layered_order. */
void layered_sift(layered *l, int first, int last);
/* The orders as they are, to be taken again. */
int *layered_keep(const layered *l);
void layered_take(layered *l, const int *kept);
int64_t layered_crossings(const layered *l);
/* More than anyone follows by eye, or more than there is time for: ranks are sorted, crossings are not counted. */
bool layered_is_large(const layered *l);
/* Finds every x, with a gap between neighbours; the least is 0. Out: the width of the whole. */
double layered_place(layered *l, double gap);

#endif
