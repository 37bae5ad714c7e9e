/*
 * Constant arithmetic for fold: one elementwise op on numbers, with the meaning that the interpreter gives it.
 * Floats are computed in double and rounded once to the result's type, which for + - * / and sqrt is the correctly
 * rounded result of every narrower type.
 * SPDX-License-Identifier: MIT
 */
#include "passes/evaluate.h"

#include <math.h>
#include <string.h>

static int64_t integer_binary(op_code code, dtype t, int64_t a, int64_t b)
{
    bool is_u64 = t == DT_U64;
    uint64_t ua = (uint64_t)a, ub = (uint64_t)b;
    switch (code) {
    case OP_ADD: return (int64_t)(ua + ub);
    case OP_SUB: return (int64_t)(ua - ub);
    case OP_MUL: return (int64_t)(ua * ub);
    case OP_DIV:
        if (!b) return 0;
        if (is_u64) return (int64_t)(ua / ub);
        if (b == -1) return (int64_t)(0 - ua);
        return a / b - (a % b != 0 && (a < 0) != (b < 0));
    case OP_MOD:
        if (!b || b == -1) return is_u64 && b ? (int64_t)(ua % ub) : 0;
        if (is_u64) return (int64_t)(ua % ub);
        return a % b + (a % b != 0 && (a < 0) != (b < 0) ? b : 0);
    case OP_MIN: return (is_u64 ? ua < ub : a < b) ? a : b;
    case OP_MAX: return (is_u64 ? ua > ub : a > b) ? a : b;
    case OP_AND: return a & b;
    case OP_OR: return a | b;
    default: return a ^ b;
    }
}

static bool evaluate_integer(op_code code, dtype t, number a, number b, int64_t *out)
{
    int width = 8 * dtypes[t].size_bytes;
    int count = (int)(b.i & (width - 1));
    switch (code) {
    case OP_NEG: *out = (int64_t)(0 - (uint64_t)a.i); return true;
    case OP_NOT: *out = t == DT_BOOL ? !a.i : ~a.i; return true;
    case OP_ABS: *out = a.i < 0 && t != DT_U64 ? (int64_t)(0 - (uint64_t)a.i) : a.i; return true;
    case OP_SIGN: *out = a.i == 0 ? 0 : a.i < 0 && t != DT_U64 ? -1 : 1; return true;
    case OP_SHL: *out = (int64_t)((uint64_t)a.i << count); return true;
    case OP_SHR: *out = t == DT_U64 ? (int64_t)((uint64_t)a.i >> count) : a.i >> count; return true;
    case OP_ADD:
    case OP_SUB:
    case OP_MUL:
    case OP_DIV:
    case OP_MOD:
    case OP_MIN:
    case OP_MAX:
    case OP_AND:
    case OP_OR:
    case OP_XOR: *out = integer_binary(code, t, a.i, b.i); return true;
    default: return false;
    }
}

static bool evaluate_float(op_code code, double a, double b, double *out)
{
    switch (code) {
    case OP_NEG: *out = -a; return true;
    case OP_ABS: *out = fabs(a); return true;
    case OP_SIGN: *out = a > 0 ? 1 : a < 0 ? -1 : a; return true;
    case OP_FLOOR: *out = floor(a); return true;
    case OP_CEIL: *out = ceil(a); return true;
    case OP_ROUND: *out = nearbyint(a); return true;
    case OP_SQRT: *out = sqrt(a); return true;
    case OP_RSQRT: *out = 1 / sqrt(a); return true;
    case OP_EXP: *out = exp(a); return true;
    case OP_EXP2: *out = exp2(a); return true;
    case OP_EXPM1: *out = expm1(a); return true;
    case OP_LOG: *out = log(a); return true;
    case OP_LOG2: *out = log2(a); return true;
    case OP_LOG1P: *out = log1p(a); return true;
    case OP_SIN: *out = sin(a); return true;
    case OP_COS: *out = cos(a); return true;
    case OP_TANH: *out = tanh(a); return true;
    case OP_ERF: *out = erf(a); return true;
    case OP_RELU: *out = a > 0 || isnan(a) ? a : 0; return true;
    case OP_ADD: *out = a + b; return true;
    case OP_SUB: *out = a - b; return true;
    case OP_MUL: *out = a * b; return true;
    case OP_DIV: *out = a / b; return true;
    case OP_POW: *out = pow(a, b); return true;
    case OP_MIN: *out = isnan(a) || isnan(b) ? NAN : fmin(a, b); return true;
    case OP_MAX: *out = isnan(a) || isnan(b) ? NAN : fmax(a, b); return true;
    default: return false;
    }
}

