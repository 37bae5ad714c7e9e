/*
 * fuse_plan_make. In: a graph, what is in memory, what is wanted. Out: kernels in order.
 *
 * 1. The graph is prepared (prepare.c).
 * 2. Ops are told from what is followed (plan_ops.c), and grouped (group.c).
 * 3. Groups are built in an order in which every value is there before it is read. A group whose kernel cannot be built
 *    after all falls apart into its ops.
 * SPDX-License-Identifier: MIT
 */
#include "fuse/plan.h"
#include "fuse/sizes.h"
#include "fuse/dot.h"

#include "fuse/memory.h"
#include "fuse/order.h"

#include <stdlib.h>
#include <string.h>

int fuse_size_root = 1;

/* ---- cells ---- */

static int by_node(const void *a, const void *b)
{
    node x = *(const node *)a, y = *(const node *)b;
    return x < y ? -1 : x > y;
}

bool cell_lists(const node *list, int count, node n)
{
    return count && bsearch(&n, list, (size_t)count, sizeof(node), by_node) != NULL;
}

static bool is_copy(const cell *c, node n)
{
    for (int i = 0; i < c->copy_count; i++)
        if (c->copies[i] == n) return true;
    return false;
}

/* Some other cell computes u, which reads n, without computing n. */
static bool reads_elsewhere(const planner *p, const cell *c, node u, node n)
{
    if (!p->copying) return !cell_lists(c->g.nodes, c->g.node_count, u);
    const cell *owner = &p->cells[p->cell_of[u]];
    bool here = cell_lists(c->g.nodes, c->g.node_count, u) && !is_copy(c, u);
    if (!here && !owner->dead && !cell_lists(owner->g.nodes, owner->g.node_count, n)) return true;
    for (int i = 0; i < p->copier_count[u]; i++) {
        const cell *other = &p->cells[p->copiers[u][i]];
        if (!other->dead && is_copy(other, u) && !cell_lists(other->g.nodes, other->g.node_count, n)) return true;
    }
    return false;
}

void cells_settle(planner *p)
{
    for (bool changed = true; changed;) {
        changed = false;
        for (int i = 0; i < p->cell_count; i++) {
            cell *c = &p->cells[i];
            if (c->dead) continue;
            cell_settle(p, c);
            c->dead = !c->g.write_count && c->g.kind != GROUP_CALL;
            changed |= c->dead;
        }
    }
}

static int result_index(const planner *p, node n)
{
    return graph_get(p->g, n)->attr.index;
}

void cell_settle(planner *p, cell *c)
{
    group *g = &c->g;
    if (g->node_count) qsort(g->nodes, (size_t)g->node_count, sizeof(node), by_node);
    g->writes = ARENA_ARRAY(p->memory, node, g->node_count + 1);
    g->write_count = c->read_count = 0;
    c->reads = NULL;
    for (int i = 0; i < g->node_count; i++) {
        node n = g->nodes[i];
        bool copy = is_copy(c, n), written = (p->wanted[n] || p->forced[n]) && !copy;
        for (int k = 0; k < p->user_count[n] && !written && !copy; k++)
            written = reads_elsewhere(p, c, p->users[n][k], n);
        if (written && graph_get(p->g, n)->code != GRAPH_KERNEL) g->writes[g->write_count++] = n;
        for (int k = 0; k < p->read_count[n]; k++)
            if (!cell_lists(g->nodes, g->node_count, p->reads[n][k]))
                plan_add_node(p, &c->reads, &c->read_count, p->reads[n][k]);
    }
    if (g->kind == GROUP_CALL) { /* its results in the order of its parameters, whichever was asked for first */
        int count = 0;
        for (node n = p->first_result[g->anchor]; n; n = p->next_result[n]) count++;
        g->writes = ARENA_ARRAY(p->memory, node, count + 1);
        for (node n = p->first_result[g->anchor]; n; n = p->next_result[n]) {
            int at = g->write_count++;
            for (; at > 0 && result_index(p, g->writes[at - 1]) > result_index(p, n); at--)
                g->writes[at] = g->writes[at - 1];
            g->writes[at] = n;
        }
    }
    if (c->read_count) qsort(c->reads, (size_t)c->read_count, sizeof(node), by_node);
    c->stamp = ++p->next_stamp;
}

