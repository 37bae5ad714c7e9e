/*
 * Many short rows, one behind the other, that begin between vectors of memory: a GPU loads and stores them as one line, and
 * each thread has a row. Values on every device against plain C, where the last rows are missing, rows have a batch, and
 * something else comes with them; layouts that show that nothing is exchanged between threads, and which rows go otherwise.
 * SPDX-License-Identifier: MIT
 */
#include "base/base.h"
#include "own_file.h"
#include "test.h"

#include "on_devices.h"
#include <quern/workbench.h>
#include <stdlib.h>

static qn_context *context;
static qn_module *module;
static qn_error error;
static const char *where;

static const char *const source =
    "tensor soft(float x[N][D]) { return softmax(x, axis = 1); }\n"
    "tensor soft_short(bf16 x[N][D]) { return softmax(x, axis = 1); }\n"
    "tensor shifted(float x[A][N][D], float m[A][D], float s[N]) {\n"
    "  let y = (x + m[:][][:]) * s[][:][];\n"
    "  return y - mean(y, axis = 2, keep = true), argmax(y, axis = 2)[:][:][0];\n"
    "}\n"
    "tensor slope(float x[N][D], float dy[N][D]) {\n"
    "  let y = softmax(x, axis = 1);\n"
    "  return y * (dy - sum(y * dy, axis = 1, keep = true));\n"
    "}\n"
    "tensor joined(float x[N][C], float y[N][C]) {\n"
    "  let a = concat(full(1.0, N, 1), x, axis = 1);\n"
    "  let b = concat(y, full(0.0, N, 1), axis = 1);\n"
    "  return sum(a * b, axis = 1), b;\n"
    "}\n"
    "tensor apart(float x[N][64]) { return softmax(x[:][3 : 7], axis = 1); }\n"
    "tensor weighed(float x[N][C][P], float g[C]) { return sum(x * g[][:][], axis = {1, 2}); }\n"
    "tensor patches(float x[N][C][H][W]) {\n"
    "  return permute(window(window(x, 4, axis = 2, stride = 2), 4, axis = 3, stride = 2), 0, 2, 3, 1, 4, 5);\n"
    "}\n"
    "tensor mean_of_some(float x[B][T][D], i64 t[B][T]) {\n"
    "  let m = where(t > 3, 1.0, 0.0);\n"
    "  return sum(x * m[:][:][], axis = 1, keep = false) / max(sum(m, axis = 1), 1);\n"
    "}\n"
    "tensor evened(float x[N][D], float g[D], float b[D]) { return layer_norm(x, g, b); }\n"
    "tensor evened_pairs(float x[N][2][D], float g[D], float b[D]) {\n"
    "  let y = layer_norm(x, g, b);\n"
    "  return y[:][0][:] + y[:][1][:];\n"
    "}\n"
    "tensor normed(float x[N][D], float dy[N][D], float g[D], float b[D]) { return sum(layer_norm(x, g, b) * dy); }\n"
    "tensor norm_slope(float x[N][D], float dy[N][D], float g[D], float b[D]) {\n"
    "  return grad(normed, x, g, b)(x, dy, g, b);\n"
    "}\n";

enum { ROWS = 32771, MOST = 2 * 20000 * 9 };
static float x[MOST], y[MOST];
static int64_t first[MOST];

static float noise(int i)
{
    uint64_t n = (uint64_t)(i + 1) * 0x9e3779b97f4a7c15u;
    n ^= n >> 29;
    return (float)((double)((n * 0x94d049bb133111ebu) >> 11) * 0x1p-53 * 2 - 1);
}

static void run(qn_call *call)
{
    bool good = !qn_call_run(call, where, &error);
    if (!good) printf("on %s: %s\n", where, error.message);
    EXPECT(good);
    qn_call_free(call);
}

