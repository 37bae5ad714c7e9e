/*
 * Values of the tensor calls by the graph interpreter: arithmetic with its meeting of types and shapes, movement with
 * PyTorch's strides, reductions, order, access by index, products.
 * SPDX-License-Identifier: MIT
 */
#include "tensor.h"

#define INF INFINITY

TEST(arithmetic_broadcasts)
{
    tape_open();
    qn_tensor a = F32(QN_SHAPE(2, 3), 1, 2, 3, 4, 5, 6), b = F32(QN_SHAPE(3), 10, 20, 30),
              c = F32(QN_SHAPE(2, 1), 1, 2);
    EXPECT_TENSOR(qn_add(a, b), QN_SHAPE(2, 3), 11, 22, 33, 14, 25, 36);
    EXPECT_TENSOR(qn_mul(b, c), QN_SHAPE(2, 3), 10, 20, 30, 20, 40, 60);
    EXPECT_TENSOR(qn_sub(c, qn_scalar(tape, QN_F32, 1)), QN_SHAPE(2, 1), 0, 1);
    EXPECT_TENSOR(qn_div(b, b), QN_SHAPE(3), 1, 1, 1);
    EXPECT_TENSOR(qn_mod(F32(QN_SHAPE(4), -3, 3, 5.5, -5.5), F32(QN_SHAPE(4), 2, -2, 2, 2)), QN_SHAPE(4), 1, -1, 1.5,
                  0.5);
    EXPECT_TENSOR(qn_maximum(a, qn_scalar(tape, QN_F32, 3.5)), QN_SHAPE(2, 3), 3.5, 3.5, 3.5, 4, 5, 6);
    EXPECT_TENSOR(qn_minimum(F32(QN_SHAPE(2), NAN, 1), F32(QN_SHAPE(2), 0, 0)), QN_SHAPE(2), NAN, 0);
    EXPECT_TENSOR(qn_pow(b, F32(QN_SHAPE(1), 2)), QN_SHAPE(3), 100, 400, 900);
    EXPECT_TENSOR(qn_fma(a, a, b), QN_SHAPE(2, 3), 11, 24, 39, 26, 45, 66);
    EXPECT_TENSOR(qn_lt(a, qn_scalar(tape, QN_F32, 3)), QN_SHAPE(2, 3), 1, 1, 0, 0, 0, 0);
    EXPECT_TENSOR(qn_where(qn_ge_scalar(a, 3), a, qn_neg(a)), QN_SHAPE(2, 3), -1, -2, 3, 4, 5, 6);
    EXPECT_TENSOR(qn_where(qn_gt_scalar(c, 1), b, qn_scalar(tape, QN_F32, 0)), QN_SHAPE(2, 3), 0, 0, 0, 10, 20, 30);
    EXPECT_TENSOR(qn_clamp(a, 2, 4), QN_SHAPE(2, 3), 2, 2, 3, 4, 4, 4);
    EXPECT_TENSOR(qn_clamp(a, -INF, 4), QN_SHAPE(2, 3), 1, 2, 3, 4, 4, 4);
    tape_close();
}

TEST(scalars)
{
    tape_open();
    qn_tensor x = F32(QN_SHAPE(3), 1, 2, 4), i = I64(QN_SHAPE(3), 1, 2, 4);
    EXPECT_TENSOR(qn_add_scalar(x, 0.5), QN_SHAPE(3), 1.5, 2.5, 4.5);
    EXPECT_TENSOR(qn_rsub_scalar(x, 1), QN_SHAPE(3), 0, -1, -3);
    EXPECT_TENSOR(qn_rdiv_scalar(x, 1), QN_SHAPE(3), 1, 0.5, 0.25);
    EXPECT_TENSOR(qn_reciprocal(i), QN_SHAPE(3), 1, 0.5, 0.25);
    EXPECT_TENSOR(qn_pow_scalar(x, 3), QN_SHAPE(3), 1, 8, 64);
    EXPECT_TENSOR(qn_pow_scalar(x, -1), QN_SHAPE(3), 1, 0.5, 0.25);
    EXPECT_TENSOR(qn_pow_scalar(x, -0.5), QN_SHAPE(3), 1, 0.70710678, 0.5);
    EXPECT_TENSOR(qn_pow_scalar(x, 2.5), QN_SHAPE(3), 1, 5.6568542, 32);
    EXPECT(qn_tensor_dtype(qn_add_scalar(i, 2)) == QN_I64);
    EXPECT(qn_tensor_dtype(qn_add_scalar(i, 2.5)) == QN_F32);
    EXPECT_TENSOR(qn_add_scalar(i, 2.5), QN_SHAPE(3), 3.5, 4.5, 6.5);
    EXPECT(qn_tensor_dtype(qn_div_scalar(i, 2)) == QN_F32);
    EXPECT_TENSOR(qn_div_scalar(i, 2), QN_SHAPE(3), 0.5, 1, 2);
    EXPECT(qn_tensor_dtype(qn_square(i)) == QN_I64);
    for (int power = 0; power < 6; power++) EXPECT(qn_tensor_dtype(qn_pow_scalar(i, power)) == QN_I64);
    EXPECT(qn_tensor_dtype(qn_pow_scalar(i, -2)) == QN_F32);
    EXPECT_TENSOR(qn_pow_scalar(i, 0), QN_SHAPE(3), 1, 1, 1);
    EXPECT_TENSOR(qn_pow_scalar(i, 5), QN_SHAPE(3), 1, 32, 1024);
    EXPECT_TENSOR(qn_pow_scalar(i, -2), QN_SHAPE(3), 1, 0.25, 0.0625);
    /* 3 ^ 20, which no f32 holds */
    EXPECT_TENSOR(
        qn_eq(qn_pow_scalar(I64(QN_SHAPE(1), 3), 20), qn_add_scalar(qn_zeros(tape, QN_I64, QN_SHAPE(1)), 3486784401.0)),
        QN_SHAPE(1), 1);
    EXPECT(qn_tensor_dtype(qn_mul_scalar(qn_cast(x, QN_BF16), 0.1)) == QN_BF16);
    EXPECT(qn_tensor_dtype(qn_add_scalar(qn_gt_scalar(x, 1), 1)) == QN_I64);
    EXPECT_TENSOR(qn_eq_scalar(i, 2), QN_SHAPE(3), 0, 1, 0);
    EXPECT_TENSOR(qn_lt_scalar(i, 2.5), QN_SHAPE(3), 1, 1, 0);
    tape_close();
}

