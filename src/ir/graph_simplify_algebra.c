/*
 * Rules of graph_simplify: algebra of elementwise ops. In: a MAP (or a node that only passes its input on) with simple
 * inputs. Out: an equal node. Where a float's bits could change (x + 0 of -0, powers) the rule needs `relaxed`.
 * SPDX-License-Identifier: MIT
 */
#include "ir/graph_simplify_rules.h"

#include <math.h>

static bool is_map(const rule_state *s, node n, op_code code)
{
    return graph_get(s->g, n)->code == GRAPH_MAP && graph_get(s->g, n)->attr.map == code;
}

/* DETACH matters to gradients only, which are built by now, and so does a checkpoint, unless a gradient computes something
 * again. What is kept is in memory of its own; KEEP with an index, and AGAIN, are what checkpoints stand on. */
node rule_same_value(const rule_state *s, node n)
{
    const graph_node *at = graph_get(s->g, n);
    if (at->code == GRAPH_DETACH) return at->inputs[0];
    if (at->code == GRAPH_KEEP && at->attr.index == GRAPH_CHECKPOINT && !s->repeats) return at->inputs[0];
    return at->code == GRAPH_KEEP && !at->attr.index && rule_input(s, at, 0)->code == GRAPH_KEEP ? at->inputs[0] : n;
}

/* Commutative ops: constants last, else the older operand first, so that a + b and b + a are one node. Minima and
 * maxima of floats may tell +0 from -0 by the order. */
node rule_order_operands(const rule_state *s, node n)
{
    const graph_node *at = graph_get(s->g, n);
    if (!ops[at->attr.map].commutative || at->input_count != 2) return n;
    bool ordered = at->attr.map == OP_MIN || at->attr.map == OP_MAX;
    if (ordered && dtype_is_float(at->elem) && !s->relaxed) return n;
    bool first = rule_input(s, at, 0)->code == GRAPH_FULL, second = rule_input(s, at, 1)->code == GRAPH_FULL;
    if (first == second ? at->inputs[0] <= at->inputs[1] : second) return n;
    return graph_binary(s->g, at->attr.map, at->inputs[1], at->inputs[0]);
}

node rule_add_zero(const rule_state *s, node n)
{
    const graph_node *at = graph_get(s->g, n);
    op_code code = at->attr.map;
    if (code != OP_ADD && code != OP_SUB && code != OP_OR && code != OP_XOR) return n;
    bool is_float = dtype_is_float(at->elem), adds = code == OP_ADD;
    for (int i = adds ? 0 : 1; i < 2; i++) {
        node zero = at->inputs[i];
        bool exact = rule_is_value(s, zero, is_float && adds ? -0.0 : 0.0); /* -0 + 0 is 0, -0 + -0 and -0 - 0 are -0 */
        bool nearly = s->relaxed && (rule_is_value(s, zero, 0.0) || rule_is_value(s, zero, -0.0));
        if (exact || nearly) return at->inputs[1 - i];
    }
    return n;
}

node rule_multiply_one(const rule_state *s, node n)
{
    const graph_node *at = graph_get(s->g, n);
    if (at->attr.map == OP_MUL && rule_is_value(s, at->inputs[0], 1)) return at->inputs[1];
    if ((at->attr.map == OP_MUL || at->attr.map == OP_DIV) && rule_is_value(s, at->inputs[1], 1)) return at->inputs[0];
    return n;
}

node rule_multiply_zero(const rule_state *s, node n)
{
    const graph_node *at = graph_get(s->g, n);
    if ((at->attr.map != OP_MUL && at->attr.map != OP_AND) || dtype_is_float(at->elem)) return n;
    for (int i = 0; i < 2; i++)
        if (rule_is_value(s, at->inputs[i], 0)) return at->inputs[i];
    return n;
}

/* The inverse of a power of two is exact, and so is the product with it. Relaxed, other numbers go the same way: a mean
 * over 100 rows is then made as one over 64. */
