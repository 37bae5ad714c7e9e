/*
 * Every layer against PyTorch: tests/data/layers.safetensors, which Python wrote (layers.py beside it), has weights,
 * inputs, outputs and gradients of PyTorch's layers and the weights after steps of its optimisers. The models here have
 * the same names and load the file as it is. On ref, cpu and emu, and on $QUERN_TEST_DEVICE.
 * SPDX-License-Identifier: MIT
 */
#include <quern/model.h>

#include "model/model.h"
#include "tensor.h"

#include <quern/safetensors.h>

#include <quern/sites.h>

#define FIXTURE QUERN_ROOT "/tests/data/layers.safetensors"

static qn_safetensors *fixture;

static void on(const char *device)
{
    qn_error error;
    if ((!tensor_context && qn_context_open(NULL, &tensor_context, &error)) ||
        (!fixture && qn_safetensors_open(FIXTURE, &fixture, &error)) ||
        qn_tape_new(tensor_context, device, &tape, &error)) {
        printf("%s\n", error.message);
        exit(1);
    }
}

/* A tensor of the file; the empty handle if it is not there. */
static qn_tensor stored(const char *format, const char *a, const char *b)
{
    char name[200];
    qn_error error;
    snprintf(name, sizeof(name), format, a, b);
    int at = qn_safetensors_find(fixture, name);
    if (at < 0) return QN_NONE;
    const qn_safetensor *t = qn_safetensors_get(fixture, at);
    void *data = malloc(t->size_bytes + 1);
    EXPECT(!qn_safetensors_read(fixture, at, data, t->size_bytes, &error));
    qn_shape s = {.rank = t->rank};
    memcpy(s.extents, t->extents, sizeof(int64_t) * (size_t)t->rank);
    qn_tensor out = qn_from_memory(tape, data, t->type, s);
    free(data);
    return out;
}

/* The elements as doubles, on the host; the count, or -1. Turned: of the transpose. */
static int64_t values_of(qn_tensor t, bool turned, double *out)
{
    static char data[8 * 4096];
    qn_error error;
    qn_dtype type = qn_tensor_dtype(t);
    qn_shape s = qn_tensor_shape(t);
    int64_t count = qn_tensor_count(t), rows = turned ? s.extents[0] : 1, columns = count / (rows ? rows : 1);
    if (!qn_tensor_valid(t) || count > 4096 ||
        qn_tensor_read(t, data, (size_t)count * qn_dtype_size_bytes(type), &error))
        return -1;
    for (int64_t i = 0; i < count; i++) {
        number x = element_read((dtype)type, data + (size_t)i * qn_dtype_size_bytes(type));
        out[turned ? i % columns * rows + i / columns : i] = type == QN_I64 ? (double)x.i : x.f;
    }
    return count;
}

/* The largest difference, relative to 1 + |b|; of what is not there or has another size it is infinite. */
static double difference(qn_tensor a, bool turned, qn_tensor b)
{
    static double x[4096], y[4096];
    int64_t count = values_of(a, turned, x);
    double worst = 0;
    if (count < 0 || count != values_of(b, false, y) || qn_tensor_rank(a) != qn_tensor_rank(b)) return INFINITY;
    for (int64_t i = 0; i < count; i++)
        worst = fmax(worst, isnan(x[i]) ? INFINITY : fabs(x[i] - y[i]) / (1 + fabs(y[i])));
    return worst;
}

static void expect_near(qn_tensor got, bool turned, qn_tensor expected, const char *layer, const char *what)
{
    double worst = difference(got, turned, expected);
    if (worst <= 2e-6) return;
    char words[200];
    snprintf(words, sizeof(words), "%s: %s is %.3g off", layer, what, worst);
    test_fail(__FILE__, __LINE__, words);
}

