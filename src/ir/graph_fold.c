/*
 * Building the tensor graph: reductions, scans, products, access by index, calls of kernels; the order of nodes.
 * In: inputs and attributes. Out: nodes, as graph.c makes them.
 * SPDX-License-Identifier: MIT
 */
#include "ir/graph_build.h"

#include <string.h>

node graph_reduce(graph *g, fold_kind fold, node x, unsigned axis_set)
{
    if (!x) return 0;
    graph_node n = graph_like(g, GRAPH_REDUCE, x, &x, 1);
    bool position = fold == FOLD_ARGMAX || fold == FOLD_ARGMIN, logical = fold == FOLD_ANY || fold == FOLD_ALL;
    if (axis_set >> n.shape.rank)
        return graph_fail(g, fold_names[fold], "an axis is not one of a tensor of shape %s", WORDS(x));
    if (position && __builtin_popcount(axis_set) != 1)
        return graph_fail(g, fold_names[fold], "it goes over one axis, not %d", __builtin_popcount(axis_set));
    if (logical != (n.elem == DT_BOOL))
        return graph_fail(g, fold_names[fold], logical ? "it takes bool, not %s" : "it does not take %s: cast it",
                          dtypes[n.elem].text);
    if (!axis_set) return x;
    for (int k = 0; k < n.shape.rank; k++) {
        if (!(axis_set >> k & 1)) continue;
        if (!n.shape.extents[k] && (position || fold == FOLD_MAX || fold == FOLD_MIN))
            return graph_fail(g, fold_names[fold], "axis %d of %s is empty: there is no %s", k, WORDS(x),
                              fold_names[fold]);
        n.shape.extents[k] = 1;
    }
    if (position) n.elem = DT_I64;
    n.attr.fold = fold;
    n.attr.axis_set = axis_set;
    return graph_intern(g, &n);
}

node graph_scan(graph *g, fold_kind fold, node x, int axis)
{
    if (!x || !graph_axis_fits(g, "scan", x, axis)) return 0;
    graph_node n = graph_like(g, GRAPH_SCAN, x, &x, 1);
    if (n.elem == DT_BOOL) return graph_fail(g, "scan", "it does not take bool: cast it");
    if (fold > FOLD_MIN) return graph_fail(g, "scan", "there is no running %s", fold_names[fold]);
    n.attr.fold = fold;
    n.attr.axis = axis;
    return graph_intern(g, &n);
}

node graph_argsort(graph *g, node x, int axis, bool descending)
{
    if (!x || !graph_axis_fits(g, "argsort", x, axis)) return 0;
    graph_node n = graph_like(g, GRAPH_ARGSORT, x, &x, 1);
    n.elem = DT_I64;
    n.attr.axis = axis;
    n.attr.index = descending;
    return graph_intern(g, &n);
}

const char *const product_way_words[PRODUCT_WAYS] = {"", "tf32", "fma", "terms"};

node graph_dot(graph *g, node a, node b, dtype elem, product_way way)
{
    if (!a || !b) return 0;
    graph_node n = graph_like(g, GRAPH_DOT, a, (node[]){a, b}, 2);
    const shape *left = &g->nodes[a].shape, *right = &g->nodes[b].shape;
    int rank = left->rank;
    bool fits = rank >= 2 && rank == right->rank && left->extents[rank - 1] == right->extents[rank - 2];
    for (int k = 0; k < rank - 2 && fits; k++) fits = left->extents[k] == right->extents[k];
    if (!fits) return graph_fail(g, "dot", "%s and %s do not multiply as matrices", WORDS(a), WORDS(b));
    if (g->nodes[a].elem != g->nodes[b].elem)
        return graph_fail(g, "dot", "types %s and %s differ: cast one", dtypes[g->nodes[a].elem].text,
                          dtypes[g->nodes[b].elem].text);
    dtype from = g->nodes[a].elem;
    bool half = dtype_is_narrow(from), byte = from == DT_I8 || from == DT_U8;
    if (!dtype_is_float(from) && !byte) return graph_fail(g, "dot", "it does not take %s: cast it", dtypes[from].text);
    if (byte ? elem != DT_I32 : elem != from && !(half && elem == DT_F32))
        return graph_fail(g, "dot", "products of %s do not give %s", dtypes[from].text, dtypes[elem].text);
    n.elem = elem;
    n.shape.extents[rank - 1] = right->extents[rank - 1];
    n.attr.index = from == DT_F32 || (half && way == PRODUCT_TERMS) ? (int)way : PRODUCT_ANY;
    return graph_intern(g, &n);
}

