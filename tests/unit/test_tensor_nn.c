/*
 * Layers, losses and random numbers by the graph interpreter, against plain loops in double and against numbers that
 * PyTorch printed.
 * SPDX-License-Identifier: MIT
 */
#include "tensor.h"

#include <float.h>

/* Small numbers that do not repeat, in [-2, 2). */
static void fill(double *x, int count, unsigned seed)
{
    for (int i = 0; i < count; i++) {
        seed = seed * 1664525u + 1013904223u;
        x[i] = (float)((seed >> 8) * 0x1p-24 * 4 - 2);
    }
}

static qn_tensor filled(qn_dtype type, qn_shape s, unsigned seed, double *x)
{
    int count = 1;
    for (int k = 0; k < s.rank; k++) count *= (int)s.extents[k];
    fill(x, count, seed);
    return tensor_of(type, s, x);
}

static void expect_all(qn_tensor t, const double *expected, int count, double tolerance, int line)
{
    static double actual[1 << 16];
    if (tensor_values(t, actual, 1 << 16) != count) {
        test_fail(__FILE__, line, "count of elements");
        return;
    }
    for (int i = 0; i < count; i++) test_near(actual[i], expected[i], tolerance, __FILE__, line);
}
#define EXPECT_ALL(t, expected, count, tolerance) expect_all(t, expected, count, tolerance, __LINE__)

TEST(softmax)
{
    tape_open();
    EXPECT_TENSOR(qn_softmax(F32(QN_SHAPE(2, 3), 5, 5, 5, 0, 0, 100), 1), QN_SHAPE(2, 3), 1 / 3.0, 1 / 3.0, 1 / 3.0, 0,
                  0, 1);
    EXPECT_TENSOR(qn_softmax(F32(QN_SHAPE(4), 1, 3, 4, 2), 0), QN_SHAPE(4), 0.0320586, 0.2368828, 0.6439143, 0.0871443);
    EXPECT_TENSOR(qn_softmax(F32(QN_SHAPE(2, 2), 1000, 1000, -1000, -1001), 1), QN_SHAPE(2, 2), 0.5, 0.5, 0.7310586,
                  0.2689414);
    EXPECT_TENSOR(qn_softmax(F32(QN_SHAPE(2, 2), 0, 1, 0, 1), 0), QN_SHAPE(2, 2), 0.5, 0.5, 0.5, 0.5);
    EXPECT_TENSOR(qn_log_softmax(F32(QN_SHAPE(3), 0, 0, 1000), -1), QN_SHAPE(3), -1000, -1000, 0);
    EXPECT(qn_tensor_dtype(qn_softmax(qn_cast(F32(QN_SHAPE(2), 0, 0), QN_BF16), 0)) == QN_BF16);
    EXPECT(qn_tensor_count(qn_softmax(qn_zeros(tape, QN_F32, QN_SHAPE(3, 0)), 1)) == 0);
    tape_close();
}

TEST(norms)
{
    tape_open();
    double x[2 * 3 * 4], w[12], b[12], y[24], z[24];
    qn_tensor tx = filled(QN_F32, QN_SHAPE(2, 3, 4), 1, x), tw = filled(QN_F32, QN_SHAPE(3, 4), 2, w);
    qn_tensor tb = filled(QN_F32, QN_SHAPE(3, 4), 3, b);
    for (int r = 0; r < 2; r++) {
        double mean = 0, var = 0, power = 0;
        for (int i = 0; i < 12; i++) mean += x[r * 12 + i] / 12;
        for (int i = 0; i < 12; i++) var += (x[r * 12 + i] - mean) * (x[r * 12 + i] - mean) / 12;
        for (int i = 0; i < 12; i++) power += x[r * 12 + i] * x[r * 12 + i] / 12;
        for (int i = 0; i < 12; i++) y[r * 12 + i] = (x[r * 12 + i] - mean) / sqrt(var + 1e-5) * w[i] + b[i];
        for (int i = 0; i < 12; i++) z[r * 12 + i] = x[r * 12 + i] / sqrt(power + 1e-6) * w[i];
    }
    EXPECT_ALL(qn_layer_norm(tx, QN_SHAPE(3, 4), tw, tb, 1e-5), y, 24, 1e-5);
    EXPECT_ALL(qn_rms_norm(tx, QN_SHAPE(3, 4), tw, 1e-6), z, 24, 1e-5);
    EXPECT_TENSOR(qn_layer_norm(F32(QN_SHAPE(2, 2), 1, 3, 10000, 10002), QN_SHAPE(2), QN_NONE, QN_NONE, 0),
                  QN_SHAPE(2, 2), -1, 1, -1, 1);
    EXPECT_TENSOR(qn_layer_norm(F32(QN_SHAPE(1, 2), 1, 3), QN_SHAPE(2), QN_NONE, F32(QN_SHAPE(2), 5, 6), 0),
                  QN_SHAPE(1, 2), 4, 7);
    EXPECT_TENSOR(qn_rms_norm(F32(QN_SHAPE(2), 3, 3), QN_SHAPE(2), QN_NONE, 0), QN_SHAPE(2), 1, 1);
    tape_close();
}

