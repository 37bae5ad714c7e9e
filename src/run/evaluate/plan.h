/*
 * What the files that make a plan share. SPDX-License-Identifier: MIT
 */
#ifndef QUERN_RUN_EVALUATE_PLAN_H
#define QUERN_RUN_EVALUATE_PLAN_H

#include "run/evaluate/realize.h"

typedef struct plan_build {
    const plan_request *request;
    plan *plan;
    node *wanted, *unique; /* as the passes left them; each once */
    fuse_assign *assigns;
    fuse_leaf *leaves;
    int *result_of; /* by node below result_limit: its base, or 0 */
    int result_limit;
    qn_call **calls; /* by step from first_step on: bound, for the compiler; NULL for copies */
    int call_count, call_capacity, first_step;
} plan_build;

/* plan_step.c */
/* An address that stands for base `place.base` while the plan is made. */
void *plan_stand_in(const plan_build *b, plan_place place);
plan_place plan_place_of(const plan_build *b, node n); /* where element 0 of a node's memory lies */
plan_step *step_add(plan_build *b, const char *name, qn_call *call);
void step_use(plan_build *b, plan_step *s, const tile_kernel *k); /* room for its views */
/* Scratch memory lies behind byte `end` of the workspace, behind its values; steps run one after the other and share
 * it. */
void step_place_scratch(plan_build *b, plan_step *s, const tile_kernel *k, int64_t end);
/* The step (or steps) of one kernel, bound and not compiled. */
qn_status step_make(plan_build *b, const fuse_kernel *k, qn_error *error);
qn_status steps_compile(plan_build *b, qn_error *error);
void steps_compiled(plan_build *b); /* frees what only the compiler needed */

/* plan_call.c: the call of a module's kernel, and copies of what it changes in place. */
qn_status step_make_call(plan_build *b, const fuse_kernel *from, qn_error *error);

#endif
