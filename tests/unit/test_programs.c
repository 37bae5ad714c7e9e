/*
 * The programs of the language's appendix, A.1 to A.4, executed under the checking interpreter in random program order,
 * at odd and even sizes, with tile sizes that do not divide them, and compared with direct computations.
 * SPDX-License-Identifier: MIT
 */
#include "program.h"

static const int sizes[] = {1, 2, 7, 16, 33};
#define EACH_SIZE(n) for (int n##_index = 0, n; n##_index < COUNT(sizes) && ((n = sizes[n##_index]), 1); n##_index++)

TEST(add)
{
    EACH_TYPE(t) EACH_TILE(b) EACH_SIZE(n)
    {
        program *p = program_new("a01_pointwise", "add", (dtype)t);
        set_int(p, "BLOCK", b);
        grid *x = random_fill(ARRAY(p, "a", (dtype)t, n), -2, 2), *y = random_fill(ARRAY(p, "b", (dtype)t, n), -2, 2),
             *z = ARRAY(p, "c", (dtype)t, n);
        double *want = NEW(p, n);
        for (int i = 0; i < n; i++) want[i] = stored((dtype)t, x->v[i] + y->v[i]);
        if (program_run(p)) expect_array(p, z, want);
        program_free(p);
    }
}

static double gelu(double x)
{
    return 0.5 * x * (1 + tanh(0.7978845608 * (x + 0.044715 * x * x * x)));
}

TEST(gelu_tile)
{
    EACH_TILE(b) EACH_SIZE(n)
    {
        program *p = program_new("a01_pointwise", "gelu_tile", DT_F32);
        set_int(p, "BLOCK", b);
        grid *x = random_fill(ARRAY(p, "x", DT_F32, n), -3, 3), *y = ARRAY(p, "y", DT_F32, n);
        double *want = NEW(p, n);
        for (int i = 0; i < n; i++) want[i] = gelu(x->v[i]);
        if (program_run(p)) expect_array(p, y, want);
        program_free(p);
    }
}

/* Raw kernels are lowered to a head; their text is the device's business. */
TEST(gelu_raw)
{
    program *p = program_new("a01_pointwise", "gelu_c", DT_F32);
    tile_kernel *k = NULL;
    EXPECT(program_lower(p, &k));
    EXPECT(k && k->raw_once && k->param_count == 3 && k->params[2].kind == PARAM_EXTENT &&
           !strcmp(k->raw_language, "c"));
    program_free(p);
    p = program_new("a01_pointwise", "gelu_raw", DT_F32);
    EXPECT(program_lower(p, &k));
    EXPECT(k && !k->raw_once && !strcmp(k->raw_language, "cuda"));
    program_free(p);
}

static void softmax_row_of(const double *x, double *y, int n)
{
    double top = -INFINITY, sum = 0;
    for (int i = 0; i < n; i++) top = fmax(top, x[i]);
    for (int i = 0; i < n; i++) sum += y[i] = exp(x[i] - top);
    for (int i = 0; i < n; i++) y[i] /= sum;
}

static void softmax_case(const char *kernel, dtype t, const char *constant, int tile, int rows, int cols)
{
    program *p = program_new("a02_softmax", kernel, t);
    if (constant) set_int(p, constant, tile);
    bool batched = !strcmp(kernel, "softmax_batched");
    grid *x, *y;
    if (batched) {
        x = ARRAY(p, "x", t, 3, rows, cols);
        y = ARRAY(p, "y", t, 3, rows, cols);
        rows *= 3;
    } else {
        x = ARRAY(p, "x", t, rows, cols);
        y = ARRAY(p, "y", t, rows, cols);
    }
    random_fill(x, -4, 4);
    double *want = NEW(p, rows * cols);
    for (int r = 0; r < rows; r++) softmax_row_of(x->v + r * cols, want + r * cols, cols);
    if (program_run(p)) expect_array(p, y, want);
    program_free(p);
}

TEST(softmax)
{
    EACH_TYPE(t) EACH_SIZE(cols)
    {
        softmax_case("softmax_row", (dtype)t, NULL, 0, 5, cols);
        if (t != DT_F64)
            softmax_case("softmax_batched", (dtype)t, NULL, 0, 2, cols); /* its tile function takes float */
        EACH_TILE(b)
        {
            softmax_case("softmax_three", (dtype)t, "BLOCK", b, 4, cols);
            softmax_case("softmax_online", (dtype)t, "BLOCK", b, 3, cols);
            softmax_case("softmax_short", (dtype)t, "R", b, 7, cols);
        }
    }
}

