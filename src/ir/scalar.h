/*
 * The arithmetic of integers and bools, once: what the interpreter does to tiles, folding to constants, the launch to
 * extents, and counting to loops. In: numbers of a type, canonical (integer_wrap has been applied; a u64 lies in an
 * int64_t bit for bit). Out: numbers of the result's type, canonical again; nothing traps and nothing is undefined.
 * Sums, differences, products and negations wrap; division rounds down, by zero it gives 0; a remainder has the
 * divisor's sign; counts of shifts are taken modulo the width; floats truncate, saturate, and NaN is 0.
 * SPDX-License-Identifier: MIT
 */
#ifndef QUERN_IR_SCALAR_H
#define QUERN_IR_SCALAR_H

#include "ir/tile.h"

/* One op with operands x and y of type t (a shift's count has its own; y is not looked at with one operand). The op is
 * one of those that scalar_knows. In the header, so that a loop with a constant op has no switch inside. The result
 * has not been wrapped: scalar_apply, or integer_wrap with the result's type. */
static inline int64_t scalar_raw(op_code code, dtype t, int64_t x, int64_t y)
{
    const uint64_t u = (uint64_t)x, w = (uint64_t)y;
    const bool wide = t == DT_U64; /* the only type that a signed 64-bit integer does not hold */
    const uint64_t count = w & (uint64_t)(dtypes[t].size_bytes * 8 - 1);
    switch (code) {
    case OP_NEG: return (int64_t)(0 - u);
    case OP_NOT: return t == DT_BOOL ? !x : ~x;
    case OP_ABS: return x < 0 && !wide ? (int64_t)(0 - u) : x;
    case OP_SIGN: return wide ? u != 0 : (x > 0) - (x < 0);
    case OP_ADD: return (int64_t)(u + w);
    case OP_SUB: return (int64_t)(u - w);
    case OP_MUL: return (int64_t)(u * w);
    case OP_DIV:
        if (!y) return 0;
        if (wide) return (int64_t)(u / w);
        return y == -1 ? (int64_t)(0 - u) : x / y - (x % y != 0 && (x < 0) != (y < 0));
    case OP_MOD:
        if (!y) return 0;
        if (wide) return (int64_t)(u % w);
        return y == -1 ? 0 : x % y + (x % y != 0 && (x < 0) != (y < 0) ? y : 0);
    case OP_MIN: return (wide ? u < w : x < y) ? x : y;
    case OP_MAX: return (wide ? u > w : x > y) ? x : y;
    case OP_AND: return x & y;
    case OP_OR: return x | y;
    case OP_XOR: return x ^ y;
    case OP_SHL: return (int64_t)(u << count);
    case OP_SHR: return wide ? (int64_t)(u >> count) : x >> count;
    case OP_LT: return wide ? u < w : x < y;
    case OP_LE: return wide ? u <= w : x <= y;
    case OP_GT: return wide ? u > w : x > y;
    case OP_GE: return wide ? u >= w : x >= y;
    case OP_EQ: return x == y;
    case OP_NE: return x != y;
    default: return 0;
    }
}

/* Has the op a meaning for integers here? */
bool scalar_knows(op_code code);
/* The canonical result; false: no such op of integers. `t` is the type of the operands. */
bool scalar_apply(op_code code, dtype t, int64_t x, int64_t y, int64_t *out);
/* An op of integers and bools, of scalars, with known operands: those above, select and convert. False: another op, or
 * one that has to do with floats. */
bool scalar_of_op(const tile_kernel *k, const tile_op *op, const int64_t *operands, int64_t *out);
/* Would it wrap? Of sums, differences, products, negations, absolute values and quotients. */
bool scalar_overflows(op_code code, dtype t, int64_t x, int64_t y);
bool scalar_fits(dtype from, dtype to, int64_t x); /* does a conversion keep the number? */

int64_t scalar_truncate(dtype to, double x);   /* to an integer or a bool */
double scalar_widen(dtype from, int64_t x);    /* to the nearest double */
float scalar_widen_f32(dtype from, int64_t x); /* straight: through a double it would round twice */
/* A number of a type that somebody wrote as a double: floats are rounded, integers truncated, and what 64 bits hold
 * wraps (-1 is all ones). */
number scalar_from_double(dtype t, double x);

int64_t scalar_greatest_divisor(int64_t a, int64_t b); /* of both; 0 counts as a multiple of everything */

#endif
