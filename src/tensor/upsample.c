/*
 * Upsampling of the last one to three axes. In: handles of x [..][H][W], the extents wanted. Out: nearest neighbours as
 * an EXPAND where the factor is whole, else read by an index that positions give; linear interpolation as two such
 * reads for each axis, one axis after the other. Positions are computed in f32 (between f64: in f64), as PyTorch does.
 * SPDX-License-Identifier: MIT
 */
#include "tensor/windows.h"

#include "ir/graph_build.h"

static node with(graph *g, op_code code, node x, double s)
{
    return tensor_scalar(g, code, x, s, false);
}

/* Each element `times` times, one after the other. */
static node spread(graph *g, node x, int axis, int64_t times)
{
    shape s = *tensor_shape(g, x), parts = {3, {1, 1, 1}};
    for (int k = 0; k < s.rank; k++) parts.extents[k <= axis ? 0 : 2] *= s.extents[k];
    x = graph_reshape(g, x, &parts);
    parts.extents[1] = times;
    s.extents[axis] *= times;
    return graph_reshape(g, graph_expand(g, x, &parts), &s);
}

/* 0, 1, 2, .. */
static node positions(graph *g, int64_t count, dtype elem)
{
    return graph_convert(g, graph_iota(g, count), elem);
}

/* In the type of positions, as PyTorch divides. */
static double ratio(int64_t a, int64_t b, dtype elem)
{
    return elem == DT_F64 ? (double)a / (double)b : (double)((float)a / (float)b);
}

static node whole_below(graph *g, node x, int64_t limit)
{
    return with(g, OP_MIN, graph_convert(g, graph_unary(g, OP_FLOOR, x), DT_I64), (double)(limit - 1));
}

static node nearest(graph *g, node x, int axis, int64_t wanted)
{
    int64_t extent = tensor_shape(g, x)->extents[axis];
    if (wanted % extent == 0) return spread(g, x, axis, wanted / extent);
    node from = with(g, OP_MUL, positions(g, wanted, DT_F32), ratio(extent, wanted, DT_F32));
    return graph_take(g, x, whole_below(g, from, extent), axis);
}

/* between(x[i], x[i + 1]) at place i + part; align: the corners' centres meet, else the corners' edges. */
static node linear(graph *g, node x, int axis, int64_t wanted, bool align)
{
    int64_t extent = tensor_shape(g, x)->extents[axis];
    if (wanted == extent) return x;
    dtype elem = tensor_elem(g, x);
    node at = positions(g, wanted, elem);
    if (align) {
        at = with(g, OP_MUL, at, wanted > 1 ? ratio(extent - 1, wanted - 1, elem) : 0);
    } else {
        at = with(g, OP_MUL, with(g, OP_ADD, at, 0.5), ratio(extent, wanted, elem));
        at = with(g, OP_MAX, with(g, OP_SUB, at, 0.5), 0);
    }
    node low = whole_below(g, at, extent), high = with(g, OP_MIN, with(g, OP_ADD, low, 1), (double)(extent - 1));
    node part = graph_binary(g, OP_SUB, at, graph_convert(g, low, elem));
    shape line = {.rank = tensor_shape(g, x)->rank};
    for (int k = 0; k < line.rank; k++) line.extents[k] = k == axis ? wanted : 1;
    part = graph_reshape(g, part, &line);
    node first = graph_take(g, x, low, axis), second = graph_take(g, x, high, axis);
    node rest = tensor_scalar(g, OP_SUB, part, 1, true);
    return tensor_binary(g, OP_ADD, tensor_binary(g, OP_MUL, first, rest), tensor_binary(g, OP_MUL, second, part));
}

static qn_tensor upsample(const char *op, qn_tensor x, qn_shape extents, bool is_linear, bool align)
{
    node n;
    qn_tape *tape = tape_begin(op, &x, 1, &n);
    if (!tape) return tape_failed();
    graph *g = tape->graph;
    shape s = *tensor_shape(g, n);
    bool fits = extents.rank >= 1 && extents.rank <= WINDOW_AXES && extents.rank <= s.rank;
    int first = fits ? s.rank - extents.rank : 0;
    for (int i = 0; i < extents.rank && fits; i++) fits = extents.extents[i] >= 1 && s.extents[first + i] >= 1;
    shape wanted = s;
    for (int i = 0; i < extents.rank && fits; i++) wanted.extents[first + i] = extents.extents[i];
    if (!fits || !graph_shape_fits(g, op, &wanted)) {
        shape given = shape_from_public(extents);
        return graph_fail(g, op, "the last axes of %s cannot become %s", tensor_words(g, n),
                          graph_shape_words(g, &given)),
               tape_failed();
    }
    dtype elem = tensor_elem(g, n);
    if (is_linear && !dtype_is_float(elem))
        return graph_fail(g, op, "it does not take %s: cast it", dtypes[elem].text), tape_failed();
    if (is_linear) n = tensor_wide(g, n);
    for (int i = 0; i < extents.rank && n; i++)
        n = is_linear ? linear(g, n, first + i, extents.extents[i], align)
                      : nearest(g, n, first + i, extents.extents[i]);
    return tape_handle(tape, tensor_convert(g, n, elem));
}

qn_tensor qn_upsample_nearest(qn_tensor x, qn_shape extents)
{
    return upsample("upsample_nearest", x, extents, false, false);
}

qn_tensor qn_upsample_linear(qn_tensor x, qn_shape extents, bool align_corners)
{
    return upsample("upsample_linear", x, extents, true, align_corners);
}
