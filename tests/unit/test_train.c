/*
 * Optimisers and clipping through their handles: what a step assigns, that nothing stays behind on the tape, types of
 * state, rows of tables, and the exact words of every wrong call. The formulas are tested in test_optim.c.
 * SPDX-License-Identifier: MIT
 */
#include "tensor.h"
#include "tensor/optim.h"

#include <quern/sites.h>

static int live_slots(void)
{
    int count = 0;
    for (int i = 1; i < tape->slot_count; i++) count += tape->slots[i].node != 0;
    return count;
}

TEST(steps_assign_and_leave_nothing_behind)
{
    tape_open();
    qn_tensor w[2] = {qn_variable(F32(QN_SHAPE(2), 1, 2)), qn_variable(F32(QN_SHAPE(2), 1, 2))}, d[2];
    qn_optimizer_options o = qn_optimizer_defaults(QN_SGD);
    o.rate = 0.5;
    o.momentum = 0.5;
    qn_optimizer *optimizer = qn_optimizer_new(tape, QN_SGD, &o, w, 2);
    EXPECT(optimizer != NULL);
    /* loss = sum(w0^2) + 4 sum(w1) */
    for (int step = 0; step < 2; step++) {
        qn_scope_begin(tape);
        int before = live_slots();
        qn_tensor loss = qn_sum(qn_add(qn_square(w[0]), qn_mul_scalar(w[1], 4)), QN_ALL, false);
        if (step) {
            qn_optimizer_minimize(optimizer, loss);
        } else {
            qn_grad(loss, w, 2, d);
            qn_optimizer_step(optimizer, d);
        }
        EXPECT(live_slots() == before + (step ? 4 : 6)); /* the loss's own, and the two gradients that were asked for */
        qn_scope_end(tape);
    }
    /* w0: 1, 2 -> 0, 0 with momentum 2, 4 -> -0.5, -1; w1: less 2, then less 3. */
    EXPECT_TENSOR(w[0], QN_SHAPE(2), -0.5, -1);
    EXPECT_TENSOR(w[1], QN_SHAPE(2), -4, -3);
    EXPECT_TENSOR(qn_optimizer_steps(optimizer), QN_RANK_0, 2);
    EXPECT_TENSOR(qn_optimizer_rate(optimizer), QN_RANK_0, 0.5);
    EXPECT_TENSOR(qn_optimizer_state(optimizer, 1, 0), QN_SHAPE(2), 6, 6);
    EXPECT(!qn_tensor_valid(qn_optimizer_state(optimizer, 1, 1)));
    EXPECT(!qn_tensor_valid(qn_optimizer_state(optimizer, 2, 0)));
    int before = live_slots();
    qn_optimizer_free(optimizer);
    EXPECT(live_slots() == before - 4);
    tape_close();
}

TEST(a_parameter_without_a_gradient_stays)
{
    tape_open();
    qn_tensor w[2] = {qn_variable(F32(QN_SHAPE(1), 1)), qn_variable(F32(QN_SHAPE(1), 2))};
    qn_optimizer *optimizer = qn_optimizer_new(tape, QN_ADAM, NULL, w, 2);
    qn_tensor d[2] = {F32(QN_SHAPE(1), 3), QN_NONE};
    qn_optimizer_step(optimizer, d);
    EXPECT_TENSOR(w[0], QN_SHAPE(1), 0.999);
    EXPECT_TENSOR(w[1], QN_SHAPE(1), 2);
    qn_optimizer_free(optimizer);
    tape_close();
}

