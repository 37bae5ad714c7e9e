/*
 * Maximum, exponentials and their sum in one exchange (cuda/online.c), on emu or the device of QUERN_TEST_DEVICE
 * against cpu: rows in a block, in a block with shared memory, in a cluster, on the grid; exponentials that are kept, computed again or used by nobody
 * else; infinities and NaN, whole warps of -inf, whole rows of it. And where the rule must not be followed.
 * The same of columns and of whole arrays, and squares about a mean, in one read (fuse/pair.c), against sums in double.
 * SPDX-License-Identifier: MIT
 */
#include "base/base.h"
#include "own_file.h"
#include "test.h"

#include <math.h>
#include <quern/quern.h>
#include <quern/workbench.h>
#include <stdlib.h>

static const char source[] =
    "kernel soft(in T x[rows][cols], out float y[rows][cols]) launch (rows) types (T in {float, bf16})\n"
    "{\n"
    "    tile float v = x[program(0)][:];\n"
    "    v = exp(v - max(v));\n"
    "    y[program(0)][:] = v / sum(v);\n"
    "}\n"
    "kernel alone(in T x[rows][cols], out float y[rows][cols]) launch (rows) types (T in {float, bf16})\n"
    "{\n"
    "    tile float v = x[program(0)][:];\n"
    "    float m = max(v), z = sum(exp(v - m));\n"
    "    y[program(0)][0] = m;\n"
    "    y[program(0)][1] = z;\n"
    "    y[program(0)][2 : 64] = 0;\n"
    "}\n"
    "kernel logs(in T x[rows][cols], out float y[rows][cols]) launch (rows) types (T in {float, bf16})\n"
    "{\n"
    "    tile float v = x[program(0)][:];\n"
    "    float m = max(v);\n"
    "    y[program(0)][:] = v - m - log(sum(exp(v - m)));\n"
    "}\n"
    "kernel between(in T x[rows][cols], out float y[rows][cols]) launch (rows) types (T in {float, bf16})\n"
    "{\n"
    "    tile float v = x[program(0)][:];\n"
    "    float m = max(v);\n"
    "    float once = m * 2;\n"
    "    tile float e = exp(v - m);\n"
    "    y[program(0)][:] = e * v / sum(e) + once;\n"
    "}\n"
    "kernel repeated(in T x[rows][cols], out float y[rows][cols]) launch (1) types (T in {float, bf16})\n"
    "{\n"
    "    for (int r = 0; r < rows; r++) {\n"
    "        tile float v = x[r][:];\n"
    "        v = exp(v - max(v));\n"
    "        v = v / sum(v);\n"
    "        v = exp(v - max(v));\n"
    "        y[r][:] = v / sum(v);\n"
    "    }\n"
    "}\n";

enum { ROWS = 7, MOST = 300000 };
static const char *const kernels[] = {"soft", "alone", "logs", "between", "repeated"};
static const char *device = "emu";
static qn_context *context;
static qn_module *module;
static qn_error error;
static float *x, *results[2];
static uint16_t *halves;

/* A row of each kind: plain, large numbers, its first part -inf, all -inf, one +inf, one NaN, one finite number. */
static void fill(int64_t columns)
{
    for (int64_t i = 0; i < ROWS * columns; i++) {
        int64_t row = i / columns, column = i % columns;
        float v = (float)((i * 7919) % 1000) * 0.01f - 5;
        if (row == 1) v = 100 * v - 20000;
        if (row == 2 && column < columns * 3 / 4) v = -INFINITY;
        if (row == 3) v = -INFINITY;
        if (row == 4 && column == columns / 2) v = INFINITY;
        if (row == 5 && column == columns / 3) v = NAN;
        if (row == 6) v = column == columns - 1 ? -1000 : -INFINITY;
        uint32_t bits;
        memcpy(&bits, &v, 4);
        halves[i] = (uint16_t)(bits >> 16 | (isnan(v) ? 0x40 : 0));
        x[i] = v;
    }
}

static bool run(const char *kernel, qn_dtype type, int64_t columns, const char *on, float *y)
{
    const int64_t extents[] = {ROWS, columns};
    qn_call *call;
    const void *from = type == QN_F32 ? (const void *)x : halves;
    bool good = qn_call_new(module, kernel, &call, &error) == QN_OK;
    good = good && qn_call_set_memory(call, "x", (void *)from, type, 2, extents, NULL, &error) == QN_OK;
    good = good && qn_call_set_memory(call, "y", y, QN_F32, 2, extents, NULL, &error) == QN_OK;
    good = good && qn_call_run(call, on, &error) == QN_OK;
    if (!good) printf("%s on %s: %s\n", kernel, on, error.message);
    qn_call_free(call);
    return good;
}

