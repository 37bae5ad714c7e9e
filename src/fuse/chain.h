/*
 * Layers of a small perceptron as one kernel: rows stay where they are computed.
 *
 * Words: a *layer* is a product of rows [B, K] with a matrix [K, N] that is in memory, and the arithmetic on its result
 * that the next product reads; a *chain* is layers one upon the other. A cluster of blocks keeps some rows of a chain in
 * shared memory from the first layer to the last; each block computes a part of the columns of every layer and hands it
 * to the others. What somebody else reads is stored on the way. SPDX-License-Identifier: MIT
 */
#ifndef QUERN_FUSE_CHAIN_H
#define QUERN_FUSE_CHAIN_H

#include "fuse/fuse.h"

enum {
    CHAIN_LAYERS = 16,
    CHAIN_NODES = 12,   /* of arithmetic in a layer */
    CHAIN_ARRAYS = 40,  /* read: rows, matrices, vectors */
    CHAIN_OUTPUTS = 16, /* as many as a call has results */
    CHAIN_DEPTH = 1024, /* of a row: two of them for each of CHAIN_ROWS are in shared memory */
    CHAIN_ROWS = 8,
    CHAIN_BLOCKS = 8, /* of a cluster */
    CHAIN_THREADS = 256,
};

typedef enum chain_kind { CHAIN_NUMBER, CHAIN_SCALAR, CHAIN_COLUMN, CHAIN_ROW, CHAIN_PLACE } chain_kind;

/* What arithmetic reads beside the product: a number, or an array by the place, the row, the column, or neither. */
typedef struct chain_operand {
    node n;     /* as the arithmetic names it */
    node array; /* what is read, of as many elements as its kind says */
    chain_kind kind;
} chain_operand;

typedef struct chain_layer {
    node dot, matrix, result; /* result: what the next product reads, the product itself or the last of `nodes` */
    int64_t depth, columns;
    node nodes[CHAIN_NODES]; /* ascending */
    int node_count;
    chain_operand operands[CHAIN_NODES];
    int operand_count;
} chain_layer;

typedef struct chain {
    node rows; /* [B, K] of the first layer */
    int64_t row_count;
    chain_layer layers[CHAIN_LAYERS];
    int layer_count;
    node outputs[CHAIN_OUTPUTS]; /* nodes of layers that somebody else reads */
    int output_count;
    double time_ns, apart_ns; /* estimated: this kernel; a kernel for each layer */
    node call;                /* once it is made */
} chain;

/* chain.c: what plan_prepare asks. NULL: there is nothing of the kind. */
typedef struct chains chains;
chains *chains_find(graph *g, const fuse_leaf *leaves, const bool *reached, const node *roots, int root_count,
                    const fuse_options *options, arena *memory);
/* The node that stands for n, which a chain leaves in memory; 0: none does. prepared: as of scores.h. */
typedef node chain_prepared(void *context, node n);
node chains_make(chains *all, node n, chain_prepared *prepared, void *context);

/* chain_text.c */
bool chain_writes(op_code code); /* there is text for such arithmetic */
/* The kernel; arrays (room for CHAIN_ARRAYS) get what it is called with. */
const char *chain_source(arena *memory, const graph *g, const chain *c, const char *name, node *arrays, int *count);

#endif
