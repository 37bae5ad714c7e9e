/*
 * Triangles, diagonals and turns of axes. In: handles. Out: comparisons of positions for triangles; slices, reshapes and
 * joins for the rest, which move no data.
 * SPDX-License-Identifier: MIT
 */
#include "tensor/ops.h"

/* Zero where column - row is beyond the diagonal on the other side. */
static qn_tensor triangle(const char *op, qn_tensor x, int64_t diagonal, op_code kept)
{
    node n;
    qn_tape *tape = tape_begin(op, &x, 1, &n);
    if (!tape) return tape_failed();
    graph *g = tape->graph;
    const shape *s = tensor_shape(g, n);
    if (s->rank < 2)
        return graph_fail(g, op, "x is %s: it should have at least two axes", tensor_words(g, n)), tape_failed();
    shape down = {2, {s->extents[s->rank - 2], 1}};
    node row = graph_reshape(g, graph_iota(g, down.extents[0]), &down), column = graph_iota(g, s->extents[s->rank - 1]);
    row = tensor_scalar(g, OP_ADD, row, (double)diagonal, false);
    return tape_handle(tape, tensor_where(g, tensor_binary(g, kept, column, row), n, tensor_number(g, n, 0)));
}

qn_tensor qn_tril(qn_tensor x, int64_t diagonal)
{
    return triangle("tril", x, diagonal, OP_LE);
}

qn_tensor qn_triu(qn_tensor x, int64_t diagonal)
{
    return triangle("triu", x, diagonal, OP_GE);
}

/* The rows that the diagonal meets as one axis with all their columns: its elements are columns + 1 apart. */
node tensor_diagonal(graph *g, node x, int64_t offset, int a, int b)
{
    if (!x) return 0;
    int rank = tensor_shape(g, x)->rank, order[GRAPH_RANK], next = 0;
    for (int k = 0; k < rank; k++)
        if (k != a && k != b) order[next++] = k;
    order[next++] = a;
    order[next++] = b;
    x = graph_permute(g, x, order);
    if (!x) return 0;
    shape s = *tensor_shape(g, x);
    int64_t rows = s.extents[rank - 2], columns = s.extents[rank - 1];
    int64_t top = offset < 0 ? -offset : 0, left = offset > 0 ? offset : 0;
    int64_t count = MAXIMUM(MINIMUM(rows - top, columns - left), 0);
    s.rank = rank - 1;
    s.extents[rank - 2] = count;
    s.extents[rank - 1] = 0;
    if (!count) return graph_full_double(g, tensor_elem(g, x), &s, 0);
    x = tensor_slice(g, x, rank - 2, top, top + count, 1);
    s.extents[rank - 2] = count * columns;
    x = tensor_slice(g, graph_reshape(g, x, &s), rank - 2, left, count * columns, columns + 1);
    return tensor_slice(g, x, rank - 2, 0, count, 1);
}

qn_tensor qn_diagonal(qn_tensor x, int64_t offset, int a, int b)
{
    node n;
    qn_tape *tape = tape_begin("diagonal", &x, 1, &n);
    if (!tape) return tape_failed();
    graph *g = tape->graph;
    a = tensor_axis(g, "diagonal", n, a);
    b = tensor_axis(g, "diagonal", n, b);
    if (a < 0 || b < 0) return tape_failed();
    if (a == b) return graph_fail(g, "diagonal", "axis %d is given twice", a), tape_failed();
    return tape_handle(tape, tensor_diagonal(g, n, offset, a, b));
}

/* What leaves an axis at its end comes in at its beginning. */
static node roll(graph *g, node x, int axis, int64_t shift)
{
    int64_t extent = tensor_shape(g, x)->extents[axis];
    if (extent < 2) return x;
    shift = (shift % extent + extent) % extent;
    if (!shift) return x;
    node parts[2] = {tensor_slice(g, x, axis, extent - shift, extent, 1),
                     tensor_slice(g, x, axis, 0, extent - shift, 1)};
    return graph_concat(g, parts, 2, axis);
}

qn_tensor qn_roll(qn_tensor x, qn_shape shifts, qn_axes axes)
{
    node n;
    qn_tape *tape = tape_begin("roll", &x, 1, &n);
    if (!tape) return tape_failed();
    graph *g = tape->graph;
    if (!axes.count && shifts.rank == 1) { /* as if it were one line */
        shape s = *tensor_shape(g, n), flat = {1, {shape_count(&s)}};
        return tape_handle(tape, graph_reshape(g, roll(g, graph_reshape(g, n, &flat), 0, shifts.extents[0]), &s));
    }
    if (axes.count != shifts.rank)
        return graph_fail(g, "roll", "%d shifts for %d axes", shifts.rank, axes.count), tape_failed();
    if (axes.count < 0 || axes.count > QN_TENSOR_RANK)
        return graph_fail(g, "roll", "%d axes: at most %d", axes.count, QN_TENSOR_RANK), tape_failed();
    for (int i = 0; i < axes.count && n; i++) {
        int axis = tensor_axis(g, "roll", n, axes.axes[i]);
        n = axis < 0 ? 0 : roll(g, n, axis, shifts.extents[i]);
    }
    return tape_handle(tape, n);
}
