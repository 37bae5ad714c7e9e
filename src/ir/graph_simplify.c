/*
 * The driver of graph_simplify and its table of rules. In: nodes, older ones first. Out: for each an equal node to which
 * no rule applies. A node is first built again over its simplified inputs, then rules replace it until none does; what
 * a rule makes is simplified like any other node. Equal nodes are one by hash-consing, so common subexpressions meet
 * as soon as their inputs have become equal.
 * Invariant: a rule never makes an expression larger in (bytes of intermediates, ops, order of operands), so this ends;
 * a limit on depth stands guard.
 * SPDX-License-Identifier: MIT
 */
#include "ir/graph_simplify.h"

#include "ir/graph_simplify_rules.h"

#include <math.h>
#include <string.h>

static const struct rule_entry {
    const char *name;
    graph_rule *rule;
    graph_code code; /* of the nodes it looks at; NONE: all */
    bool relaxed;    /* some of it is relaxed */
} entries[] = {
    {"detach and keep of nothing", rule_same_value, GRAPH_NONE, false},
    {"fold constants", rule_fold_map, GRAPH_MAP, true},
    {"iota of one", rule_iota_one, GRAPH_IOTA, false},
    {"move of a constant", rule_move_full, GRAPH_NONE, false},
    {"join of constants", rule_join_full, GRAPH_CONCAT, false},
    {"fold of a constant", rule_fold_full, GRAPH_NONE, true},
    {"order of operands", rule_order_operands, GRAPH_MAP, true},
    {"x + 0, x - 0", rule_add_zero, GRAPH_MAP, true},
    {"x * 1, x / 1", rule_multiply_one, GRAPH_MAP, false},
    {"x * 0 of integers", rule_multiply_zero, GRAPH_MAP, false},
    {"x / 2^n", rule_divide_power, GRAPH_MAP, true},
    {"x^n", rule_power, GRAPH_MAP, true},
    {"the same twice", rule_twice, GRAPH_MAP, false},
    {"x - -y, x + -y", rule_subtract_negative, GRAPH_MAP, false},
    {"equal operands", rule_same_operands, GRAPH_MAP, false},
    {"select of one", rule_select, GRAPH_MAP, false},
    {"convert of convert", rule_convert, GRAPH_MAP, false},
    {"not of a comparison", rule_not_compare, GRAPH_MAP, false},
    {"arithmetic before expand", rule_map_expand, GRAPH_MAP, false},
    {"permute of permute", rule_permute_permute, GRAPH_PERMUTE, false},
    {"permute of units", rule_permute_units, GRAPH_PERMUTE, false},
    {"permute of expand", rule_permute_expand, GRAPH_PERMUTE, false},
    {"expand of expand", rule_expand_expand, GRAPH_EXPAND, false},
    {"slice of slice", rule_slice_slice, GRAPH_SLICE, false},
    {"slice of expand", rule_slice_expand, GRAPH_SLICE, false},
    {"slice of pad", rule_slice_pad, GRAPH_SLICE, false},
    {"slice of concat", rule_slice_concat, GRAPH_SLICE, false},
    {"slice of moved windows", rule_slice_windows, GRAPH_SLICE, false},
    {"pad that only cuts", rule_pad_cut, GRAPH_PAD, false},
    {"pad of pad", rule_pad_pad, GRAPH_PAD, false},
    {"window of one", rule_window_one, GRAPH_WINDOW, false},
    {"concat of concat", rule_concat_flat, GRAPH_CONCAT, false},
    {"concat of slices", rule_concat_slices, GRAPH_CONCAT, false},
    {"reduce of units", rule_reduce_units, GRAPH_REDUCE, true},
    {"reduce of expand", rule_reduce_expand, GRAPH_REDUCE, true},
    {"reduce of reduce", rule_reduce_reduce, GRAPH_REDUCE, true},
    {"sum of multiples", rule_reduce_multiples, GRAPH_REDUCE, true},
    {"scan of one", rule_scan_one, GRAPH_SCAN, true},
};

int graph_rule_count(void)
{
    return COUNT(entries);
}