static group_kind kind_of(graph_code code)
{
    switch (code) {
    case GRAPH_DOT: return GROUP_DOT;
    case GRAPH_SCAN: return GROUP_SCAN;
    case GRAPH_ARGSORT: return GROUP_ARGSORT;
    case GRAPH_RUN_SUM:
    case GRAPH_TAKE_ADD:
    case GRAPH_GATHER_ADD: return GROUP_SCATTER;
    case GRAPH_KERNEL: return GROUP_CALL;
    default: return GROUP_LOOP;
    }
}

static void make_cell(planner *p, node n)
{
    cell c = {.g = {.kind = kind_of(graph_get(p->g, n)->code)}};
    if (c.g.kind == GROUP_SCAN && !plan_is_alone(p->g, p->options, n)) c.g.kind = GROUP_LOOP;
    c.g.anchor = c.g.kind == GROUP_LOOP ? 0 : n;
    c.g.nodes = ARENA_ARRAY(p->memory, node, 1);
    c.g.nodes[0] = n;
    c.g.node_count = 1;
    cell_settle(p, &c);
    p->cell_of[n] = p->cell_count;
    ARENA_PUSH(p->memory, p->cells, p->cell_count, p->cell_capacity, c);
}

/* ---- building ---- */

/* A kernel of ours: arrays in, then results, then scalars, all of which are constants. */
static void build_own(planner *p, const cell *c, arena *memory, fuse_kernel *out)
{
    const graph_node *x = graph_get(p->g, c->g.anchor);
    int arrays = 0;
    while (arrays < x->input_count && out->arguments[arrays].base) arrays++;
    out->scalar_count = x->input_count - arrays;
    out->scalars = ARENA_ARRAY(memory, number, out->scalar_count + 1);
    for (int i = arrays; i < x->input_count; i++) out->scalars[i - arrays] = graph_get(p->g, x->inputs[i])->attr.number;
    fuse_argument *arguments = ARENA_ARRAY(memory, fuse_argument, arrays + c->g.write_count);
    memcpy(arguments, out->arguments, sizeof(*arguments) * (size_t)arrays);
    for (int i = 0; i < c->g.write_count; i++) {
        const shape *s = &graph_get(p->g, c->g.writes[i])->shape;
        fuse_view mine = fuse_view_row_major(p->g, c->g.writes[i]);
        fuse_argument *a = &arguments[arrays + i];
        *a = (fuse_argument){.base = mine.base, .rank = s->rank};
        memcpy(a->extents, s->extents, sizeof(int64_t) * (size_t)a->rank);
        memcpy(a->strides, mine.strides, sizeof(int64_t) * (size_t)a->rank);
    }
    out->arguments = arguments;
    out->argument_count = arrays + c->g.write_count;
    out->call = 0;
    out->note = x->attr.kernel->note;
    out->kernel = fuse_from_source(memory, x->attr.kernel->name, x->attr.kernel->source);
}

/* A call's arguments are its inputs; a constant scalar has no base. */
static bool build_call(planner *p, const cell *c, arena *memory, fuse_kernel *out)
{
    const graph_node *x = graph_get(p->g, c->g.anchor);
    *out = (fuse_kernel){.name = x->attr.kernel->name, .call = c->g.anchor, .argument_count = x->input_count};
    out->arguments = ARENA_ARRAY(memory, fuse_argument, x->input_count + 1);
    for (int i = 0; i < x->input_count; i++) {
        const graph_node *input = graph_get(p->g, x->inputs[i]);
        fuse_view view = {0};
        if (plan_is_constant_scalar(input)) continue;
        if (!plan_view(p, x->inputs[i], memory, &view)) return false;
        fuse_argument *a = &out->arguments[i];
        *a = (fuse_argument){.base = view.base, .rank = input->shape.rank, .offset = view.offset};
        memcpy(a->extents, input->shape.extents, sizeof(int64_t) * (size_t)a->rank);
        memcpy(a->strides, view.strides, sizeof(int64_t) * (size_t)a->rank);
    }
    if (x->attr.kernel->source) build_own(p, c, memory, out);
    return true;
}

