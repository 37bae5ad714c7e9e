/*
 * Rows of any length and alignment, reductions over any axes, scans: values of every device against plain C with sums in
 * double. Lengths around the limits of what lanes, a block, a cluster and the grid hold, arrays that begin an element
 * behind a vector, NaN; and what the generated CUDA does with them: whole vectors, registers, one read.
 * SPDX-License-Identifier: MIT
 */
#include "base/base.h"
#include "share.h"
#include "test.h"

#include "on_devices.h"
#include <quern/workbench.h>
#include <stdlib.h>

static qn_context *context;
static qn_error error;
static const char *where;
static qn_module *module;

static const char *const source =
    "tensor soft(float x[A][B][C]) { return softmax(x, axis = 1); }\n"
    "tensor spread(float x[A][B][C]) { return x - mean(x, axis = 1); }\n"
    "tensor total(float x[A][B][C]) { return sum(x, axis = 1); }\n"
    "tensor best(float x[A][B][C]) { return argmax(x, axis = 1); }\n"
    "tensor run(float x[A][B][C]) { return cumsum(x, axis = 1); }\n"
    "tensor top(float x[A][B][C]) { return cummax(x, axis = 1); }\n"
    "tensor soft_row(float x[A][B]) { return softmax(x, axis = 1); }\n"
    "tensor unit(float x[A][B]) { return x / norm(x, axis = 1); }\n"
    "tensor norm_row(bf16 x[A][B], bf16 g[B]) { return layer_norm(x, g, g); }\n"
    "tensor even_channels(float x[N][C][P]) {\n"
    "  let d = x - mean(x, axis = {0, 2});\n"
    "  return d * rsqrt(mean(d * d, axis = {0, 2}) + 1e-5);\n"
    "}\n"
    "tensor channels(float x[N][C][P], float g[C]) {\n"
    "  return (x - mean(x, axis = {0, 2})) * rsqrt(var(x, axis = {0, 2}, correction = 0) + 1e-5) * g[][:][];\n"
    "}\n"
    "tensor pooled(float x[N][C][H][W]) {\n"
    "  let y = max_pool2d(x, 2);\n"
    "  let d = y - mean(y, axis = {1, 2, 3});\n"
    "  return d * rsqrt(mean(d * d, axis = {1, 2, 3}) + 1e-5);\n"
    "}\n"
    "tensor inside(float x[N][C][H][W]) {\n"
    "  let y = x[:][:][0 : H - 1][1 : W - 1];\n"
    "  let d = y - mean(y, axis = {0, 2, 3});\n"
    "  return d * rsqrt(mean(d * d, axis = {0, 2, 3}) + 1e-5);\n"
    "}\n"
    "tensor masked(float x[A][B], bool m[A][B]) { return cumsum(x * m, axis = 1) * 2; }\n"
    "tensor before(float x[A][B]) { return cumsum(x, axis = 1) - x; }\n"
    "tensor backwards(float x[A][B]) { return flip(cumsum(flip(x, axis = 1), axis = 1), axis = 1) + 1; }\n"
    "tensor most(float x[A][B]) { return cummax(relu(x) + 1, axis = 1); }\n"
    "tensor norm_words(float x[A][B], float g[B]) { return layer_norm(x, g, g); }\n"
    "tensor channel_norm(float x[A][B][C]) {\n"
    "  let d = x - mean(x, axis = {0, 2});\n"
    "  return d * rsqrt(mean(d * d, axis = {0, 2}) + 1e-5);\n"
    "}\n"
    "tensor channel_loss(float x[A][B][C], float w[A][B][C]) { return sum(channel_norm(x) * w); }\n"
    "tensor channel_slope(float x[A][B][C], float w[A][B][C]) { return grad(channel_loss, x)(x, w); }\n"
    "tensor norm_pairs(double x[A][B], double g[B]) { return layer_norm(x, g, g); }\n"
    "tensor soft_pairs(bf16 x[A][B]) { return softmax(x, axis = 1); }\n"
    "tensor middle_total(float x[A][B][C]) { return sum(x, axis = 1)[:][0][:]; }\n"
    "tensor middle_best(float x[A][B][C]) { return argmax(x, axis = 1)[:][0][:]; }\n"
    "tensor middle_soft(float x[A][B][C]) { return softmax(x, axis = 1); }\n"
    "tensor turned_scan(float x[A][B]) { return flip(cumsum(flip(x, axis = 1), axis = 1), axis = 1); }\n"
    "tensor late_scan(float x[A][B]) { return cumsum(x, axis = 1, exclusive = true); }\n"
    "tensor large_windows(float x[N][C][H][W]) { return avg_pool2d(x, 7) + max_pool2d(x, 7); }\n"
    "tensor edged(float x[N][C][P]) { let y = pad(x, 1, 2, axis = 2); return y - mean(y, axis = {0, 2}); }\n"
    "tensor joint(float x[A][B], float y[A][B]) { return softmax(x + y, axis = 1); }\n"
    "tensor turned(float x[A][B][C]) { return permute(x, 2, 0, 1) * 2; }\n"
    "tensor added(float x[A][B]) { return sum(x, axis = 0); }\n"
    "tensor gelu_loss(float x[A][B], float g[A][B], float b[B]) { return sum(gelu(x + expand(b, A, B)) * g); }\n"
    "tensor bias_slope(float x[A][B], float g[A][B], float b[B]) { return grad(gelu_loss, b)(x, g, b); }\n"
    "kernel whole_row(in float x[A][B], out float y[A][B]) launch (A)\n"
    "{\n"
    "    tile float v = x[program(0)][:];\n"
    "    y[program(0)][:] = cumsum(v);\n"
    "}\n"
    "kernel best_of(in float x[A][B], out i64 at[A], out float most[A], const int R = 1) launch (cdiv(A, R))\n"
    "{\n"
    "    int r = program(0) * R;\n"
    "    tile float v = x[r : R][:];\n"
    "    at[r : R] = argmax(v, axis = 1);\n"
    "    most[r : R] = max(v, axis = 1);\n"
    "}\n";

