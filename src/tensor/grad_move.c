/*
 * Gradients of movement: each op's gradient is the movement back. In: the op and what arrives. Out: graph code that is
 * index arithmetic again, and one sum where an element went to several places.
 * SPDX-License-Identifier: MIT
 */
#include "tensor/grad_rules.h"

#include <string.h>

/* A window's gradient is so many padded slices at most; more go by index. */
#define MOST_SLICES 32
#define MOST_MULTIPLIED 7 /* elements of a window of a product of depth 1 that are added up one by one */

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

/* ---- windows of what a product made ---- */

#define MOST_RESIDUES 8

/* Parts that take turns along an axis. */
typedef struct interleaving {
    node parts[MOST_RESIDUES];
    int count, axis;
    int64_t extent;
} interleaving;

static node interleave(graph *g, const interleaving *in)
{
    node apart[MOST_RESIDUES];
    for (int i = 0; i < in->count; i++) {
        if (!in->parts[i]) return 0;
        shape s = g->nodes[in->parts[i]].shape;
        for (int k = s.rank++; k > in->axis + 1; k--) s.extents[k] = s.extents[k - 1];
        s.extents[in->axis + 1] = 1;
        apart[i] = graph_reshape(g, in->parts[i], &s);
    }
    node all = graph_concat(g, apart, in->count, in->axis + 1);
    if (!all) return 0;
    shape s = g->nodes[all].shape;
    s.extents[in->axis + 1] *= s.extents[in->axis];
    s.extents[in->axis] = 1;
    all = without_axis(g, graph_reshape(g, all, &s), in->axis);
    return all ? grad_part(g, all, in->axis, 0, 1, in->extent) : 0;
}

/* Parts whose interleaving has shape `from`, as parts of its reshaped form; false: the axis does not stay one. */
static bool reshape_parts(graph *g, interleaving *in, const shape *from, const shape *to)
{
    int64_t inner = 1, below = 1;
    int axis = to->rank - 1;
    for (int k = in->axis + 1; k < from->rank; k++) inner *= from->extents[k];
    for (; axis >= 0 && (below < inner || to->extents[axis] == 1); axis--) below *= to->extents[axis];
    if (axis < 0 || below != inner || to->extents[axis] != from->extents[in->axis]) return false;
    for (int i = 0; i < in->count; i++) {
        shape part = *to;
        part.extents[axis] = g->nodes[in->parts[i]].shape.extents[in->axis];
        in->parts[i] = graph_reshape(g, in->parts[i], &part);
    }
    in->axis = axis;
    return true;
}

/* What interleave made, perhaps permuted and reshaped, apart again. */
static bool find_interleaving(graph *g, node n, interleaving *out)
{
    const graph_node x = g->nodes[n];
    if (x.code == GRAPH_SLICE) {
        shape from = g->nodes[x.inputs[0]].shape;
        if (!find_interleaving(g, x.inputs[0], out)) return false;
        for (int k = 0; k < from.rank; k++) {
            bool whole = from.extents[k] == x.shape.extents[k] && x.attr.step[k] == 1;
            if (!whole && (k != out->axis || x.attr.start[k] || x.attr.step[k] != 1)) return false;
        }
        out->extent = x.shape.extents[out->axis];
        return true;
    }
    if (x.code == GRAPH_PERMUTE) {
        if (!find_interleaving(g, x.inputs[0], out)) return false;
        int axis = 0;
        while (x.attr.axes[axis] != out->axis) axis++;
        for (int i = 0; i < out->count; i++) out->parts[i] = graph_permute(g, out->parts[i], x.attr.axes);
        out->axis = axis;
        return true;
    }
    if (x.code != GRAPH_RESHAPE) return false;
    const graph_node all = g->nodes[x.inputs[0]];
    if (all.code != GRAPH_CONCAT) {
        return find_interleaving(g, x.inputs[0], out) && reshape_parts(g, out, &all.shape, &x.shape);
    }
    *out = (interleaving){.axis = all.attr.axis - 1, .count = all.input_count};
    if (all.input_count > MOST_RESIDUES || out->axis < 0) return false;
    node inputs[MOST_RESIDUES];
    memcpy(inputs, all.inputs, sizeof(node) * (size_t)out->count);
    for (int i = 0; i < out->count; i++) {
        if (g->nodes[inputs[i]].shape.extents[out->axis + 1] != 1) return false;
        out->parts[i] = without_axis(g, inputs[i], out->axis + 1);
    }
    shape joined = all.shape;
    joined.extents[out->axis] *= out->count;
    joined.rank--;
    for (int k = out->axis + 1; k < joined.rank; k++) joined.extents[k] = all.shape.extents[k + 1];
    joined.extents[joined.rank] = 0;
    out->extent = joined.extents[out->axis];
    return reshape_parts(g, out, &joined, &x.shape);
}

