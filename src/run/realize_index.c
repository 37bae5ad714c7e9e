/*
 * Indices that the host knows. In: the nodes of an evaluation. Out: an error that names the op, the shapes and the first
 * index that lies outside, before anything runs. Known are indices that lie in the host's memory and are few; all others
 * are tested by the kernels where the tape asks for it.
 * SPDX-License-Identifier: MIT
 */
#include "run/realize.h"

#define MOST_INDICES 65536

static bool find_outside(const graph_node *n, const placed *p, int axis, const char *at, int64_t extent, int64_t *found)
{
    int64_t size = dtypes[n->elem].size_bytes;
    if (axis == n->shape.rank) {
        number x = element_read(n->elem, at);
        *found = x.i;
        return x.i < 0 || x.i >= extent;
    }
    for (int64_t i = 0; i < n->shape.extents[axis]; i++)
        if (find_outside(n, p, axis + 1, at + i * p->strides[axis] * size, extent, found)) return true;
    return false;
}

static qn_status check(const qn_tape *tape, const graph_node *op, qn_error *error)
{
    const graph *g = tape->graph;
    const graph_node *x = graph_get(g, op->inputs[0]), *index = graph_get(g, op->inputs[1]);
    placed where;
    int64_t extent = x->shape.extents[op->attr.axis], found = 0;
    if (shape_count(&index->shape) > MOST_INDICES || !realize_where(tape, op->inputs[1], &where)) return QN_OK;
    const char *at = storage_data(where.storage) + where.offset * dtypes[index->elem].size_bytes;
    if (!find_outside(index, &where, 0, at, extent, &found)) return QN_OK;
    text words = {0};
    text_add(&words, op->label ? op->label : graph_ops[op->code].text);
    if (op->site.file) text_print(&words, " (%s:%d)", op->site.file, op->site.line);
    text_print(&words, ": index %lld is outside axis %d of a tensor of shape ", (long long)found, op->attr.axis);
    shape_print(&x->shape, &words);
    text_print(&words, ": it must be from 0 to %lld", (long long)extent - 1);
    error_set(error, QN_BAD_CALL, "%s", text_get(&words));
    text_free(&words);
    return QN_BAD_CALL;
}

qn_status realize_check_indices(const qn_tape *tape, qn_error *error)
{
    const realizer *r = tape->realizer;
    if (tape->context->slots[r->slot].driver->memory || tape->capturing) return QN_OK;
    for (int i = 0; i < r->order_count; i++) {
        const graph_node *n = graph_get(tape->graph, r->order[i]);
        if (graph_ops[n->code].class == GRAPH_CLASS_INDEX && !tape_placed(tape, r->order[i]))
            QN_TRY(check(tape, n, error));
    }
    return QN_OK;
}
