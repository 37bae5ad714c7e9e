/*
 * Random graphs on `emu`, which runs the CUDA text on the processor, or on the device of QUERN_TEST_DEVICE (a GPU): fused
 * agrees with the graph interpreter; on a GPU strict gives the bits of eager. Every kernel is compiled, so the ordinary
 * run has small graphs. See random_run.h for the variables of the environment.
 * SPDX-License-Identifier: MIT
 */
#include "random_run.h"

static int most_ops(void)
{
    return number_from("QUERN_GRAPH_OPS", 5);
}

static const char *device(void)
{
    const char *name = environment_get("QUERN_TEST_DEVICE");
    return name ? name : "emu";
}

TEST(fused)
{
    run_all((way){device(), QN_FUSED, false}, count_from("QUERN_GRAPHS", "random graphs", 100), most_ops(), DT_COUNT);
}

TEST(strict_is_eager)
{
    int count = count_from("QUERN_GRAPHS", "random graphs", environment_get("QUERN_TEST_DEVICE") ? 100 : 2);
    run_all((way){device(), QN_STRICT, true}, count, most_ops(), DT_F32);
    run_all((way){device(), QN_STRICT, true}, count, most_ops(), DT_BF16);
    qn_context_close(context);
}

TEST_MAIN(CASE(fused), CASE(strict_is_eager))
