/*
 * The timeline: a small network trained with the loss printed after every step, and with the loss read once at the end.
 * Reading it makes the host wait for the device, which then has nothing to do until the next step arrives; without it
 * the host runs ahead. Writes each_step.json and at_the_end.json into the folder that is given (else the current one):
 * open them at ui.perfetto.dev or chrome://tracing.
 * Build: cc timeline.c $(pkg-config --cflags --libs quern) -lm
 * SPDX-License-Identifier: MIT
 */
#include <math.h>
#include <quern/nn.h>
#include <quern/profile.h>
#include <quern/train.h>
#include <quern/try.h>
#include <stdio.h>

enum { BATCH = 128, WIDTH = 128, LAYERS = 8, STEPS = 30 };

static void to_stdout(void *user, const char *words, size_t length)
{
    (void)user;
    fwrite(words, 1, length, stdout);
}

static int count_waits(const qn_profile *p)
{
    qn_profile_sum sum;
    int waits = 0;
    for (int i = 0; i < qn_profile_sum_count(p); i++) {
        qn_profile_sum_get(p, i, &sum);
        if (sum.kind[0] == 'w' && sum.kind[1] == 'a') waits += (int)sum.calls;
    }
    return waits;
}

static int train(qn_context *context, bool print_each, const char *path)
{
    qn_error error;
    qn_tape *tape;
    qn_plan *step;
    qn_profile *profile;
    qn_profile_totals totals;
    qn_tensor parameters[2 * LAYERS];
    double value = 0;
    QN_MUST(qn_tape_new(context, NULL, &tape, &error), error);
    qn_tensor x = qn_randn(tape, QN_F32, QN_SHAPE(BATCH, WIDTH)), y = x;
    for (int i = 0; i < LAYERS; i++) {
        qn_tensor w = qn_mul_scalar(qn_randn(tape, QN_F32, QN_SHAPE(WIDTH, WIDTH)), sqrt(2.0 / WIDTH));
        parameters[2 * i] = qn_variable(w);
        parameters[2 * i + 1] = qn_variable(qn_zeros(tape, QN_F32, QN_SHAPE(WIDTH)));
    }
    qn_optimizer_options options = qn_optimizer_defaults(QN_ADAM);
    qn_optimizer *adam = qn_optimizer_new(tape, QN_ADAM, &options, parameters, 2 * LAYERS);
    QN_MUST(qn_capture_begin(tape, &error), error);
    for (int i = 0; i < LAYERS; i++) y = qn_gelu(qn_linear(y, parameters[2 * i], parameters[2 * i + 1]));
    qn_tensor loss = qn_mean(qn_mul(y, y), QN_ALL, false);
    qn_optimizer_minimize(adam, loss);
    QN_MUST(qn_eval(tape, &loss, 1, &error), error);
    QN_MUST(qn_capture_end(tape, &step, &error), error);

    QN_MUST(qn_profile_start(context, NULL, &profile, &error), error);
    for (int i = 0; i < STEPS; i++) {
        QN_RANGE("step") QN_MUST(qn_plan_replay(step, &error), error);
        if (print_each) QN_RANGE("print the loss") QN_MUST(qn_tensor_item(loss, &value, &error), error);
        qn_profile_step(profile);
    }
    QN_MUST(qn_tensor_item(loss, &value, &error), error);
    QN_MUST(qn_profile_stop(profile, &error), error);
    qn_profile_get_totals(profile, &totals);
    printf("%s: %.3f ms a step, the host waited %d times, loss %.5f\n",
           print_each ? "loss printed every step" : "loss read at the end  ",
           (double)(totals.end_ns - totals.start_ns) * 1e-6 / STEPS, count_waits(profile), value);
    QN_MUST(qn_profile_hints(profile, &(qn_hint_options){.most = 2}, to_stdout, NULL, &error), error);
    QN_MUST(qn_profile_write_trace(profile, path, &error), error);
    qn_profile_free(profile);
    qn_plan_free(step);
    qn_optimizer_free(adam);
    qn_tape_free(tape);
    return 0;
}

int main(int count, char **words)
{
    char path[1024];
    qn_error error;
    qn_context *context;
    const char *folder = count > 1 ? words[1] : ".";
    QN_MUST(qn_context_open(NULL, &context, &error), error);
    snprintf(path, sizeof(path), "%s/each_step.json", folder);
    if (train(context, true, path)) return 1;
    snprintf(path, sizeof(path), "%s/at_the_end.json", folder);
    if (train(context, false, path)) return 1;
    qn_context_close(context);
    return 0;
}
