/*
 * What is known of integers: ranges and divisors, by abstract interpretation.
 *
 * In: a kernel. Out: for every integer value, scalar or tile, a range that holds each of its elements and a divisor of
 * them. One walk over head and phases; a loop's carried values start from their initial facts and are widened until
 * they hold (each bound gives up at most once). Sources are the launch's promises (equals one, multiple of 16, size
 * class, small arrays), the host's checks (assume), launch counts, and arithmetic that provably does not wrap.
 * SPDX-License-Identifier: MIT
 */
#include "passes/facts.h"
#include "ir/scalar.h"

#include <string.h>

static int64_t type_low(dtype t)
{
    static const int64_t low[DT_COUNT] = {
        [DT_I8] = INT8_MIN, [DT_I16] = INT16_MIN, [DT_I32] = INT32_MIN, [DT_I64] = INT64_MIN, [DT_U64] = INT64_MIN};
    return low[t];
}

static int64_t type_high(dtype t)
{
    static const int64_t high[DT_COUNT] = {
        [DT_I8] = INT8_MAX,    [DT_I16] = INT16_MAX,  [DT_I32] = INT32_MAX, [DT_I64] = INT64_MAX, [DT_U8] = UINT8_MAX,
        [DT_U16] = UINT16_MAX, [DT_U32] = UINT32_MAX, [DT_U64] = INT64_MAX, [DT_BOOL] = 1};
    return high[t];
}

static integer_fact anything(dtype t)
{
    return (integer_fact){type_low(t), type_high(t), 1};
}

static integer_fact exactly(int64_t c)
{
    return (integer_fact){c, c, c == INT64_MIN ? 1 : c < 0 ? -c : c};
}

static integer_fact between(int64_t low, int64_t high, int64_t divisor)
{
    if (low == high) return exactly(low);
    return (integer_fact){low, high, divisor ? divisor : 1};
}

static integer_fact join(integer_fact a, integer_fact b)
{
    return (integer_fact){MINIMUM(a.low, b.low), MAXIMUM(a.high, b.high),
                          scalar_greatest_divisor(a.divisor, b.divisor)};
}

/* A result that may have wrapped: only powers of two survive as divisors. */
static integer_fact wrapped(dtype t, int64_t divisor)
{
    integer_fact fact = anything(t);
    int64_t power = divisor & -divisor, limit = (int64_t)1 << (8 * dtypes[t].size_bytes - 2);
    if (power) fact.divisor = MINIMUM(power, limit);
    return fact;
}

static bool fits(dtype t, integer_fact fact)
{
    return fact.low >= (t == DT_U64 ? 0 : type_low(t)) && fact.high <= type_high(t);
}

/* 64-bit signed order is the type's own order for these elements. */
static bool ordered(dtype t, integer_fact fact)
{
    return t != DT_U64 || fact.low >= 0;
}

static bool add_facts(integer_fact a, integer_fact b, integer_fact *out)
{
    out->divisor = scalar_greatest_divisor(a.divisor, b.divisor);
    return !__builtin_add_overflow(a.low, b.low, &out->low) && !__builtin_add_overflow(a.high, b.high, &out->high);
}

static bool negate_fact(integer_fact a, integer_fact *out)
{
    out->divisor = a.divisor;
    return !__builtin_sub_overflow((int64_t)0, a.high, &out->low) &&
           !__builtin_sub_overflow((int64_t)0, a.low, &out->high);
}

static bool multiply_facts(integer_fact a, integer_fact b, integer_fact *out)
{
    if (__builtin_mul_overflow(a.divisor, b.divisor, &out->divisor)) out->divisor = MAXIMUM(a.divisor, b.divisor);
    int64_t corners[4];
    bool good =
        !__builtin_mul_overflow(a.low, b.low, &corners[0]) && !__builtin_mul_overflow(a.low, b.high, &corners[1]) &&
        !__builtin_mul_overflow(a.high, b.low, &corners[2]) && !__builtin_mul_overflow(a.high, b.high, &corners[3]);
    if (!good) return false;
    out->low = out->high = corners[0];
    for (int i = 1; i < 4; i++) {
        out->low = MINIMUM(out->low, corners[i]);
        out->high = MAXIMUM(out->high, corners[i]);
    }
    return true;
}

