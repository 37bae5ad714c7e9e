/*
 * A whole plan on host memory, kernel by kernel in the checking interpreter, in the places that the memory plan chose;
 * its results against the meaning of the graph. Storages of leaves are addresses.
 * SPDX-License-Identifier: MIT
 */
#ifndef QUERN_TESTS_FUSE_RUN_H
#define QUERN_TESTS_FUSE_RUN_H

#include "fuse_kernel.h"

#include <stdlib.h>

typedef struct fuse_run {
    fuse_plan *plan;
    void **data; /* by node: row-major memory of what the plan wrote */
    bool good;
} fuse_run;

static inline void *run_place(const fuse_run *r, const graph *g, arena *memory, char *workspace, node n)
{
    if (r->data[n]) return r->data[n];
    const fuse_place *at = &r->plan->places[n];
    const graph_node *same = at->same_as ? graph_get(g, at->same_as) : NULL;
    if (same && same->code == GRAPH_LEAF)
        return r->data[n] = (char *)same->attr.storage + same->attr.offset * dtypes[same->elem].size_bytes;
    if (same) return r->data[n] = run_place(r, g, memory, workspace, at->same_as);
    if (at->offset_bytes >= 0) return r->data[n] = workspace + at->offset_bytes;
    r->data[n] = arena_alloc(memory, (size_t)graph_size_bytes(g, n) + 8);
    memset(r->data[n], 0xff, (size_t)graph_size_bytes(g, n));
    return r->data[n];
}

static inline fuse_run fuse_run_plan(arena *memory, graph *g, const node *wanted, int count, const fuse_assign *assigns,
                                     int assign_count, const fuse_options *options)
{
    fuse_run r = {0};
    qn_error error = {0};
    fuse_leaf *leaves = ARENA_ARRAY(memory, fuse_leaf, g->node_count);
    for (int n = 1; n < g->node_count; n++) {
        const graph_node *x = graph_get(g, (node)n);
        leaves[n].given = x->code == GRAPH_LEAF;
        leaves[n].offset = x->attr.offset;
        memcpy(leaves[n].strides, x->attr.strides, sizeof(leaves[n].strides));
    }
    if (fuse_plan_make(g, leaves, wanted, count, assigns, assign_count, options, memory, &r.plan, &error) != QN_OK) {
        printf("%s\n", error.message);
        return r;
    }
    r.data = ARENA_ARRAY(memory, void *, g->node_count);
    char *workspace = arena_alloc(memory, (size_t)r.plan->workspace_bytes + 8);
    memset(workspace, 0xff, (size_t)r.plan->workspace_bytes);
    r.good = true;
    for (int i = 0; i < r.plan->kernel_count; i++) {
        const fuse_kernel *k = &r.plan->kernels[i];
        void **data = ARENA_ARRAY(memory, void *, g->node_count);
        for (int w = 0; w < k->write_count; w++) run_place(&r, g, memory, workspace, k->writes[w]);
        for (int a = 0; a < k->argument_count; a++) {
            node base = k->arguments[a].base;
            data[base] = graph_get(g, base)->code == GRAPH_LEAF ? graph_get(g, base)->attr.storage : r.data[base];
        }
        qn_error problem = {0};
        if (tile_verify(k->kernel, &problem) != QN_OK) printf("%s\n", problem.message), r.good = false;
        r.good &= kernel_run(memory, g, k, data);
    }
    return r;
}

/* Plans, runs and compares; the number of kernels, -1 if something was wrong (which is printed). */
static inline int fuse_run_expect(arena *memory, graph *g, const node *wanted, int count, const fuse_options *options,
                                  double tolerance)
{
    int nodes = g->node_count;
    graph_tensor *expected = ARENA_ARRAY(memory, graph_tensor, count);
    qn_error error = {0};
    bool known = graph_interpret(g, wanted, count, NULL, false, memory, expected, &error) == QN_OK;
    if (!known) printf("%s\n", error.message);
    fuse_run r = fuse_run_plan(memory, g, wanted, count, NULL, 0, options);
    bool good = known && r.good;
    for (int w = 0; w < count && good; w++) {
        int wrong = 0;
        const graph_tensor *e = &expected[w];
        for (int64_t i = 0; i < e->count && wrong < 4; i++) {
            number x = element_read(e->elem, (char *)r.data[wanted[w]] + i * dtypes[e->elem].size_bytes);
            double y = e->elements[i].f;
            bool same = dtype_is_float(e->elem)
                            ? fabs(x.f - y) <= tolerance * (1 + fabs(y)) || (isnan(x.f) && isnan(y)) || x.f == y
                            : x.i == e->elements[i].i;
            if (same) continue;
            printf("result %d element %lld: %g %lld instead of %g %lld\n", w, (long long)i, x.f, (long long)x.i, y,
                   (long long)e->elements[i].i);
            wrong++;
        }
        good = !wrong;
    }
    if (!good && r.plan) {
        text t = {0};
        fuse_print(r.plan, &t);
        for (int i = 0; i < r.plan->kernel_count; i++)
            if (r.plan->kernels[i].kernel) tile_print(r.plan->kernels[i].kernel, &t);
        printf("%s\n", text_get(&t));
        text_free(&t);
    }
    (void)nodes;
    return good ? r.plan->kernel_count : -1;
}

#endif