static float noise(int64_t i)
{
    uint64_t x = (uint64_t)(i + 1) * 0x9e3779b97f4a7c15u;
    x ^= x >> 29;
    return (float)((double)((x * 0x94d049bb133111ebu) >> 11) * 0x1p-53 * 2 - 1);
}

/* ---- values: x is [a][b][c], folded or scanned along b ---- */

/* An array without elements lies anywhere, or nowhere: nothing of it is touched. */
static void rows_of_nothing(void)
{
    int64_t extents[] = {4, 0};
    qn_call *call;
    EXPECT(!qn_call_new(module, "whole_row", &call, &error));
    for (int i = 0; i < 2; i++)
        EXPECT(!qn_call_set_memory(call, i ? "y" : "x", (void *)(uintptr_t)(4 + 64 * i), QN_F32, 2, extents, NULL,
                                   &error));
    qn_status status = qn_call_run(call, where, &error);
    if (status) printf("%s: %s\n", where, error.message);
    EXPECT(!status);
    qn_call_free(call);
}

/* Rows that begin anywhere in a kernel whose last pass goes by single elements. */
static void several_passes(void)
{
    static float x[5 * 1100 + 4], most[5];
    int64_t at[5], extents[] = {5, 1100}, five = 5;
    qn_call *call;
    for (int i = 0; i < COUNT(x); i++) x[i] = noise(i);
    EXPECT(!qn_call_new(module, "best_of", &call, &error));
    EXPECT(!qn_call_set_memory(call, "x", x + 1, QN_F32, 2, extents, NULL, &error));
    EXPECT(!qn_call_set_memory(call, "at", at, QN_I64, 1, &five, NULL, &error));
    EXPECT(!qn_call_set_memory(call, "most", most, QN_F32, 1, &five, NULL, &error));
    qn_status status = qn_call_run(call, where, &error);
    if (status) printf("%s: %s\n", where, error.message);
    EXPECT(!status);
    for (int r = 0; r < 5 && !status; r++) {
        int64_t best = 0;
        for (int64_t i = 1; i < 1100; i++)
            if (x[1 + r * 1100 + i] > x[1 + r * 1100 + best]) best = i;
        EXPECT(at[r] == best && most[r] == x[1 + r * 1100 + best]);
    }
    qn_call_free(call);
}

