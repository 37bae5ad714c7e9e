/*
 * The graph interpreter against values worked out by hand: every op of graph_ops.def once or more, views of leaves,
 * empty extents, rounding of each op and the exact way without it, indices that lie outside.
 * SPDX-License-Identifier: MIT
 */
#include "ir/graph_interp.h"
#include "ir/interp.h"
#include "test.h"

#include <stdlib.h>

static arena *memory;
static graph *g;

static void start(void)
{
    memory = arena_new();
    g = graph_new(memory);
}

static node leaf_f32(shape s, const float *data)
{
    return graph_leaf(g, DT_F32, &s, NULL, 0, (void *)data);
}

static node leaf_i64(shape s, const int64_t *data)
{
    return graph_leaf(g, DT_I64, &s, NULL, 0, (void *)data);
}

/* "f32[2, 3]: 1 2 3 4 5 6" */
static const char *show(node n, bool exact)
{
    static char words[2000];
    graph_tensor t;
    qn_error error;
    if (!n || graph_interpret(g, &n, 1, NULL, exact, memory, &t, &error)) {
        snprintf(words, sizeof(words), "%.1900s", n ? error.message : g->error.message);
        return words;
    }
    text out = {0};
    text_add(&out, dtypes[t.elem].text);
    shape_print(&t.shape, &out);
    text_add(&out, ":");
    for (int64_t j = 0; j < t.count; j++) {
        text_add(&out, " ");
        if (dtype_is_float(t.elem))
            text_print(&out, "%.9g", t.elements[j].f);
        else
            text_print(&out, "%lld", (long long)t.elements[j].i);
    }
    snprintf(words, sizeof(words), "%s", text_get(&out));
    text_free(&out);
    return words;
}

#define SHOWS(n, words) EXPECT_TEXT(show(n, false), words)

static const float ramp[] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12};

TEST(leaves_are_views_of_memory)
{
    start();
    shape s = {2, {3, 2}};
    SHOWS(leaf_f32(s, ramp), "f32[3, 2]: 1 2 3 4 5 6");
    SHOWS(graph_leaf(g, DT_F32, &s, (int64_t[]){-2, 0}, 4, (void *)ramp), "f32[3, 2]: 5 5 3 3 1 1");
    SHOWS(graph_leaf(g, DT_F32, &(shape){0}, NULL, 7, (void *)ramp), "f32[]: 8");
    SHOWS(graph_leaf(g, DT_F32, &(shape){1, {0}}, NULL, 0, NULL), "f32[0]:");
    SHOWS(graph_leaf(g, DT_F32, &s, NULL, 0, NULL), "a leaf of the graph has no memory");
    SHOWS(graph_full_double(g, DT_BF16, &(shape){1, {2}}, 1.001), "bf16[2]: 1 1");
    SHOWS(graph_full_double(g, DT_I8, &(shape){1, {1}}, 200), "i8[1]: -56");
    SHOWS(graph_iota(g, 4), "i64[4]: 0 1 2 3");
    arena_free(memory);
}

