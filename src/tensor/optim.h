/*
 * One step of an optimiser as graph code, without a tape: nodes of parameters, gradients and state in, nodes of their new
 * values out. optim.c keeps the variables.
 * SPDX-License-Identifier: MIT
 */
#ifndef QUERN_TENSOR_OPTIM_H
#define QUERN_TENSOR_OPTIM_H

#include "tensor/grad.h"

#define QN_NO_CALL_SITES
#include <quern/train.h>

#define OPTIM_STATES 2

typedef struct optim_step {
    graph *g;
    qn_optimizer_kind kind;
    qn_optimizer_options options;
    node rate, steps; /* f64, rank 0: the rate, the number of this step from 1 on */
} optim_step;

/* One parameter: its value and its state, before and after. */
typedef struct optim_values {
    node parameter, state[OPTIM_STATES];
} optim_values;

/* State is of this type, and so is the arithmetic. */
static inline dtype optim_elem(dtype parameter)
{
    return parameter == DT_F64 ? DT_F64 : DT_F32;
}
int optim_state_count(qn_optimizer_kind kind, const qn_optimizer_options *o);
shape optim_state_shape(qn_optimizer_kind kind, const shape *parameter);
/* The new values; of few rows alone where the gradient is made of rows and that is allowed. */
optim_values optim_update(const optim_step *s, const optim_values *old, node gradient);

/* schedule.c: what the rates are multiplied with after `steps` steps (f64, rank 0). */
bool schedule_good(graph *g, const qn_schedule *s); /* else with the error recorded */
node schedule_factor(qn_tape *tape, const qn_schedule *s, node steps);

/* Clipping: gradients in place; 0s are left out. Returns the norm of all (f32, rank 0), or 0. */
node optim_clip_norm(graph *g, node *gradients, int count, double max_norm);
void optim_clip_value(graph *g, node *gradients, int count, double limit);

#endif
