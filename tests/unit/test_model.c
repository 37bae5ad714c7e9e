/*
 * The tree of a model: names, paths, initial values, freezing, groups, schedules, the table, and the words of wrong
 * calls. Layers' values are tested in test_model_layers.c, files in test_model_state.c.
 * SPDX-License-Identifier: MIT
 */
#include <quern/model.h>

#include "model/model.h"
#include "tensor.h"

#include <quern/sites.h>

static void expect_error(const char *words, int line)
{
    qn_error error;
    if (!qn_tape_error(tape, &error)) {
        test_fail(__FILE__, line, "an error was expected");
        return;
    }
    if (!strstr(error.message, words)) test_text(error.message, words, __FILE__, line);
}
#define EXPECT_ERROR(words) expect_error((words), __LINE__)

static qn_model *perceptron(uint64_t seed)
{
    qn_model *net = qn_model_new(tape, seed);
    qn_model_linear(net, "in", 3, 4, true);
    qn_model_activation(net, NULL, qn_tanh);
    qn_model_linear(net, "out", 4, 2, false);
    return net;
}

TEST(trees_have_paths)
{
    tape_open();
    qn_model *net = qn_model_new(tape, 1);
    qn_model *body = qn_model_child(net, "body"), *block = qn_model_child(body, NULL);
    qn_model *one = qn_model_linear(block, NULL, 2, 3, true);
    EXPECT_TEXT(qn_model_path(one), "body.0.0");
    EXPECT_TEXT(qn_model_path(net), "");
    EXPECT(qn_model_find(net, "body.0.0") == one && qn_model_find(body, "0.0") == one && qn_model_find(net, "") == net);
    EXPECT(!qn_model_find(net, "body.1") && !qn_model_find(net, "bod"));
    EXPECT(qn_tensor_valid(qn_model_get(net, "body.0.0.weight")));
    EXPECT(!qn_tensor_valid(qn_model_get(net, "body.0.0.weights")) && !qn_tensor_valid(qn_model_get(net, "x.weight")));
    EXPECT(qn_model_child_count(body) == 1 && qn_model_child_at(body, 0) == block && !qn_model_child_at(body, 1));
    qn_parameter all[4];
    EXPECT(qn_model_list(body, all, 1) == 2);
    EXPECT_TEXT(all[0].path, "0.0.weight");
    EXPECT_TEXT(all[0].layer, "linear");
    EXPECT(qn_model_count(net, false) == 9);
    qn_model_free(net);
    tape_close();
}

TEST(wrong_calls_say_why)
{
    tape_open();
    qn_model *net = perceptron(1);
    EXPECT(!qn_model_linear(net, "in", 1, 1, true));
    EXPECT_ERROR("`the model` has a `in` already");
    EXPECT(!qn_model_linear(net, "a.b", 1, 1, true));
    EXPECT_ERROR("`a.b` is no name");
    EXPECT(!qn_model_linear(net, "new", 0, 1, true));
    EXPECT_ERROR("its sizes 0 and 1 must be positive");
    EXPECT(qn_model_freeze(net, "*.biass", true) == 0);
    EXPECT_ERROR("no parameter matches `*.biass`");
    EXPECT(!qn_model_dropout(net, NULL, 1));
    EXPECT_ERROR("the probability 1 is not at least 0 and below 1");
    EXPECT(!qn_model_attention(net, NULL, 10, 3, false));
    EXPECT_ERROR("a width of 10 is not divided by 3 heads");
    EXPECT(!qn_tensor_valid(qn_model_forward(NULL, qn_ones(tape, QN_F32, QN_SHAPE(1)))));
    EXPECT_ERROR("forward (");
    qn_tensor two[2] = {qn_ones(tape, QN_F32, QN_SHAPE(1, 3)), qn_ones(tape, QN_F32, QN_SHAPE(1, 3))};
    EXPECT(!qn_tensor_valid(qn_model_forward_many(net, two, 2)));
    EXPECT_ERROR("`in` takes 1 to 1 inputs, not 2");
    EXPECT(!qn_tensor_valid(qn_model_parameter(net, "p", QN_SHAPE(3), qn_init_xavier_normal(1))));
    EXPECT_ERROR("the fans of `p` cannot be told from its shape");
    qn_model_group group = {"nothing*", QN_SGD, qn_optimizer_defaults(QN_SGD)};
    EXPECT(!qn_model_optimizer(net, QN_SGD, NULL, &group, 1));
    EXPECT_ERROR("no parameter matches `nothing*`");
    qn_model_freeze(net, "*", true);
    EXPECT(!qn_model_optimizer(net, QN_SGD, NULL, NULL, 0));
    EXPECT_ERROR("the model has no parameters that are not frozen");
    EXPECT(!qn_model_linear(NULL, NULL, 1, 1, true) && qn_model_count(NULL, false) == 0);
    qn_model_free(net);
    qn_model_free(NULL);
    tape_close();
}

