/*
 * Rules for one op. In: an op with its operands. Out: a value that equals its result, or 0.
 * Integers wrap, so their rules are those of a ring; for floats only what is exact for every input is used: no x * 0,
 * no x + 0 (it turns -0 into 0), nothing that reassociates.
 * SPDX-License-Identifier: MIT
 */
#include "passes/evaluate.h"
#include "passes/fold.h"

#include <math.h>

/* A new op on two values in the place of the op that is looked at. */
static value again(rewriter *r, const tile_op *op, op_code code, value a, value b)
{
    value operands[2] = {a, b};
    value v = rewrite_emit(r, code, operands, 2, tile_infer(r->k, code, operands, 2));
    tile_def(r->k, v)->flags = op->flags;
    return v;
}

static value number_like(rewriter *r, value v, int64_t i, double f)
{
    dtype elem = tile_type_of(r->k, v).elem;
    number n = {0};
    if (dtype_is_float(elem))
        n.f = f;
    else
        n.i = integer_wrap(elem, i);
    return rewrite_constant(r, elem, n);
}

static bool is_op(const rewriter *r, value v, op_code code)
{
    const tile_op *op = tile_def(r->k, v);
    return op && op->code == code;
}

/* (x op c1) op c2 is x op (c1 op c2) for an associative op on integers. */
static value merge_constants(rewriter *r, const tile_op *op, number right)
{
    const tile_op *inner = tile_def(r->k, op->operands[0]);
    number first, both;
    dtype elem = tile_type_of(r->k, op->results[0]).elem;
    if (!inner || inner->code != op->code || !constant_of(r->k, inner->operands[1], &first)) return 0;
    number in[2] = {first, right};
    if (!evaluate_op(op->code, elem, elem, in, &both)) return 0;
    return again(r, op, op->code, inner->operands[0], rewrite_constant(r, elem, both));
}

static value fold_integer(rewriter *r, const tile_op *op, const number *right)
{
    value x = op->operands[0], y = op->operands[1];
    bool same = x == y;
    dtype elem = tile_type_of(r->k, x).elem;
    int64_t all_ones = integer_wrap(elem, -1);
    value merged = right && ops[op->code].associative ? merge_constants(r, op, *right) : 0;
    if (merged) return merged;
    switch (op->code) {
    case OP_ADD:
    case OP_SHL:
    case OP_SHR: return right && right->i == 0 ? x : 0;
    case OP_SUB: return right && right->i == 0 ? x : same ? number_like(r, x, 0, 0) : 0;
    case OP_MUL: return right && right->i == 1 ? x : right && right->i == 0 ? number_like(r, x, 0, 0) : 0;
    case OP_DIV: return right && right->i == 1 ? x : 0;
    case OP_MOD: return right && right->i == 1 ? number_like(r, x, 0, 0) : 0;
    case OP_MIN:
    case OP_MAX: return same ? x : 0;
    case OP_AND:
        return same || (right && right->i == all_ones) ? x : right && right->i == 0 ? number_like(r, x, 0, 0) : 0;
    case OP_OR:
        return same || (right && right->i == 0) ? x : right && right->i == all_ones ? number_like(r, x, -1, 0) : 0;
    case OP_XOR: return right && right->i == 0 ? x : same ? number_like(r, x, 0, 0) : 0;
    default: return 0;
    }
}

static bool is_power_of_two(double x)
{
    int exponent;
    return isfinite(x) && fabs(frexp(x, &exponent)) == 0.5 && exponent > -100 && exponent < 100;
}

static value fold_float(rewriter *r, const tile_op *op, const number *right)
{
    value x = op->operands[0], y = op->operands[1];
    dtype elem = tile_type_of(r->k, x).elem;
    switch (op->code) {
    case OP_ADD:
        if (right && right->f == 0 && signbit(right->f)) return x;
        if (is_op(r, y, OP_NEG)) return again(r, op, OP_SUB, x, tile_def(r->k, y)->operands[0]);
        return 0;
    case OP_SUB:
        if (right && right->f == 0 && !signbit(right->f)) return x;
        if (is_op(r, y, OP_NEG)) return again(r, op, OP_ADD, x, tile_def(r->k, y)->operands[0]);
        return 0;
    case OP_MUL:
        if (right && right->f == 1) return x;
        if (right && right->f == -1) return rewrite_emit(r, OP_NEG, &x, 1, tile_type_of(r->k, x));
        return 0;
    case OP_DIV:
        if (right && right->f == 1) return x;
        if (right && (elem == DT_F32 || elem == DT_F64) && is_power_of_two(right->f))
            return again(r, op, OP_MUL, x, number_like(r, x, 0, 1 / right->f));
        return 0;
    case OP_POW:
        if (right && right->f == 1) return x;
        if (right && right->f == 2) return again(r, op, OP_MUL, x, x);
        if (right && right->f == -1) return again(r, op, OP_DIV, number_like(r, x, 0, 1), x);
        return 0;
    case OP_MIN:
    case OP_MAX: return x == y ? x : 0;
    default: return 0;
    }
}

