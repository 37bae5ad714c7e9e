/*
 * What makes, moves, sorts and gathers tensors, for .qn files. In: a call. Out: what the C function gives, with the axes
 * that broadcast: a literal 1 among extents, and what a reduction leaves.
 * SPDX-License-Identifier: MIT
 */
#include "tensor/function_api.h"
#include "ir/graph_build.h"

#include <string.h>

static const qn_tensor none;

static qn_tensor do_transpose(api_call *a)
{
    int rank = operand_shape(a->t, &a->values[0])->rank;
    unsigned u = api_units(a, 0);
    if (rank < 2) {
        fault_transpose(a->t->d, a->call->at, rank);
        a->bad = true;
        return none;
    }
    unsigned low = u >> (rank - 2) & 1, high = u >> (rank - 1) & 1;
    a->units = (u & ((1u << (rank - 2)) - 1)) | high << (rank - 2) | low << (rank - 1);
    return qn_transpose(api_tensor(a, 0), rank - 2, rank - 1);
}

static qn_tensor do_permute(api_call *a)
{
    qn_axes order = api_order(a, 1);
    int rank = operand_shape(a->t, &a->values[0])->rank;
    unsigned seen = 0;
    for (int k = 0; k < order.count; k++)
        if (order.axes[k] >= -rank && order.axes[k] < rank)
            seen |= 1u << (order.axes[k] < 0 ? order.axes[k] + rank : order.axes[k]);
    if (!a->bad && (order.count != rank || seen != (1u << rank) - 1)) {
        fault_permute(a->t->d, a->call->at, rank);
        a->bad = true;
        return none;
    }
    for (int k = 0; k < order.count && !a->bad; k++) {
        int axis = order.axes[k] < 0 ? order.axes[k] + rank : order.axes[k];
        if (axis >= 0 && axis < rank) a->units |= (api_units(a, 0) >> axis & 1) << k;
    }
    return qn_permute(api_tensor(a, 0), order);
}

static qn_tensor do_reshape(api_call *a)
{
    qn_shape s = api_shape(a, 1);
    const shape *from = operand_shape(a->t, &a->values[0]);
    shape to = {.rank = s.rank};
    int open = 0;
    for (int k = 0; k < s.rank; k++) {
        to.extents[k] = s.extents[k];
        open += s.extents[k] < 0;
    }
    if (!a->bad && !open && shape_count(from) != shape_count(&to)) {
        fault_reshape(a->t->d, a->call->at, graph_shape_words(a->t->g, from), graph_shape_words(a->t->g, &to));
        a->bad = true;
        return none;
    }
    return qn_reshape(api_tensor(a, 0), s);
}

static qn_tensor do_expand(api_call *a)
{
    qn_shape s = api_shape(a, 1);
    return qn_expand(api_tensor(a, 0), s);
}

static qn_tensor do_repeat(api_call *a)
{
    qn_shape s = api_shape(a, 1);
    a->units = 0;
    return qn_repeat(api_tensor(a, 0), s);
}

static qn_tensor do_iota(api_call *a)
{
    int64_t n = api_integer(a, 0);
    node out = a->bad ? 0 : graph_iota(a->t->g, n);
    return tape_handle(a->t->tape, out);
}

static qn_tensor do_like(api_call *a)
{
    double v = api_float(a, 1);
    const operand *x = &a->values[0];
    const shape *s = operand_shape(a->t, x);
    a->units = x->units;
    node out = a->bad ? 0 : graph_full_double(a->t->g, operand_type(a->t, x), s, v);
    return tape_handle(a->t->tape, out);
}

static qn_tensor do_zeros(api_call *a)
{
    qn_shape s = api_shape(a, 0);
    return a->bad ? none : qn_zeros(a->t->tape, QN_F32, s);
}

static qn_tensor do_ones(api_call *a)
{
    qn_shape s = api_shape(a, 0);
    return a->bad ? none : qn_ones(a->t->tape, QN_F32, s);
}

static qn_tensor do_full(api_call *a)
{
    double v = api_float(a, 0);
    qn_shape s = api_shape(a, 1);
    return a->bad ? none : qn_full(a->t->tape, QN_F32, s, v);
}

static qn_tensor do_rand(api_call *a)
{
    qn_shape s = api_shape(a, 0);
    if (a->bad) return none;
    return !strcmp(a->name, "rand") ? qn_rand(a->t->tape, QN_F32, s) : qn_randn(a->t->tape, QN_F32, s);
}

/* arange(stop), arange(start, stop), arange(start, stop, step): integers. */
static qn_tensor do_arange(api_call *a)
{
    int64_t start = a->count > 1 ? api_integer(a, 0) : 0, stop = api_integer(a, a->count > 1);
    int64_t step = a->count > 2 ? api_integer(a, 2) : 1;
    return a->bad ? none : qn_arange(a->t->tape, QN_I64, (double)start, (double)stop, (double)step);
}