static integer_fact divide_facts(integer_fact a, integer_fact b)
{
#define QUOTIENT(x, y) scalar_raw(OP_DIV, DT_I64, x, y)
    integer_fact out = {MINIMUM(QUOTIENT(a.low, b.low), QUOTIENT(a.low, b.high)),
                        MAXIMUM(QUOTIENT(a.high, b.low), QUOTIENT(a.high, b.high)), 1};
#undef QUOTIENT
    if (b.low == b.high && a.divisor % b.low == 0) out.divisor = a.divisor / b.low;
    return between(out.low, out.high, out.divisor);
}

static integer_fact modulo_facts(integer_fact a, integer_fact b)
{
    if (b.low == b.high && a.divisor % b.low == 0) return exactly(0);
    if (a.low >= 0 && a.high < b.low) return a;
    int64_t high = b.high - 1;
    if (a.low >= 0) high = MINIMUM(high, a.high);
    return between(0, high, scalar_greatest_divisor(a.divisor, b.divisor));
}

static int64_t ones_up_to(int64_t x)
{
    for (int shift = 1; shift < 64; shift *= 2) x |= x >> shift;
    return x;
}

static integer_fact bit_facts(op_code code, dtype t, integer_fact a, integer_fact b)
{
    integer_fact out = anything(t);
    int64_t power_a = a.divisor ? a.divisor & -a.divisor : (int64_t)1 << 62;
    int64_t power_b = b.divisor ? b.divisor & -b.divisor : (int64_t)1 << 62;
    if (code == OP_AND) {
        if (a.low >= 0) out = (integer_fact){0, a.high, 1};
        if (b.low >= 0) out = (integer_fact){0, out.low == 0 ? MINIMUM(out.high, b.high) : b.high, 1};
        out.divisor = MAXIMUM(power_a, power_b);
    } else {
        if (a.low >= 0 && b.low >= 0) out = (integer_fact){0, ones_up_to(a.high | b.high), 1};
        out.divisor = MINIMUM(power_a, power_b);
    }
    if (out.divisor == (int64_t)1 << 62) out.divisor = 1;
    return out;
}

/* Every value beyond the first has a fact by now: operands dominate. */
static integer_fact fact_of(const facts *f, value v)
{
    return f->values[v];
}

static integer_fact dimension_fact(const facts *f, int64_t dimension)
{
    if (dimension >= 0) return exactly(dimension);
    integer_fact fact = fact_of(f, (value)-dimension);
    return (integer_fact){MAXIMUM(fact.low, 0), MAXIMUM(fact.high, 0), 1};
}

/* The type's elements run over 0 .. n-1; n-1 of the largest n. */
static integer_fact position_fact(const facts *f, int64_t dimension, int64_t low)
{
    integer_fact n = dimension_fact(f, dimension);
    return between(low, MAXIMUM(n.high - 1, low), 1);
}

static integer_fact reduce_fact(const facts *f, const tile_op *op, dtype t)
{
    tile_type from = tile_type_of(f->k, op->operands[0]);
    integer_fact operand = fact_of(f, op->operands[0]), count = exactly(1), out;
    bool empty = false;
    for (int i = 0; i < from.rank; i++) {
        if (!(op->attr.axis_set >> i & 1)) continue;
        integer_fact n = dimension_fact(f, from.dims[i]);
        if (op->attr.fold == FOLD_ARGMAX || op->attr.fold == FOLD_ARGMIN) return position_fact(f, from.dims[i], -1);
        empty |= n.low == 0;
        if (!multiply_facts(count, n, &count)) count = anything(DT_I64);
    }
    if (op->attr.fold == FOLD_SUM) {
        integer_fact zero = exactly(0);
        count.divisor = 1;
        if (multiply_facts(operand, count, &out) && fits(t, out)) return empty ? join(out, zero) : out;
        return wrapped(t, operand.divisor);
    }
    if ((op->attr.fold == FOLD_MAX || op->attr.fold == FOLD_MIN) && !empty) return operand;
    return anything(t);
}

