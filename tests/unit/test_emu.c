/*
 * The engine of `emu` on hand-written CUDA text: indices, shuffles, votes, shared memory of every kind, barriers,
 * clusters, cooperative grids, atomics, templates, printing; then the checked mode: races, accesses out of bounds,
 * barrier divergence, each with its line, and none in the text that is right.
 * SPDX-License-Identifier: MIT
 */
#include "test.h"

#include "device/emu/unit.h"

#include <stdlib.h>
#include <unistd.h>

static compiler cpp;
static emu_engine *engine;
static int serial;
static text printed;

static bool make(const char *source, bool checked, emu_library *l, qn_error *error)
{
    char path[64];
    snprintf(path, sizeof(path), "/tmp/quern-emu-%d-%d.so", (int)getpid(), serial++);
    qn_status status = emu_unit_compile(&cpp, source, checked, path, error);
    if (status == QN_OK) status = emu_library_open(path, l, error);
    if (!checked) unlink(path);
    return status == QN_OK;
}

static void unmake(emu_library *l)
{
    if (l->path) unlink(l->path);
    emu_library_close(l);
}

static void collect(void *context, const char *words)
{
    (void)context;
    text_add(&printed, words);
}

typedef struct shape {
    unsigned grid[3], block[3];
    int cluster;
    bool cooperative;
    size_t shared_bytes;
} shape;

static bool launch(const emu_library *l, const char *kernel, shape s, void *const *arguments, const emu_range *ranges,
                   int range_count, emu_launch *out)
{
    qn_error error;
    *out = (emu_launch){.entry = emu_library_find(l, kernel),
                        .arguments = arguments,
                        .cluster_blocks = s.cluster ? s.cluster : 1,
                        .cooperative = s.cooperative,
                        .shared_bytes = s.shared_bytes,
                        .touch = l->touch,
                        .dynamic = l->dynamic,
                        .library_address = (const void *)l->first,
                        .print = collect,
                        .checked = l->checked,
                        .ranges = ranges,
                        .range_count = range_count};
    memcpy(out->grid, s.grid, sizeof(s.grid));
    memcpy(out->block, s.block, sizeof(s.block));
    EXPECT(out->entry != NULL);
    if (!out->entry) return false;
    qn_status status = emu_engine_run(engine, out, &error);
    if (status != QN_OK) printf("%s\n", error.message);
    return status == QN_OK;
}

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

TEST(open_engine)
{
    compiler_find_cpp(&cpp);
    EXPECT(cpp.path[0]);
    engine = emu_engine_new(2);
}

TEST(close_engine)
{
    emu_engine_free(engine);
}

TEST_MAIN(CASE(open_engine), CASE(reduction), CASE(transposed_tile), CASE(dynamic_shared_memory), CASE(namespaces),
          CASE(grid_barrier), CASE(clusters), CASE(votes_and_matches), CASE(threads_in_three_axes),
          CASE(atomics_of_many_blocks), CASE(printing), CASE(names_that_are_missing), CASE(too_many_threads),
          CASE(right_text_has_no_findings), CASE(race_between_warps), CASE(race_inside_a_warp), CASE(atomic_and_plain),
          CASE(races_in_global_memory), CASE(races_between_blocks_of_a_team), CASE(outside_of_an_array),
          CASE(outside_of_shared_memory), CASE(misaligned_and_read_only), CASE(barrier_divergence),
          CASE(a_lane_outside_its_mask), CASE(waiting_for_another_block), CASE(close_engine))