TEST(maps_have_the_meaning_of_their_ops)
{
    start();
    node x = leaf_f32((shape){1, {3}}, ramp), y = leaf_f32((shape){1, {3}}, ramp + 3);
    SHOWS(graph_binary(g, OP_ADD, x, y), "f32[3]: 5 7 9");
    SHOWS(graph_unary(g, OP_NEG, x), "f32[3]: -1 -2 -3");
    node less = graph_binary(g, OP_LT, x, graph_full_double(g, DT_F32, &(shape){1, {3}}, 2.5));
    SHOWS(less, "bool[3]: 1 1 0");
    SHOWS(graph_select(g, less, x, y), "f32[3]: 1 2 6");
    SHOWS(graph_convert(g, graph_binary(g, OP_DIV, y, x), DT_I32), "i32[3]: 4 2 2");
    SHOWS(graph_map(g, OP_BITCAST, DT_U32, &x, 1), "u32[3]: 1065353216 1073741824 1077936128");
    SHOWS(graph_map(g, OP_FMA, DT_F32, (node[]){x, y, y}, 3), "f32[3]: 8 15 24");
    node i = graph_iota(g, 3), three = graph_full_double(g, DT_U8, &(shape){1, {3}}, 3);
    SHOWS(graph_binary(g, OP_SHL, i, three), "i64[3]: 0 8 16");
    node seed = graph_full_double(g, DT_U64, &(shape){1, {3}}, 7);
    uint32_t words[4];
    philox_words(7, 7, 2, words);
    graph_tensor t;
    node random = graph_map_index(g, OP_PHILOX, 3, DT_U32, (node[]){seed, seed, i}, 3);
    EXPECT(!graph_interpret(g, &random, 1, NULL, false, memory, &t, NULL));
    EXPECT(t.elem == DT_U32 && t.elements[2].i == words[3]);
    for (int code = GRAPH_DETACH; code <= GRAPH_AGAIN; code++)
        SHOWS(graph_same(g, (graph_code)code, x, 1), "f32[3]: 1 2 3");
    arena_free(memory);
}

TEST(each_op_rounds_unless_exact)
{
    start();
    float third = 1.0f / 3;
    node x = graph_convert(g, leaf_f32((shape){1, {1}}, &third), DT_BF16); /* 0.333984375 */
    node y = graph_binary(g, OP_ADD, x, graph_full_double(g, DT_BF16, &(shape){1, {1}}, 8));
    node z = graph_binary(g, OP_SUB, y, graph_full_double(g, DT_BF16, &(shape){1, {1}}, 8));
    SHOWS(z, "bf16[1]: 0.3125");
    EXPECT_TEXT(show(graph_convert(g, z, DT_F64), true), "f64[1]: 0.333333343");
    node byte = graph_full_double(g, DT_I8, &(shape){1, {1}}, 100);
    EXPECT_TEXT(show(graph_binary(g, OP_ADD, byte, byte), true), "i8[1]: -56");
    arena_free(memory);
}

TEST(movement)
{
    start();
    node x = leaf_f32((shape){2, {2, 3}}, ramp);
    SHOWS(graph_reshape(g, x, &(shape){2, {3, 2}}), "f32[3, 2]: 1 2 3 4 5 6");
    SHOWS(graph_permute(g, x, (int[]){1, 0}), "f32[3, 2]: 1 4 2 5 3 6");
    node cube = leaf_f32((shape){3, {1, 2, 3}}, ramp);
    SHOWS(graph_permute(g, cube, (int[]){2, 0, 1}), "f32[3, 1, 2]: 1 4 2 5 3 6");
    SHOWS(graph_expand(g, cube, &(shape){3, {2, 2, 3}}), "f32[2, 2, 3]: 1 2 3 4 5 6 1 2 3 4 5 6");
    SHOWS(graph_slice(g, x, (int64_t[]){1, 2}, (int64_t[]){1, -2}, &(shape){2, {1, 2}}), "f32[1, 2]: 6 4");
    node line = leaf_f32((shape){1, {6}}, ramp);
    SHOWS(graph_window(g, line, 0, 2, 2, 3), "f32[2, 2]: 1 4 3 6");
    SHOWS(graph_window(g, x, 1, 2, 1, 1), "f32[2, 2, 2]: 1 2 2 3 4 5 5 6");
    number fill = {.f = 9};
    SHOWS(graph_pad(g, x, (int64_t[]){1, -1}, NULL, &(shape){2, {4, 3}}, fill), "f32[4, 3]: 9 9 9 2 3 9 5 6 9 9 9 9");
    SHOWS(graph_pad(g, line, (int64_t[]){1}, (int64_t[]){3}, &(shape){1, {8}}, fill), "f32[8]: 9 1 9 9 2 9 9 3");
    SHOWS(graph_pad(g, line, (int64_t[]){-2}, (int64_t[]){3}, &(shape){1, {5}}, fill), "f32[5]: 9 2 9 9 3");
    SHOWS(graph_concat(g, (node[]){x, graph_full_double(g, DT_F32, &(shape){2, {2, 0}}, 0), x}, 3, 1),
          "f32[2, 6]: 1 2 3 1 2 3 4 5 6 4 5 6");
    SHOWS(graph_concat(g, (node[]){x, x}, 2, 0), "f32[4, 3]: 1 2 3 4 5 6 1 2 3 4 5 6");
    arena_free(memory);
}

