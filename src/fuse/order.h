/*
 * Kernels that are not loop nests over elements: scans, sorting, and additions by index. They are written in the
 * language, with element types and the number of steps put in, and lowered like any kernel.
 *
 * Their inputs lie in memory: each is a view, the node's elements in the memory of a leaf or of a node that a kernel
 * writes. Axes before and after the one that matters are taken together where the view allows it; else `false` comes
 * back and the input wants memory of its own.
 * SPDX-License-Identifier: MIT
 */
#ifndef QUERN_FUSE_ORDER_H
#define QUERN_FUSE_ORDER_H

#include "fuse/fuse.h"

/* Where the elements of a node lie: strides for each axis of the node. */
typedef struct fuse_view {
    node base;
    int64_t offset, strides[GRAPH_RANK];
} fuse_view;
fuse_view fuse_view_row_major(const graph *g, node n); /* in memory of its own */

/* source.c: the kernel that this text of the language is; ours, so it has no errors. */
tile_kernel *fuse_from_source(arena *memory, const char *name, const char *source);
/* The view as [before][at][after] around `axis`; `axes`: how many axes `at` takes. False: strides do not fit. */
bool fuse_view_middle(const graph *g, node n, const fuse_view *view, int axis, int axes, fuse_argument *out);
/* A kernel of one node: its name, nodes and counts. Arguments are the caller's to fill in. */
fuse_kernel fuse_kernel_of(arena *memory, const graph *g, node n, const char *name, int argument_count);

/* Does the kernel of n, a SCAN, an ARGSORT or an addition by index, read input `input` where this view has it? */
bool fuse_view_suits(const graph *g, node n, int input, const fuse_view *view);

/* order.c: n is a SCAN or ARGSORT; input: of its only input. */
bool fuse_scan_kernel(arena *memory, const graph *g, node n, const fuse_view *input, const fuse_options *options,
                      fuse_kernel *out);
bool fuse_argsort_kernel(arena *memory, const graph *g, node n, const fuse_view *input, const fuse_options *options,
                         fuse_kernel *out);

/* a and b folded, as text of the language; `inside`: the type that is computed in. */
const char *order_combined(arena *memory, fold_kind fold, const char *inside, const char *a, const char *b);

/* order_chain.c: a scan of x[A][n][B] down its middle axis, of two rows at least, in one read. */
tile_kernel *fuse_scan_chain(arena *memory, const char *function, fold_kind fold, dtype elem, int64_t columns);

/* ... of few long rows x[A][B][n], of elements that are computed in 32 bits; piece: so many of them at once. */
tile_kernel *fuse_scan_long(arena *memory, const char *function, fold_kind fold, dtype elem, int piece);

/* scatter.c: additions by index in the order of the updates, whatever runs at once. */
/* A graph in which each TAKE_ADD and GATHER_ADD that a kernel will compute has a fourth input: the order of its indices
 * (an ARGSORT); of rows in pieces (on a GPU) the index is in that order. Few updates a line become arithmetic. Returns
 * the node to use in place of n. */
node fuse_scatter_prepare(graph *g, node n, const fuse_options *options);
/* inputs: views of base (base.base 0: zeros), index, updates, order. */
bool fuse_scatter_kernel(arena *memory, const graph *g, node n, const fuse_view *inputs, const fuse_options *options,
                         fuse_kernel *out);

/* RUN_SUM; inputs: views of index, updates, order. */
bool fuse_run_sum_kernel(arena *memory, const graph *g, node n, const fuse_view *inputs, const fuse_options *options,
                         fuse_kernel *out);

/* bins.c: a TAKE_ADD in bins of a GPU, of one number or of many. 0: not this one. */
node fuse_bins_count(graph *g, const graph_node *n);
node fuse_bins_sum(graph *g, const graph_node *n);

/* scatter_cuda.c */
typedef enum scatter_cuda_kind { SCATTER_ADD_ROWS /* to what y holds */, SCATTER_RUN_SUMS } scatter_cuda_kind;
bool fuse_scatter_cuda_suits(const fuse_options *options, dtype elem, int64_t positions, int64_t row);
tile_kernel *fuse_scatter_cuda(arena *memory, scatter_cuda_kind kind, dtype index, int64_t row);

/* sort.c: an ARGSORT as calls of kernels in CUDA and arithmetic around them; n itself where its keys are too wide. sorted
 * (or NULL) gets the keys in their order where that costs nothing; else it is left alone. */
node fuse_sort_prepare(graph *g, node n, const fuse_options *options, node *sorted);
/* x with its axis last; back: the permutation that undoes it. */
node fuse_axis_last(graph *g, node x, int axis, int *back);
/* The one result of a kernel that is written out: its module is made from the source. */
node fuse_source_call(graph *g, const char *name, const char *source, dtype elem, const shape *s, const node *inputs,
                      int count);
/* The first `count` positions of an ARGSORT of x; 0: by sorting it all. values (or NULL) gets the elements there, where that
 * costs nothing, else it is left alone; where they come and no `positions` are wanted, 0 comes back too. */
node fuse_select_prepare(graph *g, node x, int axis, bool descending, int64_t count, bool positions, node *values);

/* order_c.c: the same on a CPU, by kernels written in C: an ARGSORT (n itself if it has nothing to sort); the first `count`
 * positions of one, or 0; a TAKE_ADD or GATHER_ADD to single numbers, or 0. */
node fuse_sort_c(graph *g, node n);
node fuse_select_c(graph *g, node x, int axis, bool descending, int64_t count);
node fuse_add_c(graph *g, const graph_node *n);

/* dot_tiles.c: products with one row, one column or at most one step of depth as other nodes; else n. */
node fuse_dot_prepare(graph *g, node n, const fuse_options *options);
/* On a GPU: a product of operands that are rounded to tf32 rounds them itself. */
node fuse_dot_round(graph *g, node n);
/* dot_gather.c: a sum of a part of a product, or such a part in a CONCAT, gets a product of its own, which computes that
 * part alone. */
node fuse_parts_prepare(graph *g, node n);
/* channels.c: a product of windows of an image that does not have its channels last, of one that has; else n. leaves: of
 * nodes below leaf_count. */
node fuse_channels_prepare(graph *g, const fuse_leaf *leaves, int leaf_count, node n, const fuse_options *options);

#endif