/* The fact of an op's only result, an integer; *exact: no element can have wrapped. */
static integer_fact transfer(const facts *f, const tile_op *op, dtype t, bool *exact)
{
    const value *in = op->operands;
    integer_fact a = op->operand_count > 0 ? fact_of(f, in[0]) : exactly(0);
    integer_fact b = op->operand_count > 1 ? fact_of(f, in[1]) : exactly(0), out;
    *exact = true;
    switch (op->code) {
    case OP_CONST: return exactly(op->attr.number.i);
    case OP_ARG:
    case OP_DEFAULT: return f->params[op->attr.index];
    case OP_PROGRAM: {
        integer_fact count = fact_of(f, f->counts[op->results[0]]);
        return between(0, MAXIMUM(MINIMUM(count.high, LARGEST_EXTENT) - 1, 0), 1);
    }
    case OP_PROGRAMS: {
        integer_fact count = fact_of(f, f->counts[op->results[0]]);
        return between(MAXIMUM(count.low, 0), MAXIMUM(MINIMUM(count.high, LARGEST_EXTENT), 0), count.divisor);
    }
    case OP_UNITS: return between(1, 1 << 20, 1);
    case OP_IOTA: {
        out = position_fact(f, tile_type_of(f->k, op->results[0]).dims[op->attr.index], 0);
        return fits(t, out) ? out : anything(t);
    }
    case OP_NEG:
        if (negate_fact(a, &out) && fits(t, out)) return out;
        break;
    case OP_ABS:
        if (a.low >= 0) return a;
        if (a.low > type_low(t)) return between(0, MAXIMUM(a.high, -a.low), a.divisor);
        break;
    case OP_SIGN: return between(a.low > 0 ? 1 : a.low == 0 ? 0 : -1, a.high < 0 ? -1 : a.high == 0 ? 0 : 1, 1);
    case OP_CONVERT: {
        dtype from = tile_type_of(f->k, in[0]).elem;
        if (dtype_is_float(from)) return anything(t);
        if (ordered(from, a) && (fits(t, a) || from == t)) return a;
        *exact = false;
        return wrapped(t, a.divisor);
    }
    case OP_ADD:
        if (add_facts(a, b, &out) && fits(t, out)) return out;
        *exact = false;
        return wrapped(t, out.divisor);
    case OP_SUB:
        if (negate_fact(b, &b) && add_facts(a, b, &out) && fits(t, out)) return out;
        *exact = false;
        return wrapped(t, scalar_greatest_divisor(a.divisor, b.divisor));
    case OP_SHL:
    case OP_SHR:
        if (b.low != b.high || b.low < 0 || b.low >= 8 * dtypes[t].size_bytes || b.low > 61 || !ordered(t, a)) break;
        b = exactly((int64_t)1 << b.low);
        if (op->code == OP_SHR) return divide_facts(a, b);
        __attribute__((fallthrough)); /* a shift to the left is a product */
    case OP_MUL:
        if (multiply_facts(a, b, &out) && fits(t, out)) return out;
        *exact = false;
        return wrapped(t, out.divisor);
    case OP_DIV:
        if (b.low > 0 && ordered(t, a)) return divide_facts(a, b);
        break;
    case OP_MOD:
        if (b.low > 0 && ordered(t, a)) return modulo_facts(a, b);
        break;
    case OP_MIN:
        if (!ordered(t, a) || !ordered(t, b)) break;
        return between(MINIMUM(a.low, b.low), MINIMUM(a.high, b.high), scalar_greatest_divisor(a.divisor, b.divisor));
    case OP_MAX:
        if (!ordered(t, a) || !ordered(t, b)) break;
        return between(MAXIMUM(a.low, b.low), MAXIMUM(a.high, b.high), scalar_greatest_divisor(a.divisor, b.divisor));
    case OP_AND:
    case OP_OR:
    case OP_XOR: return bit_facts(op->code, t, a, b);
    case OP_SELECT: return join(b, fact_of(f, in[2]));
    case OP_BROADCAST:
    case OP_RESHAPE:
    case OP_PERMUTE: return a;
    case OP_REDUCE: return reduce_fact(f, op, t);
    case OP_SCAN:
        if (op->attr.fold == FOLD_MAX || op->attr.fold == FOLD_MIN) return a;
        break;
    default: break;
    }
    *exact = false;
    return anything(t);
}

