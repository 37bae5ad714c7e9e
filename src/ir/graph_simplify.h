/*
 * Simplifying the tensor graph. In: a graph and the nodes that are wanted. Out: nodes of the same values with fewer and
 * smaller ops between them and the leaves; what nothing wants is simply not among their inputs any more.
 *
 * Every rule is a function in a table: it looks at one node whose inputs are simple already and gives an equal one, or
 * the node itself. A rule is exact (the result has the same bits wherever it is computed, NaN payloads aside) or
 * relaxed (the same number up to rounding, or up to the sign of zero); relaxed ones are for fused execution only.
 * SPDX-License-Identifier: MIT
 */
#ifndef QUERN_IR_GRAPH_SIMPLIFY_H
#define QUERN_IR_GRAPH_SIMPLIFY_H

#include "ir/graph.h"

typedef struct graph_rules {
    bool relaxed;        /* also rules that change bits */
    const char *without; /* leave out the rule of this name; NULL: none */
} graph_rules;

/* Replaces each root by an equal node of g. Never fails. */
void graph_simplify(graph *g, node *roots, int root_count, const graph_rules *rules);

int graph_rule_count(void);
const char *graph_rule_name(int rule);
bool graph_rule_relaxed(int rule); /* some of what it does needs `relaxed` */

#endif
