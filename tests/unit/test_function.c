/*
 * Tensor functions: traced without a device and computed by the graph interpreter, against plain C. Every form of the
 * language's section on them, the programs of its appendix, and gradients against central differences.
 * SPDX-License-Identifier: MIT
 */
#include "test.h"
#include "traced.h"

#include "ir/interp.h"

static double noise(int seed, int64_t i)
{
    uint64_t x = (uint64_t)(i + 1) * 0x9e3779b97f4a7c15u + (uint64_t)seed * 0xbf58476d1ce4e5b9u;
    x ^= x >> 29;
    x *= 0x94d049bb133111ebu;
    x ^= x >> 32;
    return (double)(x >> 11) * 0x1p-53 * 2 - 1;
}

/* Floats get noise, integers 0, 1, 2, 0, ... */
static void fill(traced *t)
{
    for (int i = 0; i < t->item->list.count; i++) {
        if (!t->arguments[i]) continue;
        dtype elem = graph_get(t->tape->graph, t->arguments[i])->elem;
        for (int64_t k = 0; k < t->counts[i]; k++) {
            number n = {.f = noise(i, k), .i = k % 3};
            element_write(elem, (char *)t->data[i] + k * dtypes[elem].size_bytes, n);
        }
    }
}

static void show_errors(traced *t)
{
    text words = {0};
    diagnostics_print(&t->d, t->file, false, &words);
    printf("%s\n", text_get(&words));
    text_free(&words);
}

static traced *start(const char *words, const char *function)
{
    traced *t = traced_open("test.qn", words);
    if (!traced_bind(t, function)) {
        show_errors(t);
        EXPECT(!"it binds");
    } else {
        fill(t);
    }
    return t;
}

static float *floats(const traced *t, const char *name)
{
    for (int i = 0; i < t->item->list.count; i++)
        if (!strcmp(t->item->list.items[i]->name, name)) return t->data[i];
    return NULL;
}

static graph_tensor *compute(traced *t, bool gradient)
{
    qn_error error;
    static graph_tensor out[FUNCTION_RESULTS];
    memset(out, 0, sizeof(out));
    if (!t->tape || !traced_run(t, gradient)) {
        show_errors(t);
        EXPECT(!"it traces");
        return out;
    }
    if (graph_interpret(t->tape->graph, t->results, t->count, NULL, true, t->memory, out, &error) != QN_OK) {
        printf("%s\n", error.message);
        EXPECT(!"it computes");
    }
    return out;
}

static bool has_shape(const graph_tensor *x, int rank, int64_t a, int64_t b, int64_t c)
{
    int64_t all[] = {a, b, c};
    if (x->shape.rank != rank) return false;
    for (int k = 0; k < rank; k++)
        if (x->shape.extents[k] != all[k]) return false;
    return true;
}

static double at(const graph_tensor *x, int64_t i)
{
    return dtype_is_float(x->elem) ? x->elements[i].f : (double)x->elements[i].i;
}

/* One expression over float x[3][4], float y[4] and i64 k[5]. */
static traced *expression(const char *words, graph_tensor *out)
{
    char source[1024];
    snprintf(source, sizeof(source), "tensor f(float x[m][n], float y[n], i64 k[q]) { return %s; }\n", words);
    traced *t = start(source, "f");
    graph_tensor *all = compute(t, false);
    *out = all[0];
    return t;
}

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

/* ---- the appendix ---- */

static double gelu(double x)
{
    return 0.5 * x * (1 + erf(x / sqrt(2)));
}

static char *appendix(void)
{
    char *words = NULL;
    size_t length;
    qn_error error;
    EXPECT(file_read(QUERN_ROOT "/tests/programs/a10_tensor.qn", 1 << 20, &words, &length, &error) == QN_OK);
    return words;
}