static qn_dtype meet(qn_dtype a, int a_rank, qn_dtype b, int b_rank)
{
    qn_shape one = QN_SHAPE(1);
    qn_tensor x = qn_zeros(tape, a, a_rank ? one : QN_RANK_0), y = qn_zeros(tape, b, b_rank ? one : QN_RANK_0);
    return qn_tensor_dtype(qn_mul(x, y));
}

TEST(types_meet)
{
    tape_open();
    EXPECT(meet(QN_F16, 1, QN_BF16, 1) == QN_F32);
    EXPECT(meet(QN_F16, 1, QN_F32, 1) == QN_F32);
    EXPECT(meet(QN_F64, 1, QN_F32, 1) == QN_F64);
    EXPECT(meet(QN_I64, 1, QN_F16, 1) == QN_F16);
    EXPECT(meet(QN_I32, 1, QN_I64, 1) == QN_I64);
    EXPECT(meet(QN_U8, 1, QN_I8, 1) == QN_I16);
    EXPECT(meet(QN_U8, 1, QN_I32, 1) == QN_I32);
    EXPECT(meet(QN_U32, 1, QN_I32, 1) == QN_I64);
    EXPECT(meet(QN_BOOL, 1, QN_U8, 1) == QN_U8);
    EXPECT(meet(QN_BF16, 1, QN_F32, 0) == QN_BF16);
    EXPECT(meet(QN_I32, 1, QN_I64, 0) == QN_I32);
    EXPECT(meet(QN_I32, 1, QN_F16, 0) == QN_F16);
    EXPECT(meet(QN_BF16, 0, QN_F32, 0) == QN_F32);
    EXPECT(qn_tensor_dtype(qn_div(I64(QN_SHAPE(1), 7), I64(QN_SHAPE(1), 2))) == QN_F32);
    EXPECT_TENSOR(qn_div(I64(QN_SHAPE(1), 7), I64(QN_SHAPE(1), 2)), QN_SHAPE(1), 3.5);
    EXPECT_TENSOR(qn_floor_div(I64(QN_SHAPE(1), -7), I64(QN_SHAPE(1), 2)), QN_SHAPE(1), -4);
    EXPECT_TENSOR(qn_floor_div(F32(QN_SHAPE(1), -7), F32(QN_SHAPE(1), 2)), QN_SHAPE(1), -4);
    EXPECT_TENSOR(qn_floor_div(F32(QN_SHAPE(5), 7, -7, 7, -7, 0),
                               F32(QN_SHAPE(5), INFINITY, INFINITY, -INFINITY, -INFINITY, -INFINITY)),
                  QN_SHAPE(5), 0, -1, -1, 0, 0);
    EXPECT_TENSOR(qn_exp(I64(QN_SHAPE(2), 0, 1)), QN_SHAPE(2), 1, 2.7182818);
    EXPECT_TENSOR(qn_floor(I64(QN_SHAPE(2), 3, -1)), QN_SHAPE(2), 3, -1);
    EXPECT_TENSOR(qn_relu(I64(QN_SHAPE(2), 3, -1)), QN_SHAPE(2), 3, 0);
    EXPECT_TENSOR(qn_isnan(I64(QN_SHAPE(2), 3, -1)), QN_SHAPE(2), 0, 0);
    EXPECT_TENSOR(qn_shl(I64(QN_SHAPE(2), 3, 1), TENSOR(QN_U8, QN_SHAPE(1), 2)), QN_SHAPE(2), 12, 4);
    EXPECT_TENSOR(qn_bitcast(F32(QN_SHAPE(1), 1), QN_I32), QN_SHAPE(1), 0x3f800000);
    EXPECT_TENSOR(qn_cast(F32(QN_SHAPE(2), 1.75, -1.75), QN_I32), QN_SHAPE(2), 1, -1);
    tape_close();
}

