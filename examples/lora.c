/*
 * Fine-tuning with adapters of low rank. A network learns to follow a teacher; the teacher changes, and adapters learn the
 * change while the network itself stays as it is: without them it still does its old task. The step is recorded twice, fused
 * and with one kernel for each operation, to show what fusion saves.
 * Build: cc lora.c $(pkg-config --cflags --libs quern) -lm
 * SPDX-License-Identifier: MIT
 */
#include <quern/lora.h>
#include <quern/profile.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

enum { IN = 32, HIDDEN = 128, OUT = 8, BATCH = 256, STEPS = 300, TIMED = 50 };

typedef struct run {
    qn_tape *tape;
    qn_model *teacher, *student;
    qn_optimizer *optimizer;
    qn_plan *step;
    qn_tensor loss;
} run;

/* Of a step. */
typedef struct cost {
    int kernels;
    double moved_bytes, time_us;
} cost;

static qn_model *network(qn_tape *tape, uint64_t seed)
{
    qn_model *net = qn_model_new(tape, seed);
    qn_model_linear(net, "in", IN, HIDDEN, true);
    qn_model_activation(net, NULL, qn_tanh);
    qn_model_linear(net, "out", HIDDEN, OUT, true);
    return net;
}

/* How far the student is from the teacher, on new random inputs each time it is computed. */
static qn_tensor distance(run *r)
{
    qn_tensor x = qn_randn(r->tape, QN_F32, QN_SHAPE(BATCH, IN));
    return qn_mse_loss(qn_model_forward(r->student, x), qn_model_forward(r->teacher, x), QN_MEAN);
}

static qn_status evaluate(run *r, double *loss, qn_error *error)
{
    qn_scope_begin(r->tape);
    qn_status status = qn_tensor_item(distance(r), loss, error);
    qn_scope_end(r->tape);
    return status;
}

/* The step that trains whatever is not frozen. */
static qn_status record(run *r, qn_mode mode, qn_error *error)
{
    qn_plan_free(r->step);
    r->step = NULL;
    qn_tape_set_mode(r->tape, mode);
    QN_CHECK(qn_capture_begin(r->tape, error));
    r->loss = distance(r);
    qn_optimizer_minimize(r->optimizer, r->loss);
    QN_CHECK(qn_eval(r->tape, &r->loss, 1, error));
    return qn_capture_end(r->tape, &r->step, error);
}

static qn_status train(run *r, const char *task, double rate, qn_error *error)
{
    double loss;
    qn_optimizer_options options = qn_optimizer_defaults(QN_ADAM);
    options.rate = rate;
    qn_optimizer_free(r->optimizer);
    r->optimizer = qn_model_optimizer(r->student, QN_ADAM, &options, NULL, 0);
    QN_CHECK(record(r, QN_FUSED, error));
    for (int i = 0; i < STEPS; i++) {
        QN_CHECK(qn_plan_replay(r->step, error));
        if (i % 100 && i != STEPS - 1) continue;
        QN_CHECK(qn_tensor_item(r->loss, &loss, error));
        printf("%s, step %3d: loss %.5f\n", task, i, loss);
    }
    return QN_OK;
}

/* The bytes that the kernels of one step read and write, as the profiler counts them. */
static qn_status count_bytes(qn_context *context, run *r, cost *out, qn_error *error)
{
    qn_profile *profile;
    qn_profile_sum sum;
    double loss, launched = 0, ran = 0;
    QN_CHECK(qn_profile_start(context, NULL, &profile, error));
    QN_CHECK(qn_plan_replay(r->step, error));
    QN_CHECK(qn_tensor_item(r->loss, &loss, error));
    QN_CHECK(qn_profile_stop(profile, error));
    for (int i = 0; i < qn_profile_sum_count(profile); i++) {
        qn_profile_sum_get(profile, i, &sum);
        if (!strcmp(sum.kind, "launch")) launched += (double)sum.bytes; /* on a GPU, the whole step is one */
        if (!strcmp(sum.kind, "kernel")) ran += (double)sum.bytes;
    }
    out->moved_bytes = launched > 0 ? launched : ran;
    qn_profile_free(profile);
    return QN_OK;
}

