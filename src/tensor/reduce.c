/*
 * Reductions, scans and order. In: handles, axes. Out: REDUCE, SCAN and ARGSORT nodes and what is composed of them.
 * Means, variances and log-sum-exp work in f32 (f64 of f64) and are rounded to the operand's type once, at the end;
 * a variance is the mean of squared distances from the mean, in two passes.
 * SPDX-License-Identifier: MIT
 */
#include "tensor/ops.h"

#include <math.h>

/* ---- on nodes: reduced axes stay as 1 ---- */

static dtype sum_elem(dtype elem)
{
    return dtype_is_float(elem) ? elem : dtypes[elem].kind == KIND_UINT ? DT_U64 : DT_I64;
}

node tensor_sum(graph *g, node x, unsigned set)
{
    return x ? graph_reduce(g, FOLD_SUM, tensor_convert(g, x, sum_elem(tensor_elem(g, x))), set) : 0;
}

static int64_t reduced_count(const graph *g, node x, unsigned set)
{
    int64_t count = 1;
    for (int k = 0; k < tensor_shape(g, x)->rank; k++)
        if (set >> k & 1) count *= tensor_shape(g, x)->extents[k];
    return count;
}

node tensor_mean(graph *g, node x, unsigned set)
{
    if (!x) return 0;
    dtype elem = tensor_elem(g, tensor_float(g, x));
    int64_t count = reduced_count(g, x, set);
    node total = graph_reduce(g, FOLD_SUM, tensor_wide(g, x), set);
    return tensor_convert(g, graph_binary(g, OP_DIV, total, tensor_number(g, total, (double)count)), elem);
}

static node extreme(graph *g, fold_kind fold, node x, unsigned set)
{
    if (x && tensor_elem(g, x) == DT_BOOL) fold = fold == FOLD_MAX ? FOLD_ANY : FOLD_ALL;
    return graph_reduce(g, fold, x, set);
}

node tensor_max(graph *g, node x, unsigned set)
{
    return extreme(g, FOLD_MAX, x, set);
}

node tensor_root(graph *g, node x)
{
    node zero = graph_binary(g, OP_EQ, x, tensor_number(g, x, 0));
    node safe = graph_select(g, zero, tensor_number(g, x, 1), x);
    return graph_select(g, zero, tensor_number(g, x, 0), graph_unary(g, OP_SQRT, safe));
}

/* Of f32 or f64. The greatest element is subtracted first, unless it is infinite; gradients need not pass it. Of no elements
 * it is the logarithm of an empty sum. */
node tensor_logsumexp(graph *g, node x, unsigned set)
{
    if (!x) return 0;
    if (!reduced_count(g, x, set)) return graph_unary(g, OP_LOG, graph_reduce(g, FOLD_SUM, x, set));
    node most = graph_same(g, GRAPH_DETACH, graph_reduce(g, FOLD_MAX, x, set), 0);
    if (!most) return 0;
    most = graph_select(g, graph_unary(g, OP_ISINF, most), tensor_number(g, most, 0), most);
    node terms = graph_unary(g, OP_EXP, graph_binary(g, OP_SUB, x, graph_expand(g, most, tensor_shape(g, x))));
    return graph_binary(g, OP_ADD, graph_unary(g, OP_LOG, graph_reduce(g, FOLD_SUM, terms, set)), most);
}

static node variance(graph *g, node x, unsigned set, double correction)
{
    node wide = tensor_wide(g, x), middle = tensor_mean(g, wide, set);
    if (!middle) return 0;
    node distance = graph_binary(g, OP_SUB, wide, graph_expand(g, middle, tensor_shape(g, wide)));
    node total = graph_reduce(g, FOLD_SUM, graph_binary(g, OP_MUL, distance, distance), set);
    double over = fmax(0, (double)reduced_count(g, x, set) - correction);
    return graph_binary(g, OP_DIV, total, tensor_number(g, total, over));
}

node tensor_norm(graph *g, node x, unsigned set, double p)
{
    x = tensor_wide(g, x);
    node size = graph_unary(g, OP_ABS, x);
    if (p == 2) return tensor_root(g, graph_reduce(g, FOLD_SUM, graph_binary(g, OP_MUL, x, x), set));
    if (p == 1) return graph_reduce(g, FOLD_SUM, size, set);
    if (p == INFINITY) return graph_reduce(g, FOLD_MAX, size, set);
    if (p == -INFINITY) return graph_reduce(g, FOLD_MIN, size, set);
    if (p == 0) {
        node some = graph_binary(g, OP_NE, x, tensor_number(g, x, 0));
        return graph_reduce(g, FOLD_SUM, graph_convert(g, some, tensor_elem(g, x)), set);
    }
    node total = graph_reduce(g, FOLD_SUM, graph_binary(g, OP_POW, size, tensor_number(g, size, p)), set);
    return graph_binary(g, OP_POW, total, tensor_number(g, total, 1 / p));
}

/* ---- calls ---- */

