/*
 * The gradient of a graph. In: outputs with what arrives at them, and inputs. Out: for each input a node.
 * One walk forwards marks what lies between inputs and outputs; one walk backwards lets the rule of each op hand what
 * arrives at it to its inputs, where it is gathered until their turn comes. Inputs are older than their node, so by
 * then all has arrived.
 * SPDX-License-Identifier: MIT
 */
#include "ir/graph_build.h"
#include "tensor/grad_rules.h"

#include <string.h>

static grad_rule *const rules[GRAPH_CODE_COUNT] = {
    [GRAPH_MAP] = grad_of_map,
    [GRAPH_KEEP] = grad_of_same,
    [GRAPH_AGAIN] = grad_of_same,
    [GRAPH_RESHAPE] = grad_of_reshape,
    [GRAPH_PERMUTE] = grad_of_permute,
    [GRAPH_EXPAND] = grad_of_expand,
    [GRAPH_SLICE] = grad_of_slice,
    [GRAPH_WINDOW] = grad_of_window,
    [GRAPH_PAD] = grad_of_pad,
    [GRAPH_CONCAT] = grad_of_concat,
    [GRAPH_REDUCE] = grad_of_reduce,
    [GRAPH_SCAN] = grad_of_scan,
    [GRAPH_DOT] = grad_of_dot,
    [GRAPH_TAKE] = grad_of_take,
    [GRAPH_GATHER] = grad_of_gather,
    [GRAPH_TAKE_ADD] = grad_of_take_add,
    [GRAPH_GATHER_ADD] = grad_of_gather_add,
};

typedef struct arrival {
    node d;
    struct arrival *next;
} arrival;

typedef struct gradient {
    graph *g;
    arena *memory;
    bool *needed;       /* by node: it depends on an input, and what arrives matters */
    arrival **arrivals; /* by node, newest first */
    node **of_results;  /* by KERNEL: what arrived at each of its results; NULL: nothing */
    recompute *again;   /* NULL: every forward value is kept */
    unsigned origin;    /* of the call that wants it */
} gradient;

static void give(gradient *s, node to, node d)
{
    if (!d || !s->needed[to] || grad_zero(s->g, d)) return;
    arrival *a = ARENA_NEW(s->memory, arrival);
    a->d = d;
    a->next = s->arrivals[to];
    s->arrivals[to] = a;
}

/* ---- what arrives at one node, as one value ---- */

/* The one axis along which a PAD of zeros lays its input among others; -1: it is something else. */
static int laid_axis(const graph *g, node n)
{
    const graph_node *pad = &g->nodes[n];
    if (pad->code != GRAPH_PAD || pad->attr.number.f != 0 || pad->attr.number.i != 0) return -1;
    const shape *from = &g->nodes[pad->inputs[0]].shape;
    int axis = -1;
    for (int k = 0; k < from->rank; k++) {
        if (pad->attr.step[k] != 1 || pad->attr.start[k] < 0) return -1;
        if (pad->attr.start[k] + from->extents[k] > pad->shape.extents[k]) return -1;
        if (from->extents[k] == pad->shape.extents[k]) continue;
        if (axis >= 0) return -1;
        axis = k;
    }
    return axis;
}

/* Parts of one axis that do not overlap (the gradients of slices of one tensor) are joined, not added. 0: they do. */
static node join_parts(graph *g, node *parts, int count, arena *memory)
{
    int axis = count > 1 ? laid_axis(g, parts[0]) : -1;
    for (int i = 1; i < count && axis >= 0; i++)
        if (laid_axis(g, parts[i]) != axis) axis = -1;
    if (axis < 0) return 0;
    for (int i = 1; i < count; i++) /* by their start; there are few */
        for (int j = i; j > 0 && g->nodes[parts[j]].attr.start[axis] < g->nodes[parts[j - 1]].attr.start[axis]; j--) {
            node swap = parts[j];
            parts[j] = parts[j - 1];
            parts[j - 1] = swap;
        }
    shape whole = g->nodes[parts[0]].shape, gap = whole;
    dtype elem = g->nodes[parts[0]].elem;
    node *joined = ARENA_ARRAY(memory, node, 2 * count + 1);
    int joined_count = 0;
    int64_t end = 0;
    for (int i = 0; i <= count; i++) {
        int64_t start = i < count ? g->nodes[parts[i]].attr.start[axis] : whole.extents[axis];
        if (start < end) return 0;
        gap.extents[axis] = start - end;
        if (start > end) joined[joined_count++] = graph_full_double(g, elem, &gap, 0);
        if (i == count) break;
        joined[joined_count] = g->nodes[parts[i]].inputs[0];
        end = start + g->nodes[joined[joined_count++]].shape.extents[axis];
    }
    return graph_concat(g, joined, joined_count, axis);
}

