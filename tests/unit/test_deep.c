/*
 * Long graphs: chains of every class of op as deep as a loop makes them, forward and backward, and graphs beside a limit
 * of a kernel (arrays, parameters, results, terms). They are cut into kernels of bounded size; nothing overflows a
 * stack, and the work grows with the length alone. Values are compared with the same in plain C.
 * SPDX-License-Identifier: MIT
 */
#include "base/base.h"
#include "own_file.h"
#include "share.h"
#include "test.h"

#include <quern/nn.h>
#include <quern/tensor.h>
#include <quern/workbench.h>
#include <stdlib.h>

static qn_context *context;

static qn_tape *tape_on(const char *device, qn_mode mode)
{
    qn_error error;
    qn_tape *tape = NULL;
    if (!context) EXPECT(!qn_context_open(NULL, &context, &error));
    EXPECT(!qn_tape_new(context, device, &tape, &error));
    qn_tape_set_mode(tape, mode);
    return tape;
}

/* The first and last of eight elements. */
static void read_ends(qn_tensor t, double *first, double *last, int line)
{
    qn_error error;
    float values[8] = {0};
    if (qn_tensor_read(t, values, sizeof(values), &error)) {
        printf("%s\n", error.message);
        test_fail(__FILE__, line, "it cannot be read");
    }
    *first = values[0];
    *last = values[7];
}

static const float start[8] = {1, 2, 3, 4, 0.1F, 0.2F, 0.3F, 0.4F};

typedef enum chain_kind { CHEAP, BY_LEAVES, VIEWS, MIXED, COSTLY, FOLDS, PRODUCTS, PADS, CHAIN_KINDS } chain_kind;

static qn_tensor chain(qn_tape *tape, qn_tensor y, chain_kind kind, int length)
{
    qn_tensor small = qn_from_memory(tape, start + 4, QN_F32, QN_SHAPE(2));
    qn_tensor matrix = qn_from_memory(tape, start + 4, QN_F32, QN_SHAPE(2, 2));
    for (int i = 0; i < length; i++) {
        switch (kind) {
        case CHEAP: y = qn_add_scalar(qn_mul_scalar(y, 0.5), 1); break;
        case BY_LEAVES: y = qn_add(qn_mul(y, qn_sigmoid(small)), small); break;
        case VIEWS: y = qn_transpose(qn_reshape(y, QN_SHAPE(2, 4)), 0, 1); break;
        case MIXED: y = qn_add_scalar(qn_transpose(qn_reshape(qn_mul_scalar(y, 0.5), QN_SHAPE(2, 4)), 0, 1), 1); break;
        case COSTLY: y = qn_sin(y); break;
        case FOLDS: y = qn_sub(y, qn_mean(y, QN_ALL, false)); break;
        case PRODUCTS: y = qn_matmul(y, matrix); break;
        default: y = qn_slice(qn_pad(y, (qn_shape){2, {1, 0}}, (qn_shape){2, {0, 0}}, 3), 0, 0, 4, 1); break;
        }
    }
    return y;
}

/* The same with numbers: eight of them as [4][2]. */
static void chain_of_numbers(double *y, chain_kind kind, int length)
{
    for (int i = 0; i < length; i++) {
        double old[8], mean = 0;
        memcpy(old, y, sizeof(old));
        for (int k = 0; k < 8; k++) mean += old[k] / 8;
        for (int k = 0; k < 8; k++) {
            double small = start[4 + k % 2];
            int turned = k % 2 * 4 + k / 2; /* element [k / 2][k % 2] of the transpose of [2][4] */
            switch (kind) {
            case CHEAP: y[k] = old[k] * 0.5 + 1; break;
            case BY_LEAVES: y[k] = old[k] / (1 + exp(-small)) + small; break;
            case VIEWS: y[k] = old[turned]; break;
            case MIXED: y[k] = old[turned] * 0.5 + 1; break;
            case COSTLY: y[k] = sin(old[k]); break;
            case FOLDS: y[k] = old[k] - mean; break;
            case PRODUCTS: y[k] = old[k / 2 * 2] * start[4 + k % 2] + old[k / 2 * 2 + 1] * start[6 + k % 2]; break;
            default: y[k] = k < 2 ? 3 : old[k - 2]; break;
            }
        }
    }
}

