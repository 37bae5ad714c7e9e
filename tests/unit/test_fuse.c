/*
 * Fusion: what becomes one kernel, however it is spelled, and that every plan computes what the graph means, in the
 * checking interpreter, fused, strict and eager.
 * SPDX-License-Identifier: MIT
 */
#include "../fuse_run.h"

typedef struct bench {
    arena *memory;
    graph *g;
    fuse_options options;
} bench;

static bench bench_new(void)
{
    bench b = {.memory = arena_new(), .options = {.units = 2}};
    b.g = graph_new(b.memory);
    return b;
}

static node leaf(bench *b, dtype elem, int rank, int64_t e0, int64_t e1, int64_t e2)
{
    return kernel_leaf(b->memory, b->g, elem, (shape){rank, {e0, e1, e2}}, -1, 2);
}

static const shape *shape_of(bench *b, node n)
{
    return &graph_get(b->g, n)->shape;
}

static node like(bench *b, node x, double value)
{
    shape s = *shape_of(b, x);
    return graph_full_double(b->g, graph_get(b->g, x)->elem, &s, value);
}

static node widen(bench *b, node x, node to)
{
    shape s = *shape_of(b, to);
    shape from = *shape_of(b, x);
    if (from.rank < s.rank) {
        shape ones = {s.rank, {0}};
        for (int k = 0; k < s.rank; k++)
            ones.extents[k] = k < s.rank - from.rank ? 1 : from.extents[k - (s.rank - from.rank)];
        x = graph_reshape(b->g, x, &ones);
    }
    return graph_expand(b->g, x, &s);
}

#define ADD(x, y) graph_binary(b->g, OP_ADD, x, y)
#define SUB(x, y) graph_binary(b->g, OP_SUB, x, y)
#define MUL(x, y) graph_binary(b->g, OP_MUL, x, y)
#define DIV(x, y) graph_binary(b->g, OP_DIV, x, y)
#define SUM(x, axes) graph_reduce(b->g, FOLD_SUM, x, axes)
#define MAX(x, axes) graph_reduce(b->g, FOLD_MAX, x, axes)
#define DO(op, x) graph_unary(b->g, OP_##op, x)

static double tolerance_of(const bench *b, const node *wanted, int count)
{
    double t = 1e-4;
    for (int i = 0; i < count; i++)
        if (dtypes[graph_get(b->g, wanted[i])->elem].size_bytes == 2) t = 0.03;
    return t;
}

/* Kernels when fused, after the same was run strictly, eagerly, and as on a GPU. */
static int kernels(bench *b, const node *wanted, int count)
{
    double tolerance = tolerance_of(b, wanted, count);
    for (int i = 0; i < count; i++)
        if (!wanted[i]) {
            printf("%s\n", b->g->error.message);
            return -2;
        }
    int nodes = b->g->node_count;
    b->options.mode = FUSE_EAGER;
    EXPECT(fuse_run_expect(b->memory, b->g, wanted, count, &b->options, tolerance) >= 0);
    graph_truncate(b->g, nodes);
    b->options.mode = FUSE_STRICT;
    EXPECT(fuse_run_expect(b->memory, b->g, wanted, count, &b->options, tolerance) >= 0);
    graph_truncate(b->g, nodes);
    b->options.mode = FUSE_FUSED;
    b->options.gpu = true;
    int gpu = fuse_run_expect(b->memory, b->g, wanted, count, &b->options, tolerance);
    graph_truncate(b->g, nodes);
    b->options.gpu = false;
    int cpu = fuse_run_expect(b->memory, b->g, wanted, count, &b->options, tolerance);
    graph_truncate(b->g, nodes);
    EXPECT(cpu == gpu);
    return cpu;
}

static node gelu(bench *b, node x)
{
    node cube = MUL(MUL(x, x), x);
    node t = DO(TANH, MUL(ADD(x, MUL(cube, like(b, x, 0.044715))), like(b, x, 0.7978845608)));
    return MUL(MUL(x, like(b, x, 0.5)), ADD(t, like(b, x, 1)));
}

