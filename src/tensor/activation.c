/*
 * Activations: functions of one element, with their numbers. In: handles. Out: comparisons, selects and MAP nodes, which
 * fuse with whatever is around them. They compute in f32 (f64 of f64) and round once, at the end.
 *
 * Corners are chosen by comparison and not by minimum or maximum: NaN stays NaN, the gradient at a corner is PyTorch's,
 * and the side that is not chosen is computed from a harmless number, so that its infinities never meet a gradient of 0.
 * SPDX-License-Identifier: MIT
 */
#include "tensor/ops.h"

/* What an activation makes of a wide x and its numbers. */
typedef node activation(graph *g, node x, const double *p);

static qn_tensor activate(const char *op, activation *how, qn_tensor x, double first, double second)
{
    node n;
    qn_tape *tape = tape_begin(op, &x, 1, &n);
    if (!tape) return tape_failed();
    graph *g = tape->graph;
    dtype elem = tensor_elem(g, tensor_float(g, n));
    return tape_handle(tape, tensor_convert(g, how(g, tensor_wide(g, n), (double[]){first, second}), elem));
}

static node with(graph *g, op_code code, node x, double s)
{
    return tensor_scalar(g, code, x, s, false);
}

static node positive(graph *g, node x)
{
    return with(g, OP_GT, x, 0);
}

/* slope * x below 0 */
static node of_leaky_relu(graph *g, node x, const double *p)
{
    return graph_select(g, positive(g, x), x, with(g, OP_MUL, x, p[0]));
}

/* scale * (x above 0, else alpha * (exp(x / width) - 1)) */
static node exponential(graph *g, node x, double scale, double alpha, double width)
{
    node above = positive(g, x), below = graph_select(g, above, tensor_number(g, x, 0), x);
    if (width != 1) below = with(g, OP_DIV, below, width);
    node curve = with(g, OP_MUL, graph_unary(g, OP_EXPM1, below), scale * alpha);
    return graph_select(g, above, scale == 1 ? x : with(g, OP_MUL, x, scale), curve);
}

static node of_elu(graph *g, node x, const double *p)
{
    return exponential(g, x, 1, p[0], 1);
}

static node of_celu(graph *g, node x, const double *p)
{
    return exponential(g, x, 1, p[0], p[0]);
}

/* Self-normalising networks: the two numbers keep mean 0 and variance 1. */
static node of_selu(graph *g, node x, const double *p)
{
    (void)p;
    return exponential(g, x, 1.0507009873554804934193349852946, 1.6732632423543772848170429916717, 1);
}

static node of_mish(graph *g, node x, const double *p)
{
    (void)p;
    return graph_binary(g, OP_MUL, x, graph_unary(g, OP_TANH, graph_unary(g, OP_SOFTPLUS, x)));
}

static node between(graph *g, node x, double low, double high)
{
    node upper = graph_select(g, with(g, OP_GE, x, high), tensor_number(g, x, high), x);
    return graph_select(g, with(g, OP_LE, x, low), tensor_number(g, x, low), upper);
}

static node of_hardtanh(graph *g, node x, const double *p)
{
    return between(g, x, p[0], p[1]);
}

static node of_relu6(graph *g, node x, const double *p)
{
    (void)p;
    return between(g, x, 0, 6);
}

static node of_hardsigmoid(graph *g, node x, const double *p)
{
    (void)p;
    return with(g, OP_DIV, between(g, with(g, OP_ADD, x, 3), 0, 6), 6);
}

static node of_hardswish(graph *g, node x, const double *p)
{
    return graph_binary(g, OP_MUL, x, of_hardsigmoid(g, x, p));
}

static node of_softsign(graph *g, node x, const double *p)
{
    (void)p;
    return graph_binary(g, OP_DIV, x, with(g, OP_ADD, graph_unary(g, OP_ABS, x), 1));
}

static node of_logsigmoid(graph *g, node x, const double *p)
{
    (void)p;
    return graph_unary(g, OP_NEG, graph_unary(g, OP_SOFTPLUS, graph_unary(g, OP_NEG, x)));
}

/* NaN is not below the threshold. */
static node of_threshold(graph *g, node x, const double *p)
{
    return graph_select(g, with(g, OP_LE, x, p[0]), tensor_number(g, x, p[1]), x);
}