static bool build_alone(planner *p, const cell *c, arena *memory, fuse_kernel *out)
{
    const graph_node *x = graph_get(p->g, c->g.anchor);
    fuse_view views[8] = {0};
    if (c->g.kind == GROUP_CALL) return build_call(p, c, memory, out);
    for (int i = 0; i < x->input_count && i < 8; i++)
        if (!plan_is_zero_base(x, i, graph_get(p->g, x->inputs[i])) && !plan_view(p, x->inputs[i], memory, &views[i]))
            return false;
    switch (c->g.kind) {
    case GROUP_SCAN: return fuse_scan_kernel(memory, p->g, c->g.anchor, views, p->options, out);
    case GROUP_ARGSORT: return fuse_argsort_kernel(memory, p->g, c->g.anchor, views, p->options, out);
    default:
        if (x->code == GRAPH_RUN_SUM) return fuse_run_sum_kernel(memory, p->g, c->g.anchor, views, p->options, out);
        return fuse_scatter_kernel(memory, p->g, c->g.anchor, views, p->options, out);
    }
}

/* What is worth keeping of a kernel that was built in memory that goes. */
static void keep_kernel(fuse_kernel *k, arena *memory)
{
    k->kernel = tile_clone(k->kernel, memory);
    k->name = k->kernel->name;
    fuse_argument *arguments = ARENA_ARRAY(memory, fuse_argument, k->argument_count + 1);
    number *scalars = ARENA_ARRAY(memory, number, k->scalar_count + 1);
    if (k->argument_count) memcpy(arguments, k->arguments, sizeof(fuse_argument) * (size_t)k->argument_count);
    if (k->scalar_count) memcpy(scalars, k->scalars, sizeof(number) * (size_t)k->scalar_count);
    k->arguments = arguments;
    k->scalars = scalars;
    if (k->choice) {
        struct dot_choice *choice = ARENA_NEW(memory, struct dot_choice);
        *choice = *k->choice;
        k->choice = choice;
    }
}

bool cell_build(planner *p, const cell *c, arena *memory, fuse_kernel *out, const char **why, qn_error *error)
{
    if (c->g.kind != GROUP_LOOP && c->g.kind != GROUP_DOT) return build_alone(p, c, memory, out);
    arena *scratch = out ? arena_new() : memory; /* a trace is much larger than its kernel */
    builder b = {.memory = scratch, .g = p->g, .in_memory = p->in_memory, .leaves = p->leaves, .options = p->options};
    b.early = p->early;
    for (int i = 0; i < c->g.node_count; i++) p->in_memory[c->g.nodes[i]] = false;
    bool fine = (c->g.kind == GROUP_LOOP ? loop_build : dot_build)(&b, &c->g, out, error);
    for (int i = 0; i < c->g.node_count; i++) p->in_memory[c->g.nodes[i]] = p->is_op[c->g.nodes[i]];
    *why = b.why;
    p->built = b.cost;
    if (out && fine) keep_kernel(out, memory);
    if (out) arena_free(scratch);
    return fine;
}

/* ---- numbers of the report ---- */

static int64_t node_flops(const graph *g, node n)
{
    const graph_node *x = graph_get(g, n);
    int64_t count = shape_count(&x->shape);
    if (x->code == GRAPH_REDUCE) return shape_count(&graph_get(g, x->inputs[0])->shape);
    if (x->code == GRAPH_KERNEL) return x->attr.kernel->flops;
    if (x->code == GRAPH_DOT) return 2 * count * graph_dot_depth(g, x);
    return x->code == GRAPH_MAP && x->attr.map != OP_CONVERT && x->attr.map != OP_BITCAST ? count : 0;
}