static void set_unknown(facts *f, value v)
{
    dtype t = tile_type_of(f->k, v).elem;
    f->values[v] = dtype_is_float(t) ? (integer_fact){INT64_MIN, INT64_MAX, 1} : anything(t);
    f->exact[v] = false;
}

static void walk(facts *f, const tile_block *b);

static integer_fact variable_fact(const facts *f, const tile_op *op, bool *exact)
{
    dtype t = tile_type_of(f->k, op->operands[0]).elem;
    integer_fact first = fact_of(f, op->operands[0]), limit = fact_of(f, op->operands[1]),
                 step = fact_of(f, op->operands[2]);
    integer_fact beyond;
    bool unit = step.low == step.high && (step.low == 1 || step.low == -1); /* cannot step over the limit and wrap */
    *exact = false;
    if (!ordered(t, first) || !ordered(t, limit)) return anything(t);
    if (!unit && (!add_facts(limit, step, &beyond) || !fits(t, beyond))) return anything(t);
    *exact = true;
    int64_t divisor = scalar_greatest_divisor(first.divisor, step.divisor);
    if (op->flags & F_DOWN) {
        int64_t low = limit.low == INT64_MAX ? INT64_MAX : limit.low + 1;
        return between(MINIMUM(low, first.high), first.high, divisor);
    }
    int64_t high = limit.high == INT64_MIN ? INT64_MIN : limit.high - 1;
    return between(first.low, MAXIMUM(high, first.low), divisor);
}

/* Widens `fact` to hold `next` too; each bound that moves goes to its type's limit, so this ends soon. */
static bool widen(integer_fact *fact, integer_fact next, dtype t)
{
    integer_fact wide = *fact;
    if (next.low < wide.low) wide.low = type_low(t);
    if (next.high > wide.high) wide.high = type_high(t);
    wide.divisor = scalar_greatest_divisor(wide.divisor, next.divisor);
    bool changed = memcmp(&wide, fact, sizeof(wide)) != 0;
    *fact = wide;
    return changed;
}

/* Carried values of a loop: args of `region` from `skip` on, initial values from operand `first` on. */
static void walk_loop(facts *f, const tile_op *op, int first, int skip)
{
    const tile_block *body = op->regions[op->region_count - 1];
    const tile_op *yield = body->ops[body->op_count - 1];
    int count = op->result_count;
    for (int i = 0; i < count; i++) f->values[body->args[i + skip]] = fact_of(f, op->operands[first + i]);
    for (bool changed = true; changed;) {
        changed = false;
        if (op->code == OP_WHILE) {
            for (int i = 0; i < count; i++) f->values[op->regions[0]->args[i]] = f->values[body->args[i]];
            walk(f, op->regions[0]);
        }
        walk(f, body);
        for (int i = 0; i < count; i++) {
            value carried = body->args[i + skip];
            changed |= widen(&f->values[carried], fact_of(f, yield->operands[i]), tile_type_of(f->k, carried).elem);
        }
    }
    for (int i = 0; i < count; i++) f->values[op->results[i]] = f->values[body->args[i + skip]];
}

