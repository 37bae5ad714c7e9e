/*
 * Which elements of tiles count. In: the ops of a program whose scalar integers are evaluated. Out: for every tile the
 * elements that exist (their loads lie inside their arrays, their masks can hold) and, walked backward, those that a
 * store or another effect wants.
 *
 * Both are boxes: one interval an axis. That is exact for slices, `bound` masks and comparisons of base + step * iota;
 * other masks are taken to hold, so that a box has too many elements rather than too few. A padding that a fold must
 * not see is a select with the fold's identity: folds look through it.
 * SPDX-License-Identifier: MIT
 */
#include "run/workbench/count.h"

static lanes whole(counter *c, value v)
{
    tile_type type = tile_type_of(c->k, v);
    lanes out = {{0}, {0}};
    counter_extents(c, &type, out.end);
    return out;
}

void lanes_clear(lanes *l)
{
    for (int i = 0; i < MAX_RANK; i++) l->first[i] = l->end[i] = 0;
}

void lanes_all(counter *c, value v)
{
    c->exist[v] = whole(c, v);
    c->ramps[v].known = false;
}

static bool is_empty(const lanes *l, int rank)
{
    for (int i = 0; i < rank; i++)
        if (l->first[i] >= l->end[i]) return true;
    return false;
}

static void meet_axis(lanes *into, int axis, int64_t first, int64_t end)
{
    into->first[axis] = MAXIMUM(into->first[axis], first);
    into->end[axis] = MAXIMUM(MINIMUM(into->end[axis], end), into->first[axis]);
}

void lanes_join(const counter *c, value v, lanes *into, const lanes *more)
{
    int rank = tile_type_of(c->k, v).rank;
    if (is_empty(more, rank)) return;
    if (is_empty(into, rank)) {
        *into = *more;
        return;
    }
    for (int i = 0; i < rank; i++) {
        into->first[i] = MINIMUM(into->first[i], more->first[i]);
        into->end[i] = MAXIMUM(into->end[i], more->end[i]);
    }
}

/* `into` of the shape `shape` meets the elements of an operand that broadcasts to it. A false scalar leaves nothing. */
static void meet(counter *c, lanes *into, int rank, const lanes *shape, value operand)
{
    tile_type type = tile_type_of(c->k, operand);
    const lanes *l = &c->exist[operand];
    int64_t x;
    if (!type.rank) {
        if (type.elem == DT_BOOL && counter_read(c, operand, &x) && !x) lanes_clear(into);
        return;
    }
    if (type.rank != rank) return;
    if (is_empty(l, rank)) {
        lanes_clear(into);
        return;
    }
    lanes extent = whole(c, operand);
    for (int i = 0; i < rank; i++)
        if (extent.end[i] != 1 || shape->end[i] == 1) meet_axis(into, i, l->first[i], l->end[i]);
}

static int64_t within(int64_t x)
{
    const int64_t most = (int64_t)1 << 60; /* sums of three cannot wrap, and no tile is as long */
    return x > most ? most : x < -most ? -most : x;
}

/* The k with 0 <= start + k * step < extent. */
static void meet_range(lanes *into, int axis, int64_t start, int64_t step, int64_t extent)
{
    int64_t low = 0, high = 0;
    start = within(start);
    step = within(step);
    extent = within(extent);
    if (step == 0) {
        if (start >= 0 && start < extent) high = into->end[axis];
    } else if (step > 0) {
        if (start < 0) low = (-start + step - 1) / step;
        if (start < extent) high = (extent - start + step - 1) / step;
    } else {
        if (start >= extent) low = (start - extent) / -step + 1;
        if (start >= 0) high = start / -step + 1;
    }
    meet_axis(into, axis, low, high);
}

