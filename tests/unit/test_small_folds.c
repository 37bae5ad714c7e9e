/*
 * Small folds: windows, pools, stencils and sums over short axes, whose elements are chains of terms in a map. Values on
 * every device against plain C, with padding, strides, dilations, sizes that fill no tile, and NaN; plans that show that
 * nothing is exchanged for a window, and that what is long is not taken apart.
 * SPDX-License-Identifier: MIT
 */
#include "base/base.h"
#include "own_file.h"
#include "test.h"

#include "on_devices.h"
#include <quern/workbench.h>
#include <stdlib.h>

static qn_context *context;
static qn_error error;
static const char *where;

static const char *const source =
    "tensor biggest(float x[N][H][W], int k, int s, int p, int d) {\n"
    "  let q = pad(pad(x, p, p, axis = 1, value = -inf), p, p, axis = 2, value = -inf);\n"
    "  return max(window(window(q, k, axis = 1, stride = s, dilation = d), k, axis = 2, stride = s, dilation = d),\n"
    "             axis = {3, 4})[:][:][:][0][0];\n"
    "}\n"
    "tensor biggest_short(bf16 x[N][H][W], int k, int s, int p, int d) {\n"
    "  let q = pad(pad(x, p, p, axis = 1, value = -inf), p, p, axis = 2, value = -inf);\n"
    "  return max(window(window(q, k, axis = 1, stride = s, dilation = d), k, axis = 2, stride = s, dilation = d),\n"
    "             axis = {3, 4})[:][:][:][0][0];\n"
    "}\n"
    "tensor one_by_one(float x[N][H][W], int k, int s, int p, int d) {\n"
    "  let q = pad(pad(x, p, p, axis = 1, value = -inf), p, p, axis = 2, value = -inf);\n"
    "  let a = max(window(q, k, axis = 1, stride = s, dilation = d), axis = 3)[:][:][:][0];\n"
    "  return max(window(a, k, axis = 2, stride = s, dilation = d), axis = 3)[:][:][:][0];\n"
    "}\n"
    "tensor total(float x[N][H][W], int k, int s, int p, int d) {\n"
    "  let q = pad(pad(x, p, p, axis = 1), p, p, axis = 2);\n"
    "  return sum(window(window(q, k, axis = 1, stride = s, dilation = d), k, axis = 2, stride = s, dilation = d),\n"
    "             axis = {3, 4})[:][:][:][0][0];\n"
    "}\n"
    "tensor largest(float x[N][H][W], float w[N][OH][OW], int k, int s) {\n"
    "  return sum(max_pool2d(x, k, stride = s, padding = 1) * w);\n"
    "}\n"
    "tensor average(float x[N][H][W], float w[N][OH][OW], int k, int s) {\n"
    "  return sum(avg_pool2d(x, k, stride = s, padding = 1) * w);\n"
    "}\n"
    "tensor largest_slope(float x[N][H][W], float w[N][OH][OW], int k, int s) { return grad(largest, x)(x, w, k, s); "
    "}\n"
    "tensor average_slope(float x[N][H][W], float w[N][OH][OW], int k, int s) { return grad(average, x)(x, w, k, s); "
    "}\n"
    "tensor squares(float x[N][H][W]) {\n"
    "  let y = max_pool2d(x, 3, stride = 2, padding = 1);\n"
    "  return sum(y * y);\n"
    "}\n"
    "tensor pool_and_slope(float x[N][H][W]) {\n"
    "  return max_pool2d(x, 3, stride = 2, padding = 1), grad(squares, x)(x);\n"
    "}\n"
    "tensor long_window(float x[n]) { return max(window(pad(x, 50, 49, axis = 0, value = -inf), 100, axis = 0), axis = "
    "1)[:][0]; }\n"
    "tensor middle(float x[A][B][C]) { return sum(x, axis = 1)[:][0][:]; }\n"
    "tensor best(float x[A][B][C]) { return argmax(x, axis = 1)[:][0][:]; }\n"
    "tensor least(float x[A][B][C]) { return argmin(x, axis = 1)[:][0][:]; }\n"
    "tensor soft(float x[A][B][C]) { return softmax(x, axis = 1); }\n"
    "tensor gelu_pool(float x[N][H][W]) {\n"
    "  return max(window(window(gelu(x), 5, axis = 1), 5, axis = 2), axis = {3, 4})[:][:][:][0][0];\n"
    "}\n"
    "tensor attend(float q[64][256][32], float k[64][256][32], float v[64][256][32]) {\n"
    "  return matmul(softmax(matmul(q, transpose(k)) * 0.125, axis = 2), v);\n"
    "}\n"
    "tensor channel_pool(float x[N][C][H][W]) {\n"
    "  let d = x - mean(x, axis = {0, 2, 3});\n"
    "  return sum(square(max_pool2d(relu(d * rsqrt(mean(d * d, axis = {0, 2, 3}) + 1e-5)), 2)));\n"
    "}\n"
    "tensor channel_pool_slope(float x[N][C][H][W]) { return grad(channel_pool, x)(x); }\n"
    "tensor in_turns(float a[N][C][H][W], float b[N][C][H][W]) {\n"
    "  let y = reshape(stack(a, b, axis = 4), N, C, H, 2 * W)[:][:][1 : H - 2][1 : 2 * W - 1];\n"
    "  return y - sum(y, axis = {0, 2, 3}) * 1e-6;\n"
    "}\n"
    "tensor angles(float x[B][H][N][32], float g[B][H][N][32], float h[B][H][N][32]) {\n"
    "  return sum(g * x - h * square(x), axis = {0, 1});\n"
    "}\n"
    "tensor line(float x[N][W], int k) { return max(window(pad(x, 4, 4, axis = 1, value = -inf), k, axis = "
    "1), axis = 2)[:][:][0]; }\n"
    "tensor heat(float u[H][W]) {\n"
    "  let p = pad(pad(u, 1, 1, axis = 0), 1, 1, axis = 1);\n"
    "  return u + 0.1 * (p[0 : H][1 : W] + p[2 : H][1 : W] + p[1 : H][0 : W] + p[1 : H][2 : W] - 4 * u);\n"
    "}\n"
    "tensor of_each_channel(float x[16][16][H][W], float w[16][1][3][3]) {\n"
    "  let y = conv2d(x, w, padding = 1, groups = 16);\n"
    "  let z = y - mean(y, axis = {0, 2, 3});\n"
    "  return y, z * rsqrt(var(y, axis = {0, 2, 3}, correction = 0.0) + 1e-5);\n"
    "}\n"
    "tensor product_pool(float a[N][M][K], float b[K][W]) {\n"
    "  return max(window(window(matmul(a, b), 3, axis = 1), 3, axis = 2), axis = {3, 4})[:][:][:][0][0];\n"
    "}\n";

