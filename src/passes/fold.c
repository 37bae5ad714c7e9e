/*
 * fold: constants, algebra, and control flow that is decided.
 * requires: nothing. keeps: everything. breaks: nothing.
 *
 * In: any kernel. Out: the same one with constant expressions computed, rules of algebra.c applied, tiles of one number
 * computed as scalars, operands broadcast only where the op does not broadcast them itself, constant `if`s and loops of
 * at most one trip opened, and carried values that never change taken out of their loops.
 * SPDX-License-Identifier: MIT
 */
#include "passes/evaluate.h"
#include "passes/fold.h"
#include "passes/pass_list.h"

#include <string.h>

enum { MOST_ROUNDS = 8 };

static void fold_op(rewriter *r, tile_op *op, void *context);

static bool is_elementwise(op_code code)
{
    op_class class = ops[code].class;
    return class == CLASS_UNARY || class == CLASS_BINARY || class == CLASS_COMPARE || class == CLASS_TERNARY;
}

/* All operands constant: the op's value, as a scalar. A precise op gives the bits that its device gives, whatever is
 * known of its operands. */
static value fold_constants(rewriter *r, const tile_op *op)
{
    number in[3], out;
    if (op->operand_count > 2) return 0;
    bool precise = r->k->precise || op->flags & F_PRECISE;
    if (precise && !op_rounds_correctly(op->code, tile_type_of(r->k, op->results[0]).elem)) return 0;
    for (int i = 0; i < op->operand_count; i++)
        if (!constant_of(r->k, op->operands[i], &in[i])) return 0;
    dtype to = tile_type_of(r->k, op->results[0]).elem;
    if (!evaluate_op(op->code, tile_type_of(r->k, op->operands[0]).elem, to, in, &out)) return 0;
    return rewrite_constant(r, to, out);
}

/* A tile of one number is computed once: all operands are scalars or broadcast ones, one of the latter at least. */
static value fold_uniform(rewriter *r, const tile_op *op)
{
    value scalars[3];
    bool any = false;
    for (int i = 0; i < op->operand_count; i++) {
        scalars[i] = op->operands[i];
        if (!tile_type_of(r->k, scalars[i]).rank) continue;
        const tile_op *inner = tile_def(r->k, scalars[i]);
        if (!inner || inner->code != OP_BROADCAST) return 0;
        scalars[i] = inner->operands[0];
        if (tile_type_of(r->k, scalars[i]).rank) return 0;
        any = true;
    }
    if (!any) return 0;
    value v =
        rewrite_emit(r, op->code, scalars, op->operand_count, scalar_type(tile_type_of(r->k, op->results[0]).elem));
    tile_def(r->k, v)->flags = op->flags;
    tile_def(r->k, v)->attr = op->attr;
    return v;
}

/* An operand that is a broadcast gives way to what was broadcast, if the others still make the result's shape. */
static void strip_broadcasts(rewriter *r, tile_op *op)
{
    tile_type want = tile_type_of(r->k, op->results[0]);
    for (int i = 0; i < op->operand_count; i++) {
        const tile_op *inner = tile_def(r->k, op->operands[i]);
        if (!inner || inner->code != OP_BROADCAST) continue;
        tile_type shape = tile_type_of(r->k, inner->operands[0]);
        bool good = true;
        for (int j = 0; j < op->operand_count && good; j++) {
            tile_type other = tile_type_of(r->k, op->operands[j]);
            if (j != i) good = tile_broadcast(&shape, &other, &shape);
        }
        if (!good || !tile_shape_same(&shape, &want)) continue;
        op->operands[i] = inner->operands[0];
        r->changed = true;
    }
}

/* Masks that always hold go; false if one never holds. */
static bool fold_masks(rewriter *r, tile_op *op, int first)
{
    int kept = first;
    number n;
    for (int i = first; i < op->operand_count; i++)
        if (constant_of(r->k, op->operands[i], &n) && !n.i) return false;
    for (int i = first; i < op->operand_count; i++) {
        value mask = op->operands[i];
        if (constant_of(r->k, mask, &n)) continue;
        const tile_op *inner = tile_def(r->k, mask);
        if (inner && inner->code == OP_BROADCAST) mask = inner->operands[0];
        r->changed |= mask != op->operands[i];
        op->operands[kept++] = mask;
    }
    r->changed |= kept != op->operand_count;
    op->operand_count = kept;
    return true;
}

static void fold_memory(rewriter *r, tile_op *op)
{
    access *a = &op->attr.access;
    int first = op->operand_count - a->mask_count;
    bool ever = fold_masks(r, op, first);
    if (ever) a->mask_count = op->operand_count - first;
    if (ever || op->code == OP_ATOMIC) {
        rewrite_keep(r, op);
    } else if (op->code == OP_LOAD) { /* what is masked off reads nothing; 0 stands for it */
        tile_type type = tile_type_of(r->k, op->results[0]);
        rewrite_replace(r, op->results[0], rewrite_fit(r, rewrite_constant(r, type.elem, (number){0}), type));
    } else {
        r->changed = true;
    }
}

static void fold_effect(rewriter *r, tile_op *op)
{
    number n;
    if (op->code != OP_PRINT && constant_of(r->k, op->operands[0], &n) && n.i) {
        r->changed = true;
        return;
    }
    if (op->code != OP_PRINT && !fold_masks(r, op, 1)) {
        r->changed = true;
        return;
    }
    rewrite_keep(r, op);
}

