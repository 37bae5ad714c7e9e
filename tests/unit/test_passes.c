/*
 * The passes. tests/text/PASS/ holds files with a kernel, a line "# after PASS", and what that pass makes of it;
 * QUERN_BLESS=1 rewrites the second part. Every pass run again on its own result changes nothing, and a whole pipeline
 * run on its own result changes nothing either.
 * SPDX-License-Identifier: MIT
 */
#include "passes/facts.h"
#include "test.h"

#include <dirent.h>
#include <stdlib.h>

#define FOLDER QUERN_ROOT "/tests/text/"

static tile_kernel *read_kernel(arena *memory, const char *name, const char *words, size_t length)
{
    tile_kernel *k = NULL;
    qn_error error;
    if (tile_read(memory, name, words, length, &k, &error) != QN_OK) {
        printf("%s\n", error.message);
        EXPECT(!"the kernel reads");
    }
    return k;
}

static void run_file(const pass *p, const char *path)
{
    char *data, marker[100];
    size_t size;
    qn_error error;
    arena *memory = arena_new();
    EXPECT(file_read(path, 1 << 20, &data, &size, &error) == QN_OK);
    snprintf(marker, sizeof(marker), "# after %s\n", p->name);
    char *expected = strstr(data, marker);
    size_t length = expected ? (size_t)(expected - data) : size;
    tile_kernel *k = read_kernel(memory, path, data, length);
    text out = {0}, again = {0};
    if (k) {
        p->run(k);
        if (tile_verify(k, &error) != QN_OK) printf("%s: %s\n", path, error.message);
        EXPECT(tile_verify(k, &error) == QN_OK);
        tile_print(k, &out);
        if (environment_get("QUERN_BLESS")) {
            text whole = {0};
            text_add_bytes(&whole, data, length);
            text_add(&whole, marker);
            text_add(&whole, text_get(&out));
            EXPECT(file_write(path, whole.data, whole.length, &error) == QN_OK);
            text_free(&whole);
        } else {
            EXPECT(expected);
            if (expected && strcmp(text_get(&out), expected + strlen(marker))) printf("%s:\n", path);
            if (expected) EXPECT_TEXT(text_get(&out), expected + strlen(marker));
        }
        bool changed = p->run(k);
        tile_print(k, &again);
        if (changed) printf("%s: the second run changes something\n", path);
        EXPECT(!changed);
        EXPECT_TEXT(text_get(&again), text_get(&out));
    }
    text_free(&out);
    text_free(&again);
    arena_free(memory);
    free(data);
}

TEST(files_of_each_pass)
{
    for (int i = 0; i < pass_count; i++) {
        char path[1000];
        int count = 0;
        snprintf(path, sizeof(path), FOLDER "%s", passes[i].name);
        DIR *folder = opendir(path);
        for (struct dirent *file; folder && (file = readdir(folder));) {
            size_t length = strlen(file->d_name);
            if (length < 5 || strcmp(file->d_name + length - 5, ".tile")) continue;
            snprintf(path, sizeof(path), FOLDER "%s/%s", passes[i].name, file->d_name);
            run_file(&passes[i], path);
            count++;
        }
        if (folder) closedir(folder);
        if (!count) printf("pass %s has no files\n", passes[i].name);
        EXPECT(count > 0);
    }
}

static void list_names(void *context, const tile_kernel *k, const char *name, bool changed, int64_t time_ns)
{
    text_print(context, "%s%s ", name, changed ? "!" : "");
    EXPECT(time_ns >= 0);
}

static const char pipeline[] = "kernel k\n"
                               "  param x in f32 [n]\n"
                               "  param y out f32 [n]\n"
                               "  param n extent i64 by16\n"
                               "head {\n"
                               "  %1 = arg n : i64\n"
                               "  %2 = const 15 : i64\n"
                               "  %3 = add %1, %2 : i64\n"
                               "  %4 = const 16 : i64\n"
                               "  %5 = div %3, %4 : i64\n"
                               "  launch 0 %5\n"
                               "}\n"
                               "phase {\n"
                               "  %6 = program 0 : i64\n"
                               "  %7 = const 16 : i64\n"
                               "  %8 = mul %6, %7 : i64\n"
                               "  %9 = const 1 : i64\n"
                               "  %10 = load x[%8:%9 @0] : f32[16]\n"
                               "  store y[%8:%9 @0] = %10\n"
                               "}\n";

TEST(the_runner)
{
    arena *memory = arena_new();
    text names = {0}, out = {0};
    qn_error error = {0};
    tile_kernel *k = read_kernel(memory, "pipeline", pipeline, strlen(pipeline));
    EXPECT(passes_run(k, NULL, list_names, &names, &error) == QN_OK);
    EXPECT_TEXT(text_get(&names), "specialise fold cse simplify licm split unmask! dce carry ");
    tile_print(k, &out);
    EXPECT(strstr(text_get(&out), "load x[%8:%9 @0 safe] : f32[16]") != NULL);
    EXPECT(strstr(text_get(&out), "store y[%8:%9 @0 safe] = %10") != NULL);
    text_clear(&names);
    EXPECT(passes_run(k, "cse", list_names, &names, &error) == QN_OK);
    EXPECT_TEXT(text_get(&names), "specialise fold cse ");
    EXPECT(passes_run(k, "fould", NULL, NULL, &error) == QN_BAD_CALL);
    EXPECT_TEXT(error.message, "there is no pass called `fould`; did you mean `fold`?");
    text_free(&names);
    text_free(&out);
    arena_free(memory);
}

