/*
 * The gradient of every op of the graph against central differences, to second order: elementwise ops, movement,
 * reductions, scans, products, access by index; over shapes with no elements, one element and broadcasting.
 * SPDX-License-Identifier: MIT
 */
#include "grad_check.h"

static const shape SHAPES[] = {{0}, {1, {1}}, {1, {5}}, {2, {2, 3}}, {1, {0}}, {3, {2, 0, 3}}};

/* ---- elementwise ---- */

typedef struct range {
    op_code code;
    double low, high;
} range;

/* Where a function is defined, and away from its corners; the rest between -2 and 2. */
static const range RANGES[] = {
    {OP_SQRT, 0.3, 3},    {OP_RSQRT, 0.3, 3}, {OP_LOG, 0.3, 3},     {OP_LOG2, 0.3, 3},
    {OP_LOG1P, -0.5, 2},  {OP_POW, 0.3, 2},   {OP_FLOOR, 0.1, 0.9}, {OP_CEIL, 0.1, 0.9},
    {OP_ROUND, 0.6, 1.4}, {OP_DIV, 0.5, 2},   {OP_MOD, 1.1, 1.9},
};

static range range_of(op_code code)
{
    for (int i = 0; i < COUNT(RANGES); i++)
        if (RANGES[i].code == code) return RANGES[i];
    return (range){code, -2, 2};
}

TEST(every_elementwise_op_of_floats)
{
    int checked = 0, costly = 0;
    for (op_code code = 0; code < OP_COUNT; code++) {
        bool elementwise = ops[code].class >= CLASS_UNARY && ops[code].class <= CLASS_TERNARY;
        if (!elementwise || !strchr(ops[code].types, 'F') || ops[code].result == RESULT_BOOL) continue;
        /* TF32 rounds, so its differences are none; BITCAST has no derivative; the others have cases of their own. */
        if (code == OP_TF32 || code == OP_BITCAST || code == OP_CONVERT || code == OP_SELECT) continue;
        for (int k = 0; k < COUNT(SHAPES); k++) {
            trial t = trial_new(ops[code].text);
            range r = range_of(code);
            node x[3];
            for (int i = 0; i < ops[code].count; i++)
                x[i] = trial_input(&t, SHAPES[k], r.low, code == OP_MOD && i ? r.low + 0.4 : r.high);
            trial_check(&t, graph_map(t.g, code, DT_F64, x, ops[code].count), 2);
            trial_end(&t);
        }
        checked++;
        costly += ops[code].costly;
    }
    EXPECT(checked >= 33 && costly >= 17); /* so many there were when this was written */
}

TEST(operands_used_twice)
{
    op_code codes[] = {OP_ADD, OP_SUB, OP_MUL, OP_DIV, OP_POW};
    for (int i = 0; i < COUNT(codes); i++) {
        trial t = trial_new(ops[codes[i]].text);
        node x = trial_input(&t, (shape){1, {3}}, 0.5, 2);
        node y = graph_binary(t.g, codes[i], x, x);
        trial_check(&t, graph_binary(t.g, OP_MUL, graph_binary(t.g, OP_ADD, y, x), y), 2);
        trial_end(&t);
    }
}

TEST(powers_by_a_number)
{
    double exponents[] = {-2, -0.5, 0, 0.5, 1, 2, 3, 4.5};
    for (int i = 0; i < COUNT(exponents); i++) {
        trial t = trial_new("pow");
        node x = trial_input(&t, (shape){1, {4}}, 0.4, 2);
        shape s = {1, {4}};
        trial_check(&t, graph_binary(t.g, OP_POW, x, graph_full_double(t.g, DT_F64, &s, exponents[i])), 2);
        trial_end(&t);
    }
}

