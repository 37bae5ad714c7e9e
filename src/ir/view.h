/*
 * Views of memory: extents and element strides, and every question that is asked of them. In: numbers. Out: answers and
 * other numbers; nothing is read or written.
 * One meaning for all: the stride of an axis of one position says nothing, a view without elements is row-major and
 * dense and touches nothing, and strides may be zero or negative.
 * SPDX-License-Identifier: MIT
 */
#ifndef QUERN_IR_VIEW_H
#define QUERN_IR_VIEW_H

#include "ir/tile.h"

/* An array argument: element strides, which may be zero or negative. */
typedef struct array_view {
    void *data; /* of element (0, 0, ...) */
    dtype elem;
    int rank;
    int64_t extents[MAX_RANK], strides[MAX_RANK];
} array_view;

/* Elements; saturates at INT64_MAX / 2. */
int64_t extents_count(int rank, const int64_t *extents);
/* Row-major, without gaps. An extent of 0 counts as 1; what does not fit is INT64_MAX / 2. */
void strides_set_row_major(int rank, const int64_t *extents, int64_t *strides);
/* Does position i of the row-major order lie i elements behind the first, for all i? */
bool strides_are_row_major(int rank, const int64_t *extents, const int64_t *strides);
/* The lowest position that is touched, and one past the highest, from element (0, 0, ...); both 0 without elements.
 * False: they do not fit in memory (2^58 elements). */
bool strides_reach(int rank, const int64_t *extents, const int64_t *strides, int64_t *low, int64_t *high);
/* All axes as one axis; false: no single stride walks through them in order. Of one element the stride is 0. */
bool strides_join(int rank, const int64_t *extents, const int64_t *strides, int64_t *extent, int64_t *stride);
/* The strides of another shape over the same elements in the same order: each run of axes that is one in itself is
 * dealt out to the new axes. False: some new axis would need two strides. Both shapes have equally many elements. */
bool strides_reshape(int rank, const int64_t *extents, const int64_t *strides, int to_rank, const int64_t *to_extents,
                     int64_t *out);

array_view view_row_major(void *data, dtype elem, int rank, const int64_t *extents);
int64_t view_count(const array_view *v);
bool view_is_row_major(const array_view *v);
bool view_has_unit_lines(const array_view *v); /* neighbours on the last axis are neighbours in memory */
/* Does every line along the last axis begin at a multiple of so many bytes? The first address counts without elements
 * too: kernels may compute with it. */
bool view_is_aligned(const array_view *v, int bytes);
/* Does the copy engine know it? Unit lines that begin at multiples of 16 bytes, on axes that go forward. */
bool view_is_bulk(const array_view *v);
/* Its lines run backwards, and whole vectors of 16 bytes end with their first elements. */
bool view_is_backwards(const array_view *v);
bool view_is_dense(const array_view *v); /* does every element from the lowest to the highest belong to it, once? */
void view_reach(const array_view *v, int64_t *low, int64_t *high); /* strides_reach of a view that fits in memory */
int64_t view_span(const array_view *v);                            /* elements from the lowest to the highest */
/* The address of an element by its number in row-major order. */
void *view_element(const array_view *v, int64_t number);
/* Do two views share a byte? Equal strides: exactly; else by address range. */
bool views_overlap(const array_view *a, const array_view *b);

/* What any device asks of a scalar argument: all else is unknown. False: it is a float, nothing is asked of it. */
bool facts_of_number(tile_param *p, int64_t number);

#endif
