/*
 * ONNX models to look at: the table and the picture of a model made here, hostile names, damaged files (each prefix, seeded
 * changes of bytes), a file that is none. Models of `quern export` are looked at in tests/scripts/onnx.sh.
 * SPDX-License-Identifier: MIT
 */
#include "svg.h"
#include "test.h"

#include "data/onnx.h"
#include "data/protobuf.h"

#include <quern/workbench.h>

#include <stdlib.h>
#include <unistd.h>

static void add_value(text *to, int field, const char *name, int elem, int64_t extent, const char *symbol)
{
    text axis = {0}, shape = {0}, tensor = {0}, type = {0}, value = {0};
    proto_words(&axis, 2, symbol);
    proto_message(&shape, 1, &axis);
    proto_whole(&axis, 1, extent);
    proto_message(&shape, 1, &axis);
    proto_whole(&tensor, 1, elem);
    proto_message(&tensor, 2, &shape);
    proto_message(&type, 1, &tensor);
    proto_words(&value, 1, name);
    proto_message(&value, 2, &type);
    proto_message(to, field, &value);
}

static void add_node(text *to, const char *op, const char *a, const char *b, const char *result)
{
    text n = {0};
    proto_words(&n, 1, a);
    if (b) proto_words(&n, 1, b);
    proto_words(&n, 2, result);
    proto_words(&n, 4, op);
    proto_message(to, 1, &n);
}

static void make_model(text *model, const char *name)
{
    text g = {0}, weight = {0}, opset = {0};
    add_node(&g, "MatMul", "x", "w", "h");
    add_node(&g, name, "h", NULL, "y");
    proto_words(&g, 2, "two <layers>");
    text dims = {0};
    proto_varint(&dims, 3);
    proto_varint(&dims, 4);
    proto_message(&weight, 1, &dims);
    proto_whole(&weight, 2, 1);
    proto_words(&weight, 8, "w");
    proto_bytes(&weight, 9, "0123456789012345678901234567890123456789012345678", 48);
    proto_message(&g, 5, &weight);
    add_value(&g, 11, "x", 1, 3, "N");
    add_value(&g, 12, "y", 16, 4, "N");
    proto_whole(&opset, 2, 17);
    proto_message(model, 8, &opset);
    proto_words(model, 2, "test");
    proto_message(model, 7, &g);
}

TEST(table)
{
    text model = {0}, out = {0};
    make_model(&model, "Relu");
    arena *memory = arena_new();
    onnx_graph g;
    qn_error error;
    EXPECT(onnx_read(memory, "m", model.data, model.length, &g, &error) == QN_OK);
    onnx_print(&g, &out);
    EXPECT_TEXT(text_get(&out), "model    two <layers>, opset 17, 2 nodes, 12 parameters, from test\n"
                                "inputs   x  f32 [N, 3]\n"
                                "outputs  y  bf16 [N, 4]\n"
                                "nodes    MatMul             x, w f32 [3, 4] -> h\n"
                                "         Relu               h -> y\n");
    arena_free(memory);
    text_free(&out);
    text_free(&model);
}

TEST(picture)
{
    text model = {0}, out = {0};
    make_model(&model, "</text><script>\x1b[31m");
    arena *memory = arena_new();
    onnx_graph g;
    qn_error error;
    EXPECT(onnx_read(memory, "m", model.data, model.length, &g, &error) == QN_OK);
    onnx_picture(&g, &out);
    const char *svg = text_get(&out);
    int boxes = 0, lines = 0;
    for (const char *p = svg; (p = strstr(p, "rx=\"6\"")); p++) boxes++;
    for (const char *p = svg; (p = strstr(p, "<path ")); p++) lines++;
    EXPECT(boxes == 4 && lines == 3); /* x, two nodes, y */
    EXPECT(strstr(svg, "<title>two &lt;layers&gt;</title>") && strstr(svg, ">w f32 [3, 4]</text>"));
    EXPECT(!strstr(svg, "<script") && !strchr(svg, '\x1b') && strstr(svg, "&lt;/text&gt;&lt;script&gt;\\x1b"));
    arena_free(memory);
    text_free(&out);
    text_free(&model);
}