static void norm_case(const char *kernel, dtype t, int block, int rows, int cols)
{
    program *p = program_new("a03_norms", kernel, t);
    if (block) set_int(p, "BLOCK", block);
    set_float(p, "eps", 1e-5);
    grid *x = random_fill(ARRAY(p, "x", t, rows, cols), -1, 3),
         *gain = random_fill(ARRAY(p, "gain", t, cols), 0.5, 1.5);
    grid *bias = random_fill(ARRAY(p, "bias", t, cols), -1, 1), *y = ARRAY(p, "y", t, rows, cols);
    double *want = NEW(p, rows * cols);
    for (int r = 0; r < rows; r++) {
        double mean = 0, square = 0;
        for (int c = 0; c < cols; c++) mean += x->v[r * cols + c] / cols;
        for (int c = 0; c < cols; c++) square += pow(x->v[r * cols + c] - mean, 2) / cols;
        for (int c = 0; c < cols; c++)
            want[r * cols + c] = (x->v[r * cols + c] - mean) / sqrt(square + 1e-5) * gain->v[c] + bias->v[c];
    }
    if (program_run(p)) expect_array(p, y, want);
    program_free(p);
}

TEST(layer_norm)
{
    static const int columns[] = {2, 7, 16, 33};
    EACH_TYPE(t) for (int i = 0; i < COUNT(columns); i++)
    {
        norm_case("layer_norm", (dtype)t, 0, 3, columns[i]);
        EACH_TILE(b) norm_case("layer_norm_welford", (dtype)t, b, 3, columns[i]);
    }
}

static void rms_case(dtype t, int programs, int tile, int rows, int cols)
{
    program *p = program_new("a03_norms", "rms_norm_backward", t);
    set_int(p, "P", programs);
    set_int(p, "BC", tile);
    set_float(p, "eps", 1e-3);
    grid *x = random_fill(ARRAY(p, "x", t, rows, cols), -1, 2), *w = random_fill(ARRAY(p, "w", t, cols), 0.5, 1.5);
    grid *dy = random_fill(ARRAY(p, "dy", t, rows, cols), -1, 1), *dx = ARRAY(p, "dx", t, rows, cols),
         *dw = ARRAY(p, "dw", DT_F32, cols);
    double *want = NEW(p, rows * cols), *want_w = NEW(p, cols);
    for (int r = 0; r < rows; r++) {
        double square = 0, inner = 0;
        const double *v = x->v + r * cols, *g = dy->v + r * cols;
        for (int c = 0; c < cols; c++) square += v[c] * v[c];
        double s = 1 / sqrt(square / cols + 1e-3);
        for (int c = 0; c < cols; c++) inner += v[c] * w->v[c] * g[c];
        for (int c = 0; c < cols; c++) {
            want[r * cols + c] = s * w->v[c] * g[c] - v[c] * (s * s * s * inner / cols);
            want_w[c] += g[c] * v[c] * s;
        }
    }
    if (program_run(p)) {
        expect_array(p, dx, want);
        expect_array(p, dw, want_w);
    }
    program_free(p);
}

TEST(rms_norm_backward)
{
    EACH_TYPE(t) EACH_TILE(b) EACH_SIZE(n) rms_case((dtype)t, 1 + n % 5, b, n % 9 + 1, n);
}

static void cross_entropy_case(dtype t, int rows, int cols)
{
    program *p = program_new("a04_reductions", "cross_entropy", t);
    grid *x = random_fill(ARRAY(p, "x", t, rows, cols), -3, 3),
         *target = random_integers(ARRAY(p, "target", DT_I64, rows), cols);
    grid *loss = ARRAY(p, "loss", DT_F32, rows), *dx = ARRAY(p, "dx", t, rows, cols);
    double *want = NEW(p, rows), *want_x = NEW(p, rows * cols);
    for (int r = 0; r < rows; r++) {
        const double *v = x->v + r * cols;
        double z = 0;
        int hit = (int)target->v[r];
        softmax_row_of(v, want_x + r * cols, cols);
        for (int c = 0; c < cols; c++) z += exp(v[c]);
        want[r] = log(z) - v[hit];
        want_x[r * cols + hit] -= 1;
        for (int c = 0; c < cols; c++) want_x[r * cols + c] /= rows;
    }
    if (program_run(p)) {
        expect_array(p, loss, want);
        expect_array(p, dx, want_x);
    }
    program_free(p);
}

TEST(cross_entropy)
{
    EACH_TYPE(t) EACH_SIZE(n) cross_entropy_case((dtype)t, 4, n);
}

static void sum_case(const char *kernel, int programs, int tile, int n)
{
    program *p = program_new("a04_reductions", kernel, DT_F32);
    if (tile) set_int(p, "BLOCK", tile);
    if (programs) set_int(p, "P", programs);
    grid *x = random_fill(ARRAY(p, "x", DT_F32, n), -2, 3), *y = array_new(p, "y", DT_F32, NULL, 0);
    double want = 0;
    for (int i = 0; i < n; i++) want += x->v[i];
    if (program_run(p)) EXPECT_NEAR(y->v[0], want, 1e-4);
    program_free(p);
}

