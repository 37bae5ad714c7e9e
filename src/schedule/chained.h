/*
 * The recipe `chained`: a loop with products of what was computed from other products (attention and its gradients). On
 * Hopper: one warp fetches blocks of arrays by bulk copies, groups of four warps hold their rows of everything else in
 * registers: sums of the products of scores, what is computed from them as the left operand of the next products, and
 * the sums that the loop carries.
 *
 * Words: a program has *fixed* rows of operands and walks through *moving* ones. Scores are products of both, each group
 * with 64 fixed rows of them; a *sum* is a carried product of weights, computed from scores, and a moving operand. Where
 * the fixed ones are the columns of the scores in the tile IR, everything is held *turned*.
 * Nothing recognises attention: any arithmetic between the products will do that is computed element by element or folds
 * rows, and masks that compare positions. In: a phase of tile IR. Out: a schedule, or why there is none.
 * SPDX-License-Identifier: MIT
 */
#ifndef QUERN_SCHEDULE_CHAINED_H
#define QUERN_SCHEDULE_CHAINED_H

#include "schedule/schedule.h"

enum {
    CHAINED_MOST_CONDITIONS = 6,
    CHAINED_MOST_STORES = 4,
    CHAINED_MOST_OPERANDS = 4,
    CHAINED_MOST_PRODUCTS = 2,
    CHAINED_MOST_SUMS = 2,
    CHAINED_MOST_VECTORS = 4,
    CHAINED_SLACK = 8 /* e^8 is far from the ends of all types of floats */
};

/* A part of a mask: position `moving` + a step's element against `limit`, or against `fixed` + a row. */
typedef struct chained_condition {
    value of;            /* the bool it is */
    value moving, fixed; /* scalars: where positions start */
    value limit;         /* of a bound; 0: a comparison */
    op_code compare;     /* moving `compare` fixed + more: LT, LE, GT, GE */
    int64_t more;
} chained_condition;

typedef struct chained_operand {
    const tile_op *load;
    bool moves;
    int depth;      /* elements of its rows; the copy engine brings them in boxes of 64, zeros beyond */
    int64_t offset; /* of its room; a moving one has one a stage */
} chained_operand;

typedef struct chained_product { /* of scores: fixed times moving rows */
    const tile_op *dot;
    int fixed, moving; /* operands */
} chained_product;

typedef struct chained_sum {
    const tile_op *dot;
    value weights;     /* its left operand */
    value scale;       /* what it is multiplied with before; 0: nothing */
    int carried;       /* which carried value it is */
    int moving, width; /* the right operand; elements of its rows */
    int store;         /* of the stores */
    bool late;         /* its weights need the second product of scores */
    value
        factored; /* of the weights' values a product with a constant, which the sum is multiplied with instead; 0: none */
    double factor; /* that constant, or 1 */
} chained_sum;

typedef struct chained {
    const tile_kernel *kernel;
    int phase;
    const tile_op *loop;
    bool turned;       /* the fixed rows are the columns of the scores */
    bool folds;        /* rows of scores are folded: a softmax */
    int rows, columns; /* fixed of a program; moving of a step */
    dtype elem;
    chained_operand operands[CHAINED_MOST_OPERANDS];
    int operand_count;
    chained_product products[CHAINED_MOST_PRODUCTS]; /* what is computed from the first alone runs under the second */
    int product_count;
    value cut; /* what remains of the first product's scores for the second's */
    chained_sum sums[CHAINED_MOST_SUMS];
    int sum_count;
    value lane_sum;   /* a fold whose sum is only carried: each lane carries its own part; 0: none */
    int lane_carried; /* where it is carried */
    value
        slack; /* a carried maximum that may stay as it is while a step exceeds it by no more than CHAINED_SLACK; 0: none */
    int slack_carried;
    const tile_op *vectors[CHAINED_MOST_VECTORS]; /* loads of one number a moving row */
    int vector_count;
    chained_condition conditions[CHAINED_MOST_CONDITIONS];
    int condition_count;
    value fixed_start,
        fixed_limit; /* where the program's rows begin, and how many there are of them all; 0: all of them exist */
    const tile_op *stores[CHAINED_MOST_STORES];
    int store_count;
    int groups, threads, stages; /* stages: of each ring */
    bool falls;                  /* the last programs have the most steps, and begin first */
    int beside;                  /* then: how many of the other axes' programs begin together */
    bool held;    /* the fixed operand of the only product of scores is in registers: less to read from shared memory */
    bool drained; /* a step's sums are waited for at its end: more in flight would want more registers */
    int64_t vectors_offset, phases_offset, shared_bytes;
} chained;

const chained *chained_phase(const tile_kernel *k, int phase, const sched_machine *machine, arena *memory,
                             const char **why);
/* The conditions of a mask, as bits; false: it is made of something else. */
bool chained_mask(const chained *c, value v, unsigned *conditions);
/* Truths of scores that are no conditions: of an array, or computed, element by element, from positions and scalars. */
bool chained_is_truth(const chained *c, value v);
/* start + iota + more along the rows (axis 0) or columns (1) of the scores. */
bool chained_find_position(const chained *c, value v, int *axis, value *start, int64_t *more);
bool chained_is_place(const chained *c, value v); /* whole numbers that are such a position */
/* What a value is an array of, in registers: a scalar, one number a fixed row or a moving one, a score, or an element of
 * a sum. */
typedef enum chained_kind { CHAINED_SCALAR, CHAINED_FIXED, CHAINED_MOVING, CHAINED_SCORE, CHAINED_SUM } chained_kind;
chained_kind chained_kind_of(const chained *c, value v);
bool chained_is_row_test(const chained *c, value v); /* one truth a fixed row, of numbers of rows */
bool chained_is_product(const chained *c, const tile_op *op);
bool chained_is_table(const chained *c, const tile_op *op); /* a load of a number for each score */
int chained_boxes(int depth);                               /* of 64 elements, in rows of so many */
int chained_sum_of(const chained *c, value v);              /* the sum that a value behind the loop is; -1: none */

bool chained_is_zero(const chained *c, value v);

/* chained_linear.c */
void chained_find_linear(chained *c);

/* chained_slack.c */
void chained_find_slack(chained *c, arena *memory);

/* chained_mask.c */
bool chained_find_mask(chained *c, value v, unsigned *bits);
/* Does a step in which this condition holds for no score leave all that the loop carries as it was? */
bool chained_adds_nothing(const chained *c, int condition, arena *memory);

#endif
