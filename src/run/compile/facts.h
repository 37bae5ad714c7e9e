/*
 * What is known of a launch before it runs: counts from the IR, and facts for records and hints.
 * SPDX-License-Identifier: MIT
 */
#ifndef QUERN_RUN_COMPILE_FACTS_H
#define QUERN_RUN_COMPILE_FACTS_H

#include "base/record.h"
#include "run/run.h"

/* count.c: one launch of a lowered kernel, from its IR. */
typedef struct launch_counts {
    double flops;    /* NAN: a loop or a branch depends on data */
    double work;     /* element operations of one average program, for the interpreter's sake */
    double programs; /* of the first phase */
    bool separable;  /* one phase, no atomics: programs can be run alone */
} launch_counts;
void launch_count(const tile_kernel *k, const launch_plan *plan, int units, launch_counts *out);
/* The same, and for the ops of some programs how many elements and operations each stands for in the whole launch: an
 * op is visited several times. */
typedef void launch_visit(void *user, const tile_op *op, double elements, double flops);
void launch_count_each(const tile_kernel *k, const launch_plan *plan, int units, launch_visit *visit, void *user,
                       launch_counts *out);

/* facts.c */
/* "x f32[3, 4], y f32[4, 3] by [1, 4]": the arrays of a launch, with their strides where they are not row-major. */
void views_print(const tile_kernel *k, const array_view *views, text *out);
/* Bytes of the arrays that are read and written, each once. */
void views_bytes(const tile_kernel *k, const array_view *views, double *read, double *written);
/* A launch as it will be made, by a call or by a step of a plan. */
typedef struct launch_seen {
    qn_context *context;
    int slot;
    const char *name, *file; /* where it was written; NULL: nobody knows */
    int line;
    const tile_kernel *kernel;
    const array_view *views;
    const launch_plan *plan;
    const struct variant *variant;
    const device_launch *ready;      /* prepared; NULL: a driver that prepares nothing, or not yet */
    const struct graph *graph;       /* of `fused` */
    const struct fuse_kernel *fused; /* a kernel that fusion wrote; NULL otherwise */
    const record_part *owners;       /* of a captured step: whose its time is; NULL otherwise */
    int owner_count;
} launch_seen;
const record_facts *launch_facts_keep(const launch_seen *l); /* interned; NULL without memory */
/* Of launches that go to the device together: a graph, a captured step. Interned. */
const record_facts *facts_of_parts(const record_facts *const *parts, int count, const char *name, const char *device);
/* Of a bound call; made once, until something is set that changes them. NULL without memory. */
const record_facts *call_facts(qn_call *call);

#endif
