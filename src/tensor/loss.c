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

/* A loss of x - target in the wide type, which broadcast. */
typedef node difference_loss(graph *g, node difference, double corner);

static qn_tensor of_difference(const char *op, difference_loss *how, qn_tensor x, qn_tensor target, double corner,
                               qn_reduction reduction)
{
    node n[2];
    qn_tape *tape = tape_begin(op, (qn_tensor[]){x, target}, 2, n);
    if (!tape || !tensor_meet(tape->graph, op, n, 2)) return tape_failed();
    graph *g = tape->graph;
    if (!(corner >= 0)) return graph_fail(g, op, "its corner is at %g: it cannot be negative", corner), tape_failed();
    dtype elem = tensor_elem(g, tensor_float(g, n[0]));
    node each = how(g, graph_binary(g, OP_SUB, tensor_wide(g, n[0]), tensor_wide(g, n[1])), corner);
    return tape_handle(tape, tensor_convert(g, reduced(g, each, reduction), elem));
}

static node absolute(graph *g, node difference, double corner)
{
    (void)corner;
    return graph_unary(g, OP_ABS, difference);
}

/* d^2 / 2 up to the corner, delta * (|d| - delta / 2) beyond. */
static node huber(graph *g, node difference, double delta)
{
    node size = graph_unary(g, OP_ABS, difference);
    node near = tensor_scalar(g, OP_MUL, graph_binary(g, OP_MUL, difference, difference), 0.5, false);
    node far = tensor_scalar(g, OP_MUL, tensor_scalar(g, OP_SUB, size, delta / 2, false), delta, false);
    return graph_select(g, tensor_scalar(g, OP_LT, size, delta, false), near, far);
}

/* d^2 / (2 beta) up to the corner, |d| - beta / 2 beyond. */
static node smooth(graph *g, node difference, double beta)
{
    if (beta == 0) return graph_unary(g, OP_ABS, difference);
    return tensor_scalar(g, OP_DIV, huber(g, difference, beta), beta, false);
}

qn_tensor qn_l1_loss(qn_tensor x, qn_tensor target, qn_reduction reduction)
{
    return of_difference("l1_loss", absolute, x, target, 0, reduction);
}

qn_tensor qn_huber_loss(qn_tensor x, qn_tensor target, double delta, qn_reduction reduction)
{
    return of_difference("huber_loss", huber, x, target, delta, reduction);
}

qn_tensor qn_smooth_l1_loss(qn_tensor x, qn_tensor target, double beta, qn_reduction reduction)
{
    return of_difference("smooth_l1_loss", smooth, x, target, beta, reduction);
}

/* The sum over the number of rows. */
static node by_rows(graph *g, node each)
{
    if (!each) return 0;
    double rows = tensor_shape(g, each)->rank ? (double)tensor_shape(g, each)->extents[0] : 1;
    return tensor_scalar(g, OP_DIV, reduced(g, each, QN_SUM), rows, false);
}

/* t * (log t - x), which is 0 where t is: its logarithm is taken of 1 there, so that no gradient is NaN. */
qn_tensor qn_kl_div(qn_tensor x, qn_tensor target, bool log_target, qn_reduction reduction)
{
    node n[2], each;
    qn_tape *tape = tape_begin("kl_div", (qn_tensor[]){x, target}, 2, n);
    if (!tape || !tensor_meet(tape->graph, "kl_div", n, 2)) return tape_failed();
    graph *g = tape->graph;
    dtype elem = tensor_elem(g, tensor_float(g, n[0]));
    node wide = tensor_wide(g, n[0]), t = tensor_wide(g, n[1]);
    if (log_target) {
        each = graph_binary(g, OP_MUL, graph_unary(g, OP_EXP, t), graph_binary(g, OP_SUB, t, wide));
    } else {
        node zero = tensor_scalar(g, OP_EQ, t, 0, false);
        node safe = graph_select(g, zero, tensor_number(g, t, 1), t);
        node entropy = graph_binary(g, OP_MUL, t, graph_unary(g, OP_LOG, safe));
        each = graph_binary(g, OP_SUB, entropy, graph_binary(g, OP_MUL, t, wide));
    }
    node loss = reduction == QN_BATCH_MEAN ? by_rows(g, each) : reduced(g, each, reduction);
    return tape_handle(tape, tensor_convert(g, loss, elem));
}

/* x above 0; the gradient passes at 0, as that of PyTorch's hinges does. */
static node hinge(graph *g, node x)
{
    return graph_select(g, tensor_scalar(g, OP_LT, x, 0, false), tensor_number(g, x, 0), x);
}

/* target 1: x; -1: what x lacks to the margin. */
qn_tensor qn_hinge_embedding_loss(qn_tensor x, qn_tensor target, double margin, qn_reduction reduction)
{
    node n[2];
    qn_tape *tape = tape_begin("hinge_embedding_loss", (qn_tensor[]){x, target}, 2, n);
    if (!tape) return tape_failed();
    graph *g = tape->graph;
    dtype elem = tensor_elem(g, tensor_float(g, n[0]));
    node wide = tensor_wide(g, n[0]), none = tensor_number(g, wide, 0);
    node lack = hinge(g, tensor_scalar(g, OP_SUB, wide, margin, true));
    node far = tensor_where(g, tensor_scalar(g, OP_NE, n[1], 1, false), lack, none);
    node near = tensor_where(g, tensor_scalar(g, OP_NE, n[1], -1, false), wide, none);
    return tape_handle(tape, tensor_convert(g, reduced(g, tensor_binary(g, OP_ADD, far, near), reduction), elem));
}

