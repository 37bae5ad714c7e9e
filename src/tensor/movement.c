/*
 * Movement: views and joins. In: handles, axes (negative ones count from the end), Python's slices. Out: RESHAPE,
 * PERMUTE, EXPAND, SLICE, WINDOW, PAD and CONCAT nodes; none of them computes anything.
 * SPDX-License-Identifier: MIT
 */
#include "tensor/ops.h"

#include "ir/graph_build.h"
#include "ir/scalar.h"

#include <string.h>

/* ---- axes ---- */

int tensor_axis(graph *g, const char *op, node x, int axis)
{
    if (!x) return -1;
    int rank = tensor_shape(g, x)->rank;
    if (axis >= -rank && axis < rank) return axis < 0 ? axis + rank : axis;
    graph_fail(g, op, "axis %d is not one of a tensor of shape %s", axis, tensor_words(g, x));
    return -1;
}

bool tensor_axis_set(graph *g, const char *op, node x, qn_axes axes, unsigned *set)
{
    *set = 0;
    if (!x) return false;
    if (!axes.count) *set = (1u << tensor_shape(g, x)->rank) - 1;
    if (axes.count < 0 || axes.count > QN_TENSOR_RANK)
        return graph_fail(g, op, "%d axes: at most %d", axes.count, QN_TENSOR_RANK), false;
    for (int i = 0; i < axes.count; i++) {
        int axis = tensor_axis(g, op, x, axes.axes[i]);
        if (axis < 0) return false;
        if (*set >> axis & 1) return graph_fail(g, op, "axis %d is given twice", axes.axes[i]), false;
        *set |= 1u << axis;
    }
    return true;
}

/* ---- reshape ---- */

node tensor_reshape(graph *g, node x, const shape *s)
{
    if (!x) return 0;
    shape wanted = *s;
    int open = -1;
    int64_t rest = 1;
    for (int k = 0; k < s->rank && k < GRAPH_RANK; k++) {
        if (s->extents[k] != -1) {
            if (s->extents[k] < 0 || __builtin_mul_overflow(rest, s->extents[k], &rest)) return graph_reshape(g, x, s);
            continue;
        }
        if (open >= 0) return graph_fail(g, "reshape", "%s: only one extent can be left open", graph_shape_words(g, s));
        open = k;
    }
    if (open >= 0) {
        int64_t count = shape_count(tensor_shape(g, x));
        if (!rest || count % rest)
            return graph_fail(g, "reshape", "%s has %lld elements, which %s does not divide", tensor_words(g, x),
                              (long long)count, graph_shape_words(g, s));
        wanted.extents[open] = count / rest;
    }
    return graph_reshape(g, x, &wanted);
}

node tensor_drop(graph *g, node x, unsigned set)
{
    if (!x) return 0;
    const shape *s = tensor_shape(g, x);
    shape left = {0};
    for (int k = 0; k < s->rank; k++)
        if (!(set >> k & 1)) left.extents[left.rank++] = s->extents[k];
    return graph_reshape(g, x, &left);
}

node tensor_insert(graph *g, node x, int axis)
{
    if (!x) return 0;
    const shape *s = tensor_shape(g, x);
    shape more = {.rank = s->rank + 1};
    if (s->rank == GRAPH_RANK)
        return graph_fail(g, "unsqueeze", "%s has no room for one more axis", tensor_words(g, x));
    for (int k = 0; k < more.rank; k++) more.extents[k] = k < axis ? s->extents[k] : k == axis ? 1 : s->extents[k - 1];
    return graph_reshape(g, x, &more);
}

qn_tensor qn_reshape(qn_tensor x, qn_shape extents)
{
    node n;
    qn_tape *tape = tape_begin("reshape", &x, 1, &n);
    if (!tape) return tape_failed();
    shape s = shape_from_public(extents);
    return tape_handle(tape, tensor_reshape(tape->graph, n, &s));
}

