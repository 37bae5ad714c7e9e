/*
 * Random graphs of 5 to 60 ops, forward and gradient, on `ref`: eager and fused agree with the graph interpreter, strict
 * gives the bits of eager. See random_run.h for the variables of the environment.
 * SPDX-License-Identifier: MIT
 */
#include "random_run.h"

static int graphs(void)
{
    return count_from("QUERN_GRAPHS", "random graphs", 100);
}

static int most_ops(void)
{
    return number_from("QUERN_GRAPH_OPS", 60);
}

TEST(eager)
{
    run_all((way){"ref", QN_EAGER, false}, graphs(), most_ops(), DT_COUNT);
}

TEST(fused)
{
    run_all((way){"ref", QN_FUSED, false}, graphs(), most_ops(), DT_COUNT);
}

TEST(strict_is_eager_in_f32)
{
    run_all((way){"ref", QN_STRICT, true}, graphs(), most_ops(), DT_F32);
}

TEST(strict_is_eager_in_bf16)
{
    run_all((way){"ref", QN_STRICT, true}, graphs(), most_ops(), DT_BF16);
}

TEST(a_given_graph)
{
    if (environment_get("QUERN_GRAPH")) replay(environment_get("QUERN_GRAPH"));
    qn_context_close(context);
}

TEST_MAIN(CASE(eager), CASE(fused), CASE(strict_is_eager_in_f32), CASE(strict_is_eager_in_bf16), CASE(a_given_graph))