TEST(selection_and_conversion)
{
    trial t = trial_new("select");
    shape s = {2, {3, 4}};
    node a = trial_input(&t, s, -1, 1), b = trial_input(&t, s, -1, 1), c = trial_input(&t, s, -1, 1);
    node condition = graph_binary(t.g, OP_LT, c, graph_full_double(t.g, DT_F64, &s, 0.1));
    trial_check(&t, graph_select(t.g, condition, graph_binary(t.g, OP_MUL, a, a), graph_unary(t.g, OP_SIN, b)), 2);
    trial_end(&t);

    t = trial_new("convert");
    a = trial_input(&t, s, -1, 1);
    dtype types[] = {DT_F32, DT_BF16, DT_F16};
    for (int i = 0; i < 3; i++) {
        node narrow = graph_convert(t.g, a, types[i]);
        trial_check(&t, graph_convert(t.g, graph_binary(t.g, OP_MUL, narrow, narrow), DT_F64), 2);
    }
    trial_end(&t);

    t = trial_new("tf32");
    a = trial_input(&t, s, -1, 1);
    node d, loss = trial_weigh(&t, graph_unary(t.g, OP_TF32, a));
    EXPECT(graph_gradient(t.g, loss, &a, 1, &d) && graph_get(t.g, d)->code == GRAPH_LEAF);
    trial_end(&t);
}

/* ---- movement ---- */

TEST(reshape_permute_expand)
{
    trial t = trial_new("reshape");
    node x = trial_input(&t, (shape){2, {2, 6}}, -1, 1), y = graph_reshape(t.g, x, &(shape){3, {3, 2, 2}});
    trial_check(&t, graph_binary(t.g, OP_MUL, y, y), 2);
    trial_end(&t);

    t = trial_new("permute");
    x = trial_input(&t, (shape){3, {2, 3, 2}}, -1, 1);
    y = graph_permute(t.g, x, (int[]){2, 0, 1});
    trial_check(&t, graph_binary(t.g, OP_MUL, y, y), 2);
    trial_end(&t);

    shape from[] = {{2, {1, 3}}, {2, {3, 1}}, {3, {1, 2, 1}}, {0}, {2, {1, 3}}, {1, {1}}};
    shape to[] = {{2, {4, 3}}, {2, {3, 4}}, {3, {3, 2, 2}}, {0}, {2, {0, 3}}, {1, {6}}};
    for (int i = 0; i < COUNT(from); i++) {
        t = trial_new("expand");
        x = trial_input(&t, from[i], -1, 1);
        y = graph_expand(t.g, x, &to[i]);
        node z = trial_input(&t, to[i], -1, 1);
        trial_check(&t, graph_binary(t.g, OP_MUL, graph_binary(t.g, OP_MUL, y, y), z), 2);
        trial_end(&t);
    }
}

TEST(slices)
{
    /* starts, steps, extents of a part of [7, 4] */
    int64_t cases[][6] = {{0, 0, 1, 1, 3, 4},  {2, 1, 1, 1, 4, 2},   {1, 0, 2, 1, 3, 4}, {6, 3, -1, -1, 7, 4},
                          {5, 0, -2, 1, 3, 4}, {3, 3, -3, -2, 2, 2}, {4, 2, 1, 1, 1, 1}, {0, 0, 1, 1, 0, 4}};
    for (int i = 0; i < COUNT(cases); i++) {
        trial t = trial_new("slice");
        node x = trial_input(&t, (shape){2, {7, 4}}, -1, 1);
        node y = graph_slice(t.g, x, cases[i], cases[i] + 2, &(shape){2, {cases[i][4], cases[i][5]}});
        trial_check(&t, graph_binary(t.g, OP_MUL, y, y), 2);
        trial_end(&t);
    }
}

TEST(padding)
{
    /* before, steps, extents around [3, 4]; negative: fewer */
    int64_t cases[][6] = {{1, 0, 1, 1, 5, 4},   {0, 2, 1, 1, 3, 8},  {2, 1, 2, 3, 9, 14}, {-1, 0, 1, 1, 4, 4},
                          {-1, -2, 1, 1, 2, 1}, {-3, 1, 2, 1, 4, 6}, {0, 0, 1, 1, 2, 3},  {-5, 0, 1, 1, 3, 4},
                          {4, 0, 1, 1, 4, 4},   {0, 0, 3, 1, 5, 4},  {0, 0, 1, 1, 0, 4}};
    for (int i = 0; i < COUNT(cases); i++) {
        trial t = trial_new("pad");
        node x = trial_input(&t, (shape){2, {3, 4}}, -1, 1);
        node y = graph_pad(t.g, x, cases[i], cases[i] + 2, &(shape){2, {cases[i][4], cases[i][5]}}, (number){.f = 0.5});
        trial_check(&t, graph_binary(t.g, OP_MUL, y, y), 2);
        trial_end(&t);
    }
}

