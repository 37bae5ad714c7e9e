/*
 * The meaning of the tensor graph: every op computed element by element, obviously and slowly. What the devices give is
 * compared with this.
 *
 * In: a graph, the nodes that are wanted, and where the leaves lie. Out: the elements of the wanted nodes, row-major.
 * Arithmetic is done in double. Rounded: after each op the result is rounded to the node's element type, as eager
 * execution does; sums and products of reductions and dots are rounded once, at the end. Exact: floats are never
 * rounded, whatever their type. Integers always wrap at their width.
 * SPDX-License-Identifier: MIT
 */
#ifndef QUERN_IR_GRAPH_INTERP_H
#define QUERN_IR_GRAPH_INTERP_H

#include "ir/graph.h"

/* The value of a node: floats in f, the rest in i. */
typedef struct graph_tensor {
    dtype elem;
    shape shape;
    int64_t count;
    number *elements; /* row-major */
} graph_tensor;

typedef struct graph_memory {
    /* The address of element 0 of a leaf's storage, or NULL if there is none. NULL: the storage is the address. */
    const void *(*find)(void *context, const graph_node *leaf);
    /* Runs a KERNEL: outputs have their elements allocated. NULL: such a graph is refused. */
    qn_status (*call)(void *context, const graph_node *kernel, const graph_tensor *inputs, graph_tensor *outputs,
                      qn_error *error);
    void *context;
} graph_memory;

/* results: one for each wanted node; their elements live in `arena`. where may be NULL: storages are addresses.
 * Fails with QN_FAILED where an index lies outside, with QN_BAD_CALL where a leaf has no memory. */
qn_status graph_interpret(const graph *g, const node *wanted, int wanted_count, const graph_memory *where, bool exact,
                          arena *memory, graph_tensor *results, qn_error *error);

/* Row-major elements of the tensor's type into memory and back. */
void graph_tensor_write(const graph_tensor *t, void *to);
graph_tensor graph_tensor_read(dtype elem, const shape *s, const void *from, arena *memory);

#endif