/* Output, gradients of the inputs of floats and of every parameter. */
static void check_layer(qn_model *net, const char *name, const char *const *inputs, int count)
{
    qn_model *layer = qn_model_find(net, name);
    qn_tensor given[4], wanted[16], gradients[16];
    const char *names[16];
    qn_parameter parameters[8];
    int wants = 0;
    for (int i = 0; i < count; i++) {
        given[i] = stored("test/%s/%s", name, inputs[i]);
        if (qn_tensor_dtype(given[i]) != QN_F32) continue;
        names[wants] = inputs[i];
        wanted[wants++] = given[i];
    }
    int all = qn_model_list(layer, parameters, 8);
    for (int i = 0; i < all; i++) {
        if (parameters[i].buffer) continue;
        names[wants] = parameters[i].path;
        wanted[wants++] = parameters[i].value;
    }
    qn_tensor y = qn_model_forward_many(layer, given, count), expected = stored("test/%s/%s", name, "y");
    qn_grad(qn_sum(qn_mul(y, stored("test/%s/%s", name, "g")), QN_ALL, false), wanted, wants, gradients);
    gradients[wants] = y;
    qn_error error;
    if (qn_eval(tape, gradients, wants + 1, &error)) test_fail(__FILE__, __LINE__, error.message);
    expect_near(y, false, expected, name, "the output");
    for (int i = 0; i < wants; i++) {
        qn_tensor gradient = stored("test/%s/grad/%s", name, names[i]);
        bool turned = i >= wants - all && qn_tensor_rank(wanted[i]) == 2 && !strstr(name, "bag") &&
                      strcmp(name, "embedding") != 0;
        expect_near(gradients[i], turned, gradient, name, names[i]);
    }
}

static qn_model *all_layers(void)
{
    qn_error error;
    qn_model *net = qn_model_new(tape, 1);
    qn_model_linear(net, "linear", 3, 4, true);
    qn_model_linear(net, "plain", 3, 2, false);
    qn_model_embedding(net, "embedding", 5, 3);
    qn_model_embedding_bag(net, "bag_sum", 6, 3, QN_BAG_SUM);
    qn_model_embedding_bag(net, "bag_mean", 6, 3, QN_BAG_MEAN);
    qn_model_layer_norm(net, "layer_norm", 4);
    qn_model_rms_norm(net, "rms_norm", 4);
    qn_model_batch_norm(net, "batch_norm", 3);
    qn_model_attention(net, "attention", 4, 2, false);
    qn_model_attention(net, "causal", 4, 2, true);
    qn_model_attention(net, "cross", 4, 2, false);
    if (qn_model_load(net, NULL, FIXTURE, &(qn_load_options){.allow_unexpected = true}, &error))
        test_fail(__FILE__, __LINE__, error.message);
    return net;
}

/* few: those with the most different kernels, where each kernel costs a run of the compiler. */
static void layers_on(const char *device, bool few)
{
    qn_error error;
    on(device);
    qn_model *net = all_layers();
    static const char *const x[] = {"x", "offsets"}, *const qkv[] = {"q", "k", "v"};
    /* The file has the statistics of before the batch; training moves them. */
    float zeros[3] = {0}, ones[3] = {1, 1, 1};
    int64_t none = 0;
    EXPECT(!qn_tensor_write(qn_model_get(net, "batch_norm.running_mean"), zeros, sizeof(zeros), &error));
    EXPECT(!qn_tensor_write(qn_model_get(net, "batch_norm.running_var"), ones, sizeof(ones), &error));
    EXPECT(!qn_tensor_write(qn_model_get(net, "batch_norm.num_batches_tracked"), &none, sizeof(none), &error));
    check_layer(net, "batch_norm", x, 1);
    static const char *const kept[] = {"running_mean", "running_var", "num_batches_tracked"};
    for (int i = 0; i < 3; i++)
        expect_near(qn_model_get(qn_model_find(net, "batch_norm"), kept[i]), false,
                    stored("test/%s/after/%s", "batch_norm", kept[i]), "batch_norm", kept[i]);
    qn_model_train(net, false);
    expect_near(qn_model_forward(qn_model_find(net, "batch_norm"), stored("test/%s/%s", "batch_norm", "x")), false,
                stored("test/%s/%s", "batch_norm", "eval"), "batch_norm", "eval");
    check_layer(net, "cross", qkv, 3);
    static const char *const names[] = {"linear", "plain", "embedding", "bag_sum", "layer_norm", "rms_norm"};
    for (int i = 0; i < COUNT(names) && !few; i++) check_layer(net, names[i], x, 1);
    if (!few) {
        check_layer(net, "bag_mean", x, 2);
        check_layer(net, "attention", qkv, 1);
        check_layer(net, "causal", qkv, 1);
    }
    qn_model_free(net);
    tape_close();
}

