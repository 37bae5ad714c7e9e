/*
 * Products, layers and losses of the tensor API for .qn files. In: a call. Out: what the C function gives. Options are
 * named arguments with the API's defaults.
 * SPDX-License-Identifier: MIT
 */
#include "tensor/function_api.h"
#include "tensor/ops.h"

static const qn_tensor none;

/* dot(a, b, c): sums of f16 and bf16 stay f32, as in kernels. */
qn_tensor api_run_dot(api_call *a)
{
    dtype type = operand_type(a->t, &a->values[0]), other = operand_type(a->t, &a->values[1]);
    tracer *t = a->t;
    if (type != other || a->values[0].kind != OPERAND_TENSOR || a->values[1].kind != OPERAND_TENSOR) {
        fault_dot_types(t->d, a->call->at, type, other);
        a->bad = true;
        return none;
    }
    dtype out = dtype_is_narrow(type) ? DT_F32 : type == DT_I8 || type == DT_U8 ? DT_I32 : type;
    node n = graph_dot(t->g, a->values[0].tensor, a->values[1].tensor, out, t->tape->products);
    operand product = operand_of_node(t, n, 0, a->call->at);
    if (!is_bad(&product) && a->count == 3) product = trace_binary(t, "+", &a->values[2], &product, a->call->at);
    a->bad = is_bad(&product);
    return tape_handle(t->tape, a->bad ? 0 : product.tensor);
}

qn_tensor api_run_matmul(api_call *a)
{
    return qn_matmul(api_tensor(a, 0), api_tensor(a, 1));
}

qn_tensor api_run_linear(api_call *a)
{
    qn_tensor weight = api_tensor(a, 1);
    if (api_named_bool(a, "transposed", false))
        weight = qn_transpose(weight, 0, 1); /* [out][in], as PyTorch keeps them */
    return qn_linear(api_tensor(a, 0), weight, api_tensor(a, 2));
}

qn_tensor api_run_bmm(api_call *a)
{
    return qn_bmm(api_tensor(a, 0), api_tensor(a, 1));
}

/* addmm(c, a, b, beta = 1, alpha = 1) */
qn_tensor api_run_addmm(api_call *a)
{
    double beta = api_named_float(a, "beta", 1), alpha = api_named_float(a, "alpha", 1);
    return qn_addmm(api_tensor(a, 0), api_tensor(a, 1), api_tensor(a, 2), beta, alpha);
}

qn_tensor api_run_baddbmm(api_call *a)
{
    double beta = api_named_float(a, "beta", 1), alpha = api_named_float(a, "alpha", 1);
    return qn_baddbmm(api_tensor(a, 0), api_tensor(a, 1), api_tensor(a, 2), beta, alpha);
}

/* einsum("ij,jk->ik", a, b) */
qn_tensor api_run_einsum(api_call *a)
{
    qn_tensor list[API_ARGUMENTS];
    const ast *words = a->places[0];
    if (words->kind != AST_STRING) {
        diagnose(a->t->d, E213, words->from, "einsum(\"ij,jk->ik\", a, b)",
                 "the first argument of `einsum` is a string");
        a->bad = true;
        return none;
    }
    for (int i = 1; i < a->count; i++) list[i - 1] = api_tensor(a, i);
    return qn_einsum(arena_print(a->t->memory, "%.*s", (int)words->length, words->words), list, a->count - 1);
}

qn_tensor api_run_outer(api_call *a)
{
    return qn_outer(api_tensor(a, 0), api_tensor(a, 1));
}

qn_tensor api_run_cdist(api_call *a)
{
    return qn_cdist(api_tensor(a, 0), api_tensor(a, 1));
}

qn_tensor api_run_softmax(api_call *a)
{
    int axis = api_axis(a, -1);
    a->units = api_units(a, 0);
    return qn_softmax(api_tensor(a, 0), axis);
}

qn_tensor api_run_log_softmax(api_call *a)
{
    int axis = api_axis(a, -1);
    a->units = api_units(a, 0);
    return qn_log_softmax(api_tensor(a, 0), axis);
}

/* Over the axes that the weight has, or the last one. */
static qn_shape normalized_of(api_call *a)
{
    const shape *x = operand_shape(a->t, &a->values[0]);
    const shape *w = a->count > 1 ? operand_shape(a->t, &a->values[1]) : NULL;
    int axes = (int)api_named_integer(a, "axes", w && w->rank ? w->rank : 1);
    qn_shape s = {0};
    a->units = api_units(a, 0);
    if (!a->bad && (axes < 1 || axes > x->rank)) {
        diagnose(a->t->d, E309, a->call->at, "it counts the last axes", "`%s` over %d axes of rank %d", a->name, axes,
                 x->rank);
        a->bad = true;
    }
    for (int k = x->rank - axes; k < x->rank && !a->bad; k++) s.extents[s.rank++] = x->extents[k];
    return s;
}

