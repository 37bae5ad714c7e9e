/*
 * Access by index. In: handles of data and of integers. Out: TAKE, GATHER, TAKE_ADD and GATHER_ADD nodes, whose indices
 * the device checks when the tape says so.
 * SPDX-License-Identifier: MIT
 */
#include "tensor/ops.h"

#include "ir/graph_build.h"

#include <string.h>

node tensor_take(graph *g, node x, node index, int axis)
{
    return graph_take(g, x, index, axis);
}

node tensor_one_hot(graph *g, node index, int64_t classes)
{
    if (!index) return 0;
    if (!dtype_is_integer(tensor_elem(g, index)))
        return graph_fail(g, "one_hot", "the index is %s: it must be an integer", dtypes[tensor_elem(g, index)].text);
    node x[2] = {tensor_insert(g, index, tensor_shape(g, index)->rank), graph_iota(g, classes)};
    if (!x[0] || !x[1]) return 0;
    x[0] = tensor_convert(g, x[0], DT_I64);
    return tensor_meet(g, "one_hot", x, 2) ? graph_binary(g, OP_EQ, x[0], x[1]) : 0;
}

qn_tensor qn_one_hot(qn_tensor index, int64_t classes, qn_dtype type)
{
    node n;
    qn_tape *tape = tape_begin("one_hot", &index, 1, &n);
    if (!tape || !tape_type(tape, "one_hot", type)) return tape_failed();
    return tape_handle(tape, tensor_convert(tape->graph, tensor_one_hot(tape->graph, n, classes), (dtype)type));
}

qn_tensor qn_index_select(qn_tensor x, int axis, qn_tensor index)
{
    node n[2];
    qn_tape *tape = tape_begin("index_select", (qn_tensor[]){x, index}, 2, n);
    if (!tape || (axis = tensor_axis(tape->graph, "index_select", n[0], axis)) < 0) return tape_failed();
    return tape_handle(tape, tensor_take(tape->graph, n[0], n[1], axis));
}

qn_tensor qn_index_add(qn_tensor base, int axis, qn_tensor index, qn_tensor updates)
{
    node n[3];
    qn_tape *tape = tape_begin("index_add", (qn_tensor[]){base, index, updates}, 3, n);
    if (!tape || (axis = tensor_axis(tape->graph, "index_add", n[0], axis)) < 0) return tape_failed();
    return tape_handle(tape, graph_take_add(tape->graph, n[0], n[1], n[2], axis));
}

/* PyTorch's rule: the index may be smaller than x on the other axes. */
static bool index_fits(graph *g, const char *op, node x, node index, int axis)
{
    const shape *from = tensor_shape(g, x), *places = tensor_shape(g, index);
    bool fits = from->rank == places->rank;
    for (int k = 0; k < from->rank && fits; k++) fits = k == axis || places->extents[k] <= from->extents[k];
    if (!fits)
        graph_fail(g, op, "the index %s does not fit %s outside axis %d", tensor_words(g, index), tensor_words(g, x),
                   axis);
    return fits;
}

/* The first elements of every axis but one. */
static node corner(graph *g, node x, const shape *s, int axis)
{
    if (!x) return 0;
    shape part = *s;
    if (axis >= 0) part.extents[axis] = tensor_shape(g, x)->extents[axis];
    int64_t start[GRAPH_RANK] = {0}, step[GRAPH_RANK];
    for (int k = 0; k < GRAPH_RANK; k++) step[k] = 1;
    return graph_slice(g, x, start, step, &part);
}

qn_tensor qn_gather(qn_tensor x, int axis, qn_tensor index)
{
    node n[2];
    qn_tape *tape = tape_begin("gather", (qn_tensor[]){x, index}, 2, n);
    if (!tape || (axis = tensor_axis(tape->graph, "gather", n[0], axis)) < 0) return tape_failed();
    graph *g = tape->graph;
    if (!index_fits(g, "gather", n[0], n[1], axis)) return tape_failed();
    return tape_handle(tape, graph_gather(g, corner(g, n[0], tensor_shape(g, n[1]), axis), n[1], axis));
}

/* Index and updates of the size of the base outside the axis: what is missing adds 0 to element 0. */
static node filled(graph *g, node x, node base, int axis)
{
    int64_t none[GRAPH_RANK] = {0}, after[GRAPH_RANK] = {0};
    for (int k = 0; x && k < tensor_shape(g, x)->rank; k++)
        if (k != axis) after[k] = tensor_shape(g, base)->extents[k] - tensor_shape(g, x)->extents[k];
    return tensor_pad(g, x, none, after, 0);
}

