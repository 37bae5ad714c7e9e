/*
 * Rules of graph_simplify: movement. In: a movement of a movement. Out: one movement, or the two in the order in which
 * fewer elements are moved. All of them are exact: no arithmetic is done.
 * SPDX-License-Identifier: MIT
 */
#include "ir/graph_simplify_rules.h"

#include <math.h>
#include <string.h>

node rule_permute_permute(const rule_state *s, node n)
{
    const graph_node *at = graph_get(s->g, n), *x = rule_input(s, at, 0);
    if (x->code != GRAPH_PERMUTE) return n;
    int axes[GRAPH_RANK];
    for (int k = 0; k < at->shape.rank; k++) axes[k] = x->attr.axes[at->attr.axes[k]];
    return graph_permute(s->g, x->inputs[0], axes);
}

/* If the axes that are not 1 keep their order, no element moves. */
node rule_permute_units(const rule_state *s, node n)
{
    const graph_node *at = graph_get(s->g, n);
    int last = -1;
    for (int k = 0; k < at->shape.rank; k++) {
        if (at->shape.extents[k] == 1) continue;
        if (at->attr.axes[k] < last) return n;
        last = at->attr.axes[k];
    }
    return graph_reshape(s->g, at->inputs[0], &at->shape);
}

node rule_permute_expand(const rule_state *s, node n)
{
    const graph_node *at = graph_get(s->g, n), *x = rule_input(s, at, 0);
    if (x->code != GRAPH_EXPAND) return n;
    return graph_expand(s->g, graph_permute(s->g, x->inputs[0], at->attr.axes), &at->shape);
}

node rule_expand_expand(const rule_state *s, node n)
{
    const graph_node *at = graph_get(s->g, n), *x = rule_input(s, at, 0);
    return x->code == GRAPH_EXPAND ? graph_expand(s->g, x->inputs[0], &at->shape) : n;
}

node rule_slice_slice(const rule_state *s, node n)
{
    const graph_node *at = graph_get(s->g, n), *x = rule_input(s, at, 0);
    if (x->code != GRAPH_SLICE) return n;
    int64_t start[GRAPH_RANK], step[GRAPH_RANK];
    for (int k = 0; k < at->shape.rank; k++) {
        start[k] = x->attr.start[k] + at->attr.start[k] * x->attr.step[k];
        step[k] = at->attr.step[k] * x->attr.step[k];
    }
    return graph_slice(s->g, x->inputs[0], start, step, &at->shape);
}

node rule_slice_expand(const rule_state *s, node n)
{
    const graph_node *at = graph_get(s->g, n), *x = rule_input(s, at, 0);
    if (x->code != GRAPH_EXPAND) return n;
    const shape *small = &rule_input(s, x, 0)->shape;
    shape cut = at->shape;
    int64_t start[GRAPH_RANK], step[GRAPH_RANK];
    for (int k = 0; k < cut.rank; k++) {
        bool repeats = small->extents[k] == 1;
        if (repeats) cut.extents[k] = 1;
        start[k] = repeats ? 0 : at->attr.start[k];
        step[k] = repeats ? 1 : at->attr.step[k];
    }
    return graph_expand(s->g, graph_slice(s->g, x->inputs[0], start, step, &cut), &at->shape);
}

/* A slice that lies inside what was padded, or wholly outside it on some axis. Pads with gaps are left alone. */
node rule_slice_pad(const rule_state *s, node n)
{
    const graph_node *at = graph_get(s->g, n), *x = rule_input(s, at, 0);
    if (x->code != GRAPH_PAD || !shape_count(&at->shape)) return n;
    const shape *from = &rule_input(s, x, 0)->shape;
    int64_t start[GRAPH_RANK];
    bool inside = true, outside = false;
    for (int k = 0; k < at->shape.rank; k++) {
        if (x->attr.step[k] != 1) return n;
        int64_t first = at->attr.start[k] - x->attr.start[k];
        int64_t last = first + (at->shape.extents[k] - 1) * at->attr.step[k];
        int64_t low = MINIMUM(first, last), high = MAXIMUM(first, last);
        inside &= low >= 0 && high < from->extents[k];
        outside |= high < 0 || low >= from->extents[k];
        start[k] = first;
    }
    if (outside) return graph_full(s->g, at->elem, &at->shape, x->attr.number);
    return inside ? graph_slice(s->g, x->inputs[0], start, at->attr.step, &at->shape) : n;
}

node rule_slice_concat(const rule_state *s, node n)
{
    const graph_node *at = graph_get(s->g, n), *x = rule_input(s, at, 0);
    if (x->code != GRAPH_CONCAT || !shape_count(&at->shape)) return n;
    int axis = x->attr.axis;
    int64_t first = at->attr.start[axis], last = first + (at->shape.extents[axis] - 1) * at->attr.step[axis], begin = 0;
    for (int i = 0; i < x->input_count; i++) {
        int64_t end = begin + rule_input(s, x, i)->shape.extents[axis];
        if (MINIMUM(first, last) >= begin && MAXIMUM(first, last) < end) {
            int64_t start[GRAPH_RANK];
            memcpy(start, at->attr.start, sizeof(start));
            start[axis] -= begin;
            return graph_slice(s->g, x->inputs[i], start, at->attr.step, &at->shape);
        }
        begin = end;
    }
    return n;
}

/* A pad that adds nothing is a slice. */
node rule_pad_cut(const rule_state *s, node n)
{
    const graph_node *at = graph_get(s->g, n);
    const shape *from = &rule_input(s, at, 0)->shape;
    int64_t start[GRAPH_RANK];
    for (int k = 0; k < at->shape.rank; k++) {
        start[k] = -at->attr.start[k];
        if (at->attr.step[k] != 1 || start[k] < 0 || start[k] + at->shape.extents[k] > from->extents[k]) return n;
    }
    return graph_slice(s->g, at->inputs[0], start, at->attr.step, &at->shape);
}

