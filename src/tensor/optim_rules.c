/*
 * The formulas of the optimisers. In: a step's numbers, a parameter, its gradient, its state. Out: new values.
 * A rule says what is added to the parameter and what the state becomes; whether that happens to all of the parameter
 * or to the rows that a gradient names is decided around it. 1 - beta^t is -expm1(t ln beta), which keeps its digits in
 * f32 where t is small.
 * SPDX-License-Identifier: MIT
 */
#include "tensor/grad_rules.h"
#include "tensor/optim.h"

#include <math.h>

typedef struct rule_step {
    const optim_step *all;
    graph *g;
    shape shape; /* of the parameter, or of the rows */
    node p, d;   /* of this shape, in the type of the arithmetic */
} rule_step;

int optim_state_count(qn_optimizer_kind kind, const qn_optimizer_options *o)
{
    switch (kind) {
    case QN_SGD: return o->momentum != 0;
    case QN_ADAM:
    case QN_ADAMW: return 2;
    default: return 1;
    }
}

shape optim_state_shape(qn_optimizer_kind kind, const shape *parameter)
{
    shape s = *parameter;
    for (int k = 1; kind == QN_ROW_ADAGRAD && k < s.rank; k++) s.extents[k] = 1;
    return s;
}

static node in_type(const rule_step *s, node scalar)
{
    return graph_convert(s->g, scalar, s->g->nodes[s->p].elem);
}

/* 1 - beta^t, rank 0 */
static node correction(const rule_step *s, double beta)
{
    graph *g = s->g;
    return grad_neg(g, graph_unary(g, OP_EXPM1, grad_scale(g, in_type(s, s->all->steps), log(beta))));
}

/* ---- rules: what is added to the parameter; state[] becomes the new state ---- */

static node sgd(const rule_step *s, node *state)
{
    graph *g = s->g;
    const qn_optimizer_options *o = &s->all->options;
    node d = s->d;
    if (o->momentum != 0) {
        node damped = d;
        if (o->dampening != 0) { /* not in the first step, which starts the momentum */
            node t = in_type(s, s->all->steps), one = grad_number(g, t, 1);
            node factor = graph_select(g, graph_binary(g, OP_EQ, t, one), one, grad_number(g, t, 1 - o->dampening));
            damped = grad_mul(g, d, grad_everywhere(g, factor, &s->shape));
        }
        state[0] = grad_add(g, grad_scale(g, state[0], o->momentum), damped);
        d = o->nesterov ? grad_add(g, d, grad_scale(g, state[0], o->momentum)) : state[0];
    }
    return grad_neg(g, grad_mul(g, grad_everywhere(g, in_type(s, s->all->rate), &s->shape), d));
}

static node adam(const rule_step *s, node *state)
{
    graph *g = s->g;
    const qn_optimizer_options *o = &s->all->options;
    node rate = in_type(s, s->all->rate);
    state[0] = grad_add(g, state[0], grad_scale(g, grad_sub(g, s->d, state[0]), 1 - o->beta1));
    state[1] = grad_add(g, grad_scale(g, state[1], o->beta2), grad_scale(g, grad_mul(g, s->d, s->d), 1 - o->beta2));
    node step = o->beta1 ? grad_div(g, rate, correction(s, o->beta1)) : rate;
    node root = graph_unary(g, OP_SQRT, state[1]);
    if (o->beta2)
        root = grad_mul(g, root, grad_everywhere(g, graph_unary(g, OP_RSQRT, correction(s, o->beta2)), &s->shape));
    node change =
        grad_div(g, grad_mul(g, grad_everywhere(g, step, &s->shape), state[0]), grad_plus(g, root, o->epsilon));
    if (s->all->kind == QN_ADAMW && o->weight_decay != 0) {
        node decay = grad_everywhere(g, grad_scale(g, rate, o->weight_decay), &s->shape);
        change = grad_add(g, change, grad_mul(g, decay, s->p));
    }
    return grad_neg(g, change);
}

static node adagrad(const rule_step *s, node *state)
{
    graph *g = s->g;
    const qn_optimizer_options *o = &s->all->options;
    node rate = in_type(s, s->all->rate), squares = grad_mul(g, s->d, s->d);
    if (o->rate_decay != 0) {
        node before = grad_plus(g, in_type(s, s->all->steps), -1);
        rate = grad_div(g, rate, grad_plus(g, grad_scale(g, before, o->rate_decay), 1));
    }
    if (s->all->kind == QN_ROW_ADAGRAD && s->shape.rank > 1) {
        int64_t rows = s->shape.extents[0], row = rows ? shape_count(&s->shape) / rows : 1;
        squares = graph_reduce(g, FOLD_SUM, squares, ((1u << s->shape.rank) - 1) & ~1u);
        squares = grad_scale(g, squares, 1 / (double)MAXIMUM(row, 1));
    }
    state[0] = grad_add(g, state[0], squares);
    node root = grad_plus(g, graph_unary(g, OP_SQRT, state[0]), o->epsilon);
    node step = grad_mul(g, grad_everywhere(g, rate, &s->shape), s->d);
    return grad_neg(g, grad_div(g, step, graph_expand(g, root, &s->shape)));
}

