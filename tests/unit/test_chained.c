/*
 * Chained products at the tile level (schedule/chained.c): which running maxima may lag behind, that scores times a scalar
 * are right for any sign and size of it, masks, and the order of programs, on emu against ref.
 * SPDX-License-Identifier: MIT
 */
#include "ir/tile.h"
#include "test.h"

#include <math.h>
#include <quern/workbench.h>
#include <stdlib.h>

#define LAGGING QUERN_ROOT "/tests/data/lagging.qn"
#define ATTENTION QUERN_ROOT "/kernels/attention.qn"

static qn_context *context;
static qn_error error;

static void keep(void *user, const char *words, size_t length)
{
    text_add_bytes(user, words, length);
}

/* The part that `show` prints for a Hopper; settings: up to eight words. */
static char *show(const char *path, const char *kernel, const char *stage, const char *settings)
{
    text out = {0};
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

/* In the text a maximum that lags is compared with the carried one and eight more. */
TEST(maxima_lag_where_nothing_shows_it)
{
    static const struct {
        const char *kernel, *more;
        bool lags;
    } rows[] = {{"quotient", "", true}, {"maximum", "", false},   {"sums", "", false},       {"one", "", false},
                {"halves", "", true},   {"halves", "W=21", true}, {"halves", "W=22", false}, {"halves", "W=64", false}};
    for (int i = 0; i < COUNT(rows); i++) {
        char settings[64];
        snprintf(settings, sizeof settings, "L=128 S=96 scale=0.5 %s", rows[i].more);
        char *words = show(LAGGING, rows[i].kernel, "cuda", settings);
        bool chained = strstr(words, "wgmma_bf16_n32") || strstr(words, "wgmma_f16_n32"),
             lags = strstr(words, " + 8 ? ") != NULL;
        if (!chained || lags != rows[i].lags)
            printf("%s: %s, %s\n", rows[i].kernel, chained ? "chained" : "not chained", lags ? "lags" : "does not lag");
        EXPECT(chained && lags == rows[i].lags);
        free(words);
    }
}

typedef struct work {
    const char *file, *kernel;
    int heads, rows, columns, depth;
    double scale;
    bool causal;
    int tile[2];
    int weight; /* 0 for kernels of bf16; else this factor of weights, which are f16 */
} work;

static dtype elem_of(const work *w)
{
    return w->weight ? DT_F16 : DT_BF16;
}

/* Numbers of -1 to 1, later rows larger, so that maxima grow as the loop goes on. */
static void fill(dtype elem, unsigned short *x, int64_t rows, int depth, unsigned seed)
{
    for (int64_t i = 0; i < rows * depth; i++) {
        seed = seed * 1664525u + 1013904223u;
        double growth = 0.25 + (double)(i / depth) / (double)rows;
        element_write(elem, (char *)&x[i], (number){.f = ((int)(seed >> 16) % 1000 / 500.0 - 1) * growth});
    }
}

static void run_on(const work *w, const char *device, void *const *in, unsigned short *o, float *lse)
{
    qn_module *module;
    qn_call *call;
    bool whole = w->heads > 0; /* with axes of batches and heads */
    const int64_t q[] = {1, w->heads, w->rows, w->depth}, k[] = {1, w->heads, w->columns, w->depth};
    int rank = whole ? 4 : 2, skipped = 4 - rank;
    static const char *const names[] = {"q", "k", "v"};
    EXPECT(qn_module_load_file(context, w->file, &module, &error) == QN_OK);
    EXPECT(qn_call_new(module, w->kernel, &call, &error) == QN_OK);
    bool good = true;
    qn_dtype elem = (qn_dtype)elem_of(w);
    for (int i = 0; i < 3; i++)
        good &= qn_call_set_memory(call, names[i], in[i], elem, rank, (i ? k : q) + skipped, NULL, &error) == QN_OK;
    good = good && qn_call_set_memory(call, "o", o, elem, rank, q + skipped, NULL, &error) == QN_OK &&
           qn_call_set_memory(call, "lse", lse, QN_F32, rank - 1, q + skipped, NULL, &error) == QN_OK &&
           qn_call_set_float(call, "scale", w->scale, &error) == QN_OK &&
           qn_call_set_int(call, "BM", w->tile[0], &error) == QN_OK &&
           qn_call_set_int(call, "BN", w->tile[1], &error) == QN_OK;
    if (w->weight) good = good && qn_call_set_int(call, "W", w->weight, &error) == QN_OK;
    if (whole) good = good && qn_call_set_int(call, "CAUSAL", w->causal, &error) == QN_OK;
    good = good && qn_call_run(call, device, &error) == QN_OK;
    if (!good) printf("%s on %s: %s\n", w->kernel, device, error.message);
    EXPECT(good);
    qn_call_free(call);
    qn_module_free(module);
}

static void compare(const work *w)
{
    int64_t heads = w->heads ? w->heads : 1, rows = heads * w->rows, columns = heads * w->columns;
    void *in[3];
    unsigned short *o[2];
    float *lse[2];
    for (int i = 0; i < 3; i++) {
        int64_t lines = i ? columns : rows;
        in[i] = aligned_alloc(128, (size_t)(lines * w->depth * 2 + 127) / 128 * 128);
        fill(elem_of(w), in[i], lines, w->depth, 7u + (unsigned)i);
    }
    for (int d = 0; d < 2; d++) {
        o[d] = aligned_alloc(128, (size_t)(rows * w->depth * 2 + 127) / 128 * 128);
        lse[d] = aligned_alloc(128, (size_t)(rows * 4 + 127) / 128 * 128);
        run_on(w, d ? "emu" : "ref", in, o[d], lse[d]);
    }
    double far = 0, most = 1;
    for (int64_t i = 0; i < rows * w->depth; i++) {
        double x = element_read(elem_of(w), (char *)&o[0][i]).f, y = element_read(elem_of(w), (char *)&o[1][i]).f;
        if (fabs(x) > most) most = fabs(x);
        if (!(fabs(x - y) <= far)) far = fabs(x - y);
    }
    double row = 0;
    for (int64_t i = 0; i < rows; i++)
        if (!(fabs(lse[0][i] - lse[1][i]) <= row)) row = fabs(lse[0][i] - lse[1][i]);
    bool right = far <= 0.02 * most && row <= 2e-3 * fmax(1, fabs(w->scale));
    if (!right)
        printf("%s %dx%d, scale %g%s: %g of %g, rows %g\n", w->kernel, w->rows, w->columns, w->scale,
               w->causal ? ", causal" : "", far, most, row);
    EXPECT(right);
    for (int i = 0; i < 3; i++) free(in[i]);
    for (int d = 0; d < 2; d++) free(o[d]), free(lse[d]);
}

TEST(any_scalar_factor_and_order)
{
    static const work works[] = {
        {ATTENTION, "attention", 2, 128, 160, 64, 0.125, false, {64, 32}, 0},
        {ATTENTION, "attention", 1, 64, 160, 64, -40, false, {64, 32}, 0},
        {ATTENTION, "attention", 1, 64, 96, 64, 0, false, {64, 32}, 0},
        {ATTENTION, "attention", 1, 64, 150, 64, 9, false, {64, 32}, 0},
        {ATTENTION, "attention", 6, 192, 192, 64, 2, true, {64, 32}, 0},
        {ATTENTION, "attention", 5, 200, 200, 128, -1, true, {128, 64}, 0},
        {LAGGING, "quotient", 0, 100, 200, 64, 6, false, {64, 32}, 0},
        {LAGGING, "maximum", 0, 100, 200, 64, 6, false, {64, 32}, 0},
        {LAGGING, "sums", 0, 100, 200, 64, 1, false, {64, 32}, 0},
        {LAGGING, "one", 0, 100, 200, 64, 2, false, {64, 32}, 0},
        {LAGGING, "factors", 0, 100, 200, 64, 2, false, {64, 32}, 0},
        {LAGGING, "factors", 0, 100, 200, 64, -2, false, {64, 32}, 0},
        {LAGGING, "halves", 0, 100, 200, 64, 1, false, {64, 32}, 20},
        {LAGGING, "halves", 0, 100, 200, 64, 1, false, {64, 32}, 64},
    };
    for (int i = 0; i < COUNT(works); i++) compare(&works[i]);
}

TEST(open_context)
{
    EXPECT(qn_context_open(NULL, &context, &error) == QN_OK);
}

TEST(close_context)
{
    qn_context_close(context);
}

TEST_MAIN(CASE(open_context), CASE(maxima_lag_where_nothing_shows_it), CASE(any_scalar_factor_and_order),
          CASE(close_context))
