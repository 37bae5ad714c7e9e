/*
 * What the texts of rows do; the second half of test_rows, which has the kernels, the context and the values.
 * SPDX-License-Identifier: MIT
 */
#ifndef QUERN_TESTS_ROWS_TEXTS_H
#define QUERN_TESTS_ROWS_TEXTS_H

/* ---- what the text does ---- */

static void collect(void *user, const char *words, size_t length)
{
    text_add_bytes(user, words, length);
}

static char *shown(const char *name, const char *const *settings, int count)
{
    static const char *const path = "rows.qn";
    text out = {0};
    FILE *file = fopen(path, "w");
    if (file) fputs(source, file), fclose(file);
    qn_show_options options = {.stage = "cuda", .device = "cuda", .arch = "sm_90a", .settings = {settings, count}};
    bool good = qn_show(context, path, name, &options, collect, &out, &error) == QN_OK;
    if (!good) printf("%s: %s\n", name, error.message);
    EXPECT(good);
    remove(path);
    const char *kernel = strstr(text_get(&out), "extern \"C\"");
    char *words = strdup(kernel ? kernel : "");
    text_free(&out);
    return words;
}

TEST(odd_rows_go_by_vectors_and_stay)
{
    char *t = shown("unit", (const char *[]){"A=2048", "B=65535"}, 2);
    EXPECT(strstr(t, "const int shift0 = ") && strstr(t, "at_edge(whole)") && strstr(t, "store_f32x4_if("));
    EXPECT(!strstr(t, "in scratch */"));
    free(t);
}

/* Nothing of the first vector of an empty row is its own: it must not be read, wherever the row lies. */
TEST(rows_of_nothing_are_not_shifted)
{
    char *t = shown("whole_row", (const char *[]){"A=4", "B=0"}, 2);
    EXPECT(strstr(t, "const int shift0 = ") && strstr(t, " > 0 ? (int)((unsigned long)("));
    free(t);
}

TEST(rows_beyond_a_cluster_share_the_grid)
{
    char *t = shown("soft_row", (const char *[]){"A=256", "B=393216"}, 2);
    EXPECT(strstr(t, "team_blocks = team_row > team_step") && strstr(t, "team_count = gridDim.x / team_blocks"));
    free(t);
}

TEST(rows_across_memory_stay_in_threads)
{
    char *t = shown("soft", (const char *[]){"A=64", "B=21", "C=65536"}, 3);
    EXPECT(!strstr(t, "shared_room") && !strstr(t, "__syncthreads") && strstr(t, "float b1[21][1]"));
    free(t);
    t = shown("best", (const char *[]){"A=32", "B=4096", "C=1023"}, 3);
    EXPECT(!strstr(t, "in scratch */")); /* it is read once, and not kept */
    free(t);
    t = shown("total", (const char *[]){"A=32", "B=4096", "C=1023"}, 3);
    const char *phase = strstr(t, "_phase0"), *then = strstr(t, "_phase1");
    EXPECT(phase && then && !(strstr(phase, "shared_room") && strstr(phase, "shared_room") < then));
    free(t);
}

TEST(scans_stay_in_registers)
{
    char *t = shown("run", (const char *[]){"A=8192", "B=16384", "C=1"}, 3);
    EXPECT(strstr(t, "scan_parts_sum_f32(scan_parts") && !strstr(t, "shared_room"));
    free(t);
}

/* Rows that a warp holds: lanes meet by shuffles, and not more often than the row is long. */
TEST(scans_of_short_rows_stay_in_registers)
{
    char *t = shown("run", (const char *[]){"A=262144", "B=512", "C=1"}, 3);
    EXPECT(strstr(t, "lanes_scan_sum_f32(scanned[3], 32, team_mask)") && strstr(t, "break;"));
    EXPECT(!strstr(t, "shared_room"));
    free(t);
}

/* Both sides of a transpose go along memory: it is turned in shared memory. */
TEST(transposes_are_turned_in_shared_memory)
{
    static const char *const sizes[][3] = {{"A=1", "B=16383", "C=8191"}, {"A=1", "B=16384", "C=8192"}};
    for (int i = 0; i < COUNT(sizes); i++) {
        char *t = shown("turned", sizes[i], 3);
        EXPECT(strstr(t, "shared_room") && strstr(t, i ? "load_f32x4_constant" : "read_if_f32(v"));
        free(t);
    }
}

