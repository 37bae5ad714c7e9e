/*
 * Four models as one writes them oneself: a convolutional network with batch norm, an autoencoder, a recurrent network with
 * gates (GRU), two towers of a recommender. Each is a tree of named layers and a forward; one function trains them all: the
 * step is recorded once and replayed on every batch. Each must learn its made task, on data it never saw; exit status 1 if not.
 * Usage: models [cnn|autoencoder|gru|towers] [DEVICE]. Build: cc models.c $(pkg-config --cflags --libs quern) -lm
 * SPDX-License-Identifier: MIT
 */
#include <math.h>
#include <quern/metrics.h>
#include <quern/model.h>
#include <quern/try.h>
#include <stdio.h>
#include <string.h>

enum { BATCH = 64, STEPS = 300, SIDE = 12, WIDE = 32, CODE = 2, TIME = 10, HIDDEN = 24, USERS = 200, ITEMS = 120, TASTES = 4 };

static double random_of(uint64_t *state)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return (double)(*state >> 11) / 9007199254740992.0;
}

/* ---- a convolutional network: is the bar in the noise upright? ---- */

static qn_tensor convolve(qn_model *self, const qn_tensor *in, int count, void *user)
{
    (void)count, (void)user;
    return qn_conv2d(in[0], qn_model_get(self, "weight"), qn_model_get(self, "bias"), &(qn_conv2d_options){.padding = {1, 1}});
}

static void block(qn_model *net, const char *name, int64_t in, int64_t out)
{
    qn_model *b = qn_model_child(net, name), *conv = qn_model_child(b, "conv"); /* a layer of one's own */
    qn_model_parameter(conv, "weight", QN_SHAPE(out, in, 3, 3), qn_init_kaiming_normal(0));
    qn_model_parameter(conv, "bias", QN_SHAPE(out), qn_init_constant(0));
    qn_model_set_forward(conv, "conv2d", convolve, NULL);
    qn_model_batch_norm(b, "norm", out);
    qn_model_activation(b, "relu", qn_relu);
}

static qn_tensor cnn_forward(qn_model *self, const qn_tensor *in, int count, void *user)
{
    (void)count, (void)user;
    qn_tensor x = qn_max_pool2d(qn_model_forward(qn_model_find(self, "one"), in[0]), 2, 2, NULL);
    x = qn_adaptive_avg_pool(qn_model_forward(qn_model_find(self, "two"), x), QN_SHAPE(1, 1));
    return qn_model_forward(qn_model_find(self, "head"), qn_flatten(x, 1, -1));
}

static void cnn(qn_model *net)
{
    block(net, "one", 1, 8);
    block(net, "two", 8, 16);
    qn_model_linear(net, "head", 16, 2, true);
    qn_model_set_forward(net, "cnn", cnn_forward, NULL);
}

static void cnn_data(uint64_t *state, float *x, int64_t *y)
{
    for (int b = 0; b < BATCH; b++, x += SIDE * SIDE) {
        y[b] = random_of(state) < 0.5;
        int at = (int)(SIDE * random_of(state));
        for (int i = 0; i < SIDE * SIDE; i++)
            x[i] = (float)(random_of(state) + ((y[b] ? i % SIDE : i / SIDE) == at ? 0.8 : 0));
    }
}

/* ---- an autoencoder: 32 numbers that two make, through a code of two ---- */

static void autoencoder(qn_model *net)
{
    const int64_t widths[] = {WIDE, 48, CODE, 48, WIDE};
    for (int i = 0; i < 4; i++) {
        qn_model_linear(net, NULL, widths[i], widths[i + 1], true);
        if (i != 1 && i != 3) qn_model_activation(net, NULL, qn_tanh);
    }
}

static void autoencoder_data(uint64_t *state, float *x, int64_t *y)
{
    (void)y;
    for (int b = 0; b < BATCH; b++) {
        double u = random_of(state) - 0.5, v = random_of(state) - 0.5;
        for (int i = 0; i < WIDE; i++) x[b * WIDE + i] = (float)(sin(i) * u + cos(2.0 * i) * v + 0.5 * u * v);
    }
}

/* ---- a recurrent network: what was the sign of the second number, eight steps ago? ---- */