/* The region in the place of its op: results become what it yields. */
static void open_region(rewriter *r, tile_op *op, const tile_block *region)
{
    rewrite_into(r, region, fold_op, NULL);
    tile_op *last = block_last(region);
    for (int i = 0; i < op->result_count; i++) {
        value v = rewrite_find(r, last->operands[i]);
        if (!r->k->values[v].name) r->k->values[v].name = r->k->values[op->results[i]].name;
        rewrite_replace(r, op->results[i], v);
    }
    r->changed = true;
}

/* Takes carried value `at` out of a loop. */
static void drop_carried(tile_op *op, int first, int at)
{
    memmove(op->operands + first + at, op->operands + first + at + 1,
            sizeof(value) * (size_t)(op->operand_count - first - at - 1));
    memmove(op->results + at, op->results + at + 1, sizeof(value) * (size_t)(op->result_count - at - 1));
    op->operand_count--;
    op->result_count--;
    for (int i = 0; i < op->region_count; i++) {
        tile_block *b = op->regions[i];
        tile_op *last = block_last(b);
        int skip = op->code == OP_FOR;
        memmove(b->args + skip + at, b->args + skip + at + 1, sizeof(value) * (size_t)(b->arg_count - skip - at - 1));
        b->arg_count--;
        if (last->code != OP_YIELD) continue;
        memmove(last->operands + at, last->operands + at + 1, sizeof(value) * (size_t)(last->operand_count - at - 1));
        last->operand_count--;
    }
}

static void drop_invariant(rewriter *r, tile_op *op)
{
    int first = op->code == OP_FOR ? 3 : 0, skip = op->code == OP_FOR;
    const tile_block *body = op->regions[op->region_count - 1];
    for (int i = op->result_count - 1; i >= 0; i--) {
        value yielded = block_last(body)->operands[i], initial = op->operands[first + i];
        if (yielded != body->args[skip + i] && rewrite_find(r, yielded) != initial) continue;
        for (int n = 0; n < op->region_count; n++) rewrite_replace(r, op->regions[n]->args[skip + i], initial);
        rewrite_replace(r, op->results[i], initial);
        drop_carried(op, first, i);
    }
}

static void fold_for(rewriter *r, tile_op *op)
{
    number first, limit, step;
    const tile_block *body = op->regions[0];
    bool down = op->flags & F_DOWN,
         known = tile_is_constant(r->k, op->operands[0], &first) && tile_is_constant(r->k, op->operands[1], &limit);
    bool runs = known && (down ? first.i > limit.i : first.i < limit.i);
    bool same = op->operands[0] == op->operands[1];
    if ((known && !runs) || same) {
        for (int i = 0; i < op->result_count; i++) rewrite_replace(r, op->results[i], op->operands[3 + i]);
        r->changed = true;
        return;
    }
    int64_t distance = 0;
    if (runs && !__builtin_sub_overflow(limit.i, first.i, &distance) &&
        tile_is_constant(r->k, op->operands[2], &step) && (down ? step.i < 0 : step.i > 0) &&
        (down ? step.i <= distance : step.i >= distance)) {
        for (int i = 0; i < body->arg_count; i++) rewrite_replace(r, body->args[i], op->operands[i ? 2 + i : 0]);
        open_region(r, op, body);
        return;
    }
    drop_invariant(r, op);
    rewrite_block(r, op->regions[0], fold_op, NULL);
    rewrite_keep(r, op);
}

static void fold_control(rewriter *r, tile_op *op)
{
    number n;
    if (op->code == OP_FOR) {
        fold_for(r, op);
        return;
    }
    if (op->code == OP_IF && tile_is_constant(r->k, op->operands[0], &n)) {
        open_region(r, op, op->regions[n.i ? 0 : 1]);
        return;
    }
    if (op->code == OP_WHILE) drop_invariant(r, op);
    for (int i = 0; i < op->region_count; i++) rewrite_block(r, op->regions[i], fold_op, NULL);
    rewrite_keep(r, op);
}

static void fold_op(rewriter *r, tile_op *op, void *context)
{
    value equal = 0;
    if (ops[op->code].class == CLASS_CONTROL) {
        fold_control(r, op);
        return;
    }
    if (ops[op->code].class == CLASS_MEMORY) {
        fold_memory(r, op);
        return;
    }
    if (ops[op->code].class == CLASS_EFFECT) {
        fold_effect(r, op);
        return;
    }
    if (is_elementwise(op->code)) {
        if (op->operand_count > 1) strip_broadcasts(r, op);
        equal = fold_constants(r, op);
        if (!equal) equal = fold_uniform(r, op);
        if (!equal) equal = algebra_elementwise(r, op);
    } else if (ops[op->code].class == CLASS_SHAPE || ops[op->code].class == CLASS_FOLD) {
        equal = algebra_shape(r, op);
    }
    if (equal)
        rewrite_replace(r, op->results[0], rewrite_fit(r, equal, tile_type_of(r->k, op->results[0])));
    else
        rewrite_keep(r, op);
}

bool pass_fold(tile_kernel *k)
{
    bool any = false;
    for (int round = 0; round < MOST_ROUNDS; round++) { /* what a rule made may fit another */
        rewriter r = rewrite_start(k);
        rewrite_kernel(&r, fold_op, NULL);
        if (!rewrite_finish(&r)) break;
        any = true;
    }
    return any;
}