TEST(sums)
{
    EACH_SIZE(n)
    {
        sum_case("sum_tree", 0, 0, n);
        EACH_TILE(b)
        {
            sum_case("sum_atomic", 0, b, n);
            sum_case("sum_two_step", 3, b, n);
        }
    }
}

TEST(argmax_rows)
{
    EACH_TYPE(t) EACH_TILE(r) EACH_SIZE(cols)
    {
        int rows = 7;
        program *p = program_new("a04_reductions", "argmax_rows", (dtype)t);
        set_int(p, "R", r);
        grid *x = ARRAY(p, "x", (dtype)t, rows, cols), *index = ARRAY(p, "index", DT_I64, rows),
             *best = ARRAY(p, "value", (dtype)t, rows);
        for (int64_t i = 0; i < x->count; i++) x->v[i] = (double)random_below(5) - 2; /* with ties */
        double *want = NEW(p, rows), *want_value = NEW(p, rows);
        for (int i = 0; i < rows; i++) {
            for (int c = 1; c < cols; c++)
                if (x->v[i * cols + c] > x->v[i * cols + (int)want[i]]) want[i] = c;
            want_value[i] = x->v[i * cols + (int)want[i]];
        }
        if (program_run(p)) {
            expect_array(p, index, want);
            expect_array(p, best, want_value);
        }
        program_free(p);
    }
}

TEST(cumsum)
{
    EACH_SIZE(n)
    {
        program *p = program_new("a04_reductions", "cumsum_rows", DT_F32);
        grid *x = random_fill(ARRAY(p, "x", DT_F32, 3, n), -1, 1), *y = ARRAY(p, "y", DT_F32, 3, n);
        double *want = NEW(p, 3 * n);
        for (int r = 0; r < 3; r++)
            for (int i = 0; i < n; i++) want[r * n + i] = x->v[r * n + i] + (i ? want[r * n + i - 1] : 0);
        if (program_run(p)) expect_array(p, y, want);
        program_free(p);
        EACH_TILE(b)
        {
            p = program_new("a04_reductions", "cumsum_long", DT_F32);
            set_int(p, "BLOCK", b);
            x = random_fill(ARRAY(p, "x", DT_F32, n), -1, 1), y = ARRAY(p, "y", DT_F32, n);
            want = NEW(p, n);
            for (int i = 0; i < n; i++) want[i] = x->v[i] + (i ? want[i - 1] : 0);
            if (program_run(p)) expect_array(p, y, want);
            program_free(p);
        }
    }
}

TEST(histogram)
{
    EACH_TILE(b) EACH_SIZE(n)
    {
        program *p = program_new("a04_reductions", "histogram", DT_F32);
        set_int(p, "BLOCK", b);
        grid *x = random_integers(ARRAY(p, "x", DT_U8, 5 * n), 256), *count = ARRAY(p, "count", DT_I32, 256);
        double *want = NEW(p, 256);
        for (int i = 0; i < 5 * n; i++) want[(int)x->v[i]]++;
        if (program_run(p)) expect_array(p, count, want);
        program_free(p);
    }
}

TEST(topk)
{
    static const int counts[] = {1, 3, 4};
    for (int i = 0; i < COUNT(counts); i++) EACH_SIZE(cols)
        {
            int k = counts[i], rows = 3;
            if (k > cols) continue;
            program *p = program_new("a04_reductions", "topk", DT_F32);
            set_int(p, "K", k);
            grid *x = random_fill(ARRAY(p, "x", DT_F32, rows, cols), -2, 2), *best = ARRAY(p, "value", DT_F32, rows, k),
                 *index = ARRAY(p, "index", DT_I64, rows, k);
            double *want = NEW(p, rows * k), *want_index = NEW(p, rows * k), *left = NEW(p, rows * cols);
            memcpy(left, x->v, sizeof(double) * (size_t)(rows * cols));
            for (int r = 0; r < rows; r++)
                for (int n = 0; n < k; n++) {
                    int at = 0;
                    for (int c = 0; c < cols; c++)
                        if (left[r * cols + c] > left[r * cols + at]) at = c;
                    want[r * k + n] = x->v[r * cols + at];
                    want_index[r * k + n] = at;
                    left[r * cols + at] = -INFINITY;
                }
            if (program_run(p)) {
                expect_array(p, best, want);
                expect_array(p, index, want_index);
            }
            program_free(p);
        }
}

TEST_MAIN(CASE(add), CASE(gelu_tile), CASE(gelu_raw), CASE(softmax), CASE(layer_norm), CASE(rms_norm_backward),
          CASE(cross_entropy), CASE(sums), CASE(argmax_rows), CASE(cumsum), CASE(histogram), CASE(topk))
