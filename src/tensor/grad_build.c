/*
 * Building blocks of the gradient's rules. In: nodes. Out: nodes, with the constants that seeds and counts bring folded
 * on the way: a gradient of 1 leaves no multiplication, an expanded constant is a constant.
 * SPDX-License-Identifier: MIT
 */
#include "tensor/grad_rules.h"

bool grad_constant(const graph *g, node n, double *value)
{
    for (; n; n = g->nodes[n].inputs[0]) {
        graph_code code = g->nodes[n].code;
        if (code == GRAPH_FULL) break;
        if (code != GRAPH_EXPAND && code != GRAPH_RESHAPE && code != GRAPH_PERMUTE) return false;
    }
    if (!n || !dtype_is_float(g->nodes[n].elem)) return false;
    *value = g->nodes[n].attr.number.f;
    return true;
}

bool grad_zero(const graph *g, node n)
{
    double value;
    return grad_constant(g, n, &value) && value == 0;
}

node grad_number(graph *g, node like, double value)
{
    if (!like) return 0;
    shape s = g->nodes[like].shape;
    return graph_full_double(g, g->nodes[like].elem, &s, value);
}

node grad_add(graph *g, node a, node b)
{
    double u, v;
    bool left = grad_constant(g, a, &u), right = grad_constant(g, b, &v);
    if (left && right) return grad_number(g, a, u + v);
    if (left && u == 0) return b;
    if (right && v == 0) return a;
    return graph_binary(g, OP_ADD, a, b);
}

node grad_sub(graph *g, node a, node b)
{
    double u, v;
    bool left = grad_constant(g, a, &u), right = grad_constant(g, b, &v);
    if (left && right) return grad_number(g, a, u - v);
    if (left && u == 0) return grad_neg(g, b);
    if (right && v == 0) return a;
    return graph_binary(g, OP_SUB, a, b);
}

node grad_mul(graph *g, node a, node b)
{
    double u, v;
    bool left = grad_constant(g, a, &u), right = grad_constant(g, b, &v);
    if (left && right) return grad_number(g, a, u * v);
    if (left && u == 1) return b;
    if (right && v == 1) return a;
    if (left && u == -1) return grad_neg(g, b);
    if (right && v == -1) return grad_neg(g, a);
    return graph_binary(g, OP_MUL, a, b);
}

node grad_div(graph *g, node a, node b)
{
    double u, v;
    bool left = grad_constant(g, a, &u), right = grad_constant(g, b, &v);
    if (left && right) return grad_number(g, a, u / v);
    if (right && v == 1) return a;
    return graph_binary(g, OP_DIV, a, b);
}

node grad_neg(graph *g, node a)
{
    double u;
    if (grad_constant(g, a, &u)) return grad_number(g, a, -u);
    if (a && g->nodes[a].code == GRAPH_MAP && g->nodes[a].attr.map == OP_NEG) return g->nodes[a].inputs[0];
    return graph_unary(g, OP_NEG, a);
}

node grad_scale(graph *g, node a, double factor)
{
    return grad_mul(g, a, grad_number(g, a, factor));
}

node grad_plus(graph *g, node a, double term)
{
    return grad_add(g, a, grad_number(g, a, term));
}

node grad_where(graph *g, node condition, node d)
{
    return graph_select(g, condition, d, grad_number(g, d, 0));
}

node grad_where_not(graph *g, node condition, node d)
{
    return graph_select(g, condition, grad_number(g, d, 0), d);
}

node grad_sum(graph *g, node x, unsigned axis_set)
{
    double value;
    if (!grad_constant(g, x, &value)) return graph_reduce(g, FOLD_SUM, x, axis_set);
    shape s = g->nodes[x].shape;
    for (int k = 0; k < s.rank; k++) {
        if (!(axis_set >> k & 1)) continue;
        value *= (double)s.extents[k];
        s.extents[k] = 1;
    }
    return graph_full_double(g, g->nodes[x].elem, &s, value);
}

node grad_expand(graph *g, node x, const shape *s)
{
    double value;
    if (grad_constant(g, x, &value)) return graph_full_double(g, g->nodes[x].elem, s, value);
    return graph_expand(g, x, s);
}

node grad_everywhere(graph *g, node scalar, const shape *s)
{
    if (!scalar) return 0;
    shape ones = {.rank = s->rank};
    for (int k = 0; k < s->rank; k++) ones.extents[k] = 1;
    return graph_expand(g, graph_reshape(g, scalar, &ones), s);
}

/* Places `count` of them along one axis, of the others all: a part of x, or x spread over more. */
static node along(graph *g, node x, int axis, int64_t start, int64_t step, int64_t count, bool spread)
{
    if (!x) return 0;
    shape s = g->nodes[x].shape;
    int64_t starts[GRAPH_RANK] = {0}, steps[GRAPH_RANK];
    for (int k = 0; k < s.rank; k++) steps[k] = 1;
    starts[axis] = start;
    steps[axis] = step;
    s.extents[axis] = count;
    return spread ? graph_pad(g, x, starts, steps, &s, (number){0}) : graph_slice(g, x, starts, steps, &s);
}

node grad_part(graph *g, node x, int axis, int64_t start, int64_t step, int64_t count)
{
    return along(g, x, axis, start, step, count, false);
}

node grad_spread(graph *g, node x, int axis, int64_t before, int64_t step, int64_t extent)
{
    return along(g, x, axis, before, step, extent, true);
}

node grad_flip(graph *g, node x, int axis)
{
    if (!x) return 0;
    int64_t extent = g->nodes[x].shape.extents[axis];
    return extent < 2 ? x : grad_part(g, x, axis, extent - 1, -1, extent);
}

node grad_along(graph *g, const shape *s, int axis)
{
    shape line = {.rank = s->rank};
    for (int k = 0; k < s->rank; k++) line.extents[k] = k == axis ? s->extents[k] : 1;
    return graph_expand(g, graph_reshape(g, graph_iota(g, s->extents[axis]), &line), s);
}

node grad_swap(graph *g, node x)
{
    if (!x) return 0;
    int rank = g->nodes[x].shape.rank, axes[GRAPH_RANK];
    for (int k = 0; k < rank; k++) axes[k] = k;
    axes[rank - 2] = rank - 1;
    axes[rank - 1] = rank - 2;
    /* A transpose of a transpose is what was there before. */
    const graph_node *n = &g->nodes[x];
    if (n->code == GRAPH_PERMUTE) {
        bool undone = true;
        for (int k = 0; k < rank; k++) undone &= n->attr.axes[k] == axes[k];
        if (undone) return n->inputs[0];
    }
    return graph_permute(g, x, axes);
}
