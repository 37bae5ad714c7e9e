/*
 * Tensor functions and kernels as ops, run: through calls of a module (modes, gradients, arrays that change, replay,
 * strided results, mistakes) and from C on a tape (kernels with gradients, functions); the appendix's attention block
 * and training step against plain C. On ref and cpu.
 * SPDX-License-Identifier: MIT
 */
#include "test.h"

#include <math.h>
#include <quern/nn.h>
#include <stdlib.h>

static qn_context *context;
static const char *const devices[] = {"ref", "cpu"};
enum { DEVICES = 2 };

static double noise(int seed, int i)
{
    uint64_t x = (uint64_t)(i + 1) * 0x9e3779b97f4a7c15u + (uint64_t)seed * 0xbf58476d1ce4e5b9u;
    x ^= x >> 29;
    x *= 0x94d049bb133111ebu;
    x ^= x >> 32;
    return (double)(x >> 11) * 0x1p-53 * 2 - 1;
}

static bool good(qn_status status, const qn_error *error)
{
    if (status != QN_OK) printf("%s\n", error->message);
    return status == QN_OK;
}

static qn_module *load(const char *words)
{
    qn_module *module = NULL;
    qn_error error;
    EXPECT(good(qn_module_load_text(context, "test.qn", words, &module, &error), &error));
    return module;
}

static qn_call *call_of(qn_module *module, const char *name)
{
    qn_call *call = NULL;
    qn_error error;
    EXPECT(good(qn_call_new(module, name, &call, &error), &error));
    return call;
}

static void set(qn_call *call, const char *name, float *data, int rank, int64_t a, int64_t b)
{
    qn_error error;
    EXPECT(good(qn_call_set_memory(call, name, data, QN_F32, rank, (int64_t[]){a, b}, NULL, &error), &error));
}

static const float *run(qn_call *call, const char *device, const char *result, int64_t count)
{
    static const float nothing[4096];
    qn_error error;
    qn_array array = {0};
    if (!good(qn_call_run(call, device, &error), &error) || !good(qn_call_get(call, result, &array, &error), &error)) {
        EXPECT(!"it runs");
        return nothing;
    }
    int64_t elements = 1;
    for (int k = 0; k < array.rank; k++) elements *= array.extents[k];
    EXPECT(elements == count);
    return elements == count ? array.data : nothing;
}

static const char *const simple = "tensor f(float x[m][n], float b[n], float s = 2) {\n"
                                  "  let y = s * x + b[][:];\n"
                                  "  return y, sum(y * y);\n"
                                  "}\n"
                                  "tensor loss(float x[m][n], float b[n]) { let (y, l) = f(x, b, 3); return l; }\n"
                                  "tensor cut(float x[m][n], int k) { return x[0 : k][:]; }\n";

TEST(values_in_all_modes)
{
    enum { M = 5, N = 7 };
    static const char *const names[] = {"f", "fused f", "eager f", "strict f"};
    qn_module *module = load(simple);
    float x[M * N], b[N];
    for (int i = 0; i < M * N; i++) x[i] = (float)noise(1, i);
    for (int i = 0; i < N; i++) b[i] = (float)noise(2, i);
    for (int d = 0; d < DEVICES; d++)
        for (int k = 0; k < 4; k++) {
            qn_call *call = call_of(module, names[k]);
            set(call, "x", x, 2, M, N);
            set(call, "b", b, 1, N, 0);
            const float *y = run(call, devices[d], "result0", M * N);
            double l = 0;
            for (int i = 0; i < M * N; i++) {
                double e = 2.0 * x[i] + b[i % N];
                EXPECT_NEAR(y[i], e, 1e-6);
                l += e * e;
            }
            qn_array array;
            qn_error error;
            EXPECT(good(qn_call_get(call, "result1", &array, &error), &error) && array.rank == 0);
            EXPECT_NEAR(*(float *)array.data, l, 1e-4);
            qn_call_free(call);
        }
    qn_module_free(module);
}