/* Columns in plenty are scanned in one read, sixteen rows on their way together, which all have registers. */
TEST(columns_are_scanned_many_rows_at_a_time)
{
    char *t = shown("run", (const char *[]){"A=32", "B=512", "C=4096"}, 3);
    EXPECT(strstr(t, "i + 15][b : 128]") && !strstr(t, "_phase1(") && strstr(t, "__launch_bounds__(128, 5)"));
    free(t);
}

/* Sums over columns ask for eight rows of one array at once, and for fewer of several: as much is on its way. What a row takes to
 * compute is written down as often. Parts are joined by whole vectors, since their rows are as long as those of the array. */
TEST(columns_ask_for_as_much_of_several_arrays)
{
    char *t = shown("added", (const char *[]){"A=8192", "B=1024"}, 2);
    EXPECT(test_count(t, "load_f32x4_constant_if(") == 8 + 1 + 1 && !strstr(t, "else for"));
    free(t);
    t = shown("bias_slope", (const char *[]){"A=8192", "B=1024"}, 2);
    EXPECT(test_count(t, "erf_f32(") == 2 + 1 && !strstr(t, "else for"));
    free(t);
}

/* Pieces for all threads there are, where a program a line would leave the last ones alone. */
TEST(results_of_cut_rows_go_by_pieces)
{
    char *t = shown("even_channels", (const char *[]){"N=64", "C=64", "P=262144"}, 3);
    EXPECT(strstr(t, "_phase2(") && strstr(strstr(t, "_phase2("), "* 2048L"));
    free(t);
}

TEST(a_channel_is_one_row)
{
    char *t = shown("channels", (const char *[]){"N=64", "C=64", "P=16384"}, 3);
    EXPECT(strstr(t, "team_blocks") && strstr(t, "copy_async(") && strstr(t, "load_f32x4_constant_if("));
    EXPECT(!strstr(t, "in scratch */"));
    free(t);
}

/* Planes that are no multiple of 16: vectors where they are multiples of 4, else word by word, and held all the same. */
TEST(odd_planes_are_held)
{
    char *t = shown("channels", (const char *[]){"N=64", "C=64", "P=15876"}, 3);
    EXPECT(strstr(t, "team_blocks") && strstr(t, "copy_async(") && strstr(t, "load_f32x4_constant_if("));
    free(t);
    t = shown("channels", (const char *[]){"N=512", "C=64", "P=961"}, 3);
    EXPECT(strstr(t, "team_blocks") && strstr(t, "copy_async_few<4>(") && strstr(t, "digits_above("));
    EXPECT(!strstr(t, "in scratch */") && !strstr(t, "t9 < n0"));
    free(t);
}

/* Long lines that begin anywhere, and rows that nothing holds, go line by line: one read for mean and squares, one more for
 * the result. */
TEST(rows_are_cut_into_lines)
{
    static const char *const planes[] = {"P=16129", "P=262144"};
    for (int i = 0; i < COUNT(planes); i++) {
        char *t = shown("channels", (const char *[]){"N=64", "C=64", planes[i]}, 3);
        EXPECT(strstr(t, "_phase2(") && !strstr(t, "_phase3(") && !strstr(t, "team_blocks"));
        EXPECT(strstr(t, "part0_array") && strstr(t, "whole1_array") && !strstr(t, "digits_above("));
        free(t);
    }
    char *t = shown("inside", (const char *[]){"N=64", "C=16", "H=512", "W=512"}, 4); /* a line of two axes */
    EXPECT(strstr(t, "_phase2(") && !strstr(t, "_phase3(") && strstr(t, "part0_array"));
    free(t);
}

TEST(scans_are_one_kernel)
{
    static const char *const names[] = {"masked", "before", "most"};
    for (int i = 0; i < COUNT(names) * 2; i++) {
        char *t = shown(names[i / 2], (const char *[]){"A=32768", i % 2 ? "B=32768" : "B=4000"}, 2);
        const char *first = strstr(t, "__global__");
        EXPECT(first && !strstr(first + 1, "__global__") && !strstr(t, "in scratch */"));
        free(t);
    }
}

