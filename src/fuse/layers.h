/*
 * Layers of a small perceptron as one kernel: rows stay where they are computed.
 *
 * Words: a *layer* is a product of rows [B, K] with a matrix [K, N] that is in memory, and the arithmetic on its result
 * that the next product reads; a *stack* is layers one upon the other. A cluster of blocks keeps some rows of a stack in
 * shared memory from the first layer to the last; each block computes a part of the columns of every layer and hands it
 * to the others. What somebody else reads is stored on the way. SPDX-License-Identifier: MIT
 */
#ifndef QUERN_FUSE_LAYERS_H
#define QUERN_FUSE_LAYERS_H

#include "fuse/fuse.h"

enum {
    LAYERS_MOST = 16,
    LAYER_NODES = 12,   /* of arithmetic in a layer */
    LAYER_ARRAYS = 40,  /* read: rows, matrices, vectors */
    LAYER_OUTPUTS = 16, /* as many as a call has results */
    LAYER_DEPTH = 1024, /* of a row: two of them for each of LAYER_ROWS are in shared memory */
    LAYER_ROWS = 8,
    LAYER_BLOCKS = 8, /* of a cluster */
    LAYER_THREADS = 256,
};

typedef enum layer_kind { LAYER_NUMBER, LAYER_SCALAR, LAYER_COLUMN, LAYER_ROW, LAYER_PLACE } layer_kind;

/* What arithmetic reads beside the product: a number, or an array by the place, the row, the column, or neither. */
typedef struct layer_operand {
    node n;     /* as the arithmetic names it */
    node array; /* what is read, of as many elements as its kind says */
    layer_kind kind;
} layer_operand;

typedef struct single_layer {
    node dot, matrix, result; /* result: what the next product reads, the product itself or the last of `nodes` */
    int64_t depth, columns;
    node nodes[LAYER_NODES]; /* ascending */
    int node_count;
    layer_operand operands[LAYER_NODES];
    int operand_count;
} single_layer;

typedef struct layer_stack {
    node rows; /* [B, K] of the first layer */
    int64_t row_count;
    single_layer layers[LAYERS_MOST];
    int layer_count;
    node outputs[LAYER_OUTPUTS]; /* nodes of layers that somebody else reads */
    int output_count;
    double time_ns, apart_ns; /* estimated: this kernel; a kernel for each layer */
    node call;                /* once it is made */
} layer_stack;

/* layers.c: what plan_prepare asks. NULL: there is nothing of the kind. */
typedef struct layer_search layer_search;
layer_search *layers_find(graph *g, const fuse_leaf *leaves, const bool *reached, const node *roots, int root_count,
                          const fuse_options *options, arena *memory);
/* The node that stands for n, which a stack leaves in memory; 0: none does. prepared: as of scores.h. */
typedef node layers_prepared(void *context, node n);
node layers_make(layer_search *all, node n, layers_prepared *prepared, void *context);

/* layers_text.c */
bool layers_write(op_code code); /* there is text for such arithmetic */
/* The kernel; arrays (room for LAYER_ARRAYS) get what it is called with. */
const char *layers_source(arena *memory, const graph *g, const layer_stack *c, const char *name, node *arrays,
                          int *count);

#endif
