/*
 * Whose the time of a step is. A fused kernel does the work of several operations, called in several ranges; what each
 * has of its time nobody can measure, so it is estimated: by the bytes that it reads and writes and by its FLOPs.
 * SPDX-License-Identifier: MIT
 */
#ifndef QUERN_RUN_EVALUATE_SHARES_H
#define QUERN_RUN_EVALUATE_SHARES_H

#include "run/evaluate/realize.h"

/* What one node of the evaluation has of a step. */
typedef struct step_share {
    unsigned origin; /* number of the node in the evaluation, from 1; 0: nobody knows */
    const char *op;  /* what the user called: "linear", "linear backward"; interned */
    double weight;   /* all of a step: 1 */
} step_share;

/* Ranges of the nodes of an evaluation, by origin, in the realizer; while something is recorded. */
const int64_t *shares_ranges(qn_tape *tape);
/* The same as paths inside what was open when the capture began, in `memory`; recorded or not. */
const range_path *const *shares_paths(const qn_tape *tape, const uint64_t *outside, int outside_count, arena *memory);
/* Records whose the launch is that was just recorded with this identity; the shares are made once, in `memory`. */
void shares_record(plan_step *s, arena *memory, uint64_t identity, const int64_t *ranges);
/* For facts of a step that is captured: by op and path, in `memory`. */
int shares_owners(plan_step *s, arena *memory, const record_part **out);

#endif
