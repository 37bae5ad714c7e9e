/*
 * Convolutions as products that gather: plans for a GPU of windows over padded images, their gradients by image (a
 * transposed convolution) and by weight. Each is one product, runs clean in the checking interpreter and computes what
 * its graph means; so do the texts of arrays with digits when they are printed and read again.
 * SPDX-License-Identifier: MIT
 */
#include "../fuse_run.h"
#include "tensor/grad.h"

typedef struct convolution {
    int images, groups, channels, outputs, axes; /* channels and outputs of a group */
    int64_t extent[3], size[3];
    int64_t stride, dilation, before, after;
    int kernels[3]; /* of the convolution, its gradient by image, by weight; 0: any number */
} convolution;

static const convolution cases[] = {
    {2, 1, 5, 7, 2, {9, 7}, {3, 3}, 1, 1, 1, 1, {1, 2, 1}},
    {2, 1, 3, 17, 2, {8, 9}, {3, 2}, 1, 1, 0, 0, {1, 1, 1}},
    {1, 2, 3, 2, 2, {9, 8}, {3, 3}, 2, 1, 1, 1, {1, 0, 1}},  /* ends of the gradient are cut off */
    {2, 1, 4, 3, 2, {10, 9}, {2, 3}, 2, 2, 2, 2, {1, 0, 1}}, /* every other element of the gradient is 0 */
    {1, 1, 2, 3, 2, {11, 7}, {3, 2}, 3, 2, 3, 2, {1, 0, 1}}, /* remainders one by one */
    {1, 1, 3, 4, 2, {6, 6}, {4, 4}, 2, 1, 1, 1, {1, 2, 1}},
    {1, 1, 3, 4, 2, {3, 3}, {5, 5}, 1, 1, 4, 3, {1, 2, 1}}, /* windows larger than the image */
    {3, 1, 6, 5, 2, {4, 5}, {1, 1}, 1, 1, 0, 0, {1, 1, 1}},
    {2, 1, 3, 4, 1, {19}, {4}, 3, 1, 2, 1, {1, 2, 1}},
    {1, 1, 2, 3, 3, {4, 5, 4}, {3, 2, 3}, 1, 1, 1, 1, {1, 2, 1}},
    {1, 1, 2, 3, 3, {4, 5, 4}, {3, 3, 3}, 2, 1, 1, 1, {1, 2, 1}}, /* as many axes as there can be */
    {2, 1, 3, 2, 3, {7, 4, 6}, {2, 3, 4}, 3, 1, 0, 2, {1, 2, 1}},
    {1,
     2,
     3,
     18,
     2,
     {9, 11},
     {4, 4},
     3,
     1,
     1,
     1,
     {1, 2, 1}}, /* groups, and elements of windows missing at remainders */
};

/* x [images][groups * channels][..], w [groups * outputs][channels][..]; a window for each axis, then one product. */
static node convolve(graph *g, const convolution *c, node x, node w)
{
    int rank = 2 + c->axes, order[GRAPH_RANK], count = 0;
    int64_t start[GRAPH_RANK] = {0}, step[GRAPH_RANK], depth = c->channels, places = c->images;
    shape padded = graph_get(g, x)->shape;
    for (int k = 0; k < rank; k++) {
        step[k] = 1;
        if (k < 2) continue;
        start[k] = c->before;
        padded.extents[k] += c->before + c->after;
    }
    x = graph_pad(g, x, start, step, &padded, (number){0});
    for (int k = 0; k < c->axes; k++) x = graph_window(g, x, 2 + k, c->size[k], c->stride, c->dilation);
    shape s = graph_get(g, x)->shape, apart = {2 + c->axes + 1, {c->groups, c->outputs, c->images}};
    for (int k = 0; k < c->axes; k++) {
        depth *= s.extents[rank + k];
        places *= apart.extents[3 + k] = s.extents[2 + k];
    }
    order[count++] = 1;
    for (int k = 0; k < c->axes; k++) order[count++] = rank + k;
    order[count++] = 0;
    for (int k = 0; k < c->axes; k++) order[count++] = 2 + k;
    node columns = graph_reshape(g, graph_permute(g, x, order), &(shape){3, {c->groups, depth, places}});
    node y = graph_dot(g, graph_reshape(g, w, &(shape){3, {c->groups, c->outputs, depth}}), columns, DT_F32, false);
    count = 0;
    order[count++] = 2;
    order[count++] = 0;
    order[count++] = 1;
    for (int k = 0; k < c->axes; k++) order[count++] = 3 + k;
    return graph_permute(g, graph_reshape(g, y, &apart), order);
}

static node leaf(graph *g, shape s)
{
    return kernel_leaf(g->memory, g, DT_F32, s, -1, 1);
}

static node gradient_by(graph *g, node y, node seed, node of)
{
    node loss = graph_binary(g, OP_MUL, y, seed), found = 0;
    int rank = graph_get(g, y)->shape.rank;
    loss = graph_reshape(g, graph_reduce(g, FOLD_SUM, loss, (1u << rank) - 1), &(shape){0});
    EXPECT(graph_gradient(g, loss, &of, 1, &found));
    return found;
}

/* what: 0 the convolution with an activation behind it, 1 and 2 its gradients, 3 the gradient of the first of these by what
 * arrived: the convolution again. */
