/*
 * Convolutions, pools and upsampling of the tensor API for .qn files, of one, two and three axes. In: a call. Out: what
 * the C function gives. Strides, paddings and dilations are one number for all axes, or one for each: `stride = {2, 1}`.
 * SPDX-License-Identifier: MIT
 */
#include "tensor/function_api.h"

static const qn_tensor none;

/* The C functions take the axes from x: here the name says how many. */
static bool has_axes(api_call *a, int axes)
{
    const shape *s = operand_shape(a->t, &a->values[0]);
    if (a->bad || s->rank == axes + 2 || (s->rank == axes + 1 && a->name[0] != 'c')) return !a->bad;
    static const char *const forms[] = {"`[N][C][L]`", "`[N][C][H][W]`", "`[N][C][D][H][W]`"};
    diagnose(a->t->d, E309, a->places[0]->at, forms[axes - 1], "`%s` of a tensor of rank %d", a->name, s->rank);
    a->bad = true;
    return false;
}

/* Strides and dilations: in options of C 0 is the usual one, here nobody would write it and mean that. */
static void steps_of(api_call *a, const char *name, int64_t *out, int axes)
{
    const ast *named = named_of(a->call, name);
    api_each(a, name, out, axes);
    for (int i = 0; named && !a->bad && i < axes; i++) {
        if (out[i] > 0) continue;
        diagnose(a->t->d, E213, named->at, "leave it out for 1", "`%s` of `%s` is at least 1, not %lld", name, a->name,
                 (long long)out[i]);
        a->bad = true;
    }
}

static qn_tensor convolve(api_call *a, int axes, bool transposed)
{
    qn_conv_options o = {.groups = api_named_integer(a, "groups", 1)};
    steps_of(a, "stride", o.stride, axes);
    api_each(a, "padding", o.padding, axes);
    steps_of(a, "dilation", o.dilation, axes);
    if (transposed) api_each(a, "output_padding", o.output_padding, axes);
    if (!has_axes(a, axes)) return none;
    qn_tensor x = api_tensor(a, 0), w = api_tensor(a, 1), bias = api_tensor(a, 2);
    return transposed ? qn_conv_transpose(x, w, bias, &o) : qn_conv(x, w, bias, &o);
}

/* Numbers for the axes from argument 1 on: one for all, or one for each. */
static qn_shape sizes_of(api_call *a, int axes)
{
    qn_shape s = {.rank = axes};
    if (a->count != 2 && a->count != 1 + axes) {
        diagnose(a->t->d, E213, a->call->at, "give one number, or one for each axis", "`%s` takes 1 or %d numbers",
                 a->name, axes);
        a->bad = true;
    }
    for (int i = 0; i < axes; i++) s.extents[i] = api_integer(a, a->count == 2 ? 1 : 1 + i);
    return s;
}

static qn_tensor pool_windows(api_call *a, int axes, bool mean)
{
    qn_pool_options o = {.ceil_mode = api_named_bool(a, "ceil_mode", false)};
    steps_of(a, "stride", o.stride, axes);
    api_each(a, "padding", o.padding, axes);
    if (mean) {
        o.without_padding = !api_named_bool(a, "count_include_pad", true);
        o.divisor = api_named_integer(a, "divisor", 0);
    } else {
        steps_of(a, "dilation", o.dilation, axes);
    }
    qn_shape size = sizes_of(a, axes);
    if (!has_axes(a, axes)) return none;
    return mean ? qn_avg_pool(api_tensor(a, 0), size, &o) : qn_max_pool(api_tensor(a, 0), size, &o);
}

static qn_tensor adapt(api_call *a, int axes, bool mean)
{
    qn_shape counts = sizes_of(a, axes);
    if (!has_axes(a, axes)) return none;
    return mean ? qn_adaptive_avg_pool(api_tensor(a, 0), counts) : qn_adaptive_max_pool(api_tensor(a, 0), counts);
}

/* upsample_nearest2d(x, rows, columns) or (x, scale = 2) */
static qn_tensor upsample(api_call *a, int axes, bool linear)
{
    int64_t scale[3] = {1, 1, 1};
    bool scaled = api_each(a, "scale", scale, axes), align = linear && api_named_bool(a, "align_corners", false);
    const shape *s = operand_shape(a->t, &a->values[0]);
    qn_shape extents = {.rank = axes};
    if (a->bad || !has_axes(a, axes)) return none;
    if (scaled && a->count == 1)
        for (int i = 0; i < axes; i++) {
            bool over = __builtin_mul_overflow(s->extents[s->rank - axes + i], scale[i], &extents.extents[i]);
            if (over) extents.extents[i] = -1; /* refused as what it is: no extent */
        }
    else
        extents = sizes_of(a, axes);
    if (a->bad) return none;
    return linear ? qn_upsample_linear(api_tensor(a, 0), extents, align)
                  : qn_upsample_nearest(api_tensor(a, 0), extents);
}

#define RUN(name, how, axes, form)        \
    qn_tensor api_run_##name(api_call *a) \
    {                                     \
        return how(a, axes, form);        \
    }
RUN(conv1d, convolve, 1, false)
RUN(conv2d, convolve, 2, false)
RUN(conv3d, convolve, 3, false)
RUN(conv_transpose1d, convolve, 1, true)
RUN(conv_transpose2d, convolve, 2, true)
RUN(conv_transpose3d, convolve, 3, true)
RUN(max_pool1d, pool_windows, 1, false)
RUN(max_pool2d, pool_windows, 2, false)
RUN(max_pool3d, pool_windows, 3, false)
RUN(avg_pool1d, pool_windows, 1, true)
RUN(avg_pool2d, pool_windows, 2, true)
RUN(avg_pool3d, pool_windows, 3, true)
RUN(adaptive_max_pool1d, adapt, 1, false)
RUN(adaptive_max_pool2d, adapt, 2, false)
RUN(adaptive_max_pool3d, adapt, 3, false)
RUN(adaptive_avg_pool1d, adapt, 1, true)
RUN(adaptive_avg_pool2d, adapt, 2, true)
RUN(adaptive_avg_pool3d, adapt, 3, true)
RUN(upsample_nearest1d, upsample, 1, false)
RUN(upsample_nearest2d, upsample, 2, false)
RUN(upsample_nearest3d, upsample, 3, false)
RUN(upsample_linear1d, upsample, 1, true)
RUN(upsample_bilinear2d, upsample, 2, true)
RUN(upsample_trilinear3d, upsample, 3, true)
