/*
 * Layers of small perceptrons as one kernel: values on emu (and a GPU) against the interpreter, with operands by place, row,
 * column and as numbers, widths and batches that fill no block, values that are wanted on the way, numbers that are none;
 * and plans: what is one kernel, what stays apart and why.
 * SPDX-License-Identifier: MIT
 */
#include "base/base.h"
#include "own_file.h"
#include "test.h"

#include <math.h>
#include <quern/device.h>
#include <quern/quern.h>
#include <quern/workbench.h>
#include <stdlib.h>

static qn_context *context;
static qn_error error;
static qn_module *module;

#define TWICE(a, b) "  let " #b " = " #a " * tanh(" #a ");\n"
#define FIVE(a, b) TWICE(a, b##1) TWICE(b##1, b##2) TWICE(b##2, b##3) TWICE(b##3, b##4) TWICE(b##4, b)
#define FORTY \
    FIVE(x, a) FIVE(a, b) FIVE(b, c) FIVE(c, d) FIVE(d, e) FIVE(e, f) FIVE(f, g) FIVE(g, h) /* 2^40 ways down */

static const char *const source =
    "tensor every(float x[B][13], float r[B][40], float s[B][1], float w1[13][40], float b1[40], float w2[40][21],\n"
    "             float b2[21], float w3[21][1], float b3[1]) {\n"
    "  let h = relu(linear(x, w1, b1) + r);\n"
    "  let g = tanh(max(linear(h, w2, b2) * s, -0.25));\n"
    "  return h, sigmoid(reshape(linear(g, w3, b3), B));\n"
    "}\n"
    "tensor perceptron(float x[B][K], float w1[K][N], float b1[N], float w2[N][M], float b2[M], float w3[M][L],\n"
    "                  float w4[L][1]) {\n"
    "  return linear(silu(linear(relu(linear(relu(linear(x, w1, b1)), w2, b2)), w3)), w4);\n"
    "}\n"
    "tensor around(float x[B][K], float w1[K][K], float w2[K][K], float w3[K][K]) {\n"
    "  let h = relu(linear(relu(linear(x, w1)), w2));\n" /* what is added waits for the second product */
    "  return relu(linear(h, w3) + sum(h, axis = 1));\n"
    "}\n"
    "tensor turned(float x[B][K], float w1[K][K], float w2[K][K], float w3[K][K]) {\n"
    "  return linear(relu(linear(relu(linear(x, transpose(w1))), transpose(w2))), transpose(w3));\n"
    "}\n"
    "tensor three(float x[B][K], float w1[K][K], float w2[K][K], float w3[K][K], float w4[K][K]) {\n"
    "  let h = relu(linear(relu(linear(x, w1)), w2));\n"
    "  return linear(h, w2), linear(h, w3), linear(h, w4);\n"
    "}\n"
    "tensor adam(float a[K][M], float g[K][N], float w[M][N], float m[M][N]) {\n"
    "  let d = matmul(transpose(tf32(a)), tf32(g));\n"
    "  let m2 = 0.9 * m + 0.1 * d;\n"
    "  return w - m2 / (sqrt(abs(m2)) + 1e-8), m2;\n"
    "}\n"
    "tensor woven(float x[B][K], float w1[K][K], float w2[K][K], float w3[K][K]) {\n" FORTY
    "  return linear(relu(linear(relu(linear(h, w1)), w2)), w3);\n"
    "}\n"
    "tensor learnt(float x[B][K], float w1[K][N], float b1[N], float w2[N][M], float b2[M], float w3[M][K]) {\n"
    "  return mean(relu(linear(relu(linear(relu(linear(x, w1, b1)), w2, b2)), w3)));\n"
    "}\n";

/* ---- values ---- */

static void fill(float *x, int count, int seed)
{
    for (int i = 0; i < count; i++) x[i] = (float)((i * 37 + seed * 101 + i / 7 * 13) % 65 - 32) / 64;
}

enum { MOST_ROWS = 32, ARRAYS = 9 };

