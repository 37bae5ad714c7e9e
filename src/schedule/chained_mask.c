/*
 * Masks of the recipe `chained`: comparisons of positions and bounds, so that the steps that they leave whole are known.
 * In: a tile of truths. Out: its conditions, noted in the schedule once each.
 * SPDX-License-Identifier: MIT
 */
#include "schedule/chained.h"

#include <math.h>

enum { MOST_MORE = 1 << 30 };

static const tile_op *def(const chained *c, value v)
{
    return tile_def(c->kernel, v);
}

static bool is_number(const chained *c, value v, int64_t n)
{
    number x;
    return tile_is_constant(c->kernel, v, &x) && x.i == n;
}

bool chained_find_position(const chained *c, value v, int *axis, value *start, int64_t *more)
{
    tile_type type = tile_type_of(c->kernel, v);
    if (type.rank != 2) return false;
    *axis = type.dims[0] == 1 ? 1 : 0;
    *start = 0;
    *more = 0;
    for (int depth = 0; depth < 16; depth++) {
        const tile_op *op = def(c, v);
        if (!op) return false;
        if (op->code == OP_IOTA) return *start != 0;
        if (op->code == OP_RESHAPE || op->code == OP_BROADCAST) {
            v = op->operands[0];
            continue;
        }
        if (op->code != OP_ADD && op->code != OP_SUB) return false;
        int side = op->code == OP_ADD && !tile_type_of(c->kernel, op->operands[0]).rank ? 1 : 0;
        value other = op->operands[!side];
        number n;
        while (def(c, other) && def(c, other)->code == OP_BROADCAST) other = def(c, other)->operands[0];
        if (tile_type_of(c->kernel, other).rank) return false;
        if (tile_is_constant(c->kernel, other, &n)) {
            if (n.i < -MOST_MORE || n.i > MOST_MORE) return false;
            *more += op->code == OP_ADD ? n.i : -n.i;
        } else if (*start || op->code == OP_SUB) {
            return false;
        } else {
            *start = other;
        }
        v = op->operands[side];
    }
    return false;
}

bool chained_is_place(const chained *c, value v)
{
    int axis;
    value start;
    int64_t more;
    return !dtype_is_float(tile_type_of(c->kernel, v).elem) && chained_find_position(c, v, &axis, &start, &more);
}

static bool add_condition(chained *c, chained_condition condition, unsigned *bits)
{
    int at = 0;
    while (at < c->condition_count && c->conditions[at].of != condition.of) at++;
    if (at == CHAINED_MOST_CONDITIONS) return false;
    if (at == c->condition_count) c->conditions[c->condition_count++] = condition;
    *bits |= 1u << at;
    return true;
}

/* moving < a number that the loop does not change: a length. */
static bool find_length(chained *c, const tile_op *op, value v, unsigned *bits)
{
    value start, at = c->loop->regions[0]->args[0];
    int axis, moving = op->code == OP_LT ? 0 : 1;
    int64_t more;
    const tile_op *limit = def(c, op->operands[!moving]);
    if (limit && limit->code == OP_BROADCAST) limit = def(c, limit->operands[0]);
    if ((op->code != OP_LT && op->code != OP_GT) || !limit || tile_type_of(c->kernel, limit->results[0]).rank)
        return false;
    const tile_block *body = c->loop->regions[0];
    for (int i = 0; i < body->op_count; i++)
        if (body->ops[i] == limit) return false;
    if (!chained_find_position(c, op->operands[moving], &axis, &start, &more) || start != at || more) return false;
    return axis == (c->turned ? 0 : 1) &&
           add_condition(c, (chained_condition){.of = v, .moving = at, .limit = limit->results[0]}, bits);
}