qn_tensor qn_scatter_add(qn_tensor base, int axis, qn_tensor index, qn_tensor updates)
{
    node n[3];
    qn_tape *tape = tape_begin("scatter_add", (qn_tensor[]){base, index, updates}, 3, n);
    if (!tape || (axis = tensor_axis(tape->graph, "scatter_add", n[0], axis)) < 0) return tape_failed();
    graph *g = tape->graph;
    const shape *places = tensor_shape(g, n[1]), *given = tensor_shape(g, n[2]);
    if (!index_fits(g, "scatter_add", n[0], n[1], axis)) return tape_failed();
    bool fits = given->rank == places->rank;
    for (int k = 0; k < places->rank && fits; k++) fits = places->extents[k] <= given->extents[k];
    if (!fits)
        return graph_fail(g, "scatter_add", "the updates %s are fewer than the index %s", tensor_words(g, n[2]),
                          tensor_words(g, n[1])),
               tape_failed();
    if (!shape_count(places)) return tape_handle(tape, n[0]);
    node part = corner(g, n[2], places, -1);
    return tape_handle(tape, graph_gather_add(g, n[0], filled(g, n[1], n[0], axis), filled(g, part, n[0], axis), axis));
}

/* ---- written over ---- */

/* Rows `index` (rank 1) of x replaced by rows of updates [index][..]; of equal indices the last one counts. Which row
 * of the updates a row of x gets is found by sorting the indices, backwards, so that each run begins with its last. */
static node put_rows(graph *g, node x, node index, node updates)
{
    shape rows = *tensor_shape(g, x), line = {1, {rows.extents[0]}}, column = {.rank = rows.rank};
    int64_t count = tensor_shape(g, index)->extents[0];
    if (!count || !shape_count(&rows)) return x;
    node back = tensor_turn(g, tensor_convert(g, index, DT_I64), 1), order = graph_argsort(g, back, 0, false);
    node number = graph_binary(g, OP_SUB, tensor_number(g, order, (double)count), order); /* of the update, from 1 */
    node sorted = graph_take(g, back, order, 0);
    node winner = graph_take_add_firsts(g, graph_full_double(g, DT_I64, &line, 0), sorted, number);
    if (!winner) return 0;
    node given = tensor_scalar(g, OP_GT, winner, 0, false);
    node place = tensor_scalar(g, OP_MAX, tensor_scalar(g, OP_SUB, winner, 1, false), 0, false);
    for (int k = 0; k < rows.rank; k++) column.extents[k] = k ? 1 : rows.extents[0];
    return tensor_where(g, graph_reshape(g, given, &column), graph_take(g, updates, place, 0), x);
}

/* The axis in front, or back where it was. */
static node axis_to(graph *g, node x, int from, int to)
{
    if (!x) return 0;
    int rank = tensor_shape(g, x)->rank, axes[GRAPH_RANK];
    for (int k = 0, next = 0; k < rank; k++) {
        if (next == from) next++;
        axes[k] = k == to ? from : next++;
    }
    return graph_permute(g, x, axes);
}

static bool is_index(graph *g, const char *op, node index)
{
    if (dtype_is_integer(tensor_elem(g, index))) return true;
    return graph_fail(g, op, "the index is %s: it must be an integer", dtypes[tensor_elem(g, index)].text), false;
}

qn_tensor qn_index_copy(qn_tensor base, int axis, qn_tensor index, qn_tensor updates)
{
    node n[3];
    qn_tape *tape = tape_begin("index_copy", (qn_tensor[]){base, index, updates}, 3, n);
    if (!tape || (axis = tensor_axis(tape->graph, "index_copy", n[0], axis)) < 0) return tape_failed();
    graph *g = tape->graph;
    shape wanted = *tensor_shape(g, n[0]);
    if (!is_index(g, "index_copy", n[1])) return tape_failed();
    if (tensor_shape(g, n[1])->rank == 1) wanted.extents[axis] = tensor_shape(g, n[1])->extents[0];
    if (tensor_shape(g, n[1])->rank != 1 || !shape_same(tensor_shape(g, n[2]), &wanted))
        return graph_fail(g, "index_copy", "the index is %s and the updates are %s, they should be [n] and %s",
                          tensor_words(g, n[1]), tensor_words(g, n[2]), graph_shape_words(g, &wanted)),
               tape_failed();
    node updates_first = axis_to(g, tensor_convert(g, n[2], tensor_elem(g, n[0])), axis, 0);
    node y = put_rows(g, axis_to(g, n[0], axis, 0), n[1], updates_first);
    return tape_handle(tape, axis_to(g, y, 0, axis));
}

