/*
 * Elementwise operations. In: handles. Out: MAP nodes over operands that meet in one type and one shape. What a type
 * cannot do is done in the next one that can, as in PyTorch: functions of floats take integers as f32, integers divide
 * to f32, rounding leaves integers as they are.
 * SPDX-License-Identifier: MIT
 */
#include "tensor/ops.h"

#include <math.h>

/* ---- one operand ---- */

node tensor_unary(graph *g, op_code code, node x)
{
    if (!x) return 0;
    dtype elem = tensor_elem(g, x);
    shape s = *tensor_shape(g, x);
    bool integer = dtype_is_integer(elem);
    switch (code) {
    case OP_NEG:
    case OP_ABS:
    case OP_SIGN:
    case OP_NOT: return graph_unary(g, code, x);
    case OP_FLOOR:
    case OP_CEIL:
    case OP_ROUND: return integer ? x : graph_unary(g, code, x);
    case OP_RELU: return integer ? graph_binary(g, OP_MAX, x, tensor_number(g, x, 0)) : graph_unary(g, code, x);
    case OP_ISNAN:
    case OP_ISINF: return dtype_is_float(elem) ? graph_unary(g, code, x) : graph_full_double(g, DT_BOOL, &s, 0);
    default: return graph_unary(g, code, tensor_float(g, x));
    }
}

static qn_tensor unary(const char *op, op_code code, qn_tensor x)
{
    node n;
    qn_tape *tape = tape_begin(op, &x, 1, &n);
    return tape ? tape_handle(tape, tensor_unary(tape->graph, code, n)) : tape_failed();
}

