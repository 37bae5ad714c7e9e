/*
 * Images whose channels go last. In: a product of windows (a convolution) of 16 bits, or of f32 that may be rounded to tf32, for
 * Hopper's matrix units. Out: the same of a copy of the image in which the channels lie side by side, or the product as it was.
 *
 * The copy engine walks windows by itself where 128 bytes of channels of a place are neighbours in memory (schedule/fed_windows.c);
 * elsewhere warps gather them one by one, several times slower than the products. What computes the image writes it that
 * way at once where nothing else reads it. The channels are found by following the axes of the image through the movements
 * above it: the axis that K runs along and no window moves along.
 * SPDX-License-Identifier: MIT
 */
#include "fuse/cost.h"
#include "fuse/order.h"
#include "target/target.h"

#include <string.h>

enum {
    MOST_MOVES = 32,
    CHUNK_BYTES = 16,   /* of channels that are copied at once, and 128 where there are as many */
    LEAST_LINES = 64,   /* of the other operand: below, tiles are mostly empty */
    GAIN_RATE = 300000, /* multiplications a ns: of what the product takes longer where warps gather ... */
    WORDS_RATE = 80000, /* ... words: one load each */
    KEEP_NUMBER = 6000  /* tells these copies from others of the same node */
};

/* By axis of a node: the axes of the image that it runs along; walked: those that windows move along. */
typedef struct axes_walk {
    unsigned along[GRAPH_RANK], walked;
} axes_walk;

/* Axes that a reshape joins or parts have all of each other's. */
static void follow_reshape(const shape *from, const shape *to, axes_walk *w)
{
    axes_walk before = *w;
    for (int i = 0, k = 0; i < from->rank || k < to->rank;) {
        int first = k;
        int64_t left = 1, right = 1;
        unsigned along = 0;
        if (i < from->rank) {
            left = from->extents[i];
            along = before.along[i++];
        }
        if (k < to->rank) right = to->extents[k++];
        while (left != right) {
            if (left < right && i < from->rank) {
                left *= from->extents[i];
                along |= before.along[i++];
            } else if (k < to->rank) {
                right *= to->extents[k++];
            } else {
                break;
            }
        }
        for (int n = first; n < k; n++) w->along[n] = along;
    }
}

static bool follow(const graph *g, node n, axes_walk *w)
{
    const graph_node *x = graph_get(g, n);
    const shape *from = &graph_get(g, x->inputs[0])->shape;
    axes_walk before = *w;
    switch (x->code) {
    case GRAPH_PERMUTE:
        for (int k = 0; k < x->shape.rank; k++) w->along[k] = before.along[x->attr.axes[k]];
        return true;
    case GRAPH_RESHAPE: follow_reshape(from, &x->shape, w); return true;
    case GRAPH_WINDOW:
        w->walked |= before.along[x->attr.axis];
        w->along[x->shape.rank - 1] = before.along[x->attr.axis];
        return true;
    case GRAPH_PAD:
        if (x->attr.number.f != 0) return false;
        for (int k = 0; k < x->shape.rank; k++)
            if (x->shape.extents[k] != from->extents[k]) w->walked |= before.along[k];
        return true;
    case GRAPH_SLICE:
        for (int k = 0; k < x->shape.rank; k++)
            if (x->shape.extents[k] != from->extents[k]) w->walked |= before.along[k];
        return true;
    default: return false;
    }
}

static bool lies_last(const graph *g, const fuse_leaf *leaves, int leaf_count, node image, int axis)
{
    const graph_node *x = graph_get(g, image);
    if ((int)image < leaf_count && leaves[image].given) return leaves[image].strides[axis] == 1;
    return axis == x->shape.rank - 1;
}

static double work_of(const graph *g, node dot)
{
    const graph_node *x = graph_get(g, dot), *left = graph_get(g, x->inputs[0]);
    return (double)shape_count(&x->shape) * (double)left->shape.extents[left->shape.rank - 1];
}

/* The operand over a copy of its image; 0: as it is. moved: the product's elements are moved and added up, which makes windows
 * of the operand. */