static qn_tensor gru_forward(qn_model *self, const qn_tensor *in, int count, void *user)
{
    (void)count, (void)user;
    qn_tensor h = qn_zeros(qn_model_tape(self), QN_F32, QN_SHAPE(BATCH, HIDDEN));
    for (int64_t t = 0; t < TIME; t++) {
        qn_tensor x = qn_slice(in[0], 1, t, t + 1, 1), both[] = {x, h};
        qn_tensor gates = qn_sigmoid(qn_model_forward(qn_model_find(self, "gates"), qn_concat(both, 2, 1)));
        qn_tensor halves[2]; /* reset, update */
        qn_chunk(gates, 1, 2, halves);
        qn_tensor again[] = {x, qn_mul(halves[0], h)};
        qn_tensor next = qn_tanh(qn_model_forward(qn_model_find(self, "next"), qn_concat(again, 2, 1)));
        h = qn_add(next, qn_mul(halves[1], qn_sub(h, next)));
    }
    return qn_model_forward(qn_model_find(self, "head"), h);
}

static void gru(qn_model *net)
{
    qn_model_linear(net, "gates", 1 + HIDDEN, 2 * HIDDEN, true);
    qn_model_linear(net, "next", 1 + HIDDEN, HIDDEN, true);
    qn_model_linear(net, "head", HIDDEN, 2, true);
    qn_model_set_forward(net, "gru", gru_forward, NULL);
}

static void gru_data(uint64_t *state, float *x, int64_t *y)
{
    for (int i = 0; i < BATCH * TIME; i++) x[i] = (float)(2 * random_of(state) - 1);
    for (int b = 0; b < BATCH; b++) y[b] = x[b * TIME + 1] > 0;
}

/* ---- two towers: users and items of four tastes, known by their numbers alone ---- */

static qn_tensor towers_forward(qn_model *self, const qn_tensor *in, int count, void *user)
{
    (void)count, (void)user;
    qn_tensor numbers = qn_cast(in[0], QN_I64);
    qn_tensor u = qn_model_forward(qn_model_find(self, "user"), qn_index(numbers, 1, 0));
    qn_tensor v = qn_model_forward(qn_model_find(self, "item"), qn_index(numbers, 1, 1));
    return qn_sum(qn_mul(u, v), QN_AXES(1), false);
}

static void towers(qn_model *net)
{
    const char *names[] = {"user", "item"};
    for (int i = 0; i < 2; i++) {
        qn_model *tower = qn_model_child(net, names[i]);
        qn_model_embedding(tower, "rows", i ? ITEMS : USERS, 16);
        qn_model_linear(tower, "in", 16, 32, true);
        qn_model_activation(tower, NULL, qn_silu);
        qn_model_linear(tower, "out", 32, 8, true);
    }
    qn_model_set_forward(net, "two towers", towers_forward, NULL);
}

static void towers_data(uint64_t *state, float *x, int64_t *y)
{
    for (int b = 0; b < BATCH; b++) {
        int who = (int)(USERS * random_of(state)), what = (int)(ITEMS * random_of(state));
        if (random_of(state) < 0.4) what = what / TASTES * TASTES + who % TASTES; /* likes are rare by chance */
        x[2 * b] = (float)who, x[2 * b + 1] = (float)what;
        y[b] = who % TASTES == what % TASTES;
    }
}

/* ---- all of them ---- */

typedef enum task { CLASSES, COPY, CLICKS } task;

static const struct {
    const char *name;
    void (*make)(qn_model *);
    void (*data)(uint64_t *state, float *x, int64_t *y);
    qn_shape shape;
    task task;
    double rate, wanted; /* of rows that are right, or at most of the squares that are left */
} models[] = {
    {"cnn", cnn, cnn_data, {4, {BATCH, 1, SIDE, SIDE}}, CLASSES, 0.01, 0.95},
    {"autoencoder", autoencoder, autoencoder_data, {2, {BATCH, WIDE}}, COPY, 0.01, 0.05},
    {"gru", gru, gru_data, {2, {BATCH, TIME}}, CLASSES, 0.02, 0.9},
    {"towers", towers, towers_data, {2, {BATCH, 2}}, CLICKS, 0.02, 0.85},
};