static int64_t argument_bytes(const graph *g, const fuse_argument *a)
{
    int64_t count = 1;
    for (int i = 0; i < a->rank; i++) count *= a->strides[i] ? a->extents[i] : 1;
    return MINIMUM(count * dtypes[graph_get(g, a->base)->elem].size_bytes, graph_size_bytes(g, a->base));
}

/* The ops and what is followed between them. */
static void list_nodes(planner *p, const cell *c, fuse_kernel *k)
{
    const group *g = &c->g;
    int capacity = 0;
    k->nodes = NULL;
    k->node_count = 0;
    p->marked++;
    const graph_kernel *called = g->kind == GROUP_CALL ? graph_get(p->g, g->anchor)->attr.kernel : NULL;
    for (int i = 0; called && i < called->stands_count; i++)
        ARENA_PUSH(p->memory, k->nodes, k->node_count, capacity, called->stands_for[i]);
    if (k->node_count) return; /* what the call computes, instead of the call */
    for (int i = 0; i < g->node_count; i++) {
        p->mark[g->nodes[i]] = p->marked;
        ARENA_PUSH(p->memory, k->nodes, k->node_count, capacity, g->nodes[i]);
    }
    for (int at = 0; at < k->node_count; at++) {
        const graph_node *x = graph_get(p->g, k->nodes[at]);
        for (int i = 0; i < x->input_count; i++) {
            node from = x->inputs[i];
            if (p->in_memory[from] || p->mark[from] == p->marked) continue;
            p->mark[from] = p->marked;
            ARENA_PUSH(p->memory, k->nodes, k->node_count, capacity, from);
        }
    }
    qsort(k->nodes, (size_t)k->node_count, sizeof(node), by_node);
}

static void count_kernel(planner *p, const cell *c, fuse_kernel *k)
{
    const group *g = &c->g;
    list_nodes(p, c, k);
    k->writes = g->writes;
    k->write_count = g->write_count;
    k->flops = k->read_bytes = k->written_bytes = k->saved_bytes = 0;
    for (int i = 0; i < k->node_count; i++) k->flops += node_flops(p->g, k->nodes[i]);
    for (int i = 0; i < g->write_count; i++) k->written_bytes += graph_size_bytes(p->g, g->writes[i]);
    for (int i = 0; i < k->argument_count; i++)
        if (!cell_lists(g->writes, g->write_count, k->arguments[i].base))
            k->read_bytes += argument_bytes(p->g, &k->arguments[i]);
    const graph_kernel *called = g->kind == GROUP_CALL ? graph_get(p->g, g->anchor)->attr.kernel : NULL;
    bool stands = called && called->stands_count;
    for (int i = 0; stands && i < called->stands_count; i++)
        k->saved_bytes += 2 * graph_size_bytes(p->g, called->stands_for[i]);
    if (stands) k->saved_bytes -= MINIMUM(k->saved_bytes, 2 * k->written_bytes);
    for (int i = 0; !stands && i < g->node_count; i++) {
        node n = g->nodes[i];
        int64_t reads = 0;
        for (int u = 0; u < p->user_count[n]; u++) reads += cell_lists(g->nodes, g->node_count, p->users[n][u]);
        k->saved_bytes += graph_size_bytes(p->g, n) * (reads + !cell_lists(g->writes, g->write_count, n));
    }
}

/* ---- the order ---- */

/* The smallest cell of several ops among those that need each other. */
static int smallest_of_circle(const planner *p, const int *cells, int count)
{
    int found = -1;
    for (int i = 0; i < count; i++) {
        int nodes = p->cells[cells[i]].g.node_count;
        if (nodes > 1 && (found < 0 || nodes < p->cells[found].g.node_count)) found = cells[i];
    }
    CHECK(found >= 0);
    return found;
}