static qn_module *module;

/* ---- values ---- */

enum { N = 2, MOST = 760 };
static float image[N * MOST * MOST], results[N * MOST * MOST];

static float noise(int i)
{
    uint64_t x = (uint64_t)(i + 1) * 0x9e3779b97f4a7c15u;
    x ^= x >> 29;
    return (float)((double)((x * 0x94d049bb133111ebu) >> 11) * 0x1p-53 * 2 - 1);
}

typedef struct window_case {
    int h, w, k, s, p, d;
} window_case;

static int places(int size, const window_case *c)
{
    int left = size + 2 * c->p - c->d * (c->k - 1) - 1;
    return left < 0 ? 0 : left / c->s + 1;
}

static double expected(const window_case *c, bool sum, int n, int y, int x)
{
    double r = sum ? 0 : -INFINITY;
    for (int i = 0; i < c->k; i++)
        for (int j = 0; j < c->k; j++) {
            int a = y * c->s - c->p + i * c->d, b = x * c->s - c->p + j * c->d;
            if (a < 0 || a >= c->h || b < 0 || b >= c->w) continue;
            double v = image[(n * c->h + a) * c->w + b];
            if (sum)
                r += v;
            else if (isnan(v) || v > r)
                r = isnan(r) ? r : v;
        }
    return r;
}

