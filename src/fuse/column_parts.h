/*
 * Late folds: what programs leave of their rows, and how it is joined. lower_column.c makes the phases that leave parts,
 * lower_join.c those that join them.
 * SPDX-License-Identifier: MIT
 */
#ifndef QUERN_FUSE_COLUMN_PARTS_H
#define QUERN_FUSE_COLUMN_PARTS_H

#include "fuse/loop.h"

typedef struct parts {
    int folds[LOWER_ARRAYS], count;
    fold_kind kinds[LOWER_ARRAYS]; /* of what is carried: folds, then what pairs carry beside theirs */
    int carried;                   /* how many values that are */
    int scratch[LOWER_ARRAYS];     /* parameters [parts][the other kept axes ...] */
    unsigned kept[LOWER_ARRAYS];   /* inner axes of the space that the fold keeps: all or none */
    loop_pair pairs[LOWER_ARRAYS];
    int beside_at[LOWER_ARRAYS], beside[LOWER_ARRAYS]; /* of a pair: its place among what is carried, its scratch */
    int count_at, counts; /* where squares need them: rows, among what is carried, and scratch; else count_at is 0 */
    int part_param;
    int64_t part_count;
    struct parts
        *gathered; /* where there are too many for one phase: those of PARTS_TOGETHER of them each; else NULL */
    int64_t join_rows;
} parts;

enum { PARTS_TOGETHER = 64, PARTS_MOST = 512 };

dtype parts_elem(const loop *p, int fold);
value parts_identity(const loop *p, lowering *l, tile_block *b, int fold);
value parts_identity_beside(lowering *l, tile_block *b, pair_kind kind);
int parts_sum_levels(const loop *p); /* of loops of a program that add up */
bool parts_is_late(const loop *p, int output);

void parts_find(const loop *p, lowering *l, parts *c);
void parts_make_scratch(const loop *p, lowering *l, parts *c, const int *kept, int kept_count);
void parts_join(const loop *p, lowering *l, const parts *c, const int *kept, int kept_count);

#endif