/* Indices of the first axes, of shapes that broadcast, as one index of rank 1 into those axes as one. */
static node joined_index(graph *g, const node *indices, int count, const shape *from, shape *places)
{
    node joined = 0, each[GRAPH_RANK];
    for (int i = 0; i < count; i++) {
        if (!is_index(g, "index_put", indices[i])) return 0;
        each[i] = tensor_convert(g, indices[i], DT_I64);
    }
    if (!tensor_shapes_meet(g, "index_put", each, count, places)) return 0;
    for (int i = 0; i < count; i++) {
        node next = tensor_broadcast(g, "index_put", each[i], places);
        if (!joined) {
            joined = next;
            continue;
        }
        /* What lies outside this axis would be a place inside another line: it is outside of all. */
        double extent = (double)from->extents[i];
        node above = tensor_scalar(g, OP_GE, next, 0, false), below = tensor_scalar(g, OP_LT, next, extent, false);
        node place = graph_binary(g, OP_ADD, tensor_scalar(g, OP_MUL, joined, extent, false), next);
        joined = tensor_where(g, graph_binary(g, OP_AND, above, below), place, tensor_number(g, place, -1));
    }
    shape line = {1, {shape_count(places)}};
    return joined ? graph_reshape(g, joined, &line) : 0;
}

qn_tensor qn_index_put(qn_tensor base, const qn_tensor *indices, int count, qn_tensor values, bool accumulate)
{
    const char *op = "index_put";
    node n[2 + GRAPH_RANK];
    qn_tensor operands[2 + GRAPH_RANK] = {base, values};
    int given = MINIMUM(MAXIMUM(count, 0), GRAPH_RANK);
    if (!tape_array(base.tape, op, indices, given)) return (qn_tensor){.tape = base.tape};
    for (int i = 0; i < given; i++) operands[2 + i] = indices[i];
    qn_tape *tape = tape_begin(op, operands, 2 + given, n);
    if (!tape) return tape_failed();
    graph *g = tape->graph;
    shape s = *tensor_shape(g, n[0]), places, wanted, rows, updates;
    if (count < 1 || count > s.rank)
        return graph_fail(g, op, "%d indices for a tensor of shape %s", count, tensor_words(g, n[0])), tape_failed();
    node index = joined_index(g, n + 2, count, &s, &places);
    if (!index || places.rank + s.rank - count > GRAPH_RANK) {
        if (index)
            graph_fail(g, op, "indices %s and %s have too many axes", graph_shape_words(g, &places),
                       tensor_words(g, n[0]));
        return tape_failed();
    }
    rows = updates = (shape){1, {1}};
    wanted = places;
    updates.extents[0] = shape_count(&places);
    for (int k = 0; k < count; k++) rows.extents[0] *= s.extents[k];
    for (int k = count; k < s.rank; k++) {
        rows.extents[rows.rank++] = updates.extents[updates.rank++] = s.extents[k];
        wanted.extents[wanted.rank++] = s.extents[k];
    }
    node whole = tensor_broadcast(g, op, tensor_convert(g, n[1], tensor_elem(g, n[0])), &wanted);
    node from = graph_reshape(g, n[0], &rows), put = graph_reshape(g, whole, &updates);
    if (!whole || !put) return tape_failed();
    node y = accumulate ? graph_take_add(g, from, index, put, 0) : put_rows(g, from, index, put);
    return tape_handle(tape, graph_reshape(g, y, &s));
}

/* ---- embeddings ---- */

static bool is_table(graph *g, const char *op, node table)
{
    if (tensor_shape(g, table)->rank == 2) return true;
    graph_fail(g, op, "the table is %s: it must have two axes", tensor_words(g, table));
    return false;
}

qn_tensor qn_embedding(qn_tensor table, qn_tensor index)
{
    node n[2];
    qn_tape *tape = tape_begin("embedding", (qn_tensor[]){table, index}, 2, n);
    if (!tape || !is_table(tape->graph, "embedding", n[0])) return tape_failed();
    return tape_handle(tape, tensor_take(tape->graph, n[0], n[1], 0));
}

