/*
 * Training on devices: optimisers of every kind fused and eager, tables of which few rows change in place, rates that
 * change under a captured step, checkpoints, and a small model with everything in it that learns.
 * SPDX-License-Identifier: MIT
 */
#include "test.h"

#include <quern/nn.h>
#include <quern/train.h>
#include <stdlib.h>

static qn_context *context;
static qn_error error;

static qn_tape *tape_on(const char *device, qn_mode mode)
{
    qn_tape *tape = NULL;
    if (!context && qn_context_open(NULL, &context, &error)) exit(1);
    if (qn_tape_new(context, device, &tape, &error)) {
        printf("%s\n", error.message);
        exit(1);
    }
    qn_tape_set_mode(tape, mode);
    return tape;
}

static bool good(qn_status status)
{
    if (status) printf("%s\n", error.message);
    EXPECT(status == QN_OK);
    return status == QN_OK;
}

static qn_tensor numbers(qn_tape *tape, qn_shape s, double scale, unsigned seed)
{
    float data[4096];
    int64_t count = 1;
    for (int k = 0; k < s.rank; k++) count *= s.extents[k];
    for (int64_t i = 0; i < count; i++) {
        seed = seed * 1664525u + 1013904223u;
        data[i] = (float)(scale * ((double)(seed >> 8) / (1 << 23) - 1));
    }
    return qn_from_memory(tape, data, QN_F32, s);
}

/* Three steps of a two-layer network; the weights and biases after them. */
static void run_steps(const char *device, qn_mode mode, qn_optimizer_kind kind, float *weights, float *biases)
{
    qn_tape *tape = tape_on(device, mode);
    qn_tensor x = numbers(tape, QN_SHAPE(20, 12), 1, 1), target = numbers(tape, QN_SHAPE(20, 12), 1, 2);
    qn_tensor w = qn_variable(numbers(tape, QN_SHAPE(12, 12), 0.5, 3)),
              b = qn_variable(qn_zeros(tape, QN_F32, QN_SHAPE(12)));
    qn_tensor parameters[2] = {w, b}, d[2];
    qn_optimizer_options o = qn_optimizer_defaults(kind);
    o.rate = 0.05;
    if (kind == QN_SGD) o.momentum = 0.9, o.nesterov = true;
    o.weight_decay = 0.01;
    qn_optimizer *optimizer = qn_optimizer_new(tape, kind, &o, parameters, 2);
    for (int step = 0; step < 3; step++) {
        qn_scope_begin(tape);
        qn_tensor h = qn_gelu(qn_linear(x, w, b)), y = qn_linear(h, w, b);
        qn_grad(qn_mse_loss(y, target, QN_MEAN), parameters, 2, d);
        qn_clip_grad_norm(d, 2, 0.5);
        qn_optimizer_step(optimizer, d);
        good(qn_eval(tape, NULL, 0, &error));
        qn_scope_end(tape);
    }
    good(qn_tensor_read(w, weights, 144 * sizeof(float), &error));
    good(qn_tensor_read(b, biases, 12 * sizeof(float), &error));
    double steps = 0;
    good(qn_tensor_item(qn_optimizer_steps(optimizer), &steps, &error));
    EXPECT(steps == 3);
    qn_optimizer_free(optimizer);
    qn_tape_free(tape);
}

TEST(every_kind_fused_and_eager)
{
    for (int kind = QN_SGD; kind <= QN_ROW_ADAGRAD; kind++) {
        float w[2][144], b[2][12];
        run_steps("ref", QN_EAGER, (qn_optimizer_kind)kind, w[0], b[0]);
        run_steps("ref", QN_FUSED, (qn_optimizer_kind)kind, w[1], b[1]);
        for (int i = 0; i < 144; i++) EXPECT_NEAR(w[1][i], w[0][i], 2e-5);
        for (int i = 0; i < 12; i++) EXPECT_NEAR(b[1][i], b[0][i], 2e-5);
    }
}

/* A table of 64 MB: a step moves some rows of it, and takes no memory of its size. */
TEST(rows_change_in_place)
{
    enum { ROWS = 1 << 20, WIDTH = 16, BATCH = 5 };
    qn_optimizer_kind kinds[] = {QN_SGD, QN_ADAM};
    for (int k = 0; k < 2; k++) {
        qn_tape *tape = tape_on("cpu", QN_FUSED);
        qn_tensor table = qn_variable(qn_ones(tape, QN_F32, QN_SHAPE(ROWS, WIDTH)));
        qn_optimizer_options o = qn_optimizer_defaults(kinds[k]);
        o.rate = 0.5;
        o.lazy_rows = true;
        qn_optimizer *optimizer = qn_optimizer_new(tape, kinds[k], &o, &table, 1);
        good(qn_eval(tape, NULL, 0, &error));
        int64_t rows[BATCH] = {77, ROWS - 1, 77, 3, 77};
        qn_tensor index = qn_from_memory(tape, rows, QN_I64, QN_SHAPE(BATCH));
        qn_plan *plan = NULL;
        good(qn_capture_begin(tape, &error));
        qn_scope_begin(tape);
        qn_optimizer_minimize(optimizer, qn_sum(qn_embedding(table, index), QN_ALL, false));
        good(qn_eval(tape, NULL, 0, &error));
        qn_scope_end(tape);
        if (!good(qn_capture_end(tape, &plan, &error))) break;
        good(qn_plan_replay(plan, &error));
        qn_plan_facts facts;
        qn_plan_info(plan, &facts);
        if (facts.peak_bytes >= 1 << 20) printf("kind %d: a peak of %lld bytes\n", k, (long long)facts.peak_bytes);
        EXPECT(facts.peak_bytes < 1 << 20);
        float *got = malloc(sizeof(float) * ROWS * WIDTH);
        good(qn_tensor_read(table, got, sizeof(float) * ROWS * WIDTH, &error));
        /* The gradient of row 77 is 3, of the others 1: Adam's first step does not see the size. */
        double after = 0.5, thrice = k ? 0.5 : -0.5;
        int64_t changed = 0;
        for (int64_t r = 0; r < ROWS; r++) changed += got[r * WIDTH] != 1;
        EXPECT(changed == 3);
        EXPECT_NEAR(got[77 * WIDTH + 5], thrice, 1e-5);
        EXPECT_NEAR(got[3 * WIDTH + 5], after, 1e-5);
        EXPECT_NEAR(got[(ROWS - 1) * WIDTH + 15], after, 1e-5);
        free(got);
        qn_plan_free(plan);
        qn_optimizer_free(optimizer);
        qn_tape_free(tape);
    }
}

