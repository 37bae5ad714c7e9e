/*
 * Gradients of tables of which few rows were read. In: a gradient that adds rows to zeros at indices, as the gradient of
 * an embedding is. Out: the indices and rows, and every row once with all that belongs to it summed, without a tensor of
 * the table's size. The number of different rows is not known before it runs, so sums stay as many as indices: in the
 * order of the indices, each where its kind begins; zeros stand elsewhere.
 * SPDX-License-Identifier: MIT
 */
#include "tensor/grad_rules.h"

bool sparse_rows_find(graph *g, node gradient, sparse_rows *out)
{
    node base = gradient;
    int count = 0;
    for (; g->nodes[base].code == GRAPH_TAKE_ADD && g->nodes[base].attr.axis == 0; count++)
        base = g->nodes[base].inputs[0];
    if (!count || !grad_zero(g, base)) return false;
    arena *memory = arena_new();
    node *indices = ARENA_ARRAY(memory, node, count), *updates = ARENA_ARRAY(memory, node, count);
    shape row = g->nodes[gradient].shape;
    for (node n = gradient; n != base; n = g->nodes[n].inputs[0]) {
        const node *inputs = g->nodes[n].inputs;
        shape places = {1, {shape_count(&g->nodes[inputs[1]].shape)}};
        row.extents[0] = places.extents[0];
        indices[--count] = graph_reshape(g, graph_convert(g, inputs[1], DT_I64), &places);
        updates[count] = graph_reshape(g, g->nodes[n].inputs[2], &row);
    }
    for (node n = gradient; n != base; n = g->nodes[n].inputs[0]) count++;
    out->limit = g->nodes[gradient].shape.extents[0];
    out->index = graph_concat(g, indices, count, 0);
    out->updates = graph_concat(g, updates, count, 0);
    arena_free(memory);
    return out->index && out->updates;
}

sparse_rows sparse_rows_sum(graph *g, const sparse_rows *rows)
{
    node order = graph_argsort(g, graph_short_index(g, rows->index, rows->limit), 0, false);
    node index = graph_take(g, rows->index, order, 0);
    return (sparse_rows){index, graph_run_sum(g, index, rows->updates, order), rows->limit};
}