static node softmax(bench *b, node x, unsigned axes)
{
    node e = DO(EXP, SUB(x, widen(b, MAX(x, axes), x)));
    return DIV(e, widen(b, SUM(e, axes), e));
}

static node mean(bench *b, node x, unsigned axes)
{
    node s = SUM(x, axes);
    return DIV(s, like(b, s, (double)shape_count(shape_of(b, x)) / (double)shape_count(shape_of(b, s))));
}

static node layer_norm(bench *b, node x, node gain, node bias, unsigned axes)
{
    node d = SUB(x, widen(b, mean(b, x, axes), x));
    node variance = mean(b, MUL(d, d), axes);
    node scale = DO(RSQRT, ADD(variance, like(b, variance, 1e-5)));
    return ADD(MUL(MUL(d, widen(b, scale, d)), widen(b, gain, d)), widen(b, bias, d));
}

TEST(pointwise)
{
    bench bed = bench_new(), *b = &bed;
    node x = leaf(b, DT_F32, 2, 5, 7, 0);
    node y = gelu(b, x);
    EXPECT(kernels(b, &y, 1) == 1);
    node bias = leaf(b, DT_F32, 1, 7, 0, 0), m = leaf(b, DT_F32, 2, 5, 7, 0);
    node z = DO(RELU, ADD(ADD(x, widen(b, bias, x)), MUL(m, like(b, m, 0.3))));
    EXPECT(kernels(b, &z, 1) == 1);
    EXPECT(kernels(b, (node[]){y, z, ADD(y, z)}, 3) == 1);
    node h = leaf(b, DT_BF16, 2, 40, 33, 0), w = ADD(gelu(b, h), h);
    EXPECT(kernels(b, &w, 1) == 1);
    arena_free(b->memory);
}

TEST(moving)
{
    bench bed = bench_new(), *b = &bed;
    node x = leaf(b, DT_F32, 3, 4, 6, 10);
    node t = graph_permute(b->g, x, (int[]){2, 0, 1});
    node y = DO(EXP, t);
    EXPECT(kernels(b, &y, 1) == 1);
    node flat = graph_reshape(b->g, ADD(t, t), &(shape){2, {20, 12}});
    node z = MUL(flat, flat);
    EXPECT(kernels(b, &z, 1) == 1);
    node mixed = graph_reshape(b->g, t, &(shape){2, {16, 15}}), w = ADD(mixed, mixed);
    EXPECT(kernels(b, &w, 1) == 1);
    node s = graph_slice(b->g, x, (int64_t[]){3, 1, 9}, (int64_t[]){-1, 2, -3}, &(shape){3, {4, 3, 4}});
    node v = DO(NEG, s);
    EXPECT(kernels(b, &v, 1) == 1);
    node p = graph_pad(b->g, x, (int64_t[]){1, -1, 2}, (int64_t[]){1, 1, 3}, &(shape){3, {6, 6, 40}}, (number){.f = 7});
    EXPECT(kernels(b, &p, 1) == 1);
    node q = DO(EXP, p);
    EXPECT(kernels(b, &q, 1) == 1);
    node c = graph_concat(b->g, (node[]){x, DO(NEG, x), x}, 3, 1), d = ADD(c, c);
    EXPECT(kernels(b, &d, 1) == 1);
    node win = graph_window(b->g, x, 2, 3, 2, 2), u = SUM(win, 8);
    EXPECT(kernels(b, &u, 1) == 1);
    node i = graph_iota(b->g, 10),
         r = ADD(graph_expand(b->g, graph_reshape(b->g, i, &(shape){2, {1, 10}}), &(shape){2, {3, 10}}),
                 graph_full_double(b->g, DT_I64, &(shape){2, {3, 10}}, 5));
    EXPECT(kernels(b, &r, 1) == 1);
    arena_free(b->memory);
}

