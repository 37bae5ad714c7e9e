/*
 * Tensor functions of any rank (`[...]`), parameters of rank 0 (`[]`), and functions of many parameters: through calls
 * whose arrays change their rank, from C on a tape, with gradients, and what is refused. On ref and cpu.
 * SPDX-License-Identifier: MIT
 */
#include "base/base.h"
#include "test.h"

#include <math.h>
#include <quern/nn.h>
#include <stdlib.h>

static qn_context *context;
static const char *const devices[] = {"ref", "cpu"};

static const char *const helpers =
    "tensor swish(float x[...], float s = 1) { return x * sigmoid(s * x); }\n"
    "tensor rms(float x[...][D], float gain[D])\n"
    "{\n"
    "    return x * rsqrt(mean(x * x, axis = -1) + 1e-5) * unsqueeze(gain, like = x);\n"
    "}\n"
    "tensor pair(float a[...], float b[...]) { return a * b; }\n"
    "tensor last(float x[...][D]) { return x[...][D - 1], x[...][] ; }\n"
    "tensor facts(float x[...]) { return x * rank(x) + (rank(x) > 0 ? extent(x, -1) : 0); }\n"
    "tensor inside(float x[B][D], float gain[D])\n"
    "{\n"
    "    let h = rms(x, gain);                      // two axes, then one\n"
    "    let g = swish(gain, s = 2);\n"
    "    return sum(pair(h, mean(h, axis = 1)) * g[][:] * pair(h, sum(x)));\n"
    "}\n"
    "tensor scaled(float x[n], float s[]) { return x * s, s + 1; }\n"
    "tensor numbers(float x[n]) { let (y, z) = scaled(x, 4); return y, pair(2, z); }\n";

static bool good(qn_status status, const qn_error *error)
{
    if (status != QN_OK) printf("%s\n", error->message);
    return status == QN_OK;
}

static qn_module *load(const char *words)
{
    qn_module *module = NULL;
    qn_error error;
    EXPECT(good(qn_module_load_text(context, "any.qn", words, &module, &error), &error));
    return module;
}

static qn_array run(qn_call *call, const char *device, const char *result)
{
    qn_error error;
    qn_array array = {0};
    bool ran =
        good(qn_call_run(call, device, &error), &error) && good(qn_call_get(call, result, &array, &error), &error);
    EXPECT(ran);
    return array;
}

static void set(qn_call *call, const char *name, float *data, int rank, const int64_t *extents)
{
    qn_error error;
    EXPECT(good(qn_call_set_memory(call, name, data, QN_F32, rank, extents, NULL, &error), &error));
}

static const int64_t shapes[][4] = {{24}, {4, 6}, {2, 3, 4}, {0}, {2, 2, 3, 2}, {24}};
static const int ranks[] = {1, 2, 3, 0, 4, 1};

TEST(one_call_with_arrays_of_every_rank)
{
    qn_module *module = load(helpers);
    float x[24];
    for (int i = 0; i < 24; i++) x[i] = (float)(i - 12) / 5;
    for (int d = 0; d < COUNT(devices); d++) {
        qn_call *call = NULL;
        qn_error error;
        EXPECT(good(qn_call_new(module, "swish", &call, &error), &error));
        for (int r = 0; r < COUNT(ranks); r++) {
            int64_t count = 1;
            for (int k = 0; k < ranks[r]; k++) count *= shapes[r][k];
            set(call, "x", x, ranks[r], shapes[r]);
            qn_array y = run(call, devices[d], "result0");
            EXPECT(y.rank == ranks[r] && (!y.rank || y.extents[y.rank - 1] == shapes[r][y.rank - 1]));
            for (int64_t i = 0; i < count && y.data; i++)
                EXPECT_NEAR(((float *)y.data)[i], x[i] / (1 + exp(-x[i])), 1e-6);
        }
        qn_call_free(call);
    }
    qn_module_free(module);
}

