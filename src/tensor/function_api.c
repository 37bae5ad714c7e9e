/*
 * The tensor API by its names: a call in a .qn file becomes a call of <quern/tensor.h> or <quern/nn.h>. In: a call.
 * Out: what the C function gives.
 *
 * One line of a table for each name, one small function behind it, which takes its arguments by position and by name.
 * A named argument that nobody asked for is an error. Names and counts of arguments stand in lang/builtins.c.
 * SPDX-License-Identifier: MIT
 */
#include "tensor/function_trace.h"
#include "tensor/grad.h"

#include <math.h>
#include <string.h>

enum { MOST_ARGUMENTS = 64 };

typedef struct api_call {
    tracer *t;
    const ast *call;
    const char *name;
    operand values[MOST_ARGUMENTS]; /* by position */
    const ast *places[MOST_ARGUMENTS];
    int count;
    const char *asked[16]; /* names that the function looked for */
    int asked_count;
    bool bad;
    unsigned units;                   /* of the result */
    qn_tensor more[FUNCTION_RESULTS]; /* further results */
    int more_count;
} api_call;

static const qn_tensor none;

/* ---- arguments ---- */

static qn_tensor tensor_at(api_call *a, int i)
{
    if (i >= a->count || a->bad) return none;
    const operand *x = &a->values[i];
    dtype type = x->kind == OPERAND_CONSTANT && x->constant.untyped && x->constant.kind == BIND_FLOAT
                     ? DT_F32
                     : operand_type(a->t, x);
    qn_tensor handle = tape_handle(a->t->tape, operand_node(a->t, x, type));
    qn_here(a->t->file->path, a->call->at.line);
    return handle;
}

static int64_t integer_at(api_call *a, int i)
{
    int64_t out = 0;
    if (i >= a->count || a->bad) return 0;
    a->bad = !is_number(a->t, &a->values[i], a->places[i]->at, &out);
    return out;
}

static double float_of(api_call *a, const operand *x, place at)
{
    if (x->kind == OPERAND_CONSTANT && x->constant.kind == BIND_FLOAT) return x->constant.number.f;
    if (x->kind == OPERAND_CONSTANT) return (double)x->constant.number.i;
    if (is_plain(a->t, x, at))
        diagnose(a->t->d, "E217", at, "pass a number, or a scalar parameter",
                 "a tensor's value is not known when the function is traced");
    a->bad = true;
    return 0;
}

static double float_at(api_call *a, int i)
{
    return i < a->count && !a->bad ? float_of(a, &a->values[i], a->places[i]->at) : 0;
}

static const ast *named(api_call *a, const char *name)
{
    if (a->asked_count < COUNT(a->asked)) a->asked[a->asked_count++] = name;
    const ast *n = named_of(a->call, name);
    if (n && !n->left) {
        diagnose(a->t->d, "E213", n->at, "give one value", "`%s` of `%s` is no set", name, a->name);
        a->bad = true;
        return NULL;
    }
    return n;
}

static int64_t named_integer(api_call *a, const char *name, int64_t otherwise)
{
    const ast *n = named(a, name);
    if (!n || a->bad) return otherwise;
    operand x = trace_expression(a->t, n->left);
    a->bad = !is_number(a->t, &x, n->left->at, &otherwise);
    return otherwise;
}

static double named_float(api_call *a, const char *name, double otherwise)
{
    const ast *n = named(a, name);
    if (!n || a->bad) return otherwise;
    operand x = trace_expression(a->t, n->left);
    return float_of(a, &x, n->left->at);
}

static bool named_bool(api_call *a, const char *name, bool otherwise)
{
    const ast *n = named(a, name);
    if (!n || a->bad) return otherwise;
    operand x = trace_expression(a->t, n->left);
    if (x.kind == OPERAND_CONSTANT && x.constant.kind != BIND_FLOAT) return constant_truth(&x.constant);
    if (!is_bad(&x))
        diagnose(a->t->d, "E217", n->left->at, "write `true` or `false`", "`%s` of `%s` is a constant", name, a->name);
    a->bad = true;
    return otherwise;
}

