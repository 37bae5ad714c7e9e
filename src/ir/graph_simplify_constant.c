/*
 * Rules of graph_simplify: constants. In: an op whose inputs are constants (FULL). Out: a constant. Arithmetic is the
 * graph interpreter's; what devices compute to other last bits (exp, log, ...) is folded only where that is allowed.
 * SPDX-License-Identifier: MIT
 */
#include "ir/graph_interp.h"
#include "ir/graph_simplify_rules.h"

#include <math.h>

node rule_fold_map(const rule_state *s, node n)
{
    const graph_node *at = graph_get(s->g, n);
    if (!s->relaxed && !op_rounds_correctly(at->attr.map, at->elem)) return n;
    for (int i = 0; i < at->input_count; i++)
        if (rule_input(s, at, i)->code != GRAPH_FULL) return n;
    arena *memory = arena_new();
    graph *one = graph_new(memory); /* the same op on scalars */
    node inputs[3], result;
    for (int i = 0; i < at->input_count; i++)
        inputs[i] = graph_full(one, rule_input(s, at, i)->elem, &(shape){0}, rule_input(s, at, i)->attr.number);
    graph_tensor t;
    result = graph_map_index(one, at->attr.map, at->attr.index, at->elem, inputs, at->input_count);
    CHECK(!graph_interpret(one, &result, 1, NULL, false, memory, &t, NULL));
    number value = t.elements[0];
    arena_free(memory);
    if (dtype_is_float(at->elem) && isnan(value.f)) return n;
    return graph_full(s->g, at->elem, &at->shape, value);
}

node rule_iota_one(const rule_state *s, node n)
{
    const graph_node *at = graph_get(s->g, n);
    return shape_count(&at->shape) <= 1 ? graph_full_double(s->g, at->elem, &at->shape, 0) : n;
}

static bool same_number(dtype elem, number a, number b)
{
    return dtype_is_float(elem) ? a.f == b.f && signbit(a.f) == signbit(b.f) : a.i == b.i;
}

node rule_move_full(const rule_state *s, node n)
{
    const graph_node *at = graph_get(s->g, n);
    number value;
    if (graph_ops[at->code].class != GRAPH_CLASS_MOVE || at->code == GRAPH_CONCAT) return n;
    if (!rule_is_full(s, at->inputs[0], &value)) {
        if (shape_count(&at->shape)) return n;
        value = (number){0}; /* there is nothing to move */
    } else if (at->code == GRAPH_PAD && !same_number(at->elem, value, at->attr.number)) {
        return n;
    }
    return graph_full(s->g, at->elem, &at->shape, value);
}

node rule_join_full(const rule_state *s, node n)
{
    const graph_node *at = graph_get(s->g, n);
    number first, other;
    if (!rule_is_full(s, at->inputs[0], &first)) return n;
    for (int i = 1; i < at->input_count; i++)
        if (!rule_is_full(s, at->inputs[i], &other) || !same_number(at->elem, first, other)) return n;
    return graph_full(s->g, at->elem, &at->shape, first);
}

/* Reductions and scans of a constant: of max, min, any and all the constant; a sum is a product with the count. */
node rule_fold_full(const rule_state *s, node n)
{
    const graph_node *at = graph_get(s->g, n);
    number value;
    if ((at->code != GRAPH_REDUCE && at->code != GRAPH_SCAN) || !rule_is_full(s, at->inputs[0], &value)) return n;
    const graph_node *x = rule_input(s, at, 0);
    int64_t count = shape_count(&x->shape);
    switch (at->attr.fold) {
    case FOLD_MAX:
    case FOLD_MIN:
    case FOLD_ANY:
    case FOLD_ALL: break;
    case FOLD_ARGMAX:
    case FOLD_ARGMIN: return graph_full_double(s->g, DT_I64, &at->shape, 0);
    case FOLD_PROD:
        if (!rule_is_value(s, at->inputs[0], 1)) return n;
        break;
    default: {
        bool zero = rule_is_value(s, at->inputs[0], 0), is_float = dtype_is_float(at->elem);
        if (at->code == GRAPH_SCAN && !zero) return n;
        if (zero) break;
        if (is_float && (!s->relaxed || !isfinite(value.f))) return n;
        int64_t each = shape_count(&at->shape) ? count / shape_count(&at->shape) : 0;
        if (is_float) return graph_full_double(s->g, at->elem, &at->shape, value.f * (double)each);
        value.i = integer_wrap(at->elem, (int64_t)((uint64_t)value.i * (uint64_t)each));
        break;
    }
    }
    if (!count && shape_count(&at->shape) && (at->attr.fold == FOLD_ANY || at->attr.fold == FOLD_ALL))
        value.i = at->attr.fold == FOLD_ALL;
    return graph_full(s->g, at->elem, &at->shape, value);
}
