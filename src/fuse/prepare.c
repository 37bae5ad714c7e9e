/*
 * What happens to a graph before its ops are grouped. In: the graph and what is wanted. Out: for each node what computes
 * it: products of products through a softmax become loops (scores.c), layers of small perceptrons one kernel (layers.c),
 * products that are added up become one (dot_sum.c),
 * additions by index get the order of their indices, thin products become sums, reductions of nothing and tensors without
 * elements become constants, and what stands alone gets copies of inputs that it cannot take where they lie.
 * Wanted nodes keep their names: what a node was prepared into is renamed in the finished plan.
 * SPDX-License-Identifier: MIT
 */
#include "fuse/layers.h"
#include "fuse/dot_sum.h"
#include "fuse/order.h"
#include "fuse/plan.h"
#include "fuse/scores.h"
#include "fuse/sizes.h"

#include <string.h>

#define CONCAT_MOST 8        /* parts that one kernel puts together: it has so many parameters ... */
#define CONCAT_PARAMETERS 48 /* ... each has one and its extents */

/* Parts of parts. */
static node concat_tree(graph *g, node n)
{
    const graph_node x = *graph_get(g, n);
    int most = MINIMUM(CONCAT_MOST, CONCAT_PARAMETERS / (1 + x.shape.rank));
    if (x.input_count <= most) return n;
    node parts[CONCAT_MOST];
    int count = 0, each = (x.input_count + most - 1) / most;
    for (int first = 0; first < x.input_count; first += each) {
        node part = graph_concat(g, x.inputs + first, MINIMUM(each, x.input_count - first), x.attr.axis);
        parts[count++] = part && graph_get(g, part)->code == GRAPH_CONCAT ? concat_tree(g, part) : part;
    }
    return graph_concat(g, parts, count, x.attr.axis);
}

#define WINDOW_APART FUSE_SIZE(32) /* elements of a window of two axes from which on it is folded axis by axis */

/* A fold of windows over two axes at once reads each row of a window for itself, neighbours a stride apart. A large one is
 * folded down the first axis, along memory, and what that leaves along the second. */
static node windows_apart(graph *g, node n)
{
    const graph_node x = *graph_get(g, n), second = *graph_get(g, x.inputs[0]);
    if (second.code != GRAPH_WINDOW) return n;
    const graph_node first = *graph_get(g, second.inputs[0]);
    int rank = second.shape.rank;
    if (first.code != GRAPH_WINDOW || x.attr.axis_set != 3u << (rank - 2) || x.attr.fold > FOLD_MIN) return n;
    if (first.attr.size * second.attr.size < WINDOW_APART || first.attr.axis >= second.attr.axis) return n;
    node down = graph_reduce(g, x.attr.fold, second.inputs[0], 1u << (rank - 2));
    shape rows = first.shape;
    rows.rank--;
    down = graph_same(g, GRAPH_KEEP, graph_reshape(g, down, &rows), 5000);
    node along = graph_window(g, down, second.attr.axis, second.attr.size, second.attr.stride, second.attr.dilation);
    return graph_reshape(g, graph_reduce(g, x.attr.fold, along, 1u << (rank - 2)), &x.shape);
}

