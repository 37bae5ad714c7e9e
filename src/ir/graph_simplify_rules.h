/*
 * What the rules of graph_simplify share: their form, and questions about nodes.
 * SPDX-License-Identifier: MIT
 */
#ifndef QUERN_IR_GRAPH_SIMPLIFY_RULES_H
#define QUERN_IR_GRAPH_SIMPLIFY_RULES_H

#include "ir/graph.h"

typedef struct rule_state {
    graph *g;
    bool relaxed;
    const int *uses; /* by node, of those that were there at the start */
    int use_count;
    bool repeats; /* something is computed again, from checkpoints */
} rule_state;

/* An equal node, or n itself. */
typedef node graph_rule(const rule_state *s, node n);

#define RULE(name) node name(const rule_state *s, node n)

/* constants: graph_simplify_constant.c */
RULE(rule_fold_map);
RULE(rule_move_full);
RULE(rule_join_full);
RULE(rule_fold_full);
RULE(rule_iota_one);

/* algebra: graph_simplify_algebra.c */
RULE(rule_order_operands);
RULE(rule_add_zero);
RULE(rule_multiply_one);
RULE(rule_multiply_zero);
RULE(rule_divide_power);
RULE(rule_power);
RULE(rule_twice);
RULE(rule_subtract_negative);
RULE(rule_same_operands);
RULE(rule_select);
RULE(rule_convert);
RULE(rule_not_compare);
RULE(rule_same_value);
RULE(rule_map_expand);

/* movement: graph_simplify_move.c */
RULE(rule_permute_permute);
RULE(rule_permute_units);
RULE(rule_permute_expand);
RULE(rule_expand_expand);
RULE(rule_slice_slice);
RULE(rule_slice_expand);
RULE(rule_slice_pad);
RULE(rule_slice_concat);
RULE(rule_slice_windows); /* graph_simplify_cut.c */
RULE(rule_pad_cut);
RULE(rule_pad_pad);
RULE(rule_window_one);
RULE(rule_concat_flat);
RULE(rule_concat_slices);

/* folds: graph_simplify_fold.c */
RULE(rule_reduce_units);
RULE(rule_reduce_expand);
RULE(rule_reduce_reduce);
RULE(rule_reduce_multiples);
RULE(rule_scan_one);

#undef RULE

static inline const graph_node *rule_input(const rule_state *s, const graph_node *n, int i)
{
    return graph_get(s->g, n->inputs[i]);
}

static inline bool rule_is_full(const rule_state *s, node n, number *value)
{
    const graph_node *at = graph_get(s->g, n);
    if (at->code != GRAPH_FULL) return false;
    *value = at->attr.number;
    return true;
}

/* A constant of this value everywhere; zero must have the sign of x. */
bool rule_is_value(const rule_state *s, node n, double x);

/* No other node needs n. Nodes that rules made count as used once. */
static inline bool rule_single(const rule_state *s, node n)
{
    return n >= (node)s->use_count || s->uses[n] <= 1;
}

#endif
