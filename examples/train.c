/*
 * A classifier of three rings, trained on batches that threads make ahead of time: a model of named layers, AdamW with a
 * warmup and a cosine schedule, clipped gradients. Half way the run is saved; a second run loads it, goes on, and must
 * come to the very same numbers. Loss and accuracy are printed, on data it never saw too.
 * Build: cc train.c $(pkg-config --cflags --libs quern) -lm
 * SPDX-License-Identifier: MIT
 */
#include <math.h>
#include <quern/loader.h>
#include <quern/metrics.h>
#include <quern/model.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BATCH = 64, STEPS = 240, HALF = STEPS / 2, CLASSES = 3 };

static double random_of(uint64_t *state)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return (double)(*state >> 11) / 9007199254740992.0;
}

/* Batch `number`, from its number alone: points on three rings, with noise. */
static qn_status fill(qn_loaded *batch, void *user, qn_error *error)
{
    float(*points)[2] = batch->fields[0];
    int64_t *classes = batch->fields[1];
    uint64_t state = (uint64_t)batch->number * 1000003 + *(const uint64_t *)user;
    (void)error;
    for (int i = 0; i < 8; i++) random_of(&state); /* neighbouring numbers have forgotten each other */
    for (int i = 0; i < BATCH; i++) {
        double angle = 6.283185307179586 * random_of(&state);
        classes[i] = (int64_t)(CLASSES * random_of(&state));
        double radius = 0.5 + (double)classes[i] + 0.5 * (random_of(&state) - 0.5);
        points[i][0] = (float)(radius * sin(angle));
        points[i][1] = (float)(radius * cos(angle));
    }
    batch->rows = batch->number < STEPS ? BATCH : 0;
    return QN_OK;
}

typedef struct run {
    qn_tape *tape;
    qn_model *net;
    qn_optimizer *optimizer;
    qn_loader *loader;
    qn_plan *step;
    qn_tensor fields[2], loss, right;
} run;

static qn_status run_open(qn_context *context, run *r, int64_t first, uint64_t *seed, qn_error *error)
{
    QN_CHECK(qn_tape_new(context, NULL, &r->tape, error));
    r->net = qn_model_new(r->tape, 42);
    qn_model_linear(r->net, "in", 2, 32, true);
    qn_model_activation(r->net, NULL, qn_gelu);
    qn_model_dropout(r->net, NULL, 0.05);
    qn_model_linear(r->net, "out", 32, CLASSES, true);
    qn_optimizer_options options = qn_optimizer_defaults(QN_ADAMW);
    options.rate = 0.02;
    r->optimizer = qn_model_optimizer(r->net, QN_ADAMW, &options, NULL, 0);
    qn_schedule schedule = {.kind = QN_COSINE, .warmup_steps = 20, .warmup_start = 0.1, .steps = STEPS - 20};
    qn_optimizer_set_schedule(r->optimizer, &schedule);
    qn_optimizer_set_clip_norm(r->optimizer, 1);
    r->fields[0] = qn_empty(r->tape, QN_F32, QN_SHAPE(BATCH, 2));
    r->fields[1] = qn_empty(r->tape, QN_I64, QN_SHAPE(BATCH));

    qn_loader_options loader = {.field_count = 2, .fill = fill, .user = seed, .threads = 2, .first = first};
    loader.fields[0] = (qn_field){QN_F32, QN_SHAPE(BATCH, 2)};
    loader.fields[1] = (qn_field){QN_I64, QN_SHAPE(BATCH)};
    QN_CHECK(qn_loader_new(context, &loader, &r->loader, error));

    QN_CHECK(qn_capture_begin(r->tape, error)); /* the step: recorded once, replayed for every batch */
    qn_tensor logits = qn_model_forward(r->net, r->fields[0]);
    r->loss = qn_cross_entropy(logits, r->fields[1], QN_MEAN, QN_NO_INDEX);
    r->right = qn_accuracy(logits, r->fields[1]);
    qn_optimizer_minimize(r->optimizer, r->loss);
    QN_CHECK(qn_eval(r->tape, (qn_tensor[]){r->loss, r->right}, 2, error));
    return qn_capture_end(r->tape, &r->step, error);
}

static void run_close(run *r)
{
    qn_loader_free(r->loader);
    qn_plan_free(r->step);
    qn_optimizer_free(r->optimizer);
    qn_model_free(r->net);
    qn_tape_free(r->tape);
}

/* Up to a batch; the loss of each goes to losses. */
static qn_status train(run *r, int64_t until, double *losses, qn_error *error)
{
    for (int64_t rows; qn_loader_position(r->loader) < until;) {
        int64_t number = qn_loader_position(r->loader);
        double right;
        QN_CHECK(qn_loader_feed(r->loader, r->fields, &rows, error));
        QN_CHECK(qn_plan_replay(r->step, error));
        QN_CHECK(qn_tensor_item(r->loss, &losses[number], error));
        if (number % 40 && number != STEPS - 1) continue;
        QN_CHECK(qn_tensor_item(r->right, &right, error));
        printf("step %3lld: loss %.4f, accuracy %.3f\n", (long long)number, losses[number], right);
    }
    return QN_OK;
}

/* On a batch of other data, without dropout. */
static qn_status evaluate(run *r, double *accuracy, qn_error *error)
{
    float points[BATCH][2];
    int64_t classes[BATCH];
    uint64_t other = 777;
    qn_loaded batch = {.fields = {points, classes}};
    QN_CHECK(fill(&batch, &other, error));
    qn_model_train(r->net, false);
    qn_tensor x = qn_from_memory(r->tape, points, QN_F32, QN_SHAPE(BATCH, 2));
    qn_tensor y = qn_from_memory(r->tape, classes, QN_I64, QN_SHAPE(BATCH));
    return qn_tensor_item(qn_accuracy(qn_model_forward(r->net, x), y), accuracy, error);
}

static qn_status example(qn_context *context, const char *path, bool *same, double *accuracy, qn_error *error)
{
    static double whole[STEPS], resumed[STEPS];
    uint64_t seed = 1;
    run r = {0};
    QN_CHECK(run_open(context, &r, 0, &seed, error));
    qn_model_print(r.net);
    QN_CHECK(train(&r, HALF, whole, error));
    const char *metadata[] = {"position", "120", NULL};
    QN_CHECK(qn_model_save(r.net, r.optimizer, metadata, path, error));
    QN_CHECK(train(&r, STEPS, whole, error));
    run_close(&r);

    printf("from %s on:\n", path);
    QN_CHECK(run_open(context, &r, HALF, &seed, error));
    QN_CHECK(qn_model_load(r.net, r.optimizer, path, NULL, error));
    QN_CHECK(train(&r, STEPS, resumed, error));
    *same = !memcmp(whole + HALF, resumed + HALF, sizeof(double) * HALF);
    QN_CHECK(evaluate(&r, accuracy, error));
    run_close(&r);
    return QN_OK;
}

int main(int argc, char **argv)
{
    qn_error error;
    qn_context *context;
    double accuracy;
    bool same;
    const char *path = argc > 1 ? argv[1] : "rings.safetensors";
    if (qn_context_open(NULL, &context, &error) || example(context, path, &same, &accuracy, &error)) {
        fprintf(stderr, "%s\n", error.message);
        return 1;
    }
    printf("the resumed run has %s losses; accuracy on new data %.3f\n", same ? "the same" : "OTHER", accuracy);
    qn_context_close(context);
    return same && accuracy > 0.9 ? 0 : 1;
}
