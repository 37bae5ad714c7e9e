/*
 * The text form of the tensor graph: files of tests/text/graph print as they are written, every kind of mistake in a
 * text has its message with the line, and mutated files give errors and nothing worse.
 * SPDX-License-Identifier: MIT
 */
#include "fuzz/fuzz_graph.c"
#include "test.h"

#include <dirent.h>
#include <stdlib.h>

#define FOLDER QUERN_ROOT "/tests/text/graph/"

static char *files[16];
static size_t sizes[16];
static int file_count;

static void read_folder(void)
{
    DIR *folder = opendir(FOLDER);
    for (struct dirent *entry; folder && (entry = readdir(folder));) {
        char path[1024];
        qn_error error;
        if (entry->d_name[0] == '.' || file_count == COUNT(files)) continue;
        snprintf(path, sizeof(path), FOLDER "%s", entry->d_name);
        if (file_read(path, 1 << 20, &files[file_count], &sizes[file_count], &error))
            test_fail(path, 1, error.message);
        else
            file_count++;
    }
    if (folder) closedir(folder);
}

TEST(files_print_as_they_are)
{
    read_folder();
    EXPECT(file_count >= 3);
    for (int i = 0; i < file_count; i++) {
        arena *memory = arena_new();
        graph *g = graph_new(memory);
        node *roots;
        int count;
        qn_error error;
        text out = {0};
        if (graph_read(g, "file", files[i], sizes[i], &roots, &count, &error))
            test_fail(__FILE__, __LINE__, error.message);
        else
            graph_print(g, roots, count, &out);
        const char *expected = files[i];
        while (*expected == '#') expected = strchr(expected, '\n') + 1;
        EXPECT_TEXT(text_get(&out), expected);
        text_free(&out);
        arena_free(memory);
    }
}

/* Every op has a line in every-op.graph, so that its form is tested. */
TEST(every_op_has_a_line)
{
    if (!file_count) read_folder();
    const char *all = NULL;
    for (int i = 0; i < file_count; i++)
        if (strstr(files[i], "Every op")) all = files[i];
    EXPECT(all != NULL);
    for (int code = 1; all && code < GRAPH_CODE_COUNT; code++) {
        char words[64];
        snprintf(words, sizeof(words), "= %s ", code == GRAPH_MAP ? "add" : graph_ops[code].text);
        if (!strstr(all, words)) test_fail(FOLDER "every-op.graph", 1, words);
    }
}

TEST(one_node_prints_alone)
{
    arena *memory = arena_new();
    graph *g = graph_new(memory);
    g->site = (graph_site){.file = "a b.c", .line = 7};
    g->label = "mean";
    node x = graph_iota(g, 3), y = graph_unary(g, OP_NEG, x);
    text out = {0};
    graph_print_node(g, y, &out);
    EXPECT_TEXT(text_get(&out), "%2 = neg %1 : i64[3] ; mean a b.c:7");
    text_free(&out);
    arena_free(memory);
}

