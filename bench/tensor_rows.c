/*
 * Work over rows, planes and columns that users write: norms of planes that are no multiple of anything, folds over other
 * axes than the last, odd and long rows, scans, permutations, pools, order. In: tensors of [rows][columns], seen as images
 * of 64 channels where a step needs planes. The bar is the part of the best copy's speed that such work should reach.
 * SPDX-License-Identifier: MIT
 */
#include "tensor_workloads.h"

#include <stddef.h>

static void give(built *out, qn_tensor t)
{
    out->results[out->count++] = t;
}

static void give_with_gradient(built *out, qn_tensor y, qn_tensor dy, qn_tensor x)
{
    give(out, y);
    qn_grad_from(&y, &dy, 1, &x, 1, &out->results[out->count]);
    out->count++;
}

/* [rows / 64][64][columns] */
static qn_tensor images(const workload *w, const inputs *in)
{
    return qn_reshape(in->tensors[0], QN_SHAPE(w->rows / 64, 64, w->columns));
}

static qn_tensor normed(qn_tensor x, qn_axes axes)
{
    qn_tensor less = qn_sub(x, qn_mean(x, axes, true));
    return qn_mul(less, qn_rsqrt(qn_add_scalar(qn_mean(qn_mul(less, less), axes, true), 1e-5)));
}

static void step_batch_norm(const workload *w, const inputs *in, built *out)
{
    give(out, normed(images(w, in), QN_AXES(0, 2)));
}

static void step_instance_norm(const workload *w, const inputs *in, built *out)
{
    give(out, normed(images(w, in), QN_AXES(2)));
}

/* Eight channels a group. */
static void step_group_norm(const workload *w, const inputs *in, built *out)
{
    give(out, normed(qn_reshape(in->tensors[0], QN_SHAPE(w->rows / 8, 8, w->columns)), QN_AXES(1, 2)));
}

static void step_layer_norm(const workload *w, const inputs *in, built *out)
{
    const qn_tensor *t = in->tensors;
    give(out, qn_layer_norm(t[0], QN_SHAPE(w->columns), t[2], t[3], 1e-5));
}

static void step_column_sum(const workload *w, const inputs *in, built *out)
{
    (void)w;
    give(out, qn_sum(in->tensors[0], QN_AXES(0), false));
}

/* Over the middle axis of [32][rows / 32][columns]. */
static void step_middle_sum(const workload *w, const inputs *in, built *out)
{
    give(out, qn_sum(qn_reshape(in->tensors[0], QN_SHAPE(32, w->rows / 32, w->columns)), QN_AXES(1), false));
}

static void step_middle_max(const workload *w, const inputs *in, built *out)
{
    give(out, qn_max(qn_reshape(in->tensors[0], QN_SHAPE(32, w->rows / 32, w->columns)), QN_AXES(1), false));
}

static void step_soft_columns(const workload *w, const inputs *in, built *out)
{
    (void)w;
    give(out, qn_softmax(in->tensors[0], 0));
}

static void step_soft_rows(const workload *w, const inputs *in, built *out)
{
    (void)w;
    give(out, qn_softmax(in->tensors[0], 1));
}

static void step_scan_reversed(const workload *w, const inputs *in, built *out)
{
    (void)w;
    give(out, qn_flip(qn_cumsum(qn_flip(in->tensors[0], QN_AXES(1)), 1), QN_AXES(1)));
}

static void step_scan_rows(const workload *w, const inputs *in, built *out)
{
    (void)w;
    give(out, qn_cumsum(in->tensors[0], 1));
}

static void step_scan_columns(const workload *w, const inputs *in, built *out)
{
    (void)w;
    give(out, qn_cumsum(in->tensors[0], 0));
}

static void step_transpose(const workload *w, const inputs *in, built *out)
{
    (void)w;
    give(out, qn_mul_scalar(qn_permute(in->tensors[0], QN_AXES(1, 0)), 2));
}

static void step_channels_last(const workload *w, const inputs *in, built *out)
{
    give(out, qn_mul_scalar(qn_permute(images(w, in), QN_AXES(0, 2, 1)), 2));
}

/* [rows / 256][256][columns] in windows. */
static qn_tensor planes(const workload *w, const inputs *in)
{
    return qn_reshape(in->tensors[0], QN_SHAPE(w->rows / 256, 256, w->columns));
}

