/*
 * Plans of networks spelled from primitives: how many kernels they have, that each runs clean in the checking
 * interpreter and computes what its graph means, that optimisers write over their variables, and that tables of
 * embeddings are touched at their indices only.
 * SPDX-License-Identifier: MIT
 */
#include "../fuse_run.h"
#include "tensor/grad.h"

typedef struct bed {
    arena *memory;
    graph *g;
    fuse_options options;
    node params[64];
    int param_count;
} bed;

static bed bed_new(bool gpu)
{
    bed b = {.memory = arena_new(), .options = {.gpu = gpu, .units = 4}};
    b.g = graph_new(b.memory);
    return b;
}

static node leaf(bed *b, shape s)
{
    return kernel_leaf(b->memory, b->g, DT_F32, s, -1, 1);
}

static node full(bed *b, node like, double x)
{
    return graph_full_double(b->g, DT_F32, &graph_get(b->g, like)->shape, x);
}

static node scale(bed *b, node x, double by)
{
    return graph_binary(b->g, OP_MUL, x, full(b, x, by));
}

static node turned(bed *b, node x)
{
    int rank = graph_get(b->g, x)->shape.rank, axes[GRAPH_RANK];
    for (int k = 0; k < rank; k++) axes[k] = k;
    axes[rank - 1] = rank - 2;
    axes[rank - 2] = rank - 1;
    return graph_permute(b->g, x, axes);
}

/* x w + bias */
static node linear(bed *b, node x, int64_t out, bool swap)
{
    int64_t rows = graph_get(b->g, x)->shape.extents[0], in = graph_get(b->g, x)->shape.extents[1];
    node w = b->params[b->param_count++] = leaf(b, (shape){2, {in, out}});
    node bias = b->params[b->param_count++] = leaf(b, (shape){1, {out}});
    node product = graph_dot(b->g, x, w, DT_F32, false);
    bias = graph_expand(b->g, graph_reshape(b->g, bias, &(shape){2, {1, out}}), &(shape){2, {rows, out}});
    return swap ? graph_binary(b->g, OP_ADD, bias, product) : graph_binary(b->g, OP_ADD, product, bias);
}

static node gelu_by_hand(bed *b, node x)
{
    node inner = graph_unary(b->g, OP_ERF, scale(b, x, 0.70710678118654752));
    return graph_binary(b->g, OP_MUL, scale(b, x, 0.5), graph_binary(b->g, OP_ADD, inner, full(b, x, 1)));
}

static node mean_of_squares(bed *b, node x)
{
    int64_t count = shape_count(&graph_get(b->g, x)->shape);
    node sum =
        graph_reduce(b->g, FOLD_SUM, graph_binary(b->g, OP_MUL, x, x), (1u << graph_get(b->g, x)->shape.rank) - 1);
    return graph_reshape(b->g, scale(b, sum, 1.0 / (double)count), &(shape){0});
}

static int kernels_of(bed *b, const node *wanted, int count, double tolerance)
{
    if (b->g->status) printf("%s\n", b->g->error.message);
    int kernels = fuse_run_expect(b->memory, b->g, wanted, count, &b->options, tolerance);
    arena_free(b->memory);
    return kernels;
}

TEST(linear_and_activation)
{
    for (int swap = 0; swap < 2; swap++) {
        bed b = bed_new(swap);
        node x = leaf(&b, (shape){2, {37, 20}}), y = gelu_by_hand(&b, linear(&b, x, 50, swap));
        EXPECT(kernels_of(&b, &y, 1, 1e-5) == 1);
        b = bed_new(swap);
        x = leaf(&b, (shape){2, {37, 50}});
        y = graph_binary(b.g, OP_ADD, x, gelu_by_hand(&b, linear(&b, x, 50, swap))); /* a residual around it */
        EXPECT(kernels_of(&b, &y, 1, 1e-5) == 1);
    }
}

/* Dropout behind a product: the mask is drawn in its epilogue, from the state that later draws begin with. */
TEST(dropout)
{
    bed b = bed_new(false);
    shape s = {2, {37, 50}}, flat = {1, {37 * 50}};
    node state = kernel_leaf(b.memory, b.g, DT_U64, (shape){1, {2}}, 1, 1000), parts[2];
    for (int i = 0; i < 2; i++) {
        int64_t start = i, step = 1;
        node one = graph_slice(b.g, state, &start, &step, &(shape){1, {1}});
        parts[i] = graph_expand(b.g, graph_reshape(b.g, one, &(shape){2, {1, 1}}), &s);
    }
    node position = graph_reshape(b.g, graph_iota(b.g, flat.extents[0]), &s);
    node word = graph_map_index(b.g, OP_PHILOX, 0, DT_U32, (node[]){parts[0], parts[1], position}, 3);
    node keep = graph_binary(b.g, OP_LT, word, graph_full(b.g, DT_U32, &s, (number){.i = 1 << 30}));
    node h = graph_unary(b.g, OP_RELU, linear(&b, leaf(&b, (shape){2, {37, 20}}), 50, false));
    node y = graph_select(b.g, keep, scale(&b, h, 4), full(&b, h, 0));
    EXPECT(kernels_of(&b, &y, 1, 1e-5) == 1);
}

