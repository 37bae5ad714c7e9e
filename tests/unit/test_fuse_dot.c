/*
 * Kernels of products: shapes, element types, transposed and strided operands, epilogues with several results, folds over
 * K beside the product, convolutions over windows; each runs in the checking interpreter and agrees with its graph.
 * SPDX-License-Identifier: MIT
 */
#include "../fuse_kernel.h"
#include "fuse/dot.h"
#include "fuse/order.h"

typedef struct bed {
    arena *memory;
    graph *g;
    node nodes[64], writes[8];
    int node_count, write_count;
    fuse_options options;
    const char *why;
} bed;

static bed bed_new(void)
{
    bed b = {.memory = arena_new()};
    b.g = graph_new(b.memory);
    return b;
}

static node leaf(bed *b, dtype elem, shape s)
{
    return kernel_leaf(b->memory, b->g, elem, s, -1, 1);
}

static node compute(bed *b, node n)
{
    if (!n) printf("%s\n", b->g->error.message);
    EXPECT(n);
    return b->nodes[b->node_count++] = n;
}

static node binary(bed *b, op_code code, node x, node y)
{
    return compute(b, graph_binary(b->g, code, x, y));
}

static node unary(bed *b, op_code code, node x)
{
    return compute(b, graph_unary(b->g, code, x));
}

static void write(bed *b, node n)
{
    b->writes[b->write_count++] = n;
}

/* Everything is in memory but the group and views. */
static bool build(bed *b, fuse_kernel *out)
{
    graph *g = b->g;
    bool *in_memory = ARENA_ARRAY(b->memory, bool, g->node_count);
    fuse_leaf *leaves = ARENA_ARRAY(b->memory, fuse_leaf, g->node_count);
    group grp = {GROUP_DOT, 0, b->nodes, b->node_count, b->writes, b->write_count};
    for (int n = 1; n < g->node_count; n++) {
        const graph_node *x = graph_get(g, (node)n);
        in_memory[n] = x->code == GRAPH_LEAF;
        leaves[n].given = x->code == GRAPH_LEAF;
        leaves[n].offset = x->attr.offset;
        memcpy(leaves[n].strides, x->attr.strides, sizeof(x->attr.strides));
    }
    for (int i = 0; i < b->node_count && !grp.anchor; i++)
        if (graph_get(g, b->nodes[i])->code == GRAPH_DOT) grp.anchor = b->nodes[i];
    builder maker = {.memory = b->memory, .g = g, .in_memory = in_memory, .leaves = leaves, .options = &b->options};
    qn_error error = {0};
    bool could = dot_build(&maker, &grp, NULL, &error);
    b->why = maker.why;
    if (!out) return could;
    *out = (fuse_kernel){.writes = b->writes, .write_count = b->write_count};
    bool good = could && dot_build(&maker, &grp, out, &error);
    if (!good) printf("%s; %s\n", maker.why ? maker.why : "", error.message);
    return good;
}

/* Builds, runs, compares all that is written. */
static void expect_kernel(bed *b, double tolerance)
{
    fuse_kernel k;
    bool good = build(b, &k);
    EXPECT(good);
    if (good) {
        void **data = ARENA_ARRAY(b->memory, void *, b->g->node_count);
        kernel_allocate(b->memory, b->g, &k, data);
        good = kernel_run(b->memory, b->g, &k, data);
        EXPECT(good);
        for (int i = 0; good && i < k.write_count; i++)
            kernel_expect(b->memory, b->g, k.writes[i], data[k.writes[i]], tolerance);
    }
    arena_free(b->memory);
}

/* The same on devices that compile. */
static void expect_on_devices(qn_context *context, bed *b, double tolerance)
{
    fuse_kernel k;
    static const char *const devices[] = {"cpu", "emu"};
    for (int d = 0; d < COUNT(devices); d++) {
        b->options.gpu = d;
        if (!build(b, &k)) {
            EXPECT(false);
            continue;
        }
        void **data = ARENA_ARRAY(b->memory, void *, b->g->node_count);
        kernel_allocate(b->memory, b->g, &k, data);
        EXPECT(kernel_run_on(context, devices[d], b->g, &k, data));
        for (int i = 0; i < k.write_count; i++)
            kernel_expect(b->memory, b->g, k.writes[i], data[k.writes[i]], tolerance);
    }
    arena_free(b->memory);
}