TEST(layers_are_pytorch_s)
{
    layers_on("ref", false);
    layers_on("cpu", true);
    if (getenv("QUERN_TEST_DEVICE")) layers_on(getenv("QUERN_TEST_DEVICE"), false);
}

/* ---- optimisers with a schedule and clipping ---- */

static qn_tensor train_forward(qn_model *self, const qn_tensor *inputs, int count, void *user)
{
    (void)count, (void)user;
    qn_tensor rows = qn_flatten(qn_model_forward(qn_model_find(self, "table"), inputs[0]), 1, 2);
    qn_tensor hidden = qn_gelu(qn_model_forward(qn_model_find(self, "first"), rows));
    return qn_model_forward(qn_model_find(self, "last"), hidden);
}

static void trains(const char *name, qn_optimizer_kind kind, qn_optimizer_options options)
{
    qn_error error;
    qn_model *net = qn_model_new(tape, 1), *train = qn_model_child(net, "train");
    qn_model_embedding(train, "table", 4, 2);
    qn_model_linear(train, "first", 4, 3, true);
    qn_model_linear(train, "last", 3, 1, true);
    qn_model_set_forward(train, "own", train_forward, NULL);
    if (qn_model_load(net, NULL, FIXTURE, &(qn_load_options){.allow_unexpected = true}, &error))
        test_fail(__FILE__, __LINE__, error.message);
    qn_tensor x = stored("test/%s/%s", "train", "x"), target = stored("test/%s/%s", "train", "target");
    qn_optimizer *optimizer = qn_model_optimizer(net, kind, &options, NULL, 0);
    qn_optimizer_set_schedule(optimizer,
                              &(qn_schedule){.kind = QN_COSINE, .warmup_steps = 2, .warmup_start = 0.25, .steps = 4});
    qn_optimizer_set_clip_norm(optimizer, 0.2);
    float losses[6] = {0}, torch[6] = {0};
    qn_plan *plan = NULL;
    EXPECT(!qn_capture_begin(tape, &error));
    qn_tensor loss = qn_bce_with_logits(qn_model_forward(train, x), target, QN_MEAN);
    qn_optimizer_minimize(optimizer, loss);
    bool recorded = !qn_eval(tape, &loss, 1, &error) && !qn_capture_end(tape, &plan, &error);
    EXPECT(recorded);
    if (!recorded) printf("%s\n", error.message);
    for (int i = 0; i < 6 && recorded; i++) {
        EXPECT(!qn_plan_replay(plan, &error));
        EXPECT(!qn_tensor_read(loss, &losses[i], sizeof(float), &error));
    }
    EXPECT(!qn_tensor_read(stored("test/train/%s/%s", name, "losses"), torch, sizeof(torch), &error));
    for (int i = 0; i < 6; i++) EXPECT_NEAR(losses[i], torch[i], 2e-6);
    qn_parameter parameters[8];
    int count = qn_model_list(train, parameters, 8);
    for (int i = 0; i < count; i++) {
        bool turned = qn_tensor_rank(parameters[i].value) == 2 && strncmp(parameters[i].path, "table", 5) != 0;
        expect_near(parameters[i].value, turned, stored("test/train/%s/%s", name, parameters[i].path), name,
                    parameters[i].path);
    }
    qn_plan_free(plan);
    qn_optimizer_free(optimizer);
    qn_model_free(net);
}

