/*
 * split: a loop over blocks becomes full blocks and one rest, for back ends that ask for it.
 * requires: cse, licm. keeps: everything. breaks: fold, cse.
 *
 * In: any kernel with split_loops set; others stay. Out: `for k = first; k < limit; k += B` whose tests for the end of
 * an array would always hold if k + B <= limit did, is
 *     full = first + (limit - first) / B * B
 *     for k = first; k < full; k += B { body }
 *     if (full < limit) { body with k = full }
 * with the carried values of the loop going into the `if`. unmask then proves the tests of the first body. Only where
 * that removes a test, only innermost loops, and not where the body holds a `dot`, whose operands' bounds cost nothing.
 * The CPU's emitter does not ask: it clips its own loop nests, so a second body buys no time and half as much compile
 * time again (measured on the softmax and norm kernels).
 * SPDX-License-Identifier: MIT
 */
#include "passes/facts.h"
#include "passes/pass_list.h"

#include <string.h>

enum { LARGEST_BODY = 200 };

static int count_ops(const tile_block *b, bool *has_dot, bool *has_loop)
{
    int count = b->op_count;
    for (int i = 0; i < b->op_count; i++) {
        const tile_op *op = b->ops[i];
        *has_dot |= op->code == OP_DOT;
        *has_loop |= op->code == OP_FOR || op->code == OP_WHILE;
        for (int n = 0; n < op->region_count; n++) count += count_ops(op->regions[n], has_dot, has_loop);
    }
    return count;
}

static bool test_holds(const facts *f, const tile_op *op, int axis)
{
    if (op->code != OP_BOUND) return relate_access_inside(f, op, axis);
    tile_type type = tile_type_of(f->k, op->results[0]);
    return relate_inside(f, relate_value(f, op->operands[0]), relate_value(f, op->operands[1]),
                         relate_dimension(type.dims[op->attr.index], f), relate_value(f, op->operands[2]));
}

/* Is there a test that holds with the last condition, and not without? */
static bool removes_test(facts *f, const tile_block *b)
{
    for (int i = 0; i < b->op_count; i++) {
        const tile_op *op = b->ops[i];
        bool bound = op->code == OP_BOUND && tile_type_of(f->k, op->results[0]).rank;
        int tests = bound ? 1 : ops[op->code].class == CLASS_MEMORY ? op->attr.access.rank : 0;
        for (int axis = 0; axis < tests; axis++) {
            if (!bound && (op->attr.access.safe[axis] || op->attr.access.kind[axis] != INDEX_SLICE)) continue;
            if (!test_holds(f, op, axis)) continue;
            f->condition_count--;
            bool anyway = test_holds(f, op, axis);
            f->condition_count++;
            if (!anyway) return true;
        }
        for (int n = 0; n < op->region_count; n++)
            if (removes_test(f, op->regions[n])) return true;
    }
    return false;
}

static bool worth_it(facts *f, const tile_op *op, int64_t *step)
{
    bool has_dot = false, has_loop = false;
    integer_fact fact = facts_of(f, op->operands[2]);
    if (op->flags & F_DOWN || fact.low != fact.high || fact.low <= 1) return false;
    if (tile_type_of(f->k, op->operands[0]).elem != DT_I64) return false;
    if (count_ops(op->regions[0], &has_dot, &has_loop) > LARGEST_BODY || has_dot || has_loop) return false;
    *step = fact.low;
    if (f->condition_count == MOST_CONDITIONS) return false;
    linear room = relate_add(relate_value(f, op->operands[1]), relate_value(f, op->regions[0]->args[0]), -1);
    int outside = f->condition_count;
    relate_assume_form(f, relate_add(room, relate_constant(*step), -1));
    bool worth = f->condition_count > outside && removes_test(f, op->regions[0]);
    f->condition_count = outside;
    return worth;
}

static value emit_integer(rewriter *r, op_code code, value a, value b)
{
    value operands[2] = {a, b};
    return rewrite_emit(r, code, operands, 2, scalar_type(DT_I64));
}

static void split_loop(rewriter *r, facts *f, tile_op *op, int64_t step)
{
    tile_kernel *k = r->k;
    value first = op->operands[0], limit = op->operands[1];
    number n;
    bool from_zero = tile_is_constant(k, first, &n) && n.i == 0;
    value size = rewrite_integer(r, step), span = from_zero ? limit : emit_integer(r, OP_SUB, limit, first);
    value full = emit_integer(r, OP_MUL, emit_integer(r, OP_DIV, span, size), size);
    if (!from_zero) full = emit_integer(r, OP_ADD, first, full);
    linear forward = relate_add(relate_value(f, limit), relate_value(f, first), -1);
    value rest = relate_not_negative(f, &forward) ? full : emit_integer(r, OP_MAX, first, full);

    value *map = ARENA_ARRAY(r->scratch, value, k->value_count);
    tile_block *body = op->regions[0], *copy = rewrite_copy(k, body, map);
    tile_op *loop = tile_op_new(k, OP_FOR, op->operands, op->operand_count);
    loop->operands[1] = full;
    loop->line = op->line;
    loop->column = op->column;
    loop->regions[0] = body;
    loop->region_count = 1;
    for (int i = 0; i < op->result_count; i++) {
        value v = tile_result(k, loop, tile_type_of(k, op->results[i]));
        k->values[v].name = k->values[op->results[i]].name;
    }
    rewrite_keep(r, loop);
    f->loops[body->args[0]] = loop;

    value operands[2] = {rest, limit};
    value any = rewrite_emit(r, OP_LT, operands, 2, scalar_type(DT_BOOL));
    rewrite_replace(r, copy->args[0], rest);
    for (int i = 0; i < loop->result_count; i++) rewrite_replace(r, copy->args[1 + i], loop->results[i]);
    copy->arg_count = 0;
    tile_block *otherwise = tile_block_new(k);
    tile_append(k, otherwise, tile_op_new(k, OP_YIELD, loop->results, loop->result_count));
    op->code = OP_IF; /* the old op becomes the rest, so that its results are the ones that are read */
    op->operands = tile_op_new(k, OP_IF, &any, 1)->operands;
    op->operand_count = 1;
    op->regions[0] = copy;
    op->regions[1] = otherwise;
    op->region_count = 2;
    rewrite_keep(r, op);
}

static void split_op(rewriter *r, tile_op *op, void *context)
{
    facts *f = context;
    int64_t step = 0;
    bool worth = op->code == OP_FOR && worth_it(f, op, &step);
    relate_regions(r, f, op, split_op, context);
    if (worth)
        split_loop(r, f, op, step);
    else
        rewrite_keep(r, op);
}

bool pass_split(tile_kernel *k)
{
    if (!k->split_loops) return false;
    rewriter r = rewrite_start(k);
    facts *f = facts_compute(k, r.scratch);
    relate_phases(&r, f, split_op, f);
    return rewrite_finish(&r);
}
