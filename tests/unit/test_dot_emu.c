/*
 * dot in whole kernels on emu, against ref: every type, turned operands, batches, computed operands, steps, several
 * accumulators of one loop, accumulators that something else touches, tf32, tiles of run-time size.
 * Data are small whole numbers, so that sums are exact in every order.
 * SPDX-License-Identifier: MIT
 */
#include "ir/tile.h"
#include "test.h"

#include <quern/quern.h>
#include <stdlib.h>

static const char source[] =
    "kernel tiled(in T a[M][K], in T b[K][N], out float c[M][N], const int BM = 32, const int BN = 48, const int BK = "
    "24)\n"
    "    launch (cdiv(M, BM), cdiv(N, BN)) types (T in {float, f16, bf16})\n"
    "{\n"
    "    int i = program(0) * BM, j = program(1) * BN;\n"
    "    tile float acc[BM][BN] = 0;\n"
    "    for (int k = 0; k < K; k += BK)\n"
    "        acc += dot(a[i : BM][k : BK], b[k : BK][j : BN]);\n"
    "    c[i : BM][j : BN] = acc;\n"
    "}\n"
    "kernel wide(in double a[M][K], in double b[K][N], out double c[M][N])\n"
    "    launch (cdiv(M, 16))\n"
    "{\n"
    "    int i = program(0) * 16;\n"
    "    for (int j = 0; j < N; j += 32)\n"
    "        c[i : 16][j : 32] = dot(a[i : 16][:], b[:][j : 32]);\n"
    "}\n"
    "kernel bytes(in T a[M][K], in T b[K][N], out i32 c[M][N])\n"
    "    launch (cdiv(M, 16), cdiv(N, 16)) types (T in {i8, u8})\n"
    "{\n"
    "    int i = program(0) * 16, j = program(1) * 16;\n"
    "    c[i : 16][j : 16] = dot(a[i : 16][:], b[:][j : 16]);\n"
    "}\n"
    "kernel turned(in T a[K][M], in T b[N][K], out float c[M][N])\n"
    "    launch (cdiv(M, 32), cdiv(N, 32)) types (T in {float, f16, bf16})\n"
    "{\n"
    "    int i = program(0) * 32, j = program(1) * 32;\n"
    "    tile float left[32][32] = 0, right[32][32] = 0;\n"
    "    for (int k = 0; k < K; k += 16) {\n"
    "        tile T row = transpose(a[k : 16][i : 32]);\n"
    "        left += dot(row, transpose(b[j : 32][k : 16]));\n"
    "        right += dot(row, transpose(T(2 * b[j : 32][k : 16])));\n"
    "    }\n"
    "    c[i : 32][j : 32] = left + right;\n"
    "}\n"
    "kernel scaled(in T a[M][K], in T b[K][N], out float c[M][N])\n"
    "    launch (cdiv(M, 32), cdiv(N, 32)) types (T in {float, f16, bf16})\n"
    "{\n"
    "    int i = program(0) * 32, j = program(1) * 32;\n"
    "    tile float acc[32][32] = 1;\n"
    "    for (int k = 0; k < K; k += 8) {\n"
    "        acc += dot(T(2 * a[i : 32][k : 8]), b[k : 8][j : 32]);\n"
    "        acc = acc - 1;\n"
    "    }\n"
    "    c[i : 32][j : 32] = acc;\n"
    "}\n"
    "kernel factors(in float a[M][K], in float b[K][N], out float c[M][N])\n"
    "    launch (cdiv(M, 32), cdiv(N, 32))\n"
    "{\n"
    "    int i = program(0) * 32, j = program(1) * 32;\n"
    "    tile float left[32][32] = 0, right[32][32] = 0, plain[32][32] = 0, turned[32][32] = 0;\n"
    "    for (int k = 0; k < K; k += 16)\n"
    "        left += dot(tf32(a[i : 32][k : 16] * a[0][][k : 16]), tf32(b[k : 16][j : 32]));\n"
    "    for (int k = 0; k < K; k += 16)\n"
    "        right += dot(tf32(a[i : 32][k : 16]), tf32(b[k : 16][0][] * b[k : 16][j : 32]));\n"
    "    for (int k = 0; k < K; k += 16)\n"
    "        plain += dot(a[i : 32][k : 16] * a[0][][k : 16], b[k : 16][j : 32]);\n"
    "    for (int k = 0; k < K; k += 16)\n"
    "        turned += dot(transpose(b[k : 16][i : 32] * b[k : 16][0][]), b[k : 16][j : 32]);\n"
    "    c[i : 32][j : 32] = left + 3 * right + 5 * plain + 7 * turned;\n"
    "}\n"
    "kernel steps(in T a[M][K], in T b[K][N], out float c[M][N])\n"
    "    launch (cdiv(M, 16), cdiv(N, 16)) types (T in {float, f16, bf16})\n"
    "{\n"
    "    int i = program(0) * 16, j = program(1) * 16;\n"
    "    c[i : 16][j : 16] = dot(a[i : 16][1 : 9 : 2], b[0 : 9][j : 16]);\n"
    "}\n"
    "kernel batches(in T a[M][K], in T b[K][N], out float c[M][N] = 0)\n"
    "    launch (cdiv(M, 4)) types (T in {float, f16, bf16})\n"
    "{\n"
    "    int i = program(0) * 4;\n"
    "    tile T x = a[i : 4][0 : 8], y = b[0 : 8][0 : 16];\n"
    "    tile T stack[4][8][16] = reshape(y, 1, 8, 16);\n"
    "    c[i : 4][0 : 16] = sum(dot(reshape(x, 4, 1, 8), stack), axis = 1);\n"
    "}\n"
    "kernel rounded(in float a[M][K], in float b[K][N], out float c[M][N])\n"
    "    launch (cdiv(M, 32), cdiv(N, 32))\n"
    "{\n"
    "    int i = program(0) * 32, j = program(1) * 32;\n"
    "    tile float acc[32][32] = 0, other[32][32] = 0;\n"
    "    for (int k = 0; k < K; k += 16)\n"
    "        acc += dot(tf32(a[i : 32][k : 16] + 0.0001), tf32(b[k : 16][j : 32]));\n"
    "    for (int k = 0; k < K; k += 16)\n"
    "        other += dot(tf32(a[i : 32][k : 16]), tf32(b[k : 16][j : 32]));\n"
    "    c[i : 32][j : 32] = acc + other + dot(tf32(a[i : 32][:]), b[:][j : 32]);\n"
    "}\n"
    "kernel whole(in T a[M][K], in T b[K][N], out float c[M][N])\n"
    "    launch (1) types (T in {float, f16, bf16})\n"
    "{\n"
    "    for (int i = 0; i < M; i += 8)\n"
    "        c[i : 8][:] = dot(a[i : 8][0 : 16], b[0 : 16][:]);\n"
    "}\n";

