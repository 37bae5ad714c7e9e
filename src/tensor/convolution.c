/*
 * Convolution and pooling. In: handles of images [N][C][H][W]. Out: padding, one WINDOW for rows and one for columns,
 * then a product with the weight (one DOT for all images of a group) or a reduction over the window.
 * SPDX-License-Identifier: MIT
 */
#include "tensor/ops.h"

#include <math.h>

static int64_t or_else(int64_t given, int64_t otherwise)
{
    return given ? given : otherwise;
}

/* How windows lie over the last two axes. */
typedef struct windows {
    int64_t size[2], stride[2], padding[2], dilation[2];
} windows;

static bool windows_fit(graph *g, const char *op, const windows *w)
{
    for (int i = 0; i < 2; i++)
        if (w->size[i] < 1 || w->stride[i] < 1 || w->dilation[i] < 1 || w->padding[i] < 0)
            return graph_fail(g, op,
                              "size %lld, stride %lld and dilation %lld must be at least 1, padding %lld at least 0",
                              (long long)w->size[i], (long long)w->stride[i], (long long)w->dilation[i],
                              (long long)w->padding[i]),
                   false;
    return true;
}

/* [..][H][W] -> [..][places][places][rows][columns] */
static node window_both(graph *g, node x, const windows *w, double fill)
{
    int rank = tensor_shape(g, x)->rank;
    int64_t around[GRAPH_RANK] = {0};
    for (int i = 0; i < 2; i++) around[rank - 2 + i] = w->padding[i];
    x = tensor_pad(g, x, around, around, fill);
    x = graph_window(g, x, rank - 2, w->size[0], w->stride[0], w->dilation[0]);
    return graph_window(g, x, rank - 1, w->size[1], w->stride[1], w->dilation[1]);
}

/* ---- convolution ---- */

static bool conv_fits(graph *g, node x, node weight, node bias, int64_t groups)
{
    const shape *s = tensor_shape(g, x), *w = tensor_shape(g, weight);
    bool fits = s->rank == 4 && w->rank == 4 && groups >= 1 && s->extents[1] % groups == 0 &&
                w->extents[0] % groups == 0 && s->extents[1] / groups == w->extents[1];
    if (fits && bias) fits = tensor_shape(g, bias)->rank == 1 && tensor_shape(g, bias)->extents[0] == w->extents[0];
    if (!fits)
        graph_fail(g, "conv2d",
                   "x %s, weight %s%s%s, groups %lld: they should be [N][C][H][W], [O][C / groups][KH][KW] "
                   "and [O]",
                   tensor_words(g, x), tensor_words(g, weight), bias ? ", bias " : "",
                   bias ? tensor_words(g, bias) : "", (long long)groups);
    return fits;
}

/* weight [G][O / G][K] times columns [G][K][N * places], K the channels of a group and the window. */
static node convolve(graph *g, node x, node weight, const windows *w, int64_t groups, bool tf32)
{
    shape from = *tensor_shape(g, x), kernel = *tensor_shape(g, weight);
    node parts = window_both(g, x, w, 0);
    if (!parts) return 0;
    const int64_t *e = tensor_shape(g, parts)->extents; /* N C OH OW KH KW */
    int64_t images = from.extents[0], channels = kernel.extents[1], outputs = kernel.extents[0] / groups;
    int64_t rows = e[2], columns = e[3], depth = channels * e[4] * e[5];
    shape grouped = {7, {images, groups, channels, rows, columns, e[4], e[5]}};
    parts = graph_permute(g, graph_reshape(g, parts, &grouped), (int[]){1, 2, 5, 6, 0, 3, 4});
    shape left = {3, {groups, outputs, depth}}, right = {3, {groups, depth, images * rows * columns}};
    node product = tensor_matmul(g, graph_reshape(g, weight, &left), graph_reshape(g, parts, &right), tf32);
    shape apart = {5, {groups, outputs, images, rows, columns}},
          whole = {4, {images, kernel.extents[0], rows, columns}};
    return graph_reshape(g, graph_permute(g, graph_reshape(g, product, &apart), (int[]){2, 0, 1, 3, 4}), &whole);
}

