/*
 * Arithmetic of the interpreter: the meaning of every elementwise op, for n elements at a time.
 *
 * In: cells with a step of 1, or 0 for a scalar operand. Out: cells of the same length. Floats are computed in double
 * and rounded by the caller (math_round), which for + - * / sqrt in f32 gives the correctly rounded result; integers
 * wrap at their width. The switch stands outside, the loop inside.
 * SPDX-License-Identifier: MIT
 */
#include "ir/interp_state.h"
#include "ir/scalar.h"

#include <math.h>
#include <string.h>

#define EACH(statement)                   \
    {                                     \
        for (int64_t j = 0; j < n; j++) { \
            statement;                    \
        }                                 \
        break;                            \
    }

#define FLOAT1(expression) EACH(double x = a[j * sa].f; r[j].f = (expression))
#define FLOAT2(expression) EACH(double x = a[j * sa].f; double y = b[j * sb].f; r[j].f = (expression))
#define TEST2(expression) EACH(double x = a[j * sa].f; double y = b[j * sb].f; r[j].i = (expression))
/* The op is a constant at each of these, so its switch is gone from the loop. */
#define INTEGER1(code) EACH(r[j].i = scalar_raw(code, elem, a[j * sa].i, 0))
#define INTEGER2(code) EACH(r[j].i = scalar_raw(code, elem, a[j * sa].i, b[j * sb].i))

static double sigmoid(double x)
{
    if (x >= 0) return 1 / (1 + exp(-x));
    double e = exp(x);
    return e / (1 + e);
}

static double gelu(double x) /* erfc keeps the digits of the left tail */
{
    return x == -INFINITY ? -0.0 : 0.5 * x * erfc(-x * 0.70710678118654752440);
}

static double gelu_tanh(double x) /* x/2 (1 + tanh u) is x sigmoid(2u), which keeps its digits where tanh is near -1 */
{
    return x == -INFINITY ? -0.0 : x * sigmoid(2 * 0.7978845608028654 * (x + 0.044715 * x * x * x));
}

static double tf32(double x) /* nearest even at 10 bits of mantissa */
{
    float narrow = (float)x;
    uint32_t bits;
    memcpy(&bits, &narrow, 4);
    if ((bits & 0x7f800000u) == 0x7f800000u) return narrow;
    bits = (bits + 0xfff + (bits >> 13 & 1)) & ~0x1fffu;
    memcpy(&narrow, &bits, 4);
    return narrow;
}

static void unary_integer(op_code code, dtype elem, int64_t n, const cell *a, int sa, cell *r)
{
    switch (code) {
    case OP_NEG: INTEGER1(OP_NEG);
    case OP_NOT: INTEGER1(OP_NOT);
    case OP_ABS: INTEGER1(OP_ABS);
    case OP_SIGN: INTEGER1(OP_SIGN);
    default: CHECK(!"a unary op of integers");
    }
}

void math_unary(op_code code, dtype elem, int64_t n, const cell *a, int sa, cell *r)
{
    if (!dtype_is_float(elem)) {
        unary_integer(code, elem, n, a, sa, r);
        return;
    }
    switch (code) {
    case OP_NEG: FLOAT1(-x);
    case OP_ABS: FLOAT1(fabs(x));
    case OP_SIGN: FLOAT1(isnan(x) ? x : (double)((x > 0) - (x < 0)));
    case OP_FLOOR: FLOAT1(floor(x));
    case OP_CEIL: FLOAT1(ceil(x));
    case OP_ROUND: FLOAT1(nearbyint(x));
    case OP_SQRT: FLOAT1(sqrt(x));
    case OP_RSQRT: FLOAT1(1 / sqrt(x));
    case OP_EXP: FLOAT1(exp(x));
    case OP_EXP2: FLOAT1(exp2(x));
    case OP_EXPM1: FLOAT1(expm1(x));
    case OP_LOG: FLOAT1(log(x));
    case OP_LOG2: FLOAT1(log2(x));
    case OP_LOG1P: FLOAT1(log1p(x));
    case OP_SIN: FLOAT1(sin(x));
    case OP_COS: FLOAT1(cos(x));
    case OP_TANH: FLOAT1(tanh(x));
    case OP_ERF: FLOAT1(erf(x));
    case OP_SIGMOID: FLOAT1(sigmoid(x));
    case OP_RELU: FLOAT1(x > 0 || isnan(x) ? x : 0);
    case OP_GELU: FLOAT1(gelu(x));
    case OP_GELU_TANH: FLOAT1(gelu_tanh(x));
    case OP_SILU: FLOAT1(x == -INFINITY ? -0.0 : x * sigmoid(x));
    case OP_SOFTPLUS: FLOAT1((x > 0 ? x : 0) + (isnan(x) ? x : log1p(exp(-fabs(x)))));
    case OP_ISNAN: EACH(r[j].i = isnan(a[j * sa].f));
    case OP_ISINF: EACH(r[j].i = isinf(a[j * sa].f) != 0);
    case OP_TF32: FLOAT1(tf32(x));
    default: CHECK(!"a unary op");
    }
}