static qn_tensor do_linspace(api_call *a)
{
    double start = api_float(a, 0), stop = api_float(a, 1);
    int64_t count = api_integer(a, 2);
    return a->bad ? none : qn_linspace(a->t->tape, QN_F32, start, stop, count);
}

static qn_tensor do_eye(api_call *a)
{
    int64_t rows = api_integer(a, 0), columns = a->count > 1 ? api_integer(a, 1) : rows;
    return a->bad ? none : qn_eye(a->t->tape, QN_F32, rows, columns);
}

static qn_tensor do_logsumexp(api_call *a)
{
    bool keep;
    qn_axes axes = api_axes(a, &keep);
    return qn_logsumexp(api_tensor(a, 0), axes, keep);
}

static qn_tensor do_var(api_call *a)
{
    bool keep;
    qn_axes axes = api_axes(a, &keep);
    double correction = api_named_float(a, "correction", 1);
    if (a->name[0] == 'v') return qn_var(api_tensor(a, 0), axes, correction, keep);
    return qn_std(api_tensor(a, 0), axes, correction, keep);
}

static qn_tensor do_norm(api_call *a)
{
    bool keep;
    qn_axes axes = api_axes(a, &keep);
    double p = api_named_float(a, "p", 2);
    return qn_norm(api_tensor(a, 0), p, axes, keep);
}

/* All positional arguments as tensors. */
static int tensors_of(api_call *a, qn_tensor *out)
{
    for (int i = 0; i < a->count; i++) out[i] = api_tensor(a, i);
    return a->count;
}

static qn_tensor do_concat(api_call *a)
{
    qn_tensor list[API_ARGUMENTS];
    int axis = api_axis(a, 0), count = tensors_of(a, list);
    return qn_concat(list, count, axis);
}

static qn_tensor do_stack(api_call *a)
{
    qn_tensor list[API_ARGUMENTS];
    int axis = (int)api_named_integer(a, "axis", 0), count = tensors_of(a, list);
    return qn_stack(list, count, axis);
}

/* split(x, parts, axis = k): equal parts. */
static qn_tensor do_split(api_call *a)
{
    int axis = api_axis(a, 0);
    int64_t parts = api_integer(a, 1), sizes[FUNCTION_RESULTS];
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
    qn_split(api_tensor(a, 0), axis, sizes, (int)parts, a->more);
    a->more_count = (int)parts - 1;
    qn_tensor first = a->more[0];
    memmove(a->more, a->more + 1, sizeof(a->more[0]) * (size_t)a->more_count);
    return first;
}

/* chunk(x, count, axis = 0): equal parts, the last may be smaller. */
static qn_tensor do_chunk(api_call *a)
{
    int axis = api_axis(a, 0);
    int64_t parts = api_integer(a, 1);
    if (a->bad) return none;
    if (parts < 1 || parts > FUNCTION_RESULTS) {
        diagnose(a->t->d, "E317", a->places[1]->at, "take the parts with slices", "`chunk` into %lld parts (1 to %d)",
                 (long long)parts, FUNCTION_RESULTS);
        a->bad = true;
        return none;
    }
    qn_chunk(api_tensor(a, 0), axis, (int)parts, a->more);
    a->more_count = (int)parts - 1;
    qn_tensor first = a->more[0];
    memmove(a->more, a->more + 1, sizeof(a->more[0]) * (size_t)a->more_count);
    return first;
}

static qn_tensor do_flatten(api_call *a)
{
    int64_t first = api_named_integer(a, "first", 0), last = api_named_integer(a, "last", -1);
    return a->bad ? none : qn_flatten(api_tensor(a, 0), (int)first, (int)last);
}

static qn_tensor do_squeeze(api_call *a)
{
    bool given;
    qn_axes axes = api_axes(a, &given);
    a->units = 0; /* those axes are gone */
    return a->bad ? none : qn_squeeze(api_tensor(a, 0), axes);
}

/* unsqueeze(x, axis = 0): the new axis is one that broadcasts, as that of `x[][:]`. */
static qn_tensor do_unsqueeze(api_call *a)
{
    int64_t axis = api_named_integer(a, "axis", 0);
    int rank = operand_shape(a->t, &a->values[0])->rank;
    unsigned units = api_units(a, 0);
    if (a->bad) return none;
    if (axis < 0) axis += rank + 1;
    if (axis >= 0 && axis <= rank) {
        unsigned below = (1u << axis) - 1;
        a->units = (units & below) | 1u << axis | (units & ~below) << 1;
    }
    return qn_unsqueeze(api_tensor(a, 0), (int)axis);
}

