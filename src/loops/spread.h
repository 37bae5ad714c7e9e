/*
 * Programs of spreads: maps, rows, scans, small products. What their nodes name beside the tile IR: groups of passes that
 * share rows, and passes, with what was decided for their loops.
 *
 * Inside a pass a node stands at a level (number[0]): it is done once a group, a row, a chunk of `vector` elements, or an
 * element. Values come in the order in which they are needed, each once at its place; printers follow that order.
 * SPDX-License-Identifier: MIT
 */
#ifndef QUERN_LOOPS_SPREAD_H
#define QUERN_LOOPS_SPREAD_H

#include "loops/loops.h"
#include "schedule/product.h"
#include "schedule/view.h"

/* Who writes what all threads of a row hold: each (it holds it alone), thread 0 of the team, or of its part. LEAD_ALONE:
 * thread 0, and the others do not even compute it. */
typedef enum loop_lead { LEAD_EACH, LEAD_THREAD, LEAD_PART, LEAD_ALONE } loop_lead;

typedef struct loop_group {
    const group *group;
    online *online; /* of its block */
    int online_count;
    loop_lead lead;
    bool tests_rows; /* a thread may have no row */
} loop_group;

typedef struct loop_pass { /* how the positions of a pass are gone through */
    const pass_nest *pass;
    pass_layout *layout;
    struct windows *windows;           /* that are taken by vectors; NULL: none */
    int unroll;                        /* chunks whose loads are asked for together */
    bool loads;                        /* ... before all else, or into registers */
    bool tests_chunks, tests_elements; /* positions may be outside of the pass */
    bool predicates; /* the test of a chunk is a part of each condition; else a branch around all of it */
    bool loose;      /* elements that are not the row's are computed too */
} loop_pass;

typedef struct loop_product { /* of a DOT, by all threads of the team */
    const tile_op *dot;
    bool gathered, on_units; /* an operand's places are computed: gather; on the matrix units */
    gather_product gather;
    bool has_product; /* else it is computed sum by sum */
    product product;
} loop_product;

/* A phase: seen, chosen for and built. before: of the phase whose last block goes on with it, or NULL. */
qn_status loops_spread(survey *e, int phase, const sched_machine *machine, const spread *before, arena *memory,
                       loop_program *out, qn_error *error);
bool loops_store_spreads(const nest_view *view, const loop_pass *pass, const tile_op *op); /* threads exchange first */

#endif