/* `axis = k`: one axis of the first argument, checked here so that the message points at it. */
static int axis_of(api_call *a, int otherwise)
{
    unsigned set;
    bool given;
    int rank = operand_shape(a->t, &a->values[0])->rank;
    if (a->asked_count < COUNT(a->asked)) a->asked[a->asked_count++] = "axis";
    if (a->bad || !axes_of(a->t, a->call, rank, &set, &given)) {
        a->bad = true;
        return otherwise;
    }
    if (!given) return otherwise;
    if (set & (set - 1)) {
        diagnose(a->t->d, "E309", a->call->at, "write `axis = k`", "`%s` takes one axis", a->name);
        a->bad = true;
    }
    return set ? __builtin_ctz(set) : otherwise;
}

/* `axis = k` or `axis = {j, k}`; *keep: some were named, and stay as unit axes. */
static qn_axes axes_named(api_call *a, bool *keep)
{
    unsigned set = 0;
    qn_axes out = {0};
    int rank = operand_shape(a->t, &a->values[0])->rank;
    if (a->asked_count < COUNT(a->asked)) a->asked[a->asked_count++] = "axis";
    a->bad |= !axes_of(a->t, a->call, rank, &set, keep);
    for (int k = 0; k < rank; k++)
        if (set >> k & 1) out.axes[out.count++] = k;
    if (*keep) a->units = set;
    return out;
}

static bool is_literal_one(const ast *x)
{
    return x->kind == AST_NUMBER && !x->is_float && x->number.i == 1;
}

/* Extents from position `first` on; a literal 1 is a unit axis. */
static qn_shape shape_at(api_call *a, int first)
{
    qn_shape s = {0};
    if (a->count - first > QN_TENSOR_RANK) {
        diagnose(a->t->d, "E105", a->call->at, "use fewer", "a tensor has at most %d axes", QN_TENSOR_RANK);
        a->bad = true;
        return s;
    }
    for (int i = first; i < a->count; i++) {
        if (is_literal_one(a->places[i])) a->units |= 1u << s.rank;
        s.extents[s.rank++] = integer_at(a, i);
    }
    return s;
}

static qn_axes axes_at(api_call *a, int first)
{
    qn_axes out = {0};
    for (int i = first; i < a->count && out.count < QN_TENSOR_RANK; i++) out.axes[out.count++] = (int)integer_at(a, i);
    return out;
}

static unsigned units_of(const api_call *a, int i)
{
    return i < a->count ? a->values[i].units : 0;
}

/* ---- the functions ---- */

static qn_tensor do_transpose(api_call *a)
{
    int rank = operand_shape(a->t, &a->values[0])->rank;
    unsigned u = units_of(a, 0);
    if (rank < 2) {
        diagnose(a->t->d, "E309", a->call->at, "it swaps the last two axes", "`transpose` of rank %d", rank);
        a->bad = true;
        return none;
    }
    unsigned low = u >> (rank - 2) & 1, high = u >> (rank - 1) & 1;
    a->units = (u & ((1u << (rank - 2)) - 1)) | high << (rank - 2) | low << (rank - 1);
    return qn_transpose(tensor_at(a, 0), rank - 2, rank - 1);
}

static qn_tensor do_permute(api_call *a)
{
    qn_axes order = axes_at(a, 1);
    int rank = operand_shape(a->t, &a->values[0])->rank;
    for (int k = 0; k < order.count && !a->bad; k++) {
        int axis = order.axes[k] < 0 ? order.axes[k] + rank : order.axes[k];
        if (axis >= 0 && axis < rank) a->units |= (units_of(a, 0) >> axis & 1) << k;
    }
    return qn_permute(tensor_at(a, 0), order);
}

static qn_tensor do_reshape(api_call *a)
{
    qn_shape s = shape_at(a, 1);
    return qn_reshape(tensor_at(a, 0), s);
}

static qn_tensor do_expand(api_call *a)
{
    qn_shape s = shape_at(a, 1);
    return qn_expand(tensor_at(a, 0), s);
}

static qn_tensor do_repeat(api_call *a)
{
    qn_shape s = shape_at(a, 1);
    a->units = 0;
    return qn_repeat(tensor_at(a, 0), s);
}

static qn_tensor do_iota(api_call *a)
{
    int64_t n = integer_at(a, 0);
    node out = a->bad ? 0 : graph_iota(a->t->g, n);
    return tape_handle(a->t->tape, out);
}

static qn_tensor do_like(api_call *a)
{
    double v = float_at(a, 1);
    const operand *x = &a->values[0];
    const shape *s = operand_shape(a->t, x);
    a->units = x->units;
    node out = a->bad ? 0 : graph_full_double(a->t->g, operand_type(a->t, x), s, v);
    return tape_handle(a->t->tape, out);
}

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

