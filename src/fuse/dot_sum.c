/*
 * Products that are added up. In: an addition, above two products that nothing else reads. Out: the same with one product of
 * two pairs of operands, x w + u v, whose kernel goes on along the second depth with the sums of the first: what one of the
 * products would write and the addition read again stays out of memory. A layer with a low-rank adapter, a recurrent cell
 * and the gradient of what two layers read are of this kind.
 *
 * Between product and addition may stand other additions, reshapes (they keep the order of elements) and multiplications by
 * a number, which goes into an operand. Sums get another order of additions, so only fused plans do this.
 * SPDX-License-Identifier: MIT
 */
#include "fuse/dot_sum.h"

#include "fuse/dot.h"
#include "ir/graph_build.h"

#define DEEPEST 8 /* nodes between the addition and a product */

typedef struct sum_path {
    node nodes[DEEPEST]; /* from the addition's input down to the product */
    int inputs[DEEPEST]; /* of each the input that is the next one */
    int count;           /* the last is the product */
    double factor;       /* of numbers on the way */
} sum_path;

static bool is_number(const graph *g, node n, double *number)
{
    const graph_node *x = graph_get(g, n);
    while (x->code == GRAPH_EXPAND || x->code == GRAPH_RESHAPE) x = graph_get(g, x->inputs[0]);
    if (x->code != GRAPH_FULL || !dtype_is_float(x->elem)) return false;
    *number = x->attr.number.f;
    return true;
}

/* An operand that a product reads where it lies: movements alone stand above what is in memory. */
static bool is_plain(const graph *g, node n)
{
    for (;;) {
        const graph_node *x = graph_get(g, n);
        if (graph_ops[x->code].class != GRAPH_CLASS_MOVE) return x->code != GRAPH_FULL;
        if (x->input_count != 1 || x->code == GRAPH_PAD) return false;
        n = x->inputs[0];
    }
}

static dot_sizes sizes_of(const graph *g, const graph_node *dot)
{
    const shape *left = &graph_get(g, dot->inputs[0])->shape;
    int rank = dot->shape.rank;
    dot_sizes size = {.rows = dot->shape.extents[rank - 2],
                      .columns = dot->shape.extents[rank - 1],
                      .depth = left->extents[rank - 1],
                      .products = 1};
    for (int i = 0; i < rank - 2; i++) size.products *= dot->shape.extents[i];
    return size;
}

/* One whose depth is not split among programs, and whose operands bulk copies may walk where they are: those of f32 are laid
 * out anew first. */
static bool may_go_on(const graph *g, const graph_node *dot, const fuse_options *options)
{
    dtype elem = graph_get(g, dot->inputs[0])->elem;
    dot_sizes size = sizes_of(g, dot);
    if (dot->input_count != 2 || (elem != DT_F16 && elem != DT_BF16)) return false;
    if (size.rows < 2 || size.columns < 2 || size.depth < 2 || size.depth % 8 || !size.products) return false;
    dot_choose_way(options, elem, (product_way)dot->attr.index, &size);
    const dot_tiles tiles = dot_choose_tiles(options, elem, &size);
    return dot_choose_parts(options, &tiles, &size) == 1 && is_plain(g, dot->inputs[0]) && is_plain(g, dot->inputs[1]);
}

/* The way from n to a product; false: there is none that nothing else hangs on. */
static bool find_path(const sum_search *s, node n, int depth, sum_path *path)
{
    const graph_node *x = graph_get(s->g, n);
    double number;
    if (depth == DEEPEST || s->uses[n] != 1 || s->kept[n]) return false;
    path->nodes[depth] = n;
    path->count = depth + 1;
    if (x->code == GRAPH_DOT) return may_go_on(s->g, x, s->options);
    path->inputs[depth] = 0;
    if (x->code == GRAPH_RESHAPE) return find_path(s, x->inputs[0], depth + 1, path);
    if (x->code != GRAPH_MAP || (x->attr.map != OP_ADD && x->attr.map != OP_MUL)) return false;
    for (int i = 0; i < 2; i++) {
        if (x->attr.map == OP_MUL && !is_number(s->g, x->inputs[1 - i], &number)) continue;
        double factor = path->factor;
        if (x->attr.map == OP_MUL) path->factor *= number;
        path->inputs[depth] = i;
        if (find_path(s, x->inputs[i], depth + 1, path)) return true;
        path->factor = factor;
    }
    return false;
}

