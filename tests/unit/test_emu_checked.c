/*
 * The checked mode of `emu` on hand-written CUDA text: races, accesses out of bounds, barrier divergence, each with its
 * line, and none in the text that is right.
 * SPDX-License-Identifier: MIT
 */
#include "emu_text.h"

/* ---- the checked mode ---- */

/* Runs a text that works on x[64] and y[64], and puts its findings into words: "line: words" each. */
static void check(const char *source, const char *kernel, shape s, text *out)
{
    emu_library l = {0};
    qn_error error;
    emu_launch launched = {0};
    static int memory[4096];
    int *x = memory + 1024, *y = memory + 2048;
    const emu_range library_range = {0};
    if (!make(source, true, &l, &error)) {
        text_add(out, error.message);
        return;
    }
    emu_range ranges[] = {{"x", (uintptr_t)x, (uintptr_t)(x + 64), 4, true, EMU_RANGE_WATCHED},
                          {"y", (uintptr_t)y, (uintptr_t)(y + 64), 4, false, EMU_RANGE_WATCHED},
                          library_range};
    ranges[2].first = l.first;
    ranges[2].end = l.end;
    memset(memory, 0, sizeof(memory));
    if (launch(&l, kernel, s, (void *[]){&x, &y}, ranges, 3, &launched))
        for (int i = 0; i < launched.finding_count; i++) {
            const emu_finding *f = &launched.findings[i];
            if (f->place && !emu_library_line(&l, f->place, out)) text_add(out, "?");
            if (!f->place) text_print(out, "%s:%d", f->at.file, f->at.line);
            text_print(out, ": %s", f->words);
            text other = {0};
            if (f->other && emu_library_line(&l, f->other, &other)) text_print(out, " [%s]", text_get(&other));
            text_free(&other);
            text_add(out, "\n");
        }
    unmake(&l);
}

static void expect_findings(const char *source, shape s, const char *expected, const char *file, int line)
{
    text found = {0};
    check(source, "f", s, &found);
    test_text(text_get(&found), expected, file, line);
    text_free(&found);
}

#define EXPECT_FINDINGS(source, s, expected) expect_findings(source, s, expected, __FILE__, __LINE__)

static const shape one_block = {.grid = {1, 1, 1}, .block = {64, 1, 1}};

TEST(right_text_has_no_findings)
{
    EXPECT_FINDINGS("extern \"C\" __global__ void f(const int *x, int *y)\n"
                    "{\n"
                    "    __shared__ int a[64];\n"
                    "    __shared__ int count;\n"
                    "    __shared__ double wide[2];\n"
                    "    int t = threadIdx.x, local[4];\n"
                    "    if (t == 0) count = 0;\n"
                    "    a[t] = x[t];\n"
                    "    __syncthreads();\n"
                    "    atomicAdd(&count, 1);\n"
                    "    for (int i = 0; i < 4; i++) local[i] = a[(t + i) % 64];\n"
                    "    __syncthreads();\n"
                    "    a[t] = local[t & 3];\n"
                    "    __syncwarp();\n"
                    "    y[t] = a[t ^ 1] + count;\n"
                    "    if (t < 2) wide[t] = t;\n"
                    "    for (int s = 32; s > 0; s >>= 1) {\n"
                    "        __syncthreads();\n"
                    "        if (t < s) a[t] += a[t + s];\n"
                    "    }\n"
                    "}\n",
                    one_block, "");
}

TEST(race_between_warps)
{
    EXPECT_FINDINGS(
        "extern \"C\" __global__ void f(const int *x, int *y)\n"
        "{\n"
        "    __shared__ int a[64];\n"
        "    a[threadIdx.x] = x[threadIdx.x];\n"
        "    y[threadIdx.x] = a[63 - threadIdx.x];\n"
        "}\n",
        one_block,
        "generated CUDA:4: shared-memory race: write of byte 128 by thread 32 of block 0, and read of it by "
        "thread number 31 with no barrier between [generated CUDA:5]\n"
        "generated CUDA:5: shared-memory race: read of byte 124 by thread 32 of block 0, and write of it by "
        "thread number 31 with no barrier between [generated CUDA:4]\n");
}

TEST(race_inside_a_warp)
{
    EXPECT_FINDINGS("extern \"C\" __global__ void f(const int *x, int *y)\n"
                    "{\n"
                    "    __shared__ volatile int a[64];\n"
                    "    a[threadIdx.x] = 1;\n"
                    "    __syncthreads();\n"
                    "    if (threadIdx.x < 16) a[threadIdx.x] += a[threadIdx.x + 16];\n"
                    "    if (threadIdx.x < 8) a[threadIdx.x] += a[threadIdx.x + 8];\n"
                    "}\n",
                    one_block,
                    "generated CUDA:6: shared-memory race: write of byte 32 by thread 8 of block 0, and read of it by "
                    "thread number 0 with no barrier between [generated CUDA:7]\n");
}