TEST(functions)
{
    tape_open();
    qn_tensor x = F32(QN_SHAPE(3), -1, 0.5, 2);
#define NEAR(call, ...) EXPECT_TENSOR(call, QN_SHAPE(3), __VA_ARGS__)
    NEAR(qn_neg(x), 1, -0.5, -2);
    NEAR(qn_abs(x), 1, 0.5, 2);
    NEAR(qn_sign(x), -1, 1, 1);
    NEAR(qn_floor(x), -1, 0, 2);
    NEAR(qn_ceil(x), -1, 1, 2);
    NEAR(qn_round(x), -1, 0, 2);
    NEAR(qn_sqrt(qn_abs(x)), 1, 0.70710678, 1.41421356);
    NEAR(qn_rsqrt(qn_abs(x)), 1, 1.41421356, 0.70710678);
    NEAR(qn_exp2(x), 0.5, 1.41421356, 4);
    NEAR(qn_expm1(x), -0.63212056, 0.64872127, 6.3890561);
    NEAR(qn_log(qn_abs(x)), 0, -0.69314718, 0.69314718);
    NEAR(qn_log2(qn_abs(x)), 0, -1, 1);
    NEAR(qn_log1p(qn_abs(x)), 0.69314718, 0.40546511, 1.0986123);
    NEAR(qn_sin(x), -0.84147098, 0.47942554, 0.90929743);
    NEAR(qn_cos(x), 0.54030231, 0.87758256, -0.41614684);
    NEAR(qn_tanh(x), -0.76159416, 0.46211716, 0.96402758);
    NEAR(qn_erf(x), -0.84270079, 0.52049988, 0.99532227);
    NEAR(qn_sigmoid(x), 0.26894142, 0.62245933, 0.88079708);
    NEAR(qn_relu(x), 0, 0.5, 2);
    NEAR(qn_gelu(x), -0.15865525, 0.34573123, 1.9544997);
    NEAR(qn_gelu_tanh(x), -0.15880801, 0.34571401, 1.9545977);
    NEAR(qn_silu(x), -0.26894142, 0.31122967, 1.7615942);
    NEAR(qn_softplus(x), 0.31326169, 0.97407698, 2.126928);
    NEAR(qn_not(qn_gt_scalar(x, 0)), 1, 0, 0);
    NEAR(qn_isinf(qn_div_scalar(x, 0)), 1, 1, 1);
    NEAR(qn_and(qn_gt_scalar(x, 0), qn_lt_scalar(x, 1)), 0, 1, 0);
    NEAR(qn_or(qn_lt_scalar(x, 0), qn_gt_scalar(x, 1)), 1, 0, 1);
    NEAR(qn_xor(qn_gt_scalar(x, 0), qn_gt_scalar(x, 1)), 0, 1, 0);
#undef NEAR
    tape_close();
}

TEST(making)
{
    tape_open();
    EXPECT_TENSOR(qn_arange(tape, QN_F32, 1, 2, 0.25), QN_SHAPE(4), 1, 1.25, 1.5, 1.75);
    EXPECT_TENSOR(qn_arange(tape, QN_I32, 5, 0, -2), QN_SHAPE(3), 5, 3, 1);
    EXPECT_TENSOR(qn_linspace(tape, QN_F32, -1, 1, 5), QN_SHAPE(5), -1, -0.5, 0, 0.5, 1);
    EXPECT_TENSOR(qn_linspace(tape, QN_F32, 3, 7, 1), QN_SHAPE(1), 3);
    EXPECT_TENSOR(qn_eye(tape, QN_F32, 2, 3), QN_SHAPE(2, 3), 1, 0, 0, 0, 1, 0);
    EXPECT_TENSOR(qn_full(tape, QN_BF16, QN_SHAPE(2), 0.1), QN_SHAPE(2), 0.10009765625, 0.10009765625);
    EXPECT_TENSOR(qn_empty(tape, QN_F32, QN_SHAPE(2)), QN_SHAPE(2), 0, 0);
    EXPECT(qn_tensor_count(qn_empty(tape, QN_F32, QN_SHAPE(0, 3))) == 0);
    float data[6] = {1, 2, 3, 4, 5, 6};
    int64_t strides[2] = {1, 3}, back[1] = {-1};
    EXPECT_TENSOR(qn_wrap_memory(tape, data, QN_F32, QN_SHAPE(3, 2), strides, NULL, NULL), QN_SHAPE(3, 2), 1, 4, 2, 5,
                  3, 6);
    EXPECT_TENSOR(qn_wrap_memory(tape, data + 5, QN_F32, QN_SHAPE(3), back, NULL, NULL), QN_SHAPE(3), 6, 5, 4);
    tape_close();
}