static node mlp_loss(bed *b, int layers)
{
    node h = leaf(b, (shape){2, {19, 12}}), target = leaf(b, (shape){2, {19, 6}});
    for (int l = 0; l < layers; l++) {
        h = linear(b, h, l == layers - 1 ? 6 : 10 + l % 3, l & 1);
        if (l < layers - 1) h = l & 1 ? graph_unary(b->g, OP_SILU, h) : graph_unary(b->g, OP_RELU, h);
    }
    return mean_of_squares(b, graph_binary(b->g, OP_SUB, h, target));
}

TEST(mlp_forward_and_backward)
{
    static const int layers[] = {1, 2, 4, 16};
    for (int i = 0; i < COUNT(layers); i++) {
        bed b = bed_new(i & 1);
        node wanted[64] = {mlp_loss(&b, layers[i])};
        EXPECT(graph_gradient(b.g, wanted[0], b.params, b.param_count, wanted + 1));
        int kernels = kernels_of(&b, wanted, 1 + b.param_count, 1e-4);
        EXPECT(kernels > 0 && kernels <= 3 * layers[i] + 2);
    }
}

/* On a GPU small products that are ready together share a launch: two for each layer, where one after another were
 * three. */
TEST(side_by_side)
{
    bed b = bed_new(true);
    node wanted[64] = {mlp_loss(&b, 16)};
    EXPECT(graph_gradient(b.g, wanted[0], b.params, b.param_count, wanted + 1));
    int kernels = kernels_of(&b, wanted, 1 + b.param_count, 1e-4);
    EXPECT(kernels > 0 && kernels <= 2 * 16 + 2);
}

/* One that takes long is launched alone: who waits for a small one would wait for it, too. */
TEST(long_products_are_alone)
{
    for (int longer = 0; longer < 2; longer++) {
        bed b = bed_new(true);
        int64_t count = longer ? 256 : 16, side = longer ? 512 : 64;
        qn_error error;
        fuse_plan *plan;
        node x = leaf(&b, (shape){3, {1, side, side}}), y = leaf(&b, (shape){3, {1, side, side}});
        node u = leaf(&b, (shape){2, {19, 12}}), v = leaf(&b, (shape){2, {12, 10}});
        shape many = {3, {count, side, side}};
        node wanted[] = {graph_dot(b.g, graph_expand(b.g, x, &many), graph_expand(b.g, y, &many), DT_F32, PRODUCT_ANY),
                         graph_dot(b.g, u, v, DT_F32, PRODUCT_ANY)};
        fuse_leaf *leaves = ARENA_ARRAY(b.memory, fuse_leaf, b.g->node_count); /* one a node, given or not */
        for (int n = 1; n < 5; n++) {
            leaves[n].given = true;
            memcpy(leaves[n].strides, graph_get(b.g, (node)n)->attr.strides, sizeof(leaves[n].strides));
        }
        EXPECT(fuse_plan_make(b.g, leaves, wanted, 2, NULL, 0, &b.options, b.memory, &plan, &error) == QN_OK);
        EXPECT(plan->kernel_count == 1 + longer);
        arena_free(b.memory);
    }
}

/* What the assignments leave in the variables' memory, and that no copy of a variable is made. */
static void expect_step(bed *b, node loss, const fuse_assign *assigns, int count, int most)
{
    node roots[200] = {loss};
    graph_tensor *expected = ARENA_ARRAY(b->memory, graph_tensor, count + 1);
    for (int i = 0; i < count; i++) roots[i + 1] = assigns[i].from;
    EXPECT(graph_interpret(b->g, roots, count + 1, NULL, false, b->memory, expected, NULL) == QN_OK);
    fuse_run r = fuse_run_plan(b->memory, b->g, &loss, 1, assigns, count, &b->options);
    EXPECT(r.good);
    if (!r.good) return;
    EXPECT(r.plan->kernel_count <= most);
    for (int i = 0; i < count; i++) {
        const float *home = graph_get(b->g, assigns[i].home)->attr.storage;
        EXPECT(r.plan->places[assigns[i].from].same_as == assigns[i].home);
        int wrong = 0;
        for (int64_t e = 0; e < expected[i + 1].count; e++)
            wrong += fabs(home[e] - expected[i + 1].elements[e].f) > 1e-4 * (1 + fabs(home[e]));
        EXPECT(!wrong);
    }
    arena_free(b->memory);
}