static node turned(bed *b, node x)
{
    int rank = graph_get(b->g, x)->shape.rank, axes[GRAPH_RANK];
    for (int k = 0; k < rank; k++) axes[k] = k;
    axes[rank - 1] = rank - 2;
    axes[rank - 2] = rank - 1;
    return graph_permute(b->g, x, axes);
}

TEST(shapes_and_types)
{
    static const int sizes[][4] = {{3, 5, 7, 0},   {64, 64, 16, 0}, {70, 130, 300, 0}, {2, 2, 2, 3},
                                   {17, 33, 0, 2}, {0, 4, 4, 0},    {65, 3, 40, 2}};
    static const dtype types[] = {DT_F32, DT_BF16, DT_F16, DT_F64, DT_I8};
    for (int s = 0; s < COUNT(sizes); s++)
        for (int t = 0; t < COUNT(types); t++) {
            if (s == 2 && t) continue;
            bed b = bed_new();
            b.options.gpu = (s + t) & 1;
            b.options.mode = t % 3 == 0 ? FUSE_FUSED : FUSE_STRICT;
            int m = sizes[s][0], n = sizes[s][1], k = sizes[s][2], z = sizes[s][3];
            shape a = z ? (shape){3, {z, m, k}} : (shape){2, {m, k}},
                  c = z ? (shape){3, {z, k, n}} : (shape){2, {k, n}};
            if (t & 1) { /* transposed in memory */
                a = z ? (shape){3, {z, k, m}} : (shape){2, {k, m}};
                c = z ? (shape){3, {z, n, k}} : (shape){2, {n, k}};
            }
            node left = leaf(&b, types[t], a), right = leaf(&b, types[t], c);
            if (t & 1) left = turned(&b, left), right = turned(&b, right);
            dtype elem = types[t] == DT_I8 ? DT_I32 : s & 1 && types[t] == DT_BF16 ? DT_F32 : types[t];
            write(&b, compute(&b, graph_dot(b.g, left, right, elem, s & 1)));
            expect_kernel(&b, types[t] == DT_BF16           ? 1e-2
                              : types[t] == DT_F16          ? 2e-3
                              : s & 1 && types[t] == DT_F32 ? 5e-3
                                                            : 1e-5);
        }
}

TEST(epilogues)
{
    /* gelu(x w + bias) + residual, with the values before the activation written too */
    for (int gpu = 0; gpu < 2; gpu++) {
        bed b = bed_new();
        b.options.gpu = gpu;
        shape s = {2, {40, 70}};
        node x = leaf(&b, DT_F32, (shape){2, {40, 30}}), w = leaf(&b, DT_F32, (shape){2, {30, 70}});
        node bias = graph_expand(b.g, graph_reshape(b.g, leaf(&b, DT_F32, (shape){1, {70}}), &(shape){2, {1, 70}}), &s);
        node residual = leaf(&b, DT_F32, s);
        node dot = compute(&b, graph_dot(b.g, x, w, DT_F32, false));
        node before = binary(&b, OP_ADD, dot, bias);
        node after = binary(&b, OP_ADD, unary(&b, OP_GELU, before), residual);
        write(&b, before);
        write(&b, after);
        expect_kernel(&b, 1e-5);
    }
    /* rows and columns reshaped after the product: [6, 8, 10] of [48, 10], per-row scale, a bf16 cast */
    bed b = bed_new();
    node x = leaf(&b, DT_BF16, (shape){2, {48, 20}}), w = leaf(&b, DT_BF16, (shape){2, {20, 10}});
    node dot = compute(&b, graph_dot(b.g, x, w, DT_F32, false));
    shape s = {3, {6, 8, 10}};
    node scale = graph_expand(b.g, leaf(&b, DT_F32, (shape){3, {1, 8, 1}}), &s);
    node scaled = binary(&b, OP_MUL, graph_reshape(b.g, dot, &s), scale);
    write(&b, compute(&b, graph_convert(b.g, scaled, DT_BF16)));
    expect_kernel(&b, 1e-2);

    /* the optimiser's update of what the product is the gradient of */
    b = bed_new();
    x = leaf(&b, DT_F32, (shape){2, {50, 20}});
    node dy = leaf(&b, DT_F32, (shape){2, {50, 30}}), weight = leaf(&b, DT_F32, (shape){2, {20, 30}});
    dot = compute(&b, graph_dot(b.g, turned(&b, x), dy, DT_F32, false));
    node rate = graph_full_double(b.g, DT_F32, &(shape){2, {20, 30}}, 0.1);
    write(&b, binary(&b, OP_SUB, weight, binary(&b, OP_MUL, dot, rate)));
    expect_kernel(&b, 1e-5);

    /* the input again as a residual: read at another place than the operand */
    b = bed_new();
    x = leaf(&b, DT_F32, (shape){2, {20, 20}});
    dot = compute(&b, graph_dot(b.g, x, x, DT_F32, false));
    write(&b, binary(&b, OP_ADD, x, unary(&b, OP_RELU, dot)));
    expect_kernel(&b, 1e-5);
}

