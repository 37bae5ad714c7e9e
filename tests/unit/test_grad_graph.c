/*
 * What the gradient's graph looks like: errors with their exact words, where gradients stop, what is shared and joined,
 * kernels as ops, checkpoints; compositions (softmax, layer norm, cross-entropy, convolution, pooling, attention)
 * against central differences; a small network trained by interpretation.
 * SPDX-License-Identifier: MIT
 */
#include "grad_check.h"

static int count_code(const graph *g, node root, graph_code code)
{
    arena *memory = arena_new();
    node *order = ARENA_ARRAY(memory, node, g->node_count);
    int count = 0, order_count = graph_order(g, &root, 1, order);
    for (int i = 0; i < order_count; i++) count += graph_get(g, order[i])->code == code;
    arena_free(memory);
    return count;
}

/* ---- errors ---- */

static void expect_error(graph *g, node loss, node input, const char *words)
{
    node d = 1;
    EXPECT(!graph_gradient(g, loss, &input, 1, &d));
    EXPECT(d == 0);
    EXPECT_TEXT(g->error.message, words);
    g->status = QN_OK;
}

TEST(wrong_calls)
{
    arena *memory = arena_new();
    graph *g = graph_new(memory);
    double data[6] = {0};
    node x = graph_leaf(g, DT_F32, &(shape){2, {2, 3}}, NULL, 0, data);
    node i = graph_leaf(g, DT_I64, &(shape){0}, NULL, 0, data + 1);
    node loss = graph_reduce(g, FOLD_SUM, x, 3);
    g->site = (graph_site){.file = "train.c", .line = 12};
    expect_error(g, x, x,
                 "grad (train.c:12): the loss has the shape [2, 3], not one element: reduce it, or say what arrives at "
                 "each");
    expect_error(g, i, x, "grad (train.c:12): output 0 is i64 []: only floats have gradients");
    expect_error(g, loss, i, "grad (train.c:12): input 0 is i64 []: only floats have gradients");
    node d;
    EXPECT(!graph_gradient_from(g, &x, &loss, 1, &x, 1, &d));
    EXPECT_TEXT(g->error.message,
                "grad (train.c:12): what arrives at output 0 is f32 [1, 1], the output is f32 [2, 3]");
    g->status = QN_OK;
    g->site = (graph_site){.file = "model.c", .line = 7};
    node bits = graph_map(g, OP_BITCAST, DT_F32, &x, 1);
    g->site = (graph_site){.file = "train.c", .line = 12};
    expect_error(
        g, graph_reduce(g, FOLD_SUM, bits, 3), x,
        "grad (model.c:7): bitcast of f32 has no derivative: detach its input if no gradient should flow there");
    static const graph_kernel kernel = {
        .name = "halve", .output_count = 1, .output_elem = {DT_F32}, .output_shape = {{2, {2, 3}}}, .identity = 5};
    node y = graph_result(g, graph_kernel_call(g, &kernel, &x, 1), 0);
    expect_error(g, graph_reduce(g, FOLD_SUM, y, 3), x,
                 "grad (train.c:12): the kernel `halve` has no gradient: give it a `gradient (f)` clause");
    /* An earlier error stays the first one, and nothing is built on it. */
    graph_reshape(g, x, &(shape){1, {5}});
    EXPECT(!graph_gradient(g, loss, &x, 1, &d) && d == 0);
    EXPECT_TEXT(g->error.message, "reshape (train.c:12): [2, 3] has 6 elements, [5] has 5");
    arena_free(memory);
}

TEST(new_nodes_belong_to_the_call_they_come_from)
{
    trial t = trial_new("sites");
    node x = trial_input(&t, (shape){1, {3}}, 0, 1);
    t.g->site = (graph_site){.file = "model.c", .line = 3};
    t.g->label = "softmax";
    node y = graph_unary(t.g, OP_EXP, x);
    t.g->site = (graph_site){.file = "train.c", .line = 9};
    t.g->label = "grad";
    node d, loss = trial_weigh(&t, y);
    EXPECT(graph_gradient(t.g, loss, &x, 1, &d));
    EXPECT(graph_get(t.g, d)->site.line == 3);
    EXPECT_TEXT(graph_get(t.g, d)->label, "softmax");
    EXPECT(t.g->site.line == 9);
    trial_end(&t);
}