static void walk_control(facts *f, const tile_op *op)
{
    const tile_block *first = op->regions[0];
    switch (op->code) {
    case OP_FOR:
        f->loops[first->args[0]] = op;
        f->values[first->args[0]] = variable_fact(f, op, &f->exact[first->args[0]]);
        walk_loop(f, op, 3, 1);
        break;
    case OP_WHILE: walk_loop(f, op, 0, 0); break;
    case OP_IF:
        walk(f, first);
        walk(f, op->regions[1]);
        for (int i = 0; i < op->result_count; i++)
            f->values[op->results[i]] =
                join(fact_of(f, first->ops[first->op_count - 1]->operands[i]),
                     fact_of(f, op->regions[1]->ops[op->regions[1]->op_count - 1]->operands[i]));
        break;
    default: /* map */
        for (int i = 0; i < first->arg_count; i++) f->values[first->args[i]] = fact_of(f, op->operands[i]);
        walk(f, first);
        for (int i = 0; i < op->result_count; i++)
            f->values[op->results[i]] = fact_of(f, first->ops[first->op_count - 1]->operands[i]);
    }
}

static void walk(facts *f, const tile_block *b)
{
    for (int i = 0; i < b->op_count; i++) {
        const tile_op *op = b->ops[i];
        if (op->region_count) {
            walk_control(f, op);
            continue;
        }
        for (int r = 0; r < op->result_count; r++) {
            value v = op->results[r];
            dtype t = tile_type_of(f->k, v).elem;
            if (dtype_is_integer(t))
                f->values[v] = transfer(f, op, t, &f->exact[v]);
            else
                set_unknown(f, v);
        }
    }
}

/* The CPU's ladder, then the GPU's. */
static const int64_t class_limits[] = {64,  1024, 4096,  65536, 1 << 20, LARGEST_EXTENT, 40,
                                       256, 1024, 16384, 65536, 262144,  1 << 22};

bool size_class_holds(int class, int64_t extent)
{
    enum { GPU_LADDER = 6 };
    bool first = class == 0 || class == GPU_LADDER;
    return (class >= COUNT(class_limits) || extent <= class_limits[class]) &&
           (first || extent > class_limits[class - 1] - (class > GPU_LADDER && extent % 16 ? 7 : 0));
}

static integer_fact param_fact(const tile_kernel *k, int p)
{
    const tile_param *param = &k->params[p];
    if (param->kind < PARAM_SCALAR || !dtype_is_integer(param->elem)) return anything(DT_I64);
    integer_fact fact = anything(param->elem);
    bool is_extent = param->kind == PARAM_EXTENT || param->facts.size_class >= 0, is_small = false;
    for (int a = 0; a < k->param_count; a++) {
        for (int axis = 0; axis < k->params[a].rank; axis++) {
            bool here = k->params[a].extent_param[axis] == p;
            is_extent |= here;
            is_small |= here && k->params[a].facts.small;
        }
    }
    is_extent |= param->facts.size_class >= 0;
    if (is_extent) fact = (integer_fact){0, is_small ? INT32_MAX : MINIMUM(type_high(param->elem), LARGEST_EXTENT), 1};
    int class = param->facts.size_class; /* also of a scalar that only tiles are as long as */
    if (class >= 0 && class < COUNT(class_limits)) fact.high = MINIMUM(fact.high, class_limits[class]);
    if (facts_divisor(&param->facts) > 1) fact.divisor = facts_divisor(&param->facts);
    if (param->facts.one) fact = exactly(1);
    return fact;
}