static void step_pool(const workload *w, const inputs *in, built *out)
{
    give(out, qn_max_pool2d(planes(w, in), 2, 2, NULL));
}

static void step_pool_overlapping(const workload *w, const inputs *in, built *out)
{
    give(out, qn_max_pool2d(planes(w, in), 3, 3, &(qn_pool2d_options){.stride = {1, 1}, .padding = {1, 1}}));
}

static void step_pool_large(const workload *w, const inputs *in, built *out)
{
    give(out, qn_avg_pool2d(planes(w, in), 11, 11, NULL));
}

/* Windows along the last 1, 2 or 3 axes of [...][32][64][columns] and the like. */
static void step_pool_line(const workload *w, const inputs *in, built *out)
{
    give(out, qn_max_pool(images(w, in), QN_SHAPE(8), &(qn_pool_options){.stride = {1}, .padding = {4}}));
}

static void step_mean_line(const workload *w, const inputs *in, built *out)
{
    give(out, qn_avg_pool(images(w, in), QN_SHAPE(5), &(qn_pool_options){.stride = {2}, .padding = {2}}));
}

static void step_pool_strided(const workload *w, const inputs *in, built *out)
{
    give(out, qn_max_pool2d(planes(w, in), 3, 3, &(qn_pool2d_options){.stride = {2, 2}, .padding = {1, 1}}));
}

static void step_mean_overlapping(const workload *w, const inputs *in, built *out)
{
    give(out, qn_avg_pool2d(planes(w, in), 3, 3, &(qn_pool2d_options){.stride = {1, 1}, .padding = {1, 1}}));
}

/* [rows / 16384][128][128][columns] */
static qn_tensor bodies(const workload *w, const inputs *in)
{
    return qn_reshape(in->tensors[0], QN_SHAPE(w->rows / 16384, 128, 128, w->columns));
}

static void step_pool_bodies(const workload *w, const inputs *in, built *out)
{
    give(out,
         qn_max_pool(bodies(w, in), QN_SHAPE(3, 3, 3), &(qn_pool_options){.stride = {2, 2, 2}, .padding = {1, 1, 1}}));
}

static void step_mean_bodies(const workload *w, const inputs *in, built *out)
{
    give(out,
         qn_avg_pool(bodies(w, in), QN_SHAPE(3, 3, 3), &(qn_pool_options){.stride = {1, 1, 1}, .padding = {1, 1, 1}}));
}

static qn_tensor part(qn_tensor x, int64_t row, int64_t rows, int64_t column, int64_t columns)
{
    return qn_slice(qn_slice(x, 0, row, row + rows, 1), 1, column, column + columns, 1);
}

/* A step of heat in the plane: five points, zero around it. */
static void step_heat(const workload *w, const inputs *in, built *out)
{
    int64_t r = w->rows, c = w->columns;
    qn_tensor u = in->tensors[0], p = qn_pad(u, QN_SHAPE(1, 1), QN_SHAPE(1, 1), 0);
    qn_tensor across = qn_add(part(p, 0, r, 1, c), part(p, 2, r, 1, c));
    qn_tensor along = qn_add(part(p, 1, r, 0, c), part(p, 1, r, 2, c));
    qn_tensor flow = qn_sub(qn_add(across, along), qn_mul_scalar(u, 4));
    give(out, qn_add(u, qn_mul_scalar(flow, 0.1)));
}

static void step_middle_position(const workload *w, const inputs *in, built *out)
{
    give(out, qn_argmax(qn_reshape(in->tensors[0], QN_SHAPE(32, w->rows / 32, w->columns)), QN_AXES(1), false));
}

static void step_middle_softmax(const workload *w, const inputs *in, built *out)
{
    give(out, qn_softmax(qn_reshape(in->tensors[0], QN_SHAPE(32, w->rows / 32, w->columns)), 1));
}

static void step_scan_exclusive(const workload *w, const inputs *in, built *out)
{
    (void)w;
    give(out, qn_cumsum_with(in->tensors[0], 1, false, true));
}

static void step_scan_middle(const workload *w, const inputs *in, built *out)
{
    give(out, qn_cumsum(qn_reshape(in->tensors[0], QN_SHAPE(32, w->rows / 32, w->columns)), 1));
}