int64_t graph_dot_depth(const graph *g, const graph_node *dot)
{
    int64_t depth = 0;
    for (int i = 0; i < dot->input_count; i += 2) {
        const shape *left = &graph_get(g, dot->inputs[i])->shape;
        depth += left->extents[left->rank - 1];
    }
    return depth;
}

static bool is_index(graph *g, const char *op, node index)
{
    if (dtype_is_integer(g->nodes[index].elem)) return true;
    graph_fail(g, op, "the index is %s: it must be an integer", dtypes[g->nodes[index].elem].text);
    return false;
}

static bool take_shape(graph *g, const char *op, node x, node index, int axis, shape *out)
{
    const shape *from = &g->nodes[x].shape, *places = &g->nodes[index].shape;
    if (from->rank - 1 + places->rank > GRAPH_RANK) {
        graph_fail(g, op, "%s by %s has more than %d axes", WORDS(x), WORDS(index), GRAPH_RANK);
        return false;
    }
    out->rank = 0;
    for (int k = 0; k < axis; k++) out->extents[out->rank++] = from->extents[k];
    for (int k = 0; k < places->rank; k++) out->extents[out->rank++] = places->extents[k];
    for (int k = axis + 1; k < from->rank; k++) out->extents[out->rank++] = from->extents[k];
    return graph_shape_fits(g, op, out);
}

node graph_take(graph *g, node x, node index, int axis)
{
    if (!x || !index || !graph_axis_fits(g, "take", x, axis) || !is_index(g, "take", index)) return 0;
    graph_node n = graph_like(g, GRAPH_TAKE, x, (node[]){x, index}, 2);
    shape s = {0};
    if (!take_shape(g, "take", x, index, axis, &s)) return 0;
    n.shape = s;
    n.attr.axis = axis;
    return graph_intern(g, &n);
}

/* index and x agree on every axis but one. */
static bool gathers(graph *g, const char *op, node x, node index, int axis)
{
    const shape *from = &g->nodes[x].shape, *places = &g->nodes[index].shape;
    bool fits = from->rank == places->rank;
    for (int k = 0; k < from->rank && fits; k++) fits = k == axis || from->extents[k] == places->extents[k];
    if (!fits) graph_fail(g, op, "%s and the index %s differ outside axis %d", WORDS(x), WORDS(index), axis);
    return fits;
}

node graph_gather(graph *g, node x, node index, int axis)
{
    if (!x || !index || !graph_axis_fits(g, "gather", x, axis) || !is_index(g, "gather", index)) return 0;
    if (!gathers(g, "gather", x, index, axis)) return 0;
    graph_node n = graph_like(g, GRAPH_GATHER, x, (node[]){x, index}, 2);
    n.shape = g->nodes[index].shape;
    n.attr.axis = axis;
    return graph_intern(g, &n);
}

static node scatter(graph *g, graph_code code, node base, node index, node updates, int axis)
{
    const char *op = graph_ops[code].text;
    if (!base || !index || !updates || !graph_axis_fits(g, op, base, axis) || !is_index(g, op, index)) return 0;
    shape wanted = g->nodes[index].shape;
    if (code == GRAPH_TAKE_ADD ? !take_shape(g, op, base, index, axis, &wanted) : !gathers(g, op, base, index, axis))
        return 0;
    if (!shape_same(&wanted, &g->nodes[updates].shape) || g->nodes[updates].elem != g->nodes[base].elem)
        return graph_fail(g, op, "the updates are %s %s, they should be %s %s", dtypes[g->nodes[updates].elem].text,
                          WORDS(updates), dtypes[g->nodes[base].elem].text, graph_shape_words(g, &wanted));
    graph_node n = graph_like(g, code, base, (node[]){base, index, updates}, 3);
    n.attr.axis = axis;
    return graph_intern(g, &n);
}

