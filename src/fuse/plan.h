/*
 * The planner's state between plan.c (what is computed, building, the report's numbers) and group.c (what goes
 * together).
 *
 * Nodes are of three sorts: *in memory* before the plan runs; *followed*: views, constants and the like, computed
 * wherever they are needed; and *ops*, which belong to groups.
 * SPDX-License-Identifier: MIT
 */
#ifndef QUERN_FUSE_PLAN_H
#define QUERN_FUSE_PLAN_H

#include "fuse/group.h"

/* A group while grouping. */
typedef struct cell {
    group g;
    bool dead;   /* it became part of another */
    int stamp;   /* another number whenever it changes */
    node *reads; /* ops outside and nodes in memory, each once, ascending */
    int read_count;
    node *copies; /* of `g.nodes`: computed here too, so as not to be read; another cell owns them. recompute.c */
    int copy_count;
} cell;

/* Two cells (by stamp) that do not go together. */
typedef struct refusal {
    int a, b; /* 0: free */
    const char *why;
} refusal;

typedef struct planner {
    arena *memory;
    graph *g;
    int node_count;
    fuse_leaf *leaves; /* by node */
    const fuse_options *options;
    bool *reached, *wanted, *is_op; /* by node; wanted: has to be in memory in the end */
    bool *in_memory;                /* as the builders see it: given, or an op that is not in the group */
    node **reads;                   /* by op: what it reads, through views */
    int *read_count;
    node **users; /* by node: ops that read it */
    int *user_count;
    int *cell_of; /* by op */
    cell *cells;
    int cell_count, cell_capacity, next_stamp;
    bool *forced; /* by op: it is written, so that readers can compute others from it. recompute.c */
    bool copying; /* some cell has copies */
    refusal *refusals;
    int refusal_count, refusal_size;
} planner;

#define GROUP_MOST_NODES 160 /* of one kernel: longer texts cost more to compile than they save */

/* group.c */
void group_nodes(planner *p);
/* Why the value of `n` goes through memory to a cell that reads it. */
const char *group_boundary(const planner *p, node n, const cell *producer, const cell *consumer);
/* recompute.c: readers compute for themselves what is cheaper than its way through memory. */
void group_recompute(planner *p);
/* plan.c: what the cell writes, reads; needs nodes, copies. */
void cell_settle(planner *p, cell *c);
void cells_settle(planner *p);                        /* all; those that write nothing are dead */
bool cell_lists(const node *list, int count, node n); /* in an ascending list */
bool cell_build(planner *p, const cell *c, arena *memory, fuse_kernel *out, const char **why, qn_error *error);

#endif
