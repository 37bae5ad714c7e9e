/*
 * Tensor functions: traced without a device and computed by the graph interpreter, against plain C. Every form of the
 * language's section on them, the programs of its appendix, and gradients against central differences.
 * SPDX-License-Identifier: MIT
 */
#include "function_text.h"

TEST(operators_and_broadcasting)
{
    graph_tensor r;
    traced *t = expression("(x + y[][:] * 2 - 1) / (x * x + 1)", &r);
    const float *x = floats(t, "x"), *y = floats(t, "y");
    EXPECT(has_shape(&r, 2, 3, 4, 0));
    for (int i = 0; i < 12 && r.elements; i++)
        EXPECT_NEAR(at(&r, i), (x[i] + y[i % 4] * 2.0 - 1) / ((double)x[i] * x[i] + 1), 1e-12);
    traced_close(t);
    t = expression("-x % 0.3 + (x > 0 ? x : 0.5 * x) + where(x < y[][:] && !(x == 0), 1, 2)", &r);
    x = floats(t, "x"), y = floats(t, "y");
    for (int i = 0; i < 12 && r.elements; i++) {
        double third = 0.3f, m = -x[i] - third * floor(-x[i] / third);
        EXPECT_NEAR(at(&r, i), m + (x[i] > 0 ? x[i] : 0.5 * x[i]) + (x[i] < y[i % 4] && x[i] != 0 ? 1 : 2), 1e-6);
    }
    traced_close(t);
    t = expression("(k << 2 | 1) / 2 % 3 + 7 - (-k) * i64(1.9)", &r);
    EXPECT(r.elem == DT_I64);
    for (int i = 0; i < 5 && r.elements; i++) EXPECT(r.elements[i].i == ((i % 3) << 2 | 1) / 2 % 3 + 7 + i % 3);
    traced_close(t);
}

TEST(brackets_slices_and_gathers)
{
    graph_tensor r;
    traced *t = expression("x[1 : 2][0 : 2 : 2]", &r);
    const float *x = floats(t, "x"), *y = floats(t, "y");
    EXPECT(has_shape(&r, 2, 2, 2, 0));
    for (int i = 0; i < 4 && r.elements; i++) EXPECT(at(&r, i) == x[(1 + i / 2) * 4 + i % 2 * 2]);
    traced_close(t);
    t = expression("x[2][:][] * y[:][]", &r);
    x = floats(t, "x"), y = floats(t, "y");
    EXPECT(has_shape(&r, 2, 4, 1, 0));
    for (int i = 0; i < 4 && r.elements; i++) EXPECT_NEAR(at(&r, i), (double)x[8 + i] * y[i], 1e-12);
    traced_close(t);
    t = expression("y[3 : 4 : -1]", &r);
    y = floats(t, "y");
    for (int i = 0; i < 4 && r.elements; i++) EXPECT(at(&r, i) == y[3 - i]);
    traced_close(t);
    t = expression("x[k][1 : 3]", &r);
    x = floats(t, "x");
    EXPECT(has_shape(&r, 2, 5, 3, 0));
    for (int i = 0; i < 15 && r.elements; i++) EXPECT(at(&r, i) == x[i / 3 % 3 * 4 + 1 + i % 3]);
    traced_close(t);
    t = expression("x[k][k + 1]", &r); /* they pair up */
    x = floats(t, "x");
    EXPECT(has_shape(&r, 1, 5, 0, 0));
    for (int i = 0; i < 5 && r.elements; i++) EXPECT(at(&r, i) == x[i % 3 * 4 + i % 3 + 1]);
    traced_close(t);
    t = expression("reshape(x, 3, 2, 2)[k[:][]][:][k[][0 : 2]]", &r); /* and broadcast, and stand in the first place */
    x = floats(t, "x");
    EXPECT(has_shape(&r, 3, 5, 2, 2));
    for (int i = 0; i < 20 && r.elements; i++) EXPECT(at(&r, i) == x[i / 4 % 3 * 4 + i % 2 * 2 + i / 2 % 2]);
    traced_close(t);
}