static const char thin_source[] =
    "kernel thin(in T a[M][K], in T b[K][N], out float c[M][N], const int BM = 16, const int BN = 32)\n"
    "    launch (cdiv(M, BM), cdiv(N, BN)) tune (warps in {8}) types (T in {f16, bf16})\n"
    "{\n"
    "    int i = program(0) * BM, j = program(1) * BN;\n"
    "    tile float acc[BM][BN] = 0;\n"
    "    for (int k = 0; k < K; k += 64)\n"
    "        acc += dot(a[i : BM][k : 64], b[k : 64][j : BN]);\n"
    "    c[i : BM][j : BN] = acc;\n"
    "}\n"
    "kernel thin_turned(in T a[K][M], in T b[N][K], out float c[M][N], const int BM = 16, const int BN = 32)\n"
    "    launch (cdiv(M, BM), cdiv(N, BN)) tune (warps in {8}) types (T in {f16, bf16})\n"
    "{\n"
    "    int i = program(0) * BM, j = program(1) * BN;\n"
    "    tile float acc[BM][BN] = 0;\n"
    "    for (int k = 0; k < K; k += 64)\n"
    "        acc += dot(transpose(a[k : 64][i : BM]), transpose(b[j : BN][k : 64]));\n"
    "    c[i : BM][j : BN] = acc + sum(acc, axis = 0);\n"
    "}\n";

static qn_context *context;
static qn_module *module;

static int tile[2]; /* BM and BN; 0: the kernel's own */