node graph_take_add(graph *g, node base, node index, node updates, int axis)
{
    return scatter(g, GRAPH_TAKE_ADD, base, index, updates, axis);
}

node graph_take_add_firsts(graph *g, node base, node index, node updates)
{
    node n = scatter(g, GRAPH_TAKE_ADD, base, index, updates, 0);
    if (!n) return 0;
    CHECK(g->nodes[index].shape.rank == 1);
    graph_node firsts = g->nodes[n];
    firsts.attr.index = 1;
    return graph_intern(g, &firsts);
}

node graph_short_index(graph *g, node index, int64_t limit)
{
    if (!index || dtypes[g->nodes[index].elem].size_bytes <= 4 || limit >= INT32_MAX) return index;
    shape s = g->nodes[index].shape;
    dtype elem = g->nodes[index].elem;
    node zero = graph_full(g, elem, &s, (number){.i = 0}), end = graph_full(g, elem, &s, (number){.i = limit});
    node inside = graph_binary(g, OP_AND, graph_binary(g, OP_GE, index, zero), graph_binary(g, OP_LT, index, end));
    return graph_convert(g, graph_select(g, inside, index, end), DT_I32);
}

node graph_run_sum(graph *g, node index, node updates, node order)
{
    if (!index || !updates || !order || !is_index(g, "run_sum", index) || !is_index(g, "run_sum", order)) return 0;
    const shape *s = &g->nodes[updates].shape, *places = &g->nodes[index].shape;
    if (places->rank != 1 || !shape_same(places, &g->nodes[order].shape) || !s->rank ||
        s->extents[0] != places->extents[0])
        return graph_fail(g, "run_sum", "the index %s, the order %s and the rows %s do not go together", WORDS(index),
                          WORDS(order), WORDS(updates));
    graph_node n = graph_like(g, GRAPH_RUN_SUM, updates, (node[]){index, updates, order}, 3);
    return graph_intern(g, &n);
}

node graph_gather_add(graph *g, node base, node index, node updates, int axis)
{
    return scatter(g, GRAPH_GATHER_ADD, base, index, updates, axis);
}

node graph_kernel_call(graph *g, const graph_kernel *k, const node *inputs, int count)
{
    if (!graph_given(inputs, count)) return 0;
    graph_node n = {.code = GRAPH_KERNEL, .inputs = inputs, .input_count = count, .attr.kernel = k};
    return graph_intern(g, &n);
}

node graph_result(graph *g, node call, int index)
{
    if (!call) return 0;
    const graph_kernel *k = g->nodes[call].attr.kernel;
    CHECK(g->nodes[call].code == GRAPH_KERNEL && index >= 0 && index < k->output_count);
    graph_node n = {.code = GRAPH_RESULT,
                    .elem = k->output_elem[index],
                    .shape = k->output_shape[index],
                    .inputs = &call,
                    .input_count = 1,
                    .attr.index = index};
    return graph_intern(g, &n);
}

node graph_again(graph *g, node n, const node *inputs)
{
    graph_node copy = g->nodes[n];
    if (!graph_given(inputs, copy.input_count)) return 0;
    copy.inputs = inputs;
    return graph_intern(g, &copy);
}

int graph_order(const graph *g, const node *roots, int root_count, node *order)
{
    /* Inputs are older than their node: one walk downwards marks, one upwards lists. */
    node newest = 0;
    for (int i = 0; i < root_count; i++) newest = MAXIMUM(newest, roots[i]);
    arena *scratch = arena_new();
    bool *wanted = ARENA_ARRAY(scratch, bool, newest + 1);
    for (int i = 0; i < root_count; i++) wanted[roots[i]] = true;
    for (node n = newest; n > 0; n--)
        for (int i = 0; wanted[n] && i < g->nodes[n].input_count; i++) wanted[g->nodes[n].inputs[i]] = true;
    int count = 0;
    for (node n = 1; n <= newest; n++)
        if (wanted[n]) order[count++] = n;
    arena_free(scratch);
    return count;
}
