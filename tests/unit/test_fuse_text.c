/*
 * The texts of fusion. Golden: the graph tests/text/fuse/NAME.graph is planned, and its report and kernels must print as
 * NAME.expected; QUERN_BLESS=1 writes the files instead, for a person to read before committing them. Then that the
 * texts of kernels are the same for other batch sizes, so that nothing is compiled for those, and that what would cost
 * more than it saves is not fused.
 * SPDX-License-Identifier: MIT
 */
#include "../fuse_run.h"

#define FOLDER QUERN_ROOT "/tests/text/fuse/"

static fuse_plan *plan_of(arena *memory, graph *g, const node *wanted, int count, const fuse_options *options)
{
    fuse_plan *plan = NULL;
    qn_error error = {0};
    fuse_leaf *leaves = ARENA_ARRAY(memory, fuse_leaf, g->node_count);
    for (int n = 1; n < g->node_count; n++) {
        leaves[n].given = g->nodes[n].code == GRAPH_LEAF;
        leaves[n].offset = g->nodes[n].attr.offset;
        memcpy(leaves[n].strides, g->nodes[n].attr.strides, sizeof(leaves[n].strides));
    }
    if (fuse_plan_make(g, leaves, wanted, count, NULL, 0, options, memory, &plan, &error) != QN_OK)
        test_fail(__FILE__, __LINE__, error.message);
    return plan;
}

static void add_kernels(const fuse_plan *plan, text *out)
{
    for (int i = 0; i < plan->kernel_count; i++) tile_print(plan->kernels[i].kernel, out);
}

static void golden(const char *name)
{
    char path[512], expected_path[512], *words = NULL, *expected = NULL;
    size_t length = 0;
    qn_error error = {0};
    snprintf(path, sizeof(path), FOLDER "%s.graph", name);
    snprintf(expected_path, sizeof(expected_path), FOLDER "%s.expected", name);
    arena *memory = arena_new();
    graph *g = graph_new(memory);
    node *roots = NULL;
    int count = 0;
    text out = {0};
    if (file_read(path, 1 << 20, &words, &length, &error) != QN_OK ||
        graph_read(g, name, words, length, &roots, &count, &error) != QN_OK) {
        test_fail(path, 1, error.message);
    } else {
        fuse_options options = {.units = 2};
        fuse_plan *plan = plan_of(memory, g, roots, count, &options);
        if (plan) {
            fuse_print(plan, &out);
            add_kernels(plan, &out);
        }
        if (environment_get("QUERN_BLESS"))
            EXPECT(file_write(expected_path, text_get(&out), out.length, &error) == QN_OK);
        else if (file_read(expected_path, 1 << 20, &expected, &length, &error) != QN_OK)
            test_fail(path, 1, error.message);
        else
            test_text(text_get(&out), expected, path, 1);
    }
    text_free(&out);
    free(words);
    free(expected);
    arena_free(memory);
}

TEST(golden_texts)
{
    static const char *const names[] = {"softmax", "activation", "transpose", "columns",
                                        "loss",    "moving",     "boundaries"};
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) golden(names[i]);
}

