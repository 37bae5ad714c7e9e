/*
 * Reads bytes as an ONNX model to look at. Whatever they are: a table and a picture, or an error with words. Built by
 * tools/fuzz (`tools/fuzz onnx`). SPDX-License-Identifier: MIT
 */
#include "data/onnx.h"

#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    arena *memory = arena_new();
    onnx_graph g = {0};
    qn_error error = {0};
    text out = {0};
    if (onnx_read(memory, "fuzz", (const char *)data, size, &g, &error)) {
        CHECK(strlen(error.message) > 0);
    } else {
        onnx_print(&g, &out);
        onnx_picture(&g, &out);
    }
    text_free(&out);
    arena_free(memory);
    return 0;
}
