/*
 * What follows a product that is fed by bulk copies, on its sums: loads, results of several types, curves as near as their result
 * asks for, long arithmetic in a loop over parts of the sums.
 * SPDX-License-Identifier: MIT
 */
#include "fed_run.h"

TEST(what_follows)
{
    EXPECT(is_fed("epilogue", "M=66 N=136 K=72 T=bf16"));
    EXPECT(is_fed("bytes", "M=66 N=72 K=72 T=bf16"));
    char *words = show(FILE_PATH, "epilogue", "schedule", "M=66 N=136 K=72 T=bf16"); /* a tile as large as the sums */
    EXPECT(strstr(words, "bulk rest[16, 64] > in, before the products\n") != NULL);
    free(words);
    {
        const int64_t m = 66, n = 136, k = 72;
        array arrays[] = {{.name = "a", .elem = DT_BF16, .rank = 2, .extents = {m, k}},
                          {.name = "b", .elem = DT_BF16, .rank = 2, .extents = {k, n}},
                          {.name = "bias", .elem = DT_BF16, .rank = 1, .extents = {n}},
                          {.name = "rest", .elem = DT_BF16, .rank = 2, .extents = {m, n}},
                          {.name = "scale", .elem = DT_F32, .rank = 1, .extents = {m}},
                          {.name = "sum", .elem = DT_F32, .rank = 2, .extents = {m, n}},
                          {.name = "c", .elem = DT_BF16, .rank = 2, .extents = {m, n}}};
        compare("epilogue", arrays, 7, 2, DT_BF16);
    }
    run_plain("bytes", DT_BF16, DT_I8, false, false, 66, 72, 72);
}

/* Parts of the sums come one by one to where the first was, of several rows of blocks and columns. */
TEST(what_follows_is_long)
{
    static const struct {
        const char *settings;
        dtype elem;
        int64_t m, n;
    } cases[] = {{"M=66 N=136 K=72 T=bf16", DT_BF16, 66, 136}, {"M=130 N=400 K=72 T=f16", DT_F16, 130, 400}};
    for (int i = 0; i < COUNT(cases); i++) {
        const int64_t m = cases[i].m, n = cases[i].n, k = 72;
        char *words = show(FILE_PATH, "long_curve", "schedule", cases[i].settings);
        EXPECT(strstr(words, "epilogue in a loop over parts of the sums"));
        free(words);
        array arrays[] = {{.name = "a", .elem = cases[i].elem, .rank = 2, .extents = {m, k}},
                          {.name = "b", .elem = cases[i].elem, .rank = 2, .extents = {k, n}},
                          {.name = "bias", .elem = DT_F32, .rank = 1, .extents = {n}},
                          {.name = "rest", .elem = DT_F32, .rank = 2, .extents = {m, n}},
                          {.name = "sum", .elem = DT_F32, .rank = 2, .extents = {m, n}},
                          {.name = "c", .elem = cases[i].elem, .rank = 2, .extents = {m, n}}};
        compare("long_curve", arrays, 6, 2, cases[i].elem);
    }
    char *words = show(FILE_PATH, "long_curve", "cuda", cases[0].settings);
    EXPECT(strstr(words, "= sums[0][pair * 2 + v];"));
    free(words);
}

/* A curve whose result is rounded to bf16 is as near as its rounding asks for: within one step of bf16, wherever it lies;
 * a bias is asked for before the products. f16 has three bits more. */
TEST(curves_of_results_in_bf16)
{
    static const struct {
        const char *settings;
        bool near;
    } cases[] = {{"M=64 N=64 K=64 T=bf16", true}, {"M=64 N=64 K=64 T=f16", false}};
    for (int i = 0; i < COUNT(cases); i++) {
        char *words = show(FILE_PATH, "curved", "cuda", cases[i].settings);
        EXPECT((strstr(words, " = near_gelu_f32(") != NULL) == cases[i].near);
        const char *text = strstr(words, "__global__"), *asked = text ? strstr(text, " = ask_u32(") : NULL;
        const char *product = text ? strstr(text, "matrix_commit();") : NULL;
        EXPECT(asked && product && asked < product);
        free(words);
    }
    enum { COLUMNS = 1000 };
    uint16_t a[8] = {0}, b[8 * COLUMNS] = {0}, bias[COLUMNS], c[COLUMNS];
    double x[COLUMNS];
    for (int i = 0; i < COLUMNS; i++) {
        element_write(DT_BF16, (char *)&bias[i], (number){.f = i < 990 ? (i - 700) / 64.0 : (i - 995) * 100.0});
        x[i] = bf16_to_double(bias[i]);
    }
    qn_error error;
    qn_call *call;
    EXPECT(qn_call_new(module, "curved", &call, &error) == QN_OK);
    bool good = qn_call_set_memory(call, "a", a, QN_BF16, 2, (int64_t[]){1, 8}, NULL, &error) == QN_OK &&
                qn_call_set_memory(call, "b", b, QN_BF16, 2, (int64_t[]){8, COLUMNS}, NULL, &error) == QN_OK &&
                qn_call_set_memory(call, "bias", bias, QN_BF16, 1, (int64_t[]){COLUMNS}, NULL, &error) == QN_OK &&
                qn_call_set_memory(call, "c", c, QN_BF16, 2, (int64_t[]){1, COLUMNS}, NULL, &error) == QN_OK &&
                qn_call_run(call, "emu", &error) == QN_OK;
    EXPECT(good);
    if (!good) printf("%s\n", error.message);
    for (int i = 0; i < COLUMNS; i++) {
        double want = x[i] * 0.5 * erfc(-x[i] * 0.70710678118654752), got = bf16_to_double(c[i]);
        EXPECT(fabs(got - want) <= fabs(want) / 250 + 1e-9);
    }
    qn_call_free(call);
}

TEST_MAIN(CASE(open_module), CASE(what_follows), CASE(what_follows_is_long), CASE(curves_of_results_in_bf16), CASE(close_module))
