/*
 * May two accesses of an array meet? In: two accesses, perhaps in different trips of a loop. Out: whether some axis is
 * indexed by ranges that never meet, by what passes/facts.h knows of starts, steps and extents.
 * SPDX-License-Identifier: MIT
 */
#include "schedule/apart.h"

bool range_of(const survey *e, const tile_op *op, int axis, index_range *out)
{
    const struct access *access = &op->attr.access;
    int operand = access->first_index;
    for (int i = 0; i < axis; i++) operand += access->kind[i] == INDEX_SLICE ? 2 : 1;
    *out = (index_range){.start = op->operands[operand], .slice = access->kind[axis] == INDEX_SLICE, .by = 1};
    if (tile_type_of(e->k, out->start).rank) return false;
    out->first = relate_value(e->facts, out->start);
    out->count = relate_constant(1);
    if (!out->slice) return true;
    tile_type type = tile_type_of(e->k, op->code == OP_LOAD ? op->results[0] : op->operands[0]);
    number step = {.i = 0};
    out->step = op->operands[operand + 1];
    out->count = relate_dimension(type.dims[access->result_axis[axis]], e->facts);
    if (!tile_is_constant(e->k, out->step, &step)) step.i = 0;
    out->by = step.i;
    return true;
}

bool apart_by_trips(const survey *e, const trips *t, linear *first_a, linear *first_b, linear *each)
{
    *each = relate_constant(0);
    if (!t->op) return true;
    value variable = t->op->code == OP_FOR ? t->op->regions[0]->args[0] : 0;
    int64_t factor[2] = {0, 0};
    linear *both[2] = {first_a, first_b};
    for (int n = 0; n < 2; n++)
        for (int i = 0; i < both[n]->count; i++) {
            atom a = both[n]->atoms[i];
            if (a & ATOM_PARAM || !t->changes[a]) continue;
            if (!variable || a != variable) return false;
            factor[n] = both[n]->factors[i];
        }
    if (factor[0] != factor[1]) return false;
    if (!factor[0]) return true;
    *each = relate_add(*each, relate_value(e->facts, t->op->operands[2]), factor[0]);
    return !each->bad;
}

static bool never_negative(const survey *e, linear form)
{
    return !form.bad && relate_not_negative(e->facts, &form);
}

/* The lowest and highest element relative to the first. */
static void reach(const index_range *r, linear *low, linear *high)
{
    linear last = relate_add(relate_constant(0), relate_add(r->count, relate_constant(1), -1), r->by);
    *low = r->by < 0 ? last : relate_constant(0);
    *high = r->by < 0 ? relate_constant(0) : last;
}

bool axis_is_apart(const survey *e, const tile_op *op_a, const tile_op *op_b, int axis, const trips *t)
{
    index_range a, b;
    linear each, low_a, high_a, low_b, high_b;
    if (!range_of(e, op_a, axis, &a) || !range_of(e, op_b, axis, &b) || !a.by || !b.by) return false;
    if (!apart_by_trips(e, t, &a.first, &b.first, &each)) return false;
    linear between = relate_add(b.first, a.first, -1);
    if (between.bad) return false;
    reach(&a, &low_a, &high_a);
    reach(&b, &low_b, &high_b);
    bool still = !each.count && !each.constant;
    linear one = relate_constant(1), later = relate_add(between, each, 1);
    /* b is behind a: between + low(b) - high(a) >= 1, and further with each trip; or in front of it. */
    if (never_negative(e, relate_add(relate_add(relate_add(later, low_b, 1), high_a, -1), one, -1)) &&
        (still || never_negative(e, each)))
        return true;
    if (never_negative(e, relate_add(relate_add(relate_add(low_a, later, -1), high_b, -1), one, -1)) &&
        (still || never_negative(e, relate_add(relate_constant(0), each, -1))))
        return true;
    /* Every second element, and every second one beginning at the other. */
    int64_t by = a.slice ? a.by : b.by, size = by < 0 ? -by : by;
    if (size < 2 || (a.slice && b.slice && a.by != b.by && a.by != -b.by)) return false;
    int64_t rest = between.constant % size;
    between.constant -= rest;
    return rest && relate_divisor(e->facts, &between) % size == 0 && relate_divisor(e->facts, &each) % size == 0;
}

/* What is left of a sum without its constants. */
static value without_constants(const survey *e, value v, int64_t *sum)
{
    number n;
    *sum = 0;
    for (const tile_op *op = tile_def(e->k, v); op && op->code == OP_ADD; op = tile_def(e->k, v)) {
        if (!tile_is_constant(e->k, op->operands[1], &n)) break;
        *sum += n.i;
        v = op->operands[0];
    }
    return v;
}

/* Two single places that are a constant apart, whatever is known of the rest. */
static bool places_differ(const survey *e, const tile_op *a, const tile_op *b, int axis)
{
    index_range x, y;
    int64_t first, second;
    if (!range_of(e, a, axis, &x) || !range_of(e, b, axis, &y) || x.slice || y.slice) return false;
    return without_constants(e, x.start, &first) == without_constants(e, y.start, &second) && first != second;
}

bool accesses_apart(const survey *e, const tile_op *a, const tile_op *b)
{
    trips same = {NULL, NULL};
    if (a->attr.access.array != b->attr.access.array) return true;
    for (int axis = 0; axis < a->attr.access.rank; axis++)
        if (places_differ(e, a, b, axis) || axis_is_apart(e, a, b, axis, &same)) return true;
    return false;
}