qn_tensor qn_flatten(qn_tensor x, int first, int last)
{
    node n;
    qn_tape *tape = tape_begin("flatten", &x, 1, &n);
    if (!tape) return tape_failed();
    graph *g = tape->graph;
    const shape *s = tensor_shape(g, n);
    if (!s->rank) return tape_handle(tape, graph_reshape(g, n, &(shape){1, {1}}));
    first = tensor_axis(g, "flatten", n, first);
    last = tensor_axis(g, "flatten", n, last);
    if (first < 0 || last < 0) return tape_failed();
    if (first > last)
        return graph_fail(g, "flatten", "axis %d does not come before axis %d", first, last), tape_failed();
    shape flat = {0};
    for (int k = 0; k < s->rank; k++) {
        if (k > first && k <= last)
            flat.extents[flat.rank - 1] *= s->extents[k];
        else
            flat.extents[flat.rank++] = s->extents[k];
    }
    return tape_handle(tape, graph_reshape(g, n, &flat));
}

qn_tensor qn_squeeze(qn_tensor x, qn_axes axes)
{
    node n;
    unsigned set;
    qn_tape *tape = tape_begin("squeeze", &x, 1, &n);
    if (!tape || !tensor_axis_set(tape->graph, "squeeze", n, axes, &set)) return tape_failed();
    for (int k = 0; k < tensor_shape(tape->graph, n)->rank; k++)
        if (tensor_shape(tape->graph, n)->extents[k] != 1) set &= ~(1u << k);
    return tape_handle(tape, tensor_drop(tape->graph, n, set));
}

qn_tensor qn_unsqueeze(qn_tensor x, int axis)
{
    node n;
    qn_tape *tape = tape_begin("unsqueeze", &x, 1, &n);
    if (!tape) return tape_failed();
    int rank = tensor_shape(tape->graph, n)->rank;
    if (axis < -rank - 1 || axis > rank)
        return graph_fail(tape->graph, "unsqueeze", "axis %d does not fit between the axes of %s", axis,
                          tensor_words(tape->graph, n)),
               tape_failed();
    return tape_handle(tape, tensor_insert(tape->graph, n, axis < 0 ? axis + rank + 1 : axis));
}

/* ---- order of axes, broadcasting ---- */

node tensor_swap(graph *g, node x, int a, int b)
{
    if (!x) return 0;
    int axes[GRAPH_RANK];
    for (int k = 0; k < GRAPH_RANK; k++) axes[k] = k == a ? b : k == b ? a : k;
    return graph_permute(g, x, axes);
}

qn_tensor qn_permute(qn_tensor x, qn_axes order)
{
    node n;
    qn_tape *tape = tape_begin("permute", &x, 1, &n);
    if (!tape) return tape_failed();
    graph *g = tape->graph;
    int rank = tensor_shape(g, n)->rank, axes[GRAPH_RANK];
    if (order.count != rank)
        return graph_fail(g, "permute", "%d axes for a tensor of shape %s", order.count, tensor_words(g, n)),
               tape_failed();
    for (int k = 0; k < rank; k++)
        if ((axes[k] = tensor_axis(g, "permute", n, order.axes[k])) < 0) return tape_failed();
    return tape_handle(tape, graph_permute(g, n, axes));
}

qn_tensor qn_transpose(qn_tensor x, int a, int b)
{
    node n;
    qn_tape *tape = tape_begin("transpose", &x, 1, &n);
    if (!tape) return tape_failed();
    a = tensor_axis(tape->graph, "transpose", n, a);
    b = tensor_axis(tape->graph, "transpose", n, b);
    if (a < 0 || b < 0) return tape_failed();
    return tape_handle(tape, tensor_swap(tape->graph, n, a, b));
}

qn_tensor qn_expand(qn_tensor x, qn_shape extents)
{
    node n;
    qn_tape *tape = tape_begin("expand", &x, 1, &n);
    if (!tape) return tape_failed();
    shape s = shape_from_public(extents);
    const shape *from = tensor_shape(tape->graph, n);
    for (int k = 0; k < s.rank && s.rank <= GRAPH_RANK; k++)
        if (s.extents[k] == -1 && k >= s.rank - from->rank) s.extents[k] = from->extents[k - (s.rank - from->rank)];
    if (!graph_shape_fits(tape->graph, "expand", &s)) return tape_failed();
    return tape_handle(tape, tensor_broadcast(tape->graph, "expand", n, &s));
}

/* ---- parts ---- */

static int64_t clamped(int64_t at, int64_t low, int64_t high)
{
    return at < low ? low : at > high ? high : at;
}

