/*
 * The GPU's own account of what it did: CUPTI's activity records, opened at run time. The layouts are those that CUPTI
 * 11.8 to 13 have in common: later versions add fields behind them, so the beginning is all that is read.
 *
 * CUPTI's callbacks carry no pointer of ours, so there is one trace at a time in a process (docs/decisions/010).
 * SPDX-License-Identifier: MIT
 */
#ifndef QUERN_PROFILE_MEASURE_CUPTI_H
#define QUERN_PROFILE_MEASURE_CUPTI_H

#include "base/base.h"

enum { /* kinds of records */
       CUPTI_COPY = 1,
       CUPTI_SET = 2,
       CUPTI_DRIVER = 4,
       CUPTI_RUNTIME = 5,
       CUPTI_KERNEL = 10,
       CUPTI_OVERHEAD = 17,
       CUPTI_EXTERNAL = 39,
       CUPTI_GRAPH = 51
};

/* As CUPTI lays them out; tests/unit/test_cupti.c has the offsets. */
typedef struct cupti_kernel {
    uint32_t kind;
    uint8_t cache[2];
    uint16_t registers;
    uint64_t partition;
    uint64_t start_ns, end_ns, completed_ns;
    uint32_t device, context, stream;
    uint32_t grid[3], block[3];
    uint32_t static_shared_bytes, dynamic_shared_bytes, local_bytes, local_total_bytes;
    uint32_t correlation;
    int64_t grid_number;
    const char *name;
    void *reserved;
    uint64_t queued_ns, submitted_ns;
    uint8_t launch[8];
    uint64_t node;
    uint32_t shared_executed_bytes, graph;
} cupti_kernel;

typedef struct cupti_move { /* of a copy and of a set */
    uint32_t kind;
    uint8_t direction, from, to, flags; /* of a set: the value */
    uint64_t bytes;
    uint64_t start_ns, end_ns;
    uint32_t device, context, stream, correlation;
    uint32_t other[4]; /* what follows differs until the graph's part */
    uint64_t node;
    uint32_t graph;
} cupti_move;

typedef struct cupti_external {
    uint32_t kind, of;
    uint64_t identity;
    uint32_t correlation;
} cupti_external;

typedef struct cupti_graph {
    uint32_t kind, correlation;
    uint64_t start_ns, end_ns;
    uint32_t device, graph, context, stream;
} cupti_graph;

typedef struct cupti_overhead {
    uint32_t kind, cause, object_kind, object[3];
    uint64_t start_ns, end_ns;
} cupti_overhead;

enum { CUPTI_TO_DEVICE = 1, CUPTI_TO_HOST = 2, CUPTI_ON_DEVICE = 8 };

/* What was read, in no order but that of the buffers. */
typedef struct cupti_takers {
    void *user;
    void (*correlates)(void *user, uint32_t correlation, uint64_t identity);
    void (*kernel)(void *user, const cupti_kernel *k);
    void (*copy)(void *user, const cupti_move *m);
    void (*set)(void *user, const cupti_move *m);
    void (*graph)(void *user, const cupti_graph *g);
    void (*overhead)(void *user, int64_t ns);
    void (*dropped)(void *user, int64_t count);
} cupti_takers;

typedef struct cupti cupti;
/* Tracing begins. nodes: each kernel of a graph, not the graph as a whole. QN_NO_DEVICE: why it is not possible, and
 * what to set. */
qn_status cupti_start(bool nodes, cupti **out, qn_error *error);
/* Buffers that are full, or (flush) all records that are complete, or (forced) all. What is read goes to the takers. */
void cupti_take(cupti *c, bool flush, bool forced, const cupti_takers *takers);
void cupti_stop(cupti *c);                     /* tracing ends; what is in buffers can still be taken */
void cupti_free(cupti *c);                     /* NULL is fine */
int64_t cupti_clock_offset_ns(const cupti *c); /* to be added to its times, for those of the realtime clock */

#endif
