/*
 * Adapters of low rank: values against sums by hand, the base that stays as it is and costs no gradients, merging, rows
 * that choose, files of adapters, the words of wrong calls. The interpreter and the tape's device agree throughout
 * ($QUERN_TEST_DEVICE, else ref).
 * SPDX-License-Identifier: MIT
 */
#include <quern/lora.h>

#include "tensor.h"

#include <quern/safetensors.h>

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

static const char *scratch_file(void)
{
    static char path[] = "/tmp/quern_test_lora_XXXXXX";
    static bool made;
    if (!made) {
        FILE *file = fdopen(mkstemp(path), "w");
        made = file && !fclose(file);
        EXPECT(made);
    }
    return path;
}

static qn_tensor plain(qn_tensor x)
{
    return x;
}

/* The MLP of 16, 8 and 4 with relu and sigmoid, on 7 rows, with rank 5 and alpha 0.5. */
static qn_model *talk(bool adapted)
{
    qn_lora_options o = {.rank = 5, .alpha = 0.5};
    qn_model *net = qn_model_new(tape, 11);
    if (adapted) {
        qn_lora_linear(net, "first", 16, 8, true, qn_relu, &o);
        qn_lora_linear(net, "second", 8, 4, true, qn_sigmoid, &o);
        return net;
    }
    qn_model_linear(net, "first", 16, 8, true);
    qn_model_activation(net, NULL, qn_relu);
    qn_model_linear(net, "second", 8, 4, true);
    qn_model_activation(net, NULL, qn_sigmoid);
    return net;
}

static qn_tensor seven_rows(void)
{
    return qn_randn_seeded(tape, 5, QN_F32, QN_SHAPE(7, 16));
}

TEST(a_new_adapter_changes_nothing)
{
    tape_open();
    double base[28], adapted[28], with[28], none[28];
    qn_error error;
    qn_model *a = talk(false), *b = talk(true);
    EXPECT(!qn_eval(tape, NULL, 0, &error)); /* both bases are drawn by the device */
    EXPECT(tensor_values(qn_model_forward(a, seven_rows()), base, 28) == 28);
    EXPECT(tensor_values(qn_model_forward(b, seven_rows()), adapted, 28) == 28);
    for (int i = 0; i < 28; i++) EXPECT_NEAR(adapted[i], base[i], 0);
    double d[1] = {0};
    qn_tensor A = qn_model_get(b, "first.lora_A.default.weight");
    EXPECT(qn_tensor_extent(A, 0) == 16 && qn_tensor_extent(A, 1) == 5);
    tensor_values(qn_sqrt(qn_mean(qn_square(A), QN_ALL, false)), d, 1);
    EXPECT(d[0] > 0.3 && d[0] < 0.6); /* 1 / sqrt(5) */
    qn_model_init(b, "*.lora_B.*", qn_init_normal(0, 1));
    tensor_values(qn_model_forward(b, seven_rows()), with, 28);
    EXPECT(memcmp(with, base, sizeof(base)) != 0);
    EXPECT(qn_lora_use(b, NULL) == 2); /* and none is the base again */
    tensor_values(qn_model_forward(b, seven_rows()), none, 28);
    for (int i = 0; i < 28; i++) EXPECT_NEAR(none[i], base[i], 0);
    qn_model_free(a);
    qn_model_free(b);
    tape_close();
}

static double activated(int which, double v)
{
    switch (which) {
    case 0: return v > 0 ? v : 0;
    case 1: return 1 / (1 + exp(-v));
    case 2: return 0.5 * v * (1 + erf(v / sqrt(2)));
    case 3: return v / (1 + exp(-v));
    default: return v;
    }
}