enum { MOST = 400000 };
static float room[MOST + 64], results[MOST];
static int64_t places[MOST];
static double expected[MOST];

typedef struct row_case {
    int64_t a, b, c;
    int behind; /* elements from a vector to the array's first */
} row_case;

static void expect_along(const char *name, const float *x, const row_case *s)
{
    for (int64_t line = 0; line < s->a * s->c; line++) {
        const float *from = x + line / s->c * s->b * s->c + line % s->c;
        double most = -INFINITY, sum = 0, squares = 0, carry = 0;
        int64_t at = 0;
        for (int64_t k = 0; k < s->b; k++) {
            double v = from[k * s->c];
            if (v > most || (isnan(v) && !isnan(most))) most = v, at = k;
            sum += v;
            squares += v * v;
        }
        double all = 0;
        for (int64_t k = 0; k < s->b; k++) all += exp((double)from[k * s->c] - most);
        double *to = expected + line / s->c * s->b * s->c + line % s->c;
        bool first = true;
        for (int64_t k = 0; k < s->b; k++, first = false) {
            double v = from[k * s->c], *out = to + k * s->c;
            if (!strncmp(name, "soft", 4)) *out = exp(v - most) / all;
            if (!strcmp(name, "spread")) *out = v - sum / (double)s->b;
            if (!strcmp(name, "unit")) *out = v / sqrt(squares);
            if (!strcmp(name, "run")) *out = carry = first ? v : carry + v;
            if (!strcmp(name, "top"))
                *out = carry = first || isnan(v) || v > carry ? (isnan(carry) ? carry : v) : carry;
        }
        if (!strcmp(name, "total")) expected[line] = sum;
        if (!strcmp(name, "best")) expected[line] = (double)at;
    }
}

static void check(const char *name, const row_case *s, bool nan)
{
    qn_call *call;
    float *x = room + s->behind;
    bool matrix = !strcmp(name, "soft_row") || !strcmp(name, "unit"), small = !strcmp(name, "total");
    bool position = !strcmp(name, "best");
    int64_t in[3] = {s->a, s->b, s->c}, out[3] = {s->a, small || position ? 1 : s->b, s->c};
    int64_t count = s->a * s->c * (small || position ? 1 : s->b);
    EXPECT(s->a * s->b * s->c <= MOST);
    for (int64_t i = 0; i < s->a * s->b * s->c; i++) x[i] = noise(i);
    if (nan) x[s->b / 2 * s->c] = NAN;
    memset(results, 0x55, sizeof(results));
    EXPECT(!qn_call_new(module, name, &call, &error));
    EXPECT(!qn_call_set_memory(call, "x", x, QN_F32, matrix ? 2 : 3, in, NULL, &error));
    if (position)
        EXPECT(!qn_call_set_memory(call, "result0", places, QN_I64, 3, out, NULL, &error));
    else
        EXPECT(!qn_call_set_memory(call, "result0", results, QN_F32, matrix ? 2 : 3, out, NULL, &error));
    int wrong = 0;
    if (qn_call_run(call, where, &error)) {
        printf("%s on %s: %s\n", name, where, error.message);
        wrong = -1;
    }
    expect_along(name, x, s);
    double scale = !strcmp(name, "run") || small ? sqrt((double)s->b) + 1 : 1;
    for (int64_t i = 0; i < count && wrong >= 0 && wrong < 3; i++) {
        double got = position ? (double)places[i] : (double)results[i], want = expected[i];
        bool same = isnan(want) ? isnan(got) : fabs(got - want) <= (position ? 0 : 2e-5 * scale) || got == want;
        if (!same)
            printf("%s on %s of [%lld][%lld][%lld] + %d: [%lld] is %g, not %g\n", name, where, (long long)s->a,
                   (long long)s->b, (long long)s->c, s->behind, (long long)i, got, want);
        wrong += !same;
    }
    EXPECT(!wrong);
    qn_call_free(call);
}

static bool is_slow(void)
{
    return !strcmp(where, "ref") || !strcmp(where, "emu");
}