/* Of the elements that an access names, those inside its array whose masks can hold. */
static void meet_access(counter *c, const tile_op *op, int rank, lanes *into)
{
    const access *a = &op->attr.access;
    const value *next = op->operands + a->first_index;
    const lanes shape = *into;
    for (int axis = 0; axis < a->rank; axis++) {
        int64_t start, step, extent = c->plan->extents[a->array][axis];
        switch (a->kind[axis]) {
        case INDEX_SCALAR:
            if (counter_read(c, next[0], &start) && (start < 0 || start >= extent)) lanes_clear(into);
            next++;
            break;
        case INDEX_SLICE:
            if (counter_read(c, next[0], &start) && counter_read(c, next[1], &step))
                meet_range(into, a->result_axis[axis], start, step, extent);
            next += 2;
            break;
        case INDEX_TILE: {
            const ramp *r = &c->ramps[next[0]];
            if (r->known && tile_type_of(c->k, next[0]).rank == rank)
                meet_range(into, r->axis, r->base, r->step, extent);
            next++;
            break;
        }
        }
    }
    for (int i = op->operand_count - a->mask_count; i < op->operand_count; i++)
        meet(c, into, rank, &shape, op->operands[i]);
}

/* Axes of `from` as those of `to` where only axes of one element come and go; false: elements change places. */
static bool match_axes(counter *c, value from, value to, int axes[MAX_RANK])
{
    lanes a = whole(c, from), b = whole(c, to);
    int rank = tile_type_of(c->k, from).rank, target = tile_type_of(c->k, to).rank, next = 0;
    for (int i = 0; i < rank; i++) {
        axes[i] = -1;
        if (a.end[i] == 1) continue;
        while (next < target && b.end[next] == 1) next++;
        if (next == target || b.end[next] != a.end[i]) return false;
        axes[i] = next++;
    }
    while (next < target && b.end[next] == 1) next++;
    return next == target;
}

static ramp ramp_of_scalar(const counter *c, value v)
{
    ramp r = {.axis = -1};
    r.known = !tile_type_of(c->k, v).rank && counter_read(c, v, &r.base);
    return r;
}

static ramp ramp_of(const counter *c, value v)
{
    return tile_type_of(c->k, v).rank ? c->ramps[v] : ramp_of_scalar(c, v);
}

static bool is_small(const ramp *r) /* sums and products of two such cannot wrap */
{
    return r->known && r->base < INT32_MAX && r->base > INT32_MIN && r->step < INT32_MAX && r->step > INT32_MIN;
}

static ramp ramp_of_binary(const counter *c, const tile_op *op)
{
    ramp x = ramp_of(c, op->operands[0]), y = ramp_of(c, op->operands[1]), none = {0};
    if (!x.known || !y.known || (x.axis >= 0 && y.axis >= 0 && x.axis != y.axis)) return none;
    int axis = MAXIMUM(x.axis, y.axis);
    if (!is_small(&x) || !is_small(&y)) return none;
    switch (op->code) {
    case OP_ADD: return (ramp){true, axis, x.base + y.base, x.step + y.step};
    case OP_SUB: return (ramp){true, axis, x.base - y.base, x.step - y.step};
    case OP_MUL:
        if (x.axis >= 0 && y.axis >= 0) return none;
        return x.axis >= 0 ? (ramp){true, axis, x.base * y.base, x.step * y.base}
                           : (ramp){true, axis, x.base * y.base, y.step * x.base};
    default: return none;
    }
}

static void meet_compare(const counter *c, const tile_op *op, lanes *into)
{
    ramp x = ramp_of(c, op->operands[0]), y = ramp_of(c, op->operands[1]);
    bool turned = op->code == OP_GT || op->code == OP_GE;
    if (turned) {
        ramp z = x;
        x = y;
        y = z;
    }
    if (!is_small(&x) || !is_small(&y) || (x.axis >= 0 && y.axis >= 0 && x.axis != y.axis)) return;
    int axis = MAXIMUM(x.axis, y.axis);
    if (axis < 0) return;
    int64_t strict = op->code == OP_LT || op->code == OP_GT;
    /* x < y where 0 <= y - x - strict */
    if (op->code == OP_LT || op->code == OP_LE || turned)
        meet_range(into, axis, y.base - x.base - strict, y.step - x.step, INT64_MAX);
    else if (op->code == OP_EQ)
        meet_range(into, axis, y.base - x.base, y.step - x.step, 1);
}

