/*
 * Rules of graph_simplify: reductions and scans. In: a fold of an expand, of a fold, or along axes of one element. Out:
 * an equal node that folds less. Maxima, minima and truths do not care for order or repetition; sums of floats do, and
 * a sum of the one element -0 is 0, so those need `relaxed`. So does taking a sum of multiples as multiples of sums.
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

/* ---- sums of multiples ---- */

enum { MOST_PIECES = 4, DEEPEST_PIECE = 8, MOST_SEARCHED = 200 };

typedef struct linear { /* a sum of wide[i] * factor[i] */
    const rule_state *s;
    const graph_node *fold;
    node wide[MOST_PIECES], factor[MOST_PIECES]; /* factor: of the fold's shape; 0: one */
    bool negative[MOST_PIECES];
    int count;
} linear;

/* n as one number for each of the fold's results, in their shape; 0: it is not the same along the folded axes. */
static node uniform_of(const linear *l, node n)
{
    const graph_node *x = graph_get(l->s->g, n);
    if (x->code == GRAPH_FULL) {
        graph_node full = *x;
        return graph_full(l->s->g, full.elem, &l->fold->shape, full.attr.number);
    }
    if (x->code != GRAPH_EXPAND) return 0;
    node from = x->inputs[0];
    for (int k = 0; k < x->shape.rank; k++)
        if (l->fold->attr.axis_set >> k & 1 && graph_get(l->s->g, from)->shape.extents[k] != 1) return 0;
    return graph_expand(l->s->g, from, &l->fold->shape);
}

static node times(const linear *l, node a, node b)
{
    return a ? graph_binary(l->s->g, OP_MUL, a, b) : b;
}

static bool gather_pieces(linear *l, node n, node factor, bool negative, int depth)
{
    const graph_node x = *graph_get(l->s->g, n); /* new nodes may move the table */
    bool map = x.code == GRAPH_MAP && depth < DEEPEST_PIECE;
    /* A number added to each element stays with them: what they have in common may be all that is there. */
    bool sum = map && (x.attr.map == OP_ADD || x.attr.map == OP_SUB);
    if (sum && !uniform_of(l, x.inputs[0]) && !uniform_of(l, x.inputs[1]))
        return gather_pieces(l, x.inputs[0], factor, negative, depth + 1) &&
               gather_pieces(l, x.inputs[1], factor, negative != (x.attr.map == OP_SUB), depth + 1);
    if (map && x.attr.map == OP_NEG) return gather_pieces(l, x.inputs[0], factor, !negative, depth + 1);
    for (int i = 0; map && x.attr.map == OP_MUL && i < 2; i++) {
        node u = uniform_of(l, x.inputs[i]);
        if (u) return gather_pieces(l, x.inputs[1 - i], times(l, factor, u), negative, depth + 1);
    }
    if (l->count == MOST_PIECES || uniform_of(l, n)) return false;
    l->wide[l->count] = n;
    l->factor[l->count] = factor;
    l->negative[l->count++] = negative;
    return true;
}

/* Does n wait for a fold like this one? */
static bool waits_for_fold(const linear *l, node n, int *searched)
{
    const graph_node *x = graph_get(l->s->g, n);
    if (++*searched > MOST_SEARCHED) return false;
    if (x->code == GRAPH_REDUCE && x->attr.axis_set == l->fold->attr.axis_set &&
        shape_same(&rule_input(l->s, x, 0)->shape, &rule_input(l->s, l->fold, 0)->shape))
        return true;
    for (int i = 0; i < x->input_count; i++)
        if (waits_for_fold(l, x->inputs[i], searched)) return true;
    return false;
}

/* sum(u * a + v * b), where u waits for another sum over the same axes: u * sum(a) + v * sum(b), of which the sums wait
 * for nothing. Other sums stay as they are. */
node rule_reduce_multiples(const rule_state *s, node n)
{
    const graph_node at = *graph_get(s->g, n);
    if (!s->relaxed || at.attr.fold != FOLD_SUM || (at.elem != DT_F32 && at.elem != DT_F64)) return n;
    linear l = {.s = s, .fold = &at};
    if (!gather_pieces(&l, at.inputs[0], 0, false, 0)) return n;
    bool waits = false;
    for (int i = 0, searched = 0; i < l.count && !waits; i++)
        waits = l.factor[i] && waits_for_fold(&l, l.factor[i], &searched);
    if (!waits) return n;
    node sum = 0;
    for (int i = 0; i < l.count; i++) {
        node part = times(&l, l.factor[i], graph_reduce(s->g, FOLD_SUM, l.wide[i], at.attr.axis_set));
        if (l.negative[i] && !sum) part = graph_unary(s->g, OP_NEG, part);
        sum = sum ? graph_binary(s->g, l.negative[i] ? OP_SUB : OP_ADD, sum, part) : part;
    }
    return sum;
}

node rule_scan_one(const rule_state *s, node n)
{
    const graph_node *at = graph_get(s->g, n);
    if (at->shape.extents[at->attr.axis] != 1) return n;
    if (at->attr.fold == FOLD_SUM && dtype_is_float(at->elem) && !s->relaxed) return n;
    return at->inputs[0];
}