TEST(folds)
{
    start();
    node x = leaf_f32((shape){2, {2, 3}}, ramp), none = leaf_f32((shape){2, {2, 0}}, ramp);
    SHOWS(graph_reduce(g, FOLD_SUM, x, 2), "f32[2, 1]: 6 15");
    SHOWS(graph_reduce(g, FOLD_PROD, x, 1), "f32[1, 3]: 4 10 18");
    SHOWS(graph_reduce(g, FOLD_MAX, x, 3), "f32[1, 1]: 6");
    SHOWS(graph_reduce(g, FOLD_SUM, none, 2), "f32[2, 1]: 0 0");
    SHOWS(graph_reduce(g, FOLD_PROD, none, 3), "f32[1, 1]: 1");
    SHOWS(graph_reduce(g, FOLD_ARGMAX, x, 1), "i64[1, 3]: 1 1 1");
    SHOWS(graph_reduce(g, FOLD_ARGMIN, graph_unary(g, OP_NEG, x), 2), "i64[2, 1]: 2 2");
    node odd = graph_binary(g, OP_GT, x, graph_full_double(g, DT_F32, &(shape){2, {2, 3}}, 3));
    SHOWS(graph_reduce(g, FOLD_ANY, odd, 2), "bool[2, 1]: 0 1");
    SHOWS(graph_reduce(g, FOLD_ALL, odd, 1), "bool[1, 3]: 0 0 0");
    SHOWS(graph_scan(g, FOLD_SUM, x, 1), "f32[2, 3]: 1 3 6 4 9 15");
    SHOWS(graph_scan(g, FOLD_PROD, x, 0), "f32[2, 3]: 1 2 3 4 10 18");
    SHOWS(graph_dot(g, x, graph_permute(g, x, (int[]){1, 0}), DT_F32, false), "f32[2, 2]: 14 32 32 77");
    SHOWS(graph_dot(g, none, graph_permute(g, none, (int[]){1, 0}), DT_F32, false), "f32[2, 2]: 0 0 0 0");
    node byte = graph_convert(g, leaf_f32((shape){3, {2, 1, 2}}, ramp), DT_I8);
    SHOWS(graph_dot(g, byte, graph_reshape(g, byte, &(shape){3, {2, 2, 1}}), DT_I32, false), "i32[2, 1, 1]: 5 25");
    arena_free(memory);
}

TEST(argsort_is_stable_and_knows_nan)
{
    start();
    static const float data[] = {3, NAN, 1, 3, -INFINITY, 1};
    node x = leaf_f32((shape){1, {6}}, data), columns = leaf_f32((shape){2, {3, 2}}, data);
    SHOWS(graph_argsort(g, x, 0, false), "i64[6]: 4 2 5 0 3 1");
    SHOWS(graph_argsort(g, x, 0, true), "i64[6]: 1 0 3 2 5 4");
    SHOWS(graph_argsort(g, columns, 0, false), "i64[3, 2]: 2 2 1 1 0 0");
    arena_free(memory);
}

