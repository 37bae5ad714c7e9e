/*
 * From a tensor graph to kernels. In: a graph, which of its nodes are in memory already (with their strides), which are
 * wanted. Out: a plan: kernels in order, each a tile kernel with the views it is called with, why each boundary was not
 * fused, and where every intermediate lies.
 *
 * The text of a kernel depends on structure only: extents are its run-time parameters, strides are those of the views
 * it is called with. So a new batch size gives the same text, and what is compiled stays good.
 * Pure: needs no device. Everything of a plan lives in its arena.
 * SPDX-License-Identifier: MIT
 */
#ifndef QUERN_FUSE_FUSE_H
#define QUERN_FUSE_FUSE_H

#include "ir/graph.h"

/* A node that is in memory before the plan runs: every LEAF, and what an earlier evaluation computed. In elements. */
typedef struct fuse_leaf {
    bool given;
    int64_t offset, strides[GRAPH_RANK];
} fuse_leaf;

typedef enum fuse_mode { FUSE_FUSED, FUSE_EAGER, FUSE_STRICT } fuse_mode;

typedef struct fuse_options {
    fuse_mode mode;
    bool gpu;             /* many threads, small tiles; else few threads, large ones */
    bool cuda_text;       /* the device runs kernels that are written in CUDA */
    bool c_text;          /* ... in C */
    bool check_indices;   /* assert that indices lie inside */
    int units;            /* threads or multiprocessors */
    int arch;             /* of a GPU: 90 for sm_90; 0: not known */
    int64_t memory_bytes; /* of the device; 0: not known */
    int64_t scores_bytes; /* scores of fewer bytes are stored (scores.c); 0: as the device suggests */
    int library;          /* KNOB_LIBRARY of kernels that are a product of whole arrays; they are written as one */
    int tile;             /* of fed products: the one of so many that dot_choices.c prints, from 1 on; 0: by estimate */
} fuse_options;
enum { FUSE_TILES = 7 }; /* there are of fed products */

/* What a kernel will take, estimated (cost.c). The estimates rank plans of one graph against each other: they depend on
 * extents and on the kind of device alone. */
typedef struct fuse_cost {
    double bytes; /* to and from memory */
    double ops;   /* arithmetic, by elements; functions count for several */
    double loads; /* of elements, by what they keep the load units busy */
    int launches;
    double time_ns;    /* 0: nothing is known */
    const char *bound; /* "memory", "arithmetic", "loads", "launches": what takes longest */
} fuse_cost;

/* What one array parameter of a kernel is called with: a strided view of a node's memory. */
typedef struct fuse_argument {
    node base; /* a leaf, or a node that an earlier kernel of the plan (or this one) writes, row-major */
    int rank;
    int64_t offset, extents[MAX_RANK], strides[MAX_RANK]; /* in elements, from element 0 of the base's memory */
} fuse_argument;

typedef struct fuse_kernel {
    const char *name;    /* by the ops in it: "sub_exp_sum_div" */
    tile_kernel *kernel; /* NULL: the call of a module's kernel, node `call` */
    node call;
    fuse_argument *arguments; /* by array parameter that is not scratch, in order */
    int argument_count;
    number *scalars; /* by scalar parameter, in order (PARAM_SCALAR) */
    int scalar_count;
    node *nodes; /* the ops in it, views too */
    int node_count;
    node *writes; /* nodes it leaves in memory */
    int write_count;
    tile_kernel *over;         /* the same where arguments over_read and over_write are one array, or NULL */
    int over_read, over_write; /* its place among the arguments is that of over_read */
    int64_t read_bytes, written_bytes, flops;
    int64_t saved_bytes; /* of intermediates that were not written and read again */
    fuse_cost cost;
    const struct dot_choice *choice; /* of a product: what it was chosen from; NULL: none */
    const char *note;                /* of a kernel written out: why it was chosen; NULL: there was no choice */
} fuse_kernel;

/* An edge between two kernels, or from a kernel to a result: why the value went through memory. */
typedef struct fuse_boundary {
    node value;
    int producer, consumer; /* kernels; consumer -1: it is a result */
    int64_t bytes;
    const char *why;
} fuse_boundary;

/* Where a written node lies. */
typedef struct fuse_place {
    node same_as;         /* in place of this leaf or node (an assignment's home, a dead input), or 0 */
    node root;            /* where a chain of these ends: whose place it is */
    int64_t offset_bytes; /* in the plan's workspace; -1: it is a result and has memory of its own */
} fuse_place;

typedef struct fuse_assign {
    node home, from; /* leaf `home` gets the value of `from` when all that reads it has run */
} fuse_assign;

typedef struct fuse_plan {
    arena *memory;
    const graph *graph;
    fuse_kernel *kernels;
    int kernel_count;
    fuse_boundary *boundaries;
    int boundary_count;
    fuse_place *places; /* by node; only of nodes that some kernel writes */
    int64_t workspace_bytes;
    int64_t peak_bytes;  /* workspace and results */
    double eager_ns;     /* estimated: a kernel for each op, as a sum */
    int64_t eager_bytes; /* what such kernels would have in memory at once at most, with the results */
} fuse_plan;

/* leaves: by node. wanted: results with memory of their own (or views of leaves, which no kernel writes). */
qn_status fuse_plan_make(graph *g, const fuse_leaf *leaves, const node *wanted, int wanted_count,
                         const fuse_assign *assigns, int assign_count, const fuse_options *options, arena *memory,
                         fuse_plan **out, qn_error *error);

/* memory.c: lifetimes and places of everything that the plan's kernels write. */
void fuse_memory(fuse_plan *plan, const node *wanted, int wanted_count, const fuse_assign *assigns, int assign_count);

/* report.c: `kernel N: ...` lines with bytes, FLOPs, what fusion saved, and the boundaries. */
void fuse_print(const fuse_plan *plan, text *out);
void fuse_print_why(const fuse_plan *plan, text *out); /* ... and what each is estimated to take, and what bounds it */
double fuse_plan_ns(const fuse_plan *plan);            /* estimated */
/* "softmax matmul": what the user called, where that is known, else the ops. */
void fuse_print_ops(const graph *g, const fuse_kernel *k, text *out);
void fuse_print_memory(const fuse_plan *plan, text *out);
/* dot_choices.c: the recipe and tile of a product, the others with what they would take, and why. */
void fuse_print_choices(const fuse_options *options, const fuse_kernel *k, text *out);
void fuse_add_bytes(text *out, int64_t bytes); /* "32.8 KB" */
const char *fuse_op_text(const graph_node *x);

#endif