#define UNARY(name, code)             \
    qn_tensor qn_##name(qn_tensor x)  \
    {                                 \
        return unary(#name, code, x); \
    }
UNARY(neg, OP_NEG)
UNARY(not, OP_NOT)
UNARY(abs, OP_ABS)
UNARY(sign, OP_SIGN)
UNARY(floor, OP_FLOOR)
UNARY(ceil, OP_CEIL)
UNARY(round, OP_ROUND)
UNARY(sqrt, OP_SQRT)
UNARY(rsqrt, OP_RSQRT)
UNARY(exp, OP_EXP)
UNARY(exp2, OP_EXP2)
UNARY(expm1, OP_EXPM1)
UNARY(log, OP_LOG)
UNARY(log2, OP_LOG2)
UNARY(log1p, OP_LOG1P)
UNARY(sin, OP_SIN)
UNARY(cos, OP_COS)
UNARY(tanh, OP_TANH)
UNARY(erf, OP_ERF)
UNARY(sigmoid, OP_SIGMOID)
UNARY(relu, OP_RELU)
UNARY(gelu, OP_GELU)
UNARY(gelu_tanh, OP_GELU_TANH)
UNARY(silu, OP_SILU)
UNARY(softplus, OP_SOFTPLUS)
UNARY(isnan, OP_ISNAN)
UNARY(isinf, OP_ISINF)
#undef UNARY

qn_tensor qn_square(qn_tensor x)
{
    node n;
    qn_tape *tape = tape_begin("square", &x, 1, &n);
    return tape ? tape_handle(tape, graph_binary(tape->graph, OP_MUL, n, n)) : tape_failed();
}

qn_tensor qn_reciprocal(qn_tensor x)
{
    node n;
    qn_tape *tape = tape_begin("reciprocal", &x, 1, &n);
    return tape ? tape_handle(tape, tensor_scalar(tape->graph, OP_DIV, n, 1, true)) : tape_failed();
}

qn_tensor qn_cast(qn_tensor x, qn_dtype type)
{
    node n;
    qn_tape *tape = tape_begin("cast", &x, 1, &n);
    if (!tape || !tape_type(tape, "cast", type)) return tape_failed();
    return tape_handle(tape, tensor_convert(tape->graph, n, (dtype)type));
}

qn_tensor qn_bitcast(qn_tensor x, qn_dtype type)
{
    node n;
    qn_tape *tape = tape_begin("bitcast", &x, 1, &n);
    if (!tape || !tape_type(tape, "bitcast", type)) return tape_failed();
    if (tensor_elem(tape->graph, n) == (dtype)type) return tape_handle(tape, n);
    return tape_handle(tape, graph_map(tape->graph, OP_BITCAST, (dtype)type, &n, 1));
}

qn_tensor qn_detach(qn_tensor x)
{
    node n;
    qn_tape *tape = tape_begin("detach", &x, 1, &n);
    return tape ? tape_handle(tape, graph_same(tape->graph, GRAPH_DETACH, n, 0)) : tape_failed();
}

/* ---- two operands ---- */

node tensor_binary(graph *g, op_code code, node a, node b)
{
    node x[2] = {a, b};
    if (code == OP_SHL || code == OP_SHR) { /* the count has a type of its own */
        shape s;
        if (!a || !b || !tensor_shapes_meet(g, ops[code].text, x, 2, &s)) return 0;
        for (int i = 0; i < 2; i++) x[i] = tensor_broadcast(g, ops[code].text, x[i], &s);
    } else if (!tensor_meet(g, ops[code].text, x, 2)) {
        return 0;
    }
    if (code == OP_DIV || code == OP_POW)
        for (int i = 0; i < 2; i++) x[i] = tensor_float(g, x[i]);
    return graph_binary(g, code, x[0], x[1]);
}

static qn_tensor binary(const char *op, op_code code, qn_tensor a, qn_tensor b)
{
    node x[2];
    qn_tape *tape = tape_begin(op, (qn_tensor[]){a, b}, 2, x);
    return tape ? tape_handle(tape, tensor_binary(tape->graph, code, x[0], x[1])) : tape_failed();
}

#define BINARY(name, code)                        \
    qn_tensor qn_##name(qn_tensor a, qn_tensor b) \
    {                                             \
        return binary(#name, code, a, b);         \
    }
BINARY(add, OP_ADD)
BINARY(sub, OP_SUB)
BINARY(mul, OP_MUL)
BINARY(div, OP_DIV)
BINARY(mod, OP_MOD)
BINARY(pow, OP_POW)
BINARY(maximum, OP_MAX)
BINARY(minimum, OP_MIN)
BINARY(and, OP_AND)
BINARY(or, OP_OR)
BINARY(xor, OP_XOR)
BINARY(shl, OP_SHL)
BINARY(shr, OP_SHR)
BINARY(eq, OP_EQ)
BINARY(ne, OP_NE)
BINARY(lt, OP_LT)
BINARY(le, OP_LE)
BINARY(gt, OP_GT)
BINARY(ge, OP_GE)
#undef BINARY

/* Of floats by way of the remainder, which is exact: a quotient that a device's fast division puts just below a whole
 * number must not lose one. */
qn_tensor qn_floor_div(qn_tensor a, qn_tensor b)
{
    node x[2];
    qn_tape *tape = tape_begin("floor_div", (qn_tensor[]){a, b}, 2, x);
    if (!tape || !tensor_meet(tape->graph, "floor_div", x, 2)) return tape_failed();
    graph *g = tape->graph;
    node quotient = graph_binary(g, OP_DIV, x[0], x[1]);
    if (quotient && dtype_is_float(graph_get(g, quotient)->elem)) {
        node whole = graph_binary(g, OP_SUB, x[0], graph_binary(g, OP_MOD, x[0], x[1]));
        node rounded = graph_unary(g, OP_ROUND, graph_binary(g, OP_DIV, whole, x[1]));
        /* By an infinity the quotient is 0, of either sign: below 0 where the signs differ. */
        node signs = graph_binary(g, OP_MUL, graph_unary(g, OP_SIGN, x[0]), graph_unary(g, OP_SIGN, x[1]));
        node below = graph_binary(g, OP_ADD, quotient, graph_binary(g, OP_MIN, signs, tensor_number(g, signs, 0)));
        rounded = graph_select(g, graph_unary(g, OP_ISINF, x[1]), below, rounded);
        quotient = graph_select(g, graph_binary(g, OP_EQ, x[1], tensor_number(g, x[1], 0)), quotient, rounded);
    }
    return tape_handle(tape, quotient);
}

/* The greater one, and what the distance adds: nothing overflows, and equal infinities have no distance. */
qn_tensor qn_logaddexp(qn_tensor a, qn_tensor b)
{
    node x[2];
    qn_tape *tape = tape_begin("logaddexp", (qn_tensor[]){a, b}, 2, x);
    if (!tape || !tensor_meet(tape->graph, "logaddexp", x, 2)) return tape_failed();
    graph *g = tape->graph;
    dtype elem = tensor_elem(g, tensor_float(g, x[0]));
    for (int i = 0; i < 2; i++) x[i] = tensor_wide(g, x[i]);
    node equal = graph_binary(g, OP_EQ, x[0], x[1]);
    node apart = graph_select(g, equal, tensor_number(g, x[0], 0), graph_binary(g, OP_SUB, x[0], x[1]));
    node more = graph_unary(g, OP_SOFTPLUS, graph_unary(g, OP_NEG, graph_unary(g, OP_ABS, apart)));
    node y = graph_binary(g, OP_ADD, graph_binary(g, OP_MAX, x[0], x[1]), more);
    return tape_handle(tape, tensor_convert(g, y, elem));
}

/* ---- a tensor and a number ---- */

/* By squares, which wrap as all products of integers do. */
static node integer_power(graph *g, node x, uint64_t s)
{
    node y = 0;
    for (; s; s >>= 1) {
        if (s & 1) y = y ? graph_binary(g, OP_MUL, y, x) : x;
        if (s > 1) x = graph_binary(g, OP_MUL, x, x);
    }
    return y ? y : tensor_number(g, x, 1);
}

/* Powers that are products and roots, as one would write them. Integers are still such if the power is whole. */
static node power(graph *g, node x, double s)
{
    if (s >= 0 && !dtype_is_float(tensor_elem(g, x))) return integer_power(g, x, (uint64_t)s);
    if (s == 1) return x;
    if (s == 2) return graph_binary(g, OP_MUL, x, x);
    if (s == 3) return graph_binary(g, OP_MUL, graph_binary(g, OP_MUL, x, x), x);
    x = tensor_float(g, x);
    if (s == 0.5) return graph_unary(g, OP_SQRT, x);
    if (s == -0.5) return graph_unary(g, OP_RSQRT, x);
    if (s == -1) return graph_binary(g, OP_DIV, tensor_number(g, x, 1), x);
    return graph_binary(g, OP_POW, x, tensor_number(g, x, s));
}

/* A comparison, minimum or maximum of integers with a number that their type does not hold: what it gives is known. 0:
 * the number is held, or the op wraps. */
static node beyond(graph *g, op_code code, node x, double s)
{
    dtype elem = tensor_elem(g, x);
    if (!dtype_is_integer(elem)) return 0;
    bool is_signed = dtype_is_signed(elem);
    int bits = dtypes[elem].size_bytes * 8 - is_signed;
    double low = is_signed ? -ldexp(1, bits) : 0, high = ldexp(1, bits) - 1;
    if (s >= low && s <= high) return 0;
    bool above = s > high;
    switch (code) {
    case OP_MIN: return above ? x : tensor_number(g, x, low);
    case OP_MAX: return above ? tensor_number(g, x, high) : x;
    case OP_EQ: return graph_full_double(g, DT_BOOL, tensor_shape(g, x), false);
    case OP_NE: return graph_full_double(g, DT_BOOL, tensor_shape(g, x), true);
    case OP_LT:
    case OP_LE: return graph_full_double(g, DT_BOOL, tensor_shape(g, x), above);
    case OP_GT:
    case OP_GE: return graph_full_double(g, DT_BOOL, tensor_shape(g, x), !above);
    default: return 0;
    }
}

node tensor_scalar(graph *g, op_code code, node x, double s, bool reversed)
{
    if (!x) return 0;
    bool whole = s == floor(s) && fabs(s) <= 9007199254740992.0;
    if (!dtype_is_float(tensor_elem(g, x))) {
        if (!whole || code == OP_DIV)
            x = tensor_convert(g, x, DT_F32);
        else if (tensor_elem(g, x) == DT_BOOL)
            x = tensor_convert(g, x, DT_I64);
    }
    if (code == OP_POW && !reversed) return power(g, x, s);
    node known = reversed ? 0 : beyond(g, code, x, s);
    if (known) return known;
    node number = tensor_number(g, x, s);
    return reversed ? graph_binary(g, code, number, x) : graph_binary(g, code, x, number);
}

static qn_tensor scalar(const char *op, op_code code, qn_tensor x, double s, bool reversed)
{
    node n;
    qn_tape *tape = tape_begin(op, &x, 1, &n);
    return tape ? tape_handle(tape, tensor_scalar(tape->graph, code, n, s, reversed)) : tape_failed();
}

#define SCALAR(name, code, reversed)                          \
    qn_tensor qn_##name##_scalar(qn_tensor x, double s)       \
    {                                                         \
        return scalar(#name "_scalar", code, x, s, reversed); \
    }
SCALAR(add, OP_ADD, false)
SCALAR(sub, OP_SUB, false)
SCALAR(rsub, OP_SUB, true)
SCALAR(mul, OP_MUL, false)
SCALAR(div, OP_DIV, false)
SCALAR(rdiv, OP_DIV, true)
SCALAR(pow, OP_POW, false)
SCALAR(maximum, OP_MAX, false)
SCALAR(minimum, OP_MIN, false)
SCALAR(eq, OP_EQ, false)
SCALAR(ne, OP_NE, false)
SCALAR(lt, OP_LT, false)
SCALAR(le, OP_LE, false)
SCALAR(gt, OP_GT, false)
SCALAR(ge, OP_GE, false)
#undef SCALAR

qn_tensor qn_clamp(qn_tensor x, double low, double high)
{
    node n;
    qn_tape *tape = tape_begin("clamp", &x, 1, &n);
    if (!tape) return tape_failed();
    if (low != -INFINITY) n = tensor_scalar(tape->graph, OP_MAX, n, low, false);
    if (high != INFINITY) n = tensor_scalar(tape->graph, OP_MIN, n, high, false);
    return tape_handle(tape, n);
}

/* ---- three operands ---- */

qn_tensor qn_fma(qn_tensor a, qn_tensor b, qn_tensor c)
{
    node x[3];
    qn_tape *tape = tape_begin("fma", (qn_tensor[]){a, b, c}, 3, x);
    if (!tape || !tensor_meet(tape->graph, "fma", x, 3)) return tape_failed();
    graph *g = tape->graph;
    if (dtype_is_float(tensor_elem(g, x[0]))) return tape_handle(tape, graph_map(g, OP_FMA, DT_F32, x, 3));
    return tape_handle(tape, graph_binary(g, OP_ADD, graph_binary(g, OP_MUL, x[0], x[1]), x[2]));
}

node tensor_where(graph *g, node condition, node a, node b)
{
    node x[3] = {a, b, condition};
    shape s;
    if (!condition || !a || !b) return 0;
    if (tensor_elem(g, condition) != DT_BOOL)
        return graph_fail(g, "where", "the condition is %s, not bool", dtypes[tensor_elem(g, condition)].text);
    dtype elem = tensor_promote(g, "where", x, 2);
    if (elem == DT_COUNT || !tensor_shapes_meet(g, "where", x, 3, &s)) return 0;
    for (int i = 0; i < 3; i++) x[i] = tensor_broadcast(g, "where", i < 2 ? tensor_convert(g, x[i], elem) : x[i], &s);
    return graph_select(g, x[2], x[0], x[1]);
}

qn_tensor qn_where(qn_tensor condition, qn_tensor a, qn_tensor b)
{
    node x[3];
    qn_tape *tape = tape_begin("where", (qn_tensor[]){condition, a, b}, 3, x);
    return tape ? tape_handle(tape, tensor_where(tape->graph, x[0], x[1], x[2])) : tape_failed();
}

qn_tensor qn_masked_fill(qn_tensor x, qn_tensor mask, double value)
{
    node n[2];
    qn_tape *tape = tape_begin("masked_fill", (qn_tensor[]){x, mask}, 2, n);
    if (!tape) return tape_failed();
    graph *g = tape->graph;
    if (tensor_elem(g, n[1]) != DT_BOOL)
        return graph_fail(g, "masked_fill", "the mask is %s, not bool", dtypes[tensor_elem(g, n[1])].text),
               tape_failed();
    return tape_handle(tape, tensor_where(g, n[1], tensor_number(g, n[0], value), n[0]));
}