static int disagreements(int64_t columns)
{
    int count = 0;
    for (int64_t i = 0; i < ROWS * columns; i++) {
        float a = results[0][i], b = results[1][i];
        bool same = isnan(a) || isnan(b) ? isnan(a) && isnan(b) : a == b || fabsf(a - b) <= 2e-5f * fabsf(a) + 1e-7f;
        if (!same && count++ < 3)
            printf("row %lld, column %lld of %lld: %g and %g\n", (long long)(i / columns), (long long)(i % columns),
                   (long long)columns, (double)a, (double)b);
    }
    return count;
}

TEST(agrees_with_cpu)
{
    static const int64_t lengths[] = {20000, 65536, 70000, MOST};
    const char *wanted = environment_get("QUERN_TEST_DEVICE");
    if (wanted) device = wanted;
    x = malloc(sizeof(float) * ROWS * MOST);
    halves = malloc(sizeof(uint16_t) * ROWS * MOST);
    for (int i = 0; i < 2; i++) results[i] = malloc(sizeof(float) * ROWS * MOST);
    EXPECT(x && halves && results[0] && results[1]);
    EXPECT(qn_context_open(NULL, &context, &error) == QN_OK);
    EXPECT(qn_module_load_text(context, "online.qn", source, &module, &error) == QN_OK);
    for (int n = 0; n < COUNT(lengths); n++) {
        fill(lengths[n]);
        for (int k = 0; k < COUNT(kernels); k++)
            for (int half = 0; half < 2; half++) {
                if (lengths[n] == MOST && k) continue; /* the grid takes its time */
                if (half && lengths[n] == 65536) continue;
                qn_dtype type = half ? QN_BF16 : QN_F32;
                bool ran = run(kernels[k], type, lengths[n], "cpu", results[0]) &&
                           run(kernels[k], type, lengths[n], device, results[1]);
                EXPECT(ran);
                if (!ran || disagreements(lengths[n]) == 0) continue;
                printf("%s %s %lld\n", kernels[k], half ? "bf16" : "f32", (long long)lengths[n]);
                test_fail(__FILE__, __LINE__, kernels[k]);
            }
    }
}

static void collect(void *user, const char *words, size_t length)
{
    text_add_bytes(user, words, length);
}

static int exchanges(const char *file, const char *kernel, const char *columns)
{
    const char *settings[] = {"rows=64", columns, "T=f32"};
    qn_show_options options = {.stage = "cuda", .arch = "sm_90a", .settings = {settings, 3}};
    text out = {0};
    EXPECT(qn_show(context, file, kernel, &options, collect, &out, &error) == QN_OK);
    int count = 0;
    const char *text = strstr(text_get(&out), "__global__");
    for (const char *at = text; at && (at = strstr(at, "_online(")); at++) count++;
    for (const char *at = text; at && (at = strstr(at, "_fold_")); at++) count += strncmp(at - 5, "lanes", 5) ? 100 : 0;
    text_free(&out);
    return count;
}

/* ---- columns ---- */

static const char columns_source[] =
    "tensor norm_down(float x[A][B]) {\n"
    "  let d = x - mean(x, axis = 0);\n"
    "  return d * rsqrt(mean(d * d, axis = 0) + 1e-5);\n"
    "}\n"
    "tensor soft_down(float x[A][B]) { return softmax(x, axis = 0); }\n"
    "tensor norm_all(float x[A][B]) { let d = x - mean(x); return d * rsqrt(mean(d * d) + 1e-5); }\n"
    "tensor soft_all(float x[A][B]) { let e = exp(x - max(x)); return e / sum(e); }\n"
    "tensor soft_channels(float x[N][C][P]) {\n"
    "  let e = exp(x - max(x, axis = {0, 2}));\n"
    "  return e / sum(e, axis = {0, 2});\n"
    "}\n"
    "tensor norm_row(float x[A][B]) {\n"
    "  let d = x - mean(x, axis = 1);\n"
    "  return d * rsqrt(mean(d * d, axis = 1) + 1e-5);\n"
    "}\n"
    "tensor soft_row(float x[A][B]) { return softmax(x, axis = 1); }\n"
    "tensor loss(float x[A][B], float w[A][B]) { return sum(norm_down(x) * soft_down(x) * w); }\n"
    "tensor slope(float x[A][B], float w[A][B]) { return grad(loss, x)(x, w); }\n";
