/*
 * A perceptron that learns three spirals: two layers, Adam, 300 steps. The step is recorded once and replayed: forward,
 * backward and the update of the parameters are a handful of kernels and one call. It must reach a loss below 0.05.
 * Build: cc mlp.c $(pkg-config --cflags --libs quern) -lm
 * SPDX-License-Identifier: MIT
 */
#include <math.h>
#include <quern/nn.h>
#include <quern/train.h>
#include <quern/try.h>
#include <stdio.h>

enum { POINTS = 256 };

static void spirals(float points[][2], int64_t *classes)
{
    for (int i = 0; i < POINTS; i++) {
        double radius = (i / 3) / (POINTS / 3.0), angle = 2.1 * (i % 3) + 4 * radius;
        points[i][0] = (float)(radius * sin(angle));
        points[i][1] = (float)(radius * cos(angle));
        classes[i] = i % 3;
    }
}

static qn_tensor weights(qn_tape *tape, int64_t from, int64_t to)
{
    return qn_variable(qn_mul_scalar(qn_randn(tape, QN_F32, QN_SHAPE(from, to)), sqrt(2.0 / (double)from)));
}

static qn_tensor zeros(qn_tape *tape, int64_t count)
{
    return qn_variable(qn_zeros(tape, QN_F32, QN_SHAPE(count)));
}

static int train(qn_tape *tape, double *value, int *kernels, qn_error *error)
{
    float points[POINTS][2];
    int64_t classes[POINTS];
    qn_plan *step;
    qn_plan_facts facts;
    spirals(points, classes);
    qn_tensor x = qn_from_memory(tape, points, QN_F32, QN_SHAPE(POINTS, 2));
    qn_tensor y = qn_from_memory(tape, classes, QN_I64, QN_SHAPE(POINTS));
    qn_optimizer_options options = qn_optimizer_defaults(QN_ADAM);
    options.rate = 0.02;

    qn_tensor p[] = {weights(tape, 2, 64), zeros(tape, 64), weights(tape, 64, 3), zeros(tape, 3)};
    qn_optimizer *adam = qn_optimizer_new(tape, QN_ADAM, &options, p, 4);
    QN_TRY(qn_capture_begin(tape, error)); /* what follows is recorded */
    qn_tensor hidden = qn_gelu(qn_linear(x, p[0], p[1]));
    qn_tensor loss = qn_cross_entropy(qn_linear(hidden, p[2], p[3]), y, QN_MEAN, QN_NO_INDEX);
    qn_optimizer_minimize(adam, loss); /* gradients, and what Adam assigns */
    QN_TRY(qn_eval(tape, &loss, 1, error));
    QN_TRY(qn_capture_end(tape, &step, error));
    for (int i = 0; i < 300; i++) QN_TRY(qn_plan_replay(step, error));
    QN_TRY(qn_tensor_item(loss, value, error));

    qn_plan_info(step, &facts);
    *kernels = facts.kernels;
    qn_plan_free(step);
    qn_optimizer_free(adam);
    return 0;
}

int main(void)
{
    qn_error error;
    qn_context *context;
    qn_tape *tape;
    double loss;
    int kernels;
    if (qn_context_open(NULL, &context, &error) || qn_tape_new(context, NULL, &tape, &error) ||
        train(tape, &loss, &kernels, &error)) {
        fprintf(stderr, "%s\n", error.message);
        return 1;
    }
    printf("loss %.4f after 300 steps of %d kernels on %s\n", loss, kernels, qn_device_best(context));
    qn_tape_free(tape);
    qn_context_close(context);
    return loss < 0.05 ? 0 : 1;
}