TEST(reductions)
{
    graph_tensor r;
    traced *t = expression("x - mean(x, axis = 1)", &r);
    const float *x = floats(t, "x");
    for (int i = 0; i < 12 && r.elements; i++) {
        int row = i / 4 * 4;
        EXPECT_NEAR(at(&r, i), x[i] - ((double)x[row] + x[row + 1] + x[row + 2] + x[row + 3]) / 4, 1e-9);
    }
    traced_close(t);
    t = expression("sum(x, axis = {0, 1}) + max(x) - min(x, axis = -1)[0 : 1][:]", &r);
    EXPECT(has_shape(&r, 2, 1, 1, 0));
    traced_close(t);
    t = expression("sum(k) * count(k) + argmax(y) + i64(any(k > 1)) + prod(k + 1)", &r);
    EXPECT(r.elem == DT_I64 && r.shape.rank == 0);
    traced_close(t);
    t = expression("cumsum(x, axis = 1) + cumsum(y)[][:]", &r);
    EXPECT(has_shape(&r, 2, 3, 4, 0));
    traced_close(t);
}

TEST(types)
{
    const char *words = "tensor f(bf16 a[n], float b[n], i32 i[n], float s, int k) {"
                        "  return a * s, a + b, a + k, i * k, i + 0.5, mean(a), a / 3, f16(b) + a, exp(i); }\n";
    static const dtype expected[] = {DT_BF16, DT_F32, DT_BF16, DT_I32, DT_F32, DT_BF16, DT_BF16, DT_F32, DT_F32};
    traced *t = traced_open("test.qn", words);
    traced_set(t, "k", 3);
    bindings_set(t->memory, &t->known, (binding){.name = "s", .kind = BIND_FLOAT, .type = DT_F32, .number.f = 0.5});
    EXPECT(traced_bind(t, "f"));
    fill(t);
    graph_tensor *r = compute(t, false);
    EXPECT(t->count == COUNT(expected));
    for (int i = 0; i < COUNT(expected); i++) EXPECT(r[i].elem == expected[i]);
    traced_close(t);
}

TEST(scalar_functions)
{
    const char *words = "float leaky(float x, float slope) { if (x >= 0) return x; return slope * x; }\n"
                        "T cube(T x) { return x * x * x; }\n"
                        "float apply(float x, const float g(float) = relu) { return g(x) + 1; }\n"
                        "float steps(float x) {"
                        "  float s = 0; for (int i = 0; i < 3; i++) { if (x > i * 0.25) s += 1; else s -= x; }"
                        "  return s; }\n"
                        "tensor f(float x[n], bf16 h[n]) { return leaky(x, 0.1), cube(h), steps(x), apply(x, cube), "
                        "leaky(2, 3) + x; }\n";
    traced *t = start(words, "f");
    graph_tensor *r = compute(t, false);
    const float *x = floats(t, "x");
    EXPECT(t->count == 5 && r[1].elem == DT_BF16);
    for (int i = 0; i < 3 && r[4].elements; i++) {
        double s = 0;
        for (int k = 0; k < 3; k++) s = x[i] > k * 0.25 ? s + 1 : s - x[i];
        EXPECT_NEAR(at(&r[0], i), x[i] >= 0 ? x[i] : (double)0.1f * x[i], 1e-9);
        EXPECT_NEAR(at(&r[2], i), s, 1e-9);
        EXPECT_NEAR(at(&r[3], i), (double)x[i] * x[i] * x[i] + 1, 1e-9);
        EXPECT_NEAR(at(&r[4], i), x[i] + 2.0, 1e-9);
    }
    traced_close(t);
}

TEST(statements)
{
    const char *words = "const int TWO = 2;\n"
                        "tensor both(float x[n]) { return x + 1, x - 1; }\n"
                        "tensor inner(float x[n], const int K = 3) { let r = x; for (int i = 0; i < K; i++) r *= 2; "
                        "return r; }\n"
                        "tensor f(float x[n], int k = 2, float s = 0.5) {\n"
                        "  assume(n > 2);\n"
                        "  int half = n / TWO;\n"
                        "  float scale = s * half;\n"
                        "  const int FOUR = 2 * TWO;\n"
                        "  let (a, b) = both(x);\n"
                        "  let h = a * b;\n"
                        "  if (k > 1) { h = h + scale; } else { h = x[0 : 1]; }\n"
                        "  for (int i = FOUR; i > 0; i -= 2) { if (i == 2) continue; h += i; }\n"
                        "  return both(h + inner(x, K = 1) + inner(x));\n"
                        "}\n";
    traced *t = start(words, "f");
    graph_tensor *r = compute(t, false);
    const float *x = floats(t, "x");
    EXPECT(t->count == 2 && function_result_count(t->file, t->item) == 2);
    for (int i = 0; i < 3 && r[1].elements; i++) {
        double h = ((double)x[i] + 1) * ((double)x[i] - 1) + 0.5 + 4 + 2.0 * x[i] + 8.0 * x[i];
        EXPECT_NEAR(at(&r[0], i), h + 1, 1e-9);
        EXPECT_NEAR(at(&r[1], i), h - 1, 1e-9);
    }
    traced_close(t);
}