static void train_all(const char *device, bool few)
{
    on(device);
    qn_optimizer_options o = qn_optimizer_defaults(QN_SGD);
    o.rate = 0.1;
    o.momentum = 0.9;
    o.nesterov = true;
    o.weight_decay = 0.01;
    if (!few) trains("sgd", QN_SGD, o);
    o = qn_optimizer_defaults(QN_ADAGRAD);
    o.rate = 0.1;
    o.rate_decay = 0.05;
    trains("adagrad", QN_ADAGRAD, o); /* touches only the rows of the batch */
    o = qn_optimizer_defaults(QN_ADAM);
    o.rate = 0.05;
    o.weight_decay = 0.02;
    if (!few) trains("adam", QN_ADAM, o);
    o = qn_optimizer_defaults(QN_ADAMW);
    o.rate = 0.05;
    o.weight_decay = 0.1;
    if (!few) trains("adamw", QN_ADAMW, o);
    tape_close();
}

TEST(training_is_pytorch_s)
{
    train_all("ref", false);
    train_all("cpu", true);
    if (getenv("QUERN_TEST_DEVICE")) train_all(getenv("QUERN_TEST_DEVICE"), false);
}

/* The CUDA text of one layer and of one optimiser, on the CPU. */
TEST(some_on_emu)
{
    static const char *const x[] = {"x"};
    on("emu");
    qn_model *net = all_layers();
    check_layer(net, "linear", x, 1);
    qn_model_free(net);
    qn_optimizer_options o = qn_optimizer_defaults(QN_ADAMW);
    o.rate = 0.05;
    o.weight_decay = 0.1;
    trains("adamw", QN_ADAMW, o);
    tape_close();
}

TEST(dropout_only_when_training)
{
    on("ref");
    qn_model *net = qn_model_new(tape, 1);
    qn_model_dropout(net, NULL, 0.5);
    double y[1000];
    int zeros = 0;
    tensor_values(qn_model_forward(net, qn_ones(tape, QN_F32, QN_SHAPE(1000))), y, 1000);
    for (int i = 0; i < 1000; i++) {
        EXPECT(y[i] == 0 || y[i] == 2);
        zeros += y[i] == 0;
    }
    EXPECT(zeros > 400 && zeros < 600);
    EXPECT(qn_model_training(net));
    qn_model_train(net, false);
    EXPECT(!qn_model_training(qn_model_child_at(net, 0)));
    EXPECT_TENSOR(qn_model_forward(net, F32(QN_SHAPE(3), 1, 2, 3)), QN_SHAPE(3), 1, 2, 3);
    qn_model_free(net);
    tape_close();
}

/* A file of the Python package is read and written again with the same tensors. */
TEST(the_file_of_python_is_read)
{
    on("ref");
    EXPECT(qn_safetensors_count(fixture) > 100);
    EXPECT_TEXT(qn_safetensors_metadata(fixture, "made by"), "PyTorch");
    const qn_safetensor *t = qn_safetensors_get(fixture, qn_safetensors_find(fixture, "linear.weight"));
    EXPECT(t && t->type == QN_F32 && t->rank == 2 && t->extents[0] == 4 && t->extents[1] == 3 && t->size_bytes == 48);
    t = qn_safetensors_get(fixture, qn_safetensors_find(fixture, "batch_norm.num_batches_tracked"));
    EXPECT(t && t->type == QN_I64 && t->rank == 0 && t->size_bytes == 8);
    EXPECT(qn_safetensors_find(fixture, "nothing") == -1 && !qn_safetensors_get(fixture, -1));
    qn_safetensors_close(fixture);
    fixture = NULL;
    tape_close();
}

TEST_MAIN(CASE(layers_are_pytorch_s), CASE(training_is_pytorch_s), CASE(some_on_emu), CASE(dropout_only_when_training),
          CASE(the_file_of_python_is_read))
