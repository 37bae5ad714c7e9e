/*
 * Indices that the host knows. In: the nodes of an evaluation. Out: an error that names the op, the shapes and the first
 * index that lies outside, before anything runs. Known are indices that lie in the host's memory and are few. On `ref`,
 * and where the tape asks for it, all are: those that are computed are computed first, by themselves. On a device with
 * memory of its own kernels test what they read, where the tape asks for it.
 * SPDX-License-Identifier: MIT
 */
#include "run/evaluate/realize.h"

#include <string.h>

#define MOST_INDICES 65536

/* *found: the first index outside; *place: its number among the elements. */
static bool find_outside(const graph_node *n, const placed *p, int axis, const char *at, int64_t extent, int64_t *found,
                         int64_t *place)
{
    int64_t size = dtypes[n->elem].size_bytes;
    if (axis == n->shape.rank) {
        number x = element_read(n->elem, at);
        *found = x.i;
        if (x.i < 0 || x.i >= extent) return true; /* an unsigned one beyond i64 is negative here */
        ++*place;
        return false;
    }
    for (int64_t i = 0; i < n->shape.extents[axis]; i++)
        if (find_outside(n, p, axis + 1, at + i * p->strides[axis] * size, extent, found, place)) return true;
    return false;
}

static bool is_thorough(const qn_tape *tape)
{
    return tape->check_indices || tape->context->slots[tape->realizer->slot].driver == &driver_ref;
}

static bool is_checked(const qn_tape *tape, node n)
{
    return graph_ops[graph_get(tape->graph, n)->code].class == GRAPH_CLASS_INDEX && !tape_placed(tape, n);
}

/* Indices that the caller gave are wrong arguments; what the program computed is a mistake of the program. */
static qn_status status_of(const graph *g, node index)
{
    const graph_node *n = graph_get(g, index);
    while (graph_ops[n->code].class == GRAPH_CLASS_MOVE && n->input_count) n = graph_get(g, n->inputs[0]);
    return n->code == GRAPH_LEAF ? QN_BAD_CALL : QN_FINDING;
}

static qn_status check(const qn_tape *tape, const graph_node *op, qn_error *error)
{
    const graph *g = tape->graph;
    const graph_node *x = graph_get(g, op->inputs[0]), *index = graph_get(g, op->inputs[1]);
    placed where;
    int64_t extent = x->shape.extents[op->attr.axis], found = 0, place = 0;
    if (!is_thorough(tape) && shape_count(&index->shape) > MOST_INDICES) return QN_OK;
    if (!realize_where(tape, op->inputs[1], &where)) return QN_OK;
    const char *at = storage_data(where.storage) + where.offset * dtypes[index->elem].size_bytes;
    if (!find_outside(index, &where, 0, at, extent, &found, &place)) return QN_OK;
    text words = {0};
    qn_status status = status_of(g, op->inputs[1]);
    text_add(&words, op->label ? op->label : graph_ops[op->code].text);
    if (op->site.file) text_print(&words, " (%s:%d)", op->site.file, op->site.line);
    text_print(&words, ": %s%sindex %lld is outside axis %d of a tensor of shape ",
               status == QN_FINDING ? error_code_text(R701) : "", status == QN_FINDING ? ": " : "", (long long)found,
               op->attr.axis);
    shape_print(&x->shape, &words);
    if (extent) text_print(&words, ": it must be from 0 to %lld", (long long)extent - 1);
    if (shape_count(&index->shape) > 1) text_print(&words, " (element %lld of the indices)", (long long)place);
    error_set(error, status, "%s", text_get(&words));
    if (error && status == QN_FINDING) error->code = R701;
    text_free(&words);
    return status;
}

qn_status realize_check_indices(const qn_tape *tape, qn_error *error)
{
    const realizer *r = tape->realizer;
    if (tape->context->slots[r->slot].driver->memory || tape->capturing) return QN_OK;
    for (int i = 0; i < r->order_count; i++)
        if (is_checked(tape, r->order[i])) QN_TRY(check(tape, graph_get(tape->graph, r->order[i]), error));
    return QN_OK;
}

int realize_computed_indices(qn_tape *tape, uint32_t **slots)
{
    const realizer *r = tape->realizer;
    int count = 0;
    *slots = NULL;
    if (tape->context->slots[r->slot].driver->memory || tape->capturing || !is_thorough(tape)) return 0;
    for (int i = 0; i < r->order_count; i++) {
        placed where;
        if (!is_checked(tape, r->order[i])) continue;
        node index = graph_get(tape->graph, r->order[i])->inputs[1];
        if (realize_where(tape, index, &where)) continue;
        if (!*slots) *slots = heap_array((size_t)r->order_count, sizeof(**slots));
        (*slots)[count++] = tape_handle(tape, index).slot;
    }
    return count;
}