/* ---- where gradients stop, what is shared ---- */

TEST(gradients_stop_and_zeros_stay_small)
{
    trial t = trial_new("detach");
    node x = trial_input(&t, (shape){1, {3}}, 0.5, 1), unused = trial_input(&t, (shape){2, {2, 2}}, 0, 1);
    node y = graph_binary(t.g, OP_MUL, x, graph_same(t.g, GRAPH_DETACH, x, 0));
    node d[2], loss = trial_weigh(&t, y);
    EXPECT(graph_gradient(t.g, loss, t.inputs, 2, d));
    arena *memory = arena_new();
    graph_tensor got[2];
    if (trial_values(&t, (node[]){d[0], loss}, 2, got, memory)) {
        double sum = 0;
        for (int i = 0; i < 3; i++) sum += got[0].elements[i].f * t.data[0][i];
        EXPECT_NEAR(sum, got[1].elements[0].f, 1e-12); /* d = w * x: the loss is x . d */
    }
    EXPECT(graph_get(t.g, d[1])->code == GRAPH_FULL && graph_get(t.g, d[1])->shape.rank == 2 && unused);
    node steps = graph_unary(t.g, OP_FLOOR, x);
    EXPECT(graph_gradient(t.g, trial_weigh(&t, steps), &x, 1, d));
    EXPECT(graph_get(t.g, d[0])->code == GRAPH_FULL && graph_get(t.g, d[0])->attr.number.f == 0);
    arena_free(memory);
    trial_end(&t);
}

TEST(keep_and_again_pass_everything)
{
    trial t = trial_new("keep");
    node x = trial_input(&t, (shape){1, {3}}, 0.5, 1);
    node y = graph_same(t.g, GRAPH_KEEP, graph_same(t.g, GRAPH_AGAIN, graph_binary(t.g, OP_MUL, x, x), 4), 0);
    trial_check(&t, y, 2);
    trial_end(&t);
}

TEST(an_intermediate_value_is_an_input_too)
{
    trial t = trial_new("intermediate");
    node x = trial_input(&t, (shape){1, {3}}, 0.5, 1), h = graph_unary(t.g, OP_SIN, x);
    node loss = trial_weigh(&t, graph_binary(t.g, OP_MUL, h, x)), d[2], part[1];
    EXPECT(graph_gradient(t.g, loss, (node[]){x, h}, 2, d));
    trial_compare(&t, loss, d, "1");
    EXPECT(graph_gradient(t.g, loss, &h, 1, part) && part[0] == d[1]);
    trial_end(&t);
}

TEST(ties_of_extremes)
{
    arena *memory = arena_new();
    graph *g = graph_new(memory);
    double data[4] = {2, 5, 5, 1}, other[4] = {2, 4, 6, 1};
    shape s = {1, {4}};
    node x = graph_leaf(g, DT_F64, &s, NULL, 0, data), y = graph_leaf(g, DT_F64, &s, NULL, 0, other), d[4];
    EXPECT(graph_gradient(g, graph_reduce(g, FOLD_MAX, x, 1), &x, 1, &d[0]));
    node both = graph_reduce(g, FOLD_SUM, graph_binary(g, OP_MAX, x, y), 1);
    EXPECT(graph_gradient(g, both, (node[]){x, y}, 2, d + 1));
    node clamped = graph_binary(g, OP_MIN, x, graph_full_double(g, DT_F64, &s, 2));
    EXPECT(graph_gradient(g, graph_reduce(g, FOLD_SUM, clamped, 1), &x, 1, &d[3]));
    double wanted[4][4] = {{0, 0.5, 0.5, 0}, {0.5, 1, 0, 0.5}, {0.5, 0, 1, 0.5}, {1, 0, 0, 1}};
    graph_tensor got[4];
    qn_error error;
    EXPECT(!graph_interpret(g, d, 4, NULL, true, memory, got, &error));
    for (int i = 0; i < 4; i++)
        for (int k = 0; k < 4; k++) EXPECT_NEAR(got[i].elements[k].f, wanted[i][k], 0);
    arena_free(memory);
}

