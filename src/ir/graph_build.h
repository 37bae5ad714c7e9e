/*
 * What the files that build the tensor graph share: graph.c (nodes, arithmetic, movement), graph_fold.c (the rest).
 * SPDX-License-Identifier: MIT
 */
#ifndef QUERN_IR_GRAPH_BUILD_H
#define QUERN_IR_GRAPH_BUILD_H

#include "ir/graph.h"

node graph_intern(graph *g, graph_node *n);      /* an earlier equal node, or a new one; the inputs are copied */
bool graph_given(const node *inputs, int count); /* no input is 0; else the error is recorded already */
graph_node graph_like(const graph *g, graph_code code, node x, const node *inputs, int count);
const char *graph_shape_words(graph *g, const shape *s);
bool graph_shape_fits(graph *g, const char *op, const shape *s); /* false: the error is recorded */
bool graph_axis_fits(graph *g, const char *op, node x, int axis);
#define WORDS(n) graph_shape_words(g, &g->nodes[n].shape)

#endif