/* Buffers are not copied; files come in either order of axes. */
TEST(buffers_and_files)
{
    tape_open();
    qn_error error;
    qn_buffer *buffer;
    EXPECT(!qn_buffer_new_on(tensor_context, tape->device, 6 * sizeof(float), &buffer, &error));
    const float numbers[6] = {1, 2, 3, 4, 5, 6};
    EXPECT(!qn_buffer_write(buffer, 0, numbers, sizeof(numbers), NULL, &error));
    qn_tensor whole = qn_from_buffer(tape, buffer, 0, QN_F32, QN_SHAPE(2, 3), NULL);
    qn_tensor part = qn_from_buffer(tape, buffer, 5, QN_F32, QN_SHAPE(3), (int64_t[]){-2});
    EXPECT(qn_tensor_same_memory(whole, part));
    EXPECT_TENSOR(whole, QN_SHAPE(2, 3), 1, 2, 3, 4, 5, 6);
    EXPECT_TENSOR(qn_neg(part), QN_SHAPE(3), -6, -4, -2);
    qn_buffer_release(buffer); /* the tensors hold it */
    EXPECT_TENSOR(part, QN_SHAPE(3), 6, 4, 2);
    char path[] = "/tmp/quern-tensor-XXXXXX";
    fclose(fdopen(mkstemp(path), "wb"));
    qn_tensor turned = qn_transpose(whole, 0, 1);
    EXPECT(!qn_tensor_save_npy(turned, path, &error));
    EXPECT_TENSOR(qn_load_npy(tape, path), QN_SHAPE(3, 2), 1, 4, 2, 5, 3, 6);
    char header[81];
    memcpy(header, "\x93NUMPY\x01\x00\x46\x00", 10);
    snprintf(header + 10, 71, "%-69s\n", "{'descr': '<f4', 'fortran_order': True, 'shape': (2, 3), }");
    FILE *file = fopen(path, "wb");
    EXPECT(fwrite(header, 80, 1, file) == 1 && fwrite(numbers, sizeof(numbers), 1, file) == 1);
    fclose(file);
    EXPECT_TENSOR(qn_load_npy(tape, path), QN_SHAPE(2, 3), 1, 3, 5, 2, 4, 6);
    remove(path);
    tape_close();
}

TEST(movement)
{
    tape_open();
    qn_tensor x = qn_arange(tape, QN_F32, 0, 6, 1), m = qn_reshape(x, QN_SHAPE(2, -1)), parts[3];
    EXPECT_TENSOR(qn_transpose(m, 0, 1), QN_SHAPE(3, 2), 0, 3, 1, 4, 2, 5);
    EXPECT_TENSOR(qn_permute(qn_reshape(x, QN_SHAPE(1, 2, 3)), QN_AXES(2, 0, -2)), QN_SHAPE(3, 1, 2), 0, 3, 1, 4, 2, 5);
    EXPECT_TENSOR(qn_expand(qn_reshape(x, QN_SHAPE(6, 1)), QN_SHAPE(1, -1, 2)), QN_SHAPE(1, 6, 2), 0, 0, 1, 1, 2, 2, 3,
                  3, 4, 4, 5, 5);
    EXPECT_TENSOR(qn_slice(x, 0, 1, QN_END, 2), QN_SHAPE(3), 1, 3, 5);
    EXPECT_TENSOR(qn_slice(x, 0, -2, QN_END, 1), QN_SHAPE(2), 4, 5);
    EXPECT_TENSOR(qn_slice(x, 0, QN_END, QN_BEGIN, -2), QN_SHAPE(3), 5, 3, 1);
    EXPECT_TENSOR(qn_slice(x, 0, -3, -100, -1), QN_SHAPE(4), 3, 2, 1, 0);
    EXPECT_TENSOR(qn_slice(x, 0, 1, 5, QN_END), QN_SHAPE(1), 1);
    EXPECT_TENSOR(qn_slice(x, 0, 4, 1, QN_BEGIN), QN_SHAPE(1), 4);
    EXPECT(qn_tensor_extent(qn_slice(x, 0, 4, 2, 1), 0) == 0);
    EXPECT(qn_tensor_extent(qn_slice(x, 0, 2, 4, -1), 0) == 0);
    EXPECT_TENSOR(qn_slice(m, -1, 1, 3, 1), QN_SHAPE(2, 2), 1, 2, 4, 5);
    EXPECT_TENSOR(qn_index(m, 0, -1), QN_SHAPE(3), 3, 4, 5);
    EXPECT_TENSOR(qn_flip(m, QN_AXES(1)), QN_SHAPE(2, 3), 2, 1, 0, 5, 4, 3);
    EXPECT_TENSOR(qn_flip(m, QN_ALL), QN_SHAPE(2, 3), 5, 4, 3, 2, 1, 0);
    EXPECT_TENSOR(qn_squeeze(qn_reshape(x, QN_SHAPE(1, 6, 1)), QN_ALL), QN_SHAPE(6), 0, 1, 2, 3, 4, 5);
    EXPECT_TENSOR(qn_squeeze(qn_reshape(x, QN_SHAPE(1, 6, 1)), QN_AXES(1, 2)), QN_SHAPE(1, 6), 0, 1, 2, 3, 4, 5);
    EXPECT_TENSOR(qn_unsqueeze(x, -1), QN_SHAPE(6, 1), 0, 1, 2, 3, 4, 5);
    EXPECT_TENSOR(qn_flatten(qn_reshape(x, QN_SHAPE(1, 2, 3)), 1, -1), QN_SHAPE(1, 6), 0, 1, 2, 3, 4, 5);
    EXPECT_TENSOR(qn_window(x, 0, 2, 2, 3), QN_SHAPE(2, 2), 0, 3, 2, 5);
    EXPECT_TENSOR(qn_pad(m, QN_SHAPE(0, 1), QN_SHAPE(1, 0), 9), QN_SHAPE(3, 4), 9, 0, 1, 2, 9, 3, 4, 5, 9, 9, 9, 9);
    EXPECT_TENSOR(qn_pad(x, QN_SHAPE(-2), QN_SHAPE(-3), 9), QN_SHAPE(1), 2);
    EXPECT_TENSOR(qn_concat((qn_tensor[]){m, qn_mul_scalar(m, 10)}, 2, 0), QN_SHAPE(4, 3), 0, 1, 2, 3, 4, 5, 0, 10, 20,
                  30, 40, 50);
    EXPECT_TENSOR(qn_concat((qn_tensor[]){qn_slice(x, 0, 0, 2, 1), I64(QN_SHAPE(1), 7)}, 2, -1), QN_SHAPE(3), 0, 1, 7);
    EXPECT_TENSOR(qn_stack((qn_tensor[]){qn_index(m, 0, 0), qn_index(m, 0, 1)}, 2, 1), QN_SHAPE(3, 2), 0, 3, 1, 4, 2,
                  5);
    qn_split(x, 0, (int64_t[]){1, 2, 3}, 3, parts);
    EXPECT_TENSOR(parts[2], QN_SHAPE(3), 3, 4, 5);
    qn_chunk(qn_slice(x, 0, 0, 5, 1), 0, 2, parts);
    EXPECT_TENSOR(parts[0], QN_SHAPE(3), 0, 1, 2);
    EXPECT_TENSOR(parts[1], QN_SHAPE(2), 3, 4);
    EXPECT_TENSOR(qn_repeat(qn_slice(m, 1, 0, 2, 1), QN_SHAPE(2, 1, 2)), QN_SHAPE(2, 2, 4), 0, 1, 0, 1, 3, 4, 3, 4, 0,
                  1, 0, 1, 3, 4, 3, 4);
    tape_close();
}