static bool find_comparison(chained *c, const tile_op *op, value v, unsigned *bits)
{
    value start[2], at = c->loop->regions[0]->args[0];
    int axis[2], moving_axis = c->turned ? 0 : 1;
    int64_t more[2];
    if (find_length(c, op, v, bits)) return true;
    for (int i = 0; i < 2; i++)
        if (!chained_find_position(c, op->operands[i], &axis[i], &start[i], &more[i])) return false;
    int moving = axis[0] == moving_axis ? 0 : 1;
    if (axis[0] == axis[1] || start[moving] != at) return false;
    op_code compare = op->code;
    if (moving == 1) compare = compare == OP_LT ? OP_GT : compare == OP_LE ? OP_GE : compare == OP_GT ? OP_LT : OP_LE;
    chained_condition condition = {.of = v, .moving = at, .fixed = start[!moving], .compare = compare};
    condition.more = more[!moving] - more[moving];
    return add_condition(c, condition, bits);
}

static bool find_mask(chained *c, value v, int *ways, unsigned *bits)
{
    const tile_op *op = def(c, v);
    value at = c->loop->regions[0]->args[0];
    if (!op || --*ways < 0) return false;
    switch (op->code) {
    case OP_AND: return find_mask(c, op->operands[0], ways, bits) && find_mask(c, op->operands[1], ways, bits);
    case OP_BROADCAST: return find_mask(c, op->operands[0], ways, bits);
    case OP_BOUND: {
        tile_type type = tile_type_of(c->kernel, v);
        if (type.rank != 2 || !is_number(c, op->operands[1], 1)) return false;
        if (op->attr.index == (c->turned ? 1 : 0)) { /* fixed rows that do not exist are not stored */
            c->fixed_start = op->operands[0];
            c->fixed_limit = op->operands[2];
            return true;
        }
        return op->operands[0] == at &&
               add_condition(c, (chained_condition){.of = v, .moving = at, .limit = op->operands[2]}, bits);
    }
    case OP_LE:
    case OP_LT:
    case OP_GE:
    case OP_GT: return find_comparison(c, op, v, bits);
    default: return false;
    }
}

bool chained_find_mask(chained *c, value v, unsigned *bits)
{
    int ways = TILE_MOST_WAYS;
    return find_mask(c, v, &ways, bits);
}

/* Has it an element for each of the scores, and not one a row or column? */
static bool is_whole(const chained *c, value v)
{
    tile_type type = tile_type_of(c->kernel, v);
    for (int axis = 0; axis < type.rank; axis++)
        if (type.dims[axis] == 1) return false;
    return true;
}

/* Computed, element by element, from positions, numbers and truths of an array. */
static bool is_computed(const chained *c, value v, int *ways)
{
    int axis;
    value start;
    int64_t more;
    const tile_op *op = def(c, v);
    if (!tile_type_of(c->kernel, v).rank) return true;
    if (!op || --*ways < 0) return false;
    if (chained_find_position(c, v, &axis, &start, &more)) return true;
    if (op->code == OP_LOAD) return tile_type_of(c->kernel, v).elem == DT_BOOL && chained_is_table(c, op);
    if (op->code == OP_CONVERT && !is_whole(c, v)) return false; /* a row of floats is printed before there is a row */
    op_class class = ops[op->code].class;
    bool elementwise = class == CLASS_UNARY || class == CLASS_BINARY || class == CLASS_TERNARY ||
                       class == CLASS_COMPARE || op->code == OP_BROADCAST || op->code == OP_RESHAPE;
    for (int i = 0; i < op->operand_count && elementwise; i++) elementwise = is_computed(c, op->operands[i], ways);
    return elementwise;
}

bool chained_is_truth(const chained *c, value v)
{
    int ways = TILE_MOST_WAYS;
    return tile_type_of(c->kernel, v).elem == DT_BOOL && is_computed(c, v, &ways);
}

bool chained_mask(const chained *c, value v, unsigned *conditions)
{
    chained copy = *c;
    *conditions = 0;
    return chained_find_mask(&copy, v, conditions) && copy.condition_count == c->condition_count;
}

