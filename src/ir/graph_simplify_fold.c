/*
 * Rules of graph_simplify: reductions and scans. In: a fold of an expand, of a fold, or along axes of one element. Out:
 * an equal node that folds less. Maxima, minima and truths do not care for order or repetition; sums of floats do, and
 * a sum of the one element -0 is 0, so those need `relaxed`.
 * SPDX-License-Identifier: MIT
 */
#include "ir/graph_simplify_rules.h"

/* The fold of some copies of x, in any order, is x, or at least any order gives the same. */
static bool free_order(const graph_node *n)
{
    return n->attr.fold != FOLD_ARGMAX && n->attr.fold != FOLD_ARGMIN &&
           (!dtype_is_float(n->elem) || n->attr.fold == FOLD_MAX || n->attr.fold == FOLD_MIN);
}

node rule_reduce_units(const rule_state *s, node n)
{
    const graph_node *at = graph_get(s->g, n);
    const shape *from = &rule_input(s, at, 0)->shape;
    unsigned left = 0;
    for (int k = 0; k < from->rank; k++)
        if (at->attr.axis_set >> k & 1 && from->extents[k] != 1) left |= 1u << k;
    if (left == at->attr.axis_set) return n;
    if (at->attr.fold == FOLD_ARGMAX || at->attr.fold == FOLD_ARGMIN)
        return graph_full_double(s->g, at->elem, &at->shape, 0);
    if (!left && at->attr.fold == FOLD_SUM && dtype_is_float(at->elem) && !s->relaxed) return n;
    return graph_reduce(s->g, at->attr.fold, at->inputs[0], left);
}

/* Axes that repeat one element: of maxima they go, of sums they are a factor. */
node rule_reduce_expand(const rule_state *s, node n)
{
    const graph_node *at = graph_get(s->g, n), *x = rule_input(s, at, 0);
    bool sum = at->attr.fold == FOLD_SUM;
    if (x->code != GRAPH_EXPAND || (sum ? !s->relaxed && dtype_is_float(at->elem) : !free_order(at))) return n;
    if (at->attr.fold == FOLD_PROD || !shape_count(&x->shape)) return n;
    shape small = x->shape;
    const shape *from = &rule_input(s, x, 0)->shape;
    int64_t times = 1;
    for (int k = 0; k < small.rank; k++) {
        if (!(at->attr.axis_set >> k & 1) || from->extents[k] == small.extents[k]) continue;
        times *= small.extents[k];
        small.extents[k] = 1;
    }
    if (times == 1) return n;
    node once = graph_reduce(s->g, at->attr.fold, graph_expand(s->g, x->inputs[0], &small), at->attr.axis_set);
    if (!sum) return once;
    return graph_binary(s->g, OP_MUL, once, graph_full_double(s->g, at->elem, &at->shape, (double)times));
}

node rule_reduce_reduce(const rule_state *s, node n)
{
    const graph_node *at = graph_get(s->g, n), *x = rule_input(s, at, 0);
    if (x->code != GRAPH_REDUCE || x->attr.fold != at->attr.fold || !rule_single(s, at->inputs[0])) return n;
    bool sums = at->attr.fold == FOLD_SUM || at->attr.fold == FOLD_PROD;
    if (!free_order(at) && !(sums && s->relaxed)) return n;
    return graph_reduce(s->g, at->attr.fold, x->inputs[0], at->attr.axis_set | x->attr.axis_set);
}

node rule_scan_one(const rule_state *s, node n)
{
    const graph_node *at = graph_get(s->g, n);
    if (at->shape.extents[at->attr.axis] != 1) return n;
    if (at->attr.fold == FOLD_SUM && dtype_is_float(at->elem) && !s->relaxed) return n;
    return at->inputs[0];
}
