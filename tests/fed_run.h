/*
 * Products that are fed by bulk copies, for tests: kernels of tests/data/fed.qn as text of any stage, and run on ref and on emu with
 * small whole numbers (exact sums), whose results must be the same.
 * SPDX-License-Identifier: MIT
 */
#ifndef QUERN_TESTS_FED_RUN_H
#define QUERN_TESTS_FED_RUN_H

#include "ir/tile.h"
#include "share.h"
#include "test.h"

#include <math.h>
#include <quern/tensor.h>
#include <quern/workbench.h>
#include <stdlib.h>

#define FILE_PATH QUERN_ROOT "/tests/data/fed.qn"

static qn_context *context;
static qn_module *module;

static void keep(void *user, const char *words, size_t length)
{
    text_add_bytes(user, words, length);
}

/* settings: "M=8 N=8 T=bf16". */
static char *show(const char *path, const char *kernel, const char *stage, const char *settings)
{
    text out = {0};
    qn_error error;
    char words[8][32];
    const char *list[8];
    int count = 0, used;
    for (; count < 8 && sscanf(settings, " %31s%n", words[count], &used) == 1; settings += used) {
        list[count] = words[count];
        count++;
    }
    qn_show_options options = {.stage = stage, .arch = "sm_90a", .settings = {list, count}};
    if (qn_show(context, path, kernel, &options, keep, &out, &error) != QN_OK) text_print(&out, "%s", error.message);
    return out.data ? out.data : calloc(1, 1);
}

static bool is_fed(const char *kernel, const char *settings)
{
    char *words = show(FILE_PATH, kernel, "schedule", settings);
    bool fed = strstr(words, ": fed tile=") != NULL;
    if (!fed) printf("%s with %s: %s\n", kernel, settings, words);
    free(words);
    return fed;
}

typedef struct array {
    const char *name;
    dtype elem;
    int rank;
    int64_t extents[3];
    void *data;
} array;

static int64_t count_of(const array *a)
{
    int64_t count = 1;
    for (int i = 0; i < a->rank; i++) count *= a->extents[i];
    return count;
}

static double scale = 1; /* of all numbers */
static int turns;        /* the knob */

static void fill(array *a, int seed)
{
    size_t size = (size_t)dtypes[a->elem].size_bytes;
    a->data = aligned_alloc(64, ((size_t)count_of(a) * size + 127) / 64 * 64);
    for (int64_t i = 0; i < count_of(a); i++) {
        double x = (double)((i * (5 + seed) + i / (3 + seed)) % 5 - 2);
        x *= scale;
        element_write(a->elem, (char *)a->data + (size_t)i * size, (number){.f = x, .i = (int64_t)x});
    }
}

/* The arrays on ref and on emu; the last `results` of them are compared. */
static void compare(const char *kernel, array *arrays, int count, int results, dtype t)
{
    qn_error error;
    void *written[2][2] = {{NULL}};
    bool good = true;
    static int met;
    if (met++ % ((share_of_few("products") + 3) / 4)) return; /* every second */
    for (int i = 0; i < count; i++) fill(&arrays[i], i);
    for (int d = 0; d < 2 && good; d++) {
        qn_call *call;
        EXPECT(qn_call_new(module, kernel, &call, &error) == QN_OK);
        for (int i = 0; i < count && good; i++) {
            const array *a = &arrays[i];
            size_t bytes = (size_t)count_of(a) * (size_t)dtypes[a->elem].size_bytes;
            void *data = a->data;
            if (i >= count - results) {
                data = written[d][i - count + results] = aligned_alloc(64, (bytes + 127) / 64 * 64);
                memcpy(data, a->data, bytes);
            }
            good =
                qn_call_set_memory(call, a->name, data, (qn_dtype)a->elem, a->rank, a->extents, NULL, &error) == QN_OK;
        }
        if (turns)
            good = good && qn_call_set_int(call, "turns", turns, &error) == QN_OK &&
                   qn_call_set_int(call, "stages", 2, &error) == QN_OK;
        good = good && qn_call_run(call, d ? "emu" : "ref", &error) == QN_OK;
        if (!good) printf("%s of %s: %s\n", kernel, dtypes[t].text, error.message);
        EXPECT(good);
        qn_call_free(call);
    }
    for (int r = 0; r < results && good; r++) {
        const array *a = &arrays[count - results + r];
        int bad = 0;
        for (int64_t i = 0; i < count_of(a); i++) {
            size_t at = (size_t)i * (size_t)dtypes[a->elem].size_bytes;
            number want = element_read(a->elem, (char *)written[0][r] + at);
            number got = element_read(a->elem, (char *)written[1][r] + at);
            if ((dtype_is_float(a->elem) ? want.f != got.f : want.i != got.i) && !bad++)
                printf("%s of %s: element %d of %s is %g, not %g\n", kernel, dtypes[t].text, (int)i, a->name, got.f,
                       want.f);
        }
        EXPECT(!bad);
    }
    for (int i = 0; i < count; i++) free(arrays[i].data);
    for (int d = 0; d < 2; d++)
        for (int r = 0; r < results; r++) free(written[d][r]);
}

static void run_plain(const char *kernel, dtype t, dtype out, bool turn_a, bool turn_b, int64_t m, int64_t n, int64_t k)
{
    array arrays[] = {{.name = "a", .elem = t, .rank = 2, .extents = {turn_a ? k : m, turn_a ? m : k}},
                      {.name = "b", .elem = t, .rank = 2, .extents = {turn_b ? n : k, turn_b ? k : n}},
                      {.name = "c", .elem = out, .rank = 2, .extents = {m, n}}};
    compare(kernel, arrays, 3, 1, t);
}

TEST(open_module)
{
    qn_error error;
    EXPECT(qn_context_open(NULL, &context, &error) == QN_OK);
    qn_status status = qn_module_load_file(context, FILE_PATH, &module, &error);
    if (status != QN_OK) printf("%s\n", error.message);
    EXPECT(status == QN_OK);
    if (status != QN_OK) exit(1);
}

TEST(close_module)
{
    qn_module_free(module);
    qn_context_close(context);
}

#endif