static void run_one(const char *kernel, dtype t, int64_t m, int64_t n, int64_t k)
{
    bool turned = strstr(kernel, "turned") != NULL;
    int64_t a_shape[2] = {turned ? k : m, turned ? m : k}, b_shape[2] = {turned ? n : k, turned ? k : n};
    size_t size = (size_t)dtypes[t].size_bytes;
    char *a = calloc((size_t)(m * k) + 1, size), *b = calloc((size_t)(k * n) + 1, size);
    for (int64_t i = 0; i < m * k; i++) {
        double x = (double)((i * 7 + i / 5) % 5 - (t == DT_U8 ? 0 : 2));
        element_write(t, a + (size_t)i * size, (number){.f = x, .i = (int64_t)x});
    }
    for (int64_t i = 0; i < k * n; i++) {
        double x = (double)((i * 3 + i / 7) % 7 - (t == DT_U8 ? 0 : 3));
        element_write(t, b + (size_t)i * size, (number){.f = x, .i = (int64_t)x});
    }
    qn_call *calls[2] = {NULL, NULL};
    qn_array results[2];
    qn_error error;
    bool good = true;
    for (int d = 0; d < 2 && good; d++) {
        EXPECT(qn_call_new(module, kernel, &calls[d], &error) == QN_OK);
        good = qn_call_set_memory(calls[d], "a", a, (qn_dtype)t, 2, a_shape, NULL, &error) == QN_OK &&
               qn_call_set_memory(calls[d], "b", b, (qn_dtype)t, 2, b_shape, NULL, &error) == QN_OK &&
               (!tile[0] || (qn_call_set_int(calls[d], "warps", 8, &error) == QN_OK &&
                             qn_call_set_int(calls[d], "BM", tile[0], &error) == QN_OK &&
                             qn_call_set_int(calls[d], "BN", tile[1], &error) == QN_OK)) &&
               qn_call_run(calls[d], d ? "emu" : "ref", &error) == QN_OK &&
               qn_call_get(calls[d], "c", &results[d], &error) == QN_OK;
        if (!good)
            printf("%s of %s, %d x %d x %d: %s\n", kernel, dtypes[t].text, (int)m, (int)n, (int)k, error.message);
        EXPECT(good);
    }
    int bad = 0;
    for (int64_t i = 0; i < m * n && good; i++) {
        dtype of = (dtype)results[0].type;
        number want = element_read(of, (char *)results[0].data + (size_t)(i * dtypes[of].size_bytes));
        number got = element_read(of, (char *)results[1].data + (size_t)(i * dtypes[of].size_bytes));
        double difference = dtype_is_float(of) ? fabs(want.f - got.f) : (double)llabs(want.i - got.i);
        /* `rounded` has sums that are not exact */
        bool close = difference <= (strcmp(kernel, "rounded") ? 0 : 1e-5 * (fabs(want.f) + 1));
        if (!close && !bad++)
            printf("%s of %s, %d x %d x %d: element %d is %g, not %g\n", kernel, dtypes[t].text, (int)m, (int)n, (int)k,
                   (int)i, got.f, want.f);
    }
    EXPECT(!bad);
    for (int d = 0; d < 2; d++) qn_call_free(calls[d]);
    free(a);
    free(b);
}

static void run_kernel(const char *kernel, const dtype *types, int count)
{
    static const int64_t shapes[][3] = {{1, 1, 1}, {40, 56, 50}, {33, 16, 24}};
    for (int t = 0; t < count; t++)
        for (int s = 0; s < COUNT(shapes); s++) run_one(kernel, types[t], shapes[s][0], shapes[s][1], shapes[s][2]);
}

#define KERNEL_TEST(name, ...)                    \
    TEST(name)                                    \
    {                                             \
        static const dtype types[] = __VA_ARGS__; \
        run_kernel(#name, types, COUNT(types));   \
    }
KERNEL_TEST(tiled, {DT_F32, DT_F16, DT_BF16})
KERNEL_TEST(wide, {DT_F64})
KERNEL_TEST(bytes, {DT_I8, DT_U8})
KERNEL_TEST(turned, {DT_F32, DT_BF16})
KERNEL_TEST(scaled, {DT_F32, DT_F16})
KERNEL_TEST(factors, {DT_F32})
KERNEL_TEST(steps, {DT_F32, DT_BF16})
KERNEL_TEST(batches, {DT_F32, DT_BF16})
KERNEL_TEST(rounded, {DT_F32})
KERNEL_TEST(whole, {DT_F32, DT_BF16})

/* Few rows or columns by eight warps that read the rest straight into registers: both orders of both operands, whole turns of 32 * 8
 * steps of k and rests, rows that are no multiple of 16 bytes, more rows than 16. */
TEST(thin)
{
    static const int tiles[][2] = {{16, 32}, {32, 32}, {16, 64}, {16, 16}, {32, 16}, {64, 16}};
    static const int64_t shapes[][3] = {{5, 72, 1320}, {20, 40, 264}, {3, 33, 301}, {16, 64, 32}, {70, 5, 600}, {1, 1, 1}};
    qn_module *others = module;
    qn_error error;
    EXPECT(qn_module_load_text(context, "thin.qn", thin_source, &module, &error) == QN_OK);
    for (int i = 0; i < COUNT(tiles); i++)
        for (int s = 0; s < COUNT(shapes); s++) {
            tile[0] = tiles[i][0], tile[1] = tiles[i][1];
            const int64_t *m = shapes[s];
            if (i % 2 == s % 2 || !i) run_one("thin", s % 2 ? DT_F16 : DT_BF16, m[0], m[1], m[2]);
            if (i % 2 != s % 2 || !i) run_one("thin_turned", s % 2 ? DT_F16 : DT_BF16, m[0], m[1], m[2]);
        }
    tile[0] = 0;
    qn_module_free(module);
    module = others;
}

TEST(open_module)
{
    qn_error error;
    EXPECT(qn_context_open(NULL, &context, &error) == QN_OK);
    qn_status status = qn_module_load_text(context, "dot.qn", source, &module, &error);
    if (status != QN_OK) printf("%s\n", error.message);
    EXPECT(status == QN_OK);
    if (status != QN_OK) exit(1);
}

TEST(close_module)
{
    qn_module_free(module);
    qn_context_close(context);
}

TEST_MAIN(CASE(open_module), CASE(tiled), CASE(wide), CASE(bytes), CASE(turned), CASE(scaled), CASE(factors),
          CASE(steps), CASE(batches), CASE(rounded), CASE(thin), CASE(whole), CASE(close_module))
