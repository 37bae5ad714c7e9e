/*
 * Derivatives of elementwise ops. In: inputs, value, arriving gradient. Out: the gradient of an input. Two tables, by
 * op_code; an op that stands in neither has no derivative. Each rule is the shortest formula from x and y, so that what
 * the backward pass computes again is cheap. A rule that gives 0 says that the derivative is zero almost everywhere.
 * SPDX-License-Identifier: MIT
 */
#include "tensor/grad_rules.h"

#define LN_2 0.69314718055994530942
#define SQRT_HALF 0.70710678118654752440
#define ONE_OVER_SQRT_2PI 0.39894228040143267794
#define TWO_OVER_SQRT_PI 1.12837916709551257390
#define SQRT_TWO_OVER_PI 0.79788456080286535588
#define GELU_CUBIC 0.044715

typedef node unary_rule(graph *g, node x, node y, node d);
typedef node several_rule(graph *g, const node *x, node y, node d, int which);

static node of_neg(graph *g, node x, node y, node d)
{
    return grad_neg(g, d);
}

static node of_step(graph *g, node x, node y, node d)
{
    return 0;
}

static node of_abs(graph *g, node x, node y, node d)
{
    return grad_mul(g, d, graph_unary(g, OP_SIGN, x));
}

static node of_sqrt(graph *g, node x, node y, node d)
{
    return grad_div(g, grad_scale(g, d, 0.5), y);
}

static node of_rsqrt(graph *g, node x, node y, node d)
{
    return grad_mul(g, grad_scale(g, d, -0.5), grad_mul(g, grad_mul(g, y, y), y));
}

static node of_exp(graph *g, node x, node y, node d)
{
    return grad_mul(g, d, y);
}

static node of_exp2(graph *g, node x, node y, node d)
{
    return grad_mul(g, d, grad_scale(g, y, LN_2));
}

static node of_expm1(graph *g, node x, node y, node d)
{
    return grad_mul(g, d, graph_unary(g, OP_EXP, x));
}

static node of_log(graph *g, node x, node y, node d)
{
    return grad_div(g, d, x);
}

static node of_log2(graph *g, node x, node y, node d)
{
    return grad_div(g, grad_scale(g, d, 1 / LN_2), x);
}

static node of_log1p(graph *g, node x, node y, node d)
{
    return grad_div(g, d, grad_plus(g, x, 1));
}

static node of_sin(graph *g, node x, node y, node d)
{
    return grad_mul(g, d, graph_unary(g, OP_COS, x));
}

static node of_cos(graph *g, node x, node y, node d)
{
    return grad_neg(g, grad_mul(g, d, graph_unary(g, OP_SIN, x)));
}

static node of_tanh(graph *g, node x, node y, node d)
{
    return grad_mul(g, d, grad_sub(g, grad_number(g, y, 1), grad_mul(g, y, y)));
}

static node of_erf(graph *g, node x, node y, node d)
{
    node bell = graph_unary(g, OP_EXP, grad_neg(g, grad_mul(g, x, x)));
    return grad_mul(g, d, grad_scale(g, bell, TWO_OVER_SQRT_PI));
}

static node of_sigmoid(graph *g, node x, node y, node d)
{
    return grad_mul(g, d, grad_mul(g, y, grad_sub(g, grad_number(g, y, 1), y)));
}

static node of_relu(graph *g, node x, node y, node d)
{
    return grad_where_not(g, graph_binary(g, OP_LE, x, grad_number(g, x, 0)), d);
}

/* Phi(x) + x phi(x) */
static node of_gelu(graph *g, node x, node y, node d)
{
    node below = grad_scale(g, grad_plus(g, graph_unary(g, OP_ERF, grad_scale(g, x, SQRT_HALF)), 1), 0.5);
    node bell = graph_unary(g, OP_EXP, grad_scale(g, grad_mul(g, x, x), -0.5));
    return grad_mul(g, d, grad_add(g, below, grad_mul(g, x, grad_scale(g, bell, ONE_OVER_SQRT_2PI))));
}

/* y = x (1 + t) / 2, t = tanh(u), u = c (x + k x^3) */
static node of_gelu_tanh(graph *g, node x, node y, node d)
{
    node square = grad_mul(g, x, x);
    node u = grad_mul(g, grad_scale(g, x, SQRT_TWO_OVER_PI), grad_plus(g, grad_scale(g, square, GELU_CUBIC), 1));
    node slope = grad_scale(g, grad_plus(g, grad_scale(g, square, 3 * GELU_CUBIC), 1), SQRT_TWO_OVER_PI);
    node t = graph_unary(g, OP_TANH, u);
    node rest = grad_mul(g, grad_mul(g, x, grad_sub(g, grad_number(g, t, 1), grad_mul(g, t, t))), slope);
    return grad_mul(g, d, grad_scale(g, grad_add(g, grad_plus(g, t, 1), rest), 0.5));
}

static node of_silu(graph *g, node x, node y, node d)
{
    node s = graph_unary(g, OP_SIGMOID, x);
    node inner = grad_plus(g, grad_mul(g, x, grad_sub(g, grad_number(g, s, 1), s)), 1);
    return grad_mul(g, d, grad_mul(g, s, inner));
}

static node of_softplus(graph *g, node x, node y, node d)
{
    return grad_mul(g, d, graph_unary(g, OP_SIGMOID, x));
}

static node of_convert(graph *g, node x, node y, node d)
{
    return graph_convert(g, d, g->nodes[x].elem);
}

/* Rounding to tf32 is a step; its straight line counts, as it does inside a product. */
static node of_tf32(graph *g, node x, node y, node d)
{
    return d;
}