TEST(a_rate_changes_under_a_captured_step)
{
    qn_tape *tape = tape_on("cpu", QN_FUSED);
    qn_tensor w = qn_variable(qn_zeros(tape, QN_F32, QN_SHAPE(4)));
    qn_optimizer_options o = qn_optimizer_defaults(QN_SGD);
    o.rate = 1;
    qn_optimizer *optimizer = qn_optimizer_new(tape, QN_SGD, &o, &w, 1);
    good(qn_eval(tape, NULL, 0, &error));
    qn_plan *plan = NULL;
    good(qn_capture_begin(tape, &error));
    qn_scope_begin(tape);
    qn_optimizer_minimize(optimizer, qn_sum(w, QN_ALL, false));
    good(qn_eval(tape, NULL, 0, &error));
    qn_scope_end(tape);
    if (good(qn_capture_end(tape, &plan, &error))) {
        double before, after;
        good(qn_tensor_item(qn_sum(w, QN_ALL, false), &before, &error));
        good(qn_optimizer_set_rate(optimizer, 0.25, &error));
        good(qn_plan_replay(plan, &error));
        good(qn_tensor_item(qn_sum(w, QN_ALL, false), &after, &error));
        EXPECT_NEAR(after - before, -1, 1e-6);
    }
    EXPECT(qn_optimizer_set_rate(optimizer, -1, &error) == QN_BAD_CALL);
    EXPECT_TEXT(error.message, "qn_optimizer_set_rate: the rate -1 is negative");
    qn_plan_free(plan);
    qn_optimizer_free(optimizer);
    qn_tape_free(tape);
}

/* Layer norm, dropout, GELU, cross-entropy, AdamW, clipping, checkpoints: the loss falls; strict is
 * eager, and checkpoints change nothing. */
static double learn(const char *device, qn_mode mode, int steps, bool checkpoints)
{
    qn_tape *tape = tape_on(device, mode);
    qn_seed(tape, 42);
    enum { N = 48, D = 16, CLASSES = 4 };
    int64_t classes[N];
    for (int i = 0; i < N; i++) classes[i] = i % CLASSES;
    qn_tensor target = qn_from_memory(tape, classes, QN_I64, QN_SHAPE(N));
    qn_tensor x = qn_add(numbers(tape, QN_SHAPE(N, D), 0.5, 9), qn_one_hot(target, D, QN_F32));
    qn_tensor p[6] = {qn_variable(numbers(tape, QN_SHAPE(D, D), 0.3, 4)),
                      qn_variable(qn_zeros(tape, QN_F32, QN_SHAPE(D))),
                      qn_variable(qn_ones(tape, QN_F32, QN_SHAPE(D))),
                      qn_variable(qn_zeros(tape, QN_F32, QN_SHAPE(D))),
                      qn_variable(numbers(tape, QN_SHAPE(D, CLASSES), 0.3, 5)),
                      qn_variable(qn_zeros(tape, QN_F32, QN_SHAPE(CLASSES)))};
    qn_tensor d[6];
    qn_optimizer_options o = qn_optimizer_defaults(QN_ADAMW);
    o.rate = 0.03;
    qn_optimizer *optimizer = qn_optimizer_new(tape, QN_ADAMW, &o, p, 6);
    double loss = NAN;
    for (int step = 0; step < steps; step++) {
        qn_scope_begin(tape);
        qn_tensor h = qn_layer_norm(qn_linear(x, p[0], p[1]), QN_SHAPE(D), p[2], p[3], 1e-5);
        if (checkpoints) h = qn_checkpoint(h);
        h = qn_dropout(qn_gelu(h), 0.1);
        if (checkpoints) h = qn_checkpoint(h);
        qn_tensor mean = qn_cross_entropy(qn_linear(h, p[4], p[5]), target, QN_MEAN, -100);
        qn_grad(mean, p, 6, d);
        qn_clip_grad_norm(d, 6, 1);
        qn_optimizer_step(optimizer, d);
        good(qn_tensor_item(mean, &loss, &error));
        qn_scope_end(tape);
    }
    qn_optimizer_free(optimizer);
    qn_tape_free(tape);
    return loss;
}

TEST(a_model_learns)
{
    EXPECT(learn("cpu", QN_FUSED, 30, false) < 0.2);
    double fused = learn("ref", QN_FUSED, 3, false), strict = learn("ref", QN_STRICT, 3, false);
    EXPECT_NEAR(learn("ref", QN_FUSED, 3, true), fused, 1e-5);
    EXPECT_NEAR(strict, fused, 1e-5);
    EXPECT(learn("ref", QN_STRICT, 3, true) == strict && learn("ref", QN_EAGER, 3, false) == strict);
}

TEST_MAIN(CASE(every_kind_fused_and_eager), CASE(rows_change_in_place), CASE(a_rate_changes_under_a_captured_step),
          CASE(a_model_learns))
