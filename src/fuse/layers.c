/*
 * Which products are layers of a stack. In: the graph. Out: stacks, each with its layers, what they read and what they
 * leave in memory, where one kernel is estimated to take less time than one for each layer.
 *
 * A product's rows may come from another product through arithmetic on single elements: then the two are linked. Everything
 * that a stack reads is older than its first product, or in memory before: so no two kernels ever wait for each other.
 * SPDX-License-Identifier: MIT
 */
#include "fuse/layers.h"
#include "fuse/cost.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum {
    MOST_MATRIX = 1 << 19,         /* elements of a layer's matrix, which every cluster reads from the L2 */
    LEAST_LAYERS = 3,              /* two gained nothing beside other kernels (H200, the talk's small network) */
    MOST_VISITS = 16 * LAYER_NODES /* of one search: what is read twice is looked at twice, and again below it */
};

struct layer_search {
    graph *g;
    const fuse_leaf *leaves;
    const bool *reached;
    const fuse_options *options;
    arena *memory;
    bool *kept;   /* by node: in memory in the end, or before */
    node **users; /* by node: what reads it */
    int *user_count;
    layer_stack **of; /* by node: the stack that leaves it in memory */
};

static const graph_node *get(const layer_search *s, node n)
{
    return graph_get(s->g, n);
}

static bool is_float(const graph_node *x)
{
    return x->elem == DT_F32;
}

static bool is_row_major(const layer_search *s, node n)
{
    const graph_node *x = get(s, n);
    return s->leaves[n].given && strides_are_row_major(x->shape.rank, x->shape.extents, s->leaves[n].strides);
}

/* A product of rows with a matrix that lies in memory, small enough that its clusters read it over and over. */
static bool is_layer(const layer_search *s, node n)
{
    const graph_node *x = get(s, n);
    if (x->code != GRAPH_DOT || s->leaves[n].given || x->input_count != 2 || x->shape.rank != 2) return false;
    const graph_node *matrix = get(s, x->inputs[1]);
    int64_t depth = matrix->shape.extents[0], columns = matrix->shape.extents[1];
    return is_float(x) && is_float(matrix) && is_float(get(s, x->inputs[0])) && is_row_major(s, x->inputs[1]) &&
           x->shape.extents[0] > 1 && depth > 1 && columns > 0 && depth <= LAYER_DEPTH && columns <= LAYER_DEPTH &&
           depth * columns <= MOST_MATRIX;
}

/* ---- the arithmetic of a layer ---- */

typedef struct search {
    layer_search *s;
    single_layer *layer;
    int visits;
    bool good;
} search;

/* Through what repeats and renames: the array that an operand reads, and by what. */
static bool find_operand(const layer_search *s, node n, int64_t rows, int64_t columns, layer_operand *out)
{
    const graph_node *x = get(s, n);
    *out = (layer_operand){.n = n, .array = n, .kind = LAYER_PLACE};
    if (x->code == GRAPH_FULL) {
        out->kind = LAYER_NUMBER;
        return isfinite(x->attr.number.f);
    }
    if (x->code == GRAPH_EXPAND && !s->leaves[n].given) {
        node from = x->inputs[0];
        const shape *narrow = &get(s, from)->shape;
        if (x->shape.rank != 2 || x->shape.extents[1] != columns || x->shape.extents[0] != rows) return false;
        bool by_row = narrow->extents[0] == rows && rows > 1, by_column = narrow->extents[1] == columns && columns > 1;
        out->kind = by_row && by_column ? LAYER_PLACE : by_row ? LAYER_ROW : by_column ? LAYER_COLUMN : LAYER_SCALAR;
        while (get(s, from)->code == GRAPH_RESHAPE && !s->leaves[from].given) from = get(s, from)->inputs[0];
        out->array = from;
        if (get(s, from)->code == GRAPH_FULL) out->kind = LAYER_NUMBER;
    }
    return shape_count(&x->shape) == rows * columns;
}

static bool layer_has(const single_layer *l, node n)
{
    if (n == l->dot) return true;
    for (int i = 0; i < l->node_count; i++)
        if (l->nodes[i] == n) return true;
    return false;
}