static qn_tensor do_zeros(api_call *a)
{
    qn_shape s = shape_at(a, 0);
    return a->bad ? none : qn_zeros(a->t->tape, QN_F32, s);
}

static qn_tensor do_ones(api_call *a)
{
    qn_shape s = shape_at(a, 0);
    return a->bad ? none : qn_ones(a->t->tape, QN_F32, s);
}

static qn_tensor do_full(api_call *a)
{
    double v = float_at(a, 0);
    qn_shape s = shape_at(a, 1);
    return a->bad ? none : qn_full(a->t->tape, QN_F32, s, v);
}

static qn_tensor do_rand(api_call *a)
{
    qn_shape s = shape_at(a, 0);
    if (a->bad) return none;
    return !strcmp(a->name, "rand") ? qn_rand(a->t->tape, QN_F32, s) : qn_randn(a->t->tape, QN_F32, s);
}

static qn_tensor do_linspace(api_call *a)
{
    double start = float_at(a, 0), stop = float_at(a, 1);
    int64_t count = integer_at(a, 2);
    return a->bad ? none : qn_linspace(a->t->tape, QN_F32, start, stop, count);
}

static qn_tensor do_eye(api_call *a)
{
    int64_t rows = integer_at(a, 0), columns = a->count > 1 ? integer_at(a, 1) : rows;
    return a->bad ? none : qn_eye(a->t->tape, QN_F32, rows, columns);
}

static qn_tensor do_matmul(api_call *a)
{
    return qn_matmul(tensor_at(a, 0), tensor_at(a, 1));
}

static qn_tensor do_linear(api_call *a)
{
    return qn_linear(tensor_at(a, 0), tensor_at(a, 1), tensor_at(a, 2));
}

static qn_tensor do_outer(api_call *a)
{
    return qn_outer(tensor_at(a, 0), tensor_at(a, 1));
}

static qn_tensor do_cdist(api_call *a)
{
    return qn_cdist(tensor_at(a, 0), tensor_at(a, 1));
}

static qn_tensor do_softmax(api_call *a)
{
    int axis = axis_of(a, -1);
    a->units = units_of(a, 0);
    return qn_softmax(tensor_at(a, 0), axis);
}

static qn_tensor do_log_softmax(api_call *a)
{
    int axis = axis_of(a, -1);
    a->units = units_of(a, 0);
    return qn_log_softmax(tensor_at(a, 0), axis);
}

static qn_tensor do_logsumexp(api_call *a)
{
    bool keep;
    qn_axes axes = axes_named(a, &keep);
    return qn_logsumexp(tensor_at(a, 0), axes, keep);
}

static qn_tensor do_var(api_call *a)
{
    bool keep;
    qn_axes axes = axes_named(a, &keep);
    double correction = named_float(a, "correction", 1);
    if (a->name[0] == 'v') return qn_var(tensor_at(a, 0), axes, correction, keep);
    return qn_std(tensor_at(a, 0), axes, correction, keep);
}

static qn_tensor do_norm(api_call *a)
{
    bool keep;
    qn_axes axes = axes_named(a, &keep);
    double p = named_float(a, "p", 2);
    return qn_norm(tensor_at(a, 0), p, axes, keep);
}

/* Over the axes that the weight has, or the last one. */
static qn_shape normalized_of(api_call *a)
{
    const shape *x = operand_shape(a->t, &a->values[0]);
    const shape *w = a->count > 1 ? operand_shape(a->t, &a->values[1]) : NULL;
    int axes = (int)named_integer(a, "axes", w && w->rank ? w->rank : 1);
    qn_shape s = {0};
    a->units = units_of(a, 0);
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
    double epsilon = named_float(a, "epsilon", 1e-5);
    return qn_layer_norm(tensor_at(a, 0), s, tensor_at(a, 1), tensor_at(a, 2), epsilon);
}

static qn_tensor do_rms_norm(api_call *a)
{
    qn_shape s = normalized_of(a);
    double epsilon = named_float(a, "epsilon", 1e-6);
    return qn_rms_norm(tensor_at(a, 0), s, tensor_at(a, 1), epsilon);
}

static qn_tensor do_dropout(api_call *a)
{
    double p = float_at(a, 1);
    a->units = units_of(a, 0);
    return qn_dropout(tensor_at(a, 0), p);
}