static bool compare(op_code code, int order, bool unordered)
{
    switch (code) {
    case OP_LT: return !unordered && order < 0;
    case OP_LE: return !unordered && order <= 0;
    case OP_GT: return !unordered && order > 0;
    case OP_GE: return !unordered && order >= 0;
    case OP_EQ: return !unordered && order == 0;
    default: return unordered || order != 0;
    }
}

bool evaluate_compare(op_code code, dtype t, number a, number b)
{
    if (dtype_is_float(t)) return compare(code, a.f < b.f ? -1 : a.f > b.f, isnan(a.f) || isnan(b.f));
    if (t == DT_U64) return compare(code, (uint64_t)a.i < (uint64_t)b.i ? -1 : (uint64_t)a.i > (uint64_t)b.i, false);
    return compare(code, a.i < b.i ? -1 : a.i > b.i, false);
}

static int64_t integer_from_double(dtype t, double x)
{
    if (isnan(x)) return 0;
    if (t == DT_U64) return x <= 0 ? 0 : x >= 0x1p64 ? -1 : (int64_t)(uint64_t)x;
    int bits = 8 * dtypes[t].size_bytes - (dtypes[t].kind == KIND_INT);
    int64_t high = bits == 63 ? INT64_MAX : ((int64_t)1 << bits) - 1, low = dtypes[t].kind == KIND_INT ? -high - 1 : 0;
    return x >= (double)high ? high : x <= (double)low ? low : (int64_t)x;
}

number evaluate_convert(dtype from, dtype to, number a)
{
    number out = {0};
    if (to == DT_BOOL) {
        out.i = dtype_is_float(from) ? a.f != 0 : a.i != 0;
    } else if (dtype_is_float(to)) {
        if (dtype_is_float(from))
            out.f = round_to_dtype(to, a.f);
        else if (to == DT_F32)
            out.f = from == DT_U64 ? (float)(uint64_t)a.i : (float)a.i;
        else
            out.f = round_to_dtype(to, from == DT_U64 ? (double)(uint64_t)a.i : (double)a.i);
    } else {
        out.i = dtype_is_float(from) ? integer_from_double(to, a.f) : integer_wrap(to, a.i);
    }
    return out;
}

bool evaluate_op(op_code code, dtype from, dtype to, const number *in, number *out)
{
    const op_info *info = &ops[code];
    double f;
    *out = (number){0};
    if (code == OP_CONVERT) {
        *out = evaluate_convert(from, to, in[0]);
        return true;
    }
    if (code == OP_BITCAST) {
        unsigned char bytes[8];
        element_write(from, bytes, in[0]);
        *out = element_read(to, bytes);
        return !dtype_is_float(to) || !isnan(out->f); /* a NaN's bits would not survive */
    }
    if (code == OP_ISNAN || code == OP_ISINF) {
        out->i = code == OP_ISNAN ? isnan(in[0].f) : isinf(in[0].f);
        return true;
    }
    if (info->class == CLASS_COMPARE) {
        out->i = evaluate_compare(code, from, in[0], in[1]);
        return true;
    }
    if (info->class != CLASS_UNARY && info->class != CLASS_BINARY) return false;
    number second = info->count > 1 ? in[1] : (number){0};
    if (dtype_is_float(from)) {
        if (!evaluate_float(code, in[0].f, second.f, &f)) return false;
        out->f = round_to_dtype(to, f);
        return true;
    }
    if (!evaluate_integer(code, from, in[0], second, &out->i)) return false;
    out->i = integer_wrap(to, out->i);
    return true;
}