TEST(state_is_wide)
{
    tape_open();
    qn_dtype types[] = {QN_BF16, QN_F16, QN_F32, QN_F64};
    for (int i = 0; i < 4; i++) {
        double one = 1, three = 3, value;
        qn_tensor w = qn_variable(tensor_of(types[i], QN_SHAPE(1), &one)), d = tensor_of(types[i], QN_SHAPE(1), &three);
        qn_optimizer *optimizer = qn_optimizer_new(tape, QN_ADAMW, NULL, &w, 1);
        qn_optimizer_step(optimizer, &d);
        EXPECT(qn_tensor_dtype(w) == types[i]);
        EXPECT(qn_tensor_dtype(qn_optimizer_state(optimizer, 0, 1)) == (types[i] == QN_F64 ? QN_F64 : QN_F32));
        EXPECT(tensor_values(w, &value, 1) == 1);
        EXPECT_NEAR(value, 1 - 1e-5 - 1e-3, i < 1 ? 4e-3 : i < 2 ? 5e-4 : i < 3 ? 2e-7 : 1e-11);
        EXPECT(tensor_values(qn_optimizer_state(optimizer, 0, 1), &value, 1) == 1);
        EXPECT_NEAR(value, 0.009, i < 3 ? 1e-9 : 1e-15);
        qn_optimizer_free(optimizer);
    }
    tape_close();
}

TEST(rows_of_a_table)
{
    tape_open();
    qn_tensor table = qn_variable(qn_ones(tape, QN_F32, QN_SHAPE(1000, 2)));
    qn_optimizer *optimizer = qn_optimizer_new(tape, QN_ADAGRAD, NULL, &table, 1);
    qn_tensor rows = qn_embedding(table, I64(QN_SHAPE(2, 2), 7, 3, 7, 9));
    qn_optimizer_minimize(optimizer, qn_sum(qn_mul_scalar(rows, 2), QN_ALL, false));
    EXPECT(graph_get(tape->graph, tape_slot_of(table)->node)->code == GRAPH_TAKE_ADD);
    EXPECT_TENSOR(qn_slice(qn_optimizer_state(optimizer, 0, 0), 0, 6, 10, 1), QN_SHAPE(4, 2), 0, 0, 16, 16, 0, 0, 4, 4);
    EXPECT_TENSOR(qn_slice(table, 0, 6, 10, 1), QN_SHAPE(4, 2), 1, 1, 0.99, 0.99, 1, 1, 0.99, 0.99);
    qn_optimizer_free(optimizer);
    tape_close();
}

TEST(a_table_read_at_no_index)
{
    qn_optimizer_kind kinds[] = {QN_SGD, QN_ADAM, QN_ROW_ADAGRAD};
    for (int i = 0; i < 3; i++) {
        tape_open();
        qn_tensor table = qn_variable(qn_ones(tape, QN_F32, QN_SHAPE(2, 2))), d;
        qn_optimizer_options o = qn_optimizer_defaults(kinds[i]);
        o.lazy_rows = true;
        qn_optimizer *optimizer = qn_optimizer_new(tape, kinds[i], &o, &table, 1);
        qn_tensor rows = qn_embedding(table, qn_zeros(tape, QN_I64, QN_SHAPE(0)));
        qn_grad(qn_sum(rows, QN_ALL, false), &table, 1, &d);
        EXPECT_TENSOR(qn_clip_grad_norm(&d, 1, 1), QN_RANK_0, 0);
        qn_optimizer_step(optimizer, &d);
        EXPECT_TENSOR(table, QN_SHAPE(2, 2), 1, 1, 1, 1);
        qn_optimizer_free(optimizer);
        tape_close();
    }
}

TEST(clipping)
{
    tape_open();
    qn_tensor d[3] = {F32(QN_SHAPE(2), 3, 0), QN_NONE, F32(QN_SHAPE(1, 1), 4)};
    EXPECT_TENSOR(qn_clip_grad_norm(d, 3, 2.5), QN_RANK_0, 5);
    EXPECT_TENSOR(d[0], QN_SHAPE(2), 1.5, 0);
    EXPECT(!qn_tensor_valid(d[1]));
    EXPECT_TENSOR(d[2], QN_SHAPE(1, 1), 2);
    qn_clip_grad_value(d, 3, 1.75);
    EXPECT_TENSOR(d[0], QN_SHAPE(2), 1.5, 0);
    EXPECT_TENSOR(d[2], QN_SHAPE(1, 1), 1.75);
    tape_close();
}