/* Lengths around what lanes, a block, a long row's block, a cluster and the grid hold, each a little behind a vector. */
static void rows_anywhere(void)
{
    static const row_case cases[] = {
        {5, 1, 1, 1},     {7, 3, 1, 0},     {5, 31, 1, 1},     {3, 256, 1, 1},    {3, 255, 1, 3},    {3, 1023, 1, 0},
        {2, 1024, 1, 3},  {2, 4097, 1, 0},  {2, 16383, 1, 1},  {2, 16384, 1, 1},  {1, 16383, 1, 1},  {2, 50257, 1, 0},
        {2, 65535, 1, 0}, {2, 65536, 1, 1}, {2, 100001, 1, 0}, {1, 262144, 1, 1}, {1, 300001, 1, 2},
    };
    for (int i = 0; i < COUNT(cases); i += share_of_few("rows")) {
        if (!strcmp(where, "ref") && (cases[i].b > 5000 || i % 2)) continue;
        if (is_slow() && cases[i].b > 70000 && i % 2) continue;
        bool all = !is_slow() || cases[i].b < 20000;
        check("unit", &cases[i], false);
        check("soft_row", &cases[i], i % 4 == 1);
        if (i % 2 && all) check("best", &cases[i], i % 3 == 0);
        if (i % 3 == 0 || cases[i].b == 16384 || cases[i].b == 1024) check("run", &cases[i], false);
        if (i % 3 == 1 && all) check("top", &cases[i], i % 2);
    }
}

static void rows_across(void)
{
    static const row_case cases[] = {{2, 3, 33, 0},   {1, 21, 300, 1}, {2, 33, 8, 0},   {1, 100, 65, 1},
                                     {1, 257, 40, 0}, {1, 1025, 9, 0}, {1, 2049, 5, 1}, {1, 4097, 3, 0},
                                     {3, 64, 256, 0}, {1, 700, 300, 0}};
    for (int i = 0; i < COUNT(cases); i += share_of_few("rows")) {
        if (is_slow() && i % 3 == 2) continue;
        if (!strcmp(where, "ref") && i % 3) continue;
        check("soft", &cases[i], i == 2);
        check("best", &cases[i], i == 1);
        check("total", &cases[i], false);
        if (i % 2) check("spread", &cases[i], false);
        check("run", &cases[i], false);
        if (i % 3 == 0) check("top", &cases[i], i == 3);
    }
}

/* A norm over two axes around the kept one: one row, whose digits are coordinates. */
static void norms_of_channels(void)
{
    static const row_case cases[] = {{4, 3, 35, 0},    {8, 5, 64, 0},   {3, 2, 1600, 0},
                                     {16, 2, 1024, 0}, {40, 2, 49, 0},  {20, 2, 4095, 0},
                                     {64, 2, 1156, 0}, {9, 2, 9001, 0}, {100, 2, 1025, 0}};
    for (int i = 0; i < COUNT(cases); i += share_of_few("rows")) {
        const row_case *s = &cases[i];
        float gain[8];
        qn_call *call;
        for (int64_t k = 0; k < s->a * s->b * s->c; k++) room[k] = noise(k);
        for (int k = 0; k < 8; k++) gain[k] = (float)k - 3;
        EXPECT(!qn_call_new(module, "channels", &call, &error));
        EXPECT(!qn_call_set_memory(call, "x", room, QN_F32, 3, (int64_t[]){s->a, s->b, s->c}, NULL, &error));
        EXPECT(!qn_call_set_memory(call, "g", gain, QN_F32, 1, (int64_t[]){s->b}, NULL, &error));
        EXPECT(!qn_call_set_memory(call, "result0", results, QN_F32, 3, (int64_t[]){s->a, s->b, s->c}, NULL, &error));
        EXPECT(!qn_call_run(call, where, &error));
        int wrong = 0;
        for (int64_t c = 0; c < s->b; c++) {
            double sum = 0, squares = 0, n = (double)(s->a * s->c);
            for (int64_t k = 0; k < s->a * s->c; k++) sum += room[(k / s->c * s->b + c) * s->c + k % s->c];
            for (int64_t k = 0; k < s->a * s->c; k++) {
                double v = room[(k / s->c * s->b + c) * s->c + k % s->c] - sum / n;
                squares += v * v;
            }
            for (int64_t k = 0; k < s->a * s->c; k++) {
                int64_t at = (k / s->c * s->b + c) * s->c + k % s->c;
                double want = (room[at] - sum / n) / sqrt(squares / n + 1e-5) * gain[c];
                wrong += !(fabs(results[at] - want) <= 1e-4);
            }
        }
        EXPECT(!wrong);
        qn_call_free(call);
    }
}