static node slice_axis(graph *g, node x, int axis, int64_t start, int64_t count, int64_t step)
{
    shape s = *tensor_shape(g, x);
    int64_t starts[GRAPH_RANK] = {0}, steps[GRAPH_RANK];
    for (int k = 0; k < GRAPH_RANK; k++) steps[k] = 1;
    starts[axis] = start;
    steps[axis] = step;
    s.extents[axis] = count;
    return graph_slice(g, x, starts, steps, &s);
}

/* Python's rules: negative positions count from the end, what sticks out is cut off. */
node tensor_slice(graph *g, node x, int axis, int64_t start, int64_t stop, int64_t step)
{
    if (!x || axis < 0) return 0;
    if (!step) return graph_fail(g, "slice", "the step is 0");
    int64_t extent = tensor_shape(g, x)->extents[axis];
    int64_t low = step > 0 ? 0 : -1, high = step > 0 ? extent : extent - 1;
    start = clamped(start < 0 ? start + extent : start, low, high);
    stop = clamped(stop < 0 ? stop + extent : stop, low, high);
    int64_t span = step > 0 ? stop - start : start - stop, stride = step > 0         ? step
                                                                    : step < -extent ? extent + 1
                                                                                     : -step;
    int64_t count = span <= 0 ? 0 : (span - 1) / stride + 1;
    return slice_axis(g, x, axis, count ? start : 0, count, count > 1 ? step : 1);
}

qn_tensor qn_slice(qn_tensor x, int axis, int64_t start, int64_t stop, int64_t step)
{
    node n;
    qn_tape *tape = tape_begin("slice", &x, 1, &n);
    if (!tape) return tape_failed();
    axis = tensor_axis(tape->graph, "slice", n, axis);
    return tape_handle(tape, tensor_slice(tape->graph, n, axis, start, stop, step));
}

qn_tensor qn_index(qn_tensor x, int axis, int64_t position)
{
    node n;
    qn_tape *tape = tape_begin("index", &x, 1, &n);
    if (!tape) return tape_failed();
    graph *g = tape->graph;
    axis = tensor_axis(g, "index", n, axis);
    if (axis < 0) return tape_failed();
    int64_t extent = tensor_shape(g, n)->extents[axis];
    if (position < -extent || position >= extent)
        return graph_fail(g, "index", "position %lld is not in axis %d of %s", (long long)position, axis,
                          tensor_words(g, n)),
               tape_failed();
    return tape_handle(
        tape, tensor_drop(g, slice_axis(g, n, axis, position < 0 ? position + extent : position, 1, 1), 1u << axis));
}

node tensor_turn(graph *g, node x, unsigned set)
{
    if (!x) return 0;
    shape s = *tensor_shape(g, x);
    int64_t start[GRAPH_RANK] = {0}, step[GRAPH_RANK];
    for (int k = 0; k < GRAPH_RANK; k++) {
        bool back = set >> k & 1;
        step[k] = back ? -1 : 1;
        if (back && s.extents[k]) start[k] = s.extents[k] - 1;
    }
    return graph_slice(g, x, start, step, &s);
}

qn_tensor qn_flip(qn_tensor x, qn_axes axes)
{
    node n;
    unsigned set;
    qn_tape *tape = tape_begin("flip", &x, 1, &n);
    if (!tape || !tensor_axis_set(tape->graph, "flip", n, axes, &set)) return tape_failed();
    return tape_handle(tape, tensor_turn(tape->graph, n, set));
}

qn_tensor qn_window(qn_tensor x, int axis, int64_t size, int64_t stride, int64_t dilation)
{
    node n;
    qn_tape *tape = tape_begin("window", &x, 1, &n);
    if (!tape) return tape_failed();
    axis = tensor_axis(tape->graph, "window", n, axis);
    if (axis < 0) return tape_failed();
    return tape_handle(tape, graph_window(tape->graph, n, axis, size, stride, dilation));
}

