/*
 * A rule of graph_simplify: what is cut from moved and added up windows is not computed. In: a slice of a chain of movements and folds
 * in which windows are. Out: the same chain over less, down to the pads that made what is cut away.
 *
 * The gradient of a padded convolution, and a transposed one with padding, add up diagonals of a padded product and cut the padding
 * off at the end: with the cut below the pads fewer elements are multiplied, and nothing is moved once more behind the sums. The sums
 * that are left are those that were there, in the same order.
 * SPDX-License-Identifier: MIT
 */
#include "ir/graph_simplify_rules.h"

/* What is left of a node, by axis. */
typedef struct cut_box {
    int64_t start[GRAPH_RANK], count[GRAPH_RANK];
} cut_box;

static cut_box whole_of(const shape *s)
{
    cut_box b = {{0}, {0}};
    for (int k = 0; k < s->rank; k++) b.count[k] = s->extents[k];
    return b;
}

static bool is_whole(const cut_box *b, const shape *s, int axis)
{
    return !b->start[axis] && b->count[axis] == s->extents[axis];
}

static shape shape_of(const cut_box *b, int rank)
{
    shape s = {.rank = rank};
    for (int k = 0; k < rank; k++) s.extents[k] = b->count[k];
    return s;
}

/* What is told on the way down. */
typedef struct cut_way {
    bool windows; /* places of windows were cut */
    int depth;
} cut_way;

enum { DEEPEST = 64 }; /* steps between a slice and the pads that made what it cuts away; a chain may be of any length */

static node cut(const rule_state *s, node n, const cut_box *b, cut_way *way);

/* Axes of both sides of a reshape that hold the same elements: the first of each, and behind the last. */
typedef struct axis_group {
    int from[2], to[2];
} axis_group;

static axis_group next_group(const shape *from, const shape *to, int i, int k)
{
    axis_group g = {{i, i}, {k, k}};
    int64_t left = 1, right = 1;
    if (i < from->rank) left = from->extents[g.from[1]++];
    if (k < to->rank) right = to->extents[g.to[1]++];
    while (left != right) {
        if (left < right && g.from[1] < from->rank)
            left *= from->extents[g.from[1]++];
        else if (g.to[1] < to->rank)
            right *= to->extents[g.to[1]++];
        else
            break;
    }
    return g;
}

/* The one axis of a range that is longer than 1, or the first of several if only it is cut; -1: another one is cut. */
static int cut_axis(const shape *s, const cut_box *b, const int *range, int64_t *inner)
{
    int found = -1;
    *inner = 1;
    for (int k = range[0]; k < range[1]; k++) {
        if (s->extents[k] == 1) continue;
        if (found >= 0 && b && !is_whole(b, s, k)) return -1;
        if (found >= 0) *inner *= s->extents[k];
        if (found < 0) found = k;
    }
    return found;
}

static bool through_reshape(const shape *from, const shape *to, const cut_box *b, cut_box *out)
{
    *out = whole_of(from);
    for (int i = 0, k = 0; i < from->rank || k < to->rank;) {
        axis_group g = next_group(from, to, i, k);
        bool whole = true;
        for (int axis = g.to[0]; axis < g.to[1]; axis++) whole &= is_whole(b, to, axis);
        i = g.from[1];
        k = g.to[1];
        if (whole) continue;
        int64_t below, above;
        int source = cut_axis(from, NULL, g.from, &below), target = cut_axis(to, b, g.to, &above);
        if (source < 0 || target < 0) return false;
        int64_t start = b->start[target] * above, count = b->count[target] * above;
        if (start % below || count % below) return false;
        out->start[source] = start / below;
        out->count[source] = count / below;
    }
    return true;
}

static node cut_window(const rule_state *s, const graph_node *x, const cut_box *b, cut_way *way)
{
    const shape *from = &rule_input(s, x, 0)->shape;
    int axis = x->attr.axis, last = x->shape.rank - 1;
    cut_box inner = whole_of(from);
    if (!is_whole(b, &x->shape, last)) return 0;
    for (int k = 0; k < last; k++) {
        inner.start[k] = b->start[k];
        inner.count[k] = b->count[k];
    }
    if (!is_whole(b, &x->shape, axis)) { /* else what windows left over stays where it is */
        inner.start[axis] = b->start[axis] * x->attr.stride;
        inner.count[axis] = (b->count[axis] - 1) * x->attr.stride + (x->attr.size - 1) * x->attr.dilation + 1;
        way->windows = true;
    } else {
        inner.start[axis] = 0;
        inner.count[axis] = from->extents[axis];
    }
    node below = cut(s, x->inputs[0], &inner, way);
    return below ? graph_window(s->g, below, axis, x->attr.size, x->attr.stride, x->attr.dilation) : 0;
}

