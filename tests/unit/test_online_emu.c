/*
 * Maximum, exponentials and their sum in one exchange (cuda/online.c), on emu or the device of QUERN_TEST_DEVICE
 * against cpu: rows in a block, in a block with shared memory, in a cluster, on the grid; exponentials that are kept, computed again or used by nobody
 * else; infinities and NaN, whole warps of -inf, whole rows of it. And where the rule must not be followed.
 * SPDX-License-Identifier: MIT
 */
#include "base/base.h"
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
    qn_context_close(context);
    free(x), free(halves), free(results[0]), free(results[1]);
}

TEST_MAIN(CASE(agrees_with_cpu), CASE(one_exchange), CASE(closing))
