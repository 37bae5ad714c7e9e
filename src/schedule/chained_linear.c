/*
 * What the carried sums of chained products are linear in. In: a loop that suits. Out, in its schedule: a row's sum whose lanes
 * may each carry their own part, and constant factors that the sums are multiplied with behind the loop.
 * SPDX-License-Identifier: MIT
 */
#include "schedule/chained.h"

#include <math.h>

static const tile_op *def(const chained *c, value v)
{
    return tile_def(c->kernel, v);
}

static int uses_in(const tile_block *body, value v)
{
    int count = 0;
    for (int i = 0; i < body->op_count; i++)
        for (int o = 0; o < body->ops[i]->operand_count; o++) count += body->ops[i]->operands[o] == v;
    return count;
}

/* carried = carried * a number of the row + sum of scores, from zero: linear, so that lanes may add up at the end. */
static void find_lane_sum(chained *c)
{
    const tile_block *body = c->loop->regions[0];
    const tile_op *yield = body->ops[body->op_count - 1];
    for (int i = 0; i < yield->operand_count; i++) {
        value carried = body->args[1 + i], next = yield->operands[i];
        const tile_op *add = def(c, next);
        if (!add || add->code != OP_ADD || uses_in(body, carried) != 1 || uses_in(body, next) != 1) continue;
        for (int side = 0; side < 2; side++) {
            const tile_op *fold = def(c, add->operands[side]), *scaled = def(c, add->operands[!side]);
            bool linear = add->operands[!side] == carried ||
                          (scaled && scaled->code == OP_MUL && uses_in(body, scaled->results[0]) == 1 &&
                           (scaled->operands[0] == carried || scaled->operands[1] == carried));
            if (!linear || !fold || fold->code != OP_REDUCE || fold->attr.fold != FOLD_SUM) continue;
            if (uses_in(body, fold->results[0]) != 1 || !chained_is_zero(c, c->loop->operands[3 + i])) continue;
            c->lane_sum = fold->results[0];
            c->lane_carried = i;
        }
    }
}

/* A constant factor of all weights is one of their sum: a multiplication for each element of the result instead of one for
 * each score of each step. With the exponents of bf16 no weight is too large without it. */
static void find_factor(chained *c, chained_sum *s)
{
    const tile_block *body = c->loop->regions[0];
    value v = s->weights;
    number n;
    s->factor = 1;
    if (c->elem != DT_BF16 || !chained_is_zero(c, c->loop->operands[3 + s->carried])) return;
    for (const tile_op *op = def(c, v); op && uses_in(body, v) == 1; op = def(c, v)) {
        if (op->code == OP_MUL && tile_is_constant(c->kernel, op->operands[1], &n) && isfinite(n.f) && n.f != 0) {
            s->factored = v;
            s->factor = n.f;
            return;
        }
        bool masks = op->code == OP_SELECT && chained_is_zero(c, op->operands[2]);
        bool narrows = op->code == OP_CONVERT && dtype_is_float(tile_type_of(c->kernel, op->operands[0]).elem);
        if (!masks && !narrows) return;
        v = op->operands[masks];
    }
}

void chained_find_linear(chained *c)
{
    for (int i = 0; i < c->sum_count; i++) find_factor(c, &c->sums[i]);
    find_lane_sum(c);
}
