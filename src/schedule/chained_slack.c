/*
 * A running maximum that may lag behind. In: a loop of chained products with folds. Out: the maximum of the carried number and
 * the step's whose exact value nothing that is stored depends on, noted in the schedule, or none.
 *
 * Where m is a row's carried maximum, each value is followed as it changes when m is d larger: by a multiple of d (m itself,
 * its logarithm), by a power of e^d (exponentials below m, their sums, products with them), or not at all. Inside the loop
 * there are two such d, that of the step before and the new one; what the loop carries must change by the new one as it came
 * in by the old one. If no store changes, the maximum may stay until a step exceeds it by CHAINED_SLACK, and with it all that
 * would be scaled anew at each small rise: the results are the same but for rounding, and numbers at most e^CHAINED_SLACK times
 * as large. What is rounded to a type whose numbers end early has to be known to leave room for that. Nothing recognises a softmax.
 * SPDX-License-Identifier: MIT
 */
#include "schedule/chained.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { BEFORE, NOW, TIMES };

typedef struct change { /* by multiples of d, and in powers of e^d */
    int adds[TIMES], powers[TIMES];
    bool unknown;
} change;

static const change none = {0}, unknown = {.unknown = true};

static bool same(const change *a, const change *b)
{
    return !memcmp(a->adds, b->adds, sizeof(a->adds)) && !memcmp(a->powers, b->powers, sizeof(a->powers));
}

static bool is_shifted(const change *a)
{
    return a->adds[BEFORE] || a->adds[NOW];
}

static bool is_scaled(const change *a)
{
    return a->powers[BEFORE] || a->powers[NOW];
}

static bool is_constant(const chained *c, value v, double x)
{
    number n;
    const tile_op *op = tile_def(c->kernel, v);
    while (op && op->code == OP_BROADCAST) v = op->operands[0], op = tile_def(c->kernel, v);
    return tile_is_constant(c->kernel, v, &n) && n.f == x;
}

static change combined(const int *a, const int *b, int sign, bool powers)
{
    change out = none;
    for (int i = 0; i < TIMES; i++) (powers ? out.powers : out.adds)[i] = a[i] + sign * b[i];
    return out;
}

/* Of a sum or a difference. */
static change change_of_sum(const change *x, int sign)
{
    if (is_scaled(&x[0]) || is_scaled(&x[1])) return same(&x[0], &x[1]) ? x[0] : unknown;
    return combined(x[0].adds, x[1].adds, sign, false);
}

/* One of the two arms; an arm that no change reaches is as good as any: zero times a power, -infinity and more. */
static change change_of_choice(const chained *c, const tile_op *op, const change *x)
{
    for (int side = 1; side < 3; side++) {
        const change *other = &x[3 - side];
        if (is_shifted(other) && is_constant(c, op->operands[side], -INFINITY)) return *other;
        if (is_scaled(other) && is_constant(c, op->operands[side], 0)) return *other;
    }
    return same(&x[1], &x[2]) ? x[1] : unknown;
}

/* What no element of a value exceeds while the maximum does not lag; infinity: not known. */
static double bound_of(const chained *c, value v, value maximum, int depth)
{
    enum { MOST_DEPTH = 16 };
    const tile_op *op = tile_def(c->kernel, v);
    number n;
    if (tile_is_constant(c->kernel, v, &n))
        return dtype_is_float(tile_type_of(c->kernel, v).elem) ? fabs(n.f) : INFINITY;
    if (!op || depth == MOST_DEPTH) return INFINITY;
    switch (op->code) {
    case OP_BROADCAST:
    case OP_RESHAPE:
    case OP_PERMUTE:
    case OP_CONVERT: return bound_of(c, op->operands[0], maximum, depth + 1);
    case OP_SELECT:
        return fmax(bound_of(c, op->operands[1], maximum, depth + 1), bound_of(c, op->operands[2], maximum, depth + 1));
    case OP_MUL: {
        double bound = bound_of(c, op->operands[0], maximum, depth + 1);
        return isfinite(bound) ? bound * bound_of(c, op->operands[1], maximum, depth + 1) : bound;
    }
    case OP_EXP: { /* of a score less the maximum of all so far */
        const tile_op *less = tile_def(c->kernel, op->operands[0]);
        if (!less || less->code != OP_SUB) return INFINITY;
        const tile_op *from = tile_def(c->kernel, less->operands[1]);
        value below = less->operands[1];
        for (; from && from->code == OP_BROADCAST; from = tile_def(c->kernel, below)) below = from->operands[0];
        return below == maximum ? 1 : INFINITY;
    }
    default: return INFINITY;
    }
}

/* Is there room in the type of a converted value for what a maximum that lags adds to it? */
static bool has_room(const chained *c, const tile_op *convert, const change *x, value maximum)
{
    dtype elem = tile_type_of(c->kernel, convert->results[0]).elem;
    double most = elem == DT_F16 ? 65504 : elem == DT_F8E4M3 ? 448 : INFINITY;
    int powers = abs(x->powers[BEFORE]) + abs(x->powers[NOW]);
    if (!powers || !isfinite(most)) return true;
    return bound_of(c, convert->operands[0], maximum, 0) * exp(CHAINED_SLACK * powers) <= most;
}