TEST(a_norm_over_the_last_axis)
{
    qn_module *module = load(helpers);
    float x[24], gain[6];
    for (int i = 0; i < 24; i++) x[i] = (float)(i % 7) - 3;
    for (int i = 0; i < 6; i++) gain[i] = (float)i / 3;
    static const int64_t of[][3] = {{6}, {4, 6}, {2, 2, 6}};
    for (int r = 0; r < 3; r++) {
        qn_call *call = NULL;
        qn_error error;
        EXPECT(good(qn_call_new(module, "rms", &call, &error), &error));
        set(call, "x", x, r + 1, of[r]);
        set(call, "gain", gain, 1, (int64_t[]){6});
        qn_array y = run(call, "cpu", "result0");
        EXPECT(y.rank == r + 1);
        for (int row = 0; row < (r ? 4 : 1) && y.data; row++) {
            double squares = 0;
            for (int i = 0; i < 6; i++) squares += x[row * 6 + i] * (double)x[row * 6 + i];
            for (int i = 0; i < 6; i++)
                EXPECT_NEAR(((float *)y.data)[row * 6 + i], x[row * 6 + i] / sqrt(squares / 6 + 1e-5) * gain[i], 1e-5);
        }
        qn_call_free(call);
    }
    qn_module_free(module);
}

TEST(axes_are_kept_dropped_and_counted)
{
    qn_module *module = load(helpers);
    float x[24];
    for (int i = 0; i < 24; i++) x[i] = (float)i;
    qn_call *call = NULL;
    qn_error error;
    EXPECT(good(qn_call_new(module, "last", &call, &error), &error));
    set(call, "x", x, 3, (int64_t[]){2, 3, 4});
    qn_array y = run(call, "cpu", "result0"), more;
    EXPECT(y.rank == 2 && y.extents[1] == 3 && ((float *)y.data)[1] == 7);
    EXPECT(good(qn_call_get(call, "result1", &more, &error), &error) && more.rank == 4 && more.extents[3] == 1);
    qn_call_free(call);
    EXPECT(good(qn_call_new(module, "facts", &call, &error), &error));
    for (int r = 0; r < 4; r++) {
        set(call, "x", x, ranks[r], shapes[r]);
        y = run(call, "ref", "result0");
        EXPECT(y.data && ((float *)y.data)[0] == (ranks[r] ? shapes[r][ranks[r] - 1] : 0));
    }
    qn_call_free(call);
    qn_module_free(module);
}

/* What a function of any rank gives inside another one, and its gradient, is what the written-out one gives. */
TEST(calls_inside_and_gradients)
{
    static const char *const by_hand = "tensor inside(float x[B][D], float gain[D])\n"
                                       "{\n"
                                       "    let h = x * rsqrt(mean(x * x, axis = 1) + 1e-5) * gain[][:];\n"
                                       "    let g = gain * sigmoid(2 * gain);\n"
                                       "    return sum(h * mean(h, axis = 1) * g[][:] * (h * sum(x)));\n"
                                       "}\n";
    qn_module *modules[] = {load(helpers), load(by_hand)};
    static const char *const names[] = {"inside", "grad(inside)"};
    static const char *const results[] = {"result0", "d_gain"};
    float x[20], gain[5], values[2][5];
    for (int i = 0; i < 20; i++) x[i] = (float)sin(i + 1);
    for (int i = 0; i < 5; i++) gain[i] = (float)cos(i);
    for (int n = 0; n < 2; n++) {
        for (int m = 0; m < 2; m++) {
            qn_call *call = NULL;
            qn_error error;
            EXPECT(good(qn_call_new(modules[m], names[n], &call, &error), &error));
            set(call, "x", x, 2, (int64_t[]){4, 5});
            set(call, "gain", gain, 1, (int64_t[]){5});
            qn_array y = run(call, "cpu", results[n]);
            EXPECT(y.rank == n);
            for (int i = 0; i < (n ? 5 : 1) && y.data; i++) values[m][i] = ((float *)y.data)[i];
            qn_call_free(call);
        }
        for (int i = 0; i < (n ? 5 : 1); i++) EXPECT_NEAR(values[0][i], values[1][i], 1e-5 * (1 + fabs(values[1][i])));
    }
    qn_module_free(modules[0]);
    qn_module_free(modules[1]);
}