TEST(training_steps)
{
    for (int adam = 0; adam < 2; adam++) {
        bed b = bed_new(adam);
        node loss = mlp_loss(&b, 4), grads[16];
        fuse_assign assigns[64];
        int count = 0;
        EXPECT(graph_gradient(b.g, loss, b.params, b.param_count, grads));
        for (int i = 0; i < b.param_count; i++) {
            node p = b.params[i], step = grads[i];
            if (adam) {
                node m = leaf(&b, graph_get(b.g, p)->shape),
                     v = kernel_leaf(b.memory, b.g, DT_F32, graph_get(b.g, p)->shape, 0, 1);
                node next_m = graph_binary(b.g, OP_ADD, scale(&b, m, 0.9), scale(&b, step, 0.1));
                node next_v = graph_binary(b.g, OP_ADD, scale(&b, v, 0.99),
                                           scale(&b, graph_binary(b.g, OP_MUL, step, step), 0.01));
                node root = graph_binary(b.g, OP_ADD, graph_unary(b.g, OP_SQRT, next_v), full(&b, v, 1e-2));
                step = graph_binary(b.g, OP_DIV, next_m, root);
                assigns[count++] = (fuse_assign){m, next_m};
                assigns[count++] = (fuse_assign){v, next_v};
            }
            assigns[count++] = (fuse_assign){p, graph_binary(b.g, OP_SUB, p, scale(&b, step, 0.01))};
        }
        expect_step(&b, loss, assigns, count, 3 * 4 + 2);
    }
}

static node distances(bed *b, node x, node y)
{
    shape s = {2, {graph_get(b->g, x)->shape.extents[0], graph_get(b->g, y)->shape.extents[0]}};
    node rows = graph_reduce(b->g, FOLD_SUM, graph_binary(b->g, OP_MUL, x, x), 2);
    node columns = turned(b, graph_reduce(b->g, FOLD_SUM, graph_binary(b->g, OP_MUL, y, y), 2));
    node norms = graph_binary(b->g, OP_ADD, graph_expand(b->g, rows, &s), graph_expand(b->g, columns, &s));
    node twice = scale(b, graph_dot(b->g, x, turned(b, y), DT_F32, false), 2);
    return graph_unary(b->g, OP_SQRT, graph_unary(b->g, OP_RELU, graph_binary(b->g, OP_SUB, norms, twice)));
}

TEST(pairwise_distances)
{
    bed b = bed_new(false);
    node d = distances(&b, leaf(&b, (shape){2, {70, 20}}), leaf(&b, (shape){2, {40, 20}}));
    int kernels = kernels_of(&b, &d, 1, 1e-3);
    EXPECT(kernels > 0 && kernels <= 2);
    b = bed_new(true);
    node x = leaf(&b, (shape){2, {50, 20}});
    d = distances(&b, x, x);
    kernels = kernels_of(&b, &d, 1, 5e-3); /* roots of differences that are nearly zero */
    EXPECT(kernels > 0 && kernels <= 2);
}

static node softmax(bed *b, node x)
{
    const shape *s = &graph_get(b->g, x)->shape;
    node most = graph_expand(b->g, graph_reduce(b->g, FOLD_MAX, x, 1u << (s->rank - 1)), s);
    node e = graph_unary(b->g, OP_EXP, graph_binary(b->g, OP_SUB, x, most));
    return graph_binary(b->g, OP_DIV, e, graph_expand(b->g, graph_reduce(b->g, FOLD_SUM, e, 1u << (s->rank - 1)), s));
}

/* Heads split from one tensor, scores, softmax, values, heads joined, projected: a product each, and one row kernel. */
TEST(attention)
{
    bed b = bed_new(false);
    int order[] = {0, 2, 1, 3};
    shape split = {4, {2, 9, 3, 4}};
    node heads[3];
    for (int i = 0; i < 3; i++)
        heads[i] = graph_permute(b.g, graph_reshape(b.g, leaf(&b, (shape){3, {2, 9, 12}}), &split), order);
    node scores = scale(&b, graph_dot(b.g, heads[0], turned(&b, heads[1]), DT_F32, false), 0.5);
    node values = graph_dot(b.g, softmax(&b, scores), heads[2], DT_F32, false);
    node joined = graph_reshape(b.g, graph_permute(b.g, values, order), &(shape){2, {18, 12}});
    node y = linear(&b, joined, 12, false);
    EXPECT(kernels_of(&b, &y, 1, 1e-5) == 4);
}