static qn_module *columns_module;

/* Columns as the rows above, and one far from zero; of whole arrays the first kind alone. */
static void fill_columns(int64_t rows, int64_t columns, bool plain)
{
    for (int64_t i = 0; i < rows * columns; i++) {
        int64_t row = i / columns, kind = plain ? 0 : i % columns % 7;
        float v = (float)((i * 7919) % 1000) * 0.01f - 5;
        if (kind == 1) v += 10000;
        if (kind == 2 && row < rows * 3 / 4) v = -INFINITY;
        if (kind == 3) v = -INFINITY;
        if (kind == 4 && row == rows / 2) v = INFINITY;
        if (kind == 5 && row == rows / 3) v = NAN;
        if (kind == 6) v = row == 0 ? 300 : v; /* begins far from the rest */
        x[i] = v;
    }
}

static void expect_column(bool soft, int64_t rows, int64_t first, int64_t step, float *y)
{
    double most = -INFINITY, sum = 0, all = 0;
    for (int64_t i = 0; i < rows; i++) {
        double v = (double)x[first + i * step];
        most = isnan(v) || isnan(most) ? (double)NAN : fmax(most, v);
        sum += v;
    }
    for (int64_t i = 0; i < rows; i++) {
        double v = (double)x[first + i * step], d = v - sum / (double)rows;
        all += soft ? exp(v - most) : d * d;
    }
    for (int64_t i = 0; i < rows; i++) {
        double v = (double)x[first + i * step];
        double out = soft ? exp(v - most) / all : (v - sum / (double)rows) / sqrt(all / (double)rows + 1e-5);
        y[first + i * step] = (float)out;
    }
}

static bool run_columns(const char *name, const char *on, int64_t rows, int64_t columns, float *y)
{
    const int64_t extents[] = {rows, columns};
    qn_call *call;
    bool good = qn_call_new(columns_module, name, &call, &error) == QN_OK &&
                qn_call_set_memory(call, "x", x, QN_F32, 2, extents, NULL, &error) == QN_OK &&
                qn_call_set_memory(call, "result0", y, QN_F32, 2, extents, NULL, &error) == QN_OK;
    if (good && !strcmp(name, "slope"))
        good = qn_call_set_memory(call, "w", x, QN_F32, 2, extents, NULL, &error) == QN_OK;
    good = good && qn_call_run(call, on, &error) == QN_OK;
    if (!good) printf("%s on %s: %s\n", name, on, error.message);
    qn_call_free(call);
    return good;
}

/* Few rows, rows that are no whole turns, parts that are gathered before they are joined; columns of one program and more. */
TEST(columns_agree_with_sums_in_double)
{
    static const struct {
        int64_t rows, columns;
    } sizes[] = {{1, 16}, {9, 700}, {4099, 5}, {5003, 40}, {257, 1030}, {30000, 17}};
    static const char *const names[] = {"norm_down", "soft_down", "norm_all", "soft_all"};
    EXPECT(qn_module_load_text(context, "columns.qn", columns_source, &columns_module, &error) == QN_OK);
    for (int s = 0; s < COUNT(sizes); s++)
        for (int f = 0; f < COUNT(names); f++) {
            int64_t rows = sizes[s].rows, columns = sizes[s].columns, count = rows * columns;
            bool soft = f % 2, whole = f >= 2;
            if (whole && s % 2) continue;
            fill_columns(rows, columns, whole);
            for (int64_t c = 0; c < (whole ? 1 : columns); c++)
                expect_column(soft, whole ? count : rows, c, whole ? 1 : columns, results[0]);
            if (!run_columns(names[f], device, rows, columns, results[1])) test_fail(__FILE__, __LINE__, names[f]);
            int wrong = 0;
            for (int64_t i = 0; i < count && wrong < 3; i++) {
                float a = results[0][i], b = results[1][i], close = !whole && i % columns % 7 == 1 ? 2e-3f : 2e-5f;
                bool same = isnan(a) || isnan(b) ? isnan(a) && isnan(b) : fabsf(a - b) <= close * fabsf(a) + close;
                if (soft) same = same && !(fabsf(a - b) > 2e-3f * fabsf(a) + 1e-9f);
                if (!same)
                    printf("%s of [%lld][%lld]: [%lld] is %g, not %g\n", names[f], (long long)rows, (long long)columns,
                           (long long)i, (double)b, (double)a);
                wrong += !same;
            }
            EXPECT(!wrong);
        }
}