static void expect_error(const char *words)
{
    qn_error error = {0};
    EXPECT(qn_tape_error(tape, &error) != QN_OK);
    EXPECT_TEXT(error.message, words);
}

TEST(wrong_calls)
{
    tape_open();
    qn_tensor w = qn_variable(F32(QN_SHAPE(2), 1, 2)), plain = F32(QN_SHAPE(2), 1, 2),
              whole = qn_variable(I64(QN_SHAPE(2), 1, 2));
    qn_here("train.c", 5);
    EXPECT(!qn_optimizer_new(tape, QN_SGD, NULL, &plain, 1));
    expect_error("sgd (train.c:5): parameter 0 is not a variable: make it one with qn_variable");
    EXPECT(!qn_optimizer_new(tape, QN_SGD, NULL, &whole, 1));
    expect_error("sgd (train.c:5): parameter 0 is i64: only floats are trained");
    EXPECT(!qn_optimizer_new(tape, QN_SGD, NULL, (qn_tensor[]){w, w}, 2));
    expect_error("sgd (train.c:5): parameters 0 and 1 are the same variable");
    qn_optimizer_options o = qn_optimizer_defaults(QN_ADAM);
    o.beta2 = 1;
    EXPECT(!qn_optimizer_new(tape, QN_ADAM, &o, &w, 1));
    expect_error("adam (train.c:5): beta 0.9 and 1 are not both at least 0 and below 1");
    o.rate = -1;
    EXPECT(!qn_optimizer_new(tape, QN_ADAGRAD, &o, &w, 1));
    expect_error("adagrad (train.c:5): the rate -1 is negative");
    o = qn_optimizer_defaults(QN_ADAMW);
    o.weight_decay = -0.5;
    EXPECT(!qn_optimizer_new(tape, QN_ADAMW, &o, &w, 1));
    expect_error("adamw (train.c:5): the weight decay -0.5 is negative");
    o = qn_optimizer_defaults(QN_ROW_ADAGRAD);
    o.epsilon = -1;
    EXPECT(!qn_optimizer_new(tape, QN_ROW_ADAGRAD, &o, &w, 1));
    expect_error("row_adagrad (train.c:5): epsilon -1 is negative");
    o = qn_optimizer_defaults(QN_SGD);
    o.nesterov = true;
    EXPECT(!qn_optimizer_new(tape, QN_SGD, &o, &w, 1));
    expect_error("sgd (train.c:5): Nesterov's momentum needs a momentum and no dampening");
    o.momentum = -1;
    EXPECT(!qn_optimizer_new(tape, QN_SGD, &o, &w, 1));
    expect_error("sgd (train.c:5): the momentum -1 is negative");

    qn_optimizer *optimizer = qn_optimizer_new(tape, QN_SGD, NULL, &w, 1);
    qn_tensor three = F32(QN_SHAPE(3), 1, 2, 3);
    qn_here("train.c", 6);
    qn_optimizer_step(optimizer, &three);
    expect_error("sgd (train.c:6): the gradient of parameter 0 is f32 [3], the parameter is f32 [2]");
    qn_clip_grad_norm(&three, 1, 0);
    expect_error("clip_grad_norm (train.c:6): the limit 0 is not positive");
    qn_clip_grad_value(&whole, 1, 1);
    expect_error("clip_grad_value (train.c:6): gradient 0 is i64: it must be a float");
    qn_release(w);
    qn_optimizer_step(optimizer, (qn_tensor[]){plain});
    expect_error("sgd (train.c:6): an operand was released, or its scope has ended");
    qn_optimizer_free(optimizer);
    EXPECT(!qn_optimizer_new(NULL, QN_SGD, NULL, &w, 1));
    qn_optimizer_step(NULL, NULL);
    qn_optimizer_minimize(NULL, QN_NONE);
    qn_optimizer_free(NULL);
    tape_close();
}

TEST_MAIN(CASE(steps_assign_and_leave_nothing_behind), CASE(a_parameter_without_a_gradient_stays), CASE(state_is_wide),
          CASE(rows_of_a_table), CASE(a_table_read_at_no_index), CASE(clipping), CASE(wrong_calls))