static void facts_of(qn_tensor t, double *mean, double *deviation, double *low, double *high)
{
    static double x[200000];
    int64_t count = tensor_values(t, x, 200000);
    double sum = 0, squares = 0;
    *low = *high = x[0];
    for (int64_t i = 0; i < count; i++) {
        sum += x[i];
        squares += x[i] * x[i];
        *low = fmin(*low, x[i]);
        *high = fmax(*high, x[i]);
    }
    *mean = sum / (double)count;
    *deviation = sqrt(squares / (double)count - *mean * *mean);
}

/* Distributions are PyTorch's: their bounds and deviations by its formulas. */
TEST(initial_values)
{
    tape_open();
    qn_model *net = qn_model_new(tape, 7);
    double mean, deviation, low, high;
    struct {
        qn_init init;
        double deviation, most;
    } kinds[] = {{qn_init_uniform(-0.5, 0.5), 0.5 / sqrt(3), 0.5},
                 {qn_init_normal(0, 0.02), 0.02, 1},
                 {qn_init_xavier_uniform(2), 2 * sqrt(2.0 / 300), 2 * sqrt(6.0 / 300)},
                 {qn_init_xavier_normal(1), sqrt(2.0 / 300), 1},
                 {qn_init_kaiming_uniform(0), sqrt(2.0 / 100), sqrt(6.0 / 100)},
                 {qn_init_kaiming_normal(sqrt(5)), sqrt(1.0 / 300), 1}};
    for (int i = 0; i < (int)(sizeof(kinds) / sizeof(kinds[0])); i++) {
        char name[8];
        snprintf(name, sizeof(name), "p%d", i);
        facts_of(qn_model_parameter(net, name, QN_SHAPE(100, 200), kinds[i].init), &mean, &deviation, &low, &high);
        EXPECT_NEAR(mean, 0, 4 * kinds[i].deviation / sqrt(20000));
        EXPECT_NEAR(deviation, kinds[i].deviation, 0.02 * kinds[i].deviation);
        EXPECT(low >= -kinds[i].most && high <= kinds[i].most);
        if (kinds[i].most < 1) EXPECT(high > 0.98 * kinds[i].most && low < -0.98 * kinds[i].most);
    }
    EXPECT_TENSOR(qn_model_parameter(net, "c", QN_SHAPE(2), qn_init_constant(3)), QN_SHAPE(2), 3, 3);
    /* linear: both within 1 / sqrt(in) */
    qn_model_linear(net, "linear", 400, 50, true);
    facts_of(qn_model_get(net, "linear.weight"), &mean, &deviation, &low, &high);
    EXPECT(high <= 0.05 && low >= -0.05 && high > 0.0499);
    EXPECT_NEAR(deviation, 0.05 / sqrt(3), 5e-4);
    facts_of(qn_model_get(net, "linear.bias"), &mean, &deviation, &low, &high);
    EXPECT(high <= 0.05 && low >= -0.05 && high > 0.03);
    qn_model_embedding(net, "table", 300, 50);
    facts_of(qn_model_get(net, "table.weight"), &mean, &deviation, &low, &high);
    EXPECT_NEAR(deviation, 1, 0.02);
    qn_model_set_type(net, QN_BF16);
    EXPECT(qn_tensor_dtype(qn_model_parameter(net, "half", QN_SHAPE(4), qn_init_normal(0, 1))) == QN_BF16);
    qn_model_free(net);
    tape_close();
}