/* act(x W + b + alpha (x A) B), each activation, with and without bias, by sums in double. */
static void by_hand(qn_tensor (*function)(qn_tensor), int which, bool bias)
{
    enum { M = 3, K = 6, N = 5, R = 2 };
    double x[M * K], w[K * N], b[N] = {0}, la[K * R], lb[R * N], y[M * N];
    qn_model *net = qn_model_new(tape, 3);
    qn_lora_linear(net, "l", K, N, bias, function, &(qn_lora_options){.rank = R, .alpha = 1.5});
    qn_model_init(net, "*.lora_B.*", qn_init_normal(0, 1));
    qn_tensor given = qn_randn_seeded(tape, 8, QN_F32, QN_SHAPE(M, K));
    tensor_values(given, x, M * K);
    tensor_values(qn_model_get(net, "l.weight"), w, K * N);
    if (bias) tensor_values(qn_model_get(net, "l.bias"), b, N);
    tensor_values(qn_model_get(net, "l.lora_A.default.weight"), la, K * R);
    tensor_values(qn_model_get(net, "l.lora_B.default.weight"), lb, R * N);
    EXPECT(tensor_values(qn_model_forward(net, given), y, M * N) == M * N);
    for (int i = 0; i < M; i++)
        for (int j = 0; j < N; j++) {
            double sum = b[j];
            for (int k = 0; k < K; k++) {
                sum += x[i * K + k] * w[k * N + j];
                for (int r = 0; r < R; r++) sum += 1.5 * x[i * K + k] * la[k * R + r] * lb[r * N + j];
            }
            EXPECT_NEAR(y[i * N + j], activated(which, sum), 1e-5);
        }
    qn_model_free(net);
}

TEST(layers_are_their_formula)
{
    static qn_tensor (*const functions[])(qn_tensor) = {qn_relu, qn_sigmoid, qn_gelu, qn_silu, plain, NULL};
    tape_open();
    for (int i = 0; i < COUNT(functions); i++) by_hand(functions[i], i, i % 2);
    tape_close();
}

/* ---- training ---- */

static void train(qn_model *net, int steps, double *first, double *last, qn_plan_facts *facts)
{
    qn_error error;
    qn_plan *plan = NULL;
    qn_optimizer_options o = qn_optimizer_defaults(QN_ADAM);
    o.rate = 0.05;
    qn_optimizer *adam = qn_model_optimizer(net, QN_ADAM, &o, NULL, 0);
    qn_tensor x = seven_rows(), target = qn_rand_seeded(tape, 6, QN_F32, QN_SHAPE(7, 4));
    EXPECT(!qn_capture_begin(tape, &error));
    qn_tensor loss = qn_mse_loss(qn_model_forward(net, x), target, QN_MEAN);
    qn_optimizer_minimize(adam, loss);
    EXPECT(!qn_eval(tape, &loss, 1, &error) && !qn_capture_end(tape, &plan, &error));
    for (int i = 0; i < steps; i++) {
        EXPECT(!qn_plan_replay(plan, &error));
        EXPECT(!qn_tensor_item(loss, i ? last : first, &error));
    }
    qn_plan_info(plan, facts);
    qn_plan_free(plan);
    qn_optimizer_free(adam);
}

/* The base keeps every bit, is in no optimiser, and the step has fewer kernels than one that trains it too. */
TEST(the_base_is_frozen)
{
    tape_open();
    qn_plan_facts facts[2];
    float before[128], after[128], bias[2][4];
    double first, last;
    qn_error error;
    for (int all = 0; all < 2; all++) {
        qn_model *net = talk(true);
        EXPECT(qn_model_count(net, true) == 16 * 5 + 5 * 8 + 8 * 5 + 5 * 4);
        if (all) qn_model_freeze(net, "*", false);
        qn_tensor weight = qn_model_get(net, "first.weight"), b = qn_model_get(net, "second.bias");
        EXPECT(!qn_tensor_read(weight, before, sizeof(before), &error) &&
               !qn_tensor_read(b, bias[0], sizeof(bias[0]), &error));
        train(net, 12, &first, &last, &facts[all]);
        EXPECT(last < 0.8 * first);
        EXPECT(!qn_tensor_read(weight, after, sizeof(after), &error) &&
               !qn_tensor_read(b, bias[1], sizeof(bias[1]), &error));
        EXPECT((memcmp(before, after, sizeof(before)) == 0) == !all);
        EXPECT((memcmp(bias[0], bias[1], sizeof(bias[0])) == 0) == !all);
        qn_model_free(net);
    }
    EXPECT(facts[0].kernels < facts[1].kernels);
    tape_close();
}