/* Does the value of n come from a layer's product, through arithmetic? Then that is in w->layer; else n is an operand, which
 * whoever reads it takes. */
static bool collect(search *w, node n, int64_t rows, int64_t columns)
{
    layer_search *s = w->s;
    single_layer *l = w->layer;
    const graph_node *x = get(s, n);
    if (layer_has(l, n)) return true;
    if (!w->good || ++w->visits > MOST_VISITS) {
        w->good = false;
        return false;
    }
    if (s->leaves[n].given || !is_float(x) || shape_count(&x->shape) != rows * columns) return false;
    if (!l->dot && is_layer(s, n) && x->shape.extents[0] == rows) {
        l->dot = n;
        return true;
    }
    bool maps = x->code == GRAPH_MAP && layers_write(x->attr.map) && x->input_count <= 3;
    if ((!maps && x->code != GRAPH_RESHAPE) || l->node_count == LAYER_NODES) return false;
    bool from[3] = {0}, any = false;
    for (int i = 0; i < x->input_count; i++) any |= from[i] = collect(w, x->inputs[i], rows, columns);
    if (!any) return false;
    for (int i = 0; i < x->input_count; i++) {
        layer_operand operand;
        bool known = from[i];
        for (int k = 0; k < l->operand_count && !known; k++) known = l->operands[k].n == x->inputs[i];
        if (known) continue;
        if (!is_float(get(s, x->inputs[i])) || !find_operand(s, x->inputs[i], rows, columns, &operand) ||
            l->operand_count == LAYER_NODES) {
            w->good = false;
            return false;
        }
        l->operands[l->operand_count++] = operand;
    }
    if (l->node_count == LAYER_NODES) {
        w->good = false;
        return false;
    }
    l->nodes[l->node_count++] = n;
    return true;
}

static int by_age(const void *a, const void *b)
{
    node x = *(const node *)a, y = *(const node *)b;
    return (x > y) - (x < y);
}

/* The layer whose result n is; false: n is none. */
static bool layer_of(layer_search *s, node n, single_layer *out)
{
    const graph_node *x = get(s, n);
    *out = (single_layer){.result = n};
    if (!is_float(x) || x->shape.rank < 1) return false;
    int64_t rows = x->shape.extents[0], columns = rows ? shape_count(&x->shape) / rows : 0;
    search w = {.s = s, .layer = out, .good = true};
    if (!columns || !collect(&w, n, rows, columns) || !w.good || !out->dot) return false;
    qsort(out->nodes, (size_t)out->node_count, sizeof(node), by_age);
    const graph_node *dot = get(s, out->dot);
    out->matrix = dot->inputs[1];
    out->columns = columns;
    out->depth = get(s, out->matrix)->shape.extents[0];
    return dot->shape.extents[1] == columns;
}

/* ---- stacks ---- */

static bool is_older(const layer_search *s, node n, node first)
{
    return n < first || s->leaves[n].given || get(s, n)->code == GRAPH_FULL;
}

static int array_count(const layer_stack *c)
{
    int count = 1;
    for (int i = 0; i < c->layer_count; i++) count += 1 + c->layers[i].operand_count;
    return count;
}

static bool reads_only_older(const layer_search *s, const single_layer *l, node first)
{
    for (int i = 0; i < l->operand_count; i++)
        if (!is_older(s, l->operands[i].array, first)) return false;
    return true;
}

static bool stack_has(const layer_stack *c, node n)
{
    for (int i = 0; i < c->layer_count; i++)
        if (layer_has(&c->layers[i], n)) return true;
    return false;
}

/* What somebody outside reads; false: too much. */
static bool find_outputs(const layer_search *s, layer_stack *c)
{
    c->output_count = 0;
    for (int i = 0; i < c->layer_count; i++) {
        const single_layer *l = &c->layers[i];
        for (int k = -1; k < l->node_count; k++) {
            node n = k < 0 ? l->dot : l->nodes[k];
            bool outside = s->kept[n];
            for (int u = 0; u < s->user_count[n] && !outside; u++) outside = !stack_has(c, s->users[n][u]);
            if (!outside) continue;
            if (c->output_count == LAYER_OUTPUTS) return false;
            c->outputs[c->output_count++] = n;
        }
    }
    return c->output_count > 0;
}