/* Equal seeds and paths give equal numbers, whatever else is in the tree or was drawn; others differ. */
TEST(initial_values_depend_on_seed_and_path_alone)
{
    tape_open();
    double a[12], b[12];
    qn_model *first = perceptron(5);
    tensor_values(qn_model_get(first, "in.weight"), a, 12);
    double before[2], after[2];
    qn_tensor drawn = qn_rand(tape, QN_F32, QN_SHAPE(2));
    tensor_values(drawn, before, 2);
    qn_model *second = qn_model_new(tape, 5);
    qn_model_embedding(second, "other", 4, 4);
    qn_model_linear(second, "in", 3, 4, true);
    tensor_values(qn_model_get(second, "in.weight"), b, 12);
    EXPECT(!memcmp(a, b, sizeof(a)));
    qn_model *third = perceptron(6);
    tensor_values(qn_model_get(third, "in.weight"), b, 12);
    EXPECT(memcmp(a, b, sizeof(a)) != 0);
    tensor_values(qn_model_get(first, "out.weight"), b, 8);
    EXPECT(memcmp(a, b, 8 * sizeof(double)) != 0);
    qn_seed(tape, 0);
    tensor_values(qn_rand(tape, QN_F32, QN_SHAPE(2)), after, 2);
    EXPECT(!memcmp(before, after, sizeof(before)));
    /* again from the seed */
    qn_model_init(first, "in.*", qn_init_constant(0));
    EXPECT_TENSOR(qn_model_get(first, "in.bias"), QN_SHAPE(4), 0, 0, 0, 0);
    qn_model_free(first);
    qn_model_free(second);
    qn_model_free(third);
    tape_close();
}

static qn_tensor loss_of(qn_model *net)
{
    qn_tensor x = F32(QN_SHAPE(2, 3), 1, 2, 3, -1, 0.5, 2);
    return qn_sum(qn_square(qn_model_forward(net, x)), QN_ALL, false);
}

/* A frozen parameter does not move, is in no optimiser, and what its gradient alone would need is not computed: without
 * the input layer's gradient the step has fewer kernels. */
TEST(frozen_parameters_have_no_gradients)
{
    tape_open();
    tensor_on_device = true;
    qn_plan_facts facts[2];
    for (int frozen = 0; frozen < 2; frozen++) {
        qn_error error;
        qn_model *net = perceptron(3);
        if (frozen) EXPECT(qn_model_freeze(net, "in.*", true) == 2);
        EXPECT(qn_model_count(net, true) == (frozen ? 8 : 24) && qn_model_count(net, false) == 24);
        qn_optimizer *sgd = qn_model_optimizer(net, QN_SGD, NULL, NULL, 0);
        EXPECT(qn_optimizer_count(sgd) == (frozen ? 1 : 3));
        double before[12], after[12];
        tensor_values(qn_model_get(net, "in.weight"), before, 12);
        qn_plan *plan = NULL;
        EXPECT(!qn_capture_begin(tape, &error));
        qn_tensor loss = loss_of(net);
        qn_optimizer_minimize(sgd, loss);
        EXPECT(!qn_eval(tape, &loss, 1, &error) && !qn_capture_end(tape, &plan, &error));
        EXPECT(!qn_plan_replay(plan, &error));
        qn_plan_info(plan, &facts[frozen]);
        tensor_values(qn_model_get(net, "in.weight"), after, 12);
        EXPECT((memcmp(before, after, sizeof(before)) == 0) == (frozen != 0));
        qn_plan_free(plan);
        qn_optimizer_free(sgd);
        qn_model_free(net);
    }
    EXPECT(facts[1].kernels < facts[0].kernels);
    tensor_on_device = false;
    tape_close();
}