/* A product whose elements were only moved, and added up by such sums as of_product makes: its depth; 0: it is none. */
static int64_t moved_product(const graph *g, node n)
{
    for (;;) {
        const graph_node *x = &g->nodes[n];
        if (x->code == GRAPH_DOT) return graph_dot_depth(g, x);
        bool sum = x->code == GRAPH_REDUCE && x->attr.fold == FOLD_SUM;
        if (graph_ops[x->code].class != GRAPH_CLASS_MOVE && !sum) return 0;
        n = x->inputs[0];
    }
}

/* d at places `first` + q - t * apart of the elements t of `count`, which are the last axis, last first: the diagonals of
 * places and elements. A diagonal is a window over both as one axis. */
static node diagonals(graph *g, node d, int axis, int64_t first, int64_t apart, int64_t count, int64_t places)
{
    int last = g->nodes[d].shape.rank - 1;
    d = places_by_size(g, grad_flip(g, d, last), axis);
    d = grad_spread(g, d, axis, (count - 1) * apart - first, 1, places + (count - 1) * apart);
    if (!d) return 0;
    shape joined = g->nodes[d].shape;
    joined.extents[axis + 1] *= joined.extents[axis];
    joined.extents[axis] = 1;
    d = without_axis(g, graph_reshape(g, d, &joined), axis);
    return graph_window(g, d, axis, count, count, apart * count + 1);
}

/* ... added up: one sum, which a product takes into its own depth. */
static node of_diagonal(graph *g, node d, int axis, int64_t first, int64_t apart, int64_t count, int64_t places)
{
    int last = g->nodes[d].shape.rank - 1;
    d = diagonals(g, d, axis, first, apart, count, places);
    if (!d) return 0;
    return without_axis(g, count == 1 ? d : grad_sum(g, d, 1u << last), last);
}

/* The diagonals themselves: element i is p * stride + j * dilation for one p and one j alone, its remainder by the stride. So
 * each is brought back to where it was read, and nothing is added up. */
static bool is_skewed(const graph_attr *a)
{
    return a->size <= a->stride && a->dilation % a->stride == 1;
}

static node of_skewed(grad_step *s, int64_t extent)
{
    graph *g = s->g;
    graph_attr a = s->n.attr;
    int last = s->n.shape.rank - 1;
    node d = grad_spread(g, s->d, last, 0, 1, a.stride);
    if (!d) return 0;
    int64_t places = (extent + a.stride - 1) / a.stride;
    d = diagonals(g, d, a.axis, 0, a.dilation / a.stride, a.stride, places);
    if (!d) return 0;
    d = places_by_size(g, grad_flip(g, d, last), a.axis);
    shape joined = g->nodes[d].shape;
    joined.extents[a.axis + 1] *= joined.extents[a.axis];
    joined.extents[a.axis] = 1;
    return grad_part(g, without_axis(g, graph_reshape(g, d, &joined), a.axis), a.axis, 0, 1, extent);
}