/* Heads: [32][rows / 32][16][columns / 16] with the two middle axes exchanged. */
static void step_heads(const workload *w, const inputs *in, built *out)
{
    qn_tensor x = qn_reshape(in->tensors[0], QN_SHAPE(32, w->rows / 32, 16, w->columns / 16));
    give(out, qn_mul_scalar(qn_permute(x, QN_AXES(0, 2, 1, 3)), 2));
}

/* Colours: [rows / 3][3][columns] with the channel last. */
static void step_colours(const workload *w, const inputs *in, built *out)
{
    qn_tensor x = qn_reshape(in->tensors[0], QN_SHAPE(w->rows / 3, 3, w->columns));
    give(out, qn_mul_scalar(qn_permute(x, QN_AXES(0, 2, 1)), 2));
}

/* Five axes, all turned round. */
static void step_five_axes(const workload *w, const inputs *in, built *out)
{
    qn_tensor x = qn_reshape(in->tensors[0], QN_SHAPE(w->rows / 64, 8, 8, 16, w->columns / 16));
    give(out, qn_mul_scalar(qn_permute(x, QN_AXES(4, 2, 0, 3, 1)), 2));
}

/* ---- forward and gradient ---- */

static void step_batch_norm_gradient(const workload *w, const inputs *in, built *out)
{
    qn_tensor x = in->tensors[0], y = normed(images(w, in), QN_AXES(0, 2));
    qn_tensor dy = qn_reshape(in->tensors[1], QN_SHAPE(w->rows / 64, 64, w->columns));
    give_with_gradient(out, y, dy, x);
}

static void step_group_norm_gradient(const workload *w, const inputs *in, built *out)
{
    qn_shape split = QN_SHAPE(w->rows / 8, 8, w->columns);
    qn_tensor x = in->tensors[0], y = normed(qn_reshape(x, split), QN_AXES(1, 2)),
              dy = qn_reshape(in->tensors[1], split);
    give_with_gradient(out, y, dy, x);
}

static void step_softmax_gradient(const workload *w, const inputs *in, built *out)
{
    (void)w;
    qn_tensor y = qn_softmax(in->tensors[0], 1);
    give_with_gradient(out, y, in->tensors[1], in->tensors[0]);
}

/* The gradient of the mean square: no second input. */
static void step_pool_gradient(const workload *w, const inputs *in, built *out)
{
    qn_tensor y = qn_max_pool2d(planes(w, in), 2, 2, NULL);
    give_with_gradient(out, y, y, in->tensors[0]);
}

static void step_pool_overlapping_gradient(const workload *w, const inputs *in, built *out)
{
    qn_tensor y = qn_max_pool2d(planes(w, in), 3, 3, &(qn_pool2d_options){.stride = {2, 2}, .padding = {1, 1}});
    give_with_gradient(out, y, y, in->tensors[0]);
}

static void step_mean_gradient(const workload *w, const inputs *in, built *out)
{
    qn_tensor y = qn_avg_pool2d(planes(w, in), 3, 3, &(qn_pool2d_options){.stride = {2, 2}, .padding = {1, 1}});
    give_with_gradient(out, y, y, in->tensors[0]);
}

static void step_scan_gradient(const workload *w, const inputs *in, built *out)
{
    (void)w;
    qn_tensor y = qn_cumsum(in->tensors[0], 1);
    give_with_gradient(out, y, in->tensors[1], in->tensors[0]);
}

/* Along axis 0. */
static void step_soft_columns_gradient(const workload *w, const inputs *in, built *out)
{
    (void)w;
    qn_tensor y = qn_softmax(in->tensors[0], 0);
    give_with_gradient(out, y, in->tensors[1], in->tensors[0]);
}

static void step_layer_norm_gradient(const workload *w, const inputs *in, built *out)
{
    const qn_tensor *t = in->tensors, wanted[] = {t[0], t[2], t[3]};
    qn_tensor y = qn_layer_norm(t[0], QN_SHAPE(w->columns), t[2], t[3], 1e-5);
    give(out, y);
    qn_grad_from(&y, &t[1], 1, wanted, 3, &out->results[out->count]);
    out->count += 3;
}

/* Channels last: [rows][columns] of which each column is normed; and channels in the middle, each pixel normed over them. */
static void step_norm_columns(const workload *w, const inputs *in, built *out)
{
    (void)w;
    give(out, normed(in->tensors[0], QN_AXES(0)));
}

static void step_norm_rows(const workload *w, const inputs *in, built *out)
{
    (void)w;
    give(out, normed(in->tensors[0], QN_AXES(1)));
}

