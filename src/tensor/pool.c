/*
 * Pools: maxima and means over windows of the last one to three axes, and adaptive ones, whose windows are chosen so
 * that a given number of results comes out. In: handles of x [..][H][W]. Out: padding and WINDOWs, or where windows do
 * not touch a RESHAPE, then a reduction. How many elements an average has is arithmetic on positions.
 * SPDX-License-Identifier: MIT
 */
#include "tensor/windows.h"

#include "ir/graph_build.h"

#include <math.h>

static unsigned last_axes(const graph *g, node x, int count)
{
    return ((1u << count) - 1) << (tensor_shape(g, x)->rank - count);
}

/* ---- windows of one size ---- */

/* Rounding up, a last window may stick out, if it begins inside x or the padding before it. */
static void stick_out(const shape *s, windows *w)
{
    for (int i = 0; i < w->axes; i++) {
        int64_t extent = s->extents[s->rank - w->axes + i], reach = (w->size[i] - 1) * w->dilation[i] + 1;
        int64_t room = extent + 2 * w->padding[i] - reach;
        if (room <= -w->stride[i] || room % w->stride[i] == 0) continue;
        int64_t last = room < 0 ? 0 : (room / w->stride[i] + 1) * w->stride[i];
        if (last < extent + w->padding[i]) w->after[i] = last - room;
    }
}

static bool pool_windows(graph *g, const char *op, node x, qn_shape size, const qn_pool_options *given, windows *w)
{
    static const char *const forms[WINDOW_AXES] = {"[..][L]", "[..][H][W]", "[..][D][H][W]"};
    int axes = size.rank, rank = tensor_shape(g, x)->rank;
    if (axes < 1 || axes > WINDOW_AXES)
        return graph_fail(g, op, "windows of %d axes: 1 to %d", axes, WINDOW_AXES), false;
    if (rank < axes || rank > GRAPH_RANK - axes)
        return graph_fail(g, op, "x is %s: it should be %s of at most %d axes", tensor_words(g, x), forms[axes - 1],
                          GRAPH_RANK - axes),
               false;
    *w = windows_make(axes, size.extents, given->stride, given->padding, given->dilation, true);
    if (!windows_fit(g, op, w)) return false;
    for (int i = 0; i < axes; i++)
        if (2 * w->padding[i] > w->size[i])
            return graph_fail(g, op, "a padding of %lld is more than half of the window of %lld",
                              (long long)w->padding[i], (long long)w->size[i]),
                   false;
    if (given->ceil_mode) stick_out(tensor_shape(g, x), w);
    return true;
}

/* A pool begins: its tensor, its options, its windows. NULL: something is wrong, and was said. */
static qn_tape *pool_begin(const char *op, qn_tensor *x, qn_shape size, const qn_pool_options *options, node *n,
                           qn_pool_options *given, windows *w)
{
    *given = options ? *options : (qn_pool_options){0};
    qn_tape *tape = tape_begin(op, x, 1, n);
    return tape && pool_windows(tape->graph, op, *n, size, given, w) ? tape : NULL;
}

static qn_tensor max_pool(const char *op, qn_tensor x, qn_shape size, const qn_pool_options *options)
{
    node n;
    windows w;
    qn_pool_options given;
    qn_tape *tape = pool_begin(op, &x, size, options, &n, &given, &w);
    if (!tape) return tape_failed();
    graph *g = tape->graph;
    if (!dtype_is_float(tensor_elem(g, n)))
        return graph_fail(g, op, "it does not take %s: cast it", dtypes[tensor_elem(g, n)].text), tape_failed();
    node parts = windows_over(g, n, &w, -INFINITY);
    if (!parts) return tape_failed();
    unsigned set = last_axes(g, parts, w.axes);
    return tape_handle(tape, tensor_drop(g, tensor_max(g, parts, set), set));
}

/* How many elements the windows of one axis have, of x alone or with the padding: min(end, high) - max(start, low) for
 * each place, in the type of `like`. */