static void check_window(const char *name, const window_case *c, bool sum)
{
    qn_call *call;
    int oh = places(c->h, c), ow = places(c->w, c), wrong = 0;
    EXPECT(!qn_call_new(module, name, &call, &error));
    EXPECT(!qn_call_set_memory(call, "x", image, QN_F32, 3, (int64_t[]){N, c->h, c->w}, NULL, &error));
    EXPECT(!qn_call_set_int(call, "k", c->k, &error) && !qn_call_set_int(call, "s", c->s, &error));
    EXPECT(!qn_call_set_int(call, "p", c->p, &error) && !qn_call_set_int(call, "d", c->d, &error));
    memset(results, 0x55, sizeof(results));
    EXPECT(!qn_call_set_memory(call, "result0", results, QN_F32, 3, (int64_t[]){N, oh, ow}, NULL, &error));
    if (qn_call_run(call, where, &error)) {
        printf("%s on %s: %s\n", name, where, error.message);
        wrong = -1;
    }
    for (int i = 0; i < N * oh * ow && !wrong; i++) {
        double want = expected(c, sum, i / ow / oh, i / ow % oh, i % ow), got = results[i];
        bool same = isnan(want) ? isnan(got) : fabs(got - want) <= 1e-5 || got == want;
        if (!same)
            printf("%s on %s, %dx%d k %d s %d p %d d %d: [%d] is %g, not %g\n", name, where, c->h, c->w, c->k, c->s,
                   c->p, c->d, i, got, want);
        wrong += !same;
    }
    EXPECT(!wrong);
    qn_call_free(call);
}

/* The same of bf16, of which the maximum is exact: the upper halves of f32. */
static void check_short_window(const window_case *c)
{
    enum { MOST_SHORT = 1 << 19 };
    static uint16_t x[MOST_SHORT], y[MOST_SHORT];
    int oh = places(c->h, c), ow = places(c->w, c), wrong = 0, count = N * c->h * c->w;
    qn_call *call;
    CHECK(count <= MOST_SHORT);
    for (int i = 0; i < count; i++) {
        uint32_t bits;
        memcpy(&bits, &image[i], 4);
        x[i] = (uint16_t)(bits >> 16);
        bits &= 0xffff0000;
        memcpy(&image[i], &bits, 4);
    }
    EXPECT(!qn_call_new(module, "biggest_short", &call, &error));
    EXPECT(!qn_call_set_memory(call, "x", x, QN_BF16, 3, (int64_t[]){N, c->h, c->w}, NULL, &error));
    EXPECT(!qn_call_set_int(call, "k", c->k, &error) && !qn_call_set_int(call, "s", c->s, &error));
    EXPECT(!qn_call_set_int(call, "p", c->p, &error) && !qn_call_set_int(call, "d", c->d, &error));
    EXPECT(!qn_call_set_memory(call, "result0", y, QN_BF16, 3, (int64_t[]){N, oh, ow}, NULL, &error));
    EXPECT(!qn_call_run(call, where, &error));
    for (int i = 0; i < N * oh * ow; i++) {
        uint32_t bits = (uint32_t)y[i] << 16;
        float got;
        memcpy(&got, &bits, 4);
        double want = expected(c, false, i / ow / oh, i / ow % oh, i % ow);
        wrong += isnan(want) ? !isnan(got) : got != want;
    }
    EXPECT(!wrong);
    qn_call_free(call);
}

static void windows(void)
{
    static const window_case cases[] = {
        {7, 9, 3, 1, 0, 1},   {7, 9, 3, 1, 1, 1},   {13, 70, 2, 2, 0, 1}, {13, 70, 3, 2, 1, 1}, {9, 33, 3, 1, 2, 2},
        {11, 41, 2, 5, 0, 1}, {20, 64, 4, 3, 1, 3}, {5, 5, 5, 1, 0, 1},   {1, 40, 1, 1, 0, 1},  {12, 37, 8, 1, 4, 1},
        {9, 48, 8, 1, 4, 1},  {9, 144, 3, 2, 1, 1}, {8, 64, 3, 3, 0, 2},
    };
    bool slow = !strcmp(where, "ref") || !strcmp(where, "emu");
    for (int i = 0; i < N * MOST * MOST; i++) image[i] = noise(i);
    image[17] = NAN;
    for (int i = 0; i < COUNT(cases); i++) {
        if (slow && i % 3 == 2) continue;
        check_window(i % 3 ? "biggest" : "one_by_one", &cases[i], false);
        if (i % 2) check_window("total", &cases[i], true);
    }
    check_window("eager biggest", &cases[3], false);
    check_window("strict total", &cases[3], true);
}

/* So many results that each thread of a GPU takes several, with a last strip that sticks out, with and without padding,
 * and so narrow that a program has several rows of strips. */