/* x [B][D], w [L][D][D], b [L][D] in place of x. */
static void mlp(double *x, const double *w, const double *b, int batch, int d, int layers)
{
    double *next = malloc(sizeof(double) * (size_t)(batch * d));
    for (int l = 0; l < layers; l++) {
        for (int i = 0; i < batch; i++)
            for (int j = 0; j < d; j++) {
                double s = b[l * d + j];
                for (int k = 0; k < d; k++) s += x[i * d + k] * w[(l * d + k) * d + j];
                next[i * d + j] = gelu(s);
            }
        memcpy(x, next, sizeof(double) * (size_t)(batch * d));
    }
    free(next);
}

static double mlp_mean(const double *x, const double *w, const double *b, int batch, int d, int layers)
{
    double *h = malloc(sizeof(double) * (size_t)(batch * d)), s = 0;
    memcpy(h, x, sizeof(double) * (size_t)(batch * d));
    mlp(h, w, b, batch, d, layers);
    for (int i = 0; i < batch * d; i++) s += h[i];
    free(h);
    return s / (batch * d);
}

static double *doubles(const float *from, int64_t count)
{
    double *to = malloc(sizeof(double) * (size_t)count);
    for (int64_t i = 0; i < count; i++) to[i] = from[i];
    return to;
}

TEST(appendix_mlp)
{
    enum { B = 3, D = 4, L = 2 };
    char *words = appendix();
    traced *t = start(words, "mlp");
    graph_tensor *r = compute(t, false);
    double *x = doubles(floats(t, "x"), B * D), *w = doubles(floats(t, "w"), L * D * D),
           *b = doubles(floats(t, "b"), L * D);
    mlp(x, w, b, B, D, L);
    EXPECT(has_shape(&r[0], 2, B, D, 0));
    for (int i = 0; i < B * D && r[0].elements; i++) EXPECT_NEAR(at(&r[0], i), x[i], 1e-9);
    free(x), free(w), free(b);
    traced_close(t);
    free(words);
}

TEST(appendix_mlp_step)
{
    enum { B = 3, D = 4, L = 2 };
    char *words = appendix();
    traced *t = traced_open("a10.qn", words);
    bindings_set(t->memory, &t->known, (binding){.name = "rate", .kind = BIND_FLOAT, .type = DT_F32, .number.f = 0.5});
    EXPECT(traced_bind(t, "mlp_step"));
    fill(t);
    graph_tensor *r = compute(t, false);
    double *x = doubles(floats(t, "x"), B * D), *w = doubles(floats(t, "w"), L * D * D),
           *b = doubles(floats(t, "b"), L * D);
    EXPECT(t->count == 2 && has_shape(&r[0], 3, L, D, D) && has_shape(&r[1], 2, L, D, 0));
    for (int which = 0; which < 2 && r[1].elements; which++)
        for (int i = 0; i < (which ? L * D : L * D * D); i++) {
            double *p = which ? &b[i] : &w[i], kept = *p, step = 1e-4;
            *p = kept + step;
            double high = mlp_mean(x, w, b, B, D, L);
            *p = kept - step;
            double low = mlp_mean(x, w, b, B, D, L);
            *p = kept;
            EXPECT_NEAR(at(&r[which], i), kept - 0.5 * (high - low) / (2 * step), 1e-6);
        }
    free(x), free(w), free(b);
    traced_close(t);
    free(words);
}