static bool run(const char *where, int rows, bool odd, float *h, float *y)
{
    static float memory[ARRAYS][MOST_ROWS * 64];
    static const struct {
        const char *name;
        int rank;
        int64_t extents[2]; /* 0: rows */
    } arrays[ARRAYS] = {{"x", 2, {0, 13}},   {"r", 2, {0, 40}},  {"s", 2, {0, 1}},
                        {"w1", 2, {13, 40}}, {"b1", 1, {40}},    {"w2", 2, {40, 21}},
                        {"b2", 1, {21}},     {"w3", 2, {21, 1}}, {"b3", 1, {1}}};
    qn_call *call;
    bool good = !qn_call_new(module, "every", &call, &error);
    for (int i = 0; i < ARRAYS && good; i++) {
        int64_t extents[2] = {arrays[i].extents[0] ? arrays[i].extents[0] : rows, arrays[i].extents[1]};
        int count = (int)(extents[0] * (arrays[i].rank > 1 ? extents[1] : 1));
        fill(memory[i], count, i);
        if (odd && i == 0) memory[i][3] = NAN, memory[i][13 * 2 + 5] = INFINITY;
        good = !qn_call_set_memory(call, arrays[i].name, memory[i], QN_F32, arrays[i].rank, extents, NULL, &error);
    }
    good = good && !qn_call_set_memory(call, "result0", h, QN_F32, 2, (int64_t[]){rows, 40}, NULL, &error) &&
           !qn_call_set_memory(call, "result1", y, QN_F32, 1, (int64_t[]){rows}, NULL, &error) &&
           !qn_call_run(call, where, &error);
    if (!good) printf("on %s: %s\n", where, error.message);
    qn_call_free(call);
    return good;
}

static int differ(const float *a, const float *b, int count)
{
    int wrong = 0;
    for (int i = 0; i < count; i++)
        wrong += isnan(a[i]) != isnan(b[i]) || (!isnan(a[i]) && a[i] != b[i] && !(fabsf(a[i] - b[i]) < 1e-5f));
    return wrong;
}

TEST(rows_that_stay_have_the_values_of_single_layers)
{
    static float h[2][MOST_ROWS * 40], y[2][MOST_ROWS];
    static const char *const devices[] = {"emu", "cuda"};
    static const int rows[] = {19, 2, 24};
    for (int d = 0; d < COUNT(devices); d++) {
        qn_device_info info;
        if (qn_device_find(context, devices[d], &info, &error) || !info.available) continue;
        for (int i = 0; i < COUNT(rows); i++) {
            EXPECT(run("ref", rows[i], i == 0, h[0], y[0]) && run(devices[d], rows[i], i == 0, h[1], y[1]));
            EXPECT(!differ(h[0], h[1], rows[i] * 40) && !differ(y[0], y[1], rows[i]));
        }
    }
}

/* ---- plans ---- */

static void collect(void *user, const char *words, size_t length)
{
    text_add_bytes(user, words, length);
}

static char *shown(const char *name, const char *stage, const char *const *settings, int count, const char *arch,
                   bool backward)
{
    const char *path = own_file("stacked.qn");
    text out = {0};
    FILE *file = fopen(path, "w");
    if (file) fputs(source, file), fclose(file);
    qn_show_options options = {
        .stage = stage, .device = "cuda", .arch = arch, .settings = {settings, count}, .backward = backward};
    bool good = qn_show(context, path, name, &options, collect, &out, &error) == QN_OK;
    if (!good) printf("%s: %s\n", name, error.message);
    EXPECT(good);
    remove(path);
    char *words = strdup(text_get(&out));
    text_free(&out);
    return words;
}

#define SHOWN(name, arch, ...) \
    shown(name, "fusion", (const char *const[]){__VA_ARGS__}, COUNT(((const char *const[]){__VA_ARGS__})), arch, false)

TEST(a_small_perceptron_is_one_kernel)
{
    char *plan = SHOWN("every", "sm_90a", "B=128");
    EXPECT(strstr(plan, "kernel 0: layers") && !strstr(plan, "kernel 1:"));
    EXPECT(test_count(plan, "  dot ") == 3 &&
           test_count(plan, "-> memory") == 2); /* its ops are told, and what it leaves */
    free(plan);
    plan = SHOWN("every", "sm_80", "B=128"); /* no clusters */
    EXPECT(!strstr(plan, "layers") && strstr(plan, "kernel 2:"));
    free(plan);
    plan = SHOWN("strict every", "sm_90a", "B=128"); /* other sums */
    EXPECT(!strstr(plan, "layers"));
    free(plan);
    plan = shown("every", "choices", (const char *const[]){"B=128"}, 1, "sm_90a", false);
    EXPECT(strstr(plan, "3 layers, whose rows stay in a cluster: ") && strstr(plan, "one by one "));
    free(plan);
    plan = shown("every", "schedule", (const char *const[]){"B=128"}, 1, "sm_90a", false);
    EXPECT(strstr(plan, "// written in CUDA: "));
    free(plan);
}

