/*
 * Running loop programs: shared by loops/run.c (values and passes), loops/run_control.c (launches, control flow, products)
 * and loops/run_roles.c and loops/run_chained.c (products with roles).
 * SPDX-License-Identifier: MIT
 */
#ifndef QUERN_LOOPS_RUN_H
#define QUERN_LOOPS_RUN_H

#include "ir/interp_state.h"
#include "loops/spread.h"

enum { MOST_SINKS = 64, SIM_MANY = -2 }; /* SIM_MANY: all threads do it together */

typedef struct sim_touch { /* of an element of memory; written, read: the epochs of both, which barriers count */
    int writer, reader;
    bool atomic; /* the write was */
    int64_t written, read;
} sim_touch;

typedef struct sim_tile { /* by buffer number */
    tile_type type;       /* of the value last asked for; dims are constants */
    cell *cells;
    sim_touch *touches;
    int64_t room;
    const kept *kept;
} sim_tile;

typedef struct sim_known { /* a register of each thread */
    value v;
    place at;
    int level;
} sim_known;

typedef struct sim {
    const loop_program *program;
    const array_view *arrays;
    const launch_plan *plan;
    arena *memory;
    text *why; /* empty: nothing is wrong so far */
    int threads, thread;
    int64_t at[3]; /* the program */
    int64_t epoch;
    cell *scalars;  /* by value */
    bool *resident; /* by value: sums of a product that are in registers over a loop */
    sim_tile *tiles;
    sim_touch **touches;     /* by parameter: of arrays that the phase writes */
    int64_t *firsts, *spans; /* by parameter: offset of its first element in memory; elements from there */
    int64_t position[MAX_RANK];
    int level;
    sim_known *known;
    int known_count, most_known;
    cell *registers;          /* [thread][known] */
    cell *folded[MOST_SINKS]; /* by sink of the pass: a row of what it folds */
} sim;

typedef struct sim_copy { /* of a box of an operand, on its way */
    int operand, box, stage;
    int64_t start[MAX_RANK]; /* by axis of the array */
} sim_copy;

/* run_roles.c */
sim_copy *sim_note_copy(sim *s, const loop_node *n); /* where it begins, as scalars are now */
/* run.c */
void sim_group(sim *s, const loop_node *group);
void sim_scalar(sim *s, const tile_op *op);
void sim_access(sim *s, const tile_op *op);
void sim_store(sim *s, const tile_op *op); /* its element at s->position ... */
void sim_store_number(sim *s, const tile_op *op, cell x);
cell sim_load(sim *s, const tile_op *op);
cell sim_apply(const tile_op *op, dtype from, dtype to, const cell *x); /* an elementwise op on one element */
cell sim_element(sim *s, value v);                                      /* of a tile, at s->position */
void sim_set_element(sim *s, value v, cell c);                          /* of a kept tile, there */
sim_tile *kept_tile(sim *s, value v);                                   /* made where it is not there yet */
/* run_control.c */
void sim_open(sim *s, const loop_program *p, const array_view *arrays, const launch_plan *plan, arena *memory,
              text *why);
void sim_nodes(sim *s, const loop_node *n);

#endif
