/*
 * Gradients through the tensor calls: every composition of <quern/nn.h> and those of <quern/tensor.h> that are more than
 * one op, in double, against central differences; handles, variables and errors of qn_grad.
 * SPDX-License-Identifier: MIT
 */
#include "grad_check.h"
#include "tensor.h"

#include <quern/sites.h>

#define CASES 4 /* inputs at most */

static uint64_t random_state = 88172645463325252u;

static double next_number(double low, double high)
{
    random_state ^= random_state << 13;
    random_state ^= random_state >> 7;
    random_state ^= random_state << 17;
    return low + (high - low) * ((double)(random_state >> 11) / (double)(1ull << 53));
}

static qn_tensor numbers(qn_shape s, double low, double high)
{
    double data[512];
    int64_t count = 1;
    for (int k = 0; k < s.rank; k++) count *= s.extents[k];
    for (int64_t i = 0; i < count; i++) data[i] = next_number(low, high);
    return qn_from_memory(tape, data, QN_F64, s);
}

static double *memory_of(qn_tensor t)
{
    return (double *)tensor_memory(NULL, graph_get(tape->graph, tape_slot_of(t)->node));
}

/* y as a function of the inputs x[0 .. count): its gradients agree with difference quotients. */
static void check(const char *name, qn_tensor y, const qn_tensor *x, int count)
{
    qn_error error;
    graph_memory where = {.find = tensor_memory};
    qn_tensor d[CASES];
    qn_tensor weights = numbers(qn_tensor_shape(y), 0.5, 1.5);
    qn_tensor loss = qn_sum(qn_mul(y, weights), QN_ALL, false);
    qn_grad(loss, x, count, d);
    if (qn_tape_error(tape, &error)) {
        printf("%s: %s\n", name, error.message);
        EXPECT(!"differentiated");
        return;
    }
    trial t = {.g = tape->graph, .input_count = count, .name = name, .where = &where};
    node gradients[CASES];
    for (int i = 0; i < count; i++) {
        t.inputs[i] = tape_slot_of(x[i])->node;
        t.data[i] = memory_of(x[i]);
        gradients[i] = tape_slot_of(d[i])->node;
    }
    trial_compare(&t, tape_slot_of(loss)->node, gradients, "1");
}
#define CHECK_OF(y, ...) \
    check(#y, (y), (const qn_tensor[]){__VA_ARGS__}, (int)(sizeof((qn_tensor[]){__VA_ARGS__}) / sizeof(qn_tensor)))

TEST(reductions_and_order)
{
    tape_open();
    qn_tensor x = numbers(QN_SHAPE(2, 3, 2), 0.5, 2);
    CHECK_OF(qn_mean(x, QN_AXES(0, 2), true), x);
    CHECK_OF(qn_sum(x, QN_AXES(-1), false), x);
    CHECK_OF(qn_prod(x, QN_AXES(1), false), x);
    CHECK_OF(qn_max(x, QN_AXES(0, 1), false), x);
    CHECK_OF(qn_min(x, QN_ALL, false), x);
    CHECK_OF(qn_var(x, QN_AXES(0, 1), 1, false), x);
    CHECK_OF(qn_std(x, QN_AXES(2), 0, true), x);
    CHECK_OF(qn_logsumexp(x, QN_AXES(1), false), x);
    CHECK_OF(qn_norm(x, 2, QN_AXES(1), false), x);
    CHECK_OF(qn_norm(x, 1, QN_AXES(1), false), x);
    CHECK_OF(qn_norm(x, 3, QN_ALL, false), x);
    CHECK_OF(qn_norm(x, INFINITY, QN_AXES(1), false), x);
    CHECK_OF(qn_cumsum(x, 1), x);
    CHECK_OF(qn_cumprod(x, 1), x);
    CHECK_OF(qn_cummax(x, 1), x);
    CHECK_OF(qn_cummin(x, -1), x);
    CHECK_OF(qn_sort(x, 1, true, NULL), x);
    CHECK_OF(qn_topk(x, 2, 1, true, NULL), x);
    tape_close();
}

TEST(movement_and_index)
{
    tape_open();
    qn_tensor x = numbers(QN_SHAPE(3, 4), -1, 1), y = numbers(QN_SHAPE(3, 4), -1, 1), pieces[2];
    CHECK_OF(qn_mul(qn_flip(x, QN_AXES(0, 1)), x), x);
    CHECK_OF(qn_repeat(qn_square(x), QN_SHAPE(2, 1, 3)), x);
    CHECK_OF(qn_pad(x, QN_SHAPE(1, 0), QN_SHAPE(-1, 2), 3), x);
    CHECK_OF(qn_square(qn_slice(x, 1, QN_END, QN_BEGIN, -2)), x);
    CHECK_OF(qn_mul(qn_index(x, 0, 1), qn_index(x, 0, -1)), x);
    CHECK_OF(qn_stack((qn_tensor[]){x, y, x}, 3, 1), x, y);
    qn_split(x, 1, (int64_t[]){1, 3}, 2, pieces);
    CHECK_OF(qn_mul(pieces[0], pieces[1]), x);
    CHECK_OF(qn_square(qn_window(x, 1, 2, 1, 2)), x);
    CHECK_OF(qn_where(qn_gt(x, y), qn_exp(x), qn_sin(y)), x, y);
    CHECK_OF(qn_clamp(x, -0.5, 0.5), x);
    CHECK_OF(qn_square(qn_cast(x, QN_F32)), x);
    qn_tensor rows = I64(QN_SHAPE(2, 2), 2, 0, 2, 2), picks = I64(QN_SHAPE(3, 2), 1, 0, 3, 3, 2, 0);
    CHECK_OF(qn_square(qn_index_select(x, 0, rows)), x);
    CHECK_OF(qn_square(qn_gather(x, 1, picks)), x);
    qn_tensor updates = numbers(QN_SHAPE(3, 2), -1, 1);
    CHECK_OF(qn_square(qn_scatter_add(x, 1, picks, updates)), x, updates);
    qn_tensor added = numbers(QN_SHAPE(2, 4), -1, 1);
    CHECK_OF(qn_square(qn_index_add(x, 0, I64(QN_SHAPE(2), 1, 1), added)), x, added);
    tape_close();
}

TEST(products)
{
    tape_open();
    qn_tensor v = numbers(QN_SHAPE(3), -1, 1), m = numbers(QN_SHAPE(3, 4), -1, 1), w = numbers(QN_SHAPE(4), -1, 1);
    qn_tensor batch = numbers(QN_SHAPE(2, 5, 3), -1, 1), wide = numbers(QN_SHAPE(2, 1, 3, 2), -1, 1);
    CHECK_OF(qn_matmul(v, v), v);
    CHECK_OF(qn_matmul(v, m), v, m);
    CHECK_OF(qn_matmul(m, w), m, w);
    CHECK_OF(qn_matmul(batch, m), batch, m);
    CHECK_OF(qn_matmul(batch, wide), batch, wide);
    CHECK_OF(qn_outer(v, w), v, w);
    qn_tensor a = numbers(QN_SHAPE(2, 3), -1, 1), b = numbers(QN_SHAPE(4, 3), 2, 3);
    CHECK_OF(qn_cdist(a, b), a, b);
    CHECK_OF(qn_linear(batch, m, w), batch, m, w);
    CHECK_OF(qn_gelu(qn_linear(a, m, QN_NONE)), a, m);
    tape_close();
}

TEST(layers_and_losses)
{
    tape_open();
    qn_tensor x = numbers(QN_SHAPE(2, 3, 4), -2, 2), w = numbers(QN_SHAPE(4), 0.5, 1.5),
              b = numbers(QN_SHAPE(4), -1, 1);
    qn_tensor w2 = numbers(QN_SHAPE(3, 4), 0.5, 1.5), b2 = numbers(QN_SHAPE(3, 4), -1, 1);
    CHECK_OF(qn_softmax(x, 1), x);
    CHECK_OF(qn_log_softmax(x, -1), x);
    CHECK_OF(qn_layer_norm(x, QN_SHAPE(4), w, b, 1e-5), x, w, b);
    CHECK_OF(qn_layer_norm(x, QN_SHAPE(3, 4), w2, b2, 1e-5), x, w2, b2);
    CHECK_OF(qn_rms_norm(x, QN_SHAPE(4), w, 1e-5), x, w);
    CHECK_OF(qn_dropout(x, 0.4), x);
    qn_tensor table = numbers(QN_SHAPE(5, 2), -1, 1), index = I64(QN_SHAPE(4), 4, 1, 1, 0);
    CHECK_OF(qn_embedding(table, index), table);
    CHECK_OF(qn_embedding_bag(table, index, I64(QN_SHAPE(3), 0, 1, 1), QN_BAG_MEAN), table);
    CHECK_OF(qn_embedding_bag(table, I64(QN_SHAPE(2, 2), 4, 1, 1, 1), QN_NONE, QN_BAG_SUM), table);
    qn_tensor logits = numbers(QN_SHAPE(3, 5), -2, 2), target = numbers(QN_SHAPE(3, 5), 0, 1);
    CHECK_OF(qn_mse_loss(logits, target, QN_MEAN), logits, target);
    CHECK_OF(qn_bce_with_logits(logits, target, QN_MEAN), logits, target);
    CHECK_OF(qn_cross_entropy(logits, I64(QN_SHAPE(3), 4, 0, 2), QN_MEAN, -100), logits);
    CHECK_OF(qn_cross_entropy(logits, I64(QN_SHAPE(3), 4, 1, 2), QN_SUM, 1), logits);
    CHECK_OF(qn_cross_entropy(logits, I64(QN_SHAPE(3), 4, 0, 1), QN_EACH, 1), logits);
    qn_tensor q = numbers(QN_SHAPE(2, 3, 2), -1, 1), k = numbers(QN_SHAPE(2, 4, 2), -1, 1),
              v = numbers(QN_SHAPE(2, 4, 3), -1, 1), mask = numbers(QN_SHAPE(3, 4), -1, 1);
    CHECK_OF(qn_scaled_dot_product_attention(q, k, v, mask, false, 0), q, k, v, mask);
    CHECK_OF(qn_scaled_dot_product_attention(q, k, v, QN_NONE, true, 0.7), q, k, v);
    tape_close();
}

TEST(convolutions_and_pools)
{
    tape_open();
    qn_tensor x = numbers(QN_SHAPE(1, 2, 5, 4), -1, 1), w = numbers(QN_SHAPE(4, 2, 3, 2), -1, 1),
              b = numbers(QN_SHAPE(4), -1, 1), grouped = numbers(QN_SHAPE(4, 1, 2, 2), -1, 1);
    CHECK_OF(qn_conv2d(x, w, b, NULL), x, w, b);
    qn_conv2d_options o = {.stride = {2, 1}, .padding = {1, 2}, .dilation = {1, 2}};
    CHECK_OF(qn_conv2d(x, w, QN_NONE, &o), x, w);
    o = (qn_conv2d_options){.stride = {1, 2}, .padding = {1, 0}, .groups = 2};
    CHECK_OF(qn_conv2d(x, grouped, b, &o), x, grouped, b);
    qn_pool2d_options p = {.stride = {1, 2}, .padding = {1, 0}};
    CHECK_OF(qn_max_pool2d(x, 2, 2, NULL), x);
    CHECK_OF(qn_max_pool2d(x, 2, 3, &p), x);
    CHECK_OF(qn_avg_pool2d(x, 2, 2, &p), x);
    p.without_padding = true;
    CHECK_OF(qn_avg_pool2d(x, 3, 2, &p), x);
    tape_close();
}

TEST(convolutions_of_all_ranks)
{
    tape_open();
    qn_tensor line = numbers(QN_SHAPE(2, 4, 7), -1, 1), taps = numbers(QN_SHAPE(4, 2, 3), -1, 1),
              four = numbers(QN_SHAPE(4), -1, 1);
    qn_conv_options one = {.stride = {2}, .padding = {1}, .groups = 2, .output_padding = {1}};
    CHECK_OF(qn_conv(line, taps, four, &one), line, taps, four);
    CHECK_OF(qn_conv_transpose(line, taps, four, &one), line, taps, four);
    qn_tensor x = numbers(QN_SHAPE(1, 2, 3, 4), -1, 1), w = numbers(QN_SHAPE(2, 3, 2, 3), -1, 1);
    CHECK_OF(qn_conv_transpose(x, w, QN_NONE, &(qn_conv_options){.stride = {2, 1}, .dilation = {1, 2}}), x, w);
    /* Output paddings of a stride and more, which a dilation allows. */
    CHECK_OF(qn_conv_transpose(
                 x, w, QN_NONE,
                 &(qn_conv_options){.padding = {1, 2}, .dilation = {4, 3}, .stride = {2, 1}, .output_padding = {3, 2}}),
             x, w);
    qn_tensor volume = numbers(QN_SHAPE(1, 2, 3, 3, 2), -1, 1), deep = numbers(QN_SHAPE(2, 2, 2, 1, 2), -1, 1);
    CHECK_OF(qn_conv(volume, deep, QN_NONE, NULL), volume, deep);
    CHECK_OF(qn_conv_transpose(volume, deep, QN_NONE, &(qn_conv_options){.stride = {1, 2, 1}}), volume, deep);
    CHECK_OF(qn_max_pool(volume, QN_SHAPE(2, 2, 2), NULL), volume);
    CHECK_OF(qn_avg_pool(volume, QN_SHAPE(2, 2, 1), &(qn_pool_options){.ceil_mode = true}), volume);
    CHECK_OF(qn_adaptive_avg_pool(line, QN_SHAPE(3)), line);
    CHECK_OF(qn_adaptive_max_pool(x, QN_SHAPE(2, 3)), x);
    CHECK_OF(qn_upsample_nearest(x, QN_SHAPE(6, 5)), x);
    CHECK_OF(qn_upsample_linear(x, QN_SHAPE(5, 6), false), x);
    CHECK_OF(qn_upsample_linear(line, QN_SHAPE(4), true), line);
    tape_close();
}

TEST(activations_and_norms)
{
    tape_open();
    qn_tensor x = numbers(QN_SHAPE(2, 4, 3), -4, 4), w = numbers(QN_SHAPE(4), 0.5, 1.5),
              b = numbers(QN_SHAPE(4), -1, 1);
    CHECK_OF(qn_leaky_relu(x, 0.1), x);
    CHECK_OF(qn_elu(x, 1.5), x);
    CHECK_OF(qn_selu(x), x);
    CHECK_OF(qn_celu(x, 2), x);
    CHECK_OF(qn_mish(x), x);
    CHECK_OF(qn_hardswish(x), x);
    CHECK_OF(qn_hardtanh(x, -1, 2), x);
    CHECK_OF(qn_softsign(x), x);
    CHECK_OF(qn_logsigmoid(x), x);
    CHECK_OF(qn_threshold(x, 0.5, 2), x);
    CHECK_OF(qn_prelu(x, w), x, w);
    CHECK_OF(qn_glu(x, 1), x);
    CHECK_OF(qn_swiglu(x, QN_NONE, 1), x);
    CHECK_OF(qn_batch_norm(x, QN_NONE, QN_NONE, w, b, true, 0.1, 1e-5, NULL, NULL), x, w, b);
    CHECK_OF(qn_batch_norm(x, b, w, QN_NONE, QN_NONE, false, 0.1, 1e-5, NULL, NULL), x, b, w);
    CHECK_OF(qn_group_norm(x, 2, w, b, 1e-5), x, w, b);
    CHECK_OF(qn_instance_norm(x, w, b, 1e-5), x, w, b);
    tape_close();
}

TEST(losses_and_products_by_other_names)
{
    tape_open();
    qn_tensor a = numbers(QN_SHAPE(3, 4), -2, 2), b = numbers(QN_SHAPE(3, 4), -2, 2),
              c = numbers(QN_SHAPE(3, 4), -2, 2);
    CHECK_OF(qn_logaddexp(a, b), a, b);
    CHECK_OF(qn_smooth_l1_loss(a, b, 0.5, QN_MEAN), a, b);
    CHECK_OF(qn_huber_loss(a, b, 0.5, QN_EACH), a, b);
    CHECK_OF(qn_kl_div(a, b, true, QN_BATCH_MEAN), a, b);
    CHECK_OF(qn_kl_div(a, qn_exp(b), false, QN_MEAN), a, b);
    CHECK_OF(qn_nll_loss(a, I64(QN_SHAPE(3), 3, 0, 2), QN_MEAN, QN_NO_INDEX), a);
    CHECK_OF(qn_hinge_embedding_loss(a, qn_sign(qn_detach(b)), 1, QN_MEAN), a);
    CHECK_OF(qn_triplet_margin_loss(a, b, c, 3, 2, 1e-6, QN_SUM), a, b, c);
    CHECK_OF(qn_cosine_similarity(a, b, 1, 1e-8), a, b);
    CHECK_OF(qn_addmm(a, a, qn_matmul(qn_transpose(b, 0, 1), c), 0.5, 2), a, b, c);
    CHECK_OF(qn_einsum("ij,kj,kl->il", (qn_tensor[]){a, b, c}, 3), a, b, c);
    CHECK_OF(qn_square(qn_tril(a, 1)), a);
    CHECK_OF(qn_square(qn_diagonal(a, 1, 0, 1)), a);
    CHECK_OF(qn_square(qn_roll(a, QN_SHAPE(1), QN_AXES(1))), a);
    CHECK_OF(qn_square(qn_cumsum_with(a, 1, true, true)), a);
    qn_tensor rows = numbers(QN_SHAPE(3, 4), -1, 1), index = I64(QN_SHAPE(3), 2, 0, 2);
    CHECK_OF(qn_square(qn_index_copy(a, 0, index, rows)), a, rows);
    CHECK_OF(qn_square(qn_index_put(a, &index, 1, rows, true)), a, rows);
    tape_close();
}

TEST(variables_of_equal_values_have_gradients_of_their_own)
{
    tape_open();
    qn_tensor zero = qn_zeros(tape, QN_F32, QN_SHAPE(2));
    qn_tensor w[2] = {qn_variable(zero), qn_variable(zero)}, d[2];
    qn_tensor y = qn_add(qn_mul_scalar(w[0], 2), qn_mul_scalar(w[1], 3));
    qn_grad(qn_sum(y, QN_ALL, false), w, 2, d);
    EXPECT_TENSOR(d[0], QN_SHAPE(2), 2, 2);
    EXPECT_TENSOR(d[1], QN_SHAPE(2), 3, 3);
    tape_close();
}

TEST(from_several_outputs)
{
    tape_open();
    qn_tensor x = F32(QN_SHAPE(2), 3, 5), y[2] = {qn_square(x), qn_mul_scalar(x, 2)}, d;
    qn_tensor seeds[2] = {F32(QN_SHAPE(2), 1, 10), F32(QN_SHAPE(2), 100, 0)};
    qn_grad_from(y, seeds, 2, &x, 1, &d);
    EXPECT_TENSOR(d, QN_SHAPE(2), 206, 100);
    tape_close();
}

TEST(checkpoints_give_the_same_numbers)
{
    double got[2][8];
    for (int i = 0; i < 2; i++) {
        tape_open();
        random_state = 7;
        qn_tensor x = numbers(QN_SHAPE(2, 4), -1, 1), w = numbers(QN_SHAPE(4, 4), -1, 1), h = x, d;
        for (int layer = 0; layer < 6; layer++) {
            h = qn_dropout(qn_gelu(qn_matmul(h, w)), 0.2);
            if (i && layer % 2) h = qn_checkpoint(h);
        }
        qn_grad(qn_mean(h, QN_ALL, false), &x, 1, &d);
        EXPECT(tensor_values(d, got[i], 8) == 8);
        tape_close();
    }
    for (int k = 0; k < 8; k++) EXPECT(got[0][k] == got[1][k]);
}

/* The curvature of the largest of sums of exponentials: what its kernels compute a second time each, rather than read it,
 * they still have to get from somewhere when one of them falls apart. */
static void second_gradient(const char *device, qn_mode mode, bool both, double *out)
{
    qn_error error;
    double data[16];
    for (int i = 0; i < 16; i++) data[i] = 0.1 * (i * 7 % 16) - 0.7;
    tape_open();
    qn_tape_free(tape);
    if (qn_tape_new(tensor_context, device, &tape, &error)) test_fail(__FILE__, __LINE__, error.message);
    qn_tape_set_mode(tape, mode);
    qn_tensor x[2] = {qn_from_memory(tape, data, QN_F64, QN_SHAPE(8, 2)),
                      qn_from_memory(tape, data, QN_F64, QN_SHAPE(8, 1))};
    qn_tensor largest = qn_topk(qn_logaddexp(x[0], x[1]), 3, 0, true, NULL), d[2], second[2];
    qn_grad(qn_sin(qn_mean(largest, QN_ALL, false)), x, 2, d);
    qn_tensor sum = qn_sum(d[0], QN_ALL, false);
    if (both) sum = qn_add(sum, qn_sum(d[1], QN_ALL, false));
    qn_grad(sum, x, 2, second);
    if (qn_tensor_read(second[0], out, sizeof(data), &error)) test_fail(__FILE__, __LINE__, error.message);
    tape_close();
}

TEST(gradients_of_gradients_through_a_sort)
{
    for (int both = 0; both < 2; both++) {
        double truth[16], got[16];
        second_gradient("ref", QN_EAGER, both, truth);
        for (int way = 0; way < 2; way++) {
            second_gradient(way ? "cpu" : "ref", QN_FUSED, both, got);
            for (int i = 0; i < 16; i++) EXPECT(fabs(got[i] - truth[i]) < 1e-12);
        }
    }
}

TEST(gradients_of_gradients_of_a_variable_before_a_checkpoint)
{
    double got[4];
    for (int k = 0; k < 4; k++) {
        tape_open();
        qn_tensor x = F32(QN_SHAPE(1), 0.5), d, second;
        if (k & 1) x = qn_variable(x);
        qn_tensor before = qn_mul_scalar(x, 2), after = k & 2 ? qn_checkpoint(before) : before;
        qn_grad(qn_sum(qn_add(qn_sin(before), qn_sin(after)), QN_ALL, false), &x, 1, &d);
        qn_grad(qn_sum(d, QN_ALL, false), &x, 1, &second);
        EXPECT(tensor_values(second, &got[k], 1) == 1);
        EXPECT(fabs(got[k] + 8 * sin(1)) < 1e-5);
        tape_close();
    }
}

static void expect_error(const char *words)
{
    qn_error error = {0};
    qn_tape_error(tape, &error);
    const char *after = strstr(error.message, "): "); /* behind the line, which moves */
    EXPECT_TEXT(after ? after + 3 : error.message, words);
}

TEST(wrong_calls)
{
    tape_open();
    qn_tensor x = F32(QN_SHAPE(2), 1, 2), i = I64(QN_SHAPE(2), 1, 2), d = x;
    qn_error error;
    qn_grad(x, &x, 1, &d);
    EXPECT(!qn_tensor_valid(d));
    EXPECT(qn_tape_error(tape, &error) == QN_BAD_CALL);
    EXPECT(!strncmp(error.message, "grad (", 6) && strstr(error.message, "test_grad_tensor.c:"));
    EXPECT(strstr(error.message, "the loss has the shape [2], not one element") != NULL);
    qn_grad(qn_sum(x, QN_ALL, false), &i, 1, &d);
    expect_error("input 0 is i64 [2]: only floats have gradients");
    qn_grad_from(&x, &i, 1, &x, 1, &d);
    expect_error("what arrives at output 0 is i64 [2], the output is f32 [2]");
    qn_grad(QN_NONE, &x, 1, &d);
    expect_error("an operand is the empty tensor");
    qn_release(i);
    qn_grad(qn_sum(x, QN_ALL, false), &i, 1, &d);
    expect_error("an operand was released, or its scope has ended");
    tape_close();
}

TEST_MAIN(CASE(reductions_and_order), CASE(movement_and_index), CASE(products), CASE(layers_and_losses),
          CASE(convolutions_and_pools), CASE(convolutions_of_all_ranks), CASE(activations_and_norms),
          CASE(losses_and_products_by_other_names), CASE(variables_of_equal_values_have_gradients_of_their_own),
          CASE(from_several_outputs), CASE(checkpoints_give_the_same_numbers),
          CASE(gradients_of_gradients_through_a_sort), CASE(gradients_of_gradients_of_a_variable_before_a_checkpoint),
          CASE(wrong_calls))