node rule_divide_power(const rule_state *s, node n)
{
    const graph_node *at = graph_get(s->g, n);
    number by;
    int exponent;
    if (at->attr.map != OP_DIV || !dtype_is_float(at->elem) || !rule_is_full(s, at->inputs[1], &by)) return n;
    if (!isfinite(by.f)) return n;
    bool exact = fabs(frexp(by.f, &exponent)) == 0.5 && exponent >= -12 && exponent <= 14;
    bool wide = at->elem == DT_F32 || at->elem == DT_F64;
    bool nearly = s->relaxed && wide && fabs(by.f) > 1e-6 && fabs(by.f) < 1e12;
    if (!exact && !nearly) return n;
    return graph_binary(s->g, OP_MUL, at->inputs[0], graph_full_double(s->g, at->elem, &at->shape, 1 / by.f));
}

node rule_power(const rule_state *s, node n)
{
    const graph_node *at = graph_get(s->g, n);
    graph *g = s->g;
    if (at->attr.map != OP_POW) return n;
    node x = at->inputs[0], by = at->inputs[1];
    if (rule_is_value(s, by, 1)) return x;
    if (!s->relaxed) return n;
    if (rule_is_value(s, by, 2)) return graph_binary(g, OP_MUL, x, x);
    if (rule_is_value(s, by, 3)) return graph_binary(g, OP_MUL, graph_binary(g, OP_MUL, x, x), x);
    if (rule_is_value(s, by, 0.5)) return graph_unary(g, OP_SQRT, x);
    if (rule_is_value(s, by, -0.5)) return graph_unary(g, OP_RSQRT, x);
    if (rule_is_value(s, by, -1)) return graph_binary(g, OP_DIV, graph_full_double(g, at->elem, &at->shape, 1), x);
    return n;
}

/* neg neg, not not; abs, floor, ceil, round, relu, sign of themselves; abs of neg. */
node rule_twice(const rule_state *s, node n)
{
    const graph_node *at = graph_get(s->g, n);
    if (at->input_count != 1) return n;
    const graph_node *x = rule_input(s, at, 0);
    if (x->code != GRAPH_MAP) return n;
    switch (at->attr.map) {
    case OP_NEG:
    case OP_NOT: return x->attr.map == at->attr.map ? x->inputs[0] : n;
    case OP_ABS: /* of the least integer too: neg of it is itself */
        if (x->attr.map == OP_NEG && dtype_is_signed(at->elem)) return graph_unary(s->g, OP_ABS, x->inputs[0]);
        return x->attr.map == OP_ABS && dtype_is_float(at->elem) ? at->inputs[0] : n;
    case OP_FLOOR:
    case OP_CEIL:
    case OP_ROUND:
        return x->attr.map == OP_FLOOR || x->attr.map == OP_CEIL || x->attr.map == OP_ROUND ? at->inputs[0] : n;
    case OP_RELU:
    case OP_SIGN: return x->attr.map == at->attr.map ? at->inputs[0] : n;
    default: return n;
    }
}

node rule_subtract_negative(const rule_state *s, node n)
{
    const graph_node *at = graph_get(s->g, n);
    bool adds = at->attr.map == OP_ADD;
    if (!adds && at->attr.map != OP_SUB) return n;
    for (int i = 1; i >= (adds ? 0 : 1); i--)
        if (is_map(s, at->inputs[i], OP_NEG))
            return graph_binary(s->g, adds ? OP_SUB : OP_ADD, at->inputs[1 - i], rule_input(s, at, i)->inputs[0]);
    return n;
}

node rule_same_operands(const rule_state *s, node n)
{
    const graph_node *at = graph_get(s->g, n);
    if (at->input_count != 2 || at->inputs[0] != at->inputs[1]) return n;
    switch (at->attr.map) {
    case OP_MIN:
    case OP_MAX:
    case OP_AND:
    case OP_OR: return at->inputs[0];
    case OP_SUB:
    case OP_XOR: return dtype_is_float(at->elem) ? n : graph_full_double(s->g, at->elem, &at->shape, 0);
    default: return n;
    }
}

