/*
 * Schedules of learning rates as graph code. In: the number of steps taken, a variable on the device. Out: the factor of
 * the next step's rates, f64 of rank 0. The host computes nothing, so a recorded step follows its schedule when it is
 * replayed. The formulas are those of PyTorch's schedulers, with the number of steps as their epoch.
 * SPDX-License-Identifier: MIT
 */
#include "tensor/grad_rules.h"
#include "tensor/ops.h"
#include "tensor/optim.h"

#include <math.h>

bool schedule_good(graph *g, const qn_schedule *s)
{
    const char *name = "schedule";
    bool has_end = s->kind == QN_LINEAR || s->kind == QN_COSINE,
         decays = s->kind == QN_STEP || s->kind == QN_EXPONENTIAL;
    if ((unsigned)s->kind > QN_OWN_SCHEDULE)
        return graph_fail(g, name, "%d is no kind of schedule", (int)s->kind), false;
    if (s->warmup_steps < 0 || !(s->warmup_start >= 0))
        return graph_fail(g, name, "a warmup of %lld steps from %g", (long long)s->warmup_steps, s->warmup_start),
               false;
    if ((has_end || s->kind == QN_STEP) && s->steps < 1)
        return graph_fail(g, name, "`steps` is %lld: it must be at least 1", (long long)s->steps), false;
    if (s->kind == QN_EXPONENTIAL && s->steps < 0)
        return graph_fail(g, name, "`steps` is %lld: it must not be negative", (long long)s->steps), false;
    if (has_end && !(s->end >= 0)) return graph_fail(g, name, "the factor %g at the end is negative", s->end), false;
    if (decays && !(s->gamma > 0)) return graph_fail(g, name, "gamma %g is not positive", s->gamma), false;
    if (s->kind == QN_OWN_SCHEDULE && !s->own) return graph_fail(g, name, "its function is NULL"), false;
    return true;
}

static node clipped(graph *g, node x, double low, double high)
{
    x = graph_binary(g, OP_MAX, x, grad_number(g, x, low));
    return isinf(high) ? x : graph_binary(g, OP_MIN, x, grad_number(g, x, high));
}

/* gamma ^ x */
static node decayed(graph *g, node x, double gamma)
{
    return graph_unary(g, OP_EXP, grad_scale(g, x, log(gamma)));
}

static node own_factor(qn_tape *tape, const qn_schedule *s, node after)
{
    graph *g = tape->graph;
    qn_tensor steps = tape_handle(tape, after), result = s->own(steps, s->user);
    node factor = tape_node(tape, "schedule", result);
    tape_forget(steps);
    if (!factor) return 0;
    if (shape_count(&g->nodes[factor].shape) != 1)
        return graph_fail(g, "schedule", "its function gives a tensor of shape %s, not one number",
                          tensor_words(g, factor));
    return graph_convert(g, graph_reshape(g, factor, &(shape){0}), DT_F64);
}

/* After the warmup: `after` counts from its end. */
static node main_factor(qn_tape *tape, const qn_schedule *s, node after)
{
    graph *g = tape->graph;
    double steps = (double)s->steps;
    switch (s->kind) {
    case QN_LINEAR: return grad_plus(g, grad_scale(g, clipped(g, after, 0, steps), (s->end - 1) / steps), 1);
    case QN_COSINE: {
        node wave = graph_unary(g, OP_COS, grad_scale(g, clipped(g, after, 0, steps), 3.14159265358979323846 / steps));
        return grad_plus(g, grad_scale(g, grad_plus(g, wave, 1), (1 - s->end) / 2), s->end);
    }
    case QN_STEP: {
        node drops =
            graph_unary(g, OP_FLOOR, grad_div(g, clipped(g, after, 0, INFINITY), grad_number(g, after, steps)));
        return decayed(g, drops, s->gamma);
    }
    case QN_EXPONENTIAL: return decayed(g, clipped(g, after, 0, INFINITY), pow(s->gamma, 1 / fmax(steps, 1)));
    case QN_OWN_SCHEDULE: return own_factor(tape, s, after);
    default: return grad_number(g, after, 1);
    }
}

node schedule_factor(qn_tape *tape, const qn_schedule *s, node steps)
{
    graph *g = tape->graph;
    node factor = main_factor(tape, s, grad_plus(g, steps, -(double)s->warmup_steps));
    if (!s->warmup_steps || !factor) return factor;
    double slope = (1 - s->warmup_start) / (double)s->warmup_steps;
    node rising = grad_plus(g, grad_scale(g, steps, slope), s->warmup_start);
    node early = graph_binary(g, OP_LT, steps, grad_number(g, steps, (double)s->warmup_steps));
    return graph_select(g, early, rising, factor);
}
