/*
 * The engine of `emu` on hand-written CUDA text: indices, shuffles, votes, shared memory of every kind, barriers,
 * clusters, cooperative grids, atomics, templates, printing; then the checked mode: races, accesses out of bounds,
 * barrier divergence, each with its line, and none in the text that is right.
 * SPDX-License-Identifier: MIT
 */
#include "emu_text.h"

/* Compiles and runs one text without checks. */
static bool run(const char *source, const char *kernel, shape s, void *const *arguments)
{
    emu_library l = {0};
    qn_error error;
    emu_launch launched = {0};
    bool good = make(source, false, &l, &error);
    if (!good) printf("%s\n", error.message);
    if (good) good = launch(&l, kernel, s, arguments, NULL, 0, &launched);
    if (good && launched.stopped) {
        printf("%s\n", launched.findings[0].words);
        good = false;
    }
    unmake(&l);
    return good;
}

static const char sum_text[] =
    "extern \"C\" __global__ void __launch_bounds__(256) total(const float *x, float *y, int n)\n"
    "{\n"
    "    __shared__ float part[32];\n"
    "    float s = 0;\n"
    "    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) s += x[i];\n"
    "    for (int o = 16; o; o >>= 1) s += __shfl_xor_sync(0xffffffff, s, o);\n"
    "    if (threadIdx.x % 32 == 0) part[threadIdx.x / 32] = s;\n"
    "    __syncthreads();\n"
    "    if (threadIdx.x < 32) {\n"
    "        s = threadIdx.x < blockDim.x / 32 ? part[threadIdx.x] : 0;\n"
    "        for (int o = 16; o; o >>= 1) s += __shfl_down_sync(0xffffffff, s, o);\n"
    "        if (threadIdx.x == 0) atomicAdd(y, s);\n"
    "    }\n"
    "}\n";

TEST(reduction)
{
    float x[10000], y = 0;
    int n = COUNT(x);
    const float *data = x;
    float *out = &y;
    for (int i = 0; i < n; i++) x[i] = (float)(i % 7);
    double want = 0;
    for (int i = 0; i < n; i++) want += x[i];
    EXPECT(run(sum_text, "total", (shape){.grid = {5, 1, 1}, .block = {256, 1, 1}}, (void *[]){&data, &out, &n}));
    EXPECT(y == (float)want);
}

TEST(transposed_tile)
{
    static float x[70][90], y[90][70];
    int rows = 70, columns = 90;
    float *from = &x[0][0], *to = &y[0][0];
    for (int i = 0; i < rows * columns; i++) from[i] = (float)i;
    EXPECT(run("template <int T> __device__ void turn(const float *x, float *y, int rows, int columns)\n"
               "{\n"
               "    __shared__ float tile[T][T + 1];\n"
               "    int i = blockIdx.y * T + threadIdx.y, j = blockIdx.x * T + threadIdx.x;\n"
               "    if (i < rows && j < columns) tile[threadIdx.y][threadIdx.x] = x[i * columns + j];\n"
               "    __syncthreads();\n"
               "    i = blockIdx.x * T + threadIdx.y, j = blockIdx.y * T + threadIdx.x;\n"
               "    if (i < columns && j < rows) y[i * rows + j] = tile[threadIdx.x][threadIdx.y];\n"
               "}\n"
               "extern \"C\" __global__ void turn16(const float *x, float *y, int rows, int columns)\n"
               "{ turn<16>(x, y, rows, columns); }\n",
               "turn16", (shape){.grid = {6, 5, 1}, .block = {16, 16, 1}}, (void *[]){&from, &to, &rows, &columns}));
    bool same = true;
    for (int i = 0; i < rows; i++)
        for (int j = 0; j < columns; j++) same &= y[j][i] == x[i][j];
    EXPECT(same);
}

TEST(dynamic_shared_memory)
{
    int y[96], *out = y;
    EXPECT(run("extern \"C\" __global__ void back(int *y)\n"
               "{\n"
               "    extern __shared__ __align__(16) unsigned char bytes[];\n"
               "    extern __shared__ int words[];\n"
               "    words[threadIdx.x] = threadIdx.x;\n"
               "    __syncthreads();\n"
               "    y[blockIdx.x * 32 + threadIdx.x] = ((int *)bytes)[31 - threadIdx.x] + 100 * blockIdx.x;\n"
               "}\n",
               "back", (shape){.grid = {3, 1, 1}, .block = {32, 1, 1}, .shared_bytes = 128}, (void *[]){&out}));
    bool same = true;
    for (int i = 0; i < 96; i++) same &= y[i] == 31 - i % 32 + 100 * (i / 32);
    EXPECT(same);
}

