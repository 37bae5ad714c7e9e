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
    run_all((way){"cpu", QN_FUSED, false}, number_from("QUERN_GRAPHS", 100), most_ops(), DT_COUNT);
}

TEST(strict_is_eager)
{
    int count = number_from("QUERN_GRAPHS", 10);
    run_all((way){"cpu", QN_STRICT, true}, count, most_ops(), DT_F32);
    run_all((way){"cpu", QN_STRICT, true}, count, most_ops(), DT_BF16);
    qn_context_close(context);
}

TEST_MAIN(CASE(fused), CASE(strict_is_eager))