static void move_lanes(lanes *into, const lanes *from, const int *axes, int rank)
{
    for (int i = 0; i < rank; i++)
        if (axes[i] >= 0)
            meet_axis(into, axes[i], from->first[i], from->end[i]);
        else if (from->first[i] >= from->end[i])
            lanes_clear(into);
}

static void lanes_of_shape(counter *c, const tile_op *op, lanes *out)
{
    value from = op->operands[0], to = op->results[0];
    int axes[MAX_RANK], rank = tile_type_of(c->k, from).rank, target = tile_type_of(c->k, to).rank;
    int64_t x[3];
    ramp *r = &c->ramps[to];
    switch (op->code) {
    case OP_BOUND:
        for (int i = 0; i < 3; i++)
            if (!counter_read(c, op->operands[i], &x[i])) return;
        if (target) meet_range(out, op->attr.index, x[0], x[1], x[2]);
        return;
    case OP_PERMUTE:
        for (int i = 0; i < target; i++) axes[op->attr.axes[i]] = i;
        break;
    case OP_RESHAPE:
        if (!match_axes(c, from, to, axes)) return;
        break;
    default:
        if (rank != target) return;
        lanes shape = *out;
        meet(c, out, target, &shape, from);
        *r = c->ramps[from];
        return;
    }
    move_lanes(out, &c->exist[from], axes, rank);
    *r = c->ramps[from];
    if (r->known && r->axis >= 0) {
        r->axis = axes[r->axis];
        r->known = r->axis >= 0;
    }
}

void lanes_of_result(counter *c, const tile_op *op)
{
    for (int i = 1; i < op->result_count; i++) lanes_all(c, op->results[i]);
    if (!op->result_count) return;
    value v = op->results[0];
    tile_type type = tile_type_of(c->k, v);
    lanes_all(c, v);
    if (!type.rank) return;
    lanes out = c->exist[v];
    const lanes shape = out;
    switch (ops[op->code].class) {
    case CLASS_LEAF:
        if (op->code == OP_IOTA) c->ramps[v] = (ramp){true, op->attr.index, 0, 1};
        break;
    case CLASS_UNARY:
        if (op->code == OP_NOT && type.elem == DT_BOOL) break;                                  /* the others */
        if (tile_type_of(c->k, op->operands[0]).elem == DT_BOOL && type.elem != DT_BOOL) break; /* 0 is a number */
        meet(c, &out, type.rank, &shape, op->operands[0]);
        if (op->code == OP_CONVERT && dtype_is_integer(type.elem)) c->ramps[v] = c->ramps[op->operands[0]];
        break;
    case CLASS_BINARY:
        if ((op->code == OP_OR || op->code == OP_MAX) && type.elem == DT_BOOL) {
            lanes left = shape, right = shape;
            meet(c, &left, type.rank, &shape, op->operands[0]);
            meet(c, &right, type.rank, &shape, op->operands[1]);
            out = left;
            lanes_join(c, v, &out, &right);
            break;
        }
        for (int i = 0; i < 2; i++)
            if (op->code != OP_XOR || type.elem != DT_BOOL) meet(c, &out, type.rank, &shape, op->operands[i]);
        if (dtype_is_integer(type.elem)) c->ramps[v] = ramp_of_binary(c, op);
        break;
    case CLASS_COMPARE:
        for (int i = 0; i < 2; i++)
            if (tile_type_of(c->k, op->operands[i]).elem != DT_BOOL) meet(c, &out, type.rank, &shape, op->operands[i]);
        if (dtype_is_integer(tile_type_of(c->k, op->operands[0]).elem)) meet_compare(c, op, &out);
        break;
    case CLASS_TERNARY:
        if (op->code == OP_SELECT && type.elem != DT_BOOL) {
            lanes then = shape, other = shape;
            meet(c, &then, type.rank, &shape, op->operands[0]);
            meet(c, &then, type.rank, &shape, op->operands[1]);
            meet(c, &other, type.rank, &shape, op->operands[2]);
            out = then;
            lanes_join(c, v, &out, &other);
        } else if (op->code == OP_FMA) {
            for (int i = 0; i < 3; i++) meet(c, &out, type.rank, &shape, op->operands[i]);
        }
        break;
    case CLASS_SHAPE: lanes_of_shape(c, op, &out); break;
    case CLASS_MEMORY:
        if (op->code == OP_LOAD) meet_access(c, op, type.rank, &out);
        break;
    default: break; /* what a fold or a region gives exists */
    }
    c->exist[v] = out;
}