TEST(folds_beside_the_product)
{
    /* the gradient of a bias beside that of its weights, and the update of both */
    for (int gpu = 0; gpu < 2; gpu++) {
        bed b = bed_new();
        b.options.gpu = gpu;
        node x = leaf(&b, DT_F32, (shape){2, {50, 140}}), dy = leaf(&b, DT_F32, (shape){2, {50, 90}});
        node bias = leaf(&b, DT_F32, (shape){1, {90}});
        node dot = compute(&b, graph_dot(b.g, turned(&b, x), dy, DT_F32, false));
        node sum = compute(&b, graph_reduce(b.g, FOLD_SUM, dy, 1));
        node flat = graph_reshape(b.g, sum, &(shape){1, {90}});
        node rate = graph_full_double(b.g, DT_F32, &(shape){1, {90}}, 0.1);
        write(&b, dot);
        write(&b, binary(&b, OP_SUB, bias, binary(&b, OP_MUL, flat, rate)));
        expect_kernel(&b, 1e-5);
    }
    /* distances: sqrt(max(|x|^2 + |y|^2 - 2 x y, 0)) */
    bed b = bed_new();
    shape s = {2, {70, 90}};
    node x = leaf(&b, DT_F32, (shape){2, {70, 33}}), y = leaf(&b, DT_F32, (shape){2, {90, 33}});
    node dot = compute(&b, graph_dot(b.g, x, turned(&b, y), DT_F32, false));
    node rows = compute(&b, graph_reduce(b.g, FOLD_SUM, binary(&b, OP_MUL, x, x), 2));
    node columns = compute(&b, graph_reduce(b.g, FOLD_SUM, binary(&b, OP_MUL, y, y), 2));
    node norms = binary(&b, OP_ADD, graph_expand(b.g, rows, &s), graph_expand(b.g, turned(&b, columns), &s));
    node twice = binary(&b, OP_MUL, dot, graph_full_double(b.g, DT_F32, &s, 2));
    write(&b, unary(&b, OP_SQRT, unary(&b, OP_RELU, binary(&b, OP_SUB, norms, twice))));
    expect_kernel(&b, 1e-3);
}

TEST(heads)
{
    /* attention's scores: [batch, sequence, heads * depth] seen as [batch, heads, sequence, depth] */
    bed b = bed_new();
    int order[] = {0, 2, 1, 3};
    shape split = {4, {2, 19, 3, 8}};
    node q = graph_permute(b.g, graph_reshape(b.g, leaf(&b, DT_F32, (shape){3, {2, 19, 24}}), &split), order);
    node k = graph_permute(b.g, graph_reshape(b.g, leaf(&b, DT_F32, (shape){3, {2, 19, 24}}), &split), order);
    write(&b, compute(&b, graph_dot(b.g, q, turned(&b, k), DT_F32, false)));
    expect_kernel(&b, 1e-5);

    /* their values put back together: [2, 3, 19, 8] written as [2 * 19, 3 * 8], after an activation */
    b = bed_new();
    node p = leaf(&b, DT_F32, (shape){4, {2, 3, 19, 19}});
    node v = graph_permute(b.g, graph_reshape(b.g, leaf(&b, DT_F32, (shape){3, {2, 19, 24}}), &split), order);
    node dot = compute(&b, graph_dot(b.g, p, v, DT_F32, false));
    node joined = graph_reshape(b.g, graph_permute(b.g, dot, order), &(shape){2, {38, 24}});
    write(&b, unary(&b, OP_RELU, joined));
    expect_kernel(&b, 1e-5);

    /* and projected: K is heads x depth, which do not lie one after the other */
    b = bed_new();
    v = graph_permute(b.g, leaf(&b, DT_F32, (shape){4, {2, 3, 19, 8}}), order);
    node w = leaf(&b, DT_F32, (shape){2, {24, 10}});
    write(&b, compute(&b, graph_dot(b.g, graph_reshape(b.g, v, &(shape){2, {38, 24}}), w, DT_F32, false)));
    expect_kernel(&b, 1e-5);
}

