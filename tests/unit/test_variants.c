/*
 * Variants: what compiles and what does not. A new size within its class compiles nothing; a changed fact compiles
 * once; there are never more than eight, and the eighth serves all the rest; each knows why it exists. Needs the cpu
 * device. SPDX-License-Identifier: MIT
 */
#define _GNU_SOURCE
#include "run/run.h"
#include "test.h"

#include <stdlib.h>

static const char source[] = "kernel twice(in T x[r][c], out T y[r][c], const int B = 64) launch (r, cdiv(c, B))\n"
                             "{ y[program(0)][program(1) * B : B] = 2 * x[program(0)][program(1) * B : B]; }\n";

static qn_error error;
static qn_context *context;
static qn_module *module;
static float *x, *y; /* 64-byte aligned */

static int64_t made(void)
{
    return context->compiles + context->cache_hits;
}

static bool packed; /* y is row-major, whatever x is */

/* Runs r x c with this row stride and offset; returns how many programs were compiled for it. */
static int64_t launch(int64_t r, int64_t c, int64_t stride, int64_t offset, int block)
{
    int64_t before = made();
    qn_call *call;
    EXPECT(qn_call_new(module, "twice", &call, &error) == QN_OK);
    int64_t extents[] = {r, c}, strides[] = {stride, 1}, to_offset = packed ? 0 : offset, to = packed ? c : stride;
    EXPECT(qn_call_set_memory(call, "x", x + offset, QN_F32, 2, extents, strides, &error) == QN_OK);
    EXPECT(qn_call_set_memory(call, "y", y + to_offset, QN_F32, 2, extents, packed ? NULL : strides, &error) == QN_OK);
    EXPECT(qn_call_set_int(call, "B", block, &error) == QN_OK);
    memset(y, 0, 1 << 20);
    qn_status status = qn_call_run(call, "cpu", &error);
    EXPECT(status == QN_OK);
    if (status) printf("%s\n", error.message);
    bool right = true;
    for (int64_t i = 0; i < r; i++)
        for (int64_t j = 0; j < c; j++) right &= y[to_offset + i * to + j] == 2 * x[offset + i * stride + j];
    EXPECT(right);
    qn_call_free(call);
    return made() - before;
}

TEST(opening)
{
    EXPECT(qn_context_open(&(qn_context_options){.no_cache = true, .threads = 1}, &context, &error) == QN_OK);
    EXPECT(qn_module_load_text(context, "twice.qn", source, &module, &error) == QN_OK);
    x = memory_allocate(1 << 20);
    y = memory_allocate(1 << 20);
    for (int i = 0; i < 1 << 18; i++) x[i] = (float)(i % 1000);
}

static bool has_cpu(void)
{
    return !strcmp(qn_device_best(context), "cpu");
}

TEST(sizes_of_a_class_share)
{
    if (!has_cpu()) return;
    EXPECT(launch(3, 100, 100, 0, 64) == 1);
    EXPECT(launch(3, 100, 100, 0, 64) == 0);
    for (int64_t c = 101; c < 112; c++) EXPECT(launch(5, c, c, 0, 64) == 0);
    EXPECT(launch(7, 300, 300, 0, 64) == 0);
    EXPECT(launch(3, 100, 100, 0, 32) == 1); /* another constant: another instance */
    EXPECT(launch(3, 99, 99, 0, 32) == 0);
}

TEST(facts_make_variants)
{
    if (!has_cpu()) return;
    EXPECT(launch(3, 112, 112, 0, 64) == 1); /* divisible by 16 */
    EXPECT(launch(3, 128, 128, 0, 64) == 0);
    EXPECT(launch(3, 101, 200, 0, 64) == 1); /* rows with gaps */
    EXPECT(launch(3, 101, 211, 0, 64) == 0);
    const instance *i = module->kernels[0].instances;
    while (i && strcmp(i->key, "T=f32 B=64") && strcmp(i->key, "B=64 T=f32")) i = i->next;
    EXPECT(i != NULL);
    int slot;
    EXPECT(context_slot(context, "cpu", &slot, &error) == QN_OK);
    if (!i) return;
    EXPECT(i->variant_count[slot] == 3);
    EXPECT_TEXT(i->variants[slot][0]->why, "the first launch of these constants and types");
    EXPECT(strstr(i->variants[slot][1]->why, "unlike variant 1: ") && strstr(i->variants[slot][1]->why, "with c.by16"));
    EXPECT(strstr(i->variants[slot][2]->why, "without x.contiguous") != NULL);
}