/* True when the pieces fill the axis; else the error is recorded. */
static bool pieces_fill(graph *g, node x, int axis, const int64_t *sizes, int count)
{
    int64_t total = 0, extent = tensor_shape(g, x)->extents[axis];
    bool fits = count >= 0;
    for (int i = 0; i < count && fits; i++) fits = sizes[i] >= 0 && (total += sizes[i]) <= extent;
    if (!fits || total != extent)
        return graph_fail(g, "split", "the %d sizes do not add up to the %lld of axis %d of %s", count,
                          (long long)extent, axis, tensor_words(g, x)),
               false;
    return true;
}

static void split(qn_tape *tape, node n, int axis, const int64_t *sizes, int count, qn_tensor *pieces)
{
    int64_t at = 0;
    if (!pieces_fill(tape->graph, n, axis, sizes, count)) return;
    for (int i = 0; i < count; at += sizes[i++])
        pieces[i] = tape_handle(tape, slice_axis(tape->graph, n, axis, at, sizes[i], 1));
}

void qn_split(qn_tensor x, int axis, const int64_t *sizes, int count, qn_tensor *pieces)
{
    node n;
    if (!tape_array(x.tape, "split", pieces, count)) return;
    for (int i = 0; i < count; i++) pieces[i] = (qn_tensor){.tape = x.tape};
    if (!tape_array(x.tape, "split", sizes, count)) return;
    qn_tape *tape = tape_begin("split", &x, 1, &n);
    if (!tape || (axis = tensor_axis(tape->graph, "split", n, axis)) < 0) return;
    split(tape, n, axis, sizes, count, pieces);
}

void qn_chunk(qn_tensor x, int axis, int count, qn_tensor *pieces)
{
    node n;
    if (!tape_array(x.tape, "chunk", pieces, count)) return;
    for (int i = 0; i < count; i++) pieces[i] = (qn_tensor){.tape = x.tape};
    qn_tape *tape = tape_begin("chunk", &x, 1, &n);
    if (!tape || (axis = tensor_axis(tape->graph, "chunk", n, axis)) < 0) return;
    if (count < 1) {
        graph_fail(tape->graph, "chunk", "%d chunks: at least 1", count);
        return;
    }
    int64_t extent = tensor_shape(tape->graph, n)->extents[axis], each = (extent + count - 1) / count, at = 0;
    for (int i = 0; i < count; i++) {
        int64_t size = MINIMUM(each, extent - at);
        pieces[i] = tape_handle(tape, slice_axis(tape->graph, n, axis, size ? at : 0, size, 1));
        at += size;
    }
}

void qn_unbind(qn_tensor x, int axis, int count, qn_tensor *pieces)
{
    node n;
    if (!tape_array(x.tape, "unbind", pieces, count)) return;
    for (int i = 0; i < count; i++) pieces[i] = (qn_tensor){.tape = x.tape};
    qn_tape *tape = tape_begin("unbind", &x, 1, &n);
    if (!tape || (axis = tensor_axis(tape->graph, "unbind", n, axis)) < 0) return;
    if (count != tensor_shape(tape->graph, n)->extents[axis]) {
        graph_fail(tape->graph, "unbind", "%d pieces of axis %d of %s", count, axis, tensor_words(tape->graph, n));
        return;
    }
    for (int i = 0; i < count; i++)
        pieces[i] = tape_handle(tape, tensor_drop(tape->graph, slice_axis(tape->graph, n, axis, i, 1, 1), 1u << axis));
}

/* ---- joins ---- */

node tensor_pad(graph *g, node x, const int64_t *before, const int64_t *after, double value)
{
    if (!x) return 0;
    shape s = *tensor_shape(g, x);
    for (int k = 0; k < s.rank; k++)
        if (__builtin_add_overflow(s.extents[k], before[k], &s.extents[k]) ||
            __builtin_add_overflow(s.extents[k], after[k], &s.extents[k]))
            return graph_fail(g, "pad", "the padding of axis %d is out of range", k);
    dtype elem = tensor_elem(g, x);
    return graph_pad(g, x, before, NULL, &s, scalar_from_double(elem, value));
}

qn_tensor qn_pad(qn_tensor x, qn_shape before, qn_shape after, double value)
{
    node n;
    qn_tape *tape = tape_begin("pad", &x, 1, &n);
    if (!tape) return tape_failed();
    int rank = tensor_shape(tape->graph, n)->rank;
    if (before.rank != rank || after.rank != rank)
        return graph_fail(tape->graph, "pad", "padding before %d and after %d axes of a tensor of shape %s",
                          before.rank, after.rank, tensor_words(tape->graph, n)),
               tape_failed();
    return tape_handle(tape, tensor_pad(tape->graph, n, before.extents, after.extents, value));
}