TEST(slices_of_one_tensor_are_joined_and_indices_chained)
{
    trial t = trial_new("parts");
    node x = trial_input(&t, (shape){2, {2, 9}}, -1, 1), parts[3];
    for (int i = 0; i < 3; i++)
        parts[i] = graph_slice(t.g, x, (int64_t[]){0, 3 * i}, (int64_t[]){1, 1}, &(shape){2, {2, 3}});
    node d, y = graph_binary(t.g, OP_MUL, graph_binary(t.g, OP_MUL, parts[0], parts[1]), parts[2]);
    trial_check(&t, y, 2);
    EXPECT(graph_gradient(t.g, trial_weigh(&t, y), &x, 1, &d));
    EXPECT(graph_get(t.g, d)->code == GRAPH_CONCAT && graph_get(t.g, d)->input_count == 3);
    /* With a gap: zeros between. */
    y = graph_binary(t.g, OP_MUL, parts[0], parts[2]);
    trial_check(&t, y, 2);
    EXPECT(graph_gradient(t.g, trial_weigh(&t, y), &x, 1, &d));
    EXPECT(graph_get(t.g, d)->code == GRAPH_CONCAT && graph_get(t.g, d)->input_count == 3);
    trial_end(&t);

    t = trial_new("table");
    x = trial_input(&t, (shape){2, {4, 2}}, -1, 1);
    node a = graph_take(t.g, x, trial_index(&t, (shape){1, {3}}, 4), 0);
    node b = graph_take(t.g, x, trial_index(&t, (shape){1, {3}}, 4), 0);
    y = graph_binary(t.g, OP_MUL, a, b);
    trial_check(&t, y, 2);
    EXPECT(graph_gradient(t.g, trial_weigh(&t, y), &x, 1, &d));
    sparse_rows rows;
    EXPECT(count_code(t.g, d, GRAPH_TAKE_ADD) == 2 && sparse_rows_find(t.g, d, &rows));
    EXPECT(shape_same(&graph_get(t.g, rows.updates)->shape, &(shape){2, {6, 2}}));
    trial_end(&t);
}

/* ---- kernels as ops ---- */

static qn_status run_square(void *context, const graph_node *kernel, const graph_tensor *inputs, graph_tensor *outputs,
                            qn_error *error)
{
    for (int64_t i = 0; i < inputs[0].count; i++) {
        double x = inputs[0].elements[i].f;
        outputs[0].elements[i].f = x * x;
        outputs[1].elements[i].f = 3 * x;
    }
    return QN_OK;
}

static bool square_gradient(graph *g, node call, const node *d, node *d_inputs)
{
    node x = graph_get(g, call)->inputs[0];
    shape s = graph_get(g, x)->shape;
    node slope = graph_binary(g, OP_MUL, graph_full_double(g, DT_F64, &s, 2), x);
    node sum = d[0] ? graph_binary(g, OP_MUL, d[0], slope) : 0;
    node third = d[1] ? graph_binary(g, OP_MUL, graph_full_double(g, DT_F64, &s, 3), d[1]) : 0;
    d_inputs[0] = sum && third ? graph_binary(g, OP_ADD, sum, third) : sum ? sum : third;
    return d_inputs[0] != 0;
}

TEST(kernels_with_gradients)
{
    static const graph_kernel kernel = {.name = "square",
                                        .output_count = 2,
                                        .output_elem = {DT_F64, DT_F64},
                                        .output_shape = {{1, {3}}, {1, {3}}},
                                        .identity = 77,
                                        .gradient = square_gradient};
    trial t = trial_new("kernel");
    node x = trial_input(&t, (shape){1, {3}}, 0.5, 1), call = graph_kernel_call(t.g, &kernel, &x, 1), d;
    node first = graph_result(t.g, call, 0), second = graph_result(t.g, call, 1);
    node y[3] = {first, second, graph_binary(t.g, OP_MUL, first, second)};
    for (int i = 0; i < 3; i++) {
        EXPECT(graph_gradient(t.g, trial_weigh(&t, y[i]), &x, 1, &d));
        arena *memory = arena_new();
        graph_tensor got[2];
        qn_error error = {0};
        graph_memory where = {.call = run_square};
        node weights = graph_full_double(t.g, DT_F64, &(shape){1, {3}}, 1), plain;
        EXPECT(graph_gradient_from(t.g, &y[i], &weights, 1, &x, 1, &plain));
        EXPECT(!graph_interpret(t.g, (node[]){plain}, 1, &where, true, memory, got, &error));
        for (int k = 0; k < 3; k++) {
            double at = t.data[0][k], wanted[3] = {2 * at, 3, 9 * at * at};
            EXPECT_NEAR(got[0].elements[k].f, wanted[i], 1e-12);
        }
        arena_free(memory);
    }
    trial_end(&t);
}

