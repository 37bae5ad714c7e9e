/*
 * Scans down columns, whose programs wait for one another (fuse/order_chain.c), of few long rows and of many short ones, of
 * every fold and several types, at lengths around a part, a group of parts and beyond, against plain C. Twice the same bits;
 * one read of the input in the text.
 * SPDX-License-Identifier: MIT
 */
#include "base/base.h"
#include "test.h"

#include "on_devices.h"
#include <quern/workbench.h>
#include <stdlib.h>

static qn_context *context;
static qn_error error;
static const char *where;

enum { FOLDS = 4, MOST = 2400000 };
static const char *const folds[FOLDS] = {"cumsum", "cumprod", "cummax", "cummin"};
static const qn_dtype types[] = {QN_F32, QN_F64, QN_BF16, QN_I32, QN_I64};
static const char *const type_names[] = {"f32", "f64", "bf16", "i32", "i64"};
static qn_module *modules[COUNT(types)];
/* Aligned alike: another alignment is another variant, which may add in another order. */
static _Alignas(64) char room[8 * MOST], results[8 * MOST], again[8 * MOST];

static double number_at(const void *p, qn_dtype t, int64_t i)
{
    switch (t) {
    case QN_F32: return ((const float *)p)[i];
    case QN_F64: return ((const double *)p)[i];
    case QN_I32: return ((const int32_t *)p)[i];
    case QN_I64: return (double)((const int64_t *)p)[i];
    default: {
        union {
            uint32_t bits;
            float f;
        } u = {(uint32_t)((const uint16_t *)p)[i] << 16};
        return u.f;
    }
    }
}

/* Numbers whose products are exact, and of integers a few that wrap. */
static void fill(qn_dtype t, int fold, int64_t count)
{
    for (int64_t i = 0; i < count; i++) {
        uint64_t x = (uint64_t)(i + 1) * 0x9e3779b97f4a7c15u;
        x = (x ^ x >> 29) * 0x94d049bb133111ebu >> 40;
        double v = (double)x / (1 << 24) * 2 - 1;
        if (fold == 1) v = x % 64 ? 1 : x % 4096 ? -1 : x % 8192 ? 2 : 0.5;
        union {
            float f;
            uint32_t bits;
        } u = {(float)v};
        if (t == QN_F32) ((float *)room)[i] = (float)v;
        if (t == QN_F64) ((double *)room)[i] = v;
        if (t == QN_BF16) ((uint16_t *)room)[i] = (uint16_t)(u.bits >> 16);
        if (t == QN_I32) ((int32_t *)room)[i] = fold == 1 ? (int32_t)(x | 1) : (int32_t)(x << 8);
        if (t == QN_I64) ((int64_t *)room)[i] = fold == 1 ? (int64_t)(x | 1) : (int64_t)(x << 40);
    }
}

static double step(int fold, double a, double b)
{
    if (fold == 0) return a + b;
    if (fold == 1) return a * b;
    return (fold == 2) == (b > a) ? b : a;
}

static int64_t whole_step(int fold, int64_t a, int64_t b, bool narrow)
{
    if (fold > 1) return (fold == 2) == (b > a) ? b : a;
    uint64_t r = fold ? (uint64_t)a * (uint64_t)b : (uint64_t)a + (uint64_t)b;
    return narrow ? (int32_t)(uint32_t)r : (int64_t)r;
}

static void check(int which, int fold, int64_t a, int64_t b, int64_t c)
{
    qn_dtype t = types[which];
    bool whole = t == QN_I32 || t == QN_I64;
    int64_t count = a * b * c, extents[] = {a, b, c};
    qn_call *call;
    EXPECT(count <= MOST);
    fill(t, fold, count);
    char name[32];
    snprintf(name, sizeof(name), "run_%s", folds[fold]);
    EXPECT(!qn_call_new(modules[which], name, &call, &error));
    EXPECT(!qn_call_set_memory(call, "x", room, t, 3, extents, NULL, &error));
    for (int round = 0; round < 2; round++) {
        void *to = round ? again : results;
        memset(to, 0x55, 8 * (size_t)count);
        EXPECT(!qn_call_set_memory(call, "result0", to, t, 3, extents, NULL, &error));
        qn_status status = qn_call_run(call, where, &error);
        if (status) printf("%s on %s: %s\n", folds[fold], where, error.message);
        EXPECT(!status);
        if (!strcmp(where, "ref") || !strcmp(where, "cpu")) memcpy(again, results, 8 * (size_t)count);
    }
    bool repeats = !memcmp(results, again, 8 * (size_t)count); /* the same bits, whoever came first */
    if (!repeats)
        printf("%s of type %d, [%lld, %lld, %lld] on %s\n", folds[fold], which, (long long)a, (long long)b,
               (long long)c, where);
    EXPECT(repeats);
    int wrong = 0;
    double slack = t == QN_BF16 ? 0x1p-8 : t == QN_F32 ? 2e-5 : 1e-12;
    for (int64_t line = 0; line < a * c && wrong < 3; line++) {
        double v = 0, scale = 0;
        int64_t w = 0;
        for (int64_t k = 0; k < b && wrong < 3; k++) {
            int64_t i = (line / c * b + k) * c + line % c;
            int64_t n = t == QN_I32 ? ((int32_t *)room)[i] : t == QN_I64 ? ((int64_t *)room)[i] : 0;
            int64_t got_whole = t == QN_I32 ? ((int32_t *)results)[i] : t == QN_I64 ? ((int64_t *)results)[i] : 0;
            w = k ? whole_step(fold, w, n, t == QN_I32) : n;
            v = k ? step(fold, v, number_at(room, t, i)) : number_at(room, t, i);
            double got = number_at(results, t, i);
            scale = fmax(scale, fabs(v));
            bool same = whole ? got_whole == w : fabs(got - v) <= slack * (scale + (fold == 0 ? sqrt((double)k) : 0));
            if (!same)
                printf("%s of %s[%lld][%lld][%lld] on %s: [%lld] is %.9g, not %.9g\n", folds[fold], type_names[which],
                       (long long)a, (long long)b, (long long)c, where, (long long)i, got, whole ? (double)w : v);
            wrong += !same;
        }
    }
    EXPECT(!wrong);
    qn_call_free(call);
}