/* [B, C, H, W] by [O, C, R, S]: windows, reshapes, a product, and the result as [B, O, P, Q]. */
TEST(convolutions)
{
    for (int padded = 0; padded < 2; padded++) {
        bed b = bed_new();
        node x = leaf(&b, DT_F32, (shape){4, {2, 16, 9, 10}}), w = leaf(&b, DT_F32, (shape){4, {5, 16, 3, 2}});
        if (padded)
            x = graph_pad(b.g, x, (int64_t[]){0, 0, 1, 1}, (int64_t[]){1, 1, 1, 1}, &(shape){4, {2, 16, 11, 12}},
                          (number){0});
        node windows = graph_window(b.g, graph_window(b.g, x, 2, 3, 2, 1), 3, 2, 1, 2); /* [2, 16, P, Q, 3, 2] */
        const shape *s = &graph_get(b.g, windows)->shape;
        int64_t high = s->extents[2], wide = s->extents[3];
        node columns = graph_reshape(b.g, graph_permute(b.g, windows, (int[]){0, 2, 3, 1, 4, 5}),
                                     &(shape){2, {2 * high * wide, 96}});
        node weights = turned(&b, graph_reshape(b.g, w, &(shape){2, {5, 96}}));
        node dot = compute(&b, graph_dot(b.g, columns, weights, DT_F32, false));
        node image = graph_permute(b.g, graph_reshape(b.g, dot, &(shape){4, {2, high, wide, 5}}), (int[]){0, 3, 1, 2});
        write(&b, unary(&b, OP_RELU, image));
        expect_kernel(&b, 1e-5); /* zeros around are never put into memory */
    }
}

TEST(refusals)
{
    bed b = bed_new();
    node x = leaf(&b, DT_F32, (shape){2, {20, 30}}), w = leaf(&b, DT_F32, (shape){2, {30, 10}});
    node dot = compute(&b, graph_dot(b.g, x, w, DT_F32, false));
    write(&b, compute(&b, graph_reduce(b.g, FOLD_SUM, dot, 2)));
    EXPECT(!build(&b, NULL) && b.why);
    arena_free(b.memory);

    b = bed_new();
    x = leaf(&b, DT_F32, (shape){2, {20, 30}});
    w = leaf(&b, DT_F32, (shape){2, {30, 10}});
    node costly = unary(&b, OP_TANH, x);
    write(&b, compute(&b, graph_dot(b.g, costly, w, DT_F32, false)));
    EXPECT(!build(&b, NULL));
    EXPECT_TEXT(b.why, "every tile of the product would compute its operand again");
    arena_free(b.memory);

    b = bed_new(); /* matrix units take what lies in memory: a cast before them is a kernel of its own on a GPU */
    b.options.gpu = true;
    x = compute(&b, graph_convert(b.g, leaf(&b, DT_F32, (shape){2, {20, 30}}), DT_BF16));
    write(&b, compute(&b, graph_dot(b.g, x, leaf(&b, DT_BF16, (shape){2, {30, 10}}), DT_F32, false)));
    EXPECT(!build(&b, NULL) && b.why);
    arena_free(b.memory);

    b = bed_new(); /* windows of 3 x 2 of 3 channels: no axis of K is long, and bytes are not gathered */
    x = graph_window(b.g, graph_window(b.g, leaf(&b, DT_I8, (shape){3, {3, 9, 10}}), 1, 3, 1, 1), 2, 2, 1, 1);
    node columns = graph_reshape(b.g, graph_permute(b.g, x, (int[]){1, 2, 0, 3, 4}), &(shape){2, {63, 18}});
    write(&b, compute(&b, graph_dot(b.g, columns, leaf(&b, DT_I8, (shape){2, {18, 5}}), DT_I32, false)));
    EXPECT(!build(&b, NULL));
    EXPECT_TEXT(b.why, "the depth of the product is cut into short pieces");
    arena_free(b.memory);

    /* cheap ones are computed in place */
    b = bed_new();
    x = leaf(&b, DT_F32, (shape){2, {20, 30}});
    w = leaf(&b, DT_F32, (shape){2, {30, 10}});
    node cheap = unary(&b, OP_RELU, x);
    write(&b, compute(&b, graph_dot(b.g, cheap, w, DT_F32, false)));
    expect_kernel(&b, 1e-5);
}

