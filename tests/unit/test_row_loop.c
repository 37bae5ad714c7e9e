/*
 * Rows held by a block of threads, on emu (or the device of QUERN_TEST_DEVICE) against cpu: rows that a loop takes one
 * after the other, whose loads come a trip ahead; 16-bit rows, two elements in a register; sums of one chosen element;
 * positions compared with scalars. Lengths that fill all vectors and such that do not.
 * SPDX-License-Identifier: MIT
 */
#include "ir/tile.h"
#include "test.h"

#include <math.h>
#include <quern/quern.h>
#include <quern/workbench.h>
#include <stdlib.h>

static const char source[] =
    /* carried sums beside row sums, as of a gradient of a normalisation */
    "kernel carried(in T x[rows][cols], in T g[rows][cols], in i64 at[rows], out T y[rows][cols], out float "
    "s[2][cols])\n"
    "    launch (2) types (T in {float, f16, bf16})\n"
    "{\n"
    "    tile float all[cols] = 0;\n"
    "    for (int r = program(0); r < rows; r += 2) {\n"
    "        tile float v = x[r][:], d = g[r][:];\n"
    "        float m = sum(v) / cols, k = sum(d) / cols;\n"
    "        float q = sum((v - m) * (v - m)), p = sum((v - m) * d);\n"
    "        y[r][:] = T((v - m) * (p + 1) / (q + 1) + d * k);\n"
    "        all += d * (v - m);\n"
    "    }\n"
    "    s[program(0)][:] = all;\n"
    "}\n"
    /* a loop inside a branch of a loop: what is loaded depends on what was computed */
    "kernel branched(in T x[rows][cols], in T g[rows][cols], in i64 at[rows], out T y[rows][cols], out float "
    "s[2][cols])\n"
    "    launch (1) types (T in {float, f16, bf16})\n"
    "{\n"
    "    s[:][:] = 0;\n"
    "    for (int r = 0; r < rows; r++) {\n"
    "        tile float v = x[r][:];\n"
    "        float m = max(v);\n"
    "        if (m > 0) {\n"
    "            for (int k = r; k < rows; k += 3) {\n"
    "                tile float w = g[k][:];\n"
    "                y[k][:] = T(w * sum(w) / cols + v);\n"
    "            }\n"
    "        } else {\n"
    "            y[r][:] = T(v - m);\n"
    "        }\n"
    "    }\n"
    "}\n"
    /* carried rows that change places, and one in the type of the array */
    "kernel swapped(in T x[rows][cols], in T g[rows][cols], in i64 at[rows], out T y[rows][cols], out float "
    "s[2][cols])\n"
    "    launch (1) types (T in {float, f16, bf16})\n"
    "{\n"
    "    tile float a[cols] = 0, b[cols] = 1;\n"
    "    tile T last = x[0][:];\n"
    "    for (int r = 0; r < rows; r++) {\n"
    "        tile float v = g[r][:];\n"
    "        float m = sum(v) / cols;\n"
    "        y[r][:] = T(v * m + a - float(last));\n"
    "        tile float t = a;\n"
    "        a = b * 0.5f + v;\n"
    "        b = t;\n"
    "        last = T(v + float(last) * 0.25f);\n"
    "    }\n"
    "    s[0][:] = a;\n"
    "    s[1][:] = b;\n"
    "}\n"
    /* one element of a row, and a part of it by position */
    "kernel chosen(in T x[rows][cols], in T g[rows][cols], in i64 at[rows], out T y[rows][cols], out float "
    "s[2][cols])\n"
    "    launch (rows) types (T in {float, f16, bf16})\n"
    "{\n"
    "    int r = program(0);\n"
    "    tile float v = x[r][:];\n"
    "    float top = max(v), low = min(v);\n"
    "    float one = sum(where(iota(cols) == at[r], v, 0.0f));\n"
    "    y[r][:] = T(where(iota(cols) < at[r], v - top, v - low) + one);\n"
    "    if (r < 2) s[r][:] = where(at[r] <= iota(cols), 1.0f, where(at[r] != iota(cols), 2.0f, 3.0f));\n"
    "}\n";

enum { MOST_ROWS = 11, MOST = 70000 };
static const char *const kernels[] = {"carried", "branched", "swapped", "chosen"};
static const qn_dtype types[] = {QN_F32, QN_F16, QN_BF16};
static const char *device = "emu";
static qn_context *context;
static qn_module *module;
static qn_error error;
static void *x, *g, *y[2];
static float *sums[2];
static int64_t at[MOST_ROWS] = {3, 0, -1, 69999, INT64_MAX, INT64_MIN, 1039, 17, 1 << 30, 1000, 7};

static dtype elem_of(qn_dtype type)
{
    return type == QN_F32 ? DT_F32 : type == QN_F16 ? DT_F16 : DT_BF16;
}

static void fill(dtype t, void *to, int64_t count, int64_t seed)
{
    for (int64_t i = 0; i < count; i++)
        element_write(t, (char *)to + i * dtypes[t].size_bytes,
                      (number){.f = (double)((i * 7919 + seed) % 1000) * 0.004 - 2});
}

/* So that vectors are moved. */
static void *aligned(int64_t count)
{
    return aligned_alloc(64, sizeof(float) * (size_t)count);
}