/* Without dilation element i = q * stride + r is read by window elements t * stride + r at places q - t: one sum for all
 * remainders r, which stand beside the places and are one axis with them again. */
static node of_strides(graph *g, node d, int axis, int64_t stride, int64_t extent)
{
    int last = g->nodes[d].shape.rank - 1;
    int64_t turns = (g->nodes[d].shape.extents[last] + stride - 1) / stride, places = (extent + stride - 1) / stride;
    d = places_by_size(g, grad_spread(g, d, last, 0, 1, turns * stride), axis); /* .. P, turns * stride, .. */
    if (!d) return 0;
    shape apart = g->nodes[d].shape;
    for (int k = apart.rank++; k > axis + 1; k--) apart.extents[k] = apart.extents[k - 1];
    apart.extents[axis + 1] = turns;
    apart.extents[axis + 2] = stride;
    d = grad_flip(g, graph_reshape(g, d, &apart), axis + 1);
    d = grad_spread(g, d, axis, turns - 1, 1, places + turns - 1);
    if (!d) return 0;
    shape joined = g->nodes[d].shape;
    joined.extents[axis + 1] *= joined.extents[axis];
    joined.extents[axis] = 1;
    d = without_axis(g, graph_reshape(g, d, &joined), axis);
    if (turns > 1) {
        last = g->nodes[d].shape.rank;
        d = graph_window(g, d, axis, turns, turns, turns + 1);
        if (d) d = without_axis(g, grad_sum(g, d, 1u << last), last);
    }
    if (!d) return 0;
    joined = g->nodes[d].shape;
    joined.extents[axis + 1] *= joined.extents[axis];
    joined.extents[axis] = 1;
    return grad_part(g, without_axis(g, graph_reshape(g, d, &joined), axis), axis, 0, 1, extent);
}

/* ... of as many axes as there can be too: the remainders need one more, so two neighbours of the others are one meanwhile.
 * 0: there are no such neighbours. */
static node of_strides_of_any(graph *g, node d, int axis, int64_t stride, int64_t extent)
{
    shape from = g->nodes[d].shape;
    if (from.rank < GRAPH_RANK) return of_strides(g, d, axis, stride, extent);
    int at = from.rank - 3; /* and the one after it; the last axis has the windows' elements */
    while (at >= 0 && (at == axis || at + 1 == axis)) at--;
    if (at < 0) return 0;
    shape joined = from;
    joined.extents[at + 1] *= joined.extents[at];
    joined.extents[at] = 1;
    d = without_axis(g, graph_reshape(g, d, &joined), at);
    d = of_strides(g, d, axis - (axis > at), stride, extent);
    if (!d) return 0;
    shape to = from;
    to.extents[axis] = g->nodes[d].shape.extents[axis - (axis > at)];
    to.extents[--to.rank] = 0;
    return graph_reshape(g, d, &to);
}

/* What n is the beginning of: ends that were cut off its axes, before it was permuted and reshaped, are there again. A
 * product whose axes are whole can be cut by the strides of windows. */
static node uncut(graph *g, node n)
{
    const graph_node x = g->nodes[n];
    if (x.code == GRAPH_SLICE) {
        for (int k = 0; k < x.shape.rank; k++)
            if (x.attr.start[k] || x.attr.step[k] != 1) return n;
        return uncut(g, x.inputs[0]);
    }
    if (x.code != GRAPH_PERMUTE && x.code != GRAPH_RESHAPE) return n;
    node input = uncut(g, x.inputs[0]);
    if (input == x.inputs[0]) return n;
    if (x.code == GRAPH_PERMUTE) return graph_permute(g, input, x.attr.axes);
    shape from = g->nodes[x.inputs[0]].shape, more = g->nodes[input].shape, to = x.shape;
    int64_t inner = 1;
    for (int k = from.rank - 1; k >= 0; inner *= from.extents[k--]) {
        if (from.extents[k] == more.extents[k]) continue;
        int64_t below = 1;
        int axis = to.rank - 1;
        for (; axis >= 0 && (below < inner || x.shape.extents[axis] == 1); axis--) below *= x.shape.extents[axis];
        if (axis < 0 || below != inner || x.shape.extents[axis] != from.extents[k]) return n;
        to.extents[axis] = more.extents[k];
    }
    return graph_reshape(g, input, &to);
}

