/*
 * Recompute or keep: what a backward needs of its forward and is cheaper to compute again does not go through memory;
 * peaks of memory with and without checkpoints. Every plan runs in the checking interpreter and agrees with the graph's
 * meaning.
 * SPDX-License-Identifier: MIT
 */
#include "fuse_run.h"
#include "tensor/grad.h"

static arena *memory;
static graph *g;
static const shape ROWS = {2, {24, 16}}, WEIGHTS = {2, {16, 16}};

static void begin(void)
{
    memory = arena_new();
    g = graph_new(memory);
}

static node leaf(const shape *s)
{
    return kernel_leaf(memory, g, DT_F32, *s, -1, 1);
}

static node number_like(node x, double value)
{
    shape s = graph_get(g, x)->shape;
    return graph_full_double(g, DT_F32, &s, value);
}

static node product(node a, node b)
{
    return graph_dot(g, a, b, DT_F32, false);
}

/* sum(y * y) and its gradients by inputs, planned, run and compared; the plan is that of these results. */
static fuse_plan *train(node y, const node *inputs, int count, fuse_mode mode)
{
    node wanted[32];
    wanted[0] = graph_reduce(g, FOLD_SUM, graph_binary(g, OP_MUL, y, y), 3);
    EXPECT(graph_gradient(g, wanted[0], inputs, count, wanted + 1));
    fuse_options options = {.mode = mode, .units = 2};
    EXPECT(fuse_run_expect(memory, g, wanted, 1 + count, &options, 1e-4) > 0);
    return fuse_run_plan(memory, g, wanted, 1 + count, NULL, 0, &options).plan;
}

static bool is_written(const fuse_plan *plan, node n)
{
    for (int k = 0; k < plan->kernel_count; k++)
        for (int w = 0; w < plan->kernels[k].write_count; w++)
            if (plan->kernels[k].writes[w] == n) return true;
    return false;
}

static int times_computed(const fuse_plan *plan, node n)
{
    int count = 0;
    for (int k = 0; k < plan->kernel_count; k++)
        for (int i = 0; i < plan->kernels[k].node_count; i++) count += plan->kernels[k].nodes[i] == n;
    return count;
}

TEST(masks_are_computed_where_they_are_needed)
{
    for (int mode = 0; mode < 2; mode++) {
        begin();
        static uint64_t state[2] = {5, 7};
        int64_t count = shape_count(&ROWS), zero = 0, one = 1;
        shape flat = {1, {count}}, single = {1, {1}};
        node x = leaf(&ROWS), w1 = leaf(&WEIGHTS), w2 = leaf(&WEIGHTS);
        node both = graph_leaf(g, DT_U64, &(shape){1, {2}}, NULL, 0, state);
        node seed = graph_expand(g, graph_slice(g, both, &zero, &one, &single), &flat);
        node offset = graph_expand(g, graph_slice(g, both, &one, &one, &single), &flat);
        node bits = graph_map(g, OP_PHILOX, DT_U32, (node[]){seed, offset, graph_iota(g, count)}, 3);
        node uniform = graph_convert(g, graph_reshape(g, bits, &ROWS), DT_F32);
        node mask = graph_binary(g, OP_GT, uniform, number_like(uniform, 1e9));
        node h = product(x, w1), kept = graph_binary(g, OP_MUL, h, number_like(h, 1.3));
        node y = product(graph_select(g, mask, kept, number_like(h, 0)), w2);
        fuse_plan *plan = train(y, (node[]){x, w1, w2}, 3, mode ? FUSE_STRICT : FUSE_FUSED);
        EXPECT(!is_written(plan, bits) && !is_written(plan, uniform));
        EXPECT(!is_written(plan, mask) && times_computed(plan, mask) == 2);
        arena_free(memory);
    }
}

TEST(a_chain_on_an_input_is_computed_again)
{
    begin();
    node x = leaf(&ROWS), w = leaf(&WEIGHTS), t = graph_unary(g, OP_TANH, x), e = graph_unary(g, OP_EXP, t);
    fuse_plan *plan = train(product(graph_unary(g, OP_SIN, e), w), (node[]){x, w}, 2, FUSE_FUSED);
    EXPECT(!is_written(plan, t) && !is_written(plan, e) && times_computed(plan, e) == 2);
    arena_free(memory);
}

/* GELU spelled out: beside the activation one value is kept, not the four that its derivative is made of. */
TEST(one_base_is_kept_for_many)
{
    begin();
    node x = leaf(&ROWS), w1 = leaf(&WEIGHTS), w2 = leaf(&WEIGHTS), h = product(x, w1);
    node e = graph_unary(g, OP_ERF, graph_binary(g, OP_MUL, h, number_like(h, 0.70710678)));
    node half = graph_binary(g, OP_MUL, h, number_like(h, 0.5));
    node a = graph_binary(g, OP_MUL, half, graph_binary(g, OP_ADD, number_like(h, 1), e));
    fuse_plan *plan = train(product(a, w2), (node[]){x, w1, w2}, 3, FUSE_FUSED);
    int64_t rows_written = 0;
    for (int k = 0; k < plan->kernel_count; k++)
        for (int w = 0; w < plan->kernels[k].write_count; w++) {
            node n = plan->kernels[k].writes[w];
            rows_written += shape_same(&graph_get(g, n)->shape, &ROWS) && n <= a;
        }
    EXPECT(rows_written == 2 && is_written(plan, a));
    arena_free(memory);
}

/* A value that is costly many times over, or not of arithmetic, is kept. */
TEST(costly_values_are_kept)
{
    begin();
    node x = leaf(&ROWS), w = leaf(&WEIGHTS), deep = x;
    for (int i = 0; i < 6; i++) deep = graph_unary(g, OP_SIN, deep);
    node y = product(graph_unary(g, OP_EXP, deep), w);
    fuse_plan *plan = train(y, (node[]){x, w}, 2, FUSE_FUSED);
    int computed = 0;
    for (node n = x; n <= deep; n++) computed = MAXIMUM(computed, times_computed(plan, n));
    EXPECT(computed <= 2);
    arena_free(memory);
}

/* Layers of gelu(h w) with a checkpoint after every second one. */
TEST(checkpoints_lower_the_peak)
{
    int64_t peaks[2];
    for (int i = 0; i < 2; i++) {
        begin();
        shape tall = {2, {96, 16}};
        node inputs[13];
        node h = inputs[0] = leaf(&tall);
        for (int k = 0; k < 12; k++) {
            inputs[k + 1] = leaf(&WEIGHTS);
            h = graph_unary(g, OP_GELU, product(h, inputs[k + 1]));
            if (i && k % 3 == 2 && k < 11) h = graph_checkpoint(g, h);
        }
        peaks[i] = train(h, inputs, 13, FUSE_FUSED)->peak_bytes;
        arena_free(memory);
    }
    if (10 * peaks[1] >= 7 * peaks[0]) printf("%lld and %lld bytes\n", (long long)peaks[0], (long long)peaks[1]);
    EXPECT(10 * peaks[1] < 7 * peaks[0]);
}

TEST_MAIN(CASE(masks_are_computed_where_they_are_needed), CASE(a_chain_on_an_input_is_computed_again),
          CASE(one_base_is_kept_for_many), CASE(costly_values_are_kept), CASE(checkpoints_lower_the_peak))