/* x ? true : false and the like; arms of bool. */
static value fold_bool_select(rewriter *r, tile_op *op)
{
    number yes, no;
    if (!constant_of(r->k, op->operands[1], &yes) || !constant_of(r->k, op->operands[2], &no)) return 0;
    if (yes.i && !no.i) return op->operands[0];
    value c = op->operands[0];
    return !yes.i && no.i ? rewrite_emit(r, OP_NOT, &c, 1, tile_type_of(r->k, c)) : 0;
}

static value fold_select(rewriter *r, tile_op *op)
{
    number condition;
    value c = op->operands[0], yes = op->operands[1], no = op->operands[2];
    if (constant_of(r->k, c, &condition)) return condition.i ? yes : no;
    if (yes == no) return yes;
    if (is_op(r, c, OP_NOT) && !(op->flags & F_ASSIGN)) {
        op->operands[0] = tile_def(r->k, c)->operands[0];
        op->operands[1] = no;
        op->operands[2] = yes;
        r->changed = true;
        return 0;
    }
    for (int arm = 1; arm <= 2; arm++) { /* inside an arm the condition is decided */
        const tile_op *inner = tile_def(r->k, op->operands[arm]);
        if (!inner || inner->code != OP_SELECT || inner->operands[0] != c) continue;
        value operands[3] = {c, yes, no};
        operands[arm] = inner->operands[arm];
        tile_type shape = tile_infer(r->k, OP_SELECT, operands, 3), result = tile_type_of(r->k, op->results[0]);
        if (!tile_shape_same(&shape, &result)) continue;
        op->operands[arm] = operands[arm];
        r->changed = true;
        return 0;
    }
    return tile_type_of(r->k, yes).elem == DT_BOOL ? fold_bool_select(r, op) : 0;
}

/* Does every value of `from` survive in `to`? */
static bool is_lossless(dtype from, dtype to)
{
    int from_bits = 8 * dtypes[from].size_bytes - (dtypes[from].kind == KIND_INT);
    int to_bits = 8 * dtypes[to].size_bytes - (dtypes[to].kind == KIND_INT);
    if (from == to) return true;
    if (to == DT_BOOL) return false;
    if (from == DT_BOOL) return true;
    if (dtype_is_float(from)) return dtype_is_float(to) && dtypes[to].size_bytes > dtypes[from].size_bytes;
    if (dtype_is_float(to)) return from_bits <= dtypes[to].digits;
    if (dtypes[from].kind == KIND_INT && dtypes[to].kind == KIND_UINT) return false;
    return from_bits <= to_bits;
}

static value fold_convert(rewriter *r, tile_op *op)
{
    value x = op->operands[0];
    dtype from = tile_type_of(r->k, x).elem, to = tile_type_of(r->k, op->results[0]).elem;
    if (from == to) return x;
    const tile_op *inner = tile_def(r->k, x);
    if (!inner || inner->code != OP_CONVERT) return 0;
    dtype first = tile_type_of(r->k, inner->operands[0]).elem;
    if (!is_lossless(first, from)) return 0;
    if (first == to) return inner->operands[0];
    op->operands[0] = inner->operands[0];
    r->changed = true;
    return 0;
}

static value fold_unary(rewriter *r, tile_op *op)
{
    value x = op->operands[0];
    const tile_op *inner = tile_def(r->k, x);
    switch (op->code) {
    case OP_CONVERT: return fold_convert(r, op);
    case OP_BITCAST: return tile_type_of(r->k, x).elem == tile_type_of(r->k, op->results[0]).elem ? x : 0;
    case OP_NEG:
    case OP_NOT: return inner && inner->code == op->code ? inner->operands[0] : 0;
    case OP_ABS:
        if (!inner) return 0;
        if (inner->code == OP_ABS) return x;
        if (inner->code != OP_NEG || !dtype_is_signed(tile_type_of(r->k, x).elem)) return 0; /* neg of 6 is 250 */
        return rewrite_emit(r, OP_ABS, inner->operands, 1, tile_type_of(r->k, x));
    case OP_RELU:
    case OP_FLOOR:
    case OP_CEIL:
    case OP_ROUND:
    case OP_TF32: return inner && inner->code == op->code ? x : 0;
    default: return 0;
    }
}