static int kernels_of(const convolution *c, int what, bool gpu)
{
    arena *memory = arena_new();
    graph *g = graph_new(memory);
    fuse_options options = {.gpu = gpu, .units = 4};
    shape image = {2 + c->axes, {c->images, c->groups * c->channels}};
    shape weight = {2 + c->axes, {c->groups * c->outputs, c->channels}};
    for (int k = 0; k < c->axes; k++) {
        image.extents[2 + k] = c->extent[k];
        weight.extents[2 + k] = c->size[k];
    }
    node given[2] = {leaf(g, image), leaf(g, weight)}, wanted = convolve(g, c, given[0], given[1]);
    if (what) {
        node seed = leaf(g, graph_get(g, wanted)->shape);
        wanted = gradient_by(g, wanted, seed, given[what == 2]);
        if (what == 3) wanted = gradient_by(g, wanted, leaf(g, graph_get(g, wanted)->shape), seed);
    } else {
        wanted = graph_unary(g, OP_RELU, wanted);
    }
    if (g->status) printf("%s\n", g->error.message);
    int count = fuse_run_expect(memory, g, &wanted, 1, &options, 1e-4);
    arena_free(memory);
    return count;
}

TEST(convolutions)
{
    for (int i = 0; i < COUNT(cases); i++) {
        for (int what = 0; what < 3; what++) {
            int count = kernels_of(&cases[i], what, true), most = cases[i].kernels[what];
            if (count < 1 || (most && count != most)) printf("case %d, %d: %d kernels\n", i, what, count);
            EXPECT(count > 0 && (!most || count == most));
        }
    }
}

TEST(without_a_gpu)
{
    for (int i = 0; i < COUNT(cases); i += 2)
        for (int what = 0; what < 3; what++) EXPECT(kernels_of(&cases[i], what, false) > 0);
}

/* A transposed convolution is a sum along diagonals: they go back to where they were read, without an addition. */
TEST(transposed_by_their_input)
{
    static const convolution spread[] = {{2, 1, 5, 7, 2, {9, 7}, {3, 3}, 1, 1, 1, 1, {1}},
                                         {1, 1, 3, 4, 2, {8, 8}, {4, 4}, 2, 1, 1, 1, {1}},
                                         {1, 1, 2, 3, 2, {11, 7}, {3, 2}, 3, 2, 3, 2, {2}}, /* remainders one by one */
                                         {1, 1, 2, 3, 3, {4, 5, 4}, {3, 3, 3}, 2, 1, 1, 1, {2}}};
    for (int i = 0; i < COUNT(spread); i++)
        for (int gpu = 0; gpu < 2; gpu++) {
            int count = kernels_of(&spread[i], 3, gpu);
            if (count != spread[i].kernels[0]) printf("case %d: %d kernels\n", i, count);
            EXPECT(count == spread[i].kernels[0]);
        }
}

/* Rows of places too short for vectors: the product takes the sums in, and stores its results apart. */
TEST(short_rows_without_a_gpu)
{
    static const convolution strided[] = {{2, 1, 16, 8, 2, {20, 20}, {3, 3}, 2, 1, 1, 1, {0}},
                                          {1, 2, 16, 8, 2, {19, 20}, {4, 4}, 3, 1, 1, 1, {0}},
                                          {1, 1, 16, 8, 2, {9, 10}, {3, 3}, 1, 1, 1, 1, {0}}};
    for (int i = 0; i < COUNT(strided); i++) {
        int count = kernels_of(&strided[i], 1, false);
        if (count != 2) printf("case %d: %d kernels\n", i, count);
        EXPECT(count == 2); /* the product, and what cuts off the padding */
    }
}

/* A kernel whose array has digits: printed, read, and printed again the same. */
TEST(texts)
{
    arena *memory = arena_new();
    static const char words[] =
        "kernel pad_copy\n"
        "  param n extent i64\n"
        "  param m extent i64\n"
        "  param x in f32 [n, m] digits (0, 3) by (5, 1) guards (1, 0) digits (0) by (2) guards (-1) "
        "from (-4) guard (-1) within (7)\n";
    text printed = {0}, again = {0};
    tile_kernel *k = tile_kernel_new(memory, "pad_copy", NULL);
    param_digits digits = {.axes = {{2, {0, 3}, {5, 1}, {{1, 0}}}, {1, {0}, {2}, {{-1}}}},
                           .origin = -4,
                           .guard_count = 1,
                           .guard_first = {-1},
                           .guard_extent = {7}};
    tile_param extent = {.kind = PARAM_EXTENT, .elem = DT_I64, .facts.size_class = -1};
    for (int i = 0; i < MAX_RANK; i++) extent.extent_param[i] = -1;
    tile_param array = extent;
    for (int i = 0; i < 2; i++) {
        extent.name = i ? "m" : "n";
        array.extent_param[i] = tile_param_add(k, extent);
    }
    array.name = "x";
    array.kind = PARAM_IN;
    array.elem = DT_F32;
    array.rank = 2;
    array.digits = &digits;
    tile_param_add(k, array);
    tile_print(k, &printed);
    EXPECT(strstr(text_get(&printed), strstr(words, "param x in")) != NULL);
    qn_error error = {0};
    tile_kernel *read = NULL;
    EXPECT(tile_read(memory, "texts", text_get(&printed), printed.length, &read, &error) == QN_OK);
    if (read) tile_print(read, &again);
    EXPECT_TEXT(text_get(&again), text_get(&printed));
    text_free(&printed);
    text_free(&again);
    arena_free(memory);
}

TEST_MAIN(CASE(convolutions), CASE(without_a_gpu), CASE(transposed_by_their_input), CASE(short_rows_without_a_gpu),
          CASE(texts))