static void plain_conv(const double *x, const double *w, const double *b, int N, int C, int H, int W, int O, int K,
                       const int64_t *stride, const int64_t *padding, const int64_t *dilation, int groups, double *y)
{
    int OH = (H + 2 * (int)padding[0] - (int)dilation[0] * (K - 1) - 1) / (int)stride[0] + 1;
    int OW = (W + 2 * (int)padding[1] - (int)dilation[1] * (K - 1) - 1) / (int)stride[1] + 1, G = C / groups;
    for (int n = 0; n < N; n++)
        for (int o = 0; o < O; o++)
            for (int r = 0; r < OH; r++)
                for (int c = 0; c < OW; c++) {
                    double sum = b ? b[o] : 0;
                    for (int k = 0; k < G; k++)
                        for (int i = 0; i < K; i++)
                            for (int j = 0; j < K; j++) {
                                int row = r * (int)stride[0] - (int)padding[0] + i * (int)dilation[0];
                                int column = c * (int)stride[1] - (int)padding[1] + j * (int)dilation[1];
                                int channel = o / (O / groups) * G + k;
                                if (row < 0 || row >= H || column < 0 || column >= W) continue;
                                sum += x[((n * C + channel) * H + row) * W + column] * w[((o * G + k) * K + i) * K + j];
                            }
                    *y++ = sum;
                }
}

TEST(convolution)
{
    tape_open();
    static double x[2 * 4 * 7 * 6], w[6 * 4 * 9], b[6], y[4096];
    qn_tensor tx = filled(QN_F32, QN_SHAPE(2, 4, 7, 6), 4, x), tb = filled(QN_F32, QN_SHAPE(6), 5, b);
    qn_tensor tw = filled(QN_F32, QN_SHAPE(6, 4, 3, 3), 6, w), valid = qn_conv2d(tx, tw, QN_NONE, NULL);
    const int64_t ones[2] = {1, 1}, zeros[2] = {0, 0};
    EXPECT(qn_tensor_extent(valid, 2) == 5 && qn_tensor_extent(valid, 3) == 4);
    plain_conv(x, w, NULL, 2, 4, 7, 6, 6, 3, ones, zeros, ones, 1, y);
    EXPECT_ALL(valid, y, 2 * 6 * 5 * 4, 1e-4);
    qn_conv2d_options all = {.stride = {2, 1}, .padding = {1, 2}, .dilation = {1, 2}};
    plain_conv(x, w, b, 2, 4, 7, 6, 6, 3, all.stride, all.padding, all.dilation, 1, y);
    EXPECT_ALL(qn_conv2d(tx, tw, tb, &all), y, 2 * 6 * 4 * 6, 1e-4);
    qn_conv2d_options groups = {.groups = 2, .padding = {1, 1}};
    qn_tensor half = filled(QN_F32, QN_SHAPE(6, 2, 3, 3), 7, w);
    plain_conv(x, w, b, 2, 4, 7, 6, 6, 3, ones, groups.padding, ones, 2, y);
    EXPECT_ALL(qn_conv2d(tx, half, tb, &groups), y, 2 * 6 * 7 * 6, 1e-4);
    tape_close();
}