static node change_of(rule_step *s, node *state)
{
    const qn_optimizer_options *o = &s->all->options;
    if (!s->p || !s->d) return 0;
    if (o->weight_decay != 0 && s->all->kind != QN_ADAMW)
        s->d = grad_add(s->g, s->d, grad_scale(s->g, s->p, o->weight_decay));
    switch (s->all->kind) {
    case QN_SGD: return sgd(s, state);
    case QN_ADAM:
    case QN_ADAMW: return adam(s, state);
    default: return adagrad(s, state);
    }
}

/* ---- all of it, or some rows ---- */

static optim_values update_all(const optim_step *s, const optim_values *old, node gradient)
{
    graph *g = s->g;
    graph_node p = g->nodes[old->parameter];
    dtype elem = optim_elem(p.elem);
    rule_step one = {s, g, p.shape, graph_convert(g, old->parameter, elem), graph_convert(g, gradient, elem)};
    optim_values new = *old;
    node change = change_of(&one, new.state);
    new.parameter = graph_convert(g, grad_add(g, one.p, change), p.elem);
    return new;
}

/* base with change added at the rows where each index is met first. */
static node add_rows(graph *g, node base, const sparse_rows *rows, node change)
{
    if (!change) return 0;
    return graph_take_add_firsts(g, base, rows->index, graph_convert(g, change, g->nodes[base].elem));
}

/* p - rate * d, where rows of d are sums: each summand can be taken off by itself, if that rounds nothing more. */
static bool adds_up(const optim_step *s, dtype elem)
{
    return s->kind == QN_SGD && s->options.momentum == 0 && s->options.weight_decay == 0 && optim_elem(elem) == elem;
}

static optim_values update_by_parts(const optim_step *s, const optim_values *old, const sparse_rows *gradient)
{
    graph *g = s->g;
    graph_node p = g->nodes[old->parameter];
    rule_step one = {.all = s, .g = g, .p = old->parameter, .d = graph_convert(g, gradient->updates, p.elem)};
    if (!one.d) return (optim_values){0};
    one.shape = g->nodes[one.d].shape;
    node change = graph_convert(g, sgd(&one, NULL), p.elem);
    return (optim_values){.parameter = graph_take_add(g, old->parameter, gradient->index, change, 0)};
}

static optim_values update_rows(const optim_step *s, const optim_values *old, const sparse_rows *gradient)
{
    graph *g = s->g;
    dtype elem = optim_elem(g->nodes[old->parameter].elem);
    sparse_rows wide = *gradient;
    wide.updates = graph_convert(g, gradient->updates, elem);
    sparse_rows rows = sparse_rows_sum(g, &wide);
    rule_step one = {.all = s, .g = g, .d = rows.updates};
    one.p = graph_convert(g, graph_take(g, old->parameter, rows.index, 0), elem);
    if (!one.p || !one.d) return (optim_values){0};
    one.shape = g->nodes[one.p].shape;
    int count = optim_state_count(s->kind, &s->options);
    optim_values new = {0};
    node before[OPTIM_STATES] = {0}, after[OPTIM_STATES] = {0};
    for (int i = 0; i < count; i++) after[i] = before[i] = graph_take(g, old->state[i], rows.index, 0);
    node change = change_of(&one, after);
    for (int i = 0; i < count; i++) new.state[i] = add_rows(g, old->state[i], &rows, grad_sub(g, after[i], before[i]));
    new.parameter = add_rows(g, old->parameter, &rows, change);
    return new;
}

/* Untouched rows would not change. */
static bool untouched_stay(const optim_step *s)
{
    const qn_optimizer_options *o = &s->options;
    if (s->kind == QN_ADAM || s->kind == QN_ADAMW) return false;
    return o->weight_decay == 0 && (s->kind != QN_SGD || o->momentum == 0);
}

optim_values optim_update(const optim_step *s, const optim_values *old, node gradient)
{
    sparse_rows rows;
    if ((s->options.lazy_rows || untouched_stay(s)) && sparse_rows_find(s->g, gradient, &rows))
        return adds_up(s, s->g->nodes[old->parameter].elem) ? update_by_parts(s, old, &rows)
                                                            : update_rows(s, old, &rows);
    return update_all(s, old, gradient);
}
