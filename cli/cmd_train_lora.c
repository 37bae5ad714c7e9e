/*
 * `quern train lora`: fine-tuning with adapters of low rank on a generated task. In: options. Out: losses on stdout before,
 * during and after, what the network without its adapter still does, and what fusion saved in a step; the adapter as a
 * file with --out. The network has learnt to follow a teacher, whose matrices then change by products of rank 4. Exit status
 * 1 when the adapter did not learn the change. SPDX-License-Identifier: MIT
 */
#include "cli.h"

#include <math.h>
#include <quern/lora.h>
#include <quern/profile.h>
#include <string.h>
#include <time.h>

enum { IN = 32, HIDDEN = 128, OUT = 8, TIMED = 10, TURNS = 9 };

typedef struct tuning {
    qn_context *context;
    qn_tape *tape;
    qn_model *teacher, *student;
    qn_optimizer *optimizer;
    qn_plan *step;
    qn_tensor loss;
    int64_t batch, steps;
    double rate;
} tuning;

static qn_model *network(qn_tape *tape, uint64_t seed)
{
    qn_model *net = qn_model_new(tape, seed);
    qn_model_linear(net, "in", IN, HIDDEN, true);
    qn_model_activation(net, NULL, qn_tanh);
    qn_model_linear(net, "out", HIDDEN, OUT, true);
    return net;
}

/* How far the student is from the teacher, on inputs drawn anew. */
static qn_tensor distance(const tuning *t)
{
    qn_tensor x = qn_randn(t->tape, QN_F32, QN_SHAPE(t->batch, IN));
    return qn_mse_loss(qn_model_forward(t->student, x), qn_model_forward(t->teacher, x), QN_MEAN);
}

static qn_status evaluate(const tuning *t, double *loss, qn_error *error)
{
    qn_scope_begin(t->tape);
    qn_status status = qn_tensor_item(distance(t), loss, error);
    qn_scope_end(t->tape);
    return status;
}

static qn_status record(tuning *t, qn_mode mode, qn_error *error)
{
    qn_plan_free(t->step);
    t->step = NULL;
    qn_tape_set_mode(t->tape, mode);
    QN_CHECK(qn_capture_begin(t->tape, error));
    t->loss = distance(t);
    qn_optimizer_minimize(t->optimizer, t->loss);
    QN_CHECK(qn_eval(t->tape, &t->loss, 1, error));
    return qn_capture_end(t->tape, &t->step, error);
}

static qn_status train(tuning *t, const char *task, qn_error *error)
{
    double loss;
    qn_optimizer_options options = qn_optimizer_defaults(QN_ADAM);
    options.rate = t->rate;
    qn_optimizer_free(t->optimizer);
    t->optimizer = qn_model_optimizer(t->student, QN_ADAM, &options, NULL, 0);
    QN_CHECK(record(t, QN_FUSED, error));
    for (int64_t i = 0; i < t->steps; i++) {
        QN_CHECK(qn_plan_replay(t->step, error));
        if (i % (t->steps < 5 ? 1 : t->steps / 5) && i != t->steps - 1) continue;
        QN_CHECK(qn_tensor_item(t->loss, &loss, error));
        printf("%s, step %4lld: loss %.5f\n", task, (long long)i, loss);
    }
    return QN_OK;
}

/* The bytes that the kernels of a step read and write, as the profiler counts them. */
static qn_status moved(tuning *t, double *bytes, qn_error *error)
{
    qn_profile *profile;
    double loss, launched = 0, ran = 0;
    QN_CHECK(qn_profile_start(t->context, NULL, &profile, error));
    qn_status status = qn_plan_replay(t->step, error);
    if (!status) status = qn_tensor_item(t->loss, &loss, error);
    qn_error other;
    qn_status stopped = qn_profile_stop(profile, status ? &other : error);
    if (!status) status = stopped;
    for (int i = 0; i < qn_profile_sum_count(profile); i++) {
        qn_profile_sum sum;
        qn_profile_sum_get(profile, i, &sum);
        if (!strcmp(sum.kind, "launch")) launched += (double)sum.bytes; /* on a GPU, the whole step is one */
        if (!strcmp(sum.kind, "kernel")) ran += (double)sum.bytes;
    }
    *bytes = launched > 0 ? launched : ran;
    qn_profile_free(profile);
    return status;
}