TEST(parameters_of_rank_0)
{
    qn_module *module = load(helpers);
    float x[] = {1, 2, 3}, s = 4;
    for (int d = 0; d < COUNT(devices); d++) {
        qn_call *call = NULL;
        qn_error error;
        EXPECT(good(qn_call_new(module, "scaled", &call, &error), &error));
        set(call, "x", x, 1, (int64_t[]){3});
        set(call, "s", &s, 0, NULL);
        qn_array y = run(call, devices[d], "result0"), more;
        EXPECT(y.data && ((float *)y.data)[2] == 12);
        EXPECT(good(qn_call_get(call, "result1", &more, &error), &error) && !more.rank && *(float *)more.data == 5);
        qn_call *other = NULL;
        EXPECT(good(qn_call_new(module, "numbers", &other, &error), &error));
        set(other, "x", x, 1, (int64_t[]){3});
        y = run(other, devices[d], "result0");
        EXPECT(y.data && ((float *)y.data)[2] == 12);
        EXPECT(good(qn_call_get(other, "result1", &more, &error), &error) && !more.rank && *(float *)more.data == 10);
        qn_call_free(other);
        EXPECT(qn_call_set_memory(call, "s", x, QN_F32, 1, (int64_t[]){3}, NULL, &error) == QN_BAD_CALL);
        EXPECT(strstr(error.message, "E501: array `s` has 1 axis, the parameter has 0") != NULL);
        qn_call_free(call);
    }
    qn_module_free(module);
}

TEST(on_a_tape)
{
    qn_module *module = load(helpers);
    qn_tape *tape;
    qn_error error;
    EXPECT(good(qn_tape_new(context, "cpu", &tape, &error), &error));
    qn_tensor x = qn_ones(tape, QN_F32, QN_SHAPE(2, 3, 4)), gain = qn_ones(tape, QN_F32, QN_SHAPE(4)), y, z;
    qn_call_kernel(module, "rms", NULL, (qn_tensor[]){x, gain}, 2, &y, 1);
    EXPECT(qn_tensor_rank(y) == 3);
    qn_call_kernel(module, "swish", NULL, &gain, 1, &z, 1);
    EXPECT(qn_tensor_rank(z) == 1);
    double value = 0;
    EXPECT(good(qn_tensor_item(qn_sum(y, QN_ALL, false), &value, &error), &error));
    EXPECT_NEAR(value, 24, 1e-3);
    qn_call_kernel(module, "pair", NULL, (qn_tensor[]){x, gain}, 2, &y, 1);
    EXPECT(qn_tape_error(tape, &error) != QN_OK);
    EXPECT(strstr(error.message, "all `[...]` of a function stand for the same axes") != NULL);
    qn_tape_free(tape);
    qn_module_free(module);
}

TEST(what_does_not_fit)
{
    qn_module *module = load(helpers);
    qn_call *call = NULL;
    qn_error error;
    float x[6] = {0};
    EXPECT(good(qn_call_new(module, "rms", &call, &error), &error));
    EXPECT(qn_call_set_memory(call, "x", x, QN_F32, 0, NULL, NULL, &error) == QN_BAD_CALL);
    EXPECT(strstr(error.message, "E501: array `x` has 0 axes, the parameter has at least 1") != NULL);
    qn_call_free(call);
    EXPECT(good(qn_call_new(module, "pair", &call, &error), &error));
    set(call, "a", x, 2, (int64_t[]){2, 3});
    set(call, "b", x, 2, (int64_t[]){3, 2});
    EXPECT(qn_call_run(call, "cpu", &error) == QN_BAD_CALL);
    EXPECT(strstr(error.message, "E502: `axis_0` is 2 in `a` and 3 in `b`") != NULL);
    qn_call_free(call);
    qn_module_free(module);
}