static node prepare_node(graph *g, node n, const fuse_options *options)
{
    const graph_node *x = graph_get(g, n);
    bool is_call = graph_ops[x->code].class == GRAPH_CLASS_CALL;
    if (!is_call && !shape_count(&x->shape)) return graph_full(g, x->elem, &x->shape, (number){0});
    if (x->code == GRAPH_TAKE_ADD || x->code == GRAPH_GATHER_ADD) return fuse_scatter_prepare(g, n, options);
    bool parts = options->mode != FUSE_EAGER;
    if (x->code == GRAPH_CONCAT) {
        n = parts ? fuse_parts_prepare(g, n) : n;
        return n && graph_get(g, n)->code == GRAPH_CONCAT ? concat_tree(g, n) : n;
    }
    if (x->code == GRAPH_DOT) return fuse_dot_prepare(g, options->gpu ? fuse_dot_round(g, n) : n, options);
    if (x->code == GRAPH_ARGSORT && options->cuda_text) return fuse_sort_prepare(g, n, options, NULL);
    if (x->code == GRAPH_ARGSORT && options->c_text) return fuse_sort_c(g, n);
    if (x->code == GRAPH_REDUCE && !shape_count(&graph_get(g, x->inputs[0])->shape) && shape_count(&x->shape))
        return graph_full(g, x->elem, &x->shape, fold_identity(x->attr.fold, x->elem));
    bool ordered = x->code == GRAPH_REDUCE && options->mode != FUSE_FUSED && x->attr.fold <= FOLD_PROD;
    if (x->code == GRAPH_REDUCE && parts && !ordered) {
        node apart = windows_apart(g, n);
        if (apart != n) return apart;
    }
    if (x->code == GRAPH_REDUCE && parts) return fuse_parts_prepare(g, n);
    return n;
}

void plan_reach(const graph *g, const fuse_leaf *leaves, int leaf_count, const node *roots, int root_count,
                bool *reached)
{
    node newest = 0;
    for (int i = 0; i < root_count; i++) {
        reached[roots[i]] = true;
        newest = MAXIMUM(newest, roots[i]);
    }
    for (node n = newest; n > 0; n--) {
        if (!reached[n] || ((int)n < leaf_count && leaves[n].given)) continue;
        for (int i = 0; i < graph_get(g, n)->input_count; i++) reached[graph_get(g, n)->inputs[i]] = true;
    }
}

/* Rows of memory on a GPU, and enough of them that each goes to a block. */
static bool scans_rows(const graph *g, const fuse_options *options, node n)
{
    const int64_t FEW_ROWS = FUSE_SIZE(64), LONG_ROW = FUSE_SIZE(8192);
    const graph_node *x = graph_get(g, n);
    int64_t length = x->shape.extents[x->attr.axis], rows = shape_count(&x->shape) / MAXIMUM(length, 1);
    for (int k = x->attr.axis + 1; k < x->shape.rank; k++)
        if (x->shape.extents[k] != 1) return false;
    return options->gpu && options->mode == FUSE_FUSED && length > 1 && (rows > FEW_ROWS || length < LONG_ROW);
}

bool plan_is_alone(const graph *g, const fuse_options *options, node n)
{
    graph_code code = graph_get(g, n)->code;
    if (code == GRAPH_SCAN) return !scans_rows(g, options, n);
    return code == GRAPH_ARGSORT || code == GRAPH_TAKE_ADD || code == GRAPH_GATHER_ADD || code == GRAPH_RUN_SUM ||
           code == GRAPH_KERNEL;
}

/* What is given with strides, as kernels in CUDA or C read it: a copy in order. */
static node in_order(graph *g, const fuse_leaf *leaves, int leaf_count, const fuse_options *options, node n)
{
    const shape *s = &graph_get(g, n)->shape;
    if ((!options->cuda_text && !options->c_text) || (int)n >= leaf_count || !leaves[n].given) return n;
    return strides_are_row_major(s->rank, s->extents, leaves[n].strides) ? n : graph_same(g, GRAPH_KEEP, n, 3000);
}

typedef struct preparing {
    graph *g;
    const fuse_leaf *leaves;
    const fuse_options *options;
    const bool *reached;
    arena *memory;
    score_loops *loops;   /* NULL: none */
    layer_search *layers; /* NULL: none */
    sum_search sums;
    preparation p;
} preparing;

/* The first positions of a sort; 0: n is something else, or more is wanted than a selection finds. positions, values: as
 * fuse_select_prepare has them. */
