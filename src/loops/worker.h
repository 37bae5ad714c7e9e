/*
 * A phase as a worker of the CPU runs it: blocks of tile IR as lists of nodes, all planned before anything is printed.
 *
 * Nodes: LET (an op of scalars), GROUP (passes that share loops), DOT, PRODUCTS (a loop that is one deeper product; number[0]:
 * its sums begin with zero and are only stored, three items in one), SCAN, FOLD (over axes that are not the innermost),
 * PRINT, FOR, WHILE and IF, whose blocks have lists of their own.
 * SPDX-License-Identifier: MIT
 */
#ifndef QUERN_LOOPS_WORKER_H
#define QUERN_LOOPS_WORKER_H

#include "loops/loops.h"
#include "schedule/survey.h"

typedef struct worker_block {
    const tile_block *block;
    plan plan;
    loop_node *first;
} worker_block;

typedef struct loop_worker { /* of one phase */
    survey *survey;
    arena *memory;
    worker_block **blocks;
    int count, capacity;
} loop_worker;

/* What is known of a kernel's values, for printers of both languages. */
void loops_survey(const tile_kernel *k, arena *memory, survey *out);
/* Opens the survey for the phase and plans it. */
loop_worker *loops_worker(survey *e, int phase, arena *memory);
const worker_block *worker_find(const loop_worker *w, const tile_block *block); /* of the phase, or of a region in it */

#endif