static qn_status show_cost(tuning *t, qn_mode mode, qn_error *error)
{
    struct timespec from, to;
    qn_plan_facts facts;
    double loss, bytes, least_us = INFINITY; /* of some turns: what else the machine does only adds to it */
    QN_CHECK(record(t, mode, error));
    QN_CHECK(qn_plan_replay(t->step, error));
    QN_CHECK(moved(t, &bytes, error));
    for (int turn = 0; turn < TURNS; turn++) {
        clock_gettime(CLOCK_MONOTONIC, &from);
        for (int i = 0; i < TIMED; i++) QN_CHECK(qn_plan_replay(t->step, error));
        QN_CHECK(qn_tensor_item(t->loss, &loss, error)); /* waits for all of them */
        clock_gettime(CLOCK_MONOTONIC, &to);
        double us = (double)(to.tv_sec - from.tv_sec) * 1e6 + (double)(to.tv_nsec - from.tv_nsec) * 1e-3;
        least_us = fmin(least_us, us / TIMED);
    }
    qn_plan_info(t->step, &facts);
    printf("a step, %s    %3d kernels, %.1f kB read and written, %.1f us\n", mode == QN_FUSED ? "fused" : "eager",
           facts.kernels, bytes * 1e-3, least_us);
    return QN_OK;
}

static qn_status tune(tuning *t, const char *out, bool *learnt, qn_error *error)
{
    double old_task, kept, before, after;
    qn_lora_add(t->teacher, "*", "new", &(qn_lora_options){.rank = 4});
    qn_model_init(t->teacher, "*.lora_B.*", qn_init_normal(0, 0.1));
    qn_lora_use(t->teacher, NULL);
    QN_CHECK(train(t, "old task", error));
    QN_CHECK(evaluate(t, &old_task, error));
    qn_lora_use(t->teacher, "new");
    QN_CHECK(evaluate(t, &before, error));
    qn_lora_add(t->student, "*", "default", &(qn_lora_options){.rank = 4});
    QN_CHECK(train(t, "new task", error));
    QN_CHECK(evaluate(t, &after, error));
    if (out) QN_CHECK(qn_lora_save(t->student, "default", NULL, out, error));
    qn_lora_use(t->teacher, NULL);
    qn_lora_use(t->student, NULL);
    QN_CHECK(evaluate(t, &kept, error));
    qn_lora_use(t->teacher, "new");
    qn_lora_use(t->student, "default");
    printf("new task         loss %.5f before, %.5f with the adapter\n", before, after);
    printf("old task         loss %.5f before, %.5f without the adapter\n", old_task, kept);
    printf("trained          %lld of %lld numbers\n", (long long)qn_model_count(t->student, true),
           (long long)qn_model_count(t->student, false));
    QN_CHECK(show_cost(t, QN_FUSED, error));
    QN_CHECK(show_cost(t, QN_EAGER, error));
    if (out) print_safely(stdout, "adapter          %s\n", out);
    *learnt = after < 0.5 * before;
    return qn_tape_error(t->tape, error);
}

int train_lora(const arguments *given)
{
    int status;
    qn_error error;
    bool learnt = false;
    const char *out = given->outputs.count ? given->outputs.items[given->outputs.count - 1] : NULL;
    tuning t = {.batch = given->batch ? given->batch : 256,
                .steps = given->steps ? (int64_t)given->steps : 300,
                .rate = given->rate > 0 ? given->rate : 0.01};
    if (given->words.count > 1 || given->data.count || given->config)
        return complain("`quern train lora` makes its own task: it takes no files"), EXIT_WRONG_CALL;
    t.context = open_context(given, &status);
    if (!t.context) return status;
    const char *device = choose_device(t.context, given);
    if (!device) return close_context(t.context), EXIT_WRONG_CALL;
    qn_status failed = qn_tape_new(t.context, device, &t.tape, &error);
    if (!failed) {
        qn_seed(t.tape, given->seed);
        t.teacher = network(t.tape, given->seed + 1);
        t.student = network(t.tape, given->seed + 2);
        failed = tune(&t, out, &learnt, &error);
    }
    status = failed ? report_error(&error) : learnt ? EXIT_OK : EXIT_FINDING;
    if (!failed && !learnt) complain("the adapter did not learn the new task: more --steps, or another --rate");
    qn_plan_free(t.step);
    qn_optimizer_free(t.optimizer);
    qn_model_free(t.student);
    qn_model_free(t.teacher);
    qn_tape_free(t.tape);
    close_context(t.context);
    return status;
}