/* Convolution over windows with padding, bias and activation; the largest of 2 x 2 places. */
TEST(convolution_and_pooling)
{
    bed b = bed_new(false);
    node x = leaf(&b, (shape){4, {2, 3, 8, 8}}), w = leaf(&b, (shape){4, {5, 3, 3, 3}}),
         bias = leaf(&b, (shape){4, {1, 5, 1, 1}});
    shape s = {4, {2, 5, 8, 8}};
    x = graph_pad(b.g, x, (int64_t[]){0, 0, 1, 1}, (int64_t[]){1, 1, 1, 1}, &(shape){4, {2, 3, 10, 10}}, (number){0});
    node windows = graph_window(b.g, graph_window(b.g, x, 2, 3, 1, 1), 3, 3, 1, 1);
    node columns = graph_reshape(b.g, graph_permute(b.g, windows, (int[]){0, 2, 3, 1, 4, 5}), &(shape){2, {128, 27}});
    node product = graph_dot(b.g, columns, turned(&b, graph_reshape(b.g, w, &(shape){2, {5, 27}})), DT_F32, false);
    node image = graph_permute(b.g, graph_reshape(b.g, product, &(shape){4, {2, 8, 8, 5}}), (int[]){0, 3, 1, 2});
    image = graph_unary(b.g, OP_RELU, graph_binary(b.g, OP_ADD, image, graph_expand(b.g, bias, &s)));
    node places = graph_window(b.g, graph_window(b.g, image, 2, 2, 2, 1), 3, 2, 2, 1);
    node y = graph_reduce(b.g, FOLD_MAX, places, 3u << 4);
    int kernels = kernels_of(&b, &y, 1, 1e-5);
    EXPECT(kernels > 0 && kernels <= 3);
}

/* Operands that are no slices of arrays: seven axes of grouped windows, rows that a reshape mixes, a table's rows. */
TEST(operands)
{
    bed b = bed_new(false);
    node x = leaf(&b, (shape){4, {2, 6, 6, 7}}), w = leaf(&b, (shape){3, {3, 4, 8}});
    node windows = graph_window(b.g, graph_window(b.g, x, 2, 2, 1, 1), 3, 2, 1, 1); /* [2, 6, 5, 6, 2, 2] */
    node apart = graph_reshape(b.g, windows, &(shape){7, {2, 3, 2, 5, 6, 2, 2}});
    node columns = graph_permute(b.g, apart, (int[]){1, 2, 5, 6, 0, 3, 4});
    node y = graph_dot(b.g, w, graph_reshape(b.g, columns, &(shape){3, {3, 8, 60}}), DT_F32, false);
    EXPECT(kernels_of(&b, &y, 1, 1e-5) > 0);

    b = bed_new(true);
    x = graph_reshape(b.g, turned(&b, leaf(&b, (shape){2, {4, 6}})), &(shape){2, {8, 3}});
    y = graph_dot(b.g, x, leaf(&b, (shape){2, {3, 5}}), DT_F32, false);
    EXPECT(kernels_of(&b, &y, 1, 1e-5) > 0);

    b = bed_new(false);
    node index = kernel_leaf(b.memory, b.g, DT_I64, (shape){1, {9}}, 0, 29.9);
    x = graph_take(b.g, leaf(&b, (shape){2, {30, 20}}), index, 0);
    y = graph_dot(b.g, x, leaf(&b, (shape){2, {20, 5}}), DT_F32, false);
    EXPECT(kernels_of(&b, &y, 1, 1e-5) == 2);
}

/* Operands that are constants, on both kinds of devices. */
TEST(constant_operands)
{
    for (int gpu = 0; gpu < 2; gpu++) {
        bed b = bed_new(gpu);
        node x = leaf(&b, (shape){2, {9, 20}}), ones = graph_full_double(b.g, DT_F32, &(shape){2, {20, 5}}, 0.5);
        node y = graph_unary(b.g, OP_RELU, graph_dot(b.g, x, ones, DT_F32, false));
        EXPECT(kernels_of(&b, &y, 1, 1e-5) > 0);
    }
}

