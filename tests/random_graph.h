/*
 * Random tensor graphs: random_graph_make(seed) writes a graph of every class of op over leaves of every kind of view,
 * with gradients where they are wanted. Values stay below a limit, or the op is tried anew.
 * SPDX-License-Identifier: MIT
 */
#ifndef QUERN_TESTS_RANDOM_GRAPH_H
#define QUERN_TESTS_RANDOM_GRAPH_H

#include "random_ops.h"

/* All floats are finite and below the limit. */
static inline bool random_tame(random_graph *r, const node *nodes, int count, double limit)
{
    arena *scratch = arena_new();
    graph_tensor *t = ARENA_ARRAY(scratch, graph_tensor, count);
    graph_memory where = {.find = random_find, .context = scratch};
    bool tame = !graph_interpret(r->g, nodes, count, &where, false, scratch, t, NULL);
    for (int i = 0; i < count && tame; i++)
        for (int64_t j = 0; j < t[i].count && tame && dtype_is_float(t[i].elem); j++)
            tame = fabs(t[i].elements[j].f) < limit; /* false for NaN */
    arena_free(scratch);
    return tame;
}

static inline void random_grow(random_graph *r)
{
    static const struct {
        int weight;
        node (*make)(random_graph *r);
    } kinds[] = {{18, random_unary},   {22, random_binary}, {22, random_move},  {12, random_reduce},
                 {4, random_integers}, {4, random_compare}, {4, random_select}, {4, random_convert},
                 {1, random_philox},   {2, random_scan},    {2, random_sort},   {6, random_dot},
                 {5, random_by_index}, {2, random_same}};
    int all = 0, at = 0;
    for (int i = 0; i < COUNT(kinds); i++) all += kinds[i].weight;
    int choice = random_pick(r, all);
    while (choice >= kinds[at].weight) choice -= kinds[at++].weight;
    int nodes = r->g->node_count, leaves = r->leaf_count, storages = r->storages;
    node n = kinds[at].make(r);
    bool fresh = n >= (node)nodes; /* an old one came out: nothing was added */
    if (r->g->status || !n || !fresh || !random_tame(r, &n, 1, 100)) {
        r->g->status = QN_OK;
        graph_truncate(r->g, nodes);
        for (int i = nodes; i < r->stable_capacity; i++) r->stable[i] = false;
        r->leaf_count = leaves;
        r->storages = storages;
        return;
    }
    ARENA_PUSH(r->memory, r->pool, r->pool_count, r->pool_capacity, n);
}

/* The loss is a weighted mean of the float roots; its gradients by up to three leaves join the roots. */
static inline void random_gradient(random_graph *r)
{
    graph *g = r->g;
    node loss = 0, inputs[3], gradients[3];
    int count = 0, nodes = g->node_count;
    for (int i = 0; i < r->root_count; i++) {
        const graph_node *at = random_at(r, r->roots[i]);
        int64_t elements = shape_count(&at->shape);
        if (!dtype_is_float(at->elem) || !elements) continue;
        shape s = at->shape;
        node weights = graph_leaf(g, r->type, &s, NULL, 0, (void *)(uintptr_t)++r->storages);
        node x = graph_binary(g, OP_MUL, graph_convert(g, r->roots[i], r->type), weights);
        x = graph_reduce(g, FOLD_SUM, x, (1u << s.rank) - 1);
        x = graph_reshape(g, x, &(shape){0});
        x = graph_binary(g, OP_MUL, x, graph_full_double(g, r->type, &(shape){0}, 1 / (double)elements));
        loss = loss ? graph_binary(g, OP_ADD, loss, x) : x;
    }
    for (int i = 0; i < r->leaf_count && count < 3 && r->root_count + count < RANDOM_ROOTS; i++)
        if (r->leaves[i] < (node)nodes) inputs[count++] = r->leaves[i];
    if (!loss || !count || !graph_gradient(g, loss, inputs, count, gradients) ||
        !random_tame(r, gradients, count, 10000)) {
        g->status = QN_OK;
        graph_truncate(g, nodes);
        return;
    }
    for (int i = 0; i < count; i++) r->roots[r->root_count++] = gradients[i];
}

static inline random_graph *random_graph_make(uint64_t seed, const random_options *options)
{
    static const dtype types[] = {DT_F32, DT_F32, DT_F32, DT_BF16, DT_F16, DT_F64};
    arena *memory = arena_new();
    random_graph *r = ARENA_NEW(memory, random_graph);
    r->memory = memory;
    r->g = graph_new(memory);
    r->state = random_hash(seed + 1);
    r->options = *options;
    r->type = options->type < DT_COUNT ? options->type : types[random_pick(r, COUNT(types))];
    for (int i = 1 + random_pick(r, 3); i > 0; i--) {
        shape s = random_shape(r, 1 + random_pick(r, 3));
        ARENA_PUSH(memory, r->pool, r->pool_count, r->pool_capacity, random_leaf(r, r->type, &s));
    }
    int ops = options->least_ops + random_pick(r, options->most_ops - options->least_ops + 1);
    for (int tries = 0; r->pool_count < ops && tries < 20 * ops; tries++) random_grow(r);
    /* What nothing uses is wanted, the newest first; and now and then something in the middle. */
    bool *used = ARENA_ARRAY(memory, bool, r->g->node_count);
    for (int n = 1; n < r->g->node_count; n++)
        for (int i = 0; i < random_at(r, (node)n)->input_count; i++) used[random_at(r, (node)n)->inputs[i]] = true;
    for (int i = r->pool_count - 1; i >= 0 && r->root_count < 5; i--)
        if (!used[r->pool[i]] || !random_pick(r, 12)) r->roots[r->root_count++] = r->pool[i];
    if (options->gradient) random_gradient(r);
    return r;
}

static inline void random_graph_free(random_graph *r)
{
    if (r) arena_free(r->memory);
}

#endif
