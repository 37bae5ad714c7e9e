/*
 * Gradients of movement: each op's gradient is the movement back. In: the op and what arrives. Out: graph code that is
 * index arithmetic again, and one sum where an element went to several places.
 * SPDX-License-Identifier: MIT
 */
#include "tensor/grad_rules.h"

/* A window's gradient is so many padded slices at most; more go by index. */
#define MOST_SLICES 32

void grad_of_reshape(grad_step *s)
{
    shape from = s->g->nodes[s->x[0]].shape;
    s->dx[0] = graph_reshape(s->g, s->d, &from);
}

void grad_of_permute(grad_step *s)
{
    int back[GRAPH_RANK];
    for (int k = 0; k < s->n.shape.rank; k++) back[s->n.attr.axes[k]] = k;
    s->dx[0] = graph_permute(s->g, s->d, back);
}

void grad_of_expand(grad_step *s)
{
    shape from = s->g->nodes[s->x[0]].shape;
    unsigned repeated = 0;
    for (int k = 0; k < from.rank; k++)
        if (from.extents[k] != s->n.shape.extents[k]) repeated |= 1u << k;
    s->dx[0] = grad_sum(s->g, s->d, repeated);
}

/* Zeros between and around what was taken; a backward step is turned round first. */
void grad_of_slice(grad_step *s)
{
    shape from = s->g->nodes[s->x[0]].shape;
    int64_t before[GRAPH_RANK] = {0}, step[GRAPH_RANK] = {0};
    node d = s->d;
    for (int k = 0; k < from.rank; k++) {
        int64_t count = s->n.shape.extents[k];
        before[k] = s->n.attr.start[k];
        step[k] = s->n.attr.step[k];
        if (step[k] > 0) continue;
        d = grad_flip(s->g, d, k);
        before[k] += (count - 1) * step[k];
        step[k] = -step[k];
    }
    s->dx[0] = graph_pad(s->g, d, before, step, &from, (number){0});
}

/* Element i went to before + i * step, if that is inside. */
void grad_of_pad(grad_step *s)
{
    shape from = s->g->nodes[s->x[0]].shape, kept = from;
    int64_t start[GRAPH_RANK] = {0}, step[GRAPH_RANK] = {0}, before[GRAPH_RANK] = {0};
    for (int k = 0; k < from.rank; k++) {
        int64_t first = s->n.attr.start[k], by = s->n.attr.step[k], extent = s->n.shape.extents[k];
        int64_t low = first < 0 ? (-first + by - 1) / by : 0;
        int64_t high = extent > first ? (extent - first + by - 1) / by : 0;
        kept.extents[k] = MAXIMUM(MINIMUM(high, from.extents[k]) - low, 0);
        before[k] = kept.extents[k] ? low : 0;
        start[k] = first + low * by;
        step[k] = by;
    }
    s->dx[0] = graph_pad(s->g, graph_slice(s->g, s->d, start, step, &kept), before, NULL, &from, (number){0});
}

void grad_of_concat(grad_step *s)
{
    int axis = s->n.attr.axis;
    int64_t start = 0;
    for (int i = 0; i < s->n.input_count; i++) {
        int64_t count = s->g->nodes[s->x[i]].shape.extents[axis];
        if (s->wants[i]) s->dx[i] = grad_part(s->g, s->d, axis, start, 1, count);
        start += count;
    }
}

/* ---- windows ---- */

/* The gradient with its last axis right after the axis of places. */
static node places_by_size(graph *g, node d, int axis)
{
    int rank = g->nodes[d].shape.rank, axes[GRAPH_RANK];
    for (int k = 0, next = 0; k < rank; k++) axes[k] = k == axis + 1 ? rank - 1 : next++;
    return graph_permute(g, d, axes);
}

static node without_axis(graph *g, node x, int axis)
{
    if (!x) return 0;
    shape s = g->nodes[x].shape;
    s.rank--;
    for (int k = axis; k < s.rank; k++) s.extents[k] = s.extents[k + 1];
    s.extents[s.rank] = 0;
    return graph_reshape(g, x, &s);
}

/* Windows that share no element: places and elements are one axis again. */
static node of_apart(grad_step *s, int64_t extent)
{
    graph *g = s->g;
    graph_attr a = s->n.attr;
    node d = grad_spread(g, places_by_size(g, s->d, a.axis), a.axis + 1, 0, a.dilation, a.stride);
    if (!d) return 0;
    shape joined = g->nodes[d].shape;
    int64_t reached = joined.extents[a.axis] * a.stride;
    joined.extents[a.axis] = 1;
    joined.extents[a.axis + 1] = reached;
    d = without_axis(g, graph_reshape(g, d, &joined), a.axis);
    if (reached > extent) return grad_part(g, d, a.axis, 0, 1, extent);
    return grad_spread(g, d, a.axis, 0, 1, extent);
}

/* One padded slice for each element of a window. */
static node of_elements(grad_step *s, int64_t extent)
{
    graph *g = s->g;
    graph_attr a = s->n.attr;
    int last = s->n.shape.rank - 1;
    node sum = 0;
    for (int64_t j = 0; j < a.size; j++) {
        node part = without_axis(g, grad_part(g, s->d, last, j, 1, 1), last);
        part = grad_spread(g, part, a.axis, j * a.dilation, a.stride, extent);
        sum = sum ? grad_add(g, sum, part) : part;
    }
    return sum;
}

/* One padded slice for each place. */
static node of_places(grad_step *s, int64_t extent)
{
    graph *g = s->g;
    graph_attr a = s->n.attr;
    node d = places_by_size(g, s->d, a.axis), sum = 0;
    for (int64_t p = 0; p < s->n.shape.extents[a.axis]; p++) {
        node part = without_axis(g, grad_part(g, d, a.axis, p, 1, 1), a.axis);
        part = grad_spread(g, part, a.axis, p * a.stride, a.dilation, extent);
        sum = sum ? grad_add(g, sum, part) : part;
    }
    return sum;
}

/* Long windows at many places: added where they were read. */
static node of_many(grad_step *s)
{
    graph *g = s->g;
    graph_attr a = s->n.attr;
    shape grid = {2, {s->n.shape.extents[a.axis], a.size}};
    node stride = graph_full(g, DT_I64, &grid, (number){.i = a.stride});
    node dilation = graph_full(g, DT_I64, &grid, (number){.i = a.dilation});
    node row = graph_binary(g, OP_MUL, grad_along(g, &grid, 0), stride);
    node index = graph_binary(g, OP_ADD, row, graph_binary(g, OP_MUL, grad_along(g, &grid, 1), dilation));
    return graph_take_add(g, grad_number(g, s->x[0], 0), index, places_by_size(g, s->d, a.axis), a.axis);
}

void grad_of_window(grad_step *s)
{
    graph_attr a = s->n.attr;
    int64_t extent = s->g->nodes[s->x[0]].shape.extents[a.axis];
    if ((a.size - 1) * a.dilation < a.stride)
        s->dx[0] = of_apart(s, extent);
    else if (a.size <= MOST_SLICES)
        s->dx[0] = of_elements(s, extent);
    else if (s->n.shape.extents[a.axis] <= MOST_SLICES)
        s->dx[0] = of_places(s, extent);
    else
        s->dx[0] = of_many(s);
}