/* Cells in an order of needs; order: room for cell_count. Returns how many are alive; -1: some need each other, of which
 * *circle is one that may fall apart. */
static int order_cells(planner *p, int *order, int *circle)
{
    int count = 0;
    bool *done = ARENA_ARRAY(p->memory, bool, p->cell_count);
    int *stack = ARENA_ARRAY(p->memory, int, p->cell_count + 1), *next = ARENA_ARRAY(p->memory, int, p->cell_count);
    bool *open = ARENA_ARRAY(p->memory, bool, p->cell_count);
    for (int first = 0; first < p->cell_count; first++) {
        if (p->cells[first].dead || done[first]) continue;
        int depth = 0;
        stack[depth++] = first;
        open[first] = true;
        while (depth) {
            int at = stack[depth - 1];
            const cell *c = &p->cells[at];
            if (next[at] == c->read_count) {
                done[at] = true;
                order[count++] = at;
                depth--;
                continue;
            }
            node from = plan_writer(p, c->reads[next[at]++]);
            if (!p->is_op[from]) continue;
            int other = p->cell_of[from];
            if (other == at || done[other]) continue;
            if (open[other]) {
                int from_other = depth - 1;
                while (stack[from_other] != other) from_other--;
                *circle = smallest_of_circle(p, stack + from_other, depth - from_other);
                return -1;
            }
            open[other] = true;
            stack[depth++] = other;
        }
    }
    return count;
}

/* A group whose kernel cannot be built: one kernel an op. */
static void fall_apart(planner *p, int at)
{
    cell c = p->cells[at];
    p->cells[at].dead = true;
    int first = p->cell_count;
    for (int i = 0; i < c.g.node_count; i++)
        if (!is_copy(&c, c.g.nodes[i])) make_cell(p, c.g.nodes[i]);
    for (int i = first; i < p->cell_count; i++) cell_settle(p, &p->cells[i]); /* now that all know where they are */
    if (p->copying) cells_settle(p);
}

/* An op whose kernel cannot be built with what is followed below it: that goes into memory first. False: nothing is. */
static bool store_inputs(planner *p, node n)
{
    const graph_node *x = graph_get(p->g, n);
    bool any = false;
    for (int i = 0; i < x->input_count; i++) {
        node from = x->inputs[i];
        if (p->in_memory[from] || graph_get(p->g, from)->code == GRAPH_FULL) continue;
        p->stored[from] = any = true;
    }
    return any;
}

/* *again: something has to be stored that was not; the plan is made anew. */
static qn_status build_all(planner *p, fuse_plan *plan, int **kernel_of, bool *again, qn_error *error)
{
    fuse_kernel *built = NULL;
    int *stamps = NULL; /* of the cells as they were built */
    int *order = NULL;
    int built_count = 0, stamp_count = 0, built_capacity = 0, stamp_capacity = 0, count = 0, circle = -1;
    bool changed = true;
    *again = false;
    while (changed) { /* every cell once; after one fell apart, what is new or has changed */
        changed = false;
        for (int i = 0; i < p->cell_count; i++) {
            cell *c = &p->cells[i];
            const char *why = NULL;
            qn_error problem = {0};
            QN_TRY(heap_status(error));
            if (i == built_count) {
                ARENA_PUSH(p->memory, built, built_count, built_capacity, (fuse_kernel){0});
                ARENA_PUSH(p->memory, stamps, stamp_count, stamp_capacity, 0);
            }
            if (c->dead || stamps[i] == c->stamp) continue;
            stamps[i] = c->stamp;
            if (cell_build(p, c, p->memory, &built[i], &why, &problem)) continue;
            if (c->g.node_count > 1) {
                fall_apart(p, i);
                changed = true;
            } else if (store_inputs(p, c->g.nodes[0])) {
                *again = true;
            } else {
                return error_set(error, QN_FAILED, "%s: no kernel can be built: %s",
                                 graph_ops[graph_get(p->g, c->g.nodes[0])->code].text,
                                 why                  ? why
                                 : problem.message[0] ? problem.message
                                                      : "its shape does not fit");
            }
        }
        if (changed || *again) continue;
        order = ARENA_ARRAY(p->memory, int, p->cell_count);
        count = order_cells(p, order, &circle);
        /* What fell apart computes no copies any more, and reads them from a cell that may have needed it. */
        changed = count < 0;
        if (changed) fall_apart(p, circle);
    }
    if (*again) return QN_OK;
    *kernel_of = ARENA_ARRAY(p->memory, int, p->cell_count + 1);
    plan->kernels = ARENA_ARRAY(p->memory, fuse_kernel, count + 1);
    for (int i = 0; i < count; i++) {
        fuse_kernel *k = &plan->kernels[plan->kernel_count];
        *k = built[order[i]];
        (*kernel_of)[order[i]] = plan->kernel_count++;
        count_kernel(p, &p->cells[order[i]], k);
        k->cost = *cell_cost(p, &p->cells[order[i]]);
    }
    return QN_OK;
}