node rule_pad_pad(const rule_state *s, node n)
{
    const graph_node *at = graph_get(s->g, n), *x = rule_input(s, at, 0);
    if (x->code != GRAPH_PAD || memcmp(&at->attr.number, &x->attr.number, sizeof(number)) != 0) return n;
    int64_t start[GRAPH_RANK];
    for (int k = 0; k < at->shape.rank; k++) {
        /* The outer one must cut nothing that the inner one made, and have no gaps. */
        if (at->attr.step[k] != 1 || at->attr.start[k] < 0 ||
            at->attr.start[k] + x->shape.extents[k] > at->shape.extents[k])
            return n;
        /* What the inner one cut at its end would come back. */
        int64_t inner = rule_input(s, x, 0)->shape.extents[k];
        int64_t end = x->attr.start[k] + (inner - 1) * x->attr.step[k] + 1;
        if (inner && (x->attr.start[k] < 0 || end > x->shape.extents[k])) return n;
        start[k] = at->attr.start[k] + x->attr.start[k];
    }
    return graph_pad(s->g, x->inputs[0], start, x->attr.step, &at->shape, at->attr.number);
}

/* Windows of one element: a slice with one more axis. */
node rule_window_one(const rule_state *s, node n)
{
    const graph_node *at = graph_get(s->g, n);
    if (at->attr.size != 1) return n;
    shape cut = rule_input(s, at, 0)->shape;
    int64_t start[GRAPH_RANK] = {0}, step[GRAPH_RANK];
    for (int k = 0; k < cut.rank; k++) step[k] = 1;
    step[at->attr.axis] = at->attr.stride;
    cut.extents[at->attr.axis] = at->shape.extents[at->attr.axis];
    return graph_reshape(s->g, graph_slice(s->g, at->inputs[0], start, step, &cut), &at->shape);
}

/* Inputs that are joins along the same axis are taken apart; empty inputs go. */
node rule_concat_flat(const rule_state *s, node n)
{
    const graph_node *at = graph_get(s->g, n);
    int axis = at->attr.axis, count = 0;
    bool changes = false;
    for (int i = 0; i < at->input_count; i++) {
        const graph_node *x = rule_input(s, at, i);
        bool joins = x->code == GRAPH_CONCAT && x->attr.axis == axis;
        changes |= joins || !x->shape.extents[axis];
        count += joins ? x->input_count : 1;
    }
    if (!changes || !at->shape.extents[axis]) return n;
    node *inputs = ARENA_ARRAY(s->g->memory, node, count);
    count = 0;
    for (int i = 0; i < at->input_count; i++) {
        const graph_node *x = rule_input(s, at, i);
        if (x->code == GRAPH_CONCAT && x->attr.axis == axis)
            for (int k = 0; k < x->input_count; k++) inputs[count++] = x->inputs[k];
        else if (x->shape.extents[axis])
            inputs[count++] = at->inputs[i];
    }
    return graph_concat(s->g, inputs, count, axis);
}

/* Whether b begins where a ends along the axis, and both are cut alike from the same tensor. A tensor that is no slice
 * is all of itself. *step: of both, 0 if a has one element. */
typedef struct cut {
    node from;
    int64_t start[GRAPH_RANK], step[GRAPH_RANK];
    int64_t count; /* along the axis */
} cut;

static cut cut_of(const rule_state *s, node n, int axis)
{
    const graph_node *at = graph_get(s->g, n);
    cut c = {.from = n, .count = at->shape.extents[axis]};
    for (int k = 0; k < at->shape.rank; k++) c.step[k] = 1;
    if (at->code != GRAPH_SLICE) return c;
    c.from = at->inputs[0];
    memcpy(c.start, at->attr.start, sizeof(c.start));
    memcpy(c.step, at->attr.step, sizeof(c.step));
    return c;
}

/* Adds b to the end of a; false if it does not go on there. */
static bool cut_join(cut *a, const cut *b, int rank, int axis)
{
    if (a->from != b->from) return false;
    for (int k = 0; k < rank; k++)
        if (k != axis && (a->start[k] != b->start[k] || a->step[k] != b->step[k])) return false;
    int64_t step = a->count > 1 ? a->step[axis] : b->start[axis] - a->start[axis];
    if (!step || (b->count > 1 && b->step[axis] != step)) return false;
    if (b->start[axis] != a->start[axis] + a->count * step) return false;
    a->step[axis] = step;
    a->count += b->count;
    return true;
}

node rule_concat_slices(const rule_state *s, node n)
{
    const graph_node *at = graph_get(s->g, n);
    int axis = at->attr.axis, rank = at->shape.rank, count = 0;
    node *inputs = ARENA_ARRAY(s->g->memory, node, at->input_count);
    for (int i = 0; i < at->input_count;) {
        cut c = cut_of(s, at->inputs[i], axis);
        int next = i + 1;
        for (; next < at->input_count; next++) {
            cut other = cut_of(s, at->inputs[next], axis);
            if (!cut_join(&c, &other, rank, axis)) break;
        }
        shape joined = at->shape;
        joined.extents[axis] = c.count;
        inputs[count++] = next == i + 1 ? at->inputs[i] : graph_slice(s->g, c.from, c.start, c.step, &joined);
        i = next;
    }
    return count < at->input_count ? graph_concat(s->g, inputs, count, axis) : n;
}