TEST(gradients_have_names)
{
    enum { M = 3, N = 4 };
    qn_module *module = load(simple);
    float x[M * N], b[N];
    for (int i = 0; i < M * N; i++) x[i] = (float)noise(3, i);
    for (int i = 0; i < N; i++) b[i] = (float)noise(4, i);
    for (int d = 0; d < DEVICES; d++) {
        qn_call *call = call_of(module, "strict grad(loss)");
        set(call, "x", x, 2, M, N);
        set(call, "b", b, 1, N, 0);
        const float *dx = run(call, devices[d], "d_x", M * N), *db;
        for (int i = 0; i < M * N; i++) EXPECT_NEAR(dx[i], 6 * (3.0 * x[i] + b[i % N]), 1e-5);
        qn_array array;
        qn_error error;
        EXPECT(good(qn_call_get(call, "d_b", &array, &error), &error));
        db = array.data;
        for (int j = 0; j < N; j++) {
            double s = 0;
            for (int i = 0; i < M; i++) s += 2 * (3.0 * x[i * N + j] + b[j]);
            EXPECT_NEAR(db[j], s, 1e-5);
        }
        qn_call_free(call);
    }
    qn_module_free(module);
}

/* The same call again, with other numbers in its arrays, other arrays, another scalar, another shape. */
TEST(what_changes_between_launches)
{
    enum { M = 4, N = 6 };
    qn_module *module = load(simple);
    qn_error error;
    float one[M * N], two[M * N], b[N] = {0}, out[M * N * 2];
    for (int d = 0; d < DEVICES; d++) {
        qn_call *call = call_of(module, "f");
        set(call, "b", b, 1, N, 0);
        for (int turn = 0; turn < 9; turn++) {
            float *x = turn < 4 ? one : two;
            double s = turn < 6 ? 2 : 0.5;
            for (int i = 0; i < M * N; i++) one[i] = (float)noise(turn, i), two[i] = (float)noise(turn + 50, i);
            set(call, "x", x, 2, turn < 8 ? M : M / 2, N);
            if (turn == 6) EXPECT(good(qn_call_set_float(call, "s", 0.5, &error), &error));
            int64_t count = turn < 8 ? M * N : M / 2 * N;
            const float *y = run(call, devices[d], "result0", count);
            for (int i = 0; i < count; i++) EXPECT_NEAR(y[i], s * x[i], 1e-6);
        }
        int64_t extents[] = {M, N}, strides[] = {1, M}; /* results laid out by columns, with the caller's memory */
        set(call, "x", one, 2, M, N);
        EXPECT(good(qn_call_set_memory(call, "result0", out, QN_F32, 2, extents, strides, &error), &error));
        run(call, devices[d], "result0", M * N);
        for (int i = 0; i < M * N; i++) EXPECT_NEAR(out[i / N + i % N * M], 0.5 * one[i], 1e-6);
        qn_call_free(call);
    }
    qn_module_free(module);
}

TEST(mistakes)
{
    qn_module *module = load(simple);
    qn_error error;
    float x[12] = {0}, b[5] = {0};
    qn_call *call = call_of(module, "f");
    set(call, "x", x, 2, 3, 4);
    set(call, "b", b, 1, 5, 0);
    EXPECT(qn_call_run(call, "cpu", &error) == QN_BAD_CALL);
    EXPECT_TEXT(error.message, "test.qn:1:31: error E502: `n` is 4 in `x` and 5 in `b`\n"
                               "tensor f(float x[m][n], float b[n], float s = 2) {\n"
                               "                              ^\n"
                               "  give arrays whose shapes agree\n");
    qn_call_free(call);
    call = call_of(module, "cut");
    set(call, "x", x, 2, 3, 4);
    EXPECT(good(qn_call_set_int(call, "k", 4, &error), &error));
    EXPECT(qn_call_run(call, "cpu", &error) == QN_BAD_CALL);
    EXPECT_TEXT(error.message, "test.qn:6:45: error E509: this slice takes elements 0 to 3 of axis 0, which has 3\n"
                               "tensor cut(float x[m][n], int k) { return x[0 : k][:]; }\n"
                               "                                            ^\n"
                               "  tensors have no validity: slice what is there, or `pad` the tensor first\n");
    EXPECT(good(qn_call_set_int(call, "k", 2, &error), &error));
    run(call, "cpu", "result0", 8); /* and goes on */
    qn_call_free(call);
    EXPECT(qn_call_new(module, "eager g", &call, &error) == QN_BAD_CALL);
    EXPECT_TEXT(error.message, "test.qn has no kernel `g`");
    qn_module_free(module);
}