/* Rows are programs here: how many there are makes no code. */
TEST(rows_make_no_variants)
{
    if (!has_cpu()) return;
    launch(3, 96, 96, 0, 8);
    for (int64_t rows = 1; rows < 2000; rows *= 3) EXPECT(launch(rows, 96, 96, 0, 8) == 0);
    EXPECT(launch(16, 96, 96, 0, 8) == 0);
}

TEST(never_more_than_eight)
{
    if (!has_cpu()) return;
    int64_t before = made();
    const int64_t columns[] = {1, 16, 33, 48, 500, 512, 2000, 2048, 7};
    for (int i = 0; i < COUNT(columns); i++)
        for (int gap = 0; gap < 2; gap++)
            for (int offset = 0; offset < 2; offset++)
                for (int64_t rows = 1; rows < 20; rows += 15) {
                    packed = rows == 1 && i % 2;
                    launch(rows, columns[i], columns[i] + gap, offset, 16);
                }
    packed = false;
    EXPECT(made() - before == MAX_VARIANTS);
    int slot;
    EXPECT(context_slot(context, "cpu", &slot, &error) == QN_OK);
    const instance *i = module->kernels[0].instances;
    EXPECT(i->variant_count[slot] == MAX_VARIANTS);
    EXPECT(i->variants[slot][MAX_VARIANTS - 1]->assumes_nothing);
    EXPECT_TEXT(i->variants[slot][MAX_VARIANTS - 1]->facts_words, "");
    EXPECT_TEXT(i->variants[slot][MAX_VARIANTS - 1]->why,
                "there are 7 variants already: this one assumes nothing and serves all other launches");
    context->slots[slot].checked = true; /* tests of every access are other programs, however many there are without */
    EXPECT(launch(3, 33, 33, 0, 16) == 1 && launch(3, 33, 33, 0, 16) == 0);
    EXPECT(i->variant_count[slot] == MAX_VARIANTS + 1 && !i->variants[slot][MAX_VARIANTS]->assumes_nothing);
    context->slots[slot].checked = false;
    EXPECT(launch(3, 33, 33, 0, 16) == 0);
}

TEST(differences_of_facts)
{
    text out = {0};
    facts_differ("x.contiguous n.class=4 n.by16", "x.contiguous x.aligned n.class=3", &out);
    EXPECT_TEXT(text_get(&out), "n.class is 4 instead of 3, with n.by16, without x.aligned");
    EXPECT(facts_distance("a.one b.by16", "b.by16 a.one") == 0);
    EXPECT(facts_distance("", "b.by16 a.one") == 2);
    text_free(&out);
}

/* A repeated run, and a repeated run with other pointers of the same alignment, do no work but the launch. */
TEST(steady_state)
{
    if (!has_cpu()) return;
    qn_call *call;
    int64_t extents[] = {1, 64};
    EXPECT(qn_call_new(module, "twice", &call, &error) == QN_OK);
    EXPECT(qn_call_set_memory(call, "x", x, QN_F32, 2, extents, NULL, &error) == QN_OK);
    EXPECT(qn_call_set_memory(call, "y", y, QN_F32, 2, extents, NULL, &error) == QN_OK);
    EXPECT(qn_call_run(call, "cpu", &error) == QN_OK);
    int64_t before = made(), best_ns = INT64_MAX, best_pointer_ns = INT64_MAX;
    for (int round = 0; round < 200; round++) {
        int64_t start = clock_now_ns();
        for (int i = 0; i < 10; i++) EXPECT(qn_call_run(call, "cpu", &error) == QN_OK);
        int64_t middle = clock_now_ns();
        for (int i = 0; i < 10; i++) {
            EXPECT(qn_call_set_memory(call, "x", x + 64 * (i % 2), QN_F32, 2, extents, NULL, &error) == QN_OK);
            EXPECT(qn_call_run(call, "cpu", &error) == QN_OK);
        }
        best_ns = MINIMUM(best_ns, (middle - start) / 10);
        best_pointer_ns = MINIMUM(best_pointer_ns, (clock_now_ns() - middle) / 10);
    }
    EXPECT(made() == before);
    printf("note: run: a repeated launch of one small program takes %lld ns, with a new pointer %lld ns\n",
           (long long)best_ns, (long long)best_pointer_ns);
    qn_call_free(call);
}

