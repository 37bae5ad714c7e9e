/*
 * Relations between integers: linear forms over atoms, and a small prover for "this form is never negative".
 *
 * A value is taken apart as long as its arithmetic cannot wrap. To prove a form, the prover bounds its atoms by their
 * ranges; where that is not enough it replaces an atom by what it is known to stay below (or above): a loop's variable
 * by its limit, a program number by the launch count, a quotient times its divisor by the dividend, a minimum by either
 * side; and it adds the conditions that hold at the place. Later atoms go first, so each step speaks of earlier ones.
 * What it proves holds; what it does not prove may hold all the same.
 * SPDX-License-Identifier: MIT
 */
#include "ir/scalar.h"
#include "passes/facts.h"

enum { DEEPEST = 8, MOST_STEPS = 200 };

linear relate_constant(int64_t c)
{
    return (linear){.constant = c};
}

static linear single(atom a)
{
    return (linear){.count = 1, .atoms = {a}, .factors = {1}};
}

linear relate_add(linear a, linear b, int64_t factor)
{
    int64_t product;
    a.bad |= b.bad || __builtin_mul_overflow(b.constant, factor, &product) ||
             __builtin_add_overflow(a.constant, product, &a.constant);
    for (int i = 0; i < b.count && !a.bad; i++) {
        int at = 0;
        while (at < a.count && a.atoms[at] != b.atoms[i]) at++;
        if (at == a.count) {
            if (a.count == MOST_TERMS) {
                a.bad = true;
                break;
            }
            a.atoms[a.count] = b.atoms[i];
            a.factors[a.count++] = 0;
        }
        a.bad |= __builtin_mul_overflow(b.factors[i], factor, &product) ||
                 __builtin_add_overflow(a.factors[at], product, &a.factors[at]);
        if (a.factors[at] == 0) {
            a.count--;
            a.atoms[at] = a.atoms[a.count];
            a.factors[at] = a.factors[a.count];
        }
    }
    return a;
}

static linear form_of_value(const facts *f, value v, int depth);

static linear form_of_op(const facts *f, const tile_op *op, value v, int depth)
{
    const value *in = op->operands;
    switch (op->code) {
    case OP_ADD:
    case OP_SUB:
        return relate_add(form_of_value(f, in[0], depth), form_of_value(f, in[1], depth), op->code == OP_ADD ? 1 : -1);
    case OP_NEG: return relate_add(relate_constant(0), form_of_value(f, in[0], depth), -1);
    case OP_MUL:
        for (int i = 0; i < 2; i++) {
            integer_fact factor = facts_of(f, in[i]);
            if (factor.low == factor.high)
                return relate_add(relate_constant(0), form_of_value(f, in[1 - i], depth), factor.low);
        }
        return single(v);
    case OP_SHL: {
        integer_fact count = facts_of(f, in[1]);
        if (count.low != count.high || count.low < 0 || count.low > 61) return single(v);
        return relate_add(relate_constant(0), form_of_value(f, in[0], depth), (int64_t)1 << count.low);
    }
    case OP_BROADCAST: return form_of_value(f, in[0], depth);
    case OP_CONVERT:
        return dtype_is_integer(tile_type_of(f->k, in[0]).elem) ? form_of_value(f, in[0], depth) : single(v);
    default: return single(v);
    }
}

static linear form_of_value(const facts *f, value v, int depth)
{
    integer_fact fact = facts_of(f, v);
    if (fact.low == fact.high) return relate_constant(fact.low);
    const tile_op *op = tile_def(f->k, v);
    if (!op || v >= (value)f->value_count) return single(v);
    if (op->code == OP_ARG || op->code == OP_DEFAULT) return single(ATOM_PARAM + (atom)op->attr.index);
    if (op->code == OP_PROGRAMS && f->counts[v] && facts_of(f, f->counts[v]).low >= 0)
        return form_of_value(f, f->counts[v], depth + 1);
    if (!f->exact[v] || depth > DEEPEST) return single(v);
    linear form = form_of_op(f, op, v, depth + 1);
    return form.bad ? single(v) : form;
}

linear relate_value(const facts *f, value v)
{
    return form_of_value(f, v, 0);
}

linear relate_extent(const facts *f, int array, int axis)
{
    const tile_param *p = &f->k->params[array];
    if (p->extent_param[axis] >= 0) {
        integer_fact fact = f->params[p->extent_param[axis]];
        return fact.low == fact.high ? relate_constant(fact.low) : single(ATOM_PARAM + (atom)p->extent_param[axis]);
    }
    if (p->extents[axis]) return relate_value(f, p->extents[axis]);
    return (linear){.bad = true};
}

