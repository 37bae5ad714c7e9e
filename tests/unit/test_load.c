/*
 * Loading grows with the file, not with its square: ten times as many items take about ten times this thread's own time,
 * whatever kind they are and whatever is said about them. And names find what they name.
 * SPDX-License-Identifier: MIT
 */
#include "quiet.h"
#include "run/run.h"
#include "share.h"

#include <stdlib.h>

static qn_context *context;
static qn_error error;

/* One item of each kind; %d is its number. */
static const struct {
    const char *what, *words, *name;
    int few; /* ten times as many are the others */
} kinds[] = {
    {"kernels", "kernel k%d(in float x[n], out float y[n]) launch (n) { y[program(0)] = x[program(0)]; }\n", "k%d",
     5000},
    {"kernels with a warning",
     "kernel k%d(in float x[n], out float y[n]) launch (n) { float unused = 1; y[program(0)] = x[program(0)]; }\n",
     "k%d", 2000},
    {"kernels with a function and a constant",
     "const int C%d = 3;\nfloat g%d(float x) { return x + C%d; }\n"
     "kernel k%d(in float x[n], out float y[n]) launch (n) { y[program(0)] = g%d(x[program(0)]); }\n",
     "k%d", 2000},
    {"tensor functions", "tensor t%d(float x[n]) { return sum(relu(x)); }\n", "grad(t%d)", 2000},
    {"benches",
     "kernel k%d(in float x[n], out float y[n]) launch (n) { y[program(0)] = x[program(0)]; }\n"
     "bench b%d (n = 64) input (x = normal(0, 1)) { k%d }\n",
     "k%d", 2000},
};

static char *make_source(const char *words, int count)
{
    text out = {0};
    for (int i = 0; i < count; i++) text_print(&out, words, i, i, i, i, i);
    char *copy = strdup(text_get(&out));
    text_free(&out);
    return copy;
}

/* Own time of loading the file and of finding each of its kernels once, the best of some rounds. */
static double load_ns(int kind, int count, int rounds)
{
    char *source = make_source(kinds[kind].words, count), name[40];
    int64_t best = INT64_MAX;
    for (int round = 0; round < rounds; round++) {
        qn_module *module = NULL;
        int64_t start = quiet_clock_ns(CLOCK_THREAD_CPUTIME_ID);
        EXPECT(qn_module_load_text(context, "many.qn", source, &module, &error) == QN_OK);
        if (!module) printf("%.400s\n", error.message);
        for (int i = 0; module && i < count; i++) {
            snprintf(name, sizeof(name), kinds[kind].name, i);
            const kernel_entry *e = module_find(module, name, &error);
            if (!e || strcmp(e->name, name)) EXPECT(!"a kernel is found by its name");
            if (e && strstr(kinds[kind].what, "warning") && !strstr(text_get((text *)&e->warnings), "W602"))
                EXPECT(!"a warning stands with its kernel");
            if (e && strstr(kinds[kind].what, "bench")) EXPECT(bench_of(module->file, name) != NULL);
        }
        best = MINIMUM(best, quiet_clock_ns(CLOCK_THREAD_CPUTIME_ID) - start);
        qn_module_free(module);
    }
    free(source);
    return (double)best;
}

TEST(ten_times_the_items_take_about_ten_times_as_long)
{
    EXPECT(qn_context_open(NULL, &context, &error) == QN_OK);
    for (int kind = 0; kind < COUNT(kinds); kind++) {
        int count = kinds[kind].few / share_of_few("items");
        double few = load_ns(kind, count, 3), many = load_ns(kind, 10 * count, 1);
        printf("note: load: %d %s in %.0f ms, %.1f times as long as %d\n", 10 * count, kinds[kind].what, many * 1e-6,
               many / few, count);
        EXPECT_QUICK(many < 30 * few); /* a square is a hundred times */
    }
    qn_context_close(context);
}

TEST_MAIN(CASE(ten_times_the_items_take_about_ten_times_as_long))