static void strips(void)
{
    static const window_case cases[] = {{515, 611, 3, 1, 1, 1},
                                        {757, 400, 3, 1, 0, 1},
                                        {750, 752, 3, 2, 1, 1},
                                        {733, 757, 2, 1, 2, 3},
                                        {6001, 90, 3, 1, 1, 1}};
    if (!strcmp(where, "ref")) return;
    for (int i = 0; i < N * MOST * MOST; i++) image[i] = noise(i);
    image[17] = NAN;
    for (int i = 0; i < COUNT(cases); i++) check_window(i % 2 ? "total" : "biggest", &cases[i], i % 2);
    check_short_window(&(window_case){513, 496, 3, 1, 1, 1});
}

/* Inputs of whole vectors whose results begin anywhere: threads exchange them. Every residue of a vector, and several
 * results a thread. */
static void between_vectors(void)
{
    enum { LINES = 6, LONG = 712 };
    if (!strcmp(where, "ref")) return;
    for (int i = 0; i < N * MOST * MOST; i++) image[i] = noise(i);
    for (int k = 2; k <= 9; k++) {
        int count = LONG - k + 9, wrong = 0;
        qn_call *call;
        EXPECT(!qn_call_new(module, "line", &call, &error) && !qn_call_set_int(call, "k", k, &error));
        EXPECT(!qn_call_set_memory(call, "x", image, QN_F32, 2, (int64_t[]){LINES, LONG}, NULL, &error));
        EXPECT(!qn_call_set_memory(call, "result0", results, QN_F32, 2, (int64_t[]){LINES, count}, NULL, &error));
        EXPECT(!qn_call_run(call, where, &error));
        for (int i = 0; i < LINES * count; i++) {
            float most = -INFINITY;
            for (int j = 0; j < k; j++) {
                int at = i % count + j - 4;
                if (at >= 0 && at < LONG) most = fmaxf(most, image[i / count * LONG + at]);
            }
            wrong += results[i] != most;
        }
        if (wrong) printf("line of windows of %d on %s: %d wrong\n", k, where, wrong);
        EXPECT(!wrong);
        qn_call_free(call);
    }
    check_window("biggest", &(window_case){360, 392, 4, 1, 1, 1}, false);
    check_short_window(&(window_case){367, 392, 4, 1, 1, 1});
}

/* What is read around each place is read once by a thread that has several of them. */
static void stencils(void)
{
    static const struct {
        int h, w;
    } sizes[] = {{9, 11}, {723, 760}, {757, 726}, {751, 759}};
    if (!strcmp(where, "ref")) return;
    for (int i = 0; i < N * MOST * MOST; i++) image[i] = noise(i);
    for (int s = 0; s < COUNT(sizes); s++) {
        int h = sizes[s].h, w = sizes[s].w, wrong = 0;
        int64_t extents[] = {h, w};
        qn_call *call;
        EXPECT(!qn_call_new(module, "heat", &call, &error));
        EXPECT(!qn_call_set_memory(call, "u", image, QN_F32, 2, extents, NULL, &error));
        memset(results, 0x55, sizeof(results));
        EXPECT(!qn_call_set_memory(call, "result0", results, QN_F32, 2, extents, NULL, &error));
        bool good = !qn_call_run(call, where, &error);
        if (!good) printf("heat on %s: %s\n", where, error.message);
        EXPECT(good);
        for (int i = 0; i < h * w; i++) {
            int y = i / w, x = i % w;
            double u = image[i], flow = -4 * u;
            if (y > 0) flow += image[i - w];
            if (y < h - 1) flow += image[i + w];
            if (x > 0) flow += image[i - 1];
            if (x < w - 1) flow += image[i + 1];
            wrong += !(fabs(results[i] - (u + 0.1 * flow)) < 1e-5);
        }
        if (wrong) printf("heat of %d x %d on %s: %d wrong\n", h, w, where, wrong);
        EXPECT(!wrong);
        qn_call_free(call);
    }
}