TEST(atomic_and_plain)
{
    EXPECT_FINDINGS("extern \"C\" __global__ void f(const int *x, int *y)\n"
                    "{\n"
                    "    __shared__ int a;\n"
                    "    if (threadIdx.x == 0) a = 0;\n"
                    "    atomicAdd(&a, 1);\n"
                    "}\n",
                    one_block,
                    "generated CUDA:5: shared-memory race: atomic of byte 0 by thread 1 of block 0, and write of it by "
                    "thread number 0 with no barrier between [generated CUDA:4]\n");
}

/* Arrays have a cell for each element, and threads of all blocks of a team. */
TEST(races_in_global_memory)
{
    EXPECT_FINDINGS(
        "extern \"C\" __global__ void f(const int *x, int *y)\n"
        "{\n"
        "    y[threadIdx.x] = x[threadIdx.x];\n"
        "    y[63 - threadIdx.x] = 2;\n"
        "}\n",
        one_block,
        "generated CUDA:3: global-memory race: write of byte 128 of `y` by thread 32 of block 0, and write of it by "
        "thread number 31 with no barrier between [generated CUDA:4]\n"
        "generated CUDA:4: global-memory race: write of byte 124 of `y` by thread 32 of block 0, and write of it by "
        "thread number 31 with no barrier between [generated CUDA:3]\n");
    EXPECT_FINDINGS("extern \"C\" __global__ void f(const int *x, int *y)\n"
                    "{\n"
                    "    int t = threadIdx.x;\n"
                    "    y[t] = x[t ^ 1];\n"
                    "    __syncwarp();\n"
                    "    y[t ^ 1] = 3;\n"
                    "    __syncthreads();\n"
                    "    y[63 - t] += 1;\n"
                    "    __syncthreads();\n"
                    "    atomicAdd(&y[t & 3], 1);\n"
                    "    atomicMax(&y[t & 7], 1);\n"
                    "}\n",
                    one_block, "");
    EXPECT_FINDINGS(
        "extern \"C\" __global__ void f(const int *x, int *y)\n"
        "{\n"
        "    y[threadIdx.x & 31] = 0;\n"
        "    __syncthreads();\n"
        "    if (threadIdx.x == 40) y[5] = 1;\n"
        "    atomicAdd(&y[5], 1);\n"
        "}\n",
        ((shape){.grid = {1, 1, 1}, .block = {64, 1, 1}}),
        "generated CUDA:3: global-memory race: write of byte 0 of `y` by thread 32 of block 0, and write of it by "
        "thread number 0 with no barrier between [generated CUDA:3]\n"
        "generated CUDA:5: global-memory race: write of byte 20 of `y` by thread 40 of block 0, and atomic of it by "
        "thread number 39 with no barrier between [generated CUDA:6]\n"
        "generated CUDA:6: global-memory race: atomic of byte 20 of `y` by thread 41 of block 0, and write of it by "
        "thread number 40 with no barrier between [generated CUDA:5]\n");
}

TEST(races_between_blocks_of_a_team)
{
    static const char text_of[] = "extern \"C\" __global__ void f(const int *x, int *y)\n"
                                  "{\n"
                                  "    const unsigned rank = emu_cluster_rank(), t = rank * 32 + threadIdx.x;\n"
                                  "    y[t] = x[t];\n"
                                  "    BARRIER;\n"
                                  "    if (y[63 - t] > 100) y[t] = 5;\n"
                                  "    emu_cluster_sync();\n"
                                  "    y[63 - t] = 1;\n"
                                  "}\n";
    text with = {0}, without = {0};
    text_print(&with, "#define BARRIER emu_cluster_sync()\n%s", text_of);
    text_print(&without, "#define BARRIER __syncthreads()\n%s", text_of);
    const shape cluster = {.grid = {2, 1, 1}, .block = {32, 1, 1}, .cluster = 2};
    EXPECT_FINDINGS(text_get(&with), cluster, "");
    text found = {0};
    check(text_get(&without), "f", cluster, &found);
    EXPECT(strstr(text_get(&found), "of another block of its team with no barrier between") != NULL);
    EXPECT(strstr(text_get(&found), "generated CUDA:7: global-memory race: read of byte") != NULL);
    text_free(&found);
    text_free(&with);
    text_free(&without);
    /* Blocks that do not live together are other programs. */
    EXPECT_FINDINGS("extern \"C\" __global__ void f(const int *x, int *y) { y[threadIdx.x] = blockIdx.x; }\n",
                    ((shape){.grid = {3, 1, 1}, .block = {32, 1, 1}}), "");
}

