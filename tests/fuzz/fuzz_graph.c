/*
 * Reads bytes as a tensor graph. Whatever they are, graph_read must give nodes or an error and must not crash; a graph
 * must print as text that reads back and prints the same. Built with -fsanitize=fuzzer for long runs
 * (clang -g -fsanitize=fuzzer,address,undefined -Isrc -Iinclude tests/fuzz/fuzz_graph.c build/libquern.a -lm -ldl), and
 * included by tests/unit/test_graph_text.c, which mutates the files of tests/text/graph.
 * SPDX-License-Identifier: MIT
 */
#include "ir/graph.h"

#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    arena *memory = arena_new();
    graph *g = graph_new(memory), *again = graph_new(memory);
    node *roots, *roots_again;
    int count, count_again;
    qn_error error;
    text first = {0}, second = {0};
    if (graph_read(g, "fuzz", (const char *)data, size, &roots, &count, &error) == QN_OK) {
        graph_print(g, roots, count, &first);
        CHECK(!graph_read(again, "again", text_get(&first), first.length, &roots_again, &count_again, &error));
        graph_print(again, roots_again, count_again, &second);
        CHECK(!strcmp(text_get(&first), text_get(&second)));
    }
    text_free(&first);
    text_free(&second);
    arena_free(memory);
    return 0;
}