static void expect_chain(const char *device, qn_mode mode, chain_kind kind, int length)
{
    qn_tape *tape = tape_on(device, mode);
    double expected[8], first, last;
    for (int k = 0; k < 8; k++) expected[k] = start[k];
    chain_of_numbers(expected, kind, length);
    read_ends(chain(tape, qn_from_memory(tape, start, QN_F32, QN_SHAPE(4, 2)), kind, length), &first, &last, __LINE__);
    bool near = fabs(first - expected[0]) < 1e-4 && fabs(last - expected[7]) < 1e-4;
    if (!near) printf("kind %d, %s, mode %d: %g and %g\n", kind, device, mode, first, last);
    EXPECT(near);
    qn_tape_free(tape);
}

TEST(chains)
{
    int shorter = share_of_few("steps of a chain");
    for (int kind = 0; kind < CHAIN_KINDS; kind++) {
        expect_chain("ref", QN_FUSED, (chain_kind)kind, (kind == FOLDS || kind == PRODUCTS ? 400 : 1500) / shorter);
        expect_chain("ref", QN_EAGER, (chain_kind)kind, 200 / shorter);
        expect_chain("ref", QN_STRICT, (chain_kind)kind, 200 / shorter);
    }
    expect_chain("cpu", QN_FUSED, CHEAP, 3000 / shorter);
}

TEST(long_chains)
{
    int length = 20000 / share_of_few("steps of a chain");
    expect_chain("ref", QN_FUSED, CHEAP, length);
    expect_chain("ref", QN_FUSED, VIEWS, length);
}

/* The gradient of sin of sin of ... */
static void expect_gradient(int length, bool checkpoints)
{
    qn_tape *tape = tape_on("ref", QN_FUSED);
    qn_tensor x = qn_from_memory(tape, start, QN_F32, QN_SHAPE(4, 2)), y = x, gradient;
    double value = start[7], expected = 1, first, last;
    for (int i = 0; i < length; i++) {
        y = qn_sin(y);
        if (checkpoints && i % 100 == 99) y = qn_checkpoint(y);
        expected *= cos(value);
        value = sin(value);
    }
    qn_grad(qn_sum(y, QN_ALL, false), &x, 1, &gradient);
    read_ends(gradient, &first, &last, __LINE__);
    EXPECT_NEAR(last, expected, 1e-4);
    qn_tape_free(tape);
}

TEST(gradients)
{
    int length = 800 / share_of_few("steps of a chain");
    expect_gradient(length, false);
    expect_gradient(length, true);
}

/* Loops of a tensor function are unrolled. */
TEST(functions)
{
    static const char text[] =
        "tensor t(float x[n]) { let h = x; for (int i = 0; i < 1500; i++) h = h * 0.5 + 1; return h; }\n"
        "tensor u(float x[n]) { let h = x; for (int i = 0; i < 300000; i++) h = h + 1; return h; }\n";
    qn_error error = {0};
    qn_module *module = NULL;
    qn_call *call = NULL;
    qn_array result;
    float x[4] = {1, 2, 3, 4};
    int64_t n = 4;
    if (!context) EXPECT(!qn_context_open(NULL, &context, &error));
    EXPECT(!qn_module_load_text(context, "loop.qn", text, &module, &error));
    EXPECT(!qn_call_new(module, "t", &call, &error));
    EXPECT(!qn_call_set_memory(call, "x", x, QN_F32, 1, &n, NULL, &error));
    EXPECT(!qn_call_run(call, "cpu", &error));
    EXPECT(!qn_call_get(call, "result0", &result, &error));
    EXPECT_NEAR(((const float *)result.data)[3], 2, 1e-5);
    qn_call_free(call);
    EXPECT(qn_call_new(module, "u", &call, &error) || qn_call_set_memory(call, "x", x, QN_F32, 1, &n, NULL, &error) ||
           qn_call_run(call, "cpu", &error));
    EXPECT(strstr(error.message, "more than 200000 statements"));
    qn_call_free(call);
    qn_module_free(module);
}

/* ---- beside a limit ---- */

static double sum_of(qn_tensor t, int line)
{
    qn_error error;
    double value = NAN;
    if (qn_tensor_item(qn_sum(qn_cast(t, QN_F64), QN_ALL, false), &value, &error)) {
        printf("%s\n", error.message);
        test_fail(__FILE__, line, "it cannot be read");
    }
    return value;
}

