/*
 * Index maps: where an element of a node lies in the iteration space of a kernel.
 *
 * A space has axes; each is a piece of an axis of its root shape (an axis of 12 that was cut by 4 is two axes of 3 and
 * 4). The coordinates of a node's element are affine in the axes and in atoms, which are further integers: quotients
 * and remainders of affine expressions, and indices read from memory. A movement op turns the map of its result into
 * the map of its input. Extents of 1 are no axes: their coordinate is 0.
 * SPDX-License-Identifier: MIT
 */
#ifndef QUERN_FUSE_INDEX_H
#define QUERN_FUSE_INDEX_H

#include "ir/graph.h"

#define SPACE_ROOTS 14
#define SPACE_AXES MAX_RANK /* so an array that runs along all of them is still an array */
#define SPACE_ATOMS 12

typedef struct space_axis {
    int root;             /* of the root shape */
    int64_t unit, extent; /* one step is `unit` elements of the root axis */
} space_axis;

typedef struct space {
    int root_count;
    int64_t roots[SPACE_ROOTS];
    int cut_count[SPACE_ROOTS];
    int64_t cuts[SPACE_ROOTS][SPACE_AXES]; /* ascending units where an axis is cut */
    int axis_count;
    space_axis axes[SPACE_AXES]; /* in order of the roots, larger units first */
} space;

typedef struct affine {
    int64_t constant;
    int64_t factor[SPACE_AXES + SPACE_ATOMS]; /* of axes, then of atoms */
} affine;

typedef struct index_map {
    int rank;
    affine axes[GRAPH_RANK]; /* the coordinate on each axis of the node */
} index_map;

void space_init(space *s, const int64_t *extents, int rank);
/* Cuts an axis into `inner` elements and the rest; false: it does not divide, or there is no room. */
bool space_cut(space *s, int axis, int64_t inner);
affine space_coordinate(const space *s, int root); /* on an axis of the root shape */
int64_t space_count(const space *s, unsigned axes);

affine affine_constant(int64_t constant);
void affine_add(affine *to, const affine *from, int64_t times);
bool affine_same(const affine *a, const affine *b);
bool affine_has_atoms(const affine *a);
bool index_map_same(const index_map *a, const index_map *b);
index_map index_map_root(const space *s, const int *roots, int rank); /* axis k of the node is root axis roots[k] */

/* The row-major position, or with strides the place in memory. strides NULL: row-major of `s`. */
affine index_linear(const index_map *m, const shape *s, const int64_t *strides);
/* Runs through 0 .. count-1 exactly once when `axes` of the space run through all their values. */
bool index_is_dense(const space *s, const affine *linear, unsigned axes, int64_t count);
/* The same where some axes may run backwards. */
bool index_is_turned_dense(const space *s, const affine *linear, unsigned axes, int64_t count);
unsigned affine_axes(const affine *a, const unsigned *atom_axes); /* which axes it depends on */

/* Reshape: the map of a tensor of shape `from` whose row-major neighbour of shape `to` has map `m`. What has to be cut
 * is told (*cut_axis >= 0), where may_cut: cut and begin again. What no cut can do is done by `quotient`: the atom of
 * (a / divisor) % modulus, modulus 0: none; it returns -1 if there is no room, and then the result is false. Of a tensor
 * that is `dense`, row-major in memory, only the place counts: there the last axis takes what would have to be cut. */
/* A sum that is known to lie in 0 .. extent-1 wherever the map counts. */
typedef struct index_known {
    affine sum;
    int64_t extent;
} index_known;
#define INDEX_KNOWN_MOST 8
typedef int index_quotient(void *context, const affine *a, int64_t divisor, int64_t modulus);
bool index_reshape(const space *s, const shape *to, const index_map *m, const shape *from, index_map *out, bool may_cut,
                   int *cut_axis, int64_t *cut_inner, const index_known *known, int known_count, bool dense,
                   index_quotient *quotient, void *context);

#endif
