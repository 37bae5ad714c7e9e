/*
 * Which elements of an array an access reaches. Shared by apart.c, plan.c and by what places barriers.
 * SPDX-License-Identifier: MIT
 */
#ifndef QUERN_SCHEDULE_APART_H
#define QUERN_SCHEDULE_APART_H

#include "schedule/survey.h"

typedef struct trips {   /* the later access is in a later trip of this loop; op NULL: in the same one */
    const tile_op *op;   /* FOR or WHILE */
    const bool *changes; /* by value: defined inside it */
} trips;

typedef struct index_range { /* of one axis: first + i * step, 0 <= i < count */
    linear first, count;
    value start, step;
    int64_t by; /* the step; 0: not a constant */
    bool slice;
} index_range;

bool range_of(const survey *e, const tile_op *op, int axis, index_range *out); /* false: a tile of indices */
/* What a later trip adds to first(b) - first(a), beside what does not change: *each, some multiple of it from 1 on.
 * False: nothing is known. */
bool apart_by_trips(const survey *e, const trips *t, linear *first_a, linear *first_b, linear *each);
/* Are the two ranges of this axis apart, wherever the loop is? */
bool axis_is_apart(const survey *e, const tile_op *a, const tile_op *b, int axis, const trips *t);

#endif