static qn_tensor loss_of(task task, qn_tensor out, qn_tensor x, qn_tensor y)
{
    if (task == COPY) return qn_mse_loss(out, x, QN_MEAN);
    return task == CLASSES ? qn_cross_entropy(out, y, QN_MEAN, QN_NO_INDEX) : qn_bce_with_logits(out, qn_cast(y, QN_F32), QN_MEAN);
}

static qn_tensor score_of(task task, qn_tensor out, qn_tensor x, qn_tensor y)
{
    if (task == COPY) return qn_div(qn_mse_loss(out, x, QN_MEAN), qn_mean(qn_mul(x, x), QN_ALL, false));
    if (task == CLASSES) return qn_accuracy(out, y);
    return qn_mean(qn_cast(qn_eq(qn_gt_scalar(out, 0), qn_gt_scalar(y, 0)), QN_F32), QN_ALL, false);
}

static bool train(qn_context *context, const char *device, int number)
{
    static float x[BATCH * SIDE * SIDE];
    static int64_t y[BATCH];
    qn_error error;
    qn_tape *tape;
    qn_plan *step;
    double first = 0, last = 0, score;
    uint64_t state = 7;
    QN_MUST(qn_tape_new(context, device, &tape, &error), error);
    qn_model *net = qn_model_new(tape, 1);
    models[number].make(net);
    qn_optimizer_options options = qn_optimizer_defaults(QN_ADAM);
    options.rate = models[number].rate;
    qn_optimizer *optimizer = qn_model_optimizer(net, QN_ADAM, &options, NULL, 0);
    qn_tensor in = qn_empty(tape, QN_F32, models[number].shape), target = qn_empty(tape, QN_I64, QN_SHAPE(BATCH));
    size_t bytes = sizeof(float);
    for (int i = 0; i < models[number].shape.rank; i++) bytes *= (size_t)models[number].shape.extents[i];

    QN_MUST(qn_capture_begin(tape, &error), error);
    qn_tensor loss = loss_of(models[number].task, qn_model_forward(net, in), in, target);
    qn_optimizer_minimize(optimizer, loss);
    QN_MUST(qn_eval(tape, &loss, 1, &error), error);
    QN_MUST(qn_capture_end(tape, &step, &error), error);
    for (int i = 0; i < STEPS; i++) {
        models[number].data(&state, x, y);
        QN_MUST(qn_tensor_write(in, x, bytes, &error), error);
        QN_MUST(qn_tensor_write(target, y, sizeof(y), &error), error);
        QN_MUST(qn_plan_replay(step, &error), error);
        if (i == 0 || i == STEPS - 1) QN_MUST(qn_tensor_item(loss, i ? &last : &first, &error), error);
    }
    models[number].data(&state, x, y); /* rows that it never saw */
    QN_MUST(qn_tensor_write(in, x, bytes, &error), error);
    QN_MUST(qn_tensor_write(target, y, sizeof(y), &error), error);
    qn_model_train(net, false);
    QN_MUST(qn_tensor_item(score_of(models[number].task, qn_model_forward(net, in), in, target), &score, &error), error);
    bool learnt = models[number].task == COPY ? score < models[number].wanted : score > models[number].wanted;
    printf("%-12s %6lld numbers, loss %.4f to %.4f, %s %.3f%s\n", models[number].name, (long long)qn_model_count(net, true), first,
           last, models[number].task == COPY ? "squares left" : "right", score, learnt ? "" : ": it did not learn");
    qn_plan_free(step);
    qn_optimizer_free(optimizer);
    qn_model_free(net);
    qn_tape_free(tape);
    return learnt;
}

int main(int argc, char **argv)
{
    const char *only = NULL, *device = NULL;
    bool good = true;
    for (int i = 1; i < argc; i++) {
        bool name = false;
        for (int m = 0; m < 4; m++) name |= !strcmp(argv[i], models[m].name);
        *(name ? &only : &device) = argv[i];
    }
    qn_error error;
    qn_context *context;
    QN_MUST(qn_context_open(NULL, &context, &error), error);
    for (int m = 0; m < 4; m++)
        if (!only || !strcmp(only, models[m].name)) good &= train(context, device, m);
    qn_context_close(context);
    return !good;
}
