/*
 * Random graphs on `cpu`: fused agrees with the graph interpreter, strict gives the bits of eager. Every kernel is
 * compiled, so the ordinary run has small graphs. See random_run.h for the variables of the environment.
 * SPDX-License-Identifier: MIT
 */
#include "random_run.h"

static int most_ops(void)
{
    return number_from("QUERN_GRAPH_OPS", 6);
}

TEST(fused)
{
    run_all((way){"cpu", QN_FUSED, false}, count_from("QUERN_GRAPHS", "random graphs", 100), most_ops(), DT_COUNT);
}

/* Graphs that failed once. */
TEST(known_graphs)
{
    static const char *const texts[] = {
        /* The compiler knows -1 in one arm of the select that the join becomes. */
        "%1 = leaf 1 : f32[33, 9]\n%2 = full -1 : f32[3, 9]\n%3 = concat %1, %2 axis 0 : f32[36, 9]\n"
        "%4 = sin %3 : f32[36, 9]\nreturn %4\n",
        /* The order of a sum is that of its own extents, whatever is computed inside. */
        "%1 = leaf 1 : f32[3, 7, 3]\n%2 = leaf 2 : f32[3, 1, 3]\n%3 = expand %2 : f32[3, 7, 3]\n"
        "%4 = mul %3, %1 : f32[3, 7, 3]\n%5 = reduce sum %4 axes (0, 1, 2) : f32[1, 1, 1]\nreturn %5\n",
    };
    for (int i = 0; i < COUNT(texts) && !environment_get("QUERN_GRAPH") && has_device("cpu"); i++) {
        arena *memory = arena_new();
        graph *g = graph_new(memory);
        node *roots;
        int count;
        qn_error error;
        EXPECT(graph_read(g, "known", texts[i], strlen(texts[i]), &roots, &count, &error) == QN_OK);
        check(&(graph_case){g, roots, count}, (way){"cpu", QN_STRICT, true}, (uint64_t)i);
        arena_free(memory);
    }
}

TEST(strict_is_eager)
{
    int count = count_from("QUERN_GRAPHS", "random graphs", 10);
    run_all((way){"cpu", QN_STRICT, true}, count, most_ops(), DT_F32);
    run_all((way){"cpu", QN_STRICT, true}, count, most_ops(), DT_BF16);
    qn_context_close(context);
}

TEST_MAIN(CASE(fused), CASE(known_graphs), CASE(strict_is_eager))
