/*
 * Collection: copies what slots, homes and pending assignments reach into a new graph and lets the old one go, with the
 * memory of everything that is not reached. In: a tape. Out: the same tensors under new node numbers.
 * A computed node keeps its history, which a gradient may ask for, except where no gradient can pass: a computed DETACH
 * and computed integers become leaves.
 * SPDX-License-Identifier: MIT
 */
#include "tensor/tape.h"
#include "ir/graph_build.h"

#include <stdlib.h>
#include <string.h>

#define FEWEST_NODES 4096

static bool history_ends(const qn_tape *tape, node n)
{
    const graph_node *x = graph_get(tape->graph, n);
    return x->code != GRAPH_LEAF && tape_placed(tape, n) && (x->code == GRAPH_DETACH || !dtype_is_float(x->elem));
}

static bool *mark(const qn_tape *tape, arena *scratch)
{
    const graph *g = tape->graph;
    bool *wanted = ARENA_ARRAY(scratch, bool, g->node_count);
    for (int i = 1; i < tape->slot_count; i++) wanted[tape->slots[i].node] = wanted[tape->slots[i].home_leaf] = true;
    for (int i = 0; i < tape->assign_count; i++) wanted[tape->assigns[i].from] = true;
    wanted[0] = false;
    for (int n = g->node_count - 1; n > 0; n--) {
        if (!wanted[n] || history_ends(tape, (node)n)) continue;
        for (int i = 0; i < g->nodes[n].input_count; i++) wanted[g->nodes[n].inputs[i]] = true;
    }
    return wanted;
}

/* The range under its new number; what nothing was made in stays behind. */
static unsigned copy_range(const graph *from, unsigned range, unsigned *renamed, graph *to)
{
    if (!range || renamed[range]) return renamed[range];
    graph_range copy = from->ranges[range];
    copy.parent = copy_range(from, copy.parent, renamed, to);
    copy.node_count = to->node_count;
    ARENA_PUSH(to->memory, to->ranges, to->range_count, to->range_capacity, copy);
    return renamed[range] = (unsigned)to->range_count - 1;
}

static node copy_node(const qn_tape *tape, node n, const node *renamed, unsigned *ranges, graph *to)
{
    graph_node copy = *graph_get(tape->graph, n);
    to->site = copy.site;
    to->site.origin = copy_range(tape->graph, copy.site.origin, ranges, to);
    to->label = copy.label;
    if (history_ends(tape, n)) {
        const placed *where = tape_placed(tape, n);
        return graph_leaf(to, copy.elem, &copy.shape, where->strides, where->offset, where->storage);
    }
    node few[16];
    node *inputs = copy.input_count > COUNT(few) ? ARENA_ARRAY(to->memory, node, copy.input_count) : few;
    for (int i = 0; i < copy.input_count; i++) inputs[i] = renamed[copy.inputs[i]];
    copy.inputs = inputs;
    return graph_intern(to, &copy);
}

typedef struct collection {
    const qn_tape *tape;
    arena *memory, *scratch;
    graph *to;
    node *renamed;
    unsigned *ranges;
} collection;

static qn_status copy_all(void *context, qn_error *error)
{
    collection *c = context;
    const graph *from = c->tape->graph;
    (void)error;
    c->to = graph_new(c->memory);
    bool *wanted = mark(c->tape, c->scratch);
    c->renamed = ARENA_ARRAY(c->scratch, node, from->node_count);
    c->ranges = ARENA_ARRAY(c->scratch, unsigned, from->range_count);
    for (int n = 1; n < from->node_count; n++)
        if (wanted[n]) c->renamed[n] = copy_node(c->tape, (node)n, c->renamed, c->ranges, c->to);
    return QN_OK;
}

void tape_collect(qn_tape *tape)
{
    if (tape->capturing) return;
    qn_error error;
    arena *scratch = arena_new();
    collection c = {.tape = tape, .memory = arena_new(), .scratch = scratch};
    graph *from = tape->graph;
    if (heap_try(copy_all, &c, &error)) { /* there is no room for both: it stays as it is */
        tape->collect_at = MAXIMUM(2 * from->node_count, FEWEST_NODES);
        arena_free(scratch);
        arena_free(c.memory);
        return;
    }
    graph *to = c.to;
    node *renamed = c.renamed;
    unsigned *ranges = c.ranges;
    qn_status status = from->status;
    placed *old = tape->placed;
    int old_capacity = tape->placed_capacity;
    tape->graph = to;
    tape->placed = NULL;
    tape->placed_capacity = 0;
    for (int n = 0; n < old_capacity; n++) {
        if (!old[n].storage) continue;
        if (n < from->node_count && renamed[n]) tape_place(tape, renamed[n], &old[n]);
        storage_release(old[n].storage);
    }
    heap_free(old);
    for (int i = 1; i < tape->slot_count; i++) {
        tape->slots[i].node = renamed[tape->slots[i].node];
        tape->slots[i].home_leaf = renamed[tape->slots[i].home_leaf];
    }
    for (int i = 0; i < tape->assign_count; i++) tape->assigns[i].from = renamed[tape->assigns[i].from];
    tape->random_base = renamed[tape->random_base];
    to->site = from->site;
    to->range = to->site.origin = copy_range(from, from->site.origin, ranges, to);
    to->label = from->label;
    to->status = status;
    to->error = from->error;
    tape->dead_bytes = 0;
    tape->collect_at = MAXIMUM(2 * to->node_count, FEWEST_NODES);
    arena_free(scratch);
    arena_free(from->memory);
}