/* How the result changes when the operands do. */
static change change_of(const chained *c, const tile_op *op, const change *x, value maximum)
{
    bool changes = false, shifted = false;
    for (int i = 0; i < op->operand_count; i++) {
        if (x[i].unknown) return unknown;
        shifted |= is_shifted(&x[i]);
        changes |= is_shifted(&x[i]) || is_scaled(&x[i]);
    }
    if (!changes) return none;
    switch (op->code) {
    case OP_BROADCAST:
    case OP_RESHAPE:
    case OP_PERMUTE: return x[0];
    case OP_CONVERT:
        if (shifted || !dtype_is_float(tile_type_of(c->kernel, op->results[0]).elem)) return unknown;
        return has_room(c, op, x, maximum) ? x[0] : unknown;
    case OP_ADD: return change_of_sum(x, 1);
    case OP_SUB: return change_of_sum(x, -1);
    case OP_MUL: return shifted ? unknown : combined(x[0].powers, x[1].powers, 1, true);
    case OP_DIV: return shifted ? unknown : combined(x[0].powers, x[1].powers, -1, true);
    case OP_EXP: return is_scaled(&x[0]) ? unknown : combined(x[0].adds, none.adds, 1, true);
    case OP_LOG: return shifted ? unknown : combined(x[0].powers, none.powers, 1, false);
    case OP_SELECT: return is_shifted(&x[0]) || is_scaled(&x[0]) ? unknown : change_of_choice(c, op, x);
    case OP_REDUCE: return op->attr.fold == FOLD_SUM && shifted ? unknown : x[0];
    case OP_DOT: { /* of scaled rows; what it adds to changes alike */
        if (shifted || is_scaled(&x[1])) return unknown;
        return op->operand_count < 3 || same(&x[0], &x[2]) ? x[0] : unknown;
    }
    default: return unknown;
    }
}

static void follow(const chained *c, const tile_op *op, change *of, value maximum)
{
    change x[4];
    if (op->result_count != 1 || op->code == OP_CONST) return;
    for (int i = 0; i < op->operand_count && i < 4; i++) x[i] = of[op->operands[i]];
    of[op->results[0]] = op->code == OP_LOAD ? none : op->operand_count > 4 ? unknown : change_of(c, op, x, maximum);
}

/* Are all stores the same for any choice of this maximum? */
static bool may_lag(const chained *c, int carried, value maximum, arena *memory)
{
    const tile_block *body = c->loop->regions[0], *block = c->kernel->phases[c->phase];
    const tile_op *yield = body->ops[body->op_count - 1];
    change *of = ARENA_ARRAY(memory, change, c->kernel->value_count);
    for (int i = 0; i < yield->operand_count; i++) { /* what else is carried are sums of exponentials below it */
        change *at = &of[body->args[1 + i]];
        (i == carried ? at->adds : at->powers)[BEFORE] = i == carried ? 1 : -1;
    }
    for (int i = 0; i + 1 < body->op_count; i++) {
        follow(c, body->ops[i], of, maximum);
        if (body->ops[i]->results[0] == maximum) of[maximum] = (change){.adds = {[NOW] = 1}};
    }
    for (int i = 0; i < yield->operand_count; i++) {
        const change wanted = i == carried ? (change){.adds = {[NOW] = 1}} : (change){.powers = {[NOW] = -1}};
        if (of[yield->operands[i]].unknown || !same(&of[yield->operands[i]], &wanted)) return false;
        of[c->loop->results[i]] = wanted;
        if (i != carried && !is_constant(c, c->loop->operands[3 + i], 0)) return false; /* zero times any power */
    }
    bool behind = false;
    for (int i = 0; i < block->op_count; i++) {
        const tile_op *op = block->ops[i];
        if (behind && op->result_count) follow(c, op, of, maximum);
        if (op->code == OP_STORE && (of[op->operands[0]].unknown || !same(&of[op->operands[0]], &none))) return false;
        behind |= op == c->loop;
    }
    return true;
}

void chained_find_slack(chained *c, arena *memory)
{
    const tile_block *body = c->loop->regions[0];
    const tile_op *yield = body->ops[body->op_count - 1];
    for (int i = 0; i < yield->operand_count && c->folds; i++) {
        const tile_op *op = tile_def(c->kernel, yield->operands[i]);
        if (!op || op->code != OP_MAX || chained_kind_of(c, op->results[0]) != CHAINED_FIXED) continue;
        if (op->operands[0] != body->args[1 + i] && op->operands[1] != body->args[1 + i]) continue;
        if (tile_type_of(c->kernel, op->results[0]).elem != DT_F32 || !may_lag(c, i, op->results[0], memory)) continue;
        c->slack = op->results[0];
        c->slack_carried = i;
    }
}
