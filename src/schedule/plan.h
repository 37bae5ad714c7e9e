/*
 * The planner of one block: shared by plan.c (passes and groups), region.c (what reaches beyond them) and
 * repeat.c (what is computed twice).
 * SPDX-License-Identifier: MIT
 */
#ifndef QUERN_SCHEDULE_PLAN_H
#define QUERN_SCHEDULE_PLAN_H

#include "schedule/survey.h"

typedef struct memory_event {
    tile_op *op; /* a LOAD, STORE or ATOMIC */
    int position;
    group *group; /* NULL: inside a region or a scalar op */
    int pass;
    bool own_place; /* loads: asked for at its own place */
} memory_event;

typedef struct planner {
    survey *e;
    tile_block *block;
    plan plan;
    group *open;
    int position;
    bool again;
    bool in_loop;    /* the region that is looked at may run several times */
    int *defined_at; /* value to position in this block, -1 elsewhere */
    group **home;    /* value to the group that computes it (folds, kept values) */
    int *home_pass;
    memory_event *writes, *reads; /* reads: of the open group */
    int write_count, write_capacity, read_count, read_capacity;
    int *demand_key, *demand_count; /* in how many passes a virtual value is computed */
    bool *demand_off;               /* ... and whether somewhere not at its own place */
    const pass_nest *demand_pass;
    sink *joining;
    int least_pass;
    bool must_close, same_pass_only;
    bool reads_own; /* the store that joins computes from its own array */
    int key, group_key, key_outer;
    int across; /* of count_along */
} planner;

/* plan.c */
bool writes_memory(const tile_op *op);
void force_value(planner *p, value v);    /* keep it; plans again unless it is the result of a fold */
void require_buffer(planner *p, value v); /* forced if it is virtual or the result of a fold */
value operand_in_memory(const survey *e, const tile_op *op,
                        int operand);                 /* what op reads from memory for it; 0: nothing */
void require_operands(planner *p, const tile_op *op); /* those that it reads from memory */
void push_item(planner *p, item_kind kind, tile_op *op, group *g);
void close_group(planner *p);
value alias_root(const survey *e, value v); /* the value whose buffer v shares */
void add_sink(planner *p, sink s);
walk_visit check_demand; /* what p->joining would break in the open group: must_close, same_pass_only, least_pass */

/* through.c: by load that several passes need, the value to keep instead of it and others; 0: itself. */
value *gather_loads(planner *p);

/* repeat.c: of a finished plan; p->again where a value was forced. */
void force_repeated(planner *p);

/* region.c */
void copy_to(planner *p, tile_op *op, value v, value target);
void plan_control(planner *p, tile_op *op);
void plan_dot(planner *p, tile_op *op);
void plan_yield(planner *p, tile_op *op, const value *targets);

#endif
