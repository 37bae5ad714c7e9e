/*
 * The layouts of CUPTI's records: offsets as CUPTI 11.8 to 13 have them, so that a change here is seen without a GPU.
 * tests/scripts/cupti_layout.sh compares the same with CUPTI's own headers where they are installed.
 * SPDX-License-Identifier: MIT
 */
#include "profile/measure/cupti.h"
#include "test.h"

TEST(kernels)
{
    EXPECT(offsetof(cupti_kernel, registers) == 6 && offsetof(cupti_kernel, start_ns) == 16);
    EXPECT(offsetof(cupti_kernel, end_ns) == 24 && offsetof(cupti_kernel, device) == 40);
    EXPECT(offsetof(cupti_kernel, stream) == 48 && offsetof(cupti_kernel, grid) == 52);
    EXPECT(offsetof(cupti_kernel, block) == 64 && offsetof(cupti_kernel, static_shared_bytes) == 76);
    EXPECT(offsetof(cupti_kernel, local_bytes) == 84 && offsetof(cupti_kernel, correlation) == 92);
    EXPECT(offsetof(cupti_kernel, name) == 104 && offsetof(cupti_kernel, queued_ns) == 120);
    EXPECT(offsetof(cupti_kernel, node) == 144 && offsetof(cupti_kernel, graph) == 156);
    EXPECT(sizeof(cupti_kernel) <= 216);
}

TEST(copies_and_fills)
{
    EXPECT(offsetof(cupti_move, direction) == 4 && offsetof(cupti_move, bytes) == 8);
    EXPECT(offsetof(cupti_move, start_ns) == 16 && offsetof(cupti_move, end_ns) == 24);
    EXPECT(offsetof(cupti_move, device) == 32 && offsetof(cupti_move, stream) == 40);
    EXPECT(offsetof(cupti_move, correlation) == 44 && offsetof(cupti_move, node) == 64);
    EXPECT(offsetof(cupti_move, graph) == 72 && sizeof(cupti_move) <= 88);
}

TEST(others)
{
    EXPECT(offsetof(cupti_external, of) == 4 && offsetof(cupti_external, identity) == 8);
    EXPECT(offsetof(cupti_external, correlation) == 16 && sizeof(cupti_external) == 24);
    EXPECT(offsetof(cupti_graph, correlation) == 4 && offsetof(cupti_graph, start_ns) == 8);
    EXPECT(offsetof(cupti_graph, end_ns) == 16 && offsetof(cupti_graph, graph) == 28);
    EXPECT(offsetof(cupti_graph, stream) == 36 && sizeof(cupti_graph) <= 56);
    EXPECT(offsetof(cupti_overhead, start_ns) == 24 && offsetof(cupti_overhead, end_ns) == 32);
}

TEST_MAIN(CASE(kernels), CASE(copies_and_fills), CASE(others))