/* assume(n % 64 == 0), assume(n <= 4096): what the host has checked before anything runs. */
static void learn(facts *f, value condition, bool truth, int *ways)
{
    const tile_op *op = tile_def(f->k, condition);
    if (!op || tile_type_of(f->k, condition).rank || --*ways < 0) return;
    if (op->code == OP_AND && truth) {
        learn(f, op->operands[0], true, ways);
        learn(f, op->operands[1], true, ways);
    }
    if (op->code == OP_OR && !truth) {
        learn(f, op->operands[0], false, ways);
        learn(f, op->operands[1], false, ways);
    }
    if (op->code == OP_NOT) learn(f, op->operands[0], !truth, ways);
    if (!truth || ops[op->code].class != CLASS_COMPARE) return;
    const tile_op *left = tile_def(f->k, op->operands[0]);
    integer_fact right = fact_of(f, op->operands[1]);
    if (!left || !dtype_is_integer(tile_type_of(f->k, op->operands[0]).elem) || right.low != right.high) return;
    if (left->code == OP_ARG || left->code == OP_DEFAULT) {
        integer_fact *fact = &f->params[left->attr.index];
        if (!ordered(f->k->params[left->attr.index].elem, *fact)) return;
        int64_t c = right.low;
        if (op->code == OP_LE || op->code == OP_EQ) fact->high = MINIMUM(fact->high, c);
        if (op->code == OP_GE || op->code == OP_EQ) fact->low = MAXIMUM(fact->low, c);
        if (op->code == OP_LT && c > INT64_MIN) fact->high = MINIMUM(fact->high, c - 1);
        if (op->code == OP_GT && c < INT64_MAX) fact->low = MAXIMUM(fact->low, c + 1);
        if (fact->low > fact->high) fact->low = fact->high; /* no launch is possible: anything holds */
        if (fact->low == fact->high) *fact = exactly(fact->low);
    } else if (left->code == OP_MOD && op->code == OP_EQ && right.low == 0) {
        const tile_op *whole = tile_def(f->k, left->operands[0]);
        integer_fact unit = fact_of(f, left->operands[1]);
        if (!whole || (whole->code != OP_ARG && whole->code != OP_DEFAULT) || unit.low != unit.high || unit.low <= 0)
            return;
        int64_t *divisor = &f->params[whole->attr.index].divisor, both;
        int64_t shared = scalar_greatest_divisor(*divisor, unit.low);
        if (*divisor && shared && !__builtin_mul_overflow(*divisor, unit.low / shared, &both)) *divisor = both;
    }
}

static void find_counts(facts *f)
{
    for (int phase = 0; phase < f->k->phase_count; phase++) {
        const tile_op *launch = NULL;
        for (int i = 0; i < f->k->head->op_count; i++)
            if (f->k->head->ops[i]->code == OP_LAUNCH && f->k->head->ops[i]->attr.index == phase)
                launch = f->k->head->ops[i];
        const tile_block *stack[64] = {f->k->phases[phase]}; /* blocks to look through; deeper ones stay unknown */
        int depth = 1;
        while (depth) {
            const tile_block *b = stack[--depth];
            for (int i = 0; i < b->op_count; i++) {
                const tile_op *op = b->ops[i];
                if ((op->code == OP_PROGRAM || op->code == OP_PROGRAMS) && launch &&
                    op->attr.index < launch->operand_count)
                    f->counts[op->results[0]] = launch->operands[op->attr.index];
                for (int r = 0; r < op->region_count; r++)
                    if (depth < COUNT(stack)) stack[depth++] = op->regions[r];
            }
        }
    }
}

facts *facts_compute(const tile_kernel *k, arena *memory)
{
    facts *f = ARENA_NEW(memory, facts);
    f->k = k;
    f->value_count = k->value_count;
    f->values = ARENA_ARRAY(memory, integer_fact, k->value_count);
    f->params = ARENA_ARRAY(memory, integer_fact, k->param_count);
    f->exact = ARENA_ARRAY(memory, bool, k->value_count);
    f->loops = ARENA_ARRAY(memory, const tile_op *, k->value_count);
    f->counts = ARENA_ARRAY(memory, value, k->value_count);
    f->values[0] = anything(DT_I64); /* the launch count that is not known */
    for (int p = 0; p < k->param_count; p++) f->params[p] = param_fact(k, p);
    find_counts(f);
    walk(f, k->head);
    bool learnt = false;
    for (int i = 0; i < k->head->op_count; i++) {
        if (k->head->ops[i]->code != OP_ASSUME || k->head->ops[i]->operand_count != 1) continue;
        int ways = TILE_MOST_WAYS;
        learn(f, k->head->ops[i]->operands[0], true, &ways);
        learnt = true;
    }
    if (learnt) walk(f, k->head);
    for (int i = 0; i < k->phase_count; i++) walk(f, k->phases[i]);
    return f;
}

