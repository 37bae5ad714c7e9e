/*
 * Random graphs without a device: they print and read back, simplifying them keeps their bits (exact rules) or their
 * values (all rules), and exact rules add no arithmetic. Every op of the graph turns up among them.
 * QUERN_GRAPHS=COUNT tries more, QUERN_GRAPH_SEED=N starts elsewhere.
 * SPDX-License-Identifier: MIT
 */
#include "graph_run.h"
#include "ir/graph_simplify.h"
#include "share.h"
#include "test.h"

/* Elements that arithmetic computes and reductions read. */
static int64_t work_of(const graph *g, const node *roots, int count)
{
    arena *scratch = arena_new();
    node *order = ARENA_ARRAY(scratch, node, g->node_count);
    int64_t work = 0;
    for (int i = graph_order(g, roots, count, order) - 1; i >= 0; i--) {
        const graph_node *n = graph_get(g, order[i]);
        if (n->code == GRAPH_MAP) work += shape_count(&n->shape);
        if (n->code == GRAPH_REDUCE) work += shape_count(&graph_get(g, n->inputs[0])->shape);
    }
    arena_free(scratch);
    return work;
}

static void report(const graph_case *c, uint64_t seed, const char *what)
{
    text words = {0};
    graph_print(c->g, c->roots, c->root_count, &words);
    printf("seed %llu: %s\n%s", (unsigned long long)seed, what, text_get(&words));
    text_free(&words);
    test_fail(__FILE__, __LINE__, what);
}

static void check_one(uint64_t seed, const random_options *options, bool *met)
{
    random_graph *r = random_graph_make(seed, options);
    graph_case drawn = {r->g, r->roots, r->root_count}, c = case_reread(&drawn, r->memory);
    for (int n = 1; n < r->g->node_count; n++) met[graph_get(r->g, (node)n)->code] = true;
    graph_tensor exact[RANDOM_ROOTS], rounded[RANDOM_ROOTS], got[RANDOM_ROOTS];
    qn_error error;
    if (case_interpret(&c, true, r->memory, exact, &error) || case_interpret(&c, false, r->memory, rounded, &error)) {
        report(&c, seed, error.message);
        random_graph_free(r);
        return;
    }
    for (int relaxed = 0; relaxed < 2; relaxed++) {
        node roots[RANDOM_ROOTS];
        memcpy(roots, c.roots, sizeof(node) * (size_t)c.root_count);
        graph_simplify((graph *)c.g, roots, c.root_count, &(graph_rules){.relaxed = relaxed});
        graph_case simple = {c.g, roots, c.root_count};
        if (!relaxed && work_of(c.g, roots, c.root_count) > work_of(c.g, c.roots, c.root_count))
            report(&c, seed, "simplifying adds work");
        if (case_interpret(&simple, false, r->memory, got, &error)) report(&c, seed, error.message);
        for (int i = 0; i < c.root_count; i++) {
            int64_t at;
            text words = {0};
            bool same = relaxed ? case_close(&c, i, &got[i], &exact[i], &rounded[i], &words)
                                : case_same_bits(&got[i], &rounded[i], &at);
            if (!same) report(&c, seed, relaxed ? text_get(&words) : "simplifying by exact rules changes bits");
            text_free(&words);
        }
    }
    random_graph_free(r);
}

TEST(simplifying_keeps_values)
{
    int count = count_from("QUERN_GRAPHS", "random graphs", 400), first = number_from("QUERN_GRAPH_SEED", 1);
    bool met[GRAPH_CODE_COUNT] = {false};
    for (int i = 0; i < count && test_failures_of_case < 3; i++) {
        random_options options = {5, 60, DT_COUNT, i % 2, false};
        check_one((uint64_t)(first + i), &options, met);
    }
    for (int code = 1; code < GRAPH_CODE_COUNT && count >= 400; code++)
        if (!met[code] && code != GRAPH_KERNEL && code != GRAPH_RESULT && code != GRAPH_RUN_SUM) /* test_fuse_index */
            test_fail(__FILE__, __LINE__, graph_ops[code].text);
}

TEST_MAIN(CASE(simplifying_keeps_values))
