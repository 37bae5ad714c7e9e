/*
 * Softmax, norms and attention as compositions. In: handles. Out: maxima, sums, exponentials, products: nothing that
 * fusion would have to know by name. They work in f32 (f64 of f64) and round once, at the end; the maximum that softmax
 * subtracts is detached, since the result does not depend on it.
 * SPDX-License-Identifier: MIT
 */
#include "tensor/ops.h"

#include "ir/graph_build.h"

#include <math.h>

static node spread(graph *g, node x, node like)
{
    return x ? graph_expand(g, x, tensor_shape(g, like)) : 0;
}

/* x less the greatest element along the axis; f32 or f64. */
static node below_most(graph *g, node x, unsigned set)
{
    node most = graph_same(g, GRAPH_DETACH, graph_reduce(g, FOLD_MAX, x, set), 0);
    return graph_binary(g, OP_SUB, x, spread(g, most, x));
}

static node wide_softmax(graph *g, node x, unsigned set)
{
    node power = graph_unary(g, OP_EXP, below_most(g, x, set));
    return graph_binary(g, OP_DIV, power, spread(g, graph_reduce(g, FOLD_SUM, power, set), power));
}

/* An axis without elements has no maximum, and nothing to do. */
static bool nothing(const graph *g, node x)
{
    return !shape_count(tensor_shape(g, x));
}

node tensor_softmax(graph *g, node x, int axis)
{
    if (!x || axis < 0) return 0;
    dtype elem = tensor_elem(g, tensor_float(g, x));
    if (nothing(g, x)) return tensor_convert(g, x, elem);
    return tensor_convert(g, wide_softmax(g, tensor_wide(g, x), 1u << axis), elem);
}

node tensor_log_softmax(graph *g, node x, int axis)
{
    if (!x || axis < 0) return 0;
    dtype elem = tensor_elem(g, tensor_float(g, x));
    if (nothing(g, x)) return tensor_convert(g, x, elem);
    unsigned set = 1u << axis;
    node below = below_most(g, tensor_wide(g, x), set);
    node total = graph_unary(g, OP_LOG, graph_reduce(g, FOLD_SUM, graph_unary(g, OP_EXP, below), set));
    return tensor_convert(g, graph_binary(g, OP_SUB, below, spread(g, total, below)), elem);
}

qn_tensor qn_softmax(qn_tensor x, int axis)
{
    node n;
    qn_tape *tape = tape_begin("softmax", &x, 1, &n);
    if (!tape) return tape_failed();
    return tape_handle(tape, tensor_softmax(tape->graph, n, tensor_axis(tape->graph, "softmax", n, axis)));
}

qn_tensor qn_log_softmax(qn_tensor x, int axis)
{
    node n;
    qn_tape *tape = tape_begin("log_softmax", &x, 1, &n);
    if (!tape) return tape_failed();
    return tape_handle(tape, tensor_log_softmax(tape->graph, n, tensor_axis(tape->graph, "log_softmax", n, axis)));
}

/* ---- norms ---- */

/* The last axes, which must have these extents; weight and bias (0: none) must have them too. */
static bool norm_axes(graph *g, const char *op, node x, const shape *normalized, node weight, node bias, unsigned *set)
{
    const shape *s = tensor_shape(g, x);
    bool fits = normalized->rank >= 1 && normalized->rank <= s->rank;
    *set = 0;
    for (int k = 0; k < normalized->rank && fits; k++) {
        int axis = s->rank - normalized->rank + k;
        fits = s->extents[axis] == normalized->extents[k];
        *set |= 1u << axis;
    }
    if (!fits)
        return graph_fail(g, op, "%s does not end in the axes %s", tensor_words(g, x),
                          graph_shape_words(g, normalized)),
               false;
    node given[2] = {weight, bias};
    for (int i = 0; i < 2; i++)
        if (given[i] && !shape_same(tensor_shape(g, given[i]), normalized))
            return graph_fail(g, op, "the %s is %s, it should be %s", i ? "bias" : "weight", tensor_words(g, given[i]),
                              graph_shape_words(g, normalized)),
                   false;
    return true;
}