/* Sums and products of i32 are i64. */
static bool stays(int which, int fold)
{
    return types[which] != QN_I32 || fold > 1;
}

/* A part is 32 rows, a group 16 parts; columns by 128 to 512. */
static void down_columns(void)
{
    static const int64_t cases[][3] = {{1, 128, 5},  {2, 160, 130}, {1, 511, 3},    {1, 512, 129},
                                       {1, 513, 70}, {1, 1100, 40}, {1, 1057, 515}, {1, 17, 9},
                                       {3, 33, 300}, {1, 100, 70},  {2, 1024, 129}, {1, 544, 131}};
    bool slow = !strcmp(where, "ref");
    for (int i = 0; i < COUNT(cases); i++)
        for (int which = 0; which < COUNT(types); which++)
            for (int fold = 0; fold < FOLDS; fold++)
                if ((5 * i + which + fold) % (slow ? 11 : 7) == 0 && (!slow || i < 5) && stays(which, fold))
                    check(which, fold, cases[i][0], cases[i][1], cases[i][2]);
}

/* Few long rows, and longer than what a block holds. */
static void along_rows(void)
{
    static const int64_t cases[][2] = {{1, 8192}, {3, 8193}, {2, 100001}, {1, 300000}, {1, 8192 * 257 + 5}};
    bool slow = !strcmp(where, "ref"), emu = !strcmp(where, "emu");
    for (int i = 0; i < COUNT(cases) - slow; i++)
        for (int which = 0; which < COUNT(types); which++)
            for (int fold = 0; fold < FOLDS; fold++)
                if ((5 * i + which + fold) % (slow || (emu && i > 2) ? 11 : 7) == 0 && stays(which, fold))
                    check(which, fold, cases[i][0], cases[i][1], 1);
    if (slow) return;
    check(0, 0, 3, 140001, 1); /* pieces that tell theirs by words; a group has 63 of 16384 */
    check(2, 0, 1, 131072, 1);
    check(0, 1, 2, 131073, 1);
    check(3, 2, 2, 150000, 1);
    check(3, 3, 1, 140000, 1);
    check(0, 2, 1, 16384 * 64 + 3, 1);
}

/* Many short rows: four a program where they come out even. */
static void short_rows(void)
{
    static const int64_t cases[][2] = {{32768, 7}, {32768, 33}, {32771, 8}, {32772, 64}};
    if (!strcmp(where, "ref")) return;
    for (int i = 0; i < COUNT(cases); i++) check(i == 1 ? 2 : 0, i % FOLDS, cases[i][0], cases[i][1], 1);
}

ON_EVERY_DEVICE(short_rows)
ON_EVERY_DEVICE(down_columns)
ON_EVERY_DEVICE(along_rows)

static void collect(void *user, const char *words, size_t length)
{
    text_add_bytes(user, words, length);
}

/* Programs of columns tell and wait by four atomics that order what is around them, those of long rows by words alone; one phase
 * reads x. */
TEST(one_read)
{
    static const char *const sizes[][3] = {{"A=1", "B=16384", "C=8192"}, {"A=16", "B=4194304", "C=1"}};
    static const char *const path = "scans.qn";
    FILE *file = fopen(path, "w");
    EXPECT(file != NULL);
    if (file) fputs("tensor run(float x[A][B][C]) { return cumsum(x, axis = 1); }\n", file), fclose(file);
    for (int i = 0; i < COUNT(sizes) && file; i++) {
        text out = {0};
        qn_show_options options = {.stage = "tile", .device = "cuda", .arch = "sm_90a", .settings = {sizes[i], 3}};
        EXPECT(!qn_show(context, path, "run", &options, collect, &out, &error));
        int waits = 0, phases = 0;
        for (const char *at = text_get(&out); (at = strstr(at, ".ordered")); at++) waits++;
        for (const char *at = text_get(&out); (at = strstr(at, "phase")); at++) phases++;
        EXPECT(waits == (i ? 0 : 4) && phases > 0);
        int loads = 0;
        for (const char *at = text_get(&out); (at = strstr(at, "load x[")); at++) loads++;
        EXPECT(!i || loads == 1);
        text_free(&out);
    }
    remove(path);
}

TEST(opened)
{
    EXPECT(!qn_context_open(NULL, &context, &error));
    for (int i = 0; i < COUNT(types); i++) {
        char source[1000] = "";
        for (int f = 0; f < FOLDS; f++)
            snprintf(source + strlen(source), sizeof(source) - strlen(source),
                     "tensor run_%s(%s x[A][B][C]) { return %s(x, axis = 1); }\n", folds[f], type_names[i], folds[f]);
        EXPECT(!qn_module_load_text(context, "scans.qn", source, &modules[i], &error));
    }
}

TEST(closed)
{
    for (int i = 0; i < COUNT(types); i++) qn_module_free(modules[i]);
    qn_context_close(context);
}

TEST_MAIN(CASE(opened), CASE(on_devices_short_rows), CASE(on_devices_down_columns), CASE(on_devices_along_rows),
          CASE(one_read), CASE(closed))