/* Arithmetic after the last product, as long as nothing else reads what comes before it. */
static void extend(layer_search *s, layer_stack *c)
{
    single_layer *last = &c->layers[c->layer_count - 1];
    for (;;) {
        node at = last->result;
        if (s->kept[at] || s->user_count[at] != 1) return;
        single_layer longer;
        if (!layer_of(s, s->users[at][0], &longer) || longer.dot != last->dot ||
            !reads_only_older(s, &longer, c->layers[0].dot) || array_count(c) + LAYER_NODES > LAYER_ARRAYS)
            return;
        *last = longer;
    }
}

/* What the stack takes, and its layers one by one. A cluster's blocks share the matrix; clusters beyond those that run at once
 * wait. (H200, batch 128: seven layers of 13-512-256-64-16 and 367-512-256-1 take 32 us as kernels, 24 us as two stacks.) */
static void estimate(const layer_search *s, layer_stack *c)
{
    const double l2_bytes_ns = 60;  /* of one of two blocks of a multiprocessor */
    const double layer_ns = 2000;   /* a barrier, sums, the first of a matrix */
    const double latency_ns = 1600; /* of a product in a row of kernels, beside what it is estimated to take */
    int64_t clusters = (c->row_count + LAYER_ROWS - 1) / LAYER_ROWS;
    int64_t at_once = MAXIMUM((int64_t)s->options->units * 2 / LAYER_BLOCKS, 1);
    double waves = (double)((clusters + at_once - 1) / at_once), bytes = 0;
    c->time_ns = c->apart_ns = 0;
    for (int i = 0; i < c->layer_count; i++) {
        const single_layer *l = &c->layers[i];
        double matrix = 4.0 * (double)(l->depth * l->columns);
        double rows = 4.0 * (double)(c->row_count * (l->depth + l->columns));
        c->time_ns += waves * (layer_ns + matrix / LAYER_BLOCKS / l2_bytes_ns);
        c->apart_ns += cost_of_product(s->g, s->options, &l->dot, 1, matrix + rows).time_ns + latency_ns;
        bytes += matrix;
    }
    c->time_ns += cost_of_bytes(s->options, bytes, 0, 1).time_ns;
}

/* A stack that begins with this product: as long as it goes. */
static bool find_stack(layer_search *s, const node *next, const single_layer *before, node first, layer_stack *c)
{
    *c = (layer_stack){.rows = get(s, first)->inputs[0], .row_count = get(s, first)->shape.extents[0]};
    bool ends = false;
    for (node dot = first; dot && !ends && c->layer_count < LAYERS_MOST; dot = next[dot]) {
        single_layer *l = &c->layers[c->layer_count];
        int arrays = array_count(c);
        if (next[dot])
            *l = before[next[dot]];
        else
            layer_of(s, dot, l);
        ends = !next[dot];
        if (!reads_only_older(s, l, first)) ends = layer_of(s, dot, l); /* the product alone, and it ends there */
        c->layer_count++;
        if (arrays + 1 + l->operand_count <= LAYER_ARRAYS - LAYER_NODES && find_outputs(s, c)) continue;
        c->layer_count -= c->layer_count > 1;
        break;
    }
    if (c->layer_count < LEAST_LAYERS) return false;
    extend(s, c);
    estimate(s, c);
    return find_outputs(s, c) && c->time_ns < c->apart_ns;
}