/* Element i is read at places p and window elements j with p * stride + j * dilation = i: those i with one remainder by
 * the stride share their j, so each remainder is a sum of its own, without zeros in between. */
static node of_product(graph *g, node d, const graph_attr *a, int64_t extent)
{
    interleaving in;
    if (find_interleaving(g, d, &in) && in.axis != a->axis) {
        for (int i = 0; i < in.count; i++) in.parts[i] = of_product(g, in.parts[i], a, extent);
        return interleave(g, &in);
    }
    int last = g->nodes[d].shape.rank - 1;
    node whole = uncut(g, d);
    shape cut = g->nodes[d].shape, from = g->nodes[whole].shape;
    if (whole != d && from.extents[a->axis] == cut.extents[a->axis] && from.extents[last] == cut.extents[last]) {
        whole = of_product(g, whole, a, extent);
        if (!whole) return 0;
        int64_t start[GRAPH_RANK] = {0}, step[GRAPH_RANK];
        shape kept = g->nodes[whole].shape;
        for (int k = 0; k < kept.rank; k++) {
            step[k] = 1;
            if (k != a->axis) kept.extents[k] = cut.extents[k];
        }
        return graph_slice(g, whole, start, step, &kept);
    }
    if (a->stride > 1 && a->dilation == 1) {
        node all = of_strides_of_any(g, d, a->axis, a->stride, extent);
        if (all) return all;
    }
    int64_t places = (extent + a->stride - 1) / a->stride;
    in = (interleaving){.count = (int)a->stride, .axis = a->axis, .extent = extent};
    for (int64_t rest = 0; rest < a->stride; rest++) {
        int64_t first = -1, step = 0, count = 0;
        for (int64_t j = 0; j < a->size; j++) {
            if ((rest - j * a->dilation) % a->stride) continue;
            if (count == 1) step = j - first;
            if (!count++) first = j;
        }
        if (!count) {
            shape none = g->nodes[d].shape;
            none.rank--;
            none.extents[last] = 0;
            none.extents[a->axis] = places;
            in.parts[rest] = graph_full(g, g->nodes[d].elem, &none, (number){0});
            continue;
        }
        node part = grad_part(g, d, last, first, MAXIMUM(step, 1), count);
        in.parts[rest] = of_diagonal(g, part, a->axis, (rest - first * a->dilation) / a->stride,
                                     step * a->dilation / a->stride, count, places);
    }
    return a->stride == 1 ? in.parts[0] : interleave(g, &in);
}

void grad_of_window(grad_step *s)
{
    graph_attr a = s->n.attr;
    int64_t extent = s->g->nodes[s->x[0]].shape.extents[a.axis];
    interleaving in;
    bool parts = find_interleaving(s->g, s->d, &in);
    /* One of depth 1 (windows of each channel by itself) is a multiplication: its elements are not kept side by side. */
    int64_t depth = moved_product(s->g, parts ? in.parts[0] : s->d);
    if ((a.size - 1) * a.dilation < a.stride) /* nothing is added up */
        s->dx[0] = of_apart(s, extent);
    else if (is_skewed(&a))
        s->dx[0] = of_skewed(s, extent);
    else if (a.stride <= MOST_RESIDUES && depth > (a.size <= MOST_MULTIPLIED ? 1 : 0))
        s->dx[0] = of_product(s->g, s->d, &a, extent);
    else if (a.size <= MOST_SLICES)
        s->dx[0] = of_elements(s, extent);
    else if (s->n.shape.extents[a.axis] <= MOST_SLICES)
        s->dx[0] = of_places(s, extent);
    else
        s->dx[0] = of_many(s);
}
