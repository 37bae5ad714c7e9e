/*
 * Kernels that are one product of whole arrays: c = a * b, perhaps with a row added, whatever the tiles, loops and orders of
 * programs that compute it. Such a launch may be done by somebody else's product instead.
 *
 * whole_find looks at the tile IR alone and knows no names: one `dot` over all of k, its operands plain loads, its sums
 * stored once. whole_numbers then asks, for the arrays of one launch, whether its programs cover all of c, by running their
 * index arithmetic, and what the matrices are in memory. Both say in a few words what stands against it.
 * SPDX-License-Identifier: MIT
 */
#ifndef QUERN_IR_WHOLE_H
#define QUERN_IR_WHOLE_H

#include "ir/interp.h"

enum { WHOLE_ROWS, WHOLE_COLUMNS, WHOLE_DEPTH, WHOLE_DIRECTIONS };

/* How one array lies along the product: which of its axes is which direction (-1: none has one element along it), and the
 * scalar that picks the position on each other axis. */
typedef struct whole_array {
    int param;
    int axes[WHOLE_DIRECTIONS];
    value picked[MAX_RANK]; /* by axis; 0: the axis is one of the directions */
} whole_array;

typedef struct whole_bound { /* a test that an operand's elements have to pass to count */
    int direction;
    value limit;
} whole_bound;

typedef struct whole_product {
    const tile_kernel *kernel;
    const tile_op *dot;
    whole_array left, right, result;
    int bias; /* the array that is added to each row; -1: none */
    dtype elem, sum, stored;
    bool tf32;
    value starts[WHOLE_DIRECTIONS]; /* of a program's tile; of depth: the loop's first; 0: from 0 on */
    int64_t tile[WHOLE_DIRECTIONS];
    value limit; /* of the loop over k; 0: one step is all */
    whole_bound *bounds;
    int bound_count, bound_capacity;
    const tile_op **scalars; /* what the values above are computed by, in order */
    int scalar_count, scalar_capacity;
} whole_product;

/* One matrix of a batch, in elements; strides of directions of one element are 0. */
typedef struct whole_matrix {
    const void *data;
    int64_t strides[2], next; /* from row to row, from column to column, from matrix to matrix */
} whole_matrix;

typedef struct whole_numbers {
    int64_t extents[WHOLE_DIRECTIONS], count; /* count: of products */
    whole_matrix left, right, result;
    const void *bias; /* NULL: none */
} whole_numbers;

/* NULL: it is none, *why says what stands against it. Everything lives in the arena. */
const whole_product *whole_find(const tile_kernel *k, arena *memory, const char **why);
/* NULL: `out` is the product of a launch with these arrays; else what stands against it. */
const char *whole_numbers_of(const whole_product *w, const array_view *arrays, const launch_plan *plan,
                             whole_numbers *out);
/* "bf16 4096x4096x4096", "8 x f32 128x128x128 to bf16, with a bias": rows, columns, k. */
void whole_print(const whole_product *w, const whole_numbers *n, text *out);

#endif