/* More parts than one kernel takes. */
TEST(many_parts)
{
    bench bed = bench_new(), *b = &bed;
    node parts[40];
    for (int i = 0; i < 40; i++) parts[i] = DO(EXP, leaf(b, DT_F32, 3, 1 + i % 2, 3, 5));
    node c = graph_concat(b->g, parts, 40, 0), y = ADD(c, c);
    EXPECT(kernels(b, &y, 1) <= 16);
    arena_free(b->memory);
}

TEST(indexing)
{
    bench bed = bench_new(), *b = &bed;
    node table = leaf(b, DT_F32, 2, 11, 6, 0);
    node index = kernel_leaf(b->memory, b->g, DT_I64, (shape){2, {3, 4}}, 0, 11);
    node rows = graph_take(b->g, table, index, 0), y = MUL(rows, rows);
    EXPECT(kernels(b, &y, 1) == 1);
    node bag = SUM(rows, 2);
    EXPECT(kernels(b, &bag, 1) == 1);
    node columns = graph_take(b->g, table, kernel_leaf(b->memory, b->g, DT_I32, (shape){1, {5}}, 0, 6), 1),
         z = DO(EXP, columns);
    EXPECT(kernels(b, &z, 1) == 1);
    node places = kernel_leaf(b->memory, b->g, DT_I64, (shape){2, {11, 2}}, 0, 6),
         got = graph_gather(b->g, table, places, 1);
    node w = ADD(got, got);
    b->options.check_indices = true;
    EXPECT(kernels(b, &w, 1) == 1);
    arena_free(b->memory);
}

TEST(rows)
{
    bench bed = bench_new(), *b = &bed;
    node x = leaf(b, DT_F32, 2, 9, 37, 0);
    node y = softmax(b, x, 2);
    EXPECT(kernels(b, &y, 1) == 1);
    node residual = ADD(softmax(b, ADD(x, x), 2), x);
    EXPECT(kernels(b, &residual, 1) == 1);
    node top = MAX(x, 2), moved = SUB(x, widen(b, top, x));
    node logs = SUB(moved, widen(b, DO(LOG, SUM(DO(EXP, moved), 2)), x));
    EXPECT(kernels(b, &logs, 1) == 1);
    node gain = leaf(b, DT_F32, 1, 37, 0, 0), bias = leaf(b, DT_F32, 1, 37, 0, 0);
    node n = layer_norm(b, x, gain, bias, 2);
    EXPECT(kernels(b, &n, 1) == 1);
    node n2 = ADD(layer_norm(b, ADD(x, y), gain, bias, 2), x);
    EXPECT(kernels(b, &n2, 1) == 1);
    node both[] = {SUM(x, 2), MAX(MUL(x, x), 2), y};
    EXPECT(kernels(b, both, 3) == 1);
    node cube = leaf(b, DT_BF16, 3, 3, 5, 8), s3 = softmax(b, cube, 4), s2 = softmax(b, cube, 6);
    EXPECT(kernels(b, &s3, 1) == 1);
    EXPECT(kernels(b, &s2, 1) == 1);
    node middle = softmax(b, leaf(b, DT_F32, 3, 3, 9, 8), 2);
    EXPECT(kernels(b, &middle, 1) == 1);
    node top_axis = softmax(b, ADD(x, x), 1), image = leaf(b, DT_F32, 3, 5, 12, 70);
    EXPECT(kernels(b, &top_axis, 1) == 1);
    node pooled = DO(RELU, MAX(graph_window(b->g, graph_window(b->g, image, 1, 2, 2, 1), 2, 3, 2, 1), 24));
    EXPECT(kernels(b, &pooled, 1) == 1);
    node first = graph_reduce(b->g, FOLD_ARGMAX, x, 2);
    EXPECT(kernels(b, &first, 1) == 1);
    node batch = mean(b, leaf(b, DT_F32, 3, 6, 4, 10), 5);
    EXPECT(kernels(b, &batch, 1) == 1);
    arena_free(b->memory);
}