TEST(pooling)
{
    tape_open();
    qn_tensor x = qn_reshape(qn_arange(tape, QN_F32, 0, 16, 1), QN_SHAPE(1, 4, 4)), n = qn_neg(x);
    qn_pool2d_options padded = {.padding = {1, 1}}, alone = {.padding = {1, 1}, .without_padding = true};
    qn_pool2d_options steps = {.stride = {1, 2}, .dilation = {2, 1}};
    EXPECT_TENSOR(qn_max_pool2d(x, 2, 2, NULL), QN_SHAPE(1, 2, 2), 5, 7, 13, 15);
    EXPECT_TENSOR(qn_max_pool2d(n, 2, 2, &padded), QN_SHAPE(1, 3, 3), 0, -1, -3, -4, -5, -7, -12, -13, -15);
    EXPECT_TENSOR(qn_max_pool2d(x, 2, 2, &steps), QN_SHAPE(1, 2, 2), 9, 11, 13, 15);
    EXPECT_TENSOR(qn_avg_pool2d(x, 2, 2, NULL), QN_SHAPE(1, 2, 2), 2.5, 4.5, 10.5, 12.5);
    EXPECT_TENSOR(qn_avg_pool2d(x, 2, 2, &padded), QN_SHAPE(1, 3, 3), 0, 0.75, 0.75, 3, 7.5, 4.5, 3, 6.75, 3.75);
    EXPECT_TENSOR(qn_avg_pool2d(x, 2, 2, &alone), QN_SHAPE(1, 3, 3), 0, 1.5, 3, 6, 7.5, 9, 12, 13.5, 15);
    tape_close();
}

TEST(losses)
{
    tape_open();
    double x[4 * 5], each[4], total = 0;
    const int target[4] = {0, 4, 2, 1};
    qn_tensor tx = filled(QN_F32, QN_SHAPE(4, 5), 8, x), tt = I64(QN_SHAPE(4), 0, 4, 2, 1);
    for (int r = 0; r < 4; r++) {
        double sum = 0;
        for (int c = 0; c < 5; c++) sum += exp(x[r * 5 + c]);
        each[r] = log(sum) - x[r * 5 + target[r]];
        total += each[r];
    }
    EXPECT_ALL(qn_cross_entropy(tx, tt, QN_EACH, -100), each, 4, 1e-6);
    EXPECT_ALL(qn_cross_entropy(tx, tt, QN_SUM, -100), &total, 1, 1e-5);
    EXPECT_TENSOR(qn_cross_entropy(tx, tt, QN_MEAN, -100), QN_RANK_0, total / 4);
    EXPECT_TENSOR(qn_cross_entropy(tx, tt, QN_MEAN, QN_NO_INDEX), QN_RANK_0, total / 4);
    EXPECT_TENSOR(qn_cross_entropy(tx, tt, QN_MEAN, 4), QN_RANK_0, (total - each[1]) / 3);
    EXPECT_TENSOR(qn_cross_entropy(qn_index(tx, 0, 2), qn_scalar(tape, QN_I32, 2), QN_MEAN, -100), QN_RANK_0, each[2]);
    qn_tensor image = qn_transpose(qn_reshape(tx, QN_SHAPE(2, 2, 5)), 1, 2);
    EXPECT_ALL(qn_cross_entropy(image, qn_reshape(tt, QN_SHAPE(2, 2)), QN_EACH, -100), each, 4, 1e-6);
    EXPECT_TENSOR(qn_cross_entropy(F32(QN_SHAPE(1, 2), 1e4, -1e4), I64(QN_SHAPE(1), 0), QN_MEAN, -100), QN_RANK_0, 0);
    EXPECT_TENSOR(qn_mse_loss(F32(QN_SHAPE(2), 1, 3), F32(QN_SHAPE(2), 0, 1), QN_MEAN), QN_RANK_0, 2.5);
    EXPECT_TENSOR(qn_mse_loss(F32(QN_SHAPE(2), 1, 3), F32(QN_SHAPE(2), 0, 1), QN_SUM), QN_RANK_0, 5);
    EXPECT_TENSOR(qn_mse_loss(F32(QN_SHAPE(2), 1, 3), F32(QN_SHAPE(2), 0, 1), QN_EACH), QN_SHAPE(2), 1, 4);
    qn_tensor logits = F32(QN_SHAPE(4), 0, 20, -20, 2), truth = F32(QN_SHAPE(4), 1, 1, 0, 0.25);
    EXPECT_TENSOR(qn_bce_with_logits(logits, truth, QN_EACH), QN_SHAPE(4), 0.69314718, 2.0611537e-9, 2.0611537e-9,
                  2.126928 - 0.5);
    EXPECT_TENSOR(qn_bce_with_logits(F32(QN_SHAPE(2), 1000, -1000), F32(QN_SHAPE(2), 0, 1), QN_MEAN), QN_RANK_0, 1000);
    tape_close();
}

