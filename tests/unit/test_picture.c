/*
 * The picture of a fused plan: what crosses, and what runs over words or through boxes (svg.h).
 * SPDX-License-Identifier: MIT
 */
#include "base/base.h"
#include "svg.h"
#include "test.h"

#include <quern/quern.h>
#include <quern/workbench.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static qn_error error;

static void keep(void *user, const char *words, size_t length)
{
    text_add_bytes(user, words, length);
}

static const char source[] =
    "tensor mlp(float x[B][D], float w1[D][H], float b1[H], float w2[H][E], float b2[E])\n"
    "{\n"
    "    let h = gelu(x @ w1 + b1[][:]);\n"
    "    return h @ w2 + b2[][:];\n"
    "}\n"
    "tensor loss(float x[B][D], float w1[D][H], float b1[H], float w2[H][E], float b2[E], float y[B][E])\n"
    "{\n"
    "    return mse_loss(mlp(x, w1, b1, w2, b2), y);\n"
    "}\n"
    "tensor classes(float x[B][D], float w1[D][H], float b1[H], float w2[H][E], float b2[E], i64 y[B])\n"
    "{\n"
    "    return cross_entropy(mlp(x, w1, b1, w2, b2), y);\n"
    "}\n"
    "tensor deep(float x[B][H], float w[4][H][H], float b[4][H])\n"
    "{\n"
    "    let a = relu(x @ w[0][:][:] + b[0][][:]);\n"
    "    let c = relu(a @ w[1][:][:] + b[1][][:]) + x;\n"
    "    let d = relu(c @ w[2][:][:] + b[2][][:]) + a;\n"
    "    return relu(d @ w[3][:][:] + b[3][][:]) + c;\n"
    "}\n"
    "tensor same(float x[B]) { return x, x + 1; }\n";

static char path[64];
static qn_context *context;

static void draw(const char *name, const char *mode, bool backward)
{
    static const char *const sizes[] = {"B=64", "D=32", "H=128", "E=16"};
    static const char *const hidden[] = {"B=64", "H=128"};
    static const char *const batch[] = {"B=64"};
    char full[64];
    text out = {0};
    qn_show_options options = {.dot = true, .backward = backward, .settings = {sizes, 4}};
    if (!strcmp(name, "deep")) options.settings = (qn_settings){hidden, 2};
    if (!strcmp(name, "same")) options.settings = (qn_settings){batch, 1};
    snprintf(full, sizeof(full), "%s%s", mode, name);
    qn_status status = qn_show(context, path, full, &options, keep, &out, &error);
    if (status != QN_OK) printf("%s\n", error.message);
    EXPECT(status == QN_OK);
    /* A sheet of its own, another in the dark; whole on a phone. */
    EXPECT(strstr(text_get(&out), "<rect id=\"sheet\"") && strstr(text_get(&out), "prefers-color-scheme: dark"));
    EXPECT(strstr(text_get(&out), "svg { max-width: 100%; height: auto }"));
    read_picture(text_get(&out));
    text_free(&out);
}

TEST(open_context)
{
    snprintf(path, sizeof(path), "/tmp/quern-picture-XXXXXX.qn");
    int file = mkstemps(path, 3);
    EXPECT(file >= 0 && write(file, source, strlen(source)) == (ssize_t)strlen(source));
    close(file);
    EXPECT(qn_context_open(NULL, &context, &error) == QN_OK);
}

TEST(two_layers)
{
    for (int backward = 0; backward < 2; backward++) {
        draw("mlp", "", backward);
        EXPECT(line_count > 12 && crossings() == 0 && collisions() == 0);
        draw("loss", "", backward);
        EXPECT(line_count > 15 && crossings() == 0 && collisions() == 0);
        draw("classes", "", backward);
        EXPECT(line_count > 20 && crossings() <= backward && collisions() == 0);
    }
}

/* One kernel for each operation: values pass many layers. */
TEST(many_kernels)
{
    draw("loss", "eager ", false);
    EXPECT(line_count > 15 && crossings() == 0 && collisions() == 0);
    draw("loss", "eager ", true);
    EXPECT(line_count > 50 && crossings() <= 1 && collisions() == 0);
}

TEST(ways_around)
{
    draw("deep", "", false);
    EXPECT(line_count > 20 && crossings() == 0 && collisions() == 0);
    draw("deep", "", true);
    EXPECT(line_count > 50 && crossings() <= 24 && collisions() == 0);
    draw("same", "", false); /* a result that is an input */
    EXPECT(line_count > 1 && crossings() == 0 && collisions() == 0);
}

TEST(close_context)
{
    qn_context_close(context);
    unlink(path);
}

TEST_MAIN(CASE(open_context), CASE(two_layers), CASE(many_kernels), CASE(ways_around), CASE(close_context))