static node first_of_sort(preparing *w, const graph_node *x, bool positions, node *values)
{
    if (x->code != GRAPH_SLICE) return 0;
    graph *g = w->g;
    const graph_node sort = *graph_get(g, x->inputs[0]);
    if (sort.code != GRAPH_ARGSORT) return 0;
    for (int k = 0; k < x->shape.rank; k++)
        if (x->attr.start[k] || x->attr.step[k] != 1 ||
            (k != sort.attr.axis && x->shape.extents[k] != sort.shape.extents[k]))
            return 0;
    node keys = in_order(g, w->leaves, w->p.old_count, w->options, w->p.now[sort.inputs[0]]);
    int axis = sort.attr.axis;
    int64_t count = x->shape.extents[axis];
    if (w->options->cuda_text) return fuse_select_prepare(g, keys, axis, sort.attr.index, count, positions, values);
    return fuse_select_c(g, keys, axis, sort.attr.index, count);
}

/* Does m look up, at the positions n that begin a sort, what was sorted? */
static bool takes_first(const graph *g, node m, node n)
{
    const graph_node *x = graph_get(g, m), *first = graph_get(g, n);
    if (x->code != GRAPH_GATHER || x->inputs[1] != n || first->code != GRAPH_SLICE) return false;
    const graph_node *sort = graph_get(g, first->inputs[0]);
    return sort->code == GRAPH_ARGSORT && sort->inputs[0] == x->inputs[0] && sort->attr.axis == x->attr.axis;
}

/* Positions that begin a sort, or the elements there: of one selection, which is asked for what is wanted of both. */
static node selected(preparing *w, node n)
{
    graph *g = w->g;
    const graph_node x = *graph_get(g, n);
    bool looks_up = x.code == GRAPH_GATHER && takes_first(g, n, x.inputs[1]);
    if (!shape_count(&x.shape) || (x.code != GRAPH_SLICE && !looks_up)) return 0;
    node slice = looks_up ? x.inputs[1] : n, elements = 0;
    bool positions = w->sums.kept[slice], values = false;
    for (node m = slice + 1; (int)m < w->p.old_count; m++) {
        if (!w->reached[m] || w->leaves[m].given) continue;
        bool takes = takes_first(g, m, slice);
        values |= takes;
        for (int i = 0; i < graph_get(g, m)->input_count && !takes; i++)
            positions |= graph_get(g, m)->inputs[i] == slice;
    }
    const graph_node first = *graph_get(g, slice);
    node places = first_of_sort(w, &first, positions, values ? &elements : NULL);
    return looks_up ? elements : places;
}

/* What stands alone reads a view with one stride before its axis, one along it and one after it: else a copy. */
static node suited(graph *g, const fuse_leaf *leaves, int leaf_count, const fuse_options *options, node n, int input,
                   node now)
{
    const graph_node *x = graph_get(g, n);
    if (!plan_is_alone(g, options, n) || x->code == GRAPH_KERNEL || (int)now >= leaf_count || !leaves[now].given)
        return now;
    fuse_view view = {.base = now, .offset = leaves[now].offset};
    memcpy(view.strides, leaves[now].strides, sizeof(view.strides));
    return fuse_view_suits(g, n, input, &view) ? now : graph_same(g, GRAPH_KEEP, now, 3000);
}

/* How often each node is read, and which have to be there in the end. */
static sum_search search_sums(graph *g, const fuse_leaf *leaves, const bool *reached, const node *roots, int root_count,
                              const fuse_options *options, arena *memory)
{
    int *uses = ARENA_ARRAY(memory, int, g->node_count);
    bool *kept = ARENA_ARRAY(memory, bool, g->node_count);
    for (node n = 1; (int)n < g->node_count; n++) {
        kept[n] = leaves[n].given;
        for (int i = 0; reached[n] && !kept[n] && i < graph_get(g, n)->input_count; i++)
            uses[graph_get(g, n)->inputs[i]]++;
    }
    for (int i = 0; i < root_count; i++) kept[roots[i]] = true;
    return (sum_search){.g = g, .options = options, .uses = uses, .kept = kept};
}