static void plain_attention(const double *q, const double *k, const double *v, int L, int S, int E, int D, bool causal,
                            const double *mask, double scale, double *y)
{
    for (int i = 0; i < L; i++) {
        double score[16], total = 0;
        for (int j = 0; j < S; j++) {
            double sum = 0;
            for (int e = 0; e < E; e++) sum += q[i * E + e] * k[j * E + e];
            score[j] = causal && j > i ? 0 : exp(sum * scale + (mask ? mask[i * S + j] : 0));
            total += score[j];
        }
        for (int d = 0; d < D; d++) {
            double sum = 0;
            for (int j = 0; j < S; j++) sum += score[j] / total * v[j * D + d];
            y[i * D + d] = sum;
        }
    }
}

TEST(attention)
{
    tape_open();
    double q[2 * 3 * 4], k[2 * 5 * 4], v[2 * 5 * 2], mask[15], y[2 * 3 * 2];
    qn_tensor tq = filled(QN_F32, QN_SHAPE(2, 3, 4), 9, q), tk = filled(QN_F32, QN_SHAPE(2, 5, 4), 10, k);
    qn_tensor tv = filled(QN_F32, QN_SHAPE(2, 5, 2), 11, v), tm = filled(QN_F32, QN_SHAPE(3, 5), 12, mask);
    for (int n = 0; n < 2; n++)
        plain_attention(q + n * 12, k + n * 20, v + n * 10, 3, 5, 4, 2, false, NULL, 0.5, y + n * 6);
    EXPECT_ALL(qn_scaled_dot_product_attention(tq, tk, tv, QN_NONE, false, 0), y, 12, 1e-5);
    qn_tensor half = qn_scaled_dot_product_attention(qn_cast(tq, QN_BF16), qn_cast(tk, QN_BF16), qn_cast(tv, QN_BF16),
                                                     QN_NONE, false, 0);
    EXPECT(qn_tensor_dtype(half) == QN_BF16);
    EXPECT_ALL(half, y, 12, 0.05);
    for (int n = 0; n < 2; n++)
        plain_attention(q + n * 12, k + n * 20, v + n * 10, 3, 5, 4, 2, true, NULL, 0.3, y + n * 6);
    EXPECT_ALL(qn_scaled_dot_product_attention(tq, tk, tv, QN_NONE, true, 0.3), y, 12, 1e-5);
    for (int n = 0; n < 2; n++)
        plain_attention(q + n * 12, k + n * 20, v + n * 10, 3, 5, 4, 2, false, mask, 0.5, y + n * 6);
    EXPECT_ALL(qn_scaled_dot_product_attention(tq, tk, tv, tm, false, 0), y, 12, 1e-5);
    for (int i = 0; i < 15; i++) mask[i] = i % 5 == 0 || mask[i] > 0 ? 0 : -INFINITY;
    qn_tensor looks = qn_ge_scalar(tensor_of(QN_F32, QN_SHAPE(3, 5), mask), 0);
    for (int n = 0; n < 2; n++)
        plain_attention(q + n * 12, k + n * 20, v + n * 10, 3, 5, 4, 2, false, mask, 0.5, y + n * 6);
    EXPECT_ALL(qn_scaled_dot_product_attention(tq, tk, tv, looks, false, 0), y, 12, 1e-5);
    tape_close();
}

/* torch.manual_seed(0), device cuda: the calls in order. */
TEST(random_numbers_of_pytorch)
{
    tape_open();
    qn_seed(tape, 0);
    double x[80], bias[10];
    qn_tensor first = qn_randn(tape, QN_F32, QN_SHAPE(8, 10)), second = qn_randn(tape, QN_F32, QN_SHAPE(10));
    qn_scope_begin(tape);
    EXPECT(tensor_values(first, x, 80) == 80 && tensor_values(second, bias, 10) == 10);
    const double printed[] = {-0.9247, -0.4253, -2.6438, 0.1452, -0.1209, -0.5797, -0.6229, -0.3284};
    const double next[] = {0.1808, -0.5523, 0.9238, -0.7350, 1.3800, 0.8676, 0.1297, -0.9406, 0.8109, 0.8821};
    for (int i = 0; i < 8; i++) EXPECT_NEAR(x[i], printed[i], 5.1e-5);
    for (int i = 0; i < 10; i++) EXPECT_NEAR(bias[i], next[i], 5.1e-5);
    qn_scope_end(tape);
    /* The state went on by 4 for each call. */
    EXPECT_TENSOR(tape->random_state, QN_SHAPE(2), 0, 8);
    qn_seed(tape, 0);
    tensor_expect(qn_rand(tape, QN_F32, QN_SHAPE(3)), QN_SHAPE(3), (const double[]){0.3990, 0.5167, 0.0249}, 5e-5,
                  __FILE__, __LINE__);
    qn_seed(tape, 0);
    EXPECT(tensor_values(qn_randn(tape, QN_F32, QN_SHAPE(8, 10)), bias, 10) == 80);
    EXPECT_NEAR(bias[3], x[3], 0);
    qn_seed(tape, 12345678901234567u);
    EXPECT(tensor_values(qn_randn(tape, QN_F32, QN_SHAPE(80)), bias, 10) == 80);
    EXPECT(fabs(bias[3] - x[3]) > 1e-3);
    tape_close();
}

