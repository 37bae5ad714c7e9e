/*
 * Products, layers and losses of the tensor API for .qn files. In: a call. Out: what the C function gives. Options are
 * named arguments with the API's defaults.
 * SPDX-License-Identifier: MIT
 */
#include "tensor/function_api.h"

#include <string.h>

static const qn_tensor none;

/* dot(a, b, c): sums of f16 and bf16 stay f32, as in kernels. */
static qn_tensor do_dot(api_call *a)
{
    dtype type = operand_type(a->t, &a->values[0]), other = operand_type(a->t, &a->values[1]);
    tracer *t = a->t;
    if (type != other || a->values[0].kind != OPERAND_TENSOR || a->values[1].kind != OPERAND_TENSOR) {
        diagnose(t->d, "E311", a->call->at, "cast: `T(p)`", "`dot` of `%s` and `%s`", type_text(type),
                 type_text(other));
        a->bad = true;
        return none;
    }
    dtype out = type == DT_F16 || type == DT_BF16 ? DT_F32 : type == DT_I8 || type == DT_U8 ? DT_I32 : type;
    node n = graph_dot(t->g, a->values[0].tensor, a->values[1].tensor, out, t->tape->allow_tf32);
    operand product = operand_of_node(t, n, 0, a->call->at);
    if (!is_bad(&product) && a->count == 3) product = trace_binary(t, "+", &a->values[2], &product, a->call->at);
    a->bad = is_bad(&product);
    return tape_handle(t->tape, a->bad ? 0 : product.tensor);
}

static qn_tensor do_matmul(api_call *a)
{
    return qn_matmul(api_tensor(a, 0), api_tensor(a, 1));
}

static qn_tensor do_linear(api_call *a)
{
    return qn_linear(api_tensor(a, 0), api_tensor(a, 1), api_tensor(a, 2));
}

static qn_tensor do_outer(api_call *a)
{
    return qn_outer(api_tensor(a, 0), api_tensor(a, 1));
}

static qn_tensor do_cdist(api_call *a)
{
    return qn_cdist(api_tensor(a, 0), api_tensor(a, 1));
}

static qn_tensor do_softmax(api_call *a)
{
    int axis = api_axis(a, -1);
    a->units = api_units(a, 0);
    return qn_softmax(api_tensor(a, 0), axis);
}

static qn_tensor do_log_softmax(api_call *a)
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
        diagnose(a->t->d, "E309", a->call->at, "it counts the last axes", "`%s` over %d axes of rank %d", a->name, axes,
                 x->rank);
        a->bad = true;
    }
    for (int k = x->rank - axes; k < x->rank && !a->bad; k++) s.extents[s.rank++] = x->extents[k];
    return s;
}

static qn_tensor do_layer_norm(api_call *a)
{
    qn_shape s = normalized_of(a);
    double epsilon = api_named_float(a, "epsilon", 1e-5);
    return qn_layer_norm(api_tensor(a, 0), s, api_tensor(a, 1), api_tensor(a, 2), epsilon);
}

static qn_tensor do_rms_norm(api_call *a)
{
    qn_shape s = normalized_of(a);
    double epsilon = api_named_float(a, "epsilon", 1e-6);
    return qn_rms_norm(api_tensor(a, 0), s, api_tensor(a, 1), epsilon);
}

static qn_tensor do_dropout(api_call *a)
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

static qn_tensor do_mse_loss(api_call *a)
{
    qn_reduction how = reduction_of(a);
    return qn_mse_loss(api_tensor(a, 0), api_tensor(a, 1), how);
}

static qn_tensor do_cross_entropy(api_call *a)
{
    qn_reduction how = reduction_of(a);
    int64_t ignore = api_named_integer(a, "ignore", QN_NO_INDEX);
    return qn_cross_entropy(api_tensor(a, 0), api_tensor(a, 1), how, ignore);
}

static qn_tensor do_bce_with_logits(api_call *a)
{
    qn_reduction how = reduction_of(a);
    return qn_bce_with_logits(api_tensor(a, 0), api_tensor(a, 1), how);
}

static qn_tensor do_attention(api_call *a)
{
    bool causal = api_named_bool(a, "causal", false);
    double scale = api_named_float(a, "scale", 0);
    return qn_scaled_dot_product_attention(api_tensor(a, 0), api_tensor(a, 1), api_tensor(a, 2), api_tensor(a, 3),
                                           causal, scale);
}

static qn_tensor do_embedding(api_call *a)
{
    return qn_embedding(api_tensor(a, 0), api_tensor(a, 1));
}

static qn_tensor do_embedding_bag(api_call *a)
{
    bool mean = api_named_bool(a, "mean", false);
    return qn_embedding_bag(api_tensor(a, 0), api_tensor(a, 1), api_tensor(a, 2), mean ? QN_BAG_MEAN : QN_BAG_SUM);
}

static qn_tensor do_conv2d(api_call *a)
{
    int64_t stride = api_named_integer(a, "stride", 1), padding = api_named_integer(a, "padding", 0);
    int64_t dilation = api_named_integer(a, "dilation", 1), groups = api_named_integer(a, "groups", 1);
    qn_conv2d_options options = {{stride, stride}, {padding, padding}, {dilation, dilation}, groups};
    return qn_conv2d(api_tensor(a, 0), api_tensor(a, 1), api_tensor(a, 2), &options);
}

static qn_tensor do_pool2d(api_call *a)
{
    int64_t rows = api_integer(a, 1), columns = a->count > 2 ? api_integer(a, 2) : rows;
    int64_t stride = api_named_integer(a, "stride", 0), padding = api_named_integer(a, "padding", 0);
    qn_pool2d_options options = {.stride = {stride, stride}, .padding = {padding, padding}};
    if (a->name[0] == 'm') return qn_max_pool2d(api_tensor(a, 0), rows, columns, &options);
    return qn_avg_pool2d(api_tensor(a, 0), rows, columns, &options);
}

static const struct {
    const char *name;
    api_function *run;
} functions[] = {{"dot", do_dot},
                 {"matmul", do_matmul},
                 {"@", do_matmul},
                 {"linear", do_linear},
                 {"outer", do_outer},
                 {"cdist", do_cdist},
                 {"softmax", do_softmax},
                 {"log_softmax", do_log_softmax},
                 {"layer_norm", do_layer_norm},
                 {"rms_norm", do_rms_norm},
                 {"dropout", do_dropout},
                 {"mse_loss", do_mse_loss},
                 {"cross_entropy", do_cross_entropy},
                 {"bce_with_logits", do_bce_with_logits},
                 {"scaled_dot_product_attention", do_attention},
                 {"embedding", do_embedding},
                 {"embedding_bag", do_embedding_bag},
                 {"conv2d", do_conv2d},
                 {"max_pool2d", do_pool2d},
                 {"avg_pool2d", do_pool2d}};

api_function *api_layer_function(const char *name)
{
    for (int i = 0; i < COUNT(functions); i++)
        if (!strcmp(functions[i].name, name)) return functions[i].run;
    return NULL;
}