static node with_channels_last(graph *g, const fuse_leaf *leaves, int leaf_count, node dot, int side, bool moved,
                               const fuse_options *options)
{
    node chain[MOST_MOVES], image = graph_get(g, dot)->inputs[side];
    int count = 0, axes[GRAPH_RANK], back[GRAPH_RANK], channels = -1;
    bool windows = moved;
    while (!((int)image < leaf_count && leaves[image].given) &&
           graph_ops[graph_get(g, image)->code].class == GRAPH_CLASS_MOVE && graph_get(g, image)->input_count == 1) {
        if (count == MOST_MOVES) return 0;
        windows |= graph_get(g, image)->code == GRAPH_WINDOW;
        chain[count++] = image;
        image = graph_get(g, image)->inputs[0];
    }
    const graph_node x = *graph_get(g, image), of = *graph_get(g, dot);
    int rank = x.shape.rank;
    axes_walk w = {0};
    for (int k = 0; k < rank; k++) w.along[k] = 1u << k;
    for (int i = count - 1; i >= 0; i--)
        if (!follow(g, chain[i], &w)) return 0;
    const shape *operand = &graph_get(g, of.inputs[side])->shape;
    int k_axis = side ? operand->rank - 2 : operand->rank - 1;
    int64_t lines = of.shape.extents[of.shape.rank - (side ? 2 : 1)], depth = operand->extents[k_axis];
    for (int k = 0; k < rank; k++) {
        if (!(w.along[k_axis] & ~w.walked & 1u << k) || x.shape.extents[k] == 1) continue;
        if (channels >= 0) return 0;
        channels = k;
    }
    int64_t chunk = CHUNK_BYTES / dtypes[x.elem].size_bytes;
    if (!windows || channels < 0 || x.shape.extents[channels] % chunk || depth % chunk || lines < LEAST_LINES ||
        lies_last(g, leaves, leaf_count, image, channels))
        return 0;
    double copy_ns = cost_of_bytes(options, 2.0 * (double)graph_size_bytes(g, image), 0, 1).time_ns;
    if (work_of(g, dot) / (x.elem == DT_F32 ? WORDS_RATE : GAIN_RATE) < copy_ns) return 0;
    for (int k = 0, n = 0; k < rank; k++)
        if (k != channels) axes[n++] = k;
    axes[rank - 1] = channels;
    for (int k = 0; k < rank; k++) back[axes[k]] = k;
    node made = graph_permute(g, graph_same(g, GRAPH_KEEP, graph_permute(g, image, axes), KEEP_NUMBER), back);
    for (int i = count - 1; i >= 0; i--) made = graph_again(g, chain[i], &made);
    return made;
}

static bool is_wanted(const graph *g, node n, const fuse_options *options)
{
    const graph_node *dot = graph_get(g, n);
    dtype elem = graph_get(g, dot->inputs[0])->elem;
    return dot->input_count == 2 && options->gpu && options->arch == TARGET_HOPPER && options->mode == FUSE_FUSED &&
           (elem == DT_BF16 || elem == DT_F16 || (elem == DT_F32 && dot->attr.index == PRODUCT_TF32));
}

/* The nodes from a sum down to a product whose moved elements it adds up, the product last; 0: it is no such sum. */
static int find_moved(const graph *g, node n, node *chain)
{
    int count = 0;
    bool windows = false;
    for (;; n = graph_get(g, n)->inputs[0]) {
        const graph_node *x = graph_get(g, n);
        bool sum = x->code == GRAPH_REDUCE && x->attr.fold == FOLD_SUM;
        bool move = graph_ops[x->code].class == GRAPH_CLASS_MOVE && x->code != GRAPH_CONCAT;
        if (count == MOST_MOVES) return 0;
        chain[count++] = n;
        if (x->code == GRAPH_DOT) return windows ? count : 0;
        if (!sum && !move) return 0;
        windows |= x->code == GRAPH_WINDOW;
    }
}

node fuse_channels_prepare(graph *g, const fuse_leaf *leaves, int leaf_count, node n, const fuse_options *options)
{
    node chain[MOST_MOVES], made = 0;
    graph_code code = graph_get(g, n)->code;
    int count = code == GRAPH_REDUCE ? find_moved(g, n, chain) : 1;
    if (code == GRAPH_DOT) chain[0] = n;
    if ((code != GRAPH_DOT && code != GRAPH_REDUCE) || !count || !is_wanted(g, chain[count - 1], options)) return n;
    const graph_node dot = *graph_get(g, chain[count - 1]);
    int rank = dot.shape.rank;
    bool moved = code == GRAPH_REDUCE;
    for (int side = 0; side < 2 && !made; side++) {
        node inputs[2] = {dot.inputs[0], dot.inputs[1]};
        if (moved && dot.shape.extents[rank - 2 + side] <= dot.shape.extents[rank - 1 - side]) continue; /* weights */
        inputs[side] = with_channels_last(g, leaves, leaf_count, chain[count - 1], side, moved, options);
        made = inputs[side] ? graph_again(g, chain[count - 1], inputs) : 0;
    }
    for (int i = count - 2; i >= 0 && made; i--) made = graph_again(g, chain[i], &made);
    return made ? made : n;
}
