/*
 * Brackets behind a tensor: `[]` a new unit axis, `[:]` a whole axis, `[a : n : s]` a part, `[k]` one place, `[t]` the
 * places that an integer tensor names. In: the tree of an access. Out: a view, or a view with one `take`.
 *
 * Tensors have no validity: what sticks out is an error (E509). Several index tensors pair up: their axes of x are
 * brought together, merged into one, and taken by one combined index.
 * SPDX-License-Identifier: MIT
 */
#include "tensor/function_trace.h"

#include <string.h>

typedef struct bracket_list {
    operand indices[GRAPH_RANK]; /* by axis of x: an index tensor, or none */
    int64_t start[GRAPH_RANK], step[GRAPH_RANK];
    shape part;
    bool dropped[GRAPH_RANK];    /* a place that the host knows */
    int axis_of[2 * GRAPH_RANK]; /* by result axis: axis of x, or -1: new */
    int result_count, index_count, first_index;
} bracket_list;

static bool read_slice(tracer *t, const ast *bracket, int axis, const shape *s, bracket_list *out)
{
    int64_t extent = s->extents[axis], start = 0, length = extent, step = 1;
    if (bracket->left) {
        operand a = trace_expression(t, bracket->left), n = trace_expression(t, bracket->right);
        if (!is_number(t, &a, bracket->left->at, &start) || !is_number(t, &n, bracket->right->at, &length))
            return false;
        length = MAXIMUM(length, 0);
        if (bracket->third) {
            operand by = trace_expression(t, bracket->third);
            if (!is_number(t, &by, bracket->third->at, &step)) return false;
        }
        if (!step) {
            fault_step(t->d, bracket->third->at, true);
            return false;
        }
        int64_t last;
        bool fits = !__builtin_mul_overflow(length - 1, step, &last) && !__builtin_add_overflow(last, start, &last);
        if (length && (!fits || start < 0 || start >= extent || last < 0 || last >= extent)) {
            diagnose(t->d, E509, bracket->left->from,
                     "tensors have no validity: slice what is there, or `pad` the tensor first",
                     "this slice takes elements %lld to %lld of axis %d, which has %lld", (long long)start,
                     (long long)last, axis, (long long)extent);
            return false;
        }
    }
    out->start[axis] = start;
    out->step[axis] = step;
    out->part.extents[axis] = length;
    return true;
}

static bool read_index(tracer *t, const ast *bracket, int axis, const shape *s, bracket_list *out)
{
    operand i = trace_expression(t, bracket->left);
    if (!is_plain(t, &i, bracket->left->at)) return false;
    typed index = operand_typed(t, &i);
    if (!typing_index(t->d, t->memory, &index, bracket->left->at)) return false;
    out->start[axis] = 0;
    out->step[axis] = 1;
    out->part.extents[axis] = s->extents[axis];
    if (i.kind == OPERAND_TENSOR) {
        if (!out->index_count++) out->first_index = axis;
        out->indices[axis] = i;
        return true;
    }
    int64_t at = i.constant.number.i;
    if (at < 0 || at >= s->extents[axis]) {
        diagnose(t->d, E509, bracket->left->from, "indices count from 0; there is no wrap-around",
                 "index %lld of axis %d, which has %lld", (long long)at, axis, (long long)s->extents[axis]);
        return false;
    }
    out->start[axis] = at;
    out->part.extents[axis] = 1;
    out->dropped[axis] = true;
    return true;
}

static const ast whole_axis = {.kind = AST_SUBSCRIPT, .is_slice = true};

static bool read_brackets(tracer *t, const ast *x, const shape *s, bracket_list *out)
{
    int axis = 0, given = 0, spreads = 0;
    for (int i = 0; i < x->list.count; i++) {
        const ast *bracket = x->list.items[i];
        spreads += bracket->is_spread;
        given += (bracket->is_slice || bracket->left) && !bracket->is_spread;
    }
    if (spreads > 1) {
        diagnose(t->d, E104, x->list.items[0]->at, "one `[...]` stands for all axes without a bracket",
                 "an access with %d `[...]`", spreads);
        return false;
    }
    if (!s->rank && (given || !spreads)) {
        fault_scalar_brackets(t->d, x->list.items[0]->at);
        return false;
    }
    if (spreads ? given > s->rank : given != s->rank) {
        fault_brackets(t->d, x->list.items[0]->at, NULL, s->rank, given);
        return false;
    }
    out->part.rank = s->rank;
    for (int i = 0; i < x->list.count; i++) {
        const ast *bracket = x->list.items[i];
        bool fresh = !bracket->is_slice && !bracket->left;
        if (bracket->is_spread) {
            for (int k = 0; k < s->rank - given; k++, axis++) {
                if (!read_slice(t, &whole_axis, axis, s, out)) return false;
                out->axis_of[out->result_count++] = axis;
            }
            continue;
        }
        if (out->result_count >= GRAPH_RANK) {
            fault_tensor_axes(t->d, bracket->at, GRAPH_RANK);
            return false;
        }
        out->axis_of[out->result_count++] = fresh ? -1 : axis;
        if (fresh) continue;
        bool good = bracket->is_slice ? read_slice(t, bracket, axis, s, out) : read_index(t, bracket, axis, s, out);
        if (!good) return false;
        if (out->dropped[axis]) out->result_count--;
        axis++;
    }
    return true;
}