static qn_reduction reduction_of(api_call *a)
{
    bool sum = named_bool(a, "sum", false), each = named_bool(a, "each", false);
    return each ? QN_EACH : sum ? QN_SUM : QN_MEAN;
}

static qn_tensor do_mse_loss(api_call *a)
{
    qn_reduction how = reduction_of(a);
    return qn_mse_loss(tensor_at(a, 0), tensor_at(a, 1), how);
}

static qn_tensor do_cross_entropy(api_call *a)
{
    qn_reduction how = reduction_of(a);
    int64_t ignore = named_integer(a, "ignore", QN_NO_INDEX);
    return qn_cross_entropy(tensor_at(a, 0), tensor_at(a, 1), how, ignore);
}

static qn_tensor do_bce_with_logits(api_call *a)
{
    qn_reduction how = reduction_of(a);
    return qn_bce_with_logits(tensor_at(a, 0), tensor_at(a, 1), how);
}

static qn_tensor do_attention(api_call *a)
{
    bool causal = named_bool(a, "causal", false);
    double scale = named_float(a, "scale", 0);
    return qn_scaled_dot_product_attention(tensor_at(a, 0), tensor_at(a, 1), tensor_at(a, 2), tensor_at(a, 3), causal,
                                           scale);
}

static qn_tensor do_embedding(api_call *a)
{
    return qn_embedding(tensor_at(a, 0), tensor_at(a, 1));
}

static qn_tensor do_embedding_bag(api_call *a)
{
    bool mean = named_bool(a, "mean", false);
    return qn_embedding_bag(tensor_at(a, 0), tensor_at(a, 1), tensor_at(a, 2), mean ? QN_BAG_MEAN : QN_BAG_SUM);
}

/* All positional arguments as tensors. */
static int tensors_of(api_call *a, qn_tensor *out)
{
    for (int i = 0; i < a->count; i++) out[i] = tensor_at(a, i);
    return a->count;
}

static qn_tensor do_concat(api_call *a)
{
    qn_tensor list[MOST_ARGUMENTS];
    int axis = axis_of(a, 0), count = tensors_of(a, list);
    return qn_concat(list, count, axis);
}

static qn_tensor do_stack(api_call *a)
{
    qn_tensor list[MOST_ARGUMENTS];
    int axis = (int)named_integer(a, "axis", 0), count = tensors_of(a, list);
    return qn_stack(list, count, axis);
}

/* split(x, parts, axis = k): equal parts. */
static qn_tensor do_split(api_call *a)
{
    int axis = axis_of(a, 0);
    int64_t parts = integer_at(a, 1), sizes[FUNCTION_RESULTS];
    const shape *s = operand_shape(a->t, &a->values[0]);
    if (a->bad) return none;
    if (parts < 1 || parts > FUNCTION_RESULTS || !s->rank || s->extents[axis] % parts) {
        diagnose(a->t->d, "E317", a->places[1]->at, "take the parts with slices",
                 "`split` of an axis of %lld into %lld equal parts (at most %d)",
                 (long long)(s->rank ? s->extents[axis] : 0), (long long)parts, FUNCTION_RESULTS);
        a->bad = true;
        return none;
    }
    for (int i = 0; i < parts; i++) sizes[i] = s->extents[axis] / parts;
    qn_split(tensor_at(a, 0), axis, sizes, (int)parts, a->more);
    a->more_count = (int)parts - 1;
    qn_tensor first = a->more[0];
    memmove(a->more, a->more + 1, sizeof(a->more[0]) * (size_t)a->more_count);
    return first;
}

static qn_tensor do_flip(api_call *a)
{
    bool given;
    qn_axes axes = axes_named(a, &given);
    a->units = units_of(a, 0);
    return qn_flip(tensor_at(a, 0), axes);
}

/* pad(x, before, after, axis = k, value = 0). */
static qn_tensor do_pad(api_call *a)
{
    int axis = axis_of(a, 0), rank = operand_shape(a->t, &a->values[0])->rank;
    qn_shape before = {.rank = rank}, after = {.rank = rank};
    double value = named_float(a, "value", 0);
    if (!rank) axis = 0;
    before.extents[axis] = integer_at(a, 1);
    after.extents[axis] = a->count > 2 ? integer_at(a, 2) : before.extents[axis];
    return qn_pad(tensor_at(a, 0), before, after, value);
}