static void list_boundaries(planner *p, fuse_plan *plan, const int *kernel_of)
{
    int capacity = 0;
    for (int i = 0; i < p->cell_count; i++) {
        const cell *c = &p->cells[i];
        if (c->dead) continue;
        for (int k = 0; k < c->read_count; k++) {
            node n = c->reads[k], from = plan_writer(p, n);
            if (!p->is_op[from]) continue;
            fuse_boundary edge = {n, kernel_of[p->cell_of[from]], kernel_of[i], graph_size_bytes(p->g, n), NULL};
            edge.why = group_boundary(p, n, &p->cells[p->cell_of[from]], c);
            ARENA_PUSH(p->memory, plan->boundaries, plan->boundary_count, capacity, edge);
        }
        for (int k = 0; k < c->g.write_count; k++) {
            if (!p->wanted[c->g.writes[k]]) continue;
            fuse_boundary edge = {c->g.writes[k], kernel_of[i], -1, graph_size_bytes(p->g, c->g.writes[k]),
                                  "it is a result"};
            ARENA_PUSH(p->memory, plan->boundaries, plan->boundary_count, capacity, edge);
        }
    }
}

static fuse_leaf *more_leaves(arena *memory, const fuse_leaf *leaves, int count, int more)
{
    fuse_leaf *grown = ARENA_ARRAY(memory, fuse_leaf, more);
    memcpy(grown, leaves, sizeof(fuse_leaf) * (size_t)count);
    return grown;
}

static planner *planner_new(graph *g, const fuse_leaf *leaves, int old_count, const fuse_options *options,
                            arena *memory)
{
    planner *p = ARENA_NEW(memory, planner);
    p->memory = memory;
    p->g = g;
    p->options = options;
    int count = p->node_count = g->node_count;
    p->leaves = more_leaves(memory, leaves, old_count, count);
    p->reached = ARENA_ARRAY(memory, bool, count);
    p->wanted = ARENA_ARRAY(memory, bool, count);
    p->is_op = ARENA_ARRAY(memory, bool, count);
    p->forced = ARENA_ARRAY(memory, bool, count);
    p->in_memory = ARENA_ARRAY(memory, bool, count);
    p->reads = ARENA_ARRAY(memory, node *, count);
    p->read_count = ARENA_ARRAY(memory, int, count);
    p->users = ARENA_ARRAY(memory, node *, count);
    p->user_count = ARENA_ARRAY(memory, int, count);
    p->cell_of = ARENA_ARRAY(memory, int, count);
    p->first_result = ARENA_ARRAY(memory, node, count);
    p->next_result = ARENA_ARRAY(memory, node, count);
    p->mark = ARENA_ARRAY(memory, int, count);
    p->copiers = ARENA_ARRAY(memory, node *, count);
    p->copier_count = ARENA_ARRAY(memory, int, count);
    return p;
}

