/*
 * Arithmetic of the interpreter: the meaning of every elementwise op, for n elements at a time.
 *
 * In: cells with a step of 1, or 0 for a scalar operand. Out: cells of the same length. Floats are computed in double
 * and rounded by the caller (math_round), which for + - * / sqrt in f32 gives the correctly rounded result; integers
 * wrap at their width. The switch stands outside, the loop inside.
 * SPDX-License-Identifier: MIT
 */
#include "ir/interp_state.h"

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
#define INT1(expression) EACH(int64_t x = a[j * sa].i; r[j].i = (int64_t)(expression))
#define INT2(expression) EACH(int64_t x = a[j * sa].i; int64_t y = b[j * sb].i; r[j].i = (int64_t)(expression))
#define UINT2(expression) \
    EACH(uint64_t x = (uint64_t)a[j * sa].i; uint64_t y = (uint64_t)b[j * sb].i; r[j].i = (int64_t)(expression))
#define TEST2(expression) EACH(double x = a[j * sa].f; double y = b[j * sb].f; r[j].i = (expression))

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

void math_unary(op_code code, dtype elem, int64_t n, const cell *a, int sa, cell *r)
{
    bool is_float = dtype_is_float(elem);
    switch (code) {
    case OP_NEG:
        if (is_float) FLOAT1(-x);
        INT1(-(uint64_t)x);
    case OP_NOT:
        if (elem == DT_BOOL) INT1(!x);
        INT1(~x);
    case OP_ABS:
        if (is_float) FLOAT1(fabs(x));
        if (!dtype_is_signed(elem)) INT1(x);
        INT1(x < 0 ? -(uint64_t)x : (uint64_t)x);
    case OP_SIGN:
        if (is_float) FLOAT1(isnan(x) ? x : (double)((x > 0) - (x < 0)));
        if (!dtype_is_signed(elem)) INT1(x != 0);
        INT1((x > 0) - (x < 0));
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

static int64_t divide_floor(int64_t x, int64_t y)
{
    if (y == 0) return 0;
    if (y == -1) return (int64_t) - (uint64_t)x;
    return x / y - (x % y != 0 && (x < 0) != (y < 0));
}

static int64_t modulo_floor(int64_t x, int64_t y)
{
    if (y == 0 || y == -1) return 0;
    int64_t rest = x % y;
    return rest && (rest < 0) != (y < 0) ? rest + y : rest;
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
    bool wide = elem == DT_U64; /* the only type that a signed 64-bit integer does not hold */
    int width_mask = dtypes[elem].size_bytes * 8 - 1;
    switch (code) {
    case OP_ADD: UINT2(x + y);
    case OP_SUB: UINT2(x - y);
    case OP_MUL: UINT2(x * y);
    case OP_DIV:
        if (wide) UINT2(y ? x / y : 0);
        INT2(divide_floor(x, y));
    case OP_MOD:
        if (wide) UINT2(y ? x % y : 0);
        INT2(modulo_floor(x, y));
    case OP_MIN:
        if (wide) UINT2(x < y ? x : y);
        INT2(x < y ? x : y);
    case OP_MAX:
        if (wide) UINT2(x > y ? x : y);
        INT2(x > y ? x : y);
    case OP_AND: INT2(x & y);
    case OP_OR: INT2(x | y);
    case OP_XOR: INT2(x ^ y);
    case OP_SHL: UINT2(x << (y & (uint64_t)width_mask));
    case OP_SHR:
        if (wide) UINT2(x >> (y & (uint64_t)width_mask));
        INT2(x >> (y & width_mask));
    default: CHECK(!"a binary op of integers");
    }
}

void math_compare(op_code code, dtype elem, int64_t n, const cell *a, int sa, const cell *b, int sb, cell *r)
{
    bool is_float = dtype_is_float(elem), wide = elem == DT_U64;
    switch (code) {
    case OP_LT:
        if (is_float) TEST2(x < y);
        if (wide) UINT2(x < y);
        INT2(x < y);
    case OP_LE:
        if (is_float) TEST2(x <= y);
        if (wide) UINT2(x <= y);
        INT2(x <= y);
    case OP_GT:
        if (is_float) TEST2(x > y);
        if (wide) UINT2(x > y);
        INT2(x > y);
    case OP_GE:
        if (is_float) TEST2(x >= y);
        if (wide) UINT2(x >= y);
        INT2(x >= y);
    case OP_EQ:
        if (is_float) TEST2(x == y);
        INT2(x == y);
    case OP_NE:
        if (is_float) TEST2(x != y);
        INT2(x != y);
    default: CHECK(!"a comparison");
    }
}

bool math_less(dtype elem, cell a, cell b)
{
    if (dtype_is_float(elem)) return a.f < b.f;
    return elem == DT_U64 ? (uint64_t)a.i < (uint64_t)b.i : a.i < b.i;
}

static int64_t truncate_saturated(dtype to, double x)
{
    int bits = dtypes[to].size_bytes * 8;
    bool is_signed = dtype_is_signed(to);
    double high = ldexp(1, is_signed ? bits - 1 : bits); /* the first that does not fit */
    double low = is_signed ? -high : 0;
    if (isnan(x)) return 0;
    if (x <= low) return is_signed ? (int64_t)(-(uint64_t)1 << (bits - 1)) : 0;
    if (x >= high) return is_signed ? (int64_t)(~(uint64_t)0 >> (65 - bits)) : (int64_t)(~(uint64_t)0 >> (64 - bits));
    return to == DT_U64 ? (int64_t)(uint64_t)x : (int64_t)x;
}

void math_convert(dtype from, dtype to, bool exact, int64_t n, const cell *a, int sa, cell *r)
{
    if (dtype_is_float(from)) {
        if (dtype_is_float(to)) {
            for (int64_t j = 0; j < n; j++) r[j].f = a[j * sa].f;
            if (!exact) math_round(to, n, r);
        } else if (to == DT_BOOL) {
            for (int64_t j = 0; j < n; j++) r[j].i = a[j * sa].f != 0;
        } else {
            for (int64_t j = 0; j < n; j++) r[j].i = truncate_saturated(to, a[j * sa].f);
        }
    } else if (to == DT_F32 && !exact) { /* straight from the integer: through double it would round twice */
        if (from == DT_U64)
            for (int64_t j = 0; j < n; j++) r[j].f = (float)(uint64_t)a[j * sa].i;
        else
            for (int64_t j = 0; j < n; j++) r[j].f = (float)a[j * sa].i;
    } else if (dtype_is_float(to)) {
        if (from == DT_U64)
            for (int64_t j = 0; j < n; j++) r[j].f = (double)(uint64_t)a[j * sa].i;
        else
            for (int64_t j = 0; j < n; j++) r[j].f = (double)a[j * sa].i;
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
        for (int64_t j = 0; j < n; j++) r[j].f = round_to_dtype(elem, r[j].f);
        return;
    case DT_I32:
        for (int64_t j = 0; j < n; j++) r[j].i = (int32_t)r[j].i;
        return;
    default:
        for (int64_t j = 0; j < n; j++) r[j].i = integer_wrap(elem, r[j].i);
    }
}

bool math_fits(dtype from, dtype to, cell c)
{
    if (from == DT_U64 && c.i < 0) return to == DT_U64; /* 2^63 and above */
    if (to == DT_U64) return c.i >= 0;
    return integer_wrap(to, c.i) == c.i;
}
