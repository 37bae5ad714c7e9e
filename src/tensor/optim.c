/*
 * Optimisers on a tape: the variables around the formulas of optim_rules.c. In: parameters and gradients as handles. Out:
 * pending assignments of parameters, state and the number of steps.
 * Invariant: every handle an optimiser keeps is a variable; what a step makes on the way has no handles left after it.
 * SPDX-License-Identifier: MIT
 */
#include "tensor/optim.h"
#include "ir/graph_build.h"
#include "tensor/grad_rules.h"
#include "tensor/tape.h"

#include <string.h>

struct qn_optimizer {
    arena *memory;
    qn_tape *tape;
    qn_optimizer_kind kind;
    qn_optimizer_options options;
    qn_tensor rate, steps;
    int count, state_count;
    qn_tensor *parameters;
    qn_tensor (*states)[OPTIM_STATES];
};

static const char *const kind_names[] = {"sgd", "adam", "adamw", "adagrad", "row_adagrad"};

qn_optimizer_options qn_optimizer_defaults(qn_optimizer_kind kind)
{
    qn_optimizer_options o = {.rate = 1e-3, .beta1 = 0.9, .beta2 = 0.999, .epsilon = 1e-8};
    if (kind == QN_ADAMW) o.weight_decay = 1e-2;
    if (kind == QN_ADAGRAD || kind == QN_ROW_ADAGRAD) o.rate = 1e-2;
    if (kind == QN_ADAGRAD) o.epsilon = 1e-10;
    return o;
}

/* ---- making ---- */

static bool options_good(graph *g, qn_optimizer_kind kind, const qn_optimizer_options *o)
{
    const char *name = kind_names[kind];
    bool adam = kind == QN_ADAM || kind == QN_ADAMW;
    if (!(o->rate >= 0)) return graph_fail(g, name, "the rate %g is negative", o->rate), false;
    if (!(o->weight_decay >= 0)) return graph_fail(g, name, "the weight decay %g is negative", o->weight_decay), false;
    if (!(o->epsilon >= 0)) return graph_fail(g, name, "epsilon %g is negative", o->epsilon), false;
    if (adam && !(o->beta1 >= 0 && o->beta1 < 1 && o->beta2 >= 0 && o->beta2 < 1))
        return graph_fail(g, name, "beta %g and %g are not both at least 0 and below 1", o->beta1, o->beta2), false;
    if (kind == QN_SGD && !(o->momentum >= 0))
        return graph_fail(g, name, "the momentum %g is negative", o->momentum), false;
    if (kind == QN_SGD && o->nesterov && (o->momentum == 0 || o->dampening != 0))
        return graph_fail(g, name, "Nesterov's momentum needs a momentum and no dampening"), false;
    return true;
}

static bool parameters_good(qn_tape *tape, const char *name, const qn_tensor *parameters, int count)
{
    graph *g = tape->graph;
    for (int i = 0; i < count; i++) {
        node n = tape_node(tape, name, parameters[i]);
        if (!n) return false;
        if (!tape_slot_of(parameters[i])->variable)
            return graph_fail(g, name, "parameter %d is not a variable: make it one with qn_variable", i), false;
        if (!dtype_is_float(g->nodes[n].elem))
            return graph_fail(g, name, "parameter %d is %s: only floats are trained", i, dtypes[g->nodes[n].elem].text),
                   false;
        for (int k = 0; k < i; k++)
            if (parameters[k].slot == parameters[i].slot)
                return graph_fail(g, name, "parameters %d and %d are the same variable", k, i), false;
    }
    return true;
}

/* A variable that starts as one number everywhere. */
static qn_tensor variable_of(qn_tape *tape, dtype elem, const shape *s, double value)
{
    qn_tensor initial = tape_handle(tape, graph_full_double(tape->graph, elem, s, value));
    qn_tensor variable = qn_variable(initial);
    tape_forget(initial);
    return variable;
}