/* Indices that the host has are tested at every launch, also where nothing but their values changed. */
TEST(indices_are_tested_again)
{
    qn_module *module = load("tensor pick(float table[n][d], i64 index[m]) { return table[index][:]; }");
    float table[12] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11};
    int64_t index[2] = {3, 0};
    qn_error error;
    qn_call *call = call_of(module, "pick");
    set(call, "table", table, 2, 4, 3);
    EXPECT(good(qn_call_set_memory(call, "index", index, QN_I64, 1, (int64_t[]){2}, NULL, &error), &error));
    for (int turn = 0; turn < 4; turn++) EXPECT_NEAR(run(call, "cpu", "result0", 6)[0], 9, 0);
    index[1] = 4;
    EXPECT(qn_call_run(call, "cpu", &error) == QN_BAD_CALL);
    EXPECT(strstr(error.message, "index 4 is outside axis 0") != NULL);
    qn_call_free(call);
    qn_module_free(module);
}

/* ---- on a tape ---- */

static const char *const with_kernels =
    "kernel axpy(in float x[n], inout float y[n], float a, const int BLOCK = 64) gradient (axpy_back)\n"
    "    launch (cdiv(n, BLOCK))\n"
    "{ int i = program(0) * BLOCK; y[i : BLOCK] += a * x[i : BLOCK]; }\n"
    "kernel axpy_back(in float d_y[n], out float d_x[n], float a, const int BLOCK = 64) launch (cdiv(n, BLOCK))\n"
    "{ int i = program(0) * BLOCK; d_x[i : BLOCK] = a * d_y[i : BLOCK]; }\n"
    "kernel plain(in float x[n], out float y[m]) launch (1) { y[:] = sum(x[:]); }\n"
    "tensor scaled(float x[n], float s, const int TIMES = 2) {\n"
    "  let r = x; for (int i = 0; i < TIMES; i++) r = r * s; return r, sum(r); }\n";

TEST(kernels_and_functions_on_a_tape)
{
    enum { N = 100 };
    qn_module *module = load(with_kernels);
    float x[N], y[N], out[N], sum;
    for (int i = 0; i < N; i++) x[i] = (float)noise(5, i), y[i] = (float)noise(6, i);
    for (int d = 0; d < DEVICES; d++) {
        qn_tape *tape;
        qn_error error;
        EXPECT(good(qn_tape_new(context, devices[d], &tape, &error), &error));
        qn_tensor tx = qn_from_memory(tape, x, QN_F32, QN_SHAPE(N)), ty = qn_from_memory(tape, y, QN_F32, QN_SHAPE(N));
        qn_tensor r, two[2], gradient, m;
        qn_call_kernel(module, "axpy", "a = 3, BLOCK = (1 << 5)", (qn_tensor[]){qn_exp(tx), ty}, 2, &r, 1);
        EXPECT(good(qn_tensor_read(qn_add_scalar(r, 1), out, sizeof(out), &error), &error));
        for (int i = 0; i < N; i++) EXPECT_NEAR(out[i], 3 * exp(x[i]) + y[i] + 1, 1e-5);
        EXPECT(good(qn_tensor_read(ty, out, sizeof(out), &error), &error)); /* functional: y is as it was */
        for (int i = 0; i < N; i++) EXPECT(out[i] == y[i]);
        qn_grad(qn_sum(qn_mul(r, r), QN_ALL, false), &tx, 1, &gradient);
        EXPECT(good(qn_tensor_read(gradient, out, sizeof(out), &error), &error));
        for (int i = 0; i < N; i++) EXPECT_NEAR(out[i], 2 * (3 * exp(x[i]) + y[i]) * 3 * exp(x[i]), 1e-3);
        qn_call_kernel(module, "scaled", "TIMES = 3", (qn_tensor[]){tx, qn_scalar(tape, QN_F32, 0.5)}, 2, two, 2);
        EXPECT(good(qn_tensor_read(two[0], out, sizeof(out), &error), &error));
        EXPECT(good(qn_tensor_read(two[1], &sum, sizeof(sum), &error), &error));
        double all = 0;
        for (int i = 0; i < N; i++) {
            EXPECT_NEAR(out[i], 0.125 * x[i], 1e-7);
            all += 0.125 * x[i];
        }
        EXPECT_NEAR(sum, all, 1e-5);
        qn_call_kernel(module, "plain", "m = 7", &tx, 1, &m, 1);
        EXPECT(qn_tensor_count(m) == 7);
        EXPECT(good(qn_eval(tape, &m, 1, &error), &error));
        qn_tape_free(tape);
    }
    qn_module_free(module);
}

