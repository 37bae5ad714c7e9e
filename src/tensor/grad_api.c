/*
 * qn_grad, qn_grad_from, qn_checkpoint: handles to nodes, the gradient of the graph, nodes to handles.
 * SPDX-License-Identifier: MIT
 */
#include "tensor/grad.h"
#include "tensor/tape.h"

#include <string.h>

typedef struct gradient_work {
    qn_tape *tape;
    const node *outputs, *seeds, *inputs; /* seeds NULL: of a loss */
    int output_count, count;
    node *out;
    bool good, over;
} gradient_work;

static qn_status find_gradient(void *context, qn_error *error)
{
    gradient_work *w = context;
    graph *g = w->tape->graph;
    (void)error;
    w->good = w->seeds ? graph_gradient_from(g, w->outputs, w->seeds, w->output_count, w->inputs, w->count, w->out)
                       : graph_gradient(g, w->outputs[0], w->inputs, w->count, w->out);
    w->over = true;
    return QN_OK;
}

/* A gradient that was asked for before: the nodes of the call and what it gave. They are the same for the same nodes, as long as
 * none got another number. */
typedef struct known_gradient {
    int64_t renumbered;
    bool of_loss;
    int output_count, count; /* 0: nothing is known here */
    node *nodes;             /* outputs, seeds, inputs, gradients */
    int capacity;
} known_gradient;
enum { KNOWN = 8 };

static known_gradient *known_place(const gradient_work *w)
{
    if (!w->tape->gradients) w->tape->gradients = ARENA_ARRAY(w->tape->memory, known_gradient, KNOWN);
    return &w->tape->gradients[w->outputs[0] % KNOWN];
}

static bool are_same(const node **at, const node *nodes, int count)
{
    bool same = !memcmp(*at, nodes, sizeof(node) * (size_t)count);
    *at += count;
    return same;
}

static bool is_known(const gradient_work *w)
{
    const known_gradient *k = known_place(w);
    if (!k->count || k->renumbered != w->tape->renumbered || k->of_loss != !w->seeds ||
        k->output_count != w->output_count || k->count != w->count)
        return false;
    const node *at = k->nodes;
    if (!are_same(&at, w->outputs, w->output_count) || (w->seeds && !are_same(&at, w->seeds, w->output_count)) ||
        !are_same(&at, w->inputs, w->count))
        return false;
    memcpy(w->out, at, sizeof(node) * (size_t)w->count);
    return true;
}

static void note(node **at, const node *nodes, int count)
{
    memcpy(*at, nodes, sizeof(node) * (size_t)count);
    *at += count;
}

static void know(const gradient_work *w)
{
    known_gradient *k = known_place(w);
    int all = (w->seeds ? 2 : 1) * w->output_count + 2 * w->count;
    if (all > k->capacity) {
        k->capacity = 2 * all;
        k->nodes = ARENA_ARRAY(w->tape->memory, node, k->capacity);
    }
    node *at = k->nodes;
    note(&at, w->outputs, w->output_count);
    if (w->seeds) note(&at, w->seeds, w->output_count);
    note(&at, w->inputs, w->count);
    note(&at, w->out, w->count);
    k->renumbered = w->tape->renumbered;
    k->of_loss = !w->seeds;
    k->output_count = w->output_count;
    k->count = w->count;
}

/* It adds as much as there is: the one op that may need more than any reserve. */
static bool gradient(gradient_work w)
{
    qn_error error;
    if (is_known(&w)) return true;
    (void)heap_try(find_gradient, &w, &error);
    w.tape->is_broken |= !w.over;
    if (w.good) know(&w);
    return w.good;
}

void qn_grad(qn_tensor loss, const qn_tensor *inputs, int count, qn_tensor *gradients)
{
    if (count < 1 || !tape_array(loss.tape, "grad", gradients, count)) return;
    for (int i = 0; i < count; i++)
        gradients[i] = (qn_tensor){.tape = loss.tape}; /* reading one tells what was wrong */
    if (!tape_array(loss.tape, "grad", inputs, count)) return;
    arena *memory = arena_new();
    qn_tensor *operands = ARENA_ARRAY(memory, qn_tensor, 1 + count);
    node *nodes = ARENA_ARRAY(memory, node, 1 + count), *out = ARENA_ARRAY(memory, node, count);
    operands[0] = loss;
    memcpy(operands + 1, inputs, sizeof(qn_tensor) * (size_t)count);
    qn_tape *tape = tape_begin("grad", operands, 1 + count, nodes);
    if (tape &&
        gradient((gradient_work){
            .tape = tape, .outputs = nodes, .output_count = 1, .inputs = nodes + 1, .count = count, .out = out}))
        for (int i = 0; i < count; i++) gradients[i] = tape_handle(tape, out[i]);
    arena_free(memory);
}

void qn_grad_from(const qn_tensor *outputs, const qn_tensor *seeds, int output_count, const qn_tensor *inputs,
                  int count, qn_tensor *gradients)
{
    qn_tape *of = output_count > 0 && outputs ? outputs[0].tape : NULL;
    if (count < 1 || !tape_array(of, "grad", gradients, count)) return;
    for (int i = 0; i < count; i++) gradients[i] = (qn_tensor){.tape = of};
    if (output_count < 1 || !tape_array(of, "grad", inputs, count) || !tape_array(of, "grad", seeds, output_count) ||
        !outputs)
        return;
    arena *memory = arena_new();
    int operand_count = 2 * output_count + count;
    qn_tensor *operands = ARENA_ARRAY(memory, qn_tensor, operand_count);
    node *nodes = ARENA_ARRAY(memory, node, operand_count), *out = ARENA_ARRAY(memory, node, count);
    memcpy(operands, outputs, sizeof(qn_tensor) * (size_t)output_count);
    memcpy(operands + output_count, seeds, sizeof(qn_tensor) * (size_t)output_count);
    memcpy(operands + 2 * output_count, inputs, sizeof(qn_tensor) * (size_t)count);
    qn_tape *tape = tape_begin("grad", operands, operand_count, nodes);
    const node *d = nodes + output_count, *x = nodes + 2 * output_count;
    if (tape && gradient((gradient_work){.tape = tape,
                                         .outputs = nodes,
                                         .seeds = d,
                                         .output_count = output_count,
                                         .inputs = x,
                                         .count = count,
                                         .out = out}))
        for (int i = 0; i < count; i++) gradients[i] = tape_handle(tape, out[i]);
    arena_free(memory);
}

qn_tensor qn_checkpoint(qn_tensor t)
{
    node n;
    qn_tape *tape = tape_begin("checkpoint", &t, 1, &n);
    return tape ? tape_handle(tape, graph_checkpoint(tape->graph, n)) : tape_failed();
}