TEST(gradients_are_by_parameter)
{
    const char *words = "tensor f(float a[n], float b[n], float s = 2) { return sum(a * a * b) * s; }\n"
                        "tensor g(float x[n]) { return grad(f)(x, x); }\n"
                        "tensor h(float x[n]) { return grad(f, b, a)(x, x, 3); }\n"
                        "tensor once(float x[n]) { return sum(grad(f, a)(x, x)); }\n"
                        "tensor twice(float x[n]) { return grad(once)(x); }\n";
    traced *t = start(words, "g");
    graph_tensor *r = compute(t, false);
    const float *x = floats(t, "x");
    EXPECT(t->count == 3 && function_result_count(t->file, t->item) == 3);
    for (int i = 0; i < 3 && r[2].elements; i++) {
        EXPECT_NEAR(at(&r[0], i), 4.0 * x[i] * x[i], 1e-9);
        EXPECT_NEAR(at(&r[1], i), 2.0 * x[i] * x[i], 1e-9);
    }
    double cubes = 0;
    for (int i = 0; i < 3; i++) cubes += pow(x[i], 3);
    if (r[2].elements) EXPECT_NEAR(at(&r[2], 0), cubes, 1e-9);
    for (int i = 1; i < t->tape->graph->node_count; i++) /* the copies are gone from what is wanted */
        if (r[2].elements) EXPECT(graph_get(t->tape->graph, t->results[0])->code != GRAPH_AGAIN);
    traced_close(t);
    t = start(words, "h");
    r = compute(t, false);
    x = floats(t, "x");
    EXPECT(t->count == 2);
    for (int i = 0; i < 3 && r[1].elements; i++) {
        EXPECT_NEAR(at(&r[0], i), 3.0 * x[i] * x[i], 1e-9);
        EXPECT_NEAR(at(&r[1], i), 6.0 * x[i] * x[i], 1e-9);
    }
    traced_close(t);
    t = start(words, "twice");
    r = compute(t, false);
    x = floats(t, "x");
    for (int i = 0; i < 3 && r[0].elements; i++) EXPECT_NEAR(at(&r[0], i), 8.0 * x[i], 1e-9);
    traced_close(t);
}

TEST(kernels_are_ops)
{
    const char *words =
        "kernel scale(in T x[m][n], inout T y[m][n], out float sums[m], float s, const int BM = 2) gradient "
        "(scale_back)"
        "  launch (m) { y[program(0)][:] = s * x[program(0)][:]; sums[program(0)] = sum(x[program(0)][:]); }\n"
        "tensor scale_back(T d_y[m][n], float d_sums[m], float s) { let d_x = s * d_y + T(d_sums[:][]); return d_x; }\n"
        "tensor f(float x[m][n], float y[m][n]) {"
        "  let (a, b) = scale(x, y, 3, BM = 4); return sum(a) + 2 * sum(b); }\n"
        "tensor g(float x[m][n], float y[m][n]) { return scale(x, y, 3); }\n"
        "tensor d(float x[m][n], float y[m][n]) { return grad(f, x)(x, y); }\n";
    traced *t = start(words, "g");
    EXPECT(traced_run(t, false));
    EXPECT(t->count == 2 && function_result_count(t->file, t->item) == 2);
    const graph_node *n = graph_get(t->tape->graph, t->results[1]);
    EXPECT(n->code == GRAPH_RESULT && n->shape.rank == 1 && n->shape.extents[0] == 3 && n->attr.index == 1);
    traced_close(t);
    t = start(words, "d"); /* the gradient needs neither the kernel nor its outputs */
    graph_tensor *r = compute(t, false);
    for (int i = 0; i < 12 && r[0].elements; i++) EXPECT_NEAR(at(&r[0], i), 5, 1e-12);
    traced_close(t);
}

/* Every name of the tensor API that the language lists can be called. */
TEST(all_names_are_there)
{
    for (int i = 0; i < builtin_count; i++) {
        if (builtins[i].class != BUILTIN_TENSOR || !strcmp(builtins[i].name, "grad")) continue;
        if (!function_api_has(builtins[i].name)) printf("%s has no function behind it\n", builtins[i].name);
        EXPECT(function_api_has(builtins[i].name));
    }
}