static void step_norm_pixels(const workload *w, const inputs *in, built *out)
{
    give(out, normed(images(w, in), QN_AXES(1)));
}

static void step_row_sum(const workload *w, const inputs *in, built *out)
{
    (void)w;
    give(out, qn_sum(in->tensors[0], QN_AXES(1), false));
}

static void step_row_position(const workload *w, const inputs *in, built *out)
{
    (void)w;
    give(out, qn_argmax(in->tensors[0], QN_AXES(1), false));
}

static void step_scan_largest(const workload *w, const inputs *in, built *out)
{
    (void)w;
    give(out, qn_cummax(in->tensors[0], 1));
}

static void step_largest(const workload *w, const inputs *in, built *out)
{
    (void)w;
    give(out, qn_topk(in->tensors[0], 8, 1, true, &out->results[out->count + 1]));
    out->count++;
}

static void step_order(const workload *w, const inputs *in, built *out)
{
    (void)w;
    give(out, qn_argsort(in->tensors[0], 1, false));
}

static void step_sort(const workload *w, const inputs *in, built *out)
{
    (void)w;
    give(out, qn_sort(in->tensors[0], 1, false, NULL));
}

#define COPY(rows, columns) (8.0 * (rows) * (columns))
#define READ(rows, columns) (4.0 * (rows) * (columns))

