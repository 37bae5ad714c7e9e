/*
 * Norms over channels: batch, group and instance norm. In: handles of x [N][C][..], whose second axis is the channels.
 * Out: means and variances over the other axes (or groups of channels), then one scale and one shift for each channel.
 * They compute in f32 (f64 of f64) and round once, at the end; a variance is the mean of squared distances.
 * SPDX-License-Identifier: MIT
 */
#include "tensor/ops.h"

/* A vector of channels, as [1][C][1].. of the wide type; 0 stays 0. */
static node along_channels(graph *g, node vector, int rank)
{
    if (!vector) return 0;
    shape s = {.rank = rank};
    for (int k = 0; k < rank; k++) s.extents[k] = k == 1 ? tensor_shape(g, vector)->extents[0] : 1;
    return graph_reshape(g, tensor_wide(g, vector), &s);
}

/* Vectors (0: none) must have one number for each channel. */
static bool channels_fit(graph *g, const char *op, node x, const node *vectors, int count)
{
    const shape *s = tensor_shape(g, x);
    static const char *const names[] = {"weight", "bias", "mean", "variance"};
    if (s->rank < 2) return graph_fail(g, op, "x is %s: it should be [N][C][..]", tensor_words(g, x)), false;
    for (int i = 0; i < count; i++) {
        const shape *v = vectors[i] ? tensor_shape(g, vectors[i]) : NULL;
        if (v && (v->rank != 1 || v->extents[0] != s->extents[1]))
            return graph_fail(g, op, "the %s is %s, it should be [%lld]: one number for each channel of %s", names[i],
                              tensor_words(g, vectors[i]), (long long)s->extents[1], tensor_words(g, x)),
                   false;
    }
    return true;
}

/* Handles that may be empty as nodes, 0 for those: what tape_begin does not take. */
static qn_tape *begin(const char *op, const qn_tensor *given, int count, node *nodes)
{
    qn_tensor operands[5] = {{0}};
    node found[5];
    int used = 0;
    for (int i = 0; i < count; i++)
        if (i == 0 || given[i].tape) operands[used++] = given[i];
    qn_tape *tape = tape_begin(op, operands, used, found);
    for (int i = 0, next = 0; i < count; i++) nodes[i] = tape && (i == 0 || given[i].tape) ? found[next++] : 0;
    return tape;
}

static node scale_and_shift(graph *g, node y, node weight, node bias)
{
    int rank = y ? tensor_shape(g, y)->rank : 0;
    if (y && weight) y = tensor_binary(g, OP_MUL, y, along_channels(g, weight, rank));
    return y && bias ? tensor_binary(g, OP_ADD, y, along_channels(g, bias, rank)) : y;
}

/* (x - mean) / sqrt(variance + epsilon) */
static node standard(graph *g, node centred, node variance, double epsilon)
{
    return tensor_binary(g, OP_MUL, centred,
                         graph_unary(g, OP_RSQRT, tensor_scalar(g, OP_ADD, variance, epsilon, false)));
}

/* running + momentum * (now - running), in the type of the running one. */
static node moved(graph *g, node running, node now, double momentum)
{
    dtype elem = tensor_elem(g, running);
    shape flat = *tensor_shape(g, running);
    node from = tensor_wide(g, running), to = graph_reshape(g, now, &flat);
    node sum = tensor_binary(g, OP_ADD, tensor_scalar(g, OP_MUL, from, 1 - momentum, false),
                             tensor_scalar(g, OP_MUL, to, momentum, false));
    return tensor_convert(g, graph_same(g, GRAPH_DETACH, sum, 0), elem);
}