TEST(outside_of_an_array)
{
    EXPECT_FINDINGS(
        "__device__ void put(int *y, int i, int v)\n"
        "{\n"
        "    y[i] = v;\n"
        "}\n"
        "extern \"C\" __global__ void f(const int *x, int *y) { put(y, threadIdx.x + 1, x[threadIdx.x]); }\n",
        one_block,
        "generated CUDA:3: out of bounds: write of 4 bytes by thread 63 of block 0, 0 bytes after the end of "
        "`y` (256 bytes)\n");
    EXPECT_FINDINGS(
        "extern \"C\" __global__ void f(const int *x, int *y) { y[0] = x[-3]; }\n", one_block,
        "generated CUDA:1: out of bounds: read of 4 bytes by thread 0 of block 0, 12 bytes before the start of "
        "`x` (256 bytes)\n");
    EXPECT_FINDINGS(
        "extern \"C\" __global__ void f(const int *x, int *y) { atomicAdd(y + 100000000, 1); }\n", one_block,
        "generated CUDA:1: out of bounds: atomic of 4 bytes by thread 0 of block 0, 399999744 bytes after the "
        "end of `y` (256 bytes)\n");
}

TEST(outside_of_shared_memory)
{
    EXPECT_FINDINGS(
        "extern __shared__ int d[];\n"
        "extern \"C\" __global__ void f(const int *x, int *y)\n"
        "{\n"
        "    d[threadIdx.x] = 1;\n"
        "}\n",
        ((shape){.grid = {1, 1, 1}, .block = {64, 1, 1}, .shared_bytes = 128}),
        "generated CUDA:4: out of bounds: write of 4 bytes by thread 32 of block 0, at byte 128 of 128 bytes "
        "of dynamic shared memory\n");
}

TEST(misaligned_and_read_only)
{
    EXPECT_FINDINGS("extern \"C\" __global__ void f(const int *x, int *y)\n"
                    "{\n"
                    "    if (threadIdx.x) return;\n"
                    "    *(double *)(y + 1) = 1;\n"
                    "    *(int *)x = 3;\n"
                    "}\n",
                    one_block,
                    "generated CUDA:4: misaligned: write of 8 bytes by thread 0 of block 0 at an address that is no "
                    "multiple of it\n"
                    "generated CUDA:5: write of the input `x` by thread 0 of block 0\n");
}

TEST(barrier_divergence)
{
    EXPECT_FINDINGS("extern \"C\" __global__ void f(const int *x, int *y)\n"
                    "{\n"
                    "    if (threadIdx.x >= 60) return;\n"
                    "    __syncthreads();\n"
                    "}\n",
                    one_block,
                    "generated CUDA:4: barrier divergence: thread 0 of block 0 waits for its block, of which 4 of 64 "
                    "threads have ended\n");
    EXPECT_FINDINGS(
        "extern \"C\" __global__ void f(const int *x, int *y)\n"
        "{\n"
        "    if (threadIdx.x < 32)\n"
        "        __syncthreads();\n"
        "    else\n"
        "        __syncthreads();\n"
        "}\n",
        one_block, "generated CUDA:6: barrier divergence: thread 32 of a block waits here, thread 0 of it on line 4\n");
    EXPECT_FINDINGS(
        "extern \"C\" __global__ void f(const int *x, int *y)\n"
        "{\n"
        "    if (threadIdx.x == 3)\n"
        "        __syncthreads();\n"
        "    else\n"
        "        __syncwarp();\n"
        "    __syncthreads();\n"
        "}\n",
        one_block,
        "generated CUDA:7: barrier divergence: thread 63 of a block waits here, thread 3 of it on line 4\n"
        "generated CUDA:6: barrier divergence: thread 0 of block 0 waits for the lanes of its warp (generated "
        "CUDA:6); thread 3 of block 0 waits for its block (generated CUDA:4)\n");
}

TEST(a_lane_outside_its_mask)
{
    EXPECT_FINDINGS("extern \"C\" __global__ void f(const int *x, int *y)\n"
                    "{\n"
                    "    y[threadIdx.x] = __shfl_sync(1u, threadIdx.x, 0);\n"
                    "}\n",
                    one_block, "generated CUDA:3: warp divergence: lane 1 is not in the mask 00000001 that it gives\n");
}

TEST(waiting_for_another_block)
{
    EXPECT_FINDINGS(
        "extern \"C\" __global__ void f(const int *x, int *y)\n"
        "{\n"
        "    while (atomicAdd(y, 0) == 0) {}\n"
        "}\n",
        ((shape){.grid = {1, 1, 1}, .block = {1, 1, 1}}),
        "(null):0: a thread of block 0 waits for memory that nobody changes: blocks of a launch that is not "
        "cooperative may run one after another\n");
}

TEST_MAIN(CASE(open_engine), CASE(right_text_has_no_findings), CASE(race_between_warps), CASE(race_inside_a_warp),
          CASE(atomic_and_plain), CASE(races_in_global_memory), CASE(races_between_blocks_of_a_team),
          CASE(outside_of_an_array), CASE(outside_of_shared_memory), CASE(misaligned_and_read_only),
          CASE(barrier_divergence), CASE(a_lane_outside_its_mask), CASE(waiting_for_another_block), CASE(close_engine))