/* The operands of a list, converted to their common type; NULL with the error recorded if one is not good. */
static qn_tape *list_begin(const char *op, const qn_tensor *tensors, int count, arena **scratch, node **nodes)
{
    *scratch = arena_new();
    *nodes = ARENA_ARRAY(*scratch, node, MAXIMUM(count, 1));
    qn_tape *tape = tape_begin(op, tensors, count, *nodes);
    if (!tape) return NULL;
    dtype elem = tensor_promote(tape->graph, op, *nodes, count);
    if (elem == DT_COUNT) return NULL;
    for (int i = 0; i < count; i++) (*nodes)[i] = tensor_convert(tape->graph, (*nodes)[i], elem);
    return tape;
}

qn_tensor qn_concat(const qn_tensor *tensors, int count, int axis)
{
    arena *scratch;
    node *nodes;
    qn_tensor out = {0};
    qn_tape *tape = list_begin("concat", tensors, count, &scratch, &nodes);
    if (tape && (axis = tensor_axis(tape->graph, "concat", nodes[0], axis)) >= 0)
        out = tape_handle(tape, graph_concat(tape->graph, nodes, count, axis));
    arena_free(scratch);
    return out;
}

qn_tensor qn_stack(const qn_tensor *tensors, int count, int axis)
{
    arena *scratch;
    node *nodes;
    qn_tensor out = {0};
    qn_tape *tape = list_begin("stack", tensors, count, &scratch, &nodes);
    if (tape) {
        graph *g = tape->graph;
        int rank = tensor_shape(g, nodes[0])->rank;
        if (axis < -rank - 1 || axis > rank)
            graph_fail(g, "stack", "axis %d does not fit between the axes of %s", axis, tensor_words(g, nodes[0]));
        if (axis < 0) axis += rank + 1;
        for (int i = 0; i < count; i++) {
            if (!shape_same(tensor_shape(g, nodes[i]), tensor_shape(g, nodes[0])))
                graph_fail(g, "stack", "shapes %s and %s differ", tensor_words(g, nodes[0]), tensor_words(g, nodes[i]));
        }
        for (int i = 0; i < count && !g->status; i++) nodes[i] = tensor_insert(g, nodes[i], axis);
        if (!g->status) out = tape_handle(tape, graph_concat(g, nodes, count, axis));
    }
    arena_free(scratch);
    return out;
}

/* One axis after the other, as [outer][1][axis and what is inside] expanded in the middle: any rank fits. */
static node repeat(graph *g, node x, const shape *counts)
{
    shape s = {.rank = counts->rank};
    int more = counts->rank - tensor_shape(g, x)->rank;
    for (int k = 0; k < s.rank; k++) s.extents[k] = k < more ? 1 : tensor_shape(g, x)->extents[k - more];
    for (int k = 0; k < s.rank; k++) {
        if (counts->extents[k] == 1) continue;
        shape parts = {3, {1, 1, 1}};
        for (int j = 0; j < s.rank; j++) parts.extents[j < k ? 0 : 2] *= s.extents[j];
        x = graph_reshape(g, x, &parts);
        parts.extents[1] = counts->extents[k];
        x = graph_expand(g, x, &parts);
        s.extents[k] *= counts->extents[k];
        if (!x || !graph_shape_fits(g, "repeat", &s)) return 0;
    }
    return graph_reshape(g, x, &s);
}

qn_tensor qn_repeat(qn_tensor x, qn_shape counts)
{
    node n;
    qn_tape *tape = tape_begin("repeat", &x, 1, &n);
    if (!tape) return tape_failed();
    shape s = shape_from_public(counts);
    if (!graph_shape_fits(tape->graph, "repeat", &s)) return tape_failed();
    if (s.rank < tensor_shape(tape->graph, n)->rank)
        return graph_fail(tape->graph, "repeat", "%d counts for a tensor of shape %s", s.rank,
                          tensor_words(tape->graph, n)),
               tape_failed();
    return tape_handle(tape, repeat(tape->graph, n, &s));
}
