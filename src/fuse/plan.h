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
#include "fuse/order.h"

/* A group while grouping. */
typedef struct cell {
    group g;
    bool dead;   /* it became part of another */
    int stamp;   /* another number whenever it changes */
    node *reads; /* ops outside and nodes in memory, each once, ascending */
    int read_count;
    node *copies; /* of `g.nodes`: computed here too, so as not to be read; another cell owns them. recompute.c */
    int copy_count;
    int costed;     /* the stamp for which `cost` was estimated */
    fuse_cost cost; /* time_ns 0: nothing is known */
} cell;

/* Two cells (by stamp) that do not go together. */
typedef struct refusal {
    int a, b;
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
    bool *stored;                   /* by node: it is put into memory, because no kernel could be built around it */
    node **reads;                   /* by op: what it reads, through views */
    int *read_count;
    node **users; /* by node: ops that read it */
    int *user_count;
    node *first_result, *next_result; /* by node: a call's results as a list */
    int *cell_of;                     /* by op */
    int *mark, marked;                /* by node: a list was just put together with this number */
    cell *cells;
    int cell_count, cell_capacity, next_stamp;
    int *position, *by_position; /* of cells, while grouping: what a cell reads has a lower one */
    int *seen, *seen_back, *stack, *stack_back, seen_number; /* of walks over cells */
    bool *forced;   /* by op: it is written, so that readers can compute others from it. recompute.c */
    bool copying;   /* some cell has copies */
    node **copiers; /* by node: cells that have a copy of it, or had; recompute.c */
    int *copier_count;
    bool early;      /* see builder */
    fuse_cost built; /* of the last cell that cell_build accepted */
    int64_t eager_bytes;
    bool frugal;     /* ops are not joined where that keeps more in memory at once */
    double eager_ns; /* estimated: every op a kernel of its own */
    refusal *refusals;
    int refusal_count, refusal_capacity;
    hash_index refusal_index;
} planner;

#define FOLLOW_MOST 64       /* views and cheap arithmetic, one upon the other, until one is put into memory */
#define GROUP_MOST_NODES 160 /* of one kernel: longer texts cost more to compile than they save */

/* prepare.c */
typedef struct preparation {
    node *now;     /* by node of the graph as it came: what computes it */
    int old_count; /* nodes of the graph as it came */
} preparation;
preparation plan_prepare(graph *g, const fuse_leaf *leaves, const node *roots, int root_count,
                         const fuse_options *options, arena *memory);
/* Roots that became something that is no op of their own (another root, a leaf) become copies of it. */
void plan_part_roots(graph *g, preparation *p, const fuse_leaf *leaves, const node *roots, int root_count);
/* Marks what has to be looked at: from the roots down to what is in memory. */
void plan_reach(const graph *g, const fuse_leaf *leaves, int leaf_count, const node *roots, int root_count,
                bool *reached);
bool plan_is_alone(const graph *g, const fuse_options *options, node n); /* its kernel holds nothing else */
/* What was prepared has its old name again where somebody outside knows it by that. */
void plan_rename(planner *p, fuse_plan *plan, const preparation *prepared, const node *roots, int root_count);

/* plan_ops.c */
void plan_find_ops(planner *p);
/* The node as a strided view of something in memory; false: it is none. */
bool plan_view(const planner *p, node n, arena *memory, fuse_view *out);
node plan_writer(const planner *p, node n); /* the op that leaves the value in memory: a call for its results */
void plan_add_node(planner *p, node **list, int *count, node n); /* once */
bool plan_is_constant_scalar(const graph_node *x);
/* The zeros that an addition by index begins with: its kernel fills them in. */
bool plan_is_zero_base(const graph_node *x, int i, const graph_node *input);

/* group.c */
void group_nodes(planner *p);
bool group_is_barrier(const planner *p, const cell *c); /* nothing may be added to it */
bool group_is_ordered(const graph_node *x);             /* rounding makes the order of its additions seen */
/* Why the value of `n` goes through memory to a cell that reads it. */
const char *group_boundary(const planner *p, node n, const cell *producer, const cell *consumer);
/* recompute.c: readers compute for themselves what is cheaper than its way through memory. */
void group_recompute(planner *p);
/* hand_down.c: nodes of cell a that b alone reads become b's, where both together then take less than that; true: they did. */
bool group_hand_down(planner *p, int a, int b, double least_ns);
/* plan.c: what the cell writes, reads; needs nodes, copies. */
void cell_settle(planner *p, cell *c);
void cells_settle(planner *p);                        /* all; those that write nothing are dead */
bool cell_lists(const node *list, int count, node n); /* in an ascending list */
/* plan_cost.c: what its kernel will take; of cells of one op each, what they have in memory at once at most. */
const fuse_cost *cell_cost(planner *p, cell *c);
int64_t cells_peak_bytes(const planner *p);
bool cell_build(planner *p, const cell *c, arena *memory, fuse_kernel *out, const char **why, qn_error *error);

#endif