enum { MANY = 150 };

TEST(many_parameters)
{
    text words = {0};
    text_add(&words, "tensor many(");
    for (int i = 0; i < MANY; i++) text_print(&words, "float w%d[n], ", i);
    text_add(&words, "float x[n])\n{\n    let h = x;\n");
    for (int i = 0; i < MANY; i++) text_print(&words, "    h = h + %d * w%d;\n", i % 5 + 1, i);
    text_add(&words, "    return sum(h * x);\n}\n");
    qn_module *module = load(text_get(&words));
    static float w[MANY][3], x[] = {1, 2, 3};
    double expected = 14;
    for (int i = 0; i < MANY; i++)
        for (int k = 0; k < 3; k++) {
            w[i][k] = (float)((i + k) % 3);
            expected += (double)x[k] * (i % 5 + 1) * w[i][k];
        }
    static const char *const names[] = {"many", "grad(many)"};
    for (int n = 0; n < 2; n++) {
        qn_call *call = NULL;
        qn_error error;
        EXPECT(good(qn_call_new(module, names[n], &call, &error), &error));
        for (int i = 0; i < MANY; i++) {
            char name[16];
            snprintf(name, sizeof(name), "w%d", i);
            set(call, name, w[i], 1, (int64_t[]){3});
        }
        set(call, "x", x, 1, (int64_t[]){3});
        for (int d = 0; d < COUNT(devices); d++)
            for (int again = 0; again < 3; again++) { /* planned, recorded, replayed */
                qn_array y = run(call, devices[d], n ? "d_w149" : "result0");
                if (y.data && !n) EXPECT_NEAR(*(float *)y.data, expected, 1e-2);
                for (int k = 0; k < 3 && n && y.data; k++) EXPECT_NEAR(((float *)y.data)[k], 5 * x[k], 1e-5);
            }
        qn_call_free(call);
    }
    qn_module_free(module);
    text_clear(&words);
    text_add(&words, "tensor more(float x0[n]");
    for (int i = 1; i < 513; i++) text_print(&words, ", float x%d[n]", i);
    text_add(&words, ") { return x0; }\n");
    qn_error error;
    EXPECT(qn_module_load_text(context, "more.qn", text_get(&words), &module, &error) == QN_BAD_SOURCE);
    EXPECT(strstr(error.message, "E105: 513 parameters; the limit is 512") != NULL);
    text_free(&words);
}

int main(int argc, char **argv)
{
    const test_case cases[] = {CASE(one_call_with_arrays_of_every_rank),
                               CASE(a_norm_over_the_last_axis),
                               CASE(axes_are_kept_dropped_and_counted),
                               CASE(calls_inside_and_gradients),
                               CASE(parameters_of_rank_0),
                               CASE(on_a_tape),
                               CASE(what_does_not_fit),
                               CASE(many_parameters)};
    qn_error error;
    if (qn_context_open(NULL, &context, &error) != QN_OK) {
        printf("%s\n0 passed, 1 failed\n", error.message);
        return 1;
    }
    for (int i = 0; i < COUNT(cases); i++) {
        if (argc > 1 && strcmp(argv[1], cases[i].name)) continue;
        test_failures_of_case = 0;
        cases[i].run();
        if (test_failures_of_case) printf("FAILED %s\n", cases[i].name);
        *(test_failures_of_case ? &test_failed : &test_passed) += 1;
    }
    qn_context_close(context);
    printf("%d passed, %d failed\n", test_passed, test_failed);
    return test_failed != 0;
}