typedef struct reduction {
    qn_tape *tape;
    graph *g;
    node x;
    unsigned set;
} reduction;

static bool begin(reduction *r, const char *op, qn_tensor x, qn_axes axes)
{
    r->tape = tape_begin(op, &x, 1, &r->x);
    if (!r->tape) return false;
    r->g = r->tape->graph;
    return tensor_axis_set(r->g, op, r->x, axes, &r->set);
}

static qn_tensor finish(const reduction *r, node n, bool keep)
{
    return tape_handle(r->tape, keep ? n : tensor_drop(r->g, n, r->set));
}

qn_tensor qn_sum(qn_tensor x, qn_axes axes, bool keep)
{
    reduction r;
    return begin(&r, "sum", x, axes) ? finish(&r, tensor_sum(r.g, r.x, r.set), keep) : tape_failed();
}

qn_tensor qn_prod(qn_tensor x, qn_axes axes, bool keep)
{
    reduction r;
    if (!begin(&r, "prod", x, axes)) return tape_failed();
    node wide = tensor_convert(r.g, r.x, sum_elem(tensor_elem(r.g, r.x)));
    return finish(&r, graph_reduce(r.g, FOLD_PROD, wide, r.set), keep);
}

qn_tensor qn_mean(qn_tensor x, qn_axes axes, bool keep)
{
    reduction r;
    return begin(&r, "mean", x, axes) ? finish(&r, tensor_mean(r.g, r.x, r.set), keep) : tape_failed();
}

qn_tensor qn_max(qn_tensor x, qn_axes axes, bool keep)
{
    reduction r;
    return begin(&r, "max", x, axes) ? finish(&r, extreme(r.g, FOLD_MAX, r.x, r.set), keep) : tape_failed();
}

qn_tensor qn_min(qn_tensor x, qn_axes axes, bool keep)
{
    reduction r;
    return begin(&r, "min", x, axes) ? finish(&r, extreme(r.g, FOLD_MIN, r.x, r.set), keep) : tape_failed();
}

static qn_tensor logical(const char *op, fold_kind fold, qn_tensor x, qn_axes axes, bool keep)
{
    reduction r;
    if (!begin(&r, op, x, axes)) return tape_failed();
    if (tensor_elem(r.g, r.x) != DT_BOOL) r.x = graph_binary(r.g, OP_NE, r.x, tensor_number(r.g, r.x, 0));
    return finish(&r, graph_reduce(r.g, fold, r.x, r.set), keep);
}

qn_tensor qn_any(qn_tensor x, qn_axes axes, bool keep)
{
    return logical("any", FOLD_ANY, x, axes, keep);
}

qn_tensor qn_all(qn_tensor x, qn_axes axes, bool keep)
{
    return logical("all", FOLD_ALL, x, axes, keep);
}

static qn_tensor position(const char *op, fold_kind fold, qn_tensor x, qn_axes axes, bool keep)
{
    reduction r;
    if (!begin(&r, op, x, axes)) return tape_failed();
    if (tensor_elem(r.g, r.x) == DT_BOOL) r.x = graph_convert(r.g, r.x, DT_U8);
    if (axes.count) return finish(&r, graph_reduce(r.g, fold, r.x, r.set), keep);
    shape flat = {1, {shape_count(tensor_shape(r.g, r.x))}}, ones = {.rank = keep ? tensor_shape(r.g, r.x)->rank : 0};
    for (int k = 0; k < ones.rank; k++) ones.extents[k] = 1;
    node place = graph_reduce(r.g, fold, graph_reshape(r.g, r.x, &flat), 1);
    return tape_handle(r.tape, graph_reshape(r.g, place, &ones));
}

qn_tensor qn_argmax(qn_tensor x, qn_axes axes, bool keep)
{
    return position("argmax", FOLD_ARGMAX, x, axes, keep);
}

qn_tensor qn_argmin(qn_tensor x, qn_axes axes, bool keep)
{
    return position("argmin", FOLD_ARGMIN, x, axes, keep);
}

/* Composed in the wide type, rounded to the operand's. */
static qn_tensor rounded(const reduction *r, node n, bool keep)
{
    return finish(r, tensor_convert(r->g, n, tensor_elem(r->g, tensor_float(r->g, r->x))), keep);
}

qn_tensor qn_var(qn_tensor x, qn_axes axes, double correction, bool keep)
{
    reduction r;
    return begin(&r, "var", x, axes) ? rounded(&r, variance(r.g, r.x, r.set, correction), keep) : tape_failed();
}

qn_tensor qn_std(qn_tensor x, qn_axes axes, double correction, bool keep)
{
    reduction r;
    if (!begin(&r, "std", x, axes)) return tape_failed();
    return rounded(&r, graph_unary(r.g, OP_SQRT, variance(r.g, r.x, r.set, correction)), keep);
}

qn_tensor qn_logsumexp(qn_tensor x, qn_axes axes, bool keep)
{
    reduction r;
    if (!begin(&r, "logsumexp", x, axes)) return tape_failed();
    return rounded(&r, tensor_logsumexp(r.g, tensor_wide(r.g, r.x), r.set), keep);
}