/* x / sqrt(mean(x^2) + epsilon) * weight + bias in the wide type. */
static node scale_rows(graph *g, node x, unsigned set, node weight, node bias, double epsilon)
{
    node power = tensor_mean(g, graph_binary(g, OP_MUL, x, x), set);
    node factor = graph_unary(g, OP_RSQRT, tensor_scalar(g, OP_ADD, power, epsilon, false));
    node y = graph_binary(g, OP_MUL, x, spread(g, factor, x));
    if (weight) y = tensor_binary(g, OP_MUL, y, tensor_wide(g, weight));
    return bias ? tensor_binary(g, OP_ADD, y, tensor_wide(g, bias)) : y;
}

qn_tensor qn_layer_norm(qn_tensor x, qn_shape normalized, qn_tensor weight, qn_tensor bias, double epsilon)
{
    qn_tensor operands[3] = {x};
    int count = 1, weight_at = 0, bias_at = 0;
    if (weight.tape) operands[weight_at = count++] = weight;
    if (bias.tape) operands[bias_at = count++] = bias;
    node n[3];
    qn_tape *tape = tape_begin("layer_norm", operands, count, n);
    if (!tape) return tape_failed();
    graph *g = tape->graph;
    node w = weight_at ? n[weight_at] : 0, b = bias_at ? n[bias_at] : 0, wide = tensor_wide(g, n[0]);
    shape s = shape_from_public(normalized);
    unsigned set;
    if (!norm_axes(g, "layer_norm", n[0], &s, w, b, &set)) return tape_failed();
    node centred = graph_binary(g, OP_SUB, wide, spread(g, tensor_mean(g, wide, set), wide));
    node y = scale_rows(g, centred, set, w, b, epsilon);
    return tape_handle(tape, tensor_convert(g, y, tensor_elem(g, tensor_float(g, n[0]))));
}

qn_tensor qn_rms_norm(qn_tensor x, qn_shape normalized, qn_tensor weight, double epsilon)
{
    node n[2] = {0};
    qn_tape *tape = tape_begin("rms_norm", (qn_tensor[]){x, weight}, 1 + (weight.tape != NULL), n);
    if (!tape) return tape_failed();
    graph *g = tape->graph;
    shape s = shape_from_public(normalized);
    unsigned set;
    if (!norm_axes(g, "rms_norm", n[0], &s, n[1], 0, &set)) return tape_failed();
    node y = scale_rows(g, tensor_wide(g, n[0]), set, n[1], 0, epsilon);
    return tape_handle(tape, tensor_convert(g, y, tensor_elem(g, tensor_float(g, n[0]))));
}

static node drop(qn_tape *tape, node n, double p)
{
    graph *g = tape->graph;
    if (!n) return 0;
    if (!(p >= 0 && p <= 1)) return graph_fail(g, "dropout", "p is %g: it must be from 0 to 1", p);
    if (!dtype_is_float(tensor_elem(g, n)))
        return graph_fail(g, "dropout", "it does not take %s: cast it", dtypes[tensor_elem(g, n)].text);
    if (p == 0) return n;
    if (p == 1) return tensor_number(g, n, 0);
    shape s = *tensor_shape(g, n);
    node kept = tensor_kept(tape, &s, p);
    node scaled = tensor_scalar(g, OP_MUL, n, 1 / (1 - p), false);
    return graph_select(g, kept, scaled, tensor_number(g, scaled, 0));
}

qn_tensor qn_dropout(qn_tensor x, double p)
{
    node n;
    qn_tape *tape = tape_begin("dropout", &x, 1, &n);
    return tape ? tape_handle(tape, drop(tape, n, p)) : tape_failed();
}

/* ---- attention ---- */

/* Where row i may look at column j: j <= i. */
static node causal_mask(graph *g, int64_t rows, int64_t columns)
{
    node i = tensor_insert(g, graph_iota(g, rows), 1), j = tensor_insert(g, graph_iota(g, columns), 0);
    return tensor_binary(g, OP_LE, j, i);
}

