/*
 * Random numbers: Philox4x32-10 with the tape's seed as key and (offset / 4, element) as counter, so that an element
 * gets the same number on every device and, for small tensors, the one PyTorch gives on CUDA. The state {seed, offset}
 * is a variable: drawing numbers assigns offset + 4, which makes the advance part of the graph and of recorded steps.
 * Several draws before an evaluation all count from the state they began with, so that none waits for another.
 * SPDX-License-Identifier: MIT
 */
#include "tensor/ops.h"

#include "ir/graph_build.h"

#include <math.h>

#define OFFSET_STEP 4 /* words that a call of PyTorch uses up */

/* {seed, 0}: from memory, so that no kernel has a seed in its text; on a tape that never runs, by arithmetic. */
static node first_state(qn_tape *tape, uint64_t seed)
{
    graph *g = tape->graph;
    shape two = {1, {2}};
    if (!tape->context) {
        node one_zero = graph_binary(g, OP_SUB, graph_full(g, DT_U64, &two, (number){.i = 1}),
                                     graph_convert(g, graph_iota(g, 2), DT_U64));
        return graph_binary(g, OP_MUL, one_zero, graph_full(g, DT_U64, &two, (number){.i = (int64_t)seed}));
    }
    const uint64_t words[2] = {seed, 0};
    return tape_leaf_from(tape, DT_U64, &two, words);
}

/* The state's slot, of the outermost scope; made at the first need. NULL: the error is recorded. */
static tape_slot *state_slot(qn_tape *tape)
{
    tape_slot *slot = tape_slot_of(tape->random_state);
    if (slot) return slot;
    tape->random_state = tape_variable(tape, first_state(tape, 0));
    slot = tape_slot_of(tape->random_state);
    if (slot) slot->scope = 0;
    return slot;
}

void qn_seed(qn_tape *tape, uint64_t seed)
{
    if (!tape_enter(tape, "seed") || !state_slot(tape)) return;
    tape_assign_slot(tape, tape->random_state.slot, first_state(tape, seed));
}

/* The state after so many draws from `base`. */
static node advanced(graph *g, node base, int64_t steps)
{
    if (!steps) return base;
    shape two = {1, {2}};
    node weights = graph_convert(g, graph_iota(g, 2), DT_U64); /* 0, 1 */
    node more = graph_binary(g, OP_MUL, weights, graph_full(g, DT_U64, &two, (number){.i = OFFSET_STEP * steps}));
    return graph_binary(g, OP_ADD, base, more);
}

/* Word `index` of the state for every element. */
static node state_word(graph *g, node state, int index, const shape *s)
{
    node word = tensor_slice(g, state, 0, index, index + 1, 1);
    return tensor_broadcast(g, "random", tensor_drop(g, word, 1), s);
}

/* Words of random bits from a seed and an offset / 4, both of shape s. */
static bool words_of(graph *g, node seed, node offset, const shape *s, int count, node *words)
{
    node element = graph_reshape(g, graph_iota(g, shape_count(s)), s);
    for (int i = 0; i < count; i++)
        words[i] = graph_map_index(g, OP_PHILOX, i, DT_U32, (node[]){seed, offset, element}, 3);
    return words[0] != 0;
}

/* The same, of a seed of its own: the tape's state stays as it is. */
static bool random_of_seed(qn_tape *tape, uint64_t seed, const shape *s, int count, node *words)
{
    graph *g = tape->graph;
    node state = first_state(tape, seed);
    node key = state ? state_word(g, state, 0, s) : 0, offset = state ? state_word(g, state, 1, s) : 0;
    return key && offset && words_of(g, key, offset, s, count, words);
}

bool tensor_random(qn_tape *tape, const shape *s, int count, node *words)
{
    graph *g = tape->graph;
    const tape_slot *slot = state_slot(tape);
    if (!slot) return false;
    if (!tape->random_base || advanced(g, tape->random_base, tape->random_steps) != slot->node) {
        tape->random_base = slot->node;
        tape->random_steps = 0;
    }
    node base = tape->random_base, seed = state_word(g, base, 0, s), offset = state_word(g, base, 1, s);
    if (!seed || !offset) return false;
    offset = graph_binary(g, OP_DIV, offset, tensor_number(g, offset, OFFSET_STEP));
    offset = graph_binary(g, OP_ADD, offset, tensor_number(g, offset, (double)tape->random_steps));
    if (!words_of(g, seed, offset, s, count, words)) return false;
    tape->random_steps++;
    tape_assign_slot(tape, tape->random_state.slot, advanced(g, base, tape->random_steps));
    return true;
}