linear relate_dimension(int64_t dimension, const facts *f)
{
    return dimension >= 0 ? relate_constant(dimension) : relate_value(f, (value)-dimension);
}

int64_t relate_divisor(const facts *f, const linear *form)
{
    int64_t divisor = form->constant;
    for (int i = 0; i < form->count; i++) {
        int64_t term;
        if (__builtin_mul_overflow(form->factors[i], facts_of_atom(f, form->atoms[i]).divisor, &term))
            term = form->factors[i];
        divisor = scalar_greatest_divisor(divisor, term);
    }
    return divisor < 0 ? -divisor : divisor;
}

static wide lowest(const facts *f, const linear *form)
{
    wide low = form->constant;
    for (int i = 0; i < form->count; i++) {
        integer_fact fact = facts_of_atom(f, form->atoms[i]);
        low += (wide)form->factors[i] * (form->factors[i] > 0 ? fact.low : fact.high);
    }
    return low;
}

static bool is_tile(const facts *f, atom a)
{
    return !(a & ATOM_PARAM) && tile_type_of(f->k, a).rank > 0;
}

typedef struct bound {
    linear form; /* unit * atom <= form, or >= form for a bound from below */
    int64_t unit;
} bound;

static int loop_bounds(const facts *f, atom a, bool above, bound *out)
{
    const tile_op *loop = f->loops[a];
    linear first = relate_value(f, loop->operands[0]), limit = relate_value(f, loop->operands[1]);
    bool down = loop->flags & F_DOWN;
    if (above == down) {
        if (!f->exact[a]) return 0; /* it may have wrapped */
        *out = (bound){first, 1};
        return 1;
    }
    integer_fact step = facts_of(f, loop->operands[2]);
    int64_t distance = 1;
    if (f->exact[a] && step.low == step.high && (down ? step.low < 0 && step.low > INT64_MIN : step.low > 0)) {
        int64_t size = down ? -step.low : step.low;
        linear whole = relate_add(limit, first, -1);
        if (!whole.bad && relate_divisor(f, &whole) % size == 0) distance = size;
    }
    *out = (bound){relate_add(limit, relate_constant(distance), down ? 1 : -1), 1};
    return 1;
}

/* The divisor d of q = x / d, and x with the part of it that cannot reach the next multiple taken away. */
static int quotient_bound(const facts *f, const tile_op *op, bool above, bound *out)
{
    integer_fact unit = facts_of(f, op->operands[1]);
    if (op->code == OP_SHR && unit.low == unit.high && unit.low >= 0 && unit.low <= 61)
        unit.low = unit.high = (int64_t)1 << unit.low;
    if (unit.low != unit.high || unit.low <= 0) return 0;
    linear dividend = relate_value(f, op->operands[0]), whole = dividend;
    int64_t rest = dividend.constant % unit.low;
    whole.constant -= rest < 0 ? rest + unit.low : rest;
    int64_t divisor = relate_divisor(f, &whole);
    if (divisor % unit.low == 0)
        *out = (bound){whole, unit.low}; /* d * q is exactly this */
    else
        *out = (bound){above ? dividend : relate_add(dividend, relate_constant(unit.low - 1), -1), unit.low};
    return 1;
}

/* Up to two bounds of an atom from above or below. */
static int bounds_of(const facts *f, atom a, bool above, bound out[2])
{
    if (a & ATOM_PARAM || a >= (atom)f->value_count) return 0;
    if (f->loops[a]) return loop_bounds(f, a, above, out);
    const tile_op *op = tile_def(f->k, a);
    if (!op) return 0;
    dtype t = tile_type_of(f->k, a).elem;
    switch (op->code) {
    case OP_PROGRAM:
        if (!above || !f->counts[a]) return 0;
        out[0] = (bound){relate_add(relate_value(f, f->counts[a]), relate_constant(1), -1), 1};
        return 1;
    case OP_IOTA:
        if (!above) return 0;
        out[0] = (bound){
            relate_add(relate_dimension(tile_type_of(f->k, a).dims[op->attr.index], f), relate_constant(1), -1), 1};
        return 1;
    case OP_DIV:
    case OP_SHR: return facts_of(f, op->operands[0]).low >= 0 || t != DT_U64 ? quotient_bound(f, op, above, out) : 0;
    case OP_MOD:
        if (!above || facts_of(f, op->operands[1]).low <= 0 || t == DT_U64) return 0;
        out[0] = (bound){relate_add(relate_value(f, op->operands[1]), relate_constant(1), -1), 1};
        if (facts_of(f, op->operands[0]).low < 0) return 1;
        out[1] = (bound){relate_value(f, op->operands[0]), 1};
        return 2;
    case OP_MIN:
    case OP_MAX:
        if ((op->code == OP_MIN) != above || t == DT_U64) return 0;
        out[0] = (bound){relate_value(f, op->operands[0]), 1};
        out[1] = (bound){relate_value(f, op->operands[1]), 1};
        return 2;
    case OP_RESHAPE:
    case OP_PERMUTE: /* the same elements elsewhere: sound while no other tile is in the form (see replace) */
        out[0] = (bound){relate_value(f, op->operands[0]), 1};
        return 1;
    default: return 0;
    }
}