/* A residual network of three blocks, a mask that is read at the end, and two branches: no line runs through a box. */
TEST(ways_around)
{
    text g = {0}, model = {0}, out = {0};
    add_node(&g, "IsNaN", "x", NULL, "mask");
    add_node(&g, "Relu", "x", NULL, "a0");
    for (int i = 0; i < 3; i++) {
        char in[8], left[8], right[8], next[8];
        snprintf(in, sizeof(in), "a%d", i), snprintf(next, sizeof(next), "a%d", i + 1);
        snprintf(left, sizeof(left), "l%d", i), snprintf(right, sizeof(right), "r%d", i);
        add_node(&g, "Gelu", in, NULL, left);
        add_node(&g, "Tanh", left, NULL, right);
        add_node(&g, "Add", right, in, next);
    }
    add_node(&g, "Where", "mask", "a3", "y");
    add_value(&g, 11, "x", 1, 3, "N");
    add_value(&g, 12, "y", 1, 4, "N");
    proto_message(&model, 7, &g);
    arena *memory = arena_new();
    onnx_graph read;
    qn_error error;
    EXPECT(onnx_read(memory, "m", model.data, model.length, &read, &error) == QN_OK);
    onnx_picture(&read, &out);
    read_picture(text_get(&out));
    EXPECT(line_count > 20 && crossings() == 0 && collisions() == 0);
    arena_free(memory);
    text_free(&out);
    text_free(&model);
}

static void look(const char *bytes, size_t size)
{
    char *copy = malloc(size + 1); /* its own block: a byte too far is seen */
    memcpy(copy, bytes, size);
    arena *memory = arena_new();
    onnx_graph g;
    qn_error error;
    text out = {0};
    if (onnx_read(memory, "m", copy, size, &g, &error) == QN_OK) {
        onnx_print(&g, &out);
        onnx_picture(&g, &out);
    } else {
        EXPECT(!strncmp(error.message, "m is no ONNX model: ", 20));
    }
    text_free(&out);
    arena_free(memory);
    free(copy);
}

TEST(damaged)
{
    text model = {0};
    make_model(&model, "Relu");
    for (size_t size = 0; size < model.length; size++) look(model.data, size);
    unsigned seed = 1;
    char *changed = malloc(model.length);
    for (int i = 0; i < 20000; i++) {
        memcpy(changed, model.data, model.length);
        for (int k = 0; k < 1 + i % 4; k++) {
            seed = seed * 1664525u + 1013904223u;
            changed[(seed >> 8) % model.length] = (char)(seed >> 24);
        }
        look(changed, model.length);
    }
    free(changed);
    text_free(&model);
}

static void count_bytes(void *user, const char *words, size_t length)
{
    (void)words;
    *(size_t *)user += length;
}

TEST(files)
{
    char path[] = "/tmp/quern_onnx_XXXXXX";
    int file = mkstemp(path);
    qn_error error;
    size_t written = 0;
    EXPECT(write(file, "nothing of the kind", 19) == 19 && !close(file));
    EXPECT(qn_show_onnx(path, true, count_bytes, &written, &error) == QN_BAD_FILE && !written);
    EXPECT(strstr(error.message, "is no ONNX model"));
    EXPECT(qn_show_onnx("/nowhere/x.onnx", true, count_bytes, &written, &error) == QN_BAD_FILE);
    EXPECT(qn_show_onnx(NULL, true, count_bytes, &written, &error) == QN_BAD_CALL);
    unlink(path);
}

TEST_MAIN(CASE(table), CASE(picture), CASE(ways_around), CASE(damaged), CASE(files))