/* What stands for a node. Inputs are prepared before, as they are older; a loop may ask for younger ones. */
static node prepare(void *context, node n)
{
    preparing *w = context;
    graph *g = w->g;
    if (w->p.now[n]) return w->p.now[n];
    const graph_node x = *graph_get(g, n);
    if (w->leaves[n].given) return w->p.now[n] = n;
    g->site = x.site;
    g->label = x.label;
    node made = w->loops ? scores_make(w->loops, n, prepare, w) : 0;
    if (!made && w->layers) made = layers_make(w->layers, n, prepare, w);
    if (made) return w->p.now[n] = made;
    node *inputs = ARENA_ARRAY(w->memory, node, x.input_count + 1);
    bool changed = false;
    for (int i = 0; i < x.input_count; i++) {
        inputs[i] = suited(g, w->leaves, w->p.old_count, w->options, n, i, prepare(w, x.inputs[i]));
        if (x.code == GRAPH_ARGSORT || x.code == GRAPH_TAKE_ADD || x.code == GRAPH_GATHER_ADD)
            inputs[i] = in_order(g, w->leaves, w->p.old_count, w->options, inputs[i]);
        changed |= inputs[i] != x.inputs[i];
    }
    g->site = x.site;
    g->label = x.label;
    bool fused = w->options->gpu && w->options->mode == FUSE_FUSED && shape_count(&x.shape);
    bool text = w->options->cuda_text || w->options->c_text;
    made = text ? selected(w, n) : 0;
    if (!made && fused) made = fuse_sum_prepare(&w->sums, n);
    if (!made) made = prepare_node(g, changed ? graph_again(g, n, inputs) : n, w->options);
    return w->p.now[n] = fuse_channels_prepare(g, w->leaves, w->p.old_count, made, w->options);
}

preparation plan_prepare(graph *g, const fuse_leaf *leaves, const node *roots, int root_count,
                         const fuse_options *options, arena *memory)
{
    preparing w = {.g = g, .leaves = leaves, .options = options, .memory = memory, .p.old_count = g->node_count};
    w.p.now = ARENA_ARRAY(memory, node, g->node_count);
    bool *reached = ARENA_ARRAY(memory, bool, g->node_count);
    plan_reach(g, leaves, g->node_count, roots, root_count, reached);
    w.reached = reached;
    w.loops = scores_find(g, leaves, reached, roots, root_count, options, memory);
    w.layers = layers_find(g, leaves, reached, roots, root_count, options, memory);
    w.sums = search_sums(g, leaves, reached, roots, root_count, options, memory);
    w.sums.now = w.p.now;
    for (node n = 1; (int)n < w.p.old_count; n++)
        if (reached[n]) (void)prepare(&w, n);
    g->site = (graph_site){0};
    g->label = NULL;
    return w.p;
}

/* Roots that were prepared into something that is no op of their own: another root, a leaf. */
void plan_part_roots(graph *g, preparation *p, const fuse_leaf *leaves, const node *roots, int root_count)
{
    for (int i = 0; i < root_count; i++) {
        node n = roots[i], now = p->now[n];
        if (now == n) continue;
        bool taken = (int)now < p->old_count && (leaves[now].given || p->now[now] == now);
        for (int k = 0; k < i && !taken; k++) taken = roots[k] != n && p->now[roots[k]] == now;
        if (taken) p->now[n] = graph_same(g, GRAPH_KEEP, now, 1000 + i);
    }
}

void plan_rename(planner *p, fuse_plan *plan, const preparation *prepared, const node *roots, int root_count)
{
    node *old = ARENA_ARRAY(p->memory, node, p->node_count);
    bool any = false;
    for (node n = 1; (int)n < p->node_count; n++) old[n] = n;
    for (int i = 0; i < root_count; i++) {
        if (prepared->now[roots[i]] == roots[i]) continue;
        old[prepared->now[roots[i]]] = roots[i];
        any = true;
    }
    for (int i = 0; any && i < plan->kernel_count; i++) {
        fuse_kernel *k = &plan->kernels[i];
        for (int a = 0; a < k->argument_count; a++) k->arguments[a].base = old[k->arguments[a].base];
        node *writes = ARENA_ARRAY(p->memory, node, k->write_count + 1);
        for (int w = 0; w < k->write_count; w++) writes[w] = old[k->writes[w]];
        k->writes = writes;
    }
    for (int i = 0; any && i < plan->boundary_count; i++) plan->boundaries[i].value = old[plan->boundaries[i].value];
}