TEST(random_moments)
{
    tape_open();
    static double x[1 << 14];
    int count = 1 << 14;
    double mean = 0, power = 0, low = 1, high = 0;
    qn_seed(tape, 3);
    EXPECT(tensor_values(qn_randn(tape, QN_F32, QN_SHAPE(128, 128)), x, count) == count);
    for (int i = 0; i < count; i++) mean += x[i] / count, power += x[i] * x[i] / count;
    EXPECT_NEAR(mean, 0, 0.03);
    EXPECT_NEAR(power, 1, 0.04);
    EXPECT(tensor_values(qn_rand(tape, QN_F32, QN_SHAPE(128, 128)), x, count) == count);
    mean = 0;
    for (int i = 0; i < count; i++) mean += x[i] / count, low = fmin(low, x[i]), high = fmax(high, x[i]);
    EXPECT_NEAR(mean, 0.5, 0.01);
    EXPECT(low >= 0 && low < 0.001 && high < 1 && high > 0.999);
    qn_tensor ones = qn_ones(tape, QN_BF16, QN_SHAPE(128, 128)), dropped = qn_dropout(ones, 0.25);
    EXPECT(qn_tensor_dtype(dropped) == QN_BF16);
    EXPECT(tensor_values(dropped, x, count) == count);
    int zeros = 0;
    for (int i = 0; i < count; i++) {
        zeros += x[i] == 0;
        if (x[i] != 0) EXPECT_NEAR(x[i], 4 / 3.0, 0.01);
    }
    EXPECT_NEAR(zeros / (double)count, 0.25, 0.02);
    EXPECT(tensor_values(qn_sub(dropped, qn_dropout(ones, 0.25)), x, count) == count);
    double other = 0;
    for (int i = 0; i < count; i++) other += x[i] != 0;
    EXPECT(other / count > 0.3);
    /* What is kept is what uniform numbers of the same draw say, though whole numbers are compared. */
    const double shares[] = {0.1, 0.5, 1e-12, 0.999, 1 - 1e-9};
    for (int p = 0; p < COUNT(shares); p++) {
        qn_seed(tape, 5);
        qn_tensor drawn = qn_rand(tape, QN_F32, QN_SHAPE(128, 128));
        EXPECT(tensor_values(drawn, x, count) == count);
        qn_seed(tape, 5);
        double kept[128 * 128];
        EXPECT(tensor_values(qn_dropout(qn_ones(tape, QN_F32, QN_SHAPE(128, 128)), shares[p]), kept, count) == count);
        int wrong = 0;
        for (int i = 0; i < count; i++) wrong += (kept[i] != 0) != ((float)x[i] >= (float)shares[p]);
        EXPECT(!wrong);
    }
    tape_close();
}

/* Where functions have a kink or a pole the gradient is a number all the same. */
TEST(gradients_at_corners)
{
    tape_open();
    qn_tensor zeros = TENSOR(QN_F64, QN_SHAPE(2, 2), 0, 0, 0, 0), g;
    qn_grad(qn_sum(qn_norm(zeros, 2, QN_AXES(1), false), QN_ALL, false), &zeros, 1, &g);
    EXPECT_TENSOR(g, QN_SHAPE(2, 2), 0, 0, 0, 0);
    qn_grad(qn_sum(qn_cdist(zeros, zeros), QN_ALL, false), &zeros, 1, &g);
    EXPECT_TENSOR(g, QN_SHAPE(2, 2), 0, 0, 0, 0);
    qn_grad(qn_bce_with_logits(zeros, qn_ones(tape, QN_F64, QN_SHAPE(2, 2)), QN_SUM), &zeros, 1, &g);
    EXPECT_TENSOR(g, QN_SHAPE(2, 2), -0.5, -0.5, -0.5, -0.5);
    qn_tensor far = TENSOR(QN_F64, QN_SHAPE(1, 2), 1000, -1000);
    qn_grad(qn_cross_entropy(far, TENSOR(QN_I64, QN_SHAPE(1), 1), QN_MEAN, -100), &far, 1, &g);
    EXPECT_TENSOR(g, QN_SHAPE(1, 2), 1, -1);
    tape_close();
}

