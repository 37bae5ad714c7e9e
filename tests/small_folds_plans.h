/*
 * How small folds are planned; a part of test_small_folds, which has the kernels and the context.
 * SPDX-License-Identifier: MIT
 */
#ifndef QUERN_TESTS_SMALL_FOLDS_PLANS_H
#define QUERN_TESTS_SMALL_FOLDS_PLANS_H

/* ---- plans ---- */

static void collect(void *user, const char *words, size_t length)
{
    text_add_bytes(user, words, length);
}

static bool why;

static char *shown_on(const char *device, const char *name, const char *stage, const char *const *settings, int count)
{
    const char *path = own_file("small_folds.qn");
    text out = {0};
    FILE *file = fopen(path, "w");
    if (file) fputs(source, file), fclose(file);
    qn_show_options options = {
        .stage = stage, .device = device, .arch = "sm_90a", .settings = {settings, count}, .why = why};
    bool good = qn_show(context, path, name, &options, collect, &out, &error) == QN_OK;
    if (!good) printf("%s: %s\n", name, error.message);
    EXPECT(good);
    remove(path);
    char *words = strdup(text_get(&out));
    text_free(&out);
    return words;
}

static char *shown(const char *name, const char *stage, const char *const *settings, int count)
{
    return shown_on("cuda", name, stage, settings, count);
}

TEST(a_pool_is_a_map)
{
    static const char *const sizes[] = {"N=512", "H=128", "W=128", "k=3", "s=2", "p=1", "d=1"};
    char *fusion = shown("one_by_one", "fusion", sizes, COUNT(sizes));
    char *tile = shown("one_by_one", "tile", sizes, COUNT(sizes));
    EXPECT(test_count(fusion, "kernel ") >= 1 && !strstr(fusion, "kernel 1:"));
    EXPECT(!strstr(tile, "reduce") && !strstr(tile, "scratch") && test_count(tile, "phase {") == 1);
    free(fusion), free(tile);
}

/* Windows that overlap share what they load: ten rows of three for eight results instead of eight times nine. */
TEST(overlapping_windows_share_their_loads)
{
    static const char *const sizes[] = {"N=512", "H=255", "W=1023", "k=3", "s=1", "p=0", "d=1"};
    char *tile = shown("biggest", "cse", sizes, COUNT(sizes));
    EXPECT(test_count(tile, " load ") == 2 * 30 && test_count(tile, "store ") == 2 * 8); /* with tests and without */
    free(tile);
}

/* Elements of windows beside each other come as whole vectors of memory, and results go as such, in every row. */
TEST(windows_are_loaded_by_vectors)
{
    static const char *const sizes[] = {"N=512", "H=256", "W=1024", "k=3", "s=1", "p=1", "d=1"};
    static const struct {
        const char *name, *load, *element, *store;
    } kinds[] = {{"biggest", "load_f32x4_constant_or(v", "read_or_f32(v", "store_f32x4_if(v"},
                 {"biggest_short", "load_words4_constant_or(v", "load_words1_constant_or(v", "store_bf16x8_if(v"}};
    for (int i = 0; i < COUNT(kinds); i++) {
        char *text = shown(kinds[i].name, "cuda", sizes, COUNT(sizes));
        EXPECT(test_count(text, kinds[i].load) == 2 * 10 && test_count(text, kinds[i].element) == 2 * 20);
        EXPECT(test_count(text, kinds[i].store) >= 8);
        free(text);
    }
}

/* Rows of results that begin between vectors do not keep windows from them: threads exchange what they store. */
TEST(results_between_vectors_are_exchanged)
{
    static const char *const sizes[] = {"N=512", "H=256", "W=1024", "k=4", "s=1", "p=1", "d=1"};
    char *text = shown("biggest", "cuda", sizes, COUNT(sizes));
    EXPECT(strstr(text, "load_f32x4_constant_or(v") && strstr(text, "char spread_room[2048]"));
    EXPECT(test_count(text, "store_f32x4(spread + lane * 4") >= 8 && !strstr(text, "store_f32x4_if("));
    free(text);
    text = shown("line", "cuda", (const char *[]){"N=6", "W=712", "k=4"}, 3);
    EXPECT(strstr(text, "char spread_room["));
    free(text);
    /* Three elements three apart of four places two apart are twelve, the line that has them thirteen. */
    static const char *const dilated[] = {"N=512", "H=256", "W=1024", "k=3", "s=2", "p=1", "d=3"};
    text = shown("biggest", "cuda", dilated, COUNT(dilated));
    EXPECT(!strstr(text, "load_f32x4_constant") && !strstr(text, "spread_room"));
    free(text);
}

/* Five points of each of eight places one above the other: twenty-six loads instead of forty. */
TEST(stencils_share_their_loads)
{
    static const char *const sizes[] = {"H=8190", "W=8194"};
    char *tile = shown("heat", "cse", sizes, COUNT(sizes));
    EXPECT(test_count(tile, " load ") == 2 * 26 && test_count(tile, "store ") == 2 * 8);
    free(tile);
}

/* As on_devices_strips_of_merged_axes, by the text: each result is tested. */
TEST(strips_of_merged_axes_end_with_their_rows)
{
    static const char *const sizes[] = {"H=57", "W=75"};
    char *tile = shown("of_each_channel", "tile", sizes, COUNT(sizes)), *second = strstr(tile, "sum_mul_reshape");
    EXPECT(second != NULL);
    if (second) *second = 0; /* the strips are the first kernel */
    int stores = 0, tested = 0;
    for (char *at = strtok(tile, "\n"); at; at = strtok(NULL, "\n"))
        if (strstr(at, "store ")) stores++, tested += strstr(at, " mask ") != NULL;
    EXPECT(stores >= 8 && tested == stores);
    free(tile);
}