static qn_tensor do_window(api_call *a)
{
    int axis = axis_of(a, 0);
    int64_t size = integer_at(a, 1), stride = named_integer(a, "stride", 1), dilation = named_integer(a, "dilation", 1);
    return qn_window(tensor_at(a, 0), axis, size, stride, dilation);
}

static qn_tensor do_gather(api_call *a)
{
    int axis = axis_of(a, 0);
    return qn_gather(tensor_at(a, 0), axis, tensor_at(a, 1));
}

static qn_tensor do_index_select(api_call *a)
{
    int axis = axis_of(a, 0);
    return qn_index_select(tensor_at(a, 0), axis, tensor_at(a, 1));
}

static qn_tensor do_scatter_add(api_call *a)
{
    int axis = axis_of(a, 0);
    return qn_scatter_add(tensor_at(a, 0), axis, tensor_at(a, 1), tensor_at(a, 2));
}

static qn_tensor do_index_add(api_call *a)
{
    int axis = axis_of(a, 0);
    return qn_index_add(tensor_at(a, 0), axis, tensor_at(a, 1), tensor_at(a, 2));
}

static qn_tensor do_one_hot(api_call *a)
{
    int64_t classes = integer_at(a, 1);
    return qn_one_hot(tensor_at(a, 0), classes, QN_F32);
}

static qn_tensor do_argsort(api_call *a)
{
    int axis = axis_of(a, -1);
    bool descending = named_bool(a, "descending", false);
    return qn_argsort(tensor_at(a, 0), axis, descending);
}

static qn_tensor do_sort(api_call *a)
{
    int axis = axis_of(a, -1);
    bool descending = named_bool(a, "descending", false);
    a->more_count = 1;
    return qn_sort(tensor_at(a, 0), axis, descending, &a->more[0]);
}

static qn_tensor do_topk(api_call *a)
{
    int axis = axis_of(a, -1);
    int64_t k = integer_at(a, 1);
    bool largest = named_bool(a, "largest", true);
    a->more_count = 1;
    return qn_topk(tensor_at(a, 0), k, axis, largest, &a->more[0]);
}

static qn_tensor do_conv2d(api_call *a)
{
    int64_t stride = named_integer(a, "stride", 1), padding = named_integer(a, "padding", 0);
    int64_t dilation = named_integer(a, "dilation", 1), groups = named_integer(a, "groups", 1);
    qn_conv2d_options options = {{stride, stride}, {padding, padding}, {dilation, dilation}, groups};
    return qn_conv2d(tensor_at(a, 0), tensor_at(a, 1), tensor_at(a, 2), &options);
}

static qn_tensor do_pool2d(api_call *a)
{
    int64_t rows = integer_at(a, 1), columns = a->count > 2 ? integer_at(a, 2) : rows;
    int64_t stride = named_integer(a, "stride", 0), padding = named_integer(a, "padding", 0);
    qn_pool2d_options options = {.stride = {stride, stride}, .padding = {padding, padding}};
    if (a->name[0] == 'm') return qn_max_pool2d(tensor_at(a, 0), rows, columns, &options);
    return qn_avg_pool2d(tensor_at(a, 0), rows, columns, &options);
}

static qn_tensor do_square(api_call *a)
{
    a->units = units_of(a, 0);
    return qn_square(tensor_at(a, 0));
}

static qn_tensor do_reciprocal(api_call *a)
{
    a->units = units_of(a, 0);
    return qn_reciprocal(tensor_at(a, 0));
}

static qn_tensor do_detach(api_call *a)
{
    a->units = units_of(a, 0);
    return qn_detach(tensor_at(a, 0));
}

static qn_tensor do_checkpoint(api_call *a)
{
    a->units = units_of(a, 0);
    return qn_checkpoint(tensor_at(a, 0));
}