TEST(groups_by_pattern)
{
    tape_open();
    qn_model *net = perceptron(3);
    qn_optimizer_options slow = qn_optimizer_defaults(QN_SGD), decayed = qn_optimizer_defaults(QN_SGD);
    slow.rate = 0;
    decayed.rate = 0.5;
    decayed.weight_decay = 0.1;
    qn_model_group groups[] = {{"*.bias", QN_SGD, slow}, {"in.*", QN_SGD, decayed}};
    qn_optimizer *o = qn_model_optimizer(net, QN_ADAM, NULL, groups, 2);
    EXPECT(qn_optimizer_count(o) == 3 && qn_optimizer_group_count(o) == 3);
    double w[12], b[4], v[8], now[12];
    tensor_values(qn_model_get(net, "in.weight"), w, 12);
    tensor_values(qn_model_get(net, "in.bias"), b, 4);
    tensor_values(qn_model_get(net, "out.weight"), v, 8);
    /* group 0 (Adam): out.weight; 1: in.bias; 2: in.weight */
    EXPECT(qn_tensor_count(qn_optimizer_parameter(o, 0)) == 8 && qn_tensor_count(qn_optimizer_parameter(o, 1)) == 4);
    EXPECT_TEXT(qn_optimizer_state_name(o, 0, 1), "exp_avg_sq");
    EXPECT(!qn_optimizer_state_name(o, 1, 0));
    qn_tensor gradients[3] = {qn_full(tape, QN_F32, QN_SHAPE(4, 2), 2), qn_ones(tape, QN_F32, QN_SHAPE(4)),
                              qn_zeros(tape, QN_F32, QN_SHAPE(3, 4))};
    qn_optimizer_step(o, gradients);
    tensor_values(qn_model_get(net, "out.weight"), now, 8);
    for (int i = 0; i < 8; i++) EXPECT_NEAR(now[i], v[i] - 1e-3, 1e-6);
    tensor_values(qn_model_get(net, "in.bias"), now, 4);
    for (int i = 0; i < 4; i++) EXPECT_NEAR(now[i], b[i], 0);
    tensor_values(qn_model_get(net, "in.weight"), now, 12);
    for (int i = 0; i < 12; i++) EXPECT_NEAR(now[i], w[i] * 0.95, 1e-6);
    qn_error error;
    EXPECT(!qn_optimizer_set_group_rate(o, 1, 0.25, &error));
    EXPECT_TENSOR(qn_optimizer_group_rate(o, 1), QN_RANK_0, 0.25);
    EXPECT_TENSOR(qn_optimizer_group_rate(o, 2), QN_RANK_0, 0.5);
    EXPECT(qn_optimizer_set_group_rate(o, 3, 0.25, &error) == QN_BAD_CALL);
    EXPECT_TEXT(error.message, "qn_optimizer_set_group_rate: there are 3 groups, and no number 3");
    qn_optimizer_free(o);
    qn_model_free(net);
    tape_close();
}

static qn_tensor inverse_root(qn_tensor steps, void *user)
{
    return qn_mul_scalar(qn_rsqrt(qn_add_scalar(steps, 1)), *(double *)user);
}

static double formula(const qn_schedule *s, int t)
{
    double n = t - (double)s->warmup_steps, steps = (double)s->steps, part = fmin(n, steps) / steps;
    if (n < 0) return s->warmup_start + (1 - s->warmup_start) * t / (double)s->warmup_steps;
    switch (s->kind) {
    case QN_LINEAR: return 1 + (s->end - 1) * part;
    case QN_COSINE: return s->end + (1 - s->end) * (1 + cos(3.14159265358979323846 * part)) / 2;
    case QN_STEP: return pow(s->gamma, floor(n / steps));
    case QN_EXPONENTIAL: return pow(s->gamma, n / fmax(steps, 1));
    case QN_OWN_SCHEDULE: return 0.5 / sqrt(n + 1);
    default: return 1;
    }
}

/* A recorded step follows its schedule: SGD on a gradient of 1 takes the rate off the parameter at each replay. */
TEST(schedules_are_their_formulas)
{
    double half = 0.5;
    const qn_schedule schedules[] = {{.kind = QN_CONSTANT},
                                     {.kind = QN_CONSTANT, .warmup_steps = 4, .warmup_start = 0.25},
                                     {.kind = QN_LINEAR, .warmup_steps = 2, .steps = 5, .end = 0.1},
                                     {.kind = QN_COSINE, .warmup_steps = 3, .steps = 6, .end = 0.05},
                                     {.kind = QN_STEP, .steps = 3, .gamma = 0.1},
                                     {.kind = QN_EXPONENTIAL, .gamma = 0.9},
                                     {.kind = QN_EXPONENTIAL, .warmup_steps = 2, .steps = 4, .gamma = 0.5},
                                     {.kind = QN_OWN_SCHEDULE, .warmup_steps = 1, .own = inverse_root, .user = &half}};
    for (int i = 0; i < (int)(sizeof(schedules) / sizeof(schedules[0])); i++) {
        tape_open();
        qn_error error;
        qn_tensor w = qn_variable(qn_zeros(tape, QN_F64, QN_SHAPE(1)));
        qn_optimizer_options options = qn_optimizer_defaults(QN_SGD);
        options.rate = 2;
        qn_optimizer *sgd = qn_optimizer_new(tape, QN_SGD, &options, &w, 1);
        qn_optimizer_set_schedule(sgd, &schedules[i]);
        qn_plan *plan = NULL;
        EXPECT(!qn_capture_begin(tape, &error));
        qn_tensor loss = qn_sum(w, QN_ALL, false), rate = qn_optimizer_rate_now(sgd, 0);
        qn_optimizer_minimize(sgd, loss);
        qn_tensor wanted[2] = {loss, rate};
        EXPECT(!qn_eval(tape, wanted, 2, &error) && !qn_capture_end(tape, &plan, &error));
        double at = 0, value, now;
        for (int t = 0; t < 12; t++) {
            EXPECT(!qn_plan_replay(plan, &error));
            at -= 2 * formula(&schedules[i], t);
            EXPECT(!qn_tensor_item(w, &value, &error) && !qn_tensor_item(rate, &now, &error));
            EXPECT_NEAR(value, at, 1e-9);
            EXPECT_NEAR(now, 2 * formula(&schedules[i], t), 1e-9);
        }
        qn_plan_free(plan);
        qn_optimizer_free(sgd);
        tape_close();
    }
}