TEST(windows)
{
    /* extent, axis, size, stride, dilation: overlapping, apart, touching, long ones at few and at many places, skewed */
    int64_t cases[][5] = {{7, 0, 3, 1, 1},   {7, 1, 3, 2, 1}, {9, 0, 3, 1, 2},  {8, 1, 2, 2, 1},  {9, 0, 2, 3, 1},
                          {9, 1, 2, 4, 2},   {5, 0, 5, 1, 1}, {5, 1, 1, 1, 1},  {5, 0, 1, 2, 1},  {40, 0, 36, 2, 1},
                          {80, 1, 33, 1, 1}, {8, 0, 2, 3, 1}, {20, 0, 3, 4, 5}, {17, 1, 2, 2, 3}, {23, 0, 3, 3, 7}};
    for (int i = 0; i < COUNT(cases); i++) {
        trial t = trial_new("window");
        const int64_t *c = cases[i];
        shape s = c[1] ? (shape){2, {2, c[0]}} : (shape){2, {c[0], 2}};
        if (c[0] > 30) s.extents[!c[1]] = 1;
        node x = trial_input(&t, s, -1, 1), y = graph_window(t.g, x, (int)c[1], c[2], c[3], c[4]);
        trial_check(&t, graph_binary(t.g, OP_MUL, y, y), c[0] > 30 ? 1 : 2);
        trial_end(&t);
    }
}

TEST(concatenation)
{
    trial t = trial_new("concat");
    node a = trial_input(&t, (shape){2, {2, 3}}, -1, 1), b = trial_input(&t, (shape){2, {2, 1}}, -1, 1);
    node c = trial_input(&t, (shape){2, {2, 0}}, -1, 1);
    node y = graph_concat(t.g, (node[]){a, b, c, a}, 4, 1);
    trial_check(&t, graph_binary(t.g, OP_MUL, y, y), 2);
    trial_end(&t);
}

/* ---- folds ---- */

TEST(reductions)
{
    fold_kind folds[] = {FOLD_SUM, FOLD_PROD, FOLD_MAX, FOLD_MIN};
    for (int f = 0; f < COUNT(folds); f++) {
        for (unsigned set = 0; set < 8; set++) {
            trial t = trial_new(fold_names[folds[f]]);
            node x = trial_input(&t, (shape){3, {2, 3, 2}}, 0.5, 1.5), y = graph_reduce(t.g, folds[f], x, set);
            trial_check(&t, graph_binary(t.g, OP_MUL, y, y), 2);
            trial_end(&t);
        }
        trial t = trial_new(fold_names[folds[f]]);
        node x = trial_input(&t, (shape){2, {3, 0}}, 0.5, 1.5), y = graph_reduce(t.g, folds[f], x, f < 2 ? 2 : 1);
        trial_check(&t, graph_binary(t.g, OP_MUL, y, y), 2);
        trial_end(&t);
    }
}

TEST(products_with_zeros_among_the_factors)
{
    trial t = trial_new("prod");
    node x = trial_input(&t, (shape){2, {4, 3}}, 0.5, 1.5);
    t.data[0][0] = t.data[0][3] = t.data[0][4] = t.data[0][8] = 0; /* rows with one, two and one zero */
    trial_check(&t, graph_reduce(t.g, FOLD_PROD, x, 2), 1);
    trial_check(&t, graph_reduce(t.g, FOLD_PROD, x, 3), 1);
    for (int axis = 0; axis < 2; axis++) trial_check(&t, graph_scan(t.g, FOLD_PROD, x, axis), 1);
    trial_end(&t);
}

TEST(scans)
{
    fold_kind folds[] = {FOLD_SUM, FOLD_PROD, FOLD_MAX, FOLD_MIN};
    shape shapes[] = {{1, {6}}, {2, {3, 4}}, {2, {2, 1}}, {2, {0, 2}}, {3, {2, 3, 2}}};
    for (int f = 0; f < COUNT(folds); f++)
        for (int k = 0; k < COUNT(shapes); k++)
            for (int axis = 0; axis < shapes[k].rank; axis++) {
                trial t = trial_new(fold_names[folds[f]]);
                node x = trial_input(&t, shapes[k], 0.5, 1.5), y = graph_scan(t.g, folds[f], x, axis);
                trial_check(&t, graph_binary(t.g, OP_MUL, y, y), 2);
                trial_end(&t);
            }
}