TEST(gradients_of_columns_agree_with_ref)
{
    fill_columns(300, 24, true);
    EXPECT(run_columns("slope", "ref", 300, 24, results[0]) && run_columns("slope", device, 300, 24, results[1]));
    int wrong = 0;
    for (int64_t i = 0; i < 300 * 24; i++) wrong += !(fabsf(results[0][i] - results[1][i]) <= 1e-5f);
    EXPECT(!wrong);
}

/* Lines of a cut row: images of odd planes, of which one is -inf. */
TEST(lines_agree_with_sums_in_double)
{
    enum { N = 70, C = 2, P = 1025 };
    const int64_t extents[] = {N, C, P};
    double most[C] = {-INFINITY, -INFINITY}, all[C] = {0};
    qn_call *call;
    for (int64_t i = 0; i < N * C * P; i++) {
        x[i] = i / P == 6 ? -INFINITY : (float)((i * 7919) % 1000) * 0.01f - 5;
        most[i / P % C] = fmax(most[i / P % C], (double)x[i]);
    }
    for (int64_t i = 0; i < N * C * P; i++) all[i / P % C] += exp((double)x[i] - most[i / P % C]);
    EXPECT(qn_call_new(columns_module, "soft_channels", &call, &error) == QN_OK);
    EXPECT(qn_call_set_memory(call, "x", x, QN_F32, 3, extents, NULL, &error) == QN_OK);
    EXPECT(qn_call_set_memory(call, "result0", results[1], QN_F32, 3, extents, NULL, &error) == QN_OK);
    EXPECT(qn_call_run(call, device, &error) == QN_OK);
    qn_call_free(call);
    int wrong = 0;
    for (int64_t i = 0; i < N * C * P; i++) {
        double want = exp((double)x[i] - most[i / P % C]) / all[i / P % C];
        wrong += !(fabs((double)results[1][i] - want) <= 2e-5 * want);
    }
    EXPECT(!wrong);
}

static int lines_of(const char *file, const char *function, const char *stage, const char *words, const char *a,
                    const char *b)
{
    const char *settings[] = {a, b};
    qn_show_options options = {.stage = stage, .arch = "sm_90a", .device = "cuda", .settings = {settings, 2}};
    text out = {0};
    EXPECT(qn_show(context, file, function, &options, collect, &out, &error) == QN_OK);
    int count = 0;
    for (const char *at = text_get(&out); (at = strstr(at, words)); at++)
        count += at == text_get(&out) || at[-1] == '\n';
    text_free(&out);
    return count;
}

/* One kernel for both folds, one for the results. */
TEST(columns_are_read_once_for_both_folds)
{
    static const char *const names[] = {"norm_down", "soft_down", "norm_all", "soft_all"};
    const char *path = own_file("columns.qn");
    FILE *file = fopen(path, "w");
    EXPECT(file && fputs(columns_source, file) >= 0 && !fclose(file));
    for (int i = 0; i < COUNT(names); i++)
        EXPECT(lines_of(path, names[i], "fusion", "kernel ", "A=131072", "B=512") == 2);
    /* Rows that no chip holds: lines, their joining, the results; of a length that no lines make the row is one. */
    for (int i = 0; i < 2; i++) {
        const char *name = i ? "norm_row" : "soft_row";
        EXPECT(lines_of(path, name, "schedule", "launch of phase", "A=4", "B=16777216") == 3);
        EXPECT(lines_of(path, name, "schedule", "launch of phase", "A=4", "B=16777217") == 1);
    }
    remove(path);
}

TEST(one_exchange)
{
    const char *file = QUERN_ROOT "/kernels/softmax.qn";
    EXPECT(exchanges(file, "softmax_row", "cols=65536") == 1);
    EXPECT(exchanges(file, "softmax_row", "cols=262144") == 1);
    EXPECT(exchanges(file, "softmax_row", "cols=16384") == 200); /* two exchanges, which other blocks hide */
}

TEST(closing)
{
    qn_module_free(module);
    qn_module_free(columns_module);
    qn_context_close(context);
    free(x), free(halves), free(results[0]), free(results[1]);
}

TEST_MAIN(CASE(agrees_with_cpu), CASE(one_exchange), CASE(columns_agree_with_sums_in_double),
          CASE(gradients_of_columns_agree_with_ref), CASE(lines_agree_with_sums_in_double),
          CASE(columns_are_read_once_for_both_folds), CASE(closing))