static qn_status measure(qn_context *context, run *r, qn_mode mode, cost *out, qn_error *error)
{
    struct timespec from, to;
    qn_plan_facts facts;
    double loss;
    QN_CHECK(record(r, mode, error));
    QN_CHECK(qn_plan_replay(r->step, error));
    QN_CHECK(count_bytes(context, r, out, error));
    timespec_get(&from, TIME_UTC);
    for (int i = 0; i < TIMED; i++) QN_CHECK(qn_plan_replay(r->step, error));
    QN_CHECK(qn_tensor_item(r->loss, &loss, error)); /* waits for all of them */
    timespec_get(&to, TIME_UTC);
    out->time_us = ((double)(to.tv_sec - from.tv_sec) * 1e6 + (double)(to.tv_nsec - from.tv_nsec) * 1e-3) / TIMED;
    qn_plan_info(r->step, &facts);
    out->kernels = facts.kernels;
    return QN_OK;
}

static qn_status example(qn_context *context, const char *device, const char *path, bool *good, qn_error *error)
{
    run r = {0};
    double old_task, kept, before, after, loaded, merged;
    cost fused = {0}, eager = {0};
    QN_CHECK(qn_tape_new(context, device, &r.tape, error));
    r.teacher = network(r.tape, 1);
    r.student = network(r.tape, 2);
    qn_lora_options change = {.rank = 4}, options = {.rank = 4, .alpha = 1};
    qn_lora_add(r.teacher, "*", "new", &change); /* the new task: the teacher with a change of rank 4 */
    qn_model_init(r.teacher, "*.lora_B.*", qn_init_normal(0, 0.1));
    qn_lora_use(r.teacher, NULL);
    QN_CHECK(train(&r, "old task", 0.01, error));
    QN_CHECK(evaluate(&r, &old_task, error));

    qn_lora_use(r.teacher, "new");
    QN_CHECK(evaluate(&r, &before, error));
    qn_lora_add(r.student, "*", "mine", &options);
    qn_model_print(r.student);
    QN_CHECK(train(&r, "new task", 0.01, error));
    QN_CHECK(evaluate(&r, &after, error));
    QN_CHECK(qn_lora_save(r.student, "mine", NULL, path, error));

    qn_lora_use(r.teacher, NULL);
    qn_lora_use(r.student, NULL);
    QN_CHECK(evaluate(&r, &kept, error));
    printf("old task: loss %.5f; %.5f after the fine-tuning, without the adapter\n", old_task, kept);
    printf("new task: loss %.5f; %.5f with the adapter, %lld of %lld numbers trained\n", before, after,
           (long long)qn_model_count(r.student, true), (long long)qn_model_count(r.student, false));

    qn_lora_use(r.teacher, "new");
    qn_lora_use(r.student, "mine");
    QN_CHECK(measure(context, &r, QN_FUSED, &fused, error));
    QN_CHECK(measure(context, &r, QN_EAGER, &eager, error));
    printf("a step, fused: %3d kernels, %7.1f kB read and written, %7.1f us\n", fused.kernels, fused.moved_bytes * 1e-3,
           fused.time_us);
    printf("a step, eager: %3d kernels, %7.1f kB read and written, %7.1f us\n", eager.kernels, eager.moved_bytes * 1e-3,
           eager.time_us);

    qn_tape_set_mode(r.tape, QN_FUSED);
    QN_CHECK(qn_lora_load(r.student, "mine", path, NULL, error)); /* as it was before the steps that were timed */
    QN_CHECK(evaluate(&r, &loaded, error));
    qn_lora_merge(r.student, true);
    QN_CHECK(evaluate(&r, &merged, error));
    printf("loaded from %s: loss %.5f, merged into the weights %.5f\n", path, loaded, merged);
    *good = after < 0.2 * before && kept < 2 * old_task && loaded < 2 * after && merged < 2 * after &&
            fused.kernels < eager.kernels && fused.moved_bytes < eager.moved_bytes;
    QN_CHECK(qn_tape_error(r.tape, error));
    qn_plan_free(r.step);
    qn_optimizer_free(r.optimizer);
    qn_model_free(r.student);
    qn_model_free(r.teacher);
    qn_tape_free(r.tape);
    return QN_OK;
}

int main(int argc, char **argv)
{
    qn_error error;
    qn_context *context;
    bool good = false;
    if (qn_context_open(NULL, &context, &error) ||
        example(context, argc > 2 ? argv[2] : NULL, argc > 1 ? argv[1] : "adapter.safetensors", &good, &error)) {
        fprintf(stderr, "%s\n", error.message);
        return 1;
    }
    qn_context_close(context);
    return good ? 0 : 1;
}