TEST(dropout_is_of_the_adapter_alone)
{
    tape_open();
    double base[20], drawn[20], evaluated[20], whole[1] = {0};
    qn_model *net = qn_model_new(tape, 3);
    qn_lora_linear(net, "l", 6, 5, true, NULL, &(qn_lora_options){.rank = 2, .dropout = 0.5});
    qn_tensor x = qn_ones(tape, QN_F32, QN_SHAPE(4, 6));
    tensor_values(qn_model_forward(net, x), base, 20); /* B is 0 */
    for (int i = 5; i < 20; i++) EXPECT_NEAR(base[i], base[i % 5], 0);
    qn_model_init(net, "*.lora_B.*", qn_init_constant(1));
    tensor_values(qn_model_forward(net, x), drawn, 20);
    bool differ = false;
    for (int i = 5; i < 20; i++) differ |= drawn[i] != drawn[i % 5];
    EXPECT(differ);
    qn_model_train(net, false);
    tensor_values(qn_model_forward(net, x), evaluated, 20);
    qn_tensor A = qn_model_get(net, "l.lora_A.default.weight");
    tensor_values(qn_sum(A, QN_ALL, false), whole, 1);
    for (int i = 0; i < 20; i++) EXPECT_NEAR(evaluated[i], base[i] + whole[0], 1e-5);
    qn_model_free(net);
    tape_close();
}

/* ---- merging ---- */

TEST(merged_and_taken_out_again)
{
    tape_open();
    qn_error error;
    double apart[28], merged[28], again[28];
    float before[128], in[128], after[128];
    qn_model *net = talk(true);
    qn_tensor weight = qn_model_get(net, "first.weight");
    qn_model_init(net, "*.lora_B.*", qn_init_normal(0, 1));
    EXPECT(!qn_tensor_read(weight, before, sizeof(before), &error));
    tensor_values(qn_model_forward(net, seven_rows()), apart, 28);
    EXPECT(qn_lora_merge(net, true) == 2 && qn_lora_merge(net, true) == 0);
    EXPECT(!qn_tensor_read(weight, in, sizeof(in), &error) && memcmp(before, in, sizeof(in)) != 0);
    tensor_values(qn_model_forward(net, seven_rows()), merged, 28);
    EXPECT(qn_lora_use(net, NULL) == 0);
    EXPECT_ERROR("`first` has an adapter in its weights: qn_lora_merge(model, false) first");
    EXPECT(qn_lora_merge(net, false) == 2);
    EXPECT(!qn_tensor_read(weight, after, sizeof(after), &error));
    tensor_values(qn_model_forward(net, seven_rows()), again, 28);
    for (int i = 0; i < 28; i++) {
        EXPECT_NEAR(merged[i], apart[i], 2e-6);
        EXPECT_NEAR(again[i], apart[i], 2e-6);
    }
    for (int i = 0; i < 128; i++) EXPECT_NEAR(after[i], before[i], 1e-6);
    qn_model_free(net);
    tape_close();
}

/* ---- several adapters ---- */

static const char *const names[] = {"red", "green", "blue"};

static qn_model *three(void)
{
    qn_model *net = qn_model_new(tape, 21);
    qn_model_linear(net, "in", 4, 6, true);
    qn_model_activation(net, NULL, qn_tanh);
    qn_model_linear(net, "out", 6, 3, false);
    for (int i = 0; i < 3; i++) /* ranks and strengths of their own */
        EXPECT(qn_lora_add(net, "*", names[i], &(qn_lora_options){.rank = i + 1, .alpha = 0.5 * (i + 1)}) == 2);
    qn_model_init(net, "*.lora_B.*", qn_init_normal(0, 1));
    return net;
}