/* ---- compositions ---- */

static node over_rows(trial *t, fold_kind fold, node x)
{
    shape s = t->g->nodes[x].shape;
    return graph_expand(t->g, graph_reduce(t->g, fold, x, 1u << (s.rank - 1)), &s);
}

static node softmax(trial *t, node x)
{
    graph *g = t->g;
    node largest = graph_same(g, GRAPH_DETACH, over_rows(t, FOLD_MAX, x), 0);
    node e = graph_unary(g, OP_EXP, graph_binary(g, OP_SUB, x, largest));
    return graph_binary(g, OP_DIV, e, over_rows(t, FOLD_SUM, e));
}

static node scaled(trial *t, node x, double factor)
{
    shape s = t->g->nodes[x].shape;
    return graph_binary(t->g, OP_MUL, x, graph_full_double(t->g, t->g->nodes[x].elem, &s, factor));
}

static node layer_norm(trial *t, node x, node weight, node bias)
{
    graph *g = t->g;
    shape s = g->nodes[x].shape, row = {2, {1, s.extents[1]}};
    double part = 1 / (double)s.extents[1];
    node centred = graph_binary(g, OP_SUB, x, scaled(t, over_rows(t, FOLD_SUM, x), part));
    node variance = scaled(t, over_rows(t, FOLD_SUM, graph_binary(g, OP_MUL, centred, centred)), part);
    node scale = graph_unary(g, OP_RSQRT,
                             graph_binary(g, OP_ADD, variance, scaled(t, graph_full_double(g, DT_F64, &s, 1), 1e-5)));
    node w = graph_expand(g, graph_reshape(g, weight, &row), &s), b = graph_expand(g, graph_reshape(g, bias, &row), &s);
    return graph_binary(g, OP_ADD, graph_binary(g, OP_MUL, graph_binary(g, OP_MUL, centred, scale), w), b);
}

TEST(softmax_and_norms)
{
    trial t = trial_new("softmax");
    node x = trial_input(&t, (shape){2, {3, 4}}, -2, 2), d;
    node y = softmax(&t, x);
    trial_check(&t, y, 2);
    EXPECT(graph_gradient(t.g, trial_weigh(&t, y), &x, 1, &d));
    /* max, sum, and one more sum: reductions of the same rows, nothing that moves data between. */
    EXPECT(count_code(t.g, d, GRAPH_REDUCE) == 3);
    EXPECT(count_code(t.g, d, GRAPH_RESHAPE) + count_code(t.g, d, GRAPH_PERMUTE) == 0);
    trial_end(&t);

    t = trial_new("layer norm");
    x = trial_input(&t, (shape){2, {3, 4}}, -2, 2);
    node w = trial_input(&t, (shape){1, {4}}, 0.5, 1.5), b = trial_input(&t, (shape){1, {4}}, -1, 1), all[3];
    y = layer_norm(&t, x, w, b);
    trial_check(&t, y, 2);
    EXPECT(graph_gradient(t.g, trial_weigh(&t, y), t.inputs, 3, all));
    /* Forward 2; backward the sums for the variance and the mean. */
    EXPECT(count_code(t.g, all[0], GRAPH_REDUCE) == 4);
    EXPECT(count_code(t.g, all[0], GRAPH_PERMUTE) == 0);
    /* The bias: one sum over the rows. */
    EXPECT(count_code(t.g, all[2], GRAPH_REDUCE) == 1);
    trial_end(&t);
}