/* A layer: norm, product, bias, activation, softmax, the sum of each column and the mean of all. */
static const char *texts_for(int64_t batch, bool gpu, text *out)
{
    arena *memory = arena_new();
    graph *g = graph_new(memory);
    shape wide = {2, {batch, 192}}, column = {2, {batch, 1}};
    node x = graph_leaf(g, DT_F32, &wide, NULL, 0, (void *)1);
    node weight = graph_leaf(g, DT_F32, &(shape){2, {192, 192}}, NULL, 0, (void *)2);
    node bias = graph_leaf(g, DT_F32, &(shape){2, {1, 192}}, NULL, 0, (void *)3);
    node mean = graph_binary(g, OP_DIV, graph_reduce(g, FOLD_SUM, x, 2), graph_full_double(g, DT_F32, &column, 192));
    node d = graph_binary(g, OP_SUB, x, graph_expand(g, mean, &wide));
    node variance = graph_reduce(g, FOLD_SUM, graph_binary(g, OP_MUL, d, d), 2);
    node n = graph_binary(g, OP_MUL, d, graph_expand(g, graph_unary(g, OP_RSQRT, variance), &wide));
    node h = graph_binary(g, OP_ADD, graph_dot(g, n, weight, DT_F32, false), graph_expand(g, bias, &wide));
    node a = graph_unary(g, OP_GELU, h);
    node e =
        graph_unary(g, OP_EXP, graph_binary(g, OP_SUB, a, graph_expand(g, graph_reduce(g, FOLD_MAX, a, 2), &wide)));
    node y = graph_binary(g, OP_DIV, e, graph_expand(g, graph_reduce(g, FOLD_SUM, e, 2), &wide));
    node all = graph_reduce(g, FOLD_SUM, y, 3);
    node average = graph_binary(g, OP_DIV, all, graph_full_double(g, DT_F32, &graph_get(g, all)->shape, (double)batch));
    node wanted[] = {y, average, graph_reduce(g, FOLD_SUM, h, 1)};
    fuse_options options = {.units = 8, .gpu = gpu};
    fuse_plan *plan = plan_of(memory, g, wanted, 3, &options);
    text_clear(out);
    if (plan) add_kernels(plan, out);
    arena_free(memory);
    return text_get(out);
}

TEST(batch_sizes)
{
    text first = {0}, other = {0};
    for (int gpu = 0; gpu < 2; gpu++) {
        texts_for(100, gpu, &first);
        static const int64_t sizes[] = {7, 64, 129, 5000, 70000};
        for (int i = 0; i < (gpu ? 3 : 5); i++) /* products of another class of sizes have other tiles there */
            EXPECT_TEXT(texts_for(sizes[i], gpu, &other), text_get(&first));
    }
    text_free(&first);
    text_free(&other);
}

/* exp of a row, needed by every row: once, if there are many. */
static int kernels_for(int64_t rows, const char **why)
{
    arena *memory = arena_new();
    graph *g = graph_new(memory);
    shape wide = {2, {rows, 4096}};
    node x = graph_leaf(g, DT_F32, &wide, NULL, 0, (void *)1);
    node scale = graph_leaf(g, DT_F32, &(shape){2, {1, 4096}}, NULL, 0, (void *)2);
    node y = graph_binary(g, OP_MUL, x, graph_expand(g, graph_unary(g, OP_EXP, scale), &wide));
    node z = graph_reduce(g, FOLD_SUM, y, 2);
    fuse_plan *plan = plan_of(memory, g, &z, 1, &(fuse_options){.units = 2});
    int count = plan ? plan->kernel_count : -1;
    for (int i = 0; plan && i < plan->boundary_count; i++)
        if (plan->boundaries[i].consumer >= 0) *why = plan->boundaries[i].why;
    arena_free(memory);
    return count;
}

TEST(costs)
{
    const char *why = "";
    EXPECT(kernels_for(2, &why) == 1);
    EXPECT(kernels_for(4096, &why) == 2);
    EXPECT_TEXT(why, "a costly function would be computed many times over");
}

/* Sums along the rows of one array and along the columns of another share nothing, and one of them would read across: apart on
 * a GPU. */
TEST(sums_of_rows_beside_sums_of_columns)
{
    const fuse_options gpu = {.units = 132, .gpu = true, .cuda_text = true, .arch = 90};
    arena *memory = arena_new();
    graph *g = graph_new(memory);
    shape cube = {3, {128, 432, 432}}, plane = {2, {128, 432}};
    node a = graph_leaf(g, DT_F32, &cube, NULL, 0, (void *)1), b = graph_leaf(g, DT_F32, &cube, NULL, 0, (void *)2);
    node rows = graph_reshape(g, graph_reduce(g, FOLD_SUM, a, 4), &plane);
    node sum = graph_binary(g, OP_ADD, rows, graph_reshape(g, graph_reduce(g, FOLD_SUM, b, 2), &plane));
    fuse_plan *plan = plan_of(memory, g, &sum, 1, &gpu);
    EXPECT(plan && plan->kernel_count == 2);
    arena_free(memory);
}

TEST_MAIN(CASE(golden_texts), CASE(batch_sizes), CASE(costs), CASE(sums_of_rows_beside_sums_of_columns))