/* A short axis between others, with as many results as make it worth a text of its own. */
static void short_axes(void)
{
    enum { A = 5, B = 6, C = 7001 };
    bool slow = !strcmp(where, "ref") || !strcmp(where, "emu");
    int64_t c = slow ? 801 : C, a = slow ? 2 : A, extents[] = {a, B, c};
    float *x = calloc((size_t)(A * B * C), sizeof(float)), *y = calloc((size_t)(A * B * C), sizeof(float));
    int64_t *p = calloc((size_t)(A * C), sizeof(int64_t));
    for (int64_t i = 0; i < a * B * c; i++) x[i] = noise((int)i % 9973);
    x[3] = x[c + 3] = NAN;
    static const char *const names[] = {"middle", "best", "least", "soft"};
    for (int f = 0; f < COUNT(names); f++) {
        qn_call *call;
        int64_t kept[] = {a, c};
        int wrong = 0;
        EXPECT(!qn_call_new(module, names[f], &call, &error));
        EXPECT(!qn_call_set_memory(call, "x", x, QN_F32, 3, extents, NULL, &error));
        if (f == 3) EXPECT(!qn_call_set_memory(call, "result0", y, QN_F32, 3, extents, NULL, &error));
        if (f == 0) EXPECT(!qn_call_set_memory(call, "result0", y, QN_F32, 2, kept, NULL, &error));
        if (f == 1 || f == 2) EXPECT(!qn_call_set_memory(call, "result0", p, QN_I64, 2, kept, NULL, &error));
        EXPECT(!qn_call_run(call, where, &error));
        for (int64_t i = 0; i < a * c; i++) {
            const float *column = &x[i / c * B * c + i % c];
            double sum = 0, bottom = 0;
            int best = 0, least = 0;
            for (int k = 0; k < B; k++) {
                float v = column[k * c], m = column[best * c], l = column[least * c];
                sum += v;
                bottom += exp(v);
                if (!isnan(m) && (isnan(v) || v > m)) best = k;
                if (!isnan(l) && (isnan(v) || v < l)) least = k;
            }
            if (f == 0) wrong += !(fabs(y[i] - sum) < 1e-5 || (isnan(sum) && isnan(y[i])));
            if (f == 1) wrong += p[i] != best;
            if (f == 2) wrong += p[i] != least;
            for (int k = 0; k < B && f == 3; k++) {
                double want = exp(column[k * c]) / bottom, got = y[i / c * B * c + i % c + k * c];
                wrong += !(fabs(got - want) < 1e-5 || (isnan(want) && isnan(got)));
            }
        }
        if (wrong) printf("%s on %s: %d wrong\n", names[f], where, wrong);
        EXPECT(!wrong);
        qn_call_free(call);
    }
    free(x), free(y), free(p);
}

ON_EVERY_DEVICE(windows)
/* Gradients of strided windows: results take turns, two or three along each axis, and the last turn is not whole. */
static void turns(void)
{
    static const struct {
        const char *name;
        int h, w, k, s;
    } cases[] = {{"largest_slope", 515, 611, 3, 2},
                 {"average_slope", 515, 611, 3, 2},
                 {"largest_slope", 514, 610, 2, 2},
                 {"average_slope", 757, 757, 4, 3}};
    static float seeds[N * MOST * MOST], wanted[N * MOST * MOST];
    if (!strcmp(where, "ref") || !strcmp(where, "cpu")) return;
    for (int i = 0; i < N * MOST * MOST; i++) image[i] = noise(i), seeds[i] = noise(i + 5);
    for (int i = 0; i < COUNT(cases); i++) {
        int64_t h = cases[i].h, w = cases[i].w, k = cases[i].k, s = cases[i].s;
        int64_t in[] = {N, h, w}, out[] = {N, (h + 2 - k) / s + 1, (w + 2 - k) / s + 1};
        for (int here = 0; here < 2; here++) {
            qn_call *call;
            EXPECT(!qn_call_new(module, cases[i].name, &call, &error));
            EXPECT(!qn_call_set_memory(call, "x", image, QN_F32, 3, in, NULL, &error));
            EXPECT(!qn_call_set_memory(call, "w", seeds, QN_F32, 3, out, NULL, &error));
            EXPECT(!qn_call_set_int(call, "k", k, &error) && !qn_call_set_int(call, "s", s, &error));
            EXPECT(!qn_call_set_memory(call, "result0", here ? results : wanted, QN_F32, 3, in, NULL, &error));
            bool good = !qn_call_run(call, here ? where : "cpu", &error);
            if (!good) printf("%s on %s: %s\n", cases[i].name, where, error.message);
            EXPECT(good);
            qn_call_free(call);
        }
        int wrong = 0;
        for (int64_t n = 0; n < N * h * w; n++) wrong += !(fabsf(results[n] - wanted[n]) < 1e-5f);
        if (wrong) printf("%s of %d on %s: %d wrong\n", cases[i].name, i, where, wrong);
        EXPECT(!wrong);
    }
}