/* Loss and gradient of rows with one target each. */
static void cross_entropy(bench *b, node x, node target, node *loss, node *gradient)
{
    const shape s = *shape_of(b, x);
    node m = MAX(x, 2), e = DO(EXP, SUB(x, widen(b, m, x))), z = SUM(e, 2);
    node column = graph_reshape(b->g, target, &(shape){2, {s.extents[0], 1}});
    node at = graph_gather(b->g, x, column, 1);
    node each = SUB(ADD(DO(LOG, z), m), at);
    *loss = mean(b, each, 3);
    node positions =
        graph_expand(b->g, graph_reshape(b->g, graph_iota(b->g, s.extents[1]), &(shape){2, {1, s.extents[1]}}), &s);
    node hit = graph_convert(b->g, graph_binary(b->g, OP_EQ, positions, graph_expand(b->g, column, &s)), DT_F32);
    node d = SUB(DIV(e, widen(b, z, e)), hit);
    *gradient = DIV(d, like(b, d, (double)s.extents[0]));
}

TEST(losses)
{
    bench bed = bench_new(), *b = &bed;
    node x = leaf(b, DT_F32, 2, 12, 30, 0), target = kernel_leaf(b->memory, b->g, DT_I64, (shape){1, {12}}, 0, 30);
    node loss, gradient;
    cross_entropy(b, x, target, &loss, &gradient);
    EXPECT(kernels(b, &loss, 1) == 1);
    EXPECT(kernels(b, (node[]){loss, gradient}, 2) == 1);
    node y = leaf(b, DT_F32, 2, 12, 30, 0), d = SUB(x, y), mse = mean(b, MUL(d, d), 3);
    node slope = MUL(d, like(b, d, 2.0 / 360));
    EXPECT(kernels(b, &mse, 1) == 1);
    EXPECT(kernels(b, (node[]){mse, slope}, 2) == 1);
    arena_free(b->memory);
}

/* Rows whose target is -1 do not count: the mean's divisor is a sum over all rows that the gradient needs. It stays a
 * small kernel of its own; rows and their gradients are still one. */
TEST(ignored_rows)
{
    bench bed = bench_new(), *b = &bed;
    node x = leaf(b, DT_F32, 2, 12, 30, 0), target = kernel_leaf(b->memory, b->g, DT_I64, (shape){2, {12, 1}}, -1, 30);
    shape wide = *shape_of(b, x);
    node counts = graph_convert(b->g, graph_binary(b->g, OP_GE, target, like(b, target, 0)), DT_F32),
         n = SUM(counts, 3);
    node m = MAX(x, 2), e = DO(EXP, SUB(x, widen(b, m, x))), z = SUM(e, 2);
    node loss = DIV(SUM(MUL(ADD(DO(LOG, z), m), counts), 3), n);
    node scale = DIV(counts, graph_expand(b->g, n, shape_of(b, counts)));
    node gradient = MUL(DIV(e, widen(b, z, e)), graph_expand(b->g, scale, &wide));
    EXPECT(kernels(b, (node[]){loss, gradient}, 2) == 2);
    b->options.mode = FUSE_FUSED;
    fuse_run r = fuse_run_plan(b->memory, b->g, (node[]){loss, gradient}, 2, NULL, 0, &b->options);
    for (int i = 0; i < r.plan->boundary_count; i++)
        EXPECT(r.plan->boundaries[i].consumer < 0 || r.plan->boundaries[i].bytes < 100);
    arena_free(b->memory);
}