static qn_tensor do_flip(api_call *a)
{
    bool given;
    qn_axes axes = api_axes(a, &given);
    a->units = api_units(a, 0);
    return qn_flip(api_tensor(a, 0), axes);
}

/* pad(x, before, after, axis = k, value = 0). */
static qn_tensor do_pad(api_call *a)
{
    int axis = api_axis(a, 0), rank = operand_shape(a->t, &a->values[0])->rank;
    qn_shape before = {.rank = rank}, after = {.rank = rank};
    double value = api_named_float(a, "value", 0);
    if (!rank) axis = 0;
    before.extents[axis] = api_integer(a, 1);
    after.extents[axis] = a->count > 2 ? api_integer(a, 2) : before.extents[axis];
    return qn_pad(api_tensor(a, 0), before, after, value);
}

static qn_tensor do_window(api_call *a)
{
    int axis = api_axis(a, 0);
    int64_t size = api_integer(a, 1), stride = api_named_integer(a, "stride", 1),
            dilation = api_named_integer(a, "dilation", 1);
    return qn_window(api_tensor(a, 0), axis, size, stride, dilation);
}

static qn_tensor do_gather(api_call *a)
{
    int axis = api_axis(a, 0);
    return qn_gather(api_tensor(a, 0), axis, api_tensor(a, 1));
}

static qn_tensor do_index_select(api_call *a)
{
    int axis = api_axis(a, 0);
    return qn_index_select(api_tensor(a, 0), axis, api_tensor(a, 1));
}

static qn_tensor do_scatter_add(api_call *a)
{
    int axis = api_axis(a, 0);
    return qn_scatter_add(api_tensor(a, 0), axis, api_tensor(a, 1), api_tensor(a, 2));
}

static qn_tensor do_index_add(api_call *a)
{
    int axis = api_axis(a, 0);
    return qn_index_add(api_tensor(a, 0), axis, api_tensor(a, 1), api_tensor(a, 2));
}

static qn_tensor do_one_hot(api_call *a)
{
    int64_t classes = api_integer(a, 1);
    return qn_one_hot(api_tensor(a, 0), classes, QN_F32);
}

static qn_tensor do_argsort(api_call *a)
{
    int axis = api_axis(a, -1);
    bool descending = api_named_bool(a, "descending", false);
    return qn_argsort(api_tensor(a, 0), axis, descending);
}

static qn_tensor do_sort(api_call *a)
{
    int axis = api_axis(a, -1);
    bool descending = api_named_bool(a, "descending", false);
    a->more_count = 1;
    return qn_sort(api_tensor(a, 0), axis, descending, &a->more[0]);
}

static qn_tensor do_topk(api_call *a)
{
    int axis = api_axis(a, -1);
    int64_t k = api_integer(a, 1);
    bool largest = api_named_bool(a, "largest", true);
    a->more_count = 1;
    return qn_topk(api_tensor(a, 0), k, axis, largest, &a->more[0]);
}

static qn_tensor do_square(api_call *a)
{
    a->units = api_units(a, 0);
    return qn_square(api_tensor(a, 0));
}

static qn_tensor do_reciprocal(api_call *a)
{
    a->units = api_units(a, 0);
    return qn_reciprocal(api_tensor(a, 0));
}

static qn_tensor do_detach(api_call *a)
{
    a->units = api_units(a, 0);
    return qn_detach(api_tensor(a, 0));
}

static qn_tensor do_checkpoint(api_call *a)
{
    a->units = api_units(a, 0);
    return qn_checkpoint(api_tensor(a, 0));
}

static const struct {
    const char *name;
    api_function *run;
} functions[] = {{"transpose", do_transpose},
                 {"permute", do_permute},
                 {"reshape", do_reshape},
                 {"expand", do_expand},
                 {"repeat", do_repeat},
                 {"iota", do_iota},
                 {"like", do_like},
                 {"zeros", do_zeros},
                 {"ones", do_ones},
                 {"full", do_full},
                 {"rand", do_rand},
                 {"randn", do_rand},
                 {"arange", do_arange},
                 {"linspace", do_linspace},
                 {"eye", do_eye},
                 {"logsumexp", do_logsumexp},
                 {"var", do_var},
                 {"std", do_var},
                 {"norm", do_norm},
                 {"concat", do_concat},
                 {"stack", do_stack},
                 {"split", do_split},
                 {"chunk", do_chunk},
                 {"flatten", do_flatten},
                 {"squeeze", do_squeeze},
                 {"unsqueeze", do_unsqueeze},
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
                 {"square", do_square},
                 {"reciprocal", do_reciprocal},
                 {"detach", do_detach},
                 {"checkpoint", do_checkpoint}};

api_function *api_shape_function(const char *name)
{
    for (int i = 0; i < COUNT(functions); i++)
        if (!strcmp(functions[i].name, name)) return functions[i].run;
    return NULL;
}
