/*
 * Constant arithmetic for fold: one elementwise op on numbers. The interpreter's arithmetic does the work, so that a
 * constant has the value that the program would have computed.
 * SPDX-License-Identifier: MIT
 */
#include "passes/evaluate.h"
#include "ir/interp_state.h"

#include <math.h>

static cell cell_of(dtype t, number n)
{
    cell c = {.i = n.i};
    if (dtype_is_float(t)) c.f = n.f;
    return c;
}

bool evaluate_op(op_code code, dtype from, dtype to, const number *in, number *out)
{
    cell a = cell_of(from, in[0]), b = a, result = {0};
    if (code == OP_SHL || code == OP_SHR)
        b.i = in[1].i;
    else if (ops[code].count == 2)
        b = cell_of(from, in[1]);
    switch (ops[code].class) {
    case CLASS_UNARY:
        if (code == OP_CONVERT)
            math_convert(from, to, false, 1, &a, 0, &result);
        else if (code == OP_BITCAST)
            math_bitcast(from, to, 1, &a, 0, &result);
        else
            math_unary(code, from, 1, &a, 0, &result);
        break;
    case CLASS_BINARY: math_binary(code, from, 1, &a, 0, &b, 0, &result); break;
    case CLASS_COMPARE: math_compare(code, from, 1, &a, 0, &b, 0, &result); break;
    default: return false;
    }
    math_round(to, 1, &result);
    *out = (number){0};
    if (dtype_is_float(to))
        out->f = result.f;
    else
        out->i = result.i;
    return code != OP_BITCAST || !dtype_is_float(to) || !isnan(result.f); /* a NaN's bits would not survive */
}