/* A norm of what windows give, over planes that are no multiple of anything. */
static void norms_of_pools(void)
{
    static const int64_t sizes[][4] = {{2, 3, 35, 34}, {3, 8, 34, 34}, {1, 5, 131, 127}};
    for (int i = 0; i < COUNT(sizes); i++) {
        const int64_t *s = sizes[i], h = s[2] / 2, w = s[3] / 2, each = s[1] * h * w;
        qn_call *call;
        for (int64_t k = 0; k < s[0] * s[1] * s[2] * s[3]; k++) room[k] = noise(k);
        EXPECT(!qn_call_new(module, "pooled", &call, &error));
        EXPECT(!qn_call_set_memory(call, "x", room, QN_F32, 4, s, NULL, &error));
        EXPECT(!qn_call_set_memory(call, "result0", results, QN_F32, 4, (int64_t[]){s[0], s[1], h, w}, NULL, &error));
        EXPECT(!qn_call_run(call, where, &error));
        float *y = malloc(sizeof(float) * (size_t)each);
        int wrong = 0;
        for (int64_t n = 0; n < s[0]; n++) {
            double sum = 0, squares = 0;
            for (int64_t k = 0; k < each; k++) {
                const float *from = room + ((n * s[1] + k / (h * w)) * s[2] + k / w % h * 2) * s[3] + k % w * 2;
                y[k] = fmaxf(fmaxf(from[0], from[1]), fmaxf(from[s[3]], from[s[3] + 1]));
                sum += y[k];
            }
            double mean = sum / (double)each;
            for (int64_t k = 0; k < each; k++) squares += (y[k] - mean) * (y[k] - mean);
            for (int64_t k = 0; k < each; k++) {
                double want = (y[k] - mean) / sqrt(squares / (double)each + 1e-5);
                wrong += !(fabs(results[n * each + k] - want) <= 1e-4);
            }
        }
        EXPECT(!wrong);
        free(y);
        qn_call_free(call);
    }
}

/* Windows of 49 elements, folded down and then along. */
static void large_windows(void)
{
    static const int64_t sizes[][4] = {{2, 3, 40, 45}, {1, 2, 7, 301}};
    for (int i = 0; i < COUNT(sizes); i++) {
        const int64_t *s = sizes[i], h = s[2] / 7, w = s[3] / 7;
        qn_call *call;
        for (int64_t k = 0; k < s[0] * s[1] * s[2] * s[3]; k++) room[k] = noise(k);
        EXPECT(!qn_call_new(module, "large_windows", &call, &error));
        EXPECT(!qn_call_set_memory(call, "x", room, QN_F32, 4, s, NULL, &error));
        EXPECT(!qn_call_set_memory(call, "result0", results, QN_F32, 4, (int64_t[]){s[0], s[1], h, w}, NULL, &error));
        EXPECT(!qn_call_run(call, where, &error));
        int wrong = 0;
        for (int64_t k = 0; k < s[0] * s[1] * h * w; k++) {
            const float *from = room + (k / (h * w) * s[2] + k / w % h * 7) * s[3] + k % w * 7;
            double sum = 0, most = from[0];
            for (int e = 0; e < 49; e++) {
                double v = from[e / 7 * s[3] + e % 7];
                sum += v;
                most = fmax(most, v);
            }
            wrong += !(fabs(results[k] - (sum / 49 + most)) <= 1e-5);
        }
        EXPECT(!wrong);
        qn_call_free(call);
    }
}

