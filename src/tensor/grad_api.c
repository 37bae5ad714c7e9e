/*
 * qn_grad, qn_grad_from, qn_checkpoint: handles to nodes, the gradient of the graph, nodes to handles.
 * SPDX-License-Identifier: MIT
 */
#include "tensor/grad.h"
#include "tensor/tape.h"

#include <string.h>

void qn_grad(qn_tensor loss, const qn_tensor *inputs, int count, qn_tensor *gradients)
{
    if (count < 1) return;
    memset(gradients, 0, sizeof(qn_tensor) * (size_t)count);
    arena *memory = arena_new();
    qn_tensor *operands = ARENA_ARRAY(memory, qn_tensor, 1 + count);
    node *nodes = ARENA_ARRAY(memory, node, 1 + count), *out = ARENA_ARRAY(memory, node, count);
    operands[0] = loss;
    memcpy(operands + 1, inputs, sizeof(qn_tensor) * (size_t)count);
    qn_tape *tape = tape_begin("grad", operands, 1 + count, nodes);
    if (tape && graph_gradient(tape->graph, nodes[0], nodes + 1, count, out))
        for (int i = 0; i < count; i++) gradients[i] = tape_handle(tape, out[i]);
    arena_free(memory);
}

void qn_grad_from(const qn_tensor *outputs, const qn_tensor *seeds, int output_count, const qn_tensor *inputs,
                  int count, qn_tensor *gradients)
{
    if (count < 1) return;
    memset(gradients, 0, sizeof(qn_tensor) * (size_t)count);
    if (output_count < 1) return;
    arena *memory = arena_new();
    int operand_count = 2 * output_count + count;
    qn_tensor *operands = ARENA_ARRAY(memory, qn_tensor, operand_count);
    node *nodes = ARENA_ARRAY(memory, node, operand_count), *out = ARENA_ARRAY(memory, node, count);
    memcpy(operands, outputs, sizeof(qn_tensor) * (size_t)output_count);
    memcpy(operands + output_count, seeds, sizeof(qn_tensor) * (size_t)output_count);
    memcpy(operands + 2 * output_count, inputs, sizeof(qn_tensor) * (size_t)count);
    qn_tape *tape = tape_begin("grad", operands, operand_count, nodes);
    const node *d = nodes + output_count, *x = nodes + 2 * output_count;
    if (tape && graph_gradient_from(tape->graph, nodes, d, output_count, x, count, out))
        for (int i = 0; i < count; i++) gradients[i] = tape_handle(tape, out[i]);
    arena_free(memory);
}

qn_tensor qn_checkpoint(qn_tensor t)
{
    node n;
    qn_tape *tape = tape_begin("checkpoint", &t, 1, &n);
    return tape ? tape_handle(tape, graph_checkpoint(tape->graph, n)) : tape_failed();
}