/* The index tensors as one: positions in the merged axis. */
static operand combined_index(tracer *t, const bracket_list *a, const shape *s, place at)
{
    operand all = operand_error();
    for (int k = 0; k < s->rank; k++) {
        if (a->indices[k].kind != OPERAND_TENSOR) continue;
        operand i = operand_cast(t, &a->indices[k], DT_I64, at);
        if (is_bad(&i)) return i;
        if (is_bad(&all)) {
            all = i;
            continue;
        }
        operand extent = operand_of_constant(constant_int(s->extents[k]));
        all = trace_binary(t, "*", &all, &extent, at);
        if (!is_bad(&all)) all = trace_binary(t, "+", &all, &i, at);
        if (is_bad(&all)) return all;
    }
    return all;
}

/* x with the axes that are taken brought together behind `first` and merged; *order: by new axis, the old one. */
static node merge_taken(tracer *t, node x, const bracket_list *a, int *order)
{
    const shape from = graph_get(t->g, x)->shape;
    int count = 0;
    shape merged = {0};
    for (int k = 0; k < from.rank; k++) {
        bool taken = a->indices[k].kind == OPERAND_TENSOR;
        if (taken && k != a->first_index) continue;
        order[count++] = k;
        merged.extents[merged.rank++] = from.extents[k];
        for (int other = k + 1; taken && other < from.rank; other++) {
            if (a->indices[other].kind != OPERAND_TENSOR) continue;
            order[count++] = other;
            merged.extents[merged.rank - 1] *= from.extents[other];
        }
    }
    x = graph_permute(t->g, x, order);
    return x ? graph_reshape(t->g, x, &merged) : 0;
}

operand trace_access(tracer *t, const ast *x)
{
    operand base = trace_expression(t, x->left);
    if (!is_plain(t, &base, x->left->at)) return operand_error();
    const shape s = *operand_shape(t, &base);
    bracket_list a = {0};
    if (!read_brackets(t, x, &s, &a)) return operand_error();
    site_set(t, x->at, "slice");
    node n = graph_slice(t->g, base.tensor, a.start, a.step, &a.part);
    operand index = {0};
    shape places = {0};
    int merged_axis = 0;
    if (n && a.index_count) {
        int order[GRAPH_RANK];
        index = combined_index(t, &a, &s, x->at);
        if (is_bad(&index)) return index;
        site_set(t, x->at, "take");
        n = merge_taken(t, n, &a, order);
        for (int k = 0; k < a.first_index; k++) merged_axis += a.indices[k].kind != OPERAND_TENSOR;
        places = *operand_shape(t, &index);
        if (n) n = graph_take(t->g, n, index.tensor, merged_axis);
    }
    if (!n) return operand_of_node(t, 0, 0, x->at);
    /* Axes as they are written: dropped ones go, new ones come, the index's stand where its first bracket is. */
    shape result = {0};
    unsigned units = 0;
    for (int i = 0; i < a.result_count; i++) {
        int axis = a.axis_of[i];
        bool taken = axis >= 0 && a.indices[axis].kind == OPERAND_TENSOR;
        if (taken && axis != a.first_index) continue;
        int count = taken ? places.rank : 1;
        if (result.rank + count > GRAPH_RANK) {
            fault_tensor_axes(t->d, x->at, GRAPH_RANK);
            return operand_error();
        }
        for (int k = 0; k < count; k++) {
            bool unit =
                taken ? index.units >> k & 1 : axis < 0 || (base.units >> axis & 1 && a.part.extents[axis] == 1);
            units |= (unsigned)unit << result.rank;
            result.extents[result.rank++] = taken ? places.extents[k] : axis < 0 ? 1 : a.part.extents[axis];
        }
    }
    return operand_of_node(t, graph_reshape(t->g, n, &result), units, x->at);
}