const workload row_workloads[] = {
    {"batch norm 64x64x128^2 f32", QN_F32, 4096, 16384, COPY(4096, 16384), 0.9, make_one, step_batch_norm},
    {"batch norm 64x64x127^2 f32", QN_F32, 4096, 16129, COPY(4096, 16129), 0.9, make_one, step_batch_norm},
    {"batch norm 64x64x126^2 f32", QN_F32, 4096, 15876, COPY(4096, 15876), 0.9, make_one, step_batch_norm},
    {"batch norm 64x64x127^2 bf16", QN_BF16, 4096, 16129, COPY(4096, 16129) / 2, 0.9, make_one, step_batch_norm},
    {"batch norm 16x64x512^2 f32", QN_F32, 1024, 262144, COPY(1024, 262144), 0.9, make_one, step_batch_norm},
    {"group norm 64x64x128^2 f32", QN_F32, 4096, 16384, COPY(4096, 16384), 0.9, make_one, step_group_norm},
    {"group norm 64x64x127^2 f32", QN_F32, 4096, 16129, COPY(4096, 16129), 0.9, make_one, step_group_norm},
    {"group norm 512x64x32^2 f16", QN_F16, 32768, 1024, COPY(32768, 1024) / 2, 0.9, make_one, step_group_norm},
    {"instance norm 64x64x128^2 f32", QN_F32, 4096, 16384, COPY(4096, 16384), 0.9, make_one, step_instance_norm},
    {"instance norm 64x64x127^2 f32", QN_F32, 4096, 16129, COPY(4096, 16129), 0.9, make_one, step_instance_norm},
    {"layer norm 16384x4097 f32", QN_F32, 16384, 4097, COPY(16384, 4097), 0.9, make_norm, step_layer_norm},
    {"layer norm 131072x769 f32", QN_F32, 131072, 769, COPY(131072, 769), 0.9, make_norm, step_layer_norm},
    {"layer norm 16384x4097 bf16", QN_BF16, 16384, 4097, COPY(16384, 4097) / 2, 0.9, make_norm, step_layer_norm},
    {"layer norm 65536x1001 f16", QN_F16, 65536, 1001, COPY(65536, 1001) / 2, 0.9, make_norm, step_layer_norm},
    {"layer norm 16384x4097 f64", QN_F64, 16384, 4097, COPY(16384, 4097) * 2, 0.9, make_norm, step_layer_norm},
    {"softmax 64x2000003 f32", QN_F32, 64, 2000003, COPY(64, 2000003), 0.85, make_one, step_soft_rows},
    {"softmax 4194304x31 f32", QN_F32, 4194304, 31, COPY(4194304, 31), 0.9, make_one, step_soft_rows},
    {"softmax 16777216x3 f32", QN_F32, 16777216, 3, COPY(16777216, 3), 0.9, make_one, step_soft_rows},
    {"softmax 32768x4095 bf16", QN_BF16, 32768, 4095, COPY(32768, 4095) / 2, 0.9, make_one, step_soft_rows},
    {"sum of columns 65536x4096 f32", QN_F32, 65536, 4096, READ(65536, 4096), 0.9, make_one, step_column_sum},
    {"sum of columns 65536x4095 bf16", QN_BF16, 65536, 4095, READ(65536, 4095) / 2, 0.9, make_one, step_column_sum},
    {"sum of columns 131072x512 f32", QN_F32, 131072, 512, READ(131072, 512), 0.9, make_one, step_column_sum},
    {"sum of columns 1048576x64 f32", QN_F32, 1048576, 64, READ(1048576, 64), 0.9, make_one, step_column_sum},
    {"sum of columns 1048576x64 bf16", QN_BF16, 1048576, 64, READ(1048576, 64) / 2, 0.9, make_one, step_column_sum},
    {"sum of columns 3000000x17 f32", QN_F32, 3000000, 17, READ(3000000, 17), 0.9, make_one, step_column_sum},
    {"norm of rows 64x1048576 f32", QN_F32, 64, 1048576, COPY(64, 1048576), 0.9, make_one, step_norm_rows},
    {"norm of rows 4x16777216 f32", QN_F32, 4, 16777216, COPY(4, 16777216), 0.85, make_one, step_norm_rows},
    {"norm of rows 1x67108864 f32", QN_F32, 1, 67108864, COPY(1, 67108864), 0.85, make_one, step_norm_rows},
    {"softmax 1x67108864 f32", QN_F32, 1, 67108864, COPY(1, 67108864), 0.85, make_one, step_soft_rows},
    {"softmax 16x4194304 f32", QN_F32, 16, 4194304, COPY(16, 4194304), 0.85, make_one, step_soft_rows},
    {"sum over the middle 32x4096x4095 f32", QN_F32, 131072, 4095, READ(131072, 4095), 0.9, make_one, step_middle_sum},
    {"max over the middle 32x4096x4095 f32", QN_F32, 131072, 4095, READ(131072, 4095), 0.9, make_one, step_middle_max},
    {"argmax over the middle 32x4096x4095 f32", QN_F32, 131072, 4095, READ(131072, 4095), 0.9, make_one,
     step_middle_position},
    {"softmax down 4096x16384 f32", QN_F32, 4096, 16384, COPY(4096, 16384), 0.9, make_one, step_soft_columns},
    {"softmax over the middle 32x512x4095 f32", QN_F32, 16384, 4095, COPY(16384, 4095), 0.9, make_one,
     step_middle_softmax},
    {"softmax over the middle 32x512x4096 bf16", QN_BF16, 16384, 4096, COPY(16384, 4096) / 2, 0.9, make_one,
     step_middle_softmax},
    {"cumsum reversed 8192x16384 f32", QN_F32, 8192, 16384, COPY(8192, 16384), 0.9, make_one, step_scan_reversed},
    {"cumsum exclusive 8192x16384 f32", QN_F32, 8192, 16384, COPY(8192, 16384), 0.9, make_one, step_scan_exclusive},
    {"cumsum 8192x32768 f32", QN_F32, 8192, 32768, COPY(8192, 32768), 0.9, make_one, step_scan_rows},
    {"cumsum 8192x16383 f32", QN_F32, 8192, 16383, COPY(8192, 16383), 0.9, make_one, step_scan_rows},
    {"cumsum 262144x512 f32", QN_F32, 262144, 512, COPY(262144, 512), 0.9, make_one, step_scan_rows},
    {"cumsum down 16384x8192 f32", QN_F32, 16384, 8192, COPY(16384, 8192), 0.9, make_one, step_scan_columns},
    {"cumsum over the middle 32x512x4096 f32", QN_F32, 16384, 4096, COPY(16384, 4096), 0.9, make_one, step_scan_middle},
    {"cumsum 16x4194304 f32", QN_F32, 16, 4194304, COPY(16, 4194304), 0.9, make_one, step_scan_rows},
    {"transpose 16384x8192 f32", QN_F32, 16384, 8192, COPY(16384, 8192), 0.9, make_one, step_transpose},
    {"transpose 16383x8191 f32", QN_F32, 16383, 8191, COPY(16383, 8191), 0.9, make_one, step_transpose},
    {"transpose 16384x8192 bf16", QN_BF16, 16384, 8192, COPY(16384, 8192) / 2, 0.9, make_one, step_transpose},
    {"channels last 64x64x128^2 f32", QN_F32, 4096, 16384, COPY(4096, 16384), 0.9, make_one, step_channels_last},
    {"channels last 64x64x127^2 bf16", QN_BF16, 4096, 16129, COPY(4096, 16129) / 2, 0.9, make_one, step_channels_last},
    {"colours last 2048x3x128^2 f32", QN_F32, 6144, 16384, COPY(6144, 16384), 0.9, make_one, step_colours},
    {"heads 32x2048x16x64 bf16", QN_BF16, 65536, 1024, COPY(65536, 1024) / 2, 0.9, make_one, step_heads},
    {"five axes 64x8x8x16x1024 f32", QN_F32, 4096, 16384, COPY(4096, 16384), 0.9, make_one, step_five_axes},
    {"max pool 2x2 of 512x256x1024 f32", QN_F32, 131072, 1024, 5.0 * 131072 * 1024, 0.9, make_one, step_pool},
    {"max pool 8, stride 1, 4096x16384 f32", QN_F32, 4096, 16384, COPY(4096, 16384), 0.9, make_one, step_pool_line},
    {"average pool 5, stride 2, 4096x16384 f32", QN_F32, 4096, 16384, 6.0 * 4096 * 16384, 0.9, make_one,
     step_mean_line},
    {"five points of 8192x8192 f32", QN_F32, 8192, 8192, COPY(8192, 8192), 0.9, make_one, step_heat},
    {"five points of 8190x8194 f32", QN_F32, 8190, 8194, COPY(8190, 8194), 0.9, make_one, step_heat},
    {"max pool 3x3, stride 1, 512x256x1024 f32", QN_F32, 131072, 1024, COPY(131072, 1024), 0.9, make_one,
     step_pool_overlapping},
    {"max pool 3x3, stride 1, 512x256x1023 f32", QN_F32, 131072, 1023, COPY(131072, 1023), 0.9, make_one,
     step_pool_overlapping},
    {"max pool 3x3, stride 1, 512x256x1024 bf16", QN_BF16, 131072, 1024, COPY(131072, 1024) / 2, 0.9, make_one,
     step_pool_overlapping},
    {"max pool 3x3, stride 2, 512x256x1024 f32", QN_F32, 131072, 1024, 5.0 * 131072 * 1024, 0.9, make_one,
     step_pool_strided},
    {"average pool 3x3, stride 1, 512x256x1024 f32", QN_F32, 131072, 1024, COPY(131072, 1024), 0.9, make_one,
     step_mean_overlapping},
    {"average pool 11x11 of 512x256x1024 f32", QN_F32, 131072, 1024, READ(131072, 1024), 0.8, make_one,
     step_pool_large},
    {"max pool 3x3x3, stride 2, 64x128^3 f32", QN_F32, 1048576, 128, 4.5 * 1048576 * 128, 0.9, make_one,
     step_pool_bodies},
    {"average pool 3x3x3, stride 1, 64x128^3 f32", QN_F32, 1048576, 128, COPY(1048576, 128), 0.9, make_one,
     step_mean_bodies},
    {"8 largest of 131072x1024 f32", QN_F32, 131072, 1024, READ(131072, 1024), 0, make_one, step_largest},
    {"argsort 8192x4096 f32", QN_F32, 8192, 4096, 12.0 * 8192 * 4096, 0, make_one, step_order},
    {"sort 65536x512 f32", QN_F32, 65536, 512, COPY(65536, 512), 0, make_one, step_sort},
    {"batch norm and gradient 64x64x128^2 f32", QN_F32, 4096, 16384, 16.0 * 4096 * 16384, 0, make_two,
     step_batch_norm_gradient},
    {"group norm and gradient 64x64x128^2 f32", QN_F32, 4096, 16384, 16.0 * 4096 * 16384, 0, make_two,
     step_group_norm_gradient},
    {"softmax and gradient 16384x4096 f32", QN_F32, 16384, 4096, 16.0 * 16384 * 4096, 0, make_two,
     step_softmax_gradient},
    {"max pool 2x2 and gradient 256x256x1024 f32", QN_F32, 65536, 1024, 13.0 * 65536 * 1024, 0, make_one,
     step_pool_gradient},
    {"max pool 3x3, stride 2, and gradient 256x256x1024 f32", QN_F32, 65536, 1024, 13.0 * 65536 * 1024, 0, make_one,
     step_pool_overlapping_gradient},
    {"average pool 3x3, stride 2, and gradient 256x256x1024 f32", QN_F32, 65536, 1024, 9.0 * 65536 * 1024, 0, make_one,
     step_mean_gradient},
    {"cumsum and gradient 8192x16384 f32", QN_F32, 8192, 16384, 16.0 * 8192 * 16384, 0, make_two, step_scan_gradient},
    {"softmax 8388608x15 f32", QN_F32, 8388608, 15, COPY(8388608, 15), 0.9, make_one, step_soft_rows},
    {"softmax 1048576x63 f32", QN_F32, 1048576, 63, COPY(1048576, 63), 0.9, make_one, step_soft_rows},
    {"softmax 8388608x16 bf16", QN_BF16, 8388608, 16, COPY(8388608, 16) / 2, 0.9, make_one, step_soft_rows},
    {"softmax 4194304x31 bf16", QN_BF16, 4194304, 31, COPY(4194304, 31) / 2, 0.9, make_one, step_soft_rows},
    {"softmax 131072x1023 f32", QN_F32, 131072, 1023, COPY(131072, 1023), 0.9, make_one, step_soft_rows},
    {"softmax 524288x257 f32", QN_F32, 524288, 257, COPY(524288, 257), 0.9, make_one, step_soft_rows},
    {"layer norm 4194304x31 f32", QN_F32, 4194304, 31, COPY(4194304, 31), 0.9, make_norm, step_layer_norm},
    {"layer norm 1048576x96 f32", QN_F32, 1048576, 96, COPY(1048576, 96), 0.9, make_norm, step_layer_norm},
    {"layer norm 131072x1023 f32", QN_F32, 131072, 1023, COPY(131072, 1023), 0.9, make_norm, step_layer_norm},
    {"sum of rows 16777216x7 f32", QN_F32, 16777216, 7, 4.0 * 16777216 * 8, 0.9, make_one, step_row_sum},
    {"sum of rows 4194304x31 f32", QN_F32, 4194304, 31, 4.0 * 4194304 * 32, 0.9, make_one, step_row_sum},
    {"argmax of rows 8388608x10 f32", QN_F32, 8388608, 10, 4.0 * 8388608 * 12, 0.9, make_one, step_row_position},
    {"norm of columns 1048576x64 f32", QN_F32, 1048576, 64, COPY(1048576, 64), 0.9, make_one, step_norm_columns},
    {"norm of columns 131072x512 f32", QN_F32, 131072, 512, COPY(131072, 512), 0.9, make_one, step_norm_columns},
    {"norm of pixels over 64 channels 64x64x128^2 f32", QN_F32, 4096, 16384, COPY(4096, 16384), 0.9, make_one,
     step_norm_pixels},
    {"softmax down 16384x4096 bf16", QN_BF16, 16384, 4096, COPY(16384, 4096) / 2, 0.9, make_one, step_soft_columns},
    {"softmax down 1000000x64 f32", QN_F32, 1000000, 64, COPY(1000000, 64), 0.9, make_one, step_soft_columns},
    {"softmax over the middle 32x64x32768 f32", QN_F32, 2048, 32768, COPY(2048, 32768), 0.9, make_one,
     step_middle_softmax},
    {"cumsum down 16384x8192 bf16", QN_BF16, 16384, 8192, COPY(16384, 8192) / 2, 0.9, make_one, step_scan_columns},
    {"cumsum 1x67108864 f32", QN_F32, 1, 67108864, COPY(1, 67108864), 0.9, make_one, step_scan_rows},
    {"cumsum 262144x511 f32", QN_F32, 262144, 511, COPY(262144, 511), 0.9, make_one, step_scan_rows},
    {"cumsum 4194304x32 f32", QN_F32, 4194304, 32, COPY(4194304, 32), 0.9, make_one, step_scan_rows},
    {"cummax 8192x16384 f32", QN_F32, 8192, 16384, COPY(8192, 16384), 0.9, make_one, step_scan_largest},
    {"transpose 16383x8191 bf16", QN_BF16, 16383, 8191, COPY(16383, 8191) / 2, 0.9, make_one, step_transpose},
    {"max pool 3x3, stride 2, 512x256x1024 bf16", QN_BF16, 131072, 1024, 2.5 * 131072 * 1024, 0.9, make_one,
     step_pool_strided},
    {"max pool 3x3, stride 2, 512x256x1023 f32", QN_F32, 131072, 1023, 5.0 * 131072 * 1023, 0.9, make_one,
     step_pool_strided},
    {"average pool 3x3, stride 1, 512x256x1024 bf16", QN_BF16, 131072, 1024, COPY(131072, 1024) / 2, 0.9, make_one,
     step_mean_overlapping},
    {"max pool 3x3x3, stride 2, 64x128^3 bf16", QN_BF16, 1048576, 128, 2.25 * 1048576 * 128, 0.9, make_one,
     step_pool_bodies},
    {"argsort 65536x512 f32", QN_F32, 65536, 512, 12.0 * 65536 * 512, 0, make_one, step_order},
    {"argsort 16x1048576 f32", QN_F32, 16, 1048576, 12.0 * 16 * 1048576, 0, make_one, step_order},
    {"softmax down and gradient 4096x16384 f32", QN_F32, 4096, 16384, 16.0 * 4096 * 16384, 0, make_two,
     step_soft_columns_gradient},
    {"softmax and gradient 4194304x31 f32", QN_F32, 4194304, 31, 16.0 * 4194304 * 31, 0, make_two,
     step_softmax_gradient},
    {"layer norm and gradient 65536x1023 f32", QN_F32, 65536, 1023, 16.0 * 65536 * 1023, 0, make_norm,
     step_layer_norm_gradient},
    {"group norm and gradient 64x64x127^2 f32", QN_F32, 4096, 16129, 16.0 * 4096 * 16129, 0, make_two,
     step_group_norm_gradient},
    {"batch norm and gradient 64x64x127^2 bf16", QN_BF16, 4096, 16129, 8.0 * 4096 * 16129, 0, make_two,
     step_batch_norm_gradient},
};

