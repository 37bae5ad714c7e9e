/*
 * Convolutions of one to three axes, and their transposes. In: handles of x [N][C][..]. Out: padding, one WINDOW for
 * each axis, then a product with the weight: one DOT for all images of a group. The transpose of a convolution is the
 * gradient of one by its input, and is made as that: whatever computes gradients of convolutions fast does it too.
 * SPDX-License-Identifier: MIT
 */
#include "tensor/windows.h"

#include "tensor/grad.h"

#include <string.h>

/* ---- windows ---- */

windows windows_make(int axes, const int64_t *size, const int64_t *stride, const int64_t *padding,
                     const int64_t *dilation, bool stride_is_size)
{
    windows w = {.axes = axes};
    for (int i = 0; i < axes; i++) {
        w.size[i] = size[i];
        w.stride[i] = stride[i] ? stride[i] : stride_is_size ? size[i] : 1;
        w.padding[i] = padding[i];
        w.dilation[i] = dilation[i] ? dilation[i] : 1;
    }
    return w;
}

bool windows_fit(graph *g, const char *op, const windows *w)
{
    for (int i = 0; i < w->axes; i++)
        if (w->size[i] < 1 || w->stride[i] < 1 || w->dilation[i] < 1 || w->padding[i] < 0)
            return graph_fail(g, op,
                              "size %lld, stride %lld and dilation %lld must be at least 1, padding %lld at least 0",
                              (long long)w->size[i], (long long)w->stride[i], (long long)w->dilation[i],
                              (long long)w->padding[i]),
                   false;
    return true;
}

node windows_over(graph *g, node x, const windows *w, double fill)
{
    int first = tensor_shape(g, x)->rank - w->axes;
    int64_t before[GRAPH_RANK] = {0}, after[GRAPH_RANK] = {0};
    for (int i = 0; i < w->axes; i++) {
        before[first + i] = w->padding[i];
        after[first + i] = w->padding[i] + w->after[i];
    }
    x = tensor_pad(g, x, before, after, fill);
    for (int i = 0; i < w->axes; i++) x = graph_window(g, x, first + i, w->size[i], w->stride[i], w->dilation[i]);
    return x;
}

/* ---- convolution ---- */

static const char *const form_x[WINDOW_AXES] = {"[N][C][L]", "[N][C][H][W]", "[N][C][D][H][W]"};
static const char *const form_window[WINDOW_AXES] = {"[K]", "[KH][KW]", "[KD][KH][KW]"};

/* transposed: the weight has the input's channels first, and the bias is of the second axis and the groups. */
static bool conv_fits(graph *g, const char *op, int axes, const node *n, int64_t groups, bool transposed)
{
    const shape *s = tensor_shape(g, n[0]), *w = tensor_shape(g, n[1]);
    bool fits = s->rank == 2 + axes && w->rank == 2 + axes && groups >= 1 && s->extents[1] % groups == 0 &&
                w->extents[0] % groups == 0 && s->extents[1] == (transposed ? w->extents[0] : w->extents[1] * groups);
    if (fits && n[2]) {
        int64_t outputs = transposed ? w->extents[1] * groups : w->extents[0];
        fits = tensor_shape(g, n[2])->rank == 1 && tensor_shape(g, n[2])->extents[0] == outputs;
    }
    if (!fits)
        graph_fail(g, op, "x %s, weight %s%s%s, groups %lld: they should be %s, %s%s and [O]", tensor_words(g, n[0]),
                   tensor_words(g, n[1]), n[2] ? ", bias " : "", n[2] ? tensor_words(g, n[2]) : "", (long long)groups,
                   form_x[axes - 1], transposed ? "[C][O / groups]" : "[O][C / groups]", form_window[axes - 1]);
    return fits;
}

/* weight [G][O / G][K] times columns [G][K][N * places], K the channels of a group and the window. */
static node convolve(graph *g, node x, node weight, const windows *w, int64_t groups, product_way way)
{
    shape kernel = *tensor_shape(g, weight);
    node parts = windows_over(g, x, w, 0);
    if (!parts) return 0;
    const shape *s = tensor_shape(g, parts); /* N C places sizes */
    int axes = w->axes, order[GRAPH_RANK] = {1}, back[GRAPH_RANK] = {2, 0, 1};
    shape left = {3, {groups, kernel.extents[0] / groups, kernel.extents[1]}}, right = {3, {groups, 1, s->extents[0]}};
    shape apart = {3 + axes, {groups, left.extents[1], s->extents[0]}};
    shape whole = {2 + axes, {s->extents[0], kernel.extents[0]}};
    for (int i = 0; i < axes; i++) {
        order[1 + i] = 2 + axes + i;
        order[2 + axes + i] = 2 + i;
        back[3 + i] = 3 + i;
        left.extents[2] *= w->size[i];
        right.extents[2] *= s->extents[2 + i];
        apart.extents[3 + i] = whole.extents[2 + i] = s->extents[2 + i];
    }
    order[1 + axes] = 0;
    right.extents[1] = left.extents[2];
    parts = graph_reshape(g, graph_permute(g, parts, order), &right);
    node product = tensor_matmul(g, graph_reshape(g, weight, &left), parts, way);
    return graph_reshape(g, graph_permute(g, graph_reshape(g, product, &apart), back), &whole);
}

static node add_bias(graph *g, node y, node bias)
{
    if (!y || !bias) return y;
    shape column = {.rank = tensor_shape(g, y)->rank};
    for (int k = 0; k < column.rank; k++) column.extents[k] = k == 1 ? tensor_shape(g, bias)->extents[0] : 1;
    return tensor_binary(g, OP_ADD, y, graph_reshape(g, bias, &column));
}

