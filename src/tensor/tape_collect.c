/*
 * Collection: copies what slots, homes and pending assignments reach into a new graph and lets the old one go, with the
 * memory of everything that is not reached. In: a tape. Out: the same tensors under new node numbers.
 * What a scope made is collected by itself when it ends: nodes never read newer ones, so only those since its begin are looked
 * at. Most often none of them is needed: then only their memory goes, and a step that is called again finds its nodes.
 * A computed node keeps its history, which a gradient may ask for, except where no gradient can pass: a computed DETACH
 * and computed integers become leaves.
 * SPDX-License-Identifier: MIT
 */
#include "tensor/tape.h"
#include "ir/graph_build.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

#define FEWEST_NODES 4096
#define FEWEST_BYTES ((size_t)4 << 20)
#define MOST_SPARE 2048 /* nodes */

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

/* When to collect everything again. */
static void collected(qn_tape *tape)
{
    tape->dead_bytes = 0;
    tape->older_died = false;
    tape->collect_at = MAXIMUM(2 * tape->graph->node_count, FEWEST_NODES);
    tape->collect_at_bytes = MAXIMUM(2 * arena_used_bytes(tape->graph->memory), FEWEST_BYTES);
}

/* What was before a scope stays before it: two nodes may be one now, and then the older number is theirs. */
static void rename_scopes(qn_tape *tape, const node *renamed)
{
    int seen = 1, first = 1, at = 0, kept = 0;
    for (int i = 0; i <= tape->scope; i++) {
        tape_scope *s = i < tape->scope ? &tape->scopes[i] : NULL;
        for (; s && seen < s->first; seen++) first = MAXIMUM(first, (int)renamed[seen] + 1);
        for (int end = s ? s->newly : tape->newly_count; at < end; at++)
            if (renamed[tape->newly[at]]) tape->newly[kept++] = renamed[tape->newly[at]];
        if (s) *s = (tape_scope){.first = first, .newly = kept};
    }
    tape->newly_count = kept;
}

void tape_collect(qn_tape *tape)
{
    if (tape->capturing) return;
    qn_error error;
    arena *scratch = arena_new();
    collection c = {.tape = tape, .memory = arena_new(), .scratch = scratch};
    graph *from = tape->graph;
    if (heap_try(copy_all, &c, &error)) { /* there is no room for both: it stays as it is */
        collected(tape);
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
    int newly_count = tape->newly_count;
    for (int n = 0; n < old_capacity; n++) {
        if (!old[n].storage) continue;
        if (n < from->node_count && renamed[n]) tape_place(tape, renamed[n], &old[n]);
        storage_release(old[n].storage);
    }
    tape->newly_count = newly_count; /* none of that is new */
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
    rename_scopes(tape, renamed);
    tape->spare_from = INT_MAX;
    tape->renumbered++;
    collected(tape);
    arena_free(scratch);
    arena_free(from->memory);
}

/* ---- what a scope made ---- */

static bool is_needed(const qn_tape *tape, int first)
{
    for (int i = 1; i < tape->slot_count; i++)
        if ((int)tape->slots[i].node >= first || (int)tape->slots[i].home_leaf >= first) return true;
    for (int i = 0; i < tape->assign_count; i++)
        if ((int)tape->assigns[i].from >= first) return true;
    return false;
}

static void unplace(qn_tape *tape, node n)
{
    if (!tape_placed(tape, n)) return;
    storage *memory = tape->placed[n].storage;
    tape->placed[n] = (placed){0};
    storage_release(memory);
}

/* Nothing needs any of its nodes. */
static void leave_spare(qn_tape *tape, tape_scope ended)
{
    graph *g = tape->graph;
    int kept = ended.newly;
    for (int i = ended.newly; i < tape->newly_count; i++)
        if ((int)tape->newly[i] >= ended.first)
            unplace(tape, tape->newly[i]);
        else
            tape->newly[kept++] = tape->newly[i]; /* of a scope around it, and computed here */
    tape->newly_count = tape->spare_newly = tape->scope ? kept : 0;
    tape->spare_from = ended.first;
    tape->spare_scope = tape->scope;
    if ((int)tape->random_base >= ended.first) tape->random_base = 0;
    if (g->node_count - ended.first <= MOST_SPARE && g->range_count == 1) return;
    /* Too many, or each call is in a range of its own, to which its time belongs. */
    while (g->range_count > 1 && g->ranges[g->range_count - 1].node_count >= ended.first) g->range_count--;
    if (g->range >= (unsigned)g->range_count) g->range = 0;
    graph_truncate(g, ended.first);
    tape->renumbered++;
}

static void keep(node n, int first, node *kept)
{
    if ((int)n >= first) kept[n - (node)first] = n;
}

static void mark_newer(const qn_tape *tape, int first, node *kept)
{
    const graph *g = tape->graph;
    for (int i = 1; i < tape->slot_count; i++) {
        keep(tape->slots[i].node, first, kept);
        keep(tape->slots[i].home_leaf, first, kept);
    }
    for (int i = 0; i < tape->assign_count; i++) keep(tape->assigns[i].from, first, kept);
    for (int n = g->node_count - 1; n >= first; n--) {
        if (!kept[n - first]) continue;
        for (int i = 0; i < g->nodes[n].input_count; i++) keep(g->nodes[n].inputs[i], first, kept);
    }
}

static node renamed_newer(node n, int first, const node *renamed)
{
    return (int)n < first ? n : renamed[n - (node)first];
}

/* The nodes that something needs move to where the first ones were. */
static void compact(qn_tape *tape, tape_scope ended)
{
    graph *g = tape->graph;
    int first = ended.first, last = g->node_count, room = MINIMUM(last, tape->placed_capacity);
    node *renamed = heap_array((size_t)(last - first), sizeof(node));
    mark_newer(tape, first, renamed);
    for (int i = 1; i < g->range_count; i++) g->ranges[i].node_count = MINIMUM(g->ranges[i].node_count, first);
    graph_compact(g, first, renamed);
    for (int n = first; n < room; n++) {
        placed was = tape->placed[n];
        tape->placed[n] = (placed){0};
        if (renamed[n - first])
            tape->placed[renamed[n - first]] = was;
        else
            storage_release(was.storage);
    }
    for (int i = 1; i < tape->slot_count; i++) {
        tape->slots[i].node = renamed_newer(tape->slots[i].node, first, renamed);
        tape->slots[i].home_leaf = renamed_newer(tape->slots[i].home_leaf, first, renamed);
    }
    for (int i = 0; i < tape->assign_count; i++)
        tape->assigns[i].from = renamed_newer(tape->assigns[i].from, first, renamed);
    int kept = ended.newly;
    for (int i = ended.newly; i < tape->newly_count; i++) {
        node n = renamed_newer(tape->newly[i], first, renamed);
        if (n) tape->newly[kept++] = n;
    }
    tape->newly_count = tape->scope ? kept : 0;
    tape->random_base = renamed_newer(tape->random_base, first, renamed);
    tape->spare_from = INT_MAX;
    tape->renumbered++;
    heap_free(renamed);
}

void tape_collect_scope(qn_tape *tape, tape_scope ended)
{
    if (tape->capturing) {
        tape->older_died = true; /* when that has ended */
        return;
    }
    if (is_needed(tape, ended.first))
        compact(tape, ended);
    else
        leave_spare(tape, ended);
    tape->dead_bytes = 0;
}