/* The least word whose number in (0, 1] is not below `bound`; 2^32: none is. */
static uint64_t least_word(float bound)
{
    uint64_t low = 0, high = (uint64_t)1 << 32;
    while (low < high) {
        uint64_t middle = (low + high) / 2;
        bool below = (float)middle * 0x1p-32f + 0x1p-33f < bound;
        *(below ? &low : &high) = below ? middle + 1 : middle;
    }
    return low;
}

node tensor_kept(qn_tape *tape, const shape *s, double p)
{
    graph *g = tape->graph;
    uint64_t first = least_word((float)p), end = least_word(1); /* from there on ones, which are zeros */
    node word;
    if (!tensor_random(tape, s, 1, &word)) return 0;
    node from = graph_full(g, DT_U32, s, (number){.i = (int64_t)MINIMUM(first, UINT32_MAX)});
    node count = graph_full(g, DT_U32, s, (number){.i = first < end ? (int64_t)(end - first) : 0});
    return graph_binary(g, OP_LT, graph_binary(g, OP_SUB, word, from), count);
}

/* word * scale + scale / 2 */
static node unit(graph *g, node word, double scale)
{
    node x = graph_convert(g, word, DT_F32);
    return tensor_scalar(g, OP_ADD, tensor_scalar(g, OP_MUL, x, scale, false), scale / 2, false);
}

static node uniform(graph *g, node word)
{
    node x = unit(g, word, 0x1p-32); /* in (0, 1]: rounding makes ones, which PyTorch turns to zeros */
    return graph_select(g, tensor_scalar(g, OP_EQ, x, 1, false), tensor_number(g, x, 0), x);
}

node tensor_uniform(qn_tape *tape, const shape *s)
{
    node word;
    return tensor_random(tape, s, 1, &word) ? uniform(tape->graph, word) : 0;
}

static node normal(graph *g, const node words[2])
{
    node logarithm = graph_unary(g, OP_LOG, unit(g, words[0], 0x1p-32));
    node radius = graph_unary(g, OP_SQRT, tensor_scalar(g, OP_MUL, logarithm, -2, false));
    node angle = unit(g, words[1], 0x1p-32 * 2 * 3.14159265358979323846);
    return graph_binary(g, OP_MUL, radius, graph_unary(g, OP_SIN, angle));
}

static bool begin(qn_tape *tape, const char *op, qn_dtype type, const shape *s)
{
    if (!tape_enter(tape, op) || tape->graph->status) return false;
    if (!tape_type(tape, op, type) || !graph_shape_fits(tape->graph, op, s)) return false;
    if (dtype_is_float((dtype)type)) return true;
    graph_fail(tape->graph, op, "it gives floats, not %s", dtypes[type].text);
    return false;
}

qn_tensor qn_rand(qn_tape *tape, qn_dtype type, qn_shape extents)
{
    shape s = shape_from_public(extents);
    if (!begin(tape, "rand", type, &s)) return tape_failed();
    return tape_handle(tape, graph_convert(tape->graph, tensor_uniform(tape, &s), (dtype)type));
}

qn_tensor qn_randn(qn_tape *tape, qn_dtype type, qn_shape extents)
{
    shape s = shape_from_public(extents);
    node words[2];
    if (!begin(tape, "randn", type, &s) || !tensor_random(tape, &s, 2, words)) return tape_failed();
    return tape_handle(tape, graph_convert(tape->graph, normal(tape->graph, words), (dtype)type));
}

qn_tensor qn_rand_seeded(qn_tape *tape, uint64_t seed, qn_dtype type, qn_shape extents)
{
    shape s = shape_from_public(extents);
    node word;
    if (!begin(tape, "rand_seeded", type, &s) || !random_of_seed(tape, seed, &s, 1, &word)) return tape_failed();
    return tape_handle(tape, graph_convert(tape->graph, uniform(tape->graph, word), (dtype)type));
}

qn_tensor qn_randn_seeded(qn_tape *tape, uint64_t seed, qn_dtype type, qn_shape extents)
{
    shape s = shape_from_public(extents);
    node words[2];
    if (!begin(tape, "randn_seeded", type, &s) || !random_of_seed(tape, seed, &s, 2, words)) return tape_failed();
    return tape_handle(tape, graph_convert(tape->graph, normal(tape->graph, words), (dtype)type));
}

qn_tensor qn_random_state(qn_tape *tape)
{
    if (!tape_enter(tape, "random_state") || !state_slot(tape)) return tape_failed();
    return tape->random_state;
}
