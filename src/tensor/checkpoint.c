/*
 * Checkpoints: what the backward pass keeps, and what it computes again. In: the forward order. Out: for a forward value
 * the node that a gradient's rule reads: itself, or a copy of the chain that leads to it from the checkpoints before it.
 * A checkpoint is a KEEP that says so. What lies before some checkpoint, and is none itself, is computed again; behind
 * the last one everything is kept, since it is needed at once. Copies are equal nodes of equal inputs, so AGAIN at a
 * chain's start keeps hash-consing from finding the originals; they are made when the walk back first asks for them,
 * which puts them behind everything that the backward pass did before.
 * SPDX-License-Identifier: MIT
 */
#include "tensor/grad_rules.h"

struct recompute {
    graph *g;
    arena *memory;
    bool *passed; /* by node: it lies before a checkpoint and is not kept */
    node *copies; /* by node; 0: none yet */
    int known;
};

node graph_checkpoint(graph *g, node x)
{
    return graph_same(g, GRAPH_KEEP, x, GRAPH_CHECKPOINT);
}

static bool is_checkpoint(const graph_node *n)
{
    return n->code == GRAPH_KEEP && n->attr.index == GRAPH_CHECKPOINT;
}

/* What a handle names by a node of its own, a variable: a copy beside it would hide it from the next gradient. */
static bool is_named(const graph_node *n)
{
    return n->code == GRAPH_AGAIN && n->attr.index;
}

recompute *recompute_new(graph *g, const node *order, int count, arena *memory)
{
    recompute *r = NULL;
    for (int i = count - 1; i >= 0; i--) {
        const graph_node *n = &g->nodes[order[i]];
        bool checkpoint = is_checkpoint(n);
        if (checkpoint && !r) {
            r = ARENA_NEW(memory, recompute);
            *r = (recompute){g, memory, ARENA_ARRAY(memory, bool, g->node_count),
                             ARENA_ARRAY(memory, node, g->node_count), g->node_count};
        }
        if (!r || !(checkpoint || r->passed[order[i]])) continue;
        for (int k = 0; k < n->input_count; k++) r->passed[n->inputs[k]] = true;
    }
    for (int i = 0; r && i < count; i++) {
        const graph_node *n = &g->nodes[order[i]];
        bool kept = is_checkpoint(n) || is_named(n) || graph_ops[n->code].class == GRAPH_CLASS_LEAF;
        if (kept) r->passed[order[i]] = false;
    }
    return r;
}

static bool is_missing(const recompute *r, node n)
{
    return (int)n < r->known && r->passed[n] && !r->copies[n];
}

static node value_of(const recompute *r, node n)
{
    return (int)n < r->known && r->passed[n] ? r->copies[n] : n;
}

/* Of a node whose inputs have their copies. */
static node copy_of(recompute *r, node n)
{
    graph *g = r->g;
    int count = g->nodes[n].input_count, start = -1;
    const node *old = g->nodes[n].inputs;
    node *inputs = ARENA_ARRAY(r->memory, node, count);
    bool changed = false;
    for (int i = 0; i < count; i++) {
        inputs[i] = value_of(r, old[i]);
        changed |= inputs[i] != old[i];
        graph_code code = g->nodes[old[i]].code;
        if (start < 0 && code != GRAPH_FULL && code != GRAPH_IOTA) start = i;
    }
    if (start < 0) return n; /* of constants alone: nothing to keep */
    if (!changed) inputs[start] = graph_same(g, GRAPH_AGAIN, inputs[start], 0);
    return graph_again(g, n, inputs);
}

node recompute_value(recompute *r, node n)
{
    if (!r || !n) return n;
    node *stack = NULL; /* what waits for copies of its inputs */
    int depth = 0, capacity = 0;
    if (is_missing(r, n)) ARENA_PUSH(r->memory, stack, depth, capacity, n);
    while (depth) {
        node at = stack[depth - 1];
        int before = depth;
        if (is_missing(r, at))
            for (int i = r->g->nodes[at].input_count - 1; i >= 0; i--)
                if (is_missing(r, r->g->nodes[at].inputs[i]))
                    ARENA_PUSH(r->memory, stack, depth, capacity, r->g->nodes[at].inputs[i]);
        if (depth > before) continue;
        if (is_missing(r, at)) r->copies[at] = copy_of(r, at);
        depth--;
    }
    return value_of(r, n);
}