node rule_select(const rule_state *s, node n)
{
    const graph_node *at = graph_get(s->g, n);
    number condition;
    if (at->attr.map != OP_SELECT) return n;
    if (at->inputs[1] == at->inputs[2]) return at->inputs[1];
    if (rule_is_full(s, at->inputs[0], &condition)) return at->inputs[condition.i ? 1 : 2];
    if (is_map(s, at->inputs[0], OP_NOT))
        return graph_select(s->g, rule_input(s, at, 0)->inputs[0], at->inputs[2], at->inputs[1]);
    return n;
}

/* Does every value of `from` stay itself in `to`? */
static bool keeps(dtype from, dtype to)
{
    int from_bits = dtypes[from].size_bytes * 8, to_bits = dtypes[to].size_bytes * 8;
    if (from == to || from == DT_BOOL) return true;
    if (dtype_is_float(from))
        return dtype_is_float(to) && to_bits > from_bits; /* e4m3 to bf16, f16 to f32, f32 to f64, ... */
    if (dtype_is_float(to)) return from_bits <= dtypes[to].digits;
    if (to == DT_BOOL) return false;
    return dtypes[from].kind == dtypes[to].kind ? to_bits >= from_bits : dtype_is_signed(to) && to_bits > from_bits;
}

/* The middle type goes when it loses nothing and the last conversion means the same from the first type: from a float to
 * an integer it saturates, between integers it wraps. */
node rule_convert(const rule_state *s, node n)
{
    const graph_node *at = graph_get(s->g, n);
    if (at->attr.map != OP_CONVERT) return n;
    if (rule_input(s, at, 0)->elem == at->elem) return at->inputs[0];
    if (!is_map(s, at->inputs[0], OP_CONVERT)) return n;
    node x = rule_input(s, at, 0)->inputs[0];
    dtype from = graph_get(s->g, x)->elem, middle = rule_input(s, at, 0)->elem, to = at->elem;
    bool saturates = dtype_is_float(middle) && dtype_is_integer(to) && !dtype_is_float(from);
    bool twice = dtype_is_integer(from) && dtype_is_narrow(to); /* it goes through f32, which may round */
    if (!keeps(from, middle) || (saturates && !keeps(from, to)) || (twice && !keeps(from, DT_F32))) return n;
    return graph_convert(s->g, x, to);
}

/* Only these two: not of an order is another one for NaN. Of integers all of them. */
node rule_not_compare(const rule_state *s, node n)
{
    const graph_node *at = graph_get(s->g, n);
    static const op_code opposite[][2] = {{OP_EQ, OP_NE}, {OP_NE, OP_EQ}, {OP_LT, OP_GE},
                                          {OP_GE, OP_LT}, {OP_GT, OP_LE}, {OP_LE, OP_GT}};
    if (at->attr.map != OP_NOT || rule_input(s, at, 0)->code != GRAPH_MAP) return n;
    const graph_node *x = rule_input(s, at, 0);
    for (int i = 0; i < COUNT(opposite); i++) {
        bool either = i < 2 || !dtype_is_float(rule_input(s, x, 0)->elem);
        if (x->attr.map == opposite[i][0] && either)
            return graph_binary(s->g, opposite[i][1], x->inputs[0], x->inputs[1]);
    }
    return n;
}

/* An op on expanded tensors of one shape (and constants) is computed before they are expanded. */
node rule_map_expand(const rule_state *s, node n)
{
    const graph_node *at = graph_get(s->g, n);
    const shape *small = NULL;
    node inputs[3];
    for (int i = 0; i < at->input_count; i++) {
        const graph_node *x = rule_input(s, at, i);
        if (x->code == GRAPH_FULL) continue;
        if (x->code != GRAPH_EXPAND) return n;
        if (small && !shape_same(small, &rule_input(s, x, 0)->shape)) return n;
        small = &rule_input(s, x, 0)->shape;
    }
    if (!small || !shape_count(&at->shape)) return n;
    for (int i = 0; i < at->input_count; i++) {
        const graph_node *x = rule_input(s, at, i);
        inputs[i] = x->code == GRAPH_FULL ? graph_full(s->g, x->elem, small, x->attr.number) : x->inputs[0];
    }
    node before = graph_map_index(s->g, at->attr.map, at->attr.index, at->elem, inputs, at->input_count);
    return graph_expand(s->g, before, &at->shape);
}
