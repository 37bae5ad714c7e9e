/*
 * Products of products through a softmax, as loops over blocks: scores are never stored.
 *
 * Words: *scores* are the elements of a product [.., L, S] and of all arithmetic on it; a *statistic* is a maximum or sum
 * of scores along S, one number a row; an *output* is a product that contracts scores along S ([.., L, D]) or along L
 * ([.., S, D]). SPDX-License-Identifier: MIT
 */
#ifndef QUERN_FUSE_SCORES_H
#define QUERN_FUSE_SCORES_H

#include "fuse/fuse.h"

#define SCORES_ARRAYS 24
#define SCORES_STATISTICS 6
#define SCORES_STATEMENTS 96

typedef struct score_graph { /* where structure is looked for */
    const graph *g;
    const fuse_leaf *leaves;
    const bool
        *reached; /* by node: something wanted needs it; NULL: not asked. Earlier forms of it may lie beside it */
    int count;    /* nodes that leaves and reached are of: making adds others */
} score_graph;

typedef struct scores_value { /* a node at a place of the score space, as a name of the text */
    node n;
    signed char axes[GRAPH_RANK]; /* by axis of the node: the axis of the scores it runs along, -1: none */
    const char *name;
    bool rows, columns; /* it has an extent along L, along S */
} scores_value;

typedef struct scores_text { /* a kernel being written */
    arena *memory;
    const graph *g;
    const fuse_leaf *leaves;
    const bool *is_root; /* by node: somebody wants it */
    const fuse_options *options;
    shape scores;
    node arrays[SCORES_ARRAYS]; /* parameters, named x0 x1 ... */
    signed char array_axes[SCORES_ARRAYS][GRAPH_RANK];
    bool array_turned[SCORES_ARRAYS];   /* the last two axes of the node are exchanged */
    int64_t array_depth[SCORES_ARRAYS]; /* operands of products: elements of the axis that is taken whole; else 0 */
    int array_count;
    text parameters, constants;
    text neither, rows, columns, both; /* statements by what they depend on */
    scores_value values[SCORES_STATEMENTS];
    int value_count;
    node statistics[SCORES_STATISTICS]; /* that are read: parameters like any array */
    int statistic_count;
    int products;        /* of scores */
    int64_t depth;       /* of all products together */
    bool positions;      /* masks compare positions and nothing else */
    bool windowed;       /* they leave out columns before others, too */
    bool reads_scores;   /* an array of scores is read: a bias may be minus infinity */
    bool infinite;       /* ... and so may a constant */
    bool empty_rows;     /* rows may have no score that is more than minus infinity */
    bool one;            /* the constant ONE is there: an axis of one element */
    bool fast;           /* a loop that the matrix units run at their speed (schedule/chained.h) */
    node first, second;  /* a maximum and a sum that the kernel carries itself; 0: none */
    const char *refused; /* NULL: all could be written */
} scores_text;

/* scores_text.c */
void scores_begin(scores_text *t, arena *memory, const graph *g, const fuse_leaf *leaves, const bool *is_root,
                  const fuse_options *options, const shape *scores);
void scores_end(scores_text *t);
/* Scores that have a name already. */
void scores_name(scores_text *t, node n, const char *name);
/* The name of scores, whose statements are in the text now; "" where it was refused. */
const char *scores_put(scores_text *t, node n);
const char *scores_condition(scores_text *t, node n); /* the same of a condition, which may lack an axis */
/* An operand of a product as a tile: kept = 0: its axis rank-2 runs along L; 1: along S; the other axis is whole. The
 * name of a tile [block][whole] (or turned, where *turned). */
const char *scores_operand(scores_text *t, node n, int kept, bool contracted_first, bool *turned);
bool scores_swaps(const graph_node *x); /* a permute of the last two axes */
/* A sum of exponentials below a maximum, neither in memory yet: the maximum; else 0. (scores_match.c) */
node scores_norm_maximum(const score_graph *s, node n);
const char *scores_type(dtype elem);
void scores_one(scores_text *t); /* the kernel has the constant ONE */

/* scores.c: what plan_prepare asks. NULL: there is nothing of the kind. */
typedef struct score_loops score_loops;
score_loops *scores_find(graph *g, const fuse_leaf *leaves, const bool *reached, const node *roots, int root_count,
                         const fuse_options *options, arena *memory);
/* The node that stands for n, an output or a statistic; 0: n is neither. prepared: what stands for another node, which is
 * prepared first where it has not been. */
typedef node scores_prepared(void *context, node n);
node scores_make(score_loops *o, node n, scores_prepared *prepared, void *context);

#endif