TEST(mistakes_are_told_with_their_line)
{
    static const struct {
        const char *words, *message;
    } cases[] = {
        {"%1 = iota : i64[3]", "t:1: expected a node such as %3 or return, found the end of the text"},
        {"return %1", "t:1: %1 is not defined above"},
        {"%1 = iota : i64[3]\n%1 = iota : i64[4]\nreturn", "t:2: %1 is defined twice"},
        {"%0 = iota : i64[3]\nreturn", "t:1: this node's number is not allowed"},
        {"%1 = matmul : f32\nreturn", "t:1: matmul is no op of a graph"},
        {"%1 = load : f32\nreturn", "t:1: load is no op of a graph"},
        {"%1 = full 1 : i64[3]\n%2 = add %1 : i64[3]\nreturn", "t:2: add takes 2 inputs, not 1"},
        {"%1 = full 1 : i64[3]\n%2 = exp %1 : i64[3]\nreturn",
         "t:2: exp: it does not take i64: cast to a type it takes"},
        {"%1 = full 1 : i64[3]\n%2 = neg %1 : i32[3]\nreturn", "t:2: %2 is i64[3]"},
        {"%1 = full 1 : i64[3]\n%2 = neg %1 : i64[3, 1]\nreturn", "t:2: %2 is i64[3]"},
        {"%1 = full 1.5 : i64[3]\nreturn", "t:1: 1.5 is no constant of type i64"},
        {"%1 = full 300 : u8[3]\nreturn", "t:1: 300 is no constant of type u8"},
        {"%1 = full yes : bool[3]\nreturn", "t:1: a bool is true or false, not yes"},
        {"%1 = full 1 : i64[3] 7\nreturn", "t:1: expected the end of the line, found 7"},
        {"%1 = full 1 : i64[3, 4]\n%2 = permute %1 order (1) : i64[4, 3]\nreturn",
         "t:2: a list has 1 entries, the result has 2 axes"},
        {"%1 = full 1 : i64[3, 4]\n%2 = permute %1 order (1, 1) : i64[4, 3]\nreturn",
         "t:2: permute: the axes are not an order of all 2 axes of [3, 4]"},
        {"%1 = full 1 : i64[3, 4]\n%2 = slice %1 start (0) step (1) : i64[3]\nreturn", "t:2: slice changes no rank"},
        {"%1 = full 1 : i64[3]\n%2 = slice %1 start (1) step (140737488355328) : i64[2]\nreturn",
         "t:2: slice: 2 elements from 1 by 140737488355328 of axis 0 do not lie in [3]"},
        {"%1 = full 1 : i64[3]\n%2 = window %1 axis 0 size 2 stride 1 dilation 140737488355328 : i64[1, 2]\nreturn",
         "t:2: window: a window of 2 elements, 140737488355328 apart, does not fit axis 0 of [3]"},
        {"%1 = full 1 : i64[3]\n%2 = reduce sum %1 axes (9) : i64[1]\nreturn", "t:2: an axis is 0 to 7"},
        {"%1 = full 1 : i64[3]\n%2 = reduce sum %1 axes (1) : i64[1]\nreturn",
         "t:2: sum: an axis is not one of a tensor of shape [3]"},
        {"%1 = full 1 : i64[3]\n%2 = reduce mean %1 axes (0) : i64[1]\nreturn",
         "t:2: expected a fold such as sum, found mean"},
        {"%1 = full 1 : i64[3]\n%2 = scan argmax %1 axis 0 : i64[3]\nreturn", "t:2: scan: there is no running argmax"},
        {"%1 = concat axis 0 : i64[3]\nreturn", "t:1: there is nothing to join"},
        {"%1 = kernel \"k\" : f32[2]\n%2 = neg %1 : f32[2]\nreturn",
         "t:2: a kernel has a value only through result, and only it has results"},
        {"%1 = kernel \"k\" : f32[2]\n%2 = result 1 %1 : f32[2]\nreturn", "t:2: the kernel has no output 1"},
        {"%1 = kernel \"k\" : f32[2]\nreturn %1", "t:2: a kernel has no value itself"},
        {"%1 = kernel k : f32[2]\nreturn", "t:1: expected the kernel's name in quotes"},
        {"%1 = leaf 1 : f32[1, 1, 1, 1, 1, 1, 1, 1, 1]\nreturn", "t:1: more than 8 axes"},
        {"%1 = leaf 1 : f32[140737488355328, 3]\nreturn",
         "t:1: leaf: [140737488355328, 3] has more elements than a tensor can have"},
        {"%1 = leaf 0 : f32[3]\nreturn", "t:1: the number 0 is not allowed here"},
        {"return\nreturn", "t:2: expected a node such as %3, found return"},
    };
    for (int i = 0; i < COUNT(cases); i++) {
        arena *memory = arena_new();
        graph *g = graph_new(memory);
        node *roots;
        int count;
        qn_error error = {0};
        EXPECT(graph_read(g, "t", cases[i].words, strlen(cases[i].words), &roots, &count, &error) == QN_BAD_FILE);
        EXPECT_TEXT(error.message, cases[i].message);
        arena_free(memory);
    }
}

static uint64_t state = 88172645463325252u;

static size_t below(size_t limit)
{
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return limit ? (size_t)(state % limit) : 0;
}

/* What a fuzzer found: words after the semicolon that did not print as they read. */
TEST(odd_sites_print_as_they_read)
{
#define LEAF "%1 = leaf 1 : f32[5] ; "
    static const char *const sites[] = {"softmax trai\r\0\0 n.c:4", "a   b.c:4", "a :5", "   :5", ":5", "a\0 \0b:1"};
    static const size_t lengths[] = {22, 9, 4, 5, 2, 7};
    for (int i = 0; i < COUNT(sites); i++) {
        text words = {0};
        text_add(&words, LEAF);
        text_add_bytes(&words, sites[i], lengths[i]);
        text_add(&words, "\nreturn %1\n");
        LLVMFuzzerTestOneInput((const uint8_t *)text_get(&words), words.length);
        text_free(&words);
    }
}

TEST(mutated_files_do_no_harm)
{
    if (!file_count) read_folder();
    static const char *const pieces[] = {
        "%1", "%7", "0",    "-1",  "(",    ")",         "[",  "]",       ",",   ":",
        ";",  "\n", "axis", "3",   "=",    "add",       " ",  "f64",     "nan", "140737488355328",
        "\"", "#",  "bool", "sum", "\xff", "return %1", "\0", "axes (0)"};
    for (int round = 0; round < 20000; round++) {
        int from = (int)below((size_t)file_count);
        text words = {0};
        size_t start = 0;
        for (size_t cuts = 1 + below(4); cuts > 0; cuts--) { /* a piece left out, another put in */
            size_t at = start + below(sizes[from] - start);
            text_add_bytes(&words, files[from] + start, at - start);
            text_add(&words, pieces[below(COUNT(pieces))]);
            at += below(12);
            start = MINIMUM(at, sizes[from]);
        }
        text_add_bytes(&words, files[from] + start, sizes[from] - start);
        LLVMFuzzerTestOneInput((const uint8_t *)text_get(&words), words.length);
        text_free(&words);
    }
    for (int i = 0; i < file_count; i++) free(files[i]);
    file_count = 0;
}

TEST_MAIN(CASE(files_print_as_they_are), CASE(every_op_has_a_line), CASE(one_node_prints_alone),
          CASE(mistakes_are_told_with_their_line), CASE(odd_sites_print_as_they_read), CASE(mutated_files_do_no_harm))