/* Integers of a kernel: what is known of them. */
static const char integers[] = "kernel k\n"
                               "  param x in i32 [n]\n"
                               "  param n extent i64 by16 class 1\n"
                               "  param m extent i64\n"
                               "  param s scalar i64\n"
                               "head {\n"
                               "  %100 = arg n : i64\n"
                               "  %101 = arg m : i64\n"
                               "  %102 = const 24 : i64\n"
                               "  %103 = mod %101, %102 : i64\n"
                               "  %104 = const 0 : i64\n"
                               "  %105 = eq %103, %104 : bool\n"
                               "  assume \"m % 24 == 0\" %105\n"
                               "  launch 0 %100\n"
                               "}\n"
                               "phase {\n"
                               "  %1.p = program 0 : i64\n"
                               "  %2 = const 64 : i64\n"
                               "  %3.start = mul %1.p, %2 : i64\n"
                               "  %4 = iota axis 0 : i64[64]\n"
                               "  %5.index = add %3.start, %4 : i64[64]\n"
                               "  %6 = const 3 : i64\n"
                               "  %7.m = arg m : i64\n"
                               "  %8.thirds = div %7.m, %6 : i64\n"
                               "  %9.rest = mod %5.index, %2 : i64[64]\n"
                               "  %10.s = arg s : i64\n"
                               "  %11.any = mul %10.s, %2 : i64\n"
                               "  %12 = const 0 : i64\n"
                               "  %13.last = for %12, %7.m, %2, %12 : i64 with (%14.k : i64, %15.count : i64) {\n"
                               "    %16.next = add %15.count, %6 : i64\n"
                               "    yield %16.next\n"
                               "  }\n"
                               "  %17.loaded = load x[%10.s] : i32\n"
                               "  %18.wide = convert %17.loaded : i64\n"
                               "  %19.small = and %18.wide, %2 : i64\n"
                               "  %20.most = min %18.wide, %6 : i64\n"
                               "  %21.twice = mul %5.index, %6 : i64[64]\n"
                               "  %22.column = reshape %21.twice : i64[64, 1]\n"
                               "  %23.row = reshape %4 : i64[1, 64]\n"
                               "  %24.both = sub %22.column, %23.row : i64[64, 64]\n"
                               "  %25.odd = mul %24.both, %24.both : i64[64, 64]\n"
                               "}\n";

static value find_named(const tile_kernel *k, const char *name)
{
    for (int v = 1; v < k->value_count; v++)
        if (k->values[v].name && !strcmp(k->values[v].name, name)) return (value)v;
    return 0;
}

static void expect_fact(const tile_kernel *k, const facts *f, const char *name, int64_t low, int64_t high,
                        int64_t divisor)
{
    value v = find_named(k, name);
    integer_fact fact = facts_of(f, v);
    if (v && fact.low == low && fact.high == high && fact.divisor == divisor) return;
    printf("%s: %lld .. %lld by %lld\n", name, (long long)fact.low, (long long)fact.high, (long long)fact.divisor);
    EXPECT(!"the fact");
}

TEST(ranges_and_divisors)
{
    arena *memory = arena_new();
    tile_kernel *k = read_kernel(memory, "integers", integers, strlen(integers));
    facts *f = facts_compute(k, memory);
    int64_t huge = LARGEST_EXTENT;
    expect_fact(k, f, "p", 0, 1023, 1);
    expect_fact(k, f, "start", 0, 1023 * 64, 64);
    expect_fact(k, f, "index", 0, 1024 * 64 - 1, 1);
    expect_fact(k, f, "m", 0, huge, 24);
    expect_fact(k, f, "thirds", 0, huge / 3, 8);
    expect_fact(k, f, "rest", 0, 63, 1);
    expect_fact(k, f, "any", INT64_MIN, INT64_MAX, 64);
    expect_fact(k, f, "k", 0, huge - 1, 64);
    expect_fact(k, f, "count", INT64_MIN, INT64_MAX, 1); /* it may wrap, and 3 does not divide 2^64 */
    expect_fact(k, f, "loaded", INT32_MIN, INT32_MAX, 1);
    expect_fact(k, f, "wide", INT32_MIN, INT32_MAX, 1);
    expect_fact(k, f, "small", 0, 64, 64);
    expect_fact(k, f, "most", INT32_MIN, 3, 1);
    int64_t step;
    EXPECT(facts_stride(f, find_named(k, "index"), 0, &step) && step == 1);
    EXPECT(facts_stride(f, find_named(k, "twice"), 0, &step) && step == 3);
    EXPECT(facts_stride(f, find_named(k, "both"), 0, &step) && step == 3);
    EXPECT(facts_stride(f, find_named(k, "both"), 1, &step) && step == -1);
    EXPECT(!facts_stride(f, find_named(k, "odd"), 0, &step));
    arena_free(memory);
}

TEST_MAIN(CASE(files_of_each_pass), CASE(the_runner), CASE(ranges_and_divisors))