TEST(rows_choose_their_adapter)
{
    tape_open();
    double alone[4][18], mixed[18], gradient[12], none[1] = {0};
    qn_model *net = three();
    qn_tensor x = qn_randn_seeded(tape, 9, QN_F32, QN_SHAPE(6, 4));
    for (int i = 0; i < 4; i++) {
        EXPECT(qn_lora_use(net, i < 3 ? names[i] : NULL) == 2);
        tensor_values(qn_model_forward(net, x), alone[i], 18);
    }
    static const double index[] = {2, 0, -1, 2, 0, 0};
    for (int wide = 0; wide < 2; wide++) {
        EXPECT(qn_lora_choose(net, names, 3, tensor_of(wide ? QN_I64 : QN_I32, QN_SHAPE(6), index)) == 2);
        qn_tensor y = qn_model_forward(net, x);
        EXPECT(tensor_values(y, mixed, 18) == 18);
        for (int i = 0; i < 18; i++) EXPECT_NEAR(mixed[i], alone[index[i / 3] < 0 ? 3 : (int)index[i / 3]][i], 2e-6);
        qn_tensor wanted[2] = {qn_model_get(net, "in.lora_A.green.weight"), qn_model_get(net, "in.lora_A.blue.weight")};
        qn_tensor grads[2];
        qn_grad(qn_sum(qn_square(y), QN_ALL, false), wanted, 2, grads);
        tensor_values(grads[0], gradient, 12);
        for (int i = 0; i < 8; i++) EXPECT_NEAR(gradient[i], 0, 0); /* no row has chosen green */
        tensor_values(qn_sum(qn_abs(grads[1]), QN_ALL, false), none, 1);
        EXPECT(none[0] > 1e-3);
    }
    EXPECT(qn_lora_merge(net, true) == 0);
    EXPECT_ERROR("adapters chosen by row cannot be merged");
    /* The same rows as two sequences of three: an index for each sequence, or for each place. */
    qn_tensor sequences = qn_reshape(x, QN_SHAPE(2, 3, 4));
    qn_lora_choose(net, names, 3, TENSOR(QN_I32, QN_SHAPE(2), 1, 2));
    tensor_values(qn_model_forward(net, sequences), mixed, 18);
    for (int i = 0; i < 18; i++) EXPECT_NEAR(mixed[i], alone[1 + i / 9][i], 2e-6);
    qn_lora_choose(net, names, 3, qn_reshape(tensor_of(QN_I32, QN_SHAPE(6), index), QN_SHAPE(2, 3)));
    tensor_values(qn_model_forward(net, sequences), mixed, 18);
    for (int i = 0; i < 18; i++) EXPECT_NEAR(mixed[i], alone[index[i / 3] < 0 ? 3 : (int)index[i / 3]][i], 2e-6);
    qn_model_free(net);
    tape_close();
}

/* A recorded step reads the index anew. A layer with an adapter is three kernels: x A; its product with B; x W and all the
 * rest. One whose rows choose is at most six: matrices are put side by side first. */
TEST(a_recorded_step_follows_the_index)
{
    tape_open();
    qn_error error;
    float all[3][18], mixed[18];
    qn_model *net = three();
    qn_tensor x = qn_randn_seeded(tape, 9, QN_F32, QN_SHAPE(6, 4)), index = qn_empty(tape, QN_I32, QN_SHAPE(6));
    for (int i = 0; i < 3; i++) {
        qn_lora_use(net, names[i]);
        EXPECT(!qn_tensor_read(qn_model_forward(net, x), all[i], sizeof(all[i]), &error));
    }
    qn_lora_choose(net, names, 3, index);
    qn_plan *plan = NULL;
    EXPECT(!qn_capture_begin(tape, &error));
    qn_tensor y = qn_model_forward(net, x);
    EXPECT(!qn_eval(tape, &y, 1, &error) && !qn_capture_end(tape, &plan, &error));
    for (int round = 0; round < 2; round++) {
        int32_t chosen[6];
        for (int i = 0; i < 6; i++) chosen[i] = (i + round) % 3;
        EXPECT(!qn_tensor_write(index, chosen, sizeof(chosen), &error) && !qn_plan_replay(plan, &error));
        EXPECT(!qn_tensor_read(y, mixed, sizeof(mixed), &error));
        for (int i = 0; i < 18; i++) EXPECT_NEAR(mixed[i], all[chosen[i / 3]][i], 2e-6);
    }
    qn_plan_facts facts;
    qn_plan_info(plan, &facts);
    EXPECT(facts.kernels <= 12);
    qn_plan_free(plan);
    qn_lora_use(net, "blue");
    x = qn_from_memory(tape, mixed, QN_F32, QN_SHAPE(4, 4)); /* rows of which nothing is known yet */
    EXPECT(!qn_capture_begin(tape, &error));
    y = qn_model_forward(net, x);
    EXPECT(!qn_eval(tape, &y, 1, &error) && !qn_capture_end(tape, &plan, &error));
    qn_plan_info(plan, &facts);
    EXPECT(facts.kernels == 6);
    qn_plan_free(plan);
    qn_model_free(net);
    tape_close();
}