/* Axes that are padded lose padding; others are cut further down. */
static node cut_pad(const rule_state *s, const graph_node *x, const cut_box *b, cut_way *way)
{
    const shape *from = &rule_input(s, x, 0)->shape;
    cut_box inner = whole_of(from);
    int64_t start[GRAPH_RANK];
    for (int k = 0; k < x->shape.rank; k++) {
        bool padded = x->attr.start[k] || x->attr.step[k] != 1 || x->shape.extents[k] != from->extents[k];
        start[k] = x->attr.start[k];
        if (is_whole(b, &x->shape, k)) continue;
        if (!padded) {
            inner.start[k] = b->start[k];
            inner.count[k] = b->count[k];
            continue;
        }
        start[k] -= b->start[k];
        if (x->attr.step[k] != 1 || start[k] < 0 || start[k] + from->extents[k] > b->count[k]) return 0;
    }
    node below = cut(s, x->inputs[0], &inner, way);
    const shape to = shape_of(b, x->shape.rank);
    return below ? graph_pad(s->g, below, start, x->attr.step, &to, x->attr.number) : 0;
}

static node cut_slice(const rule_state *s, const graph_node *x, const cut_box *b, cut_way *way)
{
    cut_box inner = whole_of(&rule_input(s, x, 0)->shape);
    int64_t start[GRAPH_RANK];
    for (int k = 0; k < x->shape.rank; k++) {
        start[k] = x->attr.start[k];
        if (is_whole(b, &x->shape, k)) continue;
        if (x->attr.step[k] != 1) return 0;
        inner.start[k] = x->attr.start[k] + b->start[k];
        inner.count[k] = b->count[k];
        start[k] = 0;
    }
    node below = cut(s, x->inputs[0], &inner, way);
    const shape to = shape_of(b, x->shape.rank);
    return below ? graph_slice(s->g, below, start, x->attr.step, &to) : 0;
}

/* A node equal to this part of n; 0: it would have to be cut out of what is computed whole. */
static node cut(const rule_state *s, node n, const cut_box *b, cut_way *way)
{
    const graph_node x = *graph_get(s->g, n); /* building moves nodes */
    bool whole = true;
    for (int k = 0; k < x.shape.rank; k++) whole &= is_whole(b, &x.shape, k);
    if (whole) return n;
    if (!rule_single(s, n) || ++way->depth > DEEPEST) return 0;
    cut_box inner;
    node below;
    switch (x.code) {
    case GRAPH_WINDOW: return cut_window(s, &x, b, way);
    case GRAPH_PAD: return cut_pad(s, &x, b, way);
    case GRAPH_SLICE: return cut_slice(s, &x, b, way);
    case GRAPH_RESHAPE:
        if (!through_reshape(&rule_input(s, &x, 0)->shape, &x.shape, b, &inner)) return 0;
        below = cut(s, x.inputs[0], &inner, way);
        const shape to = shape_of(b, x.shape.rank);
        return below ? graph_reshape(s->g, below, &to) : 0;
    case GRAPH_PERMUTE:
        for (int k = 0; k < x.shape.rank; k++) {
            inner.start[x.attr.axes[k]] = b->start[k];
            inner.count[x.attr.axes[k]] = b->count[k];
        }
        below = cut(s, x.inputs[0], &inner, way);
        return below ? graph_permute(s->g, below, x.attr.axes) : 0;
    case GRAPH_REDUCE:
        inner = whole_of(&rule_input(s, &x, 0)->shape);
        for (int k = 0; k < x.shape.rank; k++) {
            if (x.attr.axis_set >> k & 1) continue;
            inner.start[k] = b->start[k];
            inner.count[k] = b->count[k];
        }
        below = cut(s, x.inputs[0], &inner, way);
        return below ? graph_reduce(s->g, x.attr.fold, below, x.attr.axis_set) : 0;
    default: return 0;
    }
}

node rule_slice_windows(const rule_state *s, node n)
{
    const graph_node at = *graph_get(s->g, n);
    cut_box b;
    cut_way way = {0};
    if (!shape_count(&at.shape)) return n;
    for (int k = 0; k < at.shape.rank; k++) {
        if (at.attr.step[k] != 1) return n;
        b.start[k] = at.attr.start[k];
        b.count[k] = at.shape.extents[k];
    }
    node made = cut(s, at.inputs[0], &b, &way);
    return made && way.windows ? made : n;
}