/* The bag of each of `count` elements: the last one that begins at or before it, found by halving, so that one pass over
 * the elements does it. */
static node bag_numbers(graph *g, node offsets, int64_t count)
{
    int64_t bags = tensor_shape(g, offsets)->extents[0], step = 1;
    node place = graph_iota(g, count), bag = tensor_number(g, place, 0);
    while (step * 2 < bags) step *= 2;
    for (; step && bags > 1; step /= 2) {
        node next = graph_binary(g, OP_ADD, bag, tensor_number(g, bag, (double)step));
        node last = tensor_number(g, bag, (double)(bags - 1));
        node start = graph_take(g, offsets, graph_binary(g, OP_MIN, next, last), 0);
        node further =
            graph_binary(g, OP_AND, graph_binary(g, OP_LE, next, last), graph_binary(g, OP_LE, start, place));
        bag = graph_select(g, further, next, bag);
    }
    return bag;
}

static node flat_bags(graph *g, node table, node index, node offsets, bool mean)
{
    int64_t count = tensor_shape(g, index)->extents[0], bags = tensor_shape(g, offsets)->extents[0];
    offsets = tensor_convert(g, offsets, DT_I64);
    shape sums = {2, {bags, tensor_shape(g, table)->extents[1]}};
    node rows = tensor_wide(g, tensor_take(g, table, index, 0));
    if (!rows || !offsets) return 0;
    node zeros = graph_full_double(g, tensor_elem(g, rows), &sums, 0);
    if (!bags || !count) return tensor_convert(g, zeros, tensor_elem(g, table));
    node total = graph_take_add(g, zeros, bag_numbers(g, offsets, count), rows, 0);
    if (mean && total) {
        shape one = {1, {1}}, column = {2, {bags, 1}};
        node ends[2] = {tensor_slice(g, offsets, 0, 1, QN_END, 1), graph_full_double(g, DT_I64, &one, (double)count)};
        node sizes = graph_binary(g, OP_SUB, bags > 1 ? graph_concat(g, ends, 2, 0) : ends[1], offsets);
        if (!sizes) return 0;
        sizes = graph_binary(g, OP_MAX, sizes, tensor_number(g, sizes, 1));
        sizes = graph_expand(g, graph_reshape(g, graph_convert(g, sizes, tensor_elem(g, total)), &column), &sums);
        total = graph_binary(g, OP_DIV, total, sizes);
    }
    return tensor_convert(g, total, tensor_elem(g, table));
}

/* Each row of the index is a bag. */
static node row_bags(graph *g, node table, node index, bool mean)
{
    node rows = tensor_wide(g, tensor_take(g, table, index, 0));
    if (!rows) return 0;
    int64_t size = tensor_shape(g, index)->extents[1];
    node total = mean && size ? tensor_mean(g, rows, 2) : tensor_sum(g, rows, 2);
    return tensor_convert(g, tensor_drop(g, total, 2), tensor_elem(g, table));
}

qn_tensor qn_embedding_bag(qn_tensor table, qn_tensor index, qn_tensor offsets, qn_bag mode)
{
    node n[3] = {0};
    bool flat = offsets.tape != NULL;
    qn_tape *tape = tape_begin("embedding_bag", (qn_tensor[]){table, index, offsets}, 2 + flat, n);
    if (!tape || !is_table(tape->graph, "embedding_bag", n[0])) return tape_failed();
    graph *g = tape->graph;
    if (tensor_shape(g, n[1])->rank != (flat ? 1 : 2) || (flat && tensor_shape(g, n[2])->rank != 1))
        return graph_fail(g, "embedding_bag", "it takes index [bags][n], or index [n] and offsets [bags], not %s%s%s",
                          tensor_words(g, n[1]), flat ? " and " : "", flat ? tensor_words(g, n[2]) : ""),
               tape_failed();
    if (flat && !dtype_is_integer(tensor_elem(g, n[2])))
        return graph_fail(g, "embedding_bag", "the offsets are %s: they must be integers",
                          dtypes[tensor_elem(g, n[2])].text),
               tape_failed();
    return tape_handle(tape, flat ? flat_bags(g, n[0], n[1], n[2], mode == QN_BAG_MEAN)
                                  : row_bags(g, n[0], n[1], mode == QN_BAG_MEAN));
}
