/*
 * What the files of score loops share: scores_match.c (structure), scores_write.c (kernels), scores.c (which of them).
 * SPDX-License-Identifier: MIT
 */
#ifndef QUERN_FUSE_SCORES_LOOPS_H
#define QUERN_FUSE_SCORES_LOOPS_H

#include "fuse/scores.h"

enum { SCORES_MOST_DEPTH = 256, SCORES_OUTPUTS = 2 };

/* Places of scores with lower <= column - row <= upper; +-SCORES_FAR: no such limit. */
enum { SCORES_FAR = 1 << 30 };
typedef struct score_band {
    int64_t lower, upper;
} score_band;

/* How an output reads its scores. */
typedef struct output_form {
    node scores, other; /* the operands */
    bool columns;       /* it contracts L: [.., S, D] */
    bool turned;        /* it is [.., D, L] or [.., D, S]: a view of what the kernel writes */
} output_form;

/* A sum along S that is one of rows of the outputs: factor * sum over D of left * output. */
typedef struct row_product {
    node left, output;
    double factor;
} row_product;

/* ---- scores_match.c ---- */
bool scores_is_map(const score_graph *s, node n, op_code code);
node scores_behind(const score_graph *s, node n);               /* through what only repeats or renames a value */
node scores_maximum_of(const score_graph *s, node exponential); /* exp(x - m): m, where it is x's maximum; else 0 */
/* What an output multiplies by: a softmax, perhaps rounded, times a number, and 0 where a condition does not hold (dropout). */
typedef struct score_weights {
    node softmax, kept; /* kept: the condition, or 0 */
    double factor;
} score_weights;
score_weights scores_weights(const score_graph *s, node scores);
/* Is a condition drawn at random for so many columns that it holds for one of them? */
bool scores_is_drawn(const score_graph *s, node condition);
/* Such weights of e / sum(e): its maximum and sum. */
bool scores_is_softmax(const score_graph *s, node scores, node *maximum, node *norm);
/* select(condition, x, -inf) around scores: the conditions; the scores inside. */
node scores_inside_masks(const score_graph *s, node x, node *conditions, int *count, int most);
/* Which j - i of columns j and rows i a condition leaves, and outside of which of them scores are 0. */
score_band scores_band(const score_graph *s, node condition);
bool scores_is_band(const score_graph *s, node condition); /* it is true all over its band */
score_band scores_vanish_outside(const score_graph *s, node n);
/* The ways (0 to 3) in which a product may contract scores: which operand, and whether turned. */
bool scores_form_of(const score_graph *s, node dot, int way, output_form *f);
int64_t scores_output_depth(const graph_node *x, const output_form *f);
/* sum over S of dot(left, v^T) * weights = sum over D of left * dot(weights, v), where that product is a node of the
 * graph: no scores are needed again. */
bool scores_row_product(const score_graph *s, node sum, row_product *out);
/* Are these scores the same if all exponentials below maxima grow by a factor a row, and so their sums? known: by node,
 * what was found before, 0 at first. */
bool scores_keep_scale(const score_graph *s, node n, signed char *known);

/* ---- scores_write.c ---- */
/* The loop of outputs (all of rows, or all of columns) whose statistics are there already; of a sum: forms is NULL. */
bool scores_write_pass(scores_text *t, const node *outputs, const output_form *forms, int count, text *out);
/* The loop that carries a maximum and a norm, with the output that they are for (f) or without (NULL). keeps: it leaves
 * the logarithm of the sum of exponentials. */
bool scores_write_softmax(scores_text *t, node maximum, node norm, node dot, const output_form *f, bool keeps,
                          text *out);

#endif
