/*
 * What the steps of a recorded plan wait for. SPDX-License-Identifier: MIT
 */
#ifndef QUERN_RUN_LAUNCH_CAPTURE_ORDER_H
#define QUERN_RUN_LAUNCH_CAPTURE_ORDER_H

#include "run/evaluate/realize.h"

typedef struct capture_waits {
    int *steps, count; /* earlier steps */
} capture_waits;

/* By step. base_bytes: by step and base, the size of its memory. */
capture_waits *capture_order(const plan_step *steps, int count, const int64_t *const *base_bytes, arena *memory);
/* The values of one plan in the workspace, whose steps these are, at places of their own while there is room: a place that
 * is used again is waited for. Only where that makes the longest row of waiting steps shorter, and within what eager kernels
 * would need. Returns how many bytes they lie in. */
int64_t capture_spread_values(plan_step *steps, int count, const plan *of, arena *memory);
/* Scratch memory of steps that follow each other lies in different pieces behind `values_bytes` of the workspace; both give
 * the steps arrays of their own. Returns the bytes of the workspace. */
int64_t capture_spread_scratch(plan_step *steps, int count, int64_t values_bytes, arena *memory);

#endif