TEST(columns)
{
    bench bed = bench_new(), *b = &bed;
    node x = leaf(b, DT_F32, 2, 45, 19, 0), y = leaf(b, DT_F32, 2, 45, 19, 0);
    node s = SUM(x, 1);
    EXPECT(kernels(b, &s, 1) == 1);
    node two[] = {SUM(MUL(x, y), 1), SUM(y, 1), MUL(x, y)};
    EXPECT(kernels(b, two, 3) == 1);
    node all = SUM(x, 3), top = MAX(x, 3);
    EXPECT(kernels(b, (node[]){all, top}, 2) == 1);
    node updated = SUB(leaf(b, DT_F32, 2, 1, 19, 0), MUL(s, like(b, s, 0.1)));
    EXPECT(kernels(b, &updated, 1) == 1);
    node cube = leaf(b, DT_F32, 3, 7, 6, 5), m = SUM(cube, 2), o = SUM(cube, 3);
    EXPECT(kernels(b, &m, 1) == 1);
    EXPECT(kernels(b, &o, 1) == 1);
    arena_free(b->memory);
}

/* Gradients of x, gain and bias from that of the result. */
/* So many rows that a GPU's parts are gathered before they are joined, and columns that end inside a block: what lies beyond
 * them reached the folds. */
TEST(gathered_parts)
{
    bench bed = bench_new(), *b = &bed;
    b->options.units = 132;
    node x = leaf(b, DT_F32, 2, 4500, 20, 0), mean = MUL(SUM(x, 1), like(b, SUM(x, 1), 1.0 / 4500));
    node less = SUB(x, widen(b, mean, x)), power = DO(EXP, SUB(x, widen(b, MAX(x, 1), x)));
    node wanted[] = {SUM(x, 1), MAX(x, 1), SUM(MUL(less, less), 1), SUM(power, 1)};
    b->options.gpu = true;
    for (int i = 0; i < 4; i++) {
        int nodes = b->g->node_count;
        EXPECT(fuse_run_expect(b->memory, b->g, &wanted[i], 1, &b->options, 1e-4) == 1);
        graph_truncate(b->g, nodes);
    }
    arena_free(b->memory);
}

TEST(layer_norm_backward)
{
    bench bed = bench_new(), *b = &bed;
    node x = leaf(b, DT_F32, 2, 23, 17, 0), dy = leaf(b, DT_F32, 2, 23, 17, 0), gain = leaf(b, DT_F32, 1, 17, 0, 0);
    node d = SUB(x, widen(b, mean(b, x, 2), x)), variance = mean(b, MUL(d, d), 2);
    node scale = DO(RSQRT, ADD(variance, like(b, variance, 1e-5)));
    node unit = MUL(d, widen(b, scale, d)), g = MUL(dy, widen(b, gain, dy));
    node inner = SUB(SUB(g, widen(b, mean(b, g, 2), g)), MUL(unit, widen(b, mean(b, MUL(g, unit), 2), unit)));
    node results[] = {MUL(inner, widen(b, scale, inner)), SUM(MUL(dy, unit), 1), SUM(dy, 1)};
    int count = kernels(b, results, 3);
    EXPECT(count >= 1 && count <= 2);
    arena_free(b->memory);
}

TEST(empty)
{
    bench bed = bench_new(), *b = &bed;
    node x = leaf(b, DT_F32, 2, 0, 5, 0), y = leaf(b, DT_F32, 2, 3, 0, 0);
    node wanted[] = {DO(EXP, x), SUM(x, 1), SUM(y, 2), softmax(b, x, 2)};
    for (int i = 0; i < 4; i++) EXPECT(kernels(b, &wanted[i], 1) >= 0);
    node z = graph_full_double(b->g, DT_F32, &(shape){2, {2, 3}}, 4), i = graph_iota(b->g, 4);
    EXPECT(kernels(b, &z, 1) == 1);
    EXPECT(kernels(b, &i, 1) == 1);
    node scalar = leaf(b, DT_F32, 0, 0, 0, 0), twice = ADD(scalar, scalar);
    EXPECT(kernels(b, &twice, 1) == 1);
    arena_free(b->memory);
}

TEST_MAIN(CASE(pointwise), CASE(moving), CASE(many_parts), CASE(indexing), CASE(rows), CASE(losses), CASE(ignored_rows),
          CASE(columns), CASE(gathered_parts), CASE(layer_norm_backward), CASE(empty))