qn_optimizer *qn_optimizer_new(qn_tape *tape, qn_optimizer_kind kind, const qn_optimizer_options *options,
                               const qn_tensor *parameters, int count)
{
    if ((unsigned)kind > QN_ROW_ADAGRAD || !tape_enter(tape, kind_names[kind])) return NULL;
    qn_optimizer_options o = options ? *options : qn_optimizer_defaults(kind);
    if (tape->graph->status || !options_good(tape->graph, kind, &o) ||
        !parameters_good(tape, kind_names[kind], parameters, count))
        return NULL;
    arena *memory = arena_new();
    qn_optimizer *self = ARENA_NEW(memory, qn_optimizer);
    *self = (qn_optimizer){.memory = memory,
                           .tape = tape,
                           .kind = kind,
                           .options = o,
                           .count = count,
                           .state_count = optim_state_count(kind, &o),
                           .parameters = ARENA_ARRAY(memory, qn_tensor, count)};
    memcpy(self->parameters, parameters, sizeof(qn_tensor) * (size_t)count);
    self->states = arena_alloc(memory, sizeof(*self->states) * (size_t)count);
    shape scalar = {0};
    self->rate = variable_of(tape, DT_F64, &scalar, o.rate);
    self->steps = variable_of(tape, DT_F64, &scalar, 0);
    double start = kind == QN_ADAGRAD || kind == QN_ROW_ADAGRAD ? o.initial_sum : 0;
    for (int i = 0; i < count; i++) {
        graph_node p = tape->graph->nodes[tape_slot_of(parameters[i])->node];
        shape s = optim_state_shape(kind, &p.shape);
        for (int k = 0; k < self->state_count; k++)
            self->states[i][k] = variable_of(tape, optim_elem(p.elem), &s, start);
    }
    if (tape->graph->status) {
        qn_optimizer_free(self);
        return NULL;
    }
    return self;
}

void qn_optimizer_free(qn_optimizer *self)
{
    if (!self) return;
    qn_release(self->rate);
    qn_release(self->steps);
    for (int i = 0; i < self->count; i++)
        for (int k = 0; k < self->state_count; k++) qn_release(self->states[i][k]);
    arena_free(self->memory);
}

/* ---- steps ---- */

/* The pending value of a variable becomes this node. */
static void assign_node(qn_tensor variable, node n)
{
    qn_tensor value = tape_handle(variable.tape, n);
    qn_assign(variable, value);
    tape_forget(value);
}

static bool gradient_fits(const qn_optimizer *self, int index, node gradient)
{
    graph *g = self->tape->graph;
    const graph_node *p = graph_get(g, tape_slot_of(self->parameters[index])->node), *d = graph_get(g, gradient);
    if (shape_same(&p->shape, &d->shape) && dtype_is_float(d->elem)) return true;
    graph_fail(g, kind_names[self->kind], "the gradient of parameter %d is %s %s, the parameter is %s %s", index,
               dtypes[d->elem].text, graph_shape_words(g, &d->shape), dtypes[p->elem].text,
               graph_shape_words(g, &p->shape));
    return false;
}

/* Everything the step reads is still there, and the gradients fit; 0: no gradient. */
static bool collect_nodes(const qn_optimizer *self, const qn_tensor *gradients, node *d)
{
    qn_tape *tape = self->tape;
    const char *name = kind_names[self->kind];
    if (!tape_node(tape, name, self->rate) || !tape_node(tape, name, self->steps)) return false;
    for (int i = 0; i < self->count; i++) {
        if (!tape_node(tape, name, self->parameters[i])) return false;
        for (int k = 0; k < self->state_count; k++)
            if (!tape_node(tape, name, self->states[i][k])) return false;
        if (!gradients[i].tape) continue;
        d[i] = tape_node(tape, name, gradients[i]);
        if (!d[i] || !gradient_fits(self, i, d[i])) return false;
    }
    return true;
}