static node counts_along(graph *g, node like, int axis, int64_t extent, const windows *w, int i, bool padded)
{
    const shape *s = tensor_shape(g, like);
    shape line = {.rank = s->rank};
    for (int k = 0; k < s->rank; k++) line.extents[k] = k == axis ? s->extents[k] : 1;
    node place = graph_reshape(g, graph_iota(g, s->extents[axis]), &line);
    node start = tensor_scalar(g, OP_MUL, place, (double)w->stride[i], false);
    start = tensor_scalar(g, OP_SUB, start, (double)w->padding[i], false);
    node end = tensor_scalar(g, OP_ADD, start, (double)w->size[i], false);
    end = tensor_scalar(g, OP_MIN, end, (double)(extent + (padded ? w->padding[i] : 0)), false);
    if (!padded) start = tensor_scalar(g, OP_MAX, start, 0, false);
    return tensor_convert(g, graph_binary(g, OP_SUB, end, start), tensor_elem(g, like));
}

/* Sums over how many elements each window has. */
static node averages(graph *g, node sums, node x, const windows *w, const qn_pool_options *given)
{
    bool even = !given->without_padding, full = true;
    double size = 1;
    for (int i = 0; i < w->axes; i++) {
        even &= !w->after[i];
        full &= !w->after[i] && !w->padding[i];
        size *= (double)w->size[i];
    }
    if (given->divisor) return tensor_scalar(g, OP_DIV, sums, (double)given->divisor, false);
    if (even || full) return tensor_scalar(g, OP_DIV, sums, size, false);
    const shape *s = tensor_shape(g, x);
    node count = 0;
    for (int i = 0; i < w->axes; i++) {
        int axis = s->rank - w->axes + i;
        node along = counts_along(g, sums, axis, s->extents[axis], w, i, !given->without_padding);
        count = count ? tensor_binary(g, OP_MUL, count, along) : along;
    }
    return tensor_binary(g, OP_DIV, sums, count);
}

static qn_tensor avg_pool(const char *op, qn_tensor x, qn_shape size, const qn_pool_options *options)
{
    node n;
    windows w;
    qn_pool_options given;
    qn_tape *tape = pool_begin(op, &x, size, options, &n, &given, &w);
    if (!tape) return tape_failed();
    graph *g = tape->graph;
    dtype elem = tensor_elem(g, tensor_float(g, n));
    for (int i = 0; i < w.axes; i++)
        if (w.dilation[i] != 1) return graph_fail(g, op, "windows of an average have no dilation"), tape_failed();
    node wide = tensor_wide(g, n), parts = windows_over(g, wide, &w, 0);
    if (!parts) return tape_failed();
    unsigned set = last_axes(g, parts, w.axes);
    node sums = tensor_drop(g, tensor_sum(g, parts, set), set);
    return tape_handle(tape, tensor_convert(g, averages(g, sums, wide, &w, &given), elem));
}

qn_tensor qn_max_pool(qn_tensor x, qn_shape size, const qn_pool_options *options)
{
    return max_pool("max_pool", x, size, options);
}

qn_tensor qn_avg_pool(qn_tensor x, qn_shape size, const qn_pool_options *options)
{
    return avg_pool("avg_pool", x, size, options);
}

static qn_pool_options of_two_axes(const qn_pool2d_options *options)
{
    qn_pool_options all = {0};
    for (int i = 0; i < 2 && options; i++) {
        all.stride[i] = options->stride[i];
        all.padding[i] = options->padding[i];
        all.dilation[i] = options->dilation[i];
    }
    all.without_padding = options && options->without_padding;
    return all;
}

qn_tensor qn_max_pool2d(qn_tensor x, int64_t rows, int64_t columns, const qn_pool2d_options *options)
{
    qn_pool_options all = of_two_axes(options);
    return max_pool("max_pool2d", x, QN_SHAPE(rows, columns), &all);
}

qn_tensor qn_avg_pool2d(qn_tensor x, int64_t rows, int64_t columns, const qn_pool2d_options *options)
{
    qn_pool_options all = of_two_axes(options);
    return avg_pool("avg_pool2d", x, QN_SHAPE(rows, columns), &all);
}

/* ---- as many windows as are wanted ---- */

/* `count` windows over an axis, number i from floor(i * extent / count) to ceil((i + 1) * extent / count). Those of
 * different sizes are read by index, the short ones with elements twice, which a mean leaves out. */