/* relu(x + bias + 0.5 y) of three calls of randn after manual_seed(0): the first row that PyTorch printed. */
TEST(the_end_of_a_lora_layer)
{
    tape_open();
    qn_seed(tape, 0);
    qn_tensor x = qn_randn(tape, QN_F32, QN_SHAPE(8, 8)), y = qn_randn(tape, QN_F32, QN_SHAPE(8, 8));
    qn_tensor bias = qn_randn(tape, QN_F32, QN_SHAPE(8));
    qn_tensor out = qn_relu(qn_add(qn_add(x, bias), qn_mul_scalar(y, 0.5)));
    tensor_expect(qn_index(out, 0, 0), QN_SHAPE(8), (const double[]){1.7098, 0, 0, 0, 0.67049, 0, 0.34424, 0.011223},
                  3e-5, __FILE__, __LINE__);
    tape_close();
}

/* (x + 1) mod cardinality of the first line of a click log, 26 columns: rows of embedding tables. */
TEST(hashed_columns)
{
    tape_open();
    static const double values[26] = {
        0x62770d79, 0xe21f5d58, 0xafea442f, 0x945c7fcf, 0x38b02748, 0x6fcd6dcb, 0x3580aa21, 0x28808903, 0x46dedfa6,
        0x2e027dc1, 0x0c7c4231, 0x95981d1f, 0x00c5ffb7, 0xbe4ee537, 0x8a0b74cc, 0x4cdc3efa, 0xd20856aa, 0xb8170bba,
        0x9512c20b, 0xc38e2f28, 0x14f65a5d, 0x25b1b089, 0xd7c1fc0b, 0x7caf609c, 0x30436bfc, 0xed10571d};
    static const double sizes[26] = {1234907, 19682,   13779,  6866,    18489, 3,    6263, 1234, 49,
                                     854680,  114026,  75735,  10,      2159,  7532, 61,   4,    918,
                                     14,      1307783, 404742, 1105613, 87714, 9031, 76,   33};
    static const double rows[26] = {898743, 829,  333, 216, 12818, 2, 5187,   352,    5,       139162, 4240, 67682, 6,
                                    60,     6989, 35,  3,   711,   0, 955541, 373254, 1097035, 33060,  8756, 25,    25};
    qn_tensor x = tensor_of(QN_I64, QN_SHAPE(26), values), n = tensor_of(QN_I64, QN_SHAPE(26), sizes);
    tensor_expect(qn_mod(qn_add_scalar(x, 1), n), QN_SHAPE(26), rows, 0, __FILE__, __LINE__);
    qn_tensor missing = qn_mod(qn_add_scalar(qn_full(tape, QN_I64, QN_SHAPE(26), -1), 1), n);
    EXPECT_TENSOR(qn_max(missing, QN_ALL, false), QN_RANK_0, 0);
    /* An exact look-up in sorted values by comparison: the position of the match. */
    qn_tensor sorted = qn_sort(x, 0, false, NULL), hit = qn_eq(qn_unsqueeze(x, 1), qn_unsqueeze(sorted, 0));
    qn_tensor at = qn_argmax(qn_cast(hit, QN_I64), QN_AXES(1), false);
    tensor_expect(qn_index_select(sorted, 0, at), QN_SHAPE(26), values, 0, __FILE__, __LINE__);
    tape_close();
}

/* Set before the first case: everything here is computed on the device too. */
TEST(on_the_device)
{
    tensor_on_device = true;
}

TEST_MAIN(CASE(on_the_device), CASE(softmax), CASE(norms), CASE(convolution), CASE(pooling), CASE(losses),
          CASE(attention), CASE(random_numbers_of_pytorch), CASE(random_moments), CASE(gradients_at_corners),
          CASE(the_end_of_a_lora_layer), CASE(hashed_columns))