/* Adds at indices to zeros: the adds can go on top of anything. */
static bool adds_to_zeros(const graph *g, node n)
{
    graph_code code = g->nodes[n].code;
    return (code == GRAPH_TAKE_ADD || code == GRAPH_GATHER_ADD) && grad_zero(g, g->nodes[n].inputs[0]);
}

static node arrived(gradient *s, node n)
{
    graph *g = s->g;
    int count = 0;
    for (arrival *a = s->arrivals[n]; a; a = a->next) count++;
    if (!count) return 0;
    node *list = ARENA_ARRAY(s->memory, node, count);
    int at = count;
    for (arrival *a = s->arrivals[n]; a; a = a->next) list[--at] = a->d;
    if (count == 1) return list[0];
    /* In three groups: parts of an axis, adds at indices, the rest. */
    node *parts = ARENA_ARRAY(s->memory, node, count), sum = 0;
    int part_count = 0;
    for (int i = 0; i < count; i++)
        if (laid_axis(g, list[i]) >= 0) parts[part_count++] = list[i];
    node joined = join_parts(g, parts, part_count, s->memory);
    sum = joined;
    for (int i = 0; i < count; i++) {
        if ((joined && laid_axis(g, list[i]) >= 0) || adds_to_zeros(g, list[i])) continue;
        sum = sum ? grad_add(g, sum, list[i]) : list[i];
    }
    for (int i = 0; i < count; i++) {
        if (!adds_to_zeros(g, list[i])) continue;
        const node *inputs = g->nodes[list[i]].inputs;
        sum = sum ? graph_again(g, list[i], (node[]){sum, inputs[1], inputs[2]}) : list[i];
    }
    return sum;
}

/* ---- the walk ---- */

static void of_kernel(gradient *s, node call)
{
    graph *g = s->g;
    graph_node n = g->nodes[call];
    const graph_kernel *k = n.attr.kernel;
    if (!k->gradient) {
        graph_fail(g, "grad", "the kernel `%s` has no gradient: give it a `gradient (f)` clause", k->name);
        return;
    }
    node *d_inputs = ARENA_ARRAY(s->memory, node, n.input_count);
    if (!k->gradient(g, recompute_value(s->again, call), s->of_results[call], d_inputs)) {
        if (!g->status) graph_fail(g, "grad", "the gradient of the kernel `%s` cannot be built", k->name);
        return;
    }
    for (int i = 0; i < n.input_count; i++) {
        if (!d_inputs[i] || !s->needed[n.inputs[i]]) continue;
        const graph_node *x = &g->nodes[n.inputs[i]], *d = &g->nodes[d_inputs[i]];
        if (x->elem != d->elem || !shape_same(&x->shape, &d->shape)) {
            graph_fail(g, "grad", "the gradient of the kernel `%s` gives %s %s for input %d, which is %s %s", k->name,
                       dtypes[d->elem].text, WORDS(d_inputs[i]), i, dtypes[x->elem].text, WORDS(n.inputs[i]));
            return;
        }
        give(s, n.inputs[i], d_inputs[i]);
    }
}

/* New nodes have the line of the call that made the op they come from, and the range of the call that wants the
 * gradient. */
static void name_after(gradient *s, const graph_node *n)
{
    s->g->site = n->site;
    s->g->site.origin = s->origin;
    s->g->site.gradient = true;
    s->g->label = n->label;
}