#define ACTIVATION_0(name)                          \
    qn_tensor qn_##name(qn_tensor x)                \
    {                                               \
        return activate(#name, of_##name, x, 0, 0); \
    }
#define ACTIVATION_1(name, first)                       \
    qn_tensor qn_##name(qn_tensor x, double first)      \
    {                                                   \
        return activate(#name, of_##name, x, first, 0); \
    }
#define ACTIVATION_2(name, first, second)                         \
    qn_tensor qn_##name(qn_tensor x, double first, double second) \
    {                                                             \
        return activate(#name, of_##name, x, first, second);      \
    }
QN_ACTIVATION_LIST(ACTIVATION_0, ACTIVATION_1, ACTIVATION_2)

/* ---- with a tensor of numbers, or two halves ---- */

/* One slope for all, or one for each channel, which is the second axis (the only one of a vector). */
qn_tensor qn_prelu(qn_tensor x, qn_tensor weight)
{
    node n[2];
    qn_tape *tape = tape_begin("prelu", (qn_tensor[]){x, weight}, 2, n);
    if (!tape) return tape_failed();
    graph *g = tape->graph;
    const shape *s = tensor_shape(g, n[0]), *w = tensor_shape(g, n[1]);
    int channel = s->rank > 1;
    bool one = shape_count(w) == 1;
    if (!one && (w->rank != 1 || !s->rank || w->extents[0] != s->extents[channel]))
        return graph_fail(g, "prelu", "x %s, weight %s: the weight should be [1] or one number for each channel",
                          tensor_words(g, n[0]), tensor_words(g, n[1])),
               tape_failed();
    shape line = {.rank = s->rank};
    for (int k = 0; k < s->rank; k++) line.extents[k] = k == channel && !one ? s->extents[k] : 1;
    dtype elem = tensor_elem(g, tensor_float(g, n[0]));
    node wide = tensor_wide(g, n[0]);
    node slope = tensor_convert(g, graph_reshape(g, n[1], &line), tensor_elem(g, wide));
    node y = tensor_where(g, positive(g, wide), wide, tensor_binary(g, OP_MUL, wide, slope));
    return tape_handle(tape, tensor_convert(g, y, elem));
}

/* The two halves of an axis. */
static bool halves(graph *g, const char *op, node x, int axis, node *half)
{
    if ((axis = tensor_axis(g, op, x, axis)) < 0) return false;
    int64_t extent = tensor_shape(g, x)->extents[axis];
    if (extent % 2) return graph_fail(g, op, "axis %d of %s has no two halves", axis, tensor_words(g, x)), false;
    half[0] = tensor_slice(g, x, axis, 0, extent / 2, 1);
    half[1] = tensor_slice(g, x, axis, extent / 2, extent, 1);
    return true;
}

static node gated(graph *g, op_code how, node gate, node value, node other)
{
    dtype elem = tensor_elem(g, tensor_float(g, value));
    node x = tensor_binary(g, OP_MUL, graph_unary(g, how, tensor_wide(g, gate)), tensor_wide(g, other));
    return tensor_convert(g, x, elem);
}

qn_tensor qn_glu(qn_tensor x, int axis)
{
    node n, half[2];
    qn_tape *tape = tape_begin("glu", &x, 1, &n);
    if (!tape || !halves(tape->graph, "glu", n, axis, half)) return tape_failed();
    return tape_handle(tape, gated(tape->graph, OP_SIGMOID, half[1], n, half[0]));
}

qn_tensor qn_swiglu(qn_tensor x, qn_tensor gate, int axis)
{
    node n[2] = {0}, half[2];
    qn_tape *tape = tape_begin("swiglu", (qn_tensor[]){x, gate}, 1 + (gate.tape != NULL), n);
    if (!tape) return tape_failed();
    graph *g = tape->graph;
    if (n[1]) {
        if (!tensor_meet(g, "swiglu", n, 2)) return tape_failed();
        return tape_handle(tape, gated(g, OP_SILU, n[0], n[0], n[1]));
    }
    if (!halves(g, "swiglu", n[0], axis, half)) return tape_failed();
    return tape_handle(tape, gated(g, OP_SILU, half[0], n[0], half[1]));
}
