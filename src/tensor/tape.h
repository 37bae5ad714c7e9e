/*
 * A tape: the tensors of one line of work on one device. It holds the graph that the calls of <quern/tensor.h> build,
 * what has been computed of it, the variables, and the first error. One thread at a time.
 *
 * A handle is {tape, slot, stamp}. A slot names a node and keeps its memory alive once it is computed; a variable's slot
 * names its newest value. Releasing a slot (or leaving the scope that made it) raises its stamp, so that later use of
 * the handle is an error and not a crash.
 * Evaluation (run/realize.c) computes the wanted nodes and the pending assignments of variables; a computed node has a
 * `placed` view of a storage, and counts as a leaf from then on.
 * SPDX-License-Identifier: MIT
 */
#ifndef QUERN_TENSOR_TAPE_H
#define QUERN_TENSOR_TAPE_H

#include "ir/graph.h"

#include <quern/tensor.h>

/* Memory of tensors. Counted: by leaves' slots, by computed nodes that a slot keeps, by plans. */
typedef struct storage {
    _Atomic int references;
    qn_buffer *buffer; /* on the tape's device */
    int64_t size_bytes;
    bool written; /* a variable: assignments change it */
} storage;
storage *storage_retain(storage *s);
void storage_release(storage *s); /* NULL is fine */

/* Where a computed node lies: elements of a storage. */
typedef struct placed {
    storage *storage; /* NULL: not computed */
    int64_t offset, strides[GRAPH_RANK];
} placed;

typedef struct tape_slot {
    node node;      /* 0: free */
    uint32_t stamp; /* of handles that are good */
    int scope;      /* the depth that made it */
    bool variable;
    storage *home;  /* a variable: where assignments go */
    node home_leaf; /* a variable: the leaf that reads `home` */
} tape_slot;

typedef struct tape_assign {
    uint32_t slot; /* of a variable */
    node from;
} tape_assign;

struct qn_tape {
    qn_context *context;
    char device[16];
    qn_mode mode;
    bool allow_tf32, check_indices;
    arena *memory;
    graph *graph;
    placed *placed; /* by node; as many as placed_capacity */
    int placed_capacity;
    tape_slot *slots; /* [0] is unused */
    int slot_count, slot_capacity;
    int scope;            /* depth; 0: outermost */
    tape_assign *assigns; /* pending, oldest first */
    int assign_count, assign_capacity;
    qn_tensor random_state;    /* u64[2]: seed, offset; a variable, made at the first need */
    struct realizer *realizer; /* run's: plans, streams; NULL before the first evaluation */
    struct qn_plan *capturing; /* run's: NULL unless a step is being recorded */
};

/* tape.c */
/* The node of a handle: 0 with the error recorded if it is empty, released or of another tape. */
node tape_node(qn_tape *tape, const char *op, qn_tensor t);
qn_tensor tape_handle(qn_tape *tape, node n); /* a new slot in this scope; the empty handle for 0 */
/* Starts an API call: takes the call site, sets label; returns false if the handle has no tape. */
bool tape_enter(qn_tape *tape, const char *label);
void tape_place(qn_tape *tape, node n, const placed *where); /* retains the storage */
const placed *tape_placed(const qn_tape *tape, node n);      /* NULL: not computed. A LEAF always is */
#endif