integer_fact facts_of_atom(const facts *f, atom a)
{
    if (a & ATOM_PARAM) return f->params[a & ~ATOM_PARAM];
    return facts_of(f, a);
}

integer_fact facts_of(const facts *f, value v)
{
    number n;
    if (v < (value)f->value_count) return f->values[v];
    if (tile_is_constant(f->k, v, &n) && dtype_is_integer(tile_type_of(f->k, v).elem)) return exactly(n.i);
    dtype t = tile_type_of(f->k, v).elem;
    return dtype_is_float(t) ? anything(DT_I64) : anything(t);
}

static bool stride_of(const facts *f, value v, int axis, int64_t *step, int *ways)
{
    tile_type type = tile_type_of(f->k, v);
    *step = 0;
    if (!type.rank || (axis < type.rank && type.dims[axis] == 1)) return true;
    integer_fact fact = facts_of(f, v);
    if (dtype_is_integer(type.elem) && fact.low == fact.high) return true;
    const tile_op *op = tile_def(f->k, v);
    if (!op || --*ways < 0 || axis >= type.rank) return false;
    int64_t other;
    switch (op->code) {
    case OP_IOTA: *step = op->attr.index == axis; return true;
    case OP_BROADCAST: return stride_of(f, op->operands[0], axis, step, ways);
    case OP_PERMUTE: return stride_of(f, op->operands[0], op->attr.axes[axis], step, ways);
    case OP_RESHAPE: {
        tile_type from = tile_type_of(f->k, op->operands[0]);
        if (!tile_reshape_only_units(&from, &type)) return false;
        int before = 0, i = 0; /* the axis with as many axes other than 1 before it */
        for (int j = 0; j < axis; j++) before += type.dims[j] != 1;
        for (; i < from.rank && (from.dims[i] == 1 || before > 0); i++) before -= from.dims[i] != 1;
        return i < from.rank && stride_of(f, op->operands[0], i, step, ways);
    }
    case OP_CONVERT:
        return v < (value)f->value_count && f->exact[v] && dtype_is_integer(tile_type_of(f->k, op->operands[0]).elem) &&
               stride_of(f, op->operands[0], axis, step, ways);
    case OP_ADD:
    case OP_SUB:
        if (v >= (value)f->value_count || !f->exact[v]) return false;
        if (!stride_of(f, op->operands[0], axis, step, ways) || !stride_of(f, op->operands[1], axis, &other, ways))
            return false;
        return op->code == OP_ADD ? !__builtin_add_overflow(*step, other, step)
                                  : !__builtin_sub_overflow(*step, other, step);
    case OP_NEG:
        if (v >= (value)f->value_count || !f->exact[v] || !stride_of(f, op->operands[0], axis, step, ways))
            return false;
        return !__builtin_sub_overflow((int64_t)0, *step, step);
    case OP_MUL:
        if (v >= (value)f->value_count || !f->exact[v]) return false;
        for (int i = 0; i < 2; i++) {
            integer_fact constant = facts_of(f, op->operands[i]);
            if (constant.low == constant.high && stride_of(f, op->operands[1 - i], axis, step, ways))
                return !__builtin_mul_overflow(*step, constant.low, step);
        }
        __attribute__((fallthrough)); /* two factors that stay the same along the axis */
    default:
        if (!ops[op->code].pure || ops[op->code].class == CLASS_SHAPE || ops[op->code].class == CLASS_FOLD ||
            op->region_count)
            return false;
        for (int i = 0; i < op->operand_count; i++)
            if (!stride_of(f, op->operands[i], axis, step, ways) || *step) return false;
        return op->operand_count > 0;
    }
}

bool facts_stride(const facts *f, value v, int axis, int64_t *step)
{
    int ways = TILE_MOST_WAYS;
    return stride_of(f, v, axis, step, &ways);
}