/* What stands at a place of the path with `replaced` (0: nothing) in place of the product; 0: nothing is left there. */
static node rebuild(const sum_search *s, const sum_path *path, int at, node replaced)
{
    graph *g = s->g;
    if (at + 1 == path->count) return replaced;
    const graph_node x = *graph_get(g, path->nodes[at]);
    node below = rebuild(s, path, at + 1, replaced);
    if (!below && x.code == GRAPH_MAP && x.attr.map == OP_ADD) return s->now[x.inputs[1 - path->inputs[at]]];
    if (!below) return 0;
    node inputs[2] = {below, 0};
    if (x.input_count == 2) {
        inputs[path->inputs[at]] = below;
        inputs[1 - path->inputs[at]] = s->now[x.inputs[1 - path->inputs[at]]];
    }
    return graph_again(g, path->nodes[at], inputs);
}

static node scaled(graph *g, node x, double factor)
{
    const graph_node of = *graph_get(g, x);
    if (factor == 1) return x;
    return graph_binary(g, OP_MUL, x, graph_full(g, of.elem, &of.shape, (number){.f = factor}));
}

/* A number goes into the operand that is computed anyway, else into the smaller one. */
static void scale_one(const sum_search *s, node operands[2], double factor)
{
    bool computed[2];
    for (int i = 0; i < 2; i++) {
        graph_code code = graph_get(s->g, operands[i])->code;
        computed[i] = code == GRAPH_DOT || code == GRAPH_MAP;
    }
    int64_t left = graph_size_bytes(s->g, operands[0]), right = graph_size_bytes(s->g, operands[1]);
    int side = computed[0] != computed[1] ? computed[1] : left > right;
    operands[side] = scaled(s->g, operands[side], factor);
}

node fuse_sum_prepare(const sum_search *s, node n)
{
    graph *g = s->g;
    const graph_node x = *graph_get(g, n);
    if (x.code != GRAPH_MAP || x.attr.map != OP_ADD || !dtype_is_float(x.elem)) return 0;
    sum_path paths[2] = {{.factor = 1}, {.factor = 1}};
    for (int i = 0; i < 2; i++)
        if (!find_path(s, x.inputs[i], 0, &paths[i])) return 0;
    int64_t depths[2];
    graph_node dots[2];
    for (int i = 0; i < 2; i++) {
        dots[i] = *graph_get(g, paths[i].nodes[paths[i].count - 1]);
        depths[i] = sizes_of(g, &dots[i]).depth;
    }
    int first = depths[1] > depths[0], second = 1 - first; /* the deeper one decides over tiles */
    if (paths[first].factor != 1 || dots[0].elem != dots[1].elem || dots[0].attr.index != dots[1].attr.index ||
        !shape_same(&dots[0].shape, &dots[1].shape) ||
        graph_get(g, dots[0].inputs[0])->elem != graph_get(g, dots[1].inputs[0])->elem)
        return 0;
    node operands[4];
    for (int i = 0; i < 2; i++) {
        operands[i] = s->now[dots[first].inputs[i]];
        operands[2 + i] = s->now[dots[second].inputs[i]];
    }
    /* What the two operands need must not need the sum: paths are of single uses, so it cannot. */
    scale_one(s, operands + 2, paths[second].factor);
    graph_node both = *graph_get(g, s->now[paths[first].nodes[paths[first].count - 1]]);
    if (both.code != GRAPH_DOT || both.input_count != 2) return 0;
    both.inputs = operands;
    both.input_count = 4;
    node sums = rebuild(s, &paths[first], 0, graph_intern(g, &both)), rest = rebuild(s, &paths[second], 0, 0);
    if (!rest) return graph_get(g, sums)->elem == x.elem ? sums : 0;
    node inputs[2] = {sums, rest};
    return graph_again(g, n, inputs);
}
