/*
 * Counting what a launch does: what count.c, which walks programs, and lanes.c, which knows which elements of their
 * tiles count, share.
 * SPDX-License-Identifier: MIT
 */
#ifndef QUERN_RUN_WORKBENCH_COUNT_H
#define QUERN_RUN_WORKBENCH_COUNT_H

#include "run/compile/facts.h"

/* Some elements of a tile: those with first <= index < end on every axis. Of a scalar: always its one element. */
typedef struct lanes {
    int64_t first[MAX_RANK], end[MAX_RANK];
} lanes;

/* An integer tile that is base + step * index along one axis and equal along the others. */
typedef struct ramp {
    bool known;
    int axis;
    int64_t base, step;
} ramp;

typedef struct counter {
    const tile_kernel *k;
    const launch_plan *plan;
    int phase, units;
    int64_t program[3];
    int64_t *values; /* scalar integers, by value */
    bool *known;
    lanes *exist, *wanted, *carried; /* by value; carried: what the trips of a loop want of each other */
    ramp *ramps;
    bool settling; /* only `carried` is being found out: nothing counts */
    int depth;     /* of loops */
    double flops, work;
    bool uncertain, atomic;
    launch_visit *visit; /* NULL: nobody asks for single ops */
    void *user;
    double scale; /* programs that the sample stands for */
} counter;

bool counter_read(const counter *c, value v, int64_t *out);
/* The extents of a type; one that is not known is 1, and the count uncertain. */
void counter_extents(counter *c, const tile_type *type, int64_t extents[MAX_RANK]);

/* lanes.c */
/* Forward, after its operands: which elements of the op's result exist. Of a bool tile: which can be true. */
void lanes_of_result(counter *c, const tile_op *op);
void lanes_all(counter *c, value v); /* of a region's argument: every element exists */
/* Backward, before its operands: what the op wants of them, given what is wanted of its result. */
void lanes_want(counter *c, const tile_op *op);
void lanes_join(const counter *c, value v, lanes *into, const lanes *more);
void lanes_clear(lanes *l); /* no element */
void lanes_want_all(counter *c, value v);
double lanes_counted(const counter *c, value v); /* elements that exist and are wanted */
/* Of a fold: the elements that go into what is wanted; of a dot: multiply-adds. */
double lanes_folded(counter *c, const tile_op *op);

#endif