TEST(cross_entropy_and_attention)
{
    trial t = trial_new("cross-entropy");
    node x = trial_input(&t, (shape){2, {3, 5}}, -2, 2);
    node largest = graph_same(t.g, GRAPH_DETACH, over_rows(&t, FOLD_MAX, x), 0);
    node moved = graph_binary(t.g, OP_SUB, x, largest);
    node sums = graph_reduce(t.g, FOLD_SUM, graph_unary(t.g, OP_EXP, moved), 2);
    node picked = graph_gather(t.g, moved, trial_index(&t, (shape){2, {3, 1}}, 5), 1);
    trial_check(&t, graph_binary(t.g, OP_SUB, graph_unary(t.g, OP_LOG, sums), picked), 2);
    trial_end(&t);

    t = trial_new("attention");
    shape s = {3, {2, 3, 2}};
    node q = trial_input(&t, s, -1, 1), k = trial_input(&t, s, -1, 1), v = trial_input(&t, s, -1, 1);
    node scores = graph_dot(t.g, q, graph_permute(t.g, k, (int[]){0, 2, 1}), DT_F64, false);
    trial_check(&t, graph_dot(t.g, softmax(&t, scaled(&t, scores, 0.7)), v, DT_F64, false), 2);
    trial_end(&t);
}

TEST(convolution_and_pooling)
{
    /* x [1, 2, 5, 4], weight [3, 2, 3, 2], stride 2 and 1: windows, one product. */
    trial t = trial_new("convolution");
    graph *g = t.g;
    node x = trial_input(&t, (shape){4, {1, 2, 5, 4}}, -1, 1), w = trial_input(&t, (shape){4, {3, 2, 3, 2}}, -1, 1);
    node columns = graph_window(g, graph_window(g, x, 2, 3, 2, 1), 3, 2, 1, 1); /* [1, 2, 2, 3, 3, 2] */
    columns = graph_reshape(g, graph_permute(g, columns, (int[]){0, 2, 3, 1, 4, 5}), &(shape){2, {6, 12}});
    node matrix = graph_permute(g, graph_reshape(g, w, &(shape){2, {3, 12}}), (int[]){1, 0});
    trial_check(&t, graph_dot(g, columns, matrix, DT_F64, false), 2);
    trial_end(&t);

    t = trial_new("pooling");
    x = trial_input(&t, (shape){2, {4, 6}}, -1, 1);
    node windows = graph_window(t.g, graph_window(t.g, x, 0, 2, 2, 1), 1, 2, 2, 1);
    trial_check(&t, graph_reduce(t.g, FOLD_MAX, windows, 12), 2);
    trial_end(&t);
}

/* ---- checkpoints ---- */

/* Layers of sin(x * x + x); a checkpoint after every `every` of them (0: none). */
static node layers(trial *t, node x, int count, int every)
{
    for (int i = 1; i <= count; i++) {
        x = graph_unary(t->g, OP_SIN, graph_binary(t->g, OP_ADD, graph_binary(t->g, OP_MUL, x, x), x));
        if (every && i % every == 0 && i < count) x = graph_checkpoint(t->g, x);
    }
    return x;
}

/* The most bytes alive at once when every op of floats runs in the order of the nodes and keeps its result until the
 * last op that reads it. */
static int64_t peak_bytes(const graph *g, node root)
{
    arena *memory = arena_new();
    node *order = ARENA_ARRAY(memory, node, g->node_count);
    int count = graph_order(g, &root, 1, order);
    int *last = ARENA_ARRAY(memory, int, g->node_count);
    for (int i = 0; i < count; i++)
        for (int k = 0; k < graph_get(g, order[i])->input_count; k++) last[graph_get(g, order[i])->inputs[k]] = i;
    int64_t now = 0, peak = 0;
    for (int i = 0; i < count; i++) {
        const graph_node *n = graph_get(g, order[i]);
        if (n->code == GRAPH_LEAF || n->code == GRAPH_FULL) continue;
        now += graph_size_bytes(g, order[i]);
        peak = MAXIMUM(peak, now);
        for (int k = 0; k < n->input_count; k++) {
            const graph_node *x = graph_get(g, n->inputs[k]);
            bool again = k && n->inputs[k] == n->inputs[0];
            if (last[n->inputs[k]] == i && !again && x->code != GRAPH_LEAF && x->code != GRAPH_FULL)
                now -= graph_size_bytes(g, n->inputs[k]);
        }
    }
    arena_free(memory);
    return peak;
}