static node adapt(graph *g, node x, int axis, int64_t count, bool mean)
{
    shape s = *tensor_shape(g, x), parts = s;
    int64_t extent = s.extents[axis];
    if (extent % count == 0 && s.rank < GRAPH_RANK) {
        parts.rank++;
        for (int k = s.rank; k > axis; k--) parts.extents[k] = s.extents[k - 1];
        parts.extents[axis] = count;
        parts.extents[axis + 1] = extent / count;
        unsigned set = 1u << (axis + 1);
        x = graph_reshape(g, x, &parts);
        return tensor_drop(g, mean ? tensor_mean(g, x, set) : tensor_max(g, x, set), set);
    }
    /* Window i begins (i * extent) % count beyond a multiple of count, at most count - their common divisor. */
    int64_t divisor = count, rest = extent;
    while (rest) {
        int64_t next = divisor % rest;
        divisor = rest;
        rest = next;
    }
    int64_t longest = (extent + count - divisor + count - 1) / count;
    shape grid = {2, {count, longest}}, down = {2, {count, 1}};
    node place = graph_reshape(g, graph_iota(g, count), &down);
    node start = tensor_scalar(g, OP_MUL, place, (double)extent, false);
    node end = tensor_scalar(g, OP_ADD, start, (double)(extent + count - 1), false);
    start = graph_binary(g, OP_DIV, start, tensor_number(g, start, (double)count));
    end = graph_binary(g, OP_DIV, end, tensor_number(g, end, (double)count));
    node index = tensor_binary(g, OP_ADD, start, graph_iota(g, longest));
    node last = tensor_scalar(g, OP_SUB, end, 1, false);
    node inside = tensor_binary(g, OP_LE, index, last);
    x = graph_take(g, x, tensor_binary(g, OP_MIN, index, last), axis);
    if (!x) return 0;
    unsigned set = 1u << (axis + 1);
    if (!mean) return tensor_drop(g, tensor_max(g, x, set), set);
    shape line = {.rank = s.rank + 1}, column = line;
    for (int k = 0; k < line.rank; k++) {
        line.extents[k] = k == axis ? count : k == axis + 1 ? longest : 1;
        column.extents[k] = k == axis ? count : 1;
    }
    node there = graph_reshape(g, tensor_broadcast(g, "adaptive_avg_pool", inside, &grid), &line);
    node sum = tensor_sum(g, tensor_where(g, there, x, tensor_number(g, x, 0)), set);
    node size = graph_reshape(g, graph_binary(g, OP_SUB, end, start), &column);
    return tensor_drop(g, tensor_binary(g, OP_DIV, sum, tensor_convert(g, size, tensor_elem(g, x))), set);
}

static qn_tensor adaptive(const char *op, qn_tensor x, qn_shape counts, bool mean)
{
    node n;
    qn_tape *tape = tape_begin(op, &x, 1, &n);
    if (!tape) return tape_failed();
    graph *g = tape->graph;
    shape s = *tensor_shape(g, n);
    bool fits = counts.rank >= 1 && counts.rank <= WINDOW_AXES && counts.rank <= s.rank && s.rank < GRAPH_RANK;
    int first = fits ? s.rank - counts.rank : 0;
    for (int i = 0; i < counts.rank && fits; i++) fits = counts.extents[i] >= 1 && s.extents[first + i] >= 1;
    shape wanted = s;
    for (int i = 0; i < counts.rank && fits; i++) wanted.extents[first + i] = counts.extents[i];
    if (fits && !graph_shape_fits(g, op, &wanted)) return tape_failed();
    if (!fits) {
        wanted = shape_from_public(counts);
        return graph_fail(g, op, "windows for %s results over the last axes of %s", graph_shape_words(g, &wanted),
                          tensor_words(g, n)),
               tape_failed();
    }
    dtype elem = tensor_elem(g, tensor_float(g, n));
    if (mean) n = tensor_wide(g, n);
    for (int i = 0; i < counts.rank && n; i++) n = adapt(g, n, first + i, counts.extents[i], mean);
    return tape_handle(tape, mean ? tensor_convert(g, n, elem) : n);
}

qn_tensor qn_adaptive_max_pool(qn_tensor x, qn_shape counts)
{
    return adaptive("adaptive_max_pool", x, counts, false);
}

qn_tensor qn_adaptive_avg_pool(qn_tensor x, qn_shape counts)
{
    return adaptive("adaptive_avg_pool", x, counts, true);
}