static void expect_strides(qn_tensor t, bool view, qn_shape strides, int line)
{
    qn_shape is = qn_tensor_strides(t);
    bool same = is.rank == strides.rank && qn_tensor_is_view(t) == view;
    for (int k = 0; k < is.rank && same; k++) same = is.extents[k] == strides.extents[k];
    if (!same) test_fail(__FILE__, line, "strides");
}
#define EXPECT_STRIDES(t, view, ...) expect_strides(t, view, QN_SHAPE(__VA_ARGS__), __LINE__)

TEST(strides_as_in_pytorch)
{
    tape_open();
    qn_tensor x = qn_empty(tape, QN_F32, QN_SHAPE(2, 4, 3, 2)), y = qn_exp(x);
    EXPECT_STRIDES(x, false, 24, 6, 2, 1);
    EXPECT_STRIDES(qn_permute(x, QN_AXES(1, 0, 3, 2)), true, 6, 24, 1, 2);
    EXPECT_STRIDES(qn_transpose(y, 0, 3), true, 1, 6, 2, 24);
    EXPECT_STRIDES(qn_reshape(x, QN_SHAPE(8, 6)), true, 6, 1);
    EXPECT_STRIDES(qn_reshape(qn_transpose(x, 0, 1), QN_SHAPE(8, 6)), false, 6, 1);
    EXPECT_STRIDES(qn_reshape(qn_transpose(x, 0, 1), QN_SHAPE(4, 2, 6)), true, 6, 24, 1);
    EXPECT_STRIDES(qn_reshape(qn_transpose(x, 0, 1), QN_SHAPE(2, 2, 2, 1, 6)), true, 12, 6, 24, 6, 1);
    EXPECT_STRIDES(qn_expand(qn_slice(x, 3, 0, 1, 1), QN_SHAPE(2, 4, 3, 5)), true, 24, 6, 2, 0);
    EXPECT_STRIDES(qn_slice(x, 1, 0, 4, 2), true, 24, 12, 2, 1);
    EXPECT_STRIDES(qn_flip(x, QN_AXES(3)), true, 24, 6, 2, -1);
    EXPECT_STRIDES(qn_window(x, 1, 2, 2, 1), true, 24, 12, 2, 1, 6);
    EXPECT_STRIDES(qn_pad(x, QN_SHAPE(0, 0, 0, 1), QN_SHAPE(0, 0, 0, 0), 0), false, 36, 9, 3, 1);
    EXPECT_STRIDES(qn_unsqueeze(qn_slice(x, 2, 0, 1, 1), 2), true, 24, 6, 2, 2, 1);
    EXPECT(qn_tensor_same_memory(x, qn_reshape(qn_permute(x, QN_AXES(1, 0, 2, 3)), QN_SHAPE(4, 2, 6))));
    EXPECT(!qn_tensor_same_memory(x, y));
    EXPECT(!qn_tensor_same_memory(x, qn_reshape(qn_transpose(x, 0, 1), QN_SHAPE(8, 6))));
    tape_close();
}

