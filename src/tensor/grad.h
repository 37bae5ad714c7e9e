/*
 * Gradients, graph to graph. In: outputs with the gradients that arrive at them, and inputs. Out: nodes of the same
 * graph, one an input. What a rule builds is ordinary graph code, so a gradient has gradients of its own.
 * docs/gradients.md says what each op's derivative is, ties and corners included.
 * SPDX-License-Identifier: MIT
 */
#ifndef QUERN_TENSOR_GRAD_H
#define QUERN_TENSOR_GRAD_H

#include "ir/graph.h"

/* loss: a float of one element. out[i]: the gradient by inputs[i], of its shape and type; zeros where the loss does not
 * depend on it. False: graph->error says why, and out is all 0. */
bool graph_gradient(graph *g, node loss, const node *inputs, int count, node *out);

/* The same from several outputs; seeds[k] (of the shape and type of outputs[k]) is what arrives there. */
bool graph_gradient_from(graph *g, const node *outputs, const node *seeds, int output_count, const node *inputs,
                         int count, node *out);

/* A value that the backward pass keeps; what lies before it is computed again there. checkpoint.c */
node graph_checkpoint(graph *g, node x);

/* A gradient of whole rows that few indices touch: base 0 with updates added at rows. Index of rank 1, updates
 * [index][row...]. False: it is not of this form. sparse.c */
typedef struct sparse_rows {
    node index, updates;
    int64_t limit; /* rows of the table */
} sparse_rows;
bool sparse_rows_find(graph *g, node gradient, sparse_rows *out);
/* Every row once: sorted indices, and where an index is met first the sum of the updates of its kind, else 0. */
sparse_rows sparse_rows_sum(graph *g, const sparse_rows *rows);

#endif