qn_tensor api_run_layer_norm(api_call *a)
{
    qn_shape s = normalized_of(a);
    double epsilon = api_named_float(a, "epsilon", 1e-5);
    return qn_layer_norm(api_tensor(a, 0), s, api_tensor(a, 1), api_tensor(a, 2), epsilon);
}

qn_tensor api_run_rms_norm(api_call *a)
{
    qn_shape s = normalized_of(a);
    double epsilon = api_named_float(a, "epsilon", 1e-6);
    return qn_rms_norm(api_tensor(a, 0), s, api_tensor(a, 1), epsilon);
}

/* Named, or by position: batch_norm(x, mean, variance, weight, bias). In training with running statistics there are
 * three results: y, and the statistics moved on. */
qn_tensor api_run_batch_norm(api_call *a)
{
    bool training = api_named_bool(a, "training", false);
    double momentum = api_named_float(a, "momentum", 0.1), epsilon = api_named_float(a, "epsilon", 1e-5);
    qn_tensor mean = api_option_tensor(a, 1, "mean"), variance = api_option_tensor(a, 2, "variance");
    qn_tensor weight = api_option_tensor(a, 3, "weight"), bias = api_option_tensor(a, 4, "bias");
    if (a->bad) return none;
    bool moves = training && mean.tape && variance.tape;
    a->more_count = moves ? 2 : 0;
    return qn_batch_norm(api_tensor(a, 0), mean, variance, weight, bias, training, momentum, epsilon,
                         moves ? &a->more[0] : NULL, moves ? &a->more[1] : NULL);
}

qn_tensor api_run_group_norm(api_call *a)
{
    int64_t groups = api_integer(a, 1);
    double epsilon = api_named_float(a, "epsilon", 1e-5);
    qn_tensor weight = api_option_tensor(a, 2, "weight"), bias = api_option_tensor(a, 3, "bias");
    return a->bad ? none : qn_group_norm(api_tensor(a, 0), groups, weight, bias, epsilon);
}

qn_tensor api_run_instance_norm(api_call *a)
{
    double epsilon = api_named_float(a, "epsilon", 1e-5);
    qn_tensor weight = api_option_tensor(a, 1, "weight"), bias = api_option_tensor(a, 2, "bias");
    return a->bad ? none : qn_instance_norm(api_tensor(a, 0), weight, bias, epsilon);
}

/* ---- activations: their numbers by position or by name ---- */

#define ACTIVATION_0(name)                  \
    qn_tensor api_run_##name(api_call *a)   \
    {                                       \
        a->units = api_units(a, 0);         \
        return qn_##name(api_tensor(a, 0)); \
    }