TEST(reductions)
{
    tape_open();
    qn_tensor x = F32(QN_SHAPE(2, 3), 1, 2, 3, 4, 5, 6), e = qn_zeros(tape, QN_F32, QN_SHAPE(2, 0));
    EXPECT_TENSOR(qn_sum(x, QN_ALL, false), QN_RANK_0, 21);
    EXPECT_TENSOR(qn_sum(x, QN_AXES(0), false), QN_SHAPE(3), 5, 7, 9);
    EXPECT_TENSOR(qn_sum(x, QN_AXES(-1), true), QN_SHAPE(2, 1), 6, 15);
    EXPECT_TENSOR(qn_sum(e, QN_AXES(1), false), QN_SHAPE(2), 0, 0);
    EXPECT_TENSOR(qn_mean(x, QN_AXES(0, 1), true), QN_SHAPE(1, 1), 3.5);
    EXPECT_TENSOR(qn_mean(e, QN_AXES(1), false), QN_SHAPE(2), NAN, NAN);
    EXPECT_TENSOR(qn_max(x, QN_AXES(1), false), QN_SHAPE(2), 3, 6);
    EXPECT_TENSOR(qn_min(x, QN_AXES(0), false), QN_SHAPE(3), 1, 2, 3);
    EXPECT_TENSOR(qn_prod(x, QN_AXES(1), false), QN_SHAPE(2), 6, 120);
    EXPECT_TENSOR(qn_argmax(x, QN_AXES(1), false), QN_SHAPE(2), 2, 2);
    EXPECT_TENSOR(qn_argmax(x, QN_AXES(0), false), QN_SHAPE(3), 1, 1, 1);
    EXPECT_TENSOR(qn_argmax(x, QN_ALL, false), QN_RANK_0, 5);
    EXPECT_TENSOR(qn_argmin(x, QN_ALL, true), QN_SHAPE(1, 1), 0);
    EXPECT_TENSOR(qn_var(x, QN_AXES(1), 1, false), QN_SHAPE(2), 1, 1);
    EXPECT_TENSOR(qn_var(x, QN_AXES(1), 0, false), QN_SHAPE(2), 0.66666667, 0.66666667);
    EXPECT_TENSOR(qn_std(x, QN_ALL, 1, false), QN_RANK_0, 1.8708287);
    EXPECT_TENSOR(qn_var(qn_add_scalar(x, 10000), QN_AXES(1), 1, false), QN_SHAPE(2), 1, 1);
    EXPECT_TENSOR(qn_logsumexp(x, QN_AXES(1), false), QN_SHAPE(2), 3.4076059, 6.4076059);
    EXPECT_TENSOR(qn_logsumexp(F32(QN_SHAPE(3, 0), 0), QN_AXES(1), false), QN_SHAPE(3), -INF, -INF, -INF);
    EXPECT_TENSOR(qn_logsumexp(F32(QN_SHAPE(3, 2), -INF, -INF, 1000, 1000, INF, 1), QN_AXES(1), false), QN_SHAPE(3),
                  -INF, 1000.6931472, INF);
    EXPECT_TENSOR(qn_norm(x, 2, QN_ALL, false), QN_RANK_0, 9.5393920);
    EXPECT_TENSOR(qn_norm(x, 1, QN_AXES(1), false), QN_SHAPE(2), 6, 15);
    EXPECT_TENSOR(qn_norm(qn_neg(x), INF, QN_AXES(1), false), QN_SHAPE(2), 3, 6);
    EXPECT_TENSOR(qn_norm(qn_neg(x), -INF, QN_AXES(1), false), QN_SHAPE(2), 1, 4);
    EXPECT_TENSOR(qn_norm(F32(QN_SHAPE(3), 0, 2, 0), 0, QN_ALL, false), QN_RANK_0, 1);
    EXPECT_TENSOR(qn_norm(F32(QN_SHAPE(2), 1, 2), 3, QN_ALL, false), QN_RANK_0, 2.0800838);
    EXPECT_TENSOR(qn_any(qn_gt_scalar(x, 3), QN_AXES(1), false), QN_SHAPE(2), 0, 1);
    EXPECT_TENSOR(qn_all(x, QN_AXES(1), false), QN_SHAPE(2), 1, 1);
    EXPECT_TENSOR(qn_max(qn_gt_scalar(x, 3), QN_AXES(0), false), QN_SHAPE(3), 1, 1, 1);
    EXPECT(qn_tensor_dtype(qn_sum(qn_gt_scalar(x, 3), QN_ALL, false)) == QN_I64);
    EXPECT(qn_tensor_dtype(qn_sum(qn_cast(x, QN_U8), QN_ALL, false)) == QN_U64);
    EXPECT(qn_tensor_dtype(qn_mean(qn_cast(x, QN_I32), QN_ALL, false)) == QN_F32);
    EXPECT(qn_tensor_dtype(qn_var(qn_cast(x, QN_BF16), QN_ALL, 1, false)) == QN_BF16);
    EXPECT_TENSOR(qn_sum(qn_full(tape, QN_I8, QN_SHAPE(300), 100), QN_ALL, false), QN_RANK_0, 30000);
    EXPECT_TENSOR(qn_sum(qn_scalar(tape, QN_F32, 4), QN_ALL, false), QN_RANK_0, 4);
    tape_close();
}

