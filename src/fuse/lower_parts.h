/*
 * What lower.c, lower_index.c, lower_access.c and lower_term.c share beside lower.h.
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

/* lower_index.c */
/* A literal where it is small, else a parameter: a new size is no new text. lower_size: of places; structure is literal. */
value lower_number_value(lowering *l, tile_block *b, dtype elem, number n);
value lower_size(lowering *l, tile_block *b, int64_t n);
value lower_sum(lowering *l, tile_block *b, value x, value y);           /* 0 is nothing to add */
int64_t lower_axis_factor(const lowering *l, const affine *a, int axis); /* what a step along a kernel axis adds */
value lower_iota(lowering *l, frame *f, int tile_axis);
bool lower_affine_parts(lowering *l, frame *f, const affine *a, value *start, int *tile_axis, int64_t *step);
value lower_affine(lowering *l, frame *f, const affine *a);
bool lower_is_same_for_tile(const lowering *l, const frame *f, const affine *a);
value lower_inside(lowering *l, frame *f, const term *x);
value lower_quotient(lowering *l, frame *f, const term *x);
unsigned lower_own_axes(const tile_type *type);                 /* those along which a tile has more than one element */
value lower_mask_of(lowering *l, frame *f, unsigned tile_axes); /* what lies inside along these axes; 0: everything */
/* lower_access.c */
value lower_load_term(lowering *l, frame *f, const term *x);

#endif
