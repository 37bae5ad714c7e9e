/*
 * Random numbers: Philox4x32-10 with the tape's seed as key and (offset / 4, element) as counter, so that an element
 * gets the same number on every device and, for small tensors, the one PyTorch gives on CUDA. The state {seed, offset}
 * is a variable: drawing numbers assigns offset + 4, which makes the advance part of the graph and of recorded steps.
 * SPDX-License-Identifier: MIT
 */
#include "tensor/ops.h"

#define OFFSET_STEP 4 /* words a call of PyTorch uses up */

/* The state as a variable of the outermost scope, made from {seed, 0} at the first need. */
static tape_slot *state_of(qn_tape *tape, uint64_t seed)
{
    graph *g = tape->graph;
    tape_slot *slot = tape_slot_of(tape->random_state);
    if (slot) return slot;
    shape two = {1, {2}};
    int scope = tape->scope;
    node start = graph_binary(g, OP_SUB, graph_full(g, DT_U64, &two, (number){.i = 1}),
                              graph_convert(g, graph_iota(g, 2), DT_U64)); /* 1, 0 */
    node initial = graph_binary(g, OP_MUL, start, graph_full(g, DT_U64, &two, (number){.i = (int64_t)seed}));
    tape->scope = 0;
    qn_tensor value = tape_handle(tape, initial);
    const char *label = g->label;
    tape->random_state = qn_variable(value);
    g->label = label;
    qn_release(value);
    tape->scope = scope;
    return tape_slot_of(tape->random_state);
}

void qn_seed(qn_tape *tape, uint64_t seed)
{
    if (!tape_enter(tape, "seed")) return;
    qn_tensor old = tape->random_state;
    tape->random_state = (qn_tensor){0};
    state_of(tape, seed);
    tape->random_leaf = 0;
    qn_release(old);
}