TEST(many_arrays)
{
    for (int mode = QN_FUSED; mode <= QN_STRICT; mode++) {
        qn_tape *tape = tape_on("ref", (qn_mode)mode);
        qn_tensor sum = qn_zeros(tape, QN_F32, QN_SHAPE(5)), parts[70], joined[70], outputs[70];
        for (int i = 0; i < 70; i++) {
            float data[5] = {(float)i, 1, 2, 3, 4};
            parts[i] = qn_from_memory(tape, data, QN_F32, QN_SHAPE(5));
            sum = qn_add(sum, parts[i]);
            joined[i] = qn_reshape(parts[i], QN_SHAPE(1, 1, 1, 5, 1, 1, 1, 1));
        }
        EXPECT_NEAR(sum_of(sum, __LINE__), 70 * 10 + 69 * 35, 0);
        for (int axis = 0; axis < 8; axis++)
            EXPECT_NEAR(sum_of(qn_concat(joined, 70, axis), __LINE__), 70 * 10 + 69 * 35, 0);
        for (int i = 0; i < 70; i++) outputs[i] = qn_mul_scalar(qn_sin(parts[0]), i);
        qn_error error;
        EXPECT(!qn_eval(tape, outputs, 70, &error));
        EXPECT_NEAR(sum_of(outputs[69], __LINE__), 69 * (sin(1) + sin(2) + sin(3) + sin(4)), 1e-4);
        qn_tape_free(tape);
    }
}

/* Numbers of a kernel are parameters of it. */
TEST(many_numbers)
{
    qn_tape *tape = tape_on("ref", QN_FUSED);
    qn_tensor x = qn_from_memory(tape, start, QN_F32, QN_SHAPE(8)), y = x;
    for (int i = 0; i < 100; i++) y = qn_add_scalar(y, 10 + 3 * i);
    EXPECT_NEAR(sum_of(y, __LINE__), 11 + 8 * (1000.0 + 3 * 4950), 1);
    qn_tape_free(tape);
}

/* Each step reads the one before at two places: 2^n ways lead through the graph. */
TEST(many_ways)
{
    qn_tape *tape = tape_on("ref", QN_FUSED);
    qn_tensor x = qn_from_memory(tape, start, QN_F32, QN_SHAPE(8)), y = x, z = qn_reshape(x, QN_SHAPE(2, 4));
    for (int i = 0; i < 24; i++)
        y = qn_concat((qn_tensor[]){qn_slice(y, 0, 1, QN_END, 1), qn_slice(y, 0, 0, 1, 1)}, 2, 0);
    double first, last;
    read_ends(y, &first, &last, __LINE__);
    EXPECT_NEAR(first, 1, 0);
    for (int i = 0; i < 60; i++) z = qn_minimum_scalar(qn_mul(z, z), 1); /* an operand of a product */
    EXPECT_NEAR(sum_of(qn_matmul(z, qn_transpose(z, 0, 1)), __LINE__), 4, 1e-6);
    for (int i = 0; i < 40; i++) y = qn_sub(y, qn_mul_scalar(qn_flip(y, QN_AXES(0)), 0.5));
    EXPECT(isfinite(sum_of(y, __LINE__)));
    qn_tape_free(tape);
}

static void collect(void *user, const char *words, size_t length)
{
    text_add_bytes(user, words, length);
}

static void write_source(const char *words)
{
    FILE *file = fopen(own_file("ways.qn"), "w");
    EXPECT(file != NULL);
    if (file) fputs(words, file), fclose(file);
}

/* The same between the products of attention, in the text for a GPU. */
TEST(many_ways_through_scores)
{
    qn_error error;
    text source = {0}, out = {0};
    text_add(&source, "tensor scored(bf16 q[4][128][64], bf16 k[4][128][64], bf16 v[4][128][64]) {\n"
                      "  let s0 = matmul(q, transpose(k));\n");
    for (int i = 0; i < 40; i++) text_print(&source, "  let s%d = s%d * tanh(s%d);\n", i + 1, i, i);
    text_add(&source, "  return matmul(softmax(s40, axis = 2), v);\n}\n");
    write_source(text_get(&source));
    if (!context) EXPECT(!qn_context_open(NULL, &context, &error));
    qn_show_options options = {.stage = "cuda", .device = "cuda", .arch = "sm_90a"};
    EXPECT(!qn_show(context, own_file("ways.qn"), "scored", &options, collect, &out, &error));
    EXPECT(strstr(text_get(&out), "wgmma"));
    remove(own_file("ways.qn"));
    text_free(&source);
    text_free(&out);
}