TEST(what_does_not_pay_stays_apart)
{
    char *plan = SHOWN("perceptron", "sm_90a", "B=128", "K=16", "N=512", "M=256", "L=64");
    EXPECT(strstr(plan, "kernel 0: layers") && !strstr(plan, "kernel 1:"));
    free(plan);
    plan =
        SHOWN("perceptron", "sm_90a", "B=8192", "K=16", "N=512", "M=256", "L=64"); /* each cluster reads all weights */
    EXPECT(!strstr(plan, "layers") && strstr(plan, "kernel 2:"));
    free(plan);
    plan = SHOWN("perceptron", "sm_90a", "B=128", "K=8192", "N=512", "M=256", "L=64"); /* a row too long */
    EXPECT(strstr(plan, "kernel 1: layers") && !strstr(plan, "kernel 2:"));
    free(plan);
}

TEST(a_stack_waits_for_nothing_of_its_own)
{
    char *plan = SHOWN("around", "sm_90a", "B=64", "K=64"); /* the sum of the first layer, before the second's result */
    EXPECT(strstr(plan, "layers") && strstr(plan, "kernel 1:"));
    free(plan);
    plan = SHOWN("three", "sm_90a", "B=64", "K=64"); /* one goes on with its rows, the others read them */
    EXPECT(test_count(plan, ": layers") == 1 && strstr(plan, "kernel 1:"));
    free(plan);
    plan = SHOWN("turned", "sm_90a", "B=64", "K=64"); /* columns that do not lie side by side */
    EXPECT(!strstr(plan, "layers"));
    free(plan);
}

/* Values that are read twice, over and over, before the first layer: looked at, but not along every way. */
TEST(a_search_ends)
{
    char *plan = SHOWN("woven", "sm_90a", "B=128", "K=64");
    EXPECT(strstr(plan, "layers"));
    free(plan);
}

TEST(what_a_gradient_needs_is_left_on_the_way)
{
    char *plan = shown("learnt", "fusion", (const char *const[]){"B=128", "K=16", "N=64", "M=32"}, 4, "sm_90a", true);
    const char *next = strstr(plan, "kernel 1:");
    EXPECT(strstr(plan, "kernel 0: layers") && next);
    free(plan);
}

/* A short product with an optimiser behind it: its moments are asked for before it multiplies, and of two operands the one
 * that no cache holds is read once. */
TEST(what_follows_a_short_product_is_asked_for_first)
{
    const char *const sizes[] = {"K=128", "M=100000", "N=512"}, *const small[] = {"K=128", "M=300", "N=512"};
    char *words = shown("adam", "cuda", sizes, COUNT(sizes), "sm_90a", false);
    const char *body = strstr(words, "extern \"C\" __global__"), *product = body ? strstr(body, "product::add(") : NULL;
    const char *ask = body ? strstr(body, "ask_rows(") : NULL;
    EXPECT(ask && product && ask < product && test_count(body, "ask_rows(") == 2);
    free(words);
    for (int large = 0; large < 2; large++) {
        words = shown("adam", "tile", large ? sizes : small, COUNT(sizes), "sm_90a", false);
        const char *rows = strstr(words, "= program "); /* the first one is that of the rows */
        EXPECT(rows && !strncmp(rows, large ? "= program 1" : "= program 0", strlen("= program 0")));
        free(words);
    }
}

TEST(opened)
{
    EXPECT(!qn_context_open(NULL, &context, &error));
    EXPECT(!qn_module_load_text(context, "stacked.qn", source, &module, &error));
}

TEST(closed)
{
    qn_module_free(module);
    qn_context_close(context);
}

TEST_MAIN(CASE(opened), CASE(rows_that_stay_have_the_values_of_single_layers), CASE(a_small_perceptron_is_one_kernel),
          CASE(what_does_not_pay_stays_apart), CASE(a_stack_waits_for_nothing_of_its_own), CASE(a_search_ends),
          CASE(what_a_gradient_needs_is_left_on_the_way), CASE(what_follows_a_short_product_is_asked_for_first),
          CASE(closed))