static bool run(const char *kernel, qn_dtype type, int64_t rows, int64_t columns, const char *on, int which)
{
    const int64_t wide[] = {rows, columns}, few[] = {2, columns};
    qn_call *call;
    bool good = qn_call_new(module, kernel, &call, &error) == QN_OK;
    good = good && qn_call_set_memory(call, "x", x, type, 2, wide, NULL, &error) == QN_OK;
    good = good && qn_call_set_memory(call, "g", g, type, 2, wide, NULL, &error) == QN_OK;
    good = good && qn_call_set_memory(call, "at", at, QN_I64, 1, &rows, NULL, &error) == QN_OK;
    good = good && qn_call_set_memory(call, "y", y[which], type, 2, wide, NULL, &error) == QN_OK;
    good = good && qn_call_set_memory(call, "s", sums[which], QN_F32, 2, few, NULL, &error) == QN_OK;
    good = good && qn_call_run(call, on, &error) == QN_OK;
    if (!good) printf("%s on %s: %s\n", kernel, on, error.message);
    qn_call_free(call);
    return good;
}

static int disagreements(dtype t, int64_t rows, int64_t columns)
{
    int count = 0, size = dtypes[t].size_bytes;
    double close = t == DT_F32 ? 1e-4 : t == DT_F16 ? 4e-3 : 3e-2;
    for (int64_t i = 0; i < (rows + 2) * columns; i++) {
        bool in_y = i < rows * columns;
        double a = in_y ? element_read(t, (char *)y[0] + i * size).f : (double)sums[0][i - rows * columns];
        double b = in_y ? element_read(t, (char *)y[1] + i * size).f : (double)sums[1][i - rows * columns];
        if (fabs(a - b) <= (in_y ? close : 1e-4) * (1 + fabs(a))) continue;
        if (count++ < 3)
            printf("row %lld, column %lld: %g and %g\n", (long long)(i / columns), (long long)(i % columns), a, b);
    }
    return count;
}

TEST(agrees_with_cpu)
{
    static const int64_t shapes[][2] = {{11, 1040}, {11, 1037}, {3, 16384}, {2, MOST}};
    const char *wanted = environment_get("QUERN_TEST_DEVICE");
    if (wanted) device = wanted;
    int64_t largest = 2 * MOST + 16;
    x = aligned(largest);
    g = aligned(largest);
    for (int i = 0; i < 2; i++) y[i] = aligned(largest);
    for (int i = 0; i < 2; i++) sums[i] = aligned(largest);
    EXPECT(x && g && y[0] && y[1] && sums[0] && sums[1]);
    EXPECT(qn_context_open(NULL, &context, &error) == QN_OK);
    EXPECT(qn_module_load_text(context, "rows.qn", source, &module, &error) == QN_OK);
    for (int n = 0; n < COUNT(shapes); n++)
        for (int k = 0; k < COUNT(kernels); k++)
            for (int t = 0; t < COUNT(types); t++) {
                int64_t rows = shapes[n][0], columns = shapes[n][1];
                dtype elem = elem_of(types[t]);
                if (n && types[t] != QN_BF16) continue;
                fill(elem, x, rows * columns, 5);
                fill(elem, g, rows * columns, 77);
                memset(y[0], 0, sizeof(float) * (size_t)largest);
                memset(y[1], 0, sizeof(float) * (size_t)largest);
                memset(sums[0], 0, sizeof(float) * (size_t)largest);
                memset(sums[1], 0, sizeof(float) * (size_t)largest);
                bool ran = run(kernels[k], types[t], rows, columns, "cpu", 0) &&
                           run(kernels[k], types[t], rows, columns, device, 1);
                EXPECT(ran);
                if (!ran || disagreements(elem, rows, columns) == 0) continue;
                printf("%s %s %lld\n", kernels[k], dtypes[elem].text, (long long)columns);
                test_fail(__FILE__, __LINE__, kernels[k]);
            }
}

static void collect(void *user, const char *words, size_t length)
{
    text_add_bytes(user, words, length);
}

/* How often the text of a kernel has these words. */
static int count_in(const char *file, const char *kernel, const char *type, const char *columns, const char *words)
{
    const char *settings[] = {"rows=64", columns, type};
    qn_show_options options = {.stage = "cuda", .arch = "sm_90a", .settings = {settings, 3}};
    text out = {0};
    EXPECT(qn_show(context, file, kernel, &options, collect, &out, &error) == QN_OK);
    int count = 0;
    const char *text = strstr(text_get(&out), "__global__");
    for (const char *found = text; found && (found = strstr(found, words)); found++) count++;
    text_free(&out);
    return count;
}

TEST(what_the_text_has)
{
    char path[] = "/tmp/quern-test-XXXXXX", file[64];
    EXPECT(mkdtemp(path));
    snprintf(file, sizeof(file), "%s/rows.qn", path);
    EXPECT(file_write(file, source, sizeof(source) - 1, &error) == QN_OK);
    EXPECT(count_in(file, "carried", "T=bf16", "cols=4096", "copy_wait<1>") == 1);
    EXPECT(count_in(file, "carried", "T=bf16", "cols=4096", "copy_async(") == 4); /* two rows, before and inside */
    EXPECT(count_in(file, "carried", "T=bf16", "cols=4096", "_folds_sum_f32<2>") == 1); /* q and p */
    EXPECT(count_in(file, "carried", "T=bf16", "cols=4097", "copy_wait<1>") == 0);
    EXPECT(count_in(file, "chosen", "T=bf16", "cols=4096", "two in each") == 1);
    EXPECT(count_in(file, "chosen", "T=float", "cols=4096", "two in each") == 0);
    EXPECT(count_in(file, "chosen", "T=bf16", "cols=4096", "= pairs_m") == 2); /* the steps of max and min */
    EXPECT(count_in(file, "chosen", "T=bf16", "cols=4096", "_fold_sum_") == 0);
    remove(file);
    remove(path);
}

TEST(closing)
{
    qn_module_free(module);
    qn_context_close(context);
    free(x), free(g);
    for (int i = 0; i < 2; i++) free(y[i]), free(sums[i]);
}

TEST_MAIN(CASE(agrees_with_cpu), CASE(what_the_text_has), CASE(closing))