/* The p-norm of a - b + epsilon over the last axis. */
static node distance(graph *g, node a, node b, double p, double epsilon)
{
    node apart = tensor_scalar(g, OP_ADD, tensor_binary(g, OP_SUB, a, b), epsilon, false);
    if (!apart) return 0;
    unsigned last = 1u << (tensor_shape(g, apart)->rank - 1);
    return tensor_drop(g, tensor_norm(g, apart, last, p), last);
}

qn_tensor qn_triplet_margin_loss(qn_tensor anchor, qn_tensor positive, qn_tensor negative, double margin, double p,
                                 double epsilon, qn_reduction reduction)
{
    const char *op = "triplet_margin_loss";
    node n[3];
    qn_tape *tape = tape_begin(op, (qn_tensor[]){anchor, positive, negative}, 3, n);
    if (!tape || !tensor_meet(tape->graph, op, n, 3)) return tape_failed();
    graph *g = tape->graph;
    if (!tensor_shape(g, n[0])->rank) return graph_fail(g, op, "its operands need an axis"), tape_failed();
    dtype elem = tensor_elem(g, tensor_float(g, n[0]));
    for (int i = 0; i < 3; i++) n[i] = tensor_wide(g, n[i]);
    node gap = graph_binary(g, OP_SUB, distance(g, n[0], n[1], p, epsilon), distance(g, n[0], n[2], p, epsilon));
    node each = hinge(g, tensor_scalar(g, OP_ADD, gap, margin, false));
    return tape_handle(tape, tensor_convert(g, reduced(g, each, reduction), elem));
}

/* sum(a b) / (max(|a|, epsilon) max(|b|, epsilon)) */
qn_tensor qn_cosine_similarity(qn_tensor a, qn_tensor b, int axis, double epsilon)
{
    node n[2];
    qn_tape *tape = tape_begin("cosine_similarity", (qn_tensor[]){a, b}, 2, n);
    if (!tape || !tensor_meet(tape->graph, "cosine_similarity", n, 2)) return tape_failed();
    graph *g = tape->graph;
    if ((axis = tensor_axis(g, "cosine_similarity", n[0], axis)) < 0) return tape_failed();
    dtype elem = tensor_elem(g, tensor_float(g, n[0]));
    unsigned set = 1u << axis;
    node size[2];
    for (int i = 0; i < 2; i++) {
        n[i] = tensor_wide(g, n[i]);
        size[i] = tensor_scalar(g, OP_MAX, tensor_norm(g, n[i], set, 2), epsilon, false);
    }
    node product = graph_reduce(g, FOLD_SUM, graph_binary(g, OP_MUL, n[0], n[1]), set);
    node y = graph_binary(g, OP_DIV, product, graph_binary(g, OP_MUL, size[0], size[1]));
    return tape_handle(tape, tensor_convert(g, tensor_drop(g, y, set), elem));
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
static int class_axis(graph *g, const char *op, node logits, node target)
{
    const shape *s = tensor_shape(g, logits), *t = tensor_shape(g, target);
    int axis = s->rank > 1 ? 1 : 0;
    bool fits = s->rank >= 1 && t->rank == s->rank - 1;
    for (int k = 0; k < t->rank && fits; k++) fits = t->extents[k] == s->extents[k < axis ? k : k + 1];
    if (!fits) {
        graph_fail(g, op, "logits %s and target %s: they should be [N][C][..] and [N][..]", tensor_words(g, logits),
                   tensor_words(g, target));
        return -1;
    }
    if (!dtype_is_integer(tensor_elem(g, target))) {
        graph_fail(g, op, "the target is %s: it must be an integer", dtypes[tensor_elem(g, target)].text);
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

/* Of logits (their log-sum-exp less the target's), or of logarithms of probabilities (less the target's). */
static qn_tensor of_classes(const char *op, qn_tensor logits, qn_tensor target, qn_reduction reduction,
                            int64_t ignore_index, bool is_log)
{
    node n[2];
    qn_tape *tape = tape_begin(op, (qn_tensor[]){logits, target}, 2, n);
    if (!tape) return tape_failed();
    graph *g = tape->graph;
    int axis = class_axis(g, op, n[0], n[1]);
    if (axis < 0) return tape_failed();
    dtype elem = tensor_elem(g, tensor_float(g, n[0]));
    node x = tensor_wide(g, n[0]), place = tensor_insert(g, tensor_convert(g, n[1], DT_I64), axis);
    node hit = chosen(g, x, place, axis);
    node each = is_log ? graph_unary(g, OP_NEG, hit) : graph_binary(g, OP_SUB, tensor_logsumexp(g, x, 1u << axis), hit);
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

qn_tensor qn_cross_entropy(qn_tensor logits, qn_tensor target, qn_reduction reduction, int64_t ignore_index)
{
    return of_classes("cross_entropy", logits, target, reduction, ignore_index, false);
}

qn_tensor qn_nll_loss(qn_tensor logs, qn_tensor target, qn_reduction reduction, int64_t ignore_index)
{
    return of_classes("nll_loss", logs, target, reduction, ignore_index, true);
}