TEST(dots)
{
    shape shapes[][2] = {{{2, {2, 3}}, {2, {3, 4}}},
                         {{2, {1, 1}}, {2, {1, 1}}},
                         {{2, {2, 0}}, {2, {0, 3}}},
                         {{3, {2, 2, 3}}, {3, {2, 3, 2}}},
                         {{2, {1, 4}}, {2, {4, 1}}},
                         {{2, {0, 2}}, {2, {2, 2}}},
                         {{4, {2, 1, 2, 2}}, {4, {2, 1, 2, 3}}}};
    for (int k = 0; k < COUNT(shapes); k++) {
        trial t = trial_new("dot");
        node a = trial_input(&t, shapes[k][0], -1, 1), b = trial_input(&t, shapes[k][1], -1, 1);
        trial_check(&t, graph_dot(t.g, a, b, DT_F64, false), 2);
        trial_end(&t);
    }
    trial t = trial_new("dot of halves into f32");
    node a = trial_input(&t, (shape){2, {2, 3}}, -1, 1), b = trial_input(&t, (shape){2, {3, 2}}, -1, 1);
    node y = graph_dot(t.g, graph_convert(t.g, a, DT_BF16), graph_convert(t.g, b, DT_BF16), DT_F32, false);
    trial_check(&t, graph_binary(t.g, OP_MUL, y, y), 2);
    trial_end(&t);
}

/* ---- by index ---- */

TEST(take_and_gather)
{
    shape places[] = {{0}, {1, {4}}, {2, {2, 3}}, {1, {0}}};
    for (int axis = 0; axis < 2; axis++)
        for (int k = 0; k < COUNT(places); k++) {
            trial t = trial_new("take");
            node x = trial_input(&t, (shape){2, {3, 2}}, -1, 1), index = trial_index(&t, places[k], axis ? 2 : 3);
            node y = graph_take(t.g, x, index, axis);
            trial_check(&t, graph_binary(t.g, OP_MUL, y, y), 2);
            node updates = trial_input(&t, t.g->nodes[y].shape, -1, 1);
            y = graph_take_add(t.g, graph_binary(t.g, OP_MUL, x, x), index, updates, axis);
            trial_check(&t, graph_binary(t.g, OP_MUL, y, y), 2);
            trial_end(&t);
        }
    for (int axis = 0; axis < 2; axis++)
        for (int64_t count = 0; count < 5; count += 2) {
            trial t = trial_new("gather");
            node x = trial_input(&t, (shape){2, {3, 2}}, -1, 1);
            shape s = axis ? (shape){2, {3, count}} : (shape){2, {count, 2}};
            node index = trial_index(&t, s, axis ? 2 : 3), y = graph_gather(t.g, x, index, axis);
            trial_check(&t, graph_binary(t.g, OP_MUL, y, y), 2);
            node updates = trial_input(&t, s, -1, 1);
            y = graph_gather_add(t.g, graph_binary(t.g, OP_MUL, x, x), index, updates, axis);
            trial_check(&t, graph_binary(t.g, OP_MUL, y, y), 2);
            trial_end(&t);
        }
}

TEST(sorting)
{
    trial t = trial_new("sort");
    node x = trial_input(&t, (shape){2, {3, 5}}, -1, 1);
    node y = graph_gather(t.g, x, graph_argsort(t.g, x, 1, true), 1);
    trial_check(&t, graph_binary(t.g, OP_MUL, y, y), 2);
    trial_end(&t);
}

TEST_MAIN(CASE(every_elementwise_op_of_floats), CASE(operands_used_twice), CASE(powers_by_a_number),
          CASE(selection_and_conversion), CASE(reshape_permute_expand), CASE(slices), CASE(padding), CASE(windows),
          CASE(concatenation), CASE(reductions), CASE(products_with_zeros_among_the_factors), CASE(scans), CASE(dots),
          CASE(take_and_gather), CASE(sorting))
