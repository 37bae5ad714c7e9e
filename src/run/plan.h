/*
 * What the files that make a plan share. SPDX-License-Identifier: MIT
 */
#ifndef QUERN_RUN_PLAN_H
#define QUERN_RUN_PLAN_H

#include "run/realize.h"

typedef struct plan_build {
    const plan_request *request;
    plan *plan;
    node *wanted, *unique; /* as the passes left them; each once */
    fuse_assign *assigns;
    fuse_leaf *leaves;
    int *result_of; /* by node below result_limit: its base, or 0 */
    int result_limit;
    qn_call **calls; /* by step: bound, for the compiler; NULL for copies */
    int call_count, call_capacity;
} plan_build;

/* plan_step.c */
/* The step (or steps) of one kernel, bound and not compiled. */
qn_status step_make(plan_build *b, const fuse_kernel *k, qn_error *error);
qn_status steps_compile(plan_build *b, qn_error *error);
void steps_compiled(plan_build *b); /* frees what only the compiler needed */

#endif
