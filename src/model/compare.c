/*
 * Two tensors, element by element. In: handles of one shape. Out: how many elements are beyond a tolerance, and the worst
 * one with its place, both values and its errors. The worst is the one with the largest share of its tolerance, so that
 * it is the one to look at whether or not it is beyond.
 * SPDX-License-Identifier: MIT
 */
#include "model/model.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>

typedef struct side {
    qn_tensor t;
    qn_dtype type;
    char *data;
} side;

static qn_status side_open(side *s, qn_tensor t, qn_error *error)
{
    *s = (side){.t = t, .type = qn_tensor_dtype(t)};
    size_t size_bytes = (size_t)qn_tensor_count(t) * qn_dtype_size_bytes(s->type);
    s->data = malloc(size_bytes + 1);
    if (!s->data) return error_set(error, QN_NO_MEMORY, "no memory to compare tensors of %zu bytes", size_bytes);
    return qn_tensor_read(t, s->data, size_bytes, error);
}

static double value_of(const side *s, int64_t at)
{
    number x = element_read((dtype)s->type, s->data + (size_t)at * qn_dtype_size_bytes(s->type));
    if (dtype_is_float((dtype)s->type)) return x.f;
    return s->type == QN_U64 ? (double)(uint64_t)x.i : (double)x.i;
}

/* Integers beyond 2^53 differ although their doubles may not. */
static double apart(const side *a, const side *b, int64_t at)
{
    if (dtype_is_float((dtype)a->type) || dtype_is_float((dtype)b->type))
        return fabs(value_of(a, at) - value_of(b, at));
    number x = element_read((dtype)a->type, a->data + (size_t)at * qn_dtype_size_bytes(a->type));
    number y = element_read((dtype)b->type, b->data + (size_t)at * qn_dtype_size_bytes(b->type));
    __extension__ typedef __int128 wide;
    wide p = a->type == QN_U64 ? (wide)(uint64_t)x.i : (wide)x.i,
         q = b->type == QN_U64 ? (wide)(uint64_t)y.i : (wide)y.i;
    return (double)(p > q ? p - q : q - p);
}

/* Bits of the significand and the least exponent of the narrower type. */
static double ulp_at(const side *a, const side *b, double x)
{
    static const struct {
        int digits, least;
    } facts[] = {[QN_F32] = {24, -126},
                 [QN_F64] = {53, -1022},
                 [QN_F16] = {11, -14},
                 [QN_BF16] = {8, -126},
                 [QN_F8E4M3] = {4, -6}};
    bool float_a = dtype_is_float((dtype)a->type), float_b = dtype_is_float((dtype)b->type);
    if (!float_a && !float_b) return NAN;
    qn_dtype type = !float_a || (float_b && facts[b->type].digits < facts[a->type].digits) ? b->type : a->type;
    int exponent = facts[type].least;
    if (x != 0 && isfinite(x)) exponent = MAXIMUM(exponent, ilogb(x));
    return ldexp(1, exponent - facts[type].digits + 1);
}

/* The share of the tolerance; infinite for what no tolerance covers. */
static double share(double error, double allowed)
{
    if (error == 0) return 0;
    return allowed > 0 ? error / allowed : HUGE_VAL;
}

static void place_of(int64_t at, qn_shape shape, int64_t *place)
{
    for (int k = shape.rank - 1; k >= 0; k--) {
        place[k] = at % shape.extents[k];
        at /= shape.extents[k];
    }
}

static void compare(const side *a, const side *b, double relative, double absolute, qn_comparison *out)
{
    double most = -1, most_error = -1;
    int64_t worst = 0;
    for (int64_t i = 0; i < out->count; i++) {
        double x = value_of(a, i), y = value_of(b, i), error = 0, part;
        bool same = (isnan(x) && isnan(y)) || (isinf(x) && x == y);
        if (same) {
            part = 0;
        } else if (!isfinite(x) || !isfinite(y)) {
            *(isnan(x) || isnan(y) ? &out->nan_mismatches : &out->infinity_mismatches) += 1;
            part = error = HUGE_VAL;
        } else {
            error = apart(a, b, i);
            part = share(error, absolute + relative * fabs(y));
            out->absolute = fmax(out->absolute, error);
            if (error > 0) out->relative = fmax(out->relative, error / fabs(y));
        }
        out->beyond += part > 1;
        if (part < most || (part == most && !(error > most_error))) continue;
        most = part;
        most_error = error;
        worst = i;
    }
    if (!out->count) return;
    place_of(worst, qn_tensor_shape(a->t), out->worst);
    out->a = value_of(a, worst);
    out->b = value_of(b, worst);
    bool comparable = isfinite(out->a) && isfinite(out->b);
    out->worst_absolute = comparable ? apart(a, b, worst) : most_error;
    out->worst_relative = out->worst_absolute == 0 ? 0 : out->worst_absolute / fabs(out->b);
    out->worst_ulp = out->worst_absolute / ulp_at(a, b, out->b);
}

qn_status qn_tensor_compare(qn_tensor a, qn_tensor b, double relative, double absolute, qn_comparison *out,
                            qn_error *error)
{
    if (!out) return error_set(error, QN_BAD_CALL, "qn_tensor_compare: the place for the result is NULL");
    *out = (qn_comparison){.count = qn_tensor_count(a), .rank = qn_tensor_rank(a)};
    if (!(relative >= 0) || !(absolute >= 0))
        return error_set(error, QN_BAD_CALL, "qn_tensor_compare: the tolerances %g and %g must not be negative",
                         relative, absolute);
    shape s = shape_from_public(qn_tensor_shape(a)), other = shape_from_public(qn_tensor_shape(b));
    side sides[2] = {0};
    qn_status status = QN_OK;
    if (qn_tensor_valid(a) && qn_tensor_valid(b) && !shape_same(&s, &other)) {
        text words = {0};
        shape_print(&s, &words);
        text_add(&words, " and ");
        shape_print(&other, &words);
        status = error_set(error, QN_BAD_CALL, "qn_tensor_compare: the shapes differ: %s", text_get(&words));
        text_free(&words);
    }
    if (!status) status = side_open(&sides[0], a, error);
    if (!status) status = side_open(&sides[1], b, error);
    if (!status) compare(&sides[0], &sides[1], relative, absolute, out);
    free(sides[0].data);
    free(sides[1].data);
    return status;
}

char *qn_comparison_text(const qn_comparison *c)
{
    text out = {0};
    if (!c) return NULL;
    text_print(&out, "%lld of %lld elements differ beyond the tolerance", (long long)c->beyond, (long long)c->count);
    if (c->nan_mismatches) text_print(&out, ", %lld by NaN", (long long)c->nan_mismatches);
    if (c->infinity_mismatches) text_print(&out, ", %lld by infinity", (long long)c->infinity_mismatches);
    if (c->count) {
        text_add(&out, "; worst [");
        for (int k = 0; k < c->rank; k++) text_print(&out, "%s%lld", k ? ", " : "", (long long)c->worst[k]);
        text_print(&out, "]: %.9g and %.9g, apart %.3g, relative %.3g", c->a, c->b, c->worst_absolute,
                   c->worst_relative);
        if (!isnan(c->worst_ulp)) text_print(&out, ", %.3g ulp", c->worst_ulp);
    }
    return text_hand_over(&out);
}
