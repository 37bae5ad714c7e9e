/*
 * Facts of tensors: type, shape, and the strides that PyTorch would show. In: a handle. Out: numbers; nothing is
 * computed and no error is recorded (a handle that is not good has rank 0 and no elements).
 * Movement of a tensor is a view of its memory, a reshape where strides can tell it; everything else has memory of its
 * own, row-major.
 * SPDX-License-Identifier: MIT
 */
#include "tensor/tape.h"

#include <string.h>

static const graph_node *fact(qn_tensor t)
{
    const tape_slot *s = tape_slot_of(t);
    return s ? graph_get(t.tape->graph, s->node) : NULL;
}

bool qn_tensor_valid(qn_tensor t)
{
    return tape_slot_of(t) != NULL;
}

qn_dtype qn_tensor_dtype(qn_tensor t)
{
    const graph_node *n = fact(t);
    return n ? (qn_dtype)n->elem : QN_F32;
}

qn_shape qn_tensor_shape(qn_tensor t)
{
    const graph_node *n = fact(t);
    qn_shape s = {0};
    if (!n) return s;
    s.rank = n->shape.rank;
    for (int k = 0; k < s.rank; k++) s.extents[k] = n->shape.extents[k];
    return s;
}

int qn_tensor_rank(qn_tensor t)
{
    return qn_tensor_shape(t).rank;
}

int64_t qn_tensor_extent(qn_tensor t, int axis)
{
    qn_shape s = qn_tensor_shape(t);
    if (axis < 0) axis += s.rank;
    return axis >= 0 && axis < s.rank ? s.extents[axis] : 0;
}

int64_t qn_tensor_count(qn_tensor t)
{
    const graph_node *n = fact(t);
    return n ? shape_count(&n->shape) : 0;
}

bool tape_view_step(const graph *g, node n, const int64_t *from, int64_t *strides, int64_t *offset)
{
    const graph_node *x = graph_get(g, n);
    *offset = 0;
    if (!x->input_count) return false;
    const shape *before = &graph_get(g, x->inputs[0])->shape;
    switch (x->code) {
    case GRAPH_RESHAPE:
        return strides_reshape(before->rank, before->extents, from, x->shape.rank, x->shape.extents, strides);
    case GRAPH_PERMUTE:
        for (int k = 0; k < x->shape.rank; k++) strides[k] = from[x->attr.axes[k]];
        return true;
    case GRAPH_EXPAND:
        for (int k = 0; k < x->shape.rank; k++) strides[k] = before->extents[k] == x->shape.extents[k] ? from[k] : 0;
        return true;
    case GRAPH_SLICE:
        for (int k = 0; k < x->shape.rank; k++) {
            strides[k] = from[k] * x->attr.step[k];
            *offset += from[k] * x->attr.start[k];
        }
        return true;
    case GRAPH_WINDOW:
        memcpy(strides, from, sizeof(int64_t) * GRAPH_RANK);
        strides[x->attr.axis] = from[x->attr.axis] * x->attr.stride;
        strides[x->shape.rank - 1] = from[x->attr.axis] * x->attr.dilation;
        return true;
    default: return false;
    }
}

int tape_views(const graph *g, node n, node *list, int room)
{
    int count = 0;
    for (const graph_node *x = graph_get(g, n);; n = x->inputs[0], x = graph_get(g, n), count++) {
        if (count < room) list[count] = n;
        bool moves = graph_ops[x->code].class == GRAPH_CLASS_MOVE && x->code != GRAPH_PAD && x->code != GRAPH_CONCAT;
        if (!moves) return count;
    }
}

void tape_strides(const qn_tape *tape, node n, int64_t *strides, node *base)
{
    const graph *g = tape->graph;
    arena *scratch = arena_new();
    int count = tape_views(g, n, NULL, 0);
    node *list = ARENA_ARRAY(scratch, node, count + 1);
    tape_views(g, n, list, count + 1);
    *base = list[count];
    const placed *where = tape_placed(tape, *base);
    if (where)
        memcpy(strides, where->strides, sizeof(int64_t) * GRAPH_RANK);
    else
        strides_set_row_major(graph_get(g, *base)->shape.rank, graph_get(g, *base)->shape.extents, strides);
    for (int i = count - 1; i >= 0; i--) { /* from what is looked at, upwards */
        int64_t from[GRAPH_RANK], offset;
        memcpy(from, strides, sizeof(from));
        if (tape_view_step(g, list[i], from, strides, &offset)) continue;
        *base = list[i];
        strides_set_row_major(graph_get(g, *base)->shape.rank, graph_get(g, *base)->shape.extents, strides);
    }
    arena_free(scratch);
}

qn_shape qn_tensor_strides(qn_tensor t)
{
    qn_shape s = qn_tensor_shape(t);
    int64_t strides[GRAPH_RANK];
    node base;
    if (!tape_slot_of(t)) return s;
    tape_strides(t.tape, tape_slot_of(t)->node, strides, &base);
    for (int k = 0; k < s.rank; k++) s.extents[k] = strides[k];
    return s;
}

bool qn_tensor_is_view(qn_tensor t)
{
    int64_t strides[GRAPH_RANK];
    node base;
    if (!tape_slot_of(t)) return false;
    tape_strides(t.tape, tape_slot_of(t)->node, strides, &base);
    return base != tape_slot_of(t)->node;
}

bool qn_tensor_same_memory(qn_tensor a, qn_tensor b)
{
    int64_t strides[GRAPH_RANK];
    node first, second;
    if (!tape_slot_of(a) || !tape_slot_of(b) || a.tape != b.tape) return false;
    tape_strides(a.tape, tape_slot_of(a)->node, strides, &first);
    tape_strides(b.tape, tape_slot_of(b)->node, strides, &second);
    const placed *one = tape_placed(a.tape, first), *other = tape_placed(a.tape, second);
    return first == second || (one && other && one->storage->buffer == other->storage->buffer);
}