static unary_rule *const unary_rules[OP_COUNT] = {
    [OP_NEG] = of_neg,         [OP_ABS] = of_abs,
    [OP_SIGN] = of_step,       [OP_FLOOR] = of_step,
    [OP_CEIL] = of_step,       [OP_ROUND] = of_step,
    [OP_SQRT] = of_sqrt,       [OP_RSQRT] = of_rsqrt,
    [OP_EXP] = of_exp,         [OP_EXP2] = of_exp2,
    [OP_EXPM1] = of_expm1,     [OP_LOG] = of_log,
    [OP_LOG2] = of_log2,       [OP_LOG1P] = of_log1p,
    [OP_SIN] = of_sin,         [OP_COS] = of_cos,
    [OP_TANH] = of_tanh,       [OP_ERF] = of_erf,
    [OP_SIGMOID] = of_sigmoid, [OP_RELU] = of_relu,
    [OP_GELU] = of_gelu,       [OP_GELU_TANH] = of_gelu_tanh,
    [OP_SILU] = of_silu,       [OP_SOFTPLUS] = of_softplus,
    [OP_CONVERT] = of_convert, [OP_TF32] = of_tf32,
};

static node of_add(graph *g, const node *x, node y, node d, int which)
{
    return d;
}

static node of_sub(graph *g, const node *x, node y, node d, int which)
{
    return which ? grad_neg(g, d) : d;
}

static node of_mul(graph *g, const node *x, node y, node d, int which)
{
    return grad_mul(g, d, x[!which]);
}

static node of_div(graph *g, const node *x, node y, node d, int which)
{
    node first = grad_div(g, d, x[1]);
    return which ? grad_neg(g, grad_mul(g, first, y)) : first;
}

/* x - y floor(x / y) */
static node of_mod(graph *g, const node *x, node y, node d, int which)
{
    if (!which) return d;
    return grad_neg(g, grad_mul(g, d, graph_unary(g, OP_FLOOR, graph_binary(g, OP_DIV, x[0], x[1]))));
}

static node of_power(graph *g, node x, double exponent, node d)
{
    if (exponent == 0) return 0;
    node power = x;
    if (exponent == 1)
        return d;
    else if (exponent == 3)
        power = grad_mul(g, x, x);
    else if (exponent != 2)
        power = graph_binary(g, OP_POW, x, grad_number(g, x, exponent - 1));
    return grad_mul(g, grad_scale(g, d, exponent), power);
}

/* The base: nothing where the exponent is 0. The exponent: nothing where the base is 0 and the exponent not negative. */
static node of_pow(graph *g, const node *x, node y, node d, int which)
{
    double exponent;
    node zero = grad_number(g, y, 0);
    if (!which) {
        if (grad_constant(g, x[1], &exponent)) return of_power(g, x[0], exponent, d);
        node slope = grad_mul(g, x[1], graph_binary(g, OP_POW, x[0], grad_plus(g, x[1], -1)));
        return grad_where_not(g, graph_binary(g, OP_EQ, x[1], zero), grad_mul(g, d, slope));
    }
    node flat = graph_binary(g, OP_AND, graph_binary(g, OP_EQ, x[0], zero), graph_binary(g, OP_GE, x[1], zero));
    return grad_where_not(g, flat, grad_mul(g, d, grad_mul(g, y, graph_unary(g, OP_LOG, x[0]))));
}

/* Equal operands share; against a constant (a clamp) the operand takes all. */
static node of_extreme(graph *g, const node *x, node d, int which, op_code loses)
{
    double limit;
    node lost = graph_binary(g, loses, x[which], x[!which]);
    if (grad_constant(g, x[!which], &limit)) return grad_where_not(g, lost, d);
    node tie = graph_binary(g, OP_EQ, x[0], x[1]);
    return grad_where_not(g, lost, graph_select(g, tie, grad_scale(g, d, 0.5), d));
}

static node of_min(graph *g, const node *x, node y, node d, int which)
{
    return of_extreme(g, x, d, which, OP_GT);
}

static node of_max(graph *g, const node *x, node y, node d, int which)
{
    return of_extreme(g, x, d, which, OP_LT);
}

static node of_select(graph *g, const node *x, node y, node d, int which)
{
    return which == 1 ? grad_where(g, x[0], d) : grad_where_not(g, x[0], d);
}

static node of_fma(graph *g, const node *x, node y, node d, int which)
{
    return which == 2 ? d : grad_mul(g, d, x[!which]);
}

static several_rule *const several_rules[OP_COUNT] = {
    [OP_ADD] = of_add, [OP_SUB] = of_sub, [OP_MUL] = of_mul, [OP_DIV] = of_div,       [OP_MOD] = of_mod,
    [OP_POW] = of_pow, [OP_MIN] = of_min, [OP_MAX] = of_max, [OP_SELECT] = of_select, [OP_FMA] = of_fma,
};

void grad_of_map(grad_step *s)
{
    graph *g = s->g;
    op_code code = s->n.attr.map;
    if (unary_rules[code]) {
        s->dx[0] = unary_rules[code](g, s->x[0], s->y, s->d);
        return;
    }
    if (!several_rules[code]) {
        graph_fail(g, "grad", "%s of %s has no derivative: detach its input if no gradient should flow there",
                   ops[code].text, dtypes[s->n.elem].text);
        return;
    }
    for (int i = 0; i < s->n.input_count; i++)
        if (s->wants[i]) s->dx[i] = several_rules[code](g, s->x, s->y, s->d, i);
}

/* KEEP, AGAIN: the same value. */
void grad_of_same(grad_step *s)
{
    s->dx[0] = s->d;
}