/* What is wanted of an operand that broadcasts to the elements `wanted` of a result. */
static void want(counter *c, value operand, const lanes *wanted, int rank)
{
    tile_type type = tile_type_of(c->k, operand);
    lanes need = whole(c, operand);
    if (is_empty(wanted, rank)) return;
    if (type.rank == rank)
        for (int i = 0; i < rank; i++)
            if (need.end[i] != 1) meet_axis(&need, i, wanted->first[i], wanted->end[i]);
    lanes_join(c, operand, &c->wanted[operand], &need);
}

void lanes_want_all(counter *c, value v)
{
    c->wanted[v] = whole(c, v);
}

static void want_of_dot(counter *c, const tile_op *op, const lanes *wanted, int rank)
{
    if (is_empty(wanted, rank)) return;
    for (int i = 0; i < op->operand_count; i++) {
        value v = op->operands[i];
        lanes need = whole(c, v);
        if (tile_type_of(c->k, v).rank != rank) {
            lanes_want_all(c, v);
            continue;
        }
        for (int axis = 0; axis < rank; axis++)
            if (i == 2 || axis != (i ? rank - 2 : rank - 1))
                meet_axis(&need, axis, wanted->first[axis], wanted->end[axis]);
        lanes_join(c, v, &c->wanted[v], &need);
    }
}

static void want_of_shape(counter *c, const tile_op *op, const lanes *wanted, int rank)
{
    value from = op->operands[0], to = op->results[0];
    int axes[MAX_RANK], count = tile_type_of(c->k, from).rank;
    lanes need = whole(c, from);
    if (is_empty(wanted, rank)) return;
    if (op->code == OP_PERMUTE) {
        for (int i = 0; i < rank; i++) axes[op->attr.axes[i]] = i;
    } else if (op->code != OP_RESHAPE || !match_axes(c, from, to, axes)) {
        if (op->code == OP_BROADCAST)
            want(c, from, wanted, rank);
        else
            for (int i = 0; i < op->operand_count; i++) lanes_want_all(c, op->operands[i]);
        return;
    }
    for (int i = 0; i < count; i++)
        if (axes[i] >= 0) meet_axis(&need, i, wanted->first[axes[i]], wanted->end[axes[i]]);
    lanes_join(c, from, &c->wanted[from], &need);
}