/* Before, each of sixty steps (`#` is its number, `@` that before), after: wherever something asks what a value is computed from. */
#define KERNEL(launch)                                                                                           \
    "kernel ways(in float x[n], in float m[n][k], out float y[n], out float w[n][k], const int B = 64)  launch " \
    "(" launch ") { int p = program(0) * B; "
#define ATTENTION "tensor ways(bf16 q[4][128][64], bf16 k[4][128][64], bf16 v[4][128][64], "
static const char *const programs[][3] = {
    {KERNEL("cdiv(n, B)") "tile int a = iota(B); tile int b = a + k;", "tile int z# = a + b; a = b; b = z#;",
     "y[p : B] = x[b]; }"},
    {KERNEL("cdiv(n, B)") "tile int a = iota(B); tile int b = a + k;", "tile int z# = a - b; a = b; b = z#;",
     "y[p : B] = b < n ? x[p : B] : 0; }"},
    {KERNEL("cdiv(n, B)") "tile int a[B][16] = iota(B)[:][] + p;", "a = where(a > 3, a * 3, a + 1);",
     "w[p : B][0 : 16] = where(a < n, m[p : B][0 : 16], 0); }"},
    {KERNEL("cdiv(n, B)") "tile int i = iota(B); tile bool a = i < n; tile bool b = i < k;",
     "tile bool z# = a & b & (i != #); a = b; b = z#;", "y[p : B] = sum(where(b, x[p : B], 0)); }"},
    {KERNEL("n") "bool a = n > 5; bool b = k > 3;", "bool z# = a & b & (p != #); a = b; b = z#;",
     "if (b) { y[program(0)] = x[program(0)]; } }"},
    {KERNEL("n") "bool a = n > 5; bool b = k > 3;", "bool z# = a && b && (p != #); a = b; b = z#;",
     "if (b) { y[program(0)] = x[program(0)]; } }"},
    {KERNEL("n") "bool a = n > 5; bool b = k > 3;", "bool z# = a | b | (p == #); a = b; b = z#;",
     "if (!b) { y[program(0)] = x[program(0)]; } }"},
    {KERNEL("n") "int a = k;", "a = a % 7 + a / 3;",
     "tile float v = m[program(0)][0 : min(max(a, 1), k)]; w[program(0)][0 : min(max(a, 1), k)] = v - max(v); }"},
    {"kernel ways(in float x[n], out float y[n], const int C0 = 64", ", const int C# = C@ % 65 + C@ % 2",
     ") launch (n) { y[program(0)] = x[program(0)]; }"},
    {"tensor ways(float x[n][k], float z[n][k]) { let a = x; let b = z;", "let t# = a * b; a = b; b = t#;",
     "return sum(b, axis = 1); }"},
    {ATTENTION "bool a[128][128], bool b[128][128]) {", "let z# = a & b; a = b; b = z#;",
     "let s = where(b[][:][:], float(matmul(q, transpose(k))), -inf); return matmul(bf16(softmax(s, axis = 2)), v); }"},
    {ATTENTION "bool a[128], bool b[128]) {", "let z# = a ^ b; a = b; b = z#;",
     "let s = where(b[][][:], float(matmul(q, transpose(k))), -inf); return matmul(bf16(softmax(s, axis = 2)), v); }"},
};

TEST(many_ways_through_programs)
{
    qn_error error;
    if (!context) EXPECT(!qn_context_open(NULL, &context, &error));
    for (int i = 0; i < COUNT(programs); i += share_of_few("programs")) {
        text source = {0};
        text_add(&source, programs[i][0]);
        for (int step = 1; step <= 60; step++)
            for (const char *c = programs[i][1]; *c; c++) {
                if (*c == '#' || *c == '@')
                    text_print(&source, "%d", step - (*c == '@'));
                else
                    text_add_bytes(&source, c, 1);
            }
        text_add(&source, programs[i][2]);
        write_source(text_get(&source));
        for (int cuda = 0; cuda < 2; cuda++) {
            qn_show_options options = {.stage = cuda ? "cuda" : "c", .arch = cuda ? "sm_90a" : NULL};
            text out = {0};
            EXPECT(!qn_show(context, own_file("ways.qn"), "ways", &options, collect, &out, &error));
            text_free(&out);
        }
        text_free(&source);
    }
    remove(own_file("ways.qn"));
}

TEST_MAIN(CASE(chains), CASE(long_chains), CASE(gradients), CASE(functions), CASE(many_arrays), CASE(many_numbers),
          CASE(many_ways), CASE(many_ways_through_scores), CASE(many_ways_through_programs))
