/*
 * Building the program of a spread: shared by loops/spread.c (blocks and control flow), loops/pass.c (groups, passes,
 * values) and loops/barriers.c.
 * SPDX-License-Identifier: MIT
 */
#ifndef QUERN_LOOPS_SPREAD_BUILD_H
#define QUERN_LOOPS_SPREAD_BUILD_H

#include "loops/spread.h"

/* Who makes an access: for each element the thread that has its position; the first thread of those that have its row,
 * or of all; several. */
typedef enum threads_of_touch { THREADS_OWN, THREADS_LEAD, THREADS_MANY } threads_of_touch;

typedef struct touch { /* of memory that other threads may touch */
    int buffer;        /* a kept tile; 0: an array, accessed by op */
    bool writes;
    threads_of_touch threads;
    const tile_op *op;
    const pass_layout *layout; /* unless MANY; NULL: no loops */
    place at;
} touch;

typedef struct touches {
    touch *items;
    int count, capacity;
} touches;

typedef struct spread_builder {
    survey *survey;
    spread *spread;
    arena *memory;
    loop_node **tail;            /* where the next node goes */
    touches open, now;           /* since the last barrier; of the item that is being built */
    touches log;                 /* since the phase began */
    touches left;                /* open where a program ends early */
    bool in_map;                 /* inside a region of single elements */
    int barriers, loop_barriers; /* so far; where the loop around began */
    bool broadcasts;             /* what one thread has goes to all */
    bool *resident;              /* by value: sums of products that are in registers over a loop */
    int scans;                   /* in registers, so far */
    value *ahead;                /* loads of the body that come a trip ahead */
    int ahead_count, ahead_capacity;
} spread_builder;

typedef struct pass_builder { /* a group, or one access outside of any */
    spread_builder *b;
    nest_view view;
    const loop_group *group; /* NULL: none */
    loop_pass *pass;
    bool leads; /* one thread writes what others hold, too */
} pass_builder;

/* spread.c */
loop_node *spread_add(spread_builder *b, loop_code code, const tile_op *op);
void spread_block(spread_builder *b, const tile_block *block);
bool spread_team_is_one(const spread_builder *b); /* a single thread: nobody waits, nothing is handed over */

/* pass.c */
void spread_group(spread_builder *b, const group *g);
/* A load, store or atomic of one element. */
void spread_access(spread_builder *b, const tile_op *op);

/* barriers.c */
void touch_buffer(spread_builder *b, int buffer, bool writes);
void touch_access(const pass_builder *n, const tile_op *op, place at);
void touch_by_many(spread_builder *b, const tile_op *op); /* read by a product, stored by another thread than its own */
/* After an item's touches are known: it waits for the team if they conflict with what is open. */
void touches_commit(spread_builder *b, loop_node *item);
void touches_stop(spread_builder *b); /* the team has met: nothing is open */
touches touches_copy(spread_builder *b, const touches *from);
void touches_join(spread_builder *b, touches *to, const touches *from);
/* At the end of the body, whose accesses are in the log from `logged` on. */
void touches_loop_ends(spread_builder *b, const tile_op *loop, int logged);

#endif