#define ACTIVATION_1(name, first, first_default)                \
    qn_tensor api_run_##name(api_call *a)                       \
    {                                                           \
        double given = api_option(a, 1, #first, first_default); \
        a->units = api_units(a, 0);                             \
        return qn_##name(api_tensor(a, 0), given);              \
    }
ACTIVATION_0(selu)
ACTIVATION_0(mish)
ACTIVATION_0(hardswish)
ACTIVATION_0(hardsigmoid)
ACTIVATION_0(relu6)
ACTIVATION_0(softsign)
ACTIVATION_0(logsigmoid)
ACTIVATION_1(leaky_relu, negative_slope, 0.01)
ACTIVATION_1(elu, alpha, 1)
ACTIVATION_1(celu, alpha, 1)

qn_tensor api_run_hardtanh(api_call *a)
{
    double low = api_option(a, 1, "low", -1), high = api_option(a, 2, "high", 1);
    a->units = api_units(a, 0);
    return qn_hardtanh(api_tensor(a, 0), low, high);
}

qn_tensor api_run_threshold(api_call *a)
{
    double above = api_float(a, 1), value = api_float(a, 2);
    a->units = api_units(a, 0);
    return qn_threshold(api_tensor(a, 0), above, value);
}

qn_tensor api_run_prelu(api_call *a)
{
    a->units = api_units(a, 0);
    return qn_prelu(api_tensor(a, 0), api_tensor(a, 1));
}

qn_tensor api_run_glu(api_call *a)
{
    int axis = api_axis(a, -1);
    return qn_glu(api_tensor(a, 0), axis);
}

/* swiglu(x, axis = -1) of two halves, swiglu(x, gate) */
qn_tensor api_run_swiglu(api_call *a)
{
    int axis = api_axis(a, -1);
    if (a->count > 1) a->units = api_units(a, 0) & api_units(a, 1);
    return qn_swiglu(api_tensor(a, 0), api_tensor(a, 1), axis);
}

qn_tensor api_run_dropout(api_call *a)
{
    double p = api_float(a, 1);
    a->units = api_units(a, 0);
    return qn_dropout(api_tensor(a, 0), p);
}

static qn_reduction reduction_of(api_call *a)
{
    bool sum = api_named_bool(a, "sum", false), each = api_named_bool(a, "each", false);
    return each ? QN_EACH : sum ? QN_SUM : QN_MEAN;
}

qn_tensor api_run_mse_loss(api_call *a)
{
    qn_reduction how = reduction_of(a);
    return qn_mse_loss(api_tensor(a, 0), api_tensor(a, 1), how);
}

qn_tensor api_run_l1_loss(api_call *a)
{
    qn_reduction how = reduction_of(a);
    return qn_l1_loss(api_tensor(a, 0), api_tensor(a, 1), how);
}

qn_tensor api_run_smooth_l1_loss(api_call *a)
{
    qn_reduction how = reduction_of(a);
    double beta = api_named_float(a, "beta", 1);
    return qn_smooth_l1_loss(api_tensor(a, 0), api_tensor(a, 1), beta, how);
}

qn_tensor api_run_huber_loss(api_call *a)
{
    qn_reduction how = reduction_of(a);
    double delta = api_named_float(a, "delta", 1);
    return qn_huber_loss(api_tensor(a, 0), api_tensor(a, 1), delta, how);
}

qn_tensor api_run_kl_div(api_call *a)
{
    qn_reduction how = reduction_of(a);
    bool log_target = api_named_bool(a, "log_target", false), rows = api_named_bool(a, "batchmean", false);
    return qn_kl_div(api_tensor(a, 0), api_tensor(a, 1), log_target, rows ? QN_BATCH_MEAN : how);
}

qn_tensor api_run_hinge_embedding_loss(api_call *a)
{
    qn_reduction how = reduction_of(a);
    double margin = api_named_float(a, "margin", 1);
    return qn_hinge_embedding_loss(api_tensor(a, 0), api_tensor(a, 1), margin, how);
}

qn_tensor api_run_triplet_margin_loss(api_call *a)
{
    qn_reduction how = reduction_of(a);
    double margin = api_named_float(a, "margin", 1), p = api_named_float(a, "p", 2);
    double epsilon = api_named_float(a, "epsilon", 1e-6);
    return qn_triplet_margin_loss(api_tensor(a, 0), api_tensor(a, 1), api_tensor(a, 2), margin, p, epsilon, how);
}

qn_tensor api_run_cosine_similarity(api_call *a)
{
    int axis = api_axis(a, 1);
    double epsilon = api_named_float(a, "epsilon", 1e-8);
    return qn_cosine_similarity(api_tensor(a, 0), api_tensor(a, 1), axis, epsilon);
}

qn_tensor api_run_nll_loss(api_call *a)
{
    qn_reduction how = reduction_of(a);
    int64_t ignore = api_named_integer(a, "ignore", QN_NO_INDEX);
    return qn_nll_loss(api_tensor(a, 0), api_tensor(a, 1), how, ignore);
}

qn_tensor api_run_cross_entropy(api_call *a)
{
    qn_reduction how = reduction_of(a);
    int64_t ignore = api_named_integer(a, "ignore", QN_NO_INDEX);
    return qn_cross_entropy(api_tensor(a, 0), api_tensor(a, 1), how, ignore);
}

qn_tensor api_run_bce_with_logits(api_call *a)
{
    qn_reduction how = reduction_of(a);
    return qn_bce_with_logits(api_tensor(a, 0), api_tensor(a, 1), how);
}

qn_tensor api_run_scaled_dot_product_attention(api_call *a)
{
    bool causal = api_named_bool(a, "causal", false);
    double scale = api_named_float(a, "scale", 0), dropout = api_named_float(a, "dropout", 0);
    return tensor_attention(api_tensor(a, 0), api_tensor(a, 1), api_tensor(a, 2), api_tensor(a, 3), causal, scale,
                            dropout);
}

qn_tensor api_run_embedding(api_call *a)
{
    return qn_embedding(api_tensor(a, 0), api_tensor(a, 1));
}

qn_tensor api_run_embedding_bag(api_call *a)
{
    bool mean = api_named_bool(a, "mean", false);
    return qn_embedding_bag(api_tensor(a, 0), api_tensor(a, 1), api_tensor(a, 2), mean ? QN_BAG_MEAN : QN_BAG_SUM);
}
