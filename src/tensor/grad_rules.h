/*
 * What the files of gradients share. A rule gets one node with the gradient that arrives at it and builds the gradients
 * of its inputs. Rules read forward values only through `x` and `y`: between checkpoints those are copies.
 * The grad_* builders fold constants as they go, so that seeds, zeros and ones leave no ops behind.
 * SPDX-License-Identifier: MIT
 */
#ifndef QUERN_TENSOR_GRAD_RULES_H
#define QUERN_TENSOR_GRAD_RULES_H

#include "tensor/grad.h"

typedef struct grad_step {
    graph *g;
    graph_node n;      /* the op: its attributes, type and shape */
    node y;            /* its value */
    const node *x;     /* its inputs' values */
    const bool *wants; /* by input: a gradient is asked for */
    node d;            /* what arrives at y */
    node *dx;          /* by input: out; 0 is none */
} grad_step;

typedef void grad_rule(grad_step *s); /* a mistake is in graph->error */

/* grad_map.c, grad_move.c, grad_fold.c, grad_index.c */
grad_rule grad_of_map, grad_of_same, grad_of_reshape, grad_of_permute, grad_of_expand, grad_of_slice, grad_of_window,
    grad_of_pad, grad_of_concat, grad_of_reduce, grad_of_scan, grad_of_dot, grad_of_take, grad_of_gather,
    grad_of_take_add, grad_of_gather_add;

/* grad_build.c: graph ops with constants folded. */
bool grad_constant(const graph *g, node n, double *value); /* a FULL of floats, moved or not */
bool grad_zero(const graph *g, node n);
node grad_number(graph *g, node like, double value);
node grad_add(graph *g, node a, node b);
node grad_sub(graph *g, node a, node b);
node grad_mul(graph *g, node a, node b);
node grad_div(graph *g, node a, node b);
node grad_neg(graph *g, node a);
node grad_scale(graph *g, node a, double factor);
node grad_plus(graph *g, node a, double term);
node grad_where(graph *g, node condition, node d); /* d where it holds, else 0 */
node grad_where_not(graph *g, node condition, node d);
node grad_sum(graph *g, node x, unsigned axis_set);
node grad_expand(graph *g, node x, const shape *s);
node grad_everywhere(graph *g, node scalar, const shape *s); /* of rank 0 */
node grad_flip(graph *g, node x, int axis);
node grad_along(graph *g, const shape *s, int axis); /* i64: each element's position along the axis */
node grad_swap(graph *g, node x);                    /* the last two axes */
/* The part of `axis` from start on, step apart. */
node grad_part(graph *g, node x, int axis, int64_t start, int64_t step, int64_t count);
/* Zeros around (and between) along one axis. */
node grad_spread(graph *g, node x, int axis, int64_t before, int64_t step, int64_t extent);

/* checkpoint.c: values that the backward pass computes again. */
typedef struct recompute recompute;
recompute *recompute_new(graph *g, const node *order, int count, arena *memory); /* NULL: no checkpoint in it */
node recompute_value(recompute *r, node n); /* n itself where it is kept; r may be NULL */

#endif
