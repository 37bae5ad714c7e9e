/*
 * Clipping of gradients, all together by their norm or each element by a limit. Gradients made of rows stay so: their
 * norm is that of the summed rows, and what is clipped are the summed rows.
 * SPDX-License-Identifier: MIT
 */
#include "tensor/grad_rules.h"
#include "tensor/optim.h"

#define TINY 1e-6 /* keeps the quotient finite */

static node rank_0(graph *g, node x)
{
    return graph_reshape(g, x, &(shape){0});
}

/* The sum of all elements, f32 (f64 of f64), rank 0. */
static node sum_of_squares(graph *g, node x)
{
    if (!x) return 0;
    node wide = graph_convert(g, x, optim_elem(g->nodes[x].elem));
    unsigned all = (1u << g->nodes[x].shape.rank) - 1;
    return graph_convert(g, rank_0(g, graph_reduce(g, FOLD_SUM, graph_binary(g, OP_MUL, wide, wide), all)), DT_F32);
}

static node scaled(graph *g, node x, node factor)
{
    if (!x || !factor) return 0;
    shape s = g->nodes[x].shape;
    return graph_binary(g, OP_MUL, x, grad_everywhere(g, graph_convert(g, factor, g->nodes[x].elem), &s));
}

static node from_rows(graph *g, node like, node index, node updates)
{
    return graph_take_add(g, grad_number(g, like, 0), index, updates, 0);
}

node optim_clip_norm(graph *g, node *gradients, int count, double max_norm)
{
    node total = graph_full_double(g, DT_F32, &(shape){0}, 0);
    sparse_rows rows;
    for (int i = 0; i < count; i++) {
        if (!gradients[i]) continue;
        node x = gradients[i];
        if (sparse_rows_find(g, x, &rows)) x = sparse_rows_sum(g, &rows).updates;
        total = grad_add(g, total, sum_of_squares(g, x));
    }
    node norm = graph_unary(g, OP_SQRT, total);
    if (!norm) return 0;
    node factor = grad_div(g, grad_number(g, norm, max_norm), grad_plus(g, norm, TINY));
    factor = graph_binary(g, OP_MIN, factor, grad_number(g, norm, 1));
    for (int i = 0; i < count; i++) {
        if (!gradients[i]) continue;
        if (sparse_rows_find(g, gradients[i], &rows))
            gradients[i] = from_rows(g, gradients[i], rows.index, scaled(g, rows.updates, factor));
        else
            gradients[i] = scaled(g, gradients[i], factor);
    }
    return norm;
}

static node limited(graph *g, node x, double limit)
{
    return graph_binary(g, OP_MAX, graph_binary(g, OP_MIN, x, grad_number(g, x, limit)), grad_number(g, x, -limit));
}

void optim_clip_value(graph *g, node *gradients, int count, double limit)
{
    sparse_rows rows;
    for (int i = 0; i < count; i++) {
        if (!gradients[i]) continue;
        if (sparse_rows_find(g, gradients[i], &rows)) {
            sparse_rows single = sparse_rows_sum(g, &rows);
            gradients[i] = from_rows(g, gradients[i], single.index, limited(g, single.updates, limit));
        } else {
            gradients[i] = limited(g, gradients[i], limit);
        }
    }
}