/* Under a pad the images are found by a digit of the position too. */
static void norms_with_edges(void)
{
    static const row_case cases[] = {{4, 3, 35, 0}, {8, 5, 61, 0}, {16, 3, 1021, 0}, {3, 2, 6000, 0}};
    for (int i = 0; i < COUNT(cases); i += share_of_few("rows")) {
        const row_case *s = &cases[i];
        int64_t wide = s->c + 3;
        qn_call *call;
        for (int64_t k = 0; k < s->a * s->b * s->c; k++) room[k] = noise(k);
        EXPECT(!qn_call_new(module, "edged", &call, &error));
        EXPECT(!qn_call_set_memory(call, "x", room, QN_F32, 3, (int64_t[]){s->a, s->b, s->c}, NULL, &error));
        EXPECT(!qn_call_set_memory(call, "result0", results, QN_F32, 3, (int64_t[]){s->a, s->b, wide}, NULL, &error));
        EXPECT(!qn_call_run(call, where, &error));
        int wrong = 0;
        for (int64_t c = 0; c < s->b; c++) {
            double sum = 0;
            for (int64_t k = 0; k < s->a * s->c; k++) sum += room[(k / s->c * s->b + c) * s->c + k % s->c];
            for (int64_t k = 0; k < s->a * wide; k++) {
                int64_t image = k / wide * s->b + c, at = k % wide;
                double x = at > 0 && at <= s->c ? room[image * s->c + at - 1] : 0;
                wrong += !(fabs(results[image * wide + at] - (x - sum / (double)(s->a * wide))) <= 1e-5);
            }
        }
        EXPECT(!wrong);
        qn_call_free(call);
    }
}

static void permutations(void)
{
    static const row_case cases[] = {{3, 50, 7, 0},  {2, 3, 700, 0},  {70, 5, 66, 0},
                                     {1, 129, 2, 0}, {1, 97, 131, 0}, {2, 32, 64, 0}};
    for (int i = 0; i < COUNT(cases); i += share_of_few("rows")) {
        const row_case *s = &cases[i];
        qn_call *call;
        for (int64_t k = 0; k < s->a * s->b * s->c; k++) room[k] = noise(k);
        EXPECT(!qn_call_new(module, "turned", &call, &error));
        EXPECT(!qn_call_set_memory(call, "x", room, QN_F32, 3, (int64_t[]){s->a, s->b, s->c}, NULL, &error));
        EXPECT(!qn_call_set_memory(call, "result0", results, QN_F32, 3, (int64_t[]){s->c, s->a, s->b}, NULL, &error));
        EXPECT(!qn_call_run(call, where, &error));
        int wrong = 0;
        for (int64_t k = 0; k < s->a * s->b * s->c; k++)
            wrong += results[k % s->c * s->a * s->b + k / s->c] != 2 * room[k];
        EXPECT(!wrong);
        qn_call_free(call);
    }
}

static bool call_of(const char *name, const float *x, int rank, const int64_t *in, void *y, qn_dtype type,
                    int result_rank, const int64_t *out)
{
    qn_call *call;
    EXPECT(!qn_call_new(module, name, &call, &error));
    EXPECT(!qn_call_set_memory(call, "x", (void *)x, QN_F32, rank, in, NULL, &error));
    EXPECT(!qn_call_set_memory(call, "result0", y, type, result_rank, out, NULL, &error));
    bool good = !qn_call_run(call, where, &error);
    if (!good) printf("%s on %s: %s\n", name, where, error.message);
    EXPECT(good);
    qn_call_free(call);
    return good;
}

#include "rows_scans.h"

/* A row that the chip does not hold, of lines that begin at vectors: results go piece by piece, the last one not whole. */
static void rows_beyond_the_chip(void)
{
    enum { LINES = 133, LINE = 32772 };
    if (strcmp(where, "emu") && strcmp(where, "cuda")) return;
    float *x = malloc(sizeof(float) * LINES * LINE), *y = malloc(sizeof(float) * LINES * LINE);
    int64_t extents[] = {LINES, 1, LINE}, count = (int64_t)LINES * LINE;
    double sum = 0, squares = 0;
    for (int64_t i = 0; i < count; i++) x[i] = noise(i) + 3, sum += x[i];
    for (int64_t i = 0; i < count; i++) squares += (x[i] - sum / (double)count) * (x[i] - sum / (double)count);
    int64_t wrong = !call_of("even_channels", x, 3, extents, y, QN_F32, 3, extents);
    for (int64_t i = 0; i < count && !wrong; i++) {
        double want = (x[i] - sum / (double)count) / sqrt(squares / (double)count + 1e-5);
        wrong += !(fabs(y[i] - want) < 1e-4);
    }
    if (wrong) printf("rows beyond the chip on %s are wrong\n", where);
    EXPECT(!wrong);
    free(x), free(y);
}

