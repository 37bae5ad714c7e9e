/*
 * simplify: integers that ranges, divisors and relations decide.
 * requires: cse. keeps: everything. breaks: fold, cse.
 *
 * In: any kernel. Out: an integer that has one possible value is that constant, comparisons that always or never hold
 * are bools, a remainder that takes nothing away and a minimum or maximum whose winner is known are gone. What is known
 * comes from facts.c and relate.c; the flow of control adds what each branch was taken for.
 * SPDX-License-Identifier: MIT
 */
#include "passes/facts.h"
#include "passes/pass_list.h"

/* Is a >= b + distance, always? */
static bool above(const facts *f, value a, value b, int64_t distance)
{
    linear form = relate_add(relate_add(relate_value(f, a), relate_value(f, b), -1), relate_constant(distance), -1);
    return relate_not_negative(f, &form);
}

/* 1: always true, 0: always false, -1: not known. */
static int decide(const facts *f, op_code code, value a, value b)
{
    switch (code) {
    case OP_LT: return above(f, b, a, 1) ? 1 : above(f, a, b, 0) ? 0 : -1;
    case OP_LE: return above(f, b, a, 0) ? 1 : above(f, a, b, 1) ? 0 : -1;
    case OP_GT: return decide(f, OP_LT, b, a);
    case OP_GE: return decide(f, OP_LE, b, a);
    case OP_EQ:
        if (above(f, a, b, 1) || above(f, b, a, 1)) return 0;
        return above(f, a, b, 0) && above(f, b, a, 0) ? 1 : -1;
    default: {
        int equal = decide(f, OP_EQ, a, b);
        return equal < 0 ? -1 : !equal;
    }
    }
}

static bool comparable(const facts *f, const tile_op *op)
{
    dtype t = tile_type_of(f->k, op->operands[0]).elem;
    if (!dtype_is_integer(t)) return false;
    return t != DT_U64 || (facts_of(f, op->operands[0]).low >= 0 && facts_of(f, op->operands[1]).low >= 0);
}

/* What the op's one result equals, or 0. */
static value simplify(rewriter *r, const facts *f, const tile_op *op)
{
    tile_type type = tile_type_of(r->k, op->results[0]);
    integer_fact fact = facts_of(f, op->results[0]);
    if (op->code == OP_CONST || op->code == OP_BROADCAST) return 0;
    if (dtype_is_integer(type.elem) && fact.low == fact.high)
        return rewrite_constant(r, type.elem, (number){.i = fact.low});
    if (ops[op->code].class == CLASS_COMPARE && comparable(f, op)) {
        int truth = decide(f, op->code, op->operands[0], op->operands[1]);
        return truth < 0 ? 0 : rewrite_bool(r, truth, type);
    }
    if (!dtype_is_integer(type.elem) || !op->operand_count) return 0;
    integer_fact left = facts_of(f, op->operands[0]);
    switch (op->code) {
    case OP_ABS: return left.low >= 0 && dtype_is_signed(type.elem) ? op->operands[0] : 0;
    case OP_MOD: {
        integer_fact right = facts_of(f, op->operands[1]);
        return left.low >= 0 && right.low > 0 &&
                       (left.high < right.low || above(f, op->operands[1], op->operands[0], 1))
                   ? op->operands[0]
                   : 0;
    }
    case OP_DIV: {
        const tile_op *inner = tile_def(r->k, op->operands[0]);
        integer_fact right = facts_of(f, op->operands[1]);
        if (!inner || inner->code != OP_MUL || right.low != right.high || right.low <= 0 ||
            op->operands[0] >= (value)f->value_count || !f->exact[op->operands[0]])
            return 0;
        for (int i = 0; i < 2; i++) {
            integer_fact factor = facts_of(f, inner->operands[i]);
            if (factor.low == right.low && factor.high == right.low) return inner->operands[1 - i];
        }
        return 0;
    }
    case OP_MIN:
    case OP_MAX: {
        if (!comparable(f, op)) return 0;
        bool left_first = above(f, op->operands[1], op->operands[0], 0);
        if (!left_first && !above(f, op->operands[0], op->operands[1], 0)) return 0;
        return op->operands[(op->code == OP_MIN) == left_first ? 0 : 1];
    }
    default: return 0;
    }
}

static void simplify_op(rewriter *r, tile_op *op, void *context)
{
    facts *f = context;
    bool candidate = ops[op->code].pure && !op->region_count && op->result_count == 1;
    value equal = candidate ? simplify(r, f, op) : 0;
    if (equal) {
        rewrite_replace(r, op->results[0], rewrite_fit(r, equal, tile_type_of(r->k, op->results[0])));
        return;
    }
    relate_regions(r, f, op, simplify_op, context);
    rewrite_keep(r, op);
}

bool pass_simplify(tile_kernel *k)
{
    return relate_pass(k, simplify_op);
}
