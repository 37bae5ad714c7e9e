/*
 * Tensor functions as whole programs: those of the appendix, gradients against central differences, kernels as ops, the
 * names of the tensor interface, call sites.
 * SPDX-License-Identifier: MIT
 */
#include "function_text.h"

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
        {"logsumexp(x, axis = 1, keep = false) + var(x, axis = 1, keep = false) + std(x, axis = 1, keep = false)", 1, {3}},
        {"norm(x, axis = 0, keep = false) + amax(x, axis = 0, keep = false) - amin(x, axis = 0, keep = false)", 1, {4}},
        {"x - logsumexp(x, keep = true) + var(x, axis = 1, keep = true)", 2, {3, 4}},
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

TEST_MAIN(CASE(appendix_mlp), CASE(appendix_mlp_step), CASE(gradients_are_by_parameter), CASE(kernels_are_ops),
          CASE(all_names_are_there), CASE(the_tensor_api), CASE(the_call_site_is_the_callers))