/* ... of lines that are short, for the image lies in a larger one. */
static void images_beyond_the_chip(void)
{
    enum { N = 130, C = 2, H = 182, W = 181, PLANE = (H - 1) * (W - 1) };
    if (strcmp(where, "emu") && strcmp(where, "cuda")) return;
    float *x = malloc(sizeof(float) * N * C * H * W), *y = malloc(sizeof(float) * N * C * PLANE);
    int64_t in[] = {N, C, H, W}, out[] = {N, C, H - 1, W - 1}, wrong = 0;
    for (int64_t i = 0; i < (int64_t)N * C * H * W; i++) x[i] = noise(i) + 3;
    wrong = !call_of("inside", x, 4, in, y, QN_F32, 4, out);
    for (int c = 0; c < C && !wrong; c++) {
        double sum = 0, squares = 0, count = (double)N * PLANE;
        for (int pass = 0; pass < 3; pass++)
            for (int64_t i = 0; i < (int64_t)N * PLANE; i++) {
                int64_t image = (i / PLANE * C + c), at = i % PLANE;
                double v = x[(image * H + at / (W - 1)) * W + at % (W - 1) + 1], left = v - sum / count;
                if (pass == 0) sum += v;
                if (pass == 1) squares += left * left;
                if (pass == 2) wrong += !(fabs(y[image * PLANE + at] - left / sqrt(squares / count + 1e-5)) < 1e-4);
            }
    }
    if (wrong) printf("images beyond the chip on %s are wrong\n", where);
    EXPECT(!wrong);
    free(x), free(y);
}

/* Over a middle axis that no thread holds: sums, and positions with NaN, infinities and equal elements. */
static void middle_axes(void)
{
    enum { A = 2, B = 300, C = 601 };
    int64_t in[] = {A, B, C}, out[] = {A, C}, wrong = 0;
    if (!strcmp(where, "ref")) return;
    for (int64_t i = 0; i < A * B * C; i++) room[i] = noise(i % 997);
    for (int64_t k = 0; k < B; k++) room[k * C + 3] = -INFINITY;
    room[7 * C + 5] = room[90 * C + 5] = NAN;
    if (call_of("middle_best", room, 3, in, places, QN_I64, 2, out)) {
        for (int64_t i = 0; i < A * C; i++) {
            const float *column = room + i / C * B * C + i % C;
            int64_t best = 0;
            for (int64_t k = 1; k < B; k++)
                if (!isnan(column[best * C]) && !(column[k * C] <= column[best * C])) best = k;
            wrong += places[i] != best;
        }
        EXPECT(!wrong);
    }
    room[7 * C + 5] = room[90 * C + 5] = 0;
    for (int64_t k = 0; k < B; k++) room[k * C + 3] = 1;
    if (call_of("middle_total", room, 3, in, results, QN_F32, 2, out)) {
        for (int64_t i = 0; i < A * C; i++) {
            double sum = 0;
            for (int64_t k = 0; k < B; k++) sum += room[i / C * B * C + k * C + i % C];
            wrong += !(fabs(results[i] - sum) < 1e-4);
        }
        EXPECT(!wrong);
    }
}