static void expect_error(qn_tape *tape, const char *words)
{
    qn_error error = {0};
    EXPECT(qn_tape_error(tape, &error) != QN_OK);
    const char *after = strstr(error.message, "): ");
    EXPECT_TEXT(after ? after + 3 : error.message, words);
}

TEST(mistakes_on_a_tape)
{
    qn_module *module = load(with_kernels);
    qn_tape *tape;
    qn_error error;
    qn_tensor r;
    EXPECT(good(qn_tape_new(context, "cpu", &tape, &error), &error));
    qn_tensor x = qn_ones(tape, QN_F32, QN_SHAPE(5)), gradient;
    qn_call_kernel(module, "axpi", NULL, &x, 1, &r, 1);
    EXPECT(!qn_tensor_valid(r));
    expect_error(tape, "test.qn has no kernel `axpi`; did you mean `axpy`?");
    qn_call_kernel(module, "axpy", NULL, &x, 1, &r, 1);
    expect_error(tape, "`axpy` takes 2 arrays and 1 scalars, got 1 inputs");
    qn_call_kernel(module, "plain", NULL, &x, 1, &r, 1);
    expect_error(tape, "test.qn:6:8: error E505: the extent `m` of the output `y` of `plain` is not given\n"
                       "kernel plain(in float x[n], out float y[m]) launch (1) { y[:] = sum(x[:]); }\n"
                       "       ^~~~~\n"
                       "  give it by name: `m = ...`\n");
    qn_call_kernel(module, "plain", "m 7", &x, 1, &r, 1);
    expect_error(tape, "settings are `name = value, ...`, not `m 7`");
    qn_call_kernel(module, "plain", "m = 7", &x, 1, &r, 1);
    qn_grad(qn_sum(r, QN_ALL, false), &x, 1, &gradient);
    EXPECT(qn_tape_error(tape, &error) != QN_OK && strstr(error.message, "`plain`"));
    qn_call_kernel(module, "scaled", "s = 2", &x, 1, &r, 1);
    expect_error(tape, "`scaled` has 2 outputs, and there is room for 1");
    qn_tape_free(tape);
    qn_module_free(module);
}

/* ---- the appendix ---- */

static double *random_doubles(float *to, int seed, int count)
{
    double *out = malloc(sizeof(double) * (size_t)count);
    for (int i = 0; i < count; i++) out[i] = to[i] = (float)(0.5 * noise(seed, i));
    return out;
}

/* [rows][inner] by [inner][columns]. */
static void multiply(const double *a, const double *b, double *c, int rows, int inner, int columns)
{
    for (int i = 0; i < rows; i++)
        for (int j = 0; j < columns; j++) {
            double s = 0;
            for (int k = 0; k < inner; k++) s += a[i * inner + k] * b[k * columns + j];
            c[i * columns + j] = s;
        }
}