TEST(the_tensor_api)
{
    static const struct {
        const char *words;
        int rank;
        int64_t extents[3];
    } calls[] = {
        {"softmax(x)", 2, {3, 4}},
        {"log_softmax(x, axis = 0)", 2, {3, 4}},
        {"logsumexp(x, axis = 1)", 2, {3, 1}},
        {"var(x, axis = 0, correction = 0) + std(x, axis = 0)", 2, {1, 4}},
        {"norm(x, p = 1)", 0, {0}},
        {"layer_norm(x, y, y, epsilon = 1e-3)", 2, {3, 4}},
        {"layer_norm(x, axes = 2)", 2, {3, 4}},
        {"rms_norm(x, y)", 2, {3, 4}},
        {"matmul(x, transpose(x))", 2, {3, 3}},
        {"linear(x, transpose(x), y[0 : 3])", 2, {3, 3}},
        {"outer(y, y) + dot(transpose(x), x)", 2, {4, 4}},
        {"cdist(x, x)", 2, {3, 3}},
        {"concat(x, x, axis = 1)", 2, {3, 8}},
        {"stack(y, y, y, axis = 1)", 2, {4, 3}},
        {"split(x, 2, axis = 1)", 2, {3, 2}},
        {"flip(x, axis = {0, 1}) + reshape(permute(x, 1, 0), m, n)", 2, {3, 4}},
        {"pad(x, 1, 2, axis = 0, value = 7)", 2, {6, 4}},
        {"window(y, 2, stride = 2)", 2, {2, 2}},
        {"expand(y[][:], m, n) * repeat(x, 1, 1)", 2, {3, 4}},
        {"gather(x, expand(k[:][], 5, n)[0 : 2][:], axis = 0)", 2, {2, 4}},
        {"index_select(x, k, axis = 1)", 2, {3, 5}},
        {"scatter_add(x, expand(k[:][], 5, n), zeros(5, n), axis = 0)", 2, {3, 4}},
        {"index_add(x, k, ones(5, n), axis = 0)", 2, {3, 4}},
        {"one_hot(k, 3)", 2, {5, 3}},
        {"sort(y, descending = true)", 1, {4}},
        {"topk(x, 2, axis = 1)", 2, {3, 2}},
        {"argsort(x, axis = 0)", 2, {3, 4}},
        {"full(0.5, m, 1) * zeros(m, n) + eye(m, n) + like(x, 3)", 2, {3, 4}},
        {"linspace(0, 1, 5)", 1, {5}},
        {"arange(2, 10, 3)", 1, {3}},
        {"arange(7)", 1, {7}},
        {"flatten(x)", 1, {12}},
        {"unsqueeze(x, axis = 1)", 3, {3, 1, 4}},
        {"unsqueeze(y) + x", 2, {3, 4}}, /* the new axis broadcasts */
        {"squeeze(unsqueeze(x, axis = -1), axis = 2)", 2, {3, 4}},
        {"chunk(x, 2, axis = 0)", 2, {2, 4}},
        {"maximum(x, 0.5) + minimum(x, x)", 2, {3, 4}},
        {"mse_loss(x, x, sum = true)", 0, {0}},
        {"cross_entropy(x, k[0 : 3], each = true)", 1, {3}},
        {"bce_with_logits(x, sigmoid(x))", 0, {0}},
        {"scaled_dot_product_attention(x, x, x, causal = true)", 2, {3, 4}},
        {"embedding(x, k)", 2, {5, 4}},
        {"embedding_bag(x, reshape(k, 1, 5), mean = true)", 2, {1, 4}},
        {"conv2d(reshape(x, 1, 1, m, n), reshape(y, 1, 1, 2, 2), padding = 1)[0][0][:][:]", 2, {4, 5}},
        {"conv2d(reshape(x, 1, 1, m, n), reshape(y, 1, 1, 2, 2), stride = {2, 1}, padding = {0, 1})[0][0][:][:]",
         2,
         {1, 5}},
        {"conv1d(reshape(x, 1, m, n), reshape(x, 1, m, n), padding = 1, dilation = 1)[0][:][:]", 2, {1, 3}},
        {"conv3d(reshape(x, 1, 1, 1, m, n), reshape(y, 1, 1, 1, 2, 2), stride = {1, 1, 2})[0][0][0][:][:]", 2, {2, 2}},
        {"conv_transpose1d(reshape(y, 1, 2, 2), reshape(y, 2, 1, 2), stride = 3, output_padding = 1)[0][:][:]",
         2,
         {1, 6}},
        {"conv_transpose2d(reshape(x, 1, 1, m, n), reshape(y, 1, 1, 2, 2), stride = {2, 1})[0][0][:][:]", 2, {6, 5}},
        {"conv_transpose3d(reshape(x, 1, 1, 1, m, n), reshape(y, 1, 1, 1, 2, 2))[0][0][0][:][:]", 2, {4, 5}},
        {"max_pool1d(reshape(x, 1, m, n), 2)[0][:][:]", 2, {3, 2}},
        {"max_pool2d(reshape(x, 1, 1, m, n), 2, ceil_mode = true)[0][0][:][:]", 2, {2, 2}},
        {"max_pool2d(reshape(x, 1, 1, m, n), 2, 1, stride = {1, 2}, dilation = {2, 1})[0][0][:][:]", 2, {1, 2}},
        {"max_pool3d(reshape(x, 1, 1, 1, m, n), 1, 2, 2)[0][0][0][:][:]", 2, {1, 2}},
        {"avg_pool1d(reshape(x, 1, m, n), 2, padding = 1, count_include_pad = false)[0][:][:]", 2, {3, 3}},
        {"avg_pool2d(reshape(x, 1, 1, m, n), 2, divisor = 3, ceil_mode = true)[0][0][:][:]", 2, {2, 2}},
        {"avg_pool3d(reshape(x, 1, 1, 1, m, n), 1, 3, 4)[0][0][0][:][:]", 2, {1, 1}},
        {"adaptive_avg_pool1d(reshape(x, 1, m, n), 3)[0][:][:] + adaptive_max_pool1d(reshape(x, 1, m, n), 3)[0][:][:]",
         2,
         {3, 3}},
        {"adaptive_avg_pool2d(reshape(x, 1, 1, m, n), 2, 3)[0][0][:][:] + adaptive_max_pool2d(reshape(x, 1, 1, m, n), "
         "2, 3)[0][0][:][:]",
         2,
         {2, 3}},
        {"adaptive_avg_pool3d(reshape(x, 1, 1, 1, m, n), 1, 2, 2)[0][0][0][:][:] + adaptive_max_pool3d(reshape(x, 1, "
         "1, 1, m, n), 1, 2, 2)[0][0][0][:][:]",
         2,
         {2, 2}},
        {"upsample_nearest1d(reshape(x, 1, m, n), 7)[0][:][:] + upsample_linear1d(reshape(x, 1, m, n), 7)[0][:][:]",
         2,
         {3, 7}},
        {"upsample_nearest2d(reshape(x, 1, 1, m, n), scale = {1, 2})[0][0][:][:] + upsample_bilinear2d(reshape(x, 1, "
         "1, m, n), 3, 8, align_corners = true)[0][0][:][:]",
         2,
         {3, 8}},
        {"upsample_nearest3d(reshape(x, 1, 1, 1, m, n), 1, 2, 2)[0][0][0][:][:] + upsample_trilinear3d(reshape(x, 1, "
         "1, 1, m, n), 1, 2, 2)[0][0][0][:][:]",
         2,
         {2, 2}},
        {"batch_norm(x, y, square(y), y, y)", 2, {3, 4}},
        {"batch_norm(x, training = true, weight = y)", 2, {3, 4}},
        {"group_norm(x, 2, y, y) + instance_norm(reshape(x, m, n), y)", 2, {3, 4}},
        {"leaky_relu(x) + elu(x, 2) + selu(x) + celu(x, alpha = 2) + mish(x) + hardswish(x) + hardsigmoid(x)",
         2,
         {3, 4}},
        {"hardtanh(x, -2, 2) + relu6(x) + softsign(x) + logsigmoid(x) + threshold(x, 0.5, 0) + prelu(x, y)", 2, {3, 4}},
        {"glu(x, axis = 1) + swiglu(x)", 2, {3, 2}},
        {"swiglu(x, x) + logaddexp(x, x) + masked_fill(x, x > 0, -1)", 2, {3, 4}},
        {"tril(x) + triu(x, 1) + tril(x, diagonal = -1)", 2, {3, 4}},
        {"diagonal(x, offset = 1)", 1, {3}},
        {"roll(x, 1, -1, axis = {0, 1}) + roll(x, 5) + roll(x, 2, axis = 1)", 2, {3, 4}},
        {"amax(x, axis = 1) + amin(x, axis = 0)", 2, {3, 4}},
        {"cumsum(x, axis = 1, reverse = true) + cumsum(x, axis = 0, exclusive = true)", 2, {3, 4}},
        {"cummax(y, reverse = true, exclusive = false)", 1, {4}},
        {"unbind(x, axis = 1)", 1, {3}},
        {"split(x, sizes = {1, 3}, axis = 1)", 2, {3, 1}},
        {"index_copy(x, k[0 : 2], ones(2, n), axis = 0)", 2, {3, 4}},
        {"index_put(x, k, k, 7.0) + index_put(x, k, y, accumulate = true)", 2, {3, 4}},
        {"bmm(reshape(x, m, 2, 2), reshape(x, m, 2, 2))", 3, {3, 2, 2}},
        {"addmm(y, transpose(x), x, beta = 2)", 2, {4, 4}},
        {"baddbmm(reshape(x, m, 2, 2), reshape(x, m, 2, 2), reshape(x, m, 2, 2), alpha = 0.5)", 3, {3, 2, 2}},
        {"einsum(\"ij,kj->ik\", x, x) + einsum(\"...j, j -> ...\", x, y)[:][]", 2, {3, 3}},
        {"cosine_similarity(x, x)", 1, {3}},
        {"l1_loss(x, x) + smooth_l1_loss(x, x, beta = 2) + huber_loss(x, x, delta = 2, sum = true) + kl_div(x, exp(x), "
         "batchmean = true)",
         0,
         {0}},
        {"nll_loss(log_softmax(x), k[0 : 3]) + hinge_embedding_loss(x, sign(x)) + triplet_margin_loss(x, x, x, margin "
         "= 2, p = 1)",
         0,
         {0}},
        {"max_pool2d(reshape(x, 1, 1, m, n), 2, stride = 1)[0][0][:][:]", 2, {2, 3}},
        {"avg_pool2d(reshape(x, 1, 1, m, n), 1, 2)[0][0][:][:]", 2, {3, 2}},
        {"square(x) + reciprocal(detach(x)) + checkpoint(x)", 2, {3, 4}},
        {"clamp(x, -0.5, 0.5) + pow(x, 2) + fma(x, x, x)", 2, {3, 4}},
    };
    for (int i = 0; i < COUNT(calls); i++) {
        graph_tensor r;
        traced *t = expression(calls[i].words, &r);
        bool good = has_shape(&r, calls[i].rank, calls[i].extents[0], calls[i].extents[1], calls[i].extents[2]);
        if (!good) printf("%s\n", calls[i].words);
        EXPECT(good);
        traced_close(t);
    }
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

/* A file's name lies in its module's memory: once the module is freed nothing on this thread may say it. */
TEST(the_call_site_is_the_callers)
{
    qn_here("mine.c", 7);
    traced *t = start("tensor f(float x[3], float y[3]) { return mse_loss(gelu(x), y); }", "f");
    compute(t, true);
    EXPECT(!strcmp(tape_site().file, "mine.c") && tape_site().line == 7);
    traced_close(t);
    qn_here(NULL, 0);
}

TEST_MAIN(CASE(operators_and_broadcasting), CASE(brackets_slices_and_gathers), CASE(reductions), CASE(types),
          CASE(scalar_functions), CASE(statements), CASE(random_numbers_are_those_of_the_language), CASE(appendix_mlp),
          CASE(appendix_mlp_step), CASE(gradients_are_by_parameter), CASE(kernels_are_ops), CASE(all_names_are_there),
          CASE(the_tensor_api), CASE(the_call_site_is_the_callers), CASE(mutated_programs))
