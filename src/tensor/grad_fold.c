/*
 * Gradients of reductions, scans and products of matrices. In: the op and what arrives. Out: reductions over the same
 * rows, pointwise code around them, products with the operands the other way round.
 * Products of elements divide only by what is not zero, so a zero among the factors gives no NaN.
 * SPDX-License-Identifier: MIT
 */
#include "tensor/grad_rules.h"

/* 1 where the condition holds, in a type that counts exactly. */
static node counted(graph *g, node condition)
{
    return graph_convert(g, condition, DT_F32);
}

/* ---- reductions ---- */

/* The same windows of the same value, which others need not keep for it. */
static node cut_again(graph *g, node n, int depth)
{
    enum { DEEPEST = 16 };
    graph_code code = g->nodes[n].code;
    if ((code != GRAPH_WINDOW && code != GRAPH_PAD) || depth == DEEPEST) return graph_same(g, GRAPH_AGAIN, n, 0);
    node from = cut_again(g, g->nodes[n].inputs[0], depth + 1);
    return from ? graph_again(g, n, &from) : 0;
}

/* What arrives is shared by all the elements that reach the extreme. Elements of windows are compared twice, for their
 * number and for their share: what lies in windows is larger than what they are cut from, and is not kept. */
static node of_extreme(grad_step *s)
{
    graph *g = s->g;
    shape full = g->nodes[s->x[0]].shape;
    node extreme = graph_expand(g, s->y, &full), reaches = graph_binary(g, OP_EQ, s->x[0], extreme), again = reaches;
    node count = graph_convert(g, graph_reduce(g, FOLD_SUM, counted(g, reaches), s->n.attr.axis_set), s->n.elem);
    if (g->nodes[s->x[0]].code == GRAPH_WINDOW) again = graph_binary(g, OP_EQ, cut_again(g, s->x[0], 0), extreme);
    return grad_where(g, again, grad_expand(g, grad_div(g, s->d, count), &full));
}

/* The product of the others: y / x without zeros; with one zero it alone has a gradient. */
static node of_product(grad_step *s)
{
    graph *g = s->g;
    node x = s->x[0];
    unsigned set = s->n.attr.axis_set;
    shape full = g->nodes[x].shape;
    node zero = graph_binary(g, OP_EQ, x, grad_number(g, x, 0)), one = grad_number(g, x, 1);
    node factors = graph_select(g, zero, one, x);
    node product = graph_reduce(g, FOLD_PROD, factors, set), zeros = graph_reduce(g, FOLD_SUM, counted(g, zero), set);
    if (!product || !zeros) return 0;
    node none = graph_binary(g, OP_EQ, zeros, grad_number(g, zeros, 0));
    node single = graph_binary(g, OP_EQ, zeros, grad_number(g, zeros, 1));
    node arriving = grad_mul(g, s->d, product);
    node to_zero = graph_expand(g, grad_where(g, single, arriving), &full);
    node to_rest = grad_div(g, graph_expand(g, grad_where(g, none, arriving), &full), factors);
    return graph_select(g, zero, to_zero, to_rest);
}

void grad_of_reduce(grad_step *s)
{
    switch (s->n.attr.fold) {
    case FOLD_SUM: {
        shape full = s->g->nodes[s->x[0]].shape;
        s->dx[0] = grad_expand(s->g, s->d, &full);
        break;
    }
    case FOLD_PROD: s->dx[0] = of_product(s); break;
    case FOLD_MAX:
    case FOLD_MIN: s->dx[0] = of_extreme(s); break;
    default: CHECK(!"the result of any, all, argmax and argmin is no float"); break;
    }
}

/* ---- scans ---- */

static node sum_to_the_end(graph *g, node x, int axis)
{
    return grad_flip(g, graph_scan(g, FOLD_SUM, grad_flip(g, x, axis), axis), axis);
}

/* Before the first zero y / x; at it the products with 1 in its place; behind it nothing reaches. */
static node of_running_product(grad_step *s)
{
    graph *g = s->g;
    node x = s->x[0];
    int axis = s->n.attr.axis;
    node zero = graph_binary(g, OP_EQ, x, grad_number(g, x, 0)), one = grad_number(g, x, 1);
    node zeros = graph_scan(g, FOLD_SUM, counted(g, zero), axis);
    if (!zeros) return 0;
    node before = graph_binary(g, OP_EQ, zeros, grad_number(g, zeros, 0));
    node first = graph_binary(g, OP_AND, zero, graph_binary(g, OP_EQ, zeros, grad_number(g, zeros, 1)));
    node others = graph_scan(g, FOLD_PROD, graph_select(g, first, one, x), axis);
    node at_first = sum_to_the_end(g, grad_mul(g, s->d, others), axis);
    node at_rest = grad_div(g, sum_to_the_end(g, grad_mul(g, s->d, s->y), axis), graph_select(g, zero, one, x));
    return graph_select(g, before, at_rest, grad_where(g, first, at_first));
}

/* What arrives at an element goes to the last position that set the extreme. */
static node of_running_extreme(grad_step *s)
{
    graph *g = s->g;
    int axis = s->n.attr.axis;
    shape full = s->n.shape;
    node place = grad_along(g, &full, axis), start = graph_full(g, DT_I64, &full, (number){0});
    node set_here = graph_select(g, graph_binary(g, OP_EQ, s->x[0], s->y), place, start);
    return graph_gather_add(g, grad_number(g, s->x[0], 0), graph_scan(g, FOLD_MAX, set_here, axis), s->d, axis);
}

void grad_of_scan(grad_step *s)
{
    switch (s->n.attr.fold) {
    case FOLD_SUM: s->dx[0] = sum_to_the_end(s->g, s->d, s->n.attr.axis); break;
    case FOLD_PROD: s->dx[0] = of_running_product(s); break;
    case FOLD_MAX:
    case FOLD_MIN: s->dx[0] = of_running_extreme(s); break;
    default: graph_fail(s->g, "grad", "a scan by %s has no derivative", fold_names[s->n.attr.fold]); break;
    }
}

/* ---- products of matrices ---- */

void grad_of_dot(grad_step *s)
{
    graph *g = s->g;
    dtype elem = g->nodes[s->x[0]].elem;
    product_way way = (product_way)s->n.attr.index;
    node d = graph_convert(g, s->d, elem);
    if (s->wants[0]) s->dx[0] = graph_dot(g, d, grad_swap(g, s->x[1]), elem, way);
    if (s->wants[1]) s->dx[1] = graph_dot(g, grad_swap(g, s->x[0]), d, elem, way);
}