qn_tensor qn_norm(qn_tensor x, double p, qn_axes axes, bool keep)
{
    reduction r;
    return begin(&r, "norm", x, axes) ? rounded(&r, tensor_norm(r.g, r.x, r.set, p), keep) : tape_failed();
}

/* ---- scans ---- */

/* What a fold begins with, in a type. */
static number identity_of(fold_kind fold, dtype elem)
{
    if (fold == FOLD_SUM || fold == FOLD_PROD) {
        int64_t one = fold == FOLD_PROD;
        return dtype_is_float(elem) ? (number){.f = (double)one} : (number){.i = one};
    }
    bool least = fold == FOLD_MAX, is_signed = dtype_is_signed(elem);
    if (dtype_is_float(elem)) return (number){.f = least ? -INFINITY : INFINITY};
    int64_t lowest = is_signed ? (int64_t)(~0ull << (dtypes[elem].size_bytes * 8 - 1)) : 0;
    return (number){.i = integer_wrap(elem, least ? lowest : ~lowest)};
}

/* Backwards: turned round before and after. Exclusive: what is scanned is moved one place on, the fold's beginning in
 * front, so that one kernel does it. */
node tensor_scan(graph *g, fold_kind fold, node x, int axis, bool reverse, bool exclusive)
{
    if (!x) return 0;
    if (reverse) x = tensor_turn(g, x, 1u << axis);
    if (exclusive && x && tensor_shape(g, x)->extents[axis]) {
        int64_t before[GRAPH_RANK] = {0};
        shape s = *tensor_shape(g, x);
        before[axis] = 1;
        x = graph_pad(g, x, before, NULL, &s, identity_of(fold, tensor_elem(g, x)));
    }
    x = graph_scan(g, fold, x, axis);
    return reverse ? tensor_turn(g, x, 1u << axis) : x;
}

static qn_tensor scan(const char *op, fold_kind fold, qn_tensor x, int axis, bool reverse, bool exclusive)
{
    node n;
    qn_tape *tape = tape_begin(op, &x, 1, &n);
    if (!tape || (axis = tensor_axis(tape->graph, op, n, axis)) < 0) return tape_failed();
    if (fold == FOLD_SUM || fold == FOLD_PROD)
        n = tensor_convert(tape->graph, n, sum_elem(tensor_elem(tape->graph, n)));
    return tape_handle(tape, tensor_scan(tape->graph, fold, n, axis, reverse, exclusive));
}

#define SCAN(name, fold)                                                            \
    qn_tensor qn_##name(qn_tensor x, int axis)                                      \
    {                                                                               \
        return scan(#name, fold, x, axis, false, false);                            \
    }                                                                               \
    qn_tensor qn_##name##_with(qn_tensor x, int axis, bool reverse, bool exclusive) \
    {                                                                               \
        return scan(#name, fold, x, axis, reverse, exclusive);                      \
    }
SCAN(cumsum, FOLD_SUM)
SCAN(cumprod, FOLD_PROD)
SCAN(cummax, FOLD_MAX)
SCAN(cummin, FOLD_MIN)
#undef SCAN

/* ---- order ---- */

qn_tensor qn_argsort(qn_tensor x, int axis, bool descending)
{
    node n;
    qn_tape *tape = tape_begin("argsort", &x, 1, &n);
    if (!tape || (axis = tensor_axis(tape->graph, "argsort", n, axis)) < 0) return tape_failed();
    return tape_handle(tape, graph_argsort(tape->graph, n, axis, descending));
}

qn_tensor qn_sort(qn_tensor x, int axis, bool descending, qn_tensor *indices)
{
    node n;
    if (indices) *indices = (qn_tensor){.tape = x.tape};
    qn_tape *tape = tape_begin("sort", &x, 1, &n);
    if (!tape || (axis = tensor_axis(tape->graph, "sort", n, axis)) < 0) return tape_failed();
    node order = graph_argsort(tape->graph, n, axis, descending);
    if (indices) *indices = tape_handle(tape, order);
    return tape_handle(tape, graph_gather(tape->graph, n, order, axis));
}

qn_tensor qn_topk(qn_tensor x, int64_t k, int axis, bool largest, qn_tensor *indices)
{
    node n;
    if (indices) *indices = (qn_tensor){.tape = x.tape};
    qn_tape *tape = tape_begin("topk", &x, 1, &n);
    if (!tape || (axis = tensor_axis(tape->graph, "topk", n, axis)) < 0) return tape_failed();
    graph *g = tape->graph;
    if (k < 0 || k > tensor_shape(g, n)->extents[axis])
        return graph_fail(g, "topk", "%lld of axis %d of %s", (long long)k, axis, tensor_words(g, n)), tape_failed();
    node order = tensor_slice(g, graph_argsort(g, n, axis, largest), axis, 0, k, 1);
    if (indices) *indices = tape_handle(tape, order);
    return tape_handle(tape, graph_gather(g, n, order, axis));
}