TEST(scans_and_order)
{
    tape_open();
    qn_tensor x = F32(QN_SHAPE(2, 3), 3, 1, 2, -1, NAN, -5), at;
    EXPECT_TENSOR(qn_cumsum(F32(QN_SHAPE(2, 2), 1, 2, 3, 4), 0), QN_SHAPE(2, 2), 1, 2, 4, 6);
    EXPECT_TENSOR(qn_cumprod(F32(QN_SHAPE(3), 2, 3, 4), -1), QN_SHAPE(3), 2, 6, 24);
    EXPECT_TENSOR(qn_cummax(F32(QN_SHAPE(3), 2, 1, 4), 0), QN_SHAPE(3), 2, 2, 4);
    EXPECT_TENSOR(qn_cummin(F32(QN_SHAPE(3), 2, 1, 4), 0), QN_SHAPE(3), 2, 1, 1);
    EXPECT(qn_tensor_dtype(qn_cumsum(qn_cast(x, QN_BOOL), 0)) == QN_I64);
    EXPECT_TENSOR(qn_sort(x, 1, false, &at), QN_SHAPE(2, 3), 1, 2, 3, -5, -1, NAN);
    EXPECT_TENSOR(at, QN_SHAPE(2, 3), 1, 2, 0, 2, 0, 1);
    EXPECT_TENSOR(qn_sort(x, 1, true, NULL), QN_SHAPE(2, 3), 3, 2, 1, NAN, -1, -5);
    EXPECT_TENSOR(qn_topk(x, 2, 1, true, &at), QN_SHAPE(2, 2), 3, 2, NAN, -1);
    EXPECT_TENSOR(at, QN_SHAPE(2, 2), 0, 2, 1, 0);
    EXPECT_TENSOR(qn_topk(x, 1, -1, false, &at), QN_SHAPE(2, 1), 1, -5);
    EXPECT_TENSOR(qn_argsort(I64(QN_SHAPE(4), 2, 1, 2, 1), 0, false), QN_SHAPE(4), 1, 3, 0, 2);
    tape_close();
}

TEST(by_index)
{
    tape_open();
    qn_tape_set_check_indices(tape, true); /* with asserts in the kernels, whatever the build is */
    qn_tensor x = F32(QN_SHAPE(3, 2), 1, 2, 3, 4, 5, 6), i = I64(QN_SHAPE(2), 2, 0);
    EXPECT_TENSOR(qn_index_select(x, 0, i), QN_SHAPE(2, 2), 5, 6, 1, 2);
    EXPECT_TENSOR(qn_index_select(x, 1, I64(QN_SHAPE(1, 3), 1, 1, 0)), QN_SHAPE(3, 1, 3), 2, 2, 1, 4, 4, 3, 6, 6, 5);
    EXPECT_TENSOR(qn_gather(x, 0, I64(QN_SHAPE(2, 2), 2, 0, 0, 1)), QN_SHAPE(2, 2), 5, 2, 1, 4);
    EXPECT_TENSOR(qn_gather(x, 0, I64(QN_SHAPE(1, 1), 2)), QN_SHAPE(1, 1), 5);
    EXPECT_TENSOR(qn_scatter_add(x, 0, I64(QN_SHAPE(2, 2), 0, 1, 0, 1), qn_ones(tape, QN_F32, QN_SHAPE(2, 2))),
                  QN_SHAPE(3, 2), 3, 2, 3, 6, 5, 6);
    EXPECT_TENSOR(qn_scatter_add(x, 1, I64(QN_SHAPE(1, 3), 0, 0, 1), qn_full(tape, QN_F32, QN_SHAPE(2, 3), 10)),
                  QN_SHAPE(3, 2), 21, 12, 3, 4, 5, 6);
    EXPECT_TENSOR(qn_index_add(x, 0, i, qn_ones(tape, QN_F32, QN_SHAPE(2, 2))), QN_SHAPE(3, 2), 2, 3, 3, 4, 6, 7);
    EXPECT_TENSOR(qn_one_hot(i, 3, QN_F32), QN_SHAPE(2, 3), 0, 0, 1, 1, 0, 0);
    EXPECT_TENSOR(qn_embedding(x, I64(QN_SHAPE(1, 2), 1, 2)), QN_SHAPE(1, 2, 2), 3, 4, 5, 6);
    qn_tensor flat = I64(QN_SHAPE(4), 0, 1, 2, 2), offsets = I64(QN_SHAPE(4), 0, 0, 3, 4);
    EXPECT_TENSOR(qn_embedding_bag(x, flat, offsets, QN_BAG_SUM), QN_SHAPE(4, 2), 0, 0, 9, 12, 5, 6, 0, 0);
    EXPECT_TENSOR(qn_embedding_bag(x, flat, offsets, QN_BAG_MEAN), QN_SHAPE(4, 2), 0, 0, 3, 4, 5, 6, 0, 0);
    EXPECT_TENSOR(qn_embedding_bag(x, flat, I64(QN_SHAPE(1), 0), QN_BAG_MEAN), QN_SHAPE(1, 2), 3.5, 4.5);
    EXPECT_TENSOR(qn_embedding_bag(x, qn_reshape(flat, QN_SHAPE(2, 2)), QN_NONE, QN_BAG_SUM), QN_SHAPE(2, 2), 4, 6, 10,
                  12);
    EXPECT_TENSOR(qn_embedding_bag(x, qn_reshape(flat, QN_SHAPE(2, 2)), QN_NONE, QN_BAG_MEAN), QN_SHAPE(2, 2), 2, 3, 5,
                  6);
    tape_close();
}

