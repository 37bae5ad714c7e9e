/*
 * What lower.c and lower_term.c share beside lower.h.
 * SPDX-License-Identifier: MIT
 */
#ifndef QUERN_FUSE_LOWER_PARTS_H
#define QUERN_FUSE_LOWER_PARTS_H

#include "fuse/lower.h"

affine lower_place(const lowering *l, node n, const index_map *m); /* in memory, in elements */
/* An access by computed indices: axis k of the node is inside whatever the coordinates are, and counts from zero: with
 * others of its kind it is a strided view. */
bool lower_axis_is_inside(const lowering *l, const term *x, int k);
affine lower_inside_place(const lowering *l, const term *x); /* the part of its place that these make */
/* axes: kernel axes, or -1 for an axis with an extent of its own. digits: or NULL. -1: there is no room. */
int lower_array(lowering *l, param_kind kind, node base, const fuse_argument *view, const int *axes,
                const param_digits *digits);
/* Whether an expression goes on counting through all axes of the space that a kernel axis is made of. */
bool lower_is_linear(const lowering *l, const affine *a, int axis);
int lower_number_param(lowering *l, dtype elem, number n);

#endif
