/*
 * Random programs over axes as text and as tensors; the end of random_axes.h.
 * SPDX-License-Identifier: MIT
 */
#ifndef QUERN_TESTS_RANDOM_AXES_TENSORS_H
#define QUERN_TESTS_RANDOM_AXES_TENSORS_H

/* ---- as text ---- */

static inline void axes_print(const axes_program *p)
{
    static const char *const names[] = {"leaf",   "window", "pad",    "reshape", "permute", "expand", "slice", "flip",
                                        "concat", "fold",   "binary", "unary",   "take",    "cumsum", "matmul"};
    static const char *const folds[] = {"sum", "max", "min", "mean", "prod", "argmax", "argmin", "any", "all"};
    printf("type %s\n", qn_dtype_name(p->type));
    for (int i = 0; i < p->count; i++) {
        const axes_step *s = &p->steps[i];
        printf(
            "  t%d = %s(t%d, t%d, axis %d, op %d%s%s, set %x, keep %d, size %lld stride %lld dilation %lld start %lld "
            "stop %lld number %g",
            i, names[s->kind], s->a, s->b, s->axis, s->op, s->kind == AXES_FOLD ? " " : "",
            s->kind == AXES_FOLD ? folds[s->op] : "", s->set, s->keep, (long long)s->size, (long long)s->stride,
            (long long)s->dilation, (long long)s->start, (long long)s->stop, s->number);
        for (int k = 0; s->kind == AXES_PAD && k < s->rank; k++)
            printf(" %lld:%lld", (long long)s->before[k], (long long)s->after[k]);
        for (int k = 0; s->kind == AXES_PERMUTE && k < s->rank; k++) printf(" %d", s->order[k]);
        printf(") : [");
        for (int k = 0; k < s->rank; k++) printf("%s%lld", k ? ", " : "", (long long)s->extents[k]);
        printf("]\n");
    }
}

/* ---- as tensors ---- */

static inline qn_axes axes_list(unsigned set)
{
    qn_axes list = {0};
    for (int k = 0; k < AXES_RANK; k++)
        if (set >> k & 1) list.axes[list.count++] = k;
    return list;
}

static inline qn_tensor axes_leaf_tensor(const axes_program *p, const axes_step *s, qn_tape *tape, qn_shape shape)
{
    size_t size_bytes = qn_dtype_size_bytes(p->type);
    char *data = calloc((size_t)s->count + 1, size_bytes);
    for (int64_t i = 0; i < s->count; i++) {
        void *to = data + (size_t)i * size_bytes;
        if (p->type == QN_F32) *(float *)to = (float)s->values[i];
        if (p->type == QN_F64) *(double *)to = s->values[i];
        if (p->type == QN_I32) *(int32_t *)to = (int32_t)s->values[i];
        if (p->type == QN_I64) *(int64_t *)to = (int64_t)s->values[i];
    }
    qn_tensor t = qn_from_memory(tape, data, p->type, shape);
    free(data);
    return t;
}

static inline qn_tensor axes_fold_tensor(const axes_step *s, const axes_step *of, qn_tensor x)
{
    bool all = s->set == (1u << of->rank) - 1;
    qn_axes axes = all ? QN_ALL : axes_list(s->set);
    switch (s->op) {
    case AXES_SUM: return qn_sum(x, axes, s->keep);
    case AXES_MAX: return qn_max(x, axes, s->keep);
    case AXES_MIN: return qn_min(x, axes, s->keep);
    case AXES_MEAN: return qn_mean(x, axes, s->keep);
    case AXES_PROD: return qn_prod(x, axes, s->keep);
    case AXES_ARGMAX: return qn_argmax(x, axes, s->keep);
    case AXES_ARGMIN: return qn_argmin(x, axes, s->keep);
    case AXES_ANY: return qn_any(qn_ne_scalar(x, 0), axes, s->keep);
    default: return qn_all(qn_ne_scalar(x, 0), axes, s->keep);
    }
}