/* Scores in f32 where looking is forbidden: minus infinity. */
static node forbid(graph *g, node scores, node allowed)
{
    return scores ? tensor_where(g, allowed, scores, tensor_number(g, scores, -INFINITY)) : 0;
}

/* Batches broadcast; halves give f32. */
static node scores_of(graph *g, node q, node k, product_way way)
{
    dtype elem = tensor_elem(g, q);
    if (!dtype_is_narrow(elem)) return tensor_matmul(g, q, k, way);
    node narrow = tensor_matmul(g, q, k, way);
    if (!narrow) return 0;
    /* The same product, its sums kept in f32: matmul's DOT (under a reshape, if rows were joined) asked for once more. */
    const graph_node *top = graph_get(g, narrow);
    shape s = top->shape;
    const graph_node *dot = top->code == GRAPH_RESHAPE ? graph_get(g, top->inputs[0]) : top;
    return graph_reshape(g, graph_dot(g, dot->inputs[0], dot->inputs[1], DT_F32, false), &s);
}

qn_tensor tensor_attention(qn_tensor q, qn_tensor k, qn_tensor v, qn_tensor mask, bool causal, double scale,
                           double dropout)
{
    const char *op = "scaled_dot_product_attention";
    node n[4] = {0};
    qn_tape *tape = tape_begin(op, (qn_tensor[]){q, k, v, mask}, 3 + (mask.tape != NULL), n);
    if (!tape) return tape_failed();
    graph *g = tape->graph;
    const shape *s[3] = {tensor_shape(g, n[0]), tensor_shape(g, n[1]), tensor_shape(g, n[2])};
    bool fits = s[0]->rank >= 2 && s[1]->rank >= 2 && s[2]->rank >= 2;
    if (!fits || s[0]->extents[s[0]->rank - 1] != s[1]->extents[s[1]->rank - 1] ||
        s[1]->extents[s[1]->rank - 2] != s[2]->extents[s[2]->rank - 2])
        return graph_fail(g, op, "q %s, k %s, v %s: they should be [..][L][E], [..][S][E] and [..][S][D]",
                          tensor_words(g, n[0]), tensor_words(g, n[1]), tensor_words(g, n[2])),
               tape_failed();
    dtype elem = tensor_promote(g, op, n, 3);
    if (elem == DT_COUNT) return tape_failed();
    if (!dtype_is_float(elem))
        return graph_fail(g, op, "it does not take %s: cast it", dtypes[elem].text), tape_failed();
    for (int i = 0; i < 3; i++) n[i] = tensor_convert(g, n[i], elem);
    int k_rank = s[1]->rank;
    if (scale == 0) scale = 1 / sqrt((double)s[0]->extents[s[0]->rank - 1]);
    node scores = scores_of(g, n[0], tensor_swap(g, n[1], k_rank - 2, k_rank - 1), tape->products);
    scores = tensor_scalar(g, OP_MUL, scores, scale, false);
    if (!scores) return tape_failed();
    int rank = tensor_shape(g, scores)->rank;
    if (causal)
        scores = forbid(
            g, scores,
            causal_mask(g, tensor_shape(g, scores)->extents[rank - 2], tensor_shape(g, scores)->extents[rank - 1]));
    if (n[3] && tensor_elem(g, n[3]) == DT_BOOL)
        scores = forbid(g, scores, n[3]);
    else if (n[3])
        scores = tensor_binary(g, OP_ADD, scores, tensor_convert(g, n[3], tensor_elem(g, scores)));
    if (!scores) return tape_failed();
    node weights = tensor_softmax(g, scores, tensor_shape(g, scores)->rank - 1);
    if (dropout != 0) weights = drop(tape, weights, dropout);
    return tape_handle(tape, tensor_matmul(g, tensor_convert(g, weights, elem), n[2], tape->products));
}

qn_tensor qn_scaled_dot_product_attention(qn_tensor q, qn_tensor k, qn_tensor v, qn_tensor mask, bool causal,
                                          double scale)
{
    return tensor_attention(q, k, v, mask, causal, scale, 0);
}