static void step(gradient *s, node at)
{
    graph *g = s->g;
    graph_node n = g->nodes[at];
    if (n.code == GRAPH_KERNEL) {
        name_after(s, &n);
        if (s->of_results[at]) of_kernel(s, at);
        return;
    }
    node d = arrived(s, at);
    if (!d || !n.input_count) return;
    name_after(s, &n);
    if (n.code == GRAPH_RESULT) {
        node call = n.inputs[0];
        if (!s->of_results[call])
            s->of_results[call] = ARENA_ARRAY(s->memory, node, g->nodes[call].attr.kernel->output_count);
        s->of_results[call][n.attr.index] = d;
        return;
    }
    CHECK(rules[n.code]);
    node *x = ARENA_ARRAY(s->memory, node, n.input_count), *dx = ARENA_ARRAY(s->memory, node, n.input_count);
    bool *wants = ARENA_ARRAY(s->memory, bool, n.input_count);
    bool wanted = false;
    for (int i = 0; i < n.input_count; i++) wanted |= wants[i] = s->needed[n.inputs[i]];
    if (!wanted) return;
    for (int i = 0; i < n.input_count; i++) x[i] = recompute_value(s->again, n.inputs[i]);
    grad_step one = {.g = g, .n = n, .y = recompute_value(s->again, at), .x = x, .wants = wants, .d = d, .dx = dx};
    rules[n.code](&one);
    for (int i = 0; i < n.input_count; i++) give(s, n.inputs[i], dx[i]);
}

static bool is_float(graph *g, const char *what, int index, node n)
{
    if (dtype_is_float(g->nodes[n].elem)) return true;
    graph_fail(g, "grad", "%s %d is %s %s: only floats have gradients", what, index, dtypes[g->nodes[n].elem].text,
               WORDS(n));
    return false;
}

static bool fits(graph *g, const node *outputs, const node *seeds, int output_count, const node *inputs, int count)
{
    if (g->status || !graph_given(outputs, output_count) || !graph_given(seeds, output_count) ||
        !graph_given(inputs, count))
        return false;
    for (int i = 0; i < output_count; i++) {
        if (!is_float(g, "output", i, outputs[i])) return false;
        const graph_node *y = &g->nodes[outputs[i]], *d = &g->nodes[seeds[i]];
        if (y->elem == d->elem && shape_same(&y->shape, &d->shape)) continue;
        graph_fail(g, "grad", "what arrives at output %d is %s %s, the output is %s %s", i, dtypes[d->elem].text,
                   WORDS(seeds[i]), dtypes[y->elem].text, WORDS(outputs[i]));
        return false;
    }
    for (int i = 0; i < count; i++)
        if (!is_float(g, "input", i, inputs[i])) return false;
    return true;
}

bool graph_gradient_from(graph *g, const node *outputs, const node *seeds, int output_count, const node *inputs,
                         int count, node *out)
{
    memset(out, 0, sizeof(node) * (size_t)count);
    if (!fits(g, outputs, seeds, output_count, inputs, count)) return false;
    graph_site site = g->site;
    const char *label = g->label;
    arena *memory = arena_new();
    int known = g->node_count;
    node *order = ARENA_ARRAY(memory, node, known);
    int order_count = graph_order(g, outputs, output_count, order);
    gradient s = {.g = g,
                  .origin = site.origin,
                  .memory = memory,
                  .needed = ARENA_ARRAY(memory, bool, known),
                  .arrivals = ARENA_ARRAY(memory, arrival *, known),
                  .of_results = ARENA_ARRAY(memory, node *, known),
                  .again = recompute_new(g, order, order_count, memory)};
    for (int i = 0; i < count; i++) s.needed[inputs[i]] = true;
    for (int i = 0; i < order_count; i++) {
        const graph_node *n = &g->nodes[order[i]];
        if (n->code == GRAPH_DETACH || (n->code != GRAPH_KERNEL && !dtype_is_float(n->elem))) continue;
        for (int k = 0; k < n->input_count; k++) s.needed[order[i]] |= s.needed[n->inputs[k]];
    }
    for (int i = 0; i < output_count; i++) give(&s, outputs[i], seeds[i]);
    for (int i = order_count - 1; i >= 0 && !g->status; i--)
        if (s.needed[order[i]]) step(&s, order[i]);
    g->site = site;
    g->label = label;
    for (int i = 0; i < count && !g->status; i++) {
        out[i] = arrived(&s, inputs[i]);
        if (!out[i]) out[i] = grad_number(g, inputs[i], 0);
    }
    if (g->status) memset(out, 0, sizeof(node) * (size_t)count);
    arena_free(memory);
    return !g->status;
}

bool graph_gradient(graph *g, node loss, const node *inputs, int count, node *out)
{
    if (loss && shape_count(&g->nodes[loss].shape) != 1) {
        graph_fail(g, "grad", "the loss has the shape %s, not one element: reduce it, or say what arrives at each",
                   WORDS(loss));
        loss = 0;
    }
    node seed = loss && dtype_is_float(g->nodes[loss].elem) ? grad_number(g, loss, 1) : loss;
    return graph_gradient_from(g, &loss, &seed, 1, inputs, count, out);
}