/* The record outlives the process: another context with the same cache folder explains the same variants. */
TEST(why_is_kept)
{
    if (!has_cpu()) return;
    char folder[] = "/tmp/quern-why-XXXXXX", command[64];
    EXPECT(mkdtemp(folder) != NULL);
    for (int round = 0; round < 2; round++) {
        qn_context *own;
        qn_module *again;
        EXPECT(qn_context_open(&(qn_context_options){.cache_folder = folder, .threads = 1}, &own, &error) == QN_OK);
        EXPECT(qn_module_load_text(own, "twice.qn", source, &again, &error) == QN_OK);
        qn_context *keep = context;
        qn_module *keep_module = module;
        context = own;
        module = again;
        launch(3, 100, 100, 0, 64);
        launch(3, 112, 112, 0, 64);
        EXPECT(made() == 2 && (round ? own->compiles == 0 : own->compiles > 0)); /* equal texts are compiled once */
        text out = {0};
        why_print(own, &again->kernels[0], &out);
        EXPECT(strstr(text_get(&out), "twice on cpu, instance ") && strstr(text_get(&out), "  variant 2 assumes "));
        EXPECT(strstr(text_get(&out), "    because, unlike variant 1: ") && !strstr(text_get(&out), "variant 3"));
        text_clear(&out);
        for (int run = 0; round && run < 3 * MAX_VARIANTS; run++) { /* as if of many runs, two instances in turn */
            char facts[32];
            snprintf(facts, sizeof(facts), "n.class=%d", run);
            why_record(own, &again->kernels[0], "cpu", run % 2 ? "B=1" : "B=2", facts);
        }
        why_print(own, &again->kernels[0], &out);
        if (round) {
            EXPECT(strstr(text_get(&out), "twice on cpu, instance B=1\n  (the last 8 of 12; ") != NULL);
            EXPECT(strstr(text_get(&out), "  variant 8 assumes n.class=23\n") &&
                   !strstr(text_get(&out), "n.class=7\n"));
            EXPECT(strstr(text_get(&out), "  variant 1 assumes n.class=9\n    because it was the oldest of these\n") !=
                   NULL);
            EXPECT(!strstr(text_get(&out), "variant 9"));
        }
        text_free(&out);
        context = keep;
        module = keep_module;
        if (round) {
            int64_t files = 0, bytes = 0;
            EXPECT(qn_cache_clear(own, &files, &bytes, &error) == QN_OK);
            EXPECT(files >= 3 && bytes > 0);
        }
        qn_module_free(again);
        qn_context_close(own);
    }
    snprintf(command, sizeof(command), "rm -r %s", folder);
    EXPECT(system(command) == 0);
}

TEST(closing)
{
    if (!has_cpu()) printf("note: variants: no cpu device here, most cases were left out\n");
    memory_free(x);
    memory_free(y);
    qn_module_free(module);
    qn_context_close(context);
}

TEST_MAIN(CASE(opening), CASE(sizes_of_a_class_share), CASE(facts_make_variants), CASE(rows_make_no_variants),
          CASE(never_more_than_eight), CASE(differences_of_facts), CASE(steady_state), CASE(why_is_kept), CASE(closing))