/* Rows behind a vector, gains that are not. */
static void norms_with_gains(void)
{
    static const int64_t lengths[] = {5, 769, 1001, 4097};
    for (int n = 0; n < COUNT(lengths); n += share_of_few("rows")) {
        int64_t b = lengths[n], extents[] = {3, b};
        qn_call *call;
        int wrong = 0;
        if (!strcmp(where, "ref") && b > 1000) continue;
        for (int64_t i = 0; i < 3 * b; i++) room[1 + i] = noise(i);
        float *gain = room + 4 + 3 * b;
        for (int64_t i = 0; i < b; i++) gain[i] = noise(i + 77);
        EXPECT(!qn_call_new(module, "norm_words", &call, &error));
        EXPECT(!qn_call_set_memory(call, "x", room + 1, QN_F32, 2, extents, NULL, &error));
        EXPECT(!qn_call_set_memory(call, "g", gain, QN_F32, 1, &b, NULL, &error));
        EXPECT(!qn_call_set_memory(call, "result0", results, QN_F32, 2, extents, NULL, &error));
        EXPECT(!qn_call_run(call, where, &error));
        for (int64_t r = 0; r < 3; r++) {
            const float *x = room + 1 + r * b;
            double mean = 0, spread = 0;
            for (int64_t i = 0; i < b; i++) mean += x[i] / (double)b;
            for (int64_t i = 0; i < b; i++) spread += (x[i] - mean) * (x[i] - mean) / (double)b;
            for (int64_t i = 0; i < b; i++) {
                double want = (x[i] - mean) / sqrt(spread + 1e-5) * gain[i] + gain[i];
                wrong += !(fabs(results[r * b + i] - want) < 1e-4);
            }
        }
        if (wrong) printf("norm of %lld on %s: %d wrong\n", (long long)b, where, wrong);
        EXPECT(!wrong);
        qn_call_free(call);
    }
}

ON_EVERY_DEVICE(turned_scans)
ON_EVERY_DEVICE(short_scans)
ON_EVERY_DEVICE(rows_beyond_the_chip)
ON_EVERY_DEVICE(images_beyond_the_chip)
ON_EVERY_DEVICE(middle_axes)
ON_EVERY_DEVICE(norms_with_gains)
ON_EVERY_DEVICE(rows_anywhere)
ON_EVERY_DEVICE(rows_across)
ON_EVERY_DEVICE(norms_of_channels)
ON_EVERY_DEVICE(norms_of_pools)
ON_EVERY_DEVICE(norms_with_edges)
ON_EVERY_DEVICE(large_windows)
ON_EVERY_DEVICE(scans_with_arithmetic)
ON_EVERY_DEVICE(rows_of_nothing)
ON_EVERY_DEVICE(several_passes)
ON_EVERY_DEVICE(permutations)

#include "rows_texts.h"

TEST(opened)
{
    EXPECT(!qn_context_open(NULL, &context, &error));
    EXPECT(!qn_module_load_text(context, "rows.qn", source, &module, &error));
}

TEST(closed)
{
    qn_module_free(module);
    qn_context_close(context);
}

TEST_MAIN(CASE(opened), CASE(odd_rows_go_by_vectors_and_stay), CASE(rows_of_nothing_are_not_shifted),
          CASE(rows_beyond_a_cluster_share_the_grid), CASE(rows_across_memory_stay_in_threads),
          CASE(scans_stay_in_registers), CASE(scans_of_short_rows_stay_in_registers), CASE(on_devices_short_scans),
          CASE(on_devices_rows_beyond_the_chip), CASE(on_devices_images_beyond_the_chip),
          CASE(results_of_cut_rows_go_by_pieces),
          CASE(columns_are_scanned_many_rows_at_a_time), CASE(columns_ask_for_as_much_of_several_arrays),
          CASE(transposes_are_turned_in_shared_memory), CASE(a_channel_is_one_row), CASE(odd_planes_are_held),
          CASE(rows_are_cut_into_lines), CASE(what_several_loads_give_is_kept), CASE(on_devices_norms_of_pools),
          CASE(on_devices_norms_with_edges), CASE(on_devices_large_windows), CASE(on_devices_scans_with_arithmetic),
          CASE(scans_are_one_kernel), CASE(large_windows_are_folded_axis_by_axis),
          CASE(positions_are_not_kept_beside_a_row), CASE(rows_of_words_beside_a_gain_are_shifted),
          CASE(columns_from_top_to_bottom), CASE(scans_that_are_turned_or_late_are_one_kernel),
          CASE(gradients_of_long_rows_are_held), CASE(on_devices_turned_scans), CASE(on_devices_middle_axes),
          CASE(on_devices_norms_with_gains), CASE(on_devices_rows_anywhere), CASE(on_devices_rows_across),
          CASE(on_devices_norms_of_channels), CASE(on_devices_permutations), CASE(on_devices_rows_of_nothing),
          CASE(on_devices_several_passes), CASE(closed))