static void binary_float(op_code code, int64_t n, const cell *a, int sa, const cell *b, int sb, cell *r)
{
    switch (code) {
    case OP_ADD: FLOAT2(x + y);
    case OP_SUB: FLOAT2(x - y);
    case OP_MUL: FLOAT2(x * y);
    case OP_DIV: FLOAT2(x / y);
    case OP_MOD: FLOAT2(x - y * floor(x / y));
    case OP_POW: FLOAT2(pow(x, y));
    case OP_MIN: FLOAT2(isnan(x) ? x : isnan(y) ? y : x < y ? x : y);
    case OP_MAX: FLOAT2(isnan(x) ? x : isnan(y) ? y : x > y ? x : y);
    default: CHECK(!"a binary op of floats");
    }
}

void math_binary(op_code code, dtype elem, int64_t n, const cell *a, int sa, const cell *b, int sb, cell *r)
{
    if (dtype_is_float(elem)) {
        binary_float(code, n, a, sa, b, sb, r);
        return;
    }
    switch (code) {
    case OP_ADD: INTEGER2(OP_ADD);
    case OP_SUB: INTEGER2(OP_SUB);
    case OP_MUL: INTEGER2(OP_MUL);
    case OP_DIV: INTEGER2(OP_DIV);
    case OP_MOD: INTEGER2(OP_MOD);
    case OP_MIN: INTEGER2(OP_MIN);
    case OP_MAX: INTEGER2(OP_MAX);
    case OP_AND: INTEGER2(OP_AND);
    case OP_OR: INTEGER2(OP_OR);
    case OP_XOR: INTEGER2(OP_XOR);
    case OP_SHL: INTEGER2(OP_SHL);
    case OP_SHR: INTEGER2(OP_SHR);
    default: CHECK(!"a binary op of integers");
    }
}

void math_compare(op_code code, dtype elem, int64_t n, const cell *a, int sa, const cell *b, int sb, cell *r)
{
    if (!dtype_is_float(elem)) {
        switch (code) {
        case OP_LT: INTEGER2(OP_LT);
        case OP_LE: INTEGER2(OP_LE);
        case OP_GT: INTEGER2(OP_GT);
        case OP_GE: INTEGER2(OP_GE);
        case OP_EQ: INTEGER2(OP_EQ);
        case OP_NE: INTEGER2(OP_NE);
        default: CHECK(!"a comparison");
        }
        return;
    }
    switch (code) {
    case OP_LT: TEST2(x < y);
    case OP_LE: TEST2(x <= y);
    case OP_GT: TEST2(x > y);
    case OP_GE: TEST2(x >= y);
    case OP_EQ: TEST2(x == y);
    case OP_NE: TEST2(x != y);
    default: CHECK(!"a comparison");
    }
}

bool math_less(dtype elem, cell a, cell b)
{
    if (dtype_is_float(elem)) return a.f < b.f;
    return scalar_raw(OP_LT, elem, a.i, b.i);
}

void math_convert(dtype from, dtype to, bool exact, int64_t n, const cell *a, int sa, cell *r)
{
    if (dtype_is_float(from)) {
        if (dtype_is_float(to)) {
            for (int64_t j = 0; j < n; j++) r[j].f = a[j * sa].f;
            if (!exact) math_round(to, n, r);
        } else {
            for (int64_t j = 0; j < n; j++) r[j].i = scalar_truncate(to, a[j * sa].f);
        }
    } else if (to == DT_F32 && !exact) {
        for (int64_t j = 0; j < n; j++) r[j].f = scalar_widen_f32(from, a[j * sa].i);
    } else if (dtype_is_float(to)) {
        for (int64_t j = 0; j < n; j++) r[j].f = scalar_widen(from, a[j * sa].i);
        if (!exact) math_round(to, n, r);
    } else {
        for (int64_t j = 0; j < n; j++) r[j].i = integer_wrap(to, a[j * sa].i);
    }
}

void math_bitcast(dtype from, dtype to, int64_t n, const cell *a, int sa, cell *r)
{
    for (int64_t j = 0; j < n; j++) {
        unsigned char bytes[8] = {0};
        number in = {0, 0};
        if (dtype_is_float(from))
            in.f = a[j * sa].f;
        else
            in.i = a[j * sa].i;
        element_write(from, bytes, in);
        number out = element_read(to, bytes);
        if (dtype_is_float(to))
            r[j].f = out.f;
        else
            r[j].i = out.i;
    }
}

void math_round(dtype elem, int64_t n, cell *r)
{
    switch (elem) {
    case DT_F64:
    case DT_I64:
    case DT_U64: return;
    case DT_F32:
        for (int64_t j = 0; j < n; j++) r[j].f = (float)r[j].f;
        return;
    case DT_F16:
    case DT_BF16:
    case DT_F8E4M3:
        for (int64_t j = 0; j < n; j++) r[j].f = round_to_dtype(elem, r[j].f);
        return;
    case DT_I32:
        for (int64_t j = 0; j < n; j++) r[j].i = (int32_t)r[j].i;
        return;
    default:
        for (int64_t j = 0; j < n; j++) r[j].i = integer_wrap(elem, r[j].i);
    }
}