TEST(checkpoints_keep_the_gradient_and_lower_the_peak)
{
    int64_t peaks[2];
    double sums[2];
    for (int i = 0; i < 2; i++) {
        trial t = trial_new("checkpoint");
        node x = trial_input(&t, (shape){1, {4}}, -1, 1), d;
        node y = layers(&t, x, 16, i ? 4 : 0);
        node loss = trial_weigh(&t, y);
        EXPECT(graph_gradient(t.g, loss, &x, 1, &d));
        trial_compare(&t, loss, &d, "1");
        peaks[i] = peak_bytes(t.g, d);
        sums[i] = trial_scalar(&t, graph_reduce(t.g, FOLD_SUM, d, 1));
        trial_end(&t);
    }
    EXPECT(2 * peaks[1] <= peaks[0]);
    EXPECT(sums[0] == sums[1]);
    trial t = trial_new("second order through checkpoints");
    node x = trial_input(&t, (shape){1, {2}}, -1, 1);
    trial_check(&t, layers(&t, x, 4, 2), 2);
    trial_end(&t);
}

/* ---- training ---- */

/* Two layers, mean square error, 50 steps of plain descent by interpretation: y = sin(x0) x1. */
TEST(a_network_learns)
{
    enum { ROWS = 24, HIDDEN = 12 };
    trial t = trial_new("network");
    graph *g = t.g;
    double *data, *target = ARENA_ARRAY(t.memory, double, ROWS);
    shape inputs = {2, {ROWS, 2}}, outputs = {2, {ROWS, 1}}, hidden = {2, {ROWS, HIDDEN}};
    node x = trial_numbers(&t, &inputs, -1, 1, &data);
    for (int i = 0; i < ROWS; i++) target[i] = sin(2 * data[2 * i]) * data[2 * i + 1];
    node y = graph_leaf(g, DT_F64, &outputs, NULL, 0, target);
    node w1 = trial_input(&t, (shape){2, {2, HIDDEN}}, -1, 1), b1 = trial_input(&t, (shape){2, {1, HIDDEN}}, -1, 1);
    node w2 = trial_input(&t, (shape){2, {HIDDEN, 1}}, -0.5, 0.5), b2 = trial_input(&t, (shape){2, {1, 1}}, 0, 0);
    node h = graph_binary(g, OP_ADD, graph_dot(g, x, w1, DT_F64, false), graph_expand(g, b1, &hidden));
    node out = graph_dot(g, graph_unary(g, OP_GELU, h), w2, DT_F64, false);
    node error = graph_binary(g, OP_SUB, graph_binary(g, OP_ADD, out, graph_expand(g, b2, &outputs)), y);
    node loss = graph_reduce(g, FOLD_SUM, scaled(&t, graph_binary(g, OP_MUL, error, error), 1.0 / ROWS), 3);
    node d[4];
    EXPECT(graph_gradient(g, loss, t.inputs, 4, d));
    double before = trial_scalar(&t, loss);
    for (int step = 0; step < 50; step++) {
        arena *memory = arena_new();
        graph_tensor got[4];
        if (trial_values(&t, d, 4, got, memory))
            for (int i = 0; i < 4; i++)
                for (int64_t k = 0; k < got[i].count; k++) t.data[i][k] -= 0.3 * got[i].elements[k].f;
        arena_free(memory);
    }
    double after = trial_scalar(&t, loss);
    if (after >= 0.1 * before) printf("the loss went from %g to %g\n", before, after);
    EXPECT(before > 0.1 && after < 0.1 * before);
    trial_end(&t);
}

TEST_MAIN(CASE(wrong_calls), CASE(new_nodes_belong_to_the_call_they_come_from),
          CASE(gradients_stop_and_zeros_stay_small), CASE(keep_and_again_pass_everything),
          CASE(an_intermediate_value_is_an_input_too), CASE(ties_of_extremes),
          CASE(slices_of_one_tensor_are_joined_and_indices_chained), CASE(kernels_with_gradients),
          CASE(softmax_and_norms), CASE(cross_entropy_and_attention), CASE(convolution_and_pooling),
          CASE(checkpoints_keep_the_gradient_and_lower_the_peak), CASE(a_network_learns))
