/*
 * The arithmetic of integers; scalar.h has the meaning.
 * SPDX-License-Identifier: MIT
 */
#include "ir/scalar.h"

#include <math.h>

bool scalar_knows(op_code code)
{
    switch (code) {
    case OP_NEG:
    case OP_NOT:
    case OP_ABS:
    case OP_SIGN:
    case OP_ADD:
    case OP_SUB:
    case OP_MUL:
    case OP_DIV:
    case OP_MOD:
    case OP_MIN:
    case OP_MAX:
    case OP_AND:
    case OP_OR:
    case OP_XOR:
    case OP_SHL:
    case OP_SHR: return true;
    default: return ops[code].class == CLASS_COMPARE;
    }
}

bool scalar_apply(op_code code, dtype t, int64_t x, int64_t y, int64_t *out)
{
    if (!scalar_knows(code)) return false;
    *out = integer_wrap(ops[code].class == CLASS_COMPARE ? DT_BOOL : t, scalar_raw(code, t, x, y));
    return true;
}

bool scalar_of_op(const tile_kernel *k, const tile_op *op, const int64_t *operands, int64_t *out)
{
    if (op->operand_count < 1 || op->result_count != 1) return false;
    dtype from = tile_type_of(k, op->operands[0]).elem, to = tile_type_of(k, op->results[0]).elem;
    if (dtype_is_float(from) || dtype_is_float(to)) return false;
    if (op->code == OP_SELECT)
        *out = operands[0] ? operands[1] : operands[2];
    else if (op->code == OP_CONVERT)
        *out = integer_wrap(to, operands[0]);
    else
        return scalar_apply(op->code, from, operands[0], op->operand_count > 1 ? operands[1] : 0, out);
    return true;
}

bool scalar_overflows(op_code code, dtype t, int64_t x, int64_t y)
{
    int64_t r = 0;
    bool wide = t == DT_U64, over;
    uint64_t u = (uint64_t)x, w = (uint64_t)y, v;
    switch (code) {
    case OP_ADD: over = wide ? __builtin_add_overflow(u, w, &v) : __builtin_add_overflow(x, y, &r); break;
    case OP_SUB: over = wide ? __builtin_sub_overflow(u, w, &v) : __builtin_sub_overflow(x, y, &r); break;
    case OP_MUL: over = wide ? __builtin_mul_overflow(u, w, &v) : __builtin_mul_overflow(x, y, &r); break;
    case OP_NEG: over = wide ? u != 0 : __builtin_sub_overflow((int64_t)0, x, &r); break;
    case OP_ABS: return x < 0 && scalar_overflows(OP_NEG, t, x, 0) && !wide;
    case OP_DIV: return y == -1 && !wide && scalar_overflows(OP_NEG, t, x, 0);
    default: return false;
    }
    return over || (!wide && integer_wrap(t, r) != r);
}

bool scalar_fits(dtype from, dtype to, int64_t x)
{
    if (from == DT_U64 && x < 0) return to == DT_U64; /* 2^63 and above */
    if (to == DT_U64) return x >= 0;
    return integer_wrap(to, x) == x;
}

int64_t scalar_truncate(dtype to, double x)
{
    if (to == DT_BOOL) return x != 0;
    int bits = dtypes[to].size_bytes * 8;
    bool is_signed = dtype_is_signed(to);
    double high = ldexp(1, is_signed ? bits - 1 : bits); /* the first that does not fit */
    double low = is_signed ? -high : 0;
    if (isnan(x)) return 0;
    if (x <= low) return is_signed ? (int64_t)(-(uint64_t)1 << (bits - 1)) : 0;
    if (x >= high) return is_signed ? (int64_t)(~(uint64_t)0 >> (65 - bits)) : (int64_t)(~(uint64_t)0 >> (64 - bits));
    return to == DT_U64 ? (int64_t)(uint64_t)x : (int64_t)x;
}

double scalar_widen(dtype from, int64_t x)
{
    return from == DT_U64 ? (double)(uint64_t)x : (double)x;
}

float scalar_widen_f32(dtype from, int64_t x)
{
    return from == DT_U64 ? (float)(uint64_t)x : (float)x;
}

number scalar_from_double(dtype t, double x)
{
    number n = {0};
    if (dtype_is_float(t))
        n.f = round_to_dtype(t, x);
    else if (t == DT_BOOL)
        n.i = x != 0;
    else
        n.i = integer_wrap(t, scalar_truncate(t == DT_U64 && x > 0 ? DT_U64 : DT_I64, x));
    return n;
}

int64_t scalar_greatest_divisor(int64_t a, int64_t b)
{
    while (b) {
        int64_t rest = a % b;
        a = b;
        b = rest;
    }
    return a < 0 ? -a : a;
}