TEST(namespaces)
{
    int y[2] = {0}, *out = y;
    EXPECT(run("namespace one { extern \"C\" __global__ void f(int *y) { extern __shared__ int room[]; *room = 3; *y = "
               "*room; } }\n"
               "namespace two { extern \"C\" __global__ void g(int *y) { extern __shared__ char room[]; *room = 4; *y "
               "= *room; } }\n",
               "g", (shape){.grid = {1, 1, 1}, .block = {1, 1, 1}, .shared_bytes = 16}, (void *[]){&out}));
    EXPECT(y[0] == 4);
}

TEST(grid_barrier)
{
    int data[4 * 64] = {0}, sums[4] = {0}, *x = data, *y = sums;
    EXPECT(run("extern \"C\" __global__ void grid(int *x, int *y)\n"
               "{\n"
               "    __shared__ int own;\n"
               "    if (threadIdx.x == 0) own = blockIdx.x;\n"
               "    x[blockIdx.x * 64 + threadIdx.x] = blockIdx.x + 1;\n"
               "    emu_grid_sync();\n"
               "    int n = x[(gridDim.x - 1 - blockIdx.x) * 64 + threadIdx.x];\n"
               "    emu_grid_sync();\n"
               "    atomicAdd(&y[blockIdx.x], n + 1000 * own);\n"
               "}\n",
               "grid", (shape){.grid = {4, 1, 1}, .block = {64, 1, 1}, .cooperative = true}, (void *[]){&x, &y}));
    for (int i = 0; i < 4; i++) EXPECT(sums[i] == 64 * (4 - i + 1000 * i));
}

TEST(clusters)
{
    int sums[8] = {0}, *y = sums;
    EXPECT(run("extern \"C\" __global__ void cluster(int *y)\n"
               "{\n"
               "    __shared__ int part[2];\n"
               "    if (threadIdx.x < 2) part[threadIdx.x] = 10 * blockIdx.x + threadIdx.x;\n"
               "    emu_cluster_sync();\n"
               "    int s = 0;\n"
               "    for (unsigned r = 0; r < emu_cluster_size(); r++) s += emu_cluster_map(part, r)[1];\n"
               "    if (threadIdx.x == 0) y[blockIdx.x] = s;\n"
               "    if (threadIdx.x == 33) atomicAdd(emu_cluster_map(&part[0], emu_cluster_rank() ^ 1), 5);\n"
               "    emu_cluster_sync();\n"
               "    if (threadIdx.x == 0) y[blockIdx.x] += 1000 * part[0];\n"
               "}\n",
               "cluster", (shape){.grid = {8, 1, 1}, .block = {64, 1, 1}, .cluster = 4}, (void *[]){&y}));
    for (int i = 0; i < 8; i++) EXPECT(sums[i] == (i < 4 ? 64 : 224) + 1000 * (10 * i + 5));
}

TEST(votes_and_matches)
{
    unsigned y[32 * 6], *out = y;
    EXPECT(run(
        "extern \"C\" __global__ void votes(unsigned *y)\n"
        "{\n"
        "    int t = threadIdx.x;\n"
        "    y[t] = __ballot_sync(0xffffffff, t % 3 == 0);\n"
        "    y[32 + t] = __any_sync(0xffffffff, t == 5) + 2 * __all_sync(0xffffffff, t < 31);\n"
        "    y[64 + t] = __match_any_sync(0xffffffff, t / 8);\n"
        "    y[96 + t] = __reduce_add_sync(0xffffffff, t);\n"
        "    y[128 + t] = t < 16 ? __shfl_sync(0xffff, t, 3) : __shfl_up_sync(0xffff0000, t, 2, 16);\n"
        "    y[160 + t] = __syncthreads_count(t & 1) + 100 * __syncthreads_or(t == 9) + 1000 * __syncthreads_and(t);\n"
        "}\n",
        "votes", (shape){.grid = {1, 1, 1}, .block = {32, 1, 1}}, (void *[]){&out}));
    unsigned thirds = 0;
    for (int t = 0; t < 32; t += 3) thirds |= 1u << t;
    bool same = true;
    for (unsigned t = 0; t < 32; t++)
        same &= y[t] == thirds && y[32 + t] == 1 && y[64 + t] == 0xffu << (t / 8 * 8) && y[96 + t] == 496 &&
                y[128 + t] == (t < 16   ? 3
                               : t < 18 ? t
                                        : t - 2) &&
                y[160 + t] == 116;
    EXPECT(same);
}