/* Of the gradient of a strided pool it is known in the text which windows have an element. */
TEST(results_that_take_turns_divide_no_places)
{
    static const char *const sizes[] = {"N=256", "H=256", "W=1024", "OH=128", "OW=512", "k=3", "s=2"};
    char *tile = shown("largest_slope", "cse", sizes, COUNT(sizes));
    int kernels = test_count(tile, "kernel ");
    EXPECT(test_count(tile, "store ") >= 4 * kernels && !strstr(tile, "i64[")); /* several results, no tile of places */
    free(tile);
}

/* Folding sixteen elements takes less than joining what threads have of them. */
TEST(a_pool_of_four_is_a_map)
{
    static const char *const sizes[] = {"N=8192", "H=254", "W=254", "k=4", "s=4", "p=0", "d=1"};
    char *tile = shown("biggest", "tile", sizes, COUNT(sizes));
    EXPECT(!strstr(tile, "reduce") && !strstr(tile, "scratch") && test_count(tile, "phase {") == 1);
    free(tile);
}

/* A mean over images of what takes turns in memory: sixteen blocks would read a gigabyte, so rows are cut. */
TEST(few_rows_of_many_axes_are_cut)
{
    static const char *const sizes[] = {"N=64", "C=16", "H=4096", "W=32"};
    char *layout = shown("in_turns", "layout", sizes, COUNT(sizes));
    EXPECT(strstr(layout, "phase 2") && !strstr(layout, "long rows, read again"));
    free(layout);
}

/* A CPU goes along the last axis of a row: folds over channels are none of places that windows of two have cut in pairs. */
TEST(sums_of_channels_go_along_memory_on_a_cpu)
{
    static const char *const sizes[] = {"N=32", "C=64", "H=28", "W=56"};
    char *words = shown_on("cpu", "channel_pool_slope", "fusion", sizes, COUNT(sizes)), *next = NULL;
    for (char *at = strstr(words, "kernel 0:"); at; at = next) {
        next = strstr(at + 1, "\nkernel ");
        if (next) *next++ = 0;
        EXPECT(!(strstr(at, "window ") && strstr(at, "[1, 64, 1, 1]") && strstr(at, "  sum        %") &&
                 strstr(strstr(at, "  sum        %"), "f32 [1, 64, 1, 1]")));
    }
    free(words);
}

/* A gradient of angles: each of 128 elements is read and multiplied, and a chain of them would be 5,000 lines. */
TEST(chains_are_no_longer_than_a_text_should_be)
{
    static const char *const sizes[] = {"B=8", "H=16", "N=1024"};
    char *text = shown("angles", "cuda", sizes, COUNT(sizes));
    EXPECT(test_count(text, "\n") > 100 && test_count(text, "\n") < 2000);
    free(text);
    text = shown("middle", "tile", (const char *[]){"A=64", "B=24", "C=4096"}, 3); /* a short one is a chain */
    EXPECT(!strstr(text, "reduce"));
    free(text);
}
TEST(a_longer_window_gets_the_threads_it_needs)
{
    static const char *const sizes[] = {"n=100000"};
    char *layout = shown("long_window", "layout", sizes, 1);
    EXPECT(!strstr(layout, "all blocks together"));
    free(layout);
}

TEST(softmax_of_few_classes_keeps_its_folds)
{
    static const char *const sizes[] = {"A=64", "B=16", "C=65536"};
    char *tile = shown("soft", "tile", sizes, COUNT(sizes));
    EXPECT(test_count(tile, "reduce") == 2); /* computed once for each column, not for each element */
    free(tile);
}

/* 25 functions a result cost more than the way of one through memory. */
TEST(a_function_under_windows_is_stored)
{
    static const char *const sizes[] = {"N=64", "H=512", "W=512"};
    char *fusion = shown("gelu_pool", "fusion", sizes, COUNT(sizes));
    EXPECT(strstr(fusion, "kernel 1:") && !strstr(fusion, "kernel 2:"));
    EXPECT(strstr(fusion, "would take longer than its way through memory") || strstr(fusion, "many times over"));
    free(fusion);
}

TEST(a_product_under_windows_is_stored)
{
    static const char *const sizes[] = {"N=64", "M=512", "K=512", "W=512"};
    char *fusion = shown("product_pool", "fusion", sizes, COUNT(sizes));
    EXPECT(strstr(fusion, "kernel 1:") && !strstr(fusion, "kernel 2:"));
    EXPECT(strstr(fusion, "needs all of them first"));
    free(fusion);
}

/* Arithmetic that costs less than its bytes goes into the windows; an estimate and its bound stand beside each kernel. */
TEST(plans_tell_their_estimates)
{
    static const char *const sizes[] = {"N=512", "H=128", "W=128", "k=3", "s=2", "p=1", "d=1"};
    why = true;
    char *fusion = shown("one_by_one", "fusion", sizes, COUNT(sizes));
    why = false;
    EXPECT(strstr(fusion, "takes about ") && strstr(fusion, ", bound by "));
    EXPECT(strstr(fusion, "plan: 1 kernels take about ") && strstr(fusion, "a kernel for each op would take "));
    free(fusion);
}

#endif
