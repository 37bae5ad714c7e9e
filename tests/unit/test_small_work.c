/*
 * Work below a megabyte on a GPU: what fusion and schedules make of few rows and few columns, where launches and what one
 * thread does after another are all of the time. In: functions and sizes. Out: numbers of launches, teams; the numbers in emu
 * are those of ref. Large sizes stay as they are.
 * SPDX-License-Identifier: MIT
 */
#include "base/base.h"
#include "test.h"

#include <quern/workbench.h>
#include <stdlib.h>

static const char path[] = "small_work.qn";
static const char source[] =
    "tensor scan(float x[A][B]) { return cumsum(x, axis = 0); }\n"
    "tensor best(float x[A][B]) { return topk(x, 8, axis = 1); }\n"
    "tensor places(float x[A][B]) { let (v, i) = topk(x, 8, axis = 1); return i; }\n"
    "tensor values(float x[A][B]) { let (v, i) = topk(x, 8, axis = 1); return v; }\n"
    "tensor order(float x[A][B]) { return argsort(x, axis = 1); }\n"
    "tensor rows(float x[A][B]) { return softmax(x, axis = 1); }\n"
    "tensor columns(float x[A][B]) { return softmax(x, axis = 0); }\n"
    "tensor sums(float x[A][B]) { return sum(x, axis = 0); }\n"
    "tensor pools(float x[A][B]) { return max_pool2d(unsqueeze(x, axis = 0), 3, stride = 2, padding = 1); }\n";

static qn_context *context;
static qn_error error;

static void collect(void *user, const char *words, size_t length)
{
    text_add_bytes(user, words, length);
}

/* What is shown of a function for an H200; of static memory until the next call. */
static const char *shown(const char *name, const char *stage, int a, int b, bool backward)
{
    static text out;
    char rows[32], columns[32];
    const char *settings[] = {rows, columns};
    snprintf(rows, sizeof(rows), "A=%d", a);
    snprintf(columns, sizeof(columns), "B=%d", b);
    text_clear(&out);
    qn_show_options options = {
        .stage = stage, .device = "cuda", .arch = "sm_90a", .settings = {settings, 2}, .backward = backward};
    if (qn_show(context, path, name, &options, collect, &out, &error) != QN_OK) {
        printf("%s: %s\n", name, error.message);
        EXPECT(!"shown");
    }
    return text_get(&out);
}

static int count(const char *words, const char *what)
{
    int found = 0;
    for (const char *at = words; (at = strstr(at, what)); at++) found++;
    return found;
}

TEST(opened)
{
    EXPECT(!qn_context_open(NULL, &context, &error));
    FILE *file = fopen(path, "w");
    EXPECT(file != NULL);
    if (file) fputs(source, file), fclose(file);
}

TEST(few_columns_are_one_launch)
{
    EXPECT(count(shown("scan", "schedule", 256, 256, false), "launch of phase") == 1);
    EXPECT(count(shown("scan", "schedule", 16384, 8192, false), "launch of phase") >= 2); /* chained */
    EXPECT(count(shown("sums", "schedule", 256, 256, false), "launch of phase") == 1);
    EXPECT(count(shown("sums", "schedule", 65536, 256, false), "launch of phase") > 1); /* parts are joined */
    const char *few = shown("columns", "schedule", 128, 256, false);
    EXPECT(strstr(few, "[16][128]") && strstr(few, "256 a program"));
    EXPECT(strstr(shown("columns", "schedule", 128, 65536, false), "[64][128]"));
}

/* Positions and elements come from one selection, and each alone as well. */
TEST(a_selection_is_one_launch)
{
    static const char *const names[] = {"best", "places", "values"};
    for (int i = 0; i < COUNT(names); i++) {
        const char *words = shown(names[i], "fusion", 64, 1024, false);
        EXPECT(strstr(words, "kernel 0: select_first") && !strstr(words, "kernel 1"));
    }
    EXPECT(strstr(shown("order", "fusion", 64, 1024, false), "sort_digits"));
    EXPECT(strstr(shown("order", "fusion", 65536, 1024, false), "sort_runs"));
}

TEST(few_rows_are_blocks)
{
    static const char words[] = "few short rows, each for a block";
    EXPECT(strstr(shown("rows", "schedule", 64, 1000, false), words));
    EXPECT(!strstr(shown("rows", "schedule", 4096, 1000, false), words));
    /* As many threads as elements: none has several, one after the other. */
    EXPECT(!strstr(shown("pools", "schedule", 256, 256, true), "8 times"));
}

/* A batch of another size, as few: the same text. */
TEST(batches_share_texts)
{
    static const char *const names[] = {"rows", "sums"};
    for (int i = 0; i < COUNT(names); i++) {
        char *first = heap_copy_text(shown(names[i], "tile", 100, 1000, false));
        EXPECT_TEXT(shown(names[i], "tile", 60, 1000, false), first);
        heap_free(first);
    }
}

enum { MOST = 130 * 1100 };

static int64_t values_of(const char *name, const char *device, int a, int b, const float *x, float *out, int64_t count)
{
    qn_module *module = NULL;
    qn_call *call = NULL;
    qn_array found;
    bool good = !qn_module_load_text(context, path, source, &module, &error) &&
                !qn_call_new(module, name, &call, &error) &&
                !qn_call_set_memory(call, "x", (void *)x, QN_F32, 2, (int64_t[]){a, b}, NULL, &error) &&
                !qn_call_run(call, device, &error) && !qn_call_get(call, "result0", &found, &error);
    if (!good) printf("%s on %s: %s\n", name, device, error.message);
    EXPECT(good);
    int64_t all = 1;
    for (int i = 0; good && i < found.rank; i++) all *= found.extents[i];
    EXPECT(all <= count);
    for (int64_t i = 0; good && i < all; i++) {
        out[i] = found.type == QN_I64 ? (float)((const int64_t *)found.data)[i] : ((const float *)found.data)[i];
    }
    qn_call_free(call);
    qn_module_free(module);
    return all;
}

/* Lengths around warps, vectors and blocks. */
TEST(as_ref_has_it)
{
    static const char *const names[] = {"scan", "best",    "places", "values", "order",
                                        "rows", "columns", "sums",   "pools"};
    static const int sizes[][2] = {{7, 1000}, {1, 257}, {130, 1024}, {33, 513}, {64, 31}, {3, 1025}};
    static float x[MOST], expected[MOST], found[MOST];
    for (int i = 0; i < MOST; i++) x[i] = (float)(i * 7919LL % 1009) / 256 - 2;
    for (int n = 0; n < COUNT(names); n++)
        for (int s = 0; s < COUNT(sizes); s++) {
            int a = sizes[s][0], b = sizes[s][1];
            int64_t all = values_of(names[n], "ref", a, b, x, expected, MOST);
            EXPECT(values_of(names[n], "emu", a, b, x, found, MOST) == all);
            double wrong = 0;
            bool whole = !strcmp(names[n], "order") || !strcmp(names[n], "places");
            for (int64_t i = 0; i < all; i++) wrong = fmax(wrong, fabs(found[i] - expected[i]));
            if (wrong > (whole ? 0 : 2e-4)) printf("%s of %d x %d: %g\n", names[n], a, b, wrong);
            EXPECT(wrong <= (whole ? 0 : 2e-4));
        }
}

TEST(closed)
{
    remove(path);
    qn_context_close(context);
}

TEST_MAIN(CASE(opened), CASE(few_columns_are_one_launch), CASE(a_selection_is_one_launch), CASE(few_rows_are_blocks),
          CASE(batches_share_texts), CASE(as_ref_has_it), CASE(closed))