void lanes_want(counter *c, const tile_op *op)
{
    value v = op->result_count ? op->results[0] : 0;
    int rank = v ? tile_type_of(c->k, v).rank : 0;
    lanes wanted = v ? c->wanted[v] : (lanes){{0}, {0}};
    switch (ops[op->code].class) {
    case CLASS_LEAF: return;
    case CLASS_UNARY:
    case CLASS_BINARY:
    case CLASS_COMPARE:
    case CLASS_TERNARY:
        if (!rank) break;
        for (int i = 0; i < op->operand_count; i++) {
            lanes need = wanted;
            if (op->code == OP_SELECT && i == 1) {
                const lanes shape = whole(c, v);
                meet(c, &need, rank, &shape, op->operands[0]);
            }
            want(c, op->operands[i], &need, rank);
        }
        return;
    case CLASS_SHAPE:
        if (!rank) break;
        want_of_shape(c, op, &wanted, rank);
        return;
    case CLASS_FOLD: {
        if (op->code == OP_DOT) {
            want_of_dot(c, op, &wanted, rank);
            return;
        }
        value from = op->operands[0];
        if (!rank || tile_type_of(c->k, from).rank != rank) break;
        if (is_empty(&wanted, rank)) return;
        lanes need = whole(c, from);
        for (int i = 0; i < rank; i++)
            if (op->code == OP_SCAN ? i != op->attr.index : !(op->attr.axis_set >> i & 1))
                meet_axis(&need, i, wanted.first[i], wanted.end[i]);
        lanes_join(c, from, &c->wanted[from], &need);
        return;
    }
    case CLASS_MEMORY:
        for (int i = 0; i < op->operand_count; i++) {
            value operand = op->operands[i];
            rank = tile_type_of(c->k, operand).rank;
            if (op->code != OP_LOAD && !i && rank) {
                lanes stored = whole(c, operand);
                meet_access(c, op, rank, &stored);
                lanes_join(c, operand, &c->wanted[operand], &stored);
            } else {
                lanes_want_all(c, operand);
            }
        }
        return;
    default: break;
    }
    for (int i = 0; i < op->operand_count; i++) lanes_want_all(c, op->operands[i]);
}

static double volume(const lanes *l, int rank)
{
    double count = 1;
    for (int i = 0; i < rank; i++) count *= (double)MAXIMUM(l->end[i] - l->first[i], 0);
    return count;
}

double lanes_counted(const counter *c, value v)
{
    int rank = tile_type_of(c->k, v).rank;
    lanes both = c->exist[v];
    if (is_empty(&c->wanted[v], rank)) return 0;
    for (int i = 0; i < rank; i++) meet_axis(&both, i, c->wanted[v].first[i], c->wanted[v].end[i]);
    return volume(&both, rank);
}

/* Of what a fold reads: the elements that are not its identity put in the place of padding. */
static lanes without_padding(counter *c, value v)
{
    const tile_op *op = c->k->values[v].op;
    lanes out = c->exist[v];
    if (!op || op->code != OP_SELECT || op->flags & F_ASSIGN) return out;
    const tile_op *other = c->k->values[op->operands[2]].op;
    if (other && other->code == OP_BROADCAST) other = c->k->values[other->operands[0]].op;
    if (!other || other->code != OP_CONST) return out;
    const lanes shape = whole(c, v);
    int rank = tile_type_of(c->k, v).rank;
    meet(c, &out, rank, &shape, op->operands[0]);
    meet(c, &out, rank, &shape, op->operands[1]);
    return out;
}

double lanes_folded(counter *c, const tile_op *op)
{
    value v = op->results[0];
    int rank = tile_type_of(c->k, v).rank;
    lanes left = without_padding(c, op->operands[0]);
    if (op->code != OP_DOT) {
        int from = tile_type_of(c->k, op->operands[0]).rank;
        const lanes *wanted = &c->wanted[op->operands[0]];
        if (is_empty(wanted, from)) return 0;
        for (int i = 0; i < from; i++) meet_axis(&left, i, wanted->first[i], wanted->end[i]);
        return volume(&left, from);
    }
    lanes right = without_padding(c, op->operands[1]), depth = {{0}, {0}}, out = c->wanted[v];
    if (rank < 2 || is_empty(&left, rank) || is_empty(&right, rank) || is_empty(&out, rank)) return 0;
    for (int i = 0; i < rank; i++) {
        if (i != rank - 1) meet_axis(&out, i, left.first[i], left.end[i]);
        if (i != rank - 2) meet_axis(&out, i, right.first[i], right.end[i]);
    }
    depth.first[0] = left.first[rank - 1];
    depth.end[0] = left.end[rank - 1];
    meet_axis(&depth, 0, right.first[rank - 2], right.end[rank - 2]);
    return volume(&out, rank) * volume(&depth, 1);
}