TEST(thin_products)
{
    static const int sizes[][3] = {{1, 5, 7}, {5, 1, 7}, {5, 7, 1}, {1, 1, 4}, {3, 4, 0}};
    static const dtype types[] = {DT_F32, DT_BF16, DT_I8};
    for (int s = 0; s < COUNT(sizes); s++)
        for (int t = 0; t < COUNT(types); t++) {
            bed b = bed_new();
            node x = leaf(&b, types[t], (shape){3, {2, sizes[s][0], sizes[s][2]}});
            node y = leaf(&b, types[t], (shape){3, {2, sizes[s][2], sizes[s][1]}});
            node n = graph_dot(b.g, x, y, types[t] == DT_I8 ? DT_I32 : types[t], false),
                 made = fuse_dot_prepare(b.g, n, &(fuse_options){.gpu = true});
            EXPECT(made && graph_get(b.g, made)->code != GRAPH_DOT);
            graph_tensor both[2];
            EXPECT(graph_interpret(b.g, (node[]){n, made}, 2, NULL, false, b.memory, both, NULL) == QN_OK);
            EXPECT(shape_same(&both[0].shape, &both[1].shape) && both[0].elem == both[1].elem);
            for (int64_t i = 0; i < both[0].count; i++) {
                EXPECT_NEAR(both[0].elements[i].f, both[1].elements[i].f, 1e-2);
                EXPECT(both[0].elements[i].i == both[1].elements[i].i);
            }
            arena_free(b.memory);
        }
}

/* Is there a fold of numbers of this shape below n? */
static bool folds_shape(const graph *g, node n, const shape *s)
{
    const graph_node *x = graph_get(g, n);
    if (x->code == GRAPH_REDUCE && shape_same(&graph_get(g, x->inputs[0])->shape, s)) return true;
    for (int i = 0; i < x->input_count; i++)
        if (folds_shape(g, x->inputs[i], s)) return true;
    return false;
}

/* A long vector by many rows: piece by piece on a GPU, so that a piece stays in the first cache. */
TEST(one_long_column)
{
    bed b = bed_new();
    node x = leaf(&b, DT_F32, (shape){2, {64, 65536}}), y = leaf(&b, DT_F32, (shape){2, {65536, 1}});
    node n = graph_dot(b.g, x, y, DT_F32, false), made = fuse_dot_prepare(b.g, n, &(fuse_options){.gpu = true});
    EXPECT(folds_shape(b.g, made, &(shape){3, {8, 64, 8192}}));
    EXPECT(folds_shape(b.g, fuse_dot_prepare(b.g, n, &(fuse_options){0}), &(shape){2, {64, 65536}}));
    graph_tensor both[2];
    EXPECT(graph_interpret(b.g, (node[]){n, made}, 2, NULL, false, b.memory, both, NULL) == QN_OK);
    EXPECT(shape_same(&both[0].shape, &both[1].shape));
    for (int64_t i = 0; i < both[0].count; i++) EXPECT_NEAR(both[0].elements[i].f, both[1].elements[i].f, 0.05);
    arena_free(b.memory);
}