/* ---- files ---- */

TEST(an_adapter_is_a_file)
{
    tape_open();
    qn_error error;
    double before[18], after[18];
    const char *metadata[] = {"task", "colours", NULL};
    qn_model *net = three(), *other = qn_model_new(tape, 21);
    qn_tensor x = qn_randn_seeded(tape, 9, QN_F32, QN_SHAPE(6, 4));
    qn_lora_use(net, "green");
    tensor_values(qn_model_forward(net, x), before, 18);
    EXPECT(!qn_lora_save(net, "green", metadata, scratch_file(), &error));
    qn_safetensors *file;
    EXPECT(!qn_safetensors_open(scratch_file(), &file, &error));
    EXPECT(qn_safetensors_count(file) == 4);
    int at = qn_safetensors_find(file, "in.lora_A.weight"), out = qn_safetensors_find(file, "out.lora_B.weight");
    EXPECT(at >= 0 && out >= 0);
    const qn_safetensor *a = qn_safetensors_get(file, at), *b = qn_safetensors_get(file, out);
    EXPECT(a->extents[0] == 2 && a->extents[1] == 4 && b->extents[0] == 3 && b->extents[1] == 2);
    EXPECT_TEXT(qn_safetensors_metadata(file, "out.alpha"), "1");
    EXPECT_TEXT(qn_safetensors_metadata(file, "task"), "colours");
    qn_safetensors_close(file);

    qn_model_linear(other, "in", 4, 6, true); /* the same base, and an adapter of another name and strength */
    qn_model_activation(other, NULL, qn_tanh);
    qn_model_linear(other, "out", 6, 3, false);
    qn_lora_add(other, "*", "mine", &(qn_lora_options){.rank = 2, .alpha = 7});
    qn_lora_add(other, "*", "wide", &(qn_lora_options){.rank = 3});
    qn_lora_use(other, "mine");
    EXPECT(!qn_lora_load(other, "mine", scratch_file(), NULL, &error));
    tensor_values(qn_model_forward(other, x), after, 18);
    for (int i = 0; i < 18; i++) EXPECT_NEAR(after[i], before[i], 2e-6);
    EXPECT(qn_lora_load(other, "wide", scratch_file(), NULL, &error) == QN_BAD_FILE);
    EXPECT(strstr(error.message, "`in.lora_A.weight` is f32 [2, 4] in the file and f32 [3, 4] in the model") != NULL);
    EXPECT(qn_lora_load(other, "his", scratch_file(), NULL, &error) == QN_BAD_CALL);
    EXPECT_TEXT(error.message, "the model has no adapter `his`");
    qn_lora_merge(other, true);
    EXPECT(qn_lora_load(other, "mine", scratch_file(), NULL, &error) == QN_BAD_CALL);
    qn_lora_merge(other, false);

    EXPECT(!qn_model_save(net, NULL, NULL, scratch_file(), &error)); /* the whole model has them all, by name */
    EXPECT(!qn_safetensors_open(scratch_file(), &file, &error));
    EXPECT(qn_safetensors_count(file) == 3 + 12 && qn_safetensors_find(file, "in.lora_A.blue.weight") >= 0);
    qn_safetensors_close(file);
    EXPECT(!qn_model_load(net, NULL, scratch_file(), NULL, &error));
    remove(scratch_file());
    qn_model_free(net);
    qn_model_free(other);
    tape_close();
}

/* ---- wrong calls, half precision ---- */