const char *graph_rule_name(int rule)
{
    return entries[rule].name;
}

bool graph_rule_relaxed(int rule)
{
    return entries[rule].relaxed;
}

bool rule_is_value(const rule_state *s, node n, double x)
{
    const graph_node *at = graph_get(s->g, n);
    if (at->code != GRAPH_FULL) return false;
    if (!dtype_is_float(at->elem)) return (double)at->attr.number.i == x;
    return at->attr.number.f == x && signbit(at->attr.number.f) == signbit(x);
}

typedef struct simplifier {
    rule_state state;
    const graph_rules *rules;
    arena *scratch;
    node *simple; /* by node; 0: not known yet */
    int capacity;
    int depth;
} simplifier;

static void set_simple(simplifier *s, node n, node to)
{
    while ((int)n >= s->capacity)
        s->simple = arena_grow(s->scratch, s->simple, (size_t)s->capacity, &s->capacity, sizeof(node));
    s->simple[n] = to;
}

/* The same op over other inputs; movements are built anew, because with them they may be nothing. */
static node build_again(graph *g, node at, const node *inputs)
{
    const graph_node n = *graph_get(g, at);
    switch (n.code) {
    case GRAPH_RESHAPE: return graph_reshape(g, inputs[0], &n.shape);
    case GRAPH_EXPAND: return graph_expand(g, inputs[0], &n.shape);
    default: return graph_again(g, at, inputs);
    }
}

static node simplify(simplifier *s, node at);

static node over_simple_inputs(simplifier *s, node at)
{
    graph *g = s->state.g;
    const graph_node n = *graph_get(g, at);
    node few[8], *inputs = n.input_count <= COUNT(few) ? few : ARENA_ARRAY(s->scratch, node, n.input_count);
    bool changed = false;
    for (int i = 0; i < n.input_count; i++) {
        inputs[i] = simplify(s, n.inputs[i]);
        changed |= inputs[i] != n.inputs[i];
    }
    g->site = n.site;
    g->label = n.label;
    return changed ? build_again(g, at, inputs) : at;
}

static node simplify(simplifier *s, node at)
{
    enum { DEEPEST = 400 };
    if ((int)at < s->capacity && s->simple[at]) return s->simple[at];
    if (s->depth > DEEPEST) return at;
    s->depth++;
    graph *g = s->state.g;
    node result = over_simple_inputs(s, at);
    if (result == at) {
        for (int i = 0; i < COUNT(entries) && result == at; i++) {
            if (entries[i].code && entries[i].code != graph_get(g, at)->code) continue;
            if (s->rules->without && !strcmp(s->rules->without, entries[i].name)) continue;
            result = entries[i].rule(&s->state, at);
            CHECK(result != 0);
        }
    }
    if (result != at) result = simplify(s, result);
    s->depth--;
    set_simple(s, at, result);
    return result;
}

void graph_simplify(graph *g, node *roots, int root_count, const graph_rules *rules)
{
    if (g->status) return;
    arena *scratch = arena_new();
    node *order = ARENA_ARRAY(scratch, node, g->node_count);
    int *uses = ARENA_ARRAY(scratch, int, g->node_count);
    int count = graph_order(g, roots, root_count, order);
    bool repeats = false;
    for (int i = 0; i < count; i++) repeats |= graph_get(g, order[i])->code == GRAPH_AGAIN;
    for (int i = 0; i < root_count; i++) uses[roots[i]]++;
    for (int i = 0; i < count; i++)
        for (int k = 0; k < graph_get(g, order[i])->input_count; k++) uses[graph_get(g, order[i])->inputs[k]]++;
    graph_site site = g->site;
    const char *label = g->label;
    simplifier s = {.state = {g, rules->relaxed, uses, g->node_count, repeats}, .rules = rules, .scratch = scratch};
    set_simple(&s, (node)g->node_count - 1, 0);
    for (int i = 0; i < count; i++) simplify(&s, order[i]); /* inputs first: no deep recursion */
    for (int i = 0; i < root_count; i++) roots[i] = simplify(&s, roots[i]);
    g->site = site;
    g->label = label;
    arena_free(scratch);
}