layer_search *layers_find(graph *g, const fuse_leaf *leaves, const bool *reached, const node *roots, int root_count,
                          const fuse_options *options, arena *memory)
{
    if (!options->cuda_text || options->arch < 90 || options->mode != FUSE_FUSED || options->check_indices) return NULL;
    int count = g->node_count;
    layer_search *s = ARENA_NEW(memory, layer_search);
    *s = (layer_search){.g = g, .leaves = leaves, .reached = reached, .options = options, .memory = memory};
    s->kept = ARENA_ARRAY(memory, bool, count);
    s->users = ARENA_ARRAY(memory, node *, count);
    s->user_count = ARENA_ARRAY(memory, int, count);
    s->of = ARENA_ARRAY(memory, layer_stack *, count);
    int *capacity = ARENA_ARRAY(memory, int, count);
    bool any = false;
    for (node n = 1; (int)n < count; n++) {
        s->kept[n] = leaves[n].given;
        if (!reached[n] || leaves[n].given) continue;
        for (int i = 0; i < graph_get(g, n)->input_count; i++) {
            node from = graph_get(g, n)->inputs[i];
            ARENA_PUSH(memory, s->users[from], s->user_count[from], capacity[from], n);
        }
    }
    for (int i = 0; i < root_count; i++) s->kept[roots[i]] = true;
    node *next = ARENA_ARRAY(memory, node, count); /* by product: the one that goes on with its rows */
    bool *follows = ARENA_ARRAY(memory, bool, count);
    single_layer *before = NULL; /* by product: the layer before it */
    for (node n = 1; (int)n < count; n++) {
        single_layer l;
        if (!reached[n] || !is_layer(s, n) || !layer_of(s, get(s, n)->inputs[0], &l) || next[l.dot]) continue;
        if (!before) before = ARENA_ARRAY(memory, single_layer, count);
        before[n] = l;
        next[l.dot] = n;
        follows[n] = any = true;
    }
    if (!any) return NULL;
    any = false;
    for (node n = 1; (int)n < count; n++) {
        if (!next[n] || follows[n]) continue;
        for (node first = n; first;) { /* what is too long for one is two */
            layer_stack *c = ARENA_NEW(memory, layer_stack);
            bool good = find_stack(s, next, before, first, c);
            node last = c->layers[c->layer_count - 1].dot;
            first = next[last];
            if (!good) continue;
            any = true;
            for (int i = 0; i < c->output_count; i++) s->of[c->outputs[i]] = c;
        }
    }
    return any ? s : NULL;
}

/* ---- the call ---- */

node layers_make(layer_search *all, node n, layers_prepared *prepared, void *context)
{
    layer_stack *c = all->of[n];
    graph *g = all->g;
    if (!c) return 0;
    if (!c->call) {
        const char *name = "layers";
        node arrays[LAYER_ARRAYS];
        int count = 0;
        graph_kernel *k = ARENA_NEW(g->memory, graph_kernel);
        *k = (graph_kernel){.name = name, .output_count = c->output_count};
        k->source = layers_source(g->memory, g, c, name, arrays, &count);
        k->identity = hash_bytes(k->source, strlen(k->source)).low;
        k->note = arena_print(g->memory, "%d layers, whose rows stay in a cluster: %.1f us; one by one %.1f us",
                              c->layer_count, c->time_ns / 1000, c->apart_ns / 1000);
        for (int i = 0; i < c->output_count; i++) {
            k->output_elem[i] = DT_F32;
            k->output_shape[i] = graph_get(g, c->outputs[i])->shape;
        }
        int room = 0;
        for (int i = 0; i < c->layer_count; i++) {
            const single_layer *l = &c->layers[i];
            ARENA_PUSH(g->memory, k->stands_for, k->stands_count, room, l->dot);
            for (int m = 0; m < l->node_count; m++)
                ARENA_PUSH(g->memory, k->stands_for, k->stands_count, room, l->nodes[m]);
        }
        graph_site site = g->site;
        const char *label = g->label;
        for (int i = 0; i < count; i++) arrays[i] = prepared(context, arrays[i]);
        g->site = site;
        g->label = label;
        node *inputs = ARENA_ARRAY(g->memory, node, count);
        memcpy(inputs, arrays, sizeof(node) * (size_t)count);
        c->call = graph_kernel_call(g, k, inputs, count);
    }
    for (int i = 0; i < c->output_count; i++)
        if (c->outputs[i] == n) return graph_result(g, c->call, i);
    return 0;
}