void qn_optimizer_step(qn_optimizer *self, const qn_tensor *gradients)
{
    if (!self || !tape_enter(self->tape, kind_names[self->kind]) || self->tape->graph->status) return;
    graph *g = self->tape->graph;
    arena *memory = arena_new();
    node *d = ARENA_ARRAY(memory, node, self->count);
    optim_values *new = ARENA_ARRAY(memory, optim_values, self->count);
    if (!collect_nodes(self, gradients, d)) {
        arena_free(memory);
        return;
    }
    optim_step step = {.g = g, .kind = self->kind, .options = self->options, .rate = tape_slot_of(self->rate)->node};
    step.steps = grad_plus(g, tape_slot_of(self->steps)->node, 1);
    for (int i = 0; i < self->count; i++) {
        optim_values old = {.parameter = tape_slot_of(self->parameters[i])->node};
        for (int k = 0; k < self->state_count; k++) old.state[k] = tape_slot_of(self->states[i][k])->node;
        if (d[i]) new[i] = optim_update(&step, &old, d[i]);
    }
    if (!g->status) {
        assign_node(self->steps, step.steps);
        for (int i = 0; i < self->count; i++) {
            if (!d[i]) continue;
            assign_node(self->parameters[i], new[i].parameter);
            for (int k = 0; k < self->state_count; k++) assign_node(self->states[i][k], new[i].state[k]);
        }
    }
    arena_free(memory);
}

void qn_optimizer_minimize(qn_optimizer *self, qn_tensor loss)
{
    if (!self) return;
    arena *memory = arena_new();
    qn_tensor *gradients = ARENA_ARRAY(memory, qn_tensor, self->count);
    qn_grad(loss, self->parameters, self->count, gradients);
    qn_optimizer_step(self, gradients);
    for (int i = 0; i < self->count; i++) tape_forget(gradients[i]);
    arena_free(memory);
}

qn_status qn_optimizer_set_rate(qn_optimizer *self, double rate, qn_error *error)
{
    if (!self) return error_set(error, QN_BAD_CALL, "qn_optimizer_set_rate: the optimizer is NULL");
    if (!(rate >= 0)) return error_set(error, QN_BAD_CALL, "qn_optimizer_set_rate: the rate %g is negative", rate);
    return qn_tensor_write(self->rate, &rate, sizeof(rate), error);
}

qn_tensor qn_optimizer_steps(const qn_optimizer *self)
{
    return self ? self->steps : (qn_tensor){0};
}

qn_tensor qn_optimizer_rate(const qn_optimizer *self)
{
    return self ? self->rate : (qn_tensor){0};
}

qn_tensor qn_optimizer_state(const qn_optimizer *self, int parameter, int which)
{
    bool there = self && parameter >= 0 && parameter < self->count && which >= 0 && which < self->state_count;
    return there ? self->states[parameter][which] : (qn_tensor){0};
}

/* ---- clipping ---- */

/* The gradients that are there as nodes, through `clip`, back into handles. */
static node clip_all(const char *name, qn_tensor *gradients, int count, double limit, bool by_norm, qn_tape **tape)
{
    *tape = NULL;
    for (int i = 0; i < count && !*tape; i++) *tape = gradients[i].tape;
    if (!*tape || !tape_enter(*tape, name) || (*tape)->graph->status) return 0;
    graph *g = (*tape)->graph;
    if (!(limit > 0)) return graph_fail(g, name, "the limit %g is not positive", limit);
    arena *memory = arena_new();
    node *nodes = ARENA_ARRAY(memory, node, count), norm = 0;
    for (int i = 0; i < count && !g->status; i++) {
        if (!gradients[i].tape) continue;
        nodes[i] = tape_node(*tape, name, gradients[i]);
        if (nodes[i] && !dtype_is_float(g->nodes[nodes[i]].elem))
            graph_fail(g, name, "gradient %d is %s: it must be a float", i, dtypes[g->nodes[nodes[i]].elem].text);
    }
    if (!g->status && by_norm) norm = optim_clip_norm(g, nodes, count, limit);
    if (!g->status && !by_norm) optim_clip_value(g, nodes, count, limit);
    for (int i = 0; i < count; i++)
        if (gradients[i].tape) gradients[i] = tape_handle(*tape, g->status ? 0 : nodes[i]);
    arena_free(memory);
    return norm;
}

qn_tensor qn_clip_grad_norm(qn_tensor *gradients, int count, double max_norm)
{
    qn_tape *tape;
    node norm = clip_all("clip_grad_norm", gradients, count, max_norm, true, &tape);
    return norm ? tape_handle(tape, norm) : (qn_tensor){0};
}

void qn_clip_grad_value(qn_tensor *gradients, int count, double limit)
{
    qn_tape *tape;
    clip_all("clip_grad_value", gradients, count, limit, false, &tape);
}