static value fold_compare(rewriter *r, const tile_op *op)
{
    value x = op->operands[0];
    if (x != op->operands[1] || dtype_is_float(tile_type_of(r->k, x).elem)) return 0;
    bool truth = op->code == OP_LE || op->code == OP_GE || op->code == OP_EQ;
    return rewrite_constant(r, DT_BOOL, (number){.i = truth});
}

value algebra_elementwise(rewriter *r, tile_op *op)
{
    number right;
    if (op->code == OP_SELECT) return fold_select(r, op);
    if (ops[op->code].class == CLASS_UNARY) return fold_unary(r, op);
    if (ops[op->code].class == CLASS_COMPARE) return fold_compare(r, op);
    if (ops[op->code].class != CLASS_BINARY) return 0;
    if (ops[op->code].commutative && constant_of(r->k, op->operands[0], &right) &&
        !constant_of(r->k, op->operands[1], &right)) {
        value left = op->operands[0];
        op->operands[0] = op->operands[1];
        op->operands[1] = left;
        r->changed = true;
    }
    bool has_right = constant_of(r->k, op->operands[1], &right);
    if (dtype_is_float(tile_type_of(r->k, op->operands[0]).elem)) return fold_float(r, op, has_right ? &right : NULL);
    return fold_integer(r, op, has_right ? &right : NULL);
}

static value fold_reduce(rewriter *r, const tile_op *op)
{
    value x = op->operands[0];
    tile_type from = tile_type_of(r->k, x), to = tile_type_of(r->k, op->results[0]);
    bool units = true;
    for (int i = 0; i < from.rank; i++)
        if (op->attr.axis_set >> i & 1) units &= from.dims[i] == 1;
    if (units) { /* nothing to fold: one element each */
        if (op->attr.fold == FOLD_ARGMAX || op->attr.fold == FOLD_ARGMIN) return rewrite_integer(r, 0);
        return tile_shape_same(&from, &to) ? x : rewrite_emit(r, OP_RESHAPE, &x, 1, to);
    }
    number n;
    bool any_or_all = op->attr.fold == FOLD_ANY || op->attr.fold == FOLD_ALL, filled = true;
    for (int i = 0; i < from.rank; i++)
        if (op->attr.axis_set >> i & 1) filled &= from.dims[i] > 0;
    if (any_or_all && constant_of(r->k, x, &n) &&
        (filled || !!n.i == (op->attr.fold == FOLD_ALL))) /* or the identity */
        return rewrite_constant(r, DT_BOOL, (number){.i = !!n.i});
    return algebra_chosen(r, op);
}

value algebra_shape(rewriter *r, tile_op *op)
{
    value x = op->operands[0];
    tile_type from = tile_type_of(r->k, x), to = tile_type_of(r->k, op->results[0]);
    const tile_op *inner = tile_def(r->k, x);
    bool of_scalar = inner && inner->code == OP_BROADCAST && !tile_type_of(r->k, inner->operands[0]).rank;
    switch (op->code) {
    case OP_BROADCAST:
        if (tile_shape_same(&from, &to)) return x;
        if (inner && inner->code == OP_BROADCAST) {
            op->operands[0] = inner->operands[0];
            r->changed = true;
        }
        return 0;
    case OP_RESHAPE:
        if (tile_shape_same(&from, &to)) return x;
        if (!from.rank) return x; /* one number everywhere */
        if (of_scalar) return inner->operands[0];
        if (inner && inner->code == OP_RESHAPE) {
            op->operands[0] = inner->operands[0];
            r->changed = true;
        }
        return 0;
    case OP_PERMUTE: {
        bool in_order = true;
        if (of_scalar) return inner->operands[0];
        for (int i = 0; i < to.rank; i++) in_order &= op->attr.axes[i] == i;
        if (in_order) return x;
        if (inner && inner->code == OP_PERMUTE) {
            op->operands[0] = inner->operands[0];
            for (int i = 0; i < to.rank; i++) op->attr.axes[i] = inner->attr.axes[op->attr.axes[i]];
            r->changed = true;
        }
        return 0;
    }
    case OP_REDUCE: return fold_reduce(r, op);
    default: return 0;
    }
}