/* The form with the term at `at` replaced by its bound; false if the factors do not allow it. */
static bool replace(const facts *f, const linear *form, int at, const bound *b, linear *out)
{
    int64_t factor = form->factors[at];
    if (b->form.bad || factor % b->unit) return false;
    const tile_op *op = form->atoms[at] & ATOM_PARAM ? NULL : tile_def(f->k, form->atoms[at]);
    if (op && (op->code == OP_RESHAPE || op->code == OP_PERMUTE))
        for (int i = 0; i < form->count; i++)
            if (i != at && is_tile(f, form->atoms[i])) return false;
    linear rest = *form;
    rest.count--;
    rest.atoms[at] = rest.atoms[rest.count];
    rest.factors[at] = rest.factors[rest.count];
    *out = relate_add(rest, b->form, factor / b->unit);
    return !out->bad;
}

static bool prove(const facts *f, const linear *form, int depth, int next_condition, int *steps)
{
    if (form->bad || ++*steps > MOST_STEPS) return false;
    if (lowest(f, form) >= 0) return true;
    if (depth == 0) return false;
    int latest = -1, found = 0;
    bound bounds[2];
    linear next;
    for (int i = 0; i < form->count; i++) {
        bound candidates[2];
        if (latest >= 0 && form->atoms[i] < form->atoms[latest]) continue;
        int count = bounds_of(f, form->atoms[i], form->factors[i] < 0, candidates);
        if (!count ||
            (!replace(f, form, i, &candidates[0], &next) && (count < 2 || !replace(f, form, i, &candidates[1], &next))))
            continue;
        latest = i;
        found = count;
        bounds[0] = candidates[0];
        bounds[1] = candidates[1];
    }
    for (int i = 0; i < found; i++)
        if (replace(f, form, latest, &bounds[i], &next) && prove(f, &next, depth - 1, next_condition, steps))
            return true;
    for (int c = next_condition; c < f->condition_count; c++) {
        const linear *condition = &f->conditions[c];
        bool shared = false;
        for (int i = 0; i < form->count; i++)
            for (int j = 0; j < condition->count; j++)
                shared |=
                    form->atoms[i] == condition->atoms[j] && (form->factors[i] < 0) == (condition->factors[j] < 0);
        if (!shared) continue;
        next = relate_add(*form, *condition, -1);
        if (prove(f, &next, depth - 1, c + 1, steps)) return true;
    }
    return false;
}

bool relate_not_negative(const facts *f, const linear *form)
{
    int steps = 0;
    return prove(f, form, DEEPEST, 0, &steps);
}

bool relate_inside(const facts *f, linear start, linear step, linear length, linear extent)
{
    if (step.bad || step.count) return false;
    linear last = relate_add(start, relate_add(length, relate_constant(1), -1), step.constant);
    linear low = step.constant >= 0 ? start : last, high = step.constant >= 0 ? last : start;
    linear room = relate_add(relate_add(extent, relate_constant(1), -1), high, -1);
    return relate_not_negative(f, &low) && relate_not_negative(f, &room);
}

bool relate_access_inside(const facts *f, const tile_op *op, int axis)
{
    const access *a = &op->attr.access;
    tile_type shape = tile_type_of(f->k, op->code == OP_LOAD ? op->results[0] : op->operands[0]);
    int operand = a->first_index;
    for (int i = 0; i < axis; i++) operand += a->kind[i] == INDEX_SLICE ? 2 : 1;
    linear start = relate_value(f, op->operands[operand]), extent = relate_extent(f, a->array, axis);
    if (a->kind[axis] != INDEX_SLICE) return relate_inside(f, start, relate_constant(0), relate_constant(1), extent);
    return relate_inside(f, start, relate_value(f, op->operands[operand + 1]),
                         relate_dimension(shape.dims[a->result_axis[axis]], f), extent);
}

void relate_assume_form(facts *f, linear not_negative)
{
    if (!not_negative.bad && f->condition_count < MOST_CONDITIONS) f->conditions[f->condition_count++] = not_negative;
}

/* a - b - distance >= 0 */
static void assume_above(facts *f, linear a, linear b, int64_t distance)
{
    relate_assume_form(f, relate_add(relate_add(a, b, -1), relate_constant(distance), -1));
}