/* Strips of an array whose one axis is batch, rows and columns: the last strip and the last tile stick out into what comes
 * next. Devices that run blocks in order write the right numbers over the wrong ones. */
static void strips_of_merged_axes(void)
{
    enum { C = 16, H = 57, W = 75, COUNT_ALL = 16 * C * H * W };
    static float weights[C * 9], wanted[2 * COUNT_ALL], found[2 * COUNT_ALL];
    if (strcmp(where, "cuda") != 0) return;
    int64_t in[] = {16, C, H, W}, taps[] = {C, 1, 3, 3};
    for (int i = 0; i < COUNT_ALL; i++) image[i] = noise(i);
    for (int i = 0; i < C * 9; i++) weights[i] = noise(i + 3);
    for (int here = 0; here < 2; here++) {
        float *to = here ? found : wanted;
        qn_call *call;
        EXPECT(!qn_call_new(module, "of_each_channel", &call, &error));
        EXPECT(!qn_call_set_memory(call, "x", image, QN_F32, 4, in, NULL, &error));
        EXPECT(!qn_call_set_memory(call, "w", weights, QN_F32, 4, taps, NULL, &error));
        EXPECT(!qn_call_set_memory(call, "result0", to, QN_F32, 4, in, NULL, &error));
        EXPECT(!qn_call_set_memory(call, "result1", to + COUNT_ALL, QN_F32, 4, in, NULL, &error));
        EXPECT(!qn_call_run(call, here ? where : "cpu", &error));
        qn_call_free(call);
    }
    int wrong = 0;
    for (int i = 0; i < 2 * COUNT_ALL; i++) wrong += !(fabsf(found[i] - wanted[i]) < 1e-4f);
    if (wrong) printf("of_each_channel on %s: %d wrong\n", where, wrong);
    EXPECT(!wrong);
}

ON_EVERY_DEVICE(strips)
ON_EVERY_DEVICE(strips_of_merged_axes)
ON_EVERY_DEVICE(turns)
ON_EVERY_DEVICE(between_vectors)
ON_EVERY_DEVICE(stencils)
ON_EVERY_DEVICE(short_axes)

#include "small_folds_plans.h"

/* ---- memory ---- */

/* At the sizes of a GPU's bench on either device; by itself `show` takes the smaller ones of the CPU there. */
static long long peak_of(const char *path, const char *name, const char *device, bool backward)
{
    static const char *const large[] = {"B=4", "L=2048", "C=2048", "H=16", "G=4", "D=128"};
    text out = {0};
    qn_show_options options = {.stage = "memory", .device = device, .backward = backward};
    if (strstr(name, "attention_block")) options.settings = (qn_settings){large, COUNT(large)};
    bool good = qn_show(context, path, name, &options, collect, &out, &error) == QN_OK;
    if (!good) printf("%s: %s\n", name, error.message);
    const char *at = good ? strstr(text_get(&out), ", peak ") : NULL;
    long long peak = at ? atoll(at + strlen(", peak ")) : -1;
    text_free(&out);
    return peak;
}

/* A kernel for each op writes over what is not needed again; fused ones hold no more. */
TEST(peaks_are_no_higher_than_eager)
{
    static const struct {
        const char *file, *name;
        bool backward;
    } zoo[] = {{"attention_block.qn", "attention_block", false},
               {"swiglu.qn", "swiglu", false},
               {"swiglu.qn", "swiglu", true},
               {"softmax.qn", "softmax_fused", false},
               {"softmax.qn", "softmax_fused", true}};
    static const char *const devices[] = {"cpu", "cuda"};
    FILE *file = fopen(own_file("small_folds.qn"), "w");
    if (file) fputs(source, file), fclose(file);
    for (int d = 0; d < COUNT(devices); d++) {
        for (int i = 0; i < COUNT(zoo); i++) {
            char path[400], eager[80];
            snprintf(path, sizeof(path), QUERN_ROOT "/kernels/%s", zoo[i].file);
            snprintf(eager, sizeof(eager), "eager %s", zoo[i].name);
            long long fused = peak_of(path, zoo[i].name, devices[d], zoo[i].backward);
            long long apart = peak_of(path, eager, devices[d], zoo[i].backward);
            if (fused > apart) printf("%s on %s: %lld, eager %lld\n", zoo[i].name, devices[d], fused, apart);
            EXPECT(fused > 0 && fused <= apart);
        }
        long long fused = peak_of(own_file("small_folds.qn"), "attend", devices[d], false);
        EXPECT(fused > 0 && fused <= peak_of(own_file("small_folds.qn"), "eager attend", devices[d], false));
    }
    remove(own_file("small_folds.qn"));
}

