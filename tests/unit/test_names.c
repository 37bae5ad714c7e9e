/*
 * The same operation has the same name in C and in .qn files: every function of <quern/tensor.h> and <quern/nn.h> that
 * makes a tensor is a function of the language or stands below with what the language writes instead, and the other
 * way round. The table of docs/tensor.md says why; it names each of them.
 * SPDX-License-Identifier: MIT
 */
#include "lang/ast.h"
#include "test.h"

#include <stdlib.h>

static const char *const only_in_c[] = {
    /* operators */
    "add", "sub", "mul", "div", "mod", "floor_div", "and", "or", "xor", "shl", "shr", "eq", "ne", "lt", "le", "gt",
    "ge", "neg", "not",
    /* casts, slices and indices are written as such */
    "cast", "slice", "index", "scalar",
    /* what lives on a tape */
    "keep", "empty", "from_memory", "wrap_memory", "from_buffer", "load_npy", "variable", "random_state", "rand_seeded",
    "randn_seeded",
    /* of any rank or in any direction in C; in files a name for each rank, and arguments */
    "cumsum_with", "cumprod_with", "cummax_with", "cummin_with", "conv", "conv_transpose", "max_pool", "avg_pool",
    "adaptive_max_pool", "adaptive_avg_pool", "upsample_nearest", "upsample_linear"};
static const char *const only_in_files[] = {
    "@", "cdiv", "tf32", "count", "iota", "dot", "fill", "like", "valid", "philox",
    /* max and min by PyTorch's other names, and each rank of what C has for all */
    "amax", "amin", "conv1d", "conv3d", "conv_transpose1d", "conv_transpose2d", "conv_transpose3d", "max_pool1d",
    "max_pool3d", "avg_pool1d", "avg_pool3d", "adaptive_max_pool1d", "adaptive_max_pool2d", "adaptive_max_pool3d",
    "adaptive_avg_pool1d", "adaptive_avg_pool2d", "adaptive_avg_pool3d", "upsample_nearest1d", "upsample_nearest2d",
    "upsample_nearest3d", "upsample_linear1d", "upsample_bilinear2d", "upsample_trilinear3d"};

static bool is_listed(const char *const *list, int count, const char *name)
{
    for (int i = 0; i < count; i++)
        if (!strcmp(list[i], name)) return true;
    return false;
}

static char *headers[2], *guide;

static bool is_in_headers(const char *name)
{
    char call[80], unary[80];
    snprintf(call, sizeof(call), " qn_%s(", name);
    snprintf(unary, sizeof(unary), " F(%s)", name);
    for (int i = 0; i < COUNT(headers); i++)
        if (strstr(headers[i], call) || strstr(headers[i], unary)) return true;
    return false;
}

static void expect_known(const char *start, size_t length)
{
    char name[80];
    snprintf(name, sizeof(name), "%.*s", (int)length, start);
    if (strstr(name, "_scalar")) return; /* a number as an operand */
    bool listed = is_listed(only_in_c, COUNT(only_in_c), name);
    const builtin *b = builtin_find(name);
    if (!b && !listed) printf("qn_%s has no `%s` in .qn files, and no line in the table\n", name, name);
    EXPECT(b || listed);
}

TEST(reading)
{
    static const char *const paths[] = {QUERN_ROOT "/include/quern/tensor.h", QUERN_ROOT "/include/quern/nn.h",
                                        QUERN_ROOT "/docs/tensor.md"};
    char **texts[] = {&headers[0], &headers[1], &guide};
    qn_error error;
    size_t size_bytes;
    for (int i = 0; i < COUNT(paths); i++) EXPECT(file_read(paths[i], 1 << 22, texts[i], &size_bytes, &error) == QN_OK);
}

TEST(c_in_files)
{
    int seen = 0;
    for (int i = 0; i < COUNT(headers); i++) {
        static const char words[] = "QN_API qn_tensor qn_";
        for (const char *at = headers[i]; (at = strstr(at, words)); seen++) {
            at += strlen(words);
            if (*at != '#') expect_known(at, strcspn(at, "("));
        }
        for (const char *at = headers[i]; (at = strstr(at, " F(")); seen++) {
            at += 3;
            expect_known(at, strcspn(at, ")"));
        }
    }
    EXPECT(seen > 120); /* the headers look as this test thinks */
}

TEST(files_in_c)
{
    for (int i = 0; i < builtin_count; i++) {
        const builtin *b = &builtins[i];
        if (b->class == BUILTIN_ATOMIC || b->class == BUILTIN_PROGRAM || b->class == BUILTIN_HOST ||
            b->class == BUILTIN_STATEMENT)
            continue; /* of kernels */
        bool listed = is_listed(only_in_files, COUNT(only_in_files), b->name);
        if (!listed && !is_in_headers(b->name))
            printf("`%s` has no qn_%s, and no line in the table\n", b->name, b->name);
        EXPECT(listed || is_in_headers(b->name));
    }
}

/* The lists above hold nothing that has come to exist on both sides, and the guide names all of it. */
TEST(lists)
{
    char quoted[80];
    for (int i = 0; i < COUNT(only_in_c); i++) {
        snprintf(quoted, sizeof(quoted), "`qn_%s`", only_in_c[i]);
        EXPECT(is_in_headers(only_in_c[i]));
        if (!strstr(guide, quoted)) printf("docs/tensor.md does not name %s\n", quoted);
        EXPECT(strstr(guide, quoted) != NULL);
        const builtin *b = builtin_find(only_in_c[i]);
        EXPECT(!b || !strcmp(b->name, "keep")); /* in kernels another thing */
    }
    for (int i = 0; i < COUNT(only_in_files); i++) {
        snprintf(quoted, sizeof(quoted), "`%s`", only_in_files[i]);
        EXPECT(builtin_find(only_in_files[i]) && !is_in_headers(only_in_files[i]));
        if (!strstr(guide, quoted)) printf("docs/tensor.md does not name %s\n", quoted);
        EXPECT(strstr(guide, quoted) != NULL);
    }
    for (int i = 0; i < COUNT(headers); i++) heap_free(headers[i]);
    heap_free(guide);
}

TEST_MAIN(CASE(reading), CASE(c_in_files), CASE(files_in_c), CASE(lists))