TEST(wrong_schedules)
{
    tape_open();
    qn_tensor w = qn_variable(qn_zeros(tape, QN_F32, QN_SHAPE(1)));
    qn_optimizer *sgd = qn_optimizer_new(tape, QN_SGD, NULL, &w, 1);
    qn_optimizer_set_schedule(sgd, &(qn_schedule){.kind = QN_COSINE});
    EXPECT_ERROR("`steps` is 0: it must be at least 1");
    qn_optimizer_set_schedule(sgd, &(qn_schedule){.kind = QN_STEP, .steps = 2});
    EXPECT_ERROR("gamma 0 is not positive");
    qn_optimizer_set_schedule(sgd, &(qn_schedule){.kind = QN_OWN_SCHEDULE});
    EXPECT_ERROR("its function is NULL");
    qn_optimizer_set_clip_norm(sgd, -1);
    EXPECT_ERROR("the limit -1 is negative");
    EXPECT(!qn_optimizer_new_groups(tape, NULL, 0));
    EXPECT_ERROR("it has no group of parameters");
    qn_optimizer_free(sgd);
    tape_close();
}

/* The gradient (3, 4) of norm 5 is clipped to 1. */
TEST(minimize_clips)
{
    tape_open();
    qn_tensor w = qn_variable(F32(QN_SHAPE(2), 0, 0));
    qn_optimizer_options options = qn_optimizer_defaults(QN_SGD);
    options.rate = 1;
    qn_optimizer *sgd = qn_optimizer_new(tape, QN_SGD, &options, &w, 1);
    qn_optimizer_set_clip_norm(sgd, 1);
    qn_optimizer_minimize(sgd, qn_sum(qn_mul(w, F32(QN_SHAPE(2), 3, 4)), QN_ALL, false));
    EXPECT_TENSOR(w, QN_SHAPE(2), -0.6, -0.8);
    qn_optimizer_free(sgd);
    tape_close();
}

TEST(the_table)
{
    tape_open();
    qn_model *net = perceptron(1);
    qn_model_batch_norm(net, "norm", 2);
    qn_model_freeze(net, "in.weight", true);
    char *words = qn_model_text(net);
    EXPECT_TEXT(words, "parameter                 layer       shape   type  count  size    state\n"
                       "in.weight                 linear      [3, 4]   f32     12  48 B   frozen\n"
                       "in.bias                   linear      [4]      f32      4  16 B  trained\n"
                       "out.weight                linear      [4, 2]   f32      8  32 B  trained\n"
                       "norm.weight               batch_norm  [2]      f32      2   8 B  trained\n"
                       "norm.bias                 batch_norm  [2]      f32      2   8 B  trained\n"
                       "norm.running_mean         batch_norm  [2]      f32      2   8 B   buffer\n"
                       "norm.running_var          batch_norm  [2]      f32      2   8 B   buffer\n"
                       "norm.num_batches_tracked  batch_norm  []       i64      1   8 B   buffer\n"
                       "5 parameters, 3 buffers, 136 B; 16 numbers are trained, 12 frozen\n");
    free(words);
    qn_model_free(net);
    tape_close();
}

TEST_MAIN(CASE(trees_have_paths), CASE(wrong_calls_say_why), CASE(initial_values),
          CASE(initial_values_depend_on_seed_and_path_alone), CASE(frozen_parameters_have_no_gradients),
          CASE(groups_by_pattern), CASE(schedules_are_their_formulas), CASE(wrong_schedules), CASE(minimize_clips),
          CASE(the_table))