qn_tensor qn_batch_norm(qn_tensor x, qn_tensor mean, qn_tensor variance, qn_tensor weight, qn_tensor bias,
                        bool training, double momentum, double epsilon, qn_tensor *new_mean, qn_tensor *new_variance)
{
    node n[5];
    if (new_mean) *new_mean = (qn_tensor){.tape = x.tape};
    if (new_variance) *new_variance = (qn_tensor){.tape = x.tape};
    qn_tape *tape = begin("batch_norm", (qn_tensor[]){x, weight, bias, mean, variance}, 5, n);
    if (!tape || !channels_fit(tape->graph, "batch_norm", n[0], n + 1, 4)) return tape_failed();
    graph *g = tape->graph;
    if ((!training || new_mean || new_variance) && (!n[3] || !n[4]))
        return graph_fail(g, "batch_norm", "%s: pass the running mean and variance",
                          training ? "new statistics come from the running ones" : "it is not training"),
               tape_failed();
    dtype elem = tensor_elem(g, tensor_float(g, n[0]));
    node wide = tensor_wide(g, n[0]);
    shape s = *tensor_shape(g, wide);
    if (!training) {
        node centred = tensor_binary(g, OP_SUB, wide, along_channels(g, n[3], s.rank));
        node y = standard(g, centred, along_channels(g, n[4], s.rank), epsilon);
        return tape_handle(tape, tensor_convert(g, scale_and_shift(g, y, n[1], n[2]), elem));
    }
    unsigned set = ((1u << s.rank) - 1) & ~2u;
    double count = (double)shape_count(&s) / (double)MAXIMUM(s.extents[1], 1);
    node middle = tensor_mean(g, wide, set), centred = tensor_binary(g, OP_SUB, wide, middle);
    if (!centred) return tape_failed();
    node spread = tensor_mean(g, graph_binary(g, OP_MUL, centred, centred), set);
    node y = scale_and_shift(g, standard(g, centred, spread, epsilon), n[1], n[2]);
    if (new_mean) *new_mean = tape_handle(tape, moved(g, n[3], middle, momentum));
    if (new_variance) {
        node sample = tensor_scalar(g, OP_MUL, spread, count / (count - 1), false);
        *new_variance = tape_handle(tape, moved(g, n[4], sample, momentum));
    }
    return tape_handle(tape, tensor_convert(g, y, elem));
}

/* Each group of channels of each image has a mean and a variance of its own. given NULL: each channel is one. */
static qn_tensor by_groups(const char *op, qn_tensor x, const int64_t *given, qn_tensor weight, qn_tensor bias,
                           double epsilon)
{
    node n[3];
    qn_tape *tape = begin(op, (qn_tensor[]){x, weight, bias}, 3, n);
    if (!tape || !channels_fit(tape->graph, op, n[0], n + 1, 2)) return tape_failed();
    graph *g = tape->graph;
    shape s = *tensor_shape(g, n[0]);
    int64_t groups = given ? *given : s.extents[1];
    if (given && (groups < 1 || s.extents[1] % groups))
        return graph_fail(g, op, "%lld groups of the %lld channels of %s", (long long)groups, (long long)s.extents[1],
                          tensor_words(g, n[0])),
               tape_failed();
    shape rows = {3, {s.extents[0], groups, groups ? s.extents[1] / groups : 1}};
    for (int k = 2; k < s.rank; k++) rows.extents[2] *= s.extents[k];
    dtype elem = tensor_elem(g, tensor_float(g, n[0]));
    node wide = graph_reshape(g, tensor_wide(g, n[0]), &rows);
    node centred = tensor_binary(g, OP_SUB, wide, tensor_mean(g, wide, 4));
    if (!centred) return tape_failed();
    node y = standard(g, centred, tensor_mean(g, graph_binary(g, OP_MUL, centred, centred), 4), epsilon);
    return tape_handle(tape, tensor_convert(g, scale_and_shift(g, graph_reshape(g, y, &s), n[1], n[2]), elem));
}

qn_tensor qn_group_norm(qn_tensor x, int64_t groups, qn_tensor weight, qn_tensor bias, double epsilon)
{
    return by_groups("group_norm", x, &groups, weight, bias, epsilon);
}

qn_tensor qn_instance_norm(qn_tensor x, qn_tensor weight, qn_tensor bias, double epsilon)
{
    return by_groups("instance_norm", x, NULL, weight, bias, epsilon);
}