TEST(large_windows_are_folded_axis_by_axis)
{
    char *t = shown("large_windows", (const char *[]){"N=16", "C=64", "H=2048", "W=2048"}, 4);
    int kernels = 0;
    for (const char *at = t; (at = strstr(at, "__global__")); at++) kernels++;
    EXPECT(kernels > 1 && strstr(t, "load_f32x4_constant"));
    free(t);
}

/* Rows that begin anywhere beside a gain that does not: 32 positions a thread would not fit beside 32 elements. */
TEST(positions_are_not_kept_beside_a_row)
{
    char *t = shown("norm_pairs", (const char *[]){"A=4096", "B=4097"}, 2);
    EXPECT(strstr(t, "double b1[16][1]") && strstr(t, "int here = thread, apart = threads;"));
    free(t);
}

/* ... which vectors of four do, with gains put together of two; and only vectors at the ends of a row are tested. */
TEST(rows_of_words_beside_a_gain_are_shifted)
{
    char *t = shown("norm_words", (const char *[]){"A=4096", "B=4097"}, 2);
    EXPECT(strstr(t, "float b1[9][4]") && strstr(t, "const int shift0") && strstr(t, "f32x4_constant_uneven("));
    free(t);
    t = shown("soft_pairs", (const char *[]){"A=4096", "B=4095"}, 2);
    EXPECT(strstr(t, "const int inside = 1;"));
    free(t);
    t = shown("soft_pairs", (const char *[]){"A=4096", "B=31"}, 2);
    EXPECT(!strstr(t, "const int inside = 1;") && strstr(t, "const int inside = "));
    free(t);
}

/* Columns for all of a GPU: one launch, rows without tests as long as all are there, and softmax holds its tile once. */
TEST(columns_from_top_to_bottom)
{
    static const char *const names[] = {"middle_total", "middle_best"};
    for (int i = 0; i < COUNT(names); i++) {
        char *t = shown(names[i], (const char *[]){"A=32", "B=4000", "C=4095"}, 3), *first = strstr(t, "__global__");
        EXPECT(first && !strstr(first + 1, "__global__") && strstr(t, "const int in = 1;"));
        free(t);
    }
    char *t = shown("middle_soft", (const char *[]){"A=32", "B=4000", "C=4096"}, 3);
    EXPECT(!strstr(t, "shared_room"));
    free(t);
}

/* Two tiles of a row that no block and no cluster holds: all blocks hold them, each less of each. */
TEST(gradients_of_long_rows_are_held)
{
    char *t = shown("channel_slope", (const char *[]){"A=64", "B=64", "C=16384"}, 3);
    EXPECT(strstr(t, "grid_fold_sum_f32") && !strstr(t, "in scratch */"));
    free(t);
}

TEST(scans_that_are_turned_or_late_are_one_kernel)
{
    static const char *const names[] = {"turned_scan", "late_scan"};
    for (int i = 0; i < COUNT(names); i++) {
        char *t = shown(names[i], (const char *[]){"A=8192", "B=16384"}, 2), *first = strstr(t, "__global__");
        EXPECT(first && !strstr(first + 1, "__global__"));
        free(t);
    }
}

/* One tile stays, and it is what the windows give: neither their elements nor the places these lie at. */
TEST(what_several_loads_give_is_kept)
{
    char *t = shown("pooled", (const char *[]){"N=64", "C=16", "H=34", "W=34"}, 4);
    EXPECT(strstr(t, "float b1[") && !strstr(t, "b2[") && !strstr(t, "long b1[") && !strstr(t, "shared_room"));
    EXPECT(!strstr(t, "div_i64(") && !strstr(t, "mod_i64("));
    free(t);
    t = shown("joint", (const char *[]){"A=4096", "B=4096"}, 2);
    EXPECT(strstr(t, "float b1[") && strstr(t, "float b2[") && !strstr(t, "float b3[")); /* the sum, its exponential */
    free(t);
}

#endif
