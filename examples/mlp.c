/*
 * A perceptron that learns a spiral: two layers, Adam, 300 steps. The step is recorded once and replayed: forward,
 * backward and the update of the parameters are a handful of kernels and one call.
 * Build: cc mlp.c $(pkg-config --cflags --libs quern) -lm
 * SPDX-License-Identifier: MIT
 */
#include <math.h>
#include <quern/nn.h>
#include <quern/train.h>
#include <stdio.h>

enum { POINTS = 256, HIDDEN = 64, CLASSES = 3 };

static void spiral(float points[][2], int64_t *classes)
{
    for (int i = 0; i < POINTS; i++) {
        double radius = (i / CLASSES) / (double)(POINTS / CLASSES), angle = 2.1 * (i % CLASSES) + 4 * radius;
        points[i][0] = (float)(radius * sin(angle));
        points[i][1] = (float)(radius * cos(angle));
        classes[i] = i % CLASSES;
    }
}

static qn_tensor weights(qn_tape *tape, int64_t from, int64_t to)
{
    return qn_variable(qn_mul_scalar(qn_randn(tape, QN_F32, QN_SHAPE(from, to)), sqrt(2.0 / (double)from)));
}

static int train(qn_context *context, double *value, qn_error *error)
{
    float points[POINTS][2];
    int64_t classes[POINTS];
    qn_tape *tape;
    qn_plan *step;
    spiral(points, classes);
    if (qn_tape_new(context, NULL, &tape, error)) return 1;
    qn_tensor x = qn_from_memory(tape, points, QN_F32, QN_SHAPE(POINTS, 2));
    qn_tensor y = qn_from_memory(tape, classes, QN_I64, QN_SHAPE(POINTS));
    qn_tensor p[] = {weights(tape, 2, HIDDEN), qn_variable(qn_zeros(tape, QN_F32, QN_SHAPE(HIDDEN))),
                     weights(tape, HIDDEN, CLASSES), qn_variable(qn_zeros(tape, QN_F32, QN_SHAPE(CLASSES)))};
    qn_optimizer_options options = qn_optimizer_defaults(QN_ADAM);
    options.rate = 0.02;
    qn_optimizer *adam = qn_optimizer_new(tape, QN_ADAM, &options, p, 4);

    if (qn_capture_begin(tape, error)) return 1;
    qn_tensor hidden = qn_gelu(qn_linear(x, p[0], p[1]));
    qn_tensor loss = qn_cross_entropy(qn_linear(hidden, p[2], p[3]), y, QN_MEAN, QN_NO_INDEX);
    qn_optimizer_minimize(adam, loss);
    if (qn_eval(tape, &loss, 1, error) || qn_capture_end(tape, &step, error)) return 1;
    for (int i = 0; i < 300; i++)
        if (qn_plan_replay(step, error)) return 1;
    if (qn_tensor_item(loss, value, error)) return 1;

    qn_plan_facts facts;
    qn_plan_info(step, &facts);
    printf("a step is %d kernels; ", facts.kernels);
    qn_plan_free(step);
    qn_optimizer_free(adam);
    qn_tape_free(tape);
    return 0;
}

int main(void)
{
    qn_error error;
    qn_context *context;
    double loss;
    if (qn_context_open(NULL, &context, &error) || train(context, &loss, &error)) {
        fprintf(stderr, "%s\n", error.message);
        return 1;
    }
    printf("loss %.4f after 300 steps on %s\n", loss, qn_device_best(context));
    qn_context_close(context);
    return loss < 0.05 ? 0 : 1;
}