/* Rows that are written over what they were computed from. */
TEST(rows_in_place)
{
    enum { COUNT_OF = 64 * 256 * 32 };
    float *x = calloc(4 * COUNT_OF, sizeof(float));
    static const char *const names[] = {"attend", "eager attend"};
    for (int i = 0; i < COUNT_OF; i++) x[i] = noise(i % 99991) * 3;
    for (int mode = 0; mode < 2; mode++) {
        qn_call *call;
        float *y = x + (2 + mode) * COUNT_OF;
        EXPECT(!qn_call_new(module, names[mode], &call, &error));
        for (int a = 0; a < 3; a++)
            EXPECT(!qn_call_set_memory(call, (const char *const[]){"q", "k", "v"}[a], x, QN_F32, 3,
                                       (int64_t[]){64, 256, 32}, NULL, &error));
        EXPECT(!qn_call_set_memory(call, "result0", y, QN_F32, 3, (int64_t[]){64, 256, 32}, NULL, &error));
        EXPECT(!qn_call_run(call, "cpu", &error));
        qn_call_free(call);
    }
    int wrong = 0;
    for (int i = 0; i < COUNT_OF; i++) wrong += !(fabsf(x[2 * COUNT_OF + i] - x[3 * COUNT_OF + i]) < 1e-4f);
    EXPECT(!wrong);
    free(x);
}

/* Which elements of a window reach its extreme is found again where it is needed: nine truths a window would be larger than
 * what they are found from. */
TEST(a_pool_keeps_no_truths_for_its_slope)
{
    char *words = shown("pool_and_slope", "fusion", (const char *[]){"N=256", "H=256", "W=1024"}, 3);
    EXPECT(strstr(words, "kernel 1:") && !strstr(words, "kernel 2:"));
    for (char *line = strtok(words, "\n"); line; line = strtok(NULL, "\n"))
        EXPECT(!(strstr(line, " bool [") && strstr(line, "-> memory")));
    free(words);
}

TEST(opened)
{
    EXPECT(!qn_context_open(NULL, &context, &error));
    EXPECT(!qn_module_load_text(context, "small_folds.qn", source, &module, &error));
}

TEST(closed)
{
    qn_module_free(module);
    qn_context_close(context);
}

TEST_MAIN(CASE(opened), CASE(a_pool_is_a_map), CASE(a_pool_of_four_is_a_map), CASE(few_rows_of_many_axes_are_cut),
          CASE(sums_of_channels_go_along_memory_on_a_cpu), CASE(chains_are_no_longer_than_a_text_should_be),
          CASE(a_longer_window_gets_the_threads_it_needs), CASE(softmax_of_few_classes_keeps_its_folds),
          CASE(a_function_under_windows_is_stored), CASE(a_product_under_windows_is_stored),
          CASE(plans_tell_their_estimates), CASE(peaks_are_no_higher_than_eager), CASE(rows_in_place),
          CASE(on_devices_windows), CASE(on_devices_strips), CASE(on_devices_strips_of_merged_axes),
          CASE(on_devices_turns), CASE(on_devices_between_vectors), CASE(on_devices_stencils),
          CASE(results_between_vectors_are_exchanged), CASE(stencils_share_their_loads),
          CASE(results_that_take_turns_divide_no_places), CASE(strips_of_merged_axes_end_with_their_rows),
          CASE(overlapping_windows_share_their_loads), CASE(windows_are_loaded_by_vectors), CASE(on_devices_short_axes),
          CASE(a_pool_keeps_no_truths_for_its_slope), CASE(closed))