const int row_workload_count = sizeof(row_workloads) / sizeof(row_workloads[0]);

/* Below a megabyte: one launch, 3 us replayed and 5 us of the host are asked for. */
const workload small_workloads[] = {
    {"layer norm 64x768 f32", QN_F32, 64, 768, 0, 0, make_norm, step_layer_norm},
    {"layer norm and gradient 128x512 f32", QN_F32, 128, 512, 0, 0, make_norm, step_layer_norm_gradient},
    {"softmax 64x1000 f32", QN_F32, 64, 1000, 0, 0, make_one, step_soft_rows},
    {"softmax and gradient 64x1000 f32", QN_F32, 64, 1000, 0, 0, make_two, step_softmax_gradient},
    {"softmax down 128x256 f32", QN_F32, 128, 256, 0, 0, make_one, step_soft_columns},
    {"batch norm 4x64x16^2 f32", QN_F32, 256, 256, 0, 0, make_one, step_batch_norm},
    {"batch norm and gradient 4x64x16^2 f32", QN_F32, 256, 256, 0, 0, make_two, step_batch_norm_gradient},
    {"group norm 4x64x16^2 f32", QN_F32, 256, 256, 0, 0, make_one, step_group_norm},
    {"sum of columns 256x256 f32", QN_F32, 256, 256, 0, 0, make_one, step_column_sum},
    {"sum of rows 256x256 f32", QN_F32, 256, 256, 0, 0, make_one, step_row_sum},
    {"cumsum 64x1024 f32", QN_F32, 64, 1024, 0, 0, make_one, step_scan_rows},
    {"cumsum down 256x256 f32", QN_F32, 256, 256, 0, 0, make_one, step_scan_columns},
    {"transpose 256x256 f32", QN_F32, 256, 256, 0, 0, make_one, step_transpose},
    {"max pool 3x3, stride 1, 256x256 f32", QN_F32, 256, 256, 0, 0, make_one, step_pool_overlapping},
    {"max pool 3x3, stride 2, and gradient 256x256 f32", QN_F32, 256, 256, 0, 0, make_one,
     step_pool_overlapping_gradient},
    {"five points of 256x256 f32", QN_F32, 256, 256, 0, 0, make_one, step_heat},
    {"8 largest of 64x1024 f32", QN_F32, 64, 1024, 0, 0, make_one, step_largest},
    {"argsort 64x1024 f32", QN_F32, 64, 1024, 0, 0, make_one, step_order},
};

const int small_workload_count = sizeof(small_workloads) / sizeof(small_workloads[0]);