/* What an `if` that stands for && or || yields. */
static void assume(facts *f, value condition, bool truth, int *ways);

static void assume_if(facts *f, const tile_op *op, value result, bool truth, int *ways)
{
    int at = 0;
    while (op->results[at] != result) at++;
    const tile_block *yes = op->regions[0], *no = op->regions[1];
    value from_yes = yes->ops[yes->op_count - 1]->operands[at], from_no = no->ops[no->op_count - 1]->operands[at];
    number n;
    if (tile_is_constant(f->k, from_no, &n) && !!n.i != truth) {
        assume(f, op->operands[0], true, ways);
        assume(f, from_yes, truth, ways);
    } else if (tile_is_constant(f->k, from_yes, &n) && !!n.i != truth) {
        assume(f, op->operands[0], false, ways);
        assume(f, from_no, truth, ways);
    }
}

static op_code opposite(op_code code)
{
    switch (code) {
    case OP_LT: return OP_GE;
    case OP_LE: return OP_GT;
    case OP_GT: return OP_LE;
    case OP_GE: return OP_LT;
    case OP_EQ: return OP_NE;
    default: return OP_EQ;
    }
}

static void assume(facts *f, value condition, bool truth, int *ways)
{
    const tile_op *op = tile_def(f->k, condition);
    if (!op || tile_type_of(f->k, condition).rank || --*ways < 0) return;
    if (op->code == OP_NOT) assume(f, op->operands[0], !truth, ways);
    if ((op->code == OP_AND && truth) || (op->code == OP_OR && !truth)) {
        assume(f, op->operands[0], truth, ways);
        assume(f, op->operands[1], truth, ways);
    }
    if (op->code == OP_IF) assume_if(f, op, condition, truth, ways);
    if (op->code == OP_BOUND && truth) {
        linear start = relate_value(f, op->operands[0]);
        relate_assume_form(f, start);
        assume_above(f, relate_value(f, op->operands[2]), start, 1);
    }
    if (ops[op->code].class != CLASS_COMPARE) return;
    dtype t = tile_type_of(f->k, op->operands[0]).elem;
    integer_fact left = facts_of(f, op->operands[0]), right = facts_of(f, op->operands[1]);
    if (!dtype_is_integer(t) || (t == DT_U64 && (left.low < 0 || right.low < 0))) return;
    linear a = relate_value(f, op->operands[0]), b = relate_value(f, op->operands[1]);
    op_code code = truth ? op->code : opposite(op->code);
    if (code == OP_LT || code == OP_LE) assume_above(f, b, a, code == OP_LT);
    if (code == OP_GT || code == OP_GE) assume_above(f, a, b, code == OP_GT);
    if (code == OP_EQ) {
        assume_above(f, a, b, 0);
        assume_above(f, b, a, 0);
    }
}

void relate_assume(facts *f, value condition, bool truth)
{
    int ways = TILE_MOST_WAYS;
    assume(f, condition, truth, &ways);
}

static void block_with(rewriter *r, facts *f, tile_block *b, int outside, rewrite_each *each, void *context)
{
    rewrite_block(r, b, each, context);
    f->condition_count = outside;
}

void relate_regions(rewriter *r, facts *f, tile_op *op, rewrite_each *each, void *context)
{
    int outside = f->condition_count;
    if (op->code == OP_ASSERT && op->operand_count == 1) relate_assume(f, op->operands[0], true);
    for (int i = 0; i < op->region_count; i++) {
        if (op->code == OP_IF) relate_assume(f, op->operands[0], i == 0);
        if (op->code == OP_FOR) {
            linear first = relate_value(f, op->operands[0]), limit = relate_value(f, op->operands[1]);
            bool down = op->flags & F_DOWN;
            assume_above(f, down ? first : limit, down ? limit : first, 1);
        }
        block_with(r, f, op->regions[i], outside, each, context);
    }
}

void relate_phases(rewriter *r, facts *f, rewrite_each *each, void *context)
{
    for (int i = 0; i < r->k->head->op_count; i++) {
        const tile_op *launch = r->k->head->ops[i];
        if (launch->code != OP_LAUNCH || launch->attr.index >= r->k->phase_count) continue;
        for (int n = 0; n < launch->operand_count; n++)
            assume_above(f, relate_value(f, launch->operands[n]), relate_constant(0), 1);
        block_with(r, f, r->k->phases[launch->attr.index], 0, each, context);
    }
}

bool relate_pass(tile_kernel *k, rewrite_each *each)
{
    rewriter r = rewrite_start(k);
    facts *f = facts_compute(k, r.scratch);
    relate_phases(&r, f, each, f);
    return rewrite_finish(&r);
}