TEST(wrong_calls_say_why)
{
    tape_open();
    qn_model *net = three();
    EXPECT(qn_lora_add(net, "*", "red", NULL) == 0);
    EXPECT_ERROR("`in` has an adapter `red` already");
    EXPECT(qn_lora_add(net, "nothing*", "new", NULL) == 0);
    EXPECT_ERROR("no linear layer matches `nothing*`");
    EXPECT(qn_lora_add(net, "*", "a.b", NULL) == 0);
    EXPECT_ERROR("`a.b` is no name");
    EXPECT(qn_lora_add(net, "*", "new", &(qn_lora_options){.rank = -1}) == 0);
    EXPECT_ERROR("rank -1, alpha 1, dropout 0: a rank is positive, a dropout below 1");
    EXPECT(qn_lora_use(net, "yellow") == 0);
    EXPECT_ERROR("no layer has an adapter `yellow`");
    EXPECT(qn_lora_choose(net, names, 3, qn_ones(tape, QN_F32, QN_SHAPE(6))) == 0);
    EXPECT_ERROR("the index that chooses adapters is of integers, not f32");
    EXPECT(qn_lora_choose(net, (const char *[]){"red", "yellow"}, 2, qn_zeros(tape, QN_I32, QN_SHAPE(6))) == 0);
    EXPECT_ERROR("`in` has no adapter `yellow`");
    qn_lora_choose(net, names, 3, qn_zeros(tape, QN_I32, QN_SHAPE(5)));
    EXPECT(!qn_tensor_valid(qn_model_forward(net, qn_ones(tape, QN_F32, QN_SHAPE(6, 4)))));
    EXPECT_ERROR("`in`: the index that chooses adapters has not the leading axes of x");
    qn_tensor index = qn_zeros(tape, QN_I32, QN_SHAPE(6));
    qn_lora_choose(net, names, 3, index);
    qn_release(index);
    EXPECT(!qn_tensor_valid(qn_model_forward(net, qn_ones(tape, QN_F32, QN_SHAPE(6, 4)))));
    EXPECT_ERROR("`in`: the index that chooses adapters was released");
    EXPECT(!qn_tensor_valid(qn_model_forward(qn_model_find(net, "in.lora_A"), qn_ones(tape, QN_F32, QN_SHAPE(6, 4)))));
    EXPECT_ERROR("`in.lora_A` runs with its layer, not alone");
    EXPECT(qn_lora_add(NULL, "*", "new", NULL) == 0 && qn_lora_use(NULL, NULL) == 0);
    qn_model_free(net);
    tape_close();
}

TEST(half_precision)
{
    tape_open();
    double apart[12], chosen[12], merged[12];
    qn_model *net = qn_model_new(tape, 4);
    qn_model_set_type(net, QN_BF16);
    qn_lora_linear(net, "l", 5, 3, true, qn_silu, &(qn_lora_options){.rank = 2, .alpha = 0.5});
    qn_model_init(net, "*.lora_B.*", qn_init_normal(0, 1));
    qn_tensor x = qn_cast(qn_randn_seeded(tape, 9, QN_F32, QN_SHAPE(4, 5)), QN_BF16);
    qn_tensor y = qn_model_forward(net, x);
    EXPECT(qn_tensor_dtype(y) == QN_BF16);
    tensor_values(y, apart, 12);
    qn_lora_choose(net, (const char *[]){"default"}, 1, qn_zeros(tape, QN_I64, QN_SHAPE(4)));
    tensor_values(qn_model_forward(net, x), chosen, 12);
    qn_lora_use(net, "default");
    qn_lora_merge(net, true);
    tensor_values(qn_model_forward(net, x), merged, 12);
    for (int i = 0; i < 12; i++) {
        EXPECT_NEAR(chosen[i], apart[i], 0.02 * (1 + fabs(apart[i])));
        EXPECT_NEAR(merged[i], apart[i], 0.03 * (1 + fabs(apart[i])));
    }
    qn_model_free(net);
    tape_close();
}

/* Set before the first case: everything here is computed on the device too. */
TEST(on_the_device)
{
    tensor_on_device = true;
}

TEST_MAIN(CASE(on_the_device), CASE(a_new_adapter_changes_nothing), CASE(layers_are_their_formula),
          CASE(the_base_is_frozen), CASE(dropout_is_of_the_adapter_alone), CASE(merged_and_taken_out_again),
          CASE(rows_choose_their_adapter), CASE(a_recorded_step_follows_the_index), CASE(an_adapter_is_a_file),
          CASE(wrong_calls_say_why), CASE(half_precision))
