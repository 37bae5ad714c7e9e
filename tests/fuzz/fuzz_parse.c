/*
 * Reads bytes as a .qn file. Whatever they are, parsing and checking must end in diagnostics or in nothing; a file that
 * parses must format as text that parses to the same tree with as many comments, and formatting that changes nothing.
 * Built by tools/fuzz for long runs, and included by tests/unit/test_fuzz_corpus.c.
 * SPDX-License-Identifier: MIT
 */
#include "tree.h"

#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    arena *memory = arena_new();
    diagnostics d = {.memory = memory}, d_again = {.memory = memory}, d_check = {.memory = memory};
    text shown = {0}, first = {0}, second = {0}, tree = {0}, tree_again = {0};
    ast_file *file = lang_parse(memory, "fuzz.qn", (const char *)data, size, &d);
    diagnostics_print(&d, file, size & 1, &shown);
    CHECK(!d.count == !shown.length);
    if (!d.errors) {
        lang_format(file, &first);
        ast_file *again = lang_parse(memory, "again.qn", text_get(&first), first.length, &d_again);
        CHECK(!d_again.errors);
        tree_print_file(file, &tree);
        tree_print_file(again, &tree_again);
        CHECK(!strcmp(text_get(&tree), text_get(&tree_again)));
        CHECK(file->comment_count == again->comment_count);
        lang_format(again, &second);
        CHECK(!strcmp(text_get(&first), text_get(&second)));
        lang_check(file, &d_check);
        diagnostics_print(&d_check, file, false, &shown);
    }
    text *all[] = {&shown, &first, &second, &tree, &tree_again};
    for (int i = 0; i < COUNT(all); i++) text_free(all[i]);
    arena_free(memory);
    return 0;
}
