/*
 * Losses. In: handles of predictions and targets. Out: a scalar (mean or sum) or one loss for each element, composed so
 * that no step cancels: cross-entropy by log-sum-exp and the target's logit chosen by comparison (its gradient is then
 * elementwise), binary cross-entropy as two softplus terms. f32 inside (f64 of f64), and the result is rounded once.
 * SPDX-License-Identifier: MIT
 */
#include "tensor/ops.h"

static node reduced(graph *g, node each, qn_reduction reduction)
{
    if (!each || reduction == QN_EACH) return each;
    unsigned all = (1u << tensor_shape(g, each)->rank) - 1;
    return tensor_drop(g, reduction == QN_MEAN ? tensor_mean(g, each, all) : tensor_sum(g, each, all), all);
}

qn_tensor qn_mse_loss(qn_tensor x, qn_tensor target, qn_reduction reduction)
{
    node n[2];
    qn_tape *tape = tape_begin("mse_loss", (qn_tensor[]){x, target}, 2, n);
    if (!tape || !tensor_meet(tape->graph, "mse_loss", n, 2)) return tape_failed();
    graph *g = tape->graph;
    dtype elem = tensor_elem(g, tensor_float(g, n[0]));
    node difference = graph_binary(g, OP_SUB, tensor_wide(g, n[0]), tensor_wide(g, n[1]));
    node each = graph_binary(g, OP_MUL, difference, difference);
    return tape_handle(tape, tensor_convert(g, reduced(g, each, reduction), elem));
}

qn_tensor qn_bce_with_logits(qn_tensor logits, qn_tensor target, qn_reduction reduction)
{
    node n[2];
    qn_tape *tape = tape_begin("bce_with_logits", (qn_tensor[]){logits, target}, 2, n);
    if (!tape) return tape_failed();
    graph *g = tape->graph;
    if (!shape_same(tensor_shape(g, n[0]), tensor_shape(g, n[1])))
        return graph_fail(g, "bce_with_logits", "logits %s and target %s differ", tensor_words(g, n[0]),
                          tensor_words(g, n[1])),
               tape_failed();
    dtype elem = tensor_elem(g, tensor_float(g, n[0]));
    node x = tensor_wide(g, n[0]), y = tensor_convert(g, n[1], tensor_elem(g, x));
    node hit = graph_binary(g, OP_MUL, y, graph_unary(g, OP_SOFTPLUS, graph_unary(g, OP_NEG, x)));
    node miss = graph_binary(g, OP_MUL, tensor_scalar(g, OP_SUB, y, 1, true), graph_unary(g, OP_SOFTPLUS, x));
    return tape_handle(tape, tensor_convert(g, reduced(g, graph_binary(g, OP_ADD, hit, miss), reduction), elem));
}

/* The class axis of logits; -1 with the error recorded if the target does not go with them. */
static int class_axis(graph *g, node logits, node target)
{
    const shape *s = tensor_shape(g, logits), *t = tensor_shape(g, target);
    int axis = s->rank > 1 ? 1 : 0;
    bool fits = s->rank >= 1 && t->rank == s->rank - 1;
    for (int k = 0; k < t->rank && fits; k++) fits = t->extents[k] == s->extents[k < axis ? k : k + 1];
    if (!fits) {
        graph_fail(g, "cross_entropy", "logits %s and target %s: they should be [N][C][..] and [N][..]",
                   tensor_words(g, logits), tensor_words(g, target));
        return -1;
    }
    if (!dtype_is_integer(tensor_elem(g, target))) {
        graph_fail(g, "cross_entropy", "the target is %s: it must be an integer", dtypes[tensor_elem(g, target)].text);
        return -1;
    }
    return axis;
}

/* The logit of each target: a sum over one element, chosen by comparing positions. Axis stays as 1. */
static node chosen(graph *g, node x, node target, int axis)
{
    shape s = *tensor_shape(g, x), line = {.rank = s.rank};
    for (int k = 0; k < s.rank; k++) line.extents[k] = k == axis ? s.extents[k] : 1;
    node position = graph_expand(g, graph_reshape(g, graph_iota(g, s.extents[axis]), &line), &s);
    node hit = graph_binary(g, OP_EQ, position, graph_expand(g, target, &s));
    return graph_reduce(g, FOLD_SUM, graph_select(g, hit, x, tensor_number(g, x, 0)), 1u << axis);
}

qn_tensor qn_cross_entropy(qn_tensor logits, qn_tensor target, qn_reduction reduction, int64_t ignore_index)
{
    node n[2];
    qn_tape *tape = tape_begin("cross_entropy", (qn_tensor[]){logits, target}, 2, n);
    if (!tape) return tape_failed();
    graph *g = tape->graph;
    int axis = class_axis(g, n[0], n[1]);
    if (axis < 0) return tape_failed();
    dtype elem = tensor_elem(g, tensor_float(g, n[0]));
    node x = tensor_wide(g, n[0]), place = tensor_insert(g, tensor_convert(g, n[1], DT_I64), axis);
    node each = graph_binary(g, OP_SUB, tensor_logsumexp(g, x, 1u << axis), chosen(g, x, place, axis));
    if (!each) return tape_failed();
    if (ignore_index == QN_NO_INDEX) /* the mean is over all of them, a number that is known */
        return tape_handle(tape, tensor_convert(g, reduced(g, tensor_drop(g, each, 1u << axis), reduction), elem));
    shape places = *tensor_shape(g, place);
    node counts = graph_binary(g, OP_NE, place, graph_full(g, DT_I64, &places, (number){.i = ignore_index}));
    each = tensor_drop(g, graph_select(g, counts, each, tensor_number(g, each, 0)), 1u << axis);
    node loss = reduced(g, each, reduction == QN_EACH ? QN_EACH : QN_SUM);
    if (reduction == QN_MEAN && loss) {
        node number = tensor_convert(g, tensor_drop(g, counts, 1u << axis), tensor_elem(g, loss));
        loss = graph_binary(g, OP_DIV, loss, reduced(g, number, QN_SUM));
    }
    return tape_handle(tape, tensor_convert(g, loss, elem));
}
