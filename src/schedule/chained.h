/*
 * The recipe `chained`: a loop with two products, the second of what was computed from the first (attention). On Hopper:
 * one warp fetches blocks of two arrays by bulk copies, groups of four warps hold their rows of everything else in
 * registers: the left operand, the first product's sums, their exponentials as the left operand of the second, its sums.
 * The next step's first product runs while this step's second one does, and under it the arithmetic.
 *
 * Nothing recognises attention: any arithmetic between the products will do that is computed element by element or folds
 * rows, and masks that compare positions. In: a phase of tile IR. Out: a schedule, or why there is none.
 * SPDX-License-Identifier: MIT
 */
#ifndef QUERN_SCHEDULE_CHAINED_H
#define QUERN_SCHEDULE_CHAINED_H

#include "schedule/schedule.h"

enum { CHAINED_MOST_CONDITIONS = 6, CHAINED_MOST_STORES = 4 };

/* A part of a mask: position `column` along the columns against `limit`, or against `row` along the rows. */
typedef struct chained_condition {
    value of;          /* the bool it is */
    value column, row; /* scalars: where positions start */
    value limit;       /* of a bound; 0: a comparison */
    op_code compare;   /* column `compare` row */
} chained_condition;

typedef struct chained {
    const tile_kernel *kernel;
    int phase;
    const tile_op *loop, *first, *second; /* the products */
    const tile_op *left, *keys, *values;  /* loads: rows, and what the loop walks through */
    value weights;                        /* the second product's left operand */
    value scale;                          /* what its sums are multiplied with before; 0: nothing */
    int carried;                          /* which carried value the second product's sums are */
    int rows, columns, depth, width;      /* of a program; of a step; of the first product's rows; of the second's */
    dtype elem;
    chained_condition conditions[CHAINED_MOST_CONDITIONS];
    int condition_count;
    const tile_op *stores[CHAINED_MOST_STORES];
    int store_count, bulk_store; /* bulk_store: the one of the sums */
    int groups, threads, stages; /* stages: of each ring */
    int64_t keys_offset, values_offset, phases_offset, shared_bytes;
} chained;

const chained *chained_phase(const tile_kernel *k, int phase, const sched_machine *machine, arena *memory,
                             const char **why);
/* The conditions of a mask, as bits; false: it is made of something else. */
bool chained_mask(const chained *c, value v, unsigned *conditions);
/* What a value is an array of, in registers: a scalar, one number a row, a column, a score, or an element of the sums. */
typedef enum chained_kind { CHAINED_SCALAR, CHAINED_ROW, CHAINED_COLUMN, CHAINED_SCORE, CHAINED_SUM } chained_kind;
chained_kind chained_kind_of(const chained *c, value v);
bool chained_is_row_test(const chained *c, value v); /* one truth a row, of numbers of rows */

#endif