static const struct {
    const char *name;
    qn_tensor (*run)(api_call *a);
} functions[] = {{"transpose", do_transpose},
                 {"permute", do_permute},
                 {"reshape", do_reshape},
                 {"expand", do_expand},
                 {"repeat", do_repeat},
                 {"iota", do_iota},
                 {"like", do_like},
                 {"dot", do_dot},
                 {"zeros", do_zeros},
                 {"ones", do_ones},
                 {"full", do_full},
                 {"rand", do_rand},
                 {"randn", do_rand},
                 {"linspace", do_linspace},
                 {"eye", do_eye},
                 {"matmul", do_matmul},
                 {"linear", do_linear},
                 {"outer", do_outer},
                 {"cdist", do_cdist},
                 {"softmax", do_softmax},
                 {"log_softmax", do_log_softmax},
                 {"logsumexp", do_logsumexp},
                 {"var", do_var},
                 {"std", do_var},
                 {"norm", do_norm},
                 {"layer_norm", do_layer_norm},
                 {"rms_norm", do_rms_norm},
                 {"dropout", do_dropout},
                 {"mse_loss", do_mse_loss},
                 {"cross_entropy", do_cross_entropy},
                 {"bce_with_logits", do_bce_with_logits},
                 {"scaled_dot_product_attention", do_attention},
                 {"embedding", do_embedding},
                 {"embedding_bag", do_embedding_bag},
                 {"concat", do_concat},
                 {"stack", do_stack},
                 {"split", do_split},
                 {"flip", do_flip},
                 {"pad", do_pad},
                 {"window", do_window},
                 {"gather", do_gather},
                 {"index_select", do_index_select},
                 {"scatter_add", do_scatter_add},
                 {"index_add", do_index_add},
                 {"one_hot", do_one_hot},
                 {"argsort", do_argsort},
                 {"sort", do_sort},
                 {"topk", do_topk},
                 {"conv2d", do_conv2d},
                 {"max_pool2d", do_pool2d},
                 {"avg_pool2d", do_pool2d},
                 {"square", do_square},
                 {"reciprocal", do_reciprocal},
                 {"detach", do_detach},
                 {"checkpoint", do_checkpoint}};

bool function_api_has(const char *name)
{
    for (int i = 0; i < COUNT(functions); i++)
        if (!strcmp(functions[i].name, name)) return true;
    return false;
}

/* Named arguments that the function did not look for. */
static bool names_known(api_call *a)
{
    for (int i = 0; i < a->call->list.count; i++) {
        const ast *argument = a->call->list.items[i];
        bool known = argument->kind != AST_NAMED;
        for (int k = 0; k < a->asked_count; k++) known |= !known && !strcmp(a->asked[k], argument->name);
        if (known) continue;
        const char *near = suggest_name(argument->name, a->asked, a->asked_count);
        diagnose(a->t->d, "E213", argument->at, near ? arena_print(a->t->memory, "did you mean `%s`?", near) : NULL,
                 "`%s` has no argument named `%s`", a->name, argument->name);
        return false;
    }
    return true;
}

static operand result_of(api_call *a, qn_tensor handle, unsigned units)
{
    const tape_slot *slot = tape_slot_of(handle);
    return operand_of_node(a->t, slot ? slot->node : 0, units, a->call->at);
}

operand trace_api(tracer *t, const ast *call, const builtin *b)
{
    api_call *a = ARENA_NEW(t->memory, api_call);
    a->t = t;
    a->call = call;
    a->name = b->name;
    for (int i = 0; i < call->list.count; i++) {
        const ast *argument = call->list.items[i];
        if (argument->kind == AST_NAMED || a->count == MOST_ARGUMENTS) continue;
        a->values[a->count] = trace_expression(t, argument);
        if (!is_plain(t, &a->values[a->count], argument->at)) return operand_error();
        a->places[a->count++] = argument;
    }
    int which = 0;
    while (which < COUNT(functions) && strcmp(functions[which].name, b->name)) which++;
    if (which == COUNT(functions)) {
        diagnose(t->d, "E212", call->at, strcmp(b->name, "grad") ? NULL : "write `grad(f)(x, ...)`",
                 "`%s` cannot be called like this", b->name);
        return operand_error();
    }
    site_set(t, call->at, b->name);
    qn_here(t->file->path, call->at.line);
    qn_tensor out = functions[which].run(a);
    if (a->bad || !names_known(a) || t->d->errors) {
        t->g->status = QN_OK; /* an empty operand was the consequence, not the mistake */
        return operand_error();
    }
    site_set(t, call->at, b->name);
    operand first = result_of(a, out, a->units);
    if (is_bad(&first) || !a->more_count) return first;
    operand *items = ARENA_ARRAY(t->memory, operand, a->more_count + 1);
    items[0] = first;
    for (int i = 0; i < a->more_count; i++) items[i + 1] = result_of(a, a->more[i], 0);
    return (operand){.kind = OPERAND_LIST, .items = items, .count = a->more_count + 1};
}