static void softmax_of_rows(void)
{
    for (int d = 2; d <= 9; d += d == 2 ? 1 : 6) {
        qn_call *call;
        int wrong = 0;
        for (int i = 0; i < ROWS * d; i++) x[i] = noise(i);
        EXPECT(!qn_call_new(module, "soft", &call, &error));
        EXPECT(!qn_call_set_memory(call, "x", x, QN_F32, 2, (int64_t[]){ROWS, d}, NULL, &error));
        EXPECT(!qn_call_set_memory(call, "result0", y, QN_F32, 2, (int64_t[]){ROWS, d}, NULL, &error));
        run(call);
        for (int r = 0; r < ROWS; r++) {
            double sum = 0;
            for (int c = 0; c < d; c++) sum += exp(x[r * d + c]);
            for (int c = 0; c < d; c++) wrong += !(fabs(y[r * d + c] - exp(x[r * d + c]) / sum) < 1e-6);
        }
        EXPECT(!wrong);
    }
}

static void norms_of_vectors(void)
{
    for (int d = 4; d <= 8; d += 4) {
        qn_call *call;
        int wrong = 0;
        float *g = x + ROWS * d;
        for (int i = 0; i < ROWS * d + d; i++) x[i] = noise(i);
        EXPECT(!qn_call_new(module, "evened", &call, &error));
        EXPECT(!qn_call_set_memory(call, "x", x, QN_F32, 2, (int64_t[]){ROWS, d}, NULL, &error));
        EXPECT(!qn_call_set_memory(call, "g", g, QN_F32, 1, (int64_t[]){d}, NULL, &error));
        EXPECT(!qn_call_set_memory(call, "b", x, QN_F32, 1, (int64_t[]){d}, NULL, &error));
        EXPECT(!qn_call_set_memory(call, "result0", y, QN_F32, 2, (int64_t[]){ROWS, d}, NULL, &error));
        run(call);
        for (int r = 0; r < ROWS; r++) {
            double sum = 0, squares = 0;
            const float *row = x + r * d;
            for (int c = 0; c < d; c++) sum += row[c];
            for (int c = 0; c < d; c++) squares += (row[c] - sum / d) * (row[c] - sum / d);
            for (int c = 0; c < d; c++) {
                double want = (row[c] - sum / d) / sqrt(squares / d + 1e-5) * g[c] + x[c];
                wrong += !(fabs(y[r * d + c] - want) < 1e-4);
            }
        }
        EXPECT(!wrong);
    }
}

static void rows_with_others(void)
{
    enum { A = 2, N = 16411, D = 7 };
    float *m = x + A * N * D, *s = m + A * D;
    qn_call *call;
    int wrong = 0;
    for (int i = 0; i < A * N * D + A * D + N; i++) x[i] = noise(i);
    EXPECT(!qn_call_new(module, "shifted", &call, &error));
    EXPECT(!qn_call_set_memory(call, "x", x, QN_F32, 3, (int64_t[]){A, N, D}, NULL, &error));
    EXPECT(!qn_call_set_memory(call, "m", m, QN_F32, 2, (int64_t[]){A, D}, NULL, &error));
    EXPECT(!qn_call_set_memory(call, "s", s, QN_F32, 1, (int64_t[]){N}, NULL, &error));
    EXPECT(!qn_call_set_memory(call, "result0", y, QN_F32, 3, (int64_t[]){A, N, D}, NULL, &error));
    EXPECT(!qn_call_set_memory(call, "result1", first, QN_I64, 2, (int64_t[]){A, N}, NULL, &error));
    run(call);
    for (int r = 0; r < A * N; r++) {
        float all[D];
        double sum = 0;
        int best = 0;
        for (int c = 0; c < D; c++) {
            all[c] = (x[r * D + c] + m[r / N * D + c]) * s[r % N];
            sum += all[c];
            if (all[c] > all[best]) best = c;
        }
        for (int c = 0; c < D; c++) wrong += !(fabs(y[r * D + c] - (all[c] - sum / D)) < 1e-5);
        wrong += first[r] != best;
    }
    EXPECT(!wrong);
}