qn_tensor qn_conv2d(qn_tensor x, qn_tensor weight, qn_tensor bias, const qn_conv2d_options *options)
{
    node n[3] = {0};
    qn_tape *tape = tape_begin("conv2d", (qn_tensor[]){x, weight, bias}, 2 + (bias.tape != NULL), n);
    if (!tape) return tape_failed();
    graph *g = tape->graph;
    qn_conv2d_options given = options ? *options : (qn_conv2d_options){0};
    int64_t groups = or_else(given.groups, 1);
    if (!conv_fits(g, n[0], n[1], n[2], groups)) return tape_failed();
    windows w;
    for (int i = 0; i < 2; i++) {
        w.size[i] = tensor_shape(g, n[1])->extents[2 + i];
        w.stride[i] = or_else(given.stride[i], 1);
        w.padding[i] = given.padding[i];
        w.dilation[i] = or_else(given.dilation[i], 1);
    }
    if (!windows_fit(g, "conv2d", &w)) return tape_failed();
    dtype elem = tensor_promote(g, "conv2d", n, 2);
    if (elem == DT_COUNT) return tape_failed();
    node y = convolve(g, tensor_convert(g, n[0], elem), tensor_convert(g, n[1], elem), &w, groups, tape->allow_tf32);
    if (n[2] && y) {
        shape column = {4, {1, tensor_shape(g, n[2])->extents[0], 1, 1}};
        y = tensor_binary(g, OP_ADD, y, graph_reshape(g, n[2], &column));
    }
    return tape_handle(tape, y);
}

/* ---- pooling ---- */

static bool pool_windows(graph *g, const char *op, node x, int64_t rows, int64_t columns,
                         const qn_pool2d_options *options, windows *w)
{
    qn_pool2d_options given = options ? *options : (qn_pool2d_options){0};
    if (tensor_shape(g, x)->rank < 2 || tensor_shape(g, x)->rank > GRAPH_RANK - 2)
        return graph_fail(g, op, "x is %s: it should be [..][H][W] of at most %d axes", tensor_words(g, x),
                          GRAPH_RANK - 2),
               false;
    *w = (windows){.size = {rows, columns}};
    for (int i = 0; i < 2; i++) {
        w->stride[i] = or_else(given.stride[i], w->size[i]);
        w->padding[i] = given.padding[i];
        w->dilation[i] = or_else(given.dilation[i], 1);
    }
    if (!windows_fit(g, op, w)) return false;
    for (int i = 0; i < 2; i++)
        if (2 * w->padding[i] > w->size[i])
            return graph_fail(g, op, "a padding of %lld is more than half of the window of %lld",
                              (long long)w->padding[i], (long long)w->size[i]),
                   false;
    return true;
}

static unsigned last_two(const graph *g, node x)
{
    return 3u << (tensor_shape(g, x)->rank - 2);
}

qn_tensor qn_max_pool2d(qn_tensor x, int64_t rows, int64_t columns, const qn_pool2d_options *options)
{
    node n;
    windows w;
    qn_tape *tape = tape_begin("max_pool2d", &x, 1, &n);
    if (!tape || !pool_windows(tape->graph, "max_pool2d", n, rows, columns, options, &w)) return tape_failed();
    graph *g = tape->graph;
    if (!dtype_is_float(tensor_elem(g, n)))
        return graph_fail(g, "max_pool2d", "it does not take %s: cast it", dtypes[tensor_elem(g, n)].text),
               tape_failed();
    node parts = window_both(g, n, &w, -INFINITY);
    if (!parts) return tape_failed();
    return tape_handle(tape, tensor_drop(g, tensor_max(g, parts, last_two(g, parts)), last_two(g, parts)));
}

/* How many elements of x each window holds: [places][places], a constant of the graph. */
static node window_counts(graph *g, node x, const windows *w)
{
    const shape *s = tensor_shape(g, x);
    shape image = {2, {s->extents[s->rank - 2], s->extents[s->rank - 1]}};
    node ones = window_both(g, graph_full_double(g, tensor_elem(g, x), &image, 1), w, 0);
    return tensor_drop(g, tensor_sum(g, ones, 12), 12);
}

qn_tensor qn_avg_pool2d(qn_tensor x, int64_t rows, int64_t columns, const qn_pool2d_options *options)
{
    node n;
    windows w;
    qn_tape *tape = tape_begin("avg_pool2d", &x, 1, &n);
    if (!tape || !pool_windows(tape->graph, "avg_pool2d", n, rows, columns, options, &w)) return tape_failed();
    graph *g = tape->graph;
    dtype elem = tensor_elem(g, tensor_float(g, n));
    node wide = tensor_wide(g, n), parts = window_both(g, wide, &w, 0);
    if (!parts) return tape_failed();
    unsigned set = last_two(g, parts);
    node y;
    if (options && options->without_padding)
        y = tensor_binary(g, OP_DIV, tensor_drop(g, tensor_sum(g, parts, set), set), window_counts(g, wide, &w));
    else
        y = tensor_drop(g, tensor_mean(g, parts, set), set);
    return tape_handle(tape, tensor_convert(g, y, elem));
}