TEST(random_numbers_are_those_of_the_language)
{
    const char *words = "tensor f(float x[n]) { return rand(7, 0, iota(n)), randn(7, 4, iota(n)), "
                        "philox(7, 1, iota(n), 2); }\n";
    traced *t = start(words, "f");
    graph_tensor *r = compute(t, false);
    for (int i = 0; i < 3 && r[2].elements; i++) {
        uint32_t first[4], second[4];
        philox_words(7, 0, (uint64_t)i, first);
        philox_words(7, 1, (uint64_t)i, second);
        EXPECT_NEAR(at(&r[0], i), (first[0] >> 8) * 0x1p-24, 1e-9);
        double a = second[0] * 0x1p-32 + 0x1p-33, b = second[1] * 0x1p-32 + 0x1p-33;
        EXPECT_NEAR(at(&r[1], i), sqrt(-2 * log(a)) * sin(6.28318530717958647692 * b), 1e-5);
        EXPECT(r[2].elements[i].i == second[2]);
    }
    traced_close(t);
}

/* Programs that are wrong in any way give diagnostics, and never more. */
static void trace_all(const char *words)
{
    traced *first = traced_open("wrong.qn", words);
    for (int i = 0; i < first->file->items.count && !first->d.errors; i++) {
        const ast *item = first->file->items.items[i];
        for (int gradient = 0; gradient < 2 && item->kind == AST_TENSOR; gradient++) {
            traced *t = traced_open("wrong.qn", words);
            if (traced_bind(t, item->name) && !traced_run(t, gradient)) EXPECT(t->d.errors > 0);
            traced_close(t);
        }
    }
    traced_close(first);
}

TEST(mutated_programs)
{
    static const char *const files[] = {"/tests/programs/a10_tensor.qn", "/tests/errors/tensor_shapes.qn",
                                        "/tests/errors/tensor_calls.qn"};
    static const char *const tokens[] = {"x",
                                         "[:]",
                                         "[]",
                                         "[0]",
                                         "[1 : 2]",
                                         "(",
                                         ")",
                                         "0",
                                         "-1",
                                         "3",
                                         "1.5",
                                         "n",
                                         "x[n]",
                                         "+",
                                         "*",
                                         "==",
                                         "?",
                                         ":",
                                         "axis = 1",
                                         "axis = {0, 1}",
                                         "sum",
                                         "grad",
                                         "softmax",
                                         "reshape",
                                         "matmul",
                                         "float",
                                         "T",
                                         "bf16",
                                         "i32",
                                         "let",
                                         "return",
                                         "for",
                                         "if",
                                         "const int",
                                         ",",
                                         ";",
                                         "1000000000000",
                                         "iota(n)",
                                         "{",
                                         "}"};
    uint64_t state = 1;
    for (int f = 0; f < COUNT(files); f++) {
        char path[1024], *words = NULL;
        size_t length;
        qn_error error;
        snprintf(path, sizeof(path), QUERN_ROOT "%s", files[f]);
        if (file_read(path, 1 << 20, &words, &length, &error) != QN_OK) continue;
        for (int round = 0; round < 300; round++) {
            text changed = {0};
            for (size_t i = 0; i < length;) { /* one word in a few hundred becomes another */
                size_t word = strcspn(words + i, " \n[](){};,");
                word = word ? word : 1;
                state = state * 6364136223846793005u + 1442695040888963407u;
                if ((state >> 33) % 300)
                    text_add_bytes(&changed, words + i, word);
                else
                    text_add(&changed, tokens[(state >> 40) % COUNT(tokens)]);
                i += word;
            }
            trace_all(text_get(&changed));
            text_free(&changed);
        }
        free(words);
    }
}

TEST_MAIN(CASE(operators_and_broadcasting), CASE(brackets_slices_and_gathers), CASE(reductions), CASE(types),
          CASE(scalar_functions), CASE(statements), CASE(random_numbers_are_those_of_the_language),
          CASE(mutated_programs))
