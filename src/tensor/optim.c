/*
 * Optimisers on a tape: the variables around the formulas of optim_rules.c. In: groups of parameters, and gradients, as
 * handles. Out: pending assignments of parameters, state and the number of steps. Parameters are numbered through all
 * groups; a group has a kind, options and a rate of its own, the number of steps and the schedule are everybody's.
 * Invariant: every handle an optimiser keeps is a variable; what a step makes on the way has no handles left after it.
 * SPDX-License-Identifier: MIT
 */
#include "tensor/optim.h"
#include "ir/graph_build.h"
#include "tensor/grad_rules.h"
#include "tensor/tape.h"

#include <limits.h>
#include <string.h>

typedef struct group {
    qn_optimizer_kind kind;
    qn_optimizer_options options;
    qn_tensor rate;
    int first, count, state_count;
} group;

struct qn_optimizer {
    arena *memory;
    qn_tape *tape;
    qn_tensor steps;
    qn_schedule schedule; /* constant unless one was set */
    double clip_norm;     /* 0: gradients are not clipped */
    group *groups;
    int group_count;
    int count; /* parameters of all groups */
    qn_tensor *parameters;
    const group **group_of;
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

/* Those from `first` on; none of them, and none before, twice. */
static bool parameters_good(qn_tape *tape, const char *name, const qn_tensor *parameters, int first, int count)
{
    graph *g = tape->graph;
    for (int i = first; i < first + count; i++) {
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

static const char *name_of(const qn_optimizer *self)
{
    return self->group_count == 1 ? kind_names[self->groups[0].kind] : "optimizer";
}

/* The group's parameters join the others; false with the error recorded. */
static bool add_group(qn_optimizer *self, const qn_optimizer_group *from)
{
    qn_tape *tape = self->tape;
    const char *name = kind_names[from->kind];
    int first = self->count;
    group *to = &self->groups[self->group_count++];
    *to = (group){from->kind, from->options, {0}, first, from->count, optim_state_count(from->kind, &from->options)};
    if (from->count > 0) memcpy(self->parameters + first, from->parameters, sizeof(qn_tensor) * (size_t)from->count);
    if (!options_good(tape->graph, from->kind, &from->options) ||
        !parameters_good(tape, name, self->parameters, first, from->count))
        return false;
    self->count += from->count;
    to->rate = variable_of(tape, DT_F64, &(shape){0}, from->options.rate);
    double start = from->kind == QN_ADAGRAD || from->kind == QN_ROW_ADAGRAD ? from->options.initial_sum : 0;
    for (int i = first; i < self->count; i++) {
        graph_node p = tape->graph->nodes[tape_slot_of(self->parameters[i])->node];
        shape s = optim_state_shape(from->kind, &p.shape);
        self->group_of[i] = to;
        for (int k = 0; k < to->state_count; k++) self->states[i][k] = variable_of(tape, optim_elem(p.elem), &s, start);
    }
    return !tape->graph->status;
}

qn_optimizer *qn_optimizer_new_groups(qn_tape *tape, const qn_optimizer_group *groups, int count)
{
    int total = 0;
    if (!tape_enter(tape, "optimizer") || tape->graph->status || !tape_array(tape, "optimizer", groups, count))
        return NULL;
    for (int i = 0; i < count; i++) {
        if ((unsigned)groups[i].kind > QN_ROW_ADAGRAD)
            return graph_fail(tape->graph, "optimizer", "%d is no kind of optimizer", (int)groups[i].kind), NULL;
        if (groups[i].count < 0 || __builtin_add_overflow(total, groups[i].count, &total) || total == INT_MAX)
            return graph_fail(tape->graph, "optimizer", "%d parameters", groups[i].count), NULL;
        if (!tape_array(tape, kind_names[groups[i].kind], groups[i].parameters, groups[i].count)) return NULL;
    }
    if (count == 1) tape->graph->label = kind_names[groups[0].kind];
    if (count < 1) return graph_fail(tape->graph, "optimizer", "it has no group of parameters"), NULL;
    arena *memory = arena_new();
    qn_optimizer *self = ARENA_NEW(memory, qn_optimizer);
    *self = (qn_optimizer){.memory = memory,
                           .tape = tape,
                           .groups = ARENA_ARRAY(memory, group, count),
                           .parameters = ARENA_ARRAY(memory, qn_tensor, total + 1),
                           .group_of = ARENA_ARRAY(memory, const group *, total + 1)};
    self->states = arena_alloc(memory, sizeof(*self->states) * (size_t)(total + 1));
    bool good = true;
    for (int i = 0; i < count && good; i++) good = add_group(self, &groups[i]);
    if (good) self->steps = variable_of(tape, DT_F64, &(shape){0}, 0);
    if (tape->graph->status) {
        qn_optimizer_free(self);
        return NULL;
    }
    return self;
}

qn_optimizer *qn_optimizer_new(qn_tape *tape, qn_optimizer_kind kind, const qn_optimizer_options *options,
                               const qn_tensor *parameters, int count)
{
    qn_optimizer_group all = {kind, options ? *options : qn_optimizer_defaults(kind), parameters, count};
    return qn_optimizer_new_groups(tape, &all, 1);
}

void qn_optimizer_free(qn_optimizer *self)
{
    if (!self || heap_is_stopped()) return;
    qn_release(self->steps);
    for (int i = 0; i < self->group_count; i++) qn_release(self->groups[i].rate);
    for (int i = 0; i < self->count; i++)
        for (int k = 0; k < OPTIM_STATES; k++) qn_release(self->states[i][k]);
    arena_free(self->memory);
}

void qn_optimizer_set_schedule(qn_optimizer *self, const qn_schedule *schedule)
{
    if (!self || !tape_enter(self->tape, "schedule")) return;
    qn_schedule constant = {0};
    const qn_schedule *s = schedule ? schedule : &constant;
    if (schedule_good(self->tape->graph, s)) self->schedule = *s;
}

void qn_optimizer_set_clip_norm(qn_optimizer *self, double max_norm)
{
    if (!self || !tape_enter(self->tape, "clip_norm")) return;
    if (!(max_norm >= 0))
        graph_fail(self->tape->graph, "clip_norm", "the limit %g is negative", max_norm);
    else
        self->clip_norm = max_norm;
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
    graph_fail(g, name_of(self), "the gradient of parameter %d is %s %s, the parameter is %s %s", index,
               dtypes[d->elem].text, graph_shape_words(g, &d->shape), dtypes[p->elem].text,
               graph_shape_words(g, &p->shape));
    return false;
}

/* Everything the step reads is still there, and the gradients fit; 0: no gradient. */
static bool collect_nodes(const qn_optimizer *self, const qn_tensor *gradients, node *d)
{
    qn_tape *tape = self->tape;
    const char *name = name_of(self);
    if (!tape_node(tape, name, self->steps)) return false;
    for (int i = 0; i < self->group_count; i++)
        if (!tape_node(tape, name, self->groups[i].rate)) return false;
    for (int i = 0; i < self->count; i++) {
        if (!tape_node(tape, name, self->parameters[i])) return false;
        for (int k = 0; k < self->group_of[i]->state_count; k++)
            if (!tape_node(tape, name, self->states[i][k])) return false;
        if (!gradients[i].tape) continue;
        d[i] = tape_node(tape, name, gradients[i]);
        if (!d[i] || !gradient_fits(self, i, d[i])) return false;
    }
    return true;
}

/* By group: the rate of this step, f64 of rank 0. */
static node *rates_now(const qn_optimizer *self, arena *memory)
{
    graph *g = self->tape->graph;
    node *rates = ARENA_ARRAY(memory, node, self->group_count + 1);
    node factor = schedule_factor(self->tape, &self->schedule, tape_slot_of(self->steps)->node);
    for (int i = 0; i < self->group_count; i++)
        rates[i] = grad_mul(g, tape_slot_of(self->groups[i].rate)->node, factor);
    return rates;
}

static void take_step(qn_optimizer *self, const qn_tensor *gradients)
{
    if (!tape_enter(self->tape, name_of(self)) || self->tape->graph->status) return;
    graph *g = self->tape->graph;
    arena *memory = arena_new();
    node *d = ARENA_ARRAY(memory, node, self->count);
    optim_values *new = ARENA_ARRAY(memory, optim_values, self->count);
    if (!collect_nodes(self, gradients, d)) {
        arena_free(memory);
        return;
    }
    const node *rates = rates_now(self, memory);
    node steps = grad_plus(g, tape_slot_of(self->steps)->node, 1);
    for (int i = 0; i < self->count && !g->status; i++) {
        const group *of = self->group_of[i];
        optim_step step = {.g = g, .kind = of->kind, .options = of->options, .steps = steps};
        step.rate = rates[of - self->groups];
        optim_values old = {.parameter = tape_slot_of(self->parameters[i])->node};
        for (int k = 0; k < of->state_count; k++) old.state[k] = tape_slot_of(self->states[i][k])->node;
        if (d[i]) new[i] = optim_update(&step, &old, d[i]);
    }
    if (!g->status) {
        assign_node(self->steps, steps);
        for (int i = 0; i < self->count; i++) {
            if (!d[i]) continue;
            assign_node(self->parameters[i], new[i].parameter);
            for (int k = 0; k < self->group_of[i]->state_count; k++) assign_node(self->states[i][k], new[i].state[k]);
        }
    }
    arena_free(memory);
}

/* Its work counts in a range of its own, whoever calls it. */
void qn_optimizer_step(qn_optimizer *self, const qn_tensor *gradients)
{
    if (!self || !tape_array(self->tape, name_of(self), gradients, self->count)) return;
    bool pushed = range_push_once("optimizer");
    take_step(self, gradients);
    if (pushed) range_pop();
}

/* ---- clipping ---- */

/* The gradients that are there as nodes, through `clip`, back into handles. */
static node clip_all(const char *name, qn_tensor *gradients, int count, double limit, bool by_norm, qn_tape **tape)
{
    *tape = NULL;
    if (!gradients) return 0;
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
    return norm ? tape_handle(tape, norm) : tape_failed();
}

void qn_clip_grad_value(qn_tensor *gradients, int count, double limit)
{
    qn_tape *tape;
    clip_all("clip_grad_value", gradients, count, limit, false, &tape);
}

/* ---- minimising, facts ---- */

void qn_optimizer_minimize(qn_optimizer *self, qn_tensor loss)
{
    if (!self) return;
    arena *memory = arena_new();
    qn_tensor *gradients = ARENA_ARRAY(memory, qn_tensor, self->count);
    bool pushed = range_push_once("backward");
    qn_grad(loss, self->parameters, self->count, gradients);
    if (pushed) range_pop();
    if (self->clip_norm > 0) {
        qn_tensor *whole = ARENA_ARRAY(memory, qn_tensor, self->count);
        qn_tape *tape;
        memcpy(whole, gradients, sizeof(qn_tensor) * (size_t)self->count);
        clip_all("clip_norm", gradients, self->count, self->clip_norm, true, &tape);
        for (int i = 0; i < self->count; i++) tape_forget(whole[i]);
    }
    qn_optimizer_step(self, gradients);
    for (int i = 0; i < self->count; i++) tape_forget(gradients[i]);
    arena_free(memory);
}

qn_status qn_optimizer_set_rate(qn_optimizer *self, double rate, qn_error *error)
{
    HEAP_ENTER(error);
    if (!self) return error_set(error, QN_BAD_CALL, "qn_optimizer_set_rate: the optimizer is NULL");
    for (int i = 0; i < self->group_count; i++) QN_TRY(qn_optimizer_set_group_rate(self, i, rate, error));
    return QN_OK;
}

qn_status qn_optimizer_set_group_rate(qn_optimizer *self, int index, double rate, qn_error *error)
{
    HEAP_ENTER(error);
    if (!self) return error_set(error, QN_BAD_CALL, "qn_optimizer_set_group_rate: the optimizer is NULL");
    if (index < 0 || index >= self->group_count)
        return error_set(error, QN_BAD_CALL, "qn_optimizer_set_group_rate: there are %d groups, and no number %d",
                         self->group_count, index);
    if (!(rate >= 0)) return error_set(error, QN_BAD_CALL, "qn_optimizer_set_rate: the rate %g is negative", rate);
    const qn_tensor slot = self->groups[index].rate;
    if (!slot.tape->calls)
        return error_set(error, QN_BAD_CALL, "qn_optimizer_set_rate: the optimizer is of a graph that never runs");
    return slot.tape->calls->write_tensor(slot, &rate, sizeof(rate), error);
}

qn_tensor qn_optimizer_steps(const qn_optimizer *self)
{
    return self ? self->steps : (qn_tensor){0};
}

qn_tensor qn_optimizer_rate(const qn_optimizer *self)
{
    return qn_optimizer_group_rate(self, 0);
}

qn_tensor qn_optimizer_group_rate(const qn_optimizer *self, int index)
{
    return self && index >= 0 && index < self->group_count ? self->groups[index].rate : (qn_tensor){0};
}

qn_tensor qn_optimizer_rate_now(qn_optimizer *self, int index)
{
    if (!self || !tape_enter(self->tape, "rate_now") || self->tape->graph->status) return tape_failed();
    if (index < 0 || index >= self->group_count) return tape_failed();
    if (!tape_node(self->tape, "rate_now", self->steps) || !tape_node(self->tape, "rate_now", self->groups[index].rate))
        return tape_failed();
    arena *memory = arena_new();
    qn_tensor rate = tape_handle(self->tape, rates_now(self, memory)[index]);
    arena_free(memory);
    return rate;
}

int qn_optimizer_count(const qn_optimizer *self)
{
    return self ? self->count : 0;
}

int qn_optimizer_group_count(const qn_optimizer *self)
{
    return self ? self->group_count : 0;
}

qn_tensor qn_optimizer_parameter(const qn_optimizer *self, int parameter)
{
    return self && parameter >= 0 && parameter < self->count ? self->parameters[parameter] : (qn_tensor){0};
}

qn_tensor qn_optimizer_state(const qn_optimizer *self, int parameter, int which)
{
    bool there = self && parameter >= 0 && parameter < self->count && which >= 0 && which < OPTIM_STATES;
    return there ? self->states[parameter][which] : (qn_tensor){0};
}

const char *qn_optimizer_state_name(const qn_optimizer *self, int parameter, int which)
{
    if (!qn_optimizer_state(self, parameter, which).tape) return NULL;
    qn_optimizer_kind kind = self->group_of[parameter]->kind;
    if (kind == QN_SGD) return "momentum_buffer";
    if (kind == QN_ADAM || kind == QN_ADAMW) return which ? "exp_avg_sq" : "exp_avg";
    return "sum";
}