/* One row down a large matrix of 16 bits remains a product, which the copy engine feeds; along its rows it is a fold. */
TEST(one_row_down_a_matrix)
{
    bed b = bed_new();
    fuse_options hopper = {.gpu = true, .arch = 90, .units = 132};
    node x = leaf(&b, DT_BF16, (shape){2, {1, 2048}}), w = leaf(&b, DT_BF16, (shape){2, {2048, 2048}});
    node down = graph_dot(b.g, x, w, DT_BF16, false);
    node along = graph_dot(b.g, x, graph_permute(b.g, w, (int[]){1, 0}), DT_BF16, false);
    EXPECT(fuse_dot_prepare(b.g, down, &hopper) == down);
    EXPECT(fuse_dot_prepare(b.g, along, &hopper) != along);
    EXPECT(fuse_dot_prepare(b.g, down, &(fuse_options){.gpu = true, .arch = 80}) != down);
    arena_free(b.memory);
}

/* A new batch gives the same text; so does another depth. */
TEST(texts_do_not_depend_on_sizes)
{
    text texts[3] = {{0}};
    static const int batches[] = {30, 200, 1000};
    for (int i = 0; i < 3; i++) {
        bed b = bed_new();
        shape s = {2, {batches[i], 70}};
        node x = leaf(&b, DT_F32, (shape){2, {batches[i], 40 + i}}), w = leaf(&b, DT_F32, (shape){2, {40 + i, 70}});
        node bias = graph_expand(b.g, leaf(&b, DT_F32, (shape){2, {1, 70}}), &s);
        write(&b, unary(&b, OP_SILU, binary(&b, OP_ADD, compute(&b, graph_dot(b.g, x, w, DT_F32, false)), bias)));
        fuse_kernel k;
        EXPECT(build(&b, &k));
        tile_print(k.kernel, &texts[i]);
        arena_free(b.memory);
    }
    EXPECT_TEXT(text_get(&texts[1]), text_get(&texts[0]));
    EXPECT_TEXT(text_get(&texts[2]), text_get(&texts[0]));
    for (int i = 0; i < 3; i++) text_free(&texts[i]);
}

TEST(devices)
{
    qn_context *context = NULL;
    EXPECT(qn_context_open(NULL, &context, NULL) == QN_OK);
    bed b = bed_new();
    shape s = {2, {70, 90}};
    node x = leaf(&b, DT_BF16, (shape){2, {70, 40}}), w = leaf(&b, DT_BF16, (shape){2, {40, 90}});
    node dot = compute(&b, graph_dot(b.g, x, w, DT_F32, false));
    node bias = graph_expand(b.g, leaf(&b, DT_F32, (shape){2, {1, 90}}), &s), residual = leaf(&b, DT_F32, s);
    node before = binary(&b, OP_ADD, dot, bias);
    write(&b, before);
    write(&b, binary(&b, OP_ADD, unary(&b, OP_GELU, before), residual));
    expect_on_devices(context, &b, 1e-3);

    b = bed_new(); /* weights, their bias, both transposed and updated */
    x = leaf(&b, DT_F32, (shape){2, {33, 70}});
    node dy = leaf(&b, DT_F32, (shape){2, {33, 90}});
    dot = compute(&b, graph_dot(b.g, turned(&b, x), dy, DT_F32, true));
    node sum = compute(&b, graph_reduce(b.g, FOLD_SUM, dy, 1));
    write(&b, binary(&b, OP_SUB, leaf(&b, DT_F32, s), dot));
    write(&b, sum);
    expect_on_devices(context, &b, 2e-2);

    b = bed_new(); /* heads */
    int order[] = {0, 2, 1, 3};
    shape split = {4, {2, 19, 3, 8}};
    node q = graph_permute(b.g, graph_reshape(b.g, leaf(&b, DT_F32, (shape){3, {2, 19, 24}}), &split), order);
    node k = graph_permute(b.g, graph_reshape(b.g, leaf(&b, DT_F32, (shape){3, {2, 19, 24}}), &split), order);
    write(&b, compute(&b, graph_dot(b.g, q, turned(&b, k), DT_F32, false)));
    expect_on_devices(context, &b, 1e-5);
    qn_context_close(context);
}

TEST_MAIN(CASE(devices), CASE(shapes_and_types), CASE(epilogues), CASE(folds_beside_the_product), CASE(heads),
          CASE(convolutions), CASE(refusals), CASE(thin_products), CASE(one_long_column), CASE(one_row_down_a_matrix),
          CASE(texts_do_not_depend_on_sizes))
