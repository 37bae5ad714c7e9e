/*
 * Who chooses whether the library computes a product of whole arrays: the setting, QUERN_LIBRARY, a record of tuning, or
 * nobody; what `quern tune`, `quern bench --against cublas` and `show --stage choices` say of it; a library that is too old.
 * SPDX-License-Identifier: MIT
 */
#define _GNU_SOURCE
#include "products.h"

/* A library that is not the one it seems: everything runs, and `quern devices` says what is wrong. (One that is loaded is
 * found again: this comes first.) */
TEST(no_library)
{
    char command[20000], bare[200], words[900];
    const char *with = fake_take();
    snprintf(bare, sizeof(bare), "%s/bare", folder);
    snprintf(command, sizeof(command),
             "mkdir %s && ln -s %s/libcuda.so.1 %s/libnvrtc.so.13 %s && ln -s %s/libcuda.so.1 %s/libcublasLt.so.13",
             bare, with, with, bare, with, bare);
    EXPECT(system(command) == 0);
    setenv("QUERN_CUDA_PATH", bare, 1);
    open_with(NULL);
    snprintf(
        words, sizeof(words),
        "cuBLASLt, NVIDIA's matrix products is too old: %s/libcublasLt.so.13 has no cublasLtGetProperty; Quern does "
        "without it; to let `quern tune` try it install libcublas",
        bare);
    char *details = qn_device_details(context, "cuda");
    EXPECT(details && strstr(details, words) != NULL);
    free(details);
    EXPECT(products_of("nn", 1) == 0);
    EXPECT(products_of("product", 1) == 0);
    EXPECT(strstr(chosen("nn", "library=1"), words) != NULL);
    open_with("always");
    EXPECT(products_of("nn", 0) == 0);
    fake_take();
    open_with(NULL);
}

TEST(who_chooses)
{
    const char *nobody =
        "library: not taken: nobody asked for it; `quern tune` tries it, the setting library=1 takes it";
    open_with(NULL);
    EXPECT(products_of("nn", 0) == 0);
    EXPECT(products_of("nn", 1) == 1);
    EXPECT(products_of("nn", 3) == 1);
    EXPECT(products_of("nn", 4) == 0); /* it suggests three ways */
    EXPECT(products_of("product", 0) == 0);
    EXPECT(products_of("product", 2) == 1);
    EXPECT_TEXT(chosen("nn", NULL), nobody);
    EXPECT_TEXT(chosen("nn", "library=2"), "library: taken for f32 40x24x56, its way 2: the setting library");
    EXPECT_TEXT(chosen("active", "library=1"),
                "library: cannot take it: something is computed between the product and its store");
    EXPECT_TEXT(chosen("product", NULL), nobody);
    EXPECT_TEXT(chosen("product", "library=1"),
                "library: taken for f32 40x24x56, its way 1: the setting library of the "
                "function, or its record of tuning");
    EXPECT_TEXT(chosen("active_product", "library=1"),
                "library: not taken: nobody asked for it; `quern tune` tries it, the setting library=1 takes it");
    open_with("never");
    EXPECT(products_of("nn", 1) == 0);
    EXPECT(products_of("product", 1) == 0);
    EXPECT_TEXT(chosen("nn", "library=1"), "library: not taken: QUERN_LIBRARY=never");
    open_with("always");
    EXPECT(products_of("nn", 0) == 1);
    EXPECT(products_of("product", 0) == 1);
    EXPECT_TEXT(chosen("nn", NULL), "library: taken for f32 40x24x56, its way 1: QUERN_LIBRARY=always");
    setenv("QUERN_LIBRARY", "sometimes", 1);
    qn_context *none = NULL;
    EXPECT(qn_context_open(NULL, &none, &error) == QN_BAD_CALL && !none);
    EXPECT_TEXT(error.message, "QUERN_LIBRARY is never, tuned or always, not `sometimes`");
    open_with(NULL);
}

TEST(tuning)
{
    text out = {0};
    const char *settings[] = {"M=40", "N=24", "K=56", "T=float", "U=float"};
    qn_tune_options options = {.device = "cuda", .settings = {settings, 5}, .budget_s = 12};
    OK(qn_tune(context, path, "nn", &options, collect, NULL, &out, &error));
    for (int way = 1; way <= 3; way++) {
        char part[40];
        snprintf(part, sizeof(part), "library=%d ", way);
        EXPECT(strstr(text_get(&out), part) != NULL);
    }
    EXPECT(strstr(text_get(&out),
                  "library=4 refused: the library does not compute it: cuBLASLt has fewer ways for this "
                  "product") != NULL);
    text_clear(&out);
    OK(qn_tune(context, path, "active", &options, collect, NULL, &out, &error));
    EXPECT(!strstr(text_get(&out), "library")); /* no candidate where it is no product */
    text_free(&out);
}

/* What a record says is taken by calls that leave it open, and by those alone. */
TEST(records)
{
    operands o;
    text key = {0};
    int slot;
    open_with(NULL);
    make("nn", (shape){0, 40, 24, 56}, QN_F32, QN_F32, &o);
    qn_call *call = call_of("ordered", &o, 0);
    OK(context_slot(context, "cuda", &slot, &error));
    OK(tune_key_of(call, slot, &key, &error));
    tune_record(context, text_get(&key), "library=2", 1);
    qn_call_free(call);
    drop(&o);
    EXPECT(products_of("ordered", 0) == 1);
    EXPECT_TEXT(chosen("ordered", NULL), "library: taken for f32 40x24x56, its way 2: the record of `quern tune`");
    EXPECT(products_of("nn", 0) == 0);
    make("nn", (shape){0, 40, 24, 56}, QN_F32, QN_F32, &o);
    call = call_of("product", &o, 0);
    text_clear(&key);
    OK(tune_key_of(call, slot, &key, &error));
    tune_record(context, text_get(&key), "tile=0 library=1", 1); /* of a tensor function */
    qn_call_free(call);
    drop(&o);
    text_free(&key);
    EXPECT(products_of("product", 0) == 1);
    open_with("never");
    EXPECT(products_of("ordered", 0) == 0);
    EXPECT(products_of("product", 0) == 0);
    open_with(NULL);
}

TEST(benchmarks)
{
    text out = {0};
    qn_bench_options options = {.device = "cuda", .against_path = "cublas", .seconds = 0.01, .bench = "nn"};
    OK(qn_bench_file(context, path, &options, collect, NULL, &out, &error));
    EXPECT(test_count(text_get(&out), "(library = 1)") == 1 && strstr(text_get(&out), "nn(library = 1)") != NULL);
    text_clear(&out);
    options.bench = "active";
    OK(qn_bench_file(context, path, &options, collect, NULL, &out, &error));
    EXPECT(strstr(text_get(&out), "active(library = 1) skipped: the library does not compute it: something is computed "
                                  "between the product and its store") != NULL);
    text_clear(&out);
    options.bench = "unasked"; /* a variant that does without, beside which one has to do with it */
    OK(qn_bench_file(context, path, &options, collect, NULL, &out, &error));
    EXPECT(strstr(text_get(&out), "library = 1) skipped: the library does not compute it") != NULL);
    text_free(&out);
}

TEST_MAIN(CASE(opening), CASE(no_library), CASE(who_chooses), CASE(records), CASE(tuning), CASE(benchmarks),
          CASE(closing))