static inline qn_tensor axes_tensor(const axes_program *p, int number, qn_tape *tape, const qn_tensor *t)
{
    const axes_step *s = &p->steps[number];
    qn_tensor x = t[s->a], y = t[s->b];
    qn_shape shape = {.rank = s->rank}, before = shape, after = shape;
    for (int k = 0; k < s->rank; k++) {
        shape.extents[k] = s->extents[k];
        before.extents[k] = s->before[k];
        after.extents[k] = s->after[k];
    }
    switch (s->kind) {
    case AXES_LEAF: return axes_leaf_tensor(p, s, tape, shape);
    case AXES_WINDOW: return qn_window(x, s->axis, s->size, s->stride, s->dilation);
    case AXES_PAD: return qn_pad(x, before, after, s->number);
    case AXES_RESHAPE: return qn_reshape(x, shape);
    case AXES_PERMUTE: {
        qn_axes order = {.count = s->rank};
        memcpy(order.axes, s->order, sizeof(s->order));
        return s->rank ? qn_permute(x, order) : x;
    }
    case AXES_EXPAND: return qn_expand(x, shape);
    case AXES_SLICE: return qn_slice(x, s->axis, s->start, s->stop < 0 ? QN_BEGIN : s->stop, s->stride);
    case AXES_FLIP: return qn_flip(x, axes_list(s->set));
    case AXES_CONCAT: {
        qn_tensor parts[16] = {x};
        for (int i = 0; i < s->times; i++) parts[1 + i] = y;
        return qn_concat(parts, 1 + s->times, s->axis);
    }
    case AXES_FOLD: return axes_fold_tensor(s, &p->steps[s->a], x);
    case AXES_BINARY: {
        qn_tensor (*const binary[])(qn_tensor, qn_tensor) = {qn_add, qn_sub, qn_mul, qn_maximum};
        return binary[s->op](x, y);
    }
    case AXES_UNARY:
        return s->op == 0   ? qn_neg(x)
               : s->op == 1 ? qn_abs(x)
               : s->op == 2 ? qn_add_scalar(x, s->number)
                            : qn_mul_scalar(x, s->number);
    case AXES_TAKE:
        return qn_index_select(x, s->axis, qn_from_memory(tape, s->places, QN_I64, (qn_shape){1, {s->size}}));
    case AXES_CUMSUM: return qn_cumsum(x, s->axis);
    default: return qn_matmul(x, qn_transpose(x, -2, -1));
    }
}

static inline double axes_element(qn_dtype type, const void *data, int64_t at)
{
    switch (type) {
    case QN_F32: return ((const float *)data)[at];
    case QN_F64: return ((const double *)data)[at];
    case QN_I32: return ((const int32_t *)data)[at];
    case QN_I64: return (double)((const int64_t *)data)[at];
    default: return ((const uint8_t *)data)[at];
    }
}

/* Does the tensor hold the step's values? Says so where it does not. */
static inline bool axes_agrees(const axes_step *s, qn_tensor t, int number)
{
    qn_error error;
    qn_dtype type = qn_tensor_dtype(t);
    size_t size_bytes = (size_t)s->count * qn_dtype_size_bytes(type);
    bool fine = qn_tensor_rank(t) == s->rank;
    for (int k = 0; fine && k < s->rank; k++) fine = qn_tensor_extent(t, k) == s->extents[k];
    if (!fine) {
        printf("t%d has another shape\n", number);
        return false;
    }
    void *data = malloc(size_bytes + 8);
    if (qn_tensor_read(t, data, size_bytes, &error)) {
        printf("t%d: %s\n", number, error.message);
        free(data);
        return false;
    }
    double largest = 1;
    for (int64_t i = 0; i < s->count; i++) largest = fmax(largest, fabs(s->values[i]));
    for (int64_t i = 0; i < s->count && fine; i++) {
        double is = axes_element(type, data, i), should = s->values[i];
        fine = fabs(is - should) <= (s->exact ? 0 : 1e-5 * largest);
        if (!fine) printf("t%d: element %lld is %.9g and should be %.9g\n", number, (long long)i, is, should);
    }
    free(data);
    return fine;
}

#endif