/* The axes of a convolution of x; 0 with the error recorded if it has none. */
static int axes_of_image(graph *g, const char *op, node x)
{
    int axes = tensor_shape(g, x)->rank - 2;
    if (axes >= 1 && axes <= WINDOW_AXES) return axes;
    graph_fail(g, op, "x is %s: it should be [N][C] and one to three more axes", tensor_words(g, x));
    return 0;
}

/* Operands meet in one type, the windows are those of the weight. */
static bool prepare(graph *g, const char *op, node *n, int axes, const qn_conv_options *given, windows *w)
{
    int64_t groups = given->groups ? given->groups : 1;
    if (!conv_fits(g, op, axes, n, groups, !strncmp(op, "conv_transpose", 14))) return false;
    *w = windows_make(axes, tensor_shape(g, n[1])->extents + 2, given->stride, given->padding, given->dilation, false);
    if (!windows_fit(g, op, w)) return false;
    dtype elem = tensor_promote(g, op, n, 2);
    if (elem == DT_COUNT) return false;
    for (int i = 0; i < 2; i++) n[i] = tensor_convert(g, n[i], elem);
    return true;
}

static qn_tensor convolution(const char *op, int axes, qn_tensor x, qn_tensor weight, qn_tensor bias,
                             const qn_conv_options *options)
{
    node n[3] = {0};
    windows w;
    qn_tape *tape = tape_begin(op, (qn_tensor[]){x, weight, bias}, 2 + (bias.tape != NULL), n);
    if (!tape || (!axes && !(axes = axes_of_image(tape->graph, op, n[0])))) return tape_failed();
    qn_conv_options given = options ? *options : (qn_conv_options){0};
    graph *g = tape->graph;
    if (!prepare(g, op, n, axes, &given, &w)) return tape_failed();
    node y = convolve(g, n[0], n[1], &w, given.groups ? given.groups : 1, tape->products);
    return tape_handle(tape, add_bias(g, y, n[2]));
}

qn_tensor qn_conv(qn_tensor x, qn_tensor weight, qn_tensor bias, const qn_conv_options *options)
{
    return convolution("conv", 0, x, weight, bias, options);
}

qn_tensor qn_conv2d(qn_tensor x, qn_tensor weight, qn_tensor bias, const qn_conv2d_options *options)
{
    qn_conv_options all = {0};
    for (int i = 0; i < 2 && options; i++) {
        all.stride[i] = options->stride[i];
        all.padding[i] = options->padding[i];
        all.dilation[i] = options->dilation[i];
    }
    if (options) all.groups = options->groups;
    return convolution("conv2d", 2, x, weight, bias, &all);
}

/* ---- its transpose ---- */

/* The image that a convolution with these windows takes to x; its extents are those of the result. */
static bool image_of(graph *g, const char *op, node x, node weight, const windows *w, const qn_conv_options *given,
                     shape *image)
{
    *image = *tensor_shape(g, x);
    image->extents[1] = tensor_shape(g, weight)->extents[1] * (given->groups ? given->groups : 1);
    for (int i = 0; i < w->axes; i++) {
        int64_t more = given->output_padding[i], extent = image->extents[2 + i];
        if (more < 0 || more >= MAXIMUM(w->stride[i], w->dilation[i]))
            return graph_fail(g, op, "an output padding of %lld with stride %lld and dilation %lld: it must be smaller",
                              (long long)more, (long long)w->stride[i], (long long)w->dilation[i]),
                   false;
        extent = (extent - 1) * w->stride[i] - 2 * w->padding[i] + w->dilation[i] * (w->size[i] - 1) + more + 1;
        if (tensor_shape(g, x)->extents[2 + i] < 1 || extent < 1)
            return graph_fail(g, op, "nothing is left of axis %d of %s with a padding of %lld", 2 + i,
                              tensor_words(g, x), (long long)w->padding[i]),
                   false;
        image->extents[2 + i] = extent;
    }
    return true;
}

/* An output padding of whole strides and more: the convolution of that image has as many more results, and x as many zeros. */
static node with_zeros(graph *g, node x, const windows *w, const qn_conv_options *given)
{
    int64_t none[GRAPH_RANK] = {0}, after[GRAPH_RANK] = {0}, count = 0;
    for (int i = 0; i < w->axes; i++) count += after[2 + i] = given->output_padding[i] / w->stride[i];
    return count ? tensor_pad(g, x, none, after, 0) : x;
}

qn_tensor qn_conv_transpose(qn_tensor x, qn_tensor weight, qn_tensor bias, const qn_conv_options *options)
{
    const char *op = "conv_transpose";
    node n[3] = {0}, y = 0;
    windows w;
    shape image;
    int axes;
    qn_tape *tape = tape_begin(op, (qn_tensor[]){x, weight, bias}, 2 + (bias.tape != NULL), n);
    if (!tape || !(axes = axes_of_image(tape->graph, op, n[0]))) return tape_failed();
    qn_conv_options given = options ? *options : (qn_conv_options){0};
    graph *g = tape->graph;
    if (!prepare(g, op, n, axes, &given, &w) || !image_of(g, op, n[0], n[1], &w, &given, &image)) return tape_failed();
    if (!(n[0] = with_zeros(g, n[0], &w, &given))) return tape_failed();
    /* A convolution is linear: its gradient does not depend on the image, whose place a node of zeros takes. */
    node zeros = graph_full_double(g, tensor_elem(g, n[0]), &image, 0), place = graph_same(g, GRAPH_KEEP, zeros, 0);
    node forward = convolve(g, place, n[1], &w, given.groups ? given.groups : 1, tape->products);
    if (!forward || !graph_gradient_from(g, &forward, n, 1, &place, 1, &y)) return tape_failed();
    return tape_handle(tape, add_bias(g, y, n[2]));
}