/* ---- steps that add nothing ---- */

typedef enum known_kind { KNOWN_SAME, KNOWN_LEAST, KNOWN_ZERO, KNOWN_ONE, KNOWN_FALSE } known_kind;

/* What a value is in a step in which a condition holds nowhere: another value, or a number. */
typedef struct known {
    known_kind kind;
    value as;
} known;

static bool is_splat(const chained *c, value v, double wanted)
{
    number n;
    while (def(c, v) && def(c, v)->code == OP_BROADCAST) v = def(c, v)->operands[0];
    return tile_is_constant(c->kernel, v, &n) && dtype_is_float(tile_type_of(c->kernel, v).elem) && n.f == wanted;
}

/* select(a mask with the condition, x, wanted) */
static bool is_left_out(const chained *c, value v, int condition, double wanted)
{
    unsigned bits;
    const tile_op *op = def(c, v);
    return op && op->code == OP_SELECT && chained_mask(c, op->operands[0], &bits) && bits >> condition & 1 &&
           is_splat(c, op->operands[2], wanted);
}

static known known_of(const chained *c, const known *all, const tile_op *op, int condition)
{
    value v = op->results[0];
    const known self = {KNOWN_SAME, v}, x = op->operand_count ? all[op->operands[0]] : self,
                y = op->operand_count > 1 ? all[op->operands[1]] : self;
    switch (op->code) {
    case OP_REDUCE:
        if (op->attr.fold == FOLD_MAX && is_left_out(c, op->operands[0], condition, -INFINITY))
            return (known){KNOWN_LEAST, 0};
        if (op->attr.fold == FOLD_SUM && is_left_out(c, op->operands[0], condition, 0)) return (known){KNOWN_ZERO, 0};
        return self;
    case OP_DOT:
        return op->operand_count == 3 && is_left_out(c, op->operands[0], condition, 0) ? all[op->operands[2]] : self;
    case OP_GT: return x.kind == KNOWN_LEAST ? (known){KNOWN_FALSE, 0} : self;
    case OP_LT: return y.kind == KNOWN_LEAST ? (known){KNOWN_FALSE, 0} : self;
    case OP_SELECT: return x.kind == KNOWN_FALSE ? all[op->operands[2]] : self;
    case OP_MAX: return x.kind == KNOWN_LEAST ? y : y.kind == KNOWN_LEAST ? x : self;
    case OP_SUB: return x.kind == KNOWN_SAME && y.kind == KNOWN_SAME && x.as == y.as ? (known){KNOWN_ZERO, 0} : self;
    case OP_EXP:
    case OP_EXP2: return x.kind == KNOWN_ZERO ? (known){KNOWN_ONE, 0} : self;
    case OP_MUL: return x.kind == KNOWN_ONE ? y : y.kind == KNOWN_ONE ? x : self;
    case OP_ADD: return x.kind == KNOWN_ZERO ? y : y.kind == KNOWN_ZERO ? x : self;
    case OP_BROADCAST: return x.kind == KNOWN_SAME ? self : x;
    default: return self;
    }
}

bool chained_adds_nothing(const chained *c, int condition, arena *memory)
{
    const tile_block *body = c->loop->regions[0];
    known *all = ARENA_ARRAY(memory, known, c->kernel->value_count);
    for (int v = 0; v < c->kernel->value_count; v++) all[v] = (known){KNOWN_SAME, (value)v};
    for (int i = 0; i < body->op_count - 1; i++) {
        const tile_op *op = body->ops[i];
        if (op->region_count || op->code == OP_STORE) return false;
        if (op->result_count) all[op->results[0]] = known_of(c, all, op, condition);
    }
    const tile_op *yield = body->ops[body->op_count - 1];
    for (int i = 0; i < yield->operand_count; i++) {
        known next = all[yield->operands[i]];
        if (next.kind != KNOWN_SAME || next.as != body->args[1 + i]) return false;
    }
    return true;
}
