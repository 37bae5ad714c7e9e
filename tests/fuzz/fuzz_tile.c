/*
 * Reads bytes as tile IR. Whatever they are, tile_read must give a kernel or an error and must not crash; a kernel must
 * print as text that reads back and prints the same. Built with -fsanitize=fuzzer for long runs
 * (clang -g -fsanitize=fuzzer,address,undefined -Isrc -Iinclude tests/fuzz/fuzz_tile.c build/libquern.a -lm -ldl), and
 * included by tests/unit/test_tile.c, which mutates the files of tests/text.
 * SPDX-License-Identifier: MIT
 */
#include "ir/tile.h"

#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    arena *memory = arena_new();
    tile_kernel *k, *again;
    qn_error error;
    text first = {0}, second = {0};
    if (tile_read(memory, "fuzz", (const char *)data, size, &k, &error) == QN_OK) {
        tile_print(k, &first);
        CHECK(tile_read(memory, "again", text_get(&first), first.length, &again, &error) == QN_OK);
        tile_print(again, &second);
        CHECK(!strcmp(text_get(&first), text_get(&second)));
    } else {
        CHECK(strlen(error.message) > 0);
    }
    text_free(&first);
    text_free(&second);
    arena_free(memory);
    return 0;
}