static qn_status plan_kernels(graph *g, const fuse_leaf *leaves, const node *roots, int root_count,
                              const fuse_options *options, bool frugal, arena *memory, fuse_plan **out, qn_error *error)
{
    int old_count = g->node_count;
    preparation prepared = plan_prepare(g, leaves, roots, root_count, options, memory);
    plan_part_roots(g, &prepared, leaves, roots, root_count);
    if (g->status != QN_OK) return error_set(error, g->status, "%s", g->error.message);
    bool *stored = ARENA_ARRAY(memory, bool, g->node_count), again = true;
    fuse_plan *plan = ARENA_NEW(memory, fuse_plan);
    plan->memory = memory;
    plan->graph = g;
    planner *p = NULL;
    int *kernel_of = NULL;
    while (again) { /* each time more is stored */
        p = planner_new(g, leaves, old_count, options, memory);
        p->stored = stored;
        p->frugal = frugal;
        node *now = ARENA_ARRAY(memory, node, root_count + 1);
        for (int i = 0; i < root_count; i++) {
            now[i] = prepared.now[roots[i]];
            p->wanted[now[i]] = true;
        }
        plan_reach(g, p->leaves, p->node_count, now, root_count, p->reached);
        plan_find_ops(p);
        for (node n = 1; (int)n < p->node_count; n++)
            if (p->reached[n] && p->is_op[n]) make_cell(p, n);
        QN_TRY(heap_status(error));
        for (int i = 0; i < p->cell_count; i++) p->eager_ns += cell_cost(p, &p->cells[i])->time_ns;
        p->eager_bytes = cells_peak_bytes(p);
        if (options->mode != FUSE_EAGER) group_nodes(p);
        QN_TRY(build_all(p, plan, &kernel_of, &again, error));
    }
    plan->eager_ns = p->eager_ns;
    plan->eager_bytes = p->eager_bytes;
    list_boundaries(p, plan, kernel_of);
    plan_rename(p, plan, &prepared, roots, root_count);
    *out = plan;
    return QN_OK;
}

qn_status fuse_plan_make(graph *g, const fuse_leaf *leaves, const node *wanted, int wanted_count,
                         const fuse_assign *assigns, int assign_count, const fuse_options *options, arena *memory,
                         fuse_plan **out, qn_error *error)
{
    int root_count = 0, old_count = g->node_count;
    fuse_assign *moved = ARENA_ARRAY(memory, fuse_assign, assign_count + 1);
    for (int i = 0; i < assign_count; i++) { /* one home given to another: through memory of its own */
        moved[i] = assigns[i];
        if (leaves[moved[i].from].given) moved[i].from = graph_same(g, GRAPH_KEEP, moved[i].from, 2000 + i);
    }
    node *roots = ARENA_ARRAY(memory, node, wanted_count + assign_count + 1);
    for (int i = 0; i < wanted_count; i++)
        if (!leaves[wanted[i]].given) roots[root_count++] = wanted[i];
    for (int i = 0; i < assign_count; i++) roots[root_count++] = moved[i].from;
    int64_t least_bytes = INT64_MAX;
    for (int attempt = 0; attempt < 3; attempt++) { /* joined freely; frugally, if that was too much; and back */
        const fuse_leaf *known = more_leaves(memory, leaves, old_count, g->node_count);
        QN_TRY(plan_kernels(g, known, roots, root_count, options, attempt == 1, memory, out, error));
        if (options->gpu && options->mode == FUSE_FUSED)
            fuse_side_by_side(*out, wanted, wanted_count, moved, assign_count);
        fuse_memory(*out, wanted, wanted_count, moved, assign_count);
        int64_t bytes = (*out)->peak_bytes;
        bool fits = options->mode != FUSE_FUSED || !fuse_peak_matters(*out, bytes);
        if (fits || (attempt && bytes < least_bytes)) break;
        least_bytes = MINIMUM(least_bytes, bytes);
    }
    return QN_OK;
}