/* Sums of rows of a table are gathered and added without a tensor between. */
TEST(embedding_bags)
{
    bed b = bed_new(false);
    node table = leaf(&b, (shape){2, {30, 20}}),
         index = kernel_leaf(b.memory, b.g, DT_I64, (shape){2, {7, 5}}, 0, 29.9);
    node y = graph_reduce(b.g, FOLD_SUM, graph_take(b.g, table, index, 0), 2);
    EXPECT(kernels_of(&b, &y, 1, 1e-5) == 1);
}

TEST(embedding_steps)
{
    /* table' = table with rows added: in the table's own memory, at the rows of the indices */
    bed b = bed_new(false);
    node table = leaf(&b, (shape){2, {30, 20}}), index = kernel_leaf(b.memory, b.g, DT_I64, (shape){1, {40}}, 0, 29.9);
    node rows = leaf(&b, (shape){2, {40, 20}});
    node loss = mean_of_squares(&b, graph_take(b.g, table, index, 0));
    fuse_assign assign = {table, graph_take_add(b.g, table, index, scale(&b, rows, -0.1), 0)};
    expect_step(&b, loss, &assign, 1, 5);
}

/* The gradient of a table: indices sorted where they are, rows added to zeros that nobody writes first. */
TEST(embedding_gradients)
{
    bed b = bed_new(false);
    node table = leaf(&b, (shape){2, {30, 20}}),
         index = kernel_leaf(b.memory, b.g, DT_I64, (shape){2, {8, 5}}, 0, 29.9);
    node loss = mean_of_squares(&b, graph_take(b.g, table, index, 0)), wanted[2] = {loss};
    EXPECT(graph_gradient(b.g, loss, &table, 1, &wanted[1]));
    EXPECT(kernels_of(&b, wanted, 2, 1e-5) == 3);
}

TEST(largest)
{
    bed b = bed_new(false);
    node x = leaf(&b, (shape){2, {6, 90}}), order = graph_argsort(b.g, x, 1, true);
    node places = graph_slice(b.g, order, (int64_t[]){0, 0}, (int64_t[]){1, 1}, &(shape){2, {6, 4}});
    node wanted[] = {graph_gather(b.g, x, places, 1), places};
    EXPECT(kernels_of(&b, wanted, 2, 0) > 0);
}

/* Leaves with strides of their own, and axes of no elements. */
TEST(strides_and_nothing)
{
    bed b = bed_new(false);
    float *data = ARENA_ARRAY(b.memory, float, 1000);
    for (int i = 0; i < 1000; i++) data[i] = (float)(i * 7 % 13);
    node x = graph_leaf(b.g, DT_F32, &(shape){3, {3, 9, 3}}, (int64_t[]){2, 40, 9}, 1, data);
    node wanted[3];
    for (int axis = 0; axis < 3; axis++) wanted[axis] = graph_argsort(b.g, x, axis, axis & 1);
    EXPECT(kernels_of(&b, wanted, 3, 0) > 0);

    b = bed_new(false);
    data = ARENA_ARRAY(b.memory, float, 1000);
    x = graph_leaf(b.g, DT_F32, &(shape){3, {5, 4, 6}}, (int64_t[]){1, 40, 5}, 0, data);
    node one = kernel_leaf(b.memory, b.g, DT_I32, (shape){0}, 0, 5.9), updates = leaf(&b, (shape){2, {5, 4}});
    node table = kernel_leaf(b.memory, b.g, DT_I32, (shape){2, {3, 3}}, 0, 5.9),
         more = leaf(&b, (shape){4, {5, 4, 3, 3}});
    wanted[0] = graph_take_add(b.g, x, one, updates, 2);
    wanted[1] = graph_take_add(b.g, x, table, more, 2);
    wanted[2] = graph_scan(b.g, FOLD_SUM, graph_permute(b.g, x, (int[]){2, 0, 1}), 1);
    EXPECT(kernels_of(&b, wanted, 3, 1e-5) > 0);

    b = bed_new(false);
    x = leaf(&b, (shape){3, {9, 0, 9}});
    node y = graph_unary(b.g, OP_RELU, graph_dot(b.g, x, leaf(&b, (shape){3, {9, 9, 16}}), DT_F32, false));
    EXPECT(kernels_of(&b, &y, 1, 0) >= 0);
}

TEST_MAIN(CASE(strides_and_nothing), CASE(linear_and_activation), CASE(dropout), CASE(mlp_forward_and_backward),
          CASE(side_by_side), CASE(long_products_are_alone), CASE(training_steps), CASE(pairwise_distances), CASE(attention),
          CASE(convolution_and_pooling), CASE(operands), CASE(constant_operands), CASE(embedding_bags),
          CASE(embedding_steps), CASE(embedding_gradients), CASE(largest))
