/*
 * Gradients of tables of which few rows were read. In: a gradient that adds rows to zeros at indices, as the gradient of
 * an embedding is. Out: the indices and rows, and every row once with all that belongs to it summed, without a tensor of
 * the table's size. The number of different rows is not known before it runs, so sums stay as many as indices: each
 * stands at every index of its kind, and `first` says which one counts.
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
    out->index = graph_concat(g, indices, count, 0);
    out->updates = graph_concat(g, updates, count, 0);
    arena_free(memory);
    return out->index && out->updates;
}

sparse_sums sparse_rows_sum(graph *g, const sparse_rows *rows)
{
    int64_t count = g->nodes[rows->index].shape.extents[0], before = 1;
    node order = graph_argsort(g, rows->index, 0, false);
    node index = graph_take(g, rows->index, order, 0), updates = graph_take(g, rows->updates, order, 0);
    node shorter = count ? grad_part(g, index, 0, 0, 1, count - 1) : index;
    node previous = graph_pad(g, shorter, &before, NULL, &(shape){1, {count}}, (number){.i = -1});
    node first = graph_binary(g, OP_NE, index, previous);
    /* Equal indices lie together: the number of firsts up to here is the number of the kind. */
    node kinds = graph_scan(g, FOLD_SUM, graph_convert(g, first, DT_I64), 0);
    node kind = graph_binary(g, OP_SUB, kinds, graph_full(g, DT_I64, &(shape){1, {count}}, (number){.i = 1}));
    node sums = graph_take_add(g, grad_number(g, updates, 0), kind, updates, 0);
    return (sparse_sums){index, first, graph_take(g, sums, kind, 0)};
}

node sparse_sums_once(graph *g, const sparse_sums *sums, node values)
{
    if (!values || !sums->first) return 0;
    shape s = g->nodes[values].shape, flags = {.rank = s.rank};
    for (int k = 0; k < s.rank; k++) flags.extents[k] = k ? 1 : s.extents[0];
    return grad_where(g, graph_expand(g, graph_reshape(g, sums->first, &flags), &s), values);
}