/* Rows that nobody has to hold, of lines with a factor each. */
static void weighed_lines(void)
{
    enum { N = 67, C = 45, P = 1400 };
    if (strcmp(where, "emu") && strcmp(where, "cuda")) return;
    float *in = malloc(sizeof(float) * N * C * P), g[C];
    qn_call *call;
    int wrong = 0;
    for (int i = 0; i < N * C * P; i++) in[i] = noise(i);
    for (int i = 0; i < C; i++) g[i] = (float)(i % 3);
    EXPECT(!qn_call_new(module, "weighed", &call, &error));
    EXPECT(!qn_call_set_memory(call, "x", in, QN_F32, 3, (int64_t[]){N, C, P}, NULL, &error));
    EXPECT(!qn_call_set_memory(call, "g", g, QN_F32, 1, (int64_t[]){C}, NULL, &error));
    EXPECT(!qn_call_set_memory(call, "result0", y, QN_F32, 3, (int64_t[]){N, 1, 1}, NULL, &error));
    run(call);
    for (int n = 0; n < N; n++) {
        double sum = 0;
        for (int i = 0; i < C * P; i++) sum += (double)in[n * C * P + i] * g[i / P];
        wrong += !(fabs(y[n] - sum) < 1e-2);
    }
    EXPECT(!wrong);
    free(in);
}

ON_EVERY_DEVICE(weighed_lines)

/* Parts of a row that lie otherwise than its lead are loaded in whole vectors only where they are whole: emu stops at others. */
static void rows_that_are_joined(void)
{
    enum { N = 40, MOST_COLUMNS = 102 };
    float *other = x + N * MOST_COLUMNS, *sums = y + N * (MOST_COLUMNS + 1);
    for (int columns = 1; columns <= MOST_COLUMNS; columns += columns < 10 ? 1 : 23) {
        qn_call *call;
        int wrong = 0;
        for (int i = 0; i < N * columns; i++) x[i] = noise(i), other[i] = noise(i + 7);
        EXPECT(!qn_call_new(module, "joined", &call, &error));
        EXPECT(!qn_call_set_memory(call, "x", x, QN_F32, 2, (int64_t[]){N, columns}, NULL, &error));
        EXPECT(!qn_call_set_memory(call, "y", other, QN_F32, 2, (int64_t[]){N, columns}, NULL, &error));
        EXPECT(!qn_call_set_memory(call, "result0", sums, QN_F32, 2, (int64_t[]){N, 1}, NULL, &error));
        EXPECT(!qn_call_set_memory(call, "result1", y, QN_F32, 2, (int64_t[]){N, columns + 1}, NULL, &error));
        run(call);
        for (int r = 0; r < N; r++) {
            double sum = other[r * columns];
            for (int c = 1; c < columns; c++) sum += (double)x[r * columns + c - 1] * other[r * columns + c];
            for (int c = 0; c < columns; c++) wrong += y[r * (columns + 1) + c] != other[r * columns + c];
            wrong += y[r * (columns + 1) + columns] != 0 || !(fabs(sums[r] - sum) < 1e-4);
        }
        EXPECT(!wrong);
    }
}

ON_EVERY_DEVICE(rows_that_are_joined)
ON_EVERY_DEVICE(softmax_of_rows)
ON_EVERY_DEVICE(norms_of_vectors)
ON_EVERY_DEVICE(rows_with_others)

static void collect(void *user, const char *words, size_t length)
{
    text_add_bytes(user, words, length);
}

static text shown(const char *name, const char *stage, const char *const *settings, int count)
{
    const char *path = own_file("lines.qn");
    text out = {0};
    FILE *file = fopen(path, "w");
    if (file) fputs(source, file), fclose(file);
    qn_show_options options = {.stage = stage, .device = "cuda", .arch = "sm_90a", .settings = {settings, count}};
    EXPECT(!qn_show(context, path, name, &options, collect, &out, &error));
    remove(path);
    return out;
}

/* Does its layout have whole rows in threads? */
static bool has_lines(const char *name, const char *const *settings, int count)
{
    text out = shown(name, "layout", settings, count);
    bool rows = strstr(text_get(&out), "neighbouring threads on neighbouring rows") != NULL;
    bool vectors = strstr(text_get(&out), "vectors of 1, all threads along a row") == NULL;
    text_free(&out);
    return rows && vectors;
}