TEST(appendix_attention_block)
{
    enum { B = 2, L = 5, E = 12, H = 3, D = E / H, ROWS = B * L };
    qn_module *module = NULL;
    qn_error error;
    EXPECT(good(qn_module_load_file(context, QUERN_ROOT "/tests/programs/a10_tensor.qn", &module, &error), &error));
    float fx[ROWS * E], fw[4][E * E];
    double *x = random_doubles(fx, 1, ROWS * E), *w[4], q[3][ROWS * E], o[ROWS * E], expected[ROWS * E];
    for (int i = 0; i < 4; i++) w[i] = random_doubles(fw[i], 2 + i, E * E);
    for (int i = 0; i < 3; i++) multiply(x, w[i], q[i], ROWS, E, E);
    for (int b = 0; b < B; b++)
        for (int h = 0; h < H; h++)
            for (int l = 0; l < L; l++) {
                double p[L], sum = 0;
                for (int s = 0; s < L; s++) {
                    double dot = 0;
                    for (int d = 0; d < D; d++)
                        dot += q[0][(b * L + l) * E + h * D + d] * q[1][(b * L + s) * E + h * D + d];
                    sum += p[s] = exp(dot / sqrt(D));
                }
                for (int d = 0; d < D; d++) {
                    double v = 0;
                    for (int s = 0; s < L; s++) v += p[s] / sum * q[2][(b * L + s) * E + h * D + d];
                    o[(b * L + l) * E + h * D + d] = v;
                }
            }
    multiply(o, w[3], expected, ROWS, E, E);
    for (int d = 0; d < DEVICES; d++) {
        qn_call *call = call_of(module, "attention_block");
        int64_t extents[] = {B, L, E};
        EXPECT(good(qn_call_set_memory(call, "x", fx, QN_F32, 3, extents, NULL, &error), &error));
        set(call, "wq", fw[0], 2, E, E);
        set(call, "wk", fw[1], 2, E, E);
        set(call, "wv", fw[2], 2, E, E);
        set(call, "wo", fw[3], 2, E, E);
        EXPECT(good(qn_call_set_int(call, "HEADS", H, &error), &error));
        const float *y = run(call, devices[d], "result0", ROWS * E);
        for (int i = 0; i < ROWS * E; i++) EXPECT_NEAR(y[i], expected[i], 1e-5);
        EXPECT(good(qn_call_set_int(call, "HEADS", 5, &error), &error));
        EXPECT(qn_call_run(call, devices[d], &error) != QN_OK && strstr(error.message, "error E503: `assume`"));
        qn_call_free(call);
    }
    free(x);
    for (int i = 0; i < 4; i++) free(w[i]);
    qn_module_free(module);
}

/* One step against the next: the loss falls, and by about what the gradient says. */
TEST(appendix_training_steps)
{
    enum { B = 4, D = 6, L = 2 };
    qn_module *module = NULL;
    qn_error error;
    EXPECT(good(qn_module_load_file(context, QUERN_ROOT "/tests/programs/a10_tensor.qn", &module, &error), &error));
    for (int d = 0; d < DEVICES; d++) {
        float x[B * D], w[L * D * D], b[L * D], losses[4];
        for (int i = 0; i < B * D; i++) x[i] = (float)noise(7, i);
        for (int i = 0; i < L * D * D; i++) w[i] = (float)(0.5 * noise(8, i));
        for (int i = 0; i < L * D; i++) b[i] = (float)(0.5 * noise(9, i));
        int64_t ew[] = {L, D, D};
        qn_call *loss = call_of(module, "mlp_loss"), *step = call_of(module, "mlp_step");
        qn_call *both[] = {loss, step};
        for (int i = 0; i < 2; i++) {
            set(both[i], "x", x, 2, B, D);
            EXPECT(good(qn_call_set_memory(both[i], "w", w, QN_F32, 3, ew, NULL, &error), &error));
            set(both[i], "b", b, 2, L, D);
        }
        EXPECT(good(qn_call_set_float(step, "rate", 0.1, &error), &error));
        for (int turn = 0; turn < 4; turn++) {
            losses[turn] = *run(loss, devices[d], "result0", 1);
            double squares = 0;
            const float *next = run(step, devices[d], "result0", L * D * D);
            for (int i = 0; i < L * D * D; i++) squares += pow((w[i] - next[i]) / 0.1, 2);
            memcpy(w, next, sizeof(w));
            qn_array array;
            EXPECT(good(qn_call_get(step, "result1", &array, &error), &error));
            for (int i = 0; i < L * D; i++) squares += pow((b[i] - ((float *)array.data)[i]) / 0.1, 2);
            memcpy(b, array.data, sizeof(b));
            double after = *run(loss, devices[d], "result0", 1);
            EXPECT(after < losses[turn]);
            EXPECT_NEAR(losses[turn] - after, 0.1 * squares, 0.02 * squares);
        }
        qn_call_free(loss);
        qn_call_free(step);
    }
    qn_module_free(module);
}

int main(int argc, char **argv)
{
    const test_case cases[] = {CASE(values_in_all_modes),
                               CASE(gradients_have_names),
                               CASE(what_changes_between_launches),
                               CASE(mistakes),
                               CASE(indices_are_tested_again),
                               CASE(kernels_and_functions_on_a_tape),
                               CASE(mistakes_on_a_tape),
                               CASE(appendix_attention_block),
                               CASE(appendix_training_steps)};
    qn_error error;
    if (qn_context_open(NULL, &context, &error) != QN_OK) {
        printf("%s\n0 passed, 1 failed\n", error.message);
        return 1;
    }
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
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