TEST(access_by_index)
{
    start();
    static const int64_t two[] = {2, 0, 2, 1}, far[] = {1, 3};
    node x = leaf_f32((shape){2, {2, 3}}, ramp), index = leaf_i64((shape){2, {2, 2}}, two);
    node flat = leaf_i64((shape){1, {2}}, two);
    SHOWS(graph_take(g, x, index, 1), "f32[2, 2, 2]: 3 1 3 2 6 4 6 5");
    SHOWS(graph_take(g, graph_permute(g, x, (int[]){1, 0}), flat, 0), "f32[2, 2]: 3 6 1 4");
    SHOWS(graph_take(g, x, graph_leaf(g, DT_I64, &(shape){0}, NULL, 3, (void *)two), 1), "f32[2]: 2 5");
    SHOWS(graph_gather(g, x, index, 1), "f32[2, 2]: 3 1 6 5");
    node base = graph_full_double(g, DT_F32, &(shape){2, {2, 3}}, 100);
    SHOWS(graph_gather_add(g, base, index, graph_slice(g, x, (int64_t[]){0, 0}, (int64_t[]){1, 1}, &(shape){2, {2, 2}}),
                           1),
          "f32[2, 3]: 102 100 101 100 105 104");
    SHOWS(graph_take_add(g, base, flat, leaf_f32((shape){2, {2, 2}}, ramp), 1), "f32[2, 3]: 102 100 101 104 100 103");
    node same = leaf_i64((shape){1, {3}}, (int64_t[]){1, 1, 1});
    SHOWS(graph_take_add(g, base, same, leaf_f32((shape){2, {3, 3}}, ramp), 0), "f32[2, 3]: 100 100 100 112 115 118");
    SHOWS(graph_take(g, x, leaf_i64((shape){1, {2}}, far), 1), "take: the index 3 lies outside axis 1 of extent 3");
    arena_free(memory);
}

/* A kernel that doubles its first input and gives the sum of it as the second output. */
static qn_status twice(void *context, const graph_node *kernel, const graph_tensor *inputs, graph_tensor *outputs,
                       qn_error *error)
{
    (void)context, (void)error;
    EXPECT(kernel->input_count == 1 && inputs[0].count == 3);
    for (int64_t j = 0; j < inputs[0].count; j++) {
        outputs[0].elements[j].f = 2 * inputs[0].elements[j].f;
        outputs[1].elements[0].f += inputs[0].elements[j].f;
    }
    return QN_OK;
}

static const void *second_half(void *context, const graph_node *leaf)
{
    (void)leaf;
    return (const float *)context + 3;
}

TEST(kernels_and_memory_are_the_callers)
{
    start();
    graph_kernel k = {.name = "twice",
                      .output_count = 2,
                      .output_elem = {DT_F32, DT_F64},
                      .output_shape = {{1, {3}}, {0}},
                      .identity = 1};
    node x = leaf_f32((shape){1, {3}}, ramp), call = graph_kernel_call(g, &k, &x, 1);
    node wanted[2] = {graph_result(g, call, 0), graph_result(g, call, 1)};
    graph_tensor t[2];
    qn_error error;
    EXPECT(graph_interpret(g, wanted, 2, NULL, false, memory, t, &error) == QN_BAD_CALL);
    EXPECT_TEXT(error.message, "twice: there is nothing here to run a kernel with");
    graph_memory where = {second_half, twice, (void *)ramp};
    EXPECT(graph_interpret(g, wanted, 2, &where, false, memory, t, &error) == QN_OK);
    EXPECT(t[0].elements[2].f == 12 && t[1].elements[0].f == 15 && t[1].count == 1);
    float bytes[3];
    graph_tensor_write(&t[0], bytes);
    graph_tensor again = graph_tensor_read(DT_F32, &t[0].shape, bytes, memory);
    EXPECT(bytes[1] == 10 && again.elements[1].f == 10);
    arena_free(memory);
}

TEST_MAIN(CASE(leaves_are_views_of_memory), CASE(maps_have_the_meaning_of_their_ops), CASE(each_op_rounds_unless_exact),
          CASE(movement), CASE(folds), CASE(argsort_is_stable_and_knows_nan), CASE(access_by_index),
          CASE(kernels_and_memory_are_the_callers))