TEST(products)
{
    tape_open();
    qn_tensor a = F32(QN_SHAPE(2, 3), 1, 2, 3, 4, 5, 6), v = F32(QN_SHAPE(3), 1, 0, -1), w = F32(QN_SHAPE(2), 1, 2);
    qn_tensor batch = qn_stack((qn_tensor[]){a, qn_neg(a)}, 2, 0), t = qn_transpose(a, 0, 1);
    EXPECT_TENSOR(qn_matmul(a, t), QN_SHAPE(2, 2), 14, 32, 32, 77);
    EXPECT_TENSOR(qn_matmul(a, v), QN_SHAPE(2), -2, -2);
    EXPECT_TENSOR(qn_matmul(w, a), QN_SHAPE(3), 9, 12, 15);
    EXPECT_TENSOR(qn_matmul(v, v), QN_RANK_0, 2);
    EXPECT_TENSOR(qn_matmul(batch, t), QN_SHAPE(2, 2, 2), 14, 32, 32, 77, -14, -32, -32, -77);
    EXPECT_TENSOR(qn_matmul(a, qn_transpose(batch, 1, 2)), QN_SHAPE(2, 2, 2), 14, 32, 32, 77, -14, -32, -32, -77);
    EXPECT_TENSOR(qn_matmul(batch, v), QN_SHAPE(2, 2), -2, -2, 2, 2);
    EXPECT_TENSOR(qn_matmul(w, batch), QN_SHAPE(2, 3), 9, 12, 15, -9, -12, -15);
    EXPECT_TENSOR(qn_matmul(qn_unsqueeze(batch, 1), qn_transpose(batch, 1, 2)), QN_SHAPE(2, 2, 2, 2), 14, 32, 32, 77,
                  -14, -32, -32, -77, -14, -32, -32, -77, 14, 32, 32, 77);
    EXPECT_TENSOR(qn_matmul(qn_cast(a, QN_I32), qn_cast(t, QN_I32)), QN_SHAPE(2, 2), 14, 32, 32, 77);
    EXPECT(qn_tensor_dtype(qn_matmul(qn_cast(a, QN_I8), qn_cast(t, QN_I8))) == QN_I32);
    EXPECT(qn_tensor_dtype(qn_matmul(qn_cast(a, QN_BF16), t)) == QN_F32);
    EXPECT_TENSOR(qn_linear(batch, t, w), QN_SHAPE(2, 2, 2), 15, 34, 33, 79, -13, -30, -31, -75);
    EXPECT_TENSOR(qn_linear(v, t, QN_NONE), QN_SHAPE(2), -2, -2);
    EXPECT_TENSOR(qn_outer(w, v), QN_SHAPE(2, 3), 1, 0, -1, 2, 0, -2);
    EXPECT_TENSOR(qn_cdist(a, qn_zeros(tape, QN_F32, QN_SHAPE(1, 3))), QN_SHAPE(2, 1), 3.7416574, 8.7749644);
    tape_close();
}

/* Above 25 rows by a product: the same numbers. */
TEST(distances)
{
    tape_open();
    double direct[40 * 3], by_product[40 * 30];
    qn_tensor a = qn_randn(tape, QN_F32, QN_SHAPE(40, 5)), b = qn_randn(tape, QN_F32, QN_SHAPE(30, 5));
    EXPECT(tensor_values(qn_cdist(a, b), by_product, 1200) == 1200);
    EXPECT(tensor_values(qn_cdist(qn_slice(a, 0, 0, 20, 1), qn_slice(b, 0, 0, 3, 1)), direct, 60) == 60);
    for (int i = 0; i < 20; i++)
        for (int j = 0; j < 3; j++) EXPECT_NEAR(by_product[i * 30 + j], direct[i * 3 + j], 1e-5);
    tensor_on_device = false; /* what is left of rounding is noise */
    EXPECT(tensor_values(qn_cdist(a, a), by_product, 1200) == 1600);
    tensor_on_device = true;
    EXPECT(by_product[0] < 2e-3);
    tape_close();
}

/* Set before the first case: everything here is computed on the device too. */
TEST(on_the_device)
{
    tensor_on_device = true;
}

TEST_MAIN(CASE(on_the_device), CASE(arithmetic_broadcasts), CASE(scalars), CASE(types_meet), CASE(functions),
          CASE(making), CASE(buffers_and_files), CASE(movement), CASE(strides_as_in_pytorch), CASE(reductions),
          CASE(scans_and_order), CASE(by_index), CASE(products), CASE(distances))