TEST(threads_in_three_axes)
{
    int y[2 * 3 * 4 * 2 * 3 * 2], *out = y;
    memset(y, 0, sizeof(y));
    EXPECT(run("extern \"C\" __global__ void axes(int *y)\n"
               "{\n"
               "    int b = (blockIdx.z * gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x;\n"
               "    int t = (threadIdx.z * blockDim.y + threadIdx.y) * blockDim.x + threadIdx.x;\n"
               "    y[b * 24 + t] = 1000 * threadIdx.z + 100 * threadIdx.y + 10 * threadIdx.x + blockIdx.y;\n"
               "}\n",
               "axes", (shape){.grid = {2, 3, 2}, .block = {2, 3, 4}}, (void *[]){&out}));
    EXPECT(y[0] == 0 && y[24 + 23] == 3000 + 200 + 10 && y[24 * 4 + 7] == 1000 + 10 + 2);
}

TEST(atomics_of_many_blocks)
{
    unsigned counts[4] = {0}, *y = counts;
    double total = 0, *d = &total;
    int biggest = -5, *m = &biggest;
    EXPECT(run("extern \"C\" __global__ void count(unsigned *y, double *d, int *m)\n"
               "{\n"
               "    atomicInc(&y[threadIdx.x & 3], 1000000u);\n"
               "    atomicAdd(d, 0.5);\n"
               "    atomicMax(m, (int)(blockIdx.x * blockDim.x + threadIdx.x));\n"
               "}\n",
               "count", (shape){.grid = {200, 1, 1}, .block = {64, 1, 1}}, (void *[]){&y, &d, &m}));
    for (int i = 0; i < 4; i++) EXPECT(counts[i] == 3200);
    EXPECT(total == 6400 && biggest == 12799);
}

TEST(printing)
{
    text_clear(&printed);
    int n = 2;
    EXPECT(run(
        "extern \"C\" __global__ void tell(int n) { if (threadIdx.x < n) printf(\"%d of %d\\n\", threadIdx.x, n); }\n",
        "tell", (shape){.grid = {1, 1, 1}, .block = {40, 1, 1}}, (void *[]){&n}));
    EXPECT(!strcmp(text_get(&printed), "0 of 2\n1 of 2\n"));
    text_free(&printed);
}

/* As a GPU does: a vector lies at a multiple of its size. */
TEST(misaligned_vectors)
{
    static const char text[] = "extern \"C\" __global__ void move(const float *x, float *y)\n{\n"
                               "    *(float4 *)y = *(const float4 *)x;\n}\n";
    static _Alignas(16) float x[8], y[4];
    emu_library l = {0};
    qn_error error;
    EXPECT(make(text, false, &l, &error));
    for (int shift = 0; shift < 5; shift++) {
        emu_launch launched = {0};
        const float *from = x + shift;
        float *to = y;
        launch(&l, "move", (shape){.grid = {1, 1, 1}, .block = {1, 1, 1}}, (void *[]){&from, &to}, NULL, 0, &launched);
        EXPECT(launched.stopped == (shift % 4 != 0));
        if (launched.stopped) EXPECT(strstr(launched.findings[0].words, "a misaligned address, of 16 bytes or more"));
    }
    unmake(&l);
}

TEST(names_that_are_missing)
{
    emu_library l = {0};
    qn_error error;
    EXPECT(!make("extern \"C\" __global__ void f(float *x) { *x = __nv_unknown(*x); }\n", false, &l, &error));
    EXPECT(strstr(error.message, "emu does not have `__nv_unknown`") != NULL);
    EXPECT(!make("extern \"C\" __global__ void f(int *x)\n{\n    asm(\"mov.u32 %0, 5;\" : \"=r\"(*x));\n}\n", false, &l,
                 &error));
    EXPECT(strstr(error.message, "generated CUDA:3") && strstr(error.message, "emu has no inline PTX"));
}

TEST(too_many_threads)
{
    emu_library l = {0};
    qn_error error;
    EXPECT(make("extern \"C\" __global__ void f() {}\n", false, &l, &error));
    emu_launch big = {.entry = emu_library_find(&l, "f"), .grid = {1, 1, 1}, .block = {64, 32, 1}, .touch = l.touch};
    EXPECT(emu_engine_run(engine, &big, &error) == QN_BAD_CALL);
    EXPECT(!strcmp(error.message, "a block of 64 x 32 x 1 = 2048 threads: a block has at most 1024 threads"));
    unmake(&l);
}

TEST_MAIN(CASE(open_engine), CASE(reduction), CASE(transposed_tile), CASE(dynamic_shared_memory), CASE(namespaces),
          CASE(grid_barrier), CASE(clusters), CASE(votes_and_matches), CASE(threads_in_three_axes),
          CASE(atomics_of_many_blocks), CASE(printing), CASE(misaligned_vectors), CASE(names_that_are_missing),
          CASE(too_many_threads), CASE(close_engine))