TEST(short_rows_belong_to_threads)
{
    EXPECT(has_lines("soft", (const char *[]){"N=200000", "D=31"}, 2));
    EXPECT(has_lines("soft", (const char *[]){"N=200000", "D=3"}, 2));
    EXPECT(has_lines("soft_short", (const char *[]){"N=200000", "D=63"}, 2));
    EXPECT(has_lines("slope", (const char *[]){"N=200000", "D=31"}, 2));
    EXPECT(!has_lines("soft", (const char *[]){"N=200000", "D=32"}, 2)); /* whole vectors */
    EXPECT(!has_lines("soft", (const char *[]){"N=200000", "D=65"}, 2));
    EXPECT(!has_lines("soft", (const char *[]){"N=2000", "D=31"}, 2)); /* not worth a text for the length */
    EXPECT(!has_lines("apart", (const char *[]){"N=200000"}, 1));      /* rows are not one behind the other */
}

/* Rows of whole vectors are folded once, by the threads that have them: not in every thread by a chain of loads. */
TEST(norms_of_short_rows_are_rows)
{
    static const char *const lengths[] = {"D=4", "D=8", "D=20", "D=32", "D=64"};
    for (int i = 0; i < COUNT(lengths); i++) {
        text out = shown("evened", "layout", (const char *[]){"N=2000000", lengths[i]}, 2);
        EXPECT(strstr(text_get(&out), "short rows, several in a block"));
        text_free(&out);
    }
    text out = shown("evened_pairs", "layout", (const char *[]){"N=1000000", "D=64"}, 2);
    EXPECT(strstr(text_get(&out), "short rows, several in a block"));
    text_free(&out);
}

/* Elements of windows are the last axes, and short: a program takes them of many windows. */
TEST(elements_of_windows_fill_programs)
{
    text out = shown("patches", "layout", (const char *[]){"N=16", "C=16", "H=256", "W=256"}, 4);
    EXPECT(strstr(text_get(&out), "pass over [128][8]"));
    text_free(&out);
}

TEST(rows_that_nobody_holds_are_cut)
{
    text out = shown("weighed", "cuda", (const char *[]){"N=128", "C=24", "P=19800"}, 3);
    const char *words = text_get(&out);
    EXPECT(strstr(words, "_phase1(") && strstr(words, "part0_array") && !strstr(words, "team_blocks"));
    text_free(&out);
}

/* A mask of rows that all columns share is computed where they are folded, and nothing waits in memory for it. */
TEST(masks_of_rows_keep_nothing)
{
    text out = shown("mean_of_some", "layout", (const char *[]){"B=256", "T=512", "D=768"}, 3);
    EXPECT(!strstr(text_get(&out), "scratch in global memory"));
    text_free(&out);
}

/* Sums of columns would keep long rows that begin between vectors from whole vectors. */
TEST(sums_over_odd_rows_are_apart)
{
    for (int odd = 0; odd < 2; odd++) {
        text out = shown("norm_slope", "fusion", (const char *[]){"N=65536", odd ? "D=1023" : "D=1024"}, 2);
        EXPECT(!strstr(text_get(&out), "\nkernel 1:") == !odd);
        text_free(&out);
    }
}

TEST(opened)
{
    EXPECT(!qn_context_open(NULL, &context, &error));
    EXPECT(!qn_module_load_text(context, "lines.qn", source, &module, &error));
}

TEST(closed)
{
    qn_module_free(module);
    qn_context_close(context);
}

TEST_MAIN(CASE(opened), CASE(on_devices_rows_that_are_joined), CASE(on_devices_softmax_of_rows),
          CASE(on_devices_norms_of_vectors), CASE(norms_of_short_rows_are_rows),
          CASE(elements_of_windows_fill_programs), CASE(masks_of_rows_keep_nothing), CASE(on_devices_weighed_lines),
          CASE(rows_that_nobody_holds_are_cut), CASE(on_devices_rows_with_others),
          CASE(short_rows_belong_to_threads), CASE(sums_over_odd_rows_are_apart), CASE(closed))
